//! The memory bound: what a run may take, computed before it begins and kept by the edges.
//!
//! Invariant: every size here is a bound on what one partition at work may hold; their sum over all
//! jobs, and of what they share, is at most `memory`, or the run is refused. What the process itself takes (code, threads,
//! allocator) is the constant on top.

use indicatif::BinaryBytes;
use serde::Serialize;

use super::{PipelineError, remedy};
use crate::transforms::Batching;

/// Least size that batches are cut to, however little memory there is.
const LEAST_BATCH: u64 = 64 << 10;
/// Most that an edge holds: beyond it, more room only delays the moment at which a slow stage is felt.
const MOST_EDGE: u64 = 64 << 20;

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
    /// Finds the most parallel run that keeps the bound.
    ///
    /// # Errors
    /// [`PipelineError::Memory`], with what the least one takes.
    pub(super) fn of(demand: &Demand) -> Result<Self, PipelineError> {
        let cores = demand.cores.max(1);
        let wanted = demand.jobs.unwrap_or(cores).min(demand.partitions.max(1)).max(1);
        let least = if demand.jobs.is_some() { wanted } else { 1 };
        let processes = demand.hooks().map(|hook| hook.rule.workers).max().unwrap_or(1).max(1);
        for jobs in (least..=wanted).rev() {
            // All processes are to have something to do.
            for asked in halved(processes, processes.div_ceil(jobs)) {
                for workers in (1..=cores.div_ceil(jobs)).rev() {
                    if let Some(bound) = Self::with(demand, Parallel { jobs, workers, asked }) {
                        return Ok(bound);
                    }
                }
            }
        }
        for asked in halved(processes.div_ceil(least), 1) {
            let parallel = Parallel { jobs: least, workers: 1, asked };
            if let Some(bound) = Self::with(demand, parallel) {
                return Ok(bound);
            }
        }
        let needed = Self::least(demand, least);
        let jobs = match least {
            1 => "1 partition".to_owned(),
            n => format!("{n} partitions"),
        };
        Err(PipelineError::Memory {
            given: exact(demand.memory),
            jobs,
            needed: exact(needed),
            hint: remedy::hint(demand, least, needed),
        })
    }

    /// What so many jobs take that do as little at once as they can.
    pub(super) fn least(demand: &Demand, jobs: usize) -> u64 {
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

impl Demand {
    pub(super) fn hooks(&self) -> impl Iterator<Item = &HookDemand> {
        self.groups.iter().filter_map(|group| group.hook.as_ref())
    }
}

impl GroupDemand {
    /// How often the length of an edge counts in what it adds: what stands on the edge before a hook may
    /// be copied, and grow.
    fn edges(&self) -> u64 {
        if self.hook.is_some() { 4 + count(self.plain) } else { 1 }
    }

    fn grow(&self, bytes: u64) -> u64 {
        (bytes / 100).saturating_mul(self.growth_percent.max(100))
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
mod tests {
    use super::*;

    fn demand() -> Demand {
        Demand {
            memory: 1 << 30,
            jobs: None,
            cores: 2,
            partitions: 8,
            batch_bytes: 4 << 20,
            row_bytes: 64 << 20,
            groups: vec![GroupDemand { hook: None, plain: 1, growth_percent: 100 }],
            rejecting: Rejecting::default(),
            inputs_bytes: 1 << 20,
            reader_bytes: 1 << 20,
            writer_bytes: 64 << 20,
            index_bytes: 0,
            finish_bytes: 0,
            caches_bytes: 0,
            push_bytes: 0,
        }
    }

    #[test]
    fn what_is_held_at_the_end_counts_where_it_is_more_than_what_is_built_takes() {
        let bound = MemoryBound::of(&demand()).unwrap().bound_bytes;
        for (finish_bytes, want) in [(16 << 20, bound), (800 << 20, (800 << 20) + (1 << 20))] {
            let memory = MemoryBound::of(&Demand { finish_bytes, ..demand() }).unwrap();
            assert_eq!(memory.bound_bytes, want.max(bound), "{finish_bytes}");
        }
        assert!(MemoryBound::of(&Demand { finish_bytes: 2 << 30, ..demand() }).is_err());
    }

    #[test]
    fn what_writers_share_counts_once() {
        for jobs in [1, 2] {
            let two = Demand { jobs: Some(jobs), row_bytes: 8 << 20, ..demand() };
            let bound = |index_bytes| {
                let demand = Demand { index_bytes, ..two.clone() };
                let parallel = Parallel { jobs, workers: 1, asked: 1 };
                let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
                MemoryBound::sized(&demand, parallel, sizes).bound_bytes
            };
            assert_eq!(bound(32 << 20) - bound(0), 32 << 20, "{jobs} jobs");
        }
    }

    #[test]
    fn a_stage_that_rejects_rows_holds_those_that_stay_twice() {
        let plain = Demand { jobs: Some(1), cores: 1, row_bytes: 8 << 20, ..demand() };
        let needed = |rejecting| {
            let plain = plain.clone();
            let parallel = Parallel { jobs: 1, workers: 1, asked: 1 };
            let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
            MemoryBound::sized(&Demand { rejecting, ..plain }, parallel, sizes).bound_bytes
        };
        let none = Rejecting::default();
        for rejecting in [
            Rejecting { sources: true, ..none },
            Rejecting { transforms: true, ..none },
            Rejecting { dataset: true, ..none },
        ] {
            let more = needed(rejecting) - needed(none);
            assert!((8_388_600..=8 << 20).contains(&more), "{rejecting:?}: {more}");
        }
    }

    #[test]
    fn the_defaults_hold_two_jobs_with_large_rows() {
        for jobs in [None, Some(2)] {
            let bound = MemoryBound::of(&Demand { jobs, ..demand() }).unwrap();
            assert_eq!(bound.jobs, 2);
            assert!(bound.bound_bytes <= 1 << 30, "{bound:?}");
        }
    }

    /// A hook with the defaults, and a transform that makes twice as much behind it.
    fn hook(workers: usize, plain: usize) -> GroupDemand {
        let rule = Batching {
            rows: 1024,
            bytes: 4 << 20,
            answer_bytes: 32 << 20,
            workers,
            is_kept: false,
            multiplies: false,
        };
        let hook = Some(HookDemand { name: "h".to_owned(), rule });
        GroupDemand { hook, plain, growth_percent: if plain > 0 { 200 } else { 100 } }
    }

    #[test]
    fn the_defaults_hold_a_hook_with_several_workers() {
        for (workers, memory_mib, cores, want) in [
            (1, 1024, 2, (2, 1)),
            (2, 1024, 2, (2, 2)),
            (3, 1024, 2, (2, 3)),
            (8, 1024, 2, (2, 4)),
            (8, 1024, 1, (1, 8)),
            (8, 4096, 4, (4, 8)),
            // All of them cannot be kept busy, and yet the run is not refused.
            (200, 1024, 2, (1, 12)),
            (3, 460, 2, (1, 1)),
        ] {
            let groups = vec![hook(workers, 0)];
            let demand = Demand { groups, cores, memory: memory_mib << 20, ..demand() };
            let bound = MemoryBound::of(&demand).unwrap();
            let found = (bound.jobs, bound.hooks.first().unwrap().at_once);
            assert_eq!(found, want, "{workers} workers, {memory_mib} MiB");
            assert!(bound.bound_bytes <= demand.memory, "{bound:?}");
        }
    }

    #[test]
    fn what_a_hook_takes_is_what_it_may_hold() {
        let sized = |workers, plain, rejecting, row_bytes| {
            let demand =
                Demand { groups: vec![hook(workers, plain)], rejecting, row_bytes, ..demand() };
            let parallel = Parallel { jobs: 1, workers: 1, asked: workers };
            let sizes = Sizes { batch: 4 << 20, edge: 4 << 20 };
            let bound = MemoryBound::sized(&demand, parallel, sizes);
            (bound.edges_bytes >> 20, bound.transforms_bytes >> 20)
        };
        let none = Rejecting::default();
        let transforms = Rejecting { transforms: true, ..none };
        // Edges of what is read, asked and answered; 12 MiB are held to cut batches.
        assert_eq!(sized(1, 0, none, 1 << 10), (4 + 8 + 40, 12 + 32));
        assert_eq!(sized(3, 0, none, 1 << 10), (4 + 8 + 40, 12 + 96));
        assert_eq!(sized(1, 0, none, 64 << 20), (64 + 64 + 96, 12 + 32));
        assert_eq!(sized(3, 0, transforms, 64 << 20), (64 + 64 + 96, 12 + 96 + 160));
        assert_eq!(sized(1, 1, none, 64 << 20).0, 64 + 64 + 191);
        assert_eq!(sized(1, 1, none, 64 << 20).1, 12 + 32 + 191);
    }

    #[test]
    fn fewer_jobs_run_where_memory_is_short() {
        let bound = MemoryBound::of(&Demand { memory: 600 << 20, ..demand() }).unwrap();
        assert_eq!((bound.jobs, bound.workers), (1, 2));
        assert!(bound.bound_bytes <= 600 << 20);
    }

    #[test]
    fn a_memory_that_cannot_hold_what_was_asked_for_is_refused_with_both_sizes() {
        let memory = 600 << 20;
        let error = MemoryBound::of(&Demand { memory, jobs: Some(2), ..demand() }).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("629145600 bytes"), "{text}");
        assert!(text.contains("2 partitions"), "{text}");
        let needed: u64 =
            text.rsplit("may take ").next().unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(MemoryBound::of(&Demand { memory: needed, jobs: Some(2), ..demand() }).is_ok());
        assert!(
            MemoryBound::of(&Demand { memory: needed - 1, jobs: Some(2), ..demand() }).is_err()
        );
    }

    #[test]
    fn what_a_refusal_says_to_change_is_enough_and_no_more_than_that() {
        let hooks = |n: usize| {
            let named = |i: usize| {
                let mut group = hook(1, 0);
                group.hook.iter_mut().for_each(|hook| hook.name = format!("h{i}"));
                group
            };
            (1..=n).map(named).collect::<Vec<_>>()
        };
        let with = |change: &dyn Fn(&mut Demand)| {
            let mut demand = Demand { groups: hooks(3), ..demand() };
            change(&mut demand);
            demand
        };
        let hint = |demand: &Demand| MemoryBound::of(demand).unwrap_err().hint().unwrap();
        let least = |change: &dyn Fn(&mut Demand), mib: u64| {
            MemoryBound::of(&with(&|demand: &mut Demand| {
                change(demand);
                demand.memory = mib << 20;
            }))
            .is_ok()
        };
        let three: &dyn Fn(&mut Demand) = &|_| {};
        assert_eq!(
            hint(&with(three)),
            "raise `memory` to \"1030MiB\", or lower `dataset.max_row_bytes` to \"63MiB\", or lower \
             `answer_bytes` of `h1`, `h2`, `h3` to \"31MiB\""
        );
        assert!(least(three, 1030) && !least(three, 1029));
        let rows = |mib: u64| move |demand: &mut Demand| demand.row_bytes = mib << 20;
        assert!(least(&rows(63), 1024) && !least(&rows(64), 1024));
        let two = with(&|demand| (demand.groups, demand.jobs) = (hooks(1), Some(3)));
        let text = hint(&two);
        assert!(text.contains("or lower `jobs` to 2, or"), "{text}");
        let small = with(&|demand| demand.memory = 1 << 20);
        let text = hint(&small);
        assert!(text.contains("`answer_bytes` of hooks"), "{text}");
    }

    #[test]
    fn batches_shrink_before_parallelism_does_and_the_bound_is_kept() {
        for memory in (1..200).map(|mib| mib << 20) {
            let small = Demand { memory, row_bytes: 1 << 10, writer_bytes: 1 << 20, ..demand() };
            match MemoryBound::of(&small) {
                Ok(bound) => assert!(bound.bound_bytes <= memory, "{bound:?}"),
                Err(_) => assert!(memory < 8 << 20, "{memory}"),
            }
        }
    }
}
