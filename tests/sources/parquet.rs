//! The `parquet` source.

use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Int64Array,
    RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use rowmill::batch::{Outcome, Restart};
use rowmill::sources::{BatchLimits, OnError, SourceError, SourceSpec, source_type};
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::{folder, part_of, real_data, source};

/// A table with most kinds of columns; `n` rows from `from` on.
pub(crate) fn rows(from: i64, n: i64) -> RecordBatch {
    let all = || from..from + n;
    let ids = Int64Array::from_iter_values(all());
    let scores = all().map(|i| (i % 3 != 0).then_some(f32::from(i16::try_from(i).unwrap()) / 2.0));
    let names = all().map(|i| {
        (i % 5 != 1).then(|| format!("näme {i} {}", "x".repeat(usize::try_from(i % 40).unwrap())))
    });
    let kinds: DictionaryArray<Int32Type> = all()
        .map(|i| (i % 4 != 2).then_some(["red", "green", "blue"][usize::try_from(i % 3).unwrap()]))
        .collect();
    let mut lists = ListBuilder::new(Int32Builder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for i in all() {
        for j in 0..i % 4 {
            lists.values().append_option((j != 2).then_some(i32::try_from(i * 10 + j).unwrap()));
        }
        lists.append(i % 7 != 3);
        for j in 0..i % 3 {
            maps.keys().append_value(format!("k{j}"));
            maps.values().append_value(i32::try_from(j).unwrap());
        }
        maps.append(true).unwrap();
    }
    let x: ArrayRef = Arc::new(all().map(|i| Some(i % 2 == 0)).collect::<BooleanArray>());
    let y: ArrayRef = Arc::new(all().map(|i| (i % 6 != 0).then_some("y")).collect::<StringArray>());
    let inner = vec![
        (Arc::new(Field::new("x", DataType::Boolean, true)), x),
        (Arc::new(Field::new("y", DataType::Utf8, true)), y),
    ];
    let price = Decimal128Array::from_iter_values(all().map(|i| i128::from(i) * 101));
    let when = TimestampMicrosecondArray::from_iter_values(all().map(|i| i * 1_000_007));
    let columns: [(&str, ArrayRef); 9] = [
        ("id", Arc::new(ids)),
        ("score", Arc::new(scores.collect::<Float32Array>())),
        ("name", Arc::new(names.collect::<StringArray>())),
        ("kind", Arc::new(kinds)),
        ("list", Arc::new(lists.finish())),
        ("map", Arc::new(maps.finish())),
        ("point", Arc::new(StructArray::from(inner))),
        ("price", Arc::new(price.with_precision_and_scale(20, 2).unwrap())),
        ("when", Arc::new(when.with_timezone("+00:00"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, n != "id"))).unwrap()
}

/// The rows as a file with row groups and pages of these numbers of rows.
pub(crate) fn file(rows: &RecordBatch, group_rows: usize, page_rows: usize) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_data_page_row_count_limit(page_rows)
        .set_write_batch_size(page_rows)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
    bytes
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let whole = file(&rows(0, 90), 40, 7);
    let more = file(&rows(90, 30), 1000, 1000);
    let turned = rows(120, 5).project(&[8, 7, 6, 5, 4, 3, 2, 1, 0]).unwrap();
    let turned = file(&turned, 2, 1);
    for (name, files, settings) in [
        ("every kind", vec![("a.parquet", whole.as_slice())], json!({})),
        (
            "some columns",
            vec![("a.parquet", &whole)],
            json!({"columns": ["point.y", "id", "list"]}),
        ),
        ("several files", vec![("a.parquet", &more), ("b.parquet", &turned)], json!({})),
    ] {
        let root = folder(&files);
        cases.push(Case {
            name,
            source: source("parquet", root.path(), &["*.parquet"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    for path in
        ["alltypes_plain.parquet", "nested_structs.rust.parquet", "delta_byte_array.parquet"]
    {
        if let Some(root) = real_data("parquet-testing/data") {
            let source = source("parquet", &root, &[path], json!({}));
            cases.push(Case { name: path, source, root, made: None });
        }
    }
    cases
}

fn read_all(root: &Path, paths: &[&str], settings: Value) -> Result<Reading, SourceError> {
    let source = source("parquet", root, paths, settings);
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, LIMITS, &Restart::default())
}

#[test]
fn values_are_those_that_were_written() {
    let want = rows(0, 90);
    let root = folder(&[("a.parquet", &file(&want, 40, 7))]);
    let got = read_all(root.path(), &["a.parquet"], json!({})).unwrap().rows;
    assert_eq!(got.num_rows(), 90);
    for (field, column) in want.schema().fields().iter().zip(want.columns()) {
        let have = &got[field.name().as_str()];
        let wanted = arrow_cast::cast(column, have.data_type()).unwrap();
        assert_eq!(have, &wanted, "{}", field.name());
    }
    let types: Vec<_> =
        ["name", "kind"].iter().map(|name| got[*name].data_type().clone()).collect();
    assert_eq!(types, [DataType::LargeUtf8, DataType::LargeUtf8]);
}

#[test]
fn columns_are_chosen_by_name_and_within_structs() {
    let root = folder(&[("a.parquet", &file(&rows(0, 9), 4, 2))]);
    let columns = json!({"columns": ["point.y", "id"]});
    let got = read_all(root.path(), &["a.parquet"], columns).unwrap().rows;
    let names: Vec<_> = got.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["id", "point"]);
    assert_eq!(got["point"].as_struct().column_names(), ["y"]);
    assert_eq!(got["id"].as_primitive::<Int64Type>().value(8), 8);
    for (columns, message, hint) in [
        (
            json!(["pint"]),
            "there is no column `pint`, which `columns` names",
            "did you mean `point`?",
        ),
        (json!(["point.z"]), "there is no column `point.z`", "did you mean `point"),
        (json!(["list.item"]), "there is no column `list.item`", "did you mean `list`?"),
    ] {
        let error = read_all(root.path(), &["a.parquet"], json!({"columns": columns})).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(error.hint().unwrap().starts_with(hint), "{:?}", error.hint());
    }
}

#[test]
fn a_column_with_a_dot_in_its_name_is_none_within_another() {
    let numbers = |n: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values([n, n + 1])) };
    let inner = Arc::new(Field::new("y", DataType::Int64, false));
    let outer: ArrayRef = Arc::new(StructArray::from(vec![(inner, numbers(5))]));
    let columns = [("x", numbers(1)), ("x.y", numbers(3)), ("s", outer), ("s.z", numbers(7))];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let root = folder(&[("x.parquet", &file(&rows, 10, 10))]);
    for (named, want) in [
        (json!(["x"]), vec!["x"]),
        (json!(["x.y"]), vec!["x.y"]),
        (json!(["s"]), vec!["s"]),
        (json!(["s.y", "s.z"]), vec!["s", "s.z"]),
    ] {
        let read = read_all(root.path(), &["x.parquet"], json!({"columns": named})).unwrap();
        let schema = read.rows.schema();
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        assert_eq!(names, want);
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (settings, at, message) in [
        (json!({"columns": []}), "columns", "`columns` names no column"),
        (json!({"columns": ["a", "b", "a"]}), "columns", "`columns` names `a` twice"),
        (json!({"page_bytes": "many"}), "page_bytes", "\"many\" is no size; write \"32MiB\""),
        (json!({"page_bytes": 0}), "page_bytes", "0 is no size; write \"32MiB\""),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["*".to_owned()],
            root: ".".into(),
            settings,
        };
        let refused = (source_type("parquet").unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, [at]);
        assert_eq!(refused.message, message);
    }
}

/// What every input gives: its rows, and the code and source row of what was rejected.
fn quarantined(root: &Path, settings: Value, limits: BatchLimits) -> Vec<String> {
    let source = source("parquet", root, &["*.parquet"], settings);
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first()).unwrap();
    let part = part_of(&*source, &inputs);
    let limits = BatchLimits { on_error: OnError::Quarantine, ..limits };
    let mut told = Vec::new();
    let mut restarts = vec![Restart::default()];
    let mut reader = source.open(&part, &schema, limits, &Restart::default()).unwrap();
    while let Some(batch) = reader.next().unwrap() {
        restarts.push(batch.restart.clone());
        told.extend(tell(&batch));
    }
    reader.digests().unwrap();
    // From every batch on, the same follows.
    let mut before = 0;
    for (i, restart) in restarts.iter().enumerate() {
        let mut reader = source.open(&part, &schema, limits, restart).unwrap();
        let mut rest = Vec::new();
        while let Some(batch) = reader.next().unwrap() {
            if rest.is_empty() && i > 0 {
                let own = tell(&batch);
                before = told.windows(own.len()).rposition(|w| w == own).unwrap_or(before);
            }
            rest.extend(tell(&batch));
        }
        assert!(told.ends_with(&rest), "{restart:?}: {rest:?}");
    }
    told
}

fn tell(batch: &rowmill::batch::Batch) -> Vec<String> {
    let position = |row| batch.provenance.position(row).unwrap();
    let rows = (0..batch.rows.num_rows() as u64).map(position);
    let mut told: Vec<_> = rows.map(|at| format!("{} {}", at.input, at.source_row)).collect();
    for event in &batch.events {
        let Outcome::Rejected { code, message } = &event.outcome else { panic!("{event:?}") };
        assert!(!message.is_empty());
        told.push(format!("{} {} {code}", event.input, event.source_row));
    }
    told
}

#[test]
fn the_first_row_that_cannot_be_read_is_the_same_for_all_batches() {
    let good = file(&rows(0, 90), 40, 7);
    let other = file(&rows(0, 3).project(&[0, 1]).unwrap(), 10, 10);
    // Some pages of the second row group are overwritten.
    let mut bad = good.clone();
    let at = good.len() * 2 / 5;
    bad[at..at + 400].fill(0xff);
    let root = folder(&[
        ("a.parquet", &good),
        ("b.parquet", &bad),
        ("c.parquet", &other),
        ("d.parquet", b"PAR1 not at all"),
        ("e.parquet", &file(&rows(7, 2), 1, 1)),
    ]);
    let want = quarantined(root.path(), json!({}), LIMITS);
    let rejects: Vec<_> = want.iter().filter(|line| line.split(' ').count() == 3).collect();
    assert_eq!(rejects.len(), 3, "{rejects:?}");
    assert!(rejects[0].starts_with("1 ") && rejects[0].ends_with(" input_damaged"), "{rejects:?}");
    assert_eq!(rejects[1..], ["2 0 schema_mismatch", "3 0 input_damaged"]);
    assert!(want.ends_with(&["4 0".to_owned(), "4 1".to_owned()]));
    for (rows, bytes) in [(1, 1), (3, 1 << 20), (64, 1 << 20), (1000, 2000)] {
        let got = quarantined(root.path(), json!({}), BatchLimits { rows, bytes, ..LIMITS });
        assert_eq!(got, want, "{rows} rows, {bytes} bytes");
    }
    let refused = read_all(root.path(), &["*.parquet"], json!({})).unwrap_err();
    let row = rejects[0].split(' ').nth(1).unwrap();
    let start = format!("`b.parquet`, row {row}: ");
    assert!(refused.to_string().starts_with(&start), "{refused}");
    assert!(refused.hint().is_some());
}

#[test]
fn rows_and_pages_that_are_too_large_are_refused_by_their_size() {
    let text = |n: usize| {
        StringArray::from_iter_values((0..n).map(|i| {
            // One value of 300,000 characters, that a dictionary repeats.
            if i % 4 == 3 { "y".repeat(300_000) } else { i.to_string() }
        }))
    };
    let rows = RecordBatch::try_from_iter([("t", Arc::new(text(8)) as ArrayRef)]).unwrap();
    let root = folder(&[("a.parquet", &file(&rows, 100, 100))]);
    let limits = BatchLimits { row_bytes: 250_000, ..LIMITS };
    let told = quarantined(root.path(), json!({}), limits);
    let want = ["0 0", "0 1", "0 2", "0 3 row_too_large", "0 4", "0 5", "0 6", "0 7 row_too_large"];
    assert_eq!(told, want);
    let told = quarantined(root.path(), json!({"page_bytes": 200_000}), LIMITS);
    assert_eq!(told, ["0 0 page_too_large"]);
    let refused = read_all(root.path(), &["*"], json!({"page_bytes": 200_000})).unwrap_err();
    assert!(refused.hint().unwrap().contains("raise `page_bytes`"), "{refused}");
    let refused = read_all(root.path(), &["*"], json!({"page_bytes": 100})).unwrap_err();
    assert!(refused.to_string().contains("the footer has"), "{refused}");
}
