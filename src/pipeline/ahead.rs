//! Planning while inputs are listed: what the list so far leaves no doubt about is built meanwhile.
//!
//! Leaves out: whether a run begins so (`beginning`), building (`building`), and lists that are whole at
//! once (`listed`).
//!
//! Invariants:
//! 1. The plan is the one of the whole list. What the list proves to be otherwise than it was told is not
//!    built on: the run begins again with it, as one that was interrupted.
//! 2. Nothing begins to be built that the list leaves no room for. Where they do not fit together, the
//!    list goes on alone, and the bound of the whole plan decides.
//! 3. Where a limit of rows is reached nothing more is listed: what stands behind changes nothing.
//! 4. Inputs are planned once, in order, and stay where they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::beginning::Coming;
use super::frame::Frame;
use super::growing::{Growing, Grown};
use super::listed::{Cuts, Listed};
use super::plan::{Plan, at_work_bytes};
use super::planner::Planner;
use super::side::HookFiles;
use super::{Live, Pipeline, PipelineError};
use crate::dataset::facts::Facts;
use crate::dataset::journal::Journal;
use crate::dataset::plan::Divider;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, partition};
use crate::inputs::Input;
use crate::remote::is_url;
use crate::sources::{Found, is_settled, is_settled_so_far};

/// A run that begins before its inputs are all listed.
pub(super) struct Ahead {
    /// What the first partitions are built by.
    pub(super) frame: Arc<Frame>,
    pub(super) growing: Arc<Growing>,
    /// Ends the listing.
    pub(super) quit: CancellationToken,
    /// Cancelled where the list is another than it was told.
    pub(super) again: CancellationToken,
    pub(super) stamps: Arc<Stamps>,
    pub(super) place: Arc<Workplace>,
    /// Its lists lie in `growing`.
    pub(super) listed: Listed,
    pub(super) hook_files: HookFiles,
    pub(super) coming: Vec<Coming>,
    pub(super) facts: Facts,
    pub(super) journal: Journal,
    pub(super) reckoned: Reckoned,
}

/// What was reckoned with for each partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reckoned {
    /// Most that a reader holds.
    pub(super) reader_bytes: u64,
    /// What it holds of its list.
    pub(super) part_bytes: u64,
}

impl Ahead {
    /// Plans what is listed until all is.
    pub(super) fn plan(self, pipeline: &Pipeline, live: &Live) -> Result<Plan, PipelineError> {
        let quit = self.quit.clone();
        self.plan_all(pipeline, live).map_err(|error| match error {
            // What was given up is no error of the store.
            _ if quit.is_cancelled() => PipelineError::Stopped,
            error => error,
        })
    }

    fn plan_all(mut self, pipeline: &Pipeline, live: &Live) -> Result<Plan, PipelineError> {
        let growing = Arc::clone(&self.growing);
        let (stamps, place) = (Arc::clone(&self.stamps), Arc::clone(&self.place));
        let files = std::mem::take(&mut self.hook_files);
        let mut planner = Planner::new(pipeline, &self.listed, &stamps, files, &self.facts)?;
        let mut cuts = BTreeMap::new();
        let mut is_enough = false;
        for (source, stage) in pipeline.sources.iter().enumerate() {
            let learned;
            (is_enough, learned) = self.plan_source(pipeline, &mut planner, source, live)?;
            cuts.insert(stage.name().to_owned(), learned);
            if is_enough {
                break;
            }
        }
        self.facts.cuts = cuts;
        self.facts.write(&place)?;
        if !is_enough {
            self.journal.end()?;
        }
        let Grown { lists, partitions } = growing.take();
        for (of_source, list) in self.listed.sources.iter_mut().zip(lists) {
            of_source.inputs = list;
        }
        let partitions = partitions.into_iter().map(|(planned, _)| planned).collect();
        let plan = planner.end(self.listed, partitions, self.facts, Some(&place))?;
        plan.stamps.compact(&place, pipeline.ranges(&plan))?;
        pipeline.note(&place, &plan)?;
        Ok(plan)
    }

