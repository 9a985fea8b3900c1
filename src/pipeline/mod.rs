//! From a definition to a report: the parts are taken from the tables, joined by edges and run.
//!
//! In reading order: [`Pipeline`] is a definition with its source and transforms made; `plan` says
//! what a run would do; `run` does it; `check` sends one batch through, `test` the rows of tests.
//!
//! Leaves out: printing anything (`cli`), and every byte on disk (`shard`, `dataset`).
//!
//! Invariants:
//! 1. What is planned is decided before a row is read; building decides nothing.
//! 2. A run that fails or is stopped leaves what the same command goes on from.

mod ahead;
mod assembly;
mod beginning;
mod building;
mod caches;
mod check;
mod compare;
mod contents;
mod demand;
mod elsewhere;
mod error;
mod expected;
mod export;
mod frame;
mod given;
mod groups;
mod growing;
mod learned;
mod listed;
mod live;
mod memory;
mod notes;
mod order;
mod partition;
mod places;
mod plan;
mod planner;
mod reading;
mod rejects;
mod remedy;
mod report;
mod retry;
mod rows;
mod run;
mod sharing;
mod side;
mod test;
mod through;
mod why;

pub use assembly::{Pipeline, RunOverrides};
pub use compare::{SourceFinding, SourceState, SourcesReport};
pub use contents::{
    Contents, FieldContents, RowContents, ShardContents, contents, row, row_with_key,
};
pub use error::{PipelineError, StageError};
pub use live::{Event, Live, Observer, Seen, peak_rss_bytes, rss_bytes};
pub use memory::{HookBound, MemoryBound};
pub use plan::Hashed;
pub use rejects::RejectReport;
pub use report::{
    CacheReport, CheckReport, ColumnReport, FieldReport, InternReport, KnownReport, Lacking,
    LearnedReport, PartitionReport, PartitionState, PlanReport, PushCheck, REPORT_VERSION, Report,
    SourceReport, StageReport,
};
pub use rows::{NoText, Piece, Rows};
pub use test::{CaseReport, FailureReport, TestReport};
pub use why::{OtherDefinition, PartitionWhy, Reason, ReasonCount, Why};
