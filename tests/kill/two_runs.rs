//! Two runs on one dataset, and runs that are asked to stop.
//!
//! A run of which nobody reads the progress has to wait when the pipe is full: so it cannot end
//! before the test has done what it wants.

use crate::builds;
use crate::place::Place;
use crate::process::Running;
use crate::tree::Tree;

/// More commits than lines that a pipe (64 KiB) and the test's own buffers hold.
const N_ROWS: usize = 2_400;

/// Rows in one partition and one shard.
fn place() -> (Place, Tree) {
    let place = builds::csv(7, N_ROWS, 64 << 20, 10_000);
    place.write(
        "p.toml",
        std::fs::read_to_string(place.path("p.toml"))
            .unwrap()
            .replace("intern_values = 4", "intern_values = 10"),
    );
    place.run("plain").complete();
    let want = Tree::read(&place.path("plain"));
    (place, want)
}

/// A run that is past its first commit and has to wait for its lines to be read.
fn waiting_run(place: &Place) -> Running {
    let mut running = place.run("out").set("run.batch_rows=1").set("run.commit_bytes=1B").start();
    running.line_with("commit");
    running
}

#[test]
fn a_second_run_is_refused_and_the_first_is_not_disturbed() {
    let (place, want) = place();
    let first = waiting_run(&place);
    for settings in [["--jobs", "1"], ["--memory", "512MiB"]] {
        let second = place.run("out").arg(settings[0]).arg(settings[1]).wait();
        assert_eq!(second.code(), Some(1), "{second:#?}");
        let holder = format!("is being written by another run (pid {} on ", first.pid());
        assert!(second.messages().contains(&holder), "{second:#?}");
        assert!(second.messages().contains("hint: "), "{second:#?}");
        assert!(second.events().is_empty(), "{second:#?}");
    }
    let first = first.wait();
    assert_eq!(first.code(), Some(0), "{first:#?}");
    let n_events = first.events().len();
    assert!(n_events > 1_600, "{n_events} events: the run did not have to wait");
    Tree::read(&place.path("out")).assert_is(&want, "the first of two runs");
}

#[test]
fn a_lock_whose_holder_was_killed_is_free() {
    let (place, want) = place();
    waiting_run(&place).kill();
    place.run("out").complete();
    Tree::read(&place.path("out")).assert_is(&want, "after the holder was killed");
}

#[test]
fn a_run_that_is_asked_to_stop_stops_at_a_commit_and_the_next_one_goes_on() {
    let (place, want) = place();
    let running = waiting_run(&place);
    running.terminate();
    let stopped = running.wait();
    assert_eq!(stopped.code(), Some(75), "{stopped:#?}");
    for text in
        ["stopping at the next commit", "error[stopped]: stopped before", "hint: run the same"]
    {
        assert!(stopped.messages().contains(text), "{stopped:#?}");
    }
    assert!(!Tree::read(&place.path("out")).is_complete());
    let ended = place.run("out").complete();
    let (durable, resumed) = (stopped.durable_rows(), ended.number("resumed_rows"));
    assert!(durable > 0 && resumed >= durable, "{durable} durable, {resumed} resumed");
    let left = N_ROWS as u64 - resumed;
    assert!((left..=left + 1).contains(&ended.rows_read()), "{} read of {left}", ended.rows_read());
    Tree::read(&place.path("out")).assert_is(&want, "stopped by SIGTERM");
}

#[test]
fn a_run_that_is_asked_twice_leaves_what_the_next_one_goes_on_from() {
    let (place, want) = place();
    let mut running = waiting_run(&place);
    running.terminate();
    running.line_with("stopping at the next commit");
    running.terminate();
    let stopped = running.wait();
    assert_eq!(stopped.code(), Some(75), "{stopped:#?}");
    let ended = place.run("out").complete();
    assert!(ended.number("resumed_rows") >= stopped.durable_rows(), "{stopped:#?}");
    Tree::read(&place.path("out")).assert_is(&want, "stopped by two SIGTERM");
}
