//! Builds what is not done, as many partitions at once as the bound allows; what others have finished is
//! taken over instead.
//!
//! Leaves out: one partition (`partition`), and what becomes of all (`run`).

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::order::Todo;
use super::partition::{Context, Finished, build};
use super::plan::{Done, Planned, State};
use super::rejects::{RejectsOf, Tally, TooMany};
use super::run::on_thread;
use super::sharing::adopt;
use super::{Pipeline, PipelineError, Report};
use crate::dataset::finalize::PlannedPartition;
use crate::dataset::home::owner;
use crate::dataset::record::RecordName;
use crate::graph::Control;
use crate::stages::RowLimit;

/// Partitions that are taken over at once.
const ADOPTING: usize = 8;

/// What building all partitions came to.
#[derive(Debug, Default)]
pub(super) struct Built {
    /// The partitions of the dataset, in order.
    pub(super) partitions: Vec<PlannedPartition>,
    pub(super) newly: u64,
    pub(super) reused: u64,
    pub(super) resumed_rows: u64,
    /// Partitions that others have built.
    pub(super) adopted: u64,
    pub(super) adopted_rows: u64,
}

impl Built {
    /// Tells what was not built by this run.
    pub(super) fn describe(&self, report: &mut Report) {
        report.resumed_rows = self.resumed_rows;
        report.reused_partitions = self.reused;
        report.adopted_partitions = self.adopted;
        report.adopted_rows = self.adopted_rows;
    }
}

/// How the work at one partition ended.
enum Ended {
    /// `None`: the run was stopped first.
    Built(Option<Finished>),
    /// `None`: it is to be built.
    Adopted(usize, Option<Done>),
}

impl Pipeline {
    /// Builds what is not done, or takes it over.
    pub(super) async fn build_all(
        self: &Arc<Self>,
        context: &Arc<Context>,
        stop: &CancellationToken,
    ) -> Result<Built, PipelineError> {
        let mut work = AtWork::new(self, context, stop);
        loop {
            work.begin().await;
            let Some(ended) = work.tasks.join_next().await else { break };
            match ended {
                Ok(Ok(ended)) => work.ended(ended).await,
                Ok(Err(error)) => work.fail(error),
                Err(error) => {
                    work.control.cancel.cancel();
                    return Err(PipelineError::Runtime(std::io::Error::other(error)));
                }
            }
        }
        work.finish().await
    }

    /// What stands in the rejects that are too many.
    async fn error_of(self: &Arc<Self>, too_many: TooMany) -> PipelineError {
        let pipeline = Arc::clone(self);
        let said = on_thread(move || Ok(too_many.error(&pipeline))).await;
        said.unwrap_or_else(|error| error)
    }
}

/// All partitions while they are built.
struct AtWork<'a> {
    pipeline: &'a Arc<Pipeline>,
    context: &'a Arc<Context>,
    control: Control,
    tasks: JoinSet<Result<Ended, PipelineError>>,
    todo: Todo,
    jobs: usize,
    n_building: usize,
    n_adopting: usize,
    limit: Option<RowLimit>,
    tally: Tally,
    /// By partition.
    records: Vec<Option<RecordName>>,
    built: Built,
    failed: Option<PipelineError>,
}

impl<'a> AtWork<'a> {
    fn new(
        pipeline: &'a Arc<Pipeline>,
        context: &'a Arc<Context>,
        stop: &CancellationToken,
    ) -> Self {
        let planned = &context.plan.partitions;
        let is_begun = |index: usize| {
            planned.get(index).is_some_and(|planned| matches!(planned.state, State::Begun))
        };
        let todo = match &context.others {
            None => Todo::in_order(planned.len()),
            Some(_) => Todo::shared(planned.len(), &owner(), is_begun),
        };
        let limit = pipeline.definition.data.dataset.limit_rows.map(RowLimit::new);
        Self {
            pipeline,
            context,
            control: Control { stop: stop.clone(), ..Control::new() },
            tasks: JoinSet::new(),
            todo,
            // A limit is spent partition by partition: the next one cannot begin before it is known.
            jobs: if limit.is_some() { 1 } else { context.plan.bound.jobs },
            n_building: 0,
            n_adopting: 0,
            limit,
            tally: Tally::new(pipeline.definition.budgets()),
            records: vec![None; planned.len()],
            built: Built::default(),
            failed: None,
        }
    }

