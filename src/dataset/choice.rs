//! What is done about a partition that others may have finished: a pure decision over the records of its
//! slot that were seen at a place that several machines share.
//!
//! Leaves out: looking there, and bringing anything (`exporters`). Which of the records here counts is
//! `adopt`'s.
//!
//! Invariants:
//! 1. A record is taken only if it is of the inputs as they are listed here, with the contents that are
//!    known here, and its shards are there.
//! 2. Nothing is taken while it is not known which record is of the inputs as they are: building tells.
//! 3. The choice does not depend on the order in which records were made or seen.

use std::collections::BTreeSet;

use super::adopt::whole;
use super::record::{Contents, Record, RecordName, ShardEntry};
use crate::inputs::Part;

/// A record that somebody else may have made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its name.
    pub name: RecordName,
    /// What it says.
    pub record: Record,
    /// Whether all shards that it names have their sentinels there.
    pub has_shards: bool,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The partition is built.
    Build,
    /// The record is taken over.
    Adopt(RecordName),
    /// Two records say that the same inputs became other rows.
    Refuse(RecordName, RecordName),
}

/// Decides about the partition that reads `part`. `known` are the digests of its inputs, then of its side
/// inputs, as far as they are known. `current` names the records of the generation that is complete there.
#[must_use]
pub fn choose(
    part: &Part,
    known: &[Option<blake3::Hash>],
    seen: &[SeenRecord],
    current: &BTreeSet<String>,
) -> Choice {
    let mut agreeing: Vec<&SeenRecord> = seen
        .iter()
        .filter(|it| it.record.limit.is_none() && is_of(&it.record, part, known))
        .collect();
    agreeing.sort_by(|a, b| a.name.cmp(&b.name));
    let Some(first) = agreeing.first() else { return Choice::Build };
    if agreeing.iter().any(|it| !is_same_reading(&it.record, &first.record)) {
        return Choice::Build;
    }
    agreeing.retain(|it| it.has_shards);
    let named = agreeing.iter().find(|it| current.contains(it.name.as_str()));
    let Some(chosen) = named.or_else(|| agreeing.first()) else { return Choice::Build };
    let other = agreeing.iter().find(|it| !is_same_result(&it.record, &chosen.record));
    match other {
        // The answers of a hook that was asked again: the generation says which count.
        Some(other) if named.is_none() => Choice::Refuse(chosen.name.clone(), other.name.clone()),
        _ => Choice::Adopt(chosen.name.clone()),
    }
}

/// Whether two records say of the same contents that other rows came of them.
#[must_use]
pub fn contradict(one: &Record, other: &Record) -> bool {
    one.limit == other.limit && is_same_reading(one, other) && !is_same_result(one, other)
}

fn is_same_reading(one: &Record, other: &Record) -> bool {
    one.inputs == other.inputs && one.side == other.side
}

fn is_same_result(one: &Record, other: &Record) -> bool {
    let ids = |record: &Record| record.shards.iter().map(|it: &ShardEntry| it.id.clone()).collect();
    let (a, b): (Vec<String>, Vec<String>) = (ids(one), ids(other));
    a == b
}

