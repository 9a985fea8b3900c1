//! What each transform computes, against values worked out by hand, and what holds for all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, LargeBinaryArray,
    LargeStringArray, RecordBatch, StringArray,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use rowmill::batch::{Batch, Event, Outcome, Position, Provenance, Restart};
use rowmill::transforms::{
    Emit, OnError, SettingsError, Stage, Stopped, TRANSFORMS, Transform, TransformError,
    TransformSpec, transform_type,
};
use serde_json::{Value, json};

const STAGE: Stage = Stage { index: 1, on_error: OnError::Fail };

/// Keeps what is handed on.
struct Kept {
    batches: Vec<Batch>,
    batch_bytes: usize,
}

impl Emit for Kept {
    fn emit(&mut self, batch: Batch) -> Result<(), Stopped> {
        self.batches.push(batch);
        Ok(())
    }

    fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    fn number(&mut self, _: Position, _: u64) -> Result<u64, Stopped> {
        panic!("no transform here makes several rows of one")
    }
}

fn made(kind: &str, settings: &Value) -> Result<Box<dyn Transform>, SettingsError> {
    let (name, folder) = (kind.to_owned(), "folder".into());
    let spec = TransformSpec { name, folder, settings: settings.clone() };
    (transform_type(kind).unwrap().make)(&spec)
}

fn transform(kind: &str, settings: &Value) -> Box<dyn Transform> {
    made(kind, settings).unwrap()
}

fn table(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let fields = columns.iter().map(|(name, column)| {
        Field::new(*name, column.data_type().clone(), column.null_count() > 0)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.iter().map(|(_, c)| Arc::clone(c)).collect()).unwrap()
}

fn batch(rows: RecordBatch, source_row: u64) -> Batch {
    let provenance = Provenance::of_input(3, source_row, rows.num_rows() as u64);
    Batch { rows, provenance, events: Vec::new(), restart: Restart::default() }
}

fn pieces(kind: &str, settings: &Value, batch: Batch, batch_bytes: usize) -> Vec<Batch> {
    let mut kept = Kept { batches: Vec::new(), batch_bytes };
    transform(kind, settings).apply(STAGE, batch, &mut kept).unwrap();
    kept.batches
}

fn apply(kind: &str, settings: &Value, rows: &RecordBatch) -> RecordBatch {
    let schema = transform(kind, settings).output(&rows.schema()).unwrap();
    let pieces = pieces(kind, settings, batch(rows.clone(), 0), 1 << 30);
    let pieces: Vec<_> = pieces.into_iter().map(|b| b.rows).collect();
    concat_batches(&schema, &pieces).unwrap()
}

fn refusal(kind: &str, settings: &Value, rows: &RecordBatch) -> SettingsError {
    made(kind, settings).and_then(|t| t.output(&rows.schema())).unwrap_err()
}

fn texts() -> ArrayRef {
    Arc::new(LargeStringArray::from(vec![
        Some(""),
        Some("one line"),
        Some("two\nlines\n"),
        None,
        Some("\r\n\n \u{a0}é😀\u{2003}b\n\nlast"),
    ]))
}

/// A table with a column of each kind that some transform takes.
fn sample() -> RecordBatch {
    let bytes: ArrayRef = Arc::new(LargeBinaryArray::from_opt_vec(vec![
        Some(b"".as_slice()),
        Some(b"aab\xff"),
        None,
        Some(&[7; 5000]),
        Some(b"\0"),
    ]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, -1, 127, -128]));
    table(&[("text", texts()), ("bytes", bytes), ("n", numbers)])
}

