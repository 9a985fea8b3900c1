//! Takes the rows that cannot be stored out of a batch, where the definition says so.
//!
//! Invariant: whether a row is taken out, and the reject that stands for it, depend on the row and the
//! schema alone; how rows were batched never shows.

use arrow_array::RecordBatch;

use super::error::ShardError;
use super::rows;
use crate::batch::{BadRow, Batch, Outcome, ROW_TOO_LARGE};
use crate::schema::{Column, RowSchema, SchemaError};

/// The batch whose rows can all be stored, where that is not `batch` itself, and its columns. A row has
/// at most `row_bytes`; those that are gone are rejects of the stage of index `stage`.
///
/// # Errors
/// The batch does not fit the schema in a way that is not one row's.
pub(crate) fn sift(
    batch: &Batch,
    schema: &RowSchema,
    row_bytes: u64,
    stage: usize,
) -> Result<(Option<Batch>, Vec<Column>), ShardError> {
    let mut bad = Vec::new();
    let columns = find(&batch.rows, 0, (schema, row_bytes), &mut bad)?;
    if let (Some(columns), true) = (columns, bad.is_empty()) {
        return Ok((None, columns));
    }
    let kept = batch.clone().without(stage, bad);
    let kept = kept.map_err(|e| ShardError::Batch(format!("it cannot be divided: {e}")))?;
    let columns = schema.columns(&kept.rows)?;
    Ok((Some(kept), columns))
}

/// Finds the rows of `rows`, the first of which has number `first`, that cannot be stored; gives the
/// columns where every row has a place in them. Halves what is refused until single rows are left:
/// an error names a row that cannot be stored, but not the first one, nor what is wrong with it first.
fn find(
    rows: &RecordBatch,
    first: usize,
    limits: (&RowSchema, u64),
    bad: &mut Vec<(usize, Outcome)>,
) -> Result<Option<Vec<Column>>, ShardError> {
    let ((schema, limit), n_rows) = (limits, rows.num_rows());
    match schema.columns(rows) {
        Ok(columns) => {
            let mut from = 0;
            while let Some((row, bytes)) = rows::too_large(schema, &columns, from, n_rows, limit) {
                let message = format!("{bytes} bytes, and a row may have {limit}");
                let reject = BadRow::new(ROW_TOO_LARGE, message);
                bad.push((first + row, reject.into_outcome()));
                from = row + 1;
            }
            Ok(Some(columns))
        }
        Err(SchemaError::Value { field, code, message, .. }) if n_rows <= 1 => {
            bad.push((first, BadRow::new(code, message).field(field).into_outcome()));
            Ok(None)
        }
        Err(SchemaError::Value { .. }) => {
            let half = n_rows / 2;
            find(&rows.slice(0, half), first, limits, bad)?;
            find(&rows.slice(half, n_rows - half), first + half, limits, bad)?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
