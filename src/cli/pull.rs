//! `rowmill pull`.

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
use super::transfer::{Transferred, bar, draw};
use crate::exporters::{PullError, PullLive, PullOptions, PullReport, PullSeen, pull};
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::remote::{Remote, RemoteOptions};
use crate::storage::Local;

/// How long what is on its way to the disk may take when a pull is to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Arguments of `rowmill pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// Where from: `URL/<name>`, whose `current.json` is followed, or `URL/<name>/<cache key>`, at
    /// `s3://`, `gs://`, `az://`, `http(s)://` or `file:///`.
    url: String,
    /// Folder for datasets: it goes to `DIR/<name>/<cache key>`.
    dir: PathBuf,
    /// Only these shards, counted from 0, such as `0-3,7`: no sentinel is written, so that a later
    /// pull of all goes on from there.
    #[arg(long, value_name = "LIST", value_parser = Shards::parse)]
    shards: Option<Shards>,
    /// Bytes that are asked for at once, at least 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = part_bytes)]
    part_size: u64,
    /// Requests at once; each takes a part's size of memory.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Print the report as one JSON document on stdout.
    #[arg(long)]
    pub(super) json: bool,
}

/// Numbers of shards.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shards(Vec<usize>);

impl Shards {
    /// The most that can be listed: a typing error shall not fill the memory.
    const MOST: usize = 1 << 20;

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write numbers and ranges such as 0-3,7".to_owned();
        let mut numbers = Vec::new();
        for piece in text.split(',') {
            let (from, to) = piece.split_once('-').unwrap_or((piece, piece));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
            let (from, to) = (number(from)?, number(to)?);
            if from > to || to - from >= Self::MOST - numbers.len().min(Self::MOST) {
                return Err(wrong());
            }
            numbers.extend(from..=to);
        }
        Ok(Self(numbers))
    }
}

fn part_bytes(text: &str) -> Result<u64, String> {
    let bytes = text.parse().map(|bytesize::ByteSize(bytes)| bytes);
    bytes.ok().filter(|bytes| *bytes >= 1 << 20).ok_or("write a size of 1MiB or more".to_owned())
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    report: &'a PullReport,
}

/// Pulls the dataset and prints the report.
pub(super) fn execute(args: &PullArgs, console: &Console) -> Result<(), CliError> {
    let remote = Remote::open(&args.url, &RemoteOptions::default());
    let remote = remote.map_err(|e| failed(e.into()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(PipelineError::Runtime)?;
    let report = runtime.block_on(perform(remote, args, console));
    // After a second signal files may still be written; the next pull looks at what they hold.
    runtime.shutdown_background();
    let report = report.map_err(failed)?;
    if args.json {
        return console.print_json(&Document { version: REPORT_VERSION, report: &report });
    }
    console.print(&summary(&report))
}

fn failed(error: PullError) -> CliError {
    CliError::reading(match error {
        PullError::Storage(error) => PipelineError::Storage(error),
        PullError::Dataset(error) => PipelineError::Dataset(error),
        PullError::Remote(error) => PipelineError::Remote(error),
        PullError::Space { path, free, needed } => PipelineError::Space {
            path,
            free: HumanBytes(free).to_string(),
            needed: HumanBytes(needed).to_string(),
        },
        PullError::Stopped => PipelineError::Stopped,
        PullError::Runtime(error) => PipelineError::Runtime(error),
        PullError::NoShard { .. } => {
            let message = error.to_string();
            return CliError::Usage { message, hint: Some("`rowmill inspect` lists them".into()) };
        }
    })
}

async fn perform(
    remote: Remote,
    args: &PullArgs,
    console: &Console,
) -> Result<PullReport, PullError> {
    let (live, stop) = (Arc::new(PullLive::default()), CancellationToken::new());
    let signals = Signals::install().map_err(PullError::Runtime)?;
    let options = PullOptions { part_bytes: args.part_size, concurrency: args.concurrency.into() };
    let only = args.shards.as_ref().map(|shards| shards.0.clone());
    let bar = bar();
    let (of_pull, stopped) = (Arc::clone(&live), stop.clone());
    let work = pull(remote, Arc::new(Local), &args.dir, only, options, of_pull, stopped);
    let ended = tokio::select! {
        biased;
        report = work => report,
        () = signals.wait(stop, None, GRACE, console) => Err(PullError::Stopped),
        () = draw(&bar, || transferred(live.seen()), console) => Err(PullError::Stopped),
    };
    bar.finish_and_clear();
    ended
}

fn transferred(PullSeen { total_bytes, there_bytes, received_bytes }: PullSeen) -> Transferred {
    Transferred { total: total_bytes, there: there_bytes, moved: received_bytes }
}

fn summary(report: &PullReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    line("dataset", report.dataset.clone());
    line("rows", HumanCount(report.rows).to_string());
    let before = match report.shards_before {
        0 => String::new(),
        n => format!("  ({} were here before, and were not read again)", HumanCount(n)),
    };
    line("shards", format!("{}{before}", HumanCount(report.shards)));
    line("bytes", HumanBytes(report.bytes).to_string());
    line("received", HumanBytes(report.received_bytes).to_string());
    if report.shards_before > 0 {
        let note = "`rowmill verify` reads what was here before and compares it with its sums";
        line("note", note.to_owned());
    }
    if !report.complete {
        let all = counted(report.shards_of_dataset, "shard");
        line("note", format!("this is a part of {all}: no sentinel was written"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_shards_are_numbers_and_ranges() {
        for (text, want) in [
            ("7", Some(vec![7])),
            ("0-3,7", Some(vec![0, 1, 2, 3, 7])),
            (" 2 - 3 ", Some(vec![2, 3])),
            ("3-1", None),
            ("", None),
            ("1,", None),
            ("-1", None),
            ("0-99999999999", None),
            ("a", None),
        ] {
            assert_eq!(Shards::parse(text).ok().map(|it| it.0), want, "{text:?}");
        }
    }
}
