//! Inputs in object stores: how one is read from its start to its end, and here and there.
//!
//! Leaves out: what an input is (`input`), and which there are (`object_listing`).
//!
//! Invariants:
//! 1. All bytes are of the state that was listed: its `ETag` (or size and time, where a store has
//!    none) is compared with each answer, and another gives [`SourceError::Changed`].
//! 2. A reader holds at most [`READER_BYTES`], what was asked for and has not come, or not been read,
//!    included.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::SourceError;
use super::ahead::{AHEAD_BYTES, FirstBytes};
use crate::inputs::Input;
use crate::remote::{Object, Pending, Remote, RemoteError, RemoteErrorKind};

/// Bytes asked for first, alone: much of what is read is smaller. A block, as it may be kept as one.
const FIRST_BYTES: u64 = BLOCK_BYTES;
/// Bytes of each request after that.
const PIECE_BYTES: u64 = 2 << 20;
/// Requests that go on while a piece is read.
const AHEAD: usize = 4;
/// Bytes that are asked for and kept together of what is read here and there.
const BLOCK_BYTES: u64 = 512 << 10;
/// Such blocks that are kept.
const BLOCKS: usize = 32;
/// Blocks that are asked for at once where the one before was read too.
const RUN: u64 = 4;
/// Most bytes that one reader of an object holds beside what it hands out.
pub(crate) const READER_BYTES: u64 = (BLOCKS as u64 + 2 * RUN) * BLOCK_BYTES + AHEAD_BYTES;

/// An object as an input.
pub(super) fn as_input(path: String, object: &Object) -> Input {
    let changed = object.etag.as_deref().map(time_of);
    Input { path, size: object.size, modified: object.modified, changed }
}

/// A time that stands for an `ETag`, between 1970 and 2006: it is another if the `ETag` is.
fn time_of(etag: &str) -> SystemTime {
    let hash = blake3::hash(etag.trim_start_matches("W/").trim_matches('"').as_bytes());
    let bytes = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::from_le_bytes(bytes) >> 4)
}

/// What is asked for first of the bytes `range`.
pub(super) fn first_bytes(range: Range<u64>) -> Range<u64> {
    range.start..range.end.min(range.start + FIRST_BYTES)
}

/// Refuses an object that is not what was listed.
fn expect_as_listed(input: &Input, object: &Object) -> Result<(), SourceError> {
    let found = as_input(input.path.clone(), object);
    let is_same = input.size == found.size
        && match (input.changed, found.changed) {
            (Some(listed), Some(found)) => listed == found,
            _ => input.modified == found.modified,
        };
    if is_same { Ok(()) } else { Err(SourceError::Changed { path: input.path.clone() }) }
}

/// What an error means for an input that was listed.
fn of_listed(input: &Input, error: RemoteError) -> SourceError {
    match error.kind() {
        RemoteErrorKind::NotFound | RemoteErrorKind::Changed => {
            SourceError::Changed { path: input.path.clone() }
        }
        // No fault of the store's: the input is not whole, or does not come whole.
        RemoteErrorKind::Damaged => {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, error);
            SourceError::Io { path: input.path.clone(), source }
        }
        _ => SourceError::Remote(error),
    }
}

/// An object that is read in order.
#[derive(Debug)]
pub(super) struct ObjectStream {
    remote: Remote,
    input: Input,
    object: Object,
    /// The piece that is being read, and those that were asked for after it.
    piece: Bytes,
    ahead: VecDeque<Pending<(Object, Bytes)>>,
    /// The bytes that are still to be asked for.
    left: Range<u64>,
}

impl ObjectStream {
    /// Opens `input` for its bytes `range`, whose first ones are asked for now, if they were not before.
    pub(super) fn open(
        remote: &Remote,
        input: &Input,
        range: Range<u64>,
        asked: Option<FirstBytes>,
    ) -> Result<Self, SourceError> {
        let first = first_bytes(range.clone());
        let of_input = |e| of_listed(input, e);
        let (object, piece) = if first.is_empty() {
            (remote.head(&input.path).map_err(of_input)?, Bytes::new())
        } else {
            let now = || remote.begin_read(&input.path, first.clone(), None);
            let pending = asked.map_or_else(now, Ok);
            pending.and_then(Pending::wait).map_err(|e| match e.kind() {
                // What is not there any more of it is behind its end now.
                RemoteErrorKind::Other => remote.head(&input.path).map_or_else(of_input, |now| {
                    expect_as_listed(input, &now).err().unwrap_or(SourceError::Remote(e))
                }),
                _ => of_input(e),
            })?
        };
        expect_as_listed(input, &object)?;
        let left = first.end..range.end;
        let (remote, input) = (remote.clone(), input.clone());
        Ok(Self { remote, input, object, piece, ahead: VecDeque::new(), left })
    }

