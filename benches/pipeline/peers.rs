//! The scripts that Rowmill is compared with, and whether they end in the same bytes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rowmill::dataset::Dataset;
use rowmill::schema::FileRole;

use crate::inputs::Case;
use crate::machine::{Pair, Result, median, remove, timed};

/// A script that does by hand what a pipeline does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    /// What it is called in the table.
    pub(crate) name: &'static str,
    file: &'static str,
    /// The modules that it needs.
    needs: &'static [&'static str],
    /// Whether it writes the files that Rowmill writes for fields.
    is_same: bool,
}

pub(crate) const MEMMAP: Script =
    Script { name: "memmap.py", file: "memmap.py", needs: &["numpy"], is_same: false };
pub(crate) const PYARROW: Script = Script {
    name: "pyarrow",
    file: "with_pyarrow.py",
    needs: &["pyarrow", "numpy"],
    is_same: true,
};
pub(crate) const POLARS: Script = Script {
    name: "polars",
    file: "with_polars.py",
    needs: &["polars", "pyarrow", "numpy"],
    is_same: true,
};
pub(crate) const NUMPY: Script =
    Script { name: "NumPy", file: "with_numpy.py", needs: &["numpy"], is_same: true };

impl Script {
    /// Why the script cannot run here, if it cannot.
    pub(crate) fn lacks(&self) -> Result<Option<String>> {
        let imports = format!("import {}", self.needs.join(", "));
        let output = Command::new("python3").args(["-c", &imports]).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or("python3 failed").to_owned();
        Ok((!output.status.success()).then_some(last))
    }

    /// Runs the script, and gives the time that its process takes.
    pub(crate) fn run(&self, case: &Case, out: &Path) -> Result<Duration> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/pipeline").join(self.file);
        let mut python = Command::new("python3");
        // Nothing here multiplies matrices: its threads would only stand in the way.
        python.env("OPENBLAS_NUM_THREADS", "1");
        python.arg("-B").arg(script).arg(case.kind).arg(&case.read_by_hand).arg(out);
        let (time, output) = timed(|| Ok(python.output()?))?;
        checked(output)?;
        Ok(time)
    }

    /// Compares what the script wrote with the fields of the dataset: all bytes but those of
    /// offsets, which begin again in each shard.
    pub(crate) fn check(&self, dataset: &Path, out: &Path) -> Result<()> {
        if !self.is_same {
            return Ok(());
        }
        let dataset_read = Dataset::open(dataset)?;
        for field in dataset_read.schema().fields() {
            for file in field.files() {
                if !matches!(file.role, FileRole::Values | FileRole::Valid) {
                    continue;
                }
                let shards = dataset_read.entries().iter();
                let ours =
                    shards.map(|shard| dataset.join("shards").join(&shard.id).join(&file.name));
                if hash(ours)? != hash([out.join(&file.name)])? {
                    return Err(format!("{} wrote another {}", self.name, file.name).into());
                }
            }
        }
        Ok(())
    }
}

fn hash(paths: impl IntoIterator<Item = PathBuf>) -> Result<(u64, blake3::Hash)> {
    let mut hasher = blake3::Hasher::new();
    for path in paths {
        io::copy(&mut File::open(path)?, &mut hasher)?;
    }
    Ok((hasher.count(), hasher.finalize()))
}

/// What the process printed, if it succeeded.
pub(crate) fn checked(output: Output) -> Result<Vec<u8>> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

/// Something that takes a folder and fills it; gives the time that took.
pub(crate) type Runner<'a> = Box<dyn FnMut(&Path) -> Result<Duration> + 'a>;

/// Runs everything once so that disk space, caches and memory have been used before, then `rounds`
/// times in turn, beginning with another one each time. Gives for each of `theirs` its comparison
/// with `ours`.
pub(crate) fn in_turn(
    rounds: usize,
    (ours, out): (Runner, &Path),
    (theirs, other): (Vec<Runner>, &Path),
) -> Result<Vec<Pair>> {
    let mut all = vec![(ours, out)];
    all.extend(theirs.into_iter().map(|run| (run, other)));
    let n = all.len();
    let mut times = vec![Vec::new(); n];
    for round in 0..=rounds {
        for i in 0..n {
            let i = (i + round) % n;
            let (run, dir) = &mut all[i];
            remove(dir)?;
            let time = run(dir)?;
            if round > 0 {
                times[i].push(time);
            }
        }
    }
    let (ours, theirs) = times.split_first().ok_or("nothing was measured")?;
    let compared = theirs.iter().map(|theirs| {
        let pairs = theirs.iter().zip(ours);
        let mut ratios: Vec<f64> = pairs.map(|(b, a)| b.as_secs_f64() / a.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        Pair { ours: median(ours.clone()), theirs: median(theirs.clone()), ratios }
    });
    Ok(compared.collect())
}
