//! Whole datasets built by hand-made batches: in any order, with the power cut anywhere, grown and
//! changed, read and verified.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::unwrap_used,
    reason = "helpers of tests are tests, and count small things"
)]

mod clean;
mod fake;
mod keys;
mod power;
mod refusals;
mod remote;
mod scale;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{Float32Type, Int8Type};
use fake::Fake;
use rowmill::dataset::verify::verify;
use rowmill::dataset::{Dataset, DatasetError, Home, Workplace};
use rowmill::storage::{Local, Memory, Overlap, Storage};

/// Three partitions: a group of two, and two halves of a file that is cut.
const FILES: &[(&str, &str)] =
    &[("a2.txt", "abc.d"), ("b.txt", "efg!hij.k"), ("c.txt", "lmnopqrstuvwxyzABCDEFGHI")];

fn disk(memory: &Memory) -> Arc<dyn Storage> {
    Arc::new(memory.clone())
}

/// Everything that a dataset's folder holds beside the writer's state.
fn sealed(memory: &Memory, home: &Home) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = memory.snapshot(home.dir());
    files.retain(|(path, _)| !path.starts_with("work"));
    files
}

/// The letters of a dataset, in order.
fn letters(dataset: &Dataset) -> String {
    let mut letters = String::new();
    for shard in dataset.shards() {
        let shard = shard.unwrap();
        for row in 0..shard.n_rows() {
            let bytes = shard.field("x").unwrap().row(row).unwrap();
            letters.push(char::from(bytes[0]));
        }
    }
    letters
}

#[test]
fn any_order_and_any_batches_give_the_same_bytes() {
    let built = |order: &[usize], batch_rows| {
        let memory = Memory::new(Overlap::Now);
        let mut fake = Fake { order: order.to_vec(), batch_rows, ..Fake::new(FILES) };
        fake.build(&disk(&memory)).unwrap();
        sealed(&memory, &fake.home())
    };
    let want = built(&[0, 1, 2], 3);
    assert!(want.len() > 3 * 10, "{} files", want.len());
    for (order, batch_rows) in [([2, 1, 0], 3), ([1, 0, 2], 1), ([0, 2, 1], 100)] {
        assert!(built(&order, batch_rows) == want, "order {order:?}, batches of {batch_rows}");
    }
}

#[test]
fn rows_are_those_of_the_inputs_in_order() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(FILES);
    fake.build(&disk(&memory)).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let want = "abcdefghijklmnopqrstuvwxyzABCDEFGHI";
    assert_eq!(letters(&dataset), want);
    assert_eq!(dataset.n_rows(), want.len() as u64);
    let about = dataset.about();
    assert_eq!((about.name.as_str(), about.partitions), ("letters", 3));
    let clean = about.books["clean"];
    assert_eq!((clean.entered, clean.out, clean.dropped, clean.rejected), (38, 35, 2, 1));
    assert_eq!(dataset.path(), fake.home().dir());
    let by_key = Dataset::open_in(disk(&memory), fake.home().dir()).unwrap();
    assert_eq!(by_key.generation(), dataset.generation());
}

