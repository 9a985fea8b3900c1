//! The `main` of a program that is the whole command line.

use std::process::ExitCode;

use clap::Parser;

use super::{Cli, Console, LogFormat};
use crate::config::Registry;

/// Arguments, then the command, then its exit code; definitions may name what is in `registry`. Sets
/// up the log, so it is called once in a process.
///
/// A program with stages of its own calls it in its `main` and is `rowmill` with them. Feature hooks
/// are processes of the same program: it becomes one here, when it is started again as
/// `PROGRAM hook-exec`.
#[must_use]
pub fn main(registry: Registry) -> ExitCode {
    let console = Console::new();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return Cli::refuse(&error, &console),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(console.has_color())
        .with_target(false)
        .with_max_level(cli.log_level);
    match cli.log {
        LogFormat::Text => subscriber.without_time().init(),
        LogFormat::Json => subscriber.json().init(),
    }
    cli.execute(registry, &console)
}
