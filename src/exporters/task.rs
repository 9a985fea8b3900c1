//! What pushes and pulls are made of: threads that may wait, how tasks end, and leave to hold bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How a push or a pull ends where neither store nor disk is at fault.
pub(super) trait Ends: Send + 'static {
    /// It was asked to stop.
    fn stopped() -> Self;
    /// The system refused a thread, or a task was lost.
    fn runtime(error: std::io::Error) -> Self;
}

/// Leave to hold pieces of files in memory, until it is time to stop.
#[derive(Debug)]
pub(super) struct Leave {
    permits: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Leave {
    /// To hold so many pieces at once.
    pub(super) fn new(n_pieces: usize, stop: CancellationToken) -> Self {
        Self { permits: Arc::new(Semaphore::new(n_pieces.max(1))), stop }
    }

    /// Leave to hold one, until it is dropped.
    pub(super) async fn permit<E: Ends>(&self) -> Result<OwnedSemaphorePermit, E> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(E::stopped()),
            permit = Arc::clone(&self.permits).acquire_owned() => permit.map_err(|_| E::stopped()),
        }
    }

    /// An error if it is time to stop.
    pub(super) fn go_on<E: Ends>(&self) -> Result<(), E> {
        if self.stop.is_cancelled() { Err(E::stopped()) } else { Ok(()) }
    }
}

/// Runs blocking work on a thread of its own.
pub(super) async fn on_thread<T: Send + 'static, E: Ends>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let mut tasks = JoinSet::new();
    tasks.spawn_blocking(work);
    join(&mut tasks).await.unwrap_or_else(|| Err(E::runtime(std::io::Error::other("no task"))))
}

/// The end of the task that ends next, `None` where there is none.
pub(super) async fn join<T: 'static, E: Ends>(
    tasks: &mut JoinSet<Result<T, E>>,
) -> Option<Result<T, E>> {
    Some(match tasks.join_next().await? {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(E::runtime(std::io::Error::other(error))),
        },
    })
}
