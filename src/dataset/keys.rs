//! The key index: where the row with a key is, over all shards of a generation.
//!
//! Leaves out: the shards' own `keys.bin`, which it is merged from.
//!
//! Invariants:
//! 1. Entries are sorted by hash, shard and row; the start of `p` is the index of the first entry
//!    whose hash has top 16 bits of at least `p`.
//! 2. Merging takes a bounded amount of memory, however many rows and shards there are.
//! 3. Rows with equal hashes were compared by their keys: no two rows of an index have one key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::error::{DatasetError, Result};
use super::home::Workplace;
use super::manifest::KeyIndexFile;
use super::publish::{Draft, digits};
use super::record::ShardEntry;
use crate::schema::{Kind, integer};
use crate::shard::{Shard, layout};
use crate::storage::{ReadFile, Storage};

/// How many values the top bits of a hash have.
const BUCKETS: usize = 1 << 16;

/// Bytes of the starts: one per value of the top bits, and the number of entries.
const STARTS_BYTES: usize = (BUCKETS + 1) * 8;

/// Bytes of an entry: `u64` hash, `u32` shard, `u32` row.
const ENTRY_BYTES: usize = 16;

/// Bytes of an entry of a shard's `keys.bin`: `u64` hash, `u32` row.
const SHARD_ENTRY_BYTES: usize = 12;

