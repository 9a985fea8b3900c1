//! Batches written into shards, and shards read by the reader in Python: `mod shards;`.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    reason = "a test puts files where another process finds them, and says what it skips"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::RecordBatch;
use rowmill::batch::{Batch, Event, Provenance, Restart};
use rowmill::schema::RowSchema;
use rowmill::shard::{CommitPolicy, SealedShard, ShardInput, ShardLimits, Writer, WriterOptions};
use rowmill::storage::{Local, Storage};

/// Rows that are written as one partition.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    pub(crate) schema: RowSchema,
    pub(crate) batches: Vec<RecordBatch>,
    /// Events of the last batch.
    pub(crate) events: Vec<Event>,
    pub(crate) limits: ShardLimits,
}

impl Rows {
    pub(crate) fn new(schema: RowSchema, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches, events: Vec::new(), limits: ShardLimits::default() }
    }

    /// The same in shards of that many rows.
    pub(crate) fn in_shards_of(mut self, n_rows: u64) -> Self {
        self.limits.rows = n_rows;
        self
    }

    /// Writes them below `dataset`.
    pub(crate) fn write(&self, storage: Arc<dyn Storage>, dataset: &Path) -> Vec<SealedShard> {
        storage.create_dir_all(dataset).unwrap();
        let options = WriterOptions {
            dataset: dataset.to_path_buf(),
            cache_key: "0123456789abcdef".into(),
            slot: "0123456789abcdef0123456789abcdef".into(),
            schema: self.schema.clone(),
            stages: vec!["rows".into()],
            inputs: vec![ShardInput {
                path: "größe/rows.bin".into(), size: 7, range: Some(1..8)
            }],
            limits: self.limits,
            on_error: rowmill::batch::OnError::Fail,
            commits: CommitPolicy::default(),
        };
        let (mut writer, _) = Writer::open(storage, options).unwrap();
        let mut source_row = 0;
        for (i, rows) in self.batches.iter().enumerate() {
            let n_rows = rows.num_rows() as u64;
            let provenance = Provenance::of_input(0, source_row, n_rows);
            let restart = Restart {
                input: 0,
                source_row,
                cursor: serde_json::Value::Null,
                ..Restart::default()
            };
            let is_last = i + 1 == self.batches.len();
            let events = if is_last { self.events.clone() } else { Vec::new() };
            writer.append(&Batch { rows: rows.clone(), provenance, events, restart }).unwrap();
            source_row += n_rows;
        }
        writer.finish().unwrap().shards
    }

    /// The rows as Arrow has them after their way through the schema, but not through files.
    pub(crate) fn expected(&self) -> Vec<RecordBatch> {
        let batches = self.batches.iter().map(|rows| {
            let columns = self.schema.columns(rows).unwrap();
            self.schema.batch(&columns, rows.num_rows()).unwrap()
        });
        batches.collect()
    }
}

/// A folder of cases for the reader in Python: shards, and the rows that they hold.
#[derive(Debug)]
pub(crate) struct Cases {
    folder: tempfile::TempDir,
}

impl Cases {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Writes rows to the disk, and beside them what Python is to find.
    pub(crate) fn add(&self, name: &str, rows: &Rows) -> Vec<SealedShard> {
        let case = self.path(name);
        let shards = rows.write(Arc::new(Local), &case);
        let ids: Vec<_> = shards.iter().map(SealedShard::id).collect();
        fs::write(case.join("shards.json"), serde_json::to_vec(&ids).unwrap()).unwrap();
        let file = fs::File::create(case.join("expected.arrow")).unwrap();
        let schema = rows.schema.arrow_schema();
        let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &schema).unwrap();
        for batch in rows.expected() {
            writer.write(&batch).unwrap();
        }
        writer.finish().unwrap();
        shards
    }

    /// A folder of its own for one case.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Lets the reader in Python read and verify all of them. Where Python or one of its packages is
    /// missing this says SKIPPED, or fails if `ROWMILL_REQUIRE_ALL` is 1.
    pub(crate) fn check_with_python(&self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/test_reader.py");
        if let Err(reason) = python("import numpy, pyarrow, blake3") {
            assert!(std::env::var_os("ROWMILL_REQUIRE_ALL").is_none_or(|v| v != "1"), "{reason}");
            eprintln!("SKIPPED: {reason}");
            return;
        }
        let output = Command::new("python3")
            .arg("-B")
            .arg(script)
            .env("ROWMILL_REFERENCE_SHARDS", self.folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the reader in Python found otherwise:\n{text}");
    }
}

fn python(code: &str) -> Result<(), String> {
    let output = Command::new("python3").args(["-c", code]).output();
    let output = output.map_err(|e| format!("python3 cannot be run: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("python3 lacks a package: {}", text.lines().last().unwrap_or_default()))
}
