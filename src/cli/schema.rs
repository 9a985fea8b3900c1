//! `rowmill schema`.

use clap::Args;

use super::output::{CliError, Console};
use crate::config::{Registry, json_schema};

/// Arguments of `rowmill schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Accepted for symmetry: the output is always JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the JSON Schema of definitions.
pub(super) fn execute(
    _args: &SchemaArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    console.print_json(&json_schema(registry))
}
