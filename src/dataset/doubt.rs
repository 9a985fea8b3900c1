//! What was built from answers that may belong to other rows, and its removal.
//!
//! A hook that does not say which batch it answers to may be found out late: then nobody knows which of
//! its answers were right, and rows that were committed may hold wrong ones.
//!
//! Leaves out: finding it out (`transforms`).
//!
//! Invariants:
//! 1. The note is there before the run ends that found it out, and until nothing is left that is in
//!    doubt: a run that is cut off leaves it to the next one.
//! 2. What a generation names was complete before, and stays.

use std::collections::BTreeSet;

use super::error::{DatasetError, Result};
use super::home::{Home, Workplace};
use super::manifest::Manifest;
use super::partition;
use super::record::RecordNames;
use super::survey::generations;
use crate::storage::Storage;

/// Notes that what is not part of a generation is in doubt, and why.
///
/// # Durability
/// On `Ok` the note survives a power cut.
///
/// # Errors
/// The disk's.
pub fn note(storage: &dyn Storage, home: &Home, why: &str) -> crate::storage::Result<()> {
    storage.write_atomic(&home.doubt(), why.as_bytes())
}

/// Removes what is in doubt, if anything is, and says why it was.
///
/// # Durability
/// As [`Workplace::discard`], of each thing. The note goes last.
///
/// # Errors
/// The disk's.
pub fn settle(place: &Workplace) -> Result<Option<String>> {
    let (storage, home) = (&**place.storage(), place.home());
    let Some(why) = storage.read(&home.doubt())? else { return Ok(None) };
    let (mut records, mut shards) = (BTreeSet::new(), BTreeSet::new());
    for (name, _) in generations(storage, home)? {
        match Manifest::read_named(storage, home.dir(), &name) {
            Ok(Some(manifest)) => {
                records.extend(manifest.partitions.into_iter().map(|it| it.record));
                shards.extend(manifest.shards.into_iter().map(|it| it.id));
            }
            // It names nothing that could be read by it.
            Ok(None) | Err(DatasetError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    partition::clear_all(place)?;
    for name in RecordNames::list(storage, home)?.iter() {
        if !records.contains(name.as_str()) {
            place.discard(&home.partitions().join(name.as_str()))?;
        }
    }
    for entry in storage.list(&home.shards())?.unwrap_or_default() {
        if !shards.contains(&entry.name) {
            place.discard(&home.shard(&entry.name))?;
        }
    }
    place.discard(&home.doubt())?;
    Ok(Some(String::from_utf8_lossy(&why).into_owned()))
}
