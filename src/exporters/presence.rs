//! Says in the store that a push is at work, so that nobody cleans up around it.
//!
//! Invariants:
//! 1. The document is there before the push changes anything else. It is written anew each
//!    [`REFRESH`], and goes when the push ends; that of a push that was killed is older than
//!    [`SILENCE`] some time, and says nothing any more.
//! 2. How old it is tells the store's own clock: what stands in it is for people.
//! 3. A push that changes nothing writes none.
//! 4. After it is written, and again when it may have been taken for that of a push that was killed, the
//!    push waits until no removal is at work: what it finds after that stays.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as Held, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::cleaning::{LULL, is_of_clean};
use super::error::PushError;
use super::wire::{Mode, Wire};
use crate::dataset::Home;
use crate::dataset::home::PUSHING;
use crate::remote::{Remote, RemoteError};
use crate::shard::layout;
use crate::storage::{Storage, StorageError, staged_for};

/// How often a push says that it is at work.
pub(super) const REFRESH: Duration = Duration::from_mins(1);

/// A push that has said nothing for so long is none any more.
pub(super) const SILENCE: Duration = Duration::from_hours(1);

/// How often a push looks whether a removal has ended that it waits for.
const PATIENT: Duration = Duration::from_millis(500);

/// How long saying that a push has ended may take: it is a courtesy.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands in the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pushing {
    /// The machine.
    pub(super) host: String,
    /// The process there.
    pub(super) pid: u32,
    /// When the push began, by the machine's clock.
    #[serde(default)]
    started: String,
    /// When this was written, by the machine's clock.
    #[serde(default)]
    refreshed: String,
}

impl Pushing {
    /// The document of this process, which begins now.
    pub(super) fn new() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, pid: std::process::id(), started: now(), refreshed: String::new() }
    }

    /// What is to be written now.
    pub(super) fn bytes(&self) -> Bytes {
        let written = Self { refreshed: now(), ..self.clone() };
        Bytes::from(layout::document(&serde_json::to_value(&written).unwrap_or_default()))
    }

    /// Who has written the document.
    pub(super) fn who(bytes: &[u8]) -> String {
        match serde_json::from_slice(bytes) {
            Ok(Self { host, pid, .. }) => format!("pid {pid} on {host}"),
            Err(_) => "it does not say who".to_owned(),
        }
    }
}

/// Who says in `dir`, the folder of a cache key on this machine that is pushed to, that a push is at
/// work; as old as this machine's clock says.
///
/// # Errors
/// The disk's.
pub fn push_at(storage: &dyn Storage, dir: &Path) -> Result<Option<String>, StorageError> {
    let dir = dir.join(PUSHING);
    for entry in storage.list(&dir)?.unwrap_or_default() {
        let path = dir.join(&entry.name);
        let modified = storage.modified(&path)?;
        let is_silent = |since: SystemTime| since.elapsed().is_ok_and(|age| age >= SILENCE);
        if staged_for(&entry.name).is_none()
            && !is_of_clean(&format!("{PUSHING}/{}", entry.name))
            && modified.is_some_and(|since| !is_silent(since))
            && let Some(bytes) = storage.read(&path)?
        {
            return Ok(Some(Pushing::who(&bytes)));
        }
    }
    Ok(None)
}

/// The document of one push.
#[derive(Debug)]
pub(super) struct Presence {
    document: Arc<Document>,
    /// Whether that of a push that was cut off may be there.
    is_resumed: bool,
    /// Writes the document anew, while it is there.
    beat: Mutex<Option<JoinSet<()>>>,
}

#[derive(Debug)]
struct Document {
    wire: Wire,
    name: String,
    content: Pushing,
    /// When it was written last, by this machine's clock.
    said: Held<Option<SystemTime>>,
    /// Whether no removal has begun unseen since this push last looked for one.
    has_looked: AtomicBool,
}

impl Presence {
    /// That of a push of the dataset of `home` to the folder `folder` of `remote`, which goes on with one
    /// that was cut off if it `is_resumed`. Nothing is written yet.
    pub(super) fn new(remote: Remote, folder: String, home: &Home, is_resumed: bool) -> Self {
        let content = Pushing::new();
        // One folder has one push to a place at a time, so whoever goes on with it has the same name.
        let mut hasher = blake3::Hasher::new();
        for text in [&*content.host, &*home.dir().to_string_lossy(), remote.url()] {
            hasher.update(text.as_bytes()).update(b"\0");
        }
        let digest = hasher.finalize().to_hex();
        let name = format!("{PUSHING}/{}.json", digest.get(..16).unwrap_or_default());
        let (wire, said) = (Wire::new(remote, folder), Held::default());
        let document = Document { wire, name, content, said, has_looked: AtomicBool::default() };
        Self { document: Arc::new(document), is_resumed, beat: Mutex::default() }
    }

    /// How many requests were made for it.
    pub(super) fn n_requests(&self) -> u64 {
        self.document.wire.n_requests()
    }

