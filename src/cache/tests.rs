//! Tests of the cache as a whole.

mod hot;

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

#[test]
fn rows_are_found_in_the_order_asked_for_at_every_stage() {
    for overlap in [Overlap::Now, Overlap::Late, Overlap::Thread] {
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let section = open(&storage);
        assert_eq!(section.get(&keys(0..3)).unwrap().misses, [0, 1, 2]);
        let check = |section: &Section, stage: &str| {
            let found = section.get(&keys([4, 99, 0, 4, 2])).unwrap();
            assert_eq!(values(&found.rows), [40, 0, 40, 2], "{overlap:?}, {stage}");
            assert_eq!((found.hits, found.misses), (vec![0, 2, 3, 4], vec![1]), "{stage}");
            assert_eq!(section.misses(&keys([4, 99, 0])).unwrap(), [1], "{stage}");
        };
        section.put(&keys(0..5), &rows(0..5)).unwrap();
        section.put(&keys([4]), &rows([40])).unwrap();
        check(&section, "in memory");
        section.commit().unwrap();
        check(&section, "committed");
        // Rows of the segment, of memory, and of the segment again.
        section.put(&keys([2, 7]), &rows([2, 7])).unwrap();
        check(&section, "in both");
        section.commit().unwrap();
        drop(section);
        check(&open(&storage), "opened again");
    }
}

#[test]
fn what_was_not_committed_is_gone_and_what_was_is_not() {
    let (memory, storage) = memory();
    let section = open(&storage);
    put(&section, 0..2, 10);
    section.put(&keys([50]), &rows([50])).unwrap();
    let after: Arc<dyn Storage> = Arc::new(memory.after_kill());
    let section = open(&after);
    assert_eq!(section.misses(&keys([0, 19, 50])).unwrap(), [2]);
}

#[test]
fn latest_row_of_a_key_counts_wherever_it_stands() {
    let (_, storage) = memory();
    let section = open(&storage);
    for round in 0_u64..20 {
        let from = round % 5;
        let values = (from..6).map(|n| (n + 100 * round).cast_signed());
        section.put(&keys(from..6), &rows(values)).unwrap();
        section.commit().unwrap();
    }
    let want = [1500, 1601, 1702, 1803, 1904, 1905];
    let check = |section: &Section| {
        assert_eq!(values(&section.get(&keys(0..6)).unwrap().rows), want);
    };
    check(&section);
    let done = section.compact().unwrap();
    assert_eq!(done.rows, 6);
    assert!(done.rows_before > 6 && done.bytes < done.bytes_before, "{done:?}");
    check(&section);
    drop(section);
    check(&open(&storage));
    assert_eq!(segments(&*storage).len(), 1);
    assert_eq!(runs(&*storage).len(), 1);
}

#[test]
fn many_small_commits_leave_few_files() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..70, 3);
    assert!(segments(&*storage).len() <= 3 * 8, "{:?}", segments(&*storage));
    assert!(runs(&*storage).len() <= 6, "{:?}", runs(&*storage));
    let found = section.get(&keys((0..210).rev())).unwrap();
    assert_eq!(values(&found.rows), (0..210).rev().collect::<Vec<_>>());
    let reader = CacheReader::new(Arc::clone(&storage), "cache");
    assert_eq!(reader.verify().unwrap().len(), 0);
}

