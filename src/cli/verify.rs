//! `rowmill verify`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::inspect::{dataset_path, document};
use super::output::{CliError, Console, counted};
use crate::config::Registry;
use crate::dataset::home::{CURRENT, CURRENT_DOCUMENT, PARTITIONS};
use crate::dataset::verify::{self, Look, ShardBytes, ShardFacts, Streamed, Verified, Whole};
use crate::exporters::Quick;
use crate::pipeline::{Pipeline, PipelineError, RunOverrides, SourceState, SourcesReport};
use crate::remote::{Remote, RemoteError, RemoteOptions, RemoteStorage, is_url, remote_cause};
use crate::shard::{Finding, FindingKind, LOST_ELSEWHERE, layout};
use crate::storage::{Local, Storage};

/// Shards that are read at once at a URL, where most of the time is waiting.
const JOBS_ELSEWHERE: usize = 16;

/// Arguments of `rowmill verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A dataset's folder (or the one that holds `current`), a shard's, a definition, or the URL of a
    /// dataset that was pushed.
    path: PathBuf,
    /// Shards read at once; as many as there are cores by default, 16 at URLs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Read the inputs of a definition again too, and compare them with what was read when the dataset
    /// was built.
    #[arg(long)]
    sources: bool,
    /// At a URL: compare sizes and the digests stored with the objects, and read no large object.
    #[arg(long, conflicts_with = "sources")]
    quick: bool,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Reads every byte and compares it with its sums.
pub(super) fn execute(
    args: &VerifyArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    if args.sources && args.path.extension().is_none_or(|ext| ext != "toml") {
        return Err(CliError::Usage {
            message: "a dataset's folder does not say where its inputs are".to_owned(),
            hint: Some("name the definition: `rowmill verify p.toml --sources`".to_owned()),
        });
    }
    if let Some(url) = args.path.to_str().filter(|path| is_url(path)) {
        return elsewhere(args, url, console);
    }
    if args.quick {
        return Err(CliError::Usage {
            message: "--quick is for datasets at URLs".to_owned(),
            hint: Some("leave it away: what is on a disk is read in any case".to_owned()),
        });
    }
    let path = dataset_path(&args.path, registry)?;
    let storage: Arc<dyn Storage> = Arc::new(Local);
    let is_shard = is_shard(&*storage, &path, path == args.path)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from);
    let look = Whole(&storage);
    report(args, registry, console, (&storage, &path, is_shard), &look, jobs)
}

/// Verifies what is at a URL.
fn elsewhere(args: &VerifyArgs, url: &str, console: &Console) -> Result<(), CliError> {
    let failed = |e: RemoteError| CliError::reading(PipelineError::Remote(e));
    let remote = Remote::open(url, &RemoteOptions::default()).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(PipelineError::Runtime)?;
    let there = RemoteStorage::new(remote, runtime.handle().clone());
    let (storage, path): (Arc<dyn Storage>, _) = (Arc::new(there.clone()), there.root());
    let is_shard = is_shard(&*storage, path, true).map_err(|error| match error {
        // What the store says is worth more than that a look failed.
        CliError::Pipeline(error) => match *error {
            PipelineError::Storage(error) => match remote_cause(&error) {
                Some(cause) => failed(cause.clone()),
                None => PipelineError::Storage(error).into(),
            },
            error => error.into(),
        },
        error => error,
    })?;
    let jobs = args.jobs.map_or(JOBS_ELSEWHERE, usize::from);
    let (quick, streamed) = (Quick(there.clone()), Streamed(&storage));
    let look: &dyn Look = if args.quick { &quick } else { &streamed };
    report(args, Registry::BUILT_IN, console, (&storage, path, is_shard), look, jobs)
}

/// What was looked at and found whole.
#[derive(Debug, Default)]
struct Looked {
    rows: u64,
    shards: u64,
    /// Those that were read.
    bytes: u64,
    /// Shards whose rows are elsewhere.
    remote: u64,
    /// Where those can be checked.
    urls: Vec<String>,
    /// Files that pushes to this folder were writing when they were killed.
    staged: Vec<PathBuf>,
}

