//! Rows of a shard whose files are too far away to be mapped: only the blocks that hold them are read.
//!
//! Leaves out: reading blocks and keeping them (`storage::Distant`), and what rows mean (`field_reader`,
//! `columns`), which work on a copy of the rows alone.
//!
//! Invariants:
//! 1. No byte is believed that a sum does not cover: the shard's id is that of its sums, these name
//!    `blocks.bin`, and that has the CRC-32 of each block of the other files.
//! 2. Memory holds what was asked for, whatever the size of the shard.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_buffer::{Buffer, ScalarBuffer};

use super::field_reader::{FieldReader, Folder};
use super::layout::{self, BLOCK_BYTES};
use super::read_error::ReadError;
use super::reader::{KEY_BYTES, Key, Shard, key_entry};
use super::sums::Sums;
use crate::schema::{Field, FileRole, Kind};
use crate::storage::{Blocks, DistantFile, ReadFile};

type Result<T, E = ReadError> = std::result::Result<T, E>;

/// The files of a sealed shard in a distant storage.
#[derive(Debug)]
pub(super) struct DistantFolder {
    sums: Sums,
    files: OnceLock<BTreeMap<String, File>>,
}

#[derive(Debug)]
struct File {
    len: u64,
    /// `None` of those that no block covers.
    reader: Option<Arc<dyn ReadFile>>,
}

impl DistantFolder {
    pub(super) fn new(sums: Sums) -> Self {
        Self { sums, files: OnceLock::new() }
    }

