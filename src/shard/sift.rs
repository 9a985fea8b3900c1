//! Makes columns of a batch: takes the rows that cannot be stored out of it, where the definition says
//! so, and divides it where it would become too much text.
//!
//! Invariants:
//! 1. Whether a row is taken out, and the reject that stands for it, depend on the row and the schema
//!    alone; how rows were batched never shows.
//! 2. What nested values become as JSON is in memory for as many rows as [`text_bytes`] hold, or for
//!    one.

use std::borrow::Cow;

use arrow_array::RecordBatch;

use super::error::ShardError;
use super::rows;
use crate::batch::{BadRow, Batch, OnError, Outcome, ROW_TOO_LARGE};
use crate::schema::{Column, RowSchema, SchemaError};

/// Most bytes of JSON that rows become at once: of one that becomes more, it is enough to know that it
/// is too large.
pub(super) fn text_bytes(row_bytes: u64) -> u64 {
    row_bytes.max(1 << 20)
}

/// How rows become columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sieve<'a> {
    pub(crate) schema: &'a RowSchema,
    /// Most bytes of a row.
    pub(crate) row_bytes: u64,
    /// What is done with a row that cannot be stored.
    pub(crate) on_error: OnError,
    /// Index of the stage whose reject it is.
    pub(crate) stage: usize,
}

/// A batch all of whose rows have columns.
pub(crate) struct Sifted<'a> {
    pub(crate) batch: Cow<'a, Batch>,
    pub(crate) columns: Vec<Column>,
}

impl Sieve<'_> {
    /// Gives `batch`, without its bad rows where these are quarantined, to `act`: at once, or where its
    /// rows become too much text, in pieces.
    ///
    /// # Errors
    /// What `act` says; a row that cannot be stored, where that is an error; a batch that does not fit
    /// the schema in a way that is not one row's.
    pub(crate) fn each(
        self,
        batch: &Batch,
        act: &mut dyn FnMut(Sifted<'_>) -> Result<(), ShardError>,
    ) -> Result<(), ShardError> {
        self.each_from(0, batch, act)
    }

    /// As [`each`](Self::each), of the part of a batch that begins with its row `first`.
    fn each_from(
        self,
        first: usize,
        batch: &Batch,
        act: &mut dyn FnMut(Sifted<'_>) -> Result<(), ShardError>,
    ) -> Result<(), ShardError> {
        let sifted = self.sift(batch).map_err(|error| match error {
            ShardError::Schema(SchemaError::Value { row, field, code, message, hint }) => {
                let row = first + row;
                ShardError::Schema(SchemaError::Value { row, field, code, message, hint })
            }
            error => error,
        })?;
        if let Some(sifted) = sifted {
            return act(sifted);
        }
        let n_rows = batch.rows.num_rows();
        let half = n_rows / 2;
        self.each_from(first, &batch.slice(0, half), act)?;
        self.each_from(first + half, &batch.slice(half, n_rows - half), act)
    }

    /// The batch's columns, unless its rows become too much text.
    fn sift(self, batch: &Batch) -> Result<Option<Sifted<'_>>, ShardError> {
        if self.on_error == OnError::Fail {
            let columns = self.columns(&batch.rows)?;
            return Ok(columns.map(|columns| Sifted { batch: Cow::Borrowed(batch), columns }));
        }
        let mut bad = Vec::new();
        let columns = match self.find(&batch.rows, 0, &mut bad)? {
            Found::TooMuch => return Ok(None),
            Found::Bad => None,
            Found::Columns(columns) => Some(columns),
        };
        if let (Some(columns), true) = (columns, bad.is_empty()) {
            return Ok(Some(Sifted { batch: Cow::Borrowed(batch), columns }));
        }
        let kept = batch.clone().without(self.stage, bad);
        let kept = kept.map_err(|e| ShardError::Batch(format!("it cannot be divided: {e}")))?;
        let columns = self.columns(&kept.rows)?;
        Ok(columns.map(|columns| Sifted { batch: Cow::Owned(kept), columns }))
    }

    fn columns(self, rows: &RecordBatch) -> Result<Option<Vec<Column>>, SchemaError> {
        self.schema.columns_within(rows, text_bytes(self.row_bytes))
    }
}

/// What was found in some rows.
enum Found {
    /// Every row has a place in these columns.
    Columns(Vec<Column>),
    /// Some cannot be stored.
    Bad,
    /// They become too much text to tell.
    TooMuch,
}

