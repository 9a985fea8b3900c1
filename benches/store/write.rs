//! Durable writing: `shard::Writer` against the plain writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use rowmill::batch::Batch;
use rowmill::shard::{CommitPolicy, SealedShard, ShardInput, ShardLimits, Writer, WriterOptions};
use rowmill::storage::Local;

use crate::machine::plain::Plain;
use crate::machine::table::{Figure, Target};
use crate::machine::{Result, Scratch, compare, lanes, remove};
use crate::shapes::Shape;

/// Writes the shape's rows with Rowmill and the same files plainly, in turn.
pub(crate) fn measure(shape: &Shape, rounds: usize, scratch: &mut Scratch) -> Result<Vec<Figure>> {
    let plain = Plain::new();
    // The plain writer is told what to write by what Rowmill has written.
    let dir = scratch.fresh();
    let (_, shards) = write(shape, &dir)?;
    let bytes: u64 = shards.iter().flatten().map(SealedShard::bytes).sum();
    let files = |shard: &SealedShard| Plain::shard_like(shard.path());
    let files = shards.iter().map(|lane| lane.iter().map(files).collect::<Result<Vec<_>, _>>());
    let files: Vec<_> = files.collect::<Result<_, _>>()?;
    remove(&dir)?;

    let (a, b): (PathBuf, PathBuf) = (scratch.fresh(), scratch.fresh());
    let pair = compare(
        rounds,
        || {
            let (time, _) = write(shape, &a)?;
            remove(&a)?;
            Ok(time)
        },
        || {
            let time = plain.write(&b, &files)?;
            remove(&b)?;
            Ok(time)
        },
    )?;
    let rows = shape.n_rows() as f64 / pair.ours.as_secs_f64();
    let gigabytes = (bytes as f64 / 1e9, "GB/s");
    Ok(vec![
        Figure::rate((shape.name, "durable write"), gigabytes, "plain", pair, shape.target),
        Figure::alone((shape.name, "durable write, rows"), (rows / 1e3, "k rows/s"), Target::Open),
    ])
}

/// Writes a partition per lane, and gives their shards and the time until the last is sealed.
fn write(shape: &Shape, dir: &Path) -> Result<(Duration, Vec<Vec<SealedShard>>)> {
    let began = Instant::now();
    let shards = thread::scope(|scope| {
        let lanes = shape.lanes(lanes()).into_iter().enumerate();
        let lanes: Vec<_> =
            lanes.map(|(n, batches)| scope.spawn(move || lane(shape, n, batches, dir))).collect();
        let joined = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane ended")?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    Ok((began.elapsed(), shards))
}

fn lane(shape: &Shape, n: usize, batches: &[RecordBatch], dir: &Path) -> Result<Vec<SealedShard>> {
    let options = WriterOptions {
        dataset: dir.to_path_buf(),
        cache_key: "0123456789abcdef".to_owned(),
        slot: format!("{n:032x}"),
        schema: shape.schema.clone(),
        stages: vec!["rows".to_owned()],
        inputs: vec![ShardInput { path: "rows".to_owned(), size: 0, range: None }],
        limits: ShardLimits::default(),
        on_error: rowmill::batch::OnError::Fail,
        commits: CommitPolicy::default(),
    };
    let (mut writer, _) = Writer::open(Arc::new(Local), options)?;
    let mut at = 0;
    for batch in batches {
        writer.append(&Batch::of_rows(batch.clone(), at))?;
        at += batch.num_rows() as u64;
    }
    Ok(writer.finish()?.shards)
}
