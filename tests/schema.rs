//! Schemas and the bytes of batches, against a model that looks at one row at a time.

mod model;

use model::{every_kind_batch, every_kind_rows, every_kind_schema};
use rowmill::schema::{ColumnData, Kind, Logical};

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
