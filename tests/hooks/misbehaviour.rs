//! Hooks that do what they must not. The books close in all cases, and nothing is left running.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rowmill::cache::CacheReader;

use crate::command::files_of;
use crate::hook::{N_ROWS, can_run, place, rejects, rows, wait_for_none_in};

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

/// The rows of a batch, all of which the answer to one of them was given to.
fn batch_of(n: u64) -> std::ops::Range<u64> {
    let (first, end) = if n < 13 {
        (0, 13)
    } else if n < 19 {
        (13, 19)
    } else {
        (19, 20)
    };
    let start = first + (n - first) / 4 * 4;
    start..end.min(start + 4)
}

#[test]
fn rows_that_end_the_process_are_rejected_alone() {
    if !can_run() {
        return;
    }
    // The first row, one amid others, the last of an input; of its first batch, of a later one.
    let rows_at = [0, 6, 12, 13, 16, 19];
    let ways = ["exit0", "exit1", "kill", "segv", "fork", "daemon"];
    let case = |turn: usize, more: &str| {
        let bads = rows_at
            .iter()
            .enumerate()
            .map(|(i, row)| format!("[{row}, \"{}\"]", ways[(i + turn) % ways.len()]));
        let bads = bads.collect::<Vec<_>>().join(", ");
        let more = format!("on_error = \"quarantine\"\n{more}");
        let place = place(&format!("bads = [{bads}]"), &more);
        place.done(&["run", "p.toml"]);
        let mut want: Vec<_> =
            rows_at.iter().map(|row| ("hook_died".to_owned(), source_row(*row))).collect();
        want.sort();
        assert_eq!(rejects(&place), want, "{bads}");
        let rows = rows(&place);
        assert_eq!(rows.len(), usize::try_from(N_ROWS).unwrap() - rows_at.len(), "{bads}");
        for row in &rows {
            let n = row["n"].as_u64().unwrap();
            assert_eq!(row["double"], 2 * n, "{bads}");
            // The answer that counts is to the whole batch without the guilty row.
            let batch = batch_of(n).filter(|n| !rows_at.contains(n)).map(|n| n.to_string());
            assert_eq!(row["seen"], batch.collect::<Vec<_>>().join("-"), "{bads}");
        }
        place.done(&["verify", place.current("data", "hooked").to_str().unwrap()]);
        wait_for_none_in(&place.path("."));
    };
    std::thread::scope(|scope| {
        for (turn, more) in [(0, ""), (2, "workers = 2"), (3, "")] {
            scope.spawn(move || case(turn, more));
        }
    });
}

#[test]
fn a_row_that_takes_too_much_memory_is_rejected_alone() {
    if !can_run() {
        return;
    }
    for bad in [0, 14] {
        let place = quarantined("leak", bad, "memory = \"256MiB\"");
        place.done(&["run", "p.toml"]);
        assert_eq!(rejects(&place), [("hook_memory".to_owned(), source_row(bad))]);
        assert_eq!(rows(&place).len() as u64, N_ROWS - 1);
        wait_for_none_in(&place.path("."));
    }
}

/// Answers to one row at a time; to several it does `WHAT`.
const ONE_BY_ONE: &str = r#"
import sys, time
import pyarrow as pa

schema = pa.schema([("double", pa.int64()), ("pair", pa.list_(pa.float32(), 2)), ("words", pa.list_(pa.int64())), ("seen", pa.string())])
answers = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    n = batch.num_rows
    if n > LIMIT:
        held = b"x" * BYTES
        time.sleep(1e6)
    columns = [[0] * n, [[0, 0]] * n, [[]] * n, ["-"] * n]
    answers.write_batch(pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema)], schema=schema))
    sys.stdout.buffer.flush()
"#;

