//! `rowmill inspect`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::output::{CliError, Console, counted};
use crate::config::Registry;
use crate::pipeline::{
    Contents, FieldContents, Pipeline, REPORT_VERSION, RowContents, RunOverrides, contents, row,
    row_with_key,
};

/// Shards that are listed one by one.
const LISTED: usize = 20;
/// Characters of a value that are shown.
const SHOWN: usize = 200;

/// Arguments of `rowmill inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A dataset's folder (or the one that holds `current`), a shard's, a definition, or the URL of a
    /// dataset or shard.
    path: PathBuf,
    /// Print this row instead, counted from 0.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    row: Option<u64>,
    /// Print the row with this key instead.
    #[arg(long, value_name = "K", conflicts_with = "row", allow_hyphen_values = true)]
    key: Option<String>,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints what a dataset or shard holds.
pub(super) fn execute(
    args: &InspectArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let (path, pipeline) = found(&args.path, registry)?;
    let row = match (args.row, &args.key) {
        (Some(number), _) => Some(row(&path, number)),
        (None, Some(key)) => Some(row_with_key(&path, key)),
        (None, None) => None,
    };
    if let Some(row) = row {
        let mut row = row.map_err(CliError::reading)?;
        if let Some(pipeline) = pipeline {
            pipeline.count_row(&mut row);
        }
        return if args.json { console.print_json(&row) } else { console.print(&row_text(&row)) };
    }
    let mut contents = contents(&path).map_err(CliError::reading)?;
    if let Some(pipeline) = pipeline {
        pipeline.count_rejects(&mut contents.rejects);
    }
    if args.json { console.print_json(&contents) } else { console.print(&text(&contents)) }
}

/// The folder that `path` means: that of its dataset, where it is a definition.
pub(super) fn dataset_path(path: &Path, registry: Registry) -> Result<PathBuf, CliError> {
    Ok(found(path, registry)?.0)
}

/// The same with the definition, where it is one.
fn found(path: &Path, registry: Registry) -> Result<(PathBuf, Option<Pipeline>), CliError> {
    if path.extension().is_some_and(|ext| ext == "toml") {
        let pipeline = Pipeline::load(path, &RunOverrides::default(), registry)?;
        return Ok((pipeline.home().dir().to_owned(), Some(pipeline)));
    }
    Ok((path.to_owned(), None))
}

fn text(contents: &Contents) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    line("path", contents.path.clone());
    line("rows", HumanCount(contents.rows).to_string());
    line("bytes", HumanBytes(contents.bytes).to_string());
    let n_remote = contents.shards.iter().filter(|shard| shard.url.is_some()).count() as u64;
    if n_remote > 0 {
        let hint = "`rowmill pull` brings them back";
        line("elsewhere", format!("the rows of {}: {hint}", counted(n_remote, "shard")));
    }
    let width =
        |len: fn(&FieldContents) -> usize| contents.fields.iter().map(len).max().unwrap_or(0);
    let (names, forms) = (width(|f| f.name.chars().count()), width(|f| f.form.chars().count()));
    for field in &contents.fields {
        let share = (field.bytes * 100).checked_div(contents.bytes).unwrap_or(0);
        let values = match field.values {
            Some(values) => format!("  {}", counted(values, "value")),
            None => String::new(),
        };
        line(
            "field",
            format!(
                "{:<names$}  {:<forms$}  {:>11}  {share:>3} %{values}",
                field.name,
                field.form,
                HumanBytes(field.bytes).to_string(),
            ),
        );
    }
    for shard in contents.shards.iter().take(LISTED) {
        let bytes = HumanBytes(shard.bytes).to_string();
        let url = shard.url.as_ref().map(|url| format!("  {url}")).unwrap_or_default();
        let rows = counted(shard.rows, "row");
        line("shard", format!("{}  {rows:>14}  {bytes:>11}{url}", shard.id));
    }
    if let Some(more) = contents.shards.len().checked_sub(LISTED).filter(|n| *n > 0) {
        line("", format!("and {more} more (--json lists all)"));
    }
    for kind in contents.rejects.iter().take(LISTED) {
        line("rejected", kind.to_string());
    }
    text
}

fn row_text(row: &RowContents) -> String {
    let mut text = String::new();
    writeln!(text, "row {} (shard {}, row {} in it)", row.row, row.shard, row.row_in_shard).ok();
    writeln!(text, "from {}", row.place).ok();
    let width = row.values.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &row.values {
        let value = match value {
            Value::String(value) => format!("{value:?}"),
            other => other.to_string(),
        };
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            write!(shown, " … ({} characters)", value.chars().count()).ok();
        }
        writeln!(text, "{name:<width$}  {shown}").ok();
    }
    text
}

/// The head of every document that is not a report of its own.
pub(super) fn document(path: &Path) -> Value {
    json!({"version": REPORT_VERSION, "path": path.display().to_string()})
}
