//! `rowmill plan`.

use std::fmt::Write;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};

use super::output::{CliError, Console, STAT_NOTE, counted, of_inputs};
use super::target::Target;
use super::{DefinitionArgs, keys, why};
use crate::config::Registry;
use crate::fingerprint::Fingerprinting;
use crate::pipeline::{HookBound, MemoryBound, PartitionState, PlanReport};
use crate::storage::Local;

/// Partitions that are listed one by one; the rest is summed up.
const LISTED: usize = 20;

/// Arguments of `rowmill plan`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct PlanArgs {
    #[command(flatten)]
    definition: DefinitionArgs,
    /// Say why partitions will be built: which inputs, settings or types differ from what is built.
    #[arg(long)]
    why: bool,
    /// List the cache keys that there are, and the settings in which they differ from this definition.
    #[arg(long, conflicts_with = "why")]
    keys: bool,
    /// Plan a run that asks hooks again about rows that they did not answer.
    #[arg(long, conflicts_with = "keys")]
    retry_rejects: bool,
    /// Print a JSON document, with every partition.
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints what a run would do. Writes nothing.
pub(super) fn execute(
    args: &PlanArgs,
    registry: Registry,
    console: &Console,
) -> Result<(), CliError> {
    let pipeline = args.definition.load(registry, console)?;
    let pipeline = if args.retry_rejects { pipeline.retrying_rejects() } else { pipeline };
    if args.keys {
        let target = Target::of_pipeline(&pipeline);
        return keys::print(&target, &keys::keys(&target, &Local)?, args.json, console);
    }
    let report = if args.why { pipeline.plan_and_why()? } else { pipeline.plan()? };
    if args.json { console.print_json(&report) } else { console.print(&text(&report)) }
}

fn text(report: &PlanReport) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<11}{value}").ok();
    };
    let inputs = (report.inputs, report.input_bytes);
    of_inputs(&report.dataset, inputs, &report.sources, &mut line);
    if report.fingerprint == Fingerprinting::Stat {
        line("", STAT_NOTE.to_owned());
    }
    if let Some(rows) = report.rows {
        line("rows", HumanCount(rows).to_string());
    }
    for learned in &report.learned {
        line("learned", learned.text());
    }
    let in_state = |state: PartitionState| {
        let some = report.partitions.iter().filter(move |p| p.state == state);
        some.fold((0_u64, 0_u64), |(n, bytes), p| (n + 1, bytes + p.bytes))
    };
    for (state, what) in [
        (PartitionState::Done, "done: reused as it is"),
        (PartitionState::Begun, "begun: goes on where it stopped"),
        (PartitionState::New, "new: to be built"),
    ] {
        let (n, bytes) = in_state(state);
        if n > 0 {
            line("partitions", format!("{} {what} ({})", HumanCount(n), HumanBytes(bytes)));
        }
    }
    if report.asked_again > 0 {
        let rows = counted(report.asked_again, "row");
        line("retry", format!("hooks are asked again about {rows} that they did not answer"));
    }
    if report.up_to_date {
        line("", "up to date: a run would build nothing".to_owned());
    }
    for partition in report.partitions.iter().take(LISTED) {
        let rows =
            partition.rows.map(|n| format!("  {:>11}", counted(n, "row"))).unwrap_or_default();
        let again = match partition.asked_again {
            0 => String::new(),
            n => format!(", asks again about {}", counted(n, "row")),
        };
        line(
            "",
            format!(
                "{}  {:<5}  {:>11}  {:>11}{rows}  from {}{again}",
                partition.slot.get(..8).unwrap_or_default(),
                partition.state.name(),
                counted(partition.inputs, "file"),
                HumanBytes(partition.bytes).to_string(),
                partition.first_input,
            ),
        );
    }
    if let Some(more) = report.partitions.len().checked_sub(LISTED).filter(|n| *n > 0) {
        line("", format!("and {more} more (--json lists all)"));
    }
    for cache in &report.caches {
        let (n, dir) = (counted(cache.rows, "row"), &cache.cache);
        line("known", format!("{n} of `{}` in {dir}, of whichever inputs", cache.stage));
    }
    if let Some(why) = &report.why {
        why::lines(report, why, &mut line);
    }
    if let Some(free) = report.free_bytes {
        line("disk", format!("{} free", HumanBytes(free)));
    }
    memory(&report.memory, &mut line);
    text
}

fn memory(bound: &MemoryBound, line: &mut impl FnMut(&str, String)) {
    line(
        "memory",
        format!("at most {} of {}", HumanBytes(bound.bound_bytes), HumanBytes(bound.memory_bytes)),
    );
    line("", format!("list of inputs {}", HumanBytes(bound.inputs_bytes)));
    line(
        "",
        format!(
            "{}, each with {}",
            counted(bound.jobs as u64, "job"),
            counted(bound.workers as u64, "transforming thread")
        ),
    );
    for (what, bytes) in [
        ("reader", bound.reader_bytes),
        ("edges", bound.edges_bytes),
        ("transforms", bound.transforms_bytes),
        ("writer", bound.writer_bytes),
    ] {
        line("", format!("  {what:<11}{}", HumanBytes(bytes)));
        if what != "transforms" {
            continue;
        }
        for HookBound { name, at_once, cutting_bytes, answers_bytes } in &bound.hooks {
            line(
                "",
                format!(
                    "    of which `{name}`: {} to cut batches, {} for answers ({at_once} at once)",
                    HumanBytes(*cutting_bytes),
                    HumanBytes(*answers_bytes),
                ),
            );
        }
    }
    if bound.index_bytes > 0 {
        line("", format!("a large row for an index {}", HumanBytes(bound.index_bytes)));
    }
    if bound.finish_bytes > 0 {
        line("", format!("merging keys at the end {}", HumanBytes(bound.finish_bytes)));
    }
    if bound.push_bytes > 0 {
        line("", format!("on its way to the object store {}", HumanBytes(bound.push_bytes)));
    }
    if bound.caches_bytes > 0 {
        line("", format!("feature caches {}", HumanBytes(bound.caches_bytes)));
    }
    line("", format!("batches of about {}", HumanBytes(bound.batch_bytes)));
}
