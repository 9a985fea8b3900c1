//! Checks every byte of a sealed shard against its sums, then what the bytes say.
//!
//! Leaves out: repairing anything, and many shards together (`dataset`).
//!
//! Invariants:
//! 1. Any byte that was flipped, cut, added or swapped since the seal is found, in whichever file,
//!    and so is any file that came or went, but for those of [`staged_files`]. The search goes on behind
//!    the first find.
//! 2. Files are read once, 1 MiB at a time, without mapping them; memory is independent of their
//!    size, but for 4 bytes per MiB.
//! 3. What bytes say (`structure`) is looked at only where all of them are as they were sealed:
//!    otherwise it would only repeat the damage in other words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::finding::{Block, Finding, FindingKind};
use super::layout;
use super::reader::Shard;
use super::remote_sentinel::RemoteSentinel;
use super::seal::SealedShard;
use super::sizes::field_lens;
use super::structure;
use super::sums::{self, Sentinel, Sums};
use crate::schema::RowSchema;
use crate::storage::{EntryKind, ReadFile, Storage, StorageError, staged_for};

/// What a file was found to hold.
#[derive(Debug)]
pub(super) struct Found {
    len: u64,
    pub(super) digest: String,
    /// CRC-32 of each block.
    crcs: Vec<u32>,
}

/// Checks the shard in the folder `path`; what it gives is proof that it is as it was sealed.
///
/// # Errors
/// Everything that is wrong.
pub fn verify_shard(storage: &Arc<dyn Storage>, path: &Path) -> Result<SealedShard, Vec<Finding>> {
    verify(storage, path, structure::check)
}

/// The same without a look at what the bytes say, so that no file is held in memory: what is as it was
/// sealed says what it said then.
///
/// # Errors
/// Everything that is wrong.
pub fn verify_shard_sums(
    storage: &Arc<dyn Storage>,
    path: &Path,
) -> Result<SealedShard, Vec<Finding>> {
    verify(storage, path, |_| Vec::new())
}

/// The same of a folder of keyed rows, which is no shard but for its sums.
pub(crate) fn verify_keyed(storage: &Arc<dyn Storage>, path: &Path) -> Vec<Finding> {
    verify(storage, path, structure::check_keyed).err().unwrap_or_default()
}

fn verify(
    storage: &Arc<dyn Storage>,
    path: &Path,
    check: fn(&Shard) -> Vec<Finding>,
) -> Result<SealedShard, Vec<Finding>> {
    let mut search = Search { storage: storage.as_ref(), path, findings: Vec::new() };
    let verified = search.run();
    if let Some(verified) = verified.filter(|_| search.findings.is_empty()) {
        let wrong = match Shard::open(Arc::clone(storage), path) {
            Ok(shard) => check(&shard),
            Err(e) => vec![structure::wrong(path, &e)],
        };
        if wrong.is_empty() {
            return Ok(verified);
        }
        return Err(wrong);
    }
    Err(search.findings)
}

/// The files in the folder `path` of a shard that a push to it was writing when it was killed, or is
/// writing now. They are no part of the shard, and no damage.
///
/// # Errors
/// The disk's.
pub fn staged_files(storage: &dyn Storage, path: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let entries = storage.list(path)?.unwrap_or_default();
    let staged = entries.iter().filter(|entry| staged_for(&entry.name).is_some());
    Ok(staged.map(|entry| path.join(&entry.name)).collect())
}

struct Search<'a> {
    storage: &'a dyn Storage,
    path: &'a Path,
    findings: Vec<Finding>,
}

