//! Arrays of numbers in files: what they are made of, and their bytes as Arrow columns.
//!
//! Leaves out: how a file's head is written (`npy_header`, `idx`), and reading (`array_rows`).
//!
//! Invariants:
//! 1. Values are those of the file, exactly; only the order of their bytes changes. A truth value is
//!    false where its byte is 0.
//! 2. Sizes that a file claims are multiplied with checks; nothing is reserved on their word alone.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, FieldRef};

use super::array_files::damaged;
use super::content::Content;
use super::{BadRow, INPUT_DAMAGED, Input, SourceError};
use crate::schema::Dtype;

/// More dimensions than a field may have.
const MOST_DIMS: usize = 32;

/// The type of the numbers in a column, at whatever depth of lists.
pub(super) fn dtype_of(data_type: &DataType) -> Option<Dtype> {
    match data_type {
        DataType::FixedSizeList(inner, _) | DataType::LargeList(inner) => {
            dtype_of(inner.data_type())
        }
        numbers => Dtype::of_arrow(numbers),
    }
}

/// What a file says of the array in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArrayHead {
    pub(super) item: Dtype,
    pub(super) is_big_endian: bool,
    /// Whether the first index varies fastest, not the last.
    pub(super) is_fortran: bool,
    /// Entries along each axis.
    pub(super) shape: Vec<u64>,
    /// Offset of the first value.
    pub(super) start: u64,
}

/// What is wrong with a head, and what to do.
pub(super) type Refusal = (String, &'static str);

impl ArrayHead {
    /// Bytes of the values under one index of the axes behind the first `n_axes`.
    fn bytes_behind(&self, n_axes: usize) -> Option<u64> {
        let inner = self.shape.get(n_axes..).unwrap_or_default();
        inner.iter().try_fold(self.item.size() as u64, |all, n| all.checked_mul(*n))
    }

    /// Refuses what no column can hold, or no file of `size` bytes (`None`: not known yet).
    pub(super) fn check(&self, size: Option<u64>) -> Result<(), Refusal> {
        if self.shape.len() > MOST_DIMS {
            let message = format!("{} dimensions, of at most {MOST_DIMS}", self.shape.len());
            return Err((message, "reshape the array before it is saved"));
        }
        let inner = self.shape.get(1..).unwrap_or_default();
        if let Some(n) = inner.iter().find(|n| **n == 0 || **n > i32::MAX as u64) {
            let message = format!("an axis of {n} entries behind the first");
            return Err((message, "reshape the array before it is saved"));
        }
        let lies = "the file is damaged, or was not written to its end; write it again";
        let end = self.bytes_behind(0).and_then(|bytes| bytes.checked_add(self.start));
        let Some(end) = end else {
            return Err((format!("the shape {} is too large", self.shown()), lies));
        };
        if let Some(size) = size
            && size != end
        {
            let message = format!(
                "the file has {size} bytes; a head of {} and {} make {end}",
                self.start,
                self.array_shown()
            );
            return Err((message, lies));
        }
        Ok(())
    }

    /// Bytes of one row, an index of the first axis; 0 of an array that has none.
    pub(super) fn row_bytes(&self) -> u64 {
        self.bytes_behind(1).unwrap_or(0)
    }

    /// Bytes of all values.
    pub(super) fn array_bytes(&self) -> u64 {
        self.bytes_behind(0).unwrap_or(0)
    }

    /// Rows, the entries of the first axis; `None` of an array without axes.
    pub(super) fn n_rows(&self) -> Option<u64> {
        self.shape.first().copied()
    }

    /// The rows that lie in `range` of the file, of all its bytes where there is none; `None` if the
    /// range does not begin and end with rows.
    pub(super) fn rows_in(&self, range: Option<&Range<u64>>) -> Option<Range<u64>> {
        let n_rows = self.n_rows()?;
        let Some(range) = range else { return Some(0..n_rows) };
        let row_at = |byte: u64| {
            let bytes = byte.checked_sub(self.start)?;
            (bytes % self.row_bytes() == 0).then(|| bytes / self.row_bytes())
        };
        // The first range begins with the head.
        let first = if range.start == 0 { 0 } else { row_at(range.start)? };
        let end = row_at(range.end)?;
        (first <= end && end <= n_rows).then_some(first..end)
    }

    /// The column whose rows are the entries of the first axis.
    pub(super) fn row_type(&self) -> DataType {
        nested(self.item, self.shape.get(1..).unwrap_or_default())
    }

    /// The column whose rows are whole arrays, of any length along the first axis.
    pub(super) fn array_type(&self) -> DataType {
        if self.shape.is_empty() {
            return self.item.arrow();
        }
        DataType::LargeList(list_item(self.row_type()))
    }

    /// "(5, 4096)", as Python writes it.
    fn shown(&self) -> String {
        let sizes: Vec<_> = self.shape.iter().map(u64::to_string).collect();
        let comma = if sizes.len() == 1 { "," } else { "" };
        format!("({}{comma})", sizes.join(", "))
    }

    /// What the array is: "uint8 of shape (100, 28, 28)".
    pub(super) fn array_shown(&self) -> String {
        format!("{} of shape {}", self.item.name(), self.shown())
    }

    /// What an entry of the first axis is: "uint8 of shape (28, 28)".
    pub(super) fn row_shown(&self) -> String {
        let row = Self { shape: self.shape.get(1..).unwrap_or_default().to_vec(), ..self.clone() };
        row.array_shown()
    }
}

/// The non-null items of a list.
fn list_item(data_type: DataType) -> FieldRef {
    Arc::new(Field::new("item", data_type, false))
}

fn nested(item: Dtype, shape: &[u64]) -> DataType {
    shape.iter().rev().fold(item.arrow(), |inner, n| {
        DataType::FixedSizeList(list_item(inner), i32::try_from(*n).unwrap_or(i32::MAX))
    })
}

/// Turns values that were read as big-endian to little-endian ones.
pub(super) fn swap_bytes(item: Dtype, bytes: &mut [u8]) {
    fn swap<const N: usize>(bytes: &mut [u8]) {
        bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|value| value.reverse());
    }
    match item.size() {
        2 => swap::<2>(bytes),
        4 => swap::<4>(bytes),
        8 => swap::<8>(bytes),
        _ => {}
    }
}

