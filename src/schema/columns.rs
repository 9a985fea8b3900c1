//! The bytes of a batch, field by field.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};

use super::axis::unify;
use super::encode::Room;
use super::extract::extract;
use super::offer::{flatten, offer};
use super::recipe::recipe;
use super::{Field, Kind, RowSchema, SchemaError};

/// One field of a batch, as it goes to the field's files.
#[derive(Debug, Clone)]
pub struct Column {
    /// One byte per row, 1 where it has a value; there for every nullable field, also where no file
    /// holds it (interned and categorical fields).
    pub valid: Option<Buffer>,
    /// The values.
    pub data: ColumnData,
    /// Bytes of a row (fixed), of an entry (ragged), of a scalar (free); 1 of an interned field.
    pub unit_bytes: usize,
}

/// The values of one field of a batch of `n` rows.
#[derive(Debug, Clone)]
pub enum ColumnData {
    /// `n` rows of [`Column::unit_bytes`] each; zeros (categorical: -1) where the value is absent.
    Fixed {
        /// The rows.
        bytes: Buffer,
    },
    /// A list per row.
    Ragged {
        /// `n + 1` numbers from 0, counted in entries. Fields on one axis have equal ones.
        offsets: ScalarBuffer<i64>,
        /// The entries of all rows, [`Column::unit_bytes`] each.
        bytes: Buffer,
    },
    /// An array per row.
    Free {
        /// `n` rows of one number per dimension, -1 behind the last one; zeros where absent.
        dims: ScalarBuffer<i32>,
        /// `n + 1` numbers from 0, counted in scalars.
        offsets: ScalarBuffer<i64>,
        /// The scalars of all rows.
        bytes: Buffer,
    },
    /// A string of bytes per row, to be replaced by its code.
    Interned {
        /// `n + 1` numbers from 0, counted in bytes.
        offsets: ScalarBuffer<i64>,
        /// The values of all rows; empty where absent.
        bytes: Buffer,
    },
}

impl Column {
    /// Whether `row` has a value.
    #[must_use]
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.as_slice().get(row) == Some(&1))
    }

    /// The offsets, of a column that has any.
    #[must_use]
    pub fn offsets(&self) -> Option<&[i64]> {
        match &self.data {
            ColumnData::Fixed { .. } => None,
            ColumnData::Ragged { offsets, .. }
            | ColumnData::Free { offsets, .. }
            | ColumnData::Interned { offsets, .. } => Some(offsets),
        }
    }

    /// All bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> &Buffer {
        match &self.data {
            ColumnData::Fixed { bytes }
            | ColumnData::Ragged { bytes, .. }
            | ColumnData::Free { bytes, .. }
            | ColumnData::Interned { bytes, .. } => bytes,
        }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let dims = match &self.data {
            ColumnData::Free { dims, .. } => size_of_val(&**dims),
            _ => 0,
        };
        let valid = self.valid.as_ref().map_or(0, Buffer::len);
        self.bytes().len() + self.offsets().map_or(0, size_of_val) + dims + valid
    }

    /// The bytes of one row, empty past the end.
    #[must_use]
    pub fn value(&self, row: usize) -> &[u8] {
        let ends = match self.offsets() {
            None => Some((row as u64, row as u64 + 1)),
            Some(offsets) => match (offsets.get(row), offsets.get(row + 1)) {
                (Some(&from), Some(&to)) => Some((from.cast_unsigned(), to.cast_unsigned())),
                _ => None,
            },
        };
        let at = |n: u64| usize::try_from(n).ok()?.checked_mul(self.unit_bytes);
        ends.and_then(|(from, to)| self.bytes().as_slice().get(at(from)?..at(to)?))
            .unwrap_or_default()
    }
}

impl RowSchema {
    /// The bytes of each field of `batch`, in the order of the fields.
    ///
    /// The batch has the columns that the schema was inferred from, of types that are stored alike
    /// (`Utf8` or `LargeUtf8`, say).
    ///
    /// # Errors
    /// [`SchemaError::Batch`] names a column that is missing, not known or of another type;
    /// [`SchemaError::Value`] the first row found that has no place, and why.
    pub fn columns(&self, batch: &RecordBatch) -> Result<Vec<Column>, SchemaError> {
        let columns = self.columns_within(batch, u64::MAX)?;
        columns.ok_or_else(|| SchemaError::document("a batch is larger than there can be memory"))
    }

