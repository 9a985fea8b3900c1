//! Pushes of a small dataset to a store in memory, whose network is bad.

#[path = "../../../tests/dataset/fake.rs"]
mod fake;
mod gate;
mod journaled;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fake::Fake;
use gate::{Fate, Gate, Request};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::remote::{Remote, RemoteStorage};
use crate::storage::{Memory, Overlap, Storage};

/// Three partitions, one of them with several shards.
const FILES: &[(&str, &str)] =
    &[("a2.txt", "abc.d"), ("b.txt", "efg!hij.k"), ("c.txt", "lmnopqrstuvwxyzABCDEFGHI")];

/// Small enough that the larger files of a shard are sent in parts.
const OPTIONS: PushOptions =
    PushOptions { part_bytes: 256, concurrency: 3, bandwidth: None, replace: false };

type Files = BTreeMap<String, Vec<u8>>;

/// A built dataset, and a bucket.
struct Trial {
    fake: Fake,
    memory: Memory,
    bucket: Arc<InMemory>,
    runtime: Runtime,
}

impl Trial {
    fn new() -> Self {
        Self::of(FILES)
    }

    /// Two shards.
    fn small() -> Self {
        Self::of(&[("a.txt", "xyzvw")])
    }

    fn of(files: &[(&str, &str)]) -> Self {
        let memory = Memory::new(Overlap::Now);
        let fake = build(Fake::new(files), &memory);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { fake, memory, bucket: Arc::new(InMemory::new()), runtime }
    }

    /// The same dataset and an empty bucket.
    fn again(&self) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (fake, memory) = (self.fake.clone(), self.memory.after_power_cut(&|_| true));
        Self { fake, memory, bucket: Arc::new(InMemory::new()), runtime }
    }

    /// Another machine with another generation of the dataset, and the same bucket.
    fn other(&self) -> Self {
        let memory = Memory::new(Overlap::Now);
        let changed = [FILES[0], FILES[1], ("c.txt", "lmnopqrstuvwxyzABCDEF!!!")];
        let fake = build(Fake::new(&changed), &memory);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { fake, memory, bucket: Arc::clone(&self.bucket), runtime }
    }

    fn prepare(&self, gate: &Arc<Gate>, options: PushOptions) -> Result<Push> {
        let storage: Arc<dyn Storage> = Arc::new(self.memory.clone());
        let remote = Remote::of_store("s3://bucket/a b", Arc::clone(gate));
        Push::open(storage, self.fake.home().dir(), remote, options)
    }

    fn push_with(&self, gate: &Arc<Gate>, options: PushOptions) -> Result<PushReport> {
        let push = self.prepare(gate, options)?;
        self.runtime.block_on(push.run(Arc::default(), CancellationToken::new()))
    }

    fn push(&self) -> Result<PushReport> {
        self.push_with(&Gate::open(&self.bucket), OPTIONS)
    }

    /// What has to be in the bucket.
    fn wanted(&self) -> Files {
        let home = self.fake.home();
        let prefix = format!("a b/{}", home.name());
        let mut files: Files = self
            .memory
            .snapshot(home.dir())
            .into_iter()
            .filter(|(path, _)| !path.starts_with("work"))
            .map(|(path, bytes)| {
                (format!("{prefix}/{}/{}", home.cache_key(), path.display()), bytes)
            })
            .collect();
        let current = format!("{{\n  \"cache_key\": \"{}\"\n}}\n", home.cache_key());
        files.insert(format!("{prefix}/current.json"), current.into_bytes());
        files
    }

    /// What is in the bucket, without what a killed push says of itself.
    fn found(&self) -> Files {
        self.runtime.block_on(async {
            let mut files = Files::new();
            for meta in
                futures::TryStreamExt::try_collect::<Vec<_>>(self.bucket.list(None)).await.unwrap()
            {
                if meta.location.as_ref().contains("/pushing/") {
                    continue;
                }
                let bytes = self.bucket.get(&meta.location).await.unwrap().bytes().await.unwrap();
                files.insert(meta.location.to_string(), bytes.to_vec());
            }
            files
        })
    }

    /// The names of everything in the bucket.
    fn names(&self) -> Vec<String> {
        let listed = futures::TryStreamExt::try_collect::<Vec<_>>(self.bucket.list(None));
        let listed = self.runtime.block_on(listed).unwrap();
        listed.iter().map(|meta| meta.location.to_string()).collect()
    }

    fn overwrite(&self, name: &str, bytes: &'static [u8]) {
        let path = object_store::path::Path::parse(name).unwrap();
        self.runtime.block_on(self.bucket.put(&path, bytes.into())).unwrap();
    }

    /// Checks that no sentinel in the bucket covers anything that is not there as it was sealed.
    fn check_sentinels(&self, way: &str) {
        let (found, wanted) = (self.found(), self.wanted());
        for sentinel in found.keys().filter(|name| name.ends_with("/_COMPLETE")) {
            let folder = sentinel.strip_suffix("_COMPLETE").unwrap();
            for (name, bytes) in wanted.iter().filter(|(name, _)| name.starts_with(folder)) {
                assert_eq!(found.get(name), Some(bytes), "{way}: {sentinel} covers {name}");
            }
        }
    }
}

