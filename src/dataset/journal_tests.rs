//! Listings that were cut off, moved, and given up.

use super::super::listing;
use super::super::listing::tests::{inputs, place};
use super::*;
use crate::storage::Overlap;
use crate::storage::memory::Memory;

#[test]
fn a_listing_that_was_cut_anywhere_is_gone_on_with() {
    let memory = Memory::new(Overlap::Now);
    let place = Arc::new(place(&memory));
    let (a, b) = (inputs(2_500), inputs(700));
    let roots = BTreeMap::from([("a", "r"), ("b", "r"), ("c", "r")]);
    let path = place.home().listing();
    let so_far = || super::read(&memory, place.home(), &roots).unwrap();
    let go_on = |state| {
        let mut journal = Journal::open(&place, state).unwrap().unwrap();
        for (name, inputs) in [("a", &a), ("b", &b), ("c", &Vec::new())] {
            let n_there = journal.begin(name, "r").unwrap();
            inputs[n_there..].chunks(500).for_each(|some| journal.add(some).unwrap());
            journal.end_source().unwrap();
        }
        journal.end().unwrap();
    };
    go_on(JournalState::default());
    let whole = memory.read(&path).unwrap().unwrap();
    let kept = listing::read(&memory, place.home(), &roots).unwrap();
    assert!(kept["a"] == a && kept["b"] == b && kept["c"].is_empty());
    let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let ends: Vec<_> = ends.map(|(at, _)| at + 1).collect();
    for cut in ends.iter().flat_map(|end| [end - 1, *end]).chain([0, 7]) {
        memory.write_atomic(&path, &whole[..cut]).unwrap();
        let begun = so_far();
        assert_eq!(begun.is_whole, cut == whole.len(), "{cut}");
        assert!(
            cut == whole.len() || listing::read(&memory, place.home(), &roots).unwrap().is_empty()
        );
        for (name, all) in [("a", &a), ("b", &b)] {
            let empty = Begun::default();
            let there = begun.sources.get(name).unwrap_or(&empty);
            assert!(all.starts_with(&there.inputs), "{cut}");
            assert!(!there.is_whole || there.inputs == *all, "{cut}");
        }
        if cut < whole.len() {
            go_on(begun.state);
            assert!(memory.read(&path).unwrap().unwrap() == whole, "{cut}");
        }
    }
}

#[test]
fn what_is_not_known_by_an_etag_ends_the_journal() {
    let memory = Memory::new(Overlap::Now);
    let place = Arc::new(place(&memory));
    let mut journal = Journal::open(&place, JournalState::default()).unwrap().unwrap();
    journal.begin("a", "r").unwrap();
    journal.add(&inputs(3)).unwrap();
    let mut timed = inputs(1);
    timed[0].changed = None;
    journal.add(&timed).unwrap();
    assert_eq!(memory.stat(&place.home().listing()).unwrap(), None);
    journal.add(&inputs(1)).unwrap();
    journal.end_source().unwrap();
    journal.end().unwrap();
    assert_eq!(memory.stat(&place.home().listing()).unwrap(), None);
}

#[test]
fn a_journal_of_another_root_or_that_somebody_wrote_to_is_not_gone_on_with() {
    let memory = Memory::new(Overlap::Now);
    let place = Arc::new(place(&memory));
    let mut journal = Journal::open(&place, JournalState::default()).unwrap().unwrap();
    journal.begin("a", "r").unwrap();
    journal.add(&inputs(3)).unwrap();
    let read = |root| super::read(&memory, place.home(), &BTreeMap::from([("a", root)])).unwrap();
    assert_eq!(read("r").sources["a"].inputs.len(), 3);
    assert!(read("s").sources.is_empty());
    let state = read("r").state;
    journal.add(&inputs(1)).unwrap();
    assert!(Journal::open(&place, state).unwrap().is_none());
}
