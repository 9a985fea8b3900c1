//! `rowmill check`.

use std::fmt::Write;

use clap::Args;
use indicatif::HumanBytes;

use super::DefinitionArgs;
use super::output::{CliError, Console, counted, of_inputs};
use crate::config::Registry;
use crate::pipeline::{CheckReport, FieldReport};

/// Arguments of `rowmill check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Checks everything that can be checked without building. Writes nothing that stays.
pub(super) fn execute(
    args: &CheckArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let pipeline = args.definition.load(registry, console)?;
    let report = pipeline.check()?;
    if args.json { console.print_json(&report) } else { console.print(&text(&report)) }
}

fn text(report: &CheckReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    let inputs = (report.inputs, report.input_bytes);
    of_inputs(&report.dataset, inputs, &report.sources, &mut line);
    let sources: Vec<&str> = report.sources.iter().map(|source| source.name.as_str()).collect();
    let behind = report.stages.iter().skip(sources.len()).map(String::as_str);
    let sources = sources.join(" + ");
    let stages: Vec<&str> = [sources.as_str()].into_iter().chain(behind).collect();
    line("stages", stages.join(" -> "));
    let width = |of: fn(&FieldReport) -> &str| {
        report.fields.iter().map(|field| of(field).chars().count()).max().unwrap_or(0)
    };
    let (names, forms) = (width(|field| &field.name), width(|field| &field.form));
    for field in &report.fields {
        let files = field.files.join(" ");
        line("field", format!("{:<names$}  {:<forms$}  {files}", field.name, field.form));
    }
    for learned in &report.learned {
        line("learned", learned.text());
    }
    line("sample", format!("{} went through", counted(report.sample_rows, "row")));
    if let Some(bytes) = report.row_bytes {
        line("row", format!("about {}", HumanBytes(bytes)));
    }
    if let Some(free) = report.free_bytes {
        line("disk", format!("{} free", HumanBytes(free)));
    }
    if let Some(push) = &report.push {
        line("push", push.url.clone());
        line("", push.works.join(", "));
        for lacking in &push.lacks {
            line("", format!("cannot {}: {}", lacking.what, lacking.means));
        }
    }
    line("ok", "nothing was written".to_owned());
    text
}
