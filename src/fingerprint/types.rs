//! Column types as JSON: a planning fact that is kept, hashed into slots and read back.
//!
//! A list of `{"name", "type", "nullable"}`, with `"metadata"` where a field has some. A type is a
//! name (`"int8"`), or an object of one key with what it is made of (`{"list": field}`).
//!
//! Leaves out: metadata of the schema as a whole, which says nothing of its columns.
//!
//! Invariant: reading back what was written gives the same fields; equal fields are written alike.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema, TimeUnit};
use serde_json::{Map, Value, json};

/// Types that cannot be written as JSON, or JSON that says no types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypesError {
    /// A column has a type that no dataset holds.
    #[error("column `{column}` has the type {data_type}, which cannot be stored")]
    Unsupported {
        /// The column.
        column: String,
        /// Its type, as Arrow writes it.
        data_type: String,
    },
    /// What was read back is not what was written.
    #[error("not the types of columns: {message}")]
    Malformed {
        /// What is wrong, and where.
        message: String,
    },
}

impl TypesError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            TypesError::Unsupported { .. } => "leave the column out, or change its type before",
            TypesError::Malformed { .. } => "the file was changed by something else; remove it",
        }
    }
}

/// Types without parameters, and their names.
const PLAIN: &[(&str, DataType)] = &[
    ("null", DataType::Null),
    ("bool", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float16", DataType::Float16),
    ("float32", DataType::Float32),
    ("float64", DataType::Float64),
    ("utf8", DataType::Utf8),
    ("large_utf8", DataType::LargeUtf8),
    ("utf8_view", DataType::Utf8View),
    ("binary", DataType::Binary),
    ("large_binary", DataType::LargeBinary),
    ("binary_view", DataType::BinaryView),
    ("date32", DataType::Date32),
    ("date64", DataType::Date64),
    ("interval_year_month", DataType::Interval(IntervalUnit::YearMonth)),
    ("interval_day_time", DataType::Interval(IntervalUnit::DayTime)),
    ("interval_month_day_nano", DataType::Interval(IntervalUnit::MonthDayNano)),
];

const UNITS: &[(&str, TimeUnit)] = &[
    ("s", TimeUnit::Second),
    ("ms", TimeUnit::Millisecond),
    ("us", TimeUnit::Microsecond),
    ("ns", TimeUnit::Nanosecond),
];

/// The fields of `schema` as JSON.
///
/// # Errors
/// A union or run-end encoded column.
pub fn types_to_json(schema: &Schema) -> Result<Value, TypesError> {
    fields_to_json(schema.fields())
}

/// Reads [`types_to_json`] back.
///
/// # Errors
/// Anything else.
pub fn types_from_json(json: &Value) -> Result<Schema, TypesError> {
    Ok(Schema::new(fields_from_json(json)?))
}

fn fields_to_json(fields: &Fields) -> Result<Value, TypesError> {
    fields.iter().map(|f| field_to_json(f)).collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn field_to_json(field: &Field) -> Result<Value, TypesError> {
    let data_type = type_to_json(field.data_type()).ok_or_else(|| TypesError::Unsupported {
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
    })??;
    let mut json = json!({
        "name": field.name(),
        "type": data_type,
        "nullable": field.is_nullable(),
    });
    if let (Some(object), false) = (json.as_object_mut(), field.metadata().is_empty()) {
        let sorted: BTreeMap<_, _> = field.metadata().iter().collect();
        object.insert("metadata".into(), json!(sorted));
    }
    Ok(json)
}

/// `None` for a type that has no name here.
fn type_to_json(data_type: &DataType) -> Option<Result<Value, TypesError>> {
    if let Some((name, _)) = PLAIN.iter().find(|(_, plain)| plain == data_type) {
        return Some(Ok(json!(name)));
    }
    let of_field =
        |name: &str, field: &FieldRef| Some(field_to_json(field).map(|f| json!({name: f})));
    let value = match data_type {
        DataType::Timestamp(unit, zone) => {
            json!({"timestamp": [unit_name(*unit), zone.as_deref()]})
        }
        DataType::Time32(unit) => json!({"time32": unit_name(*unit)}),
        DataType::Time64(unit) => json!({"time64": unit_name(*unit)}),
        DataType::Duration(unit) => json!({"duration": unit_name(*unit)}),
        DataType::FixedSizeBinary(size) => json!({"fixed_size_binary": size}),
        DataType::Decimal32(precision, scale) => json!({"decimal32": [precision, scale]}),
        DataType::Decimal64(precision, scale) => json!({"decimal64": [precision, scale]}),
        DataType::Decimal128(precision, scale) => json!({"decimal128": [precision, scale]}),
        DataType::Decimal256(precision, scale) => json!({"decimal256": [precision, scale]}),
        DataType::List(field) => return of_field("list", field),
        DataType::LargeList(field) => return of_field("large_list", field),
        DataType::ListView(field) => return of_field("list_view", field),
        DataType::LargeListView(field) => return of_field("large_list_view", field),
        DataType::FixedSizeList(field, size) => {
            return Some(field_to_json(field).map(|f| json!({"fixed_size_list": [f, size]})));
        }
        DataType::Struct(fields) => {
            return Some(fields_to_json(fields).map(|f| json!({"struct": f})));
        }
        DataType::Map(field, is_sorted) => {
            return Some(field_to_json(field).map(|f| json!({"map": [f, is_sorted]})));
        }
        DataType::Dictionary(key, value) => {
            let (key, value) = (type_to_json(key)?, type_to_json(value)?);
            return Some(key.and_then(|k| value.map(|v| json!({"dictionary": [k, v]}))));
        }
        _ => return None,
    };
    Some(Ok(value))
}

fn unit_name(unit: TimeUnit) -> &'static str {
    UNITS.iter().find(|(_, u)| *u == unit).map_or("", |(name, _)| name)
}

fn malformed(message: impl Into<String>) -> TypesError {
    TypesError::Malformed { message: message.into() }
}

fn fields_from_json(json: &Value) -> Result<Fields, TypesError> {
    let fields = json.as_array().ok_or_else(|| malformed("fields are not a list"))?;
    fields.iter().map(field_from_json).collect()
}

fn field_from_json(json: &Value) -> Result<Field, TypesError> {
    let name = json.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| malformed("a field has no name"))?;
    let wrong = |what: &str| malformed(format!("field `{name}` has no {what}"));
    let nullable = json.get("nullable").and_then(Value::as_bool);
    let nullable = nullable.ok_or_else(|| wrong("nullable"))?;
    let data_type = type_from_json(json.get("type").ok_or_else(|| wrong("type"))?)?;
    let metadata: HashMap<String, String> = match json.get("metadata") {
        Some(metadata) => {
            serde_json::from_value(metadata.clone()).map_err(|_| wrong("metadata"))?
        }
        None => HashMap::new(),
    };
    Ok(Field::new(name, data_type, nullable).with_metadata(metadata))
}

