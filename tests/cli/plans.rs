//! `check` and `plan` write nothing, and `plan` knows what is done, begun and new.

use std::fs;

use serde_json::Value;

use crate::command::{Entry, Place, files_of, snapshot};

fn states(plan: &Value) -> Vec<&str> {
    let partitions = plan["partitions"].as_array().unwrap();
    partitions.iter().map(|partition| partition["state"].as_str().unwrap()).collect()
}

#[test]
fn looking_writes_nothing_at_all() {
    let place = Place::of_texts(3);
    let look = |when: &str| {
        let before = snapshot(&place.path(""));
        for args in [
            &["check", "p.toml"][..],
            &["plan", "p.toml"],
            &["plan", "p.toml", "--limit-rows", "2"],
            &["path", "p.toml"],
            &["check", "p.toml", "--out", "other"],
            &["plan", "p.toml", "--out", "other/place"],
        ] {
            place.done(args);
            assert_eq!(snapshot(&place.path("")), before, "{when}: {args:?}");
        }
    };
    look("before");
    place.done(&["run", "p.toml"]);
    look("after");
    place.write("in/0/0.txt", "changed");
    place.write("in/9.txt", "added");
    look("changed");
    let before = snapshot(&place.path("data"));
    for args in [&["inspect", "p.toml"][..], &["verify", "p.toml"], &["verify", "data/texts"]] {
        place.done(args);
        assert_eq!(snapshot(&place.path("data")), before, "{args:?}");
    }
}

#[test]
fn a_plan_tells_new_begun_and_done() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 6\nmax_row_bytes = \"64KiB\"\n\
         [run]\njobs = 1\nbatch_rows = 1\ncommit_bytes = 1\n",
    );
    place.write("a.csv", "n\n1\n2\n");
    place.write("b.csv", "n\n3\nx\n");
    place.write("c.csv", "n\n5\n6\n");
    let plan = || place.json(&["plan", "p.toml"]);
    let first = plan();
    assert_eq!((states(&first), &first["up_to_date"]), (vec!["new"; 3], &false.into()));
    place.rowmill(&["run", "p.toml"]).fails(3, &["`b.csv`, line 3, row 1, field `n`"]);
    assert_eq!(states(&plan()), ["done", "begun", "new"]);
    let text = place.done(&["plan", "p.toml"]).stdout;
    for line in ["1 done: reused as it is", "1 begun: goes on", "1 new: to be built"] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    place.write("b.csv", "n\n3\n4\n");
    let report = place.json(&["run", "p.toml"]);
    assert_eq!((&report["rows"], &report["reused_partitions"]), (&6.into(), &1.into()));
    let last = plan();
    assert_eq!((states(&last), &last["up_to_date"]), (vec!["done"; 3], &true.into()));
    assert!(place.done(&["plan", "p.toml"]).stdout.contains("up to date"));
    place.done(&["verify", "p.toml"]);
}

#[test]
fn a_run_that_finds_everything_done_changes_no_byte_and_no_time() {
    let place = Place::of_texts(5);
    place.done(&["run", "p.toml"]);
    let sealed = || {
        let mut all = snapshot(&place.path("data"));
        // The lock says who held it last, and emptying the trash touches the writer's own folders.
        all.retain(|path, _| {
            let is_lock = path.extension().is_some_and(|ext| ext == "lock");
            !is_lock && !path.iter().any(|part| part == "work")
        });
        all
    };
    let before = sealed();
    assert!(before.values().any(|entry| matches!(entry, Entry::Link { .. })), "there is `current`");
    let report = place.json(&["run", "p.toml"]);
    assert_eq!((&report["up_to_date"], &report["rows"]), (&true.into(), &5.into()));
    assert_eq!((&report["reused_partitions"], &report["resumed_rows"]), (&5.into(), &5.into()));
    for stage in report["stages"].as_array().unwrap() {
        assert_eq!(stage["rows"], 0, "no row is read again: {stage}");
    }
    assert_eq!(sealed(), before);
}

#[test]
fn the_writers_state_may_be_thrown_away() {
    let place = Place::of_texts(3);
    place.done(&["run", "p.toml"]);
    let before = files_of(&place.path("data"));
    fs::remove_dir_all(place.current("data", "texts").join("work")).unwrap();
    let report = place.json(&["run", "p.toml"]);
    assert_eq!(report["up_to_date"], true);
    assert_eq!(files_of(&place.path("data")), before);
}

#[test]
fn a_check_shows_stages_fields_and_files() {
    let place = Place::of_texts(2);
    let text = place.done(&["check", "p.toml"]).stdout;
    for line in [
        "inputs     2 files, ",
        "stages     files -> counts -> write",
        "text.bin text.offsets.bin",
        "parent.codes.bin parent.dict.bin parent.dict.offsets.bin parents.json",
        "sample     1 row went through",
        "ok         nothing was written",
    ] {
        assert!(text.contains(line), "no {line:?} in {text}");
    }
    let ran =
        place.rowmill(&["check", "p.toml", "--set", "sources.spare={type=\"csv\",path=\"x\"}"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.starts_with("warning: nothing reads `spare`"), "{}", ran.stderr);
}
