//! Turns lines of JSON into columns.
//!
//! Leaves out: which columns there are (`jsonl_types`), and where lines come from.
//!
//! Invariants:
//! 1. A line is one JSON object as RFC 8259 has it, in UTF-8, no key of an object twice, nested at
//!    most 127 deep; anything else is a bad row.
//! 2. A row is taken as a whole or leaves nothing behind.
//! 3. No text of the parser's becomes part of a bad row's message, only of its hint.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::builder::LargeStringBuilder;
use arrow_array::{ArrayRef, BooleanArray, LargeListArray, RecordBatch, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use arrow_select::filter::filter_record_batch;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonl_names::{Names, Room, Wrong};
use super::jsonl_types::{Fields, JsonType};
use super::value_type::{ColumnBuilder, Misfit, ValueType};
use super::{BadRow, NOT_UTF8, ROW_TOO_LARGE, VALUE_MISFIT};

/// Code of a line that is no JSON object.
pub(super) const NOT_JSON: &str = "not_json";
/// Code of an object with a key twice.
pub(super) const REPEATED_KEY: &str = "repeated_key";
/// Code of a key that no column has.
pub(super) const UNKNOWN_KEY: &str = "unknown_key";

/// The rows of a batch that is being made.
#[derive(Debug)]
pub(super) struct Rows {
    root: StructColumn,
    judge: Judge,
    /// Of each row that was begun, whether it is one.
    is_kept: Vec<bool>,
    n_bad: usize,
    n_bytes: usize,
}

impl Rows {
    /// No rows, and room for `n_rows`.
    pub(super) fn new(
        fields: &Fields,
        n_rows: usize,
        most_bytes: u64,
        ignores_unknown: bool,
    ) -> Self {
        let most_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let names = Room::new(most_bytes);
        let judge = Judge { most_bytes, names, ignores_unknown, ..Judge::default() };
        let root = StructColumn::new(fields, n_rows);
        Self { root, judge, is_kept: Vec::with_capacity(n_rows), n_bad: 0, n_bytes: 0 }
    }

    /// Bytes of the values of all rows.
    pub(super) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Appends what `line` says.
    pub(super) fn append(&mut self, line: &[u8]) -> Result<(), BadRow> {
        self.judge.begin();
        let text = text_of(line)?;
        let mut parser = serde_json::Deserializer::from_str(text);
        let seed = ObjectSeed { column: &mut self.root, judge: &mut self.judge };
        let parsed = seed.deserialize(&mut parser).and_then(|()| parser.end());
        self.is_kept.push(parsed.is_ok());
        if let Err(e) = parsed {
            self.root.settle(self.is_kept.len());
            self.n_bad += 1;
            return Err(self.judge.bad_row(&e));
        }
        self.n_bytes += self.judge.n_bytes;
        Ok(())
    }

    /// The rows as a batch with this schema.
    pub(super) fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let columns = self.root.fields.iter_mut().zip(schema.fields());
        let columns =
            columns.map(|(of, field)| of.column.finish(field)).collect::<Result<_, _>>()?;
        let rows = RecordBatch::try_new(Arc::clone(schema), columns)?;
        if self.n_bad == 0 {
            return Ok(rows);
        }
        filter_record_batch(&rows, &BooleanArray::from(self.is_kept))
    }
}

/// Checks a line, whatever its columns, and gives its value.
pub(super) fn checked(line: &[u8]) -> Result<&RawValue, BadRow> {
    let text = text_of(line)?;
    let mut judge = Judge { names: Room::new(usize::MAX), ..Judge::default() };
    let mut parser = serde_json::Deserializer::from_str(text);
    let parsed = Checked(&mut judge).deserialize(&mut parser).and_then(|()| parser.end());
    parsed.map_err(|e| judge.bad_row(&e))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| judge.bad_row(&e))?;
    if raw.get().starts_with('{') { Ok(raw) } else { Err(no_object()) }
}

fn text_of(line: &[u8]) -> Result<&str, BadRow> {
    std::str::from_utf8(line).map_err(|e| {
        let message = format!("byte {} of the line is not UTF-8", e.valid_up_to() + 1);
        BadRow::new(NOT_UTF8, message).hint("convert the input to UTF-8")
    })
}

fn no_object() -> BadRow {
    BadRow::new(NOT_JSON, "the line is no object").hint("a line holds one object, `{\"a\": 1}`")
}

