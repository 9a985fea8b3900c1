//! Objects that are read by ranges, mostly from one end to the other: what comes next is asked for ahead.
//!
//! Invariants:
//! 1. A file that is open holds at most [`MAX_AHEAD`] bytes in memory for each of its requests, or as
//!    many as one call asks for.
//! 2. An object that is replaced while it is read is an error, never a mixture.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta};
use tokio::task::JoinHandle;

use super::storage::{RemoteStorage, of_remote};
use super::{RemoteError, RemoteErrorKind};
use crate::storage::{ReadFile, Result, StorageError};

/// The fewest bytes that are asked for at once, and the most.
const MIN_AHEAD: u64 = 64 << 10;
const MAX_AHEAD: u64 = 2 << 20;

/// Requests that are on their way while an object is read from one end to the other.
const REQUESTS_AHEAD: usize = 3;

/// An object that is read in ranges.
#[derive(Debug)]
pub(super) struct RemoteFile {
    place: RemoteStorage,
    path: PathBuf,
    relative: String,
    meta: ObjectMeta,
    ahead: Mutex<Ahead>,
}

/// What was read ahead of an object.
#[derive(Debug, Default)]
struct Ahead {
    start: u64,
    bytes: Bytes,
    /// How much is asked for next; grows while the object is read from one end to the other.
    step: u64,
    /// What is on its way, in order and without a gap.
    coming: VecDeque<Coming>,
}

/// A range that was asked for.
#[derive(Debug)]
struct Coming {
    range: Range<u64>,
    answer: JoinHandle<object_store::Result<Bytes>>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

impl RemoteFile {
    /// The object `relative` to `place`, whose path is `path`.
    pub(super) fn new(
        place: RemoteStorage,
        path: PathBuf,
        relative: String,
        meta: ObjectMeta,
    ) -> Self {
        Self { place, path, relative, meta, ahead: Mutex::default() }
    }

    /// Asks for a range.
    fn ask(&self, range: Range<u64>) -> Coming {
        let (remote, location) = (self.place.remote.clone(), self.meta.location.clone());
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.meta.e_tag.clone(),
            ..GetOptions::default()
        };
        let answer = self
            .place
            .runtime
            .spawn(async move { remote.store().get_opts(&location, options).await?.bytes().await });
        Coming { range, answer }
    }

    fn answer(&self, mut coming: Coming) -> Result<Bytes> {
        let remote = &self.place.remote;
        let range = coming.range.clone();
        let ended = self.place.wait(&mut coming.answer);
        let lost = |e| StorageError::new("read", &self.path, io::Error::other(e));
        let got = ended.map_err(lost)?;
        let bytes = got.map_err(|e| self.place.error("read", &self.path, &self.relative, &e))?;
        if bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let said = format!("{} bytes of {}", bytes.len(), range.end - range.start);
        let (url, kind) = (remote.show(&self.relative), RemoteErrorKind::Damaged);
        Err(of_remote("read", &self.path, RemoteError::of("read", url, kind, Some(said))))
    }

    /// Lets `ahead` hold what stands from `offset` to `end`, or nothing where that fails.
    fn fetch(&self, ahead: &mut Ahead, offset: u64, end: u64) -> Result<()> {
        let Ahead { start, bytes, step, mut coming } = std::mem::take(ahead);
        let held_end = start + bytes.len() as u64;
        let goes_on = !bytes.is_empty() && (start..=held_end).contains(&offset);
        let (mut bytes, step) = if goes_on {
            let from = usize::try_from(offset - start).unwrap_or(usize::MAX);
            (bytes.slice(from.min(bytes.len())..), step.saturating_mul(2))
        } else {
            coming.clear();
            (Bytes::new(), 0)
        };
        let step = step.clamp(MIN_AHEAD, MAX_AHEAD);
        // Where in the object what is asked for next begins.
        let mut next = coming.back().map_or(offset + bytes.len() as u64, |it| it.range.end);
        let mut ask = |coming: &mut VecDeque<Coming>, at_least: u64| {
            let to = at_least.max(next.saturating_add(step)).min(self.meta.size);
            let is_more = next < to;
            if is_more {
                coming.push_back(self.ask(next..to));
                next = to;
            }
            is_more
        };
        while offset + (bytes.len() as u64) < end {
            if step == MAX_AHEAD {
                // Beside the one that is waited for now.
                while coming.len() <= REQUESTS_AHEAD && ask(&mut coming, 0) {}
            } else if coming.is_empty() {
                ask(&mut coming, end);
            }
            let Some(first) = coming.pop_front() else { break };
            let more = self.answer(first)?;
            bytes = if bytes.is_empty() { more } else { [bytes, more].concat().into() };
        }
        *ahead = Ahead { start: offset, bytes, step, coming };
        Ok(())
    }
}

impl ReadFile for RemoteFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let wanted = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.meta.size);
        let Some(end) = wanted else {
            let source = io::ErrorKind::UnexpectedEof.into();
            return Err(StorageError::new("read", &self.path, source));
        };
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let held = ahead.start..ahead.start + ahead.bytes.len() as u64;
        if offset < held.start || end > held.end {
            self.fetch(&mut ahead, offset, end)?;
        }
        let from = usize::try_from(offset - ahead.start).unwrap_or(usize::MAX);
        let piece = ahead.bytes.get(from..).and_then(|bytes| bytes.get(..buf.len()));
        let missing = || StorageError::new("read", &self.path, io::ErrorKind::UnexpectedEof.into());
        buf.copy_from_slice(piece.ok_or_else(missing)?);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.meta.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::{BlockCacheOptions, Remote, RemoteOptions};
    use crate::storage::{Local, Storage};

    #[test]
    fn however_an_object_is_read_its_bytes_come() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..(11_u32 << 20) + 123)
            .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
            .collect();
        Local.write_atomic(&dir.path().join("x"), &bytes).unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let place = RemoteStorage::for_rows(remote, BlockCacheOptions::default()).unwrap();
        let read = |file: &dyn ReadFile, offset: usize, n: usize| {
            let mut piece = vec![0; n];
            file.read_at(&mut piece, offset as u64).unwrap();
            assert!(piece == bytes[offset..offset + n], "{n} bytes from {offset} on");
        };
        for n in [1 << 20, 100_003, 5 << 20, 69_632] {
            let file = place.open(&place.root().join("x")).unwrap();
            for offset in (0..bytes.len()).step_by(n) {
                read(&*file, offset, n.min(bytes.len() - offset));
            }
        }
        let file = place.open(&place.root().join("x")).unwrap();
        for (offset, n) in [(4 << 20, 9), (0, 3 << 20), ((3 << 20) - 5, 7 << 20), (17, 0), (16, 1)]
        {
            read(&*file, offset, n);
        }
        let end = bytes.len() as u64;
        assert!(file.read_at(&mut [0; 2], end - 1).is_err());
        read(&*file, bytes.len() - 1, 1);
    }
}
