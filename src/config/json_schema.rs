//! The JSON Schema of definitions, by which editors complete and check them.
//!
//! Invariant: it names exactly the keys that reading takes.

use serde_json::{Map, Value, json};

use super::rejects;
use super::settings::SettingsSchema;
use super::test_case;
use super::{DEFINITION_VERSION, Registry};
use crate::schema::FieldSpec;

/// The JSON Schema of definitions that name what is in `registry`, with all its settings.
#[must_use]
pub fn json_schema(registry: Registry) -> Value {
    let mut definitions = Map::new();
    let text_or_list = json!({"anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]});
    let mut path = text_or_list.clone();
    describe(&mut path, "Path or glob of the inputs, or a list of them, relative to `root`.");
    let mut source_keys = json!({
        "path": path,
        "root": {
            "type": "string",
            "description": "Where the inputs are, relative to the definition's folder, which is the default. Not part of the dataset's identity.",
        },
        "allow_empty": flag("Whether it may match no input."),
    });
    let mut inputs = text_or_list;
    describe(
        &mut inputs,
        "The source or transform that it reads, or several sources; the table before it by default.",
    );
    let mut transform_keys = json!({ "inputs": inputs.clone() });
    for keys in [&mut source_keys, &mut transform_keys].into_iter().filter_map(Value::as_object_mut)
    {
        keys.extend(rejects::schema());
    }

    let sources: Vec<Value> = registry
        .sources
        .iter()
        .map(|t| {
            let settings = SettingsSchema::new(t.settings);
            stage(t.name, t.about, &settings, &source_keys, &["path"], &mut definitions)
        })
        .collect();
    let transforms: Vec<Value> = registry
        .transforms
        .iter()
        .map(|t| {
            let settings = SettingsSchema::new(t.settings);
            stage(t.name, t.about, &settings, &transform_keys, &[], &mut definitions)
        })
        .collect();
    let fields = SettingsSchema::new(<FieldSpec as schemars::JsonSchema>::json_schema);
    definitions.extend(fields.definitions().clone());

    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rowmill pipeline definition",
        "type": "object",
        "additionalProperties": false,
        "required": ["version", "name", "sources"],
        "properties": {
            "version": {"const": DEFINITION_VERSION, "description": "Version of the definition language."},
            "name": {
                "type": "string",
                "pattern": NAME,
                "description": "Name of the dataset, and of its folder.",
            },
            "description": {"type": "string", "description": "One line for people."},
            "env": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                "description": "Environment variables that strings of the definition may name as ${NAME}.",
            },
            "sources": tables("Where rows come from.", &sources, 1),
            "transforms": tables("What is done to rows.", &transforms, 0),
            "dataset": with_rejects(dataset(fields.object(), &inputs)),
            "run": run(),
            "push": push(),
            "test": test_case::schema(),
        },
        "$defs": definitions,
    })
}

const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";

fn tables(about: &str, kinds: &[Value], at_least: usize) -> Value {
    json!({
        "type": "object",
        "description": about,
        "minProperties": at_least,
        "propertyNames": {"pattern": NAME},
        "additionalProperties": {"oneOf": kinds},
    })
}

/// One kind of source or transform: the keys of all of its like, and its own settings.
fn stage(
    name: &str,
    about: &str,
    settings: &SettingsSchema,
    keys: &Value,
    required: &[&str],
    definitions: &mut Map<String, Value>,
) -> Value {
    definitions.extend(settings.definitions().clone());
    let mut schema = settings.object().clone();
    let own: Vec<Value> =
        schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let required: Vec<Value> =
        ["type"].iter().chain(required).map(|key| json!(key)).chain(own).collect();
    let mut properties = json!({"type": {"const": name, "description": about}});
    for more in [Some(keys), schema.get("properties")] {
        if let (Some(all), Some(more)) =
            (properties.as_object_mut(), more.and_then(Value::as_object))
        {
            all.extend(more.clone());
        }
    }
    if let Some(object) = schema.as_object_mut() {
        object.remove("$schema");
        object.insert("title".into(), name.into());
        object.insert("description".into(), about.into());
        object.insert("type".into(), "object".into());
        object.insert("properties".into(), properties);
        object.insert("required".into(), required.into());
        object.entry("additionalProperties").or_insert(false.into());
    }
    schema
}

