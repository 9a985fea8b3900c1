//! `_REMOTE`: what stands in the place of a shard's sentinel while its rows are only in a store.
//!
//! Leaves out: how a shard comes to have it (`elsewhere`), and reaching the store.
//!
//! Invariants:
//! 1. It is written only for a shard whose own sentinel was seen in the store: it promises there what
//!    `_COMPLETE` promises here, under the same sums.
//! 2. A folder with `_REMOTE` and without `_COMPLETE` is whole but for the files of [`dropped_files`],
//!    which nothing reads, be they there or not. With both the shard is complete, and `_REMOTE` says
//!    only that it is in the store too.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::layout;
use super::promise::Promise;
use super::read_error::ReadError;
use super::sums::Sentinel;
use crate::schema::{Field, FileRole, RowSchema};
use crate::storage::Storage;

/// What `_REMOTE` of a shard says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteSentinel {
    sentinel: Sentinel,
    url: String,
}

impl RemoteSentinel {
    /// That of a shard whose folder in the store is at `url`, which holds no credentials.
    #[must_use]
    pub fn of(promise: &Promise, url: &str) -> Self {
        Self { sentinel: promise.sentinel().clone(), url: url.to_owned() }
    }

    /// Reads the bytes of `_REMOTE`; they are refused unless they are byte for byte what was written.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Value =
            serde_json::from_slice(bytes).map_err(|_| "is not JSON".to_owned())?;
        let Some(url) = document.get("url").and_then(Value::as_str) else {
            return Err("lacks `url`".into());
        };
        let it = Self { sentinel: Sentinel::of_document(&document)?, url: url.to_owned() };
        if it.to_bytes() != bytes {
            return Err("is not as it was written".into());
        }
        Ok(it)
    }

    /// Reads that of the shard in the folder `path`; `None` where the shard is complete, or is none.
    ///
    /// # Errors
    /// The disk's; it is damaged.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Self>, ReadError> {
        if storage.stat(&path.join(layout::COMPLETE))?.is_some() {
            return Ok(None);
        }
        let place = path.join(layout::REMOTE);
        let Some(bytes) = storage.read(&place)? else { return Ok(None) };
        Self::parse(&bytes).map(Some).map_err(|what| ReadError::damaged(&place, what))
    }

    /// The document, as it lies on the disk.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Sentinel { n_rows, sums_b3 } = &self.sentinel;
        layout::document(&json!({"rows": n_rows, "sums_b3": sums_b3, "url": self.url}))
    }

    /// The bytes of `_COMPLETE` that it stands for, as they are in the store.
    #[must_use]
    pub fn complete(&self) -> Vec<u8> {
        self.sentinel.to_bytes()
    }

    /// The shard's id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.sentinel.id()
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.sentinel.n_rows
    }

    /// Where the shard's folder is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where the dataset is that it belongs to: the folder of its cache key.
    #[must_use]
    pub fn dataset_url(&self) -> &str {
        dataset_url(&self.url)
    }

    pub(super) fn into_parts(self) -> (Sentinel, String) {
        (self.sentinel, self.url)
    }
}

/// The dataset of the shard at `url`: `<dataset>/shards/<id>`.
pub(super) fn dataset_url(url: &str) -> &str {
    let above = url.rsplit_once('/').and_then(|(above, _)| above.strip_suffix("/shards"));
    above.unwrap_or(url)
}

/// The files of a shard that are only in the store once it has `_REMOTE`: those of rows, and
/// `index.parquet`. What stays decides nothing about rows but their keys: a dataset is completed, its
/// books and rejects are told, and keys are looked up without the rest.
#[must_use]
pub fn dropped_files(schema: &RowSchema) -> BTreeSet<String> {
    let is_of_rows = |role: FileRole| match role {
        FileRole::Values
        | FileRole::Offsets
        | FileRole::Dims
        | FileRole::Valid
        | FileRole::Codes => true,
        FileRole::Dict | FileRole::DictOffsets | FileRole::Sidecar => false,
    };
    let files = schema.fields().iter().flat_map(Field::files);
    let mut dropped: BTreeSet<String> =
        files.filter(|file| is_of_rows(file.role)).map(|file| file.name).collect();
    for file in schema.key().into_iter().flat_map(Field::files) {
        // Keys whose hashes are equal are settled by the keys themselves.
        dropped.remove(&file.name);
    }
    dropped.insert(layout::INDEX.to_owned());
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn document(url: &str) -> String {
        format!("{{\n  \"rows\": 7,\n  \"sums_b3\": \"{ZERO}\",\n  \"url\": \"{url}\"\n}}\n")
    }

    #[test]
    fn a_remote_sentinel_counts_only_as_it_was_written() {
        let good = document("s3://b/p/name/key/shards/id");
        let read = RemoteSentinel::parse(good.as_bytes()).unwrap();
        assert_eq!((read.n_rows(), read.id()), (7, &ZERO[..32]));
        assert_eq!(read.dataset_url(), "s3://b/p/name/key");
        assert_eq!(read.to_bytes(), good.as_bytes());
        let complete = format!("{{\n  \"rows\": 7,\n  \"sums_b3\": \"{ZERO}\"\n}}\n");
        assert_eq!(read.complete(), complete.as_bytes());
        for (name, text, want) in [
            ("empty", String::new(), "is not JSON"),
            ("torn", good[..60].to_owned(), "is not JSON"),
            ("that of a complete shard", complete, "lacks `url`"),
            ("no newline", good.trim_end().to_owned(), "is not as it was written"),
            ("a member more", good.replace("\"url\"", "\"u\": 1,\n  \"url\""), "is not as it was"),
            ("short digest", good.replace("000\"", "00\""), "lacks `rows` or `sums_b3`"),
        ] {
            let said = RemoteSentinel::parse(text.as_bytes()).unwrap_err();
            assert!(said.starts_with(want), "{name}: {said}");
        }
    }
}
