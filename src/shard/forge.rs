//! Shards put together by hand, for tests: what no writer writes, with sums that hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::{layout, sums};
use crate::fingerprint::{canonical_json, sha256_hex};
use crate::schema::{Dtype, Field, Kind, Logical, RowSchema};
use crate::storage::memory::Memory;
use crate::storage::{Overlap, Storage};

/// The folder that every forged shard lies in.
pub(super) const FOLDER: &str = "/shard";

/// A shard in the making: any files, sealed as they are.
#[derive(Debug, Clone)]
pub(super) struct Forge {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) n_rows: u64,
}

impl Forge {
    /// Adds or replaces a file.
    pub(super) fn with(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.insert(name.into(), bytes.into());
        self
    }

    /// Leaves a file out.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.files.remove(name);
        self
    }

    /// Replaces text in a JSON document.
    pub(super) fn edit(self, name: &str, from: &str, to: &str) -> Self {
        let text = String::from_utf8(self.files[name].clone()).unwrap();
        assert!(text.contains(from), "{name} holds no {from}: {text}");
        self.with(name, text.replace(from, to))
    }

    /// Writes the files with sums and sentinel.
    pub(super) fn seal(&self) -> Memory {
        let memory = Memory::new(Overlap::Now);
        memory.create_dir(Path::new(FOLDER)).unwrap();
        let mut files = self.files.clone();
        let blocks: Vec<u8> = files
            .values()
            .flat_map(|bytes| bytes.chunks(1 << 20))
            .flat_map(|block| crc32fast::hash(block).to_le_bytes())
            .collect();
        files.entry(layout::BLOCKS.into()).or_insert(blocks);
        let digests = files
            .iter()
            .map(|(name, bytes)| (name.clone(), blake3::hash(bytes).to_hex().to_string()))
            .collect();
        let text = sums::text(&digests);
        let complete = json!({
            "rows": self.n_rows,
            "sums_b3": blake3::hash(text.as_bytes()).to_hex().as_str(),
        });
        files.insert(layout::SUMS.into(), text.into_bytes());
        files.insert(layout::COMPLETE.into(), layout::document(&complete));
        for (name, bytes) in files {
            memory.write_atomic(&Path::new(FOLDER).join(name), &bytes).unwrap();
        }
        memory
    }

    /// Writes them and gives the storage as the readers take it.
    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.seal())
    }
}

fn field(name: &str, kind: Kind, dtype: Dtype) -> Field {
    let axis = matches!(kind, Kind::Ragged | Kind::Free).then(|| name.to_owned());
    Field {
        name: name.into(),
        stem: name.into(),
        kind,
        dtype,
        shape: Vec::new(),
        axis,
        nullable: false,
        logical: None,
        categories: None,
        sidecar: None,
        index: false,
    }
}

