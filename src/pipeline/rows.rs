//! Rows of a dataset or shard as JSON, one after another, for `cat`.
//!
//! Invariants:
//! 1. Numbers, decimals and JSON are written as they are stored, without loss.
//! 2. Memory holds one piece of rows, not the dataset.

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use serde::de::IgnoredAny;

use super::PipelineError;
use super::contents::{Opened, open};
use super::elsewhere::Elsewhere;
use crate::dataset::DatasetError;
use crate::remote::is_url;
use crate::schema::{Kind, Logical};
use crate::shard::ReadError;
use crate::storage::side_by_side;

/// Rows that are read at once.
const PIECE_ROWS: u64 = 1024;

/// Spans that are read at once from a store.
const TOGETHER: usize = 16;

/// The parts that the largest piece is thought of as having.
const WHOLE: u64 = 1000;

/// Fields of the rows of a dataset or shard.
pub struct Rows {
    opened: Opened,
    /// Whether all of it is in a store.
    is_distant: bool,
    elsewhere: Elsewhere,
    len: u64,
    columns: Vec<Column>,
}

/// One field that is shown.
struct Column {
    index: usize,
    /// Its name as JSON, and a colon.
    label: Vec<u8>,
    meaning: Meaning,
}

/// What its Arrow type does not tell of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Plain,
    /// Text that is JSON.
    Json,
    /// Bits of bfloat16 in unsigned integers.
    Bfloat16,
    /// Arrays whose shape stands beside them.
    Free,
    /// Of bfloat16.
    FreeBfloat16,
}

/// A column that was asked for text holds something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoText;

/// Some rows that stand together.
pub struct Piece {
    columns: Vec<ArrayRef>,
    /// Number of rows.
    pub n_rows: usize,
}

impl Rows {
    /// Opens `columns` (all of them, in the schema's order, where none are named) of the dataset or
    /// shard at `path`.
    ///
    /// # Errors
    /// It is neither, it is damaged, or there is no such field.
    pub fn open(path: &Path, columns: &[String]) -> Result<Self, PipelineError> {
        let opened = open(path)?;
        let (schema, n_rows) = match &opened {
            Opened::Dataset(dataset) => (dataset.schema(), dataset.n_rows()),
            Opened::Shard(shard) => (shard.schema(), shard.n_rows()),
        };
        let fields = schema.fields();
        let all = || fields.iter().map(|field| field.name.clone()).collect();
        let named: Vec<String> = if columns.is_empty() { all() } else { columns.to_vec() };
        let columns = named.into_iter().map(|name| {
            let found = schema.index_of(&name).and_then(|i| Some((i, fields.get(i)?)));
            let Some((index, field)) = found else {
                return Err(DatasetError::Read(ReadError::NoField { field: name, known: all() }));
            };
            let is_bfloat16 = field.logical == Some(Logical::Bfloat16);
            let meaning = match (field.kind, &field.logical) {
                (Kind::Free, _) if is_bfloat16 => Meaning::FreeBfloat16,
                (Kind::Free, _) => Meaning::Free,
                _ if is_bfloat16 => Meaning::Bfloat16,
                (_, Some(Logical::Json)) => Meaning::Json,
                _ => Meaning::Plain,
            };
            let mut label = serde_json::to_vec(&name).unwrap_or_default();
            label.push(b':');
            Ok(Column { index, label, meaning })
        });
        let columns = columns.collect::<Result<_, _>>()?;
        let is_distant = path.to_str().is_some_and(is_url);
        Ok(Self { opened, is_distant, elsewhere: Elsewhere::default(), len: n_rows, columns })
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.len
    }

    /// The first rows of `rows`, at least one of them and as many as are read at once.
    ///
    /// # Errors
    /// There are no such rows, or the files of a field are damaged.
    pub fn piece(&self, rows: &Range<u64>) -> Result<Piece, PipelineError> {
        let (shard, first, most) = match &self.opened {
            Opened::Dataset(dataset) => {
                let (number, first) = dataset.locate(rows.start)?;
                let shard = dataset.shard(number)?;
                let is_far = dataset.is_distant() || shard.remote_url().is_some();
                (shard, first, if is_far { dataset.piece_rows(number) } else { PIECE_ROWS })
            }
            Opened::Shard(shard) => (&**shard, rows.start, PIECE_ROWS),
        };
        let left = rows.end.saturating_sub(rows.start).min(most);
        let end = first.saturating_add(left).min(shard.n_rows());
        let indices: Vec<usize> = self.columns.iter().map(|column| column.index).collect();
        let columns = self.elsewhere.read(shard, |shard| shard.arrays(&indices, first..end))?;
        let n_rows = usize::try_from(end.saturating_sub(first)).unwrap_or_default();
        Ok(Piece { columns, n_rows })
    }

