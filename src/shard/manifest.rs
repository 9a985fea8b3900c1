//! What the logs say: the header and segments of an open shard, the shards of a partition.
//!
//! Leaves out: how lines are guarded (`log`) and what a writer makes of them (`recovery`).
//!
//! Invariants:
//! 1. `rows` and `len` are totals of the shard, `books` of the partition up to the cut.
//! 2. Books are cut at source rows: they count what is settled before the source row of `next`.
//!    What had been seen of that row itself is told by `seen`, and is counted when it comes again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::log;
use crate::batch::{Position, Restart};

/// The first line of an open shard's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    /// Version of the layout.
    pub(super) layout: u32,
    /// The dataset's cache key.
    pub(super) cache_key: String,
    /// The partition.
    pub(super) slot: String,
    /// The shard's number in the partition.
    pub(super) shard: u64,
    /// Where the shard begins: the partition's start, or the position of its first row.
    pub(super) first: Position,
    /// The document of `schema.json`.
    pub(super) schema: Value,
}

/// Where writing goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Next {
    /// No row that is still to come stands before this position.
    At(Position),
    /// The partition has ended.
    End(End),
}

/// The word that stands for the end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum End {
    End,
}

impl Next {
    pub(super) const END: Next = Next::End(End::End);

    /// The position, of a partition that goes on.
    pub(super) fn position(self) -> Option<Position> {
        match self {
            Next::At(position) => Some(position),
            Next::End(_) => None,
        }
    }
}

/// A place in a partition at which its books are cut and its reading can go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    /// Where writing goes on.
    pub(super) next: Next,
    /// Where reading begins again to come to `next`.
    pub(super) restart: Restart,
    /// Events of the source row of `next` that came before `next`.
    pub(super) seen: u64,
    /// The books of the partition, of all source rows before that of `next`.
    pub(super) books: Value,
}

/// How much of a file a segment promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Size of the file in bytes.
    pub(super) len: u64,
    /// CRC-32 of the bytes that the segment added.
    #[serde(with = "hex")]
    pub(super) crc32: u32,
}

/// What one commit made durable in an open shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    /// Number of the segment in the shard, from 0.
    pub(super) seq: u64,
    /// Rows in the shard.
    pub(super) rows: u64,
    /// Where the partition stands.
    #[serde(flatten)]
    pub(super) cut: Cut,
    /// Every file that grows.
    pub(super) files: BTreeMap<String, Mark>,
}

/// A line of a partition's log: a sealed shard, or the end of a partition that has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogEntry {
    /// Number of the shard in the partition, from 0.
    pub(super) seq: u64,
    /// The shard's id; null where the partition ended without a shard.
    pub(super) id: Option<String>,
    /// Rows in the shard.
    pub(super) rows: u64,
    /// Bytes of all its files.
    pub(super) bytes: u64,
    /// Where the partition stands.
    #[serde(flatten)]
    pub(super) cut: Cut,
}

/// What the manifest of an open shard was found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Manifest {
    /// It is not there, or its first line was never finished: nothing was committed.
    Absent,
    /// Its first line does not match its sum, but lines follow it.
    Broken,
    /// The header, and the segments that count.
    Valid {
        /// The first line.
        header: Header,
        /// The longest prefix of valid ones.
        segments: Vec<Segment>,
        /// Bytes of all of them.
        valid_bytes: u64,
    },
}

impl Manifest {
    /// Reads a manifest's bytes.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let first = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        let Some(rest) = bytes.get(first.len()..) else { return Self::Absent };
        let Some(header) = log::read(first, |_, header: Header| Some(header)).lines.pop() else {
            return if rest.is_empty() { Self::Absent } else { Self::Broken };
        };
        let segments =
            log::read(rest, |n, segment: Segment| (segment.seq == n as u64).then_some(segment));
        let valid_bytes = first.len() as u64 + segments.valid_bytes;
        Self::Valid { header, segments: segments.lines, valid_bytes }
    }
}

/// A CRC-32 as 8 hex digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde decides the signature")]
    pub(super) fn serialize<S: Serializer>(crc: &u32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{crc:08x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
        let digits = String::deserialize(from)?;
        u32::from_str_radix(&digits, 16).map_err(de::Error::custom)
    }
}
