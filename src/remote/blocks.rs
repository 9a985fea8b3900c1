//! Objects that are read block by block: what is fetched is held against its sum and kept.
//!
//! Leaves out: which blocks are kept (`cache`), and where sums come from (`shard`).
//!
//! Invariants:
//! 1. A block that has a sum is believed only if it agrees; one that does not is asked for again a few
//!    times, and is then an error that names it.
//! 2. Neighbouring blocks come in one request of at most [`MOST_BYTES`]; requests are on their way at the
//!    same time, as many as were allowed for the place.
//! 3. What a call holds beside its buffers is bounded: by its share of requests, and [`GROUP`] blocks.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::blocking::Pending;
use super::cache::BlockCache;
use super::read::Object;
use super::storage::of_remote;
use super::{Remote, RemoteError, RemoteErrorKind};
use crate::storage::{Blocks, ReadFile, Result, StorageError};

/// The most bytes of one request.
const MOST_BYTES: u64 = 4 << 20;

/// The most blocks that are looked for together.
const GROUP: usize = 64;

/// How often a block is asked for again that is not what was sealed.
const DAMAGE_RETRIES: usize = 3;

/// An object of which blocks are read.
#[derive(Debug)]
pub(super) struct BlockFile {
    remote: Remote,
    relative: String,
    path: PathBuf,
    object: Object,
    blocks: Blocks,
    cache: Arc<BlockCache>,
    /// Its number in the cache.
    file: u64,
}

/// Blocks that this thread fetches; nobody waits for them in vain.
struct Fetching<'a> {
    cache: &'a BlockCache,
    file: u64,
    blocks: Vec<u64>,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.cache.settle(self.file, &self.blocks);
    }
}

impl BlockFile {
    pub(super) fn new(
        remote: Remote,
        relative: String,
        path: &Path,
        object: Object,
        blocks: Blocks,
        cache: Arc<BlockCache>,
    ) -> Self {
        let file = cache.add_file();
        let blocks = Blocks { bytes: blocks.bytes.max(1), ..blocks };
        Self { remote, relative, path: path.to_path_buf(), object, blocks, cache, file }
    }

    fn block_range(&self, block: u64) -> Range<u64> {
        let start = block.saturating_mul(self.blocks.bytes);
        start..start.saturating_add(self.blocks.bytes).min(self.object.size)
    }

