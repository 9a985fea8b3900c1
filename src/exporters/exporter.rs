//! A push to one place while it is at work.
//!
//! Leaves out: what goes out while the dataset is built (`follow`), and the order of its objects
//! (`push`).
//!
//! Invariants:
//! 1. It holds the lock of its journal until it is dropped, however it ended.
//! 2. What stands in the place of the dataset's sentinel is noted before the first object goes out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::drop::Dropper;
use super::error::Result;
use super::journal::Journal;
use super::others::Others;
use super::presence::Presence;
use super::push::{Complete, PushReport};
use super::session::{PushLive, PushOptions, Session, on_thread};
use super::steps::Work;
use super::wire::Wire;
use crate::dataset::record::ShardEntry;
use crate::dataset::{Home, Workplace};
use crate::remote::Remote;
use crate::storage::Storage;

/// A push of the dataset of one home to one place.
#[derive(Debug)]
pub struct Exporter {
    session: Arc<Session>,
    /// The folder that holds all cache keys.
    above: Wire,
    home: Home,
    began: Instant,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.session.close();
    }
}

impl Exporter {
    /// Takes the journal. `live` is told how far it is, `stop` lets it end.
    ///
    /// # Errors
    /// [`super::PushError::Busy`]; the place can only be read; the disk's.
    pub async fn open(
        storage: Arc<dyn Storage>,
        home: Home,
        remote: Remote,
        options: PushOptions,
        live: Arc<PushLive>,
        stop: CancellationToken,
    ) -> Result<Self> {
        remote.expect_writable()?;
        let began = Instant::now();
        let folder = format!("{}/{}", home.name(), home.cache_key());
        let wire = Wire::new(remote.clone(), folder.clone());
        let above = Wire::new(remote.clone(), home.name().to_owned());
        let (disk, place, url) = (Arc::clone(&storage), home.clone(), remote.url().to_owned());
        let journal = on_thread(move || Journal::open(&disk, &place, &url)).await?;
        let is_resumed = journal.facts().note().is_some();
        let wires = (wire, Presence::new(remote, folder, &home, is_resumed));
        let session = Arc::new(Session::new(storage, wires, journal, options, live, stop));
        Ok(Self { session, above, home, began })
    }

    /// Lets the rows of each shard go here as soon as the shard is in the store; `place` is the dataset's,
    /// with its lock.
    pub fn drop_local(&self, place: Arc<Workplace>) {
        // Who asks twice asks for the same.
        self.session.dropper.get_or_init(|| Arc::new(Dropper::new(place)));
    }

    /// Looks at the place before a build whose shards are going to follow; `built` are those that are
    /// built already.
    ///
    /// # Errors
    /// The store cannot be reached, something else stands in the place of the sentinel, or the rows of a
    /// shard are neither here nor there.
    pub async fn expect_shards(&self, built: &[ShardEntry]) -> Result<()> {
        let work = Work { session: &self.session, home: &self.home };
        work.note(None).await?;
        work.remote_shards(built, false).await
    }

    /// Pushes what is missing of the dataset, which is complete now; before its sentinel goes out, it is
    /// made sure that no `others` contradict it.
    ///
    /// # Errors
    /// As [`super::Push::run`].
    pub async fn finish(&self, others: Option<&Arc<Others>>) -> Result<PushReport> {
        let (storage, dir) = (Arc::clone(&self.session.storage), self.home.dir().to_owned());
        let complete = on_thread(move || Complete::read(&*storage, &dir)).await?;
        self.push(&complete, others).await
    }

    /// Ends a push that does not come to its end: nobody has to wait for it any more.
    pub async fn withdraw(&self) {
        self.session.presence.withdraw().await;
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn above(&self) -> &Wire {
        &self.above
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    pub(super) fn n_requests(&self) -> u64 {
        let presence = self.session.presence.n_requests();
        self.session.wire.n_requests() + self.above.n_requests() + presence
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}
