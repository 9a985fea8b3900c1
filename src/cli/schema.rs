//! `rowmill schema`.

use clap::Args;

use super::output::{CliError, Console};

/// Arguments of `rowmill schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Accepted for symmetry: the output is always JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the JSON Schema of definitions.
pub(super) fn execute(_args: &SchemaArgs, console: &Console) -> Result<(), CliError> {
    console.print_json(&crate::config::json_schema())
}
