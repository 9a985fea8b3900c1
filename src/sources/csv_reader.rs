//! Reads a partition of the `csv` source.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;

use super::csv::{Csv, Head, LINE_END_IN_VALUE, bad_record, ragged};
use super::csv_records::{Flaw, Records};
use super::draft::{Draft, Place};
use super::input::{PartDigests, misfit};
use super::value_type::{ColumnBuilder, Misfit, ValueType};
use super::{
    BadRow, BatchLimits, BatchReader, INPUT_DAMAGED, InputDigest, InputRange, NOT_UTF8, OnError,
    Part, SourceError, VALUE_MISFIT,
};
use crate::batch::{Batch, Restart};

/// The batches of a partition.
pub(super) struct Reader {
    csv: Csv,
    part: Arc<Part>,
    schema: SchemaRef,
    kinds: Vec<ValueType>,
    limits: BatchLimits,
    digests: PartDigests,
    /// The input that is being read, or opened next.
    input: usize,
    /// Where in it reading begins, if not at its first record.
    from: Option<Start>,
    /// In a box, as it changes hands with each record.
    current: Option<Box<Current>>,
    /// Rows of the last batch, for as many of which the next one makes room.
    n_rows_before: usize,
}

/// A record in the middle of an input.
#[derive(Debug, Clone, Copy)]
struct Start {
    byte: u64,
    row: u64,
}

/// An open input.
struct Current {
    records: Records,
    /// Field of each column; `None` where they are in the columns' order.
    order: Option<Vec<usize>>,
    /// Source row of the record that is read next, or that waits.
    row: u64,
    /// The record that has been read and that the last batch had no room for, if it is one.
    waiting: Option<Result<(), BadRow>>,
}

