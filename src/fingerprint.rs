//! What names things: canonical JSON and the hashes over it.
//!
//! A **cache key** names everything that decides values except the inputs; a **slot** names the
//! working state of one partition; a **fingerprint** names a whole dataset; a **compat signature**
//! names the values of a feature. All of them are
//! functions of plain values, so that any other program can compute them.
//!
//! Leaves out: bytes of files and rows, which are hashed with BLAKE3 where they pass.
//!
//! Invariants:
//! 1. Canonical JSON is byte for byte Python's
//!    `json.dumps(x, sort_keys=True, separators=(",", ":"))`.
//! 2. Nothing here looks at a clock, a file or the environment.

mod signature;
mod stamp;
mod types;

use std::ops::Range;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use signature::CompatSignature;
pub use stamp::{Fingerprinting, Stamp};
pub use types::{TypesError, types_from_json, types_to_json};

/// The shard writer as a stage of the identity; its version is bumped when equal rows can come to
/// other bytes in a sealed shard.
pub const SHARD_WRITER: &str = "shard@3";

/// Hex digits of a cache key.
pub const CACHE_KEY_DIGITS: usize = 16;
/// Hex digits of a slot.
pub const SLOT_DIGITS: usize = 32;

/// `value` as canonical JSON.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

/// SHA-256 as 64 lower-case hex digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The cache key of a dataset with this identity.
#[must_use]
pub fn cache_key(identity: &Value) -> String {
    hash(identity, CACHE_KEY_DIGITS)
}

/// An input as fingerprints and records name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputName<'a> {
    /// Path relative to the source's root, with `/`.
    pub path: &'a str,
    /// Number of bytes read: of the file, or of the range.
    pub size: u64,
    /// The bytes read, where the file is cut.
    pub range: Option<&'a Range<u64>>,
    /// BLAKE3 of the bytes read, where it is known.
    pub b3: Option<&'a str>,
}

impl InputName<'_> {
    /// `{"path", "size"}`, with `"range": [from, to]` and `"b3"` where there are such.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        object.insert("path".into(), self.path.into());
        object.insert("size".into(), self.size.into());
        if let Some(range) = self.range {
            object.insert("range".into(), json!([range.start, range.end]));
        }
        if let Some(b3) = self.b3 {
            object.insert("b3".into(), b3.into());
        }
        Value::Object(object)
    }
}

/// The slot of a partition, known from the listing.
///
/// `source` is the name of the source that lists `inputs`; `side` are the files that decide values
/// beside them; `types` is what was fixed at planning, such as [`types_to_json`] of the columns.
#[must_use]
pub fn slot(
    cache_key: &str,
    source: &str,
    inputs: &[InputName<'_>],
    side: &[InputName<'_>],
    types: &Value,
) -> String {
    let mut hash = ObjectHash::new();
    hash.text("cache_key", cache_key);
    hash.inputs("inputs", inputs.iter().copied());
    hash.inputs("side", side.iter().copied());
    hash.text("source", source);
    hash.value("types", types);
    let mut hex = hash.hex();
    hex.truncate(SLOT_DIGITS);
    hex
}

/// The fingerprint of a dataset. `inputs_b3` has, for each partition in dataset order, the BLAKE3 of
/// its input list as the manifest says it; so a manifest is enough to compute its own.
#[must_use]
pub fn dataset_fingerprint<S: AsRef<str>>(cache_key: &str, inputs_b3: &[S]) -> String {
    let inputs: Vec<&str> = inputs_b3.iter().map(AsRef::as_ref).collect();
    hash(&json!({"cache_key": cache_key, "inputs": inputs}), 64)
}

/// SHA-256 of the canonical JSON of an object, taken member by member: a list of many inputs never
/// stands in memory as a document.
#[derive(Debug)]
pub struct ObjectHash {
    hasher: Sha256,
    /// What is hashed next.
    text: String,
    last_key: Option<&'static str>,
}

impl ObjectHash {
    /// An object without members.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: Sha256::new(), text: "{".to_owned(), last_key: None }
    }

    /// Adds a string. Members are given in the order of their keys.
    pub fn text(&mut self, key: &'static str, text: &str) {
        self.key(key);
        write_string(text, &mut self.text);
    }

    /// Adds any value.
    pub fn value(&mut self, key: &'static str, value: &Value) {
        self.key(key);
        write_value(value, &mut self.text);
    }

    /// Adds a list of inputs as [`InputName::to_json`] writes each.
    pub fn inputs<'a>(
        &mut self,
        key: &'static str,
        inputs: impl IntoIterator<Item = InputName<'a>>,
    ) {
        self.key(key);
        self.text.push('[');
        for (i, input) in inputs.into_iter().enumerate() {
            if i > 0 {
                self.text.push(',');
            }
            write_value(&input.to_json(), &mut self.text);
            self.drain();
        }
        self.text.push(']');
    }

    /// The digest as 64 lower-case hex digits.
    #[must_use]
    pub fn hex(mut self) -> String {
        self.text.push('}');
        self.drain();
        hex(&self.hasher.finalize())
    }

    fn key(&mut self, key: &'static str) {
        assert!(self.last_key < Some(key), "members come in the order of their keys");
        if self.last_key.is_some() {
            self.text.push(',');
        }
        self.last_key = Some(key);
        write_string(key, &mut self.text);
        self.text.push(':');
    }

    fn drain(&mut self) {
        self.hasher.update(self.text.as_bytes());
        self.text.clear();
    }
}

impl Default for ObjectHash {
    fn default() -> Self {
        Self::new()
    }
}

