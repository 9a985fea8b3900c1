//! Whatever happens to a build, and at whichever operation, the next run ends with the bytes of an
//! undisturbed one.
//!
//! Builds run on [`Memory`], where every operation that changes something can be the last one, and
//! where everything that was not synced survives or not, each operation on its own; and on
//! [`Faulty`], where any operation fails. `ROWMILL_CRASH_SEED` varies what is sampled,
//! `ROWMILL_CRASH_SCALE` multiplies how much of it is run.
//!
//! Invariants, each checked after every cut, kill and fault:
//! 1. A shard with a sentinel holds the bytes of the undisturbed run's, in its place or not yet.
//! 2. A writer opened on what is left goes on, with batches and commits of other sizes. Rows that it
//!    had said were durable are there, and of those it reads at most one reading again.
//! 3. It ends with the shards and the books of the undisturbed run, leaves nothing else, and all of
//!    it is durable.
//!
//! [`Memory`]: rowmill::storage::Memory
//! [`Faulty`]: rowmill::storage::Faulty
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers of tests")]

#[path = "../model/mod.rs"]
mod model;

mod build;
mod cache;
mod damage;
mod dataset;
#[path = "../dataset/fake.rs"]
mod fake;
mod faults;
#[cfg(feature = "run")]
mod journal;
mod kill;
mod power;
mod sampling;
mod schemas;
mod trial;
