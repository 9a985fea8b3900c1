//! Folders of shards at places that cannot be listed: web servers.
//!
//! Leaves out: what nobody names. An object too many is not found there.

use std::path::Path;

use super::RemoteStorage;
use crate::storage::{Entry, EntryKind, Result, Storage};

/// The file of a shard that names the others, and its sentinel.
const SUMS: &str = "B3SUMS";
const COMPLETE: &str = "_COMPLETE";

impl RemoteStorage {
    /// What is there of the files that a shard's own sums name, with sentinel and sums; `None` where
    /// none of them is.
    pub(super) fn named(&self, dir: &Path) -> Result<Option<Vec<Entry>>> {
        let sums = self.read(&dir.join(SUMS))?.unwrap_or_default();
        let sums = String::from_utf8_lossy(&sums);
        // A line of `B3SUMS` is a digest, two spaces and a name of the layout's own grammar.
        let names = sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name);
        let names = names.filter(|name| !name.contains('/'));
        let mut entries = Vec::new();
        for name in [COMPLETE, SUMS].into_iter().chain(names) {
            let found = self.stat(&dir.join(name))?;
            entries.extend(found.filter(|entry| entry.kind == EntryKind::File));
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok((!entries.is_empty()).then_some(entries))
    }
}
