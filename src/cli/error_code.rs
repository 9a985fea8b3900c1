//! Which error has which code.
//!
//! Leaves out: what a code means (`codes`).

use std::io::ErrorKind;

use super::output::CliError;
use crate::cache::CacheError;
use crate::codes::Code;
use crate::config::ConfigError;
use crate::dataset::DatasetError;
use crate::exporters::PushError;
use crate::graph::Failed;
use crate::pipeline::{PipelineError, StageError};
use crate::remote::{RemoteError, RemoteErrorKind};
use crate::shard::{ReadError, ShardError};
use crate::sources::SourceError;
use crate::storage::StorageError;
use crate::transforms::{HookError, TransformError};

impl CliError {
    /// The code that tells what kind of error it is.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Pipeline(error) | Self::Reading(error) => of_pipeline(error),
            Self::Damaged { .. } => Code::DamageFound,
            Self::Unreadable { kind, .. } => of_kind(*kind),
            Self::InputsUnreadable { .. } => Code::InputUnreadable,
            Self::InputsDiffer { .. } => Code::InputsDiffer,
            Self::TestsFailed { .. } => Code::TestFailed,
            Self::Usage { .. } => Code::Usage,
            Self::Print(_) => Code::PrintFailed,
        }
    }
}

fn of_pipeline(error: &PipelineError) -> Code {
    match error {
        PipelineError::Config(errors) => {
            errors.errors().first().map_or(Code::DefinitionValue, ConfigError::code)
        }
        PipelineError::Stage { .. }
        | PipelineError::HookFile { source: SourceError::Listing { .. }, .. } => {
            Code::StageSettings
        }
        PipelineError::Schema(_) => Code::DatasetSchema,
        PipelineError::NoInput { .. } => Code::SourceNoInput,
        PipelineError::Memory { .. } => Code::MemoryTooSmall,
        PipelineError::Space { .. } => Code::DiskTooSmall,
        PipelineError::Source { source, .. } | PipelineError::HookFile { source, .. } => {
            of_source(source)
        }
        PipelineError::Run(failed) => match &**failed {
            Failed::Cause { source, .. } => of_stage(source),
            Failed::Panicked { .. } | Failed::NoThread { .. } | Failed::Unexplained { .. } => {
                Code::StageEnded
            }
        },
        PipelineError::Plan(_) => Code::InputsDivided,
        PipelineError::Dataset(error) => of_dataset(error),
        PipelineError::Storage(error) => of_storage(error),
        PipelineError::Cache(error) => of_cache(error),
        PipelineError::Remote(error) => of_remote(error),
        PipelineError::Push(error) => of_push(error),
        PipelineError::NotPushed { source, .. } => of_pipeline(source),
        PipelineError::Runtime(_) => Code::SystemRefused,
        PipelineError::Show(_) => Code::ValueNotShown,
        PipelineError::Rejects { .. } => Code::TooManyRejects,
        PipelineError::SharedRetry => Code::Usage,
        PipelineError::Stopped => Code::Stopped,
    }
}

fn of_stage(error: &StageError) -> Code {
    match error {
        StageError::Source(error) => of_source(error),
        StageError::Row { bad, .. } => of_row(bad.code),
        StageError::Link(error) => match &error.source {
            TransformError::Row { bad, .. } => of_row(bad.code),
            TransformError::Hook(error) => of_hook(error),
            TransformError::Failed { .. } => Code::TransformFailed,
            TransformError::Cache(error) => of_cache(error),
            TransformError::Arrow(_) => Code::BatchRefused,
            TransformError::Stopped(_) => Code::Stopped,
        },
        StageError::Shard(error) => of_shard(error),
        StageError::Dataset(error) => of_dataset(error),
        StageError::Cache(error) => of_cache(error),
    }
}

fn of_hook(error: &HookError) -> Code {
    match error {
        HookError::Start { .. }
        | HookError::Setup { .. }
        | HookError::Never { .. }
        | HookError::Together { .. } => Code::HookFailed,
        HookError::Definition { .. } => Code::StageSettings,
        HookError::Garbled { .. } | HookError::Misfit { .. } => Code::HookAnswer,
    }
}

/// The code of a bad row, where the table knows it.
fn of_row(code: &str) -> Code {
    Code::from_name(code).unwrap_or(Code::RowRefused)
}

fn of_source(error: &SourceError) -> Code {
    match error {
        SourceError::Io { .. } => Code::InputUnreadable,
        SourceError::Remote(error) => of_remote(error),
        SourceError::Row { bad, .. } => of_row(bad.code),
        SourceError::Invalid { .. } => Code::InputInvalid,
        SourceError::Changed { .. } => Code::InputChanged,
        SourceError::Listing { .. } => Code::SourceListing,
        SourceError::Arrow(_) => Code::BatchRefused,
    }
}

