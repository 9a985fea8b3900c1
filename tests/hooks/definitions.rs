//! What is refused before a row is built, and what a change of the hook leads to.

use crate::hook::{can_run, definition, place, wait_for_none_in};

#[test]
fn definitions_that_cannot_work_are_refused() {
    let place = place("", "");
    let plain = definition("", "");
    let long = format!("params = {{ text = \"{}\" }}\nbatch_rows = 4", "x".repeat(128 << 10));
    for (name, from, to, want) in [
        ("no program", "[\"python3\", \"hook.py\"]", "[]", "there is no program"),
        ("no id", "id = \"test-v1\"", "id = \"\"", "it is empty"),
        ("no workers", "batch_rows = 4", "workers = 0", "it is 0"),
        ("no time", "batch_rows = 4", "timeout = \"soon\"", "is no time; write \"30s\""),
        ("a column", "[\"n\"]", "[\"m\"]", "there is no column `m`"),
        ("a column", "[\"n\"]", "[\"m\"]", "hint: the columns are `n`, `text`"),
        (
            "a file elsewhere",
            "[\"hook.py\"]",
            "[\"../hook.py\"]",
            "`../hook.py` leads out of the folder of the definition",
        ),
        (
            "a file elsewhere",
            "[\"hook.py\"]",
            "[\"../hook.py\"]",
            "in `id`, or put a symbolic link",
        ),
        (
            "a file that is misspelt",
            "[\"hook.py\"]",
            "[\"hok.py\"]",
            "hint: did you mean `hook.py`?",
        ),
        (
            "another's word",
            "dtype = \"utf8\"",
            "dtype = \"float\"",
            "hint: did you mean `float32`?",
        ),
        (
            "no folder",
            "batch_rows = 4",
            "cache = true",
            "hint: `cache`: Folder of the feature cache",
        ),
        ("a file that is not there", "[\"hook.py\"]", "[\"other.py\"]", "other.py"),
        ("a column twice", "double = {", "n = {", "there is already a column `n`"),
        (
            "a text with a shape",
            "dtype = \"utf8\"",
            "dtype = \"utf8\", shape = [2]",
            "neither shape",
        ),
        (
            "params for a file",
            "batch_rows = 4",
            &long,
            "is told of it, in 131098 bytes, and can be",
        ),
        ("params for a file", "batch_rows = 4", &long, "hint: put it into a file, name that in"),
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
fn tests_are_answered_by_the_hook_itself() {
    if !can_run() {
        return;
    }
    // What stands in the file of the source decides no type here.
    let given = |rows: &str| format!("types.n = {{ dtype = \"int64\" }}\ngiven = {rows}");
    let cases = [
        ("a row", given("{ n = 3 }"), "expect = { double = 6, pair = [3, 3] }"),
        (
            "a batch",
            given("[{ n = 3 }, { n = 4 }]"),
            "expect = [{ seen = \"3-4\" }, { words = [0] }]",
        ),
        ("near", given("{ n = 3 }"), "expect = { pair = [3.1, 3] }\natol = 0.2"),
        ("far", given("{ n = 3 }"), "expect = { pair = [3.1, 3], words = [0, 1] }"),
        ("bad", given("[{ n = 1 }, { n = 9 }, { n = 2 }]"), "expect_reject = \"hook_died\""),
    ];
    let cases = cases.iter().map(|(name, given, expect)| {
        format!("[[test]]\nname = \"{name}\"\nstage = \"features\"\n{given}\n{expect}\n")
    });
    let place = place("bad = 9, what = \"exit1\"", "");
    let plain = definition("bad = 9, what = \"exit1\"", "");
    place.write("p.toml", format!("{plain}\n{}", cases.collect::<String>()));
    let ran = place.rowmill(&["test", "p.toml"]);
    let want = "pass  a row    features\npass  a batch  features\npass  near     features\n\
                FAIL  far      features\n      \
                row 0, column `pair`: at [0], expected 3.1, got 3.0\n      \
                row 0, column `words`: expected 2 items, got 0\n\
                pass  bad      features\n4 passed, 1 failed\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (4, want), "{}", ran.stderr);
    assert!(!place.path("data").exists());
    wait_for_none_in(&place.path("."));

    place.write("hook.py", "raise SystemExit('nothing is installed')");
    let ran = place.rowmill(&["test", "p.toml"]);
    assert_eq!(ran.code, 4);
    assert!(ran.stdout.contains("nothing is installed"), "{ran:?}");
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
        ("batch_rows = 4", "batch_rows = 4\nparams = { a = { b = [1, { c = 2 }] } }"),
    ] {
        assert_ne!(key(&plain.replace(from, to)), first, "{to}");
    }
    key(&plain);
    let before = slot();
    place.write("hook.py", "# another\n");
    assert_ne!(slot(), before);
}
