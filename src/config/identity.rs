//! What the cache key hashes.
//!
//! Invariant: only what can change a value is in it. Where things are (`root`, `[run]`), what they
//! are called by people (`name`, `description`), what may be empty and how many rows may be
//! rejected are not: two definitions that
//! differ in those alone make the same shards.

use serde_json::{Map, Value, json};

use super::{DataConfig, DatasetConfig};
use crate::fingerprint::{SHARD_WRITER, cache_key};
use crate::schema::{FieldSpec, LAYOUT};

/// Everything that decides values except the inputs, and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Exactly what is hashed; it stands in the dataset's manifest.
    pub json: Value,
    /// The cache key: 16 hex digits.
    pub cache_key: String,
}

impl Identity {
    pub(super) fn of(data: &DataConfig) -> Self {
        let DataConfig { sources, transforms, dataset } = data;
        let source_versions = sources.iter().map(|s| format!("{}@{}", s.kind.name, s.kind.version));
        let transform_versions =
            transforms.iter().map(|t| format!("{}@{}", t.kind.name, t.kind.version));
        let versions: Vec<String> =
            source_versions.chain(transform_versions).chain([SHARD_WRITER.to_owned()]).collect();
        let transform = |t: &super::TransformConfig| {
            let settings = without(&t.settings, t.kind.run_settings);
            let mut json = json!({"name": t.name, "type": t.kind.name, "settings": settings});
            t.rejects.identify(&mut json);
            json
        };
        let source = |s: &super::SourceConfig| {
            let mut json = json!({
                "name": s.name,
                "type": s.kind.name,
                "path": s.paths,
                "settings": s.settings,
            });
            s.rejects.identify(&mut json);
            json
        };
        let json = json!({
            "layout": LAYOUT,
            "versions": versions,
            "sources": sources.iter().map(source).collect::<Vec<_>>(),
            "transforms": transforms.iter().map(transform).collect::<Vec<_>>(),
            "dataset": dataset_json(dataset),
        });
        Self { cache_key: cache_key(&json), json }
    }
}

/// `settings` without those that `run_settings` names, as a transform type does.
fn without(settings: &Value, run_settings: &[&str]) -> Value {
    let mut settings = settings.clone();
    let Value::Object(object) = &mut settings else { return settings };
    for name in run_settings {
        match name.split_once('.').map(|(list, _)| object.get_mut(list)) {
            Some(Some(Value::Array(items))) if !items.is_empty() => {
                items.remove(0);
            }
            Some(_) => {}
            None => {
                object.remove(*name);
            }
        }
    }
    settings
}

fn dataset_json(dataset: &DatasetConfig) -> Value {
    let DatasetConfig {
        key,
        partition_bytes,
        shard_bytes,
        shard_rows,
        max_row_bytes,
        intern_values,
        limit_rows,
        rejects,
        fields,
    } = dataset;
    let fields: Map<String, Value> =
        fields.iter().map(|(name, spec)| (name.clone(), field_json(spec))).collect();
    let mut json = json!({
        "key": key,
        "partition_bytes": partition_bytes,
        "shard_bytes": shard_bytes,
        "shard_rows": shard_rows,
        "max_row_bytes": max_row_bytes,
        "intern_values": intern_values,
        "limit_rows": limit_rows,
        "fields": fields,
    });
    rejects.identify(&mut json);
    json
}

