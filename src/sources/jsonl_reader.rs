//! Reads a partition of the `jsonl` source.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::draft::{Draft, Place};
use super::input::{PartDigests, misfit};
use super::jsonl::Jsonl;
use super::jsonl_lines::{Lines, Next};
use super::jsonl_types::{Fields, JsonType};
use super::jsonl_values::Rows;
use super::{
    BadRow, BatchLimits, BatchReader, InputDigest, InputRange, Part, ROW_TOO_LARGE, SourceError,
};
use crate::batch::{Batch, Restart};

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
    /// In a box, as it changes hands with each line.
    current: Option<Box<Current>>,
    /// Rows of the last batch, for as many of which the next one makes room.
    n_rows_before: usize,
}

/// An open input.
struct Current {
    lines: Lines,
    /// Source row of the line that is read next, or that waits.
    row: u64,
    /// What has been read that the last batch had no room for.
    waiting: Option<Next>,
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
        self.digests.ask_from(&self.part, self.input);
        let content = self.jsonl.contents.open(&read.input, read.range.as_ref(), byte)?;
        let lines = Lines::new(content, self.limits.row_bytes);
        self.from = None;
        Ok(Current { lines, row: from.map_or(0, |(_, row)| row), waiting: None })
    }

    /// Reads on in the current input; `false` where the batch is full.
    fn step(
        &mut self,
        rows: &mut Rows,
        draft: &mut Draft,
        read: &InputRange,
        mut current: Box<Current>,
    ) -> Result<bool, SourceError> {
        let next = match current.waiting.take() {
            Some(next) => Ok(next),
            None => current.lines.next(),
        };
        let on_error = self.limits.on_error;
        let place = Place { input: self.input, row: current.row, byte: current.lines.start() };
        let appended = match next {
            Err(error) => {
                draft.reject(place, error, on_error)?;
                self.digests.set_input(self.input, current.lines.digest()?);
                self.input += 1;
                return Ok(true);
            }
            Ok(Next::End) => {
                self.digests.set_input(self.input, current.lines.digest()?);
                self.input += 1;
                return Ok(true);
            }
            Ok(next) if self.is_full(rows, draft, current.lines.line().len()) => {
                current.waiting = Some(next);
                self.current = Some(current);
                return Ok(false);
            }
            Ok(Next::Line) => rows.append(current.lines.line()),
            Ok(Next::TooLong) => Err(too_long()),
        };
        if let Err(bad) = appended {
            let error = self.jsonl.name(bad, read, place.byte, place.row, on_error);
            draft.reject(place, error, on_error)?;
        } else {
            draft.keep(place);
        }
        current.row += 1;
        self.current = Some(current);
        Ok(true)
    }

    /// Whether a line has no room in the batch any more.
    fn is_full(&self, rows: &Rows, draft: &Draft, n_line: usize) -> bool {
        let (n_rows, fixed) = (draft.len(), 9 * self.n_leaves);
        let n_bytes = rows.n_bytes() + fixed * n_rows + draft.reject_bytes();
        let most = n_line.saturating_mul(MOST_GROWTH).saturating_add(fixed);
        n_rows > 0 && (n_rows >= self.limits.rows || n_bytes + most > self.limits.bytes)
    }
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let part = Arc::clone(&self.part);
        let ignores = self.jsonl.ignores_unknown();
        let most_bytes = self.limits.row_bytes;
        let mut rows = Rows::new(&self.fields, self.n_rows_before, most_bytes, ignores);
        let mut draft = Draft::default();
        // A batch may end behind a damaged input too, whose reject counts as a row.
        while let Some(read) = part.inputs.get(self.input) {
            let opened = match self.current.take() {
                Some(current) => Ok(current),
                None if draft.len() >= self.limits.rows => break,
                None => self.begin(read).map(Box::new),
            };
            match opened {
                Ok(current) => {
                    if !self.step(&mut rows, &mut draft, read, current)? {
                        break;
                    }
                }
                Err(error) => {
                    let start = self.jsonl.bytes_of(read).0;
                    let (byte, row) = self.from.take().unwrap_or((start, 0));
                    let place = Place { input: self.input, row, byte };
                    draft.reject(place, error, self.limits.on_error)?;
                    self.input += 1;
                }
            }
        }
        let Some(restart) = draft.restart else { return Ok(None) };
        let rows = rows.finish(&self.schema)?;
        self.n_rows_before = rows.num_rows();
        let (provenance, events) = (draft.provenance, draft.events);
        Ok(Some(Batch { rows, provenance, events, restart }))
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
