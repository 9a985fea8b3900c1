//! Hooks with a feature cache: nothing is computed twice, and no byte of a dataset tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rowmill::cache::{CacheReader, FeatureCache};
use rowmill::storage::Local;
use serde_json::json;

use crate::command::{Place, files_of};
use crate::hook::{N_ROWS, can_run, definition, place, rejects, rows, wait_for_none_in};
use crate::process::Run;

/// Keeps answers of rows alone.
const BY_ROW: &str = "cache = \"features\"\nrows_independent = true";
/// Keeps answers of batches.
const BY_BATCH: &str = "cache = \"features\"";

/// A folder whose hook answers to each row alone, and says what it is asked.
fn logged(params: &str, more: &str) -> Place {
    place(&with_log(params), more)
}

fn with_log(params: &str) -> String {
    let params = if params.is_empty() { String::new() } else { format!(", {params}") };
    format!("log = true, alone = true{params}")
}

/// The batches that the hook was asked about since the last call.
fn calls(place: &Place) -> Vec<String> {
    let path = place.path("calls.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(path, "").unwrap();
    let mut calls: Vec<String> = text.lines().map(str::to_owned).collect();
    calls.sort();
    calls
}

/// The rows among them, each once.
fn asked(place: &Place) -> Vec<u64> {
    let calls = calls(place);
    let numbers = calls.iter().flat_map(|call| call.split(',')).map(|n| n.parse().unwrap());
    numbers.collect::<BTreeSet<u64>>().into_iter().collect()
}

fn files(place: &Place, out: &str) -> BTreeMap<String, Vec<u8>> {
    files_of(&place.current(out, "hooked"))
        .into_iter()
        .map(|(k, v)| (k.display().to_string(), v))
        .collect()
}

/// What the report says of the feature cache of a stage: rows, and known ones.
fn known(report: &serde_json::Value, stage: &str) -> (u64, u64) {
    let stages = report["stages"].as_array().unwrap();
    let cache = &stages.iter().find(|it| it["name"] == stage).unwrap()["cache"];
    (cache["rows"].as_u64().unwrap(), cache["known"].as_u64().unwrap())
}

/// Rows in the feature cache.
fn kept(place: &Place) -> u64 {
    let stats = CacheReader::local(place.path("features")).stat().unwrap();
    stats.iter().map(|stat| stat.rows).sum()
}

fn append(place: &Place, input: &str, lines: &str) {
    let text = std::fs::read_to_string(place.path(input)).unwrap();
    place.write(input, text + lines);
}

#[test]
fn what_was_answered_once_is_not_asked_again_and_no_byte_tells() {
    if !can_run() {
        return;
    }
    let plain = logged("", "");
    plain.done(&["run", "p.toml"]);
    let want = rows(&plain);
    for (name, more) in [("rows", BY_ROW), ("batches", BY_BATCH)] {
        let place = logged("", more);
        let report = place.json(&["run", "p.toml", "--out", "cold", "--jobs", "1"]);
        assert_eq!(known(&report, "features"), (N_ROWS, 0), "{name}");
        assert_eq!(asked(&place).len() as u64, N_ROWS, "{name}");
        assert_eq!(kept(&place), N_ROWS, "{name}");
        let warm = place.json(&["run", "p.toml", "--out", "warm", "--set", "run.batch_rows=3"]);
        assert_eq!(known(&warm, "features"), (N_ROWS, N_ROWS), "{name}");
        let stage = warm["stages"].as_array().unwrap();
        let stage = stage.iter().find(|stage| stage["name"] == "features").unwrap();
        assert_eq!(stage["cache"]["hit_rate"], 1.0);
        assert_eq!(asked(&place), [0_u64; 0], "{name}");
        let cold = files(&place, "cold");
        assert!(files(&place, "warm") == cold, "{name}");
        // A cache that knows a part.
        std::fs::remove_dir_all(place.path("features")).unwrap();
        place.done(&["run", "p.toml", "--out", "part", "--limit-rows", "8"]);
        assert_eq!(asked(&place), (0..8).collect::<Vec<_>>(), "{name}");
        let half = place.json(&["run", "p.toml", "--out", "half"]);
        assert_eq!(known(&half, "features"), (N_ROWS, 8), "{name}");
        assert_eq!(asked(&place), (8..N_ROWS).collect::<Vec<_>>(), "{name}");
        assert!(files(&place, "half") == cold, "{name}");
        // Without a cache.
        let text = std::fs::read_to_string(place.path("p.toml")).unwrap();
        place.write("p.toml", text.replace("cache = \"features\"", ""));
        place.done(&["run", "p.toml", "--out", "none"]);
        assert!(files(&place, "none") == cold, "{name}");
        assert_eq!(rows_in(&place, "none"), want, "{name}");
        place.done(&["cache", "verify", "features"]);
        wait_for_none_in(&place.path("."));
    }
}

fn rows_in(place: &Place, out: &str) -> Vec<serde_json::Value> {
    let ran = place.done(&["cat", place.current(out, "hooked").to_str().unwrap()]);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn new_inputs_are_all_that_is_asked_about() {
    if !can_run() {
        return;
    }
    for (more, want) in [(BY_ROW, vec![100, 101, 102]), (BY_BATCH, vec![17, 18, 100, 101, 102])] {
        let place = logged("", more);
        place.done(&["run", "p.toml"]);
        assert_eq!(asked(&place).len() as u64, N_ROWS);
        append(
            &place,
            "in/b.jsonl",
            "{\"n\": 100, \"text\": \"\"}\n{\"n\": 101, \"text\": \"\"}\n{\"n\": 102, \"text\": \"\"}\n",
        );
        let report = place.json(&["run", "p.toml"]);
        assert_eq!(asked(&place), want, "{more}");
        // Only the partition of that input is built again.
        assert_eq!(known(&report, "features"), (9, 9 - want.len() as u64));
        assert_eq!(rows(&place).len() as u64, N_ROWS + 3);
    }
}

#[test]
fn another_pipeline_and_another_hook_ask_the_first_about_nothing() {
    if !can_run() {
        return;
    }
    let place = logged("", BY_ROW);
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place).len() as u64, N_ROWS);
    // The same hook in a definition of another name, with other batches, types of columns beside it
    // and rows before it.
    let text = definition(&with_log(""), BY_ROW);
    let other = text
        .replace("name = \"hooked\"", "name = \"other\"")
        .replace("batch_rows = 4", "batch_rows = 7")
        .replace("[transforms.features]", "[transforms.elsewhere]")
        .replace("[transforms.features.output]", "[transforms.elsewhere.output]");
    place.write("other.toml", other);
    let report = place.json(&["run", "other.toml"]);
    assert_eq!(known(&report, "elsewhere"), (N_ROWS, N_ROWS));
    assert_eq!(asked(&place), [0_u64; 0]);
    // Another hook behind it, which shares its cache.
    let more = r#"[transforms.more]
type = "command"
command = ["python3", "more.py"]
id = "more-v1"
input = ["double"]
cache = "./features"
rows_independent = true
output.again = { dtype = "float64", shape = [2, 2] }
output.note = { dtype = "json", nullable = true }

[dataset]"#;
    place.write(
        "more.py",
        r#"
import sys
import pyarrow as pa
inner = pa.list_(pa.field("item", pa.float64(), nullable=False), 2)
schema = pa.schema([("again", pa.list_(pa.field("item", inner), 2)), ("note", pa.string())])
writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in pa.ipc.open_stream(sys.stdin.buffer):
    numbers = batch.column("double").to_pylist()
    with open("more.txt", "a") as log:
        log.write(f"{numbers}\n")
    notes = [None if n % 3 == 0 else '{"b": 1.0,  "a": %d}' % n for n in numbers]
    answer = pa.record_batch([pa.array([[[n / 4, 0], [-0.0, n]] for n in numbers], schema[0].type), pa.array(notes)], schema=schema)
    writer.write_batch(answer)
    sys.stdout.buffer.flush()
"#,
    );
    place.write("p.toml", text.replace("[dataset]", more));
    let report = place.json(&["run", "p.toml", "--out", "cold"]);
    assert_eq!(asked(&place), [0_u64; 0]);
    assert_eq!(known(&report, "features"), (N_ROWS, N_ROWS));
    assert_eq!(known(&report, "more"), (N_ROWS, 0));
    let report = place.json(&["run", "p.toml", "--out", "warm"]);
    assert_eq!(known(&report, "more"), (N_ROWS, N_ROWS));
    assert!(files(&place, "warm") == files(&place, "cold"));
    let last = rows_in(&place, "warm").pop().unwrap();
    assert_eq!(last["again"], json!([[9.5, 0.0], [-0.0, 38.0]]));
    let stats = CacheReader::local(place.path("features")).stat().unwrap();
    assert_eq!(stats.len(), 2);
}

