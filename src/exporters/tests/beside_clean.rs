//! Pushes beside a removal, and removals beside a push.

use std::time::Duration;

use object_store::path::Path as Key;

use super::*;

#[test]
fn a_push_that_turns_up_while_sentinels_go_gets_them_back() {
    let trial = Trial::small();
    trial.push().unwrap();
    let home = trial.fake.home();
    // Nothing names the shards any more.
    let gone = trial.wanted().into_keys().filter(|name| !name.contains("/shards/"));
    for name in gone {
        let path = Key::parse(name).unwrap();
        trial.runtime.block_on(trial.bucket.delete(&path)).unwrap();
    }
    let before = trial.found();
    let key = format!("a b/{}/{}", home.name(), home.cache_key());
    let said = Key::parse(format!("{key}/pushing/0123456789abcdef.json")).unwrap();
    let (bucket, mut n_deletions) = (Arc::clone(&trial.bucket), 0);
    let of_push = said.clone();
    let gate = Gate::new(&trial.bucket, move |_, request| {
        n_deletions += usize::from(request.what == "delete");
        if n_deletions == 1 && request.what == "delete" {
            let put = bucket.put(&of_push, r#"{"host": "elsewhere", "pid": 7}"#.into());
            futures::FutureExt::now_or_never(put).unwrap().unwrap();
        }
        Fate::Answered
    });
    let remote = Remote::of_store(&format!("s3://bucket/{key}"), gate);
    let storage = RemoteStorage::new(remote.clone(), trial.runtime.handle().clone());
    let place = CleanElsewhere::open(remote, storage).unwrap();
    let keep = KeepElsewhere { previous: 1, older_than: Duration::ZERO };
    let error = place.clean(keep, |_| {}).unwrap_err();
    assert!(error.to_string().contains("is at work (pid 7 on elsewhere)"), "{error}");
    assert_eq!(trial.found(), before, "every sentinel is back");

    trial.runtime.block_on(trial.bucket.delete(&said)).unwrap();
    place.clean(keep, |_| {}).unwrap();
    assert_eq!(trial.found(), Files::new());
}

impl Trial {
    /// The document of a removal that is at work.
    fn cleaning(&self) -> Key {
        let home = self.fake.home();
        let name = format!("a b/{}/{}/pushing/clean-0.json", home.name(), home.cache_key());
        self.overwrite(&name, b"{}");
        Key::parse(name).unwrap()
    }
}

fn is_look(request: &Request) -> bool {
    request.what == "list" && request.path.ends_with("/pushing")
}

#[test]
fn a_push_relies_on_nothing_until_nothing_is_removed() {
    let trial = Trial::small();
    let (note, bucket, mut n_looks) = (trial.cleaning(), Arc::clone(&trial.bucket), 0);
    let gate = Gate::new(&trial.bucket, move |_, request| {
        n_looks += usize::from(is_look(request));
        if n_looks == 2 && is_look(request) {
            futures::FutureExt::now_or_never(bucket.delete(&note)).unwrap().unwrap();
        }
        Fate::Answered
    });
    trial.push_with(&gate, OPTIONS).unwrap();
    assert_eq!(trial.found(), trial.wanted());
    let requests = gate.requests();
    assert_eq!(requests.iter().filter(|it| is_look(it)).count(), 2, "{requests:?}");
    let last = requests.iter().rposition(is_look).unwrap();
    let before = requests.iter().take(last).filter(|it| !is_look(it));
    let before: Vec<_> = before.map(|it| it.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(before.len(), 2, "the dataset's sentinel and its own document: {before:?}");
    assert_eq!(before[0], "_COMPLETE");
}

#[test]
fn a_push_that_waits_can_be_stopped() {
    let trial = Trial::small();
    let note = trial.cleaning();
    let stop = CancellationToken::new();
    let bell = stop.clone();
    let gate = Gate::new(&trial.bucket, move |_, request| {
        if is_look(request) {
            bell.cancel();
        }
        Fate::Answered
    });
    let push = trial.prepare(&gate, OPTIONS).unwrap();
    let error = trial.runtime.block_on(push.run(Arc::default(), stop)).unwrap_err();
    assert!(matches!(error, PushError::Stopped), "{error}");
    assert_eq!(trial.names(), [note.as_ref()]);
}

#[test]
fn a_file_that_is_gone_before_the_sentinel_goes_out_is_missed() {
    let trial = Trial::small();
    let wanted = trial.wanted();
    let file = wanted.keys().find(|name| name.ends_with("/x.bin")).unwrap().clone();
    let (gone, bucket) = (Key::parse(&file).unwrap(), Arc::clone(&trial.bucket));
    let gate = Gate::new(&trial.bucket, move |_, request| {
        if request.what == "list" && request.path.ends_with("/shards") {
            futures::FutureExt::now_or_never(bucket.delete(&gone)).unwrap().unwrap();
        }
        Fate::Answered
    });
    let error = trial.push_with(&gate, OPTIONS).unwrap_err();
    let folder = file.replace("a b/", "s3://bucket/a b/").replace("/x.bin", "");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("`{folder}` was sent and is not there as it was sent: ")),
        "{text}"
    );
    assert!(!trial.names().iter().any(|it| it.ends_with("/_COMPLETE") && !it.contains("/shards/")));
    trial.push().unwrap();
    assert_eq!(trial.found(), wanted);
}
