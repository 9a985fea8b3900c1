//! What `verify` finds: bytes that were changed, and what was sealed wrong.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::forge::{
    FOLDER, Forge, fingerprint, i32s, i64s, index as parquet, keys, sample, schema,
};
use super::{Promise, RemoteSentinel, Shard, layout, verify_shard};
use crate::storage::{Memory, Overlap, Storage};

/// What `verify` says, without the folder.
fn findings(memory: Memory) -> Vec<String> {
    let storage: Arc<dyn Storage> = Arc::new(memory);
    let findings = verify_shard(&storage, Path::new(FOLDER)).err().unwrap_or_default();
    findings.iter().map(|finding| finding.to_string().replace("/shard/", "")).collect()
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(FOLDER).join(name)
}

fn flip(memory: &Memory, name: &str, at: usize) {
    let byte = memory.read(&path(name)).unwrap().unwrap()[at];
    memory.overwrite(path(name), at, &[byte ^ 0x10]).unwrap();
}

/// A shard whose files have several blocks: 3 of `id.bin`, 2 of `rejects.jsonl`.
fn large() -> Forge {
    let id = vec![b'a'; (5 << 19) + 3];
    let id_len = id.len() as u64;
    let offsets = i64s(&[0, 1, 3, id_len.cast_signed()]);
    let forge = sample().with("id.bin", id).with("id.offsets.bin", offsets);
    let shapes = schema().shapes_json(3, &[id_len, 0, 3, 3, 3, 0, 0, 0]);
    let forge = forge.with(layout::SHAPES, layout::document(&shapes));
    forge.with(layout::REJECTS, "{}\n".repeat(400_000))
}

#[test]
fn a_whole_shard_is_verified_and_counted() {
    let memory = sample().seal();
    let files = memory.snapshot(FOLDER);
    let storage: Arc<dyn Storage> = Arc::new(memory);
    let verified = verify_shard(&storage, Path::new(FOLDER)).unwrap();
    let shard = Shard::open(storage, FOLDER).unwrap();
    let n_bytes: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    assert_eq!((verified.rows(), verified.bytes()), (3, n_bytes));
    assert_eq!((verified.id(), verified.path()), (shard.id(), shard.path()));
}

#[test]
fn a_flipped_byte_is_found_in_its_file() {
    let whole = sample().seal();
    for (name, bytes) in whole.snapshot(FOLDER) {
        let name = name.to_str().unwrap();
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 150) {
            let memory = whole.after_kill();
            flip(&memory, name, at);
            let len = bytes.len();
            let want = format!(
                "`{name}`, block 1 of 1 (bytes 0 to {len}): was changed since it was sealed"
            );
            assert_eq!(findings(memory), [want], "{name} at {at}");
        }
    }
}

#[test]
fn every_cut_is_found_in_its_file() {
    let whole = sample().seal();
    for (name, bytes) in whole.snapshot(FOLDER) {
        let name = name.to_str().unwrap();
        for len in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            if len == bytes.len() {
                continue;
            }
            let memory = whole.after_kill();
            memory.truncate(path(name), len).unwrap();
            let found = findings(memory);
            assert!(!found.is_empty(), "{name} cut to {len}");
            for finding in found {
                assert!(finding.starts_with(&format!("`{name}`")), "{name}: {finding}");
            }
        }
    }
}

#[test]
fn the_block_of_a_large_file_is_named() {
    let whole = large().seal();
    for (name, at, want) in [
        ("id.bin", 0, "`id.bin`, block 1 of 3 (bytes 0 to 1048576)"),
        ("id.bin", 1 << 20, "`id.bin`, block 2 of 3 (bytes 1048576 to 2097152)"),
        ("id.bin", (5 << 19) + 2, "`id.bin`, block 3 of 3 (bytes 2097152 to 2621443)"),
        ("rejects.jsonl", 1_199_999, "`rejects.jsonl`, block 2 of 2 (bytes 1048576 to 1200000)"),
        ("x.bin", 0, "`x.bin`, block 1 of 1 (bytes 0 to 12)"),
    ] {
        let memory = whole.after_kill();
        flip(&memory, name, at);
        assert_eq!(findings(memory), [format!("{want}: was changed since it was sealed")]);
    }
}

