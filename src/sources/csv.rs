//! The `csv` source: one row per record of delimited text files.
//!
//! - The first record names the columns (`header = false`: `columns` does, or they are called
//!   `column_0`, `column_1`, …, as is a column with an empty name). Every input must have the first
//!   one's columns; their order may differ, but not in an input that is cut.
//! - A column's type is what `types` says, else it is inferred from the first 1,000 records
//!   (`infer_rows`; those that end within the first 16 MiB) of the first input: int64, else float64,
//!   else bool, else utf8, the first of them that every value is that is not null; utf8 where all
//!   are null. A column of integers that int64 cannot hold is utf8.
//! - A field that equals one of `null_values` (the empty one, unless said otherwise) is null,
//!   quoted or not, in every column. Every column is nullable.
//! - Around numbers and truth values, spaces and tabs do not count. Truth values are `true`,
//!   `True`, `TRUE`, `1` and their opposites.
//! - Compressed inputs are decoded (`content`); such an input is not cut.
//! - Records end with `\n`, `\r\n` or `\r`; empty lines are skipped; a byte order mark is skipped.
//!
//! Invariants:
//! 1. A value that is not of its column's type, a record with too many or too few fields and a
//!    quote that is never closed are errors that name input, line, row and field.
//! 2. The cursor of a restart is the offset of a record in its file, or in what that decodes to.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::content::{Compression, Contents};
use super::csv_reader::Reader;
use super::csv_records::{CHUNK_BYTES, Dialect, Flaw, Records};
use super::listing::Listing;
use super::text_cuts::{line_cuts, quoted_cuts};
use super::text_lines::{LineEnd, place_of};
use super::value_type::{Inference, ValueType};
use super::{
    BadRow, BatchLimits, BatchReader, INPUT_DAMAGED, Input, InputDigest, InputRange, OnError, Part,
    ROW_TOO_LARGE, SettingsError, Source, SourceError, SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;

pub(super) const TYPE: SourceType = SourceType {
    name: "csv",
    version: 1,
    about: "one row per record of CSV or other delimited text files",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Csv::new(spec)?)),
};

/// Code of a record with more or fewer fields than there are columns.
const FIELD_COUNT: &str = "field_count";
/// Code of a record with a quote that is not closed before the input (or the range) ends.
const UNCLOSED_QUOTE: &str = "unclosed_quote";
/// Code of a field with a line end where none is allowed.
pub(super) const LINE_END_IN_VALUE: &str = "line_end_in_value";
/// Types are inferred from records that end within this many bytes.
const INFER_BYTES: u64 = 16 << 20;
/// The most columns that a header may have.
const MOST_COLUMNS: usize = 1 << 16;

/// Settings of the `csv` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// What stands between fields: one ASCII character.
    #[serde(default = "default_delimiter")]
    delimiter: String,
    /// What stands around fields that hold delimiters or line ends, doubled within them: one ASCII
    /// character, or "" for none.
    #[serde(default = "default_quote")]
    quote: String,
    /// Whether the first record names the columns.
    #[serde(default = "default_true")]
    header: bool,
    /// Names of the columns, where the inputs have no header.
    columns: Option<Vec<String>>,
    /// Types of columns; those that are not named are inferred.
    #[serde(default)]
    types: BTreeMap<String, ValueType>,
    /// Fields that stand for "no value".
    #[serde(default = "default_null_values")]
    null_values: Vec<String>,
    /// How many records of the first input types are inferred from.
    #[serde(default = "default_infer_rows")]
    infer_rows: u64,
    /// Whether a quoted field may hold line ends. If not, planning need not read large inputs to
    /// cut them, and a field that holds one is an error.
    #[serde(default = "default_true")]
    newlines_in_values: bool,
    /// How inputs are compressed: by default as the extensions `.gz`, `.zst` and `.zip` say.
    #[serde(default)]
    compression: Compression,
    /// The member of zip archives that is read; may be left out where they hold one file.
    member: Option<String>,
}

fn default_delimiter() -> String {
    ",".to_owned()
}

fn default_quote() -> String {
    "\"".to_owned()
}

