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
use super::listed::{Listed, ListedSource};
use super::memory::{Demand, GroupDemand, HookDemand, Rejecting};
use super::rejects::RejectsOf;
use super::retry::Again;
use super::side::SideDigests;
use super::{
    MemoryBound, PartitionReport, PartitionState, Pipeline, PipelineError, PlanReport,
    REPORT_VERSION, SourceReport, Why,
};
use crate::cache;
use crate::dataset::adopt::Adopter;
use crate::dataset::facts::{Facts, LearnedOutput};
use crate::dataset::merge::MERGE_BYTES;
use crate::dataset::record::{Record, RecordName};
use crate::dataset::retry::Retry;
use crate::dataset::stamps::Stamps;
use crate::dataset::{Workplace, plan as division};
use crate::exporters::Others;
use crate::fingerprint::{InputName, slot, types_to_json};
use crate::inputs::{Input, InputRange, Part};
use crate::remote::is_url;
use crate::schema::RowSchema;
use crate::shard::{memory_bytes, shared_bytes};
use crate::sources::object::READER_BYTES;
use crate::sources::{BatchLimits, OnError};
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
    pub(super) rejects: RejectsOf,
}

impl Plan {
    /// The slot of the partition of index `index`.
    pub(super) fn slot(&self, index: usize) -> &str {
        self.partitions.get(index).map_or("", |planned| &planned.slot)
    }

