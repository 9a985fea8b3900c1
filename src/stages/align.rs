//! Gives the rows of several sources the same columns.
//!
//! Invariants:
//! 1. Only the order of columns is changed, how a column is laid out in memory, and what may be null in
//!    one source may be null in all; values stay as they are.
//! 2. Types are common to sources where every value of one is a value of the other and is stored alike:
//!    texts, bytes and lists with offsets of either width, views of them, and dictionaries.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::batch::Batch;

/// Two sources whose rows cannot stand in one table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("sources `{first}` and `{other}` have different columns: {difference}")]
pub struct Misaligned {
    /// The first source.
    pub first: String,
    /// The one that differs from it.
    pub other: String,
    /// The first difference.
    pub difference: String,
}

/// The columns of the first source, in its order, which all the others have to have with types that
/// mean the same. There is at least one.
///
/// # Errors
/// The first column in which another source differs.
pub fn common_columns(sources: &[(&str, &SchemaRef)]) -> Result<SchemaRef, Misaligned> {
    let Some(((first, columns), others)) = sources.split_first() else {
        return Ok(Arc::new(Schema::empty()));
    };
    let mut fields: Vec<Field> = columns.fields().iter().map(|f| f.as_ref().clone()).collect();
    for (other, theirs) in others {
        let misaligned = |difference| Misaligned {
            first: (*first).to_owned(),
            other: (*other).to_owned(),
            difference,
        };
        for field in &mut fields {
            let name = field.name();
            let Ok(their) = theirs.field_with_name(name) else {
                return Err(misaligned(format!("`{other}` has no column `{name}`")));
            };
            let Some(common) = common_field(field, their) else {
                let (mine, theirs) = (shown(field), shown(their));
                return Err(misaligned(format!(
                    "`{name}` is {mine} in `{first}` and {theirs} in `{other}`"
                )));
            };
            *field = common;
        }
        let extra = theirs.fields().iter().find(|f| columns.field_with_name(f.name()).is_err());
        if let Some(extra) = extra {
            let name = extra.name();
            return Err(misaligned(format!("`{first}` has no column `{name}`")));
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The first field with a type that has all values of both, if they mean the same.
fn common_field(first: &Field, other: &Field) -> Option<Field> {
    let extension = |field: &Field| field.metadata().get(EXTENSION_TYPE_NAME_KEY).cloned();
    if extension(first) != extension(other) {
        return None;
    }
    let kind = common_type(first.data_type(), other.data_type())?;
    let is_nullable = first.is_nullable() || other.is_nullable();
    Some(first.clone().with_data_type(kind).with_nullable(is_nullable))
}

fn common_type(first: &DataType, other: &DataType) -> Option<DataType> {
    use DataType::{Dictionary, FixedSizeList, LargeBinary, LargeList, LargeUtf8, Struct};
    if first == other {
        return Some(first.clone());
    }
    let common = match (first, other) {
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => {
            common_type(values, other)?
        }
        (first, other) if is_text(first) && is_text(other) => LargeUtf8,
        (first, other) if is_binary(first) && is_binary(other) => LargeBinary,
        (FixedSizeList(first, n), FixedSizeList(other, m)) if n == m => {
            FixedSizeList(Arc::new(common_field(first, other)?), *n)
        }
        (Struct(first), Struct(other)) if first.len() == other.len() => {
            let pairs = first.iter().zip(other);
            let common = pairs.map(|(first, other)| {
                (first.name() == other.name()).then(|| common_field(first, other)).flatten()
            });
            Struct(common.collect::<Option<Vec<_>>>()?.into())
        }
        (first, other) => LargeList(Arc::new(common_field(entry(first)?, entry(other)?)?)),
    };
    (can_cast_types(first, &common) && can_cast_types(other, &common)).then_some(common)
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(kind: &DataType) -> bool {
    matches!(kind, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// The entries of lists of any length.
fn entry(kind: &DataType) -> Option<&Field> {
    match kind {
        DataType::List(entry)
        | DataType::LargeList(entry)
        | DataType::ListView(entry)
        | DataType::LargeListView(entry) => Some(entry),
        _ => None,
    }
}

/// A type as definitions name it, where they do.
fn shown(field: &Field) -> String {
    if let Some(extension) = field.metadata().get(EXTENSION_TYPE_NAME_KEY) {
        return extension.trim_start_matches("arrow.").to_owned();
    }
    match field.data_type() {
        DataType::Dictionary(_, values) => shown(&Field::new("", (**values).clone(), true)),
        kind if is_text(kind) => "utf8".to_owned(),
        kind if is_binary(kind) => "binary".to_owned(),
        kind if kind.is_nested() => kind.to_string(),
        kind => kind.to_string().to_lowercase(),
    }
}

/// Brings the batches of one source to the columns that all sources have.
#[derive(Debug)]
pub struct Alignment {
    columns: SchemaRef,
    /// For each of them, its place in the source's own batches.
    places: Vec<usize>,
}

impl Alignment {
    /// From a source's `own` columns to the `common` ones; `None` where these are the same.
    ///
    /// # Errors
    /// A common column that the source does not have.
    pub fn new(own: &SchemaRef, common: &SchemaRef) -> Result<Option<Self>, ArrowError> {
        if own.fields() == common.fields() {
            return Ok(None);
        }
        let places = common.fields().iter().map(|field| own.index_of(field.name()));
        let places = places.collect::<Result<_, _>>()?;
        Ok(Some(Self { columns: Arc::clone(common), places }))
    }

    /// The batch with the common columns.
    ///
    /// # Errors
    /// A batch that has not the source's own columns.
    pub fn apply(&self, batch: Batch) -> Result<Batch, ArrowError> {
        let rows = batch.rows.project(&self.places)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let options_of_cast = CastOptions { safe: false, ..CastOptions::default() };
        let columns = rows.columns().iter().zip(self.columns.fields()).map(|(column, field)| {
            if column.data_type() == field.data_type() {
                return Ok(Arc::clone(column));
            }
            cast_with_options(column, field.data_type(), &options_of_cast)
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options)?;
        Ok(Batch { rows, ..batch })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::batch::{Provenance, Restart};
    use arrow_array::types::{Float32Type, Int8Type};
    use arrow_array::{
        Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, LargeListArray,
        LargeStringArray, ListArray, StringArray, StringViewArray, StructArray,
    };

    fn columns(fields: &[(&str, DataType, bool)]) -> SchemaRef {
        let field = |(name, kind, is_nullable): &(&str, DataType, bool)| {
            Field::new(*name, kind.clone(), *is_nullable)
        };
        Arc::new(Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
    }

    #[test]
    fn sources_have_the_same_columns_in_any_order_or_the_first_difference_is_named() {
        let (int, text) = (DataType::Int64, DataType::Utf8);
        let first = columns(&[("n", int.clone(), false), ("t", text.clone(), false)]);
        for (name, other, want) in [
            ("the same", vec![("n", int.clone(), false), ("t", text.clone(), false)], Ok(false)),
            (
                "another order",
                vec![("t", text.clone(), false), ("n", int.clone(), false)],
                Ok(false),
            ),
            ("nullable", vec![("n", int.clone(), true), ("t", text.clone(), false)], Ok(true)),
            ("one missing", vec![("t", text.clone(), false)], Err("`b` has no column `n`")),
            (
                "one more",
                vec![
                    ("x", int.clone(), true),
                    ("n", int.clone(), false),
                    ("t", text.clone(), false),
                ],
                Err("`a` has no column `x`"),
            ),
            (
                "another type",
                vec![("n", text.clone(), true), ("t", text.clone(), false)],
                Err("`n` is int64 in `a` and utf8 in `b`"),
            ),
        ] {
            let found = common_columns(&[("a", &first), ("b", &columns(&other))]);
            match (found, want) {
                (Ok(common), Ok(is_nullable)) => {
                    let want =
                        columns(&[("n", int.clone(), is_nullable), ("t", text.clone(), false)]);
                    assert_eq!(common, want, "{name}");
                }
                (Err(error), Err(difference)) => {
                    assert_eq!(error.difference, difference, "{name}");
                    let text = error.to_string();
                    assert!(text.starts_with("sources `a` and `b` have different columns: "));
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn batches_get_the_common_columns_and_keep_their_values() {
        let common = columns(&[("n", DataType::Int64, true), ("t", DataType::Utf8, false)]);
        let own = columns(&[("t", DataType::Utf8, false), ("n", DataType::Int64, false)]);
        assert!(Alignment::new(&common, &common).unwrap().is_none());
        let texts = Arc::new(StringArray::from(vec!["a", "b"]));
        let numbers = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = Batch {
            rows: RecordBatch::try_new(Arc::clone(&own), vec![texts as _, numbers as _]).unwrap(),
            provenance: Provenance::of_input(0, 0, 2),
            events: Vec::new(),
            restart: Restart::default(),
        };
        let aligned = Alignment::new(&own, &common).unwrap().unwrap().apply(batch.clone()).unwrap();
        assert_eq!(aligned.rows.schema(), common);
        assert_eq!(aligned.rows.column(0), batch.rows.column(1));
        assert_eq!(aligned.rows.column(1), batch.rows.column(0));
        assert_eq!(aligned.provenance, batch.provenance);
    }

    #[test]
    fn types_that_mean_the_same_are_one_and_values_stay_as_they_are() {
        let texts = || vec![Some("a"), None, Some("ü")];
        let text: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(texts())),
            Arc::new(LargeStringArray::from(texts())),
            Arc::new(StringViewArray::from(texts())),
            Arc::new(texts().into_iter().collect::<DictionaryArray<Int8Type>>()),
        ];
        let numbers = || [Some(vec![Some(0.5), None]), None, Some(Vec::new())];
        let lists: Vec<ArrayRef> = vec![
            Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(numbers())),
            Arc::new(LargeListArray::from_iter_primitive::<Float32Type, _, _>(numbers())),
        ];
        let pairs: Vec<ArrayRef> = text
            .iter()
            .map(|text| {
                let entry = Arc::new(Field::new("entry", text.data_type().clone(), true));
                let list = FixedSizeListArray::try_new(entry, 1, Arc::clone(text), None).unwrap();
                let field = Arc::new(Field::new("list", list.data_type().clone(), false));
                Arc::new(StructArray::from(vec![(field, Arc::new(list) as ArrayRef)])) as ArrayRef
            })
            .collect();
        for all in [text, lists, pairs] {
            for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
                let own = |array: &ArrayRef| columns(&[("v", array.data_type().clone(), true)]);
                let common = common_columns(&[("a", &own(a)), ("b", &own(b))]).unwrap();
                let aligned = [a, b].map(|array| {
                    let rows = RecordBatch::try_new(own(array), vec![Arc::clone(array)]).unwrap();
                    let batch = Batch::of_rows(rows, 0);
                    let batch = match Alignment::new(&own(array), &common).unwrap() {
                        Some(alignment) => alignment.apply(batch).unwrap(),
                        None => batch,
                    };
                    assert_eq!(batch.rows.schema(), common);
                    Arc::clone(batch.rows.column(0))
                });
                assert_eq!(&aligned[0], &aligned[1]);
                assert_eq!(aligned[0].null_count(), a.null_count());
            }
        }
    }

    #[test]
    fn types_that_mean_something_else_are_named_as_definitions_do() {
        let json = [(EXTENSION_TYPE_NAME_KEY.to_owned(), "arrow.json".to_owned())];
        let json = Field::new("v", DataType::Utf8, true).with_metadata(HashMap::from(json));
        let field = |kind| Field::new("v", kind, true);
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int64));
        for (a, b, want) in [
            (json, field(DataType::LargeUtf8), "`v` is json in `a` and utf8 in `b`"),
            (
                field(DataType::Utf8),
                field(DataType::BinaryView),
                "`v` is utf8 in `a` and binary in `b`",
            ),
            (field(dictionary), field(DataType::Int32), "`v` is int64 in `a` and int32 in `b`"),
            (
                field(DataType::new_list(DataType::Int8, true)),
                field(DataType::Int8),
                "`v` is List(Int8) in `a` and int8 in `b`",
            ),
        ] {
            let [a, b] = [a, b].map(|field| Arc::new(Schema::new(vec![field])));
            let error = common_columns(&[("a", &a), ("b", &b)]).unwrap_err();
            assert_eq!(error.difference, want);
        }
    }
}
