//! Cuts the bytes of a CSV input into records and fields.
//!
//! Leaves out: what fields mean (`csv`), and where inputs are cut (`text_cuts`).
//!
//! Invariants:
//! 1. Records and their offsets do not depend on where reading began, as long as it began at the
//!    start of a record: a byte order mark counts only at byte 0 of the file.
//! 2. Memory is bounded by the record size and number of fields that are asked for, also where a
//!    quote is never closed.
//! 3. A quote that the input (or the range) ends within is an error.

use std::ops::Range;

use csv_core::ReadRecordResult::{End, InputEmpty, OutputEndsFull, OutputFull, Record};

use super::SourceError;
use super::content::Content;

/// Bytes that are read at once.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// How fields are set apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    /// `None`: a quote is a character like any other.
    pub(super) quote: Option<u8>,
}

impl Dialect {
    /// A parser at the start of a record.
    pub(super) fn reader(self) -> csv_core::Reader {
        let mut builder = csv_core::ReaderBuilder::new();
        builder.delimiter(self.delimiter).quoting(self.quote.is_some());
        let mut reader = builder.quote(self.quote.unwrap_or(b'"')).build();
        // An empty line is no record; after it the reader no longer looks for a byte order mark.
        reader.read_record(b"\n", &mut [0], &mut [0]);
        reader
    }
}

/// Why there is no next record.
#[derive(Debug)]
pub(super) enum Flaw {
    /// The input cannot be read.
    Input(SourceError),
    /// The record at this offset has more bytes than are allowed.
    TooLarge(u64),
    /// It has more fields than are allowed.
    TooManyFields(u64),
    /// A quote within it is not closed before the end.
    Unclosed(u64),
}

impl From<SourceError> for Flaw {
    fn from(e: SourceError) -> Self {
        Self::Input(e)
    }
}

/// Bytes of an input, some at a time, without a byte order mark at the start of the file.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) open: Content,
    buffer: Vec<u8>,
    at: usize,
}

impl Stream {
    /// `open` stands at the first of them.
    pub(super) fn new(open: Content) -> Self {
        Self { open, buffer: Vec::new(), at: 0 }
    }

    /// What has been read and not yet passed.
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.open.position() - (self.buffer.len() - self.at) as u64
    }

    /// The next bytes, empty only at the end.
    pub(super) fn fill(&mut self) -> Result<&[u8], SourceError> {
        if self.at == self.buffer.len() {
            let is_start = self.open.position() == 0;
            self.buffer.clear();
            self.at = 0;
            self.open.append_to(&mut self.buffer, CHUNK_BYTES)?;
            if is_start && self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.at = 3;
            }
        }
        Ok(self.rest())
    }

    /// Passes so many of them.
    pub(super) fn skip(&mut self, n_bytes: usize) {
        self.at += n_bytes;
    }
}

/// The records of an input from some record on.
#[derive(Debug)]
pub(super) struct Records {
    dialect: Dialect,
    core: csv_core::Reader,
    stream: Stream,
    most_bytes: usize,
    most_fields: usize,
    /// The fields of the record, one after another, and what was needed for longer ones.
    text: Vec<u8>,
    n_text: usize,
    ends: Vec<usize>,
    n_fields: usize,
    start: u64,
    /// Whether the record was given up before its end.
    is_open: bool,
    /// Where in the stream's buffer the record stands, if it is there as one line: then `text` has
    /// nothing, and a delimiter stands at each of `ends` but the last.
    line: Option<Range<usize>>,
}

impl Records {
    /// `open` stands at the start of a record, or among the line ends before it.
    pub(super) fn new(dialect: Dialect, open: Content) -> Self {
        Self {
            dialect,
            core: dialect.reader(),
            stream: Stream::new(open),
            most_bytes: usize::MAX,
            most_fields: usize::MAX,
            text: Vec::new(),
            n_text: 0,
            ends: Vec::new(),
            n_fields: 0,
            start: 0,
            is_open: false,
            line: None,
        }
    }

    /// From here on, a record with more bytes in its fields, or more fields, is a flaw.
    pub(super) fn limit(&mut self, most_bytes: u64, most_fields: usize) {
        self.most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        self.most_fields = most_fields;
    }

