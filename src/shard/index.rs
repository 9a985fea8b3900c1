//! `index.parquet`: one Parquet row per row, made in one pass over the field files.
//!
//! Invariants:
//! 1. The file is a function of the shard's rows. Row groups, encodings and the writer's name are fixed,
//!    and rows are handed over one group at a time.
//! 2. A group has no more values in memory than [`GROUP_BYTES`], or a single row's, however large and
//!    however often repeated interned values are.
//! 3. Of all indexes that are being made in the process, one has a larger row than that in memory,
//!    at most [`COPIES`] times.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::error::ShardError;
use super::file::ShardFile;
use super::layout;
use super::stream::Stream;
use crate::schema::{Column, ColumnData, Field, FileRole, Kind, RowSchema};
use crate::storage::{ReadFile, Storage};

/// Most rows of a row group.
pub(super) const GROUP_ROWS: usize = 65_536;

/// What a column takes beside its rows: its file, its encoder, and its place in the footer.
pub(super) const COLUMN_BYTES: u64 = 10 << 10;

/// Most bytes of the values of a row group with more than one row.
pub(super) const GROUP_BYTES: u64 = 4 << 20;

/// How often the values of a group are in memory: as they were read, in the dictionary of the Parquet
/// writer, and as the smallest and the largest one.
pub(super) const COPIES: u64 = 4;

/// Who makes a group of more than [`GROUP_BYTES`].
static LARGE: Mutex<()> = Mutex::new(());

/// The column that numbers the rows.
const ROW: &str = "row";

/// Writes the index of a shard whose field files are complete.
pub(super) fn write(
    storage: &dyn Storage,
    dir: &Path,
    schema: &RowSchema,
    n_rows: u64,
    to: &mut ShardFile,
) -> Result<(), ShardError> {
    let mut readers = Vec::new();
    let mut columns = vec![ArrowField::new(ROW, DataType::Int64, false)];
    let key = schema.key().into_iter().map(|key| (key, true));
    let others = schema.fields().iter().enumerate();
    let others = others.filter(|(i, _)| Some(*i) != schema.key_index()).map(|(_, f)| (f, f.index));
    for (field, has_value) in key.chain(others) {
        let reader = Reader::open(storage, dir, field, has_value)?;
        columns.extend(reader.columns());
        readers.push(reader);
    }
    let columns: SchemaRef = Arc::new(ArrowSchema::new(columns));
    let mut sink = Sink { file: to, error: None };
    let written = write_groups(&mut sink, &columns, &mut readers, n_rows);
    let error = sink.error.take();
    match written {
        Err(Stop::Shard(error)) => Err(error),
        Err(Stop::Parquet(source)) => {
            Err(error
                .unwrap_or_else(|| ShardError::Index { path: dir.join(layout::INDEX), source }))
        }
        Ok(()) => Ok(()),
    }
}

/// Why an index could not be made.
enum Stop {
    Shard(ShardError),
    Parquet(ParquetError),
}

impl<E: Into<ShardError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Shard(error.into())
    }
}

fn write_groups(
    sink: &mut Sink<'_>,
    columns: &SchemaRef,
    readers: &mut [Reader<'_>],
    n_rows: u64,
) -> Result<(), Stop> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_created_by("rowmill".to_owned())
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Numbers that count up take no space as differences, and a dictionary of them is wasted.
        .set_column_dictionary_enabled(ColumnPath::from(ROW), false)
        .set_column_encoding(ColumnPath::from(ROW), Encoding::DELTA_BINARY_PACKED)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer =
        ArrowWriter::try_new(sink, Arc::clone(columns), Some(properties)).map_err(Stop::Parquet)?;
    let mut from = 0;
    while from < n_rows {
        let left = usize::try_from(n_rows - from).map_or(GROUP_ROWS, |left| left.min(GROUP_ROWS));
        let (n, bytes) = group(readers, left)?;
        let is_large = bytes > GROUP_BYTES;
        let _turn = is_large.then(|| LARGE.lock().unwrap_or_else(PoisonError::into_inner));
        let to = from + n as u64;
        let rows: Int64Array = (from.cast_signed()..to.cast_signed()).collect();
        let mut arrays: Vec<ArrayRef> = vec![Arc::new(rows)];
        for reader in &mut *readers {
            reader.next(n, &mut arrays)?;
        }
        let batch = RecordBatch::try_new(Arc::clone(columns), arrays);
        writer.write(&batch.map_err(|e| Stop::Parquet(e.into()))?).map_err(Stop::Parquet)?;
        writer.flush().map_err(Stop::Parquet)?;
        from = to;
    }
    writer.close().map(drop).map_err(Stop::Parquet)
}

