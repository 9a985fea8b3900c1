//! Hooks that do what they must not. The books close in all cases, and nothing is left running.

use crate::command::files_of;
use crate::hook::{N_ROWS, can_run, place, rejects, rows, wait_for_none_in};

/// A misbehaviour, the row it happens on, and further settings.
type Case = (&'static str, u64, &'static str);

fn quarantined(what: &str, bad: u64, more: &str) -> crate::command::Place {
    let more = format!("on_error = \"quarantine\"\n{more}");
    place(&format!("what = \"{what}\", bad = {bad}"), &more)
}

/// Source row of row `n` in its input.
fn source_row(n: u64) -> u64 {
    if n < 13 {
        n
    } else if n < 19 {
        n - 13
    } else {
        0
    }
}

#[test]
fn a_row_that_ends_the_process_is_rejected_alone() {
    if !can_run() {
        return;
    }
    let cases: [(Case, &str); 6] = [
        (("exit0", 0, ""), "hook_died"),
        (("exit1", 6, "workers = 2"), "hook_died"),
        (("kill", 12, ""), "hook_died"),
        (("segv", 19, ""), "hook_died"),
        (("fork", 16, ""), "hook_died"),
        (("leak", 9, "memory = \"256MiB\""), "hook_memory"),
    ];
    for ((what, bad, more), code) in cases {
        let place = quarantined(what, bad, more);
        let report = place.json(&["run", "p.toml"]);
        assert_eq!(report["rejected"], 1, "{what}");
        assert_eq!(rejects(&place), [(code.to_owned(), source_row(bad))], "{what}");
        let rows = rows(&place);
        assert_eq!(rows.len() as u64, N_ROWS - 1, "{what}");
        for row in &rows {
            let n = row["n"].as_u64().unwrap();
            assert_eq!(row["double"], 2 * n, "{what}");
            // The answer that counts is to the whole batch without the guilty row.
            let first = source_row(n) / 4 * 4 + (n - source_row(n));
            let last = (first + 4).min(if n < 13 {
                13
            } else if n < 19 {
                19
            } else {
                20
            });
            let batch = (first..last).filter(|n| *n != bad).map(|n| n.to_string());
            assert_eq!(row["seen"], batch.collect::<Vec<_>>().join("-"), "{what}");
        }
        place.done(&["verify", place.current("data", "hooked").to_str().unwrap()]);
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn a_row_that_hangs_is_rejected_when_its_time_is_up() {
    if !can_run() {
        return;
    }
    let case = |what: &str| {
        let place = quarantined(what, 13, "timeout = \"6s\"\n");
        let text = std::fs::read_to_string(place.path("p.toml")).unwrap();
        place.write("p.toml", text.replace("batch_rows = 4", "batch_rows = 1"));
        place.done(&["run", "p.toml", "--jobs", "1"]);
        assert_eq!(rejects(&place), [("hook_timeout".to_owned(), 0)], "{what}");
        assert_eq!(rows(&place).len() as u64, N_ROWS - 1, "{what}");
        wait_for_none_in(&place.path("."));
    };
    // They wait more than they work.
    std::thread::scope(|scope| {
        for what in ["hang", "closes"] {
            scope.spawn(move || case(what));
        }
    });
}

#[test]
fn without_quarantine_the_row_is_named_with_what_the_hook_said_last() {
    if !can_run() {
        return;
    }
    let place = place("what = \"exit1\", bad = 14", "");
    place.rowmill(&["run", "p.toml"]).fails(
        3,
        &[
            "error[hook_died]",
            "`b.jsonl`, row 1: the hook does not answer: it ended with exit status 1",
            "it said last: no such luck",
        ],
    );
    wait_for_none_in(&place.path("."));
}

#[test]
fn values_that_may_not_be_are_faults_of_their_rows() {
    if !can_run() {
        return;
    }
    for (what, more, want) in [
        ("null", "", Some("hook_null")),
        ("null", "# nullable", None),
        ("nan", "nan = \"refuse\"", Some("hook_nan")),
        ("nan", "", None),
    ] {
        let place = quarantined(what, 5, more);
        place.done(&["run", "p.toml"]);
        let want: Vec<_> = want.map(|code| (code.to_owned(), 5)).into_iter().collect();
        assert_eq!(rejects(&place), want, "{what} {more}");
        assert_eq!(rows(&place).len(), usize::try_from(N_ROWS).unwrap() - want.len(), "{what}");
    }
}

#[test]
fn answers_that_are_none_end_the_run_and_say_what_came() {
    if !can_run() {
        return;
    }
    for (what, want) in [
        ("garbage", "what it prints is no Arrow stream: it begins with"),
        ("few", "it was sent 4 rows and answered with 3"),
        ("many", "it was sent 4 rows and answered with 5"),
        ("dtype", "`output.double` declares int64, and it answered with int32"),
        ("shape", "`output.pair` declares float32[2], and it answered with float32[3]"),
        ("twice", "it answered more than once to a batch"),
    ] {
        let place = quarantined(what, 9, "");
        let ran = place.rowmill(&["run", "p.toml", "--jobs", "1"]);
        ran.fails(1, &["error[hook-answer]", want]);
        assert!(!place.path("data/hooked/current").exists(), "{what}");
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn a_flood_on_stderr_hurts_nobody() {
    if !can_run() {
        return;
    }
    let place = quarantined("flood", 3, "");
    let ran = place.done(&["--log-level", "info", "run", "p.toml"]);
    assert!(ran.stderr.lines().any(|line| line.contains("hook=\"features\" worker=0")));
    assert_eq!(rows(&place).len() as u64, N_ROWS);
}

#[test]
fn rejects_are_the_same_however_the_run_is_cut_up() {
    if !can_run() {
        return;
    }
    let mut first = None;
    for args in [&["--jobs", "1"][..], &["--jobs", "3", "--set", "run.batch_rows=1"]] {
        let place = quarantined("exit1", 14, "");
        place.done(&[&["run", "p.toml"], args].concat());
        let files = files_of(&place.current("data", "hooked"));
        let first = first.get_or_insert_with(|| files.clone());
        assert!(files == *first, "{args:?}");
    }
}
