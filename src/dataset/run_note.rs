//! `work/run.json`: what the last run set out to do, for those who look at it from outside.
//!
//! Leaves out: how far it came, which logs and records tell.
//!
//! Invariant: nothing that is built depends on it. A note that cannot be read is none.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::Result;
use super::home::{Home, Workplace};
use crate::storage::Storage;

/// What a run knew when it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunNote {
    /// When it began, in milliseconds since 1970.
    pub began_ms: u64,
    /// The JSON that the cache key hashes.
    pub definition: Value,
    /// Rows that were durable then.
    pub rows_before: u64,
    /// The slots of its partitions, in dataset order.
    pub slots: Vec<String>,
}

impl RunNote {
    /// The note of the last run, `None` where there is none.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(storage: &dyn Storage, home: &Home) -> Result<Option<Self>> {
        let bytes = storage.read(&home.run_note())?.unwrap_or_default();
        Ok(serde_json::from_slice(&bytes).ok())
    }

    /// Puts it in place of the last one.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, place: &Workplace) -> Result<()> {
        // Text and numbers into memory: this cannot fail.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        Ok(place.storage().write_atomic(&place.home().run_note(), &bytes)?)
    }

    /// When the run began.
    #[must_use]
    pub fn began(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.began_ms)
    }

    /// A time as the note has it.
    #[must_use]
    pub fn milliseconds(time: SystemTime) -> u64 {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
