//! `rowmill verify` at a URL, and what was pushed on its way back.
#![allow(clippy::disallowed_methods, reason = "a test looks at files as another process left them")]

use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use serde_json::Value;

use super::command::{Place, Ran, files_of};
use super::datasets::{cache_key, command, folder, large, run, size, small};
use super::harness::wait;
use super::servers::{Bucket, Server};
use super::web::Web;

/// Pushes the dataset of `place`, and gives its cache key.
fn push(place: &Place, bucket: &Bucket) -> String {
    let args = ["push", "data/texts", &bucket.url("")];
    let ran = run(place, bucket, &bucket.endpoint(), &args);
    assert_eq!(ran.code, 0, "{ran:?}");
    cache_key(place, "texts")
}

#[test]
fn what_was_pushed_comes_back_and_is_verified_there() {
    for server in Server::all() {
        for place in [small(), large()] {
            let bucket = server.bucket();
            let (key, proxy) = (push(&place, &bucket), bucket.proxy());
            let url = bucket.url("texts");
            let rowmill = |args: &[&str]| {
                let ran = run(&place, &bucket, &proxy.endpoint(), args);
                assert_eq!(ran.code, 0, "{}: {args:?}: {ran:?}", server.name);
                ran.stdout
            };
            rowmill(&["pull", &url, "back", "--part-size", "1MiB"]);
            let (built, pulled) = (folder(&place, "data"), folder(&place, "back"));
            assert!(files_of(&built) == files_of(&pulled), "{}: other bytes", server.name);

            let bytes = size(&built);
            proxy.clear();
            let document: Value =
                serde_json::from_str(&rowmill(&["verify", &url, "--json"])).unwrap();
            assert_eq!(document["ok"], true, "{document}");
            // Every file once, and the small ones that tell what the others are.
            let got = proxy.got_bytes();
            assert!(got < bytes + bytes / 4 + 200_000, "{}: {got} of {bytes}", server.name);

            proxy.clear();
            assert!(rowmill(&["verify", &url, "--quick"]).contains("stored digests"));
            let got: u64 = proxy.requests().iter().map(|it| it.got_bytes).max().unwrap();
            assert!(got < 100_000, "{}: no large object is read: {got}", server.name);

            rowmill(&["verify", &format!("{url}/{key}")]);
            let id = place.json(&["inspect", "data/texts"])["shards"][0]["id"].clone();
            let shard = format!("{url}/{key}/shards/{}", id.as_str().unwrap());
            rowmill(&["verify", &shard]);
            rowmill(&["verify", &shard, "--quick"]);
        }
    }
}

#[test]
fn damage_in_a_store_is_found_and_named() {
    for server in Server::all() {
        let (place, bucket) = (large(), server.bucket());
        push(&place, &bucket);
        let (dir, store) = (folder(&place, "data"), bucket.store());
        let key = dir.file_name().unwrap().to_str().unwrap();
        let verify = |args: &[&str]| {
            let url = bucket.url("texts");
            let args = [&["verify", &url, "--json"], args].concat();
            Ran::of(command(&place, &bucket, &bucket.endpoint(), &args).output().unwrap())
        };
        for (name, how, spoil) in [
            ("/text.bin", "--jobs=1", (|b: &mut Vec<u8>| b[2_000_000] ^= 1) as fn(&mut Vec<u8>)),
            ("/text.bin", "--quick", |b| b.truncate(1_000_000)),
            ("/B3SUMS", "--quick", |b| b[0] ^= 1),
            ("manifest-", "--quick", |b| b[9] ^= 1),
            ("partitions/", "--jobs=2", |b| b[9] ^= 1),
        ] {
            let is_it = |path: &str| path.starts_with(name) || path.ends_with(name);
            let files = files_of(&dir).into_iter();
            let mut files = files.map(|(path, bytes)| (path.to_str().unwrap().to_owned(), bytes));
            let (path, good) = files.find(|(path, _)| is_it(path)).unwrap();
            let mut bytes = good.clone();
            spoil(&mut bytes);
            let object = Key::from(format!("texts/{key}/{path}"));
            wait(store.put(&object, bytes.into())).unwrap();
            let ran = verify(&[how]);
            assert_eq!(ran.code, 4, "{}: {path}: {ran:?}", server.name);
            let (shard, file) = path.rsplit_once('/').unwrap_or(("", &path));
            // Of sizes, what all files of a shard have together is known without reading them.
            let named = if name == "/text.bin" && how == "--quick" { shard } else { file };
            assert!(ran.stderr.contains(named), "{}: {path}: {ran:?}", server.name);
            wait(store.put(&object, good.into())).unwrap();
        }
        assert_eq!(verify(&[]).code, 0, "{}", server.name);
    }
}

#[test]
fn a_url_without_a_dataset_is_told_from_a_store_that_refuses() {
    for server in Server::all() {
        let (place, bucket) = (Place::new(), server.bucket());
        let verify = |secret: &str| {
            let url = bucket.url("none");
            let args = ["verify", &url];
            let mut command = command(&place, &bucket, &bucket.endpoint(), &args);
            Ran::of(command.env("AWS_SECRET_ACCESS_KEY", secret).output().unwrap())
        };
        verify(bucket.secret()).fails(2, &["there is no dataset or shard", "/none"]);
        verify("another").fails(1, &["/none"]);
        place
            .rowmill(&["verify", "data", "--quick"])
            .fails(2, &["--quick is for datasets at URLs"]);
    }
}

#[test]
fn a_web_server_that_cannot_list_is_enough_to_verify_and_pull() {
    let place = small();
    let folder = folder(&place, "data");
    let web = Web::new(place.path("data"));
    let url = web.url(&format!("texts/{}", folder.file_name().unwrap().to_str().unwrap()));
    for more in [&[][..], &["--quick"]] {
        let ran = place.rowmill(&[&["verify", &url], more].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    place.done(&["pull", &url, "back"]);
    assert!(files_of(&folder) == files_of(&super::datasets::folder(&place, "back")));

    let id = place.json(&["inspect", "data/texts"])["shards"][0]["id"].clone();
    let shard = folder.join("shards").join(id.as_str().unwrap());
    place.done(&["verify", &format!("{url}/shards/{}", id.as_str().unwrap())]);
    std::fs::remove_file(shard.join("shapes.json")).unwrap();
    place.rowmill(&["verify", &url]).fails(4, &["shapes.json", "is missing"]);
}
