//! Makes the key index: merges the keys of all shards.
//!
//! Leaves out: looking keys up (`keys`).
//!
//! Invariants:
//! 1. Memory is [`MERGE_BYTES`] and a few bytes for each run, however many rows and shards there are,
//!    and one file at a time is open for reading.
//! 2. More than [`FAN_IN`] shards are first merged into runs below `work/keys`. Nothing relies on
//!    those after a crash: whoever begins removes them.
//! 3. Entries come out sorted by hash, shard and row, and rows whose hashes are equal are compared by
//!    their keys: no two rows of an index have one key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::error::{DatasetError, KeyedRow, Result};
use super::home::Workplace;
use super::keys::{BUCKETS, ENTRY_BYTES, bucket_of};
use super::manifest::KeyIndexFile;
use super::publish::{Draft, digits};
use super::record::ShardEntry;
use crate::schema::{Kind, integer};
use crate::shard::{Shard, layout};
use crate::storage::{AppendFile, ReadFile, Storage};

/// Memory for reading entries while merging.
pub const MERGE_BYTES: usize = 16 << 20;

/// Most files that are merged at once.
pub const FAN_IN: usize = 512;

/// Bytes that gather before they are appended to a run.
const RUN_BUFFER_BYTES: usize = 256 << 10;

/// Bytes of an entry of a shard's `keys.bin`: `u64` hash, `u32` row.
const SHARD_ENTRY_BYTES: usize = 12;

/// Merges the keys of these shards and puts the index in place under its name.
///
/// # Errors
/// [`DatasetError::DuplicateKey`] names both rows; [`DatasetError::Damaged`] a `keys.bin` that is
/// not what it must be.
///
/// # Durability
/// On `Ok` the index survives a power cut.
pub fn write(place: &Workplace, shards: &[ShardEntry]) -> Result<KeyIndexFile> {
    write_by(place, shards, FAN_IN)
}

fn write_by(place: &Workplace, shards: &[ShardEntry], fan_in: usize) -> Result<KeyIndexFile> {
    let mut merge = Merge { place, fan_in, counts: vec![0; BUCKETS], n_runs: 0 };
    let sources = if shards.len() > fan_in {
        merge.make_runs(shards)?
    } else {
        for mut keys in merge.open(shards, 0)? {
            while let Some(entry) = keys.next(place)? {
                merge.count(&entry);
            }
        }
        merge.open(shards, 0)?
    };
    let mut draft = Draft::create(place, "keys")?;
    let mut start = 0_i64;
    draft.put(&start.to_le_bytes())?;
    for count in &merge.counts {
        start = start.saturating_add(*count);
        draft.put(&start.to_le_bytes())?;
    }
    // The rows whose keys have the hash that was written last: more than one by chance only.
    let mut equal: Vec<Entry> = Vec::new();
    each_in_order(place, sources, |entry| {
        if equal.last().is_some_and(|last| last.hash() != entry.hash()) {
            equal.clear();
        }
        for other in &equal {
            check_distinct(place, shards, *other, entry)?;
        }
        equal.push(entry);
        draft.put(&entry.to_bytes())
    })?;
    let b3 = draft.digest()?;
    let file = format!("keys-{}.bin", digits(&b3));
    draft.publish(&place.home().file(&file))?;
    place.storage().remove_all(&place.home().key_runs())?;
    Ok(KeyIndexFile { b3, file })
}

/// One row: hash of its key, number of its shard, and its number there, the hash in the highest
/// bits, so that numbers are ordered as entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

#[expect(clippy::cast_possible_truncation, reason = "the parts of an entry")]
impl Entry {
    fn new(hash: u64, shard: u32, row: u32) -> Self {
        Self(u128::from(hash) << 64 | u128::from(shard) << 32 | u128::from(row))
    }

    fn hash(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn shard(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn row(self) -> u32 {
        self.0 as u32
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let low = u64::from(self.row()) << 32 | u64::from(self.shard());
        (u128::from(low) << 64 | u128::from(self.hash())).to_le_bytes()
    }

    /// The entry that `bytes` begin with; `shard` where they do not tell it.
    fn from_bytes(bytes: &[u8], shard: Option<u32>) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk()?;
        let hash = u64::from_le_bytes(*hash);
        let (shard, rest) = if let Some(shard) = shard {
            (shard, rest)
        } else {
            let (shard, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*shard), rest)
        };
        Some(Self::new(hash, shard, u32::from_le_bytes(*rest.first_chunk()?)))
    }
}

