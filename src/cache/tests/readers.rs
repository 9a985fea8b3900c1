//! Readers in other hands than the writer's.

use super::*;

#[test]
fn readers_see_what_is_committed_and_go_on_when_segments_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Local);
    let cache = FeatureCache::open(storage, dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let reader = CacheReader::local(dir.path()).section(&signature()).unwrap();
    assert_eq!(reader.misses(&keys(0..2)).unwrap(), [0, 1]);
    section.put(&keys(0..10), &rows(0..10)).unwrap();
    assert!(!reader.refresh().unwrap());
    section.commit().unwrap();
    assert_eq!(reader.misses(&keys([3])).unwrap(), [0], "not refreshed yet");
    assert!(reader.refresh().unwrap());
    assert!(!reader.refresh().unwrap());
    assert_eq!(reader.misses(&keys(0..11)).unwrap(), [10]);
    // This one has looked at nothing when its segments go.
    let lazy = CacheReader::local(dir.path()).section(&signature()).unwrap();
    put(&section, 1..20, 10);
    section.compact().unwrap();
    for reader in [&reader, &lazy] {
        assert_eq!(values(&reader.get(&keys([9, 0])).unwrap().rows), [9, 0]);
        reader.refresh().unwrap();
        assert_eq!(reader.misses(&keys(0..200)).unwrap().len(), 0);
        assert_eq!(reader.verify().unwrap().len(), 0);
    }
}

#[test]
fn readers_find_every_committed_row_while_rows_are_written_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let cache = FeatureCache::open(Arc::new(Local), dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let committed = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for own in [true, false] {
            let (section, committed, dir) = (&section, &committed, dir.path());
            scope.spawn(move || {
                let reader = CacheReader::local(dir).section(&signature()).unwrap();
                let mut n = 0;
                while n < 40 {
                    n = committed.load(order);
                    let all = keys(0..n * 5);
                    let found = if own {
                        section.get(&all).unwrap()
                    } else {
                        reader.refresh().unwrap();
                        reader.get(&all).unwrap()
                    };
                    assert_eq!(values(&found.rows), (0..n.cast_signed() * 5).collect::<Vec<_>>());
                }
            });
        }
        for commit in 0..40 {
            put(&section, commit..commit + 1, 5);
            committed.store(commit + 1, order);
            if commit % 11 == 10 {
                section.compact().unwrap();
            }
        }
    });
}