/// What is known of the row that is being read.
#[derive(Debug, Default)]
struct Judge {
    /// What is wrong with it, where the parser does not know.
    bad: Option<BadRow>,
    /// Keys that lead to the value at fault, innermost first.
    path: Vec<String>,
    /// Bytes of its values, and how many there may be.
    n_bytes: usize,
    most_bytes: usize,
    /// Room for the names of keys that have no column.
    names: Room,
    ignores_unknown: bool,
}

impl Judge {
    fn begin(&mut self) {
        self.bad = None;
        self.path.clear();
        self.n_bytes = 0;
        self.names.clear();
    }

    fn refuse<E: Error>(&mut self, bad: BadRow) -> E {
        self.bad = Some(bad);
        E::custom("refused")
    }

    fn misfit<E: Error>(&mut self, why: Misfit, shown: &str, kind: ValueType) -> E {
        let shown: String = shown.chars().take(40).collect();
        self.refuse(BadRow::new(VALUE_MISFIT, why.message(&shown, kind)))
    }

    fn no<E: Error>(&mut self, shown: &str, kind: &str) -> E {
        self.refuse(BadRow::new(VALUE_MISFIT, format!("{shown} is no {kind}")))
    }

    /// Counts bytes of a value.
    fn add<E: Error>(&mut self, n_bytes: usize) -> Result<(), E> {
        self.n_bytes += n_bytes;
        if self.n_bytes <= self.most_bytes {
            return Ok(());
        }
        let bad = BadRow::new(ROW_TOO_LARGE, "the row is larger than `max_row_bytes` allows");
        Err(self.refuse(bad.hint("raise `max_row_bytes` of [dataset]")))
    }

    /// Refuses the names of an object's keys, `name` the last of them if that is known.
    fn refuse_names<E: Error>(&mut self, wrong: &Wrong, name: Option<&str>) -> E {
        match (wrong, name) {
            (Wrong::Twice, Some(name)) => self.refuse(duplicate(name)),
            (Wrong::Twice, None) => {
                let bad = BadRow::new(REPEATED_KEY, "a key stands twice in an object of many");
                self.refuse(bad.hint("keep one of the two"))
            }
            (Wrong::TooMany, _) => {
                let message = "its objects have more keys than `max_row_bytes` allows";
                let bad = BadRow::new(ROW_TOO_LARGE, message);
                self.refuse(bad.hint("raise `max_row_bytes` of [dataset]: 16 bytes for each key"))
            }
        }
    }

    /// What is wrong, after the parser gave up with `e`.
    fn bad_row(&mut self, e: &serde_json::Error) -> BadRow {
        let text = e.to_string();
        let detail = text.split(" at line ").next().unwrap_or_default().to_owned();
        let path = std::mem::take(&mut self.path);
        let of_field = |bad: BadRow| {
            let path: Vec<&str> = path.iter().rev().map(String::as_str).collect();
            let bad = if path.is_empty() { bad } else { bad.field(path.join(".")) };
            match bad {
                bad if bad.hint.is_some() => bad,
                bad => {
                    let name = bad.field.clone().unwrap_or_default();
                    let hint = format!(
                        "declare another type in `types`, such as {{ {name:?} = \"json\" }}"
                    );
                    bad.hint(hint)
                }
            }
        };
        match self.bad.take() {
            Some(bad) => of_field(bad),
            // Of the parser's own errors, those that its classes do not tell apart.
            None if detail.starts_with("number out of range") => {
                let bad = BadRow::new(VALUE_MISFIT, "a number is too large for a float");
                of_field(bad.hint("write it as text, or correct it"))
            }
            None if detail.starts_with("recursion limit") => {
                of_field(BadRow::new(NOT_JSON, "nested more than 127 deep").hint("nest it less"))
            }
            None if e.is_data() => of_field(BadRow::new(VALUE_MISFIT, "the value is no float32")),
            None if e.is_eof() => {
                let message = format!("the JSON ends too early, at column {}", e.column());
                BadRow::new(NOT_JSON, message).hint("a line holds one whole object")
            }
            None => {
                let message = format!("it is not JSON from column {} on", e.column());
                BadRow::new(NOT_JSON, message).hint(format!("{detail}; a line holds one object"))
            }
        }
    }
}

/// A column that is being built.
#[derive(Debug)]
enum Column {
    Value(ValueType, ColumnBuilder),
    Json(LargeStringBuilder),
    List(Box<ListColumn>),
    Struct(Box<StructColumn>),
}

/// Lists, one after another.
#[derive(Debug)]
struct ListColumn {
    inner: Column,
    ends: Vec<i64>,
    is_valid: Vec<bool>,
}