/// A merge that is going on.
struct Merge<'a> {
    place: &'a Workplace,
    fan_in: usize,
    /// How many keys there are for each value of the top bits.
    counts: Vec<i64>,
    n_runs: usize,
}

impl Merge<'_> {
    fn count(&mut self, entry: &Entry) {
        if let Some(count) = self.counts.get_mut(bucket_of(entry.hash())) {
            *count += 1;
        }
    }

    /// The keys of some shards, the first of which has the number `first`.
    fn open(&self, shards: &[ShardEntry], first: usize) -> Result<Vec<Entries>> {
        let chunk_bytes = self.chunk_bytes();
        let opened = shards.iter().enumerate().map(|(n, shard)| {
            let number = u32::try_from(first + n).map_err(|_| DatasetError::Counts {
                place: "the key index".to_owned(),
                message: "more shards than can be numbered".to_owned(),
            })?;
            Entries::of_shard(self.place, shard, number, chunk_bytes)
        });
        opened.collect()
    }

    fn chunk_bytes(&self) -> usize {
        MERGE_BYTES / self.fan_in.max(1)
    }

    /// Merges all shards into no more runs than can be merged at once, and counts their keys.
    fn make_runs(&mut self, shards: &[ShardEntry]) -> Result<Vec<Entries>> {
        let (storage, dir) = (self.place.storage(), self.place.home().key_runs());
        storage.remove_all(&dir)?;
        storage.create_dir(&dir)?;
        let mut runs = Vec::new();
        for (n, group) in shards.chunks(self.fan_in).enumerate() {
            let sources = self.open(group, n * self.fan_in)?;
            runs.push(self.run(sources, Self::count)?);
        }
        while runs.len() > self.fan_in {
            let mut longer = Vec::new();
            for group in runs.chunks(self.fan_in) {
                let sources =
                    group.iter().map(|path| self.open_run(path)).collect::<Result<_>>()?;
                longer.push(self.run(sources, |_, _| ())?);
                for path in group {
                    storage.remove_file(path)?;
                }
            }
            runs = longer;
        }
        runs.iter().map(|path| self.open_run(path)).collect()
    }

    fn open_run(&self, path: &Path) -> Result<Entries> {
        let len = self.place.storage().stat(path)?.map_or(0, |entry| entry.len);
        Ok(Entries::new(path.to_path_buf(), len, None, self.chunk_bytes()))
    }

    /// Merges sources into a run, and tells of each entry.
    fn run(
        &mut self,
        sources: Vec<Entries>,
        mut tell: impl FnMut(&mut Self, &Entry),
    ) -> Result<PathBuf> {
        let (place, path) =
            (self.place, self.place.home().key_runs().join(self.n_runs.to_string()));
        self.n_runs += 1;
        let mut file: Box<dyn AppendFile> = place.storage().create(&path)?;
        let mut buffer = Vec::with_capacity(RUN_BUFFER_BYTES);
        each_in_order(place, sources, |entry| {
            tell(self, &entry);
            buffer.extend_from_slice(&entry.to_bytes());
            if buffer.len() >= RUN_BUFFER_BYTES {
                file.append(&buffer)?;
                buffer.clear();
            }
            Ok(())
        })?;
        file.append(&buffer)?;
        Ok(path)
    }
}

/// Takes the entries of all sources in order.
fn each_in_order(
    place: &Workplace,
    mut sources: Vec<Entries>,
    mut take: impl FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let mut heap = BinaryHeap::with_capacity(sources.len());
    for (n, source) in sources.iter_mut().enumerate() {
        if let Some(entry) = source.next(place)? {
            heap.push(Reverse((entry, n)));
        }
    }
    while let Some(mut least) = heap.peek_mut() {
        let Reverse((entry, n)) = *least;
        take(entry)?;
        let Some(source) = sources.get_mut(n) else { break };
        match source.next(place)? {
            Some(next) => *least = Reverse((next, n)),
            None => {
                PeekMut::pop(least);
            }
        }
    }
    Ok(())
}

/// The entries of a shard's `keys.bin` or of a run, a chunk at a time. The file is opened for each
/// chunk: there may be more of them than a process may have files open.
#[derive(Debug)]
struct Entries {
    path: PathBuf,
    /// The number of the shard, where the entries do not tell it.
    shard: Option<u32>,
    entry_bytes: usize,
    chunk_bytes: usize,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were taken.
    taken: usize,
    /// Bytes of the file that were read.
    read: u64,
    len: u64,
    last: Option<Entry>,
}