impl Search<'_> {
    fn run(&mut self) -> Option<SealedShard> {
        let files = self.list()?;
        let sentinel_bytes = self.read(layout::COMPLETE)?;
        let found: BTreeMap<String, Found> = files
            .keys()
            .filter(|name| ![layout::COMPLETE, layout::SUMS].contains(&name.as_str()))
            .filter_map(|name| Some((name.clone(), self.hash(name)?)))
            .collect();
        let sentinel = Sentinel::parse(&sentinel_bytes).ok();
        let sums_bytes = self.read(layout::SUMS)?;
        if !files.contains_key(layout::SUMS) {
            self.add(layout::SUMS, None, FindingKind::Missing);
        }
        let (sums, whole) = self.settle(sentinel.as_ref(), &sums_bytes, &found);
        self.compare(&sums, &found, whole);
        self.check_rows(sentinel.as_ref(), &sums, &found);
        let sentinel = sentinel?;
        let (id, n_rows) = (sentinel.id().to_owned(), sentinel.n_rows);
        let path = self.path.to_path_buf();
        Some(SealedShard::of_verified(id, n_rows, files.values().sum(), path))
    }

    fn add(&mut self, name: &str, block: Option<Block>, kind: FindingKind) {
        let path = if name.is_empty() { self.path.to_path_buf() } else { self.path.join(name) };
        self.findings.push(Finding { path, block, kind });
    }

    /// The files of the folder with their sizes.
    fn list(&mut self) -> Option<BTreeMap<String, u64>> {
        let entries = match self.storage.list(self.path) {
            Ok(entries) => entries.unwrap_or_default(),
            Err(e) => {
                self.unreadable(&e);
                return None;
            }
        };
        let mut files = BTreeMap::new();
        let is_here = self.storage.distant().is_none();
        for entry in entries {
            if is_here && staged_for(&entry.name).is_some() {
                // What a push to this folder was writing when it was killed: nobody reads it.
                continue;
            }
            if entry.kind == EntryKind::File {
                files.insert(entry.name, entry.len);
            } else {
                self.add(&entry.name, None, FindingKind::Unexpected);
            }
        }
        if files.contains_key(layout::COMPLETE) {
            // It says that the shard is elsewhere too.
            files.remove(layout::REMOTE);
            return Some(files);
        }
        match RemoteSentinel::read(self.storage, self.path) {
            Ok(Some(remote)) => self.add("", None, FindingKind::Remote(remote.url().to_owned())),
            Ok(None) => self.add("", None, FindingKind::NotSealed),
            Err(error) => self.findings.push(structure::wrong(self.path, &error)),
        }
        None
    }

    fn unreadable(&mut self, error: &StorageError) {
        let finding = Finding::of_refusal(error);
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Whether the system refused to read a file: it is there, and nothing else is known of it.
    fn is_unreadable(&self, name: &str) -> bool {
        let path = self.path.join(name);
        self.findings.iter().any(|finding| finding.path == path && !finding.is_damage())
    }

    fn read(&mut self, name: &str) -> Option<Vec<u8>> {
        match self.storage.read(&self.path.join(name)) {
            Ok(bytes) => Some(bytes.unwrap_or_default()),
            Err(e) => {
                self.unreadable(&e);
                None
            }
        }
    }

    /// Reads a file once, for all its sums.
    fn hash(&mut self, name: &str) -> Option<Found> {
        let path = self.path.join(name);
        match self.storage.open(&path).and_then(|file| hash(file.as_ref())) {
            Ok(found) => Some(found),
            Err(e) => {
                self.unreadable(&e);
                None
            }
        }
    }

    /// Finds out which of `_COMPLETE` and `B3SUMS` can be believed, and gives the sums that the
    /// files are to be held against; whether they are all of them and true.
    fn settle(
        &mut self,
        sentinel: Option<&Sentinel>,
        bytes: &[u8],
        found: &BTreeMap<String, Found>,
    ) -> (Sums, bool) {
        let digest = blake3::hash(bytes).to_hex();
        let agree = sentinel.is_some_and(|sentinel| sentinel.sums_b3 == digest.as_str());
        if sentinel.is_none() {
            self.changed_small(layout::COMPLETE);
        }
        let found: Sums = found.iter().map(|(name, f)| (name.clone(), f.digest.clone())).collect();
        let of_files = sums::text(&found);
        if let Ok(sums) = sums::parse(bytes) {
            let folder = self.path.file_name().and_then(|name| name.to_str());
            let named = folder.is_some() && digest.as_str().get(..layout::ID_DIGITS) == folder;
            if agree || named || of_files.as_bytes() == bytes {
                if !agree && sentinel.is_some() {
                    self.changed_small(layout::COMPLETE);
                }
                return (sums, true);
            }
        }
        self.changed_small(layout::SUMS);
        let whole = sentinel.is_some_and(|sentinel| {
            blake3::hash(of_files.as_bytes()).to_hex().as_str() == sentinel.sums_b3
        });
        (if whole { found } else { sums::parse_damaged(bytes) }, whole)
    }

    /// A file that is known to be changed and holds one block.
    fn changed_small(&mut self, name: &str) {
        let path = self.path.join(name);
        if self.findings.iter().any(|finding| finding.path == path) {
            return;
        }
        let len = self.storage.stat(&path).ok().flatten().map_or(0, |e| e.len);
        self.add(name, only_block(len), FindingKind::Changed);
    }

    /// Holds the files against the sums.
    fn compare(&mut self, sums: &Sums, found: &BTreeMap<String, Found>, whole: bool) {
        let is_true = |name: &str| {
            sums.get(name).is_some() && sums.get(name) == found.get(name).map(|f| &f.digest)
        };
        let lens = self.sealed_lens(sums, found);
        let blocks = self.read(layout::BLOCKS).unwrap_or_default();
        let starts = if is_true(layout::BLOCKS) {
            block_starts(sums, &lens, blocks.len() as u64 / 4)
        } else {
            BTreeMap::new()
        };
        for name in sums.keys() {
            let Some(found) = found.get(name) else {
                if !self.is_unreadable(name) {
                    self.add(name, None, FindingKind::Missing);
                }
                continue;
            };
            if is_true(name) {
                continue;
            }
            let want = lens.get(name).copied();
            if let Some(want) = want.filter(|want| *want != found.len) {
                self.add(name, None, FindingKind::Size { got: found.len, want });
            }
            let changed = match starts.get(name) {
                Some(start) => changed_blocks(found, want.unwrap_or(found.len), &blocks, *start),
                None => Vec::new(),
            };
            let has_size = want.is_some_and(|want| want != found.len);
            if changed.is_empty() && !has_size {
                self.add(name, only_block(found.len), FindingKind::Changed);
            }
            for block in changed {
                self.add(name, Some(block), FindingKind::Changed);
            }
        }
        for name in found.keys().filter(|name| whole && !sums.contains_key(*name)) {
            self.add(name, None, FindingKind::Unexpected);
        }
        let others = found.iter().filter(|(name, _)| *name != layout::BLOCKS);
        let crcs: Vec<u8> =
            others.flat_map(|(_, f)| &f.crcs).flat_map(|crc| crc.to_le_bytes()).collect();
        if self.findings.is_empty() && crcs != blocks {
            let what = "does not hold the CRC-32 of each block".to_owned();
            self.add(layout::BLOCKS, None, FindingKind::Wrong(what));
        }
    }

    /// The sizes that files had when they were sealed, where they can be known: of whole files,
    /// and of field files by schema and shapes.
    fn sealed_lens(
        &mut self,
        sums: &Sums,
        found: &BTreeMap<String, Found>,
    ) -> BTreeMap<String, u64> {
        let whole = |name: &str| sums.get(name) == found.get(name).map(|f| &f.digest);
        let mut lens = BTreeMap::new();
        if whole(layout::SCHEMA)
            && whole(layout::SHAPES)
            && let Some(schema) = self.read(layout::SCHEMA).and_then(|b| parse_schema(&b))
            && let Some(shapes) = self.read(layout::SHAPES).and_then(|b| parse_json(&b))
        {
            lens = field_lens(&schema, &shapes);
        }
        for (name, found) in found.iter().filter(|(name, _)| whole(name)) {
            lens.insert(name.clone(), found.len);
        }
        lens
    }

    /// The rows that the sentinel counts, which its own digest does not guard.
    fn check_rows(
        &mut self,
        sentinel: Option<&Sentinel>,
        sums: &Sums,
        found: &BTreeMap<String, Found>,
    ) {
        let whole = sums.get(layout::SHAPES) == found.get(layout::SHAPES).map(|f| &f.digest);
        let Some(sentinel) = sentinel.filter(|_| whole) else { return };
        let shapes = self.read(layout::SHAPES).and_then(|bytes| parse_json(&bytes));
        let n_rows = shapes.as_ref().and_then(|shapes| shapes.get("n")?.as_u64());
        if n_rows.is_some_and(|n_rows| n_rows != sentinel.n_rows) {
            self.changed_small(layout::COMPLETE);
        }
    }
}

