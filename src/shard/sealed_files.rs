//! What a sealed shard's sentinel covers: its files, by name, size and digest.
//!
//! Leaves out: reading them. Whoever hands them on compares the bytes with the digests as they pass.
//!
//! Invariant: the digests are those of the `B3SUMS` that the sentinel names.

use std::path::{Path, PathBuf};

use super::layout;
use super::read_error::ReadError;
use super::reader::read_sums;
use crate::storage::Storage;

/// A file of a sealed shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its BLAKE3, 64 hex digits.
    pub b3: String,
}

/// The files of a sealed shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFiles {
    path: PathBuf,
    id: String,
    files: Vec<SealedFile>,
    sentinel: SealedFile,
}

impl SealedFiles {
    /// Reads the sentinel and the sums of the shard in the folder `path`, and the sizes of its files.
    ///
    /// # Errors
    /// The folder is no sealed shard, a file that is covered is missing, or the sums are damaged.
    pub fn read(storage: &dyn Storage, path: &Path) -> Result<Self, ReadError> {
        let (sentinel, sums) = read_sums(storage, path)?;
        let id = sentinel.id().to_owned();
        let file = |name: &str, b3: String| {
            let path = path.join(name);
            let Some(entry) = storage.stat(&path)? else { return Err(ReadError::Missing { path }) };
            Ok(SealedFile { name: name.to_owned(), bytes: entry.len, b3 })
        };
        let mut files = sums
            .into_iter()
            .map(|(name, b3)| file(&name, b3))
            .collect::<Result<Vec<_>, ReadError>>()?;
        files.push(file(layout::SUMS, sentinel.sums_b3.clone())?);
        let digest = blake3::hash(&sentinel.to_bytes()).to_hex().to_string();
        let sentinel = file(layout::COMPLETE, digest)?;
        Ok(Self { path: path.to_owned(), id, files, sentinel })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The shard's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Everything that the sentinel covers, `B3SUMS` last.
    #[must_use]
    pub fn files(&self) -> &[SealedFile] {
        &self.files
    }

    /// The sentinel itself.
    #[must_use]
    pub fn sentinel(&self) -> &SealedFile {
        &self.sentinel
    }
}
