//! An open shard: the files that grow, and the manifest that says how much of them counts.
//!
//! Leaves out: the files made at the seal (`seal`), and what is done with a folder that an earlier
//! run left (`recovery`).
//!
//! Invariants:
//! 1. All files of an open shard exist durably before its manifest's first line does, and that line
//!    before anything is committed.
//! 2. A manifest line is appended only after the bytes it promises are durable.
//! 3. `provenance.bin` holds maximal runs: neither batches nor commits break one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::committer::{Committer, Job};
use super::error::{Fault, ShardError};
use super::fields::Fields;
use super::file::{FileSums, ShardFile};
use super::manifest::{Cut, Header, Segment};
use super::rejects::Reject;
use super::{layout, log};
use crate::batch::{Event, Outcome, Position, Run};
use crate::schema::RowSchema;
use crate::storage::{Storage, parent};

/// A shard that rows are appended to.
#[derive(Debug)]
pub(super) struct OpenShard {
    /// Its number in the partition.
    pub(super) number: u64,
    /// Its folder.
    pub(super) dir: PathBuf,
    /// The files of its fields.
    pub(super) fields: Fields,
    provenance: ShardFile,
    /// The first and the last run.
    runs: Option<(Run, Run)>,
    /// Rows whose provenance is noted.
    n_rows: u64,
    rejects: ShardFile,
    segments: u64,
}

/// Bytes of a run in `provenance.bin`.
const RUN_BYTES: usize = 32;

impl OpenShard {
    /// Makes the folder of an empty shard, whose parent is there.
    pub(super) fn create(
        storage: &dyn Storage,
        dir: PathBuf,
        header: &Header,
        schema: &RowSchema,
        committer: &mut Committer,
    ) -> Result<Self, ShardError> {
        storage.create_dir(&dir)?;
        storage.sync_dir(parent(&dir))?;
        let mut fields = Fields::create(storage, &dir, schema)?;
        for file in fields.files_mut().filter(|file| file.len() > 0) {
            file.sync()?;
        }
        let provenance = ShardFile::create(storage, &dir, layout::PROVENANCE)?;
        let rejects = ShardFile::create(storage, &dir, layout::REJECTS)?;
        storage.sync_dir(&dir)?;
        let mut manifest = storage.create(&dir.join(layout::MANIFEST))?;
        manifest.append(&log::line(header))?;
        manifest.sync()?;
        storage.sync_dir(&dir)?;
        committer.attach(manifest);
        let number = header.shard;
        Ok(Self { number, dir, fields, provenance, runs: None, n_rows: 0, rejects, segments: 0 })
    }

    /// Continues a shard from its last segment: cuts the manifest, then every file, removes what a
    /// seal had begun, and reads every file once.
    pub(super) fn recover(
        storage: &dyn Storage,
        dir: PathBuf,
        number: u64,
        schema: &RowSchema,
        (segments, manifest_bytes): (&[Segment], u64),
        committer: &mut Committer,
    ) -> Result<Self, Fault> {
        let mut manifest = storage.open_append(&dir.join(layout::MANIFEST), manifest_bytes)?;
        manifest.sync()?;
        let mut fields = Fields::recover(storage, &dir, schema, segments)?;
        let recover = |name| ShardFile::recover(storage, &dir, name, &[], segments);
        let provenance = recover(layout::PROVENANCE)?;
        let rejects = recover(layout::REJECTS)?;
        let mut known = vec![layout::PROVENANCE.to_owned(), layout::REJECTS.to_owned()];
        known.push(layout::MANIFEST.to_owned());
        known.extend(fields.files_mut().map(|file| file.name().to_owned()));
        for entry in storage.list(&dir)?.unwrap_or_default() {
            if !known.contains(&entry.name) {
                storage.remove_all(&dir.join(&entry.name))?;
            }
        }
        storage.sync_dir(&dir)?;
        committer.attach(manifest);
        let runs = match provenance.len().checked_sub(RUN_BYTES as u64) {
            Some(last) => Some((
                read_run(storage, &dir.join(layout::PROVENANCE), 0)?,
                read_run(storage, &dir.join(layout::PROVENANCE), last)?,
            )),
            None => None,
        };
        let n_rows = fields.n_rows();
        let segments = segments.len() as u64;
        Ok(Self { number, dir, fields, provenance, runs, n_rows, rejects, segments })
    }

