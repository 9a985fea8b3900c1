//! How inputs are divided into partitions: a pure function of the sorted list of paths and sizes.
//!
//! Leaves out: reading anything. Where a large file may be cut is told by the caller.
//!
//! Invariants:
//! 1. Every input lies in exactly one partition, or in consecutive ones if it is cut, in order.
//! 2. Whether a group ends after a file is decided by that file's path and size, or by the sizes
//!    since the last boundary; so a change of the list moves boundaries only up to the next one
//!    that a path decided.
//! 3. A partition has about 4,096 files at most on average, and never more than 16,384, however small they
//!    are: a list of small files is built side by side, and begun before it is whole.
//! 4. Nothing is kept but the group that is open: a million inputs need no memory beside their list.

use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::inputs::{Input, InputRange};

/// About as many files are in a group at most: one weighs as many bytes of `partition_bytes` as makes that.
const MEAN_INPUTS: u64 = 4_096;

/// One partition, told by positions in the list of inputs it was planned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Planned {
    /// Whole files.
    Group(Range<usize>),
    /// A range of one file's bytes.
    Cut {
        /// The file.
        input: usize,
        /// The bytes.
        range: Range<u64>,
    },
}

impl Planned {
    /// Where the inputs that the partition reads stand in the list it was planned from.
    #[must_use]
    pub fn places(&self) -> Range<usize> {
        match self {
            Self::Group(range) => range.clone(),
            Self::Cut { input, .. } => *input..input.saturating_add(1),
        }
    }

    /// What the partition reads, from the list it was planned from; empty for any other list.
    #[must_use]
    pub fn inputs(&self, list: &[Input]) -> Vec<InputRange> {
        match self {
            Self::Group(range) => list
                .get(range.clone())
                .unwrap_or_default()
                .iter()
                .map(|input| InputRange { input: input.clone(), range: None })
                .collect(),
            Self::Cut { input, range } => list
                .get(*input)
                .map(|input| InputRange { input: input.clone(), range: Some(range.clone()) })
                .into_iter()
                .collect(),
        }
    }
}

/// The list of inputs cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Two inputs are out of order, or one is there twice.
    #[error("input `{path}` is listed after `{before}`: inputs must be sorted by path, each once")]
    Order {
        /// The path that comes too late.
        path: String,
        /// The one before it.
        before: String,
    },
    /// Cut points are not ascending positions inside the file.
    #[error("input `{path}` of {size} bytes cannot be cut at byte {at}")]
    Cut {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// The position.
        at: u64,
    },
}

impl PlanError {
    /// Says what to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Order { .. } => Some("list each file once: check for overlapping globs"),
            Self::Cut { .. } => None,
        }
    }
}

/// Divides `inputs`, sorted by path, into partitions of about `partition_bytes`, as their weights add up.
///
/// `cuts` gives the positions at which a file of at least that size is cut, ascending; none where it
/// cannot be. A file that is not cut stands in a group as any other: being as large as a partition,
/// it always ends one.
pub fn partitions<E, F>(inputs: &[Input], partition_bytes: u64, cuts: F) -> Partitions<'_, F>
where
    E: From<PlanError>,
    F: FnMut(&Input) -> Result<Vec<u64>, E>,
{
    Partitions { inputs, divider: Divider::new(partition_bytes), cuts }
}

/// The partitions of a list of inputs, one after another. Ends after the first error.
#[derive(Debug)]
pub struct Partitions<'a, F> {
    inputs: &'a [Input],
    divider: Divider,
    cuts: F,
}

impl<E, F> Iterator for Partitions<'_, F>
where
    E: From<PlanError>,
    F: FnMut(&Input) -> Result<Vec<u64>, E>,
{
    type Item = Result<Planned, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.divider.next(self.inputs, true, &mut self.cuts);
        if step.is_err() {
            self.inputs = &[];
            self.divider = Divider::new(1);
        }
        step.transpose()
    }
}

/// A file that is being cut.
#[derive(Debug)]
struct CutFile {
    input: usize,
    from: u64,
    size: u64,
    points: std::vec::IntoIter<u64>,
}

impl CutFile {
    /// The next range of the file; `None` after the last.
    fn next_range(&mut self) -> Option<Planned> {
        if self.from == self.size {
            return None;
        }
        let to = self.points.next().unwrap_or(self.size);
        let range = self.from..to;
        self.from = to;
        Some(Planned::Cut { input: self.input, range })
    }
}

