//! The upload journal when the power is cut or the process is killed at any operation, and when the
//! disk fails.
//!
//! Invariants:
//! 1. What a call had noted when it returned is there afterwards.
//! 2. Nothing is there that was not noted: what is found is what was noted up to some call, and the
//!    call that was cut off counts whole or not at all.
//! 3. The journal opens, and what is noted then is found.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use rowmill::dataset::Home;
use rowmill::exporters::{Abilities, Before, Facts, Journal, Note, Object, Part, PushError};
use rowmill::storage::faulty::{Fault, Lasting};
use rowmill::storage::{Faulty, Memory, Overlap, Storage};

use crate::sampling::Sampling;

const URL: &str = "s3://bucket/prefix";

fn home() -> Home {
    Home::new(std::path::Path::new("/out"), "letters", "0123456789abcdef").unwrap()
}

fn object(name: &str) -> Object {
    let b3 = blake3::hash(name.as_bytes());
    Object { name: name.to_owned(), path: PathBuf::from(name), bytes: 100, b3 }
}

fn open(storage: impl Storage + 'static) -> Result<Journal, PushError> {
    let storage: Arc<dyn Storage> = Arc::new(storage);
    Journal::open(&storage, &home(), URL)
}

/// Notes everything that a push does, and tells of the facts after each call.
fn work(storage: impl Storage + 'static, told: &mut Vec<Facts>) -> Result<(), PushError> {
    let mut journal = open(storage)?;
    told.push(journal.facts().clone());
    let (generation, part) =
        ("00".repeat(32), |n: u8| Part { answer: format!("etag {n}"), b3: blake3::hash(&[n]) });
    let before = Some(Before { etag: Some("\"1\"".to_owned()), generation: "11".repeat(32) });
    macro_rules! told {
        ($call:expr) => {{
            let it = $call?;
            told.push(journal.facts().clone());
            it
        }};
    }
    told!(journal.note(Note { generation: generation.clone(), before }));
    let large = object("shards/0/large.bin");
    let begun = told!(journal.begun(&large, "upload 1", 40));
    told!(journal.part(&large.name, begun.seq, 0, part(0)));
    told!(journal.done(&object("shards/0/small.bin"), Some("\"2\"".to_owned())));
    told!(journal.part(&large.name, begun.seq, 2, part(2)));
    told!(journal.forgotten(&large.name));
    let again = told!(journal.begun(&large, "upload 2", 40));
    // A part of an upload that is forgotten is no part of the next.
    told!(journal.part(&large.name, begun.seq, 1, part(1)));
    told!(journal.part(&large.name, again.seq, 1, part(1)));
    told!(journal.done(&large, None));
    told!(journal.store(Abilities { conditional_create: true, conditional_replace: false }));
    told!(journal.finished(&generation));
    Ok(())
}

/// Opens what was left and holds it against what is known.
fn check(disk: &Memory, all: &[Facts], n_told: usize, way: &str) {
    let mut journal = open(disk.clone()).unwrap_or_else(|e| panic!("{way}: {e}"));
    let promised = n_told.saturating_sub(1);
    let may_be = &all[promised..all.len().min(promised + 2)];
    assert!(may_be.contains(journal.facts()), "{way}: {:?} is none of {may_be:?}", journal.facts());
    let new = object("shards/1/new.bin");
    journal.done(&new, None).unwrap();
    let noted = journal.facts().clone();
    drop(journal);
    let again = disk.after_power_cut(&|_| false);
    assert_eq!(*open(again).unwrap().facts(), noted, "{way}");
    assert!(noted.known(&new.name).is_some());
}

#[test]
fn journal_tells_what_was_noted_wherever_it_is_cut() {
    let sampling = Sampling::from_env();
    let (whole, mut all) = (Memory::new(Overlap::Now), Vec::new());
    whole.create_dir_all(&home().work()).unwrap();
    let start = whole.after_power_cut(&|_| true);
    let n_before = whole.operations();
    work(whole.clone(), &mut all).unwrap();
    let n_operations = whole.operations() - n_before;
    assert!(n_operations > 24, "{n_operations}");
    let distinct: BTreeSet<String> = all.iter().map(|facts| format!("{facts:?}")).collect();
    assert!(distinct.len() + 2 > all.len(), "calls change what is known");
    for n in 0..n_operations {
        let disk = start.after_kill();
        disk.cut_at(disk.operations() + n);
        let mut told = Vec::new();
        work(disk.clone(), &mut told).unwrap_err();
        check(&disk.after_kill(), &all, told.len(), &format!("killed at {n}"));
        for (way, boot) in sampling.boots(&disk, 16, n) {
            check(&boot, &all, told.len(), &format!("cut at {n}, {way}"));
        }
    }
}

#[test]
fn journal_that_a_disk_failed_goes_on() {
    let (whole, mut all) = (Memory::new(Overlap::Now), Vec::new());
    whole.create_dir_all(&home().work()).unwrap();
    let start = whole.after_power_cut(&|_| true);
    let n_before = whole.operations();
    work(whole.clone(), &mut all).unwrap();
    for n in 0..whole.operations() - n_before {
        for fault in [Fault::Io, Fault::Full] {
            let disk = start.after_kill();
            let faulty = Faulty::new(disk.clone());
            faulty.fail_at(n as usize, fault, Lasting::Once);
            let mut told = Vec::new();
            work(faulty, &mut told).unwrap_err();
            check(&disk.after_kill(), &all, told.len(), &format!("{fault:?} at {n}"));
        }
    }
}
