//! Shards: what a writer puts into them, and that nothing but the rows shows in them.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of tests"
)]

mod model;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use model::partition::{Fates, Partition, STAGES, restart_of, write_all};
use parquet::file::metadata::RowGroupMetaData;
use rowmill::batch::{Batch, Restart};
use rowmill::schema::{ColumnData, FieldSpec, Kind, RowSchema, key_hash_bytes};
use rowmill::shard::{
    CommitPolicy, Finished, Progress, Resume, SealedShard, Shard, ShardError, ShardLimits, Writer,
    WriterOptions, empty_trash, layout, verify_shard,
};
use rowmill::storage::faulty::{Fault, Faulty, Lasting};
use rowmill::storage::{EntryKind, Local, Memory, Overlap, Storage};
use serde_json::{Value, json};

type Files = BTreeMap<PathBuf, Vec<u8>>;

fn memory(overlap: Overlap) -> Arc<dyn Storage> {
    Arc::new(Memory::new(overlap))
}

/// All files below `dir`, by their paths within it.
fn files(storage: &dyn Storage, dir: &Path) -> Files {
    let mut found = Files::new();
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in storage.list(&dir.join(&inner)).unwrap().unwrap_or_default() {
            let path = inner.join(&entry.name);
            match entry.kind {
                EntryKind::Dir => open.push(path),
                _ => drop(found.insert(path.clone(), read(storage, &dir.join(&path)))),
            }
        }
    }
    found
}

fn read(storage: &dyn Storage, path: &Path) -> Vec<u8> {
    storage.read(path).unwrap().unwrap_or_else(|| panic!("no {}", path.display()))
}

/// Limits that make a few shards of a partition of every kind.
fn small() -> ShardLimits {
    ShardLimits { rows: 23, ..ShardLimits::default() }
}

/// The sealed files of an undisturbed run.
fn undisturbed(partition: &Partition, limits: ShardLimits) -> (Finished, Files) {
    let storage = memory(Overlap::Now);
    let options = partition.options("out", limits);
    let finished = write_all(&storage, &options, partition, 1000).unwrap();
    (finished, files(&*storage, Path::new("out/shards")))
}

