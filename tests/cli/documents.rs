//! `--json`: one document of a version on stdout, and nothing else there.

use serde_json::{Value, json};

use crate::command::{Place, TEXTS};

#[test]
fn every_command_prints_one_document_of_a_version() {
    let place = Place::of_texts(3);
    let case = "[[test]]\nname = \"it\"\ngiven = { text = \"a\" }\nexpect = { words = 1 }\n";
    place.write("p.toml", format!("{TEXTS}{case}"));
    for args in [
        &["test", "p.toml"][..],
        &["check", "p.toml"],
        &["plan", "p.toml"],
        &["plan", "p.toml", "--keys"],
        &["run", "p.toml", "--progress", "none"],
        &["run", "p.toml", "--progress", "plain"],
        &["plan", "p.toml"],
        &["path", "p.toml"],
        &["inspect", "p.toml"],
        &["inspect", "data/texts"],
        &["inspect", "p.toml", "--row", "1"],
        &["cat", "p.toml", "--rows", "0,1"],
        &["verify", "p.toml"],
        &["verify", "p.toml", "--sources"],
        &["init", "categories", "p.toml", "--column", "parent"],
        &["verify", "data/texts/current"],
        &["status", "p.toml"],
        &["clean", "p.toml"],
        &["clean", "p.toml", "--keys"],
        &["status", "data/texts"],
        &["explain"],
        &["explain", "dataset-busy"],
        &["completions", "bash"],
    ] {
        let ran = place.done(&[args, &["--json"]].concat());
        assert_eq!(ran.stderr, "", "{args:?}");
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(document["version"], 1, "{args:?}");
        assert!(ran.stdout.ends_with("}\n"), "{args:?}");
        let text = place.done(args).stdout;
        assert!(serde_json::from_str::<Value>(&text).is_err(), "{args:?} speaks to people: {text}");
    }
    let schema = place.done(&["schema"]).stdout;
    assert_eq!(place.done(&["schema", "--json"]).stdout, schema);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["properties"]["version"]["const"], 1);
}

#[test]
fn a_command_that_fails_prints_its_error_as_the_one_document() {
    let place = Place::of_texts(1);
    place.write("q.toml", "version = 1\n");
    for (args, code, name) in [
        (&["run", "q.toml"][..], 2, "definition-"),
        (&["check", "none.toml"], 2, "definition-file"),
        (&["test", "p.toml"], 2, "usage"),
        (&["plan", "p.toml", "--memory", "1KiB"], 2, "memory-too-small"),
        (&["inspect", "p.toml"], 2, "no-dataset"),
        (&["cat", "p.toml"], 2, "no-dataset"),
        (&["verify", "nothing"], 2, "usage"),
        (&["verify", "in", "--sources"], 2, "usage"),
        (&["init", "categories", "p.toml", "--column", "x"], 2, "no-dataset"),
        (&["explain", "no-such"], 2, "usage"),
        (&["run"], 2, "usage"),
        (&["rnu", "p.toml"], 2, "usage"),
    ] {
        let plain = place.rowmill(args);
        plain.fails(code, &[]);
        let ran = place.rowmill(&[args, &["--json"]].concat());
        assert_eq!(ran.code, code, "{args:?}");
        // The usage names the flags that were given.
        let usage = plain.stderr.contains("Usage: ");
        assert!(usage || ran.stderr == plain.stderr, "{args:?}: {}", ran.stderr);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let keys: Vec<_> = document.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["error", "version"], "{args:?}");
        assert_eq!(document["version"], 1);
        let error = &document["error"];
        assert!(error["code"].as_str().unwrap().starts_with(name), "{args:?}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(ran.stderr.contains(message), "{args:?}: {message:?} in {}", ran.stderr);
        // What is wrong with a definition has its hints beside its lines.
        let hint = error["hint"].as_str().map(|hint| format!("hint: {hint}"));
        let is_told = hint.as_ref().is_some_and(|hint| ran.stderr.contains(hint));
        assert!(is_told || name == "usage" || message.contains("hint: "), "{args:?}: {error}");
    }
    // What has printed its document says the rest on stderr.
    place.done(&["run", "p.toml"]);
    std::fs::write(place.current("data", "texts").join("_COMPLETE"), "{}").unwrap();
    let ran = place.rowmill(&["verify", "p.toml", "--json"]);
    assert_eq!(ran.code, 4);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(document["error"].is_null() && document["ok"] == false, "{document}");
}