    /// Begins as much as can be at work now.
    async fn begin(&mut self) {
        let context = self.context;
        while self.failed.is_none() && !self.control.stop.is_cancelled() {
            if self.adopt_next() {
                continue;
            }
            if self.n_building >= self.jobs || self.limit.as_ref().is_some_and(RowLimit::is_reached)
            {
                break;
            }
            let Some(index) = self.todo.build.front().copied() else { break };
            if let Some(others) = &context.others
                && others.look().await
            {
                self.todo.sort(|index| {
                    let planned = context.plan.partitions.get(index);
                    planned.is_some_and(|it| !it.is_done() && others.has_slot(&it.slot))
                });
                continue;
            }
            self.todo.build.pop_front();
            match context.plan.partitions.get(index).map(|planned| &planned.state) {
                Some(State::Done(done)) => self.reuse(index, done).await,
                Some(_) => {
                    let (context, control) = (Arc::clone(context), self.control.clone());
                    let limit = self.limit;
                    self.n_building += 1;
                    self.tasks.spawn(async move {
                        Ok(Ended::Built(build(context, index, limit, control).await?))
                    });
                }
                None => break,
            }
        }
    }

    /// Begins to take over what others have finished; whether there was something.
    fn adopt_next(&mut self) -> bool {
        let Some(others) = &self.context.others else { return false };
        if self.n_adopting >= ADOPTING {
            return false;
        }
        let Some(index) = self.todo.adopt.pop_front() else { return false };
        let (context, others) = (Arc::clone(self.context), Arc::clone(others));
        self.n_adopting += 1;
        self.tasks.spawn(async move {
            let adopted = adopt(&context, &others, index).await?;
            Ok(Ended::Adopted(index, adopted))
        });
        true
    }

    /// Counts a partition that was done before.
    async fn reuse(&mut self, index: usize, done: &Done) {
        self.count(index, &done.name, &done.rejects, done.source_rows).await;
        self.built.reused += 1;
        self.built.resumed_rows += done.rows;
        if let Err(error) = self.context.offer(&done.name).await {
            self.fail(error);
        }
    }

    /// Takes note of how the work at a partition ended.
    async fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Built(end) => {
                self.n_building -= 1;
                let Some(end) = end else { return };
                self.count(end.partition, &end.record, &end.rejects, end.source_rows).await;
                self.built.resumed_rows += end.resumed_rows;
                self.built.newly += 1;
            }
            Ended::Adopted(index, adopted) => {
                self.n_adopting -= 1;
                let Some(done) = adopted else { return self.todo.build_after_all(index) };
                self.count(index, &done.name, &done.rejects, done.source_rows).await;
                self.built.adopted += 1;
                self.built.adopted_rows += done.rows;
            }
        }
    }

    /// A partition has its record.
    async fn count(
        &mut self,
        index: usize,
        name: &RecordName,
        rejects: &RejectsOf,
        source_rows: u64,
    ) {
        if let Err(too_many) = self.tally.add(rejects) {
            let error = self.pipeline.error_of(too_many).await;
            self.fail(error);
        }
        if let Some(record) = self.records.get_mut(index) {
            *record = Some(name.clone());
        }
        if let Some(limit) = &mut self.limit {
            limit.spend(source_rows);
        }
    }

    /// Ends the others too, at once unless the run was only to stop.
    fn fail(&mut self, error: PipelineError) {
        if !matches!(error, PipelineError::Stopped) {
            self.control.cancel.cancel();
        }
        self.failed.get_or_insert(error);
    }

    async fn finish(self) -> Result<Built, PipelineError> {
        let Self { pipeline, context, control, todo, tally, records, mut built, failed, .. } = self;
        if let Some(failed) = failed {
            return Err(failed);
        }
        if control.stop.is_cancelled() {
            return Err(PipelineError::Stopped);
        }
        let planned = &context.plan.partitions;
        // A limit may have been reached before the last ones.
        let n_reached = planned.len() - todo.build.len();
        let partition = |(it, record): (&Planned, _)| {
            let slot = it.slot.clone();
            PlannedPartition { slot, record }
        };
        built.partitions = planned.iter().zip(records).take(n_reached).map(partition).collect();
        match tally.finish() {
            Ok(()) => Ok(built),
            Err(too_many) => Err(pipeline.error_of(too_many).await),
        }
    }
}
