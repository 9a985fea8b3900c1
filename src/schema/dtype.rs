//! Number types as they lie on disk, and what their numbers mean.
//!
//! Leaves out: converting values from one type to another (`cast`).

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};
use serde::{Deserialize, Serialize};

/// A number type as it lies on disk, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is named as its dtype")]
pub enum Dtype {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Float32,
    Float64,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Dtype; 12] = [
        Dtype::Bool,
        Dtype::Int8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Uint8,
        Dtype::Uint16,
        Dtype::Uint32,
        Dtype::Uint64,
        Dtype::Float16,
        Dtype::Float32,
        Dtype::Float64,
    ];

    /// Its name, its NumPy type string, its bytes and its Arrow type.
    const fn traits(self) -> (&'static str, &'static str, usize, DataType) {
        match self {
            Dtype::Bool => ("bool", "|b1", 1, DataType::Boolean),
            Dtype::Int8 => ("int8", "|i1", 1, DataType::Int8),
            Dtype::Int16 => ("int16", "<i2", 2, DataType::Int16),
            Dtype::Int32 => ("int32", "<i4", 4, DataType::Int32),
            Dtype::Int64 => ("int64", "<i8", 8, DataType::Int64),
            Dtype::Uint8 => ("uint8", "|u1", 1, DataType::UInt8),
            Dtype::Uint16 => ("uint16", "<u2", 2, DataType::UInt16),
            Dtype::Uint32 => ("uint32", "<u4", 4, DataType::UInt32),
            Dtype::Uint64 => ("uint64", "<u8", 8, DataType::UInt64),
            Dtype::Float16 => ("float16", "<f2", 2, DataType::Float16),
            Dtype::Float32 => ("float32", "<f4", 4, DataType::Float32),
            Dtype::Float64 => ("float64", "<f8", 8, DataType::Float64),
        }
    }

    /// Bytes of one scalar; a bool is one byte, 0 or 1.
    #[must_use]
    pub fn size(self) -> usize {
        self.traits().2
    }

    /// Its name in definitions and in `schema.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.traits().0
    }

    /// The dtype of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The NumPy type string: `<i2`, `|u1`.
    #[must_use]
    pub fn numpy(self) -> &'static str {
        self.traits().1
    }

    /// Whether it is a signed or unsigned integer (a bool is not).
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Dtype::Bool | Dtype::Float16 | Dtype::Float32 | Dtype::Float64)
    }

    /// The Arrow type of the same numbers.
    #[must_use]
    pub fn arrow(self) -> DataType {
        self.traits().3
    }

    /// The dtype of an Arrow type of plain numbers.
    #[must_use]
    pub fn of_arrow(data_type: &DataType) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| &dtype.arrow() == data_type)
    }
}

/// What the scalars of a field mean, where the dtype does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Logical {
    /// Over `uint8`, ragged or interned.
    Utf8,
    /// Over `uint8`, ragged or interned.
    Binary,
    /// One JSON document per row, over `uint8`, ragged or interned.
    Json,
    /// Days since 1970-01-01, over `int32`.
    Date32,
    /// Time of day, over `int64` whatever the unit.
    Time64(TimeUnit),
    /// Since 1970-01-01 00:00, in UTC where there is a time zone; over `int64`.
    Timestamp(TimeUnit, Option<Arc<str>>),
    /// Over `int64`.
    Duration(TimeUnit),
    /// Precision and scale, over `uint8` with 16 as the last number of the shape.
    Decimal128(u8, i8),
    /// The upper half of a `float32`, over `uint16`.
    Bfloat16,
}

impl Logical {
    /// Its `type` in `schema.json`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Logical::Utf8 => "utf8",
            Logical::Binary => "binary",
            Logical::Json => "json",
            Logical::Date32 => "date32",
            Logical::Time64(_) => "time64",
            Logical::Timestamp(..) => "timestamp",
            Logical::Duration(_) => "duration",
            Logical::Decimal128(..) => "decimal128",
            Logical::Bfloat16 => "bfloat16",
        }
    }

    /// The dtype it lies over.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        match self {
            Logical::Utf8 | Logical::Binary | Logical::Json | Logical::Decimal128(..) => {
                Dtype::Uint8
            }
            Logical::Date32 => Dtype::Int32,
            Logical::Time64(_) | Logical::Timestamp(..) | Logical::Duration(_) => Dtype::Int64,
            Logical::Bfloat16 => Dtype::Uint16,
        }
    }

    /// Whether a value is a string of bytes: text, binary or JSON.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        matches!(self, Logical::Utf8 | Logical::Binary | Logical::Json)
    }
}

/// The short name of a unit, as `schema.json` has it.
pub(super) fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// The unit of that short name.
pub(super) fn unit_from_name(name: &str) -> Option<TimeUnit> {
    [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
        .into_iter()
        .find(|unit| unit_name(*unit) == name)
}
