//! Brings a complete dataset from a store to the disk: the mirror of a push.
//!
//! Leaves out: how one file comes (`pull_file`).
//!
//! Invariants:
//! 1. A shard stands in its place only whole: it is fetched into `work/pull`, compared with its sums,
//!    gets its sentinel there and is renamed. Of a shard whose rows were dropped the files that are
//!    missing are fetched, and it is complete again when all are in place.
//! 2. The dataset's sentinel is written when everything that its manifest names is durable in its
//!    place, and `current` leads to it then. A pull of some shards writes neither.
//! 3. What is in its place is not fetched again: a second pull asks for sentinel and manifest alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::pull_error::PullError;
use super::pull_file::{self, Wanted};
use super::pull_session::{PullLive, PullOptions, PullSession, on_thread};
use super::task::join;
use crate::dataset::home::PARTITIONS;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::ShardEntry;
use crate::dataset::sentinel::Sentinel;
use crate::dataset::{DatasetError, Home, Workplace, reader};
use crate::remote::{Remote, RemoteStorage};
use crate::shard::layout::{self, BLOCK_BYTES};
use crate::shard::{Promise, bring_back, files_here, is_complete};
use crate::storage::{Storage, parent};

type Result<T, E = PullError> = std::result::Result<T, E>;

/// Shards that are fetched at once.
const SHARDS_AT_ONCE: usize = 8;

/// What was pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PullReport {
    /// Where it came from.
    pub url: String,
    /// The folder of its cache key.
    pub dataset: String,
    /// The BLAKE3 of its manifest: what names its generation.
    pub generation: String,
    /// Whether all of it is here; otherwise there is no sentinel.
    pub complete: bool,
    /// Rows of the shards that are here.
    pub rows: u64,
    /// Shards that are here.
    pub shards: u64,
    /// Shards of the dataset.
    pub shards_of_dataset: u64,
    /// Shards that were here before.
    pub shards_before: u64,
    /// Bytes of the shards that are here.
    pub bytes: u64,
    /// Bytes of files that came from the store.
    pub received_bytes: u64,
}

/// A dataset in a store, as its sentinel says.
struct There {
    storage: RemoteStorage,
    /// The folder of its cache key.
    dir: PathBuf,
    sentinel: Sentinel,
    manifest: Manifest,
}

/// Brings the dataset at `remote` below `out`: the folders `<name>/<cache key>` are made there. With
/// `only`, brings these shards, counted from 0, and no sentinel.
///
/// # Errors
/// There is no complete dataset, the store or the disk failed, what came is not what was pushed, or it
/// was stopped. The same call goes on from there.
///
/// # Durability
/// On `Ok` everything survives a power cut.
pub async fn pull(
    remote: Remote,
    storage: Arc<dyn Storage>,
    out: &Path,
    only: Option<Vec<usize>>,
    options: PullOptions,
    live: Arc<PullLive>,
    stop: CancellationToken,
) -> Result<PullReport> {
    let there = RemoteStorage::new(remote.clone(), Handle::current());
    let there = on_thread(move || There::find(there)).await?;
    let session = PullSession::new(remote, storage, options, live, stop);
    let shards = chosen(&there.manifest, only.as_deref())?;
    let dataset = &there.manifest.dataset;
    let home = Home::new(out, &dataset.name, &dataset.cache_key)?;
    let disk = Arc::clone(&session.storage);
    let place = on_thread(move || Ok(Workplace::open(disk, home)?)).await?;
    let pull = Arc::new(Pull { session: Arc::new(session), there, place });
    pull.session.live.expect(shards.iter().map(|shard| shard.bytes).sum());
    let (of_pull, all) = (Arc::clone(&pull), shards.clone());
    on_thread(move || of_pull.expect_room(&all)).await?;
    pull.prepare().await?;
    let shards_before = pull.shards(&shards).await?;
    if only.is_none() {
        pull.finish().await?;
    }
    let of_pull = Arc::clone(&pull);
    on_thread(move || Ok(of_pull.place.discard(&of_pull.staging())?)).await?;
    Ok(PullReport {
        url: pull.session.remote.url().to_owned(),
        dataset: pull.place.home().dir().display().to_string(),
        generation: pull.there.sentinel.manifest_b3().to_owned(),
        complete: only.is_none(),
        rows: shards.iter().map(|shard| shard.rows).sum(),
        shards: shards.len() as u64,
        shards_of_dataset: pull.there.manifest.dataset.shards,
        shards_before,
        bytes: shards.iter().map(|shard| shard.bytes).sum(),
        received_bytes: pull.session.live.seen().received_bytes,
    })
}

