//! The `jsonl` source: one row per line of JSON Lines files, each line an object.
//!
//! - A column's type is what `types` says, else it is inferred from the first 1,000 lines
//!   (`infer_rows`; those that end within the first 16 MiB) of the first input: int64, else float64,
//!   bool, utf8, lists of numbers or truth values (also nested), objects, whose keys become fields
//!   `a.b`; what has no such type in common is `json`, the text of the value.
//! - A key that a line lacks is null. A key that no column has is an error, or ignored as `extra`
//!   says. Every column is nullable, but not the items of lists.
//! - Numbers are read exactly or, into floats, rounded once. A float may go into a column of integers
//!   where it is whole and below 2^53.
//! - Lines end with `\n` or `\r\n`; blank ones are skipped, as is a byte order mark at the start.
//! - Compressed inputs are decoded (`content`); others are cut at line ends.
//!
//! Invariants:
//! 1. A line that is not JSON, or holds a value that is not of its column's type, is an error that
//!    names input, line, row and field.
//! 2. The cursor of a restart is the offset of a line in its file, or in what that decodes to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::content::{Compression, Contents};
use super::input::Folder;
use super::jsonl_checked::checked;
use super::jsonl_lines::{CHUNK_BYTES, Lines, Next};
use super::jsonl_reader::{Reader, too_long};
use super::jsonl_types::{
    Columns, Declared, Fields, MOST_COLUMNS, TooManyKeys, declare, leaf_names,
};
use super::listing::Listing;
use super::text_cuts::line_cuts;
use super::text_lines::{LineEnd, place_of};
use super::{
    BadRow, BatchLimits, BatchReader, Input, InputDigest, InputRange, OnError, Part, SettingsError,
    Source, SourceError, SourceSpec, SourceType, parse_settings,
};
use crate::batch::Restart;

pub(super) const TYPE: SourceType = SourceType {
    name: "jsonl",
    version: 1,
    about: "one row per line of JSON Lines files",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Jsonl::new(spec)?)),
};

/// Types are inferred from lines that end within this many bytes.
const INFER_BYTES: u64 = 16 << 20;

/// Settings of the `jsonl` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Types of columns, by key; `a.b` for a key within an object. Those not named are inferred.
    #[serde(default)]
    types: BTreeMap<String, Declared>,
    /// How many lines of the first input types are inferred from.
    #[serde(default = "default_infer_rows")]
    infer_rows: u64,
    /// What is done with a key that no column has.
    #[serde(default)]
    extra: Extra,
    /// How inputs are compressed: by default as the extensions `.gz`, `.zst` and `.zip` say.
    #[serde(default)]
    compression: Compression,
    /// The member of zip archives that is read; may be left out where they hold one file.
    member: Option<String>,
}

/// What is done with a key that no column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Extra {
    /// It is an error.
    #[default]
    Error,
    /// It is left out, with its value.
    Ignore,
}

fn default_infer_rows() -> u64 {
    1000
}

/// The source; readers share it.
#[derive(Debug, Clone)]
pub(super) struct Jsonl {
    listing: Listing,
    pub(super) contents: Contents,
    settings: Settings,
}

