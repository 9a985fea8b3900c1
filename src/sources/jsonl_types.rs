//! The types of JSON Lines columns: declared, inferred, and as Arrow has them.
//!
//! Invariants:
//! 1. A type inferred from values holds each of them; what has none in common is `json`.
//! 2. A type comes back from the Arrow field that was made of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field};
use schemars::JsonSchema;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::value_type::ValueType;

/// An object with more keys than this is a map by name rather than a record, and stays JSON.
const MOST_KEYS: usize = 1000;

/// Keys that are remembered while types are inferred, those within objects included.
pub(super) const MOST_COLUMNS: usize = 1 << 16;
/// Lists are at most this deep, as arrays in rows are.
const MOST_LEVELS: usize = 8;

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JsonType {
    /// Numbers, texts or truth values.
    Value(ValueType),
    /// Any value, as its JSON.
    Json,
    /// Lists of numbers, truth values or such lists.
    List(Box<JsonType>),
    /// Objects with these keys.
    Struct(Fields),
}

/// Keys of an object, in order, and what they hold.
pub(super) type Fields = Vec<(String, JsonType)>;

/// A type as a definition names it: `int64`, `json`, `list<float32>`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub(super) struct Declared(pub(super) JsonType);

impl TryFrom<String> for Declared {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        named(&name, 0).map(Self).ok_or_else(|| {
            format!(
                "`{name}` is no type: there are bool, int8 to int64, uint8 to uint64, float16, \
                 float32, float64, utf8, json, and lists such as `list<float32>`"
            )
        })
    }
}

fn named(name: &str, n_levels: usize) -> Option<JsonType> {
    if let Some(inner) = name.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
        let inner = named(inner, n_levels + 1)?;
        let fits = n_levels < MOST_LEVELS && inner.is_item();
        return fits.then(|| JsonType::List(Box::new(inner)));
    }
    if name == "json" {
        return Some(JsonType::Json);
    }
    ValueType::deserialize(serde_json::Value::from(name)).ok().map(JsonType::Value)
}

impl JsonType {
    /// Whether lists may be made of it.
    fn is_item(&self) -> bool {
        match self {
            Self::Value(kind) => *kind != ValueType::Utf8,
            Self::List(_) => true,
            Self::Json | Self::Struct(_) => false,
        }
    }

    /// The column of that name.
    pub(super) fn field(&self, name: &str, is_nullable: bool) -> Field {
        match self {
            Self::Value(kind) => Field::new(name, kind.arrow(), is_nullable),
            Self::Json => Field::new(name, DataType::LargeUtf8, is_nullable).with_metadata(
                HashMap::from([(EXTENSION_TYPE_NAME_KEY.to_owned(), "arrow.json".to_owned())]),
            ),
            Self::List(inner) => {
                let item = Arc::new(inner.field("item", false));
                Field::new(name, DataType::LargeList(item), is_nullable)
            }
            Self::Struct(fields) => {
                let fields = fields.iter().map(|(key, inner)| inner.field(key, true));
                Field::new(name, DataType::Struct(fields.collect()), is_nullable)
            }
        }
    }

    /// What a column that [`JsonType::field`] made holds.
    pub(super) fn of_field(field: &Field) -> Option<Self> {
        let is_json = field.metadata().contains_key(EXTENSION_TYPE_NAME_KEY);
        match field.data_type() {
            DataType::LargeUtf8 if is_json => Some(Self::Json),
            DataType::LargeList(item) => {
                let inner = Self::of_field(item)?;
                inner.is_item().then(|| Self::List(Box::new(inner)))
            }
            DataType::Struct(fields) => {
                let fields = fields.iter().map(|f| Some((f.name().clone(), Self::of_field(f)?)));
                fields.collect::<Option<_>>().map(Self::Struct)
            }
            other => ValueType::of_arrow(other).map(Self::Value),
        }
    }
}