    /// Reads the next record; `false` at the end. Empty lines are not records. After a flaw in a
    /// record, the next one is that behind it.
    pub(super) fn next(&mut self) -> Result<bool, Flaw> {
        if self.is_open {
            self.pass_over()?;
        }
        self.line = None;
        self.start = self.stream.offset();
        loop {
            let bytes = self.stream.fill()?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let n_ends = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            let is_all = n_ends == bytes.len();
            self.stream.skip(n_ends);
            if !is_all {
                break;
            }
        }
        self.start = self.stream.offset();
        if self.take_line() {
            return Ok(true);
        }
        (self.n_text, self.n_fields) = (0, 0);
        loop {
            let bytes = self.stream.fill()?;
            let is_end = bytes.is_empty();
            // A line end closes the last record, unless a quote is open.
            let bytes = if is_end { b"\n" } else { bytes };
            let text = self.text.get_mut(self.n_text..).unwrap_or_default();
            let ends = self.ends.get_mut(self.n_fields..).unwrap_or_default();
            let (result, n_in, n_out, n_ends) = self.core.read_record(bytes, text, ends);
            self.n_text += n_out;
            self.n_fields += n_ends;
            if !is_end {
                self.stream.skip(n_in);
            }
            match result {
                Record => break,
                OutputFull if self.n_text > self.most_bytes => {
                    self.is_open = true;
                    return Err(Flaw::TooLarge(self.start));
                }
                OutputFull => grow(&mut self.text, self.most_bytes),
                OutputEndsFull if self.n_fields > self.most_fields => {
                    self.is_open = true;
                    return Err(Flaw::TooManyFields(self.start));
                }
                OutputEndsFull => grow(&mut self.ends, self.most_fields),
                InputEmpty | End if is_end => return Err(Flaw::Unclosed(self.start)),
                InputEmpty | End => {}
            }
        }
        if self.n_text > self.most_bytes {
            return Err(Flaw::TooLarge(self.start));
        }
        Ok(true)
    }

    /// Takes the next record where it is all in the buffer and has no quotes: its fields are then
    /// found much faster than one byte after another. `false` where it is not so, and where the
    /// record has a flaw: nothing was taken.
    fn take_line(&mut self) -> bool {
        let Dialect { delimiter, quote } = self.dialect;
        let (at, rest) = (self.stream.at, self.stream.rest());
        // Without quotes, one more line end is looked for.
        let end = memchr::memchr3(b'\n', b'\r', quote.unwrap_or(b'\n'), rest);
        let Some(end) = end.filter(|end| rest.get(*end).copied() != quote) else { return false };
        let line = rest.get(..end).unwrap_or_default();
        let mut n_fields = 0;
        for end in memchr::memchr_iter(delimiter, line).chain([end]) {
            match self.ends.get_mut(n_fields) {
                Some(place) => *place = end,
                None if n_fields > self.most_fields => return false,
                None => self.ends.push(end),
            }
            n_fields += 1;
        }
        let n_text = end + 1 - n_fields;
        if n_text > self.most_bytes || n_fields > self.most_fields {
            return false;
        }
        self.line = Some(at..at + end);
        (self.n_text, self.n_fields) = (n_text, n_fields);
        // The reader skips what follows of the line end when it comes to the next record.
        self.stream.skip(end + 1);
        true
    }

    /// Reads the record that has this flaw to its end. What is then said of it does not depend on how
    /// large the buffers were: [`Records::n_fields`] counts all of its fields.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(super) fn judge(&mut self, flaw: Flaw) -> Result<Flaw, SourceError> {
        match flaw {
            Flaw::Input(e) => Err(e),
            Flaw::TooLarge(start) | Flaw::TooManyFields(start) if self.is_open => {
                Ok(match self.pass_over()? {
                    false => Flaw::Unclosed(start),
                    true if self.n_text > self.most_bytes => Flaw::TooLarge(start),
                    true => Flaw::TooManyFields(start),
                })
            }
            flaw => Ok(flaw),
        }
    }

    /// Goes behind the end of a record that was given up, without keeping it; `false` where it has
    /// none.
    fn pass_over(&mut self) -> Result<bool, SourceError> {
        let (mut text, mut ends) = ([0; 4096], [0; 256]);
        loop {
            let bytes = self.stream.fill()?;
            let is_end = bytes.is_empty();
            let bytes = if is_end { b"\n" } else { bytes };
            let (result, n_in, n_out, n_ends) = self.core.read_record(bytes, &mut text, &mut ends);
            self.n_text += n_out;
            self.n_fields += n_ends;
            if !is_end {
                self.stream.skip(n_in);
            }
            if result == Record || (is_end && matches!(result, InputEmpty | End)) {
                self.is_open = false;
                return Ok(result == Record);
            }
        }
    }

    /// Offset in the file of the record's first byte.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Offset in the file behind the record.
    pub(super) fn end(&self) -> u64 {
        self.stream.offset()
    }

    pub(super) fn n_fields(&self) -> usize {
        self.n_fields
    }

    /// Bytes of all its fields.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_text
    }

    /// The bytes that its fields are in: all of them, and at most delimiters beside them.
    pub(super) fn text(&self) -> &[u8] {
        match &self.line {
            Some(line) => self.stream.buffer.get(line.clone()).unwrap_or_default(),
            None => self.text.get(..self.n_text).unwrap_or_default(),
        }
    }

    /// Whether a field holds a line end.
    pub(super) fn holds_line_end(&self) -> bool {
        self.line.is_none() && memchr::memchr2(b'\n', b'\r', self.text()).is_some()
    }

    /// Where in [`Records::text`] field `index` stands.
    pub(super) fn range_of(&self, index: usize) -> Range<usize> {
        let end_of = |i: usize| self.ends.get(i).copied().unwrap_or_default();
        let delimiter = usize::from(self.line.is_some());
        index.checked_sub(1).map_or(0, |before| end_of(before) + delimiter)..end_of(index)
    }

    /// Field `index` of the record.
    pub(super) fn field(&self, index: usize) -> &[u8] {
        self.text().get(self.range_of(index)).unwrap_or_default()
    }

    /// The digest of the input, `None` if reading began behind its first byte.
    pub(super) fn digest(self) -> Result<blake3::Hash, SourceError> {
        self.stream.open.digest()
    }
}

