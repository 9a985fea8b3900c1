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
