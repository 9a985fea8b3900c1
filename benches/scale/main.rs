//! What many inputs, many shards and many keys take: time and memory against their number.
//!
//!     cargo bench --bench scale [-- --quick] [--shape inputs|shards|keys] [--json]
//!
//! Inputs are listed without a disk, shards are folders with the files that finishing a dataset looks
//! at, and keys are made up. Every figure is of one run; what counts is that ten times as many take ten
//! times as long. Of the full run, `keys` takes 5 GB of disk and `shards` 1 GB.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench makes folders that no build would make, and says what it found"
)]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "made-up values, and rates for people"
)]

mod keys;
#[allow(dead_code, reason = "the other benches compare with a plain writer")]
#[path = "../machine/mod.rs"]
mod machine;
mod many;
mod shards;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machine::table::{Figure, Target};
use machine::{Args, Result, Scratch, timed};
use rowmill::config::Registry;
use rowmill::dataset::Dataset;
use rowmill::dataset::status::Status;
use rowmill::pipeline::{
    Event, Live, Observer, Pipeline, PlanReport, Report, RunOverrides, peak_rss_bytes,
};
use rowmill::storage::Local;
use tokio_util::sync::CancellationToken;

fn main() -> Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let mut scratch = Scratch::new("scale")?;
    let mut figures = Vec::new();
    let up_to = |n: u64| (3..).map(|e| 10_u64.pow(e)).take_while(move |it| *it <= n);
    if args.wants("inputs") {
        for n in up_to(if args.quick { 10_000 } else { 1_000_000 }) {
            eprintln!("inputs: {n}");
            figures.extend(inputs(&scratch.fresh(), n)?);
        }
    }
    if args.wants("shards") {
        for n in up_to(if args.quick { 10_000 } else { 100_000 }) {
            eprintln!("shards: {n}");
            let dir = scratch.fresh();
            figures.extend(shards::measure(&dir, n)?);
            machine::remove(&dir)?;
        }
    }
    if args.wants("keys") {
        let sizes =
            [(1_000_000, 100), (10_000_000, 100), (100_000_000, 100), (100_000_000, 10_000)];
        for (n_keys, n_shards) in sizes.into_iter().take(if args.quick { 1 } else { 4 }) {
            eprintln!("keys: {n_keys} in {n_shards} shards");
            let dir = scratch.fresh();
            figures.extend(keys::measure(&dir, n_keys, n_shards)?);
            machine::remove(&dir)?;
        }
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(())
}

/// Builds a dataset of a row per input, then finds it complete.
fn inputs(dir: &Path, n: u64) -> Result<Vec<Figure>> {
    let job = Job::new(dir, n, 64 << 10, "1GiB")?;
    let shape = format!("{n} inputs");
    let mut figures = Figures { shape: &shape, n, taken: Vec::new() };
    figures.take("plan, nothing there", || job.plan().map(drop))?;
    figures.take("build", || job.run().map(drop))?;
    figures.take("plan, all done", || job.plan().map(drop))?;
    figures.take("run, all done", || job.run().map(drop))?;
    figures.take("status", || job.status().map(drop))?;
    Ok(figures.taken)
}

/// Figures about `n` of something.
struct Figures<'a> {
    shape: &'a str,
    n: u64,
    taken: Vec<Figure>,
}

impl Figures<'_> {
    /// The time that `work` takes, what processors spend on each of the `n`, and the most memory
    /// meanwhile.
    fn take(&mut self, what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        // Lets the peak begin anew; where the system does not know that, it is that of the whole run.
        fs::write("/proc/self/clear_refs", "5").ok();
        let before = processor_seconds()?;
        let (time, ()) = timed(work)?;
        let busy = processor_seconds()? - before;
        let peak = peak_rss_bytes().unwrap_or_default() as f64 / f64::from(1 << 20);
        let each = busy * 1e6 / self.n as f64;
        self.push(what, (time.as_secs_f64() * 1e3, "ms"));
        self.push(&format!("{what}, processor time for each"), (each, "µs"));
        self.push(&format!("{what}, peak memory"), (peak, "MiB"));
        Ok(())
    }

    fn push(&mut self, what: &str, figure: (f64, &'static str)) {
        eprintln!("  {what}: {:.2} {}", figure.0, figure.1);
        self.taken.push(Figure::alone((self.shape, what), figure, Target::Open));
    }
}

/// What processors have spent on this process, in steps of 10 ms.
fn processor_seconds() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}

/// A pipeline over inputs that are listed and nowhere else.
struct Job {
    definition: PathBuf,
}

impl Job {
    /// `n` inputs of `bytes` each.
    fn new(dir: &Path, n: u64, bytes: u64, partition_bytes: &str) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let definition = dir.join("p.toml");
        let text = format!(
            "version = 1\nname = \"many\"\n[sources.many]\ntype = \"many\"\npath = \"*\"\n\
             inputs = {n}\nbytes = {bytes}\n[dataset]\nkey = \"id\"\n\
             partition_bytes = \"{partition_bytes}\"\nmax_row_bytes = \"64KiB\"\n[run]\nmemory = \"4GiB\"\n"
        );
        fs::write(&definition, text)?;
        Ok(Self { definition })
    }

    fn load(&self) -> Result<Arc<Pipeline>> {
        let registry = Registry::BUILT_IN.with(&[many::MANY], &[]);
        Ok(Arc::new(Pipeline::load(&self.definition, &RunOverrides::default(), registry)?))
    }

    fn plan(&self) -> Result<PlanReport> {
        Ok(self.load()?.plan()?)
    }

    fn run(&self) -> Result<Report> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let live = Arc::new(Live::default());
        let stop = CancellationToken::new();
        Ok(runtime.block_on(self.load()?.run(Arc::new(Nobody), live, stop))?)
    }

    fn status(&self) -> Result<Status> {
        Ok(Status::of(&Local, self.load()?.home())?)
    }

    fn open(&self) -> Result<Dataset> {
        Ok(Dataset::open(self.load()?.home().dir())?)
    }
}

/// Is told of everything and says nothing.
struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: &Event) {}
}
