//! Datasets whose rows have a key: the index over all shards.

use rowmill::dataset::Dataset;
use rowmill::dataset::verify::verify;
use rowmill::storage::{Memory, Overlap, Storage};

use crate::fake::Fake;
use crate::{FILES, disk};

fn keyed(key: &'static str, files: &[(&str, &str)]) -> Fake {
    Fake { key: Some(key), ..Fake::new(files) }
}

#[test]
fn every_row_is_found_by_its_key() {
    for key in ["id", "x"] {
        let memory = Memory::new(Overlap::Now);
        keyed(key, FILES).build(&disk(&memory)).unwrap();
        let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
        let find = |letter: char| match key {
            "id" => dataset.find(letter.to_string().as_str()).unwrap(),
            _ => dataset.find(letter as i64).unwrap(),
        };
        for (row, letter) in "abcdefghijklmnopqrstuvwxyzABCDEFGHI".chars().enumerate() {
            assert_eq!(find(letter), Some(row as u64), "{letter} by {key}");
        }
        for letter in ".!Jé".chars() {
            assert_eq!(find(letter), None, "{letter} by {key}");
        }
        verify(&disk(&memory), dataset.path(), &mut |_| ()).unwrap();
    }
}

#[test]
fn a_key_of_the_other_type_is_refused() {
    let memory = Memory::new(Overlap::Now);
    keyed("x", FILES).build(&disk(&memory)).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let error = dataset.find("a").unwrap_err();
    assert_eq!(error.to_string(), "keys are integers, not text");
}

#[test]
fn an_index_is_sorted_and_its_starts_count_the_hashes() {
    let memory = Memory::new(Overlap::Now);
    let fake = keyed("id", FILES);
    fake.clone().build(&disk(&memory)).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let keys = dataset.about().keys.as_ref().unwrap();
    let bytes = memory.read(&fake.home().file(&keys.file)).unwrap().unwrap();
    assert_eq!(keys.file, format!("keys-{}.bin", &blake3::hash(&bytes).to_hex()[..16]));
    let (starts, entries) = bytes.split_at(65_537 * 8);
    let starts: Vec<_> =
        starts.chunks(8).map(|s| i64::from_le_bytes(s.try_into().unwrap())).collect();
    let entries: Vec<_> = entries
        .chunks(16)
        .map(|e| {
            let word = |at: usize| u32::from_le_bytes(e[at..at + 4].try_into().unwrap());
            (u64::from_le_bytes(e[..8].try_into().unwrap()), word(8), word(12))
        })
        .collect();
    assert_eq!(entries.len(), 35);
    assert!(entries.is_sorted());
    for (p, start) in starts.iter().enumerate() {
        let want = entries.iter().filter(|(hash, ..)| (hash >> 48) < p as u64).count();
        assert_eq!(*start, want as i64, "start {p}");
    }
}

#[test]
fn two_rows_with_one_key_are_named_and_leave_no_sentinel() {
    for (key, files, first, second) in [
        ("id", [("a2.txt", "abcd"), ("b.txt", "e.b")], "`a2.txt` row 1 (row 1 of", "`b.txt` row 2"),
        (
            "x",
            [("a2.txt", "abcd"), ("c.txt", "0123456789uvwxyza")],
            "`a2.txt` row 0",
            "`c.txt` row 0",
        ),
        ("id", [("a2.txt", "a"), ("b.txt", "bcb")], "`b.txt` row 0 (row 1 of", "`b.txt` row 2"),
    ] {
        let memory = Memory::new(Overlap::Now);
        let mut fake = keyed(key, &files);
        let error = fake.build(&disk(&memory)).unwrap_err();
        let (text, hint) = (error.to_string(), error.hint());
        assert!(text.starts_with("two rows have the key "), "{text}");
        assert!(text.contains(&format!(": {first}")), "{text}");
        assert!(text.contains(&format!(" and {second}")), "{text}");
        assert!(hint.is_some_and(|hint| hint.contains("unique")), "{key}");
        assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None, "{key}");
    }
}

#[test]
fn a_grown_dataset_has_the_index_of_one_built_at_once() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = keyed("id", &FILES[..2]);
    fake.build(&disk(&memory)).unwrap();
    fake.files = Fake::new(FILES).files;
    let grown = fake.build(&disk(&memory)).unwrap();
    let at_once = keyed("id", FILES).build(&disk(&Memory::new(Overlap::Now))).unwrap();
    assert_eq!(grown, at_once);
}
