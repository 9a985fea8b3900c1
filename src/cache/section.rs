//! A section in the hands of its writer: rows are put, found, and made durable in the background.
//!
//! Invariants:
//! 1. Rows that were put are found at once, in memory until they are on disk. That memory is bounded
//!    by the commit policy: two segments, one gathered and one being written.
//! 2. An error of a write is returned by the next call, and by [`Section::commit`] at the latest. From
//!    then on nothing is written; what was committed is there when the cache is opened again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::Schema as ArrowSchema;

use super::error::{CacheError, Result};
use super::gather::{self, Place, gather};
use super::hot::HotStat;
use super::lane::{Job, Lane};
use super::lookup::Lookup;
use super::store::{Block, Compacted, Shared, Store};
use super::view::View;
use super::writer::Seat;
use super::{RowKey, structure};
use crate::schema::{Column, FieldSpec, RowSchema};
use crate::shard::CommitPolicy;

/// How a section is opened for writing.
#[derive(Debug, Clone, Default)]
pub struct SectionOptions {
    /// What is not to be inferred of fields, by name: axes that several share, above all. The same
    /// has to be said whenever rows are put.
    pub fields: BTreeMap<String, FieldSpec>,
    /// How often rows are made durable without being asked to.
    pub commits: CommitPolicy,
    /// What is done where the folder holds features of other signatures.
    pub others: Others,
    /// Bytes of memory for the places of rows that were asked for last, as a reader has. 0, the default,
    /// keeps none: who writes asks for most keys once, and each commit forgets them.
    pub hot_bytes: u64,
}

/// What is done where a folder holds features of other signatures than the one asked for. They are
/// never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Others {
    /// Each signature has a section of its own.
    #[default]
    Beside,
    /// Opening fails with [`CacheError::Incompatible`], which names what differs.
    Refused,
}

/// A section of a feature cache, for its one writer. It can be shared between threads.
#[derive(Debug)]
pub struct Section {
    inner: Mutex<Inner>,
    shared: Arc<Shared>,
    options: SectionOptions,
    /// Bytes of rows that were read since segments were last closed.
    n_read: AtomicU64,
    /// Held until the section is dropped.
    seat: Seat,
}

#[derive(Debug)]
struct Inner {
    schema: Option<Arc<RowSchema>>,
    gathered: Held,
    /// What is being written.
    flying: Held,
    lane: Lane,
    last: Instant,
}

/// Rows that are read in bounded memory are let go of when they come to this much,
pub(super) const MAPPED_BYTES: u64 = 64 << 20;
/// counting at least a page for each field of a row.
const PAGE_BYTES: u64 = 4096;
/// What a row takes beside its columns: its key, and its place in the map, which may be twice as large
/// as what is in it.
const KEY_BYTES: usize = size_of::<RowKey>() + 2 * size_of::<(RowKey, (usize, usize))>();

/// Rows in memory.
#[derive(Debug, Default)]
struct Held {
    blocks: Vec<Arc<Block>>,
    /// Block and row of each key's latest row.
    rows: HashMap<RowKey, (usize, usize)>,
    bytes: u64,
}

impl Held {
    fn push(&mut self, keys: &[RowKey], columns: Vec<Column>) {
        let of_columns = columns.iter().map(Column::memory_bytes).sum::<usize>();
        self.bytes += (of_columns + keys.len() * KEY_BYTES) as u64;
        let block = self.blocks.len();
        self.rows.extend(keys.iter().enumerate().map(|(row, key)| (*key, (block, row))));
        self.blocks.push(Arc::new(Block { keys: keys.to_vec(), columns }));
    }

    fn find(&self, key: &RowKey) -> Option<(Arc<Block>, usize)> {
        let (block, row) = self.rows.get(key)?;
        Some((Arc::clone(self.blocks.get(*block)?), *row))
    }
}

/// Where the row of a key is: in memory, or on disk if anywhere.
type Sources = (Arc<View>, Option<Arc<RowSchema>>, Vec<Option<(Arc<Block>, usize)>>);

