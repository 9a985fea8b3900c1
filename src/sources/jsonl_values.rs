//! Turns lines of JSON into rows.
//!
//! Leaves out: which columns there are (`jsonl_types`), how they are built (`jsonl_columns`) and read
//! (`jsonl_read`), and where lines come from.
//!
//! Invariants:
//! 1. A line is one JSON object as RFC 8259 has it, in UTF-8, no key of an object twice, nested at
//!    most 127 deep; anything else is a bad row.
//! 2. A row is taken as a whole or leaves nothing behind.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use serde::de::DeserializeSeed;

use super::BadRow;
use super::jsonl_checked::text_of;
use super::jsonl_columns::StructColumn;
use super::jsonl_judge::Judge;
use super::jsonl_read::ObjectSeed;
use super::jsonl_types::Fields;

/// The rows of a batch that is being made.
#[derive(Debug)]
pub(super) struct Rows {
    root: StructColumn,
    judge: Judge,
    /// Of each row that was begun, whether it is one.
    is_kept: Vec<bool>,
    n_bad: usize,
    n_bytes: usize,
}

impl Rows {
    /// No rows, and room for `n_rows`.
    pub(super) fn new(
        fields: &Fields,
        n_rows: usize,
        most_bytes: u64,
        ignores_unknown: bool,
    ) -> Self {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let judge = Judge::new(most_bytes, ignores_unknown);
        let root = StructColumn::new(fields, n_rows);
        Self { root, judge, is_kept: Vec::with_capacity(n_rows), n_bad: 0, n_bytes: 0 }
    }

    /// Bytes of the values of all rows.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Appends what `line` says.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), BadRow> {
        self.judge.begin();
        let text = text_of(line)?;
        let mut parser = serde_json::Deserializer::from_str(text);
        let seed = ObjectSeed { column: &mut self.root, judge: &mut self.judge };
        let parsed = seed.deserialize(&mut parser).and_then(|()| parser.end());
        self.is_kept.push(parsed.is_ok());
        if let Err(e) = parsed {
            self.root.settle(self.is_kept.len());
            self.n_bad += 1;
            return Err(self.judge.bad_row(&e));
        }
        self.n_bytes += self.judge.n_bytes;
        Ok(())
    }

    /// The rows as a batch with this schema.
    pub(super) fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns = self.root.fields.iter_mut().zip(schema.fields());
        let columns =
            columns.map(|(of, field)| of.column.finish(field)).collect::<Result<_, _>>()?;
        let rows = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if self.n_bad == 0 {
            return Ok(rows);
        }
        filter_record_batch(&rows, &BooleanArray::from(self.is_kept))
    }
}
