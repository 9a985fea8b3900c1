//! Cleaning: what goes and what stays, and the power cut at every operation of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use rowmill::dataset::clean::{Keep, Leftover, clean, leftovers};
use rowmill::dataset::manifest::Manifest;
use rowmill::dataset::verify::verify;
use rowmill::dataset::{Home, RunNote, Workplace};
use rowmill::shard::Shard;
use rowmill::storage::memory::survivals;
use rowmill::storage::{Memory, Overlap, Storage};

use crate::disk;
use crate::fake::Fake;

const FILES: &[(&str, &str)] = &[("a.txt", "AB.C"), ("c.txt", "0123456789abcdefghi!")];
const CURRENT_ONLY: Keep = Keep { previous: 0, younger_than: None };
const ONE_BEFORE: Keep = Keep { previous: 1, younger_than: None };

/// Three generations, of which the last was built by a run that came to its end.
fn built() -> (Memory, Fake) {
    let memory = Memory::new(Overlap::Now).with_whole_renames();
    let mut fake = Fake { key: Some("id"), ..Fake::new(FILES) };
    for (mtime, text) in [(1, "AB.C"), (2, "XY.Z"), (3, "UV.W")] {
        fake.files.insert("a.txt".to_owned(), (text.to_owned(), mtime));
        fake.build(&disk(&memory)).unwrap();
    }
    note(&memory, &fake);
    (memory.after_power_cut(&|_| true), fake)
}

/// What the last run set out to build: the partitions as they are now.
fn note(memory: &Memory, fake: &Fake) {
    let place = Workplace::open(disk(memory), fake.home()).unwrap();
    let slots = fake.parts().iter().map(|part| fake.slot(part)).collect();
    let note = RunNote { began_ms: 0, definition: fake.definition(), rows_before: 0, slots };
    note.write(&place).unwrap();
}

