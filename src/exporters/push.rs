//! Pushes a complete dataset, and what a push came to.
//!
//! Leaves out: the order of things (`steps`), shards and records (`send_shard`), and the commit itself
//! (`commit`).

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::error::Result;
use super::exporter::Exporter;
use super::journal::Abilities;
use super::others::Others;
use super::session::{PushLive, PushOptions, PushSeen};
use super::steps::Pushed;
use crate::dataset::manifest::Manifest;
use crate::dataset::sentinel::Sentinel;
use crate::dataset::{DatasetError, Home, Workplace};
use crate::remote::Remote;
use crate::shard::layout::COMPLETE;
use crate::storage::{Storage, parent};

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
    pub(super) sentinel: Sentinel,
    /// The sentinel as it lies on the disk.
    pub(super) bytes: Bytes,
    pub(super) manifest: Manifest,
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
    /// [`PushError::Stopped`](super::PushError::Stopped). Dropped, it loses what was on its way.
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
