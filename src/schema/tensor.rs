//! Structs of `data` and `shape` as arrays of free shape.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

use super::extract::{Bad, items};
use super::lists::Lists;
use super::offer::{Leaf, Level};
use super::{ColumnData, Field};

const HINT: &str = "correct `shape` where it is made, or reject such rows before";

/// The arrays of a struct without nulls. Numbers of `shape` that are -1 at its end only pad it.
pub(super) fn tensor(array: &ArrayRef, leaf: &Leaf, field: &Field) -> Result<ColumnData, Bad> {
    let parts = array.as_struct();
    let (Some(data), Some(shape)) = (parts.column_by_name("data"), parts.column_by_name("shape"))
    else {
        return Err(Bad::unreadable());
    };
    let missing =
        |part: &ArrayRef| part.logical_nulls().and_then(|nulls| nulls.iter().position(|v| !v));
    if let Some(row) = missing(data).or(missing(shape)) {
        return Err(Bad::new(row, "null_item", "`data` or `shape` is null", HINT));
    }
    let data = Lists::new(data, &[Level::Varying])?;
    let bytes = items(&data, leaf, field)?;
    let shapes = Lists::new(shape, &[Level::Varying])?;
    let sizes = dims(&shapes.items);
    let rank = field.shape.len();
    let mut dims = vec![-1_i32; data.n_rows * rank];
    let (ends, at) = (data.starts(1), shapes.starts(1));
    for row in 0..data.n_rows {
        let size = |ends: &[i64]| Some(ends.get(row + 1)? - ends.get(row)?);
        let from = at.get(row).and_then(|at| usize::try_from(*at).ok()).unwrap_or_default();
        let n = size(&at).and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let shape = sizes.get(from..from + n).unwrap_or_default();
        let padding = shape.iter().rev().take_while(|&&n| n == -1).count();
        let shape = shape.get(..n - padding).unwrap_or_default();
        let scalars = shape.iter().try_fold(1_i64, |all, n| all.checked_mul(*n));
        let valid = shape.iter().all(|&n| (0..=i64::from(i32::MAX)).contains(&n));
        if !valid || scalars != size(&ends) || shape.len() > rank {
            let message = format!(
                "{} numbers do not have the shape {shape:?} of rank up to {rank}",
                size(&ends).unwrap_or_default()
            );
            return Err(Bad::new(row, "shape", message, HINT));
        }
        for (dim, n) in dims.iter_mut().skip(row * rank).zip(shape) {
            *dim = i32::try_from(*n).unwrap_or(-1);
        }
    }
    Ok(ColumnData::Free { dims: dims.into(), offsets: ends.into(), bytes })
}

fn dims(items: &ArrayRef) -> Vec<i64> {
    match items.data_type() {
        DataType::Int32 => {
            items.as_primitive::<Int32Type>().values().iter().map(|&n| n.into()).collect()
        }
        _ => items.as_primitive::<Int64Type>().values().to_vec(),
    }
}
