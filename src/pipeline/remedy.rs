//! What to change where the memory that was given does not hold the least run.
//!
//! Invariant: each size that is named is enough by itself, and is no smaller than it has to be.

use super::memory::{Demand, MemoryBound};

const MIB: u64 = 1 << 20;

/// What to do about a demand that `needed` bytes would hold, with at least so many `jobs`.
pub(super) fn hint(demand: &Demand, jobs: usize, needed: u64) -> String {
    let mut ways = vec![format!("raise `memory` to \"{}MiB\"", needed.div_ceil(MIB))];
    let fewer = (1..jobs).rev().find(|jobs| MemoryBound::least(demand, *jobs) <= demand.memory);
    ways.extend(fewer.map(|jobs| format!("lower `jobs` to {jobs}")));
    let fits = |demand: &Demand| MemoryBound::least(demand, jobs) <= demand.memory;
    let rows = most(demand.row_bytes, |bytes| fits(&Demand { row_bytes: bytes, ..demand.clone() }));
    ways.extend(rows.map(|bytes| format!("lower `dataset.max_row_bytes` to {}", text(bytes))));
    let largest = demand.hooks().map(|hook| hook.rule.answer_bytes).max().unwrap_or_default();
    let answers = most(largest, |bytes| {
        let mut demand = demand.clone();
        for hook in demand.groups.iter_mut().filter_map(|group| group.hook.as_mut()) {
            hook.rule.answer_bytes = hook.rule.answer_bytes.min(bytes);
        }
        fits(&demand)
    });
    if let Some(bytes) = answers {
        let hooks = demand.hooks().filter(|hook| hook.rule.answer_bytes > bytes);
        let hooks: Vec<_> = hooks.map(|hook| format!("`{}`", hook.name)).collect();
        let hooks = hooks.join(", ");
        ways.push(format!("lower `answer_bytes` of {hooks} to {}", text(bytes)));
    }
    if rows.is_some() || answers.is_some() || fewer.is_some() {
        return ways.join(", or ");
    }
    let of_hooks = if largest > 0 { "`answer_bytes` of hooks, " } else { "" };
    format!(
        "{}, or lower several of `dataset.max_row_bytes`, {of_hooks}`dataset.intern_values` and `jobs`",
        ways.join(", or ")
    )
}

/// The most bytes below `now`, in whole MiB, that do.
fn most(now: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (1, now.saturating_sub(1) / MIB);
    let mut found = None;
    while low <= high {
        let middle = low.midpoint(high);
        if fits(middle * MIB) {
            found = Some(middle * MIB);
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    found
}

/// Whole MiB as a definition has them.
fn text(bytes: u64) -> String {
    format!("\"{}MiB\"", bytes / MIB)
}
