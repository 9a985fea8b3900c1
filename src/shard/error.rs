//! What can go wrong with a shard.

use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::inputs::RowPlace;
use crate::schema::SchemaError;
use crate::storage::StorageError;

/// Writing, sealing or recovering a shard failed.
///
/// After any error a writer refuses further appends; opening another one on the same partition
/// finds out what became durable.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The system refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A batch does not fit the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A batch contradicts itself or the ones before it.
    #[error("batch refused: {0}")]
    Batch(String),
    /// A row has more bytes than a row may have.
    #[error("{place}{}: {bytes} bytes, and a row may have {limit}", SubRow(*sub_row))]
    RowTooLarge {
        /// The source row that it came from.
        place: RowPlace,
        /// Number among the rows that the source row has become.
        sub_row: u64,
        /// Bytes of the row's values.
        bytes: u64,
        /// Most bytes that a row may have.
        limit: u64,
    },
    /// Limits that no shard can keep.
    #[error("{0}")]
    Limits(&'static str),
    /// What an earlier run left of a shard is not what it promised.
    #[error("open shard {slot}/{shard}: {damage}")]
    Damaged {
        /// The partition.
        slot: String,
        /// Number of the shard in the partition.
        shard: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// A shard that was sealed is not there any more.
    #[error("partition {slot}: its log promises shard {id}, but `{}` is not there", path.display())]
    Lost {
        /// The partition.
        slot: String,
        /// The shard.
        id: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// `index.parquet` cannot be made.
    #[error("cannot make `{}`", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// An earlier call on this writer failed.
    #[error("partition {slot}: an earlier write failed, so nothing more is written")]
    Stopped {
        /// The partition.
        slot: String,
    },
}

/// What is wrong with an open shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// A file is shorter than was committed, or is not there.
    Short {
        /// The file.
        file: String,
        /// Bytes committed.
        len: u64,
        /// Bytes found, `None` where there is no such file.
        found: Option<u64>,
    },
    /// The bytes of a segment are not those that were committed.
    Sum {
        /// The file.
        file: String,
        /// Line of the manifest that promises them; 1 is the header.
        line: u64,
    },
    /// A line of the manifest says nothing of a file.
    Unmarked {
        /// The file.
        file: String,
    },
    /// The manifest's first line is broken, but others follow it.
    Header,
    /// The manifest was written for something else.
    Foreign {
        /// The member of the header.
        member: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        wanted: String,
    },
    /// A dictionary's files contradict each other.
    Dictionary {
        /// The field's stem.
        stem: String,
    },
    /// A line of the manifest has books that cannot be read.
    Books(String),
    /// It is sealed, but neither the partition's log nor a manifest says what it holds.
    Unaccounted,
    /// The sentinel cannot be read, or contradicts the manifest.
    Sentinel,
    /// The partition's log does not come this far.
    BeyondLog {
        /// Number of shards in the log.
        logged: u64,
    },
}

impl Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { file, len, found: Some(found) } => {
                write!(f, "the manifest promises {len} bytes of `{file}`, but it ends at {found}")
            }
            Self::Short { file, len, found: None } => {
                write!(f, "the manifest promises {len} bytes of `{file}`, which is not there")
            }
            Self::Sum { file, line } => {
                write!(f, "`{file}` does not hold the bytes that manifest line {line} promises")
            }
            Self::Unmarked { file } => write!(f, "its manifest does not tell the size of `{file}`"),
            Self::Header => f.write_str("the first line of its manifest is broken"),
            Self::Foreign { member, found, wanted } => {
                write!(f, "its manifest was written for {member} {found}, not {wanted}")
            }
            Self::Dictionary { stem } => {
                write!(f, "`{stem}.dict.offsets.bin` does not fit `{stem}.dict.bin`")
            }
            Self::Books(problem) => write!(f, "its manifest cannot be understood: {problem}"),
            Self::Unaccounted => {
                f.write_str("it is sealed, but no log and no manifest tells its place")
            }
            Self::Sentinel => f.write_str("its `_COMPLETE` contradicts its manifest"),
            Self::BeyondLog { logged } => {
                write!(f, "the log of its partition ends after {logged} shards")
            }
        }
    }
}

/// ", part 3 of it", where a source row has become several rows.
struct SubRow(u64);

impl Display for SubRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, ", part {n}"),
        }
    }
}

impl ShardError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Storage(error) => return error.hint().map(str::to_owned),
            Self::Schema(error) => return error.hint().map(str::to_owned),
            Self::RowTooLarge { .. } => {
                "raise `max_row_bytes` in [dataset], or drop such rows before".to_owned()
            }
            Self::Damaged { slot, shard, damage: Damage::Foreign { .. } } => format!(
                "a cache key and a slot name everything that decides a partition's rows: take \
                 others, or delete `work/open/{slot}/{shard}` to write its rows anew"
            ),
            Self::Damaged {
                slot,
                damage: Damage::BeyondLog { .. } | Damage::Unaccounted | Damage::Sentinel,
                ..
            }
            | Self::Lost { slot, .. } => format!(
                "the folder was changed since; delete `work/open/{slot}` and \
                 `work/log/{slot}.jsonl`, and run again: the partition is then built anew"
            ),
            Self::Damaged { slot, shard, .. } => format!(
                "the shard was changed after it was written; delete `work/open/{slot}/{shard}` \
                 and run again: its rows are then written anew"
            ),
            Self::Batch(_) | Self::Limits(_) | Self::Index { .. } | Self::Stopped { .. } => {
                return None;
            }
        })
    }
}

/// Why an open shard cannot be continued, where its name is not known.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is not what was committed.
    Damage(Damage),
    /// Something else failed.
    Error(ShardError),
}

impl Fault {
    /// The error, with the name of the shard.
    pub(super) fn at(self, slot: &str, shard: u64) -> ShardError {
        match self {
            Self::Damage(damage) => ShardError::Damaged { slot: slot.to_owned(), shard, damage },
            Self::Error(error) => error,
        }
    }
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl<E: Into<ShardError>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}
