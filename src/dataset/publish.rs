//! Puts large files in place under names made of their content.
//!
//! Invariants:
//! 1. The file is written beside, synced, renamed, and both directories are synced: under its name
//!    there is all of it or nothing.
//! 2. A file that is there is left alone: its name says that it holds the same bytes.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::error::Result;
use super::home::Workplace;
use crate::storage::{AppendFile, StorageError};

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

/// Puts what `fill` writes in place at `path`, unless something is there. `what` names the temporary
/// file, which no other thread may be using.
pub(super) fn publish(place: &Workplace, what: &str, path: &Path, fill: Fill<'_>) -> Result<()> {
    let storage = place.storage();
    if storage.stat(path)?.is_none() {
        let tmp = place.temporary(what);
        storage.remove_all(&tmp)?;
        let file = Appending { file: storage.create(&tmp)?, failed: None };
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
        if let Err(error) = fill(&mut out).and_then(|()| out.flush()) {
            let failed = out.into_parts().0.failed;
            return Err(failed.unwrap_or_else(|| StorageError::new("format", path, error)).into());
        }
        let mut file = out.into_parts().0.file;
        file.sync()?;
        drop(file);
        storage.rename(&tmp, path)?;
    }
    // Also where the file was there: the run that renamed it may have been cut off before this.
    storage.sync_dir(crate::storage::parent(path))?;
    Ok(storage.sync_dir(&place.home().work())?)
}

/// An [`AppendFile`] as a [`Write`], keeping the error that `io::Error` would lose.
#[derive(Debug)]
struct Appending {
    file: Box<dyn AppendFile>,
    failed: Option<StorageError>,
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.append(bytes) {
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