impl Looked {
    fn of_shard(shard: &ShardFacts) -> Self {
        let (bytes, urls) = match &shard.bytes {
            ShardBytes::Here(bytes) => (*bytes, Vec::new()),
            ShardBytes::At(url) => (0, vec![url.clone()]),
        };
        let (remote, staged) = (urls.len() as u64, shard.staged.clone());
        Self { rows: shard.rows, shards: 1, bytes, remote, urls, staged }
    }

    fn of_dataset(it: Verified) -> Self {
        Self {
            rows: it.n_rows,
            shards: it.n_shards as u64,
            bytes: it.n_bytes.saturating_sub(it.n_remote_bytes),
            remote: it.n_remote as u64,
            urls: it.urls.into_iter().collect(),
            staged: it.staged,
        }
    }

    fn remote_document(&self) -> Value {
        json!({"shards": self.remote, "urls": self.urls})
    }

    /// Says what was not looked at, and how it can be.
    fn tell_remote(&self, text: &mut String) {
        if self.remote == 0 {
            return;
        }
        let shards = counted(self.remote, "shard");
        write!(text, "\nnot checked: the rows of {shards}, which are only in a store").ok();
        for url in &self.urls {
            write!(text, "\n  `rowmill verify {url}` checks them there").ok();
        }
    }
}

/// Says what lies beside the files of shards and is none of them.
fn tell_staged(staged: &[PathBuf], text: &mut String) {
    let Some(first) = staged.first() else { return };
    let files = counted(staged.len() as u64, "file");
    write!(
        text,
        "\nleft over: {files} of a push to this folder that was killed, such as `{}`\n  \
         `rowmill clean` removes what it left",
        first.display()
    )
    .ok();
}

/// Looks at the dataset or shard, and prints what is wrong.
fn report(
    args: &VerifyArgs,
    registry: Registry,
    console: &Console,
    (storage, path, is_shard): (&Arc<dyn Storage>, &Path, bool),
    look: &dyn Look,
    jobs: usize,
) -> Result<(), CliError> {
    let bar = bar();
    let verified = if is_shard {
        look.shard(path).map(|shard| Looked::of_shard(&shard))
    } else {
        let mut show = |progress: verify::Progress| {
            bar.set_length(progress.n_bytes);
            bar.set_position(progress.bytes_done);
        };
        verify::verify_by(storage, path, jobs, look, &mut show).map(Looked::of_dataset)
    };
    let (looked, findings) = match verified {
        Ok(looked) => (looked, Vec::new()),
        Err(findings) => (Looked::default(), findings),
    };
    let sources = if args.sources && findings.is_empty() {
        Some(read_sources(&args.path, registry, &bar)?)
    } else {
        None
    };
    bar.finish_and_clear();
    let changed = sources.as_ref().map_or(&[][..], |it| &it.findings);
    if args.json {
        let mut document = document(path);
        if let Some(object) = document.as_object_mut() {
            object.insert("ok".into(), (findings.is_empty() && changed.is_empty()).into());
            if findings.is_empty() {
                object.insert("rows".into(), looked.rows.into());
                object.insert("shards".into(), looked.shards.into());
                object.insert("bytes".into(), looked.bytes.into());
                object.insert("remote".into(), looked.remote_document());
                let staged = looked.staged.iter().map(|path| path.display().to_string());
                object.insert("staged".into(), staged.collect());
            }
            object.insert("findings".into(), findings.iter().map(finding_document).collect());
            if let Some(sources) = &sources {
                object.insert("sources".into(), json!(sources));
            }
        }
        console.print_json(&document)?;
    }
    if !findings.is_empty() {
        for finding in &findings {
            let what = if finding.is_damage() { "damage" } else { "unreadable" };
            console.note(&format!("{what}: {finding}\n  hint: {}", hint(finding)));
        }
        return Err(found(&findings, path));
    }
    for finding in changed {
        console.note(&format!("input: `{}` {}", finding.path, finding.state.text()));
    }
    if let Some(first) = changed.first()
        && changed.iter().all(|finding| finding.state == SourceState::Unreadable)
    {
        let inputs = format!("{} could", counted(changed.len() as u64, "input"));
        return Err(CliError::InputsUnreadable { inputs, first: first.path.clone() });
    }
    if !changed.is_empty() {
        let inputs = counted(changed.len() as u64, "input");
        return Err(CliError::InputsDiffer { inputs, path: path.display().to_string() });
    }
    if args.json {
        return Ok(());
    }
    let mut text = format!(
        "ok: {} in {}, {} {}",
        counted(looked.rows, "row"),
        counted(looked.shards, "shard"),
        HumanBytes(looked.bytes),
        if args.quick { "there by sizes and stored digests" } else { "read" }
    );
    looked.tell_remote(&mut text);
    tell_staged(&looked.staged, &mut text);
    if let Some(it) = &sources {
        let inputs = counted(it.inputs, "input");
        write!(text, "\nok: {inputs} as they were, {} read", HumanBytes(it.bytes)).ok();
    }
    console.print(&text)
}

