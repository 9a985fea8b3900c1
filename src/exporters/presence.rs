//! Says in the store that a push is at work, so that nobody cleans up around it.
//!
//! Invariants:
//! 1. The document is there before the push changes anything else. It is written anew each
//!    [`REFRESH`], and goes when the push ends; that of a push that was killed is older than
//!    [`SILENCE`] some time, and says nothing any more.
//! 2. How old it is tells the store's own clock: what stands in it is for people.
//! 3. A push that changes nothing writes none.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::{SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tracing::warn;

use super::wire::{Mode, Wire};
use crate::dataset::Home;
use crate::dataset::home::PUSHING;
use crate::remote::{Remote, RemoteError};
use crate::shard::layout;
use crate::storage::{Storage, StorageError, staged_for};

/// How often a push says that it is at work.
const REFRESH: Duration = Duration::from_mins(1);

/// A push that has said nothing for so long is none any more.
pub(super) const SILENCE: Duration = Duration::from_hours(1);

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
    host: String,
    started: String,
}

impl Presence {
    /// That of a push of the dataset of `home` to the folder `folder` of `remote`, which goes on with one
    /// that was cut off if it `is_resumed`. Nothing is written yet.
    pub(super) fn new(remote: Remote, folder: String, home: &Home, is_resumed: bool) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // One folder has one push to a place at a time, so whoever goes on with it has the same name.
        let mut hasher = blake3::Hasher::new();
        for text in [&*host, &*home.dir().to_string_lossy(), remote.url()] {
            hasher.update(text.as_bytes()).update(b"\0");
        }
        let digest = hasher.finalize().to_hex();
        let name = format!("{PUSHING}/{}.json", digest.get(..16).unwrap_or_default());
        let document = Document { wire: Wire::new(remote, folder), name, host, started: now() };
        Self { document: Arc::new(document), is_resumed, beat: Mutex::default() }
    }

    /// How many requests were made for it.
    pub(super) fn n_requests(&self) -> u64 {
        self.document.wire.n_requests()
    }

    /// Says that the push is at work, from now on; the document is there when this returns.
    pub(super) async fn announce(&self) -> Result<(), RemoteError> {
        let mut beat = self.beat.lock().await;
        if beat.is_some() {
            return Ok(());
        }
        self.document.write().await?;
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
        *beat = Some(tasks);
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
        let (host, started) = (self.host.clone(), self.started.clone());
        let pushing = Pushing { host, pid: std::process::id(), started, refreshed: now() };
        let document = serde_json::to_value(&pushing).unwrap_or_default();
        let bytes = Bytes::from(layout::document(&document));
        let b3 = blake3::hash(&bytes);
        self.wire.put(&self.name, bytes, &b3, &Mode::Replace).await.map(drop)
    }
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}
