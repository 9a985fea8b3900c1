//! The feature caches that a run writes to.
//!
//! Invariant: a folder is opened once and a section of it once, however many hooks keep their answers
//! there, and whichever paths they name it by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::Result;
use super::section::{MAPPED_BYTES, Section, SectionOptions};
use super::writer::FeatureCache;
use crate::fingerprint::CompatSignature;
use crate::shard::CommitPolicy;
use crate::storage::Storage;

/// Rows are made durable when so many bytes were gathered, if not earlier.
const GROUP_BYTES: u64 = 16 << 20;
/// Held of a section beside what is gathered: entries of the index that are sorted, rows that are
/// copied while segments are merged, what each of its files gathers.
const BESIDE_BYTES: u64 = 48 << 20;

/// Feature caches that are written to together.
#[derive(Debug)]
pub struct Caches {
    storage: Arc<dyn Storage>,
    commits: CommitPolicy,
    /// By where the paths to them lead.
    open: Mutex<BTreeMap<PathBuf, Open>>,
}

#[derive(Debug)]
struct Open {
    cache: FeatureCache,
    sections: BTreeMap<String, Arc<Section>>,
}

impl Caches {
    /// None yet; rows are made durable as often as `commits` says, or more often.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, commits: CommitPolicy) -> Self {
        let commits = CommitPolicy { bytes: commits.bytes.min(GROUP_BYTES), ..commits };
        Self { storage, commits, open: Mutex::default() }
    }

    /// The section of a signature in the feature cache at `dir`.
    ///
    /// # Errors
    /// As [`FeatureCache::open`] and [`FeatureCache::section`].
    pub fn section(&self, dir: &Path, signature: &CompatSignature) -> Result<Arc<Section>> {
        let mut all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.storage.create_dir_all(dir)?;
        let open = match all.entry(self.storage.real_path(dir)?) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let cache = FeatureCache::open(Arc::clone(&self.storage), dir)?;
                new.insert(Open { cache, sections: BTreeMap::new() })
            }
        };
        if let Some(section) = open.sections.get(signature.sha256()) {
            return Ok(Arc::clone(section));
        }
        let options = SectionOptions { commits: self.commits, ..SectionOptions::default() };
        let section = Arc::new(open.cache.section(signature, options)?);
        open.sections.insert(signature.sha256().to_owned(), Arc::clone(&section));
        Ok(section)
    }

    /// Makes everything that was put durable.
    ///
    /// # Errors
    /// A write failed, now or since the last call.
    ///
    /// # Durability
    /// On `Ok` all rows that were put survive a power cut.
    pub fn commit(&self) -> Result<()> {
        let sections: Vec<Arc<Section>> = {
            let all = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            all.values().flat_map(|open| open.sections.values().map(Arc::clone)).collect()
        };
        sections.iter().try_for_each(|section| section.commit())
    }
}

/// Most bytes of memory that a section holds whose rows come in batches of `batch_bytes` at most.
#[must_use]
pub fn memory_bytes(batch_bytes: u64) -> u64 {
    // What is gathered, and what is being written; what is mapped of rows that were read.
    let gathered = GROUP_BYTES.saturating_add(batch_bytes).saturating_mul(2);
    gathered.saturating_add(BESIDE_BYTES).saturating_add(MAPPED_BYTES)
}
