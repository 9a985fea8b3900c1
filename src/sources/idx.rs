//! The `idx` source: rows from IDX files, the format of MNIST and the data sets made like it.
//!
//! One row per entry of the first axis. A file begins with two bytes of 0, the type of its values and
//! the number of its axes, then the size of each axis; all numbers are big-endian.
//!
//! The column is called `image`, or as `name` says. With `labels`, a second file for each input, the
//! column `label` (or as `label_name` says) has what stands at the same index there.
//!
//! Invariants:
//! 1. Inputs and label files, both sorted by path, belong together in that order; there are as many of
//!    the one as of the other, and two that belong together have as many rows.
//! 2. A file has as many bytes as its head says, or none of its rows is read; of a compressed one, those
//!    are rows that come before the end or the damage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::array_files::{Arrays, Format, cut_points, damaged};
use super::array_rows::RowReader;
use super::arrays::{ArrayHead, Refusal, head_bytes, refused};
use super::content::{Compression, Content, Contents};
use super::listing::Listing;
use super::{
    BatchLimits, BatchReader, Input, InputDigest, Part, SettingsError, Source, SourceError,
    SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;
use crate::schema::Dtype;

pub(super) const TYPE: SourceType = SourceType {
    name: "idx",
    version: 1,
    about: "one row per entry of IDX files such as MNIST's, with labels from a second file",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Idx::new(spec)?)),
};

/// Settings of the `idx` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Name of the column with the values.
    #[serde(default = "default_name")]
    name: String,
    /// A path or glob below `root`, or a list of them: the files with the labels of the inputs' rows.
    /// Sorted by path, each belongs to the input at its place in the sorted list of inputs.
    labels: Option<Paths>,
    /// Name of the column with the labels.
    #[serde(default = "default_label_name")]
    label_name: String,
    /// How inputs and labels are compressed: by default as the extensions `.gz`, `.zst` and `.zip` say.
    #[serde(default)]
    compression: Compression,
}

fn default_name() -> String {
    "image".to_owned()
}

fn default_label_name() -> String {
    "label".to_owned()
}

/// A path or a list of them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Paths {
    One(String),
    Several(Vec<String>),
}

/// The source; readers share what it knows.
#[derive(Debug)]
struct Idx {
    listing: Listing,
    labels: Option<Listing>,
    /// The label file of each input that was listed last, by the input's path.
    known: Mutex<HashMap<String, Input>>,
    names: Vec<String>,
    arrays: Arc<Arrays>,
}

impl Idx {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let listing = Listing::new(spec)?;
        let mut names = vec![settings.name];
        let labels = match settings.labels {
            None => None,
            Some(_) if names.contains(&settings.label_name) => {
                return Err(SettingsError {
                    at: vec!["label_name".to_owned()],
                    message: format!("there would be two columns `{}`", settings.label_name),
                    hint: Some("choose another name".to_owned()),
                });
            }
            Some(paths) => {
                names.push(settings.label_name);
                let paths = match paths {
                    Paths::One(path) => vec![path],
                    Paths::Several(paths) => paths,
                };
                let at_labels = |e| SettingsError { at: vec!["labels".to_owned()], ..e };
                let spec = SourceSpec { paths, ..spec.clone() };
                let files = Listing::new(&spec).map_err(at_labels)?;
                let contents = Contents::new(files.folder(), settings.compression, None)?;
                Some((files, contents))
            }
        };
        let (labels, label_contents) = labels.unzip();
        let contents = Contents::new(listing.folder(), settings.compression, None)?;
        let arrays = Arc::new(Arrays {
            folder: listing.folder().clone(),
            format: Format::Idx,
            contents,
            labels: label_contents,
            has_file_columns: false,
        });
        Ok(Self { listing, labels, known: Mutex::default(), names, arrays })
    }

    /// The label file of each of `inputs`. Files are listed only where one is asked for that was not
    /// listed before.
    fn labels_of(&self, labels: &Listing, inputs: &[Input]) -> Result<Vec<Input>, SourceError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if inputs.iter().any(|input| !known.contains_key(&input.path)) {
            *known = pairs(self.listing.list()?, labels.list()?)?;
        }
        let label_of = |input: &Input| {
            let found = known.get(&input.path).cloned();
            found.ok_or_else(|| SourceError::Changed { path: input.path.clone() })
        };
        inputs.iter().map(label_of).collect()
    }
}

