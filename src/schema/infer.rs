//! A schema of Arrow types and of what a definition says of them.
//!
//! - Numbers are fixed; in lists of one size, fixed with a shape; in lists of varying length,
//!   ragged; in deeper lists of varying length, of free shape (each row must be rectangular), but
//!   decimals JSON.
//! - Text, binary and JSON are ragged bytes with a logical type. `FixedSizeBinary` is fixed `uint8`.
//! - Dates (`Date64` too, which must be whole days), times (`Time32` too), timestamps, durations and
//!   `Decimal128` keep their meaning as a logical type, within lists too.
//! - Structs become fields `a.b`; a struct that may be null makes nullable fields. Dictionaries are
//!   unpacked. The canonical extension types for JSON and for tensors are understood.
//! - Other nested values become JSON. What has no place in JSON, and every other Arrow type, is
//!   refused by name.

use std::collections::BTreeMap;

use arrow_schema::Schema as ArrowSchema;

use super::check::category_dtype;
use super::offer::{Column, Level, Offer, flatten, offer, tensor};
use super::recipe::recipe;
use super::stem::Stems;
use super::{Dtype, Field, FieldSpec, Kind, Logical, RowSchema, SchemaError, Stored, nearest};

impl RowSchema {
    /// Makes the schema of rows with these columns. `specs` says by name what is not to be
    /// inferred; `key` names the key field.
    ///
    /// # Errors
    /// Names the field and what to do: a column that has no layout, a specification of a field that
    /// is not there or that contradicts its column, names that collide.
    pub fn infer(
        schema: &ArrowSchema,
        specs: &BTreeMap<String, FieldSpec>,
        key: Option<&str>,
    ) -> Result<Self, SchemaError> {
        let columns = flatten(schema, &|name| specs.contains_key(name));
        let names = || columns.iter().map(|column| column.name.as_str());
        if let Some(name) = specs.keys().find(|name| !names().any(|other| other == *name)) {
            return Err(SchemaError::field(
                name,
                "the rows have no such field",
                nearest(name, names()),
            ));
        }
        if let Some(spec) = key.and_then(|key| specs.get(key))
            && spec.nullable == Some(true)
        {
            return Err(SchemaError::field(
                key.unwrap_or_default(),
                "a key cannot be nullable",
                Some("remove `nullable`".into()),
            ));
        }
        let mut stems = Stems::new(specs.values().filter_map(|spec| spec.axis.as_deref()));
        let plain = FieldSpec::default();
        let fields = columns
            .iter()
            .map(|column| {
                let spec = specs.get(&column.name).unwrap_or(&plain);
                let stem = stems.next(&column.name, spec.axis.as_deref());
                make_field(column, spec, stem)
            })
            .collect::<Result<_, _>>()?;
        Self::new(fields, key)
    }
}

