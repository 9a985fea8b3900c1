//! Schemas: what is inferred from Arrow, the bytes of batches, and `schema.json`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]

mod batches;
mod documents;
mod infer;
#[path = "../model/mod.rs"]
mod model;
mod properties;
mod values;
