//! The mark that a failed write or sync leaves on a file's handles.
//!
//! Invariants:
//! 1. The first failure sets the mark, nothing clears it: the way out is to open the file again.
//! 2. All handles of one opening share one mark, on whatever threads they are.
//! 3. Whoever meets the mark is told what failed first: that is the cause, the mark only its echo.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::{Result, StorageError};

/// Whether a write or a sync through any handle of one opening of a file has failed.
#[derive(Debug, Clone, Default)]
pub(super) struct Poison(Arc<OnceLock<Failure>>);

/// What failed first.
#[derive(Debug)]
struct Failure {
    op: &'static str,
    kind: io::ErrorKind,
    message: String,
}

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
        let Some(Failure { op: first, kind, message }) = self.0.get() else { return Ok(()) };
        let earlier = format!("an earlier attempt to {first} it failed: {message}");
        Err(StorageError::new(op, path, io::Error::new(*kind, earlier)))
    }

    /// Passes `outcome` on, remembering a failure.
    pub(super) fn watch<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| {
            let StorageError { op, source, .. } = error;
            self.0.get_or_init(|| Failure { op, kind: source.kind(), message: source.to_string() });
        })
    }
}
