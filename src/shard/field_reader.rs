//! One field of a sealed shard: rows as bytes, straight from the mapped files.
//!
//! Leaves out: rows of several fields together (`reader`), and what whole files hold (`verify`).
//!
//! Invariants:
//! 1. Sizes of files are checked once, when the field is opened; offsets, dims and codes when a row
//!    is read. So opening is independent of the number of rows, and a damaged file leads to an error
//!    that names it or to wrong values, never to a panic or to bytes outside of the file.
//! 2. Bytes are handed out as they lie in the file; only a gather copies.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::types::{Int32Type, Int64Type, UInt8Type};
use arrow_array::{ArrayRef, ArrowPrimitiveType};
use arrow_buffer::{Buffer, ScalarBuffer};

use super::distant::DistantFolder;
use super::read_error::ReadError;
use crate::schema::{Dtype, Field, FileRole, Kind};
use crate::storage::Storage;

type Result<T> = std::result::Result<T, ReadError>;

/// The folder of a sealed shard.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) path: PathBuf,
    /// Where its files are too far away to be mapped.
    pub(super) distant: Option<Arc<DistantFolder>>,
}

impl Folder {
    /// The bytes of a file that must be there; mapped, where files can be.
    pub(super) fn map(&self, name: &str) -> Result<Buffer> {
        if let Some(distant) = &self.distant {
            return Ok(Buffer::from_vec(distant.whole(self, name)?));
        }
        let bytes = self.storage.map(&self.path.join(name)).map_err(ReadError::at)?;
        Ok(Buffer::from(bytes))
    }

    pub(super) fn damaged(&self, name: &str, what: impl Into<String>) -> ReadError {
        ReadError::damaged(&self.path.join(name), what)
    }
}

/// The numbers of a file, in place where they are aligned.
pub(super) fn numbers<T: ArrowPrimitiveType>(bytes: &Buffer) -> ScalarBuffer<T::Native> {
    let aligned = bytes.as_ptr().align_offset(align_of::<T::Native>()) == 0;
    let bytes = if aligned { bytes.clone() } else { Buffer::from_slice_ref(bytes.as_slice()) };
    ScalarBuffer::from(bytes)
}

/// Reads one field of a sealed shard. Cheap to clone: it shares the mappings.
#[derive(Debug, Clone)]
pub struct FieldReader {
    pub(super) field: Field,
    pub(super) folder: Folder,
    pub(super) n_rows: usize,
    /// [`Field::unit_bytes`], which would have to be multiplied out for each row.
    unit_bytes: usize,
    /// One byte per row, where a file tells which rows have a value.
    pub(super) valid: Option<Buffer>,
    /// The scalars of all rows, or the dictionary's bytes.
    pub(super) values: Buffer,
    /// Ragged and free: `n_rows + 1`, in entries. Interned: one more than values, in bytes.
    pub(super) offsets: Option<ScalarBuffer<i64>>,
    /// Free: `n_rows` times rank.
    pub(super) dims: Option<ScalarBuffer<i32>>,
    /// Interned.
    pub(super) codes: Option<ScalarBuffer<i32>>,
    /// Interned: the values as Arrow, once they were asked for.
    pub(super) dictionary: OnceLock<ArrayRef>,
}

impl FieldReader {
    /// A reader of `n_rows` rows that has no files yet.
    pub(super) fn empty(folder: &Folder, field: &Field, n_rows: usize) -> Self {
        Self {
            field: field.clone(),
            folder: folder.clone(),
            n_rows,
            unit_bytes: field.unit_bytes(),
            valid: None,
            values: Buffer::from_vec(Vec::<u8>::new()),
            offsets: None,
            dims: None,
            codes: None,
            dictionary: OnceLock::new(),
        }
    }

