//! The values of one column as the bytes of a field.
//!
//! Invariants:
//! 1. What lies beneath a null, or outside a slice, is never looked at and never written.
//! 2. Where Arrow's buffer is what is written, it is handed on, not copied.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, GenericByteArray, types::ByteArrayType};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::cast::{expand, is_as_stored, scalars};
use super::encode::Room;
use super::lists::{Lists, Span, from_zero, unpack};
use super::offer::Leaf;
use super::recipe::{Check, Recipe};
use super::{Column, ColumnData, Field, Kind, SchemaError, encode};

/// A row that has no place in its field.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) row: usize,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

impl Bad {
    pub(super) fn new(
        row: usize,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self { row, code, message: message.into(), hint: Some(hint) }
    }

    /// Arrow refused to unpack an array: it is not what its type says.
    pub(super) fn unreadable() -> Self {
        let message = "the Arrow array is not what its type says".into();
        Self { row: 0, code: Self::UNREADABLE, message, hint: None }
    }

    /// The rows become more text than there is room for.
    pub(super) fn too_much() -> Self {
        Self { row: 0, code: Self::TOO_MUCH, message: String::new(), hint: None }
    }

    /// Whether fewer rows at once would do.
    pub(super) fn is_too_much(&self) -> bool {
        self.code == Self::TOO_MUCH
    }

    /// The error of `field`, which may be the key.
    pub(super) fn of_field(self, field: &str, is_key: bool) -> SchemaError {
        let Self { row, code, mut message, mut hint } = self;
        if code == Self::UNREADABLE {
            return SchemaError::batch(field, message);
        }
        if is_key && code == Self::NULL {
            message.push_str(", and it is the key");
            hint = Some("leave such rows out before, or choose another `key`");
        }
        let (field, hint) = (field.into(), hint.map(str::to_owned));
        SchemaError::Value { row, field, code, message, hint }
    }

    /// Not a row's fault.
    const UNREADABLE: &str = "unreadable";
    /// Not a row's fault either.
    const TOO_MUCH: &str = "too_much";
    /// The row has no value.
    const NULL: &str = "null";
}

const SHAPE_HINT: &str = "correct the shape in [dataset.fields], or reject such rows before";
/// Characters of a value that a message shows.
const MOST_SHOWN: usize = 40;
const FIT_HINT: &str = "choose a wider dtype in [dataset.fields], or reject such rows before";

/// The field's values in `array`; `above` tells in which rows a struct around it is null.
pub(super) fn extract(
    array: &ArrayRef,
    above: Option<&NullBuffer>,
    field: &Field,
    recipe: &Recipe,
    room: &Room,
) -> Result<Column, Bad> {
    let array = &unpack(array)?;
    let valid = NullBuffer::union(above, array.logical_nulls().as_ref());
    let valid = valid.filter(|valid| valid.null_count() > 0);
    let data = match &valid {
        None => dense(array, field, recipe, room)?,
        Some(valid) if !field.nullable => {
            let row = first_null(valid);
            let hint = "declare `nullable = true` in [dataset.fields], or reject such rows before";
            return Err(Bad::new(row, Bad::NULL, "there is no value", hint));
        }
        Some(valid) => with_nulls(array, valid, field, recipe, room)?,
    };
    let valid = field.nullable.then(|| match &valid {
        None => Buffer::from_vec(vec![1_u8; array.len()]),
        Some(valid) => Buffer::from_vec(expand(valid.inner())),
    });
    Ok(Column { valid, data, unit_bytes: field.unit_bytes() })
}

/// Index of the first null, of a buffer that has one.
fn first_null(valid: &NullBuffer) -> usize {
    valid.valid_slices().next().map_or(0, |(from, to)| if from > 0 { 0 } else { to })
}

