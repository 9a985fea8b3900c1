//! A transform that makes any number of rows of one: an event says how many more they are, and those that
//! one row has become are numbered.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use arrow_select::take::take;
use rowmill::batch::{Batch, Event, Outcome, Provenance, Run};
use rowmill::sources::{SettingsError, parse_settings};
use rowmill::transforms::{Emit, Stage, Transform, TransformError, TransformType};
use schemars::JsonSchema;
use serde::Deserialize;

use super::pgm::pixels;

pub(crate) const LINES: TransformType = TransformType {
    name: "lines",
    version: 1,
    about: "a row for each line of a picture that is not black, with the column `line` instead of the picture",
    settings: LinesSettings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(Lines { settings: parse_settings(&spec.settings)? })),
};

/// Settings of the `lines` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LinesSettings {
    /// The column of pictures: arrays of lines, which are arrays of uint8.
    input: String,
}

#[derive(Debug)]
struct Lines {
    settings: LinesSettings,
}

impl Lines {
    /// The columns that stay, and the type of a line.
    fn columns(&self, input: &SchemaRef) -> Result<(Vec<FieldRef>, DataType), SettingsError> {
        let name = &self.settings.input;
        let is_picture = |field: &FieldRef| field.name() == name;
        let picture = input.fields().iter().find(|field| is_picture(field));
        let Some(DataType::FixedSizeList(line, _)) = picture.map(|field| field.data_type()) else {
            return Err(SettingsError {
                at: vec!["input".to_owned()],
                message: format!("there is no column `{name}` of pictures"),
                hint: None,
            });
        };
        let others = input.fields().iter().filter(|field| !is_picture(field)).cloned();
        Ok((others.collect(), line.data_type().clone()))
    }

    /// What the one row of `batch` becomes.
    fn lines_of(
        &self,
        stage: Stage,
        batch: &Batch,
        schema: &SchemaRef,
        emit: &mut dyn Emit,
    ) -> Result<Option<Batch>, TransformError> {
        let picture = batch.rows.column_by_name(&self.settings.input);
        let run = batch.provenance.runs().first();
        let (Some(picture), Some(run)) = (picture, run) else { return Ok(None) };
        let lines = picture.as_fixed_size_list().value(0);
        let is_light =
            |line: &u32| pixels(&lines, *line as usize).values().iter().any(|it| *it > 0);
        let light: Vec<u32> =
            (0..u32::try_from(lines.len()).unwrap_or(u32::MAX)).filter(is_light).collect();

        let n_rows = light.len() as u64;
        let (at, is_single) = (run.at(0), run.sub_row < 0);
        let outcome = match n_rows {
            0 => Some(Outcome::Dropped),
            1 => None,
            n => Some(Outcome::Created(n - 1)),
        };
        let (input, source_row) = (at.input, at.source_row);
        let path = if is_single { Vec::new() } else { vec![at.sub_row] };
        let own = outcome.map(|outcome| {
            let stage = stage.index;
            Event { before_row: 0, input, source_row, path, stage, outcome }
        });
        // What came before the row stays there, what came behind it stands behind all that it becomes.
        let (before, behind): (Vec<Event>, Vec<Event>) =
            batch.events.iter().cloned().partition(|event| event.before_row == 0);
        let behind = behind.into_iter().map(|event| Event { before_row: n_rows, ..event });
        let events = before.into_iter().chain(own).chain(behind).collect();
        // One row that stays one needs no number.
        let sub_row = match n_rows {
            1 if is_single => -1,
            n => emit.number(at, n)?.cast_signed(),
        };
        let mut provenance = Provenance::new();
        provenance.push_run(Run { row: 0, input, source_row, sub_row }, n_rows);

        let mut columns: Vec<ArrayRef> = Vec::new();
        let copies = UInt32Array::from(vec![0; light.len()]);
        for (field, column) in batch.rows.schema().fields().iter().zip(batch.rows.columns()) {
            if *field.name() != self.settings.input {
                columns.push(take(column, &copies, None)?);
            }
        }
        columns.push(take(&lines, &UInt32Array::from(light), None)?);
        let rows = RecordBatch::try_new(SchemaRef::clone(schema), columns)?;
        Ok(Some(Batch { rows, provenance, events, restart: batch.restart.clone() }))
    }
}

impl Transform for Lines {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let (mut fields, line) = self.columns(input)?;
        fields.push(Arc::new(Field::new("line", line, false)));
        Ok(Arc::new(Schema::new(fields)))
    }

    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let schema = self.output(&batch.rows.schema());
        let schema = schema.map_err(|e| ArrowError::SchemaError(e.message))?;
        let n_rows = batch.rows.num_rows();
        if n_rows == 0 {
            // There are events alone.
            return Ok(emit.emit(Batch { rows: RecordBatch::new_empty(schema), ..batch })?);
        }
        for row in 0..n_rows {
            if let Some(lines) = self.lines_of(stage, &batch.slice(row, 1), &schema, emit)? {
                emit.emit(lines)?;
            }
        }
        Ok(())
    }
}
