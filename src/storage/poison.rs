//! The mark that a failed write or sync leaves on a file's handles.
//!
//! Invariants:
//! 1. The first failure sets the mark, nothing clears it: the way out is to open the file again.
//! 2. All handles of one opening share one mark, on whatever threads they are.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Result, StorageError};

/// Whether a write or a sync through any handle of one opening of a file has failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison(Arc<AtomicBool>);

impl Poison {
    /// Does `act` unless an earlier one failed, and remembers if this one does.
    ///
    /// # Errors
    /// What `act` answers, or that an earlier operation on the file failed.
    pub(super) fn guard<T>(
        &self,
        op: &'static str,
        path: &Path,
        act: impl FnOnce() -> io::Result<T>,
    ) -> Result<T> {
        self.check(op, path)?;
        self.watch(act().map_err(|e| StorageError::new(op, path, e)))
    }

    /// Fails if an earlier operation did.
    pub(super) fn check(&self, op: &'static str, path: &Path) -> Result<()> {
        if self.0.load(Ordering::Acquire) {
            let earlier = io::Error::other("an earlier append to or sync of this file failed");
            return Err(StorageError::new(op, path, earlier));
        }
        Ok(())
    }

    /// Passes `outcome` on, remembering a failure.
    pub(super) fn watch<T>(&self, outcome: Result<T>) -> Result<T> {
        if outcome.is_err() {
            self.0.store(true, Ordering::Release);
        }
        outcome
    }
}
