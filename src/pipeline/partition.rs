//! Builds one partition: a reader, the transforms and a writer, joined by edges.

use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::info;

use super::export::ToPush;
use super::frame::{Frame, Task};
use super::live::Underway;
use super::rejects::RejectsOf;
use super::{Event, Live, Observer, Pipeline, StageError, StageReport};
use crate::batch::{Batch, Restart};
use crate::cache::Caches;
use crate::dataset::Workplace;
use crate::dataset::partition::{self, Partition, PartitionOptions};
use crate::dataset::record::RecordName;
use crate::dataset::stamps::Stamps;
use crate::exporters::{Others, Ready};
use crate::graph::{Chain, Control, Ended, Failed, Gauge, Inlet, Link, Meter, Ordered, Scope};
use crate::inputs::Part;
use crate::shard::{CommitPolicy, Progress, Resume, SealedShard};
use crate::sources::BatchLimits;
use crate::stages::{
    Cutter, EndOfInputs, PartitionWriter, ReadStage, RebatchStage, RowLimit, Start, WriteStage,
};

/// What all partitions of a run share.
pub(super) struct Context {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) place: Arc<Workplace>,
    pub(super) stamps: Arc<Stamps>,
    pub(super) caches: Arc<Caches>,
    pub(super) meters: Meters,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) live: Arc<Live>,
    /// What others have finished, if the run shares a place with them.
    pub(super) others: Option<Arc<Others>>,
    /// Whether it was said that a hook lets others wait.
    pub(super) warned: Once,
    /// Takes what is to be pushed.
    pub(super) ready: Option<ToPush>,
}

impl Context {
    /// A shard is sealed and in its place.
    fn sealed(&self, partition: usize, shard: &SealedShard) {
        info!(partition, shard = shard.id(), rows = shard.rows(), "shard sealed");
        self.push(|| Ready::Shard(shard.clone()));
        self.observer.event(&Event::Sealed {
            partition,
            shard: shard.id().to_owned(),
            rows: shard.rows(),
            bytes: shard.bytes(),
        });
    }

    /// Lets something go out, if this run pushes.
    pub(super) fn push(&self, ready: impl FnOnce() -> Ready) {
        if let Some(to_push) = &self.ready {
            to_push.push(ready());
        }
    }
}

/// Counts of the stages, summed over partitions.
pub(super) struct Meters {
    sources: Vec<Arc<Meter>>,
    transforms: Vec<Arc<Meter>>,
    write: Arc<Meter>,
}

impl Meters {
    pub(super) fn new(pipeline: &Pipeline) -> Self {
        let meter = |name: &str| Arc::new(Meter::new(name));
        Self {
            sources: pipeline.sources.iter().map(|stage| meter(stage.name())).collect(),
            transforms: pipeline.named_transforms().map(|(name, _)| meter(name)).collect(),
            write: meter("write"),
        }
    }

    pub(super) fn report(&self) -> Vec<StageReport> {
        let all = self.sources.iter().chain(&self.transforms).chain([&self.write]);
        all.map(|meter| {
            let seen = meter.snapshot();
            let seconds = |time: Duration| time.as_secs_f64();
            StageReport {
                name: meter.name().to_owned(),
                rows: seen.rows_out,
                bytes: seen.bytes_out,
                busy_seconds: seconds(seen.busy),
                blocked_seconds: seconds(seen.waiting_for_input + seen.waiting_for_output),
                cache: None,
            }
        })
        .collect()
    }
}

/// A partition that has its record.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) partition: usize,
    pub(super) record: RecordName,
    pub(super) resumed_rows: u64,
    pub(super) source_rows: u64,
    pub(super) rejects: RejectsOf,
}

