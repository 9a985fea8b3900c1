//! `schema.json` and `shapes.json`.
//!
//! Invariant: what is read comes back as it was written, or is refused by name. Nothing is taken
//! from a document that [`RowSchema::new`] does not check; file names are made anew and compared.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::dtype::{unit_from_name, unit_name};
use super::{Dtype, Field, Kind, LAYOUT, Logical, RowSchema, SchemaError};

impl RowSchema {
    /// The document of `schema.json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "fields": self.fields.iter().map(field_to_json).collect::<Vec<_>>(),
            "key": self.key().map(|field| &field.name),
            "layout": LAYOUT,
            "requires": [],
        })
    }

    /// Reads the document of `schema.json`. Members that it does not know are ignored: a document
    /// that must not be read without them says so in `requires`.
    ///
    /// # Errors
    /// Names the layout, requirement, codec, kind or type that is not known, or the member that is
    /// missing or wrong.
    pub fn from_json(document: &Value) -> Result<Self, SchemaError> {
        let members = object(document, "the document")?;
        let layout = member(members, "layout")?;
        if layout.as_u64() != Some(u64::from(LAYOUT)) {
            return Err(SchemaError::document(format!("unknown layout {layout}")));
        }
        if let Some(name) = array(members, "requires")?.first() {
            return Err(SchemaError::document(format!("requires {name}, which is not known")));
        }
        let fields = array(members, "fields")?;
        let fields = fields.iter().map(field_from_json).collect::<Result<Vec<_>, _>>()?;
        let key = optional_text(members, "key")?;
        Self::new(fields, key).map_err(|e| match e {
            SchemaError::Document { .. } => e,
            _ => SchemaError::document(e.to_string()),
        })
    }

    /// The document of `shapes.json` of a shard of `n_rows` rows. `entries` has a number per field:
    /// the entries of a ragged field, the scalars of a free one; it is not looked at for others.
    #[must_use]
    pub fn shapes_json(&self, n_rows: u64, entries: &[u64]) -> Value {
        let mut shapes = Map::new();
        shapes.insert("n".into(), n_rows.into());
        for (i, field) in self.fields.iter().enumerate() {
            let n_entries = entries.get(i).copied().unwrap_or_default();
            let trailing = field.shape.iter().map(|&n| n as u64);
            let (dtype, shape): (_, Vec<u64>) = match field.kind {
                Kind::Fixed => (field.dtype, [n_rows].into_iter().chain(trailing).collect()),
                Kind::Ragged => (field.dtype, [n_entries].into_iter().chain(trailing).collect()),
                Kind::Free => (field.dtype, vec![n_entries]),
                Kind::Interned => (Dtype::Int32, vec![n_rows]),
            };
            shapes.insert(field.stem.clone(), json!({"dtype": dtype.name(), "shape": shape}));
        }
        Value::Object(shapes)
    }
}

fn field_to_json(field: &Field) -> Value {
    json!({
        "axis": field.axis,
        "categories": field.categories,
        "codec": "none",
        "dtype": field.dtype.name(),
        "files": field.files().into_iter().map(|file| file.name).collect::<Vec<_>>(),
        "index": field.index,
        "kind": field.kind.name(),
        "logical": field.logical.as_ref().map(logical_to_json),
        "name": field.name,
        "nullable": field.nullable,
        "numpy": field.dtype.numpy(),
        "shape": field.shape,
        "sidecar": field.sidecar,
        "stem": field.stem,
    })
}

fn field_from_json(value: &Value) -> Result<Field, SchemaError> {
    let members = object(value, "a field")?;
    let name = text(members, "name")?.to_owned();
    let fail = |message: String| SchemaError::document(format!("field `{name}`: {message}"));
    let named = |key: &str| text(members, key);
    let dtype = named("dtype")?;
    let kind = named("kind")?;
    let field = Field {
        stem: named("stem")?.to_owned(),
        kind: Kind::from_name(kind).ok_or_else(|| fail(format!("unknown kind {kind:?}")))?,
        dtype: Dtype::from_name(dtype).ok_or_else(|| fail(format!("unknown dtype {dtype:?}")))?,
        shape: numbers(members, "shape")?,
        axis: optional_text(members, "axis")?.map(str::to_owned),
        nullable: flag(members, "nullable")?,
        logical: match member(members, "logical")? {
            Value::Null => None,
            logical => Some(logical_from_json(logical).map_err(&fail)?),
        },
        categories: match member(members, "categories")? {
            Value::Null => None,
            _ => Some(texts(members, "categories")?),
        },
        sidecar: optional_text(members, "sidecar")?.map(str::to_owned),
        index: flag(members, "index")?,
        name: name.clone(),
    };
    let codec = named("codec")?;
    if codec != "none" {
        return Err(fail(format!("unknown codec {codec:?}")));
    }
    if named("numpy")? != field.dtype.numpy() {
        return Err(fail(format!("`numpy` is not {:?}", field.dtype.numpy())));
    }
    let files: Vec<String> = field.files().into_iter().map(|file| file.name).collect();
    if texts(members, "files")? != files {
        return Err(fail(format!("`files` is not {files:?}")));
    }
    Ok(field)
}

