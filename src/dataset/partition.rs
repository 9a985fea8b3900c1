//! Builds one partition: its writer, its record, and what becomes of its working state.
//!
//! Leaves out: where batches come from, and shards themselves (`shard`).
//!
//! Invariants:
//! 1. Rows of inputs that have changed since a partition was begun are never mixed with those of the
//!    inputs as they are: what an earlier run left is continued only if every path, range, size and
//!    time is the same.
//! 2. The record is written after all shards are sealed, and the working state removed after that:
//!    open shards, then the log, then the note of what the inputs looked like. A crash between any
//!    two of these is finished by the next run.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::adopt::whole;
use super::error::Result;
use super::home::Workplace;
use super::record::{Record, RecordName, ShardEntry};
use super::retry::Retry;
use super::stamps::Stamps;
use crate::batch::{Batch, OnError};
use crate::fingerprint::{Fingerprinting, Stamp};
use crate::inputs::{Input, InputDigest, Part};
use crate::schema::RowSchema;
use crate::shard::{
    CommitPolicy, Progress, Resume, SealedShard, ShardInput, ShardLimits, Writer, WriterOptions,
};
use crate::storage::parent;

/// What a partition is.
#[derive(Debug, Clone)]
pub struct PartitionOptions {
    /// Its slot.
    pub slot: String,
    /// What it reads.
    pub part: Arc<Part>,
    /// Where that is; only ever a reason not to believe what was noted of other places.
    pub root: String,
    /// The fields of a row.
    pub schema: RowSchema,
    /// Names of the stages, in the order in which rows pass them.
    pub stages: Vec<String>,
    /// How large shards and rows may be.
    pub limits: ShardLimits,
    /// What is done with a row that cannot be stored.
    pub on_error: OnError,
    /// How often rows are made durable.
    pub commits: CommitPolicy,
    /// Source rows that are left to read, where they are limited; stands in the record.
    pub limit: Option<u64>,
    /// The retry of rejects that is under way.
    pub retry: Option<Arc<Retry>>,
}

/// A partition that is being built.
#[derive(Debug)]
pub struct Partition {
    place: Arc<Workplace>,
    stamps: Arc<Stamps>,
    slot: String,
    root: String,
    part: Arc<Part>,
    limit: Option<u64>,
    retry: Option<Arc<Retry>>,
    writer: Writer,
}

/// A partition that is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// The name of its record.
    pub name: RecordName,
    /// Its record.
    pub record: Record,
    /// Its shards, in order.
    pub shards: Vec<SealedShard>,
}

impl Partition {
    /// Opens the partition, and finds out what an earlier run left of it.
    ///
    /// # Errors
    /// The disk's, or what was left is not what was promised.
    pub fn open(
        place: Arc<Workplace>,
        stamps: Arc<Stamps>,
        options: PartitionOptions,
    ) -> Result<(Self, Resume)> {
        let PartitionOptions {
            slot,
            part,
            root,
            schema,
            stages,
            limits,
            on_error,
            commits,
            limit,
            retry,
        } = options;
        begin(&place, &slot, &root, &part, stamps.fingerprinting())?;
        let inputs = part.inputs.iter().map(|input| ShardInput {
            path: input.input.path.clone(),
            size: input.bytes(),
            range: input.range.clone(),
        });
        let options = WriterOptions {
            dataset: place.home().dir().to_path_buf(),
            cache_key: place.home().cache_key().to_owned(),
            slot: slot.clone(),
            schema,
            stages,
            inputs: inputs.collect(),
            limits,
            on_error,
            commits,
        };
        let (writer, resume) = Writer::open(Arc::clone(place.storage()), options)?;
        Ok((Self { place, stamps, slot, root, part, limit, retry, writer }, resume))
    }

    /// What it reads.
    #[must_use]
    pub fn part(&self) -> &Arc<Part> {
        &self.part
    }

    /// Shards that are sealed, in order, those of earlier runs included.
    #[must_use]
    pub fn sealed(&self) -> &[SealedShard] {
        self.writer.sealed()
    }

