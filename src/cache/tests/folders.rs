//! One folder: who writes to it, and which sections it holds.

use super::*;

#[test]
fn one_process_writes_and_a_section_is_open_once() {
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    let error = FeatureCache::open(Arc::clone(&storage), "cache").unwrap_err();
    let holder = format!("pid {} on ", std::process::id());
    assert!(error.to_string().contains(&holder), "{error}");
    let section = cache.section(&signature(), SectionOptions::default()).unwrap();
    let error = cache.section(&signature(), SectionOptions::default()).unwrap_err();
    assert!(matches!(error, CacheError::InUse { .. }), "{error}");
    drop(cache);
    // A section is enough to keep others out.
    assert!(FeatureCache::open(Arc::clone(&storage), "cache").is_err());
    drop(section);
    FeatureCache::open(storage, "cache").unwrap();
}

#[test]
fn paths_that_lead_to_one_folder_are_one_cache() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(Local);
    storage.create_dir(&dir.path().join("a")).unwrap();
    storage.symlink("features", &dir.path().join("link")).unwrap();
    let caches = Caches::new(storage, CommitPolicy::default());
    let at = |path: &str, of: &CompatSignature| caches.section(&dir.path().join(path), of);
    let first = at("features", &signature()).unwrap();
    let other = CompatSignature::new(&json!({"id": "other"}));
    for path in ["./features", "a/../features", "a/./../features/", "link", "a/../link"] {
        assert!(Arc::ptr_eq(&first, &at(path, &signature()).unwrap()), "{path}");
        assert_eq!(at(path, &other).unwrap().name(), other.sha256(), "{path}");
    }
    assert!(!Arc::ptr_eq(&first, &at("a", &signature()).unwrap()));
}

#[test]
fn signatures_stand_beside_each_other_or_are_refused() {
    let other = CompatSignature::new(&json!({"id": "features-v1", "cutoff": 6.0}));
    let (_, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    put(&cache.section(&signature(), SectionOptions::default()).unwrap(), 0..1, 3);
    let alone = SectionOptions { others: Others::Refused, ..SectionOptions::default() };
    cache.section(&signature(), alone.clone()).unwrap();
    let error = cache.section(&other, alone).unwrap_err();
    let want = "the feature cache `cache` holds features of another signature: \
                `cutoff` is 6.0 against 5.0";
    assert_eq!(error.to_string(), want);
    let section = cache.section(&other, SectionOptions::default()).unwrap();
    assert_eq!(section.misses(&keys(0..3)).unwrap(), [0, 1, 2]);
    section.put(&keys(0..1), &rows(7..8)).unwrap();
    section.commit().unwrap();
    let stats = cache.reader().stat().unwrap();
    let of = |signature: &CompatSignature| {
        stats.iter().find(|stat| stat.section == signature.sha256()).unwrap().clone()
    };
    assert_eq!((of(&signature()).rows, of(&other).rows), (3, 1));
    assert_eq!(of(&other).signature, other.json());
    assert_eq!(of(&other).fields, ["n", "text"]);
    let wanted = signature();
    assert!(matches!(cache.prune(|_| false), Err(CacheError::InUse { .. }) | Ok(_)));
    drop(section);
    cache.prune(|stat| stat.section == wanted.sha256()).unwrap();
    assert_eq!(cache.reader().section(&other).unwrap().misses(&keys(0..1)).unwrap(), [0]);
}

#[test]
fn a_damaged_section_is_listed_beside_the_others_and_can_be_removed() {
    let other = CompatSignature::new(&json!({"id": "other"}));
    let (memory, storage) = memory();
    let cache = FeatureCache::open(Arc::clone(&storage), "cache").unwrap();
    for signature in [&signature(), &other] {
        put(&cache.section(signature, SectionOptions::default()).unwrap(), 0..1, 5);
    }
    memory.overwrite(section_dir().join(layout::MANIFEST), 200, b"\xff\xfe").unwrap();
    let stats = cache.reader().stat().unwrap();
    assert_eq!(stats.len(), 2);
    for stat in &stats {
        let is_damaged = stat.section == signature().sha256();
        assert_eq!((stat.damage.is_some(), stat.rows), (is_damaged, 5 * u64::from(!is_damaged)));
    }
    assert_eq!(cache.reader().verify().unwrap().len(), 1);
    let removed = cache.prune(|stat| stat.damage.is_none()).unwrap();
    assert_eq!((removed.len(), &removed[0].section[..]), (1, signature().sha256()));
    assert_eq!(cache.reader().verify().unwrap().len(), 0);
    assert_eq!(cache.reader().section(&other).unwrap().misses(&keys(0..5)).unwrap().len(), 0);
}
