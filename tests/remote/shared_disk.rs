//! A folder that was pushed to by `file://`, and is opened by its path.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test leaves what a process that was killed does"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::path::PathBuf;
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
        let below = |path: &str| path.rsplit_once(&format!("{key}/")).unwrap().1.to_owned();
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
