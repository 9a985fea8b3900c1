//! What of a dataset in a store nobody needs any more, and its removal.
//!
//! Leaves out: folders of this machine (`dataset::clean`), and what is printed.
//!
//! Invariants:
//! 1. What a kept generation names stays, and so do records that no generation names, with their
//!    shards: a build that has not ended goes on with them.
//! 2. Nothing goes while a push is at work, and nothing that is younger than was asked. Ages are told
//!    by the store's clock where anything is removed.
//! 3. A shard's sentinel goes before its files. It comes back if a push has turned up by then, which waits
//!    for this removal to end (`cleaning`).
//! 4. An upload of an object of the dataset goes by when it was begun; nobody needs one to be found again.
//! 5. A generation's manifest goes after everything that only it names, so that a removal that was
//!    cut off is found again.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::clean_found::{Kept, Names, Removals, There, may_be_of_dataset};
use super::cleaning::{Cleaning, is_of_clean};
use super::error::{PushError, Result};
use super::object::DIGEST;
use super::presence::{Pushing, SILENCE};
use crate::dataset::DatasetError;
use crate::dataset::clean::Leftover;
use crate::dataset::home::{CURRENT_DOCUMENT, PARTITIONS, PUSHING, current_of, is_hex};
use crate::dataset::manifest::Manifest;
use crate::dataset::record::{Record, RecordName};
use crate::remote::{Object, Remote, RemoteStorage, Upload, Uploads};
use crate::shard::layout::COMPLETE;
use crate::storage::Storage;

/// Shards whose sentinels go together.
const BATCH: usize = 32;

/// What is kept beside the current generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepElsewhere {
    /// How many of the generations before it.
    pub previous: usize,
    /// Nothing that is younger goes.
    pub older_than: Duration,
}

/// Something that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalElsewhere {
    /// What it is.
    pub what: Leftover,
    /// The object, or the folder of a shard, below the cache key.
    pub name: String,
    /// Its bytes; 0 of an upload, of which they are not known.
    pub n_bytes: u64,
    /// Where it is an upload: which.
    pub upload: Option<Upload>,
}

/// What may go, and who is in the way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftElsewhere {
    /// In the order in which it has to go.
    pub removals: Vec<RemovalElsewhere>,
    /// Pushes that are at work: "pid 12 on host". While there are any, nothing goes.
    pub pushes: Vec<String>,
    /// Why the store does not tell of uploads, if it does not.
    pub unlisted: Option<String>,
}

/// The dataset of one cache key in a store.
#[derive(Debug)]
pub struct CleanElsewhere {
    remote: Remote,
    storage: RemoteStorage,
    /// The folder of the cache key, relative to the URL; empty if it is the URL's own.
    folder: String,
    dir: PathBuf,
}

impl CleanElsewhere {
    /// Finds the cache key at the URL of `remote`, or the one that `current.json` there names.
    ///
    /// # Errors
    /// Neither is there, the place can only be read, or the store failed.
    pub fn open(remote: Remote, storage: RemoteStorage) -> Result<Self> {
        remote.expect_writable()?;
        let root = storage.root().to_path_buf();
        let last = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_hex(&last, 16) {
            return Ok(Self { remote, storage, folder: String::new(), dir: root });
        }
        match current_of(&storage, &root)? {
            Some(key) if is_hex(&key, 16) => {
                Ok(Self { remote, dir: root.join(&key), storage, folder: key })
            }
            _ => {
                // Says so where the bucket itself is missing.
                storage.list(&root)?;
                let message = "there is neither a cache key nor `current.json`".to_owned();
                Err(DatasetError::NoDataset { path: root, message }.into())
            }
        }
    }

    /// The URL of the cache key.
    #[must_use]
    pub fn url(&self) -> String {
        self.remote.show(&self.folder)
    }

    /// What may go now, by this machine's clock. Changes nothing.
    ///
    /// # Errors
    /// The store's; what is current is damaged, or of a later version.
    pub fn look(&self, keep: KeepElsewhere) -> Result<LeftElsewhere> {
        self.look_at(keep, SystemTime::now())
    }