#[test]
fn rows_are_gathered_across_shards_in_the_order_asked() {
    let memory = Memory::new(Overlap::Now);
    Fake::new(FILES).build(&disk(&memory)).unwrap();
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let rows = [34, 0, 1, 2, 11, 3, 4, 34];
    let mut out = vec![0; rows.len() * 8];
    let selection = dataset.select(&rows).unwrap();
    selection.gather("x", &mut out).unwrap();
    let found: String = out.chunks(8).map(|x| char::from(x[0])).collect();
    assert_eq!(found, "IabcldeI");
    let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
    let first = dataset.select(&rows[..3]).unwrap();
    first.gather_ragged("id", &mut bytes, &mut offsets).unwrap();
    assert_eq!(String::from_utf8(bytes).unwrap(), "c.txt:7a2.txt:0a2.txt:1");
    assert_eq!(offsets, [0, 7, 15, 23]);
    let n_rows: usize =
        dataset.scan(2..20, None).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(n_rows, 18);
    for batch in dataset.scan(2..20, Some(&["id"])).unwrap() {
        assert_eq!(batch.unwrap().num_columns(), 1);
    }
    assert!(dataset.scan(0..35, Some(&["id", "ix"])).is_err());
    let (shard, row) = dataset.row(11).unwrap();
    assert_eq!(shard.field("id").unwrap().row(row).unwrap(), b"c.txt:0");
    for (name, error) in [
        ("no such row", dataset.select(&[35]).map(|_| ()).unwrap_err()),
        ("no such field", selection.gather("y", &mut out).unwrap_err()),
        ("a short buffer", selection.gather("x", &mut out[1..]).unwrap_err()),
        ("an empty buffer", selection.gather("x", &mut []).unwrap_err()),
        ("text as numbers", selection.numbers::<Int8Type>("id").unwrap_err()),
        ("a row past the end", dataset.row(35).map(|_| ()).unwrap_err()),
        ("a key where there is none", dataset.find("a").unwrap_err()),
        ("a shard past the end", dataset.shard(99).map(|_| ()).unwrap_err()),
    ] {
        assert!(!error.to_string().is_empty(), "{name}");
    }
    let narrow = selection.numbers::<Float32Type>("x").unwrap();
    let wide: Vec<f32> = found.bytes().map(f32::from).collect();
    assert_eq!(narrow.as_ref(), wide);
    let mut valid = vec![7];
    selection.gather_valid("x", &mut valid).unwrap();
    assert_eq!(valid, [1; 8]);
    let none = dataset.select(&[]).unwrap();
    assert_eq!(none.gather("x", &mut []).map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn a_dataset_in_memory_has_the_same_rows() {
    let memory = Memory::new(Overlap::Now);
    Fake::new(FILES).build(&disk(&memory)).unwrap();
    let mapped = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let loaded = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    let loaded = loaded.load_in_memory().unwrap();
    let rows = |dataset: &Dataset| -> Vec<_> {
        dataset.scan(0..dataset.n_rows(), None).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(rows(&loaded), rows(&mapped));
    assert_eq!(letters(&loaded), letters(&mapped));
}

#[test]
fn a_dataset_that_is_complete_is_found_complete() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(FILES);
    let first = fake.build(&disk(&memory)).unwrap();
    let before = memory.snapshot("/out");
    fake.n_built = 0;
    let again = fake.build(&disk(&memory)).unwrap();
    assert_eq!(again, first);
    assert_eq!(fake.n_built, 0, "nothing is built again");
    assert_eq!(fake.hashed, Vec::<String>::new(), "and nothing is hashed again");
    assert!(memory.snapshot("/out") == before, "and nothing is written");
    // Without stamps the contents are hashed and agree.
    memory.remove_file(&fake.home().stamps()).unwrap();
    fake.build(&disk(&memory)).unwrap();
    assert_eq!((fake.n_built, fake.hashed.len()), (0, 4));
    // So they are where the root is another.
    fake.root = "/other".to_owned();
    fake.build(&disk(&memory)).unwrap();
    assert_eq!((fake.n_built, fake.hashed.len()), (0, 8));
}

#[test]
fn a_dataset_grows_as_if_it_had_been_built_at_once() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(&FILES[..2]);
    let small = fake.build(&disk(&memory)).unwrap();
    let old = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    fake.files = Fake::new(FILES).files;
    fake.n_built = 0;
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 2, "only the new file is built");
    assert_eq!(letters(&old), "abcdefghijk", "the old generation stays readable");
    let names: Vec<_> = memory.list(fake.home().dir()).unwrap().unwrap();
    assert!(names.iter().any(|e| e.name == small.manifest()), "and keeps its manifest");

    let scratch = Memory::new(Overlap::Now);
    let mut at_once = Fake::new(FILES);
    at_once.build(&disk(&scratch)).unwrap();
    let mut grown = sealed(&memory, &fake.home());
    grown.retain(|(path, _)| path.to_str() != Some(small.manifest()));
    assert!(grown == sealed(&scratch, &at_once.home()));
    // And back: the shards and records are still there.
    fake.files = Fake::new(&FILES[..2]).files;
    fake.n_built = 0;
    assert_eq!(fake.build(&disk(&memory)).unwrap(), small);
    assert_eq!(fake.n_built, 0);
}

