//! What finalizing and verifying must not let pass.

use std::path::Path;
use std::sync::Arc;

use rowmill::dataset::finalize::{Generation, PlannedPartition, finalize};
use rowmill::dataset::manifest::Manifest;
use rowmill::dataset::record::{Record, RecordName, RecordNames};
use rowmill::dataset::sentinel::Sentinel;
use rowmill::dataset::verify::{Progress, verify};
use rowmill::dataset::{Dataset, DatasetError, Result, Workplace};
use rowmill::shard::{Promise, RemoteSentinel};
use rowmill::storage::{Memory, Overlap, Storage};
use serde_json::json;

use crate::fake::Fake;
use crate::{FILES, disk, sealed};

/// Finalizes `fake` once more with these records, after its sentinel was taken away.
fn finalize_again(memory: &Memory, fake: &Fake, records: &[RecordName]) -> Result<Sentinel> {
    let place = Workplace::open(disk(memory), fake.home()).unwrap();
    memory.remove_all(&fake.home().sentinel()).unwrap();
    let (definition, schema, stages) = (fake.definition(), fake.schema(), fake.stages());
    let generation = Generation {
        definition: &definition,
        schema: &schema,
        stages: std::slice::from_ref(&stages),
        budgets: &[],
        allow_empty: false,
    };
    let planned: Vec<_> = records
        .iter()
        .map(|record| PlannedPartition {
            slot: record.slot().to_owned(),
            record: Some(record.clone()),
        })
        .collect();
    finalize(&place, &generation, &planned)
}

/// A built dataset, and its records in dataset order.
fn built() -> (Memory, Fake, Vec<RecordName>) {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(FILES);
    fake.build(&disk(&memory)).unwrap();
    let names = RecordNames::list(&memory, &fake.home()).unwrap();
    let records = fake.parts();
    let records = records.iter().map(|part| names.of_slot(&fake.slot(part))[0].clone()).collect();
    (memory, fake, records)
}

/// Damage done to a record.
type Change = fn(&mut Record);

fn read(memory: &Memory, fake: &Fake, name: &RecordName) -> Record {
    Record::read(memory, fake.home().dir(), fake.home().cache_key(), name).unwrap()
}

#[test]
fn records_that_lost_rows_are_refused() {
    let (memory, fake, records) = built();
    assert!(finalize_again(&memory, &fake, &records).is_ok(), "as they are they do");
    let table: [(&str, Change, &str); 5] = [
        (
            "a row lost within a stage",
            |r| r.books.get_mut("clean").unwrap().dropped = 1,
            "the books do not close",
        ),
        (
            "a row lost between stages",
            |r| {
                let books = r.books.get_mut("letters").unwrap();
                (books.entered, books.out) = (books.entered - 1, books.out - 1);
            },
            "the books do not close",
        ),
        (
            "a row lost on the way to the shards",
            |r| {
                let books = r.books.get_mut("clean").unwrap();
                (books.dropped, books.out) = (books.dropped - 1, books.out + 1);
            },
            "12 rows left the last stage, but its shards hold 11",
        ),
        (
            "more rows than can be counted",
            |r| {
                let books = r.books.get_mut("clean").unwrap();
                (books.dropped, books.rejected) = (u64::MAX, u64::MAX);
            },
            "the books do not close",
        ),
        (
            "another stage",
            |r| assert!(r.books.remove("clean").is_some()),
            "no books of stage `clean`",
        ),
    ];
    for (name, change, message) in table {
        let mut record = read(&memory, &fake, &records[0]);
        change(&mut record);
        let place = Workplace::open(disk(&memory), fake.home()).unwrap();
        let mut changed = records.clone();
        changed[0] = record.write(&place).unwrap();
        drop(place);
        let error = finalize_again(&memory, &fake, &changed).unwrap_err();
        assert!(error.to_string().ends_with(message), "{name}: {error}");
        assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None, "{name}");
    }
}

#[test]
fn a_shard_that_was_taken_away_or_changed_is_seen_before_the_sentinel() {
    for name in ["_COMPLETE", "B3SUMS", "schema.json"] {
        let (memory, fake, records) = built();
        let id = read(&memory, &fake, &records[1]).shards[0].id.clone();
        memory.remove_file(&fake.home().shard(&id).join(name)).unwrap();
        let error = finalize_again(&memory, &fake, &records).unwrap_err();
        assert!(error.to_string().contains(&id), "{name}: {error}");
        assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None, "{name}");
    }
}

