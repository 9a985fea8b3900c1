//! Opens a partition that an earlier run has worked on.
//!
//! Leaves out: the decision about a folder (`recovery`).
//!
//! Invariants:
//! 1. What the log and the manifests promise is found before a row is taken.
//! 2. What is refused stays as it was found.
//! 3. What is found to be sealed is durable before anything is said of it.

use std::sync::Arc;

use super::error::{Damage, Fault, ShardError};
use super::layout;
use super::ledger::Ledger;
use super::manifest::{Cut, LogEntry, Manifest};
use super::open::OpenShard;
use super::options::{Progress, Resume};
use super::recovery::{Observed, Recovery, decide};
use super::seal::{self, SealedShard};
use super::writer::Writer;
use crate::batch::Position;
use crate::books::Books;
use crate::storage::EntryKind;

impl Writer {
    /// Deals with what an earlier run left, and finds the place to go on.
    pub(super) fn recover(&mut self) -> Result<Resume, ShardError> {
        let mut continued = None;
        for number in self.open_numbers()? {
            continued = self.recover_folder(number)?;
        }
        let dataset = &self.options.dataset;
        self.rows_before = 0;
        self.sealed.clear();
        for entry in self.log.entries() {
            self.rows_before += entry.rows;
            let Some(sealed) = SealedShard::of_entry(dataset, entry) else { continue };
            if !self.is_settled(entry)? {
                let (id, path) = (sealed.id().to_owned(), sealed.path().to_owned());
                return Err(ShardError::Lost { slot: self.options.slot.clone(), id, path });
            }
            self.sealed.push(sealed);
        }
        self.make_sealed_durable()?;
        let rows = self.rows_before + self.shard.as_ref().map_or(0, |s| s.fields.n_rows());
        self.progress = Progress { rows, ..Progress::default() };
        let cut = continued.or_else(|| self.log.entries().last().map(|e| e.cut.clone()));
        let Some(cut) = cut else { return Ok(Resume::Start) };
        self.resume(cut, rows)
    }

    /// Syncs the places of sealed shards: a run that was killed may have put them there and not
    /// lived to do it.
    fn make_sealed_durable(&self) -> Result<(), ShardError> {
        let dataset = &self.options.dataset;
        let open_shards = layout::open_shards(dataset, &self.options.slot);
        if self.sealed.is_empty() {
            return Ok(());
        }
        self.storage.sync_dir(&layout::shards(dataset))?;
        if self.storage.stat(&open_shards)?.is_some() {
            self.storage.sync_dir(&open_shards)?;
        }
        Ok(())
    }

    /// Continues at `cut`.
    fn resume(&mut self, cut: Cut, rows: u64) -> Result<Resume, ShardError> {
        let (stages, slot) = (&self.options.stages, &self.options.slot);
        let books = Books::from_json(stages, &cut.books).map_err(|problem| {
            let shard = self.log.entries().len() as u64;
            let damage = Damage::Books(problem);
            ShardError::Damaged { slot: slot.clone(), shard, damage }
        })?;
        let Some(next) = cut.next.position() else {
            self.ledger = Ledger::ended(books, stages);
            if self.shard.is_some() {
                self.seal_committed(cut)?;
                self.progress = Progress { rows, ..Progress::default() };
            }
            return Ok(Resume::Finished);
        };
        self.ledger = Ledger::resume(books, next, cut.seen, stages);
        self.restart = cut.restart.clone();
        self.resumed_at = Some(next);
        Ok(Resume::At { restart: cut.restart, next, rows })
    }

    /// Numbers of the partition's open folders, ascending.
    fn open_numbers(&self) -> Result<Vec<u64>, ShardError> {
        let dir = layout::open_shards(&self.options.dataset, &self.options.slot);
        let entries = self.storage.list(&dir)?.unwrap_or_default();
        let dirs = entries.iter().filter(|entry| entry.kind == EntryKind::Dir);
        let mut numbers: Vec<u64> = dirs.filter_map(|entry| entry.name.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Deals with one open folder. Gives the cut of its last segment where the shard is continued
    /// and has one.
    fn recover_folder(&mut self, number: u64) -> Result<Option<Cut>, ShardError> {
        let storage = Arc::clone(&self.storage);
        let dir = self.open_dir(number);
        let bytes = storage.read(&dir.join(layout::MANIFEST))?.unwrap_or_default();
        let manifest = Manifest::read(&bytes);
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let entry = self.log.entries().get(index).cloned();
        let seen = Observed {
            number,
            logged: self.log.entries().len() as u64,
            has_ended: self.log.has_ended(),
            is_settled: entry.as_ref().map_or(Ok(false), |entry| self.is_settled(entry))?,
            has_sentinel: storage.stat(&dir.join(layout::COMPLETE))?.is_some(),
            manifest: &manifest,
            wanted: &self.header(number, Position::default()),
        };
        let slot = self.options.slot.clone();
        let fail = |fault: Fault| fault.at(&slot, number);
        match (decide(&seen), manifest, entry) {
            (Recovery::Discard, ..) => self.discard(number)?,
            (Recovery::Refuse(damage), ..) => return Err(fail(damage.into())),
            (Recovery::Continue, Manifest::Valid { segments, valid_bytes, .. }, _) => {
                let (schema, commits) = (&self.options.schema, &mut self.committer);
                let committed = (segments.as_slice(), valid_bytes);
                let shard = OpenShard::recover(&*storage, dir, number, schema, committed, commits);
                self.shard = Some(shard.map_err(fail)?);
                self.restart_clock();
                return Ok(segments.into_iter().next_back().map(|segment| segment.cut));
            }
            (Recovery::FinishSeal { .. }, _, Some(entry)) => {
                seal::check_sealed(&*storage, &dir, &entry).map_err(fail)?;
                self.publish(&entry, false)?;
            }
            (Recovery::FinishSeal { .. }, Manifest::Valid { segments, .. }, None) => {
                let Some(last) = segments.last() else { return Ok(None) };
                let entry = seal::entry_of_sealed(&*storage, &dir, number, last).map_err(fail)?;
                self.publish(&entry, true)?;
            }
            // `decide` continues and finishes only what has a manifest or a line in the log.
            (Recovery::Continue | Recovery::FinishSeal { .. }, ..) => {}
        }
        Ok(None)
    }

    /// Whether a line of the log names no shard, or one that is in its place.
    fn is_settled(&self, entry: &LogEntry) -> Result<bool, ShardError> {
        match &entry.id {
            Some(id) => {
                let path = layout::sealed(&self.options.dataset, id);
                seal::is_in_place(&*self.storage, &path)
            }
            None => Ok(true),
        }
    }
}
