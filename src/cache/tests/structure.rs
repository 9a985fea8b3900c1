//! What rows are, and which are refused.

use super::*;

#[test]
fn rows_of_another_structure_are_refused_by_field() {
    let list = |n: i32| {
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let values = Arc::new(Float32Array::from(vec![1.0; usize::try_from(n).unwrap()]));
        Arc::new(FixedSizeListArray::new(item, n, values, None)) as ArrayRef
    };
    let number = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let batch = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys([0]), &batch(vec![("a", list(3)), ("b", number())])).unwrap();
    for when in ["in memory", "committed"] {
        for (columns, want) in [
            (
                vec![("a", list(4)), ("b", number())],
                "`a`: the feature cache holds float32[3], found float32[4]",
            ),
            (vec![("a", list(3))], "`b`: the feature cache holds int64, found no such column"),
            (
                vec![("a", list(3)), ("b", list(1))],
                "`b`: the feature cache holds int64, found float32[1]",
            ),
            (
                vec![("a", list(3)), ("b", number()), ("c", number())],
                "`c`: the feature cache holds no such field, found int64",
            ),
        ] {
            let error = section.put(&keys([1]), &batch(columns)).unwrap_err();
            assert_eq!(error.to_string(), format!("field {want}"), "{when}");
            assert!(error.hint().is_some());
        }
        // Columns in another order are the same rows.
        section.put(&keys([2]), &batch(vec![("b", number()), ("a", list(3))])).unwrap();
        section.commit().unwrap();
    }
    let error = section.put(&keys([1, 2]), &batch(vec![("b", number())])).unwrap_err();
    assert_eq!(error.to_string(), "2 keys for 1 rows");
    assert_eq!(section.misses(&keys(0..3)).unwrap(), [1]);
}

#[test]
fn a_null_where_the_first_rows_could_have_none_is_refused_by_row() {
    let column = |values: Vec<Option<i64>>, nullable| {
        let schema = arrow_schema::Schema::new(vec![Field::new("n", DataType::Int64, nullable)]);
        let values = Arc::new(Int64Array::from(values)) as ArrayRef;
        RecordBatch::try_new(Arc::new(schema), vec![values]).unwrap()
    };
    let (_, storage) = memory();
    let section = open(&storage);
    section.put(&keys([0]), &column(vec![Some(1)], false)).unwrap();
    section.put(&keys([1]), &column(vec![Some(2)], true)).unwrap();
    let error = section.put(&keys([2, 3]), &column(vec![Some(3), None], true)).unwrap_err();
    assert!(error.to_string().starts_with("row 1, field `n`: "), "{error}");
    section.commit().unwrap();
    assert_eq!(values(&section.get(&keys(0..4)).unwrap().rows), [1, 2]);
}

#[test]
fn structs_and_lists_on_one_axis_come_back_as_they_were() {
    let ints = |lists: [Option<Vec<Option<i64>>>; 3]| {
        Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef
    };
    let some = |values: Vec<i64>| Some(values.into_iter().map(Some).collect::<Vec<_>>());
    let centers = ints([some(vec![0, 0, 1]), None, some(vec![])]);
    let neighbours = ints([some(vec![1, 2, 0]), None, some(vec![])]);
    let energy = Arc::new(Float64Array::from(vec![0.1, f64::NAN, -0.0])) as ArrayRef;
    let meta = StructArray::from(vec![
        (Arc::new(Field::new("energy", DataType::Float64, false)), energy),
        (
            Arc::new(Field::new("label", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("ä"), None, Some("")])) as ArrayRef,
        ),
    ]);
    let batch = RecordBatch::try_from_iter([
        ("center", centers),
        ("neighbour", neighbours),
        ("meta", Arc::new(meta) as ArrayRef),
    ]);
    let edges = || FieldSpec { axis: Some("edges".to_owned()), ..FieldSpec::default() };
    let fields =
        BTreeMap::from([("center".to_owned(), edges()), ("neighbour".to_owned(), edges())]);
    let options = SectionOptions { fields, ..SectionOptions::default() };
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let section = cache.section(&signature(), options.clone()).unwrap();
    section.put(&keys(0..3), &batch.unwrap()).unwrap();
    let held = section.get(&keys([2, 1, 0])).unwrap().rows;
    section.commit().unwrap();
    drop(section);
    let section = cache.section(&signature(), options).unwrap();
    let found = section.get(&keys([2, 1, 0])).unwrap().rows;
    assert_eq!(format!("{found:?}"), format!("{held:?}"));
    let names: Vec<_> = found.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["center", "neighbour", "meta.energy", "meta.label"]);
    let energies = found["meta.energy"].as_primitive::<Float64Type>().values();
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(energies), bits(&[-0.0, f64::NAN, 0.1]));
    assert!(found["center"].is_null(1) && !found["center"].is_null(0));
    let files = storage.list(&segments(&*storage)[0]).unwrap().unwrap();
    assert_eq!(files.iter().filter(|f| f.name.ends_with("offsets.bin")).count(), 2, "{files:?}");
    // What a cache gives it takes.
    section.put(&keys(10..13), &found).unwrap();
}