/// The shards that are asked for, each once, in dataset order.
fn chosen(manifest: &Manifest, only: Option<&[usize]>) -> Result<Vec<ShardEntry>> {
    let n_shards = manifest.shards.len();
    if let Some(number) = only.and_then(|only| only.iter().find(|number| **number >= n_shards)) {
        return Err(PullError::NoShard { number: *number, n_shards });
    }
    let is_chosen = |number: usize| only.is_none_or(|only| only.contains(&number));
    let all = manifest.shards.iter().enumerate();
    let mut shards: Vec<_> =
        all.filter(|(number, _)| is_chosen(*number)).map(|(_, shard)| shard.clone()).collect();
    // Two partitions of equal rows share a shard.
    let mut seen = std::collections::HashSet::new();
    shards.retain(|shard| seen.insert(shard.id.clone()));
    Ok(shards)
}

impl There {
    /// Reads sentinel and manifest of the dataset at the URL: that of a cache key, or the one above
    /// it, whose `current.json` is followed.
    fn find(storage: RemoteStorage) -> Result<Self> {
        let (dir, sentinel) = reader::find(&storage, storage.root())?;
        let manifest = Manifest::read(&storage, &dir, &sentinel)?;
        Ok(Self { storage, dir, sentinel, manifest })
    }

    /// An object below the cache key, relative to the URL.
    fn name(&self, below: &str) -> Result<String> {
        Ok(self.storage.relative("read", &self.dir.join(below))?)
    }

    /// An object below the cache key, which has to be there.
    fn read(&self, below: &str) -> Result<Vec<u8>> {
        let path = self.dir.join(below);
        self.storage.read(&path)?.ok_or_else(|| {
            let message = "it is not there, and the manifest names it".to_owned();
            DatasetError::Damaged { path, message }.into()
        })
    }

    fn damaged(&self, below: &str, message: &str) -> PullError {
        let (path, message) = (self.dir.join(below), message.to_owned());
        DatasetError::Damaged { path, message }.into()
    }
}

/// A pull that is at work.
struct Pull {
    session: Arc<PullSession>,
    there: There,
    place: Workplace,
}

impl Pull {
    /// Where things are until they are whole.
    fn staging(&self) -> PathBuf {
        self.place.home().work().join("pull")
    }

    /// Refuses to begin what the disk cannot hold.
    fn expect_room(&self, shards: &[ShardEntry]) -> Result<()> {
        let (storage, home) = (&self.session.storage, self.place.home());
        let mut needed: u64 = 0;
        for shard in shards {
            if storage.stat(&home.shard(&shard.id).join(layout::COMPLETE))?.is_none() {
                needed = needed.saturating_add(shard.bytes);
                // What was fetched before, and what stayed here of a shard whose rows were dropped.
                for dir in [self.staging().join(&shard.id), home.shard(&shard.id)] {
                    let here = storage.list(&dir)?.unwrap_or_default();
                    needed = needed.saturating_sub(here.iter().map(|entry| entry.len).sum());
                }
            }
        }
        match storage.free_bytes(home.dir())? {
            Some(free) if free < needed => {
                Err(PullError::Space { path: home.dir().to_owned(), free, needed })
            }
            _ => Ok(()),
        }
    }

    async fn prepare(self: &Arc<Self>) -> Result<()> {
        let it = Arc::clone(self);
        on_thread(move || Ok(it.session.storage.create_dir_all(&it.staging())?)).await
    }

    /// Brings shards; how many were here.
    async fn shards(self: &Arc<Self>, shards: &[ShardEntry]) -> Result<u64> {
        let at_once = SHARDS_AT_ONCE.min(self.session.options.concurrency.max(1));
        let (mut tasks, mut n_before) = (JoinSet::new(), 0);
        for shard in shards {
            self.session.go_on()?;
            if tasks.len() >= at_once
                && let Some(was_there) = join(&mut tasks).await
            {
                n_before += u64::from(was_there?);
            }
            let (it, shard) = (Arc::clone(self), shard.clone());
            tasks.spawn(async move { it.shard(&shard).await });
        }
        while let Some(was_there) = join(&mut tasks).await {
            n_before += u64::from(was_there?);
        }
        Ok(n_before)
    }

