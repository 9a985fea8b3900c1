//! The log of a section: which segments count, and in which order.
//!
//! Leaves out: when its lines are synced (`store`).
//!
//! Invariants:
//! 1. The line is the commit: a segment counts if a valid line adds it and none drops it.
//! 2. Segments stand in the order in which their rows were put. What replaces others stands in their
//!    place.
//! 3. At most the last line is torn. An invalid line before a valid one is damage, and is refused.
//! 4. A segment's number is never used again.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{CacheError, Result};
use crate::schema::RowSchema;
use crate::shard::log;

/// Version of the layout of a feature cache.
const LAYOUT: u32 = 1;

/// The first line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Header {
    cache_layout: u32,
    next_id: u32,
    schema: Value,
    /// Segments that were there when the log was begun or written anew.
    segments: Vec<Entry>,
    signature: String,
}

/// A segment, as the log names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its number, which names its folder.
    pub(super) id: u32,
    /// The first 32 hex digits of the BLAKE3 of its `B3SUMS`.
    pub(super) b3: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    /// How often its rows were merged.
    pub(super) level: u32,
}

/// Any other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) seq: u64,
    /// The segment that is new. It stands in the place of those that go, else at the end.
    pub(super) add: Option<Entry>,
    /// Consecutive segments that go.
    pub(super) drop: Vec<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Header(Header),
    Change(Change),
}

/// What a section's log says.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    pub(super) schema: Arc<RowSchema>,
    pub(super) segments: Vec<Entry>,
    pub(super) next_id: u32,
    pub(super) next_seq: u64,
    /// Bytes of its valid lines.
    pub(super) valid_bytes: u64,
    signature: String,
}

impl Manifest {
    /// The log of a section without rows.
    pub(super) fn new(signature: &str, schema: Arc<RowSchema>) -> Self {
        let signature = signature.to_owned();
        Self { schema, segments: Vec::new(), next_id: 1, next_seq: 0, valid_bytes: 0, signature }
    }

    /// Reads the log `bytes` of the file at `path`.
    pub(super) fn read(path: &Path, bytes: &[u8], signature: &str) -> Result<Self> {
        let damaged = |what: String| CacheError::damaged(path, what);
        let read = log::read(bytes, |_, line: Line| Some(line));
        let valid = usize::try_from(read.valid_bytes).unwrap_or(usize::MAX);
        let rest = bytes.get(valid..).unwrap_or_default();
        let mut behind = rest.splitn(2, |byte| *byte == b'\n').skip(1);
        let has_more = |rest: &[u8]| {
            let mut lines = rest.split_inclusive(|byte| *byte == b'\n');
            lines.any(|line| !log::read(line, |_, json: Value| Some(json)).lines.is_empty())
        };
        let n_lines = read.lines.len();
        if behind.any(has_more) {
            return Err(damaged(format!("line {} is damaged, and others follow", n_lines + 1)));
        }
        let mut lines = read.lines.into_iter();
        let Some(Line::Header(header)) = lines.next() else {
            return Err(damaged("it does not begin with a section's header".to_owned()));
        };
        if header.cache_layout != LAYOUT {
            return Err(damaged(format!("unknown cache layout {}", header.cache_layout)));
        }
        if header.signature != signature {
            return Err(damaged(format!("it is the log of section {}", header.signature)));
        }
        let schema = RowSchema::from_json(&header.schema).map_err(|e| damaged(e.to_string()))?;
        let mut this = Self::new(signature, Arc::new(schema));
        (this.next_id, this.valid_bytes) = (header.next_id, read.valid_bytes);
        this.segments = header.segments;
        for (n, line) in lines.enumerate() {
            let applied = match line {
                Line::Change(change) => this.apply(&change),
                Line::Header(_) => None,
            };
            applied.ok_or_else(|| {
                damaged(format!("line {} does not follow from those before it", n + 2))
            })?;
        }
        Ok(this)
    }

    /// Takes a line into account; `None`, and nothing happens, if it does not follow.
    pub(super) fn apply(&mut self, change: &Change) -> Option<()> {
        let at = match change.drop.first() {
            None => self.segments.len(),
            Some(first) => self.segments.iter().position(|entry| entry.id == *first)?,
        };
        let gone = self.segments.get(at..at.checked_add(change.drop.len())?)?;
        let is_new = change.add.as_ref().is_none_or(|add| add.id >= self.next_id);
        let follows = gone.iter().map(|entry| entry.id).eq(change.drop.iter().copied());
        if !follows || !is_new || change.seq != self.next_seq {
            return None;
        }
        if let Some(add) = &change.add {
            self.next_id = add.id.checked_add(1)?;
        }
        self.segments.splice(at..at + change.drop.len(), change.add.clone());
        self.next_seq += 1;
        Some(())
    }

    /// The line that begins a log which says the same.
    pub(super) fn header(&self) -> Vec<u8> {
        log::line(&Header {
            cache_layout: LAYOUT,
            next_id: self.next_id,
            schema: self.schema.to_json(),
            segments: self.segments.clone(),
            signature: self.signature.clone(),
        })
    }
}
