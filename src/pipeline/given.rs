//! Values that a definition writes down, as columns.
//!
//! Leaves out: which columns there are (`test`).
//!
//! Invariant: a value becomes what its column holds exactly, or is refused; only floats are rounded, to
//! the nearest that the type has.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, LargeListArray, LargeStringArray,
    ListArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use serde_json::Value;

use crate::transforms::type_text;

/// Names of floats that TOML tables of ours cannot hold as numbers.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
/// Longest value that is shown whole, in characters.
const MAX_SHOWN: usize = 60;

/// Why a value does not fit its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoFit(pub(super) String);

impl From<ArrowError> for NoFit {
    fn from(error: ArrowError) -> Self {
        Self(error.to_string())
    }
}

/// The values as a column of the type of `field`; [`Value::Null`] stands for none.
///
/// # Errors
/// The first that the column cannot hold.
pub(super) fn column(field: &Field, values: &[&Value]) -> Result<ArrayRef, NoFit> {
    let is_valid: Vec<bool> = values.iter().map(|value| !value.is_null()).collect();
    let nulls = || Some(NullBuffer::from(is_valid.clone())).filter(|it| it.null_count() > 0);
    match field.data_type() {
        DataType::FixedSizeList(item, n) => {
            let len = usize::try_from(*n).unwrap_or_default();
            let mut items = Vec::with_capacity(values.len() * len);
            for value in values {
                let found = list(value, field.data_type())?;
                if value.is_null() {
                    items.extend(std::iter::repeat_n(&Value::Null, len));
                } else if found.len() == len {
                    items.extend(found);
                } else {
                    let many = if found.len() == 1 { "" } else { "s" };
                    let n = found.len();
                    return Err(NoFit(format!("{n} value{many} where {len} belong")));
                }
            }
            let items = column(item, &items)?;
            Ok(Arc::new(FixedSizeListArray::try_new(FieldRef::clone(item), *n, items, nulls())?))
        }
        DataType::List(item) => {
            let (items, lengths) = lists(item, field, values)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(ListArray::try_new(FieldRef::clone(item), offsets, items, nulls())?))
        }
        DataType::LargeList(item) => {
            let (items, lengths) = lists(item, field, values)?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Ok(Arc::new(LargeListArray::try_new(FieldRef::clone(item), offsets, items, nulls())?))
        }
        DataType::Struct(fields) => {
            let columns = fields_of(fields, values)?;
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, nulls())?))
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = values.iter().map(|value| bytes(value)).collect::<Result<Vec<_>, _>>()?;
            let bytes: ArrayRef = Arc::new(LargeBinaryArray::from_iter(bytes));
            fitted(field, values, &bytes)
        }
        _ => {
            let texts = values.iter().map(|value| text(field, value));
            let texts: ArrayRef =
                Arc::new(LargeStringArray::from_iter(texts.collect::<Result<Vec<_>, _>>()?));
            fitted(field, values, &texts)
        }
    }
}

/// What a column holds of JSON, as its field says.
pub(super) fn is_json(field: &Field) -> bool {
    field.metadata().get(EXTENSION_TYPE_NAME_KEY).is_some_and(|name| name == "arrow.json")
}

/// `plain` as the column's type; a value that has become null does not fit.
fn fitted(field: &Field, values: &[&Value], plain: &ArrayRef) -> Result<ArrayRef, NoFit> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let column = cast_with_options(plain, field.data_type(), &options)?;
    let lost = (0..column.len()).find(|i| column.is_null(*i) && plain.is_valid(*i));
    match lost.and_then(|i| values.get(i)) {
        Some(value) => Err(misfit(value, field.data_type())),
        None => Ok(column),
    }
}

fn misfit(value: &Value, kind: &DataType) -> NoFit {
    NoFit(format!("{} is no {}", shown(value), type_text(kind)))
}

