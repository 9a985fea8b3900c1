//! The index of a section: sorted runs, merged as they grow.
//!
//! A run is named by its content and says which segments it covers, so the folder's listing is all
//! there is to know: nothing names the runs, and any of them can be made again from segments.
//!
//! Invariants:
//! 1. Before a segment is committed a run that covers it is durable.
//! 2. Each run has more than [`GROWTH`] times the entries of all smaller ones together, so there are
//!    few, and an entry is written a number of times that grows with the logarithm of all rows.
//! 3. Memory does not grow with rows but by 8 bytes per 255 entries while a run is written.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use super::error::{CacheError, Result};
use super::run::{self, Entry, Merge, Run, prefix};
use super::segment::Segment;
use super::view::View;
use super::{RowKey, layout};
use crate::storage::Storage;

/// How much larger a run is than all smaller ones together.
const GROWTH: u64 = 2;

/// The positions of segments that no run covers.
pub(super) fn uncovered(segments: &[Arc<Segment>], runs: &[Arc<Run>]) -> BTreeSet<usize> {
    let covered: HashSet<u32> = runs.iter().flat_map(|run| run.segments.iter().copied()).collect();
    let open = segments.iter().enumerate().filter(|(_, s)| !covered.contains(&s.entry.id));
    open.map(|(position, _)| position).collect()
}

/// The runs in the folder of a section's index that can be believed and cover anything, and the
/// names of the other files there: a run too whose segments a larger one covers, as a crash leaves it
/// behind a merge. What is open in `before` stays open.
pub(super) fn list(
    storage: &dyn Storage,
    section: &Path,
    before: &[Arc<Run>],
    is_live: &dyn Fn(u32) -> bool,
) -> Result<(Vec<Arc<Run>>, Vec<String>)> {
    let dir = layout::index(section);
    let (mut runs, mut others) = (Vec::new(), Vec::new());
    for entry in storage.list(&dir)?.unwrap_or_default() {
        if let Some(open) = before.iter().find(|run| run.name == entry.name) {
            if open.segments.iter().any(|id| is_live(*id)) {
                runs.push(Arc::clone(open));
            } else {
                others.push(entry.name);
            }
            continue;
        }
        if !is_run(&entry.name) {
            // What is being written is never mapped.
            others.push(entry.name);
            continue;
        }
        match Run::open(storage, &dir, &entry.name) {
            Ok(run) if run.segments.iter().any(|id| is_live(*id)) => runs.push(Arc::new(run)),
            Ok(_) | Err(CacheError::Damaged { .. }) => others.push(entry.name),
            Err(e) => return Err(e),
        }
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.n_entries));
    let mut covered = HashSet::new();
    runs.retain(|run| {
        let mut adds = false;
        for id in run.segments.iter().filter(|id| is_live(**id)) {
            adds |= covered.insert(*id);
        }
        if !adds {
            others.push(run.name.clone());
        }
        adds
    });
    Ok((runs, others))
}

/// Whether a file of that name is a run that was completed.
pub(super) fn is_run(name: &str) -> bool {
    let digits = name.strip_prefix("run-").and_then(|rest| rest.strip_suffix(".bin"));
    digits.is_some_and(|digits| digits.len() == 16)
}

/// Writes the run of one segment.
pub(super) fn write<'a>(
    storage: &dyn Storage,
    section: &Path,
    segment: u32,
    keys: impl Iterator<Item = &'a RowKey>,
) -> Result<Arc<Run>> {
    let entry = |(row, key)| {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        Entry { prefix: prefix(key), segment, row }
    };
    let mut entries: Vec<Entry> = keys.enumerate().map(entry).collect();
    entries.sort_unstable();
    let dir = layout::index(section);
    let name = run::write(storage, &dir, &[segment], entries.into_iter().map(Ok))?;
    Ok(Arc::new(Run::open(storage, &dir, &name)?))
}

/// The runs of a view after those were merged that are due, or all; and the names of what they
/// replace. A run that turns out to be damaged is made again from its segments.
pub(super) fn merge(
    storage: &dyn Storage,
    section: &Path,
    view: &View,
    all: bool,
) -> Result<(Vec<Arc<Run>>, Vec<String>)> {
    let mut runs = view.runs.clone();
    runs.sort_by_key(|run| run.n_entries);
    let mut sum = 0_u64;
    let is_due = |run: &Arc<Run>| {
        let due = sum > 0 && run.n_entries <= GROWTH.saturating_mul(sum);
        sum += run.n_entries;
        due
    };
    // Up to the largest run that is not much larger than those before it.
    let last = runs.iter().map(is_due).enumerate().filter(|(_, due)| *due).last();
    let n = if all { runs.len() } else { last.map_or(0, |(at, _)| at + 1) };
    if n < 2 {
        return Ok((runs, Vec::new()));
    }
    let rest = runs.split_off(n);
    let dir = layout::index(section);
    let covered: BTreeSet<u32> = runs.iter().flat_map(|run| run.segments.iter().copied()).collect();
    let segments: Vec<u32> = covered.into_iter().filter(|id| view.holds(*id)).collect();
    let inputs = runs
        .iter()
        .map(|run| run.entries().map(|entry| entry.map_err(|bad| bad_page(&dir, run, bad.0))));
    let mut last = None;
    let live = Merge::new(inputs).filter(|entry| {
        // Runs may cover the same segment.
        let Ok(entry) = entry else { return true };
        let is_new = last.replace(*entry) != Some(*entry);
        is_new && view.holds(entry.segment)
    });
    let name = match run::write(storage, &dir, &segments, live) {
        Err(CacheError::Damaged { .. }) => return remake(storage, section, view),
        name => name?,
    };
    let old = runs.iter().map(|run| run.name.clone()).filter(|old| *old != name).collect();
    let mut merged = rest;
    merged.push(Arc::new(Run::open(storage, &dir, &name)?));
    Ok((merged, old))
}

/// Makes the whole index again from segments.
pub(super) fn remake(
    storage: &dyn Storage,
    section: &Path,
    view: &View,
) -> Result<(Vec<Arc<Run>>, Vec<String>)> {
    let mut runs = Vec::new();
    for segment in &view.segments {
        runs.push(write(storage, section, segment.entry.id, segment.keys()?.iter())?);
    }
    let kept: HashSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let old = view.runs.iter().map(|run| run.name.clone());
    let old = old.filter(|name| !kept.contains(name.as_str())).collect();
    Ok((runs, old))
}

fn bad_page(dir: &Path, run: &Run, page: usize) -> CacheError {
    CacheError::damaged(&dir.join(&run.name), format!("page {page} does not match its sum"))
}

/// What is wrong with a run, after looking at all of it.
pub(super) fn check(dir: &Path, run: &Run, view: &View) -> Option<CacheError> {
    for entry in run.entries() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(bad) => return Some(bad_page(dir, run, bad.0)),
        };
        let Some(segment) = view.segment(entry.segment) else { continue };
        let keys = match segment.keys() {
            Ok(keys) => keys,
            Err(e) => return Some(e),
        };
        let key = usize::try_from(entry.row).ok().and_then(|row| keys.get(row));
        if key.map(prefix) != Some(entry.prefix) {
            let what = format!("row {} of segment {} has another key", entry.row, entry.segment);
            return Some(CacheError::damaged(&dir.join(&run.name), what));
        }
    }
    None
}
