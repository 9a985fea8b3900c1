//! A batch that a reader of records is making: all of it but the values.
//!
//! Leaves out: the values of its rows, which each format builds in its own way.

use serde_json::json;

use super::{BadRowAt, OnError, SourceError};
use crate::batch::{Event, Provenance, Restart, Run};

/// A reject with a message of usual length.
const REJECT_BYTES: usize = 512;

/// Where the rows and rejects of a batch come from, as they are read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) provenance: Provenance,
    pub(super) events: Vec<Event>,
    /// Where the batch begins; `None` while there is nothing in it.
    pub(super) restart: Option<Restart>,
}

/// A record: its input's index in the partition, its source row and the offset of its first byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) input: usize,
    pub(super) row: u64,
    pub(super) byte: u64,
}

impl Draft {
    /// Rows and rejects so far.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.provenance.n_rows()).unwrap_or(usize::MAX) + self.events.len()
    }

    /// About the most bytes that the rejects take.
    pub(super) fn reject_bytes(&self) -> usize {
        self.events.len() * REJECT_BYTES
    }

    /// Takes a record as the next row.
    pub(super) fn keep(&mut self, place: Place) {
        let at = self.begin(place);
        let run = Run { row: 0, input: at.input, source_row: at.source_row, sub_row: -1 };
        self.provenance.push_run(run, 1);
    }

    /// Takes a record that is none, or an input that cannot be read from there on.
    ///
    /// # Errors
    /// `error`, where it ends the run.
    pub(super) fn reject(
        &mut self,
        place: Place,
        error: SourceError,
        on_error: OnError,
    ) -> Result<(), SourceError> {
        let at = self.begin(place);
        self.events.push(on_error.settle(error, at)?);
        Ok(())
    }

    fn begin(&mut self, place: Place) -> BadRowAt {
        let input = u32::try_from(place.input).unwrap_or(u32::MAX);
        self.restart.get_or_insert_with(|| Restart {
            input,
            source_row: place.row,
            cursor: json!({"byte": place.byte}),
            ..Restart::default()
        });
        BadRowAt { before_row: self.provenance.n_rows(), input, source_row: place.row }
    }
}
