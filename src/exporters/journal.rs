//! The upload journal: what a push to one place has begun and done, kept in the dataset's `work/`.
//!
//! Leaves out: whether the store still has it (`decide`).
//!
//! Invariants:
//! 1. A line is written after what it tells was done, and is durable when the call that wrote it
//!    returns. What counts is the longest prefix of whole and valid lines; the rest is cut off before
//!    anything is appended.
//! 2. A part belongs to the upload whose line has its `begun`; those of others are passed over.
//! 3. The journal of a place has one writer: who has a [`Journal`] holds its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::{PushError, Result};
use super::object::Object;
use crate::dataset::Home;
use crate::shard::log;
use crate::storage::{AppendFile, Lock, LockGuard, Storage, parent};

/// The version of the lines. A journal of another one is begun anew.
const VERSION: u32 = 2;

/// What the journal knows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// A multipart upload was begun.
    Begun(Begun),
    /// It was sent, or found to be there.
    Done(Done),
}

/// A multipart upload that has not been completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The number of the line that tells of it.
    pub seq: u64,
    /// The file's size.
    pub bytes: u64,
    /// The file's digest.
    pub b3: blake3::Hash,
    /// The store's name of the upload.
    pub upload: String,
    /// Bytes of each part but the last.
    pub part_bytes: u64,
    /// The parts that were sent, by number from 0.
    pub parts: BTreeMap<u64, Part>,
}

/// A part that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What the store answered: what completing the upload needs.
    pub answer: String,
    /// The BLAKE3 of the file from its beginning to the end of the part.
    pub b3: blake3::Hash,
}

/// An object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub b3: blake3::Hash,
    /// Its ETag, where the store has one.
    pub etag: Option<String>,
}

/// The generation that a push is about, and what stood there before its first object went out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The BLAKE3 of the manifest that is pushed.
    pub generation: String,
    /// The dataset's sentinel in the store, `None` where there was none.
    pub before: Option<Before>,
}

/// A sentinel that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Its ETag.
    pub etag: Option<String>,
    /// The BLAKE3 of the manifest that it names.
    pub generation: String,
}

/// What a store was found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abilities {
    /// Whether an object is created only where there is none, if that is asked.
    pub conditional_create: bool,
    /// Whether an object is replaced only if it is the one that was named, if that is asked.
    pub conditional_replace: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    seq: u64,
    #[serde(flatten)]
    entry: Entry,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Entry {
    Journal { version: u32, url: String, cache_key: String },
    Store(Abilities),
    Note(Note),
    Begun { object: String, bytes: u64, b3: Hex, upload: String, part_bytes: u64 },
    Part { object: String, begun: u64, number: u64, answer: String, b3: Hex },
    Done { object: String, bytes: u64, b3: Hex, etag: Option<String> },
    Forgotten { object: String },
    Finished { generation: String },
}

/// A digest as lines have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Hex(blake3::Hash);

impl TryFrom<String> for Hex {
    type Error = blake3::HexError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        blake3::Hash::from_hex(text).map(Self)
    }
}

impl From<Hex> for String {
    fn from(hex: Hex) -> Self {
        hex.0.to_hex().to_string()
    }
}

/// What the lines say together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Facts {
    abilities: Option<Abilities>,
    note: Option<Note>,
    objects: BTreeMap<String, Known>,
    finished: BTreeSet<String>,
}

impl Facts {
    /// What the store was found to do.
    #[must_use]
    pub fn abilities(&self) -> Option<Abilities> {
        self.abilities
    }

    /// The push that has not ended yet.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// What is known of an object.
    #[must_use]
    pub fn known(&self, object: &str) -> Option<&Known> {
        self.objects.get(object)
    }

    /// Uploads that were begun and not completed: objects, and the store's names of the uploads.
    pub fn uploads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.objects.iter().filter_map(|(object, known)| match known {
            Known::Begun(begun) => Some((object.as_str(), begun.upload.as_str())),
            Known::Done(_) => None,
        })
    }

    /// Whether that generation was pushed from here to its end, at any time.
    #[must_use]
    pub fn has_finished(&self, generation: &str) -> bool {
        self.finished.contains(generation)
    }

    fn learn(&mut self, seq: u64, entry: Entry) {
        match entry {
            Entry::Journal { .. } => {}
            Entry::Store(abilities) => self.abilities = Some(abilities),
            Entry::Note(note) => self.note = Some(note),
            Entry::Begun { object, bytes, b3: Hex(b3), upload, part_bytes } => {
                let parts = BTreeMap::new();
                let begun = Begun { seq, bytes, b3, upload, part_bytes, parts };
                self.objects.insert(object, Known::Begun(begun));
            }
            Entry::Part { object, begun, number, answer, b3: Hex(b3) } => {
                if let Some(Known::Begun(known)) = self.objects.get_mut(&object)
                    && known.seq == begun
                {
                    known.parts.insert(number, Part { answer, b3 });
                }
            }
            Entry::Done { object, bytes, b3: Hex(b3), etag } => {
                self.objects.insert(object, Known::Done(Done { bytes, b3, etag }));
            }
            Entry::Forgotten { object } => {
                self.objects.remove(&object);
            }
            Entry::Finished { generation } => {
                self.note = None;
                self.finished.insert(generation);
            }
        }
    }
}