fn default_true() -> bool {
    true
}

fn default_null_values() -> Vec<String> {
    vec![String::new()]
}

fn default_infer_rows() -> u64 {
    1000
}

/// The source; readers share it.
#[derive(Debug, Clone)]
pub(super) struct Csv {
    pub(super) listing: Listing,
    pub(super) contents: Contents,
    pub(super) dialect: Dialect,
    settings: Settings,
}

/// What the first record of an input says.
pub(super) struct Head {
    pub(super) names: Vec<String>,
    /// Offset of the first byte behind it.
    pub(super) end: u64,
}

impl Csv {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let delimiter = character("delimiter", &settings.delimiter)?;
        let quote = match settings.quote.as_str() {
            "" => None,
            quote => Some(character("quote", quote)?),
        };
        let refuse = |at: &str, message: &str, hint: &str| SettingsError {
            at: vec![at.to_owned()],
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        };
        if quote == Some(delimiter) {
            return Err(refuse("quote", "`quote` and `delimiter` are the same", "change one"));
        }
        if settings.header && settings.columns.is_some() {
            return Err(refuse(
                "columns",
                "the inputs' first record names the columns",
                "set `header = false`, or rename columns with the transform `select`",
            ));
        }
        if let Some(twice) = settings.columns.as_deref().and_then(first_twice) {
            let message = format!("there are two columns `{twice}`");
            return Err(refuse("columns", &message, "choose another name"));
        }
        let listing = Listing::new(spec)?;
        let (compression, member) = (settings.compression, settings.member.as_deref());
        let contents = Contents::new(listing.folder(), compression, member)?;
        Ok(Self { listing, contents, dialect: Dialect { delimiter, quote }, settings })
    }

    pub(super) fn has_header(&self) -> bool {
        self.settings.header
    }

    pub(super) fn allows_newlines(&self) -> bool {
        self.settings.newlines_in_values
    }

    pub(super) fn is_null(&self, field: &[u8]) -> bool {
        self.settings.null_values.iter().any(|null| null.as_bytes() == field)
    }

    /// Takes the next record, the first of `input`, as its head.
    pub(super) fn read_head(
        &self,
        input: &Input,
        records: &mut Records,
    ) -> Result<Head, SourceError> {
        let invalid = |message: String, hint: &str| {
            BadRow::new(INPUT_DAMAGED, message).hint(hint).into_error(&input.path, "header")
        };
        records.limit(INFER_BYTES, MOST_COLUMNS);
        let is_there = records.next().map_err(|flaw| match flaw {
            Flaw::TooManyFields(_) => invalid(
                format!("there are more than {MOST_COLUMNS} columns"),
                "give each record a line of its own, and check `delimiter`",
            ),
            flaw => self.describe(flaw, input, None),
        })?;
        if !is_there {
            return Err(invalid(
                "the input is empty".to_owned(),
                "leave it out of `path`; where no input has a header, set `header = false`",
            ));
        }
        if records.text().starts_with(b"\x1f\x8b") || records.text().starts_with(b"PK\x03\x04") {
            return Err(invalid(
                "the input is compressed".to_owned(),
                "give it the extension `.gz` or `.zip`, or set `compression`",
            ));
        }
        let mut names = Vec::with_capacity(records.n_fields());
        for i in 0..records.n_fields() {
            let name = std::str::from_utf8(records.field(i)).map_err(|_| {
                invalid(format!("the name of column {i} is not UTF-8"), "convert the input")
            })?;
            let is_named = self.has_header() && !name.is_empty();
            names.push(if is_named { name.to_owned() } else { format!("column_{i}") });
        }
        if let Some(columns) = &self.settings.columns {
            if columns.len() != names.len() {
                return Err(invalid(
                    format!("{} fields for {} `columns`", names.len(), columns.len()),
                    "name every column in `columns`",
                ));
            }
            names.clone_from(columns);
        }
        if let Some(twice) = first_twice(&names) {
            let message = format!("there are two columns `{twice}`");
            return Err(invalid(message, "rename one in the input, or set `header = false`"));
        }
        Ok(Head { names, end: records.end() })
    }

    /// A flaw in a record as an error that ends the run.
    fn describe(&self, flaw: Flaw, input: &Input, row: Option<u64>) -> SourceError {
        match bad_record(flaw) {
            Err(error) => error,
            Ok((start, bad)) => self.name(bad, &whole(input), start, row, OnError::Fail),
        }
    }

    /// The error that names a bad record, at `start`, by its line, which is looked for only where the
    /// run ends. `row` is its source row, where rows are counted.
    pub(super) fn name(
        &self,
        bad: BadRow,
        read: &InputRange,
        start: u64,
        row: Option<u64>,
        on_error: OnError,
    ) -> SourceError {
        let path = &read.input.path;
        if on_error == OnError::Quarantine {
            return bad.into_error(path, "");
        }
        match place_of(&self.contents, read, start, row, LineEnd::Any) {
            // What was read was then neither the old state nor the new one.
            Err(changed) => changed,
            Ok(place) => bad.into_error(path, place),
        }
    }

    /// What every value of a column has in common, for columns whose type is not declared.
    fn infer(
        &self,
        input: &Input,
        records: &mut Records,
        head: &Head,
    ) -> Result<Vec<ValueType>, SourceError> {
        let n_columns = head.names.len();
        let mut columns = vec![Inference::NOTHING; n_columns];
        records.limit(INFER_BYTES, n_columns);
        // A bad record tells nothing of the types; what becomes of it is decided where it is read.
        let (mut n_good, mut first_bad) = (0_u64, None);
        for row in 0..self.settings.infer_rows {
            match records.next() {
                Ok(true) if records.end() <= INFER_BYTES => {}
                Ok(_) | Err(Flaw::TooLarge(_)) => break,
                Err(flaw) => {
                    let goes_on = matches!(flaw, Flaw::TooManyFields(_));
                    if !goes_on || first_bad.is_none() {
                        match self.describe(flaw, input, Some(row)) {
                            error @ SourceError::Row { .. } => first_bad.get_or_insert(error),
                            error => return Err(error),
                        };
                    }
                    if goes_on {
                        continue;
                    }
                    break;
                }
            }
            if records.n_fields() != n_columns {
                if first_bad.is_none() {
                    let (bad, start) = (ragged(records, n_columns), records.start());
                    let error = self.name(bad, &whole(input), start, Some(row), OnError::Fail);
                    first_bad = Some(error);
                }
                continue;
            }
            n_good += 1;
            for (i, column) in columns.iter_mut().enumerate() {
                let field = records.field(i);
                if !self.is_null(field) {
                    column.take(field);
                }
            }
        }
        match first_bad.filter(|_| n_good == 0) {
            Some(error) => Err(error),
            None => Ok(columns.iter().map(Inference::answer).collect()),
        }
    }

    /// Opens an input at its first record, or at the record at `from`.
    pub(super) fn records(
        &self,
        input: &Input,
        range: Option<&std::ops::Range<u64>>,
        from: Option<u64>,
    ) -> Result<Records, SourceError> {
        Ok(Records::new(self.dialect, self.contents.open(input, range, from)?))
    }
}

