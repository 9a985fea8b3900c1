//! What the bytes of a whole shard must say: everything the format promises beyond sums.
//!
//! Leaves out: the values of `index.parquet` beside its row numbers; they repeat the fields.
//!
//! Invariant: one pass over each field in row order; memory is a bit per row, and 16 bytes per
//! distinct value of the interned field at hand.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use super::field_reader::FieldReader;
use super::finding::{Finding, FindingKind};
use super::layout;
use super::read_error::ReadError;
use super::reader::{KEY_BYTES, Key, Shard, key_entry};
use crate::fingerprint::{canonical_json, sha256_hex};
use crate::schema::{Dtype, Field, FileRole, Kind, Logical, integer};
use crate::storage::staged_for;

/// Rows that `index.parquet` is read by.
const INDEX_ROWS: usize = 8192;

type Step = fn(&Shard) -> Result<(), ReadError>;

/// Files that every shard has beside those of its fields.
const ALWAYS: [&str; 9] = [
    layout::BLOCKS,
    layout::COMPLETE,
    layout::FINGERPRINT,
    layout::INDEX,
    layout::PROVENANCE,
    layout::REJECTS,
    layout::SCHEMA,
    layout::SHAPES,
    layout::SUMS,
];

/// Files that every folder of keyed rows has beside those of its fields.
const KEYED: [&str; 6] =
    [layout::BLOCKS, layout::COMPLETE, layout::KEYS, layout::SCHEMA, layout::SHAPES, layout::SUMS];

/// An error of the reader as damage of its file.
pub(super) fn wrong(shard: &Path, error: &ReadError) -> Finding {
    let (path, what) = match error {
        ReadError::Damaged { path, what } => (path.clone(), what.clone()),
        ReadError::Missing { path } => (path.clone(), "is missing".to_owned()),
        ReadError::Schema { path, source } => (path.clone(), source.to_string()),
        ReadError::Storage(e) => return Finding::of_refusal(e),
        other => (shard.to_path_buf(), other.to_string()),
    };
    Finding { path, block: None, kind: FindingKind::Wrong(what) }
}

/// Everything that is wrong with a shard whose sums hold.
pub(super) fn check(shard: &Shard) -> Vec<Finding> {
    let steps: [Step; 5] = [file_names, shapes, keys, made_from, index];
    run(shard, &steps)
}

fn run(shard: &Shard, steps: &[Step]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |result: Result<(), ReadError>| {
        findings.extend(result.err().map(|e| wrong(shard.path(), &e)));
    };
    for i in 0..shard.schema().fields().len() {
        note(shard.field_at(i).and_then(|field| check_field(shard, field)));
    }
    for step in steps {
        note(step(shard));
    }
    findings
}

/// Everything that is wrong with a folder of keyed rows whose sums hold.
pub(super) fn check_keyed(shard: &Shard) -> Vec<Finding> {
    let steps: [Step; 3] = [keyed_file_names, shapes, row_keys];
    run(shard, &steps)
}

fn damaged(shard: &Shard, name: &str, what: impl Into<String>) -> ReadError {
    shard.folder().damaged(name, what)
}

fn read(shard: &Shard, name: &str) -> Result<Vec<u8>, ReadError> {
    let path: PathBuf = shard.path().join(name);
    shard.folder().storage.read(&path)?.ok_or(ReadError::Missing { path })
}

fn document(shard: &Shard, name: &str) -> Result<Value, ReadError> {
    let bytes = read(shard, name)?;
    let value: Value =
        serde_json::from_slice(&bytes).map_err(|_| damaged(shard, name, "is not JSON"))?;
    if layout::document(&value) != bytes {
        return Err(damaged(shard, name, "is not in the form of our documents"));
    }
    Ok(value)
}

/// The folder has the files that the schema asks for, and no others.
fn file_names(shard: &Shard) -> Result<(), ReadError> {
    files_are(shard, &ALWAYS)
}

/// The same of a folder of keyed rows.
fn keyed_file_names(shard: &Shard) -> Result<(), ReadError> {
    files_are(shard, &KEYED)
}

/// `keys.bin` has a key for each row.
fn row_keys(shard: &Shard) -> Result<(), ReadError> {
    shard.row_keys().map(drop)
}

fn files_are(shard: &Shard, always: &[&str]) -> Result<(), ReadError> {
    let mut want: BTreeSet<String> = always.iter().map(ToString::to_string).collect();
    let fields = shard.schema().fields();
    want.extend(fields.iter().flat_map(Field::files).map(|file| file.name));
    if shard.schema().key().is_some() {
        want.insert(layout::KEYS.into());
    }
    let entries = shard.folder().storage.list(shard.path())?.unwrap_or_default();
    let mut got: BTreeSet<String> = entries.into_iter().map(|entry| entry.name).collect();
    got.remove(layout::REMOTE);
    got.retain(|name| staged_for(name).is_none());
    match want.symmetric_difference(&got).next() {
        None => Ok(()),
        Some(name) if want.contains(name) => {
            Err(ReadError::Missing { path: shard.path().join(name) })
        }
        Some(name) => Err(damaged(shard, name, "is no file of a shard with this schema")),
    }
}

