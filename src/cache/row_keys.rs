//! The key of a row by what it holds: the same for equal values, however Arrow arranges them.
//!
//! Leaves out: which columns decide a feature.
//!
//! Invariants:
//! 1. Equal rows have equal keys, whatever batch they stand in, as whichever slice of it, with offsets
//!    of whichever size, and as values or as codes of a dictionary.
//! 2. What is hashed can be read back in one way only: rows that differ differ in it. Floats are equal
//!    if their bits are.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::{DataType, Schema, TimeUnit};
use blake3::Hasher;
use serde_json::{Value, json};

use super::RowKey;
use super::error::{CacheError, Result};
use crate::fingerprint::canonical_json;

/// The key of each row of `batch`: the BLAKE3 of its columns' names and types, and of its values.
///
/// # Errors
/// [`CacheError::NoKey`] for a column of a type that has none.
pub fn row_keys(batch: &RecordBatch) -> Result<Vec<RowKey>> {
    let columns = canonical_json(&column_types(&batch.schema())?);
    let mut of_columns = Hasher::new();
    of_columns.update(blake3::hash(columns.as_bytes()).as_bytes());
    let items: Vec<Items<'_>> = batch.columns().iter().map(Items::of).collect();
    let key = |row: usize| {
        let mut hasher = of_columns.clone();
        for column in &items {
            column.feed(row..row + 1, &mut hasher);
        }
        hasher.finalize().into()
    };
    Ok((0..batch.num_rows()).map(key).collect())
}

/// The key of each row of a batch that is known as a whole only, from the keys that its rows have: the
/// BLAKE3 of that of all of them together, and of the row's place.
#[must_use]
pub fn batch_keys(rows: &[RowKey]) -> Vec<RowKey> {
    let whole = blake3::hash(rows.as_flattened());
    let key = |place: u64| {
        let mut hasher = Hasher::new();
        hasher.update(whole.as_bytes()).update(&place.to_le_bytes());
        hasher.finalize().into()
    };
    (0_u64..).take(rows.len()).map(key).collect()
}

/// Names and types of columns, as keys and signatures have them: a list of `[name, type]`. Types that
/// hold the same values are one: `utf8` whatever its offsets, a dictionary as what it stands for.
///
/// # Errors
/// [`CacheError::NoKey`] for a type that has no key.
pub fn column_types(schema: &Schema) -> Result<Value> {
    let column = |field: &std::sync::Arc<arrow_schema::Field>| {
        let refused = || CacheError::NoKey {
            column: field.name().clone(),
            data_type: field.data_type().to_string(),
        };
        Ok(json!([field.name(), type_of(field.data_type()).ok_or_else(refused)?]))
    };
    schema.fields().iter().map(column).collect()
}

fn type_of(data_type: &DataType) -> Option<Value> {
    Some(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => json!("utf8"),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => json!("binary"),
        DataType::FixedSizeBinary(n) => json!({"fixed_size_binary": n}),
        DataType::Null => json!("null"),
        DataType::Boolean => json!("bool"),
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Date32
        | DataType::Date64 => json!(data_type.to_string().to_lowercase()),
        DataType::Time32(unit) | DataType::Time64(unit) => json!({"time": unit_of(*unit)}),
        DataType::Duration(unit) => json!({"duration": unit_of(*unit)}),
        DataType::Timestamp(unit, zone) => json!({"timestamp": [unit_of(*unit), zone.as_deref()]}),
        DataType::Decimal32(precision, scale) => json!({"decimal32": [precision, scale]}),
        DataType::Decimal64(precision, scale) => json!({"decimal64": [precision, scale]}),
        DataType::Decimal128(precision, scale) => json!({"decimal128": [precision, scale]}),
        DataType::Decimal256(precision, scale) => json!({"decimal256": [precision, scale]}),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            json!({"list": type_of(item.data_type())?})
        }
        DataType::FixedSizeList(item, n) => json!({"array": [type_of(item.data_type())?, n]}),
        DataType::Struct(fields) => {
            let field = |field: &std::sync::Arc<arrow_schema::Field>| {
                Some(json!([field.name(), type_of(field.data_type())?]))
            };
            json!({"struct": fields.iter().map(field).collect::<Option<Vec<_>>>()?})
        }
        DataType::Dictionary(_, values) => type_of(values)?,
        _ => return None,
    })
}