/// The values of an array with nulls. Where that is simple, rows are copied once or not at all;
/// otherwise the present rows are gathered first.
fn with_nulls(
    array: &ArrayRef,
    valid: &NullBuffer,
    field: &Field,
    recipe: &Recipe,
    room: &Room,
) -> Result<ColumnData, Bad> {
    if let Recipe::Numbers { levels, leaf, .. } = recipe
        && levels.is_empty()
        && field.kind == Kind::Fixed
        && is_as_stored(array.data_type(), leaf, field)
    {
        let bytes = scalars(array, leaf, field).map_err(|_| Bad::unreadable())?;
        return Ok(ColumnData::Fixed { bytes: present(&bytes, valid, field.unit_bytes()) });
    }
    // The empty strings of absent rows are UTF-8, but no JSON.
    if matches!(recipe, Recipe::Bytes { check: Check::Nothing | Check::Utf8 })
        && matches!(field.kind, Kind::Ragged | Kind::Interned)
        && is_empty_where_null(array, valid)
    {
        return dense(array, field, recipe, room);
    }
    let mask = BooleanArray::new(valid.inner().clone(), None);
    let gathered = arrow_select::filter::filter(array, &mask).map_err(|_| Bad::unreadable())?;
    let data = dense(&gathered, field, recipe, room).map_err(|bad| {
        let row = valid.valid_indices().nth(bad.row).unwrap_or(bad.row);
        Bad { row, ..bad }
    })?;
    Ok(spread(data, valid, field))
}

/// Whether null rows hold no bytes, as most writers of Arrow leave them.
fn is_empty_where_null(array: &ArrayRef, valid: &NullBuffer) -> bool {
    fn check<T: ByteArrayType>(array: &GenericByteArray<T>, valid: &NullBuffer) -> bool {
        // Bytes of the present rows alone must be all there are.
        let offsets = array.value_offsets();
        let mut at = offsets.first().copied();
        valid.valid_slices().all(|(from, to)| {
            let starts_here = at.as_ref() == offsets.get(from);
            at = offsets.get(to).copied();
            starts_here
        }) && at.as_ref() == offsets.last()
    }
    match array.data_type() {
        DataType::Utf8 => check(array.as_string::<i32>(), valid),
        DataType::LargeUtf8 => check(array.as_string::<i64>(), valid),
        DataType::Binary => check(array.as_binary::<i32>(), valid),
        DataType::LargeBinary => check(array.as_binary::<i64>(), valid),
        _ => false,
    }
}

/// The rows of `bytes` with zeros where there is no value.
fn present(bytes: &Buffer, valid: &NullBuffer, row_bytes: usize) -> Buffer {
    let mut rows = vec![0; bytes.len()];
    for (from, to) in valid.valid_slices() {
        let range = from * row_bytes..to * row_bytes;
        if let (Some(to), Some(from)) = (rows.get_mut(range.clone()), bytes.get(range)) {
            to.copy_from_slice(from);
        }
    }
    Buffer::from_vec(rows)
}

/// Present rows put where they belong among the absent ones.
fn spread(data: ColumnData, valid: &NullBuffer, field: &Field) -> ColumnData {
    match data {
        ColumnData::Fixed { bytes } => {
            let fill = if field.categories.is_some() { 0xff } else { 0 };
            ColumnData::Fixed { bytes: spread_rows(&bytes, valid, field.unit_bytes(), fill) }
        }
        ColumnData::Ragged { offsets, bytes } => {
            ColumnData::Ragged { offsets: spread_offsets(&offsets, valid), bytes }
        }
        ColumnData::Interned { offsets, bytes } => {
            ColumnData::Interned { offsets: spread_offsets(&offsets, valid), bytes }
        }
        ColumnData::Free { dims, offsets, bytes } => {
            let row_bytes = field.shape.len() * size_of::<i32>();
            let dims = spread_rows(dims.inner(), valid, row_bytes, 0);
            ColumnData::Free { dims: dims.into(), offsets: spread_offsets(&offsets, valid), bytes }
        }
    }
}

