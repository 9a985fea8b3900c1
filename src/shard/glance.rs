//! How far a partition is that is being built, read from its logs.
//!
//! Leaves out: recovering it (`reopen`), and every file but logs.
//!
//! Invariants:
//! 1. Nothing is changed or locked: a writer may be at work.
//! 2. What is told was committed; a shard that is being sealed meanwhile counts once.

use std::path::Path;

use serde_json::Value;

use super::layout;
use super::manifest::{Cut, Manifest};
use super::partition_log::read_entries;
use crate::storage::{EntryKind, Result, Storage};

/// What the logs of a partition promise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Glance {
    /// Rows committed, in sealed and open shards.
    pub n_rows: u64,
    /// Rows rejected up to the last commit.
    pub n_rejected: u64,
    /// Ids of its sealed shards.
    pub sealed: Vec<String>,
    /// Its open shards.
    pub open: Vec<OpenGlance>,
}

/// What the manifest of an open shard promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGlance {
    /// Number of the shard in its partition.
    pub number: u64,
    /// Rows committed.
    pub n_rows: u64,
    /// Bytes committed, of all files.
    pub n_bytes: u64,
    /// Commits.
    pub n_segments: u64,
}

impl Glance {
    /// Looks at the partition of `slot` in the folder `dataset`.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(storage: &dyn Storage, dataset: &Path, slot: &str) -> Result<Self> {
        // Open shards first: one that is sealed before the log is read is found there.
        let (mut open, mut cuts) = (Vec::new(), Vec::new());
        let folders = storage.list(&layout::open_shards(dataset, slot))?.unwrap_or_default();
        let folders = folders.iter().filter(|entry| entry.kind == EntryKind::Dir);
        for number in folders.filter_map(|entry| entry.name.parse::<u64>().ok()) {
            let path = layout::open_shard(dataset, slot, number).join(layout::MANIFEST);
            let Ok(Some(bytes)) = storage.read(&path) else { continue };
            let Manifest::Valid { segments, .. } = Manifest::read(&bytes) else { continue };
            let last = segments.last();
            open.push(OpenGlance {
                number,
                n_rows: last.map_or(0, |it| it.rows),
                n_bytes: last.map_or(0, |it| sum(it.files.values().map(|mark| mark.len))),
                n_segments: segments.len() as u64,
            });
            cuts.extend(segments.into_iter().next_back().map(|segment| (number, segment.cut)));
        }
        let log = storage.read(&layout::log(dataset, slot))?.unwrap_or_default();
        let log = read_entries(&log).lines;
        let n_logged = log.len() as u64;
        open.retain(|it| it.number >= n_logged);
        cuts.retain(|(number, _)| *number >= n_logged);
        let last = cuts.last().map(|(_, cut)| cut).or(log.last().map(|entry| &entry.cut));
        Ok(Self {
            n_rows: sum(log.iter().map(|it| it.rows).chain(open.iter().map(|it| it.n_rows))),
            n_rejected: last.map_or(0, rejected),
            sealed: log.into_iter().filter_map(|entry| entry.id).collect(),
            open,
        })
    }
}

/// Rows rejected at all stages, as the books of a cut have them.
fn rejected(cut: &Cut) -> u64 {
    let stages = cut.books.as_object().into_iter().flat_map(|stages| stages.values());
    sum(stages.filter_map(|books| books.get("rejected").and_then(Value::as_u64)))
}

/// A sum of numbers that a log claims.
fn sum(mut numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.try_fold(0, u64::checked_add).unwrap_or(u64::MAX)
}
