//! A feature cache for those who only read: in any process, while somebody writes.
//!
//! Invariants:
//! 1. A reader writes nothing and takes no lock.
//! 2. What it sees is what was committed when it was opened or last refreshed. Where a segment was
//!    replaced meanwhile it refreshes by itself: the rows are the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arrow_schema::Schema as ArrowSchema;

use super::error::{CacheError, Result};
use super::hot::{Hot, HotStat};
use super::lookup::Lookup;
use super::run::Run;
use super::section::batch;
use super::store::{self, Shared};
use super::view::View;
use super::{RowKey, index, layout, structure};
use crate::fingerprint::CompatSignature;
use crate::schema::RowSchema;
use crate::storage::{EntryKind, Local, Storage};

/// How often a listing is tried again that changed while it was looked at.
const TRIES: usize = 64;

/// A feature cache, opened for reading.
#[derive(Debug, Clone)]
pub struct CacheReader {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    hot_bytes: u64,
}

/// What a section holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SectionStat {
    /// SHA-256 of its signature, which names it.
    pub section: String,
    /// Canonical JSON of its signature.
    pub signature: String,
    /// Rows, counting those that later ones have replaced.
    pub rows: u64,
    /// Segments that the rows lie in.
    pub segments: usize,
    /// Bytes of the segments.
    pub bytes: u64,
    /// Files of the index.
    pub index_runs: usize,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Names of the fields.
    pub fields: Vec<String>,
    /// When rows were committed last.
    pub written: Option<SystemTime>,
    /// Hot rows of the [`SectionReader`] that was asked.
    pub hot: HotStat,
    /// What is wrong with it, where it cannot be opened.
    pub damage: Option<String>,
}

/// A section, for reading. It can be shared between threads.
#[derive(Debug)]
pub struct SectionReader {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    signature: CompatSignature,
    shared: Shared,
    /// The log as it was read last.
    seen: Mutex<Option<blake3::Hash>>,
}

impl CacheReader {
    /// Memory for hot rows, unless something else is said: the places of 280,000, which is more than
    /// batches and their neighbours come back to, and little beside what reads features. No section
    /// takes more than 60 bytes for each of its rows, and none before it is asked.
    pub const HOT_BYTES: u64 = 16 << 20;

