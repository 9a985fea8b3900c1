//! Whole datasets for the readers, built by the synchronous core alone.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::RecordBatch;
use rowmill::batch::Batch;
use rowmill::dataset::finalize::{Generation, PlannedPartition, finalize};
use rowmill::dataset::partition::{Partition, PartitionOptions};
use rowmill::dataset::stamps::Stamps;
use rowmill::dataset::{Home, Workplace};
use rowmill::fingerprint::Fingerprinting;
use rowmill::fingerprint::cache_key;
use rowmill::inputs::{Input, InputDigest, InputRange, Part};
use rowmill::schema::RowSchema;
use rowmill::shard::{CommitPolicy, ShardLimits};
use rowmill::storage::Local;
use serde_json::json;

use crate::machine::Result;

/// Builds a dataset of these rows below `out`, as one partition, and gives its folder.
pub(crate) fn build(
    out: &Path,
    schema: &RowSchema,
    batches: &[RecordBatch],
    limits: ShardLimits,
) -> Result<PathBuf> {
    let definition = json!({"layout": 1});
    let home = Home::new(out, "bench", &cache_key(&definition))?;
    let place = Arc::new(Workplace::open(Arc::new(Local), home)?);
    let stamps = Arc::new(Stamps::open(&place, Fingerprinting::Content, SystemTime::now())?);
    let modified = SystemTime::UNIX_EPOCH;
    let input = Input { path: "rows".to_owned(), size: 0, modified, changed: Some(modified) };
    let part = Part { inputs: vec![InputRange { input, range: None }], side: Vec::new() };
    let (slot, stages) = ("0".repeat(32), vec!["rows".to_owned()]);
    let options = PartitionOptions {
        slot: slot.clone(),
        part: Arc::new(part),
        root: "/".to_owned(),
        schema: schema.clone(),
        stages: stages.clone(),
        limits,
        on_error: rowmill::batch::OnError::Fail,
        commits: CommitPolicy::default(),
        limit: None,
        retry: None,
    };
    let (mut partition, _) = Partition::open(Arc::clone(&place), stamps, options)?;
    let mut at = 0;
    for batch in batches {
        partition.append(&Batch::of_rows(batch.clone(), at))?;
        at += batch.num_rows() as u64;
    }
    let digest = InputDigest { path: "rows".to_owned(), size: 0, blake3: blake3::hash(b"") };
    let record = Some(partition.finish(&[digest])?.name);
    let generation = Generation {
        definition: &definition,
        schema,
        stages: std::slice::from_ref(&stages),
        budgets: &[],
        allow_empty: false,
    };
    finalize(&place, &generation, &[PlannedPartition { slot, record }])?;
    Ok(place.home().dir().to_path_buf())
}
