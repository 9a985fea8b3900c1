//! How far a dataset is, found out from manifests, records and logs alone.
//!
//! Leaves out: field files, which are not opened, and inputs, which are not listed.
//!
//! Invariants:
//! 1. Nothing is changed or locked: a run may be at work, and what it does meanwhile is told as it
//!    was when each file was read.
//! 2. Rows are told of as durable only if a record or a commit promises them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::error::{DatasetError, Result};
use super::facts::Facts;
use super::home::Home;
use super::manifest::Manifest;
use super::record::{BooksByStage, Record, RecordName, RecordNames};
use super::run_note::RunNote;
use super::sentinel::Sentinel;
use crate::shard::{Glance, RemoteSentinel, layout, unanswered};
use crate::storage::{Storage, side_by_side};

/// How far a dataset is.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Who is writing to it.
    pub holder: Option<String>,
    /// Its complete generation, which readers find.
    pub generation: Option<CompleteGeneration>,
    /// What a build that has not ended has made of the next generation, or of the first.
    pub build: Option<BuildStatus>,
}

/// The generation that the sentinel names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteGeneration {
    /// Its manifest.
    pub manifest: String,
    /// When it was completed.
    pub completed: Option<SystemTime>,
    /// Rows.
    pub n_rows: u64,
    /// Rows rejected, by the stage that rejected them.
    pub rejected: BTreeMap<String, u64>,
    /// Those of them that a hook did not answer.
    pub n_unanswered: u64,
    /// Partitions.
    pub n_partitions: u64,
    /// Shards.
    pub n_shards: u64,
    /// Bytes of all files of all shards.
    pub n_bytes: u64,
    /// Shards whose rows are only in a store.
    pub n_remote: u64,
    /// Where those are: URLs of the dataset.
    pub urls: BTreeSet<String>,
}

/// How far a build is that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildStatus {
    /// Partitions that have a record.
    pub n_done: u64,
    /// Partitions of which something may have been committed.
    pub open: Vec<OpenPartition>,
    /// Partitions of the last run's plan of which nothing was written.
    pub n_not_begun: Option<u64>,
    /// Rows committed in all of them.
    pub n_rows: u64,
    /// Rows rejected in all of them.
    pub n_rejected: u64,
    /// When the last run began.
    pub began: Option<SystemTime>,
    /// Rows that the last run has committed, and the time from its beginning to its last sign of
    /// life.
    pub rate: Option<(u64, Duration)>,
}

/// A partition that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenPartition {
    /// Its slot.
    pub slot: String,
    /// What its logs promise.
    pub glance: Glance,
}

impl Status {
    /// Looks at the dataset of `home`.
    ///
    /// # Errors
    /// The disk's; [`DatasetError::Version`].
    pub fn of(storage: &dyn Storage, home: &Home) -> Result<Self> {
        if storage.distant().is_some_and(|it| !it.can_list()) {
            // What is open there cannot be seen.
            let generation = generation(storage, home, Manifest::current(storage, home.dir())?)?;
            return Ok(Self { holder: None, generation, build: None });
        }
        let holder = storage.lock_holder(&home.lock())?;
        // The note first: a run that ends meanwhile is seen as ended.
        let note = RunNote::read(storage, home)?;
        let mut look = Look { storage, home, last_sign: None };
        let mut open = look.open_partitions()?;
        if let Some(note) = &note {
            // The rest was begun for inputs that are no longer what they were.
            let planned: BTreeSet<_> = note.slots.iter().collect();
            open.retain(|it| planned.contains(&it.slot));
        }
        let current = Manifest::current(storage, home.dir())?;
        let is_built = note
            .as_ref()
            .is_none_or(|note| current.as_ref().is_some_and(|(_, it)| it.holds_slots(&note.slots)));
        let facts = Facts::read(storage, home)?;
        let build = if is_built && open.is_empty() && current.is_some() && !facts.retrying {
            None
        } else {
            let current = current.as_ref().map(|(_, it)| it);
            Some(look.build(note.as_ref(), open, current, &facts.set_aside)?)
        };
        Ok(Self { holder, generation: generation(storage, home, current)?, build })
    }
}

fn generation(
    storage: &dyn Storage,
    home: &Home,
    current: Option<(Sentinel, Manifest)>,
) -> Result<Option<CompleteGeneration>> {
    let Some((sentinel, it)) = current else { return Ok(None) };
    let (n_remote, urls) = remote(storage, home, &it);
    Ok(Some(CompleteGeneration {
        manifest: sentinel.manifest().to_owned(),
        completed: storage.modified(&home.sentinel())?,
        n_rows: sentinel.rows(),
        rejected: rejected(&it.dataset.books),
        n_unanswered: unanswered_of(storage, home, &it)?,
        n_partitions: it.dataset.partitions,
        n_shards: sentinel.shards(),
        n_bytes: it.dataset.bytes,
        n_remote,
        urls,
    }))
}

struct Look<'a> {
    storage: &'a dyn Storage,
    home: &'a Home,
    last_sign: Option<SystemTime>,
}

