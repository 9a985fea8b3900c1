//! Gives the Parquet reader bytes of an open input, and keeps what it holds in bounds.
//!
//! Leaves out: what the pages mean, which the library decodes.
//!
//! Invariants:
//! 1. Nothing is allocated for a size that the file alone claims: a page, the values of a
//!    page and what one call loads are compared with bounds first. The library allocates what a page
//!    header says, so headers are looked at on their way to it.
//! 2. What the system refuses, and an input that changed, are kept apart from damaged bytes.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::sources::SourceError;
use crate::sources::input::PlacedInput;
use crate::sources::parquet_thrift::{Refusal, look_over_page_header};

/// Code of rows whose pages take more memory than the definition allows.
pub(super) const PAGE_TOO_LARGE: &str = "page_too_large";

/// Bytes read at once for a page header; most have fewer.
const HEADER_PIECE: usize = 512;
/// Most bytes of a page header: it may hold two values of its column as statistics.
const MOST_HEADER: u64 = 1 << 20;

/// An open input as the library reads it; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    input: Arc<PlacedInput>,
    state: Arc<Mutex<State>>,
}

/// What has been seen and what is allowed.
#[derive(Debug, Default)]
struct State {
    /// The column chunks that are read, by their bytes, with the bytes of memory that each value of a
    /// page takes beside the page.
    chunks: Vec<(Range<u64>, u64)>,
    /// Most bytes of one page with its values.
    page_bytes: u64,
    /// The largest dictionary and the largest other page of the chunk that is looked over.
    largest: (u64, u64),
    /// Bytes that the current call may still load.
    left: u64,
    trouble: Option<Trouble>,
}

/// Why the library was refused bytes.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The system refused, or the input changed.
    Input(SourceError),
    /// A page is larger than it may be.
    Page {
        /// What it takes.
        bytes: u64,
    },
    /// A page header is none.
    Header(&'static str),
    /// The rows of the call are too large to be read together.
    Call,
}

/// What a page header begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    is_dictionary: bool,
    uncompressed: u64,
    compressed: u64,
    n_values: u64,
}

impl Pages {
    pub(super) fn new(input: PlacedInput) -> Self {
        Self { input: Arc::new(input), state: Arc::default() }
    }

    /// The input.
    pub(super) fn input(&self) -> &PlacedInput {
        &self.input
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the column chunks of another row group.
    pub(super) fn begin_group(&self, chunks: Vec<(Range<u64>, u64)>, page_bytes: u64) {
        *self.state() = State { chunks, page_bytes, left: u64::MAX, ..State::default() };
    }

    /// What the largest dictionary and the largest other page take together of those whose headers
    /// were looked at since this was asked last.
    pub(super) fn take_largest(&self) -> u64 {
        let (dictionary, other) = std::mem::take(&mut self.state().largest);
        dictionary.saturating_add(other)
    }

    /// Lets the next call load this many bytes of pages.
    pub(super) fn allow(&self, bytes: u64) {
        self.state().left = bytes;
    }

    /// Why the library was refused bytes, if it was.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.state().trouble.take()
    }

    fn refuse(&self, trouble: Trouble) -> std::io::Error {
        self.state().trouble = Some(trouble);
        std::io::Error::other("refused")
    }

    fn fill(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.input.read_at(at, out).map_err(|e| self.refuse(Trouble::Input(e)))
    }

    /// Looks at the header of the page at `at`.
    fn judge(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        let Some(head) = head(bytes) else { return Ok(()) };
        let mut state = self.state();
        if state.chunks.is_empty() {
            return Ok(());
        }
        let chunk = state.chunks.iter().find(|(range, _)| range.contains(&at));
        let value_bytes = if head.is_dictionary { 16 } else { chunk.map_or(0, |chunk| chunk.1) };
        let values = head.n_values.saturating_mul(value_bytes);
        let bytes = head.uncompressed.saturating_add(head.compressed).saturating_add(values);
        let largest = &mut state.largest;
        if head.is_dictionary {
            largest.0 = largest.0.max(bytes);
        } else {
            largest.1 = largest.1.max(bytes);
        }
        let trouble = if bytes > state.page_bytes {
            Trouble::Page { bytes }
        } else if bytes > state.left {
            Trouble::Call
        } else {
            state.left -= bytes;
            return Ok(());
        };
        state.trouble = Some(trouble);
        Err(std::io::Error::other("refused"))
    }
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.input.size()
    }
}

