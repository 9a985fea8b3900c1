//! A feature cache when the power is cut, the process is killed or the disk fails, at any operation.
//!
//! Invariants:
//! 1. Every row whose commit had returned is found, equal; of a key that was put again later, that row
//!    or the later one.
//! 2. No other row is found than those that were put: none is half there.
//! 3. The cache opens, and what is put then is found. Every byte verifies.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use rowmill::cache::{CacheError, CacheReader, FeatureCache, RowKey, Section, SectionOptions};
use rowmill::fingerprint::CompatSignature;
use rowmill::storage::faulty::{Fault, Lasting};
use rowmill::storage::{Faulty, Memory, Overlap, Storage};

use crate::model::every_kind_rows;
use crate::sampling::{Sampling, Seen, Tally};

/// Keys that are put, some of them several times.
const KEYS: u64 = 8;

/// What is done with a section, one after another.
const STEPS: [Step; 14] = [
    Step::Put(0..3),
    Step::Put(3..5),
    Step::Put(1..4),
    Step::Put(5..6),
    Step::Put(0..1),
    Step::Compact,
    Step::Put(6..7),
    Step::Put(0..2),
    Step::Put(2..3),
    Step::Put(2..3),
    Step::Put(4..6),
    Step::Put(7..8),
    // The eighth small segment in a row: they are merged.
    Step::Put(1..2),
    Step::Compact,
];

#[derive(Debug, Clone)]
enum Step {
    Put(Range<u64>),
    Compact,
}

fn signature() -> CompatSignature {
    CompatSignature::new(&serde_json::json!({"id": "crash"}))
}

fn key(n: u64) -> RowKey {
    blake3::hash(&n.to_le_bytes()).into()
}

