//! What the feature cache takes as it grows: rows put, rows found, memory for each key.
//!
//!     cargo bench --bench cache [-- --quick] [--json]
//!
//! Rows are 16 floats of 32 bits. Lookups are of 100 and of 10,000 keys at once, all of them there, in
//! random order, after a round that is not counted. `benches/cache/peer.py` measures the same of a design that
//! keeps an Arrow IPC file per flush and a pickled dict: its figures stand in docs/performance.md beside these.
//! The full run takes 2 GB of disk.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench says what it found, and looks at the process itself"
)]
#![expect(clippy::cast_precision_loss, reason = "made-up values, and rates for people")]

#[allow(dead_code, reason = "the other benches compare with a plain writer")]
#[path = "../machine/mod.rs"]
mod machine;

use std::collections::HashMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::{FixedSizeListArray, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field};
use machine::table::{Figure, Target};
use machine::{Args, Numbers, Result, Scratch};
use rowmill::cache::{CacheReader, FeatureCache, RowKey, SectionOptions, SectionReader};
use rowmill::fingerprint::CompatSignature;
use rowmill::storage::Local;

/// Floats of a row.
const WIDTH: u16 = 16;
/// Rows that are put at once.
const BATCH: u64 = 2048;

fn main() -> Result<()> {
    let Some(args) = Args::read()? else { return Ok(()) };
    let mut scratch = Scratch::new("cache")?;
    let mut figures = Vec::new();
    let sizes = [10_000, 100_000, 1_000_000, 10_000_000];
    for n_keys in sizes.into_iter().take(if args.quick { 1 } else { sizes.len() }) {
        eprintln!("{n_keys} keys");
        let dir = scratch.fresh();
        measure(&dir, n_keys, args.quick, &mut figures)?;
        machine::remove(&dir)?;
    }
    println!("{}", machine::table::print(&figures, args.json).trim_end());
    Ok(())
}

/// The key of row `n`: what a hash would be.
fn key(n: u64) -> RowKey {
    let mut numbers = Numbers(n);
    let mut key = RowKey::default();
    for place in key.as_chunks_mut::<8>().0 {
        *place = numbers.next().to_le_bytes();
    }
    key
}

fn rows(from: u64, to: u64) -> RecordBatch {
    let values = (from..to).flat_map(|n| (0..WIDTH).map(move |i| (n + u64::from(i)) as f32));
    let item = Arc::new(Field::new_list_field(DataType::Float32, false));
    let values = Arc::new(Float32Array::from_iter_values(values));
    let rows = FixedSizeListArray::new(item, WIDTH.into(), values, None);
    RecordBatch::try_from_iter_with_nullable([("x", Arc::new(rows) as _, false)])
        .unwrap_or_else(|_| RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty())))
}

