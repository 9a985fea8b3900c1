//! A source of any number of inputs that are on no disk, with a row each.

use std::sync::Arc;
use std::time::SystemTime;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rowmill::batch::{Batch, Provenance, Restart, Run};
use rowmill::sources::{
    BatchLimits, BatchReader, Input, InputDigest, InputRange, Part, Source, SourceError,
    SourceType, parse_settings,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) const MANY: SourceType = SourceType {
    name: "many",
    version: 1,
    about: "one row per input that is nowhere",
    settings: Many::json_schema,
    make: |spec| Ok(Box::new(parse_settings::<Many>(&spec.settings)?)),
};

/// Its settings.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Many {
    /// How many inputs there are.
    inputs: u64,
    /// How large each is said to be.
    bytes: u64,
}

impl Source for Many {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        let modified = SystemTime::UNIX_EPOCH;
        let input = |n: u64| Input {
            path: format!("train/part-{:05}/sample-{n:08}.bin", n / 1000),
            size: self.bytes,
            modified,
            changed: Some(modified),
        };
        Ok((0..self.inputs).map(input).collect())
    }

    fn schema(&self, _first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        Ok(Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)])))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        let (part, schema) = (Arc::clone(part), Arc::clone(schema));
        Ok(Box::new(Reader { part, schema, rows: limits.rows, next: restart.input }))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        Ok(part.inputs.iter().map(digest).collect())
    }

    fn rows_hint(&self, _input: &Input) -> Option<u64> {
        Some(1)
    }

    fn reader_bytes(&self, _inputs: &[Input], _limits: BatchLimits) -> u64 {
        1 << 20
    }
}

/// What would stand in the input.
pub(crate) fn digest(range: &InputRange) -> InputDigest {
    let path = range.input.path.clone();
    InputDigest { blake3: blake3::hash(path.as_bytes()), size: range.bytes(), path }
}

struct Reader {
    part: Arc<Part>,
    schema: SchemaRef,
    rows: usize,
    next: u32,
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let restart = Restart { input: self.next, ..Restart::default() };
        let (mut ids, mut provenance) = (Vec::<i64>::new(), Provenance::new());
        for range in self.part.inputs.iter().skip(self.next as usize).take(self.rows) {
            let digits: String = range.input.path.chars().filter(char::is_ascii_digit).collect();
            // The number of the folder, then that of the input: no two are alike.
            ids.push(digits.parse().unwrap_or_default());
            provenance.push_run(Run { row: 0, input: self.next, source_row: 0, sub_row: -1 }, 1);
            self.next += 1;
        }
        if ids.is_empty() {
            return Ok(None);
        }
        let ids: ArrayRef = Arc::new(Int64Array::from(ids));
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), vec![ids])?;
        Ok(Some(Batch { rows, provenance, events: Vec::new(), restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        Ok(self.part.inputs.iter().map(digest).collect())
    }
}
