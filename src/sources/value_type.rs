//! The types that a definition can ask of a column, and texts and numbers turned into them.
//!
//! Invariants:
//! 1. A value either fits its type or is refused; nothing wraps, is cut off or becomes null.
//! 2. What is rounded is rounded once, to nearest: an integer or a text to a float, a float64 to a
//!    shorter float. A finite value never becomes infinite.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Float16Builder, Float32Builder, Float64Builder, Int8Builder,
    Int16Builder, Int32Builder, Int64Builder, LargeStringBuilder, UInt8Builder, UInt16Builder,
    UInt32Builder, UInt64Builder,
};
use arrow_schema::DataType;
use half::f16;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::schema::Dtype;

/// A type of column, as a definition names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is named as its type")]
pub enum ValueType {
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
    Utf8,
}

/// Each type, with that of its numbers.
const TYPES: [(ValueType, Option<Dtype>); 13] = [
    (ValueType::Bool, Some(Dtype::Bool)),
    (ValueType::Int8, Some(Dtype::Int8)),
    (ValueType::Int16, Some(Dtype::Int16)),
    (ValueType::Int32, Some(Dtype::Int32)),
    (ValueType::Int64, Some(Dtype::Int64)),
    (ValueType::Uint8, Some(Dtype::Uint8)),
    (ValueType::Uint16, Some(Dtype::Uint16)),
    (ValueType::Uint32, Some(Dtype::Uint32)),
    (ValueType::Uint64, Some(Dtype::Uint64)),
    (ValueType::Float16, Some(Dtype::Float16)),
    (ValueType::Float32, Some(Dtype::Float32)),
    (ValueType::Float64, Some(Dtype::Float64)),
    (ValueType::Utf8, None),
];

impl ValueType {
    fn dtype(self) -> Option<Dtype> {
        TYPES.iter().find(|t| t.0 == self).and_then(|t| t.1)
    }

    /// The Arrow type of such a column. Texts have 64-bit offsets: a batch may hold any row.
    #[must_use]
    pub fn arrow(self) -> DataType {
        self.dtype().map_or(DataType::LargeUtf8, Dtype::arrow)
    }

    /// The type whose columns have this Arrow type.
    #[must_use]
    pub fn of_arrow(arrow: &DataType) -> Option<Self> {
        TYPES.iter().map(|t| t.0).find(|kind| kind.arrow() == *arrow)
    }

    /// Its name in a definition.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.dtype().map_or("utf8", Dtype::name)
    }
}

/// Why a value cannot become a column's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It is not written as one.
    NotOne,
    /// It is one, but too large or too small.
    OutOfRange,
    /// It has a fraction, and the type has none.
    Fraction,
    /// Not UTF-8.
    NotText,
}

impl Misfit {
    /// "`abc` is not an int64", for a value that is shown as `shown`.
    pub(crate) fn message(self, shown: &str, kind: ValueType) -> String {
        let kind = kind.name();
        match self {
            Self::NotOne => format!("`{shown}` is no {kind}"),
            Self::OutOfRange => format!("{shown} does not fit into {kind}"),
            Self::Fraction => format!("{shown} has a fraction, which {kind} cannot hold"),
            Self::NotText => format!("`{shown}` is not UTF-8"),
        }
    }
}

