//! What an Arrow column offers: numbers in lists, strings of bytes, tensors, or nested values.
//!
//! Leaves out: what is made of it (`infer`), and its values (`extract`).

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field as ArrowField, Fields, Schema as ArrowSchema, TimeUnit};

use super::{Dtype, Logical};

/// What the type of a column offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Offer {
    /// Numbers, in lists as deep as there are levels.
    Numbers { levels: Vec<Level>, leaf: Leaf },
    /// A string of bytes per row.
    Bytes(Logical),
    /// A struct of `data` and `shape`: an array of free shape. The rank, where the type tells it.
    Tensor { leaf: Leaf, rank: Option<usize> },
    /// Anything else that can be written as JSON.
    Nested,
}

/// How many items one level of lists holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// Each list has its own length.
    Varying,
    /// All have this one.
    Of(usize),
}

/// The scalars at the bottom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) dtype: Dtype,
    pub(super) logical: Option<Logical>,
}

impl Leaf {
    /// What a field's shape must end with to hold such scalars.
    pub(super) fn tail(&self) -> &'static [usize] {
        match self.logical {
            Some(Logical::Decimal128(..)) => &[16],
            _ => &[],
        }
    }
}

/// Canonical extension types that say what a column is.
const ARRAY: &str = "arrow.fixed_shape_tensor";
pub(super) const JSON: &str = "arrow.json";
const TENSOR: &str = "arrow.variable_shape_tensor";

/// Ours for arrays of free shape: the canonical tensor has short lists and one rank, and other
/// libraries refuse to read a stream that says otherwise.
pub(super) const FREE: &str = "rowmill.free";

/// Ours for interned JSON: canonical JSON lies in no dictionary.
pub(super) const INTERNED_JSON: &str = "rowmill.json";

/// What `field` offers, or why it has no place in a row.
pub(super) fn offer(field: &ArrowField) -> Result<Offer, String> {
    match extension(field) {
        Some(name @ (TENSOR | FREE)) => {
            tensor(field.data_type()).ok_or_else(|| format!("{} is no {name}", field.data_type()))
        }
        Some(JSON | INTERNED_JSON) if bytes(field.data_type()) == Some(Logical::Utf8) => {
            Ok(Offer::Bytes(Logical::Json))
        }
        Some(ARRAY) => array(field).ok_or_else(|| format!("its {ARRAY} is not read")),
        _ => offer_of_type(field.data_type()),
    }
}

fn extension(field: &ArrowField) -> Option<&str> {
    field.metadata().get(EXTENSION_TYPE_NAME_KEY).map(String::as_str)
}

/// A fixed-size list whose metadata gives it a shape. Permuted ones are not read.
fn array(field: &ArrowField) -> Option<Offer> {
    let metadata = field.metadata().get(EXTENSION_TYPE_METADATA_KEY)?;
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let shape = metadata.get("shape")?.as_array()?;
    let shape: Vec<usize> =
        shape.iter().map(|n| usize::try_from(n.as_u64()?).ok()).collect::<Option<_>>()?;
    let in_order = match metadata.get("permutation") {
        None | Some(serde_json::Value::Null) => true,
        Some(order) => {
            order.as_array()?.iter().enumerate().all(|(i, n)| n.as_u64() == Some(i as u64))
        }
    };
    let Offer::Numbers { levels, leaf } = offer_of_type(field.data_type()).ok()? else {
        return None;
    };
    let n_scalars = shape.iter().try_fold(1_usize, |all, &n| all.checked_mul(n))?;
    (in_order && levels == [Level::Of(n_scalars)])
        .then(|| Offer::Numbers { levels: shape.into_iter().map(Level::Of).collect(), leaf })
}

fn offer_of_type(data_type: &DataType) -> Result<Offer, String> {
    if let Some(logical) = bytes(data_type) {
        return Ok(Offer::Bytes(logical));
    }
    if let Some((levels, leaf)) = numbers(data_type) {
        if levels.contains(&Level::Of(0)) {
            return Err("lists of size 0 hold nothing".into());
        }
        return Ok(Offer::Numbers { levels, leaf });
    }
    check_nested(data_type, true)?;
    Ok(Offer::Nested)
}

/// The logical type of a column of strings.
fn bytes(data_type: &DataType) -> Option<Logical> {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Logical::Utf8),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(Logical::Binary),
        DataType::Dictionary(_, values) => bytes(values),
        _ => None,
    }
}

/// The levels of lists over numbers, outermost first, and the numbers.
fn numbers(data_type: &DataType) -> Option<(Vec<Level>, Leaf)> {
    let mut levels = Vec::new();
    let mut inner = data_type;
    loop {
        inner = match inner {
            DataType::List(item) | DataType::LargeList(item) => {
                levels.push(Level::Varying);
                item.data_type()
            }
            DataType::FixedSizeList(item, n) => {
                levels.push(Level::Of(usize::try_from(*n).ok()?));
                item.data_type()
            }
            DataType::FixedSizeBinary(n) => {
                levels.push(Level::Of(usize::try_from(*n).ok()?));
                &DataType::UInt8
            }
            DataType::Dictionary(_, values) => values,
            _ => return Some((levels, leaf(inner)?)),
        };
    }
}

