//! What there is to do: inputs, partitions, slots, and what earlier runs have done of it.
//!
//! Invariant: a plan is a function of the definition, the inputs and what lies in the dataset's
//! folder. Planning for a report takes no lock and writes nothing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use serde::Serialize;

use super::assembly::SourceStage;
use super::demand::Extent;
use super::frame::{Frame, Task};
use super::listed::{Listed, ListedSource};
use super::planner::Planner;
use super::rejects::RejectsOf;
use super::{
    Live, MemoryBound, PartitionReport, PartitionState, Pipeline, PipelineError, PlanReport,
    REPORT_VERSION, SourceReport, Why,
};
use crate::dataset::facts::{Facts, LearnedOutput};
use crate::dataset::record::{Record, RecordName};
use crate::dataset::retry::Retry;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, plan as division};
use crate::fingerprint::{InputName, slot, types_to_json};
use crate::inputs::{Input, InputRange, Part};
use crate::schema::RowSchema;

/// Held of each input for the whole run beside its path: its place in the list, and its stamp.
const LISTED_BYTES: usize = size_of::<Input>() + 128;
/// Held of each input of a partition at work beside copies of its path: what is read, the names in
/// the shard's fingerprint, its digest, its line of the record.
const AT_WORK_BYTES: usize = 384;
/// Copies of its path.
const AT_WORK_PATHS: usize = 4;

/// What a run is about to do.
#[derive(Debug)]
pub(super) struct Plan {
    /// The row that they are stored as.
    pub(super) schema: RowSchema,
    /// What the sources list, in dataset order.
    pub(super) sources: Vec<ListedSource>,
    /// The partitions, in dataset order.
    pub(super) partitions: Vec<Planned>,
    /// The columns of transforms that were learned, by transform.
    pub(super) learned: BTreeMap<String, LearnedOutput>,
    /// Digests of inputs seen before.
    pub(super) stamps: Arc<Stamps>,
    /// What planning had to hash.
    pub(super) hashed: Hashed,
    /// The memory bound.
    pub(super) bound: MemoryBound,
    /// The retry of rejects that is under way.
    pub(super) retry: Option<Arc<Retry>>,
    /// The columns of every source.
    pub(super) columns: SchemaRef,
    /// Digests of the files that transforms name, by path.
    pub(super) files: BTreeMap<String, String>,
}

/// Inputs that were hashed because no stamp told their digest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hashed {
    /// Files, and ranges of files.
    pub inputs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Hashed {
    pub(super) fn add(&mut self, part: &Part) {
        self.inputs += part.inputs.len() as u64 + part.side.len() as u64;
        self.bytes += part.inputs.iter().map(InputRange::bytes).sum::<u64>();
        self.bytes += part.side.iter().map(|input| input.size).sum::<u64>();
    }
}

/// One partition.
#[derive(Debug)]
pub(super) struct Planned {
    /// Whose inputs it reads.
    pub(super) source: usize,
    /// Names its working state.
    pub(super) slot: String,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    pub(super) state: State,
    /// Source rows that a limit leaves it, as far as that was known.
    pub(super) left: Option<u64>,
    /// Rows that a hook did not answer, for which it is built again.
    pub(super) asked_again: u64,
    pub(super) division: division::Planned,
    pub(super) side: Vec<Input>,
}

/// How far a partition is.
#[derive(Debug)]
pub(super) enum State {
    /// Recorded, and its inputs are the same.
    Done(Done),
    /// Something is written.
    Begun,
    /// Nothing is.
    New,
}

/// A partition whose record is taken over.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) name: RecordName,
    pub(super) rows: u64,
    pub(super) source_rows: u64,
    pub(super) rejects: RejectsOf,
}

impl Plan {
    /// Tells those who look on how much there is to do.
    pub(super) fn tell(&self, live: &Live) {
        let to_build = self.partitions.iter().filter(|planned| !planned.is_done());
        let bytes = to_build.clone().map(|planned| planned.bytes).sum();
        live.begin(to_build.count() as u64, bytes);
    }

    /// What all partitions are built by.
    pub(super) fn frame(&self) -> Frame {
        let columns = self.sources.iter().map(ListedSource::columns).collect();
        Frame {
            schema: self.schema.clone(),
            columns,
            bound: self.bound.clone(),
            retry: self.retry.clone(),
        }
    }

    /// The partition of index `index`, to be built.
    pub(super) fn task(&self, index: usize, planned: &Planned) -> Task {
        Task::new(index, planned, self.part(planned))
    }

    /// What a partition reads.
    pub(super) fn part(&self, planned: &Planned) -> Part {
        let inputs = self.sources.get(planned.source).map(|source| source.inputs.as_slice());
        planned.part(inputs.unwrap_or_default())
    }

    /// Where the inputs of a partition stand in the list of its source.
    pub(super) fn places(planned: &Planned) -> Range<usize> {
        planned.division.places()
    }

    /// Where a path stands in the list of a source.
    pub(super) fn place(&self, source: usize, path: &str) -> Option<usize> {
        let inputs = &self.sources.get(source)?.inputs;
        inputs.binary_search_by(|input| input.path.as_str().cmp(path)).ok()
    }