/// Builds a column of one type.
#[derive(Debug)]
pub(crate) enum ColumnBuilder {
    Bool(BooleanBuilder),
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Uint8(UInt8Builder),
    Uint16(UInt16Builder),
    Uint32(UInt32Builder),
    Uint64(UInt64Builder),
    Float16(Float16Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Utf8(LargeStringBuilder),
}

/// The same for every variant.
macro_rules! every {
    ($builder:expr, $b:ident => $do:expr) => {
        match $builder {
            ColumnBuilder::Bool($b) => $do,
            ColumnBuilder::Int8($b) => $do,
            ColumnBuilder::Int16($b) => $do,
            ColumnBuilder::Int32($b) => $do,
            ColumnBuilder::Int64($b) => $do,
            ColumnBuilder::Uint8($b) => $do,
            ColumnBuilder::Uint16($b) => $do,
            ColumnBuilder::Uint32($b) => $do,
            ColumnBuilder::Uint64($b) => $do,
            ColumnBuilder::Float16($b) => $do,
            ColumnBuilder::Float32($b) => $do,
            ColumnBuilder::Float64($b) => $do,
            ColumnBuilder::Utf8($b) => $do,
        }
    };
}

/// One expression for the integers, and arms of their own for the rest.
macro_rules! by_kind {
    ($builder:expr, integer $b:ident => $integer:expr, $($rest:tt)*) => {
        match $builder {
            ColumnBuilder::Int8($b) => $integer,
            ColumnBuilder::Int16($b) => $integer,
            ColumnBuilder::Int32($b) => $integer,
            ColumnBuilder::Int64($b) => $integer,
            ColumnBuilder::Uint8($b) => $integer,
            ColumnBuilder::Uint16($b) => $integer,
            ColumnBuilder::Uint32($b) => $integer,
            ColumnBuilder::Uint64($b) => $integer,
            $($rest)*
        }
    };
}

impl ColumnBuilder {
    pub(crate) fn new(kind: ValueType, n_rows: usize) -> Self {
        match kind {
            ValueType::Bool => Self::Bool(BooleanBuilder::with_capacity(n_rows)),
            ValueType::Int8 => Self::Int8(Int8Builder::with_capacity(n_rows)),
            ValueType::Int16 => Self::Int16(Int16Builder::with_capacity(n_rows)),
            ValueType::Int32 => Self::Int32(Int32Builder::with_capacity(n_rows)),
            ValueType::Int64 => Self::Int64(Int64Builder::with_capacity(n_rows)),
            ValueType::Uint8 => Self::Uint8(UInt8Builder::with_capacity(n_rows)),
            ValueType::Uint16 => Self::Uint16(UInt16Builder::with_capacity(n_rows)),
            ValueType::Uint32 => Self::Uint32(UInt32Builder::with_capacity(n_rows)),
            ValueType::Uint64 => Self::Uint64(UInt64Builder::with_capacity(n_rows)),
            ValueType::Float16 => Self::Float16(Float16Builder::with_capacity(n_rows)),
            ValueType::Float32 => Self::Float32(Float32Builder::with_capacity(n_rows)),
            ValueType::Float64 => Self::Float64(Float64Builder::with_capacity(n_rows)),
            ValueType::Utf8 => Self::Utf8(LargeStringBuilder::with_capacity(n_rows, 0)),
        }
    }

    pub(crate) fn append_null(&mut self) {
        every!(self, b => b.append_null());
    }

    /// Appends what `text` says. Around numbers and truth values, spaces and tabs do not count.
    pub(crate) fn append_text(&mut self, text: &[u8]) -> Result<(), Misfit> {
        self.append_utf8(std::str::from_utf8(text).map_err(|_| Misfit::NotText)?)
    }

    /// The same of a text that is known to be UTF-8.
    pub(crate) fn append_utf8(&mut self, text: &str) -> Result<(), Misfit> {
        if let Self::Utf8(b) = self {
            b.append_value(text);
            return Ok(());
        }
        let text = match text.as_bytes() {
            [b' ' | b'\t', ..] | [.., b' ' | b'\t'] => text.trim_matches([' ', '\t']),
            _ => text,
        };
        by_kind!(self,
            integer b => b.append_value(text.parse().map_err(|e| integer_misfit(&e))?),
            Self::Float16(b) => {
                let value = read_float(text)?;
                b.append_value(finite_still(value, f16::from_f64(value), f16::is_infinite)?);
            }
            Self::Float32(b) => {
                let value: f32 = text.parse().map_err(|_| Misfit::NotOne)?;
                // Only what may have become infinite is read again.
                if value.is_infinite() {
                    finite_still(read_float(text)?, value, f32::is_infinite)?;
                }
                b.append_value(value);
            }
            Self::Float64(b) => b.append_value(read_float(text)?),
            Self::Bool(b) => b.append_value(read_bool(text).ok_or(Misfit::NotOne)?),
            Self::Utf8(_) => {}
        );
        Ok(())
    }

    /// Appends a text that is known to be UTF-8, to texts only.
    pub(crate) fn append_str(&mut self, text: &str) -> Result<(), Misfit> {
        let Self::Utf8(b) = self else { return Err(Misfit::NotOne) };
        b.append_value(text);
        Ok(())
    }

    /// Appends a truth value, to truth values only.
    pub(crate) fn append_bool(&mut self, value: bool) -> Result<(), Misfit> {
        let Self::Bool(b) = self else { return Err(Misfit::NotOne) };
        b.append_value(value);
        Ok(())
    }

