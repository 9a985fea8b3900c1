//! `clean`: says what would go, and removes it when it is told to.

use std::sync::Arc;

use rowmill::dataset::{Home, Workplace};
use rowmill::storage::Local;
use serde_json::Value;

use crate::command::{Place, files_of, snapshot};

/// Three generations of three partitions.
fn built() -> Place {
    let place = Place::of_texts(3);
    for text in ["one", "two and more", "three is the last"] {
        place.write("in/0/0.txt", text);
        place.done(&["run", "p.toml"]);
    }
    place
}

fn kinds(document: &Value) -> Vec<&str> {
    let found = document["leftovers"].as_array().unwrap();
    found.iter().map(|it| it["what"].as_str().unwrap()).collect()
}

#[test]
fn old_generations_go_when_they_are_told_to() {
    let place = built();
    let before = snapshot(&place.path("data"));
    let said = place.json(&["clean", "p.toml"]);
    assert_eq!(kinds(&said), ["manifest", "record", "shard"], "one generation is kept");
    assert_eq!((&said["removed"], snapshot(&place.path("data"))), (&false.into(), before));
    assert!(said["bytes"].as_u64().unwrap() > 1000);
    let text = place.done(&["clean", "data/texts"]).stdout;
    assert!(text.contains("would go   3 things, ") && text.contains(": --yes does"), "{text}");
    let young = ["clean", "p.toml", "--yes", "--older-than", "1h"];
    assert_eq!(kinds(&place.json(&young)), [""; 0]);

    let row = place.json(&["inspect", "p.toml", "--row", "0"]);
    let done = place.json(&["clean", "p.toml", "--yes"]);
    assert_eq!((kinds(&done), &done["bytes"]), (kinds(&said), &said["bytes"]));
    for gone in done["leftovers"].as_array().unwrap() {
        assert!(!place.path(gone["path"].as_str().unwrap()).exists(), "{gone}");
    }
    assert_eq!(place.json(&["status", "p.toml"])["keys"][0]["generations"], 2);
    place.done(&["clean", "p.toml", "--yes", "--keep", "0"]);
    assert_eq!(place.json(&["status", "p.toml"])["keys"][0]["generations"], 1);
    assert_eq!(place.json(&["inspect", "p.toml", "--row", "0"]), row);
    place.done(&["verify", "p.toml"]);
    let text = place.done(&["clean", "p.toml", "--yes", "--keep", "0"]).stdout;
    assert!(text.contains("nothing to remove"), "{text}");

    // What is left is what a build from scratch makes.
    place.done(&["run", "p.toml", "--out", "fresh"]);
    assert_eq!(files_of(&place.path("data")), files_of(&place.path("fresh")));
}

#[test]
fn old_keys_go_by_themselves() {
    let place = Place::of_texts(2);
    for rows in ["7", "8", "9"] {
        place.done(&["run", "p.toml", "--set", &format!("dataset.shard_rows={rows}")]);
    }
    place.rowmill(&["clean", "data/texts", "--keys"]).fails(2, &["no cache key is current"]);
    place.done(&["run", "p.toml"]);
    let said = place.json(&["clean", "p.toml", "--keys"]);
    assert_eq!(kinds(&said), ["cache key"; 2]);
    let done = place.json(&["clean", "data/texts", "--keys", "--yes", "--keep", "2"]);
    assert_eq!(kinds(&done), ["cache key"]);
    place.json(&["clean", "data/texts", "--keys", "--yes", "--keep", "0"]);
    let keys = place.json(&["status", "p.toml"])["keys"].clone();
    assert_eq!((keys.as_array().unwrap().len(), &keys[0]["current"]), (1, &true.into()));
    place.done(&["verify", "p.toml"]);
}

/// What goes is renamed by its path, and names of files are at most 255 bytes long.
#[test]
fn old_keys_go_from_deep_below_too() {
    let place = Place::of_texts(1);
    let deep = place.path(&["d".repeat(100), "e".repeat(100), "f".repeat(100)].join("/"));
    let out = deep.to_str().unwrap();
    place.done(&["run", "p.toml", "--out", out, "--set", "dataset.shard_rows=7"]);
    place.done(&["run", "p.toml", "--out", out]);
    let dataset = deep.join("texts");
    let clean = ["clean", dataset.to_str().unwrap(), "--keys", "--yes", "--keep", "0"];
    assert_eq!(kinds(&place.json(&clean)), ["cache key"]);
}

#[test]
fn nothing_is_removed_while_somebody_writes() {
    let place = built();
    let key = place.json(&["path", "p.toml"])["cache_key"].as_str().unwrap().to_owned();
    let home = Home::new(&place.path("data"), "texts", &key).unwrap();
    let held = Workplace::open(Arc::new(Local), home).unwrap();
    place.rowmill(&["clean", "p.toml", "--yes"]).fails(1, &["is being written by another run"]);
    place.done(&["clean", "p.toml"]);
    drop(held);
    place.done(&["clean", "p.toml", "--yes"]);
    for (args, texts) in [
        (&["clean", "in"][..], &["holds no complete dataset"][..]),
        (&["clean", "data/texts/.."], &["holds no complete dataset", "name the folder itself"]),
        (&["clean", "p.toml", "--older-than", "7"], &["write a number and a unit"]),
    ] {
        place.rowmill(args).fails(2, texts);
    }
}
