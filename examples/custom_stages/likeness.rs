//! A feature hook in Rust: how much each picture is like a template, and its rank in its batch.
//!
//! It has what a plain transform has not: batches of its own, because a rank depends on the rows
//! beside it; a file that decides its values; and bad rows with a code of its own.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use rowmill::batch::{BadRow, Batch};
use rowmill::codes::Entry;
use rowmill::sources::input::Folder;
use rowmill::sources::{SettingsError, SourceError, parse_settings};
use rowmill::transforms::{
    Batching, Emit, Stage, Transform, TransformError, TransformSpec, TransformType,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::pgm::{picture, pixels, read};

pub(crate) const LIKENESS: TransformType = TransformType {
    name: "likeness",
    version: 1,
    about: "how much a picture is like a template, and its rank in its batch",
    settings: LikenessSettings::json_schema,
    run_settings: &["workers"],
    make: |spec| Ok(Box::new(Likeness::new(spec)?)),
};

/// What `explain black_picture` says.
pub(crate) const BLACK_PICTURE: Entry = Entry {
    code: "black_picture",
    means: "A picture is black.",
    why: "It was never exposed, or its file was never filled.",
    todo: "Leave it out, or reject such rows with `on_error = \"quarantine\"`.",
    example: "`7.pgm`, row 0, field `pixels`: the picture is black",
};

/// Settings of the `likeness` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LikenessSettings {
    /// The column of arrays of uint8.
    input: String,
    /// A binary grey map, relative to the folder of the definition.
    template: String,
    /// Pictures that are ranked together.
    #[serde(default = "default_batch_rows")]
    batch_rows: u32,
    /// Batches at once.
    #[serde(default = "default_workers")]
    workers: u32,
}

fn default_batch_rows() -> u32 {
    256
}

fn default_workers() -> u32 {
    1
}

#[derive(Debug)]
struct Likeness {
    settings: LikenessSettings,
    folder: PathBuf,
    files: Vec<String>,
    /// The pixels of the template, read when they are needed first: many commands need no row.
    template: OnceLock<Vec<u8>>,
}

impl Likeness {
    fn new(spec: &TransformSpec) -> Result<Self, SettingsError> {
        let settings: LikenessSettings = parse_settings(&spec.settings)?;
        let files = vec![settings.template.clone()];
        Ok(Self { settings, folder: spec.folder.clone(), files, template: OnceLock::new() })
    }

    fn template(&self) -> Result<&[u8], TransformError> {
        if let Some(known) = self.template.get() {
            return Ok(known);
        }
        let read = || -> Result<Vec<u8>, SourceError> {
            let folder = Folder::new(&self.folder);
            let input = folder.stat(&self.settings.template)?;
            let (bytes, _) = read(&folder, &input)?;
            Ok(picture(&input, &bytes, 255)?.2.to_vec())
        };
        let read = read().map_err(|error| TransformError::Failed {
            message: format!("the template cannot be read: {error}"),
            hint: error.hint().map(Into::into),
        })?;
        Ok(self.template.get_or_init(|| read))
    }

    /// The likeness of each row, and the rows that are black.
    fn likenesses(&self, batch: &Batch) -> Result<(Vec<f32>, Vec<usize>), TransformError> {
        let template = self.template()?;
        let (mut likenesses, mut black) = (Vec::new(), Vec::new());
        let column = batch.rows.column_by_name(&self.settings.input);
        let Some(column) = column else { return Ok((likenesses, black)) };
        for row in 0..batch.rows.num_rows() {
            let pixels = pixels(column, row);
            if pixels.len() != template.len() {
                return Err(TransformError::Failed {
                    message: format!(
                        "a picture has {} pixels, and the template {}",
                        pixels.len(),
                        template.len()
                    ),
                    hint: Some("give a template of the size of the pictures".to_owned()),
                });
            }
            let sum = |of: &dyn Fn(usize) -> u64| (0..pixels.len()).map(of).sum::<u64>();
            let value = |i: usize| u64::from(pixels.value(i));
            let weight = |i: usize| u64::from(template.get(i).copied().unwrap_or_default());
            let light = sum(&value);
            if light == 0 {
                black.push(row);
            }
            let shared = sum(&|i| value(i) * weight(i));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "a share"
            )]
            likenesses.push((shared as f64 / (light * 255).max(1) as f64) as f32);
        }
        Ok((likenesses, black))
    }
}

impl Transform for Likeness {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        if input.column_with_name(&self.settings.input).is_none() {
            return Err(SettingsError {
                at: vec!["input".to_owned()],
                message: format!("there is no column `{}`", self.settings.input),
                hint: None,
            });
        }
        let added = [("likeness", DataType::Float32), ("rank", DataType::Int32)];
        let added = added.map(|(name, kind)| Arc::new(Field::new(name, kind, false)));
        Ok(Arc::new(Schema::new(input.fields().iter().cloned().chain(added).collect::<Vec<_>>())))
    }

    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let output = self.output(&batch.rows.schema());
        let output = output.map_err(|e| ArrowError::SchemaError(e.message))?;
        let (likenesses, black) = self.likenesses(&batch)?;
        let mut gone = Vec::new();
        for row in black {
            let bad = BadRow::new(BLACK_PICTURE.code, "the picture is black");
            gone.push((row, stage.settle(&batch, row, bad.field(&self.settings.input))?));
        }
        let rank = |mine: &f32| likenesses.iter().filter(|other| *other > mine).count();
        let ranks = likenesses.iter().map(|mine| i32::try_from(rank(mine)).unwrap_or(i32::MAX));
        let ranks: ArrayRef = Arc::new(Int32Array::from_iter_values(ranks));
        let likenesses: ArrayRef = Arc::new(Float32Array::from(likenesses));
        let columns = batch.rows.columns().iter().cloned().chain([likenesses, ranks]).collect();
        let rows = RecordBatch::try_new(output, columns)?;
        Ok(emit.emit(Batch { rows, ..batch }.without(stage.index, gone)?)?)
    }

    fn batching(&self) -> Option<Batching> {
        let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX).max(1);
        let rows = count(self.settings.batch_rows);
        Some(Batching {
            rows,
            bytes: 4 << 20,
            answer_bytes: 8 * u64::from(self.settings.batch_rows),
            workers: count(self.settings.workers),
            is_kept: false,
            multiplies: false,
        })
    }

    fn files(&self) -> &[String] {
        &self.files
    }
}
