//! Opens a sealed shard: fields, rows as Arrow, rows by key, where rows came from.
//!
//! Leaves out: checking every byte (`verify`), and many shards together (`dataset`).
//!
//! Invariants:
//! 1. A shard opens only with its sentinel, here or elsewhere, the sums that the sentinel names, and
//!    the schema that the sums name. Field files are mapped when they are first asked for.
//! 2. Every name that is opened comes from the schema's grammar or is one of ours.
//! 3. Whatever the files hold, reading ends with a value or an error that names the file.
//! 4. Of a shard whose rows are elsewhere, what stays here can be read; everything else is refused with
//!    the place where it is, also where a file was left over.
//! 5. Where files cannot be mapped, rows are read (`distant`), and memory never holds a file because a
//!    row of it was asked for.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::distant::DistantFolder;
use super::field_reader::{FieldReader, Folder};
use super::keyed::ROW_KEY_BYTES;
use super::layout;
use super::read_error::{ROWS_HAVE_NO_KEY, ReadError};
use super::remote_sentinel::{RemoteSentinel, dropped_files};
use super::sums::{self, Sentinel, Sums};
use crate::batch::{Provenance, Run};
use crate::schema::{Kind, RowSchema, integer, key_hash_bytes, key_hash_int};
use crate::storage::{Local, Storage, side_by_side};

type Result<T> = std::result::Result<T, ReadError>;

/// Bytes of one entry of `keys.bin`: `u64` hash, `u32` row.
pub(super) const KEY_BYTES: usize = 12;

/// Bytes of one run in `provenance.bin`: four `i64`.
const RUN_BYTES: usize = 32;

/// A row's key, as it is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    /// Of a key field of text.
    Text(&'a str),
    /// Of a key field of integers.
    Integer(i64),
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(key: &'a str) -> Self {
        Self::Text(key)
    }
}

impl From<i64> for Key<'_> {
    fn from(key: i64) -> Self {
        Self::Integer(key)
    }
}

impl Key<'_> {
    /// Index of the field that holds keys of this type.
    ///
    /// # Errors
    /// Rows have no key, or one of the other type.
    pub fn field_of(&self, schema: &RowSchema) -> Result<usize> {
        let (Some(index), Some(field)) = (schema.key_index(), schema.key()) else {
            return Err(ReadError::NoKey(ROWS_HAVE_NO_KEY));
        };
        match (self, field.kind) {
            (Self::Integer(_), Kind::Fixed) | (Self::Text(_), Kind::Ragged) => Ok(index),
            (Self::Text(_), _) => Err(ReadError::NoKey("keys are integers, not text")),
            (Self::Integer(_), _) => Err(ReadError::NoKey("keys are text, not integers")),
        }
    }

    /// Its hash, as `keys.bin` has it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        match self {
            Self::Text(key) => key_hash_bytes(key.as_bytes()),
            Self::Integer(key) => key_hash_int(*key),
        }
    }
}

/// A sealed shard, opened for reading.
#[derive(Debug)]
pub struct Shard {
    folder: Folder,
    sentinel: Sentinel,
    pub(super) n_rows: usize,
    schema: Arc<RowSchema>,
    fields: Vec<OnceLock<FieldReader>>,
    keys: OnceLock<Buffer>,
    elsewhere: Option<Elsewhere>,
}

/// What is not here of a shard whose rows are in a store.
#[derive(Debug, Clone)]
struct Elsewhere {
    url: String,
    files: BTreeSet<String>,
}

impl Shard {
    /// Opens the shard in the folder `path` of this machine's file system.
    ///
    /// # Errors
    /// As [`Shard::open`].
    pub fn open_local(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(Arc::new(Local), path)
    }

