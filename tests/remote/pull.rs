//! `rowmill pull`: the same bytes come, whatever goes wrong on the way, or none under a sentinel.

use std::process::{Command, Stdio};
use std::time::Duration;

use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use serde_json::Value;

use super::command::{Place, Ran, files_of};
use super::datasets::{command, folder, large, lay, size, small};
use super::harness::wait;
use super::proxy::{Fault, Proxy, Rule};
use super::servers::{Bucket, Server};

/// A bucket with a dataset, and a folder that it is pulled to.
struct Pull {
    place: Place,
    bucket: Bucket,
    proxy: Proxy,
    key: String,
}

impl Pull {
    fn of(place: Place, server: &'static Server) -> Self {
        let bucket = server.bucket();
        let (key, proxy) = (lay(&place, &bucket), bucket.proxy());
        Self { place, bucket, proxy, key }
    }

    fn command(&self, to: &str, args: &[&str]) -> Command {
        let url = self.bucket.url("texts");
        let args = [&["pull", &url, to, "--part-size", "1MiB"], args].concat();
        command(&self.place, &self.bucket, &self.proxy.endpoint(), &args)
    }

    fn pull(&self, to: &str, args: &[&str]) -> Ran {
        let ran = Ran::of(self.command(to, args).output().unwrap());
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains(self.bucket.secret()), "{said}");
        ran
    }

    /// Checks that what was pulled is what was built, and complete.
    #[track_caller]
    fn is_there(&self, to: &str, what: &str) {
        let (built, pulled) = (folder(&self.place, "data"), folder(&self.place, to));
        assert!(files_of(&built) == files_of(&pulled), "{what}: other bytes");
        let verified = self.place.rowmill(&["verify", &format!("{to}/texts")]);
        assert_eq!(verified.code, 0, "{what}: {verified:?}");
        assert!(!pulled.join("work/pull").exists(), "{what}");
    }
}

#[test]
fn a_pulled_dataset_is_the_one_that_was_pushed() {
    for server in Server::all() {
        let pull = Pull::of(small(), server);
        let ran = pull.pull("a", &["--json"]);
        assert_eq!(ran.code, 0, "{}: {ran:?}", server.name);
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&report["complete"], &report["rows"]), (&true.into(), &4.into()), "{report}");
        pull.is_there("a", server.name);

        pull.proxy.clear();
        let again = pull.pull("a", &[]);
        assert!(again.stdout.contains("were here before"), "{again:?}");
        let requests = pull.proxy.requests();
        let asked = requests.iter().filter(|it| it.status == 200 && it.operation == "GetObject");
        let asked: Vec<_> = asked.map(|it| it.key.rsplit('/').next().unwrap()).collect();
        assert_eq!(asked.len(), 3, "sentinel, manifest and current.json alone: {requests:#?}");

        // The folder of the cache key leads to the same.
        let url = pull.bucket.url(&format!("texts/{}", pull.key));
        let args = ["pull", &url, "b"];
        let ran = command(&pull.place, &pull.bucket, &pull.bucket.endpoint(), &args).output();
        assert_eq!(Ran::of(ran.unwrap()).code, 0, "{}", server.name);
        pull.is_there("b", server.name);
    }
}

#[test]
fn a_part_of_a_dataset_has_no_sentinel_until_the_rest_is_there() {
    for server in Server::all() {
        let pull = Pull::of(small(), server);
        let part = pull.pull("a", &["--shards", "1-2"]);
        assert_eq!(part.code, 0, "{part:?}");
        assert!(part.stdout.contains("no sentinel was written"), "{part:?}");
        let dir = pull.place.path("a/texts").join(&pull.key);
        let files = files_of(&dir.join("shards"));
        let sealed: Vec<_> = files.keys().filter(|path| path.ends_with("_COMPLETE")).collect();
        assert_eq!(sealed.len(), 2, "{}", server.name);
        assert!(!dir.join("_COMPLETE").exists() && !pull.place.path("a/texts/current").exists());
        for sentinel in sealed {
            let path = dir.join("shards").join(sentinel.parent().unwrap());
            pull.place.done(&["verify", path.to_str().unwrap()]);
        }
        pull.pull("a", &["--shards", "4"]).fails(2, &["there is no shard 4: there are 4"]);
        let rest = pull.pull("a", &[]);
        assert!(rest.stdout.contains("(2 were here before, and were not read again)"), "{rest:?}");
        pull.is_there("a", server.name);
    }
}

