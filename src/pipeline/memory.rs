//! The memory bound: what a run may take, computed before it begins and kept by the edges.
//!
//! Invariant: every size here is a bound on what one partition at work may hold; their sum over all
//! jobs, and of what they share, is at most `memory`, or the run is refused. What the process itself takes (code, threads,
//! allocator) is the constant on top.
//!
//! Leaves out: where these sizes come from (`demand`), and what to change where they are too many (`remedy`).

use indicatif::BinaryBytes;
use serde::Serialize;

use super::demand::{Change, Demand, GroupDemand, HookDemand, Rejecting};
use super::{PipelineError, remedy};
use crate::transforms::Batching;

/// Least size that batches are cut to, however little memory there is.
const LEAST_BATCH: u64 = 64 << 10;
/// Most that an edge holds: beyond it, more room only delays the moment at which a slow stage is felt.
const MOST_EDGE: u64 = 64 << 20;

/// What a run may take, and how that comes about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryBound {
    /// Bytes given.
    pub memory_bytes: u64,
    /// Bytes that may be taken at most; no more than `memory_bytes`.
    pub bound_bytes: u64,
    /// Partitions at once.
    pub jobs: usize,
    /// Threads that transform, per partition.
    pub workers: usize,
    /// What hooks take of [`MemoryBound::transforms_bytes`].
    pub hooks: Vec<HookBound>,
    /// About the most bytes in a batch.
    pub batch_bytes: u64,
    /// Most bytes on each of a partition's edges.
    pub edge_bytes: u64,
    /// The list of inputs.
    pub inputs_bytes: u64,
    /// One partition's reader, with the batch it makes.
    pub reader_bytes: u64,
    /// One partition's edges.
    pub edges_bytes: u64,
    /// One partition's transforms.
    pub transforms_bytes: u64,
    /// One partition's writer.
    pub writer_bytes: u64,
    /// A large row on its way into the index of a shard: one at a time in all partitions.
    pub index_bytes: u64,
    /// Merging the keys, when no partition is at work any more.
    pub finish_bytes: u64,
    /// Rows that are on their way into feature caches.
    pub caches_bytes: u64,
    /// What is on its way to an object store.
    pub push_bytes: u64,
}

/// What one partition takes for a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookBound {
    /// Its name.
    pub name: String,
    /// Batches that it is asked about at once. The partitions share its processes: all of these are at
    /// work together where memory allows it.
    pub at_once: usize,
    /// The rows that its batches are cut from.
    pub cutting_bytes: u64,
    /// The answers to these batches. What it is asked about stands on the edge before it.
    pub answers_bytes: u64,
}

/// How many things are done at once.
#[derive(Debug, Clone, Copy)]
struct Parallel {
    jobs: usize,
    /// Threads that transform, per partition.
    workers: usize,
    /// Batches that each hook is asked about at once, per partition.
    asked: usize,
}

/// About how large batches are.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    batch: u64,
    edge: u64,
}

impl MemoryBound {
    /// Finds the most parallel run that keeps the bound; `changed` is the demand with another setting.
    ///
    /// # Errors
    /// [`PipelineError::Memory`], with what the least one takes.
    pub(super) fn of(
        demand: &Demand,
        changed: &dyn Fn(Change) -> Demand,
    ) -> Result<Self, PipelineError> {
        Self::most(demand).ok_or_else(|| {
            let jobs = demand.least_jobs();
            let partitions = if jobs == 1 { "partition" } else { "partitions" };
            PipelineError::Memory {
                given: exact(demand.memory),
                jobs: format!("{jobs} {partitions}"),
                needed: exact(Self::least(demand)),
                hint: remedy::hint(demand, changed),
            }
        })
    }

