//! What is refused before a row is built, and what a change of the hook leads to.

use crate::hook::{can_run, definition, place, wait_for_none_in};

#[test]
fn definitions_that_cannot_work_are_refused() {
    let place = place("", "");
    let plain = definition("", "");
    for (name, from, to, want) in [
        ("no program", "[\"python3\", \"hook.py\"]", "[]", "there is no program"),
        ("no id", "id = \"test-v1\"", "id = \"\"", "it is empty"),
        ("no workers", "batch_rows = 4", "workers = 0", "it is 0"),
        ("no time", "batch_rows = 4", "timeout = \"soon\"", "is no time; write \"30s\""),
        ("a column", "[\"n\"]", "[\"m\"]", "there is no column `m`"),
        ("a file elsewhere", "[\"hook.py\"]", "[\"../hook.py\"]", "leads out of it"),
        ("a file that is not there", "[\"hook.py\"]", "[\"other.py\"]", "other.py"),
        ("a column twice", "double = {", "n = {", "there is already a column `n`"),
        (
            "a text with a shape",
            "dtype = \"utf8\"",
            "dtype = \"utf8\", shape = [2]",
            "neither shape",
        ),
        ("bfloat16", "dtype = \"utf8\"", "dtype = \"bfloat16\"", "Arrow has no bfloat16"),
    ] {
        place.write("p.toml", plain.replace(from, to));
        let ran = place.rowmill(&["plan", "p.toml"]);
        assert_ne!(ran.code, 0, "{name}");
        assert!(ran.stderr.contains(want), "{name}: {}", ran.stderr);
    }
}

#[test]
fn check_starts_the_hook_and_sends_one_batch_of_each_source() {
    if !can_run() {
        return;
    }
    let place = place("what = \"log\"", "");
    place.done(&["check", "p.toml"]);
    assert_eq!(
        std::fs::read_to_string(place.path("calls.txt")).unwrap(),
        "0,1,2,3\n13,14,15,16\n19\n"
    );
    for (from, to, want) in [
        ("python3", "no-such-program", "cannot run `no-such-program`"),
        ("hook.py\"]\nid", "nothing.py\"]\nid", "nothing.py"),
    ] {
        place.write("p.toml", definition("", "").replace(from, to));
        let ran = place.rowmill(&["check", "p.toml"]);
        ran.fails(1, &["error[hook-failed]", want]);
    }
    assert!(!place.path("data").exists());
    wait_for_none_in(&place.path("."));
}

#[test]
fn what_the_hook_is_decides_the_dataset_and_where_and_how_it_runs_does_not() {
    let place = place("", "");
    let key = |text: &str| {
        place.write("p.toml", text);
        place.json(&["plan", "p.toml"])["cache_key"].as_str().unwrap().to_owned()
    };
    let slot = || place.json(&["plan", "p.toml"])["partitions"][0]["slot"].clone();
    let plain = definition("", "");
    let first = key(&plain);
    for (from, to) in [
        ("[\"python3\"", "[\"/usr/bin/env\""),
        ("batch_rows = 4", "batch_rows = 4\nworkers = 2\nthreads = 3\nenv = [\"X\"]"),
        ("batch_rows = 4", "batch_rows = 4\ntimeout = \"1s\"\nmemory = \"1GiB\""),
    ] {
        assert_eq!(key(&plain.replace(from, to)), first, "{to}");
    }
    for (from, to) in [
        ("test-v1", "test-v2"),
        ("\"hook.py\"]\nid", "\"hook.py\", \"x\"]\nid"),
        ("batch_rows = 4", "batch_rows = 5"),
        ("batch_rows = 4", "batch_rows = 4\nnan = \"refuse\""),
        ("batch_rows = 4", "batch_rows = 4\nparams = { a = 1 }"),
    ] {
        assert_ne!(key(&plain.replace(from, to)), first, "{to}");
    }
    key(&plain);
    let before = slot();
    place.write("hook.py", "# another\n");
    assert_ne!(slot(), before);
}
