//! Which rows a run asks hooks about again, and which partitions it builds again for them.
//!
//! Invariants:
//! 1. A retry is begun only where it was asked for and none is under way: one that was cut off is gone
//!    on with by any run.
//! 2. Only partitions with rows that a hook did not answer are set aside.

use std::sync::Arc;

use super::plan::{Done, Planned, State};
use super::rejects::RejectsOf;
use super::{Pipeline, PipelineError};
use crate::dataset::adopt::Adopter;
use crate::dataset::facts::Facts;
use crate::dataset::retry::Retry;
use crate::dataset::{DatasetError, Workplace, partition};
use crate::shard::unanswered_so_far;

/// What becomes of rows that a hook did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    /// They are rejects.
    No,
    /// A retry begins.
    Begins,
    /// An earlier one is gone on with.
    GoesOn,
}

/// Finds them while a run is planned.
pub(super) struct Again<'a> {
    pipeline: &'a Pipeline,
    adopter: Arc<Adopter>,
    asking: Asking,
}

impl<'a> Again<'a> {
    pub(super) fn new(pipeline: &'a Pipeline, adopter: &Arc<Adopter>, facts: &Facts) -> Self {
        let asking = match (facts.retrying, pipeline.retries_rejects) {
            (true, _) => Asking::GoesOn,
            (false, true) => Asking::Begins,
            (false, false) => Asking::No,
        };
        Self { pipeline, adopter: Arc::clone(adopter), asking }
    }

    /// How many rows of a partition are asked about again; `reused` is its record, where it has one that
    /// is not set aside.
    pub(super) fn rows(&self, slot: &str, reused: Option<&Done>) -> Result<u64, PipelineError> {
        let pipeline = self.pipeline;
        match (self.asking, reused) {
            (Asking::Begins, Some(done)) => done.rejects.unanswered(pipeline),
            (Asking::Begins, None) => {
                let dir = pipeline.home.dir();
                let n = unanswered_so_far(&*pipeline.storage, dir, slot);
                Ok(n.map_err(DatasetError::from)?)
            }
            (Asking::GoesOn, None) => match self.adopter.set_aside(slot)? {
                Some(record) => RejectsOf::record(&record).unanswered(pipeline),
                None => Ok(0),
            },
            (Asking::No, _) | (Asking::GoesOn, Some(_)) => Ok(0),
        }
    }

    /// How far a partition is of which so many rows are asked about again.
    pub(super) fn state(
        &self,
        slot: &str,
        reused: Option<Done>,
        asked_again: u64,
    ) -> Result<State, PipelineError> {
        if self.asking == Asking::Begins && asked_again > 0 {
            return Ok(State::New);
        }
        if let Some(done) = reused {
            return Ok(State::Done(done));
        }
        let begun = self.pipeline.storage.stat(&self.pipeline.home.begun(slot))?;
        Ok(if begun.is_some() { State::Begun } else { State::New })
    }

    /// The retry that the run is part of, after which nothing stands in the way of asking again.
    pub(super) fn retry(
        &self,
        place: &Workplace,
        facts: Facts,
        partitions: &[Planned],
    ) -> Result<Option<Arc<Retry>>, PipelineError> {
        let again: Vec<_> = partitions.iter().filter(|it| it.asked_again > 0).collect();
        if self.asking != Asking::Begins || again.is_empty() {
            return Ok(Retry::under_way(facts).map(Arc::new));
        }
        for planned in &again {
            // What an earlier run left of it holds the rejects.
            partition::clear(place, &planned.slot)?;
        }
        let records = again.iter().flat_map(|it| self.adopter.records_of(&it.slot)).cloned();
        Ok(Some(Arc::new(Retry::begin(place, facts, records)?)))
    }
}
