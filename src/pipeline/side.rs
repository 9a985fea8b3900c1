//! Digests of side inputs, which a slot covers.

use std::collections::HashMap;

use super::PipelineError;
use super::assembly::SourceStage;
use super::plan::Hashed;
use crate::dataset::stamps::Stamps;
use crate::inputs::{Input, InputRange, Part};
use crate::sources::SourceError;

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
