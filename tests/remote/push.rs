//! `rowmill push` to real servers.
#![allow(clippy::disallowed_methods, reason = "a test looks at files as another process left them")]

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};

use super::command::{Place, Ran, copy};
use super::datasets::{self, BLOBS, cache_key, found, pushed};
use super::harness::wait;
use super::proxy::{Fault, Proxy, Request, Rule};
use super::servers::{Bucket, Server};

/// The smallest that stores take.
const PART: u64 = 5 << 20;

const PUSH: [&str; 3] = ["push", "p.toml", "--part-size=5MiB"];

/// A folder with a dataset that is built: small files, and one of three parts.
fn place() -> Place {
    of_bytes(11 << 20)
}

/// The same with a file of this size beside the small ones.
fn of_bytes(n: usize) -> Place {
    let place = Place::new();
    place.write("in/b", bytes(n));
    built(place)
}

/// A folder with a dataset whose files are all small.
fn small() -> Place {
    built(Place::new())
}

fn built(place: Place) -> Place {
    place.write("p.toml", BLOBS);
    place.write("in/a", "small");
    place.done(&["run", "p.toml"]);
    place
}

fn bytes(n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// A copy of the folder, as another machine would have it.
fn elsewhere(place: &Place) -> Place {
    let other = Place::new();
    copy(&place.path(""), &other.path(""));
    other
}

fn command(place: &Place, bucket: &Bucket, endpoint: &str, more: &[&str]) -> Command {
    let url = bucket.url("prefix");
    datasets::command(place, bucket, endpoint, &[&PUSH[..], &[url.as_str()], more].concat())
}

fn push(place: &Place, bucket: &Bucket, endpoint: &str) -> Ran {
    datasets::run(place, bucket, endpoint, &[&PUSH[..], &[bucket.url("prefix").as_str()]].concat())
}

/// Pushes through a proxy, and holds what came to the bucket against what was built.
#[track_caller]
fn arrives(place: &Place, bucket: &Bucket, proxy: &Proxy) {
    let ran = push(place, bucket, &proxy.endpoint());
    assert_eq!(ran.code, 0, "{}: {ran:?}", bucket.server.name);
    assert!(found(bucket) == wanted(place), "{}: {:?}", bucket.server.name, found(bucket).keys());
}

fn wanted(place: &Place) -> BTreeMap<String, Vec<u8>> {
    pushed(place, "blobs")
}

/// Requests that change something.
fn changes(requests: &[Request]) -> Vec<&Request> {
    let only_looks = ["ListObjects", "GetObject", "HeadObject"];
    requests.iter().filter(|it| !only_looks.contains(&it.operation)).collect()
}

fn size(place: &Place) -> u64 {
    wanted(place).values().map(|bytes| bytes.len() as u64).sum()
}

#[test]
fn everything_arrives_and_a_second_push_sends_nothing() {
    for server in Server::all() {
        let (place, bucket) = (place(), server.bucket());
        let proxy = bucket.proxy();
        arrives(&place, &bucket, &proxy);
        assert_eq!(proxy.count("UploadPart"), 3, "{}", server.name);
        let is_sentinel =
            |it: &Request| it.key.ends_with("/_COMPLETE") && it.operation == "PutObject";
        let last = proxy.requests().into_iter().rfind(is_sentinel).unwrap();
        assert!(!last.key.contains("/shards/"), "the dataset's is the last: {last:?}");

        proxy.clear();
        arrives(&place, &bucket, &proxy);
        assert!(changes(&proxy.requests()).is_empty(), "{}: {:?}", server.name, proxy.requests());

        // A machine without the journal looks at each object; what it sends are the two probes.
        proxy.clear();
        let other = elsewhere(&place);
        std::fs::remove_dir_all(other.current("data", "blobs").join("work")).unwrap();
        arrives(&other, &bucket, &proxy);
        let requests = proxy.requests();
        let sent = changes(&requests);
        assert!(sent.iter().all(|it| it.key.contains("/partitions/")), "{}: {sent:?}", server.name);
        assert!(sent.len() <= 2, "{}: {sent:?}", server.name);
    }
}

#[test]
fn a_part_may_take_longer_than_a_store_has_to_answer() {
    let Some(server) = Server::s3s_fs() else { return };
    let (place, bucket) = (place(), server.bucket());
    let proxy = bucket.proxy();
    let late = Fault::Stall(Duration::from_secs(4));
    proxy.inject(Rule::new(late).on("UploadPart").times(3));
    let endpoint = proxy.endpoint();
    let mut command = command(&place, &bucket, &endpoint, &[]);
    let ran = Ran::of(command.env("AWS_READ_TIMEOUT", "1s").output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(proxy.count("UploadPart"), 3, "nothing was sent again");

    // What has nothing to send is given up then, and asked again.
    proxy.clear();
    proxy.inject(Rule::new(Fault::Held).on("GetObject"));
    let url = bucket.url("prefix/blobs");
    let mut command = datasets::command(&place, &bucket, &endpoint, &["status", &url]);
    let ran = Ran::of(command.env("AWS_READ_TIMEOUT", "1s").output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(proxy.requests().iter().any(|it| it.fault.is_some()), "{:?}", proxy.requests());
}

/// Starts a push and ends it with SIGKILL when it waits for an answer that does not come.
fn killed(place: &Place, bucket: &Bucket, proxy: &Proxy) -> bool {
    let mut command = command(place, bucket, &proxy.endpoint(), &[]);
    let mut child: Child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let is_held = |it: &Request| matches!(it.fault, Some(Fault::Held | Fault::HeldAnswer));
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success());
            return false;
        }
        if proxy.requests().iter().any(is_held) {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn a_push_killed_at_any_request_goes_on() {
    for server in Server::all() {
        let built = small();
        let n_requests = {
            let (place, bucket) = (elsewhere(&built), server.bucket());
            let proxy = bucket.proxy();
            arrives(&place, &bucket, &proxy);
            proxy.requests().len()
        };
        // One folder and one bucket, killed again and again, and a new one at each request.
        for n in (0..n_requests).step_by(5) {
            let (place, bucket) = (elsewhere(&built), server.bucket());
            let mut sent = 0;
            for fault in [Fault::Held, Fault::HeldAnswer] {
                let proxy = bucket.proxy();
                proxy.inject(Rule::new(fault).after(n));
                killed(&place, &bucket, &proxy);
                sent += proxy.sent_bytes();
            }
            let proxy = bucket.proxy();
            arrives(&place, &bucket, &proxy);
            sent += proxy.sent_bytes();
            let most = 2 * size(&place);
            assert!(sent <= most, "{} at {n}: {sent} of {}", server.name, size(&place));
        }
    }
}

#[test]
fn a_push_killed_within_a_file_sends_only_what_is_missing() {
    for server in Server::all() {
        let (place, bucket) = (place(), server.bucket());
        let proxy = bucket.proxy();
        // Two parts have arrived, the last one has not.
        proxy.inject(Rule::new(Fault::Held).on("UploadPart").after(2));
        assert!(killed(&place, &bucket, &proxy));
        let before = proxy.requests();
        let done = |it: &&Request| it.operation == "UploadPart" && it.status == 200;
        let parts = before.iter().filter(done).count();
        let proxy = bucket.proxy();
        arrives(&place, &bucket, &proxy);
        // A part that was answered may not have been noted yet.
        assert!(proxy.count("UploadPart") + parts <= 3 + 2, "{}", server.name);
        assert_eq!(proxy.count("CreateMultipartUpload"), 0, "{}", server.name);
    }
}

#[test]
fn whatever_the_network_does_the_push_arrives() {
    let built = of_bytes((5 << 20) + 17);
    for (n, server) in Server::all().enumerate() {
        let faults = [
            (Fault::CutRequest(PART / 2), "UploadPart"),
            (Fault::CutAnswer(20), "UploadPart"),
            (Fault::LostAnswer, "UploadPart"),
            (Fault::LostAnswer, "CompleteMultipartUpload"),
            (Fault::CutAnswer(200), "CompleteMultipartUpload"),
            (Fault::NoSuchUpload, "CompleteMultipartUpload"),
            (Fault::NoSuchUpload, "UploadPart"),
            (Fault::SentTwice, "CompleteMultipartUpload"),
            (Fault::LostAnswer, "CreateMultipartUpload"),
            (Fault::Internal, "PutObject"),
            (Fault::SlowDown, "PutObject"),
            (Fault::LostAnswer, "PutObject"),
            (Fault::WrongEtag, "PutObject"),
            (Fault::CutAnswer(100), "ListObjects"),
            (Fault::Internal, "HeadObject"),
        ];
        // Each server gets every other, and the next one those between.
        for (fault, operation) in faults.into_iter().skip(n % 2).step_by(2) {
            let (place, bucket) = (elsewhere(&built), server.bucket());
            let proxy = bucket.proxy();
            proxy.inject(Rule::new(fault.clone()).on(operation).times(2));
            let way = format!("{}: {fault:?} of {operation}", server.name);
            let ran = push(&place, &bucket, &proxy.endpoint());
            assert!(ran.code <= 1, "{way}: {ran:?}");
            if ran.code == 1 {
                proxy.clear();
                arrives(&place, &bucket, &proxy);
            }
            assert!(found(&bucket) == wanted(&place), "{way}");
        }
    }
}

#[test]
fn a_lost_answer_to_complete_is_settled_by_looking() {
    for server in Server::all() {
        let (place, bucket) = (place(), server.bucket());
        let proxy = bucket.proxy();
        proxy.inject(Rule::new(Fault::LostAnswer).on("CompleteMultipartUpload").times(1));
        arrives(&place, &bucket, &proxy);
        assert_eq!(proxy.count("UploadPart"), 3, "{}: nothing is sent again", server.name);
    }
}

#[test]
fn what_is_another_is_refused_by_name() {
    for server in Server::all() {
        let (place, bucket) = (small(), server.bucket());
        let proxy = bucket.proxy();
        arrives(&place, &bucket, &proxy);
        let wanted = wanted(&place);
        let (name, _) = wanted.iter().find(|(_, bytes)| bytes.as_slice() == b"small").unwrap();
        wait(bucket.store().put(&Path::parse(name).unwrap(), "smell".into())).unwrap();
        let ran = push(&place, &bucket, &proxy.endpoint());
        let url = name.replace("prefix/", &format!("{}/", bucket.url("prefix")));
        ran.fails(4, &["error[push-conflict]", url.as_str(), "--replace"]);
        let replacing = command(&place, &bucket, &proxy.endpoint(), &["--replace"]).output();
        assert_eq!(Ran::of(replacing.unwrap()).code, 0, "{}", server.name);
        assert!(found(&bucket) == wanted, "{}", server.name);
    }
}

/// The digits of the generation that is built, as people read them.
fn generation(place: &Place) -> String {
    let sentinel = std::fs::read(place.current("data", "blobs").join("_COMPLETE")).unwrap();
    let sentinel: serde_json::Value = serde_json::from_slice(&sentinel).unwrap();
    sentinel["manifest_b3"].as_str().unwrap()[..16].to_owned()
}

#[test]
fn of_two_generations_the_later_is_refused_and_named() {
    let Some(server) = Server::moto() else { return };
    let (one, bucket) = (small(), server.bucket());
    let other = elsewhere(&one);
    other.write("in/a", "another");
    other.done(&["run", "p.toml"]);
    let key = cache_key(&one, "blobs");
    // The first is cut off right before its commit; then comes the other.
    let proxy = bucket.proxy();
    proxy.inject(Rule::new(Fault::Held).on("PutObject").key(&format!("{key}/_COMPLETE")));
    assert!(killed(&one, &bucket, &proxy));
    let proxy = bucket.proxy();
    assert_eq!(push(&other, &bucket, &proxy.endpoint()).code, 0);
    let ran = push(&one, &bucket, &proxy.endpoint());
    ran.fails(3, &["error[push-overtaken]", &generation(&one), &generation(&other)]);
}

#[test]
fn a_store_that_is_away_for_ten_seconds_is_waited_for() {
    let Some(server) = Server::all().next() else { return };
    let (place, bucket) = (small(), server.bucket());
    let proxy = bucket.proxy();
    proxy.away(Duration::from_secs(10));
    arrives(&place, &bucket, &proxy);
    assert!(proxy.requests().iter().any(|it| it.status == 503));
}

#[test]
fn an_upload_that_the_store_does_not_know_is_begun_anew() {
    for server in Server::all() {
        for is_gone in [true, false] {
            if is_gone && server.name == "moto" {
                // Moto fails where it does not know an upload.
                continue;
            }
            let (place, bucket) = (of_bytes((5 << 20) + 17), server.bucket());
            let proxy = bucket.proxy();
            proxy.inject(Rule::new(Fault::Held).on("CompleteMultipartUpload"));
            assert!(killed(&place, &bucket, &proxy));
            let requests = proxy.requests();
            let part = requests.iter().find(|it| it.operation == "UploadPart").unwrap();
            let upload = part.query.split('&').find_map(|it| it.strip_prefix("uploadId="));
            let upload = upload.unwrap().to_owned();
            let proxy = bucket.proxy();
            if is_gone {
                let path = Path::parse(&part.key).unwrap();
                wait(bucket.store().abort_multipart(&path, &upload)).unwrap();
            } else {
                proxy.inject(Rule::new(Fault::Denied).on("CompleteMultipartUpload"));
            }
            arrives(&place, &bucket, &proxy);
            assert_eq!(proxy.count("CreateMultipartUpload"), 1, "{} {is_gone}", server.name);
        }
    }
}

#[test]
fn an_upload_of_what_the_dataset_has_no_more_is_aborted() {
    for server in Server::all() {
        let (place, bucket) = (of_bytes((5 << 20) + 17), server.bucket());
        let proxy = bucket.proxy();
        proxy.inject(Rule::new(Fault::Held).on("CompleteMultipartUpload"));
        assert!(killed(&place, &bucket, &proxy));
        place.write("in/b", "small now");
        place.done(&["run", "p.toml"]);
        let proxy = bucket.proxy();
        let ran = push(&place, &bucket, &proxy.endpoint());
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        assert_eq!(proxy.count("AbortMultipartUpload"), 1, "{}", server.name);
    }
}

#[test]
fn replacing_mends_what_only_its_bytes_give_away() {
    for server in Server::all() {
        let (place, bucket) = (small(), server.bucket());
        let proxy = bucket.proxy();
        arrives(&place, &bucket, &proxy);
        let wanted = wanted(&place);
        let (name, bytes) = wanted.iter().find(|(_, bytes)| *bytes == b"small").unwrap();
        let digest = blake3::hash(bytes).to_hex().to_string();
        let attributes = Attributes::from_iter([(Attribute::Metadata("b3".into()), digest)]);
        let options = PutOptions { attributes, ..PutOptions::default() };
        let path = Path::parse(name).unwrap();
        wait(bucket.store().put_opts(&path, "smell".into(), options)).unwrap();
        let verify = || {
            let url = bucket.url("prefix/blobs");
            datasets::run(&place, &bucket, &bucket.endpoint(), &["verify", &url])
        };
        verify().fails(4, &["--replace"]);
        let replacing = command(&place, &bucket, &proxy.endpoint(), &["--replace"]).output();
        assert_eq!(Ran::of(replacing.unwrap()).code, 0, "{}", server.name);
        assert!(found(&bucket) == wanted, "{}", server.name);
        assert_eq!(verify().code, 0, "{}", server.name);

        // What is no file of the shard is told, and left to whoever put it there.
        let (folder, _) = name.rsplit_once('/').unwrap();
        let stray = Path::parse(format!("{folder}/notes.txt")).unwrap();
        wait(bucket.store().put(&stray, "mine".into())).unwrap();
        for more in [&[][..], &["--replace"]] {
            let ran = command(&place, &bucket, &proxy.endpoint(), more).output().unwrap();
            Ran::of(ran).fails(4, &["error[push-conflict]", "/notes.txt", "delete it"]);
        }
        verify().fails(4, &["/notes.txt", "delete"]);
    }
}

#[test]
fn nobody_goes_back_to_an_older_generation_unasked() {
    for server in Server::all() {
        let (one, bucket) = (small(), server.bucket());
        let (other, endpoint) = (elsewhere(&one), bucket.endpoint());
        let done = |place: &Place, more: &[&str]| {
            let ran = Ran::of(command(place, &bucket, &endpoint, more).output().unwrap());
            assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
            ran
        };
        let rebuild = |place: &Place, text: &str| {
            place.write("in/a", text);
            place.done(&["run", "p.toml"]);
        };
        done(&one, &[]);
        rebuild(&other, "newer");
        let ran = done(&other, &[]);
        let first = generation(&one);
        assert!(
            ran.stdout.contains(&format!("generation {first}, pushed from elsewhere")),
            "{ran:?}"
        );
        assert!(ran.stderr.contains(&format!("warning: `{}", bucket.url("prefix"))), "{ran:?}");
        assert!(ran.stderr.contains(&first), "{ran:?}");

        let ran = push(&one, &bucket, &endpoint);
        ran.fails(3, &["error[push-overtaken]", &generation(&other), "--replace"]);
        done(&one, &["--replace"]);
        // What is new to everybody, and what was pushed from here, may stand in its place.
        rebuild(&other, "newest");
        done(&other, &[]);
        rebuild(&other, "newer");
        let ran = done(&other, &["--json"]);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(report["replaced"]["from_here"], true, "{report}");
        assert!(!ran.stderr.contains("warning"), "{ran:?}");
    }
}

#[test]
fn two_machines_that_push_at_once_end_with_one_dataset() {
    for server in Server::all() {
        let (one, bucket) = (place(), server.bucket());
        let (two, endpoint) = (elsewhere(&one), bucket.endpoint());
        let spawn = |place: &Place| {
            let mut command = command(place, &bucket, &endpoint, &[]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [spawn(&one), spawn(&two)].map(|child| child.wait_with_output().unwrap());
        for ran in both.map(Ran::of) {
            assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        }
        assert!(found(&bucket) == wanted(&one), "{}", server.name);
    }
}

/// A folder whose definition pushes what it builds: a shard for each file.
fn pushing(bucket: &Bucket, more: &str) -> Place {
    let place = Place::new();
    let url = bucket.url("prefix");
    place.write("p.toml", format!("{BLOBS}\n[push]\nurl = \"{url}\"\n{more}"));
    for n in 0..6 {
        place.write(&format!("in/{n}"), format!("file {n}"));
    }
    place
}

fn run(place: &Place, bucket: &Bucket, endpoint: &str) -> Ran {
    datasets::run(place, bucket, endpoint, &["run", "p.toml", "--jobs=1", "--json"])
}

#[test]
fn a_run_pushes_each_shard_when_it_is_sealed() {
    for server in Server::all() {
        let bucket = server.bucket();
        let (place, proxy) = (pushing(&bucket, "concurrency = 2"), bucket.proxy());
        let ran = run(&place, &bucket, &proxy.endpoint());
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        assert!(found(&bucket) == wanted(&place), "{}", server.name);
        let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let sent = report["push"]["sent_objects"].as_u64().unwrap();
        assert_eq!(sent + 1, wanted(&place).len() as u64, "all but current.json: {report}");

        proxy.clear();
        let ran = run(&place, &bucket, &proxy.endpoint());
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        assert!(changes(&proxy.requests()).is_empty(), "{}: {:?}", server.name, proxy.requests());

        // Trials of a definition are nobody else's.
        proxy.clear();
        let trial = ["run", "p.toml", "--limit-rows=2"];
        assert_eq!(datasets::run(&place, &bucket, &proxy.endpoint(), &trial).code, 0);
        assert_eq!(proxy.requests(), []);
    }
}

#[test]
fn a_run_killed_while_it_pushes_goes_on() {
    for server in Server::all() {
        let bucket = server.bucket();
        let place = pushing(&bucket, "");
        for n in [1, 20, 50] {
            let proxy = bucket.proxy();
            proxy.inject(Rule::new(Fault::Held).on("PutObject").after(n));
            let run = ["run", "p.toml"];
            let mut command = datasets::command(&place, &bucket, &proxy.endpoint(), &run);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let is_held = |it: &Request| it.fault == Some(Fault::Held);
            proxy.wait("held request", |requests| requests.iter().any(is_held));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let proxy = bucket.proxy();
        let ran = run(&place, &bucket, &proxy.endpoint());
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        assert!(found(&bucket) == wanted(&place), "{}", server.name);
    }
}

#[test]
fn a_push_that_fails_leaves_the_dataset_complete() {
    for server in Server::all() {
        let bucket = server.bucket();
        // What a shard is named is known from the same build elsewhere.
        let place = pushing(&bucket, "");
        let other = Place::new();
        copy(&place.path("in"), &other.path("in"));
        other.write("p.toml", BLOBS);
        other.done(&["run", "p.toml"]);
        let wanted = wanted(&other);
        let (name, _) = wanted.iter().find(|(_, bytes)| bytes.as_slice() == b"file 3").unwrap();
        let store = bucket.store();
        let path = Path::parse(name).unwrap();
        wait(store.put(&path, "other".into())).unwrap();

        let ran = run(&place, &bucket, &bucket.endpoint());
        assert_eq!(ran.code, 4, "{}: {ran:?}", server.name);
        for text in ["error[push-conflict]", "is complete, and was not pushed"] {
            assert!(ran.stderr.contains(text), "{}: {ran:?}", server.name);
        }
        place.done(&["verify", "p.toml"]);
        wait(store.delete(&path)).unwrap();
        let ran = run(&place, &bucket, &bucket.endpoint());
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        assert!(found(&bucket) == wanted, "{}", server.name);
    }
}