    /// The feature cache in `dir`. Nothing needs to be there yet.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, dir: impl AsRef<Path>) -> Self {
        Self { storage, dir: dir.as_ref().to_path_buf(), hot_bytes: Self::HOT_BYTES }
    }

    /// The feature cache in the folder `dir` of this machine's file system.
    #[must_use]
    pub fn local(dir: impl AsRef<Path>) -> Self {
        Self::new(Arc::new(Local), dir)
    }

    /// The same with so many bytes of memory, for each section that is opened, for the places of the
    /// rows that were asked for last, which are then found without the index; 0 keeps none.
    #[must_use]
    pub fn with_hot_bytes(self, hot_bytes: u64) -> Self {
        Self { hot_bytes, ..self }
    }

    /// Whether anybody ever opened it for writing.
    ///
    /// # Errors
    /// The system refused.
    pub fn is_there(&self) -> Result<bool> {
        Ok(self.storage.stat(&self.dir.join(layout::LOCK))?.is_some())
    }

    /// The section of a signature. A signature without a section has no rows.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] if its log or signature is not what was written.
    pub fn section(&self, signature: &CompatSignature) -> Result<SectionReader> {
        let section = SectionReader {
            storage: Arc::clone(&self.storage),
            dir: self.dir.join(signature.sha256()),
            signature: signature.clone(),
            shared: Shared::new(Hot::new(self.hot_bytes)),
            seen: Mutex::new(None),
        };
        section.refresh()?;
        Ok(section)
    }

    /// The signatures that have a section, by its name.
    ///
    /// # Errors
    /// [`CacheError::Damaged`] if a section's signature is not what was written.
    pub fn signatures(&self) -> Result<Vec<CompatSignature>> {
        let sections = sections(&*self.storage, &self.dir)?;
        sections.iter().filter_map(|section| self.signature(section).transpose()).collect()
    }

    /// The signature that names a section's folder; none where nothing was ever committed.
    fn signature(&self, section: &str) -> Result<Option<CompatSignature>> {
        let dir = self.dir.join(section);
        let path = dir.join(layout::SIGNATURE);
        let json = match self.storage.read(&path)? {
            Some(json) => json,
            None if !store::is_begun(&*self.storage, &dir)? => return Ok(None),
            // It is durable before the log is begun: it may have come meanwhile.
            None => {
                let what = "it is not there, but what it belongs to is";
                self.storage.read(&path)?.ok_or_else(|| CacheError::damaged(&path, what))?
            }
        };
        let value: Option<serde_json::Value> = serde_json::from_slice(&json).ok();
        let signature = value.as_ref().map(CompatSignature::new);
        let named = signature.filter(|signature| signature.sha256() == section);
        let what = "it is not the signature that names the folder";
        named.map(Some).ok_or_else(|| CacheError::damaged(&path, what))
    }

    /// What each section holds. Of one that is damaged there is no more than its name and what is
    /// wrong with it.
    ///
    /// # Errors
    /// The system refused.
    pub fn stat(&self) -> Result<Vec<SectionStat>> {
        let mut stats = Vec::new();
        for section in sections(&*self.storage, &self.dir)? {
            let signature = self.signature(&section);
            let stat = signature.and_then(|signature| match signature {
                Some(signature) => self.section(&signature)?.stat().map(Some),
                None => Ok(None),
            });
            match stat {
                Ok(stat) => stats.extend(stat),
                Err(e @ (CacheError::Damaged { .. } | CacheError::Read(_))) => {
                    let log = self.dir.join(&section).join(layout::MANIFEST);
                    let written = self.storage.modified(&log)?;
                    let damage = Some(e.to_string());
                    stats.push(SectionStat { section, written, damage, ..SectionStat::default() });
                }
                Err(e) => return Err(e),
            }
        }
        Ok(stats)
    }

    /// Reads every byte of every section, and gives what is not as it was written.
    ///
    /// # Errors
    /// The system refused to list the folder.
    pub fn verify(&self) -> Result<Vec<CacheError>> {
        let mut wrong = Vec::new();
        for section in sections(&*self.storage, &self.dir)? {
            match self.signature(&section) {
                Ok(Some(signature)) => match self.section(&signature) {
                    Ok(section) => wrong.extend(section.verify()?),
                    Err(e) => wrong.push(e),
                },
                Ok(None) => {}
                Err(e) => wrong.push(e),
            }
        }
        Ok(wrong)
    }
}

/// The names of the sections in a folder.
pub(super) fn sections(storage: &dyn Storage, dir: &Path) -> Result<Vec<String>> {
    let entries = storage.list(dir)?.unwrap_or_default().into_iter();
    let sections = entries.filter(|e| e.kind == EntryKind::Dir && layout::is_section(&e.name));
    Ok(sections.map(|entry| entry.name).collect())
}

