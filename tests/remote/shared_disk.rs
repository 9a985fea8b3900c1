//! A folder that was pushed to by `file://`, and is opened by its path.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test leaves what a process that was killed does"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use rowmill::dataset::Dataset;
use serde_json::Value;

use super::command::{Place, files_of};
use super::datasets::{folder, small};

const DAY: Duration = Duration::from_hours(24);

/// A dataset in `data` that was pushed to the folder `there`, and the folder of its cache key there.
fn pushed() -> (Place, String, PathBuf) {
    let place = small();
    let url = format!("file://{}", place.path("there").display());
    place.done(&["push", "data/texts", &url]);
    let key = folder(&place, "data").file_name().unwrap().to_owned();
    let dir = place.path("there/texts").join(key);
    (place, format!("{url}/texts"), dir)
}

/// A file as a push leaves it that is killed while it writes, of that age.
fn leave(place: &Place, dir: &std::path::Path, name: &str, age: Duration) -> PathBuf {
    let path = dir.join(name);
    place.write(path.to_str().unwrap(), "half");
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
    path
}

#[test]
fn what_was_pushed_to_a_folder_is_opened_by_its_path() {
    let (place, url, dir) = pushed();
    let here = place.done(&["cat", "data/texts"]).stdout;
    let key = dir.file_name().unwrap().to_str().unwrap();
    for at in ["there/texts", &format!("there/texts/{key}"), &url] {
        assert_eq!(place.done(&["cat", at]).stdout, here, "{at}");
        place.done(&["verify", at]);
        assert_eq!(place.json(&["status", at])["cache_key"], key, "{at}");
    }
    let opened = Dataset::open(place.path("there/texts")).unwrap();
    assert_eq!(opened.path(), dir);
    // A copy of the copy is as complete, and current.
    let again = format!("file://{}", place.path("again").display());
    place.done(&["push", "there/texts", &again]);
    assert_eq!(place.done(&["cat", "again/texts"]).stdout, here);

    place.write("there/texts/current.json", "{}");
    let lost = place.rowmill(&["verify", "there/texts"]);
    lost.fails(4, &["`current` does not lead to a cache key"]);
}

#[test]
fn what_a_killed_push_was_writing_is_no_damage_and_goes_with_a_clean() {
    let (place, url, dir) = pushed();
    let before = files_of(&place.path("there"));
    let key = dir.file_name().unwrap().to_str().unwrap();
    let shard = std::fs::read_dir(dir.join("shards")).unwrap().next().unwrap().unwrap().path();
    let in_shard = leave(&place, &shard, "text.bin#1", 8 * DAY);
    for at in ["there/texts", shard.to_str().unwrap()] {
        let said = place.done(&["verify", at]).stdout;
        assert!(
            said.contains("left over: 1 file of a push to this folder that was killed"),
            "{said}"
        );
        let document = place.json(&["verify", at]);
        let staged = document["staged"].as_array().unwrap();
        assert_eq!(staged.len(), 1, "{document}");
        assert!(in_shard.ends_with(staged[0].as_str().unwrap()), "{document}");
    }
    let counted = place.json(&["verify", "there/texts"]);
    assert_eq!(counted["bytes"], place.json(&["verify", "data/texts"])["bytes"]);
    // A name that no client gives is none of these.
    let other = leave(&place, &shard, "text.bin#1x", 8 * DAY);
    place.rowmill(&["verify", "there/texts"]).fails(4, &["text.bin#1x`: does not belong"]);
    std::fs::remove_file(other).unwrap();

    for by_url in [true, false] {
        let at = if by_url { &url } else { "there/texts" };
        let old = [
            leave(&place, &shard, "text.bin#1", 8 * DAY),
            leave(&place, &dir, "partitions/a.json#3", 8 * DAY),
            leave(&place, &dir, "_COMPLETE#1", 8 * DAY),
            leave(&place, &dir, "pushing/b.json#1", 8 * DAY),
            leave(&place, dir.parent().unwrap(), "current.json#2", 8 * DAY),
        ];
        let young = leave(&place, &shard, "text.bin#2", DAY);
        let clean = |more: &[&str]| {
            let args = [&["clean", at, "--json", "--older-than=7d"], more].concat();
            place.rowmill(&args)
        };
        let at_work = leave(&place, &dir, "pushing/0123456789abcdef.json", Duration::ZERO);
        let refused = clean(&["--yes"]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("it does not say who"), "{refused:?}");
        assert!(old.iter().all(|path| path.exists()), "{at}: {refused:?}");
        std::fs::remove_file(at_work).unwrap();

        let ran = clean(&["--yes"]);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let below = |path: &str| {
            let beside = path.rsplit_once('/').unwrap().1;
            let inside = path.rsplit_once(&format!("{key}/")).map(|(_, inside)| inside);
            inside.filter(|it| !it.starts_with("..")).unwrap_or(beside).to_owned()
        };
        let listed = document["leftovers"].as_array().unwrap();
        let listed: BTreeSet<_> =
            listed.iter().map(|it| below(it["path"].as_str().unwrap())).collect();
        let want = old.iter().map(|path| below(path.to_str().unwrap())).collect();
        assert_eq!(listed, want, "{at}: {ran:?}");
        assert!(old.iter().all(|path| !path.exists()), "{at}");
        assert!(young.exists(), "{at}");
        std::fs::remove_file(young).unwrap();
    }
    let after = files_of(&place.path("there"));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}

