//! The bytes of a batch, field by field.

use arrow_buffer::{Buffer, ScalarBuffer};

/// One field of a batch, as it goes to the field's files.
#[derive(Debug, Clone)]
pub struct Column {
    /// One byte per row, 1 where it has a value; there for every nullable field, also where no file
    /// holds it (interned and categorical fields).
    pub valid: Option<Buffer>,
    /// The values.
    pub data: ColumnData,
    /// Bytes of a row (fixed), of an entry (ragged), of a scalar (free); 1 of an interned field.
    pub unit_bytes: usize,
}

/// The values of one field of a batch of `n` rows.
#[derive(Debug, Clone)]
pub enum ColumnData {
    /// `n` rows of [`Column::unit_bytes`] each; zeros (categorical: -1) where the value is absent.
    Fixed {
        /// The rows.
        bytes: Buffer,
    },
    /// A list per row.
    Ragged {
        /// `n + 1` numbers from 0, counted in entries. Fields on one axis have equal ones.
        offsets: ScalarBuffer<i64>,
        /// The entries of all rows, [`Column::unit_bytes`] each.
        bytes: Buffer,
    },
    /// An array per row.
    Free {
        /// `n` rows of one number per dimension, -1 behind the last one; zeros where absent.
        dims: ScalarBuffer<i32>,
        /// `n + 1` numbers from 0, counted in scalars.
        offsets: ScalarBuffer<i64>,
        /// The scalars of all rows.
        bytes: Buffer,
    },
    /// A string of bytes per row, to be replaced by its code.
    Interned {
        /// `n + 1` numbers from 0, counted in bytes.
        offsets: ScalarBuffer<i64>,
        /// The values of all rows; empty where absent.
        bytes: Buffer,
    },
}

impl Column {
    /// Whether `row` has a value.
    #[must_use]
    pub fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid.as_slice().get(row) == Some(&1))
    }

    /// The offsets, of a column that has any.
    #[must_use]
    pub fn offsets(&self) -> Option<&[i64]> {
        match &self.data {
            ColumnData::Fixed { .. } => None,
            ColumnData::Ragged { offsets, .. }
            | ColumnData::Free { offsets, .. }
            | ColumnData::Interned { offsets, .. } => Some(offsets),
        }
    }

    /// All bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> &Buffer {
        match &self.data {
            ColumnData::Fixed { bytes }
            | ColumnData::Ragged { bytes, .. }
            | ColumnData::Free { bytes, .. }
            | ColumnData::Interned { bytes, .. } => bytes,
        }
    }

    /// The bytes of one row, empty past the end.
    #[must_use]
    pub fn value(&self, row: usize) -> &[u8] {
        let ends = match self.offsets() {
            None => Some((row as u64, row as u64 + 1)),
            Some(offsets) => match (offsets.get(row), offsets.get(row + 1)) {
                (Some(&from), Some(&to)) => Some((from.cast_unsigned(), to.cast_unsigned())),
                _ => None,
            },
        };
        let at = |n: u64| usize::try_from(n).ok()?.checked_mul(self.unit_bytes);
        ends.and_then(|(from, to)| self.bytes().as_slice().get(at(from)?..at(to)?))
            .unwrap_or_default()
    }
}