fn leaf(data_type: &DataType) -> Option<Leaf> {
    let logical = match data_type {
        DataType::Date32 | DataType::Date64 => Logical::Date32,
        DataType::Time32(unit @ (TimeUnit::Second | TimeUnit::Millisecond))
        | DataType::Time64(unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => {
            Logical::Time64(*unit)
        }
        DataType::Timestamp(unit, tz) => Logical::Timestamp(*unit, tz.clone()),
        DataType::Duration(unit) => Logical::Duration(*unit),
        DataType::Decimal128(precision, scale) => Logical::Decimal128(*precision, *scale),
        _ => return Some(Leaf { dtype: Dtype::of_arrow(data_type)?, logical: None }),
    };
    Some(Leaf { dtype: logical.dtype(), logical: Some(logical) })
}

/// What a struct of `data` (a list of numbers) and `shape` (a list of int32 or int64) offers.
pub(super) fn tensor(data_type: &DataType) -> Option<Offer> {
    let DataType::Struct(fields) = data_type else { return None };
    let (_, data) = fields.find("data")?;
    let (_, shape) = fields.find("shape")?;
    if fields.len() != 2 {
        return None;
    }
    let rank = match shape.data_type() {
        DataType::FixedSizeList(item, n) if is_dim(item) => Some(usize::try_from(*n).ok()?),
        DataType::List(item) | DataType::LargeList(item) if is_dim(item) => None,
        _ => return None,
    };
    match numbers(data.data_type())? {
        (levels, leaf) if levels == [Level::Varying] && leaf.tail().is_empty() => {
            Some(Offer::Tensor { leaf, rank })
        }
        _ => None,
    }
}

fn is_dim(item: &ArrowField) -> bool {
    matches!(item.data_type(), DataType::Int32 | DataType::Int64)
}

/// Whether values of this type can be written as JSON.
fn check_nested(data_type: &DataType, top: bool) -> Result<(), String> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            check_nested(item.data_type(), false)
        }
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|field| check_nested(field.data_type(), false))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => match fields.as_ref() {
                [key, value] if bytes(key.data_type()) == Some(Logical::Utf8) => {
                    check_nested(value.data_type(), false)
                }
                _ => Err("a map needs text as keys".into()),
            },
            _ => Err("it is no map".into()),
        },
        DataType::Dictionary(_, values) => check_nested(values, top),
        DataType::Null if !top => Ok(()),
        DataType::Null => Err("a column without a type holds nothing".into()),
        _ if bytes(data_type) == Some(Logical::Utf8) => Ok(()),
        _ if bytes(data_type) == Some(Logical::Binary) => {
            Err("bytes within lists, structs and maps have no form in JSON".into())
        }
        DataType::FixedSizeBinary(_) => {
            Err("bytes within lists, structs and maps have no form in JSON".into())
        }
        _ if leaf(data_type).is_some() => Ok(()),
        _ => Err(format!("columns of Arrow type {data_type} have no layout")),
    }
}

/// A column of a batch, or a field of its structs, that becomes a field.
#[derive(Debug, Clone)]
pub(super) struct Column<'a> {
    /// Names joined by dots.
    pub(super) name: String,
    /// Index of the column, then of the field in each struct.
    pub(super) path: Vec<usize>,
    pub(super) field: &'a ArrowField,
    /// Whether it, or a struct that it is in, may be null.
    pub(super) nullable: bool,
}

/// The columns of a schema with structs replaced by their fields, but for structs that
/// `is_whole` names.
pub(super) fn flatten<'a>(
    schema: &'a ArrowSchema,
    is_whole: &dyn Fn(&str) -> bool,
) -> Vec<Column<'a>> {
    let mut flat = Vec::with_capacity(schema.fields().len());
    flatten_into(&mut flat, schema.fields(), None, is_whole);
    flat
}

fn flatten_into<'a>(
    flat: &mut Vec<Column<'a>>,
    fields: &'a Fields,
    above: Option<&Column<'a>>,
    is_whole: &dyn Fn(&str) -> bool,
) {
    for (i, field) in fields.iter().enumerate() {
        let name = match above {
            Some(above) => format!("{}.{}", above.name, field.name()),
            None => field.name().clone(),
        };
        let mut path = above.map_or_else(Vec::new, |above| above.path.clone());
        path.push(i);
        let nullable = field.is_nullable() || above.is_some_and(|above| above.nullable);
        let column = Column { name, path, field, nullable };
        match field.data_type() {
            DataType::Struct(inner)
                if !inner.is_empty()
                    && !matches!(extension(field), Some(TENSOR | FREE))
                    && !is_whole(&column.name) =>
            {
                flatten_into(flat, inner, Some(&column), is_whole);
            }
            _ => flat.push(column),
        }
    }
}
