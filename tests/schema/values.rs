//! The bytes of single columns, and values that have no place in their field.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{Float32Type, Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date64Array, Decimal128Array, DictionaryArray,
    Float16Array, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, ListArray,
    MapArray, RecordBatch, StringArray, StructArray, TimestampMillisecondArray, UInt8Array,
    UInt16Array, UInt64Array,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field as ArrowField, Fields, Schema};
use half::f16;
use rowmill::schema::{Column, FieldSpec, Kind, RowSchema, SchemaError, Stored};

pub(crate) fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let field = |(name, array): &(&str, ArrayRef)| {
        ArrowField::new(*name, array.data_type().clone(), array.null_count() > 0)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let arrays = columns.iter().map(|(_, array)| array.clone()).collect();
    RecordBatch::try_new(Arc::new(schema), arrays).unwrap()
}

/// The column of a batch of one, stored as `spec` says.
pub(crate) fn column(array: impl Array + 'static, spec: FieldSpec) -> Result<Column, SchemaError> {
    let batch = batch(&[("x", Arc::new(array))]);
    let specs = BTreeMap::from([("x".to_owned(), spec)]);
    let schema = RowSchema::infer(batch.schema_ref(), &specs, None).unwrap();
    schema.columns(&batch).map(|mut columns| columns.remove(0))
}

fn stored(dtype: Stored) -> FieldSpec {
    FieldSpec { dtype: Some(dtype), ..FieldSpec::default() }
}

/// Bytes of numbers, little-endian.
macro_rules! bytes {
    ($($value:expr),*) => { [$($value.to_le_bytes().to_vec()),*].concat() };
}
pub(crate) use bytes;

/// Bytes, or how the message begins.
type Expected = Result<Vec<u8>, &'static str>;

#[test]
fn numbers_are_converted_where_no_value_changes() {
    use Stored as S;
    let int = |values: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let float = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let half = |value: f32| f16::from_f32(value);
    let table: Vec<(ArrayRef, Stored, Expected)> = vec![
        (int(&[-128, 127]), S::Int8, Ok(vec![0x80, 0x7f])),
        (int(&[0, 128]), S::Int8, Err("row 1, field `x`: 128 does not fit int8")),
        (int(&[-1]), S::Uint64, Err("row 0, field `x`: -1 does not fit uint64")),
        (int(&[0, 1]), S::Bool, Ok(vec![0, 1])),
        (int(&[2]), S::Bool, Err("row 0, field `x`: 2 does not fit bool")),
        (int(&[1 << 24]), S::Float32, Ok(bytes![16_777_216_f32])),
        (int(&[(1 << 24) + 1]), S::Float32, Err("row 0, field `x`: 16777217 does not fit float32")),
        (
            int(&[i64::MAX]),
            S::Float64,
            Err("row 0, field `x`: 9223372036854775807 does not fit float64"),
        ),
        (int(&[2049]), S::Float16, Err("row 0, field `x`: 2049 does not fit float16")),
        (int(&[70_000]), S::Float16, Err("row 0, field `x`: 70000 does not fit float16")),
        (
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            S::Int64,
            Err("row 0, field `x`: 18446744073709551615 does not fit int64"),
        ),
        (Arc::new(BooleanArray::from(vec![true, false])), S::Int16, Ok(bytes![1_i16, 0_i16])),
        (float(&[-3.0, 255.0]), S::Int16, Ok(bytes![-3_i16, 255_i16])),
        (float(&[0.5]), S::Int8, Err("row 0, field `x`: 0.5 does not fit int8")),
        (float(&[f64::NAN]), S::Int8, Err("row 0, field `x`: NaN does not fit int8")),
        (float(&[-0.0]), S::Int8, Err("row 0, field `x`: -0.0 does not fit int8")),
        (float(&[1e300]), S::Int64, Err("row 0, field `x`: 1")),
        (float(&[0.1, f64::INFINITY]), S::Float32, Ok(bytes![0.1_f32, f32::INFINITY])),
        (float(&[1e39]), S::Float32, Err("row 0, field `x`: 1")),
        (float(&[f64::from_bits(0xfff8_0000_0000_0001)]), S::Float32, Ok(bytes![f32::NAN])),
        (float(&[65_504.0]), S::Float16, Ok(bytes![half(65_504.0)])),
        (float(&[65_520.0]), S::Float16, Err("row 0, field `x`: 65520.0 does not fit float16")),
        (Arc::new(Float16Array::from(vec![half(1.5)])), S::Float64, Ok(bytes![1.5_f64])),
        (
            Arc::new(Float32Array::from(vec![1.0, f32::NAN])),
            S::Bfloat16,
            Ok(vec![0x80, 0x3f, 0xc0, 0x7f]),
        ),
        // Halfway between two bfloat16: to the even one.
        (
            Arc::new(Float32Array::from(vec![f32::from_bits(0x3f80_8000)])),
            S::Bfloat16,
            Ok(vec![0x80, 0x3f]),
        ),
        (
            Arc::new(Float32Array::from(vec![f32::MAX])),
            S::Bfloat16,
            Err("row 0, field `x`: 3.4028234663852886e38 does not fit bfloat16"),
        ),
        (Arc::new(UInt16Array::from(vec![0x3f80])), S::Bfloat16, Ok(vec![0x80, 0x3f])),
        (Arc::new(TimestampMillisecondArray::from(vec![-5])), S::Int64, Ok(bytes![-5_i64])),
        (Arc::new(TimestampMillisecondArray::from(vec![-5])), S::Int8, Ok(vec![0xfb])),
    ];
    for (array, to, want) in table {
        let what = format!("{} {array:?} to {to:?}", array.data_type());
        let got = column(array, stored(to)).map(|column| column.bytes().to_vec());
        match want {
            Ok(want) => assert_eq!(got, Ok(want), "{what}"),
            Err(want) => {
                let error = got.unwrap_err();
                assert!(error.to_string().starts_with(want), "{what}: {error}");
                assert!(error.hint().is_some(), "{what}");
            }
        }
    }
}