/// `schema.json` and `shapes.json` are what the fields make of them.
fn shapes(shard: &Shard) -> Result<(), ReadError> {
    if document(shard, layout::SCHEMA)? != shard.schema().to_json() {
        return Err(damaged(shard, layout::SCHEMA, "says more than a schema of this layout"));
    }
    let mut entries = Vec::new();
    for i in 0..shard.schema().fields().len() {
        let field = shard.field_at(i)?;
        let unit = field.unit_bytes().max(1);
        entries.push((field.bytes().len() / unit) as u64);
    }
    if document(shard, layout::SHAPES)? != shard.schema().shapes_json(shard.n_rows(), &entries) {
        return Err(damaged(shard, layout::SHAPES, "does not have the shapes of the files"));
    }
    Ok(())
}

/// Every row of a field, and its dictionary.
fn check_field(shard: &Shard, field: &FieldReader) -> Result<(), ReadError> {
    let own_axis = field.field().axis.as_ref() == Some(&field.field().stem);
    let mut next_code = 0;
    for row in 0..shard.n_rows() {
        let bytes = field.row(row)?;
        let valid = field.is_valid(row)?;
        if field.field().kind == Kind::Free {
            let dims = field.dims(row)?;
            if !valid && (dims.len() != field.field().shape.len() || dims.iter().any(|&d| d != 0)) {
                return Err(field.damaged(FileRole::Dims, format!("absent row {row} has dims")));
            }
        }
        if let Some(code) = field.code_of_interned(row)? {
            if code > next_code {
                let what = format!("row {row} has the code {code} before {next_code} was seen");
                return Err(field.damaged(FileRole::Codes, what));
            }
            next_code = next_code.max(code + 1);
        } else if !valid && field.field().categories.is_none() {
            if bytes.iter().any(|&byte| byte != 0) || (own_axis && !bytes.is_empty()) {
                let what = format!("absent row {row} has a value");
                return Err(field.damaged(FileRole::Values, what));
            }
        } else {
            check_value(field, bytes, &format_args!("row {row}"), FileRole::Values)?;
        }
    }
    if field.field().kind == Kind::Interned {
        check_dictionary(shard, field, next_code)?;
    }
    Ok(())
}

fn check_value(
    field: &FieldReader,
    bytes: &[u8],
    which: &dyn std::fmt::Display,
    role: FileRole,
) -> Result<(), ReadError> {
    let fits = match &field.field().logical {
        Some(Logical::Utf8) => str::from_utf8(bytes).is_ok(),
        Some(Logical::Json) => serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok(),
        _ if field.field().dtype == Dtype::Bool => bytes.iter().all(|&byte| byte <= 1),
        _ => true,
    };
    if fits {
        return Ok(());
    }
    let kind = field.field().logical.as_ref().map_or("bool", Logical::name);
    Err(field.damaged(role, format!("{which} is not {kind}")))
}

/// Values are used, distinct, and repeated by the sidecar.
fn check_dictionary(shard: &Shard, field: &FieldReader, n_used: usize) -> Result<(), ReadError> {
    if n_used != field.n_values() {
        let what = format!("{} values, of which rows use {n_used}", field.n_values());
        return Err(field.damaged(FileRole::Dict, what));
    }
    let sidecar = field.field().sidecar.as_ref();
    let text = sidecar.map(|name| read(shard, name)).transpose()?.unwrap_or_default();
    let mut rest = text.as_slice();
    let mut seen = HashSet::new();
    for code in 0..field.n_values() {
        let bytes = field.dictionary_value(code)?;
        check_value(field, bytes, &format_args!("value {code}"), FileRole::Dict)?;
        if !seen.insert(blake3::hash(bytes).as_bytes().first_chunk::<16>().copied()) {
            let what = format!("value {code} is there twice");
            return Err(field.damaged(FileRole::Dict, what));
        }
        if sidecar.is_some() {
            let value = Value::from(String::from_utf8_lossy(bytes));
            let line = format!("{}  \"{code}\": {value}", if code == 0 { "{\n" } else { ",\n" });
            let stripped = rest.strip_prefix(line.as_bytes());
            rest = stripped.ok_or_else(|| {
                field.damaged(FileRole::Sidecar, format!("does not have value {code}"))
            })?;
        }
    }
    let end: &[u8] = if field.n_values() == 0 { b"{}\n" } else { b"\n}\n" };
    if sidecar.is_some() && rest != end {
        return Err(field.damaged(FileRole::Sidecar, "has more values than the dictionary"));
    }
    Ok(())
}