pub(super) fn i64s(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

pub(super) fn i32s(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

pub(super) fn i16s(numbers: &[i16]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// `keys.bin` of rows with these keys.
pub(super) fn keys(keys: &[&str]) -> Vec<u8> {
    let hash = |key: &str| crate::schema::key_hash_bytes(key.as_bytes());
    let mut entries: Vec<_> = keys.iter().zip(0_u32..).map(|(key, row)| (hash(key), row)).collect();
    entries.sort_unstable();
    entries.iter().flat_map(|(h, r)| [&h.to_le_bytes()[..], &r.to_le_bytes()].concat()).collect()
}

/// `index.parquet` with these numbers of rows and nothing else.
pub(super) fn index(rows: Vec<i64>) -> Vec<u8> {
    let rows = Arc::new(Int64Array::from(rows));
    let batch = RecordBatch::try_from_iter([("row", rows as _)]).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// `fingerprint.json` of rows from the first one on up to the position `to`.
pub(super) fn fingerprint(to: &Value) -> Vec<u8> {
    let mut print = json!({
        "cache_key": "0123456789abcdef", "layout": 1, "slot": "00",
        "inputs": [{"path": "a.csv", "size": 9}],
        "source": {"from": {"input": 0, "source_row": 0, "sub_row": 0}, "to": to},
    });
    print["hash"] = sha256_hex(canonical_json(&print).as_bytes()).into();
    layout::document(&print)
}

pub(super) fn schema() -> RowSchema {
    let nullable = |field| Field { nullable: true, ..field };
    let id = Field { logical: Some(Logical::Utf8), ..field("id", Kind::Ragged, Dtype::Uint8) };
    let x = Field { shape: vec![2], ..field("x", Kind::Fixed, Dtype::Int16) };
    let on_atoms = |field| Field { axis: Some("atoms".into()), ..field };
    let place = Field { shape: vec![3], ..field("place", Kind::Ragged, Dtype::Int16) };
    let z = field("z", Kind::Ragged, Dtype::Uint8);
    let grid = Field { shape: vec![0, 0], ..field("grid", Kind::Free, Dtype::Int32) };
    let panel = Field {
        logical: Some(Logical::Utf8),
        sidecar: Some("panels.json".into()),
        ..field("panel", Kind::Interned, Dtype::Uint8)
    };
    let pet = Field {
        categories: Some(vec!["cat".into(), "dog".into()]),
        ..field("pet", Kind::Fixed, Dtype::Int8)
    };
    let flag = field("flag", Kind::Fixed, Dtype::Bool);
    let fields = vec![
        id,
        x,
        on_atoms(place),
        on_atoms(z),
        nullable(grid),
        nullable(panel),
        nullable(pet),
        nullable(flag),
    ];
    RowSchema::new(fields, Some("id")).unwrap()
}

/// A shard of three rows with a field of every kind:
///
/// | row | id | x | place, z | grid | panel | pet | flag |
/// |---|---|---|---|---|---|---|---|
/// | 0 | a | 1, 2 | two atoms | 1 × 2 | P | dog | true |
/// | 1 | bb | 3, 4 | none | one number | - | - | - |
/// | 2 | c | 5, 6 | one atom | - | Q | cat | false |
pub(super) fn sample() -> Forge {
    let schema = schema();
    let shapes = schema.shapes_json(3, &[4, 0, 3, 3, 3, 0, 0, 0]);
    Forge { files: BTreeMap::new(), n_rows: 3 }
        .with("id.bin", "abbc")
        .with("id.offsets.bin", i64s(&[0, 1, 3, 4]))
        .with("x.bin", i16s(&[1, 2, 3, 4, 5, 6]))
        .with("place.bin", i16s(&[1, 2, 3, 4, 5, 6, 7, 8, 9]))
        .with("z.bin", [1, 6, 8])
        .with("atoms.offsets.bin", i64s(&[0, 2, 2, 3]))
        .with("grid.bin", i32s(&[10, 20, 30]))
        .with("grid.dims.bin", i32s(&[1, 2, -1, -1, 0, 0]))
        .with("grid.offsets.bin", i64s(&[0, 2, 3, 3]))
        .with("grid.valid.bin", [1, 1, 0])
        .with("panel.codes.bin", i32s(&[0, -1, 1]))
        .with("panel.dict.bin", "PQ")
        .with("panel.dict.offsets.bin", i64s(&[0, 1, 2]))
        .with("panels.json", "{\n  \"0\": \"P\",\n  \"1\": \"Q\"\n}\n")
        .with("pet.bin", [1, 0xff, 0])
        .with("flag.bin", [1, 0, 0])
        .with("flag.valid.bin", [1, 0, 1])
        .with(layout::KEYS, keys(&["a", "bb", "c"]))
        .with(layout::PROVENANCE, i64s(&[0, 0, 0, -1]))
        .with(layout::INDEX, index(vec![0, 1, 2]))
        .with(layout::REJECTS, "")
        .with(layout::SCHEMA, layout::document(&schema.to_json()))
        .with(layout::SHAPES, layout::document(&shapes))
        .with(layout::FINGERPRINT, fingerprint(&Value::Null))
}
