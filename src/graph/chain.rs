//! Transforms applied one after another to the same batch, on the same thread.
//!
//! Leaves out: threads and order (`ordered`).
//!
//! Invariant: what leaves a transform that makes several rows of one is numbered through within its source
//! row, also where several batches hold rows of that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Halt, Meter};
use crate::batch::{Batch, Position};
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
    /// it makes the next. Gives the numbers that rows have got.
    ///
    /// # Errors
    /// The first transform to fail, or an echo where `sink` refused.
    pub fn apply(&self, batch: Batch, sink: &mut dyn Sink) -> Result<Numbers, Halt<LinkError>> {
        let mut numbers = Numbers { of_links: vec![Numbered::default(); self.links.len()] };
        apply(&self.links, &mut numbers.of_links, batch, sink)?;
        Ok(numbers)
    }
}

/// Takes what the last transform of a chain makes.
pub trait Sink {
    /// Takes a batch; waits while there is no room.
    ///
    /// # Errors
    /// The run is being stopped.
    fn send(&mut self, batch: Batch) -> Result<(), Stopped>;

    /// About the most bytes in a batch.
    fn batch_bytes(&self) -> usize;

    /// Whether nobody wants what is being made any more.
    fn is_stopped(&self) -> bool;

    /// The numbers that rows of the batches before this one have got; waits until all of these are
    /// done with.
    ///
    /// # Errors
    /// The run is being stopped.
    fn numbers_before(&mut self) -> Result<Numbers, Stopped>;
}

/// The numbers that rows have got, for each transform of a chain.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    of_links: Vec<Numbered>,
}

impl Numbers {
    /// These, and those `before` where a transform has numbered no row since.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        self.of_links.resize(self.of_links.len().max(before.of_links.len()), Numbered::default());
        for (own, before) in self.of_links.iter_mut().zip(&before.of_links) {
            if own.source_row.is_none() {
                *own = *before;
            }
        }
        self
    }
}

/// How far the rows are numbered that one transform has made.
#[derive(Debug, Clone, Copy, Default)]
struct Numbered {
    /// The source row of the last of them: its input, and its place in it.
    source_row: Option<(u32, u64)>,
    /// How many this has become.
    n_rows: u64,
}

fn apply(
    links: &[Link],
    numbers: &mut [Numbered],
    batch: Batch,
    sink: &mut dyn Sink,
) -> Result<(), Halt<LinkError>> {
    let (Some((link, after)), Some((numbered, numbers_after))) =
        (links.split_first(), numbers.split_first_mut())
    else {
        return sink.send(batch).map_err(|Stopped| Halt::Echo);
    };
    let time_away = Duration::ZERO;
    let mut next = Next { link, numbered, after, numbers_after, sink, time_away, halt: None };
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
    numbered: &'a mut Numbered,
    after: &'a [Link],
    numbers_after: &'a mut [Numbered],
    sink: &'a mut dyn Sink,
    time_away: Duration,
    halt: Option<Halt<LinkError>>,
}

impl Next<'_> {
    /// How far the rows of this source row are numbered that batches before this one hold.
    fn before(&mut self, source_row: (u32, u64)) -> Result<Numbered, Stopped> {
        let since = Instant::now();
        let before = self.sink.numbers_before();
        self.time_away += since.elapsed();
        let place = before?.of_links.into_iter().rev().nth(self.after.len());
        Ok(place.filter(|it| it.source_row == Some(source_row)).unwrap_or_default())
    }
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
        let applied = apply(self.after, self.numbers_after, batch, self.sink);
        self.time_away += since.elapsed();
        applied.map_err(|halt| {
            self.halt = Some(halt);
            Stopped
        })
    }

    fn number(&mut self, parent: Position, n_rows: u64) -> Result<u64, Stopped> {
        if self.halt.is_some() {
            return Err(Stopped);
        }
        let source_row = (parent.input, parent.source_row);
        if self.numbered.source_row != Some(source_row) {
            // Only the source row that a batch begins with may have begun in one before.
            let may_go_on = parent.sub_row > 0 && self.numbered.source_row.is_none();
            let before = if may_go_on { self.before(source_row)? } else { Numbered::default() };
            *self.numbered = Numbered { source_row: Some(source_row), ..before };
        }
        let first = self.numbered.n_rows;
        self.numbered.n_rows += n_rows;
        Ok(first)
    }

    fn batch_bytes(&self) -> usize {
        self.sink.batch_bytes()
    }

    fn is_stopped(&self) -> bool {
        self.halt.is_some() || self.sink.is_stopped()
    }
}
