//! The log of a partition: a line per sealed shard.
//!
//! Invariants:
//! 1. What the log says when it has been opened is durable, and nothing stands behind it.
//! 2. A shard's line is written once, after its sentinel is durable.

use std::path::{Path, PathBuf};

use super::error::ShardError;
use super::log;
use super::manifest::{LogEntry, Next};
use crate::storage::{AppendFile, Storage, parent};

/// The sealed shards of a partition, in order.
#[derive(Debug)]
pub(super) struct PartitionLog {
    path: PathBuf,
    entries: Vec<LogEntry>,
    file: Option<Box<dyn AppendFile>>,
}

impl PartitionLog {
    /// Reads the log at `path`, and cuts off what does not count.
    pub(super) fn open(storage: &dyn Storage, path: &Path) -> Result<Self, ShardError> {
        let mut this = Self { path: path.to_owned(), entries: Vec::new(), file: None };
        if let Some(bytes) = storage.read(path)? {
            let read = read_entries(&bytes);
            let mut file = storage.open_append(path, read.valid_bytes)?;
            file.sync()?;
            storage.sync_dir(parent(path))?;
            this.entries = read.lines;
            this.file = Some(file);
        }
        Ok(this)
    }

    /// The lines.
    pub(super) fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    /// Whether the partition has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.entries.last().is_some_and(|entry| entry.cut.next == Next::END)
    }

    /// Writes a line.
    pub(super) fn append(
        &mut self,
        storage: &dyn Storage,
        entry: LogEntry,
    ) -> Result<(), ShardError> {
        let mut file = if let Some(file) = self.file.take() {
            file
        } else {
            let file = storage.create(&self.path)?;
            storage.sync_dir(parent(&self.path))?;
            file
        };
        file.append(&log::line(&entry))?;
        file.sync()?;
        self.file = Some(file);
        self.entries.push(entry);
        Ok(())
    }
}

/// The lines of a log that count.
pub(super) fn read_entries(bytes: &[u8]) -> log::Lines<LogEntry> {
    let mut ended = false;
    log::read(bytes, |n, entry: LogEntry| {
        let counts = entry.seq == n as u64 && !ended;
        ended |= entry.cut.next == Next::END;
        counts.then_some(entry)
    })
}
