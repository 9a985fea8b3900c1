//! The writer's hands: what changes a section on disk.
//!
//! Leaves out: what is still gathered in memory, and threads (`section`, `lane`).
//!
//! Invariants:
//! 1. Segment, its folder's name and its run are durable before the line that adds it.
//! 2. What a line drops is removed after the line is durable, and after readers of this process see
//!    the view without it.
//! 3. After a failure nothing is written any more: whoever has the store lets it go.
//! 4. Opening makes of whatever a crash left the section of the last line that is whole: the log is
//!    cut, folders that it does not name go, runs that are missing are made again.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::{CacheError, Result};
use super::gather::{Place, gather};
use super::hot::Hot;
use super::manifest::{Change, Entry, Manifest};
use super::run::Run;
use super::segment::Segment;
use super::view::{Found, View};
use super::{RowKey, index, layout};
use crate::fingerprint::CompatSignature;
use crate::schema::{Column, RowSchema};
use crate::shard::{KeyedWriter, discard};
use crate::storage::{AppendFile, EntryKind, Storage};

/// So many segments of one level at the end of a section are merged to one of the next.
const MERGE_SEGMENTS: usize = 8;
/// A merged segment is no larger than this.
const MERGE_BYTES: u64 = 256 << 20;
const MERGE_ROWS: u64 = 1 << 20;
/// Bytes and rows that are copied at once while segments are merged.
const COPY_BYTES: u64 = 8 << 20;
const COPY_ROWS: usize = 4096;

/// Rows that are put together.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) keys: Vec<RowKey>,
    pub(super) columns: Vec<Column>,
}

/// The view that everybody in this process sees.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Arc<View>>);

impl Shared {
    /// A section without rows.
    pub(super) fn new(hot: Hot) -> Self {
        Self(Mutex::new(Arc::new(View::empty(hot))))
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set(&self, view: View) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// Lets go of the memory that rows which were read are mapped to.
    pub(super) fn close_segments(&self) {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *view = Arc::new(view.closed());
    }
}

/// What [`Section::compact`](super::Section::compact) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Rows before, counting those that later ones had replaced.
    pub rows_before: u64,
    /// Rows now: one for each key.
    pub rows: u64,
    /// Bytes of segments before.
    pub bytes_before: u64,
    /// Bytes of segments now.
    pub bytes: u64,
}

/// A section in the hands of its one writer.
#[derive(Debug)]
pub(super) struct Store {
    storage: Arc<dyn Storage>,
    /// The cache's folder.
    root: PathBuf,
    /// The section's.
    dir: PathBuf,
    signature: CompatSignature,
    shared: Arc<Shared>,
    open: Option<Open>,
}

/// A section that has a log.
#[derive(Debug)]
struct Open {
    manifest: Manifest,
    log: Box<dyn AppendFile>,
}

