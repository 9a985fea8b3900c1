//! What is durable when, and what a failed write leaves.

use super::*;

#[test]
fn what_was_not_committed_is_gone_and_what_was_is_not() {
    let (memory, storage) = memory();
    let section = open(&storage);
    put(&section, 0..2, 10);
    section.put(&keys([50]), &rows([50])).unwrap();
    let after: Arc<dyn Storage> = Arc::new(memory.after_kill());
    let section = open(&after);
    assert_eq!(section.misses(&keys([0, 19, 50])).unwrap(), [2]);
}

#[test]
fn torn_last_line_is_cut_and_its_segment_goes() {
    let (memory, storage) = memory();
    put(&open(&storage), 0..3, 5);
    let log = section_dir().join(layout::MANIFEST);
    let len = len_of(&*storage, &log);
    memory.truncate(&log, len - 9).unwrap();
    let reader = CacheReader::new(Arc::clone(&storage), "cache").section(&signature()).unwrap();
    let lost: Vec<usize> = (10..15).collect();
    assert_eq!(reader.misses(&keys(0..15)).unwrap(), lost);
    let section = open(&storage);
    assert_eq!(section.misses(&keys(0..15)).unwrap(), lost);
    assert_eq!(segments(&*storage).len(), 2);
    put(&section, 2..3, 5);
    assert_eq!(section.misses(&keys(0..15)).unwrap().len(), 0);
}

#[test]
fn failure_of_a_write_is_told_by_the_next_call_and_ends_writing() {
    for overlap in [Overlap::Now, Overlap::Late] {
        let faulty = Arc::new(Faulty::new(Memory::new(overlap)));
        let storage: Arc<dyn Storage> = faulty.clone();
        let section = open(&storage);
        put(&section, 0..1, 5);
        section.put(&keys([7]), &rows([7])).unwrap();
        faulty.fail_at(faulty.operations().len() + 3, Fault::Io, Lasting::Once);
        let error = section.commit().unwrap_err();
        assert!(matches!(error, CacheError::Storage(_) | CacheError::Write(_)), "{error}");
        for error in [section.put(&keys([8]), &rows([8])), section.commit()] {
            assert!(matches!(error, Err(CacheError::Stopped { .. })), "{error:?}");
        }
        drop(section);
        assert_eq!(open(&storage).misses(&keys([0, 4, 7])).unwrap(), [2]);
    }
}

#[test]
fn rows_are_made_durable_as_often_as_the_policy_says() {
    let (memory, storage) = memory();
    let cache = FeatureCache::open(storage, "cache").unwrap();
    let commits = CommitPolicy { bytes: 1000, interval: None };
    let options = SectionOptions { commits, ..SectionOptions::default() };
    let section = cache.section(&signature(), options).unwrap();
    let n_rows = |memory: &Memory| {
        let reader = CacheReader::new(Arc::new(memory.clone()), "cache");
        reader.section(&signature()).unwrap().stat().unwrap().rows
    };
    for n in 0..40 {
        section.put(&[key(n)], &rows([n.cast_signed()])).unwrap();
    }
    let written = n_rows(&memory);
    assert!(written > 20 && written < 40, "{written}");
    section.commit().unwrap();
    assert_eq!(n_rows(&memory), 40);
}

#[test]
fn runs_that_a_crash_left_behind_a_merge_are_dropped() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..1, 40);
    let old = runs(&*storage)[0].clone();
    let bytes = storage.read(&old).unwrap().unwrap();
    put(&section, 1..2, 40);
    drop(section);
    assert_eq!(runs(&*storage).len(), 1, "both were merged");
    let mut file = storage.create(&old).unwrap();
    file.append(&bytes).unwrap();
    file.sync().unwrap();
    let reader = CacheReader::new(Arc::clone(&storage), "cache");
    assert_eq!(reader.verify().unwrap().len(), 0);
    assert_eq!(reader.section(&signature()).unwrap().stat().unwrap().index_runs, 1);
    let section = open(&storage);
    assert_eq!(runs(&*storage).len(), 1);
    assert_eq!(values(&section.get(&keys(0..80)).unwrap().rows), (0..80).collect::<Vec<_>>());
}
