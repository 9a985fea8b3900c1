//! Reads a partition of tables that come in groups of rows: Parquet's row groups, Arrow's record
//! batches.
//!
//! Leaves out: the formats, which say where groups are and decode them (`parquet`, `arrow_ipc`).
//!
//! Invariants:
//! 1. The cursor of a restart is a group of the file and a row in it.
//! 2. Which row is the first that cannot be read does not depend on the sizes of batches or on where
//!    reading began: rows that cannot be read together are read apart, down to single ones.
//! 3. A format that panics on bytes that it does not expect is a damaged input, not a crash.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use serde_json::json;

use super::ahead::Ahead;
use super::columnar::{Rows, order_of};
use super::contained::contained;
use super::input::{Folder, misfit};
use super::{
    BadRow, BadRowAt, BatchLimits, BatchReader, INPUT_DAMAGED, Input, InputDigest, InputRange,
    NOT_UTF8, OnError, Part, ROW_TOO_LARGE, SourceError,
};
use crate::batch::{Batch, Provenance, Restart};

/// A row of a table: a group of rows in the file, and a row within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: usize,
    pub(super) row: u64,
}

/// Why rows were not read.
#[derive(Debug)]
pub(super) enum Flaw {
    /// The system refused, or the input changed.
    Input(SourceError),
    /// The next rows cannot be read, nor those behind them.
    Rest(BadRow),
    /// The next rows cannot be read together; if there is one, it is bad and the next may be good.
    Row(BadRow),
}

impl Flaw {
    /// The bytes are not what the format says.
    pub(super) fn damaged(what: &str, detail: &dyn std::fmt::Display) -> Self {
        let bad = BadRow::new(INPUT_DAMAGED, what);
        Self::Rest(bad.hint(format!("write the input again; what the reader met: {detail}")))
    }

    /// The error of planning, which needs all of an input's head.
    pub(super) fn into_error(self, input: &Input, at: &str) -> SourceError {
        match self {
            Self::Input(e) => e,
            Self::Rest(bad) | Self::Row(bad) => bad.into_error(&input.path, at),
        }
    }
}

/// Calls into a library that decodes bytes of others. What it panics with becomes an error: these
/// libraries assert what the bytes should have said, and none of their state is used afterwards.
pub(super) fn contain<T, E: std::fmt::Display>(
    what: &str,
    decode: impl FnOnce() -> Result<T, E>,
) -> Result<T, Flaw> {
    match contained(decode) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => {
            let text = e.to_string();
            if text.to_ascii_lowercase().contains("utf-8") || text.contains("UTF8") {
                let bad = BadRow::new(NOT_UTF8, "a text is not UTF-8");
                let hint = format!("write it as bytes; what the reader met: {text}");
                return Err(Flaw::Row(bad.hint(hint)));
            }
            Err(Flaw::damaged(what, &text))
        }
        Err(text) => Err(Flaw::damaged(what, &text)),
    }
}

/// An open table, or the groups of it that begin in a range of its bytes.
pub(super) trait Table: Send {
    /// Its columns, those that are read and as they come out.
    fn schema(&self) -> &Schema;

    /// The row that is read next: the first of a group where the one before it has ended.
    fn place(&self) -> Place;

    /// Goes to a row; `false` if there is no such place.
    fn seek(&mut self, place: Place) -> Result<bool, Flaw>;

    /// How many rows to read at once, where they are like the others of their group.
    fn suggest(&self) -> usize;

    /// Whether columns hold on to memory beside their own.
    fn shares_buffers(&self) -> bool {
        false
    }

    /// Rows of the input before the first group that is read, where that is known without reading them.
    fn rows_before(&self) -> Option<u64>;

    /// The next rows of one group, at most `most`, and the first one's place; `None` at the end.
    fn next(&mut self, most: usize) -> Result<Option<(Place, RecordBatch)>, Flaw>;
}

/// A format of tables.
pub(super) trait Format: Send {
    /// Where the inputs are.
    fn folder(&self) -> &Folder;

    /// Opens a table.
    fn open(&self, read: &InputRange, limits: BatchLimits) -> Result<Box<dyn Table>, Flaw>;

    /// The bytes at the end of an input that every range of it depends on.
    fn tail(&self, input: &Input) -> Result<Range<u64>, SourceError>;
}