impl Entries {
    fn of_shard(
        place: &Workplace,
        shard: &ShardEntry,
        number: u32,
        chunk_bytes: usize,
    ) -> Result<Self> {
        let path = place.home().shard(&shard.id).join(layout::KEYS);
        let found = place.storage().stat(&path)?.map(|entry| entry.len);
        let want = shard.rows.checked_mul(SHARD_ENTRY_BYTES as u64);
        let Some(len) = found.filter(|_| found == want) else {
            let message = format!("it does not hold the keys of {} rows", shard.rows);
            return Err(DatasetError::damaged(path, message));
        };
        Ok(Self::new(path, len, Some(number), chunk_bytes))
    }

    fn new(path: PathBuf, len: u64, shard: Option<u32>, chunk_bytes: usize) -> Self {
        let entry_bytes = if shard.is_some() { SHARD_ENTRY_BYTES } else { ENTRY_BYTES };
        let chunk_bytes = (chunk_bytes / entry_bytes).max(1) * entry_bytes;
        let (chunk, last) = (Vec::new(), None);
        Self { path, shard, entry_bytes, chunk_bytes, chunk, taken: 0, read: 0, len, last }
    }

    /// The next entry, which stands behind the one before.
    fn next(&mut self, place: &Workplace) -> Result<Option<Entry>> {
        if self.taken == self.chunk.len() && !self.refill(&**place.storage())? {
            return Ok(None);
        }
        let bytes = self.chunk.get(self.taken..).unwrap_or_default();
        let Some(entry) = Entry::from_bytes(bytes, self.shard) else { return Ok(None) };
        self.taken += self.entry_bytes;
        if self.last.is_some_and(|last| last >= entry) {
            return Err(DatasetError::damaged(&self.path, "its keys are not sorted"));
        }
        self.last = Some(entry);
        Ok(Some(entry))
    }

    fn refill(&mut self, storage: &dyn Storage) -> Result<bool> {
        let left = usize::try_from(self.len - self.read).unwrap_or(usize::MAX);
        let n = left.min(self.chunk_bytes);
        if n == 0 {
            // What is read to the end is held no longer.
            self.chunk = Vec::new();
            self.taken = 0;
            return Ok(false);
        }
        self.chunk.resize(n, 0);
        let file: Box<dyn ReadFile> = storage.open(&self.path)?;
        file.read_at(&mut self.chunk, self.read)?;
        self.read += n as u64;
        self.taken = 0;
        Ok(true)
    }
}

/// Compares the keys of two rows with one hash.
fn check_distinct(
    place: &Workplace,
    shards: &[ShardEntry],
    one: Entry,
    other: Entry,
) -> Result<()> {
    let mut rows = [one, other];
    rows.sort_by_key(|entry| (entry.shard(), entry.row()));
    let [first, second] = rows.map(|entry| Row::open(place, shards, entry));
    let (first, second) = (first?, second?);
    let key = first.key()?;
    if key != second.key()? {
        return Ok(());
    }
    let rows = Box::new([first.named()?, second.named()?]);
    Err(DatasetError::DuplicateKey { key: key.to_string(), rows })
}

/// A row whose key is looked at.
struct Row {
    shard: Shard,
    /// Its number in the dataset.
    number: u64,
    /// Its number in the shard.
    in_shard: u64,
}

impl Row {
    fn open(place: &Workplace, shards: &[ShardEntry], entry: Entry) -> Result<Self> {
        let n = usize::try_from(entry.shard()).unwrap_or(usize::MAX);
        let (before, in_shard) = (shards.iter().take(n), u64::from(entry.row()));
        let number = before.map(|shard| shard.rows).sum::<u64>() + in_shard;
        let id = shards.get(n).map_or("", |shard| shard.id.as_str());
        let shard = Shard::open(Arc::clone(place.storage()), place.home().shard(id))?;
        Ok(Self { shard, number, in_shard })
    }

    /// The key, for comparing and showing.
    fn key(&self) -> Result<Value> {
        let index = self.shard.schema().key_index().unwrap_or_default();
        let field = self.shard.field_at(index)?;
        let bytes = field.row(self.in_shard)?;
        Ok(match field.field().kind {
            Kind::Fixed => integer(bytes, field.field().dtype).into(),
            _ => String::from_utf8_lossy(bytes).into(),
        })
    }

    /// Where the row stands and where it came from.
    fn named(&self) -> Result<KeyedRow> {
        let origin = match self.shard.provenance()?.position(self.in_shard) {
            Some(at) => self.shard.origin(at.input, at.source_row)?,
            None => None,
        };
        let (row, row_in_shard) = (self.number, self.in_shard);
        Ok(KeyedRow { row, shard: self.shard.id().to_owned(), row_in_shard, origin })
    }
}

#[cfg(test)]
mod tests;
