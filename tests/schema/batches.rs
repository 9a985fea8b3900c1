//! Whole batches: shared axes, structs, sizes, keys, and whose buffers they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{Int16Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Int8Array, Int16Array, LargeStringArray,
    ListArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field as ArrowField, Fields};
use rowmill::schema::{FieldSpec, Kind, RowSchema};

use crate::values::{batch, bytes, column};

#[test]
fn arrows_own_buffers_are_handed_on() {
    let floats = Float32Array::from((0..100_i16).map(f32::from).collect::<Vec<_>>());
    let pixels = FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
        (0..10).map(|row| Some((0..4).map(move |i| Some(row * 4 + i)))),
        4,
    );
    let texts = LargeStringArray::from_iter_values((0..10).map(|i| i.to_string()));
    let pointer = |array: &dyn Array, buffer: usize| array.to_data().buffers()[buffer].as_ptr();
    let inner = pixels.values().to_data().buffers()[0].as_ptr();

    let got = column(floats.slice(3, 90), FieldSpec::default()).unwrap();
    assert_eq!(got.bytes().as_ptr(), pointer(&floats, 0).wrapping_add(12));
    assert_eq!(got.bytes().len(), 360);
    let got = column(pixels.slice(2, 3), FieldSpec::default()).unwrap();
    assert_eq!(got.bytes().as_ptr(), inner.wrapping_add(16));
    assert_eq!(got.bytes().len(), 24);
    let got = column(texts.clone(), FieldSpec::default()).unwrap();
    assert_eq!(got.bytes().as_ptr(), pointer(&texts, 1));
    assert_eq!(got.offsets().unwrap().as_ptr().cast(), pointer(&texts, 0));
}

#[test]
fn empty_batches_have_empty_columns() {
    let rows = crate::model::every_kind_batch(0, 1);
    let schema = crate::model::every_kind_schema();
    for (field, column) in schema.fields().iter().zip(schema.columns(&rows).unwrap()) {
        assert!(column.bytes().is_empty(), "{}", field.name);
        assert_eq!(column.offsets().unwrap_or(&[0]), [0], "{}", field.name);
        assert_eq!(column.valid.is_some(), field.nullable, "{}", field.name);
    }
    assert_eq!(schema.batch(&schema.columns(&rows).unwrap(), 0).unwrap().num_rows(), 0);
}

#[test]
fn fields_on_one_axis_have_equal_counts() {
    let lists = |rows: &[Option<&[i32]>]| -> ArrayRef {
        let rows = rows.iter().map(|row| row.map(|row| row.iter().copied().map(Some)));
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows.collect::<Vec<_>>()))
    };
    let spec = FieldSpec { axis: Some("atoms".into()), ..FieldSpec::default() };
    let specs: BTreeMap<_, _> =
        ["a", "b", "c"].into_iter().map(|name| (name.to_owned(), spec.clone())).collect();
    let columns = |a: &[Option<&[i32]>], b: &[Option<&[i32]>], c: &[Option<&[i32]>]| {
        let batch = batch(&[("a", lists(a)), ("b", lists(b)), ("c", lists(c))]);
        RowSchema::infer(batch.schema_ref(), &specs, None).unwrap().columns(&batch)
    };
    let got = columns(
        &[Some(&[1, 2]), None, None],
        &[Some(&[3, 4]), Some(&[5]), None],
        &[Some(&[6, 7]), Some(&[8]), None],
    )
    .unwrap();
    for column in &got {
        assert_eq!(column.offsets().unwrap(), [0, 2, 3, 3]);
    }
    assert_eq!(got[0].bytes().as_slice(), bytes![1_i32, 2_i32, 0_i32]);
    assert_eq!(got[1].bytes().as_slice(), bytes![3_i32, 4_i32, 5_i32]);
    let error =
        columns(&[Some(&[1]), None], &[Some(&[1]), Some(&[1, 2])], &[Some(&[1]), Some(&[1, 2, 3])])
            .unwrap_err();
    assert_eq!(
        error.to_string(),
        "row 1, field `c`: has 3 entries on axis `atoms`, on which field `b` has 2"
    );
}

