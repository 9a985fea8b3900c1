//! A dataset: partitions built one by one, and the manifest and sentinel that join them.
//!
//! In the order of a build: [`plan`] divides the inputs into partitions, [`home`] makes the folder
//! and takes its lock, [`facts`] keeps what planning learned, [`stamps`] the digests of inputs,
//! [`listing`] what stores listed;
//! [`adopt`] finds the partitions that are built, [`choice`] says which of other machines' are taken
//! over, [`partition`] builds the others, [`record`] is what is left of each. [`finalize`] writes the
//! [`manifest`], the key index ([`keys`], made by [`merge`])
//! and the [`sentinel`]. [`reader`] opens what is complete, of which a [`Selection`] gathers rows; [`verify`]
//! checks every byte of it. [`survey`] and [`status`] look at a folder from outside, [`difference`]
//! compares two definitions, [`clean`] removes what nobody needs any more, [`doubt`] what nobody can believe.
//!
//! Leaves out: shards themselves (`shard`), reading inputs (`sources`), doing things in parallel.
//!
//! Invariants:
//! 1. Nothing here depends on the order in which partitions are finished: a dataset's bytes are a
//!    function of its plan and its records.
//! 2. The sentinel is written by one function, after it has counted everything the sentinel covers.

pub mod adopt;
pub mod choice;
pub mod clean;
mod contents;
pub mod difference;
pub mod doubt;
pub mod error;
pub mod facts;
pub mod finalize;
pub mod home;
pub mod journal;
pub mod keys;
pub mod listing;
pub mod manifest;
pub mod merge;
pub mod partition;
pub mod plan;
mod publish;
pub mod reader;
pub mod record;
mod record_name;
pub mod retry;
mod run_note;
mod selection;
pub mod sentinel;
pub mod stamps;
pub mod status;
pub mod survey;
pub mod verify;

pub use error::{DatasetError, KeyedRow, Result};
pub use home::{Home, Workplace};
pub use reader::Dataset;
pub use run_note::RunNote;
pub use selection::Selection;
