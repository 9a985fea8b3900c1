//! Arguments, then the command, then its exit code. The only subscriber is set up here.

use std::process::ExitCode;

use clap::Parser;
use rowmill::cli::{Cli, Console, LogFormat};
use rowmill::config::Registry;

fn main() -> ExitCode {
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
    cli.execute(Registry::BUILT_IN, &console)
}