#[test]
fn nulls_of_structs_hide_their_fields() {
    let fields = Fields::from(vec![ArrowField::new("y", DataType::Int16, false)]);
    let inner: ArrayRef = Arc::new(Int16Array::from(vec![1, 2, 3]));
    let valid = NullBuffer::new(BooleanBuffer::from(vec![true, false, true]));
    let array: ArrayRef = Arc::new(StructArray::new(fields, vec![inner], Some(valid)));
    let batch = batch(&[("x", array)]);
    let schema = RowSchema::infer(batch.schema_ref(), &BTreeMap::new(), None).unwrap();
    let got = &schema.columns(&batch).unwrap()[0];
    assert_eq!(got.bytes().as_slice(), bytes![1_i16, 0_i16, 3_i16]);
    assert_eq!(got.valid.as_ref().unwrap().as_slice(), [1, 0, 1]);
}

#[test]
fn batches_of_other_columns_are_refused() {
    let int: ArrayRef = Arc::new(Int8Array::from(vec![1]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
    let first = batch(&[("a", int.clone()), ("b", text.clone())]);
    let schema = RowSchema::infer(first.schema_ref(), &BTreeMap::new(), None).unwrap();
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec!["1"]));
    let swapped = batch(&[("b", large), ("a", int.clone())]);
    assert!(schema.columns(&swapped).is_ok());
    for (other, want) in [
        (batch(&[("a", int.clone())]), "column `b`: it is missing"),
        (
            batch(&[("a", int.clone()), ("b", text.clone()), ("c", text.clone())]),
            "column `c`: the schema has no such field",
        ),
        (batch(&[("a", text.clone()), ("b", text)]), "column `a`: utf8 is not stored as int8"),
        (
            batch(&[("a", int.clone()), ("b", int)]),
            "column `b`: numbers are not stored as text or bytes",
        ),
    ] {
        assert_eq!(schema.columns(&other).unwrap_err().to_string(), want);
    }
}

#[test]
fn sizes_of_rows_are_those_of_their_files() {
    let schema = crate::model::every_kind_schema();
    let rows = crate::model::every_kind_batch(50, 9);
    let columns = schema.columns(&rows).unwrap();
    let sizes = schema.row_sizes(&columns, 50);
    for (row, size) in sizes.iter().enumerate() {
        let mut want = 8 * schema.axes().len();
        let mut values = 0;
        for (field, column) in schema.fields().iter().zip(&columns) {
            want += usize::from(field.has_valid_file());
            match field.kind {
                Kind::Interned => {
                    want += 4;
                    values += column.value(row).len();
                }
                Kind::Free => want += 4 * field.shape.len() + column.value(row).len(),
                Kind::Fixed | Kind::Ragged => want += column.value(row).len(),
            }
        }
        assert_eq!(*size, want as u64, "row {row}");
        assert_eq!(schema.row_bytes(&columns, row), (want + values) as u64, "row {row}");
    }
}

#[test]
fn hashes_of_keys_are_those_of_their_values() {
    use rowmill::schema::{key_hash_bytes, key_hash_int};
    let keys: ArrayRef = Arc::new(Int16Array::from(vec![-1, 7]));
    let numbers = batch(&[("x", keys)]);
    let schema = RowSchema::infer(numbers.schema_ref(), &BTreeMap::new(), Some("x")).unwrap();
    let hashes = schema.key_hashes(&schema.columns(&numbers).unwrap());
    assert_eq!(hashes, Some(vec![key_hash_int(-1), key_hash_int(7)]));
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["", "é"]));
    let texts = batch(&[("x", keys)]);
    let schema = RowSchema::infer(texts.schema_ref(), &BTreeMap::new(), Some("x")).unwrap();
    let hashes = schema.key_hashes(&schema.columns(&texts).unwrap());
    assert_eq!(hashes, Some(vec![key_hash_bytes(b""), key_hash_bytes("é".as_bytes())]));
}
