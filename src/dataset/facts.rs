//! `work/plan.json`: the facts that were fixed when a build was planned.
//!
//! A fact (the types of a source's columns, the cut points of a file, the columns of a hook) is kept with
//! what it was learned from: an input, and how it looked. It holds as long as that is the same, and is learned again when
//! it is not. Whoever learns from the same bytes learns the same, so a build that grew holds the facts
//! of one from scratch.
//!
//! Leaves out: learning them.
//!
//! Invariants:
//! 1. The file is replaced as a whole: after a crash it is the old one or the new one.
//! 2. A fact is given out only to who names what it was learned from, as it still is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{DatasetError, Result};
use super::home::{Home, Workplace};
use super::stamps::hashed_root;
use crate::fingerprint::{Fingerprinting, Stamp};
use crate::storage::Storage;

/// Version of the file.
const VERSION: u32 = 1;

/// An input that something is learned from. The root is hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedFrom {
    path: String,
    root: String,
    stamp: Stamp,
}

impl LearnedFrom {
    /// The input at `path` below `root`, which looks like `stamp`.
    #[must_use]
    pub fn new(root: &str, path: &str, stamp: Stamp) -> Self {
        Self { path: path.to_owned(), root: hashed_root(root), stamp }
    }

    /// Where the input is, below its root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    fn holds(&self, now: &Self, fingerprinting: Fingerprinting) -> bool {
        (&self.path, &self.root) == (&now.path, &now.root)
            && self.stamp.holds(&now.stamp, fingerprinting)
    }
}

/// Something learned from an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact<T> {
    /// What it was learned from; `None` where there was no input to learn from.
    pub learned_from: Option<LearnedFrom>,
    /// What was learned.
    pub value: T,
}

impl<T> Fact<T> {
    /// The fact, if it was learned from just that.
    fn holds(&self, now: &LearnedFrom, fingerprinting: Fingerprinting) -> Option<&T> {
        let seen = self.learned_from.as_ref()?;
        seen.holds(now, fingerprinting).then_some(&self.value)
    }
}

/// Columns of a transform, with all that they were learned from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedOutput {
    /// The first input, what belongs to it, and files of the definition.
    pub from: Vec<LearnedFrom>,
    /// Types of the columns that the transform was given.
    pub given: Value,
    /// Types of those that it answered with.
    pub value: Value,
}

/// All planning facts of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Where large files are cut, by source and path.
    pub cuts: BTreeMap<String, BTreeMap<String, Fact<Vec<u64>>>>,
    /// Types of the columns, by source.
    pub schemas: BTreeMap<String, Fact<Value>>,
    /// Whether a retry of rejects was begun and has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retrying: bool,
    /// Columns of transforms, by transform.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<String, LearnedOutput>,
    /// Records that are not adopted although their contents agree: their rejects are tried again.
    pub set_aside: BTreeSet<String>,
    version: u32,
}

impl Default for Facts {
    fn default() -> Self {
        let (cuts, schemas, outputs, set_aside) = Default::default();
        Self { cuts, schemas, retrying: false, outputs, set_aside, version: VERSION }
    }
}

