//! The power is cut at every operation of a build, and the next run completes it with the same bytes.

use rowmill::dataset::Home;
use rowmill::storage::memory::survivals;
use rowmill::storage::{Memory, Overlap};

use crate::fake::Fake;
use crate::{disk, sealed};

/// Two partitions of a few rows: every step of a build once or twice.
const SMALL: &[(&str, &str)] = &[("a.txt", "AB.C"), ("c.txt", "0123456789abcdefghi!")];

/// Cuts a build that starts on `start` at every `step`-th operation; what `survives` of each is
/// `samples` different disks. Each must come to the bytes of `want`.
fn cut_everywhere(start: &Memory, fake: &Fake, home: &Home, step: usize, samples: usize) {
    let run = start.after_kill();
    let first = run.operations();
    fake.clone().build(&disk(&run)).unwrap();
    let (last, want) = (run.operations(), sealed(&run, home));
    let mut n_cuts = 0;
    for n in (first..last).step_by(step) {
        let run = start.after_kill();
        run.cut_at(n);
        fake.clone().build(&disk(&run)).unwrap_err();
        let sets: Vec<_> = survivals(run.pending(), n, 1).collect();
        let every = (sets.len() / samples).max(1);
        for survival in sets.iter().step_by(every) {
            let boot = run.after_power_cut(&|i| survival.survives(i));
            let built = fake.clone().build(&disk(&boot));
            let pending = run.pending_operations();
            assert!(built.is_ok(), "cut at {n}: {built:?}, {survival:?} of {pending:?}");
            assert!(sealed(&boot, home) == want, "cut at {n}, {survival:?} of {pending:?}");
            n_cuts += 1;
        }
    }
    assert!(n_cuts > 10);
}

#[test]
fn a_build_that_is_cut_anywhere_is_completed_with_the_same_bytes() {
    for (overlap, step) in [(Overlap::Now, 9), (Overlap::Late, 13)] {
        let fake = Fake::new(SMALL);
        cut_everywhere(&Memory::new(overlap).with_whole_renames(), &fake, &fake.home(), step, 3);
    }
}

#[test]
fn the_next_generation_that_is_cut_anywhere_is_completed_with_the_same_bytes() {
    let mut fake = Fake { key: Some("id"), ..Fake::new(SMALL) };
    let memory = Memory::new(Overlap::Now).with_whole_renames();
    fake.build(&disk(&memory)).unwrap();
    fake.files.insert("a.txt".to_owned(), ("XY.Z".to_owned(), 2));
    cut_everywhere(&memory.after_power_cut(&|_| true), &fake, &fake.home(), 5, 3);
}