/// Builds a partition; `None` where the run was stopped first.
pub(super) async fn build(
    context: Arc<Context>,
    frame: Arc<Frame>,
    task: Task,
    limit: Option<RowLimit>,
    control: Control,
) -> Result<Option<Finished>, Failed<StageError>> {
    let mut scope = Scope::<StageError>::new(&control);
    let pipeline = &context.pipeline;
    let (Some(stage), Some(columns), Some(read_meter)) = (
        pipeline.sources.get(task.source),
        frame.columns.get(task.source),
        context.meters.sources.get(task.source),
    ) else {
        return Ok(None);
    };
    let (index, part) = (task.index, Arc::clone(&task.part));
    let edge_bytes = usize::try_from(frame.bound.edge_bytes).unwrap_or(usize::MAX);
    let batch_bytes = usize::try_from(frame.bound.batch_bytes).unwrap_or(usize::MAX);

    let (outlet, to_transform) = scope.edge("read", edge_bytes);
    let mut edges = vec![outlet.gauge()];
    let resumed = Arc::new(OnceLock::new());
    let to_write = transform(&context, &frame, &mut scope, to_transform, &resumed, &mut edges);
    context.live.watch(index, edges);

    let (tell, start) = oneshot::channel();
    let underway = Arc::new(Underway::new(Arc::clone(&context.live), task.bytes));
    let reading = Arc::clone(&underway);
    let data = &pipeline.definition.data.dataset;
    let read = ReadStage {
        source: Arc::clone(&stage.source),
        part: Arc::clone(&part),
        schema: Arc::clone(&columns.own),
        alignment: columns.alignment.clone(),
        limits: BatchLimits {
            rows: pipeline.definition.run.batch_rows,
            bytes: batch_bytes,
            row_bytes: data.max_row_bytes,
            on_error: stage.on_error,
        },
        limit,
        meter: Arc::clone(read_meter),
        seen: Box::new(move |batch: &Batch| reading.read(batch)),
    };
    let control = scope.control().clone();
    scope.blocking(stage.name(), {
        let control = control.clone();
        move || read.run(start, outlet, &control)
    });

    let (finished, when_finished) = oneshot::channel();
    let write = WriteStage { meter: Arc::clone(&context.meters.write) };
    let shared = Arc::clone(&context);
    let sink = move || {
        let sink = Sink::open(shared, &frame, task, limit, underway, finished)?;
        if let Start::At(restart) = &sink.start {
            // Before a row is read.
            resumed.set(restart.clone()).ok();
        }
        Ok(sink)
    };
    scope.blocking("write", move || write.run(sink, tell, to_write, &control));

    let ended = scope.join().await;
    let done = matches!(ended, Ok(Ended::Finished));
    context.live.unwatch(index, done);
    match ended {
        Ok(Ended::Finished) => Ok(when_finished.await.ok()),
        Ok(Ended::Stopped) => Ok(None),
        Err(Failed::Cause { stage: failed, source }) => {
            // A transform is known by its own name, not by that of the stage that runs them all.
            let name = match &source {
                StageError::Link(link) => link.name.clone(),
                _ => failed,
            };
            let source = source.in_part_of(&part, &stage.source).await;
            Err(Failed::Cause { stage: name, source })
        }
        Err(other) => Err(other),
    }
}

/// Starts the transforms, and gives the edge behind the last one.
fn transform(
    context: &Context,
    frame: &Frame,
    scope: &mut Scope<StageError>,
    mut inlet: Inlet<EndOfInputs>,
    resumed: &Arc<OnceLock<Restart>>,
    edges: &mut Vec<Gauge>,
) -> Inlet<EndOfInputs> {
    let (pipeline, bound) = (&context.pipeline, &frame.bound);
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (edge_bytes, batch_bytes) = (bytes(bound.edge_bytes), bytes(bound.batch_bytes));
    for group in pipeline.groups() {
        let links = pipeline.transforms.iter().zip(&context.meters.transforms).enumerate();
        let links = links.skip(group.first).take(group.len);
        let links: Vec<Link> = links
            .map(|(i, (transform, meter))| Link {
                stage: pipeline.stage(i),
                transform: Arc::clone(transform),
                meter: Arc::clone(meter),
            })
            .collect();
        let mut n_workers = bound.workers;
        if let (Some(rule), Some(first)) = (group.batching, links.first()) {
            let name = first.meter.name();
            n_workers = bound.hooks.iter().find(|it| it.name == name).map_or(1, |it| it.at_once);
            let (cut, to_hook) = scope.edge(name, edge_bytes);
            edges.push(cut.gauge());
            let cutter = Cutter::new(name, rule);
            let stage = RebatchStage { cutter, resumed: Arc::clone(resumed) };
            scope.blocking(name, move || stage.run(inlet, cut));
            inlet = to_hook;
        }
        let (transformed, behind) = scope.edge("transform", edge_bytes);
        edges.push(transformed.gauge());
        let stage = Ordered {
            name: "transform".to_owned(),
            chain: Chain::new(links),
            n_workers,
            batch_bytes,
            outbox_bytes: batch_bytes,
        };
        stage.spawn(scope, inlet, transformed);
        inlet = behind;
    }
    inlet
}

