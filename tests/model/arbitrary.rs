//! Batches at random, and what must come of them, worked out one row at a time.
//!
//! A [`Case`] is made of templates of columns and a seed. Beneath nulls, and before and after the
//! rows of a slice, its Arrow arrays hold values that must never show.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringDictionaryBuilder, StringViewBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, FixedSizeListArray, LargeBinaryArray,
    LargeListArray, LargeStringArray, ListArray, RecordBatch, StringArray, StructArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, Schema, TimeUnit};
use proptest::prelude::*;
use rowmill::schema::{FieldSpec, Kind, RowSchema, Stored};

use super::every_kind::Random;

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
enum Level {
    Of(usize),
    List,
    LargeList,
}

/// How a column of strings comes.
#[derive(Debug, Clone, Copy)]
enum Strings {
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
enum Form {
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
struct Columns {
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
    let rows = Rows { before, n_rows, n_all: before + n_rows + after };
    for (i, (template, nullable, in_struct)) in templates.iter().enumerate() {
        let random = &mut Random::new(seed, i as u64);
        let name = format!("column {i}");
        let in_struct = *in_struct && !matches!(template, Template::Axis { .. });
        let inner = if in_struct { format!("{name}.x") } else { name.clone() };
        match template {
            Template::Numbers { leaf, levels } => {
                let valid = &mask(rows.n_all, *nullable, random);
                add_numbers(&mut columns, &inner, leaf, levels, valid, &rows, random);
            }
            Template::Axis { columns: on_axis } => {
                add_axis(&mut columns, &inner, on_axis, &rows, random);
            }
            Template::Tensor { leaf, rank } => {
                let valid = &mask(rows.n_all, *nullable, random);
                add_tensor(&mut columns, &inner, leaf, *rank, valid, &rows, random);
            }
            Template::Strings { strings, form } => {
                let valid = &mask(rows.n_all, *nullable, random);
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
    fn add(&mut self, name: &str, nullable: bool, array: ArrayRef, spec: FieldSpec, want: Want) {
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
struct Rows {
    before: usize,
    n_rows: usize,
    n_all: usize,
}

impl Rows {
    fn range(&self) -> std::ops::Range<usize> {
        self.before..self.before + self.n_rows
    }
}

/// Which rows have a value.
fn mask(n: usize, nullable: bool, random: &mut Random) -> Option<Vec<bool>> {
    nullable.then(|| (0..n).map(|_| random.below(3) > 0).collect())
}

fn is_valid(valid: Option<&Vec<bool>>, row: usize) -> bool {
    valid.is_none_or(|valid| valid[row])
}

fn nulls(valid: Option<&Vec<bool>>) -> Option<NullBuffer> {
    valid.map(|valid| NullBuffer::from(valid.clone()))
}

fn valid_bytes(valid: Option<&Vec<bool>>, rows: &Rows) -> Option<Vec<u8>> {
    valid.map(|valid| rows.range().map(|row| valid[row].into()).collect())
}

/// Scalars of one type: as Arrow holds them and as they are stored.
#[derive(Default, Clone)]
struct Scalars {
    arrow: Vec<u8>,
    stored: Vec<u8>,
}

fn scalar(leaf: &DataType, random: &mut Random) -> Scalars {
    let bits = random.next();
    let same = |bytes: &[u8]| Scalars { arrow: bytes.to_vec(), stored: bytes.to_vec() };
    match leaf {
        DataType::Boolean => same(&[(bits & 1) as u8]),
        DataType::Date64 => {
            let days = (bits as i16).into();
            let ms = i64::from(days) * 86_400_000;
            Scalars { arrow: ms.to_le_bytes().to_vec(), stored: i32::to_le_bytes(days).to_vec() }
        }
        DataType::Time32(_) => {
            let time = (bits % 86_400) as i32;
            let stored = i64::from(time).to_le_bytes().to_vec();
            Scalars { arrow: time.to_le_bytes().to_vec(), stored }
        }
        DataType::Time64(_) => same(&(bits % 86_400_000_000_000).to_le_bytes()),
        DataType::Decimal128(..) => same(&i128::from(bits as i64).to_le_bytes()),
        leaf => same(&bits.to_le_bytes()[..leaf.primitive_width().unwrap()]),
    }
}

fn leaf_array(leaf: &DataType, bytes: &[u8]) -> ArrayRef {
    let (n, buffer) = match leaf {
        DataType::Boolean => {
            let bits = BooleanBuffer::collect_bool(bytes.len(), |i| bytes[i] == 1);
            (bytes.len(), bits.into_inner())
        }
        leaf => (bytes.len() / leaf.primitive_width().unwrap(), Buffer::from(bytes)),
    };
    let data = ArrayData::builder(leaf.clone()).len(n).add_buffer(buffer).align_buffers(true);
    make_array(data.build().unwrap())
}

/// One row: how many items each level has, and the scalars.
struct Cell {
    dims: Vec<usize>,
    scalars: Vec<Scalars>,
}

impl Cell {
    fn new(leaf: &DataType, dims: Vec<usize>, random: &mut Random) -> Self {
        let n = dims.iter().product();
        Self { dims, scalars: (0..n).map(|_| scalar(leaf, random)).collect() }
    }

    fn stored(&self) -> impl Iterator<Item = u8> {
        self.scalars.iter().flat_map(|scalar| scalar.stored.iter().copied())
    }
}

fn list_field(items: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new_list_field(items.data_type().clone(), true))
}

fn nested(
    leaf: &DataType,
    levels: &[Level],
    cells: &[Cell],
    mut nulls: Option<NullBuffer>,
) -> ArrayRef {
    let bytes: Vec<u8> =
        cells.iter().flat_map(|cell| &cell.scalars).flat_map(|s| s.arrow.clone()).collect();
    let mut items = leaf_array(leaf, &bytes);
    for (depth, level) in levels.iter().enumerate().rev() {
        let lens = cells.iter().flat_map(|cell| {
            let n_lists = cell.dims[..depth].iter().product();
            std::iter::repeat_n(cell.dims[depth], n_lists)
        });
        let nulls = if depth == 0 { nulls.take() } else { None };
        items = match level {
            Level::Of(n) => {
                let (field, n) = (list_field(&items), i32::try_from(*n).unwrap());
                Arc::new(FixedSizeListArray::new(field, n, items, nulls))
            }
            Level::List => {
                let offsets = OffsetBuffer::from_lengths(lens);
                Arc::new(ListArray::new(list_field(&items), offsets, items, nulls))
            }
            Level::LargeList => {
                let offsets = OffsetBuffer::from_lengths(lens);
                Arc::new(LargeListArray::new(list_field(&items), offsets, items, nulls))
            }
        };
    }
    match nulls {
        None => items,
        Some(nulls) => {
            make_array(items.to_data().into_builder().nulls(Some(nulls)).build().unwrap())
        }
    }
}

fn add_numbers(
    columns: &mut Columns,
    name: &str,
    leaf: &DataType,
    levels: &[Level],
    valid: &Option<Vec<bool>>,
    rows: &Rows,
    random: &mut Random,
) {
    let cells: Vec<Cell> = (0..rows.n_all)
        .map(|_| {
            let dims = levels.iter().map(|level| match level {
                Level::Of(n) => *n,
                _ => random.below(4) as usize,
            });
            let dims = dims.collect();
            Cell::new(leaf, dims, random)
        })
        .collect();
    let varying = |level: &Level| !matches!(level, Level::Of(_));
    let kind = match levels {
        _ if !levels.iter().any(varying) => Kind::Fixed,
        [_, inner @ ..] if !inner.iter().any(varying) => Kind::Ragged,
        _ => Kind::Free,
    };
    let mut want = Want { valid: valid_bytes(valid.as_ref(), rows), ..Want::default() };
    let (mut dims, mut offsets) = (Vec::new(), vec![0]);
    let row_bytes = scalar(leaf, random).stored.len()
        * levels
            .iter()
            .map(|level| if let Level::Of(n) = level { *n } else { 1 })
            .product::<usize>();
    for row in rows.range() {
        let cell = &cells[row];
        let mut end = *offsets.last().unwrap();
        if is_valid(valid.as_ref(), row) {
            want.bytes.extend(cell.stored());
            end += match kind {
                Kind::Ragged => cell.dims[0],
                _ => cell.scalars.len(),
            } as i64;
            // Of lists that are not there nobody knows how long they would be.
            let known = levels.iter().enumerate().map(|(i, level)| {
                let n_lists: usize = cell.dims[..i].iter().product();
                if n_lists == 0 && varying(level) { 0 } else { cell.dims[i] as i32 }
            });
            dims.extend(known);
        } else {
            dims.extend(levels.iter().map(|_| 0));
            if kind == Kind::Fixed {
                want.bytes.extend(std::iter::repeat_n(0, row_bytes));
            }
        }
        offsets.push(end);
    }
    want.dims = (kind == Kind::Free).then_some(dims);
    want.offsets = (kind != Kind::Fixed).then_some(offsets);
    let mut array = nested(leaf, levels, &cells, nulls(valid.as_ref()));
    if levels.is_empty() && random.below(4) == 0 && leaf != &DataType::Boolean {
        array = dictionary(array);
    }
    columns.add(name, valid.is_some(), array, FieldSpec::default(), want);
}

/// The same values as codes, in reverse; nulls are among the values.
fn dictionary(array: ArrayRef) -> ArrayRef {
    let n = array.len() as i32;
    let codes = arrow_array::Int32Array::from_iter_values((0..n).rev());
    let reversed = arrow_select::take::take(&array, &codes, None).unwrap();
    Arc::new(arrow_array::DictionaryArray::new(codes, reversed))
}

fn add_axis(
    columns: &mut Columns,
    name: &str,
    on_axis: &[(DataType, Option<usize>, bool)],
    rows: &Rows,
    random: &mut Random,
) {
    let axis: String = name.replace([' ', '.'], "_") + "_axis";
    let counts: Vec<usize> = (0..rows.n_all).map(|_| random.below(4) as usize).collect();
    let masks: Vec<_> =
        on_axis.iter().map(|(.., nullable)| mask(rows.n_all, *nullable, random)).collect();
    let count = |row: usize| {
        let any = masks.iter().any(|valid| is_valid(valid.as_ref(), row));
        if any { counts[row] } else { 0 }
    };
    let mut offsets = vec![0];
    offsets.extend(rows.range().scan(0, |end, row| {
        *end += count(row) as i64;
        Some(*end)
    }));
    for (i, ((leaf, trailing, _), valid)) in on_axis.iter().zip(&masks).enumerate() {
        let mut levels = vec![Level::List];
        levels.extend(trailing.map(Level::Of));
        let cells: Vec<Cell> = (0..rows.n_all)
            .map(|row| {
                let has = is_valid(valid.as_ref(), row);
                let n = if has { counts[row] } else { random.below(4) as usize };
                let dims = [n].into_iter().chain(*trailing).collect();
                Cell::new(leaf, dims, random)
            })
            .collect();
        let entry = scalar(leaf, random).stored.len() * trailing.unwrap_or(1);
        let bytes = rows.range().flat_map(|row| {
            if is_valid(valid.as_ref(), row) {
                cells[row].stored().collect()
            } else {
                vec![0; count(row) * entry]
            }
        });
        let want = Want {
            valid: valid_bytes(valid.as_ref(), rows),
            dims: None,
            offsets: Some(offsets.clone()),
            bytes: bytes.collect(),
        };
        let array = nested(leaf, &levels, &cells, nulls(valid.as_ref()));
        let spec = FieldSpec { axis: Some(axis.clone()), ..FieldSpec::default() };
        columns.add(&format!("{name} {i}"), valid.is_some(), array, spec, want);
    }
}

fn add_tensor(
    columns: &mut Columns,
    name: &str,
    leaf: &DataType,
    rank: usize,
    valid: &Option<Vec<bool>>,
    rows: &Rows,
    random: &mut Random,
) {
    let cells: Vec<Cell> = (0..rows.n_all)
        .map(|_| {
            let dims = (0..random.below(rank as u64 + 1)).map(|_| random.below(4) as usize);
            let dims = dims.collect();
            Cell::new(leaf, dims, random)
        })
        .collect();
    let (mut want, mut dims, mut offsets) = (Want::default(), Vec::new(), vec![0]);
    for row in rows.range() {
        let (cell, mut end) = (&cells[row], *offsets.last().unwrap());
        if is_valid(valid.as_ref(), row) {
            want.bytes.extend(cell.stored());
            end += cell.scalars.len() as i64;
            let padding = std::iter::repeat_n(-1, rank - cell.dims.len());
            dims.extend(cell.dims.iter().map(|n| *n as i32).chain(padding));
        } else {
            dims.extend(std::iter::repeat_n(0, rank));
        }
        offsets.push(end);
    }
    want.valid = valid_bytes(valid.as_ref(), rows);
    (want.dims, want.offsets) = (Some(dims), Some(offsets));
    let flat: Vec<Cell> = cells
        .iter()
        .map(|cell| Cell { dims: vec![cell.scalars.len()], scalars: cell.scalars.clone() })
        .collect();
    let data = nested(leaf, &[Level::List], &flat, None);
    let shapes = cells.iter().map(|cell| cell.dims.iter().map(|n| Some(*n as i64)));
    let shape: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>(
            shapes.map(Some),
        ));
    let fields = Fields::from(vec![
        Field::new("data", data.data_type().clone(), false),
        Field::new("shape", shape.data_type().clone(), true),
    ]);
    let array = StructArray::new(fields, vec![data, shape], nulls(valid.as_ref()));
    let spec = FieldSpec { kind: Some(Kind::Free), rank: Some(rank), ..FieldSpec::default() };
    columns.add(name, valid.is_some(), Arc::new(array), spec, want);
}

/// Texts that are JSON, and categories; all of one length, for columns of one size.
const TEXTS: [&str; 4] = ["[12]", "1e10", "\"é\"", "null"];

/// Texts that are neither.
const OTHERS: [&str; 3] = ["oops", "{no}", "日a"];

fn add_strings(
    columns: &mut Columns,
    name: &str,
    strings: Strings,
    form: Form,
    valid: &Option<Vec<bool>>,
    rows: &Rows,
    random: &mut Random,
) {
    use Strings::{
        Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View,
    };
    // Numbers of one size are not text.
    let form = match (strings, form) {
        (FixedSizeBinary, Form::Json | Form::Categorical)
        | (Binary | LargeBinary | BinaryView, Form::Categorical) => Form::Plain,
        (_, form) => form,
    };
    let free = matches!(form, Form::Plain | Form::Interned) && !matches!(strings, FixedSizeBinary);
    // Most writers of Arrow leave nothing beneath nulls, some leave anything.
    let others =
        if random.below(2) == 0 && !matches!(strings, FixedSizeBinary) { [""; 3] } else { OTHERS };
    let texts: Vec<String> = (0..rows.n_all)
        .map(|row| {
            let has = is_valid(valid.as_ref(), row);
            let text = if has {
                TEXTS[random.below(4) as usize]
            } else {
                others[random.below(3) as usize]
            };
            if free { text.repeat(random.below(3) as usize) } else { text.into() }
        })
        .collect();
    let some = || texts.iter().map(Some);
    let whole = nulls(valid.as_ref());
    let with_nulls = |array: ArrayRef| match &whole {
        None => array,
        Some(_) => make_array(array.to_data().into_builder().nulls(whole.clone()).build().unwrap()),
    };
    let array: ArrayRef = match strings {
        Utf8 => with_nulls(Arc::new(StringArray::from_iter(some()))),
        LargeUtf8 => with_nulls(Arc::new(LargeStringArray::from_iter(some()))),
        Binary => with_nulls(Arc::new(BinaryArray::from_iter(some()))),
        LargeBinary => with_nulls(Arc::new(LargeBinaryArray::from_iter(some()))),
        FixedSizeBinary => {
            let texts = texts.iter().map(|text| Some(text.as_bytes()));
            let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(texts, 4).unwrap();
            with_nulls(Arc::new(array))
        }
        Utf8View => {
            let mut builder = StringViewBuilder::new();
            texts.iter().for_each(|text| builder.append_value(text));
            with_nulls(Arc::new(builder.finish()))
        }
        BinaryView => {
            let mut builder = BinaryViewBuilder::new();
            texts.iter().for_each(|text| builder.append_value(text));
            with_nulls(Arc::new(builder.finish()))
        }
        Dictionary => {
            let mut builder = StringDictionaryBuilder::<Int8Type>::new();
            texts.iter().for_each(|text| builder.append_value(text));
            with_nulls(Arc::new(builder.finish()))
        }
    };
    let mut want = Want { valid: valid_bytes(valid.as_ref(), rows), ..Want::default() };
    let mut offsets = vec![0];
    for row in rows.range() {
        let has = is_valid(valid.as_ref(), row);
        match form {
            Form::Categorical => {
                let code = TEXTS.iter().position(|text| *text == texts[row]).filter(|_| has);
                want.bytes.push(code.map_or(0xff, |code| code as u8));
            }
            _ if has => want.bytes.extend(texts[row].bytes()),
            _ => {}
        }
        offsets.push(want.bytes.len() as i64);
    }
    let mut spec = FieldSpec::default();
    match form {
        Form::Plain => {}
        Form::Interned => spec.intern = true,
        Form::Json => spec.dtype = Some(Stored::Json),
        Form::Categorical => {
            spec.categorical = Some(TEXTS.iter().map(|&text| text.into()).collect());
        }
    }
    if matches!(strings, FixedSizeBinary) {
        spec.dtype = Some(Stored::Binary);
    }
    want.offsets = (!matches!(form, Form::Categorical)).then_some(offsets);
    columns.add(name, valid.is_some(), array, spec, want);
}
