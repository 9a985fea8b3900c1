//! The `byte_histogram` transform: how often each byte value occurs in a text or byte string.
//!
//! Adds one column of 256 float32: occurrences divided by the length, in float64, then rounded. An
//! empty value gives zeros; a null gives null.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{Strings, append, emit_pieces, find, is_string, unexpected, with};
use super::{Emit, SettingsError, Stage, Transform, TransformError, TransformType};
use crate::batch::Batch;
use crate::sources::parse_settings;

pub(super) const TYPE: TransformType = TransformType {
    name: "byte_histogram",
    version: 1,
    about: "relative frequency of each byte value in a text or binary column",
    settings: Settings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(ByteHistogram { settings: parse_settings(&spec.settings)? })),
};

const N_BYTES: usize = 256;
/// From this length on, four tables beat one: equal neighbours do not wait for each other.
const LONG_VALUE: usize = 2048;

/// Settings of the `byte_histogram` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The text or binary column.
    input: String,
    /// Name of the new column.
    #[serde(default = "default_output")]
    output: String,
}

fn default_output() -> String {
    "histogram".to_owned()
}

#[derive(Debug)]
struct ByteHistogram {
    settings: Settings,
}

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Float32, false))
}

impl Transform for ByteHistogram {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let (_, field) = find(input, "input", &self.settings.input)?;
        if !is_string(field.data_type()) {
            return Err(SettingsError {
                at: vec!["input".to_owned()],
                message: format!(
                    "column `{}` is {}, neither text nor binary",
                    field.name(),
                    field.data_type()
                ),
                hint: None,
            });
        }
        let list = DataType::FixedSizeList(item(), 256);
        append(input, "output", [Field::new(&self.settings.output, list, field.is_nullable())])
    }

    fn apply(
        &self,
        _stage: Stage,
        batch: Batch,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        let schema = batch.rows.schema();
        let output = self.output(&schema).map_err(|e| unexpected(&e))?;
        let (index, _) =
            find(&schema, "input", &self.settings.input).map_err(|e| unexpected(&e))?;
        let row_bytes = N_BYTES * size_of::<f32>();
        emit_pieces(&batch, &output, row_bytes, emit, |piece| {
            Ok(with(piece, [column(&piece.rows, index)?]))
        })
    }
}

fn column(rows: &RecordBatch, index: usize) -> Result<ArrayRef, TransformError> {
    let input = rows.column(index);
    let strings = Strings::of(input);
    let mut values: Vec<f32> = Vec::with_capacity(rows.num_rows() * N_BYTES);
    for row in 0..rows.num_rows() {
        let bytes = strings.as_ref().and_then(|s| s.get(row)).unwrap_or_default();
        append_frequencies(bytes, &mut values);
    }
    let values = Arc::new(Float32Array::from(values));
    Ok(Arc::new(FixedSizeListArray::try_new(item(), 256, values, input.logical_nulls())?))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "counts stay below 2^53, and the result is rounded to float32 by definition"
)]
fn append_frequencies(bytes: &[u8], out: &mut Vec<f32>) {
    let n_bytes = bytes.len().max(1) as f64;
    out.extend(counts(bytes).iter().map(|n| (*n as f64 / n_bytes) as f32));
}

fn counts(bytes: &[u8]) -> [u64; N_BYTES] {
    let mut total = [0_u64; N_BYTES];
    if bytes.len() < LONG_VALUE {
        for byte in bytes {
            total[usize::from(*byte)] += 1;
        }
        return total;
    }
    // A table of u32 holds a quarter of at most 2^32 × 4 bytes; longer values go in pieces.
    for piece in bytes.chunks(1 << 30) {
        let mut tables = [[0_u32; N_BYTES]; 4];
        let (fours, rest) = piece.as_chunks::<4>();
        for four in fours {
            for (table, byte) in tables.iter_mut().zip(four) {
                table[usize::from(*byte)] += 1;
            }
        }
        for byte in rest {
            tables[0][usize::from(*byte)] += 1;
        }
        for table in &tables {
            for (sum, n) in total.iter_mut().zip(table) {
                *sum += u64::from(*n);
            }
        }
    }
    total
}