#[test]
fn rows_of_another_structure_are_refused_by_field() {
    let list = |n: i32| {
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let values = Arc::new(Float32Array::from(vec![1.0; usize::try_from(n).unwrap()]));
        Arc::new(FixedSizeListArray::new(item, n, values, None)) as ArrayRef
    };
    let number = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys([0]), &batch(vec![("a", list(3)), ("b", number())])).unwrap();
    for when in ["in memory", "committed"] {
        for (columns, want) in [
            (
                vec![("a", list(4)), ("b", number())],
                "`a`: the feature cache holds float32[3], found float32[4]",
            ),
            (vec![("a", list(3))], "`b`: the feature cache holds int64, found no such column"),
            (
                vec![("a", list(3)), ("b", list(1))],
                "`b`: the feature cache holds int64, found float32[1]",
            ),
            (
                vec![("a", list(3)), ("b", number()), ("c", number())],
                "`c`: the feature cache holds no such field, found int64",
            ),
        ] {
            let error = section.put(&keys([1]), &batch(columns)).unwrap_err();
            assert_eq!(error.to_string(), format!("field {want}"), "{when}");
            assert!(error.hint().is_some());
        }
        // Columns in another order are the same rows.
        section.put(&keys([2]), &batch(vec![("b", number()), ("a", list(3))])).unwrap();
        section.commit().unwrap();
    }
    let error = section.put(&keys([1, 2]), &batch(vec![("b", number())])).unwrap_err();
    assert_eq!(error.to_string(), "2 keys for 1 rows");
    assert_eq!(section.misses(&keys(0..3)).unwrap(), [1]);
}

#[test]
fn a_null_where_the_first_rows_could_have_none_is_refused_by_row() {
    let column = |values: Vec<Option<i64>>, nullable| {
        let schema = arrow_schema::Schema::new(vec![Field::new("n", DataType::Int64, nullable)]);
        let values = Arc::new(Int64Array::from(values)) as ArrayRef;
        RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
    };
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys([0]), &column(vec![Some(1)], false)).unwrap();
    section.put(&keys([1]), &column(vec![Some(2)], true)).unwrap();
    let error = section.put(&keys([2, 3]), &column(vec![Some(3), None], true)).unwrap_err();
    assert!(error.to_string().starts_with("row 1, field `n`: "), "{error}");
    section.commit().unwrap();
    assert_eq!(values(&section.get(&keys(0..4)).unwrap().rows), [1, 2]);
}

#[test]
fn structs_and_lists_on_one_axis_come_back_as_they_were() {
    let ints = |lists: [Option<Vec<Option<i64>>>; 3]| {
        Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef
    };
    let some = |values: Vec<i64>| Some(values.into_iter().map(Some).collect::<Vec<_>>());
    let centers = ints([some(vec![0, 0, 1]), None, some(vec![])]);
    let neighbours = ints([some(vec![1, 2, 0]), None, some(vec![])]);
    let energy = Arc::new(Float64Array::from(vec![0.1, f64::NAN, -0.0])) as ArrayRef;
    let meta = StructArray::from(vec![
        (Arc::new(Field::new("energy", DataType::Float64, false)), energy),
        (
            Arc::new(Field::new("label", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("ä"), None, Some("")])) as ArrayRef,
        ),
    ]);
    let batch = RecordBatch::try_from_iter([
        ("center", centers),
        ("neighbour", neighbours),
        ("meta", Arc::new(meta) as ArrayRef),
    ]);
    let edges = || FieldSpec { axis: Some("edges".to_owned()), ..FieldSpec::default() };
    let fields =
        BTreeMap::from([("center".to_owned(), edges()), ("neighbour".to_owned(), edges())]);
    let options = SectionOptions { fields, ..SectionOptions::default() };
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let section = cache.section(&signature(), options.clone()).unwrap();
    section.put(&keys(0..3), &batch.unwrap()).unwrap();
    let held = section.get(&keys([2, 1, 0])).unwrap().rows;
    section.commit().unwrap();
    drop(section);
    let section = cache.section(&signature(), options).unwrap();
    let found = section.get(&keys([2, 1, 0])).unwrap().rows;
    assert_eq!(format!("{found:?}"), format!("{held:?}"));
    let names: Vec<_> = found.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["center", "neighbour", "meta.energy", "meta.label"]);
    let energies = found["meta.energy"].as_primitive::<Float64Type>().values();
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(energies), bits(&[-0.0, f64::NAN, 0.1]));
    assert!(found["center"].is_null(1) && !found["center"].is_null(0));
    let files = storage.list(&segments(&*storage)[0]).unwrap().unwrap();
    assert_eq!(files.iter().filter(|f| f.name.ends_with("offsets.bin")).count(), 2, "{files:?}");
    // What a cache gives it takes.
    section.put(&keys(10..13), &found).unwrap();
}

