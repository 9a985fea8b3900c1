//! Runs that end early while hooks are at work.

use crate::command::{Place, files_of};
use crate::hook::{can_run, place, processes_in, wait_for_none_in};
use crate::process::Run;

fn run(place: &Place) -> Run {
    Run::new(&place.path("p.toml"), &place.path("data")).set("run.commit_bytes=1")
}

#[test]
fn a_run_killed_at_any_commit_ends_with_the_same_bytes() {
    if !can_run() {
        return;
    }
    let more = "workers = 2";
    let undisturbed = place("what = \"log\"", more);
    run(&undisturbed).complete();
    let want = files_of(&undisturbed.current("data", "hooked"));

    let place = place("what = \"log\"", more);
    let mut n_kills = 0;
    for (jobs, batch_rows) in [(1, 1), (2, 3), (1, 1000), (1, 2), (2, 1), (1, 5)].iter().cycle() {
        let run =
            run(&place).set(format!("run.batch_rows={batch_rows}")).set(format!("run.jobs={jobs}"));
        let mut running = run.start();
        // Each run makes a commit more than the one before, and a bit.
        let has_ended = running.line().is_none() || running.line().is_none();
        let ended = if has_ended { running.wait() } else { running.kill() };
        wait_for_none_in(&place.path("."));
        if ended.code() == Some(0) {
            break;
        }
        assert!(ended.was_killed(), "{ended:#?}");
        n_kills += 1;
        assert!(n_kills < 100, "it comes no further");
    }
    assert!(n_kills > 1, "too quick to be killed");
    assert!(files_of(&place.current("data", "hooked")) == want);
    // Whatever was asked again was asked in the same batches.
    let calls = |place: &Place| {
        let text = std::fs::read_to_string(place.path("calls.txt")).unwrap();
        let mut calls: Vec<String> = text.lines().map(str::to_owned).collect();
        calls.sort();
        calls.dedup();
        calls
    };
    assert_eq!(calls(&place), calls(&undisturbed));
}

#[test]
fn a_run_that_is_asked_to_stop_does_not_wait_for_a_hook_that_hangs() {
    if !can_run() {
        return;
    }
    let place = place("what = \"hang\", bad = 8", "");
    let mut running = run(&place).start();
    running.line_with("\"commit\"");
    running.terminate();
    let ended = running.wait();
    assert_eq!(ended.code(), Some(75), "{ended:#?}");
    wait_for_none_in(&place.path("."));
}

#[test]
fn nothing_that_a_hook_has_started_outlives_a_run_that_is_killed() {
    if !can_run() {
        return;
    }
    let place = place("what = \"stays\"", "workers = 2");
    let mut running = run(&place).start();
    running.line_with("\"commit\"");
    assert!(!processes_in(&place.path(".")).is_empty());
    let ended = running.kill();
    assert!(ended.was_killed(), "{ended:#?}");
    wait_for_none_in(&place.path("."));
}
