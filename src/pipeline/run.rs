//! Runs a plan: partitions side by side, then the dataset's sentinel.

use std::sync::{Arc, Once};
use std::time::{Instant, SystemTime};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::beginning::Beginning;
use super::building::Planning;
use super::export::Export;
use super::partition::{Context, Meters};
use super::plan::{Plan, Planned, State};
use super::rejects::Rejects;
use super::{
    InternReport, Live, Observer, Pipeline, PipelineError, REPORT_VERSION, Report, StageError,
    peak_rss_bytes, reading,
};
use crate::cache::Caches;
use crate::dataset::finalize::{Generation, PlannedPartition, finalize};
use crate::dataset::stamps::Stamps;
use crate::dataset::{Dataset, RunNote, Workplace, doubt, listing, partition};
use crate::graph::{Failed, LinkError};
use crate::schema::{Field, FileRole, Kind};
use crate::shard::Glance;

/// Removes what is in doubt.
pub(super) fn settle(place: &Workplace) -> Result<(), PipelineError> {
    if let Some(why) = doubt::settle(place)? {
        warn!("nothing is kept of what was built since the dataset was complete: {why}");
    }
    Ok(())
}

/// Lets the next run list anew where this one failed for what it listed; gives its error back.
async fn judge_listing(
    place: &Arc<Workplace>,
    error: PipelineError,
) -> Result<PipelineError, PipelineError> {
    if !error.keeps_listing() {
        let place = Arc::clone(place);
        on_thread(move || Ok(listing::discard(&place)?)).await?;
    }
    Ok(error)
}

/// What a run begins with, in the hands of its one writer.
struct Prepared {
    place: Arc<Workplace>,
    planning: Planning,
    stamps: Arc<Stamps>,
    caches: Arc<Caches>,
}

/// Who looks on, and who may say stop.
#[derive(Clone)]
struct Onlookers {
    observer: Arc<dyn Observer>,
    live: Arc<Live>,
    stop: CancellationToken,
}

impl Pipeline {
    /// Builds the dataset, or goes on with it. Asked to `stop`, it ends with
    /// [`PipelineError::Stopped`] after the next commit of each partition at work.
    ///
    /// # Errors
    /// Why there is no dataset. Whatever was committed is gone on from by the next run.
    ///
    /// # Cancel safety
    /// A run that is dropped leaves what a killed one leaves.
    pub async fn run(
        self: &Arc<Self>,
        observer: Arc<dyn Observer>,
        live: Arc<Live>,
        stop: CancellationToken,
    ) -> Result<Report, PipelineError> {
        let began = Instant::now();
        let onlookers = Onlookers { observer, live, stop };
        if let Some(report) = self.run_once(&onlookers, began, true).await? {
            return Ok(report);
        }
        info!("the list is not in order: it is listed whole");
        let report = self.run_once(&onlookers, began, false).await?;
        // Without a list that grows nothing begins again.
        report.ok_or(PipelineError::Stopped)
    }

