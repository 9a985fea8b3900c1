//! Columns that a definition leaves out: learned from the first answer, kept, and held against those
//! that follow.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::{Place, files_of, joined};
use crate::hook::{can_run, rejects, rows, wait_for_none_in};
use crate::process::Run;
use crate::python::{definition, n_starts, place};

/// Each row is a partition; `in` holds numbers. What is learned is believed by size and time, so that a
/// test need not wait until files are old enough.
const FILES: &str = r#"version = 1
name = "hooked"

[sources.a]
type = "jsonl"
root = "in"
path = "*.jsonl"
types = { n = "int64" }
on_error = "quarantine"
max_rejects = 1.0

TRANSFORMS

[dataset]
partition_bytes = 1
max_row_bytes = "64KiB"

[run]
fingerprint = "stat"
"#;

/// Names of files, and the numbers in them.
type Files = &'static [(&'static str, &'static [i64])];

/// A hook that says what it is asked.
const LOGGED: &str = r#"
[transforms.NAME]
type = "python"
entry = "hooks.entries:logged"
params = { of = "OF", by = 10, name = "NAME" }
input = ["OF"]
batch_rows = ROWS
"#;

fn logged(name: &str, of: &str, rows: usize) -> String {
    LOGGED.replace("NAME", name).replace("OF", of).replace("ROWS", &rows.to_string())
}

/// A folder with these numbers in files, and a definition with these transforms.
fn of_files(files: &[(&str, &[i64])], transforms: &str) -> Place {
    let place = Place::new();
    for (name, numbers) in files {
        add(&place, name, numbers);
    }
    place.write("hooks/entries.py", include_str!("entries.py"));
    place.write("p.toml", FILES.replace("TRANSFORMS", transforms));
    place
}

/// Has all files be one partition.
fn in_one(place: &Place) {
    let text = fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", text.replace("partition_bytes = 1", "partition_bytes = \"1MiB\""));
}

fn add(place: &Place, name: &str, numbers: &[i64]) {
    let lines = joined(numbers.iter().map(|n| format!("{{\"n\": {n}}}\n")));
    place.write(&format!("in/{name}.jsonl"), lines);
}

/// What a hook that logs was asked since the last call.
fn asked(place: &Place, name: &str) -> Vec<String> {
    let path = place.path(&format!("{name}.txt"));
    let text = fs::read_to_string(&path).unwrap_or_default();
    fs::remove_file(path).ok();
    text.lines().map(str::to_owned).collect()
}

fn sealed(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    files_of(&place.current("data", "hooked"))
}

/// The files of shards that hold rows, by what is in them.
fn values(dataset: &Path) -> Vec<(String, Vec<u8>)> {
    let sums = ["B3SUMS", "_COMPLETE", "blocks.bin", "fingerprint.json"];
    let mut found: Vec<_> = files_of(&dataset.join("shards"))
        .into_iter()
        .map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes))
        .filter(|(name, _)| !sums.contains(&name.as_str()))
        .collect();
    found.sort();
    found
}