#[test]
fn killed_at_any_commit_no_row_is_asked_about_that_the_cache_holds() {
    if !can_run() {
        return;
    }
    for more in [BY_ROW, BY_BATCH] {
        let undisturbed = logged("", more);
        undisturbed.done(&["run", "p.toml"]);
        let want = files(&undisturbed, "data");
        let place = logged("", &format!("{more}\nworkers = 2"));
        // Its settings for runs are no part of the identity: the bytes are the same.
        let (mut n_kills, mut before) = (0, 0);
        for (jobs, batch_rows) in [(1, 1), (2, 3), (1, 1000), (2, 1)].iter().cycle() {
            let run = Run::new(&place.path("p.toml"), &place.path("data"))
                .set("run.commit_bytes=1")
                .set(format!("run.batch_rows={batch_rows}"))
                .set(format!("run.jobs={jobs}"));
            let mut running = run.start();
            let has_ended = running.line().is_none();
            let ended = if has_ended { running.wait() } else { running.kill() };
            wait_for_none_in(&place.path("."));
            let asked = asked(&place).len() as u64;
            assert!(asked <= N_ROWS - before, "{asked} rows, and {before} were known");
            before = kept(&place);
            if ended.code() == Some(0) {
                break;
            }
            assert!(ended.was_killed(), "{ended:#?}");
            n_kills += 1;
            assert!(n_kills < 100, "it comes no further");
        }
        assert!(n_kills > 1, "too quick to be killed");
        assert!(files(&place, "data") == want);
        place.done(&["cache", "verify", "features"]);
    }
}

