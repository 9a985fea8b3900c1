//! Hot rows: the places of the rows that were asked for last.
//!
//! What is kept of a row is its key and its place, not its bytes. A hot row's time goes to the index: the
//! pages of each run are held against their sums and searched, the key is compared. Its bytes lie mapped
//! in the system's memory, and copying them from there takes as long as copying them from a map of our
//! own. A place is as small for a row of a megabyte as for one of 64 bytes, so the same memory keeps more
//! rows hot, no row is held twice, and no mapping is kept open.
//!
//! Who asks for more rows than there is room for, each once, would pay for places that nobody comes back
//! to: where there is no room left and hardly any key is known, one in [`SAMPLED`] is kept. Rows that are
//! asked for again and again are all kept soon, as more and more of them are known.
//!
//! The list is written out: a map and a list from elsewhere allocate for each row, or grow when rows come
//! and go, and what they take could only be estimated.
//!
//! Invariants:
//! 1. Never more than the bytes that were allowed, links and table included: all of it is taken when the
//!    first row is kept, and no more than for all rows that there are.
//! 2. A place belongs to one list of segments. When the list changes all places are forgotten, and who
//!    still looks at an older list finds and keeps nothing: a row that was replaced is never given.
//! 3. A place is kept only after the whole key was found there.
//! 4. Nobody waits for another: who finds the places in use asks the index.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::RowKey;
use super::view::Found;

/// What there is of hot rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HotStat {
    /// Bytes that may be held.
    pub most_bytes: u64,
    /// Bytes that are held, whether or not rows have filled them.
    pub bytes: u64,
    /// Rows whose places are known.
    pub rows: u64,
    /// Keys whose places were known when they were asked for.
    pub hits: u64,
    /// Keys for which the index was asked.
    pub misses: u64,
}

/// The hot rows of one list of segments.
#[derive(Debug, Clone, Default)]
pub(super) struct Hot {
    shared: Arc<Shared>,
    generation: u64,
}

#[derive(Debug, Default)]
struct Shared {
    most_bytes: u64,
    state: Mutex<State>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Of the list of segments that the places belong to.
    generation: u64,
    places: Option<Places>,
}

impl Hot {
    /// None yet, and never more than these bytes; with 0 there will be none.
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { shared: Arc::new(Shared { most_bytes, ..Shared::default() }), generation: 0 }
    }

    /// Those of another list of segments: none yet. From now on there are none of this one.
    pub(super) fn renewed(&self) -> Self {
        let state = self.shared.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        *state = State { generation: state.generation + 1, places: None };
        Self { shared: Arc::clone(&self.shared), generation: state.generation }
    }

    pub(super) fn is_off(&self) -> bool {
        self.shared.most_bytes == 0
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.shared.state.try_lock().ok()?;
        (state.generation == self.generation).then_some(state)
    }

    /// The place of each key that is known.
    pub(super) fn recall(&self, keys: &[RowKey]) -> Vec<Option<Found>> {
        let mut found = vec![None; keys.len()];
        let mut n_hits = 0;
        if let Some(places) = self.state().as_mut().and_then(|state| state.places.as_mut()) {
            for (key, found) in keys.iter().zip(&mut found) {
                *found = places.recall(key);
                n_hits += u64::from(found.is_some());
            }
        }
        self.shared.hits.fetch_add(n_hits, Ordering::Relaxed);
        self.shared.misses.fetch_add(keys.len() as u64 - n_hits, Ordering::Relaxed);
        found
    }

    /// Keeps the places of those of `keys` that were found, among `n_rows` that there are. They are what
    /// was not known of `n_asked` keys.
    pub(super) fn keep(
        &self,
        keys: &[RowKey],
        found: &[Option<Found>],
        n_asked: usize,
        n_rows: u64,
    ) {
        let Some(mut state) = self.state() else { return };
        let most_bytes = self.shared.most_bytes;
        let mut found =
            keys.iter().zip(found).filter_map(|(key, at)| Some((key, (*at)?))).peekable();
        if found.peek().is_some() {
            let places = state.places.get_or_insert_with(|| Places::within(most_bytes, n_rows));
            let n_known = n_asked.saturating_sub(keys.len());
            let is_passing_by = places.is_full() && n_known.saturating_mul(SAMPLED) < n_asked;
            let step = if is_passing_by { SAMPLED } else { 1 };
            found.step_by(step).for_each(|(key, at)| places.keep(key, at));
        }
    }

    pub(super) fn stat(&self) -> HotStat {
        let Shared { most_bytes, state, hits, misses } = &*self.shared;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, rows) = state.places.as_ref().map_or((0, 0), |it| (it.bytes(), it.rows.len()));
        HotStat {
            most_bytes: *most_bytes,
            bytes: bytes as u64,
            rows: rows as u64,
            hits: hits.load(Ordering::Relaxed),
            misses: misses.load(Ordering::Relaxed),
        }
    }
}

