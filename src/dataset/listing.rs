//! `work/listing.jsonl`: what sources in object stores listed, kept while their dataset is being built.
//!
//! A build that was interrupted goes on with the inputs that it began with, and does not ask the store for
//! millions of names again.
//!
//! Leaves out: listing (`sources`), and when a listing does not count any more (`pipeline`).
//!
//! Invariants:
//! 1. A listing counts as whole only with its last line, which says how many inputs there are: lines are
//!    guarded as those of all logs, and the last one is written when the others are durable. What stands
//!    there without it is how far the listing came, in order.
//! 2. Only what is known by an `ETag` is kept: a time tells less the longer ago it was looked at.
//! 3. A file that is lost or damaged costs listing, never a wrong answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::home::{Home, Workplace};
use super::stamps::{hashed_root, read_chunk};
use crate::fingerprint::Stamp;
use crate::inputs::Input;
use crate::shard::log;
use crate::storage::{AppendFile, Storage};

/// Version of the file.
const VERSION: u32 = 2;

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
    },
    /// Of the source that was named last, behind the first `at` of it.
    Inputs {
        at: usize,
        inputs: Vec<Entry>,
    },
    /// All of its inputs were named.
    Whole {
        n_inputs: usize,
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
    let mut lines = Lines::new(storage.create(&tmp)?)?;
    for Listing { source, root, inputs } in listings {
        lines.source(source, root)?;
        lines.inputs(inputs)?;
        lines.whole()?;
    }
    lines.end()?;
    drop(lines);
    storage.rename(&tmp, &path)?;
    Ok(storage.sync_dir(&place.home().work())?)
}

/// Writes the lines.
#[derive(Debug)]
struct Lines {
    file: Box<dyn AppendFile>,
    /// Inputs of the source that was named last, and of those before.
    n_inputs: usize,
    n_before: usize,
}

impl Lines {
    fn new(mut file: Box<dyn AppendFile>) -> Result<Self> {
        file.append(&log::line(&Line::Listing { version: VERSION }))?;
        Ok(Self { file, n_inputs: 0, n_before: 0 })
    }

    fn source(&mut self, name: &str, root: &str) -> Result<()> {
        let (name, root) = (name.to_owned(), hashed_root(root));
        Ok(self.file.append(&log::line(&Line::Source { name, root }))?)
    }

    /// Inputs that are all known by an `ETag`.
    fn inputs(&mut self, inputs: &[Input]) -> Result<()> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for input in inputs {
            bytes += input.path.len();
            entries.extend(entry(input));
            if entries.len() >= LINE_INPUTS || bytes >= LINE_BYTES {
                self.line(std::mem::take(&mut entries))?;
                bytes = 0;
            }
        }
        if entries.is_empty() { Ok(()) } else { self.line(entries) }
    }

    fn line(&mut self, inputs: Vec<Entry>) -> Result<()> {
        let at = self.n_inputs;
        self.n_inputs += inputs.len();
        Ok(self.file.append(&log::line(&Line::Inputs { at, inputs }))?)
    }

    fn whole(&mut self) -> Result<()> {
        self.file.append(&log::line(&Line::Whole { n_inputs: self.n_inputs }))?;
        self.n_before += std::mem::take(&mut self.n_inputs);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.file.sync()?;
        self.file.append(&log::line(&Line::End { n_inputs: self.n_before }))?;
        Ok(self.file.sync()?)
    }
}

/// What a source listed before it was interrupted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// Its inputs, as far as it came.
    pub inputs: Vec<Input>,
    /// Whether they are all.
    pub is_whole: bool,
}

/// How far a listing came.
#[derive(Debug, Default)]
pub struct KeptSoFar {
    /// What sources listed, by name.
    pub sources: BTreeMap<String, Begun>,
    /// Whether it is all.
    pub is_whole: bool,
    /// Where it is gone on with.
    pub state: JournalState,
}

/// Where a journal that was interrupted is gone on with.
#[derive(Debug, Default)]
pub struct JournalState {
    /// Bytes of the file, and of its whole lines.
    len: u64,
    valid_bytes: u64,
    /// By source: how many inputs it has, and whether they are all.
    sources: BTreeMap<String, (usize, bool)>,
}

/// Keeps what is listed while it is listed.
#[derive(Debug)]
pub struct Journal {
    place: Arc<Workplace>,
    /// `None` where it was given up.
    lines: Option<Lines>,
    /// What was there.
    there: BTreeMap<String, (usize, bool)>,
    /// Whether the source that was begun last is whole there.
    is_whole: bool,
}

