//! Rows of a dataset that were chosen together: a batch of a training loop.
//!
//! Leaves out: what a row of one shard is (`shard::field_reader`).
//!
//! Invariants:
//! 1. Rows stand in the order in which they were chosen, as often as they were.
//! 2. Where a row lies is found once, however many fields are then gathered.
//! 3. Only gathering copies, into memory that the caller owns and uses again.

use arrow_array::{ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_cast::{CastOptions, cast_with_options};

use super::error::{DatasetError, Result};
use super::reader::Dataset;
use crate::schema::{Dtype, Field, Kind, Logical};
use crate::shard::FieldReader;

/// Rows of a dataset, found. Made by [`Dataset::select`].
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    dataset: &'a Dataset,
    places: Vec<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    shard: usize,
    row: u64,
}

impl<'a> Selection<'a> {
    pub(super) fn new(dataset: &'a Dataset, rows: &[u64]) -> Result<Self> {
        let place = |row: &u64| dataset.locate(*row).map(|(shard, row)| Place { shard, row });
        Ok(Self { dataset, places: rows.iter().map(place).collect::<Result<_>>()? })
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
        if row_bytes == 0 {
            return Ok(());
        }
        let mut rest = out;
        for place in &self.places {
            let Some((out, after)) = std::mem::take(&mut rest).split_at_mut_checked(row_bytes)
            else {
                break;
            };
            self.reader(index, place.shard)?.copy_row(place.row, out)?;
            rest = after;
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
        for place in &self.places {
            bytes.extend_from_slice(self.reader(index, place.shard)?.row(place.row)?);
            offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
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
        for place in &self.places {
            valid.push(self.reader(index, place.shard)?.is_valid(place.row)?.into());
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

    /// The reader of field `index` in that shard.
    #[inline]
    fn reader(&self, index: usize, shard: usize) -> Result<&'a FieldReader> {
        Ok(self.dataset.shard(shard)?.field_at(index)?)
    }
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
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(&array, &T::DATA_TYPE, &options);
    let cast = cast.map_err(|e| refused(e.to_string()))?;
    let numbers = cast.as_any().downcast_ref::<PrimitiveArray<T>>();
    let numbers = numbers.ok_or_else(|| refused("it does not hold such numbers".to_owned()))?;
    Ok(numbers.values().clone())
}
