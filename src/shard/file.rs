//! One file of an open shard, summed as it grows.
//!
//! Leaves out: what the bytes mean (`fields`) and when they are synced (`open`).
//!
//! Invariants:
//! 1. Bytes are hashed in chunks right before they are written, while the processor's cache holds
//!    them; no file is read again to be sealed, unless it was recovered.
//! 2. The sums cover exactly the bytes that were appended, wherever appends were cut.
//! 3. What is gathered never takes more than a chunk.

use std::path::Path;

use super::error::{Damage, Fault, ShardError};
use super::layout::BLOCK_BYTES;
use super::manifest::{Mark, Segment};
use crate::storage::{AppendFile, Storage, SyncFile};

/// Bytes hashed and written at once. Chunks end at multiples of it: pieces that lie across the
/// boundaries of BLAKE3's tree are hashed in many small steps.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

/// A file of an open shard.
#[derive(Debug)]
pub(super) struct ShardFile {
    name: String,
    file: Box<dyn AppendFile>,
    gathered: Vec<u8>,
    sums: Sums,
    segment: crc32fast::Hasher,
    synced_len: u64,
}

/// What a file is known by when it is sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileSums {
    /// Its name.
    pub(super) name: String,
    /// Its size in bytes.
    pub(super) len: u64,
    /// BLAKE3 of its bytes.
    pub(super) blake3: blake3::Hash,
    /// CRC-32 of each of its blocks.
    pub(super) blocks: Vec<u32>,
}

/// BLAKE3 of a file and CRC-32 of its blocks, as far as it has been written.
#[derive(Debug, Default)]
struct Sums {
    blake3: blake3::Hasher,
    blocks: Vec<u32>,
    block: crc32fast::Hasher,
    block_bytes: u64,
    len: u64,
}

impl Sums {
    /// Takes bytes in; gives their CRC-32 to `segment` too.
    fn update(&mut self, mut bytes: &[u8], segment: &mut crc32fast::Hasher) {
        self.blake3.update(bytes);
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK_BYTES - self.block_bytes).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let mut piece = crc32fast::Hasher::new();
            piece.update(now);
            self.block.combine(&piece);
            segment.combine(&piece);
            self.block_bytes += now.len() as u64;
            if self.block_bytes == BLOCK_BYTES {
                self.end_block();
            }
            bytes = later;
        }
    }

    fn end_block(&mut self) {
        self.blocks.push(std::mem::take(&mut self.block).finalize());
        self.block_bytes = 0;
    }
}

impl ShardFile {
    /// Creates an empty file in `dir`.
    pub(super) fn create(
        storage: &dyn Storage,
        dir: &Path,
        name: &str,
    ) -> Result<Self, ShardError> {
        let file = storage.create(&dir.join(name))?;
        Ok(Self::new(name, file))
    }

    fn new(name: &str, file: Box<dyn AppendFile>) -> Self {
        Self {
            name: name.to_owned(),
            file,
            gathered: Vec::new(),
            sums: Sums::default(),
            segment: crc32fast::Hasher::new(),
            synced_len: 0,
        }
    }