#[test]
fn a_run_that_fails_keeps_what_was_answered() {
    if !can_run() {
        return;
    }
    // The row that ends the run is the last but one.
    let place = logged("what = \"exit1\", bad = 18", BY_ROW);
    place.rowmill(&["run", "p.toml", "--jobs", "1"]).fails(3, &["error[hook_died]"]);
    calls(&place);
    let before = kept(&place);
    assert!(before >= 12, "{before}");
    append(&place, "in/c.jsonl", "{\"n\": 50, \"text\": \"\"}\n");
    place.rowmill(&["run", "p.toml", "--jobs", "1"]).fails(3, &["error[hook_died]"]);
    assert!(asked(&place).iter().all(|n| *n >= 13), "those of the first input are known");
}

#[test]
fn guilty_rows_are_asked_about_again_and_the_others_are_not() {
    if !can_run() {
        return;
    }
    for (more, want) in [
        (BY_ROW, vec!["6", "6"]),
        (BY_BATCH, vec!["4", "4,5", "4,5,6,7", "4,5,6,7", "6", "6,7", "7"]),
    ] {
        let place =
            logged("what = \"exit1\", bad = 6", &format!("on_error = \"quarantine\"\n{more}"));
        place.done(&["run", "p.toml", "--out", "cold"]);
        let first = calls(&place);
        assert!(first.contains(&"4,5,7".to_owned()), "{more}: {first:?}");
        place.done(&["run", "p.toml", "--out", "warm"]);
        assert_eq!(calls(&place), want, "{more}");
        assert!(files(&place, "warm") == files(&place, "cold"), "{more}");
    }
}

