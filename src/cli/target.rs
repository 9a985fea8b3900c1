//! The dataset that a path or a definition means, for commands that look at folders from outside.

use std::path::Path;
use std::time::{Duration, SystemTime};

use arrow_array::temporal_conversions::as_datetime;
use arrow_array::types::TimestampMillisecondType;
use indicatif::HumanDuration;
use serde_json::Value;

use super::output::CliError;
use crate::config::Registry;
use crate::dataset::survey::Located;
use crate::dataset::{Home, RunNote};
use crate::pipeline::{Pipeline, RunOverrides};
use crate::storage::{Local, Storage};

/// What a path on the command line means.
pub(super) struct Target {
    /// All cache keys of the dataset.
    pub(super) located: Located,
    /// The cache key that is asked for.
    pub(super) home: Home,
    /// The definition's own JSON, where the path is one.
    pub(super) definition: Option<Value>,
}

impl Target {
    /// Takes a `.toml` file for a definition, anything else for a folder.
    pub(super) fn of(path: &Path, registry: Registry) -> Result<Self, CliError> {
        if path.extension().is_some_and(|ext| ext == "toml") {
            return Ok(Self::of_pipeline(&Pipeline::load(
                path,
                &RunOverrides::default(),
                registry,
            )?));
        }
        Self::in_storage(&Local, path)
    }

    /// Takes a path for a folder of `storage`.
    pub(super) fn in_storage(storage: &dyn Storage, path: &Path) -> Result<Self, CliError> {
        let located = Located::at(storage, path).map_err(|e| CliError::reading(e.into()))?;
        let home = located.home(storage).map_err(|e| CliError::reading(e.into()))?;
        Ok(Self { located, home, definition: None })
    }

    pub(super) fn of_pipeline(pipeline: &Pipeline) -> Self {
        let home = pipeline.home().clone();
        let definition = Some(pipeline.definition_json().clone());
        Self { located: Located::of(&home), home, definition }
    }
}

/// "3 minutes ago"; nothing where the time is not known.
pub(super) fn ago(time: Option<SystemTime>) -> String {
    age(time).map(|age| format!("{} ago", HumanDuration(age))).unwrap_or_default()
}

/// How long ago a time was.
pub(super) fn age(time: Option<SystemTime>) -> Option<Duration> {
    Some(SystemTime::now().duration_since(time?).unwrap_or_default())
}

/// A time as documents have it: ISO 8601, in UTC.
pub(super) fn iso(time: Option<SystemTime>) -> Option<String> {
    let ms = i64::try_from(RunNote::milliseconds(time?)).ok()?;
    Some(as_datetime::<TimestampMillisecondType>(ms)?.and_utc().to_rfc3339())
}
