//! What is inferred from Arrow types, and what a definition changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field as ArrowField, Schema, TimeUnit};
use rowmill::schema::{Dtype, Field, FieldSpec, Kind, Logical, RowSchema, SchemaError, Stored};

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(ArrowField::new_list_field(item, true)))
}

fn fixed(item: DataType, n: i32) -> DataType {
    DataType::FixedSizeList(Arc::new(ArrowField::new_list_field(item, true)), n)
}

fn structure(fields: &[(&str, DataType)]) -> DataType {
    let fields =
        fields.iter().map(|(name, data_type)| ArrowField::new(*name, data_type.clone(), true));
    DataType::Struct(fields.collect())
}

fn map(value: DataType) -> DataType {
    let entries = structure(&[("keys", DataType::Utf8), ("values", value)]);
    DataType::Map(Arc::new(ArrowField::new("entries", entries, false)), false)
}

fn dictionary(values: DataType) -> DataType {
    DataType::Dictionary(DataType::Int16.into(), values.into())
}

fn infer(data_type: DataType, spec: FieldSpec) -> Result<Field, SchemaError> {
    let schema = Schema::new(vec![ArrowField::new("x", data_type, false)]);
    let specs = BTreeMap::from([("x".to_owned(), spec)]);
    RowSchema::infer(&schema, &specs, None).map(|schema| schema.fields()[0].clone())
}

/// Kind, dtype, shape and logical type in a line.
fn line(field: &Field) -> String {
    let logical = field.logical.as_ref().map_or(String::new(), |logical| format!(" {logical:?}"));
    format!("{} {} {:?}{logical}", field.kind.name(), field.dtype.name(), field.shape)
}

#[test]
fn every_arrow_type_that_has_a_layout_has_the_one_documented() {
    use DataType as T;
    let (us, ns) = (TimeUnit::Microsecond, TimeUnit::Nanosecond);
    for (data_type, want) in [
        (T::Boolean, "fixed bool []"),
        (T::Int8, "fixed int8 []"),
        (T::Int16, "fixed int16 []"),
        (T::Int32, "fixed int32 []"),
        (T::Int64, "fixed int64 []"),
        (T::UInt8, "fixed uint8 []"),
        (T::UInt16, "fixed uint16 []"),
        (T::UInt32, "fixed uint32 []"),
        (T::UInt64, "fixed uint64 []"),
        (T::Float16, "fixed float16 []"),
        (T::Float32, "fixed float32 []"),
        (T::Float64, "fixed float64 []"),
        (T::Utf8, "ragged uint8 [] Utf8"),
        (T::LargeUtf8, "ragged uint8 [] Utf8"),
        (T::Utf8View, "ragged uint8 [] Utf8"),
        (T::Binary, "ragged uint8 [] Binary"),
        (T::LargeBinary, "ragged uint8 [] Binary"),
        (T::BinaryView, "ragged uint8 [] Binary"),
        (T::FixedSizeBinary(7), "fixed uint8 [7]"),
        (T::Date32, "fixed int32 [] Date32"),
        (T::Date64, "fixed int32 [] Date32"),
        (T::Time32(TimeUnit::Second), "fixed int64 [] Time64(Second)"),
        (T::Time64(ns), "fixed int64 [] Time64(Nanosecond)"),
        (T::Timestamp(us, None), "fixed int64 [] Timestamp(Microsecond, None)"),
        (
            T::Timestamp(ns, Some("Europe/Berlin".into())),
            "fixed int64 [] Timestamp(Nanosecond, Some(\"Europe/Berlin\"))",
        ),
        (T::Duration(us), "fixed int64 [] Duration(Microsecond)"),
        (T::Decimal128(9, -2), "fixed uint8 [16] Decimal128(9, -2)"),
        (dictionary(T::Utf8), "ragged uint8 [] Utf8"),
        (dictionary(T::Float32), "fixed float32 []"),
        (fixed(fixed(T::Int16, 4), 3), "fixed int16 [3, 4]"),
        (fixed(T::Date32, 2), "fixed int32 [2] Date32"),
        (fixed(T::Decimal128(9, 2), 3), "fixed uint8 [3, 16] Decimal128(9, 2)"),
        (list(T::Float32), "ragged float32 []"),
        (T::LargeList(Arc::new(ArrowField::new_list_field(T::Int8, true))), "ragged int8 []"),
        (list(fixed(T::Float64, 3)), "ragged float64 [3]"),
        (list(T::FixedSizeBinary(4)), "ragged uint8 [4]"),
        (list(T::Decimal128(9, 2)), "ragged uint8 [16] Decimal128(9, 2)"),
        (list(dictionary(T::Int8)), "ragged int8 []"),
        (list(list(T::Float32)), "free float32 [0, 0]"),
        (list(list(fixed(T::Float32, 3))), "free float32 [0, 0, 0]"),
        (fixed(list(T::Int8), 2), "free int8 [0, 0]"),
        (list(list(T::Decimal128(9, 2))), "ragged uint8 [] Json"),
        (fixed(list(T::Decimal128(9, 2)), 2), "ragged uint8 [] Json"),
        (list(T::Utf8), "ragged uint8 [] Json"),
        (list(structure(&[("a", T::Int8)])), "ragged uint8 [] Json"),
        (map(list(T::Float64)), "ragged uint8 [] Json"),
    ] {
        let field = infer(data_type.clone(), FieldSpec::default());
        assert_eq!(field.map(|field| line(&field)).as_deref(), Ok(want), "{data_type}");
    }
}