/// One set of settings for each transform, over [`sample`].
const SAMPLE_SETTINGS: &[(&str, &str, u32, &str)] = &[
    ("select", r#"{"columns": ["n", "text"], "rename": {"number": "n"}}"#, 1, "8ebc9fa967029ab8"),
    ("cast", r#"{"types": {"n": "float16"}}"#, 1, "33b10c6c34a4c918"),
    ("text_stats", r#"{"input": "text"}"#, 1, "b6b82712dea8862c"),
    ("byte_histogram", r#"{"input": "bytes"}"#, 1, "d3a2fe4955a455d0"),
];

fn sample_settings() -> impl Iterator<Item = (&'static str, Value)> {
    SAMPLE_SETTINGS.iter().map(|(kind, json, ..)| (*kind, serde_json::from_str(json).unwrap()))
}

/// A digest of a table's names, types and values.
fn digest(rows: &RecordBatch) -> String {
    let mut hasher = blake3::Hasher::new();
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        hasher.update(format!("{} {}\n", field.name(), field.data_type()).as_bytes());
        let options = FormatOptions::new().with_null("∅");
        let values = ArrayFormatter::try_new(column, &options).unwrap();
        for row in 0..rows.num_rows() {
            hasher.update(format!("{}\n", values.value(row)).as_bytes());
        }
    }
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}

#[test]
fn every_transform_has_a_sample() {
    // What hooks compute is theirs; what is done with it is tested with processes.
    let built_in =
        TRANSFORMS.iter().map(|t| t.name).filter(|name| !["command", "python"].contains(name));
    let mut names: Vec<_> = built_in.collect();
    let mut with_sample: Vec<_> = SAMPLE_SETTINGS.iter().map(|s| s.0).collect();
    names.sort_unstable();
    with_sample.sort_unstable();
    assert_eq!(with_sample, names);
}

/// When this fails because a value changed, bump the transform's version and note both here.
#[test]
fn values_change_with_a_new_version_only() {
    for ((kind, settings), (_, _, version, golden)) in sample_settings().zip(SAMPLE_SETTINGS) {
        let got =
            (transform_type(kind).unwrap().version, digest(&apply(kind, &settings, &sample())));
        assert_eq!(got, (*version, (*golden).to_owned()), "{kind}");
    }
}

#[test]
fn batch_boundaries_do_not_show() {
    let all = sample();
    for (kind, settings) in sample_settings() {
        let want = apply(kind, &settings, &all);
        for size in 1..all.num_rows() {
            for batch_bytes in [1, 2000, 1 << 20] {
                let mut parts = Vec::new();
                for start in (0..all.num_rows()).step_by(size) {
                    let rows = all.slice(start, size.min(all.num_rows() - start));
                    let got = pieces(kind, &settings, batch(rows, start as u64), batch_bytes);
                    for piece in got {
                        let first = piece.provenance.position(0).unwrap();
                        let n_before: usize = parts.iter().map(RecordBatch::num_rows).sum();
                        assert_eq!((first.input, first.source_row), (3, n_before as u64), "{kind}");
                        assert_eq!(piece.provenance.n_rows(), piece.rows.num_rows() as u64);
                        parts.push(piece.rows);
                    }
                }
                assert_eq!(concat_batches(&want.schema(), &parts).unwrap(), want, "{kind} {size}");
            }
        }
    }
}

#[test]
fn the_announced_schema_is_the_one_that_comes() {
    for (kind, settings) in sample_settings() {
        let announced = transform(kind, &settings).output(&sample().schema()).unwrap();
        for rows in [sample(), sample().slice(0, 0)] {
            let pieces = pieces(kind, &settings, batch(rows, 0), 1 << 20);
            assert!(!pieces.is_empty(), "{kind}: events of an empty batch would be lost");
            for piece in pieces {
                assert_eq!(piece.rows.schema(), announced, "{kind}");
            }
        }
    }
}

#[test]
fn events_keep_their_places_in_pieces() {
    let event = |before_row, source_row| Event {
        before_row,
        input: 3,
        source_row,
        path: Vec::new(),
        stage: 1,
        outcome: Outcome::Dropped,
    };
    for (kind, settings) in sample_settings() {
        let mut batch = batch(sample(), 0);
        batch.events = vec![event(0, 90), event(2, 91), event(2, 92), event(5, 93)];
        let mut n_rows = 0;
        let mut seen = Vec::new();
        for piece in pieces(kind, &settings, batch, 1) {
            let events = piece.events.iter().map(|e| (n_rows + e.before_row, e.source_row));
            seen.extend(events);
            n_rows += piece.rows.num_rows() as u64;
        }
        assert_eq!(seen, [(0, 90), (2, 91), (2, 92), (5, 93)], "{kind}");
    }
}

#[test]
fn what_grows_leaves_in_pieces_of_about_batch_bytes() {
    let values: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..4096).map(|i| i.to_string())));
    let rows = table(&[("text", values)]);
    let settings = json!({"input": "text"});
    let pieces = pieces("byte_histogram", &settings, batch(rows, 0), 64 << 10);
    for piece in &pieces {
        let histogram = piece.rows.column(1).as_fixed_size_list();
        assert!(histogram.values().len() * 4 <= 64 << 10, "{}", piece.rows.num_rows());
    }
    assert_eq!(pieces.iter().map(|p| p.rows.num_rows()).sum::<usize>(), 4096);
}