    /// Whether there is nothing in it that a sealed shard would hold.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.n_rows() == 0 && self.rejects.len() == 0
    }

    /// Whether nothing was ever committed to it.
    pub(super) fn is_new(&self) -> bool {
        self.segments == 0
    }

    /// The position of the first row.
    pub(super) fn first_row(&self) -> Option<Position> {
        self.runs.map(|(first, _)| first.at(0))
    }

    /// Notes where the next `n_rows` rows came from.
    pub(super) fn push_run(&mut self, run: Run, n_rows: u64) -> Result<(), ShardError> {
        let run = Run { row: self.n_rows, ..run };
        self.n_rows += n_rows;
        if let Some((_, last)) = &self.runs
            && last.continues(run.row - last.row, &run)
        {
            return Ok(());
        }
        self.runs = Some((self.runs.map_or(run, |(first, _)| first), run));
        let mut line = [0; RUN_BYTES];
        let numbers = [
            run.row.cast_signed(),
            i64::from(run.input),
            run.source_row.cast_signed(),
            run.sub_row,
        ];
        let (places, _) = line.as_chunks_mut::<8>();
        for (place, number) in places.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        self.provenance.append(&line)
    }

    /// Writes a reject down.
    pub(super) fn reject(&mut self, event: &Event, stages: &[String]) -> Result<(), ShardError> {
        let Outcome::Rejected { code, message } = &event.outcome else { return Ok(()) };
        let reject = Reject {
            code: code.clone(),
            input: event.input,
            message: message.clone(),
            path: event.path.clone(),
            source_row: event.source_row,
            stage: stages.get(event.stage).cloned().unwrap_or_default(),
        };
        // Text and numbers into memory: this cannot fail.
        let mut line = serde_json::to_vec(&reject).unwrap_or_default();
        line.push(b'\n');
        self.rejects.append(&line)
    }

    /// A commit of everything appended so far.
    pub(super) fn segment(&mut self, cut: Cut, rows_before: u64) -> Result<Job, ShardError> {
        let mut files = BTreeMap::new();
        let mut syncers = Vec::new();
        let others = [&mut self.rejects, &mut self.provenance];
        for file in self.fields.files_mut().chain(others) {
            files.insert(file.name().to_owned(), file.mark()?);
            syncers.extend(file.syncer());
        }
        let rows = self.fields.n_rows();
        let segment = Segment { seq: self.segments, rows, cut, files };
        self.segments += 1;
        Ok(Job { files: syncers, line: log::line(&segment), rows: rows_before + rows })
    }

    /// The sums of all its files, which are not written again.
    pub(super) fn into_sums(self) -> Result<Vec<FileSums>, ShardError> {
        let mut sums = self.fields.into_sums()?;
        sums.push(self.provenance.into_sums()?);
        sums.push(self.rejects.into_sums()?);
        Ok(sums)
    }
}

/// The run at `offset` of a provenance file.
fn read_run(storage: &dyn Storage, path: &Path, offset: u64) -> Result<Run, ShardError> {
    let mut line = [0; RUN_BYTES];
    storage.open(path)?.read_at(&mut line, offset)?;
    let (numbers, _) = line.as_chunks::<8>();
    let number = |i: usize| numbers.get(i).map_or(0, |bytes| i64::from_le_bytes(*bytes));
    Ok(Run {
        row: number(0).cast_unsigned(),
        input: u32::try_from(number(1)).unwrap_or_default(),
        source_row: number(2).cast_unsigned(),
        sub_row: number(3),
    })
}