impl ChunkReader for Pages {
    type T = HeaderReader;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(HeaderReader { pages: self.clone(), at: start, buffer: Vec::new(), used: 0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.saturating_add(length as u64);
        if end > self.input.size() {
            return Err(ParquetError::EOF("bytes behind the end of the file".to_owned()));
        }
        let (bytes, most) = (length as u64, self.state().page_bytes);
        if bytes > most {
            return Err(self.refuse(Trouble::Page { bytes }).into());
        }
        let mut bytes = vec![0; length];
        self.fill(start, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads a page header, which was looked over as a whole.
#[derive(Debug)]
pub(super) struct HeaderReader {
    pages: Pages,
    at: u64,
    buffer: Vec<u8>,
    used: usize,
}

impl HeaderReader {
    /// Reads the header, and what is read with it; nothing behind the end of the file.
    fn load(&mut self) -> std::io::Result<()> {
        let left = self.pages.input.size().saturating_sub(self.at);
        let mut wanted = HEADER_PIECE as u64;
        loop {
            let n_bytes = usize::try_from(wanted.min(left)).unwrap_or(usize::MAX);
            let n_known = self.buffer.len();
            self.buffer.resize(n_bytes, 0);
            let new = self.buffer.get_mut(n_known..).unwrap_or_default();
            self.pages.fill(self.at + n_known as u64, new)?;
            let what = match look_over_page_header(&self.buffer) {
                Err(Refusal::Torn) if wanted >= left => "it ends too early",
                Err(Refusal::Torn) if wanted >= MOST_HEADER => "it has no end in a mebibyte",
                Err(Refusal::Torn) => {
                    wanted *= 2;
                    continue;
                }
                Err(Refusal::Damaged(what)) => what,
                _ => return self.pages.judge(self.at, &self.buffer),
            };
            return Err(self.pages.refuse(Trouble::Header(what)));
        }
    }
}

impl Read for HeaderReader {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.buffer.is_empty() {
            self.load()?;
        }
        let mut rest = self.buffer.get(self.used..).unwrap_or_default();
        let n = rest.read(out)?;
        self.used += n;
        Ok(n)
    }
}

/// Reads the beginning of a page header in Thrift's compact protocol, where writers put the fields in
/// their order: type, sizes, a checksum, then the struct of this kind of page, which begins with its
/// number of values. `None` where it is not so; the library then finds out what it is.
fn head(bytes: &[u8]) -> Option<Head> {
    let mut bytes = bytes.iter().copied();
    let mut last = 0_u8;
    let mut numbers = [0_u64; 5];
    loop {
        let byte = bytes.next()?;
        let (delta, kind) = (byte >> 4, byte & 0x0f);
        let field = if delta == 0 {
            u8::try_from(varint(&mut bytes)? >> 1).ok()?
        } else {
            last.checked_add(delta)?
        };
        last = field;
        match (field, kind) {
            (1..=4, 5) => *numbers.get_mut(usize::from(field))? = varint(&mut bytes)?,
            (5 | 7 | 8, 12) => break,
            _ => return None,
        }
    }
    let n_values = match bytes.next()? {
        0x15 => varint(&mut bytes)?,
        _ => 0,
    };
    let [_, _, uncompressed, compressed, _] = numbers;
    let size = |zigzag: u64| if zigzag & 1 == 0 { zigzag >> 1 } else { 0 };
    Some(Head {
        is_dictionary: last == 7,
        uncompressed: size(uncompressed),
        compressed: size(compressed),
        n_values: size(n_values),
    })
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_page_header_is_read() {
        // Type 0, 300 bytes, 200 compressed, a checksum of -1, a data page of 77 values.
        let data = [0x15, 0, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x15, 1, 0x1c, 0x15, 0x9a, 1, 0, 0];
        let want = Head { is_dictionary: false, uncompressed: 300, compressed: 200, n_values: 77 };
        assert_eq!(head(&data), Some(want));
        // The same as a dictionary without checksum: field 7 stands four behind field 3.
        let dictionary = [0x15, 4, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x4c, 0x15, 0x9a, 1, 0, 0];
        assert_eq!(head(&dictionary), Some(Head { is_dictionary: true, ..want }));
        for torn in 0..12 {
            assert_eq!(head(&data[..torn]), None, "{torn}");
        }
    }
}