    /// Appends at least one and at most `most` of the next bytes; 0 at the end.
    pub(super) fn append_to(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize, SourceError> {
        if self.piece.is_empty() {
            self.ask()?;
            let Some(next) = self.ahead.pop_front() else { return Ok(0) };
            let (_, piece) = next.wait().map_err(|e| of_listed(&self.input, e))?;
            self.piece = piece;
            self.ask()?;
        }
        let n = self.piece.len().min(most);
        out.extend_from_slice(&self.piece.split_to(n));
        Ok(n)
    }

    /// Asks for what comes next, as far ahead as may be.
    fn ask(&mut self) -> Result<(), SourceError> {
        while self.ahead.len() < AHEAD && !self.left.is_empty() {
            let next = self.left.start..self.left.end.min(self.left.start + PIECE_BYTES);
            self.left.start = next.end;
            let of = Some(self.object.clone());
            let pending = self.remote.begin_read(&self.input.path, next, of);
            self.ahead.push_back(pending.map_err(|e| of_listed(&self.input, e))?);
        }
        Ok(())
    }

    /// Goes on with the bytes `range`.
    pub(super) fn seek(&mut self, range: Range<u64>) {
        self.piece = Bytes::new();
        self.ahead.clear();
        self.left = range;
    }

    /// The same object, to be read here and there.
    pub(super) fn into_blocks(self) -> ObjectBlocks {
        let Self { remote, input, object, .. } = self;
        ObjectBlocks { remote, input, object, kept: Mutex::default() }
    }
}

/// An object that is read here and there.
#[derive(Debug)]
pub(super) struct ObjectBlocks {
    remote: Remote,
    input: Input,
    object: Object,
    /// Blocks by number; the one that was used last stands last.
    kept: Mutex<VecDeque<(u64, Bytes)>>,
}

impl ObjectBlocks {
    /// Opens `input`, of which at most the first block was asked for.
    pub(super) fn open(
        remote: &Remote,
        input: &Input,
        asked: Option<FirstBytes>,
    ) -> Result<Self, SourceError> {
        let of_input = |e| of_listed(input, e);
        let mut kept = VecDeque::new();
        let object = if let Some(asked) = asked {
            let (object, block) = asked.wait().map_err(of_input)?;
            kept.push_back((0, block));
            object
        } else {
            remote.head(&input.path).map_err(of_input)?
        };
        expect_as_listed(input, &object)?;
        let (remote, input) = (remote.clone(), input.clone());
        Ok(Self { remote, input, object, kept: Mutex::new(kept) })
    }

    /// Fills `out` with the bytes from `at` on, which must all be there.
    pub(super) fn read_at(&self, at: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let changed = || SourceError::Changed { path: self.input.path.clone() };
        let end = at.checked_add(out.len() as u64).ok_or_else(changed)?;
        if end > self.object.size {
            return Err(changed());
        }
        let (mut at, mut out) = (at, out);
        while !out.is_empty() {
            let number = at / BLOCK_BYTES;
            let block = self.block(number, end)?;
            let skip = usize::try_from(at - number * BLOCK_BYTES).unwrap_or(usize::MAX);
            let from = block.get(skip..).unwrap_or_default();
            let n = from.len().min(out.len());
            let (Some(from), true) = (from.get(..n), n > 0) else { return Err(changed()) };
            let (to, rest) = out.split_at_mut(n);
            to.copy_from_slice(from);
            (at, out) = (at + n as u64, rest);
        }
        Ok(())
    }

