//! The files of a shard's fields, and how rows are laid into them.
//!
//! Leaves out: when they are synced (`open`), and the files made at the seal (`seal`).
//!
//! Invariants:
//! 1. What a row adds to the files is decided by the schema, the row and the rows before it in the
//!    shard; how rows are cut into batches never shows.
//! 2. A fixed field's Arrow buffer is what is written; nothing is allocated per row.
//! 3. [`Fields::bytes`] counts what rows added: all bytes but the 0 that begins an offsets file.

use std::path::Path;

use super::ShardLimits;
use super::error::{Damage, Fault, ShardError};
use super::file::{FileSums, ShardFile};
use super::interner::{Code, Interner};
use super::manifest::Segment;
use super::stream::Stream;
use crate::schema::{Column, ColumnData, Field, FileRole, RowSchema};
use crate::storage::Storage;

/// The field files of an open shard.
#[derive(Debug)]
pub(super) struct Fields {
    files: Vec<ShardFile>,
    parts: Vec<Parts>,
    axes: Vec<Axis>,
    layout: RowLayout,
    n_rows: u64,
    bytes: u64,
    scratch: Vec<u8>,
}

/// What every row adds, whatever its values.
#[derive(Debug, Clone, Copy, Default)]
struct RowLayout {
    /// Bytes of fixed values, validity, dims, offsets and codes.
    bytes: u64,
    has_lists: bool,
    has_interned: bool,
}

/// Where one field goes: indices of its files.
#[derive(Debug)]
struct Parts {
    unit_bytes: usize,
    rank: usize,
    values: Option<usize>,
    valid: Option<usize>,
    dims: Option<usize>,
    axis: Option<usize>,
    dictionary: Option<Dictionary>,
}

/// The files and state of an interned field.
#[derive(Debug)]
struct Dictionary {
    codes: usize,
    values: usize,
    offsets: usize,
    interner: Interner,
    /// Codes of the rows being appended, as they go to the file.
    new_codes: Vec<u8>,
}

/// The offsets file of an axis.
#[derive(Debug)]
struct Axis {
    name: String,
    file: usize,
    /// The first field on the axis, whose offsets are those of all of them.
    field: usize,
    entries: i64,
}

/// What an offsets file holds before the first row.
const FIRST_OFFSET: [u8; 8] = [0; 8];

impl Fields {
    /// Makes the files of an empty shard.
    pub(super) fn create(
        storage: &dyn Storage,
        dir: &Path,
        schema: &RowSchema,
    ) -> Result<Self, ShardError> {
        Self::open(schema, |name, initial| {
            let mut file = ShardFile::create(storage, dir, name)?;
            file.append(initial)?;
            // It belongs to no segment.
            file.mark()?;
            Ok(file)
        })
    }

    /// Opens the files of a shard with these segments, each read once and checked.
    pub(super) fn recover(
        storage: &dyn Storage,
        dir: &Path,
        schema: &RowSchema,
        segments: &[Segment],
    ) -> Result<Self, Fault> {
        let mut this = Self::open(schema, |name, initial| {
            ShardFile::recover(storage, dir, name, initial, segments)
        })?;
        this.n_rows = segments.last().map_or(0, |segment| segment.rows);
        let (axes, dictionaries) = (this.axes.iter(), this.parts.iter());
        let starts = axes.map(|axis| axis.file);
        let starts =
            starts.chain(dictionaries.filter_map(|f| Some(f.dictionary.as_ref()?.offsets)));
        let n_starts = starts.count() as u64;
        let len: u64 = this.files.iter().map(ShardFile::len).sum();
        this.bytes = len.saturating_sub(n_starts * FIRST_OFFSET.len() as u64);
        for axis in &mut this.axes {
            let Some(file) = this.files.get(axis.file) else { continue };
            axis.entries = last_offset(storage, dir, file)?;
        }
        for (parts, field) in this.parts.iter_mut().zip(schema.fields()) {
            let Some(dictionary) = &mut parts.dictionary else { continue };
            let (values, offsets) =
                (this.files.get(dictionary.values), this.files.get(dictionary.offsets));
            let (Some(values), Some(offsets)) = (values, offsets) else { continue };
            dictionary.interner = relearn(storage, dir, field, values, offsets)?;
        }
        Ok(this)
    }