impl Journal {
    /// Goes on with the journal of `state`, or begins one where nothing can be gone on with. `None` where
    /// somebody has written there since.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(place: &Arc<Workplace>, state: JournalState) -> Result<Option<Self>> {
        let (storage, path) = (place.storage(), place.home().listing());
        let len = storage.stat(&path)?.map_or(0, |entry| entry.len);
        let JournalState { len: len_seen, valid_bytes, sources: there } = state;
        if len != len_seen {
            return Ok(None);
        }
        let lines = if there.is_empty() {
            discard(place)?;
            Lines::new(storage.create(&path)?)?
        } else {
            let file = storage.open_append(&path, valid_bytes)?;
            Lines { file, n_inputs: 0, n_before: 0 }
        };
        Ok(Some(Self { place: Arc::clone(place), lines: Some(lines), there, is_whole: false }))
    }

    /// What follows is listed by a source; how many of its inputs are there already.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&mut self, source: &str, root: &str) -> Result<usize> {
        let Some(lines) = &mut self.lines else { return Ok(0) };
        let there = self.there.remove(source);
        if there.is_none() {
            lines.source(source, root)?;
        }
        let (n_inputs, is_whole) = there.unwrap_or_default();
        (lines.n_inputs, self.is_whole) = (n_inputs, is_whole);
        Ok(n_inputs)
    }

    /// Adds what was listed. Where something is not known by an `ETag`, nothing is kept.
    ///
    /// # Errors
    /// The disk's.
    pub fn add(&mut self, inputs: &[Input]) -> Result<()> {
        if inputs.iter().any(|input| input.changed.is_none()) {
            return self.give_up();
        }
        match &mut self.lines {
            Some(lines) => lines.inputs(inputs),
            None => Ok(()),
        }
    }

    /// The source that was begun last has listed all.
    ///
    /// # Errors
    /// The disk's.
    pub fn end_source(&mut self) -> Result<()> {
        match &mut self.lines {
            Some(lines) if self.is_whole => {
                lines.n_before += std::mem::take(&mut lines.n_inputs);
                Ok(())
            }
            Some(lines) => lines.whole(),
            None => Ok(()),
        }
    }

    /// All sources have listed all.
    ///
    /// # Durability
    /// On `Ok` the listing survives a power cut, whole.
    ///
    /// # Errors
    /// The disk's.
    pub fn end(&mut self) -> Result<()> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        lines.end()?;
        Ok(self.place.storage().sync_dir(&self.place.home().work())?)
    }

    /// Keeps nothing any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn give_up(&mut self) -> Result<()> {
        match self.lines.take() {
            Some(_) => discard(&self.place),
            None => Ok(()),
        }
    }
}

/// What sources listed when the build began that is there: those of `roots`, by name, whose roots are the
/// same. Nothing, where no listing is kept.
///
/// # Errors
/// The disk's.
pub fn read(storage: &dyn Storage, home: &Home, roots: &BTreeMap<&str, &str>) -> Result<Kept> {
    let (reading, _) = Reading::read(storage, home, roots)?;
    if !reading.has_ended {
        return Ok(Kept::new());
    }
    let kept = reading.kept.into_iter();
    Ok(kept.map(|(name, Begun { inputs, .. })| (name, inputs)).collect())
}

/// How far a listing came, if each source that is named there is one of `roots`, and its root is the same;
/// else nothing.
///
/// # Errors
/// The disk's.
pub fn read_begun(
    storage: &dyn Storage,
    home: &Home,
    roots: &BTreeMap<&str, &str>,
) -> Result<KeptSoFar> {
    let (reading, mut state) = Reading::read(storage, home, roots)?;
    let Reading { kept, has_ended, has_others, .. } = reading;
    if has_others {
        return Ok(KeptSoFar { state, is_whole: has_ended, ..KeptSoFar::default() });
    }
    let counts = kept.iter().map(|(name, it)| (name.clone(), (it.inputs.len(), it.is_whole)));
    state.sources = counts.collect();
    Ok(KeptSoFar { sources: kept, is_whole: has_ended, state })
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
    /// Whether a source is named whose root is another now.
    has_others: bool,
    kept: BTreeMap<String, Begun>,
    n_inputs: usize,
    /// The source that was named last, unless it is whole or its root is another now.
    source: Option<String>,
    /// How many inputs it has; `None` where none was named or it is whole.
    n_open: Option<usize>,
}