    /// Brings a shard; whether it was here.
    async fn shard(self: &Arc<Self>, entry: &ShardEntry) -> Result<bool> {
        let (it, id) = (Arc::clone(self), entry.id.clone());
        let is_here = move || Ok(is_complete(&*it.session.storage, it.place.home().dir(), &id)?);
        if on_thread(is_here).await? {
            self.session.live.there(entry.bytes);
            return Ok(true);
        }
        let (it, id) = (Arc::clone(self), entry.id.clone());
        let (promise, mut files) = on_thread(move || it.wanted(&id)).await?;
        if promise.n_rows() != entry.rows {
            let path = format!("shards/{}/{}", entry.id, layout::COMPLETE);
            return Err(self.there.damaged(&path, "its rows are not what the manifest says"));
        }
        self.add_crcs(&mut files).await?;
        let n_bytes = (promise.complete.len() + promise.sums.len()) as u64;
        let bytes = n_bytes + files.iter().map(|wanted| wanted.len).sum::<u64>();
        let (here, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|wanted| !wanted.path.starts_with(self.staging()));
        self.session.live.there(here.iter().map(|wanted| wanted.len).sum());
        let fetched = files.into_iter().map(|wanted| {
            let session = Arc::clone(&self.session);
            async move { pull_file::fetch(&session, &wanted).await }
        });
        let at_once = self.session.options.concurrency.max(1);
        stream::iter(fetched).buffer_unordered(at_once).try_collect::<()>().await?;
        if bytes != entry.bytes {
            let path = format!("shards/{}", entry.id);
            return Err(self
                .there
                .damaged(&path, "its bytes are not as many as the manifest says"));
        }
        let (it, id) = (Arc::clone(self), entry.id.clone());
        on_thread(move || it.seal(&id, &promise)).await?;
        self.session.live.there(n_bytes);
        Ok(false)
    }

    /// Makes the folder that a shard is fetched into, and says which files belong there. What stayed
    /// here of a shard whose rows were dropped is in its place.
    fn wanted(&self, id: &str) -> Result<(Promise, Vec<Wanted>)> {
        let (storage, staging) = (&self.session.storage, self.staging().join(id));
        storage.create_dir_all(&staging)?;
        let folder = layout::sealed(&self.there.dir, id);
        let promise = Promise::read(&self.there.storage, &folder)?;
        if promise.id() != id {
            let path = format!("shards/{id}/{}", layout::COMPLETE);
            return Err(self
                .there
                .damaged(&path, &format!("it is that of shard {}", promise.id())));
        }
        let place = self.place.home().shard(id);
        let here = if storage.stat(&place.join(layout::REMOTE))?.is_some() {
            files_here(&**storage, &place, &promise)?
        } else {
            BTreeSet::new()
        };
        let lens = self.lens(&folder, &promise)?;
        let mut files = Vec::with_capacity(promise.files.len());
        for ((name, b3), len) in promise.files.iter().zip(lens) {
            let dir = if here.contains(name) { &place } else { &staging };
            let (below, path) = (format!("shards/{id}/{name}"), dir.join(name));
            let Some(len) = len else {
                return Err(self.there.damaged(&below, "it is not there, and B3SUMS names it"));
            };
            files.push(Wanted { name: self.there.name(&below)?, path, len, b3: *b3, crcs: None });
        }
        Ok((promise, files))
    }

    /// The sizes of a shard's files, in the order of its sums; `None` of one that is not there.
    fn lens(&self, folder: &Path, promise: &Promise) -> Result<Vec<Option<u64>>> {
        let storage = &self.there.storage;
        let listed = storage.list(folder)?.unwrap_or_default();
        let len = |name: &str| listed.iter().find(|it| it.name == name).map(|it| it.len);
        Ok(promise.files.iter().map(|(name, _)| len(name)).collect())
    }

    /// Fetches the numbers of the blocks, and gives each file its own, if they can be told apart.
    async fn add_crcs(self: &Arc<Self>, files: &mut [Wanted]) -> Result<()> {
        let is_blocks = |wanted: &&Wanted| wanted.path.ends_with(layout::BLOCKS);
        let Some(blocks) = files.iter().find(is_blocks).cloned() else { return Ok(()) };
        if blocks.path.starts_with(self.staging()) {
            pull_file::fetch(&self.session, &blocks).await?;
        }
        let storage = Arc::clone(&self.session.storage);
        let path = blocks.path.clone();
        let bytes = on_thread(move || Ok(storage.read(&path)?.unwrap_or_default())).await?;
        let (numbers, _) = bytes.as_chunks::<4>();
        let numbers: Vec<u32> = numbers.iter().map(|crc| u32::from_le_bytes(*crc)).collect();
        let n_blocks = |wanted: &Wanted| {
            usize::try_from(wanted.len.div_ceil(BLOCK_BYTES)).unwrap_or(usize::MAX)
        };
        let others = files.iter().filter(|wanted| !is_blocks(wanted));
        let sum = others.fold(0_usize, |sum, wanted| sum.saturating_add(n_blocks(wanted)));
        if sum != numbers.len() {
            // A file has not its size: its BLAKE3 will say which.
            return Ok(());
        }
        let mut rest = numbers.as_slice();
        for wanted in files.iter_mut().filter(|wanted| !is_blocks(&&**wanted)) {
            let (its, after) = rest.split_at(n_blocks(wanted).min(rest.len()));
            wanted.crcs = Some(its.into());
            rest = after;
        }
        Ok(())
    }

