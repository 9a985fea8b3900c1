//! What is done to rows: one file per transform and one line in `TRANSFORMS`.
//!
//! Leaves out: running them in parallel, which the graph does.
//!
//! Invariants:
//! 1. A transform is a function of a row: batch boundaries never show in its output. One that says how
//!    its batches are cut ([`Transform::batching`]) is a function of its batch: it gets the same batches
//!    in every run.
//! 2. Rows leave in the order in which they came; one that is gone or multiplied leaves an event. Those
//!    that one has become stand behind an event that says how many more they are, and have numbers
//!    (`sub_row`) that [`Emit::number`] gives: all that has become of a source row is numbered through.
//!    A source row that is one row before and behind a stage needs no number.
//! 3. A row that fails is an error or a reject as [`Stage::settle`] says, and the rows around it
//!    are what they would be without it.

mod byte_histogram;
mod cast;
mod columns;
mod hook;
mod select;
mod text_stats;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use serde_json::Value;

pub use crate::batch::{BadRow, OnError};
use crate::batch::{Batch, Behind, Outcome, Position};
use crate::cache::{CacheError, Section};
use crate::fingerprint::CompatSignature;
pub use crate::sources::SettingsError;
pub(crate) use hook::ColumnSettings;
pub use hook::{HookError, become_hook, type_text};

/// Every kind of transform, by name.
pub static TRANSFORMS: &[TransformType] = &[
    select::TYPE,
    cast::TYPE,
    text_stats::TYPE,
    byte_histogram::TYPE,
    hook::command::TYPE,
    hook::python::TYPE,
];

/// The kind of transform that a definition calls `name`.
#[must_use]
pub fn transform_type(name: &str) -> Option<&'static TransformType> {
    TRANSFORMS.iter().find(|t| t.name == name)
}

/// A stage between a source and the dataset.
pub trait Transform: Send + Sync + std::fmt::Debug {
    /// The columns that come out when `input` goes in.
    ///
    /// # Errors
    /// A column that is not there or has the wrong type, with the nearest name.
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError>;

    /// Turns one batch into batches of [`Transform::output`]'s schema. The events that come with it
    /// are handed on, and those of `stage` are added ([`Batch::without`]). A batch may hold events
    /// alone.
    ///
    /// # Errors
    /// Names input, source row and field.
    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError>;

    /// Most bytes of memory it holds per byte of a batch it is given, in percent (100: its output is
    /// as large as its input and the input is kept meanwhile). The copy that [`Batch::without`] makes
    /// is counted where the definition lets rows be rejected; one that drops rows counts it here.
    fn growth_percent(&self) -> u64 {
        100
    }

    /// How its batches are to be cut, where what it makes of a row depends on the rows beside it. They
    /// are cut by this rule over the rows of the partition alone, whatever the edges do.
    fn batching(&self) -> Option<Batching> {
        None
    }

    /// Files whose contents decide values, relative to the definition's folder.
    fn files(&self) -> &[String] {
        &[]
    }

    /// Where what it answers is kept for other runs, if anywhere. `input` are the columns that reach it,
    /// `files` the digests of its files, by path.
    ///
    /// # Errors
    /// A column that rows cannot be told apart by.
    fn kept(
        &self,
        input: &SchemaRef,
        files: &BTreeMap<String, String>,
    ) -> Result<Option<Kept>, SettingsError> {
        let _ = (input, files);
        Ok(None)
    }

    /// A run begins: what is in `section` is not computed, and what is computed is put there.
    fn remember(&self, section: Arc<Section>) {
        drop(section);
    }

    /// What of it was known since the run began, where anything is kept.
    fn asked(&self) -> Option<Asked> {
        None
    }

    /// What learns the columns that it adds, where the definition leaves them out. It is asked, or taught,
    /// before anything else is done with the transform.
    fn learner(&self) -> Option<&dyn Learner> {
        None
    }

    /// A run begins: what people may want to read later goes to `notes`.
    fn begin(&self, _notes: Arc<dyn Notes>) {}

    /// Whether it may come to light only at [`Transform::end`] that what it has made belongs to other rows.
    fn is_unsure(&self) -> bool {
        false
    }

    /// No batch follows: what it keeps running can end.
    ///
    /// # Errors
    /// What comes to light only now.
    fn end(&self) -> Result<(), TransformError> {
        Ok(())
    }
}

/// A transform whose columns are learned from what it makes of a first batch.
pub trait Learner {
    /// The columns that it adds to those of `batch`, found out by computing them.
    ///
    /// # Errors
    /// As [`Transform::apply`], and rows from which nothing can be learned.
    fn learn(
        &self,
        stage: Stage,
        batch: &Batch,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Schema, TransformError>;

    /// From now on it adds these columns, which were learned from the input at `path`.
    ///
    /// # Errors
    /// What comes to light when those end that computed others.
    fn teach(&self, columns: &Schema, path: &str) -> Result<(), TransformError>;
}

/// Where and how a transform keeps what it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// The folder of the feature cache.
    pub dir: PathBuf,
    /// What decides the answers.
    pub signature: CompatSignature,
    /// The columns of rows that are kept.
    pub columns: Schema,
}