    /// Opens a file that was cut to its committed length, reads it once and compares it with its
    /// `segments`. `initial` is what it held before the first of them.
    ///
    /// # Errors
    /// It is shorter than its last segment promises, or a segment's bytes are not what was committed.
    pub(super) fn recover(
        storage: &dyn Storage,
        dir: &Path,
        name: &str,
        initial: &[u8],
        segments: &[Segment],
    ) -> Result<Self, Fault> {
        let path = dir.join(name);
        let mut marks = vec![Mark { len: initial.len() as u64, crc32: crc32fast::hash(initial) }];
        for segment in segments {
            let mark = segment.files.get(name).cloned();
            marks.push(mark.ok_or_else(|| Damage::Unmarked { file: name.to_owned() })?);
        }
        let len = marks.last().map_or(0, |mark| mark.len);
        let found = storage.stat(&path)?.map(|entry| entry.len);
        if found.is_none_or(|found| found < len) {
            let file = name.to_owned();
            return Err(Damage::Short { file, len, found }.into());
        }
        let mut this = Self::new(name, storage.open_append(&path, len)?);
        let reader = storage.open(&path)?;
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(len).unwrap_or(CHUNK_BYTES))];
        for (segment, mark) in marks.iter().enumerate() {
            while this.sums.len < mark.len {
                let left = usize::try_from(mark.len - this.sums.len).unwrap_or(usize::MAX);
                let n = left.min(chunk.len());
                let Some(piece) = chunk.get_mut(..n) else { break };
                reader.read_at(piece, this.sums.len)?;
                this.sums.update(piece, &mut this.segment);
            }
            let crc32 = std::mem::take(&mut this.segment).finalize();
            if this.sums.len != mark.len || crc32 != mark.crc32 {
                // Line 1 is the header, which promises the initial bytes.
                let (file, line) = (name.to_owned(), segment as u64 + 1);
                return Err(Damage::Sum { file, line }.into());
            }
        }
        this.file.sync()?;
        this.synced_len = len;
        Ok(this)
    }

    /// The file's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Bytes appended so far.
    pub(super) fn len(&self) -> u64 {
        self.sums.len + self.gathered.len() as u64
    }

    /// Memory that is taken for what is gathered.
    pub(super) fn held_bytes(&self) -> usize {
        self.gathered.capacity()
    }

    /// Hands what was gathered to the system, and gives its memory back.
    pub(super) fn release(&mut self) -> Result<(), ShardError> {
        self.flush()?;
        self.gathered = Vec::new();
        Ok(())
    }

    /// Appends `bytes`. Whole chunks are written without being copied, the rest is gathered.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), ShardError> {
        let (mut chunks, begun) = (bytes, self.chunk_bytes());
        if begun > 0 {
            let Some((head, rest)) = bytes.split_at_checked(CHUNK_BYTES - begun) else {
                self.gather(bytes);
                return Ok(());
            };
            self.gather(head);
            self.flush()?;
            chunks = rest;
        }
        let (chunks, rest) = chunks.split_at(chunks.len() - chunks.len() % CHUNK_BYTES);
        self.write(chunks)?;
        self.gather(rest);
        Ok(())
    }

    fn gather(&mut self, bytes: &[u8]) {
        let wanted = self.gathered.len() + bytes.len();
        if wanted > self.gathered.capacity() {
            // As a vector grows by itself, but not beyond a chunk.
            let room = (2 * self.gathered.capacity()).min(CHUNK_BYTES).max(wanted);
            self.gathered.reserve_exact(room - self.gathered.len());
        }
        self.gathered.extend_from_slice(bytes);
    }

    /// Bytes of the last chunk, which is not whole.
    fn chunk_bytes(&self) -> usize {
        usize::try_from(self.len() % CHUNK_BYTES as u64).unwrap_or_default()
    }

    /// Hands what was gathered to the system.
    pub(super) fn flush(&mut self) -> Result<(), ShardError> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let outcome = self.write(&gathered);
        gathered.clear();
        self.gathered = gathered;
        outcome
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ShardError> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.sums.update(chunk, &mut self.segment);
            self.file.append(chunk)?;
        }
        Ok(())
    }

    /// Ends a segment: what was appended since the last one, all of it handed to the system.
    pub(super) fn mark(&mut self) -> Result<Mark, ShardError> {
        self.flush()?;
        Ok(Mark { len: self.len(), crc32: std::mem::take(&mut self.segment).finalize() })
    }

    /// A handle that syncs what was handed to the system so far, if that is more than last time.
    pub(super) fn syncer(&mut self) -> Option<Box<dyn SyncFile>> {
        if self.sums.len == self.synced_len {
            return None;
        }
        self.synced_len = self.sums.len;
        Some(self.file.syncer())
    }

    /// Makes everything appended so far durable.
    pub(super) fn sync(&mut self) -> Result<(), ShardError> {
        self.flush()?;
        self.file.sync()?;
        self.synced_len = self.sums.len;
        Ok(())
    }

    /// The file's sums; it is not written again.
    pub(super) fn into_sums(mut self) -> Result<FileSums, ShardError> {
        self.flush()?;
        let Sums { ref mut blocks, .. } = self.sums;
        let mut blocks = std::mem::take(blocks);
        if self.sums.block_bytes > 0 {
            blocks.push(self.sums.block.clone().finalize());
        }
        let (len, blake3) = (self.sums.len, self.sums.blake3.finalize());
        Ok(FileSums { name: self.name, len, blake3, blocks })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::{Position, Restart};
    use crate::shard::manifest::{Cut, Next};
    use crate::storage::Local;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n as u64).map(|i| (i * 7 + i / 251).to_le_bytes()[0]).collect()
    }

    fn segment(mark: Mark) -> Segment {
        let next = Next::At(Position::default());
        let cut = Cut { next, restart: Restart::default(), seen: 0, books: json!({}) };
        Segment { seq: 0, rows: 0, cut, files: [("a".to_owned(), mark)].into() }
    }

    #[test]
    fn sums_do_not_depend_on_how_appends_are_cut() {
        let whole = bytes((2 << 20) + 12345);
        let dir = tempfile::tempdir().unwrap();
        let mut seen = Vec::new();
        for (name, piece) in [("28", 28), ("chunk", CHUNK_BYTES), ("odd", 70_001), ("all", 1 << 22)]
        {
            let mut file = ShardFile::create(&Local, dir.path(), name).unwrap();
            for piece in whole.chunks(piece) {
                file.append(piece).unwrap();
            }
            assert_eq!(file.len(), whole.len() as u64);
            let mark = file.mark().unwrap();
            assert_eq!(mark.crc32, crc32fast::hash(&whole), "{name}");
            let sums = file.into_sums().unwrap();
            assert_eq!(Local.read(&dir.path().join(name)).unwrap().unwrap(), whole, "{name}");
            seen.push((sums.len, sums.blake3, sums.blocks));
        }
        let blocks: Vec<u32> = whole.chunks(1 << 20).map(crc32fast::hash).collect();
        for sums in seen {
            assert_eq!(sums, (whole.len() as u64, blake3::hash(&whole), blocks.clone()));
        }
    }

    #[test]
    fn recovered_file_goes_on_with_the_same_sums() {
        let dir = tempfile::tempdir().unwrap();
        let (head, tail, lost) = (bytes(1_500_000), bytes(700_000), bytes(999));
        let mut file = ShardFile::create(&Local, dir.path(), "a").unwrap();
        file.append(&head).unwrap();
        let segments = [segment(file.mark().unwrap())];
        file.append(&lost).unwrap();
        file.flush().unwrap();
        drop(file);
        let mut file = ShardFile::recover(&Local, dir.path(), "a", b"", &segments).unwrap();
        file.append(&tail).unwrap();
        let mark = file.mark().unwrap();
        assert_eq!((mark.len, mark.crc32), (2_200_000, crc32fast::hash(&tail)));
        let whole = [head, tail].concat();
        assert_eq!(file.into_sums().unwrap().blake3, blake3::hash(&whole));
    }
}
