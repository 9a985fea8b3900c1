//! What is done with bytes of which nothing is known: one function per kind of file, which cargo-fuzz
//! drives (`run/`) and a test with mutated files of ours (`main.rs`).
//!
//! Invariants:
//! 1. No bytes make a function panic, hang or take memory out of proportion.
//! 2. What is read can be written, and is then read as the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use rowmill::batch::{Batch, OnError, Provenance, Restart};
use rowmill::config::{Definition, Registry};
use rowmill::dataset::keys::KeyIndex;
use rowmill::dataset::manifest::{DatasetLine, Manifest};
use rowmill::schema::{FieldSpec, RowSchema};
use rowmill::shard::{
    CommitPolicy, Glance, Shard, ShardInput, ShardLimits, Writer, WriterOptions, layout,
    verify_shard,
};
use rowmill::storage::{Memory, Overlap, Storage};

/// Reads a pipeline definition, and makes the sources and transforms that it names.
pub(crate) fn definition(bytes: &[u8]) {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());
    let path = FOLDER.path().join("p.toml");
    std::fs::write(&path, bytes).unwrap();
    let load = || Definition::load(&path, &[], Registry::BUILT_IN);
    match load() {
        Ok(read) => {
            let same = load().unwrap();
            assert_eq!(format!("{:?}", read.data), format!("{:?}", same.data));
            // Patterns and types are looked at when stages are made.
            if let Err((_, e)) = read.make_sources() {
                told::<(), _>(Err(e));
            }
            told(read.make_transforms());
        }
        Err(errors) => {
            assert!(!errors.errors().is_empty());
            assert!(!errors.to_string().is_empty());
        }
    }
}