impl Store {
    /// Opens the section, and repairs what a crash left of it. Nothing is made where it is not there.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        root: &Path,
        signature: CompatSignature,
        hot: Hot,
    ) -> Result<Self> {
        let dir = root.join(signature.sha256());
        let root = root.to_path_buf();
        let shared = Arc::new(Shared::new(hot));
        let mut this = Self { storage, root, dir, signature, shared, open: None };
        let storage = &*this.storage;
        let manifest = read(storage, &this.dir, &this.signature)?;
        let Some(manifest) = manifest else { return Ok(this) };
        let mut log =
            storage.open_append(&this.dir.join(layout::MANIFEST), manifest.valid_bytes)?;
        log.sync()?;
        let named: HashSet<String> =
            manifest.segments.iter().map(|entry| entry.id.to_string()).collect();
        for entry in storage.list(&layout::segments(&this.dir))?.unwrap_or_default() {
            if !named.contains(&entry.name) {
                this.discard(&layout::segments(&this.dir).join(&entry.name))?;
            }
        }
        let is_live = |id| named.contains(&u32::to_string(&id));
        let (runs, others) = index::list(storage, &this.dir, &[], &is_live)?;
        this.remove_runs(&others)?;
        let hot = this.shared.view().hot.renewed();
        this.shared.set(View::new(&this.storage, &this.dir, &manifest, [], runs, hot));
        this.open = Some(Open { manifest, log });
        this.cover()?;
        Ok(this)
    }

    /// What everybody sees.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes the runs of segments that none covers.
    fn cover(&self) -> Result<()> {
        let view = self.shared.view();
        let mut runs = view.runs.clone();
        let loose = index::uncovered(&view.segments, &runs);
        if loose.is_empty() {
            return Ok(());
        }
        for segment in loose.iter().filter_map(|at| view.segments.get(*at)) {
            let keys = segment.keys()?.iter();
            runs.push(index::write(&*self.storage, &self.dir, segment.entry.id, keys)?);
        }
        self.shared.set(view.with_runs(runs));
        self.tend_index(false)
    }

    /// Makes the folder of a section without rows.
    fn begin(&mut self, schema: &Arc<RowSchema>) -> Result<()> {
        let storage = &*self.storage;
        storage.create_dir_all(&self.dir)?;
        let json = self.signature.json().as_bytes();
        storage.write_atomic(&self.dir.join(layout::SIGNATURE), json)?;
        for dir in [layout::segments(&self.dir), layout::index(&self.dir)] {
            storage.create_dir(&dir)?;
        }
        storage.sync_dir(&self.dir)?;
        let manifest = Manifest::new(self.signature.sha256(), Arc::clone(schema));
        self.write_log(manifest)
    }

    /// Puts a log in place that says the same in one line.
    fn write_log(&mut self, mut manifest: Manifest) -> Result<()> {
        let path = self.dir.join(layout::MANIFEST);
        let header = manifest.header();
        self.open = None;
        self.storage.write_atomic(&path, &header)?;
        (manifest.next_seq, manifest.valid_bytes) = (0, header.len() as u64);
        let log = self.storage.open_append(&path, manifest.valid_bytes)?;
        self.open = Some(Open { manifest, log });
        Ok(())
    }

    /// Makes rows durable.
    ///
    /// # Durability
    /// On `Ok` the rows survive a power cut.
    pub(super) fn commit(&mut self, schema: &Arc<RowSchema>, blocks: &[Arc<Block>]) -> Result<()> {
        if self.open.is_none() {
            self.begin(schema)?;
        }
        let id = self.begun()?.manifest.next_id;
        let storage = Arc::clone(&self.storage);
        let mut writer = KeyedWriter::create(&*storage, layout::segment(&self.dir, id), schema)?;
        for block in blocks {
            writer.append(&block.keys, &block.columns)?;
        }
        self.add(writer, id, 0, Vec::new())?;
        self.tend()
    }

    /// Completes a segment and the line that puts it in place of others.
    fn add(&mut self, writer: KeyedWriter<'_>, id: u32, level: u32, drop: Vec<u32>) -> Result<()> {
        let rows = writer.seal()?;
        self.storage.sync_dir(&layout::segments(&self.dir))?;
        let entry = Entry { id, b3: rows.b3, rows: rows.rows, bytes: rows.bytes, level };
        let schema = Arc::clone(&self.begun()?.manifest.schema);
        let segment = Segment::new(&self.storage, &self.dir, &schema, entry.clone());
        let keys = segment.keys()?.iter();
        let run = index::write(&*self.storage, &self.dir, id, keys)?;
        self.change(Some(entry), drop, Some((Arc::new(segment), run)))
    }

    /// Appends a line, and lets everybody see what it says.
    fn change(
        &mut self,
        add: Option<Entry>,
        drop: Vec<u32>,
        new: Option<(Arc<Segment>, Arc<Run>)>,
    ) -> Result<()> {
        let path = self.dir.join(layout::MANIFEST);
        let Open { manifest, log } = self.begun()?;
        let change = Change { seq: manifest.next_seq, add, drop };
        manifest
            .apply(&change)
            .ok_or_else(|| CacheError::damaged(&path, "a line would not follow the others"))?;
        log.append(&crate::shard::log::line(&change))?;
        log.sync()?;
        manifest.valid_bytes = log.len();
        let manifest = manifest.clone();
        let view = self.shared.view();
        let (segment, run) = new.unzip();
        let mut runs = view.runs.clone();
        runs.extend(run);
        let known = view.segments.iter().chain(&segment);
        let hot = view.hot.renewed();
        self.shared.set(View::new(&self.storage, &self.dir, &manifest, known, runs, hot));
        for id in change.drop {
            self.discard(&layout::segment(&self.dir, id))?;
        }
        Ok(())
    }

    /// Merges what has become many: small segments, then runs.
    fn tend(&mut self) -> Result<()> {
        loop {
            let entries = &self.begun()?.manifest.segments;
            let Some(level) = entries.last().map(|entry| entry.level) else { break };
            let end = entries.len();
            let from = end.saturating_sub(MERGE_SEGMENTS);
            let last = entries.get(from..).unwrap_or_default();
            let bytes: u64 = last.iter().map(|entry| entry.bytes).sum();
            let rows: u64 = last.iter().map(|entry| entry.rows).sum();
            let is_due = last.len() == MERGE_SEGMENTS
                && last.iter().all(|entry| entry.level == level)
                && bytes <= MERGE_BYTES
                && rows <= MERGE_ROWS;
            if !is_due {
                break;
            }
            self.rewrite(from..end, level + 1)?;
        }
        self.tend_index(false)
    }

    /// Merges the runs that are due, or all.
    fn tend_index(&self, all: bool) -> Result<()> {
        let view = self.shared.view();
        let (runs, old) = index::merge(&*self.storage, &self.dir, &view, all)?;
        self.shared.set(view.with_runs(runs));
        self.remove_runs(&old)
    }

    fn remove_runs(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.storage.remove_all(&layout::index(&self.dir).join(name))?;
        }
        Ok(())
    }

    /// Replaces segments by one that holds those of their rows that no later one has replaced.
    fn rewrite(&mut self, range: Range<usize>, level: u32) -> Result<()> {
        let view = self.shared.view();
        let manifest = &self.begun()?.manifest;
        let (id, schema) = (manifest.next_id, Arc::clone(&manifest.schema));
        let storage = Arc::clone(&self.storage);
        let path = layout::segment(&self.dir, id);
        let mut writer = None;
        let segments = view.segments.get(range.clone()).unwrap_or_default();
        // New sums must not vouch for old damage.
        segments.iter().try_for_each(|segment| segment.verify())?;
        for (position, segment) in range.zip(segments) {
            // One is mapped at a time.
            let segment = segment.closed();
            let keys = segment.keys()?;
            let row_bytes = segment.entry.bytes / segment.entry.rows.max(1);
            let n_rows = usize::try_from(COPY_BYTES / row_bytes.max(1)).unwrap_or(COPY_ROWS);
            let n_rows = n_rows.clamp(1, COPY_ROWS);
            for (chunk, keys) in keys.chunks(n_rows).enumerate() {
                let live = live_rows(&view, position, chunk * n_rows, keys)?;
                if live.is_empty() {
                    continue;
                }
                let shard = segment.shard()?;
                let places: Vec<_> =
                    live.iter().map(|(row, _)| Place::Sealed { shard, row: *row }).collect();
                let columns = gather(&schema, &places)?;
                let keys: Vec<RowKey> = live.into_iter().map(|(_, key)| key).collect();
                if writer.is_none() {
                    writer = Some(KeyedWriter::create(&*storage, path.clone(), &schema)?);
                }
                if let Some(writer) = &mut writer {
                    writer.append(&keys, &columns)?;
                }
            }
        }
        let drop = segments.iter().map(|segment| segment.entry.id).collect();
        match writer {
            Some(writer) => self.add(writer, id, level, drop),
            None => self.change(None, drop, None),
        }
    }

    /// Gives back what replaced rows take, and puts small segments together.
    pub(super) fn compact(&mut self) -> Result<Compacted> {
        let count = |view: &View| {
            (view.n_rows(), view.segments.iter().map(|segment| segment.entry.bytes).sum())
        };
        let view = self.shared.view();
        let (rows_before, bytes_before) = count(&view);
        if self.open.is_some() {
            // From the last to the first: what stands before a range stays where it is.
            for range in groups(&view)?.into_iter().rev() {
                let level = range.clone().filter_map(|at| view.segments.get(at));
                let level = level.map(|segment| segment.entry.level).max().unwrap_or(0);
                self.rewrite(range, level + 1)?;
            }
            let view = self.shared.view();
            let (runs, old) = index::remake(&*self.storage, &self.dir, &view)?;
            self.shared.set(view.with_runs(runs));
            self.remove_runs(&old)?;
            self.tend_index(true)?;
            let manifest = self.begun()?.manifest.clone();
            self.write_log(manifest)?;
        }
        let (rows, bytes) = count(&self.shared.view());
        Ok(Compacted { rows_before, rows, bytes_before, bytes })
    }

    fn begun(&mut self) -> Result<&mut Open> {
        let section = self.signature.sha256().to_owned();
        self.open.as_mut().ok_or(CacheError::Stopped { section })
    }

    fn discard(&self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let label = format!("{}-{name}", self.signature.sha256());
        discard(&*self.storage, &self.root, path, &label)?;
        Ok(())
    }
}

