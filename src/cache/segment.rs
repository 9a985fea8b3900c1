//! A segment: rows that were made durable together, opened when they are first asked for.
//!
//! Invariant: what is opened is the folder that the manifest names, with rows of the section's
//! structure; anything else is damage, by name.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::error::{CacheError, Result};
use super::manifest::Entry;
use super::{RowKey, layout};
use crate::schema::RowSchema;
use crate::shard::{Finding, Shard, verify_keyed};
use crate::storage::Storage;

/// A segment that a manifest names.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) entry: Entry,
    storage: Arc<dyn Storage>,
    pub(super) path: PathBuf,
    schema: Arc<RowSchema>,
    shard: OnceLock<Shard>,
    /// Whether all of it was read and is as it was written; shared with those that are closed.
    is_sound: Arc<Mutex<bool>>,
}

impl Segment {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        section: &std::path::Path,
        schema: &Arc<RowSchema>,
        entry: Entry,
    ) -> Self {
        let path = layout::segment(section, entry.id);
        let (storage, schema) = (Arc::clone(storage), Arc::clone(schema));
        Self { entry, storage, path, schema, shard: OnceLock::new(), is_sound: Arc::default() }
    }

    /// The same, not opened yet. What was mapped goes when nobody holds the other one.
    pub(super) fn closed(&self) -> Self {
        let Self { entry, storage, path, schema, shard: _, is_sound } = self;
        let (storage, schema) = (Arc::clone(storage), Arc::clone(schema));
        let (shard, is_sound) = (OnceLock::new(), Arc::clone(is_sound));
        Self { entry: entry.clone(), storage, path: path.clone(), schema, shard, is_sound }
    }

    /// Its rows.
    pub(super) fn shard(&self) -> Result<&Shard> {
        if let Some(open) = self.shard.get() {
            return Ok(open);
        }
        let shard = Shard::open(Arc::clone(&self.storage), &self.path)?;
        if shard.id() != self.entry.b3 || shard.n_rows() != self.entry.rows {
            return Err(CacheError::damaged(&self.path, "is not the segment that the log names"));
        }
        if **shard.schema() != *self.schema {
            return Err(CacheError::damaged(&self.path, "its rows are not those of the section"));
        }
        Ok(self.shard.get_or_init(|| shard))
    }

    /// Reads every byte of it.
    pub(super) fn verify(&self) -> Result<()> {
        self.shard()?;
        match self.findings().into_iter().next() {
            Some(finding) => Err(finding),
            None => Ok(()),
        }
    }

    /// Reads every byte of it, unless that was done before.
    pub(super) fn verify_once(&self) -> Result<()> {
        let mut is_sound = self.is_sound.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_sound {
            self.verify()?;
            *is_sound = true;
        }
        Ok(())
    }

    /// What is not as it was written.
    pub(super) fn findings(&self) -> Vec<CacheError> {
        let said = |finding: Finding| {
            let what = finding.to_string();
            let path = format!("`{}`", finding.path.display());
            let what = what.strip_prefix(&path).unwrap_or(&what);
            CacheError::damaged(&finding.path, what.trim_start_matches([':', ',', ' ']))
        };
        verify_keyed(&self.storage, &self.path).into_iter().map(said).collect()
    }

    /// The keys of its rows, in order.
    pub(super) fn keys(&self) -> Result<&[RowKey]> {
        Ok(self.shard()?.row_keys()?)
    }
}