#[test]
fn what_goes_wrong_on_the_way_is_asked_for_again() {
    let stall = Fault::Stall(Duration::from_millis(300));
    for server in Server::all() {
        let pull = Pull::of(large(), server);
        for (n, fault) in [
            Fault::CutRequest(30),
            Fault::CutAnswer(100),
            Fault::CutAnswer(300_000),
            Fault::Internal,
            Fault::SlowDown,
            stall.clone(),
            Fault::ShortBody(1),
            Fault::AnsweredTwice,
            Fault::SentTwice,
            Fault::LostAnswer,
            Fault::WrongEtag,
            Fault::FlippedByte(0),
            Fault::FlippedByte(77_777),
        ]
        .into_iter()
        .enumerate()
        {
            pull.proxy.clear();
            // Of the largest file, which comes in parts, and of another one.
            pull.proxy.inject(Rule::new(fault.clone()).on("GetObject").key("/text.bin").after(1));
            pull.proxy.inject(Rule::new(fault.clone()).on("GetObject").key("index.parquet"));
            let (to, what) = (n.to_string(), format!("{}: {fault:?}", server.name));
            let ran = pull.pull(&to, &[]);
            assert_eq!(ran.code, 0, "{what}: {ran:?}");
            let n_met = pull.proxy.requests().iter().filter(|it| it.fault.is_some()).count();
            assert_eq!(n_met, 2, "{what}");
            pull.is_there(&to, &what);
        }
    }
}

#[test]
fn an_object_that_is_not_what_was_sealed_is_refused_by_name() {
    for server in Server::all() {
        let pull = Pull::of(large(), server);
        let store = pull.bucket.store();
        for (n, (name, spoil)) in [
            ("/text.bin", (|b: &mut Vec<u8>| b[2_000_000] ^= 1) as fn(&mut Vec<u8>)),
            ("/text.bin", |b| b.truncate(1_000_000)),
            ("/text.bin", |b| b.push(0)),
            ("/blocks.bin", |b| b[0] ^= 1),
            ("/index.parquet", |b| b.clear()),
            ("/B3SUMS", |b| b[0] ^= 1),
            ("/_COMPLETE", |b| b.clear()),
            ("manifest-", |b| b[9] ^= 1),
            ("partitions/", |b| b[9] ^= 1),
        ]
        .into_iter()
        .enumerate()
        {
            let dir = folder(&pull.place, "data");
            let is_it = |path: &str| path.starts_with(name) || path.ends_with(name);
            let (path, mut bytes) = files_of(&dir)
                .into_iter()
                .map(|(path, bytes)| (path.to_str().unwrap().to_owned(), bytes))
                .find(|(path, _)| is_it(path))
                .unwrap();
            let good = bytes.clone();
            spoil(&mut bytes);
            let object = Key::from(format!("texts/{}/{path}", pull.key));
            wait(store.put(&object, bytes.into())).unwrap();
            let (to, what) = (n.to_string(), format!("{}: {path}", server.name));
            let ran = pull.pull(&to, &[]);
            assert_eq!(ran.code, 4, "{what}: {ran:?}");
            assert!(ran.stderr.contains(&path), "{what}: {ran:?}");
            assert!(!pull.place.path(&format!("{to}/texts/current")).exists(), "{what}");
            // Mended, the same command ends.
            wait(store.put(&object, good.into())).unwrap();
            let ran = pull.pull(&to, &[]);
            assert_eq!(ran.code, 0, "{what}: {ran:?}");
            pull.is_there(&to, &what);
        }
    }
}

#[test]
fn a_pull_that_is_killed_goes_on_inside_a_file() {
    const PART: u64 = 1 << 20;
    const CONCURRENCY: u64 = 2;
    for server in Server::all() {
        let pull = Pull::of(large(), server);
        let bytes = size(&folder(&pull.place, "data"));
        let (mut got, mut n_kills) = (0, 0);
        loop {
            pull.proxy.clear();
            // The one after the second part of the largest file is held.
            pull.proxy.inject(Rule::new(Fault::Held).on("GetObject").key("/text.bin").after(2));
            let mut child = pull
                .command("a", &["--concurrency", "2"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut ended = None;
            pull.proxy.wait("held request, or end", |all| {
                ended = child.try_wait().unwrap();
                ended.is_some() || all.iter().any(|it| it.fault.is_some())
            });
            got += pull.proxy.got_bytes();
            if let Some(status) = ended {
                assert!(status.success(), "{}", server.name);
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            n_kills += 1;
            assert!(n_kills < 10, "{}: it does not get on", server.name);
        }
        assert!(n_kills >= 1, "{}", server.name);
        pull.is_there("a", server.name);
        // What was on its way, and what is asked for at each start: sentinels, sums and the manifest.
        let most = bytes + n_kills * (CONCURRENCY * PART + 64 * 1024);
        assert!(got <= most, "{}: {got} bytes came of {bytes}, {n_kills} kills", server.name);
    }
}

#[test]
fn a_place_without_a_dataset_says_so() {
    for server in Server::all() {
        let (place, bucket) = (Place::new(), server.bucket());
        let pull = |url: &str| {
            let args = ["pull", url, "out"];
            Ran::of(command(&place, &bucket, &bucket.endpoint(), &args).output().unwrap())
        };
        pull(&bucket.url("none")).fails(2, &["holds no complete dataset", "/none"]);
        assert!(!place.path("out").exists());
        if server.name == "moto" {
            // s3s-fs says that the object is not there, and makes buckets that it is asked for.
            pull("s3://no-such-bucket-here/x").fails(1, &["there is no such bucket", "-here/x"]);
        }
    }
}
