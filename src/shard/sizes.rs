//! How large the files of a shard are, by what its schema and shapes say.

use std::collections::BTreeMap;

use serde_json::Value;

use super::layout;
use super::read_error::ReadError;
use super::reader::{KEY_BYTES, Shard};
use super::remote_sentinel::dropped_files;
use crate::schema::{FileRole, Kind, RowSchema};

impl Shard {
    /// The sizes of the files of rows, of a shard whose rows are elsewhere.
    ///
    /// # Errors
    /// The storage refuses.
    pub(super) fn dropped_lens(&self) -> Result<BTreeMap<String, u64>, ReadError> {
        let shapes = self.folder().storage.read(&self.path().join(layout::SHAPES))?;
        let shapes = serde_json::from_slice(&shapes.unwrap_or_default()).unwrap_or_default();
        let mut lens = field_lens(self.schema(), &shapes);
        let dropped = dropped_files(self.schema());
        lens.retain(|name, _| dropped.contains(name));
        Ok(lens)
    }
}

/// The sizes of field files and keys, by schema and shapes.
pub(super) fn field_lens(schema: &RowSchema, shapes: &Value) -> BTreeMap<String, u64> {
    let mut lens = BTreeMap::new();
    let Some(n_rows) = shapes.get("n").and_then(Value::as_u64) else { return lens };
    for field in schema.fields() {
        let shape = shapes.get(&field.stem).and_then(|entry| entry.get("shape"));
        let entries = shape.and_then(|shape| shape.get(0)?.as_u64());
        let unit = field.unit_bytes() as u64;
        for file in field.files() {
            let len = match file.role {
                FileRole::Values if field.kind == Kind::Fixed => n_rows.checked_mul(unit),
                FileRole::Values => entries.and_then(|entries| entries.checked_mul(unit)),
                FileRole::Offsets => n_rows.checked_add(1).and_then(|n| n.checked_mul(8)),
                FileRole::Dims => n_rows.checked_mul(4 * field.shape.len() as u64),
                FileRole::Valid => Some(n_rows),
                FileRole::Codes => n_rows.checked_mul(4),
                FileRole::Dict | FileRole::DictOffsets | FileRole::Sidecar => None,
            };
            lens.extend(len.map(|len| (file.name, len)));
        }
    }
    if schema.key().is_some() {
        lens.extend(n_rows.checked_mul(KEY_BYTES as u64).map(|len| (layout::KEYS.to_owned(), len)));
    }
    lens
}