fn spread_rows(bytes: &[u8], valid: &NullBuffer, row_bytes: usize, fill: u8) -> Buffer {
    let mut rows = Vec::with_capacity(valid.len() * row_bytes);
    let mut rest = bytes;
    for (from, to) in valid.valid_slices() {
        rows.resize(from * row_bytes, fill);
        let (run, after) = rest.split_at((to - from) * row_bytes);
        rows.extend_from_slice(run);
        rest = after;
    }
    rows.resize(valid.len() * row_bytes, fill);
    Buffer::from_vec(rows)
}

fn spread_offsets(offsets: &[i64], valid: &NullBuffer) -> ScalarBuffer<i64> {
    let mut spread = Vec::with_capacity(valid.len() + 1);
    let mut rest = offsets.iter().copied();
    let mut end = rest.next().unwrap_or_default();
    spread.push(end);
    for is_valid in valid {
        if is_valid {
            end = rest.next().unwrap_or(end);
        }
        spread.push(end);
    }
    spread.into()
}

/// The values of an array without nulls.
fn dense(array: &ArrayRef, field: &Field, recipe: &Recipe, room: &Room) -> Result<ColumnData, Bad> {
    match recipe {
        Recipe::Numbers { levels, leaf, by_level } => {
            let lists = Lists::new(array, levels)?;
            let bytes = items(&lists, leaf, field)?;
            match field.kind {
                Kind::Fixed => fixed(&lists, leaf, *by_level, field, bytes),
                Kind::Ragged => ragged(&lists, leaf, *by_level, field, bytes),
                Kind::Free | Kind::Interned => free(&lists, field.shape.len(), bytes),
            }
        }
        Recipe::EqualBytes { levels, leaf } => {
            let lists = Lists::new(array, levels)?;
            let bytes = items(&lists, leaf, field)?;
            Ok(byte_strings(lists.starts(levels.len()).into(), bytes, field))
        }
        Recipe::Bytes { check } => {
            let (offsets, bytes) = strings(array)?;
            checked(&offsets, &bytes, *check)?;
            if field.is_bytes() {
                return Ok(byte_strings(offsets, bytes, field));
            }
            raw(offsets, bytes, field)
        }
        Recipe::Tensor { leaf } => super::tensor::tensor(array, leaf, field),
        Recipe::Encode => {
            let (offsets, bytes) = encode::encode(array, room)?;
            Ok(byte_strings(offsets, bytes, field))
        }
        Recipe::Categories => {
            let (offsets, bytes) = strings(array)?;
            codes(&offsets, &bytes, field)
        }
    }
}

/// The bytes of the scalars of all rows.
pub(super) fn items(lists: &Lists, leaf: &Leaf, field: &Field) -> Result<Buffer, Bad> {
    scalars(&lists.items, leaf, field)
        .map_err(|bad| Bad::new(lists.row_of(bad.index), "out_of_range", bad.message, FIT_HINT))
}

fn byte_strings(offsets: ScalarBuffer<i64>, bytes: Buffer, field: &Field) -> ColumnData {
    match field.kind {
        Kind::Interned => ColumnData::Interned { offsets, bytes },
        Kind::Fixed | Kind::Ragged | Kind::Free => ColumnData::Ragged { offsets, bytes },
    }
}

/// Bytes taken as `uint8` numbers: rows or entries of them.
fn raw(offsets: ScalarBuffer<i64>, bytes: Buffer, field: &Field) -> Result<ColumnData, Bad> {
    let n = i64::try_from(field.n_scalars()).unwrap_or(i64::MAX);
    let fits = |len: i64| if field.kind == Kind::Fixed { len == n } else { len % n == 0 };
    let lens = offsets
        .windows(2)
        .map(|pair| pair.last().zip(pair.first()).map_or(0, |(to, from)| to - from));
    if let Some((row, len)) = lens.enumerate().find(|(_, len)| !fits(*len)) {
        let message = format!("{len} bytes do not have the shape {:?}", field.shape);
        return Err(Bad::new(row, "shape", message, SHAPE_HINT));
    }
    Ok(match field.kind {
        Kind::Fixed => ColumnData::Fixed { bytes },
        _ if n == 1 => ColumnData::Ragged { offsets, bytes },
        _ => ColumnData::Ragged { offsets: offsets.iter().map(|end| end / n).collect(), bytes },
    })
}

