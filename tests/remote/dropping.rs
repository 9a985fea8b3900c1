//! Shards whose rows are only in a bucket: dropped as they are pushed, read no more, brought back.
#![allow(clippy::disallowed_methods, reason = "a test looks at files as another process left them")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use object_store::ObjectStoreExt;
use serde_json::Value;

use super::command::{Place, Ran, files_of};
use super::datasets::{cache_key, run};
use super::harness::wait;
use super::proxy::{Fault, Request, Rule};
use super::servers::{Bucket, Server};

/// Most files are a partition, and two rows a shard.
const DEFINITION: &str = r#"version = 1
name = "words"

[sources.lines]
type = "jsonl"
root = "in"
path = "*.jsonl"
on_error = "quarantine"

[dataset]
key = "id"
partition_bytes = 150
shard_rows = 2

[dataset.fields]
word = { intern = true, sidecar = "words.json" }
"#;

const RUN: [&str; 2] = ["run", "p.toml"];

/// A folder with a definition, which pushes to the bucket and drops, and its inputs.
fn place(bucket: &Bucket, n_files: usize) -> Place {
    let place = Place::new();
    define(&place, bucket, "prefix");
    for file in 0..n_files {
        let row = |n: usize| {
            let word = ["one", "two"][n % 2];
            format!("{{\"id\": \"{file}-{n}\", \"word\": \"{word}\", \"x\": {n}}}\n")
        };
        place.write(&format!("in/{file}.jsonl"), format!("{}?\n{}{}", row(0), row(1), row(2)));
    }
    place
}

fn define(place: &Place, bucket: &Bucket, prefix: &str) {
    let url = bucket.url(prefix);
    let push = format!("{DEFINITION}\n[push]\nurl = \"{url}\"\ndrop_local = true\n");
    place.write("p.toml", push);
    place.write("plain.toml", DEFINITION);
}

/// What a build comes to that pushes nothing.
fn plain(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    place.done(&["run", "plain.toml", "--out", "plain"]);
    files_of(&place.path("plain"))
}

/// The environment of somebody whom the store does not know.
fn wrong(bucket: &Bucket) -> Vec<(&'static str, String)> {
    let of = |(name, value)| {
        (name, if name == "AWS_SECRET_ACCESS_KEY" { "other".into() } else { value })
    };
    bucket.environment(&bucket.endpoint()).map(of).to_vec()
}

/// Runs what has to succeed.
#[track_caller]
fn done(place: &Place, bucket: &Bucket, args: &[&str]) -> Ran {
    let ran = run(place, bucket, &bucket.endpoint(), args);
    assert_eq!(ran.code, 0, "{}: {args:?}: {ran:?}", bucket.server.name);
    ran
}

/// Checks that of every shard the rows are gone, and nothing else.
#[track_caller]
fn are_gone(place: &Place, plain: &BTreeMap<PathBuf, Vec<u8>>) {
    let is_of_rows = |path: &Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let gone = ["_COMPLETE", "index.parquet", "x.bin", "x.valid.bin", "word.codes.bin"]
            .contains(&name);
        gone && path.iter().any(|part| part == "shards")
    };
    let mut want = plain.clone();
    want.retain(|path, _| !is_of_rows(path));
    let (remote, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
        files_of(&place.path("data")).into_iter().partition(|(path, _)| path.ends_with("_REMOTE"));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<BTreeSet<_>>();
    let differ: Vec<_> = names(&rest).symmetric_difference(&names(&want)).cloned().collect();
    assert!(rest == want, "{differ:?}");
    assert_eq!(remote.len(), n_shards(plain));
}

fn n_shards(files: &BTreeMap<PathBuf, Vec<u8>>) -> usize {
    files.keys().filter(|path| path.ends_with("B3SUMS")).count()
}

/// Brings everything back, and checks that it is what was built.
#[track_caller]
fn come_back(place: &Place, bucket: &Bucket, plain: &BTreeMap<PathBuf, Vec<u8>>) {
    done(place, bucket, &["pull", &bucket.url("prefix/words"), "data"]);
    let back = files_of(&place.path("data"));
    assert!(back == *plain, "{}: {:?}", bucket.server.name, back.keys());
    place.done(&["verify", "data/words"]);
}

fn is_change(it: &Request) -> bool {
    !["ListObjects", "GetObject", "HeadObject"].contains(&it.operation)
}