fn facts(place: &Place) -> Value {
    let dataset = fs::read_dir(place.path("data/hooked")).unwrap();
    let mut work = dataset.map(|entry| entry.unwrap().path().join("work/plan.json"));
    let path = work.find(|path| path.is_file()).unwrap();
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn learned(place: &Place) -> Value {
    place.json(&["plan", "p.toml"])["learned"].clone()
}

#[test]
fn columns_are_learned_from_the_first_answer_and_kept() {
    if !can_run() {
        return;
    }
    let place = place("undeclared", "");
    let text = definition("undeclared", "") + "\n[run]\nfingerprint = \"stat\"\n";
    place.write("p.toml", text);
    let want = json!([{"transform": "features", "from": "a.jsonl", "columns": [
        {"name": "bag", "form": "int16[n]"},
        {"name": "of", "form": "json"},
        {"name": "pair", "form": "float32[2]"},
        {"name": "word", "form": "utf8, nullable"},
        {"name": "x", "form": "int64"},
    ]}]);
    assert_eq!(learned(&place), want);
    let checked = place.done(&["check", "p.toml"]).stdout;
    assert!(checked.contains("learned    features: bag int16[n]; of json; "), "{checked}");
    assert!(!place.path("data").exists(), "planning makes nothing");
    place.done(&["run", "p.toml"]);
    let row = rows(&place)[7].clone();
    for (name, want) in
        [("x", json!(7)), ("pair", json!([7.0, 7.0])), ("bag", json!([0])), ("word", json!("w7"))]
    {
        assert_eq!(row[name], want, "{name}");
    }
    // Whoever plans again asks nobody, as long as the first input and the hook are the same.
    let before = n_starts(&place);
    assert_eq!(learned(&place), want);
    assert_eq!(place.json(&["run", "p.toml"])["up_to_date"], true);
    assert_eq!(n_starts(&place), before);
    let entries = include_str!("entries.py")
        .replace("\"x\": n,\n        \"pair\"", "\"x\": n * 0.5,\n        \"pair\"");
    place.write("hooks/entries.py", entries);
    let plan = place.json(&["plan", "p.toml", "--why"]);
    assert_eq!(plan["learned"][0]["columns"][4]["form"], "float64");
    let differs = json!([{"setting": "features.x", "old": "int64", "new": "float64"}]);
    assert_eq!(plan["why"]["learned"], differs);
    let reasons = plan["why"]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|it| it["reason"] == "learned"), "{reasons:?}");
    let text = place.done(&["plan", "p.toml", "--why"]).stdout;
    assert!(text.contains("features.x: \"int64\" -> \"float64\""), "{text}");
    place.done(&["run", "p.toml"]);
    assert_eq!(rows(&place)[7]["x"], 3.5);
    wait_for_none_in(&place.path("."));
}

#[test]
fn what_was_learned_depends_on_no_setting_of_the_run() {
    if !can_run() {
        return;
    }
    let settings: [&[&str]; 3] = [
        &[],
        &["--jobs", "1", "--set", "run.batch_rows=1"],
        &["--set", "run.batch_bytes=\"1B\"", "--set", "transforms.features.workers=2"],
    ];
    let mut first = None;
    for args in settings {
        let place = place("undeclared", "");
        place.done(&[&["run", "p.toml"], args].concat());
        let first = first.get_or_insert_with(|| sealed(&place));
        assert!(sealed(&place) == *first, "{args:?}");
    }
}

#[test]
fn what_is_learned_is_what_would_be_declared_also_to_a_feature_cache() {
    if !can_run() {
        return;
    }
    let params = "log = true, alone = true";
    let more = "cache = \"features\"\nrows_independent = true";
    let place = crate::hook::place(params, more);
    let declared = crate::hook::definition(params, more);
    let output = declared.find("[transforms.features.output]").unwrap();
    let dataset = declared.find("[dataset]").unwrap();
    let learned = format!("{}{}", &declared[..output], &declared[dataset..]);
    place.done(&["run", "p.toml"]);
    let want = values(&place.current("data", "hooked"));
    let section = place.json(&["plan", "p.toml"])["caches"][0].clone();
    fs::remove_file(place.path("calls.txt")).unwrap();
    place.write("p.toml", &learned);
    place.done(&["run", "p.toml"]);
    // The first batch is asked about to learn from it, and all others are known.
    assert_eq!(fs::read_to_string(place.path("calls.txt")).unwrap(), "0,1,2,3\n");
    assert!(values(&place.current("data", "hooked")) == want);
    assert_eq!(place.json(&["plan", "p.toml"])["caches"][0], section);
    place.write("p.toml", learned.replace(more, ""));
    place.done(&["run", "p.toml"]);
    assert!(values(&place.current("data", "hooked")) == want);
}

