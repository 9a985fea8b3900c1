//! Replaces values by codes: hash → code. Of the values themselves only a few are kept, because
//! comparing large ones is faster than hashing them.
//!
//! Leaves out: the dictionary's files (`fields`).
//!
//! Invariants:
//! 1. Codes count up from 0 in the order in which values are first seen.
//! 2. Values of equal hash are one value: the keys are the first 128 bits of BLAKE3, where two
//!    values of equal hash will not be found by chance or on purpose.
//! 3. Which values are kept never shows in a code.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// Most bytes of values that an interner keeps.
pub(super) const KEPT_BYTES: usize = 4 << 20;

/// Most bytes of a value that is kept only until the next one comes. A larger one is hashed again: the
/// last values of several fields may be from several rows, so together they may be larger than a row.
pub(super) const LAST_BYTES: usize = 1 << 20;

/// What keeping a value takes beside its bytes.
const ENTRY_BYTES: usize = 192;

/// Most values kept that look alike: each is compared before a value is hashed.
const MOST_ALIKE: usize = 4;

/// Values that look alike, with their codes.
type Alike = Vec<(Box<[u8]>, i32)>;

/// The values of one interned field of one shard.
#[derive(Debug, Default)]
pub(super) struct Interner {
    codes: HashMap<Key, i32, BuildHasherDefault<FirstWord>>,
    /// The first values, as many as [`KEPT_BYTES`] hold, with their codes.
    kept: HashMap<Quick, Alike>,
    kept_bytes: usize,
    /// The value that was hashed last: neighbouring rows often have the same.
    last: Vec<u8>,
    last_code: Option<i32>,
}

/// Length of a value and a checksum of some of it: what the kept ones are found by.
type Quick = (usize, u32);

/// Of values larger than this, only pieces are summed: as many, of this size together.
const SUMMED_BYTES: usize = 4096;
const SUMMED_PIECES: usize = 16;

fn quick(value: &[u8]) -> Quick {
    let sum = if value.len() <= SUMMED_BYTES {
        crc32fast::hash(value)
    } else {
        let mut sum = crc32fast::Hasher::new();
        for stretch in value.chunks(value.len().div_ceil(SUMMED_PIECES)) {
            let piece = stretch.len().min(SUMMED_BYTES / SUMMED_PIECES);
            sum.update(&stretch[stretch.len() - piece..]);
        }
        sum.finalize()
    };
    (value.len(), sum)
}

/// What an interner says of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// It was seen before.
    Known(i32),
    /// It is seen for the first time, and has this code from now on.
    New(i32),
}

/// Half the BLAKE3 of a value; in two words, because a `u128` would be padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key([u64; 2]);

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

/// Takes the first word of a hash for the hash: it is as random as one can be.
#[derive(Debug, Default)]
struct FirstWord(u64);

impl Hasher for FirstWord {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Interner {
    /// The code of `value`. `None` when there are more values than codes.
    pub(super) fn code(&mut self, value: &[u8]) -> Option<Code> {
        let quick = quick(value);
        let alike = self.kept.get(&quick).map_or(&[][..], Vec::as_slice);
        if let Some((_, code)) = alike.iter().find(|(kept, _)| **kept == *value) {
            return Some(Code::Known(*code));
        }
        if let Some(code) = self.last_code.filter(|_| self.last == value) {
            return Some(Code::Known(code));
        }
        let next = i32::try_from(self.codes.len()).ok()?;
        let code = match self.codes.entry(key(value)) {
            Entry::Occupied(known) => Code::Known(*known.get()),
            Entry::Vacant(vacant) => Code::New(*vacant.insert(next)),
        };
        let (Code::Known(number) | Code::New(number)) = code;
        self.keep(quick, value, number);
        Some(code)
    }

    /// Keeps a value that had to be hashed, so that it need not be the next time.
    fn keep(&mut self, quick: Quick, value: &[u8], code: i32) {
        let bytes = self.kept_bytes + value.len() + ENTRY_BYTES;
        let alike = self.kept.get(&quick).map_or(0, Vec::len);
        if bytes <= KEPT_BYTES && alike < MOST_ALIKE {
            self.kept.entry(quick).or_default().push((value.into(), code));
            self.kept_bytes = bytes;
            return;
        }
        self.last.clear();
        self.last_code = (value.len() <= LAST_BYTES).then_some(code);
        if self.last_code.is_some() {
            self.last.extend_from_slice(value);
        }
    }

    /// Number of distinct values.
    pub(super) fn n_values(&self) -> u64 {
        self.codes.len() as u64
    }
}

fn key(value: &[u8]) -> Key {
    let hash = blake3::hash(value);
    let (words, _) = hash.as_bytes().as_chunks::<8>();
    let word = |i: usize| words.get(i).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Key([word(0), word(1)])
}

#[cfg(test)]
mod tests {
    use super::Code::{Known, New};
    use super::*;

    #[test]
    fn codes_count_up_in_the_order_of_first_sight() {
        let mut interner = Interner::default();
        let mut seen = Vec::new();
        for value in ["b", "a", "a", "b", "", "c", ""] {
            seen.push(interner.code(value.as_bytes()).unwrap());
        }
        assert_eq!(seen, [New(0), New(1), Known(1), Known(0), New(2), New(3), Known(2)]);
        assert_eq!(interner.n_values(), 4);
    }

    #[test]
    fn values_have_their_codes_whether_they_are_kept_or_not() {
        // A part of these is kept; two of equal length and CRC-32 are among them.
        let mut values: Vec<Vec<u8>> = (0..24_u32)
            .map(|n| n.to_le_bytes().repeat(KEPT_BYTES / 32))
            .chain(["plumless", "buckeroo"].map(|text| text.as_bytes().to_vec()))
            .collect();
        assert_eq!(crc32fast::hash(b"plumless"), crc32fast::hash(b"buckeroo"));
        values.rotate_right(2);
        // More values that look alike than are kept: they differ where nothing is summed.
        let alike = (0_u8..).take(2 * MOST_ALIKE).map(|n| {
            let mut value = vec![7; 20_000];
            value[5] = n;
            value
        });
        values.splice(2..2, alike);
        assert_eq!(quick(&values[2]), quick(&values[3]));
        let mut interner = Interner::default();
        for (code, value) in (0..).zip(&values) {
            assert_eq!(interner.code(value), Some(Code::New(code)));
            assert_eq!(interner.code(value), Some(Code::Known(code)));
        }
        for (code, value) in (0..).zip(&values) {
            assert_eq!(interner.code(value), Some(Code::Known(code)));
        }
        assert!(interner.kept_bytes <= KEPT_BYTES && interner.kept.len() < values.len());
        // Nor is a large value kept because it was the last.
        for _ in 0..2 {
            let code = interner.code(&vec![1; 2 * KEPT_BYTES]);
            assert!(code.is_some() && interner.last.capacity() <= 2 * LAST_BYTES);
        }
    }
}