/// `keys.bin` has every row once, sorted, with the hash of its key, and no key is there twice.
fn keys(shard: &Shard) -> Result<(), ReadError> {
    let Some(index) = shard.schema().key_index() else { return Ok(()) };
    let field = shard.field_at(index)?;
    let fail = |what: String| Err(damaged(shard, layout::KEYS, what));
    let (entries, _) = shard.keys()?.as_slice().as_chunks::<KEY_BYTES>();
    let mut last: Option<(u64, u64)> = None;
    for (n, entry) in entries.iter().enumerate() {
        let (hash, row) = key_entry(entry);
        if row >= shard.n_rows() {
            return fail(format!("entry {n} is of row {row}, the shard has {}", shard.n_rows()));
        }
        let bytes = field.row(row)?;
        let key = if field.field().kind == Kind::Fixed {
            Key::Integer(integer(bytes, field.field().dtype))
        } else {
            Key::Text(str::from_utf8(bytes).unwrap_or_default())
        };
        if key.hash() != hash {
            return fail(format!("entry {n} is not the hash of row {row}'s key"));
        }
        // Sorted without repetition, and as many as rows: each row is there once.
        if last.is_some_and(|last| last >= (hash, row)) {
            return fail(format!("entry {n} is out of order"));
        }
        let twin = last.filter(|last| last.0 == hash).map(|last| last.1);
        if let Some(twin) = twin.filter(|twin| field.row(*twin).is_ok_and(|other| other == bytes)) {
            return fail(format!("rows {twin} and {row} have the same key"));
        }
        last = Some((hash, row));
    }
    Ok(())
}

/// `fingerprint.json` is what was hashed, and knows the inputs of rows and rejects. It may list a great
/// many of them, and is read once.
fn made_from(shard: &Shard) -> Result<(), ReadError> {
    let mut print = document(shard, layout::FINGERPRINT)?;
    let hash = print.as_object_mut().and_then(|members| members.remove("hash"));
    if hash != Some(sha256_hex(canonical_json(&print).as_bytes()).into()) {
        return Err(damaged(shard, layout::FINGERPRINT, "its hash is not that of the rest"));
    }
    provenance(shard, &print)?;
    rejects(shard, &print)
}

/// Runs describe the rows, and the fingerprint `print` knows their inputs and first position.
fn provenance(shard: &Shard, print: &Value) -> Result<(), ReadError> {
    let provenance = shard.provenance()?;
    let n_inputs = print.get("inputs").and_then(Value::as_array).map_or(0, Vec::len);
    if let Some(run) = provenance.runs().iter().find(|run| run.input as usize >= n_inputs) {
        let what = format!("row {} is of input {}, there are {n_inputs}", run.row, run.input);
        return Err(damaged(shard, layout::PROVENANCE, what));
    }
    let source = print.get("source").cloned().unwrap_or_default();
    let position = |key: &str| serde_json::from_value(source.get(key)?.clone()).ok();
    let (from, to) = (position("from"), position("to"));
    let first = provenance.position(0);
    let last = shard.n_rows().checked_sub(1).and_then(|row| provenance.position(row));
    let begins = first.is_none_or(|first| from == Some(first));
    let ends = source.get("to").is_some_and(Value::is_null) || (to.is_some() && last < to);
    if !(begins && ends) {
        return Err(damaged(shard, layout::FINGERPRINT, "its rows are not those of the shard"));
    }
    Ok(())
}

/// Each line is a reject of an input of the shard, in stream order.
fn rejects(shard: &Shard, print: &Value) -> Result<(), ReadError> {
    let n_inputs = print.get("inputs").and_then(Value::as_array).map_or(0, Vec::len);
    let mut foreign = None;
    shard.rejects(|reject| {
        if reject.input as usize >= n_inputs {
            foreign.get_or_insert(reject.input);
        }
    })?;
    match foreign {
        None => Ok(()),
        Some(input) => {
            let what = format!("a reject is of input {input}, there are {n_inputs}");
            Err(damaged(shard, layout::REJECTS, what))
        }
    }
}

/// `index.parquet` can be read to its end and counts the rows.
fn index(shard: &Shard) -> Result<(), ReadError> {
    let fail = |what: String| damaged(shard, layout::INDEX, what);
    let bytes = shard.folder().storage.map(&shard.path().join(layout::INDEX));
    let bytes: Bytes = bytes.map_err(ReadError::at)?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)
        .and_then(|builder| builder.with_batch_size(INDEX_ROWS).build())
        .map_err(|e| fail(e.to_string()))?;
    let mut n_rows = 0_i64;
    for batch in reader {
        let batch = batch.map_err(|e| fail(e.to_string()))?;
        let rows = batch.columns().first().and_then(|c| c.as_primitive_opt::<Int64Type>());
        let rows = rows.ok_or_else(|| fail("its first column is not `row`".into()))?;
        for row in rows {
            if row != Some(n_rows) {
                return Err(fail(format!("row {n_rows} is called {row:?}")));
            }
            n_rows += 1;
        }
    }
    if u64::try_from(n_rows) != Ok(shard.n_rows()) {
        return Err(fail(format!("{n_rows} rows, the shard has {}", shard.n_rows())));
    }
    Ok(())
}
