//! Pushes of a small dataset to a store in memory, whose network is bad.

mod beside_clean;
mod cut_off;
#[path = "../../../tests/dataset/fake.rs"]
mod fake;
mod gate;
mod journaled;
mod pulled;
mod rivals;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fake::Fake;
use gate::{Fate, Gate, Request};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;
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
fn an_incomplete_dataset_is_no_dataset() {
    let trial = Trial::new();
    trial.memory.remove_file(&trial.fake.home().sentinel()).unwrap();
    let error = trial.push().unwrap_err();
    assert!(error.to_string().contains("holds no complete dataset"), "{error}");
    let storage: Arc<dyn Storage> = Arc::new(trial.memory.clone());
    let remote = Remote::of_store("s3://b", Gate::open(&trial.bucket));
    assert!(Push::open(storage, Path::new("/nowhere"), remote, OPTIONS).is_err());
}
