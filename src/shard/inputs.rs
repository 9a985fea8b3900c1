//! The inputs that a sealed shard names.
//!
//! Invariant: of the list there is one entry in memory, however many there are.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::layout;
use super::options::ShardInput;
use super::read_error::ReadError;
use super::reader::Shard;

impl Shard {
    /// The input of that number, which provenance and rejects count by; `None` where there is none.
    ///
    /// # Errors
    /// `fingerprint.json` is missing, or not what the format promises.
    pub fn input(&self, number: u32) -> Result<Option<ShardInput>, ReadError> {
        let bytes = self.folder().map(layout::FINGERPRINT)?;
        let mut document = serde_json::Deserializer::from_slice(&bytes);
        let found = Document(number).deserialize(&mut document);
        found.map_err(|_| self.folder().damaged(layout::FINGERPRINT, "does not list its inputs"))
    }
}

/// Finds an entry of the list of inputs.
struct Document(u32);

impl<'de> DeserializeSeed<'de> for Document {
    type Value = Option<ShardInput>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document {
    type Value = Option<ShardInput>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document with inputs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = members.next_key::<String>()? {
            if key == "inputs" {
                found = Some(members.next_value_seed(Inputs(self.0))?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        found.ok_or_else(|| A::Error::missing_field("inputs"))
    }
}

struct Inputs(u32);

impl<'de> DeserializeSeed<'de> for Inputs {
    type Value = Option<ShardInput>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Inputs {
    type Value = Option<ShardInput>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of inputs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        for _ in 0..self.0 {
            if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = items.next_element::<Listed>()?;
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found.map(|it| ShardInput {
            path: it.path,
            size: it.size,
            range: it.range.map(|[from, to]| from..to),
        }))
    }
}

#[derive(Deserialize)]
struct Listed {
    path: String,
    size: u64,
    range: Option<[u64; 2]>,
}
