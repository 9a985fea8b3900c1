//! What flows on the edges: rows, where each came from, and what became of the rows that are gone.
//!
//! Leaves out: how rows are laid out on disk (`schema`, `shard`).
//!
//! Invariants:
//! 1. Every source row that a batch settles leaves a trace in it, at its place: as rows, as
//!    events, or both. So the books can be cut at any source row by looking at batches alone.
//! 2. Positions never decrease within a partition; transforms may drop or multiply, not reorder.
//! 3. A source row's pieces may lie in several consecutive batches; the row is settled when a later
//!    source row, or the end of the partition, is seen.

mod rejects;
#[cfg(feature = "run")]
mod row_bytes;

use std::collections::BTreeMap;

use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::ArrowError;
use serde::{Deserialize, Serialize};

#[cfg(feature = "run")]
pub(crate) use rejects::Behind;
pub use rejects::{
    BadRow, HOOK_DIED, HOOK_MEMORY, HOOK_RAISED, HOOK_TIMEOUT, INPUT_DAMAGED, NOT_UTF8, OnError,
    ROW_TOO_LARGE, VALUE_MISFIT, is_unanswered,
};
#[cfg(feature = "run")]
pub(crate) use row_bytes::row_bytes;

/// Where a row stands: input (index in its partition's list), source row within the input, and its
/// number among the rows that the source row has become (0 where it is one row).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position {
    /// Index of the input in its partition.
    pub input: u32,
    /// Row within the input (or within the range of it that the partition reads), from 0.
    pub source_row: u64,
    /// Number among the rows that leave the last multiplying stage for this source row.
    pub sub_row: u64,
}

/// Rows in a row, as one line of `provenance.bin`: from `row` on, `source_row` counts up by one
/// where `sub_row` is -1; otherwise `source_row` stays and `sub_row` counts up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First row of the run, in the batch or shard that the list of runs belongs to.
    pub row: u64,
    /// Index of the input in its partition.
    pub input: u32,
    /// Source row of the first row of the run.
    pub source_row: u64,
    /// -1 where each source row is one row, else the number of the run's first row.
    pub sub_row: i64,
}

impl Run {
    /// Position of the row `offset` rows into the run.
    #[must_use]
    pub fn at(&self, offset: u64) -> Position {
        match u64::try_from(self.sub_row) {
            Ok(sub_row) => Position {
                input: self.input,
                source_row: self.source_row,
                sub_row: sub_row + offset,
            },
            Err(_) => {
                Position { input: self.input, source_row: self.source_row + offset, sub_row: 0 }
            }
        }
    }

    /// The run without its first `offset` rows; `row` stays.
    fn after(&self, offset: u64) -> Self {
        let at = self.at(offset);
        let sub_row = if self.sub_row < 0 { -1 } else { at.sub_row.cast_signed() };
        Self { row: self.row, input: at.input, source_row: at.source_row, sub_row }
    }

    /// Whether a row that stands `offset` rows after this run's first, described by `next`, only
    /// continues it.
    #[must_use]
    pub fn continues(&self, offset: u64, next: &Run) -> bool {
        (self.sub_row < 0) == (next.sub_row < 0) && self.at(offset) == next.at(0)
    }
}

/// The positions of a batch's rows, as maximal runs sorted by `row`; the first starts at row 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Provenance {
    runs: Vec<Run>,
    n_rows: u64,
}

impl Provenance {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `n_rows` rows that are source rows `source_row..` of one input.
    #[must_use]
    pub fn of_input(input: u32, source_row: u64, n_rows: u64) -> Self {
        let mut it = Self::new();
        it.push_run(Run { row: 0, input, source_row, sub_row: -1 }, n_rows);
        it
    }

    /// Appends `n_rows` rows described by `run` (whose `row` is ignored), merging where they only
    /// continue what is there.
    pub fn push_run(&mut self, run: Run, n_rows: u64) {
        if n_rows == 0 {
            return;
        }
        match self.runs.last() {
            Some(last) if last.continues(self.n_rows - last.row, &run) => {}
            _ => self.runs.push(Run { row: self.n_rows, ..run }),
        }
        self.n_rows += n_rows;
    }

