//! The files of a shard's fields.
//!
//! Leaves out: how rows are laid into them (`rows`), when they are synced (`open`), and the files
//! made at the seal (`seal`).
//!
//! Invariants:
//! 1. Which files there are is decided by the schema alone.
//! 2. [`Fields::bytes`] counts what rows added: all bytes but the 0 that begins an offsets file.

use std::path::Path;

use super::error::{Damage, Fault, ShardError};
use super::file::{FileSums, ShardFile};
use super::interner::{Code, Interner};
use super::manifest::Segment;
use super::options::ShardLimits;
use super::stream::Stream;
use crate::schema::{Field, FileRole, RowSchema};
use crate::storage::Storage;

/// The field files of an open shard.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) files: Vec<ShardFile>,
    pub(super) parts: Vec<Parts>,
    pub(super) axes: Vec<Axis>,
    /// What every row adds, whatever its values.
    pub(super) row_bytes: u64,
    pub(super) n_rows: u64,
    pub(super) bytes: u64,
    pub(super) scratch: Vec<u8>,
}

/// Where one field goes: indices of its files.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) unit_bytes: usize,
    pub(super) rank: usize,
    pub(super) values: Option<usize>,
    pub(super) valid: Option<usize>,
    pub(super) dims: Option<usize>,
    pub(super) axis: Option<usize>,
    pub(super) dictionary: Option<Dictionary>,
}

/// The files and state of an interned field.
#[derive(Debug)]
pub(super) struct Dictionary {
    pub(super) codes: usize,
    pub(super) values: usize,
    pub(super) offsets: usize,
    pub(super) interner: Interner,
    /// Codes of the rows being appended, as they go to the file.
    pub(super) new_codes: Vec<u8>,
}

/// The offsets file of an axis.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) file: usize,
    /// The first field on the axis, whose offsets are those of all of them.
    pub(super) field: usize,
    pub(super) entries: i64,
}

/// Most bytes that the files of a shard gather together: more fields do not take more memory.
pub(super) const GATHERED_BYTES: usize = 32 << 20;

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
            row_bytes: schema.fixed_row_bytes(),
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
                    }
                    FileRole::Sidecar => {}
                }
            }
            if let (Some(codes), Some(values), Some(offsets)) = (codes, values, offsets) {
                let (interner, new_codes) = (Interner::default(), Vec::new());
                parts.dictionary = Some(Dictionary { codes, values, offsets, interner, new_codes });
            }
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
