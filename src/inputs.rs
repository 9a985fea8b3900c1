//! What a build reads: files, ranges of them, and the parts that partitions are made of.
//!
//! Leaves out: finding and opening them (`sources`), and how they are grouped (`dataset::plan`).

use std::ops::Range;
use std::time::SystemTime;

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
