//! The settings of a source or transform, checked against the JSON Schema that it gives.
//!
//! What the schema can say is said here, with the line that is to blame; the rest is left to the
//! source or transform itself.
//!
//! Invariant: settings that leave the default to be taken and settings that write it down become
//! the same JSON.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::error::{At, Problem};
use super::read::{did_you_mean, out_of_range, unknown_key, wrong_type};
use super::tree::{Node, Table, Tree};

/// Deepest nesting of a schema that is followed: one that contains itself has no end.
const MAX_DEPTH: usize = 32;

/// What other programs call one of our words.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("boolean", "bool"),
    ("bytes", "binary"),
    ("double", "float64"),
    ("float", "float32"),
    ("half", "float16"),
    ("int", "int64"),
    ("str", "utf8"),
    ("string", "utf8"),
    ("text", "utf8"),
];

/// The JSON Schema of some settings, with everything it refers to in it.
#[derive(Debug)]
pub(crate) struct SettingsSchema {
    schema: Value,
    definitions: Map<String, Value>,
}

impl SettingsSchema {
    /// Asks `settings` for its schema.
    pub(crate) fn new(settings: fn(&mut SchemaGenerator) -> Schema) -> Self {
        let inline = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
        let mut generator = inline.into_generator();
        let schema = settings(&mut generator).to_value();
        Self { schema, definitions: generator.take_definitions(true) }
    }

    /// The schema of the settings as an object.
    pub(crate) fn object(&self) -> &Value {
        self.followed(&self.schema)
    }

    /// What the schema calls by reference, for a document that holds it.
    pub(crate) fn definitions(&self) -> &Map<String, Value> {
        &self.definitions
    }

    /// Checks `table`, the settings of `title`, whose other keys are `also`.
    pub(crate) fn check(
        &self,
        title: &str,
        at: &At,
        table: &Table,
        also: &[&str],
        problems: &mut Vec<Problem>,
    ) {
        self.check_table(self.object(), title, at, table, also, 0, problems);
    }

    /// `settings` with defaults filled in, and numbers that may be fractions as fractions.
    pub(crate) fn filled(&self, settings: Value) -> Value {
        self.fill(&self.schema, settings, 0)
    }

