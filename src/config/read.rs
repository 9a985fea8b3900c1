//! Reading tables of a definition key by key, and refusing what nobody asked for.
//!
//! Invariants:
//! 1. A key that no reader asked for is a problem, with the nearest key that was.
//! 2. A value that cannot be read is a problem, and its default stands in, so that reading goes on
//!    and finds the next one.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;

use super::error::{At, Problem};
use super::tree::{Entry, Node, Table, Tree};
use crate::codes::Code;

/// Largest whole number that a setting takes where nothing else bounds it.
const MAX_SIZE: u64 = i64::MAX as u64;

/// Reads one table.
pub(crate) struct Reader<'a> {
    title: String,
    at: At,
    table: &'a Table,
    asked: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// A reader of `table`, which messages call `title` and which stands at `at`.
    pub(crate) fn new(title: impl Into<String>, at: &At, table: &'a Table) -> Self {
        Self { title: title.into(), at: at.clone(), table, asked: Vec::new() }
    }

    /// The entry of `key`, if it was written.
    pub(crate) fn entry(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.asked.push(key);
        self.table.get(key)
    }

    /// The keys that were asked for.
    pub(crate) fn asked(&self) -> &[&'static str] {
        &self.asked
    }

    /// The entries that nobody asked for.
    pub(crate) fn rest(&self) -> impl Iterator<Item = &'a Entry> + '_ {
        let table: &'a Table = self.table;
        table.entries().iter().filter(|e| !self.asked.contains(&e.key.as_str()))
    }

    /// Refuses every entry that nobody asked for.
    pub(crate) fn finish(self, problems: &mut Vec<Problem>) {
        for entry in self.rest() {
            problems.push(unknown_key(entry, &self.title, self.asked.iter().copied()));
        }
    }

    /// A key that has to be there is not.
    pub(crate) fn missing(&self, key: &str, example: impl Display) -> Problem {
        Problem::new(&self.at, format!("{} needs `{key}`", self.title))
            .code(Code::DefinitionMissingKey)
            .hint(format!("write for example {key} = {example}"))
    }

    /// What `read` makes of the value of `key`, which takes `takes`.
    fn value<T>(
        &mut self,
        key: &'static str,
        takes: &str,
        problems: &mut Vec<Problem>,
        read: impl Fn(&'a Node) -> Option<T>,
    ) -> Option<T> {
        let node = &self.entry(key)?.node;
        let value = read(node);
        if value.is_none() {
            problems.push(wrong_type(key, takes, node));
        }
        value
    }

    /// A string.
    pub(crate) fn text(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<(&'a str, &'a At)> {
        self.value(key, "a string", problems, |node| match &node.value {
            Tree::Text(text) => Some((text.as_str(), &node.at)),
            _ => None,
        })
    }

    /// A string, or a list of them.
    pub(crate) fn texts(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<(Vec<(&'a str, &'a At)>, &'a At)> {
        let entry = self.entry(key)?;
        let at = &entry.node.at;
        match &entry.node.value {
            Tree::Text(text) => Some((vec![(text, at)], at)),
            Tree::List(items) => {
                let mut texts = Vec::new();
                for item in items {
                    match &item.value {
                        Tree::Text(text) => texts.push((text.as_str(), &item.at)),
                        _ => problems.push(wrong_type(key, "strings", item)),
                    }
                }
                Some((texts, at))
            }
            _ => {
                problems.push(wrong_type(key, "a string or a list of strings", &entry.node));
                None
            }
        }
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<bool> {
        self.value(key, "true or false", problems, |node| match node.value {
            Tree::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// A whole number within `range`.
    pub(crate) fn count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        problems: &mut Vec<Problem>,
    ) -> Option<u64> {
        let entry = self.entry(key)?;
        let Tree::Integer(number) = entry.node.value else {
            problems.push(wrong_type(key, "a whole number", &entry.node));
            return None;
        };
        let count = u64::try_from(number).ok().filter(|n| range.contains(n));
        if count.is_none() {
            problems.push(out_of_range(key, number, &range, &entry.node.at));
        }
        count
    }

    /// A number of bytes, at least one: a whole number, or a string like "64MiB".
    pub(crate) fn size(&mut self, key: &'static str, problems: &mut Vec<Problem>) -> Option<u64> {
        let entry = self.entry(key)?;
        let at = &entry.node.at;
        let size = match &entry.node.value {
            Tree::Integer(number) => {
                let size = u64::try_from(*number).ok().filter(|n| *n > 0);
                if size.is_none() {
                    problems.push(out_of_range(key, number, &(1..=MAX_SIZE), at));
                }
                return size;
            }
            Tree::Text(text) => parse_size(text),
            _ => {
                problems.push(wrong_type(key, "a size", &entry.node).hint(SIZE_HINT));
                return None;
            }
        };
        if size.is_none() {
            let message = format!("{} is not a size that `{key}` can take", quoted(&entry.node));
            problems.push(Problem::new(at, message).hint(SIZE_HINT));
        }
        size
    }

    /// A time that is not zero, as a string like "5s".
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<Duration> {
        const HINT: &str = "write a number and ms, s, min or h: \"500ms\", \"5s\"";
        let entry = self.entry(key)?;
        let Tree::Text(text) = &entry.node.value else {
            problems.push(wrong_type(key, "a time", &entry.node).hint(HINT));
            return None;
        };
        let duration = parse_duration(text);
        if duration.is_none() {
            let message = format!("{} is not a time that `{key}` can take", quoted(&entry.node));
            problems.push(Problem::new(&entry.node.at, message).hint(HINT));
        }
        duration
    }

    /// A table, and where its name stands.
    pub(crate) fn table(
        &mut self,
        key: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Option<(&'a Table, &'a At)> {
        let key_at = &self.entry(key)?.key_at;
        self.value(key, "a table", problems, |node| match &node.value {
            Tree::Table(table) => Some((table, key_at)),
            _ => None,
        })
    }
}

const SIZE_HINT: &str = "write a number of bytes, or a string with a unit: \"64MiB\"";

/// `key` holds something of another type.
pub(crate) fn wrong_type(key: &str, takes: &str, node: &Node) -> Problem {
    let message = format!("`{key}` takes {takes}, not {}", node.value.described());
    Problem::new(&node.at, message)
}

/// A number is too small or too large.
pub(crate) fn out_of_range(
    key: &str,
    number: impl Display,
    range: &RangeInclusive<u64>,
    at: &At,
) -> Problem {
    let (from, to) = (range.start(), range.end());
    let takes =
        if *to == MAX_SIZE { format!("at least {from}") } else { format!("{from} to {to}") };
    Problem::new(at, format!("`{key}` is {number}, which is out of range"))
        .hint(format!("`{key}` takes {takes}"))
}

/// Nobody knows this key.
pub(crate) fn unknown_key<'k>(
    entry: &Entry,
    title: &str,
    known: impl Iterator<Item = &'k str> + Clone,
) -> Problem {
    let message = format!("unknown key `{}` in {title}", entry.key);
    Problem::new(&entry.key_at, message).code(Code::DefinitionUnknownKey).hint(did_you_mean(
        &entry.key,
        &format!("{title} takes"),
        known,
    ))
}

/// The nearest of `known`, or else all of them after the words `all_are`.
pub(crate) fn did_you_mean<'k>(
    name: &str,
    all_are: &str,
    known: impl Iterator<Item = &'k str> + Clone,
) -> String {
    if let Some(near) = nearest(name, known.clone()) {
        return format!("did you mean `{near}`?");
    }
    let mut all: Vec<String> = known.map(|k| format!("`{k}`")).collect();
    all.sort();
    all.dedup();
    if all.is_empty() {
        return format!("{all_are} nothing");
    }
    format!("{all_are} {}", all.join(", "))
}

/// The one of `known` that somebody who wrote `name` most likely meant.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // The distance takes time in the product of the lengths; no name of ours is this long.
    if name.len() > 200 {
        return None;
    }
    let lower = name.to_lowercase();
    known
        .map(|k| (strsim::damerau_levenshtein(&lower, &k.to_lowercase()), k))
        .filter(|(distance, k)| *distance <= (k.chars().count().max(3) / 3).min(3))
        .min()
        .map(|(_, k)| k)
}

/// Checks that `name` can be the name of a folder or a stage.
pub(crate) fn check_name(what: &str, name: &str, at: &At) -> Result<(), Problem> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = name.starts_with(letter) && name.chars().all(|c| letter(c) || ".-".contains(c));
    if !fits {
        let message = format!("`{}` cannot be the name of {what}", name.escape_debug());
        let hint =
            "a name has letters, digits, `_`, `.` and `-`, and does not begin with the last two";
        return Err(Problem::new(at, message).hint(hint));
    }
    if name == "current" {
        let hint = "`current` is the link to the newest dataset; choose another name";
        return Err(Problem::new(at, format!("{what} cannot be called `current`")).hint(hint));
    }
    if name.len() > 100 {
        let message = format!("the name of {what} is longer than 100 characters");
        return Err(Problem::new(at, message).hint("choose a shorter one"));
    }
    Ok(())
}

/// A value as it can stand in a message.
fn quoted(node: &Node) -> String {
    match &node.value {
        Tree::Text(text) if text.chars().count() <= 40 => format!("\"{}\"", text.escape_debug()),
        Tree::Text(_) => "this".to_owned(),
        other => other.described().to_owned(),
    }
}

fn parse_size(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let ByteSize(bytes) = text.parse().ok()?;
    (1..=MAX_SIZE).contains(&bytes).then_some(bytes)
}

fn parse_duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok().filter(|n| *n > 0)?;
    match unit.trim_start() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "min" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_none() {
        for (text, want) in [
            ("1", Some(1)),
            ("64MiB", Some(64 << 20)),
            ("64 MiB", Some(64 << 20)),
            ("1.5GiB", Some(3 << 29)),
            ("10kB", Some(10_000)),
            ("0", None),
            ("0MiB", None),
            ("0.1B", None),
            ("", None),
            ("MiB", None),
            ("-1MiB", None),
            ("+1MiB", None),
            (" 1MiB", None),
            ("1e3MiB", None),
            ("1.2.3MiB", None),
            ("64MiBs", None),
            ("999999EiB", None),
            ("99999999999999999999", None),
            ("16EiB", None),
            ("nan", None),
            ("1ä", None),
        ] {
            assert_eq!(parse_size(text), want, "{text:?}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, want) in [
            ("500ms", Some(Duration::from_millis(500))),
            ("5s", Some(Duration::from_secs(5))),
            ("5 s", Some(Duration::from_secs(5))),
            ("2min", Some(Duration::from_mins(2))),
            ("1h", Some(Duration::from_hours(1))),
            ("", None),
            ("5", None),
            ("0s", None),
            ("-5s", None),
            ("5 days", None),
            ("99999999999999999999s", None),
            ("9999999999999999999h", None),
            ("ä", None),
        ] {
            assert_eq!(parse_duration(text), want, "{text:?}");
        }
    }

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["shard_rows", "shard_bytes", "out", "jobs"];
        for (name, want) in [
            ("shard_row", Some("shard_rows")),
            ("shard-rows", Some("shard_rows")),
            ("SHARD_BYTES", Some("shard_bytes")),
            ("job", Some("jobs")),
            ("ot", Some("out")),
            ("memory", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known.into_iter()), want, "{name}");
        }
    }
}
