//! `rowmill hook-exec`, hidden: becomes the process of a feature hook, or the one that keeps it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::CliError;
use crate::transforms::become_hook;

/// Arguments of `hook-exec`.
#[derive(Debug, Args)]
pub struct HookExecArgs {
    /// The process that must be the parent.
    parent: u32,
    /// The open file that ends when the hook has to.
    #[arg(long)]
    lifeline: Option<u32>,
    /// The control group that it enters.
    #[arg(long)]
    group: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the hook, or keeps it. Gives the exit code to end with; nothing is to be done after that.
pub(super) fn execute(args: &HookExecArgs) -> Result<u8, CliError> {
    let group = args.group.as_deref();
    become_hook(args.parent, args.lifeline, group, &args.command).map_err(|error| {
        let program = args.command.first().map(|it| it.display().to_string()).unwrap_or_default();
        CliError::Usage { message: format!("cannot run `{program}`: {error}"), hint: None }
    })
}
