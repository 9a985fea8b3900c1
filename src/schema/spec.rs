//! What a definition may say of a field.

use serde::{Deserialize, Serialize};

use super::{Dtype, Kind};

/// How values are to be stored, in a definition: a dtype, or what stands for dtype and logical type
/// together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "run", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is named as its dtype")]
pub enum Stored {
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
    /// Floats rounded to 16 bits (to nearest, ties to even); `uint16` columns are taken as the bits.
    Bfloat16,
    /// Text.
    Utf8,
    /// Bytes.
    Binary,
    /// JSON: text is checked and kept as it is, any other value is written compactly.
    Json,
}

impl Stored {
    /// The dtype it names, where it is one.
    #[must_use]
    pub fn dtype(self) -> Option<Dtype> {
        Some(match self {
            Stored::Bool => Dtype::Bool,
            Stored::Int8 => Dtype::Int8,
            Stored::Int16 => Dtype::Int16,
            Stored::Int32 => Dtype::Int32,
            Stored::Int64 => Dtype::Int64,
            Stored::Uint8 => Dtype::Uint8,
            Stored::Uint16 => Dtype::Uint16,
            Stored::Uint32 => Dtype::Uint32,
            Stored::Uint64 => Dtype::Uint64,
            Stored::Float16 => Dtype::Float16,
            Stored::Float32 => Dtype::Float32,
            Stored::Float64 => Dtype::Float64,
            Stored::Bfloat16 | Stored::Utf8 | Stored::Binary | Stored::Json => return None,
        })
    }
}

/// One line of `[dataset.fields]`. What is left out is inferred from the Arrow type of the column.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "run", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FieldSpec {
    /// How values are stored. Numbers are converted where no value changes; floats are rounded to
    /// narrower floats. A value that does not fit is an error.
    pub dtype: Option<Stored>,
    /// Shape of a row; with `axis` or `kind = "ragged"`, of an entry of the list.
    pub shape: Option<Vec<usize>>,
    /// `fixed`, `ragged`, `free` or `interned`.
    pub kind: Option<Kind>,
    /// Name of an axis that several ragged fields share: their rows have equally many entries.
    pub axis: Option<String>,
    /// Largest rank of a field of free shape, where the column does not tell it.
    pub rank: Option<usize>,
    /// Distinct values are kept once per shard, rows hold a code. The same as `kind = "interned"`.
    pub intern: bool,
    /// The dictionary of an interned field of text is also written as JSON under this file name.
    pub sidecar: Option<String>,
    /// Whether rows may lack a value.
    pub nullable: Option<bool>,
    /// Whether the field is a column of `index.parquet`.
    pub index: bool,
    /// The values that a text column may have; stored is the position in this list.
    pub categorical: Option<Vec<String>>,
}
