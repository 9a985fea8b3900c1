//! The `npy` source: rows from the arrays that `numpy.save` writes.
//!
//! - `rows = "first_axis"`: one row per index of the first axis, an array of the other axes' shape.
//! - `rows = "file"`: one row per file, the whole array; the first axis may vary from file to file.
//!
//! The column is called `value`, or as `name` says. With `file_columns`, the columns `path`, `parent`
//! and `stem` tell the file of each row, as those of the source `files` do.
//!
//! Invariants:
//! 1. Every input has the type and, behind the first axis, the shape of the first one. The order of
//!    bytes may differ.
//! 2. Nothing is unpickled. What is no array of numbers or truth values is refused by its name.
//! 3. A file has as many bytes as its head says, or none of its rows is read; of a compressed one, those
//!    are rows that come before the end or the damage.
//! 4. A file is cut only if its values are little-endian: of its ranges, only the digest of the first
//!    covers the head, so nothing in it but the type and the shape may decide what the rows of the
//!    others are.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::array_files::{Arrays, Format, cut_points, damaged};
use super::array_rows::RowReader;
use super::arrays::{ArrayHead, head_bytes, refused};
use super::content::{Compression, Content, Contents};
use super::listing::Listing;
use super::npy_files::FileReader;
use super::npy_header::{MAGIC_BYTES, length_bytes, parse, text_bytes};
use super::{
    BatchLimits, BatchReader, Input, InputDigest, Part, SettingsError, Source, SourceError,
    SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;

pub(super) const TYPE: SourceType = SourceType {
    name: "npy",
    version: 1,
    about: "one row per index of the first axis, or per file, of NumPy's .npy arrays",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Npy::new(spec)?)),
};

/// Settings of the `npy` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// What a row is: an index of the first axis, or a whole file.
    #[serde(default)]
    rows: Rows,
    /// Name of the column with the values.
    #[serde(default = "default_name")]
    name: String,
    /// Whether there are columns `path`, `parent` and `stem` of the file that a row is from.
    #[serde(default)]
    file_columns: bool,
    /// How inputs are compressed: by default as the extensions `.gz`, `.zst` and `.zip` say.
    #[serde(default)]
    compression: Compression,
    /// The member of zip archives that is read; may be left out where they hold one file.
    member: Option<String>,
}

fn default_name() -> String {
    "value".to_owned()
}

/// What a row is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Rows {
    /// An index of the first axis.
    #[default]
    FirstAxis,
    /// A file.
    File,
}

/// The source; readers share what it knows.
#[derive(Debug)]
struct Npy {
    listing: Listing,
    settings: Settings,
    arrays: Arc<Arrays>,
}

/// Columns that tell of the file.
pub(super) const FILE_COLUMNS: [&str; 3] = ["path", "parent", "stem"];

impl Npy {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        if settings.file_columns && FILE_COLUMNS.contains(&settings.name.as_str()) {
            return Err(SettingsError {
                at: vec!["name".to_owned()],
                message: format!("there would be two columns `{}`", settings.name),
                hint: Some("choose another name".to_owned()),
            });
        }
        let listing = Listing::new(spec)?;
        let (compression, member) = (settings.compression, settings.member.as_deref());
        let contents = Contents::new(listing.folder(), compression, member)?;
        let arrays = Arc::new(Arrays {
            folder: listing.folder().clone(),
            format: Format::Npy,
            contents,
            labels: None,
            has_file_columns: settings.file_columns,
        });
        Ok(Self { listing, settings, arrays })
    }

    fn head(&self, input: &Input) -> Result<ArrayHead, SourceError> {
        match self.settings.rows {
            Rows::FirstAxis => self.arrays.row_head(&self.arrays.contents, input),
            Rows::File => self.arrays.head(input),
        }
    }
}

impl Source for Npy {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let head = first.map(|input| self.head(input)).transpose()?;
        let data_type = match (head, self.settings.rows) {
            (Some(head), Rows::FirstAxis) => head.row_type(),
            (Some(head), Rows::File) => head.array_type(),
            (None, _) => DataType::Float64,
        };
        let mut fields = vec![Field::new(&self.settings.name, data_type, false)];
        if self.settings.file_columns {
            fields.extend(FILE_COLUMNS.map(|name| Field::new(name, DataType::Utf8, false)));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        let is_whole =
            self.settings.rows == Rows::File || self.arrays.contents.is_decoded(&input.path);
        if is_whole || input.size <= partition_bytes {
            return Ok(Vec::new());
        }
        let head = self.head(input)?;
        if head.is_big_endian {
            return Ok(Vec::new());
        }
        Ok(cut_points(&head, input.size, partition_bytes))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        let arrays = Arc::clone(&self.arrays);
        Ok(match self.settings.rows {
            Rows::FirstAxis => Box::new(RowReader::new(arrays, part, schema, limits, restart)?),
            Rows::File => Box::new(FileReader::new(arrays, part, schema, limits, restart)?),
        })
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        self.listing.folder().digests(part)
    }

    fn rows_hint(&self, input: &Input) -> Option<u64> {
        match self.settings.rows {
            Rows::FirstAxis => self.head(input).ok()?.n_rows(),
            Rows::File => Some(1),
        }
    }

    fn rows_before(&self, path: &str, byte: u64) -> Option<u64> {
        self.arrays.rows_before(path, byte)
    }

    fn reader_bytes(&self, inputs: &[Input], limits: BatchLimits) -> u64 {
        let decoding = self.arrays.contents.memory_bytes(inputs);
        match self.settings.rows {
            // Room that a batch's buffer has left when it has grown.
            Rows::FirstAxis => decoding + limits.row_bytes + limits.bytes as u64,
            // And an array in column-major order, before it is put into ours.
            Rows::File => decoding + 2 * limits.row_bytes + limits.bytes as u64,
        }
    }
}

/// Reads the head of an `.npy` file.
pub(super) fn read_head(input: &Input, open: &mut Content) -> Result<ArrayHead, SourceError> {
    let no = |refusal| refused(input, refusal);
    let mut magic = Vec::new();
    open.append_to(&mut magic, MAGIC_BYTES).map_err(damaged)?;
    let n = length_bytes(&magic).map_err(no)?;
    let n = text_bytes(&head_bytes(input, open, n)?).map_err(no)?;
    let text = head_bytes(input, open, n)?;
    parse(&text, open.position()).map_err(no)
}