    /// Maps the files of `field` and checks their sizes against each other.
    pub(super) fn open(folder: &Folder, field: &Field, n_rows: usize) -> Result<Self> {
        let mut it = Self::empty(folder, field, n_rows);
        for file in field.files() {
            let map = || folder.map(&file.name);
            let sized = |n: usize, each: usize| {
                let (bytes, want) = (map()?, n.checked_mul(each));
                if want != Some(bytes.len()) {
                    let want = want.map_or_else(|| "more".to_owned(), |n| n.to_string());
                    let got = bytes.len();
                    let what = format!("{got} bytes where {n_rows} rows have {want}");
                    return Err(folder.damaged(&file.name, what));
                }
                Ok(bytes)
            };
            match file.role {
                FileRole::Values if field.kind == Kind::Fixed => {
                    it.values = sized(n_rows, field.unit_bytes())?;
                }
                FileRole::Values | FileRole::Dict => it.values = map()?,
                FileRole::Valid => it.valid = Some(sized(n_rows, 1)?),
                FileRole::Codes => it.codes = Some(numbers::<Int32Type>(&sized(n_rows, 4)?)),
                FileRole::Dims => {
                    let bytes = sized(n_rows, field.shape.len().saturating_mul(4))?;
                    it.dims = Some(numbers::<Int32Type>(&bytes));
                }
                FileRole::Offsets => {
                    let bytes = sized(n_rows.saturating_add(1), 8)?;
                    it.offsets = Some(numbers::<Int64Type>(&bytes));
                }
                FileRole::DictOffsets => {
                    let bytes = map()?;
                    if bytes.is_empty() || !bytes.len().is_multiple_of(8) {
                        let what = format!("{} bytes are no list of offsets", bytes.len());
                        return Err(folder.damaged(&file.name, what));
                    }
                    it.offsets = Some(numbers::<Int64Type>(&bytes));
                }
                FileRole::Sidecar => {}
            }
        }
        it.check_ends()?;
        Ok(it)
    }

    /// The first offset is 0 and the last one the end of the values.
    fn check_ends(&self) -> Result<()> {
        let Some(offsets) = &self.offsets else { return Ok(()) };
        let (first, last) = (offsets.first().copied(), offsets.last().copied());
        if first != Some(0) {
            return Err(self.damaged(FileRole::Offsets, "does not begin with 0"));
        }
        let end = last.and_then(|n| usize::try_from(n).ok()?.checked_mul(self.unit_bytes()));
        if end != Some(self.values.len()) {
            let (last, got) = (last.unwrap_or_default(), self.values.len());
            let what = format!("{got} bytes where the offsets end at entry {last}");
            return Err(self.damaged(FileRole::Values, what));
        }
        Ok(())
    }

    /// An error that names the file of that role; of an interned field, the dictionary's.
    #[cold]
    pub(super) fn damaged(&self, role: FileRole, what: impl Into<String>) -> ReadError {
        let role = match (self.field.kind, role) {
            (Kind::Interned, FileRole::Offsets) => FileRole::DictOffsets,
            (Kind::Interned, FileRole::Values) => FileRole::Dict,
            (_, role) => role,
        };
        let file = self.field.files().into_iter().find(|file| file.role == role);
        self.folder.damaged(&file.map_or_else(String::new, |file| file.name), what)
    }

    #[cold]
    fn other_kind(&self, asked: &'static str) -> ReadError {
        let (field, kind) = (self.field.name.clone(), self.field.kind);
        ReadError::OtherKind { field, kind, asked }
    }

    #[cold]
    fn no_row(&self, row: u64) -> ReadError {
        ReadError::NoRow { row, n_rows: self.n_rows as u64 }
    }

    fn check_row(&self, row: u64) -> Result<usize> {
        let index = usize::try_from(row).ok().filter(|index| *index < self.n_rows);
        index.ok_or_else(|| self.no_row(row))
    }

