//! Rows in which every kind of field, dtype and logical type occurs.
//!
//! A row is a function of seed and row number alone, so batches can be cut anywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BinaryViewBuilder, Decimal128Builder, FixedSizeBinaryBuilder,
    FixedSizeListBuilder, Float32Builder, Int8Builder, Int16Builder, Int32Builder,
    LargeBinaryBuilder, LargeStringBuilder, ListBuilder, StringBuilder, StringDictionaryBuilder,
    StringViewBuilder, UInt8Builder, UInt16Builder,
};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Date64Array, DurationNanosecondArray, Float16Array,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, LargeListArray,
    RecordBatch, StringArray, StructArray, Time32MillisecondArray, Time64MicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use half::f16;
use rowmill::schema::{FieldSpec, Kind, RowSchema, Stored};

/// Numbers that look random and are the same everywhere (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64, row: u64) -> Self {
        let mut random = Self(seed ^ row.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn float(&mut self) -> f64 {
        (self.below(2001) as f64 - 1000.0) / 8.0
    }
}

/// The schema of [`every_kind_batch`]'s rows; `id` is their key.
pub(crate) fn every_kind_schema() -> RowSchema {
    let rows = every_kind_rows(0, 0, 0);
    RowSchema::infer(rows.schema_ref(), &specs(), Some("id")).unwrap()
}

/// The rows `0..n_rows` of this seed.
pub(crate) fn every_kind_batch(n_rows: usize, seed: u64) -> RecordBatch {
    every_kind_rows(0, n_rows, seed)
}

fn specs() -> BTreeMap<String, FieldSpec> {
    let plain = FieldSpec::default;
    let on_atoms = || FieldSpec { axis: Some("atoms".into()), ..plain() };
    let interned = |sidecar: Option<&str>| FieldSpec {
        intern: true,
        sidecar: sidecar.map(Into::into),
        ..plain()
    };
    let stored = |dtype| FieldSpec { dtype: Some(dtype), ..plain() };
    let indexed = || FieldSpec { index: true, ..plain() };
    let words = |words: &[&str]| FieldSpec {
        categorical: Some(words.iter().map(|&word| word.into()).collect()),
        ..plain()
    };
    [
        ("narrowed", stored(Stored::Int16)),
        ("brain float", stored(Stored::Bfloat16)),
        ("document", stored(Stored::Json)),
        ("when", indexed()),
        ("price", indexed()),
        ("note", indexed()),
        ("half", indexed()),
        ("positions", on_atoms()),
        ("species", on_atoms()),
        ("forces", on_atoms()),
        ("flat list", FieldSpec { shape: Some(vec![2]), kind: Some(Kind::Ragged), ..plain() }),
        ("panel", interned(Some("panels.json"))),
        ("allele", interned(None)),
        ("settings", FieldSpec { index: true, ..interned(Some("settings.json")) }),
        ("animal", words(&["cat", "dog", "gnu"])),
        ("colour", FieldSpec { index: true, ..words(&["red", "green"]) }),
        ("tensor", FieldSpec { kind: Some(Kind::Free), rank: Some(3), ..plain() }),
        ("list of one size", FieldSpec { shape: Some(vec![3]), ..plain() }),
    ]
    .into_iter()
    .map(|(name, spec)| (name.to_owned(), spec))
    .collect()
}

/// The rows `from..from + n_rows` of this seed.
pub(crate) fn every_kind_rows(from: usize, n_rows: usize, seed: u64) -> RecordBatch {
    let mut columns = Columns::default();
    let rows: Vec<u64> = (from as u64..(from + n_rows) as u64).collect();
    scalars(&mut columns, &rows, seed);
    times(&mut columns, &rows, seed);
    strings(&mut columns, &rows, seed);
    arrays(&mut columns, &rows, seed);
    lists(&mut columns, &rows, seed);
    interned(&mut columns, &rows, seed);
    columns.batch(n_rows)
}

#[derive(Default)]
struct Columns {
    fields: Vec<Field>,
    arrays: Vec<ArrayRef>,
}

impl Columns {
    fn add(&mut self, name: &str, nullable: bool, array: impl arrow_array::Array + 'static) {
        self.fields.push(Field::new(name, array.data_type().clone(), nullable));
        self.arrays.push(Arc::new(array));
    }

    fn batch(self, n_rows: usize) -> RecordBatch {
        let schema = Arc::new(arrow_schema::Schema::new(self.fields));
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(n_rows));
        RecordBatch::try_new_with_options(schema, self.arrays, &options).unwrap()
    }
}

