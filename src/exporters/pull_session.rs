//! What all parts of a pull share: both places, how far it is, and how much is on its way at once.
//!
//! Invariant: bytes of files are held in memory only by who has a permit: at most `concurrency` pieces
//! of at most `part_bytes` each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::pull_error::PullError;
use super::task::{self, Leave};
use crate::remote::Remote;
use crate::storage::Storage;

type Result<T, E = PullError> = std::result::Result<T, E>;

/// How objects are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullOptions {
    /// Bytes that are fetched by one request.
    pub part_bytes: u64,
    /// Requests for bytes of files at once.
    pub concurrency: usize,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self { part_bytes: 8 << 20, concurrency: 16 }
    }
}

/// How far a pull is, in bytes.
#[derive(Debug, Default)]
pub struct PullLive {
    total: AtomicU64,
    there: AtomicU64,
    received: AtomicU64,
}

/// How far a pull was at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PullSeen {
    /// Bytes of all shards that are to be here.
    pub total_bytes: u64,
    /// Bytes of them that are here.
    pub there_bytes: u64,
    /// Bytes of files that came from the store, also those that were thrown away.
    pub received_bytes: u64,
}

impl PullLive {
    /// How far it is now.
    #[must_use]
    pub fn seen(&self) -> PullSeen {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PullSeen {
            total_bytes: get(&self.total),
            there_bytes: get(&self.there),
            received_bytes: get(&self.received),
        }
    }

    pub(super) fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn there(&self, bytes: u64) {
        self.there.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, bytes: u64) {
        self.there.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A pull that is at work.
#[derive(Debug)]
pub(super) struct PullSession {
    /// Where from.
    pub(super) remote: Remote,
    /// Where to.
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: PullOptions,
    pub(super) live: Arc<PullLive>,
    pub(super) stop: CancellationToken,
    leave: Leave,
}

impl PullSession {
    pub(super) fn new(
        remote: Remote,
        storage: Arc<dyn Storage>,
        options: PullOptions,
        live: Arc<PullLive>,
        stop: CancellationToken,
    ) -> Self {
        let leave = Leave::new(options.concurrency, stop.clone());
        Self { remote, storage, options, live, stop, leave }
    }

    /// Leave to hold a piece of a file in memory, until it is dropped.
    ///
    /// # Errors
    /// [`PullError::Stopped`] when the pull is to stop.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        self.leave.permit().await
    }

    /// Ends if the pull is to stop.
    pub(super) fn go_on(&self) -> Result<()> {
        self.leave.go_on()
    }
}

/// Runs blocking work of a pull on a thread of its own.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    task::on_thread(work).await
}