impl Reader {
    pub(super) fn new(
        csv: Csv,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Self, SourceError> {
        let refuse = |message: &str| misfit(part, restart.input, message);
        let kinds = schema.fields().iter().map(|f| ValueType::of_arrow(f.data_type()));
        let kinds = kinds.collect::<Option<_>>();
        let kinds = kinds.ok_or_else(|| refuse("the columns are not those of this source"))?;
        let input = restart.input as usize;
        let range = part.inputs.get(input).map(|read| {
            // How much an input decodes to is not known before.
            if csv.contents.is_decoded(&read.input.path) { (0, u64::MAX) } else { bytes_of(read) }
        });
        let from = match (&restart.cursor, restart.source_row, range) {
            (serde_json::Value::Null, 0, _) if input <= part.inputs.len() => None,
            (cursor, row, Some((start, end))) => {
                let byte = cursor.get("byte").and_then(serde_json::Value::as_u64);
                let byte = byte.filter(|byte| (start..=end).contains(byte));
                let byte = byte.ok_or_else(|| refuse("its cursor is no byte of the input"))?;
                Some(Start { byte, row })
            }
            _ => return Err(refuse("the partition has no such input")),
        };
        Ok(Self {
            digests: PartDigests::new(csv.listing.folder().clone(), part),
            csv,
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            kinds,
            limits,
            input,
            from,
            current: None,
            n_rows_before: 0,
        })
    }

    /// Opens the next input, at its first record or where the restart says.
    fn begin(&mut self, index: usize, read: &InputRange) -> Result<Current, SourceError> {
        let input = &read.input;
        let (start, _) = bytes_of(read);
        let from = self.from;
        self.digests.ask_from(&self.part, index);
        let mut records;
        let order;
        if start == 0 && from.is_none() && self.csv.has_header() {
            records = self.csv.records(input, read.range.as_ref(), None)?;
            order = self.order(read, &self.csv.read_head(input, &mut records)?)?;
        } else {
            let head = self.csv.read_head(input, &mut self.csv.records(input, None, None)?)?;
            order = self.order(read, &head)?;
            let byte = from.as_ref().map(|f| f.byte);
            if self.csv.has_header() && byte.unwrap_or(start) < head.end {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                return Err(misfit(&self.part, number, "its cursor lies in the header"));
            }
            records = self.csv.records(input, read.range.as_ref(), byte)?;
        }
        records.limit(self.limits.row_bytes, self.kinds.len());
        self.from = None;
        Ok(Current { records, order, row: from.map_or(0, |f| f.row), waiting: None })
    }

    /// Which field of the input belongs to each column.
    fn order(&self, read: &InputRange, head: &Head) -> Result<Option<Vec<usize>>, SourceError> {
        let columns = self.schema.fields();
        if head.names.iter().eq(columns.iter().map(|c| c.name())) {
            return Ok(None);
        }
        let invalid = |message: String, hint: &str| {
            let bad = BadRow::new(INPUT_DAMAGED, message).hint(hint);
            Err(bad.into_error(&read.input.path, "header"))
        };
        let same = "give every input of the source the columns of the first";
        if let Some(more) = head.names.iter().find(|name| self.schema.index_of(name).is_err()) {
            return invalid(format!("column `{more}` is not in the first input"), same);
        }
        let mut order = Vec::with_capacity(columns.len());
        for column in columns {
            match head.names.iter().position(|name| name == column.name()) {
                Some(field) => order.push(field),
                None => {
                    return invalid(format!("there is no column `{}`", column.name()), same);
                }
            }
        }
        if read.range.is_some() {
            // Only the digest of the first range covers the header: were the order allowed to
            // differ, the other ranges could not tell that it has changed.
            return invalid(
                "the columns are not in the order of the first input, and the input is cut"
                    .to_owned(),
                "write its columns in that order, or raise `partition_bytes` so that it is not cut",
            );
        }
        Ok(Some(order))
    }

    /// Reads a record, unless one waits, and says what is wrong with it; `None` at the end.
    fn advance(&self, current: &mut Current) -> Result<Option<Result<(), BadRow>>, SourceError> {
        if let Some(judged) = current.waiting.take() {
            return Ok(Some(judged));
        }
        match current.records.next() {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(flaw) if self.limits.on_error == OnError::Quarantine => {
                let bad = match current.records.judge(flaw)? {
                    Flaw::TooManyFields(_) => ragged(&current.records, self.kinds.len()),
                    flaw => bad_record(flaw)?.1,
                };
                return Ok(Some(Err(bad)));
            }
            Err(flaw) => return Ok(Some(Err(bad_record(flaw)?.1))),
        }
        let records = &current.records;
        if records.n_fields() != self.kinds.len() {
            return Ok(Some(Err(ragged(records, self.kinds.len()))));
        }
        if !self.csv.allows_newlines() && records.holds_line_end() {
            let message = "a field holds a line end, but `newlines_in_values` is false";
            let bad = BadRow::new(LINE_END_IN_VALUE, message);
            return Ok(Some(Err(bad.hint("set `newlines_in_values = true`"))));
        }
        Ok(Some(Ok(())))
    }

    fn append(&self, current: &Current, columns: &mut Columns) -> Result<(), BadRow> {
        // Looked at once for all fields, which are short.
        let text = std::str::from_utf8(current.records.text()).ok();
        for (column, builder) in columns.builders.iter_mut().enumerate() {
            let index = current.order.as_ref().and_then(|o| o.get(column)).unwrap_or(&column);
            let range = current.records.range_of(*index);
            let field = current.records.text().get(range.clone()).unwrap_or_default();
            if self.csv.is_null(field) {
                builder.append_null();
                continue;
            }
            let appended = match text.and_then(|text| text.get(range)) {
                Some(text) => builder.append_utf8(text),
                None => builder.append_text(field),
            };
            if let Err(why) = appended {
                let shown: String = String::from_utf8_lossy(field).chars().take(40).collect();
                let kind = self.kinds.get(column).copied().unwrap_or(ValueType::Utf8);
                let name = self.schema.fields().get(column).map_or("", |f| f.name().as_str());
                let (code, hint) = if why == Misfit::NotText {
                    (NOT_UTF8, "convert the input to UTF-8".to_owned())
                } else {
                    let hint = format!(
                        "declare another type in `types`, such as {{ {name:?} = \"utf8\" }}, or \
                         name what stands for no value in `null_values`"
                    );
                    (VALUE_MISFIT, hint)
                };
                return Err(BadRow::new(code, why.message(&shown, kind)).field(name).hint(hint));
            }
        }
        Ok(())
    }

    /// Reads on in the current input; `false` where the batch is full.
    fn step(
        &mut self,
        columns: &mut Columns,
        draft: &mut Draft,
        read: &InputRange,
        mut current: Box<Current>,
    ) -> Result<bool, SourceError> {
        let found = self.advance(&mut current);
        let on_error = self.limits.on_error;
        let place = Place { input: self.input, row: current.row, byte: current.records.start() };
        let judged = match found {
            Ok(Some(judged)) => judged,
            ended => {
                if let Err(error) = ended {
                    draft.reject(place, error, on_error)?;
                }
                self.digests.set_input(self.input, current.records.digest()?);
                self.input += 1;
                return Ok(true);
            }
        };
        // Offsets, numbers and validity beside the bytes of texts.
        let row_bytes = current.records.n_bytes() + 9 * self.kinds.len();
        let n_bytes = columns.n_bytes + draft.reject_bytes() + row_bytes;
        let is_full = draft.len() >= self.limits.rows || n_bytes > self.limits.bytes;
        if draft.len() > 0 && is_full {
            current.waiting = Some(judged);
            self.current = Some(current);
            return Ok(false);
        }
        if let Err(bad) = judged.and_then(|()| columns.take(|all| self.append(&current, all))) {
            let error = self.csv.name(bad, read, place.byte, Some(place.row), on_error);
            draft.reject(place, error, on_error)?;
        } else {
            draft.keep(place);
            columns.n_bytes += row_bytes;
        }
        current.row += 1;
        self.current = Some(current);
        Ok(true)
    }
}

/// The values of a batch that is being made.
struct Columns {
    builders: Vec<ColumnBuilder>,
    /// Of each row that was begun, whether it is one.
    is_kept: Vec<bool>,
    n_bytes: usize,
}

impl Columns {
    /// Appends a row, or nothing.
    fn take(&mut self, append: impl FnOnce(&mut Self) -> Result<(), BadRow>) -> Result<(), BadRow> {
        let appended = append(self);
        self.is_kept.push(appended.is_ok());
        if appended.is_err() {
            // What has no place is left out at the end, as builders cannot take a value back.
            let n_rows = self.is_kept.len();
            let short = self.builders.iter_mut().filter(|builder| builder.len() < n_rows);
            short.for_each(ColumnBuilder::append_null);
        }
        appended
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let rows = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if self.is_kept.iter().all(|is_kept| *is_kept) {
            return Ok(rows);
        }
        filter_record_batch(&rows, &BooleanArray::from(self.is_kept))
    }
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let part = Arc::clone(&self.part);
        let ahead = self.n_rows_before;
        let builders = self.kinds.iter().map(|kind| ColumnBuilder::new(*kind, ahead)).collect();
        let is_kept = Vec::with_capacity(ahead);
        let mut columns = Columns { builders, is_kept, n_bytes: 0 };
        let mut draft = Draft::default();
        while let Some(read) = part.inputs.get(self.input) {
            let opened = match self.current.take() {
                Some(current) => Ok(current),
                None if draft.len() >= self.limits.rows => break,
                None => self.begin(self.input, read).map(Box::new),
            };
            match opened {
                Ok(current) => {
                    if !self.step(&mut columns, &mut draft, read, current)? {
                        break;
                    }
                }
                Err(error) => {
                    let first = Start { byte: bytes_of(read).0, row: 0 };
                    let Start { byte, row } = self.from.take().unwrap_or(first);
                    let place = Place { input: self.input, row, byte };
                    let on_error = self.limits.on_error;
                    draft.reject(place, of_range(read, error, on_error), on_error)?;
                    self.input += 1;
                }
            }
        }
        let Some(restart) = draft.restart else { return Ok(None) };
        let rows = columns.finish(&self.schema)?;
        self.n_rows_before = rows.num_rows();
        let (provenance, events) = (draft.provenance, draft.events);
        Ok(Some(Batch { rows, provenance, events, restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

/// What is wrong with the header of an input that is cut is no row's fault: only the digest of its
/// first range covers the header, so the rejects of the others could not tell that it has changed.
fn of_range(read: &InputRange, error: SourceError, on_error: OnError) -> SourceError {
    let is_quarantined = on_error == OnError::Quarantine;
    match error {
        SourceError::Row { path, at, bad } if read.range.is_some() && is_quarantined => {
            let or =
                "; one that is not cut, because `partition_bytes` is larger, is rejected whole";
            let has_said = |hint: &String| hint.contains("`partition_bytes`");
            let hint = bad.hint.map(|hint| if has_said(&hint) { hint } else { hint + or });
            SourceError::Invalid { path, at, message: bad.message, hint }
        }
        error => error,
    }
}

/// First byte of what is read, and the one behind the last.
fn bytes_of(read: &InputRange) -> (u64, u64) {
    read.range.as_ref().map_or((0, read.input.size), |range| (range.start, range.end))
}
