//! Every source keeps the promises of `rowmill::sources`, on small inputs made here and on real
//! data from the folder that `ROWMILL_TEST_DATA` names (left out where it is not set).
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests make and change the inputs themselves, and fail by panicking"
)]

mod arrays;
mod arrow;
mod conformance;
mod content;
mod crafted_parquet;
mod csv;
mod files;
mod jsonl;
mod listing;
mod parquet;
mod real_tables;
mod rejects;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_cast::display::{ArrayFormatter, FormatOptions};
use conformance::LIMITS;
use rowmill::batch::Restart;
use rowmill::sources::{Input, InputRange, Part, SOURCES, Source, SourceSpec, source_type};
use serde_json::Value;

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        write(root.path(), path, bytes);
    }
    root
}

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// The source that a definition would make.
fn source(kind: &str, root: &Path, paths: &[&str], settings: Value) -> Box<dyn Source> {
    let spec = SourceSpec {
        name: "things".to_owned(),
        paths: paths.iter().map(|&p| p.to_owned()).collect(),
        root: root.to_owned(),
        settings,
    };
    (source_type(kind).unwrap().make)(&spec).unwrap()
}

/// The part that reads whole inputs.
fn part_of(source: &dyn Source, inputs: &[Input]) -> Arc<Part> {
    let side = source.side_inputs(inputs).unwrap();
    let inputs = inputs.iter().map(|i| InputRange { input: i.clone(), range: None }).collect();
    Arc::new(Part { inputs, side })
}

/// A folder of the real data, `None` where there is none.
fn real_data(name: &str) -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("ROWMILL_TEST_DATA")?).join(name))
}

/// Sets of settings and inputs, by source: what the conformance tests run over.
fn cases() -> BTreeMap<&'static str, Vec<conformance::Case>> {
    BTreeMap::from([
        ("arrow", arrow::cases()),
        ("csv", csv::cases().into_iter().chain(content::cases()).collect()),
        ("files", files::cases()),
        ("idx", arrays::idx_cases()),
        ("npy", arrays::npy_cases()),
        ("jsonl", jsonl::cases()),
        ("parquet", parquet::cases()),
    ])
}

#[test]
fn every_source_has_cases() {
    let with_cases: Vec<_> = cases().into_keys().collect();
    let mut names: Vec<_> = SOURCES.iter().map(|t| t.name).collect();
    names.sort_unstable();
    assert_eq!(with_cases, names);
}

#[test]
fn settings_that_do_not_exist_are_refused() {
    for kind in SOURCES {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: serde_json::json!({"no_such_setting": 1}),
        };
        let refused = (kind.make)(&spec).unwrap_err();
        assert_eq!(refused.at, ["no_such_setting"], "{}", kind.name);
        let schema = (kind.settings)(&mut schemars::SchemaGenerator::default());
        assert_eq!(schema.get("additionalProperties"), Some(&Value::Bool(false)), "{}", kind.name);
    }
}

/// A digest of what a made case gives: names, types and values of its columns.
fn digest(case: &conformance::Case) -> String {
    let inputs = case.source.list().unwrap();
    let schema = case.source.schema(inputs.first()).unwrap();
    let part = part_of(&*case.source, &inputs);
    let start = Restart::default();
    let rows = conformance::read(&*case.source, &part, &schema, LIMITS, &start).unwrap().rows;
    let mut hasher = blake3::Hasher::new();
    for (field, column) in schema.fields().iter().zip(rows.columns()) {
        let (name, kind, nullable) = (field.name(), field.data_type(), field.is_nullable());
        hasher.update(format!("{name} {kind} {nullable}\n").as_bytes());
        let options = FormatOptions::new().with_null("∅");
        let values = ArrayFormatter::try_new(column, &options).unwrap();
        for row in 0..rows.num_rows() {
            hasher.update(format!("{:?}\n", values.value(row).to_string()).as_bytes());
        }
    }
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}

/// When this fails because a value changed, bump the source's version and note both here.
#[test]
fn values_change_with_a_new_version_only() {
    let golden = [
        ("csv", 1, "plain", "0f9f9d92371a8ffd"),
        ("csv", 1, "columns in another order", "8a4b8cdaa1ee9fb8"),
        ("csv", 1, "odd", "e8f40740426eb0e9"),
        ("csv", 1, "no header", "92344be594cc7410"),
        ("files", 1, "bytes", "b375fd9bd267c378"),
        ("files", 1, "siblings", "2cbfc30c51eba152"),
        ("idx", 1, "labels", "191fe62cfb2db088"),
        ("idx", 1, "floats", "6d3422e99d3421ae"),
        ("npy", 1, "rows", "6a200155140e784d"),
        ("npy", 1, "truths", "f0907a7eea3c2b6d"),
        ("npy", 1, "files", "d4770f069b9cb006"),
        ("jsonl", 1, "two files", "c6a4cc51414d6182"),
        ("jsonl", 1, "odd", "944a58668fc92fb2"),
        ("jsonl", 1, "ignored", "9a93c67309b4c1bc"),
        ("arrow", 1, "file", "42d29fbfcef432c2"),
        ("arrow", 1, "dictionaries", "0b4f34717be5f7b7"),
        ("parquet", 1, "every kind", "6a60dcd856a28ade"),
        ("parquet", 1, "several files", "e1be8b07942006d0"),
    ];
    let cases = cases();
    let got = golden.map(|(kind, _, name, _)| {
        let case = cases[kind].iter().find(|case| case.name == name).unwrap();
        (kind, source_type(kind).unwrap().version, name, digest(case))
    });
    assert_eq!(
        got,
        golden.map(|(kind, version, name, digest)| (kind, version, name, digest.into()))
    );
}