#[test]
fn one_process_writes_and_a_section_is_open_once() {
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let error = FeatureCache::open(Arc::clone(&storage), "cache").unwrap_err();
    let holder = format!("pid {} on ", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let error = cache.section(&signature(), SectionOptions::default()).unwrap_err();
    assert!(matches!(error, CacheError::InUse { .. }), "{error}");
    drop(cache);
    // A section is enough to keep others out.
    assert!(FeatureCache::open(Arc::clone(&storage), "cache").is_err());
    drop(section);
    FeatureCache::open(storage, "cache").unwrap();
}

#[test]
fn paths_that_lead_to_one_folder_are_one_cache() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Local);
    storage.create_dir(&dir.path().join("a")).unwrap();
    storage.symlink("features", &dir.path().join("link")).unwrap();
    let caches = Caches::new(storage, CommitPolicy::default());
    let at = |path: &str, of: &CompatSignature| caches.section(&dir.path().join(path), of);
    let first = at("features", &signature()).unwrap();
    let other = CompatSignature::new(&json!({"id": "other"}));
    for path in ["./features", "a/../features", "a/./../features/", "link", "a/../link"] {
        assert!(Arc::ptr_eq(&first, &at(path, &signature()).unwrap()), "{path}");
        assert_eq!(at(path, &other).unwrap().name(), other.sha256(), "{path}");
    }
    assert!(!Arc::ptr_eq(&first, &at("a", &signature()).unwrap()));
}

#[test]
fn signatures_stand_beside_each_other_or_are_refused() {
    let other = CompatSignature::new(&json!({"id": "features-v1", "cutoff": 6.0}));
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    put(&cache.section(&signature(), SectionOptions::default()).unwrap(), 0..1, 3);
    let alone = SectionOptions { others: Others::Refused, ..SectionOptions::default() };
    cache.section(&signature(), alone.clone()).unwrap();
    let error = cache.section(&other, alone).unwrap_err();
    let want = "the feature cache `cache` holds features of another signature: \
                `cutoff` is 6.0 against 5.0";
    assert_eq!(error.to_string(), want);
    let section = cache.section(&other, SectionOptions::default()).unwrap();
    assert_eq!(section.misses(&keys(0..3)).unwrap(), [0, 1, 2]);
    section.put(&keys(0..1), &rows(7..8)).unwrap();
    section.commit().unwrap();
    let stats = cache.reader().stat().unwrap();
    let of = |signature: &CompatSignature| {
        stats.iter().find(|stat| stat.section == signature.sha256()).unwrap().clone()
    };
    assert_eq!((of(&signature()).rows, of(&other).rows), (3, 1));
    assert_eq!(of(&other).signature, other.json());
    assert_eq!(of(&other).fields, ["n", "text"]);
    let wanted = signature();
    assert!(matches!(cache.prune(|_| false), Err(CacheError::InUse { .. }) | Ok(_)));
    drop(section);
    cache.prune(|stat| stat.section == wanted.sha256()).unwrap();
    assert_eq!(cache.reader().section(&other).unwrap().misses(&keys(0..1)).unwrap(), [0]);
}

