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
//! 4. What is gathered, and each batch of several rows, keeps at most twice its bytes in memory; a batch
//!    is handed on before the next is made.

use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;

use crate::batch::{
    Batch, Event, HookStart, Outcome, Provenance, Restart, memory_bytes, row_bytes,
};
use crate::graph::{Halt, Inlet, Item, LinkError, Outlet};
use crate::transforms::{Batching, TransformError};

/// Counted for a row beside its values.
const ROW_BYTES: u64 = 32;
/// Counted for an event beside its texts.
const EVENT_BYTES: u64 = 128;
/// Pieces that are gathered before they are made one: each has a cost of its own.
const MOST_PIECES: usize = 256;

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
        let name = self.cutter.name.clone();
        loop {
            match inlet.recv_blocking()? {
                Item::Batch(held) => {
                    if let Some(restart) = self.resumed.get() {
                        self.cutter.begin_at(restart);
                    }
                    let (batch, permit) = held.into_parts();
                    let mut cuts = self.cutter.push(&batch);
                    while let Some(made) = cuts.next().map_err(|e| failed(&name, e))? {
                        outlet.send_blocking(made)?;
                    }
                    drop(batch);
                    // What is kept for the next batch takes no room of the edge: one that waits for
                    // more rows would else wait for itself.
                    drop(permit);
                }
                Item::EndOfPartition(end) => {
                    if let Some(last) = self.cutter.finish().map_err(|e| failed(&name, e))? {
                        outlet.send_blocking(last)?;
                    }
                    return Ok(outlet.end_blocking(end)?);
                }
            }
        }
    }
}

fn failed(name: &str, error: ArrowError) -> Halt<LinkError> {
    Halt::Cause(LinkError { name: name.to_owned(), source: TransformError::Arrow(error) })
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
    pub(super) fn begin_at(&mut self, restart: &Restart) {
        if !self.has_begun {
            self.skip = restart.hooks.get(&self.name).copied();
            self.has_begun = true;
        }
    }

    /// Takes a batch in, and gives those that are full one by one: all of them are to be asked for.
    pub fn push<'a>(&'a mut self, batch: &'a Batch) -> Cuts<'a> {
        self.has_begun = true;
        let (from, at) = (Place::default(), Place::default());
        let mut sizes = row_bytes(&batch.rows);
        for size in &mut sizes {
            *size = size.saturating_add(ROW_BYTES);
        }
        Cuts { cutter: self, batch, sizes, from, at }
    }

    /// What is left when the partition has ended.
    ///
    /// # Errors
    /// Arrow cannot join the rows.
    pub fn finish(&mut self) -> Result<Option<Batch>, ArrowError> {
        self.close()
    }

    /// Where the next item stands if it is of this source row.
    fn mark(&self, input: u32, source_row: u64) -> HookStart {
        match self.current {
            Some(last) if (last.input, last.source_row) == (input, source_row) => {
                HookStart { item: last.item + 1, ..last }
            }
            _ => HookStart { input, source_row, item: 0 },
        }
    }

    /// The item at `mark` was seen.
    fn count(&mut self, mark: HookStart) {
        self.current = Some(mark);
        if let Some(open) = &mut self.open
            && mark.item == 0
        {
            open.has_row_start = false;
        }
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

    /// Copies what was taken last, if it keeps much more in memory than its own `bytes`; and brings
    /// the pieces together where there are many.
    fn tidy(&mut self, bytes: u64) -> Result<(), ArrowError> {
        if let Some(last) = self.pieces.last_mut() {
            copy_if_small(&mut last.rows, bytes)?;
        }
        if self.pieces.len() >= MOST_PIECES {
            let whole = joined(&mut self.pieces)?;
            self.pieces.extend(whole);
        }
        Ok(())
    }

    /// Makes a batch of what is gathered.
    fn close(&mut self) -> Result<Option<Batch>, ArrowError> {
        let Some(open) = self.open.take() else { return Ok(None) };
        if open.has_row_start {
            self.row_start = Some(open.start);
        }
        let made = joined(&mut self.pieces)?;
        Ok(made.map(|made| Batch { restart: open.restart, ..made }))
    }
}

/// One batch of several, in order.
fn joined(pieces: &mut Vec<Batch>) -> Result<Option<Batch>, ArrowError> {
    let Some(first) = pieces.first() else { return Ok(None) };
    let schema = first.rows.schema();
    let mut whole = Batch {
        rows: RecordBatch::new_empty(SchemaRef::clone(&schema)),
        provenance: Provenance::new(),
        events: Vec::new(),
        restart: Restart::default(),
    };
    let mut rows = Vec::with_capacity(pieces.len());
    for piece in pieces.drain(..) {
        let before = whole.provenance.n_rows();
        let shifted = |e: Event| Event { before_row: e.before_row + before, ..e };
        whole.events.extend(piece.events.into_iter().map(shifted));
        whole.provenance.extend(&piece.provenance);
        rows.push(piece.rows);
    }
    whole.rows = match rows.as_slice() {
        [one] => one.clone(),
        several => concat_batches(&schema, several)?,
    };
    Ok(Some(whole))
}

/// Copies a slice that keeps a much larger batch in memory.
fn copy_if_small(rows: &mut RecordBatch, bytes: u64) -> Result<(), ArrowError> {
    if memory_bytes(rows) as u64 > bytes.saturating_mul(2) {
        // With another piece its rows are copied.
        let schema = rows.schema();
        *rows = concat_batches(&schema, [&*rows, &RecordBatch::new_empty(schema.clone())])?;
    }
    Ok(())
}

/// What comes of a batch.
#[derive(Debug)]
pub struct Cuts<'a> {
    cutter: &'a mut Cutter,
    batch: &'a Batch,
    /// Bytes of its rows.
    sizes: Vec<u64>,
    /// What stands before it was taken.
    from: Place,
    /// What stands before it was looked at.
    at: Place,
}

