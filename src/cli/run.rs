//! `rowmill run`.

use std::fmt::Write;
use std::sync::Arc;

use chrono::Timelike;
use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use super::DefinitionArgs;
use super::duration::Until;
use super::output::{CliError, Console, STAT_NOTE, counted, unanswered};
use super::progress::{Progress, ProgressMode};
use super::signals::Signals;
use crate::config::Registry;
use crate::fingerprint::Fingerprinting;
use crate::pipeline::{CacheReport, Live, Pipeline, PipelineError, Report};

/// Arguments of `rowmill run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// How progress is shown on stderr.
    #[arg(long, value_enum, default_value_t = ProgressMode::Auto)]
    progress: ProgressMode,
    /// Stop at a commit when the time is up, as a signal does: after a while, such as `2h` or `90m`, or
    /// at a time of the day, such as `06:30`. The same command goes on.
    #[arg(long, value_name = "TIME", value_parser = Until::parse)]
    until: Option<Until>,
    /// Ask hooks again about rows that they did not answer: the partitions that hold them are built again.
    #[arg(long)]
    retry_rejects: bool,
    /// Build the dataset together with other runs, on this machine or others, that share nothing but the
    /// place it is pushed to: what one has finished, the others take over.
    #[arg(long, value_name = "URL", conflicts_with = "retry_rejects")]
    at: Option<String>,
    /// Print the report as one JSON document on stdout.
    #[arg(long)]
    pub(super) json: bool,
}

/// Builds the dataset and prints the report.
pub(super) fn execute(
    args: &RunArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let pipeline = args.definition.load(registry, console)?;
    let pipeline = if args.retry_rejects { pipeline.retrying_rejects() } else { pipeline };
    let pipeline = Arc::new(match &args.at {
        Some(url) => pipeline.sharing_at(url)?,
        None => pipeline,
    });
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(PipelineError::Runtime)?;
    let report = runtime.block_on(build(&pipeline, args, console));
    // After a second signal blocking threads may still be at work; what they do is recovered from.
    runtime.shutdown_background();
    let report = report?;
    if let Some(push) = &report.push {
        super::push::warn(push, console);
    }
    if args.json {
        return console.print_json(&report);
    }
    console.print(&summary(&report))
}

/// Lets this process open as many files as it may: an open shard has one or two per field, and many
/// systems begin at 1,024 or fewer. Where it may not, the first file that cannot be made says so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}

async fn build(
    pipeline: &Arc<Pipeline>,
    args: &RunArgs,
    console: &Console,
) -> Result<Report, PipelineError> {
    let live = Arc::new(Live::default());
    let progress = Progress::new(args.progress, Arc::clone(&live));
    let stop = CancellationToken::new();
    // Before anything is written: a signal must find a run that stops at a commit.
    let signals = Signals::install().map_err(PipelineError::Runtime)?;
    let until = args.until.map(|until| until.span_at(seconds_of_day()));
    let work = pipeline.run(Arc::clone(&progress) as _, live, stop.clone());
    let ended = tokio::select! {
        biased;
        report = work => report,
        () = signals.wait(stop, until, pipeline.grace(), console) => Err(PipelineError::Stopped),
        () = progress.draw() => Err(PipelineError::Stopped),
    };
    progress.finish();
    ended
}

/// How far the day has come where this machine is.
fn seconds_of_day() -> u64 {
    chrono::Local::now().num_seconds_from_midnight().into()
}

/// The report for people, with the lines that read the result.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    let seconds = report.seconds.max(1e-9);
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            writeln!(text, "{name:<11}{value}").ok();
        }
    };
    line("dataset", report.dataset.clone());
    let state = if report.up_to_date { "  (up to date, nothing was built)" } else { "" };
    line("rows", format!("{}{state}", HumanCount(report.rows)));
    let partitions = counted(report.partitions, "partition");
    line("shards", format!("{} in {partitions}", HumanCount(report.shards)));
    line("bytes", HumanBytes(report.bytes).to_string());
    if report.resumed_rows > 0 && !report.up_to_date {
        line("resumed", format!("{} were there before", counted(report.resumed_rows, "row")));
    }
    if report.adopted_partitions > 0 {
        let partitions = counted(report.adopted_partitions, "partition");
        let rows = counted(report.adopted_rows, "row");
        line("adopted", format!("{partitions} with {rows}, built by others"));
    }
    if report.rejected > 0 {
        line("rejected", counted(report.rejected, "row"));
        for kind in &report.rejects {
            line("", kind.to_string());
        }
    }
    if report.unanswered > 0 {
        line("", unanswered(report.unanswered));
    }
    if report.asked_again > 0 {
        line(
            "retried",
            format!("{} that were not answered before", counted(report.asked_again, "row")),
        );
    }
    for field in &report.interned {
        line(
            "interned",
            format!(
                "{}: {} share {} (counted once per shard), {}",
                field.field,
                counted(field.rows, "row"),
                counted(field.values, "value"),
                HumanBytes(field.dictionary_bytes)
            ),
        );
    }
    if !report.up_to_date {
        let new_rows = report.rows.saturating_sub(report.resumed_rows + report.adopted_rows);
        line("time", format!("{seconds:.2} s, {} rows/s", per_second(new_rows, seconds)));
        let bottleneck = report.bottleneck().map(|stage| stage.name.clone());
        for stage in &report.stages {
            let mark =
                if Some(&stage.name) == bottleneck.as_ref() { "  <- bottleneck" } else { "" };
            line(
                "stage",
                format!(
                    "{:<12} busy {:>7.2} s  waiting {:>7.2} s  {:>10} rows{mark}",
                    stage.name,
                    stage.busy_seconds,
                    stage.blocked_seconds,
                    HumanCount(stage.rows).to_string()
                ),
            );
            if let Some(CacheReport { rows, known, hit_rate: Some(rate) }) = &stage.cache {
                let (known, percent) = (HumanCount(*known), rate * 100.0);
                let rows = counted(*rows, "row");
                line("", format!("{:<12} {known} of {rows} known, {percent:.1} %", ""));
            }
        }
    }
    if let Some(push) = &report.push {
        for (name, value) in super::push::lines(push) {
            line(name, value);
        }
    }
    if let Some(peak) = report.peak_rss_bytes {
        line("memory", format!("{} at most", HumanBytes(peak)));
    }
    if !report.current {
        let why =
            "it is for whole builds of the definition as it is, without --limit-rows or --set";
        line("note", format!("`current` was left alone: {why}"));
    }
    if report.fingerprint == Fingerprinting::Stat {
        line("note", STAT_NOTE.to_owned());
    }
    text.push_str(&report.reading);
    text
}

fn per_second(rows: u64, seconds: f64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate for people"
    )]
    let rate = (rows as f64 / seconds) as u64;
    HumanCount(rate).to_string()
}
