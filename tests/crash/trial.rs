//! A build and what happens to it, step by step.

use rowmill::shard::{Finished, ShardError};
use rowmill::storage::{Faulty, Memory, Overlap, Storage};

use crate::build::{CUTS, Case, Checked, Cuts, Said, chain};
use crate::sampling::{Gone, Sampling};

/// A build that is interrupted, its disk, and how it came to be as it is.
#[derive(Clone)]
pub(crate) struct Trial<'a> {
    case: &'a Case,
    pub(crate) disk: Memory,
    pub(crate) said: Said,
    /// What has happened, for whoever has to find out what went wrong.
    way: Vec<String>,
}

impl<'a> Trial<'a> {
    /// Nothing is built yet. The disk loses everything that was not synced, but keeps a rename
    /// whole.
    pub(crate) fn new(case: &'a Case, overlap: Overlap) -> Self {
        Self::on(case, Memory::new(overlap).with_whole_renames())
    }

    /// The same on another disk.
    pub(crate) fn on(case: &'a Case, disk: Memory) -> Self {
        let way = vec![format!("{:?}", disk.overlap())];
        Self { case, disk, said: Said::default(), way }
    }

    /// How many operations it takes to come to the end from here.
    pub(crate) fn n_operations(&self, cuts: Cuts) -> usize {
        let mut other = self.after_kill();
        let before = other.disk.operations();
        other.run(cuts);
        (other.disk.operations() - before) as usize
    }

    /// Runs until the operation of number `n`, which is the first that does not happen. Whether it
    /// has come to its end before.
    pub(crate) fn run_until(&mut self, n: usize, cuts: Cuts) -> bool {
        self.way.push(format!("until operation {n} with {cuts:?}"));
        self.disk.cut_at(self.disk.operations() + n as u64);
        let outcome = self.case.run(&self.disk, cuts, &mut self.said);
        self.checked(outcome).is_ok()
    }

    /// Runs to the end.
    fn run(&mut self, cuts: Cuts) -> Finished {
        self.run_on(&self.disk.clone(), cuts)
    }

    /// Runs to the end on this view of the disk.
    pub(crate) fn run_on(
        &mut self,
        disk: &(impl Storage + Clone + 'static),
        cuts: Cuts,
    ) -> Finished {
        self.way.push(format!("to the end with {cuts:?}"));
        let outcome = self.case.run(disk, cuts, &mut self.said);
        let outcome = self.checked(outcome);
        outcome.unwrap_or_else(|error| self.fail(&format!("it cannot go on: {}", chain(&error))))
    }

    /// Runs on this view of the disk, which fails: that has to be answered with an error.
    pub(crate) fn fail_on(&mut self, disk: &Faulty<Memory>, how: &str, cuts: Cuts) -> ShardError {
        self.way.push(format!("{how}, with {cuts:?}"));
        let outcome = self.case.run(disk, cuts, &mut self.said);
        match self.checked(outcome) {
            Err(error) => error,
            Ok(_) => self.fail("the run claims to have come to its end"),
        }
    }

    /// What the next process finds if this one is killed here.
    pub(crate) fn after_kill(&self) -> Self {
        let mut next = Self { disk: self.disk.after_kill(), ..self.clone() };
        next.way.push("killed".to_owned());
        next
    }

    /// What the next boot may find if the power is cut here: up to `most` of the possibilities.
    pub(crate) fn after_cut(
        &self,
        sampling: &Sampling,
        most: usize,
        what: u64,
    ) -> impl Iterator<Item = Self> {
        let next = |(survivors, disk)| {
            let mut next = Self { disk, ..self.clone() };
            next.way.push(format!("power cut, {survivors}"));
            next
        };
        sampling.boots(&self.disk, most, what).map(next)
    }

    /// Recovers, and goes on to the end unless another has come from the same to the same place.
    /// Whether it went on.
    pub(crate) fn resume_unless(self, gone: &mut Gone, n: usize) -> bool {
        let checked = self.case.check_sentinels(&self.disk);
        self.checked(checked);
        let recovered = self.after_kill();
        let mut said = self.said.clone();
        let resume = self.checked(self.case.recover(&recovered.disk, &mut said));
        let how = format!("{resume} {said:?} {}", n % CUTS.len());
        let is_new = gone.is_new(&recovered.disk, &how);
        if is_new {
            self.resume_nth(n);
        }
        is_new
    }

    /// Goes on to the end, and checks everything.
    pub(crate) fn resume(mut self, cuts: Cuts) {
        let checked = self.case.check_sentinels(&self.disk);
        self.checked(checked);
        let finished = self.run(cuts);
        self.check_finished(&finished);
    }

    /// Goes on, to whichever end.
    pub(crate) fn try_run(&mut self, cuts: Cuts) -> Result<Finished, ShardError> {
        let outcome = self.case.run(&self.disk, cuts, &mut self.said);
        self.checked(outcome)
    }

    /// Checks that this is the end that it has to come to.
    pub(crate) fn check_finished(&self, finished: &Finished) {
        self.checked(self.case.check_finished(finished, &self.disk));
    }

    /// The same with cuts that `n` decides.
    pub(crate) fn resume_nth(self, n: usize) {
        self.resume(CUTS[n % CUTS.len()]);
    }

    fn checked<T>(&self, checked: Checked<T>) -> T {
        checked.unwrap_or_else(|problem| self.fail(&problem))
    }

    pub(crate) fn fail(&self, problem: &str) -> ! {
        let pending = self.disk.pending_operations();
        let pending: Vec<_> = pending.iter().map(|operation| format!("\n  {operation}")).collect();
        let way = self.way.join("\n  ");
        panic!("{problem}\nafter\n  {way}\npending now are{}", pending.concat());
    }
}
