//! Rows that a hook did not answer, asked about again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::{Entry, Place, files_of, snapshot};
use crate::hook::{can_run, place, rejects, wait_for_none_in};
use crate::process::Run;

/// A folder whose hook fails on the rows that the file `broken` names.
fn failing_on(rows: &str) -> Place {
    failing_with(rows, "")
}

fn failing_with(rows: &str, more: &str) -> Place {
    let place = place("what = \"files\"", &format!("on_error = \"quarantine\"\n{more}"));
    fails_on(&place, rows);
    place
}

/// Has the hook fail on these rows from now on.
fn fails_on(place: &Place, rows: &str) {
    place.write("broken", rows);
    std::fs::remove_file(place.path("calls.txt")).ok();
}

/// The files of a dataset that is built with a hook that fails on these rows.
fn built_with(rows: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let place = failing_on(rows);
    place.done(&["run", "p.toml"]);
    files_of(&place.current("data", "hooked"))
}

/// The rows that the hook was asked about, each once.
fn asked(place: &Place) -> Vec<u64> {
    let calls = std::fs::read_to_string(place.path("calls.txt")).unwrap_or_default();
    let mut rows: Vec<u64> = calls.split([',', '\n']).filter_map(|row| row.parse().ok()).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// What readers of the dataset see, with the times at which it was written.
fn sealed(dataset: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut seen = snapshot(dataset);
    seen.retain(|path, entry| !path.starts_with("work") && !matches!(entry, Entry::Dir { .. }));
    seen
}

#[test]
fn a_retry_ends_with_the_bytes_of_a_run_that_failed_on_the_rows_that_are_left_alone() {
    if !can_run() {
        return;
    }
    let all: Vec<u64> = (0..20).collect();
    for (before, after, rebuilt, n_again) in [
        ("0 14", "14", &all[..19], 2),
        ("19", "", &all[19..], 1),
        // It may also answer less than before.
        ("2", "3", &all[..13], 1),
    ] {
        let place = failing_on(before);
        let report = place.json(&["run", "p.toml"]);
        let n_before = before.split(' ').count();
        assert_eq!(report["unanswered"], n_before, "{before}");
        let dataset = place.current("data", "hooked");
        let old = files_of(&dataset);
        fails_on(&place, after);
        // Without being told to, a run asks nobody.
        assert_eq!(place.json(&["run", "p.toml"])["up_to_date"], true, "{before}");
        assert!(asked(&place).is_empty(), "{before}");

        let plan = place.json(&["plan", "p.toml", "--retry-rejects", "--why"]);
        assert_eq!(plan["asked_again"], n_again, "{before}");
        assert_eq!(plan["why"]["reasons"][0]["reason"], "unanswered", "{before}");
        let report = place.json(&["run", "p.toml", "--retry-rejects"]);
        assert_eq!(report["asked_again"], n_again, "{before}");
        assert_eq!(report["up_to_date"], false, "{before}");
        assert_eq!(asked(&place), rebuilt, "{before}");
        assert_eq!(place.current("data", "hooked"), dataset, "{before}");
        // The generation before is still there, whole.
        let now = files_of(&dataset);
        let is_kept = |(path, bytes): (&PathBuf, &Vec<u8>)| {
            path.ends_with("_COMPLETE") || now.get(path) == Some(bytes)
        };
        assert!(old.iter().all(is_kept), "{before}");
        place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
        assert!(files_of(&dataset) == built_with(after), "{before}");
    }
}

#[test]
fn a_retry_that_changes_nothing_leaves_the_dataset_as_it_is() {
    if !can_run() {
        return;
    }
    let place = failing_on("2 14");
    place.done(&["run", "p.toml"]);
    let dataset = place.current("data", "hooked");
    let before = sealed(&dataset);
    fails_on(&place, "2 14");
    let ran = place.done(&["run", "p.toml", "--retry-rejects"]);
    assert!(ran.stdout.contains("a hook did not answer 2 rows"), "{}", ran.stdout);
    assert_eq!(asked(&place), (0..19).collect::<Vec<_>>());
    assert!(sealed(&dataset) == before);
    assert_eq!(place.json(&["run", "p.toml"])["up_to_date"], true);
    // With nothing to ask about, it is a run.
    let place = failing_on("");
    place.done(&["run", "p.toml"]);
    let report = place.json(&["run", "p.toml", "--retry-rejects"]);
    assert_eq!((&report["up_to_date"], &report["asked_again"]), (&json!(true), &json!(0)));
}

/// Kills the run at one commit after another, a further one each time, until it is done. How often
/// it was killed.
fn kill_until_done(place: &Place, first: &[&str], then: &[&str]) -> usize {
    let mut n_kills = 0;
    loop {
        let args = if n_kills == 0 { first } else { then };
        let run = Run::new(&place.path("p.toml"), &place.path("data")).set("run.commit_bytes=1");
        let run = args.iter().fold(run, |run, arg| run.arg(*arg));
        let mut running = run.set(format!("run.jobs={}", n_kills % 2 + 1)).start();
        let has_ended = (0..=n_kills % 3).any(|_| running.line().is_none());
        let ended = if has_ended { running.wait() } else { running.kill() };
        wait_for_none_in(&place.path("."));
        if ended.code() == Some(0) {
            return n_kills;
        }
        assert!(ended.was_killed(), "{ended:#?}");
        n_kills += 1;
        assert!(n_kills < 60, "it comes no further");
    }
}

#[test]
fn a_retry_that_is_killed_goes_on_as_one() {
    if !can_run() {
        return;
    }
    let case = |then: &[&str]| {
        let place = failing_on("2 14 19");
        place.done(&["run", "p.toml"]);
        let dataset = place.current("data", "hooked");
        let sentinel = std::fs::read(dataset.join("_COMPLETE")).unwrap();
        fails_on(&place, "14");
        let n_kills = kill_until_done(&place, &["--retry-rejects"], then);
        assert!(n_kills > 1, "too quick to be killed");
        assert_ne!(std::fs::read(dataset.join("_COMPLETE")).unwrap(), sentinel);
        place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
        assert!(files_of(&dataset) == built_with("14"), "{then:?}");
        // What was asked once in this retry was not asked again, so the retry has ended.
        let plan = place.json(&["plan", "p.toml", "--retry-rejects"]);
        assert_eq!(plan["asked_again"], 1, "{then:?}");
    };
    std::thread::scope(|scope| {
        for then in [&[][..], &["--retry-rejects"]] {
            scope.spawn(move || case(then));
        }
    });
}

#[test]
fn between_the_parts_of_a_retry_the_generation_before_is_read_and_nothing_is_cleaned_away() {
    if !can_run() {
        return;
    }
    let place = failing_on("2 14");
    place.done(&["run", "p.toml"]);
    let dataset = place.current("data", "hooked");
    let before = files_of(&dataset);
    fails_on(&place, "14");
    place.write("hanging", "15");
    let run = Run::new(&place.path("p.toml"), &place.path("data"));
    let mut running = run.arg("--retry-rejects").set("run.jobs=1").start();
    running.line_with("\"event\":\"partition\"");
    running.kill();
    wait_for_none_in(&place.path("."));
    std::fs::remove_file(place.path("hanging")).unwrap();

    place.done(&["verify", dataset.to_str().unwrap()]);
    let status = place.json(&["status", "p.toml"]);
    assert_eq!(status["state"], "stopped");
    assert_eq!(status["generation"]["unanswered"], 2);
    place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
    let now = files_of(&dataset);
    assert!(before.iter().all(|(path, bytes)| now.get(path) == Some(bytes)));
    // The partition that was built again is not built once more.
    fails_on(&place, "14");
    place.done(&["run", "p.toml", "--retry-rejects"]);
    assert_eq!(asked(&place), (13..19).collect::<Vec<_>>());
    assert_eq!(rejects_of_current(&place), [("hook_died".to_owned(), 1)]);
}

/// The rejects of the generation that readers find.
fn rejects_of_current(place: &Place) -> Vec<(String, u64)> {
    place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
    rejects(place)
}

#[test]
fn what_an_unfinished_build_has_rejected_is_asked_again_too() {
    if !can_run() {
        return;
    }
    // In the open shard of the partition, and in its sealed one.
    for event in ["\"event\":\"commit\"", "\"event\":\"sealed\""] {
        let place = failing_on("2");
        place.write("hanging", "12");
        let run = Run::new(&place.path("p.toml"), &place.path("data"));
        let mut running = run.set("run.jobs=1").set("run.commit_bytes=1").start();
        running.line_with(event);
        running.kill();
        wait_for_none_in(&place.path("."));
        std::fs::remove_file(place.path("hanging")).unwrap();
        fails_on(&place, "");
        let plan = |args: &[&str]| place.json(&[&["plan", "p.toml"], args].concat());
        let of_first = |plan: Value| {
            let first = &plan["partitions"][0];
            (first["state"].clone(), first["asked_again"].clone())
        };
        assert_eq!(of_first(plan(&[])), (json!("begun"), json!(0)), "{event}");
        assert_eq!(of_first(plan(&["--retry-rejects"])), (json!("new"), json!(1)), "{event}");
        place.done(&["run", "p.toml", "--retry-rejects"]);
        assert_eq!(asked(&place), (0..20).collect::<Vec<_>>(), "{event}");
        place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
        assert!(files_of(&place.current("data", "hooked")) == built_with(""), "{event}");
    }
}

#[test]
fn a_retry_with_too_many_rejects_is_given_up() {
    if !can_run() {
        return;
    }
    let place = failing_with("2", "max_rejects = 1");
    place.done(&["run", "p.toml"]);
    let dataset = place.current("data", "hooked");
    let before = sealed(&dataset);
    fails_on(&place, "2 3");
    place.rowmill(&["run", "p.toml", "--retry-rejects"]).fails(3, &["error["]);
    assert_eq!(place.json(&["run", "p.toml"])["up_to_date"], true);
    let now = sealed(&dataset);
    assert!(before.iter().all(|(path, entry)| now.get(path) == Some(entry)));
    fails_on(&place, "");
    let report = place.json(&["run", "p.toml", "--retry-rejects"]);
    assert_eq!((&report["asked_again"], &report["rejected"]), (&json!(1), &json!(0)));
}