#[test]
fn rows_of_every_kind_lie_as_the_format_says() {
    let partition = Partition::of_every_kind(120, Fates::All);
    let storage = memory(Overlap::Now);
    let options = partition.options("out", ShardLimits::default());
    let finished = write_all(&storage, &options, &partition, 37).unwrap();
    let [shard] = &finished.shards[..] else { panic!("{finished:?}") };
    let all = partition.all_rows();
    assert_eq!((shard.rows(), finished.rows), (all.num_rows() as u64, all.num_rows() as u64));
    assert_eq!(finished.books, partition.books());
    let file = |name: &str| read(&*storage, &shard.path().join(name));
    let i64s = |name: &str| -> Vec<i64> {
        file(name).chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let i32s = |name: &str| -> Vec<i32> {
        file(name).chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    let columns = partition.schema().columns(&all).unwrap();
    for (field, column) in partition.schema().fields().iter().zip(&columns) {
        let stem = &field.stem;
        if field.has_valid_file() {
            let valid = column.valid.as_ref().unwrap().as_slice();
            assert_eq!(file(&format!("{stem}.valid.bin")), valid, "{stem}");
        }
        if let Some(axis) = &field.axis {
            assert_eq!(i64s(&format!("{axis}.offsets.bin")), column.offsets().unwrap(), "{stem}");
        }
        if let ColumnData::Free { dims, .. } = &column.data {
            assert_eq!(i32s(&format!("{stem}.dims.bin")), dims.as_ref(), "{stem}");
        }
        if field.kind != Kind::Interned {
            assert_eq!(file(&format!("{stem}.bin")), column.bytes().as_slice(), "{stem}");
            continue;
        }
        let (values, ends) =
            (file(&format!("{stem}.dict.bin")), i64s(&format!("{stem}.dict.offsets.bin")));
        let value =
            |code: i32| &values[ends[code as usize] as usize..ends[code as usize + 1] as usize];
        let mut next = 0;
        for (row, code) in i32s(&format!("{stem}.codes.bin")).into_iter().enumerate() {
            assert_eq!(code >= 0, column.is_valid(row), "{stem} {row}");
            if code >= 0 {
                assert_eq!(value(code), column.value(row), "{stem} {row}");
                assert!(code <= next, "{stem}: codes count up in the order of first sight");
                next = next.max(code + 1);
            }
        }
        if let Some(sidecar) = &field.sidecar {
            let document: Value = serde_json::from_slice(&file(sidecar)).unwrap();
            let want = (0..next).map(|code| {
                let text = String::from_utf8(value(code).to_vec()).unwrap();
                (code.to_string(), Value::String(text))
            });
            assert_eq!(document, Value::Object(want.collect()));
            assert_eq!(file(sidecar), layout::document(&document), "{stem}: ten values at most");
        }
    }
    let key = columns.first().unwrap();
    let mut keys: Vec<_> = (0..all.num_rows() as u32)
        .map(|row| (key_hash_bytes(key.value(row as usize)), row))
        .collect();
    keys.sort_unstable();
    let keys: Vec<u8> = keys
        .iter()
        .flat_map(|(h, row)| [&h.to_le_bytes()[..], &row.to_le_bytes()].concat())
        .collect();
    assert_eq!(file("keys.bin"), keys);
    let batch = &partition.batches(&Restart::default(), usize::MAX)[0];
    let runs = batch.provenance.runs().iter();
    let runs: Vec<i64> = runs
        .flat_map(|r| [r.row as i64, i64::from(r.input), r.source_row as i64, r.sub_row])
        .collect();
    assert_eq!(i64s("provenance.bin"), runs);
    assert_eq!(i64s("provenance.bin").len() / 4, runs.len() / 4);
    let schema: Value = serde_json::from_slice(&file("schema.json")).unwrap();
    assert_eq!(schema, partition.schema().to_json());
}

#[test]
fn sums_blocks_and_sentinel_cover_every_file() {
    let partition = Partition::of_every_kind(60, Fates::All);
    let (finished, files) = undisturbed(&partition, small());
    let mut total = 0;
    for shard in &finished.shards {
        let of_shard =
            |path: &Path| path.strip_prefix(shard.id()).ok()?.to_str().map(str::to_owned);
        let files: BTreeMap<String, &Vec<u8>> =
            files.iter().filter_map(|(p, b)| Some((of_shard(p)?, b))).collect();
        let sums = files["B3SUMS"];
        let summed = files.iter().filter(|(n, _)| !["B3SUMS", "_COMPLETE"].contains(&n.as_str()));
        let lines = summed.clone().map(|(n, b)| format!("{}  {n}\n", blake3::hash(b).to_hex()));
        assert_eq!(String::from_utf8_lossy(sums), lines.collect::<Vec<_>>().concat());
        let blocks: Vec<u8> = summed
            .filter(|(n, _)| *n != "blocks.bin")
            .flat_map(|(_, b)| b.chunks(1 << 20).flat_map(|b| crc32fast::hash(b).to_le_bytes()))
            .collect();
        assert_eq!(*files["blocks.bin"], blocks);
        let sums_b3 = blake3::hash(sums).to_hex().to_string();
        let sentinel = json!({"rows": shard.rows(), "sums_b3": sums_b3});
        assert_eq!(*files["_COMPLETE"], layout::document(&sentinel));
        assert_eq!(shard.id(), &sums_b3[..32]);
        assert_eq!(shard.bytes(), files.values().map(|b| b.len() as u64).sum::<u64>());
        total += shard.rows();
    }
    assert_eq!(total, finished.rows);
    assert!(finished.shards.len() > 2);
}

#[test]
fn index_has_a_row_per_row_and_the_values_that_were_asked_for() {
    let partition = Partition::of_every_kind(60, Fates::All);
    let (finished, files) = undisturbed(&partition, ShardLimits::default());
    let index = &files[&Path::new(finished.shards[0].id()).join("index.parquet")];
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
        bytes::Bytes::copy_from_slice(index),
    )
    .unwrap();
    let rows: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let rows = arrow_select::concat::concat_batches(&rows[0].schema(), &rows).unwrap();
    assert_eq!(rows.num_rows() as u64, finished.rows);
    let names: Vec<&str> = rows.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
    let mut want = vec!["row".to_owned(), "id".to_owned()];
    for field in partition.schema().fields().iter().filter(|f| f.name != "id") {
        want.extend(field.has_valid_file().then(|| format!("has_{}", field.stem)));
        want.extend((field.kind == Kind::Interned).then(|| format!("{}_key", field.stem)));
        want.extend(field.index.then(|| field.stem.clone()));
    }
    assert_eq!(names, want);
    let all = partition.all_rows();
    for name in ["id", "note", "when", "price", "half", "colour", "settings"] {
        let field = partition.schema().field(name).unwrap();
        let found = rows.column_by_name(&field.stem).unwrap();
        let given = match field.logical.as_ref().map(rowmill::schema::Logical::name) {
            // A list of text becomes JSON; compare what the columns of the schema say.
            Some("json") => {
                let i = partition.schema().index_of(name).unwrap();
                let column = &partition.schema().columns(&all).unwrap()[i];
                field.array(column, all.num_rows()).unwrap()
            }
            _ => all.column_by_name(name).unwrap().clone(),
        };
        let given = arrow_cast::cast(&given, found.data_type()).unwrap();
        assert_eq!(&given, found, "{name}");
    }
}

/// Large values that repeat make neither the index nor the sidecar need more memory than a few of them.
#[test]
fn large_interned_values_end_groups_of_the_index_and_stand_whole_in_the_sidecar() {
    // Characters that no power of two falls between.
    let values = [format!("xxx{}", "é\u{1}\"".repeat((1 << 18) - 1)), "x".repeat(1 << 20)];
    let rows = |from: u64| {
        let texts = (from..from + 5).map(|n| (n % 3 != 2).then(|| &*values[n as usize % 2]));
        let texts: arrow_array::StringArray = texts.collect();
        RecordBatch::try_from_iter([("text", Arc::new(texts) as ArrayRef)]).unwrap()
    };
    let sidecar = Some("texts.json".to_owned());
    let spec = FieldSpec { intern: true, index: true, sidecar, ..FieldSpec::default() };
    let specs = BTreeMap::from([("text".to_owned(), spec)]);
    let schema = RowSchema::infer(&rows(0).schema(), &specs, None).unwrap();
    let partition = Partition::of_every_kind(1, Fates::All);
    let options = WriterOptions {
        schema,
        stages: vec!["read".to_owned()],
        ..partition.options("out", ShardLimits::default())
    };
    let storage = memory(Overlap::Now);
    let (mut writer, _) = Writer::open(Arc::clone(&storage), options).unwrap();
    for from in [0, 5, 10] {
        writer.append(&Batch::of_rows(rows(from), from)).unwrap();
    }
    let shard = writer.finish().unwrap().shards.pop().unwrap();
    let sidecar: Value =
        serde_json::from_slice(&read(&*storage, &shard.path().join("texts.json"))).unwrap();
    assert_eq!(sidecar, json!({"0": values[0], "1": values[1]}));
    let index = bytes::Bytes::from(read(&*storage, &shard.path().join("index.parquet")));
    let reader =
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(index).unwrap();
    let groups: Vec<_> =
        reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
    // Four mebibytes each, with the absent rows between and behind them.
    assert_eq!(groups, [6, 6, 3]);
    let read: Vec<_> = reader.build().unwrap().map(Result::unwrap).collect();
    let read = arrow_select::concat::concat_batches(&read[0].schema(), &read).unwrap();
    let given = [rows(0), rows(5), rows(10)];
    let given = arrow_select::concat::concat_batches(&given[0].schema(), &given).unwrap();
    let found = read.column_by_name("text").unwrap();
    assert_eq!(&arrow_cast::cast(given.column(0), found.data_type()).unwrap(), found);
    assert!(verify_shard(&storage, shard.path()).is_ok());
}

#[test]
fn large_keys_are_found_and_stand_whole_in_the_index() {
    let sizes = [3_usize, 0, 200 << 10, 131_072, 131_073, 5 << 20, 70_000, 7];
    let key = |row: usize| char::from(b'a' + row as u8).to_string().repeat(sizes[row]);
    let keys: arrow_array::StringArray = (0..sizes.len()).map(|row| Some(key(row))).collect();
    let rows = RecordBatch::try_from_iter([("name", Arc::new(keys) as ArrayRef)]).unwrap();
    let schema = RowSchema::infer(&rows.schema(), &BTreeMap::new(), Some("name")).unwrap();
    let partition = Partition::of_every_kind(1, Fates::All);
    let options = WriterOptions {
        schema,
        stages: vec!["read".to_owned()],
        ..partition.options("out", ShardLimits::default())
    };
    let storage = memory(Overlap::Now);
    let (mut writer, _) = Writer::open(Arc::clone(&storage), options).unwrap();
    writer.append(&Batch::of_rows(rows.clone(), 0)).unwrap();
    let sealed = writer.finish().unwrap().shards.pop().unwrap();
    let shard = Shard::open(Arc::clone(&storage), sealed.path()).unwrap();
    for row in 0..sizes.len() {
        assert_eq!(shard.find(key(row).as_str()).unwrap(), Some(row as u64), "row {row}");
    }
    let index = bytes::Bytes::from(read(&*storage, &sealed.path().join("index.parquet")));
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(index, 100);
    let read: Vec<_> = reader.unwrap().map(Result::unwrap).collect();
    let read = arrow_select::concat::concat_batches(&read[0].schema(), &read).unwrap();
    let found = read.column_by_name("name").unwrap();
    assert_eq!(&arrow_cast::cast(rows.column(0), found.data_type()).unwrap(), found);
    assert!(verify_shard(&storage, sealed.path()).is_ok());
}

#[test]
fn rejects_and_fingerprint_tell_where_a_shard_comes_from() {
    let partition = Partition::of_every_kind(40, Fates::All);
    let (finished, files) = undisturbed(&partition, small());
    let mut rejects = Vec::new();
    let mut next = json!({"input": 0, "source_row": 1, "sub_row": 0});
    for (n, shard) in finished.shards.iter().enumerate() {
        let file = |name: &str| &files[&Path::new(shard.id()).join(name)];
        let lines = String::from_utf8(file("rejects.jsonl").clone()).unwrap();
        rejects.extend(lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()));
        let mut document: Value = serde_json::from_slice(file("fingerprint.json")).unwrap();
        if n > 0 {
            assert_eq!(document["source"]["from"], next);
        }
        next = document["source"]["to"].clone();
        let hash = document.as_object_mut().unwrap().remove("hash").unwrap();
        let canonical = rowmill::fingerprint::canonical_json(&document);
        assert_eq!(hash, rowmill::fingerprint::sha256_hex(canonical.as_bytes()));
        assert_eq!(document["inputs"][0], json!({"path": "a/first.dat", "size": 26}));
    }
    assert_eq!(next, Value::Null);
    let want: Vec<Value> = partition.batches(&Restart::default(), usize::MAX)[0]
        .events
        .iter()
        .filter_map(|event| match &event.outcome {
            rowmill::batch::Outcome::Rejected { code, message } => Some(json!({
                "code": code, "input": event.input, "message": message, "path": event.path,
                "source_row": event.source_row, "stage": STAGES[event.stage],
            })),
            _ => None,
        })
        .collect();
    assert_eq!(rejects, want);
    assert!(want.len() > 3);
}

