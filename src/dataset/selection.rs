//! Rows of a dataset that were chosen together: a batch of a training loop.
//!
//! Leaves out: what a row of one shard is (`shard::field_reader`).
//!
//! Invariants:
//! 1. Rows stand in the order in which they were chosen, as often as they were.
//! 2. Where a row lies is found once, however many fields are then gathered.
//! 3. Only gathering copies, into memory that the caller owns and uses again.
//! 4. Where nothing can be mapped, each field is read when it is gathered: its rows alone, each once, of
//!    all shards at the same time.

use std::borrow::Cow;
use std::ops::Range;
use std::slice::Chunks;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;

use super::error::{DatasetError, Result};
use super::reader::Dataset;
use crate::schema::{Dtype, Field, Kind, Logical};
use crate::shard::{FieldReader, Shard};
use crate::storage::side_by_side;

const PAGE_BYTES: usize = 4096;
const CACHE_LINE_BYTES: usize = 64;
/// Few enough that no C library takes that instruction for them.
const SMALL_BYTES: usize = 512;

/// Rows of a dataset, found. Made by [`Dataset::select`].
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    dataset: &'a Dataset,
    /// The shards that hold the rows, each once.
    shards: Vec<&'a Shard>,
    places: Vec<Place>,
    /// Where nothing can be mapped: the rows of each of these shards that are read, and that places count.
    runs: Vec<Vec<Range<u64>>>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// Index among the selection's shards.
    shard: usize,
    /// Row of that shard, or of what is read of it.
    row: usize,
}