impl SectionReader {
    /// Looks for rows that were committed since. Gives whether there is anything new.
    ///
    /// # Errors
    /// As [`CacheReader::section`].
    pub fn refresh(&self) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = None;
        for _ in 0..TRIES {
            let log = self.storage.read(&self.dir.join(layout::MANIFEST))?;
            let hash = log.as_deref().map(blake3::hash);
            // Where there is no log there may be segments, which is damage.
            if hash.is_some() && hash == *seen {
                return Ok(false);
            }
            match self.load() {
                // A run that was listed has been merged.
                Err(e) if e.is_absence() => last = Some(e),
                Err(e) => return Err(e),
                Ok(view) => {
                    self.shared.set(view);
                    let is_new = hash != *seen;
                    *seen = hash;
                    return Ok(is_new);
                }
            }
        }
        last.map_or(Ok(false), Err)
    }

    fn load(&self) -> Result<View> {
        let before = self.shared.view();
        let Some(manifest) = store::read(&*self.storage, &self.dir, &self.signature)? else {
            return Ok(View::empty(before.hot.renewed()));
        };
        // After the log: a run that covers a segment is there before the segment is.
        let is_live = |id| manifest.segments.iter().any(|entry| entry.id == id);
        let (runs, _) = index::list(&*self.storage, &self.dir, &before.runs, &is_live)?;
        let hot = before.hot.renewed();
        Ok(View::new(&self.storage, &self.dir, &manifest, &before.segments, runs, hot))
    }

    /// The structure of its rows, once there were any.
    #[must_use]
    pub fn schema(&self) -> Option<Arc<RowSchema>> {
        self.shared.view().schema.clone()
    }

    /// Checks that rows with these columns could be put.
    ///
    /// # Errors
    /// [`CacheError::Structure`] if they are not like those that are there; a column that cannot be
    /// stored.
    pub fn accepts(&self, columns: &ArrowSchema) -> Result<()> {
        let found = structure::infer(columns, &BTreeMap::new())?;
        self.schema().map_or(Ok(()), |locked| structure::check(&locked, &found))
    }

    /// The rows of `keys`, as far as they are there.
    ///
    /// # Errors
    /// A segment is damaged, or the system refused to read it.
    pub fn get(&self, keys: &[RowKey]) -> Result<Lookup> {
        self.look(|view| {
            let (mut places, mut hits, mut misses) = (Vec::new(), Vec::new(), Vec::new());
            for (position, found) in view.find(keys)?.into_iter().enumerate() {
                let place = found.map(|found| view.place(found)).transpose()?.flatten();
                let side = if place.is_some() { &mut hits } else { &mut misses };
                side.push(position);
                places.extend(place);
            }
            let rows = batch(view.schema.as_deref(), &places)?;
            Ok(Lookup { rows, hits, misses })
        })
    }

    /// The positions of those of `keys` that have no row, ascending, without reading rows.
    ///
    /// # Errors
    /// As [`SectionReader::get`].
    pub fn misses(&self, keys: &[RowKey]) -> Result<Vec<usize>> {
        self.look(|view| {
            let found = view.find(keys)?.into_iter().enumerate();
            Ok(found.filter(|(_, found)| found.is_none()).map(|(n, _)| n).collect())
        })
    }

    /// What the section holds.
    ///
    /// # Errors
    /// The system refused.
    pub fn stat(&self) -> Result<SectionStat> {
        let view = self.shared.view();
        let fields = view.schema.iter().flat_map(|schema| schema.fields());
        Ok(SectionStat {
            section: self.signature.sha256().to_owned(),
            signature: self.signature.json().to_owned(),
            rows: view.n_rows(),
            segments: view.segments.len(),
            bytes: view.segments.iter().map(|segment| segment.entry.bytes).sum(),
            index_runs: view.runs.len(),
            index_bytes: view.runs.iter().map(|run| run.len()).sum(),
            fields: fields.map(|field| field.name.clone()).collect(),
            written: self.storage.modified(&self.dir.join(layout::MANIFEST))?,
            hot: view.hot.stat(),
            damage: None,
        })
    }

    /// Reads every byte of the section, and gives what is not as it was written.
    ///
    /// # Errors
    /// The log cannot be read again.
    pub fn verify(&self) -> Result<Vec<CacheError>> {
        let view = self.shared.view();
        let dir = layout::index(&self.dir);
        let mut wrong: Vec<(Option<u32>, CacheError)> = Vec::new();
        for segment in &view.segments {
            let id = Some(segment.entry.id);
            wrong.extend(segment.shard().err().map(|e| (id, e)));
            wrong.extend(segment.findings().into_iter().map(|e| (id, e)));
        }
        for run in &view.runs {
            wrong.extend(index::check(&dir, run, &view).map(|e| (None, e)));
        }
        let (_, others) = index::list(&*self.storage, &self.dir, &view.runs, &|id| view.holds(id))?;
        for name in others.iter().filter(|name| index::is_run(name)) {
            // A run that is whole is what a merge has not removed yet.
            if let Err(CacheError::Damaged { path, .. }) = Run::open(&*self.storage, &dir, name) {
                let what =
                    "it is no run of this section's index; opening for writing makes it anew";
                wrong.push((None, CacheError::damaged(&path, what)));
            }
        }
        // What a writer has replaced meanwhile is gone, not damaged.
        self.refresh()?;
        let now = self.shared.view();
        wrong.retain(|(id, _)| id.is_none_or(|id| now.holds(id)));
        Ok(wrong.into_iter().map(|(_, e)| e).collect())
    }

    /// Asks what is there; once more if segments were replaced meanwhile.
    fn look<T>(&self, read: impl Fn(&View) -> Result<T>) -> Result<T> {
        loop {
            let view = self.shared.view();
            // Another thread may have refreshed it meanwhile.
            let is_new = || -> Result<bool> {
                Ok(self.refresh()? || !Arc::ptr_eq(&view, &self.shared.view()))
            };
            match read(&view) {
                Err(e) if e.is_absence() && is_new()? => {}
                outcome => return outcome,
            }
        }
    }
}
