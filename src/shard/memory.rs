//! What a writer may hold in memory beside the batch that it is given.
//!
//! Rows are appended to the files of all fields; when the shard is full these are closed, and its index
//! is made. Never both at once. Keys and the values of sidecars are read a piece at a time.

use super::fields::GATHERED_BYTES;
use super::file::CHUNK_BYTES;
use super::index::{COLUMN_BYTES, COPIES, GROUP_BYTES, GROUP_ROWS};
use super::interner;
use super::options::ShardLimits;
use super::sift;
use crate::schema::{Field, Kind, Logical, RowSchema};

/// One value of an interner: key and code in a table that is at least half empty while it grows.
const VALUE_BYTES: u64 = 80;
/// One open file beside what it gathers: its sums, its name, and its line in a commit.
const FILE_BYTES: u64 = 4 << 10;
/// One file that is read forwards, or whose values are put together for the index.
const STREAM_BYTES: u64 = 192 << 10;
/// One key while the keys of a shard are sorted.
const KEY_BYTES: u64 = 12;
/// Values of a row group of the index while it is written, and the commit that overlaps with writing.
const SEAL_BYTES: u64 = COPIES * GROUP_BYTES;

/// Most bytes that a [`Writer`](super::Writer) of such rows holds beside the batch that it is given.
#[must_use]
pub fn memory_bytes(schema: &RowSchema, limits: &ShardLimits) -> u64 {
    let fields = schema.fields();
    let interned = fields.iter().filter(|field| field.kind == Kind::Interned).count() as u64;
    let values = limits.intern_values.min(limits.rows).saturating_mul(VALUE_BYTES);
    // The last value, in a buffer that may have grown to twice its size.
    let values = values.saturating_add((interner::KEPT_BYTES + 2 * interner::LAST_BYTES) as u64);
    // Rows that become JSON, before they are in the files.
    let is_json = |field: &Field| field.logical == Some(Logical::Json);
    let texts = if fields.iter().any(is_json) { sift::text_bytes(limits.row_bytes) } else { 0 };
    let keys = schema.key().map_or(0, |_| limits.rows.saturating_mul(KEY_BYTES));
    interned
        .saturating_mul(values)
        .saturating_add(keys)
        .saturating_add(texts)
        .saturating_add(files_bytes(fields, interned).max(index_bytes(schema, limits)))
        .saturating_add(SEAL_BYTES)
}

/// Most bytes that all [`Writer`](super::Writer)s of a process hold together beside that: a row on
/// its way into an index whose values are larger than a row group should be.
#[must_use]
pub fn shared_bytes(schema: &RowSchema, limits: &ShardLimits) -> u64 {
    let is_large = |field: &Field| field.kind != Kind::Fixed && is_indexed(schema, field);
    if limits.row_bytes <= GROUP_BYTES || !schema.fields().iter().any(is_large) {
        return 0;
    }
    limits.row_bytes.saturating_mul(COPIES)
}

/// Whether the field's values are in the index.
fn is_indexed(schema: &RowSchema, field: &Field) -> bool {
    field.index || schema.key().is_some_and(|key| key.name == field.name)
}

/// The open files of a shard.
fn files_bytes(fields: &[Field], interned: u64) -> u64 {
    let n_files = fields.iter().map(|field| field.files().len() as u64).sum::<u64>();
    let chunk = CHUNK_BYTES as u64;
    // Dictionaries are appended to before it is looked at how much is gathered.
    let most = GATHERED_BYTES as u64 + chunk * (2 * interned + 4);
    n_files.saturating_mul(FILE_BYTES).saturating_add(n_files.saturating_mul(chunk).min(most))
}

/// The columns of the index, a row group of each, and the files that they are made from.
fn index_bytes(schema: &RowSchema, limits: &ShardLimits) -> u64 {
    let per_row = schema.fixed_row_bytes().max(1);
    // A shard ends with the row that reaches its limit.
    let rows = limits.rows.min(limits.bytes.div_ceil(per_row).saturating_add(1));
    let group = rows.min(GROUP_ROWS as u64);
    let column = |field: &Field| {
        if is_indexed(schema, field) {
            return (field.files().len() as u64 + 1) * STREAM_BYTES;
        }
        match field.kind {
            // A code for each row, as it is read and as a number of the index, twice.
            Kind::Interned => STREAM_BYTES.min(4 * rows) + 24 * group + COLUMN_BYTES,
            // A byte for each row, and a bit of the index.
            _ if field.nullable => STREAM_BYTES.min(rows) + group / 2 + COLUMN_BYTES,
            _ => 0,
        }
    };
    schema.fields().iter().map(column).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_schema::{DataType, Field as ArrowField, Schema};

    use super::*;

    fn numbers(n: usize) -> RowSchema {
        let field = |i| ArrowField::new(format!("c{i}"), DataType::Int64, true);
        let columns = Schema::new((0..n).map(field).collect::<Vec<_>>());
        RowSchema::infer(&columns, &BTreeMap::new(), None).unwrap()
    }

    #[test]
    fn many_columns_take_little_more_than_their_files_and_their_place_in_the_index() {
        let limits = ShardLimits { row_bytes: 1 << 20, ..ShardLimits::default() };
        let mib = |n| memory_bytes(&numbers(n), &limits) >> 20;
        for (n, want) in [(1, 16..=17), (10, 18..=19), (100, 40..=45), (5000, 80..=160)] {
            assert!(want.contains(&mib(n)), "{n} columns: {} MiB", mib(n));
        }
    }
}
