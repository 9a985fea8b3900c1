//! What others have finished of a dataset at a place that several machines share, and what of it comes
//! here: all of a partition but the rows themselves.
//!
//! Leaves out: what is decided about a partition (`dataset::choice`), and who asks (`pipeline`).
//!
//! Invariants:
//! 1. Looking costs the store a bounded share of the time: what stands there is listed again only
//!    [`LEAST`] after the last time, and [`SHARE`] times as long after as listing took.
//! 2. What comes is compared with the sums of the shard, whose sentinel was there, before it counts.
//! 3. A store that fails while it is looked at again is no reason to stop: what is not known to be
//!    finished is built here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::error::{PushError, Result};
use super::exporter::Exporter;
use super::pull_error::PullError;
use super::pull_file::{self, Wanted};
use super::pull_session::{self, PullLive, PullOptions, PullSession};
use super::session::{Session, on_thread};
use crate::dataset::choice::{SeenRecord, contradict};
use crate::dataset::home::PARTITIONS;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::{Record, RecordName, ShardEntry};
use crate::dataset::{DatasetError, Home, Workplace};
use crate::remote::{Remote, RemoteStorage};
use crate::shard::{Promise, layout, place_remote};
use crate::storage::Storage;

/// How long a listing counts at least.
const LEAST: Duration = Duration::from_secs(2);

/// How many times as long as it took.
const SHARE: u32 = 20;

/// How what is taken over is fetched. Files are small, but for keys.
const OPTIONS: PullOptions = PullOptions { part_bytes: 1 << 20, concurrency: 16 };

/// The records at one place.
#[derive(Debug, Default)]
struct Listing {
    by_slot: BTreeMap<String, BTreeSet<RecordName>>,
    at: Option<Instant>,
    took: Duration,
    /// Whether nobody has been told of it.
    is_new: bool,
}

impl Listing {
    fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.duration_since(at) >= LEAST.max(self.took * SHARE))
    }
}

/// What others have finished.
#[derive(Debug)]
pub struct Others {
    session: Arc<Session>,
    pull: Arc<PullSession>,
    home: Home,
    there: RemoteStorage,
    /// The folder of the cache key there.
    dir: PathBuf,
    /// Files of a shard that stay there.
    left_there: BTreeSet<String>,
    /// The records of the generation that is complete there.
    current: BTreeSet<String>,
    listing: Mutex<Listing>,
    /// Held while a shard is put in its place: two partitions may have the same.
    placing: Mutex<()>,
}

impl Others {
    /// Most bytes that are held in memory of what comes.
    pub const BYTES: u64 = OPTIONS.part_bytes * OPTIONS.concurrency as u64;

    /// Looks at the place `remote`, which `exporter` pushes to. The files `left_there` of shards stay
    /// there.
    ///
    /// # Errors
    /// The place cannot be listed, or the generation that is complete there cannot be read.
    pub async fn open(
        exporter: &Exporter,
        remote: Remote,
        left_there: BTreeSet<String>,
        stop: CancellationToken,
    ) -> Result<Self> {
        let session = Arc::clone(exporter.session());
        let there = RemoteStorage::new(remote.clone(), Handle::current());
        let home = exporter.home().clone();
        let dir = there.root().join(home.name()).join(home.cache_key());
        let (asked, at) = (there.clone(), dir.clone());
        let current = on_thread(move || Ok(Manifest::current(&asked, &at)?)).await?;
        let names = current.into_iter().flat_map(|(_, manifest)| manifest.partitions);
        let current = names.map(|partition| partition.record).collect();
        let disk = Arc::clone(&session.storage);
        let live = Arc::new(PullLive::default());
        let pull = Arc::new(PullSession::new(remote, disk, OPTIONS, live, stop));
        let it = Self {
            session,
            pull,
            home,
            there,
            dir,
            left_there,
            current,
            listing: Mutex::default(),
            placing: Mutex::default(),
        };
        let began = Instant::now();
        let by_slot = it.list().await?;
        let (at, took, is_new) = (Some(began), began.elapsed(), true);
        *it.listing() = Listing { by_slot, at, took, is_new };
        Ok(it)
    }

    /// The records of the generation that was complete there.
    #[must_use]
    pub fn current(&self) -> &BTreeSet<String> {
        &self.current
    }

