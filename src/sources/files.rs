//! The `files` source: one row per file.
//!
//! Columns, in this order:
//!
//! | column | type | what |
//! |---|---|---|
//! | `bytes` or `text` | large binary, large utf8 | the content (`content = "bytes"`, `"text"`; with `"none"` there is no such column) |
//! | `path` | utf8 | the path relative to the root |
//! | `parent` | utf8 | the folder of `path`, empty in the root |
//! | `stem` | utf8 | the file's name without what follows its last dot (a first dot does not count) |
//! | `size` | int64 | its size in bytes |
//! | one per named group of `pattern` | utf8, nullable | what the group matched in `path`; null where the pattern or the group did not match |
//! | `sibling`, or as `sibling_as` says | large utf8, nullable | the text of the nearest file around the input that `sibling` names; null where there is none |
//!
//! Invariants:
//! 1. An input has exactly one source row, 0; the restart of a batch is its first input.
//! 2. Texts are checked UTF-8 and otherwise untouched: a byte order mark stays.
//! 3. A bad row is a file that is too large, or a text (its own or its sibling's) that is not UTF-8.

use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{LargeStringBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, LargeBinaryArray, LargeStringArray, RecordBatch};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use globset::GlobMatcher;
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::input::{PartDigests, misfit};
use super::listing::{Listing, folder_of};
use super::pattern::name_glob;
use super::siblings::{KEPT_BYTES, Siblings, check_text};
use super::{
    BadRow, BadRowAt, BatchLimits, BatchReader, Input, InputDigest, OnError, Part, ROW_TOO_LARGE,
    SettingsError, Source, SourceError, SourceSpec, SourceType, parse_settings,
};
use crate::batch::{Batch, Event, Provenance, Restart, Run};

pub(super) const TYPE: SourceType = SourceType {
    name: "files",
    version: 1,
    about: "one row per file: its content, its path and what a pattern finds in it",
    settings: Settings::json_schema,
    make: |spec| Ok(Box::new(Files::new(spec)?)),
};

/// Offsets of `path` and the like have 32 bits.
const MOST_BATCH_BYTES: usize = 1 << 30;

/// Settings of the `files` source.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// What of a file's content becomes a column: `bytes`, `text` (checked UTF-8), or none.
    #[serde(default)]
    content: Content,
    /// A regular expression that is searched in the path; each of its named groups is a column.
    pattern: Option<String>,
    /// Name or glob of a file beside the input, or in a folder around it up to the root, whose text
    /// is a column: the first by name in the nearest folder that has one.
    sibling: Option<String>,
    /// Name of that column.
    #[serde(default = "default_sibling_as")]
    sibling_as: String,
}

fn default_sibling_as() -> String {
    "sibling".to_owned()
}

/// What of a file's content becomes a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Content {
    /// Column `bytes`.
    #[default]
    Bytes,
    /// Column `text`: UTF-8, checked.
    Text,
    /// No column.
    None,
}

/// The source; readers share it.
#[derive(Debug, Clone)]
struct Files {
    listing: Listing,
    content: Content,
    pattern: Option<Regex>,
    sibling: Option<GlobMatcher>,
    schema: SchemaRef,
}

impl Files {
    fn new(spec: &SourceSpec) -> Result<Self, SettingsError> {
        let settings: Settings = parse_settings(&spec.settings)?;
        let pattern = settings.pattern.as_deref().map(compile).transpose()?;
        let sibling = settings.sibling.as_deref().map(|s| name_glob("sibling", s)).transpose()?;
        let schema = columns(&settings, pattern.as_ref())?;
        let listing = Listing::new(spec)?;
        Ok(Self { listing, content: settings.content, pattern, sibling, schema })
    }
}

fn compile(pattern: &str) -> Result<Regex, SettingsError> {
    let refuse = |message: String, hint: &str| SettingsError {
        at: vec!["pattern".to_owned()],
        message,
        hint: Some(hint.to_owned()),
    };
    let regex = Regex::new(pattern).map_err(|e| {
        refuse(format!("not a regular expression: {e}"), "TOML's '…' keeps backslashes as they are")
    })?;
    if regex.capture_names().flatten().next().is_none() {
        return Err(refuse(
            "the pattern has no named group, so it makes no column".to_owned(),
            "name what a column shall hold: `(?P<name>…)`",
        ));
    }
    Ok(regex)
}

