//! What one stage has done, and what it waited for.
//!
//! A meter is shared by everything that is this stage: its workers, and the stages of the same name
//! in other partitions. Times are sums over all of them, so they can exceed the time that passed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts of one stage.
#[derive(Debug, Default)]
pub struct Meter {
    name: String,
    rows_in: AtomicU64,
    rows_out: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    busy_nanos: AtomicU64,
    input_nanos: AtomicU64,
    output_nanos: AtomicU64,
}

/// What a [`Meter`] says at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Rows received.
    pub rows_in: u64,
    /// Rows sent.
    pub rows_out: u64,
    /// Bytes of memory of the batches received.
    pub bytes_in: u64,
    /// Bytes of memory of the batches sent.
    pub bytes_out: u64,
    /// Time at work.
    pub busy: Duration,
    /// Time waiting for something to do.
    pub waiting_for_input: Duration,
    /// Time waiting for room behind the stage, or for its turn to send.
    pub waiting_for_output: Duration,
}

impl Meter {
    /// A meter for the stage of this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The stage's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does `work` and counts the time as busy. It must not wait for an edge.
    pub fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let done = work();
        self.was_busy(since.elapsed());
        done
    }

    /// Counts time at work.
    pub fn was_busy(&self, time: Duration) {
        self.busy_nanos.fetch_add(nanos(time), Relaxed);
    }

    /// Counts time without anything to do.
    pub fn waited_for_input(&self, time: Duration) {
        self.input_nanos.fetch_add(nanos(time), Relaxed);
    }

    /// Counts time without room for what was done.
    pub fn waited_for_output(&self, time: Duration) {
        self.output_nanos.fetch_add(nanos(time), Relaxed);
    }

    /// Counts a batch received. A metered inlet does it by itself.
    pub fn entered(&self, n_rows: usize, bytes: usize) {
        self.rows_in.fetch_add(n_rows as u64, Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a batch sent. A metered outlet does it by itself.
    pub fn left(&self, n_rows: usize, bytes: usize) {
        self.rows_out.fetch_add(n_rows as u64, Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Relaxed);
    }

    /// What has been counted so far. Each number is right; together they are of about one moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Relaxed));
        Snapshot {
            rows_in: self.rows_in.load(Relaxed),
            rows_out: self.rows_out.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            bytes_out: self.bytes_out.load(Relaxed),
            busy: time(&self.busy_nanos),
            waiting_for_input: time(&self.input_nanos),
            waiting_for_output: time(&self.output_nanos),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
