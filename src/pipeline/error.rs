//! Why a run ended without a dataset, what to do about it, and the exit code that says so.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::batch::{BadRow, Behind};
use crate::books::OverBudget;
use crate::cache::CacheError;
use crate::config::ConfigErrors;
use crate::dataset::DatasetError;
use crate::dataset::plan::PlanError;
use crate::exporters::PushError;
use crate::graph::{Failed, LinkError};
use crate::inputs::RowPlace;
use crate::remote::{RemoteError, RemoteErrorKind, remote_cause, shown};
use crate::schema::SchemaError;
use crate::shard::{ReadError, ShardError};
use crate::sources::input::Folder;
use crate::sources::{SettingsError, SourceError};
use crate::storage::StorageError;
use crate::transforms::{HookError, TransformError};

/// What the commands fail with.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The definition is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A stage refuses its settings or its input's columns.
    #[error("stage `{stage}`: {message}")]
    Stage {
        /// The stage.
        stage: String,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The columns that reach the dataset cannot be stored as the definition says.
    #[error("dataset: {0}")]
    Schema(SchemaError),
    /// The source matches nothing.
    #[error("source `{source_name}` matches no input below `{}`", shown(&root.to_string_lossy()))]
    NoInput {
        /// The source.
        source_name: String,
        /// Its root.
        root: PathBuf,
    },
    /// The bound cannot be kept.
    #[error("memory = {given} cannot hold {jobs} at once: that may take {needed}")]
    Memory {
        /// What was given, for people.
        given: String,
        /// "1 partition", "2 partitions".
        jobs: String,
        /// What it takes, for people, down to the byte.
        needed: String,
        /// What to do.
        hint: String,
    },
    /// The disk is too small.
    #[error("only {free} are free in `{}`, and the dataset may take {needed}", path.display())]
    Space {
        /// The folder.
        path: PathBuf,
        /// What is free, for people.
        free: String,
        /// What may be needed, for people.
        needed: String,
    },
    /// Planning could not read the inputs.
    #[error("source `{stage}`")]
    Source {
        /// The source.
        stage: String,
        /// What it says.
        #[source]
        source: SourceError,
    },
    /// A file that decides what a hook computes could not be read.
    #[error("file of transform `{stage}`")]
    HookFile {
        /// The transform.
        stage: String,
        /// What the disk says.
        #[source]
        source: SourceError,
    },
    /// A stage failed while rows went through it.
    #[error(transparent)]
    Run(Box<Failed<StageError>>),
    /// The inputs cannot be divided.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The dataset's folder could not be read or written.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A feature cache cannot be opened, read or written.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An object store could not be reached, or refused.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A push found something else than it should; what else can go wrong with one is above and below.
    #[error(transparent)]
    Push(PushError),
    /// The dataset was built, and is not where it was to be pushed.
    #[error("`{dataset}` is complete, and was not pushed")]
    NotPushed {
        /// The dataset's folder.
        dataset: String,
        /// Why not.
        #[source]
        source: Box<PipelineError>,
    },
    /// The async runtime could not do its part.
    #[error("the system refused a thread, a timer or a signal handler")]
    Runtime(#[source] std::io::Error),
    /// A value could not be shown.
    #[error("cannot show a value")]
    Show(#[source] arrow_schema::ArrowError),
    /// More rows were rejected than may be; what is finished of the dataset stays.
    #[error("{over}: {kinds}")]
    Rejects {
        /// Where, and how many.
        over: Box<OverBudget>,
        /// The most frequent kinds with an example each, for people.
        kinds: String,
        /// A file that holds some of them.
        file: String,
        /// The table of the stage.
        table: String,
    },
    /// A retry of rejects goes on alone.
    #[error("a retry of rejects was begun here and has not ended")]
    SharedRetry,
    /// Asked to stop; the same command goes on.
    #[error("stopped before the dataset was complete")]
    Stopped,
}

/// What a stage fails with while rows go through it.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Reading.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A value of one row cannot be transformed or stored.
    #[error("{place}{}", Behind(bad))]
    Row {
        /// The source row that it came from.
        place: RowPlace,
        /// What is wrong with it.
        bad: Box<BadRow>,
    },
    /// Transforming.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Writing a shard.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// Recording a partition.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Keeping what hooks have answered.
    #[error(transparent)]
    Cache(Box<CacheError>),
}

impl From<CacheError> for StageError {
    fn from(error: CacheError) -> Self {
        Self::Cache(Box::new(error))
    }
}

impl StageError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Source(error) => error.hint().map(Into::into),
            Self::Row { bad, .. } => bad.hint.clone(),
            Self::Link(error) => error.hint(),
            Self::Shard(error) => error.hint(),
            Self::Dataset(error) => error.hint(),
            Self::Cache(error) => error.hint(),
        }
    }

    /// Whether the definition is to be changed: trying again changes nothing.
    fn is_of_the_definition(&self) -> bool {
        let Self::Link(LinkError { source: TransformError::Hook(error), .. }) = self else {
            return false;
        };
        matches!(**error, HookError::Definition { .. })
    }

    /// Whether the inputs hold what the definition does not allow: trying again changes nothing.
    fn is_of_the_data(&self) -> bool {
        match self {
            Self::Row { .. }
            | Self::Source(SourceError::Invalid { .. } | SourceError::Row { .. })
            | Self::Shard(ShardError::RowTooLarge { .. })
            | Self::Dataset(DatasetError::Shard(ShardError::RowTooLarge { .. })) => true,
            Self::Source(_)
            | Self::Link(_)
            | Self::Shard(_)
            | Self::Dataset(_)
            | Self::Cache(_) => false,
        }
    }
}