#[test]
fn equal_rows_of_a_batch_are_asked_about_once() {
    if !can_run() {
        return;
    }
    let params = "what = \"exit1\", bad = 6";
    let on_error = "on_error = \"quarantine\"\n";
    let lines = [3, 3, 7, 3, 6, 6, 7, 1, 6].map(|n| format!("{{\"n\": {n}, \"text\": \"\"}}\n"));
    let made = |more: &str| {
        let place = logged(params, &format!("{on_error}{more}"));
        place.write("in/a.jsonl", lines.concat());
        place.done(&["run", "p.toml", "--jobs", "1"]);
        place
    };
    let (with, without) = (made(BY_ROW), made("rows_independent = true"));
    let calls = calls(&with);
    assert!(calls.contains(&"3,7".to_owned()) && calls.contains(&"6,1".to_owned()), "{calls:?}");
    assert!(calls.iter().all(|call| !call.contains("3,3") && !call.contains("6,6")), "{calls:?}");
    assert!(files(&with, "data") == files(&without, "data"));
    assert_eq!(rejects(&with), [4, 5, 8].map(|row| ("hook_died".to_owned(), row)));
    assert_eq!(rows(&with).len() as u64, N_ROWS - 13 + 6);
}

#[test]
fn whether_a_row_is_bad_is_judged_in_each_run() {
    if !can_run() {
        return;
    }
    for (what, from, to, want, again) in [
        ("nan", "nan = \"allow\"", "nan = \"refuse\"", vec![("hook_nan".to_owned(), 5)], vec![]),
        ("null", "# nullable", "", vec![("hook_null".to_owned(), 5)], vec![]),
        ("null", "", "# nullable", vec![], vec![5]),
    ] {
        let more = format!("on_error = \"quarantine\"\n{BY_ROW}\n");
        let params = format!("what = \"{what}\", bad = 5");
        let place = logged(&params, &format!("{more}{from}"));
        place.done(&["run", "p.toml"]);
        assert_eq!(asked(&place).len() as u64, N_ROWS);
        place.write("p.toml", definition(&with_log(&params), &format!("{more}{to}")));
        place.done(&["run", "p.toml"]);
        assert_eq!(asked(&place), again, "{what}: {from} -> {to}");
        assert_eq!(rejects(&place), want, "{what}: {from} -> {to}");
    }
}

#[test]
fn an_id_stands_for_what_the_hook_is_sent() {
    if !can_run() {
        return;
    }
    let more = format!("{BY_ROW}\ncache_key = \"n\"");
    let place = logged("", &more);
    let text =
        definition(&with_log(""), &more).replace("input = [\"n\"]", "input = [\"n\", \"text\"]");
    place.write("p.toml", &text);
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place).len() as u64, N_ROWS);
    for input in ["a", "b", "c"] {
        let path = format!("in/{input}.jsonl");
        let lines = std::fs::read_to_string(place.path(&path)).unwrap();
        place.write(&path, lines.replace("\"text\": \"", "\"text\": \"changed "));
    }
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place), [0_u64; 0]);
    assert_eq!(rows(&place)[1]["text"], "changed x");
    // Without an id other texts are other rows.
    place.write("p.toml", text.replace("cache_key = \"n\"", ""));
    place.done(&["run", "p.toml"]);
    assert_eq!(asked(&place).len() as u64, N_ROWS);
}

