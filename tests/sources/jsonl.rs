//! The `jsonl` source.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use proptest::prelude::*;
use rowmill::batch::{Outcome, Restart};
use rowmill::sources::{BatchLimits, OnError, SourceError, SourceSpec, source_type};
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::content::{gzip, zip, zstd};
use super::{folder, part_of, real_data, source};

const PLAIN: &[u8] = b"{\"id\": 1, \"name\": \"Ann\", \"at\": {\"x\": 1.5, \"y\": [1, 2]}}\n\
    {\"name\": \"B\\u00f6b\\n\", \"id\": -2, \"at\": null}\n\
    {\"id\": 3, \"tags\": [\"a\", {\"b\": 1e2}]}\n\
    {\"id\": 4, \"at\": {\"y\": []}, \"ok\": true}\n";
const ODD: &[u8] =
    b"\xef\xbb\xbf{\"a\": 1}\r\n\r\n \t\r\n\n{\"a\": null}\r\n{}\n  {\"b\" :\t\"\\\"x\\\"\"}  ";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let later = b"{\"at\": {\"y\": [3]}, \"id\": 5}\n{\"ok\": false}";
    for (name, files, settings) in [
        ("plain", vec![("a.jsonl", PLAIN)], json!({})),
        ("two files", vec![("a.jsonl", PLAIN), ("b.jsonl", later)], json!({})),
        ("odd", vec![("a.jsonl", ODD)], json!({"types": {"a": "uint8"}})),
        ("ignored", vec![("a.jsonl", PLAIN)], {
            json!({"infer_rows": 0, "extra": "ignore", "types": {"at.y": "list<float32>"}})
        }),
        ("gzip", vec![("a.jsonl.gz", &*gzip(PLAIN).leak())], json!({})),
        ("Zstandard", vec![("a.zst", &*zstd(PLAIN).leak())], json!({})),
        (
            "zip",
            vec![("a.zip", {
                &*zip(&[("a.jsonl", PLAIN)], ::zip::CompressionMethod::Deflated).leak()
            })],
            json!({}),
        ),
    ] {
        let root = folder(&files);
        cases.push(Case {
            name,
            source: source("jsonl", root.path(), &["*"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    if let Some(root) = real_data("gsm8k-jsonl") {
        let source = source("jsonl", &root, &["test.jsonl"], json!({}));
        cases.push(Case { name: "gsm8k", source, root, made: None });
    }
    cases
}

fn read_with(
    root: &Path,
    paths: &[&str],
    settings: &Value,
    limits: BatchLimits,
) -> Result<Reading, SourceError> {
    let source = source("jsonl", root, paths, settings.clone());
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, limits, &Restart::default())
}

fn read_all(bytes: &[u8], settings: &Value) -> Result<RecordBatch, SourceError> {
    let root = folder(&[("x.jsonl", bytes)]);
    Ok(read_with(root.path(), &["x.jsonl"], settings, LIMITS)?.rows)
}

/// The rows as texts, null as `∅`.
fn shown(rows: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::new().with_null("∅");
    let columns: Vec<_> =
        rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..rows.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect()).collect()
}

#[test]
fn keys_become_columns_and_what_is_missing_is_null() {
    let rows = read_all(PLAIN, &json!({})).unwrap();
    let names: Vec<_> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["id", "name", "at", "tags", "ok"]);
    let want = [
        ["1", "Ann", "{x: 1.5, y: [1, 2]}", "∅", "∅"],
        ["-2", "Böb\n", "∅", "∅", "∅"],
        ["3", "∅", "∅", "[\"a\", {\"b\": 1e2}]", "∅"],
        ["4", "∅", "{x: ∅, y: []}", "∅", "true"],
    ];
    assert_eq!(shown(&rows), want);
    let tags = rows.schema().field(3).clone();
    assert_eq!(tags.metadata()["ARROW:extension:name"], "arrow.json");
}

#[test]
fn byte_order_marks_blank_lines_and_carriage_returns_are_skipped() {
    let rows = read_all(ODD, &json!({})).unwrap();
    assert_eq!(shown(&rows), [["1", "∅"], ["∅", "∅"], ["∅", "∅"], ["∅", "\"x\""]]);
}

#[test]
fn numbers_are_exact() {
    let line = br#"{"i": 9007199254740993, "u": 18446744073709551615, "f": 0.1, "g": 1.7976931348623157e308, "s": 16777217.0000000001, "w": 1e3}"#;
    let types = json!({"types": {"u": "uint64", "s": "float32", "w": "int16"}});
    let rows = read_all(line, &types).unwrap();
    let column = |name: &str| rows.column_by_name(name).unwrap();
    assert_eq!(column("i").as_primitive::<Int64Type>().value(0), 9_007_199_254_740_993);
    assert_eq!(column("u").as_primitive::<UInt64Type>().value(0), u64::MAX);
    assert_eq!(column("f").as_primitive::<Float64Type>().value(0).to_bits(), 0.1_f64.to_bits());
    let largest = column("g").as_primitive::<Float64Type>().value(0);
    assert_eq!(largest.to_bits(), f64::MAX.to_bits());
    // By way of float64 it would be rounded to an even half first, and down then.
    let single = column("s").as_primitive::<Float32Type>().value(0);
    assert_eq!(single.to_bits(), 16_777_218_f32.to_bits());
    assert_eq!(shown(&rows)[0][5], "1000");
}

#[test]
fn floats_of_any_size_fit_columns_of_floats() {
    let line =
        br#"{"s": 1e30, "t": -9007199254740993.5, "u": 12345678901234567890123, "d": 1e300}"#;
    let types = json!({"types": {"s": "float32", "t": "float32", "u": "float32", "d": "float64"}});
    let rows = read_all(line, &types).unwrap();
    let single = |i: usize| rows.column(i).as_primitive::<Float32Type>().value(0).to_bits();
    assert_eq!(single(0), 1e30_f32.to_bits());
    assert_eq!(single(1), (-9_007_199_254_740_993.5_f32).to_bits());
    assert_eq!(single(2), 12_345_678_901_234_567_890_123_f32.to_bits());
    let double = rows.column(3).as_primitive::<Float64Type>().value(0);
    assert_eq!(double.to_bits(), 1e300_f64.to_bits());
}

#[test]
fn an_object_with_keys_without_end_is_refused_or_kept_as_json() {
    let keys: Vec<String> = (0..70_000).map(|i| format!("\"k{i}\": 1")).collect();
    let wide = format!("{{{}}}", keys.join(", "));
    let error = read_all(wide.as_bytes(), &json!({})).unwrap_err();
    assert_eq!(error.to_string(), "`x.jsonl`, columns: more than 65536 keys");
    assert!(error.hint().is_some());
    let nested = format!("{{\"a\": {wide}}}\n{{\"a\": {{\"b\": 1}}}}");
    let rows = read_all(nested.as_bytes(), &json!({})).unwrap();
    assert_eq!(shown(&rows)[1], ["{\"b\": 1}"]);
}

#[test]
fn what_is_wrong_is_named_with_line_row_and_field() {
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    let deep_whole = format!("{{\"a\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let int8 = json!({"types": {"a": "int8", "v": "list<int8>", "o.f": "float32", "j": "json"}});
    for (line, want) in [
        (&br#"{"a": 300}"#[..], "field `a`: 300 does not fit into int8"),
        (br#"{"a": 1.5}"#, "field `a`: 1.5 has a fraction, which int8 cannot hold"),
        (br#"{"a": 9007199254740993.0}"#, "field `a`: 9007199254740992.0 does not fit into int8"),
        (br#"{"a": "1"}"#, "field `a`: `1` is no int8"),
        (br#"{"a": true}"#, "field `a`: `true` is no int8"),
        (br#"{"a": [1]}"#, "field `a`: a list is no int8"),
        (br#"{"a": {}}"#, "field `a`: an object is no int8"),
        (br#"{"v": [1, 2, 128]}"#, "field `v`: 128 does not fit into int8"),
        (br#"{"v": [1, null]}"#, "field `v`: null in a list is no number"),
        (br#"{"v": 1}"#, "field `v`: 1 is no list"),
        (br#"{"o": 1}"#, "field `o`: 1 is no object"),
        (br#"{"o": {"f": 1e39}}"#, "field `o.f`: a number is too large for a float"),
        (br#"{"o": {"f": "x"}}"#, "field `o.f`: the value is no float32"),
        (br#"{"a": 1e400}"#, "field `a`: a number is too large for a float"),
        (br#"{"o": {"g": 1}}"#, "field `o`: no column is called `g`"),
        (br#"{"b": 1}"#, "no column is called `b`"),
        (br#"{"a": 1, "a": 1}"#, "the key `a` stands twice in an object"),
        (br#"{"j": [{"x": 1, "\u0078": 2}]}"#, "field `j`: the key `x` stands twice in an object"),
        (br#"{"j": "\ud800"}"#, "field `j`: it is not JSON from column 8 on"),
        (br#"{"a": 1"#, "the JSON ends too early, at column 7"),
        (br#"{"a": 1} x"#, "it is not JSON from column 10 on"),
        (br#"{"a": 01}"#, "it is not JSON from column 8 on"),
        (br"{'a': 1}", "it is not JSON from column 2 on"),
        (br#"{"a": NaN}"#, "it is not JSON from column 7 on"),
        (b"{\"j\": \"\xff\"}", "byte 8 of the line is not UTF-8"),
        (br"[1]", "the line is no object"),
        (br"null", "the line is no object"),
        (deep.as_bytes(), "field `a`: a list is no int8"),
        (deep.replace('a', "j").leak().as_bytes(), "the JSON ends too early, at column 100006"),
        (deep_whole.replace('a', "j").leak().as_bytes(), "field `j`: nested more than 127 deep"),
    ] {
        let bytes = [b"{\"a\": 1}\n\n", line, b"\n{\"a\": 2}\n"].concat();
        let root = folder(&[("x.jsonl", &bytes)]);
        let mut settings = int8.clone();
        settings["infer_rows"] = 0.into();
        let name = String::from_utf8_lossy(&line[..line.len().min(60)]);
        let error = read_with(root.path(), &["*"], &settings, LIMITS).unwrap_err();
        let separator = if want.starts_with("field") { ", " } else { ": " };
        assert_eq!(
            error.to_string(),
            format!("`x.jsonl`, line 3, row 1{separator}{want}"),
            "{name}"
        );
        assert!(error.hint().is_some(), "{name}");
        // Under quarantine the rows around it stay, and it leaves a reject with the same words.
        let limits = BatchLimits { on_error: OnError::Quarantine, ..LIMITS };
        let source = source("jsonl", root.path(), &["*"], settings);
        let inputs = source.list().unwrap();
        let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
        let mut reader = source.open(&part, &schema, limits, &Restart::default()).unwrap();
        let batch = reader.next().unwrap().unwrap();
        assert!(reader.next().unwrap().is_none(), "{name}");
        let a = batch.rows.column_by_name("a").unwrap();
        let options = FormatOptions::new();
        let a = ArrayFormatter::try_new(a, &options).unwrap();
        assert_eq!((a.value(0).to_string(), a.value(1).to_string()), ("1".into(), "2".into()));
        let rows: Vec<_> =
            (0..2).map(|i| batch.provenance.position(i).unwrap().source_row).collect();
        assert_eq!((rows, batch.rows.num_rows()), (vec![0, 2], 2), "{name}");
        let [event] = &batch.events[..] else { panic!("{name}: {:?}", batch.events) };
        assert_eq!((event.before_row, event.source_row, event.stage), (1, 1, 0), "{name}");
        let Outcome::Rejected { message, code } = &event.outcome else { panic!("{name}") };
        assert_eq!(message, want, "{name}");
        assert!(code.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_')), "{code}");
    }
}

/// Half-read lists must not leak into the rows around a bad one.
/// Of many keys without a column it is known only at the end of their object that one stands twice, and
/// there may be one for each 16 bytes that a row may take.
#[test]
fn keys_without_a_column_are_compared_however_many_they_are() {
    let keys = |n: usize| (0..n).map(|i| format!("\"k{i}\": 1")).collect::<Vec<_>>().join(", ");
    let twice = "a key stands twice in an object of many";
    let many = "its objects have more keys than `max_row_bytes` allows";
    for (name, members, row_bytes, want) in [
        ("few", keys(100), 1 << 20, None),
        ("many", keys(10_000), 1 << 20, None),
        ("first again", keys(10_000) + ", \"\\u006b0\": 2", 1 << 20, Some(twice)),
        ("last again", keys(10_000) + ", \"k9999\": 2", 1 << 20, Some(twice)),
        ("as many as fit", keys(10_000), 160_000, None),
        ("one too many", keys(10_001), 160_000, Some(many)),
    ] {
        for (settings, line) in [
            (json!({"types": {"a": "json"}}), format!("{{\"a\": {{{members}}}}}")),
            (
                json!({"types": {"a": "int8"}, "extra": "ignore"}),
                format!("{{\"a\": 1, {members}}}"),
            ),
        ] {
            let root = folder(&[("x.jsonl", (line + "\n").as_bytes())]);
            let mut settings = settings;
            settings["infer_rows"] = 0.into();
            let limits = BatchLimits { row_bytes, ..LIMITS };
            match (read_with(root.path(), &["*"], &settings, limits), want) {
                (Ok(read), None) => assert_eq!(read.rows.num_rows(), 1, "{name}"),
                (Err(error), Some(want)) => {
                    assert!(error.to_string().contains(want), "{name}: {error}");
                    assert!(error.hint().is_some(), "{name}");
                }
                (got, want) => panic!("{name}: {:?} instead of {want:?}", got.err()),
            }
        }
    }
}

#[test]
fn a_bad_row_leaves_nothing_behind() {
    let types = json!({"types": {"v": "list<list<int8>>", "o.w": "list<int8>", "o.t": "utf8", "z": "int8"}, "infer_rows": 0});
    let good = |n: u8| {
        format!(
            "{{\"v\": [[{n}], [], [{n}, {n}]], \"o\": {{\"w\": [{n}], \"t\": \"t{n}\"}}, \"z\": {n}}}\n"
        )
    };
    let bad = [
        "{\"v\": [[7], [7, 700]], \"z\": 7}\n",
        "{\"v\": [[7], [7, 7]], \"o\": {\"w\": [7, \"x\"], \"t\": \"seven\"}}\n",
        "{\"z\": 7, \"o\": {\"t\": \"seven\", \"w\": [7]}, \"v\": [[7], [7], 7]}\n",
        "{\"z\": 7, \"o\": {\"t\": \"seven\", \"w\": [7]}, \"v\": [[7, 7\n",
        "{\"z\": 7} trailing\n",
    ];
    let text: String = (0..6).map(|n| good(n) + bad.get(usize::from(n)).unwrap_or(&"")).collect();
    let want: String = (0..6).map(good).collect();
    let root = folder(&[("bad.jsonl", text.as_bytes()), ("good.jsonl", want.as_bytes())]);
    let want = read_with(root.path(), &["good.jsonl"], &types, LIMITS).unwrap().rows;
    for rows in [1, 2, 3, 100] {
        let limits = BatchLimits { on_error: OnError::Quarantine, rows, ..LIMITS };
        let source = source("jsonl", root.path(), &["bad.jsonl"], types.clone());
        let inputs = source.list().unwrap();
        let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
        let mut starts = vec![(Restart::default(), 0)];
        let mut at = 0;
        // From the start, and from where each batch begins.
        while let Some((restart, n_before)) = starts.get(at).cloned() {
            let mut reader = source.open(&part, &schema, limits, &restart).unwrap();
            let (mut batches, mut n_rejects, mut n_rows) = (Vec::new(), 0, n_before);
            while let Some(batch) = reader.next().unwrap() {
                if at == 0 {
                    starts.push((batch.restart.clone(), n_rows));
                }
                n_rows += batch.rows.num_rows();
                n_rejects += batch.events.len();
                batches.push(batch.rows);
            }
            let got = arrow_select::concat::concat_batches(&schema, &batches).unwrap();
            assert_eq!(got, want.slice(n_before, 6 - n_before), "{rows} from {restart:?}");
            assert!(at > 0 || n_rejects == 5, "{n_rejects}");
            at += 1;
        }
    }
}

#[test]
fn an_input_that_is_damaged_is_one_reject_and_the_next_is_read() {
    let line = |n| format!("{{\"id\": {n}, \"t\": \"{}\"}}\n", n * n);
    let lines = (0..4000).map(line).collect::<Vec<_>>().concat();
    let whole = gzip(lines.as_bytes());
    let last = gzip(b"{\"id\": -1}\n");
    let cut = &whole[..whole.len() / 2];
    let root = folder(&[("a.gz", cut), ("b.gz", b"no gzip"), ("c.gz", &last)]);
    let settings = json!({"types": {"id": "int64", "t": "utf8"}, "infer_rows": 0});
    let source = source("jsonl", root.path(), &["*.gz"], settings);
    let inputs = source.list().unwrap();
    let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
    let limits = BatchLimits { on_error: OnError::Quarantine, rows: 100, ..LIMITS };
    let events_from = |restart: &Restart| {
        let mut reader = source.open(&part, &schema, limits, restart).unwrap();
        let (mut events, mut restarts, mut n_rows) = (Vec::new(), Vec::new(), 0);
        while let Some(batch) = reader.next().unwrap() {
            n_rows += batch.rows.num_rows() as u64;
            events.extend(batch.events.into_iter().map(|e| (e.input, e.source_row, e.outcome)));
            restarts.push(batch.restart);
        }
        assert_eq!(reader.digests().unwrap(), source.digests(&part).unwrap());
        (events, restarts, n_rows)
    };
    let (events, restarts, n_rows) = events_from(&Restart::default());
    let [(0, first, Outcome::Rejected { code, .. }), (1, 0, _)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((code.as_str(), n_rows), ("input_damaged", first + 1));
    for restart in restarts {
        let (again, ..) = events_from(&restart);
        let want =
            if restart.input == 0 { &events[..] } else { &events[events.len() - again.len()..] };
        assert_eq!(again, want, "{restart:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_refused_without_being_held() {
    let mut bytes = b"{\"a\": 1}\n{\"a\": \"".to_vec();
    bytes.extend(std::iter::repeat_n(b'x', 4 << 20));
    bytes.extend_from_slice(b"\"}\n{\"a\": 3}\n");
    let root = folder(&[("x.jsonl", &bytes)]);
    let settings = json!({"types": {"a": "int8"}, "infer_rows": 0});
    let limits = BatchLimits { row_bytes: 1000, ..LIMITS };
    let error = read_with(root.path(), &["*"], &settings, limits).unwrap_err();
    let want = "`x.jsonl`, line 2, row 1: the line is longer than `max_row_bytes` allows";
    assert_eq!(error.to_string(), want);
    let limits = BatchLimits { on_error: OnError::Quarantine, ..limits };
    let rows = read_with(root.path(), &["*"], &settings, limits).unwrap().rows;
    assert_eq!(shown(&rows), [["1"], ["3"]]);
}

#[test]
fn values_may_be_as_large_as_the_limit() {
    let settings = json!({"types": {"v": "list<int64>"}, "infer_rows": 0});
    let line = format!("{{\"v\": [{}]}}", vec!["1"; 99].join(","));
    let root = folder(&[("x.jsonl", line.as_bytes())]);
    for (row_bytes, fits) in [(800, true), (799, false)] {
        let limits = BatchLimits { row_bytes, ..LIMITS };
        assert_eq!(read_with(root.path(), &["*"], &settings, limits).is_ok(), fits, "{row_bytes}");
    }
}

#[test]
fn unknown_keys_are_ignored_if_so_said() {
    let lines = b"{\"a\": 1}\n{\"b\": [{\"a\": 2}], \"a\": 2}\n";
    let settings = json!({"infer_rows": 1});
    let error = read_all(lines, &settings).unwrap_err();
    assert_eq!(error.to_string(), "`x.jsonl`, line 2, row 1: no column is called `b`");
    assert!(error.hint().unwrap().contains("extra = \"ignore\""), "{:?}", error.hint());
    let settings = json!({"infer_rows": 1, "extra": "ignore"});
    assert_eq!(shown(&read_all(lines, &settings).unwrap()), [["1"], ["2"]]);
    for (line, want) in [
        ("{\"b\": 1, \"b\": 2}", "the key `b` stands twice"),
        ("{\"b\": {\"x\": 1, \"x\": 1}}", "the key `x` stands twice"),
        ("{\"b\": [1,]}", "it is not JSON"),
    ] {
        let error = read_all(&[b"{\"a\": 1}\n", line.as_bytes()].concat(), &settings).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn columns_that_cannot_be_are_refused_when_the_build_is_planned() {
    let long = format!("{{\"a\": \"{}\"}}\n{{\"a\": \"\"}}\n", "x".repeat(16 << 20));
    for (bytes, settings, want) in [
        (&b""[..], json!({}), "columns: no line has a key to infer columns from"),
        (
            long.as_bytes(),
            json!({}),
            "columns: no line ends within the 16 MiB that columns are inferred from",
        ),
        (b"{}\n", json!({}), "columns: no line has a key to infer columns from"),
        (b"{\"a\": {\"b\": 1}, \"a.b\": 2}", json!({}), "columns: two keys make a field `a.b`"),
        (
            b"{\"a\": 1}",
            json!({"types": {"a.b": "int8"}}),
            "columns: `types` names `a.b`, but `a` holds no objects",
        ),
        (b"{\"a\": 1}\n[]\n", json!({}), "line 2, row 1: the line is no object"),
        (
            b"\n{\"a\": 1, \"a\": 2}\n",
            json!({}),
            "line 2, row 0: the key `a` stands twice in an object",
        ),
    ] {
        let error = read_all(bytes, &settings).unwrap_err();
        assert_eq!(error.to_string(), format!("`x.jsonl`, {want}"));
        assert!(error.hint().is_some(), "{want}");
    }
    for (settings, at) in [
        (json!({"types": {"a": "int65"}}), "types"),
        (json!({"types": {"a": "list<utf8>"}}), "types"),
        (json!({"extra": "drop"}), "extra"),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: settings.clone(),
        };
        let refused = (source_type("jsonl").unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, [at], "{settings}");
    }
}

/// Files of the suite that this source treats otherwise, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("y_object_duplicated_key.json", "a key may not stand twice"),
    ("y_object_duplicated_key_and_value.json", "a key may not stand twice"),
];

#[test]
fn the_json_test_suite_is_judged_as_it_says() {
    let Some(root) = real_data("json-test-suite") else {
        eprintln!("SKIPPED: ROWMILL_TEST_DATA is not set");
        return;
    };
    let settings = json!({"types": {"x": "json"}, "infer_rows": 0});
    let (mut n_accepted, mut n_refused, mut n_either) = (0, 0, 0);
    let all = source("files", &root, &["**/*.json"], json!({})).list().unwrap();
    for input in all {
        let content = std::fs::read(root.join(&input.path)).unwrap();
        let name = input.path.rsplit('/').next().unwrap();
        if content.contains(&b'\n') && content.trim_ascii_end().contains(&b'\n') {
            continue;
        }
        let line = [b"{\"x\": ", content.trim_ascii_end(), b"}"].concat();
        let read = read_all(&line, &settings);
        let is_exception = EXCEPTIONS.iter().any(|(file, _)| *file == name);
        match (&name[..2], &read) {
            (_, Err(SourceError::Row { .. })) if is_exception => n_refused += 1,
            ("y_", Ok(rows)) => {
                let text = rows.column(0).as_string::<i64>();
                let want: Value = serde_json::from_slice(&content).unwrap();
                let got = if text.is_null(0) { "null" } else { text.value(0) };
                assert_eq!(serde_json::from_str::<Value>(got).unwrap(), want, "{name}");
                n_accepted += 1;
            }
            ("n_", Err(SourceError::Row { .. })) => n_refused += 1,
            ("i_", Ok(_) | Err(SourceError::Row { .. })) => n_either += 1,
            (start, read) if !["y_", "n_", "i_"].contains(&start) => {
                assert!(matches!(read, Ok(_) | Err(SourceError::Row { .. })), "{name}: {read:?}");
            }
            (_, read) => panic!("{name}: {read:?}"),
        }
    }
    assert!(
        n_accepted >= 80 && n_refused >= 150 && n_either >= 30,
        "{n_accepted} {n_refused} {n_either}"
    );
}

fn any_line() -> impl Strategy<Value = String> {
    let text = proptest::string::string_regex("[ -~é\u{1f980}]{0,12}").unwrap();
    let id = proptest::option::of(any::<i64>());
    let values = proptest::option::of(proptest::collection::vec(any::<f64>(), 0..5));
    let blank = prop_oneof![Just(""), Just("\n"), Just("\r\n \t\n")];
    (id, proptest::option::of(text), values, blank, any::<bool>()).prop_map(
        |(id, text, values, blank, is_crlf)| {
            let finite =
                values.map(|v| v.into_iter().filter(|v| v.is_finite()).collect::<Vec<_>>());
            let line = json!({"id": id, "o": {"t": text, "v": finite}});
            format!("{line}{}{blank}", if is_crlf { "\r\n" } else { "\n" })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What is read from a restart is what is read from the start and skipped; values come back.
    #[test]
    fn reading_from_a_restart_skips_what_is_before(
        lines in proptest::collection::vec(any_line(), 1..20),
        rows in 1_usize..6,
        bytes in 1_usize..600,
    ) {
        let text: String = lines.concat();
        let root = folder(&[("x.jsonl", text.as_bytes())]);
        let settings = json!({"types": {"id": "int64", "o.t": "utf8", "o.v": "list<float64>"}});
        let source = source("jsonl", root.path(), &["x.jsonl"], settings);
        let inputs = source.list().unwrap();
        let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
        let limits = BatchLimits { rows, bytes, ..LIMITS };
        let all = read(&*source, &part, &schema, limits, &Restart::default()).unwrap();
        prop_assert_eq!(all.rows.num_rows(), lines.len());
        let ids = all.rows.column_by_name("id").unwrap().as_primitive::<Int64Type>().clone();
        let inner = all.rows.column_by_name("o").unwrap().as_struct().clone();
        let values = inner.column_by_name("v").unwrap().as_list::<i64>().clone();
        for (row, line) in lines.iter().enumerate() {
            let want: Value = serde_json::from_str(line).unwrap();
            let id = (!ids.is_null(row)).then(|| ids.value(row));
            prop_assert_eq!(json!(id), want["id"].clone());
            let got = (!values.is_null(row)).then(|| {
                values.value(row).as_primitive::<Float64Type>().values().to_vec()
            });
            prop_assert_eq!(json!(got), want["o"]["v"].clone());
        }
        for (row, restart) in &all.restarts {
            let rest = read(&*source, &part, &schema, LIMITS, restart).unwrap();
            prop_assert_eq!(&rest.rows, &all.rows.slice(*row, lines.len() - row));
            prop_assert_eq!(&rest.positions[..], &all.positions[*row..]);
        }
    }
}
