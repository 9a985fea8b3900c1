//! What can go wrong with a dataset as a whole.

use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::books::{OverBudget, Unbalanced};
use crate::shard::{DAMAGED_ELSEWHERE, Origin, ReadError, ShardError};
use crate::storage::{StorageError, is_elsewhere};

/// What every operation on a dataset returns.
pub type Result<T, E = DatasetError> = std::result::Result<T, E>;

/// An operation on a dataset failed.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A shard cannot be written.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// A sealed shard cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A text cannot name a folder.
    #[error("`{name}` cannot be the name of a dataset's folder")]
    Name {
        /// The text.
        name: String,
    },
    /// Another process writes this dataset.
    #[error("`{}` is being written by another run ({holder})", path.display())]
    Busy {
        /// The dataset's folder.
        path: PathBuf,
        /// What the other run says of itself.
        holder: String,
    },
    /// Something else stands where the link `current` belongs.
    #[error("`{}` is not a symbolic link", path.display())]
    NotALink {
        /// Where it stands.
        path: PathBuf,
    },
    /// There is no complete dataset.
    #[error("`{}` holds no complete dataset: {message}", path.display())]
    NoDataset {
        /// Where one was looked for.
        path: PathBuf,
        /// What is missing.
        message: String,
    },
    /// A file is not what its name or the files that cover it promise.
    #[error("`{}`: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A file was written by a later version.
    #[error("`{}` has version {found}, this program knows {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A planned partition has no record yet.
    #[error("partition {index} of {n_partitions} (slot {slot}) has no record: it was not finished")]
    Unfinished {
        /// Its position in the dataset, from 0.
        index: usize,
        /// How many are planned.
        n_partitions: usize,
        /// Its slot.
        slot: String,
    },
    /// The digests handed in at the end of a partition are not those of its inputs.
    #[error("slot {slot}: the digest of `{path}` does not belong to this partition")]
    Digests {
        /// The partition's slot.
        slot: String,
        /// The path.
        path: String,
    },
    /// Rows were lost or invented.
    #[error("{place}: the books do not close")]
    Unbalanced {
        /// A partition's slot, or the dataset.
        place: String,
        /// Which stage.
        #[source]
        source: Unbalanced,
    },
    /// Counts that must agree do not.
    #[error("{place}: {message}")]
    Counts {
        /// A partition's slot, a shard, or the dataset.
        place: String,
        /// The counts.
        message: String,
    },
    /// More rows were rejected than may be.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// No row came out.
    #[error("the dataset has no rows")]
    Empty,
    /// Two rows have the same key.
    #[error("two rows have the key {key}: {}, and {}", rows[0], rows[1])]
    DuplicateKey {
        /// The key.
        key: String,
        /// The rows, the earlier one first.
        rows: Box<[KeyedRow; 2]>,
    },
    /// A key that no row has was asked for.
    #[error("no row has the key `{key}`")]
    NoSuchKey {
        /// The key asked for.
        key: String,
    },
    /// A row that the dataset does not have was asked for.
    #[error("there is no row {row}: there are {n_rows}, counted from 0")]
    NoRow {
        /// The row asked for.
        row: u64,
        /// How many there are.
        n_rows: u64,
    },
    /// Values were asked for in a type that cannot hold them.
    #[error("field `{field}` cannot be read as {to}: {message}")]
    Cast {
        /// The field.
        field: String,
        /// The type asked for.
        to: String,
        /// Which value, or why.
        message: String,
    },
    /// The dataset is too large to be held in memory.
    #[error("`{}` has {bytes} bytes, this machine {memory} bytes of memory", path.display())]
    TooLarge {
        /// The dataset's folder.
        path: PathBuf,
        /// Bytes of its fields.
        bytes: u64,
        /// Bytes of physical memory, or of the limit that this process runs under.
        memory: u64,
    },
}

/// A row that is known by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedRow {
    /// Its number in the dataset.
    pub row: u64,
    /// The shard that holds it.
    pub shard: String,
    /// Its number there.
    pub row_in_shard: u64,
    /// What it came from, where that is known.
    pub origin: Option<Origin>,
}

impl Display for KeyedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, shard, row_in_shard, origin } = self;
        write!(f, "row {row} of the dataset (row {row_in_shard} of shard {shard})")?;
        origin.as_ref().map_or(Ok(()), |origin| write!(f, ", from {}", origin.place))
    }
}

impl DatasetError {
    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Storage(error) => error.hint()?,
            Self::Shard(error) => return error.hint(),
            Self::Read(error) => return error.hint(),
            Self::Name { .. } => "use letters, digits, `-`, `_` and `.`, not at the start",
            Self::Busy { .. } => {
                "wait until it ends or stop it; a run that was killed holds no lock"
            }
            Self::NotALink { .. } => "move it away and run again",
            Self::NoDataset { path, .. } if is_elsewhere(path) => {
                "name URL/NAME or URL/NAME/KEY of a dataset that was pushed as a whole"
            }
            Self::NoDataset { .. } => {
                "run the pipeline until it ends with exit code 0, or check the path"
            }
            Self::Damaged { path, .. } if is_elsewhere(path) => DAMAGED_ELSEWHERE,
            Self::Damaged { .. } => "it was changed after it was written; delete it and run again",
            Self::Version { .. } => "use the version of rowmill that wrote it, or a later one",
            Self::Unfinished { .. } => "run the same command again; it continues",
            Self::Empty => "check the sources and filters, or set `allow_empty = true`",
            Self::Cast { .. } => "ask for a wider type, or for the bytes as they are stored",
            Self::TooLarge { .. } => {
                "at most half of the memory is filled: read it mapped, which needs none"
            }
            Self::OverBudget(_) => {
                "look at the shards' rejects.jsonl; mend the inputs, or raise `max_rejects`"
            }
            Self::DuplicateKey { .. } => {
                "choose a key that is unique, or leave one of the rows out"
            }
            Self::Digests { .. }
            | Self::Unbalanced { .. }
            | Self::Counts { .. }
            | Self::NoSuchKey { .. }
            | Self::NoRow { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// A file that is not what it must be.
    pub(super) fn damaged(path: impl Into<PathBuf>, message: impl Display) -> Self {
        Self::Damaged { path: path.into(), message: message.to_string() }
    }
}