fn unit_of(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// A column, or the items of a list.
struct Items<'a> {
    nulls: Option<NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    /// Nothing but nulls.
    None,
    Fixed {
        width: usize,
        bytes: Buffer,
    },
    Bools(&'a BooleanArray),
    Bytes(Box<dyn Fn(usize) -> &'a [u8] + 'a>),
    List {
        ends: Box<dyn Fn(usize) -> Range<usize> + 'a>,
        items: Box<Items<'a>>,
    },
    Array {
        n: usize,
        items: Box<Items<'a>>,
    },
    Struct(Vec<Items<'a>>),
    Codes {
        codes: Vec<usize>,
        values: Box<Items<'a>>,
    },
}

impl<'a> Items<'a> {
    /// Columns of a type that [`type_of`] knows.
    fn of(array: &'a ArrayRef) -> Self {
        Self { nulls: array.logical_nulls(), values: Values::of(array) }
    }

    fn is_present(&self, item: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(item))
    }

    /// Hashes some items: whether they are there, then those that are.
    fn feed(&self, range: Range<usize>, to: &mut Hasher) {
        let all = range.clone().all(|item| self.is_present(item));
        to.update(&[u8::from(all)]);
        if !all {
            for item in range.clone() {
                to.update(&[u8::from(self.is_present(item))]);
            }
        }
        if all && let Values::Fixed { width, bytes } = &self.values {
            // What stands together is hashed at once; the bytes are the same.
            let bytes = bytes.as_slice().get(range.start * width..range.end * width);
            to.update(bytes.unwrap_or_default());
            return;
        }
        for item in range.filter(|item| self.is_present(*item)) {
            self.values.feed(item, to);
        }
    }
}

impl<'a> Values<'a> {
    fn of(array: &'a ArrayRef) -> Self {
        let range = |ends: &[i64], item: usize| {
            let end = |at: usize| ends.get(at).and_then(|end| usize::try_from(*end).ok());
            end(item).unwrap_or(0)..end(item + 1).unwrap_or(0)
        };
        let wide = |ends: &[i32]| ends.iter().map(|end| i64::from(*end)).collect::<Vec<_>>();
        match array.data_type() {
            DataType::Null => Self::None,
            DataType::Boolean => Self::Bools(array.as_boolean()),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>();
                Self::Bytes(Box::new(|item| texts.value(item).as_bytes()))
            }
            DataType::LargeUtf8 => {
                let texts = array.as_string::<i64>();
                Self::Bytes(Box::new(|item| texts.value(item).as_bytes()))
            }
            DataType::Utf8View => {
                let texts = array.as_string_view();
                Self::Bytes(Box::new(|item| texts.value(item).as_bytes()))
            }
            DataType::Binary => {
                let bytes = array.as_binary::<i32>();
                Self::Bytes(Box::new(|item| bytes.value(item)))
            }
            DataType::LargeBinary => {
                let bytes = array.as_binary::<i64>();
                Self::Bytes(Box::new(|item| bytes.value(item)))
            }
            DataType::BinaryView => {
                let bytes = array.as_binary_view();
                Self::Bytes(Box::new(|item| bytes.value(item)))
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let ends = wide(list.value_offsets());
                let items = Box::new(Items::of(list.values()));
                Self::List { ends: Box::new(move |item| range(&ends, item)), items }
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let ends = list.value_offsets();
                let items = Box::new(Items::of(list.values()));
                Self::List { ends: Box::new(move |item| range(ends, item)), items }
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let ends = wide(map.value_offsets());
                let entries = map.entries();
                let items = entries.columns().iter().map(Items::of).collect();
                let items = Items { nulls: entries.logical_nulls(), values: Self::Struct(items) };
                let items = Box::new(items);
                Self::List { ends: Box::new(move |item| range(&ends, item)), items }
            }
            DataType::FixedSizeList(_, n) => {
                let items = Box::new(Items::of(array.as_fixed_size_list().values()));
                Self::Array { n: usize::try_from(*n).unwrap_or(0), items }
            }
            DataType::Struct(_) => {
                Self::Struct(array.as_struct().columns().iter().map(Items::of).collect())
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let values = Box::new(Items::of(dictionary.values()));
                let is_empty = dictionary.values().is_empty();
                let codes = if is_empty { Vec::new() } else { dictionary.normalized_keys() };
                Self::Codes { codes, values }
            }
            other => {
                let width = match other {
                    DataType::FixedSizeBinary(n) => usize::try_from(*n).unwrap_or(0),
                    other => other.primitive_width().unwrap_or(0),
                };
                let data = array.to_data();
                let bytes = data.buffers().first().map(|all| all.slice(data.offset() * width));
                Self::Fixed { width, bytes: bytes.unwrap_or_default() }
            }
        }
    }

    /// Hashes an item that is there.
    fn feed(&self, item: usize, to: &mut Hasher) {
        match self {
            Self::None => {}
            Self::Fixed { width, bytes } => {
                let bytes = bytes.as_slice().get(item * width..(item + 1) * width);
                to.update(bytes.unwrap_or_default());
            }
            Self::Bools(bools) => {
                to.update(&[u8::from(bools.value(item))]);
            }
            Self::Bytes(bytes) => {
                let bytes = bytes(item);
                to.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
            }
            Self::List { ends, items } => {
                let range = ends(item);
                to.update(&(range.len() as u64).to_le_bytes());
                items.feed(range, to);
            }
            Self::Array { n, items } => items.feed(item * n..(item + 1) * n, to),
            Self::Struct(fields) => {
                for field in fields {
                    field.feed(item..item + 1, to);
                }
            }
            Self::Codes { codes, values } => {
                if let Some(code) = codes.get(item) {
                    values.values.feed(*code, to);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Float32Type, Int8Type, Int64Type};
    use arrow_array::{
        BinaryArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Float64Array,
        Int16Array, Int64Array, LargeListArray, LargeStringArray, ListArray, NullArray,
        StringArray, StringViewArray, StructArray, UInt8Array,
    };
    use arrow_schema::Field;

    use super::*;

    fn keys(columns: Vec<(&str, ArrayRef)>) -> Vec<RowKey> {
        row_keys(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
    }

    fn hex(key: &RowKey) -> String {
        blake3::Hash::from(*key).to_hex()[..16].to_owned()
    }

    #[test]
    fn equal_values_have_equal_keys_however_they_are_arranged() {
        let texts = vec![Some("a"), None, Some(""), Some("long enough to be no inline view")];
        let dictionary: DictionaryArray<Int8Type> = texts.iter().copied().collect();
        let doubled = StringArray::from([&texts[..], &texts[..]].concat());
        // A null among the values of a dictionary is a null.
        let values = Arc::new(StringArray::from(vec![None, Some(""), Some("a"), texts[3]]));
        let indices = arrow_array::Int8Array::from(vec![2, 0, 1, 3]);
        let with_null = DictionaryArray::new(indices, values);
        let first = keys(vec![("x", Arc::new(StringArray::from(texts.clone())))]);
        for (name, column) in [
            ("large", Arc::new(LargeStringArray::from(texts.clone())) as ArrayRef),
            ("view", Arc::new(StringViewArray::from(texts.clone()))),
            ("dictionary", Arc::new(dictionary)),
            ("dictionary with a null", Arc::new(with_null)),
            ("slice", Arc::new(doubled.slice(4, 4))),
        ] {
            assert_eq!(keys(vec![("x", column)]), first, "{name}");
        }
        let lists = vec![Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(2)])];
        let small = ListArray::from_iter_primitive::<Int64Type, _, _>(lists.clone());
        let large = LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists.clone());
        let longer = ListArray::from_iter_primitive::<Int64Type, _, _>(
            [vec![Some(vec![Some(9)])], lists].concat(),
        );
        let first = keys(vec![("x", Arc::new(small))]);
        assert_eq!(keys(vec![("x", Arc::new(large))]), first);
        assert_eq!(keys(vec![("x", Arc::new(longer.slice(1, 4)))]), first);
        let whole = Int64Array::from_iter_values(0..100);
        let one_by_one: Vec<RowKey> =
            (0..100).flat_map(|n| keys(vec![("x", Arc::new(whole.slice(n, 1)))])).collect();
        assert_eq!(one_by_one, keys(vec![("x", Arc::new(whole))]));
    }

    #[test]
    fn values_that_differ_have_keys_that_differ() {
        let mut all: Vec<(String, RowKey)> = Vec::new();
        let mut add = |name: &str, columns: Vec<(&str, ArrayRef)>| {
            for (row, key) in keys(columns).into_iter().enumerate() {
                all.push((format!("{name}, row {row}"), key));
            }
        };
        let lists = |lists: Vec<Option<Vec<Option<i64>>>>| {
            Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef
        };
        add("text", vec![("x", Arc::new(StringArray::from(vec![Some("a"), Some(""), None])))]);
        add("another name", vec![("y", Arc::new(StringArray::from(vec!["a"])))]);
        add("bytes", vec![("x", Arc::new(BinaryArray::from(vec![&b"a"[..]])))]);
        let wide = FixedSizeBinaryArray::try_from_iter([b"a"].into_iter()).unwrap();
        add("wide bytes", vec![("x", Arc::new(wide))]);
        add("two texts", two("a", "bc"));
        add("two others", two("ab", "c"));
        add("int64", vec![("x", Arc::new(Int64Array::from(vec![Some(0), Some(1), None])))]);
        add("int16", vec![("x", Arc::new(Int16Array::from(vec![0, 1])))]);
        add("uint8", vec![("x", Arc::new(UInt8Array::from(vec![0])))]);
        let floats = vec![0.0, -0.0, f64::NAN, -f64::NAN, 1.0];
        add("float64", vec![("x", Arc::new(Float64Array::from(floats)))]);
        add("bool", vec![("x", Arc::new(BooleanArray::from(vec![false, true])))]);
        add("null", vec![("x", Arc::new(NullArray::new(1)))]);
        let some = |values: &[i64]| Some(values.iter().copied().map(Some).collect::<Vec<_>>());
        add(
            "lists",
            vec![(
                "x",
                lists(vec![
                    some(&[]),
                    some(&[0]),
                    some(&[0, 0]),
                    None,
                    Some(vec![None]),
                    Some(vec![Some(0), None]),
                    Some(vec![None, Some(0)]),
                ]),
            )],
        );
        let [one, both] = [vec![some(&[0]), some(&[1, 2])], vec![some(&[0, 1]), some(&[2])]];
        add("first half", vec![("x", lists(one.clone())), ("y", lists(both.clone()))]);
        add("other half", vec![("x", lists(both)), ("y", lists(one))]);
        let pair = |n: f32| Some(vec![Some(n), Some(0.0)]);
        let pairs = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(
            vec![pair(0.0), pair(1.0), None],
            2,
        );
        add("arrays", vec![("x", Arc::new(pairs))]);
        for name in ["a", "b"] {
            let field = Arc::new(Field::new(name, DataType::Int64, true));
            let inner = Arc::new(Int64Array::from(vec![Some(0), None])) as ArrayRef;
            add("struct", vec![("x", Arc::new(StructArray::from(vec![(field, inner)])))]);
        }
        for (at, (name, key)) in all.iter().enumerate() {
            for (other, other_key) in &all[at + 1..] {
                assert_ne!(key, other_key, "{name} and {other}");
            }
        }
    }

    fn two<'a>(x: &'a str, y: &'a str) -> Vec<(&'a str, ArrayRef)> {
        let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        vec![("x", text(x)), ("y", text(y))]
    }

    #[test]
    fn golden_keys() {
        // By hand, of the row (n = 7, text = "ab"): BLAKE3 of the columns, then the values.
        let columns = blake3::hash(br#"[["n","int64"],["text","utf8"]]"#);
        let mut bytes = columns.as_bytes().to_vec();
        bytes.extend([1, 7, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([1, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
        let by_hand: RowKey = blake3::hash(&bytes).into();
        let n = Arc::new(Int64Array::from(vec![Some(7), None])) as ArrayRef;
        let text = Arc::new(StringArray::from(vec![Some("ab"), None])) as ArrayRef;
        let found = keys(vec![("n", n), ("text", text)]);
        assert_eq!(found[0], by_hand);
        let mut bytes = columns.as_bytes().to_vec();
        bytes.extend([0, 0, 0, 0]);
        assert_eq!(found[1], RowKey::from(blake3::hash(&bytes)));
        let whole = blake3::hash(found.as_flattened());
        let second: RowKey = {
            let place = 1_u64.to_le_bytes();
            blake3::hash(&[whole.as_bytes(), &place[..]].concat()).into()
        };
        assert_eq!(batch_keys(&found)[1], second);
        let want = ["923990518e2b7be7", "b35d1788f956a203", "9cf4f40e3b12945d"];
        assert_eq!([hex(&found[0]), hex(&found[1]), hex(&second)], want);
    }

    #[test]
    fn a_type_without_keys_is_named() {
        let kind = DataType::Interval(arrow_schema::IntervalUnit::YearMonth);
        let schema = Schema::new(vec![Field::new("x", kind, true)]);
        let error = row_keys(&RecordBatch::new_empty(Arc::new(schema))).unwrap_err();
        assert!(
            error.to_string().starts_with("column `x`: rows cannot be told apart by"),
            "{error}"
        );
    }
}
