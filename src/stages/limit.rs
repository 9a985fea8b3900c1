//! Ends a dataset after a number of source rows.
//!
//! Invariant: where batches were cut never shows in what is left: a limit counts source rows alone.

use crate::batch::Batch;

/// How many source rows may still be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLimit {
    left: u64,
}

impl RowLimit {
    /// At most `n` source rows.
    #[must_use]
    pub fn new(n: u64) -> Self {
        Self { left: n }
    }

    /// Source rows that may still be read.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing more may be read.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.left == 0
    }

    /// Counts source rows that were read elsewhere.
    pub fn spend(&mut self, source_rows: u64) {
        self.left = self.left.saturating_sub(source_rows);
    }

    /// The part of a source's batch that is within the limit. A source makes one row, or one reject, of
    /// each source row.
    #[must_use]
    pub fn cut(&mut self, mut batch: Batch) -> Batch {
        let n_events = batch.events.len();
        let (mut n_rows, mut kept_events) = (0, 0);
        while self.left > 0 && n_rows + kept_events < batch.rows.num_rows() + n_events {
            match batch.events.get(kept_events) {
                // It stands before the next row.
                Some(event) if event.before_row <= n_rows as u64 => kept_events += 1,
                _ => n_rows += 1,
            }
            self.left -= 1;
        }
        batch.events.truncate(kept_events);
        if n_rows == batch.rows.num_rows() {
            return batch;
        }
        let events = std::mem::take(&mut batch.events);
        Batch { events, ..batch.slice(0, n_rows) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};

    use super::*;
    use crate::batch::{Event, Outcome, Provenance, Restart};

    /// Source rows 0 to 4, of which 1 and 4 were rejected.
    fn batch() -> Batch {
        let values = Arc::new(Int64Array::from(vec![0, 2, 3]));
        let mut provenance = Provenance::of_input(0, 0, 1);
        provenance.extend(&Provenance::of_input(0, 2, 2));
        let reject = |before_row, source_row| Event {
            before_row,
            input: 0,
            source_row,
            path: Vec::new(),
            stage: 0,
            outcome: Outcome::Dropped,
        };
        Batch {
            rows: RecordBatch::try_from_iter([("v", values as _)]).unwrap(),
            provenance,
            events: vec![reject(1, 1), reject(3, 4)],
            restart: Restart::default(),
        }
    }

    #[test]
    fn a_limit_counts_rows_and_rejects_alike() {
        for (limit, rows, events) in
            [(0, 0, 0), (1, 1, 0), (2, 1, 1), (3, 2, 1), (4, 3, 1), (5, 3, 2), (9, 3, 2)]
        {
            let mut left = RowLimit::new(limit);
            let cut = left.cut(batch());
            assert_eq!((cut.rows.num_rows(), cut.events.len()), (rows, events), "limit {limit}");
            assert_eq!(cut.provenance.n_rows(), rows as u64, "limit {limit}");
            assert_eq!(left.left, limit.saturating_sub(5), "limit {limit}");
        }
    }
}