impl Jsonl {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let listing = Listing::new(spec)?;
        let (compression, member) = (settings.compression, settings.member.as_deref());
        let contents = Contents::new(listing.folder(), compression, member)?;
        Ok(Self { listing, contents, settings })
    }

    pub(super) fn folder(&self) -> &Folder {
        self.listing.folder()
    }

    pub(super) fn ignores_unknown(&self) -> bool {
        self.settings.extra == Extra::Ignore
    }

    /// First byte of what is read, and the one behind the last.
    pub(super) fn bytes_of(&self, read: &InputRange) -> (u64, u64) {
        match &read.range {
            Some(range) => (range.start, range.end),
            // How much an input decodes to is not known before.
            None if self.contents.is_decoded(&read.input.path) => (0, u64::MAX),
            None => (0, read.input.size),
        }
    }

    /// The error that names a bad row, at byte `start`, by its line, which is looked for only where the
    /// run ends.
    pub(super) fn name(
        &self,
        bad: BadRow,
        read: &InputRange,
        start: u64,
        row: u64,
        on_error: OnError,
    ) -> SourceError {
        let path = &read.input.path;
        if on_error == OnError::Quarantine {
            return bad.into_error(path, "");
        }
        match place_of(&self.contents, read, start, Some(row), LineEnd::Newline) {
            // What was read was then neither the old state nor the new one.
            Err(changed) => changed,
            Ok(place) => bad.into_error(path, place),
        }
    }

    fn infer(&self, input: &Input) -> Result<Fields, SourceError> {
        let whole = InputRange { input: input.clone(), range: None };
        let mut lines = Lines::new(self.contents.open(input, None, None)?, INFER_BYTES);
        let mut guess = Columns::default();
        // A bad line tells nothing of the types; what becomes of it is decided where it is read.
        let (mut first_bad, mut is_cut) = (None, false);
        for row in 0..self.settings.infer_rows {
            let next = match lines.next() {
                Err(error @ SourceError::Row { .. }) => {
                    first_bad.get_or_insert(error);
                    break;
                }
                next => next?,
            };
            is_cut = next != Next::End && lines.end() > INFER_BYTES;
            if next == Next::End || is_cut {
                break;
            }
            let raw = match next {
                Next::TooLong => Err(too_long()),
                _ => checked(lines.line()),
            };
            match raw {
                Ok(raw) => guess.take(raw),
                Err(bad) if first_bad.is_none() => {
                    first_bad = Some(self.name(bad, &whole, lines.start(), row, OnError::Fail));
                }
                Err(_) => {}
            }
        }
        match first_bad.filter(|_| guess.is_empty()) {
            Some(error) => Err(error),
            None if is_cut && guess.is_empty() && self.settings.types.is_empty() => {
                Err(SourceError::Invalid {
                    path: input.path.clone(),
                    at: "columns".to_owned(),
                    message: "no line ends within the 16 MiB that columns are inferred from"
                        .to_owned(),
                    hint: Some("declare them in `types`".to_owned()),
                })
            }
            None => guess.into_fields().map_err(|TooManyKeys| SourceError::Invalid {
                path: input.path.clone(),
                at: "columns".to_owned(),
                message: format!("more than {MOST_COLUMNS} keys"),
                hint: Some("declare what holds them in `types`, as `json`".to_owned()),
            }),
        }
    }
}

impl Source for Jsonl {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn schema(&self, first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        let mut fields = match first {
            Some(input) => self.infer(input)?,
            None => Fields::new(),
        };
        let path = first.map_or("", |input| &input.path);
        let refuse = |message: String, hint: &str| SourceError::Invalid {
            path: path.to_owned(),
            at: "columns".to_owned(),
            message,
            hint: Some(hint.to_owned()),
        };
        declare(&mut fields, &self.settings.types).map_err(|(name, through)| {
            let message = format!("`types` names `{name}`, but `{through}` holds no objects");
            refuse(message, "correct the name in `types`")
        })?;
        let mut names = Vec::new();
        leaf_names(&fields, "", &mut names);
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            let message = format!("two keys make a field `{twice}`");
            return Err(refuse(message, "declare one of them, or what is around it, as `json`"));
        }
        if first.is_some() && fields.is_empty() {
            return Err(refuse(
                "no line has a key to infer columns from".to_owned(),
                "declare `types`, or leave the input out of `path`",
            ));
        }
        let fields = fields.iter().map(|(name, kind)| kind.field(name, true));
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn cuts(&self, input: &Input, partition_bytes: u64) -> Result<Vec<u64>, SourceError> {
        if self.contents.is_decoded(&input.path) {
            return Ok(Vec::new());
        }
        line_cuts(self.folder(), input, partition_bytes.max(1))
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
        self.folder().digests(part)
    }

    fn reader_bytes(&self, inputs: &[Input], limits: BatchLimits) -> u64 {
        // A line, twice while its buffer grows; the builders' room to grow; what a line unescapes to;
        // the names of its keys.
        let lines = 2 * CHUNK_BYTES as u64 + 4 * limits.row_bytes;
        lines + limits.bytes as u64 + self.contents.memory_bytes(inputs)
    }
}