#[test]
fn readers_see_what_is_committed_and_go_on_when_segments_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Local);
    let cache = FeatureCache::open(storage, dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let reader = CacheReader::local(dir.path()).section(&signature()).unwrap();
    assert_eq!(reader.misses(&keys(0..2)).unwrap(), [0, 1]);
    section.put(&keys(0..10), &rows(0..10)).unwrap();
    assert!(!reader.refresh().unwrap());
    section.commit().unwrap();
    assert_eq!(reader.misses(&keys([3])).unwrap(), [0], "not refreshed yet");
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap());
    assert_eq!(reader.misses(&keys(0..11)).unwrap(), [10]);
    // This one has looked at nothing when its segments go.
    let lazy = CacheReader::local(dir.path()).section(&signature()).unwrap();
    put(&section, 1..20, 10);
    section.compact().unwrap();
    for reader in [&reader, &lazy] {
        assert_eq!(values(&reader.get(&keys([9, 0])).unwrap().rows), [9, 0]);
        reader.refresh().unwrap();
        assert_eq!(reader.misses(&keys(0..200)).unwrap().len(), 0);
        assert_eq!(reader.verify().unwrap().len(), 0);
    }
}

#[test]
fn readers_find_every_committed_row_while_rows_are_written_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let cache = FeatureCache::open(Arc::new(Local), dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let committed = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for own in [true, false] {
            let (section, committed, dir) = (&section, &committed, dir.path());
            scope.spawn(move || {
                let reader = CacheReader::local(dir).section(&signature()).unwrap();
                let mut n = 0;
                while n < 40 {
                    n = committed.load(order);
                    let all = keys(0..n * 5);
                    let found = if own {
                        section.get(&all).unwrap()
                    } else {
                        reader.refresh().unwrap();
                        reader.get(&all).unwrap()
                    };
                    assert_eq!(values(&found.rows), (0..n.cast_signed() * 5).collect::<Vec<_>>());
                }
            });
        }
        for commit in 0..40 {
            put(&section, commit..commit + 1, 5);
            committed.store(commit + 1, order);
            if commit % 11 == 10 {
                section.compact().unwrap();
            }
        }
    });
}

#[test]
fn index_is_made_again_where_it_is_missing_or_damaged() {
    for (name, damage) in [
        ("all runs are gone", 0),
        ("one run is gone", 1),
        ("a page is damaged", 2),
        ("a footer is damaged", 3),
    ] {
        let (memory, storage) = memory();
        let section = open(&storage);
        put(&section, 0..5, 300);
        drop(section);
        let files = runs(&*storage);
        match damage {
            0 => files.iter().for_each(|path| storage.remove_file(path).unwrap()),
            1 => storage.remove_file(&files[0]).unwrap(),
            2 => memory.overwrite(&files[0], 100, b"!!!!").unwrap(),
            _ => {
                let len = len_of(&*storage, &files[0]);
                memory.overwrite(&files[0], len - 20, b"!!!!").unwrap();
            }
        }
        let all = keys(0..1500);
        let cache = CacheReader::new(Arc::clone(&storage), "cache");
        let reader = cache.section(&signature()).unwrap();
        assert_eq!(reader.misses(&all).unwrap().len(), 0, "{name}");
        assert_eq!(reader.misses(&keys([9999])).unwrap(), [0], "{name}");
        if damage >= 2 {
            let wrong = cache.verify().unwrap();
            assert_eq!(wrong.len(), 1, "{name}: {wrong:?}");
            let file = files[0].file_name().unwrap().to_string_lossy().into_owned();
            assert!(wrong[0].to_string().contains(&file), "{name}: {}", wrong[0]);
        }
        let section = open(&storage);
        assert_eq!(section.misses(&all).unwrap().len(), 0, "{name}");
        section.compact().unwrap();
        assert_eq!(cache.verify().unwrap().len(), 0, "{name}");
        assert_eq!(values(&section.get(&all).unwrap().rows), (0..1500).collect::<Vec<_>>());
    }
}