/// Divides a list that may still grow: it gives what the inputs so far leave no doubt about.
#[derive(Debug)]
pub struct Divider {
    partition_bytes: u64,
    /// The first input of the open group, and the weight of all in it.
    first: usize,
    group_weight: u64,
    next: usize,
    cut: Option<CutFile>,
}

impl Divider {
    /// Nothing is divided yet.
    #[must_use]
    pub fn new(partition_bytes: u64) -> Self {
        let partition_bytes = partition_bytes.max(1);
        Self { partition_bytes, first: 0, group_weight: 0, next: 0, cut: None }
    }

    /// The next partition of `inputs`, the list so far: at each call that of the one before, and maybe
    /// more behind it. `None` where what comes behind decides about it; where the list is whole, behind
    /// the last one.
    ///
    /// # Errors
    /// A list that cannot be planned, and what `cuts` meets.
    pub fn next<E: From<PlanError>>(
        &mut self,
        inputs: &[Input],
        is_whole: bool,
        mut cuts: impl FnMut(&Input) -> Result<Vec<u64>, E>,
    ) -> Result<Option<Planned>, E> {
        if let Some(cut) = &mut self.cut {
            if let Some(range) = cut.next_range() {
                return Ok(Some(range));
            }
            self.cut = None;
        }
        while let Some(input) = inputs.get(self.next) {
            self.check_order(inputs, input)?;
            if input.size >= self.partition_bytes {
                let points = cuts(input)?;
                if !points.is_empty() {
                    check_cuts(input, &points)?;
                    let points = points.into_iter();
                    let mut cut = CutFile { input: self.next, from: 0, size: input.size, points };
                    let before = self.close();
                    self.next += 1;
                    self.first = self.next;
                    let range = before.or_else(|| cut.next_range());
                    self.cut = Some(cut);
                    return Ok(range);
                }
            }
            self.next += 1;
            let weight = weight(input, self.partition_bytes);
            self.group_weight = self.group_weight.saturating_add(weight);
            if ends_group(&input.path, weight, self.partition_bytes)
                || self.group_weight >= self.partition_bytes.saturating_mul(4)
            {
                return Ok(self.close());
            }
        }
        Ok(if is_whole { self.close() } else { None })
    }

    /// Ends the open group; `None` where there is nothing in it.
    fn close(&mut self) -> Option<Planned> {
        let group = self.first..self.next;
        (self.first, self.group_weight) = (self.next, 0);
        (!group.is_empty()).then_some(Planned::Group(group))
    }

