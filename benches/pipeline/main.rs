//! `rowmill run` from start to end: against the plain writer, against scripts with pyarrow, polars and
//! NumPy, killed and resumed, and with nothing left to do.
//!
//!     cargo bench --bench pipeline [-- --quick] [--shape files] [--only resume] [--json]
//!
//! Shapes are files, wide and tiny, and csv, jsonl, parquet, idx and npy (see `inputs`). Of the latter,
//! the scripts end in the bytes that Rowmill has in the files of its fields; this is checked. Times
//! are those of processes, start included; inputs are cached by the system. What was measured and why
//! is in `docs/performance.md`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench measures the file system beside Rowmill, and says what it found"
)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "made-up values, and rates for people"
)]

mod arrays;
mod inputs;
#[expect(dead_code, reason = "the store's bench compares pairs, without scripts")]
#[path = "../machine/mod.rs"]
mod machine;
mod peers;
mod tables;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use inputs::{Case, NAMES};
use machine::plain::Plain;
use machine::table::{Figure, Target};
use machine::{Args, Result, Scratch, lanes, median, remove, timed};
use peers::{Runner, checked, in_turn};
use serde_json::Value;

/// What the definitions leave at its default.
const MEMORY_MIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * 1024.0;
/// So that a run can be killed between many commits.
const MANY_COMMITS: &[&str] = &["--set", "run.commit_bytes=8388608"];

fn main() -> Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let mut scratch = Scratch::new("pipeline")?;
    let mut figures = Vec::new();
    for name in NAMES.into_iter().filter(|name| args.wants(name)) {
        let dir = scratch.fresh();
        let case = Case::make(name, &dir, args.quick)?;
        eprintln!("{name}: {} rows, {}, {} MB", case.n_rows, case.about, case.bytes / 1_000_000);
        let (out, other) = (dir.join("out"), dir.join("other"));
        if args.measures("run") {
            figures.extend(measure(&case, args.rounds(), &out, &other)?);
        }
        if args.measures("resume") {
            figures.push(resume(&case, args.rounds(), &out)?);
        }
        machine::remove(&dir)?;
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(())
}

/// Runs to the end, and once more.
fn measure(case: &Case, rounds: usize, out: &Path, other: &Path) -> Result<Vec<Figure>> {
    let (_, report) = run(case, out, &[])?;
    let (peak, bytes) = (number(&report, "peak_rss_bytes")?, number(&report, "bytes")?);
    let mut again = Vec::new();
    for _ in 0..rounds {
        let (time, report) = run(case, out, &[])?;
        if report.get("up_to_date") != Some(&Value::Bool(true)) {
            return Err("a second run built something".into());
        }
        again.push(time);
    }
    let files = files_of(&report)?;
    let plain = Plain::new();
    let mut names = vec!["plain"];
    let mut runners: Vec<Runner> = vec![Box::new(|dir| Ok(plain.write(dir, &files)?))];
    for script in case.scripts {
        if let Some(lacks) = script.lacks()? {
            eprintln!("{}: {} is SKIPPED: {lacks}", case.name, script.name);
            continue;
        }
        remove(other)?;
        script.run(case, other)?;
        script.check(&dataset_of(&report)?, other)?;
        names.push(script.name);
        runners.push(Box::new(|dir| script.run(case, dir)));
    }
    let ours: Runner = Box::new(|dir| Ok(run(case, dir, &[])?.0));
    let compared = in_turn(rounds, (ours, out), (runners, other))?;
    remove(other)?;
    let again = median(again).as_secs_f64() * 1e3;
    let rows = (case.n_rows as f64 / 1e3, "k rows/s");
    let title = |what| (case.name, what);
    let most = Target::AtMost(MEMORY_MIB + 64.0);
    let mut figures = Vec::new();
    for (name, pair) in names.into_iter().zip(compared) {
        figures.push(match name {
            "plain" => Figure::rate(title("run"), (bytes / 1e9, "GB/s"), name, pair, case.target),
            _ => Figure::rate(title("run, rows"), rows, name, pair, Target::Open),
        });
    }
    figures.push(Figure::alone(title("run again, up to date"), (again, "ms"), Target::Open));
    figures.push(Figure::alone(title("peak memory"), (peak / MIB, "MiB"), most));
    Ok(figures)
}