    /// The first rows of each of `spans`, in their order. From a store they come side by side.
    ///
    /// # Errors
    /// As [`Rows::piece`].
    pub fn pieces(&self, spans: &[Range<u64>]) -> Result<Vec<Piece>, PipelineError> {
        side_by_side(spans, |span| self.piece(span))
    }

    /// How many of `spans` are read together: the first, and those behind it while each is one piece, and
    /// all of them have no more rows than one piece may have. Where rows are mapped, one.
    #[must_use]
    pub fn together(&self, spans: &[Range<u64>]) -> usize {
        let mut left = WHOLE;
        for (n, span) in spans.iter().take(TOGETHER).enumerate() {
            match self.share(span) {
                Some(share) if share <= left => left -= share,
                _ => return n.max(1),
            }
        }
        spans.len().clamp(1, TOGETHER)
    }

    /// How many parts of [`WHOLE`] a span has of the largest piece, if it comes from a store as one.
    fn share(&self, span: &Range<u64>) -> Option<u64> {
        let most = match &self.opened {
            Opened::Dataset(dataset) => {
                let (number, _) = dataset.locate(span.start).ok()?;
                let is_far =
                    dataset.is_distant() || dataset.shard(number).ok()?.remote_url().is_some();
                let is_one = is_far && span.end <= dataset.rows_of(number).end;
                is_one.then(|| dataset.piece_rows(number))?
            }
            Opened::Shard(_) => self.is_distant.then_some(PIECE_ROWS)?,
        };
        let n_rows = span.end.saturating_sub(span.start);
        (n_rows <= most).then(|| n_rows.saturating_mul(WHOLE).div_ceil(most))
    }