fn build(mut fake: Fake, memory: &Memory) -> Fake {
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    fake.build(&storage).unwrap();
    fake
}

fn size(files: &Files) -> u64 {
    files.values().map(|bytes| bytes.len() as u64).sum()
}

#[test]
fn everything_arrives_and_a_second_push_sends_nothing() {
    let trial = Trial::new();
    let gate = Gate::open(&trial.bucket);
    let report = trial.push_with(&gate, OPTIONS).unwrap();
    assert_eq!(trial.found(), trial.wanted());
    let wanted = trial.wanted();
    assert_eq!(report.sent_objects, wanted.len() as u64 - 1, "current.json is not counted");
    assert_eq!((report.skipped_objects, report.skipped_bytes), (0, 0));
    assert_eq!(report.requests, gate.requests().len() as u64);
    assert_eq!((report.current, report.unguarded), (true, None));
    assert!(gate.requests().iter().any(|request| request.what == "part"), "no file has parts");

    for (way, trial) in [
        ("the same machine", trial.again_at(&trial.bucket)),
        ("without its journal", {
            let other = trial.again_at(&trial.bucket);
            other.memory.remove_all(&other.fake.home().pushes()).unwrap();
            other
        }),
    ] {
        let gate = Gate::open(&trial.bucket);
        let report = trial.push_with(&gate, OPTIONS).unwrap();
        assert_eq!(report.sent_objects, 0, "{way}");
        let probes = ["create", "update"];
        let sent: Vec<_> = gate.requests().into_iter().filter(|it| it.bytes > 0).collect();
        assert!(sent.iter().all(|it| probes.contains(&it.what)), "{way}: {sent:?}");
        if way == "the same machine" {
            assert!(sent.is_empty(), "{sent:?}");
            let looks = gate.requests().iter().filter(|it| it.what == "list").count();
            assert_eq!(looks, trial.n_shards() + 1, "one for records: {:?}", gate.requests());
        }
        assert_eq!(trial.found(), trial.wanted(), "{way}");
    }
}

impl Trial {
    fn again_at(&self, bucket: &Arc<InMemory>) -> Self {
        Self { bucket: Arc::clone(bucket), ..self.again() }
    }

    fn n_shards(&self) -> usize {
        let folder = self.fake.home().shards();
        self.memory.list(&folder).unwrap().unwrap().len()
    }
}