/// The journal of one dataset and one place, in the hands of the one push that goes there.
#[derive(Debug)]
pub struct Journal {
    file: Box<dyn AppendFile>,
    seq: u64,
    facts: Facts,
    _lock: Box<dyn LockGuard>,
}

impl Journal {
    /// Opens the journal of pushing the dataset of `home` to `url`, which is made where there is none.
    ///
    /// # Errors
    /// [`PushError::Busy`] if another push to that place is at work; the disk's.
    ///
    /// # Durability
    /// On `Ok` what [`Journal::facts`] tells survives a power cut.
    pub fn open(storage: &Arc<dyn Storage>, home: &Home, url: &str) -> Result<Self> {
        let folder = home.pushes();
        storage.create_dir_all(&folder)?;
        let digest = blake3::hash(url.as_bytes()).to_hex();
        let stem = digest.get(..16).unwrap_or_default();
        let owner = crate::dataset::home::owner();
        let lock = match storage.lock(&folder.join(format!("{stem}.lock")), &owner)? {
            Lock::Held(lock) => lock,
            Lock::Busy(holder) => {
                return Err(PushError::Busy { url: url.to_owned(), holder });
            }
        };
        let path = folder.join(format!("{stem}.jsonl"));
        let bytes = storage.read(&path)?.unwrap_or_default();
        let mut facts = Facts::default();
        let read = log::read(&bytes, |n, line: Line| {
            let is_due = line.seq == n as u64 && (n > 0 || is_header(&line.entry, url, home));
            is_due.then(|| facts.learn(line.seq, line.entry))
        });
        let mut file = if storage.stat(&path)?.is_some() {
            storage.open_append(&path, read.valid_bytes)?
        } else {
            storage.create(&path)?
        };
        file.sync()?;
        storage.sync_dir(parent(&path))?;
        let mut it = Self { file, seq: read.lines.len() as u64, facts, _lock: lock };
        if it.seq == 0 {
            let (url, cache_key) = (url.to_owned(), home.cache_key().to_owned());
            it.write(Entry::Journal { version: VERSION, url, cache_key })?;
        }
        Ok(it)
    }

    /// What the lines say.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Keeps what the store was found to do.
    ///
    /// # Errors
    /// The disk's; after one nothing more is written, here and below.
    pub fn store(&mut self, abilities: Abilities) -> Result<()> {
        self.write(Entry::Store(abilities))
    }

    /// A push begins.
    ///
    /// # Errors
    /// The disk's.
    pub fn note(&mut self, note: Note) -> Result<()> {
        self.write(Entry::Note(note))
    }

    /// A multipart upload of `object` was begun.
    ///
    /// # Errors
    /// The disk's.
    pub fn begun(&mut self, object: &Object, upload: &str, part_bytes: u64) -> Result<Begun> {
        let (seq, upload) = (self.seq, upload.to_owned());
        let begun = Begun {
            seq,
            bytes: object.bytes,
            b3: object.b3,
            upload: upload.clone(),
            part_bytes,
            parts: BTreeMap::new(),
        };
        let (name, b3) = (object.name.clone(), Hex(object.b3));
        self.write(Entry::Begun { object: name, bytes: object.bytes, b3, upload, part_bytes })?;
        Ok(begun)
    }

    /// A part of the upload `begun` of the object of that name was sent.
    ///
    /// # Errors
    /// The disk's.
    pub fn part(&mut self, object: &str, begun: u64, number: u64, part: Part) -> Result<()> {
        let (answer, b3) = (part.answer, Hex(part.b3));
        self.write(Entry::Part { object: object.to_owned(), begun, number, answer, b3 })
    }

    /// An object is there, with that ETag.
    ///
    /// # Errors
    /// The disk's.
    pub fn done(&mut self, object: &Object, etag: Option<String>) -> Result<()> {
        let (name, b3) = (object.name.clone(), Hex(object.b3));
        self.write(Entry::Done { object: name, bytes: object.bytes, b3, etag })
    }

    /// What was known of an object is not so any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn forgotten(&mut self, object: &str) -> Result<()> {
        self.write(Entry::Forgotten { object: object.to_owned() })
    }

    /// The push of that generation has ended with the dataset's sentinel in its place.
    ///
    /// # Errors
    /// The disk's.
    pub fn finished(&mut self, generation: &str) -> Result<()> {
        self.write(Entry::Finished { generation: generation.to_owned() })
    }

    fn write(&mut self, entry: Entry) -> Result<()> {
        let line = Line { seq: self.seq, entry };
        self.file.append(&log::line(&line))?;
        self.file.sync()?;
        self.facts.learn(self.seq, line.entry);
        self.seq += 1;
        Ok(())
    }
}

/// Whether the first line is that of a journal of ours of this dataset and place.
fn is_header(entry: &Entry, to: &str, home: &Home) -> bool {
    matches!(entry, Entry::Journal { version: VERSION, url, cache_key }
        if url == to && cache_key == home.cache_key())
}
