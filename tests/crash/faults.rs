//! An operation fails: with an I/O error, because the disk is full, or in the middle of an append.

use rowmill::shard::ShardError;
use rowmill::storage::faulty::{Fault, Lasting};
use rowmill::storage::{Faulty, Overlap};

use crate::build::{CUTS, Case};
use crate::sampling::{Sampling, Seen, Tally};
use crate::schemas;
use crate::trial::Trial;

const FAULTS: [(Fault, Lasting); 6] = [
    (Fault::Io, Lasting::Once),
    (Fault::Io, Lasting::FromThenOn),
    (Fault::Full, Lasting::Once),
    (Fault::Full, Lasting::FromThenOn),
    (Fault::Short, Lasting::Once),
    (Fault::Short, Lasting::FromThenOn),
];

/// Fails every operation from here on, in each way; the next run, and the next boot's, go on.
fn fail_anywhere(trial: &Trial<'_>, with_reads: bool, tally: &mut Tally, sampling: &Sampling) {
    let whole = Faulty::new(trial.disk.after_kill());
    if with_reads {
        whole.count_reads();
    }
    trial.after_kill().run_on(&whole, CUTS[0]);
    let operations = whole.operations();
    tally.add("operations", operations.len());
    for (n, operation) in operations.iter().enumerate() {
        // Most ways to fail leave the same disk.
        let mut seen = Seen::default();
        let ways = if with_reads { &FAULTS[..1] } else { &FAULTS[..] };
        for &(fault, lasting) in ways {
            let mut failed = trial.after_kill();
            let faulty = Faulty::new(failed.disk.clone());
            if with_reads {
                faulty.count_reads();
            }
            faulty.fail_at(n, fault, lasting);
            let what = format!("{fault:?} {lasting:?} at operation {n}, {operation:?}");
            let error = failed.fail_on(&faulty, &what, CUTS[0]);
            let ShardError::Storage(error) = &error else {
                failed.fail(&format!("the disk failed, and the answer is: {error}"));
            };
            assert_eq!((error.op, &error.path), (operation.name, &operation.path), "{what}");
            assert_eq!(error.hint().is_some(), fault != Fault::Io, "{what}");
            tally.add("faults", 1);
            if !seen.is_new(&failed.disk, &failed.said) {
                continue;
            }
            tally.add("different disks", 1);
            if n % 4 == 0 {
                for boot in failed.after_cut(sampling, 2, n as u64) {
                    tally.add("power cuts after a fault", 1);
                    boot.resume_nth(n);
                }
            }
            failed.after_kill().resume_nth(n);
        }
    }
}

fn fail_build(name: &str, case: &Case) {
    let sampling = Sampling::from_env();
    for overlap in [Overlap::Now, Overlap::Late] {
        let mut tally =
            Tally::new(format!("{name} on a failing disk, commits {overlap:?}"), &sampling);
        fail_anywhere(&Trial::new(case, overlap), false, &mut tally, &sampling);
    }
}

#[test]
fn build_stops_at_any_fault_and_the_next_run_goes_on() {
    fail_build("tiny", &schemas::tiny());
}

#[test]
fn build_stops_where_a_read_fails_and_the_next_run_goes_on() {
    let sampling = Sampling::from_env();
    let case = schemas::each_kind();
    let mut tally = Tally::new("each kind on a disk that fails to read", &sampling);
    fail_anywhere(&Trial::new(&case, Overlap::Late), true, &mut tally, &sampling);
}

#[test]
fn recovery_stops_at_any_fault_and_the_next_run_goes_on() {
    let sampling = Sampling::from_env();
    let case = schemas::tiny();
    let mut tally = Tally::new("recovery on a failing disk", &sampling);
    let n_operations = Trial::new(&case, Overlap::Now).n_operations(CUTS[0]);
    for n in sampling.pick(n_operations, 3, 7) {
        let mut trial = Trial::new(&case, Overlap::Now);
        trial.run_until(n, CUTS[0]);
        fail_anywhere(&trial.after_kill(), true, &mut tally, &sampling);
    }
}

#[test]
fn build_on_a_disk_that_is_full_again_and_again_goes_on() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("a disk that is full again and again", &sampling);
    for case in [schemas::tiny(), schemas::each_kind()] {
        for (overlap, room) in [(Overlap::Now, 700), (Overlap::Late, 3000), (Overlap::Now, 9001)] {
            let mut trial = Trial::new(&case, overlap);
            // What does not fit into the room that every run gets is never written: more each time.
            for run in 1.. {
                let faulty = Faulty::new(trial.disk.clone());
                faulty.set_space(room * run);
                let outcome = case.run(&faulty, CUTS[run as usize % CUTS.len()], &mut trial.said);
                tally.add("runs", 1);
                match outcome.unwrap_or_else(|problem| trial.fail(&problem)) {
                    Ok(finished) => {
                        case.check_finished(&finished, &trial.disk).unwrap();
                        break;
                    }
                    Err(error) => assert!(error.hint().is_some_and(|hint| hint.contains("space"))),
                }
                trial = trial.after_kill();
            }
        }
    }
}