    /// Opens the shard in the folder `path`.
    ///
    /// # Errors
    /// The folder is no sealed shard, its sums or schema are damaged, or it is of a kind that this
    /// version does not read.
    pub fn open(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self> {
        let mut folder = Folder { storage, path: path.as_ref().to_path_buf(), distant: None };
        let Sealed { sentinel, sums, url } = read_sealed(&*folder.storage, &folder.path)?;
        let schema = Arc::new(read_schema(&folder, &sums)?);
        let elsewhere = url.map(|url| Elsewhere { url, files: dropped_files(&schema) });
        if folder.storage.distant().is_some() {
            folder.distant = Some(Arc::new(DistantFolder::new(sums)));
        }
        let n_rows = usize::try_from(sentinel.n_rows)
            .map_err(|_| folder.damaged(layout::COMPLETE, "counts more rows than can be"))?;
        let fields = schema.fields().iter().map(|_| OnceLock::new()).collect();
        Ok(Self { folder, sentinel, n_rows, schema, fields, keys: OnceLock::new(), elsewhere })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder.path
    }

    /// The shard's id: the first 32 hex digits of the BLAKE3 of its `B3SUMS`.
    #[must_use]
    pub fn id(&self) -> &str {
        self.sentinel.id()
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.sentinel.n_rows
    }

    /// The URL of its folder, where its rows are only in a store.
    #[must_use]
    pub fn remote_url(&self) -> Option<&str> {
        self.elsewhere.as_ref().map(|it| it.url.as_str())
    }

    /// The fields of its rows.
    #[must_use]
    pub fn schema(&self) -> &Arc<RowSchema> {
        &self.schema
    }

    /// The field of that name. Its files are mapped the first time it is asked for.
    ///
    /// # Errors
    /// There is no such field, one of its files is missing or has the wrong size, or files cannot be
    /// mapped here: [`Shard::read_rows`] reads rows of them.
    pub fn field(&self, name: &str) -> Result<&FieldReader> {
        let index = self.schema.index_of(name).ok_or_else(|| ReadError::NoField {
            field: name.to_owned(),
            known: self.schema.fields().iter().map(|field| field.name.clone()).collect(),
        })?;
        self.field_at(index)
    }

    /// The field of that index in the schema.
    ///
    /// # Errors
    /// As [`Shard::field`].
    pub fn field_at(&self, index: usize) -> Result<&FieldReader> {
        let (Some(slot), Some(field)) = (self.fields.get(index), self.schema.fields().get(index))
        else {
            return Err(ReadError::NoField { field: format!("#{index}"), known: Vec::new() });
        };
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        if self.folder.distant.is_some() {
            return Err(ReadError::Unmapped { path: self.folder.path.clone() });
        }
        if let Some(Elsewhere { url, files }) = &self.elsewhere
            && field.files().iter().any(|file| files.contains(&file.name))
        {
            return Err(ReadError::Remote { path: self.folder.path.clone(), url: url.clone() });
        }
        let opened = FieldReader::open(&self.folder, field, self.n_rows);
        let opened = opened.map_err(|error| self.since_dropped(error))?;
        Ok(slot.get_or_init(|| opened))
    }

    /// `error`, or where the rows are now, if they were dropped after the shard had been opened.
    #[cold]
    fn since_dropped(&self, error: ReadError) -> ReadError {
        let path = &self.folder.path;
        match (&error, RemoteSentinel::read(&*self.folder.storage, path)) {
            (ReadError::Missing { .. }, Ok(Some(remote))) => {
                ReadError::Remote { path: path.clone(), url: remote.url().to_owned() }
            }
            _ => error,
        }
    }

    /// Whether the field of that index is mapped, or in memory.
    pub(super) fn is_mapped(&self, index: usize) -> bool {
        self.folder.distant.is_none() || self.fields.get(index).is_some_and(|it| it.get().is_some())
    }

    /// Rows of the field of that index as Arrow.
    ///
    /// # Errors
    /// There is no such field or row, or its files are damaged.
    pub fn array(&self, index: usize, rows: Range<u64>) -> Result<ArrayRef> {
        if self.is_mapped(index) {
            return self.field_at(index)?.array(rows);
        }
        let n_rows = rows.end.saturating_sub(rows.start);
        self.read_runs(index, &[rows])?.array(0..n_rows)
    }

    /// Rows as Arrow, in the types of [`RowSchema::arrow_schema`]. Values are shared with the mapped
    /// files, but for bools, and offsets where `rows` does not begin with 0.
    ///
    /// # Errors
    /// There are no such rows, or the files of a field are damaged.
    pub fn record_batch(&self, rows: Range<u64>) -> Result<RecordBatch> {
        self.batch(rows, &self.schema.arrow_schema(), 0..self.fields.len())
    }

    /// As [`Shard::record_batch`], of the fields whose indices are given, in that order.
    ///
    /// # Errors
    /// As [`Shard::record_batch`]; there is no such field.
    pub fn record_batch_of(&self, rows: Range<u64>, fields: &[usize]) -> Result<RecordBatch> {
        let n_fields = self.fields.len();
        if let Some(index) = fields.iter().find(|index| **index >= n_fields) {
            return Err(ReadError::NoField { field: format!("#{index}"), known: Vec::new() });
        }
        let schema = self.schema.arrow_schema().project(fields);
        let schema = schema.map_err(|e| ReadError::damaged(&self.folder.path, e.to_string()))?;
        self.batch(rows, &Arc::new(schema), fields.iter().copied())
    }

    /// As [`Shard::array`], of several fields at the same time.
    ///
    /// # Errors
    /// As [`Shard::array`].
    pub fn arrays(&self, fields: &[usize], rows: Range<u64>) -> Result<Vec<ArrayRef>> {
        if self.folder.distant.is_some() {
            return side_by_side(fields, |index| self.array(*index, rows.clone()));
        }
        fields.iter().map(|index| self.field_at(*index)?.array(rows.clone())).collect()
    }

    fn batch(
        &self,
        rows: Range<u64>,
        schema: &SchemaRef,
        fields: impl Iterator<Item = usize>,
    ) -> Result<RecordBatch> {
        let arrays = self.arrays(&fields.collect::<Vec<_>>(), rows.clone())?;
        let n_rows = usize::try_from(rows.end.saturating_sub(rows.start)).ok();
        let options = RecordBatchOptions::new().with_row_count(n_rows);
        RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
            .map_err(|e| ReadError::damaged(&self.folder.path, e.to_string()))
    }

    /// The same shard with all fields copied into memory.
    pub(crate) fn load_in_memory(&self) -> Result<Self> {
        let fields = self.schema.fields().iter().enumerate().map(|(index, field)| {
            if self.is_mapped(index) {
                return Ok(self.field_at(index)?.in_memory());
            }
            // What cannot be mapped is read into memory.
            FieldReader::open(&self.folder, field, self.n_rows)
        });
        let fields = fields.map(|field| field.map(OnceLock::from)).collect::<Result<_>>()?;
        Ok(Self {
            folder: self.folder.clone(),
            sentinel: self.sentinel.clone(),
            n_rows: self.n_rows,
            schema: Arc::clone(&self.schema),
            fields,
            keys: OnceLock::new(),
            elsewhere: None,
        })
    }

    /// The row with this key, `None` where there is none.
    ///
    /// # Errors
    /// Rows have no key or one of the other type, or a file is damaged.
    pub fn find<'a>(&self, key: impl Into<Key<'a>>) -> Result<Option<u64>> {
        let key = key.into();
        key.field_of(&self.schema)?;
        if self.folder.distant.is_some() {
            return self.find_distant(key);
        }
        let keys = self.keys()?;
        let hash = key.hash();
        let (keys, _) = keys.as_slice().as_chunks::<KEY_BYTES>();
        let first = keys.partition_point(|entry| key_entry(entry).0 < hash);
        for entry in keys.iter().skip(first) {
            let (found, row) = key_entry(entry);
            if found != hash {
                break;
            }
            if self.has_key(row, key)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Checks that `keys.bin` has `each` bytes per row.
    pub(super) fn expect_keys(&self, len: u64, each: usize) -> Result<()> {
        if (self.n_rows.checked_mul(each)).map(|want| want as u64) == Some(len) {
            return Ok(());
        }
        let what = format!("{len} bytes for {} rows", self.n_rows);
        Err(self.folder.damaged(layout::KEYS, what))
    }

    /// Whether the key of row `row` is `key`.
    ///
    /// # Errors
    /// Rows have no key or one of the other type, there is no such row, or a file is damaged.
    pub fn has_key<'a>(&self, row: u64, key: impl Into<Key<'a>>) -> Result<bool> {
        let key = key.into();
        let index = key.field_of(&self.schema)?;
        if row >= self.n_rows() {
            let what = format!("names row {row} of {}", self.n_rows());
            return Err(self.folder.damaged(layout::KEYS, what));
        }
        let read;
        let (field, row) = if self.is_mapped(index) {
            (self.field_at(index)?, row)
        } else {
            read = self.read_rows(index, &[row])?;
            (&read, 0)
        };
        let bytes = field.row(row)?;
        Ok(match key {
            Key::Text(text) => text.as_bytes() == bytes,
            Key::Integer(number) => integer(bytes, field.field().dtype) == number,
        })
    }

    /// The bytes of `keys.bin`.
    ///
    /// # Errors
    /// It is missing or does not have an entry per row.
    pub(super) fn keys(&self) -> Result<&Buffer> {
        if let Some(open) = self.keys.get() {
            return Ok(open);
        }
        let keys = self.folder.map(layout::KEYS)?;
        self.expect_keys(keys.len() as u64, KEY_BYTES)?;
        Ok(self.keys.get_or_init(|| keys))
    }

    /// The 32-byte keys of keyed rows, in row order.
    ///
    /// # Errors
    /// `keys.bin` is missing or does not have a key per row.
    pub(crate) fn row_keys(&self) -> Result<&[[u8; ROW_KEY_BYTES]]> {
        let keys = if let Some(open) = self.keys.get() {
            open
        } else {
            let keys = self.folder.map(layout::KEYS)?;
            self.keys.get_or_init(|| keys)
        };
        self.expect_keys(keys.len() as u64, ROW_KEY_BYTES)?;
        Ok(keys.as_slice().as_chunks().0)
    }

    /// Where each row came from. `input` counts the inputs in `fingerprint.json`.
    ///
    /// # Errors
    /// `provenance.bin` is missing or does not describe the rows.
    pub fn provenance(&self) -> Result<Provenance> {
        let bytes = self.folder.map(layout::PROVENANCE)?;
        let (runs, rest) = bytes.as_slice().as_chunks::<RUN_BYTES>();
        let runs: Vec<[i64; 4]> = runs.iter().map(i64s).collect();
        let fail = |what: String| self.folder.damaged(layout::PROVENANCE, what);
        if !rest.is_empty() || runs.is_empty() != (self.n_rows == 0) {
            return Err(fail(format!("{} bytes for {} rows", bytes.len(), self.n_rows)));
        }
        let mut provenance = Provenance::new();
        for (n, [row, input, source_row, sub_row]) in runs.iter().copied().enumerate() {
            let end =
                runs.get(n + 1).map_or(self.n_rows(), |next| u64::try_from(next[0]).unwrap_or(0));
            let run = (|| {
                let row = u64::try_from(row).ok().filter(|row| *row == provenance.n_rows())?;
                let source_row = u64::try_from(source_row).ok()?;
                let len = end.checked_sub(row).filter(|len| *len > 0)?;
                // The positions of the run's last row are numbers too.
                let counts_up = if sub_row < 0 { source_row } else { sub_row.cast_unsigned() };
                i64::try_from(counts_up.checked_add(len)?).ok()?;
                let run = Run { row, input: u32::try_from(input).ok()?, source_row, sub_row };
                (sub_row >= -1).then_some((run, len))
            })();
            let Some((run, len)) = run else {
                return Err(fail(format!("run {n} does not fit between its neighbours")));
            };
            let n_runs = provenance.runs().len();
            provenance.push_run(run, len);
            if provenance.runs().len() == n_runs {
                return Err(fail(format!("run {n} only goes on from the one before")));
            }
        }
        Ok(provenance)
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }
}

/// Hash and row of an entry of `keys.bin`.
pub(super) fn key_entry(entry: &[u8; KEY_BYTES]) -> (u64, u64) {
    let (hash, row) = entry.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |n: u64, &byte| n << 8 | u64::from(byte));
    (word(hash), word(row))
}

