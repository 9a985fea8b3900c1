//! What a row is: its fields, how each is laid out on disk, and how Arrow columns map to that.
//!
//! Leaves out: files and I/O (`shard`).
//!
//! Invariants:
//! 1. A schema decides file names, dtypes and shapes alone; two schemas that are equal write equal
//!    bytes for equal rows.
//! 2. File names come from stems and axis names only, which match `[a-z][a-z0-9_]{0,63}`.

use serde::{Deserialize, Serialize};

/// A number type as it lies on disk, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each variant is named as its dtype")]
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

/// How a field lies in a shard's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Every row has the same number of bytes.
    Fixed,
    /// A list per row: offsets on an axis, values one after another.
    Ragged,
    /// An array per row whose shape varies: dims, offsets counted in scalars, values.
    Free,
    /// A code per row into a dictionary of byte strings.
    Interned,
}

/// What the numbers of a field mean, where a dtype does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is named as its logical type")]
pub enum Logical {
    Utf8,
    Binary,
    Json,
    Date32,
    /// Unit "s", "ms", "us" or "ns".
    Time64(String),
    /// Unit and time zone.
    Timestamp(String, Option<String>),
    /// Unit.
    Duration(String),
    /// Precision and scale.
    Decimal128(u8, i8),
    Bfloat16,
}

/// One field of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name: any UTF-8.
    pub name: String,
    /// What its files are named after.
    pub stem: String,
    /// How it is laid out.
    pub kind: Kind,
    /// Type of the scalars. Of an interned field: `uint8`, the bytes of its values.
    pub dtype: Dtype,
    /// Fixed: shape of a row. Ragged: trailing shape of an entry. Free: as many zeros as the rank.
    pub shape: Vec<usize>,
    /// Ragged and free fields: name of the axis; the field's own is named by its stem.
    pub axis: Option<String>,
    /// Whether a row may have no value.
    pub nullable: bool,
    /// What the scalars mean.
    pub logical: Option<Logical>,
    /// A categorical field's values, in the order of their codes.
    pub categories: Option<Vec<String>>,
    /// An interned field's dictionary is also written as JSON under this file name.
    pub sidecar: Option<String>,
    /// Whether the field is a column of `index.parquet`.
    pub index: bool,
}

/// The fields of a row in order, and which of them is the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSchema {
    fields: Vec<Field>,
    key: Option<usize>,
}