impl<'a> Selection<'a> {
    pub(super) fn new(dataset: &'a Dataset, rows: &[u64]) -> Result<Self> {
        if dataset.is_distant() {
            return Self::distant(dataset, rows);
        }
        let mut shards = Vec::new();
        // One more than the index of each shard of the dataset, 0 while it has none.
        let mut indices = vec![0; dataset.n_shards()];
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            let (number, row) = dataset.locate(*row)?;
            let index = indices.get_mut(number).ok_or_else(|| dataset.no_row(row))?;
            if *index == 0 {
                shards.push(dataset.shard(number)?);
                *index = shards.len();
            }
            let row = usize::try_from(row).map_err(|_| dataset.no_row(row))?;
            places.push(Place { shard: *index - 1, row });
        }
        Ok(Self { dataset, shards, places, runs: Vec::new() })
    }

    fn distant(dataset: &'a Dataset, rows: &[u64]) -> Result<Self> {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut numbers, mut runs) = (Vec::new(), Vec::<Vec<Range<u64>>>::new());
        // Where each of them lies.
        let mut found = Vec::with_capacity(sorted.len());
        for row in &sorted {
            let (number, row) = dataset.locate(*row)?;
            if numbers.last() != Some(&number) {
                numbers.push(number);
                runs.push(Vec::new());
            }
            let Some(own) = runs.last_mut() else { continue };
            match own.last_mut() {
                Some(run) if run.end == row => run.end += 1,
                _ => own.push(row..row + 1),
            }
            let before = found.last().filter(|last: &&Place| last.shard + 1 == numbers.len());
            let row = before.map_or(0, |last| last.row + 1);
            found.push(Place { shard: numbers.len() - 1, row });
        }
        let places = rows.iter().map(|row| {
            let at = sorted.binary_search(row).ok().and_then(|at| found.get(at));
            at.copied().ok_or_else(|| dataset.no_row(*row))
        });
        let places = places.collect::<Result<_>>()?;
        let shards = side_by_side(&numbers, |number| dataset.shard(*number))?;
        Ok(Self { dataset, shards, places, runs })
    }

    /// Number of rows, each counted as often as it was chosen.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no row was chosen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Copies the rows of a fixed field into `out`, one after another: `(len, *shape)` scalars,
    /// little-endian, in C order. Absent rows are zeros.
    ///
    /// # Errors
    /// The field is not fixed, `out` is not as long as the rows are, or a file is damaged.
    pub fn gather(&self, field: &str, out: &mut [u8]) -> Result<()> {
        let (index, field) = self.dataset.field(field)?;
        FieldReader::check_gather(field, self.len(), out.len())?;
        let row_bytes = field.unit_bytes();
        let readers = self.readers(index)?;
        let values: Vec<&[u8]> = readers.iter().map(|reader| reader.bytes()).collect();
        // The loop is short, so that the processor waits for many rows at once.
        for (place, out) in self.places.iter().zip(out.chunks_exact_mut(row_bytes.max(1))) {
            let from = place.row * row_bytes;
            let bytes = values.get(place.shard).and_then(|v| v.get(from..from + row_bytes));
            let bytes = bytes.ok_or_else(|| self.dataset.no_row(place.row as u64))?;
            if row_bytes < PAGE_BYTES {
                out.copy_from_slice(bytes);
                continue;
            }
            let mut left = out;
            for piece in pieces(bytes, left.as_ptr()) {
                let (now, later) = left.split_at_mut(piece.len());
                now.copy_from_slice(piece);
                left = later;
            }
        }
        Ok(())
    }

    /// Collects the rows of a field of any kind: `bytes` gets them one after another, `offsets`
    /// (`len + 1` of them) where each begins and the last one ends, in bytes from 0. Both are cleared
    /// first.
    ///
    /// # Errors
    /// There is no such field, or a file is damaged.
    pub fn gather_ragged(
        &self,
        field: &str,
        bytes: &mut Vec<u8>,
        offsets: &mut Vec<i64>,
    ) -> Result<()> {
        bytes.clear();
        offsets.clear();
        offsets.reserve(self.len() + 1);
        offsets.push(0);
        let (index, _) = self.dataset.field(field)?;
        let readers = self.readers(index)?;
        let readers: Vec<&FieldReader> = readers.iter().map(AsRef::as_ref).collect();
        // Where rows lie is found before the first is copied: neither loop waits for the other's
        // memory.
        let mut end = 0;
        let rows = self.places.iter().map(|place| {
            let reader = readers.get(place.shard).ok_or_else(|| self.dataset.no_row(0))?;
            let row = reader.row(place.row as u64)?;
            end += row.len();
            offsets.push(i64::try_from(end).unwrap_or(i64::MAX));
            Ok(row)
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        bytes.reserve(end);
        for row in rows {
            if row.len() < PAGE_BYTES {
                bytes.extend_from_slice(row);
                continue;
            }
            for piece in pieces(row, bytes.spare_capacity_mut().as_ptr().cast()) {
                bytes.extend_from_slice(piece);
            }
        }
        Ok(())
    }

    /// Collects which rows of a field have a value: 1 where one does, 0 where it is absent. `valid`
    /// is cleared first.
    ///
    /// # Errors
    /// There is no such field, or a file is damaged.
    pub fn gather_valid(&self, field: &str, valid: &mut Vec<u8>) -> Result<()> {
        valid.clear();
        valid.reserve(self.len());
        let (index, _) = self.dataset.field(field)?;
        let readers = self.readers(index)?;
        let readers: Vec<&FieldReader> = readers.iter().map(AsRef::as_ref).collect();
        for place in &self.places {
            let reader = readers.get(place.shard).ok_or_else(|| self.dataset.no_row(0))?;
            valid.push(reader.is_valid(place.row as u64)?.into());
        }
        Ok(())
    }

    /// The scalars of a fixed field as numbers of another type, `(len, *shape)` in C order.
    ///
    /// # Errors
    /// The field is not fixed, [`DatasetError::Cast`] for a value that the type cannot hold, or a
    /// file is damaged.
    pub fn numbers<T: ArrowPrimitiveType>(&self, field: &str) -> Result<ScalarBuffer<T::Native>> {
        let (_, described) = self.dataset.field(field)?;
        let row_bytes = if described.kind == Kind::Fixed { described.unit_bytes() } else { 0 };
        let mut bytes = vec![0; row_bytes.saturating_mul(self.len())];
        self.gather(field, &mut bytes)?;
        cast::<T>(described, bytes)
    }

    /// The readers of field `index` in the selection's shards.
    fn readers(&self, index: usize) -> Result<Vec<Cow<'a, FieldReader>>> {
        if self.runs.is_empty() {
            let readers = self.shards.iter().map(|shard| shard.field_at(index).map(Cow::Borrowed));
            return Ok(readers.collect::<Result<_, _>>()?);
        }
        let parts: Vec<_> = self.shards.iter().copied().zip(&self.runs).collect();
        Ok(side_by_side(&parts, |(shard, runs)| shard.read_runs(index, runs).map(Cow::Owned))?)
    }
}

