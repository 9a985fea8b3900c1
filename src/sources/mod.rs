//! Where rows come from: one file per source and one line in `SOURCES`.
//!
//! A source lists its inputs, says where a large one may be cut, tells the Arrow schema of its rows
//! and reads one partition in order. It knows nothing of batches' fate: resume, ordering, metrics
//! and fingerprints are added around it.
//!
//! Leaves out: opening files, which `input` does for all of them.
//!
//! Invariants:
//! 1. Reading from a restart that the reader itself gave yields the same rows, with the same
//!    positions, as reading from the start and skipping; only batch boundaries may differ.
//! 2. Rows depend on the inputs' bytes and paths relative to the root, and on the data settings.
//! 3. A batch holds at most `batch_rows` rows and about `batch_bytes` bytes, or one row. A reject counts
//!    as a row; a batch may hold nothing else.
//! 4. A source row is one row or one reject; no other event has stage 0.

mod ahead;
mod archive;
mod array_files;
mod array_rows;
mod arrays;
mod arrow_ipc;
mod arrow_table;
mod columnar;
pub(crate) mod contained;
mod content;
mod csv;
mod csv_reader;
mod csv_records;
mod draft;
mod files;
mod idx;
pub mod input;
mod input_pages;
mod jsonl;
mod jsonl_checked;
mod jsonl_columns;
mod jsonl_judge;
mod jsonl_lines;
mod jsonl_names;
mod jsonl_read;
mod jsonl_reader;
mod jsonl_types;
mod jsonl_values;
pub mod listing;
mod npy;
mod npy_files;
mod npy_header;
pub(crate) mod object;
mod object_listing;
mod parquet;
mod parquet_footer;
mod parquet_pages;
mod parquet_table;
mod parquet_thrift;
mod part_digests;
mod pattern;
mod regions;
mod rejects;
mod settings;
mod siblings;
mod table;
mod text_cuts;
mod text_lines;
pub mod value_type;

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use serde_json::Value;

pub use crate::batch::{BadRow, INPUT_DAMAGED, NOT_UTF8, OnError, ROW_TOO_LARGE, VALUE_MISFIT};
use crate::batch::{Batch, Behind, Restart};
pub use crate::inputs::{Input, InputDigest, InputRange, Part, RowPlace};
use crate::remote::RemoteError;
pub use input_pages::{Found, InputPages, is_settled, is_settled_so_far};
use listing::Listing;
pub use rejects::BadRowAt;
pub(crate) use settings::Size;
pub use settings::parse as parse_settings;

/// Every kind of source, by name.
pub static SOURCES: &[SourceType] =
    &[files::TYPE, csv::TYPE, jsonl::TYPE, npy::TYPE, idx::TYPE, parquet::TYPE, arrow_ipc::TYPE];

/// The kind of source that a definition calls `name`.
#[must_use]
pub fn source_type(name: &str) -> Option<&'static SourceType> {
    SOURCES.iter().find(|t| t.name == name)
}

/// How large batches may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most rows in a batch.
    pub rows: usize,
    /// About the most bytes in a batch of more than one row.
    pub bytes: usize,
    /// A larger row (bytes of its values) is a bad row.
    pub row_bytes: u64,
    /// What is done with a bad row, one that cannot be read as what the definition says.
    pub on_error: OnError,
}

/// Where raw rows come from.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// Lists the inputs, sorted by path (as bytes).
    ///
    /// # Errors
    /// A folder that cannot be read; a root that is not there.
    fn list(&self) -> Result<Vec<Input>, SourceError>;

    /// What it lists its inputs by, where they are no others: where the place tells them in order, a run may
    /// take them before the list is whole. `None` where [`Source::list`] is the only way.
    fn listing(&self) -> Option<&Listing> {
        None
    }

    /// Files that decide values of these inputs' rows beside the inputs, sorted by path.
    ///
    /// # Errors
    /// As [`Source::list`].
    fn side_inputs(&self, _inputs: &[Input]) -> Result<Vec<Input>, SourceError> {
        Ok(Vec::new())
    }

    /// The columns of a row; `first` is the first input in dataset order, which sources without
    /// declared types infer from. The answer is a planning fact: it is stored, and given back by
    /// [`Source::open`]'s caller.
    ///
    /// # Errors
    /// A first input that cannot be read as what the definition says.
    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError>;

    /// True record ends at which a large input is cut, ascending, each the first one at or after a
    /// multiple of `partition_bytes`; without 0 and the end. Empty where the format cannot be cut.
    ///
    /// # Errors
    /// An input that cannot be read.
    fn cuts(&self, _input: &Input, _partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        Ok(Vec::new())
    }

    /// Opens a partition for reading from `restart` (the default one is its start). `schema` is
    /// what [`Source::schema`] gave when the build was planned.
    ///
    /// # Errors
    /// An input that cannot be opened, or a restart that does not fit it.
    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError>;

    /// The digest of every input and side input of a part, as [`BatchReader::digests`] gives it, read
    /// for nothing else: whether a partition that was built before still has the same contents.
    ///
    /// # Errors
    /// An input that cannot be read, or changed ([`SourceError::Changed`]).
    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError>;

    /// Rows of an input, where that is known without reading it.
    fn rows_hint(&self, _input: &Input) -> Option<u64> {
        None
    }

    /// Rows of the input at `path` that stand before byte `byte`, one at which it is cut, where that is
    /// known without reading them.
    fn rows_before(&self, _path: &str, _byte: u64) -> Option<u64> {
        None
    }

    /// Most bytes of memory that a reader of any of these inputs holds beside the batch it is making.
    fn reader_bytes(&self, inputs: &[Input], limits: BatchLimits) -> u64;
}

