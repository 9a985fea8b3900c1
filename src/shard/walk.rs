//! Goes through a batch in stream order: rows, and what happened between them.
//!
//! Leaves out: what is done with either.
//!
//! Invariant: an event that stands before a row is given before it.

use super::error::ShardError;
use crate::batch::{Batch, Event, Position, Run};

/// A place in a batch.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    events: &'a [Event],
    pieces: Vec<(Run, u64)>,
    /// The piece that `row` lies in.
    piece: usize,
    row: u64,
    n_rows: u64,
}

impl<'a> Walk<'a> {
    /// Stands at the beginning of a batch.
    ///
    /// # Errors
    /// The batch contradicts itself.
    pub(super) fn new(batch: &'a Batch, n_inputs: usize) -> Result<Self, ShardError> {
        let n_rows = batch.rows.num_rows() as u64;
        if batch.provenance.n_rows() != n_rows {
            return Err(ShardError::Batch(format!(
                "it has {n_rows} rows, but tells where {} come from",
                batch.provenance.n_rows()
            )));
        }
        let ends = |event: &Event| event.before_row > n_rows;
        if !batch.events.is_sorted_by_key(|e| e.before_row) || batch.events.last().is_some_and(ends)
        {
            return Err(ShardError::Batch("its events are not in stream order".to_owned()));
        }
        let of_rows = batch.provenance.runs().iter().map(|run| run.input);
        let mut inputs = of_rows.chain(batch.events.iter().map(|event| event.input));
        if let Some(input) = inputs.find(|input| index(u64::from(*input)) >= n_inputs) {
            return Err(ShardError::Batch(format!(
                "it has rows of input {input}, and the partition has {n_inputs} inputs"
            )));
        }
        let pieces = batch.provenance.pieces().collect();
        let this = Self { events: &batch.events, pieces, piece: 0, row: 0, n_rows };
        let restart = (batch.restart.input, batch.restart.source_row);
        match this.first() {
            Some(first) if first < restart => Err(ShardError::Batch(format!(
                "it begins with input {}, row {}, before the place to read it from again",
                first.0, first.1
            ))),
            _ => Ok(this),
        }
    }

    /// Leaves out the rows before `next`, and the events of source rows before that of `next`. Gives
    /// the source row of `next` if rows of it are among what is left out.
    pub(super) fn skip_to(&mut self, next: Position) -> Option<(u32, u64)> {
        let source = (next.input, next.source_row);
        let before = self.events.iter().take_while(|e| (e.input, e.source_row) < source).count();
        self.events = self.events.get(before..).unwrap_or_default();
        let mut last = None;
        while let Some((run, len)) = self.pieces.get(self.piece) {
            // Positions in a run go up one by one, so those before `next` come first.
            let left_out = first_with(*len, |offset| run.at(offset) >= next);
            if left_out > 0 {
                let at = run.at(left_out - 1);
                last = Some((at.input, at.source_row));
            }
            self.row += left_out;
            if left_out < *len {
                break;
            }
            self.piece += 1;
        }
        last.filter(|last| *last == source)
    }

    /// The source row of what comes next.
    pub(super) fn first(&self) -> Option<(u32, u64)> {
        let row = self.position().map(|at| (at.input, at.source_row));
        let event = self.events.first().map(|event| (event.input, event.source_row));
        row.into_iter().chain(event).min()
    }

    /// Rows of the batch.
    pub(super) fn n_rows(&self) -> usize {
        index(self.n_rows)
    }

    /// The next row.
    pub(super) fn row(&self) -> usize {
        index(self.row)
    }

    /// Position of the next row, `None` at the end.
    pub(super) fn position(&self) -> Option<Position> {
        self.pieces.get(self.piece).map(|(run, _)| run.at(self.row - run.row))
    }

    /// The next event that stands before the next row.
    pub(super) fn next_event(&mut self) -> Option<&'a Event> {
        let (event, later) = self.events.split_first()?;
        if event.before_row > self.row {
            return None;
        }
        self.events = later;
        Some(event)
    }

    /// The rows up to `end` that belong to one run and stand before the next event: the first of
    /// them, and how many.
    pub(super) fn next_run(&mut self, end: usize) -> Option<(Run, u64)> {
        let (run, len) = *self.pieces.get(self.piece)?;
        let run_end = run.row + len;
        let stop = self.events.first().map_or(run_end, |event| event.before_row.min(run_end));
        let stop = stop.min(end as u64);
        let n_rows = stop.checked_sub(self.row).filter(|n| *n > 0)?;
        let at = run.at(self.row - run.row);
        let sub_row = if run.sub_row < 0 { -1 } else { at.sub_row.cast_signed() };
        let first = Run { row: self.row, input: at.input, source_row: at.source_row, sub_row };
        self.row = stop;
        if stop == run_end {
            self.piece += 1;
        }
        Some((first, n_rows))
    }
}

/// The smallest number below `n` for which `has` holds, where it holds for all above it too; else `n`.
fn first_with(n: u64, has: impl Fn(u64) -> bool) -> u64 {
    let (mut from, mut to) = (0, n);
    while from < to {
        let middle = from.midpoint(to);
        if has(middle) { to = middle } else { from = middle + 1 }
    }
    from
}

/// A number of something that is in memory, so it is a `usize`.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
