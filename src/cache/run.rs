//! A run of the index: sorted entries of some segments' rows, in one mapped file.
//!
//! Leaves out: which runs there are and when they are merged (`index`).
//!
//! Invariants:
//! 1. A lookup touches one or two pages of the fences and one of the entries: keys are hashes, evenly
//!    spread, so the page of a key stands close to where the key says.
//! 2. Every page carries its CRC-32, checked whenever it is looked at. A damaged page is an error,
//!    never a row that is missed.
//! 3. A run is named by its content, so a name stands for the same bytes for ever.

use std::cmp::Ordering;
use std::path::Path;

use bytes::Bytes;

use super::RowKey;
use super::error::{CacheError, Result};
use crate::storage::{AppendFile, Storage};

const PAGE_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 16;
/// Entries of a page. What is left holds its number, how many entries it has, and its CRC-32.
const PAGE_ENTRIES: usize = PAGE_BYTES / ENTRY_BYTES - 1;
const FOOTER_BYTES: usize = 40;
const MAGIC: &[u8; 8] = b"rowmilli";
/// Pages that are written at once.
const WRITE_BYTES: usize = 32 * PAGE_BYTES;

/// Where a row with a key that begins like this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// The first 8 bytes of the key, as a number of which the first byte is the highest.
    pub(super) prefix: u64,
    pub(super) segment: u32,
    pub(super) row: u32,
}

/// A run that is mapped for reading.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) segments: Vec<u32>,
    pub(super) n_entries: u64,
    n_pages: usize,
    bytes: Bytes,
}

/// A page of a run does not match its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadPage(pub(super) usize);

impl Entry {
    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let number =
            u128::from(self.prefix) | u128::from(self.segment) << 64 | u128::from(self.row) << 96;
        number.to_le_bytes()
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts of an entry")]
    fn of(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let number = u128::from_le_bytes(*bytes);
        Self { prefix: number as u64, segment: (number >> 64) as u32, row: (number >> 96) as u32 }
    }
}

