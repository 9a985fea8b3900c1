//! `work/listing.jsonl`: what sources in object stores listed, kept while their dataset is being built.
//!
//! A build that was interrupted goes on with the inputs that it began with, and does not ask the store for
//! millions of names again.
//!
//! Leaves out: listing (`sources`), and when a listing does not count any more (`pipeline`).
//!
//! Invariants:
//! 1. A listing counts whole or not at all: lines are guarded as those of all logs, the file gets its
//!    name when all of them are durable, and the last one says how many inputs there are.
//! 2. Only what is known by an `ETag` is kept: a time tells less the longer ago it was looked at.
//! 3. A file that is lost or damaged costs listing, never a wrong answer.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::home::{Home, Workplace};
use super::stamps::{hashed_root, read_chunk};
use crate::fingerprint::Stamp;
use crate::inputs::Input;
use crate::shard::log;
use crate::storage::Storage;

/// Version of the file.
const VERSION: u32 = 1;

/// Most inputs in a line, and most bytes of their paths: a line is read in one piece.
const LINE_INPUTS: usize = 1_000;
const LINE_BYTES: usize = 64 << 10;

/// What a source listed.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// The name of the source.
    pub source: &'a str,
    /// Where its inputs are.
    pub root: &'a str,
    /// Its inputs, sorted by path.
    pub inputs: &'a [Input],
}

/// The inputs of sources, by name.
pub type Kept = BTreeMap<String, Vec<Input>>;

/// One line. The root is hashed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Listing {
        version: u32,
    },
    Source {
        name: String,
        root: String,
        n_inputs: usize,
    },
    /// Of the source that was named last.
    Inputs {
        inputs: Vec<Entry>,
    },
    End {
        n_inputs: usize,
    },
}

/// Path, size, time of modification and what stands for the `ETag`, as in a [`Stamp`].
type Entry = (String, u64, i64, i64);

fn entry(input: &Input) -> Option<Entry> {
    let Stamp { size, modified_ns, changed_ns } =
        Stamp::new(input.size, input.modified, input.changed);
    Some((input.path.clone(), size, modified_ns, changed_ns?))
}

fn input((path, size, modified_ns, changed_ns): Entry) -> Option<Input> {
    let time = |ns: i64| -> Option<SystemTime> {
        let distance = Duration::from_nanos(ns.unsigned_abs());
        if ns < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    };
    let (modified, changed) = (time(modified_ns)?, Some(time(changed_ns)?));
    Some(Input { path, size, modified, changed })
}

/// Keeps what sources listed, of each whose inputs are all known by an `ETag`.
///
/// # Durability
/// On `Ok` it survives a power cut. After an error or a crash there is what was there before, or all of it.
///
/// # Errors
/// The disk's.
pub fn write(place: &Workplace, listings: &[Listing]) -> Result<()> {
    let (storage, path) = (place.storage(), place.home().listing());
    let is_known = |it: &&Listing| it.inputs.iter().all(|input| input.changed.is_some());
    let listings: Vec<_> = listings.iter().filter(is_known).collect();
    if listings.is_empty() {
        return discard(place);
    }
    let tmp = place.temporary("listing");
    storage.remove_all(&tmp)?;
    let mut file = storage.create(&tmp)?;
    file.append(&log::line(&Line::Listing { version: VERSION }))?;
    let mut n_inputs = 0;
    for Listing { source, root, inputs } in listings {
        let (name, root) = ((*source).to_owned(), hashed_root(root));
        file.append(&log::line(&Line::Source { name, root, n_inputs: inputs.len() }))?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for input in *inputs {
            bytes += input.path.len();
            entries.extend(entry(input));
            if entries.len() >= LINE_INPUTS || bytes >= LINE_BYTES {
                file.append(&log::line(&Line::Inputs { inputs: std::mem::take(&mut entries) }))?;
                bytes = 0;
            }
        }
        if !entries.is_empty() {
            file.append(&log::line(&Line::Inputs { inputs: entries }))?;
        }
        n_inputs += inputs.len();
    }
    file.append(&log::line(&Line::End { n_inputs }))?;
    file.sync()?;
    drop(file);
    storage.rename(&tmp, &path)?;
    Ok(storage.sync_dir(&place.home().work())?)
}

