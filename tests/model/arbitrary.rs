//! Batches at random, and what must come of them, worked out one row at a time.
//!
//! A [`Case`] is made of templates of columns and a seed. Beneath nulls, and before and after the
//! rows of a slice, its Arrow arrays hold values that must never show.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use proptest::prelude::*;
use rowmill::schema::{FieldSpec, RowSchema};

use super::every_kind::Random;
use super::numbers::{add_axis, add_numbers, add_tensor};
use super::strings::add_strings;

/// A batch and the bytes that must come of it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) schema: RowSchema,
    pub(crate) batch: RecordBatch,
    pub(crate) want: Vec<Want>,
}

/// The bytes of one field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Want {
    pub(crate) valid: Option<Vec<u8>>,
    pub(crate) dims: Option<Vec<i32>>,
    pub(crate) offsets: Option<Vec<i64>>,
    pub(crate) bytes: Vec<u8>,
}

/// One level of lists in a column of numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Level {
    Of(usize),
    List,
    LargeList,
}

/// How a column of strings comes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Strings {
    Utf8,
    LargeUtf8,
    Utf8View,
    Dictionary,
    Binary,
    LargeBinary,
    BinaryView,
    FixedSizeBinary,
}

/// How it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Plain,
    Interned,
    Json,
    Categorical,
}

#[derive(Debug, Clone)]
enum Template {
    Numbers {
        leaf: DataType,
        levels: Vec<Level>,
    },
    /// Ragged columns of as many entries per row.
    Axis {
        columns: Vec<(DataType, Option<usize>, bool)>,
    },
    Tensor {
        leaf: DataType,
        rank: usize,
    },
    Strings {
        strings: Strings,
        form: Form,
    },
}

/// Batches of up to 40 rows and a few columns.
pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let column = (template(), any::<bool>(), any::<bool>());
    let columns = prop::collection::vec(column, 1..5);
    (columns, 0..40_usize, any::<u64>(), 0..5_usize, 0..3_usize).prop_map(
        |(columns, n_rows, seed, before, after)| make(&columns, n_rows, seed, before, after),
    )
}

fn leaf() -> impl Strategy<Value = DataType> {
    let unit = TimeUnit::Microsecond;
    prop::sample::select(vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Date32,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(unit, None),
        DataType::Timestamp(unit, Some("UTC".into())),
        DataType::Duration(unit),
        DataType::Decimal128(20, 3),
    ])
}

fn template() -> impl Strategy<Value = Template> {
    let level =
        prop_oneof![(1..4_usize).prop_map(Level::Of), Just(Level::List), Just(Level::LargeList),];
    let strings = prop::sample::select(vec![
        Strings::Utf8,
        Strings::LargeUtf8,
        Strings::Utf8View,
        Strings::Dictionary,
        Strings::Binary,
        Strings::LargeBinary,
        Strings::BinaryView,
        Strings::FixedSizeBinary,
    ]);
    let form =
        prop::sample::select(vec![Form::Plain, Form::Interned, Form::Json, Form::Categorical]);
    let on_axis = (leaf(), prop::option::of(1..4_usize), any::<bool>());
    let plain = leaf().prop_filter("no decimals", |leaf| !matches!(leaf, DataType::Decimal128(..)));
    prop_oneof![
        4 => (leaf(), prop::collection::vec(level, 0..4))
            .prop_map(|(leaf, levels)| numbers(leaf, levels)),
        1 => prop::collection::vec(on_axis, 1..4).prop_map(|columns| Template::Axis { columns }),
        1 => (plain, 1..4_usize).prop_map(|(leaf, rank)| Template::Tensor { leaf, rank }),
        3 => (strings, form).prop_map(|(strings, form)| Template::Strings { strings, form }),
    ]
}

/// Decimals have no free shape: their lists are cut to one that varies, outermost.
fn numbers(leaf: DataType, mut levels: Vec<Level>) -> Template {
    if matches!(leaf, DataType::Decimal128(..)) {
        for level in levels.iter_mut().skip(1) {
            *level = Level::Of(2);
        }
    }
    Template::Numbers { leaf, levels }
}

