//! Rows of any schema: written, sealed, read again.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "tests count small things"
)]

mod model;
mod shards;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_select::concat::concat_batches;
use model::arbitrary::{Case, Want, cases};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, RngSeed, TestRng, TestRunner};
use rowmill::schema::{Field, RowSchema, key_hash_bytes};
use rowmill::shard::{FieldReader, SealedShard, Shard, verify_shard};
use rowmill::storage::{Memory, Overlap, Storage};
use shards::{Cases, Rows};

/// Seed of all random cases here.
const SEED: u64 = 1;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(SEED),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The rows of a case in batches that end at these fractions, in shards of that many rows.
fn cut(case: &Case, cuts: &[f64], shard_rows: u64) -> Rows {
    let n_rows = case.batch.num_rows();
    let mut ends: Vec<usize> = cuts.iter().map(|at| (at * n_rows as f64) as usize).collect();
    ends.push(n_rows);
    ends.sort_unstable();
    let mut start = 0;
    let batches = ends.into_iter().map(|end| {
        let batch = case.batch.slice(start, end - start);
        start = end;
        batch
    });
    Rows::new(case.schema.clone(), batches.collect()).in_shards_of(shard_rows)
}

/// The bytes that must come of one row of a field.
fn row<'a>(field: &Field, want: &'a Want, row: usize) -> &'a [u8] {
    let unit = field.unit_bytes();
    let (from, to) = match &want.offsets {
        Some(offsets) => (offsets[row] as usize, offsets[row + 1] as usize),
        None => (row, row + 1),
    };
    &want.bytes[from * unit..to * unit]
}

/// Compares the rows of a shard, which begin at `start` of the case, with what must come of them.
fn check_rows(reader: &FieldReader, want: &Want, start: usize) {
    let field = reader.field();
    let rank = field.shape.len();
    let rows: Vec<u64> = (0..reader.n_rows()).collect();
    let mut values = Vec::new();
    for &at in &rows {
        let i = start + at as usize;
        let (is_valid, bytes) = (reader.is_valid(at).unwrap(), row(field, want, i));
        assert_eq!(is_valid, want.valid.as_ref().is_none_or(|valid| valid[i] == 1), "row {i}");
        assert_eq!(reader.row(at).unwrap(), bytes, "row {i}");
        if let Some(dims) = &want.dims {
            let padded = &dims[i * rank..(i + 1) * rank];
            let used = reader.dims(at).unwrap();
            assert_eq!(used, &padded[..used.len()], "row {i}");
            assert!(padded[used.len()..].iter().all(|&dim| dim == -1), "row {i}");
        }
        values.push(bytes);
    }
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    let backwards: Vec<u64> = rows.iter().rev().copied().collect();
    reader.gather_ragged(&backwards, &mut bytes, &mut offsets).unwrap();
    values.reverse();
    assert_eq!(bytes, values.concat());
    if want.offsets.is_none() {
        let mut fixed = vec![0; bytes.len()];
        reader.gather(&backwards, &mut fixed).unwrap();
        assert_eq!(fixed, bytes);
    }
}

