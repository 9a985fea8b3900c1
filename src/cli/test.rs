//! `rowmill test`.

use std::fmt::Write;

use clap::Args;

use super::DefinitionArgs;
use super::output::{CliError, Console, counted};
use crate::config::Registry;
use crate::pipeline::TestReport;

/// Arguments of `rowmill test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Tries every `[[test]]` of a definition. Writes nothing.
pub(super) fn execute(
    args: &TestArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let pipeline = args.definition.load(registry, console)?;
    let path = args.definition.definition.display().to_string();
    let report = pipeline.test()?;
    if report.tests.is_empty() {
        return Err(CliError::Usage {
            message: format!("`{path}` has no test"),
            hint: Some("write one: [[test]], with `name`, `given` and `expect`".to_owned()),
        });
    }
    if args.json { console.print_json(&report) } else { console.print(&text(&report)) }?;
    match report.failed {
        0 => Ok(()),
        failed => {
            let tests = counted(report.tests.len() as u64, "test");
            Err(CliError::TestsFailed { failed, tests, path })
        }
    }
}

fn text(report: &TestReport) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        writeln!(text, "{words}").ok();
    };
    let width = report.tests.iter().map(|case| case.name.chars().count()).max().unwrap_or(0);
    for case in &report.tests {
        let word = if case.passed { "pass" } else { "FAIL" };
        line(format!("{word}  {:<width$}  {}", case.name, case.stages.join(" -> ")));
        for failure in &case.failures {
            line(format!("      {}", failure.message));
        }
    }
    line(format!("{} passed, {} failed", report.passed, report.failed));
    text
}
