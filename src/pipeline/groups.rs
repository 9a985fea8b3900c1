//! Which transforms run together: those between two places at which batches are cut.
//!
//! Invariant: a group is entered with the batches that the edge before it carries, or with those that
//! its first transform wants; within a group a batch goes through all transforms on one thread.

use super::Pipeline;
use crate::transforms::Batching;

/// Transforms that run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Index of the first.
    pub(super) first: usize,
    /// Number of transforms.
    pub(super) len: usize,
    /// How the batches of the first are cut, where it says so.
    pub(super) batching: Option<Batching>,
}

impl Pipeline {
    /// The groups, in the order in which rows pass them.
    pub(super) fn groups(&self) -> Vec<Group> {
        grouped(self.transforms.iter().map(|transform| transform.batching()))
    }
}

pub(super) fn grouped(transforms: impl Iterator<Item = Option<Batching>>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (first, batching) in transforms.enumerate() {
        match groups.last_mut() {
            Some(last) if batching.is_none() => last.len += 1,
            _ => groups.push(Group { first, len: 1, batching }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_begins_where_batches_are_cut() {
        let rule = Batching {
            rows: 2,
            bytes: 3,
            answer_bytes: 4,
            workers: 5,
            is_kept: false,
            multiplies: false,
        };
        let (plain, hook) = (None, Some(rule));
        for (transforms, want) in [
            (vec![], vec![]),
            (vec![plain, plain], vec![(0, 2, false)]),
            (vec![hook, plain], vec![(0, 2, true)]),
            (vec![plain, hook, hook, plain], vec![(0, 1, false), (1, 1, true), (2, 2, true)]),
        ] {
            let groups = grouped(transforms.iter().copied());
            let found: Vec<_> =
                groups.iter().map(|g| (g.first, g.len, g.batching.is_some())).collect();
            assert_eq!(found, want);
        }
    }
}