    /// Removes what may go, and tells of each thing before it goes. Says why the store does not tell of
    /// uploads, if it does not.
    ///
    /// # Errors
    /// [`PushError::AtWork`]; as [`CleanElsewhere::look`]. What was not removed is found again.
    pub fn clean(
        &self,
        keep: KeepElsewhere,
        mut tell: impl FnMut(&RemovalElsewhere),
    ) -> Result<Option<String>> {
        let (mut cleaning, now) = Cleaning::begin(&self.remote, &self.below(PUSHING))?;
        let cleaned = self.remove(keep, now, &mut cleaning, &mut tell);
        cleaning.end();
        cleaned
    }

    fn remove(
        &self,
        keep: KeepElsewhere,
        now: SystemTime,
        cleaning: &mut Cleaning<'_>,
        tell: &mut dyn FnMut(&RemovalElsewhere),
    ) -> Result<Option<String>> {
        let sentinel = self.sentinel()?;
        let mut alone = Alone { place: self, cleaning, now, sentinel };
        // Whoever pushes from now on waits, so what is looked at stays as it is.
        alone.expect()?;
        let found = self.look_at(keep, now)?;
        let (shards, others): (Vec<_>, Vec<_>) =
            found.removals.into_iter().partition(|it| it.what == Leftover::Shard);
        for some in shards.chunks(BATCH) {
            some.iter().for_each(&mut *tell);
            alone.remove_shards(some)?;
        }
        for removal in others {
            alone.expect()?;
            tell(&removal);
            match &removal.upload {
                Some(upload) => self.remote.abort(upload)?,
                None if removal.what == Leftover::Staged => {
                    self.remote.remove_staged(&self.below(&removal.name))?;
                }
                None => alone.cleaning.remove(vec![self.below(&removal.name)])?,
            }
        }
        Ok(found.unlisted)
    }

    /// Who is at work, of those who have said so.
    fn pushes(&self, said: &[(String, Object)], now: SystemTime) -> Result<Vec<String>> {
        let mut pushes = Vec::new();
        let of_pushes = said.iter().filter(|(name, _)| !is_of_clean(name));
        for (name, _) in of_pushes.filter(|(_, object)| !is_older(object, SILENCE, now)) {
            // It may have ended since.
            let Some(bytes) = self.storage.read(&self.dir.join(name))? else { continue };
            pushes.push(Pushing::who(&bytes));
        }
        Ok(pushes)
    }