    fn followed<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next());
        name.and_then(|name| self.definitions.get(name)).unwrap_or(schema)
    }

    fn fill(&self, schema: &Value, mut value: Value, depth: usize) -> Value {
        let schema = self.followed(schema);
        if depth > MAX_DEPTH {
            return value;
        }
        match &mut value {
            Value::Object(object) => {
                for (key, property) in properties(schema) {
                    let written = object.remove(key);
                    let default =
                        property.get("default").or_else(|| self.followed(property).get("default"));
                    let filled = match (written, default) {
                        (Some(value), _) => self.fill(property, value, depth + 1),
                        (None, Some(default)) if !default.is_null() => {
                            self.fill(property, default.clone(), depth + 1)
                        }
                        (None, _) => continue,
                    };
                    object.insert(key.clone(), filled);
                }
            }
            Value::Array(items) => {
                if let Some(item_schema) = schema.get("items") {
                    for item in items {
                        *item = self.fill(item_schema, item.take(), depth + 1);
                    }
                }
            }
            Value::Number(number) if accepts(schema, "number") && !accepts(schema, "integer") => {
                if let Some(fraction) = number.as_f64().and_then(serde_json::Number::from_f64) {
                    *number = fraction;
                }
            }
            _ => {}
        }
        value
    }

    #[expect(clippy::too_many_arguments, reason = "one recursion over schema and table")]
    fn check_table(
        &self,
        schema: &Value,
        title: &str,
        at: &At,
        table: &Table,
        also: &[&str],
        depth: usize,
        problems: &mut Vec<Problem>,
    ) {
        if is_choice(schema) || depth > MAX_DEPTH {
            return;
        }
        let others = schema.get("additionalProperties").filter(|a| **a != Value::Bool(false));
        for entry in table.entries() {
            let property = properties(schema).find(|(key, _)| **key == entry.key).map(|(_, p)| p);
            if let Some(property) = property.or(others) {
                self.check_value(property, &entry.key, &entry.node, depth + 1, problems);
            } else {
                let known = properties(schema).map(|(k, _)| k.as_str());
                let known: Vec<&str> = known.chain(also.iter().copied()).collect();
                problems.push(unknown_key(entry, title, known.iter().copied()));
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for key in required.filter_map(Value::as_str).filter(|key| table.get(key).is_none()) {
            let about = properties(schema).find(|(k, _)| *k == key);
            let about = about.and_then(|(_, p)| p.get("description")).and_then(Value::as_str);
            let hint = about.map(|about| format!("`{key}`: {}", about.replace('\n', " ")));
            let message = format!("{title} needs `{key}`");
            problems.push(Problem::new(at, message).maybe_hint(hint));
        }
    }

    fn check_value(
        &self,
        schema: &Value,
        key: &str,
        node: &Node,
        depth: usize,
        problems: &mut Vec<Problem>,
    ) {
        let schema = self.followed(schema);
        if depth > MAX_DEPTH || *schema == Value::Bool(true) {
            return;
        }
        if let Some(words) = words(schema) {
            let Tree::Text(text) = &node.value else {
                problems.push(wrong_type(key, "a string", node));
                return;
            };
            if !words.contains(&text.as_str()) {
                let message = format!("`{key}` cannot be \"{}\"", text.escape_debug());
                let hint = match OTHER_WORDS.iter().find(|(other, _)| other == text) {
                    Some((_, ours)) if words.contains(ours) => format!("did you mean `{ours}`?"),
                    _ => did_you_mean(text, &format!("`{key}` takes"), words.iter().copied()),
                };
                problems.push(Problem::new(&node.at, message).hint(hint));
            }
            return;
        }
        if is_choice(schema) {
            // Which alternative was meant is for the stage itself to say, unless one alone is left
            // when null, which TOML cannot write, is taken away.
            let left: Vec<&Value> =
                alternatives(schema).filter(|a| !accepts_only_null(a)).collect();
            if let [only] = left.as_slice() {
                self.check_value(only, key, node, depth + 1, problems);
            }
            return;
        }
        let takes = types(schema);
        if !takes.is_empty() && !takes.iter().any(|t| fits(t, &node.value)) {
            let names: Vec<&str> = takes.iter().filter_map(|t| type_name(t)).collect();
            let about = schema.get("description").and_then(Value::as_str);
            let hint = about.map(|about| format!("`{key}`: {}", about.replace('\n', " ")));
            problems.push(wrong_type(key, &names.join(" or "), node).maybe_hint(hint));
            return;
        }
        match &node.value {
            Tree::Integer(number) => {
                let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
                #[expect(clippy::cast_precision_loss, reason = "bounds of settings are small")]
                let number_f64 = *number as f64;
                let below = bound("minimum").is_some_and(|min| number_f64 < min);
                if below || bound("maximum").is_some_and(|max| number_f64 > max) {
                    let whole = |key: &str| schema.get(key).and_then(Value::as_u64);
                    let range = whole("minimum").unwrap_or(0)
                        ..=whole("maximum").unwrap_or(i64::MAX.unsigned_abs());
                    problems.push(out_of_range(key, number, &range, &node.at));
                }
            }
            Tree::List(items) => {
                if let Some(item_schema) = schema.get("items") {
                    for item in items {
                        self.check_value(item_schema, key, item, depth + 1, problems);
                    }
                }
            }
            Tree::Table(table) => {
                let title = format!("`{key}`");
                self.check_table(schema, &title, &node.at, table, &[], depth, problems);
            }
            Tree::Text(_) | Tree::Float(_) | Tree::Bool(_) => {}
        }
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array());
    lists.flatten()
}

fn is_choice(schema: &Value) -> bool {
    ["anyOf", "oneOf", "allOf"].iter().any(|key| schema.get(key).is_some())
}

/// The strings that are the only values, where that is so.
fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().filter(|v| !v.is_null()).map(Value::as_str).collect();
    }
    if let Some(value) = schema.get("const") {
        return value.as_str().map(|word| vec![word]);
    }
    let mut all = Vec::new();
    for alternative in alternatives(schema).filter(|a| !accepts_only_null(a)) {
        all.extend(words(alternative)?);
    }
    (!all.is_empty()).then_some(all)
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn accepts(schema: &Value, name: &str) -> bool {
    types(schema).contains(&name)
}

fn accepts_only_null(schema: &Value) -> bool {
    types(schema) == ["null"]
}

fn fits(type_name: &str, value: &Tree) -> bool {
    match value {
        Tree::Text(_) => type_name == "string",
        Tree::Integer(_) => ["integer", "number"].contains(&type_name),
        Tree::Float(_) => type_name == "number",
        Tree::Bool(_) => type_name == "boolean",
        Tree::List(_) => type_name == "array",
        Tree::Table(_) => type_name == "object",
    }
}

fn type_name(name: &str) -> Option<&'static str> {
    match name {
        "string" => Some("a string"),
        "integer" => Some("a whole number"),
        "number" => Some("a number"),
        "boolean" => Some("true or false"),
        "array" => Some("a list"),
        "object" => Some("a table"),
        _ => None,
    }
}