/// `table` with the keys that say what is done with bad rows.
fn with_rejects(mut table: Value) -> Value {
    if let Some(keys) = table.get_mut("properties").and_then(Value::as_object_mut) {
        keys.extend(rejects::schema());
    }
    table
}

fn dataset(field: &Value, inputs: &Value) -> Value {
    let mut field = field.clone();
    if let Some(object) = field.as_object_mut() {
        object.remove("$schema");
    }
    json!({
        "type": "object",
        "description": "How rows are stored.",
        "additionalProperties": false,
        "properties": {
            "input": {"type": "string", "description": "The source or transform whose rows are stored; the last table before by default."},
            "key": {"type": "string", "minLength": 1, "description": "The column of text or integers whose values tell rows apart: rows are found by it, and two with one value are an error."},
            "inputs": inputs,
            "partition_bytes": size("How inputs are grouped or cut into partitions.", "1GiB"),
            "shard_bytes": size("A shard ends at the first row at which its rows have added this many bytes.", "256MiB"),
            "shard_rows": count("A shard ends after this many rows.", Some(1_000_000)),
            "max_row_bytes": size("A row with more bytes is refused.", "64MiB"),
            "intern_values": count("A shard ends when an interned field has this many distinct values.", Some(1_000_000)),
            "limit_rows": count("Only this many source rows are read; the dataset does not become the current one.", None),
            "allow_empty": flag("Whether the dataset may have no rows."),
            "fields": {
                "type": "object",
                "description": "What is said of single fields; the rest is inferred from their columns.",
                "additionalProperties": field,
            },
        },
    })
}

fn run() -> Value {
    json!({
        "type": "object",
        "description": "How, where and how fast; never what. Not part of the dataset's identity.",
        "additionalProperties": false,
        "properties": {
            "out": {"type": "string", "minLength": 1, "default": "data", "description": "The folder of all datasets, relative to the definition's folder."},
            "jobs": count("Partitions at work at once, and threads that transform; as many as there are cores by default.", None),
            "memory": size("Bytes of memory that the run may take.", "1GiB"),
            "commit_bytes": size("Rows are committed when they have added this many bytes.", "64MiB"),
            "commit_interval": {
                "type": "string",
                "pattern": "^[0-9]+ *(ms|s|min|h)$",
                "default": "5s",
                "description": "Rows are committed when this much time has passed.",
            },
            "batch_rows": count("Most rows in a batch.", Some(65_536)),
            "batch_bytes": size("About the most bytes in a batch.", "4MiB"),
            "fingerprint": {
                "enum": ["content", "stat"],
                "default": "content",
                "description": "How inputs are told to be the same: by content, or by size and time of modification alone.",
            },
        },
    })
}

fn push() -> Value {
    let mut bandwidth = size("Most bytes per second.", "");
    if let Some(object) = bandwidth.as_object_mut() {
        object.remove("default");
    }
    json!({
        "type": "object",
        "description": "Where the dataset is sent while it is built, and how fast. Not part of its identity.",
        "additionalProperties": false,
        "required": ["url"],
        "properties": {
            "url": {"type": "string", "description": "Where to: s3://bucket/prefix, gs://, az:// or file:///."},
            "part_size": size("Larger files are sent in parts of this size, 5 MiB to 5 GiB.", "16MiB"),
            "concurrency": count("Parts and small files sent at once.", Some(8)),
            "bandwidth": bandwidth,
            "allow_http": flag("Whether an endpoint may be plain HTTP."),
            "drop_local": flag("Whether the rows of a shard go here as soon as it is there."),
        },
    })
}

