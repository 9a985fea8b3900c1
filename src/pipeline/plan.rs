//! What there is to do: inputs, partitions, slots, and what earlier runs have done of it.
//!
//! Invariant: a plan is a function of the definition, the inputs and what lies in the dataset's
//! folder. Planning for a report takes no lock and writes nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use arrow_schema::SchemaRef;

use super::memory::Demand;
use super::{
    MemoryBound, PartitionReport, PartitionState, Pipeline, PipelineError, PlanReport,
    REPORT_VERSION,
};
use crate::dataset::adopt::Adopter;
use crate::dataset::facts::{Fact, Facts, LearnedFrom};
use crate::dataset::merge::MERGE_BYTES;
use crate::dataset::record::RecordName;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, plan as division};
use crate::fingerprint::{InputName, slot, types_to_json};
use crate::inputs::{Input, InputRange, Part};
use crate::schema::RowSchema;
use crate::shard::memory_bytes;
use crate::sources::{BatchLimits, SourceError};
use crate::stages::RowLimit;

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
    /// The source's columns.
    pub(super) columns: SchemaRef,
    /// The row that they are stored as.
    pub(super) schema: RowSchema,
    /// All inputs, sorted by path.
    pub(super) inputs: Vec<Input>,
    /// The partitions, in dataset order.
    pub(super) partitions: Vec<Planned>,
    /// Digests of inputs seen before.
    pub(super) stamps: Arc<Stamps>,
    /// The memory bound.
    pub(super) bound: MemoryBound,
}

/// The inputs, and what their rows are like.
#[derive(Debug)]
pub(super) struct Listed {
    /// When listing began.
    at: SystemTime,
    /// All inputs, sorted by path.
    inputs: Vec<Input>,
    /// The source's columns.
    columns: SchemaRef,
    /// The row that they are stored as.
    schema: RowSchema,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) index: usize,
    /// Names its working state.
    pub(super) slot: String,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    pub(super) state: State,
    division: division::Planned,
    side: Vec<Input>,
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
#[derive(Debug)]
pub(super) struct Done {
    pub(super) name: RecordName,
    pub(super) rows: u64,
    pub(super) source_rows: u64,
}

impl Plan {
    /// The slot of the partition of index `index`.
    pub(super) fn slot(&self, index: usize) -> &str {
        self.partitions.get(index).map_or("", |planned| &planned.slot)
    }

    /// Everything that is read, one after another.
    pub(super) fn ranges(&self) -> impl Iterator<Item = InputRange> + Clone {
        self.partitions.iter().flat_map(|planned| {
            let Part { inputs, side } = self.part(planned);
            inputs
                .into_iter()
                .chain(side.into_iter().map(|input| InputRange { input, range: None }))
        })
    }

    /// What a partition reads.
    pub(super) fn part(&self, planned: &Planned) -> Part {
        Part { inputs: planned.division.inputs(&self.inputs), side: planned.side.clone() }
    }
}

impl Pipeline {
    /// What a run would do, found out without writing anything.
    ///
    /// # Errors
    /// As a run that fails before its first row.
    pub fn plan(&self) -> Result<PlanReport, PipelineError> {
        let plan = self.plan_with(self.list()?, None)?;
        let partitions: Vec<_> =
            plan.partitions.iter().map(|p| self.partition_report(&plan, p)).collect();
        let is_done = plan.partitions.iter().all(|p| matches!(p.state, State::Done(_)));
        let rows: Option<u64> = partitions.iter().map(|p| p.rows).sum();
        let limit = self.definition.data.dataset.limit_rows.unwrap_or(u64::MAX);
        Ok(PlanReport {
            version: REPORT_VERSION,
            dataset: self.home.dir().display().to_string(),
            name: self.home.name().to_owned(),
            cache_key: self.home.cache_key().to_owned(),
            up_to_date: is_done && self.is_complete()?,
            fingerprint: self.definition.run.fingerprint,
            inputs: plan.inputs.len() as u64,
            input_bytes: plan.inputs.iter().map(|input| input.size).sum(),
            rows: rows.map(|n| n.min(limit)),
            free_bytes: self.storage.free_bytes(self.home.dir())?,
            partitions,
            memory: plan.bound,
        })
    }

    fn partition_report(&self, plan: &Plan, planned: &Planned) -> PartitionReport {
        let inputs = planned.division.inputs(&plan.inputs);
        let (state, rows) = match &planned.state {
            State::Done(done) => (PartitionState::Done, Some(done.rows)),
            State::Begun => (PartitionState::Begun, self.rows_hint(&inputs)),
            State::New => (PartitionState::New, self.rows_hint(&inputs)),
        };
        PartitionReport {
            slot: planned.slot.clone(),
            state,
            first_input: inputs.first().map(|i| i.input.path.clone()).unwrap_or_default(),
            inputs: inputs.len() as u64,
            bytes: planned.bytes,
            rows,
        }
    }