fn fixed(
    lists: &Lists,
    leaf: &Leaf,
    by_level: bool,
    field: &Field,
    bytes: Buffer,
) -> Result<ColumnData, Bad> {
    let shape = field.shape.strip_suffix(leaf.tail()).unwrap_or(&field.shape);
    if by_level {
        check_levels(lists, 0, shape)?;
    } else if lists.spans.iter().any(|span| matches!(span, Span::Ends(_))) {
        let n: usize = shape.iter().product();
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let starts = lists.starts(lists.spans.len());
        let mut rows = starts.windows(2).map(|pair| matches!(pair, [from, to] if to - from == n));
        if let Some(row) = rows.position(|fits| !fits) {
            let message = format!("its numbers do not have the shape {shape:?}");
            return Err(Bad::new(row, "shape", message, SHAPE_HINT));
        }
    }
    Ok(ColumnData::Fixed { bytes })
}

fn check_levels(lists: &Lists, first: usize, shape: &[usize]) -> Result<(), Bad> {
    for (depth, n) in shape.iter().enumerate() {
        if let Some((row, has)) = lists.first_other(first + depth, *n) {
            let message = format!("a list has {has} items where the shape {shape:?} has {n}");
            return Err(Bad::new(row, "shape", message, SHAPE_HINT));
        }
    }
    Ok(())
}

fn ragged(
    lists: &Lists,
    leaf: &Leaf,
    by_level: bool,
    field: &Field,
    bytes: Buffer,
) -> Result<ColumnData, Bad> {
    let shape = field.shape.strip_suffix(leaf.tail()).unwrap_or(&field.shape);
    let mut offsets = match lists.spans.first() {
        Some(Span::Ends(ends)) => ends.clone(),
        _ => lists.starts(1).into(),
    };
    if by_level {
        check_levels(lists, 1, shape)?;
    } else if lists.spans.len() == 1 {
        let n: usize = shape.iter().product();
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let mut rows =
            offsets.windows(2).map(|pair| matches!(pair, [from, to] if (to - from) % n == 0));
        if let Some(row) = rows.position(|fits| !fits) {
            let message = format!("its numbers are no list of shape {shape:?}");
            return Err(Bad::new(row, "shape", message, SHAPE_HINT));
        }
        if n != 1 {
            offsets = offsets.iter().map(|end| end / n).collect();
        }
    }
    Ok(ColumnData::Ragged { offsets, bytes })
}

/// Nested lists as one array per row, which must be rectangular.
fn free(lists: &Lists, rank: usize, bytes: Buffer) -> Result<ColumnData, Bad> {
    let mut dims = vec![-1_i32; lists.n_rows * rank];
    for (depth, span) in lists.spans.iter().enumerate() {
        let starts = lists.starts(depth);
        for (row, range) in starts.windows(2).enumerate() {
            let &[from, to] = range else { continue };
            let n = rectangle(span, from, to).ok_or_else(|| {
                let hint = "store the field as `dtype = \"json\"`, or reject such rows before";
                Bad::new(row, "shape", "its lists are not rectangular", hint)
            })?;
            if let Some(dim) = dims.get_mut(row * rank + depth) {
                *dim = i32::try_from(n).map_err(|_| {
                    Bad::new(
                        row,
                        "shape",
                        format!("{n} items are more than int32 counts"),
                        SHAPE_HINT,
                    )
                })?;
            }
        }
    }
    let offsets = lists.starts(lists.spans.len()).into();
    Ok(ColumnData::Free { dims: dims.into(), offsets, bytes })
}

