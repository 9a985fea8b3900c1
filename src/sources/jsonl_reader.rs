//! Reads a partition of the `jsonl` source.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use serde_json::json;

use super::input::{PartDigests, misfit};
use super::jsonl::Jsonl;
use super::jsonl_lines::{Lines, Next};
use super::jsonl_types::{Fields, JsonType};
use super::jsonl_values::Rows;
use super::{
    BadRow, BadRowAt, BatchLimits, BatchReader, InputDigest, InputRange, Part, ROW_TOO_LARGE,
    SourceError,
};
use crate::batch::{Batch, Event, Provenance, Restart, Run};

/// A number of two characters with its comma may become eight bytes.
const MOST_GROWTH: usize = 4;

/// The batches of a partition.
pub(super) struct Reader {
    jsonl: Jsonl,
    part: Arc<Part>,
    schema: SchemaRef,
    fields: Fields,
    n_leaves: usize,
    limits: BatchLimits,
    digests: PartDigests,
    /// The input that is being read, or opened next.
    input: usize,
    /// Offset and source row of the line where reading begins, if not at the first.
    from: Option<(u64, u64)>,
    current: Option<Current>,
    /// Rows of the last batch, for as many of which the next one makes room.
    n_rows_before: usize,
}

/// An open input.
struct Current {
    lines: Lines,
    /// Source row of the line that is read next, or that waits.
    row: u64,
    /// Whether a line has been read that the last batch had no room for.
    is_waiting: bool,
}

/// A batch that is being made.
struct Making {
    rows: Rows,
    provenance: Provenance,
    events: Vec<Event>,
    restart: Option<Restart>,
}

impl Making {
    fn at(&self, input: usize, source_row: u64) -> BadRowAt {
        let input = u32::try_from(input).unwrap_or(u32::MAX);
        BadRowAt { before_row: self.provenance.n_rows(), input, source_row }
    }

    /// The batch begins with what stands here, unless something stood before.
    fn begins_at(&mut self, at: BadRowAt, byte: u64) {
        self.restart.get_or_insert_with(|| Restart {
            input: at.input,
            source_row: at.source_row,
            cursor: json!({"byte": byte}),
        });
    }

    fn len(&self) -> usize {
        usize::try_from(self.provenance.n_rows()).unwrap_or(usize::MAX) + self.events.len()
    }
}