/// Kills the push at the first request that `is_it`, before or after it is done; says whether there
/// was one.
fn kill_at(
    trial: &Trial,
    mut is_it: impl FnMut(usize, &Request) -> bool + Send + 'static,
    is_done: bool,
) -> (bool, Arc<Gate>) {
    let killed = Arc::new(Notify::new());
    let (bell, mut is_dead) = (Arc::clone(&killed), false);
    let gate = Gate::new(&trial.bucket, move |at, request| {
        let is_last = !is_dead && is_it(at, request);
        is_dead |= is_last;
        match (is_dead, is_last && is_done) {
            (false, _) => Fate::Answered,
            (true, false) => {
                bell.notify_one();
                Fate::Hangs
            }
            (true, true) => {
                bell.notify_one();
                Fate::HangsDone
            }
        }
    });
    let push = trial.prepare(&gate, OPTIONS).unwrap();
    let ended = trial.runtime.block_on(async {
        tokio::select! {
            biased;
            report = push.run(Arc::default(), CancellationToken::new()) => Some(report.unwrap()),
            () = killed.notified() => None,
        }
    });
    (ended.is_none(), gate)
}

#[test]
fn a_push_killed_at_any_request_goes_on_and_sends_again_only_what_was_on_its_way() {
    let first = Trial::small();
    let n_requests = {
        let gate = Gate::open(&first.bucket);
        let trial = first.again_at(&first.bucket);
        trial.push_with(&gate, OPTIONS).unwrap();
        gate.requests().len()
    };
    let wanted = first.wanted();
    for n in 0..n_requests + 5 {
        for is_done in [false, true] {
            let way = format!("killed at {n}, done {is_done}");
            let mut trial = first.again();
            let (was_killed, gate) = kill_at(&trial, move |at, _| at == n, is_done);
            if !was_killed {
                continue;
            }
            trial.check_sentinels(&way);
            trial.memory = trial.memory.after_kill();
            let second = Gate::open(&trial.bucket);
            trial.push_with(&second, OPTIONS).unwrap_or_else(|e| panic!("{way}: {e}"));
            assert_eq!(trial.found(), wanted, "{way}");
            // Parts and small files that were on their way, the probes, `current.json`.
            let flying = (OPTIONS.concurrency as u64) * OPTIONS.part_bytes;
            let small = 6 * 2048;
            let sent = gate.sent() + second.sent();
            assert!(sent <= size(&wanted) + flying + small, "{way}: {sent} of {}", size(&wanted));
        }
    }
}

#[test]
fn a_push_says_that_it_is_at_work_before_it_changes_anything() {
    let trial = Trial::small();
    let gate = Gate::open(&trial.bucket);
    trial.push_with(&gate, OPTIONS).unwrap();
    let changes =
        gate.requests().into_iter().filter(|it| !["list", "get", "head"].contains(&it.what));
    let changes: Vec<_> = changes.map(|it| (it.what, it.path)).collect();
    assert!(changes[0].0 == "put" && changes[0].1.contains("/pushing/"), "{changes:?}");
    assert_eq!(changes.iter().filter(|(_, path)| path.contains("/pushing/")).count(), 1);
    assert_eq!(changes.last().unwrap().0, "delete", "{changes:?}");
    assert!(!trial.names().iter().any(|name| name.contains("/pushing/")), "{:?}", trial.names());
}

#[test]
fn what_goes_while_it_is_compared_is_sent_again() {
    let trial = Trial::small();
    trial.push().unwrap();
    let (bucket, mut n_gone) = (Arc::clone(&trial.bucket), 0);
    let gate = Gate::new(&trial.bucket, move |_, request| {
        if request.what == "get" && request.path.contains(".bin") && n_gone < 2 {
            let path = object_store::path::Path::parse(&request.path).unwrap();
            futures::FutureExt::now_or_never(bucket.delete(&path)).unwrap().unwrap();
            n_gone += 1;
        }
        Fate::Answered
    });
    let report = trial.push_with(&gate, PushOptions { replace: true, ..OPTIONS }).unwrap();
    assert_eq!(trial.found(), trial.wanted());
    assert_eq!(report.sent_objects, 2, "those two alone");
}