    /// How many values there are, nulls included.
    pub(crate) fn len(&self) -> usize {
        every!(self, b => b.len())
    }

    /// Appends an integer; of truth values 0 and 1 only.
    #[expect(clippy::cast_precision_loss, reason = "to the nearest float: invariant 2")]
    pub(crate) fn append_integer(&mut self, value: i128) -> Result<(), Misfit> {
        by_kind!(self,
            integer b => b.append_value(value.try_into().map_err(|_| Misfit::OutOfRange)?),
            Self::Float16(b) => {
                let short = f16::from_f64(value as f64);
                b.append_value(finite_still(value as f64, short, f16::is_infinite)?);
            }
            Self::Float32(b) => b.append_value(value as f32),
            Self::Float64(b) => b.append_value(value as f64),
            Self::Bool(b) => match value {
                0 | 1 => b.append_value(value == 1),
                _ => return Err(Misfit::OutOfRange),
            },
            Self::Utf8(b) => b.append_value(value.to_string()),
        );
        Ok(())
    }

    /// Appends a float; to integers only a whole number in their range.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole numbers below 2^127 are exact, and float32 is rounded by invariant 2"
    )]
    pub(crate) fn append_float(&mut self, value: f64) -> Result<(), Misfit> {
        match self {
            Self::Float16(b) => {
                b.append_value(finite_still(value, f16::from_f64(value), f16::is_infinite)?);
            }
            Self::Float32(b) => {
                b.append_value(finite_still(value, value as f32, f32::is_infinite)?);
            }
            Self::Float64(b) => b.append_value(value),
            Self::Utf8(b) => b.append_value(format!("{value:?}")),
            _ if value.is_nan() || value.abs() >= 1e38 => return Err(Misfit::OutOfRange),
            _ if value.fract() != 0.0 => return Err(Misfit::Fraction),
            _ => return self.append_integer(value as i128),
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> ArrayRef {
        every!(self, b => Arc::new(b.finish()) as ArrayRef)
    }
}

fn integer_misfit(e: &std::num::ParseIntError) -> Misfit {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    match e.kind() {
        PosOverflow | NegOverflow => Misfit::OutOfRange,
        _ => Misfit::NotOne,
    }
}

/// Reads a float64: nearest, `inf` and `nan` in any case included.
fn read_float(text: &str) -> Result<f64, Misfit> {
    let value: f64 = text.parse().map_err(|_| Misfit::NotOne)?;
    if value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit()) {
        return Err(Misfit::OutOfRange);
    }
    Ok(value)
}

fn finite_still<T: Copy>(
    value: f64,
    short: T,
    is_infinite: impl Fn(T) -> bool,
) -> Result<T, Misfit> {
    if value.is_finite() && is_infinite(short) { Err(Misfit::OutOfRange) } else { Ok(short) }
}

fn read_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "1" => Some(true),
        "false" | "False" | "FALSE" | "0" => Some(false),
        _ => None,
    }
}

/// Finds the type that all texts of a column have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inference {
    n_values: u64,
    may_be: [bool; 3],
}

impl Inference {
    pub(crate) const NOTHING: Self = Self { n_values: 0, may_be: [true; 3] };

    /// Takes a value, one that is not null.
    pub(crate) fn take(&mut self, text: &[u8]) {
        self.n_values += 1;
        let Ok(text) = std::str::from_utf8(text) else {
            self.may_be = [false; 3];
            return;
        };
        let text = text.trim_matches([' ', '\t']);
        let integer = text.parse::<i64>();
        // As a float, an integer that int64 cannot hold would silently lose digits: an id, say.
        let is_long = integer.as_ref().is_err_and(|e| integer_misfit(e) == Misfit::OutOfRange);
        let [may_be_integer, may_be_float, may_be_bool] = &mut self.may_be;
        *may_be_integer &= integer.is_ok();
        *may_be_float &= !is_long && read_float(text).is_ok();
        *may_be_bool &= read_bool(text).is_some();
    }