impl Sieve<'_> {
    /// Finds the rows of `rows`, the first of which has number `first`, that cannot be stored. Halves
    /// what is refused until single rows are left: an error names a row that cannot be stored, but not
    /// the first one, nor what is wrong with it first.
    fn find(
        self,
        rows: &RecordBatch,
        first: usize,
        bad: &mut Vec<(usize, Outcome)>,
    ) -> Result<Found, ShardError> {
        let (limit, n_rows) = (self.row_bytes, rows.num_rows());
        match self.columns(rows) {
            Ok(None) => Ok(Found::TooMuch),
            Ok(Some(columns)) => {
                let mut from = 0;
                let too_large = |from| rows::too_large(self.schema, &columns, from, n_rows, limit);
                while let Some((row, bytes)) = too_large(from) {
                    let message = format!("{bytes} bytes, and a row may have {limit}");
                    let reject = BadRow::new(ROW_TOO_LARGE, message);
                    bad.push((first + row, reject.into_outcome()));
                    from = row + 1;
                }
                Ok(Found::Columns(columns))
            }
            Err(SchemaError::Value { field, code, message, .. }) if n_rows <= 1 => {
                bad.push((first, BadRow::new(code, message).field(field).into_outcome()));
                Ok(Found::Bad)
            }
            Err(SchemaError::Value { .. }) => {
                let half = n_rows / 2;
                for (from, n) in [(0, half), (half, n_rows - half)] {
                    if matches!(self.find(&rows.slice(from, n), first + from, bad)?, Found::TooMuch)
                    {
                        return Ok(Found::TooMuch);
                    }
                }
                Ok(Found::Bad)
            }
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow_array::builder::{ListBuilder, StringBuilder};

    use super::*;
    use crate::inputs::RowPlace;

    /// A list of one text per row, which becomes JSON six times as long.
    fn batch(sizes: &[usize]) -> Batch {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for size in sizes {
            lists.values().append_value("\u{1}".repeat(*size));
            lists.append(true);
        }
        let rows = RecordBatch::try_from_iter([("x", Arc::new(lists.finish()) as _)]).unwrap();
        Batch::of_rows(rows, 0)
    }

    /// The rows of each piece, and what is wrong with those that were taken out.
    fn pieces(sizes: &[usize], on_error: OnError) -> Result<(Vec<usize>, Vec<String>), ShardError> {
        let batch = batch(sizes);
        let schema = RowSchema::infer(&batch.rows.schema(), &BTreeMap::new(), None).unwrap();
        let (mut rows, mut rejects, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let sieve = Sieve { schema: &schema, row_bytes: 1 << 20, on_error, stage: 0 };
        sieve.each(&batch, &mut |Sifted { batch, columns }| {
            let n_rows = batch.rows.num_rows();
            let [column] = columns.as_slice() else { panic!("{columns:?}") };
            if let Some((row, bytes)) = rows::too_large(&schema, &columns, 0, n_rows, 1 << 20) {
                let limit = sieve.row_bytes;
                let place = RowPlace::new("", None, row as u64);
                return Err(ShardError::RowTooLarge { place, sub_row: 0, bytes, limit });
            }
            assert!(column.bytes().len() <= 1 << 20);
            rows.push(n_rows);
            whole.extend((0..n_rows).map(|row| column.value(row).to_vec()));
            rejects.extend(batch.events.iter().map(|event| match &event.outcome {
                Outcome::Rejected { message, .. } => format!("{}: {message}", event.source_row),
                other => format!("{other:?}"),
            }));
            Ok(())
        })?;
        let kept = sizes.iter().filter(|size| 6 * **size + 8 + 4 <= 1 << 20);
        let want: Vec<_> = kept.map(|n| format!("[\"{}\"]", "\\u0001".repeat(*n))).collect();
        assert!(whole.iter().map(Vec::as_slice).eq(want.iter().map(String::as_bytes)));
        Ok((rows, rejects))
    }

    #[test]
    fn rows_that_become_too_much_text_come_in_pieces() {
        for (name, sizes, want) in [
            ("none", &[][..], vec![0]),
            ("little", &[7; 100], vec![100]),
            ("much", &[100_000; 5], vec![1; 5]),
            ("uneven", &[10, 10, 10, 150_000, 150_000, 10], vec![3, 1, 2]),
        ] {
            for on_error in [OnError::Fail, OnError::Quarantine] {
                assert_eq!(pieces(sizes, on_error).unwrap(), (want.clone(), vec![]), "{name}");
            }
        }
    }

    #[test]
    fn a_row_that_becomes_too_much_text_is_too_large_by_all_its_bytes() {
        let sizes = [3, 500_000, 4];
        // Eight bytes say where it ends, and four characters are around the text.
        let want = vec!["1: 3000012 bytes, and a row may have 1048576".to_owned()];
        let (rows, rejects) = pieces(&sizes, OnError::Quarantine).unwrap();
        assert_eq!((rows.iter().sum::<usize>(), rejects), (2, want));
        let error = pieces(&sizes, OnError::Fail).unwrap_err();
        assert!(matches!(error, ShardError::RowTooLarge { bytes: 3_000_012, .. }), "{error:?}");
    }
}