/// Compares rows that are read in pieces with those of the mapped files.
fn check_picked(shard: &Shard, index: usize, mapped: &FieldReader, want: &Want, start: usize) {
    let all: Vec<u64> = (0..shard.n_rows()).collect();
    check_rows(&shard.read_rows(index, &all).unwrap(), want, start);
    // Some more than once, in no order.
    let some: Vec<u64> = all.iter().rev().step_by(2).chain(all.iter().take(3)).copied().collect();
    let picked = shard.read_rows(index, &some).unwrap();
    assert_eq!(picked.n_rows(), some.len() as u64);
    for (at, row) in (0..).zip(&some) {
        assert_eq!(picked.value(at).unwrap(), mapped.value(*row).unwrap(), "row {row}");
    }
    assert!(shard.read_rows(index, &[shard.n_rows()]).is_err());
    assert_eq!(shard.n_values(index).unwrap(), mapped.n_values() as u64);
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn rows_of_any_schema_are_read_as_they_were_written(
        case in cases(),
        cuts in prop::collection::vec(0.0..1.0, 0..3),
        shard_rows in 1..30_u64,
        overlap in prop::sample::select(vec![Overlap::Now, Overlap::Late, Overlap::Thread]),
    ) {
        let memory: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let rows = cut(&case, &cuts, shard_rows);
        let sealed = rows.write(Arc::clone(&memory), Path::new("/data"));
        let n_rows = case.batch.num_rows();
        prop_assert_eq!(sealed.len(), n_rows.div_ceil(shard_rows as usize));
        let (mut start, mut batches) = (0, Vec::new());
        for shard in &sealed {
            prop_assert_eq!(verify_shard(&memory, shard.path()), Ok(shard.clone()));
            let shard = Shard::open(Arc::clone(&memory), shard.path()).unwrap();
            prop_assert_eq!(shard.schema().as_ref(), &case.schema);
            for (index, (field, want)) in case.schema.fields().iter().zip(&case.want).enumerate() {
                let reader = shard.field(&field.name).unwrap();
                check_rows(reader, want, start);
                check_picked(&shard, index, reader, want, start);
            }
            let middle = shard.n_rows() / 2;
            batches.push(shard.record_batch(0..middle).unwrap());
            batches.push(shard.record_batch(middle..shard.n_rows()).unwrap());
            let first = shard.provenance().unwrap().position(0).unwrap();
            prop_assert_eq!(first.source_row, start as u64);
            start += shard.n_rows() as usize;
        }
        prop_assert_eq!(start, n_rows);
        let schema = case.schema.arrow_schema();
        let (got, want) = (concat_batches(&schema, &batches), concat_batches(&schema, &rows.expected()));
        prop_assert_eq!(plain(&got.unwrap()), plain(&want.unwrap()));
    }

    #[test]
    fn every_key_finds_its_row_and_no_other_key_does(
        texts in prop::collection::hash_set("[ab]{0,6}|.{0,3}", 1..60),
        numbers in prop::collection::hash_set(prop_oneof![-20..20_i64, any::<i64>()], 1..60),
        others in prop::collection::vec("[ab]{0,6}|.{0,3}", 20),
        is_text in any::<bool>(),
    ) {
        let texts: Vec<String> = texts.into_iter().collect();
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let keys: ArrayRef = if is_text {
            Arc::new(StringArray::from(texts.clone()))
        } else {
            Arc::new(Int64Array::from(numbers.clone()))
        };
        let batch = RecordBatch::try_from_iter([("key", keys)]).unwrap();
        let schema = RowSchema::infer(batch.schema_ref(), &[].into(), Some("key")).unwrap();
        let memory: Arc<dyn Storage> = Arc::new(Memory::new(Overlap::Now));
        let sealed = Rows::new(schema, vec![batch]).write(Arc::clone(&memory), Path::new("/data"));
        let shard = Shard::open(memory, sealed[0].path()).unwrap();
        if is_text {
            let rows: HashMap<&str, u64> = texts.iter().map(String::as_str).zip(0..).collect();
            for key in texts.iter().chain(&others).map(String::as_str) {
                prop_assert_eq!(shard.find(key).unwrap(), rows.get(key).copied(), "{}", key);
            }
        } else {
            let rows: HashMap<i64, u64> = numbers.iter().copied().zip(0..).collect();
            let others = others.iter().map(|key| key_hash_bytes(key.as_bytes()).cast_signed());
            for key in numbers.iter().copied().chain(others).chain(-20..20) {
                prop_assert_eq!(shard.find(key).unwrap(), rows.get(&key).copied(), "{}", key);
            }
        }
    }
}

/// A batch without what may differ between equal ones: dictionaries, and metadata of buffers.
fn plain(batch: &RecordBatch) -> Vec<ArrayRef> {
    let values = |array: &ArrayRef| match array.data_type() {
        arrow_schema::DataType::Dictionary(_, value) => arrow_cast::cast(array, value).unwrap(),
        _ => Arc::clone(array),
    };
    batch.columns().iter().map(values).collect()
}

#[test]
fn rows_of_any_schema_are_read_by_the_reader_in_python() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let mut runner = TestRunner::new_with_rng(config(1), rng);
    let python = Cases::new();
    for n in 0..25 {
        let case = cases().new_tree(&mut runner).unwrap().current();
        let sealed: Vec<SealedShard> = python.add(&format!("case {n}"), &cut(&case, &[0.3], 17));
        assert_eq!(sealed.len(), case.batch.num_rows().div_ceil(17));
    }
    python.check_with_python();
}
