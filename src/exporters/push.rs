//! Pushes a complete dataset: shards, records, manifest and key index, sentinel.
//!
//! Leaves out: how one file is sent (`send`), and the commit itself (`commit`).
//!
//! Invariants:
//! 1. The files of a shard are there, by the store's own listing, before its sentinel goes out; all
//!    shards of a partition before its record; everything before the dataset's sentinel.
//! 2. What is in the store from an earlier push is found again: it is not sent.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::commit;
use super::decide::{self, is_same};
use super::drop::{believe_there, drop_sent, remote_of};
use super::error::{PushError, Result};
use super::exporter::Exporter;
use super::journal::{Abilities, Journal, Known, Note};
use super::object::{self, Object, ShardObjects};
use super::others::Others;
use super::send::{create, not_kept, send};
use super::session::{PushLive, PushOptions, PushSeen, Session, on_thread};
use super::task::join;
use crate::dataset::home::PARTITIONS;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::{RecordName, ShardEntry};
use crate::dataset::sentinel::Sentinel;
use crate::dataset::{DatasetError, Home, Workplace};
use crate::remote::Remote;
use crate::shard::layout::COMPLETE;
use crate::storage::{Storage, parent};

/// Shards that are sent at once.
pub(super) const LANES: usize = 8;

/// A complete dataset that is about to be pushed.
#[derive(Debug)]
pub struct Push {
    storage: Arc<dyn Storage>,
    home: Home,
    complete: Complete,
    remote: Remote,
    options: PushOptions,
    dropping: Option<Workplace>,
}

/// What a complete dataset says of itself.
#[derive(Debug)]
pub(super) struct Complete {
    sentinel: Sentinel,
    /// The sentinel as it lies on the disk.
    bytes: Bytes,
    manifest: Manifest,
}

impl Complete {
    /// Reads sentinel and manifest of the dataset in the folder `dir`.
    pub(super) fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let path = dir.join(COMPLETE);
        let Some(bytes) = storage.read(&path)? else {
            let message = format!("there is no {COMPLETE}");
            return Err(DatasetError::NoDataset { path: dir.to_owned(), message }.into());
        };
        let sentinel = Sentinel::parse(&path, &bytes)?;
        let manifest = Manifest::read(storage, dir, &sentinel)?;
        Ok(Self { sentinel, bytes: bytes.into(), manifest })
    }
}

/// What a push came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PushReport {
    /// The local dataset.
    pub dataset: String,
    /// Where it is now.
    pub url: String,
    /// The generation: the BLAKE3 of its manifest.
    pub generation: String,
    /// Its rows.
    pub rows: u64,
    /// Its shards.
    pub shards: u64,
    /// Objects that were sent.
    pub sent_objects: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Objects that were there.
    pub skipped_objects: u64,
    /// Bytes that were there.
    pub skipped_bytes: u64,
    /// Shards whose rows went here, because they are there.
    pub dropped_shards: u64,
    /// Bytes of the files that went.
    pub dropped_bytes: u64,
    /// Requests that were made.
    pub requests: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether `current.json` names it.
    pub current: bool,
    /// The generation that was current there until now.
    pub replaced: Option<Replaced>,
    /// What is not guarded, because the store does not obey conditions.
    pub unguarded: Option<String>,
}

/// A generation that is not the current one of its place any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replaced {
    /// The BLAKE3 of its manifest.
    pub generation: String,
    /// Whether it was pushed from this folder. Otherwise somebody else has put it there.
    pub from_here: bool,
}