    /// Appends the rows of a batch.
    ///
    /// # Durability
    /// The rows survive once [`Progress::rows`] counts them.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn append(&mut self, batch: &Batch) -> Result<Progress> {
        Ok(self.writer.append(batch)?)
    }

    /// Commits.
    ///
    /// # Durability
    /// On `Ok` everything appended so far survives a power cut.
    ///
    /// # Errors
    /// The disk's.
    pub fn commit(&mut self) -> Result<Progress> {
        Ok(self.writer.commit()?)
    }

    /// Ends the partition: seals its last shard, writes its record and removes its working state.
    /// `digests` are those of its inputs and side inputs, in their order, of bytes that did not
    /// change while they were read.
    ///
    /// # Durability
    /// On `Ok` shards and record survive a power cut.
    ///
    /// # Errors
    /// The disk's; digests of other inputs; books that do not close.
    pub fn finish(self, digests: &[InputDigest]) -> Result<Built> {
        let Self { place, stamps, slot, root, part, limit, retry, writer } = self;
        let finished = writer.finish()?;
        let entry = |shard: &SealedShard| ShardEntry {
            bytes: shard.bytes(),
            id: shard.id().to_owned(),
            rows: shard.rows(),
        };
        let shards = finished.shards.iter().map(entry).collect();
        let record =
            Record::new(place.home(), &slot, &part, digests, shards, &finished.books, limit)?;
        let sides: Vec<_> = part.side.iter().map(whole).collect();
        for (input, digest) in part.inputs.iter().chain(&sides).zip(digests) {
            stamps.learn(&root, input, digest.blake3)?;
        }
        stamps.sync()?;
        let name = record.write(&place)?;
        if let Some(retry) = retry {
            retry.built(&place, &name)?;
        }
        clear(&place, &slot)?;
        Ok(Built { name, record, shards: finished.shards })
    }
}

/// Removes the working state of a partition, if there is any.
///
/// # Durability
/// On `Ok` it stays away. What a crash leaves of it is removed when the partition is opened or
/// adopted again.
///
/// # Errors
/// The disk's.
pub fn clear(place: &Workplace, slot: &str) -> Result<()> {
    let home = place.home();
    place.discard(&home.open_shards(slot))?;
    place.discard(&home.log(slot))?;
    place.discard(&home.begun(slot))
}

/// Removes the working state of every partition. In a dataset that is complete it is what is left of
/// partitions that are planned no longer, because their inputs changed while they were being built.
///
/// # Durability
/// As [`clear`].
///
/// # Errors
/// The disk's.
pub fn clear_all(place: &Workplace) -> Result<()> {
    let home = place.home();
    let mut slots = BTreeSet::new();
    // Of any slot: all stand side by side.
    for state in [home.open_shards("x"), home.log("x")] {
        let entries = place.storage().list(parent(&state))?.unwrap_or_default();
        slots.extend(entries.iter().map(|entry| slot_of(&entry.name).to_owned()));
    }
    slots.iter().try_for_each(|slot| clear(place, slot))
}

/// The slot that a name in the working state begins with.
fn slot_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(slot, _)| slot)
}

/// Makes sure that whatever working state there is was made from these inputs.
fn begin(
    place: &Workplace,
    slot: &str,
    root: &str,
    part: &Part,
    fingerprinting: Fingerprinting,
) -> Result<()> {
    let mut seen = blake3::Hasher::new();
    let sides: Vec<_> = part.side.iter().map(whole).collect();
    for input in part.inputs.iter().chain(&sides) {
        let Input { path, size, modified, changed } = &input.input;
        let changed = changed.filter(|_| fingerprinting == Fingerprinting::Content);
        let Stamp { size, modified_ns, changed_ns } = Stamp::new(*size, *modified, changed);
        let known_by = (root, path, &input.range, size, modified_ns, changed_ns);
        // Text and numbers into memory: this cannot fail.
        seen.update(&serde_json::to_vec(&known_by).unwrap_or_default());
    }
    let seen = format!("{}\n", seen.finalize().to_hex());
    let note = place.home().begun(slot);
    let storage = place.storage();
    if storage.read(&note)?.as_deref() == Some(seen.as_bytes()) {
        // The run that wrote it may have been cut off before this; an older note must not come back.
        return Ok(storage.sync_dir(parent(&note))?);
    }
    clear(place, slot)?;
    Ok(storage.write_atomic(&note, seen.as_bytes())?)
}
