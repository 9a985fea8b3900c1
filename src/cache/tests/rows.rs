//! Rows that are put are found, each under its key.

use super::*;

#[test]
fn rows_are_found_in_the_order_asked_for_at_every_stage() {
    for overlap in [Overlap::Now, Overlap::Late, Overlap::Thread] {
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let section = open(&storage);
        assert_eq!(section.get(&keys(0..3)).unwrap().misses, [0, 1, 2]);
        let check = |section: &Section, stage: &str| {
            let found = section.get(&keys([4, 99, 0, 4, 2])).unwrap();
            assert_eq!(values(&found.rows), [40, 0, 40, 2], "{overlap:?}, {stage}");
            assert_eq!((found.hits, found.misses), (vec![0, 2, 3, 4], vec![1]), "{stage}");
            assert_eq!(section.misses(&keys([4, 99, 0])).unwrap(), [1], "{stage}");
        };
        section.put(&keys(0..5), &rows(0..5)).unwrap();
        section.put(&keys([4]), &rows([40])).unwrap();
        check(&section, "in memory");
        section.commit().unwrap();
        check(&section, "committed");
        // Rows of the segment, of memory, and of the segment again.
        section.put(&keys([2, 7]), &rows([2, 7])).unwrap();
        check(&section, "in both");
        section.commit().unwrap();
        drop(section);
        check(&open(&storage), "opened again");
    }
}

#[test]
fn latest_row_of_a_key_counts_wherever_it_stands() {
    let (_, storage) = memory();
    let section = open(&storage);
    for round in 0_u64..20 {
        let from = round % 5;
        let values = (from..6).map(|n| (n + 100 * round).cast_signed());
        section.put(&keys(from..6), &rows(values)).unwrap();
        section.commit().unwrap();
    }
    let want = [1500, 1601, 1702, 1803, 1904, 1905];
    let check = |section: &Section| {
        assert_eq!(values(&section.get(&keys(0..6)).unwrap().rows), want);
    };
    check(&section);
    let done = section.compact().unwrap();
    assert_eq!(done.rows, 6);
    assert!(done.rows_before > 6 && done.bytes < done.bytes_before, "{done:?}");
    check(&section);
    drop(section);
    check(&open(&storage));
    assert_eq!(segments(&*storage).len(), 1);
    assert_eq!(runs(&*storage).len(), 1);
}

#[test]
fn many_small_commits_leave_few_files() {
    let (_, storage) = memory();
    let section = open(&storage);
    put(&section, 0..70, 3);
    assert!(segments(&*storage).len() <= 3 * 8, "{:?}", segments(&*storage));
    assert!(runs(&*storage).len() <= 6, "{:?}", runs(&*storage));
    let found = section.get(&keys((0..210).rev())).unwrap();
    assert_eq!(values(&found.rows), (0..210).rev().collect::<Vec<_>>());
    let reader = CacheReader::new(Arc::clone(&storage), "cache");
    assert_eq!(reader.verify().unwrap().len(), 0);
}

#[test]
fn rows_are_cast_only_where_it_is_asked_for() {
    let item = Arc::new(Field::new_list_field(DataType::Float64, false));
    let lists = Arc::new(Float64Array::from(vec![0.1, 1e300, 0.5, 2.0]));
    let lists = FixedSizeListArray::new(item, 2, lists, None);
    let columns: [(&str, ArrayRef); 2] =
        [("x", Arc::new(lists)), ("n", Arc::new(Int64Array::from(vec![1, 300])))];
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys(0..2), &RecordBatch::try_from_iter(columns).unwrap()).unwrap();
    let found = section.get(&keys([1])).unwrap();
    let cast = found.clone().cast(&[("x", DataType::Float32)]).unwrap();
    let values = cast.rows["x"].as_fixed_size_list().values().clone();
    assert_eq!(values.as_primitive::<Float32Type>().values(), &[0.5, 2.0]);
    assert_eq!(&cast.rows["n"], &found.rows["n"]);
    let error = found.cast(&[("n", DataType::Int8)]).unwrap_err();
    assert!(error.to_string().starts_with("field `n` cannot be cast to Int8: "), "{error}");
}

/// One step of somebody who uses a cache.
#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u64>),
    Commit,
    Compact,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec(0_u64..60, 1..12).prop_map(Step::Put),
        4 => Just(Step::Commit),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_cache_is_a_map(steps in proptest::collection::vec(step(), 1..60), late: bool) {
        let overlap = if late { Overlap::Late } else { Overlap::Now };
        let storage: Arc<dyn Storage> = Arc::new(Memory::new(overlap));
        let mut section = open(&storage);
        let (mut want, mut committed) = (HashMap::new(), HashMap::new());
        for (n, step) in (0_i64..).zip(steps) {
            match step {
                Step::Put(numbers) => {
                    let values = (0..).map(|at| n * 1000 + at);
                    let values: Vec<i64> = values.take(numbers.len()).collect();
                    section.put(&keys(numbers.clone()), &rows(values.clone())).unwrap();
                    want.extend(numbers.into_iter().zip(values));
                }
                Step::Commit => {
                    section.commit().unwrap();
                    committed.clone_from(&want);
                }
                Step::Compact => {
                    let done = section.compact().unwrap();
                    committed.clone_from(&want);
                    prop_assert_eq!(done.rows, want.len() as u64);
                }
                Step::Reopen => {
                    drop(section);
                    section = open(&storage);
                    want.clone_from(&committed);
                }
            }
            let asked: Vec<u64> = (0..60).collect();
            let found = section.get(&keys(asked.clone())).unwrap();
            let hits = asked.iter().filter_map(|n| want.get(n).copied());
            prop_assert_eq!(values(&found.rows), hits.collect::<Vec<i64>>());
            prop_assert_eq!(found.hits.len() + found.misses.len(), 60);
        }
    }
}