/// A value for each row, from numbers that differ by column.
fn each<T>(rows: &[u64], seed: u64, column: u64, value: impl Fn(&mut Random) -> T) -> Vec<T> {
    rows.iter().map(|row| value(&mut Random::new(seed ^ (column << 32), *row))).collect()
}

/// The same, with no value in about one row of four.
fn some<T>(
    rows: &[u64],
    seed: u64,
    column: u64,
    value: impl Fn(&mut Random) -> T,
) -> Vec<Option<T>> {
    each(rows, seed, column, |r| (r.below(4) > 0).then(|| value(r)))
}

/// The numbers of each row for one column.
fn randoms(rows: &[u64], seed: u64, column: u64) -> Vec<Random> {
    each(rows, seed, column, |r| r.clone())
}

fn scalars(columns: &mut Columns, rows: &[u64], seed: u64) {
    let ids = rows.iter().map(|row| format!("row {row} of {seed}"));
    columns.add("id", true, StringArray::from_iter_values(ids));
    columns.add("bool", false, BooleanArray::from(each(rows, seed, 1, |r| r.below(2) == 1)));
    macro_rules! numbers {
        ($($name:literal, $array:ty, $native:ty, $column:literal;)*) => {$(
            columns.add($name, false, <$array>::from(each(rows, seed, $column, |r| r.next() as $native)));
        )*};
    }
    numbers! {
        "int8", Int8Array, i8, 2;
        "int16", Int16Array, i16, 3;
        "int32", Int32Array, i32, 4;
        "int64", Int64Array, i64, 5;
        "uint8", UInt8Array, u8, 6;
        "uint16", UInt16Array, u16, 7;
        "uint32", UInt32Array, u32, 8;
        "uint64", UInt64Array, u64, 9;
    }
    let half = each(rows, seed, 10, |r| f16::from_f64(r.float()));
    columns.add("half", false, Float16Array::from(half));
    columns.add("float32", false, Float32Array::from(each(rows, seed, 11, |r| r.float() as f32)));
    columns.add("float64", false, Float64Array::from(each(rows, seed, 12, Random::float)));
    columns.add("maybe bool", true, BooleanArray::from(some(rows, seed, 13, |r| r.below(2) == 1)));
    columns.add("maybe int16", true, Int16Array::from(some(rows, seed, 14, |r| r.next() as i16)));
    let narrowed = each(rows, seed, 15, |r| i64::from(r.next() as i16));
    columns.add("narrowed", false, Int64Array::from(narrowed));
    columns.add(
        "brain float",
        true,
        Float32Array::from(some(rows, seed, 16, |r| r.float() as f32)),
    );
}

fn times(columns: &mut Columns, rows: &[u64], seed: u64) {
    let days = |r: &mut Random| r.below(40_000) as i32 - 10_000;
    columns.add("date", false, Date32Array::from(each(rows, seed, 20, days)));
    let ms = |r: &mut Random| i64::from(days(r)) * 86_400_000;
    columns.add("date in ms", true, Date64Array::from(some(rows, seed, 21, ms)));
    let time = |r: &mut Random| r.below(86_400_000) as i32;
    columns.add("time in ms", true, Time32MillisecondArray::from(some(rows, seed, 22, time)));
    let time = |r: &mut Random| r.below(86_400_000_000) as i64;
    columns.add("time", false, Time64MicrosecondArray::from(each(rows, seed, 23, time)));
    let at = |r: &mut Random| r.below(1 << 40) as i64 - (1 << 39);
    let when = TimestampMillisecondArray::from(some(rows, seed, 24, at)).with_timezone("+01:00");
    columns.add("when", true, when);
    columns.add("tick", false, TimestampNanosecondArray::from(each(rows, seed, 25, at)));
    columns.add("lasting", false, DurationNanosecondArray::from(each(rows, seed, 26, at)));
    let mut price = Decimal128Builder::new().with_data_type(DataType::Decimal128(12, 2));
    for value in some(rows, seed, 27, |r| i128::from(r.below(1 << 30)) - (1 << 29)) {
        price.append_option(value);
    }
    columns.add("price", true, price.finish());
}

const TEXTS: [&str; 6] = ["", "a", "Größe", "two words", "日本語", "0123456789012345678901234567"];

