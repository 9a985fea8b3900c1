//! The steps of a push: shards and records, manifest and key index, sentinel.
//!
//! Leaves out: how a shard is sent (`send_shard`), and the commit itself (`commit`).
//!
//! Invariants:
//! 1. All shards of a partition are there before its record goes out; everything before the dataset's
//!    sentinel.
//! 2. What is in the store from an earlier push is found again: it is not sent.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::commit;
use super::decide;
use super::drop::remote_of;
use super::error::{PushError, Result};
use super::exporter::Exporter;
use super::journal::{Abilities, Journal, Note};
use super::object::{self, Object};
use super::others::Others;
use super::push::{Complete, Replaced};
use super::send::send;
use super::send_shard::{read_record, send_record, send_shard};
use super::session::Session;
use super::task::join;
use crate::dataset::Home;
use crate::dataset::home::{PARTITIONS, current_of};
use crate::dataset::manifest::Manifest;
use crate::dataset::record::ShardEntry;
use crate::dataset::sentinel::Sentinel;
use crate::shard::layout::COMPLETE;
use crate::storage::parent;

/// Shards that are sent at once.
pub(super) const LANES: usize = 8;

impl Exporter {
    /// Everything, in order.
    pub(super) async fn steps(
        &self,
        complete: &Complete,
        others: Option<&Arc<Others>>,
    ) -> Result<Pushed> {
        let Complete { sentinel, bytes, manifest } = complete;
        let (session, home) = (self.session(), self.home());
        let work = Work { session, home };
        let (note, is_fresh) = work.note(Some(sentinel.manifest_b3())).await?;
        work.remote_shards(&manifest.shards, others.is_some()).await?;
        let was_there = note.before.as_ref().is_some_and(|it| it.generation == note.generation);
        if !was_there || session.options.replace {
            // What is found from now on stays: what no generation names goes where something is removed.
            session.announce().await?;
        }
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
        let is_all_there = was_there && is_fresh && session.live.seen().sent_objects == 0;
        if is_all_there && !session.options.replace {
            if others.is_some() {
                // What was taken over was believed until now.
                work.recount(manifest).await?;
            }
            session.live.skipped_object(object.bytes);
        } else {
            if !was_there || session.options.replace {
                // It may have been silent for long.
                session.announce().await?;
            }
            work.recount(manifest).await?;
            commit::commit(session, &object, bytes, &note, abilities).await?;
        }
        let replaced = replaced(session, &note).await?;
        // What is current on this machine says whether the cache key is the one that counts.
        let current = current_of(&*session.storage, parent(home.dir()))?;
        let current = current.as_deref() == Some(home.cache_key());
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
pub(super) struct Pushed {
    pub(super) abilities: Abilities,
    pub(super) current: bool,
    pub(super) replaced: Option<Replaced>,
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

    /// Looks at all shards once more, their sentinels and sizes: somebody may have removed something.
    async fn recount(&self, manifest: &Manifest) -> Result<()> {
        let mut there: HashMap<String, (u64, bool)> = HashMap::new();
        self.session
            .wire
            .sizes("shards", |name, bytes| {
                let mut parts = name.split('/').skip(1);
                if let (Some(id), Some(file)) = (parts.next(), parts.next()) {
                    let (of_shard, is_sealed) = there.entry(id.to_owned()).or_default();
                    *of_shard = of_shard.saturating_add(bytes);
                    *is_sealed |= file == COMPLETE;
                }
            })
            .await?;
        for shard in &manifest.shards {
            let (bytes, is_sealed) = there.get(&shard.id).copied().unwrap_or_default();
            if is_sealed && bytes >= shard.bytes {
                continue;
            }
            let folder = format!("shards/{}", shard.id);
            if remote_of(self.session, self.home, &shard.id).await?.is_some() {
                // There are no rows here that could be sent again.
                let (url, path) = (self.session.wire.show(&folder), self.home.shard(&shard.id));
                return Err(PushError::Lost { url, path });
            }
            let (name, what) = if is_sealed {
                (folder, format!("{bytes} bytes, not {}", shard.bytes))
            } else {
                (format!("{folder}/{COMPLETE}"), "nothing is there".to_owned())
            };
            return Err(PushError::NotKept { url: self.session.wire.show(&name), what });
        }
        Ok(())
    }
}
