//! The key index: merged from shards that hold nothing but keys, then searched.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rowmill::dataset::keys::KeyIndex;
use rowmill::dataset::merge;
use rowmill::dataset::record::ShardEntry;
use rowmill::dataset::{Home, Workplace};
use rowmill::shard::layout;
use rowmill::storage::{Local, Storage};

use crate::Figures;
use crate::machine::table::Figure;
use crate::machine::{Numbers, Result};

/// Lookups while the index is in the memory of the system, and while it is not.
const WARM: u64 = 200_000;
const COLD: u64 = 2_000;

pub(crate) fn measure(out: &Path, n_keys: u64, n_shards: u64) -> Result<Vec<Figure>> {
    let home = Home::new(out, "keys", "0123456789abcdef")?;
    let place = Workplace::open(Arc::new(Local), home)?;
    let rows = n_keys / n_shards;
    let shards = (0..n_shards).map(|n| put(place.home(), n, rows)).collect::<Result<Vec<_>>>()?;
    let shape = format!("{n_keys} keys, {n_shards} shards");
    let mut figures = Figures { shape: &shape, n: n_keys, taken: Vec::new() };
    let mut file = String::new();
    figures.take("merge", || {
        file = merge::write(&place, &shards)?.file;
        Ok(())
    })?;
    let path = place.home().file(&file);
    let bytes = fs::metadata(&path)?.len() as f64 / f64::from(1 << 20);
    figures.push("index", (bytes, "MiB"));

    let mut numbers = Numbers(7);
    let mut search = |n: u64| -> Result<f64> {
        let index = KeyIndex::open(&Local as &dyn Storage, &path, n_keys)?;
        let began = Instant::now();
        for _ in 0..n {
            let (shard, row) = (numbers.below(n_shards), numbers.below(rows));
            let mut found = index.rows(hash(shard, row))?;
            if !found.any(|it| (u64::from(it.0), u64::from(it.1)) == (shard, row)) {
                return Err(format!("row {row} of shard {shard} is not found").into());
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / n as f64)
    };
    let file = fs::File::open(&path)?;
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    figures.push("find, not in memory", (search(COLD)?, "µs"));
    search(WARM)?;
    figures.push("find, warm", (search(WARM)?, "µs"));
    Ok(figures.taken)
}

/// Puts the keys of shard `n` in place.
fn put(home: &Home, n: u64, rows: u64) -> Result<ShardEntry> {
    let id = format!("{n:032x}");
    let mut keys: Vec<(u64, u32)> = (0..rows).map(|row| (hash(n, row), row as u32)).collect();
    keys.sort_unstable();
    let mut bytes = Vec::with_capacity(keys.len() * 12);
    for (hash, row) in keys {
        bytes.extend_from_slice(&hash.to_le_bytes());
        bytes.extend_from_slice(&row.to_le_bytes());
    }
    fs::create_dir_all(home.shard(&id))?;
    fs::write(home.shard(&id).join(layout::KEYS), bytes)?;
    Ok(ShardEntry { bytes: 0, id, rows })
}

/// The hash of a key: all are different.
fn hash(shard: u64, row: u64) -> u64 {
    Numbers(shard << 32 | row).next()
}