    /// The blocks that pieces lie in, and which pieces lie in each.
    fn wanted(&self, pieces: &[(u64, &mut [u8])]) -> Result<BTreeMap<u64, Vec<usize>>> {
        let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, (offset, buf)) in pieces.iter().enumerate() {
            if buf.is_empty() {
                continue;
            }
            let end = offset.checked_add(buf.len() as u64);
            let Some(end) = end.filter(|end| *end <= self.object.size) else {
                let source = io::ErrorKind::UnexpectedEof.into();
                return Err(StorageError::new("read", &self.path, source));
            };
            for block in offset / self.blocks.bytes..=(end - 1) / self.blocks.bytes {
                wanted.entry(block).or_default().push(index);
            }
        }
        Ok(wanted)
    }

    /// Copies what pieces need of a block.
    fn copy(&self, block: u64, bytes: &[u8], pieces: &mut [(u64, &mut [u8])], of: &[usize]) {
        let range = self.block_range(block);
        for index in of {
            let Some((offset, buf)) = pieces.get_mut(*index) else { continue };
            let from = range.start.max(*offset);
            let to = range.end.min(*offset + buf.len() as u64);
            let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let source = bytes.get(at(from - range.start)..at(to - range.start));
            let target = buf.get_mut(at(from - *offset)..at(to - *offset));
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
        }
    }

    /// Neighbouring blocks together, as far as one request goes.
    fn requests(&self, blocks: &[u64]) -> Vec<Range<u64>> {
        let most = (MOST_BYTES / self.blocks.bytes).max(1);
        let mut requests: Vec<Range<u64>> = Vec::new();
        for block in blocks {
            match requests.last_mut() {
                Some(last) if last.end == *block && last.end - last.start < most => last.end += 1,
                _ => requests.push(*block..block + 1),
            }
        }
        requests
    }

    fn refuse(&self, error: RemoteError) -> StorageError {
        of_remote("read", &self.path, error)
    }

    /// Fetches blocks, keeps them and hands them to `each`.
    fn fetch(&self, blocks: &[u64], mut each: impl FnMut(u64, &[u8])) -> Result<()> {
        let requests = self.requests(blocks);
        let ranges = requests.iter().map(|blocks| {
            self.block_range(blocks.start).start..self.block_range(blocks.end - 1).end
        });
        let permits = &self.cache.permits;
        let mut answers = self
            .remote
            .begin_reads(&self.relative, ranges.collect(), self.object.clone(), permits)
            .map_err(|e| self.refuse(e))?;
        while let Some(answer) = answers.next() {
            let (index, (bytes, permit)) = answer.map_err(|e| self.refuse(e))?;
            let Some(request) = requests.get(index).cloned() else { continue };
            let is_one = request.end - request.start == 1;
            let mut rest = bytes;
            for block in request {
                let range = self.block_range(block);
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let piece = rest.split_to(len.min(rest.len()));
                // A piece of an answer would keep all of it.
                let piece = if is_one { piece } else { Bytes::copy_from_slice(&piece) };
                let piece = self.checked(block, piece)?;
                each(block, &piece);
                self.cache.keep((self.file, block), piece);
            }
            drop(permit);
        }
        Ok(())
    }

    /// The block if it is what was sealed, or what comes when it is asked for again.
    fn checked(&self, block: u64, mut bytes: Bytes) -> Result<Bytes> {
        let Some(crcs) = &self.blocks.crcs else { return Ok(bytes) };
        let index = usize::try_from(block).unwrap_or(usize::MAX);
        let want = crcs.get(index).copied();
        let range = self.block_range(block);
        for _ in 0..DAMAGE_RETRIES {
            if want == Some(crc32fast::hash(&bytes)) {
                return Ok(bytes);
            }
            let of = Some(self.object.clone());
            let again = self.remote.begin_read(&self.relative, range.clone(), of);
            bytes = again.and_then(Pending::wait).map_err(|e| self.refuse(e))?.1;
        }
        if want == Some(crc32fast::hash(&bytes)) {
            return Ok(bytes);
        }
        let said = format!(
            "block {block}, bytes {} to {}, does not match its CRC-32",
            range.start, range.end
        );
        let url = self.remote.show(&self.relative);
        Err(self.refuse(RemoteError::of("read", url, RemoteErrorKind::Damaged, Some(said))))
    }
}

