//! Columns of every kind that a hook may declare: what it answers is what the sealed dataset holds.

use serde_json::{Value, json};

use crate::command::{Place, joined};
use crate::hook::{can_run, rejects, rows};

const DEFINITION: &str = r#"version = 1
name = "hooked"

[sources.a]
type = "jsonl"
path = "a.jsonl"

[transforms.features]
type = "command"
command = ["python3", "kinds.py"]
id = "kinds-v1"
batch_rows = 3
on_error = "quarantine"
OUTPUT

[dataset]
max_row_bytes = "64KiB"
FIELDS
"#;

/// Answers with the one column that the test is about, and more where these are needed.
const HOOK: &str = r#"
import sys
import numpy as np
import pyarrow as pa

reader = pa.ipc.open_stream(sys.stdin.buffer)
writer = None
for batch in reader:
    ns = batch.column("n").to_pylist()
    answer = pa.record_batch({COLUMNS})
    writer = writer or pa.ipc.new_stream(sys.stdout.buffer, answer.schema)
    writer.write_batch(answer)
    sys.stdout.buffer.flush()
"#;

fn place(columns: &str, output: &str, fields: &str) -> Place {
    let place = Place::new();
    place.write("a.jsonl", joined((0..7).map(|n| format!("{{\"n\": {n}}}\n"))));
    place.write("kinds.py", HOOK.replace("COLUMNS", columns));
    place.write("p.toml", DEFINITION.replace("OUTPUT", output).replace("FIELDS", fields));
    place
}

#[test]
fn what_a_hook_answers_is_what_the_dataset_holds() {
    if !can_run() {
        return;
    }
    for (name, column, output, at_4, at_5) in [
        (
            "fixed",
            "pa.array([[[n, 1.5]] * 3 for n in ns], pa.list_(pa.list_(pa.float32(), 2), 3))",
            "dtype = \"float32\", shape = [3, 2]",
            json!([[4.0, 1.5], [4.0, 1.5], [4.0, 1.5]]),
            json!([[5.0, 1.5], [5.0, 1.5], [5.0, 1.5]]),
        ),
        (
            "half",
            "pa.array(np.array(ns, np.float16) / 2, pa.float16())",
            "dtype = \"float16\"",
            json!(2.0),
            json!(2.5),
        ),
        (
            "nullable",
            "pa.array([None if n % 2 else n == 4 for n in ns], pa.bool_())",
            "dtype = \"bool\", nullable = true",
            json!(true),
            Value::Null,
        ),
        (
            "nullable fixed",
            "pa.array([None if n % 2 else [n, n] for n in ns], pa.list_(pa.int8(), 2))",
            "dtype = \"int8\", shape = [2], nullable = true",
            json!([4, 4]),
            Value::Null,
        ),
        (
            "ragged",
            "pa.array([[[i, n] for i in range(n - 3)] for n in ns], pa.list_(pa.list_(pa.uint16(), 2)))",
            "dtype = \"uint16\", shape = [2], kind = \"ragged\"",
            json!([[0, 4]]),
            json!([[0, 5], [1, 5]]),
        ),
        (
            "nullable ragged",
            "pa.array([None if n % 2 else [n] * 2 for n in ns], pa.large_list(pa.float64()))",
            "dtype = \"float64\", kind = \"ragged\", nullable = true",
            json!([4.0, 4.0]),
            Value::Null,
        ),
        (
            "text",
            "pa.array(['ä' * n for n in ns], pa.string())",
            "dtype = \"utf8\"",
            json!("ääää"),
            json!("äääää"),
        ),
        (
            "nullable text of another layout",
            "pa.array([None if n % 2 else 'long enough for a view ' + str(n) for n in ns], pa.string_view())",
            "dtype = \"utf8\", nullable = true",
            json!("long enough for a view 4"),
            Value::Null,
        ),
        (
            "json",
            "pa.array(['{\"b\": [%d, null], \"a\": \"ü\"}' % n for n in ns], pa.string())",
            "dtype = \"json\"",
            json!({"b": [4, null], "a": "ü"}),
            json!({"b": [5, null], "a": "ü"}),
        ),
        (
            "nullable json",
            "pa.array([None if n % 2 else '[true]' for n in ns], pa.large_string())",
            "dtype = \"json\", nullable = true",
            json!([true]),
            Value::Null,
        ),
    ] {
        let place = place(&format!("'x': {column}"), &format!("output.x = {{ {output} }}"), "");
        place.done(&["run", "p.toml"]);
        place.done(&["verify", place.current("data", "hooked").to_str().unwrap()]);
        assert_eq!(rejects(&place), [], "{name}");
        let rows = rows(&place);
        assert_eq!(rows.len(), 7, "{name}");
        for (n, want) in [(4, at_4), (5, at_5)] {
            let found = &rows[n]["x"];
            // Texts of JSON are shown as they are, or as what they say.
            let found = match found.as_str().filter(|_| want.is_object() || want.is_array()) {
                Some(text) => serde_json::from_str(text).unwrap(),
                None => found.clone(),
            };
            assert_eq!(found, want, "{name}: row {n}");
        }
    }
}

