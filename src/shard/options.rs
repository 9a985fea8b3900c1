//! What a writer is told, and what it tells.
//!
//! Leaves out: the writer itself (`writer`).

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::error::ShardError;
use super::seal::SealedShard;
use crate::batch::{OnError, Position, Restart};
use crate::books::Books;
use crate::inputs::RowPlace;
use crate::schema::RowSchema;

/// What a writer has to know of its partition.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Folder of the dataset, `<out>/<name>/<cache key>`. Its writer's lock is held by the caller.
    pub dataset: PathBuf,
    /// The dataset's cache key.
    pub cache_key: String,
    /// The partition's slot, which names its working state.
    pub slot: String,
    /// The fields of a row.
    pub schema: RowSchema,
    /// Names of the stages in the order in which rows pass them, for books and rejects.
    pub stages: Vec<String>,
    /// What the rows come from, in partition order; [`Position::input`] is an index into it.
    pub inputs: Vec<ShardInput>,
    /// How large shards and rows may be.
    pub limits: ShardLimits,
    /// What is done with a row that cannot be stored. To be quarantined, it is rejected by the last of
    /// `stages`, which is then the dataset itself.
    pub on_error: OnError,
    /// How often rows are made durable.
    pub commits: CommitPolicy,
}

/// An input, as `fingerprint.json` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardInput {
    /// Path relative to the source's root, with `/`.
    pub path: String,
    /// Number of bytes read.
    pub size: u64,
    /// The bytes read, where the file is cut.
    pub range: Option<Range<u64>>,
}

impl ShardInput {
    /// Where a source row of it stands.
    #[must_use]
    pub fn row(&self, source_row: u64) -> RowPlace {
        RowPlace::new(&self.path, self.range.as_ref(), source_row)
    }
}

/// How large shards and rows may be. A shard ends at the first row at which one is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLimits {
    /// Bytes that rows add to field files and dictionaries.
    pub bytes: u64,
    /// Rows.
    pub rows: u64,
    /// Distinct values of an interned field.
    pub intern_values: u64,
    /// Most bytes of a row's values: a larger row cannot be stored.
    pub row_bytes: u64,
}

impl Default for ShardLimits {
    /// 256 MiB or a million rows; rows of up to 64 MiB.
    fn default() -> Self {
        Self { bytes: 256 << 20, rows: 1_000_000, intern_values: 1_000_000, row_bytes: 64 << 20 }
    }
}

/// How often rows are made durable. It decides how much is written again after a crash, and nothing
/// else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitPolicy {
    /// A commit is due when this many bytes were added since the last one.
    pub bytes: u64,
    /// A commit is due when the last one is this long ago.
    pub interval: Option<Duration>,
}

impl Default for CommitPolicy {
    /// Every 64 MiB or 5 seconds.
    fn default() -> Self {
        Self { bytes: 64 << 20, interval: Some(Duration::from_secs(5)) }
    }
}

/// What a writer found of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// Nothing: the partition begins.
    Start,
    /// It is to be continued.
    At {
        /// Where reading begins again.
        restart: Restart,
        /// No row before this position is wanted; rows and events before it may be given, and are
        /// left out.
        next: Position,
        /// Rows of the partition that are durable.
        rows: u64,
    },
    /// Its last shard is sealed: there is nothing to do but [`Writer::finish`](super::Writer::finish).
    Finished,
}

/// What a call has brought about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Commits that have become durable.
    pub commits: u64,
    /// Shards that have been sealed.
    pub sealed: Vec<SealedShard>,
    /// Rows of the partition that are durable.
    pub rows: u64,
    /// Rejects that were written down.
    pub rejected: u64,
}

/// A partition that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its shards, in order.
    pub shards: Vec<SealedShard>,
    /// Its books.
    pub books: Books,
    /// Its rows.
    pub rows: u64,
}

impl WriterOptions {
    /// Checks that shards within the limits can be written.
    pub(super) fn check(&self) -> Result<(), ShardError> {
        let ShardLimits { rows, intern_values, .. } = self.limits;
        if rows == 0 || rows > u64::from(u32::MAX) {
            return Err(ShardError::Limits("a shard has from 1 to 4,294,967,295 rows"));
        }
        if intern_values == 0 || intern_values > u64::from(i32::MAX.cast_unsigned()) {
            return Err(ShardError::Limits(
                "a dictionary of a shard has from 1 to 2,147,483,647 values",
            ));
        }
        Ok(())
    }
}