impl Push {
    /// Prepares to push the complete dataset in the folder of a cache key, `<out>/<name>/<cache key>`,
    /// to `<remote>/<name>/<cache key>`.
    ///
    /// # Errors
    /// There is no complete dataset, or the place can only be read.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        remote: Remote,
        options: PushOptions,
    ) -> Result<Self> {
        remote.expect_writable()?;
        let complete = Complete::read(&*storage, dir)?;
        let about = &complete.manifest.dataset;
        let home = Home::new(parent(parent(dir)), &about.name, &about.cache_key)?;
        if home.dir() != dir {
            let message = format!("its manifest is of `{}`, key {}", about.name, about.cache_key);
            return Err(DatasetError::NoDataset { path: dir.to_owned(), message }.into());
        }
        Ok(Self { storage, home, complete, remote, options, dropping: None })
    }

    /// Lets the rows of each shard go here as soon as the shard is in the store.
    ///
    /// # Errors
    /// [`DatasetError::Busy`] if a run is at work on the dataset; the disk's.
    pub fn drop_local(mut self) -> Result<Self> {
        self.dropping = Some(Workplace::open(Arc::clone(&self.storage), self.home.clone())?);
        Ok(self)
    }

    /// Pushes it.
    ///
    /// # Errors
    /// What went wrong first; the same push goes on from there.
    ///
    /// # Cancel safety
    /// When `stop` is cancelled, parts that are on their way arrive and are noted, then it ends with
    /// [`PushError::Stopped`]. Dropped, it loses what was on its way.
    pub async fn run(self, live: Arc<PushLive>, stop: CancellationToken) -> Result<PushReport> {
        let Self { storage, home, complete, remote, options, dropping } = self;
        let exporter = Exporter::open(storage, home, remote, options, live, stop).await?;
        if let Some(place) = dropping {
            exporter.drop_local(Arc::new(place));
        }
        exporter.push(&complete, None).await
    }
}

impl Exporter {
    /// Pushes the dataset, of which some shards may have been.
    pub(super) async fn push(
        &self,
        complete: &Complete,
        others: Option<&Arc<Others>>,
    ) -> Result<PushReport> {
        let pushed = self.steps(complete, others).await;
        if pushed.is_err() {
            self.withdraw().await;
        }
        let Pushed { abilities, current, replaced } = pushed?;
        let (session, sentinel) = (self.session(), &complete.sentinel);
        let PushSeen { sent_bytes, sent_objects, skipped_bytes, skipped_objects, .. } =
            session.live.seen();
        let dropper = session.dropper.get();
        let (dropped_shards, dropped_bytes) = dropper.map(|it| it.dropped()).unwrap_or_default();
        Ok(PushReport {
            dataset: self.home().dir().display().to_string(),
            url: session.wire.show(""),
            generation: sentinel.manifest_b3().to_owned(),
            rows: sentinel.rows(),
            shards: sentinel.shards(),
            sent_objects,
            sent_bytes,
            skipped_objects,
            skipped_bytes,
            dropped_shards,
            dropped_bytes,
            requests: self.n_requests(),
            seconds: self.elapsed().as_secs_f64(),
            current,
            replaced,
            unguarded: unguarded(abilities),
        })
    }

    /// Everything, in order.
    async fn steps(&self, complete: &Complete, others: Option<&Arc<Others>>) -> Result<Pushed> {
        let Complete { sentinel, bytes, manifest } = complete;
        let (session, home) = (self.session(), self.home());
        let work = Work { session, home };
        let (note, is_fresh) = work.note(Some(sentinel.manifest_b3())).await?;
        work.remote_shards(&manifest.shards, others.is_some()).await?;
        work.shards(manifest).await?;
        if let Some(others) = others {
            others.expect_agreement(manifest).await?;
        }
        let abilities = work.abilities(manifest).await?;
        work.tables(sentinel, manifest).await?;
        let object = Object {
            name: COMPLETE.to_owned(),
            path: home.sentinel(),
            bytes: bytes.len() as u64,
            b3: blake3::hash(bytes),
        };
        session.live.expect(object.bytes);
        let was_there = note.before.as_ref().is_some_and(|it| it.generation == note.generation);
        let is_all_there = was_there && is_fresh && session.live.seen().sent_objects == 0;
        if is_all_there && !session.options.replace {
            session.live.skipped_object(object.bytes);
        } else {
            if !was_there || session.options.replace {
                // Whoever cleans up sees this, or is seen when the sentinels are counted.
                session.presence.announce().await?;
            }
            work.recount(manifest).await?;
            commit::commit(session, &object, bytes, &note, abilities).await?;
        }
        let replaced = replaced(session, &note).await?;
        // The link of this machine says whether the cache key is the one that counts.
        let link = session.storage.read_link(&home.current())?;
        let current = link.as_deref() == Some(home.cache_key());
        if current {
            commit::make_current(self.above(), home.cache_key()).await?;
        }
        work.forget_uploads().await?;
        session.presence.withdraw().await;
        session.journal(move |journal| journal.finished(&note.generation)).await?;
        Ok(Pushed { abilities, current, replaced })
    }
}

/// What the steps of a push have found.
struct Pushed {
    abilities: Abilities,
    current: bool,
    replaced: Option<Replaced>,
}