#[test]
fn batches_commits_and_overlap_never_show() {
    let partition = Partition::of_every_kind(60, Fates::All);
    let (finished, want) = undisturbed(&partition, small());
    let tmp = tempfile::tempdir().unwrap();
    for (name, storage, out, n_items, commit_bytes) in [
        ("one item a batch", memory(Overlap::Now), "out".into(), 1, 1),
        ("late commits", memory(Overlap::Late), "out".into(), 7, 1),
        ("one commit a shard", memory(Overlap::Late), "out".into(), 10, u64::MAX),
        ("on disk", Arc::new(Local) as _, tmp.path().join("out"), 16, 1000),
    ] {
        let out: PathBuf = out;
        let mut options = partition.options(out.to_str().unwrap(), small());
        options.commits.bytes = commit_bytes;
        let again = write_all(&storage, &options, &partition, n_items).unwrap();
        assert_eq!(files(&*storage, &out.join("shards")), want, "{name}");
        assert_eq!(again.books, finished.books, "{name}");
        let left = files(&*storage, &out.join("work"));
        let left: Vec<_> = left.keys().filter_map(|p| p.to_str()).collect();
        assert_eq!(left, ["log/00112233445566778899aabbccddeeff.jsonl"], "{name}");
    }
}

#[test]
fn shard_ends_at_the_first_row_that_reaches_a_limit() {
    let partition = Partition::of_every_kind(40, Fates::AllKept);
    let schema = partition.schema();
    let all = partition.all_rows();
    let columns = schema.columns(&all).unwrap();
    let big = ShardLimits::default();
    for (name, limits) in [
        ("rows", ShardLimits { rows: 7, ..big }),
        ("one row", ShardLimits { rows: 1, ..big }),
        ("bytes", ShardLimits { bytes: 3000, ..big }),
        ("no bytes", ShardLimits { bytes: 0, ..big }),
        ("values", ShardLimits { intern_values: 2, ..big }),
    ] {
        let (mut want, mut bytes, mut rows) = (Vec::new(), 0, 0);
        let mut seen = vec![std::collections::HashSet::new(); columns.len()];
        for row in 0..all.num_rows() {
            rows += 1;
            bytes += schema.row_sizes(&columns, all.num_rows())[row];
            for (i, column) in columns.iter().enumerate() {
                let interned = schema.fields()[i].kind == Kind::Interned && column.is_valid(row);
                if interned && seen[i].insert(column.value(row)) {
                    bytes += column.value(row).len() as u64 + 8;
                }
            }
            let values = seen.iter().map(|s| s.len() as u64).max().unwrap();
            if rows >= limits.rows || bytes >= limits.bytes || values >= limits.intern_values {
                want.push(rows);
                (bytes, rows) = (0, 0);
                seen.iter_mut().for_each(std::collections::HashSet::clear);
            }
        }
        want.extend((rows > 0).then_some(rows));
        let (finished, _) = undisturbed(&partition, limits);
        let found: Vec<u64> = finished.shards.iter().map(SealedShard::rows).collect();
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn shard_of_lists_ends_where_counting_row_by_row_ends_it() {
    let rows: Vec<String> = (0..400).map(|n| "x".repeat(n * 37 % 100)).collect();
    let array: Arc<dyn arrow_array::Array> = Arc::new(arrow_array::StringArray::from(rows.clone()));
    let batch = arrow_array::RecordBatch::try_from_iter([("text", array)]).unwrap();
    let schema = rowmill::schema::RowSchema::infer(batch.schema_ref(), &BTreeMap::new(), None);
    let partition = Partition::of_rows(batch, schema.unwrap(), Fates::AllKept);
    for bytes in [0, 1, 107, 108, 109, 500, 1999, 1 << 20] {
        let (mut want, mut added, mut n) = (Vec::new(), 0, 0);
        for row in rows.iter().step_by(4) {
            added += row.len() as u64 + 8;
            n += 1;
            if added >= bytes {
                want.push(n);
                (added, n) = (0, 0);
            }
        }
        want.extend((n > 0).then_some(n));
        let (finished, _) = undisturbed(&partition, ShardLimits { bytes, ..small() });
        let found: Vec<u64> = finished.shards.iter().map(SealedShard::rows).collect();
        let want: Vec<u64> = want
            .iter()
            .flat_map(|n: &u64| {
                // At most 23 rows a shard: only where that does not cut, the sums are those above.
                std::iter::once(*n)
            })
            .collect();
        if want.iter().all(|n| *n < 23) {
            assert_eq!(found, want, "{bytes}");
        }
        assert_eq!(found.iter().sum::<u64>(), 100, "{bytes}");
    }
}

#[test]
fn partition_without_rows_has_a_shard_only_for_its_rejects() {
    for (name, n, fates, want) in [
        ("nothing", 0, Fates::All, vec![]),
        ("all dropped", 20, Fates::AllDropped, vec![]),
        ("all rejected", 20, Fates::AllRejected, vec![0]),
    ] {
        for n_items in [3, 100] {
            let partition = Partition::of_every_kind(n, fates);
            let storage = memory(Overlap::Late);
            let options = partition.options("out", small());
            let finished = write_all(&storage, &options, &partition, n_items).unwrap();
            let rows: Vec<u64> = finished.shards.iter().map(SealedShard::rows).collect();
            assert_eq!(rows, want, "{name}");
            assert_eq!(finished.books, partition.books(), "{name}");
            finished.books.balance().unwrap();
            let sealed = files(&*storage, Path::new("out/shards"));
            assert_eq!(sealed.is_empty(), want.is_empty(), "{name}");
            let left = files(&*storage, Path::new("out/work"));
            assert_eq!(left.len(), 1, "{name}: only the log is left");
            let (writer, resume) = Writer::open(storage, options).unwrap();
            assert_eq!(resume, Resume::Finished, "{name}");
            assert_eq!(writer.finish().unwrap(), finished, "{name}");
        }
    }
}

/// Writes batches and commits after each, leaves the writer after `n` of them, and goes on with
/// another batch size.
fn leave_after(
    storage: &Arc<dyn Storage>,
    options: &WriterOptions,
    partition: &Partition,
    n: usize,
) {
    let (mut writer, resume) = Writer::open(Arc::clone(storage), options.clone()).unwrap();
    let Some(restart) = restart_of(&resume) else { return };
    for batch in partition.batches(&restart, 5).iter().take(n) {
        writer.append(batch).unwrap();
        writer.commit().unwrap();
    }
}

#[test]
fn writer_that_was_left_anywhere_goes_on_with_the_same_bytes() {
    let partition = Partition::of_every_kind(30, Fates::All);
    let limits = ShardLimits { rows: 11, ..ShardLimits::default() };
    let (finished, want) = undisturbed(&partition, limits);
    let n_batches = partition.batches(&Restart::default(), 5).len();
    let tmp = tempfile::tempdir().unwrap();
    for n in 0..=n_batches {
        let mut storages = vec![
            (memory(Overlap::Now), PathBuf::from("out")),
            (memory(Overlap::Late), PathBuf::from("out")),
        ];
        if n % 5 == 2 {
            storages.push((Arc::new(Local), tmp.path().join(n.to_string())));
        }
        for (storage, out) in storages {
            let options = partition.options(out.to_str().unwrap(), limits);
            leave_after(&storage, &options, &partition, n);
            leave_after(&storage, &options, &partition, 1);
            let again = write_all(&storage, &options, &partition, 7).unwrap();
            assert_eq!(again.books, finished.books, "after {n}, {storage:?}");
            assert!(files(&*storage, &out.join("shards")) == want, "after {n}, {storage:?}");
        }
    }
}

#[test]
fn committed_rows_are_not_asked_for_again() {
    let partition = Partition::of_every_kind(50, Fates::All);
    let storage = memory(Overlap::Now);
    let options = partition.options("out", small());
    let (mut writer, resume) = Writer::open(Arc::clone(&storage), options.clone()).unwrap();
    assert_eq!(resume, Resume::Start);
    let mut given = 0;
    let batches = partition.batches(&Restart::default(), 5);
    for (i, batch) in batches.iter().enumerate().take(8) {
        let progress = writer.append(batch).unwrap();
        // What a commit waits for is where the next batch is read from.
        assert_eq!(progress.rows, given, "batch {i}");
        given += batch.rows.num_rows() as u64;
    }
    let Progress { rows, commits, .. } = writer.commit().unwrap();
    assert_eq!((rows, commits), (given, 1));
    assert_eq!(writer.commit().unwrap().commits, 0, "nothing to commit");
    drop(writer);
    let (writer, resume) = Writer::open(storage, options).unwrap();
    let Resume::At { restart, next, rows } = resume else { panic!("{resume:?}") };
    assert_eq!(rows, given);
    assert_eq!(restart, batches[7].restart);
    assert!(next > batches[7].provenance.position(0).unwrap());
    assert_eq!(writer.sealed().len() as u64, given / 23);
}

#[test]
fn any_prefix_of_a_manifest_recovers_to_a_prefix_of_its_segments() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::All);
    let limits = ShardLimits::default();
    let (_, want) = undisturbed(&partition, limits);
    let options = partition.options("out", limits);
    let written = Memory::new(Overlap::Now);
    leave_after(&(Arc::new(written.clone()) as _), &options, &partition, 5);
    let path = layout::open_shard(Path::new("out"), &options.slot, 0).join(layout::MANIFEST);
    let manifest = read(&written, &path);
    let lines = manifest.split_inclusive(|b| *b == b'\n').map(<[u8]>::len);
    let ends: Vec<usize> = lines
        .scan(0, |end, len| {
            *end += len;
            Some(*end)
        })
        .collect();
    let rows = |line: usize| {
        let line = &manifest[ends[line - 1]..ends[line]];
        serde_json::from_slice::<Value>(line).unwrap()["rows"].as_u64().unwrap()
    };
    assert_eq!(ends.len(), 6);
    let borders = ends.iter().flat_map(|end| [end - 1, *end, end + 1]);
    for cut in (0..manifest.len()).step_by(61).chain(borders) {
        let memory = written.after_kill();
        memory.truncate(&path, cut.min(manifest.len())).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(memory);
        let (writer, resume) = Writer::open(Arc::clone(&storage), options.clone()).unwrap();
        match ends.iter().filter(|end| **end <= cut).count() {
            0 | 1 => assert_eq!(resume, Resume::Start, "cut at {cut}"),
            n => {
                let Resume::At { rows: found, .. } = resume else { panic!("cut at {cut}") };
                assert_eq!(found, rows(n - 1), "cut at {cut}");
            }
        }
        drop(writer);
        write_all(&storage, &options, &partition, 8).unwrap();
        assert!(files(&*storage, Path::new("out/shards")) == want, "cut at {cut}");
    }
}