/// A value, cut where it is long.
fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// The value at `row` for people.
pub(super) fn value_shown(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return "no value".to_owned();
    }
    let options = arrow_cast::display::FormatOptions::default();
    let formatter = arrow_cast::display::ArrayFormatter::try_new(column, &options);
    let mut text = String::new();
    let written = formatter.map(|it| write!(text, "{}", it.value(row)));
    if !matches!(written, Ok(Ok(()))) {
        return "a value that cannot be shown".to_owned();
    }
    let is_text = column.as_string_opt::<i32>().is_some()
        || column.as_string_opt::<i64>().is_some()
        || column.data_type() == &DataType::Utf8View;
    if is_text { cut(&Value::from(text).to_string()) } else { cut(&text) }
}

fn list<'v>(value: &'v Value, kind: &DataType) -> Result<&'v [Value], NoFit> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        other => Err(misfit(other, kind)),
    }
}

fn lists(
    item: &FieldRef,
    field: &Field,
    values: &[&Value],
) -> Result<(ArrayRef, Vec<usize>), NoFit> {
    let (mut items, mut lengths) = (Vec::new(), Vec::with_capacity(values.len()));
    for value in values {
        let found = list(value, field.data_type())?;
        lengths.push(found.len());
        items.extend(found);
    }
    Ok((column(item, &items)?, lengths))
}

fn fields_of(fields: &Fields, values: &[&Value]) -> Result<Vec<ArrayRef>, NoFit> {
    for value in values {
        let Value::Object(object) = value else {
            if value.is_null() {
                continue;
            }
            return Err(NoFit(format!("{} is no table", shown(value))));
        };
        if let Some(key) = object.keys().find(|key| fields.find(key).is_none()) {
            return Err(NoFit(format!("there is no `{key}` in it")));
        }
    }
    let of_field = |field: &FieldRef| {
        let values: Vec<&Value> =
            values.iter().map(|value| value.get(field.name()).unwrap_or(&Value::Null)).collect();
        column(field, &values)
    };
    fields.iter().map(of_field).collect()
}

/// A text as its bytes, or the numbers of a list.
fn bytes(value: &Value) -> Result<Option<Vec<u8>>, NoFit> {
    let byte = |item: &Value| item.as_u64().and_then(|n| u8::try_from(n).ok());
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_bytes().to_vec())),
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
            bytes.map(Some).ok_or_else(|| NoFit(format!("{} is no list of bytes", shown(value))))
        }
        other => Err(NoFit(format!("{} is neither text nor a list of bytes", shown(other)))),
    }
}

