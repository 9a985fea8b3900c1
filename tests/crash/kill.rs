//! The process is killed: what it did is seen, and nothing of what it did not sync is durable yet.

use std::sync::Arc;

use rowmill::shard::Writer;
use rowmill::storage::Overlap;

use crate::build::{CUTS, Case};
use crate::sampling::{Sampling, Tally};
use crate::schemas;
use crate::trial::Trial;

/// At so many operations the run after a killed one is cut.
const SECOND: usize = 2;

/// Kills a build at up to `most` operations; the run that goes on with it is cut at some others.
fn kill_anywhere(name: &str, case: &Case, overlap: Overlap, most: usize) {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new(format!("{name} killed, commits {overlap:?}"), &sampling);
    let n_operations = Trial::new(case, overlap).n_operations(CUTS[0]);
    tally.add("operations", n_operations);
    for n in sampling.pick(n_operations, most, 3) {
        let mut trial = Trial::new(case, overlap);
        trial.run_until(n, CUTS[0]);
        tally.add("kills", 1);
        trial.after_kill().resume_nth(n);
        // The next run must not stand on what only the killed one has seen.
        let cuts = CUTS[(n + 1) % CUTS.len()];
        let n_operations = trial.after_kill().n_operations(cuts);
        for draw in 0..SECOND {
            let second = sampling.number(&[n as u64, draw as u64]) as usize % n_operations;
            let mut again = trial.after_kill();
            again.run_until(second, cuts);
            for boot in again.after_cut(&sampling, 2, (n + second) as u64) {
                tally.add("power cuts after a kill", 1);
                boot.resume_nth(n + draw);
            }
        }
    }
}

#[test]
fn killed_build_goes_on_and_its_successor_survives_a_power_cut() {
    for overlap in [Overlap::Now, Overlap::Late] {
        kill_anywhere("tiny", &schemas::tiny(), overlap, usize::MAX);
        kill_anywhere("each kind", &schemas::each_kind(), overlap, 60);
    }
}

#[test]
fn build_survives_one_interruption_after_the_other() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("interrupted again and again", &sampling);
    let cases = [schemas::tiny(), schemas::each_kind()];
    for n in 0..sampling.times(60) {
        let draw = |step, what| sampling.number(&[n as u64, step, what]) as usize;
        let overlap = if n % 2 == 0 { Overlap::Now } else { Overlap::Late };
        let mut trial = Trial::new(&cases[draw(0, 0) % cases.len()], overlap);
        for step in 1..12 {
            let cuts = CUTS[draw(step, 1) % CUTS.len()];
            // Often early, where recovery is, and sometimes far into the build.
            let most = 1 << (draw(step, 2) % 9);
            if trial.run_until(draw(step, 3) % most, cuts) {
                break;
            }
            tally.add("interruptions", 1);
            let mut next = trial.after_cut(&sampling, 4, draw(step, 4) as u64).collect::<Vec<_>>();
            next.push(trial.after_kill());
            trial = next.swap_remove(draw(step, 5) % next.len());
        }
        tally.add("builds", 1);
        trial.after_kill().resume_nth(n);
    }
}

#[test]
fn shard_that_a_killed_run_has_put_in_its_place_is_durable_once_it_is_found() {
    let case = schemas::tiny();
    let mut n_unsynced = 0;
    for n in 0..Trial::new(&case, Overlap::Now).n_operations(CUTS[0]) {
        let mut trial = Trial::new(&case, Overlap::Now);
        trial.run_until(n, CUTS[0]);
        let found = trial.after_kill().disk;
        let cut_before = case.n_in_place(&found.after_power_cut(&|_| false));
        n_unsynced += usize::from(cut_before < case.n_in_place(&found));
        let (writer, _) = Writer::open(Arc::new(found.clone()), case.options.clone()).unwrap();
        let cut_after = case.n_in_place(&found.after_power_cut(&|_| false));
        assert!(cut_after >= writer.sealed().len(), "killed at operation {n}");
    }
    assert!(n_unsynced > 0, "no kill has left a shard in its place that was not durable");
}
