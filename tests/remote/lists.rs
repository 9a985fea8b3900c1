//! Lists of objects: as they come, cut off, out of order, and another than they were.

use std::path::Path;

use super::command::{Place, files_of};
use super::pages::{Behind, OBJECT, Order, Pages};
use super::reading::{definition, done, run};

#[test]
fn a_long_listing_is_asked_for_in_parts_and_no_further_than_is_meant() {
    let keys = (0..50_000).map(|i| format!("data/{:02}/{i:06}.txt", i / 1_000));
    let pages = Pages::new(keys.collect());
    let place = Place::new();
    for (path, n_inputs, prefix, most) in [
        ("**/*.txt", 50_000, "prefix=data%2F", 130),
        ("1[0-4]/*.txt", 5_000, "prefix=data%2F1", 60),
        ("07/007*5.txt", 100, "prefix=data%2F07%2F007", 1),
    ] {
        let source = format!("type = \"files\"\npath = \"{path}\"\ncontent = \"none\"");
        let small = definition("long", &source)
            .replace("partition_bytes = \"1MiB\"", "partition_bytes = 500");
        place.write("long.toml", small);
        let environment = pages.environment();
        let ran = run(&place, &["plan", "long.toml", "--json"], "s3://b/data", &environment);
        done(&ran);
        let planned: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(planned["inputs"], n_inputs, "{path}");
        let queries = pages.queries();
        assert!(queries.len() <= most, "{path}: {} requests", queries.len());
        let is_cut = queries.iter().any(|query| query.contains("start-after"));
        assert_eq!(is_cut, n_inputs > 1_000, "{path}");
        assert!(queries.iter().all(|query| query.contains(prefix)), "{path}: {queries:?}");
        if n_inputs == 5_000 {
            for i in 10_000..15_000 {
                place.write(&format!("in/{:02}/{i:06}.txt", i / 1_000), "7 bytes");
            }
            let ran = run(&place, &["plan", "long.toml", "--json"], "in", &[]);
            let local: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            assert!(local["partitions"][0]["slot"].is_string());
            assert_eq!(planned["partitions"], local["partitions"], "{path}");
        }
    }
}

/// Objects in several pages, a place with the same files, and a definition that reads them in partitions of
/// about 250.
fn several_pages(n: usize, end: &str) -> (Pages, Place) {
    let names: Vec<_> = (0..n).map(|i| format!("{i:05}{end}.txt")).collect();
    let place = Place::new();
    for name in &names {
        place.write(&format!("in/{name}"), OBJECT);
    }
    let pages = Pages::new(names.iter().map(|name| format!("data/{name}")).collect());
    let source = "type = \"files\"\npath = \"*.txt\"\ncontent = \"text\"";
    let small =
        definition("long", source).replace("partition_bytes = \"1MiB\"", "partition_bytes = 1750");
    place.write("long.toml", small);
    done(&run(&place, &["run", "long.toml", "--out", "local"], "in", &[]));
    (pages, place)
}

/// Whether there is a file below a folder with so many bytes, whose path holds this text.
#[expect(clippy::disallowed_methods, reason = "a test looks at what another process writes")]
fn has_file(folder: &Path, part: &str, bytes: usize) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let path = entry.path();
        let is_meant = || path.display().to_string().contains(part);
        path.is_dir() && has_file(&path, part, bytes)
            || is_meant() && std::fs::read(&path).is_ok_and(|it| it.len() >= bytes)
    })
}

#[test]
fn rows_are_read_before_the_second_page_of_a_listing_is_there() {
    let (pages, place) = several_pages(2_500, "");
    pages.behind(Behind::Unread);
    let environment = pages.environment();
    let ran = run(&place, &["run", "long.toml", "--out", "x"], "s3://b/data", &environment);
    done(&ran);
    assert!(!pages.is_late(), "no object was read while the second page was held");
    assert!(files_of(&place.path("x")) == files_of(&place.path("local")));
    assert_eq!(pages.queries().len(), 4, "three pages, and a look for folders");
    assert!(pages.n_reads() <= 2_501);
    pages.behind(Behind::Told);
    let ran = run(&place, &["run", "long.toml", "--out", "x"], "s3://b/data", &environment);
    done(&ran);
    assert_eq!(pages.n_reads(), 0, "nothing is read again");
    assert!(files_of(&place.path("x")) == files_of(&place.path("local")));
}

