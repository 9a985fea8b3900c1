//! Writes the rows of one partition: its shards, in order.
//!
//! Leaves out: how a shard's files look (`fields`), are committed (`open`) and sealed (`seal`), and
//! what is done with what an earlier run left (`reopen`).
//!
//! Invariants:
//! 1. Every row goes to exactly one shard; a shard ends at the first row at which a limit is
//!    reached, and is sealed when its next row arrives or the partition ends. Rejects after a row
//!    belong to that row's shard.
//! 2. Where a batch or a commit ends never shows in a sealed file.
//! 3. After an error nothing more is written: the next writer finds out what is durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::committer::Committer;
use super::error::ShardError;
use super::ledger::Ledger;
use super::manifest::{Cut, Header, LogEntry, Next};
use super::open::OpenShard;
use super::options::{Finished, Progress, Resume, WriterOptions};
use super::partition_log::PartitionLog;
use super::rows;
use super::seal::{self, SealedShard};
use super::sift::{Sieve, Sifted};
use super::walk::Walk;
use super::{layout, trash};
use crate::batch::{Batch, Event, Outcome, Position, Restart};
use crate::inputs::RowPlace;
use crate::schema::{LAYOUT, RowSchema};
use crate::storage::{Storage, parent};

/// Writes one partition.
///
/// A pipeline is not needed: a schema, batches of rows and a name for where they come from are enough.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use arrow_array::{Array, Float32Array, RecordBatch, StringArray};
/// use rowmill::batch::{Batch, OnError};
/// use rowmill::schema::{FieldSpec, RowSchema};
/// use rowmill::shard::{
///     CommitPolicy, Resume, Shard, ShardInput, ShardLimits, Writer, WriterOptions,
/// };
/// use rowmill::storage::Local;
///
/// # let folder = tempfile::tempdir()?;
/// # let dataset = folder.path().join("weather/0123456789abcdef");
/// // A thousand rows, of which rows `from..from + 100` are read at once.
/// let read = |from: u64| {
///     let rows = from..from + 100;
///     let temperature: Float32Array = rows.clone().map(|n| n as f32 / 10.0).collect();
///     let station: StringArray = rows.map(|n| Some(format!("station {}", n % 3))).collect();
///     RecordBatch::try_from_iter([
///         ("temperature", Arc::new(temperature) as Arc<dyn Array>),
///         ("station", Arc::new(station)),
///     ])
/// };
/// let interned = FieldSpec { intern: true, ..FieldSpec::default() };
/// let specs = BTreeMap::from([("station".to_owned(), interned)]);
/// let schema = RowSchema::infer(&read(0)?.schema(), &specs, None)?;
///
/// let options = WriterOptions {
///     dataset,
///     cache_key: "0123456789abcdef".to_owned(),
///     slot: "00112233445566778899aabbccddeeff".to_owned(),
///     schema,
///     stages: vec!["read".to_owned()],
///     inputs: vec![ShardInput { path: "weather.dat".to_owned(), size: 8_000, range: None }],
///     limits: ShardLimits { rows: 400, ..ShardLimits::default() },
///     on_error: OnError::Fail,
///     commits: CommitPolicy::default(),
/// };
///
/// // The first run is killed on the way: nothing but what was committed counts.
/// let (mut writer, resume) = Writer::open(Arc::new(Local), options.clone())?;
/// assert_eq!(resume, Resume::Start);
/// for from in (0..500).step_by(100) {
///     writer.append(&Batch::of_rows(read(from)?, from))?;
/// }
/// writer.commit()?;
/// drop(writer);
///
/// // The second one is told where to read on.
/// let (mut writer, resume) = Writer::open(Arc::new(Local), options)?;
/// let Resume::At { restart, rows, .. } = resume else { panic!("{resume:?}") };
/// assert_eq!((restart.source_row, rows), (400, 500));
/// for from in (restart.source_row..1_000).step_by(100) {
///     writer.append(&Batch::of_rows(read(from)?, from))?;
/// }
/// let finished = writer.finish()?;
/// assert_eq!(finished.rows, 1_000);
/// let shards: Vec<u64> = finished.shards.iter().map(|shard| shard.rows()).collect();
/// assert_eq!(shards, [400, 400, 200]);
///
/// let shard = Shard::open_local(finished.shards[1].path())?;
/// assert_eq!(shard.record_batch(0..100)?.num_rows(), 100);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: WriterOptions,
    schema: Arc<RowSchema>,
    pub(super) log: PartitionLog,
    pub(super) sealed: Vec<SealedShard>,
    pub(super) shard: Option<OpenShard>,
    pub(super) committer: Committer,
    pub(super) ledger: Ledger,
    /// Where reading begins again to come to what was appended last.
    pub(super) restart: Restart,
    /// Rows before this position are already written.
    pub(super) resumed_at: Option<Position>,
    /// Rows of sealed shards.
    pub(super) rows_before: u64,
    /// Something was appended since the last commit.
    is_dirty: bool,
    uncommitted_bytes: u64,
    last_commit: Option<Instant>,
    pub(super) progress: Progress,
    is_stopped: bool,
}