/// Puts declared types in the place of inferred ones; those whose keys were not seen come last.
///
/// # Errors
/// The name of a declared type that goes through a key which holds no objects, and that key.
pub(super) fn declare(
    fields: &mut Fields,
    declared: &BTreeMap<String, Declared>,
) -> Result<(), (String, String)> {
    let mut used = BTreeSet::new();
    replace(fields, "", declared, &mut used);
    for (name, Declared(kind)) in declared.iter().filter(|(name, _)| !used.contains(*name)) {
        insert(fields, name, kind.clone()).map_err(|through| (name.clone(), through))?;
    }
    Ok(())
}

fn replace<'a>(
    fields: &mut Fields,
    prefix: &str,
    declared: &'a BTreeMap<String, Declared>,
    used: &mut BTreeSet<&'a String>,
) {
    for (key, kind) in fields {
        let name = format!("{prefix}{key}");
        if let Some((name, Declared(declared))) = declared.get_key_value(&name) {
            used.insert(name);
            *kind = declared.clone();
        } else if let JsonType::Struct(inner) = kind {
            replace(inner, &format!("{name}."), declared, used);
        }
    }
}

fn insert(fields: &mut Fields, name: &str, kind: JsonType) -> Result<(), String> {
    let Some((key, rest)) = name.split_once('.') else {
        fields.push((name.to_owned(), kind));
        return Ok(());
    };
    let at = fields.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
        fields.push((key.to_owned(), JsonType::Struct(Vec::new())));
        fields.len() - 1
    });
    match fields.get_mut(at) {
        Some((_, JsonType::Struct(inner))) => insert(inner, rest, kind),
        _ => Err(key.to_owned()),
    }
}

/// The names of the fields that columns become: `a.b` for a key within an object.
pub(super) fn leaf_names(fields: &Fields, prefix: &str, out: &mut Vec<String>) {
    for (key, kind) in fields {
        match kind {
            JsonType::Struct(inner) => leaf_names(inner, &format!("{prefix}{key}."), out),
            _ => out.push(format!("{prefix}{key}")),
        }
    }
}

/// Finds the columns of lines.
#[derive(Debug, Default)]
pub(super) struct Columns {
    root: Guess,
    room: Room,
}

/// There are more keys than columns may be.
#[derive(Debug)]
pub(super) struct TooManyKeys;

impl Columns {
    /// Takes a line, one that has been checked: it is an object, and not too deep.
    pub(super) fn take(&mut self, line: &RawValue) {
        self.root.take(line, MOST_COLUMNS, &mut self.room);
    }

    /// Whether no key was seen.
    pub(super) fn is_empty(&self) -> bool {
        self.root.keys.guesses.is_empty()
    }

    /// The columns.
    pub(super) fn into_fields(self) -> Result<Fields, TooManyKeys> {
        if self.room.is_exceeded {
            return Err(TooManyKeys);
        }
        let guesses = self.root.keys.guesses.into_iter();
        Ok(guesses.map(|(key, guess)| (key, guess.answer(0))).collect())
    }
}

/// How many keys are remembered in all.
#[derive(Debug, Default)]
struct Room {
    n_keys: usize,
    is_exceeded: bool,
}

/// Finds the type that all values of a column have in common.
#[derive(Debug, Default)]
struct Guess {
    has: Has,
    items: Option<Box<Guess>>,
    keys: Keys,
}

/// What has been seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of kinds of values")]
struct Has {
    null: bool,
    bool: bool,
    integer: bool,
    /// An integer that int64 cannot hold: as a float it would lose digits.
    long: bool,
    float: bool,
    text: bool,
    object: bool,
}

#[derive(Debug, Default)]
struct Keys {
    /// In the order in which they were seen.
    guesses: Vec<(String, Guess)>,
    index: HashMap<String, usize>,
    /// Whether there were more than are remembered: then none is.
    is_overfull: bool,
}

