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

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};

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
                let at = run.at(from - run.row);
                let sub_row = if run.sub_row < 0 {
                    -1
                } else {
                    i64::try_from(at.sub_row).unwrap_or(i64::MAX)
                };
                let first = Run { row: 0, input: at.input, source_row: at.source_row, sub_row };
                it.push_run(first, to - from);
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
    /// One number per multiplying stage passed before.
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

    /// Bytes of memory that the batch holds on to. Of buffers shared with other slices all bytes
    /// count: as long as one slice is there, so are they.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let event_bytes = |event: &Event| {
            let text_bytes = match &event.outcome {
                Outcome::Rejected { code, message } => code.len() + message.len(),
                Outcome::Dropped | Outcome::Created(_) => 0,
            };
            size_of::<Event>() + size_of_val(event.path.as_slice()) + text_bytes
        };
        self.rows.get_array_memory_size()
            + size_of_val(self.provenance.runs.as_slice())
            + self.events.iter().map(event_bytes).sum::<usize>()
    }
}
