//! The `arrow` source: one row per row of Arrow IPC files and streams.
//!
//! - Whether an input is a file or a stream, its first bytes say. Bodies may be compressed, columns
//!   may be dictionaries. Columns and their types are those of the first input; every input must have
//!   the same ones, in any order. `columns` names those that are read.
//! - Large files are cut at record batches, unless they have dictionaries; streams are not. The digest
//!   of a range is of its bytes and then of the footer, which says where its batches are.
//!
//! Invariants:
//! 1. Memory is bounded by `max_batch_bytes`, whatever sizes a file claims.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use schemars::JsonSchema;
use serde::Deserialize;

use super::arrow_table::{ArrowTable, footer_range};
use super::columnar::{Selected, at_multiples, plain_schema};
use super::input::Folder;
use super::listing::Listing;
use super::settings::Size;
use super::table::{Flaw, Format, Table, TableReader, digests};
use super::{
    BatchLimits, BatchReader, Input, InputDigest, InputRange, Part, SettingsError, Source,
    SourceError, SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;

pub(super) const TYPE: SourceType = SourceType {
    name: "arrow",
    version: 1,
    about: "one row per row of Arrow IPC files or streams",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(ArrowIpc::new(spec)?)),
};

/// Settings of the `arrow` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The columns that are read; `a.b` is a field of the struct `a`.
    columns: Option<Vec<String>>,
    /// Most bytes of a record batch, decompressed, and of all dictionaries.
    #[serde(default = "default_batch_bytes")]
    max_batch_bytes: Size,
}

fn default_batch_bytes() -> Size {
    Size(64 << 20)
}

/// The source; readers share it.
#[derive(Debug, Clone)]
struct ArrowIpc {
    listing: Listing,
    selected: Selected,
    batch_bytes: u64,
}

impl ArrowIpc {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let selected = Selected::new(settings.columns)?;
        let batch_bytes = settings.max_batch_bytes.0;
        Ok(Self { listing: Listing::new(spec)?, selected, batch_bytes })
    }

    fn table(&self, input: &Input, range: Option<&Range<u64>>) -> Result<ArrowTable, Flaw> {
        let open = self.folder().open_anywhere(input).map_err(Flaw::Input)?;
        ArrowTable::new(open, range, &self.selected, self.batch_bytes)
    }

    fn planned(&self, input: &Input) -> Result<ArrowTable, SourceError> {
        self.table(input, None).map_err(|flaw| flaw.into_error(input, "schema"))
    }
}

impl Format for ArrowIpc {
    fn folder(&self) -> &Folder {
        self.listing.folder()
    }

    fn open(&self, read: &InputRange, _: BatchLimits) -> Result<Box<dyn Table>, Flaw> {
        Ok(Box::new(self.table(&read.input, read.range.as_ref())?))
    }

    fn tail(&self, input: &Input) -> Result<Range<u64>, SourceError> {
        let open = self.folder().open_anywhere(input)?;
        footer_range(&open).map_err(|flaw| flaw.into_error(input, "footer"))
    }
}

impl Source for ArrowIpc {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let Some(input) = first else { return Ok(SchemaRef::new(arrow_schema::Schema::empty())) };
        Ok(plain_schema(self.planned(input)?.schema()))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        let multiple = partition_bytes.max(1);
        if input.size <= multiple {
            return Ok(Vec::new());
        }
        Ok(at_multiples(&self.planned(input)?.group_starts(), multiple))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        let format = Box::new(self.clone());
        Ok(Box::new(TableReader::new(format, part, schema, limits, restart)?))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        digests(self, part)
    }

    fn rows_hint(&self, input: &Input) -> Option<u64> {
        self.planned(input).ok()?.n_rows()
    }

    fn rows_before(&self, path: &str, byte: u64) -> Option<u64> {
        let input = self.folder().stat(path).ok()?;
        let table = self.table(&input, Some(&(byte..input.size))).ok()?;
        table.group_starts().contains(&byte).then(|| table.rows_before())?
    }

    fn reader_bytes(&self, _inputs: &[Input], limits: BatchLimits) -> u64 {
        // What is read and decompressed; a copy where values are not aligned; what is made of it.
        let batch = limits.row_bytes.max(limits.bytes as u64);
        self.batch_bytes.saturating_mul(2).saturating_add(batch)
    }
}
