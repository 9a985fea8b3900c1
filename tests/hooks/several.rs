//! Hooks that make any number of rows of one, behind and before others that do: rows, positions,
//! rejects and books are those of a model, however a run is cut up and wherever it is killed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use rowmill::books::StageBooks;
use rowmill::dataset::Dataset;
use rowmill::shard::Reject;

use crate::command::{Place, files_of, joined};
use crate::hook::{can_run, wait_for_none_in};
use crate::process::Run;

/// `n` becomes `n % 4` rows of `a`, and each of these `a % 3` rows of `b`; `seen` is a hook that
/// answers with one row to each.
const DEFINITION: &str = r#"version = 1
name = "several"

[sources.rows0]
type = "jsonl"
root = "in"
path = "0.jsonl"

[sources.rows1]
type = "jsonl"
root = "in"
path = "1.jsonl"

[sources.rows2]
type = "jsonl"
root = "in"
path = "2.jsonl"

[transforms.first]
type = "command"
inputs = ["rows0", "rows1", "rows2"]
command = ["python3", "several.py"]
id = "several-v1"
params = { column = "n", answer = "a", modulus = 4, FIRST }
input = ["n"]
cardinality = "any"
batch_rows = 3
answer_bytes = "1MiB"
on_error = "quarantine"
output.a = { dtype = "int64" }
output.text = { dtype = "utf8" }

[transforms.kept]
type = "select"
columns = ["n", "a"]

[transforms.second]
type = "command"
command = ["python3", "several.py"]
id = "several-v1"
params = { column = "a", answer = "b", modulus = 3, kind = "uint8", SECOND }
input = ["a"]
cardinality = "any"
batch_rows = 2
answer_bytes = "16MiB"
workers = 2
on_error = "quarantine"
output.b = { dtype = "int64" }
output.text = { dtype = "utf8" }

[transforms.seen]
type = "command"
command = ["python3", "hook.py"]
id = "seen-v1"
input = ["number"]
batch_rows = 4
answer_bytes = "16MiB"
on_error = "quarantine"
output.double = { dtype = "int64" }
output.pair = { dtype = "float32", shape = [2] }
output.words = { dtype = "int64", kind = "ragged" }
output.seen = { dtype = "utf8" }

[dataset]
max_row_bytes = "64KiB"
shard_rows = 4
KEY

[run]
commit_bytes = 1
commit_interval = "1h"
"#;

/// The numbers in each file.
const FILES: [std::ops::Range<u64>; 3] = [0..14, 14..15, 15..31];

fn place(first: &str, second: &str, key: &str) -> Place {
    let place = Place::new();
    for (i, numbers) in FILES.into_iter().enumerate() {
        let lines = joined(numbers.map(|n| format!("{{\"n\": {n}}}\n")));
        place.write(&format!("in/{i}.jsonl"), lines);
    }
    place.write("several.py", include_str!("several.py"));
    // It reads a column `n`, and here there is one already.
    let hook = include_str!("hook.py").replace("column(\"n\")", "column(\"b\")");
    place.write("hook.py", hook);
    let definition = DEFINITION.replace("FIRST", first).replace("SECOND", second);
    let definition = definition.replace("[\"number\"]", "[\"b\"]").replace("KEY", key);
    place.write("p.toml", definition);
    place
}

/// What must come of it: source row, number and values of each row; rejects; books.
#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    rows: Vec<(u64, u64, [i64; 3])>,
    rejects: Vec<(u64, Vec<u64>, String, String)>,
    books: BTreeMap<String, StageBooks>,
}

/// What goes wrong: the value of `n`, `a` or `b` that has no answer, and those of `a` and `b` that
/// are missing in one.
#[derive(Debug, Clone, Copy, Default)]
struct Wrong {
    first_dies_at: Option<u64>,
    first_lacks: Option<u64>,
    second_dies_at: Option<u64>,
    second_lacks: Option<u64>,
}