    /// The field.
    #[must_use]
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// Number of rows of the shard.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.n_rows as u64
    }

    /// Bytes of a row (fixed), of an entry (ragged), of a scalar (free); 1 of an interned field.
    #[must_use]
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Where the entry or value number `at` lies in the values.
    #[inline]
    fn span(&self, offsets: &[i64], at: usize) -> Result<Range<usize>> {
        let unit = self.unit_bytes();
        let end = |at: usize| usize::try_from(*offsets.get(at)?).ok()?.checked_mul(unit);
        match (end(at), end(at.saturating_add(1))) {
            (Some(from), Some(to)) if from <= to && to <= self.values.len() => Ok(from..to),
            _ => {
                let what = format!("the offsets of row or value {at} do not rise within the file");
                Err(self.damaged(FileRole::Offsets, what))
            }
        }
    }

    /// The bytes of a row: all scalars, little-endian, in C order; of an interned field, those of
    /// its value. Of an absent row: zeros in a fixed field or on a shared axis, else nothing.
    ///
    /// # Errors
    /// There is no such row, or a file is damaged.
    #[inline]
    pub fn row(&self, row: u64) -> Result<&[u8]> {
        self.stored_row(row).map_or_else(|| self.interned_row(row), Ok)
    }

    /// The bytes of a row that is not interned, `None` also where something is wrong: few
    /// instructions, so that a loop over rows waits for the memory of many at once.
    #[inline]
    fn stored_row(&self, row: u64) -> Option<&[u8]> {
        let index = usize::try_from(row).ok().filter(|index| *index < self.n_rows)?;
        let unit = self.unit_bytes;
        let span = match (&self.codes, &self.offsets) {
            (Some(_), _) => return None,
            (None, Some(offsets)) => {
                let end = |at: usize| usize::try_from(*offsets.get(at)?).ok()?.checked_mul(unit);
                end(index)?..end(index + 1)?
            }
            (None, None) => index * unit..(index + 1) * unit,
        };
        self.values.as_slice().get(span)
    }

    /// The bytes of an interned row, or what is wrong with a row.
    fn interned_row(&self, row: u64) -> Result<&[u8]> {
        let index = self.check_row(row)?;
        if self.codes.is_some() {
            return self.code(row)?.map_or(Ok(&[]), |code| self.dictionary_value(code));
        }
        if let Some(offsets) = &self.offsets {
            self.span(offsets, index)?;
        }
        Err(self.no_row(row))
    }

    /// The bytes of a row that has a value, `None` of one that has none.
    ///
    /// # Errors
    /// As [`FieldReader::row`].
    pub fn value(&self, row: u64) -> Result<Option<&[u8]>> {
        Ok(if self.is_valid(row)? { Some(self.row(row)?) } else { None })
    }

    /// Whether the row has a value.
    ///
    /// # Errors
    /// There is no such row, or a code or flag that cannot be.
    pub fn is_valid(&self, row: u64) -> Result<bool> {
        if self.codes.is_some() || self.field.categories.is_some() {
            return Ok(self.code(row)?.is_some());
        }
        let index = self.check_row(row)?;
        match self.valid.as_deref().map(|valid| valid.get(index)) {
            None | Some(Some(1)) => Ok(true),
            Some(Some(0)) => Ok(false),
            Some(_) => Err(self.damaged(FileRole::Valid, format!("row {row} is neither 0 nor 1"))),
        }
    }

    /// The entries of a row on the field's axis (of a free field: its scalars).
    ///
    /// # Errors
    /// The field has no axis, there is no such row, or its offsets are damaged.
    pub fn entries(&self, row: u64) -> Result<Range<u64>> {
        let (Some(offsets), None) = (&self.offsets, &self.codes) else {
            return Err(self.other_kind("axis"));
        };
        let span = self.span(offsets, self.check_row(row)?)?;
        let unit = self.unit_bytes().max(1);
        Ok((span.start / unit) as u64..(span.end / unit) as u64)
    }

    /// The shape of a row of a free field, as long as its rank; all zeros where it is absent.
    ///
    /// # Errors
    /// The field is not free, there is no such row, or its dims and offsets do not agree.
    pub fn dims(&self, row: u64) -> Result<&[i32]> {
        let Some(dims) = &self.dims else { return Err(self.other_kind("dims")) };
        let (index, rank) = (self.check_row(row)?, self.field.shape.len());
        let padded = dims.get(index * rank..(index + 1) * rank).unwrap_or_default();
        let len = padded.iter().position(|&dim| dim < 0).unwrap_or(rank);
        let (used, padding) = padded.split_at_checked(len).unwrap_or_default();
        let product = used
            .iter()
            .try_fold(1_u64, |product, &dim| product.checked_mul(u64::try_from(dim).ok()?));
        let entries = self.entries(row)?;
        // An absent row has no scalars and dims of 0, which the product says as well.
        if product != Some(entries.end - entries.start) || padding.iter().any(|&dim| dim != -1) {
            let what = format!("the dims {padded:?} of row {row} are not those of its scalars");
            return Err(self.damaged(FileRole::Dims, what));
        }
        Ok(used)
    }

    /// The code of an interned or categorical row, `None` where it has no value.
    ///
    /// # Errors
    /// The field has no codes, there is no such row, or its code is out of range.
    pub fn code(&self, row: u64) -> Result<Option<usize>> {
        let index = self.check_row(row)?;
        let (code, n_values, role) = if let Some(codes) = &self.codes {
            (codes.get(index).map(|&code| i64::from(code)), self.n_values(), FileRole::Codes)
        } else if let Some(categories) = &self.field.categories {
            let bytes = self.row(row)?;
            let code = crate::schema::integer(bytes, self.field.dtype);
            (Some(code), categories.len(), FileRole::Values)
        } else {
            return Err(self.other_kind("codes"));
        };
        match code.map(|code| (code, usize::try_from(code))) {
            Some((_, Ok(code))) if code < n_values => Ok(Some(code)),
            Some((-1, _)) if self.field.nullable => Ok(None),
            code => {
                let code = code.map_or(-1, |(code, _)| code);
                let what = format!("row {row} has the code {code} of {n_values} values");
                Err(self.damaged(role, what))
            }
        }
    }

    /// The code of an interned row; `None` also of any row of another kind.
    pub(super) fn code_of_interned(&self, row: u64) -> Result<Option<usize>> {
        if self.codes.is_some() { self.code(row) } else { Ok(None) }
    }

    /// The declared value of a categorical row, `None` where it has none.
    ///
    /// # Errors
    /// The field is not categorical, or as [`FieldReader::code`].
    pub fn category(&self, row: u64) -> Result<Option<&str>> {
        let Some(categories) = &self.field.categories else {
            return Err(self.other_kind("categories"));
        };
        Ok(self.code(row)?.and_then(|code| categories.get(code)).map(String::as_str))
    }

    /// Number of distinct values of an interned field; 0 of any other.
    #[must_use]
    pub fn n_values(&self) -> usize {
        match (&self.codes, &self.offsets) {
            (Some(_), Some(offsets)) => offsets.len().saturating_sub(1),
            _ => 0,
        }
    }

    /// The bytes that an interned field's code stands for.
    ///
    /// # Errors
    /// The field is not interned, there is no such code, or the dictionary is damaged.
    pub fn dictionary_value(&self, code: usize) -> Result<&[u8]> {
        let (Some(_), Some(offsets)) = (&self.codes, &self.offsets) else {
            return Err(self.other_kind("dictionary"));
        };
        if code >= self.n_values() {
            return Err(self.other_kind("value of that code"));
        }
        let span = self.span(offsets, code)?;
        Ok(self.values.as_slice().get(span).unwrap_or_default())
    }

    /// All bytes of the field's value file (of an interned field: of its dictionary).
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.values.as_slice()
    }

    /// The offsets: one more than rows, or of an interned field one more than values.
    #[must_use]
    pub fn offsets(&self) -> Option<&[i64]> {
        self.offsets.as_deref()
    }

    /// The scalars of all rows as numbers, in place where the mapping is aligned, else copied.
    /// `bool` is read as `UInt8Type`, what has a logical type as its dtype.
    ///
    /// # Errors
    /// The field's dtype is another, or the field is interned.
    pub fn typed<T: ArrowPrimitiveType>(&self) -> Result<ScalarBuffer<T::Native>> {
        let is_bool = self.field.dtype == Dtype::Bool && T::DATA_TYPE == UInt8Type::DATA_TYPE;
        if self.codes.is_some() || !(is_bool || T::DATA_TYPE == self.field.dtype.arrow()) {
            return Err(self.other_kind("numbers of that type"));
        }
        Ok(numbers::<T>(&self.values))
    }

    /// Copies rows of a fixed field into `out`, one after another, in the order asked.
    ///
    /// # Errors
    /// The field is not fixed, there is no such row, or `out` is not as long as the rows are.
    pub fn gather(&self, rows: &[u64], out: &mut [u8]) -> Result<()> {
        Self::check_gather(&self.field, rows.len(), out.len())?;
        let mut places = out.chunks_exact_mut(self.unit_bytes.max(1));
        rows.iter().zip(&mut places).try_for_each(|(row, place)| self.copy_row(*row, place))
    }

    /// Checks that `field` is fixed and `n_bytes` are what `n_rows` rows of it have.
    pub(crate) fn check_gather(field: &Field, n_rows: usize, n_bytes: usize) -> Result<()> {
        if field.kind != Kind::Fixed {
            let (field, kind) = (field.name.clone(), field.kind);
            return Err(ReadError::OtherKind { field, kind, asked: "rows of one size" });
        }
        let want = n_rows.saturating_mul(field.unit_bytes());
        if want != n_bytes {
            let field = field.name.clone();
            return Err(ReadError::BufferSize { field, n_rows, want, got: n_bytes });
        }
        Ok(())
    }

    /// Copies a row of a fixed field into `place`, which is as long.
    #[inline]
    pub(crate) fn copy_row(&self, row: u64, place: &mut [u8]) -> Result<()> {
        let from = usize::try_from(row).ok().and_then(|row| row.checked_mul(place.len()));
        let bytes =
            from.and_then(|from| self.values.as_slice().get(from..from.checked_add(place.len())?));
        place.copy_from_slice(bytes.ok_or_else(|| self.no_row(row))?);
        Ok(())
    }

    /// Collects rows of a field of any kind: `bytes` gets them one after another, `offsets` where
    /// each begins and the last one ends, in bytes from 0. Both are cleared first.
    ///
    /// # Errors
    /// As [`FieldReader::row`].
    pub fn gather_ragged(
        &self,
        rows: &[u64],
        bytes: &mut Vec<u8>,
        offsets: &mut Vec<i64>,
    ) -> Result<()> {
        bytes.clear();
        offsets.clear();
        offsets.push(0);
        for &row in rows {
            bytes.extend_from_slice(self.row(row)?);
            offsets.push(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    /// The same field with its bytes copied from the mappings into memory.
    pub(super) fn in_memory(&self) -> Self {
        let copy = |bytes: &Buffer| Buffer::from_slice_ref(bytes.as_slice());
        Self {
            field: self.field.clone(),
            folder: self.folder.clone(),
            n_rows: self.n_rows,
            unit_bytes: self.unit_bytes,
            valid: self.valid.as_ref().map(copy),
            values: copy(&self.values),
            offsets: self.offsets.as_ref().map(|offsets| offsets.iter().copied().collect()),
            dims: self.dims.as_ref().map(|dims| dims.iter().copied().collect()),
            codes: self.codes.as_ref().map(|codes| codes.iter().copied().collect()),
            dictionary: OnceLock::new(),
        }
    }

    /// The folder, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder.path
    }
}
