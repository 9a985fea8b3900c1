//! How the rows of a batch are laid into a shard's field files.
//!
//! Leaves out: the files themselves (`fields`, `file`).
//!
//! Invariants:
//! 1. What a row adds to the files is decided by the schema, the row and the rows before it in the
//!    shard; how rows are cut into batches never shows.
//! 2. A fixed field's Arrow buffer is what is written; nothing is allocated per row.

use super::error::ShardError;
use super::fields::{Dictionary, Fields, GATHERED_BYTES};
use super::file::ShardFile;
use super::interner::Code;
use super::options::ShardLimits;
use crate::schema::{Column, ColumnData, RowSchema};

impl Fields {
    /// Appends as many of the rows `from..to` as belong to this shard, and says how many: at least
    /// one, unless the shard is full.
    pub(super) fn append(
        &mut self,
        columns: &[Column],
        from: usize,
        to: usize,
        limits: &ShardLimits,
    ) -> Result<usize, ShardError> {
        if from >= to || self.is_full(limits) {
            return Ok(0);
        }
        let room = usize::try_from(limits.rows.saturating_sub(self.n_rows)).unwrap_or(usize::MAX);
        let to = to.min(from.saturating_add(room.max(1)));
        let end = if self.parts.iter().any(|parts| parts.dictionary.is_some()) {
            self.intern(columns, from, to, limits)?
        } else {
            self.fit(columns, from, to, limits)
        };
        self.write(columns, from, end)?;
        self.n_rows += (end - from) as u64;
        Ok(end - from)
    }

    /// The end of the rows from `from` on that belong to this shard, where none is interned.
    fn fit(&mut self, columns: &[Column], from: usize, to: usize, limits: &ShardLimits) -> usize {
        let room = limits.bytes.saturating_sub(self.bytes);
        let bytes = |end: usize| {
            let lists = lists(columns).map(|list| list.bytes(from, end)).sum::<u64>();
            lists + (end - from) as u64 * self.row_bytes
        };
        let end = if bytes(to) < room {
            to
        } else if !self.axes.is_empty() {
            // The smallest end that reaches the limit.
            let (mut below, mut reaches) = (from, to);
            while reaches - below > 1 {
                let middle = below.midpoint(reaches);
                if bytes(middle) < room { below = middle } else { reaches = middle }
            }
            reaches
        } else {
            let rows = room.div_ceil(self.row_bytes.max(1)).max(1);
            from.saturating_add(usize::try_from(rows).unwrap_or(usize::MAX)).min(to)
        };
        let added = bytes(end);
        self.bytes += added;
        end
    }

    /// Interns the rows from `from` on that belong to this shard, and gives their end.
    fn intern(
        &mut self,
        columns: &[Column],
        from: usize,
        to: usize,
        limits: &ShardLimits,
    ) -> Result<usize, ShardError> {
        for row in from..to {
            let mut is_full = false;
            self.bytes += self.row_bytes;
            for (parts, column) in self.parts.iter_mut().zip(columns) {
                let Some(dictionary) = &mut parts.dictionary else {
                    let list = lists(std::slice::from_ref(column)).next();
                    self.bytes += list.map_or(0, |list| list.bytes(row, row + 1));
                    continue;
                };
                let value = column.is_valid(row).then(|| column.value(row));
                self.bytes += dictionary.push(&mut self.files, value)?;
                is_full |= dictionary.interner.n_values() >= limits.intern_values;
            }
            if is_full || self.bytes >= limits.bytes {
                return Ok(row + 1);
            }
        }
        Ok(to)
    }

