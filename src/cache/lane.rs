//! Carries writes out while rows are computed.
//!
//! Invariants:
//! 1. At most one write is under way; its outcome is taken before the next one starts.
//! 2. After a failure the store is gone, and nothing is written any more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use super::error::{CacheError, Result};
use super::store::{Block, Store};
use crate::schema::RowSchema;
use crate::storage::{Overlap, StorageError};

/// Rows that are to be made durable together.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) schema: Arc<RowSchema>,
    pub(super) blocks: Vec<Arc<Block>>,
}

type Outcome = Result<Box<Store>>;

/// Where writes are carried out.
#[derive(Debug)]
pub(super) struct Lane {
    overlap: Overlap,
    section: String,
    /// Unless a write has it, or one has failed.
    store: Option<Box<Store>>,
    late: Option<Job>,
    worker: Option<Worker>,
    is_under_way: bool,
}

#[derive(Debug)]
struct Worker {
    jobs: Option<SyncSender<(Job, Box<Store>)>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

fn run(job: &Job, mut store: Box<Store>) -> Outcome {
    store.commit(&job.schema, &job.blocks)?;
    Ok(store)
}

impl Lane {
    pub(super) fn new(overlap: Overlap, section: &str, store: Store) -> Self {
        let section = section.to_owned();
        let store = Some(Box::new(store));
        Self { overlap, section, store, late: None, worker: None, is_under_way: false }
    }

    /// Starts a write, after the one under way has ended.
    pub(super) fn start(&mut self, job: Job) -> Result<()> {
        self.wait()?;
        match self.overlap {
            Overlap::Now => {
                let store = self.take()?;
                self.store = Some(run(&job, store)?);
            }
            Overlap::Late => {
                self.late = Some(job);
            }
            Overlap::Thread => {
                let store = self.take()?;
                let worker = match self.worker.take() {
                    Some(worker) => worker,
                    None => Worker::start()?,
                };
                let jobs = worker.jobs.as_ref();
                let sent = jobs.is_some_and(|jobs| jobs.send((job, store)).is_ok());
                self.worker = Some(worker);
                if !sent {
                    return Err(self.stopped());
                }
                self.is_under_way = true;
            }
        }
        Ok(())
    }

    /// Whether a write is under way, or waits to be.
    pub(super) fn is_busy(&self) -> bool {
        self.is_under_way || self.late.is_some()
    }

    /// Ends the write under way.
    pub(super) fn wait(&mut self) -> Result<()> {
        if let Some(job) = self.late.take() {
            let store = self.take()?;
            self.store = Some(run(&job, store)?);
        }
        if self.is_under_way {
            self.is_under_way = false;
            let outcome = self.worker.as_ref().and_then(|worker| worker.outcomes.recv().ok());
            self.store = Some(outcome.ok_or_else(|| self.stopped())??);
        }
        if self.store.is_none() { Err(self.stopped()) } else { Ok(()) }
    }

    /// Takes the outcome of the write under way if it has ended.
    pub(super) fn poll(&mut self) -> Result<()> {
        if let Some(worker) = self.worker.as_ref().filter(|_| self.is_under_way) {
            match worker.outcomes.try_recv() {
                Ok(outcome) => {
                    self.is_under_way = false;
                    self.store = Some(outcome?);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => self.is_under_way = false,
            }
        }
        if self.store.is_none() { Err(self.stopped()) } else { Ok(()) }
    }

    /// Does something with the store, after the write under way has ended; it is gone if that fails.
    pub(super) fn with_store<T>(
        &mut self,
        work: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        self.wait()?;
        let mut store = self.take()?;
        let done = work(&mut store)?;
        self.store = Some(store);
        Ok(done)
    }

    fn take(&mut self) -> Result<Box<Store>> {
        let store = self.store.take();
        store.ok_or_else(|| self.stopped())
    }

    fn stopped(&self) -> CacheError {
        CacheError::Stopped { section: self.section.clone() }
    }
}

impl Worker {
    fn start() -> Result<Self> {
        let (jobs, todo) = sync_channel::<(Job, Box<Store>)>(1);
        let (done, outcomes) = sync_channel(1);
        let work = move || {
            for (job, store) in todo {
                if done.send(run(&job, store)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("rowmill-cache".to_owned())
            .spawn(work)
            .map_err(|e| StorageError::new("start a thread for", "the feature cache", e))?;
        Ok(Self { jobs: Some(jobs), outcomes, thread: Some(thread) })
    }
}

impl Drop for Worker {
    /// Lets the write under way end: nobody must find the section changing later.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was a bug that has already been printed.
            drop(thread.join());
        }
    }
}
