//! What of a dataset's folder nobody needs any more, and its removal.
//!
//! Leaves out: who asks, and what is printed.
//!
//! Invariants:
//! 1. What to remove is decided from manifests, records, logs and names; generations are ordered by the
//!    times of their manifests, which decide nothing else.
//! 2. What a kept generation names stays, and so does what an unfinished build has made.
//! 3. A manifest goes before what it names: wherever the removal is cut off, every generation whose
//!    manifest is there is whole.
//! 4. What goes loses its name durably, in the trash, before its first byte does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::error::{DatasetError, Result};
use super::facts::Facts;
use super::home::{CURRENT_DOCUMENT, Home, PUSHING, Workplace, is_hex};
use super::manifest::Manifest;
use super::record::{Record, RecordName, RecordNames};
use super::run_note::RunNote;
use super::status::begun;
use super::survey::{Located, generations, size};
use crate::shard::{Glance, layout};
use crate::storage::{Entry, Lock, Storage, parent, staged_for};

/// What is kept beside the current generation, or the current cache key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// How many of the ones before it.
    pub previous: usize,
    /// Nothing that was made after this time goes.
    pub younger_than: Option<SystemTime>,
}

/// What kind of thing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leftover {
    /// A manifest of an old generation.
    Manifest,
    /// The key index of one.
    KeyIndex,
    /// A partition record that no generation names.
    Record,
    /// A shard that nothing names.
    Shard,
    /// What a writer left in its own folder.
    Work,
    /// What a push to this folder was writing when it was killed.
    Staged,
    /// An upload to a store that was begun and not completed.
    Upload,
    /// What an earlier removal left.
    Trash,
    /// An old cache key.
    Key,
}

impl Leftover {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::KeyIndex => "key index",
            Self::Record => "record",
            Self::Shard => "shard",
            Self::Work => "work",
            Self::Staged => "staged",
            Self::Upload => "upload",
            Self::Trash => "trash",
            Self::Key => "cache key",
        }
    }
}

/// One file or folder that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// What it is.
    pub what: Leftover,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes.
    pub n_bytes: u64,
}

/// What may go of the dataset of `home`, in the order in which it has to. Changes nothing.
///
/// # Errors
/// The disk's; a file of a later version.
pub fn leftovers(storage: &dyn Storage, home: &Home, keep: Keep) -> Result<Vec<Removal>> {
    let mut found = Found { storage, keep, removals: Vec::new() };
    for entry in storage.list(&home.trash())?.unwrap_or_default() {
        let path = home.trash().join(entry.name);
        let n_bytes = size(storage, &path)?;
        found.removals.push(Removal { what: Leftover::Trash, path, n_bytes });
    }
    let kept = Kept::of(storage, home, keep)?;
    for (name, _) in generations(storage, home)? {
        if !kept.manifests.contains(&name) {
            found.old(Leftover::Manifest, home.file(&name))?;
        }
    }
    for entry in storage.list(home.dir())?.unwrap_or_default() {
        let digits = entry.name.strip_prefix("keys-").and_then(|name| name.strip_suffix(".bin"));
        if digits.is_some_and(|digits| is_hex(digits, 16))
            && !kept.key_indexes.contains(&entry.name)
        {
            found.old(Leftover::KeyIndex, home.file(&entry.name))?;
        }
    }
    for name in RecordNames::list(storage, home)?.iter() {
        if !kept.records.contains(name.as_str()) {
            found.old(Leftover::Record, home.partitions().join(name.as_str()))?;
        }
    }
    for entry in storage.list(&home.shards())?.unwrap_or_default() {
        if is_hex(&entry.name, layout::ID_DIGITS) && !kept.shards.contains(&entry.name) {
            found.old(Leftover::Shard, home.shard(&entry.name))?;
        }
    }
    found.work(home, &kept)?;
    found.staged(home)?;
    Ok(found.removals)
}

/// Removes what [`leftovers`] finds, and asks before each thing goes whether it may.
///
/// # Errors
/// The disk's, and that of whoever was asked. What was not removed is found again.
///
/// # Durability
/// Of each thing as [`Workplace::discard`].
pub fn clean(
    place: &Workplace,
    keep: Keep,
    mut may_go: impl FnMut(&Removal) -> Result<()>,
) -> Result<()> {
    for removal in leftovers(&**place.storage(), place.home(), keep)? {
        may_go(&removal)?;
        place.discard(&removal.path)?;
    }
    Ok(())
}

