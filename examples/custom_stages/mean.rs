//! A transform: a value for each row, whatever stands beside it.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use rowmill::batch::Batch;
use rowmill::sources::{SettingsError, parse_settings};
use rowmill::transforms::{Emit, Stage, Transform, TransformError, TransformType};
use schemars::JsonSchema;
use serde::Deserialize;

use super::pgm::pixels;

pub(crate) const MEAN: TransformType = TransformType {
    name: "mean",
    version: 1,
    about: "the mean of all bytes of an array, as a float32 column `mean`",
    settings: MeanSettings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(Mean { settings: parse_settings(&spec.settings)? })),
};

/// Settings of the `mean` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MeanSettings {
    /// The column of arrays of uint8.
    input: String,
}

#[derive(Debug)]
struct Mean {
    settings: MeanSettings,
}

impl Transform for Mean {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let name = &self.settings.input;
        if input.column_with_name(name).is_none() {
            return Err(SettingsError {
                at: vec!["input".to_owned()],
                message: format!("there is no column `{name}`"),
                hint: None,
            });
        }
        let mean = Field::new("mean", DataType::Float32, false);
        let fields = input.fields().iter().cloned().chain([Arc::new(mean)]);
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn apply(
        &self,
        _stage: Stage,
        batch: Batch,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        let rows = &batch.rows;
        let schema = self.output(&rows.schema()).map_err(|e| ArrowError::SchemaError(e.message))?;
        let column = rows.column_by_name(&self.settings.input);
        let means = (0..rows.num_rows()).map(|row| column.map_or(0.0, |column| mean(column, row)));
        let means: ArrayRef = Arc::new(Float32Array::from_iter_values(means));
        let columns = rows.columns().iter().cloned().chain([means]).collect();
        let rows = RecordBatch::try_new(schema, columns)?;
        Ok(emit.emit(Batch { rows, ..batch })?)
    }
}

fn mean(column: &dyn Array, row: usize) -> f32 {
    let bytes = pixels(column, row);
    let sum: u64 = bytes.values().iter().map(|byte| u64::from(*byte)).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a mean")]
    let mean = (sum as f64 / bytes.len().max(1) as f64) as f32;
    mean
}