    /// The files by name, looked at when they are first asked for.
    fn files(&self, folder: &Folder) -> Result<&BTreeMap<String, File>> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let Some(storage) = folder.storage.distant() else {
            return Err(ReadError::Unmapped { path: folder.path.clone() });
        };
        let mut names: Vec<&str> = self.sums.keys().map(String::as_str).collect();
        names.extend([layout::SUMS, layout::COMPLETE]);
        let found = storage.look(&folder.path, &names)?;
        let missing = |name: &&str| ReadError::Missing { path: folder.path.join(name) };
        let found: Vec<(&str, DistantFile)> = names
            .into_iter()
            .zip(found)
            .map(|(name, file)| Ok((name, file.ok_or_else(|| missing(&name))?)))
            .collect::<Result<_>>()?;
        let crcs = self.crcs(folder)?;
        let n_blocks = |file: &DistantFile| {
            usize::try_from(file.len.div_ceil(BLOCK_BYTES)).unwrap_or(usize::MAX)
        };
        let is_covered = |name: &str| self.sums.contains_key(name) && name != layout::BLOCKS;
        let covered = found.iter().filter(|(name, _)| is_covered(name));
        let sum = covered.fold(0_usize, |sum, (_, file)| sum.saturating_add(n_blocks(file)));
        if sum != crcs.len() {
            let what = format!("{} numbers where the files have {sum} blocks", crcs.len());
            return Err(folder.damaged(layout::BLOCKS, what));
        }
        let (mut files, mut rest) = (BTreeMap::new(), crcs.as_slice());
        for (name, file) in found {
            let mut reader = None;
            if is_covered(name) {
                let (own, others) = rest.split_at(n_blocks(&file).min(rest.len()));
                rest = others;
                let blocks = Blocks { bytes: BLOCK_BYTES, crcs: Some(own.into()) };
                reader = Some(storage.open_blocks(&folder.path.join(name), &file, blocks)?.into());
            }
            files.insert(name.to_owned(), File { len: file.len, reader });
        }
        Ok(self.files.get_or_init(|| files))
    }

    /// The numbers in `blocks.bin`, held against its sum.
    fn crcs(&self, folder: &Folder) -> Result<Vec<u32>> {
        let path = folder.path.join(layout::BLOCKS);
        let bytes = folder.storage.read(&path)?.ok_or(ReadError::Missing { path })?;
        if self.sums.get(layout::BLOCKS).map(String::as_str)
            != Some(blake3::hash(&bytes).to_hex().as_str())
        {
            return Err(folder.damaged(layout::BLOCKS, "does not match its sum in B3SUMS"));
        }
        let (numbers, _) = bytes.as_chunks::<4>();
        Ok(numbers.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }

    /// The size of each file, by name.
    pub(super) fn lens(&self, folder: &Folder) -> Result<BTreeMap<String, u64>> {
        let files = self.files(folder)?.iter();
        Ok(files.map(|(name, file)| (name.clone(), file.len)).collect())
    }

    fn file(&self, folder: &Folder, name: &str) -> Result<Arc<dyn ReadFile>> {
        let file = self.files(folder)?.get(name).and_then(|file| file.reader.clone());
        file.ok_or_else(|| ReadError::Missing { path: folder.path.join(name) })
    }

    /// A whole file.
    pub(super) fn whole(&self, folder: &Folder, name: &str) -> Result<Vec<u8>> {
        let file = self.file(folder, name)?;
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl Folder {
    /// A file to be read in pieces.
    fn open(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        if let Some(distant) = &self.distant {
            return distant.file(self, name);
        }
        self.storage.open(&self.path.join(name)).map(Into::into).map_err(ReadError::at)
    }
}

impl Shard {
    /// Reads some rows of the field of that index, in the order asked: row 0 of what it gives is the
    /// first of them. For shards whose files cannot be mapped; of others it copies.
    ///
    /// # Errors
    /// There is no such field or row, or one of its files is missing or damaged.
    pub fn read_rows(&self, index: usize, rows: &[u64]) -> Result<FieldReader> {
        self.read_runs(index, &runs(rows))
    }

    /// The same of runs of rows.
    pub(crate) fn read_runs(&self, index: usize, runs: &[Range<u64>]) -> Result<FieldReader> {
        let Some(field) = self.schema().fields().get(index) else {
            return Err(ReadError::NoField { field: format!("#{index}"), known: Vec::new() });
        };
        if self.folder().distant.is_none() {
            // Says what is wrong with it.
            self.field_at(index)?;
        }
        read_runs(self.folder(), field, self.n_rows, runs)
    }

    /// Number of distinct values of the field of that index, if it is interned.
    ///
    /// # Errors
    /// There is no such field, or its files are damaged.
    pub fn n_values(&self, index: usize) -> Result<u64> {
        match self.schema().fields().get(index) {
            Some(field) if !self.is_mapped(index) || self.remote_url().is_some() => {
                n_values(self.folder(), field)
            }
            _ => Ok(self.field_at(index)?.n_values() as u64),
        }
    }

    /// The size of each of its files, by name; where its rows are elsewhere, those of their files are told
    /// by `shapes.json`.
    ///
    /// # Errors
    /// The storage refuses.
    pub fn file_lens(&self) -> Result<BTreeMap<String, u64>> {
        if let Some(distant) = &self.folder().distant {
            return distant.lens(self.folder());
        }
        let files = self.folder().storage.list(self.path())?.unwrap_or_default();
        let mut lens: BTreeMap<_, _> =
            files.into_iter().map(|file| (file.name, file.len)).collect();
        lens.remove(layout::REMOTE);
        if self.remote_url().is_some() {
            lens.extend(self.dropped_lens()?);
        }
        Ok(lens)
    }

    /// [`Shard::find`] by reading entries of `keys.bin` one by one.
    pub(super) fn find_distant(&self, key: Key<'_>) -> Result<Option<u64>> {
        let (file, hash) = (self.folder().open(layout::KEYS)?, key.hash());
        self.expect_keys(file.len(), KEY_BYTES)?;
        let entry = |at: u64| -> Result<(u64, u64)> {
            let mut bytes = [0; KEY_BYTES];
            file.read_at(&mut bytes, at * KEY_BYTES as u64)?;
            Ok(key_entry(&bytes))
        };
        let (mut from, mut to) = (0, self.n_rows());
        while from < to {
            let middle = from.midpoint(to);
            if entry(middle)?.0 < hash { from = middle + 1 } else { to = middle }
        }
        for at in from..self.n_rows() {
            let (found, row) = entry(at)?;
            if found != hash {
                break;
            }
            if self.has_key(row, key)? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }
}

/// Rows as maximal runs of neighbours, in the order asked.
fn runs(rows: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row.saturating_add(1)),
        }
    }
    runs
}

