//! Damage is named, and never read.

use super::*;

#[test]
fn index_is_made_again_where_it_is_missing_or_damaged() {
    for (name, damage) in [
        ("all runs are gone", 0),
        ("one run is gone", 1),
        ("a page is damaged", 2),
        ("a footer is damaged", 3),
    ] {
        let (memory, storage) = memory();
        let section = open(&storage);
        put(&section, 0..5, 300);
        drop(section);
        let files = runs(&*storage);
        match damage {
            0 => files.iter().for_each(|path| storage.remove_file(path).unwrap()),
            1 => storage.remove_file(&files[0]).unwrap(),
            2 => memory.overwrite(&files[0], 100, b"!!!!").unwrap(),
            _ => {
                let len = len_of(&*storage, &files[0]);
                memory.overwrite(&files[0], len - 20, b"!!!!").unwrap();
            }
        }
        let all = keys(0..1500);
        let cache = CacheReader::new(Arc::clone(&storage), "cache");
        let reader = cache.section(&signature()).unwrap();
        assert_eq!(reader.misses(&all).unwrap().len(), 0, "{name}");
        assert_eq!(reader.misses(&keys([9999])).unwrap(), [0], "{name}");
        if damage >= 2 {
            let wrong = cache.verify().unwrap();
            assert_eq!(wrong.len(), 1, "{name}: {wrong:?}");
            let file = files[0].file_name().unwrap().to_string_lossy().into_owned();
            assert!(wrong[0].to_string().contains(&file), "{name}: {}", wrong[0]);
        }
        let section = open(&storage);
        assert_eq!(section.misses(&all).unwrap().len(), 0, "{name}");
        section.compact().unwrap();
        assert_eq!(cache.verify().unwrap().len(), 0, "{name}");
        assert_eq!(values(&section.get(&all).unwrap().rows), (0..1500).collect::<Vec<_>>());
    }
}

#[test]
fn damage_is_refused_by_name_and_never_read() {
    let segment = layout::segment(&section_dir(), 1);
    for (file, offset, want) in [
        (segment.join("schema.json"), 30, "schema.json`: does not match its sum in B3SUMS"),
        (segment.join("B3SUMS"), 3, "B3SUMS`: is not the file that _COMPLETE names"),
        (segment.join("text.offsets.bin"), 8, "text.offsets.bin`"),
        (section_dir().join(layout::MANIFEST), 200, "manifest.jsonl`: line 1 is damaged"),
        (section_dir().join(layout::SIGNATURE), 3, "signature.json`: it is not the signature"),
    ] {
        let (memory, storage) = memory();
        put(&open(&storage), 0..2, 5);
        memory.overwrite(&file, offset, b"\xff\xfe\xfd\xfc").unwrap();
        let cache = CacheReader::new(Arc::clone(&storage), "cache");
        let read = cache.section(&signature()).and_then(|section| section.get(&keys(0..10)));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        let wrong = cache.verify().unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(wrong.iter().any(|e| e.to_string().contains(&name)), "{name}: {wrong:?}");
    }
    // Values are not summed when they are read; verify names the block.
    let (memory, storage) = memory();
    put(&open(&storage), 0..2, 5);
    memory.overwrite(segment.join("n_2.bin"), 8, b"!").unwrap();
    let wrong = CacheReader::new(storage, "cache").verify().unwrap();
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let want = "segments/1/n_2.bin`: block 1 of 1 (bytes 0 to 40): was changed";
    assert!(wrong[0].to_string().contains(want), "{}", wrong[0]);
}

#[test]
fn log_that_is_gone_is_not_taken_for_an_empty_section() {
    let (_, storage) = memory();
    put(&open(&storage), 0..2, 5);
    storage.remove_file(&section_dir().join(layout::MANIFEST)).unwrap();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let error = cache.section(&signature(), SectionOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("manifest.jsonl`: it is not there, but segments are"));
    assert_eq!(segments(&*storage).len(), 2);
}

#[test]
fn what_names_a_section_is_missed_by_readers_too() {
    for (file, want) in [
        (layout::MANIFEST, "manifest.jsonl`: it is not there, but segments are"),
        (layout::SIGNATURE, "signature.json`: it is not there, but what it belongs to is"),
    ] {
        let (_, storage) = memory();
        put(&open(&storage), 0..2, 5);
        let reader = CacheReader::new(Arc::clone(&storage), "cache");
        let opened = reader.section(&signature()).unwrap();
        storage.remove_file(&section_dir().join(file)).unwrap();
        let wrong = reader.verify().unwrap();
        assert_eq!(wrong.len(), 1, "{file}: {wrong:?}");
        assert!(wrong[0].to_string().ends_with(want), "{file}: {}", wrong[0]);
        assert!(wrong[0].hint().unwrap().contains("rowmill cache prune"), "{file}");
        let stats = reader.stat().unwrap();
        let damage: Vec<_> = stats.iter().map(|it| it.damage.clone().unwrap_or_default()).collect();
        assert_eq!(damage, [wrong[0].to_string()], "{file}");
        assert!(reader.section(&signature()).is_err(), "{file}");
        assert_eq!(opened.refresh().is_err(), file == layout::MANIFEST, "{file}");
        // What was begun and holds nothing is no damage.
        storage.remove_all(&section_dir()).unwrap();
        storage.create_dir_all(&layout::segments(&section_dir())).unwrap();
        assert_eq!((reader.verify().unwrap().len(), reader.stat().unwrap().len()), (0, 0));
    }
}

#[test]
fn a_merge_does_not_vouch_for_what_is_damaged() {
    let (memory, storage) = memory();
    put(&open(&storage), 0..7, 5);
    memory.overwrite(layout::segment(&section_dir(), 3).join("n_2.bin"), 8, b"!").unwrap();
    let section = open(&storage);
    section.put(&keys([99]), &rows([99])).unwrap();
    // The eighth small segment: all of them are merged.
    let error = section.commit().unwrap_err();
    assert!(error.to_string().contains("segments/3/n_2.bin`: block 1 of 1"), "{error}");
    assert!(matches!(section.commit(), Err(CacheError::Stopped { .. })));
    drop(section);
    assert_eq!(segments(&*storage).len(), 8);
    assert_eq!(open(&storage).misses(&keys([0, 34, 99])).unwrap().len(), 0);
}
