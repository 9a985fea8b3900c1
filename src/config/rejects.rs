//! What a stage's table says of bad rows: `on_error` and `max_rejects`.
//!
//! Invariant: `on_error` decides what a dataset holds and is part of its identity; `max_rejects`
//! decides only whether there is one, and is not.

use serde_json::{Map, Value, json};

use super::error::Problem;
use super::read::{Reader, did_you_mean, wrong_type};
use super::tree::{Node, Tree};
use crate::batch::OnError;
use crate::books::MaxRejects;

/// What is done with the rows that fail in a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectPolicy {
    /// What becomes of each of them.
    pub on_error: OnError,
    /// How many there may be.
    pub max_rejects: MaxRejects,
}

impl RejectPolicy {
    /// How many rejects the stage may have: none, where a bad row ends the run.
    #[must_use]
    pub fn budget(self) -> MaxRejects {
        match self.on_error {
            OnError::Fail => MaxRejects::Rows(0),
            OnError::Quarantine => self.max_rejects,
        }
    }

    /// Adds what the cache key hashes to a stage's part of it: nothing, where a bad row ends the run.
    pub(super) fn identify(self, stage: &mut Value) {
        if let (OnError::Quarantine, Value::Object(stage)) = (self.on_error, stage) {
            stage.insert("on_error".to_owned(), json!(self.on_error));
        }
    }
}

/// Reads both keys.
pub(super) fn read(reader: &mut Reader<'_>, problems: &mut Vec<Problem>) -> RejectPolicy {
    let mut policy = RejectPolicy::default();
    match reader.text("on_error", problems) {
        Some(("fail", _)) => policy.on_error = OnError::Fail,
        Some(("quarantine", _)) => policy.on_error = OnError::Quarantine,
        Some((other, at)) => {
            let message = format!("`on_error` cannot be \"{}\"", other.escape_debug());
            let words = ["fail", "quarantine"].into_iter();
            let hint = did_you_mean(other, "`on_error` takes", words);
            problems.push(Problem::new(at, message).hint(hint));
        }
        None => {}
    }
    if let Some(entry) = reader.entry("max_rejects") {
        match max_rejects(&entry.node) {
            Ok(max) => policy.max_rejects = max,
            Err(problem) => problems.push(problem),
        }
    }
    policy
}

fn max_rejects(node: &Node) -> Result<MaxRejects, Problem> {
    const HINT: &str = "write a number of rows, 100, or a share of them, \"1%\" or 0.01";
    let wrong = || {
        let message = "`max_rejects` is no number of rows, and no share of them";
        Problem::new(&node.at, message).hint(HINT)
    };
    match &node.value {
        Tree::Integer(rows) => u64::try_from(*rows).map(MaxRejects::Rows).map_err(|_| wrong()),
        Tree::Float(share) => MaxRejects::of_share(*share).ok_or_else(wrong),
        Tree::Text(text) => {
            let percent = text.strip_suffix('%').map(str::trim_end);
            let percent = percent.filter(|text| text.starts_with(|c: char| c.is_ascii_digit()));
            let percent = percent.and_then(|text| text.parse::<f64>().ok());
            percent.and_then(|percent| MaxRejects::of_share(percent / 100.0)).ok_or_else(wrong)
        }
        _ => Err(wrong_type("max_rejects", "a number or a percentage", node).hint(HINT)),
    }
}

/// Both keys in the JSON Schema of definitions.
pub(super) fn schema() -> Map<String, Value> {
    let keys = json!({
        "on_error": {
            "enum": ["fail", "quarantine"],
            "default": "fail",
            "description": "What is done with a bad row: it ends the run, or is recorded as a reject.",
        },
        "max_rejects": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)? *%$"},
            ],
            "default": MaxRejects::DEFAULT_ROWS,
            "description": "How many rejects there may be in all, or which share of the rows of each partition and of the dataset. Not part of the dataset's identity.",
        },
    });
    match keys {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PLAIN, edited, read};
    use super::*;

    fn source_with(line: &str) -> String {
        edited("path =", &format!("on_error = \"quarantine\"\n{line}\npath ="))
    }

    #[test]
    fn a_budget_is_a_number_of_rows_or_a_share() {
        let share = |per_billion| MaxRejects::Share { per_billion };
        for (line, want) in [
            ("", MaxRejects::Rows(100)),
            ("max_rejects = 0", MaxRejects::Rows(0)),
            ("max_rejects = 1", MaxRejects::Rows(1)),
            ("max_rejects = 1.0", share(1_000_000_000)),
            ("max_rejects = 0.01", share(10_000_000)),
            ("max_rejects = \"1%\"", share(10_000_000)),
            ("max_rejects = \"0.5 %\"", share(5_000_000)),
        ] {
            let data = read(&source_with(line)).unwrap().data;
            let want = RejectPolicy { on_error: OnError::Quarantine, max_rejects: want };
            assert_eq!(data.sources[0].rejects, want, "{line}");
            assert_eq!(data.dataset.rejects, RejectPolicy::default());
        }
        for line in [
            "max_rejects = -1",
            "max_rejects = 1.5",
            "max_rejects = -0.5",
            "max_rejects = \"101%\"",
            "max_rejects = \"-1%\"",
            "max_rejects = \"nan%\"",
            "max_rejects = \"5\"",
            "max_rejects = true",
        ] {
            let error = read(&source_with(line)).unwrap_err().to_string();
            assert!(error.contains("`max_rejects`"), "{line}: {error}");
        }
        let error = read(&edited("path =", "on_error = \"quarantin\"\npath =")).unwrap_err();
        assert!(error.to_string().contains("did you mean `quarantine`?"), "{error}");
    }

    #[test]
    fn what_is_done_with_bad_rows_is_in_the_cache_key_and_how_many_is_not() {
        let key = |text: &str| read(text).unwrap().identity().cache_key;
        let quarantine = "on_error = \"quarantine\"\n";
        let mut keys = vec![key(PLAIN)];
        for table in ["[sources.lines]\n", "[transforms.upper]\n", "[dataset]\n"] {
            let with = |lines: &str| key(&edited(table, &format!("{table}{lines}")));
            assert_eq!(with("on_error = \"fail\"\nmax_rejects = 3\n"), keys[0], "{table}");
            let changed = with(quarantine);
            assert_eq!(with(&format!("{quarantine}max_rejects = 3\n")), changed, "{table}");
            assert!(!keys.contains(&changed), "{table}");
            keys.push(changed);
        }
    }
}