    /// Runs, and builds while it lists if it `may_list_ahead`; `None` where it has to begin again with the
    /// whole list.
    async fn run_once(
        self: &Arc<Self>,
        Onlookers { observer, live, stop }: &Onlookers,
        began: Instant,
        may_list_ahead: bool,
    ) -> Result<Option<Report>, PipelineError> {
        let pipeline = Arc::clone(self);
        let (stopped, quit) = (stop.clone(), stop.child_token());
        // Also where this is dropped, or fails before anything is built.
        let ends_listing = quit.clone().drop_guard();
        let prepare = move || {
            let is_stopped = || stopped.is_cancelled();
            pipeline.prepare(&is_stopped, may_list_ahead.then_some(&quit))
        };
        let Prepared { place, planning, stamps, caches } = on_thread(prepare).await?;
        live.watch_hooks(&self.transforms);
        let (whole, again) = (planning.whole(), planning.again());
        self.say_started(&planning, live);
        let export = match self.begin_push(&place, whole.as_ref(), live, stop).await {
            Ok(export) => export,
            Err(error) => {
                let pipeline = Arc::clone(self);
                on_thread(move || pipeline.end_transforms()).await.ok();
                return Err(error);
            }
        };
        let context = Arc::new(Context {
            ready: export.as_ref().map(Export::to_push),
            others: export.as_ref().and_then(Export::others),
            warned: Once::new(),
            pipeline: Arc::clone(self),
            place: Arc::clone(&place),
            stamps,
            caches: Arc::clone(&caches),
            meters: Meters::new(self),
            observer: Arc::clone(observer),
            live: Arc::clone(live),
        });
        let built = self.build_all(&context, planning, stop).await;
        drop(ends_listing);
        let pipeline = Arc::clone(self);
        let ended = on_thread(move || pipeline.end_transforms()).await;
        // Also where the run failed: what was answered is paid for.
        let kept = on_thread(move || Ok(caches.commit()?)).await;
        let settling = Arc::clone(&place);
        on_thread(move || settle(&settling)).await?;
        let pipeline = Arc::clone(self);
        let retry = whole.as_ref().and_then(|plan| plan.retry.as_ref());
        if let (Err(PipelineError::Rejects { .. }), Some(retry)) = (&built, retry) {
            // What is current stays what counts; the next retry asks about all of it.
            let (retry, place) = (Arc::clone(retry), Arc::clone(&place));
            on_thread(move || Ok(retry.end(&place)?)).await?;
        }
        // That what was built is in doubt matters more than that it was to stop.
        let (built, ended) = match built {
            Err(PipelineError::Stopped) => (ended.and(Err(PipelineError::Stopped)), Ok(())),
            built => (built, ended),
        };
        let ended = match (built, ended, kept) {
            (Ok((mut built, plan)), Ok(()), Ok(())) => {
                let partitions = std::mem::take(&mut built.partitions);
                let asked_again: u64 = plan.partitions.iter().map(|p| p.asked_again).sum();
                let ending = move || {
                    let was_complete = pipeline.is_complete()?;
                    Ok((was_complete, pipeline.finish(&place, &plan, &partitions)?))
                };
                let ended = on_thread(ending).await;
                ended.map(|ended| (ended, built, asked_again))
            }
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => Err(error),
        };
        let ((was_complete, mut report), built, asked_again) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                if let Some(export) = export {
                    export.give_up().await;
                }
                let begins_again = again.is_some_and(|again| again.is_cancelled());
                if matches!(error, PipelineError::Stopped) && begins_again && !stop.is_cancelled() {
                    return Ok(None);
                }
                return Err(judge_listing(&context.place, error).await?);
            }
        };
        info!(rows = report.rows, shards = report.shards, "dataset complete");
        report.up_to_date = built.newly == 0 && built.adopted == 0 && was_complete;
        built.describe(&mut report);
        report.asked_again = asked_again;
        report.seconds = began.elapsed().as_secs_f64();
        report.peak_rss_bytes = peak_rss_bytes();
        report.stages = context.meters.report();
        self.add_known(&mut report.stages);
        if let Some(export) = export {
            let pushed = export.finish().await;
            let not_pushed = |source| match source {
                PipelineError::Stopped => PipelineError::Stopped,
                source => PipelineError::NotPushed {
                    dataset: report.dataset.clone(),
                    source: Box::new(source),
                },
            };
            report.push = Some(pushed.map_err(not_pushed)?);
            report.seconds = began.elapsed().as_secs_f64();
        }
        Ok(Some(report))
    }

    /// Says that a run has started, and how much there is to do if that is known.
    fn say_started(&self, planning: &Planning, live: &Live) {
        let dataset = self.home.dir().display();
        match planning {
            Planning::Whole(plan) => {
                info!(
                    %dataset,
                    partitions = plan.partitions.len(),
                    jobs = plan.bound.jobs,
                    memory_bound_bytes = plan.bound.bound_bytes,
                    "run started"
                );
                plan.tell(live);
            }
            Planning::Ahead(ahead) => {
                info!(%dataset, jobs = ahead.frame.bound.jobs, "run started while inputs are listed");
            }
        }
    }

    /// Lets the transforms end what they keep running.
    pub(super) fn end_transforms(&self) -> Result<(), PipelineError> {
        let mut ended = Ok(());
        for (name, transform) in self.named_transforms() {
            if let Err(source) = transform.end() {
                let error = StageError::from(LinkError { name: name.to_owned(), source });
                let failed = Failed::Cause { stage: name.to_owned(), source: error };
                ended = ended.and(Err(failed.into()));
            }
        }
        ended
    }

    fn prepare(
        &self,
        is_stopped: &dyn Fn() -> bool,
        lists_ahead: Option<&CancellationToken>,
    ) -> Result<Prepared, PipelineError> {
        let beginning = match lists_ahead {
            // What was given up is no error of the store.
            Some(quit) => self
                .list_ahead(quit, is_stopped)
                .map_err(|error| if is_stopped() { PipelineError::Stopped } else { error })?,
            None => Beginning::Whole,
        };
        // A definition that is wrong leaves no folder behind.
        let listed = match beginning {
            Beginning::Listed(listed) => listed,
            Beginning::Whole => self.list_or_go_on(is_stopped)?,
            Beginning::Ahead(ahead) => {
                self.begin_transforms();
                let files = ahead.hook_files.by_path();
                let caches = self.open_caches(&ahead.listed.columns, &files, true)?;
                let (place, stamps) = (Arc::clone(&ahead.place), Arc::clone(&ahead.stamps));
                return Ok(Prepared { place, planning: Planning::Ahead(ahead), stamps, caches });
            }
        };
        let listed = self.refuse_memory(listed)?;
        let place = Workplace::open(Arc::clone(&self.storage), self.home.clone())?;
        // A run that was cut off may not have come to it.
        settle(&place)?;
        let is_kept = listed.is_kept;
        let plan = match self.plan_with(listed, Some(&place)) {
            Err(error) if !error.keeps_listing() => {
                listing::discard(&place)?;
                return Err(error);
            }
            planned => planned?,
        };
        if !is_kept && plan.partitions.iter().any(|p| !p.is_done()) {
            self.keep_listing(&place, &plan.sources)?;
        }
        for done in plan.partitions.iter().filter(|p| p.is_done()) {
            // A run that was cut off may have left what led to the record.
            partition::clear(&place, &done.slot)?;
        }
        if self.is_shared && plan.retry.is_some() {
            return Err(PipelineError::SharedRetry);
        }
        plan.stamps.compact(&place, self.ranges(&plan))?;
        self.note(&place, &plan)?;
        self.begin_transforms();
        let is_built = !plan.partitions.iter().all(Planned::is_done);
        let caches = self.open_caches(&plan.columns, &plan.files, is_built)?;
        let (place, stamps) = (Arc::new(place), Arc::clone(&plan.stamps));
        Ok(Prepared { place, planning: Planning::Whole(Arc::new(plan)), stamps, caches })
    }

    /// Tells those who look at the folder meanwhile what this run is about to do.
    pub(super) fn note(&self, place: &Workplace, plan: &Plan) -> Result<(), PipelineError> {
        let mut rows_before = 0;
        for planned in &plan.partitions {
            rows_before += match &planned.state {
                State::Done(done) => done.rows,
                State::Begun => Glance::of(&*self.storage, self.home.dir(), &planned.slot)?.n_rows,
                State::New => 0,
            };
        }
        let note = RunNote {
            began_ms: RunNote::milliseconds(SystemTime::now()),
            definition: self.identity.json.clone(),
            rows_before,
            slots: plan.partitions.iter().map(|planned| planned.slot.clone()).collect(),
        };
        Ok(note.write(place)?)
    }

    /// Writes the manifest and the sentinel, and describes the dataset.
    fn finish(
        &self,
        place: &Workplace,
        plan: &Plan,
        partitions: &[PlannedPartition],
    ) -> Result<Report, PipelineError> {
        let budgets = self.definition.budgets();
        let stages: Vec<_> = self.sources.iter().map(|source| source.stages.clone()).collect();
        let generation = Generation {
            definition: &self.identity.json,
            schema: &plan.schema,
            stages: &stages,
            budgets: &budgets,
            allow_empty: self.definition.allow_empty,
        };
        // Before the sentinel: who finds a complete dataset lists anew.
        listing::discard(place)?;
        let sentinel = finalize(place, &generation, partitions);
        let sentinel = sentinel.map_err(|error| self.with_rows_counted(error))?;
        if partitions.len() < plan.partitions.len()
            && let Some(mut note) = RunNote::read(&*self.storage, &self.home)?
        {
            // A limit was reached before them.
            note.slots.truncate(partitions.len());
            note.write(place)?;
        }
        if self.definition.becomes_current {
            place.set_current(&sentinel)?;
        }
        partition::clear_all(place)?;
        if let Some(retry) = &plan.retry {
            retry.end(place)?;
        }
        self.describe()
    }

    /// What an interned field came to, told by the sizes of its files: no shard is opened for it.
    fn interned(&self, dataset: &Dataset, field: &Field) -> Result<InternReport, PipelineError> {
        let mut report = InternReport {
            field: field.name.clone(),
            values: 0,
            rows: dataset.n_rows(),
            dictionary_bytes: 0,
        };
        let files = field.files();
        for shard in dataset.entries() {
            for file in &files {
                let len = || -> Result<u64, PipelineError> {
                    let path = self.home.shard(&shard.id).join(&file.name);
                    Ok(self.storage.stat(&path)?.map_or(0, |entry| entry.len))
                };
                match file.role {
                    FileRole::Dict => report.dictionary_bytes += len()?,
                    // One number more than there are values.
                    FileRole::DictOffsets => report.values += (len()? / 8).saturating_sub(1),
                    _ => {}
                }
            }
        }
        Ok(report)
    }

    /// The report of a dataset that is complete, without what only a run knows.
    fn describe(&self) -> Result<Report, PipelineError> {
        let dataset = Dataset::open(self.home.dir())?;
        let interned = dataset
            .schema()
            .fields()
            .iter()
            .filter(|field| field.kind == Kind::Interned)
            .map(|field| self.interned(&dataset, field))
            .collect::<Result<_, PipelineError>>()?;
        let rejected = dataset.about().books.values().map(|b| b.rejected).sum();
        let mut rejects = Rejects::default();
        if rejected > 0 {
            let shards = dataset.entries().iter().map(|entry| self.home.shard(&entry.id));
            rejects.add_all(&self.storage, shards)?;
        }
        let unanswered = rejects.unanswered();
        let mut kinds = rejects.reports();
        self.count_rejects(&mut kinds);
        Ok(Report {
            version: REPORT_VERSION,
            dataset: self.home.dir().display().to_string(),
            name: self.home.name().to_owned(),
            cache_key: self.home.cache_key().to_owned(),
            up_to_date: false,
            rows: dataset.n_rows(),
            shards: dataset.n_shards() as u64,
            bytes: dataset.about().bytes,
            rejected,
            unanswered,
            asked_again: 0,
            rejects: kinds,
            resumed_rows: 0,
            partitions: dataset.about().partitions,
            reused_partitions: 0,
            adopted_partitions: 0,
            adopted_rows: 0,
            seconds: 0.0,
            peak_rss_bytes: None,
            stages: Vec::new(),
            interned,
            reading: reading::lines(&dataset),
            current: self.definition.becomes_current,
            push: None,
            fingerprint: self.definition.run.fingerprint,
        })
    }
}

/// Runs blocking work on a thread of its own.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PipelineError> + Send + 'static,
) -> Result<T, PipelineError> {
    let mut tasks = JoinSet::new();
    tasks.spawn_blocking(work);
    match tasks.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(PipelineError::Runtime(std::io::Error::other(error))),
        },
        None => Err(PipelineError::Runtime(std::io::Error::other("no task"))),
    }
}
