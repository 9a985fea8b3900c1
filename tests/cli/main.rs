//! The command line, as whoever types it sees it: documents, exit codes, texts, paths, and what is
//! written and what is not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at the disk themselves, and damage what is there"
)]

#[path = "../command/mod.rs"]
mod command;

mod caches;
mod cleaning;
mod codes;
mod comparing;
mod damage;
mod documents;
mod forbidden;
mod limits;
mod output;
mod paths;
mod plans;
mod refusals;
mod rows;
mod starting;
mod status;
mod stopping;
mod testing;
mod why;