fn text(r: &mut Random) -> String {
    TEXTS[r.below(TEXTS.len() as u64) as usize].repeat(r.below(3) as usize)
}

fn bytes(r: &mut Random) -> Vec<u8> {
    (0..r.below(20)).map(|_| r.next() as u8).collect()
}

fn strings(columns: &mut Columns, rows: &[u64], seed: u64) {
    let mut note = StringBuilder::new();
    let mut view = StringViewBuilder::new();
    let mut large = LargeStringBuilder::new();
    let mut blob = BinaryBuilder::new();
    let mut blob_view = BinaryViewBuilder::new();
    let mut large_blob = LargeBinaryBuilder::new();
    let mut document = StringBuilder::new();
    let mut hash = FixedSizeBinaryBuilder::new(5);
    for r in &mut randoms(rows, seed, 30) {
        note.append_option((r.below(4) > 0).then(|| text(r)));
        view.append_option((r.below(4) > 0).then(|| text(r)));
        large.append_value(text(r));
        blob.append_value(bytes(r));
        blob_view.append_value(bytes(r));
        large_blob.append_option((r.below(4) > 0).then(|| bytes(r)));
        document.append_value(format!("{{\"n\": {}, \"text\": {:?}}}", r.below(9), text(r)));
        hash.append_value(r.next().to_le_bytes().first_chunk::<5>().unwrap()).unwrap();
    }
    columns.add("note", true, note.finish());
    columns.add("Größe (view)", true, view.finish());
    columns.add("1st large", false, large.finish());
    columns.add("blob", false, blob.finish());
    columns.add("blob_key", false, blob_view.finish());
    columns.add("large blob", true, large_blob.finish());
    columns.add("document", false, document.finish());
    columns.add("hash", false, hash.finish());
    site(columns, rows, seed);
    events(columns, rows, seed);
}

/// A struct that may be null, with a field that may and one that may not.
fn site(columns: &mut Columns, rows: &[u64], seed: u64) {
    let fields = Fields::from(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("depth", DataType::Float32, true),
    ]);
    let name: ArrayRef = Arc::new(StringArray::from(each(rows, seed, 40, text)));
    let depth: ArrayRef = Arc::new(Float32Array::from(some(rows, seed, 41, |r| r.float() as f32)));
    let valid: NullBuffer = each(rows, seed, 42, |r| r.below(4) > 0).into();
    columns.add("site", true, StructArray::new(fields, vec![name, depth], Some(valid)));
}

/// A list of structs, which is stored as JSON.
fn events(columns: &mut Columns, rows: &[u64], seed: u64) {
    let fields = Fields::from(vec![
        Field::new("at", DataType::Float64, true),
        Field::new("what", DataType::Utf8, true),
    ]);
    let (mut counts, mut at, mut what) = (Vec::new(), Vec::new(), Vec::new());
    for r in &mut randoms(rows, seed, 43) {
        let n = r.below(3) as usize;
        counts.push(n);
        for _ in 0..n {
            at.push((r.below(3) > 0).then(|| r.float()));
            what.push(text(r));
        }
    }
    let (at, what) = (Float64Array::from(at), StringArray::from(what));
    let items: ArrayRef =
        Arc::new(StructArray::new(fields.clone(), vec![Arc::new(at), Arc::new(what)], None));
    let item = Arc::new(Field::new_list_field(DataType::Struct(fields), false));
    let valid: NullBuffer = each(rows, seed, 45, |r| r.below(4) > 0).into();
    let list = LargeListArray::new(item, OffsetBuffer::from_lengths(counts), items, Some(valid));
    columns.add("events", true, list);
}

fn arrays(columns: &mut Columns, rows: &[u64], seed: u64) {
    let mut image = FixedSizeListBuilder::new(FixedSizeListBuilder::new(UInt8Builder::new(), 6), 4);
    let mut scaler = FixedSizeListBuilder::new(Float32Builder::new(), 5);
    let mut annotation = FixedSizeListBuilder::new(Int8Builder::new(), 3);
    let mut one_size = ListBuilder::new(Int32Builder::new());
    for r in &mut randoms(rows, seed, 50) {
        for _ in 0..4 {
            (0..6).for_each(|_| image.values().values().append_value(r.next() as u8));
            image.values().append(true);
        }
        image.append(true);
        (0..5).for_each(|_| scaler.values().append_value(r.float() as f32));
        scaler.append(true);
        (0..3).for_each(|_| annotation.values().append_value(r.next() as i8));
        annotation.append(r.below(4) > 0);
        (0..3).for_each(|_| one_size.values().append_value(r.next() as i32));
        one_size.append(true);
    }
    columns.add("image", false, image.finish());
    columns.add("scaler", false, scaler.finish());
    columns.add("annotation", true, annotation.finish());
    columns.add("list of one size", false, one_size.finish());
}

