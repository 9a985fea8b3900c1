//! The texts that the `files` source finds beside and around its inputs.
//!
//! Invariant: which text belongs to an input is decided by the part's side inputs, not by looking
//! at the disk again; rows and slot therefore speak of the same files.

use std::collections::{HashMap, VecDeque};

use super::input::{Folder, PartDigests};
use super::listing::{folder_of, folders_around};
use super::{BadRow, NOT_UTF8, SourceError};
use crate::inputs::{Input, Part};

/// Sibling texts that are kept for the next rows.
const N_KEPT: usize = 8;
/// Bytes of sibling texts that are kept, beside the last one.
pub(super) const KEPT_BYTES: usize = 1 << 20;
/// The texts of side inputs, the last few of them kept.
pub(super) struct Siblings {
    /// Index in the part's side inputs of the one that lies in a folder.
    by_folder: HashMap<String, usize>,
    /// The newest last.
    kept: VecDeque<(usize, String)>,
}

impl Siblings {
    /// For rows without siblings.
    pub(super) fn none() -> Self {
        Self { by_folder: HashMap::new(), kept: VecDeque::new() }
    }

    /// For the rows of `part`.
    pub(super) fn of_part(part: &Part) -> Self {
        let side = part.side.iter().enumerate();
        let by_folder = side.map(|(i, input)| (folder_of(&input.path).to_owned(), i)).collect();
        Self { by_folder, kept: VecDeque::new() }
    }

    fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|(_, text)| text.len()).sum()
    }

    /// The side input that belongs to an input.
    pub(super) fn find<'a>(&self, part: &'a Part, path: &str) -> Option<(usize, &'a Input)> {
        if self.by_folder.is_empty() {
            return None;
        }
        let index = folders_around(path).find_map(|folder| self.by_folder.get(folder))?;
        part.side.get(*index).map(|side| (*index, side))
    }

    /// The text of side input number `index`, which is `side`.
    pub(super) fn text(
        &mut self,
        index: usize,
        side: &Input,
        folder: &Folder,
        digests: &mut PartDigests,
    ) -> Result<&str, SourceError> {
        if let Some(at) = self.kept.iter().position(|(i, _)| *i == index) {
            return Ok(self.kept.get(at).map_or("", |(_, text)| text.as_str()));
        }
        while self.kept.len() >= N_KEPT || self.kept_bytes() > KEPT_BYTES {
            self.kept.pop_front();
        }
        let mut open = folder.open(side, None, None)?;
        let mut bytes = Vec::new();
        open.append_to(&mut bytes, usize::MAX)?;
        digests.set_side(index, open.digest()?);
        check_text(&side.path, &bytes)?;
        let text = String::from_utf8(bytes).unwrap_or_default();
        self.kept.push_back((index, text));
        Ok(self.kept.back().map_or("", |(_, text)| text.as_str()))
    }
}

/// The bytes of an input as text.
pub(super) fn check_text<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a str, SourceError> {
    std::str::from_utf8(bytes).map_err(|e| {
        let message = format!("not UTF-8 from byte {} on", e.valid_up_to());
        let bad = BadRow::new(NOT_UTF8, message);
        bad.hint("convert the file, or leave it out of the source").into_error(path, "row 0")
    })
}
