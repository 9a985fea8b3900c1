//! `keys.bin`: the hashes of a shard's keys, sorted, each with its row.
//!
//! Invariant: of the keys themselves a piece is in memory at a time, however large they are.

use std::path::Path;

use super::error::ShardError;
use super::file::ShardFile;
use super::stream::{CHUNK_BYTES, Stream};
use crate::schema::{Field, FileRole, KeyHash, Kind, integer, key_hash_bytes, key_hash_int};
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
                if n <= CHUNK_BYTES {
                    hashes.push(entry(key_hash_bytes(values.take(n)?), row));
                    continue;
                }
                let mut hash = KeyHash::default();
                values.pieces(n, |piece| {
                    hash.update(piece);
                    Ok::<_, ShardError>(())
                })?;
                hash.finish()
            }
        };
        hashes.push(entry(hash, row));
    }
    hashes.sort_unstable();
    for [high, low, row] in hashes {
        let hash = u64::from(high) << 32 | u64::from(low);
        let mut packed = [0; 12];
        packed[..8].copy_from_slice(&hash.to_le_bytes());
        packed[8..].copy_from_slice(&row.to_le_bytes());
        to.append(&packed)?;
    }
    Ok(())
}

/// A hash and its row, as they are sorted.
fn entry(hash: u64, row: u32) -> [u32; 3] {
    [word(hash >> 32), word(hash), row]
}

/// The lower half of a hash.
fn word(hash: u64) -> u32 {
    let [low @ .., _, _, _, _] = hash.to_le_bytes();
    u32::from_le_bytes(low)
}
