//! SIGINT and SIGTERM: the first asks the run to stop at a commit, the second ends it at once.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::output::Console;

/// Waits for signals. Cancels `stop` at the first and returns at the second, or when `grace` has
/// passed since the first.
///
/// # Errors
/// Handlers cannot be installed.
pub(super) async fn wait(
    stop: CancellationToken,
    grace: Duration,
    console: &Console,
) -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    console.note("stopping at the next commit; once more to stop at once (both are safe)");
    stop.cancel();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = tokio::time::sleep(grace) => {}
    }
    Ok(())
}
