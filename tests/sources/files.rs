//! The `files` source.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rowmill::batch::Restart;
use rowmill::sources::{BatchLimits, SourceError, SourceSpec, source_type};
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::{folder, part_of, real_data, source, write};

const TREE: &[(&str, &[u8])] = &[
    ("LICENSE", b"root licence"),
    ("a/LICENSE-MIT", b"MIT"),
    ("a/LICENSE-APACHE", b"Apache"),
    ("a/deep/er/one.rs", b"fn main() {}\n"),
    ("a/two.tar.gz", b"\x1f\x8b"),
    ("b/LICENSES/x.txt", b"folder of that name"),
    ("b/empty.rs", b""),
    ("three.rs", "h\u{e9}\u{feff}".as_bytes()),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, settings) in [
        ("bytes", json!({})),
        ("no content", json!({"content": "none"})),
        ("siblings", json!({"sibling": "LICENSE*", "pattern": "^(?P<top>[^/]+)/"})),
    ] {
        let root = folder(TREE);
        cases.push(Case {
            name,
            source: source("files", root.path(), &["**/*.rs", "**/*.gz"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    for (name, path, settings) in [
        ("json-test-suite", "**/*.json", json!({"sibling": "LICENSE*"})),
        ("librivox-wav", "**", json!({"content": "bytes"})),
        ("aenet-xsf", "xsf-TiO2/*", json!({"content": "text"})),
    ] {
        if let Some(root) = real_data(name) {
            let source = source("files", &root, &[path], settings);
            cases.push(Case { name, source, root, made: None });
        }
    }
    cases
}

fn read_all(root: &Path, paths: &[&str], settings: Value) -> Result<Reading, SourceError> {
    let source = source("files", root, paths, settings);
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, LIMITS, &Restart::default())
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = rows.column_by_name(column).unwrap();
    let large = column.as_string_opt::<i64>().map(|a| a.iter().collect::<Vec<_>>());
    let all = large.unwrap_or_else(|| column.as_string::<i32>().iter().collect());
    all.into_iter().map(|t| t.map(str::to_owned)).collect()
}

fn some(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|&t| Some(t.to_owned())).collect()
}

#[test]
fn a_file_becomes_a_row_with_its_names_and_size() {
    let root = folder(TREE);
    let rows = read_all(root.path(), &["**/*.rs", "**/*.gz"], json!({})).unwrap().rows;
    let names: Vec<_> = rows.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["bytes", "path", "parent", "stem", "size"]);
    let paths = ["a/deep/er/one.rs", "a/two.tar.gz", "b/empty.rs", "three.rs"];
    assert_eq!(texts(&rows, "path"), some(&paths));
    assert_eq!(texts(&rows, "parent"), some(&["a/deep/er", "a", "b", ""]));
    assert_eq!(texts(&rows, "stem"), some(&["one", "two.tar", "empty", "three"]));
    let sizes = rows.column_by_name("size").unwrap();
    assert_eq!(sizes.as_primitive::<Int64Type>().values(), &[13, 2, 0, 6]);
    let bytes: Vec<_> = rows.column(0).as_binary::<i64>().iter().map(Option::unwrap).collect();
    assert_eq!(bytes, [b"fn main() {}\n".as_slice(), b"\x1f\x8b", b"", "hé\u{feff}".as_bytes()]);
    assert_eq!(rows.num_columns(), rows.schema().fields().len());
}

#[test]
fn named_groups_become_columns_that_are_null_where_nothing_matched() {
    let root = folder(&[("cat/1-big.txt", b""), ("dog/2.txt", b""), ("readme.txt", b"")]);
    let pattern = r"^(?P<class>\w+)/(\d+)(-(?P<kind>\w+))?";
    let rows = read_all(root.path(), &["**"], json!({"pattern": pattern})).unwrap().rows;
    let class = [Some("cat"), Some("dog"), None].map(|t| t.map(str::to_owned));
    assert_eq!(texts(&rows, "class"), class);
    assert_eq!(texts(&rows, "kind"), [Some("big"), None, None].map(|t| t.map(str::to_owned)));
}

#[test]
fn the_nearest_sibling_is_the_first_by_name_in_the_nearest_folder_that_has_one() {
    let root = folder(TREE);
    let settings = json!({"content": "text", "sibling": "LICENSE*", "sibling_as": "licence"});
    let source = source("files", root.path(), &["**/*.rs"], settings.clone());
    let side = source.side_inputs(&source.list().unwrap()).unwrap();
    let side: Vec<_> = side.iter().map(|i| i.path.as_str()).collect();
    assert_eq!(side, ["LICENSE", "a/LICENSE-APACHE"]);
    let rows = read_all(root.path(), &["**/*.rs"], settings.clone()).unwrap().rows;
    assert_eq!(texts(&rows, "licence"), some(&["Apache", "root licence", "root licence"]));
    std::fs::remove_file(root.path().join("LICENSE")).unwrap();
    let rows = read_all(root.path(), &["**/*.rs"], settings).unwrap().rows;
    assert_eq!(texts(&rows, "licence"), [Some("Apache".to_owned()), None, None]);
}

#[test]
fn more_siblings_than_are_kept_are_read_again() {
    let root = folder(&[]);
    for i in 0..30 {
        write(
            root.path(),
            &format!("{:02}/LICENSE", i % 15),
            format!("licence {}", i % 15).as_bytes(),
        );
        write(root.path(), &format!("{:02}/{i}.txt", i % 15), b"");
    }
    write(root.path(), "07/LICENSE", &vec![b'x'; 3 << 20]);
    let rows = read_all(root.path(), &["**/*.txt"], json!({"sibling": "LICENSE"})).unwrap().rows;
    for (folder, text) in texts(&rows, "parent").iter().zip(texts(&rows, "sibling")) {
        let (folder, text) = (folder.as_ref().unwrap(), text.unwrap());
        let number: usize = folder.parse().unwrap();
        let want = if number == 7 { "x".repeat(3 << 20) } else { format!("licence {number}") };
        assert!(text == want, "{folder}");
    }
}

#[test]
fn what_cannot_be_a_row_is_named() {
    let root = folder(&[
        ("bad.txt", b"good until\xff here"),
        ("side/LICENSE", b"\xfe"),
        ("side/x.txt", b""),
        ("long.txt", b"0123456789012345678901234567890123456789"),
    ]);
    let limits = BatchLimits { row_bytes: 60, ..LIMITS };
    for (paths, settings, want) in [
        ("bad.txt", json!({"content": "text"}), "`bad.txt`, row 0: not UTF-8 from byte 10 on"),
        (
            "side/x.txt",
            json!({"sibling": "LIC*"}),
            "`side/LICENSE`, row 0, field `sibling`: not UTF-8 from byte 0 on",
        ),
        (
            "long.txt",
            json!({}),
            "`long.txt`, row 0: the row has 60 bytes, more than `max_row_bytes` (59) allows",
        ),
    ] {
        let source = source("files", root.path(), &[paths], settings);
        let inputs = source.list().unwrap();
        let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
        let limits = BatchLimits { row_bytes: 59, ..limits };
        let error = read(&*source, &part, &schema, limits, &Restart::default()).unwrap_err();
        assert_eq!(error.to_string(), want);
        assert!(error.hint().is_some());
    }
    let source = source("files", root.path(), &["long.txt"], json!({}));
    let inputs = source.list().unwrap();
    let (part, schema) = (part_of(&*source, &inputs), source.schema(inputs.first()).unwrap());
    assert!(read(&*source, &part, &schema, limits, &Restart::default()).is_ok(), "60 bytes fit");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (settings, at, message) in [
        (json!({"pattern": "("}), "pattern", "not a regular expression"),
        (json!({"pattern": "^a"}), "pattern", "no named group"),
        (json!({"pattern": "(?P<path>a)"}), "pattern", "two columns `path`"),
        (json!({"sibling": "a/b"}), "sibling", "not the name of a file"),
        (json!({"sibling": "a", "sibling_as": "size"}), "sibling_as", "two columns `size`"),
        (json!({"content": "pixels"}), "content", "unknown variant `pixels`"),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: settings.clone(),
        };
        let refused = (source_type("files").unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, [at], "{settings}");
        assert!(refused.message.contains(message), "{settings}: {refused}");
    }
}