#[test]
fn damage_is_refused_by_name_and_never_read() {
    let segment = layout::segment(&section_dir(), 1);
    for (file, offset, want) in [
        (segment.join("schema.json"), 30, "schema.json`: does not match its sum in B3SUMS"),
        (segment.join("B3SUMS"), 3, "B3SUMS`: is not the file that _COMPLETE names"),
        (segment.join("text.offsets.bin"), 8, "text.offsets.bin`"),
        (section_dir().join(layout::MANIFEST), 200, "manifest.jsonl`: line 1 is damaged"),
        (section_dir().join(layout::SIGNATURE), 3, "signature.json`: it is not the signature"),
    ] {
        let (memory, storage) = memory();
        put(&open(&storage), 0..2, 5);
        memory.overwrite(&file, offset, b"\xff\xfe\xfd\xfc").unwrap();
        let cache = CacheReader::new(Arc::clone(&storage), "cache");
        let read = cache.section(&signature()).and_then(|section| section.get(&keys(0..10)));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        let wrong = cache.verify().unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(wrong.iter().any(|e| e.to_string().contains(&name)), "{name}: {wrong:?}");
    }
    // Values are not summed when they are read; verify names the block.
    let (memory, storage) = memory();
    put(&open(&storage), 0..2, 5);
    memory.overwrite(segment.join("n_2.bin"), 8, b"!").unwrap();
    let wrong = CacheReader::new(storage, "cache").verify().unwrap();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let want = "segments/1/n_2.bin`: block 1 of 1 (bytes 0 to 40): was changed";
    assert!(wrong[0].to_string().contains(want), "{}", wrong[0]);
}

#[test]
fn log_that_is_gone_is_not_taken_for_an_empty_section() {
    let (_, storage) = memory();
    put(&open(&storage), 0..2, 5);
    storage.remove_file(&section_dir().join(layout::MANIFEST)).unwrap();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let error = cache.section(&signature(), SectionOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("manifest.jsonl`: it is not there, but segments are"));
    assert_eq!(segments(&*storage).len(), 2);
}

#[test]
fn what_names_a_section_is_missed_by_readers_too() {
    for (file, want) in [
        (layout::MANIFEST, "manifest.jsonl`: it is not there, but segments are"),
        (layout::SIGNATURE, "signature.json`: it is not there, but what it belongs to is"),
    ] {
        let (_, storage) = memory();
        put(&open(&storage), 0..2, 5);
        let reader = CacheReader::new(Arc::clone(&storage), "cache");
        let opened = reader.section(&signature()).unwrap();
        storage.remove_file(&section_dir().join(file)).unwrap();
        let wrong = reader.verify().unwrap();
        assert_eq!(wrong.len(), 1, "{file}: {wrong:?}");
        assert!(wrong[0].to_string().ends_with(want), "{file}: {}", wrong[0]);
        assert!(wrong[0].hint().unwrap().contains("rowmill cache prune"), "{file}");
        let stats = reader.stat().unwrap();
        let damage: Vec<_> = stats.iter().map(|it| it.damage.clone().unwrap_or_default()).collect();
        assert_eq!(damage, [wrong[0].to_string()], "{file}");
        assert!(reader.section(&signature()).is_err(), "{file}");
        assert_eq!(opened.refresh().is_err(), file == layout::MANIFEST, "{file}");
        // What was begun and holds nothing is no damage.
        storage.remove_all(&section_dir()).unwrap();
        storage.create_dir_all(&layout::segments(&section_dir())).unwrap();
        assert_eq!((reader.verify().unwrap().len(), reader.stat().unwrap().len()), (0, 0));
    }
}

#[test]
fn torn_last_line_is_cut_and_its_segment_goes() {
    let (memory, storage) = memory();
    put(&open(&storage), 0..3, 5);
    let log = section_dir().join(layout::MANIFEST);
    let len = len_of(&*storage, &log);
    memory.truncate(&log, len - 9).unwrap();
    let reader = CacheReader::new(Arc::clone(&storage), "cache").section(&signature()).unwrap();
    let lost: Vec<usize> = (10..15).collect();
    assert_eq!(reader.misses(&keys(0..15)).unwrap(), lost);
    let section = open(&storage);
    assert_eq!(section.misses(&keys(0..15)).unwrap(), lost);
    assert_eq!(segments(&*storage).len(), 2);
    put(&section, 2..3, 5);
    assert_eq!(section.misses(&keys(0..15)).unwrap().len(), 0);
}

