//! Checks a whole dataset: its sentinel, manifest, records, key index and every byte of its shards.
//!
//! Leaves out: repairing anything, what one shard promises (`shard`), and rows that are only in a store,
//! which are counted and can be checked there.
//!
//! Invariants:
//! 1. The search goes on behind the first find, as far as what was found can still be read.
//! 2. Memory grows with the number of shards, never with their size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::DatasetError;
use super::keys::KeyIndex;
use super::manifest::{Manifest, PartitionLine};
use super::publish::hash_file;
use super::reader::find;
use super::record::{BooksByStage, Record, RecordName, ShardEntry};
use crate::books::StageBooks;
use crate::fingerprint::{cache_key, dataset_fingerprint};
use crate::shard::{
    Finding, FindingKind, ReadError, RemoteSentinel, SealedShard, layout, staged_files,
    verify_kept, verify_shard, verify_shard_sums,
};
use crate::storage::Storage;

/// A dataset of which every byte is as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The folder of its cache key.
    pub path: PathBuf,
    /// The BLAKE3 of its manifest: what names its generation.
    pub generation: String,
    /// Number of rows.
    pub n_rows: u64,
    /// Number of partitions.
    pub n_partitions: usize,
    /// Number of shards.
    pub n_shards: usize,
    /// Bytes of all files of all shards.
    pub n_bytes: u64,
    /// Shards whose rows are only in a store and were not checked.
    pub n_remote: usize,
    /// Their bytes, with what of them is here.
    pub n_remote_bytes: u64,
    /// Where they can be checked: URLs of the dataset.
    pub urls: BTreeSet<String>,
    /// Files that pushes to this folder were writing when they were killed; no part of the dataset.
    pub staged: Vec<PathBuf>,
}

/// How far a verification has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Shards that were checked.
    pub shards_done: usize,
    /// Shards of the dataset.
    pub n_shards: usize,
    /// Bytes of the shards that were checked.
    pub bytes_done: u64,
    /// Bytes of all shards.
    pub n_bytes: u64,
}

/// What is known of a shard that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardFacts {
    /// Its id.
    pub id: String,
    /// Its rows.
    pub rows: u64,
    /// Where its bytes are.
    pub bytes: ShardBytes,
    /// Files in its folder that are no part of it: those that a push was writing when it was killed.
    pub staged: Vec<PathBuf>,
}

/// Where the bytes of a shard are that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardBytes {
    /// All its files were looked at, of so many bytes.
    Here(u64),
    /// Its rows were not looked at: the dataset is at this URL too.
    At(String),
}

impl From<SealedShard> for ShardFacts {
    fn from(shard: SealedShard) -> Self {
        let bytes = ShardBytes::Here(shard.bytes());
        Self { id: shard.id().to_owned(), rows: shard.rows(), bytes, staged: Vec::new() }
    }
}

impl From<RemoteSentinel> for ShardFacts {
    fn from(remote: RemoteSentinel) -> Self {
        let bytes = ShardBytes::At(remote.dataset_url().to_owned());
        Self { id: remote.id().to_owned(), rows: remote.n_rows(), bytes, staged: Vec::new() }
    }
}

/// How closely large files are looked at.
pub trait Look: Sync {
    /// Looks at a shard.
    ///
    /// # Errors
    /// Everything that is wrong.
    fn shard(&self, path: &Path) -> Result<ShardFacts, Vec<Finding>>;

    /// Looks at the key index of `n_rows` rows; gives its BLAKE3 where that is known.
    ///
    /// # Errors
    /// It is not there, or has another size.
    fn key_index(&self, path: &Path, n_rows: u64) -> Result<Option<blake3::Hash>, DatasetError>;
}

/// Reads every byte that is here, and checks what the bytes say.
#[derive(Debug, Clone, Copy)]
pub struct Whole<'a>(pub &'a Arc<dyn Storage>);

