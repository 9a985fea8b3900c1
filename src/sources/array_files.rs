//! Opens files with arrays in them, and reads their heads.
//!
//! Leaves out: what a head says (`npy_header`, `idx`), and reading the values behind it.
//!
//! Invariant: what is wrong with one file is [`INPUT_DAMAGED`], so that under quarantine the next ones
//! are read.

use super::arrays::{ArrayHead, refused};
use super::content::{Content, Contents};
use super::input::Folder;
use super::{BadRow, INPUT_DAMAGED, Input, SourceError, idx, npy};

/// How an array stands in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Idx,
}

/// What readers of arrays have to know of their source.
#[derive(Debug)]
pub(super) struct Arrays {
    pub(super) folder: Folder,
    pub(super) format: Format,
    pub(super) contents: Contents,
    /// How labels are read, where the side inputs of a part are labels, one for each of its inputs in
    /// their order.
    pub(super) labels: Option<Contents>,
    /// Whether there are columns that tell of the file.
    pub(super) has_file_columns: bool,
}

impl Arrays {
    /// The head of an input.
    pub(super) fn head(&self, input: &Input) -> Result<ArrayHead, SourceError> {
        Ok(self.open(&self.contents, input)?.1)
    }

    /// The head of an input, or of a label file, whose rows are the entries of the first axis.
    pub(super) fn row_head(
        &self,
        contents: &Contents,
        input: &Input,
    ) -> Result<ArrayHead, SourceError> {
        of_rows(input, self.open(contents, input)?.1)
    }

    /// Rows of an input before a byte at which one begins.
    pub(super) fn rows_before(&self, path: &str, byte: u64) -> Option<u64> {
        let input = self.folder.stat(path).ok()?;
        let head = self.row_head(&self.contents, &input).ok()?;
        Some(head.rows_in(Some(&(byte..input.size)))?.start)
    }

    /// Opens a whole input behind its head, which has to agree with the input's size.
    pub(super) fn open(
        &self,
        contents: &Contents,
        input: &Input,
    ) -> Result<(Content, ArrayHead), SourceError> {
        let mut open = contents.open(input, None, None).map_err(damaged)?;
        let head = self.read_head(contents, input, &mut open)?;
        Ok((open, head))
    }

    pub(super) fn read_head(
        &self,
        contents: &Contents,
        input: &Input,
        open: &mut Content,
    ) -> Result<ArrayHead, SourceError> {
        let head = match self.format {
            Format::Npy => npy::read_head(input, open)?,
            Format::Idx => idx::read_head(input, open)?,
        };
        // To how much an input decodes is seen when it has been.
        let size = (!contents.is_decoded(&input.path)).then_some(input.size);
        head.check(size).map_err(|refusal| refused(input, refusal))?;
        Ok(head)
    }
}

/// Refuses arrays of which no row can be read alone.
pub(super) fn of_rows(input: &Input, head: ArrayHead) -> Result<ArrayHead, SourceError> {
    let why = match head.n_rows() {
        None => "an array without axes, a single value, has no rows",
        Some(_) if head.is_fortran => "the array is stored column by column (Fortran order)",
        Some(_) => return Ok(head),
    };
    let hint = "set `rows = \"file\"`, or save `numpy.ascontiguousarray(array)`";
    Err(refused(input, (why.into(), hint)))
}

/// The ends of rows at which a file of `size` bytes is cut: each the first one, of at least one row,
/// at or after a multiple of `partition_bytes`.
pub(super) fn cut_points(head: &ArrayHead, size: u64, partition_bytes: u64) -> Vec<u64> {
    let (row_bytes, multiple) = (head.row_bytes().max(1), partition_bytes.max(1));
    let mut cuts = Vec::new();
    let mut target = multiple;
    while target < size {
        let n_rows = target.saturating_sub(head.start).div_ceil(row_bytes).max(1);
        let cut = head.start + n_rows * row_bytes;
        if cut >= size {
            break;
        }
        cuts.push(cut);
        target = (cut / multiple + 1) * multiple;
    }
    cuts
}

pub(super) const FEWER_BYTES: &str = "there are fewer bytes than the head says";
pub(super) const MORE_BYTES: &str = "there are more bytes than the head says";

/// What an input decodes to has another length than its head says.
pub(super) fn other_length(input: &Input, message: &str) -> SourceError {
    BadRow::new(INPUT_DAMAGED, message)
        .hint("the file was not written to its end, or something else follows; write it again")
        .into_error(&input.path, "its end")
}

/// What decoding says of damage, as what is wrong with a row and those behind it.
pub(super) fn damaged(e: SourceError) -> SourceError {
    match e {
        SourceError::Invalid { path, at, message, hint } => {
            let bad = BadRow { hint, ..BadRow::new(INPUT_DAMAGED, message) };
            bad.into_error(&path, at)
        }
        e => e,
    }
}
