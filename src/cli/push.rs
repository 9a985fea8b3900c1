//! `rowmill push`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::output::{CliError, Console, counted};
use super::signals::Signals;
use super::target::Target;
use super::transfer::{Transferred, bar, draw};
use crate::config::{PushConfig, Registry};
use crate::exporters::{Push, PushError, PushLive, PushOptions, PushReport, PushSeen, Replaced};
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::remote::{Remote, RemoteOptions};
use crate::storage::Local;

/// How long parts that are on their way may take to arrive when a push is to stop.
const GRACE: Duration = Duration::from_secs(30);

/// The smallest part that stores take.
const MIN_PART_BYTES: u64 = PushConfig::LEAST_PART_BYTES;

/// Arguments of `rowmill push`.
#[derive(Debug, Args)]
pub struct PushArgs {
    /// A complete dataset: its folder (or the one that holds `current`), or a definition.
    dataset: PathBuf,
    /// Where to: `s3://bucket/prefix`, `gs://…`, `az://…` or `file:///…`; the dataset goes to
    /// `URL/<name>/<cache key>`.
    url: String,
    /// Size of the parts that large files are sent in, 5MiB to 5GiB.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = part_bytes)]
    part_size: u64,
    /// Parts and small files sent at once; each takes a part's size of memory.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Most bytes per second, such as `50MiB`.
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    bandwidth: Option<u64>,
    /// Replace objects that are not the files of their names, and a generation that somebody else has
    /// put there.
    #[arg(long)]
    replace: bool,
    /// Remove the rows of each shard here as soon as it is there and was seen there; `rowmill pull`
    /// brings them back.
    #[arg(long)]
    drop_local: bool,
    /// Print the report as one JSON document on stdout.
    #[arg(long)]
    pub(super) json: bool,
}

fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "write a size such as 16MiB".to_owned();
    let bytesize::ByteSize(bytes) = text.parse().map_err(|_| wrong())?;
    if bytes == 0 { Err(wrong()) } else { Ok(bytes) }
}

fn part_bytes(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if bytes < MIN_PART_BYTES {
        return Err("stores take parts of 5MiB or more".to_owned());
    }
    if bytes > PushConfig::MOST_PART_BYTES {
        return Err("stores take parts of 5GiB or less".to_owned());
    }
    Ok(bytes)
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    report: &'a PushReport,
}

/// Pushes the dataset and prints the report.
pub(super) fn execute(
    args: &PushArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let failed = |error: PushError| CliError::reading(error.into());
    let remote = Remote::open(&args.url, &RemoteOptions::default());
    let remote = remote.map_err(PushError::from).map_err(failed)?;
    let target = Target::of(&args.dataset, registry)?;
    let options = PushOptions {
        part_bytes: args.part_size,
        concurrency: args.concurrency.into(),
        bandwidth: args.bandwidth,
        replace: args.replace,
    };
    let push = Push::open(Arc::new(Local), target.home.dir(), remote, options);
    let push = if args.drop_local { push.and_then(Push::drop_local) } else { push };
    let push = push.map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(PipelineError::Runtime)?;
    let report = runtime.block_on(perform(push, console));
    // After a second signal requests may still be on their way; what they do is found again.
    runtime.shutdown_background();
    let report = report.map_err(failed)?;
    warn(&report, console);
    if args.json {
        return console.print_json(&Document { version: REPORT_VERSION, report: &report });
    }
    console.print(&summary(&report))
}

async fn perform(push: Push, console: &Console) -> Result<PushReport, PushError> {
    let (live, stop) = (Arc::new(PushLive::default()), CancellationToken::new());
    let signals = Signals::install().map_err(PushError::Runtime)?;
    let bar = bar();
    let ended = tokio::select! {
        biased;
        report = push.run(Arc::clone(&live), stop.clone()) => report,
        () = signals.wait(stop, None, GRACE, console) => Err(PushError::Stopped),
        () = draw(&bar, || transferred(live.seen()), console) => Err(PushError::Stopped),
    };
    bar.finish_and_clear();
    ended
}

fn transferred(PushSeen { total_bytes, sent_bytes, skipped_bytes, .. }: PushSeen) -> Transferred {
    Transferred { total: total_bytes, there: sent_bytes + skipped_bytes, moved: sent_bytes }
}

/// The report for people.
fn summary(report: &PushReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    line("dataset", report.dataset.clone());
    let shards = counted(report.shards, "shard");
    line("rows", format!("{} in {shards}", HumanCount(report.rows)));
    for (name, value) in lines(report) {
        line(name, value);
    }
    text
}

/// Says on stderr what nobody may have wanted: that somebody else's generation is not current any more.
pub(super) fn warn(report: &PushReport, console: &Console) {
    if let Some(replaced) = report.replaced.as_ref().filter(|it| !it.from_here) {
        let generation = replaced.generation.get(..16).unwrap_or(&replaced.generation);
        console.note(&format!(
            "warning: `{}` held generation {generation}, which was not pushed from here; this one \
             stands in its place now",
            report.url
        ));
    }
}

/// What a push came to, line by line.
pub(super) fn lines(report: &PushReport) -> Vec<(&'static str, String)> {
    let objects = |n: u64, bytes: u64| format!("{}, {}", counted(n, "object"), HumanBytes(bytes));
    let mut lines = vec![
        ("pushed to", report.url.clone()),
        ("sent", objects(report.sent_objects, report.sent_bytes)),
    ];
    if report.skipped_objects > 0 || report.skipped_bytes > 0 {
        lines.push(("there", objects(report.skipped_objects, report.skipped_bytes)));
    }
    if let Some(Replaced { generation, from_here }) = &report.replaced {
        let generation = generation.get(..16).unwrap_or(generation);
        let whence = if *from_here { "pushed from here before" } else { "pushed from elsewhere" };
        lines.push(("replaced", format!("generation {generation}, {whence}")));
    }
    if report.dropped_shards > 0 {
        let (shards, bytes) = (counted(report.dropped_shards, "shard"), report.dropped_bytes);
        let text = format!("the rows of {shards}, {} that are only there now", HumanBytes(bytes));
        lines.push(("dropped", text));
    }
    let requests = counted(report.requests, "request");
    lines.push(("pushing", format!("{:.2} s, {requests}", report.seconds)));
    if !report.current {
        let note = "`current.json` was left alone: `current` is another cache key";
        lines.push(("note", note.to_owned()));
    }
    lines.extend(report.unguarded.clone().map(|unguarded| ("note", unguarded)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_least_size_that_stores_take() {
        for (text, want) in [
            ("16MiB", Some(16 << 20)),
            ("5MiB", Some(5 << 20)),
            ("4MiB", None),
            ("0", None),
            ("6GiB", None),
        ] {
            assert_eq!(part_bytes(text).ok(), want, "{text}");
        }
        assert_eq!(bytes("1KiB"), Ok(1024));
    }
}
