//! The books of a partition while it is written, cut at source rows.
//!
//! Leaves out: what is written where.
//!
//! Invariants:
//! 1. A source row is settled when a later one, or the end of the partition, is seen. Until then
//!    what became of it is kept apart, so that a cut counts whole source rows only.
//! 2. After a resume the source row at the cut comes again as a whole, and is counted as a whole.

use super::error::ShardError;
use crate::batch::{Event, Outcome, Position, Run};
use crate::books::Books;

/// The books so far, and where the stream stands.
#[derive(Debug)]
pub(super) struct Ledger {
    settled: Books,
    /// Of the current source row alone.
    pending: Books,
    current: Option<Current>,
}

/// The last source row that was seen.
#[derive(Debug, Clone, Copy)]
struct Current {
    input: u32,
    source_row: u64,
    /// Its next row has at least this number.
    sub_row: u64,
    /// Events that it has had.
    seen: u64,
    /// Events that had been seen before a resume, and are still to come again.
    again: u64,
    /// It was current when the partition was left, and has not come again.
    awaited: bool,
}

impl Ledger {
    /// Empty books of these stages, at the start of a partition.
    pub(super) fn start(stages: &[String]) -> Self {
        let none = Books::new(stages.iter().cloned());
        Self { settled: none.clone(), pending: none, current: None }
    }

    /// The books that were cut at `next`, with `seen` events of its source row before it.
    pub(super) fn resume(books: Books, next: Position, seen: u64, stages: &[String]) -> Self {
        let mut this = Self::start(stages);
        this.settled = books;
        this.pending.enter(1);
        let Position { input, source_row, sub_row } = next;
        this.current =
            Some(Current { input, source_row, sub_row, seen: 0, again: seen, awaited: true });
        this
    }

    /// The books of a partition that has ended.
    pub(super) fn ended(books: Books, stages: &[String]) -> Self {
        Self { settled: books, ..Self::start(stages) }
    }

    /// Books of all settled source rows.
    pub(super) fn books(&self) -> &Books {
        &self.settled
    }

    /// No row that is still to come stands before this position.
    pub(super) fn next(&self) -> Position {
        self.current.map_or(Position::default(), |c| Position {
            input: c.input,
            source_row: c.source_row,
            sub_row: c.sub_row,
        })
    }

    /// Events of the current source row so far.
    pub(super) fn seen(&self) -> u64 {
        self.current.map_or(0, |current| current.seen)
    }

    /// Something of this source row comes: those before it are settled.
    ///
    /// # Errors
    /// It stands before one that has come already.
    pub(super) fn arrive(&mut self, input: u32, source_row: u64) -> Result<(), ShardError> {
        let last = self.current.as_mut().map(|current| {
            let last = (current.input, current.source_row);
            current.awaited &= last != (input, source_row);
            last
        });
        match last {
            Some(last) if last == (input, source_row) => return Ok(()),
            Some((last_input, last_row)) if (last_input, last_row) > (input, source_row) => {
                return Err(ShardError::Batch(format!(
                    "input {input}, row {source_row} comes after input {last_input}, row {last_row}"
                )));
            }
            _ => {}
        }
        self.check_awaited()?;
        self.settled.add(&self.pending);
        self.pending.clear();
        self.pending.enter(1);
        self.current =
            Some(Current { input, source_row, sub_row: 0, seen: 0, again: 0, awaited: false });
        Ok(())
    }

    /// Takes `n_rows` rows in, the first of which `run` describes.
    ///
    /// # Errors
    /// They stand before what has come already.
    pub(super) fn rows(&mut self, run: Run, n_rows: u64) -> Result<(), ShardError> {
        self.arrive(run.input, run.source_row)?;
        let at = run.at(0);
        let Some(current) = &mut self.current else { return Ok(()) };
        if at.sub_row < current.sub_row {
            return Err(ShardError::Batch(format!(
                "input {}, row {}: part {} comes twice",
                run.input, run.source_row, at.sub_row
            )));
        }
        if run.sub_row >= 0 {
            current.sub_row = at.sub_row + n_rows;
        } else {
            current.sub_row = 1;
            if let Some(more) = n_rows.checked_sub(1).filter(|more| *more > 0) {
                self.arrive(run.input, run.source_row + 1)?;
                // All but the last of them are settled, and nothing happened to them.
                self.settled.enter(more - 1);
                if let Some(current) = &mut self.current {
                    current.source_row += more - 1;
                    current.sub_row = 1;
                }
            }
        }
        Ok(())
    }

