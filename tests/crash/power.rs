//! The power is cut: during a build, and during the run that goes on with it.

use rowmill::shard::ShardError;
use rowmill::storage::{Memory, Overlap};

use crate::build::{CUTS, Case, chain};
use crate::sampling::{Gone, Sampling, Seen, Tally};
use crate::schemas;
use crate::trial::Trial;

/// How much is tried: most operations at which a build is cut, and most disks that are looked at
/// after each cut. The scale multiplies both.
#[derive(Debug, Clone, Copy)]
struct Amount {
    cuts: usize,
    boots: usize,
}

const ALL: Amount = Amount { cuts: usize::MAX, boots: usize::MAX };

fn cut_anywhere(name: &str, case: &Case, overlap: Overlap, amount: Amount) {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new(format!("{name}, commits {overlap:?}"), &sampling);
    let (mut seen, mut gone) = (Seen::default(), Gone::default());
    let n_operations = Trial::new(case, overlap).n_operations(CUTS[0]);
    tally.add("operations", n_operations);
    for n in sampling.pick(n_operations, amount.cuts, 1) {
        let mut trial = Trial::new(case, overlap);
        assert!(!trial.run_until(n, CUTS[0]), "it ended without operation {n}");
        tally.add("of them cut", 1);
        for (index, boot) in trial.after_cut(&sampling, amount.boots, n as u64).enumerate() {
            tally.add("power cuts", 1);
            if seen.is_new(&boot.disk, &boot.said) {
                tally.add("different disks", 1);
                tally.add("ways on", usize::from(boot.resume_unless(&mut gone, n + index)));
            }
        }
    }
}

#[test]
fn tiny_build_survives_a_power_cut_at_any_operation() {
    cut_anywhere("tiny", &schemas::tiny(), Overlap::Now, ALL);
}

#[test]
fn tiny_build_with_late_commits_survives_a_power_cut_at_any_operation() {
    cut_anywhere("tiny", &schemas::tiny(), Overlap::Late, ALL);
}

#[test]
fn build_of_each_kind_survives_a_power_cut_at_any_operation() {
    let amount = Amount { boots: 3, ..ALL };
    for overlap in [Overlap::Now, Overlap::Late] {
        cut_anywhere("each kind", &schemas::each_kind(), overlap, amount);
    }
}

#[test]
fn build_of_every_kind_survives_power_cuts() {
    let amount = Amount { cuts: 16, boots: 3 };
    for overlap in [Overlap::Now, Overlap::Late] {
        cut_anywhere("every kind", &schemas::every_kind(), overlap, amount);
    }
}

#[test]
fn build_with_commits_on_a_thread_survives_power_cuts() {
    let amount = Amount { cuts: 60, boots: 3 };
    cut_anywhere("each kind", &schemas::each_kind(), Overlap::Thread, amount);
}

/// Cuts the power at every operation of the run that goes on after a power cut.
fn cut_again(name: &str, case: &Case, overlap: Overlap, amount: Amount) {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new(format!("{name} cut again, commits {overlap:?}"), &sampling);
    let mut seen = Seen::default();
    let n_operations = Trial::new(case, overlap).n_operations(CUTS[0]);
    for first in sampling.pick(n_operations, amount.cuts, 2) {
        let mut trial = Trial::new(case, overlap);
        trial.run_until(first, CUTS[0]);
        tally.add("first cuts", 1);
        for (index, boot) in trial.after_cut(&sampling, 2, first as u64).enumerate() {
            let cuts = CUTS[(first + index) % CUTS.len()];
            for n in 0..boot.n_operations(cuts) {
                let mut again = boot.after_kill();
                assert!(!again.run_until(n, cuts), "it ended without operation {n}");
                tally.add("second cuts", 1);
                for boot in again.after_cut(&sampling, amount.boots, (first + n) as u64) {
                    tally.add("power cuts", 1);
                    if seen.is_new(&boot.disk, &boot.said) {
                        tally.add("different disks", 1);
                        boot.resume_nth(n);
                    }
                }
            }
        }
    }
}

#[test]
fn recovery_survives_a_power_cut_at_any_operation() {
    for overlap in [Overlap::Now, Overlap::Late] {
        cut_again("tiny", &schemas::tiny(), overlap, Amount { cuts: 6, boots: 3 });
        cut_again("each kind", &schemas::each_kind(), overlap, Amount { cuts: 2, boots: 2 });
    }
}

#[test]
fn shard_that_a_torn_rename_has_lost_is_missed_by_name() {
    let sampling = Sampling::from_env();
    let mut tally = Tally::new("tiny, where renames can be torn", &sampling);
    let case = schemas::tiny();
    let mut seen = Seen::default();
    for n in 0..Trial::new(&case, Overlap::Now).n_operations(CUTS[0]) {
        let mut trial = Trial::on(&case, Memory::new(Overlap::Now));
        trial.run_until(n, CUTS[0]);
        for mut boot in trial.after_cut(&sampling, 8, n as u64) {
            if !seen.is_new(&boot.disk, &boot.said) {
                continue;
            }
            tally.add("different disks", 1);
            // Both halves of a rename survive, or one of them; neither name may lead to the shard.
            match boot.try_run(CUTS[0]) {
                Ok(finished) => boot.check_finished(&finished),
                Err(ShardError::Lost { .. }) => tally.add("of them with a shard lost", 1),
                Err(error) => boot.fail(&chain(&error)),
            }
        }
    }
}