/// Of so many rows one is kept where hardly any comes back: where less than that share of keys is known.
const SAMPLED: usize = 8;

/// No row.
const NONE: u32 = u32::MAX;

/// Bytes of a row, and of its share of a table that is at most twice as long as there are rows.
const ROW_BYTES: usize = size_of::<Kept>() + 2 * size_of::<u32>();

/// Places of rows, the one that was asked for last at the front.
#[derive(Debug)]
struct Places {
    rows: Vec<Kept>,
    most_rows: usize,
    /// The first row of each bucket, every bit of it turned: memory that was never written to is empty
    /// buckets. As many as a power of two.
    buckets: Vec<u32>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Kept {
    key: RowKey,
    position: u32,
    row: u32,
    newer: u32,
    older: u32,
    /// The next one in its bucket.
    next: u32,
}

impl Places {
    /// Room for `n_rows`, as far as the bytes and the memory of the machine go.
    fn within(bytes: u64, n_rows: u64) -> Self {
        let most = (bytes / ROW_BYTES as u64).min(n_rows).min(u64::from(NONE));
        let most = usize::try_from(most).unwrap_or_default();
        let mut rows = Vec::new();
        let most_rows = if rows.try_reserve_exact(most).is_ok() { most } else { 0 };
        let n_buckets = if most_rows == 0 { 0 } else { most_rows.next_power_of_two() };
        Self { rows, most_rows, buckets: vec![!NONE; n_buckets], newest: NONE, oldest: NONE }
    }

    fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Kept>() + self.buckets.capacity() * size_of::<u32>()
    }

    fn is_full(&self) -> bool {
        self.rows.len() == self.most_rows
    }

    fn recall(&mut self, key: &RowKey) -> Option<Found> {
        let slot = self.find(key)?;
        self.unlink(slot);
        self.link(slot);
        let row = &self.rows[slot as usize];
        Some(Found { position: row.position as usize, row: row.row as usize })
    }

    fn keep(&mut self, key: &RowKey, found: Found) {
        let (Ok(position), Ok(row)) = (u32::try_from(found.position), u32::try_from(found.row))
        else {
            return;
        };
        if self.most_rows == 0 || self.find(key).is_some() {
            return;
        }
        let row = Kept { key: *key, position, row, newer: NONE, older: NONE, next: NONE };
        let slot = if self.is_full() {
            let oldest = self.oldest;
            self.unlink(oldest);
            self.leave_bucket(oldest);
            self.rows[oldest as usize] = row;
            oldest
        } else {
            self.rows.push(row);
            u32::try_from(self.rows.len() - 1).unwrap_or(NONE)
        };
        self.link(slot);
        let bucket = self.bucket(key);
        self.rows[slot as usize].next = !std::mem::replace(&mut self.buckets[bucket], !slot);
    }

