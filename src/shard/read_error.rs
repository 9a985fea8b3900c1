//! What can go wrong when a sealed shard is read.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::remote_sentinel::dataset_url;
use crate::schema::{Kind, SchemaError};
use crate::storage::{StorageError, is_elsewhere};

/// A shard cannot be read, or not as it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refused to read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The folder has no `_COMPLETE`.
    #[error("`{}` is no sealed shard: it has no _COMPLETE", path.display())]
    NotSealed {
        /// The folder.
        path: PathBuf,
    },
    /// Field files were removed after they had been pushed.
    #[error("the rows of shard `{}` are only at `{url}`", path.display())]
    Remote {
        /// The folder.
        path: PathBuf,
        /// The shard's folder in the store.
        url: String,
    },
    /// A field was asked for as a whole where its files cannot be mapped.
    #[error("the fields of shard `{}` cannot be mapped from where it is", path.display())]
    Unmapped {
        /// The folder.
        path: PathBuf,
    },
    /// A file that the sentinel covers is not there.
    #[error("`{}` is missing", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file does not hold what the format promises.
    #[error("`{}`: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The schema is of a kind that this version does not read, or rows cannot be shown as Arrow.
    #[error("`{}`", path.display())]
    Schema {
        /// The file or shard.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: SchemaError,
    },
    /// A row was asked for that the shard does not have.
    #[error("there is no row {row}: the shard has {n_rows} rows")]
    NoRow {
        /// What was asked.
        row: u64,
        /// Rows from 0 up to this.
        n_rows: u64,
    },
    /// A field was asked for that rows do not have.
    #[error("there is no field `{field}`")]
    NoField {
        /// What was asked.
        field: String,
        /// The fields that are there.
        known: Vec<String>,
    },
    /// A field was asked for something that its kind does not have.
    #[error("field `{field}` of kind {} has no {asked}", kind.name())]
    OtherKind {
        /// The field.
        field: String,
        /// Its kind.
        kind: Kind,
        /// What was asked.
        asked: &'static str,
    },
    /// A buffer that does not hold the rows asked for.
    #[error("{n_rows} rows of field `{field}` are {want} bytes, the buffer has {got}")]
    BufferSize {
        /// The field.
        field: String,
        /// Rows asked for.
        n_rows: usize,
        /// Bytes that they have.
        want: usize,
        /// Bytes of the buffer.
        got: usize,
    },
    /// A key was looked up where rows have none, or one of the other type.
    #[error("{0}")]
    NoKey(&'static str),
}

/// How the rows of the shard in the folder `path`, `<out>/<name>/<cache key>/shards/<id>`, come back
/// from `url`.
fn remedy(path: &Path, url: &str) -> String {
    let out = path.ancestors().nth(4).filter(|out| !out.as_os_str().is_empty());
    let out = out.unwrap_or(Path::new("."));
    let url = dataset_url(url);
    format!("`rowmill pull {url} {}` brings them back", out.display())
}

/// What is said of a lookup where there are no keys.
pub(super) const ROWS_HAVE_NO_KEY: &str = "rows have no key";

/// What is to be done about a shard that a store has lost.
pub(crate) const LOST_ELSEWHERE: &str = "push the dataset again from a machine that has the shard's rows; where none has, remove its folder \
     from `shards/` on a machine and run the pipeline there and push: it is built and sent anew";

/// What is to be done about damage in a store.
pub(crate) const DAMAGED_ELSEWHERE: &str = "`rowmill verify URL` tells what is damaged; push the dataset again with `--replace`, from where \
     it is whole";

impl ReadError {
    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Storage(e) => e.hint()?,
            Self::NotSealed { path } if is_elsewhere(path) => LOST_ELSEWHERE,
            Self::NotSealed { .. } => "run the build again: it finishes what it had begun",
            Self::Remote { path, url } => return Some(remedy(path, url)),
            Self::Unmapped { .. } => {
                "choose rows with `select`, `scan` or `read_rows`, or load all into memory"
            }
            Self::Missing { path } | Self::Damaged { path, .. } if is_elsewhere(path) => {
                DAMAGED_ELSEWHERE
            }
            Self::Missing { .. } | Self::Damaged { .. } => {
                "`rowmill verify` tells what is damaged; remove the shard and build or pull again"
            }
            Self::Schema { source, .. } => source.hint()?,
            Self::NoField { known, .. } => {
                return Some(format!("the fields are {}", known.join(", ")));
            }
            Self::NoKey(ROWS_HAVE_NO_KEY) => "name a column as `key` in [dataset] and run again",
            Self::NoRow { .. }
            | Self::OtherKind { .. }
            | Self::BufferSize { .. }
            | Self::NoKey(_) => return None,
        };
        Some(text.to_owned())
    }

    pub(super) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), what: what.into() }
    }

    /// `error`, met at a file that must be there.
    pub(super) fn at(error: StorageError) -> Self {
        if error.source.kind() == ErrorKind::NotFound {
            Self::Missing { path: error.path }
        } else {
            Self::Storage(error)
        }
    }
}
