//! What makes a schema valid, wherever it comes from: a definition, or a document on disk.

use std::collections::{HashMap, HashSet};

use super::stem::{is_sidecar, is_stem};
use super::{Axis, Dtype, Field, Kind, Logical, RowSchema, SchemaError};

/// Most dimensions of a shape, as many as a NumPy array could always have.
pub(super) const MAX_RANK: usize = 32;

/// Most bytes of a row of a fixed field, or of an entry of a ragged one.
const MAX_UNIT_BYTES: u64 = 1 << 40;

impl RowSchema {
    /// Makes a schema of fields that are complete; `key` names the key field.
    ///
    /// # Errors
    /// Names the field that is not what a field may be, or that collides with another.
    pub fn new(mut fields: Vec<Field>, key: Option<&str>) -> Result<Self, SchemaError> {
        let mut names = HashSet::new();
        let mut stems = HashMap::new();
        let mut sidecars = HashSet::new();
        for field in &fields {
            check_field(field).map_err(|message| SchemaError::field(&field.name, message, None))?;
            if !names.insert(field.name.as_str()) {
                return Err(SchemaError::field(
                    &field.name,
                    "two fields have this name",
                    Some("rename one of them".into()),
                ));
            }
            if let Some(other) = stems.insert(field.stem.as_str(), field) {
                return Err(SchemaError::field(
                    &field.name,
                    format!("has the stem `{}` of field `{}`", field.stem, other.name),
                    None,
                ));
            }
            if let Some(sidecar) = &field.sidecar
                && !sidecars.insert(sidecar.as_str())
            {
                return Err(SchemaError::field(
                    &field.name,
                    format!("another field has the sidecar `{sidecar}` already"),
                    Some("give each its own file name".into()),
                ));
            }
        }
        for field in &fields {
            let Some(axis) = &field.axis else { continue };
            if let Some(other) = stems.get(axis.as_str())
                && (other.axis.as_ref() != Some(axis)
                    || !may_share(other) && other.stem != field.stem)
            {
                return Err(SchemaError::field(
                    &field.name,
                    format!("its axis `{axis}` has the stem of field `{}`", other.name),
                    Some(format!("put `{}` on that axis too, or rename the axis", other.name)),
                ));
            }
        }
        if fields.is_empty() {
            return Err(SchemaError::document("a row has no fields"));
        }
        let key = key.map(|key| check_key(&mut fields, key)).transpose()?;
        Ok(Self { fields, key })
    }

    /// The same schema with `name` as the key: a field of text or integers. Rows without a key are
    /// refused from then on, so the field is no longer nullable.
    ///
    /// # Errors
    /// There is no such field, or its values cannot be keys.
    pub fn with_key(self, name: &str) -> Result<Self, SchemaError> {
        Self::new(self.fields, Some(name))
    }

    /// The fields in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Index of the field of that name.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Index of the key field.
    #[must_use]
    pub fn key_index(&self) -> Option<usize> {
        self.key
    }

    /// The key field.
    #[must_use]
    pub fn key(&self) -> Option<&Field> {
        self.key.and_then(|key| self.fields.get(key))
    }

    /// The axes with the fields on them, in the order of their first fields.
    #[must_use]
    pub fn axes(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::new();
        for (i, field) in self.fields.iter().enumerate() {
            let Some(name) = &field.axis else { continue };
            match axes.iter_mut().find(|axis| &axis.name == name) {
                Some(known) => known.fields.push(i),
                None => axes.push(Axis { name: name.clone(), fields: vec![i] }),
            }
        }
        axes
    }
}

/// Whether several fields may be on the axis of this one: strings and arrays of free shape have
/// their own.
fn may_share(field: &Field) -> bool {
    field.kind == Kind::Ragged && !field.is_bytes()
}

/// Finds the key field and makes it one.
fn check_key(fields: &mut [Field], key: &str) -> Result<usize, SchemaError> {
    let Some(index) = fields.iter().position(|field| field.name == key) else {
        let hint = super::nearest(key, fields.iter().map(|field| field.name.as_str()));
        return Err(SchemaError::field(key, "the key is no field of the rows", hint));
    };
    let Some(field) = fields.get_mut(index) else { return Ok(index) };
    let text = field.kind == Kind::Ragged && field.logical == Some(Logical::Utf8);
    let integer = field.kind == Kind::Fixed
        && field.dtype.is_integer()
        && field.shape.is_empty()
        && field.logical.is_none()
        && field.categories.is_none();
    if !(text || integer) || field.dtype == Dtype::Uint64 {
        return Err(SchemaError::field(
            key,
            "a key is text or an integer that fits int64",
            Some("store it as `dtype = \"utf8\"` or `dtype = \"int64\"`, not interned".into()),
        ));
    }
    field.nullable = false;
    Ok(index)
}