    /// The runs, sorted by their first row.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Each run with its number of rows.
    pub fn pieces(&self) -> impl Iterator<Item = (Run, u64)> + '_ {
        self.runs.iter().enumerate().map(|(i, run)| {
            let end = self.runs.get(i + 1).map_or(self.n_rows, |next| next.row);
            (*run, end - run.row)
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// Position of row `row`, `None` past the end.
    #[must_use]
    pub fn position(&self, row: u64) -> Option<Position> {
        if row >= self.n_rows {
            return None;
        }
        let i = self.runs.partition_point(|run| run.row <= row).checked_sub(1)?;
        self.runs.get(i).map(|run| run.at(row - run.row))
    }

    /// The rows `start..start + n_rows`, counted from 0 again.
    #[must_use]
    pub fn slice(&self, start: u64, n_rows: u64) -> Self {
        let mut it = Self::new();
        let end = start + n_rows;
        for (run, len) in self.pieces() {
            let (from, to) = (run.row.max(start), (run.row + len).min(end));
            if from < to {
                it.push_run(run.after(from - run.row), to - from);
            }
        }
        it
    }

    /// Appends all rows of `other`.
    pub fn extend(&mut self, other: &Provenance) {
        for (run, len) in other.pieces() {
            self.push_run(run, len);
        }
    }
}

/// What became of a row that a stage did not simply pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The stage left it out, by name.
    Dropped,
    /// The row failed and is kept as a reject.
    Rejected {
        /// Stable code of ours.
        code: String,
        /// Our message: no text of the system's, no path.
        message: String,
    },
    /// The stage made this many rows more of it.
    Created(u64),
}

/// A row that was dropped, rejected or multiplied, at its place in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event stands before this row of the batch (its number of rows at the end).
    pub before_row: u64,
    /// Index of the input in its partition.
    pub input: u32,
    /// Source row it happened to.
    pub source_row: u64,
    /// One number per multiplying stage passed before. What leaves such a stage is numbered through
    /// within its source row, so a row is known by the last number, and that alone may stand here.
    pub path: Vec<u64>,
    /// Index of the stage it happened in: 0 is the source, then the transforms in order.
    pub stage: usize,
    /// What happened.
    pub outcome: Outcome,
}

/// Where reading begins again to come to a certain row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restart {
    /// Index of the input in its partition.
    pub input: u32,
    /// First source row that is read again.
    pub source_row: u64,
    /// The source's own note for finding that row (a byte offset, a row group); null where none is
    /// needed.
    pub cursor: serde_json::Value,
    /// For each stage whose batches are cut by a rule of its own, by name: where the first of its
    /// batches that is computed again begins. Empty where there are no such stages.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, HookStart>,
}

/// A place in the stream that reaches a stage: the items (rows and events) that stand before it are
/// those of source rows before this one, and the first `item` of the source row itself.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(from = "(u32, u64, u64)", into = "(u32, u64, u64)")]
pub struct HookStart {
    /// Index of the input in its partition.
    pub input: u32,
    /// Source row in it.
    pub source_row: u64,
    /// Items of the source row that stand before.
    pub item: u64,
}

impl From<(u32, u64, u64)> for HookStart {
    fn from((input, source_row, item): (u32, u64, u64)) -> Self {
        Self { input, source_row, item }
    }
}

impl From<HookStart> for (u32, u64, u64) {
    fn from(mark: HookStart) -> Self {
        (mark.input, mark.source_row, mark.item)
    }
}

/// Rows of one partition, in order.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The rows.
    pub rows: RecordBatch,
    /// Where each row came from.
    pub provenance: Provenance,
    /// Rows that are gone or were multiplied, in stream order.
    pub events: Vec<Event>,
    /// Where reading begins again to produce this batch.
    pub restart: Restart,
}

impl Batch {
    /// Rows that are the source rows `source_row..` of the partition's first input, with nothing
    /// dropped, rejected or multiplied: all that is needed to write rows without a pipeline. Reading
    /// begins again with the first of them.
    #[must_use]
    pub fn of_rows(rows: RecordBatch, source_row: u64) -> Self {
        let provenance = Provenance::of_input(0, source_row, rows.num_rows() as u64);
        let restart = Restart { source_row, ..Restart::default() };
        Self { rows, provenance, events: Vec::new(), restart }
    }