/// The pieces in which a row of a page or more is best copied to `to`.
///
/// The C library copies pages with one instruction (`rep movsb`), which many processors run at half
/// the speed where source and target begin almost at the same place of a page: and that is where
/// files are mapped, and where allocators give out large memory.
fn pieces(row: &[u8], to: *const u8) -> Chunks<'_, u8> {
    let ahead = to.addr().wrapping_sub(row.as_ptr().addr()) % PAGE_BYTES;
    let is_slow = (1..CACHE_LINE_BYTES).contains(&ahead);
    row.chunks(if is_slow { SMALL_BYTES } else { row.len().max(1) })
}

/// Scalars of `field` as numbers of type `T`.
fn cast<T: ArrowPrimitiveType>(field: &Field, bytes: Vec<u8>) -> Result<ScalarBuffer<T::Native>> {
    let refused = |message: String| DatasetError::Cast {
        field: field.name.clone(),
        to: T::DATA_TYPE.to_string(),
        message,
    };
    let (dtype, bytes) = match (field.dtype, &field.logical) {
        (_, Some(Logical::Decimal128(..))) => {
            return Err(refused("it holds decimals: take its bytes".to_owned()));
        }
        // The upper half of a float32.
        (Dtype::Uint16, Some(Logical::Bfloat16)) => {
            let (halves, _) = bytes.as_chunks::<2>();
            let whole = halves.iter().flat_map(|&[low, high]| [0, 0, low, high]);
            (Dtype::Float32, whole.collect())
        }
        // Truth values are stored as bytes of 0 and 1.
        (Dtype::Bool, _) => (Dtype::Uint8, bytes),
        (dtype, _) => (dtype, bytes),
    };
    let data = arrow_data::ArrayData::builder(dtype.arrow())
        .len(bytes.len() / dtype.size())
        .add_buffer(Buffer::from_vec(bytes))
        .align_buffers(true)
        .build();
    let array = arrow_array::make_array(data.map_err(|e| refused(e.to_string()))?);
    if T::DATA_TYPE.is_integer() && array.data_type().is_floating() {
        let wide = arrow_cast::cast(&array, &DataType::Float64);
        let wide = wide.map_err(|e| refused(e.to_string()))?;
        let wide = wide.as_primitive::<Float64Type>().values();
        // What is no number or too large is refused by the cast.
        if let Some(value) = wide.iter().find(|value| value.is_finite() && value.fract() != 0.0) {
            return Err(refused(format!("{value:?} has a fraction")));
        }
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(&array, &T::DATA_TYPE, &options);
    let cast = cast.map_err(|e| refused(e.to_string()))?;
    let numbers = cast.as_any().downcast_ref::<PrimitiveArray<T>>();
    let numbers = numbers.ok_or_else(|| refused("it does not hold such numbers".to_owned()))?;
    Ok(numbers.values().clone())
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Int8Type, Int64Type};

    use super::*;
    use crate::schema::RowSchema;

    #[test]
    fn numbers_that_a_type_cannot_hold_are_refused() {
        let schema = arrow_schema::Schema::new(vec![arrow_schema::Field::new(
            "x",
            DataType::Float32,
            false,
        )]);
        let schema = RowSchema::infer(&schema, &std::collections::BTreeMap::new(), None).unwrap();
        let field = schema.field("x").unwrap();
        let bytes = |x: f32| [1.0, x].iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
        assert_eq!(cast::<Int64Type>(field, bytes(-3.0)).unwrap().as_ref(), [1, -3]);
        assert_eq!(cast::<Float64Type>(field, bytes(0.5)).unwrap().as_ref(), [1.0, 0.5]);
        for (x, want) in [(1.5, "1.5 has a fraction"), (f32::NAN, "NaN"), (300.0, "300")] {
            let error = cast::<Int8Type>(field, bytes(x)).unwrap_err().to_string();
            assert!(error.starts_with("field `x` cannot be read as Int8: "), "{error}");
            assert!(error.contains(want), "{error}");
        }
    }
}
