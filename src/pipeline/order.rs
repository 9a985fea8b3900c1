//! In which order a run goes through its partitions. It never shows in a byte: the manifest is in dataset
//! order.
//!
//! Alone, a run takes them as they stand. Runs that share a place take them in an order of their own
//! each. It is no rotation: who had caught up with another would build what that one is building, to
//! the end. Simulated with 16 machines and 1,600 partitions of about the same size, rotations take 3.4
//! times as long as a fair share would, shuffles 1.06 times.

use std::collections::{BTreeSet, VecDeque};

/// What is still to be done, by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Todo {
    /// Nobody is known to have finished them.
    pub(super) build: VecDeque<usize>,
    /// Somebody has, it seems.
    pub(super) adopt: VecDeque<usize>,
    /// Somebody had, and it could not be taken over.
    refused: BTreeSet<usize>,
}

impl Todo {
    /// All of `n`, as they stand.
    pub(super) fn in_order(n: usize) -> Self {
        Self { build: (0..n).collect(), ..Self::default() }
    }

    /// All of `n`, in an order that is that of `who` alone; those come first that were begun here.
    pub(super) fn shared(n: usize, who: &str, is_begun: impl Fn(usize) -> bool) -> Self {
        let place = |index: &usize| {
            let place = blake3::hash(format!("{who} {index}").as_bytes());
            (!is_begun(*index), *place.as_bytes())
        };
        let mut build: Vec<usize> = (0..n).collect();
        build.sort_by_cached_key(place);
        Self { build: build.into(), ..Self::default() }
    }

    /// Takes note of what others have finished.
    pub(super) fn sort(&mut self, is_finished: impl Fn(usize) -> bool) {
        let waiting = std::mem::take(&mut self.build);
        for index in waiting {
            if is_finished(index) && !self.refused.contains(&index) {
                self.adopt.push_back(index);
            } else {
                self.build.push_back(index);
            }
        }
    }

    /// What somebody else has finished cannot be taken over.
    pub(super) fn build_after_all(&mut self, index: usize) {
        self.refused.insert(index);
        self.build.push_front(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_takes_all_partitions_in_an_order_of_its_own() {
        let orders: BTreeSet<Vec<usize>> = (0..4)
            .map(|who| {
                let todo = Todo::shared(20, &format!("pid {who}"), |index| index == 7);
                assert_eq!(todo.build.front(), Some(&7), "it was begun");
                todo.build.into()
            })
            .collect();
        assert_eq!(orders.len(), 4);
        for mut order in orders {
            order.sort_unstable();
            assert_eq!(order, (0..20).collect::<Vec<_>>());
        }
        assert_eq!(Todo::in_order(3).build, [0, 1, 2]);
    }

    #[test]
    fn what_others_have_finished_is_tried_once() {
        let mut todo = Todo::in_order(4);
        todo.sort(|index| index % 2 == 1);
        assert_eq!((&todo.build, &todo.adopt), (&[0, 2].into(), &[1, 3].into()));
        assert_eq!(todo.adopt.pop_front(), Some(1));
        todo.build_after_all(1);
        todo.sort(|_| true);
        assert_eq!((&todo.build, &todo.adopt), (&[1].into(), &[3, 0, 2].into()));
    }
}
