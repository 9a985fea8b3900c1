//! The bytes of batches against a model that looks at one row at a time.

use std::collections::BTreeMap;

use crate::model::arbitrary::{Want, cases};
use crate::model::{every_kind_batch, every_kind_rows, every_kind_schema};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rowmill::schema::{Column, ColumnData, Field, FieldSpec, Kind, Logical, RowSchema, Stored};

#[test]
fn every_kind_has_every_kind() {
    let schema = every_kind_schema();
    let fields = schema.fields();
    for kind in [Kind::Fixed, Kind::Ragged, Kind::Free, Kind::Interned] {
        for nullable in [false, true] {
            let found = fields.iter().any(|f| f.kind == kind && f.nullable == nullable);
            assert!(found, "{kind:?}, nullable: {nullable}");
        }
    }
    for dtype in rowmill::schema::Dtype::ALL {
        assert!(fields.iter().any(|f| f.dtype == dtype && f.logical.is_none()), "{dtype:?}");
    }
    let logical =
        |name: &str| fields.iter().any(|f| f.logical.as_ref().map(Logical::name) == Some(name));
    for name in [
        "utf8",
        "binary",
        "json",
        "date32",
        "time64",
        "timestamp",
        "duration",
        "decimal128",
        "bfloat16",
    ] {
        assert!(logical(name), "{name}");
    }
    assert_eq!(schema.key().unwrap().name, "id");
    assert!(schema.axes().iter().any(|axis| axis.name == "atoms" && axis.fields.len() == 3));
    let batch = every_kind_batch(200, 1);
    for (field, column) in fields.iter().zip(schema.columns(&batch).unwrap()) {
        if field.nullable {
            let valid = column.valid.unwrap();
            assert!(valid.contains(&0) && valid.contains(&1), "{}", field.name);
        }
        if let ColumnData::Ragged { offsets, .. } = &column.data
            && !field.is_bytes()
        {
            assert!(offsets.windows(2).any(|pair| pair[0] == pair[1]), "{}", field.name);
        }
    }
}

#[test]
fn rows_of_every_kind_do_not_depend_on_where_batches_are_cut() {
    let schema = every_kind_schema();
    let whole = schema.columns(&every_kind_batch(20, 7)).unwrap();
    let tail = schema.columns(&every_kind_rows(12, 8, 7)).unwrap();
    for (i, field) in schema.fields().iter().enumerate() {
        for row in 0..8 {
            assert_eq!(tail[i].value(row), whole[i].value(12 + row), "{} {row}", field.name);
            assert_eq!(tail[i].is_valid(row), whole[i].is_valid(12 + row), "{}", field.name);
        }
    }
}

/// What a column is, in plain vectors.
fn plain(column: &Column) -> Want {
    let dims = match &column.data {
        ColumnData::Free { dims, .. } => Some(dims.to_vec()),
        _ => None,
    };
    Want {
        valid: column.valid.as_ref().map(|valid| valid.to_vec()),
        dims,
        offsets: column.offsets().map(<[i64]>::to_vec),
        bytes: column.bytes().to_vec(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn columns_are_those_of_the_rows_one_by_one(case in cases()) {
        let columns = case.schema.columns(&case.batch).unwrap();
        for (i, field) in case.schema.fields().iter().enumerate() {
            prop_assert_eq!(plain(&columns[i]), case.want[i].clone(), "{:?}", field);
        }
    }

    #[test]
    fn columns_come_back_from_arrow_as_they_were(case in cases()) {
        let columns = case.schema.columns(&case.batch).unwrap();
        let batch = case.schema.batch(&columns, case.batch.num_rows()).unwrap();
        let again = case.schema.columns(&batch).unwrap();
        for (i, field) in case.schema.fields().iter().enumerate() {
            prop_assert_eq!(plain(&again[i]), case.want[i].clone(), "{:?}", field);
        }
        let specs = specs_of(&case.schema);
        let inferred = RowSchema::infer(&case.schema.arrow_schema(), &specs, None).unwrap();
        prop_assert_eq!(inferred, case.schema);
    }

    #[test]
    fn schemas_come_back_from_json_as_they_were(case in cases()) {
        let text = serde_json::to_string_pretty(&case.schema.to_json()).unwrap();
        let read = RowSchema::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        prop_assert_eq!(read, case.schema);
    }
}

/// What a definition must say of a schema's own Arrow columns for the same schema to come of them.
fn specs_of(schema: &RowSchema) -> BTreeMap<String, FieldSpec> {
    let of_field = |field: &Field| FieldSpec {
        kind: (field.kind == Kind::Interned).then_some(Kind::Interned),
        axis: field.axis.clone().filter(|axis| *axis != field.stem),
        categorical: field.categories.clone(),
        dtype: (field.logical == Some(Logical::Bfloat16)).then_some(Stored::Bfloat16),
        sidecar: field.sidecar.clone(),
        index: field.index,
        ..FieldSpec::default()
    };
    schema.fields().iter().map(|field| (field.name.clone(), of_field(field))).collect()
}
