//! How things go: renamed into `work/trash/`, and deleted there.
//!
//! Invariants:
//! 1. What is being deleted has lost its name durably before the first byte of it goes, so nobody
//!    ever finds half of it under that name.
//! 2. What a crash leaves in the trash is deleted by the next run.

use std::path::Path;

use super::layout;
use crate::storage::{Result, Storage, parent};

/// Deletes the file or folder at `path`, which lies below `dataset`, whose trash folder is there.
/// `label` tells apart what several writers throw away at once.
///
/// # Errors
/// The system refused.
pub fn discard(storage: &dyn Storage, dataset: &Path, path: &Path, label: &str) -> Result<()> {
    let trash = layout::trash(dataset);
    let mut there = trash.join(label);
    let mut number = 0_u64;
    while storage.stat(&there)?.is_some() {
        number += 1;
        there = trash.join(format!("{label}-{number}"));
    }
    storage.rename(path, &there)?;
    storage.sync_dir(&trash)?;
    storage.sync_dir(parent(path))?;
    storage.remove_all(&there)
}

/// Deletes what an earlier run left in the trash of a dataset. Only for the one who holds its lock.
///
/// # Errors
/// The system refused.
pub fn empty_trash(storage: &dyn Storage, dataset: &Path) -> Result<()> {
    let trash = layout::trash(dataset);
    for entry in storage.list(&trash)?.unwrap_or_default() {
        storage.remove_all(&trash.join(&entry.name))?;
    }
    Ok(())
}
