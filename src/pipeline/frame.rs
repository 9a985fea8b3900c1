//! What one partition is built from: what it shares with all others, and its own.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::MemoryBound;
use super::plan::Planned;
use crate::dataset::retry::Retry;
use crate::inputs::Part;
use crate::schema::RowSchema;
use crate::stages::Alignment;

/// What all partitions are built by.
#[derive(Debug)]
pub(super) struct Frame {
    /// The row that they are stored as.
    pub(super) schema: RowSchema,
    /// Of each source.
    pub(super) columns: Vec<Columns>,
    /// What they may take.
    pub(super) bound: MemoryBound,
    /// The retry of rejects that is under way.
    pub(super) retry: Option<Arc<Retry>>,
}

/// The columns of a source.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Its own.
    pub(super) own: SchemaRef,
    /// What brings its batches to the columns of all sources.
    pub(super) alignment: Option<Arc<Alignment>>,
}

/// A partition that is to be built.
#[derive(Debug, Clone)]
pub(super) struct Task {
    /// Its place in the dataset.
    pub(super) index: usize,
    /// Whose inputs it reads.
    pub(super) source: usize,
    /// Names its working state.
    pub(super) slot: String,
    /// Bytes of its inputs.
    pub(super) bytes: u64,
    /// What it reads.
    pub(super) part: Arc<Part>,
}

impl Task {
    /// The partition that was planned as number `index` and reads `part`.
    pub(super) fn new(index: usize, planned: &Planned, part: Part) -> Self {
        let Planned { source, slot, bytes, .. } = planned;
        Self { index, source: *source, slot: slot.clone(), bytes: *bytes, part: Arc::new(part) }
    }
}