/// Reads `runs` of rows of `field`: a reader of these rows alone, in memory.
fn read_runs(
    folder: &Folder,
    field: &Field,
    n_rows: usize,
    runs: &[Range<u64>],
) -> Result<FieldReader> {
    if let Some(run) = runs.iter().find(|run| run.start > run.end || run.end > n_rows as u64) {
        let row = run.end.max(run.start).saturating_sub(1);
        return Err(ReadError::NoRow { row, n_rows: n_rows as u64 });
    }
    let picked = runs.iter().fold(0_u64, |n, run| n.saturating_add(run.end - run.start));
    let picked = usize::try_from(picked).unwrap_or(usize::MAX);
    let mut it = FieldReader::empty(folder, field, picked);
    let read = Reading { folder, field, n_rows, runs };
    match field.kind {
        Kind::Fixed => it.values = read.rows(FileRole::Values, field.unit_bytes())?.into(),
        Kind::Ragged | Kind::Free => {
            let (offsets, spans) = read.entries()?;
            it.offsets = Some(offsets.into());
            it.values = read.bytes(FileRole::Values, &spans)?.into();
            if field.kind == Kind::Free {
                let dims = read.rows(FileRole::Dims, field.shape.len().saturating_mul(4))?;
                it.dims = Some(ScalarBuffer::from(i32s(&dims)));
            }
        }
        Kind::Interned => {
            let mut codes = i32s(&read.rows(FileRole::Codes, 4)?);
            let (offsets, values) = read.dictionary(&mut codes)?;
            it.codes = Some(codes.into());
            it.offsets = Some(offsets.into());
            it.values = values.into();
        }
    }
    if field.files().iter().any(|file| file.role == FileRole::Valid) {
        it.valid = Some(Buffer::from_vec(read.rows(FileRole::Valid, 1)?));
    }
    Ok(it)
}

/// Number of values in the dictionary of `field`.
fn n_values(folder: &Folder, field: &Field) -> Result<u64> {
    let file = field.files().into_iter().find(|file| file.role == FileRole::DictOffsets);
    let Some(file) = file else { return Ok(0) };
    let len = folder.open(&file.name)?.len();
    if len == 0 || len % 8 != 0 {
        return Err(folder.damaged(&file.name, format!("{len} bytes are no list of offsets")));
    }
    Ok(len / 8 - 1)
}

struct Reading<'a> {
    folder: &'a Folder,
    field: &'a Field,
    n_rows: usize,
    runs: &'a [Range<u64>],
}

