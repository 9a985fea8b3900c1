//! Tests of the cache as a whole, and what they share.

mod commits;
mod damage;
mod folders;
mod hot;
mod readers;
mod rows;
mod structure;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, LargeListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_schema::{DataType, Field};
use proptest::prelude::*;
use serde_json::json;

use super::{
    CacheError, CacheReader, Caches, FeatureCache, Others, RowKey, Section, SectionOptions, layout,
};
use crate::fingerprint::CompatSignature;
use crate::schema::FieldSpec;
use crate::shard::CommitPolicy;
use crate::storage::faulty::{Fault, Lasting};
use crate::storage::{Faulty, Local, Memory, Overlap, Storage};

fn signature() -> CompatSignature {
    CompatSignature::new(&json!({"id": "features-v1", "cutoff": 5.0}))
}

fn key(n: u64) -> RowKey {
    blake3::hash(&n.to_le_bytes()).into()
}

fn keys(numbers: impl IntoIterator<Item = u64>) -> Vec<RowKey> {
    numbers.into_iter().map(key).collect()
}

/// A row per number, which it holds together with a text of as many letters as its last digit.
fn rows(numbers: impl IntoIterator<Item = i64>) -> RecordBatch {
    let numbers: Vec<i64> = numbers.into_iter().collect();
    let text =
        numbers.iter().map(|n| (n % 7 != 0).then(|| "x".repeat(usize::try_from(n % 10).unwrap())));
    let text: StringArray = text.collect();
    let columns: [(&str, ArrayRef, bool); 2] =
        [("n", Arc::new(Int64Array::from(numbers)), false), ("text", Arc::new(text), true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn values(batch: &RecordBatch) -> Vec<i64> {
    let Some(column) = batch.column_by_name("n") else { return Vec::new() };
    column.as_primitive::<Int64Type>().values().to_vec()
}

fn open(storage: &Arc<dyn Storage>) -> Section {
    let cache = FeatureCache::open(Arc::clone(storage), "cache").unwrap();
    cache.section(&signature(), SectionOptions::default()).unwrap()
}

fn memory() -> (Memory, Arc<dyn Storage>) {
    let memory = Memory::new(Overlap::Now);
    (memory.clone(), Arc::new(memory))
}

fn section_dir() -> PathBuf {
    Path::new("cache").join(signature().sha256())
}

/// `n` commits of `each` rows, numbered from 0.
fn put(section: &Section, commits: std::ops::Range<u64>, each: u64) {
    for commit in commits {
        let numbers = commit * each..(commit + 1) * each;
        section.put(&keys(numbers.clone()), &rows(numbers.map(u64::cast_signed))).unwrap();
        section.commit().unwrap();
    }
}

/// The names of the index's files.
fn runs(storage: &dyn Storage) -> Vec<PathBuf> {
    let dir = layout::index(&section_dir());
    let entries = storage.list(&dir).unwrap().unwrap_or_default();
    entries.into_iter().map(|entry| dir.join(entry.name)).collect()
}

fn len_of(storage: &dyn Storage, path: &Path) -> usize {
    usize::try_from(storage.stat(path).unwrap().unwrap().len).unwrap()
}

fn segments(storage: &dyn Storage) -> Vec<PathBuf> {
    let dir = layout::segments(&section_dir());
    let entries = storage.list(&dir).unwrap().unwrap_or_default();
    entries.into_iter().map(|entry| dir.join(entry.name)).collect()
}