    fn check_order(&self, inputs: &[Input], input: &Input) -> Result<(), PlanError> {
        let before = self.next.checked_sub(1).and_then(|i| inputs.get(i));
        match before {
            Some(before) if before.path >= input.path => {
                Err(PlanError::Order { path: input.path.clone(), before: before.path.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// What a file counts for in its group: its bytes, and no less than so many of them make a partition.
#[must_use]
pub fn weight(input: &Input, partition_bytes: u64) -> u64 {
    input.size.max(partition_bytes.div_ceil(MEAN_INPUTS))
}

/// Whether a group ends after this file: the SHA-256 of its path, as a fraction of 1, is below its
/// share of a partition.
fn ends_group(path: &str, weight: u64, partition_bytes: u64) -> bool {
    // The first 64 of 256 bits, a big-endian fraction: h / 2^64 < weight / partition_bytes.
    let hash: [u8; 32] = Sha256::digest(path.as_bytes()).into();
    let fraction = hash.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    u128::from(fraction) * u128::from(partition_bytes) < u128::from(weight) << 64
}

fn check_cuts(input: &Input, points: &[u64]) -> Result<(), PlanError> {
    let mut last = 0;
    for &at in points {
        if at <= last || at >= input.size {
            return Err(PlanError::Cut { path: input.path.clone(), size: input.size, at });
        }
        last = at;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    fn input(path: &str, size: u64) -> Input {
        let modified = SystemTime::UNIX_EPOCH;
        Input { path: path.to_owned(), size, modified, changed: Some(modified) }
    }

    #[expect(clippy::unnecessary_wraps, reason = "cut points may be hard to find")]
    fn uncut(_: &Input) -> Result<Vec<u64>, PlanError> {
        Ok(Vec::new())
    }

    fn plan(inputs: &[Input], partition_bytes: u64) -> Vec<Planned> {
        partitions(inputs, partition_bytes, uncut).collect::<Result<_, _>>().unwrap()
    }

    /// Cuts at each multiple of 100.
    #[expect(clippy::unnecessary_wraps, reason = "cut points may be hard to find")]
    fn by_hundreds(input: &Input) -> Result<Vec<u64>, PlanError> {
        Ok((100..input.size).step_by(100).collect())
    }

    #[test]
    fn boundaries_are_those_written_down() {
        let inputs: Vec<_> = (0..12).map(|i| input(&format!("f{i:02}"), 30)).collect();
        let ends: Vec<_> = (0..12).filter(|i| ends_group(&inputs[*i].path, 30, 100)).collect();
        // Computed from the rule with Python's hashlib.
        assert_eq!(ends, EXPECTED_ENDS);
    }

    const EXPECTED_ENDS: [usize; 4] = [3, 8, 9, 10];

    #[test]
    fn a_file_as_large_as_a_partition_ends_its_group_if_it_cannot_be_cut() {
        let inputs = [input("a", 1), input("b", 1_000), input("c", 1)];
        let plan = plan(&inputs, 1_000);
        assert_eq!(plan.last(), Some(&Planned::Group(2..3)), "{plan:?}");
    }

    #[test]
    fn a_file_that_is_cut_stands_alone() {
        let inputs = [input("a", 1), input("b", 250), input("c", 99), input("d", 200)];
        let plan: Vec<_> = partitions(&inputs, 100, by_hundreds).collect::<Result<_, _>>().unwrap();
        let cut = |input, range| Planned::Cut { input, range };
        let want = [
            Planned::Group(0..1),
            cut(1, 0..100),
            cut(1, 100..200),
            cut(1, 200..250),
            Planned::Group(2..3),
            cut(3, 0..100),
            cut(3, 100..200),
        ];
        assert_eq!(plan, want);
        assert_eq!(plan[1].inputs(&inputs)[0].bytes(), 100);
        assert_eq!(plan[0].inputs(&inputs)[0].input, inputs[0]);
    }

    #[test]
    fn groups_end_at_four_partitions_where_no_path_ends_them() {
        let inputs: Vec<_> = (0..100_000).map(|i| input(&format!("{i:06}"), 1)).collect();
        let plan = plan(&inputs, 1_000);
        for planned in &plan {
            let Planned::Group(range) = planned else { panic!("{planned:?}") };
            assert!(range.len() <= 4_000, "{range:?}");
        }
        assert!(plan.len() > 60 && plan.len() < 160, "{} groups", plan.len());
    }

    #[test]
    fn groups_of_tiny_files_have_some_thousands_of_them() {
        for size in [0, 20_000] {
            let inputs: Vec<_> = (0..100_000).map(|i| input(&format!("{i:06}"), size)).collect();
            let plan = plan(&inputs, 1 << 30);
            assert!(plan.iter().all(|it| it.places().len() <= 16_384), "{size}");
            assert!(plan.len() > 15 && plan.len() < 40, "{} groups of {size}", plan.len());
        }
    }

    #[test]
    fn lists_that_cannot_be_planned_are_refused() {
        type Cuts = fn(&Input) -> Result<Vec<u64>, PlanError>;
        let table: [(&str, &[Input], Cuts, &str); 5] = [
            (
                "unsorted",
                &[input("b", 1), input("a", 1)],
                uncut,
                "input `a` is listed after `b`: inputs must be sorted by path, each once",
            ),
            (
                "twice",
                &[input("a", 1), input("a", 1)],
                uncut,
                "input `a` is listed after `a`: inputs must be sorted by path, each once",
            ),
            (
                "cut at 0",
                &[input("a", 10)],
                |_| Ok(vec![0]),
                "input `a` of 10 bytes cannot be cut at byte 0",
            ),
            (
                "cut at the end",
                &[input("a", 10)],
                |_| Ok(vec![5, 10]),
                "input `a` of 10 bytes cannot be cut at byte 10",
            ),
            (
                "descending",
                &[input("a", 10)],
                |_| Ok(vec![5, 5]),
                "input `a` of 10 bytes cannot be cut at byte 5",
            ),
        ];
        for (name, inputs, cuts, message) in table {
            let all: Vec<_> = partitions(inputs, 10, cuts).collect();
            let error = all.last().unwrap().as_ref().unwrap_err();
            assert_eq!(error.to_string(), message, "{name}");
        }
    }

    fn any_inputs() -> impl Strategy<Value = Vec<Input>> {
        let sizes = prop_oneof![8 => 0_u64..300, 1 => 900_u64..1_100, 1 => 1_000_u64..9_000];
        proptest::collection::btree_map("[a-c]{1,6}", sizes, 0..60)
            .prop_map(|all| all.into_iter().map(|(path, size)| input(&path, size)).collect())
    }

    /// Cuts files whose path begins with `c`.
    fn some_cuts(input: &Input) -> Result<Vec<u64>, PlanError> {
        if input.path.starts_with('c') { by_hundreds(input) } else { Ok(Vec::new()) }
    }

    fn parts(inputs: &[Input]) -> Vec<Vec<InputRange>> {
        partitions(inputs, 1_000, some_cuts)
            .map(|planned| planned.unwrap().inputs(inputs))
            .collect()
    }

    proptest! {
        #[test]
        fn partitions_joined_are_the_inputs_in_order(inputs in any_inputs()) {
            let mut joined: Vec<Input> = Vec::new();
            let mut at = 0;
            for piece in parts(&inputs).into_iter().flatten() {
                prop_assert_eq!(piece.range.as_ref().map_or(0, |r| r.start), at);
                at = piece.range.map_or(0, |r| r.end);
                if at == piece.input.size {
                    at = 0;
                }
                if at == 0 {
                    joined.push(piece.input);
                }
            }
            prop_assert_eq!(joined, inputs);
        }

        #[test]
        fn a_list_that_grows_is_divided_as_the_whole_one(
            inputs in any_inputs(),
            ends in proptest::collection::vec(0_usize..61, 0..12),
        ) {
            let mut ends: Vec<_> = ends.into_iter().map(|n| n.min(inputs.len())).collect();
            ends.sort_unstable();
            let mut divider = Divider::new(1_000);
            let mut grown = Vec::new();
            for (end, is_whole) in ends.into_iter().map(|n| (n, false)).chain([(inputs.len(), true)]) {
                while let Some(planned) = divider.next(&inputs[..end], is_whole, some_cuts).unwrap() {
                    grown.push(planned);
                }
            }
            let whole: Result<Vec<_>, PlanError> = partitions(&inputs, 1_000, some_cuts).collect();
            prop_assert_eq!(grown, whole.unwrap());
        }

        #[test]
        fn what_is_appended_changes_at_most_the_last_partition(
            inputs in any_inputs(),
            n in 0_usize..60,
        ) {
            let before = parts(&inputs[..n.min(inputs.len())]);
            let after = parts(&inputs);
            let kept = before.len().saturating_sub(1);
            prop_assert_eq!(&before[..kept], &after[..kept]);
        }

        #[test]
        fn an_insertion_moves_boundaries_only_up_to_the_next_hashed_one(
            inputs in any_inputs(),
            path in "[a-c]{1,6}x",
            size in 0_u64..300,
        ) {
            let at = inputs.partition_point(|i| i.path < path);
            let mut grown = inputs.clone();
            grown.insert(at, input(&path, size));
            // The partitions that end before the insertion, and those that begin after the next
            // boundary that a path (or a file that is cut) decided, are the same.
            let fixed = |i: &Input| {
                ends_group(&i.path, weight(i, 1_000), 1_000) || !some_cuts(i).unwrap().is_empty()
            };
            let next_fixed =
                inputs[at..].iter().find(|i| fixed(i)).map_or("~", |i| i.path.as_str());
            let outside = |parts: Vec<Vec<InputRange>>| {
                let (mut head, mut tail) = (Vec::new(), Vec::new());
                for part in parts {
                    if part.last().is_some_and(|p| p.input.path.as_str() < path.as_str()) {
                        head.push(part);
                    } else if part.first().is_some_and(|p| p.input.path.as_str() > next_fixed) {
                        tail.push(part);
                    }
                }
                (head, tail)
            };
            let (head, tail) = outside(parts(&inputs));
            let (grown_head, grown_tail) = outside(parts(&grown));
            // The group before the insertion may have grown by it: it is the only one that differs.
            prop_assert!(head.len() - grown_head.len() <= 1);
            prop_assert_eq!(&head[..grown_head.len()], &grown_head[..]);
            prop_assert_eq!(tail, grown_tail);
        }
    }
}
