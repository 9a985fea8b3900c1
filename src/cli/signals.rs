//! SIGINT and SIGTERM: the first asks the run to stop at a commit, the second ends it at once.
//!
//! `timeout` and job schedulers signal a process and then its whole group, this process among it: what
//! follows a signal within [`SAME`] is the same request.

use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::output::Console;

/// Signals that are no further apart count as one.
const SAME: Duration = Duration::from_millis(100);

/// The signals that ask a run to stop. Once they are installed, none of them ends the process.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn install() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { interrupt, terminate })
    }

    /// Waits for signals, and for the time to be up. Cancels `stop` at the first and returns at the second, or when `grace` has
    /// passed since the first.
    pub(super) async fn wait(
        mut self,
        stop: CancellationToken,
        until: Option<Duration>,
        grace: Duration,
        console: &Console,
    ) {
        let next = async || {
            tokio::select! { _ = self.interrupt.recv() => {}, _ = self.terminate.recv() => {} }
        };
        obey(next, &stop, until, [SAME, grace], |text| console.note(text)).await;
    }
}

async fn obey(
    mut next: impl AsyncFnMut(),
    stop: &CancellationToken,
    until: Option<Duration>,
    [same, grace]: [Duration; 2],
    mut tell: impl FnMut(&str),
) {
    let time_is_up = async {
        match until {
            Some(until) => tokio::time::sleep(until).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        () = next() => "stopping at the next commit; once more to stop at once (both are safe)",
        () = time_is_up => "the time is up: stopping at the next commit",
    };
    stop.cancel();
    tell(why);
    let asked = Instant::now();
    let again = async {
        loop {
            next().await;
            if asked.elapsed() >= same {
                break;
            }
        }
    };
    tokio::select! {
        () = again => tell("stopping at once"),
        () = tokio::time::sleep(grace) => tell(&format!("no commit within {grace:?}: stopping at once")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of `n_signals` that have come already, and whether the run was asked to stop.
    fn told(
        n_signals: usize,
        until: Option<Duration>,
        limits: [Duration; 2],
    ) -> (Vec<String>, bool) {
        let (stop, mut told, mut left) = (CancellationToken::new(), Vec::new(), n_signals);
        let next = async || {
            if left == 0 {
                std::future::pending::<()>().await;
            }
            left -= 1;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(obey(next, &stop, until, limits, |text| told.push(text.to_owned())));
        (told, stop.is_cancelled())
    }

    #[test]
    fn the_first_signal_asks_and_the_second_ends_the_wait() {
        let (told, is_stopped) = told(2, None, [Duration::ZERO, Duration::MAX]);
        assert!(is_stopped);
        assert!(told[0].starts_with("stopping at the next commit"), "{told:?}");
        assert_eq!(told[1..], ["stopping at once"]);
    }

    #[test]
    fn signals_that_come_together_are_one() {
        let (told, is_stopped) = told(5, None, [Duration::MAX, Duration::ZERO]);
        assert!(is_stopped);
        assert_eq!(told[1..], ["no commit within 0ns: stopping at once"]);
    }

    #[test]
    fn a_run_that_does_not_come_to_a_commit_is_ended_after_the_grace() {
        let (told, is_stopped) = told(1, None, [Duration::ZERO; 2]);
        assert!(is_stopped);
        assert_eq!(told[1..], ["no commit within 0ns: stopping at once"]);
    }

    #[test]
    fn a_run_whose_time_is_up_is_asked_to_stop() {
        let (told, is_stopped) = told(0, Some(Duration::ZERO), [Duration::ZERO; 2]);
        assert!(is_stopped);
        assert_eq!(told[0], "the time is up: stopping at the next commit");
        assert_eq!(told.len(), 2);
    }
}
