//! What a run did, for people and, as one JSON document, for programs.

use serde::Serialize;

use super::Hashed;
use crate::exporters::PushReport;
use crate::fingerprint::Fingerprinting;
use crate::remote::probe::{Outcome, Probe};

/// Version of the documents that commands print with `--json`.
pub const REPORT_VERSION: u32 = 1;

/// What [`Pipeline::run`](super::Pipeline::run) did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this document.
    pub version: u32,
    /// The dataset's folder.
    pub dataset: String,
    /// Its name.
    pub name: String,
    /// Its cache key.
    pub cache_key: String,
    /// Whether it was complete before, so that nothing was built.
    pub up_to_date: bool,
    /// Rows in the dataset.
    pub rows: u64,
    /// Shards in it.
    pub shards: u64,
    /// Bytes of all files of all shards.
    pub bytes: u64,
    /// Rows rejected.
    pub rejected: u64,
    /// The same by stage and code, the most frequent kind first.
    pub rejects: Vec<super::RejectReport>,
    /// Those of them that a hook did not answer: `--retry-rejects` asks again.
    pub unanswered: u64,
    /// Such rows of earlier runs that this one asked about again.
    pub asked_again: u64,
    /// Rows that were durable before this run and were not computed again.
    pub resumed_rows: u64,
    /// Partitions in the dataset.
    pub partitions: u64,
    /// Partitions taken over from earlier runs as they were.
    pub reused_partitions: u64,
    /// Partitions taken over from other runs at the same place.
    pub adopted_partitions: u64,
    /// Their rows.
    pub adopted_rows: u64,
    /// Wall-clock time.
    pub seconds: f64,
    /// Most resident memory, where the system tells.
    pub peak_rss_bytes: Option<u64>,
    /// Time and throughput by stage, in the order in which rows pass them.
    pub stages: Vec<StageReport>,
    /// Interned fields: how often their values repeat.
    pub interned: Vec<InternReport>,
    /// Lines that read the result with `NumPy`.
    pub reading: String,
    /// Whether `current` now points at the dataset.
    pub current: bool,
    /// How inputs were told to be the ones that were read before.
    pub fingerprint: Fingerprinting,
    /// What was pushed, where the definition says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushReport>,
}

/// One stage of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StageReport {
    /// Its name.
    pub name: String,
    /// Rows that left it in this run.
    pub rows: u64,
    /// Bytes of memory in those rows.
    pub bytes: u64,
    /// Time spent working, summed over threads.
    pub busy_seconds: f64,
    /// Time spent waiting for a neighbour, summed over threads.
    pub blocked_seconds: f64,
    /// What of it was known, where a hook has a feature cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
}

/// What a feature cache spared a hook in this run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CacheReport {
    /// Rows that the hook was to be asked about.
    pub rows: u64,
    /// Rows among them whose answers were known.
    pub known: u64,
    /// The share of these, from 0 to 1; none where there were no rows.
    pub hit_rate: Option<f64>,
}

/// What a feature cache holds for a hook.
#[derive(Debug, Clone, Serialize)]
pub struct KnownReport {
    /// The hook.
    pub stage: String,
    /// The folder of the feature cache.
    pub cache: String,
    /// SHA-256 of the hook's compat signature, which names the section.
    pub section: String,
    /// Rows there. Which rows of this dataset they are shows when those are read.
    pub rows: u64,
}

/// One interned field of a dataset.
#[derive(Debug, Clone, Serialize)]
pub struct InternReport {
    /// The field.
    pub field: String,
    /// Values in the dictionaries, summed over shards.
    pub values: u64,
    /// Rows that refer to them.
    pub rows: u64,
    /// Bytes of the dictionaries.
    pub dictionary_bytes: u64,
}

impl Report {
    /// The stage that kept the others waiting: the one that was busy the longest.
    #[must_use]
    pub fn bottleneck(&self) -> Option<&StageReport> {
        self.stages
            .iter()
            .filter(|stage| stage.busy_seconds > 0.0)
            .max_by(|a, b| a.busy_seconds.total_cmp(&b.busy_seconds))
    }
}

/// What a run would do.
#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    /// Version of this document.
    pub version: u32,
    /// The dataset's folder.
    pub dataset: String,
    /// Its name.
    pub name: String,
    /// Its cache key.
    pub cache_key: String,
    /// Whether the dataset is complete and a run would build nothing.
    pub up_to_date: bool,
    /// Rows that a hook did not answer and would be asked about again.
    pub asked_again: u64,
    /// How inputs are told to be the ones that were read before.
    pub fingerprint: Fingerprinting,
    /// Files to read.
    pub inputs: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// What each source lists, in dataset order.
    pub sources: Vec<SourceReport>,
    /// Columns of transforms that were learned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedReport>,
    /// What had to be hashed to know what is done.
    pub hashed: Hashed,
    /// Rows, where they are known without reading.
    pub rows: Option<u64>,
    /// Bytes that are free for the dataset, where the system tells.
    pub free_bytes: Option<u64>,
    /// Why partitions will be built, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<super::Why>,
    /// What feature caches hold for the hooks that have one.
    pub caches: Vec<KnownReport>,
    /// The partitions, in dataset order.
    pub partitions: Vec<PartitionReport>,
    /// The memory bound and how it comes about.
    pub memory: super::MemoryBound,
}

