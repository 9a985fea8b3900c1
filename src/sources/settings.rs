//! Reads a stage's settings into its own type, with errors that name the setting.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::SettingsError;

/// Reads a source's or transform's `settings` into its own type (null counts as no settings).
///
/// # Errors
/// They do not fit; names the setting and, of an unknown one, the nearest known.
pub fn parse<T: DeserializeOwned>(settings: &Value) -> Result<T, SettingsError> {
    let empty = Value::Object(serde_json::Map::new());
    let settings = if settings.is_null() { &empty } else { settings };
    let e = match serde_json::from_value::<T>(settings.clone()) {
        Ok(parsed) => return Ok(parsed),
        Err(e) => e.to_string(),
    };
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    if e.starts_with("unknown field") {
        let name = quoted(&e);
        let known = e.split('`').skip(3).step_by(2);
        let near = known.max_by(|a, b| {
            strsim::jaro_winkler(a, &name).total_cmp(&strsim::jaro_winkler(b, &name))
        });
        return Err(SettingsError {
            at: vec![name.clone()],
            message: format!("there is no setting `{name}` here"),
            hint: near.map(|near| format!("did you mean `{near}`?")),
        });
    }
    if e.starts_with("missing field") {
        let name = quoted(&e);
        return Err(SettingsError {
            at: Vec::new(),
            message: format!("the setting `{name}` is missing"),
            hint: None,
        });
    }
    Err(SettingsError { at: culprit::<T>(settings, &e), message: e, hint: None })
}

/// The setting that `error` is about: the one without which it does not arise.
fn culprit<T: DeserializeOwned>(settings: &Value, error: &str) -> Vec<String> {
    let Some(object) = settings.as_object() else { return Vec::new() };
    let is_to_blame = |name: &&String| {
        let mut rest = object.clone();
        rest.remove(*name);
        serde_json::from_value::<T>(Value::Object(rest))
            .err()
            .is_none_or(|e| e.to_string() != error)
    };
    object.keys().find(is_to_blame).into_iter().cloned().collect()
}

/// A number of bytes: a whole number, or a text with a unit as `"32MiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let bytes = match &value {
            Value::String(text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                text.parse().ok().map(|bytesize::ByteSize(bytes)| bytes)
            }
            other => other.as_u64(),
        };
        let refuse = || serde::de::Error::custom(format!("{value} is no size; write \"32MiB\""));
        bytes.filter(|bytes| (1..=1 << 60).contains(bytes)).map(Self).ok_or_else(refuse)
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1 << 20) {
            serializer.serialize_str(&format!("{}MiB", self.0 >> 20))
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl schemars::JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["integer", "string"] })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        #[serde(rename = "pattern")]
        _pattern: String,
        #[serde(default, rename = "rows")]
        _rows: u8,
    }

    #[test]
    fn errors_name_the_setting() {
        for (settings, at, message, hint) in [
            (json!({"patern": "x"}), vec!["patern"], "there is no setting `patern`", true),
            (json!({}), vec![], "the setting `pattern` is missing", false),
            (json!(null), vec![], "the setting `pattern` is missing", false),
            (json!({"pattern": "x", "rows": 300}), vec!["rows"], "invalid value", false),
            (json!({"pattern": 1}), vec!["pattern"], "invalid type", false),
        ] {
            let e = parse::<Settings>(&settings).unwrap_err();
            assert_eq!(e.at, at, "{settings}");
            assert!(e.message.starts_with(message), "{settings}: {e}");
            assert_eq!(e.hint.is_some(), hint, "{settings}");
        }
    }
}
