//! The inputs that a sealed shard names, and the source that lists them.
//!
//! Invariant: of the list there is one entry in memory, however many there are.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::layout;
use super::options::ShardInput;
use super::read_error::ReadError;
use super::reader::Shard;
use crate::inputs::RowPlace;

/// A source row of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The source that lists its input, where the shard names one.
    pub source: Option<String>,
    /// Where it stands there.
    pub place: RowPlace,
}

impl Shard {
    /// Where a source row stands; provenance and rejects count inputs by `input`. `None` where there is
    /// no input of that number.
    ///
    /// # Errors
    /// `fingerprint.json` is missing, or not what the format promises.
    pub fn origin(&self, input: u32, source_row: u64) -> Result<Option<Origin>, ReadError> {
        let bytes = self.folder().map(layout::FINGERPRINT)?;
        let mut document = serde_json::Deserializer::from_slice(&bytes);
        let found = Document(input).deserialize(&mut document);
        let (source, input) = found
            .map_err(|_| self.folder().damaged(layout::FINGERPRINT, "does not list its inputs"))?;
        Ok(input.map(|input| Origin { source, place: input.row(source_row) }))
    }
}

/// Finds the name of the source, and an entry of the list of inputs.
struct Document(u32);

impl<'de> DeserializeSeed<'de> for Document {
    type Value = (Option<String>, Option<ShardInput>);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document {
    type Value = (Option<String>, Option<ShardInput>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document with inputs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut source, mut found) = (None, None);
        while let Some(key) = members.next_key::<String>()? {
            match key.as_str() {
                "inputs" => found = Some(members.next_value_seed(Inputs(self.0))?),
                "source" => source = members.next_value::<Source>()?.name,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        let found = found.ok_or_else(|| A::Error::missing_field("inputs"))?;
        Ok((source, found))
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
struct Source {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    path: String,
    size: u64,
    range: Option<[u64; 2]>,
}
