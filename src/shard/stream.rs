//! Reads a file from its beginning to its end, a piece at a time.

use std::io;
use std::path::{Path, PathBuf};

use crate::storage::{ReadFile, Result, Storage, StorageError};

/// Bytes asked of the system at once, at least.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

/// A file that is read forwards.
#[derive(Debug)]
pub(super) struct Stream {
    path: PathBuf,
    file: Box<dyn ReadFile>,
    /// Offset in the file behind what is buffered.
    at: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    taken: usize,
}

impl Stream {
    /// Opens the file at `path`.
    pub(super) fn open(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let file = storage.open(path)?;
        Ok(Self { path: path.to_owned(), file, at: 0, buffer: Vec::new(), taken: 0 })
    }

    /// The next `n` bytes; a file that ends before is an error.
    pub(super) fn take(&mut self, n: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.taken < n {
            self.fill(n)?;
        }
        if self.buffer.len() - self.taken < n {
            return Err(self.ended());
        }
        let piece = self.buffer.get(self.taken..self.taken + n).unwrap_or_default();
        self.taken += n;
        Ok(piece)
    }

    fn ended(&self) -> StorageError {
        let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before");
        StorageError::new("read", &self.path, ended)
    }

    /// The next `n` bytes, in memory of their own that is the only copy of them.
    pub(super) fn take_vec(&mut self, n: usize) -> Result<Vec<u8>> {
        if self.buffer.len() - self.taken >= n || n <= CHUNK_BYTES {
            return Ok(self.take(n)?.to_vec());
        }
        let mut bytes = Vec::new();
        if n as u64 > self.left() {
            return Err(self.ended());
        }
        bytes.reserve_exact(n);
        bytes.extend(self.buffer.drain(..).skip(self.taken));
        let have = bytes.len();
        bytes.resize(n, 0);
        if let Some(room) = bytes.get_mut(have..) {
            self.file.read_at(room, self.at)?;
        }
        self.at += (n - have) as u64;
        self.taken = 0;
        Ok(bytes)
    }

    /// Gives the next `n` bytes a piece at a time.
    pub(super) fn pieces<E: From<StorageError>>(
        &mut self,
        n: usize,
        mut act: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut left = n;
        while left > 0 {
            let now = left.min(CHUNK_BYTES);
            act(self.take(now)?)?;
            left -= now;
        }
        Ok(())
    }

    /// Bytes that were not taken yet.
    pub(super) fn left(&self) -> u64 {
        self.file.len() - self.at + (self.buffer.len() - self.taken) as u64
    }

    /// The next number of a file of them.
    pub(super) fn take_i64(&mut self) -> Result<i64> {
        let bytes = self.take(8)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)))
    }

    /// The next number of a file of them.
    pub(super) fn take_i32(&mut self) -> Result<i32> {
        let bytes = self.take(4)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes)))
    }

    /// Buffers at least `n` bytes, unless the file ends.
    fn fill(&mut self, n: usize) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let have = self.buffer.len();
        let left = usize::try_from(self.file.len() - self.at).unwrap_or(usize::MAX);
        let more = (n - have).max(CHUNK_BYTES).min(left);
        self.buffer.resize(have + more, 0);
        if let Some(room) = self.buffer.get_mut(have..) {
            self.file.read_at(room, self.at)?;
        }
        self.at += more as u64;
        Ok(())
    }
}
