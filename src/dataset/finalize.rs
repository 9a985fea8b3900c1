//! Completing a dataset: the one place that writes manifests and the dataset's sentinel.
//!
//! Leaves out: building partitions, and choosing their records (`adopt`).
//!
//! Invariants:
//! 1. The sentinel is written after every planned partition was counted, its books and those of the
//!    dataset close, and every shard's own sentinel was seen again; a shard that the generation before
//!    did not have was opened.
//! 2. Whoever has the records can finalize: the bytes are a function of them and of the generation,
//!    in whatever order, by whomever and how often they were built.
//! 3. A generation that is complete is not written again; the one before keeps its manifest.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use serde_json::Value;

use super::error::{DatasetError, Result};
use super::home::Workplace;
use super::manifest::{DatasetLine, KeyIndexFile, LineType, Manifest, PartitionLine};
use super::publish::{digest, publish};
use super::record::{BooksByStage, Record, RecordName, ShardEntry};
use super::sentinel::Sentinel;
use super::{keys, merge};
use crate::books::{Books, Budget, judge};
use crate::fingerprint::{cache_key, dataset_fingerprint};
use crate::schema::{LAYOUT, RowSchema};
use crate::shard::{Shard, layout};
use crate::storage::StorageError;

/// What a dataset is, beside its partitions.
#[derive(Debug, Clone)]
pub struct Generation<'a> {
    /// The JSON that the cache key hashes.
    pub definition: &'a Value,
    /// The fields of its rows.
    pub schema: &'a RowSchema,
    /// For each source, the names of the stages in the order in which its rows pass them, its own first.
    pub stages: &'a [Vec<String>],
    /// How many rejects stages may have; any number where nothing is said of one.
    pub budgets: &'a [Budget],
    /// Whether a dataset may have no rows.
    pub allow_empty: bool,
}

/// One partition of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPartition {
    /// Its slot.
    pub slot: String,
    /// Its record, `None` while it is not finished.
    pub record: Option<RecordName>,
}

/// Writes the manifest of `planned`, the partitions in dataset order, and the dataset's sentinel.
///
/// # Errors
/// [`DatasetError::Unfinished`] if a partition has no record; [`DatasetError::Unbalanced`] and
/// [`DatasetError::Counts`] if rows were lost; [`DatasetError::OverBudget`] if too many were
/// rejected; [`DatasetError::Empty`] if there are none; [`DatasetError::DuplicateKey`]; a shard that is not there. None of these leaves a sentinel behind
/// that was not there before.
///
/// # Durability
/// On `Ok` the dataset survives a power cut. After an error or a crash readers find the generation
/// before, or this one, whole.
pub fn finalize(
    place: &Workplace,
    generation: &Generation<'_>,
    planned: &[PlannedPartition],
) -> Result<Sentinel> {
    let (storage, home) = (place.storage(), place.home());
    let mut manifest = count(place, generation, planned)?;
    let books = manifest.dataset.books.iter().map(|(stage, books)| (stage.as_str(), books));
    judge(generation.budgets, books)?;
    if manifest.dataset.rows == 0 && !generation.allow_empty {
        return Err(DatasetError::Empty);
    }
    let before = Manifest::current_shards(&**storage, home.dir())?;
    if generation.schema.key_index().is_some() {
        let before = before.as_ref().map(|(_, manifest)| manifest);
        manifest.dataset.keys = Some(key_index(place, before, &manifest.shards)?);
    }
    let fill = |out: &mut dyn Write| manifest.write_to(out);
    let digest = digest(home.dir(), &fill)?;
    let name = Manifest::file_name(&digest);
    let (rows, shards) = (manifest.dataset.rows, manifest.dataset.shards);
    check_shards(
        place,
        before.as_ref().map(|(_, manifest)| manifest),
        &manifest,
        generation.schema,
    )?;
    publish(place, "manifest", &home.file(&name), &digest, &fill)?;
    storage.sync_dir(&home.shards())?;
    storage.sync_dir(&home.partitions())?;
    let sentinel = Sentinel::of_manifest(name, &digest, rows, shards);
    if before.is_none_or(|(before, _)| before != sentinel) {
        storage.write_atomic(&home.sentinel(), &sentinel.to_bytes())?;
    }
    Ok(sentinel)
}