    /// All inputs, in dataset order.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().flat_map(|source| &source.inputs)
    }
}

impl Pipeline {
    /// What a run would do, found out without writing anything.
    ///
    /// # Errors
    /// As a run that fails before its first row.
    pub fn plan(&self) -> Result<PlanReport, PipelineError> {
        let plan = self.plan_with(self.list_or_go_on(&|| false)?, None)?;
        self.plan_report(&plan, None)
    }

    /// The same, and why: what differs from the generation that is complete. What no stamp tells of
    /// the inputs of partitions that will be built is hashed.
    ///
    /// # Errors
    /// As [`Pipeline::plan`], and records that cannot be read.
    pub fn plan_and_why(&self) -> Result<PlanReport, PipelineError> {
        let plan = self.plan_with(self.list_or_go_on(&|| false)?, None)?;
        let why = self.why(&plan)?;
        self.plan_report(&plan, Some(why))
    }

    fn plan_report(&self, plan: &Plan, why: Option<Why>) -> Result<PlanReport, PipelineError> {
        let partitions: Vec<_> =
            plan.partitions.iter().map(|p| self.partition_report(plan, p)).collect();
        let is_done = plan.partitions.iter().all(|p| matches!(p.state, State::Done(_)));
        let asked_again = partitions.iter().map(|p| p.asked_again).sum();
        let rows: Option<u64> = partitions.iter().map(|p| p.rows).sum();
        let limit = self.definition.data.dataset.limit_rows.unwrap_or(u64::MAX);
        Ok(PlanReport {
            version: REPORT_VERSION,
            dataset: self.home.dir().display().to_string(),
            name: self.home.name().to_owned(),
            cache_key: self.home.cache_key().to_owned(),
            up_to_date: is_done && self.is_complete()?,
            asked_again,
            fingerprint: self.definition.run.fingerprint,
            inputs: plan.inputs().count() as u64,
            input_bytes: plan.inputs().map(|input| input.size).sum(),
            sources: self.source_reports(plan),
            learned: self.learned_reports(&plan.learned),
            hashed: plan.hashed,
            rows: rows.map(|n| n.min(limit)),
            free_bytes: self.storage.free_bytes(self.home.dir())?,
            why,
            caches: self.known(plan)?,
            partitions,
            memory: plan.bound.clone(),
        })
    }

    fn partition_report(&self, plan: &Plan, planned: &Planned) -> PartitionReport {
        let Part { inputs, .. } = plan.part(planned);
        let hint = || self.rows_hint(planned.source, &inputs);
        let (state, rows) = match &planned.state {
            State::Done(done) => (PartitionState::Done, Some(done.rows)),
            State::Begun => (PartitionState::Begun, hint()),
            State::New => (PartitionState::New, hint()),
        };
        PartitionReport {
            slot: planned.slot.clone(),
            source: self.sources.get(planned.source).map_or("", SourceStage::name).to_owned(),
            state,
            first_input: inputs.first().map(|i| i.input.path.clone()).unwrap_or_default(),
            inputs: inputs.len() as u64,
            bytes: planned.bytes,
            rows,
            asked_again: planned.asked_again,
        }
    }

    /// What each source lists.
    pub(super) fn source_reports(&self, plan: &Plan) -> Vec<SourceReport> {
        let report = |(stage, listed): (&SourceStage, &ListedSource)| SourceReport {
            name: stage.name().to_owned(),
            inputs: listed.inputs.len() as u64,
            bytes: listed.inputs.iter().map(|input| input.size).sum(),
        };
        self.sources.iter().zip(&plan.sources).map(report).collect()
    }