fn names(memory: &Memory, dir: &Path) -> BTreeSet<String> {
    memory.list(dir).unwrap().unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

/// How many generations there are, all of them whole; the current one verifies.
fn whole_generations(memory: &Memory, home: &Home) -> usize {
    let storage = disk(memory);
    let checked = verify(&storage, home.dir(), &mut |_| {});
    assert!(checked.is_ok(), "{checked:?}");
    let files = names(memory, home.dir());
    let manifests: Vec<_> = files.iter().filter(|name| Manifest::is_file_name(name)).collect();
    for name in &manifests {
        let manifest = Manifest::read_named(&*storage, home.dir(), name).unwrap().unwrap();
        for shard in &manifest.shards {
            let opened = Shard::open(disk(memory), home.shard(&shard.id)).unwrap();
            assert_eq!(opened.n_rows(), shard.rows);
        }
        for partition in &manifest.partitions {
            assert!(names(memory, &home.partitions()).contains(&partition.record));
        }
        assert!(files.contains(&manifest.dataset.keys.unwrap().file));
    }
    manifests.len()
}

fn cleaned(memory: &Memory, home: &Home, keep: Keep) -> Vec<Leftover> {
    let place = Workplace::open(disk(memory), home.clone()).unwrap();
    let mut removed = Vec::new();
    clean(&place, keep, |it| {
        removed.push(it.what);
        Ok(())
    })
    .unwrap();
    removed
}

#[test]
fn what_no_kept_generation_names_goes() {
    let (start, fake) = built();
    let home = fake.home();
    assert_eq!(whole_generations(&start, &home), 3);
    for (keep, n_generations) in [
        (Keep { previous: 9, younger_than: None }, 3),
        (ONE_BEFORE, 2),
        (CURRENT_ONLY, 1),
        (Keep { previous: 0, younger_than: Some(SystemTime::UNIX_EPOCH) }, 3),
    ] {
        let memory = start.after_kill();
        let found = leftovers(&memory, &home, keep).unwrap();
        let removed = cleaned(&memory, &home, keep);
        assert_eq!(removed, found.iter().map(|it| it.what).collect::<Vec<_>>());
        assert_eq!(whole_generations(&memory, &home), n_generations, "{keep:?}");
        assert_eq!(leftovers(&memory, &home, keep).unwrap(), []);
        let of = |what| removed.iter().filter(|it| **it == what).count();
        let n_old = 3 - n_generations;
        // Each older generation has one partition and its one shard to itself.
        let found = [Leftover::Manifest, Leftover::KeyIndex, Leftover::Record, Leftover::Shard];
        assert_eq!(found.map(of), [n_old; 4], "{keep:?}: {removed:?}");
        assert!(found_bytes(&start, &home, keep) > 0 || n_old == 0);
    }
}

fn found_bytes(memory: &Memory, home: &Home, keep: Keep) -> u64 {
    leftovers(memory, home, keep).unwrap().iter().map(|it| it.n_bytes).sum()
}

#[test]
fn cut_anywhere_every_generation_that_is_left_is_whole() {
    let (start, fake) = built();
    let home = fake.home();
    let run = start.after_kill();
    let first = run.operations();
    cleaned(&run, &home, CURRENT_ONLY);
    let (last, want) = (run.operations(), run.snapshot(home.dir()));
    assert!(last - first > 20);
    for n in first..last {
        let run = start.after_kill();
        run.cut_at(n);
        if let Ok(place) = Workplace::open(disk(&run), home.clone()) {
            clean(&place, CURRENT_ONLY, |_| Ok(())).unwrap_err();
        }
        let sets: Vec<_> = survivals(run.pending(), n, 1).collect();
        for survival in sets.iter().step_by((sets.len() / 3).max(1)) {
            let boot = run.after_power_cut(&|i| survival.survives(i));
            assert!((1..=3).contains(&whole_generations(&boot, &home)), "cut at {n}");
            cleaned(&boot, &home, CURRENT_ONLY);
            assert_eq!(boot.snapshot(home.dir()), want, "cut at {n}, {survival:?}");
        }
    }
}

#[test]
fn what_an_unfinished_build_has_made_stays() {
    let (memory, mut fake) = built();
    let home = fake.home();
    let done = |memory: &Memory| leftovers(memory, &home, ONE_BEFORE).unwrap().len();
    // The second partition changes and is half built; the first is in no other generation.
    fake.files.insert("a.txt".to_owned(), ("new!".to_owned(), 4));
    fake.files.insert("c.txt".to_owned(), ("ABCDEFGHIJKLMNOPQRSTU".to_owned(), 4));
    fake.stop_after = Some(2);
    fake.build(&disk(&memory)).unwrap_err();
    note(&memory, &fake);
    assert!(done(&memory) > 0, "old generations go all the same");
    cleaned(&memory, &home, ONE_BEFORE);
    let (n_built, before) = (fake.n_built, names(&memory, &home.shards()));
    assert!(!names(&memory, &home.work().join("log")).is_empty(), "the begun partition stays");
    fake.stop_after = None;
    fake.build(&disk(&memory)).unwrap();
    assert!(fake.n_built > n_built && before.is_subset(&names(&memory, &home.shards())));
    // Without the note nobody knows what a build goes on with.
    memory.remove_file(&home.run_note()).unwrap();
    let found = leftovers(&memory, &home, CURRENT_ONLY).unwrap();
    assert!(found.iter().all(|it| !matches!(it.what, Leftover::Shard | Leftover::Record)));
}

#[test]
fn what_was_begun_for_other_inputs_goes() {
    let (memory, mut fake) = built();
    let home = fake.home();
    fake.files.insert("a.txt".to_owned(), ("longer than it was".to_owned(), 4));
    fake.stop_after = Some(1);
    fake.build(&disk(&memory)).unwrap_err();
    fake.files.insert("a.txt".to_owned(), ("UV.W".to_owned(), 3));
    note(&memory, &fake);
    let removed = cleaned(&memory, &home, Keep { previous: 9, younger_than: None });
    assert!(removed.contains(&Leftover::Work), "{removed:?}");
    assert_eq!(names(&memory, &home.work().join("open")), BTreeSet::new());
    assert_eq!(whole_generations(&memory, &home), 3);
}