/// Reads every record and adds up what the manifest says.
fn count(
    place: &Workplace,
    generation: &Generation<'_>,
    planned: &[PlannedPartition],
) -> Result<Manifest> {
    let home = place.home();
    let counts =
        |message: String| DatasetError::Counts { place: "the dataset".to_owned(), message };
    if cache_key(generation.definition) != home.cache_key() {
        return Err(counts("its definition is not what its cache key hashes".to_owned()));
    }
    let mut totals: Vec<_> =
        generation.stages.iter().map(|s| Books::new(s.iter().cloned())).collect();
    let mut partitions = Vec::with_capacity(planned.len());
    let mut shards: Vec<ShardEntry> = Vec::new();
    for (index, PlannedPartition { slot, record }) in planned.iter().enumerate() {
        let Some(name) = record.as_ref().filter(|name| name.slot() == slot) else {
            let n_partitions = planned.len();
            return Err(DatasetError::Unfinished { index, n_partitions, slot: slot.clone() });
        };
        let record = Record::read(&**place.storage(), home.dir(), home.cache_key(), name)?;
        let mut of_sources = generation.stages.iter().zip(&mut totals);
        let (stages, total) = of_sources
            .find(|(stages, _)| stages.first() == Some(&record.source))
            .ok_or_else(|| counts(format!("partition {slot} is of source `{}`", record.source)))?;
        let books = record.books(stages)?;
        record.check_books(&books)?;
        total.add(&books);
        let inputs_b3 = record
            .inputs_b3()
            .map_err(|e| StorageError::new("hash the inputs of", home.partitions(), e))?;
        partitions.push(PartitionLine {
            books: record.books,
            inputs: record.inputs.len() as u64,
            inputs_b3,
            record: name.as_str().to_owned(),
            rows: record.rows,
            shards: record.shards.len() as u64,
            slot: slot.clone(),
            r#type: LineType::Partition,
        });
        shards.extend(record.shards);
    }
    let rows = sum(shards.iter().map(|shard| shard.rows))?;
    for total in &totals {
        let place = || "the dataset".to_owned();
        total.balance().map_err(|source| DatasetError::Unbalanced { place: place(), source })?;
    }
    let out = sum(totals.iter().map(Books::out))?;
    if out != rows {
        return Err(counts(format!("{out} rows left the last stage, but the shards hold {rows}")));
    }
    let inputs: Vec<_> = partitions.iter().map(|p| p.inputs_b3.to_hex()).collect();
    let mut by_stage = BooksByStage::new();
    for (stage, books) in totals.iter().flat_map(Books::stages) {
        by_stage.entry(stage.to_owned()).or_default().add(books);
    }
    let dataset = DatasetLine {
        books: by_stage,
        bytes: sum(shards.iter().map(|shard| shard.bytes))?,
        cache_key: home.cache_key().to_owned(),
        definition: generation.definition.clone(),
        fingerprint: dataset_fingerprint(home.cache_key(), &inputs),
        keys: None,
        layout: LAYOUT,
        name: home.name().to_owned(),
        partitions: partitions.len() as u64,
        rows,
        schema: generation.schema.to_json(),
        shards: shards.len() as u64,
        r#type: LineType::Dataset,
    };
    Ok(Manifest { dataset, partitions, shards })
}

fn sum(mut counts: impl Iterator<Item = u64>) -> Result<u64> {
    counts.try_fold(0_u64, u64::checked_add).ok_or_else(|| DatasetError::Counts {
        place: "the dataset".to_owned(),
        message: "its totals are larger than can be".to_owned(),
    })
}

/// The key index of these shards: that of the generation before, if they are the same.
fn key_index(
    place: &Workplace,
    before: Option<&Manifest>,
    shards: &[ShardEntry],
) -> Result<KeyIndexFile> {
    let (storage, home) = (place.storage(), place.home());
    let keys = before.filter(|it| it.shards == shards).and_then(|it| it.dataset.keys.as_ref());
    if let Some(keys) = keys {
        let n_rows = shards.iter().map(|shard| shard.rows).sum();
        if keys::KeyIndex::open(&**storage, &home.file(&keys.file), n_rows).is_ok() {
            return Ok(keys.clone());
        }
    }
    merge::write(place, shards)
}

/// Looks once more at what the sentinel is about to promise: shards may have been taken away since
/// their records were written. Those that the generation before has too were opened when it was
/// finished, so that growing a dataset opens the new ones alone.
fn check_shards(
    place: &Workplace,
    before: Option<&Manifest>,
    manifest: &Manifest,
    schema: &RowSchema,
) -> Result<()> {
    let before = before.filter(|before| before.dataset.schema == manifest.dataset.schema);
    let known: HashSet<&ShardEntry> = before.iter().flat_map(|before| &before.shards).collect();
    for shard in &manifest.shards {
        if !known.contains(shard) || !is_there(place, shard)? {
            check_shard(place, shard, schema)?;
        }
    }
    Ok(())
}

/// Whether a shard's sentinel is there, here or elsewhere.
fn is_there(place: &Workplace, shard: &ShardEntry) -> Result<bool> {
    let path = place.home().shard(&shard.id);
    let stat = |name| place.storage().stat(&path.join(name));
    Ok(stat(layout::COMPLETE)?.is_some() || stat(layout::REMOTE)?.is_some())
}

/// Checks that a shard is there, sealed here or elsewhere, and the one that the record names.
fn check_shard(place: &Workplace, entry: &ShardEntry, schema: &RowSchema) -> Result<()> {
    let path = place.home().shard(&entry.id);
    let wrong = |message: String| Err(DatasetError::damaged(&path, message));
    match Shard::open(Arc::clone(place.storage()), &path) {
        Ok(shard) if shard.id() != entry.id => wrong(format!("it is shard {}", shard.id())),
        Ok(shard) if shard.n_rows() != entry.rows => {
            wrong(format!("it has {} rows, its record says {}", shard.n_rows(), entry.rows))
        }
        Ok(shard) if **shard.schema() != *schema => wrong("its schema is another".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