/// Gives each of all inputs its label file: both are sorted by path.
fn pairs(all: Vec<Input>, labels: Vec<Input>) -> Result<HashMap<String, Input>, SourceError> {
    if all.len() != labels.len() {
        let path = labels.first().or(all.first()).map_or("", |input| input.path.as_str());
        return Err(SourceError::Listing {
            path: path.to_owned(),
            message: format!(
                "is one of {} that `labels` names, for {} inputs",
                labels.len(),
                all.len()
            ),
            hint: Some("give `labels` one file for each that `path` finds".to_owned()),
        });
    }
    Ok(all.into_iter().map(|input| input.path).zip(labels).collect())
}

impl Source for Idx {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        let all = self.listing.list()?;
        if let Some(labels) = &self.labels {
            // What cannot be paired is told when labels are asked for.
            let paired = labels.list().and_then(|labels| pairs(all.clone(), labels));
            *self.known.lock().unwrap_or_else(PoisonError::into_inner) = paired.unwrap_or_default();
        }
        Ok(all)
    }

    fn listing(&self) -> Option<&Listing> {
        // Files are paired by their places in both lists, which have to be whole.
        self.labels.is_none().then_some(&self.listing)
    }

    fn side_inputs(&self, inputs: &[Input]) -> Result<Vec<Input>, SourceError> {
        self.labels.as_ref().map_or(Ok(Vec::new()), |labels| self.labels_of(labels, inputs))
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let mut types = Vec::new();
        if let Some(input) = first {
            types.push(self.arrays.row_head(&self.arrays.contents, input)?.row_type());
            let labels = self.side_inputs(std::slice::from_ref(input))?;
            for (labels, contents) in labels.iter().zip(&self.arrays.labels) {
                types.push(self.arrays.row_head(contents, labels)?.row_type());
            }
        }
        types.resize(self.names.len(), DataType::UInt8);
        let fields = self.names.iter().zip(types).map(|(name, t)| Field::new(name, t, false));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        let contents = &self.arrays.contents;
        if input.size <= partition_bytes || contents.is_decoded(&input.path) {
            return Ok(Vec::new());
        }
        Ok(cut_points(&self.arrays.row_head(contents, input)?, input.size, partition_bytes))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        let arrays = Arc::clone(&self.arrays);
        Ok(Box::new(RowReader::new(arrays, part, schema, limits, restart)?))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        self.listing.folder().digests(part)
    }

    fn rows_hint(&self, input: &Input) -> Option<u64> {
        self.arrays.row_head(&self.arrays.contents, input).ok()?.n_rows()
    }

    fn rows_before(&self, path: &str, byte: u64) -> Option<u64> {
        self.arrays.rows_before(path, byte)
    }

    fn reader_bytes(&self, inputs: &[Input], limits: BatchLimits) -> u64 {
        // What cannot be listed now is not read either.
        let labels = self.side_inputs(inputs).unwrap_or_default();
        let labels = self.arrays.labels.as_ref().map_or(0, |it| it.memory_bytes(&labels));
        // Room that a batch's buffers have left when they have grown.
        self.arrays.contents.memory_bytes(inputs) + labels + limits.row_bytes + limits.bytes as u64
    }
}

/// Reads the head of an IDX file.
pub(super) fn read_head(input: &Input, open: &mut Content) -> Result<ArrayHead, SourceError> {
    let no = |refusal: Refusal| refused(input, refusal);
    let hint = "leave it out of `path`; if it is compressed, give it the extension `.gz` or set \
                `compression`";
    let mut magic = Vec::new();
    open.append_to(&mut magic, 4).map_err(damaged)?;
    let (item, n_axes) = match *magic {
        [0, 0, kind, n_axes] => {
            let item = match kind {
                0x08 => Dtype::Uint8,
                0x09 => Dtype::Int8,
                0x0B => Dtype::Int16,
                0x0C => Dtype::Int32,
                0x0D => Dtype::Float32,
                0x0E => Dtype::Float64,
                _ => {
                    let message = format!("the type of values 0x{kind:02x} is not one of IDX");
                    return Err(no((message, hint)));
                }
            };
            (item, n_axes)
        }
        [0x1F, 0x8B, ..] => return Err(no(("the input is compressed".into(), hint))),
        _ => return Err(no(("not an IDX file".into(), hint))),
    };
    let mut shape = Vec::with_capacity(n_axes.into());
    for _ in 0..n_axes {
        let size = head_bytes(input, open, 4)?;
        shape.push(size.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    let is_big_endian = item.size() > 1;
    Ok(ArrayHead { item, is_big_endian, is_fortran: false, shape, start: open.position() })
}