fn columns(settings: &Settings, pattern: Option<&Regex>) -> Result<SchemaRef, SettingsError> {
    let mut fields = Vec::new();
    match settings.content {
        Content::Bytes => fields.push(Field::new("bytes", DataType::LargeBinary, false)),
        Content::Text => fields.push(Field::new("text", DataType::LargeUtf8, false)),
        Content::None => {}
    }
    fields.extend(["path", "parent", "stem"].map(|name| Field::new(name, DataType::Utf8, false)));
    fields.push(Field::new("size", DataType::Int64, false));
    let groups = pattern.iter().flat_map(|p| p.capture_names().flatten());
    fields.extend(groups.map(|name| Field::new(name, DataType::Utf8, true)));
    if settings.sibling.is_some() {
        fields.push(Field::new(&settings.sibling_as, DataType::LargeUtf8, true));
    }
    for (i, field) in fields.iter().enumerate() {
        if fields.iter().take(i).any(|f| f.name() == field.name()) {
            let at = if *field.name() == settings.sibling_as { "sibling_as" } else { "pattern" };
            return Err(SettingsError {
                at: vec![at.to_owned()],
                message: format!("there would be two columns `{}`", field.name()),
                hint: Some("choose another name".to_owned()),
            });
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

impl Source for Files {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        self.listing.list()
    }

    fn listing(&self) -> Option<&Listing> {
        Some(&self.listing)
    }

    fn side_inputs(&self, inputs: &[Input]) -> Result<Vec<Input>, SourceError> {
        match &self.sibling {
            Some(names) => self.listing.nearest(inputs, names),
            None => Ok(Vec::new()),
        }
    }

    fn schema(&self, _first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        Ok(Arc::clone(&self.schema))
    }

    fn open(
        &self,
        part: &Arc<Part>,
        _schema: &SchemaRef,
        limits: BatchLimits,
        restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        let next = restart.input as usize;
        if restart.source_row != 0 || !restart.cursor.is_null() || next > part.inputs.len() {
            return Err(misfit(part, restart.input, "a file has one row and no cursor"));
        }
        if part.inputs.iter().any(|i| i.range.is_some()) {
            return Err(misfit(part, restart.input, "a file is one row and is not cut"));
        }
        let folder = self.listing.folder();
        Ok(Box::new(Reader {
            files: self.clone(),
            part: Arc::clone(part),
            limits,
            next,
            digests: PartDigests::new(folder.clone(), part),
            siblings: if self.sibling.is_some() {
                Siblings::of_part(part)
            } else {
                Siblings::none()
            },
        }))
    }

    fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        self.listing.folder().digests(part)
    }

    fn rows_hint(&self, _input: &Input) -> Option<u64> {
        Some(1)
    }

    fn reader_bytes(&self, _inputs: &[Input], limits: BatchLimits) -> u64 {
        // The kept siblings, and the last one while it is read.
        KEPT_BYTES as u64 + limits.row_bytes
    }
}

/// The name of the file at `path` without what follows its last dot.
pub(super) fn stem_of(path: &str) -> &str {
    Path::new(path).file_stem().and_then(|s| s.to_str()).unwrap_or_default()
}

struct Reader {
    files: Files,
    part: Arc<Part>,
    limits: BatchLimits,
    next: usize,
    digests: PartDigests,
    siblings: Siblings,
}

impl BatchReader for Reader {
    fn next(&mut self) -> Result<Option<Batch>, SourceError> {
        let (first, end) = (self.next, self.batch_end()?);
        if first == end {
            return Ok(None);
        }
        let part = Arc::clone(&self.part);
        let mut made = Made::default();
        if self.files.content != Content::None {
            let inputs = part.inputs.iter().take(end).skip(first).map(|read| read.input.size);
            let total: u64 = inputs.filter(|size| *size <= self.limits.row_bytes).sum();
            made.values.reserve_exact(usize::try_from(total).unwrap_or(0));
        }
        for (index, read) in part.inputs.iter().enumerate().take(end).skip(first) {
            let start = made.values.len();
            if let Err(error) = self.read(index, &read.input, &mut made) {
                let before_row = made.inputs.len() as u64;
                let at = BadRowAt { before_row, input: number(index), source_row: 0 };
                made.events.push(self.limits.on_error.settle(error, at)?);
                made.values.truncate(start);
                continue;
            }
            made.inputs.push(index);
            made.ends.push(i64::try_from(made.values.len()).unwrap_or(i64::MAX));
        }
        self.next = end;
        let mut provenance = Provenance::new();
        for index in &made.inputs {
            let run = Run { row: 0, input: number(*index), source_row: 0, sub_row: -1 };
            provenance.push_run(run, 1);
        }
        let restart = Restart { input: number(first), source_row: 0, ..Restart::default() };
        let events = std::mem::take(&mut made.events);
        let rows = self.rows(made)?;
        Ok(Some(Batch { rows, provenance, events, restart }))
    }

    fn digests(&mut self) -> Result<Vec<InputDigest>, SourceError> {
        self.digests.finish(&self.part)
    }
}

/// A batch in the making.
#[derive(Default)]
struct Made {
    /// The inputs that are rows.
    inputs: Vec<usize>,
    /// Their contents, one after another, and where each ends.
    values: Vec<u8>,
    ends: Vec<i64>,
    siblings: LargeStringBuilder,
    /// The inputs that are rejects.
    events: Vec<Event>,
}

impl Reader {
    /// The input behind the last one that the next batch has room for, judged by sizes alone.
    fn batch_end(&self) -> Result<usize, SourceError> {
        let most = self.limits.bytes.min(MOST_BATCH_BYTES) as u64;
        let mut n_bytes = 0_u64;
        let mut end = self.next;
        while let Some(read) = self.part.inputs.get(end) {
            let bytes = match self.row_bytes(&read.input) {
                // A reject, when its turn comes.
                Err(SourceError::Row { .. }) if self.limits.on_error == OnError::Quarantine => 0,
                bytes => bytes?,
            };
            let is_full = end - self.next >= self.limits.rows || n_bytes + bytes > most;
            if end > self.next && is_full {
                break;
            }
            n_bytes += bytes;
            end += 1;
        }
        Ok(end)
    }

    fn row_bytes(&self, input: &Input) -> Result<u64, SourceError> {
        let content = if self.files.content == Content::None { 0 } else { input.size };
        let sibling = self.siblings.find(&self.part, &input.path).map_or(0, |(_, side)| side.size);
        let names = input.path.len() + folder_of(&input.path).len() + stem_of(&input.path).len();
        let bytes = content + sibling + names as u64 + size_of::<i64>() as u64;
        if bytes > self.limits.row_bytes {
            let most = self.limits.row_bytes;
            let message =
                format!("the row has {bytes} bytes, more than `max_row_bytes` ({most}) allows");
            let bad = BadRow::new(ROW_TOO_LARGE, message);
            let bad = bad.hint("raise `max_row_bytes`, or leave the file out of `path`");
            return Err(bad.into_error(&input.path, "row 0"));
        }
        Ok(bytes)
    }

    /// Reads what of an input becomes a row. After an error the contents of `made` have a rest.
    fn read(&mut self, index: usize, input: &Input, made: &mut Made) -> Result<(), SourceError> {
        self.row_bytes(input)?;
        let Files { listing, content, sibling, .. } = &self.files;
        if *content != Content::None {
            let start = made.values.len();
            let upcoming = self.part.inputs.iter().skip(index).map(|read| &read.input);
            self.digests.ask_ahead(upcoming.filter(|input| self.row_bytes(input).is_ok()));
            let mut open = listing.folder().open(input, None, None)?;
            open.append_to(&mut made.values, usize::MAX)?;
            self.digests.set_input(index, open.digest()?);
            if *content == Content::Text {
                check_text(&input.path, made.values.get(start..).unwrap_or_default())?;
            }
        }
        if sibling.is_some() {
            let found = self.siblings.find(&self.part, &input.path);
            match found.map(|(i, side)| (i, side.clone())) {
                Some((i, side)) => {
                    let text = self.siblings.text(i, &side, listing.folder(), &mut self.digests);
                    let text = text.map_err(|e| of_sibling(e, &self.files.schema))?;
                    made.siblings.append_value(text);
                }
                None => made.siblings.append_null(),
            }
        }
        Ok(())
    }

    fn rows(&self, made: Made) -> Result<RecordBatch, SourceError> {
        let Made { inputs, values, ends, mut siblings, .. } = made;
        let inputs: Vec<&Input> = inputs
            .iter()
            .filter_map(|index| self.part.inputs.get(*index))
            .map(|read| &read.input)
            .collect();
        let mut columns: Vec<ArrayRef> = Vec::new();
        let offsets: Vec<i64> = std::iter::once(0).chain(ends).collect();
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let values = Buffer::from_vec(values);
        match self.files.content {
            Content::Text => {
                columns.push(Arc::new(LargeStringArray::try_new(offsets, values, None)?));
            }
            Content::Bytes => {
                columns.push(Arc::new(LargeBinaryArray::try_new(offsets, values, None)?));
            }
            Content::None => {}
        }
        let names = |name: fn(&str) -> &str| -> ArrayRef {
            let mut builder = StringBuilder::with_capacity(inputs.len(), 0);
            for input in &inputs {
                builder.append_value(name(&input.path));
            }
            Arc::new(builder.finish())
        };
        columns.extend([names(|path| path), names(folder_of), names(stem_of)]);
        let sizes = inputs.iter().map(|i| i64::try_from(i.size).unwrap_or(i64::MAX));
        columns.push(Arc::new(Int64Array::from_iter_values(sizes)));
        if let Some(pattern) = &self.files.pattern {
            columns.extend(captures(pattern, &inputs));
        }
        if self.files.sibling.is_some() {
            columns.push(Arc::new(siblings.finish()));
        }
        Ok(RecordBatch::try_new(Arc::clone(&self.files.schema), columns)?)
    }
}

/// A bad row that is its sibling's fault, which is the last column.
fn of_sibling(error: SourceError, schema: &SchemaRef) -> SourceError {
    match error {
        SourceError::Row { path, at, bad } => {
            let field = schema.fields().last().map(|field| field.name().clone());
            SourceError::Row { path, at, bad: Box::new(BadRow { field, ..*bad }) }
        }
        other => other,
    }
}

fn captures(pattern: &Regex, inputs: &[&Input]) -> Vec<ArrayRef> {
    let names: Vec<&str> = pattern.capture_names().flatten().collect();
    let mut builders: Vec<_> =
        names.iter().map(|_| StringBuilder::with_capacity(inputs.len(), 0)).collect();
    for input in inputs {
        let found = pattern.captures(&input.path);
        for (name, builder) in names.iter().zip(&mut builders) {
            let text = found.as_ref().and_then(|f| f.name(name)).map(|m| m.as_str());
            builder.append_option(text);
        }
    }
    builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect()
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