#[test]
fn a_shard_that_was_taken_away_is_built_again() {
    let (memory, mut fake, records) = built();
    let want = sealed(&memory, &fake.home());
    let id = read(&memory, &fake, &records[1]).shards[0].id.clone();
    memory.remove_all(&fake.home().shard(&id)).unwrap();
    fake.n_built = 0;
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 1);
    assert!(sealed(&memory, &fake.home()) == want);
}

#[test]
fn a_shard_kept_elsewhere_counts_if_it_is_the_same() {
    let (memory, fake, records) = built();
    let id = read(&memory, &fake, &records[1]).shards[0].id.clone();
    let shard = fake.home().shard(&id);
    let remote = RemoteSentinel::of(&Promise::read(&memory, &shard).unwrap(), "s3://bucket");
    memory.remove_file(&shard.join("_COMPLETE")).unwrap();
    let text = String::from_utf8(remote.to_bytes()).unwrap();
    let rows = format!("\"rows\": {}", remote.n_rows());
    for (name, text, want) in [
        ("the same", text.clone(), None),
        ("of another shard", text.replace(&id, &"00".repeat(16)), Some("that _REMOTE names")),
        ("of other rows", text.replace(&rows, "\"rows\": 70"), Some("it has 70 rows")),
        ("torn", text[..20].to_owned(), Some("_REMOTE`: is not JSON")),
    ] {
        memory.write_atomic(&shard.join("_REMOTE"), text.as_bytes()).unwrap();
        let refused = finalize_again(&memory, &fake, &records).err().map(|e| e.to_string());
        let is_as_wanted = match (&refused, want) {
            (Some(refused), Some(want)) => refused.contains(want),
            (refused, want) => refused.is_none() && want.is_none(),
        };
        assert!(is_as_wanted, "{name}: {refused:?}");
    }
}

#[test]
fn a_definition_that_is_not_what_the_key_hashes_is_refused() {
    let (memory, fake, _) = built();
    let place = Workplace::open(disk(&memory), fake.home()).unwrap();
    let (schema, stages) = (fake.schema(), fake.stages());
    let definition = json!({"layout": 2});
    let generation = Generation {
        definition: &definition,
        schema: &schema,
        stages: std::slice::from_ref(&stages),
        budgets: &[],
        allow_empty: true,
    };
    let error = finalize(&place, &generation, &[]).unwrap_err();
    let want = "the dataset: its definition is not what its cache key hashes";
    assert_eq!(error.to_string(), want);
}

#[test]
fn any_byte_that_changed_in_any_file_is_found() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake { key: Some("id"), ..Fake::new(&[("a2.txt", "ab.c!"), ("b.txt", "de")]) };
    fake.build(&disk(&memory)).unwrap();
    let home = fake.home();
    let storage = disk(&memory);
    let mut seen = Vec::new();
    verify(&storage, Path::new("/out/letters"), &mut |p: Progress| seen.push(p)).unwrap();
    let last = seen.last().unwrap();
    assert_eq!((last.shards_done, last.bytes_done), (last.n_shards, last.n_bytes));
    assert_eq!(last.n_shards, seen.len());
    let files = sealed(&memory, &home);
    for (path, bytes) in &files {
        let at = home.dir().join(path);
        let places = [0, bytes.len() / 2, bytes.len().saturating_sub(1)];
        for place in places.into_iter().filter(|place| *place < bytes.len()) {
            memory.overwrite(&at, place, &[bytes[place] ^ 1]).unwrap();
            let found = verify(&storage, home.dir(), &mut |_| ());
            assert!(found.is_err(), "byte {place} of {}", path.display());
            memory.overwrite(&at, place, &[bytes[place]]).unwrap();
        }
        memory.truncate(&at, bytes.len() + 1).unwrap();
        let found = verify(&storage, home.dir(), &mut |_| ());
        assert!(found.is_err(), "a byte more of {}", path.display());
        memory.truncate(&at, bytes.len()).unwrap();
        memory.remove_file(&at).unwrap();
        let found = verify(&storage, home.dir(), &mut |_| ()).unwrap_err();
        assert!(found.iter().all(|f| !f.to_string().is_empty()), "{} is gone", path.display());
        memory.write_atomic(&at, bytes).unwrap();
    }
    verify(&storage, home.dir(), &mut |_| ()).expect("all was put back");
}

