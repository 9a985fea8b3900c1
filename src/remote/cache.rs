//! Blocks of objects, kept in memory: the last ones that were used, up to a number of bytes.
//!
//! In memory, not on a disk: there is nothing to clear away or to lock between processes, what was
//! held against its sum stays what it was, and who reads the same rows again and again pulls the dataset.
//!
//! Leaves out: fetching them (`blocks`).
//!
//! Invariants:
//! 1. Blocks that are kept never hold more than the bytes that were allowed.
//! 2. A block is fetched by one thread at a time; others that want it wait for it, holding nothing that
//!    anybody waits for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;

/// How much is kept of a place that is read block by block, and how it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCacheOptions {
    /// Bytes of blocks that are kept in memory.
    pub bytes: u64,
    /// Requests at once; each takes up to 4 MiB while it is answered.
    pub requests: usize,
}

impl Default for BlockCacheOptions {
    fn default() -> Self {
        Self { bytes: 256 << 20, requests: 16 }
    }
}

/// A file that was opened, and the number of a block of it.
pub(super) type BlockId = (u64, u64);

#[derive(Debug)]
pub(super) struct BlockCache {
    state: Mutex<State>,
    changed: Condvar,
    most_bytes: u64,
    /// One for each request that is on its way.
    pub(super) permits: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<BlockId, Kept>,
    /// Which block was used at which tick, the one that was not used for longest first.
    by_use: BTreeMap<u64, BlockId>,
    fetching: HashSet<BlockId>,
    held_bytes: u64,
    tick: u64,
    n_files: u64,
}

#[derive(Debug)]
struct Kept {
    bytes: Bytes,
    used: u64,
}

/// What is to be done for some blocks.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Those that are kept.
    pub(super) there: Vec<(u64, Bytes)>,
    /// Those that the caller has to fetch now.
    pub(super) own: Vec<u64>,
}

impl BlockCache {
    pub(super) fn new(options: BlockCacheOptions) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            most_bytes: options.bytes,
            permits: Arc::new(Semaphore::new(options.requests.clamp(1, 1 << 10))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a file, under which its blocks are kept.
    pub(super) fn add_file(&self) -> u64 {
        let mut state = self.state();
        state.n_files += 1;
        state.n_files
    }

    /// Forgets the blocks of a file that nobody reads any more.
    pub(super) fn remove_file(&self, file: u64) {
        let mut state = self.state();
        let gone: Vec<BlockId> = state.blocks.keys().filter(|id| id.0 == file).copied().collect();
        for id in gone {
            state.remove(id);
        }
    }

    /// Finds some of the blocks, or lets the caller fetch some; waits while others fetch all of them.
    /// What is to be fetched has to be [given back](BlockCache::settle).
    pub(super) fn claim(&self, file: u64, blocks: &[u64]) -> Claimed {
        let mut state = self.state();
        loop {
            let mut claimed = Claimed::default();
            for block in blocks {
                let id = (file, *block);
                if let Some(bytes) = state.touch(id) {
                    claimed.there.push((*block, bytes));
                } else if state.fetching.insert(id) {
                    claimed.own.push(*block);
                }
            }
            if blocks.is_empty() || !claimed.there.is_empty() || !claimed.own.is_empty() {
                return claimed;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps a block.
    pub(super) fn keep(&self, id: BlockId, bytes: Bytes) {
        let mut state = self.state();
        let len = bytes.len() as u64;
        if len > self.most_bytes {
            return;
        }
        state.remove(id);
        while state.held_bytes + len > self.most_bytes {
            let Some((_, oldest)) = state.by_use.first_key_value() else { break };
            let oldest = *oldest;
            state.remove(oldest);
        }
        state.tick += 1;
        let used = state.tick;
        state.held_bytes += len;
        state.by_use.insert(used, id);
        state.blocks.insert(id, Kept { bytes, used });
    }

    /// Gives blocks back that were to be fetched, whether they were or not.
    pub(super) fn settle(&self, file: u64, blocks: &[u64]) {
        let mut state = self.state();
        for block in blocks {
            state.fetching.remove(&(file, *block));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Bytes of the blocks that are kept.
    pub(super) fn held_bytes(&self) -> u64 {
        self.state().held_bytes
    }
}

impl State {
    fn touch(&mut self, id: BlockId) -> Option<Bytes> {
        let kept = self.blocks.get_mut(&id)?;
        self.tick += 1;
        self.by_use.remove(&kept.used);
        kept.used = self.tick;
        self.by_use.insert(self.tick, id);
        Some(kept.bytes.clone())
    }

    fn remove(&mut self, id: BlockId) {
        if let Some(kept) = self.blocks.remove(&id) {
            self.by_use.remove(&kept.used);
            self.held_bytes -= kept.bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(len: usize) -> Bytes {
        vec![7; len].into()
    }

    fn fetch(cache: &BlockCache, file: u64, number: u64, len: usize) {
        assert_eq!(cache.claim(file, &[number]).own, [number], "block {number} is not there");
        cache.keep((file, number), block(len));
        cache.settle(file, &[number]);
    }

    #[test]
    fn the_block_that_was_not_used_for_longest_goes_first() {
        let cache = BlockCache::new(BlockCacheOptions { bytes: 30, requests: 1 });
        let file = cache.add_file();
        for number in 0..3 {
            fetch(&cache, file, number, 10);
        }
        assert_eq!(cache.claim(file, &[0]).there.len(), 1, "used again");
        fetch(&cache, file, 3, 10);
        assert_eq!(cache.held_bytes(), 30);
        let claimed = cache.claim(file, &[0, 1, 2, 3]);
        let there: Vec<u64> = claimed.there.iter().map(|(number, _)| *number).collect();
        assert_eq!((&there[..], &claimed.own[..]), (&[0, 2, 3][..], &[1][..]));
        cache.settle(file, &claimed.own);
        fetch(&cache, file, 4, 25);
        assert_eq!(cache.held_bytes(), 25);
        fetch(&cache, file, 5, 31);
        assert_eq!(cache.held_bytes(), 25, "what is too large is not kept");
        cache.remove_file(file);
        assert_eq!(cache.held_bytes(), 0);
    }

    #[test]
    fn a_block_that_somebody_fetches_is_waited_for() {
        let cache = Arc::new(BlockCache::new(BlockCacheOptions::default()));
        let file = cache.add_file();
        assert_eq!(cache.claim(file, &[0, 1]).own, [0, 1]);
        let of_thread = Arc::clone(&cache);
        let other = std::thread::spawn(move || of_thread.claim(file, &[0, 1]));
        // One comes, the other does not.
        cache.keep((file, 1), block(10));
        cache.settle(file, &[0, 1]);
        let claimed = other.join().unwrap();
        assert!(claimed.own.len() + claimed.there.len() > 0);
        assert!(!claimed.own.contains(&1), "it is there: {claimed:?}");
    }
}