/// The old cache keys of a dataset, the oldest last. `own` is never among them, nor is the one that
/// `current` points at. Changes nothing.
///
/// # Errors
/// The disk's.
pub fn old_keys(
    storage: &dyn Storage,
    located: &Located,
    own: &str,
    keep: Keep,
) -> Result<Vec<Removal>> {
    let current = located.current(storage)?;
    let mut keys = located.survey(storage)?;
    keys.retain(|key| key.cache_key != own && current.as_ref() != Some(&key.cache_key));
    keys.sort_by(|a, b| (b.modified, &b.cache_key).cmp(&(a.modified, &a.cache_key)));
    let old = keys.into_iter().skip(keep.previous);
    let old = old.filter(|key| key.modified.is_none_or(|time| keep.allows(time)));
    Ok(old
        .map(|key| Removal { what: Leftover::Key, path: key.dir, n_bytes: key.n_bytes })
        .collect())
}

/// Removes an old cache key by way of the trash of `place`, another one of the same dataset.
///
/// # Errors
/// [`DatasetError::Busy`] if somebody writes to it; the disk's.
pub fn remove_key(place: &Workplace, located: &Located, removal: &Removal) -> Result<()> {
    let key = removal.path.file_name().unwrap_or_default().to_string_lossy();
    let home = located.home_of(&key)?;
    let (storage, path) = (place.storage(), home.dir().to_owned());
    let _lock = match storage.lock(&home.lock(), &super::home::owner())? {
        Lock::Held(lock) => lock,
        Lock::Busy(holder) => return Err(DatasetError::Busy { path, holder }),
    };
    place.discard(&path)
}

impl Keep {
    /// Whether something that was made at `time` is old enough to go.
    fn allows(self, time: SystemTime) -> bool {
        self.younger_than.is_none_or(|limit| time <= limit)
    }
}

/// Everything that somebody still needs.
#[derive(Default)]
struct Kept {
    manifests: BTreeSet<String>,
    key_indexes: BTreeSet<String>,
    records: BTreeSet<String>,
    shards: BTreeSet<String>,
    /// Partitions that an unfinished build goes on with.
    slots: BTreeSet<String>,
}

