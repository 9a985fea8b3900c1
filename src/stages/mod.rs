//! Thin tasks that join edges to the synchronous core: one reads a partition, one writes it.
//!
//! Leaves out: what a partition is made of and where it goes (`pipeline`), and the transforms between
//! the two stages (`graph::ordered`).
//!
//! Invariants:
//! 1. The end of a partition is a value that carries the digests of its inputs: a writer that has not
//!    received it never finishes the partition.
//! 2. A stage that is asked to stop leaves a commit behind it; one that is cancelled leaves whatever
//!    was committed before.

mod align;
mod limit;
mod read;
mod rebatch;
#[cfg(test)]
mod rebatch_tests;
mod write;

pub use align::{Alignment, Misaligned, common_columns};
pub use limit::RowLimit;
pub use read::{ReadStage, Start};
pub use rebatch::{Cutter, RebatchStage};
pub use write::{PartitionWriter, WriteStage};

use crate::inputs::InputDigest;

/// What ends a partition on its edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOfInputs {
    /// The digest of every input and side input, in order, inputs first.
    pub digests: Vec<InputDigest>,
}
