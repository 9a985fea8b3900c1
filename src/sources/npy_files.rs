//! Reads `.npy` files as one row each: the whole array, of any length along its first axis.
//!
//! Invariant: an input has exactly one source row, 0; the restart of a batch is its first input.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, LargeListArray, RecordBatch};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef};
use serde_json::Value;

use super::array_files::{Arrays, FEWER_BYTES, MORE_BYTES, damaged, other_length};
use super::arrays::{column, dtype_of, refused, swap_bytes, to_row_major};
use super::content::Content;
use super::files::stem_of;
use super::input::{PartDigests, misfit};
use super::listing::folder_of;
use super::npy::FILE_COLUMNS;
use super::{
    BadRow, BadRowAt, BatchLimits, BatchReader, Input, InputDigest, Part, ROW_TOO_LARGE,
    SourceError,
};
use crate::batch::{Batch, Event, Provenance, Restart, Run};
use crate::schema::Dtype;

/// The batches of a partition.
pub(super) struct FileReader {
    arrays: Arc<Arrays>,
    part: Arc<Part>,
    schema: SchemaRef,
    /// Type of the arrays' column, and of the values in it.
    data_type: DataType,
    item: Dtype,
    limits: BatchLimits,
    next: usize,
    digests: PartDigests,
}

impl FileReader {
    pub(super) fn new(
        arrays: Arc<Arrays>,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Self, SourceError> {
        let refuse = |message: &str| misfit(part, restart.input, message);
        let next = restart.input as usize;
        if restart.source_row != 0 || !restart.cursor.is_null() || next > part.inputs.len() {
            return Err(refuse("a file has one row and no cursor"));
        }
        if part.inputs.iter().any(|i| i.range.is_some()) {
            return Err(refuse("a file is one row and is not cut"));
        }
        let column = schema.fields().first().map(|field| field.data_type());
        let Some((data_type, item)) = column.and_then(|c| Some((c.clone(), dtype_of(c)?))) else {
            return Err(refuse("the columns are not those of this source"));
        };
        Ok(Self {
            digests: PartDigests::new(arrays.folder.clone(), part),
            arrays,
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            data_type,
            item,
            limits,
            next,
        })
    }

    /// Appends the values of an input; gives the length of its first axis.
    fn read(
        &mut self,
        index: usize,
        input: &Input,
        values: &mut Vec<u8>,
    ) -> Result<u64, SourceError> {
        self.digests.ask_from(&self.part, index);
        let (mut open, head) = self.arrays.open(&self.arrays.contents, input)?;
        if head.array_type() != self.data_type {
            let message =
                format!("{}, but the first input is another kind of array", head.array_shown());
            let hint = "read arrays that differ only along their first axis with one source";
            return Err(refused(input, (message, hint)));
        }
        let n_bytes = head.array_bytes();
        if n_bytes > self.limits.row_bytes {
            let message = format!("an array of {n_bytes} bytes, more than `max_row_bytes`");
            let hint = "raise `max_row_bytes`, or leave the file out of `path`";
            let bad = BadRow::new(ROW_TOO_LARGE, message).hint(hint);
            return Err(bad.into_error(&input.path, "row 0"));
        }
        let start = values.len();
        if let Err(e) = read_values(input, &mut open, n_bytes, values) {
            values.truncate(start);
            return Err(e);
        }
        self.digests.set_input(index, open.digest()?);
        if head.is_big_endian {
            swap_bytes(head.item, values.get_mut(start..).unwrap_or_default());
        }
        if head.is_fortran {
            let rows = to_row_major(&head, values.get(start..).unwrap_or_default());
            values.truncate(start);
            values.extend_from_slice(&rows);
        }
        Ok(head.n_rows().unwrap_or(1))
    }

    fn finish(
        &self,
        values: Vec<u8>,
        offsets: Vec<i64>,
        mut names: Vec<StringBuilder>,
    ) -> Result<RecordBatch, SourceError> {
        let array: ArrayRef = match &self.data_type {
            DataType::LargeList(field) => {
                let entries = column(self.item, field.data_type(), values)?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(LargeListArray::try_new(Arc::clone(field), offsets, entries, None)?)
            }
            scalar => column(self.item, scalar, values)?,
        };
        let mut columns = vec![array];
        columns.extend(names.iter_mut().map(|names| Arc::new(names.finish()) as ArrayRef));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Reads the values of a file, which nothing may follow.
fn read_values(
    input: &Input,
    open: &mut Content,
    n_bytes: u64,
    values: &mut Vec<u8>,
) -> Result<(), SourceError> {
    let wanted = usize::try_from(n_bytes).unwrap_or(usize::MAX);
    let end = values.len().saturating_add(wanted);
    open.append_to(values, wanted).map_err(damaged)?;
    // Why there is no more is told when more is asked for.
    let more = open.append_to(&mut Vec::new(), 1).map_err(damaged)?;
    if values.len() < end {
        return Err(other_length(input, FEWER_BYTES));
    }
    if more > 0 { Err(other_length(input, MORE_BYTES)) } else { Ok(()) }
}

impl BatchReader for FileReader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let n_names = if self.arrays.has_file_columns { FILE_COLUMNS.len() } else { 0 };
        let mut names: Vec<_> = (0..n_names).map(|_| StringBuilder::with_capacity(0, 0)).collect();
        let (mut values, mut offsets) = (Vec::new(), vec![0_i64]);
        let mut provenance = Provenance::new();
        let mut events: Vec<Event> = Vec::new();
        let (first, mut n_bytes_before) = (self.next, 0_u64);
        let part = Arc::clone(&self.part);
        while let Some(read) = part.inputs.get(self.next) {
            let n_taken = self.next - first;
            // What precedes the values in a file is about what a row needs beside them. To how much
            // an input decodes is not known: it begins a batch.
            let is_known = !self.arrays.contents.is_decoded(&read.input.path);
            let size = if is_known { read.input.size } else { u64::MAX };
            let n_bytes = n_bytes_before.saturating_add(size);
            if n_taken >= self.limits.rows || (n_taken > 0 && n_bytes > self.limits.bytes as u64) {
                break;
            }
            n_bytes_before = n_bytes;
            let number = u32::try_from(self.next).unwrap_or(u32::MAX);
            match self.read(self.next, &read.input, &mut values) {
                Ok(n_entries) => {
                    let before = offsets.last().copied().unwrap_or(0);
                    offsets.push(before + i64::try_from(n_entries).unwrap_or(i64::MAX));
                    let path = read.input.path.as_str();
                    for (column, name) in
                        names.iter_mut().zip([path, folder_of(path), stem_of(path)])
                    {
                        column.append_value(name);
                    }
                    let run = Run { row: 0, input: number, source_row: 0, sub_row: -1 };
                    provenance.push_run(run, 1);
                }
                Err(e) => {
                    let before_row = provenance.n_rows();
                    let at = BadRowAt { before_row, input: number, source_row: 0 };
                    events.push(self.limits.on_error.settle(e, at)?);
                }
            }
            self.next += 1;
        }
        if self.next == first {
            return Ok(None);
        }
        let rows = self.finish(values, offsets, names)?;
        let input = u32::try_from(first).unwrap_or(u32::MAX);
        let restart = Restart { input, source_row: 0, cursor: Value::Null, ..Restart::default() };
        Ok(Some(Batch { rows, provenance, events, restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}