/// What is wrong, and what to do.
type Refusal = (String, Option<&'static str>);

fn make_field(column: &Column<'_>, spec: &FieldSpec, stem: String) -> Result<Field, SchemaError> {
    let fail =
        |(message, hint): Refusal| SchemaError::field(&column.name, message, hint.map(Into::into));
    let offer = find_offer(column, spec).map_err(fail)?;
    let offer = if says_no_form(spec) { without_free_decimals(offer) } else { offer };
    let (dtype, logical) = storage(&offer, spec).map_err(fail)?;
    let is_bytes = logical.as_ref().is_some_and(Logical::is_bytes);
    let kind = kind(&offer, spec, is_bytes).map_err(fail)?;
    let mut shape = shape(&offer, spec, kind, is_bytes).map_err(fail)?;
    if let Offer::Numbers { leaf, .. } = &offer
        && logical == leaf.logical
        && kind != Kind::Free
    {
        shape.extend_from_slice(leaf.tail());
    }
    let axis = match kind {
        Kind::Ragged | Kind::Free => Some(spec.axis.clone().unwrap_or_else(|| stem.clone())),
        Kind::Fixed | Kind::Interned => spec.axis.clone(),
    };
    let field = Field {
        name: column.name.clone(),
        stem,
        kind,
        dtype,
        shape,
        axis,
        nullable: spec.nullable.unwrap_or(column.nullable),
        logical,
        categories: spec.categorical.clone(),
        sidecar: spec.sidecar.clone(),
        index: spec.index,
    };
    super::check::check_field(&field).map_err(|message| fail((message, None)))?;
    recipe(&offer, &field).map_err(|message| {
        let hint = "change what [dataset.fields] says of it, or the column before it gets there";
        fail((message, Some(hint)))
    })?;
    Ok(field)
}

fn find_offer(column: &Column<'_>, spec: &FieldSpec) -> Result<Offer, Refusal> {
    let data_type = column.field.data_type();
    if spec.kind == Some(Kind::Free)
        && let Some(offer) = tensor(data_type)
    {
        return Ok(offer);
    }
    let found = offer(column.field);
    match &found {
        Ok(Offer::Nested)
            if matches!(data_type, arrow_schema::DataType::Struct(inner) if !inner.is_empty())
                && spec.dtype != Some(Stored::Json) =>
        {
            let message = "it is a struct, whose fields become fields of their own";
            Err((message.into(), Some("name one of those, or store it as `dtype = \"json\"`")))
        }
        _ => found.map_err(|message| {
            (message, Some("leave the column out, or convert it before it gets there"))
        }),
    }
}

fn says_no_form(spec: &FieldSpec) -> bool {
    let FieldSpec { kind, dtype, shape, axis, rank, .. } = spec;
    kind.is_none() && dtype.is_none() && shape.is_none() && axis.is_none() && rank.is_none()
}

/// Decimals have no free shape: where they would, they become JSON.
fn without_free_decimals(offer: Offer) -> Offer {
    match &offer {
        Offer::Numbers { leaf, levels }
            if matches!(leaf.logical, Some(Logical::Decimal128(..)))
                && levels.iter().skip(1).any(|level| *level == Level::Varying) =>
        {
            Offer::Nested
        }
        _ => offer,
    }
}

/// Dtype and logical type that the field is stored as.
fn storage(offer: &Offer, spec: &FieldSpec) -> Result<(Dtype, Option<Logical>), Refusal> {
    if let Some(categories) = &spec.categorical {
        if spec.dtype.is_some() {
            let hint = "remove `dtype`: the length of the list decides it";
            return Err(("a categorical field has no dtype to choose".into(), Some(hint)));
        }
        let dtype = category_dtype(categories.len());
        return match dtype {
            Some(dtype) => Ok((dtype, None)),
            None => Err(("`categorical` lists no values".into(), Some("list them all"))),
        };
    }
    let logical = match (spec.dtype, offer) {
        (Some(Stored::Utf8), _) => Some(Logical::Utf8),
        (Some(Stored::Binary), _) => Some(Logical::Binary),
        (Some(Stored::Json), _) | (None, Offer::Nested) => Some(Logical::Json),
        (Some(Stored::Bfloat16), _) => Some(Logical::Bfloat16),
        (Some(_), _) => None,
        (None, Offer::Bytes(logical)) => Some(logical.clone()),
        (None, Offer::Numbers { leaf, .. } | Offer::Tensor { leaf, .. }) => leaf.logical.clone(),
    };
    let dtype = match (&logical, spec.dtype.and_then(Stored::dtype), offer) {
        (Some(logical), _, _) => logical.dtype(),
        (None, Some(dtype), _) => dtype,
        (None, None, Offer::Numbers { leaf, .. } | Offer::Tensor { leaf, .. }) => leaf.dtype,
        (None, None, Offer::Bytes(_) | Offer::Nested) => Dtype::Uint8,
    };
    Ok((dtype, logical))
}

fn kind(offer: &Offer, spec: &FieldSpec, is_bytes: bool) -> Result<Kind, Refusal> {
    if spec.intern && spec.kind.is_some_and(|kind| kind != Kind::Interned) {
        return Err((
            "`intern` and `kind` contradict each other".into(),
            Some("remove one of them"),
        ));
    }
    if spec.sidecar.is_some() && !spec.intern && spec.kind != Some(Kind::Interned) {
        return Err(("only interned text has a sidecar".into(), Some("add `intern = true`")));
    }
    Ok(match (spec.kind, offer) {
        _ if spec.intern => Kind::Interned,
        (Some(kind), _) => kind,
        _ if spec.categorical.is_some() => Kind::Fixed,
        _ if is_bytes || spec.axis.is_some() => Kind::Ragged,
        _ if spec.shape.is_some() => Kind::Fixed,
        (None, Offer::Numbers { levels, .. }) => match levels.split_first() {
            _ if !levels.contains(&Level::Varying) => Kind::Fixed,
            Some((_, inner)) if !inner.contains(&Level::Varying) => Kind::Ragged,
            _ => Kind::Free,
        },
        (None, Offer::Tensor { .. }) => Kind::Free,
        (None, Offer::Bytes(_) | Offer::Nested) => Kind::Ragged,
    })
}

fn shape(
    offer: &Offer,
    spec: &FieldSpec,
    kind: Kind,
    is_bytes: bool,
) -> Result<Vec<usize>, Refusal> {
    let levels = match offer {
        Offer::Numbers { levels, .. } if !is_bytes => levels.as_slice(),
        _ => &[],
    };
    if kind != Kind::Free && spec.rank.is_some() {
        return Err(("only arrays of free shape have a `rank`".into(), Some("use `shape`")));
    }
    if let Some(shape) = &spec.shape {
        return match kind {
            Kind::Free => {
                Err(("a free shape cannot be given".into(), Some("give its largest `rank`")))
            }
            _ => Ok(shape.clone()),
        };
    }
    let inner = match (kind, levels) {
        (Kind::Interned, _) => return Ok(Vec::new()),
        (Kind::Free, _) => {
            let offered = match offer {
                Offer::Tensor { rank, .. } => *rank,
                _ => Some(levels.len()),
            };
            let Some(rank) = spec.rank.or(offered) else {
                let hint = Some("give its largest `rank`");
                return Err(("its type does not tell how many dimensions it has".into(), hint));
            };
            return Ok(vec![0; rank.min(super::check::MAX_RANK + 1)]);
        }
        (Kind::Ragged, [_, inner @ ..]) => inner,
        _ => levels,
    };
    let sizes = inner.iter().map(|level| match level {
        Level::Of(n) => Some(*n),
        Level::Varying => None,
    });
    sizes.collect::<Option<_>>().ok_or_else(|| {
        ("its lists vary in length".into(), Some("give the `shape` that all of them have"))
    })
}
