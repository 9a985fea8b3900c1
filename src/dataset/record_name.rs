//! The file names of partition records: a slot, and digits of the record's own BLAKE3.
//!
//! Leaves out: what stands in them (`record`).

use super::error::Result;
use super::home::{Home, is_hex};
use crate::storage::Storage;

/// The file name of a record: `<slot>-<16 hex>.json`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordName(pub(super) String);

impl RecordName {
    /// Reads a name; `None` if it is not a record's.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (slot, digits) = name.strip_suffix(".json")?.split_once('-')?;
        (is_hex(slot, 32) && is_hex(digits, 16)).then(|| Self(name.to_owned()))
    }

    /// The slot of the partition.
    #[must_use]
    pub fn slot(&self) -> &str {
        self.0.split_once('-').map_or("", |(slot, _)| slot)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The names of all records of a dataset, sorted, so that those of one slot stand together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordNames(Vec<RecordName>);

impl RecordNames {
    /// Lists the records in a dataset's folder; other names are passed over.
    ///
    /// # Errors
    /// The disk's.
    pub fn list(storage: &dyn Storage, home: &Home) -> Result<Self> {
        let entries = storage.list(&home.partitions())?.unwrap_or_default();
        Ok(Self(entries.iter().filter_map(|entry| RecordName::parse(&entry.name)).collect()))
    }

    /// The records of one slot, sorted by name.
    #[must_use]
    pub fn of_slot(&self, slot: &str) -> &[RecordName] {
        let from = self.0.partition_point(|name| name.slot() < slot);
        let to = self.0.partition_point(|name| name.slot() <= slot);
        self.0.get(from..to).unwrap_or_default()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &RecordName> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_records_are_records() {
        for (name, is_one) in [
            ("00112233445566778899aabbccddeeff-0123456789abcdef.json", true),
            ("00112233445566778899aabbccddeeff-0123456789ABCDEF.json", false),
            ("00112233445566778899aabbccddeeff-0123456789abcdef.json.tmp", false),
            ("00112233445566778899aabbccddeeff.json", false),
            ("0-0.json", false),
            ("", false),
        ] {
            assert_eq!(RecordName::parse(name).is_some(), is_one, "{name}");
        }
    }
}