    /// What a partition reads.
    pub(super) fn part(&self, planned: &Planned) -> Part {
        let inputs = self.sources.get(planned.source).map(|source| source.inputs.as_slice());
        let inputs = planned.division.inputs(inputs.unwrap_or_default());
        Part { inputs, side: planned.side.clone() }
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

    /// Refuses a memory that is too small before anything is written, where nothing is there yet.
    pub(super) fn refuse_memory(&self, listed: &Listed) -> Result<(), PipelineError> {
        if self.storage.stat(self.home.dir())?.is_some() {
            return Ok(());
        }
        // At most as much as any division of the inputs takes; only where that does not fit does it
        // have to be known how they are divided.
        let held = |input: &Input| AT_WORK_BYTES + AT_WORK_PATHS * input.path.len();
        let all = listed.inputs().map(held).sum();
        let jobs = self.definition.run.jobs.unwrap_or(1);
        if self.bound(listed, jobs, all).is_err() {
            self.plan_with(listed.clone(), None)?;
        }
        Ok(())
    }

    /// Plans. With a `place` the facts that were learned are kept there.
    pub(super) fn plan_with(
        &self,
        listed: Listed,
        place: Option<&Workplace>,
    ) -> Result<Plan, PipelineError> {
        let bound_of = |to_build: usize, largest| self.bound(&listed, to_build, largest);
        let mut facts = Facts::read(&*self.storage, &self.home)?;
        let divided = self.divide_all(&listed, &mut facts)?;
        if let Some(place) = place {
            facts.write(place)?;
        }
        let types = self.types_of(&listed)?;
        let by = self.definition.run.fingerprint;
        let stamps = Arc::new(match place {
            Some(place) => Stamps::open(place, by, listed.at)?,
            None => Stamps::read(&*self.storage, &self.home, by, listed.at)?,
        });
        let adopter = Adopter::new(
            Arc::clone(&self.storage),
            self.home.clone(),
            Arc::clone(&stamps),
            facts.set_aside.clone(),
        )?;
        let adopter = if self.is_shared { adopter.believing() } else { adopter };
        let again = Again::new(self, &adopter, &facts);
        let mut digests: Vec<_> =
            self.sources.iter().map(|stage| SideDigests::new(stage, &stamps)).collect();
        let mut hashed = Hashed::default();
        let hook_files = self.hook_files(&stamps, &mut hashed)?;
        let mut partitions: Vec<Planned> = Vec::with_capacity(divided.len());
        let mut largest_part = 0;
        // What is left to a partition is known for sure only while all those before it are done.
        let mut limit = self.definition.data.dataset.limit_rows.map(RowLimit::new);
        let mut is_known = true;
        for (source, division) in divided {
            if limit.as_ref().is_some_and(RowLimit::is_reached) {
                break;
            }
            let (Some(stage), Some(of_stage), Some(digests)) =
                (self.sources.get(source), listed.sources.get(source), digests.get_mut(source))
            else {
                break;
            };
            let ranges = division.inputs(&of_stage.inputs);
            let own: Vec<Input> = ranges.iter().map(|range| range.input.clone()).collect();
            let side = stage.source.side_inputs(&own).map_err(|e| stage.error(e))?;
            let b3 = side.iter().map(|input| digests.of(input, &mut hashed));
            let b3 = b3.collect::<Result<Vec<_>, _>>()?;
            let of_hooks = hook_files.iter().map(|(input, b3)| (input, b3));
            let of_slot = side.iter().zip(&b3).chain(of_hooks);
            let slot = self.slot_of(stage, &ranges, of_slot, &types);
            let bytes = ranges.iter().map(InputRange::bytes).sum();
            let part = Part { inputs: ranges, side };
            let left = limit.as_ref().map(RowLimit::left);
            let reused = if is_known {
                reused(stage, &slot, &part, left, &adopter, &mut hashed)?
            } else {
                None
            };
            let asked_again = again.rows(&slot, reused.as_ref())?;
            match (&mut limit, &reused) {
                (Some(limit), Some(done)) => limit.spend(done.source_rows),
                (Some(limit), None) => {
                    is_known = false;
                    limit.spend(self.rows_hint(source, &part.inputs).unwrap_or(0));
                }
                (None, _) => {}
            }
            let progress = again.state(&slot, reused, asked_again)?;
            if !matches!(progress, State::Done(_)) {
                largest_part = largest_part.max(held_bytes(&part));
            }
            let side = part.side;
            partitions.push(Planned {
                source,
                slot,
                bytes,
                state: progress,
                left,
                asked_again,
                division,
                side,
            });
        }
        let n_to_build = partitions.iter().filter(|p: &&Planned| !p.is_done()).count();
        let bound = bound_of(n_to_build, largest_part)?;
        drop(digests);
        let Listed { schema, sources, columns, learned, .. } = listed;
        let files = hook_files.into_iter().map(|(input, b3)| (input.path, b3)).collect();
        let retry = match place {
            Some(place) => again.retry(place, facts, &partitions)?,
            None => None,
        };
        Ok(Plan {
            schema,
            sources,
            partitions,
            learned,
            stamps,
            hashed,
            bound,
            retry,
            columns,
            files,
        })
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
    fn types_of(&self, listed: &Listed) -> Result<serde_json::Value, PipelineError> {
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
    fn rows_hint(&self, source: usize, inputs: &[InputRange]) -> Option<u64> {
        let source = &self.sources.get(source)?.source;
        let hint = |range: &InputRange| match range.range {
            None => source.rows_hint(&range.input),
            Some(_) => None,
        };
        inputs.iter().map(hint).sum()
    }

    fn slot_of<'a>(
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

    fn bound(
        &self,
        listed: &Listed,
        n_to_build: usize,
        largest_part: usize,
    ) -> Result<MemoryBound, PipelineError> {
        let (run, data) = (&self.definition.run, &self.definition.data.dataset);
        let rejects = |on_error| on_error == OnError::Quarantine;
        let limits = |stage: &SourceStage| BatchLimits {
            rows: run.batch_rows,
            bytes: run.batch_bytes,
            row_bytes: data.max_row_bytes,
            on_error: stage.on_error,
        };
        let inputs = listed.inputs().map(|input| LISTED_BYTES + input.path.len());
        let inputs_bytes = inputs.sum::<usize>() as u64;
        let readers = self.sources.iter().zip(&listed.sources);
        let readers = readers.map(|(stage, listed)| {
            let ahead = if is_url(&stage.root) { READER_BYTES } else { 0 };
            stage.source.reader_bytes(&listed.inputs, limits(stage)).saturating_add(ahead)
        });
        let writer_bytes = memory_bytes(&listed.schema, &self.shard_limits());
        let groups = self.groups().into_iter().map(|group| {
            let mut transforms = self.named_transforms().skip(group.first).take(group.len);
            let hook = group.batching.and_then(|rule| {
                transforms.next().map(|(name, _)| HookDemand { name: name.to_owned(), rule })
            });
            let (plain, growth_percent) = transforms.fold((0, 100_u64), |(n, percent), it| {
                (n + 1, percent.saturating_mul(it.1.growth_percent()).div_ceil(100))
            });
            GroupDemand { hook, plain, growth_percent }
        });
        let kept = self.transforms.iter().filter_map(|it| it.batching()).filter(|it| it.is_kept);
        let kept = kept.map(|rule| cache::memory_bytes(rule.answer_bytes));
        MemoryBound::of(&Demand {
            memory: run.memory,
            // A limit is spent partition by partition.
            jobs: if data.limit_rows.is_some() { Some(1) } else { run.jobs },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            partitions: n_to_build,
            batch_bytes: run.batch_bytes as u64,
            row_bytes: data.max_row_bytes,
            groups: groups.collect(),
            rejecting: Rejecting {
                sources: self.sources.iter().any(|stage| rejects(stage.on_error)),
                transforms: (0..self.transforms.len()).any(|i| rejects(self.stage(i).on_error)),
                dataset: rejects(data.rejects.on_error),
            },
            inputs_bytes,
            reader_bytes: readers.max().unwrap_or(0),
            writer_bytes: writer_bytes.saturating_add(largest_part as u64),
            index_bytes: shared_bytes(&listed.schema, &self.shard_limits()),
            push_bytes: self
                .pushes()
                .map_or(0, |push| push.part_bytes.saturating_mul(push.concurrency.into()))
                .saturating_add(if self.is_shared { Others::BYTES } else { 0 }),
            caches_bytes: if n_to_build > 0 { kept.sum() } else { 0 },
            finish_bytes: if listed.schema.key().is_some() { MERGE_BYTES as u64 } else { 0 },
        })
    }
}

/// What a partition at work holds of its list of inputs.
fn held_bytes(part: &Part) -> usize {
    let inputs = part.inputs.iter().map(|range| &range.input).chain(&part.side);
    inputs.map(|input| AT_WORK_BYTES + AT_WORK_PATHS * input.path.len()).sum()
}

/// The record of an earlier run that is taken over, if there is one.
fn reused(
    stage: &SourceStage,
    slot: &str,
    part: &Part,
    limit: Option<u64>,
    adopter: &Adopter,
    hashed: &mut Hashed,
) -> Result<Option<Done>, PipelineError> {
    let hash = |part: &Part| {
        hashed.add(part);
        stage.source.digests(part).map_err(|e| stage.error(e))
    };
    let found = adopter.adopt(slot, &stage.root, part, limit, hash)?;
    Ok(found.map(|(name, record)| Done::of(stage.name(), name, &record)))
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
    /// Whether an earlier run's record is taken over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }
}