#[test]
fn a_folder_to_which_a_push_has_not_ended_can_be_cleaned_by_path_and_by_url() {
    let (place, url, dir) = pushed();
    let key = dir.file_name().unwrap().to_str().unwrap();
    // The first objects of a push that was killed a week ago.
    for name in ["_COMPLETE", "partitions"] {
        let path = dir.join(name);
        let is_dir = path.is_dir();
        if is_dir { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
    }
    std::fs::remove_file(place.path("there/texts/current.json")).unwrap();
    for name in std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()) {
        if name.to_str().unwrap().starts_with("manifest-") {
            std::fs::remove_file(dir.join(name)).unwrap();
        }
    }
    let shard = std::fs::read_dir(dir.join("shards")).unwrap().next().unwrap().unwrap().path();
    for at in ["there/texts", &format!("there/texts/{key}"), &format!("{url}/{key}")] {
        let staged = leave(&place, &shard, "text.bin#1", 8 * DAY);
        let of_current = leave(&place, dir.parent().unwrap(), "current.json#1", 8 * DAY);
        let said = place.json(&["clean", at, "--yes"]);
        let listed = said["leftovers"].as_array().unwrap();
        let kinds: Vec<_> = listed.iter().map(|it| it["what"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["staged", "staged"], "{at}: what is young stays: {said}");
        assert!(!staged.exists() && !of_current.exists(), "{at}");
        assert!(shard.join("_COMPLETE").exists(), "{at}");
    }
    place.done(&["push", "data/texts", &url.replace("/texts", "")]);
    place.done(&["verify", "there/texts"]);
}

#[test]
fn a_push_waits_while_something_is_removed_at_a_folder_and_passes_over_what_was_killed_long_ago() {
    let (place, url, dir) = pushed();
    place.write("in/0.txt", "another");
    place.done(&["run", "p.toml", "--out", "data"]);
    let minute = Duration::from_mins(1);
    leave(&place, &dir, "pushing/clean-0.json", 21 * minute);
    let young = leave(&place, &dir, "pushing/clean-1.json", Duration::ZERO);
    let before = files_of(&dir.join("shards"));
    let args = ["push", "data/texts", &url.replace("/texts", "")];
    let mut command = place.command(&args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.find(|line| line.as_ref().unwrap().contains("waits")).unwrap().unwrap();
    assert!(line.contains("pushing/clean-1.json"), "{line}");
    assert_eq!(files_of(&dir.join("shards")), before);
    std::fs::remove_file(young).unwrap();
    assert_eq!(said.filter(|line| line.as_ref().unwrap().contains("error")).count(), 0);
    assert!(child.wait().unwrap().success());
    place.done(&["verify", "there/texts"]);
    // A removal by path says so as well, and takes it back.
    place.done(&["clean", "there/texts", "--yes", "--older-than=0s", "--keep=0"]);
    place.done(&["verify", "there/texts"]);
    let left = files_of(&dir.join("pushing"));
    assert_eq!(left.len(), 1, "the one that was killed: {:?}", left.keys());
}
