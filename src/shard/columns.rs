//! Rows of a field as a column of a batch, and as Arrow has them.
//!
//! Invariant: a column that is handed out fits its field; offsets, dims, codes and flags of the rows
//! asked for were looked at.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, Int32Array, LargeBinaryArray, LargeStringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::field_reader::FieldReader;
use super::read_error::ReadError;
use crate::schema::{Column, ColumnData, FileRole, Kind, Logical};

type Result<T, E = ReadError> = std::result::Result<T, E>;

impl FieldReader {
    /// Rows as a column. Values are shared with the mapped file, but for interned fields, whose codes
    /// are replaced by values.
    ///
    /// # Errors
    /// There are no such rows, or their offsets, dims, codes or flags cannot be.
    pub fn column(&self, rows: Range<u64>) -> Result<Column> {
        let (start, end) = self.check_rows(&rows)?;
        let unit = self.unit_bytes();
        let data = match self.field.kind {
            Kind::Fixed => {
                let bytes = self.values.slice_with_length(start * unit, (end - start) * unit);
                ColumnData::Fixed { bytes }
            }
            Kind::Ragged => {
                let (offsets, bytes) = self.entries_of(start, end)?;
                ColumnData::Ragged { offsets, bytes }
            }
            Kind::Free => {
                let (offsets, bytes) = self.entries_of(start, end)?;
                for row in rows.clone() {
                    self.dims(row)?;
                }
                let rank = self.field.shape.len();
                let dims = self.dims.clone().unwrap_or_default();
                let dims = dims.slice(start * rank, (end - start) * rank);
                ColumnData::Free { dims, offsets, bytes }
            }
            Kind::Interned => self.values_of(&rows)?,
        };
        Ok(Column { valid: self.valid_of(&rows)?, data, unit_bytes: unit })
    }

    /// Rows as Arrow, in the type of [`Field::arrow`](crate::schema::Field::arrow).
    ///
    /// # Errors
    /// As [`FieldReader::column`]; text that is no UTF-8.
    pub fn array(&self, rows: Range<u64>) -> Result<ArrayRef> {
        let (start, end) = self.check_rows(&rows)?;
        if self.codes.is_some() {
            return self.dictionary_array(&rows, start, end);
        }
        let column = self.column(rows)?;
        self.field.array(&column, end - start).map_err(|e| self.no_array(&e))
    }

    #[cold]
    fn no_array(&self, error: &dyn Display) -> ReadError {
        self.damaged(FileRole::Values, error.to_string())
    }

    /// The codes of rows over the dictionary as it lies in the shard.
    fn dictionary_array(&self, rows: &Range<u64>, start: usize, end: usize) -> Result<ArrayRef> {
        let valid = rows.clone().map(|row| Ok(self.code(row)?.is_some()));
        let valid: NullBuffer = valid.collect::<Result<Vec<bool>>>()?.into();
        let codes = self.codes.clone().unwrap_or_default().slice(start, end - start);
        let codes = Int32Array::try_new(codes, Some(valid).filter(|v| v.null_count() > 0));
        let values = self.dictionary()?;
        let array = codes.and_then(|codes| DictionaryArray::try_new(codes, values));
        array.map(|array| Arc::new(array) as _).map_err(|e| self.no_array(&e))
    }

    /// The distinct values of an interned field as Arrow, checked once.
    fn dictionary(&self) -> Result<ArrayRef> {
        if let Some(values) = self.dictionary.get() {
            return Ok(Arc::clone(values));
        }
        let (offsets, bytes) = self.entries_of(0, self.n_values())?;
        let offsets = OffsetBuffer::new(offsets);
        let is_binary = self.field.logical == Some(Logical::Binary);
        let values: Result<ArrayRef, ArrowError> = if is_binary {
            LargeBinaryArray::try_new(offsets, bytes, None).map(|values| Arc::new(values) as _)
        } else {
            LargeStringArray::try_new(offsets, bytes, None).map(|values| Arc::new(values) as _)
        };
        let values = values.map_err(|e| self.no_array(&e))?;
        Ok(Arc::clone(self.dictionary.get_or_init(|| values)))
    }

    fn check_rows(&self, rows: &Range<u64>) -> Result<(usize, usize)> {
        let start = usize::try_from(rows.start).ok();
        let end = usize::try_from(rows.end).ok().filter(|end| *end <= self.n_rows);
        match (start, end) {
            (Some(start), Some(end)) if start <= end => Ok((start, end)),
            _ => Err(ReadError::NoRow { row: rows.end.max(rows.start), n_rows: self.n_rows() }),
        }
    }

    /// The entries of rows: their offsets counted from 0, and their bytes.
    fn entries_of(&self, start: usize, end: usize) -> Result<(ScalarBuffer<i64>, Buffer)> {
        let offsets = self.offsets.clone().unwrap_or_default();
        let offsets = offsets.slice(start, end - start + 1);
        let unit = self.unit_bytes();
        let rise = offsets.windows(2).all(|pair| pair.first() <= pair.last());
        let first = offsets.first().copied().unwrap_or_default();
        let at = |offset: Option<&i64>| usize::try_from(*offset?).ok()?.checked_mul(unit);
        let span = at(offsets.first()).zip(at(offsets.last()));
        let Some((from, to)) = span.filter(|(_, to)| rise && *to <= self.values.len()) else {
            let what = format!("the offsets of rows {start}..{end} do not rise within the file");
            return Err(self.damaged(FileRole::Offsets, what));
        };
        let offsets = if first == 0 {
            offsets
        } else {
            offsets.iter().map(|offset| offset - first).collect()
        };
        Ok((offsets, self.values.slice_with_length(from, to - from)))
    }

    /// The values that the codes of rows stand for.
    fn values_of(&self, rows: &Range<u64>) -> Result<ColumnData> {
        let mut offsets = vec![0_i64];
        let mut bytes = Vec::new();
        for row in rows.clone() {
            bytes.extend_from_slice(self.row(row)?);
            offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
        Ok(ColumnData::Interned { offsets: offsets.into(), bytes: bytes.into() })
    }

    /// One byte per row, of a nullable field. The codes of a categorical field are looked at too.
    fn valid_of(&self, rows: &Range<u64>) -> Result<Option<Buffer>> {
        let (start, end) = self.check_rows(rows)?;
        if let Some(valid) = &self.valid {
            let valid = valid.slice_with_length(start, end - start);
            if let Some(row) = valid.iter().position(|&byte| byte > 1) {
                let what = format!("row {} is neither 0 nor 1", start + row);
                return Err(self.damaged(FileRole::Valid, what));
            }
            return Ok(Some(valid));
        }
        if self.codes.is_none() && self.field.categories.is_none() {
            return Ok(None);
        }
        let valid: Vec<u8> =
            rows.clone().map(|row| self.is_valid(row).map(u8::from)).collect::<Result<_>>()?;
        Ok(self.field.nullable.then(|| valid.into()))
    }
}
