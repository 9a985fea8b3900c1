//! What can go wrong with a pull.

use std::path::PathBuf;

use super::task::Ends;
use crate::dataset::DatasetError;
use crate::remote::{RemoteError, remote_cause};
use crate::shard::ReadError;
use crate::storage::StorageError;

/// A pull ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The disk failed.
    #[error(transparent)]
    Storage(StorageError),
    /// What is there is no dataset, or the folder cannot take one.
    #[error(transparent)]
    Dataset(DatasetError),
    /// The store refused, or what came from it is not what was pushed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Shards were asked for that the dataset does not have.
    #[error("there is no shard {number}: there are {n_shards}, counted from 0")]
    NoShard {
        /// The number asked for.
        number: usize,
        /// How many there are.
        n_shards: usize,
    },
    /// The disk has no room for what is to come.
    #[error("only {free} bytes are free in `{}`, and {needed} are to be pulled", path.display())]
    Space {
        /// The folder.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are to come.
        needed: u64,
    },
    /// The pull was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The system refused a thread.
    #[error("the system refused a thread or a timer")]
    Runtime(#[source] std::io::Error),
}

impl Ends for PullError {
    fn stopped() -> Self {
        Self::Stopped
    }

    fn runtime(error: std::io::Error) -> Self {
        Self::Runtime(error)
    }
}

impl From<StorageError> for PullError {
    fn from(error: StorageError) -> Self {
        match remote_cause(&error) {
            Some(remote) => Self::Remote(remote.clone()),
            None => Self::Storage(error),
        }
    }
}

impl From<ReadError> for PullError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Storage(error) => error.into(),
            error => Self::Dataset(error.into()),
        }
    }
}

impl From<DatasetError> for PullError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Storage(error) => error.into(),
            DatasetError::Read(error) => error.into(),
            error => Self::Dataset(error),
        }
    }
}
