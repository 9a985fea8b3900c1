//! Reads a partition of the `csv` source.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde_json::json;

use super::csv::{Csv, Head};
use super::csv_records::Records;
use super::input::{PartDigests, misfit};
use super::value_type::{ColumnBuilder, Misfit, ValueType};
use super::{BatchLimits, BatchReader, Input, InputDigest, InputRange, Part, SourceError};
use crate::batch::{Batch, Provenance, Restart, Run};

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
    current: Option<Current>,
    /// Rows of the last batch, for as many of which the next one makes room.
    n_rows_before: usize,
}

/// A record in the middle of an input.
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
    /// Whether a record has been read that the last batch had no room for.
    is_waiting: bool,
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
        let from = self.from.take();
        let mut records;
        let head;
        if start == 0 && from.is_none() && self.csv.has_header() {
            records = self.csv.records(input, read.range.as_ref(), None)?;
            head = self.csv.read_head(input, &mut records)?;
        } else {
            head = self.csv.read_head(input, &mut self.csv.records(input, None, None)?)?;
            let byte = from.as_ref().map(|f| f.byte);
            if self.csv.has_header() && byte.unwrap_or(start) < head.end {
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                return Err(misfit(&self.part, number, "its cursor lies in the header"));
            }
            records = self.csv.records(input, read.range.as_ref(), byte)?;
        }
        records.limit(self.limits.row_bytes, self.kinds.len());
        let order = self.order(read, &head)?;
        Ok(Current { records, order, row: from.map_or(0, |f| f.row), is_waiting: false })
    }

    /// Which field of the input belongs to each column.
    fn order(&self, read: &InputRange, head: &Head) -> Result<Option<Vec<usize>>, SourceError> {
        let columns = self.schema.fields();
        if head.names.iter().eq(columns.iter().map(|c| c.name())) {
            return Ok(None);
        }
        let invalid = |message: String, hint: &str| {
            Err(SourceError::Invalid {
                path: read.input.path.clone(),
                at: "header".to_owned(),
                message,
                hint: Some(hint.to_owned()),
            })
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

    /// Reads a record, unless one waits; `false` at the end of the input.
    fn advance(&self, current: &mut Current, input: &Input) -> Result<bool, SourceError> {
        if current.is_waiting {
            return Ok(true);
        }
        let row = current.row;
        let found = current.records.next();
        if !found.map_err(|flaw| self.csv.describe(flaw, input, Some(row)))? {
            return Ok(false);
        }
        let records = &current.records;
        if records.n_fields() != self.kinds.len() {
            return Err(self.csv.ragged(input, records, self.kinds.len(), row));
        }
        let text = records.text();
        if !self.csv.allows_newlines() && (text.contains(&b'\n') || text.contains(&b'\r')) {
            let message = "a field holds a line end, but `newlines_in_values` is false".to_owned();
            let hint = "set `newlines_in_values = true`".to_owned();
            return Err(self.csv.invalid(input, records.start(), Some(row), None, message, hint));
        }
        Ok(true)
    }

    fn append(
        &self,
        current: &Current,
        input: &Input,
        builders: &mut [ColumnBuilder],
    ) -> Result<(), SourceError> {
        for (column, builder) in builders.iter_mut().enumerate() {
            let index = current.order.as_ref().and_then(|o| o.get(column)).unwrap_or(&column);
            let field = current.records.field(*index);
            if self.csv.is_null(field) {
                builder.append_null();
            } else if let Err(why) = builder.append_text(field) {
                let shown: String = String::from_utf8_lossy(field).chars().take(40).collect();
                let kind = self.kinds.get(column).copied().unwrap_or(ValueType::Utf8);
                let name = self.schema.fields().get(column).map_or("", |f| f.name().as_str());
                let hint = if why == Misfit::NotText {
                    "convert the input to UTF-8".to_owned()
                } else {
                    format!(
                        "declare another type in `types`, such as {{ {name:?} = \"utf8\" }}, or \
                         name what stands for no value in `null_values`"
                    )
                };
                let (start, row) = (current.records.start(), Some(current.row));
                let message = why.message(&shown, kind);
                return Err(self.csv.invalid(input, start, row, Some(name), message, hint));
            }
        }
        Ok(())
    }
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let part = Arc::clone(&self.part);
        let ahead = self.n_rows_before;
        let mut builders: Vec<_> =
            self.kinds.iter().map(|kind| ColumnBuilder::new(*kind, ahead)).collect();
        // Offsets, numbers and validity beside the bytes of texts.
        let fixed_bytes = 9 * self.kinds.len();
        let mut provenance = Provenance::new();
        let mut restart = None;
        let mut n_bytes = 0;
        while let Some(read) = part.inputs.get(self.input) {
            let number = u32::try_from(self.input).unwrap_or(u32::MAX);
            let mut current = match self.current.take() {
                Some(current) => current,
                None => self.begin(self.input, read)?,
            };
            if !self.advance(&mut current, &read.input)? {
                self.digests.set_input(self.input, current.records.digest()?);
                self.input += 1;
                continue;
            }
            let row_bytes = current.records.text().len() + fixed_bytes;
            let n_rows = provenance.n_rows();
            let is_full =
                n_rows >= self.limits.rows as u64 || n_bytes + row_bytes > self.limits.bytes;
            if n_rows > 0 && is_full {
                current.is_waiting = true;
                self.current = Some(current);
                break;
            }
            self.append(&current, &read.input, &mut builders)?;
            let run = Run { row: 0, input: number, source_row: current.row, sub_row: -1 };
            provenance.push_run(run, 1);
            restart.get_or_insert_with(|| Restart {
                input: number,
                source_row: current.row,
                cursor: json!({"byte": current.records.start()}),
            });
            n_bytes += row_bytes;
            current.row += 1;
            current.is_waiting = false;
            self.current = Some(current);
        }
        let Some(restart) = restart else { return Ok(None) };
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        self.n_rows_before = rows.num_rows();
        Ok(Some(Batch { rows, provenance, events: Vec::new(), restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

/// First byte of what is read, and the one behind the last.
fn bytes_of(read: &InputRange) -> (u64, u64) {
    read.range.as_ref().map_or((0, read.input.size), |range| (range.start, range.end))
}
