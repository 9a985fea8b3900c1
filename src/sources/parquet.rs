//! The `parquet` source: one row per row of Parquet files.
//!
//! - Columns and their types are those of the first input; every input must have the same ones, in
//!   any order. `columns` names those that are read; nothing of the others is.
//! - Large files are cut at row groups. The digest of a range is of its bytes and then of the footer,
//!   which says what and where its rows are.
//! - Pages with a checksum are compared with it. Encrypted files are refused.
//!
//! Invariants:
//! 1. Memory is bounded by `page_bytes` and `max_row_bytes`, whatever sizes a file claims.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use schemars::JsonSchema;
use serde::Deserialize;

use super::columnar::{Selected, at_multiples, plain_schema};
use super::input::Folder;
use super::listing::Listing;
use super::parquet_footer::{footer, footer_range, n_rows};
use super::parquet_table::ParquetTable;
use super::settings::Size;
use super::table::{Flaw, Format, Table, TableReader, digests};
use super::{
    BatchLimits, BatchReader, Input, InputDigest, InputRange, OnError, Part, SettingsError, Source,
    SourceError, SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;

pub(super) const TYPE: SourceType = SourceType {
    name: "parquet",
    version: 1,
    about: "one row per row of Parquet files",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Parquet::new(spec)?)),
};

/// Settings of the `parquet` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The columns that are read; `a.b` is a field of the struct `a`.
    columns: Option<Vec<String>>,
    /// Most bytes that the pages take which are read at once: of each column one page and one
    /// dictionary.
    #[serde(default = "default_page_bytes")]
    page_bytes: Size,
}

fn default_page_bytes() -> Size {
    Size(32 << 20)
}

/// The source; readers share it.
#[derive(Debug, Clone)]
pub(super) struct Parquet {
    listing: Listing,
    pub(super) selected: Selected,
    pub(super) page_bytes: u64,
}

impl Parquet {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let selected = Selected::new(settings.columns)?;
        Ok(Self { listing: Listing::new(spec)?, selected, page_bytes: settings.page_bytes.0 })
    }

    fn table(
        &self,
        input: &Input,
        range: Option<&Range<u64>>,
        limits: BatchLimits,
    ) -> Result<ParquetTable, Flaw> {
        let open = self.folder().open_anywhere(input).map_err(Flaw::Input)?;
        ParquetTable::new(open, range, &self.selected, self.page_bytes, limits)
    }
}

/// Limits of planning, which reads no rows.
const NO_ROWS: BatchLimits =
    BatchLimits { rows: 1, bytes: 1, row_bytes: u64::MAX, on_error: OnError::Fail };

impl Format for Parquet {
    fn folder(&self) -> &Folder {
        self.listing.folder()
    }

    fn open(&self, read: &InputRange, limits: BatchLimits) -> Result<Box<dyn Table>, Flaw> {
        Ok(Box::new(self.table(&read.input, read.range.as_ref(), limits)?))
    }

    fn tail(&self, input: &Input) -> Result<Range<u64>, SourceError> {
        let open = self.folder().open_anywhere(input)?;
        footer_range(&open).map_err(|flaw| flaw.into_error(input, "footer"))
    }
}

impl Source for Parquet {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let Some(input) = first else { return Ok(SchemaRef::new(arrow_schema::Schema::empty())) };
        let table = self.table(input, None, NO_ROWS);
        let table = table.map_err(|flaw| flaw.into_error(input, "footer"))?;
        Ok(plain_schema(table.schema()))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        let multiple = partition_bytes.max(1);
        if input.size <= multiple {
            return Ok(Vec::new());
        }
        let table = self.table(input, None, NO_ROWS);
        let table = table.map_err(|flaw| flaw.into_error(input, "footer"))?;
        Ok(at_multiples(&table.group_starts(), multiple))
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
        let open = self.folder().open_anywhere(input).ok()?;
        n_rows(&footer(&open, self.page_bytes).ok()?)
    }

    fn rows_before(&self, path: &str, byte: u64) -> Option<u64> {
        let input = self.folder().stat(path).ok()?;
        self.table(&input, Some(&(byte..input.size)), NO_ROWS).ok()?.rows_before()
    }

    fn reader_bytes(&self, _inputs: &[Input], limits: BatchLimits) -> u64 {
        // A footer; pages that are held and those that a row begins and ends in; such a row, and what
        // is made of it.
        let batch = limits.row_bytes.max(limits.bytes as u64);
        self.page_bytes.saturating_mul(4).saturating_add(batch)
    }
}
