//! `work/stamps.jsonl`: digests of inputs seen before, so that they need not be hashed again.
//!
//! A digest is given out for an input of the same root, path, range, size and times: of modification,
//! and, unless that is asked to be believed alone, of the last change that the system noted. It is a
//! shortcut, nothing more: a file that is lost or cut costs hashing, never a wrong answer.
//!
//! What cannot be known again by its times is remembered as long as this value: planning hashes an input
//! once, and what it says of the input is of one state.
//!
//! Invariants:
//! 1. Lines are guarded as those of all logs; what stands behind a broken one is dropped.
//! 2. Memory: 48 bytes for each input, whatever its path.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::contents::hex_digest;
use super::error::Result;
use super::home::{Home, Workplace};
use crate::fingerprint::{Fingerprinting, Stamp};
use crate::inputs::{Input, InputDigest, InputRange};
use crate::shard::log;
use crate::storage::{AppendFile, ReadFile, Storage};

/// Bytes that are read at a time; a longer line counts as broken.
const CHUNK_BYTES: usize = 1 << 20;

/// Below this many lines the file is not worth rewriting.
const FEW_LINES: usize = 1_000;

/// Digests of inputs seen before. Shared by all partitions that are being built.
#[derive(Debug)]
pub struct Stamps {
    fingerprinting: Fingerprinting,
    listed_at: SystemTime,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    digests: HashMap<Key, blake3::Hash>,
    /// Those of inputs whose times do not tell every change: for this value's time alone.
    passing: HashMap<Key, blake3::Hash>,
    /// `None` where nothing may be written: what is learned is forgotten with this value.
    file: Option<Box<dyn AppendFile>>,
    n_lines: usize,
}

/// The first half of a hash over all that an input is known by.
type Key = [u8; 16];

/// Stands in a line whose digest is only looked for.
const NO_DIGEST: blake3::Hash = blake3::Hash::from_bytes([0; 32]);

/// One line. The root is hashed.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(with = "hex_digest")]
    b3: blake3::Hash,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<[u64; 2]>,
    root: String,
    #[serde(flatten)]
    stamp: Stamp,
}

impl Line {
    /// What the digest is found by; `None` where nothing is known that it could be believed by.
    fn key(&self, fingerprinting: Fingerprinting) -> Option<Key> {
        let changed_ns = match fingerprinting {
            Fingerprinting::Content => Some(self.stamp.changed_ns?),
            Fingerprinting::Stat => None,
        };
        Some(self.key_with(changed_ns))
    }

    fn key_with(&self, changed_ns: Option<i64>) -> Key {
        let Stamp { size, modified_ns, .. } = self.stamp;
        let known_by = (&self.path, self.range, &self.root, size, modified_ns, changed_ns);
        let text = serde_json::to_vec(&known_by).unwrap_or_default();
        let mut key = Key::default();
        blake3::Hasher::new().update(&text).finalize_xof().fill(&mut key);
        key
    }
}

/// A root as it is written down: where things are is nobody's business.
pub(super) fn hashed_root(root: &str) -> String {
    blake3::hash(root.as_bytes()).to_hex().chars().take(16).collect()
}

/// The root under which stands what others said of inputs below `root`.
#[must_use]
pub fn of_others(root: &str) -> String {
    format!("{root}\0said by others")
}

