//! What all parts of a push share: the place, the journal, and how much is on its way at once.
//!
//! Invariants:
//! 1. Bytes of files are held in memory only by who has a permit: at most `concurrency` pieces of at
//!    most `part_bytes` each.
//! 2. The journal is written on blocking threads, a line at a time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::buffers::Buffers;
use super::drop::Dropper;
use super::error::{PushError, Result};
use super::journal::Journal;
use super::presence::Presence;
use super::task::{self, Leave};
use super::throttle::Throttle;
use super::wire::Wire;
use crate::storage::Storage;

/// How objects are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushOptions {
    /// Bytes of a part; files up to this size are sent whole.
    pub part_bytes: u64,
    /// Requests with bytes of files at once.
    pub concurrency: usize,
    /// Bytes per second, over all requests.
    pub bandwidth: Option<u64>,
    /// Whether objects that are others are replaced, and another generation's sentinel too.
    pub replace: bool,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self { part_bytes: 16 << 20, concurrency: 8, bandwidth: None, replace: false }
    }
}

/// How far a push is. Counts only grow.
#[derive(Debug, Default)]
pub struct PushLive {
    total_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    sent_objects: AtomicU64,
    skipped_bytes: AtomicU64,
    skipped_objects: AtomicU64,
}

/// How far a push was at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PushSeen {
    /// Bytes of everything that has to be there.
    pub total_bytes: u64,
    /// Bytes that were sent, those of parts among them.
    pub sent_bytes: u64,
    /// Objects that were sent.
    pub sent_objects: u64,
    /// Bytes that were there already, of objects and of parts.
    pub skipped_bytes: u64,
    /// Objects that were there already.
    pub skipped_objects: u64,
}

impl PushLive {
    /// How far it is now.
    #[must_use]
    pub fn seen(&self) -> PushSeen {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PushSeen {
            total_bytes: get(&self.total_bytes),
            sent_bytes: get(&self.sent_bytes),
            sent_objects: get(&self.sent_objects),
            skipped_bytes: get(&self.skipped_bytes),
            skipped_objects: get(&self.skipped_objects),
        }
    }

    pub(super) fn expect(&self, bytes: u64) {
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sent_object(&self) {
        self.sent_objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self, bytes: u64) {
        self.skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn skipped_object(&self, bytes: u64) {
        self.skipped(bytes);
        self.skipped_objects.fetch_add(1, Ordering::Relaxed);
    }
}

/// A push that is at work.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) wire: Wire,
    pub(super) options: PushOptions,
    pub(super) live: Arc<PushLive>,
    pub(super) throttle: Throttle,
    pub(super) buffers: Arc<Buffers>,
    pub(super) presence: Presence,
    pub(super) stop: CancellationToken,
    /// Drops rows here that are there, if that was asked for.
    pub(super) dropper: OnceLock<Arc<Dropper>>,
    /// Until the push has ended.
    journal: Arc<Mutex<Option<Journal>>>,
    /// Shards that this session has put in their places, with their sentinels, and records.
    pushed: Mutex<BTreeSet<String>>,
    leave: Leave,
}

impl Session {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        (wire, presence): (Wire, Presence),
        journal: Journal,
        options: PushOptions,
        live: Arc<PushLive>,
        stop: CancellationToken,
    ) -> Self {
        let leave = Leave::new(options.concurrency, stop.clone());
        let (throttle, journal) =
            (Throttle::new(options.bandwidth), Arc::new(Mutex::new(Some(journal))));
        let (dropper, pushed) = (OnceLock::new(), Mutex::default());
        Self {
            storage,
            wire,
            options,
            live,
            throttle,
            buffers: Arc::default(),
            presence,
            stop,
            dropper,
            journal,
            pushed,
            leave,
        }
    }

    /// Does something with the journal, on a thread that may wait for the disk.
    pub(super) async fn journal<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let journal = Arc::clone(&self.journal);
        on_thread(move || {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            work(journal.as_mut().ok_or(PushError::Stopped)?)
        })
        .await
    }

    /// Says that this push is at work, before it changes anything or relies on what it has found; waits
    /// until nothing is removed there.
    pub(super) async fn announce(&self) -> Result<()> {
        self.presence.announce(&self.stop).await
    }

    /// Remembers that a shard or a record is in its place.
    pub(super) fn remember(&self, name: &str) {
        let mut pushed = self.pushed.lock().unwrap_or_else(PoisonError::into_inner);
        pushed.insert(name.to_owned());
    }

    /// Whether this session has put the shard or record in its place.
    pub(super) fn remembers(&self, name: &str) -> bool {
        self.pushed.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Gives the journal back: what is still under way, because something else went wrong, finds none.
    pub(super) fn close(&self) {
        drop(self.journal.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Leave to hold a piece of a file in memory, until it is dropped.
    ///
    /// # Errors
    /// [`PushError::Stopped`] when the push is to stop.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        self.leave.permit().await
    }

    /// Ends if the push is to stop.
    pub(super) fn go_on(&self) -> Result<()> {
        self.leave.go_on()
    }
}

/// Runs blocking work of a push on a thread of its own.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    task::on_thread(work).await
}
