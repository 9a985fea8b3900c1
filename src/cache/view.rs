//! A section as it is at one moment: its segments, its index, and where the row of a key is.
//!
//! Leaves out: rows that are not committed (`section`), and how the next view comes about (`store`).
//!
//! Invariants:
//! 1. Of rows with one key the latest counts: that of the segment which stands last, and in it the
//!    last row.
//! 2. The index only tells where to look. A row is found if its whole key is the one asked for.
//! 3. Hot rows are found without the index; they are those of this list of segments (`hot`).
//! 4. Where the index is missing or damaged the segments' keys are searched: slower, never wrong.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::RowKey;
use super::error::Result;
use super::gather::Place;
use super::hot::Hot;
use super::index;
use super::manifest::Manifest;
use super::run::{Run, prefix};
use super::segment::Segment;
use crate::schema::RowSchema;
use crate::storage::Storage;

/// What a reader sees of a section.
#[derive(Debug, Default)]
pub(super) struct View {
    /// The structure of rows, once there was one.
    pub(super) schema: Option<Arc<RowSchema>>,
    /// In the order of their rows.
    pub(super) segments: Vec<Arc<Segment>>,
    /// Where each segment stands.
    positions: HashMap<u32, usize>,
    pub(super) runs: Vec<Arc<Run>>,
    /// Positions of segments that no run covers.
    loose: BTreeSet<usize>,
    pub(super) hot: Hot,
}

/// A row of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    /// Position of the segment.
    pub(super) position: usize,
    pub(super) row: usize,
}

impl View {
    /// A section without rows.
    pub(super) fn empty(hot: Hot) -> Self {
        Self { hot, ..Self::default() }
    }