#[test]
fn arrow_types_without_a_layout_are_refused_by_name() {
    use DataType as T;
    let view = T::ListView(Arc::new(ArrowField::new_list_field(T::Int8, true)));
    for (data_type, want) in [
        (T::Null, "a column without a type holds nothing"),
        (T::Decimal256(40, 2), "columns of Arrow type Decimal256(40, 2) have no layout"),
        (
            T::Interval(arrow_schema::IntervalUnit::DayTime),
            "columns of Arrow type Interval(DayTime) have no layout",
        ),
        (view, "columns of Arrow type ListView(Int8) have no layout"),
        (fixed(T::Int8, 0), "lists of size 0 hold nothing"),
        (list(T::Binary), "bytes within lists, structs and maps have no form in JSON"),
        (
            list(structure(&[("a", T::FixedSizeBinary(2))])),
            "bytes within lists, structs and maps have no form in JSON",
        ),
    ] {
        let error = infer(data_type.clone(), FieldSpec::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("field `x`: {want}"), "{data_type}");
        assert!(error.hint().is_some(), "{data_type}");
    }
}

#[test]
fn definitions_change_what_is_inferred() {
    use DataType as T;
    let spec = FieldSpec::default;
    let stored = |dtype| FieldSpec { dtype: Some(dtype), ..spec() };
    let shaped = |shape: &[usize]| FieldSpec { shape: Some(shape.to_vec()), ..spec() };
    let ragged = |shape: &[usize]| FieldSpec { kind: Some(Kind::Ragged), ..shaped(shape) };
    let words = |n: usize| FieldSpec {
        categorical: Some((0..n).map(|i| i.to_string()).collect()),
        ..spec()
    };
    let interned = FieldSpec { intern: true, ..spec() };
    for (what, data_type, spec, want) in [
        ("narrower", T::Int64, stored(Stored::Uint8), "fixed uint8 []"),
        ("narrower items", list(T::Float64), stored(Stored::Float32), "ragged float32 []"),
        ("plain number", T::Date32, stored(Stored::Int32), "fixed int32 []"),
        ("bfloat16", T::Float32, stored(Stored::Bfloat16), "fixed uint16 [] Bfloat16"),
        ("bits", T::UInt16, stored(Stored::Bfloat16), "fixed uint16 [] Bfloat16"),
        ("json of text", T::Utf8, stored(Stored::Json), "ragged uint8 [] Json"),
        ("json of numbers", list(T::Int8), stored(Stored::Json), "ragged uint8 [] Json"),
        ("text of bytes", T::Binary, stored(Stored::Utf8), "ragged uint8 [] Utf8"),
        (
            "bytes of one size",
            T::FixedSizeBinary(4),
            stored(Stored::Binary),
            "ragged uint8 [] Binary",
        ),
        (
            "a struct whole",
            structure(&[("a", T::Int8)]),
            stored(Stored::Json),
            "ragged uint8 [] Json",
        ),
        ("another shape", fixed(T::Int8, 12), shaped(&[3, 4]), "fixed int8 [3, 4]"),
        ("lists of one size", list(T::Int8), shaped(&[12]), "fixed int8 [12]"),
        ("flat lists", list(T::Int8), shaped(&[3, 4]), "fixed int8 [3, 4]"),
        ("nested lists", list(list(T::Int8)), shaped(&[3, 4]), "fixed int8 [3, 4]"),
        ("entries", list(list(T::Int8)), ragged(&[4]), "ragged int8 [4]"),
        ("entries of flat lists", list(T::Int8), ragged(&[2, 2]), "ragged int8 [2, 2]"),
        ("interned text", T::Utf8, interned.clone(), "interned uint8 [] Utf8"),
        ("interned json", list(T::Utf8), interned, "interned uint8 [] Json"),
        (
            "image bytes",
            T::Binary,
            FieldSpec { dtype: Some(Stored::Uint8), ..shaped(&[2, 2]) },
            "fixed uint8 [2, 2]",
        ),
        ("raw bytes", T::Binary, stored(Stored::Uint8), "ragged uint8 []"),
        ("few categories", T::Utf8, words(128), "fixed int8 []"),
        ("more categories", dictionary(T::Utf8), words(129), "fixed int16 []"),
        ("many categories", T::Utf8, words(32_769), "fixed int32 []"),
        (
            "free",
            list(T::Int8),
            FieldSpec { kind: Some(Kind::Free), rank: Some(3), ..FieldSpec::default() },
            "free int8 [0, 0, 0]",
        ),
    ] {
        let field = infer(data_type, spec);
        assert_eq!(field.map(|field| line(&field)).as_deref(), Ok(want), "{what}");
    }
}

