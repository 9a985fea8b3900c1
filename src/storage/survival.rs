//! Which sets of pending operations to try when the power is cut.
//!
//! Invariants:
//! 1. Up to ten pending operations every set is tried.
//! 2. Beyond that: none, all, those that lack one, those that are one, and samples that the seed
//!    alone decides.

use std::collections::BTreeSet;
use std::fmt;

/// Up to this many pending operations every set is tried.
const ALL_UP_TO: usize = 10;

/// Of how many operations, at each end of the sequence, the loss or survival alone is tried.
const ALONE: usize = 16;

/// A set of pending operations that survive a power cut. Shown as one digit for each, 1 for those
/// that survive.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Survival(Vec<bool>);

impl Survival {
    /// Whether the pending operation of this number survives.
    #[must_use]
    pub fn survives(&self, operation: usize) -> bool {
        self.0.get(operation).copied().unwrap_or(false)
    }
}

impl fmt::Debug for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&s| f.write_str(if s { "1" } else { "0" }))
    }
}

/// The sets to try for `pending` operations: each of them up to ten, beyond that the extremes and
/// `samples` others that `seed` decides.
pub fn survivals(pending: usize, seed: u64, samples: usize) -> impl Iterator<Item = Survival> {
    let of = |f: &dyn Fn(usize) -> bool| Survival((0..pending).map(f).collect());
    let mut sets = BTreeSet::new();
    if pending <= ALL_UP_TO {
        sets.extend((0..1_usize << pending).map(|set| of(&|n| set >> n & 1 == 1)));
    } else {
        sets.extend([of(&|_| false), of(&|_| true)]);
        for one in (0..pending).filter(|&n| n < ALONE || n + ALONE >= pending) {
            sets.extend([of(&|n| n == one), of(&|n| n != one)]);
        }
        let mut random = SplitMix(seed);
        for _ in 0..samples {
            // One in four, one in two or three in four survive: halves alone are always near half.
            let share = 1 + random.next() % 3;
            sets.insert(Survival((0..pending).map(|_| random.next() % 4 < share).collect()));
        }
    }
    sets.into_iter()
}

/// The generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_operations_are_tried_in_every_set_and_many_in_samples_that_the_seed_decides() {
        for pending in 0..=10 {
            assert_eq!(survivals(pending, 1, 64).count(), 1 << pending, "{pending} operations");
        }
        let many = |seed| survivals(100, seed, 64).collect::<Vec<_>>();
        assert_eq!(many(1), many(1));
        assert_ne!(many(1), many(2));
        assert_eq!(many(1).len(), 2 + 4 * 16 + 64);
        assert!(many(1).iter().any(|s| (0..100).all(|n| s.survives(n))));
        assert!(many(1).iter().any(|s| (0..100).all(|n| !s.survives(n))));
    }

    #[test]
    fn a_set_shows_what_survives() {
        assert_eq!(format!("{:?}", Survival(vec![true, false, true])), "101");
    }
}
