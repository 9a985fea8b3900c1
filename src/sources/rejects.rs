//! What becomes of a bad row: an error that ends the run, or a reject that stands in its place.
//!
//! Leaves out: how many rejects are too many, which is judged where partitions end.
//!
//! Invariants:
//! 1. A reject's code and message depend on the row's bytes and the definition alone: no text of the
//!    system's, no path and no offset that depends on where reading began.
//! 2. Only [`SourceError::Row`] can become a reject. What the system refuses, an input that changed
//!    and what is wrong with the whole source always end the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SourceError;
use crate::batch::{Event, Outcome};

/// Code of a reject that stands for a row and all that follow it in its input, because they cannot
/// be read.
pub const INPUT_DAMAGED: &str = "input_damaged";
/// Code of a row whose values have more bytes than `max_row_bytes` allows.
pub const ROW_TOO_LARGE: &str = "row_too_large";
/// Code of a text that is not UTF-8.
pub const NOT_UTF8: &str = "not_utf8";
/// Code of a value that its column's type cannot hold.
pub const VALUE_MISFIT: &str = "value_misfit";

/// Most characters of a reject's message; what is longer is cut off.
const MESSAGE_CHARS: usize = 500;

/// What is done with a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
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

    /// The error that names the row: `at` is where in the input it stands, "row 12" or "line 3".
    #[must_use]
    pub fn into_error(self, path: &str, at: impl Into<String>) -> SourceError {
        SourceError::Row { path: path.to_owned(), at: at.into(), bad: self }
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

/// Where a bad row would stand in the batch that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRowAt {
    /// Rows of the batch before it.
    pub before_row: u64,
    /// Index of the input in its partition.
    pub input: u32,
    /// Its source row.
    pub source_row: u64,
}

impl OnError {
    /// The event that stands for a bad row, if the definition says so and `error` is about a row. The
    /// reader puts it into the batch's events and goes on with the next row, or with the next input
    /// after [`INPUT_DAMAGED`]. A reject counts as a row of the batch: it may be all that a batch
    /// holds, and a batch that begins with one has its restart there.
    ///
    /// # Errors
    /// `error`, where it ends the run.
    pub fn settle(self, error: SourceError, at: BadRowAt) -> Result<Event, SourceError> {
        match (self, error) {
            (Self::Quarantine, SourceError::Row { bad, .. }) => Ok(Event {
                before_row: at.before_row,
                input: at.input,
                source_row: at.source_row,
                path: Vec::new(),
                stage: 0,
                outcome: bad.into_outcome(),
            }),
            (_, error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: BadRowAt = BadRowAt { before_row: 2, input: 1, source_row: 7 };

    #[test]
    fn a_bad_row_is_an_error_or_a_reject_with_the_same_words() {
        let bad = || BadRow::new(VALUE_MISFIT, "`x` is no int8").field("age").hint("say why");
        let error = || bad().into_error("a.csv", "line 3, row 7");
        let refused = OnError::Fail.settle(error(), AT).unwrap_err();
        assert_eq!(refused.to_string(), "`a.csv`, line 3, row 7, field `age`: `x` is no int8");
        assert_eq!(refused.hint(), Some("say why"));
        let event = OnError::Quarantine.settle(error(), AT).unwrap();
        let message = "field `age`: `x` is no int8".to_owned();
        let outcome = Outcome::Rejected { code: "value_misfit".to_owned(), message };
        let want =
            Event { before_row: 2, input: 1, source_row: 7, path: vec![], stage: 0, outcome };
        assert_eq!(event, want);
    }

    #[test]
    fn only_what_is_wrong_with_a_row_becomes_a_reject() {
        let path = || "a".to_owned();
        let source = std::io::ErrorKind::Other.into();
        for error in [
            SourceError::Io { path: path(), source },
            SourceError::Changed { path: path() },
            SourceError::Invalid { path: path(), at: path(), message: path(), hint: None },
        ] {
            assert!(OnError::Quarantine.settle(error, AT).is_err());
        }
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let bad = BadRow::new(NOT_UTF8, "é".repeat(MESSAGE_CHARS + 1));
        let Outcome::Rejected { message, .. } = bad.into_outcome() else { panic!() };
        assert_eq!(message, "é".repeat(MESSAGE_CHARS));
    }
}