/// The digests of a part of tables.
pub(super) fn digests(format: &dyn Format, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
    let ahead = format.folder().ahead();
    let mut digests = Vec::with_capacity(part.inputs.len());
    for (index, read) in part.inputs.iter().enumerate() {
        let whole = part.inputs.iter().skip(index).filter(|read| read.range.is_none());
        ahead.ask(whole.map(|read| &read.input));
        digests.push(digest(format, read)?);
    }
    Ok(digests)
}

fn digest(format: &dyn Format, read: &InputRange) -> Result<InputDigest, SourceError> {
    let (folder, input) = (format.folder(), &read.input);
    let blake3 = match &read.range {
        None => folder.digest(input, None)?,
        Some(range) => folder.digest_with_tail(input, range, format.tail(input)?)?,
    };
    Ok(InputDigest { path: input.path.clone(), size: read.bytes(), blake3 })
}

/// Where reading begins in an input, if not at its first row.
struct Start {
    place: Place,
    source_row: u64,
}

/// An input that is being read.
struct Current {
    table: Box<dyn Table>,
    /// Index in the table of each column.
    order: Vec<usize>,
    /// Source row of the next row that is read or stands in the window.
    row: u64,
    window: Option<Window>,
    /// Most rows that are read at once, and how often that went well.
    most: usize,
    successes: u32,
}

/// Rows that were read together.
struct Window {
    rows: Rows,
    /// Index of the next one.
    at: usize,
    /// Where the first one stands.
    place: Place,
}

/// The batches of a partition.
pub(super) struct TableReader {
    ahead: Ahead,
    format: Box<dyn Format>,
    part: Arc<Part>,
    schema: SchemaRef,
    limits: BatchLimits,
    digests: Vec<Option<InputDigest>>,
    /// What the input that is read was before a byte of it was read.
    opened: Option<Input>,
    /// The input that is being read, or opened next.
    input: usize,
    from: Option<Start>,
    current: Option<Current>,
}

/// What a step in an input came to.
enum Step {
    Batch(Batch),
    End,
}

/// A bad row, and where.
struct Stop {
    error: SourceError,
    place: Option<Place>,
    source_row: u64,
    /// Whether rows behind it are read.
    goes_on: bool,
}

