//! The shapes of rows that are measured, as the batches that a pipeline would send.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Int64Array, ListArray, PrimitiveArray, RecordBatch, StringArray,
    UInt8Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use rowmill::schema::{FieldSpec, RowSchema};

use crate::machine::table::Target;
use crate::machine::{Numbers, Result};

/// Rows of one shape.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// What a row is.
    pub(crate) about: &'static str,
    /// What is aimed at when they are written.
    pub(crate) target: Target,
    pub(crate) schema: RowSchema,
    /// All rows. Batches share arrays where values may repeat, so that making them is no part of
    /// what is measured and the source stays in memory.
    pub(crate) batches: Vec<RecordBatch>,
}

/// The names of the shapes.
pub(crate) const NAMES: [&str; 5] = ["fixed", "a", "b", "c", "d"];

/// Different batches of a shape that repeat.
const POOL: usize = 8;

impl Shape {
    /// The shape of that name.
    pub(crate) fn of(name: &str, quick: bool) -> Result<Self> {
        match name {
            "a" | "fixed" => signals(if quick { 2_048 } else { 16_384 }, name == "a"),
            "b" => vectors(if quick { 100_000 } else { 1_000_000 }),
            "c" => molecules(if quick { 60_000 } else { 300_000 }),
            "d" => scalars(if quick { 1_000_000 } else { 5_000_000 }),
            other => Err(format!("there is no shape `{other}`, only {}", NAMES.join(", ")).into()),
        }
    }

    pub(crate) fn n_rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }

    /// The batches in as many runs, one after another.
    pub(crate) fn lanes(&self, n: usize) -> Vec<&[RecordBatch]> {
        self.batches.chunks(self.batches.len().div_ceil(n)).collect()
    }
}

/// `n_rows` rows in batches of `batch_rows` that repeat after the first few.
fn repeated(
    n_rows: usize,
    batch_rows: usize,
    mut batch: impl FnMut(usize) -> Result<RecordBatch>,
) -> Result<Vec<RecordBatch>> {
    let pool: Vec<_> = (0..POOL).map(|_| batch(batch_rows)).collect::<Result<_>>()?;
    let starts = (0..n_rows).step_by(batch_rows).enumerate();
    let batches = starts.map(|(n, at)| pool[n % POOL].slice(0, batch_rows.min(n_rows - at)));
    Ok(batches.collect())
}

fn spec(set: impl FnOnce(&mut FieldSpec)) -> FieldSpec {
    let mut spec = FieldSpec::default();
    set(&mut spec);
    spec
}

fn shape(
    (name, about, target): (&'static str, &'static str, Target),
    batches: Vec<RecordBatch>,
    specs: &[(&str, FieldSpec)],
    key: Option<&str>,
) -> Result<Shape> {
    let specs: BTreeMap<_, _> =
        specs.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect();
    let schema = RowSchema::infer(&batches[0].schema(), &specs, key)?;
    Ok(Shape { name, about, target, schema, batches })
}

/// Large fixed rows of 88 KiB; with two interned texts of 126 KB and 13 KB, or without.
fn signals(n_rows: usize, with_texts: bool) -> Result<Shape> {
    let mut numbers = Numbers(11);
    let documents = |n: usize, bytes: usize| -> Vec<String> {
        let text = |i| format!("{{\"document\":{i},\"body\":\"{}\"}}", "ACGT".repeat(bytes / 4));
        (0..n).map(text).collect()
    };
    let (panels, notes) = (documents(26, 126_000), documents(24, 13_000));
    let batches = repeated(n_rows, 18, |n| {
        let mut pick = |texts: &[String]| -> ArrayRef {
            let picked = (0..n).map(|_| &texts[numbers.below(texts.len() as u64) as usize]);
            Arc::new(StringArray::from_iter_values(picked))
        };
        let (panel, note) = (pick(&panels), pick(&notes));
        let mut word = || numbers.next() as i16;
        let data: ArrayRef = tensor::<Int16Type>(n, &[6, 4096], &mut word)?;
        let annotation = tensor::<Int8Type>(n, &[6, 4096], || word() as i8)?;
        let scaler = tensor::<Float32Type>(n, &[4096], || f32::from(word()))?;
        let mut columns = vec![("data", data), ("annotation", annotation), ("scaler", scaler)];
        if with_texts {
            columns.extend([("panel", panel), ("note", note)]);
        }
        Ok(RecordBatch::try_from_iter(columns)?)
    })?;
    if !with_texts {
        let about = "int16[6,4096], int8[6,4096], float32[4096]";
        return shape(("fixed", about, Target::Ratio(0.9)), batches, &[], None);
    }
    let intern = || spec(|it| it.intern = true);
    let about = "the same with two interned texts of 126 and 13 KB";
    let specs = [("panel", intern()), ("note", intern())];
    shape(("a", about, Target::Ratio(0.9)), batches, &specs, None)
}

