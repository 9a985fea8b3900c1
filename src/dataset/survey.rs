//! Looks at datasets from outside: which cache keys and generations there are, and how large.
//!
//! Leaves out: how far an unfinished build is (`status`), and what may go (`clean`).
//!
//! Invariants:
//! 1. Sentinels, manifests, notes and names are read, never a shard's files.
//! 2. Nothing is changed or locked: a run may be at work.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;

use super::error::{DatasetError, Result};
use super::home::{CURRENT, Home, PARTITIONS, PUSHING, current_of, is_hex};
use super::manifest::Manifest;
use super::reader::find;
use super::run_note::RunNote;
use crate::shard::layout::{self, COMPLETE};
use crate::storage::{Entry, EntryKind, Storage, parent};

/// What a path means: all cache keys of a dataset, and the one that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// `<out>/<name>`.
    name_dir: PathBuf,
    /// The cache key that the path names, or that `current` does.
    key: Option<String>,
    /// Whether nothing can be seen beside that key: it was named by URL, or its place cannot be listed.
    is_alone: bool,
}

impl Located {
    /// Finds out what `path` is: a dataset's folder `<out>/<name>`, its `current`, or the folder of a
    /// cache key.
    ///
    /// # Errors
    /// [`DatasetError::NoDataset`] if it is none of these.
    pub fn at(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let none = |message: &str| DatasetError::NoDataset {
            path: path.to_owned(),
            message: message.to_owned(),
        };
        // `.` has no name of its own, and `..` no name that a path tells.
        let whole = match path.file_name() {
            Some(_) => path.to_owned(),
            None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
        };
        let Some(name) = whole.file_name() else {
            return Err(none("its name is not in the path: name the folder itself"));
        };
        let name = name.to_string_lossy().into_owned();
        let name_dir = parent(&whole).to_owned();
        let target = match storage.read_link(&whole)? {
            None if name == CURRENT => current_of(storage, &name_dir)?,
            target => target,
        };
        if let Some(key) = target.filter(|target| is_hex(target, 16)) {
            return Ok(Self { name_dir, key: Some(key), is_alone: false });
        }
        if is_hex(&name, 16) && is_key(storage, &whole)? {
            let is_alone = storage.distant().is_some();
            return Ok(Self { name_dir, key: Some(name), is_alone });
        }
        let key = current_of(storage, &whole)?.filter(|target| is_hex(target, 16));
        let is_alone = match storage.distant() {
            Some(distant) => key.is_some() && !distant.can_list(),
            None => false,
        };
        let located = Self { name_dir: whole, key, is_alone };
        if located.keys(storage)?.is_empty() {
            if storage.distant().is_some() {
                // Says what was looked for.
                find(storage, path)?;
            }
            return Err(none("it is neither the folder of a dataset nor that of a cache key"));
        }
        Ok(located)
    }

    /// The folder of `home`'s dataset, whether it is there or not.
    #[must_use]
    pub fn of(home: &Home) -> Self {
        let name_dir = parent(home.dir()).to_owned();
        Self { name_dir, key: Some(home.cache_key().to_owned()), is_alone: false }
    }

    /// The paths of the cache key that is meant: the one that was named, else `current`'s, else the
    /// one that was written last.
    ///
    /// # Errors
    /// The disk's.
    pub fn home(&self, storage: &dyn Storage) -> Result<Home> {
        let last = || -> Result<Option<String>> {
            let mut keys = Vec::new();
            for key in self.keys(storage)? {
                let changed = storage.modified(&layout::work(&self.name_dir.join(&key)))?;
                keys.push((changed, key));
            }
            Ok(keys.into_iter().max().map(|(_, key)| key))
        };
        let key = match &self.key {
            Some(key) => Some(key.clone()),
            None => last()?,
        };
        self.home_of(&key.unwrap_or_default())
    }

    /// The paths of one cache key.
    ///
    /// # Errors
    /// It is none.
    pub fn home_of(&self, key: &str) -> Result<Home> {
        let name = self.name_dir.file_name().unwrap_or_default().to_string_lossy();
        Home::new(parent(&self.name_dir), &name, key)
    }

    /// `<out>/<name>`.
    #[must_use]
    pub fn name_dir(&self) -> &Path {
        &self.name_dir
    }

    /// The cache key that `current` points at.
    ///
    /// # Errors
    /// The disk's.
    pub fn current(&self, storage: &dyn Storage) -> Result<Option<String>> {
        if self.is_alone {
            return Ok(None);
        }
        Ok(current_of(storage, &self.name_dir)?.filter(|target| is_hex(target, 16)))
    }

