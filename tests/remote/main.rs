//! Object stores: real S3-compatible servers on loopback, with signatures checked, and a proxy in
//! front of them that lets go wrong what a test asks for.
//!
//! The servers are Moto (`pip install 'moto[server]'`) and s3s-fs (`cargo install s3s-fs --version
//! 0.14.1 --locked --features binary`, into `target/tools` or anywhere in `PATH`). Tests that need one
//! say SKIPPED where it is not installed, or fail if `ROWMILL_REQUIRE_ALL` is 1.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]

mod checking;
mod clean;
#[path = "../command/mod.rs"]
mod command;
mod datasets;
mod dropping;
mod harness;
mod http;
mod lists;
mod pages;
mod proxy;
mod pull;
mod push;
mod reading;
mod rows;
mod servers;
mod several;
mod shared_disk;
mod silence;
mod verify;
mod web;
