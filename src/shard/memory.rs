//! What a writer may hold in memory beside the batch that it is given.

use super::interner;
use super::options::ShardLimits;
use crate::schema::{Kind, RowSchema};

/// One value of an interner: key and code in a table that is at least half empty while it grows.
const VALUE_BYTES: u64 = 80;
/// One open file: what is gathered before it is written.
const FILE_BYTES: u64 = 192 << 10;
/// One key while the keys of a shard are sorted.
const KEY_BYTES: u64 = 12;
/// A row group of the index while it is written, and the commit that overlaps with writing.
const SEAL_BYTES: u64 = 16 << 20;

/// Most bytes that a [`Writer`](super::Writer) of such rows holds beside the batch that it is given.
#[must_use]
pub fn memory_bytes(schema: &RowSchema, limits: &ShardLimits) -> u64 {
    let fields = schema.fields();
    let files: usize = fields.iter().map(|field| field.files().len()).sum();
    let interned = fields.iter().filter(|field| field.kind == Kind::Interned).count() as u64;
    let values = limits.intern_values.min(limits.rows).saturating_mul(VALUE_BYTES);
    let values = values.saturating_add(interner::KEPT_BYTES as u64);
    let last_values = if interned > 0 { limits.row_bytes } else { 0 };
    let keys = schema.key().map_or(0, |_| limits.rows.saturating_mul(KEY_BYTES));
    interned
        .saturating_mul(values)
        .saturating_add(keys)
        .saturating_add(last_values)
        .saturating_add(files as u64 * FILE_BYTES)
        .saturating_add(SEAL_BYTES)
}
