//! The cache keys of a dataset: how large and old they are, and in what their definitions differ.

use std::fmt::Write;

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use serde_json::{Value, json};

use super::output::{CliError, Console, counted};
use super::target::{Target, age, ago, iso};
use crate::dataset::difference::{Difference, differences};
use crate::dataset::survey::KeySurvey;
use crate::pipeline::{PipelineError, REPORT_VERSION};
use crate::storage::Storage;

/// Settings of a key that are listed for people.
const LISTED: usize = 12;
/// Characters of a setting's value that are shown.
const SHOWN: usize = 60;

/// One cache key.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    cache_key: String,
    path: String,
    /// Whether it is the one that was asked for.
    selected: bool,
    /// Whether `current` points at it.
    current: bool,
    complete: bool,
    rows: Option<u64>,
    bytes: u64,
    generations: u64,
    modified: Option<String>,
    age_seconds: Option<u64>,
    held_by: Option<String>,
    /// From its definition to the one that is asked for; null where one of them is not known.
    differs: Option<Vec<Difference>>,
    #[serde(skip)]
    ago: String,
}

/// All cache keys below the target's folder, the youngest first. Each is compared with the
/// definition that was given, or with that of the key that is asked for.
pub(super) fn keys(target: &Target, storage: &dyn Storage) -> Result<Vec<KeyReport>, CliError> {
    let mut found = target.located.survey(storage).map_err(PipelineError::from)?;
    found.sort_by_key(|it| std::cmp::Reverse(it.modified));
    let wanted = match &target.definition {
        Some(definition) => Some(definition.clone()),
        None => found
            .iter()
            .find(|it| it.cache_key == target.home.cache_key())
            .and_then(|it| it.definition.clone()),
    };
    Ok(found.into_iter().map(|it| KeyReport::new(it, target, wanted.as_ref())).collect())
}

impl KeyReport {
    fn new(it: KeySurvey, target: &Target, wanted: Option<&Value>) -> Self {
        Self {
            selected: it.cache_key == target.home.cache_key(),
            path: it.dir.display().to_string(),
            current: it.is_current,
            complete: it.is_complete,
            rows: it.n_rows,
            bytes: it.n_bytes,
            generations: it.n_generations,
            modified: iso(it.modified),
            age_seconds: age(it.modified).map(|age| age.as_secs()),
            held_by: it.holder,
            differs: it.definition.zip(wanted).map(|(own, wanted)| differences(&own, wanted)),
            ago: ago(it.modified),
            cache_key: it.cache_key,
        }
    }
}

/// Prints the keys of a dataset alone.
pub(super) fn print(
    target: &Target,
    keys: &[KeyReport],
    json: bool,
    console: &Console,
) -> Result<(), CliError> {
    if json {
        return console.print_json(&json!({
            "version": REPORT_VERSION,
            "dataset": target.home.dir().display().to_string(),
            "cache_key": target.home.cache_key(),
            "keys": keys,
        }));
    }
    let mut text = format!("{:<11}{}\n", "dataset", target.home.dir().display());
    if keys.is_empty() {
        text.push_str("nothing is built yet\n");
    }
    lines(keys, &mut |name, value| {
        writeln!(text, "{name:<11}{value}").ok();
    });
    console.print(&text)
}

/// The keys for people, a line each and one per setting that differs.
pub(super) fn lines(keys: &[KeyReport], line: &mut impl FnMut(&str, String)) {
    for key in keys {
        let rows = match key.rows {
            Some(rows) => counted(rows, "row"),
            None => "incomplete".to_owned(),
        };
        let mut about = format!(
            "{}  {:>11}  {rows:>14}  {:<13}  {}",
            key.cache_key,
            HumanBytes(key.bytes).to_string(),
            counted(key.generations, "generation"),
            key.ago
        );
        for (is_so, what) in [(key.current, "  <- current"), (key.selected, "  <- this one")] {
            about.push_str(if is_so { what } else { "" });
        }
        line("key", about);
        let differs = key.differs.as_deref().unwrap_or_default();
        for it in differs.iter().take(LISTED) {
            line("", setting(it));
        }
        if let Some(more) = differs.len().checked_sub(LISTED).filter(|n| *n > 0) {
            line("", format!("  and {} more (--json lists all)", HumanCount(more as u64)));
        }
    }
}

/// A setting that differs, for people.
pub(super) fn setting(it: &Difference) -> String {
    format!("  {}: {} -> {}", it.setting, shown(it.old.as_ref()), shown(it.new.as_ref()))
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
