//! What was rejected, and whether it is too much.
//!
//! Invariants:
//! 1. A partition is judged when its record is there, whether this run or an earlier one wrote it, so
//!    nothing that is over its budget is computed again to find that out.
//! 2. What has been rejected so far never falls: a number of rows that is exceeded by some partitions is
//!    exceeded by the dataset.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::contents::origin;
use super::{Pipeline, PipelineError};
use crate::batch::is_unanswered;
use crate::books::{Budget, MaxRejects, OverBudget, StageBooks, judge};
use crate::dataset::DatasetError;
use crate::dataset::record::{BooksByStage, Record};
use crate::inputs::RowPlace;
use crate::shard::{Reject, Shard, layout, unanswered};
use crate::storage::Storage;

/// Kinds of rejects that an error names.
const NAMED_KINDS: usize = 3;

/// The rejects of one stage with one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectReport {
    /// The stage.
    pub stage: String,
    /// What is wrong with the rows, as a stable word.
    pub code: String,
    /// How many there are.
    pub rows: u64,
    /// The source that lists the input of the first of them.
    pub source: Option<String>,
    /// Where the first of them stands.
    #[serde(flatten)]
    pub place: RowPlace,
    /// What is wrong with it.
    pub message: String,
    /// The file that holds it.
    pub file: String,
}

/// Counts rejects by stage and code, and keeps the first of each.
#[derive(Debug, Default)]
pub(super) struct Rejects {
    kinds: BTreeMap<(String, String), RejectReport>,
}

impl Rejects {
    /// Counts those of a shard.
    pub(super) fn add(&mut self, shard: &Shard) -> Result<(), PipelineError> {
        let mut new = Vec::new();
        let counted = shard.rejects(|reject| {
            let kind = (reject.stage.clone(), reject.code.clone());
            if let Some(report) = self.kinds.get_mut(&kind) {
                report.rows += 1;
            } else {
                new.push((kind.clone(), reject.input));
                self.kinds.insert(kind, report(reject));
            }
        });
        counted.map_err(DatasetError::from)?;
        for (kind, input) in new {
            if let Some(report) = self.kinds.get_mut(&kind) {
                (report.source, report.place) = origin(shard, input, report.place.source_row)?;
                report.file = shard.path().join(layout::REJECTS).display().to_string();
            }
        }
        Ok(())
    }

    /// Counts those of the shards in these folders; a shard without any is not opened.
    pub(super) fn add_all(
        &mut self,
        storage: &Arc<dyn Storage>,
        shards: impl IntoIterator<Item = PathBuf>,
    ) -> Result<(), PipelineError> {
        for path in shards {
            let found = storage.stat(&path.join(layout::REJECTS))?;
            if found.is_none_or(|file| file.len > 0) {
                let shard = Shard::open(Arc::clone(storage), &path).map_err(DatasetError::from)?;
                self.add(&shard)?;
            }
        }
        Ok(())
    }

    /// How many of them a hook did not answer.
    pub(super) fn unanswered(&self) -> u64 {
        let kinds = self.kinds.values().filter(|kind| is_unanswered(&kind.code));
        kinds.map(|kind| kind.rows).sum()
    }

    /// The kinds, the most frequent first.
    pub(super) fn reports(self) -> Vec<RejectReport> {
        let mut all: Vec<RejectReport> = self.kinds.into_values().collect();
        // Stable: those that are equally frequent stay in the order of their names.
        all.sort_by_key(|report| std::cmp::Reverse(report.rows));
        all
    }
}

fn report(reject: Reject) -> RejectReport {
    RejectReport {
        stage: reject.stage,
        code: reject.code,
        rows: 1,
        source: None,
        place: RowPlace::new("", None, reject.source_row),
        message: reject.message,
        file: String::new(),
    }
}

impl Display for RejectReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, code, rows, place, message, .. } = self;
        write!(f, "{rows} × {code} in `{stage}`, first {place}: {message}")
    }
}

/// What the partitions that are finished have rejected.
#[derive(Debug)]
pub(super) struct Tally {
    budgets: Vec<Budget>,
    books: BooksByStage,
    /// Ids of the shards of partitions with rejects.
    shards: Vec<String>,
}