    /// Takes an event in. Whether it is new, and was not seen before a resume.
    ///
    /// # Errors
    /// It stands before what has come already, or takes away more rows than there are.
    pub(super) fn event(&mut self, event: &Event) -> Result<bool, ShardError> {
        self.arrive(event.input, event.source_row)?;
        let takes = !matches!(event.outcome, Outcome::Created(_));
        let below = || self.pending.stages().skip(event.stage).map(|(_, books)| books);
        if below().next().is_none() || takes && below().any(|books| books.out == 0) {
            return Err(ShardError::Batch(format!(
                "input {}, row {}: the events do not fit what came of it",
                event.input, event.source_row
            )));
        }
        self.pending.outcome(event.stage, &event.outcome);
        let Some(current) = &mut self.current else { return Ok(true) };
        current.seen += 1;
        let is_new = current.again == 0;
        current.again = current.again.saturating_sub(1);
        Ok(is_new)
    }

    /// The partition ends: everything is settled.
    ///
    /// # Errors
    /// What was seen before a resume has not come again.
    pub(super) fn end(&mut self) -> Result<(), ShardError> {
        self.check_awaited()?;
        self.settled.add(&self.pending);
        self.pending.clear();
        Ok(())
    }

    fn check_awaited(&self) -> Result<(), ShardError> {
        match self.current {
            Some(current) if current.awaited || current.again > 0 => {
                Err(ShardError::Batch(format!(
                    "input {}, row {} has not come again as it was before the restart",
                    current.input, current.source_row
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages() -> Vec<String> {
        vec!["read".into(), "cut".into()]
    }

    fn event(source_row: u64, stage: usize, outcome: Outcome) -> Event {
        Event { before_row: 0, input: 0, source_row, path: Vec::new(), stage, outcome }
    }

    fn run(source_row: u64, sub_row: i64) -> Run {
        Run { row: 0, input: 0, source_row, sub_row }
    }

    fn counts(ledger: &Ledger) -> Vec<(u64, u64, u64, u64)> {
        let stages = ledger.books().stages();
        stages.map(|(_, b)| (b.entered, b.created, b.out, b.dropped)).collect()
    }

    #[test]
    fn books_count_whole_source_rows_only() {
        let mut ledger = Ledger::start(&stages());
        ledger.rows(run(0, -1), 5).unwrap();
        assert_eq!(counts(&ledger), [(4, 0, 4, 0), (4, 0, 4, 0)]);
        assert_eq!(ledger.next(), Position { input: 0, source_row: 4, sub_row: 1 });
        assert!(ledger.event(&event(5, 1, Outcome::Created(2))).unwrap());
        assert_eq!(counts(&ledger), [(5, 0, 5, 0), (5, 0, 5, 0)]);
        ledger.rows(run(5, 0), 2).unwrap();
        assert!(ledger.event(&event(5, 1, Outcome::Dropped)).unwrap());
        assert_eq!((ledger.next().sub_row, ledger.seen()), (2, 2));
        ledger.end().unwrap();
        assert_eq!(counts(&ledger), [(6, 0, 6, 0), (6, 2, 7, 1)]);
        ledger.books().balance().unwrap();
    }

    #[test]
    fn source_row_at_the_cut_is_counted_as_a_whole_when_it_comes_again() {
        let next = Position { input: 0, source_row: 5, sub_row: 1 };
        let mut books = Books::new(stages());
        books.enter(5);
        let mut ledger = Ledger::resume(books, next, 1, &stages());
        assert!(!ledger.event(&event(5, 1, Outcome::Created(1))).unwrap(), "seen before");
        ledger.rows(run(5, 1), 1).unwrap();
        assert!(ledger.event(&event(6, 0, Outcome::Dropped)).unwrap());
        ledger.end().unwrap();
        assert_eq!(counts(&ledger), [(7, 0, 6, 1), (6, 1, 7, 0)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut ledger = Ledger::start(&stages());
        ledger.rows(run(3, -1), 1).unwrap();
        assert!(ledger.rows(run(3, -1), 1).is_err(), "twice");
        assert!(ledger.rows(run(2, -1), 1).is_err(), "backwards");
        assert!(ledger.event(&event(3, 2, Outcome::Dropped)).is_err(), "no such stage");
        ledger.event(&event(3, 1, Outcome::Dropped)).unwrap();
        assert!(ledger.event(&event(3, 1, Outcome::Dropped)).is_err(), "dropped twice");
        let next = Position { input: 0, source_row: 3, sub_row: 0 };
        let mut ledger = Ledger::resume(Books::new(stages()), next, 0, &stages());
        let error = ledger.end().unwrap_err().to_string();
        assert!(error.contains("row 3 has not come again"), "{error}");
    }
}