pub(super) fn hash(file: &dyn ReadFile) -> Result<Found, StorageError> {
    let mut hasher = blake3::Hasher::new();
    let mut crcs = Vec::new();
    let mut block = vec![0; usize::try_from(layout::BLOCK_BYTES.min(file.len())).unwrap_or(0)];
    let mut offset = 0;
    while offset < file.len() {
        let n = layout::BLOCK_BYTES.min(file.len() - offset);
        block.truncate(usize::try_from(n).unwrap_or(0));
        file.read_at(&mut block, offset)?;
        hasher.update(&block);
        crcs.push(crc32fast::hash(&block));
        offset += n;
    }
    Ok(Found { len: file.len(), digest: hasher.finalize().to_hex().to_string(), crcs })
}

fn parse_json(bytes: &[u8]) -> Option<Value> {
    serde_json::from_slice(bytes).ok()
}

fn parse_schema(bytes: &[u8]) -> Option<RowSchema> {
    RowSchema::from_json(&parse_json(bytes)?).ok()
}

/// The block of a file that has no more than one.
fn only_block(len: u64) -> Option<Block> {
    (len <= layout::BLOCK_BYTES).then_some(Block { index: 0, n_blocks: 1, bytes: 0..len })
}

/// Where the blocks of each file begin in `blocks.bin`: counted from the front up to the first file
/// of unknown size, and from the back.
fn block_starts(sums: &Sums, lens: &BTreeMap<String, u64>, n_blocks: u64) -> BTreeMap<String, u64> {
    let names: Vec<_> = sums.keys().filter(|name| *name != layout::BLOCKS).collect();
    let count = |name: &String| lens.get(name).map(|len| len.div_ceil(layout::BLOCK_BYTES));
    let mut starts = BTreeMap::new();
    let mut start = Some(0);
    for name in &names {
        let Some(at) = start else { break };
        starts.insert((*name).clone(), at);
        start = count(name).map(|count| at + count);
    }
    let mut end = Some(n_blocks);
    for name in names.iter().rev() {
        let (Some(at), Some(count)) = (end, count(name)) else { break };
        let Some(at) = at.checked_sub(count) else { break };
        starts.insert((*name).clone(), at);
        end = Some(at);
    }
    starts
}

/// The blocks of a file that do not match their numbers in `blocks.bin`, as far as the file has them
/// whole, or as its last.
fn changed_blocks(found: &Found, want_len: u64, blocks: &[u8], start: u64) -> Vec<Block> {
    let (crcs, _) = blocks.as_chunks::<4>();
    let n_blocks = want_len.div_ceil(layout::BLOCK_BYTES);
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let mut changed = Vec::new();
    for (index, got) in (0..n_blocks).zip(&found.crcs) {
        let from = index * layout::BLOCK_BYTES;
        let end = |len: u64| len.min(from + layout::BLOCK_BYTES);
        let at = usize::try_from(index).ok().and_then(|index| start.checked_add(index));
        let want = at.and_then(|at| crcs.get(at)).map(|crc| u32::from_le_bytes(*crc));
        if end(found.len) == end(want_len) && want != Some(*got) {
            changed.push(Block { index, n_blocks, bytes: from..end(want_len) });
        }
    }
    changed
}