/// Rows of a chunk of a segment, from `first` on, that no later row has replaced.
fn live_rows(
    view: &View,
    position: usize,
    first: usize,
    keys: &[RowKey],
) -> Result<Vec<(usize, RowKey)>> {
    let found = view.find_by_index(keys)?;
    let rows = (first..).zip(keys).zip(found);
    let live = rows.filter(|((row, _), found)| *found == Some(Found { position, row: *row }));
    Ok(live.map(|((row, key), _)| (row, *key)).collect())
}

/// Ranges of segments that are worth writing again.
fn groups(view: &View) -> Result<Vec<Range<usize>>> {
    let mut groups: Vec<(Range<usize>, u64, u64, bool)> = Vec::new();
    for (position, segment) in view.segments.iter().enumerate() {
        let mut n_live = 0;
        for (chunk, keys) in segment.keys()?.chunks(COPY_ROWS).enumerate() {
            n_live += live_rows(view, position, chunk * COPY_ROWS, keys)?.len() as u64;
        }
        let Entry { rows, bytes, .. } = segment.entry;
        let has_stale = n_live < rows;
        match groups.last_mut() {
            Some((range, all_rows, all_bytes, is_stale))
                if *all_rows + rows <= MERGE_ROWS && *all_bytes + bytes <= MERGE_BYTES =>
            {
                range.end += 1;
                (*all_rows, *all_bytes, *is_stale) =
                    (*all_rows + rows, *all_bytes + bytes, *is_stale || has_stale);
            }
            _ => groups.push((position..position + 1, rows, bytes, has_stale)),
        }
    }
    let worth = groups.into_iter().filter(|(range, .., is_stale)| range.len() > 1 || *is_stale);
    Ok(worth.map(|(range, ..)| range).collect())
}