#[test]
fn a_changed_input_rebuilds_its_partition_and_no_other() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(FILES);
    fake.build(&disk(&memory)).unwrap();
    fake.n_built = 0;
    fake.files.insert("a2.txt".to_owned(), ("ABC.D".to_owned(), 2));
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 1);
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    assert!(letters(&dataset).starts_with("ABCDefgh"));
    // Two records stand for one slot now; each counts for its own contents.
    fake.files.insert("a2.txt".to_owned(), ("abc.d".to_owned(), 3));
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 1, "the first record is found again by its contents");
    let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
    assert!(letters(&dataset).starts_with("abcdefgh"));
}

#[test]
fn an_input_that_changes_in_the_middle_starts_its_partition_again() {
    for (name, text, mtime) in
        [("other content", "ABC.D", 2), ("touched", "abc.d", 2), ("as it was", "abc.d", 1)]
    {
        let memory = Memory::new(Overlap::Now);
        let mut fake = Fake { stop_after: Some(2), ..Fake::new(FILES) };
        fake.build(&disk(&memory)).unwrap_err();
        fake.stop_after = None;
        fake.files.insert("a2.txt".to_owned(), (text.to_owned(), mtime));
        fake.build(&disk(&memory)).unwrap();
        let dataset = Dataset::open_in(disk(&memory), "/out/letters").unwrap();
        let want = text.replace('.', "");
        assert_eq!(letters(&dataset)[..4], want, "{name}: rows of one state only");
        assert!(verify(&disk(&memory), Path::new("/out/letters"), &mut |_| ()).is_ok());
    }
}

#[test]
fn a_partition_that_is_not_built_leaves_no_sentinel() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake { order: vec![0, 2], ..Fake::new(FILES) };
    let error = fake.build(&disk(&memory)).unwrap_err();
    let slot = fake.slot(&fake.parts()[1]);
    let want = format!("partition 1 of 3 (slot {slot}) has no record: it was not finished");
    assert_eq!(error.to_string(), want);
    assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None);
    assert_eq!(memory.read_link(&fake.home().current()).unwrap(), None);
    let error = Dataset::open_in(disk(&memory), "/out/letters").unwrap_err();
    let want =
        "`/out/letters` holds no complete dataset: there is neither `_COMPLETE` nor `current`";
    assert_eq!(error.to_string(), want);
    fake.order = vec![0, 1, 2];
    fake.build(&disk(&memory)).unwrap();
    assert_eq!(fake.n_built, 3, "what was built is not built again");
}

#[test]
fn a_dataset_without_rows_is_refused() {
    let memory = Memory::new(Overlap::Now);
    let mut fake = Fake::new(&[("a2.txt", "..!")]);
    let error = fake.build(&disk(&memory)).unwrap_err();
    assert!(matches!(error, DatasetError::Empty), "{error}");
    assert_eq!(memory.stat(&fake.home().sentinel()).unwrap(), None);
}

#[test]
fn a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Local);
    let mut fake = Fake::new(FILES);
    let home = fake.home_in(dir.path());
    let first = Workplace::open(Arc::clone(&storage), home.clone()).unwrap();
    let error = fake.build_in(&storage, &home).unwrap_err();
    assert!(matches!(&error, DatasetError::Busy { holder, .. } if holder.starts_with("pid ")));
    drop(first);
    fake.build_in(&storage, &home).unwrap();
}

#[test]
fn the_local_disk_holds_what_the_model_holds() {
    let dir = tempfile::tempdir().unwrap();
    let local: Arc<dyn Storage> = Arc::new(Local);
    let mut fake = Fake::new(FILES);
    let home = fake.home_in(dir.path());
    let sentinel = fake.build_in(&local, &home).unwrap();
    let memory = Memory::new(Overlap::Late);
    assert_eq!(fake.build(&disk(&memory)).unwrap(), sentinel);
    let name = dir.path().join("letters");
    let verified = verify(&local, &name, &mut |_| ()).unwrap();
    assert_eq!((verified.n_rows, verified.n_partitions), (35, 3));
    for (path, bytes) in sealed(&memory, &fake.home()) {
        let found = local.read(&home.dir().join(&path)).unwrap();
        assert!(found.as_ref() == Some(&bytes), "{}", path.display());
    }
    assert_eq!(letters(&Dataset::open(&name).unwrap()).len(), 35);
}
