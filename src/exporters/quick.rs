//! A quick look at a dataset in a store: nothing large is read.
//!
//! Sizes are compared, and the digests that a push stored with the objects. Leaves out: the bytes
//! themselves, which a store may have lost nevertheless.

use std::collections::BTreeMap;
use std::path::Path;

use super::object::DIGEST;
use crate::dataset::DatasetError;
use crate::dataset::keys::KeyIndex;
use crate::dataset::verify::{Look, ShardBytes, ShardFacts};
use crate::remote::RemoteStorage;
use crate::shard::{Finding, FindingKind, Promise, ReadError, layout};
use crate::storage::Storage;

/// Looks at names, sizes and stored digests.
#[derive(Debug, Clone)]
pub struct Quick(pub RemoteStorage);

impl Look for Quick {
    fn shard(&self, path: &Path) -> Result<ShardFacts, Vec<Finding>> {
        let promise = Promise::read(&self.0, path).map_err(|e| vec![refusal(path, &e)])?;
        let of_storage = |e| vec![Finding::of_refusal(&e)];
        let listed = self.0.list(path).map_err(of_storage)?.unwrap_or_default();
        let lens: BTreeMap<_, _> = listed.iter().map(|it| (it.name.as_str(), it.len)).collect();
        let mut findings = Vec::new();
        let mut add = |name: &str, kind| {
            findings.push(Finding { path: path.join(name), block: None, kind });
        };
        for (name, b3) in &promise.files {
            if !lens.contains_key(name.as_str()) {
                add(name, FindingKind::Missing);
                continue;
            }
            let stored = self.0.metadata(&path.join(name), DIGEST).map_err(of_storage)?;
            if stored.is_some_and(|stored| stored != b3.to_hex().as_str()) {
                add(name, FindingKind::Changed);
            }
        }
        let ours = [layout::COMPLETE, layout::SUMS];
        for name in lens.keys().filter(|name| !ours.contains(name)) {
            if !promise.files.iter().any(|(file, _)| file == name) {
                add(name, FindingKind::Unexpected);
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let (id, rows) = (promise.id().to_owned(), promise.n_rows());
        let bytes = ShardBytes::Here(lens.values().sum());
        Ok(ShardFacts { id, rows, bytes, staged: Vec::new() })
    }

    fn key_index(&self, path: &Path, n_rows: u64) -> Result<Option<blake3::Hash>, DatasetError> {
        KeyIndex::check_size(&self.0, path, n_rows)?;
        let stored = self.0.metadata(path, DIGEST)?;
        Ok(stored.and_then(|stored| blake3::Hash::from_hex(stored).ok()))
    }
}

/// Why sentinel and sums of a shard cannot be read.
fn refusal(path: &Path, error: &ReadError) -> Finding {
    let kind = match error {
        ReadError::Storage(error) => return Finding::of_refusal(error),
        ReadError::NotSealed { .. } => FindingKind::NotSealed,
        other => FindingKind::Broken(other.to_string()),
    };
    Finding { path: path.to_path_buf(), block: None, kind }
}
