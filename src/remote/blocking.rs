//! Lets threads that may block wait for a store.
//!
//! Leaves out: what is asked (`read`).
//!
//! Invariants:
//! 1. What is asked runs on threads of its own, so that connections outlive the runtimes of runs, and
//!    any thread may wait, whatever runtime it belongs to.
//! 2. A request that nobody waits for any more is given up.

use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use super::{RemoteError, RemoteErrorKind};

static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(2).thread_name("remote").enable_all().build()
});

/// Something that was asked, and goes on while nobody waits for it.
#[derive(Debug)]
pub struct Pending<T> {
    answer: Receiver<Result<T, RemoteError>>,
    task: AbortHandle,
    url: String,
}

impl<T: Send + 'static> Pending<T> {
    /// Begins to ask; `url` is what it is about.
    pub(super) fn new(
        url: String,
        asked: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
    ) -> Result<Self, RemoteError> {
        let runtime = RUNTIME.as_ref().map_err(|e| ended(&url, e.to_string()))?;
        let (give, answer) = sync_channel(1);
        let task = runtime.spawn(async move {
            // Whoever asked may have gone.
            give.send(asked.await).ok();
        });
        Ok(Self { answer, task: task.abort_handle(), url })
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The store's.
    pub fn wait(self) -> Result<T, RemoteError> {
        let gone = || ended(&self.url, "the request ended without an answer".to_owned());
        self.answer.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// Several things that were asked, and go on while nobody waits for them.
#[derive(Debug)]
pub(super) struct PendingMany<T> {
    answers: Receiver<(usize, Result<T, RemoteError>)>,
    tasks: Vec<AbortHandle>,
    n_left: usize,
    url: String,
}

impl<T: Send + 'static> PendingMany<T> {
    /// Begins to ask; `url` is what it is about.
    pub(super) fn new<F>(url: String, asked: Vec<F>) -> Result<Self, RemoteError>
    where
        F: Future<Output = Result<T, RemoteError>> + Send + 'static,
    {
        let runtime = RUNTIME.as_ref().map_err(|e| ended(&url, e.to_string()))?;
        let n_left = asked.len();
        let (give, answers) = sync_channel(n_left.max(1));
        let tasks = asked.into_iter().enumerate().map(|(index, asked)| {
            let give = give.clone();
            // There is room for all of them; whoever asked may have gone.
            let task = runtime.spawn(async move {
                give.send((index, asked.await)).ok();
            });
            task.abort_handle()
        });
        Ok(Self { answers, tasks: tasks.collect(), n_left, url })
    }

    /// Waits for the next answer, whichever comes first: which it is, and what it says. `None` behind the
    /// last.
    pub(super) fn next(&mut self) -> Option<Result<(usize, T), RemoteError>> {
        self.n_left = self.n_left.checked_sub(1)?;
        Some(match self.answers.recv() {
            Ok((index, answer)) => answer.map(|answer| (index, answer)),
            Err(_) => Err(ended(&self.url, "the request ended without an answer".to_owned())),
        })
    }
}

impl<T> Drop for PendingMany<T> {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The runtime that requests are made on.
pub(super) fn runtime(url: &str) -> Result<Handle, RemoteError> {
    let runtime = RUNTIME.as_ref().map_err(|e| ended(url, e.to_string()))?;
    Ok(runtime.handle().clone())
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn ended(url: &str, why: String) -> RemoteError {
    RemoteError::of("ask", url, RemoteErrorKind::Other, Some(why))
}