    /// Lists what is finished there, unless that was done a moment ago; says whether there may be news.
    pub async fn look(&self) -> bool {
        let began = Instant::now();
        {
            let mut listing = self.listing();
            if !listing.is_due(began) {
                return std::mem::take(&mut listing.is_new);
            }
        }
        let found = self.list().await;
        let mut listing = self.listing();
        (listing.at, listing.took) = (Some(began), began.elapsed());
        match found {
            Ok(by_slot) => {
                listing.by_slot = by_slot;
                true
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "what others have finished is not known");
                false
            }
        }
    }

    /// Whether there was a record of the slot when that was last looked at.
    #[must_use]
    pub fn has_slot(&self, slot: &str) -> bool {
        self.listing().by_slot.contains_key(slot)
    }

    /// Whether the record was there when that was last looked at.
    #[must_use]
    pub fn has_record(&self, name: &RecordName) -> bool {
        self.listing().by_slot.get(name.slot()).is_some_and(|names| names.contains(name))
    }

    /// The records of a slot that are there, and what they say. One that cannot be read is none.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub async fn seen(self: &Arc<Self>, slot: &str) -> Result<Vec<SeenRecord>> {
        let names = self.listing().by_slot.get(slot).cloned().unwrap_or_default();
        let it = Arc::clone(self);
        let read = move || {
            let seen = names.into_iter().filter_map(|name| match it.read(&name) {
                Ok((record, has_shards)) => Some(SeenRecord { name, record, has_shards }),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(
                        record = name.as_str(),
                        error, "what somebody else finished is not known"
                    );
                    None
                }
            });
            Ok(seen.collect())
        };
        on_thread(read).await
    }

    /// Brings what is kept here of the shards of a record; whether all of it is here. Those shards, and
    /// the record, are not sent by this push.
    ///
    /// # Errors
    /// The disk's; it was stopped.
    ///
    /// # Durability
    /// On `Ok(true)` the shards survive a power cut.
    pub async fn bring(
        self: &Arc<Self>,
        place: &Arc<Workplace>,
        seen: &SeenRecord,
    ) -> Result<bool> {
        // What is seen from now on stays there.
        self.session.announce().await?;
        let staging = self.home.work().join("pull").join(seen.name.slot());
        let shards: Vec<_> = seen.record.shards.clone();
        let shards = shards.into_iter().map(|shard| {
            let (it, staging) = (Arc::clone(self), staging.clone());
            async move { it.shard(&staging, &shard).await }
        });
        let brought = stream::iter(shards).buffer_unordered(4).try_collect::<()>().await;
        let (place, folder) = (Arc::clone(place), staging.clone());
        on_thread(move || Ok(place.discard(&folder)?)).await?;
        match brought {
            Ok(()) => {}
            Err(PullError::Storage(error)) => return Err(error.into()),
            Err(PullError::Stopped) => return Err(PushError::Stopped),
            Err(PullError::Runtime(error)) => return Err(PushError::Runtime(error)),
            Err(error) => {
                let (record, error) = (seen.name.as_str(), &error as &dyn std::error::Error);
                warn!(record, error, "what somebody else finished cannot be taken over");
                return Ok(false);
            }
        }
        for shard in &seen.record.shards {
            self.session.remember(&shard.id);
        }
        self.session.remember(seen.name.as_str());
        Ok(true)
    }

    /// The error for two records that contradict each other.
    #[must_use]
    pub fn contradiction(&self, one: &RecordName, other: &RecordName) -> PushError {
        let show = |name: &RecordName| self.session.wire.show(&below(name));
        PushError::Contradiction { one: show(one), other: other.as_str().to_owned() }
    }

    /// Checks that nobody says anything else about a partition of `manifest`, whose records are there.
    /// Of two machines that end with different rows, at least the one that looks later sees it.
    pub(super) async fn expect_agreement(self: &Arc<Self>, manifest: &Manifest) -> Result<()> {
        let by_slot = self.list().await?;
        let ours = manifest.partitions.iter().filter_map(|line| RecordName::parse(&line.record));
        for ours in ours.filter(|ours| !self.current.contains(ours.as_str())) {
            let rivals = by_slot.get(ours.slot()).into_iter().flatten();
            for rival in rivals.filter(|rival| **rival != ours) {
                let (it, rival_name, name) = (Arc::clone(self), rival.clone(), ours.clone());
                let contradicts = on_thread(move || {
                    let (theirs, has_shards) = match it.read(&rival_name) {
                        Ok(read) => read,
                        Err(PushError::Dataset(error @ DatasetError::Damaged { .. })) => {
                            let (record, error) =
                                (rival_name.as_str(), &error as &dyn std::error::Error);
                            warn!(record, error, "what somebody else finished is not known");
                            return Ok(false);
                        }
                        Err(error) => return Err(error),
                    };
                    let storage = &*it.session.storage;
                    let (dir, key) = (it.home.dir(), it.home.cache_key());
                    let ours = Record::read(storage, dir, key, &name)?;
                    Ok(has_shards && contradict(&ours, &theirs))
                });
                if contradicts.await? {
                    return Err(self.contradiction(rival, &ours));
                }
            }
        }
        Ok(())
    }

    async fn list(&self) -> Result<BTreeMap<String, BTreeSet<RecordName>>> {
        let found = self.session.wire.list(PARTITIONS, |_| true).await?;
        let mut by_slot: BTreeMap<String, BTreeSet<RecordName>> = BTreeMap::new();
        let names = found.keys().filter_map(|name| name.rsplit_once('/'));
        for name in names.filter_map(|(_, name)| RecordName::parse(name)) {
            by_slot.entry(name.slot().to_owned()).or_default().insert(name);
        }
        Ok(by_slot)
    }

    /// A record that is there, and whether its shards are.
    fn read(&self, name: &RecordName) -> Result<(Record, bool)> {
        let record = Record::read(&self.there, &self.dir, self.home.cache_key(), name)?;
        for shard in &record.shards {
            let sentinel = layout::sealed(&self.dir, &shard.id).join(layout::COMPLETE);
            if self.there.stat(&sentinel)?.is_none() {
                return Ok((record, false));
            }
        }
        Ok((record, true))
    }

    /// Brings what is kept of a shard by way of the folder `staging`, unless it is here.
    async fn shard(self: &Arc<Self>, staging: &Path, entry: &ShardEntry) -> Result<(), PullError> {
        let (it, id) = (Arc::clone(self), entry.id.clone());
        if pull_session::on_thread(move || it.is_here(&id)).await? {
            return Ok(());
        }
        let (it, folder, entry) = (Arc::clone(self), staging.join(&entry.id), entry.clone());
        let staged = folder.clone();
        let (promise, files) = pull_session::on_thread(move || it.wanted(&folder, &entry)).await?;
        let fetched = files.into_iter().map(|wanted| {
            let pull = Arc::clone(&self.pull);
            async move { pull_file::fetch(&pull, &wanted).await }
        });
        stream::iter(fetched).buffer_unordered(OPTIONS.concurrency).try_collect::<()>().await?;
        let it = Arc::clone(self);
        pull_session::on_thread(move || {
            let storage = &*it.session.storage;
            storage.sync_dir(&staged)?;
            let url = it.session.wire.show(&format!("shards/{}", promise.id()));
            let placing = it.placing.lock().unwrap_or_else(PoisonError::into_inner);
            place_remote(storage, it.home.dir(), &staged, &promise, &url)?;
            drop(placing);
            Ok(())
        })
        .await
    }

    fn is_here(&self, id: &str) -> Result<bool, PullError> {
        let (storage, path) = (&self.session.storage, self.home.shard(id));
        let is_there = |name| storage.stat(&path.join(name)).map(|entry| entry.is_some());
        Ok(is_there(layout::COMPLETE)? || is_there(layout::REMOTE)?)
    }

    /// What a shard promises there, and the files of it that are kept here; they go to `folder`, which
    /// is made.
    fn wanted(
        &self,
        folder: &Path,
        entry: &ShardEntry,
    ) -> Result<(Promise, Vec<Wanted>), PullError> {
        let path = layout::sealed(&self.dir, &entry.id);
        let damaged = |message: &str| {
            let (path, message) = (path.clone(), message.to_owned());
            PullError::Dataset(DatasetError::Damaged { path, message })
        };
        let promise = Promise::read(&self.there, &path)?;
        if promise.id() != entry.id || promise.n_rows() != entry.rows {
            return Err(damaged("it is not the shard that its record names"));
        }
        let listed = self.there.list(&path)?.unwrap_or_default();
        let mut bytes = (promise.complete.len() + promise.sums.len()) as u64;
        let mut files = Vec::new();
        for (name, b3) in &promise.files {
            let found = listed.iter().find(|it| it.name == *name);
            let Some(len) = found.map(|it| it.len) else {
                return Err(damaged(&format!("{name} is not there")));
            };
            bytes += len;
            if !self.left_there.contains(name) {
                let name_there = self.there.relative("read", &path.join(name))?;
                let (path, b3) = (folder.join(name), *b3);
                files.push(Wanted { name: name_there, path, len, b3, crcs: None });
            }
        }
        if bytes != entry.bytes {
            return Err(damaged("its bytes are not as many as its record says"));
        }
        self.session.storage.create_dir_all(folder)?;
        Ok((promise, files))
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record, as objects are named.
fn below(name: &RecordName) -> String {
    format!("{PARTITIONS}/{}", name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_takes_a_bounded_share_of_the_time() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let listing =
            |took| Listing { at: Some(now), took: Duration::from_secs(took), ..Listing::default() };
        assert!(Listing::default().is_due(now), "never looked");
        for (took, seconds, is_due) in
            [(0, 1, false), (0, 2, true), (1, 2, false), (1, 19, false), (1, 20, true)]
        {
            assert_eq!(listing(took).is_due(after(seconds)), is_due, "{took} s, {seconds} s later");
        }
    }
}
