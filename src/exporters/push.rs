//! Pushes a complete dataset: shards, records, manifest and key index, sentinel.
//!
//! Leaves out: how one file is sent (`send`), and the commit itself (`commit`).
//!
//! Invariants:
//! 1. The files of a shard are there, by the store's own listing, before its sentinel goes out; all
//!    shards of a partition before its record; everything before the dataset's sentinel.
//! 2. What is in the store from an earlier push is found again: it is not sent.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::commit;
use super::decide::{self, is_same};
use super::error::{PushError, Result};
use super::journal::{Abilities, Journal, Known, Note};
use super::object::{self, Object, ShardObjects};
use super::send::{create, not_kept, send};
use super::session::{PushLive, PushOptions, PushSeen, Session, join, on_thread};
use super::wire::Wire;
use crate::dataset::home::PARTITIONS;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::RecordName;
use crate::dataset::sentinel::Sentinel;
use crate::dataset::{DatasetError, Home};
use crate::remote::Remote;
use crate::shard::layout::COMPLETE;
use crate::storage::{Storage, parent};

/// Shards that are sent at once.
const LANES: usize = 8;

/// A complete dataset that is about to be pushed.
#[derive(Debug)]
pub struct Push {
    storage: Arc<dyn Storage>,
    home: Home,
    sentinel: Sentinel,
    /// The sentinel as it lies on the disk.
    sentinel_bytes: Bytes,
    manifest: Manifest,
    remote: Remote,
    options: PushOptions,
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
    /// Requests that were made.
    pub requests: u64,
    /// How long it took.
    pub seconds: f64,
    /// Whether `current.json` names it.
    pub current: bool,
    /// What is not guarded, because the store does not obey conditions.
    pub unguarded: Option<String>,
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
        let path = dir.join(COMPLETE);
        let Some(sentinel_bytes) = storage.read(&path)? else {
            let message = format!("there is no {COMPLETE}");
            return Err(DatasetError::NoDataset { path: dir.to_owned(), message }.into());
        };
        let sentinel_bytes = Bytes::from(sentinel_bytes);
        let sentinel = Sentinel::parse(&path, &sentinel_bytes)?;
        let manifest = Manifest::read(&*storage, dir, &sentinel)?;
        let (name, cache_key) = (&manifest.dataset.name, &manifest.dataset.cache_key);
        let home = Home::new(parent(parent(dir)), name, cache_key)?;
        if home.dir() != dir {
            let message = format!("its manifest is of `{name}`, cache key {cache_key}");
            return Err(DatasetError::NoDataset { path: dir.to_owned(), message }.into());
        }
        Ok(Self { storage, home, sentinel, sentinel_bytes, manifest, remote, options })
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
        let began = Instant::now();
        let folder = format!("{}/{}", self.home.name(), self.home.cache_key());
        let wire = Wire::new(self.remote.clone(), folder);
        let above = Wire::new(self.remote.clone(), self.home.name().to_owned());
        let (storage, home) = (Arc::clone(&self.storage), self.home.clone());
        let url = self.remote.url().to_owned();
        let journal = on_thread(move || Journal::open(&storage, &home, &url)).await?;
        let storage = Arc::clone(&self.storage);
        let session = Session::new(storage, wire, journal, self.options, Arc::clone(&live), stop);
        let session = Arc::new(session);
        live.expect(self.manifest.dataset.bytes);
        let pushed = self.steps(&session, &above).await;
        session.close();
        let Pushed { abilities, current } = pushed?;
        let PushSeen { sent_bytes, sent_objects, skipped_bytes, skipped_objects, .. } = live.seen();
        Ok(PushReport {
            dataset: self.home.dir().display().to_string(),
            url: session.wire.show(""),
            generation: self.sentinel.manifest_b3().to_owned(),
            rows: self.sentinel.rows(),
            shards: self.sentinel.shards(),
            sent_objects,
            sent_bytes,
            skipped_objects,
            skipped_bytes,
            requests: session.wire.n_requests() + above.n_requests(),
            seconds: began.elapsed().as_secs_f64(),
            current,
            unguarded: unguarded(abilities),
        })
    }

    /// Everything, in order.
    async fn steps(&self, session: &Arc<Session>, above: &Wire) -> Result<Pushed> {
        let work = Work { session, home: &self.home };
        let (note, is_fresh) = work.note(&self.sentinel).await?;
        work.shards(&self.manifest).await?;
        let abilities = work.abilities(&self.manifest).await?;
        work.tables(&self.sentinel, &self.manifest).await?;
        let object = self.sentinel_object();
        session.live.expect(object.bytes);
        let was_there = note.before.as_ref().is_some_and(|it| it.generation == note.generation);
        if was_there && is_fresh && session.live.seen().sent_objects == 0 {
            session.live.skipped_object(object.bytes);
        } else {
            work.recount(&self.manifest).await?;
            commit::commit(session, &object, &self.sentinel_bytes, &note, abilities).await?;
        }
        let current = self.is_current()?;
        if current {
            commit::make_current(above, self.home.cache_key()).await?;
        }
        session.journal(move |journal| journal.finished(&note.generation)).await?;
        Ok(Pushed { abilities, current })
    }

    fn sentinel_object(&self) -> Object {
        let (path, bytes) = (self.home.sentinel(), self.sentinel_bytes.len() as u64);
        let b3 = blake3::hash(&self.sentinel_bytes);
        Object { name: COMPLETE.to_owned(), path, bytes, b3 }
    }

    /// Whether the local `current` is this cache key.
    fn is_current(&self) -> Result<bool> {
        let link = self.storage.read_link(&self.home.current())?;
        Ok(link.as_deref() == Some(self.home.cache_key()))
    }
}

