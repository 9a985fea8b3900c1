//! Rows from many places as the columns of one batch.
//!
//! Invariants:
//! 1. Rows stand in the order asked for; a field's bytes are copied once.
//! 2. Offsets and dims of a damaged segment lead to an error that names the file.

use arrow_buffer::{Buffer, ScalarBuffer};

use super::error::{CacheError, Result};
use crate::schema::{Column, ColumnData, Field, Kind, RowSchema};
use crate::shard::Shard;

/// Where a row is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'a> {
    /// In a segment.
    Sealed { shard: &'a Shard, row: usize },
    /// Among rows that are not committed yet.
    Held { columns: &'a [Column], row: usize },
}

/// The rows at `places`, field by field.
pub(super) fn gather(schema: &RowSchema, places: &[Place<'_>]) -> Result<Vec<Column>> {
    let fields = schema.fields().iter().enumerate();
    fields.map(|(index, field)| column(field, index, places)).collect()
}

/// Bytes of the rows at `places`.
pub(super) fn bytes(schema: &RowSchema, places: &[Place<'_>]) -> Result<u64> {
    let mut n_bytes = 0;
    for (index, field) in schema.fields().iter().enumerate() {
        for place in places {
            n_bytes += row(field, index, *place)?.bytes.len() as u64;
        }
    }
    Ok(n_bytes)
}

fn column(field: &Field, index: usize, places: &[Place<'_>]) -> Result<Column> {
    let (unit, rank) = (field.unit_bytes(), field.shape.len());
    let is_fixed = field.kind == Kind::Fixed;
    let mut bytes = Vec::with_capacity(if is_fixed { unit * places.len() } else { 0 });
    let (mut offsets, mut end) = (Vec::new(), 0_i64);
    let (mut dims, mut valid) = (Vec::new(), Vec::new());
    if !is_fixed {
        offsets.reserve(places.len() + 1);
        offsets.push(0);
    }
    for place in places {
        let row = row(field, index, *place)?;
        bytes.extend_from_slice(row.bytes);
        if field.nullable {
            valid.push(u8::from(row.is_valid));
        }
        if !is_fixed {
            end += row.entries;
            offsets.push(end);
        }
        if field.kind == Kind::Free {
            let n = row.dims.len().min(rank);
            dims.extend_from_slice(row.dims.get(..n).unwrap_or_default());
            dims.extend(std::iter::repeat_n(-1, rank - n));
        }
    }
    let bytes = Buffer::from_vec(bytes);
    let offsets = ScalarBuffer::from(offsets);
    let data = match field.kind {
        Kind::Fixed => ColumnData::Fixed { bytes },
        Kind::Ragged => ColumnData::Ragged { offsets, bytes },
        Kind::Free => ColumnData::Free { dims: dims.into(), offsets, bytes },
        Kind::Interned => ColumnData::Interned { offsets, bytes },
    };
    let valid = field.nullable.then(|| Buffer::from_vec(valid));
    Ok(Column { valid, data, unit_bytes: unit })
}

/// One field of a row.
struct Row<'a> {
    bytes: &'a [u8],
    /// On the field's axis; of an interned field, bytes.
    entries: i64,
    dims: &'a [i32],
    is_valid: bool,
}

#[inline]
fn row<'a>(field: &Field, index: usize, place: Place<'a>) -> Result<Row<'a>> {
    let (bytes, is_valid, offsets, dims, row): (&[u8], bool, _, &[i32], _) = match place {
        Place::Sealed { shard, row } => {
            let (reader, at) = (shard.field_at(index)?, row as u64);
            let dims = if field.kind == Kind::Free { reader.dims(at)? } else { &[] };
            (reader.row(at)?, !field.nullable || reader.is_valid(at)?, reader.offsets(), dims, row)
        }
        Place::Held { columns, row } => {
            let column = columns.get(index).ok_or_else(|| misfit(field))?;
            let dims = match &column.data {
                ColumnData::Free { dims, .. } => {
                    let rank = field.shape.len();
                    dims.get(row * rank..(row + 1) * rank).ok_or_else(|| misfit(field))?
                }
                _ => &[],
            };
            (column.value(row), column.is_valid(row), column.offsets(), dims, row)
        }
    };
    let entries = match (field.kind, offsets) {
        (Kind::Ragged | Kind::Free, Some(offsets)) => {
            let ends = offsets.get(row).zip(offsets.get(row + 1));
            let n = ends.and_then(|(from, to)| to.checked_sub(*from)).filter(|n| *n >= 0);
            n.ok_or_else(|| misfit(field))?
        }
        _ => i64::try_from(bytes.len()).unwrap_or(i64::MAX),
    };
    Ok(Row { bytes, entries, dims, is_valid })
}

fn misfit(field: &Field) -> CacheError {
    let what = format!("the rows of field `{}` do not fit its structure", field.name);
    CacheError::damaged(std::path::Path::new(&field.stem), what)
}