/// What is wrong with a record, and where it begins.
///
/// # Errors
/// The input cannot be read.
pub(super) fn bad_record(flaw: Flaw) -> Result<(u64, BadRow), SourceError> {
    Ok(match flaw {
        Flaw::Input(e) => return Err(e),
        Flaw::TooLarge(start) => {
            let message =
                "the record is larger than `max_row_bytes` allows (a header: than 16 MiB)";
            let hint = "look for a quote that is never closed, or raise `max_row_bytes`";
            (start, BadRow::new(ROW_TOO_LARGE, message).hint(hint))
        }
        Flaw::TooManyFields(start) => {
            let hint = "quote fields that hold delimiters";
            (start, BadRow::new(FIELD_COUNT, "more fields than columns").hint(hint))
        }
        Flaw::Unclosed(start) => {
            let message = "a quote is not closed before the end";
            let hint = "close it; with `newlines_in_values = false` no field may hold a line end";
            (start, BadRow::new(UNCLOSED_QUOTE, message).hint(hint))
        }
    })
}

/// A record of another length than the header.
pub(super) fn ragged(records: &Records, n_columns: usize) -> BadRow {
    let message = format!("{} fields for {n_columns} columns", records.n_fields());
    let hint = "give every record as many fields; quote those that hold delimiters";
    BadRow::new(FIELD_COUNT, message).hint(hint)
}

