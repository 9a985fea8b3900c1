//! What can go wrong with a feature cache.

use std::path::{Path, PathBuf};

use crate::schema::SchemaError;
use crate::shard::{ReadError, ShardError};
use crate::storage::StorageError;

/// What operations of a feature cache return.
pub type Result<T, E = CacheError> = std::result::Result<T, E>;

/// A feature cache cannot be opened, read or written, or not as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A batch has columns that cannot be stored, or values that do not fit.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A segment cannot be written.
    #[error(transparent)]
    Write(#[from] ShardError),
    /// A segment cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Somebody else writes to this folder.
    #[error("the feature cache `{}` is being written to by {holder}", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// What the writer said of itself.
        holder: String,
    },
    /// The section is open, or is to be removed while it is.
    #[error("section {section} of the feature cache is in use by this process")]
    InUse {
        /// SHA-256 of its signature.
        section: String,
    },
    /// The folder holds features of another signature, and was to hold those of one only.
    #[error(
        "the feature cache `{}` holds features of another signature: {difference}",
        path.display()
    )]
    Incompatible {
        /// The folder.
        path: PathBuf,
        /// The first member that differs: what is asked for against what is there.
        difference: String,
    },
    /// Rows have another structure than those that are there.
    #[error("field `{field}`: the feature cache holds {expected}, found {found}")]
    Structure {
        /// The field.
        field: String,
        /// What the section's rows have.
        expected: String,
        /// What was given.
        found: String,
    },
    /// As many keys as rows are to be given.
    #[error("{keys} keys for {rows} rows")]
    Count {
        /// Keys given.
        keys: usize,
        /// Rows given.
        rows: usize,
    },
    /// A file is not what it was when it was written.
    #[error("`{}`: {what}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Rows of a column's type cannot be told apart.
    #[error("column `{column}`: rows cannot be told apart by values of the type {data_type}")]
    NoKey {
        /// The column.
        column: String,
        /// Its type, as Arrow writes it.
        data_type: String,
    },
    /// The rows asked for take more memory than they may.
    #[error("the rows asked for take {bytes} bytes, and may take {most}")]
    TooLarge {
        /// What they take.
        bytes: u64,
        /// What they may take.
        most: u64,
    },
    /// Rows cannot be had as the type asked for.
    #[error("field `{field}` cannot be cast to {to}: {message}")]
    Cast {
        /// The field.
        field: String,
        /// The type.
        to: String,
        /// Why not.
        message: String,
    },
    /// An earlier write failed.
    #[error("section {section}: an earlier write failed, so nothing more is written")]
    Stopped {
        /// SHA-256 of its signature.
        section: String,
    },
}

impl CacheError {
    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Storage(e) | Self::Read(ReadError::Storage(e)) => e.hint()?,
            Self::Schema(SchemaError::Value { .. }) => {
                "the first rows decide what later ones may be: give them columns that can be null"
            }
            Self::Schema(e) => e.hint()?,
            Self::Busy { .. } => {
                "wait until it has ended, or choose another folder; reading is always possible"
            }
            Self::InUse { .. } => "a section is opened once; share it between threads",
            Self::Incompatible { .. } => {
                "choose another folder, or let signatures stand beside each other"
            }
            Self::Structure { .. } => {
                "give rows of the stored types, or change the signature: it names what decides them"
            }
            Self::Damaged { .. } | Self::Read(_) => {
                "the feature cache was changed after it was written; remove the section (`rowmill cache \
                 prune`), and its features are computed again"
            }
            Self::NoKey { .. } => "leave the column out, or cast it before",
            Self::TooLarge { .. } => "ask for fewer rows at once",
            Self::Stopped { .. } => "open the feature cache again: what was committed is there",
            Self::Write(_) | Self::Count { .. } | Self::Cast { .. } => return None,
        };
        Some(text.to_owned())
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), what: what.into() }
    }

    /// Whether a file was not found.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            Self::Read(ReadError::Missing { .. } | ReadError::NotSealed { .. }) => true,
            Self::Storage(e) | Self::Read(ReadError::Storage(e)) => {
                e.source.kind() == std::io::ErrorKind::NotFound
            }
            _ => false,
        }
    }
}