impl Look for Whole<'_> {
    fn shard(&self, path: &Path) -> Result<ShardFacts, Vec<Finding>> {
        let seen = match verify_shard(self.0, path) {
            Ok(shard) => shard.into(),
            // Asked afterwards, because rows may go while they are read.
            Err(findings) => match verify_kept(self.0, path)? {
                Some(remote) => remote.into(),
                None => return Err(findings),
            },
        };
        let staged = staged_files(&**self.0, path).map_err(|e| vec![Finding::of_refusal(&e)])?;
        Ok(ShardFacts { staged, ..seen })
    }

    fn key_index(&self, path: &Path, n_rows: u64) -> Result<Option<blake3::Hash>, DatasetError> {
        KeyIndex::open(&**self.0, path, n_rows)?;
        hash_file(&**self.0, path).map(Some)
    }
}

/// Reads every byte once, from one end to the other, and compares it with the sums: no file is held in
/// memory. What is as it was sealed says what it said then.
#[derive(Debug, Clone, Copy)]
pub struct Streamed<'a>(pub &'a Arc<dyn Storage>);

impl Look for Streamed<'_> {
    fn shard(&self, path: &Path) -> Result<ShardFacts, Vec<Finding>> {
        verify_shard_sums(self.0, path).map(Into::into)
    }

    fn key_index(&self, path: &Path, _n_rows: u64) -> Result<Option<blake3::Hash>, DatasetError> {
        hash_file(&**self.0, path).map(Some)
    }
}

