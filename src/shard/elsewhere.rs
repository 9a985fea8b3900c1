//! Moves a shard between its two finished states: complete here, or with its rows only in a store.
//!
//! Leaves out: the store, and making sure that the shard is there (`exporters`).
//!
//! Invariants:
//! 1. At every moment the folder has `_COMPLETE` or `_REMOTE` or both, durably; `_COMPLETE` only while
//!    every file that it covers is durable in its place.
//! 2. Every step can be done twice: whoever is asked for the same again finishes what a crash cut off.
//! 3. Nothing gets a temporary name in the folder of a shard.
//!
//! All of it is for the one who holds the dataset's lock.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::layout;
use super::promise::Promise;
use super::read_error::ReadError;
use super::reader::Shard;
use super::remote_sentinel::{RemoteSentinel, dropped_files};
use super::trash::discard;
use super::verify::hash;
use crate::storage::{Storage, StorageError, parent};

/// What went of a shard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Files.
    pub n_files: u64,
    /// Their bytes.
    pub n_bytes: u64,
}

/// Lets `_REMOTE` take the place of the sentinel of the shard `id` of `dataset`, and removes the files of
/// its rows. The shard's folder at `url` has the same sentinel: whoever calls has seen it.
///
/// # Durability
/// `_REMOTE` is durable before `_COMPLETE` goes, and `_COMPLETE` is gone for good before the first file
/// does. After an error or a crash the same call goes on.
///
/// # Errors
/// It is no sealed shard; the disk's.
pub fn drop_rows(
    storage: &Arc<dyn Storage>,
    dataset: &Path,
    id: &str,
    url: &str,
) -> Result<Dropped, ReadError> {
    let path = layout::sealed(dataset, id);
    let shard = Shard::open(Arc::clone(storage), &path)?;
    if shard.remote_url().is_none() {
        let remote = RemoteSentinel::of(&Promise::read(&**storage, &path)?, url);
        put(&**storage, dataset, (id, layout::REMOTE), &remote.to_bytes())?;
        storage.remove_file(&path.join(layout::COMPLETE))?;
    }
    // Also where it went before: it must not come back without what it covers.
    storage.sync_dir(&path)?;
    let mut dropped = Dropped::default();
    for name in dropped_files(shard.schema()) {
        let file = path.join(name);
        if let Some(entry) = storage.stat(&file)? {
            storage.remove_file(&file)?;
            dropped.n_files += 1;
            dropped.n_bytes += entry.len;
        }
    }
    if dropped.n_files > 0 {
        storage.sync_dir(&path)?;
    }
    Ok(dropped)
}

/// Puts a shard of `dataset` in its place whose rows are only at `url`, the shard's folder there. `staged`,
/// a folder below the dataset's `work`, holds what `promise` promises, durably, but for
/// [`dropped_files`] and `B3SUMS`. A shard that is in its place stays as it is.
///
/// # Durability
/// On `Ok` the shard survives a power cut. After an error or a crash it is there whole or not at all.
///
/// # Errors
/// The disk's.
pub fn place_remote(
    storage: &dyn Storage,
    dataset: &Path,
    staged: &Path,
    promise: &Promise,
    url: &str,
) -> Result<(), ReadError> {
    let path = layout::sealed(dataset, promise.id());
    let is_there = |name| storage.stat(&path.join(name)).map(|entry| entry.is_some());
    if is_there(layout::COMPLETE)? || is_there(layout::REMOTE)? {
        return Ok(discard(storage, dataset, staged, promise.id())?);
    }
    storage.write_atomic(&staged.join(layout::SUMS), &promise.sums)?;
    let remote = RemoteSentinel::of(promise, url);
    storage.write_atomic(&staged.join(layout::REMOTE), &remote.to_bytes())?;
    if storage.stat(&path)?.is_some() {
        discard(storage, dataset, &path, promise.id())?;
    }
    storage.rename(staged, &path)?;
    storage.sync_dir(parent(&path))?;
    Ok(storage.sync_dir(parent(staged))?)
}

/// The files of `promise` that lie in the folder `path` as they were sealed.
///
/// # Errors
/// The disk's.
pub fn files_here(
    storage: &dyn Storage,
    path: &Path,
    promise: &Promise,
) -> Result<BTreeSet<String>, ReadError> {
    let mut here = BTreeSet::new();
    for (name, b3) in &promise.files {
        let file = path.join(name);
        if storage.stat(&file)?.is_some()
            && hash(&*storage.open(&file)?)?.digest == b3.to_hex().as_str()
        {
            here.insert(name.clone());
        }
    }
    Ok(here)
}

/// Makes a shard complete again whose rows were elsewhere: moves the files of the folder `staged`, which
/// are durable there, to its place, then writes its sentinel, then takes `_REMOTE` away. Together with
/// [`files_here`] they are everything that `promise` promises.
///
/// # Durability
/// On `Ok` the shard is complete after a power cut. After an error or a crash the same call goes on with
/// what is left to move.
///
/// # Errors
/// A file is in neither folder; the disk's.
pub fn bring_back(
    storage: &dyn Storage,
    dataset: &Path,
    staged: &Path,
    promise: &Promise,
) -> Result<(), ReadError> {
    let (id, path) = (promise.id(), layout::sealed(dataset, promise.id()));
    storage.sync_dir(staged)?;
    let names = promise.files.iter().map(|(name, _)| name.as_str());
    for name in names.chain([layout::SUMS]) {
        let (from, to) = (staged.join(name), path.join(name));
        if storage.stat(&from)?.is_some() {
            storage.rename(&from, &to)?;
        } else if storage.stat(&to)?.is_none() {
            return Err(ReadError::Missing { path: to });
        }
    }
    storage.sync_dir(&path)?;
    storage.sync_dir(staged)?;
    put(storage, dataset, (id, layout::COMPLETE), &promise.complete)?;
    is_complete(storage, dataset, id).map(drop)
}

/// Whether the shard `id` is complete here. If it is, it loses a `_REMOTE` that was left beside its
/// sentinel.
///
/// # Durability
/// As [`bring_back`].
///
/// # Errors
/// The disk's.
pub fn is_complete(storage: &dyn Storage, dataset: &Path, id: &str) -> Result<bool, ReadError> {
    let path = layout::sealed(dataset, id);
    if storage.stat(&path.join(layout::COMPLETE))?.is_none() {
        return Ok(false);
    }
    if storage.stat(&path.join(layout::REMOTE))?.is_some() {
        // The sentinel that was found may not be durable yet.
        storage.sync_dir(&path)?;
        storage.remove_file(&path.join(layout::REMOTE))?;
        storage.sync_dir(&path)?;
    }
    Ok(true)
}

/// Puts a sentinel in the folder of the shard by way of `work`.
fn put(
    storage: &dyn Storage,
    dataset: &Path,
    (id, name): (&str, &str),
    bytes: &[u8],
) -> Result<(), StorageError> {
    let (work, path) = (layout::work(dataset), layout::sealed(dataset, id));
    let draft = work.join(format!("{id}{name}.tmp"));
    storage.write_atomic(&draft, bytes)?;
    storage.rename(&draft, &path.join(name))?;
    storage.sync_dir(&path)?;
    storage.sync_dir(&work)
}
