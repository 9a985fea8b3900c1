//! The rows that a hook made of each row it was sent, where it may make any number of them.
//!
//! An answer has a column `parent`: the place of the row, among those that were sent, that each row of
//! the answer was made of. It does not go down, so the rows made of one row stand together.
//!
//! Leaves out: asking, and checking the columns that were declared.
//!
//! Invariants:
//! 1. Each row of the batch leaves its rows at its place, behind an event that says how many more they
//!    are, or one that says that it is gone.
//! 2. A piece that is handed on has at most about `batch_bytes`, unless it is a single row; beside the
//!    batch and its answer, no more than that is copied at a time.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};

use super::HookError;
use super::answer::{self, Declared};
use super::transform::{loose, strict};
use crate::batch::{Batch, Event, Outcome, Provenance, Run, row_bytes};
use crate::transforms::{Emit, Stage, TransformError};

/// The column of an answer that says of which row each of its rows was made.
pub(super) const PARENT: &str = "parent";
/// What to do about a wrong one.
const HINT: &str = "for each row of the answer, in order, it is the place from 0 on, in the batch that was \
                    sent, of the row that it was made of";
/// Rows of an answer that are looked at together.
const WINDOW: usize = 4096;
/// Counted for a row beside its values.
const ROW_BYTES: u64 = 32;

/// The answer without the column `parent`, and for each of the `n_rows` rows that were sent where the
/// rows end that were made of it.
pub(super) fn parted(
    answer: &RecordBatch,
    n_rows: usize,
) -> Result<(RecordBatch, Vec<usize>), TransformError> {
    let misfit = |message: String| TransformError::from(HookError::misfit(message, HINT));
    let Ok(at) = answer.schema().index_of(PARENT) else {
        return Err(misfit(format!("its answer lacks the column `{PARENT}`")));
    };
    let column = answer.column(at);
    if !column.data_type().is_integer() {
        let kind = answer::type_text(column.data_type());
        return Err(misfit(format!("its column `{PARENT}` is {kind}, and has to be of integers")));
    }
    if column.null_count() > 0 {
        return Err(misfit(format!("its column `{PARENT}` has nulls")));
    }
    let mut ends = Vec::with_capacity(n_rows);
    let mut last = 0;
    for start in (0..column.len()).step_by(WINDOW) {
        let window = column.slice(start, WINDOW.min(column.len() - start));
        // What does not fit is null.
        let window = arrow_cast::cast(&window, &DataType::Int64)?;
        for (n, row) in (start..).zip(window.as_primitive::<Int64Type>()) {
            let known = row.and_then(|row| usize::try_from(row).ok()).filter(|row| *row < n_rows);
            let Some(row) = known else {
                let row = row.map_or("a row beyond all".to_owned(), |row| format!("row {row}"));
                return Err(misfit(format!(
                    "its column `{PARENT}` names {row}, and it was sent {n_rows} rows"
                )));
            };
            if row < last {
                return Err(misfit(format!(
                    "its column `{PARENT}` goes down, from {last} to {row}"
                )));
            }
            last = row;
            ends.resize(row.max(ends.len()), n);
        }
    }
    ends.resize(n_rows, column.len());
    let others: Vec<usize> = (0..answer.num_columns()).filter(|other| *other != at).collect();
    Ok((answer.project(&others)?, ends))
}

/// What was made of a batch.
pub(super) struct Spread<'a> {
    pub(super) stage: Stage,
    pub(super) batch: &'a Batch,
    /// The columns that the hook answered with.
    pub(super) columns: Vec<ArrayRef>,
    /// For each row of the batch, where the rows end that were made of it.
    pub(super) ends: Vec<usize>,
    pub(super) declared: Declared<'a>,
    pub(super) output: SchemaRef,
}

/// Rows that are about to leave: some of those of the answer.
#[derive(Default)]
struct Piece {
    start: usize,
    /// The row of the batch that each was made of.
    parents: Vec<u32>,
    bytes: u64,
    provenance: Provenance,
    events: Vec<Event>,
}