/// Checks the dataset at `path`, a folder `<out>/<name>` or that of a cache key. Calls `progress`
/// after each shard.
///
/// # Errors
/// Everything that is wrong: what belongs to the dataset first, then shard by shard.
pub fn verify(
    storage: &Arc<dyn Storage>,
    path: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, Vec<Finding>> {
    verify_with(storage, path, 1, progress)
}

/// The same, with as many shards at once as `jobs` says. What is found, and in which order, is the
/// same.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    storage: &Arc<dyn Storage>,
    path: &Path,
    jobs: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, Vec<Finding>> {
    verify_by(storage, path, jobs, &Whole(storage), progress)
}

/// The same, as closely as `look` looks.
///
/// # Errors
/// As [`verify`].
pub fn verify_by(
    storage: &Arc<dyn Storage>,
    path: &Path,
    jobs: usize,
    look: &dyn Look,
    progress: &mut dyn FnMut(Progress),
) -> Result<Verified, Vec<Finding>> {
    let (dir, sentinel) = find(&**storage, path).map_err(|e| vec![finding(path, &e)])?;
    let manifest = Manifest::read(&**storage, &dir, &sentinel)
        .map_err(|e| vec![finding(&dir.join(sentinel.manifest()), &e)])?;
    let path = dir.join(sentinel.manifest());
    let mut search = Search { storage, look, dir: &dir, path: &path, findings: Vec::new() };
    search.totals(&manifest);
    for (partition, shards) in manifest.parts() {
        search.partition(&manifest, partition, shards);
    }
    search.keys(&manifest);
    let (n_shards, n_bytes) = (manifest.shards.len(), manifest.dataset.bytes);
    let mut done = Progress { shards_done: 0, n_shards, bytes_done: 0, n_bytes };
    let all: Vec<_> = manifest
        .parts()
        .flat_map(|(partition, shards)| shards.iter().map(move |shard| (partition, shard)))
        .collect();
    let next = AtomicUsize::new(0);
    let mut found: Vec<Vec<Finding>> = all.iter().map(|_| Vec::new()).collect();
    let (mut n_remote, mut n_remote_bytes, mut urls) = (0, 0, BTreeSet::new());
    let mut staged = Vec::new();
    std::thread::scope(|threads| {
        // Findings go over the channel as fast as they are taken: nothing piles up behind it.
        let (tell, told) = sync_channel(jobs.max(1));
        for _ in 0..jobs.clamp(1, n_shards.max(1)) {
            let (tell, next, all, manifest) = (tell.clone(), &next, &all, &manifest);
            let (dir, path) = (search.dir, search.path);
            threads.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((partition, shard)) = all.get(index) else { break };
                    let mut search = Search { storage, look, dir, path, findings: Vec::new() };
                    let beside = search.shard(manifest, partition, shard);
                    if tell.send((index, (shard.bytes, beside), search.findings)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tell);
        for (index, (n_bytes, (url, left)), findings) in told {
            staged.extend(left);
            done.shards_done += 1;
            done.bytes_done += n_bytes;
            if let Some(url) = url {
                n_remote += 1;
                n_remote_bytes += n_bytes;
                urls.insert(url);
            }
            if let Some(place) = found.get_mut(index) {
                *place = findings;
            }
            progress(done);
        }
    });
    staged.sort();
    staged.dedup();
    search.findings.extend(found.into_iter().flatten());
    if !search.findings.is_empty() {
        return Err(search.findings);
    }
    Ok(Verified {
        generation: sentinel.manifest_b3().to_owned(),
        n_rows: manifest.dataset.rows,
        n_partitions: manifest.partitions.len(),
        n_shards,
        n_bytes,
        n_remote,
        n_remote_bytes,
        urls,
        staged,
        path: dir,
    })
}

/// What a shard's fingerprint says beside its inputs, of which there may be many.
#[derive(Debug, Default, Deserialize)]
struct MadeFrom {
    slot: String,
    cache_key: String,
}

struct Search<'a> {
    storage: &'a Arc<dyn Storage>,
    look: &'a dyn Look,
    dir: &'a Path,
    /// The manifest.
    path: &'a Path,
    findings: Vec<Finding>,
}

impl Search<'_> {
    fn wrong(&mut self, path: &Path, what: impl Into<String>) {
        let kind = FindingKind::Wrong(what.into());
        self.findings.push(Finding { path: path.to_path_buf(), block: None, kind });
    }

    /// What the first line of the manifest says against the lines that follow.
    fn totals(&mut self, manifest: &Manifest) {
        let dataset = &manifest.dataset;
        if cache_key(&dataset.definition) != dataset.cache_key {
            self.wrong(self.path, "the definition is not what the cache key hashes");
        }
        let inputs: Vec<_> = manifest.partitions.iter().map(|p| p.inputs_b3.to_hex()).collect();
        if dataset_fingerprint(&dataset.cache_key, &inputs) != dataset.fingerprint {
            self.wrong(self.path, "the fingerprint is not that of the partitions' inputs");
        }
        let mut total: BTreeMap<&str, StageBooks> = BTreeMap::new();
        for partition in &manifest.partitions {
            for (stage, books) in &partition.books {
                add(total.entry(stage).or_default(), books);
            }
        }
        // A source behind a limit has no partition.
        let seen = |books: &StageBooks| *books != StageBooks::default();
        total.retain(|_, books| seen(books));
        let said = dataset.books.iter().filter(|(_, books)| seen(books));
        let said: BTreeMap<_, _> = said.map(|(stage, books)| (stage.as_str(), *books)).collect();
        if said != total && !manifest.partitions.is_empty() {
            self.wrong(self.path, "the books are not the sum of those of the partitions");
        }
        self.books(self.path, "the dataset", &dataset.books, dataset.rows);
    }

    fn books(&mut self, path: &Path, of: &str, books: &BooksByStage, rows: u64) {
        for (stage, books) in books {
            let left = books.entered.checked_add(books.created);
            let right = books.dropped.checked_add(books.rejected);
            if left.is_none() || left != right.and_then(|gone| gone.checked_add(books.out)) {
                self.wrong(path, format!("the books of {of} do not close at stage `{stage}`"));
            }
        }
        // The last stage let them out, or, where there is nothing behind them, all sources together.
        let all = books.values().fold(0, |sum: u64, books| sum.saturating_add(books.out));
        if !books.is_empty() && all != rows && books.values().all(|books| books.out != rows) {
            self.wrong(path, format!("no stage let out the {rows} rows of {of}"));
        }
    }

    /// A partition's record against the manifest.
    fn partition(&mut self, manifest: &Manifest, line: &PartitionLine, shards: &[ShardEntry]) {
        let path = self.dir.join(super::home::PARTITIONS).join(&line.record);
        let of = format!("partition {}", line.slot);
        self.books(&path, &of, &line.books, line.rows);
        let Some(name) = RecordName::parse(&line.record) else { return };
        let key = &manifest.dataset.cache_key;
        let record = match Record::read(&**self.storage, self.dir, key, &name) {
            Ok(record) => record,
            Err(error) => return self.findings.push(finding(&path, &error)),
        };
        let inputs_b3 = record.inputs_b3().ok();
        for (what, agrees) in [
            ("list of inputs", inputs_b3 == Some(line.inputs_b3)),
            ("number of inputs", record.inputs.len() as u64 == line.inputs),
            ("list of shards", record.shards == shards),
            ("number of rows", record.rows == line.rows),
            ("books", record.books == line.books),
        ] {
            if !agrees {
                self.wrong(&path, format!("the {what} is not what the manifest says"));
            }
        }
    }

    fn keys(&mut self, manifest: &Manifest) {
        let has_key = manifest.dataset.schema.get("key").is_some_and(|key| !key.is_null());
        let Some(keys) = &manifest.dataset.keys else {
            if has_key {
                self.wrong(self.path, "rows have a key, but there is no key index");
            }
            return;
        };
        let path = self.dir.join(&keys.file);
        match self.look.key_index(&path, manifest.dataset.rows) {
            Ok(b3) if b3.is_none_or(|b3| b3 == keys.b3) => {}
            Ok(_) => {
                let kind = FindingKind::Changed;
                self.findings.push(Finding { path, block: None, kind });
            }
            Err(error) => self.findings.push(finding(&path, &error)),
        }
    }

    /// A shard against the manifest; the URL where its rows are, if they were not looked at, and files
    /// that are no part of it.
    fn shard(
        &mut self,
        manifest: &Manifest,
        partition: &PartitionLine,
        entry: &ShardEntry,
    ) -> (Option<String>, Vec<PathBuf>) {
        let path = layout::sealed(self.dir, &entry.id);
        let seen = match self.look.shard(&path) {
            Ok(seen) => seen,
            Err(findings) => {
                self.findings.extend(findings);
                return (None, Vec::new());
            }
        };
        let has_bytes = match &seen.bytes {
            ShardBytes::Here(bytes) => *bytes == entry.bytes,
            ShardBytes::At(_) => true,
        };
        for (what, agrees) in [
            ("id", seen.id == entry.id),
            ("number of rows", seen.rows == entry.rows),
            ("number of bytes", has_bytes),
            (
                "schema",
                self.document(&path, layout::SCHEMA) == Some(manifest.dataset.schema.clone()),
            ),
        ] {
            if !agrees {
                self.wrong(&path, format!("the {what} is not what the manifest says"));
            }
        }
        let made_from: MadeFrom = self.document(&path, layout::FINGERPRINT).unwrap_or_default();
        let wanted = (&partition.slot, &manifest.dataset.cache_key);
        if (&made_from.slot, &made_from.cache_key) != wanted {
            let path = path.join(layout::FINGERPRINT);
            self.wrong(&path, format!("it is not of partition {}", partition.slot));
        }
        let url = match seen.bytes {
            ShardBytes::Here(_) => None,
            ShardBytes::At(url) => Some(url),
        };
        (url, seen.staged)
    }

    fn document<T: DeserializeOwned>(&self, shard: &Path, name: &str) -> Option<T> {
        let bytes = self.storage.read(&shard.join(name)).ok()??;
        serde_json::from_slice(&bytes).ok()
    }
}

fn add(total: &mut StageBooks, books: &StageBooks) {
    total.entered = total.entered.saturating_add(books.entered);
    total.created = total.created.saturating_add(books.created);
    total.out = total.out.saturating_add(books.out);
    total.dropped = total.dropped.saturating_add(books.dropped);
    total.rejected = total.rejected.saturating_add(books.rejected);
}

/// An error as a find; `path` is what it was met at, where it does not say so itself.
fn finding(path: &Path, error: &DatasetError) -> Finding {
    let (path, kind) = match error {
        DatasetError::Damaged { path, message } => {
            (path.as_path(), FindingKind::Broken(message.clone()))
        }
        DatasetError::NoDataset { path, message } => {
            (path.as_path(), FindingKind::Incomplete(message.clone()))
        }
        DatasetError::Storage(error) | DatasetError::Read(ReadError::Storage(error)) => {
            return Finding::of_refusal(error);
        }
        other => (path, FindingKind::Wrong(other.to_string())),
    };
    Finding { path: path.to_path_buf(), block: None, kind }
}
