//! Builds what is not done, as many partitions at once as the bound allows; what others have finished is
//! taken over instead.
//!
//! Leaves out: one partition (`partition`), and what becomes of all (`run`).

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ahead::Ahead;
use super::frame::{Frame, Task};
use super::growing::Growing;
use super::order::Todo;
use super::partition::{Context, Finished, build};
use super::plan::{Done, Plan, Planned, State};
use super::rejects::{RejectsOf, Tally, TooMany};
use super::run::on_thread;
use super::sharing::adopt;
use super::{Pipeline, PipelineError, Report};
use crate::dataset::finalize::PlannedPartition;
use crate::dataset::home::owner;
use crate::dataset::record::RecordName;
use crate::graph::Control;
use crate::remote::Taken;
use crate::stages::RowLimit;

/// Partitions that are taken over at once.
const ADOPTING: usize = 8;

/// How often a list is looked at that may wait for room.
const LOOK: Duration = Duration::from_millis(100);

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
    Built {
        /// `None`: the run was stopped first.
        finished: Option<Finished>,
        /// Whether it was begun before the list was whole.
        is_ahead: bool,
    },
    /// `None`: it is to be built.
    Adopted(usize, Option<Done>),
}

/// Where the partitions come from.
pub(super) enum Planning {
    /// All of them are known.
    Whole(Arc<Plan>),
    /// They are told while their inputs are listed.
    Ahead(Box<Ahead>),
}

impl Planning {
    /// The whole plan.
    pub(super) fn whole(&self) -> Option<Arc<Plan>> {
        match self {
            Self::Whole(plan) => Some(Arc::clone(plan)),
            Self::Ahead(_) => None,
        }
    }

    /// Cancelled where the list proves to be another than it was told.
    pub(super) fn again(&self) -> Option<CancellationToken> {
        match self {
            Self::Whole(_) => None,
            Self::Ahead(ahead) => Some(ahead.again.clone()),
        }
    }
}

/// What is known of the plan.
enum Known {
    Whole(Arc<Plan>),
    Growing(Arc<Growing>),
}

impl Known {
    /// How many partitions are known.
    fn n_partitions(&self) -> usize {
        match self {
            Self::Whole(plan) => plan.partitions.len(),
            Self::Growing(growing) => growing.n_partitions(),
        }
    }

    /// What is to be done about a partition.
    fn next(&self, index: usize) -> Option<Next> {
        match self {
            Self::Whole(plan) => {
                let planned = plan.partitions.get(index)?;
                Some(match &planned.state {
                    State::Done(done) => Next::Reuse(done.clone()),
                    _ => Next::Build(plan.task(index, planned)),
                })
            }
            Self::Growing(growing) => growing.next(index),
        }
    }
}

/// What is to be done about a partition.
pub(super) enum Next {
    /// An earlier run has finished it.
    Reuse(Done),
    Build(Task),
    /// To build it may take more than was reckoned with: it waits for the whole plan.
    Wait,
}