#[test]
fn sealed_shards_pass_verification() {
    let partition = Partition::of_every_kind(60, Fates::All);
    let storage = memory(Overlap::Late);
    let finished = write_all(&storage, &partition.options("out", small()), &partition, 9).unwrap();
    for shard in &finished.shards {
        let verified = rowmill::shard::verify_shard(&storage, shard.path());
        assert_eq!(verified.as_ref(), Ok(shard));
    }
}

/// Runs on a disk that fails at operation `n`; whether it ran to its end before.
fn run_until(memory: &Memory, options: &WriterOptions, partition: &Partition, n: u64) -> bool {
    memory.cut_at(n);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    write_all(&storage, options, partition, 6).is_ok()
}

#[test]
fn power_cut_at_any_operation_ends_with_the_same_bytes() {
    let partition = Partition::of_rows(tiny_rows(16), tiny_schema(), Fates::All);
    let limits = ShardLimits { rows: 5, ..ShardLimits::default() };
    let (finished, want) = undisturbed(&partition, limits);
    for overlap in [Overlap::Now, Overlap::Late] {
        let options = partition.options("out", limits);
        for n in 0.. {
            let memory = Memory::new(overlap).with_whole_renames();
            if run_until(&memory, &options, &partition, n) {
                assert!(n > 100, "{n}");
                break;
            }
            let after = [
                ("kill", memory.after_kill()),
                ("nothing survives", memory.after_power_cut(&|_| false)),
                ("all survives", memory.after_power_cut(&|_| true)),
                ("every second survives", memory.after_power_cut(&|i| i % 2 == 0)),
                ("the others survive", memory.after_power_cut(&|i| i % 2 == 1)),
            ];
            for (name, disk) in after {
                let storage: Arc<dyn Storage> = Arc::new(disk);
                let again = write_all(&storage, &options, &partition, 9);
                let again = again.unwrap_or_else(|e| panic!("{overlap:?}, {n}, {name}: {e}"));
                assert_eq!(again.books, finished.books, "{overlap:?}, operation {n}, {name}");
                let sealed = files(&*storage, Path::new("out/shards"));
                assert!(sealed == want, "{overlap:?}, operation {n}, {name}");
                empty_trash(&*storage, Path::new("out")).unwrap();
                let left = files(&*storage, Path::new("out/work"));
                assert_eq!(left.len(), 1, "{overlap:?}, operation {n}, {name}: {:?}", left.keys());
            }
        }
    }
}

