//! What to change where the memory that was given does not hold the least run.
//!
//! Invariant: each size that is named is enough by itself, and is no smaller than it has to be: what a run
//! takes with it is computed anew, in all its parts.

use super::demand::{Change, Demand};
use super::memory::MemoryBound;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// What to do about a demand that does not fit; `changed` is the demand with another setting.
pub(super) fn hint(demand: &Demand, changed: &dyn Fn(Change) -> Demand) -> String {
    let needed = MemoryBound::least(demand);
    let mut ways = vec![format!("raise `memory` to \"{}MiB\"", needed.div_ceil(MIB))];
    let fits = |jobs: &usize| MemoryBound::least_of(demand, *jobs) <= demand.memory;
    let fewer = (1..demand.least_jobs()).rev().find(fits);
    ways.extend(fewer.map(|jobs| format!("lower `jobs` to {jobs}")));
    let fits = |change| {
        let changed = changed(change);
        MemoryBound::least(&changed) <= changed.memory
    };
    let rows = most(demand.row_bytes, |bytes| fits(Change::RowBytes(bytes)));
    // With less no row would have a place.
    let rows = rows.filter(|bytes| *bytes >= demand.fixed_row_bytes);
    ways.extend(rows.map(|bytes| format!("lower `dataset.max_row_bytes` to {}", text(bytes))));
    let largest = demand.hooks().map(|hook| hook.rule.answer_bytes).max().unwrap_or_default();
    let answers = most(largest, |bytes| fits(Change::AnswerBytes(bytes)));
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

/// The most bytes below `now`, in whole MiB or, where there is less than one, in whole KiB, that do.
fn most(now: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    most_in(MIB, now, &fits).or_else(|| most_in(KIB, now.min(MIB), &fits))
}

fn most_in(unit: u64, now: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (1, now.saturating_sub(1) / unit);
    let mut found = None;
    while low <= high {
        let middle = low.midpoint(high);
        if fits(middle * unit) {
            found = Some(middle * unit);
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    found
}

/// Whole MiB or KiB, as a definition has them.
fn text(bytes: u64) -> String {
    match bytes % MIB {
        0 => format!("\"{}MiB\"", bytes / MIB),
        _ => format!("\"{}KiB\"", bytes / KIB),
    }
}
