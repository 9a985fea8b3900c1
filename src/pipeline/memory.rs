//! The memory bound: what a run may take, computed before it begins and kept by the edges.
//!
//! Invariant: every size here is a bound on what one partition at work may hold; their sum over all
//! jobs, and of what they share, is at most `memory`, or the run is refused. What the process itself takes (code, threads,
//! allocator) is the constant on top.

use indicatif::BinaryBytes;
use serde::Serialize;

use super::PipelineError;
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
}

/// What transforms that run together take.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupDemand {
    /// What they hold per byte they are given, in percent, multiplied up.
    pub(super) growth_percent: u64,
    /// How their batches are cut, where they say so.
    pub(super) batching: Option<Batching>,
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
        for jobs in (least..=wanted).rev() {
            for workers in (1..=cores.div_ceil(jobs)).rev() {
                if let Some(bound) = Self::with(demand, jobs, workers) {
                    return Ok(bound);
                }
            }
        }
        let needed = Self::sized(demand, least, 1, LEAST_BATCH, LEAST_BATCH).bound_bytes;
        let jobs = match least {
            1 => "1 partition".to_owned(),
            n => format!("{n} partitions"),
        };
        Err(PipelineError::Memory {
            given: exact(demand.memory),
            jobs,
            needed: exact(needed),
            hint: "raise `memory` to at least that, lower `dataset.max_row_bytes` or \
                   `dataset.intern_values`, or lower `jobs`"
                .to_owned(),
        })
    }

    /// The run with that many jobs and workers that has the largest batches and edges, if one fits.
    fn with(demand: &Demand, jobs: usize, workers: usize) -> Option<Self> {
        let mut batch = demand.batch_bytes.max(LEAST_BATCH);
        loop {
            let tight = Self::sized(demand, jobs, workers, batch, batch);
            if tight.bound_bytes <= demand.memory {
                // What is left over makes the edges longer.
                let spare = (demand.memory - tight.bound_bytes) / (2 * count(jobs));
                let most = batch.max(demand.row_bytes).max(MOST_EDGE);
                let edges = 1 + demand.groups.iter().map(GroupDemand::edges).sum::<u64>();
                let edge =
                    batch.max(demand.row_bytes).saturating_add(spare / edges.max(2)).min(most);
                let roomy = Self::sized(demand, jobs, workers, batch, edge);
                return Some(if roomy.bound_bytes <= demand.memory { roomy } else { tight });
            }
            if batch == LEAST_BATCH {
                return None;
            }
            batch = (batch / 2).max(LEAST_BATCH);
        }
    }

    fn sized(demand: &Demand, jobs: usize, workers: usize, batch: u64, edge: u64) -> Self {
        let piece = batch.max(demand.row_bytes);
        let copy = |is_made: bool, bytes: u64| if is_made { bytes } else { 0 };
        let Rejecting { sources, transforms, dataset } = demand.rejecting;
        let reader_bytes =
            demand.reader_bytes.saturating_add(piece).saturating_add(copy(sources, piece));
        // Without transforms batches only pass by: nothing is held twice.
        let (mut edges_bytes, mut transforms_bytes) = (edge.max(piece), 0_u64);
        let mut entering = piece;
        if demand.groups.is_empty() {
            edges_bytes = edges_bytes.saturating_add(edge.max(piece));
        }
        for group in &demand.groups {
            let grow = |bytes: u64| (bytes / 100).saturating_mul(group.growth_percent.max(100));
            let held = if let Some(rule) = group.batching {
                let cut = rule.bytes.max(demand.row_bytes);
                edges_bytes = edges_bytes.saturating_add(edge.max(cut));
                // Gathered with what the first and the last piece are slices of, and copied.
                let gathered = cut.saturating_mul(2).saturating_add(entering.saturating_mul(2));
                // Of each batch that is asked about there is a copy on its way, beside the answer.
                let answered = cut.saturating_add(rule.answer_bytes);
                entering = grow(answered);
                let asked = cut.saturating_add(rule.answer_bytes).saturating_add(entering);
                let asked = asked.saturating_add(copy(transforms, entering));
                gathered.saturating_add(asked.saturating_mul(count(rule.workers)))
            } else {
                entering = grow(entering);
                let in_flight =
                    entering.saturating_mul(2).saturating_add(copy(transforms, entering));
                in_flight.saturating_mul(count(workers))
            };
            transforms_bytes = transforms_bytes.saturating_add(held);
            edges_bytes = edges_bytes.saturating_add(edge.max(entering));
        }
        let writer_bytes = demand.writer_bytes.saturating_add(copy(dataset, entering));
        let job = reader_bytes
            .saturating_add(edges_bytes)
            .saturating_add(transforms_bytes)
            .saturating_add(writer_bytes);
        Self {
            memory_bytes: demand.memory,
            bound_bytes: job
                .saturating_mul(count(jobs))
                .saturating_add(demand.index_bytes)
                .max(demand.finish_bytes)
                .saturating_add(demand.inputs_bytes),
            jobs,
            workers,
            batch_bytes: batch,
            edge_bytes: edge,
            inputs_bytes: demand.inputs_bytes,
            reader_bytes,
            edges_bytes,
            transforms_bytes,
            writer_bytes,
            index_bytes: demand.index_bytes,
            finish_bytes: demand.finish_bytes,
        }
    }
}

impl GroupDemand {
    /// Edges that it adds.
    fn edges(&self) -> u64 {
        1 + u64::from(self.batching.is_some())
    }
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
            groups: vec![GroupDemand { growth_percent: 100, batching: None }],
            rejecting: Rejecting::default(),
            inputs_bytes: 1 << 20,
            reader_bytes: 1 << 20,
            writer_bytes: 64 << 20,
            index_bytes: 0,
            finish_bytes: 0,
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
                MemoryBound::sized(&demand, jobs, 1, 4 << 20, 4 << 20).bound_bytes
            };
            assert_eq!(bound(32 << 20) - bound(0), 32 << 20, "{jobs} jobs");
        }
    }

    #[test]
    fn a_stage_that_rejects_rows_holds_those_that_stay_twice() {
        let plain = Demand { jobs: Some(1), cores: 1, row_bytes: 8 << 20, ..demand() };
        let needed = |rejecting| {
            let plain = plain.clone();
            MemoryBound::sized(&Demand { rejecting, ..plain }, 1, 1, 4 << 20, 4 << 20).bound_bytes
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
