//! What decides the memory bound of a run: its settings, its columns and its inputs.
//!
//! Leaves out: how the bound comes about (`memory`).

use super::groups::Group;
use super::listed::{Listed, ListedSource};
use super::plan::listed_bytes;
use super::{MemoryBound, Pipeline, PipelineError};
use crate::cache;
use crate::dataset::merge::MERGE_BYTES;
use crate::exporters::Others;
use crate::inputs::Input;
use crate::remote::is_url;
use crate::schema::RowSchema;
use crate::shard::{ShardLimits, memory_bytes, shared_bytes};
use crate::sources::object::READER_BYTES;
use crate::sources::{BatchLimits, OnError};
use crate::transforms::Batching;

/// What decides the bound.
#[derive(Debug, Clone)]
pub(super) struct Demand {
    /// Bytes given.
    pub(super) memory: u64,
    /// Partitions at once, where that was asked for.
    pub(super) jobs: Option<usize>,
    /// Processor cores.
    pub(super) cores: usize,
    /// Partitions to build.
    pub(super) partitions: usize,
    /// About the most bytes in a batch.
    pub(super) batch_bytes: u64,
    /// Most bytes in a row.
    pub(super) row_bytes: u64,
    /// Bytes that every row has.
    pub(super) fixed_row_bytes: u64,
    /// The transforms, as they run together.
    pub(super) groups: Vec<GroupDemand>,
    /// Which stages may take rows out of a batch: while they do, what stays is there twice.
    pub(super) rejecting: Rejecting,
    /// The list of inputs.
    pub(super) inputs_bytes: u64,
    /// What a reader holds beside the batch it makes.
    pub(super) reader_bytes: u64,
    /// What a writer holds beside the batch it is given.
    pub(super) writer_bytes: u64,
    /// What one of all writers may hold at a time, beside that.
    pub(super) index_bytes: u64,
    /// What is held at the end, when all partitions are built.
    pub(super) finish_bytes: u64,
    /// What feature caches hold that are written to.
    pub(super) caches_bytes: u64,
    /// What is on its way to an object store.
    pub(super) push_bytes: u64,
}

/// What transforms that run together take.
#[derive(Debug, Clone)]
pub(super) struct GroupDemand {
    /// The first of them, where it says how its batches are cut.
    pub(super) hook: Option<HookDemand>,
    /// Transforms beside the hook.
    pub(super) plain: usize,
    /// What these hold per byte they are given, in percent, multiplied up.
    pub(super) growth_percent: u64,
}

/// A transform that says how its batches are cut.
#[derive(Debug, Clone)]
pub(super) struct HookDemand {
    /// Its name.
    pub(super) name: String,
    /// What it says.
    pub(super) rule: Batching,
}

/// Which stages quarantine bad rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rejecting {
    /// A source.
    pub(super) sources: bool,
    /// A transform.
    pub(super) transforms: bool,
    /// The dataset.
    pub(super) dataset: bool,
}

/// A setting with another value, to find out what a run then takes. As it decides values, everything is
/// built again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    /// `max_row_bytes`.
    RowBytes(u64),
    /// The most that `answer_bytes` of any hook may be.
    AnswerBytes(u64),
}

/// Partitions that are built.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    /// How many.
    pub(super) partitions: usize,
    /// What the largest of them holds of its list of inputs while it is at work.
    pub(super) part_bytes: u64,
}

impl Extent {
    /// Adds one that holds so much of its list.
    pub(super) fn add(&mut self, part_bytes: u64) {
        self.partitions += 1;
        self.part_bytes = self.part_bytes.max(part_bytes);
    }
}

/// What the inputs take.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    /// Bytes of their list.
    pub(super) list: u64,
    /// Most bytes that a reader of any of them holds, where rows have at most so many.
    pub(super) reader: &'a dyn Fn(u64) -> u64,
    /// What is built.
    pub(super) to_build: Extent,
    /// What is built where nothing can be taken over.
    pub(super) all: Extent,
}

impl Demand {
    /// Partitions at once, if as many fit as are wanted.
    pub(super) fn most_jobs(&self) -> usize {
        self.jobs.unwrap_or(self.cores).min(self.partitions).max(1)
    }

    /// Partitions that have to fit at once.
    pub(super) fn least_jobs(&self) -> usize {
        if self.jobs.is_some() { self.most_jobs() } else { 1 }
    }

    /// The hooks, in order.
    pub(super) fn hooks(&self) -> impl Iterator<Item = &HookDemand> {
        self.groups.iter().filter_map(|group| group.hook.as_ref())
    }
}

impl GroupDemand {
    /// How often the length of an edge counts in what it adds: what stands on the edge before a hook may
    /// be copied, and grow.
    pub(super) fn edges(&self) -> u64 {
        if self.hook.is_some() { 4 + u64::try_from(self.plain).unwrap_or(u64::MAX) } else { 1 }
    }

    /// What the transforms make of so many bytes.
    pub(super) fn grow(&self, bytes: u64) -> u64 {
        (bytes / 100).saturating_mul(self.growth_percent.max(100))
    }
}