impl TableReader {
    pub(super) fn new(
        format: Box<dyn Format>,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Self, SourceError> {
        let refuse = |message: &str| misfit(part, restart.input, message);
        let input = restart.input as usize;
        let number = |key: &str| restart.cursor.get(key).and_then(serde_json::Value::as_u64);
        let from = match (&restart.cursor, restart.source_row) {
            (serde_json::Value::Null, 0) if input <= part.inputs.len() => None,
            _ if input >= part.inputs.len() => {
                return Err(refuse("the partition has no such input"));
            }
            (_, source_row) => {
                let group = number("group").and_then(|group| usize::try_from(group).ok());
                let place = group.zip(number("row")).map(|(group, row)| Place { group, row });
                let place = place.ok_or_else(|| refuse("its cursor is no row of the input"))?;
                Some(Start { place, source_row })
            }
        };
        Ok(Self {
            ahead: format.folder().ahead(),
            format,
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            limits,
            digests: vec![None; part.inputs.len()],
            input,
            from,
            current: None,
            opened: None,
        })
    }

    /// Asks for the inputs from number `index` on: each is opened for its rows and for its digest.
    fn ask_ahead(&self, index: usize) {
        let inputs = self.part.inputs.iter().skip(index).filter(|read| read.range.is_none());
        self.ahead.ask(inputs.flat_map(|read| [&read.input, &read.input]));
    }

    /// An input as it is now; `None` of an object, all of whose bytes are of the state that was listed.
    fn now(&self, input: &Input) -> Result<Option<Input>, SourceError> {
        let folder = self.format.folder();
        folder.remote().is_none().then(|| folder.stat(&input.path)).transpose()
    }

    fn number(&self) -> u32 {
        u32::try_from(self.input).unwrap_or(u32::MAX)
    }

    /// Opens the next input, at its first row or where the restart says.
    fn begin(&self, read: &InputRange) -> Result<Current, Box<Stop>> {
        let row = self.from.as_ref().map_or(0, |from| from.source_row);
        let place = self.from.as_ref().map(|from| from.place);
        let stop = |flaw: Flaw| {
            Box::new(Stop {
                error: flaw.into_error(&read.input, &shown(read, self.limits, None, row)),
                place,
                source_row: row,
                goes_on: false,
            })
        };
        let mut table = self.format.open(read, self.limits).map_err(stop)?;
        let order = order_of(table.schema(), &self.schema);
        let order = order.map_err(|bad| stop(Flaw::Rest(bad)))?;
        if let Some(place) = place
            && !table.seek(place).map_err(stop)?
        {
            let message = "its cursor is no row of the input";
            return Err(stop(Flaw::Input(misfit(&self.part, self.number(), message))));
        }
        let most = self.limits.rows.max(1);
        Ok(Current { table, order, row, window: None, most, successes: 0 })
    }

    fn step(&mut self, read: &InputRange) -> Result<Step, Box<Stop>> {
        if self.current.is_none() {
            self.ask_ahead(self.input);
            self.opened = self.now(&read.input).ok().flatten();
            self.current = Some(self.begin(read)?);
            self.from = None;
        }
        let Some(current) = &mut self.current else { return Ok(Step::End) };
        if !current.fill(&self.schema, self.limits, read)? {
            return Ok(Step::End);
        }
        let Some(window) = &current.window else { return Ok(Step::End) };
        let place = window.next_place();
        let source_row = current.row;
        let stop = |error: SourceError| {
            Box::new(Stop { error, place: Some(place), source_row, goes_on: true })
        };
        let sizes = window.rows.sizes().get(window.at..).unwrap_or_default();
        let (mut n, mut bytes) = (0, 0_u64);
        for size in sizes.iter().take(self.limits.rows) {
            let is_full = bytes.saturating_add(*size) > self.limits.bytes as u64;
            if (n > 0 && is_full) || *size > self.limits.row_bytes {
                break;
            }
            n += 1;
            bytes += size;
        }
        if n == 0 {
            let bad = too_large(sizes.first().copied(), self.limits);
            let at = shown(read, self.limits, Some(&*current.table), source_row);
            let error = bad.into_error(&read.input.path, at);
            let stopped = stop(error);
            current.pass(1);
            return Err(stopped);
        }
        let rows = window.rows.batch(window.at, n).map_err(|e| stop(e.into()))?;
        current.pass(n);
        let number = self.number();
        let provenance = Provenance::of_input(number, source_row, n as u64);
        let restart =
            Restart { input: number, source_row, cursor: cursor(place), ..Restart::default() };
        Ok(Step::Batch(Batch { rows, provenance, events: Vec::new(), restart }))
    }

    /// The batch that holds nothing but a reject.
    fn rejected(&self, stop: Stop) -> Result<Batch, SourceError> {
        let input = self.number();
        let at = BadRowAt { before_row: 0, input, source_row: stop.source_row };
        let event = self.limits.on_error.settle(stop.error, at)?;
        let cursor = stop.place.map_or(serde_json::Value::Null, cursor);
        Ok(Batch {
            rows: RecordBatch::new_empty(Arc::clone(&self.schema)),
            provenance: Provenance::new(),
            events: vec![event],
            restart: Restart { input, source_row: stop.source_row, cursor, ..Restart::default() },
        })
    }

    fn end_input(&mut self, read: &InputRange) -> Result<(), SourceError> {
        self.current = None;
        self.from = None;
        let found = digest(&*self.format, read)?;
        // Rows were read here and there, so that the digest is of bytes that were read again.
        let input = &read.input;
        let now = self.now(input)?;
        let opened = self.opened.take();
        if opened.zip(now).is_some_and(|(opened, now)| opened.changed != now.changed) {
            return Err(SourceError::Changed { path: input.path.clone() });
        }
        if let Some(known) = self.digests.get_mut(self.input) {
            *known = Some(found);
        }
        self.input += 1;
        Ok(())
    }
}

impl BatchReader for TableReader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let part = Arc::clone(&self.part);
        while let Some(read) = part.inputs.get(self.input) {
            match self.step(read) {
                Ok(Step::Batch(batch)) => return Ok(Some(batch)),
                Ok(Step::End) => self.end_input(read)?,
                Err(stop) => {
                    let goes_on = stop.goes_on;
                    let batch = self.rejected(*stop)?;
                    if !goes_on {
                        self.end_input(read)?;
                    }
                    return Ok(Some(batch));
                }
            }
        }
        Ok(None)
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        let inputs = self.part.inputs.iter().zip(&self.digests);
        let all = inputs.map(|(read, known)| match known {
            Some(known) => Ok(known.clone()),
            None => digest(&*self.format, read),
        });
        all.collect()
    }
}

