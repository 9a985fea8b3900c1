//! A source: one row per binary grey map.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, StringArray, UInt8Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rowmill::batch::{Batch, Provenance, Restart};
use rowmill::sources::input::{Folder, PartDigests};
use rowmill::sources::listing::Listing;
use rowmill::sources::{
    BatchLimits, BatchReader, Input, InputDigest, Part, SettingsError, Source, SourceError,
    SourceSpec, SourceType, parse_settings,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) const PGM: SourceType = SourceType {
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
}

impl Source for Pgm {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    /// All pictures are as large as the first one.
    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let (width, height) = match first {
            Some(input) => {
                let (bytes, _) = read(self.listing.folder(), input)?;
                let (width, height, _) = picture(input, &bytes, self.white)?;
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
        let (width, height, pixels) = picture(input, bytes, self.source.white)?;
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
        let (bytes, digest) = read(self.source.listing.folder(), &range.input)?;
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

/// The bytes of a file, with its digest.
pub(crate) fn read(folder: &Folder, input: &Input) -> Result<(Vec<u8>, blake3::Hash), SourceError> {
    let mut open = folder.open(input, None, None)?;
    let mut bytes = Vec::new();
    open.append_to(&mut bytes, usize::MAX)?;
    Ok((bytes, open.digest()?))
}

/// Width, height and pixels of a file `P5 <width> <height> <white> <pixels>`.
pub(crate) fn picture<'a>(
    input: &Input,
    bytes: &'a [u8],
    want_white: u8,
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
    if white != usize::from(want_white) {
        return Err(refuse(&format!("white is {white} in it, not {want_white}")));
    }
    if width.checked_mul(height) != Some(pixels.len()) {
        return Err(refuse("it has not as many pixels as its head says"));
    }
    Ok((width, height, pixels))
}

/// The bytes that row `row` of a column of nested lists holds.
pub(crate) fn pixels(column: &dyn Array, row: usize) -> UInt8Array {
    let mut inner = column.slice(row, 1);
    while let Some(lists) = inner.as_fixed_size_list_opt() {
        let (start, end) = (lists.value_offset_at(0), lists.value_offset_at(lists.len()));
        inner = lists.values().slice(start, end - start);
    }
    inner.as_primitive_opt().cloned().unwrap_or_else(|| UInt8Array::from(Vec::<u8>::new()))
}