impl Tally {
    pub(super) fn new(budgets: Vec<Budget>) -> Self {
        Self { budgets, books: BooksByStage::new(), shards: Vec::new() }
    }

    /// Takes a finished partition in.
    ///
    /// # Errors
    /// It has more rejects than it may have, or all together do.
    pub(super) fn add(&mut self, finished: &RejectsOf) -> Result<(), TooMany> {
        for (stage, books) in &finished.books {
            let total = self.books.entry(stage.clone()).or_default();
            total.entered += books.entered;
            total.rejected += books.rejected;
        }
        if finished.shards.is_empty() {
            return Ok(());
        }
        self.shards.extend_from_slice(&finished.shards);
        judge(&self.budgets, named(&finished.books))
            .map_err(|over| TooMany { over, shards: finished.shards.clone() })?;
        let rows = self.budgets.iter().filter(|it| matches!(it.max, MaxRejects::Rows(_)));
        let rows: Vec<Budget> = rows.cloned().collect();
        judge(&rows, named(&self.books)).map_err(|over| self.too_many(over))
    }

    /// All partitions are finished.
    ///
    /// # Errors
    /// All together have more rejects than they may have.
    pub(super) fn finish(&self) -> Result<(), TooMany> {
        judge(&self.budgets, named(&self.books)).map_err(|over| self.too_many(over))
    }

    fn too_many(&self, over: OverBudget) -> TooMany {
        TooMany { over, shards: self.shards.clone() }
    }
}

/// More rejects than there may be, and the shards that hold them.
#[derive(Debug)]
pub(super) struct TooMany {
    over: OverBudget,
    shards: Vec<String>,
}

/// What a finished partition has rejected.
#[derive(Debug, Clone, Default)]
pub(super) struct RejectsOf {
    books: BooksByStage,
    /// Ids of its shards, if it has rejects.
    shards: Vec<String>,
}

impl RejectsOf {
    pub(super) fn record(record: &Record) -> Self {
        let has_some = record.books.values().any(|books| books.rejected > 0);
        let ids = record.shards.iter().filter(|_| has_some).map(|shard| shard.id.clone());
        Self { books: record.books.clone(), shards: ids.collect() }
    }
}

impl RejectsOf {
    /// How many of them a hook did not answer.
    pub(super) fn unanswered(&self, pipeline: &Pipeline) -> Result<u64, PipelineError> {
        let shards = self.shards.iter().map(|id| pipeline.home.shard(id));
        let counts = shards.map(|dir| unanswered(&*pipeline.storage, &dir));
        counts.sum::<Result<u64, _>>().map_err(|e| DatasetError::from(e).into())
    }
}

fn named(books: &BooksByStage) -> impl Iterator<Item = (&str, &StageBooks)> {
    books.iter().map(|(stage, books)| (stage.as_str(), books))
}

impl TooMany {
    /// The error that says what was rejected at the stage, and where it can be looked at. Reads the
    /// rejects.
    pub(super) fn error(self, pipeline: &Pipeline) -> PipelineError {
        let Self { over, shards } = self;
        let mut rejects = Rejects::default();
        let shards = shards.iter().map(|id| pipeline.home.shard(id));
        if let Err(error) = rejects.add_all(&pipeline.storage, shards) {
            return error;
        }
        let stage = over.budget.stage.clone();
        let mut kinds: Vec<_> =
            rejects.reports().into_iter().filter(|it| it.stage == stage).collect();
        let n_shown = kinds.len().min(NAMED_KINDS);
        pipeline.count_rejects(kinds.get_mut(..n_shown).unwrap_or_default());
        let mut shown: Vec<String> =
            kinds.iter().take(NAMED_KINDS).map(ToString::to_string).collect();
        if let Some(more) = kinds.len().checked_sub(NAMED_KINDS).filter(|n| *n > 0) {
            shown.push(format!("and {more} more kinds"));
        }
        let file = kinds.first().map(|kind| kind.file.clone()).unwrap_or_default();
        let table = pipeline.definition.table_of(&stage);
        PipelineError::Rejects { over: Box::new(over), kinds: shown.join("; "), file, table }
    }
}
