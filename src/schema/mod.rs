//! What a row is: its fields, how each is laid out on disk, and how Arrow columns map to that.
//!
//! [`RowSchema::infer`] makes a schema of Arrow types and what a definition says of them,
//! [`RowSchema::columns`] turns a record batch into the bytes of its fields' files,
//! [`RowSchema::batch`] is the way back, and [`RowSchema::to_json`] is `schema.json`.
//!
//! Leaves out: files and I/O (`shard`).
//!
//! Invariants:
//! 1. A schema decides file names, dtypes and shapes alone; two schemas that are equal write equal
//!    bytes for equal rows, however the rows are cut into batches and whatever lies in Arrow's
//!    buffers beneath nulls and outside slices.
//! 2. File names come from stems and axis names only, which match `[a-z][a-z0-9_]{0,63}`, and from
//!    sidecar names. No two fields share one, but for the offsets of a shared axis.
//! 3. A [`RowSchema`] is valid: it is made by [`RowSchema::new`] alone, which checks all of it.

mod arrow;
mod axis;
mod cast;
mod check;
mod columns;
mod dtype;
mod encode;
mod error;
mod extract;
mod infer;
mod json;
mod key;
mod lists;
mod offer;
mod recipe;
mod spec;
mod stem;
mod tensor;

pub use columns::{Column, ColumnData};
pub use dtype::{Dtype, Logical};
pub use error::SchemaError;
pub(crate) use key::KeyHash;
pub use key::{integer, key_hash_bytes, key_hash_int};
pub use spec::{FieldSpec, Stored};
pub use stem::{is_sidecar, is_stem};

use serde::{Deserialize, Serialize};

#[cfg(target_endian = "big")]
compile_error!(
    "shards are little-endian and mapped as they are: this needs a little-endian machine"
);

/// Version of the layout on disk that this crate writes.
pub const LAYOUT: u32 = 1;

/// How a field lies in a shard's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "run", derive(schemars::JsonSchema))]
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

impl Kind {
    /// Its name in definitions and in `schema.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fixed => "fixed",
            Kind::Ragged => "ragged",
            Kind::Free => "free",
            Kind::Interned => "interned",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Kind::Fixed, Kind::Ragged, Kind::Free, Kind::Interned]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
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

/// What a file of a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileRole {
    /// `<stem>.bin`: scalars.
    Values,
    /// `<axis>.offsets.bin`: `i64[rows + 1]`, from 0.
    Offsets,
    /// `<stem>.dims.bin`: `i32[rows, rank]`.
    Dims,
    /// `<stem>.valid.bin`: `u8[rows]`.
    Valid,
    /// `<stem>.codes.bin`: `i32[rows]`.
    Codes,
    /// `<stem>.dict.bin`: the bytes of the distinct values.
    Dict,
    /// `<stem>.dict.offsets.bin`: `i64[values + 1]`, from 0.
    DictOffsets,
    /// The dictionary as JSON, made when the shard is sealed.
    Sidecar,
}

/// A file that a field has in every shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldFile {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub role: FileRole,
}

impl Field {
    /// Scalars of a row (fixed) or of an entry (ragged); 1 of the other kinds.
    #[must_use]
    pub fn n_scalars(&self) -> usize {
        match self.kind {
            Kind::Fixed | Kind::Ragged => self.shape.iter().product(),
            Kind::Free | Kind::Interned => 1,
        }
    }

    /// Bytes of a row (fixed), of an entry (ragged), of a scalar (free); 1 of an interned field.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        self.n_scalars() * self.dtype.size()
    }

    /// Whether a file tells which rows have a value: codes of interned and categorical fields tell
    /// it themselves.
    #[must_use]
    pub fn has_valid_file(&self) -> bool {
        self.nullable && self.kind != Kind::Interned && self.categories.is_none()
    }

    /// Whether a value is a string of bytes: text, binary or JSON.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        self.logical.as_ref().is_some_and(Logical::is_bytes)
    }

    /// The field's files in a shard, sorted by name. The offsets of a shared axis are listed with
    /// every field on it.
    #[must_use]
    pub fn files(&self) -> Vec<FieldFile> {
        let stem = &self.stem;
        let mut files = Vec::with_capacity(4);
        let mut add = |name: String, role| files.push(FieldFile { name, role });
        if self.kind == Kind::Interned {
            add(format!("{stem}.codes.bin"), FileRole::Codes);
            add(format!("{stem}.dict.bin"), FileRole::Dict);
            add(format!("{stem}.dict.offsets.bin"), FileRole::DictOffsets);
        } else {
            add(format!("{stem}.bin"), FileRole::Values);
        }
        if self.kind == Kind::Free {
            add(format!("{stem}.dims.bin"), FileRole::Dims);
        }
        if let Some(axis) = &self.axis {
            add(format!("{axis}.offsets.bin"), FileRole::Offsets);
        }
        if self.has_valid_file() {
            add(format!("{stem}.valid.bin"), FileRole::Valid);
        }
        if let Some(sidecar) = &self.sidecar {
            add(sidecar.clone(), FileRole::Sidecar);
        }
        files.sort();
        files
    }
}

/// An axis, and the fields that share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Indices of the fields on it, ascending.
    pub fields: Vec<usize>,
}

/// The fields of a row in order, and which of them is the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSchema {
    fields: Vec<Field>,
    key: Option<usize>,
}

/// Suggests the name most like `name`, where one is like it.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let like = names.map(|other| (strsim::damerau_levenshtein(name, other), other));
    let (distance, other) = like.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.chars().count() / 3).then(|| format!("did you mean `{other}`?"))
}
