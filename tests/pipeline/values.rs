//! The `files` source and the transforms, end to end, by value.

use rowmill::dataset::Dataset;
use serde_json::{Value, json};

use crate::command::Place;

fn definition(source: &str, rest: &str) -> String {
    format!(
        "version = 1\nname = \"d\"\n[sources.s]\n{source}\n{rest}\n[dataset]\nmax_row_bytes = \"64KiB\"\n"
    )
}

/// All rows, as `inspect` shows them.
fn rows(place: &Place) -> Vec<Value> {
    let n = place.json(&["run", "p.toml"])["rows"].as_u64().unwrap();
    let row = |i: u64| place.json(&["inspect", "p.toml", "--row", &i.to_string()]);
    (0..n).map(|i| row(i)["values"].clone()).collect()
}

#[test]
fn files_as_bytes_hold_the_bytes() {
    let place = Place::new();
    place.write(
        "p.toml",
        definition("type = \"files\"\nroot = \"in\"\npath = [\"*\", \"b/*.bin\"]", ""),
    );
    let contents: [(&str, &[u8]); 4] =
        [("a", b"\x00\xff\xfe"), ("b/one.bin", b""), ("b/two.bin", &[7; 3000]), ("z.tar.gz", b"z")];
    for (path, bytes) in contents {
        place.write(&format!("in/{path}"), bytes);
    }
    place.write("in/b/skipped", "");
    place.done(&["run", "p.toml"]);
    let dataset = Dataset::open(place.path("data/d")).unwrap();
    let shard = dataset.shard(0).unwrap();
    for (row, (path, bytes)) in (0_u64..).zip(contents) {
        assert_eq!(shard.field("bytes").unwrap().row(row).unwrap(), bytes, "{path}");
        assert_eq!(shard.field("path").unwrap().row(row).unwrap(), path.as_bytes());
    }
    assert_eq!(dataset.n_rows(), 4);
    let names: Vec<_> = dataset.schema().fields().iter().map(|field| field.name.clone()).collect();
    assert_eq!(names, ["bytes", "path", "parent", "stem", "size"]);
}

#[test]
fn files_as_text_are_checked_and_kept_as_they_are() {
    let place = Place::new();
    let source = "type = \"files\"\nroot = \"in\"\npath = \"**\"\ncontent = \"text\"";
    place.write("p.toml", definition(source, ""));
    let text = "\u{feff}Zeile\r\n\u{1f600}\0";
    place.write("in/a.txt", text);
    place.write("in/sub/b.c.txt", "");
    let want = [
        json!({"path": "a.txt", "parent": "", "stem": "a", "size": 15, "text": text}),
        json!({"path": "sub/b.c.txt", "parent": "sub", "stem": "b.c", "size": 0, "text": ""}),
    ];
    assert_eq!(rows(&place), want);
    place.write("in/c.txt", b"abc\xff");
    place.rowmill(&["run", "p.toml"]).fails(3, &["`c.txt`", "UTF-8"]);
    place.rowmill(&["check", "p.toml"]).fails(3, &["`c.txt`", "UTF-8"]);
}

#[test]
fn transforms_are_applied_in_their_order() {
    let place = Place::new();
    let transforms = r#"
[transforms.stats]
type = "text_stats"
input = "text"
prefix = "n_"
[transforms.picked]
type = "select"
columns = ["n_words", "text", "n_lines", "size"]
rename = { words = "n_words", bytes = "size" }
[transforms.cast]
type = "cast"
types = { words = "uint8", bytes = "float32", n_lines = "utf8" }
[transforms.histogram]
type = "byte_histogram"
input = "text"
"#;
    let source = "type = \"files\"\nroot = \"in\"\npath = \"*\"\ncontent = \"text\"";
    place.write("p.toml", definition(source, transforms));
    place.write("in/a", "aab b\n");
    let mut row = rows(&place).remove(0);
    let histogram = row.as_object_mut().unwrap().remove("histogram").unwrap();
    assert_eq!(row, json!({"words": 2, "text": "aab b\n", "n_lines": "1", "bytes": 6.0}));
    let histogram = histogram.as_array().unwrap();
    assert_eq!(histogram.len(), 256);
    for (byte, n) in [(b'a', 2.0), (b'b', 2.0), (b' ', 1.0), (b'\n', 1.0), (b'c', 0.0)] {
        let share = histogram[usize::from(byte)].as_f64().unwrap();
        assert!((share - n / 6.0).abs() < 1e-6, "{byte}: {share}");
    }
}

#[test]
fn fields_are_stored_as_the_definition_says() {
    let place = Place::new();
    let fields = r#"
[dataset.fields]
kind = { categorical = ["cat", "dog"], index = true }
flag = { dtype = "bool" }
small = { dtype = "uint8", nullable = false }
half = { dtype = "float16" }
brain = { dtype = "bfloat16" }
word = { intern = true, sidecar = "words.json" }
"#;
    place.write(
        "p.toml",
        definition(
            "type = \"csv\"\npath = \"*.csv\"\ntypes = { flag = \"bool\", word = \"utf8\" }",
            "",
        ) + fields,
    );
    place.write(
        "t.csv",
        "kind,flag,small,half,brain,word\ndog,1,255,0.5,1.5,7\ncat,false,0,,3,\n,,7,2,,7\n",
    );
    let want = [
        json!({"kind": "dog", "flag": true, "small": 255, "half": 0.5, "brain": 1.5, "word": "7"}),
        json!({"kind": "cat", "flag": false, "small": 0, "half": null, "brain": 3.0, "word": null}),
        json!({"kind": null, "flag": null, "small": 7, "half": 2, "brain": null, "word": "7"}),
    ];
    assert_eq!(rows(&place), want);
    let contents = place.json(&["inspect", "p.toml"]);
    let forms: Vec<_> = contents["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| (field["name"].as_str().unwrap(), field["form"].as_str().unwrap()))
        .collect();
    assert_eq!(
        forms,
        [
            ("kind", "one of 2 (int8), nullable, in the index"),
            ("flag", "bool, nullable"),
            ("small", "uint8"),
            ("half", "float16, nullable"),
            ("brain", "bfloat16, nullable"),
            ("word", "utf8, interned, nullable"),
        ]
    );
    let shard = contents["shards"][0]["id"].as_str().unwrap();
    let words = place.current("data", "d").join("shards").join(shard).join("words.json");
    assert_eq!(std::fs::read_to_string(words).unwrap(), "{\n  \"0\": \"7\"\n}\n");
}
