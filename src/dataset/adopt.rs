//! Which record of a slot counts: whether a partition that was built before need not be built again.
//!
//! Leaves out: hashing inputs, which the caller's source does where no stamp knows the answer.
//!
//! Invariants:
//! 1. A record is adopted only if its slot and its contents agree with the inputs as they are, and
//!    its shards are there.
//! 2. Of several that agree, the one that the current manifest names counts, else the first by
//!    name: the choice does not depend on the order in which they were made.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::error::{DatasetError, Result};
use super::home::Home;
use super::manifest::Manifest;
use super::record::{Contents, Record, RecordName, RecordNames};
use super::stamps::Stamps;
use crate::inputs::{Input, InputDigest, InputRange, Part};
use crate::shard::layout::{COMPLETE, REMOTE};
use crate::storage::Storage;

/// What was built before, as one run finds it when it starts.
#[derive(Debug, Clone)]
pub struct Adopter {
    storage: Arc<dyn Storage>,
    home: Home,
    stamps: Arc<Stamps>,
    names: RecordNames,
    current: BTreeSet<String>,
    set_aside: BTreeSet<String>,
    believes: bool,
}

impl Adopter {
    /// Lists the records and those that the current manifest names. `set_aside` are records that are
    /// not adopted whatever they say.
    ///
    /// # Errors
    /// The disk's.
    pub fn new(
        storage: Arc<dyn Storage>,
        home: Home,
        stamps: Arc<Stamps>,
        set_aside: BTreeSet<String>,
    ) -> Result<Self> {
        let names = RecordNames::list(&*storage, &home)?;
        let current = match Manifest::current(&*storage, home.dir())? {
            Some((_, it)) => it.partitions.into_iter().map(|partition| partition.record).collect(),
            None => BTreeSet::new(),
        };
        Ok(Self { storage, home, stamps, names, current, set_aside, believes: false })
    }

    /// The same, believing what others said of inputs whose partitions were taken over from them, as long
    /// as these look as they did then.
    #[must_use]
    pub fn believing(self) -> Self {
        Self { believes: true, ..self }
    }

    /// The record that counts for the partition of `slot`, which reads `part` below `root`; `None` if
    /// it must be built. `limit` is how many source rows are left to read, where they are limited: a
    /// record of a partition that ended elsewhere is not adopted.
    ///
    /// `digests` hashes inputs (inputs first, then side inputs); it is called at most once, for those
    /// that no stamp knows, and only if there is a record to compare them with.
    ///
    /// # Errors
    /// The disk's, a damaged record, and what `digests` meets.
    pub fn adopt<E: From<DatasetError>>(
        &self,
        slot: &str,
        root: &str,
        part: &Part,
        limit: Option<u64>,
        digests: impl FnOnce(&Part) -> Result<Vec<InputDigest>, E>,
    ) -> Result<Option<(RecordName, Record)>, E> {
        let mut names: Vec<_> = self.names.of_slot(slot).iter().collect();
        names.retain(|name| !self.set_aside.contains(name.as_str()));
        names.sort_by_key(|name| !self.current.contains(name.as_str()));
        if names.is_empty() {
            return Ok(None);
        }
        let found = self.contents(slot, root, part, digests)?;
        for name in names {
            let record = self.read(name)?;
            if record.limit == limit
                && record.inputs.iter().chain(&record.side).eq(&found)
                && record.inputs.len() == part.inputs.len()
                && self.has_shards(&record)?
            {
                return Ok(Some((name.clone(), record)));
            }
        }
        Ok(None)
    }

    /// All records of the partition of `slot`, sorted by name.
    #[must_use]
    pub fn records_of(&self, slot: &str) -> &[RecordName] {
        self.names.of_slot(slot)
    }

    /// The record that counted for the partition of `slot` before it was set aside; that of the current
    /// manifest, where it names one.
    ///
    /// # Errors
    /// The disk's, and a damaged record.
    pub fn set_aside(&self, slot: &str) -> Result<Option<Record>> {
        let names = self.names.of_slot(slot).iter();
        let names = names.filter(|name| self.set_aside.contains(name.as_str()));
        let name = names.min_by_key(|name| !self.current.contains(name.as_str()));
        name.map(|name| self.read(name)).transpose()
    }

    fn read(&self, name: &RecordName) -> Result<Record> {
        Record::read(&*self.storage, self.home.dir(), self.home.cache_key(), name)
    }

    /// What stands in the inputs and side inputs now.
    fn contents<E: From<DatasetError>>(
        &self,
        slot: &str,
        root: &str,
        part: &Part,
        digests: impl FnOnce(&Part) -> Result<Vec<InputDigest>, E>,
    ) -> Result<Vec<Contents>, E> {
        let sides: Vec<_> = part.side.iter().map(whole).collect();
        let all = || part.inputs.iter().chain(&sides);
        let known = |input| {
            let believed = || self.stamps.believed(root, input).filter(|_| self.believes);
            self.stamps.digest(root, input).or_else(believed)
        };
        let known: Vec<_> = all().map(known).collect();
        let (inputs, side) = known.split_at(part.inputs.len().min(known.len()));
        let unknown = Part {
            inputs: unknown(&part.inputs, inputs).cloned().collect(),
            side: unknown(&part.side, side).cloned().collect(),
        };
        let n_unknown = unknown.inputs.len() + unknown.side.len();
        let hashed = if n_unknown > 0 { digests(&unknown)? } else { Vec::new() };
        let mut hashed = hashed.into_iter();
        let mut contents = Vec::with_capacity(known.len());
        for (input, known) in all().zip(known) {
            if let Some(digest) = known {
                contents.push(Contents::new(input, &digest));
                continue;
            }
            let path = &input.input.path;
            let digest = hashed.next().filter(|digest| digest.path == *path).ok_or_else(|| {
                DatasetError::Digests { slot: slot.to_owned(), path: path.clone() }
            })?;
            self.stamps.learn(root, input, digest.blake3)?;
            contents.push(Contents::new(input, &digest));
        }
        Ok(contents)
    }

    /// Whether every shard of a record is there, here or elsewhere.
    fn has_shards(&self, record: &Record) -> Result<bool> {
        for shard in &record.shards {
            let path = self.home.shard(&shard.id);
            let stat = |name| self.storage.stat(&path.join(name));
            if stat(COMPLETE)?.is_none() && stat(REMOTE)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A side input as a range of itself.
pub(super) fn whole(input: &Input) -> InputRange {
    InputRange { input: input.clone(), range: None }
}

/// The inputs whose digest is not known.
fn unknown<'a, T>(
    inputs: &'a [T],
    known: &'a [Option<InputDigest>],
) -> impl Iterator<Item = &'a T> {
    inputs.iter().zip(known).filter(|(_, known)| known.is_none()).map(|(input, _)| input)
}
