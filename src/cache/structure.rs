//! The structure of a section's rows: inferred on first write, then the same for ever.
//!
//! Invariants:
//! 1. A batch is stored if its columns would be inferred to the fields that are there: same names,
//!    dtypes, kinds, shapes and axes, in any order.
//! 2. One thing may differ: a column that could be null is taken by a field that is not nullable, and
//!    the other way round. A null in a field that is not nullable is an error that names its row.

use std::collections::BTreeMap;

use arrow_schema::Schema as ArrowSchema;

use super::error::{CacheError, Result};
use crate::schema::{Field, FieldSpec, Kind, RowSchema};

/// The structure of rows with these columns.
pub(super) fn infer(
    schema: &ArrowSchema,
    specs: &BTreeMap<String, FieldSpec>,
) -> Result<RowSchema> {
    let specs = specs.iter().map(|(name, spec)| {
        // What only a sealed shard has.
        (name.clone(), FieldSpec { sidecar: None, index: false, ..spec.clone() })
    });
    Ok(RowSchema::infer(schema, &specs.collect(), None)?)
}

/// Checks that rows of the structure `found` can be stored as `locked`.
pub(super) fn check(locked: &RowSchema, found: &RowSchema) -> Result<()> {
    let differ = |field: &str, expected: String, found: String| {
        Err(CacheError::Structure { field: field.to_owned(), expected, found })
    };
    for field in locked.fields() {
        match found.field(&field.name) {
            None => return differ(&field.name, say(field), "no such column".to_owned()),
            Some(other) if what_counts(field) != what_counts(other) => {
                return differ(&field.name, say(field), say(other));
            }
            Some(_) => {}
        }
    }
    match found.fields().iter().find(|field| locked.field(&field.name).is_none()) {
        Some(field) => differ(&field.name, "no such field".to_owned(), say(field)),
        None => Ok(()),
    }
}

/// What decides how a value is stored, but for names of files and nulls.
fn what_counts(field: &Field) -> impl PartialEq {
    // An axis of the field's own is named after its file.
    let shared = field.axis.as_ref().filter(|axis| **axis != field.stem).cloned();
    let Field { kind, dtype, shape, logical, categories, .. } = field.clone();
    (kind, dtype, shape, logical, categories, shared)
}

/// A field, for people: `float32[3]`, `ragged int64 on axis "edges"`.
fn say(field: &Field) -> String {
    let mut text = match &field.logical {
        Some(logical) => logical.name().to_owned(),
        None => field.dtype.name().to_owned(),
    };
    match field.kind {
        Kind::Free => text = format!("{text} of any shape of rank {}", field.shape.len()),
        _ if field.shape.is_empty() => {}
        _ => {
            let shape: Vec<_> = field.shape.iter().map(ToString::to_string).collect();
            text = format!("{text}[{}]", shape.join(", "));
        }
    }
    if field.kind == Kind::Ragged && !field.is_bytes() || field.kind == Kind::Interned {
        text = format!("{} {text}", field.kind.name());
    }
    match field.axis.as_ref().filter(|axis| **axis != field.stem) {
        Some(axis) => format!("{text} on axis `{axis}`"),
        None => text,
    }
}
