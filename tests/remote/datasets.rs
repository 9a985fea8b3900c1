//! Datasets that are small and have all kinds of files, and how they come into a bucket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::TryStreamExt;
use futures::future::try_join_all;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::json;

use super::command::{Place, Ran, TEXTS, files_of, joined};
use super::harness::wait;
use super::servers::Bucket;

/// A dataset `blobs`: each file is a partition of one row.
pub(crate) const BLOBS: &str = include_str!("blobs.toml");

/// Rows of every kind of field.
const KINDS: &str = r#"
version = 1
name = "kinds"

[sources.rows]
type = "jsonl"
root = "in"
path = "*.jsonl"
types = { n = "int32" }

[dataset]
key = "id"
partition_bytes = "4KiB"
shard_rows = 20
max_row_bytes = "1MiB"
on_error = "quarantine"

[dataset.fields]
grid = { kind = "free", dtype = "int16" }
kind = { intern = true }
answer = { categorical = ["no", "yes"] }
"#;

/// A folder with the dataset `texts` in `data`: some shards of a few rows.
pub(crate) fn small() -> Place {
    let place = Place::of_texts(4);
    place.done(&["run", "p.toml", "--out", "data"]);
    place
}

/// The same of one shard whose largest file is read in several parts of 1 MiB.
pub(crate) fn large() -> Place {
    let place = Place::new();
    place.write("p.toml", TEXTS.replace("partition_bytes = 1", "partition_bytes = \"1GiB\""));
    for i in 0..80 {
        let lines = joined((0..2800).map(|n| format!("line {n} of file {i}\n")));
        place.write(&format!("in/n{i}.txt"), &lines[..54_000]);
    }
    place.done(&["run", "p.toml", "--out", "data"]);
    place
}

/// A dataset `kinds` in `data` with every kind of field, nulls, a key and rejects, in some shards.
pub(crate) fn kinds() -> Place {
    let place = Place::new();
    place.write("p.toml", KINDS);
    for file in 0..3_u16 {
        let lines = (0..70).map(|n| {
            let row = file * 70 + n;
            let grid: Vec<Vec<u16>> = vec![(0..row % 4).collect(); usize::from(row % 3)];
            let kind = ["ape", "bee", "cat"].get(usize::from(row % 4));
            let line = json!({
                "id": format!("row-{row}"),
                "n": row * 7,
                "x": (row % 5 > 0).then_some(f64::from(row) / 8.0),
                "list": (0..row % 6).map(|i| f64::from(i) * 0.5).collect::<Vec<_>>(),
                "grid": grid,
                "kind": kind,
                "answer": if row == 100 { "perhaps" } else { ["no", "yes"][usize::from(row % 2)] },
            });
            format!("{line}\n")
        });
        place.write(&format!("in/{file}.jsonl"), joined(lines));
    }
    place.done(&["run", "p.toml", "--out", "data"]);
    place
}

/// The folder of the cache key of the dataset below `out`.
pub(crate) fn folder(place: &Place, out: &str) -> PathBuf {
    place.current(out, "texts")
}

/// The cache key of the dataset `name` in `data`.
pub(crate) fn cache_key(place: &Place, name: &str) -> String {
    place.current("data", name).file_name().unwrap().to_str().unwrap().to_owned()
}

/// What a bucket holds after a push of the dataset `name`, which is in `data`, to `prefix`.
pub(crate) fn pushed(place: &Place, name: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<String, Vec<u8>> = files_of(&place.path("data"))
        .into_iter()
        .map(|(path, bytes)| (format!("prefix/{}", path.display()), bytes))
        .collect();
    let current = format!("{{\n  \"cache_key\": \"{}\"\n}}\n", cache_key(place, name));
    files.insert(format!("prefix/{name}/current.json"), current.into_bytes());
    files
}

/// Everything that the bucket holds, by name.
pub(crate) fn found(bucket: &Bucket) -> BTreeMap<String, Vec<u8>> {
    wait(async {
        let store = bucket.store();
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        let mut files = BTreeMap::new();
        for meta in listed {
            let got = store.get(&meta.location).await.unwrap().bytes().await.unwrap();
            files.insert(meta.location.to_string(), got.to_vec());
        }
        files
    })
}

/// Puts the dataset of `place` into the bucket, as a push does, and gives its cache key.
pub(crate) fn lay(place: &Place, bucket: &Bucket) -> String {
    lay_named(place, bucket, "texts")
}

/// The same of the dataset `name`.
pub(crate) fn lay_named(place: &Place, bucket: &Bucket, name: &str) -> String {
    let (dir, store) = (place.current("data", name), bucket.store());
    let key = cache_key(place, name);
    let current = json!({"cache_key": key}).to_string();
    wait(async {
        let put = files_of(&dir).into_iter().map(|(path, bytes)| {
            let to = Key::from(format!("{name}/{key}/{}", path.display()));
            let store = &store;
            async move { store.put(&to, bytes.into()).await }
        });
        try_join_all(put).await.unwrap();
        store.put(&Key::from(format!("{name}/current.json")), current.into()).await.unwrap();
    });
    key
}

/// A command in `place` that reaches the bucket through `endpoint`.
pub(crate) fn command(place: &Place, bucket: &Bucket, endpoint: &str, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.envs(bucket.environment(endpoint));
    command
}

/// What it did, which does not tell the secret of the bucket.
#[track_caller]
pub(crate) fn run(place: &Place, bucket: &Bucket, endpoint: &str, args: &[&str]) -> Ran {
    let ran = Ran::of(command(place, bucket, endpoint, args).output().unwrap());
    assert!(!format!("{ran:?}").contains(bucket.secret()), "{ran:?}");
    ran
}

/// The bytes of all files of a dataset below `dir`.
pub(crate) fn size(dir: &Path) -> u64 {
    files_of(dir).values().map(|bytes| bytes.len() as u64).sum()
}