fn i64s(bytes: &[u8; RUN_BYTES]) -> [i64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    let word = |i: usize| words.get(i).map_or(0, |word| i64::from_le_bytes(*word));
    [word(0), word(1), word(2), word(3)]
}

/// What a sealed shard promises.
struct Sealed {
    sentinel: Sentinel,
    sums: Sums,
    /// Where its rows are, if they are not here.
    url: Option<String>,
}

/// The sentinel of the shard in the folder `path`, here or elsewhere, and the sums that it names.
fn read_sealed(storage: &dyn Storage, path: &Path) -> Result<Sealed> {
    let read = |name: &str| storage.read(&path.join(name));
    let damaged = |name: &str, what: String| ReadError::damaged(&path.join(name), what);
    let complete = match read(layout::COMPLETE) {
        // It went while it was looked at.
        Err(error) if error.source.kind() == ErrorKind::NotFound => None,
        found => found?,
    };
    let (name, sentinel, url) = if let Some(sentinel) = complete {
        let parsed = Sentinel::parse(&sentinel).map_err(|what| damaged(layout::COMPLETE, what))?;
        (layout::COMPLETE, parsed, None)
    } else {
        let not_sealed = || ReadError::NotSealed { path: path.to_path_buf() };
        let remote = RemoteSentinel::read(storage, path)?.ok_or_else(not_sealed)?;
        let (sentinel, url) = remote.into_parts();
        (layout::REMOTE, sentinel, Some(url))
    };
    let missing = || ReadError::Missing { path: path.join(layout::SUMS) };
    let sums = read(layout::SUMS)?.ok_or_else(missing)?;
    if blake3::hash(&sums).to_hex().as_str() != sentinel.sums_b3 {
        return Err(damaged(layout::SUMS, format!("is not the file that {name} names")));
    }
    let sums = sums::parse(&sums).map_err(|what| damaged(layout::SUMS, what))?;
    Ok(Sealed { sentinel, sums, url })
}

/// The sentinel of the shard in the folder `path`, all of whose files are here, and the sums that it
/// names.
pub(super) fn read_sums(storage: &dyn Storage, path: &Path) -> Result<(Sentinel, Sums)> {
    match read_sealed(storage, path)? {
        Sealed { sentinel, sums, url: None } => Ok((sentinel, sums)),
        Sealed { url: Some(url), .. } => Err(ReadError::Remote { path: path.to_path_buf(), url }),
    }
}

fn read_schema(folder: &Folder, sums: &Sums) -> Result<RowSchema> {
    let path = folder.path.join(layout::SCHEMA);
    let bytes = folder.storage.read(&path)?;
    let bytes = bytes.ok_or_else(|| ReadError::Missing { path: path.clone() })?;
    if sums.get(layout::SCHEMA).map(String::as_str) != Some(blake3::hash(&bytes).to_hex().as_str())
    {
        return Err(folder.damaged(layout::SCHEMA, "does not match its sum in B3SUMS"));
    }
    let document = serde_json::from_slice(&bytes)
        .map_err(|_| folder.damaged(layout::SCHEMA, "is not JSON"))?;
    RowSchema::from_json(&document).map_err(|source| ReadError::Schema { path, source })
}