    /// The section that the manifest describes. Segments that are `known` stay open.
    pub(super) fn new<'a>(
        storage: &Arc<dyn Storage>,
        section: &Path,
        manifest: &Manifest,
        known: impl IntoIterator<Item = &'a Arc<Segment>>,
        runs: Vec<Arc<Run>>,
        hot: Hot,
    ) -> Self {
        let known: HashMap<u32, &Arc<Segment>> =
            known.into_iter().map(|segment| (segment.entry.id, segment)).collect();
        let segment = |entry: &super::manifest::Entry| match known.get(&entry.id) {
            Some(known) if known.entry == *entry => Arc::clone(known),
            _ => Arc::new(Segment::new(storage, section, &manifest.schema, entry.clone())),
        };
        let segments: Vec<_> = manifest.segments.iter().map(segment).collect();
        Self::of(Some(Arc::clone(&manifest.schema)), segments, runs, hot)
    }

    fn of(
        schema: Option<Arc<RowSchema>>,
        segments: Vec<Arc<Segment>>,
        runs: Vec<Arc<Run>>,
        hot: Hot,
    ) -> Self {
        let positions = segments.iter().enumerate().map(|(at, s)| (s.entry.id, at)).collect();
        let loose = index::uncovered(&segments, &runs);
        Self { schema, segments, positions, runs, loose, hot }
    }

    /// The same with another index.
    pub(super) fn with_runs(&self, runs: Vec<Arc<Run>>) -> Self {
        Self::of(self.schema.clone(), self.segments.clone(), runs, self.hot.clone())
    }

    /// The same with segments that are not opened yet.
    pub(super) fn closed(&self) -> Self {
        let segments = self.segments.iter().map(|segment| Arc::new(segment.closed())).collect();
        Self::of(self.schema.clone(), segments, self.runs.clone(), self.hot.clone())
    }

    /// Rows, counting those that later ones have replaced.
    pub(super) fn n_rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.entry.rows).sum()
    }

    /// Whether the segment of that number is there.
    pub(super) fn holds(&self, id: u32) -> bool {
        self.positions.contains_key(&id)
    }

    /// The segment of that number.
    pub(super) fn segment(&self, id: u32) -> Option<&Arc<Segment>> {
        self.segments.get(*self.positions.get(&id)?)
    }

    /// The row of each key.
    pub(super) fn find(&self, keys: &[RowKey]) -> Result<Vec<Option<Found>>> {
        if self.hot.is_off() {
            return self.find_by_index(keys);
        }
        let mut found = self.hot.recall(keys);
        let cold = keys.iter().zip(&found).filter(|(_, found)| found.is_none());
        let cold: Vec<RowKey> = cold.map(|(key, _)| *key).collect();
        if !cold.is_empty() {
            let of_cold = self.find_by_index(&cold)?;
            self.hot.keep(&cold, &of_cold, keys.len(), self.n_rows());
            let places = found.iter_mut().filter(|found| found.is_none());
            places.zip(of_cold).for_each(|(place, found)| *place = found);
        }
        Ok(found)
    }

    /// The same for keys that nobody will ask for again.
    pub(super) fn find_by_index(&self, keys: &[RowKey]) -> Result<Vec<Option<Found>>> {
        let mut found: Vec<Option<Found>> = vec![None; keys.len()];
        let mut loose = self.loose.clone();
        for run in &self.runs {
            if self.search(run, keys, &mut found)?.is_err() {
                loose.extend(run.segments.iter().filter_map(|id| self.positions.get(id)));
            }
        }
        if !loose.is_empty() {
            self.scan(&loose, keys, &mut found)?;
        }
        Ok(found)
    }

    /// Looks for keys in a run; inside, whether the run could be believed.
    fn search(
        &self,
        run: &Run,
        keys: &[RowKey],
        found: &mut [Option<Found>],
    ) -> Result<std::result::Result<(), ()>> {
        for (key, found) in keys.iter().zip(found) {
            let mut failed = Ok(());
            let searched = run.find(prefix(key), |entry| {
                let Some(&position) = self.positions.get(&entry.segment) else { return };
                let Ok(row) = usize::try_from(entry.row) else { return };
                let place = Some(Found { position, row });
                if *found >= place || failed.is_err() {
                    return;
                }
                match self.has_key(position, row, key) {
                    Ok(true) => *found = place,
                    Ok(false) => {}
                    Err(e) => failed = Err(e),
                }
            });
            failed?;
            if searched.is_err() {
                return Ok(Err(()));
            }
        }
        Ok(Ok(()))
    }

    fn has_key(&self, position: usize, row: usize, key: &RowKey) -> Result<bool> {
        let Some(segment) = self.segments.get(position) else { return Ok(false) };
        Ok(segment.keys()?.get(row) == Some(key))
    }

    /// Looks for keys in segments without an index.
    fn scan(
        &self,
        positions: &BTreeSet<usize>,
        keys: &[RowKey],
        found: &mut [Option<Found>],
    ) -> Result<()> {
        let mut wanted: HashMap<&RowKey, Option<Found>> =
            keys.iter().map(|key| (key, None)).collect();
        for &position in positions {
            let Some(segment) = self.segments.get(position) else { continue };
            for (row, key) in segment.keys()?.iter().enumerate() {
                if let Some(place) = wanted.get_mut(key) {
                    *place = (*place).max(Some(Found { position, row }));
                }
            }
        }
        for (key, found) in keys.iter().zip(found) {
            *found = (*found).max(wanted.get(key).copied().flatten());
        }
        Ok(())
    }

    /// A row, to be copied.
    pub(super) fn place(&self, found: Found) -> Result<Option<Place<'_>>> {
        let Some(segment) = self.segments.get(found.position) else { return Ok(None) };
        Ok(Some(Place::Sealed { shard: segment.shard()?, row: found.row }))
    }

    /// Reads every byte of the segments in which rows were found, unless that was done before.
    pub(super) fn verify_once(&self, found: &[Option<Found>]) -> Result<()> {
        let positions: BTreeSet<usize> = found.iter().flatten().map(|it| it.position).collect();
        let segments = positions.iter().filter_map(|at| self.segments.get(*at));
        segments.into_iter().try_for_each(|segment| segment.verify_once())
    }
}
