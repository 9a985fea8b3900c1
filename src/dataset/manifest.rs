//! The manifest of one generation: every partition and shard of a dataset, in order.
//!
//! Leaves out: deciding what stands in it (`finalize`).
//!
//! Invariants:
//! 1. A manifest's bytes are a function of what stands in it: keys sorted, no clock, no path.
//! 2. A [`Manifest`] that was read agrees with its digest and with itself: its totals are the sums
//!    of its lines.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contents::hex_digest;
use super::error::{DatasetError, Result};
use super::home::is_hex;
use super::publish::digits;
use super::record::{BooksByStage, RecordName, ShardEntry};
use super::sentinel::Sentinel;
use crate::schema::LAYOUT;
use crate::storage::Storage;

/// Everything a manifest says.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The dataset as a whole.
    pub dataset: DatasetLine,
    /// The partitions, in order.
    pub partitions: Vec<PartitionLine>,
    /// The shards of all partitions, in order.
    pub shards: Vec<ShardEntry>,
}

/// The first line. The fields stand in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetLine {
    /// The books of all partitions together.
    pub books: BooksByStage,
    /// Bytes of all files of all shards.
    pub bytes: u64,
    /// The cache key.
    pub cache_key: String,
    /// The JSON that the cache key hashes.
    pub definition: Value,
    /// SHA-256 over cache key and inputs.
    pub fingerprint: String,
    /// The key index, where rows have a key.
    pub keys: Option<KeyIndexFile>,
    /// Version of the layout.
    pub layout: u32,
    /// The dataset's name.
    pub name: String,
    /// How many partitions.
    pub partitions: u64,
    /// How many rows.
    pub rows: u64,
    /// The document of `schema.json`.
    pub schema: Value,
    /// How many shards.
    pub shards: u64,
    /// What the line is about.
    pub r#type: LineType,
}

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LineType {
    /// The dataset: the first line.
    Dataset,
    /// One partition.
    Partition,
    /// One shard of the partition before it.
    Shard,
}

impl LineType {
    fn name(self) -> &'static str {
        match self {
            Self::Dataset => "dataset",
            Self::Partition => "partition",
            Self::Shard => "shard",
        }
    }
}

/// The key index, as the manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyIndexFile {
    /// Its BLAKE3.
    #[serde(with = "hex_digest")]
    pub b3: blake3::Hash,
    /// Its name.
    pub file: String,
}

/// The line of a partition. The fields stand in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionLine {
    /// Its books.
    pub books: BooksByStage,
    /// How many inputs it read.
    pub inputs: u64,
    /// BLAKE3 of its lists of inputs and side inputs.
    #[serde(with = "hex_digest")]
    pub inputs_b3: blake3::Hash,
    /// The name of its record.
    pub record: String,
    /// Its rows.
    pub rows: u64,
    /// How many shards it has.
    pub shards: u64,
    /// Its slot.
    pub slot: String,
    /// What the line is about.
    pub r#type: LineType,
}

/// The line of a shard. The fields stand in the order in which they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShardLine<'a> {
    bytes: u64,
    id: Cow<'a, str>,
    rows: u64,
    r#type: LineType,
}

impl Manifest {
    /// Reads the manifest that a sentinel names.
    ///
    /// # Errors
    /// [`DatasetError::Damaged`] if it is not there, not that one, or contradicts itself;
    /// [`DatasetError::Version`] if a later version wrote it.
    pub fn read(storage: &dyn Storage, dir: &Path, sentinel: &Sentinel) -> Result<Self> {
        let mut partitions = Vec::new();
        let it = Self::read_by(storage, dir, sentinel, |partition| partitions.push(partition))?;
        Ok(Self { partitions, ..it })
    }

    /// As [`Manifest::read`], without the partitions: most of a manifest in memory is their books.
    ///
    /// # Errors
    /// As [`Manifest::read`].
    pub fn read_shards(storage: &dyn Storage, dir: &Path, sentinel: &Sentinel) -> Result<Self> {
        Self::read_by(storage, dir, sentinel, |_| ())
    }

