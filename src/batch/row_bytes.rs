//! How many bytes the values of each row take.
//!
//! Invariant: the number depends on the row's values and their types alone. How rows were batched,
//! sliced and padded, and what stands in the buffers of nulls, never shows.

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{Array, GenericByteViewArray, OffsetSizeTrait, RecordBatch};
use arrow_schema::DataType;

/// Counted for a text or a list beside what is in it.
const LIST_BYTES: u64 = 8;
/// Counted for a value of a type that is none of those below.
const OTHER_BYTES: u64 = 16;

/// The bytes of each row's values.
pub(crate) fn row_bytes(rows: &RecordBatch) -> Vec<u64> {
    let mut sizes = vec![0; rows.num_rows()];
    for column in rows.columns() {
        add(column, &mut sizes);
    }
    sizes
}

/// Bytes of any value of this type, where they are all as large.
fn width(of: &DataType) -> Option<u64> {
    match of {
        DataType::Null => Some(0),
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(n) => u64::try_from(*n).ok(),
        DataType::FixedSizeList(item, n) => {
            width(item.data_type())?.checked_mul(u64::try_from(*n).ok()?)
        }
        other => other.primitive_width().and_then(|width| u64::try_from(width).ok()),
    }
}

/// Adds the bytes of each value of `array`.
fn add(array: &dyn Array, sizes: &mut [u64]) {
    if let Some(width) = width(array.data_type()) {
        add_to_each(sizes, width);
        return;
    }
    match array.data_type() {
        DataType::Utf8 => lists(array.as_string::<i32>().offsets(), array, sizes, None),
        DataType::LargeUtf8 => lists(array.as_string::<i64>().offsets(), array, sizes, None),
        DataType::Binary => lists(array.as_binary::<i32>().offsets(), array, sizes, None),
        DataType::LargeBinary => lists(array.as_binary::<i64>().offsets(), array, sizes, None),
        DataType::Utf8View => views::<StringViewType>(array.as_byte_view(), sizes),
        DataType::BinaryView => views::<BinaryViewType>(array.as_byte_view(), sizes),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            lists(list.offsets(), array, sizes, Some(list.values()));
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            lists(list.offsets(), array, sizes, Some(list.values()));
        }
        DataType::Map(..) => {
            let map = array.as_map();
            lists(map.offsets(), array, sizes, Some(map.entries()));
        }
        DataType::FixedSizeList(_, n) => {
            let (list, n) = (array.as_fixed_size_list(), usize::try_from(*n).unwrap_or(0).max(1));
            let mut of_items = vec![0; list.values().len()];
            add(list.values(), &mut of_items);
            for (row, (size, items)) in sizes.iter_mut().zip(of_items.chunks(n)).enumerate() {
                *size += if array.is_valid(row) { items.iter().sum() } else { 0 };
            }
        }
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                add(column, sizes);
            }
        }
        _ => add_to_each(sizes, OTHER_BYTES),
    }
}

fn add_to_each(sizes: &mut [u64], bytes: u64) {
    for size in sizes {
        *size += bytes;
    }
}

/// Adds the bytes of lists with these offsets: of bytes, or of `items`.
fn lists<O: OffsetSizeTrait>(
    offsets: &[O],
    array: &dyn Array,
    sizes: &mut [u64],
    items: Option<&dyn Array>,
) {
    let of_item = match items {
        None => Some(1),
        Some(items) => width(items.data_type()),
    };
    let mut of_items = Vec::new();
    if let (None, Some(items)) = (of_item, items) {
        of_items = vec![0; items.len()];
        add(items, &mut of_items);
    }
    for (row, (size, ends)) in sizes.iter_mut().zip(offsets.windows(2)).enumerate() {
        let (Some(from), Some(to)) = (ends.first(), ends.last()) else { continue };
        let (from, to) = (from.as_usize(), to.as_usize());
        *size += LIST_BYTES;
        if array.is_null(row) {
            continue;
        }
        *size += match of_item {
            Some(bytes) => (to - from) as u64 * bytes,
            None => of_items.get(from..to).unwrap_or_default().iter().sum(),
        };
    }
}

fn views<T: ByteViewType>(array: &GenericByteViewArray<T>, sizes: &mut [u64]) {
    for (row, size) in sizes.iter_mut().enumerate() {
        *size += LIST_BYTES;
        if array.is_valid(row) {
            let value: &T::Native = array.value(row);
            *size += AsRef::<[u8]>::as_ref(value).len() as u64;
        }
    }
}