fn tiny_rows(n: i64) -> arrow_array::RecordBatch {
    let numbers: Arc<dyn arrow_array::Array> =
        Arc::new((0..4 * n).collect::<arrow_array::Int64Array>());
    let texts = (0..4 * n).map(|n| (n % 5 > 0).then(|| "t".repeat((n % 7) as usize)));
    let texts: Arc<dyn arrow_array::Array> = Arc::new(texts.collect::<arrow_array::StringArray>());
    let words = (0..4 * n).map(|n| Some(format!("word {}", n % 3)));
    let words: Arc<dyn arrow_array::Array> = Arc::new(words.collect::<arrow_array::StringArray>());
    let columns = [("number", numbers, false), ("text", texts, true), ("word", words, false)];
    arrow_array::RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn tiny_schema() -> rowmill::schema::RowSchema {
    let interned = rowmill::schema::FieldSpec { intern: true, ..Default::default() };
    let specs = [("word".to_owned(), interned)].into();
    let rows = tiny_rows(0);
    rowmill::schema::RowSchema::infer(rows.schema_ref(), &specs, Some("number")).unwrap()
}

#[test]
fn failure_of_any_operation_is_told_and_the_next_run_ends_with_the_same_bytes() {
    let partition = Partition::of_rows(tiny_rows(16), tiny_schema(), Fates::All);
    let limits = ShardLimits { rows: 5, ..ShardLimits::default() };
    let (_, want) = undisturbed(&partition, limits);
    let check = |faulty: Arc<dyn Storage>, heal: &dyn Fn(), out: &Path, name: &str| {
        let options = partition.options(out.to_str().unwrap(), limits);
        let failed = write_all(&faulty, &options, &partition, 6);
        assert!(matches!(failed, Err(ShardError::Storage(_))), "{name}: {failed:?}");
        heal();
        write_all(&faulty, &options, &partition, 9).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(files(&*faulty, &out.join("shards")) == want, "{name}");
    };
    let whole = Faulty::new(Memory::new(Overlap::Now));
    let options = partition.options("out", limits);
    write_all(&(Arc::new(whole.clone()) as _), &options, &partition, 6).unwrap();
    let n_operations = whole.operations().len();
    for (fault, lasting) in [(Fault::Io, Lasting::Once), (Fault::Short, Lasting::Once)] {
        for n in 0..n_operations {
            let faulty = Faulty::new(Memory::new(Overlap::Now));
            faulty.fail_at(n, fault, lasting);
            let (heal, name) = (|| faulty.heal(), format!("{fault:?} at {n}"));
            check(Arc::new(faulty.clone()), &heal, Path::new("out"), &name);
        }
    }
    // On a thread of its own a commit may come to its fault at another moment each time; what it
    // leads to is the same.
    let tmp = tempfile::tempdir().unwrap();
    for n in (0..n_operations).step_by(n_operations / 16) {
        let faulty = Faulty::new(Local);
        faulty.fail_at(n, Fault::Io, Lasting::FromThenOn);
        let (heal, name) = (|| faulty.heal(), format!("on disk, from {n} on"));
        check(Arc::new(faulty.clone()), &heal, &tmp.path().join(n.to_string()), &name);
    }
}

#[test]
fn after_a_failure_nothing_more_is_written() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    let options = partition.options("out", ShardLimits::default());
    let memory = Memory::new(Overlap::Now);
    let (mut writer, _) = Writer::open(Arc::new(memory.clone()), options).unwrap();
    let batches = partition.batches(&Restart::default(), 4);
    writer.append(&batches[0]).unwrap();
    memory.cut_at(memory.operations() + 2);
    let failed = batches[1..].iter().find_map(|batch| writer.append(batch).err());
    assert!(matches!(failed, Some(ShardError::Storage(_))), "{failed:?}");
    let error = writer.append(&batches[0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "partition 00112233445566778899aabbccddeeff: an earlier write failed, so nothing more is \
         written"
    );
    assert!(writer.commit().is_err());
    assert!(writer.finish().is_err());
}

#[test]
fn row_that_is_too_large_is_named() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    // 8 for the number, 8 + 1 for the text's end and validity, 4 for the code, 6 for the word.
    let limits = ShardLimits { row_bytes: 32, ..ShardLimits::default() };
    let storage = memory(Overlap::Now);
    let options = partition.options("out", limits);
    let error = write_all(&storage, &options, &partition, 10).unwrap_err();
    assert_eq!(error.to_string(), "`a/first.dat`, row 12: 33 bytes, and a row may have 32");
    assert!(error.hint().unwrap().contains("max_row_bytes"));
}