    /// The first of int64, float64 and bool that every value is; utf8 if none, or without values.
    pub(crate) fn answer(&self) -> ValueType {
        match self.may_be {
            _ if self.n_values == 0 => ValueType::Utf8,
            [true, ..] => ValueType::Int64,
            [_, true, _] => ValueType::Float64,
            [.., true] => ValueType::Bool,
            _ => ValueType::Utf8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_definition() {
        for (kind, _) in TYPES {
            let read: ValueType = serde_json::from_value(kind.name().into()).unwrap();
            assert_eq!(read, kind);
            assert_eq!(ValueType::of_arrow(&kind.arrow()), Some(kind));
            assert_eq!(ColumnBuilder::new(kind, 0).finish().data_type(), &kind.arrow());
        }
    }

    #[test]
    fn types_are_inferred_by_the_rule() {
        for (values, want) in [
            (&["1", "-2", "+3", " 4 ", "007"][..], ValueType::Int64),
            (&["1", "2.5"], ValueType::Float64),
            (&["1e5", ".5", "5.", "nan", "-inf"], ValueType::Float64),
            (&["true", "False", "TRUE"], ValueType::Bool),
            (&["true", "1"], ValueType::Bool),
            (&["0", "1"], ValueType::Int64),
            (&["1", "x"], ValueType::Utf8),
            (&[""], ValueType::Utf8),
            (&[], ValueType::Utf8),
            (&["9223372036854775808"], ValueType::Utf8),
            (&["1.5", "123456789012345678901234567890"], ValueType::Utf8),
            (&["1e999"], ValueType::Utf8),
            (&["1_000"], ValueType::Utf8),
            (&["0x10"], ValueType::Utf8),
        ] {
            let mut inference = Inference::NOTHING;
            for value in values {
                inference.take(value.as_bytes());
            }
            assert_eq!(inference.answer(), want, "{values:?}");
        }
    }

    #[test]
    fn texts_that_do_not_fit_are_refused() {
        for (kind, text, want) in [
            (ValueType::Int8, "-128", Ok(())),
            (ValueType::Int8, "128", Err(Misfit::OutOfRange)),
            (ValueType::Uint8, "-1", Err(Misfit::NotOne)),
            (ValueType::Int64, "1.0", Err(Misfit::NotOne)),
            (ValueType::Int64, "", Err(Misfit::NotOne)),
            (ValueType::Float16, "65504", Ok(())),
            (ValueType::Float16, "65520", Err(Misfit::OutOfRange)),
            (ValueType::Float32, "1e39", Err(Misfit::OutOfRange)),
            (ValueType::Float32, "-Infinity", Ok(())),
            (ValueType::Float64, "1e309", Err(Misfit::OutOfRange)),
            (ValueType::Float64, "1,5", Err(Misfit::NotOne)),
            (ValueType::Bool, "yes", Err(Misfit::NotOne)),
            (ValueType::Bool, " 1", Ok(())),
        ] {
            let mut builder = ColumnBuilder::new(kind, 1);
            assert_eq!(builder.append_text(text.as_bytes()), want, "{kind:?} {text}");
        }
        let mut texts = ColumnBuilder::new(ValueType::Utf8, 1);
        assert_eq!(texts.append_text(b"\xff"), Err(Misfit::NotText));
        assert_eq!(texts.append_text(b" kept "), Ok(()));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for (kind, value, want) in [
            (ValueType::Uint8, 255.0, Ok(())),
            (ValueType::Uint8, 256.0, Err(Misfit::OutOfRange)),
            (ValueType::Uint8, 0.5, Err(Misfit::Fraction)),
            (ValueType::Int64, f64::NAN, Err(Misfit::OutOfRange)),
            (ValueType::Int64, f64::INFINITY, Err(Misfit::OutOfRange)),
            (ValueType::Int64, 9_223_372_036_854_775_808.0, Err(Misfit::OutOfRange)),
            (ValueType::Bool, 1.0, Ok(())),
            (ValueType::Bool, 2.0, Err(Misfit::OutOfRange)),
            (ValueType::Float32, 1e300, Err(Misfit::OutOfRange)),
            (ValueType::Float32, f64::NAN, Ok(())),
            (ValueType::Float16, f64::INFINITY, Ok(())),
            (ValueType::Float16, 1e5, Err(Misfit::OutOfRange)),
        ] {
            assert_eq!(ColumnBuilder::new(kind, 1).append_float(value), want, "{kind:?} {value}");
        }
        let mut short = ColumnBuilder::new(ValueType::Float16, 1);
        assert_eq!(short.append_integer(70_000), Err(Misfit::OutOfRange));
    }
}
