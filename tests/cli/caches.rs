//! `cache ls`, `stat`, `verify`, `prune` and `compact`.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use rowmill::cache::{CacheError, CacheReader, FeatureCache, RowKey, SectionOptions};
use rowmill::fingerprint::CompatSignature;
use rowmill::storage::Local;
use serde_json::json;

use crate::command::Place;

fn signature(id: &str) -> CompatSignature {
    CompatSignature::new(&json!({"id": id, "params": {}}))
}

fn keys(numbers: std::ops::Range<i64>) -> Vec<RowKey> {
    numbers.map(|n| blake3::hash(&n.to_le_bytes()).into()).collect()
}

/// Opens the cache to write to it. A process that another test starts shares the lock of one that was
/// closed, until it becomes another program.
fn open(place: &Place) -> FeatureCache {
    for _ in 0..1000 {
        match FeatureCache::open(Arc::new(Local), place.path("features")) {
            Err(CacheError::Busy { .. }) => {
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("somebody holds the cache")
}

/// Puts and commits rows of these numbers.
fn put(place: &Place, id: &str, numbers: std::ops::Range<i64>) {
    let cache = open(place);
    let section = cache.section(&signature(id), SectionOptions::default()).unwrap();
    let column = Arc::new(numbers.clone().collect::<Int64Array>()) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("value", column)]).unwrap();
    section.put(&keys(numbers), &rows).unwrap();
    section.commit().unwrap();
}

/// A cache of two sections; the second was written to last.
fn place() -> Place {
    let place = Place::new();
    put(&place, "old-v1", 0..10);
    put(&place, "old-v1", 5..15);
    put(&place, "new-v1", 0..3);
    let old = place.path("features").join(signature("old-v1").sha256()).join("manifest.jsonl");
    let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(5);
    std::fs::File::options().write(true).open(old).unwrap().set_modified(hours_ago).unwrap();
    place
}

fn sections(place: &Place) -> Vec<String> {
    let reader = CacheReader::local(place.path("features"));
    let mut names: Vec<String> =
        reader.signatures().unwrap().iter().map(|it| it.json().to_owned()).collect();
    names.sort();
    names.iter().map(|json| json.split('"').nth(3).unwrap().to_owned()).collect()
}

#[test]
fn sections_are_listed_the_youngest_first() {
    let place = place();
    let text = place.done(&["cache", "ls", "features"]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("holds      2 sections, "), "{text}");
    let old = signature("old-v1");
    for (line, id, rows) in [(lines[2], "new-v1", "3 rows"), (lines[3], "old-v1", "20 rows")] {
        assert!(line.starts_with(&signature(id).sha256()[..12]), "{line}");
        assert!(line.contains(rows) && line.ends_with(id), "{line}");
    }
    let document = place.json(&["cache", "ls", "features"]);
    assert_eq!(document["sections"][1]["section"], old.sha256());
    assert_eq!(document["sections"][1]["signature"], json!({"id": "old-v1", "params": {}}));
    assert_eq!(document["sections"][1]["rows"], 20);
    assert!(document["sections"][1]["age_seconds"].as_u64().unwrap() >= 5 * 3600);

    let text = place.done(&["cache", "stat", "features", "--signature", "old-v1"]).stdout;
    for want in ["20 in 2 segments", &format!("signature  {}", old.json()), "fields     value"] {
        assert!(text.contains(want), "{want}: {text}");
    }
    assert!(!text.contains("new-v1"));
    let by_name = ["cache", "stat", "features", "--signature", &old.sha256()[..8]];
    assert_eq!(place.json(&by_name)["sections"].as_array().unwrap().len(), 1);
    place
        .rowmill(&["cache", "ls", "features", "--signature", "other"])
        .fails(2, &["no section has the signature `other`"]);
}

#[test]
fn a_cache_that_is_not_there_is_a_mistake() {
    let place = Place::new();
    for command in ["ls", "stat", "verify", "compact", "prune"] {
        place
            .rowmill(&["cache", command, "features"])
            .fails(2, &["error[usage]: there is no feature cache: `features`"]);
    }
    assert!(!place.path("features").exists());
}

#[test]
fn prune_says_what_would_go_and_removes_it_only_then() {
    for (args, want) in [
        (vec!["--keep", "1"], vec!["old-v1"]),
        (vec!["--keep", "2"], vec![]),
        (vec!["--older-than", "1h"], vec!["old-v1"]),
        (vec!["--older-than", "6h"], vec![]),
        (vec!["--signature", "new-v1"], vec!["new-v1"]),
        (vec!["--signature", "new-v1", "--older-than", "1h"], vec![]),
        (vec!["--keep", "0"], vec!["new-v1", "old-v1"]),
    ] {
        let place = place();
        let all = sections(&place);
        let args = [&["cache", "prune", "features"][..], &args].concat();
        let gone = |document: &serde_json::Value| {
            let ids = document["sections"].as_array().unwrap().iter();
            ids.map(|it| it["signature"]["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let planned = place.json(&args);
        assert_eq!((gone(&planned), &planned["removed"]), (to_text(&want), &json!(false)));
        assert_eq!(sections(&place), all, "{args:?}");
        let removed = place.json(&[&args[..], &["--yes"]].concat());
        assert_eq!((gone(&removed), &removed["removed"]), (to_text(&want), &json!(true)));
        let left: Vec<String> = all.into_iter().filter(|id| !want.contains(&&id[..])).collect();
        assert_eq!(sections(&place), left, "{args:?}");
    }
    place()
        .rowmill(&["cache", "prune", "features", "--yes"])
        .fails(2, &["nothing says which sections are to go", "hint: give --keep, --older-than"]);
}

fn to_text(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn compact_gives_back_replaced_rows_and_verify_reads_all() {
    let place = place();
    let text = place.done(&["cache", "verify", "features"]).stdout;
    assert!(text.starts_with("ok: 23 rows in 2 sections, "), "{text}");
    let document = place.json(&["cache", "compact", "features"]);
    let old = &document["sections"][1];
    assert_eq!((&old["rows_before"], &old["rows"]), (&json!(20), &json!(15)));
    assert_eq!(place.json(&["cache", "verify", "features"])["rows"], 18);
    let reader = CacheReader::local(place.path("features")).section(&signature("old-v1")).unwrap();
    assert_eq!(reader.misses(&keys(0..15)).unwrap().len(), 0);
}

#[test]
fn damage_is_named_with_its_file() {
    let place = place();
    let section = place.path("features").join(signature("old-v1").sha256());
    let file = section.join("segments/1/value.bin");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let ran = place.rowmill(&["cache", "verify", "features", "--json"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    for want in
        ["error[damage-found]: 1 damage found in `features`", "segments/1/value.bin`: block"]
    {
        assert!(ran.stderr.contains(want), "{ran:?}");
    }
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&document["ok"], document["findings"].as_array().unwrap().len()),
        (&json!(false), 1)
    );
    // New sums would vouch for it.
    let ran = place.rowmill(&["cache", "compact", "features"]);
    ran.fails(4, &["error[cache-damaged]", "segments/1/value.bin`: block 1 of 1"]);
    std::fs::write(section.join("manifest.jsonl"), "nonsense\n").unwrap();
    let text = place.done(&["cache", "ls", "features"]).stdout;
    assert!(text.lines().any(|line| line.ends_with("damaged")), "{text}");
    place.done(&[
        "cache",
        "prune",
        "features",
        "--yes",
        "--signature",
        &signature("old-v1").sha256()[..9],
    ]);
    place.done(&["cache", "verify", "features"]);
}

#[test]
fn a_section_whose_log_is_gone_is_damaged() {
    let place = place();
    let old = signature("old-v1");
    let log = place.path("features").join(old.sha256()).join("manifest.jsonl");
    std::fs::remove_file(log).unwrap();
    place.rowmill(&["cache", "verify", "features"]).fails(
        4,
        &[
            "error[damage-found]: 1 damage found in `features`",
            "manifest.jsonl`: it is not there, but segments are",
            "hint: the feature cache was changed after it was written; remove the section",
        ],
    );
    let text = place.done(&["cache", "ls", "features"]).stdout;
    let line = text.lines().find(|line| line.starts_with(&old.sha256()[..12])).unwrap();
    assert!(line.ends_with("damaged"), "{text}");
    place.done(&["cache", "prune", "features", "--yes", "--signature", &old.sha256()[..9]]);
    place.done(&["cache", "verify", "features"]);
}

#[test]
fn a_cache_in_use_is_read_and_not_changed() {
    let place = place();
    let cache = open(&place);
    let holder = format!("is being written to by pid {} on ", std::process::id());
    for args in [&["compact", "features"][..], &["prune", "features", "--keep", "0", "--yes"]] {
        let ran = place.rowmill(&[&["cache"][..], args].concat());
        ran.fails(1, &["error[cache-busy]: the feature cache `features`", &holder]);
    }
    for args in [&["ls"][..], &["stat"], &["verify"], &["prune", "--keep", "0"]] {
        place.done(&[&["cache", args[0], "features"][..], &args[1..]].concat());
    }
    drop(cache);
    assert_eq!(sections(&place).len(), 2);
}