impl Cuts<'_> {
    /// The next batch that is full; what is left is kept for the batches to come.
    ///
    /// # Errors
    /// Arrow cannot join the rows.
    pub fn next(&mut self) -> Result<Option<Batch>, ArrowError> {
        while let Some((mark, bytes, is_row)) = self.item() {
            let behind = if is_row {
                Place { row: self.at.row + 1, ..self.at }
            } else {
                Place { event: self.at.event + 1, ..self.at }
            };
            if self.cutter.skip.is_some_and(|skip| mark < skip) {
                self.cutter.count(mark);
                (self.at, self.from) = (behind, behind);
                continue;
            }
            self.cutter.skip = None;
            let (most_rows, most) = (self.cutter.rule.rows.max(1), self.cutter.rule.bytes);
            let is_over = |open: &Open| open.bytes.saturating_add(bytes) > most;
            if self.cutter.open.as_ref().is_some_and(is_over) {
                // The item is looked at once more, as the first of the next batch.
                return self.close();
            }
            self.cutter.count(mark);
            let open = self.cutter.open_at(mark, &self.batch.restart);
            open.bytes = open.bytes.saturating_add(bytes);
            open.has_row_start |= mark.item == 0;
            open.n_rows += usize::from(is_row);
            // Nothing goes with a row that is too large alone.
            let is_full = open.n_rows >= most_rows || open.bytes > most;
            self.at = behind;
            if is_full {
                return self.close();
            }
        }
        self.cutter.take(self.batch, self.from, self.at);
        let sizes = self.sizes.get(self.from.row..self.at.row).unwrap_or_default();
        self.cutter.tidy(sizes.iter().sum())?;
        self.from = self.at;
        Ok(None)
    }

    /// The item that is looked at: where it stands, its bytes, and whether it is a row.
    fn item(&self) -> Option<(HookStart, u64, bool)> {
        let Place { row, event } = self.at;
        let event = self.batch.events.get(event).filter(|e| e.before_row <= row as u64);
        if let Some(event) = event {
            let mark = self.cutter.mark(event.input, event.source_row);
            return Some((mark, event_bytes(event), false));
        }
        let position = self.batch.provenance.position(row as u64)?;
        let mark = self.cutter.mark(position.input, position.source_row);
        Some((mark, *self.sizes.get(row)?, true))
    }

    /// Makes a batch of all that was looked at.
    fn close(&mut self) -> Result<Option<Batch>, ArrowError> {
        self.cutter.take(self.batch, self.from, self.at);
        let n_rows = self.at.row - self.from.row;
        self.from = self.at;
        let bytes = self.cutter.open.as_ref().map_or(0, |open| open.bytes);
        // A row that is a batch alone is passed on as it came.
        let is_large_row = n_rows == 1 && self.batch.rows.num_rows() == 1;
        if self.cutter.pieces.len() == 1 && !is_large_row {
            self.cutter.tidy(bytes)?;
        }
        self.cutter.close()
    }
}

fn event_bytes(event: &Event) -> u64 {
    let text_bytes = match &event.outcome {
        Outcome::Rejected { code, message } => code.len() + message.len(),
        Outcome::Dropped | Outcome::Created(_) => 0,
    };
    EVENT_BYTES + text_bytes as u64
}