/// Little-endian values as a column of `data_type`: `item`, in lists of fixed size or in none.
pub(super) fn column(
    item: Dtype,
    data_type: &DataType,
    bytes: Vec<u8>,
) -> Result<ArrayRef, ArrowError> {
    if let DataType::FixedSizeList(field, n) = data_type {
        let values = column(item, field.data_type(), bytes)?;
        return Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *n, values, None)?));
    }
    if item == Dtype::Bool {
        return Ok(Arc::new(bytes.iter().map(|byte| Some(*byte != 0)).collect::<BooleanArray>()));
    }
    let n_values = bytes.len() / item.size();
    let data = ArrayData::builder(item.arrow()).len(n_values).add_buffer(Buffer::from_vec(bytes));
    // Bytes are copied where they happen not to lie as numbers must.
    Ok(make_array(data.align_buffers(true).build()?))
}

/// The rows of a column-major array one after another.
pub(super) fn to_row_major(head: &ArrayHead, bytes: &[u8]) -> Vec<u8> {
    let size = head.item.size();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = vec![0_u64; head.shape.len()];
    for _ in 0..bytes.len() / size {
        let at = index.iter().zip(&head.shape).rev().fold(0, |at, (i, n)| at * n + i);
        let from = usize::try_from(at).unwrap_or(usize::MAX).saturating_mul(size);
        out.extend_from_slice(bytes.get(from..from + size).unwrap_or_default());
        for (i, n) in index.iter_mut().zip(&head.shape).rev() {
            *i += 1;
            if *i < *n {
                break;
            }
            *i = 0;
        }
    }
    out
}

/// A head that cannot be read, as an error.
pub(super) fn refused(input: &Input, (message, hint): Refusal) -> SourceError {
    BadRow::new(INPUT_DAMAGED, message).hint(hint).into_error(&input.path, "header")
}

/// The next `n` bytes of a head.
pub(super) fn head_bytes(
    input: &Input,
    open: &mut Content,
    n: usize,
) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    if open.append_to(&mut bytes, n).map_err(damaged)? < n {
        let hint = "the file was not written to its end; write it again, or leave it out of `path`";
        return Err(refused(input, ("the file ends within its head".into(), hint)));
    }
    Ok(bytes)
}