impl Facts {
    /// Reads the facts of an earlier run; none where there was none.
    ///
    /// # Errors
    /// A file that is not what we write, or of a later version.
    pub fn read(storage: &dyn Storage, home: &Home) -> Result<Self> {
        let path = home.facts();
        let Some(bytes) = storage.read(&path)? else { return Ok(Self::default()) };
        let damaged = |e: serde_json::Error| DatasetError::damaged(&path, e);
        let version: Versioned = serde_json::from_slice(&bytes).map_err(damaged)?;
        if version.version != VERSION {
            return Err(DatasetError::Version { path, found: version.version, known: VERSION });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Replaces the facts on disk, if they are others.
    ///
    /// # Durability
    /// On `Ok` they survive a power cut.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, place: &Workplace) -> Result<()> {
        // Text and numbers into memory: this cannot fail. Without a tree of values between, of which
        // there would be one for each input that is as large as a partition.
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        let path = place.home().facts();
        let storage = place.storage();
        if storage.read(&path)?.as_deref() == Some(text.as_slice()) {
            // The run that wrote them may have been cut off before this.
            return Ok(storage.sync_dir(&place.home().work())?);
        }
        Ok(storage.write_atomic(&path, &text)?)
    }

    /// The types learned for a source, if they were learned from just that.
    #[must_use]
    pub fn schema(&self, source: &str, now: &LearnedFrom, by: Fingerprinting) -> Option<&Value> {
        self.schemas.get(source)?.holds(now, by)
    }

    /// The columns learned for a transform, if they were learned from just that.
    #[must_use]
    pub fn output(
        &self,
        transform: &str,
        now: &[LearnedFrom],
        given: &Value,
        by: Fingerprinting,
    ) -> Option<&Value> {
        let LearnedOutput { from, given: seen, value } = self.outputs.get(transform)?;
        let holds = from.len() == now.len() && from.iter().zip(now).all(|(a, b)| a.holds(b, by));
        (holds && seen == given).then_some(value)
    }

    /// The cut points of a file of a source, if they were learned from just that.
    #[must_use]
    pub fn cuts(&self, source: &str, now: &LearnedFrom, by: Fingerprinting) -> Option<&[u64]> {
        self.cuts.get(source)?.get(&now.path)?.holds(now, by).map(Vec::as_slice)
    }
}

/// The part of the file that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    fn place(memory: &Memory) -> Workplace {
        let home = Home::new(Path::new("/out"), "d", "0123456789abcdef").unwrap();
        Workplace::open(Arc::new(memory.clone()), home).unwrap()
    }

    #[test]
    fn facts_are_given_to_who_names_what_they_were_learned_from() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let mut facts = Facts::read(&memory, place.home()).unwrap();
        assert_eq!(facts, Facts::default());
        let stamp = |n| Stamp { size: n, modified_ns: 1, changed_ns: Some(1) };
        let big = |n| LearnedFrom::new("/in", "big.csv", stamp(n));
        let cuts = Fact { learned_from: Some(big(1)), value: vec![10, 20] };
        facts.cuts.insert("rows".to_owned(), [("big.csv".to_owned(), cuts)].into());
        let schema = Fact { learned_from: Some(big(2)), value: serde_json::json!({"x": 1}) };
        facts.schemas.insert("rows".to_owned(), schema);
        facts.set_aside.insert("a record".to_owned());
        facts.write(&place).unwrap();
        let read = Facts::read(&memory, place.home()).unwrap();
        assert_eq!(read, facts);
        let by = Fingerprinting::Content;
        assert_eq!(read.cuts("rows", &big(1), by), Some([10, 20].as_slice()));
        for (name, source, now) in [
            ("another size", "rows", big(2)),
            ("another source", "other", big(1)),
            ("another file", "rows", LearnedFrom::new("/in", "other.csv", stamp(1))),
            ("another root", "rows", LearnedFrom::new("/out", "big.csv", stamp(1))),
        ] {
            assert_eq!(read.cuts(source, &now, by), None, "{name}");
        }
        let set_back =
            LearnedFrom::new("/in", "big.csv", Stamp { changed_ns: Some(2), ..stamp(1) });
        assert_eq!(read.cuts("rows", &set_back, by), None);
        assert!(read.cuts("rows", &set_back, Fingerprinting::Stat).is_some());
        assert!(read.schema("rows", &big(2), by).is_some());
        assert!(read.schema("rows", &big(1), by).is_none());
        let before = memory.operations();
        facts.write(&place).unwrap();
        assert!(memory.operations() <= before + 1, "equal facts are not written again");
    }

    #[test]
    fn facts_of_another_make_are_refused() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        for (text, message) in [
            (
                "{\"version\": 2}",
                "`/out/d/0123456789abcdef/work/plan.json` has version 2, this program knows 1",
            ),
            (
                "{\"vers",
                "`/out/d/0123456789abcdef/work/plan.json`: EOF while parsing a string at line 1 column 6",
            ),
            (
                "{\"version\": 1}",
                "`/out/d/0123456789abcdef/work/plan.json`: missing field `cuts` at line 1 column 14",
            ),
        ] {
            memory.write_atomic(&place.home().facts(), text.as_bytes()).unwrap();
            let error = Facts::read(&memory, place.home()).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
