//! `work/listing.jsonl`: what sources in object stores listed, kept while their dataset is being built.
//!
//! A build that was interrupted goes on with the inputs that it began with, and does not ask the store for
//! millions of names again.
//!
//! Leaves out: how it is kept while it goes on (`journal`), listing (`sources`), and when a listing does not count any more (`pipeline`).
//!
//! Invariants:
//! 1. A listing counts as whole only with its last line, which says how many inputs there are: lines are
//!    guarded as those of all logs, and the last one is written when the others are durable. What stands
//!    there without it is how far the listing came, in order.
//! 2. Only what is known by an `ETag` is kept: a time tells less the longer ago it was looked at.
//! 3. A file that is lost or damaged costs listing, never a wrong answer.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::home::{Home, Workplace};
use super::journal::Begun;
use super::stamps::{hashed_root, read_chunk};
use crate::fingerprint::Stamp;
use crate::inputs::Input;
use crate::shard::log;
use crate::storage::{AppendFile, Storage};

/// Version of the file.
const VERSION: u32 = 2;

/// Most inputs in a line, and most bytes of their paths: a line is read in one piece.
const LINE_INPUTS: usize = 1_000;
const LINE_BYTES: usize = 64 << 10;

/// What a source listed.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// The name of the source.
    pub source: &'a str,
    /// Where its inputs are.
    pub root: &'a str,
    /// Its inputs, sorted by path.
    pub inputs: &'a [Input],
}

/// The inputs of sources, by name.
pub type Kept = BTreeMap<String, Vec<Input>>;

/// One line. The root is hashed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Listing {
        version: u32,
    },
    Source {
        name: String,
        root: String,
    },
    /// Of the source that was named last, behind the first `at` of it.
    Inputs {
        at: usize,
        inputs: Vec<Entry>,
    },
    /// All of its inputs were named.
    Whole {
        n_inputs: usize,
    },
    End {
        n_inputs: usize,
    },
}

/// Path, size, time of modification and what stands for the `ETag`, as in a [`Stamp`].
type Entry = (String, u64, i64, i64);

fn entry(input: &Input) -> Option<Entry> {
    let Stamp { size, modified_ns, changed_ns } =
        Stamp::new(input.size, input.modified, input.changed);
    Some((input.path.clone(), size, modified_ns, changed_ns?))
}

fn input((path, size, modified_ns, changed_ns): Entry) -> Option<Input> {
    let time = |ns: i64| -> Option<SystemTime> {
        let distance = Duration::from_nanos(ns.unsigned_abs());
        if ns < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    };
    let (modified, changed) = (time(modified_ns)?, Some(time(changed_ns)?));
    Some(Input { path, size, modified, changed })
}

/// Keeps what sources listed, of each whose inputs are all known by an `ETag`.
///
/// # Durability
/// On `Ok` it survives a power cut. After an error or a crash there is what was there before, or all of it.
///
/// # Errors
/// The disk's.
pub fn write(place: &Workplace, listings: &[Listing]) -> Result<()> {
    let (storage, path) = (place.storage(), place.home().listing());
    let is_known = |it: &&Listing| it.inputs.iter().all(|input| input.changed.is_some());
    let listings: Vec<_> = listings.iter().filter(is_known).collect();
    if listings.is_empty() {
        return discard(place);
    }
    let tmp = place.temporary("listing");
    storage.remove_all(&tmp)?;
    let mut lines = Lines::new(storage.create(&tmp)?)?;
    for Listing { source, root, inputs } in listings {
        lines.source(source, root)?;
        lines.inputs(inputs)?;
        lines.whole()?;
    }
    lines.end()?;
    drop(lines);
    storage.rename(&tmp, &path)?;
    Ok(storage.sync_dir(&place.home().work())?)
}

/// Writes the lines.
#[derive(Debug)]
pub(super) struct Lines {
    pub(super) file: Box<dyn AppendFile>,
    /// Inputs of the source that was named last, and of those before.
    pub(super) n_inputs: usize,
    pub(super) n_before: usize,
}

impl Lines {
    pub(super) fn new(mut file: Box<dyn AppendFile>) -> Result<Self> {
        file.append(&log::line(&Line::Listing { version: VERSION }))?;
        Ok(Self { file, n_inputs: 0, n_before: 0 })
    }

    pub(super) fn source(&mut self, name: &str, root: &str) -> Result<()> {
        let (name, root) = (name.to_owned(), hashed_root(root));
        Ok(self.file.append(&log::line(&Line::Source { name, root }))?)
    }