#[test]
fn limits_are_named_with_their_figures_where_they_end_the_run() {
    if !can_run() {
        return;
    }
    let case = |rows: u32, bytes: u32, more: &str, batch_rows: u32, code: i32, want: &[&str]| {
        let place = place("", more);
        let hook = ONE_BY_ONE.replace("LIMIT", &rows.to_string());
        place.write("hook.py", hook.replace("BYTES", &bytes.to_string()));
        let text = std::fs::read_to_string(place.path("p.toml")).unwrap();
        let text = text.replace("batch_rows = 4", &format!("batch_rows = {batch_rows}"));
        place.write("p.toml", text);
        place.rowmill(&["run", "p.toml", "--jobs", "1"]).fails(code, want);
        wait_for_none_in(&place.path("."));
    };
    let timeout = "no answer came within `timeout` (2s)";
    let raise = "hint: raise `timeout`, which for the first batch of a process includes its start";
    // They wait more than they work.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let want = ["error[hook_timeout]", timeout, raise];
            case(0, 0, "timeout = \"2s\"", 1, 3, &want);
        });
        scope.spawn(|| {
            let want = [
                "error[hook-failed]",
                "it does not answer to 4 rows together, but to each alone: it took more than \
                 `memory` (256 MiB)",
                "hint: raise `memory`, or lower `batch_rows`",
            ];
            case(1, 400 << 20, "memory = \"256MiB\"", 4, 1, &want);
        });
    });
}

#[test]
fn what_a_hook_has_started_ends_with_the_run_however_it_left_it() {
    if !can_run() {
        return;
    }
    let place = place("what = \"stays\"", "workers = 2");
    place.done(&["run", "p.toml"]);
    assert_eq!(rows(&place).len() as u64, N_ROWS);
    wait_for_none_in(&place.path("."));
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

/// What was kept of what hooks said, for people.
fn notes_of(place: &crate::command::Place) -> Vec<String> {
    let plan = place.json(&["plan", "p.toml"]);
    let dir = place.path(plan["dataset"].as_str().unwrap()).join("work/rejects");
    let files = std::fs::read_dir(dir).into_iter().flatten();
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn what_a_hook_said_last_about_a_row_is_kept_until_it_is_cleaned_away() {
    if !can_run() {
        return;
    }
    let place = quarantined("shout", 5, "");
    place.done(&["run", "p.toml"]);
    let notes = notes_of(&place);
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("asked about 1 row, the first of which is\nn = 5\n"));
    assert!(notes[0].ends_with("xxx\nno such luck\n"));
    assert!((60 << 10..66 << 10).contains(&notes[0].len()), "{}", notes[0].len());
    place.done(&["clean", "p.toml", "--yes"]);
    assert!(notes_of(&place).is_empty());
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
            "it said last: no such luck | more is in `",
            "/work/rejects/0-features.txt`",
        ],
    );
    let notes = notes_of(&place);
    assert_eq!(
        notes,
        ["asked about 1 row, the first of which is\nn = 14\nand said last\nno such luck\n"]
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
    let all = [0, 9, 19];
    for (what, bads, want) in [
        ("garbage", &all[..], "what it prints is no Arrow stream: it begins with"),
        ("few", &all[..], " and answered with"),
        ("many", &all[1..2], "it was sent 4 rows and answered with 5"),
        ("many", &all[2..], "it was sent 1 row and answered with 2"),
        ("dtype", &all[..1], "`output.double` declares int64, and it answered with int32"),
        ("shape", &all[..1], "`output.pair` declares float32[2], and it answered with float32[3]"),
        // Where the next batch was asked about already, it is the answer to that which is wrong.
        ("twice", &all[..1], "answered"),
    ] {
        for bad in bads {
            let place = quarantined(what, *bad, "");
            let ran = place.rowmill(&["run", "p.toml", "--jobs", "1"]);
            ran.fails(1, &["error[hook-answer]", want]);
            assert!(!place.path("data/hooked/current").exists(), "{what}");
            wait_for_none_in(&place.path("."));
        }
    }
}

#[test]
fn an_answer_with_a_number_is_the_answer_to_no_other_batch() {
    if !can_run() {
        return;
    }
    let case = |what: &str, want: &str| {
        let place = place(&format!("what = \"{what}\", bad = 5, numbers = true"), "");
        let ran = place.rowmill(&["run", "p.toml", "--jobs", "1"]);
        if want.is_empty() {
            assert_eq!((ran.code, rows(&place).len() as u64), (0, N_ROWS), "{}", ran.stderr);
        } else {
            ran.fails(1, &["error[hook-answer]", want, "hint: a hook writes one batch to stdout"]);
        }
        wait_for_none_in(&place.path("."));
    };
    std::thread::scope(|scope| {
        for (what, want) in [
            ("nothing else", ""),
            ("late", "it answered more than once to a batch"),
            ("other", "it answered to batch 1, and was to answer to batch 0"),
        ] {
            scope.spawn(move || case(what, want));
        }
    });
}