/// Reads one partition, on a thread that may block.
pub trait BatchReader: Send {
    /// The next batch, `None` at the end of the partition.
    ///
    /// # Errors
    /// Names file, row and field.
    fn next(&mut self) -> Result<Option<Batch>, SourceError>;

    /// After the end: the digest of every input and side input of the part, in their order, inputs
    /// first. What a restart skipped is read and hashed now.
    ///
    /// # Errors
    /// An input that changed while it was read ([`SourceError::Changed`]).
    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError>;
}

/// One kind of source.
#[derive(Debug, Clone, Copy)]
pub struct SourceType {
    /// The `type` in a definition.
    pub name: &'static str,
    /// Bumped when a value it produces can change; part of the cache key.
    pub version: u32,
    /// One line for people.
    pub about: &'static str,
    /// JSON Schema of its settings (beside `type`, `path` and `root`).
    pub settings: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    /// Makes one from its settings.
    pub make: fn(&SourceSpec) -> Result<Box<dyn Source>, SettingsError>,
}

/// What a definition says of one source.
#[derive(Debug, Clone)]
pub struct SourceSpec {
    /// Its name, `[sources.NAME]`.
    pub name: String,
    /// Paths and globs, relative to `root`.
    pub paths: Vec<String>,
    /// Where they are: a folder, absolute or relative to the working folder, or a URL.
    pub root: PathBuf,
    /// The other settings, as JSON.
    pub settings: Value,
}

/// A setting is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// Keys that lead to the setting, within the table.
    pub at: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Reading an input failed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system refused.
    #[error("cannot read `{path}`")]
    Io {
        /// The input, or the folder that was listed.
        path: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// An object store could not be reached, or refused.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A row, or an input from that row on, is not what the definition says: the only error that can
    /// become a reject ([`OnError::settle`]).
    #[error("`{path}`, {at}{}", Behind(bad))]
    Row {
        /// The input.
        path: String,
        /// What finds it there: "header", "line 3, row 1", or a [`RowPlace`] in words.
        at: String,
        /// What is wrong with it.
        bad: Box<BadRow>,
    },
    /// The bytes are not what the definition says they are, in a way that is not one row's.
    #[error("`{path}`, {at}: {message}")]
    Invalid {
        /// The input.
        path: String,
        /// "row 12, field `age`", "line 3", "byte 17".
        at: String,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The input is not what it was when it was listed.
    #[error("`{path}` changed while it was read")]
    Changed {
        /// The input.
        path: String,
    },
    /// The folder holds not what the definition's `path` and `root` say, or a name that cannot stand.
    #[error("`{path}` {message}")]
    Listing {
        /// The input, folder or pattern.
        path: String,
        /// What is wrong with it, as the end of a sentence.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// Arrow refused the columns.
    #[error("cannot make a batch")]
    Arrow(#[from] arrow_schema::ArrowError),
}

impl SourceError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    Some("let the user that runs the build read it")
                }
                _ if source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                    Some("a link leads to itself: remove it, or let `path` name other files")
                }
                _ => None,
            },
            Self::Remote(error) => error.hint(),
            Self::Row { bad, .. } => bad.hint.as_deref(),
            Self::Invalid { hint, .. } | Self::Listing { hint, .. } => hint.as_deref(),
            Self::Arrow(_) => None,
            Self::Changed { .. } => {
                Some("wait until nothing writes to the inputs, then run the same command again")
            }
        }
    }
}