/// Reads the manifest of a dataset, and resumes a shard with it as the shard's own.
pub(crate) fn manifest(bytes: &[u8]) {
    let memory = Memory::new(Overlap::Now);
    let dir = Path::new("/dataset");
    memory.create_dir_all(dir).unwrap();
    let name = Manifest::file_name(&blake3::hash(bytes));
    memory.write_atomic(&dir.join(&name), bytes).unwrap();
    match Manifest::read_named(&memory, dir, &name) {
        Ok(manifest) => {
            let manifest = manifest.unwrap();
            let line = serde_json::to_vec(&manifest.dataset).unwrap();
            let again: DatasetLine = serde_json::from_slice(&line).unwrap();
            assert_eq!(serde_json::to_vec(&again).unwrap(), line);
            let rows = manifest.parts().flat_map(|(_, shards)| shards).map(|shard| shard.rows);
            assert_eq!(rows.fold(0, u64::saturating_add), manifest.dataset.rows);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    resume(&with_sums(bytes));
}

/// Reads a schema, and a shard that has it.
pub(crate) fn schema(bytes: &[u8]) {
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    if let Ok(schema) = RowSchema::from_json(&document) {
        assert_eq!(RowSchema::from_json(&schema.to_json()).unwrap(), schema);
        assert_eq!(schema.arrow_schema().fields().len(), schema.fields().len());
    }
    let memory = SEALED.memory.after_kill();
    replace(&memory, &SEALED.folder.join(layout::SCHEMA), bytes);
    let sums = SEALED.file(layout::SUMS);
    let sums = String::from_utf8(sums).unwrap();
    let lines = sums.lines().map(|line| match line.strip_suffix(layout::SCHEMA) {
        Some(_) => format!("{}  {}\n", blake3::hash(bytes).to_hex(), layout::SCHEMA),
        None => format!("{line}\n"),
    });
    let sums: String = lines.collect();
    replace(&memory, &SEALED.folder.join(layout::SUMS), sums.as_bytes());
    let sums_b3 = blake3::hash(sums.as_bytes()).to_hex();
    let complete = format!("{{\"rows\":{N_ROWS},\"sums_b3\":\"{sums_b3}\"}}\n");
    replace(&memory, &SEALED.folder.join(layout::COMPLETE), complete.as_bytes());
    let Ok(shard) = Shard::open(Arc::new(memory), &SEALED.folder) else { return };
    for field in 0..shard.schema().fields().len() {
        let Ok(reader) = shard.field_at(field) else { continue };
        for row in 0..shard.n_rows() {
            told(reader.row(row));
        }
        told(shard.record_batch_of(0..shard.n_rows(), &[field]));
    }
    told(shard.find("a"));
}

/// How many starts a key index has.
const N_STARTS: usize = (1 << 16) + 1;

/// Looks up keys with these bytes as the keys of a shard, and as an index of many.
pub(crate) fn keys(bytes: &[u8]) {
    let mut own = bytes.to_vec();
    own.resize(SEALED.file(layout::KEYS).len(), 0);
    let shard = SEALED.with(layout::KEYS, &own);
    for id in IDS.iter().chain(&["", "nobody"]) {
        if let Ok(Some(row)) = shard.find(*id) {
            assert_eq!(IDS[usize::try_from(row).unwrap()], *id);
        }
    }
    // The starts of an index, and its entries.
    let n_rows = bytes.len() / 16;
    let entries = &bytes[..n_rows * 16];
    let words: Vec<[u8; 8]> = bytes.as_chunks().0.to_vec();
    let wide = (n_rows as u64).to_le_bytes();
    let claimed = (0..N_STARTS).map(|i| words.get(i % (words.len() + 1)).copied().unwrap_or(wide));
    let all = (0..N_STARTS).map(|i| if i % 2 == 0 { [0; 8] } else { wide });
    for starts in [claimed.collect::<Vec<_>>(), all.collect()] {
        let memory = Memory::new(Overlap::Now);
        let path = Path::new("/keys.bin");
        memory.write_atomic(path, &[starts.as_flattened(), entries].concat()).unwrap();
        let index = KeyIndex::open(&memory, path, n_rows as u64).unwrap();
        let hashes = words.iter().map(|word| u64::from_le_bytes(*word));
        for hash in hashes.take(100).chain([0, 1, 1 << 48, u64::MAX]) {
            assert!(index.rows(hash).unwrap().count() <= n_rows);
        }
    }
}

/// Reads where rows came from.
pub(crate) fn provenance(bytes: &[u8]) {
    let shard = SEALED.with(layout::PROVENANCE, bytes);
    let Ok(provenance) = shard.provenance() else { return };
    assert_eq!(provenance.n_rows(), shard.n_rows());
    let mut written = Vec::new();
    for run in provenance.runs() {
        let (row, source_row) = (run.row.cast_signed(), run.source_row.cast_signed());
        for number in [row, i64::from(run.input), source_row, run.sub_row] {
            written.extend(number.to_le_bytes());
        }
    }
    assert_eq!(written, bytes);
}

/// Whatever a result is, it can be told.
fn told<T, E: std::fmt::Display>(result: Result<T, E>) {
    if let Err(e) = result {
        assert!(!e.to_string().is_empty());
    }
}

const IDS: [&str; 5] = ["a", "b", "größe", "d", "e"];
const N_ROWS: usize = IDS.len();

fn rows() -> RecordBatch {
    let list = |n: usize| Some((0..n).map(|i| u8::try_from(i).ok().map(f32::from)));
    let lists = ListArray::from_iter_primitive::<Float32Type, _, _>((0..N_ROWS).map(list));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(StringArray::from(IDS.to_vec()))),
        ("n", Arc::new(Int64Array::from(vec![Some(0), Some(-1), None, Some(i64::MAX), None]))),
        ("list", Arc::new(lists)),
        ("kind", Arc::new(StringArray::from(vec!["x", "y", "x", "x", "z"]))),
        ("note", Arc::new(StringArray::from(vec![Some("one"), None, Some(""), None, Some("2")]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| {
        let nullable = matches!(name, "n" | "note");
        (name, array, nullable)
    }))
    .unwrap()
}

fn options() -> WriterOptions {
    let kind = FieldSpec { intern: true, ..FieldSpec::default() };
    let specs = BTreeMap::from([("kind".to_owned(), kind)]);
    WriterOptions {
        dataset: PathBuf::from("/dataset"),
        cache_key: "0123456789abcdef".into(),
        slot: "0123456789abcdef0123456789abcdef".into(),
        schema: RowSchema::infer(&rows().schema(), &specs, Some("id")).unwrap(),
        stages: vec!["rows".into()],
        inputs: vec![ShardInput { path: "rows.bin".into(), size: 7, range: None }],
        limits: ShardLimits::default(),
        on_error: OnError::Fail,
        commits: CommitPolicy::default(),
    }
}

/// A writer that was given the rows.
fn written(memory: &Memory) -> Writer {
    memory.create_dir_all(Path::new("/dataset")).unwrap();
    let (mut writer, _) = Writer::open(Arc::new(memory.clone()), options()).unwrap();
    let restart = Restart { input: 0, source_row: 0, ..Restart::default() };
    let provenance = Provenance::of_input(0, 0, N_ROWS as u64);
    let batch = Batch { rows: rows(), provenance, events: Vec::new(), restart };
    writer.append(&batch).unwrap();
    writer
}

/// Files of ours in memory.
pub(crate) struct Whole {
    memory: Memory,
    folder: PathBuf,
}

impl Whole {
    pub(crate) fn file(&self, name: &str) -> Vec<u8> {
        self.memory.read(&self.folder.join(name)).unwrap().unwrap()
    }

    /// The shard with other bytes in one file.
    fn with(&self, name: &str, bytes: &[u8]) -> Shard {
        let memory = self.memory.after_kill();
        replace(&memory, &self.folder.join(name), bytes);
        Shard::open(Arc::new(memory), &self.folder).unwrap()
    }
}

/// A sealed shard.
pub(crate) static SEALED: LazyLock<Whole> = LazyLock::new(|| {
    let memory = Memory::new(Overlap::Now);
    let finished = written(&memory).finish().unwrap();
    let folder = finished.shards[0].path().to_path_buf();
    Whole { memory, folder }
});

/// An open shard with one commit.
pub(crate) static OPEN: LazyLock<Whole> = LazyLock::new(|| {
    let memory = Memory::new(Overlap::Now);
    let mut writer = written(&memory);
    writer.commit().unwrap();
    drop(writer);
    let folder = layout::open_shard(Path::new("/dataset"), &options().slot, 0);
    Whole { memory: memory.after_kill(), folder }
});

fn replace(memory: &Memory, path: &Path, bytes: &[u8]) {
    memory.remove_file(path).unwrap();
    memory.write_atomic(path, bytes).unwrap();
}

/// What a line of a log ends with, before eight digits.
const SUM: &str = ",\"crc32\":\"";

/// Lines as a log has them: each that is an object without a sum is given its own.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    let mut log = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"}\n") {
            Some(body) if !body.windows(SUM.len()).any(|part| part == SUM.as_bytes()) => {
                log.extend(body);
                log.extend(format!("{SUM}{:08x}\"}}\n", crc32fast::hash(body)).into_bytes());
            }
            _ => log.extend(line),
        }
    }
    log
}

/// Looks at the open shard with this manifest, goes on with it and seals it.
fn resume(log: &[u8]) {
    let memory = OPEN.memory.after_kill();
    replace(&memory, &OPEN.folder.join(layout::MANIFEST), log);
    let dataset = Path::new("/dataset");
    told(Glance::of(&memory, dataset, &options().slot));
    let storage: Arc<dyn Storage> = Arc::new(memory);
    match Writer::open(Arc::clone(&storage), options()) {
        Err(e) => told::<(), _>(Err(e)),
        Ok((writer, _)) => {
            let Ok(finished) = writer.finish() else { return };
            for shard in &finished.shards {
                verify_shard(&storage, shard.path()).unwrap();
            }
        }
    }
}
