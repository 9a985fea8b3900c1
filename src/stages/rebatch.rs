//! Cuts the rows that reach a transform into its own batches.
//!
//! What a hook answers may depend on the rows that it is asked about together, so these must be the
//! same in every run: they are cut by a rule over the partition alone.
//!
//! Leaves out: what is made of the batches.
//!
//! Invariants:
//! 1. Batches depend on the items (rows and events) that come in, from the partition's first on; how
//!    they were batched before never shows.
//! 2. What follows the restart of a batch is all that is needed to make it, and those after it, again:
//!    the same ones. Items before the place where cutting begins again are left out.
//! 3. A source row that a batch begins with comes again as a whole: where it began in an earlier batch,
//!    the restart is that batch's.

use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;

use super::row_bytes::row_bytes;
use crate::batch::{Batch, Event, HookStart, Outcome, Provenance, Restart};
use crate::graph::{Halt, Inlet, Item, LinkError, Outlet};
use crate::transforms::{Batching, TransformError};

/// Counted for an event beside its texts.
const EVENT_BYTES: u64 = 128;

/// Cuts batches for one transform, on a thread of its own.
#[derive(Debug)]
pub struct RebatchStage {
    /// Cuts.
    pub cutter: Cutter,
    /// Where reading began, known from before the first batch on.
    pub resumed: Arc<OnceLock<Restart>>,
}

impl RebatchStage {
    /// Cuts until the partition ends or the run does.
    ///
    /// # Errors
    /// Arrow's, or that the run ended first.
    #[expect(clippy::needless_pass_by_value, reason = "when it ends, so does the edge")]
    pub fn run<D: Send>(
        mut self,
        inlet: Inlet<D>,
        outlet: Outlet<D>,
    ) -> Result<(), Halt<LinkError>> {
        loop {
            match inlet.recv_blocking()? {
                Item::Batch(held) => {
                    if let Some(restart) = self.resumed.get() {
                        self.cutter.begin_at(restart);
                    }
                    let (batch, permit) = held.into_parts();
                    let made = self.cutter.push(&batch).map_err(|e| self.failed(e))?;
                    drop(batch);
                    for batch in made {
                        outlet.send_blocking(batch)?;
                    }
                    // What is kept for the next batch takes no room of the edge: one that waits for
                    // more rows would else wait for itself.
                    drop(permit);
                }
                Item::EndOfPartition(end) => {
                    if let Some(last) = self.cutter.finish().map_err(|e| self.failed(e))? {
                        outlet.send_blocking(last)?;
                    }
                    return Ok(outlet.end_blocking(end)?);
                }
            }
        }
    }

    fn failed(&self, error: ArrowError) -> Halt<LinkError> {
        let source = TransformError::Arrow(error);
        Halt::Cause(LinkError { name: self.cutter.name.clone(), source })
    }
}

/// Gathers items until a batch is full.
#[derive(Debug)]
pub struct Cutter {
    name: String,
    rule: Batching,
    /// Nothing is left out any more, or it was never asked for.
    has_begun: bool,
    /// Items before it are left out.
    skip: Option<HookStart>,
    /// The source row that an item was last seen of, and how many.
    current: Option<HookStart>,
    /// What is gathered.
    pieces: Vec<Batch>,
    open: Option<Open>,
    /// The start of the batch in which the current source row began, if that is an earlier one.
    row_start: Option<Restart>,
}

/// A batch that is being gathered.
#[derive(Debug)]
struct Open {
    n_rows: usize,
    bytes: u64,
    /// Where it begins.
    start: Restart,
    /// Where reading begins again to come to its first source row.
    restart: Restart,
    /// The current source row began in it.
    has_row_start: bool,
}

/// A place within a batch: so many rows and events stand before it.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    row: usize,
    event: usize,
}

impl Cutter {
    /// Cuts for the stage `name`, from the start of a partition.
    #[must_use]
    pub fn new(name: &str, rule: Batching) -> Self {
        let name = name.to_owned();
        let (skip, current, open, row_start) = (None, None, None, None);
        let has_begun = false;
        Self { name, rule, has_begun, skip, current, pieces: Vec::new(), open, row_start }
    }

    /// Reading began at `restart`. Heard before the first batch only.
    fn begin_at(&mut self, restart: &Restart) {
        if !self.has_begun {
            self.skip = restart.hooks.get(&self.name).copied();
            self.has_begun = true;
        }
    }

