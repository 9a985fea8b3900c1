//! Lets the rows of a shard go here that are in the store.
//!
//! Leaves out: in which order a shard's files go (`shard`), and sending them (`send_shard`).
//!
//! Invariants:
//! 1. Rows go only after the shard's own sentinel was read back from the store, and is ours byte for
//!    byte; all that it covers was found there before.
//! 2. Only who holds the dataset's lock drops anything.
//! 3. A shard whose rows are not here is never sent: it is in this store already, or the push is
//!    refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;

use super::error::{PushError, Result};
use super::session::{Session, on_thread};
use super::steps::{LANES, Work};
use super::task::join;
use crate::dataset::record::ShardEntry;
use crate::dataset::{DatasetError, Home, Workplace};
use crate::shard::layout::COMPLETE;
use crate::shard::{RemoteSentinel, drop_rows};

/// Drops rows, and counts them.
#[derive(Debug)]
pub(super) struct Dropper {
    place: Arc<Workplace>,
    n_shards: AtomicU64,
    n_bytes: AtomicU64,
}

impl Dropper {
    /// Of the dataset at `place`, whose lock it holds on to.
    pub(super) fn new(place: Arc<Workplace>) -> Self {
        Self { place, n_shards: AtomicU64::new(0), n_bytes: AtomicU64::new(0) }
    }

    /// Shards that lost files of rows, and the bytes of those files.
    pub(super) fn dropped(&self) -> (u64, u64) {
        (self.n_shards.load(Ordering::Relaxed), self.n_bytes.load(Ordering::Relaxed))
    }

    /// Drops the rows of a shard whose folder in the store is at `url`.
    async fn drop(self: &Arc<Self>, id: &str, url: String) -> Result<()> {
        let (it, id) = (Arc::clone(self), id.to_owned());
        on_thread(move || {
            let dropped = drop_rows(it.place.storage(), it.place.home().dir(), &id, &url);
            let dropped = dropped.map_err(DatasetError::from)?;
            if dropped.n_files > 0 {
                it.n_shards.fetch_add(1, Ordering::Relaxed);
                it.n_bytes.fetch_add(dropped.n_bytes, Ordering::Relaxed);
            }
            Ok(())
        })
        .await
    }
}

/// `_REMOTE` of a shard whose rows are not here; `None` of one that is complete.
pub(super) async fn remote_of(
    session: &Session,
    home: &Home,
    id: &str,
) -> Result<Option<RemoteSentinel>> {
    let (storage, path) = (Arc::clone(&session.storage), home.shard(id));
    let read = move || RemoteSentinel::read(&*storage, &path);
    on_thread(move || Ok(read().map_err(DatasetError::from)?)).await
}

/// Makes sure that a shard is in this store whose rows are not here, and finishes what a drop that was
/// cut off has left of them.
pub(super) async fn expect_there(
    session: &Session,
    home: &Home,
    remote: &RemoteSentinel,
) -> Result<()> {
    session.go_on()?;
    let (id, url) = (remote.id(), folder_url(session, remote.id()));
    if !is_there(session, id, &remote.complete()).await? {
        let path = home.shard(id);
        return Err(if remote.url() == url {
            PushError::Lost { url, path }
        } else {
            PushError::Elsewhere { path, url: remote.dataset_url().to_owned() }
        });
    }
    finish_drop(session, remote).await
}

/// The same without a look at the store, of a shard that says itself that it is there.
pub(super) async fn believe_there(
    session: &Session,
    home: &Home,
    remote: &RemoteSentinel,
) -> Result<()> {
    if remote.url() != folder_url(session, remote.id()) {
        return expect_there(session, home, remote).await;
    }
    finish_drop(session, remote).await
}

/// Finishes what a drop that was cut off has left of a shard that is in the store.
async fn finish_drop(session: &Session, remote: &RemoteSentinel) -> Result<()> {
    if let Some(dropper) = session.dropper.get() {
        dropper.drop(remote.id(), remote.url().to_owned()).await?;
    }
    session.remember(remote.id());
    Ok(())
}

/// Drops the rows of a shard that is in the store, if rows are dropped at all.
pub(super) async fn drop_sent(session: &Session, home: &Home, id: &str) -> Result<()> {
    let Some(dropper) = session.dropper.get() else { return Ok(()) };
    // What is seen now stays: the sentinel of a shard goes before its files.
    session.announce().await?;
    let (storage, path) = (Arc::clone(&session.storage), home.shard(id).join(COMPLETE));
    let ours = on_thread(move || {
        storage.read(&path)?.ok_or_else(|| PushError::Changed { path: path.clone() })
    });
    let url = folder_url(session, id);
    if !is_there(session, id, &ours.await?).await? {
        let what = "its sentinel is not the one that was sent".to_owned();
        return Err(PushError::NotKept { url, what });
    }
    dropper.drop(id, url).await
}

/// Whether the sentinel of a shard is in the store, and says `complete`.
async fn is_there(session: &Session, id: &str, complete: &[u8]) -> Result<bool> {
    let found = session.wire.read(&format!("shards/{id}/{COMPLETE}")).await?;
    Ok(found.is_some_and(|(bytes, _)| bytes == complete))
}

fn folder_url(session: &Session, id: &str) -> String {
    session.wire.show(&format!("shards/{id}"))
}

impl Work<'_> {
    /// Makes sure, before anything is sent, that those of these shards whose rows are not here are in this
    /// store. Where several runs share the place, what a shard says itself is believed until all of them
    /// are looked at: most were taken over from there.
    pub(super) async fn remote_shards(&self, shards: &[ShardEntry], is_shared: bool) -> Result<()> {
        let mut seen = HashSet::new();
        let mut shards = shards
            .iter()
            .filter(|shard| seen.insert(&shard.id) && !self.session.remembers(&shard.id));
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        loop {
            while tasks.len() < LANES
                && let Some(shard) = shards.next()
            {
                let (session, home) = (Arc::clone(self.session), self.home.clone());
                let shard = shard.clone();
                tasks.spawn(async move {
                    let Some(remote) = remote_of(&session, &home, &shard.id).await? else {
                        return Ok(());
                    };
                    if is_shared {
                        believe_there(&session, &home, &remote).await?;
                    } else {
                        expect_there(&session, &home, &remote).await?;
                    }
                    session.live.expect(shard.bytes);
                    session.live.skipped(shard.bytes);
                    Ok(())
                });
            }
            match join(&mut tasks).await {
                Some(ended) => ended?,
                None => return Ok(()),
            }
        }
    }
}