/// Objects, one column per key.
#[derive(Debug)]
struct StructColumn {
    fields: Vec<Key>,
    index: HashMap<String, usize>,
    is_valid: Vec<bool>,
    /// Objects that were begun: what tells a key that comes again from one of the object before.
    n_begun: u64,
}

#[derive(Debug)]
struct Key {
    name: String,
    column: Column,
    /// The object that it was last seen in.
    seen_in: u64,
}

impl Column {
    fn new(kind: &JsonType, n_rows: usize) -> Self {
        match kind {
            JsonType::Value(kind) => Self::Value(*kind, ColumnBuilder::new(*kind, n_rows)),
            JsonType::Json => Self::Json(LargeStringBuilder::with_capacity(n_rows, 0)),
            JsonType::List(inner) => Self::List(Box::new(ListColumn {
                inner: Column::new(inner, 0),
                ends: Vec::with_capacity(n_rows),
                is_valid: Vec::with_capacity(n_rows),
            })),
            JsonType::Struct(fields) => Self::Struct(Box::new(StructColumn::new(fields, n_rows))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Value(_, builder) => builder.len(),
            Self::Json(builder) => arrow_array::builder::ArrayBuilder::len(builder),
            Self::List(list) => list.ends.len(),
            Self::Struct(inner) => inner.is_valid.len(),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Value(_, builder) => builder.append_null(),
            Self::Json(builder) => builder.append_null(),
            Self::List(list) => list.end(false),
            Self::Struct(inner) => inner.end(false),
        }
    }

    /// Whether what was begun and not ended has left something.
    fn is_open(&self) -> bool {
        match self {
            Self::Value(..) | Self::Json(_) | Self::Struct(_) => false,
            Self::List(list) => {
                list.inner.is_open()
                    || list.ends.last().copied().unwrap_or(0) < as_offset(list.inner.len())
            }
        }
    }

    /// Ends what was begun and not ended, and fills up to `n_rows`. Items of lists are never null, also
    /// where their row goes.
    fn settle(&mut self, n_rows: usize, is_item: bool) {
        match self {
            Self::List(list) => {
                let n_items = list.inner.len() + usize::from(list.inner.is_open());
                list.inner.settle(n_items, true);
                while list.ends.len() < n_rows {
                    list.end(is_item);
                }
            }
            Self::Struct(inner) => inner.settle(n_rows),
            Self::Value(..) | Self::Json(_) => {}
        }
        while self.len() < n_rows {
            self.append_null();
        }
    }

    fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        match (self, field.data_type()) {
            (Self::Value(_, builder), _) => Ok(builder.finish()),
            (Self::Json(builder), _) => Ok(Arc::new(builder.finish())),
            (Self::List(list), DataType::LargeList(item)) => {
                let items = list.inner.finish(item)?;
                let starts = std::iter::once(0).chain(list.ends.iter().copied());
                let offsets = OffsetBuffer::new(starts.collect::<Vec<_>>().into());
                let nulls = NullBuffer::from(std::mem::take(&mut list.is_valid));
                Ok(Arc::new(LargeListArray::try_new(
                    Arc::clone(item),
                    offsets,
                    items,
                    Some(nulls),
                )?))
            }
            (Self::Struct(inner), DataType::Struct(fields)) => {
                let columns = inner.fields.iter_mut().zip(fields);
                let columns =
                    columns.map(|(of, f)| of.column.finish(f)).collect::<Result<_, _>>()?;
                let nulls = NullBuffer::from(std::mem::take(&mut inner.is_valid));
                Ok(Arc::new(StructArray::try_new(fields.clone(), columns, Some(nulls))?))
            }
            _ => Err(ArrowError::SchemaError("the columns are not those of the schema".into())),
        }
    }
}

impl ListColumn {
    fn end(&mut self, is_valid: bool) {
        self.ends.push(as_offset(self.inner.len()));
        self.is_valid.push(is_valid);
    }
}

impl StructColumn {
    fn new(fields: &Fields, n_rows: usize) -> Self {
        let index = fields.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        let key = |(name, kind): &(String, JsonType)| Key {
            name: name.clone(),
            column: Column::new(kind, n_rows),
            seen_in: 0,
        };
        let fields = fields.iter().map(key).collect();
        Self { fields, index, is_valid: Vec::with_capacity(n_rows), n_begun: 0 }
    }

    /// Ends an object; keys that it did not have are null.
    fn end(&mut self, is_valid: bool) {
        self.is_valid.push(is_valid);
        let n_rows = self.is_valid.len();
        for key in &mut self.fields {
            if key.column.len() < n_rows {
                key.column.append_null();
            }
        }
    }