/// What sources listed when the build began that is there: those of `roots`, by name, whose roots are the
/// same. Nothing, where no listing is kept.
///
/// # Errors
/// The disk's.
pub fn read(storage: &dyn Storage, home: &Home, roots: &BTreeMap<&str, &str>) -> Result<Kept> {
    let path = home.listing();
    if storage.stat(&path)?.is_none() {
        return Ok(Kept::new());
    }
    let file = storage.open(&path)?;
    let mut reading = Reading::default();
    let (mut at, mut chunk) = (0, Vec::new());
    while at < file.len() {
        let fresh = read_chunk(&*file, at, &mut chunk)?;
        let valid = log::read(fresh, |_, line| reading.take(line, roots)).valid_bytes;
        if valid == 0 || valid < fresh.len() as u64 {
            return Ok(Kept::new());
        }
        at += valid;
    }
    Ok(if reading.has_ended { reading.kept } else { Kept::new() })
}

/// Forgets what was listed: the next run lists anew.
///
/// # Errors
/// The disk's.
pub fn discard(place: &Workplace) -> Result<()> {
    place.discard(&place.home().listing())
}

/// The lines read so far.
#[derive(Default)]
struct Reading {
    has_begun: bool,
    has_ended: bool,
    kept: Kept,
    n_inputs: usize,
    /// The source that was named last, unless its root is another now, and how many inputs it lacks.
    source: Option<String>,
    n_left: usize,
}

impl Reading {
    /// Takes the next line, if it may stand there.
    fn take(&mut self, line: Line, roots: &BTreeMap<&str, &str>) -> Option<()> {
        match line {
            Line::Listing { version } => {
                self.has_begun = !self.has_begun && version == VERSION;
                self.has_begun.then_some(())
            }
            _ if !self.has_begun || self.has_ended => None,
            Line::Source { name, root, n_inputs } => {
                let is_meant = roots.get(name.as_str()).is_some_and(|now| hashed_root(now) == root);
                if self.n_left > 0 || self.kept.contains_key(&name) {
                    return None;
                }
                self.n_left = n_inputs;
                self.source = is_meant.then_some(name);
                if let Some(name) = &self.source {
                    self.kept.insert(name.clone(), Vec::new());
                }
                Some(())
            }
            Line::Inputs { inputs: entries } => {
                self.n_left = self.n_left.checked_sub(entries.len())?;
                self.n_inputs += entries.len();
                let Some(kept) = self.source.as_ref().and_then(|name| self.kept.get_mut(name))
                else {
                    return Some(());
                };
                if kept.is_empty() {
                    kept.reserve_exact(entries.len() + self.n_left);
                }
                for entry in entries {
                    kept.push(input(entry)?);
                }
                Some(())
            }
            Line::End { n_inputs } => {
                self.has_ended = self.n_left == 0 && self.n_inputs == n_inputs;
                self.has_ended.then_some(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    fn place(memory: &Memory) -> Workplace {
        let home = Home::new(Path::new("/out"), "d", "0123456789abcdef").unwrap();
        Workplace::open(Arc::new(memory.clone()), home).unwrap()
    }

    fn inputs(n: u64) -> Vec<Input> {
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
            BTreeMap::from([
                ("a", "s3://b/x"),
                ("b", b),
                ("none", "s3://b/x"),
                ("timed", "s3://b/x"),
            ])
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
        assert_eq!(lines.len(), 6);
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for (name, bytes) in [
            ("empty", Vec::new()),
            ("without its end", whole[..whole.len() - 1].to_vec()),
            ("without its last line", lines[..5].concat()),
            ("without a line", [lines[0], lines[1], lines[3], lines[4], lines[5]].concat()),
            ("with a line twice", [&whole[..], lines[5]].concat()),
            ("without its first line", lines[1..].concat()),
            ("with another byte", flipped),
            (
                "of another version",
                [&log::line(&Line::Listing { version: 2 }), &lines[1..].concat()[..]].concat(),
            ),
        ] {
            memory.write_atomic(&path, &bytes).unwrap();
            assert!(kept().is_empty(), "{name}");
        }
    }
}
