//! What the benches share: a place on a real disk, the plain writer that Rowmill is measured
//! against, medians of runs taken in turn, and the table.

pub(crate) mod plain;
pub(crate) mod table;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// What the command line asked for.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// Less data and fewer rounds: to see that a bench works, not to quote.
    pub(crate) quick: bool,
    /// One JSON document instead of a table.
    pub(crate) json: bool,
    /// Names that were asked for; all of them where there is none.
    pub(crate) names: Vec<String>,
    /// The one kind of measurement that was asked for.
    pub(crate) only: Option<String>,
}

impl Args {
    /// Reads the command line. `None` where cargo only tests that benches build and start.
    pub(crate) fn read() -> Result<Option<Self>> {
        let mut it = Self::default();
        let mut is_bench = false;
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--bench" => is_bench = true,
                "--quick" => it.quick = true,
                "--json" => it.json = true,
                "--shape" => it.names.push(words.next().ok_or("--shape needs a name")?),
                "--only" => it.only = Some(words.next().ok_or("--only needs a name")?),
                other => {
                    let known = "--quick, --json, --shape NAME, --only NAME";
                    return Err(format!("unknown argument `{other}`; there are {known}").into());
                }
            }
        }
        Ok(is_bench.then_some(it))
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }

    pub(crate) fn measures(&self, what: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == what)
    }

    /// How often each measurement is taken, beside a first time that does not count.
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 7 }
    }
}

/// A folder on a real disk: `$ROWMILL_BENCH_DIR`, or one in `target`. What is written there is
/// removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    n: u32,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let above = std::env::var_os("ROWMILL_BENCH_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        let dir = above.join(format!("rowmill-bench-{name}"));
        remove(&dir)?;
        fs::create_dir_all(&dir)?;
        Ok(Self { dir, n: 0 })
    }

    /// A folder that is not there yet.
    pub(crate) fn fresh(&mut self) -> PathBuf {
        self.n += 1;
        self.dir.join(self.n.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left only takes room, and the next run removes it.
        remove(&self.dir).ok();
    }
}

pub(crate) fn remove(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Partitions written at once.
pub(crate) fn lanes() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(4))
}

/// Rowmill and what it is compared with, run in turn.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Median time of Rowmill.
    pub(crate) ours: Duration,
    /// Median time of the other.
    pub(crate) theirs: Duration,
    /// Ratios of speed (ours to theirs) of the rounds, ascending.
    pub(crate) ratios: Vec<f64>,
}

/// Runs both once so that disk space, caches and memory have been used before, then `rounds` times
/// in turn. Each gives the time that counts.
pub(crate) fn compare(
    rounds: usize,
    mut ours: impl FnMut() -> Result<Duration>,
    mut theirs: impl FnMut() -> Result<Duration>,
) -> Result<Pair> {
    ours()?;
    theirs()?;
    let mut times = Vec::new();
    for round in 0..rounds {
        // Neither is always the one that comes after the other.
        let (a, b) = if round % 2 == 0 {
            let a = ours()?;
            (a, theirs()?)
        } else {
            let b = theirs()?;
            (ours()?, b)
        };
        times.push((a, b));
    }
    let mut ratios: Vec<f64> =
        times.iter().map(|(a, b)| b.as_secs_f64() / a.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let (ours, theirs) = times.into_iter().unzip();
    Ok(Pair { ours: median(ours), theirs: median(theirs), ratios })
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

pub(crate) fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let began = Instant::now();
    let done = work()?;
    Ok((began.elapsed(), done))
}

/// Numbers that look random and are the same each time (`SplitMix64`).
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