    fn sentinel(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.storage.read(&self.dir.join(COMPLETE))?)
    }

    fn look_at(&self, keep: KeepElsewhere, now: SystemTime) -> Result<LeftElsewhere> {
        let (uploads, unlisted) = self.uploads()?;
        let there = self.there(!uploads.is_empty())?;
        let pushes = self.pushes(&there.pushing, now)?;
        let is_old = |object: &Object| is_older(object, keep.older_than, now);
        let mut kept = Kept::default();
        let going = self.generations(&there, keep, now, &mut kept)?;
        let mut removals = Removals::default();
        // Records go with a generation that does; those of none belong to a build that has not ended.
        let gone = |name: &String| going.iter().any(|(_, it)| it.records.contains(name));
        for (name, object) in &there.records {
            if kept.records.contains(name) {
                continue;
            }
            if is_old(object) && gone(name) {
                removals.add(Leftover::Record, format!("{PARTITIONS}/{name}"), object.size);
            } else {
                kept.records.insert(name.clone());
                self.read_record(name, &mut kept)?;
            }
        }
        for (id, folder) in &there.shards {
            if !kept.shards.contains(id) && is_old(&folder.youngest) {
                removals.add(Leftover::Shard, format!("shards/{id}"), folder.n_bytes);
            }
        }
        for (name, names) in &going {
            let is_left = names.records.iter().any(|record| {
                there.records.contains_key(record)
                    && !removals.has(&format!("{PARTITIONS}/{record}"))
                    && !kept.of_generations.contains(record)
            }) || names.shards.iter().any(|shard| {
                there.shards.contains_key(shard)
                    && !removals.has(&format!("shards/{shard}"))
                    && !kept.shards.contains(shard)
            });
            if is_left {
                kept.key_indexes.extend(names.key_index.clone());
            } else {
                removals.add(Leftover::Manifest, name.clone(), there.size(name));
            }
        }
        for (name, object) in &there.key_indexes {
            if !kept.key_indexes.contains(name) && is_old(object) {
                removals.add(Leftover::KeyIndex, name.clone(), object.size);
            }
        }
        for (name, object) in there.pushing.iter().filter(|(_, it)| is_older(it, SILENCE, now)) {
            if is_old(object) {
                removals.add(Leftover::Work, name.clone(), object.size);
            }
        }
        for (name, object) in there.probes.iter().filter(|(_, it)| is_older(it, SILENCE, now)) {
            if is_old(object) {
                removals.add(Leftover::Work, name.clone(), object.size);
            }
        }
        for (name, object) in &there.staged {
            // A push writes its document before it can be seen to be at work.
            let is_said = !name.starts_with(PUSHING) || is_older(object, SILENCE, now);
            if is_said && is_old(object) {
                removals.add(Leftover::Staged, name.clone(), object.size);
            }
        }
        let mut removals = removals.sorted();
        let is_old = |it: &RemovalElsewhere| {
            it.upload.as_ref().is_some_and(|it| is_since(it.begun, keep.older_than, now))
        };
        removals.extend(uploads.into_iter().filter(is_old));
        Ok(LeftElsewhere { removals, pushes, unlisted })
    }

    /// Divides the generations into those that are kept, whose names go to `kept`, and the others.
    fn generations(
        &self,
        there: &There,
        keep: KeepElsewhere,
        now: SystemTime,
        kept: &mut Kept,
    ) -> Result<Vec<(String, Names)>> {
        let current = Manifest::current(&self.storage, &self.dir)?;
        let current =
            current.map(|(sentinel, manifest)| (sentinel.manifest().to_owned(), manifest));
        if let Some((_, manifest)) = &current {
            kept.generation(Names::of(manifest));
        }
        let mut manifests: Vec<_> = there.manifests.iter().collect();
        manifests.sort_by(|(a, of_a), (b, of_b)| (of_b.modified, b).cmp(&(of_a.modified, a)));
        let (mut n_previous, mut going) = (0, Vec::new());
        for (name, object) in manifests {
            if current.as_ref().is_some_and(|(current, _)| current == name) {
                continue;
            }
            let names = match Manifest::read_named(&self.storage, &self.dir, name) {
                Ok(Some(manifest)) => Names::of(&manifest),
                // It names nothing that could be read by it.
                Ok(None) | Err(DatasetError::Damaged { .. }) => Names::default(),
                Err(error) => return Err(error.into()),
            };
            let is_whole = !names.shards.is_empty() || !names.records.is_empty();
            if is_whole && n_previous < keep.previous {
                n_previous += 1;
                kept.generation(names);
            } else if !is_older(object, keep.older_than, now) {
                kept.generation(names);
            } else {
                going.push((name.clone(), names));
            }
        }
        Ok(going)
    }

    /// Keeps the shards of a record.
    fn read_record(&self, name: &str, kept: &mut Kept) -> Result<()> {
        let Some(name) = RecordName::parse(name) else { return Ok(()) };
        let key = self.dir.file_name().unwrap_or_default().to_string_lossy();
        match Record::read(&self.storage, &self.dir, &key, &name) {
            Ok(record) => kept.shards.extend(record.shards.into_iter().map(|it| it.id)),
            Err(DatasetError::Damaged { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The uploads of objects of the dataset that were begun, or why the store does not tell of them.
    fn uploads(&self) -> Result<(Vec<RemovalElsewhere>, Option<String>)> {
        let uploads = match self.remote.uploads(&self.folder)? {
            Uploads::Listed(uploads) => uploads,
            Uploads::Unlisted(why) => return Ok((Vec::new(), Some(why))),
        };
        let ours = uploads.into_iter().filter_map(|upload| {
            let name = self.name(&upload.name);
            may_be_of_dataset(&name).then_some(RemovalElsewhere {
                what: Leftover::Upload,
                name,
                n_bytes: 0,
                upload: Some(upload),
            })
        });
        Ok((ours.collect(), None))
    }

    /// Everything below the cache key that is ours. There has to be something, if nothing else is.
    fn there(&self, is_else: bool) -> Result<There> {
        let (mut there, mut cleaning) = (There::default(), Vec::new());
        for (path, object) in self.remote.list(&self.folder, "", |path, it| Some((path, it)))? {
            let name = self.name(&path);
            if is_of_clean(&name) {
                cleaning.push((name, object));
            } else {
                there.add(name, object);
            }
        }
        for (path, object) in self.remote.staged(&self.folder)? {
            there.staged.push((self.name(&path), object));
        }
        there.staged.extend(self.remote.staged_beside(&self.folder, CURRENT_DOCUMENT)?);
        if !is_else && there == There::default() && self.sentinel()?.is_none() {
            let message = "there is nothing to clean".to_owned();
            return Err(DatasetError::NoDataset { path: self.dir.clone(), message }.into());
        }
        there.pushing.extend(cleaning);
        Ok(there)
    }

    /// What `name` below the cache key is below the URL.
    fn below(&self, name: &str) -> String {
        if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) }
    }

    /// The other way.
    fn name(&self, path: &str) -> String {
        let below = path.strip_prefix(&self.folder).unwrap_or(path);
        below.trim_start_matches('/').to_owned()
    }
}

/// A removal that goes on only while no push is at work.
struct Alone<'a, 'b> {
    place: &'a CleanElsewhere,
    cleaning: &'a mut Cleaning<'b>,
    /// When it began.
    now: SystemTime,
    /// What was current then.
    sentinel: Option<Vec<u8>>,
}

impl Alone<'_, '_> {
    /// Refuses to go on beside a push, or after one that nobody has seen.
    fn expect(&mut self) -> Result<()> {
        let place = self.place;
        self.cleaning.say()?;
        let at_work = |who| Err(PushError::AtWork { url: place.url(), who });
        let mut said = Vec::new();
        for (name, object) in place.remote.list_folder(&place.below(PUSHING))? {
            said.push((place.name(&name), object));
        }
        if let Some(who) = place.pushes(&said, self.now)?.into_iter().next() {
            return at_work(who);
        }
        if place.sentinel()? != self.sentinel {
            return at_work("another generation came to stand there meanwhile".to_owned());
        }
        Ok(())
    }

    fn remove_shards(&mut self, shards: &[RemovalElsewhere]) -> Result<()> {
        let place = self.place;
        let mut sentinels = Vec::new();
        for shard in shards {
            let name = format!("{}/{COMPLETE}", shard.name);
            if let Some(bytes) = place.storage.read(&place.dir.join(&name))? {
                sentinels.push((place.below(&name), bytes));
            }
        }
        self.expect()?;
        self.cleaning.remove(sentinels.iter().map(|(name, _)| name.clone()).collect())?;
        for (n_gone, shard) in shards.iter().enumerate() {
            if (n_gone == 0 || self.cleaning.is_due())
                && let Err(error) = self.expect()
            {
                let gone: Vec<_> =
                    shards.iter().take(n_gone).map(|it| place.below(&it.name) + "/").collect();
                sentinels.retain(|(name, _)| !gone.iter().any(|gone| name.starts_with(gone)));
                for (name, bytes) in sentinels {
                    let digest = blake3::hash(&bytes).to_hex().to_string();
                    place.remote.put_small(&name, bytes.into(), (DIGEST, digest))?;
                }
                return Err(error);
            }
            let objects = place.remote.list(&place.below(&shard.name), "", |name, _| Some(name))?;
            self.cleaning.remove(objects)?;
        }
        Ok(())
    }
}

/// Whether an object was written at least so long ago.
fn is_older(object: &Object, age: Duration, now: SystemTime) -> bool {
    is_since(object.modified, age, now)
}

/// Whether that was at least so long ago.
fn is_since(then: SystemTime, age: Duration, now: SystemTime) -> bool {
    now.duration_since(then).is_ok_and(|since| since >= age)
}
