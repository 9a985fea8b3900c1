//! A definition as a tree of values that remember where each key and value was written.
//!
//! Leaves out: what the keys mean.
//!
//! Invariant: a table keeps its entries in the order of the file, then of the overrides, because
//! "the table before it" means something.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::error::{At, Problem};
use crate::codes::Code;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// Where it was written.
    pub(crate) at: At,
    /// What was written.
    pub(crate) value: Tree,
}

/// What can be written in a definition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    /// Text; a date or time, too, is the text that was written.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A finite number.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// `[…]`
    List(Vec<Node>),
    /// `{…}` or `[…]` and what stands below it.
    Table(Table),
}

impl Tree {
    /// What it is, with an article.
    pub(crate) fn described(&self) -> &'static str {
        match self {
            Tree::Text(_) => "a string",
            Tree::Integer(_) => "a whole number",
            Tree::Float(_) => "a fraction",
            Tree::Bool(_) => "a boolean",
            Tree::List(_) => "a list",
            Tree::Table(_) => "a table",
        }
    }
}

/// Keys and values in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// Where it was written first.
    pub(crate) key_at: At,
    /// What it stands for.
    pub(crate) node: Node,
}

impl Table {
    /// The entries in order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries in order, to be changed.
    pub(crate) fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// The entry of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    /// Appends an entry, or replaces what `key` stood for.
    pub(crate) fn insert(&mut self, key: &str, node: Node) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.key == key) {
            entry.node = node;
        } else {
            let key_at = node.at.clone();
            self.entries.push(Entry { key: key.to_owned(), key_at, node });
        }
    }

    /// Appends an entry whose key is not there yet.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// The table under `key`, made by `at` if nothing is there.
    ///
    /// # Errors
    /// What is there instead of a table.
    pub(crate) fn table_mut(&mut self, key: &str, at: &At) -> Result<&mut Table, &'static str> {
        if self.get(key).is_none() {
            self.insert(key, Node { at: at.clone(), value: Tree::Table(Table::default()) });
        }
        match self.entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.node.value) {
            Some(Tree::Table(table)) => Ok(table),
            Some(other) => Err(other.described()),
            None => Err("nothing"),
        }
    }
}

/// Parses a whole definition.
///
/// # Errors
/// Every place that is no TOML, or holds a number that no setting can take.
pub(crate) fn parse(text: &str) -> Result<Table, Vec<Problem>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors.iter().map(syntax).collect());
    }
    let mut problems = Vec::new();
    let tree = of_table(table.get_ref(), &At::File, &mut problems);
    if problems.is_empty() { Ok(tree) } else { Err(problems) }
}

/// Parses one value, as an override gives it.
///
/// # Errors
/// It is no TOML value (`Ok(None)`), or a number that no setting can take.
pub(crate) fn parse_value(text: &str, at: &At) -> Result<Option<Node>, Problem> {
    let (value, errors) = DeValue::parse_recoverable(text);
    if !errors.is_empty() {
        return Ok(None);
    }
    let mut problems = Vec::new();
    let value = of_value(value.get_ref(), &At::File(0..0), &|_| at.clone(), &mut problems);
    match problems.pop() {
        Some(problem) => Err(Problem { at: Some(at.clone()), ..problem }),
        None => Ok(Some(Node { at: at.clone(), value })),
    }
}

/// Turns a span of the parsed text into a place.
type ToAt<'a> = &'a dyn Fn(std::ops::Range<usize>) -> At;

fn syntax(error: &toml::de::Error) -> Problem {
    let message = format!("this is not TOML: {}", error.message());
    let at = error.span().map(At::File);
    let hint = match error.message() {
        "duplicate key" => Some("a key or table can be written once; merge the two".to_owned()),
        m if m.starts_with("string values must be quoted") => {
            Some("write text in quotes".to_owned())
        }
        _ => None,
    };
    Problem { code: Code::DefinitionSyntax, at, message, hint }
}

fn of_table(table: &DeTable<'_>, to_at: ToAt<'_>, problems: &mut Vec<Problem>) -> Table {
    let entry = |(key, node): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>),
                 problems: &mut Vec<Problem>| {
        let key_text: &std::borrow::Cow<'_, str> = key.get_ref();
        let at = to_at(node.span());
        let value = of_value(node.get_ref(), &at, to_at, problems);
        let key_at = to_at(key.span());
        Entry { key: key_text.clone().into_owned(), key_at, node: Node { at, value } }
    };
    let mut entries: Vec<Entry> = table.iter().map(|pair| entry(pair, problems)).collect();
    entries.sort_by_key(|e| e.key_at.order());
    Table { entries }
}

fn of_value(value: &DeValue<'_>, at: &At, to_at: ToAt<'_>, problems: &mut Vec<Problem>) -> Tree {
    match value {
        DeValue::String(text) => Tree::Text(text.clone().into_owned()),
        DeValue::Boolean(value) => Tree::Bool(*value),
        DeValue::Datetime(value) => Tree::Text(value.to_string()),
        DeValue::Integer(digits) => Tree::Integer(
            i64::from_str_radix(digits.as_str(), digits.radix()).unwrap_or_else(|_| {
                let message = format!("the number {digits} is too large");
                problems.push(Problem::new(at, message).hint("numbers end at 9223372036854775807"));
                0
            }),
        ),
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            Ok(value) if value.is_finite() => Tree::Float(value),
            _ => {
                let message =
                    format!("`{}` is not a number that a setting can take", digits.as_str());
                problems.push(Problem::new(at, message).hint("write a finite number"));
                Tree::Float(0.0)
            }
        },
        DeValue::Array(items) => {
            let item = |item: &toml::Spanned<DeValue<'_>>, problems: &mut Vec<Problem>| {
                let at = to_at(item.span());
                let value = of_value(item.get_ref(), &at, to_at, problems);
                Node { at, value }
            };
            Tree::List(items.iter().map(|i| item(i, problems)).collect())
        }
        DeValue::Table(table) => Tree::Table(of_table(table, to_at, problems)),
    }
}

impl Node {
    /// The value as JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.value {
            Tree::Text(text) => Value::String(text.clone()),
            Tree::Integer(number) => Value::from(*number),
            Tree::Float(number) => Value::from(*number),
            Tree::Bool(value) => Value::Bool(*value),
            Tree::List(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Tree::Table(table) => table.to_json(),
        }
    }

    /// Where the value that these keys lead to was written; the innermost that is there.
    pub(crate) fn find(&self, keys: &[String]) -> &At {
        let Some((key, rest)) = keys.split_first() else { return &self.at };
        match &self.value {
            Tree::Table(table) => match table.get(key) {
                Some(entry) => entry.node.find(rest),
                None => &self.at,
            },
            Tree::List(items) => {
                let item = key.parse().ok().and_then(|i: usize| items.get(i));
                item.map_or(&self.at, |item| item.find(rest))
            }
            _ => &self.at,
        }
    }
}

impl Table {
    /// The table as JSON.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.entries.iter().map(|e| (e.key.clone(), e.node.to_json())).collect())
    }
}