#[test]
fn a_stopped_run_ends_a_transform() {
    struct Closed;
    impl Emit for Closed {
        fn emit(&mut self, _: Batch) -> Result<(), Stopped> {
            Err(Stopped)
        }
        fn batch_bytes(&self) -> usize {
            1
        }
        fn number(&mut self, _: Position, _: u64) -> Result<u64, Stopped> {
            Err(Stopped)
        }
    }
    for (kind, settings) in sample_settings() {
        let ended = transform(kind, &settings).apply(STAGE, batch(sample(), 0), &mut Closed);
        assert!(matches!(ended, Err(TransformError::Stopped(Stopped))), "{kind}");
    }
}

#[test]
fn select_keeps_the_order_given_and_renames() {
    for (settings, want) in [
        (json!({"columns": ["n", "text"]}), vec!["n", "text"]),
        (json!({"columns": ["n", "text"], "rename": {"t": "text"}}), vec!["n", "t"]),
        (json!({"rename": {"text": "bytes", "bytes": "text"}}), vec!["bytes", "text", "n"]),
        (json!({}), vec!["text", "bytes", "n"]),
    ] {
        let rows = apply("select", &settings, &sample());
        let names: Vec<_> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, want, "{settings}");
    }
    let rows = apply("select", &json!({"columns": ["n"], "rename": {"m": "n"}}), &sample());
    assert_eq!(rows.column(0).as_primitive::<Int64Type>().values(), &[1, 0, -1, 127, -128]);
}

/// The column `v` cast to `kind`, as texts, or the error.
fn cast(values: ArrayRef, kind: &str) -> Result<Vec<String>, TransformError> {
    let rows = table(&[("v", values)]);
    let mut kept = Kept { batches: Vec::new(), batch_bytes: 1 << 20 };
    let transform = transform("cast", &json!({"types": {"v": kind}}));
    transform.apply(STAGE, batch(rows, 40), &mut kept)?;
    let column = kept.batches[0].rows.column(0);
    let options = FormatOptions::new().with_null("∅");
    let shown = ArrayFormatter::try_new(column, &options).unwrap();
    Ok((0..column.len()).map(|i| shown.value(i).to_string()).collect())
}

#[test]
fn values_are_cast_exactly_or_to_the_nearest() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(0)]));
    let large: ArrayRef = Arc::new(Int64Array::from(vec![(1 << 53) + 1]));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0, -3.0, 1e300]));
    let short: ArrayRef = Arc::new(Float32Array::from(vec![0.1, f32::NAN, f32::INFINITY]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![" 12", "1e2", "-.5", "true"]));
    let bools: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
    for (values, kind, want) in [
        (&ints, "int8", vec!["1", "∅", "0"]),
        (&ints, "bool", vec!["true", "∅", "false"]),
        (&ints, "utf8", vec!["1", "∅", "0"]),
        (&large, "float64", vec!["9007199254740992.0"]),
        (&floats.slice(0, 2), "int16", vec!["1", "-3"]),
        (&floats, "utf8", vec!["1.0", "-3.0", "1e300"]),
        (&short, "float64", vec!["0.10000000149011612", "NaN", "inf"]),
        (&short, "utf8", vec!["0.1", "NaN", "inf"]),
        (&short.slice(0, 1), "float16", vec!["0.099975586"]),
        (&texts.slice(0, 3), "float32", vec!["12.0", "100.0", "-0.5"]),
        (&texts.slice(0, 1), "uint8", vec!["12"]),
        (&texts.slice(3, 1), "bool", vec!["true"]),
        (&bools, "uint8", vec!["1", "∅", "0"]),
        (&bools, "utf8", vec!["true", "∅", "false"]),
    ] {
        assert_eq!(cast(Arc::clone(values), kind).unwrap(), want, "{kind}");
    }
}