impl Model {
    fn of(numbers: std::ops::Range<u64>, wrong: Wrong, books: &mut [StageBooks; 5]) -> Self {
        let mut it = Self::default();
        for (source_row, n) in (0..).zip(numbers) {
            let is_single = n % 4 == 1;
            let path = |number: u64, is_single: bool| if is_single { vec![] } else { vec![number] };
            let mut reject = |path: Vec<u64>, stage: &str, code: &str| {
                it.rejects.push((source_row, path, stage.to_owned(), code.to_owned()));
            };
            books[0].entered += 1;
            books[1].entered += 1;
            if wrong.first_dies_at == Some(n) {
                books[1].rejected += 1;
                reject(vec![], "first", "hook_died");
                continue;
            }
            match n % 4 {
                0 => books[1].dropped += 1,
                more => books[1].created += more - 1,
            }
            let mut sub_row = 0;
            for i in 0..n % 4 {
                let a = n * 10 + i;
                if wrong.first_lacks == Some(a) {
                    books[1].rejected += 1;
                    reject(path(i, is_single), "first", "hook_null");
                    continue;
                }
                books[2].entered += 1;
                books[3].entered += 1;
                if wrong.second_dies_at == Some(a) {
                    books[3].rejected += 1;
                    reject(path(i, is_single), "second", "hook_died");
                    continue;
                }
                match a % 3 {
                    0 => books[3].dropped += 1,
                    more => books[3].created += more - 1,
                }
                for j in 0..a % 3 {
                    let b = a * 10 + j;
                    let number = sub_row;
                    sub_row += 1;
                    if wrong.second_lacks == Some(b) {
                        books[3].rejected += 1;
                        reject(path(number, is_single && a % 3 == 1), "second", "hook_null");
                        continue;
                    }
                    books[4].entered += 1;
                    books[4].out += 1;
                    let values = [n, a, b].map(|v| i64::try_from(v).unwrap());
                    it.rows.push((source_row, number, values));
                }
            }
        }
        books[0].out = books[0].entered;
        for stage in 1..4 {
            books[stage].out = books[stage + 1].entered;
        }
        it
    }
}

fn check(place: &Place, wrong: Wrong, name: &str) {
    check_at(&place.path("data/several"), FILES, wrong, name);
}

/// Compares a dataset with what must come of these numbers.
fn check_at(dataset: &Path, files: [Range<u64>; 3], wrong: Wrong, name: &str) {
    let dataset = Dataset::open(dataset).unwrap();
    let mut found: BTreeMap<usize, Model> = BTreeMap::new();
    for shard in dataset.shards() {
        let shard = shard.unwrap();
        let made_from = std::fs::read(shard.path().join("fingerprint.json")).unwrap();
        let made_from: serde_json::Value = serde_json::from_slice(&made_from).unwrap();
        let file = made_from["inputs"][0]["path"].as_str().unwrap();
        let of_file = found.entry(file.trim_end_matches(".jsonl").parse().unwrap()).or_default();
        let provenance = shard.provenance().unwrap();
        for row in 0..shard.n_rows() {
            let at = provenance.position(row).unwrap();
            let value = |field: &str| {
                let bytes = shard.field(field).unwrap().row(row).unwrap();
                i64::from_le_bytes(bytes.try_into().unwrap())
            };
            let values = ["n", "a", "b"].map(value);
            assert_eq!(value("double"), 2 * values[2], "{name}");
            of_file.rows.push((at.source_row, at.sub_row, values));
        }
        shard
            .rejects(|Reject { source_row, path, stage, code, .. }| {
                of_file.rejects.push((source_row, path, stage, code));
            })
            .unwrap();
    }
    let mut books = [StageBooks::default(); 5];
    let mut want_books = BTreeMap::new();
    for (i, numbers) in files.into_iter().enumerate() {
        books[0] = StageBooks::default();
        let want = Model::of(numbers, wrong, &mut books);
        assert_eq!(found.remove(&i).unwrap_or_default(), want, "{name}: file {i}");
        want_books.insert(format!("rows{i}"), books[0]);
    }
    let stages = ["first", "kept", "second", "seen"].map(str::to_owned);
    want_books.extend(stages.into_iter().zip(books.into_iter().skip(1)));
    let found: BTreeMap<_, _> =
        dataset.about().books.iter().map(|(k, v)| (k.clone(), *v)).collect();
    assert_eq!(found, want_books, "{name}");
}

