//! Cuts the bytes of a JSON Lines input into lines.
//!
//! Leaves out: what a line means (`jsonl`).
//!
//! Invariants:
//! 1. Lines and their offsets do not depend on where reading began, as long as it began at the start
//!    of a line: a byte order mark counts only at byte 0.
//! 2. A line that is longer than asked for is passed over without being held.

use std::ops::Range;

use super::SourceError;
use super::content::Content;

/// Bytes that are read at once.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A line that is not blank.
    Line,
    /// A line that is too long.
    TooLong,
    /// The end.
    End,
}

/// The lines of an input from some line on. Blank ones are left out.
#[derive(Debug)]
pub(super) struct Lines {
    content: Content,
    most_bytes: usize,
    buffer: Vec<u8>,
    /// Where in it the next line begins.
    at: usize,
    /// Where the line lies in the buffer, and its offset in the input.
    line: Range<usize>,
    start: u64,
}

impl Lines {
    /// `content` stands at the start of a line.
    pub(super) fn new(content: Content, most_bytes: u64) -> Self {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        Self { content, most_bytes, buffer: Vec::new(), at: 0, line: 0..0, start: 0 }
    }

    /// Goes to the next line.
    ///
    /// # Errors
    /// The input cannot be read; [`Lines::start`] then says which line could not.
    pub(super) fn next(&mut self) -> Result<Next, SourceError> {
        loop {
            let found = self.next_of_any_kind()?;
            let is_blank = self.line().iter().all(|b| matches!(b, b' ' | b'\t' | b'\r'));
            if found != Next::Line || !is_blank {
                return Ok(found);
            }
        }
    }

    fn next_of_any_kind(&mut self) -> Result<Next, SourceError> {
        self.line = 0..0;
        self.start = self.content.position() - (self.buffer.len() - self.at) as u64;
        let mut n_seen = 0;
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            let found = rest.get(n_seen..).and_then(|new| memchr::memchr(b'\n', new));
            let end = if let Some(at) = found {
                n_seen + at
            } else {
                n_seen = rest.len();
                if n_seen > self.most_bytes.saturating_add(1) {
                    return self.pass_over();
                }
                if self.fill()? > 0 {
                    continue;
                }
                n_seen
            };
            let is_end = found.is_none();
            let line = self.at..self.at + end;
            self.at = line.end + usize::from(!is_end);
            if is_end && line.is_empty() {
                return Ok(Next::End);
            }
            self.line = line;
            if self.line().ends_with(b"\r") {
                self.line.end -= 1;
            }
            let is_long = self.line.len() > self.most_bytes;
            return Ok(if is_long { Next::TooLong } else { Next::Line });
        }
    }

    /// The line's bytes without its end.
    pub(super) fn line(&self) -> &[u8] {
        self.buffer.get(self.line.clone()).unwrap_or_default()
    }

    /// Offset of the line's first byte in what the input decodes to.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind the line and its end.
    pub(super) fn end(&self) -> u64 {
        self.content.position() - (self.buffer.len() - self.at) as u64
    }

    /// The digest of the input, `None` if reading began behind its first byte.
    pub(super) fn digest(self) -> Result<blake3::Hash, SourceError> {
        self.content.digest()
    }

    /// Reads more behind what is not yet a line. Returns how many bytes.
    fn fill(&mut self) -> Result<usize, SourceError> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let is_start = self.content.position() == 0;
        let n_read = self.content.append_to(&mut self.buffer, CHUNK_BYTES)?;
        if is_start && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
            self.start = 3;
        }
        Ok(n_read)
    }

    /// Goes behind the end of a line without keeping it.
    fn pass_over(&mut self) -> Result<Next, SourceError> {
        loop {
            self.buffer.clear();
            self.at = 0;
            if self.content.append_to(&mut self.buffer, CHUNK_BYTES)? == 0 {
                return Ok(Next::TooLong);
            }
            if let Some(at) = memchr::memchr(b'\n', &self.buffer) {
                self.at = at + 1;
                return Ok(Next::TooLong);
            }
        }
    }
}
