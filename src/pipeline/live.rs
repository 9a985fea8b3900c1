//! What can be seen of a run while it goes on.
//!
//! Counters are read by whoever draws a progress bar; an [`Observer`] is told of each commit. Neither
//! can change what is written.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::batch::Batch;
use crate::exporters::{PushLive, PushSeen};
use crate::graph::Gauge;
use crate::transforms::Transform;

/// What a run tells while it goes on. Called from the threads that do the work: be quick.
pub trait Observer: Send + Sync {
    /// A commit is durable, or a shard sealed, or a partition finished.
    fn event(&self, event: &Event);
}

/// One step that survives whatever happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A segment is durable.
    Committed {
        /// Index of the partition.
        partition: usize,
        /// Rows of the partition that are durable.
        rows: u64,
    },
    /// A shard is sealed and in place.
    Sealed {
        /// Index of the partition.
        partition: usize,
        /// The shard's id.
        shard: String,
        /// Its rows.
        rows: u64,
        /// Bytes of its files.
        bytes: u64,
    },
    /// A partition was taken over from another run.
    Adopted {
        /// Index of the partition.
        partition: usize,
        /// Its rows.
        rows: u64,
    },
    /// A partition has its record.
    Finished {
        /// Index of the partition.
        partition: usize,
        /// Its rows.
        rows: u64,
    },
}

/// Counters of a run.
#[derive(Debug, Default)]
pub struct Live {
    /// Inputs that are listed, and whether more are.
    listed: AtomicU64,
    is_listing: AtomicBool,
    total_bytes: AtomicU64,
    done_bytes: AtomicU64,
    rows: AtomicU64,
    rejected: AtomicU64,
    partitions: AtomicU64,
    partitions_done: AtomicU64,
    /// The edges of the partitions at work, by index.
    edges: Mutex<BTreeMap<usize, Vec<Gauge>>>,
    /// Those whose answers are kept count what was known.
    hooks: Mutex<Vec<Arc<dyn Transform>>>,
    /// What is pushed meanwhile.
    push: Mutex<Option<Arc<PushLive>>>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Inputs that are listed, while more are: until then nobody knows how much there is to do.
    pub listed: Option<u64>,
    /// Bytes of the inputs that this run has to read.
    pub total_bytes: u64,
    /// About how many of them hold rows that came to an end: were written, dropped or rejected.
    pub done_bytes: u64,
    /// Rows handed to writers.
    pub rows: u64,
    /// Rejects written down.
    pub rejected: u64,
    /// Partitions to build.
    pub partitions: u64,
    /// Partitions built.
    pub partitions_done: u64,
    /// Bytes that wait on edges.
    pub queued_bytes: u64,
    /// Bytes that the open edges may hold.
    pub queue_bytes: u64,
    /// Rows that hooks with a feature cache were to be asked about.
    pub asked: u64,
    /// Rows among them whose answers were known.
    pub known: u64,
    /// What is pushed meanwhile.
    pub push: Option<PushSeen>,
}

