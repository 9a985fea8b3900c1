//! The real binary, killed, failed, starved and disturbed from outside.
//!
//! One oracle: whatever happens to a build, the same command ends it with the bytes of an undisturbed
//! run ([`tree::Tree`]). Tests wait on lines of progress, never on time; what takes too long fails.
//!
//! Tests that need root or ptrace say SKIPPED where those are missing, and fail there if
//! `ROWMILL_REQUIRE_ALL` is set.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "tests make inputs and look at outputs themselves, fail by panicking and say what ran"
)]

mod builds;
mod changed;
mod commits;
mod faults;
mod full_disk;

mod memory;
mod place;
mod process;
mod random;
mod source_memory;
mod tools;
mod tree;
mod two_runs;
