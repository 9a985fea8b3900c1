//! The byte budget of one edge, and how full it is.
//!
//! Invariant: bytes held never exceed the capacity, unless by a single batch that is larger than it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Echo;

/// A capacity is counted in at most this many units, so that one fits the semaphore's `u32`.
const MAX_UNITS: usize = 1 << 28;

/// How full one edge is; clones look at the same edge.
#[derive(Debug, Clone)]
pub struct Gauge {
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct Budget {
    name: String,
    capacity_bytes: usize,
    unit_bytes: usize,
    n_units: usize,
    units: Arc<Semaphore>,
    queued_bytes: AtomicUsize,
    held_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Gauge {
    pub(super) fn new(name: &str, capacity_bytes: usize) -> Self {
        let unit_bytes = capacity_bytes.div_ceil(MAX_UNITS).max(1);
        let n_units = (capacity_bytes / unit_bytes).max(1);
        let budget = Budget {
            name: name.to_owned(),
            capacity_bytes,
            unit_bytes,
            n_units,
            units: Arc::new(Semaphore::new(n_units)),
            queued_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
        };
        Self { budget: Arc::new(budget) }
    }

    /// The edge's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.budget.name
    }

    /// Most bytes that batches may hold.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        self.budget.capacity_bytes
    }

    /// Bytes of the batches that wait to be received.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.budget.queued_bytes.load(Relaxed)
    }

    /// Bytes of the batches that wait, and of those received but not yet dropped or sent on.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.budget.held_bytes.load(Relaxed)
    }

    /// Most bytes that were ever held at once.
    #[must_use]
    pub fn peak_bytes(&self) -> usize {
        self.budget.peak_bytes.load(Relaxed)
    }

    /// Bytes queued in percent of the capacity; more than 100 while one larger batch waits.
    #[must_use]
    pub fn fill_percent(&self) -> usize {
        self.queued_bytes().saturating_mul(100) / self.capacity_bytes().max(1)
    }

    /// Waits until `bytes` fit, first come, first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives back its place in the queue.
    pub(super) async fn acquire(&self, bytes: usize) -> Result<Permit, Echo> {
        let budget = &self.budget;
        let n_units = bytes.div_ceil(budget.unit_bytes).clamp(1, budget.n_units);
        let n_units = u32::try_from(n_units).unwrap_or(u32::MAX);
        let units =
            Arc::clone(&budget.units).acquire_many_owned(n_units).await.map_err(|_| Echo)?;
        let held_bytes = budget.held_bytes.fetch_add(bytes, Relaxed) + bytes;
        budget.peak_bytes.fetch_max(held_bytes, Relaxed);
        budget.queued_bytes.fetch_add(bytes, Relaxed);
        Ok(Permit { bytes, is_queued: true, gauge: self.clone(), _units: units })
    }

    /// Wakes whoever waits in [`Gauge::acquire`]: nothing will be received any more.
    pub(super) fn close(&self) {
        self.budget.units.close();
    }
}

/// The share of an edge's capacity that one batch holds; dropping it makes room.
#[derive(Debug)]
pub struct Permit {
    bytes: usize,
    is_queued: bool,
    gauge: Gauge,
    _units: OwnedSemaphorePermit,
}

impl Permit {
    /// The batch was received and is worked on.
    pub(super) fn leave_queue(&mut self) {
        if self.is_queued {
            self.is_queued = false;
            self.gauge.budget.queued_bytes.fetch_sub(self.bytes, Relaxed);
        }
    }
}

impl Drop for Permit {
    /// Counts first; the units go back after this, so that the count never runs ahead of them.
    fn drop(&mut self) {
        self.leave_queue();
        self.gauge.budget.held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}
