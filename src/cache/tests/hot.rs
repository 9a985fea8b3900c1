//! Rows whose places are kept are the rows that are there.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::cache::{HotStat, SectionReader};

fn writer(storage: &Arc<dyn Storage>, hot_bytes: u64) -> Section {
    let cache = FeatureCache::open(Arc::clone(storage), "cache").unwrap();
    let options = SectionOptions { hot_bytes, ..SectionOptions::default() };
    cache.section(&signature(), options).unwrap()
}

fn reader(storage: &Arc<dyn Storage>, hot_bytes: u64) -> SectionReader {
    let reader = CacheReader::new(Arc::clone(storage), "cache").with_hot_bytes(hot_bytes);
    reader.section(&signature()).unwrap()
}

fn found(reader: &SectionReader, numbers: impl IntoIterator<Item = u64>) -> Vec<i64> {
    values(&reader.get(&keys(numbers)).unwrap().rows)
}

fn hot(reader: &SectionReader) -> HotStat {
    reader.stat().unwrap().hot
}

#[test]
fn order_and_misses_are_the_same_whatever_is_hot() {
    let (_, storage) = memory();
    put(&open(&storage), 0..3, 10);
    for (hot_bytes, want_rows, want_hits) in [(0, 0, 0), (59, 0, 0), (120, 2, 2), (1 << 20, 4, 9)] {
        let reader = reader(&storage, hot_bytes);
        for asked in [vec![7, 29, 7], vec![], vec![99, 7, 0, 98, 29, 0, 99, 15], vec![15, 0, 29, 7]]
        {
            let got = reader.get(&keys(asked.clone())).unwrap();
            let there = |n: &u64| *n < 30;
            let of = |is: bool| {
                (0..asked.len()).filter(|at| there(&asked[*at]) == is).collect::<Vec<_>>()
            };
            assert_eq!((got.hits, &got.misses), (of(true), &of(false)), "{hot_bytes}: {asked:?}");
            let rows: Vec<i64> =
                asked.iter().filter(|n| there(n)).map(|n| n.cast_signed()).collect();
            assert_eq!(values(&got.rows), rows, "{hot_bytes}: {asked:?}");
            assert_eq!(reader.misses(&keys(asked)).unwrap(), got.misses);
        }
        let stat = hot(&reader);
        assert_eq!((stat.most_bytes, stat.rows), (hot_bytes, want_rows));
        assert!(stat.bytes <= hot_bytes, "{stat:?}");
        assert!(stat.hits >= want_hits, "{stat:?}");
        if hot_bytes == 0 {
            assert_eq!(stat, HotStat::default());
        }
    }
}

#[test]
fn a_row_that_was_put_is_found_by_the_next_get() {
    for overlap in [Overlap::Now, Overlap::Late, Overlap::Thread] {
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let section = writer(&storage, 1 << 20);
        let all = || values(&section.get(&keys(0..4)).unwrap().rows);
        for round in 0..12 {
            let mut want = vec![round, round + 1, round + 2, round + 3];
            section.put(&keys(0..4), &rows(want.clone())).unwrap();
            assert_eq!(all(), want, "{overlap:?}: put");
            section.commit().unwrap();
            assert_eq!((all(), all()), (want.clone(), want.clone()), "{overlap:?}: committed");
            assert_eq!(section.hot().rows, 4);
            section.put(&keys([2]), &rows([1000])).unwrap();
            want[2] = 1000;
            assert_eq!(all(), want, "{overlap:?}: put over a hot row");
            if round % 5 == 4 {
                section.compact().unwrap();
                assert_eq!((all(), all()), (want.clone(), want), "{overlap:?}: compacted");
            }
        }
        assert!(section.hot().hits >= 12 * 4, "{:?}", section.hot());
    }
}

#[test]
fn a_reader_that_was_refreshed_gives_no_row_of_before() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..1, 5);
    let reader = reader(&storage, 1 << 20);
    assert_eq!((found(&reader, 0..5), hot(&reader).rows), ((0..5).collect(), 5));
    section.put(&keys([3, 7]), &rows([33, 7])).unwrap();
    section.commit().unwrap();
    assert_eq!(found(&reader, 0..9), [0, 1, 2, 3, 4], "what it saw when it was opened");
    assert!(reader.refresh().unwrap());
    assert_eq!(hot(&reader).rows, 0);
    assert_eq!(found(&reader, 0..9), [0, 1, 2, 33, 4, 7]);
    let hits = hot(&reader).hits;
    assert!(!reader.refresh().unwrap());
    assert_eq!(found(&reader, 0..9), [0, 1, 2, 33, 4, 7]);
    assert_eq!(hot(&reader).hits, hits + 6, "nothing is new, so all are hot still");
}