#[test]
fn what_decides_answers_decides_what_is_known() {
    let place = place("", BY_ROW);
    let section = |text: &str| {
        place.write("p.toml", text);
        let plan = place.json(&["plan", "p.toml"]);
        let cache = &plan["caches"][0];
        assert_eq!((&cache["stage"], &cache["rows"]), (&json!("features"), &json!(0)));
        (cache["section"].as_str().unwrap().to_owned(), plan["cache_key"].clone())
    };
    let plain = definition("", BY_ROW);
    let (first, first_key) = section(&plain);
    for (name, from, to, same_dataset) in [
        ("where it is", "\"features\"", "\"elsewhere\"", true),
        ("how it runs", "batch_rows = 4", "batch_rows = 4\nworkers = 3\nthreads = 2", true),
        ("batches", "batch_rows = 4", "batch_rows = 5", false),
        ("nan", "batch_rows = 4", "batch_rows = 4\nnan = \"refuse\"", false),
        ("types", "double = { dtype = \"int64\"", "double = { dtype = \"float64\"", false),
        ("the program", "[\"python3\"", "[\"python3.11\"", true),
        ("the name", "[dataset]\n", "[dataset]\nshard_bytes = \"1MiB\"\n", false),
    ] {
        let (found, key) = section(&plain.replace(from, to));
        assert_eq!(found, first, "{name}");
        assert_eq!(key == first_key, same_dataset, "{name}");
    }
    for (name, from, to) in [
        ("the id", "test-v1", "test-v2"),
        ("an argument", "\"hook.py\"]\nid", "\"hook.py\", \"x\"]\nid"),
        ("params", "batch_rows = 4", "batch_rows = 4\nparams = { a = 1 }"),
        ("input", "input = [\"n\"]", "input = [\"n\", \"text\"]"),
        ("output", "double = {", "twice = {"),
        ("rows", "rows_independent = true", "rows_independent = false"),
        ("the key", "rows_independent = true", "rows_independent = true\ncache_key = \"n\""),
    ] {
        let (found, key) = section(&plain.replace(from, to));
        assert_ne!(found, first, "{name}");
        assert_ne!(key, first_key, "{name}");
    }
    place.write("hook.py", "# another\n");
    assert_ne!(section(&plain).0, first, "a file");
    assert!(!place.path("features").exists(), "planning makes nothing");
}

