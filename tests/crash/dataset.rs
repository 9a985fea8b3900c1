//! Whole datasets: partitions, records, manifest, key index, sentinel, and the link `current`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use rowmill::dataset::verify::verify;
use rowmill::dataset::{DatasetError, Home};
use rowmill::storage::faulty::{Fault, Lasting};
use rowmill::storage::{Faulty, Memory, Overlap, Storage};

use crate::build::{Checked, Said, require};
use crate::fake::Fake;
use crate::sampling::{Sampling, Seen, Tally};

/// Files whose rows make two partitions: a group, and one that has two shards.
const FILES: &[(&str, &str)] = &[("a.txt", "xy.z"), ("c.txt", "01234!67.")];

/// A dataset to build on what is there already.
struct Whole {
    fake: Fake,
    /// What is there before the build.
    start: Memory,
    /// The generations that a reader may find, the one to be built last.
    generations: Vec<String>,
    /// Everything but the writer's state.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Names of what is left of the writer's state.
    left: Vec<PathBuf>,
}

impl Whole {
    /// A first generation.
    fn first(overlap: Overlap) -> Self {
        let fake = Fake { key: Some("id"), batch_rows: 2, ..Fake::new(FILES) };
        Self::new(fake, Memory::new(overlap).with_whole_renames(), Vec::new())
    }

    /// A second generation, after an input has changed.
    fn second(overlap: Overlap) -> Self {
        let first = Self::first(overlap);
        let start = first.start.after_kill();
        first.build(&start).unwrap();
        let mut fake = first.fake.clone();
        fake.files.insert("a.txt".to_owned(), ("XY.Z".to_owned(), 2));
        Self::new(fake, start.after_power_cut(&|_| true), first.generations)
    }

    fn new(fake: Fake, start: Memory, generations: Vec<String>) -> Self {
        let mut this = Self { fake, start, generations, files: Vec::new(), left: Vec::new() };
        let memory = this.start.after_kill();
        assert_eq!(this.fake.parts().len(), 2);
        this.build(&memory).unwrap();
        let built = this.generation(&memory).unwrap().unwrap();
        assert!(!this.generations.contains(&built));
        this.generations.push(built);
        (this.files, this.left) = this.look(&memory);
        this
    }

    fn home(&self) -> Home {
        self.fake.home()
    }

    /// Builds what is not built yet.
    fn build(&self, storage: &(impl Storage + Clone + 'static)) -> Result<(), DatasetError> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        self.fake.clone().build(&storage).map(drop)
    }

    /// How many operations that is.
    fn n_operations(&self) -> usize {
        let memory = self.start.after_kill();
        self.build(&memory).unwrap();
        memory.operations() as usize
    }

    /// Builds until operation `n`.
    fn cut_at(&self, start: &Memory, n: usize) -> Memory {
        let memory = start.after_kill();
        memory.cut_at(n as u64);
        let outcome = self.build(&memory);
        assert!(outcome.is_err(), "it ended without operation {n}");
        memory
    }

    /// The files of the dataset, and the names of those that are left of the writer's state.
    fn look(&self, disk: &Memory) -> (Vec<(PathBuf, Vec<u8>)>, Vec<PathBuf>) {
        let files = disk.snapshot(self.home().dir());
        let (work, files) = files.into_iter().partition(|(path, _)| path.starts_with("work"));
        let left: Vec<(PathBuf, Vec<u8>)> = work;
        (files, left.into_iter().map(|(path, _)| path).collect())
    }

    /// The generation that a reader finds, every byte of it verified.
    fn generation(&self, disk: &Memory) -> Checked<Option<String>> {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        if disk.stat(&self.home().sentinel()).unwrap().is_none() {
            return Ok(None);
        }
        match verify(&storage, self.home().dir(), &mut |_| {}) {
            Ok(verified) => Ok(Some(verified.generation)),
            Err(findings) => Err(format!("the sentinel lies: {findings:?}")),
        }
    }

    /// Checks that a reader finds a complete generation, or none where there was none before.
    fn check_readable(&self, disk: &Memory) -> Checked {
        let generation = self.generation(disk)?;
        let is_known = generation.as_ref().is_none_or(|found| self.generations.contains(found));
        require(is_known, || format!("{generation:?} is complete, which nobody has built"))?;
        require(generation.is_some() || self.generations.len() == 1, || {
            "the generation before is gone".to_owned()
        })?;
        let link = disk.read_link(&self.home().current()).unwrap();
        require(link.is_none() || generation.is_some(), || {
            "`current` leads to a dataset that is not complete".to_owned()
        })
    }

    /// Checks that the dataset is built, and durable, and that nothing else is left.
    fn check_built(&self, disk: &Memory) -> Checked {
        for (when, disk) in [("now", disk), ("after a cut", &disk.after_power_cut(&|_| false))] {
            let (files, left) = self.look(disk);
            let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
                files.iter().map(|(path, _)| path.clone()).collect()
            };
            require(files == self.files, || {
                format!("{when}, these are other files or bytes: {:?}", names(&files))
            })?;
            require(when != "now" || left == self.left, || format!("{left:?} is left"))?;
            let link = disk.read_link(&self.home().current()).unwrap();
            require(link.as_deref() == Some(self.home().cache_key()), || {
                format!("{when}, `current` leads to {link:?}")
            })?;
        }
        Ok(())
    }

