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
//! 4. Where it cannot be mapped, what it says is settled by the keys of the rows; that it says nothing is
//!    believed when it was read twice, because no sum covers a piece of it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::error::{DatasetError, Result};
use crate::storage::{Blocks, Distant, DistantFile, ReadFile, Storage, parent};

/// How many values the top bits of a hash have.
pub(super) const BUCKETS: usize = 1 << 16;

/// Bytes of the starts: one per value of the top bits, and the number of entries.
const STARTS_BYTES: usize = (BUCKETS + 1) * 8;

/// Bytes of an entry: `u64` hash, `u32` shard, `u32` row.
pub(super) const ENTRY_BYTES: usize = 16;

/// Bytes that are read together of an index that cannot be mapped.
const BLOCK_BYTES: u64 = 64 << 10;

/// A key index that is open for reading.
#[derive(Debug, Clone)]
pub struct KeyIndex {
    bytes: IndexBytes,
}

#[derive(Debug, Clone)]
enum IndexBytes {
    Mapped(Bytes),
    /// The file, and once more for a second look.
    Distant(Arc<dyn ReadFile>, Arc<dyn ReadFile>),
}

type Entry = [u8; ENTRY_BYTES];

impl KeyIndex {
    /// Opens the index of `n_rows` rows, mapped where files can be.
    ///
    /// # Errors
    /// [`DatasetError::Damaged`] if it is not there or has another size.
    pub fn open(storage: &dyn Storage, path: &Path, n_rows: u64) -> Result<Self> {
        if let Some(distant) = storage.distant() {
            return Self::open_distant(distant, path, n_rows);
        }
        Self::check_size(storage, path, n_rows)?;
        Ok(Self { bytes: IndexBytes::Mapped(storage.map(path)?) })
    }

    fn open_distant(storage: &dyn Distant, path: &Path, n_rows: u64) -> Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut found = storage.look(parent(path), &[name])?;
        let file: Option<DistantFile> = found.pop().flatten();
        check_len(path, n_rows, file.as_ref().map(|file| file.len))?;
        let Some(file) = file else { return Err(not_there(path)) };
        let open = || -> Result<Arc<dyn ReadFile>> {
            let blocks = Blocks { bytes: BLOCK_BYTES, crcs: None };
            Ok(storage.open_blocks(path, &file, blocks)?.into())
        };
        Ok(Self { bytes: IndexBytes::Distant(open()?, open()?) })
    }

    /// Checks that the index of `n_rows` rows is there and has its size.
    ///
    /// # Errors
    /// As [`KeyIndex::open`].
    pub fn check_size(storage: &dyn Storage, path: &Path, n_rows: u64) -> Result<()> {
        check_len(path, n_rows, storage.stat(path)?.map(|entry| entry.len))
    }

    /// Shard and row of every row whose key has this hash.
    ///
    /// # Errors
    /// The storage's, where it is not mapped.
    pub fn rows(&self, hash: u64) -> Result<impl Iterator<Item = (u32, u32)> + use<'_>> {
        let found = match &self.bytes {
            IndexBytes::Mapped(bytes) => Cow::Borrowed(in_bytes(bytes, hash)),
            IndexBytes::Distant(file, _) => Cow::Owned(in_file(&**file, hash)?),
        };
        Ok(places(found))
    }

    /// The same by a second look, for who has not found there what was looked for; nothing where a second
    /// look sees what the first has seen.
    ///
    /// # Errors
    /// As [`KeyIndex::rows`].
    pub fn rows_again(&self, hash: u64) -> Result<impl Iterator<Item = (u32, u32)> + use<'_>> {
        let found = match &self.bytes {
            IndexBytes::Mapped(_) => Vec::new(),
            IndexBytes::Distant(_, file) => in_file(&**file, hash)?,
        };
        Ok(places(Cow::Owned(found)))
    }
}

fn places(entries: Cow<'_, [Entry]>) -> impl Iterator<Item = (u32, u32)> + use<'_> {
    (0..entries.len()).filter_map(move |at| {
        let (_, shard, row) = entry_of(entries.get(at)?);
        Some((shard, row))
    })
}

/// The entries with this hash in the bytes of an index.
fn in_bytes(bytes: &Bytes, hash: u64) -> &[Entry] {
    let start = |bucket: usize| start_of(bytes.get(bucket * 8..bucket * 8 + 8).unwrap_or_default());
    let (entries, _) = bytes.get(STARTS_BYTES..).unwrap_or_default().as_chunks();
    let bucket = bucket_of(hash);
    in_bucket(entries.get(start(bucket)..start(bucket + 1)).unwrap_or_default(), hash)
}

/// The same of a file: its bucket is read.
fn in_file(file: &dyn ReadFile, hash: u64) -> Result<Vec<Entry>> {
    let mut ends = [0; 16];
    file.read_at(&mut ends, bucket_of(hash) as u64 * 8)?;
    let (from, to) = ends.split_at(8);
    let bytes_of = |start: usize| (start as u64).saturating_mul(ENTRY_BYTES as u64);
    let (from, to) = (bytes_of(start_of(from)), bytes_of(start_of(to)));
    let room = file.len().saturating_sub(STARTS_BYTES as u64);
    if from >= to || to > room {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(usize::MAX)];
    file.read_at(&mut bytes, STARTS_BYTES as u64 + from)?;
    Ok(in_bucket(bytes.as_chunks().0, hash).to_vec())
}

/// The entries with this hash in a bucket.
fn in_bucket(bucket: &[Entry], hash: u64) -> &[Entry] {
    let is_below = |at: usize| bucket.get(at).is_some_and(|entry| entry_of(entry).0 < hash);
    let first = first_of(bucket.len(), hash, is_below);
    let found = bucket.get(first..).unwrap_or_default();
    let n = found.iter().take_while(|entry| entry_of(entry).0 == hash).count();
    found.get(..n).unwrap_or_default()
}

/// One of the starts.
fn start_of(bytes: &[u8]) -> usize {
    let start = bytes.try_into().map_or(0, i64::from_le_bytes);
    usize::try_from(start).unwrap_or_default()
}

fn not_there(path: &Path) -> DatasetError {
    DatasetError::damaged(path, "it is not there, and the manifest names it")
}

fn check_len(path: &Path, n_rows: u64, len: Option<u64>) -> Result<()> {
    let Some(len) = len else { return Err(not_there(path)) };
    let want = n_rows.checked_mul(ENTRY_BYTES as u64);
    let want = want.and_then(|n| n.checked_add(STARTS_BYTES as u64));
    if want == Some(len) {
        return Ok(());
    }
    let message = format!("{len} bytes are not an index of {n_rows} rows");
    Err(DatasetError::damaged(path, message))
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