#[test]
fn failure_of_a_write_is_told_by_the_next_call_and_ends_writing() {
    for overlap in [Overlap::Now, Overlap::Late] {
        let faulty = Arc::new(Faulty::new(Memory::new(overlap)));
        let storage: Arc<dyn Storage> = faulty.clone();
        let section = open(&storage);
        put(&section, 0..1, 5);
        section.put(&keys([7]), &rows([7])).unwrap();
        faulty.fail_at(faulty.operations().len() + 3, Fault::Io, Lasting::Once);
        let error = section.commit().unwrap_err();
        assert!(matches!(error, CacheError::Storage(_) | CacheError::Write(_)), "{error}");
        for error in [section.put(&keys([8]), &rows([8])), section.commit()] {
            assert!(matches!(error, Err(CacheError::Stopped { .. })), "{error:?}");
        }
        drop(section);
        assert_eq!(open(&storage).misses(&keys([0, 4, 7])).unwrap(), [2]);
    }
}

#[test]
fn rows_are_made_durable_as_often_as_the_policy_says() {
    let (memory, storage) = memory();
    let cache = FeatureCache::open(storage, "cache").unwrap();
    let commits = CommitPolicy { bytes: 1000, interval: None };
    let options = SectionOptions { commits, ..SectionOptions::default() };
    let section = cache.section(&signature(), options).unwrap();
    let n_rows = |memory: &Memory| {
        let reader = CacheReader::new(Arc::new(memory.clone()), "cache");
        reader.section(&signature()).unwrap().stat().unwrap().rows
    };
    for n in 0..40 {
        section.put(&[key(n)], &rows([n.cast_signed()])).unwrap();
    }
    let written = n_rows(&memory);
    assert!(written > 20 && written < 40, "{written}");
    section.commit().unwrap();
    assert_eq!(n_rows(&memory), 40);
}

#[test]
fn rows_are_cast_only_where_it_is_asked_for() {
    let item = Arc::new(Field::new_list_field(DataType::Float64, false));
    let lists = Arc::new(Float64Array::from(vec![0.1, 1e300, 0.5, 2.0]));
    let lists = FixedSizeListArray::new(item, 2, lists, None);
    let columns: [(&str, ArrayRef); 2] =
        [("x", Arc::new(lists)), ("n", Arc::new(Int64Array::from(vec![1, 300])))];
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys(0..2), &RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    let found = section.get(&keys([1])).unwrap();
    let cast = found.clone().cast(&[("x", DataType::Float32)]).unwrap();
    let values = cast.rows["x"].as_fixed_size_list().values().clone();
    assert_eq!(values.as_primitive::<Float32Type>().values(), &[0.5, 2.0]);
    assert_eq!(&cast.rows["n"], &found.rows["n"]);
    let error = found.cast(&[("n", DataType::Int8)]).unwrap_err();
    assert!(error.to_string().starts_with("field `n` cannot be cast to Int8: "), "{error}");
}