    /// Plans what is listed of a source, until all is or a limit of rows is reached; says whether it is, and
    /// where files are cut.
    fn plan_source(
        &mut self,
        pipeline: &Pipeline,
        planner: &mut Planner<'_>,
        source: usize,
        live: &Live,
    ) -> Result<(bool, Cuts), PipelineError> {
        let growing = Arc::clone(&self.growing);
        let (Some(stage), Some(coming)) =
            (pipeline.sources.get(source), self.coming.get_mut(source))
        else {
            return Ok((false, Cuts::new()));
        };
        let mut coming = std::mem::replace(coming, Coming::Nothing);
        let partition_bytes = pipeline.definition.data.dataset.partition_bytes;
        let mut dividing =
            Dividing { source, divider: Divider::new(partition_bytes), learned: Cuts::new() };
        let is_kept = is_url(&stage.root);
        let mut n_kept = if is_kept { self.journal.begin(stage.name(), &stage.root)? } else { 0 };
        loop {
            {
                let grown = growing.grown();
                let list = grown.list(source);
                if is_kept {
                    self.journal.add(list.get(n_kept..).unwrap_or_default())?;
                    n_kept = list.len();
                }
                live.list(grown.n_inputs());
            }
            let is_whole = matches!(coming, Coming::Nothing);
            let is_enough = self.plan_known(pipeline, planner, &mut dividing, is_whole)?;
            if is_enough && is_settled_so_far(growing.grown().list(source)) {
                return Ok((true, dividing.learned));
            }
            let Coming::More(pages) = &mut coming else { break };
            let found = match pages.wait() {
                Ok(found) => found,
                // The limit was reached while it was waited for.
                Err(_) if growing.enough.is_cancelled() && !self.quit.is_cancelled() => {
                    if is_settled_so_far(growing.grown().list(source)) {
                        return Ok((true, dividing.learned));
                    }
                    return Err(self.begin_again()?);
                }
                Err(error) => return Err(stage.error(error)),
            };
            let is_over = matches!(found, Found::End);
            if !pages.is_in_order() || (is_over && !is_settled(growing.grown().list(source))) {
                return Err(self.begin_again()?);
            }
            match found {
                Found::More(more) => growing.grow(source, more),
                Found::End => coming = Coming::Nothing,
            }
        }
        if is_kept {
            self.journal.end_source()?;
        }
        Ok((false, dividing.learned))
    }

    /// The list is not what was told of it.
    fn begin_again(&mut self) -> Result<PipelineError, PipelineError> {
        self.journal.give_up()?;
        self.again.cancel();
        Ok(PipelineError::Stopped)
    }

    /// Plans what the list so far leaves no doubt about; says whether a limit of rows is reached.
    fn plan_known(
        &self,
        pipeline: &Pipeline,
        planner: &mut Planner<'_>,
        Dividing { source, divider, learned }: &mut Dividing,
        is_whole: bool,
    ) -> Result<bool, PipelineError> {
        let Some(stage) = pipeline.sources.get(*source) else { return Ok(false) };
        loop {
            if self.quit.is_cancelled() {
                return Err(PipelineError::Stopped);
            }
            if self.growing.enough.is_cancelled() {
                return Ok(true);
            }
            let (division, ranges, reader_bytes) = {
                let grown = self.growing.grown();
                let list = grown.list(*source);
                let (at, facts) = (self.listed.at, &self.facts);
                let cut = |input: &Input| pipeline.cut(stage, input, at, facts, learned);
                let Some(division) = divider.next(list, is_whole, cut)? else { return Ok(false) };
                let inputs = list.get(division.places()).unwrap_or_default();
                let reader_bytes = pipeline.reader_bytes(*source, inputs);
                let ranges = division.inputs(list);
                (division, ranges, reader_bytes)
            };
            let held: usize = ranges.iter().map(|range| at_work_bytes(&range.input)).sum();
            let Some(next) = planner.plan(*source, division, ranges)? else { return Ok(true) };
            let held = held + next.side.iter().map(at_work_bytes).sum::<usize>();
            let fits = held as u64 <= self.reckoned.part_bytes
                && reader_bytes <= self.reckoned.reader_bytes;
            if next.is_done() {
                // A run that was cut off may have left what led to the record.
                partition::clear(&self.place, &next.slot)?;
            }
            self.growing.publish(next, fits);
        }
    }
}

/// A source that is being divided.
struct Dividing {
    source: usize,
    divider: Divider,
    learned: Cuts,
}