/// The columns of a transform that were learned.
#[derive(Debug, Clone, Serialize)]
pub struct LearnedReport {
    /// The transform.
    pub transform: String,
    /// The input that it was learned from.
    pub from: String,
    /// Its columns.
    pub columns: Vec<ColumnReport>,
}

/// One column, for people.
#[derive(Debug, Clone, Serialize)]
pub struct ColumnReport {
    /// Its name.
    pub name: String,
    /// `float32[256]`, `int64, nullable`.
    pub form: String,
}

impl LearnedReport {
    /// ``features: embedding float32[256] (from `a.csv`)``.
    #[must_use]
    pub fn text(&self) -> String {
        let columns: Vec<_> =
            self.columns.iter().map(|column| format!("{} {}", column.name, column.form)).collect();
        format!("{}: {} (from `{}`)", self.transform, columns.join("; "), self.from)
    }
}

/// What a source lists.
#[derive(Debug, Clone, Serialize)]
pub struct SourceReport {
    /// Its name.
    pub name: String,
    /// Files to read.
    pub inputs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One partition of a plan.
#[derive(Debug, Clone, Serialize)]
pub struct PartitionReport {
    /// Names its working state.
    pub slot: String,
    /// The source whose inputs it reads.
    pub source: String,
    /// What a run would do with it.
    pub state: PartitionState,
    /// Its first input.
    pub first_input: String,
    /// Number of inputs.
    pub inputs: u64,
    /// Bytes of the inputs (of the range, where a file is cut).
    pub bytes: u64,
    /// Rows, where they are known.
    pub rows: Option<u64>,
    /// Rows that a hook did not answer, for which it is built again.
    pub asked_again: u64,
}

/// How far a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionState {
    /// Recorded; its shards are used as they are.
    Done,
    /// Some of it is written; a run goes on from there.
    Begun,
    /// Nothing is written.
    New,
}

impl PartitionState {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Begun => "begun",
            Self::New => "new",
        }
    }
}

/// What a check found in order.
#[derive(Debug, Clone, Serialize)]
pub struct CheckReport {
    /// Version of this document.
    pub version: u32,
    /// The dataset's folder, which need not be there yet.
    pub dataset: String,
    /// The cache key.
    pub cache_key: String,
    /// Files that the sources match.
    pub inputs: u64,
    /// Their bytes.
    pub input_bytes: u64,
    /// What each source lists, in dataset order.
    pub sources: Vec<SourceReport>,
    /// Columns of transforms that were learned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<LearnedReport>,
    /// Rows of the batches that were sent through, the first of each source.
    pub sample_rows: u64,
    /// Bytes that a row of the sample takes in the dataset, on average.
    pub row_bytes: Option<u64>,
    /// Bytes that are free for the dataset, where the system tells.
    pub free_bytes: Option<u64>,
    /// The stages, in the order in which rows pass them.
    pub stages: Vec<String>,
    /// The fields of a row.
    pub fields: Vec<FieldReport>,
    /// What the place that is pushed to can do, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<PushCheck>,
}

/// What the place that is pushed to can do.
#[derive(Debug, Clone, Serialize)]
pub struct PushCheck {
    /// The place.
    pub url: String,
    /// What was tried there and works.
    pub works: Vec<&'static str>,
    /// What the store lacks, with what that means.
    pub lacks: Vec<Lacking>,
    /// Whether an object is created only where none is.
    pub conditional_create: bool,
    /// Whether an object is replaced only if it is the one that was meant.
    pub conditional_replace: bool,
    /// Whether large objects can be written in parts.
    pub multipart: bool,
}

/// Something that a store lacks, and a push does without.
#[derive(Debug, Clone, Serialize)]
pub struct Lacking {
    /// What was tried.
    pub what: &'static str,
    /// What that means.
    pub means: &'static str,
}

impl PushCheck {
    pub(super) fn of(probe: &Probe) -> Self {
        let works = probe.steps.iter().filter(|step| step.outcome == Outcome::Works);
        let lacks = probe.steps.iter().filter_map(|step| match step.outcome {
            Outcome::Lacking(means) => Some(Lacking { what: step.name, means }),
            Outcome::Works | Outcome::Fails(_) => None,
        });
        Self {
            url: probe.url.clone(),
            works: works.map(|step| step.name).collect(),
            lacks: lacks.collect(),
            conditional_create: probe.conditional_create,
            conditional_replace: probe.conditional_replace,
            multipart: probe.multipart,
        }
    }
}

/// One field, for people.
#[derive(Debug, Clone, Serialize)]
pub struct FieldReport {
    /// Its name.
    pub name: String,
    /// `float32[256]`, `utf8, interned`.
    pub form: String,
    /// Its files.
    pub files: Vec<String>,
}