#[test]
fn the_search_goes_on_behind_the_first_find() {
    let memory = large().seal();
    flip(&memory, "id.bin", 5);
    flip(&memory, "id.bin", 3 << 19);
    memory.truncate(path("place.bin"), 4).unwrap();
    memory.truncate(path("rejects.jsonl"), 1 << 20).unwrap();
    memory.remove_file(&path("grid.dims.bin")).unwrap();
    memory.write_atomic(&path("x.bin.orig"), b"").unwrap();
    flip(&memory, "z.bin", 0);
    let changed = "was changed since it was sealed";
    assert_eq!(
        findings(memory),
        [
            "`grid.dims.bin`: is missing".to_owned(),
            format!("`id.bin`, block 1 of 3 (bytes 0 to 1048576): {changed}"),
            format!("`id.bin`, block 2 of 3 (bytes 1048576 to 2097152): {changed}"),
            "`place.bin`: has 4 bytes, was sealed with 18".to_owned(),
            format!("`rejects.jsonl`, block 1 of 1 (bytes 0 to 1048576): {changed}"),
            format!("`z.bin`, block 1 of 1 (bytes 0 to 3): {changed}"),
            "`x.bin.orig`: does not belong to the shard".to_owned(),
        ]
    );
}

#[test]
fn swapped_files_are_found() {
    let memory = sample().seal();
    memory.rename(&path("x.bin"), &path("spare")).unwrap();
    memory.rename(&path("grid.bin"), &path("x.bin")).unwrap();
    memory.rename(&path("spare"), &path("grid.bin")).unwrap();
    let changed = "block 1 of 1 (bytes 0 to 12): was changed since it was sealed";
    assert_eq!(findings(memory), [format!("`grid.bin`, {changed}"), format!("`x.bin`, {changed}")]);
}

#[test]
fn a_folder_without_sentinel_is_no_shard() {
    let memory = sample().seal();
    memory.remove_file(&path(layout::COMPLETE)).unwrap();
    assert_eq!(findings(memory), ["`/shard`: no sealed shard, it has no _COMPLETE"]);
    let memory = sample().seal();
    let promise = Promise::read(&memory, Path::new(FOLDER)).unwrap();
    let remote = RemoteSentinel::of(&promise, "s3://b/n/k/shards/1");
    memory.write_atomic(&path(layout::REMOTE), &remote.to_bytes()).unwrap();
    assert_eq!(findings(memory.after_kill()), [""; 0], "a copy elsewhere is no damage");
    memory.remove_file(&path(layout::COMPLETE)).unwrap();
    assert_eq!(findings(memory), ["`/shard`: its rows are only at `s3://b/n/k/shards/1`"]);
    assert_eq!(
        findings(Memory::new(Overlap::Now)),
        ["`/shard`: no sealed shard, it has no _COMPLETE"]
    );
}

#[test]
fn a_sentinel_that_counts_other_rows_is_changed() {
    let memory = sample().seal();
    let at = memory.read(&path(layout::COMPLETE)).unwrap().unwrap();
    let at = at.iter().position(|&byte| byte == b'3').unwrap();
    memory.overwrite(path(layout::COMPLETE), at, b"4").unwrap();
    let found = findings(memory);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("`_COMPLETE`, block 1 of 1"), "{found:?}");
}

#[test]
fn blocks_that_were_sealed_wrong_are_found() {
    let memory = sample().with(layout::BLOCKS, [0; 4]).seal();
    assert_eq!(findings(memory), ["`blocks.bin`: does not hold the CRC-32 of each block"]);
}

#[test]
fn a_whole_shard_says_what_it_must() {
    assert_eq!(findings(sample().seal()), [""; 0]);
}

/// A sample with one other file.
fn with(name: &str, bytes: impl Into<Vec<u8>>) -> Forge {
    sample().with(name, bytes)
}

fn assert_found<const N: usize>(cases: [(&str, Forge, &str); N]) {
    for (name, forge, want) in cases {
        let found = findings(forge.seal());
        assert!(found.iter().any(|f| f.contains(want)), "{name}: {found:#?}");
    }
}

#[test]
fn values_and_offsets_that_cannot_be_are_found() {
    assert_found([
        (
            "falling offsets",
            with("id.offsets.bin", i64s(&[0, 3, 1, 4])),
            "`id.offsets.bin`: the offsets of row or value 1 do not rise within the file",
        ),
        ("no text", with("id.bin", vec![0xff, b'b', b'b', b'c']), "`id.bin`: row 0 is not utf8"),
        ("no bool", with("flag.bin", vec![2, 0, 0]), "`flag.bin`: row 0 is not bool"),
        ("absent value", with("flag.bin", vec![1, 1, 0]), "`flag.bin`: absent row 1 has a value"),
        (
            "absent dims",
            with("grid.dims.bin", i32s(&[1, 2, -1, -1, 0, -1])),
            "`grid.dims.bin`: absent row 2 has dims",
        ),
    ]);
}

