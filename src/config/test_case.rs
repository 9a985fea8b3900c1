//! `[[test]]`: rows that go into transforms, and what is expected to come out.
//!
//! Leaves out: sending them (`pipeline::test`).
//!
//! Invariant: tests decide no byte. They stand beside [`DataConfig`](super::DataConfig), so the cache
//! key cannot see them.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use serde_json::{Map, Value, json};

use super::TransformConfig;
use super::error::{At, Problem};
use super::read::{Reader, did_you_mean, wrong_type};
use super::settings::SettingsSchema;
use super::tree::{Entry, Node, Table, Tree};
use crate::codes::Code;
use crate::transforms::{ColumnSettings, transform_type};

/// A row as a definition says it: columns by name.
pub type GivenRow = Map<String, Value>;

/// `[[test]]`
#[derive(Debug, Clone, PartialEq)]
pub struct TestCase {
    /// Tells it from the others.
    pub name: String,
    /// The one transform that the rows go through; all of them, where it is none.
    pub stage: Option<String>,
    /// The columns that go in; those of the sources that rows are given of, where it is none.
    pub types: Option<SchemaRef>,
    /// The rows that go in, in one batch.
    pub given: Vec<GivenRow>,
    /// The rows that are to come out, as far as they are compared.
    pub expect: Option<Vec<GivenRow>>,
    /// Columns in which no row that comes out is to have a value.
    pub expect_null: Vec<String>,
    /// The codes of the rows that are to be rejected, in order.
    pub expect_reject: Vec<String>,
    /// How far a float may be from what is expected,
    pub atol: f64,
    /// and how far beyond that, as a share of what is expected.
    pub rtol: f64,
}

/// Reads all tests; `stages` are the transforms that lead to the dataset.
pub(super) fn read(
    reader: &mut Reader<'_>,
    stages: &[TransformConfig],
    problems: &mut Vec<Problem>,
) -> Vec<TestCase> {
    let Some(entry) = reader.entry("test") else { return Vec::new() };
    let Tree::List(items) = &entry.node.value else {
        let hint = "write [[test]] above each of them";
        problems.push(wrong_type("test", "a list of tables", &entry.node).hint(hint));
        return Vec::new();
    };
    let mut cases: Vec<TestCase> = Vec::new();
    for item in items {
        let Tree::Table(table) = &item.value else {
            problems.push(wrong_type("test", "tables", item));
            continue;
        };
        let n_before = problems.len();
        let case = case(table, &item.at, stages, problems);
        if problems.len() > n_before {
            continue;
        }
        if cases.iter().any(|known| known.name == case.name) {
            let message = format!("there are two tests \"{}\"", case.name.escape_debug());
            problems.push(Problem::new(&item.at, message).hint("give each a name of its own"));
        }
        cases.push(case);
    }
    cases
}

fn case(
    table: &Table,
    at: &At,
    stages: &[TransformConfig],
    problems: &mut Vec<Problem>,
) -> TestCase {
    let mut reader = Reader::new("[[test]]", at, table);
    let name = reader.text("name", problems).map(|(name, _)| name.to_owned());
    if table.get("name").is_none() {
        problems.push(reader.missing("name", "\"empty text\""));
    }
    let stage = reader.text("stage", problems);
    if let Some((stage, at)) = stage
        && !stages.iter().any(|known| known.name == stage)
    {
        let message = format!("no transform `{}` leads to the dataset", stage.escape_debug());
        let hint = did_you_mean(stage, "there are", stages.iter().map(|it| it.name.as_str()));
        problems.push(Problem::new(at, message).hint(hint));
    } else if stages.is_empty() {
        let hint = "a test sends rows through transforms; add one, or remove the test";
        problems.push(Problem::new(at, "there is no transform to test").hint(hint));
    }
    let types = reader.table("types", problems).map(|(table, _)| types(table, problems));
    let given = rows(&mut reader, "given", problems);
    match &given {
        None if table.get("given").is_none() => {
            problems.push(reader.missing("given", "{ text = \"abc\" }"));
        }
        Some(rows) if rows.is_empty() => {
            problems.push(Problem::new(at, "`given` holds no row").hint("give at least one"));
        }
        _ => {}
    }
    let expect = rows(&mut reader, "expect", problems);
    let texts = |reader: &mut Reader<'_>, key, problems: &mut Vec<Problem>| {
        let texts = reader.texts(key, problems).map(|(texts, _)| texts).unwrap_or_default();
        texts.into_iter().map(|(text, at)| (text.to_owned(), at.clone())).collect::<Vec<_>>()
    };
    let expect_null = texts(&mut reader, "expect_null", problems);
    let expect_reject = texts(&mut reader, "expect_reject", problems);
    // A transform that a program brings along rejects rows with any code.
    let is_ours = |stage: &TransformConfig| transform_type(stage.kind.name).is_some();
    if !stages.is_empty() && stages.iter().all(is_ours) {
        problems.extend(expect_reject.iter().filter_map(|(code, at)| unknown_code(code, at)));
    }
    let [expect_null, expect_reject] =
        [expect_null, expect_reject].map(|texts| texts.into_iter().map(|(text, _)| text).collect());
    if ["expect", "expect_null", "expect_reject"].iter().all(|key| table.get(key).is_none()) {
        let message = "[[test]] expects nothing";
        let hint = "write for example expect = { words = 3 }, or expect_reject = \"value_misfit\"";
        problems.push(Problem::new(at, message).hint(hint));
    }
    let atol = tolerance(&mut reader, "atol", problems);
    let rtol = tolerance(&mut reader, "rtol", problems);
    reader.finish(problems);
    TestCase {
        name: name.unwrap_or_default(),
        stage: stage.map(|(stage, _)| stage.to_owned()),
        types,
        given: given.unwrap_or_default(),
        expect,
        expect_null,
        expect_reject,
        atol,
        rtol,
    }
}

