//! Scalars of a column as the bytes of a field.
//!
//! Invariants:
//! 1. No value changes silently: a conversion that cannot hold a value fails and names it. Only
//!    floats become narrower floats by rounding (to nearest, ties to even), never to infinity.
//! 2. A converted NaN is the default one of its type, whatever its payload was; one that is not
//!    converted keeps its bits.

use arrow_array::types::{
    Date32Type, Date64Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, ScalarBuffer};
use arrow_schema::DataType;
use half::{bf16, f16};

use super::offer::Leaf;
use super::{Dtype, Field, Logical};

/// A scalar that its field cannot hold.
#[derive(Debug)]
pub(super) struct BadScalar {
    /// Index of the scalar in the array.
    pub(super) index: usize,
    /// The scalar, as text, and what it is not.
    pub(super) message: String,
}

/// The bytes of the scalars of `array`, whose type offers `leaf`, as `field` holds them. What lies
/// beneath nulls is converted like any other value, so there must be none unless
/// [`is_as_stored`] says that no value is looked at.
pub(super) fn scalars(array: &ArrayRef, leaf: &Leaf, field: &Field) -> Result<Buffer, BadScalar> {
    if is_as_stored(array.data_type(), leaf, field) {
        return Ok(as_stored(array));
    }
    if field.logical == Some(Logical::Bfloat16) {
        return convert_to(array, convert_bfloat16);
    }
    if array.data_type() == &DataType::Date64 {
        let days = whole_days(array)?;
        return from_slice(&days, field.dtype);
    }
    macro_rules! from {
        ($($dtype:pat => $arrow:ty),*) => {
            match physical(array.data_type(), leaf.dtype) {
                Dtype::Bool => from_slice(&expand(as_bools(array).values()), field.dtype),
                $($dtype => from_slice(&values::<$arrow>(array), field.dtype),)*
            }
        };
    }
    from!(
        Dtype::Int8 => Int8Type, Dtype::Int16 => Int16Type, Dtype::Int32 => Int32Type,
        Dtype::Int64 => Int64Type, Dtype::Uint8 => UInt8Type, Dtype::Uint16 => UInt16Type,
        Dtype::Uint32 => UInt32Type, Dtype::Uint64 => UInt64Type, Dtype::Float16 => Float16Type,
        Dtype::Float32 => Float32Type, Dtype::Float64 => Float64Type
    )
}

/// Whether the column's numbers are the field's, bit for bit (a bool: 1 bit against 1 byte).
pub(super) fn is_as_stored(data_type: &DataType, leaf: &Leaf, field: &Field) -> bool {
    let same = leaf.dtype == field.dtype && (leaf.logical == field.logical);
    let bits = leaf.dtype == Dtype::Uint16 && field.logical == Some(Logical::Bfloat16);
    let meaning_left_out = leaf.logical.is_some() && field.logical.is_none();
    (same || bits || (meaning_left_out && leaf.dtype == field.dtype))
        && !matches!(data_type, DataType::Date64 | DataType::Time32(_))
}

/// The dtype of the values in the array's own buffer.
fn physical(data_type: &DataType, dtype: Dtype) -> Dtype {
    match data_type {
        DataType::Time32(_) => Dtype::Int32,
        _ => dtype,
    }
}

fn as_stored(array: &ArrayRef) -> Buffer {
    if array.data_type() == &DataType::Boolean {
        return Buffer::from_vec(expand(as_bools(array).values()));
    }
    let data = array.to_data();
    let size = data.data_type().primitive_width().unwrap_or(1);
    match data.buffers() {
        [values, ..] => values.slice_with_length(data.offset() * size, data.len() * size),
        [] => Buffer::from_vec(Vec::<u8>::new()),
    }
}

fn as_bools(array: &ArrayRef) -> BooleanArray {
    BooleanArray::from(array.to_data())
}

/// The values of a primitive array of any type that has the width of `T`.
fn values<T: arrow_array::ArrowPrimitiveType>(array: &ArrayRef) -> ScalarBuffer<T::Native> {
    let data = array.to_data();
    match data.buffers() {
        [values, ..] => ScalarBuffer::new(values.clone(), data.offset(), data.len()),
        [] => ScalarBuffer::from(Vec::new()),
    }
}

