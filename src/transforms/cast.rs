//! The `cast` transform: gives columns other types.
//!
//! From and to integers, floats, truth values and texts. A row with a value that the new type cannot
//! hold is bad: out of range, with a fraction where integers are wanted, a text that is not written
//! as one. Of several such values the first column's is named. What is rounded, and how texts are read, stands in `sources::value_type`. Truth values are
//! 0 and 1 as numbers, `true` and `false` as texts; a float as a text has the fewest digits that
//! read back as the same float of its type. Nulls stay null.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{Gone, Strings, emit_kept, find, is_text, unexpected};
use super::{BadRow, Emit, SettingsError, Stage, Transform, TransformError, TransformType};
use crate::batch::Batch;
use crate::sources::value_type::{ColumnBuilder, Misfit, ValueType};
use crate::sources::{VALUE_MISFIT, parse_settings};

pub(super) const TYPE: TransformType = TransformType {
    name: "cast",
    version: 1,
    about: "gives columns other types; a value that does not fit is an error",
    settings: Settings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(Cast { settings: parse_settings(&spec.settings)? })),
};

/// Settings of the `cast` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The new type of each column: `{ age = "int8" }`.
    types: BTreeMap<String, ValueType>,
}

#[derive(Debug)]
struct Cast {
    settings: Settings,
}

impl Transform for Cast {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let mut fields: Vec<Field> = input.fields().iter().map(|f| f.as_ref().clone()).collect();
        for (name, kind) in &self.settings.types {
            let (index, field) = find(input, "types", name)?;
            if !can_be_cast(field.data_type()) {
                return Err(SettingsError {
                    at: vec!["types".to_owned(), name.clone()],
                    message: format!("column `{name}` is {}", field.data_type()),
                    hint: Some("numbers, truth values and texts can be cast".to_owned()),
                });
            }
            if let Some(field) = fields.get_mut(index) {
                field.set_data_type(kind.arrow());
            }
        }
        Ok(Arc::new(Schema::new_with_metadata(fields, input.metadata().clone())))
    }

    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let schema = self.output(&batch.rows.schema()).map_err(|e| unexpected(&e))?;
        // The longest number as text, and its offset.
        let row_bytes = 32 * self.settings.types.len();
        emit_kept(&batch, stage.index, &schema, row_bytes, emit, |piece| self.columns(stage, piece))
    }
}

impl Cast {
    /// The columns of a piece, and its rows that fail.
    fn columns(
        &self,
        stage: Stage,
        piece: &Batch,
    ) -> Result<(Vec<ArrayRef>, Gone), TransformError> {
        let schema = piece.rows.schema();
        let mut failed = BTreeMap::new();
        let mut columns = Vec::with_capacity(piece.rows.num_columns());
        for (field, column) in schema.fields().iter().zip(piece.rows.columns()) {
            columns.push(match self.settings.types.get(field.name()) {
                Some(kind) => cast(column, *kind, |row, message| {
                    if let Entry::Vacant(first) = failed.entry(row) {
                        let bad = BadRow::new(VALUE_MISFIT, message).field(field.name());
                        let bad = bad.hint("choose a type in `types` that holds every value");
                        first.insert(stage.settle(piece, row, bad)?);
                    }
                    Ok(())
                })?,
                None => Arc::clone(column),
            });
        }
        Ok((columns, failed.into_iter().collect()))
    }
}

/// `column` as `kind`. Each row that cannot be is told to `fail`, and has some value.
fn cast(
    column: &ArrayRef,
    kind: ValueType,
    mut fail: impl FnMut(usize, String) -> Result<(), TransformError>,
) -> Result<ArrayRef, TransformError> {
    if *column.data_type() == kind.arrow() {
        return Ok(Arc::clone(column));
    }
    let value_at = values(column);
    let mut builder = ColumnBuilder::new(kind, column.len());
    for row in 0..column.len() {
        if column.is_null(row) {
            builder.append_null();
            continue;
        }
        let value = value_at(row);
        if let Err(why) = value.append_to(&mut builder, kind) {
            fail(row, why.message(&value.shown(), kind))?;
            // Any value will do until the row is taken out; a null may not stand in every column.
            builder.append_integer(0).ok();
        }
    }
    Ok(builder.finish())
}

/// A value of any type that can be cast.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    Integer(i128),
    /// A float of at most 32 bits, whose shortest text is shorter than the float64's.
    Short(f32),
    Float(f64),
    Bool(bool),
    Text(&'a [u8]),
}

impl Value<'_> {
    fn append_to(self, builder: &mut ColumnBuilder, kind: ValueType) -> Result<(), Misfit> {
        match self {
            Self::Integer(value) => builder.append_integer(value),
            Self::Float(value) => builder.append_float(value),
            Self::Text(text) => builder.append_text(text),
            Self::Short(_) | Self::Bool(_) if kind == ValueType::Utf8 => {
                builder.append_text(self.shown().as_bytes())
            }
            Self::Short(value) => builder.append_float(f64::from(value)),
            Self::Bool(value) => builder.append_integer(i128::from(value)),
        }
    }

    fn shown(self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Short(value) => format!("{value:?}"),
            Self::Float(value) => format!("{value:?}"),
            Self::Bool(value) => value.to_string(),
            Self::Text(text) => String::from_utf8_lossy(text).chars().take(40).collect(),
        }
    }
}

fn can_be_cast(of: &DataType) -> bool {
    of.is_integer() || of.is_floating() || *of == DataType::Boolean || is_text(of)
}

/// Reads a column's values by row; those of types that cannot be cast are empty texts.
fn values<'a>(column: &'a ArrayRef) -> Box<dyn Fn(usize) -> Value<'a> + 'a> {
    macro_rules! integers {
        ($kind:ty) => {{
            let values = column.as_primitive::<$kind>().values();
            Box::new(move |row| Value::Integer(values.get(row).copied().map_or(0, i128::from)))
        }};
    }
    match column.data_type() {
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Float16 => {
            let values = column.as_primitive::<Float16Type>();
            Box::new(|row| Value::Short(values.value(row).to_f32()))
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>();
            Box::new(|row| Value::Short(values.value(row)))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            Box::new(|row| Value::Float(values.value(row)))
        }
        DataType::Boolean => {
            let values = column.as_boolean();
            Box::new(|row| Value::Bool(values.value(row)))
        }
        _ => {
            let values = Strings::of(column);
            Box::new(move |row| {
                Value::Text(values.as_ref().and_then(|v| v.get(row)).unwrap_or_default())
            })
        }
    }
}
