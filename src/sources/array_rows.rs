//! Reads files of arrays row by row: a row is an entry of the first axis, so all have one size.
//!
//! What a row has beside it stands at the same index of a second file, its labels.
//!
//! Invariants:
//! 1. The cursor of a restart is the row within the input, or within the range of it that is read.
//! 2. Where a file ends early or its bytes are damaged, the rows before that are whole, in both files.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use serde_json::json;

use super::array_files::{Arrays, FEWER_BYTES, MORE_BYTES, damaged, of_rows, other_length};
use super::arrays::{ArrayHead, column, dtype_of, refused, swap_bytes};
use super::content::Content;
use super::files::stem_of;
use super::input::{PartDigests, misfit};
use super::listing::folder_of;
use super::{
    BadRow, BadRowAt, BatchLimits, BatchReader, INPUT_DAMAGED, Input, InputDigest, InputRange,
    Part, SourceError, npy,
};
use crate::batch::{Batch, Event, Provenance, Restart, Run};
use crate::schema::Dtype;

/// The batches of a partition.
pub(super) struct RowReader {
    arrays: Arc<Arrays>,
    part: Arc<Part>,
    schema: SchemaRef,
    /// Of the columns that are read from arrays.
    items: Vec<Dtype>,
    limits: BatchLimits,
    digests: PartDigests,
    /// The input that is being read, or opened next.
    input: usize,
    /// The row at which reading begins in it.
    from: u64,
    current: Option<Current>,
}

/// An open input, and its labels.
struct Current {
    files: Vec<OpenArray>,
    /// The row that is read next, within the range.
    row: u64,
    n_rows: u64,
    /// Whether the last row is that of the whole file.
    is_to_end: bool,
}

struct OpenArray {
    input: Input,
    open: Content,
    head: ArrayHead,
}

/// A batch that is being made.
struct Making {
    /// Values of each column that is read from arrays.
    values: Vec<Vec<u8>>,
    names: Vec<StringBuilder>,
    n_bytes: usize,
    provenance: Provenance,
    events: Vec<Event>,
    restart: Option<Restart>,
}

impl Making {
    fn n_taken(&self) -> u64 {
        self.provenance.n_rows() + self.events.len() as u64
    }
}

