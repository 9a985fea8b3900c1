//! Fields that share an axis: equally many entries in every row.

use arrow_buffer::{Buffer, ScalarBuffer};

use super::{Axis, Column, ColumnData, Field, SchemaError};

/// Gives all columns on `axis` the same offsets. Rows in which one is absent hold zeros there, as
/// many as the others have entries.
///
/// # Errors
/// Two fields that have a value in the same row have different numbers of entries.
pub(super) fn unify(
    axis: &Axis,
    fields: &[Field],
    columns: &mut [Column],
) -> Result<(), SchemaError> {
    let Some(first) = axis.fields.first().and_then(|i| columns.get(*i)) else { return Ok(()) };
    let Some(first) = ragged_offsets(first).cloned() else { return Ok(()) };
    let all_alike = axis
        .fields
        .iter()
        .all(|i| columns.get(*i).and_then(ragged_offsets).is_some_and(|offsets| *offsets == first));
    let offsets = if all_alike { first } else { common_offsets(axis, fields, columns)? };
    for i in &axis.fields {
        let Some(column) = columns.get_mut(*i) else { continue };
        let unit_bytes = column.unit_bytes;
        if let ColumnData::Ragged { offsets: own, bytes } = &mut column.data {
            if *own != offsets {
                *bytes = filled(own, bytes, &offsets, unit_bytes);
            }
            *own = offsets.clone();
        }
    }
    Ok(())
}

fn ragged_offsets(column: &Column) -> Option<&ScalarBuffer<i64>> {
    match &column.data {
        ColumnData::Ragged { offsets, .. } => Some(offsets),
        _ => None,
    }
}

/// Entries of `row`, 0 past the end.
fn n_entries(offsets: &[i64], row: usize) -> i64 {
    match offsets.get(row..row + 2) {
        Some(&[from, to]) => to - from,
        _ => 0,
    }
}

fn common_offsets(
    axis: &Axis,
    fields: &[Field],
    columns: &[Column],
) -> Result<ScalarBuffer<i64>, SchemaError> {
    let on_axis: Vec<(&Field, &Column, &[i64])> = axis
        .fields
        .iter()
        .filter_map(|i| Some((fields.get(*i)?, columns.get(*i)?, columns.get(*i)?.offsets()?)))
        .collect();
    let n_ends = on_axis.iter().map(|(.., offsets)| offsets.len()).max().unwrap_or(1);
    let mut common = Vec::with_capacity(n_ends);
    let mut end = 0;
    common.push(end);
    for row in 0..n_ends - 1 {
        let mut present = on_axis.iter().filter(|(_, column, _)| column.is_valid(row));
        if let Some((field, _, offsets)) = present.next() {
            let n = n_entries(offsets, row);
            if let Some((other, _, offsets)) = present.find(|(.., o)| n_entries(o, row) != n) {
                return Err(SchemaError::Value {
                    row,
                    field: other.name.clone(),
                    code: "axis",
                    message: format!(
                        "has {} entries on axis `{}`, on which field `{}` has {n}",
                        n_entries(offsets, row),
                        axis.name,
                        field.name
                    ),
                    hint: Some("give it another `axis`, or reject such rows before".into()),
                });
            }
            end += n;
        }
        common.push(end);
    }
    Ok(common.into())
}

/// `bytes` laid out anew for `offsets`, with zeros where a row had no entries before.
fn filled(own: &[i64], bytes: &Buffer, offsets: &[i64], unit_bytes: usize) -> Buffer {
    let at = |end: i64| usize::try_from(end).unwrap_or_default() * unit_bytes;
    let mut filled = Vec::with_capacity(at(offsets.last().copied().unwrap_or_default()));
    for (own, wanted) in own.windows(2).zip(offsets.windows(2)) {
        if let (&[from, to], &[_, end]) = (own, wanted) {
            filled.extend_from_slice(bytes.get(at(from)..at(to)).unwrap_or_default());
            filled.resize(at(end), 0);
        }
    }
    Buffer::from_vec(filled)
}