impl Section {
    pub(super) fn new(seat: Seat, store: Store, options: SectionOptions) -> Self {
        let shared = Arc::clone(store.shared());
        let lane = Lane::new(seat.overlap(), seat.section(), store);
        let inner = Inner {
            schema: shared.view().schema.clone(),
            gathered: Held::default(),
            flying: Held::default(),
            lane,
            last: Instant::now(),
        };
        Self { inner: Mutex::new(inner), shared, options, n_read: AtomicU64::new(0), seat }
    }

    /// SHA-256 of its signature, which names it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.seat.section()
    }

    /// The structure of its rows, once there were any.
    #[must_use]
    pub fn schema(&self) -> Option<Arc<RowSchema>> {
        self.inner().schema.clone()
    }

    /// What there is of hot rows.
    #[must_use]
    pub fn hot(&self) -> HotStat {
        self.shared.view().hot.stat()
    }

    /// Checks that rows with these columns can be put.
    ///
    /// # Errors
    /// [`CacheError::Structure`] if they are not like those that are there; a column that cannot be
    /// stored.
    pub fn accepts(&self, columns: &ArrowSchema) -> Result<()> {
        let found = structure::infer(columns, &self.options.fields)?;
        self.schema().map_or(Ok(()), |locked| structure::check(&locked, &found))
    }

    /// Puts a row of `rows` under each of `keys`. Of rows with one key the latest counts. Buffers are
    /// shared with the batch until they are written.
    ///
    /// The first batch decides the structure of rows. Of one that is refused nothing is put.
    ///
    /// # Errors
    /// As many keys as rows are needed; [`CacheError::Structure`] if rows are not like those that are
    /// there; what went wrong with an earlier write.
    ///
    /// # Durability
    /// None yet: that is what [`Section::commit`] is for.
    pub fn put(&self, keys: &[RowKey], rows: &RecordBatch) -> Result<()> {
        if keys.len() != rows.num_rows() {
            return Err(CacheError::Count { keys: keys.len(), rows: rows.num_rows() });
        }
        if keys.is_empty() {
            return Ok(());
        }
        let found = structure::infer(&rows.schema(), &self.options.fields)?;
        let mut inner = self.inner();
        inner.poll()?;
        let schema = match &inner.schema {
            Some(locked) => {
                structure::check(locked, &found)?;
                Arc::clone(locked)
            }
            None => Arc::new(found),
        };
        let columns = schema.columns(rows)?;
        inner.schema = Some(schema);
        inner.gathered.push(keys, columns);
        let CommitPolicy { bytes, interval } = self.options.commits;
        let is_old = interval.is_some_and(|interval| inner.last.elapsed() >= interval);
        if inner.gathered.bytes >= bytes || is_old {
            inner.start()?;
        }
        Ok(())
    }

    /// Says that its rows are not to be believed, and why: whoever opens it from now on is refused,
    /// until it is pruned.
    ///
    /// # Durability
    /// On `Ok` that survives a power cut.
    ///
    /// # Errors
    /// The system refused.
    pub fn distrust(&self, why: &str) -> Result<()> {
        self.seat.distrust(why)
    }

    /// Makes everything that was put durable.
    ///
    /// # Errors
    /// A write failed, now or since the last call.
    ///
    /// # Durability
    /// On `Ok` all rows that were put survive a power cut.
    pub fn commit(&self) -> Result<()> {
        let mut inner = self.inner();
        inner.start()?;
        inner.wait()
    }

    /// The rows of `keys`, as far as they are there.
    ///
    /// # Errors
    /// A segment is damaged, or the system refused to read it.
    pub fn get(&self, keys: &[RowKey]) -> Result<Lookup> {
        self.get_within(keys, u64::MAX)
    }

    /// The same, unless the rows take more than `most` bytes, and only from segments every byte of which
    /// matches its sums: each is read once. What is mapped of rows is let go of before it is much.
    ///
    /// # Errors
    /// [`CacheError::TooLarge`], before they are copied; as [`Section::get`].
    pub fn get_within(&self, keys: &[RowKey], most: u64) -> Result<Lookup> {
        self.look(keys, |(view, schema, held)| {
            let missing = keys.iter().zip(&held).filter(|(_, held)| held.is_none());
            let missing: Vec<RowKey> = missing.map(|(key, _)| *key).collect();
            let found = view.find(&missing)?;
            if most < u64::MAX {
                view.verify_once(&found)?;
            }
            let mut found = found.into_iter();
            let (mut places, mut hits, mut misses) = (Vec::new(), Vec::new(), Vec::new());
            for (position, held) in held.iter().enumerate() {
                let place = match held {
                    Some((block, row)) => Some(Place::Held { columns: &block.columns, row: *row }),
                    None => match found.next().flatten() {
                        Some(found) => view.place(found)?,
                        None => None,
                    },
                };
                let side = if place.is_some() { &mut hits } else { &mut misses };
                side.push(position);
                places.extend(place);
            }
            if let (Some(schema), true) = (&schema, most < u64::MAX) {
                let bytes = gather::bytes(schema, &places)?;
                if bytes > most {
                    return Err(CacheError::TooLarge { bytes, most });
                }
                let pages = (hits.len() * schema.fields().len()) as u64 * PAGE_BYTES;
                self.note_read(bytes.max(pages));
            }
            let rows = batch(schema.as_deref(), &places)?;
            Ok(Lookup { rows, hits, misses })
        })
    }

    /// Notes that rows were read, and lets go of what is mapped of them when that is much.
    fn note_read(&self, n_bytes: u64) {
        if self.n_read.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes >= MAPPED_BYTES {
            self.n_read.store(0, Ordering::Relaxed);
            self.shared.close_segments();
        }
    }

    /// The positions of those of `keys` that have no row, ascending: what [`Section::get`] would miss,
    /// without reading rows.
    ///
    /// # Errors
    /// As [`Section::get`].
    pub fn misses(&self, keys: &[RowKey]) -> Result<Vec<usize>> {
        self.look(keys, |(view, _, held)| {
            let found = view.find(keys)?;
            let held = found.iter().zip(&held).enumerate();
            Ok(held
                .filter(|(_, (found, held))| found.is_none() && held.is_none())
                .map(|(n, _)| n)
                .collect())
        })
    }

    /// Gives back the space of rows that were replaced, puts small segments together, and makes the
    /// index anew. Commits before. Readers are not disturbed.
    ///
    /// # Errors
    /// As [`Section::commit`]; a segment is damaged.
    ///
    /// # Durability
    /// A crash at any moment leaves every committed row in place.
    pub fn compact(&self) -> Result<Compacted> {
        let mut inner = self.inner();
        inner.start()?;
        inner.wait()?;
        inner.lane.with_store(Store::compact)
    }

    /// Asks what is there; once more if segments were replaced meanwhile.
    fn look<T>(&self, keys: &[RowKey], read: impl Fn(Sources) -> Result<T>) -> Result<T> {
        loop {
            let (view, schema, held) = self.inner().sources(&self.shared, keys);
            match read((Arc::clone(&view), schema, held)) {
                Err(e) if e.is_absence() && !Arc::ptr_eq(&view, &self.shared.view()) => {}
                outcome => return outcome,
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Hands what was gathered to the lane.
    fn start(&mut self) -> Result<()> {
        self.wait()?;
        self.last = Instant::now();
        let Some(schema) = self.schema.clone().filter(|_| !self.gathered.blocks.is_empty()) else {
            return Ok(());
        };
        self.flying = std::mem::take(&mut self.gathered);
        let blocks = self.flying.blocks.clone();
        self.lane.start(Job { schema, blocks })?;
        self.land();
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        self.lane.wait()?;
        self.land();
        Ok(())
    }

    fn poll(&mut self) -> Result<()> {
        self.lane.poll()?;
        self.land();
        Ok(())
    }

    /// Lets go of what has been written.
    fn land(&mut self) {
        if !self.lane.is_busy() {
            self.flying = Held::default();
        }
    }

    /// What there is of `keys` in memory, and where to look for the others. Rows that are in neither
    /// half of memory any more are in the view.
    fn sources(&self, shared: &Shared, keys: &[RowKey]) -> Sources {
        let held = keys.iter().map(|key| self.gathered.find(key).or_else(|| self.flying.find(key)));
        (shared.view(), self.schema.clone(), held.collect())
    }
}

/// The rows at `places` as Arrow has them.
pub(super) fn batch(schema: Option<&RowSchema>, places: &[Place<'_>]) -> Result<RecordBatch> {
    let Some(schema) = schema else {
        return Ok(RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty())));
    };
    let columns = gather(schema, places)?;
    Ok(schema.batch(&columns, places.len())?)
}