    /// Everything that is read, one after another, with its root.
    pub(super) fn ranges<'a>(
        &'a self,
        plan: &'a Plan,
    ) -> impl Iterator<Item = (&'a str, InputRange)> + Clone {
        plan.partitions.iter().flat_map(|planned| {
            let root = self.sources.get(planned.source).map_or("", |stage| &stage.root);
            let Part { inputs, side } = plan.part(planned);
            let side = side.into_iter().map(|input| InputRange { input, range: None });
            inputs.into_iter().chain(side).map(move |range| (root, range))
        })
    }

    /// Refuses a memory that is too small before anything is written, where nothing is there yet; gives
    /// back what is listed.
    pub(super) fn refuse_memory(&self, listed: Listed) -> Result<Listed, PipelineError> {
        if self.storage.stat(self.home.dir())?.is_some() {
            return Ok(listed);
        }
        // At most as much as any division of the inputs takes; only where that does not fit does it
        // have to be known how they are divided.
        let all: usize = listed.inputs().map(at_work_bytes).sum();
        let partitions = self.definition.run.jobs.unwrap_or(1);
        let most = Extent { partitions, part_bytes: all as u64 };
        if self.bound(&listed, most, most).is_ok() {
            return Ok(listed);
        }
        let (at, is_kept, schemas) = (listed.at, listed.is_kept, listed.schemas.clone());
        // The list may be long: there is no room for another.
        let Plan { schema, sources, columns, learned, .. } = self.plan_with(listed, None)?;
        Ok(Listed { at, is_kept, sources, columns, schema, schemas, learned })
    }

    /// Plans. With a `place` the facts that were learned are kept there.
    pub(super) fn plan_with(
        &self,
        listed: Listed,
        place: Option<&Workplace>,
    ) -> Result<Plan, PipelineError> {
        let mut facts = Facts::read(&*self.storage, &self.home)?;
        let divided = self.divide_all(&listed, &mut facts)?;
        if let Some(place) = place {
            facts.write(place)?;
        }
        let by = self.definition.run.fingerprint;
        let stamps = Arc::new(match place {
            Some(place) => Stamps::open(place, by, listed.at)?,
            None => Stamps::read(&*self.storage, &self.home, by, listed.at)?,
        });
        let hook_files = self.hook_files(&stamps)?;
        let mut planner = Planner::new(self, &listed, &stamps, hook_files, &facts)?;
        let mut partitions: Vec<Planned> = Vec::with_capacity(divided.len());
        for (source, division) in divided {
            let Some(of_stage) = listed.sources.get(source) else { break };
            let ranges = division.inputs(&of_stage.inputs);
            let Some(next) = planner.plan(source, division, ranges)? else { break };
            partitions.push(next);
        }
        planner.end(listed, partitions, facts, place)
    }

    /// Divides the inputs of all sources; facts become those of what is listed.
    fn divide_all(
        &self,
        listed: &Listed,
        facts: &mut Facts,
    ) -> Result<Vec<(usize, division::Planned)>, PipelineError> {
        let mut divided = Vec::new();
        let mut cuts = BTreeMap::new();
        for (source, (stage, of_stage)) in self.sources.iter().zip(&listed.sources).enumerate() {
            let (parts, learned) = self.divide(stage, &of_stage.inputs, listed.at, facts)?;
            divided.extend(parts.into_iter().map(|part| (source, part)));
            cuts.insert(stage.name().to_owned(), learned);
        }
        (facts.cuts, facts.schemas) = (cuts, listed.schemas.clone());
        facts.outputs.clone_from(&listed.learned);
        Ok(divided)
    }

    /// What a slot says of types: those of the columns of sources, and those that were learned.
    pub(super) fn types_of(&self, listed: &Listed) -> Result<serde_json::Value, PipelineError> {
        let types = types_to_json(&listed.columns).map_err(|error| PipelineError::Stage {
            stage: self.sources.first().map_or("", SourceStage::name).to_owned(),
            message: error.to_string(),
            hint: Some(error.hint().to_owned()),
        })?;
        if listed.learned.is_empty() {
            return Ok(types);
        }
        let learned = listed.learned.iter().map(|(name, it)| (name.clone(), it.value.clone()));
        let learned: serde_json::Map<_, _> = learned.collect();
        Ok(serde_json::json!({"columns": types, "learned": learned}))
    }

    /// Source rows of inputs, where they are known without reading them.
    pub(super) fn rows_hint(&self, source: usize, inputs: &[InputRange]) -> Option<u64> {
        let source = &self.sources.get(source)?.source;
        let hint = |range: &InputRange| match range.range {
            None => source.rows_hint(&range.input),
            Some(_) => None,
        };
        inputs.iter().map(hint).sum()
    }

    pub(super) fn slot_of<'a>(
        &self,
        stage: &SourceStage,
        inputs: &[InputRange],
        side: impl Iterator<Item = (&'a Input, &'a String)>,
        types: &serde_json::Value,
    ) -> String {
        let inputs = inputs.iter().map(|range| InputName {
            path: &range.input.path,
            size: range.bytes(),
            range: range.range.as_ref(),
            b3: None,
        });
        let side = side.map(|(input, b3)| InputName {
            path: &input.path,
            size: input.size,
            range: None,
            b3: Some(b3),
        });
        let (inputs, side): (Vec<_>, Vec<_>) = (inputs.collect(), side.collect());
        slot(self.home.cache_key(), stage.name(), &inputs, &side, types)
    }
}

/// What an input takes for the whole run.
pub(super) fn listed_bytes(input: &Input) -> u64 {
    (LISTED_BYTES + input.path.len()) as u64
}

/// What a partition at work holds of an input.
pub(super) fn at_work_bytes(input: &Input) -> usize {
    AT_WORK_BYTES + AT_WORK_PATHS * input.path.len()
}

impl Done {
    /// What is kept in mind of the record of a partition of `source`.
    pub(super) fn of(source: &str, name: RecordName, record: &Record) -> Self {
        let source_rows = record.books.get(source).map_or(0, |b| b.entered);
        let rejects = RejectsOf::record(record);
        Self { name, rows: record.rows, source_rows, rejects }
    }
}

impl Planned {
    /// What it reads, of the list of its source.
    pub(super) fn part(&self, inputs: &[Input]) -> Part {
        Part { inputs: self.division.inputs(inputs), side: self.side.clone() }
    }

    /// Whether an earlier run's record is taken over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }
}
