//! The dataset's sentinel: the proof that a generation is complete.
//!
//! Invariant: a [`Sentinel`] is made by `finalize`, or read from the `_COMPLETE` that it wrote.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{DatasetError, Result};
use super::home::is_hex;
use crate::shard::layout::{COMPLETE, document};
use crate::storage::Storage;

/// What `_COMPLETE` holds: the manifest of the current generation and its totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sentinel {
    manifest: String,
    manifest_b3: String,
    rows: u64,
    shards: u64,
}

impl Sentinel {
    /// The sentinel of a manifest that is durable under its name and whose shards all are.
    pub(super) fn of_manifest(
        manifest: String,
        digest: &blake3::Hash,
        rows: u64,
        shards: u64,
    ) -> Self {
        Self { manifest, manifest_b3: digest.to_hex().to_string(), rows, shards }
    }

    /// Reads the sentinel of the dataset in `dir`; `None` where it is not complete.
    ///
    /// # Errors
    /// A sentinel that is not what we write.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(COMPLETE);
        storage.read(&path)?.map(|bytes| Self::parse(&path, &bytes)).transpose()
    }

    /// Reads a sentinel's bytes, which come from `path`.
    ///
    /// # Errors
    /// They are not what we write.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let it: Self = serde_json::from_slice(bytes).map_err(|e| DatasetError::damaged(path, e))?;
        let digits = it.manifest.strip_prefix("manifest-").and_then(|s| s.strip_suffix(".jsonl"));
        let named_by_digest =
            digits.is_some_and(|d| is_hex(d, 16) && it.manifest_b3.starts_with(d));
        if !named_by_digest || !is_hex(&it.manifest_b3, 64) {
            let message = format!("`{}` is not the name of its manifest", it.manifest);
            return Err(DatasetError::damaged(path, message));
        }
        Ok(it)
    }

    /// The document, as it lies on disk.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        document(&serde_json::json!(self))
    }

    /// The name of the manifest.
    #[must_use]
    pub fn manifest(&self) -> &str {
        &self.manifest
    }

    /// The BLAKE3 of the manifest, 64 hex digits: what names the generation.
    #[must_use]
    pub fn manifest_b3(&self) -> &str {
        &self.manifest_b3
    }

    /// How many rows the dataset has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many shards.
    #[must_use]
    pub fn shards(&self) -> u64 {
        self.shards
    }
}
