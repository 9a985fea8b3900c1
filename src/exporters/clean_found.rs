//! What was found of a dataset in a store, and what of it is needed.
//!
//! Leaves out: looking, and removing (`clean`).
//!
//! Invariant: what has no name of ours is not in here, so it is never removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::clean::RemovalElsewhere;
use crate::dataset::clean::Leftover;
use crate::dataset::home::{PARTITIONS, PUSHING, is_hex};
use crate::dataset::manifest::Manifest;
use crate::dataset::record::RecordName;
use crate::remote::{Object, probe};
use crate::shard::layout;

/// What a generation names.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) records: BTreeSet<String>,
    pub(super) shards: BTreeSet<String>,
    pub(super) key_index: Option<String>,
}

impl Names {
    pub(super) fn of(manifest: &Manifest) -> Self {
        Self {
            records: manifest.partitions.iter().map(|it| it.record.clone()).collect(),
            shards: manifest.shards.iter().map(|it| it.id.clone()).collect(),
            key_index: manifest.dataset.keys.as_ref().map(|keys| keys.file.clone()),
        }
    }
}

/// Everything that somebody still needs.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Records of kept generations.
    pub(super) of_generations: BTreeSet<String>,
    /// Those, and the ones of builds that have not ended.
    pub(super) records: BTreeSet<String>,
    pub(super) shards: BTreeSet<String>,
    pub(super) key_indexes: BTreeSet<String>,
}

impl Kept {
    pub(super) fn generation(&mut self, names: Names) {
        self.of_generations.extend(names.records.iter().cloned());
        self.records.extend(names.records);
        self.shards.extend(names.shards);
        self.key_indexes.extend(names.key_index);
    }
}

/// The objects of a shard, together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) n_bytes: u64,
    /// The one that was written last.
    pub(super) youngest: Object,
}

/// What a listing has told, by kind. What is of none is not ours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct There {
    pub(super) manifests: BTreeMap<String, Object>,
    pub(super) key_indexes: BTreeMap<String, Object>,
    /// By the name of their file.
    pub(super) records: BTreeMap<String, Object>,
    /// By id.
    pub(super) shards: BTreeMap<String, Folder>,
    pub(super) pushing: Vec<(String, Object)>,
    pub(super) probes: Vec<(String, Object)>,
    /// Of a shared disk: what clients were writing when they were killed, or are writing.
    pub(super) staged: Vec<(String, Object)>,
}

/// Whether an object of that name may be of a dataset: what is uploaded under another is not ours.
pub(super) fn may_be_of_dataset(name: &str) -> bool {
    let object = Object { size: 0, modified: SystemTime::UNIX_EPOCH, etag: None };
    let mut there = There::default();
    there.add(name.to_owned(), object);
    name == layout::COMPLETE || there != There::default()
}

fn is_key_index(name: &str) -> bool {
    let digits = name.strip_prefix("keys-").and_then(|name| name.strip_suffix(".bin"));
    digits.is_some_and(|digits| is_hex(digits, 16))
}

impl There {
    pub(super) fn add(&mut self, name: String, object: Object) {
        match name.split_once('/') {
            None if Manifest::is_file_name(&name) => drop(self.manifests.insert(name, object)),
            None if is_key_index(&name) => drop(self.key_indexes.insert(name, object)),
            None if name.starts_with(probe::PREFIX) => self.probes.push((name, object)),
            Some((PARTITIONS, file)) if RecordName::parse(file).is_some() => {
                self.records.insert(file.to_owned(), object);
            }
            Some((PUSHING, _)) => self.pushing.push((name, object)),
            Some(("shards", rest)) => {
                let id = rest.split('/').next().unwrap_or_default();
                if is_hex(id, layout::ID_DIGITS) {
                    self.of_shard(id, object);
                }
            }
            _ => {}
        }
    }

    fn of_shard(&mut self, id: &str, object: Object) {
        if let Some(folder) = self.shards.get_mut(id) {
            folder.n_bytes = folder.n_bytes.saturating_add(object.size);
            if object.modified > folder.youngest.modified {
                folder.youngest = object;
            }
        } else {
            let folder = Folder { n_bytes: object.size, youngest: object };
            self.shards.insert(id.to_owned(), folder);
        }
    }

    pub(super) fn size(&self, manifest: &str) -> u64 {
        self.manifests.get(manifest).map_or(0, |object| object.size)
    }
}

/// What goes, each thing once.
#[derive(Debug, Default)]
pub(super) struct Removals {
    all: Vec<RemovalElsewhere>,
    names: BTreeSet<String>,
}

impl Removals {
    pub(super) fn add(&mut self, what: Leftover, name: String, n_bytes: u64) {
        self.names.insert(name.clone());
        self.all.push(RemovalElsewhere { what, name, n_bytes, upload: None });
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// In the order in which things have to go.
    pub(super) fn sorted(mut self) -> Vec<RemovalElsewhere> {
        self.all.sort_by_key(|it| match it.what {
            Leftover::Shard => 0,
            Leftover::Record => 1,
            Leftover::KeyIndex => 2,
            Leftover::Manifest => 3,
            Leftover::Work
            | Leftover::Staged
            | Leftover::Upload
            | Leftover::Trash
            | Leftover::Key => 4,
        });
        self.all
    }
}
