//! `rowmill path`.

use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;

use super::DefinitionArgs;
use super::output::{CliError, Console};
use crate::config::Registry;
use crate::pipeline::REPORT_VERSION;

/// Arguments of `rowmill path`.
#[derive(Debug, Args)]
pub struct PathArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the folder of the dataset, whether it is there or not.
pub(super) fn execute(
    args: &PathArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let pipeline = args.definition.load(registry, console)?;
    let dataset = pipeline.home().dir();
    if args.json {
        return console.print_json(&json!({
            "version": REPORT_VERSION,
            "dataset": dataset.display().to_string(),
            "cache_key": pipeline.home().cache_key(),
            "complete": pipeline.is_complete()?,
        }));
    }
    // For programs: as it is.
    console.print_some(&[dataset.as_os_str().as_bytes(), b"\n"].concat()).map(drop)
}
