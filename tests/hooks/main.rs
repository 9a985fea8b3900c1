//! Feature hooks as separate processes: what they compute, whatever they do, and however runs end.
//!
//! The hook is a Python program with a misbehaviour of every kind; tests that need one say SKIPPED where
//! there is no Python with pyarrow, or fail if `ROWMILL_REQUIRE_ALL` is 1.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    reason = "tests look at the disk and at processes themselves"
)]

#[path = "../command/mod.rs"]
mod command;
#[path = "../kill/process.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod process;

mod answers;
mod definitions;
mod groups;
mod hook;
mod kills;
mod kinds;
mod known;
mod learned;
mod memory;
mod misbehaviour;
mod python;
mod retry;
mod several;
mod writers;