#[test]
fn the_report_of_a_run_has_its_numbers() {
    let place = Place::of_texts(4);
    let report = place.json(&["run", "p.toml"]);
    for (name, want) in [
        ("name", json!("texts")),
        ("rows", json!(4)),
        ("shards", json!(4)),
        ("partitions", json!(4)),
        ("reused_partitions", json!(0)),
        ("adopted_partitions", json!(0)),
        ("rejected", json!(0)),
        ("resumed_rows", json!(0)),
        ("up_to_date", json!(false)),
        ("current", json!(true)),
    ] {
        assert_eq!(report[name], want, "{name}");
    }
    let dataset = report["dataset"].as_str().unwrap();
    let key = report["cache_key"].as_str().unwrap();
    assert_eq!(dataset, format!("data/texts/{key}"));
    assert_eq!(place.current("data", "texts"), place.path(dataset).canonicalize().unwrap());
    assert!(report["bytes"].as_u64().unwrap() > 1000);
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(report["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    }
    let stages = report["stages"].as_array().unwrap();
    let names: Vec<_> = stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["files", "counts", "write"]);
    for stage in stages {
        assert_eq!(stage["rows"], 4, "{stage}");
        assert!(stage["bytes"].as_u64().unwrap() > 100, "{stage}");
        for time in ["busy_seconds", "blocked_seconds"] {
            assert!(stage[time].as_f64().is_some_and(|seconds| seconds >= 0.0), "{stage}");
        }
    }
    assert!(stages.iter().any(|stage| stage["busy_seconds"].as_f64() > Some(0.0)));
    let interned = &report["interned"][0];
    assert_eq!((&interned["field"], &interned["rows"]), (&"parent".into(), &4.into()));
}

#[test]
fn run_inspect_verify_and_path_agree() {
    let place = Place::of_texts(4);
    let report = place.json(&["run", "p.toml"]);
    let contents = place.json(&["inspect", "p.toml"]);
    let verified = place.json(&["verify", "data/texts"]);
    let path = place.json(&["path", "p.toml"]);
    assert_eq!(verified["ok"], true);
    assert_eq!(verified["findings"], Value::Array(Vec::new()));
    assert_eq!((&path["complete"], &path["dataset"]), (&true.into(), &report["dataset"]));
    for name in ["rows", "bytes"] {
        assert_eq!(contents[name], report[name], "{name}");
        assert_eq!(verified[name], report[name], "{name}");
    }
    let shards = contents["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 4);
    for shard in shards {
        let path = format!("data/texts/current/shards/{}", shard["id"].as_str().unwrap());
        for (command, of_shard) in [("inspect", "rows"), ("verify", "rows"), ("verify", "bytes")] {
            assert_eq!(place.json(&[command, &path])[of_shard], shard[of_shard], "{command}");
        }
    }
}

#[test]
fn a_row_is_shown_with_its_values_and_where_it_came_from() {
    let place = Place::of_texts(0);
    place.write("in/a/one.txt", "first\nsecond line\n");
    place.write("in/b/two.txt", "");
    place.done(&["run", "p.toml"]);
    let row = place.json(&["inspect", "p.toml", "--row", "0"]);
    assert_eq!((&row["input"], &row["source_row"]), (&"a/one.txt".into(), &0.into()));
    let values = json!({
        "text": "first\nsecond line\n", "path": "a/one.txt", "parent": "a", "stem": "one", "size": 18,
        "lines": 2, "characters": 18, "words": 3,
    });
    assert_eq!(row["values"], values);
    let text = place.done(&["inspect", "p.toml", "--row", "1"]).stdout;
    assert!(text.contains("from `b/two.txt`, row 0\n"), "{text}");
    assert!(text.contains("words       0\n"), "{text}");
}

#[test]
fn the_plan_lists_partitions_and_the_parts_of_the_memory_bound() {
    let place = Place::of_texts(3);
    let plan = place.json(&["plan", "p.toml"]);
    assert_eq!((&plan["inputs"], &plan["rows"]), (&3.into(), &3.into()));
    let memory = &plan["memory"];
    let bytes = |name: &str| memory[name].as_u64().unwrap_or_else(|| panic!("{name}: {memory}"));
    assert!(bytes("bound_bytes") <= bytes("memory_bytes"));
    let job: u64 =
        ["reader_bytes", "edges_bytes", "transforms_bytes", "writer_bytes"].map(bytes).iter().sum();
    assert!(bytes("bound_bytes") >= job * bytes("jobs"), "{memory}");
    let partitions = plan["partitions"].as_array().unwrap();
    let inputs: Vec<_> = partitions.iter().map(|p| p["first_input"].as_str().unwrap()).collect();
    assert_eq!(inputs, ["0/0.txt", "1/1.txt", "2/2.txt"]);
}