impl Reading<'_> {
    fn name(&self, role: FileRole) -> String {
        let file = self.field.files().into_iter().find(|file| file.role == role);
        file.map(|file| file.name).unwrap_or_default()
    }

    /// The rows of a file that has `each` bytes of a row.
    fn rows(&self, role: FileRole, each: usize) -> Result<Vec<u8>> {
        self.expect_len(role, self.n_rows, each)?;
        let spans: Vec<Range<u64>> = self.runs.iter().map(|run| scaled(run, each)).collect();
        self.bytes(role, &spans)
    }

    fn expect_len(&self, role: FileRole, n: usize, each: usize) -> Result<()> {
        let name = self.name(role);
        let len = self.folder.open(&name)?.len();
        let want = (n as u64).checked_mul(each as u64);
        if want == Some(len) {
            return Ok(());
        }
        let want = want.map_or_else(|| "more".to_owned(), |n| n.to_string());
        let what = format!("{len} bytes where {} rows have {want}", self.n_rows);
        Err(self.folder.damaged(&name, what))
    }

    /// Pieces of a file, one after another.
    fn bytes(&self, role: FileRole, spans: &[Range<u64>]) -> Result<Vec<u8>> {
        let name = self.name(role);
        let file = self.folder.open(&name)?;
        if spans.iter().any(|span| span.start > span.end || span.end > file.len()) {
            let what = format!("{} bytes are fewer than the offsets say", file.len());
            return Err(self.folder.damaged(&name, what));
        }
        let len = |span: &Range<u64>| usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; spans.iter().map(len).fold(0, usize::saturating_add)];
        let (mut pieces, mut rest) = (Vec::with_capacity(spans.len()), bytes.as_mut_slice());
        for span in spans {
            let (piece, others) = rest.split_at_mut(len(span));
            rest = others;
            pieces.push((span.start, piece));
        }
        file.read_many(&mut pieces)?;
        drop(pieces);
        Ok(bytes)
    }

    /// Offsets of the rows counted from 0, and where their values lie.
    fn entries(&self) -> Result<(Vec<i64>, Vec<Range<u64>>)> {
        self.expect_len(FileRole::Offsets, self.n_rows.saturating_add(1), 8)?;
        // One more than a run has rows: where the last of them ends.
        let ends = self.runs.iter().map(|run| scaled(&(run.start..run.end + 1), 8));
        let read = i64s(&self.bytes(FileRole::Offsets, &ends.collect::<Vec<_>>())?);
        let (mut offsets, mut spans) = (vec![0_i64], Vec::with_capacity(self.runs.len()));
        let mut rest = read.as_slice();
        for run in self.runs {
            let n = usize::try_from(run.end - run.start).unwrap_or(usize::MAX);
            let (own, others) = rest.split_at_checked(n.saturating_add(1)).unwrap_or_default();
            rest = others;
            spans.push(self.rise(&mut offsets, own, FileRole::Offsets, self.field.unit_bytes())?);
        }
        Ok((offsets, spans))
    }

    /// Adds what `own` (one more than rows) says of rows to `offsets`, and gives where their values lie.
    fn rise(
        &self,
        offsets: &mut Vec<i64>,
        own: &[i64],
        role: FileRole,
        unit: usize,
    ) -> Result<Range<u64>> {
        let mut end = offsets.last().copied().unwrap_or_default();
        for pair in own.windows(2) {
            let [from, to] = pair else { continue };
            let entries = to.checked_sub(*from).filter(|n| *n >= 0 && *from >= 0);
            let next = entries.and_then(|n| end.checked_add(n));
            end = next.ok_or_else(|| {
                self.folder.damaged(&self.name(role), "its numbers do not rise from 0")
            })?;
            offsets.push(end);
        }
        let at = |offset: Option<&i64>| u64::try_from(offset.copied().unwrap_or_default());
        let from = at(own.first()).unwrap_or_default();
        let to = at(own.last()).unwrap_or_default();
        Ok(scaled(&(from..to), unit))
    }

    /// The values that codes stand for, each once, in the order of the codes: their offsets and bytes.
    /// The codes become those of these values.
    fn dictionary(&self, codes: &mut [i32]) -> Result<(Vec<i64>, Vec<u8>)> {
        let n_values = n_values(self.folder, self.field)?;
        let mut used = BTreeMap::new();
        for code in codes.iter() {
            match u64::try_from(*code) {
                Ok(value) if value < n_values => drop(used.insert(value, 0)),
                // What is no code is told of as it is on a disk.
                _ if *code == -1 => {}
                _ => {
                    let what = format!("a row has the code {code} of {n_values} values");
                    return Err(self.folder.damaged(&self.name(FileRole::Codes), what));
                }
            }
        }
        for (value, number) in used.values_mut().zip(0..) {
            *value = number;
        }
        for code in codes.iter_mut() {
            let number = u64::try_from(*code).ok().and_then(|value| used.get(&value));
            *code = number.copied().unwrap_or(-1);
        }
        let pairs: Vec<_> = used.keys().map(|value| scaled(&(*value..value + 2), 8)).collect();
        let read = i64s(&self.bytes(FileRole::DictOffsets, &pairs)?);
        let (mut offsets, mut spans) = (vec![0_i64], Vec::with_capacity(pairs.len()));
        for pair in read.chunks_exact(2) {
            spans.push(self.rise(&mut offsets, pair, FileRole::DictOffsets, 1)?);
        }
        Ok((offsets, self.bytes(FileRole::Dict, &spans)?))
    }
}

/// A range of things that have `each` bytes, in bytes; what is too large for any file stays too large.
fn scaled(range: &Range<u64>, each: usize) -> Range<u64> {
    let at = |n: u64| n.saturating_mul(each as u64);
    at(range.start)..at(range.end)
}

fn i32s(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks::<4>().0.iter().map(|number| i32::from_le_bytes(*number)).collect()
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<8>().0.iter().map(|number| i64::from_le_bytes(*number)).collect()
}
