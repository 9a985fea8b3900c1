//! A program of your own with the whole of Rowmill: `custom_source run P.toml` is `rowmill run P.toml`
//! with one more source, `pgm`, and one more transform, `mean`. Resuming, ordering, the cache key,
//! `check`, `plan` and `schema` come with them.
//!
//! ```toml
//! version = 1
//! name = "pictures"
//!
//! [sources.pictures]
//! type = "pgm"              # binary grey maps, one row per file
//! path = "*.pgm"
//!
//! [transforms.brightness]
//! type = "mean"
//! input = "pixels"
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, StringArray, UInt8Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use clap::Parser;
use rowmill::batch::{Batch, Provenance, Restart};
use rowmill::cli::{Cli, Console};
use rowmill::config::Registry;
use rowmill::sources::input::PartDigests;
use rowmill::sources::listing::Listing;
use rowmill::sources::{
    BatchLimits, BatchReader, Input, InputDigest, Part, SettingsError, Source, SourceError,
    SourceSpec, SourceType, parse_settings,
};
use rowmill::transforms::{Emit, Stage, Transform, TransformError, TransformType};
use schemars::JsonSchema;
use serde::Deserialize;

fn main() -> ExitCode {
    Cli::parse().execute(registry(), &Console::new())
}

/// What definitions may name here.
pub(crate) fn registry() -> Registry {
    Registry::BUILT_IN.with(&[PGM], &[MEAN])
}

const PGM: SourceType = SourceType {
    name: "pgm",
    version: 1,
    about: "one row per binary grey map: its path and its pixels",
    settings: PgmSettings::json_schema,
    make: |spec| Ok(Box::new(Pgm::new(spec)?)),
};

/// Settings of the `pgm` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PgmSettings {
    /// The grey value that stands for white.
    #[serde(default = "default_white")]
    white: u8,
}

fn default_white() -> u8 {
    255
}

/// The source; its readers have copies.
#[derive(Debug, Clone)]
struct Pgm {
    listing: Listing,
    white: u8,
}

impl Pgm {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: PgmSettings = parse_settings(&spec.settings)?;
        Ok(Self { listing: Listing::new(spec)?, white: settings.white })
    }

    /// The bytes of a file, with its digest.
    fn read(&self, input: &Input) -> Result<(Vec<u8>, Option<blake3::Hash>), SourceError> {
        let mut open = self.listing.folder().open(input, None, None)?;
        let mut bytes = Vec::new();
        open.append_to(&mut bytes, usize::MAX)?;
        Ok((bytes, open.digest()?))
    }

    /// Width, height and pixels of a file `P5 <width> <height> <white> <pixels>`.
    fn picture<'a>(
        &self,
        input: &Input,
        bytes: &'a [u8],
    ) -> Result<(usize, usize, &'a [u8]), SourceError> {
        let refuse = |message: &str| SourceError::Invalid {
            path: input.path.clone(),
            at: "row 0".to_owned(),
            message: message.to_owned(),
            hint: Some("only binary grey maps without comments are read".to_owned()),
        };
        let mut parts = bytes.splitn(5, u8::is_ascii_whitespace);
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<usize>().ok();
        if !bytes.starts_with(b"P5") || number().is_some() {
            return Err(refuse("it does not begin with P5"));
        }
        let (Some(width), Some(height), Some(white)) = (number(), number(), number()) else {
            return Err(refuse("its head is broken"));
        };
        let pixels = parts.next().unwrap_or_default();
        if white != usize::from(self.white) {
            return Err(refuse(&format!("white is {white} in it, not {}", self.white)));
        }
        if width.checked_mul(height) != Some(pixels.len()) {
            return Err(refuse("it has not as many pixels as its head says"));
        }
        Ok((width, height, pixels))
    }
}

impl Source for Pgm {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    /// All pictures are as large as the first one.
    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let (width, height) = match first {
            Some(input) => {
                let (bytes, _) = self.read(input)?;
                let (width, height, _) = self.picture(input, &bytes)?;
                (width, height)
            }
            None => (1, 1),
        };
        let path = Field::new("path", DataType::Utf8, false);
        let pixels = lists(lists(DataType::UInt8, width), height);
        Ok(Arc::new(Schema::new(vec![path, Field::new("pixels", pixels, false)])))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        _limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        Ok(Box::new(PgmReader {
            digests: PartDigests::new(self.listing.folder().clone(), part),
            source: self.clone(),
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            next: restart.input,
        }))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        self.listing.folder().digests(part)
    }

    fn rows_hint(&self, _input: &Input) -> Option<u64> {
        Some(1)
    }

    fn reader_bytes(&self, _inputs: &[Input], limits: BatchLimits) -> u64 {
        limits.row_bytes
    }
}

/// The type of lists of `n` items.
fn lists(item: DataType, n: usize) -> DataType {
    let n = i32::try_from(n).unwrap_or(i32::MAX);
    DataType::FixedSizeList(Arc::new(Field::new_list_field(item, false)), n)
}

/// Reads one partition, a file at a time.
struct PgmReader {
    source: Pgm,
    part: Arc<Part>,
    schema: SchemaRef,
    /// Index of the next input.
    next: u32,
    digests: PartDigests,
}

impl PgmReader {
    fn columns(&self, input: &Input, bytes: &[u8]) -> Result<RecordBatch, SourceError> {
        let (width, height, pixels) = self.source.picture(input, bytes)?;
        let want = self.schema.field(1).data_type();
        if *want != lists(lists(DataType::UInt8, width), height) {
            return Err(SourceError::Invalid {
                path: input.path.clone(),
                at: "row 0".to_owned(),
                message: format!("it is {width} pixels wide and {height} high, the first is not"),
                hint: Some("let `path` name pictures of one size".to_owned()),
            });
        }
        let mut column: ArrayRef = Arc::new(UInt8Array::from(pixels.to_vec()));
        for n in [width, height] {
            let item = Arc::new(Field::new_list_field(column.data_type().clone(), false));
            let n = i32::try_from(n).unwrap_or(i32::MAX);
            column = Arc::new(FixedSizeListArray::try_new(item, n, column, None)?);
        }
        let path: ArrayRef = Arc::new(StringArray::from(vec![input.path.as_str()]));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), vec![path, column])?)
    }
}

impl BatchReader for PgmReader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let index = self.next as usize;
        let Some(range) = self.part.inputs.get(index) else { return Ok(None) };
        let (bytes, digest) = self.source.read(&range.input)?;
        let rows = self.columns(&range.input, &bytes)?;
        self.digests.set_input(index, digest);
        let provenance = Provenance::of_input(self.next, 0, 1);
        let restart = Restart { input: self.next, ..Restart::default() };
        self.next += 1;
        Ok(Some(Batch { rows, provenance, events: Vec::new(), restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

const MEAN: TransformType = TransformType {
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

/// The mean of the bytes that row `row` of a column of nested lists holds.
fn mean(column: &dyn Array, row: usize) -> f32 {
    let mut inner = column.slice(row, 1);
    while let Some(lists) = inner.as_fixed_size_list_opt() {
        let (start, end) = (lists.value_offset_at(0), lists.value_offset_at(lists.len()));
        inner = lists.values().slice(start, end - start);
    }
    let Some(bytes) = inner.as_primitive_opt::<UInt8Type>() else { return 0.0 };
    let sum: u64 = bytes.values().iter().map(|byte| u64::from(*byte)).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a mean")]
    let mean = (sum as f64 / bytes.len().max(1) as f64) as f32;
    mean
}
