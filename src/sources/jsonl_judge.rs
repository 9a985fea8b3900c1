//! What is wrong with the row of JSON that is being read.
//!
//! Leaves out: reading it (`jsonl_read`, `jsonl_checked`).
//!
//! Invariants:
//! 1. No text of the parser's becomes part of a bad row's message, only of its hint.

use serde::de::Error;

use super::jsonl_names::{Room, Wrong};
use super::value_type::{Misfit, ValueType};
use super::{BadRow, ROW_TOO_LARGE, VALUE_MISFIT};

/// Code of a line that is no JSON object.
pub(super) const NOT_JSON: &str = "not_json";
/// Code of an object with a key twice.
pub(super) const REPEATED_KEY: &str = "repeated_key";
/// Code of a key that no column has.
pub(super) const UNKNOWN_KEY: &str = "unknown_key";

/// What is known of the row that is being read.
#[derive(Debug)]
pub(super) struct Judge {
    /// What is wrong with it, where the parser does not know.
    bad: Option<BadRow>,
    /// Keys that lead to the value at fault, innermost first.
    pub(super) path: Vec<String>,
    /// Bytes of its values, and how many there may be.
    pub(super) n_bytes: usize,
    most_bytes: usize,
    /// Room for the names of keys that have no column.
    pub(super) names: Room,
    pub(super) ignores_unknown: bool,
}

impl Judge {
    /// Of rows whose values have up to `most_bytes`.
    pub(super) fn new(most_bytes: usize, ignores_unknown: bool) -> Self {
        let names = Room::new(most_bytes);
        Self { bad: None, path: Vec::new(), n_bytes: 0, most_bytes, names, ignores_unknown }
    }

    /// Forgets the row before.
    pub(super) fn begin(&mut self) {
        self.bad = None;
        self.path.clear();
        self.n_bytes = 0;
        self.names.clear();
    }

    pub(super) fn refuse<E: Error>(&mut self, bad: BadRow) -> E {
        self.bad = Some(bad);
        E::custom("refused")
    }

    pub(super) fn misfit<E: Error>(&mut self, why: Misfit, shown: &str, kind: ValueType) -> E {
        let shown: String = shown.chars().take(40).collect();
        self.refuse(BadRow::new(VALUE_MISFIT, why.message(&shown, kind)))
    }

    pub(super) fn no<E: Error>(&mut self, shown: &str, kind: &str) -> E {
        self.refuse(BadRow::new(VALUE_MISFIT, format!("{shown} is no {kind}")))
    }

    /// Counts bytes of a value.
    pub(super) fn add<E: Error>(&mut self, n_bytes: usize) -> Result<(), E> {
        self.n_bytes += n_bytes;
        if self.n_bytes <= self.most_bytes {
            return Ok(());
        }
        let bad = BadRow::new(ROW_TOO_LARGE, "the row is larger than `max_row_bytes` allows");
        Err(self.refuse(bad.hint("raise `max_row_bytes` of [dataset]")))
    }

    /// Refuses the names of an object's keys, `name` the last of them if that is known.
    pub(super) fn refuse_names<E: Error>(&mut self, wrong: &Wrong, name: Option<&str>) -> E {
        match (wrong, name) {
            (Wrong::Twice, Some(name)) => self.refuse(duplicate(name)),
            (Wrong::Twice, None) => {
                let bad = BadRow::new(REPEATED_KEY, "a key stands twice in an object of many");
                self.refuse(bad.hint("keep one of the two"))
            }
            (Wrong::TooMany, _) => {
                let message = "its objects have more keys than `max_row_bytes` allows";
                let bad = BadRow::new(ROW_TOO_LARGE, message);
                self.refuse(bad.hint("raise `max_row_bytes` of [dataset]: 16 bytes for each key"))
            }
        }
    }

    /// What is wrong, after the parser gave up with `e`.
    pub(super) fn bad_row(&mut self, e: &serde_json::Error) -> BadRow {
        let text = e.to_string();
        let detail = text.split(" at line ").next().unwrap_or_default().to_owned();
        let path = std::mem::take(&mut self.path);
        let of_field = |bad: BadRow| {
            let path: Vec<&str> = path.iter().rev().map(String::as_str).collect();
            let bad = if path.is_empty() { bad } else { bad.field(path.join(".")) };
            match bad {
                bad if bad.hint.is_some() => bad,
                bad => {
                    let name = bad.field.clone().unwrap_or_default();
                    let hint = format!(
                        "declare another type in `types`, such as {{ {name:?} = \"json\" }}"
                    );
                    bad.hint(hint)
                }
            }
        };
        match self.bad.take() {
            Some(bad) => of_field(bad),
            // Of the parser's own errors, those that its classes do not tell apart.
            None if detail.starts_with("number out of range") => {
                let bad = BadRow::new(VALUE_MISFIT, "a number is too large for a float");
                of_field(bad.hint("write it as text, or correct it"))
            }
            None if detail.starts_with("recursion limit") => {
                of_field(BadRow::new(NOT_JSON, "nested more than 127 deep").hint("nest it less"))
            }
            None if e.is_data() => of_field(BadRow::new(VALUE_MISFIT, "the value is no float32")),
            None if e.is_eof() => {
                let message = format!("the JSON ends too early, at column {}", e.column());
                BadRow::new(NOT_JSON, message).hint("a line holds one whole object")
            }
            None => {
                let message = format!("it is not JSON from column {} on", e.column());
                BadRow::new(NOT_JSON, message).hint(format!("{detail}; a line holds one object"))
            }
        }
    }
}

pub(super) fn no_object() -> BadRow {
    BadRow::new(NOT_JSON, "the line is no object").hint("a line holds one object, `{\"a\": 1}`")
}

pub(super) fn duplicate(name: &str) -> BadRow {
    let name: String = name.chars().take(80).collect();
    BadRow::new(REPEATED_KEY, format!("the key `{name}` stands twice in an object"))
        .hint("keep one of the two")
}

pub(super) fn unknown_key(name: &str) -> BadRow {
    let name: String = name.chars().take(80).collect();
    let hint = format!(
        "declare it in `types`, such as {{ {name:?} = \"json\" }}, or set `extra = \"ignore\"`"
    );
    BadRow::new(UNKNOWN_KEY, format!("no column is called `{name}`")).hint(hint)
}
