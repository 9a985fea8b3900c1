//! The names of files and folders, and the form of JSON documents.
//!
//! Leaves out: what the files hold, and the names that a schema decides (`schema::Field::files`).

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A shard's sentinel, and a dataset's.
pub const COMPLETE: &str = "_COMPLETE";
/// What stands for the sentinel of a shard whose field files are on an object store only.
pub const REMOTE: &str = "_REMOTE";
/// The BLAKE3 of a shard's files.
pub const SUMS: &str = "B3SUMS";
/// The CRC-32 of each block of a shard's files.
pub const BLOCKS: &str = "blocks.bin";
/// Hashes of the rows' keys.
pub const KEYS: &str = "keys.bin";
/// Where each row came from.
pub const PROVENANCE: &str = "provenance.bin";
/// One Parquet row per row.
pub const INDEX: &str = "index.parquet";
/// What was rejected, and why.
pub const REJECTS: &str = "rejects.jsonl";
/// The fields.
pub const SCHEMA: &str = "schema.json";
/// The shape of each field's array.
pub const SHAPES: &str = "shapes.json";
/// What the shard was made from.
pub const FINGERPRINT: &str = "fingerprint.json";
/// The log of an open shard.
pub const MANIFEST: &str = "manifest.jsonl";

/// Bytes covered by one number of [`BLOCKS`].
pub const BLOCK_BYTES: u64 = 1 << 20;

/// Length of a shard's id in hex digits.
pub const ID_DIGITS: usize = 32;

/// Folder of a dataset's sealed shards.
#[must_use]
pub fn shards(dataset: &Path) -> PathBuf {
    dataset.join("shards")
}

/// Folder of one sealed shard.
#[must_use]
pub fn sealed(dataset: &Path, id: &str) -> PathBuf {
    shards(dataset).join(id)
}

/// Folder of the state of a dataset's one writer.
#[must_use]
pub fn work(dataset: &Path) -> PathBuf {
    dataset.join("work")
}

/// Folder of what is about to be deleted.
#[must_use]
pub fn trash(dataset: &Path) -> PathBuf {
    work(dataset).join("trash")
}

/// Folder of a partition's open shards.
#[must_use]
pub fn open_shards(dataset: &Path, slot: &str) -> PathBuf {
    work(dataset).join("open").join(slot)
}

/// Folder of a partition's open shard of that number.
#[must_use]
pub fn open_shard(dataset: &Path, slot: &str, number: u64) -> PathBuf {
    open_shards(dataset, slot).join(number.to_string())
}

/// Folder of the partitions' logs.
#[must_use]
pub fn logs(dataset: &Path) -> PathBuf {
    work(dataset).join("log")
}

/// The log of one partition.
#[must_use]
pub fn log(dataset: &Path, slot: &str) -> PathBuf {
    logs(dataset).join(format!("{slot}.jsonl"))
}

/// A JSON document as it stands in a file: sorted keys, two spaces, a final newline.
#[must_use]
pub fn document(value: &Value) -> Vec<u8> {
    // Writing a JSON value, whose keys are text, into memory cannot fail.
    let mut bytes = serde_json::to_vec_pretty(&sorted(value)).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The same value with the keys of its objects in order, whichever map `serde_json` was built with.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            members.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_sorted_indented_and_end_with_a_newline() {
        let value = json!({"b": [1, {"d": null, "c": "é"}], "a": {}});
        let want = "{\n  \"a\": {},\n  \"b\": [\n    1,\n    {\n      \"c\": \"é\",\n      \
                    \"d\": null\n    }\n  ]\n}\n";
        assert_eq!(String::from_utf8(document(&value)).unwrap(), want);
    }
}