/// The generation in whose place the one that was noted stands now.
async fn replaced(session: &Session, note: &Note) -> Result<Option<Replaced>> {
    let Some(generation) = note.before.as_ref().map(|it| it.generation.clone()) else {
        return Ok(None);
    };
    if generation == note.generation || generation.is_empty() {
        return Ok(None);
    }
    let of_facts = generation.clone();
    let is_finished = move |journal: &mut Journal| Ok(journal.facts().has_finished(&of_facts));
    let from_here = session.journal(is_finished).await?;
    Ok(Some(Replaced { generation, from_here }))
}

/// What is lost where conditions are not obeyed.
fn unguarded(abilities: Abilities) -> Option<String> {
    let what = match (abilities.conditional_create, abilities.conditional_replace) {
        (true, true) => return None,
        (false, false) => "create or replace",
        (false, true) => "create",
        (true, false) => "replace",
    };
    Some(format!(
        "this store does not {what} objects conditionally: of two generations pushed at the same \
         time, the later may win without a word"
    ))
}

/// The steps of a push.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) home: &'a Home,
}

impl Work<'_> {
    /// Notes what stands in the place of the sentinel, unless a push that was cut off has done so; says
    /// whether it was noted now. `generation`: the one that is pushed, if it is built already.
    pub(super) async fn note(&self, generation: Option<&str>) -> Result<(Note, bool)> {
        let noted = self.session.journal(|journal| Ok(journal.facts().note().cloned())).await?;
        if let Some(mut note) = noted.filter(|_| !self.session.options.replace) {
            match generation {
                None => return Ok((note, false)),
                Some(generation) if note.generation == generation => return Ok((note, false)),
                Some(generation) if note.generation.is_empty() => {
                    generation.clone_into(&mut note.generation);
                    self.expect_newer(&note).await?;
                    let written = note.clone();
                    self.session.journal(move |journal| journal.note(written)).await?;
                    return Ok((note, false));
                }
                Some(_) => {}
            }
        }
        let generation = generation.unwrap_or_default().to_owned();
        let before = commit::found(&self.session.wire).await?;
        if !self.session.options.replace
            && before.as_ref().is_some_and(|it| it.generation.is_empty())
        {
            let what = "it is no sentinel of a dataset".to_owned();
            return Err(PushError::Conflict { url: self.session.wire.show(COMPLETE), what });
        }
        let note = Note { generation, before };
        self.expect_newer(&note).await?;
        let written = note.clone();
        self.session.journal(move |journal| journal.note(written)).await?;
        Ok((note, true))
    }

    /// Refuses to go back: a generation that was pushed from here once, and that somebody else has
    /// replaced by one that is not known here, does not come to stand in its place again unasked.
    async fn expect_newer(&self, note: &Note) -> Result<()> {
        let Some(before) = note.before.clone().filter(|it| it.generation != note.generation) else {
            return Ok(());
        };
        let (ours, theirs) = (note.generation.clone(), before.generation);
        let replace = self.session.options.replace;
        let url = self.session.wire.show("");
        self.session
            .journal(move |journal| {
                let facts = journal.facts();
                if replace || !facts.has_finished(&ours) || facts.has_finished(&theirs) {
                    return Ok(());
                }
                Err(commit::overtaken(url, &ours, &theirs))
            })
            .await
    }

    /// Sends shards, and the record of each partition whose shards are there.
    async fn shards(&self, manifest: &Manifest) -> Result<()> {
        let is_record = |_: &str| true;
        let records = Arc::new(self.session.wire.list(PARTITIONS, is_record).await?);
        let due = self.due(manifest);
        self.session.live.expect(due.iter().map(|(shard, _)| shard.bytes).sum());
        let mut left = vec![0_u64; manifest.partitions.len()];
        for part in due.iter().flat_map(|(_, parts)| parts) {
            if let Some(left) = left.get_mut(*part) {
                *left += 1;
            }
        }
        let mut due = due.into_iter();
        let mut ready: Vec<usize> =
            (0..left.len()).filter(|part| left.get(*part) == Some(&0)).collect();
        let is_there = |part: &usize| {
            let line = manifest.partitions.get(*part);
            line.is_some_and(|line| self.session.remembers(&line.record))
        };
        ready.retain(|part| !is_there(part));
        let mut tasks: JoinSet<Result<Vec<usize>>> = JoinSet::new();
        loop {
            while tasks.len() < LANES {
                let (session, home) = (Arc::clone(self.session), self.home.clone());
                if let Some(line) = ready.pop().and_then(|part| manifest.partitions.get(part)) {
                    let (name, records) = (line.record.clone(), Arc::clone(&records));
                    tasks.spawn(async move {
                        send_record(&session, &home, &name, &records).await.map(|()| Vec::new())
                    });
                } else if let Some((shard, parts)) = due.next() {
                    let id = shard.id.clone();
                    tasks.spawn(
                        async move { send_shard(&session, &home, &id).await.map(|()| parts) },
                    );
                } else {
                    break;
                }
            }
            let Some(ended) = join(&mut tasks).await else { return Ok(()) };
            match ended {
                Ok(parts) => {
                    for part in parts {
                        if let Some(left) = left.get_mut(part) {
                            *left -= 1;
                            if *left == 0 {
                                ready.push(part);
                            }
                        }
                    }
                }
                Err(PushError::Stopped) => {
                    // What is on its way arrives, and is noted.
                    while join(&mut tasks).await.is_some() {}
                    return Err(PushError::Stopped);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The shards that are not in their places, each once, with the partitions that name it: those of
    /// equal rows share a shard.
    fn due<'a>(&self, manifest: &'a Manifest) -> Vec<(&'a ShardEntry, Vec<usize>)> {
        let mut due: Vec<(&ShardEntry, Vec<usize>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (part, (_, shards)) in manifest.parts().enumerate() {
            for shard in shards.iter().filter(|shard| !self.session.remembers(&shard.id)) {
                let place = *places.entry(&shard.id).or_insert(due.len());
                match due.get_mut(place) {
                    Some((_, parts)) => parts.push(part),
                    None => due.push((shard, vec![part])),
                }
            }
        }
        due
    }

    /// What the store obeys, found out once and kept in the journal.
    async fn abilities(&self, manifest: &Manifest) -> Result<Abilities> {
        let known = self.session.journal(|journal| Ok(journal.facts().abilities())).await?;
        if let Some(known) = known {
            return Ok(known);
        }
        let Some(line) = manifest.partitions.first() else {
            return Ok(Abilities { conditional_create: true, conditional_replace: true });
        };
        let (record, bytes) = read_record(self.session, self.home, &line.record).await?;
        let found = commit::probe(&self.session.wire, &record, bytes).await?;
        self.session.journal(move |journal| journal.store(found)).await?;
        Ok(found)
    }

    /// Sends the manifest and the key index.
    async fn tables(&self, sentinel: &Sentinel, manifest: &Manifest) -> Result<()> {
        for object in object::tables(&*self.session.storage, self.home, sentinel, manifest)? {
            self.session.live.expect(object.bytes);
            let there = match self.session.wire.look(&object.name).await? {
                // Without a digest the ETag may tell.
                decide::Remote::Seen { bytes, etag, b3: None } => {
                    decide::Remote::Listed { bytes, etag }
                }
                there => there,
            };
            send(self.session, &object, &there).await?;
        }
        Ok(())
    }

    /// Lets the store forget what was begun of files that the dataset does not have any more: those that
    /// it has are there.
    async fn forget_uploads(&self) -> Result<()> {
        let uploads = self.session.journal(|journal| {
            let uploads = journal.facts().uploads();
            Ok(uploads.map(|(object, id)| (object.to_owned(), id.to_owned())).collect::<Vec<_>>())
        });
        for (object, upload) in uploads.await? {
            self.session.wire.abort(&object, &upload).await?;
            self.session.journal(move |journal| journal.forgotten(&object)).await?;
        }
        Ok(())
    }

    /// Looks at the sentinels of all shards once more: somebody may have removed one.
    async fn recount(&self, manifest: &Manifest) -> Result<()> {
        let is_sentinel = |name: &str| name.ends_with(&format!("/{COMPLETE}"));
        let there = self.session.wire.list("shards", is_sentinel).await?;
        for shard in &manifest.shards {
            let name = format!("shards/{}/{COMPLETE}", shard.id);
            if !there.contains_key(&name) {
                let what = "nothing is there".to_owned();
                return Err(PushError::NotKept { url: self.session.wire.show(&name), what });
            }
        }
        Ok(())
    }
}

/// Sends the files of a shard, then its sentinel. A shard whose rows are not here has to be there; where
/// it says so itself, its sentinel is looked at before the dataset's goes out.
pub(super) async fn send_shard(session: &Arc<Session>, home: &Home, id: &str) -> Result<()> {
    if let Some(remote) = remote_of(session, home, id).await? {
        return believe_there(session, home, &remote).await;
    }
    let (storage, place, asked) = (Arc::clone(&session.storage), home.clone(), id.to_owned());
    let shard = on_thread(move || ShardObjects::read(&*storage, &place, &asked)).await?;
    let folder = shard.folder();
    let there = session.wire.list(&folder, |_| true).await?;
    expect_no_others(session, &shard, &there)?;
    let seen = |name: &str| there.get(name).cloned().unwrap_or(decide::Remote::Absent);
    let mut tasks: JoinSet<Result<bool>> = JoinSet::new();
    let mut files = shard.files.iter();
    let (mut is_sent, mut stopped) = (false, false);
    loop {
        while tasks.len() < session.options.concurrency.max(1)
            && !stopped
            && let Some(object) = files.next()
        {
            let (session, object, there) =
                (Arc::clone(session), object.clone(), seen(&object.name));
            tasks.spawn(async move { send(&session, &object, &there).await });
        }
        match join(&mut tasks).await {
            None if stopped => return Err(PushError::Stopped),
            None => break,
            Some(Err(PushError::Stopped)) => stopped = true,
            Some(sent) => is_sent |= sent?,
        }
    }
    if is_sent {
        check_kept(session, &shard).await?;
    }
    send(session, &shard.sentinel, &seen(&shard.sentinel.name)).await?;
    drop_sent(session, home, id).await?;
    session.remember(id);
    Ok(())
}

/// Refuses a folder with objects that the sentinel would not cover.
fn expect_no_others(
    session: &Session,
    shard: &ShardObjects,
    there: &BTreeMap<String, decide::Remote>,
) -> Result<()> {
    let is_ours = |name: &String| {
        *name == shard.sentinel.name || shard.files.iter().any(|object| object.name == *name)
    };
    match there.keys().find(|name| !is_ours(name)) {
        Some(name) => Err(PushError::Foreign { url: session.wire.show(name) }),
        None => Ok(()),
    }
}

/// Checks that the store lists what was sent, as it was sent.
async fn check_kept(session: &Session, shard: &ShardObjects) -> Result<()> {
    let there = session.wire.list(&shard.folder(), |_| true).await?;
    let names: Vec<String> = shard.files.iter().map(|object| object.name.clone()).collect();
    let known = session.journal(move |journal| {
        let known = |name: &String| journal.facts().known(name).cloned();
        Ok(names.iter().map(known).collect::<Vec<_>>())
    });
    for (object, known) in shard.files.iter().zip(known.await?) {
        let absent = decide::Remote::Absent;
        let seen = there.get(&object.name).unwrap_or(&absent);
        match (seen, known) {
            (decide::Remote::Listed { bytes, etag }, Some(Known::Done(done)))
                if *bytes == object.bytes
                    && (done.etag.is_none() || is_same(etag.as_deref(), done.etag.as_deref())) => {}
            // Another machine may have put the same bytes there meanwhile.
            (decide::Remote::Listed { bytes, .. }, _)
                if *bytes == object.bytes && is_equal(session, object).await? => {}
            _ => return Err(not_kept(session, object, seen)),
        }
    }
    Ok(())
}

/// Whether the object in the place of `object` holds the same bytes.
async fn is_equal(session: &Session, object: &Object) -> Result<bool> {
    Ok(match session.wire.look(&object.name).await? {
        decide::Remote::Seen { b3: Some(b3), .. } => b3 == object.b3,
        decide::Remote::Absent => false,
        _ => session.wire.hash(&object.name).await? == object.b3,
    })
}

/// Sends the record of a partition.
pub(super) async fn send_record(
    session: &Arc<Session>,
    home: &Home,
    name: &str,
    there: &BTreeMap<String, decide::Remote>,
) -> Result<()> {
    let (record, _) = read_record(session, home, name).await?;
    session.live.expect(record.bytes);
    let seen = there.get(&record.name).cloned().unwrap_or(decide::Remote::Absent);
    create(session, &record, &seen).await?;
    session.remember(name);
    Ok(())
}

async fn read_record(session: &Session, home: &Home, name: &str) -> Result<(Object, Bytes)> {
    let (storage, home, name) = (Arc::clone(&session.storage), home.clone(), name.to_owned());
    on_thread(move || {
        let path = home.partitions().join(&name);
        let name = RecordName::parse(&name).ok_or(PushError::Changed { path })?;
        object::record(&*storage, &home, &name)
    })
    .await
}
