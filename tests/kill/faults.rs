//! System calls that fail, and kills right before one: below `strace`, at a spread of calls.
//!
//! `when=N` counts the calls of each thread, so that a fault strikes in whichever thread comes to its
//! N-th call first; which that is may differ from run to run, what must hold does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::builds;
use crate::place::Place;
use crate::process::{Ended, Run};
use crate::tools::{can_trace, strace};
use crate::tree::Tree;

/// The calls that `storage::Local` changes a disk with.
const CALLS: &str = "pwrite64,fdatasync,fsync,rename,unlink,mkdir,rmdir,ftruncate,symlink";

/// Faults: the call, what happens, the text of the error (`None`: a kill), how many points.
const FAULTS: [(&str, &str, Option<&str>, usize); 12] = [
    ("pwrite64", "error=ENOSPC", Some("No space left on device"), 8),
    ("fdatasync", "error=EIO", Some("Input/output error"), 8),
    ("fsync", "error=EIO", Some("Input/output error"), 6),
    ("rename", "error=EIO", Some("Input/output error"), 6),
    ("mkdir", "error=EROFS", Some("Read-only file system"), 2),
    ("unlink", "error=EIO", Some("Input/output error"), 2),
    ("pwrite64", "signal=KILL", None, 8),
    ("fdatasync", "signal=KILL", None, 8),
    ("fsync", "signal=KILL", None, 6),
    ("rename", "signal=KILL", None, 6),
    ("unlink", "signal=KILL", None, 4),
    ("symlink", "signal=KILL", None, 1),
];

/// Where a build stands when the fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// Nothing was built.
    Empty,
    /// Every partition is recorded; the dataset has no manifest, no sentinel and no link.
    Unsealed,
}

impl Start {
    fn prepare(self, place: &Place) {
        let out = place.path("out");
        match self {
            Self::Empty => fs::remove_dir_all(out).unwrap_or_default(),
            Self::Unsealed => {
                place.run("out").complete();
                unseal(&out);
            }
        }
    }
}

/// Removes what finishing a dataset makes.
fn unseal(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name == "_COMPLETE" || name == "current" || name.starts_with("manifest-") {
            fs::remove_file(entry.path()).unwrap();
        } else if name != "shards" && entry.file_type().unwrap().is_dir() {
            unseal(&entry.path());
        }
    }
}

fn run(place: &Place, trace: &str, inject: Option<&str>) -> Run {
    let log = place.path("log");
    let traced = strace(log.to_str().unwrap(), trace, inject);
    place.run("out").below(traced).set("run.batch_rows=2").set("run.commit_bytes=1B")
}

/// How many calls of each kind the busiest thread makes in an undisturbed run.
fn most_calls(place: &Place) -> BTreeMap<String, usize> {
    run(place, CALLS, None).complete();
    let mut by_thread: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in fs::read_to_string(place.path("log")).unwrap().lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        // Lines that tell how a call ended, or a thread, have no name there.
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        *by_thread.entry((thread.to_owned(), name.to_owned())).or_default() += 1;
    }
    let mut most = BTreeMap::new();
    for ((_, name), n) in by_thread {
        let known: &mut usize = most.entry(name).or_default();
        *known = n.max(*known);
    }
    most
}

/// From 1 to `most`, denser at first.
fn points(n: usize, most: usize) -> Vec<usize> {
    let mut points: Vec<usize> =
        (0..=n).filter(|_| most > 0).map(|i| 1 + (most.max(1) - 1) * i * i / (n * n)).collect();
    points.dedup();
    points
}

/// Whether the fault struck. A run that it did not strike is undisturbed.
fn check(ended: &Ended, error: Option<&str>, after: &Tree, want: &Tree, case: &str) -> bool {
    after.assert_sentinels_are_true(want, case);
    if ended.code() == Some(0) {
        after.assert_is(want, case);
        return false;
    }
    let Some(error) = error else {
        assert!(ended.was_killed(), "{case}: {ended:#?}");
        return true;
    };
    assert_eq!(ended.code(), Some(1), "{case}: {ended:#?}");
    let messages = ended.messages();
    let first = messages.lines().find(|line| line.starts_with("error[")).unwrap_or_default();
    assert!(first.contains(error) && first.contains("/out"), "{case}: {messages}");
    if error.starts_with("No space") {
        assert!(messages.contains("hint: free some space"), "{case}: {messages}");
    }
    true
}

fn strike_everywhere(name: &str, place: &Place, start: Start) {
    place.run("plain").complete();
    let want = Tree::read(&place.path("plain"));
    start.prepare(place);
    let most = most_calls(place);
    // Of errors, then of kills.
    let (mut n_cases, mut n_struck) = ([0, 0], [0, 0]);
    for (call, fault, error, n_points) in FAULTS {
        for n in points(n_points, most.get(call).copied().unwrap_or(0)) {
            start.prepare(place);
            let case = format!("{name}, {start:?}, {call} {fault} at {n}");
            let jobs = ["1", "2"][n % 2];
            let inject = format!("{call}:{fault}:when={n}");
            let faulty = run(place, call, Some(&inject)).arg("--jobs").arg(jobs).wait();
            let after = Tree::read(&place.path("out"));
            let kind = usize::from(error.is_none());
            n_struck[kind] += usize::from(check(&faulty, error, &after, &want, &case));
            n_cases[kind] += 1;
            let ended = place.run("out").set("run.batch_rows=3").complete();
            Tree::read(&place.path("out")).assert_is(&want, &case);
            let (durable, resumed) = (faulty.durable_rows(), ended.number("resumed_rows"));
            assert!(resumed >= durable, "{case}: {resumed} rows were resumed of {durable}");
        }
    }
    let (cases, struck) = (n_cases, n_struck);
    println!(
        "{name}, {start:?}: {} of {} errors and {} of {} kills struck; calls per thread: {most:?}",
        struck[0], cases[0], struck[1], cases[1]
    );
    assert!(struck[0] * 3 > cases[0] && struck[1] * 3 > cases[1], "{struck:?} of {cases:?}");
}

#[test]
fn a_build_of_files_survives_every_fault_with_the_same_bytes() {
    if can_trace() {
        strike_everywhere("files", &builds::files(3, 30, 1_000), Start::Empty);
    }
}

#[test]
fn a_build_of_rows_survives_every_fault_with_the_same_bytes() {
    if can_trace() {
        strike_everywhere("csv", &builds::csv(4, 50, 900, 9), Start::Empty);
    }
}

#[test]
fn finishing_a_dataset_survives_every_fault_with_the_same_bytes() {
    if can_trace() {
        strike_everywhere("csv", &builds::csv(5, 20, 900, 9), Start::Unsealed);
    }
}