/// How many of the next `left` rows make a group, and the bytes of their values. Looks at no more
/// than a few times as many.
fn group(readers: &mut [Reader<'_>], left: usize) -> Result<(usize, u64), Stop> {
    let mut n_seen = left.min(1024);
    loop {
        let mut sizes = vec![0; n_seen];
        for reader in &mut *readers {
            reader.look_ahead(n_seen, &mut sizes)?;
        }
        let n = rows_that_fit(&sizes);
        if n < n_seen || n_seen == left {
            return Ok((n, sizes.iter().take(n).sum()));
        }
        n_seen = left.min(4 * n_seen);
    }
}

/// How many of the rows of these sizes make a group.
fn rows_that_fit(sizes: &[u64]) -> usize {
    let mut bytes = 0_u64;
    let is_full = sizes.iter().position(|size| {
        bytes = bytes.saturating_add(*size);
        bytes > GROUP_BYTES
    });
    is_full.unwrap_or(sizes.len()).max(1)
}

/// Reads what the index says of one field, a group of rows at a time.
struct Reader<'a> {
    field: &'a Field,
    has_value: bool,
    values: Option<Stream>,
    valid: Option<Stream>,
    /// Ends of the rows' entries, and those that were looked at ahead, behind the end of the row before.
    offsets: Option<Stream>,
    ends: Vec<i64>,
    codes: Option<Stream>,
    codes_ahead: Vec<i32>,
    dictionary: Option<Dictionary>,
}

/// The values of an interned field.
struct Dictionary {
    values: Box<dyn ReadFile>,
    offsets: Box<dyn ReadFile>,
}

impl Dictionary {
    /// Where the value of a code lies; nowhere, where there is none.
    fn place(&self, code: i32) -> Result<Range<u64>, ShardError> {
        let Ok(code) = u64::try_from(code) else { return Ok(0..0) };
        let mut ends = [0; 16];
        self.offsets.read_at(&mut ends, code * 8)?;
        let [from, to] = ends.as_chunks::<8>().0 else { return Ok(0..0) };
        let (from, to) = (u64::from_le_bytes(*from), u64::from_le_bytes(*to));
        Ok(from..to.max(from))
    }
}

impl<'a> Reader<'a> {
    fn open(
        storage: &dyn Storage,
        dir: &Path,
        field: &'a Field,
        has_value: bool,
    ) -> Result<Self, ShardError> {
        let mut this = Self {
            field,
            has_value,
            values: None,
            valid: None,
            offsets: None,
            ends: Vec::new(),
            codes: None,
            codes_ahead: Vec::new(),
            dictionary: None,
        };
        let (mut dict, mut dict_offsets) = (None, None);
        for file in field.files() {
            let path = dir.join(&file.name);
            match file.role {
                FileRole::Valid => this.valid = Some(Stream::open(storage, &path)?),
                FileRole::Codes => this.codes = Some(Stream::open(storage, &path)?),
                FileRole::Values if has_value => this.values = Some(Stream::open(storage, &path)?),
                FileRole::Offsets if has_value => {
                    let mut offsets = Stream::open(storage, &path)?;
                    this.ends.push(offsets.take_i64()?);
                    this.offsets = Some(offsets);
                }
                FileRole::Dict if has_value => dict = Some(storage.open(&path)?),
                FileRole::DictOffsets if has_value => dict_offsets = Some(storage.open(&path)?),
                _ => {}
            }
        }
        this.dictionary =
            dict.zip(dict_offsets).map(|(values, offsets)| Dictionary { values, offsets });
        Ok(this)
    }

    /// The columns it fills.
    fn columns(&self) -> Vec<ArrowField> {
        let Field { stem, nullable, .. } = self.field;
        let mut columns = Vec::new();
        if self.valid.is_some() {
            columns.push(ArrowField::new(format!("has_{stem}"), DataType::Boolean, false));
        }
        if self.codes.is_some() {
            columns.push(ArrowField::new(format!("{stem}_key"), DataType::Int64, true));
        }
        if self.has_value {
            columns.push(ArrowField::new(stem, value_type(self.field), *nullable));
        }
        columns
    }

