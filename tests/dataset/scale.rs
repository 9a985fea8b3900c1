//! What a dataset of many partitions and shards takes, counted in operations on the disk.

use std::path::Path;
use std::sync::Arc;

use rowmill::dataset::Dataset;
use rowmill::storage::{Faulty, Memory, Overlap, Storage};

use crate::fake::Fake;

/// `n` partitions of four shards.
fn fake(n: usize) -> Fake {
    let files = (0..n).map(|i| (format!("{i:03}.txt"), ("abcdefghijklmnop".to_owned(), 1)));
    Fake { files: files.collect(), ..Fake::new(&[]) }
}

/// What `work` does on the disk, reading included: operation and path.
fn counted(memory: &Memory, work: impl FnOnce(&Arc<dyn Storage>)) -> Vec<(&'static str, String)> {
    let counting = Faulty::new(memory.clone());
    counting.count_reads();
    work(&(Arc::new(counting.clone()) as Arc<dyn Storage>));
    let all = counting.operations();
    all.iter().map(|it| (it.name, it.path.display().to_string())).collect()
}

/// Operations of finding a dataset of `n` partitions complete, and of opening it.
fn operations(n: usize) -> (usize, usize) {
    let memory = Memory::new(Overlap::Now);
    let mut fake = fake(n);
    fake.build(&(Arc::new(memory.clone()) as _)).unwrap();
    fake.n_built = 0;
    let again = counted(&memory, |storage| drop(fake.build(storage).unwrap()));
    assert_eq!(fake.n_built, 0);
    let open = counted(&memory, |storage| {
        let dataset = Dataset::open_in(Arc::clone(storage), "/out/letters").unwrap();
        assert_eq!(dataset.n_shards(), 4 * n);
    });
    (again.len(), open.len())
}

#[test]
fn finding_many_partitions_complete_takes_a_fixed_number_of_operations_for_each() {
    let [ten, twenty, forty] = [10, 20, 40].map(operations);
    assert_eq!(forty.0 - twenty.0, 2 * (twenty.0 - ten.0), "{ten:?} {twenty:?} {forty:?}");
    let each = (twenty.0 - ten.0) / 10;
    assert!(each <= 60, "{each} operations for a partition of four shards");
    assert_eq!(ten.1, forty.1, "opening reads the sentinel and the manifest, whatever they name");
}

#[test]
fn growing_a_dataset_opens_the_new_shards_alone() {
    let memory = Memory::new(Overlap::Now);
    fake(10).build(&(Arc::new(memory.clone()) as _)).unwrap();
    let old = Dataset::open_in(Arc::new(memory.clone()), "/out/letters").unwrap();
    let grown = counted(&memory, |storage| drop(fake(11).build(storage).unwrap()));
    let is_old = |path: &str| {
        let id = Path::new(path).parent().and_then(Path::file_name).unwrap_or_default();
        old.entries().iter().any(|shard| *shard.id == *id)
    };
    let opened: Vec<_> = grown.iter().filter(|(_, path)| is_old(path)).collect();
    assert!(opened.iter().all(|(name, _)| *name == "look at"), "{opened:?}");
    assert!(opened.len() >= old.n_shards(), "each is seen again");
}