#[test]
fn batches_that_contradict_themselves_are_refused() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::All);
    let first = || partition.batches(&Restart::default(), 10).swap_remove(0);
    let second = || partition.batches(&Restart::default(), 10).swap_remove(1);
    let mut short = first();
    short.rows = short.rows.slice(0, 1);
    let mut scrambled = second();
    scrambled.events.reverse();
    scrambled.events.push(scrambled.events[0].clone());
    let mut foreign = first();
    foreign.events[0].input = 2;
    let mut restarted = second();
    restarted.restart.source_row += 100;
    for (name, batches, want) in [
        ("fewer rows", vec![short], "it has 1 rows, but tells where"),
        ("twice", vec![second(), second()], "comes"),
        ("backwards", vec![second(), first()], "comes after input 0"),
        ("events", vec![scrambled], "not in stream order"),
        ("restart", vec![restarted], "before the place to read it from again"),
        ("input", vec![foreign], "rows of input 2, and the partition has 2 inputs"),
    ] {
        let options = partition.options("out", ShardLimits::default());
        let (mut writer, _) = Writer::open(memory(Overlap::Now), options).unwrap();
        let failed = batches.iter().find_map(|batch: &Batch| writer.append(batch).err());
        let error = failed.unwrap_or_else(|| panic!("{name} was taken")).to_string();
        assert!(error.contains(want), "{name}: {error}");
    }
}