impl Live {
    /// The counters now.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |bytes: fn(&Gauge) -> usize| {
            let all: usize = edges.values().flatten().map(bytes).sum();
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = hooks.iter().filter_map(|hook| hook.asked());
        let (asked, known) = asked.fold((0, 0), |(n, m), it| (n + it.rows, m + it.known));
        let is_listing = self.is_listing.load(Ordering::Relaxed);
        Seen {
            listed: is_listing.then(|| get(&self.listed)),
            total_bytes: get(&self.total_bytes),
            done_bytes: get(&self.done_bytes),
            rows: get(&self.rows),
            rejected: get(&self.rejected),
            partitions: get(&self.partitions),
            partitions_done: get(&self.partitions_done),
            queued_bytes: sum(Gauge::queued_bytes),
            queue_bytes: sum(Gauge::capacity_bytes),
            asked,
            known,
            push: self
                .push
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .map(|it| it.seen()),
        }
    }

    /// So many inputs are listed, and more are.
    pub(super) fn list(&self, inputs: u64) {
        self.listed.store(inputs, Ordering::Relaxed);
        self.is_listing.store(true, Ordering::Relaxed);
    }

    /// Says how much there is to do, when all inputs are listed.
    pub fn begin(&self, partitions: u64, total_bytes: u64) {
        self.partitions.store(partitions, Ordering::Relaxed);
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
        self.is_listing.store(false, Ordering::Relaxed);
    }

    /// Counts what is pushed.
    pub(super) fn watch_push(&self, push: Arc<PushLive>) {
        *self.push.lock().unwrap_or_else(PoisonError::into_inner) = Some(push);
    }

    /// Counts what of these was known.
    pub(super) fn watch_hooks(&self, transforms: &[Arc<dyn Transform>]) {
        *self.hooks.lock().unwrap_or_else(PoisonError::into_inner) = transforms.to_vec();
    }

    /// Counts input bytes whose rows came to an end.
    pub fn add_done(&self, bytes: u64) {
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts rows handed to a writer.
    pub fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// Counts rejects that a writer wrote down.
    pub fn add_rejected(&self, rejected: u64) {
        self.rejected.fetch_add(rejected, Ordering::Relaxed);
    }

    /// Looks at the edges of a partition while it is at work.
    pub(super) fn watch(&self, partition: usize, edges: Vec<Gauge>) {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).insert(partition, edges);
    }

    /// Looks at them no longer; `finished` counts the partition as built.
    pub(super) fn unwatch(&self, partition: usize, finished: bool) {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).remove(&partition);
        if finished {
            self.partitions_done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The input bytes of a partition on their way from the reader to the writer. Bytes of memory stand for
/// bytes of input; the end of the partition sets it right.
pub(super) struct Underway {
    live: Arc<Live>,
    state: Mutex<State>,
}

struct State {
    /// Bytes that were not read yet.
    left: u64,
    read: VecDeque<Read>,
}

/// A batch that was read.
struct Read {
    input: u32,
    /// The source rows that it began and ended with.
    first: u64,
    last: u64,
    bytes: u64,
    /// Those that are done.
    done: u64,
}

impl Underway {
    pub(super) fn new(live: Arc<Live>, bytes: u64) -> Self {
        Self { live, state: Mutex::new(State { left: bytes, read: VecDeque::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch was read.
    pub(super) fn read(&self, batch: &Batch) {
        let mut state = self.state();
        let bytes = u64::try_from(batch.memory_bytes()).unwrap_or(u64::MAX).min(state.left);
        state.left -= bytes;
        if let Some((input, last)) = last_row(batch) {
            let first = batch.provenance.position(0).filter(|at| at.input == input);
            let first = first.map_or(last, |at| at.source_row);
            state.read.push_back(Read { input, first, last, bytes, done: 0 });
        }
    }

    /// A batch was written.
    pub(super) fn written(&self, batch: &Batch) {
        let Some(written) = last_row(batch) else { return };
        let mut state = self.state();
        while let Some(read) = state.read.front_mut()
            && (read.input, read.first) <= written
        {
            let is_whole = (read.input, read.last) <= written;
            let share = if is_whole {
                read.bytes
            } else {
                let (n_written, n_rows) = (written.1 - read.first, read.last - read.first + 1);
                let share = u128::from(read.bytes) * u128::from(n_written) / u128::from(n_rows);
                u64::try_from(share).unwrap_or(read.bytes)
            };
            self.live.add_done(share.saturating_sub(read.done));
            read.done = share.max(read.done);
            if !is_whole {
                return;
            }
            state.read.pop_front();
        }
    }

    /// The partition has ended.
    pub(super) fn end(&self) {
        let mut state = self.state();
        let read: u64 = state.read.drain(..).map(|read| read.bytes - read.done).sum();
        self.live.add_done(read + std::mem::take(&mut state.left));
    }
}

/// The last source row of a batch: its input and its number there.
fn last_row(batch: &Batch) -> Option<(u32, u64)> {
    let row = batch.provenance.n_rows().checked_sub(1);
    let row = row.and_then(|row| batch.provenance.position(row));
    let row = row.map(|at| (at.input, at.source_row));
    let event = batch.events.last().map(|event| (event.input, event.source_row));
    row.max(event)
}

/// Most resident memory of this process so far, in bytes, where the system tells.
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    status_kib("VmHWM:").map(|kib| kib * 1024)
}

/// Resident memory of this process now, in bytes, where the system tells.
#[must_use]
pub fn rss_bytes() -> Option<u64> {
    status_kib("VmRSS:").map(|kib| kib * 1024)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kernel's own account of this process is no input"
)]
fn status_kib(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use arrow_array::{RecordBatch, RecordBatchOptions};
    use arrow_schema::Schema;

    use super::*;
    use crate::batch::{Event as Gone, Outcome};

    fn batch(source_row: u64, n_rows: usize) -> Batch {
        let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
        let rows = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
        Batch::of_rows(rows.unwrap(), source_row)
    }

    #[test]
    fn bytes_are_done_when_their_rows_came_to_an_end() {
        let live = Arc::new(Live::default());
        let partition = Underway::new(Arc::clone(&live), 1 << 20);
        let done = || live.seen().done_bytes;
        let (first, second) = (batch(0, 4), batch(4, 4));
        partition.read(&first);
        partition.read(&second);
        assert_eq!(done(), 0, "nothing was written");
        let each = first.memory_bytes() as u64;
        assert!(each > 0);
        partition.written(&batch(0, 3));
        assert_eq!(done(), each / 2, "what is before the last row that was written");
        partition.written(&batch(3, 2));
        assert_eq!(done(), each);
        let mut dropped = batch(0, 0);
        let (before_row, input, stage) = (0, 0, 1);
        let (path, outcome) = (Vec::new(), Outcome::Dropped);
        dropped.events.push(Gone { before_row, input, source_row: 7, path, stage, outcome });
        partition.written(&dropped);
        assert_eq!(done(), 2 * each);
        partition.read(&batch(8, 1));
        partition.end();
        assert_eq!(done(), 1 << 20);
    }
}