impl Spread<'_> {
    /// Hands everything on.
    pub(super) fn emit(self, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let most_bytes = emit.batch_bytes() as u64;
        let parent_bytes = row_bytes(&self.batch.rows);
        let mut events = self.batch.events.iter().peekable();
        let mut piece = Piece::default();
        let mut sizes = Sizes { columns: &self.columns, start: 0, of_window: Vec::new() };
        let mut child = 0;
        let positions = self.batch.provenance.pieces();
        let positions = positions
            .flat_map(|(run, n_rows)| (0..n_rows).map(move |n| (run.at(n), run.sub_row < 0)));
        for ((parent, (at, is_single)), end) in (0..).zip(positions).zip(&self.ends) {
            let before_row = piece.parents.len() as u64;
            while let Some(event) = events.next_if(|event| event.before_row <= u64::from(parent)) {
                piece.events.push(Event { before_row, ..event.clone() });
            }
            let n_rows = (end - child) as u64;
            let outcome = match n_rows {
                0 => Some(Outcome::Dropped),
                1 => None,
                n => Some(Outcome::Created(n - 1)),
            };
            let (input, source_row) = (at.input, at.source_row);
            let path = if is_single { Vec::new() } else { vec![at.sub_row] };
            let stage = self.stage.index;
            let event = |outcome| Event { before_row, input, source_row, path, stage, outcome };
            piece.events.extend(outcome.map(event));
            let mut number = match n_rows {
                1 if is_single => None,
                n => Some(emit.number(at, n)?),
            };
            while child < *end {
                let own = parent_bytes.get(parent as usize).copied().unwrap_or_default();
                let bytes = own.saturating_add(sizes.of(child)?).saturating_add(ROW_BYTES);
                if !piece.parents.is_empty() && piece.bytes.saturating_add(bytes) > most_bytes {
                    self.hand_on(std::mem::take(&mut piece), emit)?;
                    piece.start = child;
                }
                let sub_row = number.map_or(-1, u64::cast_signed);
                piece.provenance.push_run(Run { row: 0, input, source_row, sub_row }, 1);
                piece.parents.push(parent);
                piece.bytes = piece.bytes.saturating_add(bytes);
                number = number.map(|number| number + 1);
                child += 1;
            }
        }
        let before_row = piece.parents.len() as u64;
        piece.events.extend(events.map(|event| Event { before_row, ..event.clone() }));
        self.hand_on(piece, emit)
    }

    fn hand_on(&self, piece: Piece, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let Piece { start, parents, provenance, events, .. } = piece;
        let n_rows = parents.len();
        let own: Vec<ArrayRef> = self.columns.iter().map(|it| it.slice(start, n_rows)).collect();
        let bad = answer::judge(&own, self.declared);
        let first = parents.first().map_or(0, |parent| *parent as usize);
        let columns: Vec<ArrayRef> =
            if parents.windows(2).all(|it| matches!(it, [a, b] if a + 1 == *b)) {
                self.batch.rows.slice(first, n_rows).columns().to_vec()
            } else {
                let parents = UInt32Array::from(parents);
                let columns = self.batch.rows.columns().iter();
                columns
                    .map(|it| arrow_select::take::take(it, &parents, None))
                    .collect::<Result<_, _>>()?
            };
        let rows = columns.into_iter().chain(own).collect();
        let restart = self.batch.restart.clone();
        let loose = loose(&self.output, rows)?;
        let made = Batch { rows: loose, provenance, events, restart };
        let mut gone = Vec::with_capacity(bad.len());
        for (row, bad) in bad {
            gone.push((row, self.stage.settle(&made, row, bad)?));
        }
        let made = made.without(self.stage.index, gone)?;
        let rows = strict(&self.output, &made.rows)?;
        Ok(emit.emit(Batch { rows, ..made })?)
    }
}

/// Bytes of the rows of an answer, some at a time.
struct Sizes<'a> {
    columns: &'a [ArrayRef],
    start: usize,
    of_window: Vec<u64>,
}

impl Sizes<'_> {
    /// Bytes of row `row`; asked in order.
    fn of(&mut self, row: usize) -> Result<u64, TransformError> {
        if row >= self.start + self.of_window.len() {
            let n_rows = self.columns.first().map_or(0, Array::len);
            let len = WINDOW.min(n_rows.saturating_sub(row));
            let fields = (0_u32..).zip(self.columns);
            let window = fields.map(|(n, it)| (n.to_string(), it.slice(row, len), true));
            let window = RecordBatch::try_from_iter_with_nullable(window)?;
            (self.start, self.of_window) = (row, row_bytes(&window));
        }
        Ok(self.of_window.get(row - self.start).copied().unwrap_or_default())
    }
}
