//! The reader in Python, written from `docs/format.md` alone, against what is written.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[path = "dataset/fake.rs"]
mod fake;
mod model;
mod shards;

use fake::Fake;

use model::{every_kind_rows, every_kind_schema};
use rowmill::batch::{Event, Outcome};
use rowmill::schema::{FieldSpec, RowSchema, Stored};
use rowmill::storage::{Local, Storage};
use shards::{Cases, Rows};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray, UInt8Array};

/// A reject that stands before row `before_row` of its batch.
fn reject(before_row: u64, source_row: u64) -> Event {
    Event {
        before_row,
        input: 0,
        source_row,
        path: Vec::new(),
        stage: 0,
        outcome: Outcome::Rejected { code: "bad".into(), message: "größer als erlaubt".into() },
    }
}

#[test]
fn the_reader_in_python_reads_what_was_written() {
    let cases = Cases::new();
    let schema = every_kind_schema();
    let batches = [(0, 60), (60, 1), (61, 59)];
    let batches = batches.map(|(from, n)| every_kind_rows(from, n, 3)).to_vec();
    let every_kind = Rows::new(schema.clone(), batches).in_shards_of(50);
    assert_eq!(cases.add("every-kind", &every_kind).len(), 3);

    let mut rejects_only = Rows::new(schema, vec![every_kind_rows(0, 0, 3)]);
    rejects_only.events = vec![reject(0, 0), reject(0, 1)];
    assert_eq!(cases.add("rejects-only", &rejects_only).len(), 1);

    assert_eq!(cases.add("large", &large()).len(), 1);
    assert_eq!(cases.add("integer-key", &integer_key()).len(), 2);
    dataset(&cases.path("letters"));
    cases.check_with_python();
}

/// Three partitions, with rows dropped and rejected.
fn dataset(folder: &Path) {
    let files =
        [("a2.txt", "abc.d"), ("b.txt", "efg!hij.k"), ("größe.txt", "lmnopqrstuvwxyzABCDEFGHI")];
    let mut fake = Fake { key: Some("id"), ..Fake::new(&files) };
    let out = folder.parent().unwrap();
    fake.build_in(&(Arc::new(Local) as _), &fake.home_in(out)).unwrap();
    let letters: String = files.iter().map(|(_, text)| text.replace(['.', '!'], "")).collect();
    Local.write_atomic(&folder.join("letters.txt"), letters.as_bytes()).unwrap();
}

/// Files of several blocks, and more rows than a row group of the index has.
fn large() -> Rows {
    let n = 70_000_u32;
    let number = Int64Array::from_iter_values((0..n).map(|i| i64::from(i) * 1_000_003));
    let text = StringArray::from_iter_values((0..n).map(|i| format!("{i:x}").repeat(5)));
    let rows = RecordBatch::try_from_iter([
        ("number", Arc::new(number) as _),
        ("text", Arc::new(text) as _),
    ]);
    let rows = rows.unwrap();
    let specs =
        BTreeMap::from([("number".into(), FieldSpec { index: true, ..FieldSpec::default() })]);
    let schema = RowSchema::infer(rows.schema_ref(), &specs, None).unwrap();
    Rows::new(schema, vec![rows])
}

/// Keys that are integers below zero and above, with rejects between the rows.
fn integer_key() -> Rows {
    let key = Int64Array::from_iter_values([-3, i64::MAX, 0, i64::MIN, 7]);
    let value = UInt8Array::from_iter_values([0, 1, 0, 1, 1]);
    let rows =
        RecordBatch::try_from_iter([("value", Arc::new(value) as _), ("key", Arc::new(key) as _)]);
    let rows = rows.unwrap();
    let flag = FieldSpec { dtype: Some(Stored::Bool), index: true, ..FieldSpec::default() };
    let specs = BTreeMap::from([("value".into(), flag)]);
    let schema = RowSchema::infer(rows.schema_ref(), &specs, Some("key")).unwrap();
    let mut rows = Rows::new(schema, vec![rows]).in_shards_of(3);
    // Of rows that their source rows had become beside those that are stored, and of a whole one.
    let part = |event| Event { path: vec![1], ..event };
    rows.events = vec![part(reject(3, 2)), part(reject(5, 4)), reject(5, 5)];
    rows
}