#[test]
fn dictionaries_that_rows_do_not_make_are_found() {
    assert_found([
        (
            "codes out of order",
            with("panel.codes.bin", i32s(&[1, -1, 0])),
            "`panel.codes.bin`: row 0 has the code 1 before 0 was seen",
        ),
        (
            "an unused value",
            with("panel.codes.bin", i32s(&[0, -1, 0])),
            "`panel.dict.bin`: 2 values, of which rows use 1",
        ),
        ("a value twice", with("panel.dict.bin", "PP"), "`panel.dict.bin`: value 1 is there twice"),
        (
            "another sidecar",
            with("panels.json", "{\n  \"0\": \"P\",\n  \"1\": \"R\"\n}\n"),
            "`panels.json`: does not have value 1",
        ),
        (
            "a longer sidecar",
            with("panels.json", "{\n  \"0\": \"P\",\n  \"1\": \"Q\",\n  \"2\": \"R\"\n}\n"),
            "`panels.json`: has more values than the dictionary",
        ),
        (
            "category",
            with("pet.bin", vec![2, 0xff, 0]),
            "`pet.bin`: row 0 has the code 2 of 2 values",
        ),
    ]);
}

#[test]
fn keys_and_provenance_of_other_rows_are_found() {
    let last = json!({"input": 0, "source_row": 2, "sub_row": 0});
    assert_found([
        (
            "another key's hash",
            with(layout::KEYS, keys(&["a", "bb", "d"])),
            "is not the hash of row 2's key",
        ),
        (
            "keys out of order",
            with(
                layout::KEYS,
                keys(&["a", "bb", "c"]).chunks(12).rev().flatten().copied().collect::<Vec<_>>(),
            ),
            "`keys.bin`: entry 1 is out of order",
        ),
        (
            "no such input",
            with(layout::PROVENANCE, i64s(&[0, 1, 0, -1])),
            "`provenance.bin`: row 0 is of input 1, there are 1",
        ),
        (
            "first position",
            with(layout::PROVENANCE, i64s(&[0, 0, 7, -1])),
            "`fingerprint.json`: its rows are not those of the shard",
        ),
        (
            "past the last position",
            with(layout::FINGERPRINT, fingerprint(&last)),
            "`fingerprint.json`: its rows are not those of the shard",
        ),
        (
            "another hash",
            sample().edit(layout::FINGERPRINT, "a.csv", "b.csv"),
            "`fingerprint.json`: its hash is not that of the rest",
        ),
    ]);
}

fn reject(input: u32, source_row: u64) -> String {
    let code = r#""code":"odd","message":"is odd""#;
    let line =
        format!(r#"{{{code},"input":{input},"path":[],"source_row":{source_row},"stage":"a"}}"#);
    line + "\n"
}

#[test]
fn documents_and_files_that_cannot_be_are_found() {
    assert_found([
        (
            "rejects",
            with(layout::REJECTS, format!("{}{{}}\n", reject(0, 0))),
            "`rejects.jsonl`: line 2 is no reject",
        ),
        (
            "torn rejects",
            with(layout::REJECTS, reject(0, 0).trim_end()),
            "`rejects.jsonl`: line 1 is no reject",
        ),
        (
            "rejects out of order",
            with(layout::REJECTS, [reject(0, 2), reject(0, 2), reject(0, 1)].concat()),
            "`rejects.jsonl`: line 3 comes before the one above it",
        ),
        (
            "a reject of nothing",
            with(layout::REJECTS, reject(9, 0)),
            "`rejects.jsonl`: a reject is of input 9, there are",
        ),
        (
            "rows in the index",
            with(layout::INDEX, parquet(vec![0, 1])),
            "`index.parquet`: 2 rows, the shard has 3",
        ),
        (
            "row numbers",
            with(layout::INDEX, parquet(vec![0, 2, 1])),
            "`index.parquet`: row 1 is called Some(2)",
        ),
        ("no index", with(layout::INDEX, "PAR1"), "`index.parquet`: "),
        (
            "shapes",
            sample().edit(layout::SHAPES, "\"n\": 3", "\"n\":  3"),
            "`shapes.json`: is not in the form of our documents",
        ),
        (
            "schema",
            sample().edit(layout::SCHEMA, "\"requires\": []", "\"requires\": [],\n  \"zebra\": 1"),
            "`schema.json`: says more than a schema of this layout",
        ),
        ("a file too few", sample().without(layout::REJECTS), "`rejects.jsonl`: is missing"),
        (
            "a file too many",
            with("notes.txt", ""),
            "`notes.txt`: is no file of a shard with this schema",
        ),
    ]);
}

#[test]
fn two_rows_with_one_key_are_found() {
    let forge = sample()
        .with("id.bin", "acca")
        .with("id.offsets.bin", i64s(&[0, 1, 3, 4]))
        .with(layout::KEYS, keys(&["a", "cc", "a"]));
    assert_eq!(findings(forge.seal()), ["`keys.bin`: rows 0 and 2 have the same key"]);
}

#[test]
fn every_finding_says_what_to_do() {
    let forge = sample().with("flag.bin", [2, 0, 0]);
    let findings = verify_shard(&forge.storage(), Path::new(FOLDER)).unwrap_err();
    assert_eq!(
        findings[0].hint(),
        "the shard was sealed like this: build it again, and report it as a fault"
    );
}