#[test]
fn what_stands_for_a_folder_is_no_input_whether_what_lies_in_it_is_meant_or_not() {
    let (pages, place) = several_pages(1_100, "");
    // Lists show them without their slashes; no objects have such names.
    for marker in ["data/", "data/00500a.txt/", "data/00600b.txt/", "data/zz.txt/"] {
        pages.put(marker, Some(""));
    }
    for (name, object) in [("00600b.txt/inner.bin", OBJECT), ("00700empty.txt", "")] {
        pages.put(&format!("data/{name}"), Some(object));
        place.write(&format!("in/{name}"), object);
    }
    done(&run(&place, &["run", "long.toml", "--out", "whole"], "in", &[]));
    let environment = pages.environment();
    done(&run(&place, &["run", "long.toml", "--out", "x"], "s3://b/data", &environment));
    assert!(files_of(&place.path("x")) == files_of(&place.path("whole")));
    let again = run(&place, &["run", "long.toml", "--out", "x"], "s3://b/data", &environment);
    done(&again);
    assert!(again.stdout.contains("up to date"), "{again:?}");
    let planned = run(&place, &["plan", "long.toml", "--out", "new"], "s3://b/data", &environment);
    done(&planned);
    assert!(planned.stdout.contains("1,101 files"), "{planned:?}");
}

#[test]
fn a_listing_that_was_cut_off_is_gone_on_with() {
    for denied in [false, true] {
        let (pages, place) = several_pages(2_500, "");
        let environment = pages.environment();
        let behind = "data/01999.txt".to_owned();
        pages.behind(Behind::Held(behind.clone()));
        let mut command = place.command(&["run", "long.toml", "--out", "x"]);
        command.env("ROOT", "s3://b/data").envs(environment.clone());
        let mut child = command.spawn().unwrap();
        let out = place.path("x");
        // What two pages hold is planned and noted, and some of it is built.
        pages.wait_held("record and journal", || {
            has_file(&out, "listing.jsonl", 2_000 * 30) && has_file(&out, "/partitions/", 1)
        });
        if denied {
            pages.behind(Behind::Denied(behind));
            assert_eq!(child.wait().unwrap().code(), Some(1));
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!has_file(&out, "manifest-", 1));
        pages.behind(Behind::Told);
        pages.queries();
        let ran = run(&place, &["run", "long.toml", "--out", "x"], "s3://b/data", &environment);
        done(&ran);
        let queries = pages.queries();
        let is_new = |query: &String| !query.contains("start-after=data%2F01899.txt");
        assert_eq!(queries.len(), 1, "{queries:?}");
        assert!(!queries.iter().any(is_new), "{queries:?}");
        assert!(files_of(&place.path("x")) == files_of(&place.path("local")), "{denied}");
    }
}

#[test]
fn a_list_that_leaves_no_room_is_refused_and_what_was_built_is_kept() {
    let (pages, place) = several_pages(6_000, &"x".repeat(200));
    let environment = pages.environment();
    let run = |memory: &str| {
        let args = ["run", "long.toml", "--out", "x", "--jobs", "1", "--memory", memory];
        run(&place, &args, "s3://b/data", &environment)
    };
    let few = run("1MiB");
    few.fails(2, &["error[memory-too-small]"]);
    assert!(!place.path("x").exists(), "nothing is written where nothing can be built");
    let needed = few.stderr.split("that may take ").nth(1).unwrap();
    let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
    // Enough for the first pages, and not for all.
    pages.n_reads();
    run(&(needed - 100_000).to_string()).fails(2, &["error[memory-too-small]"]);
    let n_read = pages.n_reads();
    assert!(n_read > 0 && has_file(&place.path("x"), "/partitions/", 1));
    done(&run(&needed.to_string()));
    assert!(pages.n_reads() < 6_000, "what was built is not read again");
    assert!(files_of(&place.path("x")) == files_of(&place.path("local")));
}

/// Every object that a store holds has 7 bytes; 20 of them are a partition, or more.
fn few(names: &[String], page: usize, order: Order) -> (Pages, Place) {
    few_of(names, page, order, "type = \"files\"\npath = \"**/*.txt\"\ncontent = \"text\"")
}

fn few_of(names: &[String], page: usize, order: Order, source: &str) -> (Pages, Place) {
    let place = Place::new();
    for name in names {
        place.write(&format!("in/{name}"), OBJECT);
    }
    let pages = Pages::of(names.iter().map(|name| format!("data/{name}")).collect(), page, order);
    let small =
        definition("few", source).replace("partition_bytes = \"1MiB\"", "partition_bytes = 140");
    place.write("few.toml", small);
    done(&run(&place, &["run", "few.toml", "--out", "local"], "in", &[]));
    (pages, place)
}