    /// The text in the first column of row `row`, `None` where it is absent.
    ///
    /// # Errors
    /// The column holds no text.
    pub fn text<'a>(&self, piece: &'a Piece, row: usize) -> Result<Option<&'a str>, NoText> {
        let Some(column) = piece.columns.first() else { return Err(NoText) };
        if column.is_null(row) {
            return Ok(None);
        }
        let (values, at): (&dyn Array, usize) = match column.as_any_dictionary_opt() {
            Some(dictionary) => (&**dictionary.values(), code(dictionary.keys(), row)),
            None => (&**column, row),
        };
        match values.data_type() {
            DataType::Utf8 => Ok(Some(values.as_string::<i32>().value(at))),
            DataType::LargeUtf8 => Ok(Some(values.as_string::<i64>().value(at))),
            _ => Err(NoText),
        }
    }

    /// Writes row `row` of a piece as a JSON object on one line, without its end.
    ///
    /// # Errors
    /// A value cannot be shown.
    pub fn write(&self, piece: &Piece, row: usize, out: &mut Vec<u8>) -> Result<(), PipelineError> {
        out.push(b'{');
        for (n, (column, array)) in self.columns.iter().zip(&piece.columns).enumerate() {
            if n > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&column.label);
            value(out, array, row, column.meaning).map_err(PipelineError::Show)?;
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes one value.
fn value(
    out: &mut Vec<u8>,
    array: &dyn Array,
    i: usize,
    meaning: Meaning,
) -> Result<(), ArrowError> {
    if array.is_null(i) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    macro_rules! number {
        ($type:ty) => {
            write!(out, "{}", array.as_primitive::<$type>().value(i))
        };
    }
    let done: io::Result<()> = match array.data_type() {
        DataType::Boolean => write!(out, "{}", array.as_boolean().value(i)),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 if meaning == Meaning::Bfloat16 => {
            let bits = array.as_primitive::<UInt16Type>().value(i);
            float(out, half::bf16::from_bits(bits).to_f32())
        }
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => float(out, array.as_primitive::<Float16Type>().value(i).to_f32()),
        DataType::Float32 => float(out, array.as_primitive::<Float32Type>().value(i)),
        DataType::Float64 => float(out, array.as_primitive::<Float64Type>().value(i)),
        DataType::Utf8 => text(out, array.as_string::<i32>().value(i), meaning),
        DataType::LargeUtf8 => text(out, array.as_string::<i64>().value(i), meaning),
        DataType::LargeBinary => hex(out, array.as_binary::<i64>().value(i)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let code = code(dictionary.keys(), i);
            return value(out, dictionary.values(), code, meaning);
        }
        DataType::FixedSizeList(..) => {
            return list(out, &array.as_fixed_size_list().value(i), meaning);
        }
        DataType::LargeList(_) => return list(out, &array.as_list::<i64>().value(i), meaning),
        DataType::Struct(_) => return free(out, array, i, meaning),
        _ => return formatted(out, array, i),
    };
    done.map_err(ArrowError::from)
}

fn list(out: &mut Vec<u8>, values: &dyn Array, meaning: Meaning) -> Result<(), ArrowError> {
    out.push(b'[');
    for i in 0..values.len() {
        if i > 0 {
            out.push(b',');
        }
        value(out, values, i, meaning)?;
    }
    out.push(b']');
    Ok(())
}

/// An array of free shape as nested lists; one of rank 0 is a number.
fn free(
    out: &mut Vec<u8>,
    array: &dyn Array,
    i: usize,
    meaning: Meaning,
) -> Result<(), ArrowError> {
    let parts = array.as_struct();
    let (Some(data), Some(shape)) = (parts.column_by_name("data"), parts.column_by_name("shape"))
    else {
        return Err(ArrowError::SchemaError("an array without data or shape".to_owned()));
    };
    let scalars = data.as_list::<i64>().value(i);
    let shape = shape.as_fixed_size_list().value(i);
    let dims: Vec<usize> = shape
        .as_primitive::<Int32Type>()
        .values()
        .iter()
        .map_while(|&n| usize::try_from(n).ok())
        .collect();
    let of = if meaning == Meaning::FreeBfloat16 { Meaning::Bfloat16 } else { Meaning::Plain };
    nested(out, &*scalars, &mut 0, &dims, of)
}

fn nested(
    out: &mut Vec<u8>,
    scalars: &dyn Array,
    next: &mut usize,
    dims: &[usize],
    meaning: Meaning,
) -> Result<(), ArrowError> {
    let Some((n, inner)) = dims.split_first() else {
        if *next >= scalars.len() {
            return Err(ArrowError::SchemaError(
                "an array with fewer values than its shape".into(),
            ));
        }
        *next += 1;
        return value(out, scalars, *next - 1, meaning);
    };
    out.push(b'[');
    for i in 0..*n {
        if i > 0 {
            out.push(b',');
        }
        nested(out, scalars, next, inner, meaning)?;
    }
    out.push(b']');
    Ok(())
}

/// A number that JSON can hold, else its name as text.
fn float<F: Into<f64> + Copy + std::fmt::Debug>(out: &mut Vec<u8>, number: F) -> io::Result<()> {
    let wide: f64 = number.into();
    if wide.is_finite() {
        return write!(out, "{number:?}");
    }
    let name = match (wide.is_nan(), wide > 0.0) {
        (true, _) => "NaN",
        (false, true) => "Infinity",
        (false, false) => "-Infinity",
    };
    write!(out, "\"{name}\"")
}

/// Text; JSON as it is, without the spaces and line ends between its parts.
fn text(out: &mut Vec<u8>, text: &str, meaning: Meaning) -> io::Result<()> {
    if meaning != Meaning::Json || serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Ok(serde_json::to_writer(out, text)?);
    }
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            in_string = byte == b'"';
        }
        out.push(byte);
    }
    Ok(())
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
    out.push(b'"');
    for byte in bytes {
        write!(out, "{byte:02x}")?;
    }
    out.push(b'"');
    Ok(())
}

/// The code of a value in its dictionary.
fn code(keys: &dyn Array, i: usize) -> usize {
    let code = match keys.data_type() {
        DataType::Int8 => keys.as_primitive::<Int8Type>().value(i).into(),
        DataType::Int16 => keys.as_primitive::<Int16Type>().value(i).into(),
        DataType::Int32 => keys.as_primitive::<Int32Type>().value(i).into(),
        _ => keys.as_primitive::<Int64Type>().value(i),
    };
    usize::try_from(code).unwrap_or_default()
}

