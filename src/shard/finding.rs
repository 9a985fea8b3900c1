//! What `verify` finds.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use crate::storage::StorageError;

/// A part of a file that one number of `blocks.bin` guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Number of the block in the file, from 0.
    pub index: u64,
    /// Blocks of the whole file.
    pub n_blocks: u64,
    /// The bytes of the file that it holds.
    pub bytes: Range<u64>,
}

/// One thing that is not as it was sealed: what, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, or the shard's folder.
    pub path: PathBuf,
    /// The block of the file, where it is known.
    pub block: Option<Block>,
    /// What is wrong.
    pub kind: FindingKind,
}

/// What can be wrong with a sealed shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindingKind {
    /// The folder has no sentinel.
    NotSealed,
    /// The rows are only at this URL, where they can be checked.
    Remote(String),
    /// A file that belongs here is gone.
    Missing,
    /// A file that does not belong here.
    Unexpected,
    /// The file has another size than it was sealed with.
    Size {
        /// Bytes that it has.
        got: u64,
        /// Bytes that it was sealed with.
        want: u64,
    },
    /// Bytes were changed.
    Changed,
    /// Bytes are as they were sealed, but do not say what the format promises.
    Wrong(String),
    /// A file beside the shards is not what covers it says, or cannot be understood.
    Broken(String),
    /// There is no sentinel to begin with.
    Incomplete(String),
    /// The system refused to read: nothing is known of the bytes.
    Unreadable {
        /// What it answered.
        kind: ErrorKind,
        /// The same in words.
        what: String,
    },
}

impl Finding {
    /// What the system said when it refused to read. What is no file at all has taken the place of one.
    #[must_use]
    pub fn of_refusal(error: &StorageError) -> Self {
        let StorageError { op, path, source } = error;
        let kind = match source.kind() {
            ErrorKind::IsADirectory | ErrorKind::InvalidInput => {
                FindingKind::Broken("is not a regular file".to_owned())
            }
            kind => {
                let what = format!("the system refused to {op} it: {source}");
                FindingKind::Unreadable { kind, what }
            }
        };
        Self { path: path.clone(), block: None, kind }
    }

    /// Whether something is wrong with the bytes, as opposed to not known.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        !matches!(self.kind, FindingKind::Unreadable { .. })
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match &self.kind {
            FindingKind::NotSealed | FindingKind::Incomplete(_) => {
                "run the pipeline again: it finishes what it had begun"
            }
            FindingKind::Broken(_) => {
                "the file was changed after it was written: remove it and run the pipeline again"
            }
            FindingKind::Remote(_) => "verify it there: `rowmill verify` takes URLs",
            FindingKind::Unexpected => "move the file elsewhere: nothing reads it",
            FindingKind::Missing | FindingKind::Size { .. } | FindingKind::Changed => {
                "remove the shard's folder and run the pipeline again: it builds the same bytes"
            }
            FindingKind::Wrong(_) => {
                "the shard was sealed like this: build it again, and report it as a fault"
            }
            FindingKind::Unreadable { .. } => "check the disk and who may read the file",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path.display())?;
        if let Some(block) = &self.block {
            let (from, to) = (block.bytes.start, block.bytes.end);
            write!(f, ", block {} of {}", block.index + 1, block.n_blocks)?;
            write!(f, " (bytes {from} to {to})")?;
        }
        match &self.kind {
            FindingKind::NotSealed => write!(f, ": no sealed shard, it has no _COMPLETE"),
            FindingKind::Remote(url) => write!(f, ": its rows are only at `{url}`"),
            FindingKind::Missing => write!(f, ": is missing"),
            FindingKind::Unexpected => write!(f, ": does not belong to the shard"),
            FindingKind::Size { got, want } => {
                write!(f, ": has {got} bytes, was sealed with {want}")
            }
            FindingKind::Changed => write!(f, ": was changed since it was sealed"),
            FindingKind::Incomplete(what) => write!(f, ": no complete dataset: {what}"),
            FindingKind::Wrong(what)
            | FindingKind::Broken(what)
            | FindingKind::Unreadable { what, .. } => write!(f, ": {what}"),
        }
    }
}