impl Current {
    /// Reads a window if there is none; `false` at the end.
    fn fill(
        &mut self,
        schema: &SchemaRef,
        limits: BatchLimits,
        read: &InputRange,
    ) -> Result<bool, Box<Stop>> {
        while self.window.is_none() {
            let place = self.table.place();
            let most = self.most.min(self.table.suggest().max(1)).min(limits.rows.max(1));
            let found = self.table.next(most);
            let flaw = match found {
                Ok(None) => return Ok(false),
                Ok(Some((place, rows))) => {
                    self.successes += 1;
                    if self.successes >= 8 {
                        self.most = self.most.saturating_mul(2).min(limits.rows.max(1));
                        self.successes = 0;
                    }
                    if rows.num_rows() == 0 {
                        continue;
                    }
                    let rows = Rows::new(&rows, &self.order, schema, self.table.shares_buffers());
                    self.window = Some(Window { rows, at: 0, place });
                    break;
                }
                Err(flaw) => flaw,
            };
            self.successes = 0;
            let is_input = matches!(flaw, Flaw::Input(_));
            let goes_on = matches!(flaw, Flaw::Row(_));
            if is_input || most == 1 {
                let stopped = self.stop(flaw, place, read, limits, goes_on);
                if goes_on {
                    let next = Place { row: place.row + 1, ..place };
                    let found = self.table.seek(next);
                    found.map_err(|flaw| self.stop(flaw, place, read, limits, false))?;
                    self.row += 1;
                }
                return Err(stopped);
            }
            self.most = most / 2;
            let found = self.table.seek(place);
            found.map_err(|flaw| self.stop(flaw, place, read, limits, false))?;
        }
        Ok(true)
    }

    /// What is wrong with the next row, which is at `place`.
    fn stop(
        &self,
        flaw: Flaw,
        place: Place,
        read: &InputRange,
        limits: BatchLimits,
        goes_on: bool,
    ) -> Box<Stop> {
        let at = shown(read, limits, Some(&*self.table), self.row);
        let error = flaw.into_error(&read.input, &at);
        Box::new(Stop { error, place: Some(place), source_row: self.row, goes_on })
    }

    /// Leaves `n` rows of the window behind.
    fn pass(&mut self, n: usize) {
        self.row += n as u64;
        if let Some(window) = &mut self.window {
            window.at += n;
            if window.at >= window.rows.sizes().len() {
                self.window = None;
            }
        }
    }
}

impl Window {
    fn next_place(&self) -> Place {
        Place { group: self.place.group, row: self.place.row + self.at as u64 }
    }
}

/// Where a row of what is read stands, in words, which are needed only where it ends the run.
fn shown(
    read: &InputRange,
    limits: BatchLimits,
    table: Option<&dyn Table>,
    source_row: u64,
) -> String {
    if limits.on_error == OnError::Quarantine {
        return String::new();
    }
    let mut place = read.row(source_row);
    place.count(|_, _| table?.rows_before());
    place.in_input().to_string()
}

fn cursor(place: Place) -> serde_json::Value {
    json!({"group": place.group, "row": place.row})
}

/// A row that `max_row_bytes` does not allow.
pub(super) fn too_large(bytes: Option<u64>, limits: BatchLimits) -> BadRow {
    let most = limits.row_bytes;
    let message = match bytes {
        Some(bytes) => {
            format!("the row has {bytes} bytes, more than `max_row_bytes` ({most}) allows")
        }
        None => format!("the row has more bytes than `max_row_bytes` ({most}) allows"),
    };
    BadRow::new(ROW_TOO_LARGE, message).hint("raise `max_row_bytes`, or leave the column out")
}