    /// Lists the inputs and types the whole graph: what can be wrong before anything is written.
    pub(super) fn list(&self) -> Result<Listed, PipelineError> {
        let failed = |source| PipelineError::Source { stage: self.source_name(), source };
        let at = SystemTime::now();
        let inputs = self.source.list().map_err(failed)?;
        if inputs.is_empty() && !self.definition.allow_empty.source {
            return Err(PipelineError::NoInput {
                source_name: self.source_name(),
                root: self.definition.root.clone(),
            });
        }
        let columns = self.source.schema(inputs.first()).map_err(failed)?;
        let schema = self.row_schema(&columns)?;
        Ok(Listed { at, inputs, columns, schema })
    }

    /// Plans. With a `place` the facts that were learned are kept there.
    pub(super) fn plan_with(
        &self,
        listed: Listed,
        place: Option<&Workplace>,
    ) -> Result<Plan, PipelineError> {
        let Listed { at, inputs, columns, schema } = listed;
        let failed = |source| PipelineError::Source { stage: self.source_name(), source };
        let mut facts = Facts::read(&*self.storage, &self.home)?;
        let fingerprinting = self.definition.run.fingerprint;
        let stamps = Arc::new(match place {
            Some(place) => Stamps::open(place, fingerprinting, at)?,
            None => Stamps::read(&*self.storage, &self.home, fingerprinting, at)?,
        });
        let divided = self.divide(&inputs, &mut facts, &stamps)?;
        if let Some(place) = place {
            facts.write(place)?;
        }
        let types = types_to_json(&columns).map_err(|error| PipelineError::Stage {
            stage: self.source_name(),
            message: error.to_string(),
            hint: None,
        })?;
        let adopter = Adopter::new(
            Arc::clone(&self.storage),
            self.home.clone(),
            Arc::clone(&stamps),
            facts.set_aside.clone(),
        )?;
        let mut digests = SideDigests { pipeline: self, stamps: &stamps, known: HashMap::new() };
        let mut partitions = Vec::with_capacity(divided.len());
        let mut largest_part = 0;
        // What is left to a partition is known for sure only while all those before it are done.
        let mut limit = self.definition.data.dataset.limit_rows.map(RowLimit::new);
        let mut is_known = true;
        for (index, division) in divided.into_iter().enumerate() {
            if limit.as_ref().is_some_and(RowLimit::is_reached) {
                break;
            }
            let ranges = division.inputs(&inputs);
            let own: Vec<Input> = ranges.iter().map(|range| range.input.clone()).collect();
            let side = self.source.side_inputs(&own).map_err(failed)?;
            let slot = self.slot_of(&ranges, &side, &mut digests, &types)?;
            let bytes = ranges.iter().map(InputRange::bytes).sum();
            let part = Part { inputs: ranges, side };
            let left = limit.as_ref().map(RowLimit::left);
            let reused = if is_known { self.reused(&slot, &part, left, &adopter)? } else { None };
            let state = if let Some(done) = reused {
                if let Some(limit) = &mut limit {
                    limit.spend(done.source_rows);
                }
                State::Done(done)
            } else {
                is_known = limit.is_none();
                if let (Some(limit), Some(rows)) = (&mut limit, self.rows_hint(&part.inputs)) {
                    limit.spend(rows);
                }
                let begun = self.storage.stat(&self.home.begun(&slot))?;
                if begun.is_some() { State::Begun } else { State::New }
            };
            if !matches!(state, State::Done(_)) {
                largest_part = largest_part.max(held_bytes(&part));
            }
            partitions.push(Planned { index, slot, bytes, state, division, side: part.side });
        }
        let n_to_build = partitions.iter().filter(|p: &&Planned| !p.is_done()).count();
        let bound = self.bound(&inputs, &schema, n_to_build, largest_part)?;
        Ok(Plan { columns, schema, inputs, partitions, stamps, bound })
    }

    /// Source rows of inputs, where they are known without reading them.
    fn rows_hint(&self, inputs: &[InputRange]) -> Option<u64> {
        let hint = |range: &InputRange| match range.range {
            None => self.source.rows_hint(&range.input),
            Some(_) => None,
        };
        inputs.iter().map(hint).sum()
    }

    fn source_name(&self) -> String {
        self.definition.data.source.name.clone()
    }

    /// Divides the inputs; where a large one is cut is learned once and kept as a fact.
    fn divide(
        &self,
        inputs: &[Input],
        facts: &mut Facts,
        stamps: &Stamps,
    ) -> Result<Vec<division::Planned>, PipelineError> {
        let partition_bytes = self.definition.data.dataset.partition_bytes;
        let (root, source) = (self.root(), self.source_name());
        let mut learned = BTreeMap::new();
        let cut = |input: &Input| -> Result<Vec<u64>, PipelineError> {
            let now = LearnedFrom::new(&root, &input.path, stamps.stamp(input));
            let cuts = match facts.cuts(&source, &now, stamps.fingerprinting()) {
                Some(cuts) => cuts.to_vec(),
                None => self.source.cuts(input, partition_bytes).map_err(|source| {
                    PipelineError::Source { stage: self.source_name(), source }
                })?,
            };
            learned
                .insert(input.path.clone(), Fact { learned_from: Some(now), value: cuts.clone() });
            Ok(cuts)
        };
        let divided =
            division::partitions(inputs, partition_bytes, cut).collect::<Result<_, _>>()?;
        facts.cuts = [(source, learned)].into();
        Ok(divided)
    }