impl Reading {
    /// Reads the file, and says how much of it there is.
    fn read(
        storage: &dyn Storage,
        home: &Home,
        roots: &BTreeMap<&str, &str>,
    ) -> Result<(Self, JournalState)> {
        let path = home.listing();
        let mut reading = Self::default();
        if storage.stat(&path)?.is_none() {
            return Ok((reading, JournalState::default()));
        }
        let file = storage.open(&path)?;
        let (mut at, mut chunk) = (0, Vec::new());
        while at < file.len() {
            let fresh = read_chunk(&*file, at, &mut chunk)?;
            let valid = log::read(fresh, |_, line| reading.take(line, roots)).valid_bytes;
            at += valid;
            if valid == 0 || valid < fresh.len() as u64 {
                // What ends in something else has no end.
                reading.has_ended = false;
                break;
            }
        }
        reading.kept.values_mut().for_each(|it| it.inputs.shrink_to_fit());
        let state = JournalState { len: file.len(), valid_bytes: at, ..JournalState::default() };
        Ok((reading, state))
    }

    /// Takes the next line, if it may stand there.
    fn take(&mut self, line: Line, roots: &BTreeMap<&str, &str>) -> Option<()> {
        match line {
            Line::Listing { version } => {
                self.has_begun = !self.has_begun && version == VERSION;
                self.has_begun.then_some(())
            }
            _ if !self.has_begun || self.has_ended => None,
            Line::Source { name, root } => {
                let is_meant = roots.get(name.as_str()).is_some_and(|now| hashed_root(now) == root);
                if self.n_open.is_some() || self.kept.contains_key(&name) {
                    return None;
                }
                self.n_open = Some(0);
                self.has_others |= !is_meant;
                self.source = is_meant.then_some(name);
                if let Some(name) = &self.source {
                    self.kept.insert(name.clone(), Begun::default());
                }
                Some(())
            }
            Line::Inputs { at, inputs: entries } => {
                let n_open = self.n_open.as_mut().filter(|n| **n == at)?;
                *n_open += entries.len();
                let Some(kept) = self.source.as_ref().and_then(|name| self.kept.get_mut(name))
                else {
                    return Some(());
                };
                for entry in entries {
                    kept.inputs.push(input(entry)?);
                }
                Some(())
            }
            Line::Whole { n_inputs } => {
                let n_open = self.n_open.take().filter(|n| *n == n_inputs)?;
                self.n_inputs += n_open;
                if let Some(kept) = self.source.take().and_then(|name| self.kept.get_mut(&name)) {
                    kept.is_whole = true;
                }
                Some(())
            }
            Line::End { n_inputs } => {
                self.has_ended = self.n_open.is_none() && self.n_inputs == n_inputs;
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
        assert_eq!(lines.len(), 7);
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for (name, bytes) in [
            ("empty", Vec::new()),
            ("without its end", whole[..whole.len() - 1].to_vec()),
            ("without its last line", lines[..6].concat()),
            (
                "without a line",
                [lines[0], lines[1], lines[3], lines[4], lines[5], lines[6]].concat(),
            ),
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
            let so_far = read_begun(&memory, place.home(), &roots).unwrap();
            assert!(!so_far.is_whole && so_far.sources["a"].inputs == inputs[..want], "{name}");
        }
    }

    #[test]
    fn a_listing_that_was_cut_anywhere_is_gone_on_with() {
        let memory = Memory::new(Overlap::Now);
        let place = Arc::new(place(&memory));
        let (a, b) = (inputs(2_500), inputs(700));
        let roots = BTreeMap::from([("a", "r"), ("b", "r"), ("c", "r")]);
        let path = place.home().listing();
        let so_far = || read_begun(&memory, place.home(), &roots).unwrap();
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
        let kept = read(&memory, place.home(), &roots).unwrap();
        assert!(kept["a"] == a && kept["b"] == b && kept["c"].is_empty());
        let ends = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let ends: Vec<_> = ends.map(|(at, _)| at + 1).collect();
        for cut in ends.iter().flat_map(|end| [end - 1, *end]).chain([0, 7]) {
            memory.write_atomic(&path, &whole[..cut]).unwrap();
            let begun = so_far();
            assert_eq!(begun.is_whole, cut == whole.len(), "{cut}");
            assert!(cut == whole.len() || read(&memory, place.home(), &roots).unwrap().is_empty());
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
        let read =
            |root| read_begun(&memory, place.home(), &BTreeMap::from([("a", root)])).unwrap();
        assert_eq!(read("r").sources["a"].inputs.len(), 3);
        assert!(read("s").sources.is_empty());
        let state = read("r").state;
        journal.add(&inputs(1)).unwrap();
        assert!(Journal::open(&place, state).unwrap().is_none());
    }
}
