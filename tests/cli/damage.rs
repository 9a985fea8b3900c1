//! Damaged datasets: `verify` names file and block and exits with 4; what it advises helps.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Place, files_of};

/// Three shards, of which the path of the first and its id.
fn built() -> (Place, PathBuf, String) {
    let place = Place::of_texts(3);
    place.done(&["run", "p.toml"]);
    let contents = place.json(&["inspect", "p.toml"]);
    let id = contents["shards"][0]["id"].as_str().unwrap().to_owned();
    let shard = place.current("data", "texts").join("shards").join(&id);
    (place, shard, id)
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.first_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_byte_is_found_with_its_block_and_mended_as_advised() {
    let (place, shard, id) = built();
    let before = files_of(&place.path("data"));
    flip(&shard.join("text.bin"));
    for path in ["p.toml", "data/texts", &format!("data/texts/current/shards/{id}")] {
        place.rowmill(&["verify", path]).fails(
            4,
            &[
                &format!("/{id}/text.bin`, block 1 of 1 (bytes 0 to "),
                "was changed since it was sealed",
                "hint: remove the shard's folder and run the pipeline again",
                "error[damage-found]: 1 damage found in `",
            ],
        );
    }
    let ran = place.rowmill(&["verify", "p.toml", "--json"]);
    assert_eq!(ran.code, 4);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&document["version"], &document["ok"]), (&1.into(), &false.into()));
    let finding = &document["findings"][0];
    assert!(finding["path"].as_str().unwrap().ends_with("text.bin"), "{finding}");
    assert_eq!(finding["block"]["index"], 0);

    fs::remove_dir_all(&shard).unwrap();
    let plan = place.json(&["plan", "p.toml"]);
    let partitions = plan["partitions"].as_array().unwrap();
    let states: Vec<_> = partitions.iter().map(|it| it["state"].as_str().unwrap()).collect();
    assert_eq!((states, &plan["up_to_date"]), (vec!["new", "done", "done"], &false.into()));
    assert_eq!(place.json(&["run", "p.toml"])["reused_partitions"], 2);
    assert_eq!(files_of(&place.path("data")), before);
    place.done(&["verify", "p.toml"]);
}

#[test]
fn a_damaged_manifest_or_sentinel_is_found_and_written_again() {
    let (place, shard, _) = built();
    let before = files_of(&place.path("data"));
    let dataset = shard.parent().unwrap().parent().unwrap();
    let manifest = fs::read_dir(dataset).unwrap().map(|entry| entry.unwrap().path());
    let manifest = manifest.into_iter().find(|path| path.extension().is_some()).unwrap();
    for (file, what) in [
        (manifest, "its bytes are not those the sentinel names"),
        (dataset.join("_COMPLETE"), "_COMPLETE`: "),
    ] {
        flip(&file);
        let advice = "hint: the file was changed after it was written: remove it and run";
        place.rowmill(&["verify", "data/texts"]).fails(4, &[what, advice]);
        place.rowmill(&["inspect", "data/texts"]).fails(4, &[what, "hint: it was changed"]);
        assert_eq!(place.json(&["plan", "p.toml"])["up_to_date"], false);
        let report = place.json(&["run", "p.toml"]);
        assert_eq!((&report["reused_partitions"], &report["rows"]), (&3.into(), &3.into()));
        assert_eq!(files_of(&place.path("data")), before);
    }
}

#[test]
fn an_unfinished_dataset_does_not_verify() {
    let (place, shard, _) = built();
    let dataset = shard.parent().unwrap().parent().unwrap();
    fs::remove_file(dataset.join("_COMPLETE")).unwrap();
    let advice = "hint: run the pipeline again: it finishes what it had begun";
    for path in ["p.toml", "data/texts"] {
        place.rowmill(&["verify", path]).fails(4, &["no complete dataset", advice]);
        place.rowmill(&["inspect", path]).fails(2, &["holds no complete dataset", "hint: run"]);
    }
    assert_eq!(place.json(&["path", "p.toml"])["complete"], false);
    place.done(&["run", "p.toml"]);
    place.done(&["verify", "p.toml"]);
}

#[test]
fn a_file_that_does_not_belong_and_one_that_is_gone_are_found() {
    let (place, shard, _) = built();
    fs::write(shard.join("notes.txt"), "").unwrap();
    place.rowmill(&["verify", "p.toml"]).fails(4, &["notes.txt`: does not belong to the shard"]);
    fs::remove_file(shard.join("notes.txt")).unwrap();
    fs::remove_file(shard.join("words.bin")).unwrap();
    place.rowmill(&["verify", "p.toml"]).fails(4, &["words.bin`: is missing"]);
    place.rowmill(&["inspect", "p.toml", "--row", "0"]).fails(4, &["words.bin", "is missing"]);
    place.rowmill(&["inspect", "p.toml"]).fails(4, &["words.bin", "is missing"]);
    place.rowmill(&["cat", "p.toml"]).fails(4, &["words.bin", "is missing"]);
}