impl Kept {
    fn of(storage: &dyn Storage, home: &Home, keep: Keep) -> Result<Self> {
        let mut kept = Self::default();
        let current = Manifest::current(storage, home.dir())?;
        let name = current.as_ref().map(|(sentinel, _)| sentinel.manifest().to_owned());
        kept.unfinished(storage, home, current.as_ref().map(|(_, it)| it))?;
        if let Some((sentinel, manifest)) = current {
            kept.generation(sentinel.manifest(), &manifest);
        }
        let mut n_previous = 0;
        for (other, modified) in generations(storage, home)? {
            let is_young = modified.is_none_or(|time| !keep.allows(time));
            if name.as_ref() == Some(&other) || (n_previous >= keep.previous && !is_young) {
                continue;
            }
            match Manifest::read_named(storage, home.dir(), &other) {
                Ok(Some(manifest)) => {
                    kept.generation(&other, &manifest);
                    n_previous += 1;
                }
                // It names nothing that could be read by it.
                Ok(None) | Err(DatasetError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    fn generation(&mut self, name: &str, manifest: &Manifest) {
        self.manifests.insert(name.to_owned());
        self.key_indexes.extend(manifest.dataset.keys.iter().map(|keys| keys.file.clone()));
        self.records.extend(manifest.partitions.iter().map(|it| it.record.clone()));
        self.shards.extend(manifest.shards.iter().map(|it| it.id.clone()));
    }

    /// Keeps what the last run made, if it did not come to its end.
    fn unfinished(
        &mut self,
        storage: &dyn Storage,
        home: &Home,
        current: Option<&Manifest>,
    ) -> Result<()> {
        let begun = begun(storage, home)?;
        let names = RecordNames::list(storage, home)?;
        let planned: BTreeSet<String> = match RunNote::read(storage, home)? {
            Some(note) => note.slots.into_iter().collect(),
            // Nobody knows what was planned: nothing of it may be lost.
            None => {
                names.iter().map(RecordName::slot).map(str::to_owned).chain(begun.clone()).collect()
            }
        };
        let own: BTreeSet<&str> =
            current.into_iter().flat_map(|it| &it.partitions).map(|it| &*it.slot).collect();
        let is_finished = current.is_some()
            && !Facts::read(storage, home)?.retrying
            && planned.iter().all(|slot| own.contains(&**slot) && !begun.contains(slot));
        if is_finished {
            return Ok(());
        }
        for name in names.iter().filter(|name| planned.contains(name.slot())) {
            self.records.insert(name.as_str().to_owned());
            match Record::read(storage, home.dir(), home.cache_key(), name) {
                Ok(record) => self.shards.extend(record.shards.into_iter().map(|it| it.id)),
                Err(DatasetError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for slot in begun.iter().filter(|slot| planned.contains(*slot)) {
            self.shards.extend(Glance::of(storage, home.dir(), slot)?.sealed);
        }
        self.slots = planned;
        Ok(())
    }
}

struct Found<'a> {
    storage: &'a dyn Storage,
    keep: Keep,
    removals: Vec<Removal>,
}

impl Found<'_> {
    /// Notes what goes if it is old enough.
    fn old(&mut self, what: Leftover, path: PathBuf) -> Result<()> {
        let modified = self.storage.modified(&path)?;
        if modified.is_none_or(|time| self.keep.allows(time)) {
            let n_bytes = size(self.storage, &path)?;
            self.removals.push(Removal { what, path, n_bytes });
        }
        Ok(())
    }

    /// Files that pushes to this folder were writing. It is one that is pushed to if pushes have said so.
    fn staged(&mut self, home: &Home) -> Result<()> {
        let pushing = home.dir().join(PUSHING);
        let Some(said) = self.storage.list(&pushing)? else { return Ok(()) };
        let mut dirs = vec![home.dir().to_owned(), home.partitions()];
        for entry in self.storage.list(&home.shards())?.unwrap_or_default() {
            dirs.push(home.shard(&entry.name));
        }
        dirs.retain(|dir| !self.removals.iter().any(|removal| removal.path == *dir));
        let files = |dir: PathBuf, entries: Vec<Entry>| {
            let staged = entries.into_iter().filter(|entry| staged_for(&entry.name).is_some());
            staged.map(|entry| dir.join(entry.name)).collect::<Vec<_>>()
        };
        let mut found = files(pushing, said);
        let above = parent(home.dir());
        let beside = self.storage.list(above)?.unwrap_or_default().into_iter();
        let of_current = |entry: &Entry| staged_for(&entry.name) == Some(CURRENT_DOCUMENT);
        found.extend(files(above.to_owned(), beside.filter(of_current).collect()));
        for dir in dirs {
            let entries = self.storage.list(&dir)?.unwrap_or_default();
            found.extend(files(dir, entries));
        }
        found.into_iter().try_for_each(|path| self.old(Leftover::Staged, path))
    }

    /// Open shards and logs of partitions that no build goes on with, and files that got no name.
    fn work(&mut self, home: &Home, kept: &Kept) -> Result<()> {
        let (open, logs) = (home.work().join("open"), layout::logs(home.dir()));
        for dir in [open, logs] {
            for entry in self.storage.list(&dir)?.unwrap_or_default() {
                let slot = entry.name.split('.').next().unwrap_or_default();
                if !kept.slots.contains(slot) {
                    self.old(Leftover::Work, dir.join(&entry.name))?;
                }
            }
        }
        for entry in self.storage.list(&home.notes())?.unwrap_or_default() {
            self.old(Leftover::Work, home.notes().join(&entry.name))?;
        }
        for entry in self.storage.list(&home.work())?.unwrap_or_default() {
            if Path::new(&entry.name).extension().is_some_and(|it| it == "tmp") {
                self.old(Leftover::Work, home.work().join(&entry.name))?;
            }
        }
        Ok(())
    }
}