#[test]
fn answers_that_differ_from_what_was_learned_say_both() {
    if !can_run() {
        return;
    }
    let quarantine = "on_error = \"quarantine\"";
    let unlearned = |why: &str| format!("its columns cannot be learned: {why}");
    for (entry, more, code, want) in [
        (
            "changes_named",
            "",
            1,
            "column `x` was learned from `a.jsonl` as int64, and it answered with int32".to_owned(),
        ),
        (
            "adds_column",
            "",
            1,
            "it answered with a column `y` that was not learned from `a.jsonl`".to_owned(),
        ),
        ("null_later", "", 3, "error[hook_null]".to_owned()),
        ("nothing_at_first", "", 1, unlearned("there is no value in `x` yet")),
        ("empty_lists_at_first", "", 1, unlearned("there is no value in `x` yet")),
        ("raises_at_first", "", 3, "error[hook_raised]".to_owned()),
        ("raises_at_first", quarantine, 1, unlearned("all of the first rows are bad")),
        ("prints", "", 1, "it returned Int64Array, which is no table".to_owned()),
        ("undeclared", "input = [\"m\"]", 2, "there is no column `m`".to_owned()),
        ("undeclared", "output = {}", 2, "the hook answers with no column".to_owned()),
    ] {
        let place = place(entry, more);
        let text = definition(entry, more).replace("batch_rows = 8", "batch_rows = 4");
        place.write("p.toml", text);
        place.rowmill(&["run", "p.toml"]).fails(code, &[&want]);
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn bad_rows_of_the_first_batch_are_left_out_of_it() {
    if !can_run() {
        return;
    }
    let place = place("raises_named", "on_error = \"quarantine\"");
    place.done(&["run", "p.toml"]);
    assert_eq!(rejects(&place), [("hook_raised".to_owned(), 1), ("hook_raised".to_owned(), 5)]);
    // Where they end the run, they are named as everywhere.
    place.write("p.toml", definition("raises_named", ""));
    place.rowmill(&["run", "p.toml"]).fails(3, &["error[hook_raised]", "`a.jsonl`, row 1: "]);
}

#[test]
fn rows_that_are_asked_about_again_have_the_columns_that_were_learned_without_them() {
    if !can_run() {
        return;
    }
    let bytes_with = |entries: &str, retried: bool| {
        let place = place("exits_named", "on_error = \"quarantine\"");
        let text = definition("exits_named", "on_error = \"quarantine\"");
        place.write("p.toml", text.replace("type = \"python\"", "type = \"python\"\nid = \"x\""));
        // What it reads itself, and the definition does not name, may be mended behind its back.
        place.write("hooks/entries.py", "exec(open('hooks/inner.txt').read())\n");
        place.write("hooks/inner.txt", entries);
        place.done(&["run", "p.toml"]);
        if retried {
            assert_eq!(rejects(&place), [("hook_died".to_owned(), 1)]);
            place.write(
                "hooks/inner.txt",
                include_str!("entries.py").replace("os._exit(3)", "pass"),
            );
            let report = place.json(&["run", "p.toml", "--retry-rejects"]);
            assert_eq!((&report["asked_again"], &report["rejected"]), (&json!(1), &json!(0)));
            place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
        }
        sealed(&place)
    };
    let entries = include_str!("entries.py");
    let mended = bytes_with(&entries.replace("os._exit(3)", "pass"), false);
    assert!(bytes_with(entries, true) == mended);
}

#[test]
fn a_hook_behind_another_learns_from_what_that_one_learned() {
    if !can_run() {
        return;
    }
    let transforms = logged("one", "n", 2) + &logged("two", "one", 3);
    let place = of_files(&[("a", &[1, 2, 3, 4, 5, 6, 7, 8]), ("b", &[9])], &transforms);
    let forms = learned(&place);
    assert_eq!(forms[1]["transform"], "two");
    assert_eq!(forms[1]["columns"][1], json!({"name": "two_at", "form": "int64"}));
    // No more is asked than the first batch of the second takes: of the first, its own and two more.
    assert_eq!(asked(&place, "one"), ["1,2", "1,2", "3,4"]);
    assert_eq!(asked(&place, "two"), ["10,20,30"]);
    place.done(&["run", "p.toml"]);
    let found: Vec<_> = rows(&place).iter().map(|row| row["two"].as_i64().unwrap()).collect();
    assert_eq!(found, [100, 200, 300, 400, 500, 600, 700, 800, 900]);
    assert_eq!(rows(&place)[1]["one_at"], Value::Null);
}

#[test]
fn hooks_that_make_any_number_of_rows_are_learned_from_those_that_they_make() {
    if !can_run() {
        return;
    }
    let copies = "[transforms.copies]\ntype = \"python\"\nentry = \"hooks.entries:copies\"\n\
                  cardinality = \"any\"\nbatch_rows = 2\n";
    let more = "[transforms.more]\ntype = \"python\"\nentry = \"hooks.entries:one_more\"\n\
                batch_rows = 4\n";
    let place = of_files(&[("a", &[1, 2, 3, 4]), ("b", &[5])], &(copies.to_owned() + more));
    let forms = learned(&place);
    let columns = json!([{"name": "copy", "form": "int64"}, {"name": "even", "form": "float32"}]);
    assert_eq!(forms[0]["columns"], columns);
    assert_eq!(forms[1]["columns"], json!([{"name": "y", "form": "int64"}]));
    place.done(&["check", "p.toml"]);
    place.done(&["run", "p.toml"]);
    let found: Vec<_> = rows(&place).iter().map(|row| row["y"].as_i64().unwrap()).collect();
    assert_eq!(found, [11, 12, 13, 31, 32, 33, 51, 52, 53]);
    // Of even numbers it makes no row.
    let place = of_files(&[("a", &[2, 4]), ("b", &[5])], copies);
    let want = "its columns cannot be learned: it makes no row of the first ones";
    place.rowmill(&["run", "p.toml"]).fails(1, &[want]);
}

#[test]
fn only_the_first_input_is_learned_from() {
    if !can_run() {
        return;
    }
    let place = of_files(&[("b", &[1, 3]), ("c", &[8])], &logged("one", "n", 2));
    place.write("in/a.jsonl", "{\"n\": \"no number\"}\n");
    let want = [
        "error[definition-columns]",
        "no row of the first input, `a.jsonl`, gets to it",
        "hint: declare them: output.x = { dtype = \"float32\" }",
    ];
    for command in ["check", "plan", "run"] {
        place.rowmill(&[command, "p.toml"]).fails(2, &want);
    }
    assert!(asked(&place, "one").is_empty());
    // A batch of the first partition may hold more rows than those of the first input.
    add(&place, "a", &[7]);
    in_one(&place);
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place, "one"), ["7", "7,1", "3,8"]);
    // Without any input there is nothing to learn from.
    let text = FILES.replace("TRANSFORMS", &logged("one", "n", 2));
    let empty = text.replace("max_rejects = 1.0", "allow_empty = true");
    place.write("p.toml", empty.replace("root = \"in\"", "root = \"hooks\""));
    place.rowmill(&["plan", "p.toml"]).fails(2, &["there is no input"]);
}