#[test]
fn a_manifest_that_contradicts_itself_does_not_open() {
    let (memory, fake, _) = built();
    let dir = fake.home().dir().to_path_buf();
    let sentinel = Sentinel::read(&memory, &dir).unwrap().unwrap();
    let manifest = memory.read(&dir.join(sentinel.manifest())).unwrap().unwrap();
    let text = String::from_utf8(manifest).unwrap();
    let shard = text.lines().find(|l| l.ends_with("\"type\":\"shard\"}")).unwrap();
    for (name, changed, message) in [
        ("a shard less", text.replacen(&format!("{shard}\n"), "", 1), "no line of type shard"),
        ("another layout", text.replacen("\"layout\":1,\"n", "\"layout\":2,\"n", 1), "version 2"),
        ("no last newline", text.trim_end().to_owned(), "cut off"),
        ("another total", text.replacen("\"partitions\":3", "\"partitions\":4", 1), "totals"),
        ("a path for an id", text.replacen(&shard[20..40], "../../../../../../..", 1), "line"),
        (
            "an unknown word",
            text.replacen("\"layout\":1,\"n", "\"layout\":1,\"new\":1,\"n", 1),
            "new",
        ),
    ] {
        assert_ne!(changed, text, "{name}");
        let b3 = blake3::hash(changed.as_bytes()).to_hex();
        let file = format!("manifest-{}.jsonl", &b3[..16]);
        let complete =
            json!({"manifest": file, "manifest_b3": b3.as_str(), "rows": 35, "shards": 10});
        memory.write_atomic(&dir.join(&file), changed.as_bytes()).unwrap();
        memory.write_atomic(&dir.join("_COMPLETE"), complete.to_string().as_bytes()).unwrap();
        let error = Dataset::open_in(disk(&memory), &dir).unwrap_err();
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
}

#[test]
fn of_two_records_that_agree_the_one_that_the_manifest_names_counts() {
    let (memory, fake, records) = built();
    let mut other = read(&memory, &fake, &records[1]);
    other.shards.reverse();
    let place = Workplace::open(disk(&memory), fake.home()).unwrap();
    let other = other.write(&place).unwrap();
    drop(place);
    let named_by = |sentinel: Sentinel| {
        let manifest = Manifest::read(&memory, fake.home().dir(), &sentinel).unwrap();
        manifest.partitions[1].record.clone()
    };
    let mut both = [records[1].clone(), other];
    both.sort();
    for current in &both {
        let mut records = records.clone();
        records[1] = current.clone();
        finalize_again(&memory, &fake, &records).unwrap();
        let mut again = fake.clone();
        again.n_built = 0;
        assert_eq!(named_by(again.build(&disk(&memory)).unwrap()), current.as_str());
        assert_eq!(again.n_built, 0);
    }
    memory.remove_file(&fake.home().sentinel()).unwrap();
    let first = both[0].as_str();
    assert_eq!(named_by(fake.clone().build(&disk(&memory)).unwrap()), first, "no manifest");
}

#[test]
fn a_record_that_is_set_aside_is_not_adopted() {
    let (memory, mut fake, records) = built();
    let want = sealed(&memory, &fake.home());
    fake.n_built = 0;
    fake.set_aside.insert(records[2].as_str().to_owned());
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 1);
    assert!(sealed(&memory, &fake.home()) == want);
}

#[test]
fn a_sentinel_or_manifest_that_was_damaged_is_written_again() {
    let (memory, mut fake, _) = built();
    let want = sealed(&memory, &fake.home());
    let dir = fake.home().dir().to_path_buf();
    let manifest = Sentinel::read(&memory, &dir).unwrap().unwrap().manifest().to_owned();
    for name in ["_COMPLETE", manifest.as_str()] {
        memory.overwrite(dir.join(name), 30, b"#").unwrap();
        Dataset::open_in(disk(&memory), &dir).unwrap_err();
        fake.build(&disk(&memory)).unwrap();
        assert!(sealed(&memory, &fake.home()) == want, "{name}");
        memory.remove_file(&dir.join(name)).unwrap();
        Dataset::open_in(disk(&memory), &dir).unwrap_err();
        fake.build(&disk(&memory)).unwrap();
        assert!(sealed(&memory, &fake.home()) == want, "{name}");
    }
}

