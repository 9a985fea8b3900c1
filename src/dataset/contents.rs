//! What partitions found in their inputs: digests of the bytes that were read.

use serde::{Deserialize, Serialize};

use crate::inputs::{InputDigest, InputRange};

/// What a partition found in one input. The fields stand in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    /// BLAKE3 of the bytes that were read.
    #[serde(with = "hex_digest")]
    pub b3: blake3::Hash,
    /// Path relative to the source's root.
    pub path: String,
    /// The bytes that were read, where the file is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[u64; 2]>,
    /// How many bytes were hashed.
    pub size: u64,
}

impl Contents {
    /// What was found in an input or range.
    #[must_use]
    pub fn new(input: &InputRange, digest: &InputDigest) -> Self {
        let range = input.range.as_ref().map(|r| [r.start, r.end]);
        Self { b3: digest.blake3, path: digest.path.clone(), range, size: digest.size }
    }

    /// Whether this is about that input or range.
    #[must_use]
    pub fn is_of(&self, input: &InputRange) -> bool {
        let range = input.range.as_ref().map(|r| [r.start, r.end]);
        self.path == input.input.path && self.range == range && self.size == input.bytes()
    }
}

/// A digest as 64 hex digits.
pub(super) mod hex_digest {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(b3: &blake3::Hash, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&b3.to_hex())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<blake3::Hash, D::Error> {
        let digits = std::borrow::Cow::<str>::deserialize(from)?;
        let hash = blake3::Hash::from_hex(digits.as_bytes()).map_err(D::Error::custom)?;
        // Upper-case digits would be another text for the same digest.
        let is_lower_case = hash.to_hex().as_str() == digits;
        if is_lower_case { Ok(hash) } else { Err(D::Error::custom("not lower-case hex")) }
    }
}
