//! Rowmill turns raw datasets into memory-mapped row stores.
#![deny(rustdoc::broken_intra_doc_links)]

pub mod batch;
pub mod books;
#[cfg(feature = "run")]
pub mod cli;
#[cfg(feature = "run")]
pub mod codes;
#[cfg(feature = "run")]
pub mod config;
pub mod dataset;
pub mod fingerprint;
#[cfg(feature = "run")]
pub mod graph;
pub mod inputs;
#[cfg(feature = "run")]
pub mod pipeline;
pub mod schema;
pub mod shard;
#[cfg(feature = "run")]
pub mod sources;
#[cfg(feature = "run")]
pub mod stages;
pub mod storage;
#[cfg(feature = "run")]
pub mod transforms;
