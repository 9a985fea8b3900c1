//! Pushes that are killed, stopped, or lose an answer.

use tokio::sync::Notify;

use super::*;

/// Kills the push at the first request that `is_it`, before or after it is done; says whether there
/// was one.
pub(super) fn kill_at(
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
