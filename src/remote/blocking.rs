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

use tokio::runtime::{Builder, Runtime};
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

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn ended(url: &str, why: String) -> RemoteError {
    RemoteError::of("ask", url, RemoteErrorKind::Other, Some(why))
}