fn measure(dir: &Path, n_keys: u64, quick: bool, figures: &mut Vec<Figure>) -> Result<()> {
    let shape = format!("{n_keys} keys");
    let mut push = |what: &str, figure: (f64, &'static str)| {
        eprintln!("  {what}: {:.3} {}", figure.0, figure.1);
        figures.push(Figure::alone((&shape, what), figure, Target::Open));
    };
    let signature = CompatSignature::new(&serde_json::json!({"id": "bench"}));
    let before = resident_bytes()?;
    let cache = FeatureCache::open(Arc::new(Local), dir)?;
    let section = cache.section(&signature, SectionOptions::default())?;
    let began = Instant::now();
    let mut from = 0;
    while from < n_keys {
        let to = n_keys.min(from + BATCH);
        let keys: Vec<RowKey> = (from..to).map(key).collect();
        section.put(&keys, &rows(from, to))?;
        from = to;
    }
    section.commit()?;
    push("append, durable", (n_keys as f64 / began.elapsed().as_secs_f64(), "rows/s"));
    let after = resident_bytes()?;
    push(
        "writer, memory of its own for each key",
        (after.saturating_sub(before) as f64 / n_keys as f64, "B"),
    );
    drop((section, cache));

    let before = resident_bytes()?;
    let began = Instant::now();
    let section = CacheReader::local(dir).with_hot_bytes(0).section(&signature)?;
    push("open for reading", (began.elapsed().as_secs_f64() * 1e3, "ms"));
    let stat = section.stat()?;
    push("segments", (stat.segments as f64, ""));
    push("files of the index", (stat.index_runs as f64, ""));
    push("disk for each key beside its row", {
        let beside = stat.bytes + stat.index_bytes - n_keys * u64::from(WIDTH) * 4;
        (beside as f64 / n_keys as f64, "B")
    });
    let mut numbers = Numbers(3);
    let mut draw = |n: u64| (0..n).map(|_| key(numbers.below(n_keys))).collect::<Vec<RowKey>>();
    let rounds = if quick { 3 } else { 50 };
    // Touches what there is, as an epoch does.
    section.get(&draw(n_keys.min(2_000_000)))?;
    for n in [100, 10_000] {
        let asked: Vec<Vec<RowKey>> = (0..=rounds).map(|_| draw(n)).collect();
        let mut times = Vec::new();
        for keys in &asked {
            let began = Instant::now();
            let found = section.get(keys)?;
            times.push(began.elapsed());
            if !found.misses.is_empty() || found.rows.num_rows() != keys.len() {
                return Err(format!("{} keys are not found", found.misses.len()).into());
            }
            black_box(found);
        }
        let each = machine::median(times.split_off(1)).as_secs_f64() * 1e6 / n as f64;
        push(&format!("get {n} at once, for each"), (each, "µs"));
        let absent: Vec<RowKey> = (0..n).map(|i| key(n_keys + 1 + i)).collect();
        let began = Instant::now();
        let misses = section.misses(&absent)?;
        let each = began.elapsed().as_secs_f64() * 1e6 / n as f64;
        if misses.len() != absent.len() {
            return Err("keys are found that were never put".into());
        }
        push(&format!("miss {n} at once, for each"), (each, "µs"));
    }
    let after = resident_bytes()?;
    push(
        "reader, memory of its own for each key",
        (after.saturating_sub(before) as f64 / n_keys as f64, "B"),
    );

    let keeping = CacheReader::local(dir).section(&signature)?;
    for (n, rounds) in [(100, 2000), (10_000, 50)] {
        let keys = draw(n);
        let rounds = if quick { 10 } else { rounds };
        for (how, section) in [("by the index", &section), ("by kept places", &keeping)] {
            let each = again(section, &keys, rounds)?;
            push(&format!("get {n} hot rows {how}, for each"), (each, "µs"));
        }
        push(
            &format!("get {n} out of a hash map, for each"),
            (held(&section, &keys, rounds)?, "µs"),
        );
    }
    // Of few keys all are known by now, of many almost none.
    keeping.get(&draw(n_keys.min(2_000_000)))?;
    let (mut times, before) = (Vec::new(), keeping.stat()?.hot);
    for _ in 0..rounds {
        let keys = draw(10_000);
        let began = Instant::now();
        black_box(keeping.get(&keys)?);
        times.push(began.elapsed());
    }
    let each = machine::median(times).as_secs_f64() * 1e6 / 10_000.0;
    push("get 10,000 of all, keeping places, for each", (each, "µs"));
    let after = keeping.stat()?.hot;
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    push("places that were kept", (100.0 * hits as f64 / (hits + misses) as f64, "%"));
    push("memory that they take", (after.bytes as f64 / 1024.0 / 1024.0, "MiB"));
    Ok(())
}

/// Time for each of these rows, asked for again and again.
fn again(section: &SectionReader, keys: &[RowKey], rounds: usize) -> Result<f64> {
    section.get(keys)?;
    let began = Instant::now();
    for _ in 0..rounds {
        black_box(section.get(keys)?);
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / (rounds * keys.len()) as f64)
}

/// The same out of a hash map of rows that were copied before.
fn held(section: &SectionReader, keys: &[RowKey], rounds: usize) -> Result<f64> {
    let found = section.get(keys)?;
    let rows: HashMap<RowKey, RecordBatch> =
        found.hits.iter().enumerate().map(|(n, at)| (keys[*at], found.rows.slice(n, 1))).collect();
    let began = Instant::now();
    for _ in 0..rounds {
        let batches: Vec<&RecordBatch> = keys.iter().filter_map(|key| rows.get(key)).collect();
        let schema = batches.first().map(|batch| batch.schema()).ok_or("nothing is hot")?;
        black_box(arrow_select::concat::concat_batches(&schema, batches)?);
    }
    Ok(began.elapsed().as_secs_f64() * 1e6 / (rounds * keys.len()) as f64)
}

/// Resident memory that is not of mapped files.
fn resident_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.ok_or("the system does not tell resident memory")? << 10)
}