/// Whether a field is one by itself, whatever fields are beside it.
pub(super) fn check_field(field: &Field) -> Result<(), String> {
    if !is_stem(&field.stem) {
        return Err(format!("its stem `{}` is no stem", field.stem));
    }
    check_axis(field)?;
    check_shape(field)?;
    check_logical(field)?;
    if let Some(categories) = &field.categories {
        check_categories(field, categories)?;
    }
    if let Some(sidecar) = &field.sidecar {
        if !is_sidecar(sidecar) {
            return Err(format!(
                "`{sidecar}` is no name for a sidecar: lower-case letters, digits and `_`, then \
                 `.json`, and none of schema.json, shapes.json, fingerprint.json"
            ));
        }
        if field.kind != Kind::Interned || field.logical == Some(Logical::Binary) {
            return Err("only interned text has a sidecar".into());
        }
    }
    let scalar = field.kind == Kind::Fixed
        && (field.shape.is_empty()
            || (matches!(field.logical, Some(Logical::Decimal128(..))) && field.shape.len() == 1))
        && field.logical != Some(Logical::Bfloat16);
    if field.index && !scalar && !field.is_bytes() {
        return Err("arrays and bfloat16 cannot be columns of index.parquet".into());
    }
    Ok(())
}

fn check_axis(field: &Field) -> Result<(), String> {
    let axis = match (field.kind, &field.axis) {
        (Kind::Fixed | Kind::Interned, None) => return Ok(()),
        (Kind::Fixed | Kind::Interned, Some(_)) => {
            return Err(format!("a field of kind {} has no axis", field.kind.name()));
        }
        (Kind::Ragged | Kind::Free, None) => return Err("it needs an axis".into()),
        (Kind::Ragged | Kind::Free, Some(axis)) => axis,
    };
    if !is_stem(axis) {
        return Err(format!(
            "`{axis}` is no name for an axis: a lower-case letter, then up to 63 lower-case \
             letters, digits and `_`, and not reserved"
        ));
    }
    if !may_share(field) && *axis != field.stem {
        return Err("text, bytes, JSON and arrays of free shape have an axis of their own".into());
    }
    Ok(())
}

fn check_shape(field: &Field) -> Result<(), String> {
    let shape = &field.shape;
    if shape.len() > MAX_RANK {
        return Err(format!("a shape has at most {MAX_RANK} dimensions"));
    }
    match field.kind {
        Kind::Free if shape.is_empty() || shape.iter().any(|&n| n != 0) => {
            return Err("a free shape is as many zeros as its largest rank, at least one".into());
        }
        Kind::Free => return Ok(()),
        Kind::Interned if !shape.is_empty() => return Err("an interned field has no shape".into()),
        _ => {}
    }
    let bytes = shape.iter().try_fold(field.dtype.size() as u64, |bytes, &n| {
        i32::try_from(n).ok().and_then(|n| bytes.checked_mul(u64::try_from(n).ok()?))
    });
    match bytes {
        Some(0) => Err("a shape with a 0 in it holds nothing".into()),
        Some(bytes) if bytes <= MAX_UNIT_BYTES => Ok(()),
        _ => Err(format!("the shape {shape:?} is too large")),
    }
}

fn check_logical(field: &Field) -> Result<(), String> {
    let Some(logical) = &field.logical else {
        return match field.kind {
            Kind::Interned => Err("only text, bytes and JSON can be interned".into()),
            _ => Ok(()),
        };
    };
    if logical.dtype() != field.dtype {
        return Err(format!("{} does not lie over {}", logical.name(), field.dtype.name()));
    }
    match logical {
        Logical::Utf8 | Logical::Binary | Logical::Json => {
            let ragged = field.kind == Kind::Ragged && field.shape.is_empty();
            if !ragged && field.kind != Kind::Interned {
                return Err(format!("{} is ragged, without a shape, or interned", logical.name()));
            }
        }
        _ if field.kind == Kind::Interned => {
            return Err("only text, bytes and JSON can be interned".into());
        }
        Logical::Decimal128(precision, scale) => {
            if field.kind == Kind::Free || field.shape.last() != Some(&16) {
                return Err("the shape of decimals ends with 16 and is not free".into());
            }
            if !(1..=38).contains(precision) || !(-38..=38).contains(scale) {
                return Err(format!("decimal128({precision}, {scale}) is out of range"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_categories(field: &Field, categories: &[String]) -> Result<(), String> {
    let fits = field.kind == Kind::Fixed
        && field.shape.is_empty()
        && field.logical.is_none()
        && Some(field.dtype) == category_dtype(categories.len());
    if !fits {
        return Err(
            "a categorical field is the smallest signed integer that holds its codes".into()
        );
    }
    let mut seen = HashSet::new();
    match categories.iter().find(|value| !seen.insert(value.as_str())) {
        Some(twice) => Err(format!("`categorical` lists {twice:?} twice")),
        None => Ok(()),
    }
}

/// The dtype of codes into a list of `n` values; `None` of an empty list, or one that is too long.
pub(super) fn category_dtype(n: usize) -> Option<Dtype> {
    match n {
        0 => None,
        1..=0x80 => Some(Dtype::Int8),
        0x81..=0x8000 => Some(Dtype::Int16),
        _ => i32::try_from(n).ok().map(|_| Dtype::Int32),
    }
}
