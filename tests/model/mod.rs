//! Rows to test with, shared by several tests: `mod model;`.
//!
//! [`every_kind_batch`] is a fixed set of rows in which every kind of field, dtype and logical type
//! occurs. `arbitrary` makes schemas and batches at random together with what must come of them.
#![allow(dead_code, unused_imports, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "random numbers are cut to size"
)]

pub(crate) mod arbitrary;
mod every_kind;
mod numbers;
pub(crate) mod partition;
mod strings;

pub(crate) use every_kind::{every_kind_batch, every_kind_rows, every_kind_schema};
