//! Reads JSON into columns.
//!
//! Leaves out: what comes of a row that is refused halfway, which `Rows` of `jsonl_values` sees to.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonl_checked::Checked;
use super::jsonl_columns::{Column, Key, ListColumn, StructColumn};
use super::jsonl_judge::{Judge, duplicate, no_object, unknown_key};
use super::jsonl_names::Names;
use super::value_type::{ColumnBuilder, Misfit, ValueType};

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

/// What a visitor of lists or objects does with scalars.
macro_rules! refuse_scalars {
    () => {
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
    };
}

/// A list of values of one type.
struct List<'a> {
    into: &'a mut ListColumn,
    judge: &'a mut Judge,
    is_item: bool,
}

impl List<'_> {
    fn refuse<E: Error>(self, shown: &str) -> E {
        self.judge.no(shown, "list")
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.is_item {
            return Err(self.refuse("null in a list"));
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
        Err(self.refuse("an object"))
    }

    refuse_scalars!();
}

/// An object with known keys.
pub(super) struct ObjectSeed<'a> {
    pub(super) column: &'a mut StructColumn,
    pub(super) judge: &'a mut Judge,
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

    refuse_scalars!();
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