impl Look<'_> {
    /// The partitions that were begun and have not been cleared away since.
    fn open_partitions(&mut self) -> Result<Vec<OpenPartition>> {
        let mut open = Vec::new();
        for slot in begun(self.storage, self.home)? {
            let glance = Glance::of(self.storage, self.home.dir(), &slot)?;
            self.sign(&self.home.log(&slot))?;
            for shard in &glance.open {
                let dir = layout::open_shard(self.home.dir(), &slot, shard.number);
                self.sign(&dir.join(layout::MANIFEST))?;
            }
            open.push(OpenPartition { slot, glance });
        }
        Ok(open)
    }

    fn build(
        &mut self,
        note: Option<&RunNote>,
        open: Vec<OpenPartition>,
        current: Option<&Manifest>,
        set_aside: &BTreeSet<String>,
    ) -> Result<BuildStatus> {
        let names = RecordNames::list(self.storage, self.home)?;
        let planned: BTreeSet<&str> = match &note {
            Some(note) => note.slots.iter().map(String::as_str).collect(),
            None => names.iter().map(RecordName::slot).collect(),
        };
        let mut done: BTreeMap<&str, (u64, u64)> = current
            .into_iter()
            .flat_map(|it| &it.partitions)
            .filter(|it| planned.contains(&*it.slot) && !set_aside.contains(&it.record))
            .map(|it| (it.slot.as_str(), (it.rows, rejected(&it.books).values().sum())))
            .collect();
        for name in names.iter().filter(|name| planned.contains(name.slot())) {
            self.sign(&self.home.partitions().join(name.as_str()))?;
            if done.contains_key(name.slot()) || set_aside.contains(name.as_str()) {
                continue;
            }
            let key = self.home.cache_key();
            match Record::read(self.storage, self.home.dir(), key, name) {
                Ok(it) => {
                    let rejected = rejected(&it.books).values().sum();
                    done.insert(name.slot(), (it.rows, rejected));
                }
                // It is no promise; the next run says what is wrong with it.
                Err(DatasetError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // What is begun again counts as begun.
        for partition in &open {
            done.remove(&*partition.slot);
        }
        let n_done = done.len() as u64;
        let n_begun = n_done + open.len() as u64;
        let n_rows = done.values().map(|it| it.0).chain(open.iter().map(|it| it.glance.n_rows));
        let n_rows = n_rows.sum::<u64>();
        let n_rejected = done.values().map(|it| it.1);
        let n_rejected = n_rejected.chain(open.iter().map(|it| it.glance.n_rejected)).sum();
        let began = note.map(RunNote::began);
        let rate = note.as_ref().and_then(|note| {
            let took = self.last_sign?.duration_since(note.began()).ok()?;
            let n_new = n_rows.checked_sub(note.rows_before)?;
            (n_new > 0 && !took.is_zero()).then_some((n_new, took))
        });
        let n_not_begun = note.as_ref().map(|_| (planned.len() as u64).saturating_sub(n_begun));
        Ok(BuildStatus { n_done, open, n_not_begun, n_rows, n_rejected, began, rate })
    }

    /// Notes when something was written last.
    fn sign(&mut self, path: &Path) -> Result<()> {
        self.last_sign = self.last_sign.max(self.storage.modified(path)?);
        Ok(())
    }
}

/// The slots of the partitions that were begun and not cleared away, sorted.
pub(super) fn begun(storage: &dyn Storage, home: &Home) -> Result<BTreeSet<String>> {
    let mut slots = BTreeSet::new();
    for entry in storage.list(&layout::logs(home.dir()))?.unwrap_or_default() {
        slots.extend(entry.name.split('.').next().map(str::to_owned));
    }
    let open = storage.list(&home.work().join("open"))?.unwrap_or_default();
    slots.extend(open.into_iter().map(|entry| entry.name));
    Ok(slots)
}

/// Rows of a generation that a hook did not answer. Only shards of partitions with rejects are looked at.
fn unanswered_of(storage: &dyn Storage, home: &Home, manifest: &Manifest) -> Result<u64> {
    let (mut with_rejects, mut shards) = (Vec::new(), manifest.shards.iter());
    for partition in &manifest.partitions {
        let n_shards = usize::try_from(partition.shards).unwrap_or(usize::MAX);
        let has_rejects = !rejected(&partition.books).is_empty();
        with_rejects.extend(shards.by_ref().take(n_shards).filter(|_| has_rejects));
    }
    let n = side_by_side(&with_rejects, |shard| unanswered(storage, &home.shard(&shard.id)))?;
    Ok(n.into_iter().sum())
}

/// How many shards of a generation have their rows in a store alone, and where the dataset is there.
fn remote(storage: &dyn Storage, home: &Home, manifest: &Manifest) -> (u64, BTreeSet<String>) {
    let (mut n_remote, mut urls) = (0, BTreeSet::new());
    // In a store itself all of them are complete.
    let shards = manifest.shards.iter().filter(|_| storage.distant().is_none());
    for shard in shards {
        // What is damaged is for `verify` to say.
        if let Ok(Some(remote)) = RemoteSentinel::read(storage, &home.shard(&shard.id)) {
            n_remote += 1;
            urls.insert(remote.dataset_url().to_owned());
        }
    }
    (n_remote, urls)
}

fn rejected(books: &BooksByStage) -> BTreeMap<String, u64> {
    let some = books.iter().filter(|(_, books)| books.rejected > 0);
    some.map(|(stage, books)| (stage.clone(), books.rejected)).collect()
}