/// What a definition says of a field, without what it leaves to be inferred.
fn field_json(spec: &FieldSpec) -> Value {
    let mut json = json!(spec);
    if let Value::Object(object) = &mut json {
        object.retain(|_, value| !value.is_null() && value != &Value::Bool(false));
        // `nullable = false` says something that leaving it out does not.
        if spec.nullable == Some(false) {
            object.insert("nullable".into(), false.into());
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAIN, edited, read};
    use super::*;

    fn key(text: &str) -> String {
        read(text).unwrap_or_else(|e| panic!("{text}\n{e}")).identity().cache_key
    }

    #[test]
    fn edits_that_change_no_value_keep_the_cache_key() {
        for (name, from, to) in [
            ("another name", "\"poems\"", "\"verses\""),
            ("a description", "[sources", "description = \"short\"\n[sources"),
            ("another root", "${POEMS:-poems}", "/mnt/poems"),
            ("no root", "root = \"${POEMS:-poems}\"", ""),
            ("other digits", "1_000", "0x3E8"),
            ("a default written down", "[dataset]", "[dataset]\nshard_bytes = \"256MiB\""),
            ("a size as bytes", "[dataset]", "[dataset]\nshard_bytes = 268_435_456"),
            ("a stage's default", "type = \"lines\"", "type = \"lines\"\nending = \"lf\""),
            ("a fraction as a whole number", "type = \"lines\"", "type = \"lines\"\nshare = 1"),
            ("path as a list", "\"*.txt\"", "[\"*.txt\"]"),
            ("the input named", "[dataset]", "[dataset]\ninput = \"upper\""),
            ("inputs named", "column =", "inputs = [\"lines\"]\ncolumn ="),
            ("a field's default", "intern = true", "intern = true, index = false"),
            ("a dotted key", "line = { intern = true }", "line.intern = true"),
            (
                "another order",
                "type = \"upper\"\ncolumn = \"line\"",
                "column = \"line\"\ntype = \"upper\"",
            ),
            ("allow_empty", "[dataset]", "[dataset]\nallow_empty = true"),
            ("a source's allow_empty", "path =", "allow_empty = true\npath ="),
            ("another run", "jobs = 2", "jobs = 7\nmemory = \"9GiB\"\nbatch_rows = 1\nout = \"x\""),
            ("no run", "[run]\njobs = 2", ""),
            ("a comment", "[run]", "# quick\n[run]"),
        ] {
            assert_eq!(key(&edited(from, to)), key(PLAIN), "{name}");
        }
    }

    #[test]
    fn edits_that_can_change_a_value_change_the_cache_key() {
        let mut keys = vec![("unedited", key(PLAIN))];
        for (name, from, to) in [
            ("another path", "*.txt", "*.text"),
            ("two paths", "\"*.txt\"", "[\"*.txt\", \"*.text\"]"),
            ("paths in another order", "\"*.txt\"", "[\"*.text\", \"*.txt\"]"),
            ("a setting", "path =", "ending = \"crlf\"\npath ="),
            ("a nested setting", "path =", "columns = [{ name = \"a\" }]\npath ="),
            ("a transform's setting", "\"line\"", "\"text\""),
            ("another transform", "\"upper\"", "\"lower\""),
            ("a stage's name", "[transforms.upper]", "[transforms.shout]"),
            ("one transform less", "[dataset]", "[dataset]\ninput = \"lines\""),
            ("rows per shard", "1_000", "1_001"),
            ("bytes per shard", "[dataset]", "[dataset]\nshard_bytes = 1"),
            ("bytes per partition", "[dataset]", "[dataset]\npartition_bytes = 1"),
            ("bytes per row", "[dataset]", "[dataset]\nmax_row_bytes = 1"),
            ("interned values", "[dataset]", "[dataset]\nintern_values = 1"),
            ("a key", "[dataset]", "[dataset]\nkey = \"line\""),
            ("fewer rows", "[dataset]", "[dataset]\nlimit_rows = 5"),
            ("a field's dtype", "intern = true", "dtype = \"utf8\", intern = true"),
            ("no value absent", "intern = true", "nullable = false, intern = true"),
            ("another field", "line = { in", "word = { in"),
            ("one field more", "[run]", "[dataset.fields.x]\nindex = true\n[run]"),
        ] {
            keys.push((name, key(&edited(from, to))));
        }
        for (i, (name, key)) in keys.iter().enumerate() {
            for (other, other_key) in keys.iter().skip(i + 1) {
                assert_ne!(key, other_key, "{name} and {other}");
            }
        }
    }

    #[test]
    fn the_order_of_transforms_is_in_the_cache_key() {
        let head = "version = 1\nname = \"x\"\n[sources.a]\ntype = \"lines\"\npath = \"a\"\n";
        let b = "[transforms.b]\ntype = \"upper\"\ncolumn = \"x\"\n";
        let c = "[transforms.c]\ntype = \"upper\"\ncolumn = \"x\"\n";
        assert_ne!(key(&format!("{head}{b}{c}")), key(&format!("{head}{c}{b}")));
    }

    #[test]
    fn the_versions_of_stages_are_in_the_cache_key() {
        let identity = read(PLAIN).unwrap().identity();
        assert_eq!(identity.json["versions"], json!(["lines@3", "upper@1", "shard@3"]));
    }

    #[test]
    fn golden_identity() {
        let identity = read(PLAIN).unwrap().identity();
        let want = json!({
            "dataset": {
                "fields": {"line": {"intern": true}},
                "intern_values": 1_000_000,
                "key": null,
                "limit_rows": null,
                "max_row_bytes": 67_108_864,
                "partition_bytes": 1_073_741_824,
                "shard_bytes": 268_435_456,
                "shard_rows": 1000,
            },
            "layout": 1,
            "sources": [{
                "name": "lines",
                "path": ["*.txt"],
                "settings": {"columns": [], "ending": "lf", "share": 1.0, "skip": 0},
                "type": "lines",
            }],
            "transforms": [{"name": "upper", "settings": {"column": "line"}, "type": "upper"}],
            "versions": ["lines@3", "upper@1", "shard@3"],
        });
        assert_eq!(identity.json, want);
        assert_eq!(identity.cache_key, "91e19f2bae570a9c");
        let stored = serde_json::to_string(&identity.json).unwrap();
        let read_back: Value = serde_json::from_str(&stored).unwrap();
        assert_eq!(crate::fingerprint::cache_key(&read_back), identity.cache_key);
    }
}
