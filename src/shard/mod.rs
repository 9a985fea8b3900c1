//! Shards: the unit of seal, verify, push and open.
//!
//! A [`Writer`] lays the rows of one partition into shards, commits them as it goes and seals each
//! one when it is full; opened again after a crash it continues at the last commit. The bytes are
//! described in `docs/format.md`.
//!
//! In reading order: `layout` (names), `log` and `manifest` (what a writer leaves for itself),
//! `file`, `interner`, `fields` and `rows` (how rows become bytes), `open` and `committer` (an open
//! shard and its commits), `walk` and `ledger` (batches in stream order, and books), `recovery` and
//! `reopen` (what is done with what a crash left), `seal` with `keys` and `index` (how a shard is
//! finished), `writer` (a partition's shards in order); then `sums` and `promise` (what a sealed shard says of
//! itself), `reader` with `field_reader` and `columns` (its rows), `distant` (the same where nothing can be mapped), `verify` with `structure` (every
//! byte of it, and what they say), `sealed_files` (what its sentinel covers), `remote_sentinel` and `elsewhere` (shards whose rows are only in a store); `keyed` (rows under keys, without provenance); `glance` (how far an open partition is, for people).
//!
//! Leaves out: which partitions there are and when a dataset is complete (`dataset`).
//!
//! Invariants:
//! 1. Sealed bytes are a function of the rows, rejects, inputs' names and limits: not of batches,
//!    commits or interruptions.
//! 2. Names and bytes are durable before anything relies on them.
//! 3. What an earlier run promised and cannot be found is refused by name, never made up.

#[cfg(target_endian = "big")]
compile_error!("rows are written as they lie in memory, which has to be little-endian");

pub mod layout;
pub mod log;

mod columns;
mod committer;
mod distant;
mod elsewhere;
mod error;
mod field_reader;
mod fields;
mod file;
mod finding;
#[cfg(test)]
mod forge;
mod glance;
mod index;
mod inputs;
mod interner;
mod keyed;
mod keys;
mod ledger;
mod manifest;
mod memory;
mod open;
mod options;
mod partition_log;
mod promise;
mod read_error;
#[cfg(test)]
mod read_tests;
mod reader;
mod recovery;
mod rejects;
mod remote_sentinel;
mod reopen;
mod rows;
mod seal;
mod sealed_files;
mod sift;
mod sizes;
mod stream;
mod structure;
mod sums;
mod trash;
mod unanswered;
mod verify;
mod verify_kept;
#[cfg(test)]
mod verify_tests;
mod walk;
mod writer;

pub use elsewhere::{Dropped, bring_back, drop_rows, files_here, is_complete, place_remote};
pub use error::{Damage, ShardError};
pub use field_reader::FieldReader;
pub use finding::{Block, Finding, FindingKind};
pub use glance::{Glance, OpenGlance};
pub use inputs::Origin;
pub(crate) use keyed::KeyedWriter;
pub use memory::{memory_bytes, shared_bytes};
pub use options::{
    CommitPolicy, Finished, Progress, Resume, ShardInput, ShardLimits, WriterOptions,
};
pub use promise::Promise;
pub(crate) use read_error::DAMAGED_ELSEWHERE;
#[cfg(feature = "run")]
pub(crate) use read_error::LOST_ELSEWHERE;
pub use read_error::ReadError;
pub use reader::{Key, Shard};
pub use rejects::Reject;
pub use remote_sentinel::{RemoteSentinel, dropped_files};
pub use seal::SealedShard;
pub use sealed_files::{SealedFile, SealedFiles};
#[cfg(feature = "run")]
pub(crate) use sift::Sieve;
pub use trash::{discard, empty_trash};
pub use unanswered::{unanswered, unanswered_so_far};
pub(crate) use verify::verify_keyed;
pub use verify::{staged_files, verify_shard, verify_shard_sums};
pub use verify_kept::verify_kept;
pub use writer::Writer;