impl ReadFile for BlockFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_many(&mut [(offset, buf)])
    }

    fn read_many(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        let mut wanted = self.wanted(pieces)?;
        while !wanted.is_empty() {
            let group: Vec<u64> = wanted.keys().take(GROUP).copied().collect();
            let claimed = self.cache.claim(self.file, &group);
            let cache = &*self.cache;
            let own = Fetching { cache, file: self.file, blocks: claimed.own };
            for (block, bytes) in claimed.there {
                let of = wanted.remove(&block).unwrap_or_default();
                self.copy(block, &bytes, pieces, &of);
            }
            self.fetch(&own.blocks, |block, bytes| {
                let of = wanted.remove(&block).unwrap_or_default();
                self.copy(block, bytes, pieces, &of);
            })?;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.object.size
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        self.cache.remove_file(self.file);
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use tokio::runtime::Builder;

    use super::super::cache::BlockCacheOptions;
    use super::*;

    const BLOCK: usize = 64;

    /// An object of that content, what stores it, and its file with blocks of [`BLOCK`] bytes.
    fn opened(content: &[u8], cache_bytes: u64) -> (Arc<InMemory>, BlockFile, Arc<BlockCache>) {
        let store = Arc::new(InMemory::new());
        let remote = Remote::of_store("s3://b/p", Arc::clone(&store));
        put(&store, content);
        let cache =
            Arc::new(BlockCache::new(BlockCacheOptions { bytes: cache_bytes, requests: 3 }));
        let crcs: Vec<u32> = content.chunks(BLOCK).map(crc32fast::hash).collect();
        let blocks = Blocks { bytes: BLOCK as u64, crcs: Some(crcs.into()) };
        let object = remote.head("x.bin").unwrap();
        let path = Path::new("s3://b/p/x.bin");
        let kept = Arc::clone(&cache);
        let file = BlockFile::new(remote, "x.bin".to_owned(), path, object, blocks, kept);
        (store, file, cache)
    }

    fn put(store: &InMemory, content: &[u8]) {
        let path = object_store::path::Path::from("p/x.bin");
        let put = store.put(&path, content.to_vec().into());
        Builder::new_current_thread().build().unwrap().block_on(put).unwrap();
    }

    #[test]
    fn pieces_are_those_of_the_object_whatever_is_kept() {
        let mut content = vec![0; 10_001];
        blake3::Hasher::new().finalize_xof().fill(&mut content);
        for cache_bytes in [0, 70, 1000, 1 << 20] {
            let (_, file, cache) = opened(&content, cache_bytes);
            for step in [1, 3, 63, 64, 65, 700, 10_001] {
                // Backwards, and each twice.
                let starts = (0..content.len()).step_by(step.max(50)).rev();
                let starts = starts.flat_map(|start| [start, start]);
                let ends = |start: usize| (start + step).min(content.len());
                let ranges: Vec<_> = starts.map(|start| start..ends(start)).collect();
                let mut bufs: Vec<Vec<u8>> =
                    ranges.iter().map(|range| vec![0; range.len()]).collect();
                let mut pieces: Vec<_> = ranges
                    .iter()
                    .zip(&mut bufs)
                    .map(|(range, buf)| (range.start as u64, buf.as_mut_slice()))
                    .collect();
                file.read_many(&mut pieces).unwrap();
                for (range, buf) in ranges.iter().zip(&bufs) {
                    assert!(content[range.clone()] == buf[..], "{range:?} with {cache_bytes}");
                }
                assert!(cache.held_bytes() <= cache_bytes);
            }
            let error = file.read_at(&mut [0; 2], 10_000).unwrap_err();
            assert_eq!(error.source.kind(), io::ErrorKind::UnexpectedEof);
            drop(file);
            assert_eq!(cache.held_bytes(), 0);
        }
    }

    #[test]
    fn neighbours_come_together_as_far_as_a_request_goes() {
        let (_, file, _) = opened(&[7; 1000], 0);
        assert_eq!(file.requests(&[0, 1, 2, 5, 7, 8]), [0..3, 5..6, 7..9]);
        let most = MOST_BYTES / BLOCK as u64;
        let many: Vec<u64> = (0..=most).collect();
        assert_eq!(file.requests(&many), [0..most, most..most + 1]);
    }

    #[test]
    fn what_is_not_what_was_sealed_is_refused_and_named() {
        let content = [7; 1000];
        let (store, file, cache) = opened(&content, 1 << 20);
        let mut byte = [0];
        file.read_at(&mut byte, 5).unwrap();
        put(&store, &content);
        file.read_at(&mut byte, 6).expect("it is kept");
        let changed = file.read_at(&mut byte, 900).unwrap_err();
        let cause = super::super::remote_cause(&changed).unwrap();
        assert_eq!(cause.kind(), RemoteErrorKind::Changed);
        assert_eq!(cause.url(), "s3://b/p/x.bin");

        let mut spoiled = content;
        spoiled[130] ^= 1;
        put(&store, &spoiled);
        let object = file.remote.head("x.bin").unwrap();
        let (remote, blocks) = (file.remote.clone(), file.blocks.clone());
        let path = Path::new("s3://b/p/x.bin");
        let file = BlockFile::new(remote, "x.bin".to_owned(), path, object, blocks, cache);
        file.read_at(&mut byte, 1).unwrap();
        for _ in 0..2 {
            // Nobody waits for a block that did not come.
            let damaged = file.read_at(&mut byte, 130).unwrap_err();
            assert_eq!(
                super::super::remote_cause(&damaged).unwrap().to_string(),
                "cannot read `s3://b/p/x.bin`: what came is not what was to come (block 2, bytes \
                 128 to 192, does not match its CRC-32)"
            );
        }
    }
}
