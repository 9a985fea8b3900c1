//! `work/stamps.jsonl`: digests of inputs seen before, so that they need not be hashed again.
//!
//! A digest is given out for an input of the same root, path, range, size and time of modification.
//! It is a shortcut, nothing more: a file that is lost or cut costs hashing, never a wrong answer.
//!
//! Invariants:
//! 1. Lines are guarded as those of all logs; what stands behind a broken one is dropped.
//! 2. Memory: 48 bytes for each input, whatever its path.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::Result;
use super::home::{Home, Workplace};
use super::record::hex_digest;
use crate::fingerprint::Stamp;
use crate::inputs::{InputDigest, InputRange};
use crate::shard::log;
use crate::storage::{AppendFile, ReadFile, Storage};

/// Bytes that are read at a time; a longer line counts as broken.
const CHUNK_BYTES: usize = 1 << 20;

/// Below this many lines the file is not worth rewriting.
const FEW_LINES: usize = 1_000;

/// Digests of inputs seen before. Shared by all partitions that are being built.
#[derive(Debug)]
pub struct Stamps(Mutex<State>);

#[derive(Debug)]
struct State {
    digests: HashMap<Key, blake3::Hash>,
    /// `None` where nothing may be written: what is learned is forgotten with this value.
    file: Option<Box<dyn AppendFile>>,
    n_lines: usize,
}

/// The first half of a hash over all that an input is known by.
type Key = [u8; 16];

/// One line. The root is hashed: where things are is nobody's business.
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
    fn new(root: &str, input: &InputRange, b3: blake3::Hash) -> Self {
        Self {
            b3,
            path: input.input.path.clone(),
            range: input.range.as_ref().map(|r| [r.start, r.end]),
            root: blake3::hash(root.as_bytes()).to_hex().chars().take(16).collect(),
            stamp: Stamp::new(input.input.size, input.input.modified),
        }
    }

    fn key(&self) -> Key {
        let known_by =
            (&self.path, self.range, &self.root, self.stamp.size, self.stamp.modified_ns);
        let text = serde_json::to_vec(&known_by).unwrap_or_default();
        let mut key = Key::default();
        blake3::Hasher::new().update(&text).finalize_xof().fill(&mut key);
        key
    }
}

