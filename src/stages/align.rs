//! Gives the rows of several sources the same columns.
//!
//! Invariant: only the order of columns is changed, and what may be null in one source may be null in
//! all; values stay as they are.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
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

/// The columns of the first source, in its order, which all the others have to have with the same
/// types. There is at least one.
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
            let (mine, their_type) = (field.data_type(), their.data_type());
            if mine != their_type {
                let (mine, theirs) = (shown(mine), shown(their_type));
                return Err(misaligned(format!(
                    "`{name}` is {mine} in `{first}` and {theirs} in `{other}`"
                )));
            }
            field.set_nullable(field.is_nullable() || their.is_nullable());
        }
        let extra = theirs.fields().iter().find(|f| columns.field_with_name(f.name()).is_err());
        if let Some(extra) = extra {
            let name = extra.name();
            return Err(misaligned(format!("`{first}` has no column `{name}`")));
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// A type as definitions name it, where they do.
fn shown(kind: &DataType) -> String {
    match kind {
        DataType::LargeUtf8 => "utf8".to_owned(),
        DataType::LargeBinary => "binary".to_owned(),
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
        let columns = rows.columns().to_vec();
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options)?;
        Ok(Batch { rows, ..batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Provenance, Restart};
    use arrow_array::{Int64Array, StringArray};

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
}