/// One step of somebody who uses a cache.
#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u64>),
    Commit,
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(0_u64..60, 1..12).prop_map(Step::Put),
        4 => Just(Step::Commit),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_cache_is_a_map(steps in proptest::collection::vec(step(), 1..60), late: bool) {
        let overlap = if late { Overlap::Late } else { Overlap::Now };
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let mut section = open(&storage);
        let (mut want, mut committed) = (HashMap::new(), HashMap::new());
        for (n, step) in (0_i64..).zip(steps) {
            match step {
                Step::Put(numbers) => {
                    let values = (0..).map(|at| n * 1000 + at);
                    let values: Vec<i64> = values.take(numbers.len()).collect();
                    section.put(&keys(numbers.clone()), &rows(values.clone())).unwrap();
                    want.extend(numbers.into_iter().zip(values));
                }
                Step::Commit => {
                    section.commit().unwrap();
                    committed.clone_from(&want);
                }
                Step::Compact => {
                    let done = section.compact().unwrap();
                    committed.clone_from(&want);
                    prop_assert_eq!(done.rows, want.len() as u64);
                }
                Step::Reopen => {
                    drop(section);
                    section = open(&storage);
                    want.clone_from(&committed);
                }
            }
            let asked: Vec<u64> = (0..60).collect();
            let found = section.get(&keys(asked.clone())).unwrap();
            let hits = asked.iter().filter_map(|n| want.get(n).copied());
            prop_assert_eq!(values(&found.rows), hits.collect::<Vec<i64>>());
            prop_assert_eq!(found.hits.len() + found.misses.len(), 60);
        }
    }
}

#[test]
fn runs_that_a_crash_left_behind_a_merge_are_dropped() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..1, 40);
    let old = runs(&*storage)[0].clone();
    let bytes = storage.read(&old).unwrap().unwrap();
    put(&section, 1..2, 40);
    drop(section);
    assert_eq!(runs(&*storage).len(), 1, "both were merged");
    let mut file = storage.create(&old).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    let reader = CacheReader::new(Arc::clone(&storage), "cache");
    assert_eq!(reader.verify().unwrap().len(), 0);
    assert_eq!(reader.section(&signature()).unwrap().stat().unwrap().index_runs, 1);
    let section = open(&storage);
    assert_eq!(runs(&*storage).len(), 1);
    assert_eq!(values(&section.get(&keys(0..80)).unwrap().rows), (0..80).collect::<Vec<_>>());
}

#[test]
fn a_merge_does_not_vouch_for_what_is_damaged() {
    let (memory, storage) = memory();
    put(&open(&storage), 0..7, 5);
    memory.overwrite(layout::segment(&section_dir(), 3).join("n_2.bin"), 8, b"!").unwrap();
    let section = open(&storage);
    section.put(&keys([99]), &rows([99])).unwrap();
    // The eighth small segment: all of them are merged.
    let error = section.commit().unwrap_err();
    assert!(error.to_string().contains("segments/3/n_2.bin`: block 1 of 1"), "{error}");
    assert!(matches!(section.commit(), Err(CacheError::Stopped { .. })));
    drop(section);
    assert_eq!(segments(&*storage).len(), 8);
    assert_eq!(open(&storage).misses(&keys([0, 34, 99])).unwrap().len(), 0);
}

#[test]
fn a_damaged_section_is_listed_beside_the_others_and_can_be_removed() {
    let other = CompatSignature::new(&json!({"id": "other"}));
    let (memory, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    for signature in [&signature(), &other] {
        put(&cache.section(signature, SectionOptions::default()).unwrap(), 0..1, 5);
    }
    memory.overwrite(section_dir().join(layout::MANIFEST), 200, b"\xff\xfe").unwrap();
    let stats = cache.reader().stat().unwrap();
    assert_eq!(stats.len(), 2);
    for stat in &stats {
        let is_damaged = stat.section == signature().sha256();
        assert_eq!((stat.damage.is_some(), stat.rows), (is_damaged, 5 * u64::from(!is_damaged)));
    }
    assert_eq!(cache.reader().verify().unwrap().len(), 1);
    let removed = cache.prune(|stat| stat.damage.is_none()).unwrap();
    assert_eq!((removed.len(), &removed[0].section[..]), (1, signature().sha256()));
    assert_eq!(cache.reader().verify().unwrap().len(), 0);
    assert_eq!(cache.reader().section(&other).unwrap().misses(&keys(0..5)).unwrap().len(), 0);
}
