//! Where the rows stand in their inputs that people are told of.
//!
//! Invariant: no row is read to find another. The number of a row in an input that is cut is what its
//! source knows of the rows before the range, from the input as it is now.

use std::sync::Arc;

use super::assembly::SourceStage;
use super::run::on_thread;
use super::{Pipeline, PipelineError, RejectReport, RowContents, StageError};
use crate::batch::{BadRow, Batch};
use crate::dataset::DatasetError;
use crate::graph::LinkError;
use crate::inputs::{Part, RowPlace};
use crate::schema::SchemaError;
use crate::shard::ShardError;
use crate::sources::Source;
use crate::transforms::TransformError;

impl Pipeline {
    /// Finds the number of a row, which an input of the source of that name holds, in that input.
    fn count(&self, source: Option<&str>, place: &mut RowPlace) {
        let lists_it = |stage: &&SourceStage| source.is_none_or(|name| name == stage.name());
        if let Some(stage) = self.sources.iter().find(lists_it) {
            place.count(|path, byte| stage.source.rows_before(path, byte));
        }
    }

    /// Finds the numbers of the first rows of these kinds of rejects in their inputs.
    pub fn count_rejects(&self, kinds: &mut [RejectReport]) {
        for kind in kinds {
            self.count(kind.source.as_deref(), &mut kind.place);
        }
    }

    /// Finds the number of a row in its input.
    pub fn count_row(&self, row: &mut RowContents) {
        self.count(row.source.as_deref(), &mut row.place);
    }

    /// The same error, with the numbers of the rows that it names in their inputs.
    pub(super) fn with_rows_counted(&self, error: DatasetError) -> PipelineError {
        let mut error = error;
        if let DatasetError::DuplicateKey { rows, .. } = &mut error {
            for origin in rows.iter_mut().filter_map(|row| row.origin.as_mut()) {
                self.count(origin.source.as_deref(), &mut origin.place);
            }
        }
        error.into()
    }
}

impl StageError {
    /// The error with the source row of `batch` that it is about, while that was being written.
    pub(super) fn in_batch(self, part: &Part, batch: &Batch) -> Self {
        let (Self::Shard(ShardError::Schema(value))
        | Self::Dataset(DatasetError::Shard(ShardError::Schema(value)))) = self
        else {
            return self;
        };
        let SchemaError::Value { row, field, code, message, hint } = value else {
            return Self::Shard(ShardError::Schema(value));
        };
        let position = batch.provenance.position(row as u64).unwrap_or_default();
        let place = place_of(part, position.input, position.source_row);
        let bad = Box::new(BadRow { code, field: Some(field), message, hint });
        Self::Row { place, bad }
    }

    /// The error with the place of the row that it is about in `part`, which `source` reads.
    pub(super) fn in_part(self, part: &Part, source: &dyn Source) -> Self {
        let mut error = self.placed(part);
        if let Some(place) = error.place_mut() {
            place.count(|path, byte| source.rows_before(path, byte));
        }
        error
    }

    /// The same, where nothing may block.
    pub(super) async fn in_part_of(self, part: &Part, source: &Arc<dyn Source>) -> Self {
        let mut error = self.placed(part);
        if let Some(place) = error.place_mut() {
            let (mut counted, source) = (place.clone(), Arc::clone(source));
            let counting = move || {
                counted.count(|path, byte| source.rows_before(path, byte));
                Ok(counted)
            };
            // The number helps people; without it the error is what it is.
            if let Ok(counted) = on_thread(counting).await {
                *place = counted;
            }
        }
        error
    }

    fn placed(self, part: &Part) -> Self {
        match self {
            Self::Link(LinkError {
                source: TransformError::Row { input, source_row, bad },
                ..
            }) => Self::Row { place: place_of(part, input, source_row), bad },
            other => other,
        }
    }

    fn place_mut(&mut self) -> Option<&mut RowPlace> {
        match self {
            Self::Row { place, .. }
            | Self::Shard(ShardError::RowTooLarge { place, .. })
            | Self::Dataset(DatasetError::Shard(ShardError::RowTooLarge { place, .. })) => {
                Some(place)
            }
            _ => None,
        }
    }
}

fn place_of(part: &Part, input: u32, source_row: u64) -> RowPlace {
    let range = usize::try_from(input).ok().and_then(|i| part.inputs.get(i));
    match range {
        Some(range) => range.row(source_row),
        None => RowPlace::new(&format!("input {input}"), None, source_row),
    }
}