impl Pipeline {
    /// Builds what is not done, or takes it over; gives the whole plan, too.
    pub(super) async fn build_all(
        self: &Arc<Self>,
        context: &Arc<Context>,
        planning: Planning,
        stop: &CancellationToken,
    ) -> Result<(Built, Arc<Plan>), PipelineError> {
        let mut work = AtWork::new(self, context, planning, stop);
        loop {
            work.begin().await;
            let (looks_again, grown) = (work.lets_list(), work.grown());
            tokio::select! { biased;
                Some(ended) = work.tasks.join_next(), if !work.tasks.is_empty() => match ended {
                    Ok(Ok(ended)) => work.ended(ended).await,
                    Ok(Err(error)) => work.fail(error),
                    Err(error) => return Err(work.broken(error)),
                },
                Some(planned) = work.planning.join_next(), if !work.planning.is_empty() => {
                    match planned {
                        Ok(Ok(plan)) => work.planned(plan),
                        Ok(Err(error)) => work.fail(error),
                        Err(error) => return Err(work.broken(error)),
                    }
                }
                () = grown, if !work.planning.is_empty() => {}
                () = tokio::time::sleep(LOOK), if looks_again => {}
                else => break,
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
    /// What plans while the list grows.
    planning: JoinSet<Result<Plan, PipelineError>>,
    /// Ends it, also where this is dropped.
    quit: Option<DropGuard>,
    known: Known,
    frame: Arc<Frame>,
    todo: Todo,
    jobs: usize,
    n_building: usize,
    /// Those of them that were begun before the list was whole, and what each may take.
    n_ahead: usize,
    ahead_bytes: u64,
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
        planning: Planning,
        stop: &CancellationToken,
    ) -> Self {
        let limit = pipeline.definition.data.dataset.limit_rows.map(RowLimit::new);
        let mut tasks = JoinSet::new();
        let (known, frame, quit) = match planning {
            Planning::Whole(plan) => {
                let frame = Arc::new(plan.frame());
                (Known::Whole(plan), frame, None)
            }
            Planning::Ahead(ahead) => {
                let growing = Arc::clone(&ahead.growing);
                let (frame, quit) = (Arc::clone(&ahead.frame), ahead.quit.clone().drop_guard());
                let (pipeline, live) = (Arc::clone(pipeline), Arc::clone(&context.live));
                tasks.spawn_blocking(move || ahead.plan(&pipeline, &live));
                (Known::Growing(growing), frame, Some(quit))
            }
        };
        let n_partitions = known.n_partitions();
        let todo = match (&context.others, &known) {
            (Some(_), Known::Whole(plan)) => {
                let planned = &plan.partitions;
                let is_begun = |index: usize| {
                    planned.get(index).is_some_and(|planned| matches!(planned.state, State::Begun))
                };
                Todo::shared(n_partitions, &owner(), is_begun)
            }
            _ => Todo::in_order(n_partitions),
        };
        Self {
            pipeline,
            context,
            control: Control { stop: stop.clone(), ..Control::new() },
            tasks: JoinSet::new(),
            planning: tasks,
            quit,
            known,
            todo,
            // A limit is spent partition by partition: the next one cannot begin before it is known.
            jobs: if limit.is_some() { 1 } else { frame.bound.jobs },
            n_building: 0,
            n_ahead: 0,
            ahead_bytes: frame.bound.job_bytes(),
            n_adopting: 0,
            limit,
            tally: Tally::new(pipeline.definition.budgets()),
            records: vec![None; n_partitions],
            built: Built::default(),
            failed: None,
            frame,
        }
    }

    /// Waits until more is known of a plan that grows.
    fn grown(&self) -> impl Future<Output = ()> + use<> {
        let growing = match &self.known {
            Known::Growing(growing) => Some(Arc::clone(growing)),
            Known::Whole(_) => None,
        };
        async move {
            match growing {
                Some(growing) => growing.changed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes note of what is planned meanwhile.
    fn learn_of_more(&mut self) {
        for index in self.records.len()..self.known.n_partitions() {
            self.records.push(None);
            self.todo.build.push_back(index);
        }
    }

    /// The plan is whole. What is at work goes on as it was begun.
    fn planned(&mut self, plan: Plan) {
        plan.tell(&self.context.live);
        let plan = Arc::new(plan);
        self.frame = Arc::new(plan.frame());
        self.jobs = plan.bound.jobs;
        self.n_ahead = self.n_building;
        self.known = Known::Whole(plan);
        self.learn_of_more();
    }

    /// Lets a list grow without a bound where nothing is at work and nothing more fits beside it; whether
    /// that is to be looked at again.
    fn lets_list(&self) -> bool {
        let Known::Growing(growing) = &self.known else { return false };
        if self.n_building > 0 || self.planning.is_empty() {
            return false;
        }
        let is_waiting = self
            .todo
            .build
            .front()
            .is_some_and(|index| matches!(growing.next(*index), Some(Next::Wait)));
        if is_waiting || !growing.room.has(self.ahead_bytes) {
            growing.room.close();
        }
        true
    }

    /// Begins as much as can be at work now.
    async fn begin(&mut self) {
        self.learn_of_more();
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
            if let (Some(others), Known::Whole(plan)) = (&context.others, &self.known)
                && others.look().await
            {
                self.todo.sort(|index| {
                    let planned = plan.partitions.get(index);
                    planned.is_some_and(|it| !it.is_done() && others.has_slot(&it.slot))
                });
                continue;
            }
            match self.known.next(index) {
                Some(Next::Reuse(done)) => {
                    self.todo.build.pop_front();
                    self.reuse(index, &done).await;
                }
                Some(Next::Build(task)) => {
                    let taken = match &self.known {
                        Known::Growing(growing) => {
                            let taken = growing.room.begin(self.ahead_bytes);
                            if taken.is_none() {
                                break;
                            }
                            taken
                        }
                        Known::Whole(_) if self.fits() => None,
                        Known::Whole(_) => break,
                    };
                    self.todo.build.pop_front();
                    self.build(task, taken);
                }
                Some(Next::Wait) | None => break,
            }
        }
    }

    /// Whether one more partition fits beside those that were begun before the list was whole.
    fn fits(&self) -> bool {
        let n_new = self.n_building - self.n_ahead + 1;
        let ahead = (self.n_ahead, self.ahead_bytes);
        self.n_ahead == 0 || self.frame.bound.has_room(n_new, ahead)
    }

    /// Begins to build a partition, which takes that much room while the list grows.
    fn build(&mut self, task: Task, taken: Option<Taken>) {
        let (context, frame) = (Arc::clone(self.context), Arc::clone(&self.frame));
        let (control, limit) = (self.control.clone(), self.limit);
        let is_ahead = matches!(self.known, Known::Growing(_));
        self.n_building += 1;
        self.tasks.spawn(async move {
            let finished = build(context, frame, task, limit, control).await?;
            drop(taken);
            Ok(Ended::Built { finished, is_ahead })
        });
    }

    /// Begins to take over what others have finished; whether there was something.
    fn adopt_next(&mut self) -> bool {
        let (Some(others), Known::Whole(plan)) = (&self.context.others, &self.known) else {
            return false;
        };
        if self.n_adopting >= ADOPTING {
            return false;
        }
        let Some(index) = self.todo.adopt.pop_front() else { return false };
        let (context, others) = (Arc::clone(self.context), Arc::clone(others));
        let plan = Arc::clone(plan);
        self.n_adopting += 1;
        self.tasks.spawn(async move {
            let adopted = adopt(&context, &others, &plan, index).await?;
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
            Ended::Built { finished, is_ahead } => {
                self.n_building -= 1;
                if is_ahead {
                    // It counts as that only once the list is whole.
                    self.n_ahead = self.n_ahead.saturating_sub(1);
                }
                let Some(end) = finished else { return };
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
            if let (true, Known::Growing(growing)) = (limit.is_reached(), &self.known) {
                growing.enough.cancel();
            }
        }
    }

    /// Ends the others too, at once unless the run was only to stop.
    fn fail(&mut self, error: PipelineError) {
        if !matches!(error, PipelineError::Stopped) {
            self.control.cancel.cancel();
        }
        drop(self.quit.take());
        self.failed.get_or_insert(error);
    }

    /// A task of ours is gone.
    fn broken(&mut self, error: JoinError) -> PipelineError {
        self.control.cancel.cancel();
        PipelineError::Runtime(std::io::Error::other(error))
    }

    async fn finish(self) -> Result<(Built, Arc<Plan>), PipelineError> {
        let Self { pipeline, control, known, todo, tally, records, mut built, failed, .. } = self;
        if let Some(failed) = failed {
            return Err(failed);
        }
        let plan = match known {
            Known::Whole(plan) if !control.stop.is_cancelled() => plan,
            // A plan that grows is not given up for any other reason.
            _ => return Err(PipelineError::Stopped),
        };
        let planned = &plan.partitions;
        // A limit may have been reached before the last ones.
        let n_reached = planned.len() - todo.build.len();
        let partition = |(it, record): (&Planned, _)| {
            let slot = it.slot.clone();
            PlannedPartition { slot, record }
        };
        built.partitions = planned.iter().zip(records).take(n_reached).map(partition).collect();
        match tally.finish() {
            Ok(()) => Ok((built, plan)),
            Err(too_many) => Err(pipeline.error_of(too_many).await),
        }
    }
}