    fn find(&self, key: &RowKey) -> Option<u32> {
        let mut slot = !*self.buckets.get(self.bucket(key))?;
        while let Some(row) = self.rows.get(slot as usize) {
            if row.key == *key {
                return Some(slot);
            }
            slot = row.next;
        }
        None
    }

    /// Where a key is to be looked for. Keys are hashes; the mixing is for those that are not.
    #[expect(clippy::cast_possible_truncation, reason = "a hash: every part of it will do")]
    fn bucket(&self, key: &RowKey) -> usize {
        let fold = |a: u64, b: u64| {
            let product =
                u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xbf58_476d_1ce4_e5b9);
            (product >> 64) as u64 ^ product as u64
        };
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let [a, b, c, d] = words;
        fold(fold(a, b), fold(c, d)) as usize & self.buckets.len().wrapping_sub(1)
    }

    /// Takes a row out of the order of use.
    fn unlink(&mut self, slot: u32) {
        let Kept { newer, older, .. } = self.rows[slot as usize];
        match self.rows.get_mut(newer as usize) {
            Some(row) => row.older = older,
            None => self.newest = older,
        }
        match self.rows.get_mut(older as usize) {
            Some(row) => row.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Puts a row that is in no place of the order to its front.
    fn link(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        match self.rows.get_mut(older as usize) {
            Some(row) => row.newer = slot,
            None => self.oldest = slot,
        }
        let row = &mut self.rows[slot as usize];
        (row.newer, row.older) = (NONE, older);
    }

    fn leave_bucket(&mut self, slot: u32) {
        let Kept { key, next, .. } = self.rows[slot as usize];
        let bucket = self.bucket(&key);
        let mut before = !self.buckets[bucket];
        if before == slot {
            self.buckets[bucket] = !next;
            return;
        }
        while let Some(row) = self.rows.get_mut(before as usize) {
            if row.next == slot {
                row.next = next;
                return;
            }
            before = row.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u64) -> RowKey {
        blake3::hash(&n.to_le_bytes()).into()
    }

    fn at(row: usize) -> Found {
        Found { position: row % 3, row }
    }

    /// Places that hold `n_rows` of any number of them.
    fn room_for(n_rows: u64) -> Places {
        Places::within(n_rows * ROW_BYTES as u64, u64::MAX)
    }

    #[test]
    fn the_row_that_was_not_asked_for_longest_goes_first() {
        let mut places = room_for(3);
        (0..3).for_each(|n| places.keep(&key(n), at(0)));
        assert_eq!(places.recall(&key(0)), Some(at(0)));
        places.keep(&key(3), at(0));
        let there: Vec<bool> = (0..4).map(|n| places.find(&key(n)).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn memory_is_within_bound_and_taken_at_once() {
        for (bytes, n_rows, want) in [
            (0, 10, 0),
            (59, 10, 0),
            (60, 10, 1),
            (600, 10, 10),
            (599, 10, 9),
            (1 << 20, 10, 10),
            (1 << 20, 1 << 40, 17_476),
            (u64::MAX, 5, 5),
        ] {
            let mut places = Places::within(bytes, n_rows);
            assert_eq!(places.most_rows, want, "{bytes} bytes, {n_rows} rows");
            let taken = places.bytes();
            assert!(taken as u64 <= bytes, "{taken} of {bytes}");
            (0..40_000).for_each(|n| places.keep(&key(n), at(0)));
            assert_eq!((places.bytes(), places.rows.len()), (taken, want));
        }
    }

    #[test]
    fn keys_that_are_no_hashes_are_spread_too() {
        let number = |n: u32, at: usize| {
            let mut key = RowKey::default();
            key[at..at + 4].copy_from_slice(&n.to_be_bytes());
            key
        };
        for at in [0, 5, 12, 28] {
            let mut places = room_for(1 << 12);
            (0..1 << 12).for_each(|n| places.keep(&number(n, at), Found { position: 0, row: 0 }));
            let used = places.buckets.iter().filter(|first| **first != !NONE).count();
            assert!(used > 2000, "{used} of {} buckets, number at {at}", places.buckets.len());
        }
    }

    #[test]
    fn who_looks_at_an_older_list_finds_and_keeps_nothing() {
        let old = Hot::new(1 << 20);
        old.keep(&[key(1)], &[Some(at(7))], 1, 9);
        assert_eq!(old.recall(&[key(1)]), [Some(at(7))]);
        let new = old.renewed();
        assert_eq!(new.recall(&[key(1)]), [None]);
        assert_eq!(new.stat().bytes, 0);
        new.keep(&[key(1)], &[Some(at(8))], 1, 9);
        old.keep(&[key(2)], &[Some(at(9))], 1, 9);
        assert_eq!(old.recall(&[key(1), key(2)]), [None, None]);
        assert_eq!(new.recall(&[key(1), key(2)]), [Some(at(8)), None]);
        let HotStat { rows, hits, misses, .. } = new.stat();
        assert_eq!((rows, hits, misses), (1, 2, 4));
    }

    #[test]
    fn rows_that_pass_by_are_sampled_and_those_that_come_back_are_kept() {
        let hot = Hot::new(16 * ROW_BYTES as u64);
        let ask = |numbers: std::ops::Range<u64>| {
            let keys: Vec<RowKey> = numbers.map(key).collect();
            let found = hot.recall(&keys);
            let cold = keys.iter().zip(&found).filter(|(_, found)| found.is_none());
            let cold: Vec<RowKey> = cold.map(|(key, _)| *key).collect();
            hot.keep(&cold, &vec![Some(at(1)); cold.len()], keys.len(), 1000);
            keys.len() - cold.len()
        };
        assert_eq!((ask(0..16), ask(0..16)), (0, 16), "there is room for all");
        assert_eq!((ask(100..164), ask(8..16)), (0, 8), "8 of 64 took the places of the oldest 8");
        assert_eq!((ask(200..216), ask(200..216), ask(200..216)), (0, 2, 16), "they come back");
    }

    #[test]
    fn who_finds_them_in_use_does_not_wait() {
        let hot = Hot::new(1 << 20);
        hot.keep(&[key(1)], &[Some(at(7))], 1, 9);
        let in_use = hot.state();
        assert_eq!(hot.recall(&[key(1)]), [None]);
        hot.keep(&[key(2)], &[Some(at(8))], 1, 9);
        drop(in_use);
        assert_eq!(hot.recall(&[key(1), key(2)]), [Some(at(7)), None]);
    }

    proptest! {
        #[test]
        fn places_are_a_bounded_list_in_the_order_of_use(
            most in 0_usize..12,
            steps in proptest::collection::vec((any::<bool>(), 0_u64..24), 0..300),
        ) {
            let mut places = room_for(most as u64);
            let mut want: Vec<(u64, usize)> = Vec::new();
            for (n, (keeps, number)) in steps.into_iter().enumerate() {
                let known = want.iter().position(|(key, _)| *key == number);
                if keeps {
                    places.keep(&key(number), at(n));
                    if known.is_none() && most > 0 {
                        want.truncate(most - 1);
                        want.insert(0, (number, n));
                    }
                } else {
                    let known = known.map(|at| want.remove(at));
                    want.splice(0..0, known);
                    prop_assert_eq!(places.recall(&key(number)), known.map(|(_, n)| at(n)));
                }
                prop_assert!(places.rows.len() <= most);
                prop_assert!(places.bytes() <= most * ROW_BYTES);
                let (mut order, mut slot) = (Vec::new(), places.newest);
                while let Some(row) = places.rows.get(slot as usize) {
                    order.push((row.key, at(row.row as usize).row));
                    slot = row.older;
                }
                let want: Vec<_> = want.iter().map(|(number, n)| (key(*number), *n)).collect();
                prop_assert_eq!(order, want);
            }
        }
    }
}
