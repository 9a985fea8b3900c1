//! Several pushes to one place, at once and one after another.

use std::sync::Mutex;

use super::*;

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
