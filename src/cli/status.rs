//! `rowmill status`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};

use super::keys::{self, KeyReport};
use super::output::{CliError, Console, counted, unanswered};
use super::target::{Target, age, ago, iso};
use crate::config::Registry;
use crate::dataset::status::{BuildStatus, CompleteGeneration, Status};
use crate::exporters::storage_at;
use crate::pipeline::REPORT_VERSION;
use crate::remote::{BlockCacheOptions, RemoteOptions, is_url};
use crate::storage::{Local, Storage};

/// Open partitions that are listed one by one.
const LISTED: usize = 20;

/// Arguments of `rowmill status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// A dataset's folder (or the one that holds `current`), a definition, or the URL of a dataset.
    path: PathBuf,
    /// Print a JSON document.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints how far a dataset is. Opens no field file, takes no lock, writes nothing.
pub(super) fn execute(
    args: &StatusArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let there = match args.path.to_str().filter(|path| is_url(path)) {
        None => None,
        Some(url) => {
            let (remote, cache) = (RemoteOptions::default(), BlockCacheOptions::default());
            let there = storage_at(url, &remote, cache);
            Some(there.map_err(|e| CliError::reading(e.into()))?)
        }
    };
    let (storage, target): (&dyn Storage, _) = match &there {
        None => (&Local, Target::of(&args.path, registry)?),
        Some(there) => (there, Target::in_storage(there, there.root())?),
    };
    let status = Status::of(storage, &target.home).map_err(|e| CliError::reading(e.into()))?;
    let keys = keys::keys(&target, storage)?;
    if args.json {
        console.print_json(&document(&target, &status, &keys))
    } else {
        console.print(&text(&target, &status, &keys))
    }
}

/// One word for how far it is.
fn state(status: &Status) -> &'static str {
    match (&status.holder, &status.generation, &status.build) {
        (Some(_), ..) => "running",
        (None, Some(_), None) => "complete",
        (None, None, Some(build))
            if build.began.is_none() && build.open.is_empty() && build.n_done == 0 =>
        {
            "new"
        }
        _ => "stopped",
    }
}

fn document(target: &Target, status: &Status, keys: &[KeyReport]) -> Value {
    json!({
        "version": REPORT_VERSION,
        "dataset": target.home.dir().display().to_string(),
        "name": target.home.name(),
        "cache_key": target.home.cache_key(),
        "state": state(status),
        "held_by": status.holder,
        "generation": status.generation.as_ref().map(generation_document),
        "build": status.build.as_ref().map(build_document),
        "keys": keys,
    })
}

fn generation_document(it: &CompleteGeneration) -> Value {
    json!({
        "manifest": it.manifest,
        "completed": iso(it.completed),
        "age_seconds": age(it.completed).map(|age| age.as_secs()),
        "rows": it.n_rows,
        "rejected": it.rejected.values().sum::<u64>(),
        "rejected_by_stage": it.rejected,
        "unanswered": it.n_unanswered,
        "partitions": it.n_partitions,
        "shards": it.n_shards,
        "bytes": it.n_bytes,
        "remote": {"shards": it.n_remote, "urls": it.urls},
    })
}

fn build_document(it: &BuildStatus) -> Value {
    let open = it.open.iter().map(|partition| {
        let shards = partition.glance.open.iter().map(|shard| {
            json!({
                "shard": shard.number,
                "rows": shard.n_rows,
                "bytes": shard.n_bytes,
                "commits": shard.n_segments,
            })
        });
        json!({
            "slot": partition.slot,
            "rows": partition.glance.n_rows,
            "rejected": partition.glance.n_rejected,
            "sealed_shards": partition.glance.sealed.len(),
            "open_shards": shards.collect::<Value>(),
        })
    });
    json!({
        "began": iso(it.began),
        "partitions_done": it.n_done,
        "partitions_open": it.open.len(),
        "partitions_not_begun": it.n_not_begun,
        "rows": it.n_rows,
        "rejected": it.n_rejected,
        "rows_per_second": rate(it),
        "open": open.collect::<Value>(),
    })
}

/// Rows that the last run has committed per second.
fn rate(build: &BuildStatus) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    build.rate.map(|(n_rows, took)| n_rows as f64 / took.as_secs_f64().max(1e-3))
}

fn text(target: &Target, status: &Status, keys: &[KeyReport]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    line("dataset", target.home.dir().display().to_string());
    let state = match (state(status), &status.holder) {
        ("running", Some(holder)) => format!("running ({holder})"),
        ("stopped", _) if is_url(&target.home.dir().to_string_lossy()) => {
            "incomplete: `rowmill push` goes on with it".to_owned()
        }
        ("stopped", _) => "stopped: `rowmill run` goes on from here".to_owned(),
        ("new", _) => "nothing is built yet".to_owned(),
        (state, _) => state.to_owned(),
    };
    line("state", state);
    if let Some(it) = &status.generation {
        generation(it, &mut line);
    }
    if let Some(it) = &status.build
        && (it.began.is_some() || !it.open.is_empty() || it.n_done > 0)
    {
        build(it, &mut line);
    }
    keys::lines(keys, &mut line);
    text
}

fn generation(it: &CompleteGeneration, line: &mut impl FnMut(&str, String)) {
    line(
        "complete",
        format!(
            "{} in {} of {}, {}, {}",
            counted(it.n_rows, "row"),
            counted(it.n_shards, "shard"),
            counted(it.n_partitions, "partition"),
            HumanBytes(it.n_bytes),
            ago(it.completed)
        ),
    );
    if it.n_remote > 0 {
        line("elsewhere", format!("the rows of {}", counted(it.n_remote, "shard")));
        for url in &it.urls {
            line("", format!("`rowmill pull {url} DIR` brings them back"));
        }
    }
    for (stage, rejected) in &it.rejected {
        line("rejected", format!("{} by `{stage}`", counted(*rejected, "row")));
    }
    if it.n_unanswered > 0 {
        line("", unanswered(it.n_unanswered));
    }
}

fn build(it: &BuildStatus, line: &mut impl FnMut(&str, String)) {
    let not_begun = match it.n_not_begun {
        Some(n) => format!(", {} not begun", HumanCount(n)),
        None => String::new(),
    };
    let n_open = HumanCount(it.open.len() as u64);
    line("build", format!("{} done, {n_open} open{not_begun}", counted(it.n_done, "partition")));
    line("", format!("{} committed", counted(it.n_rows, "row")));
    if it.n_rejected > 0 {
        line("", format!("{} rejected", counted(it.n_rejected, "row")));
    }
    if let Some(rate) = rate(it) {
        line("", format!("{rate:.0} rows/s, begun {}", ago(it.began)));
    }
    for partition in it.open.iter().take(LISTED) {
        let slot = partition.slot.get(..8).unwrap_or_default();
        let sealed = counted(partition.glance.sealed.len() as u64, "sealed shard");
        line(
            "open",
            format!("{slot}  {sealed}, {} in all", counted(partition.glance.n_rows, "row")),
        );
        for shard in &partition.glance.open {
            line(
                "",
                format!(
                    "  shard {}: {}, {}, {}",
                    shard.number,
                    counted(shard.n_rows, "row"),
                    HumanBytes(shard.n_bytes),
                    counted(shard.n_segments, "commit")
                ),
            );
        }
    }
    if let Some(more) = it.open.len().checked_sub(LISTED).filter(|n| *n > 0) {
        line("", format!("and {more} more (--json lists all)"));
    }
}