#[test]
fn what_comes_behind_the_last_answer_ends_the_run() {
    if !can_run() {
        return;
    }
    let case = |what: &str, want: &str| {
        let place = place(&format!("what = \"{what}\""), "workers = 2");
        let ran = place.rowmill(&["run", "p.toml"]);
        ran.fails(
            1,
            &[
                "error[hook-answer]",
                &format!("behind its last answer, {want}"),
                "hint: a hook writes one batch to stdout",
            ],
        );
        assert!(!place.path("data/hooked/current").exists(), "{what}");
        wait_for_none_in(&place.path("."));
    };
    let begun = "it begins with \"done\\ndon\"";
    let printed = format!("what it prints is no Arrow stream: {begun}");
    let ended = format!("it writes on behind the end of its stream: {begun}");
    std::thread::scope(|scope| {
        for (what, want) in [
            ("prints", &*printed),
            ("ends", &*ended),
            ("one more", "it answered more than once to a batch"),
            ("begins", "it began another message"),
        ] {
            scope.spawn(move || case(what, want));
        }
    });
}

#[test]
fn nothing_is_kept_of_answers_that_may_belong_to_other_rows() {
    if !can_run() {
        return;
    }
    let case = |cache: &str, ends_early: bool| {
        let place = place("what = \"lags\"", &format!("workers = 1\n{cache}"));
        for (name, rows) in [("a", 0..8), ("b", 8..12), ("c", 12..16)] {
            let lines: Vec<String> = rows.map(|n| format!("{{\"n\": {n}}}\n")).collect();
            let lines = lines.concat();
            place.write(&format!("in/{name}.jsonl"), lines);
        }
        place.write("mended", "");
        let run = |out: &str| place.rowmill(&["run", "p.toml", "--out", out, "--jobs", "1"]);
        assert_eq!(run("right").code, 0);
        // A generation that was complete before stays what it is.
        let before = files_of(&place.current("right", "hooked"));
        place.write("in/b.jsonl", "{\"n\": 20}\n{\"n\": 21}\n{\"n\": 22}\n{\"n\": 23}\n");
        if ends_early {
            // The answer to the batch before has too many rows for the last.
            place.write("in/c.jsonl", "{\"n\": 12}\n");
        }
        assert_eq!(run("scratch").code, 0);
        let want = files_of(&place.current("scratch", "hooked"));
        std::fs::remove_dir_all(place.path("features")).ok();
        std::fs::remove_file(place.path("mended")).unwrap();
        let more = if ends_early {
            "it was sent 1 row and answered with 4"
        } else {
            "behind its last answer, it answered more"
        };
        run("right").fails(1, &["error[hook-answer]", more, "nothing is kept of what was built"]);
        assert!(files_of(&place.current("right", "hooked")) == before);
        place.write("mended", "");
        if !cache.is_empty() {
            run("right").fails(1, &["error[cache-damaged]", "answered more than once", "prune"]);
            place.rowmill(&["cache", "verify", "features"]).fails(4, &["answered more than once"]);
            let section =
                CacheReader::local(place.path("features")).stat().unwrap().remove(0).section;
            place.done(&["cache", "prune", "features", "--signature", &section, "--yes"]);
        }
        assert_eq!(run("right").code, 0);
        let shards = |files: &BTreeMap<PathBuf, Vec<u8>>| {
            let is_shard = |path: &&PathBuf| path.starts_with("shards");
            files.keys().filter(is_shard).cloned().collect::<Vec<_>>()
        };
        let found = files_of(&place.current("right", "hooked"));
        for (path, bytes) in &want {
            assert!(found.get(path) == Some(bytes), "{}", path.display());
        }
        let kept: BTreeSet<PathBuf> = shards(&before).into_iter().chain(shards(&want)).collect();
        assert_eq!(shards(&found), kept.into_iter().collect::<Vec<_>>());
    };
    std::thread::scope(|scope| {
        for cache in ["", "cache = \"features\"\nrows_independent = true"] {
            scope.spawn(move || case(cache, false));
        }
        scope.spawn(move || case("", true));
    });
}

#[test]
fn an_answer_that_is_too_large_says_what_to_do() {
    if !can_run() {
        return;
    }
    let place = place("", "");
    let text = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", text.replace("answer_bytes = \"1MiB\"", "answer_bytes = 100"));
    let want = ["error[hook-answer]", " bytes, and may have 100", "hint: raise `answer_bytes`"];
    place.rowmill(&["run", "p.toml"]).fails(1, &want);
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
