//! How many rejects stand for rows that a hook did not answer, told from `rejects.jsonl` alone.
//!
//! Leaves out: checking those files (`verify`). A line that is no reject counts for nothing.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;

use super::glance::Glance;
use super::layout;
use super::manifest::Manifest;
use crate::batch::is_unanswered;
use crate::storage::{Result, Storage};

/// The part of a reject that tells.
#[derive(Deserialize)]
struct Coded<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
}

/// Rows that a hook did not answer, of the sealed shard in the folder `dir`.
///
/// # Errors
/// The disk's.
pub fn unanswered(storage: &dyn Storage, dir: &Path) -> Result<u64> {
    let path = dir.join(layout::REJECTS);
    match storage.stat(&path)? {
        Some(file) if file.len > 0 => Ok(count(&storage.map(&path)?)),
        _ => Ok(0),
    }
}

/// Rows that a hook did not answer up to the last commit, of the partition of `slot` that is being
/// built in the folder `dataset`.
///
/// # Errors
/// The disk's.
pub fn unanswered_so_far(storage: &dyn Storage, dataset: &Path, slot: &str) -> Result<u64> {
    let glance = Glance::of(storage, dataset, slot)?;
    let mut n = 0;
    for id in &glance.sealed {
        n += unanswered(storage, &layout::sealed(dataset, id))?;
    }
    for entry in storage.list(&layout::open_shards(dataset, slot))?.unwrap_or_default() {
        let dir = layout::open_shards(dataset, slot).join(&entry.name);
        let rejects = storage.read(&dir.join(layout::REJECTS))?.unwrap_or_default();
        let promised = match storage.read(&dir.join(layout::MANIFEST))?.as_deref() {
            Some(bytes) => match Manifest::read(bytes) {
                Manifest::Valid { segments, .. } => segments
                    .last()
                    .map_or(0, |it| it.files.get(layout::REJECTS).map_or(0, |mark| mark.len)),
                _ => 0,
            },
            // It is sealed, and about to be moved.
            None => rejects.len() as u64,
        };
        let promised = usize::try_from(promised).unwrap_or(usize::MAX).min(rejects.len());
        n += count(rejects.get(..promised).unwrap_or_default());
    }
    Ok(n)
}

fn count(lines: &[u8]) -> u64 {
    let lines = lines.split(|&byte| byte == b'\n');
    let codes = lines.filter_map(|line| serde_json::from_slice::<Coded<'_>>(line).ok());
    codes.filter(|reject| is_unanswered(&reject.code)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_hook_did_not_answer_counts() {
        let line = |code: &str| format!("{{\"code\":\"{code}\",\"input\":0,\"message\":\"m\"}}\n");
        for (name, lines, want) in [
            ("nothing", String::new(), 0),
            ("each code", line("hook_died") + &line("hook_timeout") + &line("hook_memory"), 3),
            ("others", line("hook_null") + &line("value_misfit"), 0),
            ("an escaped word", line("hook\\u005fdied"), 1),
            ("no reject", "hook_died\n".to_owned() + &line("hook_died"), 1),
        ] {
            assert_eq!(count(lines.as_bytes()), want, "{name}");
        }
    }
}