/// The problem of a code that no reject has.
fn unknown_code(code: &str, at: &At) -> Option<Problem> {
    let known = Code::ALL.iter().filter(|code| code.is_of_row()).map(|code| code.name());
    if known.clone().any(|known| known == code) {
        return None;
    }
    let message = format!("no row is rejected with `{}`", code.escape_debug());
    Some(Problem::new(at, message).hint(did_you_mean(code, "the codes of rejects are", known)))
}

/// A row, or a list of them.
fn rows(
    reader: &mut Reader<'_>,
    key: &'static str,
    problems: &mut Vec<Problem>,
) -> Option<Vec<GivenRow>> {
    let row = |node: &Node| match node.to_json() {
        Value::Object(row) => Ok(row),
        _ => Err(wrong_type(key, "a row, { column = value }, or a list of rows", node)),
    };
    let node = &reader.entry(key)?.node;
    let rows: Result<_, _> = match &node.value {
        Tree::List(items) => items.iter().map(row).collect(),
        _ => row(node).map(|row| vec![row]),
    };
    rows.map_err(|problem| problems.push(problem)).ok()
}

/// Columns as the outputs of hooks are declared.
fn types(table: &Table, problems: &mut Vec<Problem>) -> SchemaRef {
    let schema = SettingsSchema::new(<ColumnSettings as schemars::JsonSchema>::json_schema);
    let mut column = |entry: &Entry| -> Option<Field> {
        let title = format!("column `{}`", entry.key);
        let Tree::Table(settings) = &entry.node.value else {
            let hint = "write for example { dtype = \"utf8\" }";
            problems.push(wrong_type(&entry.key, "a table", &entry.node).hint(hint));
            return None;
        };
        let n_before = problems.len();
        schema.check(&title, &entry.key_at, settings, &[], problems);
        if problems.len() > n_before {
            return None;
        }
        let settings = serde_json::from_value::<ColumnSettings>(settings.to_json());
        let field = settings.map_err(|e| (e.to_string(), None)).and_then(|settings| {
            settings.field(&entry.key).map_err(|error| (error.message, error.hint))
        });
        field
            .map_err(|(message, hint)| {
                let problem = Problem::new(&entry.node.at, format!("{title}: {message}"));
                problems.push(problem.maybe_hint(hint));
            })
            .ok()
    };
    let fields: Vec<Field> = table.entries().iter().filter_map(&mut column).collect();
    Arc::new(Schema::new(fields))
}

fn tolerance(reader: &mut Reader<'_>, key: &'static str, problems: &mut Vec<Problem>) -> f64 {
    let Some(entry) = reader.entry(key) else { return 0.0 };
    let number = entry.node.to_json().as_f64().filter(|number| *number >= 0.0);
    number.unwrap_or_else(|| {
        problems.push(wrong_type(key, "a number that is not negative", &entry.node));
        0.0
    })
}

/// `[[test]]` in the JSON Schema of definitions.
pub(super) fn schema() -> Value {
    let column = SettingsSchema::new(<ColumnSettings as schemars::JsonSchema>::json_schema);
    let mut column = column.object().clone();
    if let Some(object) = column.as_object_mut() {
        object.remove("$schema");
    }
    let rows = |about: &str| {
        json!({
            "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}],
            "description": about,
        })
    };
    let texts = |about: &str| {
        json!({
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": about,
        })
    };
    let tolerance =
        |about: &str| json!({"type": "number", "minimum": 0, "default": 0, "description": about});
    json!({
        "type": "array",
        "description": "Rows in, expectations out: what `rowmill test` tries. Not part of the dataset's identity.",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["name", "given"],
            "properties": {
                "name": {"type": "string", "description": "Tells it from the others."},
                "stage": {"type": "string", "description": "The one transform that the rows go through; all that lead to the dataset by default."},
                "types": {
                    "type": "object",
                    "additionalProperties": column,
                    "description": "The columns that go in, where they are not those of the sources.",
                },
                "given": rows("The rows that go in, in one batch."),
                "expect": rows("The rows that are to come out; columns that it does not name are not compared."),
                "expect_null": texts("Columns in which no row that comes out is to have a value."),
                "expect_reject": texts("The codes of the rows that are to be rejected, in order."),
                "atol": tolerance("How far a float may be from what is expected."),
                "rtol": tolerance("How far beyond `atol`, as a share of what is expected."),
            },
        },
    })
}