/// The one length that the lists `from..to` have; 0 where there are none.
fn rectangle(span: &Span, from: i64, to: i64) -> Option<i64> {
    let len = |i: i64| span.start(i + 1) - span.start(i);
    if from == to {
        return Some(match span {
            Span::Of(n) => i64::try_from(*n).ok()?,
            Span::Ends(_) => 0,
        });
    }
    let n = len(from);
    let equal = matches!(span, Span::Of(_)) || (from..to).all(|i| len(i) == n);
    equal.then_some(n)
}

/// Offsets from 0 and bytes of a column of strings.
fn strings(array: &ArrayRef) -> Result<(ScalarBuffer<i64>, Buffer), Bad> {
    fn parts<T: ByteArrayType>(array: &GenericByteArray<T>) -> (ScalarBuffer<i64>, Buffer) {
        use arrow_buffer::ArrowNativeType;
        let first = array.offsets().first().as_usize();
        let last = array.offsets().last().as_usize();
        (from_zero(array.offsets()), array.values().slice_with_length(first, last - first))
    }
    let to = |data_type| arrow_cast::cast(array, &data_type).map_err(|_| Bad::unreadable());
    match array.data_type() {
        DataType::Utf8 => Ok(parts(array.as_string::<i32>())),
        DataType::LargeUtf8 => Ok(parts(array.as_string::<i64>())),
        DataType::Binary => Ok(parts(array.as_binary::<i32>())),
        DataType::LargeBinary => Ok(parts(array.as_binary::<i64>())),
        DataType::Utf8View => strings(&to(DataType::LargeUtf8)?),
        DataType::BinaryView => strings(&to(DataType::LargeBinary)?),
        _ => Err(Bad::unreadable()),
    }
}

/// Each row's bytes.
fn rows<'a>(offsets: &'a [i64], bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    offsets.windows(2).map(|pair| {
        let at = |end: Option<&i64>| end.and_then(|end| usize::try_from(*end).ok());
        let range = at(pair.first()).zip(at(pair.last())).map(|(from, to)| from..to);
        range.and_then(|range| bytes.get(range)).unwrap_or_default()
    })
}

fn checked(offsets: &[i64], bytes: &Buffer, check: Check) -> Result<(), Bad> {
    if check == Check::Nothing {
        return Ok(());
    }
    for (row, value) in rows(offsets, bytes).enumerate() {
        let Ok(text) = std::str::from_utf8(value) else {
            let hint = "store the field as `dtype = \"binary\"`, or reject such rows before";
            return Err(Bad::new(row, "not_utf8", "its bytes are not UTF-8", hint));
        };
        if check == Check::Json
            && let Err(e) = serde_json::from_str::<serde::de::IgnoredAny>(text)
        {
            let hint = "store the field as `dtype = \"utf8\"`, or reject such rows before";
            // No text of the parser's, which may change with it: messages are kept with rejects.
            let message =
                format!("it is not JSON from line {}, column {} on", e.line(), e.column());
            return Err(Bad::new(row, "not_json", message, hint));
        }
    }
    Ok(())
}

/// Each text's position in the field's categories.
fn codes(offsets: &[i64], bytes: &Buffer, field: &Field) -> Result<ColumnData, Bad> {
    let categories = field.categories.as_deref().unwrap_or_default();
    let known: HashMap<&[u8], i32> = categories.iter().map(String::as_bytes).zip(0_i32..).collect();
    let size = field.dtype.size();
    let mut codes = Vec::with_capacity(offsets.len() * size);
    for (row, value) in rows(offsets, bytes).enumerate() {
        let Some(code) = known.get(value) else {
            let shown: String = String::from_utf8_lossy(value).chars().take(MOST_SHOWN).collect();
            let message = format!("{shown:?} is not in `categorical`");
            return Err(Bad::new(row, "category", message, "add it to the list, at its end"));
        };
        codes.extend_from_slice(code.to_le_bytes().get(..size).unwrap_or_default());
    }
    Ok(ColumnData::Fixed { bytes: Buffer::from_vec(codes) })
}
