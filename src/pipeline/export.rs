//! The push of a run: shards and records go out while later ones are built.
//!
//! Leaves out: what is sent, and how (`exporters`).
//!
//! Invariants:
//! 1. The build never waits for the push: a shard that cannot be handed over is found at the end.
//! 2. A push that fails leaves the dataset complete, and the run says that it failed.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Live, Pipeline, PipelineError};
use crate::config::PushConfig;
use crate::exporters::{Exporter, Others, PushError, PushLive, PushOptions, PushReport, Ready};
use crate::remote::{Remote, RemoteOptions};
use crate::schema::RowSchema;
use crate::shard::dropped_files;

/// Shards and partitions that may wait to be sent. Those beyond are sent at the end.
const WAITING: usize = 1024;

/// A push beside a build.
pub(super) struct Export {
    exporter: Arc<Exporter>,
    others: Option<Arc<Others>>,
    ready: Sender<Ready>,
    following: JoinSet<Result<(), PushError>>,
    quit: CancellationToken,
}

impl Pipeline {
    /// Where this run pushes to: nowhere, if it builds something that is not to become current.
    pub(super) fn pushes(&self) -> Option<&PushConfig> {
        let pushes = self.is_shared || self.definition.becomes_current;
        self.definition.push.as_ref().filter(|_| pushes)
    }

    /// Begins the push, if there is one. The place is looked at before a row is read.
    pub(super) async fn begin_push(
        &self,
        schema: &RowSchema,
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
        exporter.expect_shards().await?;
        let others = if self.is_shared {
            let others = Others::open(&exporter, remote, dropped_files(schema), quit.clone());
            Some(Arc::new(others.await?))
        } else {
            None
        };
        let (ready, to_push): (_, Receiver<Ready>) = async_channel::bounded(WAITING);
        let mut following = JoinSet::new();
        let follower = Arc::clone(&exporter);
        following.spawn(async move { follower.follow(to_push).await });
        Ok(Some(Export { exporter, others, ready, following, quit }))
    }
}

impl Export {
    /// Takes what can go out.
    pub(super) fn inlet(&self) -> Sender<Ready> {
        self.ready.clone()
    }

    /// What other runs at the place have finished, if there are any.
    pub(super) fn others(&self) -> Option<Arc<Others>> {
        self.others.clone()
    }

    /// Ends the push of a build that failed: what is on its way arrives, and is noted.
    pub(super) async fn give_up(mut self) {
        self.quit.cancel();
        self.ready.close();
        while self.following.join_next().await.is_some() {}
        self.exporter.withdraw().await;
    }

    /// Sends what is left of the dataset, which is complete.
    pub(super) async fn finish(mut self) -> Result<PushReport, PipelineError> {
        self.ready.close();
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