#[test]
fn a_value_that_does_not_fit_is_named() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(300)]));
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 1.5]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["7", "seven"]));
    for (values, kind, row, message) in [
        (&ints, "uint8", 42, "300 does not fit into uint8"),
        (&ints, "bool", 42, "300 does not fit into bool"),
        (&floats, "int64", 41, "1.5 has a fraction, which int64 cannot hold"),
        (&texts, "int64", 41, "`seven` is no int64"),
    ] {
        let error = cast(Arc::clone(values), kind).unwrap_err();
        let want = format!("input 3, source row {row}, field `v`: {message}");
        assert_eq!(error.to_string(), want);
        assert!(error.hint().is_some());
    }
}

#[test]
fn under_quarantine_a_value_that_does_not_fit_costs_its_row_alone() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 300, 2, 300, 3, -1]));
    let b: ArrayRef = Arc::new(LargeStringArray::from(vec!["1", "x", "y", "4", "5", "6"]));
    let rows = table(&[("a", a), ("b", b)]);
    let cast = transform("cast", &json!({"types": {"a": "uint8", "b": "int32"}}));
    let dropped = Event {
        before_row: 3,
        input: 3,
        source_row: 42,
        path: Vec::new(),
        stage: 0,
        outcome: Outcome::Dropped,
    };
    for batch_bytes in [1, 30, 1 << 20] {
        let mut kept = Kept { batches: Vec::new(), batch_bytes };
        let stage = Stage { index: 2, on_error: OnError::Quarantine };
        let batch = Batch { events: vec![dropped.clone()], ..batch(rows.clone(), 40) };
        cast.apply(stage, batch, &mut kept).unwrap();
        let schema = kept.batches[0].rows.schema();
        let left = concat_batches(&schema, kept.batches.iter().map(|b| &b.rows)).unwrap();
        let column = |i: usize| ArrayFormatter::try_new(left.column(i), &FormatOptions::new());
        let shown = |i: usize| -> Vec<String> {
            let column = column(i).unwrap();
            (0..left.num_rows()).map(|row| column.value(row).to_string()).collect()
        };
        assert_eq!(
            (shown(0), shown(1)),
            (vec!["1".into(), "3".into()], vec!["1".into(), "5".into()])
        );
        let mut events = Vec::new();
        let mut n_rows = 0;
        for batch in kept.batches {
            for event in batch.events {
                let at = event.before_row + n_rows;
                let said = match event.outcome {
                    Outcome::Rejected { code, message } => format!("{code} {message}"),
                    other => format!("{other:?}"),
                };
                events.push(format!("{at} {} {} {said}", event.source_row, event.stage));
            }
            n_rows += batch.provenance.n_rows();
        }
        let want = [
            "1 41 2 value_misfit field `a`: 300 does not fit into uint8",
            "1 42 2 value_misfit field `b`: `y` is no int32",
            "1 42 0 Dropped",
            "1 43 2 value_misfit field `a`: 300 does not fit into uint8",
            "2 45 2 value_misfit field `a`: -1 does not fit into uint8",
        ];
        assert_eq!(events, want, "{batch_bytes}");
    }
}