#[test]
fn a_nan_that_is_not_converted_keeps_its_bits() {
    let bits = [0x7fc0_0001, 0xffc0_0000, 0x7f80_0001_u32];
    let array = Float32Array::from(bits.map(f32::from_bits).to_vec());
    let got = column(array, FieldSpec::default()).unwrap();
    assert_eq!(got.bytes().as_slice(), bytes![bits[0], bits[1], bits[2]]);
}

#[test]
fn dates_in_milliseconds_must_be_whole_days() {
    let days = column(Date64Array::from(vec![-86_400_000, 0, 172_800_000]), FieldSpec::default());
    assert_eq!(days.unwrap().bytes().as_slice(), bytes![-1_i32, 0_i32, 2_i32]);
    for ms in [1, -1, i64::MAX] {
        let error = column(Date64Array::from(vec![0, ms]), FieldSpec::default()).unwrap_err();
        let want = format!("row 1, field `x`: {ms} ms are not a whole number of days in int32");
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn decimals_are_sixteen_bytes_little_endian() {
    let array = Decimal128Array::from(vec![-2, 258]).with_precision_and_scale(5, 2).unwrap();
    let got = column(array, FieldSpec::default()).unwrap();
    assert_eq!(got.unit_bytes, 16);
    assert_eq!(got.bytes().as_slice(), bytes![-2_i128, 258_i128]);
}

#[test]
fn bools_become_bytes_from_any_bit() {
    let bits: Vec<bool> = (0..200).map(|i| i % 3 == 0 || i % 7 == 0).collect();
    let array = BooleanArray::from(bits.clone());
    for (from, n) in [(0, 200), (1, 64), (7, 65), (63, 1), (64, 128), (200, 0), (13, 100)] {
        let got = column(array.slice(from, n), FieldSpec::default()).unwrap();
        let want: Vec<u8> = bits[from..from + n].iter().map(|&bit| bit.into()).collect();
        assert_eq!(got.bytes().as_slice(), want, "{from} {n}");
    }
}

#[test]
fn a_missing_value_is_refused_where_none_may_be() {
    let array = Int8Array::from(vec![Some(1), None, None]);
    let spec = FieldSpec { nullable: Some(false), ..FieldSpec::default() };
    let error = column(array, spec).unwrap_err();
    assert_eq!(error.to_string(), "row 1, field `x`: there is no value");
    let hint = "declare `nullable = true` in [dataset.fields], or reject such rows before";
    assert_eq!(error.hint(), Some(hint));
}

#[test]
fn nulls_among_the_values_of_a_dictionary_are_nulls() {
    let values = Arc::new(Float32Array::from(vec![Some(2.0), None]));
    let codes = Int32Array::from(vec![Some(0), Some(1), None, Some(0)]);
    let array = DictionaryArray::new(codes, values);
    let spec = FieldSpec { nullable: Some(true), ..FieldSpec::default() };
    let got = column(array, spec).unwrap();
    assert_eq!(got.valid.as_ref().unwrap().as_slice(), [1, 0, 0, 1]);
    assert_eq!(got.bytes().as_slice(), bytes![2.0_f32, 0.0_f32, 0.0_f32, 2.0_f32]);
}

/// Checks that the column of this array is refused with this code and message.
fn assert_refused(array: ArrayRef, spec: FieldSpec, code: &str, want: &str) {
    let error = column(array, spec).unwrap_err();
    assert!(error.to_string().starts_with(want), "{error}");
    assert!(matches!(error, SchemaError::Value { code: c, .. } if c == code), "{error:?}");
    assert!(error.hint().is_some(), "{want}");
}

#[test]
fn lists_that_do_not_fit_are_refused_with_their_row() {
    let lists = |rows: &[&[i32]]| -> ArrayRef {
        let rows = rows.iter().map(|row| Some(row.iter().map(|&n| (n >= 0).then_some(n))));
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows))
    };
    let nested = |rows: &[&[i32]], per_row: usize| -> ArrayRef {
        let inner = lists(rows);
        let field = Arc::new(ArrowField::new_list_field(inner.data_type().clone(), true));
        let offsets = OffsetBuffer::from_repeated_length(per_row, rows.len() / per_row);
        Arc::new(ListArray::new(field, offsets, inner, None))
    };
    let plain = FieldSpec::default;
    let shaped = |shape: &[usize]| FieldSpec { shape: Some(shape.to_vec()), ..plain() };
    let ragged = |shape: &[usize]| FieldSpec { kind: Some(Kind::Ragged), ..shaped(shape) };
    for (array, spec, code, want) in [
        (
            lists(&[&[1, 2], &[3, -1]]),
            plain(),
            "null_item",
            "row 1, field `x`: a null within a list",
        ),
        (
            nested(&[&[1], &[2], &[3], &[-1]], 2),
            plain(),
            "null_item",
            "row 1, field `x`: a null within a list",
        ),
        (
            lists(&[&[1, 2], &[3]]),
            shaped(&[2]),
            "shape",
            "row 1, field `x`: a list has 1 items where the shape [2] has 2",
        ),
        (
            lists(&[&[1, 2, 3, 4], &[3]]),
            shaped(&[2, 2]),
            "shape",
            "row 1, field `x`: its numbers do not have the shape [2, 2]",
        ),
        (
            nested(&[&[1, 2], &[1, 2], &[1, 2], &[1]], 2),
            shaped(&[2, 2]),
            "shape",
            "row 1, field `x`: a list has 1 items where the shape [2, 2] has 2",
        ),
        (
            lists(&[&[1, 2], &[3]]),
            ragged(&[2]),
            "shape",
            "row 1, field `x`: its numbers are no list of shape [2]",
        ),
        (
            nested(&[&[1, 2], &[1, 2], &[1, 2], &[1]], 2),
            ragged(&[2]),
            "shape",
            "row 1, field `x`: a list has 1 items where the shape [2] has 2",
        ),
        (
            nested(&[&[1], &[2], &[3, 4], &[5]], 2),
            plain(),
            "shape",
            "row 1, field `x`: its lists are not rectangular",
        ),
        (
            lists(&[&[1], &[2, 300]]),
            stored(Stored::Uint8),
            "out_of_range",
            "row 1, field `x`: 300 does not fit uint8",
        ),
    ] {
        assert_refused(array, spec, code, want);
    }
}

