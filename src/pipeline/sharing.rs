//! Several runs at one place: each takes over what others have finished.
//!
//! Leaves out: looking and fetching (`exporters`), and the decision (`dataset::choice`).
//!
//! Invariants:
//! 1. Nobody waits for anybody: what is not known to be finished is built, by several if need be.
//! 2. What others say of an input that was not read here is believed by runs that share, as long as the
//!    input looks as it did then. Other runs read it.
//! 3. A record is written here after its shards are in their places.
//! 4. No record goes out while what it stands for may prove to be of other rows.

use std::sync::Arc;

use tracing::{info, warn};

use super::partition::Context;
use super::plan::{Done, Plan};
use super::run::on_thread;
use super::{Event, Pipeline, PipelineError};
use crate::config::PushConfig;
use crate::dataset::choice::{Choice, choose};
use crate::dataset::partition;
use crate::dataset::record::{Record, RecordName};
use crate::exporters::{Others, Ready};
use crate::inputs::InputRange;
use crate::remote::shown;

impl Pipeline {
    /// The same as one of several runs, on this machine or others, that build the dataset together and
    /// push it to `url`.
    ///
    /// # Errors
    /// The definition pushes elsewhere, or reads only some of its rows.
    pub fn sharing_at(mut self, url: &str) -> Result<Self, PipelineError> {
        let plain = |url: &str| shown(url).trim_end_matches('/').to_owned();
        if let Some(push) = &self.definition.push
            && plain(&push.url) != plain(url)
        {
            let message = format!("runs share `{}`, and `url` is another place", shown(url));
            let hint = "give `--at` the URL of `[push]`, or take one of them away".to_owned();
            return Err(self.definition.error_at(&["push", "url"], message, Some(hint)).into());
        }
        if self.definition.data.dataset.limit_rows.is_some() {
            let message = "rows that are limited are not read by several runs".to_owned();
            let hint =
                "a limit is spent partition by partition: leave it out, or `--at`".to_owned();
            let keys = ["dataset", "limit_rows"];
            return Err(self.definition.error_at(&keys, message, Some(hint)).into());
        }
        if self.definition.push.is_none() {
            self.definition.push = Some(PushConfig::to(url.to_owned()));
        }
        self.is_shared = true;
        Ok(self)
    }
}

impl Context {
    /// Lets a partition go out that was built, unless a hook may yet prove to have answered to other
    /// rows: then it goes out at the end of the run.
    pub(super) fn share(&self, name: &RecordName, record: &Record) {
        let mut transforms = self.pipeline.named_transforms();
        if let Some((hook, _)) = transforms.find(|(_, transform)| transform.is_unsure()) {
            if self.others.is_some() {
                self.warned.call_once(|| {
                    warn!(
                        hook,
                        "it does not say which batch it answers to: others see what is built here \
                         only when this run has ended"
                    );
                });
            }
            return;
        }
        self.push(|| Ready::Partition { record: name.clone(), shards: record.shards.clone() });
    }

    /// Lets a partition go out that an earlier run has finished, unless it is there.
    pub(super) async fn offer(&self, name: &RecordName) -> Result<(), PipelineError> {
        let Some(others) = &self.others else { return Ok(()) };
        if others.has_record(name) {
            return Ok(());
        }
        let Some(to_push) = self.ready.clone() else { return Ok(()) };
        let (place, name) = (Arc::clone(&self.place), name.clone());
        // Where rows are dropped, handing something over may wait.
        let offer = move || {
            let home = place.home();
            let record = Record::read(&**place.storage(), home.dir(), home.cache_key(), &name)?;
            to_push.push(Ready::Partition { record: name, shards: record.shards });
            Ok(())
        };
        on_thread(offer).await
    }
}

/// Takes over the partition of index `index`, if somebody has finished it.
pub(super) async fn adopt(
    context: &Arc<Context>,
    others: &Arc<Others>,
    plan: &Plan,
    index: usize,
) -> Result<Option<Done>, PipelineError> {
    let pipeline = &context.pipeline;
    let Some(planned) = plan.partitions.get(index) else { return Ok(None) };
    let Some(stage) = pipeline.sources.get(planned.source) else { return Ok(None) };
    let part = plan.part(planned);
    let sides = part.side.iter().map(|input| InputRange { input: input.clone(), range: None });
    let inputs: Vec<InputRange> = part.inputs.iter().cloned().chain(sides).collect();
    let digest = |input| Some(context.stamps.digest(&stage.root, input)?.blake3);
    let known: Vec<_> = inputs.iter().map(digest).collect();
    let seen = others.seen(&planned.slot).await?;
    let name = match choose(&part, &known, &seen, others.current()) {
        Choice::Build => return Ok(None),
        Choice::Refuse(one, other) => return Err(others.contradiction(&one, &other).into()),
        Choice::Adopt(name) => name,
    };
    let Some(seen) = seen.into_iter().find(|it| it.name == name) else { return Ok(None) };
    if !others.bring(&context.place, &seen).await? {
        return Ok(None);
    }
    let (kept, root) = (Arc::clone(context), stage.root.clone());
    let done = Done::of(stage.name(), name, &seen.record);
    on_thread(move || {
        let contents = seen.record.inputs.iter().chain(&seen.record.side);
        for (input, contents) in inputs.iter().zip(contents) {
            kept.stamps.believe(&root, input, contents.b3)?;
        }
        kept.stamps.sync()?;
        seen.record.write(&kept.place)?;
        Ok(partition::clear(&kept.place, &seen.record.slot)?)
    })
    .await?;
    info!(partition = index, rows = done.rows, "partition adopted");
    context.observer.event(&Event::Adopted { partition: index, rows: done.rows });
    context.live.add_done(planned.bytes);
    context.live.unwatch(index, true);
    Ok(Some(done))
}