#[test]
fn a_push_that_turns_up_while_sentinels_go_gets_them_back() {
    let trial = Trial::small();
    trial.push().unwrap();
    let home = trial.fake.home();
    // Nothing names the shards any more.
    let gone = trial.wanted().into_keys().filter(|name| !name.contains("/shards/"));
    for name in gone {
        let path = object_store::path::Path::parse(name).unwrap();
        trial.runtime.block_on(trial.bucket.delete(&path)).unwrap();
    }
    let before = trial.found();
    let key = format!("a b/{}/{}", home.name(), home.cache_key());
    let said =
        object_store::path::Path::parse(format!("{key}/pushing/0123456789abcdef.json")).unwrap();
    let (bucket, mut n_deletions) = (Arc::clone(&trial.bucket), 0);
    let of_push = said.clone();
    let gate = Gate::new(&trial.bucket, move |_, request| {
        n_deletions += usize::from(request.what == "delete");
        // The first is that of the object that tells the time.
        if n_deletions == 2 && request.what == "delete" {
            let put = bucket.put(&of_push, r#"{"host": "elsewhere", "pid": 7}"#.into());
            futures::FutureExt::now_or_never(put).unwrap().unwrap();
        }
        Fate::Answered
    });
    let remote = Remote::of_store(&format!("s3://bucket/{key}"), gate);
    let storage = RemoteStorage::new(remote.clone(), trial.runtime.handle().clone());
    let place = CleanElsewhere::open(remote, storage).unwrap();
    let keep = KeepElsewhere { previous: 1, older_than: std::time::Duration::ZERO };
    let error = place.clean(keep, |_| {}).unwrap_err();
    assert!(error.to_string().contains("is at work (pid 7 on elsewhere)"), "{error}");
    assert_eq!(trial.found(), before, "every sentinel is back");

    trial.runtime.block_on(trial.bucket.delete(&said)).unwrap();
    place.clean(keep, |_| {}).unwrap();
    assert_eq!(trial.found(), Files::new());
}

#[test]
fn a_lost_answer_to_any_request_is_settled_without_sending_twice() {
    let first = Trial::small();
    let n_requests = {
        let gate = Gate::open(&first.bucket);
        first.again_at(&first.bucket).push_with(&gate, OPTIONS).unwrap();
        gate.requests().len()
    };
    for n in 0..n_requests {
        for fate in [Fate::Lost, Fate::AnswerLost] {
            let trial = first.again();
            let gate =
                Gate::new(&trial.bucket, move |at, _| if at == n { fate } else { Fate::Answered });
            let first = trial.push_with(&gate, OPTIONS);
            let request = gate.requests()[n].clone();
            let way = format!("{fate:?} {request:?}");
            trial.check_sentinels(&way);
            let is_settled = fate == Fate::AnswerLost
                && (request.what == "complete" || request.path.ends_with("shards") || {
                    request.what == "create" && request.path.contains("partitions/")
                });
            assert!(first.is_ok() || !is_settled, "{way}: {first:?}");
            if let Err(e) = first {
                assert!(e.to_string().contains("the connection was cut"), "{way}: {e}");
                trial.push().unwrap_or_else(|e| panic!("{way}: {e}"));
            }
            assert_eq!(trial.found(), trial.wanted(), "{way}");
        }
    }
}

#[test]
fn what_is_another_is_refused_by_name_and_replaced_where_that_was_asked() {
    let trial = Trial::new();
    trial.push().unwrap();
    let wanted = trial.wanted();
    for (ending, other) in [
        ("/x.bin", &b"another"[..]),
        ("/schema.json", b"{}"),
        (".json", b"{}"),
        ("manifest", b"no manifest"),
    ] {
        let is_it = |name: &&String| match ending {
            "manifest" => name.contains("/manifest-"),
            ".json" => name.contains("/partitions/"),
            ending => name.ends_with(ending),
        };
        let name = wanted.keys().find(is_it).unwrap();
        trial.overwrite(name, other);
        let error = trial.push().unwrap_err();
        let want = wanted[name].len();
        let url = name.replace("a b/", "s3://bucket/a b/");
        let text =
            format!("`{url}` is not the file of that name: {} bytes, not {want}", other.len());
        assert_eq!(error.to_string(), text);
        assert!(error.hint().unwrap().contains("--replace"));
        let report = trial
            .push_with(&Gate::open(&trial.bucket), PushOptions { replace: true, ..OPTIONS })
            .unwrap();
        assert_eq!(report.sent_objects, 1, "{name}");
        assert_eq!(trial.found(), wanted);
    }
    // The same size, and other bytes.
    let name = wanted.keys().find(|name| name.ends_with("/x.bin")).unwrap();
    let other: &'static [u8] = vec![7_u8; wanted[name].len()].leak();
    trial.overwrite(name, other);
    let error = trial.push().unwrap_err();
    assert!(error.to_string().ends_with("is not the file of that name: other bytes"), "{error}");
}

#[test]
fn a_file_that_is_not_as_it_was_sealed_is_not_pushed() {
    for name in ["x.bin", "index.parquet", "B3SUMS", "_COMPLETE"] {
        let trial = Trial::new();
        let home = trial.fake.home();
        let shard = trial.memory.list(&home.shards()).unwrap().unwrap().remove(0).name;
        let path = home.shard(&shard).join(name);
        trial.memory.overwrite(&path, 3, b"?").unwrap();
        let error = trial.push().unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        let names = trial.found();
        let sentinels: Vec<_> = names
            .keys()
            .filter(|n| {
                n.ends_with(&format!("{shard}/{name}"))
                    || n.ends_with(&format!("{shard}/_COMPLETE"))
            })
            .collect();
        assert!(sentinels.is_empty(), "{sentinels:?}");
        assert!(!names.keys().any(|n| n.ends_with(&format!("{}/_COMPLETE", home.cache_key()))));
    }
}

#[test]
fn an_upload_that_the_store_has_forgotten_begins_anew() {
    // Killed when all parts of a file are there, and nothing is made of them yet.
    let trial = Trial::new();
    assert!(kill_at(&trial, |_, request| request.what == "complete", false).0);
    // Another bucket, where uploads have other names.
    let bucket = Arc::new(InMemory::new());
    let name = object_store::path::Path::from("x");
    trial.runtime.block_on(async {
        for _ in 0..1000 {
            bucket.put(&name, "".into()).await.unwrap();
        }
        bucket.delete(&name).await.unwrap();
    });
    let emptied = Trial { bucket, memory: trial.memory.after_kill(), ..trial.again() };
    let gate = Gate::open(&emptied.bucket);
    emptied.push_with(&gate, OPTIONS).unwrap();
    assert_eq!(emptied.found(), emptied.wanted());
    let requests = gate.requests();
    let first_of =
        |what: &str, path: &str| requests.iter().position(|it| it.what == what && it.path == path);
    let tried = requests
        .iter()
        .filter(|it| it.what == "complete")
        .any(|it| first_of("complete", &it.path) < first_of("begin", &it.path));
    assert!(tried, "no upload was gone on with: {requests:?}");
}

#[test]
fn of_two_generations_that_race_the_later_is_refused() {
    let one = Trial::new();
    let other = one.other();
    // The other generation is pushed while the first is about to commit.
    let turn = Arc::new(Mutex::new(Some(other)));
    let (rival, bucket) = (Arc::clone(&turn), Arc::clone(&one.bucket));
    let key = one.fake.home().cache_key().to_owned();
    let gate = Gate::new(&bucket, move |_, request| {
        let is_commit =
            request.what == "create" && request.path.ends_with(&format!("{key}/_COMPLETE"));
        if is_commit && let Some(other) = rival.lock().unwrap().take() {
            std::thread::scope(|scope| {
                scope.spawn(move || other.push().unwrap()).join().unwrap();
            });
        }
        Fate::Answered
    });
    let error = one.push_with(&gate, OPTIONS).unwrap_err();
    let PushError::Overtaken { ours, theirs, .. } = &error else { panic!("{error}") };
    assert_ne!(ours, theirs);
    assert!(
        error.to_string().contains(ours.as_str()) && error.to_string().contains(theirs.as_str())
    );
    // It stays refused, until somebody decides.
    assert!(matches!(one.push().unwrap_err(), PushError::Overtaken { .. }));
    let replace = PushOptions { replace: true, ..OPTIONS };
    one.push_with(&Gate::open(&one.bucket), replace).unwrap();
    let sentinel = |files: &Files| {
        files
            .iter()
            .find(|(name, _)| name.ends_with(&format!("{}/_COMPLETE", one.fake.home().cache_key())))
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(sentinel(&one.found()), sentinel(&one.wanted()));
}

#[test]
fn the_next_generation_replaces_the_one_before() {
    let one = Trial::new();
    one.push().unwrap();
    let other = one.other();
    let report = other.push().unwrap();
    assert!(report.skipped_objects > 0, "shards that both have are there: {report:?}");
    let found = other.found();
    for (name, bytes) in other.wanted() {
        assert_eq!(found.get(&name), Some(&bytes), "{name}");
    }
}

#[test]
fn two_machines_that_push_the_same_dataset_end_with_it() {
    let one = Trial::new();
    let two = one.again_at(&one.bucket);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| one.push());
        let second = scope.spawn(|| two.push());
        (first.join().unwrap(), second.join().unwrap())
    });
    first.unwrap();
    second.unwrap();
    assert_eq!(one.found(), one.wanted());
}