impl Writer {
    /// Opens a partition for writing, and finds out what an earlier run left of it.
    ///
    /// # Errors
    /// The system refused, or what was left is not what was promised ([`ShardError::Damaged`],
    /// [`ShardError::Lost`]).
    pub fn open(
        storage: Arc<dyn Storage>,
        options: WriterOptions,
    ) -> Result<(Self, Resume), ShardError> {
        options.check()?;
        let dataset = &options.dataset;
        let open_shards = layout::open_shards(dataset, &options.slot);
        make_dir(&*storage, dataset)?;
        // Each call also makes durable what a crash may have left beside its folder.
        for dir in [layout::shards(dataset), layout::trash(dataset), layout::logs(dataset)] {
            make_dir(&*storage, &dir)?;
        }
        let log = PartitionLog::open(&*storage, &layout::log(dataset, &options.slot))?;
        if !log.has_ended() {
            make_dir(&*storage, &open_shards)?;
        }
        let mut this = Self {
            committer: Committer::new(storage.overlap()),
            ledger: Ledger::start(&options.stages),
            schema: Arc::new(options.schema.clone()),
            storage,
            options,
            log,
            sealed: Vec::new(),
            shard: None,
            restart: Restart::default(),
            resumed_at: None,
            rows_before: 0,
            is_dirty: false,
            uncommitted_bytes: 0,
            last_commit: None,
            progress: Progress::default(),
            is_stopped: false,
        };
        let resume = this.recover()?;
        Ok((this, resume))
    }

    /// Shards of the partition that are sealed, in order, those of earlier runs included.
    #[must_use]
    pub fn sealed(&self) -> &[SealedShard] {
        &self.sealed
    }

    /// Appends the rows of a batch. Rows and events that stand before the position at which the
    /// partition was resumed are left out, and not counted.
    ///
    /// # Durability
    /// The rows survive once [`Progress::rows`] counts them.
    ///
    /// # Errors
    /// A batch that does not fit the schema or contradicts the ones before it; a row that is too
    /// large; a failure of the disk, also of a commit that was under way.
    pub fn append(&mut self, batch: &Batch) -> Result<Progress, ShardError> {
        self.guarded(|this| this.append_batch(batch))
    }

    /// Commits.
    ///
    /// # Durability
    /// On `Ok` everything appended so far survives a power cut.
    ///
    /// # Errors
    /// A failure of the disk.
    pub fn commit(&mut self) -> Result<Progress, ShardError> {
        self.guarded(|this| {
            if this.is_dirty {
                this.start_commit(Next::At(this.ledger.next()), this.restart.clone())?;
            }
            this.wait()
        })
    }

    /// Ends the partition: seals its last shard.
    ///
    /// # Durability
    /// On `Ok` all shards are sealed and in their places.
    ///
    /// # Errors
    /// A failure of the disk; a resumed partition that ended before it came to where it was left.
    pub fn finish(mut self) -> Result<Finished, ShardError> {
        self.check()?;
        if !self.log.has_ended() {
            self.end()?;
        }
        let books = self.ledger.books().clone();
        Ok(Finished { shards: self.sealed, books, rows: self.rows_before })
    }

    fn check(&self) -> Result<(), ShardError> {
        if self.is_stopped {
            return Err(ShardError::Stopped { slot: self.options.slot.clone() });
        }
        Ok(())
    }

    /// Does `act` unless something failed before, and gives what came of it.
    fn guarded(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<(), ShardError>,
    ) -> Result<Progress, ShardError> {
        self.check()?;
        let outcome = self.committer.poll().map_err(ShardError::from).and_then(|done| {
            self.note(done);
            act(self)
        });
        self.is_stopped = outcome.is_err();
        outcome?;
        let rows = self.progress.rows;
        Ok(std::mem::replace(&mut self.progress, Progress { rows, ..Progress::default() }))
    }

    fn append_batch(&mut self, batch: &Batch) -> Result<(), ShardError> {
        if self.log.has_ended() {
            return Ok(());
        }
        let WriterOptions { limits, stages, on_error, .. } = &self.options;
        let schema = Arc::clone(&self.schema);
        let (row_bytes, on_error) = (limits.row_bytes, *on_error);
        let stage = stages.len().saturating_sub(1);
        let sieve = Sieve { schema: &schema, row_bytes, on_error, stage };
        sieve.each(batch, &mut |sifted| self.append_sifted(&sifted))
    }