    /// The most parallel run that keeps the bound, if one does.
    pub(super) fn most(demand: &Demand) -> Option<Self> {
        let (least, wanted) = (demand.least_jobs(), demand.most_jobs());
        let cores = demand.cores.max(1);
        let processes = demand.hooks().map(|hook| hook.rule.workers).max().unwrap_or(1).max(1);
        for jobs in (least..=wanted).rev() {
            // All processes are to have something to do.
            for asked in halved(processes, processes.div_ceil(jobs)) {
                for workers in (1..=cores.div_ceil(jobs)).rev() {
                    if let Some(bound) = Self::with(demand, Parallel { jobs, workers, asked }) {
                        return Some(bound);
                    }
                }
            }
        }
        halved(processes.div_ceil(least), 1)
            .find_map(|asked| Self::with(demand, Parallel { jobs: least, workers: 1, asked }))
    }

    /// What the least run takes: one that does as little at once as it can.
    pub(super) fn least(demand: &Demand) -> u64 {
        Self::least_of(demand, demand.least_jobs())
    }

    /// The same with so many jobs.
    pub(super) fn least_of(demand: &Demand, jobs: usize) -> u64 {
        let parallel = Parallel { jobs, workers: 1, asked: 1 };
        let sizes = Sizes { batch: LEAST_BATCH, edge: LEAST_BATCH };
        Self::sized(demand, parallel, sizes).bound_bytes
    }

    /// The run that does so much at once and has the largest batches and edges, if one fits.
    fn with(demand: &Demand, parallel: Parallel) -> Option<Self> {
        let mut batch = demand.batch_bytes.max(LEAST_BATCH);
        loop {
            let tight = Self::sized(demand, parallel, Sizes { batch, edge: batch });
            if tight.bound_bytes <= demand.memory {
                // What is left over makes the edges longer.
                let spare = (demand.memory - tight.bound_bytes) / (2 * count(parallel.jobs));
                let most = batch.max(demand.row_bytes).max(MOST_EDGE);
                let edges = 1 + demand.groups.iter().map(GroupDemand::edges).sum::<u64>();
                let edge =
                    batch.max(demand.row_bytes).saturating_add(spare / edges.max(2)).min(most);
                let roomy = Self::sized(demand, parallel, Sizes { batch, edge });
                return Some(if roomy.bound_bytes <= demand.memory { roomy } else { tight });
            }
            if batch == LEAST_BATCH {
                return None;
            }
            batch = (batch / 2).max(LEAST_BATCH);
        }
    }

    /// What one partition takes.
    pub(super) fn job_bytes(&self) -> u64 {
        self.reader_bytes
            .saturating_add(self.edges_bytes)
            .saturating_add(self.transforms_bytes)
            .saturating_add(self.writer_bytes)
    }

    /// What is taken beside partitions and the list of inputs while partitions are built.
    pub(super) fn beside_bytes(&self) -> u64 {
        self.index_bytes.saturating_add(self.caches_bytes).saturating_add(self.push_bytes)
    }

    /// Whether so many partitions fit beside some that were begun before, which take as much each.
    pub(super) fn has_room(&self, partitions: usize, (others, each_bytes): (usize, u64)) -> bool {
        let own = self.job_bytes().saturating_mul(count(partitions));
        let others = each_bytes.saturating_mul(count(others));
        let list = self.inputs_bytes.saturating_add(self.beside_bytes());
        own.saturating_add(others).saturating_add(list) <= self.memory_bytes
    }