/// Embeddings with a key.
fn vectors(n_rows: usize) -> Result<Shape> {
    let mut numbers = Numbers(12);
    let batch_rows = 2048;
    let pool: Vec<ArrayRef> = (0..POOL)
        .map(|_| tensor::<Float32Type>(batch_rows, &[512], || f32::from(numbers.next() as i16)))
        .collect::<Result<_>>()?;
    let batch = |(n, at): (usize, usize)| {
        let rows = batch_rows.min(n_rows - at);
        let ids = StringArray::from_iter_values((at..at + rows).map(|row| key_of(row as u64)));
        Ok(RecordBatch::try_from_iter([
            ("id", Arc::new(ids) as ArrayRef),
            ("vector", pool[n % POOL].slice(0, rows)),
        ])?)
    };
    let batches = (0..n_rows).step_by(batch_rows).enumerate().map(batch).collect::<Result<_>>()?;
    shape(("b", "float32[512], a text key", Target::Open), batches, &[], Some("id"))
}

/// The key of a row of shape b.
pub(crate) fn key_of(row: u64) -> String {
    format!("sample-{row:09}")
}

/// Molecules of 5 to 80 atoms.
fn molecules(n_rows: usize) -> Result<Shape> {
    let mut numbers = Numbers(13);
    let batches = repeated(n_rows, 4096, |n| {
        let counts: Vec<usize> = (0..n).map(|_| 5 + numbers.below(76) as usize).collect();
        let offsets = || OffsetBuffer::<i32>::from_lengths(counts.iter().copied());
        let n_atoms: usize = counts.iter().sum();
        let mut places = || -> Result<ArrayRef> {
            let xyz = tensor::<Float32Type>(n_atoms, &[3], || f32::from(numbers.next() as i16))?;
            let item = Arc::new(Field::new("item", xyz.data_type().clone(), false));
            Ok(Arc::new(ListArray::try_new(item, offsets(), xyz, None)?))
        };
        let (position, force) = (places()?, places()?);
        let elements = UInt8Array::from_iter_values((0..n_atoms).map(|i| (i % 9) as u8));
        let item = Arc::new(Field::new("item", arrow_schema::DataType::UInt8, false));
        let element = ListArray::try_new(item, offsets(), Arc::new(elements), None)?;
        let mut scalar = || numbers_of::<Float64Type>(n, || f64::from(numbers.next() as i32));
        let (energy, gap, dipole) = (scalar(), scalar(), scalar());
        let names = (0..n).map(|i| format!("C{}H{}N{}O{}", i % 20, i % 42, i % 3, i % 5));
        Ok(RecordBatch::try_from_iter([
            ("position", position),
            ("force", force),
            ("element", Arc::new(element) as ArrayRef),
            ("energy", energy),
            ("gap", gap),
            ("dipole", dipole),
            ("name", Arc::new(StringArray::from_iter_values(names)) as ArrayRef),
        ])?)
    })?;
    let on_atoms = || spec(|it| it.axis = Some("atoms".to_owned()));
    let specs = [("position", on_atoms()), ("force", on_atoms()), ("element", on_atoms())];
    let about = "5 to 80 atoms: float32[n,3] twice, uint8[n]; three float64, a name";
    shape(("c", about, Target::Open), batches, &specs, None)
}

/// Tiny rows: 28 bytes of values, and the text's offset.
fn scalars(n_rows: usize) -> Result<Shape> {
    let mut numbers = Numbers(14);
    let batches = repeated(n_rows, 65_536, |n| {
        let id = Int64Array::from_iter_values((0..n).map(|_| numbers.next() as i64));
        let value = numbers_of::<Float32Type>(n, || f32::from(numbers.next() as i16));
        let tags = StringArray::from_iter_values((0..n).map(|i| format!("tag-{i:012}")));
        Ok(RecordBatch::try_from_iter([
            ("id", Arc::new(id) as ArrayRef),
            ("value", value),
            ("tag", Arc::new(tags) as ArrayRef),
        ])?)
    })?;
    let about = "int64, float32, a text of 16 bytes";
    shape(("d", about, Target::Ratio(0.3)), batches, &[], None)
}

fn numbers_of<T: ArrowPrimitiveType>(n: usize, next: impl FnMut() -> T::Native) -> ArrayRef {
    let values = std::iter::repeat_with(next).take(n);
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

/// `n` rows of a fixed shape.
fn tensor<T: ArrowPrimitiveType>(
    n: usize,
    shape: &[usize],
    next: impl FnMut() -> T::Native,
) -> Result<ArrayRef> {
    let mut array = numbers_of::<T>(n * shape.iter().product::<usize>(), next);
    for len in shape.iter().rev() {
        let item = Arc::new(Field::new("item", array.data_type().clone(), false));
        array = Arc::new(FixedSizeListArray::try_new(item, i32::try_from(*len)?, array, None)?);
    }
    Ok(array)
}