#[test]
fn rows_positions_rejects_and_books_are_those_of_the_model() {
    if !can_run() {
        return;
    }
    let none = Wrong::default();
    let mut sealed = None;
    for (name, first, second, wrong, args) in [
        ("all goes well", "", "", none, &["--jobs", "1"][..]),
        ("row by row", "", "", none, &["--jobs", "3", "--set", "run.batch_rows=1"]),
        (
            "the first dies, the second lacks a value",
            "what = \"exit1\", bad = 6",
            "what = \"value\", bad = 1911",
            Wrong { first_dies_at: Some(6), second_lacks: Some(1911), ..none },
            &["--jobs", "3", "--set", "run.batch_rows=2"],
        ),
        (
            "the first lacks a value, the second dies",
            "what = \"value\", bad = 71",
            "what = \"exit1\", bad = 112",
            Wrong { first_lacks: Some(71), second_dies_at: Some(112), ..none },
            &["--jobs", "2", "--set", "run.batch_rows=3"],
        ),
    ] {
        let place = place(first, second, "");
        place.done(&[&["run", "p.toml", "--out", "data"], args].concat());
        check(&place, wrong, name);
        if first.is_empty() {
            let files = files_of(&place.current("data", "several"));
            let sealed = sealed.get_or_insert_with(|| files.clone());
            assert!(files == *sealed, "{name}");
        }
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn a_run_killed_at_any_commit_among_the_rows_of_one_ends_with_the_same_bytes() {
    if !can_run() {
        return;
    }
    let wrong = ("what = \"value\", bad = 110", "what = \"value\", bad = 1121");
    let run = |place: &Place| Run::new(&place.path("p.toml"), &place.path("data"));
    let undisturbed = place(wrong.0, wrong.1, "");
    run(&undisturbed).complete();
    let want = files_of(&undisturbed.current("data", "several"));

    let place = place(wrong.0, wrong.1, "");
    let mut n_kills = 0;
    for (jobs, batch_rows) in [(1, 1), (2, 3), (1, 1000), (1, 2)].iter().cycle() {
        let run =
            run(&place).set(format!("run.batch_rows={batch_rows}")).set(format!("run.jobs={jobs}"));
        let mut running = run.start();
        // Each run makes a few commits more than the one before.
        let has_ended = (0..2 + n_kills % 3).any(|_| running.line().is_none());
        let ended = if has_ended { running.wait() } else { running.kill() };
        wait_for_none_in(&place.path("."));
        if ended.code() == Some(0) {
            break;
        }
        assert!(ended.was_killed(), "{ended:#?}");
        n_kills += 1;
        assert!(n_kills < 100, "it comes no further");
    }
    println!("{n_kills} kills");
    assert!(n_kills > 3, "too quick to be killed");
    assert!(files_of(&place.current("data", "several")) == want);
    let missing = Wrong { first_lacks: Some(110), second_lacks: Some(1121), ..Wrong::default() };
    check(&place, missing, "killed");
    // Whatever was asked again was asked in the same batches.
    for calls in ["a.txt", "b.txt"] {
        let calls = [&undisturbed, &place].map(|place| {
            let text = std::fs::read_to_string(place.path(calls)).unwrap();
            text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(calls[0], calls[1]);
    }
}

#[test]
fn parents_that_are_none_end_the_run_and_say_what_is_wrong() {
    if !can_run() {
        return;
    }
    for (what, kind, want) in [
        ("missing", "int64", "its answer lacks the column `parent`"),
        ("float", "int64", "its column `parent` is float32, and has to be of integers"),
        ("null", "int32", "its column `parent` has nulls"),
        ("down", "uint16", "its column `parent` goes down, from 2 to 0"),
        ("beyond", "int8", "its column `parent` names row 3, and it was sent 3 rows"),
        ("negative", "int16", "its column `parent` names row -1, and it was sent 3 rows"),
        ("huge", "uint64", "its column `parent` names a row beyond all, and it was sent 3 rows"),
    ] {
        let place = place(&format!("what = \"{what}\", kind = \"{kind}\", bad = 11"), "", "");
        let ran = place.rowmill(&["run", "p.toml", "--jobs", "1"]);
        ran.fails(1, &["error[hook-answer]", want, "hint: for each row of the answer, in order"]);
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn rows_that_became_several_have_keys_and_answers_larger_than_batches_leave_in_pieces() {
    if !can_run() {
        return;
    }
    let place = place("", "step = 1000, text = \"TEXT\"", "key = \"b\"");
    // A row becomes 9 with texts of some 10 KiB; batches have 64 KiB at most.
    let definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    let definition =
        definition.replace("TEXT", &"x".repeat(7000)).replace("modulus = 3", "modulus = 97");
    let definition = definition.replace("shard_rows = 4", "shard_rows = 1000");
    place.write(
        "p.toml",
        definition.replace("max_row_bytes = \"64KiB\"", "max_row_bytes = \"128KiB\""),
    );
    let mut sealed = None;
    for settings in [&["--set", "run.batch_bytes=\"64KiB\""][..], &["--memory", "2GiB"]] {
        let args = [&["run", "p.toml", "--out", "data"], settings].concat();
        let report = place.json(&args);
        let n_rows =
            (0..31).flat_map(|n: u64| (0..n % 4).map(move |i| (n * 10 + i) % 97)).sum::<u64>();
        assert_eq!(report["rows"], n_rows);
        let path = place.current("data", "several");
        let found = place.done(&["inspect", path.to_str().unwrap(), "--key", "112005"]);
        assert!(found.stdout.contains("112005"), "{}", found.stdout);
        let files = files_of(&path);
        let sealed = sealed.get_or_insert_with(|| files.clone());
        assert!(files == *sealed, "{settings:?}");
        std::fs::remove_dir_all(place.path("data")).unwrap();
    }
    let twice = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", twice.replace("key = \"b\"", "key = \"a\""));
    place.rowmill(&["run", "p.toml"]).fails(3, &["error["]);
}

#[test]
fn a_limit_counts_rows_of_the_source() {
    if !can_run() {
        return;
    }
    // The second batch of the first hook ends at the limit, or goes beyond it, or the limit at a file.
    let wrong = Wrong { first_dies_at: Some(6), second_lacks: Some(1111), ..Wrong::default() };
    for (limit, files) in [
        ("6", [0..6, 14..14, 15..15]),
        ("11", [0..11, 14..14, 15..15]),
        ("14", [0..14, 14..14, 15..15]),
        ("20", [0..14, 14..15, 15..20]),
    ] {
        let place = place("what = \"exit1\", bad = 6", "what = \"value\", bad = 1111", "");
        let mut sealed = None;
        for settings in [&["--jobs", "3"][..], &["--set", "run.batch_rows=1"]] {
            let args = [&["run", "p.toml", "--out", "data", "--limit-rows", limit], settings];
            let report = place.json(&args.concat());
            let dataset = place.path(report["dataset"].as_str().unwrap());
            check_at(&dataset, files.clone(), wrong, limit);
            let made = files_of(&dataset);
            let sealed = sealed.get_or_insert_with(|| made.clone());
            assert!(made == *sealed, "{limit}: {settings:?}");
            std::fs::remove_dir_all(place.path("data")).unwrap();
        }
    }
}

const SPLIT: &str = r#"
import numpy as np

def split(batch, more=0):
    values = batch["n"].to_pylist()
    parents = [i for i, v in enumerate(values) for _ in range(v % 3)]
    return {"parent": parents, "x": np.array([values[i] * 10 for i in parents] + [0] * more, np.int64)}
"#;

#[test]
fn python_hooks_answer_with_parents_too() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    place.write("in.jsonl", joined((0..8).map(|n| format!("{{\"n\": {n}}}\n"))));
    place.write("split.py", SPLIT);
    let definition = |more: &str| {
        format!(
            "version = 1\nname = \"split\"\n\n[sources.rows]\ntype = \"jsonl\"\npath = \"in.jsonl\"\n\n\
             [transforms.split]\ntype = \"python\"\nentry = \"split:split\"\ncardinality = \"any\"\n\
             batch_rows = 2\nparams = {{ {more} }}\noutput.x = {{ dtype = \"int64\" }}\n\n\
             [dataset]\nmax_row_bytes = \"64KiB\"\n"
        )
    };
    // One batch has no row that any is made of.
    place.write("p.toml", definition("").replace("batch_rows = 2", "batch_rows = 1"));
    place.done(&["run", "p.toml"]);
    let path = place.current("data", "split");
    let ran = place.done(&["cat", path.to_str().unwrap()]);
    let rows = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    let found: Vec<_> =
        rows.map(|row: serde_json::Value| (row["n"].as_u64(), row["x"].as_u64())).collect();
    let want = (0..8).flat_map(|n| (0..n % 3).map(move |_| (Some(n), Some(10 * n))));
    assert_eq!(found, want.collect::<Vec<_>>());
    place.write("p.toml", definition("more = 1"));
    let want = "it answered with 2 rows in column `x`, and 1 before";
    place.rowmill(&["run", "p.toml"]).fails(1, &["error[hook-answer]", want]);
}
