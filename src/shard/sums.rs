//! `_COMPLETE` and `B3SUMS`: what a sealed shard says of itself.
//!
//! Leaves out: comparing it with the files (`verify`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::layout;

/// What `_COMPLETE` of a shard says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentinel {
    /// Number of rows.
    pub(super) n_rows: u64,
    /// BLAKE3 of `B3SUMS` as 64 hex digits.
    pub(super) sums_b3: String,
}

impl Sentinel {
    /// Reads the sentinel's bytes; it is refused unless it is byte for byte what was written.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let document: Value =
            serde_json::from_slice(bytes).map_err(|_| "is not JSON".to_owned())?;
        let it = Self::of_document(&document)?;
        if it.to_bytes() != bytes {
            return Err("is not as it was written".into());
        }
        Ok(it)
    }

    /// What a document says that has the members of a sentinel.
    pub(super) fn of_document(document: &Value) -> Result<Self, String> {
        let n_rows = document.get("rows").and_then(Value::as_u64);
        let sums_b3 = document.get("sums_b3").and_then(Value::as_str);
        let (Some(n_rows), Some(sums_b3)) = (n_rows, sums_b3.filter(|b3| is_digest(b3))) else {
            return Err("lacks `rows` or `sums_b3`".into());
        };
        Ok(Self { n_rows, sums_b3: sums_b3.to_owned() })
    }

    /// The document, as it lies on disk.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        layout::document(&json!({"rows": self.n_rows, "sums_b3": self.sums_b3}))
    }

    /// The shard's id.
    pub(super) fn id(&self) -> &str {
        self.sums_b3.get(..layout::ID_DIGITS).unwrap_or(&self.sums_b3)
    }
}

/// The digests of a shard's files by name.
pub(super) type Sums = BTreeMap<String, String>;

/// Reads `B3SUMS`: a line per file, sorted by name.
pub(super) fn parse(bytes: &[u8]) -> Result<Sums, String> {
    let text = str::from_utf8(bytes).map_err(|_| "is no text".to_owned())?;
    let mut sums = Sums::new();
    for (n, line) in text.split_inclusive('\n').enumerate() {
        let (name, digest) =
            entry(line).ok_or_else(|| format!("line {} is no sum and name", n + 1))?;
        if sums.last_key_value().is_some_and(|(last, _)| last.as_str() >= name) {
            return Err(format!("line {} is out of order", n + 1));
        }
        sums.insert(name.to_owned(), digest.to_owned());
    }
    Ok(sums)
}

/// Reads as many lines of a damaged `B3SUMS` as can be read.
pub(super) fn parse_damaged(bytes: &[u8]) -> Sums {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| entry(str::from_utf8(line).ok()?));
    entries.map(|(name, digest)| (name.to_owned(), digest.to_owned())).collect()
}

fn entry(line: &str) -> Option<(&str, &str)> {
    let (digest, name) = line.strip_suffix('\n')?.split_once("  ")?;
    (is_digest(digest) && !name.is_empty() && !name.contains('/')).then_some((name, digest))
}

/// The text of `B3SUMS`.
pub(super) fn text(sums: &Sums) -> String {
    let lines = sums.iter().flat_map(|(name, digest)| [digest.as_str(), "  ", name, "\n"]);
    lines.collect()
}

/// Whether `text` is 64 lower-case hex digits.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn sums_are_read_as_they_are_written() {
        let sums = Sums::from([("a.bin".into(), ZERO.into()), ("b.bin".into(), ZERO.into())]);
        let text = text(&sums);
        assert_eq!(parse(text.as_bytes()), Ok(sums));
        assert_eq!(parse(b""), Ok(Sums::new()));
    }

    #[test]
    fn sums_that_were_changed_are_refused() {
        for (name, text, want) in [
            ("torn", format!("{ZERO}  a"), "line 1 is no sum and name"),
            ("one space", format!("{ZERO} a\n"), "line 1 is no sum and name"),
            ("no digest", "12  a\n".to_owned(), "line 1 is no sum and name"),
            ("a path", format!("{ZERO}  ../a\n"), "line 1 is no sum and name"),
            ("order", format!("{ZERO}  b\n{ZERO}  a\n"), "line 2 is out of order"),
            ("twice", format!("{ZERO}  a\n{ZERO}  a\n"), "line 2 is out of order"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(want.to_owned()), "{name}");
        }
    }

    #[test]
    fn a_sentinel_counts_only_as_it_was_written() {
        let good = format!("{{\n  \"rows\": 7,\n  \"sums_b3\": \"{ZERO}\"\n}}\n");
        let read = Sentinel::parse(good.as_bytes()).unwrap();
        assert_eq!((read.n_rows, read.id()), (7, &ZERO[..32]));
        for (name, text, want) in [
            ("empty", String::new(), "is not JSON"),
            ("torn", good[..40].to_owned(), "is not JSON"),
            ("no newline", good.trim_end().to_owned(), "is not as it was written"),
            ("a space more", good.replace(": 7", ":  7"), "is not as it was written"),
            ("negative", good.replace(": 7", ": -7"), "lacks `rows` or `sums_b3`"),
            ("short digest", good.replace("000\"", "00\""), "lacks `rows` or `sums_b3`"),
        ] {
            assert_eq!(Sentinel::parse(text.as_bytes()), Err(want.to_owned()), "{name}");
        }
    }
}