#[test]
fn one_machine_pushes_to_a_place_once_at_a_time() {
    let trial = Trial::new();
    let storage: Arc<dyn Storage> = Arc::new(trial.memory.clone());
    let held = Journal::open(&storage, &trial.fake.home(), "s3://bucket/a b").unwrap();
    let error = trial.push().unwrap_err();
    assert!(
        error.to_string().starts_with("another push to `s3://bucket/a b` is at work (pid "),
        "{error}"
    );
    drop(held);
    trial.push().unwrap();
}

#[test]
fn a_store_that_obeys_no_condition_is_found_out() {
    let trial = Trial::new();
    let gate = Gate::new(&trial.bucket, |_, request| match request.what {
        "create" | "update" => Fate::Unconditional,
        _ => Fate::Answered,
    });
    let report = trial.push_with(&gate, OPTIONS).unwrap();
    assert!(report.unguarded.unwrap().contains("does not create or replace objects conditionally"));
    assert_eq!(trial.found(), trial.wanted());
    // The sentinel of another generation is still seen, as long as nobody is faster.
    let other = trial.other();
    let report = other.push_with(&gate, OPTIONS).unwrap();
    assert!(report.unguarded.is_some());
}

#[test]
fn a_push_that_is_to_stop_notes_what_arrives() {
    let trial = Trial::new();
    let stop = CancellationToken::new();
    let bell = stop.clone();
    let gate = Gate::new(&trial.bucket, move |_, request| {
        if request.what == "part" {
            bell.cancel();
        }
        Fate::Answered
    });
    let push = trial.prepare(&gate, OPTIONS).unwrap();
    let error = trial.runtime.block_on(push.run(Arc::default(), stop)).unwrap_err();
    assert!(matches!(error, PushError::Stopped), "{error}");
    let parts = gate.requests().iter().filter(|it| it.what == "part").count();
    let second = Gate::open(&trial.bucket);
    trial.push_with(&second, OPTIONS).unwrap();
    let again = second.requests().iter().filter(|it| it.what == "part").count();
    let whole = {
        let other = trial.again();
        let gate = Gate::open(&other.bucket);
        other.memory.remove_all(&other.fake.home().pushes()).unwrap();
        other.push_with(&gate, OPTIONS).unwrap();
        gate.requests().iter().filter(|it| it.what == "part").count()
    };
    assert_eq!(parts + again, whole);
    assert_eq!(trial.found(), trial.wanted());
}

#[test]
fn an_incomplete_dataset_is_no_dataset() {
    let trial = Trial::new();
    trial.memory.remove_file(&trial.fake.home().sentinel()).unwrap();
    let error = trial.push().unwrap_err();
    assert!(error.to_string().contains("holds no complete dataset"), "{error}");
    let storage: Arc<dyn Storage> = Arc::new(trial.memory.clone());
    let remote = Remote::of_store("s3://b", Gate::open(&trial.bucket));
    assert!(Push::open(storage, Path::new("/nowhere"), remote, OPTIONS).is_err());
}