    /// Adds to `sizes` the bytes of the values of the next `n` rows.
    fn look_ahead(&mut self, n: usize, sizes: &mut [u64]) -> Result<(), Stop> {
        if let Some(stream) = &mut self.codes {
            while self.codes_ahead.len() < n {
                self.codes_ahead.push(stream.take_i32()?);
            }
        }
        if !self.has_value {
            return Ok(());
        }
        let unit = self.field.unit_bytes() as u64;
        if let Some(dictionary) = &self.dictionary {
            // Most values come again: each is looked up once.
            let mut known = HashMap::new();
            for (size, code) in sizes.iter_mut().zip(&self.codes_ahead) {
                let bytes = match known.entry(*code) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        let place = dictionary.place(*code)?;
                        *new.insert(place.end - place.start)
                    }
                };
                *size += bytes;
            }
        } else if let Some(stream) = &mut self.offsets {
            while self.ends.len() <= n {
                self.ends.push(stream.take_i64()?);
            }
            for (size, ends) in sizes.iter_mut().zip(self.ends.windows(2)) {
                if let [from, to] = ends {
                    *size += (to - from).unsigned_abs() * unit;
                }
            }
        } else {
            for size in sizes.iter_mut() {
                *size += unit;
            }
        }
        Ok(())
    }

    /// Adds the columns of the next `n` rows, which were looked at ahead.
    fn next(&mut self, n: usize, arrays: &mut Vec<ArrayRef>) -> Result<(), Stop> {
        let mut valid = match &mut self.valid {
            Some(valid) => Some(valid.take_vec(n)?),
            None => None,
        };
        if let Some(valid) = &valid {
            let is_valid = |row: usize| valid.get(row).is_some_and(|byte| *byte != 0);
            let has = BooleanBuffer::collect_bool(valid.len(), is_valid);
            arrays.push(Arc::new(BooleanArray::from(has)));
        }
        let codes: Vec<i32> = self.codes_ahead.drain(..n.min(self.codes_ahead.len())).collect();
        if self.codes.is_some() {
            let present = |code: &i32| (*code >= 0).then_some(i64::from(*code));
            arrays.push(Arc::new(codes.iter().map(present).collect::<Int64Array>()));
        }
        if !self.has_value {
            return Ok(());
        }
        let data = match self.field.kind {
            Kind::Interned => {
                valid = Some(codes.iter().map(|code| u8::from(*code >= 0)).collect());
                self.interned(&codes)?
            }
            Kind::Fixed => {
                let Some(values) = &mut self.values else { return Ok(()) };
                let bytes = values.take_vec(n * self.field.unit_bytes())?;
                if self.field.categories.is_some() && self.field.nullable {
                    // A categorical field is null where its code is negative.
                    let codes = bytes.chunks_exact(self.field.unit_bytes());
                    let is_present = |code: &[u8]| code.last().is_some_and(|byte| byte & 0x80 == 0);
                    valid = Some(codes.map(|code| u8::from(is_present(code))).collect());
                }
                ColumnData::Fixed { bytes: Buffer::from_vec(bytes) }
            }
            Kind::Ragged | Kind::Free => self.list(n)?,
        };
        let valid = valid.map(Buffer::from_vec);
        let column = Column { valid, data, unit_bytes: self.field.unit_bytes() };
        let array = self.field.array(&column, n)?;
        let plain = arrow_cast::cast(&array, &value_type(self.field));
        arrays.push(plain.map_err(|e| Stop::Parquet(e.into()))?);
        Ok(())
    }

    fn list(&mut self, n: usize) -> Result<ColumnData, Stop> {
        let first = self.ends.first().copied().unwrap_or_default();
        let offsets: Vec<i64> = self.ends.iter().take(n + 1).map(|end| end - first).collect();
        self.ends.drain(..n.min(self.ends.len()));
        let n_entries = offsets.last().and_then(|end| usize::try_from(*end).ok());
        let n_entries = n_entries.unwrap_or_default();
        let bytes = match &mut self.values {
            Some(values) => values.take_vec(n_entries * self.field.unit_bytes())?,
            None => Vec::new(),
        };
        let (offsets, bytes) = (ScalarBuffer::from(offsets), Buffer::from_vec(bytes));
        Ok(ColumnData::Ragged { offsets, bytes })
    }

    /// The values of these codes.
    fn interned(&self, codes: &[i32]) -> Result<ColumnData, Stop> {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for code in codes {
            if let Some(dictionary) = &self.dictionary {
                let place = dictionary.place(*code)?;
                let start = bytes.len();
                let n = usize::try_from(place.end - place.start).unwrap_or_default();
                bytes.resize(start + n, 0);
                if let Some(room) = bytes.get_mut(start..) {
                    dictionary.values.read_at(room, place.start)?;
                }
            }
            offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
        let (offsets, bytes) = (ScalarBuffer::from(offsets), Buffer::from_vec(bytes));
        Ok(ColumnData::Interned { offsets, bytes })
    }
}

/// The type of a field's values in the index: text and bytes plainly, not as codes.
fn value_type(field: &Field) -> DataType {
    match field.arrow().data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        plain => plain.clone(),
    }
}

/// A file of a shard, for a Parquet writer.
struct Sink<'a> {
    file: &'a mut ShardFile,
    /// Why the file could not be written.
    error: Option<ShardError>,
}

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.append(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.error = Some(error);
                Err(io::Error::other("the index cannot be written"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