    fn settle(&mut self, n_rows: usize) {
        while self.is_valid.len() < n_rows {
            self.is_valid.push(false);
        }
        for key in &mut self.fields {
            key.column.settle(n_rows, false);
        }
    }
}

fn as_offset(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Reads a value into a column.
struct Seed<'a> {
    column: &'a mut Column,
    judge: &'a mut Judge,
    /// Items of lists are never null.
    is_item: bool,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { column, judge, is_item } = self;
        match column {
            // Read as float64 first, the number would be rounded twice.
            Column::Value(ValueType::Float32, builder) => {
                deserializer.deserialize_option(Float32 { builder, judge, is_item })
            }
            Column::Value(kind, builder) => {
                deserializer.deserialize_any(Scalar { kind: *kind, builder, judge, is_item })
            }
            Column::Json(builder) => {
                let raw = <&RawValue>::deserialize(deserializer)?;
                if raw.get() == "null" {
                    builder.append_null();
                    return Ok(());
                }
                judge.add(raw.get().len())?;
                let mut parser = serde_json::Deserializer::from_str(raw.get());
                if let Err(e) = Checked(judge).deserialize(&mut parser) {
                    let bad = judge.bad_row(&e);
                    return Err(judge.refuse(bad));
                }
                builder.append_value(raw.get());
                Ok(())
            }
            Column::List(list) => deserializer.deserialize_any(List { into: list, judge, is_item }),
            Column::Struct(inner) => ObjectSeed { column: inner, judge }.or_null(deserializer),
        }
    }
}

/// A number, truth value or text.
struct Scalar<'a> {
    kind: ValueType,
    builder: &'a mut ColumnBuilder,
    judge: &'a mut Judge,
    is_item: bool,
}

impl Scalar<'_> {
    fn number<E: Error>(
        self,
        shown: impl fmt::Display,
        append: impl FnOnce(&mut ColumnBuilder) -> Result<(), Misfit>,
    ) -> Result<(), E> {
        if matches!(self.kind, ValueType::Utf8 | ValueType::Bool) {
            return Err(self.judge.misfit(Misfit::NotOne, &shown.to_string(), self.kind));
        }
        self.judge.add(8)?;
        append(self.builder).map_err(|why| self.judge.misfit(why, &shown.to_string(), self.kind))
    }
}

impl<'de> Visitor<'de> for Scalar<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        null(self.builder, self.judge, self.is_item)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.judge.add(1)?;
        let shown = if value { "true" } else { "false" };
        let appended = self.builder.append_bool(value);
        appended.map_err(|why| self.judge.misfit(why, shown, self.kind))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.number(value, |builder| builder.append_integer(i128::from(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.number(value, |builder| builder.append_integer(i128::from(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        // From 2^53 on, what the text said may have been another integer.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let is_float =
            matches!(self.kind, ValueType::Float16 | ValueType::Float32 | ValueType::Float64);
        if !is_float && value.abs() >= EXACT {
            let shown = format!("{value:?}");
            return Err(self.judge.misfit(Misfit::OutOfRange, &shown, self.kind));
        }
        self.number(value, |builder| builder.append_float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.judge.add(value.len())?;
        let appended = self.builder.append_str(value);
        appended.map_err(|why| self.judge.misfit(why, value, self.kind))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.judge.no("a list", self.kind.name()))
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.judge.no("an object", self.kind.name()))
    }
}

fn null<E: Error>(builder: &mut ColumnBuilder, judge: &mut Judge, is_item: bool) -> Result<(), E> {
    if is_item {
        return Err(judge.no("null in a list", "number"));
    }
    builder.append_null();
    Ok(())
}

/// A float32, which the parser rounds itself if it is told.
struct Float32<'a> {
    builder: &'a mut ColumnBuilder,
    judge: &'a mut Judge,
    is_item: bool,
}

impl<'de> Visitor<'de> for Float32<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("float32")
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        null(self.builder, self.judge, self.is_item)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { builder, judge, is_item } = self;
        let kind = ValueType::Float32;
        deserializer.deserialize_f32(Scalar { kind, builder, judge, is_item })
    }
}

/// A list of values of one type.
struct List<'a> {
    into: &'a mut ListColumn,
    judge: &'a mut Judge,
    is_item: bool,
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.is_item {
            return Err(self.judge.no("null in a list", "list"));
        }
        self.into.end(false);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { into: list, judge, .. } = self;
        judge.add(8)?;
        while items
            .next_element_seed(Seed { column: &mut list.inner, judge, is_item: true })?
            .is_some()
        {}
        list.end(true);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.judge.no("an object", "list"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        Err(self.judge.no(&value.to_string(), "list"))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        Err(self.judge.no(&value.to_string(), "list"))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        Err(self.judge.no(&value.to_string(), "list"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        Err(self.judge.no(&value.to_string(), "list"))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.judge.no("a text", "list"))
    }
}

