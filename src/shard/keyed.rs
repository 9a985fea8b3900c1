//! Rows under 32-byte keys, sealed in one go: a segment of a feature cache.
//!
//! The folder is a shard's in all but what tells where rows come from: the files of its fields,
//! `schema.json`, `shapes.json`, `blocks.bin`, `B3SUMS` and `_COMPLETE`. `keys.bin` holds the keys in
//! row order.
//!
//! Invariants:
//! 1. The sentinel is written last. A folder without one was promised to nobody.
//! 2. Nothing is written again.

use std::path::PathBuf;

use super::error::ShardError;
use super::fields::Fields;
use super::file::ShardFile;
use super::options::ShardLimits;
use super::{layout, seal};
use crate::schema::{Column, RowSchema};
use crate::storage::Storage;

/// Bytes of a key.
pub(crate) const ROW_KEY_BYTES: usize = 32;

/// A folder can hold any rows that their numbers can count.
const LIMITS: ShardLimits = ShardLimits {
    bytes: u64::MAX,
    rows: u32::MAX as u64,
    intern_values: i32::MAX as u64,
    row_bytes: u64::MAX,
};

/// A folder of keyed rows that is being written.
#[derive(Debug)]
pub(crate) struct KeyedWriter<'a> {
    storage: &'a dyn Storage,
    dir: PathBuf,
    schema: &'a RowSchema,
    fields: Fields,
    keys: ShardFile,
}

/// A folder of keyed rows that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyedRows {
    /// The first 32 hex digits of the BLAKE3 of its `B3SUMS`.
    pub(crate) b3: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl<'a> KeyedWriter<'a> {
    /// Makes the folder, in one that is there.
    pub(crate) fn create(
        storage: &'a dyn Storage,
        dir: PathBuf,
        schema: &'a RowSchema,
    ) -> Result<Self, ShardError> {
        storage.create_dir(&dir)?;
        let fields = Fields::create(storage, &dir, schema)?;
        let keys = ShardFile::create(storage, &dir, layout::KEYS)?;
        Ok(Self { storage, dir, schema, fields, keys })
    }

    /// Appends the rows of `columns`, which are as many as `keys`.
    pub(crate) fn append(
        &mut self,
        keys: &[[u8; ROW_KEY_BYTES]],
        columns: &[Column],
    ) -> Result<(), ShardError> {
        let n_rows = self.fields.append(columns, 0, keys.len(), &LIMITS)?;
        if n_rows != keys.len() {
            return Err(ShardError::Limits("more rows than a segment can hold; commit earlier"));
        }
        self.keys.append(keys.as_flattened())
    }

    /// Completes the folder.
    ///
    /// # Durability
    /// On `Ok` what is in the folder survives a power cut, and its name once its parent is synced.
    pub(crate) fn seal(self) -> Result<KeyedRows, ShardError> {
        let Self { storage, dir, schema, mut fields, mut keys } = self;
        let (rows, entries) = (fields.n_rows(), fields.entries());
        for file in fields.files_mut().chain([&mut keys]) {
            file.sync()?;
        }
        let mut sums = fields.into_sums()?;
        sums.push(keys.into_sums()?);
        for (name, document) in [
            (layout::SCHEMA, schema.to_json()),
            (layout::SHAPES, schema.shapes_json(rows, &entries)),
        ] {
            let mut file = ShardFile::create(storage, &dir, name)?;
            file.append(&layout::document(&document))?;
            file.sync()?;
            sums.push(file.into_sums()?);
        }
        let (sums_b3, bytes) = seal::close(storage, &dir, sums, rows)?;
        Ok(KeyedRows { b3: seal::id_of(&sums_b3), rows, bytes })
    }
}
