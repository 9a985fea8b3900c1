//! `plan --why` names what differs from what is built.

use std::fs;

use serde_json::Value;

use crate::command::{Place, snapshot};

/// The reasons that are given, with their counts of partitions and inputs and their examples.
fn reasons(why: &Value) -> Vec<(String, u64, u64, String)> {
    let of = |it: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let examples: Vec<String> = it["examples"].as_array().unwrap().iter().map(text).collect();
        let count = |name: &str| it[name].as_u64().unwrap();
        (text(&it["reason"]), count("partitions"), count("inputs"), examples.join(" "))
    };
    why["reasons"].as_array().unwrap().iter().map(of).collect()
}

fn why(place: &Place) -> Value {
    let before = snapshot(&place.path(""));
    let plan = place.json(&["plan", "p.toml", "--why"]);
    assert_eq!(snapshot(&place.path("")), before, "nothing is written");
    plan["why"].clone()
}

#[expect(clippy::disallowed_types, reason = "a test sets the time of a file")]
fn set_modified(path: &std::path::Path, time: std::time::SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn an_input_is_hashed_once_to_say_why() {
    let place = Place::of_texts(4);
    place.write("in/0/0.txt", "abc");
    place.done(&["run", "p.toml"]);
    for i in 0..4 {
        let path = format!("in/{}/{i}.txt", i % 3);
        let bytes = fs::read(place.path(&path)).unwrap();
        fs::remove_file(place.path(&path)).unwrap();
        place.write(&path, if i == 0 { b"xyz".to_vec() } else { bytes });
    }
    let plan = place.json(&["plan", "p.toml", "--why"]);
    let count = |of: &Value| of["hashed"]["inputs"].as_u64().unwrap();
    assert_eq!(plan["why"]["reasons"][0]["examples"][0], "files/0/0.txt");
    assert_eq!(count(&plan) + count(&plan["why"]), 4, "{plan:#}");
}

type Change = fn(&Place);

/// What is said of a change, how many partitions and inputs it is about, and examples.
type Reason = (&'static str, u64, u64, &'static str);

#[test]
fn each_change_is_named_with_the_partitions_that_it_rebuilds() {
    let table: [(&str, Change, &[Reason], usize); 8] = [
        ("nothing", |_| {}, &[], 0),
        ("added", |place| place.write("in/9.txt", "new"), &[("added", 1, 1, "files/9.txt")], 1),
        (
            "removed",
            |place| fs::remove_file(place.path("in/0/3.txt")).unwrap(),
            &[("removed", 0, 1, "files/0/3.txt")],
            0,
        ),
        (
            "another size",
            |place| place.write("in/1/1.txt", "longer than it was, and otherwise as well"),
            &[("size", 1, 1, "files/1/1.txt")],
            1,
        ),
        (
            "other content",
            |place| {
                let path = place.path("in/0/0.txt");
                let modified = fs::metadata(&path).unwrap().modified().unwrap();
                let bytes: Vec<u8> =
                    fs::read(&path).unwrap().iter().map(|b| b.max(&b'a') ^ 1).collect();
                fs::write(&path, bytes).unwrap();
                let later = modified + std::time::Duration::from_secs(5);
                set_modified(&path, later);
            },
            &[("time", 1, 1, "files/0/0.txt")],
            1,
        ),
        (
            "touched",
            |place| {
                let text = fs::read(place.path("in/1/4.txt")).unwrap();
                fs::remove_file(place.path("in/1/4.txt")).unwrap();
                place.write("in/1/4.txt", text);
            },
            &[],
            0,
        ),
        (
            "a side input",
            |place| place.write("in/1/NOTE", "another"),
            &[("side_input", 2, 1, "files/1/NOTE")],
            2,
        ),
        (
            "shards gone",
            |place| fs::remove_dir_all(place.current("data", "texts").join("shards")).unwrap(),
            &[("shards", 6, 0, "")],
            6,
        ),
    ];
    let place = Place::of_texts(6);
    let text = fs::read_to_string(place.path("p.toml")).unwrap();
    place.write(
        "p.toml",
        text.replace("content = \"text\"", "content = \"text\"\nsibling = \"NOTE\""),
    );
    place.write("in/1/NOTE", "one");
    place.write("in/NOTE", "all");
    place.write("in/0/0.txt", "bytes");
    place.done(&["run", "p.toml"]);
    for (what, change, want, n_partitions) in table {
        change(&place);
        let why = why(&place);
        let want: Vec<_> = want
            .iter()
            .map(|(reason, partitions, inputs, examples)| {
                ((*reason).to_owned(), *partitions, *inputs, (*examples).to_owned())
            })
            .collect();
        let found = reasons(&why);
        assert_eq!(why["partitions"].as_array().unwrap().len(), n_partitions, "{what}: {why}");
        assert_eq!(found, want, "{what}: {why}");
        place.done(&["run", "p.toml"]);
    }
}

#[test]
fn what_the_definition_says_otherwise_is_named_with_both_values() {
    let place = Place::of_texts(2);
    let text = place.done(&["plan", "p.toml", "--why"]).stdout;
    assert!(text.contains("why        there is no complete generation"), "{text}");
    assert!(text.contains("never built: 2 partitions, 2 inputs"), "{text}");
    place.done(&["run", "p.toml"]);
    let args = ["plan", "p.toml", "--why", "--set", "dataset.shard_rows=7"];
    let text = place.done(&args).stdout;
    assert!(text.contains("dataset.shard_rows: 1000000 -> 7"), "{text}");
    let why = &place.json(&args)["why"];
    assert_eq!(why["definition"]["differs"][0]["setting"], "dataset.shard_rows", "{why}");
    let text = place.done(&["plan", "p.toml", "--why"]).stdout;
    assert!(text.contains("2 partitions reused as built"), "{text}");
}

#[test]
fn other_types_are_named_with_the_field() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\nroot = \"in\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 1\nmax_row_bytes = \"64KiB\"\n",
    );
    place.write("in/b.csv", "n\n1\n");
    place.done(&["run", "p.toml"]);
    // Cut behind the header: two partitions each.
    place.write("in/a.csv", "n\n1.5\n");
    let found = reasons(&why(&place));
    let found: Vec<_> = found.iter().map(|it| (it.0.as_str(), it.1)).collect();
    assert_eq!(found, [("added", 2), ("types", 4)]);
    let text = place.done(&["plan", "p.toml", "--why"]).stdout;
    assert!(text.contains("\"int64\" -> \"float64\""), "{text}");
}
