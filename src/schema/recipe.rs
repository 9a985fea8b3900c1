//! How the values of a column become the values of a field, if they can.
//!
//! The same question is asked when a schema is inferred and for every batch, so that what was
//! accepted once is accepted by the same rule.

use super::offer::{Leaf, Level, Offer};
use super::{Dtype, Field, Kind, Logical};

/// How to make a field's values of a column's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recipe {
    /// Numbers in lists. With `by_level`, each list has as many items as the field's shape says at
    /// its level; else only their product counts.
    Numbers { levels: Vec<Level>, leaf: Leaf, by_level: bool },
    /// Strings, checked for what the column's type does not promise.
    Bytes { check: Check },
    /// Strings that all have the same length.
    EqualBytes { levels: Vec<Level>, leaf: Leaf },
    /// A struct of `data` and `shape`.
    Tensor { leaf: Leaf },
    /// Any value, written as JSON.
    Encode,
    /// Text, replaced by its position in the field's categories.
    Categories,
}

/// What bytes must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    Utf8,
    Json,
}

/// How `field` is made of what a column offers, or why it cannot be.
pub(super) fn recipe(offer: &Offer, field: &Field) -> Result<Recipe, String> {
    if field.categories.is_some() {
        return match offer {
            Offer::Bytes(Logical::Utf8) => Ok(Recipe::Categories),
            _ => Err("only text can be categorical".into()),
        };
    }
    match offer {
        Offer::Bytes(logical) => of_bytes(logical, field),
        _ if field.logical == Some(Logical::Json) => Ok(Recipe::Encode),
        Offer::Numbers { levels, leaf } => of_numbers(levels, leaf, field),
        Offer::Tensor { leaf, rank } => {
            check_leaf(leaf, field)?;
            if field.kind != Kind::Free {
                return Err("arrays of free shape are stored as `kind = \"free\"`".into());
            }
            match rank {
                Some(rank) if *rank > field.shape.len() => {
                    Err(format!("its arrays have ranks up to {rank}"))
                }
                _ => Ok(Recipe::Tensor { leaf: leaf.clone() }),
            }
        }
        Offer::Nested => Err("nested values are stored as `dtype = \"json\"`".into()),
    }
}

fn of_bytes(logical: &Logical, field: &Field) -> Result<Recipe, String> {
    let check = match (&field.logical, logical) {
        (Some(Logical::Utf8), Logical::Binary) => Check::Utf8,
        (Some(Logical::Json), _) => Check::Json,
        (Some(Logical::Utf8 | Logical::Binary), _) => Check::Nothing,
        (None, _) if field.dtype == Dtype::Uint8 && field.kind != Kind::Free => Check::Nothing,
        _ => {
            return Err(format!(
                "{} is not stored as {}",
                logical.name(),
                field.logical.as_ref().map_or(field.dtype.name(), Logical::name)
            ));
        }
    };
    Ok(Recipe::Bytes { check })
}

fn of_numbers(levels: &[Level], leaf: &Leaf, field: &Field) -> Result<Recipe, String> {
    let plain_bytes = leaf.logical.is_none() && leaf.dtype == Dtype::Uint8;
    if field.logical == Some(Logical::Binary) && plain_bytes && matches!(levels, [Level::Of(_)]) {
        return Ok(Recipe::EqualBytes { levels: levels.to_vec(), leaf: leaf.clone() });
    }
    if field.is_bytes() {
        return Err("numbers are not stored as text or bytes".into());
    }
    check_leaf(leaf, field)?;
    let shape = field.shape.strip_suffix(leaf.tail()).unwrap_or(&field.shape);
    let inner = match (field.kind, levels) {
        (Kind::Ragged, [_, inner @ ..]) => inner,
        (Kind::Ragged, []) => return Err("single numbers are not ragged".into()),
        _ => levels,
    };
    let by_level = inner.len() == shape.len();
    let fits = match field.kind {
        Kind::Free => !levels.is_empty() && levels.len() <= shape.len(),
        // One flat list: the shape divides its length.
        Kind::Ragged if inner.is_empty() => true,
        _ if inner.contains(&Level::Varying) => {
            (by_level || field.kind == Kind::Fixed)
                && inner.iter().zip(shape).all(|(level, n)| !by_level || level.may_be(*n))
        }
        _ => product(inner) == Some(shape.iter().product()),
    };
    if !fits {
        return Err(format!("its lists do not have the shape {shape:?}"));
    }
    Ok(Recipe::Numbers { levels: levels.to_vec(), leaf: leaf.clone(), by_level })
}

impl Level {
    fn may_be(self, n: usize) -> bool {
        self == Level::Varying || self == Level::Of(n)
    }
}

/// Scalars under levels that all have one size.
pub(super) fn product(levels: &[Level]) -> Option<usize> {
    levels.iter().try_fold(1_usize, |all, level| match level {
        Level::Of(n) => all.checked_mul(*n),
        Level::Varying => None,
    })
}

/// Whether such scalars can be stored in the field: as they are, or converted value by value.
fn check_leaf(leaf: &Leaf, field: &Field) -> Result<(), String> {
    let fits = match (&leaf.logical, &field.logical) {
        (from, to) if from == to => leaf.logical.is_none() || leaf.dtype == field.dtype,
        (Some(Logical::Decimal128(..)), _) => false,
        (Some(_), None) => field.dtype != Dtype::Bool,
        (None, Some(Logical::Bfloat16)) => {
            matches!(leaf.dtype, Dtype::Uint16 | Dtype::Float16 | Dtype::Float32 | Dtype::Float64)
        }
        _ => false,
    };
    let name = |dtype: Dtype, logical: &Option<Logical>| {
        logical.as_ref().map_or(dtype.name(), Logical::name)
    };
    fits.then_some(()).ok_or_else(|| {
        format!(
            "{} is not stored as {}",
            name(leaf.dtype, &leaf.logical),
            name(field.dtype, &field.logical)
        )
    })
}