/// Dates, times and decimals as text: ISO 8601, times with a zone in UTC. What no calendar holds is
/// the number that is stored.
fn formatted(out: &mut Vec<u8>, array: &dyn Array, i: usize) -> Result<(), ArrowError> {
    let one = array.slice(i, 1);
    macro_rules! in_utc {
        ($type:ty) => {
            std::sync::Arc::new(one.as_primitive::<$type>().clone().with_timezone("+00:00"))
        };
    }
    let one: ArrayRef = match one.data_type() {
        DataType::Timestamp(TimeUnit::Second, Some(_)) => in_utc!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, Some(_)) => in_utc!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => in_utc!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => in_utc!(TimestampNanosecondType),
        _ => one,
    };
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(&one, &options)?.value(0).try_to_string();
    if let Ok(shown) = shown {
        return Ok(serde_json::to_writer(out, &shown).map_err(io::Error::from)?);
    }
    let number = arrow_cast::cast(&one, &DataType::Int64)?;
    value(out, &number, 0, Meaning::Plain)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        Date32Array, Decimal128Array, Float32Array, Float64Array, LargeBinaryArray,
        LargeStringArray, TimestampMicrosecondArray, UInt16Array, UInt64Array,
    };

    use super::*;

    #[test]
    fn values_are_written_without_loss() {
        let zone = "Europe/Berlin";
        let decimal = Decimal128Array::from(vec![-12_345_678_901_234_567_890_123_i128]);
        let decimal = decimal.with_precision_and_scale(38, 3).unwrap();
        let time = TimestampMicrosecondArray::from(vec![1_500_000]);
        let f32s = |n: f32| Arc::new(Float32Array::from(vec![n])) as ArrayRef;
        let json = Arc::new(LargeStringArray::from(vec![
            "{ \"a\\\" b\" :\n[1, 12345678901234567890.10]}",
        ]));
        let bad = Arc::new(LargeStringArray::from(vec!["{\"a\" "]));
        for (array, meaning, want) in [
            (f32s(0.1), Meaning::Plain, "0.1"),
            (f32s(1e30), Meaning::Plain, "1e30"),
            (f32s(f32::NAN), Meaning::Plain, "\"NaN\""),
            (f32s(f32::NEG_INFINITY), Meaning::Plain, "\"-Infinity\""),
            (Arc::new(Float64Array::from(vec![f64::INFINITY])), Meaning::Plain, "\"Infinity\""),
            (Arc::new(Float64Array::from(vec![1.0])), Meaning::Plain, "1.0"),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), Meaning::Plain, "18446744073709551615"),
            (Arc::new(UInt16Array::from(vec![0x3fc0])), Meaning::Bfloat16, "1.5"),
            (Arc::new(decimal), Meaning::Plain, "\"-12345678901234567890.123\""),
            (Arc::new(LargeBinaryArray::from(vec![&b"\x00\xff"[..]])), Meaning::Plain, "\"00ff\""),
            (Arc::new(Date32Array::from(vec![1])), Meaning::Plain, "\"1970-01-02\""),
            (Arc::new(time.clone()), Meaning::Plain, "\"1970-01-01T00:00:01.500\""),
            (Arc::new(time.with_timezone(zone)), Meaning::Plain, "\"1970-01-01T00:00:01.500Z\""),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX])),
                Meaning::Plain,
                "9223372036854775807",
            ),
            (json, Meaning::Json, "{\"a\\\" b\":[1,12345678901234567890.10]}"),
            (bad, Meaning::Json, "\"{\\\"a\\\" \""),
        ] {
            let mut out = Vec::new();
            value(&mut out, &array, 0, meaning).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn arrays_of_free_shape_are_nested() {
        let scalars = UInt16Array::from(vec![1, 2, 3, 4, 5, 6]);
        for (dims, want) in [
            (&[2, 3][..], "[[1,2,3],[4,5,6]]"),
            (&[3, 1, 2], "[[[1,2]],[[3,4]],[[5,6]]]"),
            (&[0, 3], "[]"),
            (&[], "1"),
        ] {
            let mut out = Vec::new();
            nested(&mut out, &scalars, &mut 0, dims, Meaning::Plain).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
        assert!(nested(&mut Vec::new(), &scalars, &mut 0, &[7], Meaning::Plain).is_err());
    }
}
