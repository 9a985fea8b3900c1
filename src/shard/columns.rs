//! Rows of a field as a column of a batch: the way back to Arrow begins here.
//!
//! Invariant: a column that is handed out fits its field; offsets, dims, codes and flags of the rows
//! asked for were looked at.

use std::ops::Range;

use arrow_buffer::{Buffer, ScalarBuffer};

use super::field_reader::FieldReader;
use super::read_error::ReadError;
use crate::schema::{Column, ColumnData, FileRole, Kind};

type Result<T> = std::result::Result<T, ReadError>;

impl FieldReader {
    /// Rows as a column. Values are shared with the mapping, but for interned fields, whose codes
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
