//! `keys.bin`: the hashes of a shard's keys, sorted, each with its row.

use std::path::Path;

use super::error::ShardError;
use super::file::ShardFile;
use super::stream::Stream;
use crate::schema::{Field, FileRole, Kind, integer, key_hash_bytes, key_hash_int};
use crate::storage::Storage;

/// Writes `keys.bin`: packed (`u64` hash, `u32` row), sorted by both.
pub(super) fn write(
    storage: &dyn Storage,
    dir: &Path,
    key: &Field,
    n_rows: u64,
    to: &mut ShardFile,
) -> Result<(), ShardError> {
    // Twelve bytes per row, compared as hash and row.
    let mut hashes: Vec<[u32; 3]> = Vec::new();
    let open = |role| {
        let files = key.files();
        let file = files.iter().find(|file| file.role == role).map_or("", |file| &file.name);
        Stream::open(storage, &dir.join(file))
    };
    let mut values = open(FileRole::Values)?;
    let mut offsets = match key.kind {
        Kind::Fixed => None,
        Kind::Ragged | Kind::Free | Kind::Interned => Some(open(FileRole::Offsets)?),
    };
    let mut from = offsets.as_mut().map_or(Ok(0), Stream::take_i64)?;
    for row in 0..u32::try_from(n_rows).unwrap_or(u32::MAX) {
        let hash = match &mut offsets {
            None => key_hash_int(integer(values.take(key.unit_bytes())?, key.dtype)),
            Some(offsets) => {
                let to = offsets.take_i64()?;
                let n = usize::try_from(to - from).unwrap_or_default();
                from = to;
                key_hash_bytes(values.take(n)?)
            }
        };
        hashes.push([word(hash >> 32), word(hash), row]);
    }
    hashes.sort_unstable();
    for [high, low, row] in hashes {
        let hash = u64::from(high) << 32 | u64::from(low);
        let mut entry = [0; 12];
        entry[..8].copy_from_slice(&hash.to_le_bytes());
        entry[8..].copy_from_slice(&row.to_le_bytes());
        to.append(&entry)?;
    }
    Ok(())
}

/// The lower half of a hash.
fn word(hash: u64) -> u32 {
    let [low @ .., _, _, _, _] = hash.to_le_bytes();
    u32::from_le_bytes(low)
}