impl Guess {
    /// Takes a value. Of an object, `most` keys are remembered, or none if it has more.
    fn take(&mut self, raw: &RawValue, most: usize, room: &mut Room) {
        let text = raw.get();
        match text.as_bytes().first() {
            Some(b'n') => self.has.null = true,
            Some(b't' | b'f') => self.has.bool = true,
            Some(b'"') => self.has.text = true,
            Some(b'[') => {
                let items = self.items.get_or_insert_default();
                for item in serde_json::from_str::<Vec<&RawValue>>(text).unwrap_or_default() {
                    items.take(item, MOST_KEYS, room);
                }
            }
            Some(b'{') => {
                self.has.object = true;
                if let Ok(Members(members)) = serde_json::from_str::<Members<'_>>(text) {
                    for (key, value) in members {
                        if let Some(guess) = self.keys.of(key, most, room) {
                            guess.take(value, MOST_KEYS, room);
                        }
                    }
                }
            }
            _ if text.contains(['.', 'e', 'E']) => self.has.float = true,
            _ if text.parse::<i64>().is_ok() => self.has.integer = true,
            _ => self.has.long = true,
        }
    }

    fn answer(self, n_levels: usize) -> JsonType {
        let only = |kinds: Has| self.has == Has { null: self.has.null, ..kinds };
        let is = |kind: Has| only(kind);
        let (integer, float) = (self.has.integer, self.has.float);
        match self.items {
            Some(items) if only(Has::default()) && n_levels < MOST_LEVELS => {
                let has_null = items.has.null;
                let inner = items.answer(n_levels + 1);
                let fits = inner.is_item() && !has_null;
                return if fits { JsonType::List(Box::new(inner)) } else { JsonType::Json };
            }
            Some(_) => return JsonType::Json,
            None => {}
        }
        if is(Has { integer: true, ..Has::default() }) {
            JsonType::Value(ValueType::Int64)
        } else if is(Has { integer, float: true, ..Has::default() }) && float {
            JsonType::Value(ValueType::Float64)
        } else if is(Has { bool: true, ..Has::default() }) {
            JsonType::Value(ValueType::Bool)
        } else if is(Has { text: true, ..Has::default() }) {
            JsonType::Value(ValueType::Utf8)
        } else if is(Has { object: true, ..Has::default() }) && !self.keys.guesses.is_empty() {
            let guesses = self.keys.guesses.into_iter();
            JsonType::Struct(guesses.map(|(key, guess)| (key, guess.answer(0))).collect())
        } else {
            JsonType::Json
        }
    }
}

impl Keys {
    /// What is known of a key, `None` where it is not remembered.
    fn of(&mut self, key: String, most: usize, room: &mut Room) -> Option<&mut Guess> {
        if self.is_overfull {
            return None;
        }
        let at = match self.index.get(&key) {
            Some(at) => *at,
            None if self.guesses.len() < most && room.n_keys < MOST_COLUMNS => {
                room.n_keys += 1;
                self.guesses.push((key.clone(), Guess::default()));
                self.index.insert(key, self.guesses.len() - 1);
                self.guesses.len() - 1
            }
            None => {
                room.is_exceeded |= room.n_keys >= MOST_COLUMNS;
                room.n_keys -= self.guesses.len();
                *self = Self { is_overfull: true, ..Self::default() };
                return None;
            }
        };
        self.guesses.get_mut(at).map(|(_, guess)| guess)
    }
}

/// The members of an object, in order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(InOrder).map(Self)
    }
}

impl Serialize for Declared {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.name())
    }
}

impl JsonType {
    /// Its name in a definition.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Value(kind) => kind.name().to_owned(),
            Self::Json => "json".to_owned(),
            Self::List(inner) => format!("list<{}>", inner.name()),
            Self::Struct(_) => "object".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inferred(lines: &[&str]) -> Fields {
        let mut guess = Columns::default();
        for line in lines {
            guess.take(serde_json::from_str(line).unwrap());
        }
        guess.into_fields().unwrap()
    }

