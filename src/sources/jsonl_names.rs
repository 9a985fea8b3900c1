//! The names of an object's keys, to find those that stand twice.
//!
//! Leaves out: which of them have columns, and what is said of a bad row.
//!
//! Invariants:
//! 1. However many names the objects of a line have, what is held of them is at most `most_bytes`
//!    and, for each level that they nest, [`MOST_SHORT`] names: a line of them takes many times the
//!    line as a set of texts.

use std::borrow::Cow;
use std::collections::HashSet;

/// So many names of an object are kept as they are; of more, 16 bytes of their BLAKE3.
const MOST_SHORT: usize = 128;
const DIGEST_BYTES: usize = size_of::<u128>();

/// What is wrong with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It stands twice.
    Twice,
    /// There are too many to hold them.
    TooMany,
}

/// Bytes that are held for the names of all objects which are open at once.
#[derive(Debug, Default)]
pub(super) struct Room {
    n_bytes: usize,
    most_bytes: usize,
}

impl Room {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self { n_bytes: 0, most_bytes }
    }

    /// Begins another line.
    pub(super) fn clear(&mut self) {
        self.n_bytes = 0;
    }
}

/// The names of one object.
#[derive(Debug, Default)]
pub(super) struct Names<'a> {
    short: HashSet<Cow<'a, str>>,
    long: Vec<u128>,
}

impl<'a> Names<'a> {
    /// Notes a name. One that stands twice may be told only by [`Names::end`].
    pub(super) fn add(&mut self, name: Cow<'a, str>, room: &mut Room) -> Result<(), Wrong> {
        if self.long.is_empty() && self.short.len() < MOST_SHORT {
            return if self.short.insert(name) { Ok(()) } else { Err(Wrong::Twice) };
        }
        for name in std::mem::take(&mut self.short) {
            self.add_digest(&name, room)?;
        }
        self.add_digest(&name, room)
    }

    fn add_digest(&mut self, name: &str, room: &mut Room) -> Result<(), Wrong> {
        room.n_bytes += DIGEST_BYTES;
        if room.n_bytes > room.most_bytes {
            return Err(Wrong::TooMany);
        }
        let digest = blake3::hash(name.as_bytes());
        let first = digest.as_bytes().first_chunk().copied().unwrap_or_default();
        self.long.push(u128::from_le_bytes(first));
        Ok(())
    }

    /// Ends the object; whether a name stands twice is known now.
    pub(super) fn end(mut self, room: &mut Room) -> Result<(), Wrong> {
        room.n_bytes = room.n_bytes.saturating_sub(self.long.len() * DIGEST_BYTES);
        self.long.sort_unstable();
        let is_twice = self.long.array_windows().any(|[one, next]| one == next);
        if is_twice { Err(Wrong::Twice) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(names: impl Iterator<Item = String>, room: &mut Room) -> Result<(), Wrong> {
        let mut held = Names::default();
        for name in names {
            held.add(Cow::Owned(name), room)?;
        }
        held.end(room)
    }

    fn numbers(n: usize) -> impl Iterator<Item = String> {
        (0..n).map(|i| i.to_string())
    }

    #[test]
    fn a_name_that_stands_twice_is_found_among_few_and_many() {
        for n in [1, 2, MOST_SHORT - 1, MOST_SHORT, MOST_SHORT + 1, 10 * MOST_SHORT] {
            let mut room = Room::new(usize::MAX);
            assert_eq!(names_of(numbers(n), &mut room), Ok(()), "{n} names");
            for again in [0, n / 2, n - 1] {
                let names = numbers(n).chain([again.to_string()]);
                assert_eq!(names_of(names, &mut room), Err(Wrong::Twice), "{n} names and {again}");
            }
            assert_eq!(room.n_bytes, 0, "{n} names");
        }
    }

    #[test]
    fn objects_that_are_open_at_once_share_the_room() {
        let n = 2 * MOST_SHORT;
        let mut room = Room::new(2 * n * DIGEST_BYTES);
        let mut outer = Names::default();
        for name in numbers(n) {
            outer.add(Cow::Owned(name), &mut room).unwrap();
        }
        for _ in 0..3 {
            assert_eq!(names_of(numbers(n), &mut room), Ok(()));
        }
        assert_eq!(names_of(numbers(n + 1), &mut room), Err(Wrong::TooMany));
        room.clear();
        assert_eq!(names_of(numbers(n), &mut room), Ok(()));
    }
}
