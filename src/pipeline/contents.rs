//! What a dataset or a shard holds, for `inspect`.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::check::form;
use super::elsewhere::Elsewhere;
use super::rejects::Rejects;
use super::{PipelineError, REPORT_VERSION, RejectReport};
use crate::dataset::{Dataset, DatasetError};
use crate::exporters::storage_at;
use crate::inputs::RowPlace;
use crate::remote::{BlockCacheOptions, RemoteOptions, is_url};
use crate::schema::{Field, Kind, Logical, RowSchema};
use crate::shard::{Key, Origin, ReadError, Shard, layout};
use crate::storage::{Local, Storage, side_by_side};

/// A dataset or shard as a whole.
#[derive(Debug, Clone, Serialize)]
pub struct Contents {
    /// Version of this document.
    pub version: u32,
    /// Its folder.
    pub path: String,
    /// Number of rows.
    pub rows: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The fields of a row.
    pub fields: Vec<FieldContents>,
    /// The shards.
    pub shards: Vec<ShardContents>,
    /// What was rejected, the most frequent kind first.
    pub rejects: Vec<RejectReport>,
}

/// One field of all shards.
#[derive(Debug, Clone, Serialize)]
pub struct FieldContents {
    /// Its name.
    pub name: String,
    /// `float32[256]`.
    pub form: String,
    /// Bytes of its files; those of an axis count for each field on it.
    pub bytes: u64,
    /// Distinct values of an interned field, summed over shards.
    pub values: Option<u64>,
}

/// One shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardContents {
    /// Its id.
    pub id: String,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The URL of its folder, where its rows are only in a store.
    pub url: Option<String>,
}

/// One row.
#[derive(Debug, Clone, Serialize)]
pub struct RowContents {
    /// Version of this document.
    pub version: u32,
    /// Its number in the dataset or shard.
    pub row: u64,
    /// The shard that holds it.
    pub shard: String,
    /// Its number there.
    pub row_in_shard: u64,
    /// The source that lists the input it came from.
    pub source: Option<String>,
    /// The source row that it came from.
    #[serde(flatten)]
    pub place: RowPlace,
    /// Its values by field: numbers and lists of numbers as such, all else as text (bytes as hex
    /// digits). In the schema's order.
    #[serde(serialize_with = "in_order")]
    pub values: Vec<(String, Value)>,
}

fn in_order<S: Serializer>(values: &[(String, Value)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.iter().map(|(name, value)| (name, value)))
}

/// A dataset, or a shard on its own.
pub(super) enum Opened {
    /// A dataset.
    Dataset(Box<Dataset>),
    /// One shard.
    Shard(Box<Shard>),
}

/// Opens whichever of them is at `path`, which may be a URL.
pub(super) fn open(path: &Path) -> Result<Opened, PipelineError> {
    let (storage, path): (Arc<dyn Storage>, _) = match path.to_str().filter(|path| is_url(path)) {
        None => (Arc::new(Local), path.to_path_buf()),
        Some(url) => {
            let there = storage_at(url, &RemoteOptions::default(), BlockCacheOptions::default())?;
            let root = there.root().to_path_buf();
            (Arc::new(there), root)
        }
    };
    // A store says why it refuses to give something, and not why it refuses to tell of it.
    let sums = path.join(layout::SUMS);
    let is_shard = match storage.distant() {
        Some(_) => storage.read(&sums)?.is_some(),
        None => storage.stat(&sums)?.is_some(),
    };
    if is_shard {
        let shard = Shard::open(storage, &path).map_err(DatasetError::from)?;
        return Ok(Opened::Shard(Box::new(shard)));
    }
    Ok(Opened::Dataset(Box::new(Dataset::open_in(storage, path)?)))
}

/// Describes the dataset or shard at `path`.
///
/// # Errors
/// It is neither, or it is damaged.
pub fn contents(path: &Path) -> Result<Contents, PipelineError> {
    let opened = open(path)?;
    let (schema, shards): (&RowSchema, Vec<&Shard>) = match &opened {
        Opened::Dataset(dataset) => {
            let numbers: Vec<usize> = (0..dataset.n_shards()).collect();
            (dataset.schema(), side_by_side(&numbers, |number| dataset.shard(*number))?)
        }
        Opened::Shard(shard) => (shard.schema(), vec![shard]),
    };
    let lens = side_by_side(&shards, |shard| shard.file_lens()).map_err(DatasetError::from)?;
    let mut fields = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        let (mut bytes, mut values) = (0, 0);
        for (shard, lens) in shards.iter().zip(&lens) {
            for file in field.files() {
                let missing = || ReadError::Missing { path: shard.path().join(&file.name) };
                bytes += lens.get(&file.name).ok_or_else(missing).map_err(DatasetError::from)?;
            }
            if field.kind == Kind::Interned {
                values += shard.n_values(index).map_err(DatasetError::from)?;
            }
        }
        fields.push(FieldContents {
            name: field.name.clone(),
            form: form(field),
            bytes,
            values: (field.kind == Kind::Interned).then_some(values),
        });
    }
    let mut listed = Vec::new();
    let mut rejects = Rejects::default();
    for (number, (shard, lens)) in shards.iter().zip(&lens).enumerate() {
        rejects.add(shard)?;
        let url = shard.remote_url().map(str::to_owned);
        let bytes = match &opened {
            Opened::Dataset(dataset) if url.is_some() => {
                dataset.entries().get(number).map_or(0, |entry| entry.bytes)
            }
            _ => lens.values().sum(),
        };
        listed.push(ShardContents { id: shard.id().to_owned(), rows: shard.n_rows(), bytes, url });
    }
    let path = match &opened {
        Opened::Dataset(dataset) => dataset.path(),
        Opened::Shard(shard) => shard.path(),
    };
    Ok(Contents {
        version: REPORT_VERSION,
        path: path.display().to_string(),
        rows: shards.iter().map(|shard| shard.n_rows()).sum(),
        bytes: listed.iter().map(|shard| shard.bytes).sum(),
        fields,
        shards: listed,
        rejects: rejects.reports(),
    })
}

