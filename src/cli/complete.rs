//! `rowmill completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::output::{CliError, Console};

/// Arguments of `rowmill completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
    /// Print a document that holds the script instead of the script.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints completions.
pub(super) fn execute(args: &CompletionsArgs, console: &Console) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "rowmill", &mut script);
    let script = String::from_utf8_lossy(&script);
    if args.json {
        return console.print_json(&serde_json::json!({
            "version": crate::pipeline::REPORT_VERSION,
            "shell": args.shell.to_string(),
            "script": script,
        }));
    }
    console.print(&script)
}