#[test]
fn segments_that_were_replaced_take_their_hot_rows_along() {
    let dir = tempfile::tempdir().unwrap();
    let cache = FeatureCache::open(Arc::new(Local), dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    put(&section, 0..5, 10);
    let reader = CacheReader::local(dir.path()).section(&signature()).unwrap();
    assert_eq!(found(&reader, 0..50), (0..50).collect::<Vec<_>>());
    section.put(&keys(0..50), &rows(100..150)).unwrap();
    section.compact().unwrap();
    assert_eq!(found(&reader, [49, 0]), [49, 0], "still mapped");
    reader.refresh().unwrap();
    assert_eq!(found(&reader, [49, 0]), [149, 100]);
    assert_eq!(reader.verify().unwrap().len(), 0);
}

#[test]
fn rows_of_a_pruned_section_are_not_those_of_the_next() {
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let write = |values: std::ops::Range<i64>| {
        let section = cache.section(&signature(), SectionOptions::default()).unwrap();
        section.put(&keys(0..5), &rows(values)).unwrap();
        section.commit().unwrap();
    };
    write(0..5);
    let reader = reader(&storage, 1 << 20);
    assert_eq!(found(&reader, 0..5), [0, 1, 2, 3, 4]);
    cache.prune(|_| false).unwrap();
    reader.refresh().unwrap();
    assert_eq!((reader.misses(&keys(0..5)).unwrap().len(), hot(&reader).rows), (5, 0));
    write(10..15);
    reader.refresh().unwrap();
    assert_eq!(found(&reader, 0..5), [10, 11, 12, 13, 14]);
    cache.prune(|_| false).unwrap();
    write(20..25);
    reader.refresh().unwrap();
    assert_eq!(found(&reader, 0..5), [20, 21, 22, 23, 24]);
}

#[test]
fn hot_rows_of_a_section_that_is_distrusted_are_nobodys_who_opens_it() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..1, 5);
    let cache = CacheReader::new(Arc::clone(&storage), "cache");
    let before = cache.section(&signature()).unwrap();
    assert_eq!(found(&before, 0..5).len(), 5);
    section.distrust("a worker answered out of turn").unwrap();
    assert!(matches!(cache.section(&signature()), Err(CacheError::Damaged { .. })));
    section.put(&keys([3]), &rows([33])).unwrap();
    section.commit().unwrap();
    assert!(matches!(before.refresh(), Err(CacheError::Damaged { .. })));
}

#[test]
fn sections_of_one_folder_have_hot_rows_of_their_own() {
    let other = CompatSignature::new(&json!({"id": "other"}));
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    for (signature, from) in [(signature(), 0), (other.clone(), 100)] {
        let section = cache.section(&signature, SectionOptions::default()).unwrap();
        section.put(&keys(0..5), &rows(from..from + 5)).unwrap();
        section.commit().unwrap();
    }
    let reader = cache.reader();
    let readers = [signature(), other].map(|signature| reader.section(&signature).unwrap());
    for _ in 0..2 {
        assert_eq!(found(&readers[0], [4, 0]), [4, 0]);
        assert_eq!(found(&readers[1], [4, 0]), [104, 100]);
    }
    assert_eq!(readers.map(|reader| hot(&reader).hits), [2, 2]);
}

#[test]
fn threads_that_share_a_reader_never_go_back_to_a_row_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let cache = FeatureCache::open(Arc::new(Local), dir.path()).unwrap();
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let put = |round: i64| {
        section.put(&keys(0..20), &rows((0..20).map(|_| round))).unwrap();
        section.commit().unwrap();
    };
    put(1);
    let reader = CacheReader::local(dir.path()).section(&signature()).unwrap();
    let committed = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut round = 0;
                while round < 40 {
                    round = committed.load(Ordering::SeqCst);
                    reader.refresh().unwrap();
                    let least = found(&reader, 0..20).into_iter().min();
                    assert!(least >= Some(round.cast_signed()), "{least:?} after {round}");
                }
            });
        }
        for round in 2..=40_u64 {
            put(round.cast_signed());
            committed.store(round, Ordering::SeqCst);
            if round % 9 == 0 {
                section.compact().unwrap();
            }
        }
    });
}

#[derive(Debug, Clone)]
enum Act {
    Put(Vec<u64>),
    Commit,
    Compact,
    Refresh,
    Get(Vec<u64>),
}

fn act() -> impl Strategy<Value = Act> {
    let numbers = || proptest::collection::vec(0_u64..40, 1..12);
    prop_oneof![
        3 => numbers().prop_map(Act::Put),
        2 => Just(Act::Commit),
        1 => Just(Act::Compact),
        2 => Just(Act::Refresh),
        8 => numbers().prop_map(Act::Get),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn hot_rows_are_those_of_a_map_and_within_their_bound(
        acts in proptest::collection::vec(act(), 1..80),
        hot_bytes in prop_oneof![Just(0_u64), Just(60), Just(700), Just(1 << 20)],
    ) {
        let (_, storage) = memory();
        let section = writer(&storage, hot_bytes);
        let reader = reader(&storage, hot_bytes);
        // What was committed, and the first of it that the reader may see.
        let (mut put, mut committed, mut seen) = (HashMap::new(), vec![HashMap::new()], 0);
        for (n, act) in (0_i64..).zip(acts) {
            match act {
                Act::Put(numbers) => {
                    let values: Vec<i64> = (n * 100..).take(numbers.len()).collect();
                    section.put(&keys(numbers.clone()), &rows(values.clone())).unwrap();
                    put.extend(numbers.into_iter().zip(values));
                }
                Act::Commit => {
                    section.commit().unwrap();
                    committed.push(put.clone());
                }
                Act::Compact => {
                    section.compact().unwrap();
                    committed.push(put.clone());
                }
                Act::Refresh => {
                    reader.refresh().unwrap();
                    seen = committed.len() - 1;
                }
                Act::Get(numbers) => {
                    let want = |of: &HashMap<u64, i64>| {
                        numbers.iter().filter_map(|n| of.get(n).copied()).collect::<Vec<i64>>()
                    };
                    let got = values(&section.get(&keys(numbers.clone())).unwrap().rows);
                    prop_assert_eq!(got, want(&put));
                    let got = values(&reader.get(&keys(numbers.clone())).unwrap().rows);
                    // It refreshes by itself where its segments have gone.
                    let is_seen = committed[seen..].iter().position(|of| got == want(of));
                    prop_assert!(is_seen.is_some(), "{:?} of {:?}", got, &committed[seen..]);
                    seen += is_seen.unwrap_or_default();
                }
            }
            for stat in [section.hot(), hot(&reader)] {
                prop_assert!(stat.bytes <= hot_bytes && stat.rows * 60 <= hot_bytes, "{:?}", stat);
            }
        }
    }
}