    /// Takes a batch in, and gives those that are full.
    ///
    /// # Errors
    /// Arrow cannot join the rows.
    pub fn push(&mut self, batch: &Batch) -> Result<Vec<Batch>, ArrowError> {
        self.has_begun = true;
        let sizes = row_bytes(&batch.rows);
        let mut runs = batch.provenance.pieces();
        let mut run = runs.next();
        let mut made = Vec::new();
        let (mut from, mut at) = (Place::default(), Place::default());
        loop {
            let event = batch.events.get(at.event).filter(|e| e.before_row <= at.row as u64);
            let (input, source_row, bytes) = if let Some(event) = event {
                (event.input, event.source_row, event_bytes(event))
            } else {
                while run.is_some_and(|(run, n_rows)| run.row + n_rows <= at.row as u64) {
                    run = runs.next();
                }
                let (Some((run, _)), Some(bytes)) = (run, sizes.get(at.row)) else { break };
                let position = run.at(at.row as u64 - run.row);
                (position.input, position.source_row, *bytes)
            };
            let mark = self.count(input, source_row);
            let behind = match event {
                Some(_) => Place { event: at.event + 1, ..at },
                None => Place { row: at.row + 1, ..at },
            };
            if self.skip.is_some_and(|skip| mark < skip) {
                (at, from) = (behind, behind);
                continue;
            }
            self.skip = None;
            let is_over = |open: &Open| open.bytes.saturating_add(bytes) > self.rule.bytes;
            if self.open.as_ref().is_some_and(is_over) {
                self.take(batch, from, at);
                made.extend(self.close(batch.rows.schema_ref())?);
                from = at;
            }
            let open = self.open_at(mark, &batch.restart);
            open.bytes = open.bytes.saturating_add(bytes);
            open.has_row_start |= mark.item == 0;
            open.n_rows += usize::from(event.is_none());
            let is_full = open.n_rows >= self.rule.rows.max(1);
            at = behind;
            if is_full {
                self.take(batch, from, at);
                made.extend(self.close(batch.rows.schema_ref())?);
                from = at;
            }
        }
        self.take(batch, from, at);
        Ok(made)
    }

    /// What is left when the partition has ended.
    ///
    /// # Errors
    /// Arrow cannot join the rows.
    pub fn finish(&mut self) -> Result<Option<Batch>, ArrowError> {
        match self.pieces.first() {
            Some(piece) => {
                let schema = piece.rows.schema();
                self.close(&schema)
            }
            None => Ok(None),
        }
    }

    /// Where an item of this source row stands.
    fn count(&mut self, input: u32, source_row: u64) -> HookStart {
        let mark = match self.current {
            Some(last) if (last.input, last.source_row) == (input, source_row) => {
                HookStart { item: last.item + 1, ..last }
            }
            _ => {
                if let Some(open) = &mut self.open {
                    open.has_row_start = false;
                }
                HookStart { input, source_row, item: 0 }
            }
        };
        self.current = Some(mark);
        mark
    }

    /// The batch that the item at `mark` belongs to, which came with `restart`.
    fn open_at(&mut self, mark: HookStart, restart: &Restart) -> &mut Open {
        let (name, row_start) = (&self.name, &mut self.row_start);
        self.open.get_or_insert_with(|| {
            let mut start = restart.clone();
            start.hooks.insert(name.clone(), mark);
            let earlier = if mark.item == 0 { None } else { row_start.clone() };
            let restart = earlier.unwrap_or_else(|| start.clone());
            Open { n_rows: 0, bytes: 0, start, restart, has_row_start: false }
        })
    }

    /// Keeps the items of `batch` between two places.
    fn take(&mut self, batch: &Batch, from: Place, to: Place) {
        let (n_rows, n_events) = (to.row - from.row, to.event - from.event);
        if n_rows + n_events == 0 {
            return;
        }
        let first = from.row as u64;
        let events = batch.events.iter().skip(from.event).take(n_events);
        let events = events.map(|e| Event { before_row: e.before_row - first, ..e.clone() });
        self.pieces.push(Batch {
            rows: batch.rows.slice(from.row, n_rows),
            provenance: batch.provenance.slice(first, n_rows as u64),
            events: events.collect(),
            restart: Restart::default(),
        });
    }

    /// Makes a batch of what is gathered.
    fn close(&mut self, schema: &SchemaRef) -> Result<Option<Batch>, ArrowError> {
        let Some(open) = self.open.take() else { return Ok(None) };
        if open.has_row_start {
            self.row_start = Some(open.start);
        }
        let mut provenance = Provenance::new();
        let mut events = Vec::new();
        let mut rows = Vec::with_capacity(self.pieces.len() + 1);
        for piece in self.pieces.drain(..) {
            let before = provenance.n_rows();
            let shifted = |e: Event| Event { before_row: e.before_row + before, ..e };
            events.extend(piece.events.into_iter().map(shifted));
            provenance.extend(&piece.provenance);
            rows.push(piece.rows);
        }
        if let [slice] = rows.as_slice()
            && slice.get_array_memory_size() as u64 > 2 * open.bytes
        {
            // It would keep a much larger batch in memory: with another piece its rows are copied.
            rows.push(RecordBatch::new_empty(SchemaRef::clone(schema)));
        }
        let rows = match rows.as_slice() {
            [whole] => whole.clone(),
            pieces => concat_batches(schema, pieces)?,
        };
        Ok(Some(Batch { rows, provenance, events, restart: open.restart }))
    }
}

fn event_bytes(event: &Event) -> u64 {
    let text_bytes = match &event.outcome {
        Outcome::Rejected { code, message } => code.len() + message.len(),
        Outcome::Dropped | Outcome::Created(_) => 0,
    };
    EVENT_BYTES + text_bytes as u64
}