/// Whether a record is of these inputs and side inputs, as far as they are known.
#[must_use]
pub fn is_of(record: &Record, part: &Part, known: &[Option<blake3::Hash>]) -> bool {
    let sides: Vec<_> = part.side.iter().map(whole).collect();
    let listed = part.inputs.iter().chain(&sides);
    let found = record.inputs.iter().chain(&record.side);
    record.inputs.len() == part.inputs.len()
        && record.side.len() == part.side.len()
        && listed.zip(found).enumerate().all(|(at, (input, found)): (usize, (_, &Contents))| {
            let known = known.get(at).copied().flatten();
            found.is_of(input) && known.is_none_or(|b3| b3 == found.b3)
        })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::inputs::{Input, InputRange};

    const SLOT: &str = "00112233445566778899aabbccddeeff";

    fn input(path: &str, size: u64) -> Input {
        let modified = SystemTime::UNIX_EPOCH;
        Input { path: path.to_owned(), size, modified, changed: Some(modified) }
    }

    fn part() -> Part {
        let cut = InputRange { input: input("a.csv", 100), range: Some(10..30) };
        Part { inputs: vec![cut], side: vec![input("LICENSE", 5)] }
    }

    fn b3(text: &str) -> blake3::Hash {
        blake3::hash(text.as_bytes())
    }

    /// The record `name`, of an input with these contents, whose only shard has this id.
    fn seen(name: u64, contents: &str, shard: char) -> SeenRecord {
        let entry = ShardEntry { bytes: 9, id: shard.to_string().repeat(32), rows: 1 };
        let range = Some([10, 30]);
        let input = Contents { b3: b3(contents), path: "a.csv".to_owned(), range, size: 20 };
        let side = Contents { b3: b3("free"), path: "LICENSE".to_owned(), range: None, size: 5 };
        let record = Record {
            books: std::collections::BTreeMap::default(),
            cache_key: "0123456789abcdef".to_owned(),
            inputs: vec![input],
            layout: 1,
            limit: None,
            rows: 1,
            shards: vec![entry],
            side: vec![side],
            slot: SLOT.to_owned(),
            source: "rows".to_owned(),
        };
        let name = RecordName::parse(&format!("{SLOT}-{name:016x}.json")).unwrap();
        SeenRecord { name, record, has_shards: true }
    }

    fn changed(mut it: SeenRecord, change: impl FnOnce(&mut SeenRecord)) -> SeenRecord {
        change(&mut it);
        it
    }

    type Case = (&'static str, Vec<SeenRecord>, Option<u64>, Choice, Choice);

    #[test]
    fn every_case_is_decided() {
        let name = |n: u64| seen(n, "", 'a').name;
        let adopt = |n| Choice::Adopt(name(n));
        let no_shards = |it: &mut SeenRecord| it.has_shards = false;
        // What was seen, the record that the generation there names, what is done while nothing is
        // known of the inputs, and where they are known to be "new".
        let cases: Vec<Case> = vec![
            ("nothing", vec![], None, Choice::Build, Choice::Build),
            ("one", vec![seen(1, "new", 'a')], None, adopt(1), adopt(1)),
            ("of other contents", vec![seen(1, "old", 'a')], None, adopt(1), Choice::Build),
            (
                "its shards are gone",
                vec![changed(seen(1, "new", 'a'), no_shards)],
                None,
                Choice::Build,
                Choice::Build,
            ),
            (
                "one of two has its shards",
                vec![changed(seen(1, "new", 'a'), no_shards), seen(2, "new", 'b')],
                None,
                adopt(2),
                adopt(2),
            ),
            (
                "other contents, which of them is not known",
                vec![seen(2, "new", 'b'), seen(1, "old", 'a')],
                Some(1),
                Choice::Build,
                adopt(2),
            ),
            (
                "equal rows with other books",
                vec![seen(3, "new", 'a'), seen(2, "new", 'a')],
                None,
                adopt(2),
                adopt(2),
            ),
            (
                "other rows",
                vec![seen(3, "new", 'a'), seen(2, "new", 'b')],
                None,
                Choice::Refuse(name(2), name(3)),
                Choice::Refuse(name(2), name(3)),
            ),
            (
                "other rows, one of them current",
                vec![seen(3, "new", 'a'), seen(2, "new", 'b')],
                Some(3),
                adopt(3),
                adopt(3),
            ),
            (
                "limited",
                vec![changed(seen(1, "new", 'a'), |it| it.record.limit = Some(7))],
                None,
                Choice::Build,
                Choice::Build,
            ),
            (
                "another path",
                vec![changed(seen(1, "new", 'a'), |it| it.record.inputs[0].path.push('x'))],
                None,
                Choice::Build,
                Choice::Build,
            ),
            (
                "another range",
                vec![changed(seen(1, "new", 'a'), |it| {
                    it.record.inputs[0].range = Some([11, 31]);
                })],
                None,
                Choice::Build,
                Choice::Build,
            ),
            (
                "no side input",
                vec![changed(seen(1, "new", 'a'), |it| it.record.side.clear())],
                None,
                Choice::Build,
                Choice::Build,
            ),
        ];
        for (what, seen, current, blind, knowing) in cases {
            let current: BTreeSet<String> =
                current.into_iter().map(|n| name(n).as_str().to_owned()).collect();
            let mut back = seen.clone();
            back.reverse();
            for seen in [&seen, &back] {
                assert_eq!(choose(&part(), &[], seen, &current), blind, "{what}, blind");
                let known = [Some(b3("new")), None];
                assert_eq!(choose(&part(), &known, seen, &current), knowing, "{what}, knowing");
            }
        }
        let other_side = [None, Some(b3("not free"))];
        let seen = [seen(1, "new", 'a')];
        assert_eq!(choose(&part(), &other_side, &seen, &BTreeSet::new()), Choice::Build);
    }
}