    fn sized(demand: &Demand, parallel: Parallel, sizes: Sizes) -> Self {
        let Sizes { batch, edge } = sizes;
        let copy = |is_made: bool, bytes: u64| if is_made { bytes } else { 0 };
        let Rejecting { sources, transforms, dataset } = demand.rejecting;
        // A batch is a row alone, however large, or several rows that are small together.
        let mut passing = Passing { one: demand.row_bytes, many: batch };
        let piece = passing.most();
        let reader_bytes =
            demand.reader_bytes.saturating_add(piece).saturating_add(copy(sources, piece));
        // Without transforms batches only pass by: nothing is held twice.
        let (mut edges_bytes, mut transforms_bytes) = (edge.max(piece), 0_u64);
        if demand.groups.is_empty() {
            edges_bytes = edges_bytes.saturating_add(edge.max(piece));
        }
        let mut hooks = Vec::new();
        for group in &demand.groups {
            let held = if let Some(HookDemand { name, rule }) = &group.hook {
                let (cutting_bytes, asked) = passing.cut(rule);
                let asked_edge = edge.max(asked.most());
                edges_bytes = edges_bytes.saturating_add(asked_edge);
                let at_once = rule.workers.min(parallel.asked).max(1);
                let answers_bytes = rule.answer_bytes.saturating_mul(count(at_once));
                passing = asked.plus(rule.answer_bytes);
                // All that is asked about at once has room on the edge. Rows that become several are
                // copied, a piece that waits and one that is made.
                let pieces = if rule.multiplies { 2 * batch } else { 0 };
                let pieces = pieces.saturating_mul(count(at_once));
                let answered = asked_edge.saturating_add(answers_bytes);
                let mut held = cutting_bytes.saturating_add(answers_bytes).saturating_add(pieces);
                held = held.saturating_add(copy(transforms, answered));
                // Rows that are not known are copied, and answers put together.
                held = held.saturating_add(copy(rule.is_kept, answered));
                if group.plain > 0 {
                    let grown = group.grow(answered);
                    held = held.saturating_add(grown).saturating_add(copy(transforms, grown));
                    passing = passing.map(|bytes| group.grow(bytes));
                }
                let name = name.clone();
                hooks.push(HookBound { name, at_once, cutting_bytes, answers_bytes });
                held
            } else {
                passing = passing.map(|bytes| group.grow(bytes));
                let entering = passing.most();
                let in_flight =
                    entering.saturating_mul(2).saturating_add(copy(transforms, entering));
                in_flight.saturating_mul(count(parallel.workers))
            };
            transforms_bytes = transforms_bytes.saturating_add(held);
            edges_bytes = edges_bytes.saturating_add(edge.max(passing.most()));
        }
        let writer_bytes = demand.writer_bytes.saturating_add(copy(dataset, passing.most()));
        let mut bound = Self {
            memory_bytes: demand.memory,
            bound_bytes: 0,
            jobs: parallel.jobs,
            workers: parallel.workers,
            hooks,
            batch_bytes: batch,
            edge_bytes: edge,
            inputs_bytes: demand.inputs_bytes,
            reader_bytes,
            edges_bytes,
            transforms_bytes,
            writer_bytes,
            index_bytes: demand.index_bytes,
            finish_bytes: demand.finish_bytes,
            caches_bytes: demand.caches_bytes,
            push_bytes: demand.push_bytes,
        };
        let all = bound.job_bytes().saturating_mul(count(parallel.jobs));
        bound.bound_bytes = all
            .saturating_add(demand.index_bytes)
            .max(demand.finish_bytes)
            .saturating_add(demand.inputs_bytes)
            .saturating_add(demand.caches_bytes)
            .saturating_add(demand.push_bytes);
        bound
    }
}

/// The most bytes in a batch at one place.
#[derive(Debug, Clone, Copy)]
struct Passing {
    /// Of one row.
    one: u64,
    /// Of several.
    many: u64,
}

impl Passing {
    fn most(self) -> u64 {
        self.one.max(self.many)
    }

    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self { one: change(self.one), many: change(self.many) }
    }

    fn plus(self, bytes: u64) -> Self {
        self.map(|it| it.saturating_add(bytes))
    }

    /// What is held while these batches are cut by `rule`, and the batches that come of it: slices
    /// of at least half of what they keep in memory, or copies.
    fn cut(self, rule: &Batching) -> (u64, Self) {
        let kept = rule.bytes.saturating_mul(2);
        let copied = rule.bytes.max(self.many / 2);
        // A slice of one row may keep others, as long as they are no larger.
        let one = self.one.max(self.many.min(self.one.saturating_mul(2)));
        (kept.saturating_add(copied), Self { one, many: kept })
    }
}

/// `most`, half of it and so on, down to `least`.
fn halved(most: usize, least: usize) -> impl Iterator<Item = usize> {
    let least = least.clamp(1, most.max(1));
    std::iter::successors(Some(most.max(1)), move |n| (*n > least).then(|| (n / 2).max(least)))
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Bytes for people who have to compare two of them: never rounded to the same text.
fn exact(bytes: u64) -> String {
    format!("{bytes} bytes ({})", BinaryBytes(bytes))
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
