//! A retry of rejects: partitions are built again although their inputs are what they were, because
//! a hook may answer now what it did not answer then.
//!
//! The records that are set aside for it are listed in `work/plan.json`, so that whichever run
//! comes next goes on with the retry. It ends when the dataset is complete, or when it is given up.
//!
//! Leaves out: which partitions those are (the pipeline's plan).
//!
//! Invariants:
//! 1. A record that is set aside is not adopted before its partition was built again. Where that came
//!    to a record of the same name, nothing has changed, and it counts again.
//! 2. Records and shards stay where they are: the generation that names them can be read throughout,
//!    and is there again if the retry is given up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::Result;
use super::facts::Facts;
use super::home::Workplace;
use super::record_name::RecordName;

/// A retry that is under way, in the hands of all partitions that are built.
#[derive(Debug)]
pub struct Retry {
    facts: Mutex<Facts>,
}

impl Retry {
    /// The retry that the facts tell of, if one is under way.
    #[must_use]
    pub fn under_way(facts: Facts) -> Option<Self> {
        facts.retrying.then(|| Self { facts: Mutex::new(facts) })
    }

    /// Begins a retry that sets these records aside.
    ///
    /// # Durability
    /// On `Ok` it goes on after a power cut.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(
        place: &Workplace,
        mut facts: Facts,
        set_aside: impl IntoIterator<Item = RecordName>,
    ) -> Result<Self> {
        facts.retrying = true;
        facts.set_aside.extend(set_aside.into_iter().map(|name| name.as_str().to_owned()));
        facts.write(place)?;
        Ok(Self { facts: Mutex::new(facts) })
    }

    /// A partition was built and has this record, which is adopted from now on.
    ///
    /// # Durability
    /// As [`Retry::begin`].
    ///
    /// # Errors
    /// The disk's.
    pub fn built(&self, place: &Workplace, name: &RecordName) -> Result<()> {
        let mut facts = self.facts();
        if facts.set_aside.remove(name.as_str()) {
            facts.write(place)?;
        }
        Ok(())
    }

    /// Ends the retry: whatever the current generation names counts.
    ///
    /// # Durability
    /// As [`Retry::begin`].
    ///
    /// # Errors
    /// The disk's.
    pub fn end(&self, place: &Workplace) -> Result<()> {
        let mut facts = self.facts();
        facts.retrying = false;
        facts.set_aside.clear();
        facts.write(place)
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
