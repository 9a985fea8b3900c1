//! `rowmill hook-exec`, hidden: becomes the process of a feature hook.

use std::ffi::OsString;

use clap::Args;

use super::CliError;
use crate::transforms::become_hook;

/// Arguments of `hook-exec`.
#[derive(Debug, Args)]
pub struct HookExecArgs {
    /// The process that must be the parent.
    parent: u32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the hook; returns only where it cannot.
pub(super) fn execute(args: &HookExecArgs) -> CliError {
    let error = become_hook(args.parent, &args.command);
    let program = args.command.first().map(|it| it.display().to_string()).unwrap_or_default();
    CliError::Usage { message: format!("cannot run `{program}`: {error}"), hint: None }
}
