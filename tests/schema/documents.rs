//! `schema.json` and `shapes.json`.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rowmill::schema::{RowSchema, SchemaError};
use serde_json::{Value, json};

use crate::model::{every_kind_batch, every_kind_schema};

/// A schema of one field, changed by `change`.
fn changed(change: impl Fn(&mut Value)) -> Result<RowSchema, SchemaError> {
    let mut document = json!({
        "fields": [{
            "axis": null, "categories": null, "codec": "none", "dtype": "int16",
            "files": ["data.bin"], "index": false, "kind": "fixed", "logical": null,
            "name": "data", "nullable": false, "numpy": "<i2", "shape": [6, 4096],
            "sidecar": null, "stem": "data",
        }],
        "key": null,
        "layout": 1,
        "requires": [],
    });
    change(&mut document);
    RowSchema::from_json(&document)
}

#[test]
fn the_documented_schema_is_read_and_written() {
    let schema = changed(|_| {}).unwrap();
    let field = &schema.fields()[0];
    assert_eq!((field.unit_bytes(), field.shape.as_slice()), (49_152, &[6, 4096][..]));
    let again = changed(|document| *document = schema.to_json()).unwrap();
    assert_eq!(again, schema);
}

#[test]
fn members_that_are_not_known_are_ignored() {
    let schema = changed(|document| {
        document["note"] = json!("from a later version");
        document["fields"][0]["unit"] = json!("mV");
    });
    assert_eq!(schema, changed(|_| {}));
}

#[test]
fn what_is_not_known_or_not_allowed_is_refused_by_name() {
    type Change = fn(&mut Value);
    let table: &[(&str, Change)] = &[
        ("unknown layout 2", |d| d["layout"] = json!(2)),
        ("unknown layout \"1\"", |d| d["layout"] = json!("1")),
        ("requires \"blocks\", which is not known", |d| d["requires"] = json!(["blocks"])),
        ("`requires` is no list", |d| d["requires"] = json!("blocks")),
        ("`layout` is missing", |d| drop(d.as_object_mut().unwrap().remove("layout"))),
        ("the document is no object", |d| *d = json!([])),
        ("a field is no object", |d| d["fields"] = json!([1])),
        ("a row has no fields", |d| d["fields"] = json!([])),
        ("field `data`: unknown codec \"zstd\"", |d| d["fields"][0]["codec"] = json!("zstd")),
        ("field `data`: unknown kind \"sparse\"", |d| d["fields"][0]["kind"] = json!("sparse")),
        ("field `data`: unknown dtype \"int4\"", |d| d["fields"][0]["dtype"] = json!("int4")),
        ("field `data`: `numpy` is not \"<i2\"", |d| d["fields"][0]["numpy"] = json!(">i2")),
        ("field `data`: unknown logical type \"uuid\"", |d| {
            d["fields"][0]["logical"] = json!({"type": "uuid"});
        }),
        ("field `data`: unknown logical type null", |d| d["fields"][0]["logical"] = json!([])),
        ("field `data`: unknown unit \"h\"", |d| {
            d["fields"][0]["logical"] = json!({"type": "duration", "unit": "h"});
        }),
        ("field `data`: date32 does not lie over int16", |d| {
            d["fields"][0]["logical"] = json!({"type": "date32"});
        }),
        ("field `data`: `files` is not [\"data.bin\"]", |d| {
            d["fields"][0]["files"] = json!(["../data.bin"]);
        }),
        ("field `data`: `files` is not [\"../x.bin\"]", |d| d["fields"][0]["stem"] = json!("../x")),
        ("field `data`: its stem `../x` is no stem", |d| {
            d["fields"][0]["stem"] = json!("../x");
            d["fields"][0]["files"] = json!(["../x.bin"]);
        }),
        ("`shape` is no list of sizes", |d| d["fields"][0]["shape"] = json!([-1])),
        ("field `data`: the shape [4294967296, 4294967296] is too large", |d| {
            d["fields"][0]["shape"] = json!([1_u64 << 32, 1_u64 << 32]);
        }),
        ("field `data`: a shape with a 0 in it holds nothing", |d| {
            d["fields"][0]["shape"] = json!([6, 0]);
        }),
        ("field `data`: a field of kind fixed has no axis", |d| {
            d["fields"][0]["axis"] = json!("atoms");
            d["fields"][0]["files"] = json!(["atoms.offsets.bin", "data.bin"]);
        }),
        ("`nullable` is neither true nor false", |d| d["fields"][0]["nullable"] = json!(0)),
        ("field `dat`: the key is no field of the rows", |d| d["key"] = json!("dat")),
        ("field `data`: two fields have this name", |d| {
            let mut twin = d["fields"][0].clone();
            twin["stem"] = json!("other");
            twin["files"] = json!(["other.bin"]);
            d["fields"].as_array_mut().unwrap().push(twin);
        }),
        ("field `twin`: has the stem `data` of field `data`", |d| {
            let mut twin = d["fields"][0].clone();
            twin["name"] = json!("twin");
            d["fields"].as_array_mut().unwrap().push(twin);
        }),
    ];
    for (want, change) in table {
        let error = changed(change).unwrap_err();
        assert_eq!(error.to_string(), format!("schema: {want}"));
    }
}

