//! Checks JSON, whatever its columns.
//!
//! Leaves out: what it says, which `jsonl_read` puts into columns.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::jsonl_judge::{Judge, no_object};
use super::jsonl_names::Names;
use super::{BadRow, NOT_UTF8};

/// Checks a line, whatever its columns, and gives its value.
pub(super) fn checked(line: &[u8]) -> Result<&RawValue, BadRow> {
    let text = text_of(line)?;
    let mut judge = Judge::new(usize::MAX, false);
    let mut parser = serde_json::Deserializer::from_str(text);
    let parsed = Checked(&mut judge).deserialize(&mut parser).and_then(|()| parser.end());
    parsed.map_err(|e| judge.bad_row(&e))?;
    let raw: &RawValue = serde_json::from_str(text).map_err(|e| judge.bad_row(&e))?;
    if raw.get().starts_with('{') { Ok(raw) } else { Err(no_object()) }
}

pub(super) fn text_of(line: &[u8]) -> Result<&str, BadRow> {
    std::str::from_utf8(line).map_err(|e| {
        let message = format!("byte {} of the line is not UTF-8", e.valid_up_to() + 1);
        BadRow::new(NOT_UTF8, message).hint("convert the input to UTF-8")
    })
}

/// Any value, which is only checked.
pub(super) struct Checked<'a>(pub(super) &'a mut Judge);

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