#[test]
fn strings_that_are_not_what_they_should_be_are_refused_with_their_row() {
    let text = |rows: &[&str]| -> ArrayRef { Arc::new(StringArray::from(rows.to_vec())) };
    let bytes = |rows: &[&[u8]]| -> ArrayRef { Arc::new(BinaryArray::from(rows.to_vec())) };
    let words = FieldSpec { categorical: Some(vec!["cat".into()]), ..FieldSpec::default() };
    let raw = FieldSpec { shape: Some(vec![3]), ..stored(Stored::Uint8) };
    for (array, spec, code, want) in [
        (
            text(&["cat", "dog"]),
            words,
            "category",
            "row 1, field `x`: \"dog\" is not in `categorical`",
        ),
        (
            text(&["{}", "{a"]),
            stored(Stored::Json),
            "not_json",
            "row 1, field `x`: it is not JSON from line 1, column ",
        ),
        (
            text(&["1 2"]),
            stored(Stored::Json),
            "not_json",
            "row 0, field `x`: it is not JSON from line 1, column ",
        ),
        (
            bytes(&[b"ok", b"\xff"]),
            stored(Stored::Utf8),
            "not_utf8",
            "row 1, field `x`: its bytes are not UTF-8",
        ),
        (
            bytes(&[b"1", b"\"\xff\""]),
            stored(Stored::Json),
            "not_utf8",
            "row 1, field `x`: its bytes are not UTF-8",
        ),
        (
            bytes(&[b"abc", b"ab"]),
            raw,
            "shape",
            "row 1, field `x`: 2 bytes do not have the shape [3]",
        ),
    ] {
        assert_refused(array, spec, code, want);
    }
}