    /// As [`columns`](Self::columns), with at most `text_bytes` of JSON that is made of nested values.
    /// `None` where more than one row becomes more. A single row that does has offsets that say how
    /// much, and less text than that: who calls this refuses it for its size.
    ///
    /// # Errors
    /// As [`columns`](Self::columns).
    pub(crate) fn columns_within(
        &self,
        batch: &RecordBatch,
        text_bytes: u64,
    ) -> Result<Option<Vec<Column>>, SchemaError> {
        let room = Room::of(text_bytes);
        let schema = batch.schema_ref();
        let names: HashMap<&str, &Field> =
            self.fields().iter().map(|field| (field.name.as_str(), field)).collect();
        let flat = flatten(schema, &|name| names.contains_key(name));
        if let Some(column) = flat.iter().find(|column| !names.contains_key(column.name.as_str())) {
            return Err(SchemaError::batch(&column.name, "the schema has no such field"));
        }
        let flat: HashMap<&str, _> =
            flat.iter().map(|column| (column.name.as_str(), column)).collect();
        let mut columns = Vec::with_capacity(self.fields().len());
        for field in self.fields() {
            let Some(column) = flat.get(field.name.as_str()) else {
                return Err(SchemaError::batch(&field.name, "it is missing"));
            };
            let recipe = whole_offer(column.field, field)
                .and_then(|offer| recipe(&offer, field))
                .map_err(|message| SchemaError::batch(&field.name, message))?;
            let (array, above) = resolve(batch, &column.path)
                .ok_or_else(|| SchemaError::batch(&field.name, "it is not where its type says"))?;
            let is_key = self.key().is_some_and(|key| key.name == field.name);
            match extract(&array, above.as_ref(), field, &recipe, &room) {
                Ok(column) => columns.push(column),
                Err(bad) if bad.is_too_much() => return Ok(None),
                Err(bad) => return Err(bad.of_field(&field.name, is_key)),
            }
        }
        for axis in self.axes() {
            unify(&axis, self.fields(), &mut columns)?;
        }
        Ok(Some(columns))
    }

    /// Bytes that every row adds to field files whatever its values: fixed values, codes, dims,
    /// offsets and `valid`.
    #[must_use]
    pub fn fixed_row_bytes(&self) -> u64 {
        let of_field = |field: &Field| {
            let values = match field.kind {
                Kind::Fixed => field.unit_bytes(),
                Kind::Ragged => 0,
                Kind::Free => field.shape.len() * size_of::<i32>(),
                Kind::Interned => size_of::<i32>(),
            };
            values as u64 + u64::from(field.has_valid_file())
        };
        let offsets = self.axes().len() * size_of::<i64>();
        self.fields().iter().map(of_field).sum::<u64>() + offsets as u64
    }

    /// Bytes of each row's own values: those of all field files without dictionaries, for
    /// `shard_bytes`. What an interned value adds, if it is new, is the length of
    /// [`Column::value`].
    #[must_use]
    pub fn row_sizes(&self, columns: &[Column], n_rows: usize) -> Vec<u64> {
        let mut sizes = vec![self.fixed_row_bytes(); n_rows];
        for column in columns.iter().filter(|column| !column.is_interned()) {
            column.add_sizes(&mut sizes);
        }
        sizes
    }

    /// Bytes of one row, interned values included: what `max_row_bytes` limits.
    #[must_use]
    pub fn row_bytes(&self, columns: &[Column], row: usize) -> u64 {
        let of = |column: &Column| match column.offsets()?.get(row..)? {
            [from, to, ..] => Some((to - from).unsigned_abs() * column.unit_bytes as u64),
            _ => None,
        };
        self.fixed_row_bytes() + columns.iter().filter_map(of).sum::<u64>()
    }
}

impl Column {
    fn is_interned(&self) -> bool {
        matches!(self.data, ColumnData::Interned { .. })
    }

    /// Adds the bytes of each row's entries to `sizes`; nothing for a fixed column.
    pub fn add_sizes(&self, sizes: &mut [u64]) {
        for (size, ends) in sizes.iter_mut().zip(self.offsets().unwrap_or_default().windows(2)) {
            if let &[from, to] = ends {
                *size += (to - from).unsigned_abs() * self.unit_bytes as u64;
            }
        }
    }
}

/// What the column offers to this field; a struct of `data` and `shape` offers an array of free
/// shape where the field has one.
fn whole_offer(column: &arrow_schema::Field, field: &Field) -> Result<super::offer::Offer, String> {
    match super::offer::tensor(column.data_type()) {
        Some(tensor) if field.kind == Kind::Free => Ok(tensor),
        _ => offer(column),
    }
}

/// The array at `path`, and which of its rows a struct around it has.
fn resolve(batch: &RecordBatch, path: &[usize]) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let (first, rest) = path.split_first()?;
    let mut array = batch.columns().get(*first)?.clone();
    let mut above = None;
    for i in rest {
        let fields = array.as_struct_opt()?;
        above = NullBuffer::union(above.as_ref(), fields.nulls());
        let inner = fields.columns().get(*i)?.clone();
        array = inner;
    }
    Some((array, above))
}