fn type_from_json(json: &Value) -> Result<DataType, TypesError> {
    let unknown = || malformed(format!("there is no type {json}"));
    if let Some(name) = json.as_str() {
        let plain = PLAIN.iter().find(|(n, _)| *n == name);
        return plain.map(|(_, data_type)| data_type.clone()).ok_or_else(unknown);
    }
    let mut entries = json.as_object().into_iter().flat_map(Map::iter);
    let (Some((name, of)), None) = (entries.next(), entries.next()) else { return Err(unknown()) };
    let unit = |value: &Value| {
        let named = UNITS.iter().find(|(name, _)| value.as_str() == Some(name));
        named.map(|(_, unit)| *unit).ok_or_else(unknown)
    };
    let field = |value: &Value| field_from_json(value).map(Arc::new);
    let size =
        |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok()).ok_or_else(unknown);
    Ok(match (name.as_str(), of.as_array().map(Vec::as_slice)) {
        ("timestamp", Some([u, Value::Null])) => DataType::Timestamp(unit(u)?, None),
        ("timestamp", Some([u, Value::String(zone)])) => {
            DataType::Timestamp(unit(u)?, Some(zone.as_str().into()))
        }
        ("time32", None) => DataType::Time32(unit(of)?),
        ("time64", None) => DataType::Time64(unit(of)?),
        ("duration", None) => DataType::Duration(unit(of)?),
        ("fixed_size_binary", None) => DataType::FixedSizeBinary(size(of)?),
        (
            "decimal32" | "decimal64" | "decimal128" | "decimal256",
            Some([Value::Number(precision), Value::Number(scale)]),
        ) => {
            let precision = precision.as_u64().and_then(|p| u8::try_from(p).ok());
            let scale = scale.as_i64().and_then(|s| i8::try_from(s).ok());
            let (precision, scale) = precision.zip(scale).ok_or_else(unknown)?;
            match name.as_str() {
                "decimal32" => DataType::Decimal32(precision, scale),
                "decimal64" => DataType::Decimal64(precision, scale),
                "decimal128" => DataType::Decimal128(precision, scale),
                _ => DataType::Decimal256(precision, scale),
            }
        }
        ("list", None) => DataType::List(field(of)?),
        ("large_list", None) => DataType::LargeList(field(of)?),
        ("list_view", None) => DataType::ListView(field(of)?),
        ("large_list_view", None) => DataType::LargeListView(field(of)?),
        ("fixed_size_list", Some([f, n])) => DataType::FixedSizeList(field(f)?, size(n)?),
        ("struct", Some(_)) => DataType::Struct(fields_from_json(of)?),
        ("map", Some([f, Value::Bool(is_sorted)])) => DataType::Map(field(f)?, *is_sorted),
        ("dictionary", Some([key, value])) => {
            let (key, value) = (type_from_json(key)?, type_from_json(value)?);
            DataType::Dictionary(Box::new(key), Box::new(value))
        }
        _ => return Err(unknown()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::canonical_json;

    fn item(data_type: DataType) -> FieldRef {
        Arc::new(Field::new("item", data_type, true))
    }

    #[test]
    fn types_survive_json() {
        let pair = Fields::from(vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int8, true),
        ]);
        let zone = Some("Europe/Berlin".into());
        let dictionary = |value| DataType::Dictionary(Box::new(DataType::Int32), Box::new(value));
        let mut types: Vec<DataType> = PLAIN.iter().map(|(_, t)| t.clone()).collect();
        for (_, unit) in UNITS {
            types.extend([
                DataType::Timestamp(*unit, None),
                DataType::Timestamp(*unit, zone.clone()),
                DataType::Time32(*unit),
                DataType::Time64(*unit),
                DataType::Duration(*unit),
            ]);
        }
        types.extend([
            DataType::FixedSizeBinary(16),
            DataType::Decimal32(9, 2),
            DataType::Decimal64(18, 2),
            DataType::Decimal128(38, -3),
            DataType::Decimal256(76, 0),
            DataType::List(item(DataType::LargeList(item(DataType::Float32)))),
            DataType::ListView(item(DataType::Int8)),
            DataType::LargeListView(item(DataType::Int8)),
            DataType::FixedSizeList(item(DataType::UInt8), 28),
            DataType::Struct(pair.clone()),
            DataType::Struct(Fields::empty()),
            DataType::Map(Arc::new(Field::new("entries", DataType::Struct(pair), false)), true),
            dictionary(DataType::Utf8),
            dictionary(DataType::FixedSizeBinary(3)),
        ]);
        for data_type in types {
            let metadata =
                HashMap::from([("b".to_owned(), "2".to_owned()), ("a".into(), "1".into())]);
            let fields = vec![
                Field::new("ü.x", data_type.clone(), false),
                Field::new("", data_type.clone(), true).with_metadata(metadata),
            ];
            let schema = Schema::new(fields);
            let text = canonical_json(&types_to_json(&schema).unwrap());
            let read = types_from_json(&serde_json::from_str(&text).unwrap()).unwrap();
            assert_eq!(read, schema, "{data_type}");
        }
    }

    #[test]
    fn golden_types() {
        let fields = vec![
            Field::new("x", DataType::List(item(DataType::Float32)), false),
            Field::new("t", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        ];
        let want = concat!(
            r#"[{"name":"x","nullable":false,"type":{"list":{"name":"item","nullable":true,"type":"float32"}}},"#,
            r#"{"name":"t","nullable":true,"type":{"timestamp":["us",null]}}]"#
        );
        assert_eq!(canonical_json(&types_to_json(&Schema::new(fields)).unwrap()), want);
    }

    #[test]
    fn types_that_no_dataset_holds_are_refused() {
        let union = DataType::Union(
            [(0, item(DataType::Int8))].into_iter().collect(),
            arrow_schema::UnionMode::Dense,
        );
        let inner = DataType::List(Arc::new(Field::new("u", union, true)));
        let error = types_to_json(&Schema::new(vec![Field::new("x", inner, true)])).unwrap_err();
        assert!(error.to_string().starts_with("column `u` has the type Union("), "{error}");
    }

    #[test]
    fn other_json_is_no_types() {
        for json in [
            "null",
            "{}",
            "[1]",
            r#"[{"name": "x", "type": "int8"}]"#,
            r#"[{"name": "x", "nullable": true}]"#,
            r#"[{"name": "x", "nullable": true, "type": "int7"}]"#,
            r#"[{"name": "x", "nullable": true, "type": {"list": "int8"}}]"#,
            r#"[{"name": "x", "nullable": true, "type": {"time32": "h"}}]"#,
            r#"[{"name": "x", "nullable": true, "type": {"decimal128": [300, 0]}}]"#,
            r#"[{"name": "x", "nullable": true, "type": {"a": 1, "b": 2}}]"#,
            r#"[{"name": "x", "nullable": true, "type": "int8", "metadata": 5}]"#,
        ] {
            let error = types_from_json(&serde_json::from_str(json).unwrap()).unwrap_err();
            assert!(matches!(error, TypesError::Malformed { .. }), "{json}: {error}");
        }
    }
}
