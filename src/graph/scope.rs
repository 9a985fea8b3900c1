//! Stages that run at once, and one verdict over all of them.
//!
//! Invariants: 3, 4 and 7 of the graph.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::panic::resume_unwind;
use std::thread;

use tokio::sync::oneshot;
use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;

use super::{Echo, Inlet, Outlet, edge};

/// The two ways to bring stages to an end.
#[derive(Debug, Clone, Default)]
pub struct Control {
    /// Cancelled at once, on the first cause or by hand: all waits end with an echo.
    pub cancel: CancellationToken,
    /// Asks the stages to finish at a place of their choosing.
    pub stop: CancellationToken,
}

impl Control {
    /// Neither cancelled nor stopped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a part of the work: ends when this one does, and can be cancelled alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { cancel: self.cancel.child_token(), stop: self.stop.clone() }
    }
}

/// Why a stage ended before its work was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt<C> {
    /// A neighbour is gone, or the scope was cancelled.
    Echo,
    /// It was asked to stop, and has finished at a place where work can be resumed.
    Stopped,
    /// It failed.
    Cause(C),
}

impl<C> Halt<C> {
    /// The same with another kind of cause.
    pub fn map<T>(self, f: impl FnOnce(C) -> T) -> Halt<T> {
        match self {
            Self::Echo => Halt::Echo,
            Self::Stopped => Halt::Stopped,
            Self::Cause(cause) => Halt::Cause(f(cause)),
        }
    }
}

impl<C> From<Echo> for Halt<C> {
    fn from(Echo: Echo) -> Self {
        Self::Echo
    }
}

/// How a scope ended, if nothing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every stage did all its work.
    Finished,
    /// The scope was stopped or cancelled from outside before that.
    Stopped,
}

/// A stage failed, and all others were brought to an end.
#[derive(Debug, thiserror::Error)]
pub enum Failed<E: std::error::Error + 'static> {
    /// It returned an error.
    #[error("stage `{stage}` failed")]
    Cause {
        /// The stage.
        stage: String,
        /// What it returned.
        #[source]
        source: E,
    },
    /// It panicked.
    #[error("stage `{stage}` panicked: {message}")]
    Panicked {
        /// The stage.
        stage: String,
        /// The panic's text.
        message: String,
    },
    /// Its thread could not be started.
    #[error("cannot start a thread for stage `{stage}`")]
    NoThread {
        /// The stage.
        stage: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// It found its neighbour gone, though no stage failed and nobody stopped the run.
    #[error("stage `{stage}` found its neighbour gone, and no stage says why")]
    Unexplained {
        /// The stage.
        stage: String,
    },
}

impl<E: std::error::Error> Failed<E> {
    /// Says what to do about it, where that is known; of a cause, the cause itself knows.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Cause { .. } => None,
            Self::NoThread { .. } => {
                Some("raise the limit on processes (ulimit -u), or lower `jobs`")
            }
            Self::Panicked { .. } | Self::Unexplained { .. } => {
                Some("this is a bug in Rowmill: report it; the same command continues the run")
            }
        }
    }
}

/// Stages that run at once and end together. `E` is what a stage fails with.
///
/// Dropping a scope without joining it cancels its stages, but does not wait for its threads.
#[derive(Debug)]
pub struct Scope<E: std::error::Error + 'static> {
    control: Control,
    tasks: JoinSet<Result<(), Halt<E>>>,
    names: HashMap<task::Id, String>,
    failed: Option<Failed<E>>,
    _cancel_on_drop: DropGuard,
}

impl<E: std::error::Error + Send + 'static> Scope<E> {
    /// A scope without stages, that is stopped and cancelled with `control`, and whose own failure
    /// leaves `control` as it is.
    #[must_use]
    pub fn new(control: &Control) -> Self {
        let control = control.child();
        let guard = control.cancel.clone().drop_guard();
        Self {
            control,
            tasks: JoinSet::new(),
            names: HashMap::new(),
            failed: None,
            _cancel_on_drop: guard,
        }
    }

    /// What stops and cancels this scope's stages.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// An edge between two of this scope's stages.
    #[must_use]
    pub fn edge<D>(&self, name: &str, capacity_bytes: usize) -> (Outlet<D>, Inlet<D>) {
        edge(name, capacity_bytes, &self.control.cancel)
    }

    /// Starts a stage that waits more than it works.
    pub fn task<C>(
        &mut self,
        name: &str,
        work: impl Future<Output = Result<(), Halt<C>>> + Send + 'static,
    ) where
        E: From<C>,
    {
        let span = tracing::info_span!("stage", name);
        let work = async move { work.await.map_err(|halt| halt.map(E::from)) };
        let handle = self.tasks.spawn(work.instrument(span));
        self.names.insert(handle.id(), name.to_owned());
    }

    /// Starts a stage that computes or touches files, on a thread of its own: the runtime's pool of
    /// blocking threads is bounded, and a stage waiting in its queue would be waited for by others.
    pub fn blocking<C>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<(), Halt<C>> + Send + 'static,
    ) where
        C: Send + 'static,
        E: From<C>,
    {
        let (ending, ended) = oneshot::channel::<()>();
        let span = tracing::info_span!("stage", name);
        let thread = thread::Builder::new().name(name.replace('\0', "?")).spawn(move || {
            let _ending = ending; // dropped last, also by a panic
            span.in_scope(work)
        });
        match thread {
            Ok(thread) => self.task(name, async move {
                drop(ended.await);
                // The thread is past its work: joining it waits for nothing but its end.
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            }),
            Err(source) => self.fail(Failed::NoThread { stage: name.to_owned(), source }),
        }
    }

    /// Waits for all stages to end.
    ///
    /// # Errors
    /// The first failure; every other stage was cancelled then.
    pub async fn join(mut self) -> Result<Ended, Failed<E>> {
        let mut echo = None;
        let mut is_stopped = false;
        while let Some(joined) = self.tasks.join_next_with_id().await {
            match joined {
                Ok((_, Ok(()))) => {}
                Ok((_, Err(Halt::Stopped))) => is_stopped = true,
                Ok((id, Err(Halt::Echo))) => echo = echo.or(Some(self.name(id))),
                Ok((id, Err(Halt::Cause(source)))) => {
                    let stage = self.name(id);
                    self.fail(Failed::Cause { stage, source });
                }
                Err(error) => {
                    let stage = self.name(error.id());
                    match panic_message(error) {
                        Some(message) => self.fail(Failed::Panicked { stage, message }),
                        None => echo = echo.or(Some(stage)),
                    }
                }
            }
        }
        let was_asked = self.control.stop.is_cancelled() || self.control.cancel.is_cancelled();
        match (self.failed.take(), echo) {
            (Some(failed), _) => Err(failed),
            (None, _) if is_stopped => Ok(Ended::Stopped),
            (None, Some(_)) if was_asked => Ok(Ended::Stopped),
            (None, Some(stage)) => Err(Failed::Unexplained { stage }),
            (None, None) => Ok(Ended::Finished),
        }
    }

    fn name(&self, id: task::Id) -> String {
        self.names.get(&id).cloned().unwrap_or_default()
    }

    fn fail(&mut self, failed: Failed<E>) {
        if self.failed.is_none() {
            self.failed = Some(failed);
        }
        self.control.cancel.cancel();
    }
}

/// The panic's text; `None` where the task did not panic but was aborted with its runtime.
fn panic_message(error: JoinError) -> Option<String> {
    let panic: Box<dyn Any + Send> = error.try_into_panic().ok()?;
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    Some(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "?".to_owned()))
}
