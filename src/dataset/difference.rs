//! What differs between two definitions, as the cache key hashes them.
//!
//! Invariant: equal definitions differ in nothing; every other pair in at least one setting.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

/// One setting in which two definitions differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Where it stands: `dataset.shard_bytes`, `transforms[1].version`.
    pub setting: String,
    /// What the old definition says, absent where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// What the new one says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

/// What differs between `old` and `new`, in the order of the settings' names.
#[must_use]
pub fn differences(old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(old), Some(new), &mut found);
    found
}

fn compare(at: &str, old: Option<&Value>, new: Option<&Value>, found: &mut Vec<Difference>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let dot = if at.is_empty() { "" } else { "." };
                compare(&format!("{at}{dot}{name}"), old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (i, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{at}[{i}]"), Some(old), Some(new), found);
            }
        }
        (old, new) => {
            found.push(Difference { setting: at.to_owned(), old: old.cloned(), new: new.cloned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_named_where_they_differ() {
        let old = json!({"a": {"b": 1, "gone": true}, "list": [1, {"x": 2}], "grown": [1], "c": 0});
        let new =
            json!({"a": {"b": 2, "come": []}, "list": [1, {"x": 3}], "grown": [1, 2], "c": 0});
        let found = differences(&old, &new);
        let text: Vec<_> = found
            .iter()
            .map(|it| {
                let said = |v: &Option<Value>| v.as_ref().map_or("-".into(), Value::to_string);
                format!("{}: {} -> {}", it.setting, said(&it.old), said(&it.new))
            })
            .collect();
        assert_eq!(
            text,
            [
                "a.b: 1 -> 2",
                "a.come: - -> []",
                "a.gone: true -> -",
                "grown: [1] -> [1,2]",
                "list[1].x: 2 -> 3"
            ]
        );
        assert_eq!(differences(&old, &old), []);
    }
}