/// Whether a shard is to be verified, as opposed to a dataset. `is_as_named`: the path is the one that
/// was given, and not that of a definition's dataset.
fn is_shard(storage: &dyn Storage, path: &Path, is_as_named: bool) -> Result<bool, CliError> {
    let holds = |names: &[&str]| -> Result<bool, PipelineError> {
        for name in names {
            if storage.stat(&path.join(name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let is_shard = holds(&[layout::SUMS, layout::SCHEMA])?;
    if !is_shard && !holds(&[layout::COMPLETE, CURRENT, CURRENT_DOCUMENT, PARTITIONS])? {
        let nothing = storage.stat(path).map_err(PipelineError::from)?.is_none();
        let (what, hint) = match (nothing, is_as_named) {
            (true, false) => ("there is no", "build it first: `rowmill run`"),
            (true, true) => ("there is no", "check the path"),
            (false, _) => ("this is no", "name the folder of a dataset or shard, or a definition"),
        };
        return Err(CliError::Usage {
            message: format!("{what} dataset or shard: `{}`", path.display()),
            hint: Some(hint.to_owned()),
        });
    }
    Ok(is_shard)
}

fn read_sources(
    path: &Path,
    registry: Registry,
    bar: &ProgressBar,
) -> Result<SourcesReport, CliError> {
    let pipeline = Pipeline::load(path, &RunOverrides::default(), registry)?;
    Ok(pipeline.verify_sources(|done, all| {
        bar.set_length(all);
        bar.set_position(done);
    })?)
}

fn finding_document(finding: &Finding) -> Value {
    json!({
        "path": finding.path.display().to_string(),
        "block": finding.block.as_ref().map(|block| json!({
            "index": block.index,
            "start": block.bytes.start,
            "end": block.bytes.end,
        })),
        "what": finding.to_string(),
        "damage": finding.is_damage(),
        "hint": hint(finding),
    })
}

/// What to do about a finding, also in a store.
fn hint(finding: &Finding) -> &'static str {
    if !finding.is_damage() || !is_url(&finding.path.to_string_lossy()) {
        return finding.hint();
    }
    match finding.kind {
        FindingKind::Unexpected => "delete the object: nothing reads it",
        FindingKind::NotSealed | FindingKind::Missing => LOST_ELSEWHERE,
        FindingKind::Incomplete(_) => {
            "a push there has not ended: give the same `rowmill push` or `rowmill run` again"
        }
        _ => "push the dataset again with `--replace`, from where it is whole",
    }
}

/// The error that findings end in: damage, if one of them is.
fn found(findings: &[Finding], path: &Path) -> CliError {
    let n_damages = findings.iter().filter(|finding| finding.is_damage()).count() as u64;
    match findings.first() {
        Some(Finding { path: first, kind: FindingKind::Unreadable { kind, .. }, .. })
            if n_damages == 0 =>
        {
            let files = format!("{} could", counted(findings.len() as u64, "file"));
            CliError::Unreadable { files, first: first.display().to_string(), kind: *kind }
        }
        _ => {
            let damages = counted(n_damages, "damage");
            CliError::Damaged { damages, path: path.display().to_string() }
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template =
        "{bar:30.cyan/dim} {percent:>3} %  {bytes}/{total_bytes}  {bytes_per_sec}  eta {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