/// The writer of one partition.
struct Sink {
    context: Arc<Context>,
    index: usize,
    part: Arc<Part>,
    writer: Partition,
    start: Start,
    resumed_rows: u64,
    underway: Arc<Underway>,
    finished: oneshot::Sender<Finished>,
}

impl Sink {
    fn open(
        context: Arc<Context>,
        frame: &Frame,
        task: Task,
        limit: Option<RowLimit>,
        underway: Arc<Underway>,
        finished: oneshot::Sender<Finished>,
    ) -> Result<Self, StageError> {
        let Task { index, source, slot, part, .. } = task;
        if limit.is_some() {
            // How many source rows were read before a restart is not noted: begin again.
            partition::clear(&context.place, &slot)?;
        }
        let pipeline = &context.pipeline;
        let stage = pipeline.sources.get(source);
        let run = &pipeline.definition.run;
        let options = PartitionOptions {
            slot,
            part: Arc::clone(&part),
            root: stage.map_or_else(String::new, |stage| stage.root.clone()),
            schema: frame.schema.clone(),
            stages: stage.map_or_else(Vec::new, |stage| stage.stages.clone()),
            limits: pipeline.shard_limits(),
            on_error: pipeline.definition.data.dataset.rejects.on_error,
            commits: CommitPolicy { bytes: run.commit_bytes, interval: Some(run.commit_interval) },
            limit: limit.as_ref().map(RowLimit::left),
            retry: frame.retry.clone(),
        };
        let (place, stamps) = (Arc::clone(&context.place), Arc::clone(&context.stamps));
        let (writer, resume) = Partition::open(place, stamps, options)?;
        let sealed_rows = writer.sealed().iter().map(SealedShard::rows).sum();
        let (start, resumed_rows) = match resume {
            Resume::Start => (Start::At(Restart::default()), 0),
            Resume::At { restart, rows, .. } => (Start::At(restart), rows),
            Resume::Finished => (Start::Digests, sealed_rows),
        };
        for shard in writer.sealed() {
            context.push(|| Ready::Shard(shard.clone()));
        }
        if resumed_rows > 0 {
            info!(partition = index, rows = resumed_rows, "partition resumed");
        }
        Ok(Self { context, index, part, writer, start, resumed_rows, underway, finished })
    }

    fn tell(&self, progress: &Progress) {
        for shard in &progress.sealed {
            self.context.sealed(self.index, shard);
        }
        if progress.commits > 0 {
            self.context
                .observer
                .event(&Event::Committed { partition: self.index, rows: progress.rows });
        }
    }
}

impl PartitionWriter for Sink {
    type Error = StageError;

    fn start(&self) -> Start {
        self.start.clone()
    }

    fn append(&mut self, batch: &Batch) -> Result<(), StageError> {
        let appended = self.writer.append(batch);
        let progress = appended.map_err(|e| StageError::from(e).in_batch(&self.part, batch))?;
        self.context.live.add_rows(batch.provenance.n_rows());
        self.context.live.add_rejected(progress.rejected);
        self.underway.written(batch);
        self.tell(&progress);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StageError> {
        let progress = self.writer.commit()?;
        self.tell(&progress);
        Ok(())
    }

    fn finish(self, end: EndOfInputs) -> Result<(), StageError> {
        let n_sealed = self.writer.sealed().len();
        // Whatever the record stands for was answered, and is not to be asked again.
        self.context.caches.commit()?;
        let built = self.writer.finish(&end.digests)?;
        let sealed = built.shards.get(n_sealed..).unwrap_or_default();
        for shard in sealed {
            self.context.sealed(self.index, shard);
        }
        let rows = built.record.rows;
        self.context.share(&built.name, &built.record);
        self.underway.end();
        self.context.observer.event(&Event::Finished { partition: self.index, rows });
        let source_rows = built.record.books.get(&built.record.source);
        let finished = Finished {
            partition: self.index,
            record: built.name,
            resumed_rows: self.resumed_rows,
            source_rows: source_rows.map_or(0, |books| books.entered),
            rejects: RejectsOf::record(&built.record),
        };
        // Nobody listens where the run was dropped; the record is there all the same.
        self.finished.send(finished).ok();
        Ok(())
    }
}