fn logical_to_json(logical: &Logical) -> Value {
    let mut members = Map::new();
    members.insert("type".into(), logical.name().into());
    match logical {
        Logical::Time64(unit) | Logical::Duration(unit) => {
            members.insert("unit".into(), unit_name(*unit).into());
        }
        Logical::Timestamp(unit, tz) => {
            members.insert("unit".into(), unit_name(*unit).into());
            members.insert("tz".into(), tz.as_deref().into());
        }
        Logical::Decimal128(precision, scale) => {
            members.insert("precision".into(), (*precision).into());
            members.insert("scale".into(), (*scale).into());
        }
        Logical::Utf8 | Logical::Binary | Logical::Json | Logical::Date32 | Logical::Bfloat16 => {}
    }
    Value::Object(members)
}

fn logical_from_json(value: &Value) -> Result<Logical, String> {
    let get = |key: &str| value.get(key).unwrap_or(&Value::Null);
    let unit = || {
        let unit = get("unit");
        unit.as_str().and_then(unit_from_name).ok_or_else(|| format!("unknown unit {unit}"))
    };
    Ok(match get("type").as_str() {
        Some("utf8") => Logical::Utf8,
        Some("binary") => Logical::Binary,
        Some("json") => Logical::Json,
        Some("date32") => Logical::Date32,
        Some("time64") => Logical::Time64(unit()?),
        Some("timestamp") => {
            let tz = match get("tz") {
                Value::Null => None,
                Value::String(tz) => Some(Arc::from(tz.as_str())),
                other => return Err(format!("`tz` is {other}")),
            };
            Logical::Timestamp(unit()?, tz)
        }
        Some("duration") => Logical::Duration(unit()?),
        Some("decimal128") => {
            let precision = get("precision").as_u64().and_then(|n| u8::try_from(n).ok());
            let scale = get("scale").as_i64().and_then(|n| i8::try_from(n).ok());
            match (precision, scale) {
                (Some(precision), Some(scale)) => Logical::Decimal128(precision, scale),
                _ => return Err("a decimal needs `precision` and `scale`".into()),
            }
        }
        Some("bfloat16") => Logical::Bfloat16,
        _ => return Err(format!("unknown logical type {}", get("type"))),
    })
}

type Members = Map<String, Value>;

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Members, SchemaError> {
    value.as_object().ok_or_else(|| SchemaError::document(format!("{what} is no object")))
}

fn member<'a>(members: &'a Members, key: &str) -> Result<&'a Value, SchemaError> {
    members.get(key).ok_or_else(|| SchemaError::document(format!("`{key}` is missing")))
}

fn array<'a>(members: &'a Members, key: &str) -> Result<&'a Vec<Value>, SchemaError> {
    member(members, key)?
        .as_array()
        .ok_or_else(|| SchemaError::document(format!("`{key}` is no list")))
}

fn text<'a>(members: &'a Members, key: &str) -> Result<&'a str, SchemaError> {
    optional_text(members, key)?
        .ok_or_else(|| SchemaError::document(format!("`{key}` is null, not text")))
}

fn optional_text<'a>(members: &'a Members, key: &str) -> Result<Option<&'a str>, SchemaError> {
    match member(members, key)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(SchemaError::document(format!("`{key}` is no text"))),
    }
}

fn texts(members: &Members, key: &str) -> Result<Vec<String>, SchemaError> {
    let texts = array(members, key)?.iter().map(|value| value.as_str().map(str::to_owned));
    texts
        .collect::<Option<_>>()
        .ok_or_else(|| SchemaError::document(format!("`{key}` is no list of texts")))
}

fn numbers(members: &Members, key: &str) -> Result<Vec<usize>, SchemaError> {
    let numbers = array(members, key)?.iter();
    numbers
        .map(|value| value.as_u64().and_then(|n| usize::try_from(n).ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| SchemaError::document(format!("`{key}` is no list of sizes")))
}

fn flag(members: &Members, key: &str) -> Result<bool, SchemaError> {
    member(members, key)?
        .as_bool()
        .ok_or_else(|| SchemaError::document(format!("`{key}` is neither true nor false")))
}