impl Pipeline {
    /// The memory bound of a run that builds the partitions `to_build`, of `all` that are planned.
    pub(super) fn bound(
        &self,
        listed: &Listed,
        to_build: Extent,
        all: Extent,
    ) -> Result<MemoryBound, PipelineError> {
        let list = listed.inputs().map(listed_bytes).sum();
        let reader = |row_bytes| self.most_reader_bytes(&listed.sources, row_bytes);
        self.bound_of(&listed.schema, &Held { list, reader: &reader, to_build, all })
    }

    /// The memory bound, where it is known what the inputs take.
    pub(super) fn bound_of(
        &self,
        schema: &RowSchema,
        held: &Held<'_>,
    ) -> Result<MemoryBound, PipelineError> {
        let demand = |change| self.demand(schema, held, change);
        MemoryBound::of(&demand(None), &|change| demand(Some(change)))
    }

    /// Most that a reader of any of these inputs of a source holds.
    pub(super) fn reader_bytes(&self, source: usize, inputs: &[Input]) -> u64 {
        self.reader_bytes_with(source, inputs, self.definition.data.dataset.max_row_bytes)
    }

    /// The same of all sources, where rows have at most `row_bytes`.
    pub(super) fn most_reader_bytes(&self, listed: &[ListedSource], row_bytes: u64) -> u64 {
        let lists = listed.iter().enumerate();
        let readers = lists.map(|(n, it)| self.reader_bytes_with(n, &it.inputs, row_bytes));
        readers.max().unwrap_or(0)
    }

    fn reader_bytes_with(&self, source: usize, inputs: &[Input], row_bytes: u64) -> u64 {
        let run = &self.definition.run;
        let Some(stage) = self.sources.get(source) else { return 0 };
        let (rows, bytes, on_error) = (run.batch_rows, run.batch_bytes, stage.on_error);
        let limits = BatchLimits { rows, bytes, row_bytes, on_error };
        let ahead = if is_url(&stage.root) { READER_BYTES } else { 0 };
        stage.source.reader_bytes(inputs, limits).saturating_add(ahead)
    }

    /// What a run takes, as the definition is or with a change of it.
    fn demand(&self, schema: &RowSchema, held: &Held<'_>, change: Option<Change>) -> Demand {
        let (run, data) = (&self.definition.run, &self.definition.data.dataset);
        let rejects = |on_error| on_error == OnError::Quarantine;
        let (row_bytes, most_answer) = match change {
            None => (data.max_row_bytes, u64::MAX),
            Some(Change::RowBytes(bytes)) => (bytes, u64::MAX),
            Some(Change::AnswerBytes(bytes)) => (data.max_row_bytes, bytes),
        };
        let extent = if change.is_some() { held.all } else { held.to_build };
        let limits = ShardLimits { row_bytes, ..self.shard_limits() };
        let groups: Vec<GroupDemand> =
            self.groups().iter().map(|group| self.group_demand(group, most_answer)).collect();
        let rules = groups.iter().filter_map(|group| group.hook.as_ref()).map(|hook| hook.rule);
        let kept = rules.filter(|rule| rule.is_kept);
        let kept = kept.map(|rule| cache::memory_bytes(rule.answer_bytes)).sum();
        let pushed =
            self.pushes().map_or(0, |push| push.part_bytes.saturating_mul(push.concurrency.into()));
        Demand {
            memory: run.memory,
            // A limit is spent partition by partition.
            jobs: if data.limit_rows.is_some() { Some(1) } else { run.jobs },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            partitions: extent.partitions,
            batch_bytes: run.batch_bytes as u64,
            row_bytes,
            fixed_row_bytes: schema.fixed_row_bytes(),
            groups,
            rejecting: Rejecting {
                sources: self.sources.iter().any(|stage| rejects(stage.on_error)),
                transforms: (0..self.transforms.len()).any(|i| rejects(self.stage(i).on_error)),
                dataset: rejects(data.rejects.on_error),
            },
            inputs_bytes: held.list,
            reader_bytes: (held.reader)(row_bytes),
            writer_bytes: memory_bytes(schema, &limits).saturating_add(extent.part_bytes),
            index_bytes: shared_bytes(schema, &limits),
            push_bytes: pushed.saturating_add(if self.is_shared { Others::BYTES } else { 0 }),
            caches_bytes: if extent.partitions > 0 { kept } else { 0 },
            finish_bytes: if schema.key().is_some() { MERGE_BYTES as u64 } else { 0 },
        }
    }

    /// What a group of transforms takes, where no hook answers with more than `most_answer` bytes.
    fn group_demand(&self, group: &Group, most_answer: u64) -> GroupDemand {
        let mut transforms = self.named_transforms().skip(group.first).take(group.len);
        let hook = group.batching.and_then(|mut rule| {
            rule.answer_bytes = rule.answer_bytes.min(most_answer);
            transforms.next().map(|(name, _)| HookDemand { name: name.to_owned(), rule })
        });
        let (plain, growth_percent) = transforms.fold((0, 100_u64), |(n, percent), it| {
            (n + 1, percent.saturating_mul(it.1.growth_percent()).div_ceil(100))
        });
        GroupDemand { hook, plain, growth_percent }
    }
}