/// Memory for reading the shards' entries while merging.
const MERGE_BYTES: usize = 16 << 20;

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
        let bucket = usize::try_from(hash >> 48).unwrap_or_default();
        let (from, to) = (self.start(bucket), self.start(bucket + 1));
        let bucket: &[[u8; ENTRY_BYTES]] = entries.get(from..to).unwrap_or_default();
        let first = bucket.partition_point(|entry| entry_of(entry).0 < hash);
        let found = bucket.get(first..).unwrap_or_default().iter().map(entry_of);
        found.take_while(move |entry| entry.0 == hash).map(|(_, shard, row)| (shard, row))
    }

    fn start(&self, bucket: usize) -> usize {
        let bytes = self.bytes.get(bucket * 8..bucket * 8 + 8);
        let start = bytes.and_then(|b| b.try_into().ok()).map_or(0, i64::from_le_bytes);
        usize::try_from(start).unwrap_or_default()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the parts of an entry")]
fn entry_of(entry: &[u8; ENTRY_BYTES]) -> (u64, u32, u32) {
    let number = u128::from_le_bytes(*entry);
    (number as u64, (number >> 64) as u32, (number >> 96) as u32)
}

/// Merges the keys of these shards and puts the index in place under its name.
///
/// # Errors
/// [`DatasetError::DuplicateKey`] names both rows; [`DatasetError::Damaged`] a `keys.bin` that is
/// not what it must be.
///
/// # Durability
/// On `Ok` the index survives a power cut.
pub(super) fn write(place: &Workplace, shards: &[ShardEntry]) -> Result<KeyIndexFile> {
    let mut draft = Draft::create(place, "keys")?;
    let mut start = 0_i64;
    draft.put(&start.to_le_bytes())?;
    for count in count_buckets(place, shards)? {
        start = start.saturating_add(count);
        draft.put(&start.to_le_bytes())?;
    }
    merge(place, shards, &mut draft)?;
    let b3 = draft.digest()?;
    let file = format!("keys-{}.bin", digits(&b3));
    draft.publish(&place.home().file(&file))?;
    Ok(KeyIndexFile { b3, file })
}

/// How many keys there are for each value of the top bits.
fn count_buckets(place: &Workplace, shards: &[ShardEntry]) -> Result<Vec<i64>> {
    let mut counts = vec![0_i64; BUCKETS];
    for shard in shards {
        let mut keys = ShardKeys::open(place, shard, MERGE_BYTES)?;
        while let Some((hash, _)) = keys.next(place)? {
            let bucket = usize::try_from(hash >> 48).unwrap_or_default();
            if let Some(count) = counts.get_mut(bucket) {
                *count += 1;
            }
        }
    }
    Ok(counts)
}

/// Appends all entries, sorted, to `draft`.
fn merge(place: &Workplace, shards: &[ShardEntry], draft: &mut Draft<'_>) -> Result<()> {
    let each = MERGE_BYTES / shards.len().max(1);
    let mut sources = Vec::with_capacity(shards.len());
    let mut heap = BinaryHeap::with_capacity(shards.len());
    for (n, shard) in shards.iter().enumerate() {
        let mut keys = ShardKeys::open(place, shard, each)?;
        if let Some((hash, row)) = keys.next(place)? {
            heap.push(Reverse((hash, n, row)));
        }
        sources.push(keys);
    }
    // The rows whose keys have the hash that was written last: more than one by chance only.
    let mut equal: Vec<(usize, u32)> = Vec::new();
    let mut last = None;
    while let Some(Reverse((hash, n, row))) = heap.pop() {
        if last != Some(hash) {
            equal.clear();
            last = Some(hash);
        }
        for &(other, other_row) in &equal {
            check_distinct(place, shards, (other, other_row), (n, row))?;
        }
        equal.push((n, row));
        let shard = u32::try_from(n).map_err(|_| DatasetError::Counts {
            place: "the key index".to_owned(),
            message: "more shards than can be numbered".to_owned(),
        })?;
        draft.put(&hash.to_le_bytes())?;
        draft.put(&shard.to_le_bytes())?;
        draft.put(&row.to_le_bytes())?;
        if let Some(keys) = sources.get_mut(n)
            && let Some((hash, row)) = keys.next(place)?
        {
            heap.push(Reverse((hash, n, row)));
        }
    }
    Ok(())
}

/// The entries of one shard's `keys.bin`, a chunk at a time. The file is opened for each chunk: there
/// may be more shards than a process may have files open.
#[derive(Debug)]
struct ShardKeys {
    path: std::path::PathBuf,
    chunk_bytes: usize,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were taken.
    taken: usize,
    /// Bytes of the file that were read.
    read: u64,
    len: u64,
    last: Option<(u64, u32)>,
}

impl ShardKeys {
    fn open(place: &Workplace, shard: &ShardEntry, chunk_bytes: usize) -> Result<Self> {
        let path = place.home().shard(&shard.id).join(layout::KEYS);
        let found = place.storage().stat(&path)?.map(|entry| entry.len);
        let want = shard.rows.checked_mul(SHARD_ENTRY_BYTES as u64);
        let Some(len) = found.filter(|_| found == want) else {
            let message = format!("it does not hold the keys of {} rows", shard.rows);
            return Err(DatasetError::damaged(path, message));
        };
        let chunk_bytes = (chunk_bytes / SHARD_ENTRY_BYTES).max(16) * SHARD_ENTRY_BYTES;
        let chunk = Vec::new();
        Ok(Self { path, chunk_bytes, chunk, taken: 0, read: 0, len, last: None })
    }

    /// The next entry, which stands behind the one before.
    fn next(&mut self, place: &Workplace) -> Result<Option<(u64, u32)>> {
        if self.taken == self.chunk.len() && !self.refill(&**place.storage())? {
            return Ok(None);
        }
        let bytes = self.chunk.get(self.taken..).unwrap_or_default();
        let hash = bytes.first_chunk().map(|hash| u64::from_le_bytes(*hash));
        let row = bytes.get(8..).and_then(<[u8]>::first_chunk).map(|row| u32::from_le_bytes(*row));
        let Some(entry) = hash.zip(row) else { return Ok(None) };
        self.taken += SHARD_ENTRY_BYTES;
        if self.last.is_some_and(|last| last >= entry) {
            return Err(DatasetError::damaged(&self.path, "its keys are not sorted"));
        }
        self.last = Some(entry);
        Ok(Some(entry))
    }

    fn refill(&mut self, storage: &dyn Storage) -> Result<bool> {
        let left = usize::try_from(self.len - self.read).unwrap_or(usize::MAX);
        let n = left.min(self.chunk_bytes);
        if n > 0 {
            self.chunk.resize(n, 0);
            let file: Box<dyn ReadFile> = storage.open(&self.path)?;
            file.read_at(&mut self.chunk, self.read)?;
            self.read += n as u64;
            self.taken = 0;
        }
        Ok(n > 0)
    }
}

/// Compares the keys of two rows, told as shard and row.
fn check_distinct(
    place: &Workplace,
    shards: &[ShardEntry],
    first: (usize, u32),
    second: (usize, u32),
) -> Result<()> {
    let open = |n: usize| {
        let id = shards.get(n).map_or("", |shard| shard.id.as_str());
        Shard::open(Arc::clone(place.storage()), place.home().shard(id))
    };
    let (one, other) = (open(first.0)?, open(second.0)?);
    let key = key_of(&one, first.1.into())?;
    if key != key_of(&other, second.1.into())? {
        return Ok(());
    }
    let mut rows = [(one, first.1), (other, second.1)];
    rows.sort_by_key(|(shard, row)| (shards.iter().position(|s| s.id == shard.id()), *row));
    let [first, second] = rows.map(|(shard, row)| origin(place, &shard, row.into()));
    Err(DatasetError::DuplicateKey { key: key.to_string(), first: first?, second: second? })
}

/// The key of a row, for comparing and showing.
fn key_of(shard: &Shard, row: u64) -> Result<Value> {
    let index = shard.schema().key_index().unwrap_or_default();
    let field = shard.field_at(index)?;
    let bytes = field.row(row)?;
    Ok(match field.field().kind {
        Kind::Fixed => integer(bytes, field.field().dtype).into(),
        _ => String::from_utf8_lossy(bytes).into(),
    })
}

/// Where a row stands and where it came from, in words.
fn origin(place: &Workplace, shard: &Shard, row: u64) -> Result<String> {
    let path = place.home().shard(shard.id()).join(layout::FINGERPRINT);
    let bytes = place.storage().read(&path)?.unwrap_or_default();
    let document: Value =
        serde_json::from_slice(&bytes).map_err(|e| DatasetError::damaged(&path, e))?;
    let Some(at) = shard.provenance()?.position(row) else {
        return Ok(format!("row {row} of shard {}", shard.id()));
    };
    let input = document.get("inputs").and_then(|i| i.get(usize::try_from(at.input).ok()?));
    let input = input.and_then(|i| i.get("path")).and_then(Value::as_str).unwrap_or("?");
    Ok(format!("`{input}` row {} (row {row} of shard {})", at.source_row, shard.id()))
}