#[test]
fn numbers_are_not_interned_however_they_lie_in_lists() {
    for data_type in [DataType::Int8, list(DataType::Int8), list(list(DataType::Int8))] {
        let interned = FieldSpec { intern: true, ..FieldSpec::default() };
        let error = infer(data_type.clone(), interned).unwrap_err();
        let want = "field `x`: only text, bytes and JSON can be interned";
        assert_eq!(error.to_string(), want, "{data_type}");
    }
}

#[test]
fn definitions_that_contradict_a_column_are_refused() {
    use DataType as T;
    let spec = FieldSpec::default;
    let stored = |dtype| FieldSpec { dtype: Some(dtype), ..spec() };
    let shaped = |shape: &[usize]| FieldSpec { shape: Some(shape.to_vec()), ..spec() };
    let words = |words: &[&str]| FieldSpec {
        categorical: Some(words.iter().map(|&word| word.into()).collect()),
        ..spec()
    };
    let sidecar = |name: &str| FieldSpec { intern: true, sidecar: Some(name.into()), ..spec() };
    let axis = |name: &str| FieldSpec { axis: Some(name.into()), ..spec() };
    for (data_type, spec, want) in [
        (T::Utf8, stored(Stored::Int8), "utf8 is not stored as int8"),
        (T::Int8, stored(Stored::Utf8), "numbers are not stored as text or bytes"),
        (T::Date32, stored(Stored::Bfloat16), "date32 is not stored as bfloat16"),
        (T::Decimal128(3, 1), stored(Stored::Float64), "decimal128 is not stored as float64"),
        (fixed(T::Int8, 12), shaped(&[5]), "its lists do not have the shape [5]"),
        (fixed(list(T::Int8), 3), shaped(&[4, 2]), "its lists do not have the shape [4, 2]"),
        (T::Int8, shaped(&[2]), "its lists do not have the shape [2]"),
        (list(T::Int8), shaped(&[2, 0]), "a shape with a 0 in it holds nothing"),
        (
            list(T::Int8),
            shaped(&[1 << 30, 1 << 30]),
            "the shape [1073741824, 1073741824] is too large",
        ),
        (
            T::Int8,
            FieldSpec { intern: true, ..spec() },
            "only text, bytes and JSON can be interned",
        ),
        (
            T::Utf8,
            FieldSpec { intern: true, kind: Some(Kind::Fixed), ..spec() },
            "`intern` and `kind` contradict each other",
        ),
        (
            T::Utf8,
            FieldSpec { sidecar: Some("a.json".into()), ..spec() },
            "only interned text has a sidecar",
        ),
        (T::Binary, sidecar("a.json"), "only interned text has a sidecar"),
        (
            T::Utf8,
            sidecar("schema.json"),
            "`schema.json` is no name for a sidecar: lower-case letters, digits and `_`, then \
             `.json`, and none of schema.json, shapes.json, fingerprint.json",
        ),
        (T::Int8, words(&["a"]), "only text can be categorical"),
        (T::Utf8, words(&[]), "`categorical` lists no values"),
        (T::Utf8, words(&["a", "b", "a"]), "`categorical` lists \"a\" twice"),
        (
            T::Utf8,
            FieldSpec { dtype: Some(Stored::Int8), ..words(&["a"]) },
            "a categorical field has no dtype to choose",
        ),
        (T::Int8, axis("atoms"), "single numbers are not ragged"),
        (
            T::Utf8,
            axis("atoms"),
            "text, bytes, JSON and arrays of free shape have an axis of their own",
        ),
        (
            list(T::Int8),
            axis("Atoms"),
            "`Atoms` is no name for an axis: a lower-case letter, then up to 63 lower-case letters, \
             digits and `_`, and not reserved",
        ),
        (list(list(T::Int8)), axis("atoms"), "its lists vary in length"),
        (
            list(T::Int8),
            FieldSpec { index: true, ..spec() },
            "arrays and bfloat16 cannot be columns of index.parquet",
        ),
        (
            list(T::Int8),
            FieldSpec { rank: Some(2), ..spec() },
            "only arrays of free shape have a `rank`",
        ),
        (
            list(list(T::Int8)),
            FieldSpec { kind: Some(Kind::Free), rank: Some(1), ..spec() },
            "its lists do not have the shape [0]",
        ),
        (
            list(list(T::Decimal128(3, 1))),
            FieldSpec { kind: Some(Kind::Free), ..spec() },
            "the shape of decimals ends with 16 and is not free",
        ),
        (
            structure(&[("a", T::Int8)]),
            FieldSpec { nullable: Some(true), ..spec() },
            "it is a struct, whose fields become fields of their own",
        ),
    ] {
        let error = infer(data_type.clone(), spec).unwrap_err();
        assert_eq!(error.to_string(), format!("field `x`: {want}"), "{data_type}");
    }
}