#[test]
fn partition_that_ends_before_it_was_left_is_refused() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    let storage = memory(Overlap::Now);
    let options = partition.options("out", ShardLimits::default());
    leave_after(&storage, &options, &partition, 3);
    let (writer, _) = Writer::open(storage, options).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("row 14 has not come again"), "{error}");
}

type Harm = Box<dyn Fn(&Memory)>;

#[test]
fn damage_is_refused_by_name() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    let limits = ShardLimits { rows: 20, ..ShardLimits::default() };
    let slot = "00112233445566778899aabbccddeeff";
    let open = format!("out/work/open/{slot}/1");
    let prepare = || {
        let memory = Memory::new(Overlap::Now);
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        leave_after(&storage, &partition.options("out", limits), &partition, 6);
        memory
    };
    let sealed = |memory: &Memory| {
        let shards = memory.list(Path::new("out/shards")).unwrap().unwrap();
        format!("out/shards/{}", shards[0].name)
    };
    let open_at = |name: &str| format!("{open}/{name}");
    let truncated = open_at("number.bin");
    let flipped = open_at("word.codes.bin");
    let removed = open_at("text.bin");
    let header = open_at("manifest.jsonl");
    let cases: Vec<(&str, Harm, &str)> = vec![
        (
            "a short file",
            Box::new(move |m| m.truncate(&truncated, 70).unwrap()),
            "open shard SLOT/1: the manifest promises 80 bytes of `number.bin`, but it ends at 70",
        ),
        (
            "a flipped bit",
            Box::new(move |m| m.overwrite(&flipped, 21, b"\x07").unwrap()),
            "open shard SLOT/1: `word.codes.bin` does not hold the bytes that manifest line 3 \
             promises",
        ),
        (
            "a missing file",
            Box::new(move |m| m.remove_file(Path::new(&removed)).unwrap()),
            "open shard SLOT/1: the manifest promises 23 bytes of `text.bin`, which is not there",
        ),
        (
            "a broken header",
            Box::new(move |m| m.overwrite(&header, 10, b"#").unwrap()),
            "open shard SLOT/1: the first line of its manifest is broken",
        ),
        (
            "a removed shard",
            Box::new(move |m| m.remove_all(Path::new(&sealed(m))).unwrap()),
            "partition SLOT: its log promises shard ID, but `out/shards/ID` is not there",
        ),
        (
            "a removed log",
            Box::new(move |m| m.remove_file(&layout::log(Path::new("out"), slot)).unwrap()),
            "open shard SLOT/1: the log of its partition ends after 0 shards",
        ),
    ];
    for (name, harm, want) in cases {
        let memory = prepare();
        let shards = memory.list(Path::new("out/shards")).unwrap().unwrap();
        harm(&memory);
        let before = memory.digest();
        let options = partition.options("out", limits);
        let error = Writer::open(Arc::new(memory.clone()), options).unwrap_err();
        let want = want.replace("SLOT", slot).replace("ID", &shards[0].name);
        assert_eq!(error.to_string(), want, "{name}");
        let hint = error.hint().unwrap();
        assert!(hint.contains("delete `work/open/"), "{name}: {hint}");
        // What was refused was not touched, but for what nobody was promised.
        assert_eq!(memory.digest(), before, "{name}");
    }
}