/// Begins to build and kills that when pages behind a key are asked for, and what came before is noted.
/// The object `unread` does not come, and with one partition at work those before have their records.
fn cut_off(pages: &Pages, place: &Place, behind: &str, n_noted: usize, unread: &str) {
    pages.behind(Behind::Held(behind.to_owned()));
    pages.unread(Some(unread));
    let mut command = place.command(&["run", "few.toml", "--out", "x", "--jobs", "1"]);
    command.env("ROOT", "s3://b/data").envs(pages.environment());
    let mut child = command.spawn().unwrap();
    let out = place.path("x");
    pages.wait_held("record and journal", || {
        has_file(&out, "listing.jsonl", n_noted * 30) && has_file(&out, "/partitions/", 1)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    pages.behind(Behind::Told);
    pages.unread(None);
    pages.queries();
}

#[expect(clippy::disallowed_methods, reason = "a test takes away what it has put there")]
fn remove(place: &Place, path: &str) {
    std::fs::remove_file(place.path(path)).unwrap();
}

/// The sentinel of what was built, which names everything.
fn sentinel(place: &Place, out: &str) -> Vec<u8> {
    files_of(&place.current(out, "few")).remove(Path::new("_COMPLETE")).unwrap()
}

#[test]
fn a_list_that_changed_meanwhile_is_the_old_one_or_the_new_one_and_then_the_new_one() {
    let names: Vec<_> = (0..450).map(|i| format!("{i:05}.txt")).collect();
    // 300 are noted, of which the last 100 are looked at again; partitions behind the first are not begun.
    let (old, new, refused) = (Some(false), Some(true), None);
    for (name, changes, want) in [
        ("read", [("00003", Some("changed")), ("00004", Some("other"))], old),
        ("added before", [("00120a", Some("added!!")), ("00121a", Some(""))], old),
        ("gone when read", [("00003", None), ("00004", None)], old),
        ("gone", [("00120", None), ("00121", None)], refused),
        ("changed", [("00120", Some("changed")), ("00003", None)], refused),
        ("empty", [("00120", Some("")), ("00121", Some(""))], refused),
        ("changed at the end", [("00290", Some("changed")), ("00003", Some("changed"))], new),
        ("added at the end", [("00290a", Some("added!!")), ("00120", None)], new),
        ("the last gone", [("00299", None), ("00120", Some(""))], new),
        ("behind", [("00299a", Some("added!!")), ("00310", None)], new),
    ] {
        let (pages, place) = few(&names, 150, |_| Vec::new());
        cut_off(&pages, &place, "data/00299.txt", 300, "data/00090.txt");
        for (key, object) in changes {
            pages.put(&format!("data/{key}.txt"), object);
            match object {
                Some(object) => place.write(&format!("in/{key}.txt"), object),
                None => remove(&place, &format!("in/{key}.txt")),
            }
        }
        done(&run(&place, &["run", "few.toml", "--out", "new"], "in", &[]));
        let environment = pages.environment();
        let run = || run(&place, &["run", "few.toml", "--out", "x"], "s3://b/data", &environment);
        let ran = run();
        match want {
            None => ran.fails(1, &["error[input-changed]", changes[0].0]),
            Some(is_new) => {
                done(&ran);
                let want = if is_new { "new" } else { "local" };
                assert_eq!(sentinel(&place, "x"), sentinel(&place, want), "{name}");
            }
        }
        done(&run());
        assert_eq!(sentinel(&place, "x"), sentinel(&place, "new"), "{name}");
    }
}

/// A row in as many bytes as [`OBJECT`] has.
const JSON: &str = "{\"a\":1}";

/// Orders of stores.
const AS_S3: Order = |_| Vec::new();
const BY_LETTER: Order = |key| key.to_lowercase().into_bytes();
const BACKWARDS: Order = |key| key.bytes().map(|byte| !byte).collect();

#[test]
fn a_store_that_lists_out_of_order_loses_nothing_where_a_build_was_cut_off() {
    let names = ["a", "b", "C"].map(|f| (0..150).map(move |i| format!("{f}/{i:05}.txt")));
    let names: Vec<_> = names.into_iter().flatten().collect();
    for (name, before, after) in
        [("always", BY_LETTER, BY_LETTER), ("from then on", AS_S3, BACKWARDS)]
    {
        let (pages, place) = few(&names, 100, before);
        let is_s3 = before("A").is_empty();
        let (behind, unread) = if is_s3 {
            ("data/a/00049.txt", "data/a/00040.txt")
        } else {
            ("data/b/00049.txt", "data/a/00090.txt")
        };
        cut_off(&pages, &place, behind, 200, unread);
        pages.order(after);
        let environment = pages.environment();
        done(&run(&place, &["run", "few.toml", "--out", "x"], "s3://b/data", &environment));
        assert_eq!(sentinel(&place, "x"), sentinel(&place, "local"), "{name}");
    }
    // Nor where it was not.
    let (pages, place) = few(&names, 100, BY_LETTER);
    let environment = pages.environment();
    done(&run(&place, &["run", "few.toml", "--out", "x"], "s3://b/data", &environment));
    assert_eq!(sentinel(&place, "x"), sentinel(&place, "local"));
}

#[test]
fn several_globs_are_listed_in_order_and_gone_on_with() {
    let folders = ["a", "b/x", "b/y", "c"];
    let names = folders.map(|folder| (0..120).map(move |i| format!("{folder}/{i:05}.txt")));
    let mut names: Vec<_> = names.into_iter().flatten().collect();
    names.extend((0..130).map(|i| format!("b/y/{i:05}.bin")));
    for (name, paths, n_lists) in [
        ("beside one another", r#"["c/*.txt", "a/*.txt", "b/**/*.txt"]"#, 3),
        (
            "with paths",
            r#"["b/y/*.txt", "b/x/00003.txt", "b/x/*.txt", "a/00007.txt", "c/00119.txt"]"#,
            2,
        ),
        ("within one another", r#"["**/*.bin", "**/*0.txt", "b/y/*.txt", "*/*.txt"]"#, 1),
    ] {
        let source = format!("type = \"files\"\npath = {paths}\ncontent = \"text\"");
        let (pages, place) = few_of(&names, 100, AS_S3, &source);
        let environment = pages.environment();
        let run = |args: &[&str]| {
            let args = [args, &["few.toml", "--out", "x"]].concat();
            run(&place, &args, "s3://b/data", &environment)
        };
        done(&run(&["plan"]));
        let queries = pages.queries();
        let is_first = |query: &&String| {
            !query.contains("continuation-token") && !query.contains("start-after")
        };
        assert_eq!(queries.iter().filter(is_first).count(), n_lists, "{name}: {queries:?}");
        cut_off(&pages, &place, "data/b/y/00009.txt", 30, "data/b/x/00100.txt");
        done(&run(&["run"]));
        assert_eq!(sentinel(&place, "x"), sentinel(&place, "local"), "{name}");
        let queries = pages.queries();
        assert!(!queries.iter().any(|it| it.contains("prefix=data%2Fa")), "{name}: {queries:?}");
    }
}

#[test]
fn a_limit_of_rows_ends_the_listing() {
    let names: Vec<_> = (0..450).map(|i| format!("{i:05}.txt")).collect();
    for (name, source) in [
        ("rows that are known", "type = \"files\"\npath = \"*.txt\"\ncontent = \"text\""),
        ("rows that are read", "type = \"jsonl\"\npath = \"*.txt\""),
    ] {
        let place = Place::new();
        for name in &names {
            place.write(&format!("in/{name}"), JSON);
        }
        let limited = definition("few", source)
            .replace("partition_bytes = \"1MiB\"", "partition_bytes = 140\nlimit_rows = 50");
        place.write("few.toml", limited);
        done(&run(&place, &["run", "few.toml", "--out", "local"], "in", &[]));
        let keys = names.iter().map(|name| format!("data/{name}"));
        let pages = Pages::of(keys.clone().collect(), 150, AS_S3);
        keys.for_each(|key| pages.put(&key, Some(JSON)));
        // What stands behind the first page is never told.
        pages.behind(Behind::Held("data/00149.txt".to_owned()));
        let environment = pages.environment();
        let run = || run(&place, &["run", "few.toml", "--out", "x"], "s3://b/data", &environment);
        done(&run());
        assert!(!pages.is_late(), "{name}: the second page was waited for");
        assert!(files_of(&place.path("x")) == files_of(&place.path("local")), "{name}");
        assert!(pages.n_reads() < 150, "{name}");
    }
}