    /// Reads the manifest that a sentinel names, and gives each partition away.
    fn read_by(
        storage: &dyn Storage,
        dir: &Path,
        sentinel: &Sentinel,
        each: impl FnMut(PartitionLine),
    ) -> Result<Self> {
        let path = dir.join(sentinel.manifest());
        if storage.stat(&path)?.is_none() {
            return Err(DatasetError::damaged(&path, "it is not there, and the sentinel names it"));
        }
        let bytes = storage.map(&path)?;
        if blake3::hash(&bytes).to_hex().as_str() != sentinel.manifest_b3() {
            return Err(DatasetError::damaged(&path, "its bytes are not those the sentinel names"));
        }
        let it = Self::parse(&path, &bytes, each)?;
        if (it.dataset.rows, it.dataset.shards) != (sentinel.rows(), sentinel.shards()) {
            return Err(DatasetError::damaged(&path, "its totals are not those of the sentinel"));
        }
        Ok(it)
    }

    /// The current generation of the dataset in `dir`: `None` where there is none that is complete,
    /// or where its sentinel or manifest are not what was written, so that it has to be written
    /// again.
    ///
    /// # Errors
    /// The disk's; a layout that this version does not know.
    pub fn current(storage: &dyn Storage, dir: &Path) -> Result<Option<(Sentinel, Self)>> {
        Self::current_by(storage, dir, Self::read)
    }

    /// As [`Manifest::current`], without the partitions.
    ///
    /// # Errors
    /// As [`Manifest::current`].
    pub fn current_shards(storage: &dyn Storage, dir: &Path) -> Result<Option<(Sentinel, Self)>> {
        Self::current_by(storage, dir, Self::read_shards)
    }

    fn current_by(
        storage: &dyn Storage,
        dir: &Path,
        read: fn(&dyn Storage, &Path, &Sentinel) -> Result<Self>,
    ) -> Result<Option<(Sentinel, Self)>> {
        let read = || {
            let Some(sentinel) = Sentinel::read(storage, dir)? else { return Ok(None) };
            let manifest = read(storage, dir, &sentinel)?;
            Ok(Some((sentinel, manifest)))
        };
        match read() {
            Err(DatasetError::Damaged { .. }) => Ok(None),
            current => current,
        }
    }

    /// Reads the manifest of that name, `None` where it is not there.
    ///
    /// # Errors
    /// [`DatasetError::Damaged`] if its bytes are not those that it is named by, or it contradicts
    /// itself; [`DatasetError::Version`].
    pub fn read_named(storage: &dyn Storage, dir: &Path, name: &str) -> Result<Option<Self>> {
        let path = dir.join(name);
        let Some(bytes) = storage.read(&path)? else { return Ok(None) };
        if Self::file_name(&blake3::hash(&bytes)) != name {
            return Err(DatasetError::damaged(&path, "its bytes are not those it is named by"));
        }
        let mut partitions = Vec::new();
        let it = Self::parse(&path, &bytes, |partition| partitions.push(partition))?;
        Ok(Some(Self { partitions, ..it }))
    }

    /// Whether a file of that name is a manifest.
    #[must_use]
    pub fn is_file_name(name: &str) -> bool {
        let digits = name.strip_prefix("manifest-").and_then(|name| name.strip_suffix(".jsonl"));
        digits.is_some_and(|digits| is_hex(digits, 16))
    }

