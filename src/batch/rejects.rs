//! What is wrong with a row, and what is done about it.
//!
//! Leaves out: how many rejects are too many (`books`).
//!
//! Invariant: a reject's code and message depend on the row and the definition alone. No text of the
//! system's, no path, and no number that depends on how rows were batched or where reading began.

use serde::{Deserialize, Serialize};

use super::Outcome;

/// Code of a reject that stands for a row and all that follow it in its input, because they cannot
/// be read.
pub const INPUT_DAMAGED: &str = "input_damaged";
/// Code of a row whose values have more bytes than `max_row_bytes` allows.
pub const ROW_TOO_LARGE: &str = "row_too_large";
/// Code of a text that is not UTF-8.
pub const NOT_UTF8: &str = "not_utf8";
/// Code of a value that its column's type cannot hold.
pub const VALUE_MISFIT: &str = "value_misfit";

/// Code of a row with which the process of a hook ended.
pub const HOOK_DIED: &str = "hook_died";
/// Code of a row on which a hook raised an exception.
pub const HOOK_RAISED: &str = "hook_raised";
/// Code of a row to which a hook gave no answer in time.
pub const HOOK_TIMEOUT: &str = "hook_timeout";
/// Code of a row for which a hook took more memory than it may.
pub const HOOK_MEMORY: &str = "hook_memory";

/// Whether a reject with this code stands for a row that a hook did not answer: asked again, it may.
#[must_use]
pub fn is_unanswered(code: &str) -> bool {
    [HOOK_DIED, HOOK_RAISED, HOOK_TIMEOUT, HOOK_MEMORY].contains(&code)
}

/// Most characters of a reject's message; what is longer is cut off.
const MESSAGE_CHARS: usize = 500;

/// What is done with a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "run", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// It is an error, and the run ends.
    #[default]
    Fail,
    /// It is recorded as a reject, and the run goes on with the next row.
    Quarantine,
}

/// What is wrong with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// A stable word for this kind of bad row, such as `value_misfit`.
    pub code: &'static str,
    /// The column, where it is one column's fault.
    pub field: Option<String>,
    /// What is wrong, in our words.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl BadRow {
    /// A row that is bad for the reason that `code` stands for.
    #[must_use]
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, field: None, message: message.into(), hint: None }
    }

    /// The same, with the column that is at fault.
    #[must_use]
    pub fn field(self, name: impl Into<String>) -> Self {
        Self { field: Some(name.into()), ..self }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The reject that is kept of the row.
    #[must_use]
    pub fn into_outcome(self) -> Outcome {
        let message = self.to_string();
        let end = message.char_indices().nth(MESSAGE_CHARS).map_or(message.len(), |(at, _)| at);
        let message = message.get(..end).unwrap_or_default().to_owned();
        Outcome::Rejected { code: self.code.to_owned(), message }
    }
}

impl std::fmt::Display for BadRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.field {
            Some(field) => write!(f, "field `{field}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// A bad row after the words that say where it stands: ", field `age`: `x` is no int8".
#[cfg(feature = "run")]
pub(crate) struct Behind<'a>(pub(crate) &'a BadRow);

#[cfg(feature = "run")]
impl std::fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.field {
            Some(field) => write!(f, ", field `{field}`: {}", self.0.message),
            None => write!(f, ": {}", self.0.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let bad = BadRow::new(NOT_UTF8, "é".repeat(MESSAGE_CHARS + 1));
        let Outcome::Rejected { message, .. } = bad.into_outcome() else { panic!() };
        assert_eq!(message, "é".repeat(MESSAGE_CHARS));
    }
}