/// The value as the text that Arrow reads it from.
fn text(field: &Field, value: &Value) -> Result<Option<String>, NoFit> {
    let kind = field.data_type();
    let is_text = matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        || matches!(kind, DataType::Dictionary(_, of) if of.is_string());
    match value {
        Value::Null => Ok(None),
        Value::String(text) if is_text => Ok(Some(text.clone())),
        other if is_json(field) => Ok(Some(other.to_string())),
        Value::String(text) if kind.is_floating() && NO_NUMBERS.contains(&text.as_str()) => {
            Ok(Some(text.clone()))
        }
        // Dates, times and decimals.
        Value::String(text) if !is_text && !kind.is_integer() && !kind.is_floating() => {
            Ok(Some(text.clone()))
        }
        Value::Bool(flag) if kind == &DataType::Boolean => Ok(Some(flag.to_string())),
        Value::Number(number) if !is_text && kind != &DataType::Boolean => {
            Ok(Some(number.to_string()))
        }
        other => Err(misfit(other, kind)),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Float32Type, Int8Type, Int64Type};
    use serde_json::json;

    use super::*;

    fn item(kind: DataType) -> FieldRef {
        Arc::new(Field::new_list_field(kind, true))
    }

    #[test]
    fn values_become_what_their_columns_hold() {
        use DataType::{
            Binary, Boolean, Date32, FixedSizeList, Float16, Float32, Float64, Int8, Int64,
            LargeList, LargeUtf8, List, UInt64, Utf8,
        };
        let pair = || FixedSizeList(item(Float32), 2);
        for (kind, value, want) in [
            (Int64, json!(-3), "-3"),
            (UInt64, json!(9_223_372_036_854_775_807_u64), "9223372036854775807"),
            (Float32, json!(0.1), "0.1"),
            (Float64, json!(7), "7.0"),
            (Float32, json!("NaN"), "NaN"),
            (Float64, json!("-Infinity"), "-inf"),
            (Float16, json!(0.5), "0.5"),
            (Boolean, json!(true), "true"),
            (Utf8, json!("ä"), "\"ä\""),
            (LargeUtf8, json!(""), "\"\""),
            (Utf8, Value::Null, "no value"),
            (Binary, json!("ab"), "6162"),
            (Binary, json!([0, 255]), "00ff"),
            (Date32, json!("2024-02-29"), "2024-02-29"),
            (pair(), json!([1, 2.5]), "[1.0, 2.5]"),
            (List(item(pair())), json!([[1, 2], [3, 4]]), "[[1.0, 2.0], [3.0, 4.0]]"),
            (LargeList(item(Int8)), json!([]), "[]"),
        ] {
            let field = Field::new("x", kind.clone(), true);
            let column = column(&field, &[&value]).unwrap();
            assert_eq!(column.data_type(), &kind);
            assert_eq!(value_shown(&column, 0), want, "{kind}");
        }
        for (kind, value, want) in [
            (Int64, json!("5"), "\"5\" is no int64"),
            (Int64, json!(1.5), "1.5 is no int64"),
            (Int8, json!(200), "200 is no int8"),
            (Utf8, json!(5), "5 is no utf8"),
            (LargeUtf8, json!(5), "5 is no utf8"),
            (pair(), json!(5), "5 is no float32[2]"),
            (Boolean, json!(1), "1 is no bool"),
            (Float32, json!("nan"), "\"nan\" is no float32"),
            (Date32, json!("soon"), "\"soon\" is no date32"),
            (Binary, json!([256]), "[256] is no list of bytes"),
            (pair(), json!([1]), "1 value where 2 belong"),
            (List(item(Int8)), json!([1, "x"]), "\"x\" is no int8"),
            (List(item(Int8)), json!(3), "3 is no int8[n]"),
        ] {
            let refused = column(&Field::new("x", kind, true), &[&value]);
            assert_eq!(refused.unwrap_err(), NoFit(want.to_owned()));
        }
    }

    #[test]
    fn rows_without_a_value_are_null_at_every_depth() {
        let values = [json!([[1, 2]]), Value::Null, json!([])];
        let values: Vec<&Value> = values.iter().collect();
        let inner = DataType::FixedSizeList(item(DataType::Int8), 2);
        let lists = column(&Field::new("x", DataType::List(item(inner)), true), &values).unwrap();
        assert_eq!((lists.len(), lists.null_count()), (3, 1));
        let flat = lists.as_list::<i32>().values().as_fixed_size_list().values();
        assert_eq!(flat.as_primitive::<Int8Type>().values(), &[1, 2]);

        let fields = Fields::from(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Float32, true),
        ]);
        let values = [json!({"a": 1}), Value::Null, json!({"b": 0.5})];
        let values: Vec<&Value> = values.iter().collect();
        let field = Field::new("x", DataType::Struct(fields), true);
        let structs = column(&field, &values).unwrap();
        let of = |i| structs.as_struct().column(i);
        assert_eq!(
            of(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
            [Some(1), None, None]
        );
        assert_eq!(of(1).as_primitive::<Float32Type>().value(2).to_bits(), 0.5_f32.to_bits());
        let refused = column(&field, &[&json!({"c": 1})]).unwrap_err();
        assert_eq!(refused, NoFit("there is no `c` in it".to_owned()));
    }
}
