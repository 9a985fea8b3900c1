//! `rowmill clean` of what was pushed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use futures::TryStreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

use super::command::{Place, Ran};
use super::datasets::{self, cache_key, command, folder, small};
use super::harness::wait;
use super::proxy::{Fault, Proxy, Request, Rule};
use super::servers::{Bucket, Server};

/// A shard that nothing names.
const STRAY: &str = "0123456789abcdef0123456789abcdef";

fn run(place: &Place, bucket: &Bucket, args: &[&str]) -> Ran {
    datasets::run(place, bucket, &bucket.endpoint(), args)
}

fn push(place: &Place, bucket: &Bucket) {
    let ran = run(place, bucket, &["push", "data/texts", &bucket.url("")]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

fn clean(place: &Place, bucket: &Bucket, endpoint: &str, more: &[&str]) -> Command {
    let url = bucket.url("texts");
    command(place, bucket, endpoint, &[&["clean", &url, "--json"], more].concat())
}

/// What is listed, by kind and name below the cache key.
fn cleaned(place: &Place, bucket: &Bucket, more: &[&str]) -> BTreeSet<(String, String)> {
    let ran = Ran::of(clean(place, bucket, &bucket.endpoint(), more).output().unwrap());
    assert_eq!(ran.code, 0, "{}: {ran:?}", bucket.server.name);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let url = format!("{}/", document["dataset"].as_str().unwrap());
    let text = |it: &Value| it.as_str().unwrap().replace(&url, "");
    let listed = document["leftovers"].as_array().unwrap();
    listed.iter().map(|it| (text(&it["what"]), text(&it["path"]))).collect()
}

fn names(bucket: &Bucket) -> BTreeSet<String> {
    let listed: Vec<_> = wait(bucket.store().list(None).try_collect()).unwrap();
    listed.into_iter().map(|meta| meta.location.to_string()).collect()
}

/// Three generations, of each of which another input is the first, and a shard that nothing names.
struct Generations {
    place: Place,
    bucket: Bucket,
    /// What there was after each push.
    names: Vec<BTreeSet<String>>,
    key: String,
}

impl Generations {
    fn of(server: &'static Server) -> Self {
        let (place, bucket) = (small(), server.bucket());
        let key = cache_key(&place, "texts");
        let mut all = Vec::new();
        for text in ["one\n", "two\n", "three\n"] {
            place.write("in/0.txt", text);
            place.done(&["run", "p.toml", "--out", "data"]);
            push(&place, &bucket);
            all.push(names(&bucket));
        }
        let it = Self { place, bucket, names: all, key };
        it.put(&format!("shards/{STRAY}/_COMPLETE"));
        it.put(&format!("shards/{STRAY}/x.bin"));
        it.place.done(&["clean", "data/texts", "--yes", "--keep=0"]);
        it
    }

    fn put(&self, name: &str) {
        let path = Key::from(format!("texts/{}/{name}", self.key));
        wait(self.bucket.store().put(&path, "text".into())).unwrap();
    }

    /// Objects that only the first two generations have.
    fn old(&self) -> BTreeSet<String> {
        self.names.iter().flatten().filter(|name| !self.is_of_last(name)).cloned().collect()
    }

    /// Whether the local dataset, which is of the last generation alone, has it.
    fn is_of_last(&self, name: &str) -> bool {
        let path = name.replace(&format!("texts/{}/", self.key), "");
        path == "texts/current.json" || folder(&self.place, "data").join(path).exists()
    }
}

#[test]
fn what_no_kept_generation_names_goes_and_nothing_else() {
    for server in Server::all() {
        let all = Generations::of(server);
        let (place, bucket) = (&all.place, &all.bucket);
        all.put("notes.txt");
        all.put(&format!("partitions/{STRAY}-0123456789abcdef.json"));
        let before = names(bucket);

        assert!(cleaned(place, bucket, &["--yes"]).is_empty(), "all of it is young");
        assert!(cleaned(place, bucket, &["--older-than=0s", "--keep=9"]).len() == 1, "the stray");
        let would = cleaned(place, bucket, &["--older-than=0s", "--keep=0"]);
        assert_eq!(names(bucket), before, "{}: only said", server.name);
        let kinds: Vec<&str> = would.iter().map(|(what, _)| what.as_str()).collect();
        let wanted = ["manifest", "manifest", "record", "record", "shard", "shard", "shard"];
        assert_eq!(kinds, wanted, "{would:?}");

        let gone = cleaned(place, bucket, &["--older-than=0s", "--keep=0", "--yes"]);
        assert_eq!(gone, would, "{}", server.name);
        let old = all.old();
        assert!(old.len() > 8, "{old:?}");
        let is_stray =
            |name: &&String| !old.contains(*name) && !name.contains(&format!("shards/{STRAY}"));
        let left: BTreeSet<_> = before.iter().filter(is_stray).cloned().collect();
        assert_eq!(names(bucket), left, "{}", server.name);
        assert_eq!(run(place, bucket, &["verify", &bucket.url("texts")]).code, 0);
        assert!(cleaned(place, bucket, &["--older-than=0s", "--keep=0", "--yes"]).is_empty());
    }
}

/// Begins an upload as another machine does, and sends a part of it.
fn begin(bucket: &Bucket, path: &str) -> (Key, String) {
    let path = Key::from(path);
    let upload = wait(bucket.store().create_multipart(&path)).unwrap();
    wait(bucket.store().put_part(&path, &upload, 0, "part".into())).unwrap();
    (path, upload)
}

fn is_begun(bucket: &Bucket, (path, upload): &(Key, String)) -> bool {
    wait(bucket.store().put_part(path, upload, 1, "more".into())).is_ok()
}

#[test]
fn uploads_that_others_have_begun_go_when_they_are_old() {
    for server in Server::all() {
        let (place, bucket) = (small(), server.bucket());
        push(&place, &bucket);
        let before = names(&bucket);
        let key = folder(&place, "data").file_name().unwrap().to_str().unwrap().to_owned();
        let name = format!("shards/{STRAY}/x.bin");
        let ours = begin(&bucket, &format!("texts/{key}/{name}"));
        let others: Vec<_> = [
            format!("texts/{key}/notes.bin"),
            format!("texts/{}/{name}", key.chars().rev().collect::<String>()),
            format!("other/texts/{key}/{name}"),
            format!("texts/{key}x/{name}"),
        ]
        .iter()
        .map(|path| begin(&bucket, path))
        .collect();

        let args = ["clean", &bucket.url("texts"), "--json"];
        let document: Value = serde_json::from_str(&run(&place, &bucket, &args).stdout).unwrap();
        let ran = run(&place, &bucket, &["clean", &bucket.url("texts")]);
        let note = "note       uploads that were begun and not completed are not seen: ";
        if server.name == "s3s-fs" {
            assert!(document["uploads_unlisted"].is_string(), "{document}");
            assert!(ran.stdout.contains(note) && ran.code == 0, "{ran:?}");
            assert!(cleaned(&place, &bucket, &["--yes"]).is_empty());
            continue;
        }
        // It says of all uploads that they were begun in November 2010.
        assert!(document["uploads_unlisted"].is_null(), "{document}");
        assert_eq!(document["leftovers"][0]["upload"], ours.1.as_str(), "{document}");
        assert_eq!(document["leftovers"][0]["begun"], "2010-11-10T20:48:33Z", "{document}");
        let row = format!("upload      2010-11-10  {name}\n");
        assert!(ran.stdout.contains(&row) && !ran.stdout.contains(note), "{ran:?}");
        let wanted = BTreeSet::from([("upload".to_owned(), name)]);
        assert_eq!(cleaned(&place, &bucket, &["--older-than=0s"]), wanted);
        assert!(cleaned(&place, &bucket, &["--older-than=30000d", "--yes"]).is_empty(), "young");
        assert!(is_begun(&bucket, &ours));
        assert_eq!(cleaned(&place, &bucket, &["--yes"]), wanted);
        assert!(!is_begun(&bucket, &ours));
        assert!(others.iter().all(|upload| is_begun(&bucket, upload)));
        assert_eq!(names(&bucket), before);
        assert!(cleaned(&place, &bucket, &["--yes"]).is_empty());
    }
}

/// Starts a command and kills it when one of its requests is held; whether one was.
fn killed(mut command: Command, proxy: &Proxy) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_held = |it: &Request| matches!(it.fault, Some(Fault::Held | Fault::HeldAnswer));
    let mut ended = None;
    proxy.wait("held request, or end", |all| {
        ended = child.try_wait().unwrap();
        ended.is_some() || all.iter().any(is_held)
    });
    if ended.is_none() {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    ended.is_none()
}

#[test]
fn a_removal_that_is_killed_leaves_what_counts_whole_and_is_finished_by_the_next() {
    for server in Server::all() {
        let all = Generations::of(server);
        let (place, bucket) = (&all.place, &all.bucket);
        let args = ["--older-than=0s", "--keep=0", "--yes"];
        for (n, fault) in
            [Fault::HeldAnswer, Fault::Held, Fault::HeldAnswer].into_iter().enumerate()
        {
            let proxy = bucket.proxy();
            proxy.inject(Rule::new(fault).on("DeleteObjects").after(n));
            assert!(killed(clean(place, bucket, &proxy.endpoint(), &args), &proxy), "{n}");
            drop(proxy);
            assert_eq!(run(place, bucket, &["verify", &bucket.url("texts")]).code, 0, "{n}");
            let mut stray = names(bucket);
            stray.retain(|name| name.contains(&format!("shards/{STRAY}")));
            let has_sentinel = stray.iter().any(|name| name.ends_with("_COMPLETE"));
            assert!(!has_sentinel || stray.len() == 2, "{}: half a shard", server.name);
        }
        cleaned(place, bucket, &args);
        let (old, left) = (all.old(), names(bucket));
        assert!(old.len() > 8 && old.is_disjoint(&left), "{}: {left:?}", server.name);
        assert!(
            !left.iter().any(|name| name.contains(STRAY) || name.contains("probe")),
            "{left:?}"
        );
    }
}

#[test]
fn nothing_goes_while_a_push_is_at_work() {
    for server in Server::all() {
        let all = Generations::of(server);
        let (place, bucket) = (&all.place, &all.bucket);
        place.write("in/0.txt", "four\n");
        place.done(&["run", "p.toml", "--out", "data"]);
        let proxy = bucket.proxy();
        proxy.inject(Rule::new(Fault::Held).on("PutObject").key(&format!("{}/_COMPLETE", all.key)));
        let args = ["push", "data/texts", &bucket.url("")];
        assert!(killed(command(place, bucket, &proxy.endpoint(), &args), &proxy));
        let before = names(bucket);
        // A push that was killed is as good as one that is at work, for an hour.
        let args = ["--older-than=0s", "--yes"];
        let ran = Ran::of(clean(place, bucket, &bucket.endpoint(), &args).output().unwrap());
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.stderr.contains("error[push-busy]: a push to"), "{ran:?}");
        assert_eq!(names(bucket), before, "{}", server.name);
        let ran = run(place, bucket, &["clean", &bucket.url("texts"), "--older-than=0s"]);
        assert!(ran.stdout.contains("a push is at work (pid "), "{ran:?}");

        push(place, bucket);
        assert!(!names(bucket).iter().any(|name| name.contains("/pushing/")), "{}", server.name);
        assert!(!cleaned(place, bucket, &args).is_empty());
        assert_eq!(run(place, bucket, &["verify", &bucket.url("texts")]).code, 0);
    }
}

/// Whether an object is there whose name holds this.
fn has(bucket: &Bucket, part: &str) -> bool {
    names(bucket).iter().any(|name| name.contains(part))
}

#[test]
fn a_removal_that_is_held_back_meets_no_push() {
    // Of the requests to delete the first is that of sentinels, the second that of a shard's files. Each server
    // meets both, and both a removal that goes on and one that is killed.
    for (i, server) in Server::all().enumerate() {
        for n in 0..2 {
            let is_killed = (i + n) % 2 == 1;
            let way = format!("{}, {n}, killed: {is_killed}", server.name);
            let (place, bucket) = (small(), server.bucket());
            push(&place, &bucket);
            // Nothing names the shards any more, but the dataset that is pushed again has them.
            for name in names(&bucket).iter().filter(|name| !name.contains("/shards/")) {
                wait(bucket.store().delete(&Key::parse(name).unwrap())).unwrap();
            }
            let proxy = bucket.proxy();
            proxy.inject(Rule::new(Fault::Held).on("DeleteObjects").after(n));
            let url = bucket.url(&format!("texts/{}", cache_key(&place, "texts")));
            let args = ["clean", &url, "--older-than=0s", "--yes"];
            let mut cleaning = command(&place, &bucket, &proxy.endpoint(), &args);
            if is_killed {
                assert!(killed(cleaning, &proxy), "{way}");
            } else {
                let cleaning =
                    cleaning.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
                proxy.wait("held request", |all| all.iter().any(|it| it.fault.is_some()));
                let pushing = waiting(&place, &bucket);
                proxy.release();
                let ran = Ran::of(cleaning.wait_with_output().unwrap());
                // Before files go it looks for pushes.
                assert!(n > 0 || ran.stderr.contains("error[push-busy]"), "{way}: {ran:?}");
                silence(&bucket);
                let ran = Ran::of(pushing.wait_with_output().unwrap());
                assert_eq!(ran.code, 0, "{way}: {ran:?}");
                assert_eq!(
                    run(&place, &bucket, &["verify", &bucket.url("texts")]).code,
                    0,
                    "{way}"
                );
                assert!(!has(&bucket, "/pushing/"), "{way}: {:?}", names(&bucket));
                continue;
            }
            // What it asked for may still come to pass, and the push is told that it has to wait.
            let before = names(&bucket);
            let pushing = waiting(&place, &bucket);
            signal(&pushing, "INT");
            let ran = Ran::of(pushing.wait_with_output().unwrap());
            assert_eq!(ran.code, 75, "{way}: {ran:?}");
            assert_eq!(names(&bucket), before, "{way}");
            proxy.release();
            proxy.wait("answer", |all| all.iter().any(|it| it.fault.is_some() && it.status == 200));
            assert_ne!(names(&bucket), before, "{way}");
            silence(&bucket);
            push(&place, &bucket);
            assert_eq!(run(&place, &bucket, &["verify", &bucket.url("texts")]).code, 0, "{way}");
        }
    }
}

/// Lets what removals have said be as if it were long ago. Where an answer came late, too, it is there still.
fn silence(bucket: &Bucket) {
    for name in names(bucket).iter().filter(|name| name.contains("/pushing/clean-")) {
        wait(bucket.store().delete(&Key::parse(name).unwrap())).unwrap();
    }
}

/// A push that has said that it is at work, and waits.
fn waiting(place: &Place, bucket: &Bucket) -> Child {
    let args = ["push", "data/texts", &bucket.url("")];
    let mut command = command(place, bucket, &bucket.endpoint(), &args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("this push waits until it ends") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it did not wait");
    }
    child.stderr = Some(said.into_inner());
    child
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
}

#[test]
fn places_without_a_dataset_say_so() {
    let Some(server) = Server::all().next() else { return };
    let (place, bucket) = (Place::new(), server.bucket());
    run(&place, &bucket, &["clean", &bucket.url("none")]).fails(2, &["neither a cache key nor"]);
    let key = bucket.url("none/0123456789abcdef");
    run(&place, &bucket, &["clean", &key]).fails(2, &["there is nothing to clean"]);
    run(&place, &bucket, &["clean", &key, "--yes"]).fails(2, &["there is nothing to clean"]);
    assert!(names(&bucket).is_empty(), "{}", server.name);
    run(&place, &bucket, &["clean", &key, "--keys"])
        .fails(2, &["--keys is for datasets on a disk"]);
}
