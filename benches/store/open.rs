//! Opening datasets, and finding rows by key.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rowmill::dataset::Dataset;
use rowmill::schema::RowSchema;
use rowmill::shard::ShardLimits;

use crate::dataset;
use crate::machine::table::{Figure, Target};
use crate::machine::{Numbers, Result, Scratch, median, timed};
use crate::shapes::key_of;

/// Shards of the dataset that is opened.
const N_SHARDS: i64 = 1000;
const MILLISECONDS: f64 = 1e3;

/// Opens a dataset of many tiny shards.
pub(crate) fn many_shards(rounds: usize, scratch: &mut Scratch) -> Result<Vec<Figure>> {
    let rows: ArrayRef = Arc::new(Int64Array::from_iter_values(0..N_SHARDS));
    let batch = RecordBatch::try_from_iter([("x", rows)])?;
    let schema = RowSchema::infer(&batch.schema(), &BTreeMap::new(), None)?;
    let limits = ShardLimits { rows: 1, ..ShardLimits::default() };
    let dir = dataset::build(&scratch.fresh(), &schema, &[batch], limits)?;
    let (mut opened, mut read) = (Vec::new(), Vec::new());
    for _ in 0..rounds * 5 {
        let (time, dataset) = timed(|| Ok(Dataset::open(&dir)?))?;
        opened.push(time);
        let first_rows = || {
            for shard in dataset.shards() {
                black_box(shard?.field("x")?.row(0)?);
            }
            Ok(())
        };
        read.push(timed(first_rows)?.0);
    }
    let figure = |what, times, target| {
        let time = median(times).as_secs_f64() * MILLISECONDS;
        Figure::alone(("1,000 shards", what), (time, "ms"), target)
    };
    Ok(vec![
        figure("open the dataset, warm", opened, Target::AtMost(5.0)),
        figure("then read a row of each shard", read, Target::Open),
    ])
}

/// Finds rows of shape b by their keys.
pub(crate) fn by_key(dir: &Path, quick: bool) -> Result<Vec<Figure>> {
    let n = if quick { 20_000 } else { 200_000 };
    let dataset = Dataset::open(dir)?;
    let mut numbers = Numbers(31);
    let rows: Vec<u64> = (0..n).map(|_| numbers.below(dataset.n_rows())).collect();
    let keys: Vec<_> = rows.iter().map(|row| key_of(*row)).collect();
    let before = anonymous_kib()?;
    let mut times = Vec::new();
    for _ in 0..4 {
        let began = Instant::now();
        for (key, row) in keys.iter().zip(&rows) {
            if dataset.find(key.as_str())? != Some(*row) {
                return Err(format!("`{key}` is not row {row}").into());
            }
        }
        times.push(began.elapsed());
    }
    let grown = anonymous_kib()?.saturating_sub(before);
    let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
    let at_once = || {
        let found = dataset.find_many(&asked)?;
        if !found.iter().zip(&rows).all(|(found, row)| *found == Some(*row)) {
            return Err("keys asked at once are found elsewhere".into());
        }
        Ok(())
    };
    let together = median((0..3).map(|_| Ok(timed(at_once)?.0)).collect::<Result<_>>()?);
    let together = together.as_secs_f64() * 1e6 / f64::from(n);
    // The first of them met pages that were not mapped yet.
    let time = median(times.split_off(1)).as_secs_f64() * 1e6 / f64::from(n);
    Ok(vec![
        Figure::alone(("b", "find a row by key, warm"), (time, "µs"), Target::Open),
        Figure::alone(("b", "find a row by key, all at once"), (together, "µs"), Target::Open),
        Figure::alone(
            ("b", "memory that it takes to have opened and searched"),
            (grown as f64, "KiB"),
            Target::AtMost(1024.0),
        ),
    ])
}

/// Memory of this process that no file stands behind.
fn anonymous_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.unwrap_or_default().trim().trim_end_matches(" kB").parse()?)
}