/// Rows that a transform was to compute, and how many of them were known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    /// All of them.
    pub rows: u64,
    /// Those that a feature cache held.
    pub known: u64,
}

/// Takes what is said beside the dataset: it is never part of one.
pub trait Notes: std::fmt::Debug + Send + Sync {
    /// Keeps `text`, said by the transform `name`, and tells where; `None` where that is not possible.
    fn keep(&self, name: &str, text: &[u8]) -> Option<String>;

    /// Says that what a transform has made may belong to other rows, and how that shows: what is not
    /// part of a complete dataset is to be made again. The run ends with an error.
    fn distrust(&self, what: &str);
}

/// How the batches of a transform are cut, and what they may come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// A batch ends after this many rows,
    pub rows: usize,
    /// or before the row that would give it more bytes than this, unless that is its first.
    pub bytes: u64,
    /// Most bytes that one batch of it adds.
    pub answer_bytes: u64,
    /// How many batches are worked on at once.
    pub workers: usize,
    /// Whether answers are kept in a feature cache, and what is known put together with what is new.
    pub is_kept: bool,
    /// Whether it makes any number of rows of one.
    pub multiplies: bool,
}

/// The place of a transform in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Its index, for the events it adds: the source is 0.
    pub index: usize,
    /// What is done with a row that fails in it.
    pub on_error: OnError,
}

impl Stage {
    /// What becomes of row `row` of `batch`, which failed.
    ///
    /// # Errors
    /// The row's error, where it ends the run.
    pub fn settle(self, batch: &Batch, row: usize, bad: BadRow) -> Result<Outcome, TransformError> {
        match self.on_error {
            OnError::Quarantine => Ok(bad.into_outcome()),
            OnError::Fail => {
                let at = batch.provenance.position(row as u64).unwrap_or_default();
                let bad = Box::new(bad);
                Err(TransformError::Row { input: at.input, source_row: at.source_row, bad })
            }
        }
    }
}

/// Takes what a transform makes.
pub trait Emit {
    /// Hands on a batch of at most about `batch_bytes`; waits while there is no room.
    ///
    /// # Errors
    /// The run is being stopped: return at once.
    fn emit(&mut self, batch: Batch) -> Result<(), Stopped>;

    /// About the most bytes in a batch that is handed on, unless it is a single row.
    fn batch_bytes(&self) -> usize;

    /// The number of the first of `n_rows` rows that the transform has made of the row at `parent`. One
    /// that makes another number of rows than it was given asks for each row, in order, also for
    /// those that become one or none. Waits where batches that come before hold rows of the same
    /// source row.
    ///
    /// # Errors
    /// The run is being stopped: return at once.
    fn number(&mut self, parent: Position, n_rows: u64) -> Result<u64, Stopped>;

    /// Whether nobody wants what is being made any more: a transform that waits for something else
    /// than [`Emit::emit`] looks now and then, and ends with [`Stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// The run is being stopped; the cause is known elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// What a transform is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformSpec {
    /// The name in the definition.
    pub name: String,
    /// Folder of the definition, which paths are relative to.
    pub folder: PathBuf,
    /// Its own settings.
    pub settings: Value,
}

/// One kind of transform.
#[derive(Debug, Clone, Copy)]
pub struct TransformType {
    /// The `type` in a definition.
    pub name: &'static str,
    /// Bumped when a value it produces can change; part of the cache key.
    pub version: u32,
    /// One line for people.
    pub about: &'static str,
    /// JSON Schema of its settings (beside `type` and `inputs`).
    pub settings: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    /// Settings that decide no value (where things are, how fast), which are no part of the cache key.
    /// `NAME.0` is the first item of a list.
    pub run_settings: &'static [&'static str],
    /// Makes one.
    pub make: fn(&TransformSpec) -> Result<Box<dyn Transform>, SettingsError>,
}

/// A transform failed on a row.
#[derive(Debug, thiserror::Error)]
pub enum TransformError {
    /// The run is being stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// A value cannot be transformed.
    #[error("input {input}, source row {source_row}{}", Behind(bad))]
    Row {
        /// Index of the input in its partition.
        input: u32,
        /// Source row in it.
        source_row: u64,
        /// What is wrong with it.
        bad: Box<BadRow>,
    },
    /// A hook cannot be run, or does not answer as it should.
    #[error(transparent)]
    Hook(Box<HookError>),
    /// It cannot do its part, for a reason that is no row's.
    #[error("{message}")]
    Failed {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// What it answers cannot be kept, or not be found again.
    #[error(transparent)]
    Cache(Box<CacheError>),
    /// Arrow refused.
    #[error("cannot compute")]
    Arrow(#[from] arrow_schema::ArrowError),
}

impl From<CacheError> for TransformError {
    fn from(error: CacheError) -> Self {
        Self::Cache(Box::new(error))
    }
}

impl TransformError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Row { bad, .. } => bad.hint.clone(),
            Self::Hook(error) => error.hint().map(str::to_owned),
            Self::Cache(error) => error.hint(),
            Self::Failed { hint, .. } => hint.clone(),
            Self::Stopped(_) | Self::Arrow(_) => None,
        }
    }
}