#[test]
fn rows_are_named_as_the_batch_counts_them_whatever_is_null() {
    let array = Int64Array::from(vec![None, Some(1), None, Some(300), None]);
    let error = column(array.slice(1, 4), stored(Stored::Int8)).unwrap_err();
    assert_eq!(error.to_string(), "row 2, field `x`: 300 does not fit int8");
}

#[test]
fn deep_json_is_refused_not_followed() {
    let deep = "[".repeat(100_000);
    let error = column(StringArray::from(vec![deep.as_str()]), stored(Stored::Json)).unwrap_err();
    assert!(
        error.to_string().starts_with("row 0, field `x`: it is not JSON from line 1, column "),
        "{error}"
    );
}

#[test]
fn shapes_are_checked_before_they_are_believed() {
    let tensor = |shapes: &[&[i32]], data: &[&[i8]]| {
        let shapes = shapes.iter().map(|row| Some(row.iter().copied().map(Some)));
        let data = data.iter().map(|row| Some(row.iter().copied().map(Some)));
        let shape: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(shapes));
        let data: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int8Type, _, _>(data));
        let fields = Fields::from(vec![
            ArrowField::new("data", data.data_type().clone(), false),
            ArrowField::new("shape", shape.data_type().clone(), false),
        ]);
        StructArray::new(fields, vec![data, shape], None)
    };
    let spec = FieldSpec { kind: Some(Kind::Free), rank: Some(2), ..FieldSpec::default() };
    for (shape, data, want) in [
        (&[2, 1][..], &[1, 2][..], Some([2, 1])),
        (&[2], &[1, 2], Some([2, -1])),
        (&[2, -1], &[1, 2], Some([2, -1])),
        (&[], &[1], Some([-1, -1])),
        (&[0, 7], &[], Some([0, 7])),
        (&[-1, 2], &[1, 2], None),
        (&[3], &[1, 2], None),
        (&[1, 1, 2], &[1, 2], None),
        (&[-2, -1], &[1, 2], None),
        (&[i32::MAX, i32::MAX, i32::MAX], &[1, 2], None),
    ] {
        let array = tensor(&[&[1], shape], &[&[9], data]);
        let got = column(array, spec.clone());
        match (got, want) {
            (
                Ok(Column { data: rowmill::schema::ColumnData::Free { dims, .. }, .. }),
                Some(want),
            ) => {
                assert_eq!(&dims[2..], want, "{shape:?}");
            }
            (Err(error), None) => {
                assert!(error.to_string().starts_with("row 1, field `x`: "), "{error}");
            }
            (got, _) => panic!("{shape:?}: {got:?}"),
        }
    }
}