/// A row of each key, made at this step.
fn rows(keys: Range<u64>, step: i64) -> RecordBatch {
    let n: Int64Array = keys.clone().map(|key| key.cast_signed() * 1000 + step).collect();
    let text = keys.map(|key| (key % 3 > 0).then(|| format!("{key} at {step}")));
    let text = Arc::new(text.collect::<StringArray>());
    let columns: [(&str, ArrayRef, bool); 2] = [("n", Arc::new(n), false), ("text", text, true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn open(storage: Arc<dyn Storage>) -> Result<Section, CacheError> {
    FeatureCache::open(storage, "cache")?.section(&signature(), SectionOptions::default())
}

/// What is known of a cache that was interrupted: of each key, the steps whose rows it may have. The
/// first of them is the last that was committed, -1 if none was.
type Known = BTreeMap<u64, Vec<i64>>;

/// Takes all steps, and says in `known` what can be relied on.
fn work(storage: Arc<dyn Storage>, known: &mut Known) -> Result<(), CacheError> {
    let section = open(storage)?;
    for (at, step) in (0_i64..).zip(&STEPS) {
        let Step::Put(keys) = step else {
            section.compact()?;
            continue;
        };
        for key in keys.clone() {
            known.entry(key).or_insert_with(|| vec![-1]).push(at);
        }
        let list: Vec<RowKey> = keys.clone().map(key).collect();
        section.put(&list, &rows(keys.clone(), at))?;
        section.commit()?;
        for steps in known.values_mut() {
            drop(steps.drain(..steps.len() - 1));
        }
    }
    Ok(())
}

/// Opens what was left and holds it against what is known.
fn check(disk: &Memory, known: &Known, way: &str) {
    let reader = CacheReader::new(Arc::new(disk.clone()), "cache");
    // A reader finds the same rows before anybody has repaired anything.
    let before = reader.section(&signature()).unwrap_or_else(|e| panic!("{way}: reader: {e}"));
    let all: Vec<RowKey> = (0..=KEYS).map(key).collect();
    let before = before.get(&all).unwrap_or_else(|e| panic!("{way}: reader: {e}"));
    let section = open(Arc::new(disk.clone())).unwrap_or_else(|e| panic!("{way}: {e}"));
    let found = section.get(&all).unwrap_or_else(|e| panic!("{way}: {e}"));
    assert_eq!(before, found, "{way}");
    for (row, key) in found.hits.iter().enumerate() {
        let n = found.rows["n"].as_primitive::<Int64Type>().value(row);
        let text = found.rows["text"].as_string::<i64>();
        let (key, step) = (*key as u64, n % 1000);
        let may_be = known.get(&key).is_some_and(|steps| steps.contains(&step));
        assert!(
            may_be && n / 1000 == key.cast_signed(),
            "{way}: key {key} has row {n} of {known:?}"
        );
        let want = (key % 3 > 0).then(|| format!("{key} at {step}"));
        let got = text.is_valid(row).then(|| text.value(row).to_owned());
        assert_eq!(got, want, "{way}: key {key}");
    }
    for key in found.misses {
        let steps = known.get(&(key as u64));
        assert!(steps.is_none_or(|steps| steps[0] == -1), "{way}: key {key} is lost: {known:?}");
    }
    let other = [key(100)];
    section.put(&other, &rows(100..101, 500)).unwrap();
    section.commit().unwrap();
    drop(section);
    let section = open(Arc::new(disk.clone())).unwrap();
    assert_eq!(section.misses(&other).unwrap().len(), 0, "{way}");
    let wrong = reader.verify().unwrap();
    assert!(wrong.is_empty(), "{way}: {wrong:?}");
}

fn cut_anywhere(overlap: Overlap, cuts: usize, boots: usize) {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new(format!("feature cache, writes {overlap:?}"), &sampling);
    let mut seen = Seen::default();
    let whole = Memory::new(overlap).with_whole_renames();
    work(Arc::new(whole.clone()), &mut Known::new()).unwrap();
    let n_operations = whole.operations() as usize;
    tally.add("operations", n_operations);
    for n in sampling.pick(n_operations, cuts, 7) {
        let disk = Memory::new(overlap).with_whole_renames();
        disk.cut_at(n as u64);
        let mut known = Known::new();
        work(Arc::new(disk.clone()), &mut known).unwrap_err();
        tally.add("cuts", 1);
        check(&disk.after_kill(), &known, &format!("{overlap:?}, killed before operation {n}"));
        for (how, boot) in sampling.boots(&disk, boots, n as u64) {
            tally.add("power cuts", 1);
            let steps = known.values().flatten();
            let rank =
                steps.fold(0, |hash: u64, n| hash.wrapping_mul(31).wrapping_add(n.cast_unsigned()));
            if seen.is_new_with(&boot, rank) {
                tally.add("different disks", 1);
                check(&boot, &known, &format!("{overlap:?}, cut at operation {n}, {how}"));
            }
        }
    }
}

#[test]
fn feature_cache_survives_power_cuts() {
    cut_anywhere(Overlap::Now, 200, 3);
}

#[test]
fn feature_cache_with_late_writes_survives_power_cuts() {
    cut_anywhere(Overlap::Late, 30, 3);
}

#[test]
fn opening_a_feature_cache_survives_power_cuts() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("feature cache opened again", &sampling);
    let whole = Memory::new(Overlap::Now).with_whole_renames();
    work(Arc::new(whole.clone()), &mut Known::new()).unwrap();
    for first in sampling.pick(whole.operations() as usize, 5, 8) {
        let disk = Memory::new(Overlap::Now).with_whole_renames();
        disk.cut_at(first as u64);
        let mut known = Known::new();
        work(Arc::new(disk.clone()), &mut known).unwrap_err();
        for (how, boot) in sampling.boots(&disk, 2, first as u64) {
            for n in 0.. {
                let again = boot.after_kill();
                again.cut_at(again.operations() + n);
                if open(Arc::new(again.clone())).is_ok() {
                    break;
                }
                tally.add("second cuts", 1);
                for (then, boot) in sampling.boots(&again, 2, n) {
                    let way = format!("cut at {first}, {how}; at {n} of opening, {then}");
                    check(&boot, &known, &way);
                }
            }
        }
    }
}

#[test]
fn feature_cache_tells_every_failure_of_the_disk_and_opens_again() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("feature cache on a failing disk", &sampling);
    let whole = Arc::new(Faulty::new(Memory::new(Overlap::Now).with_whole_renames()));
    work(whole.clone(), &mut Known::new()).unwrap();
    let operations = whole.operations();
    for n in sampling.pick(operations.len(), 40, 9) {
        for (fault, lasting) in [(Fault::Io, Lasting::Once), (Fault::Short, Lasting::FromThenOn)] {
            let disk = Memory::new(Overlap::Now).with_whole_renames();
            let faulty = Arc::new(Faulty::new(disk.clone()));
            faulty.fail_at(n, fault, lasting);
            let mut known = Known::new();
            let outcome = work(faulty, &mut known);
            let way = format!("{fault:?} {lasting:?} at operation {n}, {:?}", operations[n]);
            assert!(outcome.is_err(), "{way}");
            tally.add("faults", 1);
            check(&disk.after_kill(), &known, &way);
        }
    }
}

#[test]
fn every_kind_of_field_comes_back_equal_from_a_feature_cache() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new(Overlap::Now));
    let batch = every_kind_rows(0, 40, 5);
    let keys: Vec<RowKey> = (0..40).map(key).collect();
    let section = open(Arc::clone(&storage)).unwrap();
    section.put(&keys, &batch).unwrap();
    let schema = section.schema().unwrap();
    let want = schema.batch(&schema.columns(&batch).unwrap(), 40).unwrap();
    for stage in ["in memory", "committed", "opened again", "compacted"] {
        match stage {
            "committed" => section.commit().unwrap(),
            "compacted" => {
                // Every other row is replaced, so that what is left is gathered.
                let odd: Vec<RowKey> = keys.iter().skip(1).step_by(2).copied().collect();
                let rows: Vec<_> = (0..20).map(|n| want.slice(2 * n + 1, 1)).collect();
                for (key, row) in odd.iter().zip(&rows) {
                    section.put(&[*key], row).unwrap();
                }
                assert_eq!(section.compact().unwrap().rows, 40);
            }
            _ => {}
        }
        let rows = if stage == "in memory" {
            section.get(&keys).unwrap().rows
        } else {
            let reader = CacheReader::new(Arc::clone(&storage), "cache");
            reader.section(&signature()).unwrap().get(&keys).unwrap().rows
        };
        assert_eq!(rows, want, "{stage}");
    }
    assert!(CacheReader::new(storage, "cache").verify().unwrap().is_empty());
}