impl Reader {
    pub(super) fn new(
        jsonl: Jsonl,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Self, SourceError> {
        let refuse = |message: &str| misfit(part, restart.input, message);
        let fields = schema.fields().iter();
        let fields = fields.map(|f| Some((f.name().clone(), JsonType::of_field(f)?)));
        let fields: Fields = fields
            .collect::<Option<_>>()
            .ok_or_else(|| refuse("the columns are not those of this source"))?;
        let input = restart.input as usize;
        let range = part.inputs.get(input).map(|read| jsonl.bytes_of(read));
        let from = match (&restart.cursor, restart.source_row, range) {
            (serde_json::Value::Null, 0, _) if input <= part.inputs.len() => None,
            (cursor, row, Some((start, end))) => {
                let byte = cursor.get("byte").and_then(serde_json::Value::as_u64);
                let byte = byte.filter(|byte| (start..=end).contains(byte));
                Some((byte.ok_or_else(|| refuse("its cursor is no byte of the input"))?, row))
            }
            _ => return Err(refuse("the partition has no such input")),
        };
        Ok(Self {
            digests: PartDigests::new(jsonl.folder().clone(), part),
            jsonl,
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            n_leaves: n_leaves(&fields),
            fields,
            limits,
            input,
            from,
            current: None,
            n_rows_before: 0,
        })
    }

    fn begin(&mut self, read: &InputRange) -> Result<Current, SourceError> {
        let from = self.from;
        let byte = from.map(|(byte, _)| byte);
        let content = self.jsonl.contents.open(&read.input, read.range.as_ref(), byte)?;
        let lines = Lines::new(content, self.limits.row_bytes);
        self.from = None;
        Ok(Current { lines, row: from.map_or(0, |(_, row)| row), is_waiting: false })
    }

    /// Puts an input that cannot be read any more, from `row` on, among the events.
    fn give_up(
        &mut self,
        making: &mut Making,
        error: SourceError,
        row: u64,
        byte: u64,
    ) -> Result<(), SourceError> {
        let at = making.at(self.input, row);
        let event = self.limits.on_error.settle(error, at)?;
        making.begins_at(at, byte);
        making.events.push(event);
        self.input += 1;
        Ok(())
    }

    /// Reads on in the current input; `false` where the batch is full.
    fn step(
        &mut self,
        making: &mut Making,
        read: &InputRange,
        mut current: Current,
    ) -> Result<bool, SourceError> {
        let next = if current.is_waiting { Ok(Next::Line) } else { current.lines.next() };
        let (row, start) = (current.row, current.lines.start());
        match next {
            Err(error) => {
                let digest = current.lines.digest()?;
                self.digests.set_input(self.input, digest);
                return self.give_up(making, error, row, start).map(|()| true);
            }
            Ok(Next::End) => {
                self.digests.set_input(self.input, current.lines.digest()?);
                self.input += 1;
                return Ok(true);
            }
            Ok(Next::Line) if self.is_full(making, current.lines.line().len()) => {
                current.is_waiting = true;
                self.current = Some(current);
                return Ok(false);
            }
            Ok(Next::Line | Next::TooLong) => {}
        }
        let at = making.at(self.input, row);
        let appended = match next {
            Ok(Next::TooLong) => Err(too_long()),
            _ => making.rows.append(current.lines.line()),
        };
        making.begins_at(at, start);
        match appended {
            Ok(()) => {
                let run = Run { row: 0, input: at.input, source_row: row, sub_row: -1 };
                making.provenance.push_run(run, 1);
            }
            Err(bad) => {
                let error = self.jsonl.name(bad, &read.input, start, row, self.limits.on_error);
                making.events.push(self.limits.on_error.settle(error, at)?);
            }
        }
        current.row += 1;
        current.is_waiting = false;
        self.current = Some(current);
        Ok(true)
    }

    /// Whether a line has no room in the batch any more.
    fn is_full(&self, making: &Making, n_line: usize) -> bool {
        let fixed = 9 * self.n_leaves;
        let n_bytes = making.rows.n_bytes() + fixed * making.len();
        let most = n_line.saturating_mul(MOST_GROWTH).saturating_add(fixed);
        making.len() > 0 && (making.len() >= self.limits.rows || n_bytes + most > self.limits.bytes)
    }
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let part = Arc::clone(&self.part);
        let ignores = self.jsonl.ignores_unknown();
        let most_bytes = self.limits.row_bytes;
        let mut making = Making {
            rows: Rows::new(&self.fields, self.n_rows_before, most_bytes, ignores),
            provenance: Provenance::new(),
            events: Vec::new(),
            restart: None,
        };
        while let Some(read) = part.inputs.get(self.input) {
            let current = match self.current.take() {
                Some(current) => current,
                None => match self.begin(read) {
                    Ok(current) => current,
                    Err(error) => {
                        let start = self.jsonl.bytes_of(read).0;
                        let (byte, row) = self.from.take().unwrap_or((start, 0));
                        self.give_up(&mut making, error, row, byte)?;
                        continue;
                    }
                },
            };
            if !self.step(&mut making, read, current)? {
                break;
            }
        }
        let Some(restart) = making.restart else { return Ok(None) };
        let rows = making.rows.finish(&self.schema)?;
        self.n_rows_before = rows.num_rows();
        Ok(Some(Batch { rows, provenance: making.provenance, events: making.events, restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

pub(super) fn too_long() -> BadRow {
    BadRow::new(ROW_TOO_LARGE, "the line is longer than `max_row_bytes` allows")
        .hint("raise `max_row_bytes` of [dataset], or look for a line end that is missing")
}

fn n_leaves(fields: &Fields) -> usize {
    let of = |kind: &JsonType| match kind {
        JsonType::Struct(inner) => 1 + n_leaves(inner),
        _ => 1,
    };
    fields.iter().map(|(_, kind)| of(kind)).sum()
}
