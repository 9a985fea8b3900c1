//! What goes out: a local file under the name that it has in the dataset's folder.
//!
//! Leaves out: what is there already (`decide`) and how it is sent (`send`).

use std::path::PathBuf;

use bytes::Bytes;

use super::error::{PushError, Result};
use crate::dataset::home::PARTITIONS;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::RecordName;
use crate::dataset::sentinel::Sentinel;
use crate::dataset::{DatasetError, Home};
use crate::shard::{SealedFile, SealedFiles};
use crate::storage::Storage;

/// Metadata of an object of ours: the BLAKE3 of its bytes, 64 hex digits.
pub const DIGEST: &str = "b3";

/// A file, and the object that it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name below the cache key, with `/`: `shards/<id>/data.bin`.
    pub name: String,
    /// Where the file lies.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its BLAKE3.
    pub b3: blake3::Hash,
}

/// The objects of one sealed shard.
#[derive(Debug, Clone)]
pub struct ShardObjects {
    /// The shard's id.
    pub id: String,
    /// What the sentinel covers.
    pub files: Vec<Object>,
    /// The sentinel.
    pub sentinel: Object,
}

impl ShardObjects {
    /// Reads sentinel and sums of the shard in its place.
    ///
    /// # Errors
    /// It is not there, not sealed, or not the one of that id.
    pub fn read(storage: &dyn Storage, home: &Home, id: &str) -> Result<Self> {
        let sealed = SealedFiles::read(storage, &home.shard(id)).map_err(DatasetError::from)?;
        if sealed.id() != id {
            return Err(PushError::Changed { path: home.shard(id) });
        }
        let object = |file: &SealedFile| {
            let path = sealed.path().join(&file.name);
            let b3 = blake3::Hash::from_hex(&file.b3)
                .map_err(|_| PushError::Changed { path: path.clone() })?;
            Ok(Object { name: format!("shards/{id}/{}", file.name), path, bytes: file.bytes, b3 })
        };
        let files = sealed.files().iter().map(object).collect::<Result<_>>()?;
        Ok(Self { id: id.to_owned(), files, sentinel: object(sealed.sentinel())? })
    }

    /// The shard's folder, as objects are named.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("shards/{}", self.id)
    }
}

/// The record of a partition, and its bytes.
///
/// # Errors
/// It is not there, or not the one of that name.
pub(super) fn record(
    storage: &dyn Storage,
    home: &Home,
    name: &RecordName,
) -> Result<(Object, Bytes)> {
    let path = home.partitions().join(name.as_str());
    let Some(bytes) = storage.read(&path)? else { return Err(PushError::Changed { path }) };
    let b3 = blake3::hash(&bytes);
    let named = format!("{}-{}.json", name.slot(), b3.to_hex().get(..16).unwrap_or_default());
    if named != name.as_str() {
        return Err(PushError::Changed { path });
    }
    let name = format!("{PARTITIONS}/{}", name.as_str());
    Ok((Object { name, path, bytes: bytes.len() as u64, b3 }, bytes.into()))
}

/// The manifest that a sentinel names, and the key index where there is one.
///
/// # Errors
/// A file is not there.
pub(super) fn tables(
    storage: &dyn Storage,
    home: &Home,
    sentinel: &Sentinel,
    manifest: &Manifest,
) -> Result<Vec<Object>> {
    let index = manifest.dataset.keys.as_ref().map(|keys| (keys.file.clone(), keys.b3));
    let path = home.file(sentinel.manifest());
    let b3 =
        blake3::Hash::from_hex(sentinel.manifest_b3()).map_err(|_| PushError::Changed { path })?;
    let files = [Some((sentinel.manifest().to_owned(), b3)), index];
    let object = |(name, b3): (String, blake3::Hash)| {
        let path = home.file(&name);
        let Some(entry) = storage.stat(&path)? else { return Err(PushError::Changed { path }) };
        Ok(Object { name, path, bytes: entry.len, b3 })
    };
    files.into_iter().flatten().map(object).collect()
}
