//! The digests of everything that a partition reads, taken as it is read.

use super::SourceError;
use super::ahead::Ahead;
use super::input::Folder;
use crate::inputs::{Input, InputDigest, Part};

/// The digests of a part that is being read, as they become known.
#[derive(Debug)]
pub struct PartDigests {
    folder: Folder,
    ahead: Ahead,
    /// Inputs, then side inputs.
    known: Vec<Option<blake3::Hash>>,
    n_inputs: usize,
}

impl PartDigests {
    /// Nothing is known yet of `part`.
    #[must_use]
    pub fn new(folder: Folder, part: &Part) -> Self {
        let known = vec![None; part.inputs.len() + part.side.len()];
        Self { ahead: folder.ahead(), folder, known, n_inputs: part.inputs.len() }
    }

    /// Asks for inputs that are opened next, in that order, where they are objects of a store.
    pub(super) fn ask_ahead<'a>(&self, upcoming: impl Iterator<Item = &'a Input>) {
        self.ahead.ask(upcoming);
    }

    /// The same, of the inputs of `part` from number `index` on.
    pub(super) fn ask_from(&self, part: &Part, index: usize) {
        let whole = part.inputs.iter().skip(index).filter(|read| read.range.is_none());
        self.ask_ahead(whole.map(|read| &read.input));
    }

    /// Takes the digest of input number `index`.
    pub fn set_input(&mut self, index: usize, digest: blake3::Hash) {
        if let Some(known) = self.known.get_mut(index) {
            *known = Some(digest);
        }
    }

    /// Takes the digest of side input number `index`.
    pub fn set_side(&mut self, index: usize, digest: blake3::Hash) {
        self.set_input(self.n_inputs + index, digest);
    }

    /// All digests of `part`, the one that [`PartDigests::new`] was given; what is not known yet is
    /// read now.
    ///
    /// # Errors
    /// An input that cannot be read, or is not what was listed.
    pub fn finish(&mut self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        let read_at = |index: usize| match part.inputs.get(index) {
            Some(read) => Some((&read.input, read.range.as_ref(), read.bytes())),
            None => part.side.get(index - part.inputs.len()).map(|side| (side, None, side.size)),
        };
        let unknown = self.known.iter().enumerate().filter(|(_, known)| known.is_none());
        let unknown: Vec<usize> = unknown.map(|(index, _)| index).collect();
        for (n_known, &index) in unknown.iter().enumerate() {
            let upcoming = unknown.iter().skip(n_known).filter_map(|index| read_at(*index));
            self.ask_ahead(upcoming.filter(|it| it.1.is_none()).map(|it| it.0));
            let Some((input, range, _)) = read_at(index) else { continue };
            let digest = self.folder.digest(input, range)?;
            self.set_input(index, digest);
        }
        let mut digests = Vec::with_capacity(self.known.len());
        for (index, known) in self.known.iter().enumerate() {
            let (Some((input, _, size)), Some(blake3)) = (read_at(index), *known) else { continue };
            digests.push(InputDigest { path: input.path.clone(), size, blake3 });
        }
        Ok(digests)
    }
}