    /// Gives a shard whose files are durable its sentinel, and moves it to its place.
    fn seal(&self, id: &str, promise: &Promise) -> Result<()> {
        let (storage, folder) = (&*self.session.storage, self.staging().join(id));
        storage.write_atomic(&folder.join(layout::SUMS), &promise.sums)?;
        storage.sync_dir(&folder)?;
        let place = self.place.home().shard(id);
        if storage.stat(&place.join(layout::REMOTE))?.is_some() {
            return Ok(bring_back(storage, self.place.home().dir(), &folder, promise)?);
        }
        storage.write_atomic(&folder.join(layout::COMPLETE), &promise.complete)?;
        // Without a sentinel: the rest of a removal.
        self.place.discard(&place)?;
        pull_file::publish(storage, &folder, &place)
    }

    /// Brings what the manifest names beside shards, the manifest, and the sentinel at last.
    async fn finish(self: &Arc<Self>) -> Result<()> {
        let records = self.there.manifest.partitions.iter().map(|it| it.record.clone());
        let records = records.map(|record| {
            let it = Arc::clone(self);
            on_thread(move || it.record(&record))
        });
        let at_once = self.session.options.concurrency.max(1);
        stream::iter(records).buffer_unordered(at_once).try_collect::<()>().await?;
        self.key_index().await?;
        self.session.go_on()?;
        let it = Arc::clone(self);
        on_thread(move || it.complete()).await
    }

    fn record(&self, name: &str) -> Result<()> {
        self.session.go_on()?;
        let path = self.place.home().partitions().join(name);
        if self.session.storage.stat(&path)?.is_some() {
            return Ok(());
        }
        let below = format!("{PARTITIONS}/{name}");
        let bytes = self.there.read(&below)?;
        let digest = blake3::hash(&bytes).to_hex();
        let digits = digest.get(..16).unwrap_or_default();
        if !name.ends_with(&format!("-{digits}.json")) {
            return Err(self.there.damaged(&below, "its bytes are not those it is named by"));
        }
        pull_file::put(&*self.session.storage, &self.staging(), &path, &bytes)
    }

    async fn key_index(self: &Arc<Self>) -> Result<()> {
        let Some(keys) = self.there.manifest.dataset.keys.clone() else { return Ok(()) };
        let digest = keys.b3.to_hex();
        let name = format!("keys-{}.bin", digest.get(..16).unwrap_or_default());
        if keys.file != name {
            let manifest = self.there.sentinel.manifest();
            return Err(self.there.damaged(manifest, "it names another file than a key index"));
        }
        let it = Arc::clone(self);
        let file = name.clone();
        let len = on_thread(move || {
            if it.session.storage.stat(&it.place.home().file(&file))?.is_some() {
                return Ok(None);
            }
            let found = it.there.storage.stat(&it.there.dir.join(&file))?;
            let missing = "it is not there, and the manifest names it";
            found.map(|entry| Some(entry.len)).ok_or_else(|| it.there.damaged(&file, missing))
        });
        let Some(len) = len.await? else { return Ok(()) };
        let (path, crcs) = (self.staging().join(&name), None);
        let wanted = Wanted { name: self.there.name(&name)?, path, len, b3: keys.b3, crcs };
        self.session.live.expect(len);
        pull_file::fetch(&self.session, &wanted).await?;
        let it = Arc::clone(self);
        on_thread(move || {
            it.session.storage.sync_dir(parent(&wanted.path))?;
            pull_file::publish(&*it.session.storage, &wanted.path, &it.place.home().file(&name))
        })
        .await
    }

    /// Writes manifest and sentinel, and lets `current` lead there.
    fn complete(&self) -> Result<()> {
        let (storage, home) = (&*self.session.storage, self.place.home());
        let (sentinel, name) = (&self.there.sentinel, self.there.sentinel.manifest());
        if storage.stat(&home.file(name))?.is_none() {
            let bytes = self.there.read(name)?;
            if blake3::hash(&bytes).to_hex().as_str() != sentinel.manifest_b3() {
                return Err(self.there.damaged(name, "its bytes are not those the sentinel names"));
            }
            pull_file::put(storage, &self.staging(), &home.file(name), &bytes)?;
        }
        storage.sync_dir(&home.shards())?;
        storage.sync_dir(&home.partitions())?;
        storage.sync_dir(home.dir())?;
        if Sentinel::read(storage, home.dir())?.as_ref() != Some(sentinel) {
            storage.write_atomic(&home.sentinel(), &sentinel.to_bytes())?;
        }
        Ok(self.place.set_current(sentinel)?)
    }
}
