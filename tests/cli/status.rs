//! `status`: how far a dataset is, who holds its lock, which cache keys there are.

use std::sync::Arc;

use rowmill::dataset::{Home, Workplace};
use rowmill::storage::Local;
use serde_json::{Value, json};

use crate::command::{Place, snapshot};

/// Three partitions of two rows, of which the second has a bad second row.
fn stopped() -> Place {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 6\nmax_row_bytes = \"64KiB\"\n\
         [run]\njobs = 1\nbatch_rows = 1\ncommit_bytes = 1\n",
    );
    place.write("a.csv", "n\n1\n2\n");
    place.write("b.csv", "n\n3\nx\n");
    place.write("c.csv", "n\n5\n6\n");
    place.rowmill(&["run", "p.toml"]).fails(3, &["`b.csv`"]);
    place
}

/// Partitions done, open, not begun.
fn counts(build: &Value) -> [u64; 3] {
    ["done", "open", "not_begun"].map(|of| build[format!("partitions_{of}")].as_u64().unwrap())
}

#[test]
fn a_status_tells_what_is_done_open_and_not_begun() {
    let place = stopped();
    let before = snapshot(&place.path("data"));
    for path in ["p.toml", "data/t"] {
        let status = place.json(&["status", path]);
        assert_eq!((&status["state"], &status["generation"]), (&"stopped".into(), &Value::Null));
        let build = &status["build"];
        assert_eq!(counts(build), [1, 1, 1], "{status}");
        // Whether the first row of the second partition was committed is a matter of time.
        let open = &build["open"][0];
        assert_eq!(build["rows"], 2 + open["rows"].as_u64().unwrap(), "{status}");
        assert_eq!(open["sealed_shards"], 0, "{status}");
        let key = &status["keys"][0];
        assert_eq!((&key["complete"], &key["rows"]), (&false.into(), &Value::Null));
        assert_eq!((&key["selected"], &key["differs"]), (&true.into(), &json!([])));
    }
    let text = place.done(&["status", "p.toml"]).stdout;
    for want in
        ["state      stopped: `rowmill run` goes on", "1 partition done, 1 open, 1 not begun"]
    {
        assert!(text.contains(want), "{text}");
    }
    assert_eq!(snapshot(&place.path("data")), before, "looking changes nothing");

    place.write("b.csv", "n\n3\n4\n");
    place.done(&["run", "p.toml"]);
    let status = place.json(&["status", "data/t/current"]);
    assert_eq!((&status["state"], &status["build"]), (&"complete".into(), &Value::Null));
    let generation = &status["generation"];
    let found = ["rows", "partitions", "shards", "rejected"].map(|name| &generation[name]);
    assert_eq!(found, [&json!(6), &json!(3), &json!(3), &json!(0)]);

    // A generation that is complete stands beside the build of the next one.
    place.write("b.csv", "n\n3\nx\n7\n");
    place.rowmill(&["run", "p.toml"]).fails(3, &["`b.csv`"]);
    let status = place.json(&["status", "p.toml"]);
    assert_eq!((&status["state"], &status["generation"]["rows"]), (&"stopped".into(), &6.into()));
    // The longer file is cut in two.
    assert_eq!(counts(&status["build"]), [2, 1, 1], "{status}");
}

#[test]
fn nothing_but_logs_and_records_is_needed() {
    let place = stopped();
    place.write("b.csv", "n\n3\n4\n");
    place.done(&["run", "p.toml"]);
    let shards = place.current("data", "t").join("shards");
    for shard in std::fs::read_dir(shards).unwrap() {
        std::fs::write(shard.unwrap().path().join("n.bin"), "damaged").unwrap();
    }
    std::fs::remove_file(place.path("a.csv")).unwrap();
    assert_eq!(place.json(&["status", "p.toml"])["state"], "complete");
}

#[test]
fn a_limit_that_was_reached_leaves_nothing_to_do() {
    let place = Place::of_texts(4);
    place.done(&["run", "p.toml", "--limit-rows", "2"]);
    let status = place.json(&["status", "data/texts"]);
    assert_eq!((&status["state"], &status["generation"]["rows"]), (&"complete".into(), &2.into()));
}

#[test]
fn who_writes_is_named_and_is_not_disturbed() {
    let place = Place::of_texts(1);
    let status = place.json(&["status", "p.toml"]);
    assert_eq!((&status["state"], &status["keys"]), (&"new".into(), &json!([])));
    let key = status["cache_key"].as_str().unwrap();
    let home = Home::new(&place.path("data"), "texts", key).unwrap();
    let held = Workplace::open(Arc::new(Local), home).unwrap();
    let status = place.json(&["status", "p.toml"]);
    let holder = format!("pid {} on ", std::process::id());
    assert_eq!(status["state"], "running");
    assert!(status["held_by"].as_str().unwrap().starts_with(&holder), "{status}");
    let text = place.done(&["status", "data/texts"]).stdout;
    assert!(text.contains(&format!("running ({holder}")), "{text}");
    drop(held);
    assert_eq!(place.json(&["status", "p.toml"])["held_by"], Value::Null);
}

#[test]
fn keys_are_listed_with_what_differs() {
    let place = Place::of_texts(2);
    place.done(&["run", "p.toml"]);
    place.done(&["run", "p.toml", "--set", "dataset.shard_rows=7"]);
    let current = place.json(&["path", "p.toml"])["cache_key"].clone();
    for path in ["p.toml", "data/texts"] {
        let status = place.json(&["status", path]);
        let keys = status["keys"].as_array().unwrap();
        assert_eq!(keys.len(), 2);
        let is_current = |key: &&Value| key["cache_key"] == current;
        let this = keys.iter().find(is_current).unwrap();
        assert_eq!((&this["current"], &this["differs"]), (&true.into(), &json!([])));
        assert!(this["bytes"].as_u64().unwrap() > 1000 && this["generations"] == 1, "{this}");
        let other = keys.iter().find(|key| !is_current(key)).unwrap();
        let differs = other["differs"].as_array().unwrap();
        assert_eq!(differs.len(), 1, "{other}");
        assert_eq!(differs[0]["setting"], "dataset.shard_rows");
        assert_eq!(differs[0]["old"], 7);
    }
    let text = place.done(&["status", "p.toml"]).stdout;
    assert!(text.contains("dataset.shard_rows: 7 -> 1000000"), "{text}");
    let keys = place.json(&["plan", "p.toml", "--keys"])["keys"].clone();
    assert!(keys.as_array().unwrap().iter().any(|key| key["differs"] == json!([])), "{keys}");
    let text = place.done(&["plan", "p.toml", "--keys", "--set", "dataset.shard_rows=8"]).stdout;
    for want in ["dataset.shard_rows: 7 -> 8", "dataset.shard_rows: 1000000 -> 8"] {
        assert!(text.contains(want), "{text}");
    }
    let old = place.json(&["status", "data/texts"])["keys"].as_array().unwrap().clone();
    let old = old.iter().find(|key| key["cache_key"] != current).unwrap();
    let status = place.json(&["status", old["path"].as_str().unwrap()]);
    assert_eq!(status["cache_key"], old["cache_key"], "a key's folder is that key");
    place.rowmill(&["status", "in"]).fails(2, &["`in` holds no complete dataset", "hint: "]);
}