    fn slot_of(
        &self,
        inputs: &[InputRange],
        side: &[Input],
        digests: &mut SideDigests<'_>,
        types: &serde_json::Value,
    ) -> Result<String, PipelineError> {
        let b3: Vec<String> =
            side.iter().map(|input| digests.of(input)).collect::<Result<_, _>>()?;
        let inputs = inputs.iter().map(|range| InputName {
            path: &range.input.path,
            size: range.bytes(),
            range: range.range.as_ref(),
            b3: None,
        });
        let side = side.iter().zip(&b3).map(|(input, b3)| InputName {
            path: &input.path,
            size: input.size,
            range: None,
            b3: Some(b3),
        });
        let (inputs, side): (Vec<_>, Vec<_>) = (inputs.collect(), side.collect());
        Ok(slot(self.home.cache_key(), &inputs, &side, types))
    }

    /// The record of an earlier run that is taken over, if there is one.
    fn reused(
        &self,
        slot: &str,
        part: &Part,
        limit: Option<u64>,
        adopter: &Adopter,
    ) -> Result<Option<Done>, PipelineError> {
        let hash = |part: &Part| {
            let failed = |source| PipelineError::Source { stage: self.source_name(), source };
            self.source.digests(part).map_err(failed)
        };
        let found = adopter.adopt(slot, &self.root(), part, limit, hash)?;
        Ok(found.map(|(name, record)| {
            let source_rows = record.books.get(&self.source_name()).map_or(0, |b| b.entered);
            Done { name, rows: record.rows, source_rows }
        }))
    }

    fn bound(
        &self,
        inputs: &[Input],
        schema: &RowSchema,
        n_to_build: usize,
        largest_part: usize,
    ) -> Result<MemoryBound, PipelineError> {
        let (run, data) = (&self.definition.run, &self.definition.data.dataset);
        let limits = BatchLimits {
            rows: run.batch_rows,
            bytes: run.batch_bytes,
            row_bytes: data.max_row_bytes,
            on_error: self.definition.data.source.rejects.on_error,
        };
        let listed = inputs.iter().map(|input| LISTED_BYTES + input.path.len()).sum::<usize>();
        let writer_bytes = memory_bytes(schema, &self.shard_limits());
        let growth = self.transforms.iter().fold(100, |percent: u64, transform| {
            percent.saturating_mul(transform.growth_percent()).div_ceil(100)
        });
        MemoryBound::of(&Demand {
            memory: run.memory,
            // A limit is spent partition by partition.
            jobs: if data.limit_rows.is_some() { Some(1) } else { run.jobs },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            partitions: n_to_build,
            batch_bytes: run.batch_bytes as u64,
            row_bytes: data.max_row_bytes,
            transforms: self.transforms.len(),
            growth_percent: growth,
            inputs_bytes: listed as u64,
            reader_bytes: self.source.reader_bytes(limits),
            writer_bytes: writer_bytes.saturating_add(largest_part as u64),
            finish_bytes: if schema.key().is_some() { MERGE_BYTES as u64 } else { 0 },
        })
    }
}

/// What a partition at work holds of its list of inputs.
fn held_bytes(part: &Part) -> usize {
    let inputs = part.inputs.iter().map(|range| &range.input).chain(&part.side);
    inputs.map(|input| AT_WORK_BYTES + AT_WORK_PATHS * input.path.len()).sum()
}

/// Digests of side inputs, each found once.
struct SideDigests<'a> {
    pipeline: &'a Pipeline,
    stamps: &'a Stamps,
    known: HashMap<String, String>,
}

impl SideDigests<'_> {
    fn of(&mut self, input: &Input) -> Result<String, PipelineError> {
        if let Some(b3) = self.known.get(&input.path) {
            return Ok(b3.clone());
        }
        let range = InputRange { input: input.clone(), range: None };
        let root = self.pipeline.root();
        let digest = match self.stamps.digest(&root, &range) {
            Some(digest) => digest.blake3,
            None => self.hash(&root, &range)?,
        };
        let b3 = digest.to_hex().to_string();
        self.known.insert(input.path.clone(), b3.clone());
        Ok(b3)
    }

    fn hash(&self, root: &str, range: &InputRange) -> Result<blake3::Hash, PipelineError> {
        let part = Part { inputs: Vec::new(), side: vec![range.input.clone()] };
        let stage = self.pipeline.source_name();
        let changed = SourceError::Changed { path: range.input.path.clone() };
        let failed = |source| PipelineError::Source { stage, source };
        match self.pipeline.source.digests(&part) {
            Ok(digests) => match digests.first() {
                Some(digest) => {
                    self.stamps.learn(root, range, digest.blake3)?;
                    Ok(digest.blake3)
                }
                None => Err(failed(changed)),
            },
            Err(error) => Err(failed(error)),
        }
    }
}

impl Planned {
    /// Whether an earlier run's record is taken over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }
}