    fn shown(fields: &Fields) -> String {
        let shown = fields.iter().map(|(key, kind)| match kind {
            JsonType::Struct(inner) => format!("{key}: {{{}}}", shown(inner)),
            other => format!("{key}: {}", other.name()),
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn types_are_inferred_by_the_rule() {
        for (values, want) in [
            (&["1", "-2", "null"][..], "int64"),
            (&["1", "2.5"], "float64"),
            (&["1e3"], "float64"),
            (&["9223372036854775807"], "int64"),
            (&["9223372036854775808"], "json"),
            (&["1.5", "123456789012345678901234567890"], "json"),
            (&["true", "false"], "bool"),
            (&["true", "1"], "json"),
            (&["\"x\"", "\"\""], "utf8"),
            (&["\"x\"", "1"], "json"),
            (&["null"], "json"),
            (&["[]"], "json"),
            (&["[1, 2]", "[]", "null"], "list<int64>"),
            (&["[1]", "[2.5]"], "list<float64>"),
            (&["[[1], []]", "[]"], "list<list<int64>>"),
            (&["[[1], 2]"], "json"),
            (&["[1, null]"], "json"),
            (&["[\"x\"]"], "json"),
            (&["[{\"a\": 1}]"], "json"),
            (&["{}"], "json"),
            (&["{}", "1"], "json"),
            (&["[1]", "1"], "json"),
            (&["[[[[[[[[[1]]]]]]]]]"], "json"),
        ] {
            let lines: Vec<_> = values.iter().map(|v| format!("{{\"x\": {v}}}")).collect();
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            assert_eq!(shown(&inferred(&lines)), format!("x: {want}"), "{values:?}");
        }
        let lines = [r#"{"b": {"y": 1}, "a": null}"#, r#"{"b": {"x": "t", "y": 2.5}, "c": true}"#];
        assert_eq!(shown(&inferred(&lines)), "b: {y: float64, x: utf8}, a: json, c: bool");
    }

    #[test]
    fn declared_types_take_the_place_of_inferred_ones() {
        let declared = |names: &[(&str, &str)]| -> BTreeMap<String, Declared> {
            let kind = |name: &str| Declared::try_from(name.to_owned()).unwrap();
            names.iter().map(|(name, of)| ((*name).to_owned(), kind(of))).collect()
        };
        let lines = [r#"{"a": {"b": 1, "c": 2}, "d": 3, "e.f": 4}"#];
        for (types, want) in [
            (&[("a", "json")][..], Ok("a: json, d: int64, e.f: int64")),
            (&[("a.b", "int8")], Ok("a: {b: int8, c: int64}, d: int64, e.f: int64")),
            (&[("e.f", "utf8")], Ok("a: {b: int64, c: int64}, d: int64, e.f: utf8")),
            (
                &[("a.x.y", "bool")],
                Ok("a: {b: int64, c: int64, x: {y: bool}}, d: int64, e.f: int64"),
            ),
            (&[("d.x", "bool")], Err("d.x through d")),
        ] {
            let mut fields = inferred(&lines);
            let got = declare(&mut fields, &declared(types)).map(|()| shown(&fields));
            let got = got.map_err(|(name, through)| format!("{name} through {through}"));
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{types:?}");
        }
    }

    #[test]
    fn types_come_back_from_their_columns() {
        for name in ["int8", "utf8", "json", "list<float32>", "list<list<bool>>"] {
            let Declared(kind) = Declared::try_from(name.to_owned()).unwrap();
            assert_eq!(kind.name(), name);
            assert_eq!(JsonType::of_field(&kind.field("x", true)), Some(kind.clone()), "{name}");
            let whole = JsonType::Struct(vec![("k".to_owned(), kind)]);
            assert_eq!(JsonType::of_field(&whole.field("x", true)), Some(whole), "{name}");
        }
        for name in ["int65", "list<utf8>", "list<json>", "list<int8", "List<int8>", ""] {
            assert!(Declared::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