    /// Inputs that are all known by an `ETag`.
    pub(super) fn inputs(&mut self, inputs: &[Input]) -> Result<()> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for input in inputs {
            bytes += input.path.len();
            entries.extend(entry(input));
            if entries.len() >= LINE_INPUTS || bytes >= LINE_BYTES {
                self.line(std::mem::take(&mut entries))?;
                bytes = 0;
            }
        }
        if entries.is_empty() { Ok(()) } else { self.line(entries) }
    }

    fn line(&mut self, inputs: Vec<Entry>) -> Result<()> {
        let at = self.n_inputs;
        self.n_inputs += inputs.len();
        Ok(self.file.append(&log::line(&Line::Inputs { at, inputs }))?)
    }

    pub(super) fn whole(&mut self) -> Result<()> {
        self.file.append(&log::line(&Line::Whole { n_inputs: self.n_inputs }))?;
        self.n_before += std::mem::take(&mut self.n_inputs);
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.file.sync()?;
        self.file.append(&log::line(&Line::End { n_inputs: self.n_before }))?;
        Ok(self.file.sync()?)
    }
}

/// What sources listed when the build began that is there: those of `roots`, by name, whose roots are the
/// same. Nothing, where no listing is kept.
///
/// # Errors
/// The disk's.
pub fn read(storage: &dyn Storage, home: &Home, roots: &BTreeMap<&str, &str>) -> Result<Kept> {
    let reading = Reading::read(storage, home, roots)?;
    if !reading.has_ended {
        return Ok(Kept::new());
    }
    let kept = reading.kept.into_iter();
    Ok(kept.map(|(name, Begun { inputs, .. })| (name, inputs)).collect())
}

/// Forgets what was listed: the next run lists anew.
///
/// # Errors
/// The disk's.
pub fn discard(place: &Workplace) -> Result<()> {
    place.discard(&place.home().listing())
}

/// The lines read so far.
#[derive(Default)]
pub(super) struct Reading {
    /// Bytes of the file, and of its whole lines.
    pub(super) len: u64,
    pub(super) valid_bytes: u64,
    has_begun: bool,
    pub(super) has_ended: bool,
    /// Whether a source is named whose root is another now.
    pub(super) has_others: bool,
    pub(super) kept: BTreeMap<String, Begun>,
    n_inputs: usize,
    /// The source that was named last, unless it is whole or its root is another now.
    source: Option<String>,
    /// How many inputs it has; `None` where none was named or it is whole.
    n_open: Option<usize>,
}

impl Reading {
    /// Reads the file.
    pub(super) fn read(
        storage: &dyn Storage,
        home: &Home,
        roots: &BTreeMap<&str, &str>,
    ) -> Result<Self> {
        let path = home.listing();
        let mut reading = Self::default();
        if storage.stat(&path)?.is_none() {
            return Ok(reading);
        }
        let file = storage.open(&path)?;
        let (mut at, mut chunk) = (0, Vec::new());
        while at < file.len() {
            let fresh = read_chunk(&*file, at, &mut chunk)?;
            let valid = log::read(fresh, |_, line| reading.take(line, roots)).valid_bytes;
            at += valid;
            if valid == 0 || valid < fresh.len() as u64 {
                // What ends in something else has no end.
                reading.has_ended = false;
                break;
            }
        }
        reading.kept.values_mut().for_each(|it| it.inputs.shrink_to_fit());
        (reading.len, reading.valid_bytes) = (file.len(), at);
        Ok(reading)
    }

    /// Takes the next line, if it may stand there.
    fn take(&mut self, line: Line, roots: &BTreeMap<&str, &str>) -> Option<()> {
        match line {
            Line::Listing { version } => {
                self.has_begun = !self.has_begun && version == VERSION;
                self.has_begun.then_some(())
            }
            _ if !self.has_begun || self.has_ended => None,
            Line::Source { name, root } => {
                let is_meant = roots.get(name.as_str()).is_some_and(|now| hashed_root(now) == root);
                if self.n_open.is_some() || self.kept.contains_key(&name) {
                    return None;
                }
                self.n_open = Some(0);
                self.has_others |= !is_meant;
                self.source = is_meant.then_some(name);
                if let Some(name) = &self.source {
                    self.kept.insert(name.clone(), Begun::default());
                }
                Some(())
            }
            Line::Inputs { at, inputs: entries } => {
                let n_open = self.n_open.as_mut().filter(|n| **n == at)?;
                *n_open += entries.len();
                let Some(kept) = self.source.as_ref().and_then(|name| self.kept.get_mut(name))
                else {
                    return Some(());
                };
                for entry in entries {
                    kept.inputs.push(input(entry)?);
                }
                Some(())
            }
            Line::Whole { n_inputs } => {
                let n_open = self.n_open.take().filter(|n| *n == n_inputs)?;
                self.n_inputs += n_open;
                if let Some(kept) = self.source.take().and_then(|name| self.kept.get_mut(&name)) {
                    kept.is_whole = true;
                }
                Some(())
            }
            Line::End { n_inputs } => {
                self.has_ended = self.n_open.is_none() && self.n_inputs == n_inputs;
                self.has_ended.then_some(())
            }
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
pub(super) mod tests;
