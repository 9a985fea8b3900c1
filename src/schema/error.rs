//! What can be wrong with a schema, a batch or a value.

/// A schema that cannot be, or a batch or value that does not fit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A field cannot be laid out: its column has no layout, or the definition contradicts it.
    #[error("field `{field}`: {message}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A batch has other columns or types than the schema was made for.
    #[error("column `{column}`: {message}")]
    Batch {
        /// The column.
        column: String,
        /// What is wrong.
        message: String,
    },
    /// A value is not what its field holds. The row can be rejected and the others kept.
    #[error("row {row}, field `{field}`: {message}")]
    Value {
        /// Row of the batch, from 0.
        row: usize,
        /// The field.
        field: String,
        /// Stable code of ours.
        code: &'static str,
        /// What is wrong: no text of the system's.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A document is no schema that this version reads.
    #[error("schema: {message}")]
    Document {
        /// What is wrong, and where.
        message: String,
    },
}

impl SchemaError {
    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            SchemaError::Field { hint, .. } | SchemaError::Value { hint, .. } => hint.as_deref(),
            SchemaError::Batch { .. } => {
                Some("every batch of a dataset has the columns that were found when it was planned")
            }
            SchemaError::Document { .. } => {
                Some("the folder is not of this version, or was changed; `verify` tells which")
            }
        }
    }

    pub(super) fn field(field: &str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Field { field: field.into(), message: message.into(), hint }
    }

    pub(super) fn batch(column: &str, message: impl Into<String>) -> Self {
        Self::Batch { column: column.into(), message: message.into() }
    }

    pub(super) fn document(message: impl Into<String>) -> Self {
        Self::Document { message: message.into() }
    }
}
