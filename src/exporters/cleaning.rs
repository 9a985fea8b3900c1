//! Says that something is removed at a place, so that no push relies on what is about to go.
//!
//! Leaves out: what goes (`clean`), and how a push says that it is at work (`presence`).
//!
//! Invariants:
//! 1. The document is there before pushes are looked for, and each push looks for it after it has
//!    announced itself, before it relies on anything that is there: at least one of the two sees the
//!    other. A removal that sees a push ends; a push that sees a removal waits until it has ended.
//! 2. It is written anew before anything goes, once it is older than [`REFRESH`]; pushes are looked for
//!    after that.
//! 3. Where a request to remove something may be under way still, it stays, and counts for [`LULL`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tracing::warn;

use super::object::DIGEST;
use super::presence::{Pushing, REFRESH};
use crate::dataset::home::PUSHING;
use crate::remote::{Remote, RemoteError, probe};
use crate::storage::{Storage, StorageError};

/// How the names of the documents begin, in the folder in which pushes say that they are at work.
const PREFIX: &str = "clean-";

/// A removal that has said nothing for so long is none any more. What it asked for last is done by then
/// or never: requests that were signed more than a quarter of an hour ago are refused.
pub(super) const LULL: Duration = Duration::from_mins(20);

/// A request that took longer may have been made again by the client, and the first be under way.
const PROMPT: Duration = Duration::from_secs(5);

/// Whether an object, by its name below the cache key, is such a document.
pub(super) fn is_of_clean(name: &str) -> bool {
    let below = name.strip_prefix(PUSHING).and_then(|name| name.strip_prefix('/'));
    below.is_some_and(|name| name.starts_with(PREFIX))
}

/// What stands in the document, and when it was written.
#[derive(Debug)]
struct Document {
    name: String,
    content: Pushing,
    said: Option<SystemTime>,
}

impl Document {
    fn new() -> Self {
        let name = format!("{PREFIX}{}.json", probe::random());
        Self { name, content: Pushing::new(), said: None }
    }

    /// Whether it has to be written anew. The clock goes on while a machine sleeps.
    fn is_due(&self) -> bool {
        self.said.is_none_or(|said| said.elapsed().is_ok_and(|age| age >= REFRESH))
    }

    /// What is to be written now.
    fn bytes(&mut self) -> Bytes {
        self.said = Some(SystemTime::now());
        self.content.bytes()
    }
}

/// A removal in a store.
#[derive(Debug)]
pub(super) struct Cleaning<'a> {
    remote: &'a Remote,
    /// Relative to the URL.
    name: String,
    document: Document,
    is_unsure: bool,
}

impl<'a> Cleaning<'a> {
    /// Says that something is about to go; `folder` is where pushes say that they are at work. The time
    /// is the store's.
    pub(super) fn begin(
        remote: &'a Remote,
        folder: &str,
    ) -> Result<(Self, SystemTime), RemoteError> {
        let document = Document::new();
        let name = format!("{folder}/{}", document.name);
        let mut it = Self { remote, name, document, is_unsure: false };
        it.say()?;
        let time = remote.head(&it.name)?.modified;
        Ok((it, time))
    }

    /// Whether [`Cleaning::say`] has to say it again, and pushes have to be looked for.
    pub(super) fn is_due(&self) -> bool {
        self.document.is_due()
    }

    /// Says it again, if it is time to.
    pub(super) fn say(&mut self) -> Result<(), RemoteError> {
        if !self.is_due() {
            return Ok(());
        }
        let bytes = self.document.bytes();
        let digest = blake3::hash(&bytes).to_hex().to_string();
        self.remote.put_small(&self.name, bytes, (DIGEST, digest))
    }

    /// Removes objects.
    pub(super) fn remove(&mut self, names: Vec<String>) -> Result<(), RemoteError> {
        let began = Instant::now();
        let removed = self.remote.delete_all(names);
        self.is_unsure |= removed.is_err() || began.elapsed() >= PROMPT;
        removed
    }

    /// Says nothing any more.
    pub(super) fn end(self) {
        if self.is_unsure {
            return;
        }
        // Where it stays, it grows old.
        if let Err(error) = self.remote.delete_all(vec![self.name]) {
            let error = &error as &dyn std::error::Error;
            warn!(error, "could not say that this removal has ended");
        }
    }
}

/// A removal in a folder of this machine that is pushed to.
#[derive(Debug)]
pub struct CleaningHere<'a> {
    storage: &'a dyn Storage,
    path: PathBuf,
    document: Document,
}

impl<'a> CleaningHere<'a> {
    /// Says that something is about to go in `dir`, the folder of a cache key. Nothing is said where
    /// nobody has ever pushed to.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(storage: &'a dyn Storage, dir: &Path) -> Result<Option<Self>, StorageError> {
        let folder = dir.join(PUSHING);
        if storage.stat(&folder)?.is_none() {
            return Ok(None);
        }
        let document = Document::new();
        let mut it = Self { storage, path: folder.join(&document.name), document };
        it.say()?;
        Ok(Some(it))
    }

    /// Says it again, if it is time to.
    ///
    /// # Errors
    /// The disk's.
    pub fn say(&mut self) -> Result<(), StorageError> {
        if !self.document.is_due() {
            return Ok(());
        }
        let bytes = self.document.bytes();
        self.storage.write_atomic(&self.path, &bytes)
    }
}

impl Drop for CleaningHere<'_> {
    fn drop(&mut self) {
        // Where it stays, it grows old; it may have gone with its folder.
        self.storage.remove_all(&self.path).ok();
    }
}
