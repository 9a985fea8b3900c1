//! Transforms applied one after another to the same batch, on the same thread.
//!
//! Leaves out: threads and order (`ordered`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Halt, Meter};
use crate::batch::Batch;
use crate::transforms::{Emit, Stage, Stopped, Transform, TransformError};

/// One transform of a chain.
#[derive(Debug, Clone)]
pub struct Link {
    /// Its place.
    pub stage: Stage,
    /// What it does.
    pub transform: Arc<dyn Transform>,
    /// Counts for it; bears the name under which it fails.
    pub meter: Arc<Meter>,
}

/// A transform of a chain failed.
#[derive(Debug, thiserror::Error)]
#[error("transform `{name}`")]
pub struct LinkError {
    /// The transform.
    pub name: String,
    /// What it says.
    #[source]
    pub source: TransformError,
}

impl LinkError {
    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.source.hint()
    }
}

/// Transforms in the order in which rows pass them. Without any, batches pass as they are.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    links: Arc<[Link]>,
}

impl Chain {
    /// A chain of these transforms.
    pub fn new(links: impl IntoIterator<Item = Link>) -> Self {
        Self { links: links.into_iter().collect() }
    }

    /// The transforms.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Applies all transforms to `batch`; a piece that one emits goes through those after it before
    /// it makes the next.
    ///
    /// # Errors
    /// The first transform to fail, or an echo where `emit` refused.
    pub fn apply(&self, batch: Batch, emit: &mut dyn Emit) -> Result<(), Halt<LinkError>> {
        apply(&self.links, batch, emit)
    }
}

fn apply(links: &[Link], batch: Batch, emit: &mut dyn Emit) -> Result<(), Halt<LinkError>> {
    let Some((link, after)) = links.split_first() else {
        return emit.emit(batch).map_err(|Stopped| Halt::Echo);
    };
    let mut next = Next { link, after, emit, time_away: Duration::ZERO, halt: None };
    let since = Instant::now();
    let applied = link.transform.apply(link.stage, batch, &mut next);
    link.meter.was_busy(since.elapsed().saturating_sub(next.time_away));
    match (next.halt, applied) {
        (Some(halt), _) => Err(halt),
        (None, Ok(())) => Ok(()),
        (None, Err(TransformError::Stopped(_))) => Err(Halt::Echo),
        (None, Err(source)) => {
            Err(Halt::Cause(LinkError { name: link.meter.name().to_owned(), source }))
        }
    }
}

/// Hands what one transform emits to those after it, and remembers why they ended: to the
/// transform it is only told to stop.
struct Next<'a> {
    link: &'a Link,
    after: &'a [Link],
    emit: &'a mut dyn Emit,
    time_away: Duration,
    halt: Option<Halt<LinkError>>,
}

impl Emit for Next<'_> {
    fn emit(&mut self, batch: Batch) -> Result<(), Stopped> {
        if self.halt.is_some() {
            return Err(Stopped);
        }
        if let Some(next) = self.after.first() {
            let (n_rows, bytes) = (batch.rows.num_rows(), batch.memory_bytes());
            self.link.meter.left(n_rows, bytes);
            next.meter.entered(n_rows, bytes);
        }
        let since = Instant::now();
        let applied = apply(self.after, batch, self.emit);
        self.time_away += since.elapsed();
        applied.map_err(|halt| {
            self.halt = Some(halt);
            Stopped
        })
    }

    fn batch_bytes(&self) -> usize {
        self.emit.batch_bytes()
    }

    fn is_stopped(&self) -> bool {
        self.halt.is_some() || self.emit.is_stopped()
    }
}