    /// Appends the rows `from..to` to the files. What they gather together is handed to the system
    /// when it becomes too much.
    fn write(&mut self, columns: &[Column], from: usize, to: usize) -> Result<(), ShardError> {
        let mut held: usize = self.files.iter().map(ShardFile::held_bytes).sum();
        for (parts, column) in self.parts.iter_mut().zip(columns) {
            if held > GATHERED_BYTES {
                self.files.iter_mut().try_for_each(ShardFile::release)?;
                held = 0;
            }
            let mut append = |files: &mut [ShardFile], file: Option<usize>, bytes: &[u8]| {
                let held_by = |files: &[ShardFile]| {
                    file.and_then(|file| files.get(file)).map_or(0, ShardFile::held_bytes)
                };
                held -= held_by(files);
                append(files, file, bytes)?;
                held += held_by(files);
                Ok::<_, ShardError>(())
            };
            if let Some(dictionary) = &mut parts.dictionary {
                append(&mut self.files, Some(dictionary.codes), &dictionary.new_codes)?;
                dictionary.new_codes.clear();
                continue;
            }
            let (first, end) = match column.offsets() {
                None => (from, to),
                Some(offsets) => (offset(offsets, from)?, offset(offsets, to)?),
            };
            let values = piece(column.bytes(), first, end, parts.unit_bytes)?;
            append(&mut self.files, parts.values, values)?;
            if let ColumnData::Free { dims, .. } = &column.data {
                let dims = piece(dims.inner(), from, to, parts.rank * size_of::<i32>())?;
                append(&mut self.files, parts.dims, dims)?;
            }
            if let (Some(_), Some(valid)) = (parts.valid, &column.valid) {
                append(&mut self.files, parts.valid, piece(valid, from, to, 1)?)?;
            }
        }
        for axis in &mut self.axes {
            let offsets = columns.get(axis.field).and_then(Column::offsets);
            let offsets = offsets.and_then(|offsets| offsets.get(from..=to)).ok_or_else(misfit)?;
            let first = offsets.first().copied().unwrap_or_default();
            self.scratch.resize((to - from) * 8, 0);
            let (places, _) = self.scratch.as_chunks_mut::<8>();
            for (place, offset) in places.iter_mut().zip(offsets.iter().skip(1)) {
                *place = (axis.entries + offset - first).to_le_bytes();
            }
            axis.entries += offsets.last().copied().unwrap_or_default() - first;
            append(&mut self.files, Some(axis.file), &self.scratch)?;
        }
        Ok(())
    }
}

impl Dictionary {
    /// Notes the code of a row's value, and gives the bytes that a new value adds.
    fn push(&mut self, files: &mut [ShardFile], value: Option<&[u8]>) -> Result<u64, ShardError> {
        let Some(value) = value else {
            self.new_codes.extend_from_slice(&(-1_i32).to_le_bytes());
            return Ok(0);
        };
        let too_many = ShardError::Limits("an interned field has more values than codes");
        let (code, added) = match self.interner.code(value).ok_or(too_many)? {
            Code::Known(code) => (code, 0),
            Code::New(code) => {
                append(files, Some(self.values), value)?;
                let end = files.get(self.values).map_or(0, ShardFile::len);
                append(files, Some(self.offsets), &end.to_le_bytes())?;
                (code, value.len() as u64 + 8)
            }
        };
        self.new_codes.extend_from_slice(&code.to_le_bytes());
        Ok(added)
    }
}

/// The first of the rows `from..to` that has more than `limit` bytes as
/// [`RowSchema::row_bytes`] counts them, and how many.
pub(super) fn too_large(
    schema: &RowSchema,
    columns: &[Column],
    from: usize,
    to: usize,
    limit: u64,
) -> Option<(usize, u64)> {
    let lists = lists(columns).map(|list| list.bytes(from, to)).sum::<u64>();
    if lists + schema.fixed_row_bytes() <= limit {
        return None;
    }
    let sizes = (from..to).map(|row| (row, schema.row_bytes(columns, row)));
    sizes.into_iter().find(|(_, bytes)| *bytes > limit)
}

/// The lists of a batch.
fn lists(columns: &[Column]) -> impl Iterator<Item = List<'_>> {
    columns.iter().filter_map(|column| {
        let unit_bytes = column.unit_bytes as u64;
        Some(List { offsets: column.offsets()?, unit_bytes })
    })
}

/// The offsets of a field's rows, and the bytes of an entry.
struct List<'a> {
    offsets: &'a [i64],
    unit_bytes: u64,
}

impl List<'_> {
    /// Bytes of the values of rows `from..to`.
    fn bytes(&self, from: usize, to: usize) -> u64 {
        match (self.offsets.get(from), self.offsets.get(to)) {
            (Some(from), Some(to)) => (to - from).cast_unsigned() * self.unit_bytes,
            _ => 0,
        }
    }
}

fn append(files: &mut [ShardFile], file: Option<usize>, bytes: &[u8]) -> Result<(), ShardError> {
    match file.and_then(|file| files.get_mut(file)) {
        Some(file) => file.append(bytes),
        None => Ok(()),
    }
}

fn offset(offsets: &[i64], row: usize) -> Result<usize, ShardError> {
    offsets.get(row).and_then(|offset| usize::try_from(*offset).ok()).ok_or_else(misfit)
}

fn piece(bytes: &[u8], from: usize, to: usize, unit: usize) -> Result<&[u8], ShardError> {
    let range = from.checked_mul(unit).zip(to.checked_mul(unit));
    range.and_then(|(from, to)| bytes.get(from..to)).ok_or_else(misfit)
}

fn misfit() -> ShardError {
    ShardError::Batch("its columns have fewer rows than it has".to_owned())
}