impl RowReader {
    pub(super) fn new(
        arrays: Arc<Arrays>,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Self, SourceError> {
        let refuse = |message: &str| misfit(part, restart.input, message);
        let n_columns = 1 + usize::from(arrays.labels.is_some());
        let types = schema.fields().iter().take(n_columns).map(|f| dtype_of(f.data_type()));
        let items: Vec<_> = types.flatten().collect();
        if items.len() != n_columns {
            return Err(refuse("the columns are not those of this source"));
        }
        if arrays.labels.is_some() && part.side.len() != part.inputs.len() {
            return Err(refuse("its labels are not those of the partition"));
        }
        let input = restart.input as usize;
        let row = match &restart.cursor {
            serde_json::Value::Null => Some(0),
            cursor => cursor.get("row").and_then(serde_json::Value::as_u64),
        };
        if row != Some(restart.source_row) || input > part.inputs.len() {
            return Err(refuse("its cursor is no row of the partition"));
        }
        Ok(Self {
            digests: PartDigests::new(arrays.folder.clone(), part),
            arrays,
            part: Arc::clone(part),
            schema: Arc::clone(schema),
            items,
            limits,
            input,
            from: restart.source_row,
            current: None,
        })
    }

    /// Opens the next input, and its labels, at the row where reading begins.
    fn begin(&self, read: &InputRange) -> Result<Current, SourceError> {
        let input = &read.input;
        self.ask_ahead();
        let main = self.open(0, read, None)?;
        let whole = main.head.n_rows().unwrap_or(0);
        let rows = main.head.rows_in(read.range.as_ref()).unwrap_or(0..0);
        let n_rows = rows.end - rows.start;
        if self.from > n_rows {
            let number = u32::try_from(self.input).unwrap_or(u32::MAX);
            return Err(misfit(&self.part, number, "its cursor lies behind the last row"));
        }
        let is_to_end = rows.end == whole;
        let mut current = Current { files: vec![main], row: self.from, n_rows, is_to_end };
        if let Some(labels) =
            self.part.side.get(self.input).filter(|_| self.arrays.labels.is_some())
        {
            let name = self.schema.fields().get(1).map_or("", |f| f.name().as_str());
            let side = InputRange { input: labels.clone(), range: None };
            let side = self.open(1, &side, Some(rows.start)).map_err(|e| self.in_column(e, 1))?;
            let n_labels = side.head.n_rows().unwrap_or(0);
            if n_labels != whole {
                return Err(BadRow::new(
                    INPUT_DAMAGED,
                    format!("{n_labels} labels for {whole} rows"),
                )
                .field(name)
                .hint("give `labels` the file that belongs to this one")
                .into_error(&input.path, format!("with `{}`", labels.path)));
            }
            current.files.push(side);
        }
        Ok(current)
    }

    /// Asks for the next input and those behind it, each with its labels.
    fn ask_ahead(&self) {
        if self.arrays.labels.is_none() {
            return self.digests.ask_from(&self.part, self.input);
        }
        let (inputs, labels) = (self.part.inputs.iter(), self.part.side.iter());
        let pairs = inputs.skip(self.input).zip(labels.skip(self.input));
        self.digests.ask_ahead(pairs.flat_map(|(read, labels)| [&read.input, labels]));
    }

    /// Opens the file of column `index` at the row where reading begins; `first` is the row of a
    /// whole file that the range begins with, where the range is another file's.
    fn open(
        &self,
        index: usize,
        read: &InputRange,
        first: Option<u64>,
    ) -> Result<OpenArray, SourceError> {
        let (input, range) = (&read.input, read.range.as_ref());
        let contents = match (index, &self.arrays.labels) {
            (0, _) | (_, None) => &self.arrays.contents,
            (_, Some(labels)) => labels,
        };
        let (mut open, head) = self.arrays.open(contents, input)?;
        let head = of_rows(input, head)?;
        let Some(rows) = head.rows_in(range) else {
            return Err(SourceError::Changed { path: input.path.clone() });
        };
        let column = self.schema.fields().get(index);
        if column.is_none_or(|column| *column.data_type() != head.row_type()) {
            let message =
                format!("rows of {}, other than those of the first input", head.row_shown());
            let hint = "read arrays of one type and shape with one source";
            return Err(refused(input, (message, hint)));
        }
        if head.row_bytes() > self.limits.row_bytes {
            // All files have rows of one size: what rejects this one rejects every row there is.
            let (bytes, limit) = (head.row_bytes(), self.limits.row_bytes);
            return Err(SourceError::Invalid {
                path: input.path.clone(),
                at: "header".to_owned(),
                message: format!("every row has {bytes} bytes, and a row may have {limit}"),
                hint: Some(format!("set `max_row_bytes` in [dataset] to {bytes} or more")),
            });
        }
        let row = first.unwrap_or(rows.start).saturating_add(self.from);
        if row > 0 || range.is_some() {
            let byte = head.row_bytes().checked_mul(row).and_then(|n| n.checked_add(head.start));
            let byte = byte.filter(|_| row > 0);
            open = contents.open(input, range, byte).map_err(damaged)?;
            if row == 0 {
                // The head again, for the digest of the range.
                self.arrays.read_head(contents, input, &mut open)?;
            }
        }
        Ok(OpenArray { input: input.clone(), open, head })
    }

    /// Reads rows until the batch is full or the input ends. `false` if the batch was full before.
    fn fill(&self, current: &mut Current, making: &mut Making) -> Result<bool, SourceError> {
        let path = self.part.inputs.get(self.input).map_or("", |read| read.input.path.as_str());
        let names_bytes = if self.arrays.has_file_columns { 2 * path.len() + 12 } else { 0 };
        let values_bytes: usize = current.files.iter().map(OpenArray::row_bytes).sum();
        let row_bytes = values_bytes.saturating_add(names_bytes);
        let room = (self.limits.rows as u64).saturating_sub(making.n_taken());
        let room_bytes = self.limits.bytes.saturating_sub(making.n_bytes) / row_bytes.max(1);
        let at_least = u64::from(making.n_taken() == 0);
        let n = room.min((room_bytes as u64).max(at_least)).min(current.n_rows - current.row);
        if n == 0 {
            return Ok(false);
        }
        let number = u32::try_from(self.input).unwrap_or(u32::MAX);
        making.restart.get_or_insert_with(|| restart_at(number, current.row));
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let (mut n_read, mut flaw) = (n, None);
        let starts: Vec<_> = making.values.iter().map(Vec::len).collect();
        for (i, (file, values)) in current.files.iter_mut().zip(&mut making.values).enumerate() {
            let (before, row_bytes) = (values.len(), file.row_bytes());
            let wanted = n.saturating_mul(row_bytes);
            let mut read = file.open.append_to(values, wanted);
            if read.as_ref().is_ok_and(|n_bytes| *n_bytes < wanted) {
                // Why there is no more comes after what there is.
                read = file.open.append_to(values, 1);
            }
            let whole = (values.len() - before) / row_bytes;
            if whole < n_read {
                n_read = whole;
                let e = read.map_or_else(damaged, |_| other_length(&file.input, FEWER_BYTES));
                flaw = Some(self.in_column(e, i));
            } else if let Err(e) = read {
                // Damage behind a row that another file lacks is not come to.
                match (e, &flaw) {
                    (SourceError::Row { .. }, Some(_)) => {}
                    (e, _) => return Err(e),
                }
            }
        }
        for ((file, values), start) in current.files.iter().zip(&mut making.values).zip(starts) {
            values.truncate(start + n_read * file.row_bytes());
            if file.head.is_big_endian {
                swap_bytes(file.head.item, values.get_mut(start..).unwrap_or_default());
            }
        }
        for (builder, name) in making.names.iter_mut().zip([path, folder_of(path), stem_of(path)]) {
            (0..n_read).for_each(|_| builder.append_value(name));
        }
        making.n_bytes += n_read * row_bytes;
        let run = Run { row: 0, input: number, source_row: current.row, sub_row: -1 };
        making.provenance.push_run(run, n_read as u64);
        current.row += n_read as u64;
        flaw.map_or(Ok(true), Err)
    }

    /// Takes the digests of an input that has been read, and of its labels; nothing may follow.
    fn end(&mut self, current: Current) -> Result<(), SourceError> {
        for (i, mut file) in current.files.into_iter().enumerate() {
            if current.is_to_end {
                let more = file.open.append_to(&mut Vec::new(), 1).map_err(damaged);
                if more.map_err(|e| self.in_column(e, i))? > 0 {
                    let e = other_length(&file.input, MORE_BYTES);
                    return Err(self.in_column(e, i));
                }
            }
            let digest = file.open.digest()?;
            match i {
                0 => self.digests.set_input(self.input, digest),
                _ => self.digests.set_side(self.input, digest),
            }
        }
        Ok(())
    }

    /// The same error, with the column whose file it is about where that is not the first.
    fn in_column(&self, e: SourceError, index: usize) -> SourceError {
        let name = self.schema.fields().get(index).map_or("", |f| f.name().as_str());
        match e {
            SourceError::Row { path, at, bad } if index > 0 => {
                bad.field(name).into_error(&path, at)
            }
            e => e,
        }
    }

    /// Puts a reject in the place of the rows that cannot be read, or fails, and leaves the input.
    fn leave(&mut self, e: SourceError, row: u64, making: &mut Making) -> Result<(), SourceError> {
        let number = u32::try_from(self.input).unwrap_or(u32::MAX);
        let before_row = making.provenance.n_rows();
        let at = BadRowAt { before_row, input: number, source_row: row };
        making.events.push(self.limits.on_error.settle(e, at)?);
        making.restart.get_or_insert_with(|| restart_at(number, row));
        self.next_input();
        Ok(())
    }

    fn next_input(&mut self) {
        self.input += 1;
        self.from = 0;
    }

    fn finish(&self, making: Making) -> Result<Option<Batch>, SourceError> {
        let Making { values, names, provenance, events, restart, .. } = making;
        let Some(restart) = restart else { return Ok(None) };
        let mut columns: Vec<ArrayRef> = Vec::new();
        for ((item, values), field) in self.items.iter().zip(values).zip(self.schema.fields()) {
            columns.push(column(*item, field.data_type(), values)?);
        }
        columns.extend(names.into_iter().map(|mut names| Arc::new(names.finish()) as ArrayRef));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        Ok(Some(Batch { rows, provenance, events, restart }))
    }
}

impl OpenArray {
    fn row_bytes(&self) -> usize {
        usize::try_from(self.head.row_bytes()).unwrap_or(usize::MAX)
    }
}

impl BatchReader for RowReader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let n_names = if self.arrays.has_file_columns { npy::FILE_COLUMNS.len() } else { 0 };
        let mut making = Making {
            values: vec![Vec::new(); self.items.len()],
            names: (0..n_names).map(|_| StringBuilder::with_capacity(0, 0)).collect(),
            n_bytes: 0,
            provenance: Provenance::new(),
            events: Vec::new(),
            restart: None,
        };
        let part = Arc::clone(&self.part);
        while let Some(read) = part.inputs.get(self.input) {
            if making.n_taken() >= self.limits.rows as u64 {
                break;
            }
            let mut current = match self.current.take().map_or_else(|| self.begin(read), Ok) {
                Ok(current) => current,
                Err(e) => {
                    self.leave(e, self.from, &mut making)?;
                    continue;
                }
            };
            if current.row == current.n_rows {
                let row = current.row;
                match self.end(current) {
                    Ok(()) => self.next_input(),
                    Err(e) => self.leave(e, row, &mut making)?,
                }
                continue;
            }
            match self.fill(&mut current, &mut making) {
                Ok(is_read) => {
                    self.current = Some(current);
                    if !is_read {
                        break;
                    }
                }
                Err(e) => self.leave(e, current.row, &mut making)?,
            }
        }
        self.finish(making)
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

fn restart_at(input: u32, row: u64) -> Restart {
    Restart { input, source_row: row, cursor: json!({"row": row}), ..Restart::default() }
}