    /// Plans which field goes to which file; `open` gives the file of a name and of what it holds
    /// before the first row.
    fn open<E>(
        schema: &RowSchema,
        mut open: impl FnMut(&str, &[u8]) -> Result<ShardFile, E>,
    ) -> Result<Self, E> {
        let mut this = Self {
            files: Vec::new(),
            parts: Vec::new(),
            axes: Vec::new(),
            layout: RowLayout::default(),
            n_rows: 0,
            bytes: 0,
            scratch: Vec::new(),
        };
        for (index, field) in schema.fields().iter().enumerate() {
            let mut parts = Parts::of(field);
            let (mut codes, mut values, mut offsets) = (None, None, None);
            for named in field.files() {
                if named.role == FileRole::Sidecar {
                    continue;
                }
                if named.role == FileRole::Offsets
                    && let Some(known) =
                        this.axes.iter().position(|a| Some(&a.name) == field.axis.as_ref())
                {
                    parts.axis = Some(known);
                    continue;
                }
                let initial: &[u8] = match named.role {
                    FileRole::Offsets | FileRole::DictOffsets => &FIRST_OFFSET,
                    _ => &[],
                };
                let file = this.files.len();
                this.files.push(open(&named.name, initial)?);
                match named.role {
                    FileRole::Values => parts.values = Some(file),
                    FileRole::Valid => parts.valid = Some(file),
                    FileRole::Dims => parts.dims = Some(file),
                    FileRole::Codes => codes = Some(file),
                    FileRole::Dict => values = Some(file),
                    FileRole::DictOffsets => offsets = Some(file),
                    FileRole::Offsets => {
                        parts.axis = Some(this.axes.len());
                        let name = field.axis.clone().unwrap_or_default();
                        this.axes.push(Axis { name, file, field: index, entries: 0 });
                        this.layout.bytes += 8;
                    }
                    FileRole::Sidecar => {}
                }
            }
            if let (Some(codes), Some(values), Some(offsets)) = (codes, values, offsets) {
                let (interner, new_codes) = (Interner::default(), Vec::new());
                parts.dictionary = Some(Dictionary { codes, values, offsets, interner, new_codes });
            }
            this.layout.add(&parts);
            this.parts.push(parts);
        }
        Ok(this)
    }

    /// Rows in the shard.
    pub(super) fn n_rows(&self) -> u64 {
        self.n_rows
    }

    /// Bytes that the rows added to the files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the next row belongs to the next shard.
    pub(super) fn is_full(&self, limits: &ShardLimits) -> bool {
        let dictionaries = || self.parts.iter().filter_map(|field| field.dictionary.as_ref());
        self.n_rows > 0
            && (self.bytes >= limits.bytes
                || self.n_rows >= limits.rows
                || dictionaries().any(|d| d.interner.n_values() >= limits.intern_values))
    }

    /// The files, in a fixed order.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut ShardFile> {
        self.files.iter_mut()
    }

    /// Entries of each field's axis, for `shapes.json`; 0 of a field without one.
    pub(super) fn entries(&self) -> Vec<u64> {
        let axis = |field: &Parts| field.axis.and_then(|axis| self.axes.get(axis));
        let entries = |field| axis(field).map_or(0, |axis| axis.entries.cast_unsigned());
        self.parts.iter().map(entries).collect()
    }

    /// The sums of all files, which are not written again.
    pub(super) fn into_sums(self) -> Result<Vec<FileSums>, ShardError> {
        self.files.into_iter().map(ShardFile::into_sums).collect()
    }

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
        let end = if self.layout.has_interned {
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
            lists + (end - from) as u64 * self.layout.bytes
        };
        let end = if bytes(to) < room {
            to
        } else if self.layout.has_lists {
            // The smallest end that reaches the limit.
            let (mut below, mut reaches) = (from, to);
            while reaches - below > 1 {
                let middle = below.midpoint(reaches);
                if bytes(middle) < room { below = middle } else { reaches = middle }
            }
            reaches
        } else {
            let rows = room.div_ceil(self.layout.bytes.max(1)).max(1);
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
            self.bytes += self.layout.bytes;
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

    /// Appends the rows `from..to` to the files.
    fn write(&mut self, columns: &[Column], from: usize, to: usize) -> Result<(), ShardError> {
        for (parts, column) in self.parts.iter_mut().zip(columns) {
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

impl RowLayout {
    fn add(&mut self, parts: &Parts) {
        if parts.dictionary.is_some() {
            self.bytes += size_of::<i32>() as u64;
            self.has_interned = true;
        } else if parts.axis.is_some() {
            self.has_lists = true;
        } else {
            self.bytes += parts.unit_bytes as u64;
        }
        self.bytes += u64::from(parts.valid.is_some());
        if parts.dims.is_some() {
            self.bytes += (parts.rank * size_of::<i32>()) as u64;
        }
    }
}

impl Parts {
    fn of(field: &Field) -> Self {
        Self {
            unit_bytes: field.unit_bytes(),
            rank: field.shape.len(),
            values: None,
            valid: None,
            dims: None,
            axis: None,
            dictionary: None,
        }
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

/// The number at the end of an offsets file.
fn last_offset(storage: &dyn Storage, dir: &Path, file: &ShardFile) -> Result<i64, Fault> {
    let mut last = [0; 8];
    let at = file.len().saturating_sub(8);
    storage.open(&dir.join(file.name()))?.read_at(&mut last, at)?;
    Ok(i64::from_le_bytes(last))
}

/// The interner that made a dictionary.
fn relearn(
    storage: &dyn Storage,
    dir: &Path,
    field: &Field,
    values: &ShardFile,
    offsets: &ShardFile,
) -> Result<Interner, Fault> {
    let damaged = || Damage::Dictionary { stem: field.stem.clone() };
    let mut interner = Interner::default();
    let mut ends = Stream::open(storage, &dir.join(offsets.name()))?;
    let mut bytes = Stream::open(storage, &dir.join(values.name()))?;
    let mut from = ends.take_i64()?;
    for _ in 1..offsets.len() / 8 {
        let end = ends.take_i64()?;
        let fits = from >= 0 && end >= from && end.cast_unsigned() <= values.len();
        let n = usize::try_from(end.saturating_sub(from)).ok().filter(|_| fits);
        let value = bytes.take(n.ok_or_else(damaged)?)?;
        if !matches!(interner.code(value), Some(Code::New(_))) {
            return Err(damaged().into());
        }
        from = end;
    }
    Ok(interner)
}
