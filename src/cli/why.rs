//! The answer of `rowmill plan --why`, for people.

use indicatif::{HumanBytes, HumanCount};

use super::keys::setting;
use super::output::counted;
use crate::dataset::difference::Difference;
use crate::pipeline::{PlanReport, Why};

/// Settings and fields that are listed one by one.
const LISTED: usize = 20;

/// Says why partitions will be built, and what is reused.
pub(super) fn lines(report: &PlanReport, why: &Why, line: &mut impl FnMut(&str, String)) {
    match &why.generation {
        Some(manifest) => line("why", format!("compared with {manifest}")),
        None => line("why", "there is no complete generation of this definition".to_owned()),
    }
    if let Some(other) = &why.definition {
        line("", format!("{} is complete; its definition differs:", other.cache_key));
        differing(&other.differs, line);
    }
    for it in &why.reasons {
        let inputs = match it.inputs {
            0 => String::new(),
            n => format!(", {}", counted(n, "input")),
        };
        let mut text =
            format!("{}: {}{inputs}", it.reason.about(), counted(it.partitions, "partition"));
        if !it.examples.is_empty() {
            text.extend([": ", &it.examples.join(", ")]);
        }
        let more = it.inputs.saturating_sub(it.examples.len() as u64);
        if more > 0 && !it.examples.is_empty() {
            text.extend([" and ", &HumanCount(more).to_string(), " more"]);
        }
        line("", text);
    }
    if !why.fields.is_empty() {
        line("", "fields of a row that differ:".to_owned());
        differing(&why.fields, line);
    }
    if !why.learned.is_empty() {
        line("", "columns that are learned and differ from those of the last run:".to_owned());
        differing(&why.learned, line);
    }
    let to_build = why.partitions.len();
    let reused = report.partitions.len().saturating_sub(to_build);
    line("", format!("{} reused as built", counted(reused as u64, "partition")));
    let (inputs, bytes) =
        (report.hashed.inputs + why.hashed.inputs, report.hashed.bytes + why.hashed.bytes);
    if inputs > 0 {
        let inputs = counted(inputs, "input");
        line("", format!("hashed to know this: {inputs}, {}", HumanBytes(bytes)));
    }
}

fn differing(differs: &[Difference], line: &mut impl FnMut(&str, String)) {
    for it in differs.iter().take(LISTED) {
        line("", setting(it));
    }
    if let Some(more) = differs.len().checked_sub(LISTED).filter(|n| *n > 0) {
        line("", format!("  and {} more (--json lists all)", HumanCount(more as u64)));
    }
}