fn rowmill(case: &Case, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowmill"));
    command.arg("run").arg(&case.definition).arg("--out").arg(out).arg("--json").args(more);
    command
}

/// Runs to the end, and gives the time and the report.
fn run(case: &Case, out: &Path, more: &[&str]) -> Result<(Duration, Value)> {
    let mut command = rowmill(case, out, more);
    let (time, output) = timed(|| Ok(command.args(["--progress", "none"]).output()?))?;
    Ok((time, serde_json::from_slice(&checked(output)?)?))
}

fn number(report: &Value, key: &str) -> Result<f64> {
    report
        .get(key)
        .and_then(Value::as_f64)
        .ok_or_else(|| format!("no `{key}` in the report").into())
}

fn dataset_of(report: &Value) -> Result<PathBuf> {
    let dataset = report.get("dataset").and_then(Value::as_str).ok_or("no `dataset`")?;
    Ok(dataset.into())
}

/// The sizes of the files of all shards, in as many lanes as Rowmill has jobs.
fn files_of(report: &Value) -> Result<Vec<Vec<machine::plain::Shard>>> {
    let mut files = vec![Vec::new(); lanes()];
    for (n, shard) in fs::read_dir(dataset_of(report)?.join("shards"))?.enumerate() {
        let lane = n % files.len();
        files[lane].push(Plain::shard_like(&shard?.path())?);
    }
    Ok(files)
}

/// Kills runs after three quarters of their commits, and runs them to the end: the time that takes
/// beyond the share that the rows that are left have of an undisturbed run.
fn resume(case: &Case, rounds: usize, out: &Path) -> Result<Figure> {
    let mut seen = Vec::new();
    for _ in 0..rounds {
        remove(out)?;
        let (whole, _) = run(case, out, MANY_COMMITS)?;
        remove(out)?;
        let n_events = watch(case, out, usize::MAX)?;
        remove(out)?;
        watch(case, out, n_events * 3 / 4)?;
        let open_bytes = open_bytes(out)?;
        let (time, report) = run(case, out, MANY_COMMITS)?;
        let left = 1.0 - number(&report, "resumed_rows")? / case.n_rows as f64;
        let beyond = time.as_secs_f64() - whole.as_secs_f64() * left;
        seen.push((beyond, 0.5 + open_bytes / 1e9));
    }
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (beyond, most) = seen[seen.len() / 2];
    let title = (case.name, "kill -9 and resume, beyond the rows that are left");
    Ok(Figure::alone(title, (beyond * 1e3, "ms"), Target::AtMost(most * 1e3)))
}

/// Runs until so many steps are durable, then kills the run. Gives how many there were.
fn watch(case: &Case, out: &Path, most: usize) -> Result<usize> {
    let mut command = rowmill(case, out, MANY_COMMITS);
    command.args(["--progress", "json"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stderr = child.stderr.take().ok_or("no stderr")?;
    let n = BufReader::new(stderr).lines().take(most).count();
    child.kill()?;
    child.wait()?;
    Ok(n)
}

/// Bytes in open shards, which a resumed run reads once.
fn open_bytes(out: &Path) -> Result<f64> {
    let mut bytes = 0;
    let mut dirs: Vec<PathBuf> = fs::read_dir(out.join("bench"))?
        .map(|entry| Ok(entry?.path().join("work/open")))
        .collect::<Result<_>>()?;
    dirs.retain(|dir| dir.is_dir());
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            match entry.metadata()? {
                meta if meta.is_dir() => dirs.push(entry.path()),
                meta => bytes += meta.len(),
            }
        }
    }
    Ok(bytes as f64)
}
