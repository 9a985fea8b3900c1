//! Plans partitions one after another: what names each, and what earlier runs have done of it.
//!
//! Leaves out: dividing the inputs (`listed`), and whether all of them are known already.
//!
//! Invariant: what is planned of a partition depends on those before it only where rows are limited.

use std::sync::Arc;

use serde_json::Value;

use super::assembly::SourceStage;
use super::demand::Extent;
use super::listed::Listed;
use super::plan::{Done, Hashed, Plan, Planned, State, at_work_bytes};
use super::retry::Again;
use super::side::{HookFiles, SideDigests};
use super::{Pipeline, PipelineError};
use crate::dataset::adopt::Adopter;
use crate::dataset::facts::Facts;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, plan as division};
use crate::inputs::{Input, InputRange, Part};
use crate::stages::RowLimit;

/// What planning has come to so far.
pub(super) struct Planner<'a> {
    pipeline: &'a Pipeline,
    stamps: &'a Arc<Stamps>,
    types: Value,
    adopter: Arc<Adopter>,
    again: Again<'a>,
    /// By source.
    digests: Vec<SideDigests<'a>>,
    hook_files: Vec<(Input, String)>,
    hashed: Hashed,
    limit: Option<RowLimit>,
    /// What is left to a partition is known for sure only while all those before it are done.
    is_known: bool,
    to_build: Extent,
    all: Extent,
}

impl<'a> Planner<'a> {
    /// Nothing is planned yet of what is `listed`, of which the columns alone are looked at.
    pub(super) fn new(
        pipeline: &'a Pipeline,
        listed: &Listed,
        stamps: &'a Arc<Stamps>,
        hook_files: HookFiles,
        facts: &Facts,
    ) -> Result<Self, PipelineError> {
        let adopter = Adopter::new(
            Arc::clone(&pipeline.storage),
            pipeline.home.clone(),
            Arc::clone(stamps),
            facts.set_aside.clone(),
        )?;
        let adopter = if pipeline.is_shared { adopter.believing() } else { adopter };
        let adopter = Arc::new(adopter);
        let sources = pipeline.sources.iter();
        Ok(Self {
            pipeline,
            stamps,
            types: pipeline.types_of(listed)?,
            again: Again::new(pipeline, &adopter, facts),
            adopter,
            digests: sources.map(|stage| SideDigests::new(stage, stamps)).collect(),
            hook_files: hook_files.files,
            hashed: hook_files.hashed,
            limit: pipeline.definition.data.dataset.limit_rows.map(RowLimit::new),
            is_known: true,
            to_build: Extent::default(),
            all: Extent::default(),
        })
    }

    /// Plans the next partition, which reads `ranges` of the inputs of a source; `None` where a limit is
    /// reached before it.
    pub(super) fn plan(
        &mut self,
        source: usize,
        division: division::Planned,
        ranges: Vec<InputRange>,
    ) -> Result<Option<Planned>, PipelineError> {
        let pipeline = self.pipeline;
        let (Some(stage), Some(digests)) =
            (pipeline.sources.get(source), self.digests.get_mut(source))
        else {
            return Ok(None);
        };
        if self.limit.as_ref().is_some_and(RowLimit::is_reached) {
            return Ok(None);
        }
        let own: Vec<Input> = ranges.iter().map(|range| range.input.clone()).collect();
        let side = stage.source.side_inputs(&own).map_err(|e| stage.error(e))?;
        let b3 = side.iter().map(|input| digests.of(input, &mut self.hashed));
        let b3 = b3.collect::<Result<Vec<_>, _>>()?;
        let of_hooks = self.hook_files.iter().map(|(input, b3)| (input, b3));
        let of_slot = side.iter().zip(&b3).chain(of_hooks);
        let slot = pipeline.slot_of(stage, &ranges, of_slot, &self.types);
        let bytes = ranges.iter().map(InputRange::bytes).sum();
        let part = Part { inputs: ranges, side };
        let left = self.limit.as_ref().map(RowLimit::left);
        let reused = if self.is_known { self.reused(stage, &slot, &part, left)? } else { None };
        let asked_again = self.again.rows(&slot, reused.as_ref())?;
        match (&mut self.limit, &reused) {
            (Some(limit), Some(done)) => limit.spend(done.source_rows),
            (Some(limit), None) => {
                self.is_known = false;
                limit.spend(pipeline.rows_hint(source, &part.inputs).unwrap_or(0));
            }
            (None, _) => {}
        }
        let progress = self.again.state(&slot, reused, asked_again)?;
        let part_bytes = held_bytes(&part) as u64;
        self.all.add(part_bytes);
        if !matches!(progress, State::Done(_)) {
            self.to_build.add(part_bytes);
        }
        let side = part.side;
        Ok(Some(Planned {
            source,
            slot,
            bytes,
            state: progress,
            left,
            asked_again,
            division,
            side,
        }))
    }

    /// The record of an earlier run that is taken over, if there is one.
    fn reused(
        &mut self,
        stage: &SourceStage,
        slot: &str,
        part: &Part,
        limit: Option<u64>,
    ) -> Result<Option<Done>, PipelineError> {
        let hash = |part: &Part| {
            self.hashed.add(part);
            stage.source.digests(part).map_err(|e| stage.error(e))
        };
        let found = self.adopter.adopt(slot, &stage.root, part, limit, hash)?;
        Ok(found.map(|(name, record)| Done::of(stage.name(), name, &record)))
    }

    /// The plan, when all of what is `listed` was planned as `partitions`.
    pub(super) fn end(
        self,
        listed: Listed,
        partitions: Vec<Planned>,
        facts: Facts,
        place: Option<&Workplace>,
    ) -> Result<Plan, PipelineError> {
        let bound = self.pipeline.bound(&listed, self.to_build, self.all)?;
        let retry = match place {
            Some(place) => self.again.retry(place, facts, &partitions)?,
            None => None,
        };
        let Listed { schema, sources, columns, learned, .. } = listed;
        let files = self.hook_files.into_iter().map(|(input, b3)| (input.path, b3)).collect();
        Ok(Plan {
            schema,
            sources,
            partitions,
            learned,
            stamps: Arc::clone(self.stamps),
            hashed: self.hashed,
            bound,
            retry,
            columns,
            files,
        })
    }
}

/// What a partition at work holds of its list of inputs.
pub(super) fn held_bytes(part: &Part) -> usize {
    let inputs = part.inputs.iter().map(|range| &range.input).chain(&part.side);
    inputs.map(at_work_bytes).sum()
}
