//! Checks what is here of a shard whose rows are only in a store.
//!
//! Leaves out: the rows, which are checked where they are.
//!
//! Invariant: every file that stays is compared with its sum; a file of rows that a removal has left
//! over is no damage, because nothing reads it.

use std::path::Path;
use std::sync::Arc;

use super::finding::{Finding, FindingKind};
use super::layout;
use super::read_error::ReadError;
use super::reader::Shard;
use super::remote_sentinel::{RemoteSentinel, dropped_files};
use super::structure::wrong;
use super::sums::{self, Sums};
use super::verify::hash;
use crate::storage::{Storage, staged_for};

/// Checks what stays here of the shard in the folder `path`; `None` where its rows are here too.
///
/// # Errors
/// Everything that is wrong.
pub fn verify_kept(
    storage: &Arc<dyn Storage>,
    path: &Path,
) -> Result<Option<RemoteSentinel>, Vec<Finding>> {
    let refused = |error: &ReadError| vec![wrong(path, error)];
    let Some(remote) = RemoteSentinel::read(&**storage, path).map_err(|e| refused(&e))? else {
        return Ok(None);
    };
    // Compares the sums with the sentinel, and the schema with its sum.
    let shard = Shard::open(Arc::clone(storage), path).map_err(|e| refused(&e))?;
    let dropped = dropped_files(shard.schema());
    let of_storage = |error| vec![Finding::of_refusal(&error)];
    let sums = storage.read(&path.join(layout::SUMS)).map_err(of_storage)?.unwrap_or_default();
    let sums: Sums = sums::parse(&sums).unwrap_or_default();
    let mut findings = Vec::new();
    let find = |name: &str, kind| Finding { path: path.join(name), block: None, kind };
    for (name, digest) in sums.iter().filter(|(name, _)| !dropped.contains(*name)) {
        let file = path.join(name);
        if storage.stat(&file).map_err(of_storage)?.is_none() {
            findings.push(find(name, FindingKind::Missing));
            continue;
        }
        match storage.open(&file).and_then(|file| hash(&*file)) {
            Ok(found) if found.digest == *digest => {}
            Ok(_) => findings.push(find(name, FindingKind::Changed)),
            Err(error) => findings.push(Finding::of_refusal(&error)),
        }
    }
    for entry in storage.list(path).map_err(of_storage)?.unwrap_or_default() {
        let is_ours = [layout::REMOTE, layout::SUMS].contains(&entry.name.as_str())
            || staged_for(&entry.name).is_some();
        if !is_ours && !sums.contains_key(&entry.name) {
            findings.push(find(&entry.name, FindingKind::Unexpected));
        }
    }
    if findings.is_empty() { Ok(Some(remote)) } else { Err(findings) }
}
