//! A feature cache in the hands of its one writer.
//!
//! Invariants:
//! 1. Whoever has a [`FeatureCache`], or a section of it, holds the folder's lock.
//! 2. A section is open once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{CacheError, Result};
use super::hot::Hot;
use super::reader::{CacheReader, SectionStat};
use super::section::{Others, Section, SectionOptions};
use super::store::Store;
use super::{layout, reader};
use crate::fingerprint::CompatSignature;
use crate::shard::{discard, empty_trash};
use crate::storage::{Lock, LockGuard, Overlap, Storage};

/// A feature cache, opened for writing. Reading needs no more than a [`CacheReader`].
#[derive(Debug, Clone)]
pub struct FeatureCache {
    place: Arc<Place>,
}

/// What a cache and its sections share.
#[derive(Debug)]
struct Place {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    open: Mutex<BTreeSet<String>>,
    _lock: Box<dyn LockGuard>,
}

/// The right to write to one section.
#[derive(Debug)]
pub(super) struct Seat {
    place: Arc<Place>,
    section: String,
}

impl FeatureCache {
    /// Opens the feature cache in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// [`CacheError::Busy`] if somebody else writes to it.
    pub fn open(storage: Arc<dyn Storage>, dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        storage.create_dir_all(&dir)?;
        let uname = rustix::system::uname();
        let owner = format!("pid {} on {}", std::process::id(), uname.nodename().to_string_lossy());
        let lock = match storage.lock(&dir.join(layout::LOCK), &owner)? {
            Lock::Held(lock) => lock,
            Lock::Busy(holder) => return Err(CacheError::Busy { path: dir, holder }),
        };
        storage.create_dir_all(&crate::shard::layout::trash(&dir))?;
        empty_trash(&*storage, &dir)?;
        let place = Place { storage, dir, open: Mutex::default(), _lock: lock };
        Ok(Self { place: Arc::new(place) })
    }

    /// Opens the section of a signature. It comes into being with its first commit; a signature
    /// without a section has no rows.
    ///
    /// # Errors
    /// [`CacheError::InUse`] if it is open already; [`CacheError::Incompatible`] as the options say;
    /// [`CacheError::Damaged`] if its log or signature is not what was written.
    pub fn section(&self, signature: &CompatSignature, options: SectionOptions) -> Result<Section> {
        let Place { storage, dir, .. } = &*self.place;
        if options.others == Others::Refused
            && let Some(path) = others(&**storage, dir, signature)?
        {
            return Err(path);
        }
        let seat = self.seat(signature.sha256())?;
        let hot = Hot::new(options.hot_bytes);
        let store = Store::open(Arc::clone(storage), dir, signature.clone(), hot)?;
        Ok(Section::new(seat, store, options))
    }

    fn seat(&self, section: &str) -> Result<Seat> {
        let mut open = self.place.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.insert(section.to_owned()) {
            return Err(CacheError::InUse { section: section.to_owned() });
        }
        Ok(Seat { place: Arc::clone(&self.place), section: section.to_owned() })
    }

    /// The same cache, for reading.
    #[must_use]
    pub fn reader(&self) -> CacheReader {
        CacheReader::new(Arc::clone(&self.place.storage), &self.place.dir)
    }

    /// Removes the sections that `keep` does not want, and says which. Readers that have one open go
    /// on with what they have mapped.
    ///
    /// # Errors
    /// [`CacheError::InUse`] if one of them is open; the system refused.
    pub fn prune(&self, mut keep: impl FnMut(&SectionStat) -> bool) -> Result<Vec<SectionStat>> {
        let Place { storage, dir, .. } = &*self.place;
        let mut removed = Vec::new();
        for stat in self.reader().stat()? {
            if keep(&stat) {
                continue;
            }
            let _seat = self.seat(&stat.section)?;
            discard(&**storage, dir, &dir.join(&stat.section), &stat.section)?;
            removed.push(stat);
        }
        Ok(removed)
    }
}

/// The error that names a section of another signature, where there is one.
fn others(
    storage: &dyn Storage,
    dir: &Path,
    signature: &CompatSignature,
) -> Result<Option<CacheError>> {
    for section in reader::sections(storage, dir)? {
        let log = dir.join(&section).join(layout::MANIFEST);
        if section != signature.sha256() && storage.stat(&log)?.is_some() {
            let json = storage.read(&dir.join(&section).join(layout::SIGNATURE))?;
            let found = serde_json::from_slice(&json.unwrap_or_default()).unwrap_or_default();
            let difference = signature.difference(&CompatSignature::new(&found));
            let difference = difference.unwrap_or(section);
            return Ok(Some(CacheError::Incompatible { path: dir.to_path_buf(), difference }));
        }
    }
    Ok(None)
}

impl Seat {
    pub(super) fn section(&self) -> &str {
        &self.section
    }

    /// Notes why the rows of the section are not to be believed.
    pub(super) fn distrust(&self, why: &str) -> Result<()> {
        let Place { storage, dir, .. } = &*self.place;
        let section = dir.join(&self.section);
        storage.create_dir_all(&section)?;
        Ok(storage.write_atomic(&section.join(layout::DOUBT), why.as_bytes())?)
    }

    pub(super) fn overlap(&self) -> Overlap {
        self.place.storage.overlap()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.place.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.section);
    }
}