fn lists(columns: &mut Columns, rows: &[u64], seed: u64) {
    let vectors = || ListBuilder::new(FixedSizeListBuilder::new(Float32Builder::new(), 3));
    let (mut positions, mut forces) = (vectors(), vectors());
    let mut species = ListBuilder::new(UInt16Builder::new());
    let mut samples = ListBuilder::new(Int16Builder::new());
    let mut flat = ListBuilder::new(Int8Builder::new());
    let mut grid = ListBuilder::new(ListBuilder::new(Float32Builder::new()));
    let mut tensor_data = ListBuilder::new(Int16Builder::new());
    let mut tensor_shape = ListBuilder::new(Int32Builder::new());
    let mut tensor_valid = Vec::new();
    for r in &mut randoms(rows, seed, 60) {
        let has_forces = r.below(3) > 0;
        for _ in 0..r.below(5) {
            species.values().append_value(r.next() as u16);
            for (list, has) in [(&mut positions, true), (&mut forces, has_forces)] {
                if has {
                    (0..3).for_each(|_| list.values().values().append_value(r.float() as f32));
                    list.values().append(true);
                }
            }
        }
        positions.append(true);
        species.append(true);
        forces.append(has_forces);
        let has_samples = r.below(4) > 0;
        (0..r.below(7)).for_each(|_| samples.values().append_value(r.next() as i16));
        samples.append(has_samples);
        (0..2 * r.below(3)).for_each(|_| flat.values().append_value(r.next() as i8));
        flat.append(true);
        let (height, width) = (r.below(3), r.below(4));
        for _ in 0..height {
            (0..width).for_each(|_| grid.values().values().append_value(r.float() as f32));
            grid.values().append(true);
        }
        grid.append(true);
        let shape: Vec<i32> = (0..r.below(4)).map(|_| r.below(3) as i32).collect();
        let n_scalars: i32 = shape.iter().product();
        (0..n_scalars).for_each(|_| tensor_data.values().append_value(r.next() as i16));
        tensor_data.append(true);
        tensor_shape.values().append_slice(&shape);
        tensor_shape.append(true);
        tensor_valid.push(r.below(4) > 0);
    }
    columns.add("positions", false, positions.finish());
    columns.add("species", false, species.finish());
    columns.add("forces", true, forces.finish());
    columns.add("samples", true, samples.finish());
    columns.add("flat list", false, flat.finish());
    columns.add("grid", false, grid.finish());
    let (data, shape): (ArrayRef, ArrayRef) =
        (Arc::new(tensor_data.finish()), Arc::new(tensor_shape.finish()));
    let fields = Fields::from(vec![
        Field::new("data", data.data_type().clone(), false),
        Field::new("shape", shape.data_type().clone(), false),
    ]);
    let tensor = StructArray::new(fields, vec![data, shape], Some(tensor_valid.into()));
    columns.add("tensor", true, tensor);
}

fn interned(columns: &mut Columns, rows: &[u64], seed: u64) {
    let mut panel = StringBuilder::new();
    let mut allele = BinaryBuilder::new();
    let mut animal = StringBuilder::new();
    let mut colour = StringDictionaryBuilder::<Int32Type>::new();
    let mut settings = FixedSizeListBuilder::new(StringBuilder::new(), 2);
    for r in &mut randoms(rows, seed, 70) {
        panel.append_value(format!("panel {} {}", r.below(3), "x".repeat(40)));
        allele.append_option((r.below(4) > 0).then(|| vec![r.below(3) as u8; 9]));
        animal.append_value(["cat", "dog", "gnu"][r.below(3) as usize]);
        match r.below(3) {
            0 => colour.append_null(),
            n => colour.append_value(["red", "green"][n as usize - 1]),
        }
        (0..2).for_each(|_| settings.values().append_value(TEXTS[r.below(3) as usize]));
        settings.append(r.below(4) > 0);
    }
    columns.add("panel", false, panel.finish());
    columns.add("allele", true, allele.finish());
    columns.add("animal", false, animal.finish());
    columns.add("colour", true, colour.finish());
    columns.add("settings", true, settings.finish());
}