#[test]
fn a_build_that_grew_holds_the_facts_and_the_bytes_of_one_from_scratch() {
    if !can_run() {
        return;
    }
    // Whether rows may lack `one_at` is told by a 2 in the first input; elsewhere such a row is bad.
    let transforms = logged("one", "n", 4) + "on_error = \"quarantine\"\n";
    let built = |files: Files| {
        let place = of_files(files, &transforms);
        place.done(&["run", "p.toml"]);
        place
    };
    let (without, with): (Files, Files) = (
        &[("a", &[5, 6]), ("b", &[1, 2, 3]), ("c", &[4, 2])],
        &[("a", &[5, 2, 6]), ("b", &[1, 2, 3]), ("c", &[4, 2])],
    );
    let (scratch_without, scratch_with) = (built(without), built(with));
    for (name, before, after, differs, reused, rejected) in [
        ("behind the first", &without[..2], without, false, 5, 2),
        ("before the first", &without[1..], without, true, 0, 2),
        ("before the first, alike", &with[1..], with, false, 5, 0),
        ("the first has changed", without, with, true, 0, 0),
    ] {
        let place = built(before);
        asked(&place, "one");
        for (file, numbers) in after {
            add(&place, file, numbers);
        }
        let plan = place.json(&["plan", "p.toml", "--why"]);
        let found = plan["why"]["learned"].as_array().unwrap();
        let settings: Vec<_> = found.iter().map(|it| it["setting"].as_str().unwrap()).collect();
        assert_eq!(settings, if differs { vec!["one.one_at"] } else { vec![] }, "{name}");
        let report = place.json(&["run", "p.toml"]);
        assert_eq!(report["reused_partitions"], reused, "{name}");
        assert_eq!(report["rejected"], rejected, "{name}");
        place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
        let scratch = if after == without { &scratch_without } else { &scratch_with };
        assert!(sealed(&place) == sealed(scratch), "{name}");
        for member in ["given", "value"] {
            let of = |place| facts(place)["outputs"]["one"][member].clone();
            assert_eq!(of(&place), of(scratch), "{name}");
        }
    }
}

