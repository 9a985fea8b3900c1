//! What becomes of a bad row that a reader finds: an error that ends the run, or a reject that stands
//! in its place.
//!
//! Invariant: only [`SourceError::Row`] can become a reject. What the system refuses, an input that
//! changed and what is wrong with the whole source always end the run.

use super::{BadRow, OnError, SourceError};
use crate::batch::Event;

impl BadRow {
    /// The error that names the row: `at` is where in the input it stands, "row 12" or "line 3".
    #[must_use]
    pub fn into_error(self, path: &str, at: impl Into<String>) -> SourceError {
        SourceError::Row { path: path.to_owned(), at: at.into(), bad: Box::new(self) }
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
    /// after [`INPUT_DAMAGED`](crate::sources::INPUT_DAMAGED). A reject counts as a row of the batch:
    /// it may be all that a batch holds, and a batch that begins with one has its restart there.
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
    use super::super::VALUE_MISFIT;
    use super::*;
    use crate::batch::Outcome;

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
}
