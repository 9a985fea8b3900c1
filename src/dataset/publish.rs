//! Puts large files in place under names made of their content.
//!
//! Invariants:
//! 1. The file is written beside, synced, renamed, and both directories are synced: under its name
//!    there is all of it or nothing.
//! 2. A file that is there and holds the bytes it is named by is left alone.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::error::{DatasetError, Result};
use super::home::Workplace;
use crate::storage::{AppendFile, ReadFile, Storage, StorageError, parent};

/// Bytes that gather before they are appended or hashed.
const BUFFER_BYTES: usize = 64 << 10;

/// Writes a file's content, the same each time it is called.
pub(super) type Fill<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// The BLAKE3 of what `fill` writes.
pub(super) fn digest(path: &Path, fill: Fill<'_>) -> Result<blake3::Hash> {
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, blake3::Hasher::new());
    fill(&mut out).and_then(|()| out.flush()).map_err(|e| StorageError::new("format", path, e))?;
    Ok(out.get_ref().finalize())
}

/// The first 16 hex digits of a digest, as names carry them.
pub(super) fn digits(digest: &blake3::Hash) -> String {
    digest.to_hex().chars().take(16).collect()
}

/// Puts what `fill` writes, bytes of digest `b3`, in place at `path`, unless they are there. `what`
/// names the temporary file, which no other thread may be using.
pub(super) fn publish(
    place: &Workplace,
    what: &str,
    path: &Path,
    b3: &blake3::Hash,
    fill: Fill<'_>,
) -> Result<()> {
    let storage = place.storage();
    if storage.stat(path)?.is_some() && hash_file(&**storage, path)? == *b3 {
        // The run that renamed it may have been cut off before this.
        return Ok(storage.sync_dir(parent(path))?);
    }
    let mut draft = Draft::create(place, what)?;
    if let Err(error) = fill(&mut draft) {
        let failed = draft.failed.take();
        return Err(failed.unwrap_or_else(|| StorageError::new("format", path, error).into()));
    }
    draft.publish(path)
}

/// The BLAKE3 of a file, read a piece at a time.
pub(super) fn hash_file(storage: &dyn Storage, path: &Path) -> Result<blake3::Hash> {
    let file: Box<dyn ReadFile> = storage.open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < file.len() {
        let n = usize::try_from(file.len() - at).unwrap_or(usize::MAX).min(piece.len());
        piece.truncate(n);
        file.read_at(&mut piece, at)?;
        hasher.update(&piece);
        at += n as u64;
    }
    Ok(hasher.finalize())
}

/// A file that has no name yet.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    place: &'a Workplace,
    tmp: PathBuf,
    file: Box<dyn AppendFile>,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    /// The error that an `io::Error` could not carry.
    failed: Option<DatasetError>,
}

impl<'a> Draft<'a> {
    /// Begins a file. `what` tells it from those of other threads.
    pub(super) fn create(place: &'a Workplace, what: &str) -> Result<Self> {
        let tmp = place.temporary(what);
        place.storage().remove_all(&tmp)?;
        let file = place.storage().create(&tmp)?;
        let (hasher, buffer) = (blake3::Hasher::new(), Vec::with_capacity(BUFFER_BYTES));
        Ok(Self { place, tmp, file, hasher, buffer, failed: None })
    }

    /// Appends to it.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.drain() } else { Ok(()) }
    }

    /// The BLAKE3 of what was appended.
    pub(super) fn digest(&mut self) -> Result<blake3::Hash> {
        self.drain()?;
        Ok(self.hasher.finalize())
    }

    /// Puts it in place at `path`.
    pub(super) fn publish(mut self, path: &Path) -> Result<()> {
        self.drain()?;
        self.file.sync()?;
        let storage = self.place.storage();
        storage.rename(&self.tmp, path)?;
        storage.sync_dir(parent(path))?;
        Ok(storage.sync_dir(parent(&self.tmp))?)
    }

    fn drain(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.hasher.update(&self.buffer);
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.put(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.failed = Some(error);
                Err(io::Error::other("the disk failed"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