/// Whether a section was begun: there is a log, or there are segments.
pub(super) fn is_begun(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let is_there = |name: &str| Ok::<_, CacheError>(storage.stat(&dir.join(name))?.is_some());
    Ok(is_there(layout::MANIFEST)? || is_there(layout::DOUBT)? || has_segments(storage, dir)?)
}

fn has_segments(storage: &dyn Storage, dir: &Path) -> Result<bool> {
    let entries = storage.list(&layout::segments(dir))?.unwrap_or_default();
    Ok(entries.iter().any(|entry| entry.kind == EntryKind::Dir))
}

/// The log of a section, `None` where there is no section yet.
pub(super) fn read(
    storage: &dyn Storage,
    dir: &Path,
    signature: &CompatSignature,
) -> Result<Option<Manifest>> {
    let doubt = dir.join(layout::DOUBT);
    if let Some(why) = storage.read(&doubt)? {
        let why = String::from_utf8_lossy(&why);
        let what = format!("rows of this section may hold what belongs to others: {why}");
        return Err(CacheError::damaged(&doubt, &what));
    }
    let path = dir.join(layout::MANIFEST);
    let log = if let Some(log) = storage.read(&path)? {
        log
    } else {
        if !has_segments(storage, dir)? {
            return Ok(None);
        }
        // The log is durable before the first segment is begun: it may have come meanwhile.
        let what = "it is not there, but segments are";
        storage.read(&path)?.ok_or_else(|| CacheError::damaged(&path, what))?
    };
    let path_of_json = dir.join(layout::SIGNATURE);
    if storage.read(&path_of_json)?.as_deref() != Some(signature.json().as_bytes()) {
        let what = "it is not the signature that names the folder";
        return Err(CacheError::damaged(&path_of_json, what));
    }
    Manifest::read(&path, &log, signature.sha256()).map(Some)
}