impl Stamps {
    /// Opens the stamps of earlier runs, to add to them. Inputs were listed at `listed_at` or later.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(
        place: &Workplace,
        fingerprinting: Fingerprinting,
        listed_at: SystemTime,
    ) -> Result<Self> {
        let (storage, path) = (place.storage(), place.home().stamps());
        let (mut state, valid_bytes) = State::read(&**storage, &path, fingerprinting)?;
        state.file = Some(match storage.stat(&path)? {
            Some(_) => storage.open_append(&path, valid_bytes)?,
            None => storage.create(&path)?,
        });
        Ok(Self { fingerprinting, listed_at, state: Mutex::new(state) })
    }

    /// Reads the stamps of earlier runs, for a look that writes nothing.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(
        storage: &dyn Storage,
        home: &Home,
        fingerprinting: Fingerprinting,
        listed_at: SystemTime,
    ) -> Result<Self> {
        let (state, _) = State::read(storage, &home.stamps(), fingerprinting)?;
        Ok(Self { fingerprinting, listed_at, state: Mutex::new(state) })
    }

    /// How inputs are told to be the same.
    #[must_use]
    pub fn fingerprinting(&self) -> Fingerprinting {
        self.fingerprinting
    }

    /// When listing the inputs began.
    #[must_use]
    pub fn listed_at(&self) -> SystemTime {
        self.listed_at
    }

    /// What an input is known by from now on.
    #[must_use]
    pub fn stamp(&self, input: &Input) -> Stamp {
        Stamp::new(input.size, input.modified, input.changed).settled(self.listed_at)
    }

    /// The digest of an input below `root`, if it was seen with this size and these times, or learned
    /// by this value.
    #[must_use]
    pub fn digest(&self, root: &str, input: &InputRange) -> Option<InputDigest> {
        let line = self.line(root, input, NO_DIGEST);
        let state = self.state();
        let blake3 = match line.key(self.fingerprinting) {
            Some(key) => *state.digests.get(&key)?,
            None => *state.passing.get(&line.key_with(None))?,
        };
        Some(InputDigest { path: input.input.path.clone(), size: input.bytes(), blake3 })
    }

    /// Notes the digest of an input that had this size and time of modification before and after it
    /// was read.
    ///
    /// # Errors
    /// The disk's.
    pub fn learn(&self, root: &str, input: &InputRange, digest: blake3::Hash) -> Result<()> {
        let line = self.line(root, input, digest);
        let mut state = self.state();
        let Some(key) = line.key(self.fingerprinting) else {
            state.passing.insert(line.key_with(None), digest);
            return Ok(());
        };
        if state.digests.insert(key, digest) != Some(digest)
            && let Some(file) = &mut state.file
        {
            file.append(&log::line(&line))?;
            state.n_lines += 1;
        }
        Ok(())
    }

    /// Notes what others said of an input that was not read here.
    ///
    /// # Errors
    /// The disk's.
    pub fn believe(&self, root: &str, input: &InputRange, digest: blake3::Hash) -> Result<()> {
        self.learn(&of_others(root), input, digest)
    }

    /// What others said of an input, if it has the size and times that it had then.
    #[must_use]
    pub fn believed(&self, root: &str, input: &InputRange) -> Option<InputDigest> {
        self.digest(&of_others(root), input)
    }

    /// Makes what was learned durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> Result<()> {
        match &mut self.state().file {
            Some(file) => Ok(file.sync()?),
            None => Ok(()),
        }
    }

    /// Rewrites the file without what is not about one of these inputs, each with its root, where that
    /// more than halves it.
    ///
    /// # Durability
    /// After an error or a crash the file is the old one or the new one.
    ///
    /// # Errors
    /// The disk's.
    pub fn compact<R: AsRef<str>>(
        &self,
        place: &Workplace,
        inputs: impl Iterator<Item = (R, InputRange)> + Clone,
    ) -> Result<()> {
        let mut state = self.state();
        if state.n_lines < FEW_LINES {
            return Ok(());
        }
        let n_known = inputs
            .clone()
            .filter(|(root, input)| {
                let line = self.line(root.as_ref(), input, NO_DIGEST);
                line.key(self.fingerprinting).is_some_and(|key| state.digests.contains_key(&key))
            })
            .count();
        if state.n_lines / 2 < n_known {
            return Ok(());
        }
        let (storage, path) = (place.storage(), place.home().stamps());
        let tmp = place.temporary("stamps");
        storage.remove_all(&tmp)?;
        let mut file = storage.create(&tmp)?;
        let mut digests = HashMap::with_capacity(n_known);
        for (root, input) in inputs {
            let mut line = self.line(root.as_ref(), &input, NO_DIGEST);
            let Some(key) = line.key(self.fingerprinting) else { continue };
            if let Some(b3) = state.digests.get(&key) {
                line.b3 = *b3;
                digests.insert(key, *b3);
                file.append(&log::line(&line))?;
            }
        }
        file.sync()?;
        let len = file.len();
        drop(file);
        storage.rename(&tmp, &path)?;
        storage.sync_dir(&place.home().work())?;
        let file = Some(storage.open_append(&path, len)?);
        let passing = std::mem::take(&mut state.passing);
        *state = State { n_lines: digests.len(), digests, passing, file };
        Ok(())
    }

    fn line(&self, root: &str, input: &InputRange, b3: blake3::Hash) -> Line {
        Line {
            b3,
            path: input.input.path.clone(),
            range: input.range.as_ref().map(|r| [r.start, r.end]),
            root: hashed_root(root),
            stamp: self.stamp(&input.input),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the file says, and how many of its bytes are whole lines.
    fn read(
        storage: &dyn Storage,
        path: &Path,
        fingerprinting: Fingerprinting,
    ) -> Result<(Self, u64)> {
        let mut state =
            Self { digests: HashMap::new(), passing: HashMap::new(), file: None, n_lines: 0 };
        let mut valid_bytes = 0;
        if storage.stat(path)?.is_none() {
            return Ok((state, valid_bytes));
        }
        let file = storage.open(path)?;
        let mut chunk = Vec::new();
        loop {
            let fresh = read_chunk(&*file, valid_bytes, &mut chunk)?;
            let lines = log::read(fresh, |_, line: Line| {
                if let Some(key) = line.key(fingerprinting) {
                    state.digests.insert(key, line.b3);
                }
                Some(())
            });
            state.n_lines += lines.lines.len();
            valid_bytes += lines.valid_bytes;
            if lines.valid_bytes == 0 {
                return Ok((state, valid_bytes));
            }
        }
    }
}

/// The whole lines that begin at `from`, as many as fit into a chunk.
pub(super) fn read_chunk<'a>(
    file: &dyn ReadFile,
    from: u64,
    chunk: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let left = usize::try_from(file.len().saturating_sub(from)).unwrap_or(usize::MAX);
    chunk.resize(left.min(CHUNK_BYTES), 0);
    file.read_at(chunk, from)?;
    let end = chunk.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    Ok(chunk.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::dataset::home::Home;
    use crate::inputs::Input;
    use crate::storage::memory::Memory;
    use crate::storage::{Overlap, Storage};

    fn place(memory: &Memory) -> Workplace {
        let home = Home::new(Path::new("/out"), "d", "0123456789abcdef").unwrap();
        Workplace::open(Arc::new(memory.clone()), home).unwrap()
    }

    fn input(path: &str, size: u64, ns: u64) -> InputRange {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        let input = Input { path: path.to_owned(), size, modified, changed: Some(modified) };
        InputRange { input, range: None }
    }

    fn open(place: &Workplace) -> Stamps {
        Stamps::open(place, Fingerprinting::Content, listed_at()).unwrap()
    }

    fn listed_at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(1)
    }

    #[test]
    fn a_digest_is_given_for_the_same_input_only() {
        let memory = Memory::new(Overlap::Now);
        let b3 = blake3::hash(b"bytes");
        let known = input("a", 5, 7);
        {
            let place = place(&memory);
            let stamps = open(&place);
            assert_eq!(stamps.digest("/data", &known), None);
            stamps.learn("/data", &known, b3).unwrap();
            stamps.sync().unwrap();
        }
        let place = place(&memory);
        let stamps = open(&place);
        let digest = InputDigest { path: "a".to_owned(), size: 5, blake3: b3 };
        assert_eq!(stamps.digest("/data", &known), Some(digest));
        let mut cut = known.clone();
        cut.range = Some(0..5);
        let mut set_back = known.clone();
        set_back.input.changed = Some(listed_at() - Duration::from_mins(1));
        for (name, root, input) in [
            ("root", "/other", known.clone()),
            ("path", "/data", input("b", 5, 7)),
            ("size", "/data", input("a", 6, 7)),
            ("time", "/data", input("a", 5, 8)),
            ("range", "/data", cut),
            ("time of change", "/data", set_back.clone()),
        ] {
            assert_eq!(stamps.digest(root, &input), None, "{name}");
        }
        drop(stamps);
        let stat = Stamps::open(&place, Fingerprinting::Stat, listed_at()).unwrap();
        assert!(stat.digest("/data", &set_back).is_some(), "believed where that is asked for");
        assert_eq!(stat.digest("/data", &input("a", 5, 8)), None);
    }

    #[test]
    fn a_file_that_changed_right_before_it_was_listed_is_hashed_again() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let fresh = input("a", 5, 60_000_000_000);
        for (fingerprinting, seconds, is_known) in [
            (Fingerprinting::Content, 61, false),
            (Fingerprinting::Content, 63, true),
            (Fingerprinting::Stat, 61, true),
        ] {
            let listed_at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            let stamps = Stamps::open(&place, fingerprinting, listed_at).unwrap();
            stamps.learn("/data", &fresh, blake3::hash(b"bytes")).unwrap();
            // Who has hashed it need not do so again; who comes later cannot know.
            assert!(stamps.digest("/data", &fresh).is_some(), "{seconds}");
            drop(stamps);
            let stamps = Stamps::open(&place, fingerprinting, listed_at).unwrap();
            assert_eq!(stamps.digest("/data", &fresh).is_some(), is_known, "{seconds}");
            place.storage().remove_file(&place.home().stamps()).unwrap();
        }
    }

    #[test]
    fn what_stands_behind_a_broken_line_is_dropped_and_written_again() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let stamps = open(&place);
        for n in 0..3 {
            stamps.learn("/", &input(&format!("{n}"), n, n), blake3::hash(b"")).unwrap();
        }
        drop(stamps);
        let path = place.home().stamps();
        let len = memory.stat(&path).unwrap().unwrap().len;
        memory.truncate(&path, usize::try_from(len).unwrap() - 1).unwrap();
        let stamps = open(&place);
        assert!(stamps.digest("/", &input("1", 1, 1)).is_some());
        assert_eq!(stamps.digest("/", &input("2", 2, 2)), None);
        stamps.learn("/", &input("2", 2, 2), blake3::hash(b"")).unwrap();
        drop(stamps);
        assert_eq!(memory.stat(&path).unwrap().unwrap().len, len);
        assert!(open(&place).digest("/", &input("2", 2, 2)).is_some());
    }

    #[test]
    fn a_file_of_more_than_a_chunk_is_read_whole() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let stamps = open(&place);
        let n = 10_000;
        for n in 0..n {
            stamps.learn("/", &input(&format!("{n:06}"), n, n), blake3::hash(b"")).unwrap();
        }
        drop(stamps);
        let len = memory.stat(&place.home().stamps()).unwrap().unwrap().len;
        assert!(len > 1 << 20);
        let stamps = open(&place);
        for n in 0..n {
            assert!(stamps.digest("/", &input(&format!("{n:06}"), n, n)).is_some(), "{n}");
        }
        let kept: Vec<_> = (0..n / 10).map(|n| input(&format!("{n:06}"), n, n)).collect();
        stamps.compact(&place, kept.iter().map(|input| ("/", input.clone()))).unwrap();
        assert_eq!(stamps.digest("/", &input("009999", 9_999, 9_999)), None);
        drop(stamps);
        let compact = memory.stat(&place.home().stamps()).unwrap().unwrap().len;
        assert!(compact < len / 9);
        let stamps = open(&place);
        assert!(kept.iter().all(|input| stamps.digest("/", input).is_some()));
    }
}
