//! Hashes of row keys.

use super::{Column, ColumnData, Dtype, RowSchema};

/// Hash of a key that is text: the first 8 bytes, little-endian, of the BLAKE3 of its UTF-8 bytes.
#[must_use]
pub fn key_hash_bytes(key: &[u8]) -> u64 {
    head(&blake3::hash(key))
}

fn head(hash: &blake3::Hash) -> u64 {
    hash.as_bytes().first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

/// The hash of a key whose bytes come in pieces: the same as [`key_hash_bytes`] of all of them.
#[derive(Debug, Default)]
pub(crate) struct KeyHash(blake3::Hasher);

impl KeyHash {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(crate) fn finish(&self) -> u64 {
        head(&self.0.finalize())
    }
}

/// Hash of a key that is an integer: the same of its 8 bytes as a little-endian `i64`.
#[must_use]
pub fn key_hash_int(key: i64) -> u64 {
    key_hash_bytes(&key.to_le_bytes())
}

impl RowSchema {
    /// The hash of each row's key; `None` where rows have no key.
    #[must_use]
    pub fn key_hashes(&self, columns: &[Column]) -> Option<Vec<u64>> {
        let key = self.key_index()?;
        let (field, column) = (self.fields().get(key)?, columns.get(key)?);
        Some(match &column.data {
            ColumnData::Fixed { bytes } => bytes
                .as_slice()
                .chunks_exact(field.dtype.size())
                .map(|bytes| key_hash_int(integer(bytes, field.dtype)))
                .collect(),
            ColumnData::Ragged { .. } | ColumnData::Free { .. } | ColumnData::Interned { .. } => {
                let n_rows = column.offsets()?.len().saturating_sub(1);
                (0..n_rows).map(|row| key_hash_bytes(column.value(row))).collect()
            }
        })
    }
}

/// The integer that `bytes` hold, little-endian; negative where its first bit says so and the dtype
/// is signed.
#[must_use]
pub fn integer(bytes: &[u8], dtype: Dtype) -> i64 {
    let signed = matches!(dtype, Dtype::Int8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64);
    let negative = signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    for (wide, byte) in wide.iter_mut().zip(bytes) {
        *wide = *byte;
    }
    i64::from_le_bytes(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_value_when_widened() {
        for (bytes, dtype, want) in [
            (&[0xff][..], Dtype::Int8, -1),
            (&[0xff], Dtype::Uint8, 255),
            (&[0x00, 0x80], Dtype::Int16, -32768),
            (&[0x00, 0x80], Dtype::Uint16, 32768),
            (&[1, 0, 0, 0], Dtype::Int32, 1),
            (&[0xff; 4], Dtype::Uint32, 4_294_967_295),
            (&[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Dtype::Int64, -2),
        ] {
            assert_eq!(integer(bytes, dtype), want, "{dtype:?} {bytes:?}");
        }
    }

    #[test]
    fn hash_is_the_head_of_blake3() {
        // b3sum of nothing begins with af1349b9f5f9a1a6.
        assert_eq!(key_hash_bytes(b""), 0xa6a1_f9f5_b949_13af);
        assert_eq!(key_hash_int(7), key_hash_bytes(&[7, 0, 0, 0, 0, 0, 0, 0]));
    }
}
