//! `work/listing.jsonl` while a listing goes on: how far it came, page by page.
//!
//! Leaves out: the lines, and lists that are whole (`listing`); whether what is there is still what a store
//! tells (`sources`).
//!
//! Invariants:
//! 1. What is noted of a source is how its list begins, in order, without a gap.
//! 2. A journal is gone on with where nobody has written since it was read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::Result;
use super::home::{Home, Workplace};
use super::listing::{Lines, Reading, discard};
use crate::inputs::Input;
use crate::storage::Storage;

/// What a source listed before it was interrupted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Its inputs, as far as it came.
    pub inputs: Vec<Input>,
    /// Whether they are all.
    pub is_whole: bool,
}

/// How far a listing came.
#[derive(Debug, Default)]
pub struct KeptSoFar {
    /// What sources listed, by name.
    pub sources: BTreeMap<String, Begun>,
    /// Whether it is all.
    pub is_whole: bool,
    /// Where it is gone on with.
    pub state: JournalState,
}

impl KeptSoFar {
    /// Nothing of it counts: it is begun anew.
    pub fn forget(&mut self) {
        self.sources.clear();
        self.state.sources.clear();
    }
}

/// Where a journal that was interrupted is gone on with.
#[derive(Debug, Default)]
pub struct JournalState {
    /// Bytes of the file, and of its whole lines.
    len: u64,
    valid_bytes: u64,
    /// By source: how many inputs it has, and whether they are all.
    sources: BTreeMap<String, (usize, bool)>,
}

/// Keeps what is listed while it is listed.
#[derive(Debug)]
pub struct Journal {
    place: Arc<Workplace>,
    /// `None` where it was given up.
    lines: Option<Lines>,
    /// What was there.
    there: BTreeMap<String, (usize, bool)>,
    /// Whether the source that was begun last is whole there.
    is_whole: bool,
}

impl Journal {
    /// Goes on with the journal of `state`, or begins one where nothing can be gone on with. `None` where
    /// somebody has written there since.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(place: &Arc<Workplace>, state: JournalState) -> Result<Option<Self>> {
        let (storage, path) = (place.storage(), place.home().listing());
        let len = storage.stat(&path)?.map_or(0, |entry| entry.len);
        let JournalState { len: len_seen, valid_bytes, sources: there } = state;
        if len != len_seen {
            return Ok(None);
        }
        let lines = if there.is_empty() {
            discard(place)?;
            Lines::new(storage.create(&path)?)?
        } else {
            let file = storage.open_append(&path, valid_bytes)?;
            Lines { file, n_inputs: 0, n_before: 0 }
        };
        Ok(Some(Self { place: Arc::clone(place), lines: Some(lines), there, is_whole: false }))
    }

    /// What follows is listed by a source; how many of its inputs are there already.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&mut self, source: &str, root: &str) -> Result<usize> {
        let Some(lines) = &mut self.lines else { return Ok(0) };
        let there = self.there.remove(source);
        if there.is_none() {
            lines.source(source, root)?;
        }
        let (n_inputs, is_whole) = there.unwrap_or_default();
        (lines.n_inputs, self.is_whole) = (n_inputs, is_whole);
        Ok(n_inputs)
    }

    /// Adds what was listed. Where something is not known by an `ETag`, nothing is kept.
    ///
    /// # Errors
    /// The disk's.
    pub fn add(&mut self, inputs: &[Input]) -> Result<()> {
        if inputs.iter().any(|input| input.changed.is_none()) {
            return self.give_up();
        }
        match &mut self.lines {
            Some(lines) => lines.inputs(inputs),
            None => Ok(()),
        }
    }

    /// The source that was begun last has listed all.
    ///
    /// # Errors
    /// The disk's.
    pub fn end_source(&mut self) -> Result<()> {
        match &mut self.lines {
            Some(lines) if self.is_whole => {
                lines.n_before += std::mem::take(&mut lines.n_inputs);
                Ok(())
            }
            Some(lines) => lines.whole(),
            None => Ok(()),
        }
    }

    /// All sources have listed all.
    ///
    /// # Durability
    /// On `Ok` the listing survives a power cut, whole.
    ///
    /// # Errors
    /// The disk's.
    pub fn end(&mut self) -> Result<()> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        lines.end()?;
        Ok(self.place.storage().sync_dir(&self.place.home().work())?)
    }

    /// Keeps nothing any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn give_up(&mut self) -> Result<()> {
        match self.lines.take() {
            Some(_) => discard(&self.place),
            None => Ok(()),
        }
    }
}

/// How far a listing came, if each source that is named there is one of `roots`, and its root is the same;
/// else nothing.
///
/// # Errors
/// The disk's.
pub fn read(storage: &dyn Storage, home: &Home, roots: &BTreeMap<&str, &str>) -> Result<KeptSoFar> {
    let reading = Reading::read(storage, home, roots)?;
    let Reading { len, valid_bytes, kept, has_ended, has_others, .. } = reading;
    let mut state = JournalState { len, valid_bytes, sources: BTreeMap::new() };
    if has_others {
        return Ok(KeptSoFar { state, is_whole: has_ended, ..KeptSoFar::default() });
    }
    let counts = kept.iter().map(|(name, it)| (name.clone(), (it.inputs.len(), it.is_whole)));
    state.sources = counts.collect();
    Ok(KeptSoFar { sources: kept, is_whole: has_ended, state })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