    fn append_sifted(&mut self, sifted: &Sifted<'_>) -> Result<(), ShardError> {
        let Sifted { batch, columns } = sifted;
        let mut walk = Walk::new(batch, self.options.inputs.len())?;
        if let Some(next) = self.resumed_at
            && let Some((input, source_row)) = walk.skip_to(next)
        {
            self.ledger.arrive(input, source_row)?;
        }
        let Some((input, source_row)) = walk.first() else { return Ok(()) };
        if self.is_due() {
            self.ledger.arrive(input, source_row)?;
            self.start_commit(Next::At(self.ledger.next()), batch.restart.clone())?;
        }
        self.restart.clone_from(&batch.restart);
        let n_rows = walk.n_rows();
        let (schema, limit) = (&self.options.schema, self.options.limits.row_bytes);
        if let Some((row, bytes)) = rows::too_large(schema, columns, walk.row(), n_rows, limit) {
            return Err(self.row_too_large(batch.provenance.position(row as u64), bytes));
        }
        loop {
            while let Some(event) = walk.next_event() {
                self.event(event)?;
            }
            let Some(position) = walk.position() else { break };
            if self.shard.as_ref().is_some_and(|s| s.fields.is_full(&self.options.limits)) {
                self.ledger.arrive(position.input, position.source_row)?;
                self.seal(Next::At(position))?;
            }
            let limits = self.options.limits;
            let fields = &mut self.shard_at(position)?.fields;
            let before = fields.bytes();
            let n = fields.append(columns, walk.row(), n_rows, &limits)?;
            self.uncommitted_bytes += fields.bytes() - before;
            self.is_dirty = true;
            let end = walk.row() + n;
            while let Some((run, n_rows)) = walk.next_run(end) {
                self.ledger.rows(run, n_rows)?;
                self.shard_at(position)?.push_run(run, n_rows)?;
                while let Some(event) = walk.next_event() {
                    self.event(event)?;
                }
            }
        }
        let at = self.ledger.next();
        let is_past = |next: Position| (next.input, next.source_row) < (at.input, at.source_row);
        if self.resumed_at.is_some_and(is_past) {
            self.resumed_at = None;
        }
        let interval = self.options.commits.interval;
        if self.is_dirty && interval.is_some() && self.interval_is_over() {
            self.start_commit(Next::At(self.ledger.next()), self.restart.clone())?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), ShardError> {
        if !self.ledger.event(event)? {
            return Ok(());
        }
        self.is_dirty = true;
        if matches!(event.outcome, Outcome::Rejected { .. }) {
            self.progress.rejected += 1;
            let position =
                Position { input: event.input, source_row: event.source_row, sub_row: 0 };
            let stages = std::mem::take(&mut self.options.stages);
            let outcome = self.shard_at(position).and_then(|shard| shard.reject(event, &stages));
            self.options.stages = stages;
            outcome?;
        }
        Ok(())
    }

    /// The open shard; a new one begins at `position`, the first at the partition's start.
    fn shard_at(&mut self, position: Position) -> Result<&mut OpenShard, ShardError> {
        let shard = if let Some(shard) = self.shard.take() {
            shard
        } else {
            let number = self.log.entries().len() as u64;
            let first = if number == 0 { Position::default() } else { position };
            let (dir, header) = (self.open_dir(number), self.header(number, first));
            self.restart_clock();
            let (storage, schema) = (&*self.storage, &self.options.schema);
            OpenShard::create(storage, dir, &header, schema, &mut self.committer)?
        };
        Ok(self.shard.insert(shard))
    }

    pub(super) fn header(&self, shard: u64, first: Position) -> Header {
        Header {
            layout: LAYOUT,
            cache_key: self.options.cache_key.clone(),
            slot: self.options.slot.clone(),
            shard,
            first,
            schema: self.options.schema.to_json(),
        }
    }

    pub(super) fn open_dir(&self, number: u64) -> PathBuf {
        layout::open_shard(&self.options.dataset, &self.options.slot, number)
    }

    fn row_too_large(&self, at: Option<Position>, bytes: u64) -> ShardError {
        let Position { input, source_row, sub_row } = at.unwrap_or_default();
        let named = usize::try_from(input).ok().and_then(|input| self.options.inputs.get(input));
        let place = match named {
            Some(input) => input.row(source_row),
            None => RowPlace::new(&format!("input {input}"), None, source_row),
        };
        let limit = self.options.limits.row_bytes;
        ShardError::RowTooLarge { place, sub_row, bytes, limit }
    }

    fn is_due(&self) -> bool {
        let by_bytes = self.uncommitted_bytes >= self.options.commits.bytes;
        self.is_dirty && (by_bytes || self.interval_is_over())
    }

    fn interval_is_over(&self) -> bool {
        let interval = self.options.commits.interval;
        interval.zip(self.last_commit).is_some_and(|(interval, last)| last.elapsed() >= interval)
    }

    pub(super) fn restart_clock(&mut self) {
        self.last_commit = self.options.commits.interval.map(|_| Instant::now());
    }

    fn cut(&self, next: Next, restart: Restart) -> Cut {
        Cut { next, restart, seen: self.ledger.seen(), books: self.ledger.books().to_json() }
    }

    /// Starts a commit of everything appended so far.
    fn start_commit(&mut self, next: Next, restart: Restart) -> Result<(), ShardError> {
        let cut = self.cut(next, restart);
        let rows_before = self.rows_before;
        let job = self.shard_at(self.ledger.next())?.segment(cut, rows_before)?;
        let done = self.committer.start(job)?;
        self.note(done);
        self.is_dirty = false;
        self.uncommitted_bytes = 0;
        self.restart_clock();
        Ok(())
    }

    /// Waits for the commit under way.
    fn wait(&mut self) -> Result<(), ShardError> {
        let done = self.committer.wait()?;
        self.note(done);
        Ok(())
    }

    fn note(&mut self, committed: Option<u64>) {
        if let Some(rows) = committed {
            self.progress.commits += 1;
            self.progress.rows = rows;
        }
    }

    /// Seals the open shard, where everything before `next` has been appended.
    fn seal(&mut self, next: Next) -> Result<(), ShardError> {
        let is_new = self.shard.as_ref().is_some_and(OpenShard::is_new);
        if self.is_dirty || is_new || next == Next::END {
            self.start_commit(next, self.restart.clone())?;
        }
        self.wait()?;
        self.seal_committed(self.cut(next, self.restart.clone()))
    }

    /// Seals the open shard, whose last segment says `cut` and is durable.
    pub(super) fn seal_committed(&mut self, cut: Cut) -> Result<(), ShardError> {
        let Some(shard) = self.shard.take() else { return Ok(()) };
        self.committer.detach();
        let entry = seal::seal(&*self.storage, &self.options, shard, cut)?;
        self.publish(&entry, true)?;
        Ok(())
    }

    /// Takes a shard with a sentinel to its place.
    pub(super) fn publish(
        &mut self,
        entry: &LogEntry,
        is_unlogged: bool,
    ) -> Result<(), ShardError> {
        let (storage, options) = (&*self.storage, &self.options);
        let sealed = seal::finish(storage, options, &mut self.log, entry, is_unlogged)?;
        if is_unlogged {
            self.rows_before += entry.rows;
            self.progress.rows = self.rows_before;
            self.progress.sealed.extend(sealed.clone());
            self.sealed.extend(sealed);
        }
        Ok(())
    }

    /// The partition has ended.
    fn end(&mut self) -> Result<(), ShardError> {
        self.ledger.end()?;
        match &self.shard {
            Some(shard) if !shard.is_empty() => self.seal(Next::END)?,
            _ => self.end_without_shard()?,
        }
        let open = layout::open_shards(&self.options.dataset, &self.options.slot);
        if self.storage.list(&open)?.is_some_and(|left| left.is_empty()) {
            self.storage.remove_dir(&open)?;
        }
        Ok(())
    }

    /// Notes that the partition ended and no shard is open that would hold anything.
    fn end_without_shard(&mut self) -> Result<(), ShardError> {
        self.wait()?;
        self.committer.detach();
        let seq = self.log.entries().len() as u64;
        let cut = self.cut(Next::END, self.restart.clone());
        let entry = LogEntry { seq, id: None, rows: 0, bytes: 0, cut };
        self.log.append(&*self.storage, entry)?;
        match self.shard.take() {
            Some(shard) => self.discard(shard.number),
            None => Ok(()),
        }
    }

    pub(super) fn discard(&self, number: u64) -> Result<(), ShardError> {
        let (storage, options) = (&*self.storage, &self.options);
        let label = format!("{}-{number}", options.slot);
        Ok(trash::discard(storage, &options.dataset, &self.open_dir(number), &label)?)
    }
}

/// Makes a folder and those above it durable, also where a crash left one that is not.
fn make_dir(storage: &dyn Storage, dir: &Path) -> Result<(), ShardError> {
    storage.create_dir_all(dir)?;
    storage.sync_dir(parent(dir))?;
    Ok(())
}
