//! What can go wrong with a push.

use std::path::PathBuf;

use super::task::Ends;
use crate::dataset::DatasetError;
use crate::remote::{RemoteError, remote_cause};
use crate::storage::StorageError;

/// What every operation of a push returns.
pub type Result<T, E = PushError> = std::result::Result<T, E>;

/// A push failed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The store did not do what it was asked.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A local file is not what was sealed.
    #[error("`{}` is not what was sealed, and is not pushed", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Something else stands where an object belongs.
    #[error("`{url}` is not the file of that name: {what}")]
    Conflict {
        /// The object.
        url: String,
        /// How it differs.
        what: String,
    },
    /// An object stands in a shard's folder that is none of the shard's.
    #[error("`{url}` stands in the folder of a shard and is no file of it")]
    Foreign {
        /// The object.
        url: String,
    },
    /// The store does not have what was sent.
    #[error("`{url}` was sent and is not there as it was sent: {what}")]
    NotKept {
        /// The object.
        url: String,
        /// What was found.
        what: String,
    },
    /// A shard whose rows are not here was dropped for another place.
    #[error("the rows of shard `{}` are only at `{url}`, and not where this push goes", path.display())]
    Elsewhere {
        /// The local folder.
        path: PathBuf,
        /// The dataset that has them.
        url: String,
    },
    /// A shard whose rows are not here is not in the store any more.
    #[error("`{url}` is not there any more, and its rows are not here")]
    Lost {
        /// The shard's folder in the store.
        url: String,
        /// The local folder.
        path: PathBuf,
    },
    /// Somebody else has put a generation there since this push began, or since this generation was
    /// pushed.
    #[error("`{url}` holds generation {theirs} now, put there since the push of {ours} began")]
    Overtaken {
        /// The dataset.
        url: String,
        /// The generation that was pushed.
        ours: String,
        /// The one that is there.
        theirs: String,
    },
    /// Two machines have made other rows of the same inputs.
    #[error("`{one}` and `{other}` beside it say that the same inputs became other rows")]
    Contradiction {
        /// A record there.
        one: String,
        /// The name of another.
        other: String,
    },
    /// Another push to the same place is at work on this machine.
    #[error("another push to `{url}` is at work ({holder})")]
    Busy {
        /// The place.
        url: String,
        /// What it says of itself.
        holder: String,
    },
    /// Something is to be removed while a push is at work.
    #[error("a push to `{url}` is at work ({who}), and nothing is removed beside it")]
    AtWork {
        /// The place.
        url: String,
        /// What it says of itself.
        who: String,
    },
    /// The push was asked to stop.
    #[error("stopped before everything was pushed")]
    Stopped,
    /// The system refused a thread.
    #[error("the system refused a thread, a timer or a signal handler")]
    Runtime(#[source] std::io::Error),
}

impl Ends for PushError {
    fn stopped() -> Self {
        Self::Stopped
    }

    fn runtime(error: std::io::Error) -> Self {
        Self::Runtime(error)
    }
}

impl PushError {
    /// The store's own error, where that of a storage or a dataset holds one.
    #[must_use]
    pub fn of_store(self) -> Self {
        let cause = match &self {
            Self::Storage(error) | Self::Dataset(DatasetError::Storage(error)) => {
                remote_cause(error).cloned()
            }
            _ => None,
        };
        cause.map_or(self, Self::Remote)
    }

    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Storage(error) => error.hint()?,
            Self::Dataset(error) => return error.hint(),
            Self::Remote(error) => error.hint()?,
            Self::Changed { .. } => {
                "`rowmill verify` names every damage; remove the shard's folder, run the pipeline \
                 again, then push"
            }
            Self::Conflict { .. } => {
                "look at who put it there; `rowmill push --replace` puts the file in its place"
            }
            Self::Foreign { .. } => {
                "find out who put it there and delete it: a sentinel covers its whole folder"
            }
            Self::NotKept { .. } => "run the same command again; it sends what is missing",
            Self::Elsewhere { path, url } => {
                let out = path.ancestors().nth(4).unwrap_or(path).display();
                return Some(format!("bring them back first: `rowmill pull {url} {out}`"));
            }
            Self::Lost { path, .. } => {
                let path = path.display();
                return Some(format!(
                    "push it again from a machine that has its rows; where none has, remove `{path}` and \
                     run the pipeline again and push: it is built and sent anew"
                ));
            }
            Self::Overtaken { .. } => {
                "find out which of the two is wanted; `rowmill push --replace` lets the sentinel name \
                 this one"
            }
            Self::Contradiction { .. } => {
                "a hook answers otherwise each time it is asked: mend it and give it another `id`, or \
                 remove one of the two records, there and in `partitions/` of the machine that has it"
            }
            Self::Busy { .. } => {
                "wait until it ends or stop it; a push that was killed holds no lock"
            }
            Self::AtWork { .. } => {
                "run the same command again when it has ended; a push that was killed counts for an hour"
            }
            Self::Stopped => "run the same command again; it goes on from there",
            Self::Runtime(_) => "raise the limit of processes (`ulimit -u`)",
        };
        Some(hint.to_owned())
    }
}