/// Bits as bytes, 0 or 1.
pub(super) fn expand(bits: &BooleanBuffer) -> Vec<u8> {
    let chunks = bits.bit_chunks();
    let mut bytes = Vec::with_capacity(bits.len() + 64);
    for word in chunks.iter_padded() {
        for byte in word.to_le_bytes() {
            // Bit i to byte i, then any bit of a byte to its lowest one.
            let spread = (u64::from(byte) * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
            let ones = ((spread + 0x7f7f_7f7f_7f7f_7f7f) >> 7) & 0x0101_0101_0101_0101;
            bytes.extend_from_slice(&ones.to_le_bytes());
        }
    }
    bytes.truncate(bits.len());
    bytes
}

const MS_PER_DAY: i64 = 86_400_000;

fn whole_days(array: &ArrayRef) -> Result<Vec<i32>, BadScalar> {
    let ms = values::<Date64Type>(array);
    let mut days: Vec<<Date32Type as arrow_array::ArrowPrimitiveType>::Native> =
        Vec::with_capacity(ms.len());
    for (index, &ms) in ms.iter().enumerate() {
        match i32::try_from(ms / MS_PER_DAY) {
            Ok(day) if ms % MS_PER_DAY == 0 => days.push(day),
            _ => {
                let message = format!("{ms} ms are not a whole number of days in int32");
                return Err(BadScalar { index, message });
            }
        }
    }
    Ok(days)
}

type Convert<T> = fn(&PrimitiveArray<Float64Type>) -> Result<T, BadScalar>;

/// Floats of any width, widened, then converted.
fn convert_to(array: &ArrayRef, convert: Convert<Buffer>) -> Result<Buffer, BadScalar> {
    let wide: Vec<f64> = match array.data_type() {
        DataType::Float16 => {
            values::<Float16Type>(array).iter().map(|value| value.to_f64()).collect()
        }
        DataType::Float32 => {
            values::<Float32Type>(array).iter().map(|&value| f64::from(value)).collect()
        }
        _ => values::<Float64Type>(array).to_vec(),
    };
    convert(&PrimitiveArray::new(wide.into(), None))
}

fn convert_bfloat16(wide: &PrimitiveArray<Float64Type>) -> Result<Buffer, BadScalar> {
    let mut bits: Vec<u16> = Vec::with_capacity(wide.len());
    for (index, &value) in wide.values().iter().enumerate() {
        let narrow = if value.is_nan() { bf16::NAN } else { bf16::from_f64(value) };
        if narrow.is_infinite() && value.is_finite() {
            return Err(BadScalar { index, message: format!("{value:?} does not fit bfloat16") });
        }
        bits.push(narrow.to_bits());
    }
    Ok(Buffer::from_vec(bits))
}

/// A value of any number type, without loss.
#[derive(Clone, Copy)]
enum Wide {
    Int(i128),
    Float(f64),
}

/// A number type that others can be converted to.
trait Scalar {
    type Raw: ArrowNativeType;
    fn narrow(value: Wide) -> Option<Self::Raw>;
}

trait Widen: Copy + std::fmt::Debug {
    fn wide(self) -> Wide;
}

macro_rules! integers {
    ($($native:ty),*) => {$(
        impl Widen for $native {
            fn wide(self) -> Wide {
                Wide::Int(i128::from(self))
            }
        }
        impl Scalar for $native {
            type Raw = $native;
            fn narrow(value: Wide) -> Option<$native> {
                match value {
                    Wide::Int(value) => value.try_into().ok(),
                    Wide::Float(value) => whole(value)?.try_into().ok(),
                }
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

#[expect(clippy::cast_possible_truncation, reason = "the value is whole, and the cast saturates")]
fn whole(value: f64) -> Option<i128> {
    // A whole float is exactly an i128 below 2^127; -0.0 would lose its sign.
    let lossless = value.fract() == 0.0 && value.abs() < 1e38;
    (lossless && !(value == 0.0 && value.is_sign_negative())).then_some(value as i128)
}

macro_rules! floats {
    ($($native:ty: $to:expr, $from:expr, $nan:expr;)*) => {$(
        impl Widen for $native {
            fn wide(self) -> Wide {
                Wide::Float($to(self))
            }
        }
        impl Scalar for $native {
            type Raw = $native;
            fn narrow(value: Wide) -> Option<$native> {
                match value {
                    Wide::Float(value) if value.is_nan() => Some($nan),
                    Wide::Float(value) => {
                        let narrow: $native = $from(value);
                        (narrow.is_finite() || value.is_infinite()).then_some(narrow)
                    }
                    Wide::Int(value) => {
                        #[expect(clippy::cast_precision_loss, reason = "compared right below")]
                        let narrow: $native = $from(value as f64);
                        (whole($to(narrow)) == Some(value)).then_some(narrow)
                    }
                }
            }
        }
    )*};
}

floats! {
    f16: f16::to_f64, f16::from_f64, f16::NAN;
    f32: f64::from, narrow_f32, f32::NAN;
    f64: std::convert::identity, std::convert::identity, f64::NAN;
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
fn narrow_f32(value: f64) -> f32 {
    value as f32
}

/// One byte, 0 or 1.
struct Bool;

impl Scalar for Bool {
    type Raw = u8;
    fn narrow(value: Wide) -> Option<u8> {
        u8::narrow(value).filter(|value| *value <= 1)
    }
}

fn from_slice<S: Widen>(from: &[S], to: Dtype) -> Result<Buffer, BadScalar> {
    match to {
        Dtype::Bool => convert::<S, Bool>(from, to),
        Dtype::Int8 => convert::<S, i8>(from, to),
        Dtype::Int16 => convert::<S, i16>(from, to),
        Dtype::Int32 => convert::<S, i32>(from, to),
        Dtype::Int64 => convert::<S, i64>(from, to),
        Dtype::Uint8 => convert::<S, u8>(from, to),
        Dtype::Uint16 => convert::<S, u16>(from, to),
        Dtype::Uint32 => convert::<S, u32>(from, to),
        Dtype::Uint64 => convert::<S, u64>(from, to),
        Dtype::Float16 => convert::<S, f16>(from, to),
        Dtype::Float32 => convert::<S, f32>(from, to),
        Dtype::Float64 => convert::<S, f64>(from, to),
    }
}

fn convert<S: Widen, T: Scalar>(from: &[S], to: Dtype) -> Result<Buffer, BadScalar> {
    let mut converted = Vec::with_capacity(from.len());
    for (index, &value) in from.iter().enumerate() {
        let Some(value) = T::narrow(value.wide()) else {
            let message = format!("{value:?} does not fit {}", to.name());
            return Err(BadScalar { index, message });
        };
        converted.push(value);
    }
    Ok(Buffer::from_vec(converted))
}
