//! Whole builds with the real binary: the same bytes whatever the circumstances, changed inputs, and
//! the values of real data.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests change and read what is on disk"
)]

#[path = "../command/mod.rs"]
mod command;

mod changes;
mod definitions;
mod keys;
mod places;
mod real_data;
mod rejects;
mod same_bytes;
mod sources;
mod tables;
mod values;