/// The part of a key that entries are sorted by.
pub(super) fn prefix(key: &RowKey) -> u64 {
    key.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Writes the run of `segments`, whose `entries` come sorted. Gives its name.
///
/// # Durability
/// On `Ok` the run survives a power cut.
pub(super) fn write(
    storage: &dyn Storage,
    dir: &Path,
    segments: &[u32],
    entries: impl Iterator<Item = Result<Entry>>,
) -> Result<String> {
    let tmp = dir.join("run.tmp");
    if storage.stat(&tmp)?.is_some() {
        storage.remove_file(&tmp)?;
    }
    let mut out =
        Out { file: storage.create(&tmp)?, hasher: blake3::Hasher::new(), gathered: Vec::new() };
    let (mut fences, mut page) = (Vec::new(), Vec::with_capacity(PAGE_BYTES));
    let (mut n_entries, mut n_pages) = (0_u64, 0_u64);
    let mut end_page = |page: &mut Vec<u8>, out: &mut Out| {
        let n = u32::try_from(page.len() / ENTRY_BYTES).unwrap_or_default();
        page.resize(PAGE_BYTES - ENTRY_BYTES, 0);
        page.extend_from_slice(&n_pages.to_le_bytes());
        page.extend_from_slice(&n.to_le_bytes());
        page.extend_from_slice(&crc32fast::hash(page).to_le_bytes());
        n_pages += 1;
        let outcome = out.append(page);
        page.clear();
        outcome
    };
    for entry in entries {
        let entry = entry?;
        if page.is_empty() {
            fences.extend_from_slice(&entry.prefix.to_le_bytes());
        }
        page.extend_from_slice(&entry.bytes());
        n_entries += 1;
        if page.len() == PAGE_ENTRIES * ENTRY_BYTES {
            end_page(&mut page, &mut out)?;
        }
    }
    if !page.is_empty() {
        end_page(&mut page, &mut out)?;
    }
    let mut tail = fences;
    tail.extend(segments.iter().flat_map(|id| id.to_le_bytes()));
    let crc = crc32fast::hash(&tail);
    out.append(&tail)?;
    let mut footer = MAGIC.to_vec();
    for number in [n_entries, n_pages, segments.len() as u64] {
        footer.extend_from_slice(&number.to_le_bytes());
    }
    footer.extend_from_slice(&crc.to_le_bytes());
    footer.extend_from_slice(&crc32fast::hash(&footer).to_le_bytes());
    out.append(&footer)?;
    let name = out.finish()?;
    storage.rename(&tmp, &dir.join(&name))?;
    storage.sync_dir(dir)?;
    Ok(name)
}

/// The file that a run is written to.
struct Out {
    file: Box<dyn AppendFile>,
    hasher: blake3::Hasher,
    gathered: Vec<u8>,
}

impl Out {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.hasher.update(&self.gathered);
        self.file.append(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<String> {
        self.flush()?;
        self.file.sync()?;
        let digest = self.hasher.finalize().to_hex();
        Ok(format!("run-{}.bin", digest.get(..16).unwrap_or_default()))
    }
}

impl Run {
    /// Maps the run of that name.
    pub(super) fn open(storage: &dyn Storage, dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let bytes = storage.map(&path)?;
        let parsed = Self::parse(name, bytes);
        parsed.ok_or_else(|| CacheError::damaged(&path, "its sums do not match"))
    }

    fn parse(name: &str, bytes: Bytes) -> Option<Self> {
        let at = bytes.len().checked_sub(FOOTER_BYTES)?;
        let footer = bytes.get(at..)?;
        let number = |at: usize| u64::from_le_bytes(*footer.get(at..)?.first_chunk()?).into();
        let crc = |at: usize| Some(u32::from_le_bytes(*footer.get(at..)?.first_chunk()?));
        let (n_entries, n_pages, n_segments): (Option<u64>, Option<u64>, Option<u64>) =
            (number(8), number(16), number(24));
        if footer.get(..8)? != MAGIC || crc(36)? != crc32fast::hash(footer.get(..36)?) {
            return None;
        }
        let (n_pages, n_segments) =
            (usize::try_from(n_pages?).ok()?, usize::try_from(n_segments?).ok()?);
        let from = n_pages.checked_mul(PAGE_BYTES)?;
        let tail = bytes.get(from..at)?;
        let fences_end = n_pages.checked_mul(8)?;
        let ids = tail.get(fences_end..)?;
        if ids.len() != n_segments.checked_mul(4)? || crc(32)? != crc32fast::hash(tail) {
            return None;
        }
        let segments = ids.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let name = name.to_owned();
        Some(Self { name, segments, n_entries: n_entries?, n_pages, bytes })
    }

    /// Bytes of its file.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Gives `found` every entry of that prefix.
    pub(super) fn find(
        &self,
        prefix: u64,
        mut found: impl FnMut(Entry),
    ) -> std::result::Result<(), BadPage> {
        let fences = self.bytes.get(self.n_pages * PAGE_BYTES..).unwrap_or_default();
        let fences = fences.as_chunks::<8>().0;
        let fence = |page: usize| fences.get(page).map_or(u64::MAX, |f| u64::from_le_bytes(*f));
        let first = first_of(self.n_pages, prefix, |page| fence(page) < prefix);
        // The page before may end with entries of the prefix.
        let mut page = first.saturating_sub(1);
        while page < self.n_pages && fence(page) <= prefix {
            let entries = self.page(page)?;
            let from = entries.partition_point(|entry| Entry::of(entry).prefix < prefix);
            for entry in entries.iter().skip(from).map(Entry::of) {
                if entry.prefix != prefix {
                    return Ok(());
                }
                found(entry);
            }
            page += 1;
        }
        Ok(())
    }

    /// The entries of a page, which is as it was written.
    fn page(&self, page: usize) -> std::result::Result<&[[u8; ENTRY_BYTES]], BadPage> {
        let bytes = self.bytes.get(page * PAGE_BYTES..).and_then(|rest| rest.get(..PAGE_BYTES));
        let checked = bytes.and_then(|bytes| {
            let (covered, crc) = bytes.split_last_chunk::<4>()?;
            let (entries, tail) = covered.split_at_checked(PAGE_BYTES - ENTRY_BYTES)?;
            let number = u64::from_le_bytes(*tail.first_chunk()?);
            let n = usize::try_from(u32::from_le_bytes(*tail.last_chunk()?)).ok()?;
            let holds = u32::from_le_bytes(*crc) == crc32fast::hash(covered);
            (holds && number == page as u64).then(|| entries.as_chunks().0.get(..n))?
        });
        checked.ok_or(BadPage(page))
    }

    /// All its entries in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = std::result::Result<Entry, BadPage>> + '_ {
        (0..self.n_pages).flat_map(|page| {
            let (entries, bad) = match self.page(page) {
                Ok(entries) => (entries, None),
                Err(bad) => (Default::default(), Some(Err(bad))),
            };
            entries.iter().map(|entry| Ok(Entry::of(entry))).chain(bad)
        })
    }
}

/// Merges sorted sequences of entries.
pub(super) struct Merge<I: Iterator<Item = Result<Entry>>> {
    inputs: Vec<std::iter::Peekable<I>>,
}

impl<I: Iterator<Item = Result<Entry>>> Merge<I> {
    pub(super) fn new(inputs: impl IntoIterator<Item = I>) -> Self {
        Self { inputs: inputs.into_iter().map(Iterator::peekable).collect() }
    }
}

impl<I: Iterator<Item = Result<Entry>>> Iterator for Merge<I> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        // A handful of runs: looking at each is as quick as a heap of them.
        let mut least: Option<(usize, Entry)> = None;
        for (at, input) in self.inputs.iter_mut().enumerate() {
            match input.peek() {
                Some(Err(_)) => return input.next(),
                Some(Ok(entry))
                    if least.is_none_or(|(_, other)| entry.cmp(&other) == Ordering::Less) =>
                {
                    least = Some((at, *entry));
                }
                Some(Ok(_)) | None => {}
            }
        }
        self.inputs.get_mut(least?.0)?.next()
    }
}

/// Index of the first of `n` sorted prefixes that is `prefix` or more. Looks first where it would
/// stand if they were spread evenly, then at doubling distances from there.
fn first_of(n: usize, prefix: u64, is_below: impl Fn(usize) -> bool) -> usize {
    let share = (u128::from(prefix) * n as u128) >> 64;
    let guess = usize::try_from(share).unwrap_or_default();
    // What is wanted stands in `from..=to`.
    let (mut from, mut to, mut step) = (guess, guess, 1);
    if guess < n && is_below(guess) {
        while to < n && is_below(to) {
            from = to + 1;
            to = n.min(from + step);
            step *= 2;
        }
    } else {
        while from > 0 && !is_below(from - 1) {
            to = from - 1;
            from = to.saturating_sub(step);
            step *= 2;
        }
    }
    while from < to {
        let middle = from.midpoint(to);
        if is_below(middle) { from = middle + 1 } else { to = middle }
    }
    from
}
