//! Carries commits out while the writer goes on.
//!
//! Leaves out: what is committed (`open`).
//!
//! Invariants:
//! 1. A line is appended to the manifest only after every file it speaks of was synced.
//! 2. At most one commit is under way. Its outcome is taken before the next one starts, before a
//!    shard is sealed, and before a writer says that something is durable.
//! 3. After a failure no line is appended any more: the manifest's handle is gone.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use crate::storage::{AppendFile, Overlap, Result, StorageError, SyncFile};

/// One commit.
#[derive(Debug)]
pub(super) struct Job {
    /// The files that grew.
    pub(super) files: Vec<Box<dyn SyncFile>>,
    /// The line that commits them.
    pub(super) line: Vec<u8>,
    /// Rows of the partition up to it.
    pub(super) rows: u64,
}

impl Job {
    fn run(mut self, manifest: &mut dyn AppendFile) -> Result<u64> {
        for file in &mut self.files {
            file.sync()?;
        }
        manifest.append(&self.line)?;
        manifest.sync()?;
        Ok(self.rows)
    }
}

type Manifest = Box<dyn AppendFile>;

/// Where a commit is carried out.
#[derive(Debug)]
pub(super) struct Committer {
    overlap: Overlap,
    /// The manifest of the open shard, unless a commit has it.
    manifest: Option<Manifest>,
    late: Option<Job>,
    lane: Option<Lane>,
    under_way: bool,
}

/// A thread that carries commits out.
#[derive(Debug)]
struct Lane {
    jobs: Option<SyncSender<(Job, Manifest)>>,
    outcomes: Receiver<Result<(u64, Manifest)>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn new(overlap: Overlap) -> Self {
        Self { overlap, manifest: None, late: None, lane: None, under_way: false }
    }

    /// Commits go to this manifest from now on.
    pub(super) fn attach(&mut self, manifest: Manifest) {
        self.manifest = Some(manifest);
    }

    /// No commit is to come any more.
    pub(super) fn detach(&mut self) {
        self.manifest = None;
    }

    /// Starts a commit, after the one under way has ended. Gives the rows that are known to be
    /// durable by now, where that is news.
    pub(super) fn start(&mut self, job: Job) -> Result<Option<u64>> {
        let before = self.wait()?;
        match self.overlap {
            Overlap::Late => self.late = Some(job),
            Overlap::Now => return self.run(job).map(Some),
            Overlap::Thread => self.send(job)?,
        }
        Ok(before)
    }

    /// Ends the commit under way.
    pub(super) fn wait(&mut self) -> Result<Option<u64>> {
        if let Some(job) = self.late.take() {
            return self.run(job).map(Some);
        }
        if !self.under_way {
            return Ok(None);
        }
        let outcome = self.lane.as_ref().and_then(|lane| lane.outcomes.recv().ok());
        self.take(outcome.ok_or_else(lane_ended)?).map(Some)
    }

    /// Takes the outcome of the commit under way if it has ended.
    pub(super) fn poll(&mut self) -> Result<Option<u64>> {
        let Some(lane) = self.lane.as_ref().filter(|_| self.under_way) else { return Ok(None) };
        match lane.outcomes.try_recv() {
            Ok(outcome) => self.take(outcome).map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(lane_ended()),
        }
    }

    fn take(&mut self, outcome: Result<(u64, Manifest)>) -> Result<u64> {
        self.under_way = false;
        let (rows, manifest) = outcome?;
        self.manifest = Some(manifest);
        Ok(rows)
    }

    fn run(&mut self, job: Job) -> Result<u64> {
        let mut manifest = self.manifest.take().ok_or_else(lane_ended)?;
        let rows = job.run(&mut *manifest)?;
        self.manifest = Some(manifest);
        Ok(rows)
    }

    fn send(&mut self, job: Job) -> Result<()> {
        let manifest = self.manifest.take().ok_or_else(lane_ended)?;
        if self.lane.is_none() {
            self.lane = Some(Lane::start()?);
        }
        let jobs = self.lane.as_ref().and_then(|lane| lane.jobs.as_ref());
        let sent = jobs.and_then(|jobs| jobs.send((job, manifest)).ok());
        self.under_way = sent.is_some();
        sent.ok_or_else(lane_ended)
    }
}

impl Lane {
    fn start() -> Result<Self> {
        let (jobs, todo) = sync_channel::<(Job, Manifest)>(1);
        let (done, outcomes) = sync_channel(1);
        let work = move || {
            for (job, mut manifest) in todo {
                let outcome = job.run(&mut *manifest).map(|rows| (rows, manifest));
                if done.send(outcome).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("rowmill-commit".to_owned())
            .spawn(work)
            .map_err(|e| StorageError::new("start a thread for", "manifest.jsonl", e))?;
        Ok(Self { jobs: Some(jobs), outcomes, thread: Some(thread) })
    }
}

impl Drop for Lane {
    /// Lets the commit under way end: nobody must find its files changing later.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was a bug that has already been printed.
            drop(thread.join());
        }
    }
}

/// An earlier commit failed and took the manifest's handle with it.
fn lane_ended() -> StorageError {
    let ended = std::io::Error::other("an earlier commit failed");
    StorageError::new("append to", "manifest.jsonl", ended)
}