#[test]
fn a_run_killed_before_its_first_commit_asks_no_more_for_columns_that_it_learned() {
    if !can_run() {
        return;
    }
    let files: [(&str, &[i64]); 2] = [("a", &[1, 2, 3, 4, 5]), ("b", &[6])];
    let undisturbed = of_files(&files, &logged("one", "n", 2));
    in_one(&undisturbed);
    undisturbed.done(&["run", "p.toml"]);
    let place = of_files(&files, &logged("one", "n", 2));
    in_one(&place);
    // It hangs at the second batch, which nothing is committed before.
    place.write("hanging", "");
    let mut running = Run::new(&place.path("p.toml"), &place.path("data"))
        .set("run.commit_interval=\"1h\"")
        .arg("--log-level=debug")
        .start();
    running.line_with("run started");
    let ended = running.kill();
    assert!(ended.was_killed(), "{ended:#?}");
    wait_for_none_in(&place.path("."));
    assert_eq!(facts(&place)["outputs"]["one"]["value"][0]["name"], "one");
    fs::remove_file(place.path("hanging")).unwrap();
    asked(&place, "one");
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place, "one"), ["1,2", "3,4", "5,6"]);
    assert!(sealed(&place) == sealed(&undisturbed));
    // Killed even before, it learns again, and the same.
    let dataset = place.current("data", "hooked");
    fs::remove_dir_all(dataset.join("work")).unwrap();
    fs::remove_file(dataset.join("_COMPLETE")).unwrap();
    place.done(&["run", "p.toml"]);
    assert!(sealed(&place) == sealed(&undisturbed));
}

#[test]
fn a_run_that_is_stopped_does_not_wait_for_a_hook_that_it_learns_from() {
    if !can_run() {
        return;
    }
    let place = of_files(&[("a", &[4])], &logged("one", "n", 2));
    place.write("hanging", "");
    let mut running = Run::new(&place.path("p.toml"), &place.path("data")).start();
    while !place.path("one.txt").exists() {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    running.terminate();
    assert!(running.line().is_some_and(|line| line.contains("stop")));
    let ended = running.wait();
    assert_eq!(ended.code(), Some(75), "{ended:#?}");
    assert!(!ended.stderr.iter().any(|line| line.contains("no commit within")), "{ended:#?}");
    wait_for_none_in(&place.path("."));
    assert!(!place.path("data").exists());
}

#[test]
fn tests_of_a_definition_know_what_is_learned() {
    if !can_run() {
        return;
    }
    let of_three = "\n[[test]]\nname = \"times ten\"\ntypes.n = { dtype = \"int64\" }\n\
                given = [{ n = 3 }, { n = 2 }]\n\
                expect = [{ one = 30, one_at = 3 }, { one = 20 }]\n";
    let place = of_files(&[("a", &[1, 2])], &logged("one", "n", 2));
    let text = fs::read_to_string(place.path("p.toml")).unwrap() + of_three;
    place.write("p.toml", &text);
    let ran = place.done(&["test", "p.toml"]);
    assert!(ran.stdout.contains("times ten"), "{ran:?}");
    assert_eq!(asked(&place, "one"), ["1,2", "3,2"]);
    fs::remove_file(place.path("in/a.jsonl")).unwrap();
    place.rowmill(&["test", "p.toml"]).fails(2, &["matches no input"]);
}

#[test]
fn a_limit_of_rows_changes_nothing_that_is_learned() {
    if !can_run() {
        return;
    }
    let place = of_files(&[("a", &[1, 3, 2])], &logged("one", "n", 8));
    in_one(&place);
    place.done(&["run", "p.toml", "--limit-rows", "2"]);
    assert_eq!(facts(&place)["outputs"]["one"]["value"][1]["nullable"], true);
    assert_eq!(asked(&place, "one"), ["1,3,2", "1,3"]);
}