    /// Says that the push is at work, from now on; the document is there when this returns, and nothing is
    /// being removed.
    pub(super) async fn announce(&self, stop: &CancellationToken) -> Result<(), PushError> {
        let mut beat = self.beat.lock().await;
        if beat.is_some() && self.document.is_known() {
            return Ok(());
        }
        self.document.write().await?;
        beat.get_or_insert_with(|| {
            let (mut tasks, document) = (JoinSet::new(), Arc::clone(&self.document));
            tasks.spawn(async move {
                loop {
                    tokio::time::sleep(REFRESH).await;
                    if let Err(error) = document.write().await {
                        let error = &error as &dyn std::error::Error;
                        warn!(error, "could not say that this push is at work");
                    }
                }
            });
            tasks
        });
        let mut is_told = false;
        while let Some(name) = self.document.cleaning().await? {
            if !is_told {
                let url = self.document.wire.show(&name);
                let minutes = LULL.as_secs() / 60;
                warn!(url, minutes, "something is removed there: this push waits until it ends");
                is_told = true;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Err(PushError::Stopped),
                () = tokio::time::sleep(PATIENT) => {}
            }
        }
        if is_told {
            info!("nothing is removed there any more");
        }
        self.document.has_looked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Says nothing any more.
    pub(super) async fn withdraw(&self) {
        let beat = self.beat.lock().await.take();
        if beat.is_none() && !self.is_resumed {
            return;
        }
        if let Some(mut beat) = beat {
            beat.shutdown().await;
        }
        // Where it stays, it grows old.
        let deleted = self.document.wire.delete(&self.document.name);
        if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, deleted).await {
            let error = &error as &dyn std::error::Error;
            warn!(error, "could not say that this push has ended");
        }
    }
}

impl Document {
    async fn write(&self) -> Result<(), RemoteError> {
        let bytes = self.content.bytes();
        let b3 = blake3::hash(&bytes);
        self.wire.put(&self.name, bytes, &b3, &Mode::Replace).await?;
        if self.is_silent() {
            self.has_looked.store(false, Ordering::Relaxed);
        }
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(SystemTime::now());
        Ok(())
    }

    /// Whether this push has said nothing for so long that it may soon count as killed. A machine may have
    /// slept.
    fn is_silent(&self) -> bool {
        let said = *self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.is_none_or(|said| said.elapsed().map_or(true, |age| age >= SILENCE / 2))
    }

    /// Whether all removals know of this push.
    fn is_known(&self) -> bool {
        self.has_looked.load(Ordering::Relaxed) && !self.is_silent()
    }

    /// A document of a removal that is at work. Ages are told by the store, which has just written ours.
    async fn cleaning(&self) -> Result<Option<String>, PushError> {
        let (mut ours, mut theirs) = (None, Vec::new());
        let seen = |name: &str, modified: SystemTime| {
            if name == self.name {
                ours = Some(modified);
            } else if is_of_clean(name) {
                theirs.push((name.to_owned(), modified));
            }
        };
        self.wire.times(PUSHING, seen).await?;
        Ok(theirs.into_iter().find(|(_, said)| !is_past(*said, ours)).map(|(name, _)| name))
    }
}

/// Whether a removal that has `said` something then has ended since, or was killed.
fn is_past(said: SystemTime, now: Option<SystemTime>) -> bool {
    now.is_some_and(|now| now.duration_since(said).is_ok_and(|age| age >= LULL))
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn a_push_that_was_silent_for_long_looks_for_removals_again() {
        let remote = Remote::of_store("s3://bucket/p", Arc::new(InMemory::new()));
        let home = Home::new(Path::new("/data"), "texts", "0123456789abcdef").unwrap();
        let presence = Presence::new(remote, "texts/0123456789abcdef".to_owned(), &home, false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let n_requests = || {
            let before = presence.n_requests();
            runtime.block_on(presence.announce(&CancellationToken::new())).unwrap();
            presence.n_requests() - before
        };
        let sleep = || {
            let then = SystemTime::now() - SILENCE / 2;
            *presence.document.said.lock().unwrap() = Some(then);
        };
        assert_eq!(n_requests(), 2, "it writes, and looks");
        assert_eq!(n_requests(), 0);
        sleep();
        assert_eq!(n_requests(), 2);
        sleep();
        // It has written before anybody asked.
        runtime.block_on(presence.document.write()).unwrap();
        assert_eq!(n_requests(), 2);
        assert_eq!(n_requests(), 0);
        runtime.block_on(presence.withdraw());
    }

    #[test]
    fn a_removal_that_has_been_silent_for_long_is_none_any_more() {
        let said = SystemTime::UNIX_EPOCH + Duration::from_hours(9);
        for (now, is_past_then) in [
            (None, false),
            (Some(said - LULL), false),
            (Some(said), false),
            (Some(said + LULL - Duration::from_secs(1)), false),
            (Some(said + LULL), true),
        ] {
            assert_eq!(is_past(said, now), is_past_then, "{now:?}");
        }
    }
}
