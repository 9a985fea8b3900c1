//! What transforms share: finding columns, adding columns, and handing on what has grown in pieces.
//!
//! Leaves out: any value; each transform computes its own.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::{Emit, SettingsError, TransformError};
use crate::batch::{Batch, Outcome};

/// How like names are, from 0 to 1, of which one may be meant for the other.
const LIKE: f64 = 0.8;
/// Columns that are listed at most.
const MOST_NAMED: usize = 20;

/// The column `name`, which the setting `at` asks for.
pub(super) fn find<'a>(
    schema: &'a SchemaRef,
    at: &str,
    name: &str,
) -> Result<(usize, &'a FieldRef), SettingsError> {
    schema.fields().find(name).ok_or_else(|| {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let near = names.clone().max_by(|one, other| {
            strsim::jaro_winkler(one, name).total_cmp(&strsim::jaro_winkler(other, name))
        });
        let hint = near.map(|near| {
            if strsim::jaro_winkler(near, name) >= LIKE {
                return format!("did you mean `{near}`?");
            }
            let mut all: Vec<String> =
                names.take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
            let others = schema.fields().len() - all.len();
            if others > 0 {
                all.push(format!("and {others} more"));
            }
            format!("the columns are {}", all.join(", "))
        });
        SettingsError {
            at: vec![at.to_owned()],
            message: format!("there is no column `{name}`"),
            hint,
        }
    })
}

/// `schema` with more columns at its end; the setting `at` names them.
pub(super) fn append(
    schema: &SchemaRef,
    at: &str,
    added: impl IntoIterator<Item = Field>,
) -> Result<SchemaRef, SettingsError> {
    let mut fields: Vec<FieldRef> = schema.fields().to_vec();
    for field in added {
        if fields.iter().any(|f| f.name() == field.name()) {
            return Err(SettingsError {
                at: vec![at.to_owned()],
                message: format!("there is already a column `{}`", field.name()),
                hint: Some(format!("choose another `{at}`")),
            });
        }
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}

/// A column of texts or byte strings.
pub(super) enum Strings<'a> {
    Utf8(&'a arrow_array::StringArray),
    LargeUtf8(&'a arrow_array::LargeStringArray),
    Binary(&'a arrow_array::BinaryArray),
    LargeBinary(&'a arrow_array::LargeBinaryArray),
}

impl<'a> Strings<'a> {
    pub(super) fn of(column: &'a ArrayRef) -> Option<Self> {
        match column.data_type() {
            DataType::Utf8 => column.as_string_opt().map(Self::Utf8),
            DataType::LargeUtf8 => column.as_string_opt().map(Self::LargeUtf8),
            DataType::Binary => column.as_binary_opt().map(Self::Binary),
            DataType::LargeBinary => column.as_binary_opt().map(Self::LargeBinary),
            _ => None,
        }
    }

    /// The bytes of row `row`, `None` where it is null.
    pub(super) fn get(&self, row: usize) -> Option<&'a [u8]> {
        match self {
            Self::Utf8(a) => a.is_valid(row).then(|| a.value(row).as_bytes()),
            Self::LargeUtf8(a) => a.is_valid(row).then(|| a.value(row).as_bytes()),
            Self::Binary(a) => a.is_valid(row).then(|| a.value(row)),
            Self::LargeBinary(a) => a.is_valid(row).then(|| a.value(row)),
        }
    }
}

pub(super) fn is_text(of: &DataType) -> bool {
    matches!(of, DataType::Utf8 | DataType::LargeUtf8)
}

pub(super) fn is_string(of: &DataType) -> bool {
    is_text(of) || matches!(of, DataType::Binary | DataType::LargeBinary)
}

/// A batch does not have the columns that the graph was checked with: a mistake of ours.
pub(super) fn unexpected(error: &SettingsError) -> TransformError {
    TransformError::Arrow(ArrowError::SchemaError(error.to_string()))
}

/// Hands on `batch` with the columns that `compute` makes of a slice of it, which together have
/// `row_bytes` a row more than before: in as many pieces as keep within `batch_bytes`.
pub(super) fn emit_pieces(
    batch: &Batch,
    schema: &SchemaRef,
    row_bytes: usize,
    emit: &mut dyn Emit,
    compute: impl Fn(&Batch) -> Result<Vec<ArrayRef>, TransformError>,
) -> Result<(), TransformError> {
    emit_kept(batch, 0, schema, row_bytes, emit, |piece| Ok((compute(piece)?, Vec::new())))
}

/// Rows that leave a batch, in ascending order, and what becomes of them.
pub(super) type Gone = Vec<(usize, Outcome)>;

/// The same where rows may go: `compute` also lists those of the slice that do, in the stage of
/// index `stage`. The columns have a value for them too.
pub(super) fn emit_kept(
    batch: &Batch,
    stage: usize,
    schema: &SchemaRef,
    row_bytes: usize,
    emit: &mut dyn Emit,
    compute: impl Fn(&Batch) -> Result<(Vec<ArrayRef>, Gone), TransformError>,
) -> Result<(), TransformError> {
    let n_rows = batch.rows.num_rows();
    let input_bytes = batch.rows.columns().iter();
    let input_bytes: usize =
        input_bytes.map(|c| c.to_data().get_slice_memory_size().unwrap_or(0)).sum();
    let output_bytes = input_bytes + n_rows * row_bytes;
    let n_pieces = output_bytes.div_ceil(emit.batch_bytes().max(1)).max(1);
    let piece_rows = (n_rows / n_pieces).max(1);
    let mut start = 0;
    loop {
        let piece = batch.slice(start, piece_rows.min(n_rows - start));
        start += piece.rows.num_rows();
        let (columns, gone) = compute(&piece)?;
        let rows = RecordBatch::try_new(Arc::clone(schema), columns)?;
        emit.emit(Batch { rows, ..piece }.without(stage, gone)?)?;
        if start == n_rows {
            return Ok(());
        }
    }
}

/// The columns of `batch`, and more.
pub(super) fn with(batch: &Batch, added: impl IntoIterator<Item = ArrayRef>) -> Vec<ArrayRef> {
    batch.rows.columns().iter().cloned().chain(added).collect()
}
