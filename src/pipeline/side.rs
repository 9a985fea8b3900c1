//! Digests of side inputs and of the files of hooks, which a slot covers.

use std::collections::{BTreeMap, HashMap};

use super::assembly::SourceStage;
use super::plan::Hashed;
use super::{Pipeline, PipelineError};
use crate::dataset::stamps::Stamps;
use crate::inputs::{Input, InputRange, Part};
use crate::sources::SourceError;
use crate::sources::input::Folder;

impl Pipeline {
    /// The folder that holds them, and where it is, as text.
    pub(super) fn hook_folder(&self) -> (Folder, String) {
        let folder = Folder::new(&self.definition.folder);
        let absolute = std::path::absolute(folder.root());
        let root = absolute.unwrap_or_else(|_| folder.root().to_owned()).display().to_string();
        (folder, root)
    }

    /// The files that the transforms name.
    pub(super) fn hook_files(&self, stamps: &Stamps) -> Result<HookFiles, PipelineError> {
        let (folder, root) = self.hook_folder();
        let mut hashed = Hashed::default();
        let mut found: Vec<(Input, String)> = Vec::new();
        for (name, transform) in self.named_transforms() {
            for path in transform.files() {
                if found.iter().any(|(input, _)| input.path == *path) {
                    continue;
                }
                let error = |source| PipelineError::hook_file(name, &folder, source);
                let input = folder.stat(path).map_err(error)?;
                let range = InputRange { input: input.clone(), range: None };
                let known = stamps.digest(&root, &range).map(|digest| digest.blake3);
                let b3 = if let Some(b3) = known {
                    b3
                } else {
                    let part = Part { inputs: Vec::new(), side: vec![input.clone()] };
                    hashed.add(&part);
                    let digests = folder.digests(&part).map_err(error)?;
                    let changed = || error(SourceError::Changed { path: path.clone() });
                    let b3 = digests.first().ok_or_else(changed)?.blake3;
                    stamps.learn(&root, &range, b3)?;
                    b3
                };
                found.push((input, b3.to_hex().to_string()));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
        Ok(HookFiles { files: found, hashed })
    }
}

/// The files that transforms name.
#[derive(Default)]
pub(super) struct HookFiles {
    /// Each with its digest as hex digits.
    pub(super) files: Vec<(Input, String)>,
    /// What had to be hashed.
    pub(super) hashed: Hashed,
}

impl HookFiles {
    /// Their digests, by path.
    pub(super) fn by_path(&self) -> BTreeMap<String, String> {
        self.files.iter().map(|(input, b3)| (input.path.clone(), b3.clone())).collect()
    }
}

/// Digests of the side inputs of one source, each found once.
pub(super) struct SideDigests<'a> {
    stage: &'a SourceStage,
    stamps: &'a Stamps,
    known: HashMap<String, String>,
}

impl<'a> SideDigests<'a> {
    /// Nothing is known yet but what the stamps tell.
    pub(super) fn new(stage: &'a SourceStage, stamps: &'a Stamps) -> Self {
        Self { stage, stamps, known: HashMap::new() }
    }

    /// The digest of `input`, as hex digits.
    pub(super) fn of(
        &mut self,
        input: &Input,
        hashed: &mut Hashed,
    ) -> Result<String, PipelineError> {
        if let Some(b3) = self.known.get(&input.path) {
            return Ok(b3.clone());
        }
        let range = InputRange { input: input.clone(), range: None };
        let digest = match self.stamps.digest(&self.stage.root, &range) {
            Some(digest) => digest.blake3,
            None => self.hash(&range, hashed)?,
        };
        let b3 = digest.to_hex().to_string();
        self.known.insert(input.path.clone(), b3.clone());
        Ok(b3)
    }

    fn hash(&self, range: &InputRange, hashed: &mut Hashed) -> Result<blake3::Hash, PipelineError> {
        let part = Part { inputs: Vec::new(), side: vec![range.input.clone()] };
        hashed.add(&part);
        let digests = self.stage.source.digests(&part).map_err(|e| self.stage.error(e))?;
        let changed = || SourceError::Changed { path: range.input.path.clone() };
        let digest = digests.first().ok_or_else(|| self.stage.error(changed()))?;
        self.stamps.learn(&self.stage.root, range, digest.blake3)?;
        Ok(digest.blake3)
    }
}