    /// A block, read with those behind it up to `end` where it is not kept.
    fn block(&self, number: u64, end: u64) -> Result<Bytes, SourceError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.iter().position(|(n, _)| *n == number)
            && let Some(found) = kept.remove(place)
        {
            let bytes = found.1.clone();
            kept.push_back(found);
            return Ok(bytes);
        }
        let is_run = number > 0 && kept.iter().any(|(n, _)| *n + 1 == number);
        let wanted = if is_run { RUN } else { end.div_ceil(BLOCK_BYTES).saturating_sub(number) };
        let last = (number + wanted.clamp(1, RUN)) * BLOCK_BYTES;
        let range = number * BLOCK_BYTES..last.min(self.object.size);
        let pending = self.remote.begin_read(&self.input.path, range, Some(self.object.clone()));
        let read = pending.and_then(Pending::wait).map_err(|e| of_listed(&self.input, e))?;
        let step = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        // Copied, so that a block that is kept keeps nothing else.
        let blocks = read.1.chunks(step).map(Bytes::copy_from_slice);
        let mut first = Bytes::new();
        for (n, block) in (number..).zip(blocks) {
            kept.retain(|(known, _)| *known != n);
            if n == number {
                first = block.clone();
            }
            kept.push_back((n, block));
        }
        while kept.len() > BLOCKS {
            kept.pop_front();
        }
        Ok(first)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test puts files where a store finds them")]
mod tests {
    use super::*;
    use crate::remote::RemoteOptions;

    /// A folder as a store, and an input of `n` bytes in it.
    fn place(n: usize) -> (tempfile::TempDir, Remote, Input, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let bytes: Vec<u8> = (0..n).map(|i| u8::try_from(i % 251).unwrap()).collect();
        std::fs::write(dir.path().join("a"), &bytes).unwrap();
        let input = as_input("a".to_owned(), &remote.head("a").unwrap());
        (dir, remote, input, bytes)
    }

    #[test]
    fn a_stream_gives_the_bytes_of_its_range_whatever_their_number() {
        let (_dir, remote, input, bytes) = place(12_000_007);
        for range in [0..12_000_007, 5..5, 7..8, 1 << 19..1 << 20, 11_999_999..12_000_007] {
            let mut stream = ObjectStream::open(&remote, &input, range.clone(), None).unwrap();
            let mut got = Vec::new();
            while stream.append_to(&mut got, 1 << 20).unwrap() > 0 {}
            let of = |at: u64| usize::try_from(at).unwrap();
            assert!(got == bytes[of(range.start)..of(range.end)], "{range:?}");
        }
        let mut stream = ObjectStream::open(&remote, &input, 0..input.size, None).unwrap();
        stream.seek(100..103);
        let mut got = Vec::new();
        while stream.append_to(&mut got, 1 << 20).unwrap() > 0 {}
        assert_eq!(got, bytes[100..103]);
    }

    #[test]
    fn blocks_give_the_bytes_of_any_place() {
        let (_dir, remote, input, bytes) = place(20_000_003);
        let blocks = ObjectBlocks::open(&remote, &input, None).unwrap();
        let ends = [0, 10, 524_287, 524_288, 3_000_000, 19_999_999, 1_000_000, 0];
        for (at, n) in ends.into_iter().zip([1, 100, 2, 1, 9_000_000, 4, 524_288, 16_000_000]) {
            let mut out = vec![0; n];
            blocks.read_at(at as u64, &mut out).unwrap();
            assert!(out == bytes[at..at + n], "{at}, {n}");
        }
        assert!(blocks.kept.lock().unwrap().len() <= BLOCKS);
        assert!(blocks.read_at(20_000_000, &mut [0; 4]).is_err());
    }

    #[test]
    fn what_changed_since_it_was_listed_is_not_read() {
        let (dir, remote, input, bytes) = place(3_000_000);
        let mut stream = ObjectStream::open(&remote, &input, 0..input.size, None).unwrap();
        let blocks = ObjectBlocks::open(&remote, &input, None).unwrap();
        std::fs::write(dir.path().join("a"), &bytes[1..]).unwrap();
        let mut got = Vec::new();
        let read = std::iter::from_fn(|| match stream.append_to(&mut got, 1 << 20) {
            Ok(0) => None,
            read => Some(read),
        });
        let error = read.last().unwrap().unwrap_err();
        assert!(matches!(error, SourceError::Changed { .. }), "{error}");
        let error = blocks.read_at(0, &mut [0; 4]).unwrap_err();
        assert!(matches!(error, SourceError::Changed { .. }), "{error}");
        let error = ObjectStream::open(&remote, &input, 0..input.size, None).unwrap_err();
        assert!(matches!(error, SourceError::Changed { .. }), "{error}");
    }
}
