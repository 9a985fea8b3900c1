//! `rowmill init`.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::inspect::dataset_path;
use super::output::{CliError, Console};
use crate::config::Registry;
use crate::pipeline::{NoText, PipelineError, REPORT_VERSION, Rows};
use crate::storage::{Local, Storage};

/// Arguments of `rowmill init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// What to print.
    #[command(subcommand)]
    what: What,
}

/// What `rowmill init` prints.
#[derive(Debug, Subcommand)]
enum What {
    /// A definition for images, one row per file.
    Images(TemplateArgs),
    /// A definition for texts, one row per file.
    Text(TemplateArgs),
    /// A definition for CSV files, one row per record.
    Tables(TemplateArgs),
    /// The values of a text column as the `categorical` list of a definition.
    Categories(CategoriesArgs),
}

/// Arguments of the commands that print a definition.
#[derive(Debug, Args)]
struct TemplateArgs {
    /// The file to write; stdout without.
    file: Option<PathBuf>,
    /// Where the inputs are, seen from the definition's folder.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: String,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// Arguments of `rowmill init categories`.
#[derive(Debug, Args)]
struct CategoriesArgs {
    /// A dataset's folder (or the one that holds `current`), a shard's, or a definition.
    path: PathBuf,
    /// The column.
    #[arg(long, value_name = "NAME")]
    column: String,
    /// Most values that a list may have.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

impl InitArgs {
    /// Whether a JSON document was asked for.
    pub(super) fn is_json(&self) -> bool {
        match &self.what {
            What::Images(args) | What::Text(args) | What::Tables(args) => args.json,
            What::Categories(args) => args.json,
        }
    }
}

/// Prints a definition to begin with, or a part of one.
pub(super) fn execute(
    args: &InitArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    match &args.what {
        What::Images(args) => template(include_str!("templates/images.toml"), args, console),
        What::Text(args) => template(include_str!("templates/text.toml"), args, console),
        What::Tables(args) => template(include_str!("templates/tables.toml"), args, console),
        What::Categories(args) => categories(args, registry, console),
    }
}

fn template(text: &str, args: &TemplateArgs, console: &Console) -> Result<(), CliError> {
    let root = format!("root = {}", toml_text(&args.root)?);
    let mut text = text.replace("root = \".\"", &root);
    if let Some(file) = &args.file {
        text = text.replace("FILE", &file.display().to_string());
        write_new(file, text.as_bytes())?;
    }
    let file = args.file.as_ref().map(|file| file.display().to_string());
    match (args.json, &file) {
        (true, _) => console.print_json(&json!({
            "version": REPORT_VERSION, "file": file, "definition": text,
        })),
        (false, Some(file)) => console.print(&format!("written: {file}")),
        (false, None) => console.print(&text),
    }
}

/// Writes a file of the user's, who may have others of any name beside it.
fn write_new(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let mut new = Local.create(file).map_err(|e| match e.source.kind() {
        ErrorKind::AlreadyExists => CliError::Usage {
            message: format!("`{}` is there already", file.display()),
            hint: Some("choose another name; nothing is written over".to_owned()),
        },
        _ => PipelineError::from(e).into(),
    })?;
    let written = new.append(bytes).and_then(|()| new.sync());
    Ok(written.map_err(PipelineError::from)?)
}

/// Text in quotes, as JSON and TOML alike have it.
fn toml_text(text: &str) -> Result<String, CliError> {
    let quoted = serde_json::to_string(text).map_err(|e| CliError::Print(e.into()))?;
    Ok(quoted.replace('\u{7f}', "\\u007f"))
}

fn categories(
    args: &CategoriesArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let path = dataset_path(&args.path, registry)?;
    let column = std::slice::from_ref(&args.column);
    let rows = Rows::open(&path, column).map_err(CliError::reading)?;
    let mut found = BTreeSet::new();
    let mut left = 0..rows.n_rows();
    while !left.is_empty() {
        let piece = rows.piece(&left).map_err(CliError::reading)?;
        left.start = left.start.saturating_add(piece.n_rows as u64);
        for row in 0..piece.n_rows {
            if let Some(value) = rows.text(&piece, row).map_err(|NoText| not_text(&args.column))? {
                if !found.contains(value) {
                    found.insert(value.to_owned());
                }
                if found.len() > args.limit {
                    return Err(CliError::Usage {
                        message: format!(
                            "field `{}` has more than {} values",
                            args.column, args.limit
                        ),
                        hint: Some("intern it, or raise --limit".to_owned()),
                    });
                }
            }
        }
    }
    if args.json {
        return console.print_json(&json!({
            "version": REPORT_VERSION, "column": args.column, "categorical": found,
        }));
    }
    let values = found.iter().map(|value| toml_text(value)).collect::<Result<Vec<_>, _>>()?;
    let name = toml_text(&args.column)?;
    console.print(&format!("{name} = {{ categorical = [{}] }}", values.join(", ")))
}

fn not_text(column: &str) -> CliError {
    CliError::Usage {
        message: format!("field `{column}` holds no text"),
        hint: Some("categorical fields hold text; cast it first".to_owned()),
    }
}
