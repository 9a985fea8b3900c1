//! Rowmill turns raw datasets into memory-mapped row stores.
//!
//! Who reads a dataset begins with [`dataset::Dataset`]; who reads the code, in this order:
//!
//! 1. [`batch`], [`inputs`], [`books`] and [`fingerprint`]: what travels, what is read, what is counted.
//! 2. [`schema`] and [`storage`]: how columns become files, and the one door to the disk.
//! 3. [`shard`], then [`dataset`]: everything that is durable. These build without the feature `run`.
//! 4. `remote`, the one door to the network; `sources`, `transforms`, `graph` and `stages`: what moves batches.
//! 5. `config`, `pipeline` and `cli`: from a definition to a report.
#![deny(rustdoc::broken_intra_doc_links)]

// What tests share is written from outside.
#[cfg(test)]
extern crate self as rowmill;

pub mod batch;
pub mod books;
pub mod cache;
#[cfg(feature = "run")]
pub mod cli;
#[cfg(feature = "run")]
pub mod codes;
#[cfg(feature = "run")]
pub mod config;
pub mod dataset;
#[cfg(feature = "run")]
pub mod exporters;
pub mod fingerprint;
#[cfg(feature = "run")]
pub mod graph;
pub mod inputs;
#[cfg(feature = "run")]
pub mod pipeline;
#[cfg(feature = "run")]
pub mod remote;
pub mod schema;
pub mod shard;
#[cfg(feature = "run")]
pub mod sources;
#[cfg(feature = "run")]
pub mod stages;
pub mod storage;
#[cfg(feature = "run")]
pub mod transforms;