fn of_dataset(error: &DatasetError) -> Code {
    match error {
        DatasetError::Storage(error) => of_storage(error),
        DatasetError::Shard(error) => of_shard(error),
        DatasetError::Read(error) => of_read(error),
        DatasetError::Name { .. } => Code::DatasetName,
        DatasetError::Busy { .. } => Code::DatasetBusy,
        DatasetError::NotALink { .. } => Code::CurrentNotALink,
        DatasetError::NoDataset { .. } => Code::NoDataset,
        DatasetError::Damaged { .. } => Code::DatasetDamaged,
        DatasetError::Version { .. } => Code::VersionUnknown,
        DatasetError::Unfinished { .. } | DatasetError::Digests { .. } => Code::Internal,
        DatasetError::Unbalanced { .. } | DatasetError::Counts { .. } => Code::BooksOpen,
        DatasetError::OverBudget(_) => Code::TooManyRejects,
        DatasetError::NoSuchKey { .. } => Code::NoSuchKey,
        DatasetError::Cast { .. } => Code::ReadMisuse,
        DatasetError::TooLarge { .. } => Code::DatasetTooLarge,
        DatasetError::Empty => Code::DatasetEmpty,
        DatasetError::DuplicateKey { .. } => Code::DuplicateKey,
        DatasetError::NoRow { .. } => Code::NoSuchRow,
    }
}

fn of_cache(error: &CacheError) -> Code {
    match error {
        CacheError::Storage(error) => of_storage(error),
        CacheError::Write(error) => of_shard(error),
        CacheError::Busy { .. } => Code::CacheBusy,
        CacheError::Damaged { .. } | CacheError::Read(_) => Code::CacheDamaged,
        CacheError::Schema(_)
        | CacheError::Incompatible { .. }
        | CacheError::Structure { .. }
        | CacheError::Cast { .. } => Code::CacheMisfit,
        CacheError::InUse { .. }
        | CacheError::Count { .. }
        | CacheError::NoKey { .. }
        | CacheError::TooLarge { .. }
        | CacheError::Stopped { .. } => Code::Internal,
    }
}

fn of_shard(error: &ShardError) -> Code {
    match error {
        ShardError::Storage(error) => of_storage(error),
        ShardError::Schema(_) => Code::DatasetSchema,
        ShardError::RowTooLarge { .. } => Code::RowTooLarge,
        ShardError::Damaged { .. } => Code::OpenShardDamaged,
        ShardError::Lost { .. } => Code::ShardLost,
        ShardError::Index { .. } => Code::IndexFailed,
        ShardError::Batch(_) | ShardError::Limits(_) | ShardError::Stopped { .. } => Code::Internal,
    }
}

fn of_read(error: &ReadError) -> Code {
    match error {
        ReadError::Storage(error) => of_storage(error),
        ReadError::NotSealed { .. } => Code::ShardNotSealed,
        ReadError::Remote { .. } => Code::ShardRemote,
        ReadError::Missing { .. } | ReadError::Damaged { .. } => Code::ShardDamaged,
        ReadError::Schema { .. } => Code::ShardSchema,
        ReadError::NoRow { .. } => Code::NoSuchRow,
        ReadError::NoField { .. } => Code::NoSuchField,
        ReadError::OtherKind { .. }
        | ReadError::BufferSize { .. }
        | ReadError::NoKey(_)
        | ReadError::Unmapped { .. } => Code::ReadMisuse,
    }
}

fn of_push(error: &PushError) -> Code {
    match error {
        PushError::Storage(error) => of_storage(error),
        PushError::Dataset(error) => of_dataset(error),
        PushError::Remote(error) => of_remote(error),
        PushError::Changed { .. } => Code::PushChanged,
        PushError::Conflict { .. } | PushError::Foreign { .. } => Code::PushConflict,
        PushError::NotKept { .. } => Code::PushNotKept,
        PushError::Elsewhere { .. } => Code::ShardRemote,
        PushError::Lost { .. } => Code::PushLost,
        PushError::Overtaken { .. } => Code::PushOvertaken,
        PushError::Contradiction { .. } => Code::PushContradiction,
        PushError::Busy { .. } | PushError::AtWork { .. } => Code::PushBusy,
        PushError::Stopped => Code::Stopped,
        PushError::Runtime(_) => Code::SystemRefused,
    }
}

fn of_remote(error: &RemoteError) -> Code {
    match error.kind() {
        RemoteErrorKind::Url => Code::RemoteUrl,
        RemoteErrorKind::PlainHttp => Code::RemotePlainHttp,
        RemoteErrorKind::Setup => Code::RemoteSetup,
        RemoteErrorKind::NoBucket => Code::RemoteNoBucket,
        RemoteErrorKind::NotFound => Code::RemoteNotFound,
        RemoteErrorKind::NoUpload => Code::RemoteUploadLost,
        RemoteErrorKind::Denied => Code::RemoteDenied,
        RemoteErrorKind::Credentials => Code::RemoteCredentials,
        RemoteErrorKind::Endpoint | RemoteErrorKind::NoTls => Code::RemoteEndpoint,
        RemoteErrorKind::Full => Code::DiskFull,
        RemoteErrorKind::Clock => Code::RemoteClock,
        RemoteErrorKind::Throttled => Code::RemoteThrottled,
        RemoteErrorKind::Network => Code::RemoteNetwork,
        RemoteErrorKind::Exists | RemoteErrorKind::Changed | RemoteErrorKind::Conflict => {
            Code::RemoteExists
        }
        RemoteErrorKind::Unsupported => Code::RemoteUnsupported,
        RemoteErrorKind::Server | RemoteErrorKind::Other => Code::RemoteServer,
        RemoteErrorKind::Damaged => Code::RemoteDamaged,
    }
}

fn of_storage(error: &StorageError) -> Code {
    of_kind(error.source.kind())
}

fn of_kind(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::DiskFull,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::DiskPermission,
        _ => Code::DiskError,
    }
}
