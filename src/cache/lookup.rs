//! The answer to a lookup.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema};

use super::error::{CacheError, Result};

/// What was found of the keys asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// The rows of the hits, in the order in which their keys were asked for. Without columns where
    /// the section has no rows yet.
    pub rows: RecordBatch,
    /// For each row, the position of its key among those asked for.
    pub hits: Vec<usize>,
    /// The positions of keys without a row, ascending.
    pub misses: Vec<usize>,
}

impl Lookup {
    /// The same with the columns of these names as values of other types: `("energy", Float32)`.
    /// Floats are rounded to narrower ones; what a type cannot hold is an error. Nothing is cast
    /// unless it is asked for.
    ///
    /// # Errors
    /// [`CacheError::Cast`]: there is no such column, or a value that the type cannot hold.
    pub fn cast(self, types: &[(&str, DataType)]) -> Result<Self> {
        let schema = self.rows.schema();
        let mut columns = self.rows.columns().to_vec();
        let mut fields: Vec<Arc<ArrowField>> = schema.fields().iter().map(Arc::clone).collect();
        for (name, to) in types {
            let refused = |message: String| CacheError::Cast {
                field: (*name).to_owned(),
                to: to.to_string(),
                message,
            };
            let index = schema.index_of(name).map_err(|_| refused("it is not there".to_owned()))?;
            let (Some(column), Some(field)) = (columns.get_mut(index), fields.get_mut(index))
            else {
                continue;
            };
            let options = CastOptions { safe: false, ..CastOptions::default() };
            let to = with_leaf(column.data_type(), to);
            *column =
                cast_with_options(column, &to, &options).map_err(|e| refused(e.to_string()))?;
            *field = Arc::new(field.as_ref().clone().with_data_type(to));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows.num_rows()));
        let rows = RecordBatch::try_new_with_options(
            Arc::new(ArrowSchema::new(fields)),
            columns,
            &options,
        );
        let rows = rows.map_err(|e| CacheError::Cast {
            field: types.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("`, `"),
            to: "the types asked for".to_owned(),
            message: e.to_string(),
        })?;
        Ok(Self { rows, ..self })
    }
}

/// The type `of` with scalars of type `leaf`: the lists around them stay.
fn with_leaf(of: &DataType, leaf: &DataType) -> DataType {
    let inner = |item: &Arc<ArrowField>| {
        Arc::new(item.as_ref().clone().with_data_type(with_leaf(item.data_type(), leaf)))
    };
    match of {
        DataType::FixedSizeList(item, n) if !leaf.is_nested() => {
            DataType::FixedSizeList(inner(item), *n)
        }
        DataType::LargeList(item) if !leaf.is_nested() => DataType::LargeList(inner(item)),
        DataType::Struct(fields) if !leaf.is_nested() => {
            // An array of free shape: its `data` is cast, its `shape` is not.
            let field = |field: &Arc<ArrowField>| {
                if field.name() == "data" { inner(field) } else { Arc::clone(field) }
            };
            DataType::Struct(fields.iter().map(field).collect())
        }
        _ => leaf.clone(),
    }
}
