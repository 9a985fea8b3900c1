//! Lists that come back, and files that are damaged.

use std::path::Path;
use std::sync::Arc;

use super::super::journal;
use super::*;
use crate::storage::Overlap;
use crate::storage::memory::Memory;

pub(in super::super) fn place(memory: &Memory) -> Workplace {
    let home = Home::new(Path::new("/out"), "d", "0123456789abcdef").unwrap();
    Workplace::open(Arc::new(memory.clone()), home).unwrap()
}

pub(in super::super) fn inputs(n: u64) -> Vec<Input> {
    let at = |n| UNIX_EPOCH + Duration::from_nanos(n);
    let input = |n| Input {
        path: format!("{n:07}/ü\n{}", "x".repeat(usize::try_from(n % 7).unwrap())),
        size: n,
        modified: at(n * 1_000_000_000),
        changed: Some(at(n + 7)),
    };
    (0..n).map(input).collect()
}

#[test]
fn a_listing_comes_back_as_it_was_for_the_same_root() {
    let memory = Memory::new(Overlap::Now);
    let place = place(&memory);
    let (a, b, mut timed) = (inputs(9_999), inputs(1), inputs(3));
    timed[1].changed = None;
    let of = |source, inputs| Listing { source, root: "s3://b/x", inputs };
    write(&place, &[of("a", &a), of("b", &b), of("none", &[]), of("timed", &timed)]).unwrap();
    let roots = |b: &'static str| {
        BTreeMap::from([("a", "s3://b/x"), ("b", b), ("none", "s3://b/x"), ("timed", "s3://b/x")])
    };
    let kept = |roots| read(&memory, place.home(), &roots).unwrap();
    let all = kept(roots("s3://b/x"));
    assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b", "none"]);
    assert!(all["a"] == a && all["b"] == b && all["none"].is_empty());
    assert_eq!(all["a"].capacity(), a.len());
    let moved = kept(roots("s3://b/y"));
    assert!(moved["a"] == a && !moved.contains_key("b"));
    write(&place, &[of("timed", &timed)]).unwrap();
    assert!(kept(roots("s3://b/x")).is_empty());
    write(&place, &[of("a", &a)]).unwrap();
    discard(&place).unwrap();
    assert!(kept(roots("s3://b/x")).is_empty());
}

#[test]
fn a_listing_that_is_not_whole_is_none() {
    let memory = Memory::new(Overlap::Now);
    let place = place(&memory);
    let inputs = inputs(2_500);
    write(&place, &[Listing { source: "a", root: "r", inputs: &inputs }]).unwrap();
    let path = place.home().listing();
    let whole = memory.read(&path).unwrap().unwrap();
    let roots = BTreeMap::from([("a", "r")]);
    let kept = || read(&memory, place.home(), &roots).unwrap();
    assert_eq!(kept()["a"].len(), 2_500);
    let lines: Vec<&[u8]> = whole.split_inclusive(|b| *b == b'\n').collect();
    assert_eq!(lines.len(), 7);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("without its end", whole[..whole.len() - 1].to_vec()),
        ("without its last line", lines[..6].concat()),
        ("without a line", [lines[0], lines[1], lines[3], lines[4], lines[5], lines[6]].concat()),
        ("with a line twice", [&whole[..], lines[6]].concat()),
        ("without its first line", lines[1..].concat()),
        ("with another byte", flipped),
        (
            "of another version",
            [&log::line(&Line::Listing { version: 3 }), &lines[1..].concat()[..]].concat(),
        ),
    ] {
        memory.write_atomic(&path, &bytes).unwrap();
        assert!(kept().is_empty(), "{name}");
    }
    for (name, which, want) in [
        ("one line lost", &[0, 1, 3, 4, 5, 6][..], 0),
        ("another lost", &[0, 1, 2, 4], 1_000),
        ("one line twice", &[0, 1, 2, 2, 3, 4], 1_000),
    ] {
        let some: Vec<u8> = which.iter().flat_map(|n: &usize| lines[*n].to_vec()).collect();
        memory.write_atomic(&path, &some).unwrap();
        let so_far = journal::read(&memory, place.home(), &roots).unwrap();
        assert!(!so_far.is_whole && so_far.sources["a"].inputs == inputs[..want], "{name}");
    }
}