#[test]
fn what_a_hint_says_helps() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    let limits = ShardLimits { rows: 20, ..ShardLimits::default() };
    let options = partition.options("out", limits);
    let (_, want) = undisturbed(&partition, limits);
    let memory = Memory::new(Overlap::Now);
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    leave_after(&storage, &options, &partition, 6);
    let dir = layout::open_shard(Path::new("out"), &options.slot, 1);
    memory.truncate(dir.join("number.bin"), 1).unwrap();
    assert!(Writer::open(Arc::clone(&storage), options.clone()).is_err());
    storage.remove_all(&dir).unwrap();
    write_all(&storage, &options, &partition, 8).unwrap();
    assert_eq!(files(&*storage, Path::new("out/shards")), want);
}

#[test]
fn another_schema_under_the_same_key_is_refused() {
    let partition = Partition::of_rows(tiny_rows(40), tiny_schema(), Fates::AllKept);
    let storage = memory(Overlap::Now);
    let mut options = partition.options("out", ShardLimits::default());
    leave_after(&storage, &options, &partition, 2);
    let rows = tiny_rows(0);
    options.schema =
        rowmill::schema::RowSchema::infer(rows.schema_ref(), &BTreeMap::new(), None).unwrap();
    let error = Writer::open(storage, options).unwrap_err().to_string();
    assert!(error.contains("its manifest was written for schema {"), "{error}");
}

#[test]
fn commits_are_due_by_bytes() {
    let partition = Partition::of_rows(tiny_rows(100), tiny_schema(), Fates::AllKept);
    let storage = memory(Overlap::Now);
    let mut options = partition.options("out", ShardLimits::default());
    options.commits = CommitPolicy { bytes: 300, interval: None };
    let (mut writer, _) = Writer::open(storage, options).unwrap();
    let batches = partition.batches(&Restart::default(), 5);
    let commits: Vec<u64> =
        batches.iter().take(10).map(|batch| writer.append(batch).unwrap().commits).collect();
    // Five rows have 105 to 135 bytes, so three batches reach the limit; the next one shows it.
    assert_eq!(commits, [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
}