    /// All cache keys of the dataset, sorted.
    ///
    /// # Errors
    /// The disk's.
    pub fn keys(&self, storage: &dyn Storage) -> Result<Vec<String>> {
        if self.is_alone {
            return Ok(self.key.iter().cloned().collect());
        }
        let entries = storage.list(&self.name_dir)?.unwrap_or_default();
        let mut keys = Vec::new();
        for Entry { name, kind, .. } in entries {
            let is_one = kind == EntryKind::Dir && is_hex(&name, 16);
            if is_one && is_key(storage, &self.name_dir.join(&name))? {
                keys.push(name);
            }
        }
        Ok(keys)
    }

    /// Looks at every cache key.
    ///
    /// # Errors
    /// The disk's.
    pub fn survey(&self, storage: &dyn Storage) -> Result<Vec<KeySurvey>> {
        let current = self.current(storage)?;
        let keys = self.keys(storage)?.into_iter().map(|key| {
            let home = self.home_of(&key)?;
            KeySurvey::of(storage, &home, current.as_deref() == Some(&*key))
        });
        keys.collect()
    }
}

/// What can be seen of one cache key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeySurvey {
    /// The key.
    pub cache_key: String,
    /// Its folder.
    pub dir: PathBuf,
    /// Whether `current` points at it.
    pub is_current: bool,
    /// Whether it has a sentinel and the manifest that it names.
    pub is_complete: bool,
    /// Rows of its current generation.
    pub n_rows: Option<u64>,
    /// How many generations there are.
    pub n_generations: u64,
    /// Bytes of everything in its folder.
    pub n_bytes: u64,
    /// When its last generation was made, or something was last built in it.
    pub modified: Option<SystemTime>,
    /// Who is writing to it.
    pub holder: Option<String>,
    /// The JSON that the cache key hashes, where a manifest or the last run's note has it.
    pub definition: Option<Value>,
}

impl KeySurvey {
    fn of(storage: &dyn Storage, home: &Home, is_current: bool) -> Result<Self> {
        let current = Manifest::current(storage, home.dir())?;
        let generations = generations(storage, home)?;
        let last = generations.first().and_then(|(_, modified)| *modified);
        let modified = match last {
            Some(last) => Some(last),
            None => storage.modified(&home.work())?,
        };
        let noted = || Ok::<_, DatasetError>(RunNote::read(storage, home)?.map(|it| it.definition));
        let n_bytes = match (storage.distant(), &current) {
            (None, _) => size(storage, home.dir())?,
            // Not every object is asked for.
            (Some(_), Some((_, it))) => it.dataset.bytes,
            (Some(_), None) => 0,
        };
        let (is_complete, n_rows, definition) = match current {
            Some((sentinel, it)) => (true, Some(sentinel.rows()), Some(it.dataset.definition)),
            None => (false, None, noted()?),
        };
        Ok(Self {
            cache_key: home.cache_key().to_owned(),
            dir: home.dir().to_owned(),
            is_current,
            is_complete,
            n_rows,
            n_generations: generations.len() as u64,
            n_bytes,
            modified,
            holder: storage.lock_holder(&home.lock())?,
            definition,
        })
    }
}

/// The manifests of a dataset with the times at which they were made, the youngest first.
pub(super) fn generations(
    storage: &dyn Storage,
    home: &Home,
) -> Result<Vec<(String, Option<SystemTime>)>> {
    let mut found = Vec::new();
    if storage.distant().is_some_and(|it| !it.can_list()) {
        return Ok(found);
    }
    for Entry { name, .. } in storage.list(home.dir())?.unwrap_or_default() {
        if Manifest::is_file_name(&name) {
            let modified = storage.modified(&home.file(&name))?;
            found.push((name, modified));
        }
    }
    found.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    Ok(found)
}

/// Bytes of the file at `path`, or of all files below it. What goes meanwhile counts for nothing.
pub(super) fn size(storage: &dyn Storage, path: &Path) -> Result<u64> {
    let Some(entry) = storage.stat(path)? else { return Ok(0) };
    let mut n_bytes = entry.len;
    if entry.kind == EntryKind::Dir {
        for entry in storage.list(path)?.unwrap_or_default() {
            n_bytes += match entry.kind {
                EntryKind::Dir => size(storage, &path.join(&entry.name))?,
                _ => entry.len,
            };
        }
    }
    Ok(n_bytes)
}

/// Whether a folder with the name of a cache key is one.
fn is_key(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    if storage.distant().is_some_and(|it| !it.can_list()) {
        return Ok(storage.stat(&dir.join(COMPLETE))?.is_some());
    }
    let entries = storage.list(dir)?.unwrap_or_default();
    let ours = [COMPLETE, PARTITIONS, PUSHING, "work"];
    Ok(entries.iter().any(|entry| ours.contains(&&*entry.name)))
}
