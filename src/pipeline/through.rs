//! Sends batches through transforms on this thread, without a graph: for `check` and `test`.
//!
//! Invariant: hooks get their batches cut as in a run, or the beginning of the first one.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::ArrowError;

use super::Pipeline;
use super::groups::grouped;
use crate::batch::{Batch, OnError};
use crate::graph::{Chain, Halt, Link, LinkError, Meter, Numbers, Sink};
use crate::stages::Cutter;
use crate::transforms::{Batching, Stopped};

/// How batches are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Through {
    /// About the most bytes of a batch that a transform makes.
    pub(super) batch_bytes: usize,
    /// A hook gets its first batch alone, of no more rows than this.
    pub(super) first_rows: Option<usize>,
    /// What is done with bad rows, where it is not what the definition says.
    pub(super) on_error: Option<OnError>,
}

impl Pipeline {
    /// What the transforms of index `range` make of `batches`.
    ///
    /// # Errors
    /// The first transform to fail.
    pub(super) fn send(
        &self,
        mut batches: Vec<Batch>,
        range: Range<usize>,
        how: Through,
    ) -> Result<Vec<Batch>, LinkError> {
        let links = self.named_transforms().enumerate().map(|(i, (name, transform))| {
            let mut stage = self.stage(i);
            stage.on_error = how.on_error.unwrap_or(stage.on_error);
            let meter = Arc::new(Meter::new(name));
            Link { stage, transform: Arc::clone(transform), meter }
        });
        let links: Vec<Link> = links.skip(range.start).take(range.len()).collect();
        for group in grouped(links.iter().map(|link| link.transform.batching())) {
            let links: Vec<Link> =
                links.iter().skip(group.first).take(group.len).cloned().collect();
            if let (Some(rule), Some(link)) = (group.batching, links.first()) {
                let name = link.meter.name();
                let rows = how.first_rows.map_or(rule.rows, |most| rule.rows.min(most));
                let cutter = Cutter::new(name, Batching { rows, ..rule });
                let cut = cut(cutter, &batches, how.first_rows.is_some());
                batches = cut.map_err(|e| LinkError { name: name.to_owned(), source: e.into() })?;
            }
            let chain = Chain::new(links);
            let mut made = Made {
                pieces: Vec::new(),
                numbers: Numbers::default(),
                batch_bytes: how.batch_bytes,
            };
            for batch in batches {
                match chain.apply(batch, &mut made) {
                    Err(Halt::Cause(error)) => return Err(error),
                    Ok(numbers) => made.numbers = numbers.after(&made.numbers),
                    Err(Halt::Echo | Halt::Stopped) => {}
                }
            }
            batches = made.pieces;
        }
        Ok(batches)
    }
}

/// The batches that are cut of these.
fn cut(mut cutter: Cutter, batches: &[Batch], first_only: bool) -> Result<Vec<Batch>, ArrowError> {
    let mut made = Vec::new();
    for batch in batches {
        let mut cuts = cutter.push(batch);
        while let Some(cut) = cuts.next()? {
            made.push(cut);
            if first_only {
                return Ok(made);
            }
        }
    }
    made.extend(cutter.finish()?);
    Ok(made)
}

/// Keeps what a transform makes.
struct Made {
    pieces: Vec<Batch>,
    /// The numbers that rows have got.
    numbers: Numbers,
    batch_bytes: usize,
}

impl Sink for Made {
    fn send(&mut self, batch: Batch) -> Result<(), Stopped> {
        self.pieces.push(batch);
        Ok(())
    }

    fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn numbers_before(&mut self) -> Result<Numbers, Stopped> {
        Ok(self.numbers.clone())
    }
}
