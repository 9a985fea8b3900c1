//! What a build reads: files, ranges of them, the parts that partitions are made of, and where a row of
//! them stands.
//!
//! Leaves out: finding and opening them (`sources`), and how they are grouped (`dataset::plan`).

use std::fmt::{self, Display};
use std::ops::Range;
use std::time::SystemTime;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// One file that a source reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Path relative to the source's root, with `/`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of last modification: only ever a reason not to hash again.
    pub modified: SystemTime,
    /// When anything of the file was last changed, which the system notes and nobody can set; `None`
    /// where that is not known. It is no part of what the file is: a new link to it changes it.
    pub changed: Option<SystemTime>,
}

impl Input {
    /// Whether `found`, the file of the same path, has the size and time of modification that this one
    /// was listed with.
    #[must_use]
    pub fn is_as_listed(&self, found: &Self) -> bool {
        (self.size, self.modified) == (found.size, found.modified)
    }
}

/// A file, or a range of its bytes, as a partition reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRange {
    /// The file.
    pub input: Input,
    /// The bytes read, `None` for all of them.
    pub range: Option<Range<u64>>,
}

impl InputRange {
    /// Number of bytes read: the `size` that stands in fingerprints and records. The size of a file
    /// that is cut is left out of them, so that a file that grows keeps its first ranges.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match &self.range {
            Some(range) => range.end.saturating_sub(range.start),
            None => self.input.size,
        }
    }

    /// Where a source row of what is read stands.
    #[must_use]
    pub fn row(&self, source_row: u64) -> RowPlace {
        RowPlace::new(&self.input.path, self.range.as_ref(), source_row)
    }
}

/// Where a source row stands in its input: what finds it there, for people and in documents.
///
/// In words, `` `a.csv`, row 17 ``; of an input that is cut `` `a.csv`, row 17 of bytes 1000..2000 ``; and
/// where its number in the whole input is known, `` `a.npy`, row 417 (row 17 of bytes 1000..2000) ``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPlace {
    /// Path of the input, relative to the source's root.
    pub input: String,
    /// The bytes that its partition reads, where the input is cut.
    pub range: Option<Range<u64>>,
    /// Its number in what is read, from 0.
    pub source_row: u64,
    /// Its number in the whole input, from 0, where that is known.
    pub input_row: Option<u64>,
}

impl RowPlace {
    /// Source row number `source_row` of an input, or of a range of its bytes.
    #[must_use]
    pub fn new(input: &str, range: Option<&Range<u64>>, source_row: u64) -> Self {
        let is_from_start = range.is_none_or(|range| range.start == 0);
        Self {
            input: input.to_owned(),
            range: range.cloned(),
            source_row,
            input_row: is_from_start.then_some(source_row),
        }
    }

    /// Finds its number in the whole input, if `rows_before` tells how many rows of the input of that
    /// path stand before that byte.
    pub fn count(&mut self, rows_before: impl FnOnce(&str, u64) -> Option<u64>) {
        if let (None, Some(range)) = (self.input_row, &self.range) {
            let before = rows_before(&self.input, range.start);
            self.input_row = before.map(|rows| rows.saturating_add(self.source_row));
        }
    }

    /// Where in its input it stands, in words.
    #[must_use]
    pub fn in_input(&self) -> impl Display {
        InInput(self)
    }
}

impl Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, {}", self.input, InInput(self))
    }
}

struct InInput<'a>(&'a RowPlace);

impl Display for InInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowPlace { range, source_row, input_row, .. } = self.0;
        let Some(Range { start, end }) = range else { return write!(f, "row {source_row}") };
        let own = format_args!("row {source_row} of bytes {start}..{end}");
        match input_row {
            Some(row) if row != source_row => write!(f, "row {row} ({own})"),
            _ => f.write_fmt(own),
        }
    }
}

/// As documents have it: a range is its first byte and the one behind its last.
impl Serialize for RowPlace {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { input, range, source_row, input_row } = self;
        let mut document = to.serialize_struct("RowPlace", 4)?;
        document.serialize_field("input", input)?;
        document.serialize_field("range", &range.as_ref().map(|range| [range.start, range.end]))?;
        document.serialize_field("source_row", source_row)?;
        document.serialize_field("input_row", input_row)?;
        document.end()
    }
}

/// What one partition reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Part {
    /// What rows come from, in order.
    pub inputs: Vec<InputRange>,
    /// Files that decide values beside them (a sibling licence), sorted by path.
    pub side: Vec<Input>,
}

/// BLAKE3 of an input's bytes (of its range, where it has one; followed by the footer, of formats whose
/// footer says what a range holds).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputDigest {
    /// Path relative to the source's root.
    pub path: String,
    /// Number of bytes of the input or of its range.
    pub size: u64,
    /// The digest.
    pub blake3: blake3::Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_number_in_what_is_read_and_in_the_input() {
        for (range, before, want, input_row) in [
            (None, None, "`a`, row 7", Some(7)),
            (None, Some(9), "`a`, row 7", Some(7)),
            (Some(0..50), None, "`a`, row 7 of bytes 0..50", Some(7)),
            (Some(50..99), None, "`a`, row 7 of bytes 50..99", None),
            (Some(50..99), Some(9), "`a`, row 16 (row 7 of bytes 50..99)", Some(16)),
            (Some(50..99), Some(0), "`a`, row 7 of bytes 50..99", Some(7)),
        ] {
            let mut place = RowPlace::new("a", range.as_ref(), 7);
            place.count(|path, byte| before.filter(|_| (path, byte) == ("a", 50)));
            assert_eq!(place.to_string(), want);
            assert_eq!(format!("`a`, {}", place.in_input()), want);
            let document = serde_json::json!({
                "input": "a",
                "range": range.map(|range| [range.start, range.end]),
                "source_row": 7,
                "input_row": input_row,
            });
            assert_eq!(serde_json::to_value(&place).unwrap(), document, "{want}");
        }
    }
}