    /// The rows `start..start + n_rows` with the events that stand before them; the slice that ends
    /// the batch also holds the events at its end. Buffers are shared, not copied.
    ///
    /// # Panics
    /// When the range goes past the last row.
    #[must_use]
    pub fn slice(&self, start: usize, n_rows: usize) -> Self {
        let (first, end) = (start as u64, (start + n_rows) as u64);
        let is_last = start + n_rows == self.rows.num_rows();
        let stands_here = |at: u64| first <= at && (at < end || is_last);
        let events = self.events.iter().filter(|e| stands_here(e.before_row));
        Self {
            rows: self.rows.slice(start, n_rows),
            provenance: self.provenance.slice(first, n_rows as u64),
            events: events
                .map(|e| Event { before_row: e.before_row - first, ..e.clone() })
                .collect(),
            restart: self.restart.clone(),
        }
    }

    /// The batch without the rows that `gone` lists in ascending order, each of which leaves an event
    /// of stage `stage` in its place. If there are any, those that stay are copied: until the batch
    /// is dropped, they are in memory twice.
    ///
    /// # Errors
    /// Arrow cannot copy the rows that stay.
    ///
    /// # Panics
    /// When the list is not ascending.
    pub fn without(
        self,
        stage: usize,
        gone: impl IntoIterator<Item = (usize, Outcome)>,
    ) -> Result<Self, ArrowError> {
        let mut gone = gone.into_iter().peekable();
        if gone.peek().is_none() {
            return Ok(self);
        }
        let mut is_kept = vec![true; self.rows.num_rows()];
        let mut provenance = Provenance::new();
        let mut events = Vec::with_capacity(self.events.len());
        let mut before = self.events.into_iter().peekable();
        let mut n_gone = 0;
        for (run, n_rows) in self.provenance.pieces() {
            let mut next = 0;
            let end = run.row + n_rows;
            while let Some((index, outcome)) = gone.next_if(|(row, _)| (*row as u64) < end) {
                let row = index as u64;
                assert!(row >= run.row + next, "rows that are gone are listed in order");
                while let Some(event) = before.next_if(|event| event.before_row <= row) {
                    events.push(Event { before_row: event.before_row - n_gone, ..event });
                }
                let at = run.at(row - run.row);
                events.push(Event {
                    before_row: row - n_gone,
                    input: at.input,
                    source_row: at.source_row,
                    path: if run.sub_row < 0 { Vec::new() } else { vec![at.sub_row] },
                    stage,
                    outcome,
                });
                if let Some(kept) = is_kept.get_mut(index) {
                    *kept = false;
                }
                n_gone += 1;
                provenance.push_run(run.after(next), row - run.row - next);
                next = row - run.row + 1;
            }
            provenance.push_run(run.after(next), n_rows - next);
        }
        events.extend(before.map(|event| Event { before_row: event.before_row - n_gone, ..event }));
        let rows =
            arrow_select::filter::filter_record_batch(&self.rows, &BooleanArray::from(is_kept))?;
        Ok(Self { rows, provenance, events, restart: self.restart })
    }

    /// Bytes of memory that the batch holds on to ([`memory_bytes`], and those of events).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let event_bytes = |event: &Event| {
            let text_bytes = match &event.outcome {
                Outcome::Rejected { code, message } => code.len() + message.len(),
                Outcome::Dropped | Outcome::Created(_) => 0,
            };
            size_of::<Event>() + size_of_val(event.path.as_slice()) + text_bytes
        };
        memory_bytes(&self.rows)
            + size_of_val(self.provenance.runs.as_slice())
            + self.events.iter().map(event_bytes).sum::<usize>()
    }
}

/// Bytes of memory that rows hold on to. Of what is shared with other slices all bytes count: as long
/// as one slice is there, so are they. What columns share counts once.
#[must_use]
pub fn memory_bytes(rows: &RecordBatch) -> usize {
    let mut seen = BTreeMap::new();
    let mut structs = 0;
    for column in rows.columns() {
        structs += size_of::<ArrayData>();
        add_buffers(&column.to_data(), &mut seen);
    }
    structs + seen.values().sum::<usize>()
}

