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
fn many_keys_are_found_at_once_in_the_order_asked() {
    for key in ["id", "x"] {
        let memory = Memory::new(Overlap::Now);
        keyed(key, FILES).build(&disk(&memory)).unwrap();
        let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
        let asked = ["I", "a", ".", "m", "a", "é", "b"];
        let want = [Some(34), Some(0), None, Some(12), Some(0), None, Some(1)];
        let found = match key {
            "id" => dataset.find_many(&asked),
            _ => dataset.find_many(&asked.map(|c| i64::from(c.chars().next().unwrap() as u32))),
        };
        assert_eq!(found.unwrap(), want, "by {key}");
        assert_eq!(dataset.find_many::<i64>(&[]).unwrap(), []);
    }
    let memory = Memory::new(Overlap::Now);
    Fake::new(FILES).build(&disk(&memory)).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let error = dataset.find_many(&["a"]).unwrap_err();
    assert_eq!(error.to_string(), "rows have no key");
    assert_eq!(error.hint().unwrap(), "name a column as `key` in [dataset] and run again");
}

#[test]
fn two_rows_with_one_key_are_named_and_leave_no_sentinel() {
    for (what, key, files, first, second) in [
        (
            "two partitions",
            "id",
            [("a2.txt", "abcd"), ("b.txt", "e.b")],
            ("row 1 of the dataset (row 1 of shard ", "from `a2.txt`, row 1"),
            ("row 5 of the dataset (row 1 of shard ", "from `b.txt`, row 2"),
        ),
        (
            "integers",
            "x",
            [("a2.txt", "abcd"), ("c.txt", "0123456789uvwxyza")],
            ("row 0 of the dataset (row 0 of shard ", "from `a2.txt`, row 0"),
            ("row 20 of the dataset", "from `c.txt`, row 0 of bytes 16..17"),
        ),
        (
            "one shard",
            "id",
            [("a2.txt", "a"), ("b.txt", "bcb")],
            ("row 1 of the dataset (row 1 of shard ", "from `b.txt`, row 0"),
            ("row 3 of the dataset (row 3 of shard ", "from `b.txt`, row 2"),
        ),
        (
            "two shards of a partition",
            "id",
            [("a2.txt", "ab"), ("b.txt", "cdea")],
            ("row 0 of the dataset (row 0 of shard ", "from `a2.txt`, row 0"),
            ("row 5 of the dataset (row 1 of shard ", "from `b.txt`, row 3"),
        ),
    ] {
        let memory = Memory::new(Overlap::Now);
        let mut fake = keyed(key, &files);
        let error = fake.build(&disk(&memory)).unwrap_err();
        let (text, hint) = (error.to_string(), error.hint());
        assert!(text.starts_with("two rows have the key "), "{what}: {text}");
        let (one, other) = text.split_once(", and ").unwrap();
        for (said, parts) in [(one, first), (other, second)] {
            assert!(said.contains(parts.0) && said.ends_with(parts.1), "{what}: {text}");
        }
        assert!(hint.is_some_and(|hint| hint.contains("unique")), "{what}");
        assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None, "{what}");
        let n_built = fake.n_built;
        let mended = fake.files.values_mut().last().unwrap();
        *mended = (mended.0.replace(['a', 'b'], "Z").replacen('Z', "Y", 1), 2);
        fake.build(&disk(&memory)).unwrap();
        assert!(fake.n_built <= n_built + 1, "{what}: what did not change is not built again");
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