/// An object with known keys.
struct ObjectSeed<'a> {
    column: &'a mut StructColumn,
    judge: &'a mut Judge,
}

impl ObjectSeed<'_> {
    /// Reads an object within another, which may be null.
    fn or_null<'de, D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(Object { seed: self, is_inner: true })
    }
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(Object { seed: self, is_inner: false })
    }
}

struct Object<'a> {
    seed: ObjectSeed<'a>,
    is_inner: bool,
}

impl Object<'_> {
    fn refuse<E: Error>(self, shown: &str) -> E {
        let judge = self.seed.judge;
        if self.is_inner { judge.no(shown, "object") } else { judge.refuse(no_object()) }
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let ObjectSeed { column, judge } = self.seed;
        column.n_begun += 1;
        let mut expected = 0;
        let mut unknown = Names::default();
        loop {
            let seed = KeySeed { fields: &column.fields, index: &column.index, expected };
            let Some(found) = members.next_key_seed(seed)? else { break };
            let at = match found {
                Ok(at) => at,
                Err(name) => {
                    if !judge.ignores_unknown {
                        return Err(judge.refuse(unknown_key(&name)));
                    }
                    let added = unknown.add(name.clone(), &mut judge.names);
                    added.map_err(|wrong| judge.refuse_names(&wrong, Some(&name)))?;
                    members.next_value_seed(Checked(judge))?;
                    continue;
                }
            };
            let Some(key) = column.fields.get_mut(at) else { continue };
            if key.seen_in == column.n_begun {
                return Err(judge.refuse(duplicate(&key.name)));
            }
            key.seen_in = column.n_begun;
            expected = at + 1;
            let seed = Seed { column: &mut key.column, judge, is_item: false };
            if let Err(e) = members.next_value_seed(seed) {
                judge.path.push(key.name.clone());
                return Err(e);
            }
        }
        let ended = unknown.end(&mut judge.names);
        ended.map_err(|wrong| judge.refuse_names(&wrong, None))?;
        column.end(true);
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if !self.is_inner {
            return Err(self.refuse("null"));
        }
        self.seed.column.end(false);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(self.refuse("a list"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        Err(self.refuse(&value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        Err(self.refuse(&value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        Err(self.refuse(&value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        Err(self.refuse(&value.to_string()))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.refuse("a text"))
    }
}

fn duplicate(name: &str) -> BadRow {
    let name: String = name.chars().take(80).collect();
    BadRow::new(REPEATED_KEY, format!("the key `{name}` stands twice in an object"))
        .hint("keep one of the two")
}

fn unknown_key(name: &str) -> BadRow {
    let name: String = name.chars().take(80).collect();
    let hint = format!(
        "declare it in `types`, such as {{ {name:?} = \"json\" }}, or set `extra = \"ignore\"`"
    );
    BadRow::new(UNKNOWN_KEY, format!("no column is called `{name}`")).hint(hint)
}

/// Finds the column of a key: its place, or its name where there is none.
struct KeySeed<'a> {
    fields: &'a [Key],
    index: &'a HashMap<String, usize>,
    /// The column that most often comes next.
    expected: usize,
}

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Result<usize, Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl KeySeed<'_> {
    fn find(&self, key: &str) -> Option<usize> {
        if self.fields.get(self.expected).is_some_and(|next| next.name == key) {
            return Some(self.expected);
        }
        self.index.get(key).copied()
    }
}

impl<'de> Visitor<'de> for KeySeed<'_> {
    type Value = Result<usize, Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(self.find(key).ok_or(Cow::Borrowed(key)))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.find(key).ok_or_else(|| Cow::Owned(key.to_owned())))
    }
}

/// Any value, which is only checked.
struct Checked<'a>(&'a mut Judge);

impl<'de> DeserializeSeed<'de> for Checked<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checked<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Checked(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = Names::default();
        while let Some(Name(name)) = members.next_key::<Name<'de>>()? {
            let added = seen.add(name.clone(), &mut self.0.names);
            added.map_err(|wrong| self.0.refuse_names(&wrong, Some(&name)))?;
            members.next_value_seed(Checked(self.0))?;
        }
        let ended = seen.end(&mut self.0.names);
        ended.map_err(|wrong| self.0.refuse_names(&wrong, None))
    }
}

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