    /// Looks at what is there as a reader does, and completes it.
    fn complete(&self, disk: &Memory, way: &str) {
        let checked = self.check_readable(disk);
        let checked = checked.and_then(|()| {
            self.build(disk).map_err(|e| format!("it cannot go on: {e}, {:?}", e.hint()))?;
            self.check_built(disk)
        });
        checked.unwrap_or_else(|problem| panic!("{way}: {problem}"));
    }
}

fn generations(overlap: Overlap) -> [(&'static str, Whole); 2] {
    [("first generation", Whole::first(overlap)), ("second generation", Whole::second(overlap))]
}

#[test]
fn dataset_survives_a_power_cut_at_any_operation() {
    let sampling = Sampling::from_env();
    for overlap in [Overlap::Now, Overlap::Late] {
        for (name, whole) in generations(overlap) {
            let mut tally = Tally::new(format!("{name}, commits {overlap:?}"), &sampling);
            let mut seen = Seen::default();
            tally.add("operations", whole.n_operations());
            for n in sampling.pick(whole.n_operations(), 80, 21) {
                let memory = whole.cut_at(&whole.start, n);
                tally.add("of them cut", 1);
                for (survivors, boot) in sampling.boots(&memory, 3, n as u64) {
                    tally.add("power cuts", 1);
                    if !seen.is_new(&boot, &Said::default()) {
                        continue;
                    }
                    tally.add("different disks", 1);
                    whole.complete(&boot, &format!("{name}, {overlap:?}, cut at {n}, {survivors}"));
                }
            }
        }
    }
}

#[test]
fn dataset_survives_kills_and_power_cuts_after_them() {
    let sampling = Sampling::from_env();
    for (name, whole) in generations(Overlap::Late) {
        let mut tally = Tally::new(format!("{name} killed"), &sampling);
        let n_operations = whole.n_operations();
        for n in sampling.pick(n_operations, 50, 22) {
            let killed = whole.cut_at(&whole.start, n).after_kill();
            tally.add("kills", 1);
            let way = format!("{name}, killed at {n}");
            whole.complete(&killed.after_kill(), &way);
            let again = killed.after_kill();
            let second = sampling.number(&[n as u64]) as usize % n_operations;
            again.cut_at(second as u64);
            // It may come to its end before.
            drop(whole.build(&again));
            for (survivors, boot) in sampling.boots(&again, 2, n as u64) {
                tally.add("power cuts after a kill", 1);
                whole.complete(&boot, &format!("{way}, then cut at {second}, {survivors}"));
            }
        }
    }
}

#[test]
fn dataset_stops_at_any_fault_and_is_completed_by_the_next_run() {
    let sampling = Sampling::from_env();
    for (name, whole) in generations(Overlap::Now) {
        let mut tally = Tally::new(format!("{name} on a failing disk"), &sampling);
        let undisturbed = Faulty::new(whole.start.after_kill());
        undisturbed.count_reads();
        whole.build(&undisturbed).unwrap();
        let operations = undisturbed.operations();
        tally.add("operations", operations.len());
        for n in sampling.pick(operations.len(), 120, 23) {
            let fault = [Fault::Io, Fault::Full, Fault::Short][n % 3];
            let disk = whole.start.after_kill();
            let faulty = Faulty::new(disk.clone());
            faulty.count_reads();
            faulty.fail_at(n, fault, Lasting::Once);
            let way = format!("{name}, {fault:?} at operation {n}, {:?}", operations[n]);
            let Err(error) = whole.build(&faulty) else {
                panic!("{way}: the run claims to have come to its end")
            };
            assert!(is_of_the_disk(&error), "{way}: {error}");
            tally.add("faults", 1);
            whole.complete(&disk.after_kill(), &way);
        }
    }
}

fn is_of_the_disk(error: &DatasetError) -> bool {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.into_iter().any(<dyn Error>::is::<std::io::Error>)
}
