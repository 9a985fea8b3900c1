//! `verify --sources`: whether the inputs are still what a dataset was built from; and `--jobs`.

use std::fs;

use serde_json::{Value, json};

use crate::command::Place;

fn findings(place: &Place) -> Value {
    let ran = place.rowmill(&["verify", "p.toml", "--sources", "--json"]);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let found = document["sources"]["findings"].clone();
    let is_same = found == json!([]);
    assert_eq!((ran.code == 0, &document["ok"]), (is_same, &is_same.into()), "{ran:?}");
    found
}

#[test]
fn inputs_that_are_not_what_they_were_are_named() {
    let place = Place::of_texts(4);
    place.done(&["run", "p.toml"]);
    let text = place.done(&["verify", "p.toml", "--sources"]).stdout;
    assert!(text.contains("ok: 4 inputs as they were, "), "{text}");
    assert_eq!(findings(&place), json!([]));

    let unseen = place.path("in/1/1.txt");
    let (mut bytes, modified) =
        (fs::read(&unseen).unwrap(), fs::metadata(&unseen).unwrap().modified().unwrap());
    bytes[0] ^= 1;
    fs::write(&unseen, bytes).unwrap();
    fs::File::options().write(true).open(&unseen).unwrap().set_modified(modified).unwrap();
    fs::remove_file(place.path("in/2/2.txt")).unwrap();
    place.write("in/0/0.txt", "longer than it was before by some");
    place.write("in/new.txt", "new");
    let found = findings(&place);
    let states: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["path"].as_str().unwrap(), it["state"].as_str().unwrap()))
        .collect();
    assert_eq!(
        (states[0], states[2], states[3]),
        (("0/0.txt", "resized"), ("2/2.txt", "missing"), ("new.txt", "added"),)
    );
    // The system tells of the change where it keeps a time that nobody can set back.
    assert!(matches!(states[1], ("1/1.txt", "changed" | "changed_unseen")), "{states:?}");
    place.rowmill(&["verify", "p.toml", "--sources"]).fails(
        4,
        &[
            "input: `2/2.txt` is not there any more",
            "input: `1/1.txt` has other bytes",
            "error[inputs-differ]: 4 inputs not as `data/texts/",
            "hint: a run builds",
        ],
    );
    place.done(&["verify", "p.toml"]);
    place.rowmill(&["verify", "data/texts", "--sources"]).fails(2, &["hint: name the definition"]);
}

#[test]
fn a_file_that_is_cut_is_compared_range_by_range() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"csv\"\npath = \"*.csv\"\n\
         [dataset]\npartition_bytes = 6\nmax_row_bytes = \"64KiB\"\n",
    );
    place.write("a.csv", "n\n1\n2\n3\n4\n5\n6\n7\n8\n");
    place.done(&["run", "p.toml"]);
    assert_eq!(findings(&place), json!([]));
    place.write("a.csv", "n\n1\n2\n3\n4\n5\n6\n7\n9\n");
    assert_eq!(findings(&place)[0]["path"], "a.csv");

    // What a limit left unread is not compared.
    let definition = fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", definition + "limit_rows = 3\n");
    place.done(&["run", "p.toml"]);
    assert_eq!(findings(&place), json!([]));
    place.write("a.csv", "n\n1\n2\n3\n4\n5\n6\n7\n0\n");
    assert_eq!(findings(&place), json!([]), "behind the limit");
    place.write("a.csv", "n\n9\n2\n3\n4\n5\n6\n7\n0\n");
    assert_eq!(findings(&place)[0]["path"], "a.csv");
    place.write("a.csv", "n\n");
    assert_eq!(findings(&place)[0]["state"], "resized");
}

#[test]
fn what_is_found_does_not_depend_on_jobs() {
    let place = Place::of_texts(6);
    place.done(&["run", "p.toml"]);
    let shards = place.current("data", "texts").join("shards");
    for shard in fs::read_dir(shards).unwrap() {
        fs::write(shard.unwrap().path().join("size.bin"), "damaged").unwrap();
    }
    let found = |jobs| place.rowmill(&["verify", "p.toml", "--json", "--jobs", jobs]);
    let one = found("1");
    assert_eq!(one.code, 4);
    for jobs in ["2", "9"] {
        assert_eq!((found(jobs).stdout, found(jobs).code), (one.stdout.clone(), 4));
    }
    place.rowmill(&["verify", "p.toml", "--jobs", "0"]).fails(2, &["--jobs"]);
}