#[test]
fn a_dataset_of_a_thousand_shards_opens_from_its_manifest_alone() {
    let memory = Memory::new(Overlap::Now);
    let fake = Fake::new(FILES);
    let (n_shards, rows) = (1_000_u64, 7);
    let books = |rows: u64| {
        let stage = |out| json!({"created": 0, "dropped": 0, "in": out, "out": out, "rejected": 0});
        json!({"clean": stage(rows), "letters": stage(rows)})
    };
    let mut lines = vec![json!({
        "books": books(n_shards * rows), "bytes": n_shards, "cache_key": fake.home().cache_key(),
        "definition": fake.definition(), "fingerprint": "", "keys": null, "layout": 1,
        "name": "letters", "partitions": n_shards, "rows": n_shards * rows,
        "schema": fake.schema().to_json(), "shards": n_shards, "type": "dataset",
    })];
    for n in 0..n_shards {
        let (slot, b3) = (format!("{n:032x}"), "00".repeat(32));
        lines.push(json!({
            "books": books(rows), "inputs": 1, "inputs_b3": b3, "type": "partition",
            "record": format!("{slot}-{n:016x}.json"), "rows": rows, "shards": 1, "slot": slot,
        }));
        lines.push(json!({"bytes": 1, "id": slot, "rows": rows, "type": "shard"}));
    }
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    let b3 = blake3::hash(text.as_bytes()).to_hex();
    let file = format!("manifest-{}.jsonl", &b3[..16]);
    let complete = json!({
        "manifest": file, "manifest_b3": b3.as_str(), "rows": n_shards * rows, "shards": n_shards,
    });
    let dir = fake.home().dir().to_path_buf();
    memory.create_dir_all(&dir).unwrap();
    memory.write_atomic(&dir.join(&file), text.as_bytes()).unwrap();
    memory.write_atomic(&dir.join("_COMPLETE"), complete.to_string().as_bytes()).unwrap();
    let dataset = Dataset::open_in(disk(&memory), &dir).unwrap();
    assert_eq!((dataset.n_rows(), dataset.n_shards()), (7_000, 1_000));
    assert_eq!(dataset.locate(6_999).unwrap(), (999, 6));
    assert_eq!(dataset.rows_of(500), 3_500..3_507);
    let error = dataset.row(3_500).unwrap_err().to_string();
    assert!(error.contains(&format!("{:032x}", 500)), "{error}");
}

#[test]
fn opening_reads_no_shard() {
    let (memory, fake, _) = built();
    let shards = fake.home().shards();
    memory.rename(&shards, &fake.home().file("elsewhere")).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    assert_eq!(dataset.n_rows(), 35);
    assert_eq!(dataset.locate(34).unwrap().0, dataset.n_shards() - 1);
    let error = dataset.row(0).unwrap_err();
    assert!(error.to_string().contains("no sealed shard"), "{error}");
    memory.rename(&fake.home().file("elsewhere"), &shards).unwrap();
    assert!(dataset.row(0).is_ok(), "it is tried again when it is asked for again");
}

#[test]
fn a_record_of_another_slot_does_not_count() {
    let (memory, fake, mut records) = built();
    let place = Workplace::open(disk(&memory), fake.home()).unwrap();
    let slots: Vec<_> = records.iter().map(|record| record.slot().to_owned()).collect();
    records.swap(0, 1);
    let planned: Vec<_> = slots
        .into_iter()
        .zip(records)
        .map(|(slot, record)| PlannedPartition { slot, record: Some(record) })
        .collect();
    let (definition, schema, stages) = (fake.definition(), fake.schema(), fake.stages());
    let generation = Generation {
        definition: &definition,
        schema: &schema,
        stages: std::slice::from_ref(&stages),
        budgets: &[],
        allow_empty: false,
    };
    let error = finalize(&place, &generation, &planned).unwrap_err();
    assert!(matches!(error, DatasetError::Unfinished { index: 0, .. }), "{error}");
    drop(Arc::clone(place.storage()));
}