fn hash(document: &Value, digits: usize) -> String {
    let mut hex = sha256_hex(canonical_json(document).as_bytes());
    hex.truncate(digits);
    hex
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        push_hex(*byte, &mut hex);
    }
    hex
}

fn push_hex(byte: u8, out: &mut String) {
    for digit in [byte >> 4, byte & 15] {
        out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => out.push_str(&python_float(float)),
            None => out.push_str(&number.to_string()),
        },
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            // Python sorts by code points, which is the order of UTF-8 bytes.
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_value(value, out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str("\\u");
                    push_hex((*unit >> 8) as u8, out);
                    push_hex((*unit & 0xff) as u8, out);
                }
            }
        }
    }
    out.push('"');
}

/// A finite float as Python's `repr` writes it: the shortest digits that read back as the same
/// value, with an exponent below 1e-4 and from 1e16 on.
fn python_float(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = float.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_json_is_what_python_writes() {
        // The right side was printed by Python 3.11.
        for (json, want) in [
            (r#"{"b": 1, "a": [true, false, null]}"#, r#"{"a":[true,false,null],"b":1}"#),
            (
                r#"{"é": "ü", "z": "😀", "Z": ""}"#,
                r#"{"Z":"","z":"\ud83d\ude00","\u00e9":"\u00fc"}"#,
            ),
            (
                r#""\"\\/\b\f\n\r\t\u0000\u001f\u007f~ ""#,
                r#""\"\\/\b\f\n\r\t\u0000\u001f\u007f~ ""#,
            ),
            ("[0, -1, 18446744073709551615]", "[0,-1,18446744073709551615]"),
            (
                "[1e15, 1e16, 123456789012345680.0]",
                "[1000000000000000.0,1e+16,1.2345678901234568e+17]",
            ),
            ("[0.0001, 0.00001, -0.0, 1.5, 100.0]", "[0.0001,1e-05,-0.0,1.5,100.0]"),
            ("[5e-324, 1.7976931348623157e308, 0.1]", "[5e-324,1.7976931348623157e+308,0.1]"),
            ("[1234567890123456.8, 9007199254740993.0]", "[1234567890123456.8,9007199254740992.0]"),
            ("{}", "{}"),
            ("[]", "[]"),
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(canonical_json(&value), want, "{json}");
        }
    }

    #[test]
    fn sha256_is_the_standard_one() {
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), want);
    }

    const KEY: &str = "0123456789abcdef";

    fn input(path: &str, size: u64) -> InputName<'_> {
        InputName { path, size, range: None, b3: None }
    }

    #[test]
    fn a_slot_depends_on_everything_it_names() {
        let types = json!([{"name": "x", "type": "int8"}]);
        let (a, b) = (input("a", 1), input("b", 2));
        let base = slot(KEY, "a", &[a, b], &[], &types);
        assert_eq!(base, slot(KEY, "a", &[a, b], &[], &types));
        assert_eq!(base.len(), SLOT_DIGITS);
        let digest = "00".repeat(32);
        for (name, other) in [
            ("cache key", slot("1123456789abcdef", "a", &[a, b], &[], &types)),
            ("source", slot(KEY, "b", &[a, b], &[], &types)),
            ("order", slot(KEY, "a", &[b, a], &[], &types)),
            ("size", slot(KEY, "a", &[a, input("b", 3)], &[], &types)),
            ("path", slot(KEY, "a", &[a, input("c", 2)], &[], &types)),
            ("fewer", slot(KEY, "a", &[a], &[], &types)),
            ("range", slot(KEY, "a", &[a, InputName { range: Some(&(0..2)), ..b }], &[], &types)),
            ("side", slot(KEY, "a", &[a], &[b], &types)),
            ("digest", slot(KEY, "a", &[a, InputName { b3: Some(&digest), ..b }], &[], &types)),
            ("types", slot(KEY, "a", &[a, b], &[], &json!([]))),
        ] {
            assert_ne!(base, other, "{name}");
        }
    }

    #[test]
    fn golden_names() {
        let types = json!([{"name": "x", "type": "int8"}]);
        let range = 0..7;
        let cut = InputName { path: "ü/b.csv", size: 7, range: Some(&range), b3: None };
        let got = [
            cache_key(&json!({"layout": 1})),
            slot(KEY, "a", &[input("a", 1), cut], &[input("LICENSE", 3)], &types),
            dataset_fingerprint(KEY, &["aa", "bb"]),
        ];
        // import hashlib, json; c = lambda x: hashlib.sha256(json.dumps(x, sort_keys=True,
        //     separators=(",", ":")).encode()).hexdigest()
        let want = [
            "7ab5c3764baa1cbd",
            "c2e3e270edb79f6ede289474618aa4fd",
            "3138d2206c0d5fe2c9d7ccfc002f85ad1b1749d348ea3a32182b820eeb7653ff",
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn an_object_hashed_by_members_is_the_hash_of_the_document() {
        let range = 3..9;
        let inputs =
            [input("a", 1), InputName { path: "ü", size: 6, range: Some(&range), b3: Some("00") }];
        let mut hash = ObjectHash::new();
        hash.inputs("inputs", inputs);
        hash.inputs("none", []);
        hash.text("text", "\"é\"");
        hash.value("value", &json!({"b": 1, "a": [0.5]}));
        let document = json!({
            "inputs": inputs.iter().map(InputName::to_json).collect::<Vec<_>>(),
            "none": [],
            "text": "\"é\"",
            "value": {"a": [0.5], "b": 1},
        });
        assert_eq!(hash.hex(), sha256_hex(canonical_json(&document).as_bytes()));
        assert_eq!(ObjectHash::new().hex(), sha256_hex(b"{}"));
    }
}