#[test]
fn answers_of_another_type_are_refused_before_anything_is_asked() {
    if !can_run() {
        return;
    }
    let place = logged("", BY_ROW);
    place.done(&["run", "p.toml"]);
    calls(&place);
    let text = definition(&with_log(""), BY_ROW);
    place.write(
        "p.toml",
        text.replace("double = { dtype = \"int64\"", "double = { dtype = \"float64\""),
    );
    for command in ["plan", "check", "run"] {
        place.rowmill(&[command, "p.toml"]).fails(
            2,
            &[
                "error[cache-misfit]: field `double`: the feature cache holds int64, found float64",
                "hint: ",
            ],
        );
    }
    assert_eq!(asked(&place), [0_u64; 0]);
    // Nothing is put where no folder can be.
    place.write("file", "");
    place.write("p.toml", text.replace("\"features\"", "\"file/features\""));
    for command in ["plan", "check", "run"] {
        let ran = place.rowmill(&[command, "p.toml", "--out", "other"]);
        ran.fails(1, &["error[", "file"]);
    }
    assert_eq!(asked(&place), [0_u64; 0]);
    for (from, to, want) in [
        ("cache = \"features\"", "cache = \"\"", "it is empty"),
        ("rows_independent", "cache_key = \"m\"\nrows_independent", "there is no column `m`"),
    ] {
        place.write("p.toml", text.replace(from, to));
        let ran = place.rowmill(&["plan", "p.toml"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains(want), "{ran:?}");
    }
}

#[test]
fn a_cache_that_is_written_to_refuses_a_second_run_and_can_be_read() {
    if !can_run() {
        return;
    }
    let place = logged("", BY_ROW);
    place.done(&["run", "p.toml"]);
    let holder = FeatureCache::open(Arc::new(Local), place.path("features")).unwrap();
    let pid = format!("is being written to by pid {} on ", std::process::id());
    place.rowmill(&["run", "p.toml", "--out", "other"]).fails(1, &["error[cache-busy]", &pid]);
    assert_eq!(place.json(&["plan", "p.toml"])["caches"][0]["rows"], N_ROWS);
    let text = place.done(&["plan", "p.toml"]).stdout;
    assert!(text.contains(&format!("known      {N_ROWS} rows of `features` in ")), "{text}");
    // A dataset that is complete needs no cache.
    place.done(&["run", "p.toml"]);
    place.done(&["check", "p.toml"]);
    drop(holder);
    place.done(&["run", "p.toml", "--out", "other"]);
}

#[test]
fn rows_that_are_never_answered_are_rejects_also_where_all_others_are_known() {
    if !can_run() {
        return;
    }
    let place = logged(
        "bads = [[4, \"exit1\"], [5, \"exit1\"]]",
        &format!("on_error = \"quarantine\"\n{BY_ROW}"),
    );
    place.done(&["run", "p.toml", "--out", "cold"]);
    place.done(&["run", "p.toml", "--out", "warm"]);
    assert!(files(&place, "warm") == files(&place, "cold"));
    let again = place.json(&["run", "p.toml", "--out", "cold", "--retry-rejects"]);
    assert_eq!((&again["rejected"], &again["asked_again"]), (&json!(2), &json!(2)));
    place.done(&["run", "p.toml", "--out", "cold"]);
}

#[test]
fn a_flipped_bit_of_a_known_answer_reaches_no_dataset() {
    if !can_run() {
        return;
    }
    let place = logged("", BY_ROW);
    place.done(&["run", "p.toml", "--out", "cold"]);
    let section = std::fs::read_dir(place.path("features")).unwrap();
    let mut section = section.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let segments = section.next().unwrap().join("segments");
    for segment in std::fs::read_dir(segments).unwrap() {
        let path = segment.unwrap().path().join("double.bin");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[6] ^= 0x40;
        std::fs::write(&path, bytes).unwrap();
    }
    let ran = place.rowmill(&["run", "p.toml", "--out", "warm"]);
    ran.fails(1, &["error[cache-damaged]", "double.bin", "rowmill cache prune"]);
    place.done(&["cache", "prune", "features", "--keep", "0", "--yes"]);
    place.done(&["run", "p.toml", "--out", "warm"]);
    assert!(files(&place, "warm") == files(&place, "cold"));
}

#[test]
fn a_damaged_cache_is_named_and_its_index_made_again() {
    if !can_run() {
        return;
    }
    let place = logged("", BY_ROW);
    place.done(&["run", "p.toml", "--out", "a"]);
    let want = files(&place, "a");
    calls(&place);
    let stat = CacheReader::local(place.path("features")).stat().unwrap().remove(0);
    let section = place.path("features").join(&stat.section);
    std::fs::remove_dir_all(section.join("index")).unwrap();
    std::fs::create_dir(section.join("index")).unwrap();
    place.done(&["run", "p.toml", "--out", "b"]);
    assert_eq!(asked(&place), [0_u64; 0]);
    assert!(files(&place, "b") == want);
    place.done(&["cache", "verify", "features"]);
    for file in ["segments/1/schema.json", "manifest.jsonl"] {
        let path = section.join(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, [b"x", &bytes[1..]].concat()).unwrap();
        let ran = place.rowmill(&["run", "p.toml", "--out", "c"]);
        ran.fails(1, &["error[cache-damaged]", file, "rowmill cache prune"]);
        std::fs::write(&path, bytes).unwrap();
    }
    assert_eq!(asked(&place), [0_u64; 0]);
    place.done(&["run", "p.toml", "--out", "c"]);
    assert!(files(&place, "c") == want);
}
