//! Whether the inputs are still what a dataset was built from.
//!
//! Leaves out: building anything anew, which a run does by itself where it sees a change.
//!
//! Invariants:
//! 1. Every input is read whole: neither size nor times are believed.
//! 2. What is compared with are the records that the current generation names.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::Serialize;

use super::assembly::SourceStage;
use super::{Pipeline, PipelineError};
use crate::dataset::DatasetError;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::{Contents, Record, RecordName};
use crate::dataset::stamps::Stamps;
use crate::inputs::{Input, InputRange, Part};
use crate::sources::SourceError;

/// What an input has become since it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceState {
    /// It is not there.
    Missing,
    /// It is there now, and was not.
    Added,
    /// It has another size.
    Resized,
    /// It has other bytes, and was seen to be written.
    Changed,
    /// It has other bytes under the same size and times.
    ChangedUnseen,
    /// It cannot be read.
    Unreadable,
}

impl SourceState {
    /// What is said of it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Missing => "is not there any more",
            Self::Added => "is new",
            Self::Resized => "has another size",
            Self::Changed => "has other bytes",
            Self::ChangedUnseen => "has other bytes, under the same size and times",
            Self::Unreadable => "cannot be read",
        }
    }
}

/// The inputs of one source by path; several ranges where a file is cut.
type Inputs = BTreeMap<String, Vec<Contents>>;

/// One input that is not what the dataset was built from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFinding {
    /// Its source.
    pub source: String,
    /// Its path, relative to its source's root.
    pub path: String,
    /// What it has become.
    pub state: SourceState,
}

/// What reading all inputs again came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcesReport {
    /// Inputs that the dataset was built from.
    pub inputs: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Those that are not what they were, sorted by path.
    pub findings: Vec<SourceFinding>,
}

impl Pipeline {
    /// Hashes every input again and compares it with the records of the current generation. Calls
    /// `progress` with the bytes read so far and those to be read.
    ///
    /// # Errors
    /// There is no complete dataset, its records are damaged, or the inputs cannot be listed.
    pub fn verify_sources(
        &self,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<SourcesReport, PipelineError> {
        let recorded = self.recorded()?;
        let fingerprinting = self.definition.run.fingerprint;
        let stamps = Stamps::read(&*self.storage, &self.home, fingerprinting, SystemTime::now())?;
        let inputs = recorded.values().map(|it| it.len() as u64).sum();
        let all = || recorded.values().flat_map(BTreeMap::values).flatten();
        let total = all().map(|it| it.size).sum();
        let mut report = SourcesReport { inputs, bytes: 0, findings: Vec::new() };
        let nothing = BTreeMap::new();
        // Behind a limit there are inputs, and ranges of them, that were not read.
        let is_limited = self.definition.data.dataset.limit_rows.is_some();
        for stage in &self.sources {
            let listed = stage.source.list().map_err(|e| stage.error(e))?;
            let side = stage.source.side_inputs(&listed).map_err(|e| stage.error(e))?;
            let listed: BTreeMap<String, Input> =
                listed.into_iter().chain(side).map(|input| (input.path.clone(), input)).collect();
            let recorded = recorded.get(stage.name()).unwrap_or(&nothing);
            let source = stage.name();
            let mut found = |path: &str, state| {
                let (source, path) = (source.to_owned(), path.to_owned());
                report.findings.push(SourceFinding { source, path, state });
            };
            for (path, parts) in recorded {
                let state = match listed.get(path) {
                    None => Some(SourceState::Missing),
                    Some(input) => compare(stage, input, parts, is_limited, &stamps)?,
                };
                report.bytes += parts.iter().map(|it| it.size).sum::<u64>();
                progress(report.bytes, total);
                if let Some(state) = state {
                    found(path, state);
                }
            }
            if !is_limited {
                for path in listed.keys().filter(|path| !recorded.contains_key(*path)) {
                    found(path, SourceState::Added);
                }
            }
        }
        report.findings.sort_by(|a, b| (&a.source, &a.path).cmp(&(&b.source, &b.path)));
        Ok(report)
    }

    /// What the current generation read, by source and path.
    fn recorded(&self) -> Result<BTreeMap<String, Inputs>, PipelineError> {
        let (storage, dir) = (&*self.storage, self.home.dir());
        let Some((_, manifest)) = Manifest::current(storage, dir)? else {
            let message = "there is nothing to compare the inputs with".to_owned();
            return Err(DatasetError::NoDataset { path: dir.to_owned(), message }.into());
        };
        let mut recorded: BTreeMap<String, Inputs> = BTreeMap::new();
        for partition in &manifest.partitions {
            let Some(name) = RecordName::parse(&partition.record) else { continue };
            let record = Record::read(storage, dir, self.home.cache_key(), &name)?;
            let of_source = recorded.entry(record.source).or_default();
            for input in record.inputs.into_iter().chain(record.side) {
                let parts = of_source.entry(input.path.clone()).or_default();
                if !parts.contains(&input) {
                    parts.push(input);
                }
            }
        }
        Ok(recorded)
    }
}

/// What has become of one input, `None` if it is the same as far as it was read.
fn compare(
    stage: &SourceStage,
    input: &Input,
    parts: &[Contents],
    is_limited: bool,
    stamps: &Stamps,
) -> Result<Option<SourceState>, PipelineError> {
    let read = parts.iter().map(|it| it.range.map_or(it.size, |[_, end]| end)).max();
    let is_part = is_limited && parts.iter().all(|it| it.range.is_some());
    if read.is_none_or(|read| read > input.size || (read < input.size && !is_part)) {
        return Ok(Some(SourceState::Resized));
    }
    for part in parts {
        let range = part.range.map(|[start, end]| start..end);
        let range = InputRange { input: input.clone(), range };
        let alone = Part { inputs: vec![range.clone()], side: Vec::new() };
        let found = match stage.source.digests(&alone) {
            Ok(found) => found.first().map(|digest| digest.blake3),
            Err(SourceError::Io { .. } | SourceError::Remote(_)) => {
                return Ok(Some(SourceState::Unreadable));
            }
            Err(SourceError::Changed { .. }) => return Ok(Some(SourceState::Changed)),
            Err(error) => return Err(stage.error(error)),
        };
        if found != Some(part.b3) {
            let believed = stamps.digest(&stage.root, &range).map(|digest| digest.blake3);
            let is_unseen = believed == Some(part.b3);
            return Ok(Some(if is_unseen {
                SourceState::ChangedUnseen
            } else {
                SourceState::Changed
            }));
        }
    }
    Ok(None)
}
