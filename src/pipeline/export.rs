//! The push of a run: shards and records go out while later ones are built.
//!
//! Leaves out: what is sent, and how (`exporters`).
//!
//! Invariants:
//! 1. The build never waits for the push: a shard that cannot be handed over is found at the end. But
//!    where the rows of shards go as soon as they are pushed, it does: the disk may hold few of them.
//! 2. A push that fails leaves the dataset complete, and the run says that it failed.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::plan::{Plan, State};
use super::run::on_thread;
use super::{Live, Pipeline, PipelineError};
use crate::config::PushConfig;
use crate::dataset::Workplace;
use crate::dataset::record::{Record, ShardEntry};
use crate::exporters::{Exporter, Others, PushError, PushLive, PushOptions, PushReport, Ready};
use crate::remote::{Remote, RemoteOptions};
use crate::shard::dropped_files;

/// Shards and partitions that may wait to be sent. Those beyond are sent at the end.
const WAITING: usize = 1024;

/// The same where the build waits for the push.
const FEW_WAITING: usize = 4;

/// A push beside a build.
pub(super) struct Export {
    exporter: Arc<Exporter>,
    others: Option<Arc<Others>>,
    ready: ToPush,
    following: JoinSet<Result<(), PushError>>,
    quit: CancellationToken,
}

impl Pipeline {
    /// Where this run pushes to: nowhere, if it builds something that is not to become current.
    pub(super) fn pushes(&self) -> Option<&PushConfig> {
        let pushes = self.is_shared || self.definition.becomes_current;
        self.definition.push.as_ref().filter(|_| pushes)
    }

    /// Begins the push, if there is one. The place is looked at before a row is read. Without a plan
    /// nothing was built before.
    pub(super) async fn begin_push(
        self: &Arc<Self>,
        place: &Arc<Workplace>,
        plan: Option<&Arc<Plan>>,
        live: &Live,
        stop: &CancellationToken,
    ) -> Result<Option<Export>, PipelineError> {
        let Some(push) = self.pushes() else { return Ok(None) };
        let options = RemoteOptions { allow_http: push.allow_http, ..RemoteOptions::default() };
        let remote = Remote::open(&push.url, &options)?;
        let options = PushOptions {
            part_bytes: push.part_bytes,
            concurrency: push.concurrency.into(),
            bandwidth: push.bandwidth,
            replace: false,
        };
        let (storage, home) = (Arc::clone(&self.storage), self.home.clone());
        let (quit, pushed) = (stop.child_token(), Arc::new(PushLive::default()));
        live.watch_push(Arc::clone(&pushed));
        let exporter = Exporter::open(storage, home, remote.clone(), options, pushed, quit.clone());
        let exporter = Arc::new(exporter.await?);
        if push.drop_local {
            // Before the shards that are built are looked at: a drop that was cut off is finished then.
            exporter.drop_local(Arc::clone(place));
        }
        let (pipeline, planned) = (Arc::clone(self), plan.cloned());
        let built = on_thread(move || match planned {
            Some(planned) => pipeline.built(&planned),
            None => Ok(Vec::new()),
        });
        let built = built.await?;
        exporter.expect_shards(&built).await?;
        let others = if let Some(plan) = plan.filter(|_| self.is_shared) {
            let dropped = dropped_files(&plan.schema);
            Some(Arc::new(Others::open(&exporter, remote, dropped, quit.clone()).await?))
        } else {
            None
        };
        let (before, waiting) = if push.drop_local {
            // The disk may be full of what an earlier run could not push.
            (built, FEW_WAITING)
        } else {
            (Vec::new(), WAITING)
        };
        let (ready, to_push): (_, Receiver<Ready>) = async_channel::bounded(waiting);
        let mut following = JoinSet::new();
        let follower = Arc::clone(&exporter);
        following.spawn(async move { follower.follow(before, to_push).await });
        let ready = ToPush { ready, waits: push.drop_local };
        Ok(Some(Export { exporter, others, ready, following, quit }))
    }

    /// The shards of the partitions that are finished.
    fn built(&self, plan: &Plan) -> Result<Vec<ShardEntry>, PipelineError> {
        let mut built = Vec::new();
        for planned in &plan.partitions {
            if let State::Done(done) = &planned.state {
                let (dir, key) = (self.home.dir(), self.home.cache_key());
                built.extend(Record::read(&*self.storage, dir, key, &done.name)?.shards);
            }
        }
        Ok(built)
    }
}

/// Takes what can go out.
#[derive(Debug, Clone)]
pub(super) struct ToPush {
    ready: Sender<Ready>,
    waits: bool,
}

impl ToPush {
    /// Hands something over, on a thread that may wait. Whoever pushes finds it at the end, if it cannot
    /// be taken.
    pub(super) fn push(&self, ready: Ready) {
        if self.waits {
            self.ready.send_blocking(ready).ok();
        } else {
            self.ready.try_send(ready).ok();
        }
    }
}

impl Export {
    /// Takes what can go out.
    pub(super) fn to_push(&self) -> ToPush {
        self.ready.clone()
    }

    /// What other runs at the place have finished, if there are any.
    pub(super) fn others(&self) -> Option<Arc<Others>> {
        self.others.clone()
    }

    /// Ends the push of a build that failed: what is on its way arrives, and is noted.
    pub(super) async fn give_up(mut self) {
        self.quit.cancel();
        self.ready.ready.close();
        while self.following.join_next().await.is_some() {}
        self.exporter.withdraw().await;
    }

    /// Sends what is left of the dataset, which is complete.
    pub(super) async fn finish(mut self) -> Result<PushReport, PipelineError> {
        self.ready.ready.close();
        match self.following.join_next().await {
            Some(Ok(Err(error))) => {
                // Whatever it was, the end of the push meets it again if it lasts.
                warn!(error = &error as &dyn std::error::Error, "shards could not be pushed yet");
            }
            Some(Err(error)) => return Err(PipelineError::Runtime(std::io::Error::other(error))),
            Some(Ok(Ok(()))) | None => {}
        }
        let report =
            self.exporter.finish(self.others.as_ref()).await.map_err(PipelineError::from)?;
        info!(objects = report.sent_objects, bytes = report.sent_bytes, "dataset pushed");
        Ok(report)
    }
}