#[test]
fn structs_become_fields_and_make_them_nullable() {
    let inner = DataType::Struct(
        vec![
            ArrowField::new("b", DataType::Int8, false),
            ArrowField::new("c", structure(&[("d", DataType::Utf8)]), false),
            ArrowField::new("empty", DataType::Struct(Vec::<ArrowField>::new().into()), false),
        ]
        .into(),
    );
    for nullable in [false, true] {
        let schema = Schema::new(vec![ArrowField::new("a", inner.clone(), nullable)]);
        let schema = RowSchema::infer(&schema, &BTreeMap::new(), None).unwrap();
        let got: Vec<_> = schema
            .fields()
            .iter()
            .map(|f| (f.name.as_str(), f.stem.as_str(), f.nullable))
            .collect();
        let want =
            [("a.b", "a_b", nullable), ("a.c.d", "a_c_d", true), ("a.empty", "a_empty", nullable)];
        assert_eq!(got, want);
        assert_eq!(schema.field("a.empty").unwrap().logical, Some(Logical::Json));
    }
}

#[test]
fn tensors_have_the_shape_that_their_metadata_tell() {
    use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
    let field = |data_type, name: &str, metadata: &str| {
        ArrowField::new("x", data_type, false).with_metadata([
            (EXTENSION_TYPE_NAME_KEY.to_owned(), name.to_owned()),
            (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata.to_owned()),
        ])
    };
    let tensor = structure(&[("data", list(DataType::Int8)), ("shape", fixed(DataType::Int32, 3))]);
    let flat = fixed(DataType::Int8, 6);
    let fixed_shape = "arrow.fixed_shape_tensor";
    for (field, want) in [
        (field(flat.clone(), fixed_shape, r#"{"shape":[2,3]}"#), Some("fixed int8 [2, 3]")),
        (
            field(flat.clone(), fixed_shape, r#"{"shape":[2,3],"permutation":[0,1]}"#),
            Some("fixed int8 [2, 3]"),
        ),
        (field(flat.clone(), fixed_shape, r#"{"shape":[2,3],"permutation":[1,0]}"#), None),
        (field(flat.clone(), fixed_shape, r#"{"shape":[2,2]}"#), None),
        (field(flat, fixed_shape, "{"), None),
        (field(tensor.clone(), "arrow.variable_shape_tensor", "{}"), Some("free int8 [0, 0, 0]")),
        (field(DataType::Utf8, "arrow.json", ""), Some("ragged uint8 [] Json")),
        (field(DataType::Utf8, "somebody.else", ""), Some("ragged uint8 [] Utf8")),
    ] {
        let schema = Schema::new(vec![field.clone()]);
        let got = RowSchema::infer(&schema, &BTreeMap::new(), None);
        assert_eq!(got.ok().map(|schema| line(&schema.fields()[0])).as_deref(), want, "{field:?}");
    }
}

#[test]
fn names_that_are_not_there_get_the_nearest_one_suggested() {
    let schema = Schema::new(vec![
        ArrowField::new("image", DataType::Int8, false),
        ArrowField::new("label", DataType::Int8, false),
    ]);
    let specs = BTreeMap::from([("lable".to_owned(), FieldSpec::default())]);
    let error = RowSchema::infer(&schema, &specs, None).unwrap_err();
    assert_eq!(error.to_string(), "field `lable`: the rows have no such field");
    assert_eq!(error.hint(), Some("did you mean `label`?"));
    let error = RowSchema::infer(&schema, &BTreeMap::new(), Some("imag")).unwrap_err();
    assert_eq!(error.to_string(), "field `imag`: the key is no field of the rows");
    assert_eq!(error.hint(), Some("did you mean `image`?"));
}

#[test]
fn keys_are_text_or_integers_and_never_null() {
    for (data_type, fits) in [
        (DataType::Utf8, true),
        (dictionary(DataType::Utf8), true),
        (DataType::Int8, true),
        (DataType::UInt32, true),
        (DataType::Int64, true),
        (DataType::UInt64, false),
        (DataType::Boolean, false),
        (DataType::Float64, false),
        (DataType::Date32, false),
        (DataType::Binary, false),
        (list(DataType::Int8), false),
    ] {
        let schema = Schema::new(vec![ArrowField::new("x", data_type.clone(), true)]);
        let keyed = RowSchema::infer(&schema, &BTreeMap::new(), Some("x"));
        let plain = RowSchema::infer(&schema, &BTreeMap::new(), None).unwrap();
        assert!(plain.fields()[0].nullable);
        assert_eq!(plain.with_key("x"), keyed, "{data_type}");
        match keyed {
            Ok(schema) => {
                assert!(fits, "{data_type}");
                assert_eq!(schema.key_index(), Some(0));
                assert!(!schema.key().unwrap().nullable);
            }
            Err(error) => {
                assert!(!fits, "{data_type}");
                assert_eq!(
                    error.to_string(),
                    "field `x`: a key is text or an integer that fits int64"
                );
            }
        }
    }
    let schema = Schema::new(vec![ArrowField::new("x", DataType::Utf8, true)]);
    for (spec, fits) in [
        (FieldSpec { nullable: Some(true), ..FieldSpec::default() }, false),
        (FieldSpec { intern: true, ..FieldSpec::default() }, false),
        (FieldSpec { nullable: Some(false), ..FieldSpec::default() }, true),
    ] {
        let specs = BTreeMap::from([("x".to_owned(), spec.clone())]);
        assert_eq!(RowSchema::infer(&schema, &specs, Some("x")).is_ok(), fits, "{spec:?}");
    }
}

#[test]
fn files_of_different_fields_never_collide() {
    let text = || ArrowField::new("", DataType::Utf8, true);
    let names =
        ["a", "A", "a.valid", "a_valid", "a.offsets", "n", "keys", "dict", "a.dict", "atoms"];
    let mut fields: Vec<_> = names.iter().map(|name| text().with_name(*name)).collect();
    for name in ["positions", "forces", "Atoms"] {
        fields.push(ArrowField::new(name, list(DataType::Float32), true));
    }
    let on_axis = FieldSpec { axis: Some("atoms".into()), ..FieldSpec::default() };
    let interned = FieldSpec { intern: true, ..FieldSpec::default() };
    let specs = BTreeMap::from([
        ("positions".to_owned(), on_axis.clone()),
        ("forces".to_owned(), on_axis.clone()),
        ("Atoms".to_owned(), on_axis),
        ("A".to_owned(), interned.clone()),
        ("a.dict".to_owned(), interned),
    ]);
    let schema = RowSchema::infer(&Schema::new(fields), &specs, None).unwrap();
    let mut files: Vec<String> =
        schema.fields().iter().flat_map(Field::files).map(|file| file.name).collect();
    let n_files = files.len();
    files.sort();
    files.dedup();
    // Three fields list the offsets that they share.
    assert_eq!(files.len(), n_files - 2);
    assert_eq!(schema.field("atoms").unwrap().stem, "atoms_2");
    assert_eq!(schema.field("Atoms").unwrap().stem, "atoms");
}

#[test]
fn two_fields_of_one_name_are_refused() {
    let schema = Schema::new(vec![
        ArrowField::new("a.b", DataType::Int8, false),
        ArrowField::new("a", structure(&[("b", DataType::Int8)]), false),
    ]);
    let error = RowSchema::infer(&schema, &BTreeMap::new(), None).unwrap_err();
    assert_eq!(error.to_string(), "field `a.b`: two fields have this name");
    let empty = RowSchema::infer(&Schema::empty(), &BTreeMap::new(), None).unwrap_err();
    assert_eq!(empty.to_string(), "schema: a row has no fields");
}

#[test]
fn dtypes_agree_with_numpy_and_arrow() {
    for (dtype, size, numpy) in [
        (Dtype::Bool, 1, "|b1"),
        (Dtype::Int8, 1, "|i1"),
        (Dtype::Int16, 2, "<i2"),
        (Dtype::Int32, 4, "<i4"),
        (Dtype::Int64, 8, "<i8"),
        (Dtype::Uint8, 1, "|u1"),
        (Dtype::Uint16, 2, "<u2"),
        (Dtype::Uint32, 4, "<u4"),
        (Dtype::Uint64, 8, "<u8"),
        (Dtype::Float16, 2, "<f2"),
        (Dtype::Float32, 4, "<f4"),
        (Dtype::Float64, 8, "<f8"),
    ] {
        assert_eq!((dtype.size(), dtype.numpy()), (size, numpy));
        assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
        assert_eq!(Dtype::of_arrow(&dtype.arrow()), Some(dtype));
        assert_eq!(serde_json::to_value(dtype).unwrap(), dtype.name());
    }
}