/// An input that is not cut, as planning looks at it.
fn whole(input: &Input) -> InputRange {
    InputRange { input: input.clone(), range: None }
}

fn character(at: &str, text: &str) -> Result<u8, SettingsError> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\r' | b'\n') => Ok(*byte),
        _ => Err(SettingsError {
            at: vec![at.to_owned()],
            message: format!("{text:?} is not one ASCII character"),
            hint: Some("a tab is \"\\t\"".to_owned()),
        }),
    }
}

fn first_twice(names: &[String]) -> Option<&String> {
    let mut seen = std::collections::HashSet::new();
    names.iter().find(|name| !seen.insert(name.as_str()))
}

impl Source for Csv {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let Some(input) = first else {
            let names = self.settings.columns.iter().flatten();
            let kind = |name| self.settings.types.get(name).copied().unwrap_or(ValueType::Utf8);
            return Ok(schema_of(names.map(|name| (name.as_str(), kind(name)))));
        };
        let mut records = self.records(input, None, None)?;
        let head = self.read_head(input, &mut records)?;
        if let Some(name) = self.settings.types.keys().find(|name| !head.names.contains(name)) {
            let likeness = |known: &&String| (strsim::jaro_winkler(known, name) * 1e6).to_bits();
            let near = head.names.iter().max_by_key(likeness);
            return Err(SourceError::Invalid {
                path: input.path.clone(),
                at: "header".to_owned(),
                message: format!("there is no column `{name}`, which `types` names"),
                hint: near.map(|near| format!("did you mean `{near}`?")),
            });
        }
        if !self.has_header() {
            // The record that gave the number of columns is a row.
            records = self.records(input, None, None)?;
        }
        let all_declared = head.names.iter().all(|name| self.settings.types.contains_key(name));
        let inferred = if all_declared {
            vec![ValueType::Utf8; head.names.len()]
        } else {
            self.infer(input, &mut records, &head)?
        };
        let kinds = head.names.iter().zip(inferred);
        Ok(schema_of(kinds.map(|(name, inferred)| {
            (name.as_str(), self.settings.types.get(name).copied().unwrap_or(inferred))
        })))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        let folder = self.listing.folder();
        let multiple = partition_bytes.max(1);
        if input.size <= multiple || self.contents.is_decoded(&input.path) {
            return Ok(Vec::new());
        }
        if self.has_header() {
            // One whose header says nothing is damaged as a whole, which its ranges could not tell.
            let head = self.read_head(input, &mut self.records(input, None, None)?);
            if matches!(head, Err(SourceError::Row { .. })) {
                return Ok(Vec::new());
            }
            head?;
        }
        if !self.allows_newlines() {
            return line_cuts(folder, input, multiple);
        }
        quoted_cuts(self.dialect, self.contents.open(input, None, None)?, multiple, input.size)
    }

    fn open(
        &self,
        part: &Arc<Part>,
        schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        Ok(Box::new(Reader::new(self.clone(), part, schema, limits, restart)?))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        self.listing.folder().digests(part)
    }

    fn reader_bytes(&self, inputs: &[Input], limits: BatchLimits) -> u64 {
        // A record's text, twice while its buffer grows, and the builders' room to grow.
        let text = CHUNK_BYTES as u64 + limits.row_bytes + limits.row_bytes / 2;
        text + limits.bytes as u64 + self.contents.memory_bytes(inputs)
    }
}

fn schema_of<'a>(columns: impl Iterator<Item = (&'a str, ValueType)>) -> SchemaRef {
    let fields = columns.map(|(name, kind)| Field::new(name, kind.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