#[derive(Default)]
pub(super) struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
    specs: BTreeMap<String, FieldSpec>,
    want: Vec<Want>,
}

fn make(
    templates: &[(Template, bool, bool)],
    n_rows: usize,
    seed: u64,
    before: usize,
    after: usize,
) -> Case {
    let mut columns = Columns::default();
    let rows = Rows { before, n: n_rows, n_all: before + n_rows + after };
    for (i, (template, nullable, in_struct)) in templates.iter().enumerate() {
        let random = &mut Random::new(seed, i as u64);
        let name = format!("column {i}");
        let in_struct = *in_struct && !matches!(template, Template::Axis { .. });
        let inner = if in_struct { format!("{name}.x") } else { name.clone() };
        match template {
            Template::Numbers { leaf, levels } => {
                let valid = &Mask::new(rows.n_all, *nullable, random);
                add_numbers(&mut columns, &inner, leaf, levels, valid, &rows, random);
            }
            Template::Axis { columns: on_axis } => {
                add_axis(&mut columns, &inner, on_axis, &rows, random);
            }
            Template::Tensor { leaf, rank } => {
                let valid = &Mask::new(rows.n_all, *nullable, random);
                add_tensor(&mut columns, &inner, leaf, *rank, valid, &rows, random);
            }
            Template::Strings { strings, form } => {
                let valid = &Mask::new(rows.n_all, *nullable, random);
                add_strings(&mut columns, &inner, *strings, *form, valid, &rows, random);
            }
        }
        if in_struct {
            columns.wrap(name, random);
        }
    }
    let Columns { fields, arrays, specs, want } = columns;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.n_all));
    let batch =
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).unwrap();
    let schema = RowSchema::infer(batch.schema_ref(), &specs, None).unwrap();
    Case { schema, batch: batch.slice(before, n_rows), want }
}

impl Columns {
    pub(super) fn add(
        &mut self,
        name: &str,
        nullable: bool,
        array: ArrayRef,
        spec: FieldSpec,
        want: Want,
    ) {
        self.fields.push(Field::new(name, array.data_type().clone(), nullable));
        self.arrays.push(array);
        self.specs.insert(name.to_owned(), spec);
        self.want.push(want);
    }

    /// Puts the last column into a struct that is null where the column is, at times.
    fn wrap(&mut self, name: String, random: &mut Random) {
        let (field, array) = (self.fields.pop().unwrap(), self.arrays.pop().unwrap());
        let valid = array.logical_nulls().filter(|_| random.below(2) == 0);
        let field = Field::new("x", field.data_type().clone(), field.is_nullable());
        let array = StructArray::new(Fields::from(vec![field]), vec![array], valid);
        self.fields.push(Field::new(name, array.data_type().clone(), array.nulls().is_some()));
        self.arrays.push(Arc::new(array));
    }
}

/// The rows of a batch among those of the arrays that it is a slice of.
pub(super) struct Rows {
    before: usize,
    n: usize,
    pub(super) n_all: usize,
}

impl Rows {
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.before..self.before + self.n
    }
}

/// Which rows have a value; all of them in a column that is not nullable.
pub(super) struct Mask(Option<Vec<bool>>);

impl Mask {
    pub(super) fn new(n: usize, nullable: bool, random: &mut Random) -> Self {
        Self(nullable.then(|| (0..n).map(|_| random.below(3) > 0).collect()))
    }

    pub(super) fn is_nullable(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn has(&self, row: usize) -> bool {
        self.0.as_ref().is_none_or(|valid| valid[row])
    }

    pub(super) fn nulls(&self) -> Option<NullBuffer> {
        self.0.clone().map(NullBuffer::from)
    }

    pub(super) fn bytes(&self, rows: &Rows) -> Option<Vec<u8>> {
        self.0.as_ref().map(|valid| rows.range().map(|row| valid[row].into()).collect())
    }
}
