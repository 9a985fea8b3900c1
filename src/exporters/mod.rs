//! Complete datasets between here and elsewhere: object stores, and disks that are reached by URL.
//!
//! In reading order: `object` (what goes out), `decide` (what is done about one object, a pure
//! decision), `journal` (what was begun and done, kept in the dataset's `work/`), `wire` (requests),
//! `task` (threads and tasks), `buffers` (memory), `session` (what all parts share), `send` (one
//! file), `send_shard`, `commit` (the dataset's sentinel), `steps` (their order), `push` (a dataset),
//! `exporter` and `follow` (one that is still being built).
//! The way back: `pull_session` (what all parts share), `pull_file` (one file), `pull`.
//! `others` takes over what other machines have finished.
//! `presence` tells that a push is at work, `clean` removes what nobody needs any more (`clean_found`) and
//! tells of it (`cleaning`).
//! `quick` looks at what is there without reading it.
//!
//! Leaves out: building (`pipeline`), and how a store is reached (`remote`).
//!
//! Invariants:
//! 1. A sentinel is written, there and here, after everything that it covers, so a reader that trusts
//!    sentinels never sees half a shard or half a dataset.
//! 2. Only bytes that were sealed become objects: each file is hashed as it is sent, and its object
//!    appears after the hash was compared.
//! 3. What is in a store is believed by size and digest, never by its name alone.

mod buffers;
mod clean;
mod clean_found;
mod cleaning;
mod commit;
mod decide;
mod drop;
mod error;
mod exporter;
mod follow;
mod journal;
mod object;
mod open;
mod others;
mod presence;
mod pull;
mod pull_error;
mod pull_file;
mod pull_session;
mod push;
mod quick;
mod send;
mod send_shard;
mod session;
mod steps;
mod task;
#[cfg(test)]
mod tests;
mod throttle;
mod wire;

pub use clean::{CleanElsewhere, KeepElsewhere, LeftElsewhere, RemovalElsewhere};
pub use cleaning::CleaningHere;
pub use decide::{Decision, Difference, Remote as RemoteObject, decide};
pub use error::{PushError, Result};
pub use exporter::Exporter;
pub use follow::Ready;
pub use journal::{Abilities, Before, Begun, Done, Facts, Journal, Known, Note, Part};
pub use object::{DIGEST, Object, ShardObjects};
pub use open::{open_dataset, storage_at};
pub use others::Others;
pub use presence::push_at;
pub use pull::{PullReport, pull};
pub use pull_error::PullError;
pub use pull_session::{PullLive, PullOptions, PullSeen};
pub use push::{Push, PushReport, Replaced};
pub use quick::Quick;
pub use session::{PushLive, PushOptions, PushSeen};