fn size(about: &str, default: &str) -> Value {
    json!({
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *[A-Za-z]*$"},
        ],
        "default": default,
        "description": about,
    })
}

fn count(about: &str, default: Option<u64>) -> Value {
    let mut count = json!({"type": "integer", "minimum": 1, "description": about});
    if let (Some(object), Some(default)) = (count.as_object_mut(), default) {
        object.insert("default".into(), default.into());
    }
    count
}

fn flag(about: &str) -> Value {
    json!({"type": "boolean", "default": false, "description": about})
}

fn describe(schema: &mut Value, about: &str) {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".into(), about.into());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAIN, TESTED, edited, read};
    use super::*;

    /// The keys that a schema's object names.
    fn keys(schema: &Value) -> Vec<&str> {
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn the_json_schema_names_the_keys_that_are_read() {
        let schema = json_schema(TESTED);
        let known = |text: &str, at: &str| -> Vec<String> {
            let error = read(text).unwrap_err().to_string();
            let hint = error.lines().find_map(|l| l.strip_prefix("hint: ")).unwrap().to_owned();
            let all = hint.strip_prefix(&format!("{at} takes ")).unwrap();
            let mut all: Vec<String> =
                all.split(", ").map(|k| k.trim_matches('`').to_owned()).collect();
            all.sort();
            all
        };
        let properties = &schema["properties"];
        let odd = "Qqqqqqqqqqqqqqqqqqqq = 1\n";
        assert_eq!(known(&format!("{odd}{PLAIN}"), "the definition"), keys(&schema));
        let dataset = edited("[dataset]\n", &format!("[dataset]\n{odd}"));
        assert_eq!(known(&dataset, "[dataset]"), keys(&properties["dataset"]));
        let run = edited("[run]\n", &format!("[run]\n{odd}"));
        assert_eq!(known(&run, "[run]"), keys(&properties["run"]));
        let source = edited("[sources.lines]\n", &format!("[sources.lines]\n{odd}"));
        let of_source = &properties["sources"]["additionalProperties"]["oneOf"][0];
        assert_eq!(known(&source, "[sources.lines]"), keys(of_source));
        let transform = edited("[transforms.upper]\n", &format!("[transforms.upper]\n{odd}"));
        let of_transform = &properties["transforms"]["additionalProperties"]["oneOf"][0];
        assert_eq!(known(&transform, "[transforms.upper]"), keys(of_transform));
        let test =
            format!("{PLAIN}\n[[test]]\nname = \"a\"\ngiven = {{ a = 1 }}\nexpect = []\n{odd}");
        assert_eq!(known(&test, "[[test]]"), keys(&properties["test"]["items"]));
        let field = edited("{ intern = true }", &format!("{{ {} }}", odd.trim()));
        let of_field = &properties["dataset"]["properties"]["fields"]["additionalProperties"];
        assert_eq!(known(&field, "field `line`"), keys(of_field));
    }

    #[test]
    fn every_default_of_a_stage_is_in_its_schema() {
        // A default that the schema does not tell could not be filled in before hashing.
        let check =
            |name: &str, settings: fn(&mut schemars::SchemaGenerator) -> schemars::Schema| {
                let schema = SettingsSchema::new(settings);
                let object = schema.object();
                let required: Vec<&Value> =
                    object["required"].as_array().map(|r| r.iter().collect()).unwrap_or_default();
                let properties = object["properties"].as_object();
                for (key, property) in properties.into_iter().flatten() {
                    let may_be_null = property.to_string().contains("\"null\"");
                    let told = property.get("default").is_some() || may_be_null;
                    assert!(
                        required.contains(&&json!(key)) || told,
                        "`{key}` of {name} has no default"
                    );
                }
            };
        for registry in [TESTED, Registry::BUILT_IN] {
            registry.sources.iter().for_each(|t| check(t.name, t.settings));
            registry.transforms.iter().for_each(|t| check(t.name, t.settings));
        }
    }
}
