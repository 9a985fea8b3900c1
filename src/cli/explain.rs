//! `rowmill explain`.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::output::{CliError, Console};
use crate::codes::{Code, Entry, is_same_code};
use crate::config::Registry;
use crate::pipeline::REPORT_VERSION;

/// Arguments of `rowmill explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The code, as it stands in `error[code]` or in rejects; lists all of them without.
    code: Option<String>,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints what a code means, why it happens and what to do.
pub(super) fn execute(
    args: &ExplainArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let all = Code::ALL.iter().map(|code| code.entry()).chain(registry.codes.iter().copied());
    let mut entries: Vec<Entry> = all.collect();
    if let Some(name) = &args.code {
        entries = vec![find(name, &entries)?];
    }
    if args.json {
        return console.print_json(&json!({"version": REPORT_VERSION, "codes": entries}));
    }
    console.print(&match (&args.code, entries.as_slice()) {
        (Some(_), [entry]) => text(entry),
        _ => entries.iter().fold(String::new(), |mut text, it| {
            writeln!(text, "{:<24}{}", it.code, it.means).ok();
            text
        }),
    })
}

fn text(entry: &Entry) -> String {
    let Entry { code, means, why, todo, example } = entry;
    format!(
        "{code}: {means}\n\nwhy        {why}\nwhat to do {todo}\nexample    error[{code}]: {example}\n"
    )
}

fn find(name: &str, all: &[Entry]) -> Result<Entry, CliError> {
    all.iter().copied().find(|entry| is_same_code(entry.code, name)).ok_or_else(|| {
        let near = all.iter().map(|entry| entry.code);
        let near = near
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let near = near.map(|code| format!("did you mean `{code}`? "));
        CliError::Usage {
            message: format!("there is no code `{name}`"),
            hint: Some(format!("{}`rowmill explain` lists all", near.unwrap_or_default())),
        }
    })
}