/// Adds what `array` keeps in memory, by where that begins.
fn add_buffers(array: &ArrayData, seen: &mut BTreeMap<usize, usize>) {
    let nulls = array.nulls().map(|nulls| nulls.inner().inner());
    for buffer in array.buffers().iter().chain(nulls) {
        seen.insert(buffer.data_ptr().as_ptr().addr(), buffer.capacity());
    }
    for child in array.child_data() {
        add_buffers(child, seen);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;

    use super::*;

    fn event(before_row: u64, source_row: u64, stage: usize) -> Event {
        let outcome = Outcome::Dropped;
        Event { before_row, input: 0, source_row, path: Vec::new(), stage, outcome }
    }

    /// Source row 0, three parts of source row 1, source rows 4 and 5; rows 2, 3 and 6 are dropped.
    fn batch() -> Batch {
        let mut provenance = Provenance::of_input(0, 0, 1);
        provenance.push_run(Run { row: 0, input: 0, source_row: 1, sub_row: 0 }, 3);
        provenance.push_run(Run { row: 0, input: 0, source_row: 4, sub_row: -1 }, 2);
        let values: Arc<dyn Array> = Arc::new(Int64Array::from(vec![0, 10, 11, 12, 4, 5]));
        Batch {
            rows: RecordBatch::try_from_iter([("v", values)]).unwrap(),
            provenance,
            events: vec![event(4, 2, 0), event(4, 3, 1), event(6, 6, 0)],
            restart: Restart::default(),
        }
    }

    #[test]
    fn rows_that_are_gone_leave_events_in_their_places() {
        let places = |batch: &Batch| -> Vec<(u64, u64, Vec<u64>, usize)> {
            let events = batch.events.iter();
            events.map(|e| (e.before_row, e.source_row, e.path.clone(), e.stage)).collect()
        };
        let positions = |batch: &Batch| -> Vec<(u64, u64)> {
            let all = (0..batch.provenance.n_rows()).map(|row| batch.provenance.position(row));
            all.map(|at| at.map(|at| (at.source_row, at.sub_row)).unwrap()).collect()
        };
        let gone = |rows: &[usize]| rows.iter().map(|row| (*row, Outcome::Dropped)).collect();
        let table: [(&[usize], _, _); 3] = [
            (
                &[0, 2],
                vec![(1, 0), (1, 2), (4, 0), (5, 0)],
                vec![
                    (0, 0, vec![], 2),
                    (1, 1, vec![1], 2),
                    (2, 2, vec![], 0),
                    (2, 3, vec![], 1),
                    (4, 6, vec![], 0),
                ],
            ),
            (
                &[3, 4],
                vec![(0, 0), (1, 0), (1, 1), (5, 0)],
                vec![
                    (3, 1, vec![2], 2),
                    (3, 2, vec![], 0),
                    (3, 3, vec![], 1),
                    (3, 4, vec![], 2),
                    (4, 6, vec![], 0),
                ],
            ),
            (
                &[0, 1, 2, 3, 4, 5],
                vec![],
                vec![
                    (0, 0, vec![], 2),
                    (0, 1, vec![0], 2),
                    (0, 1, vec![1], 2),
                    (0, 1, vec![2], 2),
                    (0, 2, vec![], 0),
                    (0, 3, vec![], 1),
                    (0, 4, vec![], 2),
                    (0, 5, vec![], 2),
                    (0, 6, vec![], 0),
                ],
            ),
        ];
        for (rows, want_positions, want_events) in table {
            let gone: Vec<_> = gone(rows);
            let left = batch().without(2, gone).unwrap();
            assert_eq!(positions(&left), want_positions, "{rows:?}");
            assert_eq!(places(&left), want_events, "{rows:?}");
            assert_eq!(left.rows.num_rows(), want_positions.len(), "{rows:?}");
        }
    }

    #[test]
    fn without_does_the_same_to_slices_as_to_the_whole() {
        let whole = batch().without(2, [(1, Outcome::Dropped), (4, Outcome::Dropped)]).unwrap();
        for cut in 0..=6 {
            let mut events = Vec::new();
            let mut provenance = Provenance::new();
            for (start, n_rows) in [(0, cut), (cut, 6 - cut)] {
                let gone = [1, 4].into_iter().filter(|row| (start..start + n_rows).contains(row));
                let gone = gone.map(|row| (row - start, Outcome::Dropped));
                // The slice that ends a batch holds the events at its end; an empty one has none.
                if n_rows == 0 {
                    continue;
                }
                let part = batch().slice(start, n_rows).without(2, gone).unwrap();
                let rows_before = provenance.n_rows();
                provenance.extend(&part.provenance);
                events.extend(
                    part.events
                        .into_iter()
                        .map(|e| Event { before_row: e.before_row + rows_before, ..e }),
                );
            }
            assert_eq!((provenance, events), (whole.provenance.clone(), whole.events.clone()));
        }
    }
}
