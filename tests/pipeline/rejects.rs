//! Bad rows under quarantine: counted, kept, the same whatever happens, and refused where they are
//! too many.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::command::{Place, files_of};

/// Files of which some are no text, some have a number that does not fit, and some lie in a folder
/// that is no category.
const DEFINITION: &str = r#"version = 1
name = "d"
[sources.s]
type = "files"
root = "in"
path = "**/*.txt"
content = "text"
pattern = '(?P<n>\d+)\.txt'
on_error = "quarantine"
[transforms.numbers]
type = "cast"
types = { n = "uint8" }
on_error = "quarantine"
max_rejects = "50%"
[dataset]
partition_bytes = 60
shard_rows = 2
max_row_bytes = "64KiB"
on_error = "quarantine"
[dataset.fields]
parent = { categorical = ["a", "b"] }
"#;

/// Thirty files: every seventh no text, every ninth with a large number, a fifth in folder `c`.
fn place() -> Place {
    let place = Place::new();
    place.write("p.toml", DEFINITION);
    for i in 0..30 {
        let folder = ["a", "b", "a", "c", "b"][i % 5];
        let number = if i % 9 == 4 { 300 + i } else { i };
        let text: &[u8] = if i % 7 == 2 { b"\xff" } else { b"some text" };
        place.write(&format!("in/{folder}/{number:03}.txt"), text);
    }
    place
}

/// Stage, code and number of each kind of rejects.
fn kinds(report: &Value) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let kinds = report["rejects"].as_array().unwrap().iter();
    let mut kinds: Vec<_> = kinds
        .map(|kind| (text(&kind["stage"]), text(&kind["code"]), kind["rows"].as_u64().unwrap()))
        .collect();
    kinds.sort();
    kinds
}

#[test]
fn rejects_are_counted_by_stage_and_kept() {
    let place = place();
    let report = place.json(&["run", "p.toml"]);
    let kind = |stage: &str, code: &str, rows| (stage.to_owned(), code.to_owned(), rows);
    let want = vec![
        kind("dataset", "category", 4),
        kind("numbers", "value_misfit", 3),
        kind("s", "not_utf8", 4),
    ];
    assert_eq!(kinds(&report), want, "{report:#}");
    assert_eq!((&report["rejected"], &report["rows"]), (&json!(11), &json!(19)));
    assert_eq!(kinds(&place.json(&["inspect", "p.toml"])), want);
    let shown = place.done(&["inspect", "p.toml"]).stdout;
    let line = "3 × value_misfit in `numbers`, first `";
    assert!(shown.contains(line), "{shown}");
    assert!(place.done(&["run", "p.toml"]).stdout.contains(line));
    place.done(&["verify", "p.toml"]);
}

#[test]
fn builds_with_rejects_killed_after_any_event_are_ended_with_the_same_bytes() {
    let place = place();
    place.done(&["run", "p.toml", "--out", "whole", "--jobs", "1"]);
    let want = files_of(&place.path("whole"));
    for n_lines in (1..).step_by(3) {
        let out = format!("out-{n_lines}");
        let mut command = place.command(&["run", "p.toml", "--jobs", "2", "--progress", "json"]);
        command.args(["--out", &out, "--set", "run.batch_rows=1", "--set", "run.commit_bytes=1"]);
        let mut run = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(run.stderr.take().unwrap()).lines();
        let n_seen = lines.take(n_lines).map_while(Result::ok).count();
        run.kill().unwrap();
        run.wait().unwrap();
        place.done(&["run", "p.toml", "--out", &out, "--set", "run.batch_rows=3"]);
        assert!(files_of(&place.path(&out)) == want, "killed after {n_lines} events");
        if n_seen < n_lines {
            assert!(n_lines > 10, "only {n_seen} events");
            return;
        }
    }
}

#[test]
fn too_many_rejects_leave_no_dataset_and_what_was_built_stays() {
    let place = place();
    let with = |setting: &str| place.rowmill(&["run", "p.toml", "--jobs", "1", "--set", setting]);
    let over = with("sources.s.max_rejects=1");
    over.fails(
        3,
        &[
            "stage `s` rejected 2 of ",
            "and its `max_rejects` is 1: 2 × not_utf8 in `s`, first `a/0",
            "not UTF-8 from byte 0 on",
            "rejects.jsonl`; mend the inputs, or raise `max_rejects` in [sources.s]",
        ],
    );
    let found = files_of(&place.path("data"));
    let is_sentinel =
        |path: &std::path::Path| path.components().count() == 3 && path.ends_with("_COMPLETE");
    assert!(!found.keys().any(|path| is_sentinel(path)), "{:?}", found.keys());
    with("sources.s.max_rejects=1").fails(3, &["stage `s` rejected 2 of "]);
    with("transforms.numbers.max_rejects=\"1%\"").fails(3, &["stage `numbers`", "is 1%: "]);
    with("dataset.max_rejects=3").fails(3, &["stage `dataset` rejected 4 of ", "in [dataset]"]);
    let report = place.json(&["run", "p.toml"]);
    assert_eq!(report["reused_partitions"], report["partitions"], "{report:#}");
    assert_eq!(report["current"], true);
    // A smaller budget refuses a dataset that is there, and leaves it as it is.
    let before = files_of(&place.path("data"));
    with("sources.s.max_rejects=1").fails(3, &["stage `s` rejected 2 of "]);
    assert!(files_of(&place.path("data")) == before);
    // Where a bad row ends the run, the first one is named.
    with("sources.s.on_error=\"fail\"").fails(3, &["row 0: not UTF-8 from byte 0 on"]);
}

/// What a run would quarantine, a check does too.
#[test]
fn a_check_passes_where_a_run_quarantines() {
    let place = Place::new();
    let definition = |on_error: &str| {
        format!(
            "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"a.csv\"\n\
             on_error = \"quarantine\"\n[dataset]\nmax_row_bytes = 200\n{on_error}\
             [dataset.fields]\nk = {{ categorical = [\"a\", \"b\"] }}\n"
        )
    };
    place.write("a.csv", "k,n\na,1\nc,2\nb\nb,4\n");
    place.write("p.toml", definition(""));
    place.rowmill(&["check", "p.toml"]).fails(3, &["error[category]: ", "`a.csv`, row 1"]);
    place.write("p.toml", definition("on_error = \"quarantine\"\n"));
    assert_eq!(place.json(&["check", "p.toml"])["sample_rows"], 2);
    let report = place.json(&["run", "p.toml"]);
    assert_eq!((&report["rows"], &report["rejected"]), (&json!(2), &json!(2)));
    let want = [("dataset", "category", 1), ("t", "field_count", 1)];
    let want = want.map(|(stage, code, n)| (stage.to_owned(), code.to_owned(), n));
    assert_eq!(kinds(&report), want);
}