#[test]
fn nested_values_are_written_as_compact_json() {
    let number = |array: ArrayRef| column_text(array, stored(Stored::Json));
    assert_eq!(number(Arc::new(Float32Array::from(vec![0.1, 1.0, 1e20]))), ["0.1", "1.0", "1e+20"]);
    assert_eq!(number(Arc::new(Float64Array::from(vec![0.1, -0.0]))), ["0.1", "-0.0"]);
    assert_eq!(number(Arc::new(UInt64Array::from(vec![u64::MAX]))), ["18446744073709551615"]);
    assert_eq!(number(Arc::new(BooleanArray::from(vec![true]))), ["true"]);
    let time = TimestampMillisecondArray::from(vec![1_500]);
    assert_eq!(number(Arc::new(time.clone())), ["\"1970-01-01T00:00:01.500\""]);
    assert_eq!(
        number(Arc::new(time.with_timezone("Europe/Berlin"))),
        ["\"1970-01-01T00:00:01.500Z\""]
    );
    let decimal = Decimal128Array::from(vec![-5, 12_345]).with_precision_and_scale(5, 2).unwrap();
    assert_eq!(number(Arc::new(decimal)), ["-0.05", "123.45"]);
    let fields = Fields::from(vec![
        ArrowField::new("b \"quoted\"", DataType::Utf8, true),
        ArrowField::new("a", DataType::UInt8, false),
    ]);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("é\n"), None]));
    let numbers: ArrayRef = Arc::new(UInt8Array::from(vec![1, 2]));
    let items =
        StructArray::new(fields.clone(), vec![texts, numbers], Some(vec![true, true].into()));
    let item = Arc::new(ArrowField::new_list_field(DataType::Struct(fields), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 0, 2]));
    let list = ListArray::new(item, offsets, Arc::new(items), None);
    assert_eq!(
        column_text(Arc::new(list), FieldSpec::default()),
        ["[]", r#"[{"b \"quoted\"":"é\n","a":1},{"b \"quoted\"":null,"a":2}]"#]
    );
    let floats = Float32Array::from(vec![1.5, 2.5]);
    let map = MapArray::new_from_strings(["k", "l"].into_iter(), &floats, &[0, 2, 2]).unwrap();
    assert_eq!(column_text(Arc::new(map), FieldSpec::default()), [r#"{"k":1.5,"l":2.5}"#, "{}"]);
}

/// The text of each row.
fn column_text(array: ArrayRef, spec: FieldSpec) -> Vec<String> {
    let n_rows = array.len();
    let column = column(array, spec).unwrap();
    (0..n_rows).map(|row| String::from_utf8(column.value(row).to_vec()).unwrap()).collect()
}

#[test]
fn floats_that_are_not_finite_have_no_form_in_json() {
    for value in [f32::NAN, f32::INFINITY] {
        let rows = [vec![Some(1.0)], vec![Some(value)]].map(Some);
        let list = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
        let error = column(list, stored(Stored::Json)).unwrap_err();
        let want = format!("row 1, field `x`: {value} has no form in JSON");
        assert_eq!(error.to_string(), want);
    }
}
