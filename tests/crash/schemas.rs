//! Partitions to build, from the smallest that has all kinds of files to one with every dtype.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, Int16Builder, ListBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rowmill::schema::{FieldSpec, RowSchema};
use rowmill::shard::ShardLimits;

use crate::build::Case;
use crate::model::partition::{Fates, Partition};

/// A key, and an interned field with a sidecar: few files, so that all subsets of what is pending
/// can be tried at most operations.
pub(crate) fn tiny() -> Case {
    let rows = |n: i64| {
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values((0..n).map(|row| row * row)));
        let words = (0..n).map(|row| (row % 5 > 0).then(|| format!("word {}", row % 3)));
        let word: ArrayRef = Arc::new(words.collect::<StringArray>());
        RecordBatch::try_from_iter_with_nullable([("id", id, false), ("word", word, true)]).unwrap()
    };
    let word = FieldSpec { intern: true, sidecar: Some("words.json".into()), ..Default::default() };
    let partition = of(&rows, &[("word".to_owned(), word)].into(), 6);
    // The second shard begins in the middle of a source row.
    Case::new(partition, ShardLimits { rows: 3, ..ShardLimits::default() })
}

/// A field of each kind: fixed, ragged, free and interned, nullable where that adds a file.
pub(crate) fn each_kind() -> Case {
    let rows = |n: i64| {
        let id: ArrayRef =
            Arc::new((0..n).map(|row| Some(format!("row {row}"))).collect::<StringArray>());
        let number: ArrayRef =
            Arc::new((0..n).map(|row| (row % 4 > 0).then_some(row)).collect::<Int64Array>());
        let word: ArrayRef =
            Arc::new((0..n).map(|row| Some(format!("word {}", row % 4))).collect::<StringArray>());
        let mut list = ListBuilder::new(Int16Builder::new());
        let mut grid = ListBuilder::new(ListBuilder::new(Float32Builder::new()));
        for row in 0..u16::try_from(n).unwrap() {
            (0..row % 4).for_each(|at| list.values().append_value(at.cast_signed()));
            list.append(row % 3 > 0);
            for _ in 0..row % 3 {
                (0..row % 2).for_each(|at| grid.values().values().append_value(f32::from(at)));
                grid.values().append(true);
            }
            grid.append(true);
        }
        let (list, grid): (ArrayRef, ArrayRef) = (Arc::new(list.finish()), Arc::new(grid.finish()));
        let columns = [
            ("id", id, false),
            ("number", number, true),
            ("word", word, false),
            ("list", list, true),
            ("grid", grid, false),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let word = FieldSpec { intern: true, sidecar: Some("words.json".into()), ..Default::default() };
    let partition = of(&rows, &[("word".to_owned(), word)].into(), 16);
    Case::new(partition, ShardLimits { rows: 6, ..ShardLimits::default() })
}

/// Every kind of field, dtype and logical type. Its shards end by bytes.
pub(crate) fn every_kind() -> Case {
    let partition = Partition::of_every_kind(24, Fates::All);
    Case::new(partition, ShardLimits { bytes: 4000, ..ShardLimits::default() })
}

fn of(
    rows: &dyn Fn(i64) -> RecordBatch,
    specs: &BTreeMap<String, FieldSpec>,
    n_source_rows: i64,
) -> Partition {
    let schema = RowSchema::infer(rows(0).schema_ref(), specs, Some("id")).unwrap();
    Partition::of_rows(rows(4 * n_source_rows), schema, Fates::All)
}