impl From<Failed<StageError>> for PipelineError {
    fn from(failed: Failed<StageError>) -> Self {
        Self::Run(Box::new(failed))
    }
}

impl From<PushError> for PipelineError {
    fn from(error: PushError) -> Self {
        match error {
            PushError::Storage(error) => Self::Storage(error),
            PushError::Dataset(error) => Self::Dataset(error),
            PushError::Remote(error) => Self::Remote(error),
            PushError::Runtime(error) => Self::Runtime(error),
            PushError::Stopped => Self::Stopped,
            error => Self::Push(error),
        }
    }
}

impl PipelineError {
    /// The file of a hook at `path` could not be read.
    pub(super) fn hook_file(stage: &str, folder: &Folder, source: SourceError) -> Self {
        let source = match source {
            SourceError::Io { path, source } if source.kind() == ErrorKind::NotFound => {
                let hint = folder.like(&path).map(|near| format!("did you mean `{near}`?"));
                SourceError::Listing { path, message: "is not there".to_owned(), hint }
            }
            other => other,
        };
        Self::HookFile { stage: stage.to_owned(), source }
    }

    pub(super) fn settings(stage: &str, error: SettingsError) -> Self {
        Self::Stage { stage: stage.to_owned(), message: error.message, hint: error.hint }
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Stage { hint, .. } => hint.clone(),
            Self::Schema(error) => error.hint().map(Into::into),
            Self::NoInput { .. } => Some(
                "check `root` and `path`, or set `allow_empty = true` on the source".to_owned(),
            ),
            Self::Memory { hint, .. } => Some(hint.clone()),
            Self::Space { .. } => {
                Some("free some space, or let it go to a folder on another disk".to_owned())
            }
            Self::Source { source, .. } => source.hint().map(Into::into),
            Self::HookFile { source, .. } => Some(source.hint().map_or_else(
                || "files of hooks stand in the folder of the definition, or below it".to_owned(),
                Into::into,
            )),
            Self::Run(failed) => match &**failed {
                Failed::Cause { source, .. } => source.hint(),
                failed => failed.hint().map(Into::into),
            },
            Self::Plan(error) => error.hint().map(Into::into),
            Self::Dataset(error) => error.hint(),
            Self::Storage(error) => error.hint().map(Into::into),
            Self::Cache(error) => error.hint(),
            Self::Remote(error) => error.hint().map(Into::into),
            Self::Push(error) => error.hint(),
            Self::NotPushed { source, .. } => source.hint(),
            Self::Rejects { file, table, .. } => Some(format!(
                "they are kept, as in `{file}`; mend the inputs, or raise `max_rejects` in {table} \
                 and run again: what is built is not built again"
            )),
            Self::SharedRetry => Some(
                "run the same command without `--at` first: what others have built is of before"
                    .to_owned(),
            ),
            Self::Stopped => Some("run the same command again; it goes on from there".to_owned()),
            Self::Config(_) | Self::Runtime(_) | Self::Show(_) => None,
        }
    }

    /// Whether an input is not what was listed.
    pub(super) fn is_changed_input(&self) -> bool {
        let cause = match self {
            Self::Source { source, .. } => source,
            Self::Run(failed) => match &**failed {
                Failed::Cause { source: StageError::Source(source), .. } => source,
                _ => return false,
            },
            _ => return false,
        };
        matches!(cause, SourceError::Changed { .. })
    }

    /// Whether the same command may succeed with the inputs that were listed.
    pub(super) fn keeps_listing(&self) -> bool {
        matches!(self.exit_code(), 1 | 75) && !self.is_changed_input()
    }

    /// What a store said, where the error is that a storage could not be read.
    #[must_use]
    pub fn of_store(self) -> Self {
        let (Self::Storage(error)
        | Self::Dataset(
            DatasetError::Storage(error) | DatasetError::Read(ReadError::Storage(error)),
        )) = &self
        else {
            return self;
        };
        match remote_cause(error) {
            Some(cause) => Self::Remote(cause.clone()),
            None => self,
        }
    }

    /// Whether what was sealed is not there, or not what it was: not to be had by trying again.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Dataset(
                DatasetError::Damaged { .. }
                    | DatasetError::Read(
                        ReadError::Damaged { .. }
                            | ReadError::Missing { .. }
                            | ReadError::NotSealed { .. }
                    )
            ) | Self::Cache(CacheError::Damaged { .. } | CacheError::Read(_))
                | Self::Push(
                    PushError::Changed { .. }
                        | PushError::Conflict { .. }
                        | PushError::Foreign { .. }
                        | PushError::NotKept { .. }
                        | PushError::Lost { .. }
                )
        ) || matches!(self, Self::Remote(error) if error.kind() == RemoteErrorKind::Damaged)
    }

    /// The exit code that tells a caller what kind of failure it is.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Stage { .. }
            | Self::Schema(_)
            | Self::NoInput { .. }
            | Self::Memory { .. }
            | Self::SharedRetry
            | Self::Cache(CacheError::Structure { .. } | CacheError::Incompatible { .. })
            | Self::Push(PushError::Elsewhere { .. })
            | Self::Source { source: SourceError::Listing { .. }, .. }
            | Self::HookFile { source: SourceError::Listing { .. }, .. }
            | Self::Dataset(
                DatasetError::NoDataset { .. }
                | DatasetError::NoRow { .. }
                | DatasetError::NoSuchKey { .. }
                | DatasetError::Read(ReadError::NoField { .. } | ReadError::NoKey(_)),
            ) => 2,
            Self::Rejects { .. }
            | Self::Push(PushError::Overtaken { .. } | PushError::Contradiction { .. })
            | Self::Source {
                source: SourceError::Invalid { .. } | SourceError::Row { .. }, ..
            }
            | Self::Dataset(
                DatasetError::Empty
                | DatasetError::OverBudget(_)
                | DatasetError::DuplicateKey { .. },
            ) => 3,
            Self::Run(failed) => match &**failed {
                Failed::Cause { source, .. } if source.is_of_the_definition() => 2,
                Failed::Cause { source, .. } if source.is_of_the_data() => 3,
                _ => 1,
            },
            Self::Remote(error) => match error.kind() {
                RemoteErrorKind::Url
                | RemoteErrorKind::PlainHttp
                | RemoteErrorKind::Setup
                | RemoteErrorKind::Unsupported => 2,
                _ => 1,
            },
            Self::Push(PushError::Lost { .. }) => 4,
            Self::NotPushed { source, .. } if source.is_damage() => 4,
            Self::NotPushed { source, .. } => source.exit_code(),
            Self::Stopped => 75,
            _ => 1,
        }
    }
}
