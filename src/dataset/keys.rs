//! The key index: where the row with a key is, over all shards of a generation.
//!
//! Leaves out: making it (`merge`), and the shards' own `keys.bin`, which it is made from.
//!
//! Invariants:
//! 1. Entries are sorted by hash, shard and row; the start of `p` is the index of the first entry
//!    whose hash has top 16 bits of at least `p`.
//! 2. A lookup touches a page of the starts and one or two of the entries: hashes are evenly spread,
//!    so an entry stands close to where its hash says.
//! 3. Rows with equal hashes were compared by their keys: no two rows of an index have one key.

use std::path::Path;

use bytes::Bytes;

use super::error::{DatasetError, Result};
use crate::storage::Storage;

/// How many values the top bits of a hash have.
pub(super) const BUCKETS: usize = 1 << 16;

/// Bytes of the starts: one per value of the top bits, and the number of entries.
const STARTS_BYTES: usize = (BUCKETS + 1) * 8;

/// Bytes of an entry: `u64` hash, `u32` shard, `u32` row.
pub(super) const ENTRY_BYTES: usize = 16;

/// A key index that is mapped for reading.
#[derive(Debug, Clone)]
pub struct KeyIndex {
    bytes: Bytes,
}

impl KeyIndex {
    /// Maps the index of `n_rows` rows.
    ///
    /// # Errors
    /// [`DatasetError::Damaged`] if it is not there or has another size.
    pub fn open(storage: &dyn Storage, path: &Path, n_rows: u64) -> Result<Self> {
        Self::check_size(storage, path, n_rows)?;
        Ok(Self { bytes: storage.map(path)? })
    }

    /// Checks that the index of `n_rows` rows is there and has its size.
    ///
    /// # Errors
    /// As [`KeyIndex::open`].
    pub fn check_size(storage: &dyn Storage, path: &Path, n_rows: u64) -> Result<()> {
        let Some(entry) = storage.stat(path)? else {
            return Err(DatasetError::damaged(path, "it is not there, and the manifest names it"));
        };
        let want = n_rows.checked_mul(ENTRY_BYTES as u64);
        let want = want.and_then(|n| n.checked_add(STARTS_BYTES as u64));
        if want != Some(entry.len) {
            let message = format!("{} bytes are not an index of {n_rows} rows", entry.len);
            return Err(DatasetError::damaged(path, message));
        }
        Ok(())
    }

    /// Shard and row of every row whose key has this hash.
    pub fn rows(&self, hash: u64) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (entries, _) = self.bytes.get(STARTS_BYTES..).unwrap_or_default().as_chunks();
        let bucket = bucket_of(hash);
        let (from, to) = (self.start(bucket), self.start(bucket + 1));
        let bucket: &[[u8; ENTRY_BYTES]] = entries.get(from..to).unwrap_or_default();
        let is_below = |at: usize| bucket.get(at).is_some_and(|entry| entry_of(entry).0 < hash);
        let first = first_of(bucket.len(), hash, is_below);
        let found = bucket.get(first..).unwrap_or_default().iter().map(entry_of);
        found.take_while(move |entry| entry.0 == hash).map(|(_, shard, row)| (shard, row))
    }

    fn start(&self, bucket: usize) -> usize {
        let bytes = self.bytes.get(bucket * 8..bucket * 8 + 8);
        let start = bytes.and_then(|b| b.try_into().ok()).map_or(0, i64::from_le_bytes);
        usize::try_from(start).unwrap_or_default()
    }
}

/// The value of the top bits of a hash.
pub(super) fn bucket_of(hash: u64) -> usize {
    usize::try_from(hash >> 48).unwrap_or_default()
}

/// Index of the first of `n` sorted entries of a bucket whose hash is `hash` or more. Looks first where
/// the hash would stand if the bucket's were spread evenly, then at doubling distances from there.
/// `is_below` tells whether the hash of an entry is less.
fn first_of(n: usize, hash: u64, mut is_below: impl FnMut(usize) -> bool) -> usize {
    let share = (u128::from(hash << 16) * n as u128) >> 64;
    let guess = usize::try_from(share).unwrap_or_default();
    // What is wanted stands in `from..=to`.
    let (mut from, mut to, mut step);
    step = 8;
    if guess < n && is_below(guess) {
        from = guess + 1;
        to = n.min(from + step);
        while to < n && is_below(to) {
            step *= 2;
            from = to + 1;
            to = n.min(from + step);
        }
    } else {
        to = guess;
        from = to.saturating_sub(step);
        while from > 0 && !is_below(from) {
            step *= 2;
            to = from;
            from = to.saturating_sub(step);
        }
    }
    while from < to {
        let middle = from.midpoint(to);
        if is_below(middle) { from = middle + 1 } else { to = middle }
    }
    from
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of an entry")]
fn entry_of(entry: &[u8; ENTRY_BYTES]) -> (u64, u32, u32) {
    let number = u128::from_le_bytes(*entry);
    (number as u64, (number >> 64) as u32, (number >> 96) as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_entry_is_found_however_hashes_are_spread(
            mut hashes in prop_oneof![
                proptest::collection::vec(0_u64..1 << 48, 0..300),
                proptest::collection::vec(0_u64..40, 0..300),
                proptest::collection::vec((1_u64 << 48) - 40..1 << 48, 0..300),
            ],
            other in prop_oneof![0_u64..1 << 48, 0_u64..40, (1_u64 << 48) - 40..1 << 48],
        ) {
            hashes.sort_unstable();
            for hash in hashes.iter().chain([&other, &0, &((1 << 48) - 1)]) {
                let want = hashes.partition_point(|it| it < hash);
                let found = first_of(hashes.len(), *hash, |at| hashes[at] < *hash);
                prop_assert_eq!(found, want);
            }
        }
    }

    #[test]
    fn a_lookup_among_a_billion_keys_reads_one_or_two_pages() {
        // A bucket of an index of 10^9 rows, and 256 entries to a page.
        let (n, page) = (1_000_000_000 / BUCKETS, 4096 / ENTRY_BYTES);
        let hash = |i: usize| {
            let b3 = blake3::hash(&(i as u64).to_le_bytes());
            u64::from_le_bytes(*b3.as_bytes().first_chunk().unwrap()) >> 16
        };
        let mut hashes: Vec<u64> = (0..n).map(hash).collect();
        hashes.sort_unstable();
        let pages = hashes.iter().map(|hash| {
            let mut touched = BTreeSet::new();
            first_of(n, *hash, |at| {
                touched.insert(at / page);
                hashes[at] < *hash
            });
            touched.len()
        });
        let pages: Vec<usize> = pages.collect();
        assert!(pages.iter().sum::<usize>() <= 3 * n / 2, "{pages:?}");
        assert!(pages.iter().all(|touched| *touched <= 3));
    }
}