/// Makes room for twice as much, up to one more than `most`, by which too much is noticed.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, most: usize) {
    let len = (buffer.len() * 2).max(64).min(most.saturating_add(1));
    buffer.reserve_exact(len.saturating_sub(buffer.len()));
    buffer.resize(len.max(buffer.len()), T::default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::content::{Compression, Contents};
    use crate::sources::input::Folder;
    use crate::sources::text_cuts::quoted_cuts;

    const DIALECT: Dialect = Dialect { delimiter: b',', quote: Some(b'"') };

    /// Quotes, delimiters and line ends in all orders, some where one piece that is read ends.
    fn texts() -> impl Iterator<Item = Vec<u8>> {
        let pieces =
            ["a", ",", "\"", "\"\"", "\n", "\r\n", "\r", "é", "1.5", ",\"x\ny\",", "bc,d\n"];
        (0..300_usize).map(move |seed| {
            let n_before = if seed % 30 == 0 { CHUNK_BYTES / 4 - seed / 10 } else { 0 };
            let mut text = b"x,y\n".repeat(n_before);
            let mut state = seed as u64;
            for _ in 0..80 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
                let piece = pieces[usize::try_from(state >> 33).unwrap() % pieces.len()];
                text.extend_from_slice(piece.as_bytes());
            }
            text.push(b'\n');
            text
        })
    }

    /// The fields of each record as the parser alone finds them, and the offset behind it.
    fn parsed(text: &[u8]) -> Vec<(Vec<Vec<u8>>, usize)> {
        let (mut core, mut at, mut records) = (DIALECT.reader(), 0, Vec::new());
        let (mut out, mut ends) = (vec![0; text.len()], vec![0; 1024]);
        loop {
            while matches!(text.get(at), Some(b'\r' | b'\n')) {
                at += 1;
            }
            let (result, n_in, _, n_ends) = core.read_record(&text[at..], &mut out, &mut ends);
            if result != Record {
                return records;
            }
            at += n_in;
            let starts = std::iter::once(0).chain(ends[..n_ends].iter().copied());
            let fields = starts.zip(&ends[..n_ends]).map(|(from, to)| out[from..*to].to_vec());
            let is_pair = text[at - 1] == b'\r' && text.get(at) == Some(&b'\n');
            records.push((fields.collect(), at + usize::from(is_pair)));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "inputs come from elsewhere")]
    fn whole_lines_are_the_records_that_the_parser_finds() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path());
        let contents = Contents::new(&folder, Compression::default(), None).unwrap();
        for (seed, text) in texts().enumerate() {
            std::fs::write(dir.path().join("a.csv"), &text).unwrap();
            let input = folder.stat("a.csv").unwrap();
            let open = || contents.open(&input, None, None).unwrap();
            let want = parsed(&text);
            let mut records = Records::new(DIALECT, open());
            for (number, (fields, _)) in want.iter().enumerate() {
                assert!(records.next().unwrap(), "text {seed}, record {number}");
                let found = (0..records.n_fields()).map(|i| records.field(i).to_vec());
                assert_eq!(&found.collect::<Vec<_>>(), fields, "text {seed}, record {number}");
                assert_eq!(records.n_bytes(), fields.iter().map(Vec::len).sum::<usize>());
            }
            assert!(!matches!(records.next(), Ok(true)), "text {seed}");

            let (multiple, size) = (if seed % 30 == 0 { 10_000 } else { 7 }, text.len() as u64);
            let mut cuts: Vec<u64> = Vec::new();
            for end in want.iter().map(|(_, end)| *end as u64).filter(|end| *end < size) {
                if end / multiple > cuts.last().map_or(0, |last| last / multiple) {
                    cuts.push(end);
                }
            }
            let found = quoted_cuts(DIALECT, open(), multiple, size).unwrap();
            assert_eq!(found, cuts, "text {seed}");
        }
    }
}