#[test]
fn an_axis_may_only_have_the_stem_of_a_field_on_it() {
    let field = |name: &str, kind: &str, axis: Value, files: &[&str]| {
        json!({
            "axis": axis, "categories": null, "codec": "none", "dtype": "int8", "files": files,
            "index": false, "kind": kind, "logical": null, "name": name, "nullable": false,
            "numpy": "|i1", "shape": [], "sidecar": null, "stem": name,
        })
    };
    let ragged = |name: &str, axis: &str| {
        let mut files = [format!("{name}.bin"), format!("{axis}.offsets.bin")];
        files.sort();
        field(name, "ragged", json!(axis), &[&files[0], &files[1]])
    };
    for (fields, fits) in [
        (vec![ragged("a", "a"), ragged("b", "a")], true),
        (vec![ragged("a", "x"), ragged("b", "x")], true),
        (vec![field("a", "fixed", Value::Null, &["a.bin"]), ragged("b", "a")], false),
        (vec![ragged("a", "b"), ragged("b", "a")], false),
    ] {
        let read = changed(|document| document["fields"] = json!(fields));
        assert_eq!(read.is_ok(), fits, "{fields:?}: {read:?}");
    }
}

#[test]
fn every_kind_comes_back_from_its_document() {
    let schema = every_kind_schema();
    assert_eq!(RowSchema::from_json(&schema.to_json()), Ok(schema));
}

#[test]
fn shapes_count_rows_entries_and_scalars() {
    let schema = every_kind_schema();
    let columns = schema.columns(&every_kind_batch(10, 3)).unwrap();
    let entries: Vec<u64> = columns
        .iter()
        .map(|column| column.offsets().map_or(0, |o| o[10].cast_unsigned()))
        .collect();
    let shapes = schema.shapes_json(10, &entries);
    assert_eq!(shapes["n"], 10);
    assert_eq!(shapes["image"], json!({"dtype": "uint8", "shape": [10, 4, 6]}));
    assert_eq!(shapes["panel"], json!({"dtype": "int32", "shape": [10]}));
    for name in ["positions", "grid", "note"] {
        let field = schema.field(name).unwrap();
        let column = &columns[schema.index_of(name).unwrap()];
        let shape = shapes[&field.stem]["shape"].as_array().unwrap();
        let n_scalars: u64 = shape.iter().map(|n| n.as_u64().unwrap()).product();
        assert_eq!(n_scalars * field.dtype.size() as u64, column.bytes().len() as u64, "{name}");
    }
}

/// Documents that are nearly schemas.
fn nearly() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(vec![
            "", "a", "../x", "fixed", "ragged", "free", "interned", "int8", "uint8", "utf8",
            "json", "n", "has_a", "a.json", "none", "s",
        ])
        .prop_map(Value::from),
        Just(json!([0])),
        Just(json!({"type": "decimal128", "precision": 300, "scale": -4})),
        Just(json!({"type": "utf8"})),
        Just(json!(["a", "a"])),
    ];
    let keys = prop::sample::select(vec![
        "axis",
        "categories",
        "codec",
        "dtype",
        "files",
        "index",
        "kind",
        "logical",
        "name",
        "nullable",
        "numpy",
        "shape",
        "sidecar",
        "stem",
    ]);
    let changes = prop::collection::vec((0..60_usize, keys, leaf), 0..4);
    let every_kind = every_kind_schema().to_json();
    changes.prop_map(move |changes| {
        let mut document = every_kind.clone();
        for (i, key, value) in changes {
            if let Some(field) = document["fields"].get_mut(i) {
                field[key] = value;
            }
        }
        document
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        rng_seed: RngSeed::Fixed(2),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_document_makes_reading_panic_or_names_files_elsewhere(document in nearly()) {
        if let Ok(schema) = RowSchema::from_json(&document) {
            for field in schema.fields() {
                for file in field.files() {
                    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c);
                    prop_assert!(file.name.chars().all(plain) && !file.name.starts_with('.'));
                }
            }
            prop_assert!(!schema.arrow_schema().fields().is_empty());
            prop_assert_eq!(RowSchema::from_json(&schema.to_json()), Ok(schema));
        }
    }
}