impl Stamps {
    /// Opens the stamps of earlier runs, to add to them.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(place: &Workplace) -> Result<Self> {
        let (storage, path) = (place.storage(), place.home().stamps());
        let (mut state, valid_bytes) = State::read(&**storage, &path)?;
        state.file = Some(match storage.stat(&path)? {
            Some(_) => storage.open_append(&path, valid_bytes)?,
            None => storage.create(&path)?,
        });
        Ok(Self(Mutex::new(state)))
    }

    /// Reads the stamps of earlier runs, for a look that writes nothing.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(storage: &dyn Storage, home: &Home) -> Result<Self> {
        Ok(Self(Mutex::new(State::read(storage, &home.stamps())?.0)))
    }

    /// The digest of an input below `root`, if it was seen with this size and time.
    #[must_use]
    pub fn digest(&self, root: &str, input: &InputRange) -> Option<InputDigest> {
        let key = Line::new(root, input, blake3::Hash::from_bytes([0; 32])).key();
        let blake3 = *self.state().digests.get(&key)?;
        Some(InputDigest { path: input.input.path.clone(), size: input.bytes(), blake3 })
    }

    /// Notes the digest of an input that had this size and time before and after it was read.
    ///
    /// # Errors
    /// The disk's.
    pub fn learn(&self, root: &str, input: &InputRange, digest: blake3::Hash) -> Result<()> {
        let line = Line::new(root, input, digest);
        let mut state = self.state();
        if state.digests.insert(line.key(), digest) != Some(digest)
            && let Some(file) = &mut state.file
        {
            file.append(&log::line(&line))?;
            state.n_lines += 1;
        }
        Ok(())
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

    /// Rewrites the file without what is not about one of these inputs below `root`, where that more
    /// than halves it.
    ///
    /// # Durability
    /// After an error or a crash the file is the old one or the new one.
    ///
    /// # Errors
    /// The disk's.
    pub fn compact(
        &self,
        place: &Workplace,
        root: &str,
        inputs: impl Iterator<Item = InputRange> + Clone,
    ) -> Result<()> {
        let mut state = self.state();
        if state.n_lines < FEW_LINES {
            return Ok(());
        }
        let n_known = inputs
            .clone()
            .filter(|input| {
                let line = Line::new(root, input, blake3::Hash::from_bytes([0; 32]));
                state.digests.contains_key(&line.key())
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
        for input in inputs {
            let mut line = Line::new(root, &input, blake3::Hash::from_bytes([0; 32]));
            if let Some(b3) = state.digests.get(&line.key()) {
                line.b3 = *b3;
                digests.insert(line.key(), *b3);
                file.append(&log::line(&line))?;
            }
        }
        file.sync()?;
        let len = file.len();
        drop(file);
        storage.rename(&tmp, &path)?;
        storage.sync_dir(&place.home().work())?;
        let file = Some(storage.open_append(&path, len)?);
        *state = State { n_lines: digests.len(), digests, file };
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What the file says, and how many of its bytes are whole lines.
    fn read(storage: &dyn Storage, path: &Path) -> Result<(Self, u64)> {
        let mut state = Self { digests: HashMap::new(), file: None, n_lines: 0 };
        let mut valid_bytes = 0;
        if storage.stat(path)?.is_none() {
            return Ok((state, valid_bytes));
        }
        let file = storage.open(path)?;
        let mut chunk = Vec::new();
        loop {
            let fresh = read_chunk(&*file, valid_bytes, &mut chunk)?;
            let lines = log::read(fresh, |_, line: Line| {
                state.digests.insert(line.key(), line.b3);
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
fn read_chunk<'a>(file: &dyn ReadFile, from: u64, chunk: &'a mut Vec<u8>) -> Result<&'a [u8]> {
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
        InputRange { input: Input { path: path.to_owned(), size, modified }, range: None }
    }

    #[test]
    fn a_digest_is_given_for_the_same_input_only() {
        let memory = Memory::new(Overlap::Now);
        let b3 = blake3::hash(b"bytes");
        let known = input("a", 5, 7);
        {
            let place = place(&memory);
            let stamps = Stamps::open(&place).unwrap();
            assert_eq!(stamps.digest("/data", &known), None);
            stamps.learn("/data", &known, b3).unwrap();
            stamps.sync().unwrap();
        }
        let place = place(&memory);
        let stamps = Stamps::open(&place).unwrap();
        let digest = InputDigest { path: "a".to_owned(), size: 5, blake3: b3 };
        assert_eq!(stamps.digest("/data", &known), Some(digest));
        let mut cut = known.clone();
        cut.range = Some(0..5);
        for (name, root, input) in [
            ("root", "/other", known.clone()),
            ("path", "/data", input("b", 5, 7)),
            ("size", "/data", input("a", 6, 7)),
            ("time", "/data", input("a", 5, 8)),
            ("range", "/data", cut),
        ] {
            assert_eq!(stamps.digest(root, &input), None, "{name}");
        }
    }

    #[test]
    fn what_stands_behind_a_broken_line_is_dropped_and_written_again() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let stamps = Stamps::open(&place).unwrap();
        for n in 0..3 {
            stamps.learn("/", &input(&format!("{n}"), n, n), blake3::hash(b"")).unwrap();
        }
        drop(stamps);
        let path = place.home().stamps();
        let len = memory.stat(&path).unwrap().unwrap().len;
        memory.truncate(&path, usize::try_from(len).unwrap() - 1).unwrap();
        let stamps = Stamps::open(&place).unwrap();
        assert!(stamps.digest("/", &input("1", 1, 1)).is_some());
        assert_eq!(stamps.digest("/", &input("2", 2, 2)), None);
        stamps.learn("/", &input("2", 2, 2), blake3::hash(b"")).unwrap();
        drop(stamps);
        assert_eq!(memory.stat(&path).unwrap().unwrap().len, len);
        assert!(Stamps::open(&place).unwrap().digest("/", &input("2", 2, 2)).is_some());
    }

    #[test]
    fn a_file_of_more_than_a_chunk_is_read_whole() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let stamps = Stamps::open(&place).unwrap();
        let n = 10_000;
        for n in 0..n {
            stamps.learn("/", &input(&format!("{n:06}"), n, n), blake3::hash(b"")).unwrap();
        }
        drop(stamps);
        let len = memory.stat(&place.home().stamps()).unwrap().unwrap().len;
        assert!(len > 1 << 20);
        let stamps = Stamps::open(&place).unwrap();
        for n in 0..n {
            assert!(stamps.digest("/", &input(&format!("{n:06}"), n, n)).is_some(), "{n}");
        }
        let kept: Vec<_> = (0..n / 10).map(|n| input(&format!("{n:06}"), n, n)).collect();
        stamps.compact(&place, "/", kept.iter().cloned()).unwrap();
        assert_eq!(stamps.digest("/", &input("009999", 9_999, 9_999)), None);
        drop(stamps);
        let compact = memory.stat(&place.home().stamps()).unwrap().unwrap().len;
        assert!(compact < len / 9);
        let stamps = Stamps::open(&place).unwrap();
        assert!(kept.iter().all(|input| stamps.digest("/", input).is_some()));
    }
}