#[test]
fn rows_go_as_they_are_pushed_and_come_back_the_same() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = place(&bucket, 2);
        let plain = plain(&place);
        let n_shards = n_shards(&plain);
        let ran = done(&place, &bucket, &RUN);
        assert!(
            ran.stdout.contains(&format!("dropped    the rows of {n_shards} shards")),
            "{ran:?}"
        );
        are_gone(&place, &plain);

        let proxy = bucket.proxy();
        for args in [&RUN[..], &["push", "p.toml", &bucket.url("prefix"), "--drop-local"]] {
            let again = run(&place, &bucket, &proxy.endpoint(), args);
            assert_eq!(again.code, 0, "{again:?}");
            let sent: Vec<_> = proxy.requests().into_iter().filter(is_change).collect();
            assert!(sent.is_empty(), "{}: {args:?}: {sent:#?}", server.name);
            are_gone(&place, &plain);
        }

        // What a drop that was cut off has left goes with the next run.
        let is_left = |path: &&PathBuf| path.ends_with("x.bin");
        let left = plain.keys().find(is_left).unwrap();
        place.write(&format!("data/{}", left.display()), &plain[left]);
        done(&place, &bucket, &RUN);
        are_gone(&place, &plain);

        let url = bucket.url("prefix/words");
        for args in [
            &["cat", "WORDS"][..],
            &["cat", "WORDS", "--rows", "4,0..2,5,0", "--columns", "x,word,id"],
            &["inspect", "WORDS", "--row", "1"],
            &["inspect", "WORDS", "--key", "1-2"],
        ] {
            let of = |at: &'static str| -> Vec<&str> {
                args.iter().map(|arg| if *arg == "WORDS" { at } else { *arg }).collect()
            };
            let want = place.done(&of("plain/words")).stdout;
            assert_eq!(done(&place, &bucket, &of("data/words")).stdout, want, "{args:?}");
            let refused = place.command(&of("data/words")).envs(wrong(&bucket)).output();
            Ran::of(refused.unwrap()).fails(1, &["error[remote-credentials]", &url]);
        }
        // What is here needs no store.
        place.done(&["cat", "data/words", "--columns", "id"]);
        let verified = place.done(&["verify", "data/words"]);
        let want = format!("not checked: the rows of {n_shards} shards");
        assert!(verified.stdout.contains(&want), "{verified:?}");
        assert!(verified.stdout.contains(&format!("`rowmill verify {url}")), "{verified:?}");
        let status = place.json(&["status", "data/words"]);
        assert_eq!(status["generation"]["remote"]["shards"], n_shards, "{status}");
        let inspected = place.json(&["inspect", "data/words"]);
        assert_eq!((&inspected["rows"], &inspected["rejects"][0]["rows"]), (&6.into(), &2.into()));
        let shards = inspected["shards"].as_array().unwrap();
        assert!(shards.iter().all(|it| it["url"].as_str().unwrap().starts_with(&url)));
        done(&place, &bucket, &["verify", &url]);

        done(&place, &bucket, &["pull", &url, "data", "--shards", "1"]);
        let status = place.json(&["status", "data/words"]);
        assert_eq!(status["generation"]["remote"]["shards"], n_shards - 1, "{status}");
        let row = place.json(&["inspect", "data/words", "--key", "0-2"]);
        assert_eq!(row["values"]["x"], 2, "{row}");
        come_back(&place, &bucket, &plain);

        let pushed = ["push", "p.toml", &bucket.url("prefix"), "--drop-local", "--json"];
        let pushed: Value = serde_json::from_str(&done(&place, &bucket, &pushed).stdout).unwrap();
        assert_eq!(
            (&pushed["sent_objects"], &pushed["dropped_shards"]),
            (&0.into(), &n_shards.into())
        );
        are_gone(&place, &plain);
    }
}

#[test]
fn a_run_killed_at_any_request_goes_on_and_drops_all() {
    for server in Server::all() {
        let (plain, n_requests) = {
            let bucket = server.bucket();
            let (place, proxy) = (place(&bucket, 1), bucket.proxy());
            let ran = run(&place, &bucket, &proxy.endpoint(), &RUN);
            assert_eq!(ran.code, 0, "{ran:?}");
            (plain(&place), proxy.requests().len())
        };
        for n in (0..n_requests).step_by(n_requests / 3) {
            let bucket = server.bucket();
            let place = place(&bucket, 1);
            for fault in [Fault::Held, Fault::HeldAnswer] {
                let proxy = bucket.proxy();
                proxy.inject(Rule::new(fault).after(n));
                kill_at_fault(&place, &bucket, &proxy);
            }
            done(&place, &bucket, &RUN);
            are_gone(&place, &plain);
            come_back(&place, &bucket, &plain);
        }
    }
}

/// Runs until a request is held, and ends it with SIGKILL then.
fn kill_at_fault(place: &Place, bucket: &Bucket, proxy: &super::proxy::Proxy) {
    let mut command = place.command(&RUN);
    command.envs(bucket.environment(&proxy.endpoint()));
    let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if proxy.requests().iter().any(|it| it.fault.is_some()) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn what_is_only_in_one_bucket_goes_to_no_other_and_what_is_lost_is_built_again() {
    let Some(server) = Server::all().next() else { return };
    let bucket = server.bucket();
    let place = place(&bucket, 2);
    let plain = plain(&place);
    done(&place, &bucket, &RUN);

    let proxy = bucket.proxy();
    let elsewhere = bucket.url("other");
    let refused = run(&place, &bucket, &proxy.endpoint(), &["push", "p.toml", &elsewhere]);
    refused.fails(2, &["and not where this push goes", "bring them back first: `rowmill pull"]);
    define(&place, &bucket, "other");
    place.write("in/3.jsonl", "{\"id\": \"3-0\", \"word\": \"three\", \"x\": 0}\n");
    let refused = run(&place, &bucket, &proxy.endpoint(), &RUN);
    refused.fails(2, &["and not where this push goes"]);
    assert!(!proxy.requests().iter().any(is_change), "{:#?}", proxy.requests());
    define(&place, &bucket, "prefix");
    std::fs::remove_file(place.path("in/3.jsonl")).unwrap();

    let shards = place.current("data", "words").join("shards");
    let shard = std::fs::read_dir(shards).unwrap().next().unwrap().unwrap().path();
    let key = cache_key(&place, "words");
    let id = shard.file_name().unwrap().to_str().unwrap();
    let sentinel = format!("prefix/words/{key}/shards/{id}/_COMPLETE");
    wait(bucket.store().delete(&sentinel.into())).unwrap();
    let lost = run(&place, &bucket, &bucket.endpoint(), &RUN);
    lost.fails(4, &["is not there any more, and its rows are not here", "push-lost"]);
    std::fs::remove_dir_all(&shard).unwrap();
    done(&place, &bucket, &RUN);
    are_gone(&place, &plain);
    come_back(&place, &bucket, &plain);
}
