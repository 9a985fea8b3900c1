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
        let Some(entry) = storage.stat(path)? else {
            return Err(DatasetError::damaged(path, "it is not there, and the manifest names it"));
        };
        let want = n_rows.checked_mul(ENTRY_BYTES as u64);
        let want = want.and_then(|n| n.checked_add(STARTS_BYTES as u64));
        if want != Some(entry.len) {
            let message = format!("{} bytes are not an index of {n_rows} rows", entry.len);
            return Err(DatasetError::damaged(path, message));
        }
        Ok(Self { bytes: storage.map(path)? })
    }

    /// Shard and row of every row whose key has this hash.
    pub fn rows(&self, hash: u64) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (entries, _) = self.bytes.get(STARTS_BYTES..).unwrap_or_default().as_chunks();
        let bucket = bucket_of(hash);
        let (from, to) = (self.start(bucket), self.start(bucket + 1));
        let bucket: &[[u8; ENTRY_BYTES]] = entries.get(from..to).unwrap_or_default();
        let found = bucket.get(first_of(bucket, hash)..).unwrap_or_default().iter().map(entry_of);
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

/// Index of the first entry of a bucket whose hash is `hash` or more. Looks first where the hash
/// would stand if the bucket's were spread evenly, then at doubling distances from there.
fn first_of(bucket: &[[u8; ENTRY_BYTES]], hash: u64) -> usize {
    let is_below = |at: usize| bucket.get(at).is_some_and(|entry| entry_of(entry).0 < hash);
    let share = u128::from(hash << 16) * bucket.len() as u128 >> 64;
    let guess = usize::try_from(share).unwrap_or_default();
    let (mut from, mut to, mut step) = (guess, guess, 8);
    if is_below(guess) {
        while to < bucket.len() && is_below(to) {
            (from, to, step) = (to + 1, bucket.len().min(to + step), step * 2);
        }
    } else {
        while from > 0 && !is_below(from - 1) {
            (to, from, step) = (from - 1, from.saturating_sub(step), step * 2);
        }
    }
    from + bucket.get(from..to).unwrap_or_default().partition_point(|e| entry_of(e).0 < hash)
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of an entry")]
fn entry_of(entry: &[u8; ENTRY_BYTES]) -> (u64, u32, u32) {
    let number = u128::from_le_bytes(*entry);
    (number as u64, (number >> 64) as u32, (number >> 96) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(hash: u64) -> [u8; ENTRY_BYTES] {
        u128::from(hash).to_le_bytes()
    }

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
            let bucket: Vec<_> = hashes.iter().map(|hash| entry(*hash)).collect();
            for hash in hashes.iter().chain([&other, &0, &((1 << 48) - 1)]) {
                let want = hashes.partition_point(|it| it < hash);
                prop_assert_eq!(first_of(&bucket, *hash), want);
            }
        }
    }
}