    /// The manifest without its partitions, each of which is given away.
    fn parse(path: &Path, bytes: &[u8], mut each: impl FnMut(PartitionLine)) -> Result<Self> {
        let mut lines = Lines { path, rest: bytes, n: 0 };
        let head: Head = lines.peek()?;
        if head.layout != LAYOUT {
            let path = path.to_path_buf();
            return Err(DatasetError::Version { path, found: head.layout, known: LAYOUT });
        }
        let dataset: DatasetLine = lines.next(LineType::Dataset)?;
        lines.expect(LineType::Dataset, dataset.r#type)?;
        let (mut n_partitions, mut shards) = (0_u64, Vec::new());
        let mut sums = (0_u64, 0_u64);
        while !lines.rest.is_empty() {
            let partition: PartitionLine = lines.next(LineType::Partition)?;
            lines.expect(LineType::Partition, partition.r#type)?;
            let mut rows = 0_u64;
            for _ in 0..partition.shards {
                let ShardLine { bytes, id, rows: its_rows, r#type } =
                    lines.next(LineType::Shard)?;
                lines.expect(LineType::Shard, r#type)?;
                let shard = ShardEntry { bytes, id: id.into_owned(), rows: its_rows };
                if !is_hex(&shard.id, 32) {
                    return Err(lines.damaged(&format!("`{}` is not the id of a shard", shard.id)));
                }
                rows = lines.sum(rows, shard.rows)?;
                sums.1 = lines.sum(sums.1, shard.bytes)?;
                shards.push(shard);
            }
            let named = RecordName::parse(&partition.record);
            if named.is_none_or(|name| name.slot() != partition.slot) {
                let message = format!("`{}` is not the name of its record", partition.record);
                return Err(lines.damaged(&message));
            }
            if rows != partition.rows {
                return Err(lines.damaged("the rows of a partition are not the sum of its shards"));
            }
            sums.0 = lines.sum(sums.0, rows)?;
            n_partitions += 1;
            each(partition);
        }
        let found = (sums.0, sums.1, n_partitions, shards.len() as u64);
        if found != (dataset.rows, dataset.bytes, dataset.partitions, dataset.shards) {
            return Err(lines.damaged("the totals are not the sums of the lines"));
        }
        Ok(Self { dataset, partitions: Vec::new(), shards })
    }

    /// The file name of a manifest with this digest.
    #[must_use]
    pub fn file_name(digest: &blake3::Hash) -> String {
        format!("manifest-{}.jsonl", digits(digest))
    }

    /// The partitions, each with its shards.
    pub fn parts(&self) -> impl Iterator<Item = (&PartitionLine, &[ShardEntry])> {
        let mut rest = self.shards.as_slice();
        self.partitions.iter().map(move |partition| {
            let n = usize::try_from(partition.shards).unwrap_or(usize::MAX).min(rest.len());
            let (its, after) = rest.split_at(n);
            rest = after;
            (partition, its)
        })
    }

    /// Whether it has partitions of all these slots.
    pub(super) fn holds_slots(&self, slots: &[String]) -> bool {
        let own: BTreeSet<_> = self.partitions.iter().map(|it| it.slot.as_str()).collect();
        slots.iter().all(|slot| own.contains(slot.as_str()))
    }

    /// Writes the manifest.
    pub(super) fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        write_line(out, &self.dataset)?;
        for (partition, shards) in self.parts() {
            write_line(out, partition)?;
            for ShardEntry { bytes, id, rows } in shards {
                let (id, r#type) = (Cow::Borrowed(id.as_str()), LineType::Shard);
                write_line(out, &ShardLine { bytes: *bytes, id, rows: *rows, r#type })?;
            }
        }
        Ok(())
    }
}

fn write_line<T: Serialize>(out: &mut dyn Write, line: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// The part of the first line that every layout has.
#[derive(Deserialize)]
struct Head {
    layout: u32,
}

/// The lines of a manifest that were not read yet.
struct Lines<'a> {
    path: &'a Path,
    rest: &'a [u8],
    n: usize,
}

impl<'a> Lines<'a> {
    fn first(&self) -> Result<(&'a [u8], &'a [u8])> {
        let end = self.rest.iter().position(|b| *b == b'\n');
        let split = end.and_then(|end| self.rest.split_at_checked(end + 1));
        split.ok_or_else(|| self.damaged("the line is cut off"))
    }

    fn peek<T: Deserialize<'a>>(&self) -> Result<T> {
        let (line, _) = self.first()?;
        serde_json::from_slice(line).map_err(|e| self.damaged(&e.to_string()))
    }

    fn next<T: Deserialize<'a>>(&mut self, due: LineType) -> Result<T> {
        self.n += 1;
        let (line, rest) = self.first()?;
        let line = serde_json::from_slice(line)
            .map_err(|e| self.damaged(&format!("no line of type {}: {e}", due.name())))?;
        self.rest = rest;
        Ok(line)
    }

    fn expect(&self, due: LineType, found: LineType) -> Result<()> {
        if found == due {
            return Ok(());
        }
        let (due, found) = (due.name(), found.name());
        Err(self.damaged(&format!("no line of type {due}, but {found}")))
    }

    /// Two counts together: totals that are none would be wrong wherever they are used.
    fn sum(&self, one: u64, other: u64) -> Result<u64> {
        one.checked_add(other).ok_or_else(|| self.damaged("the totals are larger than can be"))
    }

    fn damaged(&self, message: &str) -> DatasetError {
        DatasetError::damaged(self.path, format!("line {}: {message}", self.n.max(1)))
    }
}
