//! `rowmill cache`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::duration;
use super::output::{CliError, Console, counted};
use super::target::{age, ago, iso};
use crate::cache::{CacheError, CacheReader, FeatureCache, SectionOptions, SectionStat};
use crate::fingerprint::CompatSignature;
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::storage::Local;

/// Digits of a section's name that people are shown.
const SHOWN_DIGITS: usize = 12;

/// Arguments of `rowmill cache`.
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// What to do.
    #[command(subcommand)]
    what: What,
}

/// What is done with a feature cache.
#[derive(Debug, Subcommand)]
enum What {
    /// List its sections: rows, bytes and age of each.
    Ls(SectionArgs),
    /// Tell all that is known of its sections.
    Stat(SectionArgs),
    /// Check every byte against its sums.
    Verify(DirArgs),
    /// Remove sections; only says which, without --yes.
    Prune(PruneArgs),
    /// Give back what replaced rows take, and put small segments together.
    Compact(SectionArgs),
}

/// A feature cache.
#[derive(Debug, Args)]
struct DirArgs {
    /// The folder of the feature cache.
    dir: PathBuf,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// A feature cache, and which of its sections.
#[derive(Debug, Args)]
struct SectionArgs {
    #[command(flatten)]
    cache: DirArgs,
    /// Only sections whose name begins so, or whose signature has this `id`.
    #[arg(long, value_name = "SHA256|ID")]
    signature: Option<String>,
}

/// Arguments of `rowmill cache prune`.
#[derive(Debug, Args)]
struct PruneArgs {
    #[command(flatten)]
    sections: SectionArgs,
    /// Remove them; without this, only say what would go.
    #[arg(long)]
    yes: bool,
    /// Keep this many sections, those that were written to last.
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Remove no section that was written to since, such as `7d`, `12h` or `30m`.
    #[arg(long, value_name = "AGE", value_parser = duration::parse)]
    older_than: Option<Duration>,
}

impl CacheArgs {
    /// Whether a JSON document was asked for.
    pub(super) fn is_json(&self) -> bool {
        self.what.cache().json
    }
}

impl What {
    fn cache(&self) -> &DirArgs {
        match self {
            Self::Ls(args) | Self::Stat(args) | Self::Compact(args) => &args.cache,
            Self::Verify(args) => args,
            Self::Prune(args) => &args.sections.cache,
        }
    }
}

/// Does what was asked with a feature cache.
pub(super) fn execute(args: &CacheArgs, console: &Console) -> Result<(), CliError> {
    let dir = &args.what.cache().dir;
    if !CacheReader::local(dir).is_there().map_err(reading)? {
        return Err(CliError::Usage {
            message: format!("there is no feature cache: `{}`", dir.display()),
            hint: Some("name the folder that `cache` of a hook names".to_owned()),
        });
    }
    match &args.what {
        What::Ls(args) => list(args, false, console),
        What::Stat(args) => list(args, true, console),
        What::Verify(args) => verify(args, console),
        What::Prune(args) => prune(args, console),
        What::Compact(args) => compact(args, console),
    }
}

fn reading(error: CacheError) -> CliError {
    CliError::reading(PipelineError::Cache(error))
}

/// The value of a document of this command.
fn document(dir: &Path, more: Value) -> Value {
    let mut document = json!({
        "version": REPORT_VERSION,
        "cache": dir.display().to_string(),
    });
    if let (Some(object), Value::Object(more)) = (document.as_object_mut(), more) {
        object.extend(more);
    }
    document
}

/// The sections that were asked for, those that were written to last in front.
fn sections(args: &SectionArgs) -> Result<Vec<SectionStat>, CliError> {
    let mut stats = CacheReader::local(&args.cache.dir).stat().map_err(reading)?;
    if let Some(wanted) = &args.signature {
        if wanted.is_empty() {
            return Err(CliError::Usage {
                message: "`--signature` is empty".to_owned(),
                hint: Some("`rowmill cache ls DIR` lists signatures".to_owned()),
            });
        }
        let is_id = |stat: &SectionStat| id(stat).as_ref() == Some(wanted);
        stats.retain(|stat| stat.section.starts_with(wanted.as_str()) || is_id(stat));
        if stats.is_empty() {
            return Err(CliError::Usage {
                message: format!("no section has the signature `{wanted}`"),
                hint: Some("`rowmill cache ls DIR` lists them".to_owned()),
            });
        }
    }
    stats.sort_by(|a, b| b.written.cmp(&a.written).then_with(|| a.section.cmp(&b.section)));
    Ok(stats)
}

/// The `id` that a section's signature says.
fn id(stat: &SectionStat) -> Option<String> {
    let signature: Value = serde_json::from_str(&stat.signature).ok()?;
    Some(signature.get("id")?.as_str()?.to_owned())
}

fn shown(stat: &SectionStat) -> &str {
    stat.section.get(..SHOWN_DIGITS).unwrap_or(&stat.section)
}

fn list(args: &SectionArgs, all: bool, console: &Console) -> Result<(), CliError> {
    let stats = sections(args)?;
    let dir = &args.cache.dir;
    if args.cache.json {
        let sections: Vec<Value> = stats.iter().map(section_document).collect();
        let bytes: u64 = stats.iter().map(of_bytes).sum();
        return console.print_json(&document(dir, json!({"bytes": bytes, "sections": sections})));
    }
    let mut text = format!("{:<11}{}\n", "cache", dir.display());
    let bytes = HumanBytes(stats.iter().map(of_bytes).sum());
    writeln!(text, "{:<11}{}, {bytes}", "holds", counted(stats.len() as u64, "section")).ok();
    for stat in &stats {
        if all {
            text.push('\n');
            detail(stat, &mut text);
        } else {
            writeln!(text, "{}", line(stat)).ok();
        }
    }
    console.print(&text)
}

/// Bytes of a section: rows and index.
fn of_bytes(stat: &SectionStat) -> u64 {
    stat.bytes + stat.index_bytes
}

/// A section in a line.
fn line(stat: &SectionStat) -> String {
    let what = match (&stat.damage, id(stat)) {
        (Some(_), _) => "damaged".to_owned(),
        (None, Some(id)) => id,
        (None, None) => String::new(),
    };
    let (rows, bytes) = (counted(stat.rows, "row"), HumanBytes(of_bytes(stat)).to_string());
    let line = format!("{}{rows:>18}{bytes:>13}  {:<16}{what}", shown(stat), ago(stat.written));
    line.trim_end().to_owned()
}

fn detail(stat: &SectionStat, text: &mut String) {
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    line("section", stat.section.clone());
    if let Some(damage) = &stat.damage {
        line("damaged", damage.clone());
        return;
    }
    line("signature", stat.signature.clone());
    let segments = counted(stat.segments as u64, "segment");
    line("rows", format!("{} in {segments}, {}", stat.rows, HumanBytes(stat.bytes)));
    let runs = counted(stat.index_runs as u64, "run");
    line("index", format!("{runs}, {}", HumanBytes(stat.index_bytes)));
    line("fields", stat.fields.join(", "));
    line("written", ago(stat.written));
}

fn section_document(stat: &SectionStat) -> Value {
    json!({
        "section": stat.section,
        "signature": serde_json::from_str::<Value>(&stat.signature).ok(),
        "rows": stat.rows,
        "segments": stat.segments,
        "bytes": stat.bytes,
        "index_runs": stat.index_runs,
        "index_bytes": stat.index_bytes,
        "fields": stat.fields,
        "written": iso(stat.written),
        "age_seconds": age(stat.written).map(|age| age.as_secs()),
        "damage": stat.damage,
    })
}

fn verify(args: &DirArgs, console: &Console) -> Result<(), CliError> {
    let reader = CacheReader::local(&args.dir);
    let stats = reader.stat().map_err(reading)?;
    let wrong = reader.verify().map_err(reading)?;
    let (rows, bytes) = (stats.iter().map(|it| it.rows).sum(), stats.iter().map(of_bytes).sum());
    if args.json {
        let finding = |e: &CacheError| json!({"what": e.to_string(), "hint": e.hint()});
        let findings: Vec<Value> = wrong.iter().map(finding).collect();
        console.print_json(&document(
            &args.dir,
            json!({
                "ok": wrong.is_empty(),
                "rows": rows,
                "sections": stats.len(),
                "bytes": bytes,
                "findings": findings,
            }),
        ))?;
    }
    for error in &wrong {
        let hint = error.hint().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
        console.note(&format!("damage: {error}{hint}"));
    }
    if !wrong.is_empty() {
        let damages = counted(wrong.len() as u64, "damage");
        return Err(CliError::Damaged { damages, path: args.dir.display().to_string() });
    }
    if args.json {
        return Ok(());
    }
    let sections = counted(stats.len() as u64, "section");
    let rows = counted(rows, "row");
    console.print(&format!("ok: {rows} in {sections}, {} read", HumanBytes(bytes)))
}

/// Opens a cache for writing.
fn open(dir: &Path) -> Result<FeatureCache, CliError> {
    FeatureCache::open(Arc::new(Local), dir).map_err(reading)
}

fn prune(args: &PruneArgs, console: &Console) -> Result<(), CliError> {
    if args.keep.is_none() && args.older_than.is_none() && args.sections.signature.is_none() {
        return Err(CliError::Usage {
            message: "nothing says which sections are to go".to_owned(),
            hint: Some("give --keep, --older-than or --signature, or several of them".to_owned()),
        });
    }
    let dir = &args.sections.cache.dir;
    // Before looking: what a run writes meanwhile is not removed.
    let cache = if args.yes { Some(open(dir)?) } else { None };
    let since = args
        .older_than
        .map(|age| SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    let mut going = sections(&args.sections)?;
    going.drain(..going.len().min(args.keep.unwrap_or(0)));
    going.retain(|stat| since.is_none_or(|since| stat.written.is_none_or(|at| at <= since)));
    if let Some(cache) = cache {
        cache
            .prune(|stat| going.iter().all(|gone| gone.section != stat.section))
            .map_err(reading)?;
    }
    let bytes = going.iter().map(of_bytes).sum();
    if args.sections.cache.json {
        let sections: Vec<Value> = going.iter().map(section_document).collect();
        let more = json!({"removed": args.yes, "bytes": bytes, "sections": sections});
        return console.print_json(&document(dir, more));
    }
    let mut text = format!("{:<11}{}\n", "cache", dir.display());
    for stat in &going {
        writeln!(text, "{}", line(stat)).ok();
    }
    let (n, n_bytes) = (counted(going.len() as u64, "section"), HumanBytes(bytes));
    match (going.is_empty(), args.yes) {
        (true, _) => writeln!(text, "nothing to remove"),
        (false, true) => writeln!(text, "{:<11}{n}, {n_bytes}", "removed"),
        (false, false) => writeln!(text, "{:<11}{n}, {n_bytes}: --yes does", "would go"),
    }
    .ok();
    console.print(&text)
}

fn compact(args: &SectionArgs, console: &Console) -> Result<(), CliError> {
    let dir = &args.cache.dir;
    let cache = open(dir)?;
    let mut text = format!("{:<11}{}\n", "cache", dir.display());
    let mut documents = Vec::new();
    for stat in sections(args)? {
        if let Some(what) = &stat.damage {
            let path = dir.join(&stat.section);
            return Err(reading(CacheError::Damaged { path, what: what.clone() }));
        }
        let signature = serde_json::from_str(&stat.signature).unwrap_or_default();
        let section = cache
            .section(&CompatSignature::new(&signature), SectionOptions::default())
            .map_err(reading)?;
        let done = section.compact().map_err(reading)?;
        let (before, bytes) = (HumanBytes(done.bytes_before), HumanBytes(done.bytes));
        let gone = counted(done.rows_before.saturating_sub(done.rows), "replaced row");
        let rows = counted(done.rows, "row");
        writeln!(text, "{}  {rows}, {gone} gone, {before} → {bytes}", shown(&stat)).ok();
        documents.push(json!({
            "section": stat.section,
            "rows_before": done.rows_before,
            "rows": done.rows,
            "bytes_before": done.bytes_before,
            "bytes": done.bytes,
        }));
    }
    if args.cache.json {
        return console.print_json(&document(dir, json!({"sections": documents})));
    }
    console.print(&text)
}
