//! The columns that a hook answers with: declared, or learned from its answer to the first rows.
//!
//! Leaves out: which rows these are, and how long what was learned holds (`pipeline`).
//!
//! Invariants:
//! 1. What is learned could have been declared, and is then in nothing different from what was: columns stand
//!    in the order of their names, whatever the order of the answer.
//! 2. What the first answer does not tell is refused, never guessed; but for nulls: a column may have them
//!    if it has some there.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, Schema};

use super::HookError;
use super::answer::type_text;

/// The extension type of JSON.
const JSON: &str = "arrow.json";
/// What to do where nothing is learned.
const DECLARE: &str = "declare the columns: output.x = { dtype = \"float32\" }";

/// The columns of a hook; none where they are still to be learned.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) fields: Vec<Field>,
    /// The input that they were learned from, where the definition leaves them out.
    pub(super) learned_from: Option<String>,
}

impl Columns {
    /// Those of the definition.
    pub(super) fn declared(fields: Vec<Field>) -> Self {
        Self { fields, learned_from: None }
    }

    /// Those that were learned from the input at `path`.
    pub(super) fn learned(schema: &Schema, path: &str) -> Self {
        let fields = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        Self { fields, learned_from: Some(path.to_owned()) }
    }
}

/// The columns of a first answer, as they would be declared.
pub(super) fn learn(answer: &RecordBatch) -> Result<Vec<Field>, HookError> {
    if answer.num_columns() == 0 {
        return Err(unlearned("it answered with none"));
    }
    let mut learned: Vec<Field> = Vec::with_capacity(answer.num_columns());
    for (field, column) in answer.schema().fields().iter().zip(answer.columns()) {
        let (name, came) = (field.name(), field.data_type());
        if learned.iter().any(|known| known.name() == name) {
            return Err(unlearned(&format!("it answered with two that are called `{name}`")));
        }
        if *came == DataType::Null {
            return Err(unlearned(&format!("there is no value in `{name}` yet")));
        }
        let kind = declarable(came).ok_or_else(|| {
            unlearned(&format!("`{name}` is {}, as no column is declared", type_text(came)))
        })?;
        let is_json = kind == DataType::LargeUtf8
            && field.metadata().get(EXTENSION_TYPE_NAME_KEY).is_some_and(|it| it == JSON);
        let known = Field::new(name, kind, column.null_count() > 0);
        learned.push(if is_json {
            known.with_metadata([(EXTENSION_TYPE_NAME_KEY.to_owned(), JSON.to_owned())])
        } else {
            known
        });
    }
    learned.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(learned)
}

/// Why nothing is learned.
pub(super) fn unlearned(why: &str) -> HookError {
    HookError::misfit(format!("its columns cannot be learned: {why}"), DECLARE)
}

/// A type as it would be declared, if it can be.
fn declarable(came: &DataType) -> Option<DataType> {
    match came {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::LargeUtf8),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Some(DataType::LargeBinary)
        }
        DataType::List(item) | DataType::LargeList(item) => {
            let item = Field::new_list_field(fixed(item.data_type())?, false);
            Some(DataType::LargeList(Arc::new(item)))
        }
        other => fixed(other),
    }
}

/// The same for a scalar, or an array whose shape is that of all rows.
fn fixed(came: &DataType) -> Option<DataType> {
    match came {
        DataType::FixedSizeList(item, n) if *n > 0 => {
            let item = Field::new_list_field(fixed(item.data_type())?, false);
            Some(DataType::FixedSizeList(Arc::new(item), *n))
        }
        DataType::Boolean | DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            Some(came.clone())
        }
        other if other.is_integer() => Some(other.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_array::{ArrayRef, new_empty_array, new_null_array};

    use super::super::settings::{OutputSettings, declarations};
    use super::*;

    fn item(kind: DataType) -> Arc<Field> {
        Arc::new(Field::new("element", kind, true))
    }

    fn answer(columns: &[(&str, ArrayRef)]) -> RecordBatch {
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
            .collect();
        let columns: Vec<_> = columns.iter().map(|(_, column)| Arc::clone(column)).collect();
        let schema = Arc::new(Schema::new(fields));
        if columns.is_empty() {
            return RecordBatch::new_empty(schema);
        }
        RecordBatch::try_new(schema, columns).unwrap()
    }

    #[test]
    fn what_is_learned_is_what_could_have_been_declared() {
        let matrix =
            DataType::FixedSizeList(item(DataType::FixedSizeList(item(DataType::Float16), 3)), 2);
        let kinds = [
            ("a", DataType::Boolean),
            ("b", DataType::UInt16),
            ("c", DataType::Float64),
            ("d", DataType::Utf8),
            ("e", DataType::BinaryView),
            ("f", matrix.clone()),
            ("g", DataType::List(item(DataType::Int8))),
            ("h", DataType::LargeList(item(matrix))),
        ];
        let columns: Vec<_> =
            kinds.iter().rev().map(|(name, kind)| (*name, new_empty_array(kind))).collect();
        let learned = learn(&answer(&columns)).unwrap();
        let names: Vec<_> = learned.iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f", "g", "h"]);
        let declared: BTreeMap<String, OutputSettings> =
            serde_json::from_value(declarations(&learned)).unwrap();
        for (field, (name, settings)) in learned.iter().zip(&declared) {
            assert_eq!(*field, settings.field(name).unwrap(), "{name}");
        }
        let absent = learn(&answer(&[("x", new_null_array(&DataType::Int8, 2))])).unwrap();
        assert!(absent.first().unwrap().is_nullable());
    }

    #[test]
    fn what_is_not_told_is_refused() {
        let of = |kind: DataType| vec![("x", new_empty_array(&kind))];
        let lists = DataType::LargeList(item(DataType::LargeList(item(DataType::Int8))));
        let seconds = DataType::Timestamp(arrow_schema::TimeUnit::Second, None);
        let nothing = DataType::FixedSizeList(item(DataType::Int8), 0);
        let twice = [of(DataType::Int8), of(DataType::Int8)].concat();
        for (columns, want) in [
            (vec![], "it answered with none"),
            (twice, "it answered with two that are called `x`"),
            (of(DataType::Null), "there is no value in `x` yet"),
            (of(lists), "`x` is int8[n, n], as no column is declared"),
            (of(seconds), "`x` is timestamp(s), as no column is declared"),
            (of(nothing), "`x` is int8[0], as no column is declared"),
            (of(DataType::List(item(DataType::Utf8))), "`x` is utf8[n], as no column is declared"),
        ] {
            let error = learn(&answer(&columns)).unwrap_err();
            assert_eq!(error.to_string(), format!("its columns cannot be learned: {want}"));
        }
    }
}