#[test]
fn json_that_is_none_is_a_fault_of_its_row() {
    if !can_run() {
        return;
    }
    let column = "'x': pa.array(['{' if n == 4 else '{}' for n in ns])";
    let place = place(column, "output.x = { dtype = \"json\" }", "on_error = \"quarantine\"");
    place.done(&["run", "p.toml"]);
    assert_eq!(rejects(&place), [("not_json".to_owned(), 4)]);
    assert_eq!(rows(&place).len(), 6);
}

const EDGES: &str = r#"
[transforms.features.output]
center = { dtype = "int32", kind = "ragged" }
dg = { dtype = "float32", shape = [2, 3], kind = "ragged" }
"#;
const AXIS: &str = r#"
[dataset.fields]
center = { axis = "edges" }
dg = { axis = "edges" }
"#;

/// Columns of `n` edges, and for `dg` some more in row 5.
fn edges(more: usize) -> String {
    let dg = "pa.array([[[[n, i, 0]] * 2 for i in range(n + (MORE if n == 5 else 0))] for n in ns], \
              pa.list_(pa.list_(pa.list_(pa.float32(), 3), 2)))";
    let center = "pa.array([list(range(n)) for n in ns], pa.list_(pa.int32()))";
    format!("'center': {center}, 'dg': {}", dg.replace("MORE", &more.to_string()))
}

#[test]
fn ragged_columns_share_an_axis() {
    if !can_run() {
        return;
    }
    let place = place(&edges(0), EDGES, AXIS);
    place.done(&["run", "p.toml"]);
    place.done(&["verify", place.current("data", "hooked").to_str().unwrap()]);
    let found = rows(&place);
    assert_eq!(found[2]["center"], json!([0, 1]));
    assert_eq!(
        found[2]["dg"],
        json!([[[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]], [[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]])
    );
    let shards = place.current("data", "hooked").join("shards");
    let shard = std::fs::read_dir(shards).unwrap().next().unwrap().unwrap().path();
    let bytes = |name: &str| std::fs::metadata(shard.join(name)).map(|file| file.len()).ok();
    assert_eq!(bytes("edges.offsets.bin"), Some(8 * 8));
    assert_eq!(bytes("center.bin"), Some(4 * 21));
    assert_eq!(bytes("dg.bin"), Some(4 * 6 * 21));
    assert_eq!(bytes("center.offsets.bin"), None);
}

#[test]
fn rows_that_have_not_as_many_entries_on_a_shared_axis_are_named() {
    if !can_run() {
        return;
    }
    let place = place(&edges(1), EDGES, AXIS);
    let ran = place.rowmill(&["run", "p.toml"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    println!("{}", ran.stderr);
    assert!(ran.stderr.contains("row 5"), "{}", ran.stderr);
    assert!(ran.stderr.contains("edges"), "{}", ran.stderr);
}