#[test]
fn lines_characters_and_words_are_counted() {
    let rows = apply("text_stats", &json!({"input": "text", "prefix": "n_"}), &sample());
    let column = |name: &str| {
        let column = rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
        column.iter().collect::<Vec<_>>()
    };
    assert_eq!(column("n_lines"), [Some(0), Some(1), Some(2), None, Some(5)]);
    assert_eq!(column("n_characters"), [Some(0), Some(8), Some(10), None, Some(15)]);
    assert_eq!(column("n_words"), [Some(0), Some(2), Some(2), None, Some(3)]);
}

#[test]
fn bytes_are_counted_relative_to_the_length() {
    let rows = apply("byte_histogram", &json!({"input": "bytes", "output": "h"}), &sample());
    let histogram = rows.column_by_name("h").unwrap().as_fixed_size_list();
    let row = |i: usize| histogram.value(i).as_primitive::<Float32Type>().values().to_vec();
    let want = |set: &[(usize, f32)]| {
        let mut want = vec![0.0; 256];
        for (byte, share) in set {
            want[*byte] = *share;
        }
        want
    };
    assert_eq!(row(0), want(&[]), "an empty value has zeros");
    assert_eq!(row(1), want(&[(97, 0.5), (98, 0.25), (255, 0.25)]));
    assert!(histogram.is_null(2));
    assert_eq!(row(3), want(&[(7, 1.0)]), "a long value");
    assert_eq!(row(4), want(&[(0, 1.0)]));
    assert_eq!(histogram.data_type().to_string(), rows.schema().field(3).data_type().to_string());

    let long: Vec<u8> = (0..=255_u8).cycle().take(256 * 40).chain([9; 3]).collect();
    let rows = table(&[("b", Arc::new(LargeBinaryArray::from_vec(vec![&long])))]);
    let rows = apply("byte_histogram", &json!({"input": "b"}), &rows);
    let shares = rows.column(1).as_fixed_size_list().value(0);
    let shares = shares.as_primitive::<Float32Type>();
    #[expect(clippy::cast_possible_truncation, reason = "the result is float32")]
    let share = |n: f64| (n / 10243.0) as f32;
    assert_eq!((shares.value(8), shares.value(9)), (share(40.0), share(43.0)));
}

#[test]
fn settings_that_do_not_fit_the_columns_are_refused() {
    let near = Some("did you mean `text`?");
    for (kind, settings, at, message, hint) in [
        ("select", json!({"columns": ["txt"]}), "columns", "no column `txt`", near),
        ("select", json!({"columns": ["n", "n"]}), "columns", "two columns `n`", None),
        ("select", json!({"rename": {"n": "text"}}), "rename", "two columns `n`", None),
        ("select", json!({"rename": {"a": "n", "b": "n"}}), "rename", "given two names", None),
        ("select", json!({"columns": [], "rename": {}}), "columns", "no column is kept", None),
        (
            "select",
            json!({"columns": ["n"], "rename": {"t": "text"}}),
            "rename",
            "renamed but not kept",
            None,
        ),
        ("text_stats", json!({"input": "tex"}), "input", "no column `tex`", near),
        ("byte_histogram", json!({"input": "n"}), "input", "neither text nor binary", None),
        (
            "byte_histogram",
            json!({"input": "text", "output": "n"}),
            "output",
            "already a column `n`",
            Some("choose another `output`"),
        ),
        ("cast", json!({"types": {"txt": "int8"}}), "types", "no column `txt`", near),
        ("cast", json!({"types": {"n": "int7"}}), "types", "unknown variant `int7`", None),
        ("text_stats", json!({"input": "text", "no": 1}), "no", "no setting `no`", None),
    ] {
        let refused = refusal(kind, &settings, &sample());
        assert_eq!(refused.at, [at], "{kind} {settings}");
        assert!(refused.message.contains(message), "{kind} {settings}: {refused}");
        if hint.is_some() {
            assert_eq!(refused.hint.as_deref(), hint, "{kind} {settings}");
        }
    }
    let refused = refusal("text_stats", &json!({"input": "n"}), &sample());
    assert!(refused.message.contains("not text"), "{refused}");
    assert_eq!(sample().schema().field(2).data_type(), &DataType::Int64);
}