/// One row of the dataset or shard at `path`.
///
/// # Errors
/// As [`contents()`]; a row past the end.
pub fn row(path: &Path, number: u64) -> Result<RowContents, PipelineError> {
    row_of(&open(path)?, number)
}

/// The row with this key, of the dataset or shard at `path`. A number is written as one.
///
/// # Errors
/// As [`contents()`]; rows have no key, or none has this one.
pub fn row_with_key(path: &Path, key: &str) -> Result<RowContents, PipelineError> {
    let opened = open(path)?;
    let schema = match &opened {
        Opened::Dataset(dataset) => dataset.schema(),
        Opened::Shard(shard) => shard.schema(),
    };
    let is_text = schema.key().is_some_and(|field| field.kind != Kind::Fixed);
    let found = match key.parse::<i64>() {
        Ok(number) if !is_text => find(&opened, number.into())?,
        _ => find(&opened, key.into())?,
    };
    match found {
        Some(number) => row_of(&opened, number),
        None => Err(DatasetError::NoSuchKey { key: key.to_owned() }.into()),
    }
}

fn find(opened: &Opened, key: Key<'_>) -> Result<Option<u64>, DatasetError> {
    match opened {
        Opened::Dataset(dataset) => dataset.find(key),
        Opened::Shard(shard) => Ok(shard.find(key)?),
    }
}

fn row_of(opened: &Opened, number: u64) -> Result<RowContents, PipelineError> {
    let (shard, row_in_shard) = match opened {
        Opened::Dataset(dataset) => dataset.row(number)?,
        Opened::Shard(shard) if number < shard.n_rows() => (&**shard, number),
        Opened::Shard(shard) => {
            return Err(DatasetError::NoRow { row: number, n_rows: shard.n_rows() }.into());
        }
    };
    let elsewhere = Elsewhere::default();
    let rows = elsewhere.read(shard, |shard| shard.record_batch(row_in_shard..row_in_shard + 1))?;
    let provenance = shard.provenance().map_err(DatasetError::from)?;
    let position = provenance.position(row_in_shard).unwrap_or_default();
    let (source, place) = origin(shard, position.input, position.source_row)?;
    Ok(RowContents {
        version: REPORT_VERSION,
        row: number,
        shard: shard.id().to_owned(),
        row_in_shard,
        source,
        place,
        values: values(shard.schema(), &rows)?,
    })
}

/// The source and place of a source row of the shard.
pub(super) fn origin(
    shard: &Shard,
    input: u32,
    source_row: u64,
) -> Result<(Option<String>, RowPlace), PipelineError> {
    let found = shard.origin(input, source_row).map_err(DatasetError::from)?;
    Ok(match found {
        Some(Origin { source, place }) => (source, place),
        None => (None, RowPlace::new("an unknown input", None, source_row)),
    })
}

fn values(schema: &RowSchema, rows: &RecordBatch) -> Result<Vec<(String, Value)>, PipelineError> {
    let named = schema.fields().iter().zip(rows.columns());
    named
        .map(|(field, column)| Ok((field.name.clone(), value(field, column)?)))
        .collect::<Result<_, arrow_schema::ArrowError>>()
        .map_err(PipelineError::Show)
}

/// The first value of a column.
fn value(field: &Field, column: &ArrayRef) -> Result<Value, arrow_schema::ArrowError> {
    if column.is_null(0) {
        return Ok(Value::Null);
    }
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(column, &options)?.value(0).try_to_string()?;
    // What Arrow writes of numbers and lists of them is JSON, but for NaN and infinities.
    let is_text = field.is_bytes()
        || field.categories.is_some()
        || matches!(field.logical, Some(Logical::Decimal128 { .. }));
    Ok(match serde_json::from_str(&text) {
        Ok(value) if field.logical == Some(Logical::Bfloat16) => from_bfloat16(value),
        Ok(value) if !is_text => value,
        _ => Value::String(text),
    })
}

/// The numbers whose bits Arrow takes for unsigned integers.
fn from_bfloat16(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(from_bfloat16).collect(),
        other => match other.as_u64().and_then(|bits| u16::try_from(bits).ok()) {
            Some(bits) => {
                let number = half::bf16::from_bits(bits).to_f64();
                serde_json::Number::from_f64(number)
                    .map_or(number.to_string().into(), Value::Number)
            }
            None => other,
        },
    }
}
