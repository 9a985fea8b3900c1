//! The plain writer: what the machine can do when nothing is checked.
//!
//! It writes files of the sizes that Rowmill has written, in as many lanes, each shard's files side
//! by side as they grow, in whole calls of 128 KiB, out of memory that holds no particular bytes.
//! As Rowmill does, it syncs what has grown each 64 MiB on a thread of its own, one sync at a time,
//! and each shard before the next. It knows no schema, sums, commits, sentinels or names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Numbers;

/// Sizes of a shard's files.
pub(crate) type Shard = Vec<u64>;

/// Bytes between two syncs: what `CommitPolicy` says by default.
const SYNC_BYTES: u64 = 64 << 20;
/// Bytes by which a shard grows at a time: a batch.
const STEP_BYTES: u64 = 4 << 20;
/// Most bytes of a call.
const CALL_BYTES: usize = 128 << 10;
const SOURCE_BYTES: usize = 32 << 20;

/// The plain writer, with the memory it writes from.
#[derive(Debug)]
pub(crate) struct Plain {
    source: Vec<u8>,
}

impl Plain {
    pub(crate) fn new() -> Self {
        let mut numbers = Numbers(1);
        let words = (0..SOURCE_BYTES / 8).flat_map(|_| numbers.next().to_le_bytes());
        Self { source: words.collect() }
    }

    /// The sizes of the files in the folder of a sealed shard.
    pub(crate) fn shard_like(dir: &Path) -> io::Result<Shard> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len())).collect()
    }

    /// Writes the shards of each lane below `dir`, and tells how long that took.
    pub(crate) fn write(&self, dir: &Path, lanes: &[Vec<Shard>]) -> io::Result<Duration> {
        let began = Instant::now();
        thread::scope(|scope| {
            let lanes = lanes.iter().enumerate().map(|(n, shards)| {
                let dir = dir.join(n.to_string());
                scope.spawn(move || self.lane(&dir, shards))
            });
            // All are started before the first is waited for.
            let lanes: Vec<_> = lanes.collect();
            lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|_| Err(ended())))
        })?;
        Ok(began.elapsed())
    }

    fn lane(&self, dir: &Path, shards: &[Shard]) -> io::Result<()> {
        // Without a buffer: who hands over a job has waited for the one before.
        let (jobs, todo) = sync_channel::<Vec<Arc<File>>>(0);
        let syncer =
            thread::spawn(move || todo.into_iter().flatten().try_for_each(|file| file.sync_data()));
        let written = shards.iter().enumerate().try_for_each(|(n, files)| {
            let dir = dir.join(n.to_string());
            fs::create_dir_all(&dir)?;
            self.shard(&dir, files, &jobs)?;
            File::open(&dir)?.sync_all()
        });
        drop(jobs);
        syncer.join().unwrap_or_else(|_| Err(ended()))?;
        written
    }

    fn shard(
        &self,
        dir: &Path,
        sizes: &[u64],
        jobs: &SyncSender<Vec<Arc<File>>>,
    ) -> io::Result<()> {
        let mut files = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            files.push((Arc::new(File::create_new(dir.join(n.to_string()))?), *size, 0));
        }
        let total: u64 = sizes.iter().sum();
        let (mut at, mut unsynced, mut from) = (0, 0, 0);
        let sync = |files: &[(Arc<File>, u64, u64)]| {
            let all = files.iter().map(|(file, ..)| Arc::clone(file)).collect();
            jobs.send(all).map_err(|_| ended())
        };
        while at < total {
            at = (at + STEP_BYTES).min(total);
            for (file, size, len) in &mut files {
                // The file's share of what the shard holds by now.
                let end = u64::try_from(u128::from(*size) * u128::from(at) / u128::from(total));
                let end = end.unwrap_or(*size);
                // Calls begin at multiples of their size, which lets the system keep large pages.
                let end = if at < total { end - end % CALL_BYTES as u64 } else { end };
                while *len < end {
                    let n = CALL_BYTES.min(usize::try_from(end - *len).unwrap_or(CALL_BYTES));
                    from = if from + n > self.source.len() { 0 } else { from };
                    (&**file).write_all(&self.source[from..from + n])?;
                    from += n;
                    *len += n as u64;
                    unsynced += n as u64;
                }
            }
            if unsynced >= SYNC_BYTES {
                sync(&files)?;
                unsynced = 0;
            }
        }
        sync(&files)?;
        // Taken only when the sync before it has ended.
        sync(&[])
    }
}

fn ended() -> io::Error {
    io::Error::other("the plain writer's thread ended")
}