/// What the steps of a push have found.
struct Pushed {
    abilities: Abilities,
    current: bool,
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
struct Work<'a> {
    session: &'a Arc<Session>,
    home: &'a Home,
}

impl Work<'_> {
    /// Notes what stands in the place of the sentinel, unless a push that was cut off has done so; says
    /// whether it was noted now.
    async fn note(&self, sentinel: &Sentinel) -> Result<(Note, bool)> {
        let generation = sentinel.manifest_b3().to_owned();
        let noted = self.session.journal(|journal| Ok(journal.facts().note().cloned())).await?;
        if let Some(note) = noted
            && note.generation == generation
            && !self.session.options.replace
        {
            return Ok((note, false));
        }
        let before = commit::found(&self.session.wire).await?;
        if !self.session.options.replace
            && before.as_ref().is_some_and(|it| it.generation.is_empty())
        {
            let what = "it is no sentinel of a dataset".to_owned();
            return Err(PushError::Conflict { url: self.session.wire.show(COMPLETE), what });
        }
        let note = Note { generation, before };
        let written = note.clone();
        self.session.journal(move |journal| journal.note(written)).await?;
        Ok((note, true))
    }

    /// Sends shards, and the record of each partition whose shards are there.
    async fn shards(&self, manifest: &Manifest) -> Result<()> {
        let is_record = |_: &str| true;
        let records = Arc::new(self.session.wire.list(PARTITIONS, is_record).await?);
        let mut left: Vec<usize> = manifest.parts().map(|(_, shards)| shards.len()).collect();
        let mut due = manifest
            .parts()
            .enumerate()
            .flat_map(|(part, (_, shards))| shards.iter().map(move |shard| (part, &shard.id)));
        let mut ready: Vec<usize> =
            (0..left.len()).filter(|part| left.get(*part) == Some(&0)).collect();
        let mut tasks: JoinSet<Result<Option<usize>>> = JoinSet::new();
        loop {
            while tasks.len() < LANES {
                let (session, home) = (Arc::clone(self.session), self.home.clone());
                if let Some(line) = ready.pop().and_then(|part| manifest.partitions.get(part)) {
                    let (name, records) = (line.record.clone(), Arc::clone(&records));
                    tasks.spawn(async move {
                        send_record(&session, &home, &name, &records).await.map(|()| None)
                    });
                } else if let Some((part, id)) = due.next() {
                    let id = id.clone();
                    tasks.spawn(async move {
                        send_shard(&session, &home, &id).await.map(|()| Some(part))
                    });
                } else {
                    break;
                }
            }
            let Some(ended) = join(&mut tasks).await else { return Ok(()) };
            match ended {
                Ok(None) => {}
                Ok(Some(part)) => {
                    if let Some(left) = left.get_mut(part) {
                        *left -= 1;
                        if *left == 0 {
                            ready.push(part);
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

/// Sends the files of a shard, then its sentinel.
async fn send_shard(session: &Arc<Session>, home: &Home, id: &str) -> Result<()> {
    let (storage, place, asked) = (Arc::clone(&session.storage), home.clone(), id.to_owned());
    let shard = on_thread(move || ShardObjects::read(&*storage, &place, &asked)).await?;
    let folder = shard.folder();
    let there = session.wire.list(&folder, |_| true).await?;
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
    Ok(())
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
async fn send_record(
    session: &Arc<Session>,
    home: &Home,
    name: &str,
    there: &BTreeMap<String, decide::Remote>,
) -> Result<()> {
    let (record, _) = read_record(session, home, name).await?;
    session.live.expect(record.bytes);
    let seen = there.get(&record.name).cloned().unwrap_or(decide::Remote::Absent);
    create(session, &record, &seen).await?;
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
