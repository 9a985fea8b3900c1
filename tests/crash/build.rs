//! A partition, the undisturbed run of it, and what every other run is held to.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rowmill::batch::{Batch, Position, Restart};
use rowmill::shard::{
    Finished, Progress, Resume, SealedShard, ShardError, ShardLimits, Writer, WriterOptions,
    empty_trash, layout, verify_shard,
};
use rowmill::storage::{Memory, Overlap, Storage};
use serde_json::json;

use crate::model::partition::{Partition, position};

/// What two things disagree about.
pub(crate) type Checked<T = ()> = Result<T, String>;

/// The names and bytes of files.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Where the dataset lies in all tests.
pub(crate) const DATASET: &str = "/out/name/0123456789abcdef";

/// How a run cuts its batches and commits, which must not show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cuts {
    /// Most rows and events of a batch.
    pub(crate) n_items: usize,
    /// This many batches have one restart, as if they were one reading.
    pub(crate) n_batches: usize,
    /// Bytes after which a commit is due.
    pub(crate) commit_bytes: u64,
    /// A commit is asked for after every so many batches.
    pub(crate) commit_every: Option<usize>,
}

/// Different cuts: the first is the undisturbed run's, a run that goes on takes another.
pub(crate) const CUTS: [Cuts; 4] = [
    Cuts { n_items: 3, n_batches: 1, commit_bytes: 1, commit_every: None },
    Cuts { n_items: 2, n_batches: 2, commit_bytes: 40, commit_every: Some(3) },
    Cuts { n_items: 5, n_batches: 1, commit_bytes: u64::MAX, commit_every: Some(1) },
    Cuts { n_items: 100, n_batches: 1, commit_bytes: u64::MAX, commit_every: None },
];

impl Cuts {
    /// Most rows that a run which goes on may read again.
    fn most_again(&self) -> u64 {
        // A reading, and the rows of its first source row that were in the one before.
        (self.n_items * self.n_batches + 3) as u64
    }
}

/// What a run has said by the time it ends, however it ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    /// Rows that are durable.
    pub(crate) rows: u64,
    /// Shards that are sealed.
    pub(crate) sealed: Vec<SealedShard>,
    /// Most rows that a run after this one may read again.
    most_again: u64,
}

impl Said {
    /// Nothing that counts: what was promised has been damaged.
    pub(crate) fn nothing() -> Self {
        Self { most_again: u64::MAX, ..Self::default() }
    }
}

/// A partition to build, and what has to come of it.
pub(crate) struct Case {
    pub(crate) partition: Partition,
    pub(crate) options: WriterOptions,
    finished: Finished,
    /// The shards by their ids.
    shards: BTreeMap<String, Files>,
    /// Position of every row.
    positions: Vec<Position>,
}

impl Case {
    /// Builds the partition undisturbed, and looks whether it is fit to be tested with.
    pub(crate) fn new(partition: Partition, limits: ShardLimits) -> Self {
        let options = partition.options(DATASET, limits);
        let whole = &partition.batches(&Restart::default(), usize::MAX)[0];
        let n_rows = whole.provenance.n_rows();
        let positions = (0..n_rows).map(|row| whole.provenance.position(row).unwrap()).collect();
        let finished = Finished { shards: Vec::new(), books: partition.books(), rows: n_rows };
        let mut this = Self { partition, options, finished, shards: BTreeMap::new(), positions };
        let memory = Memory::new(Overlap::Now);
        let finished = this.run(&memory, CUTS[0], &mut Said::default()).unwrap().unwrap();
        assert_eq!((finished.rows, &finished.books), (n_rows, &this.finished.books));
        assert!(finished.shards.len() >= 2, "{finished:?}");
        assert!(finished.books.rejected() > 0, "{finished:?}");
        finished.books.balance().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(memory.clone());
        for shard in &finished.shards {
            verify_shard(&storage, shard.path()).unwrap();
        }
        this.shards = folders(&memory, &layout::shards(Path::new(DATASET)));
        this.finished = finished;
        this
    }

    /// Builds what is not built yet, with these cuts, and checks what the writer says. `Err` says
    /// what is wrong; an error of the writer is an answer like another.
    pub(crate) fn run(
        &self,
        storage: &(impl Storage + Clone + 'static),
        cuts: Cuts,
        said: &mut Said,
    ) -> Checked<Result<Finished, ShardError>> {
        match self.write(&(Arc::new(storage.clone()) as Arc<dyn Storage>), cuts, said) {
            Ok(finished) => Ok(Ok(finished)),
            Err(Stop::Error(error)) => Ok(Err(error)),
            Err(Stop::Wrong(problem)) => Err(problem),
        }
    }

    /// Only recovers, as [`Case::run`] begins. Gives what it says of where to go on.
    pub(crate) fn recover(
        &self,
        storage: &(impl Storage + Clone + 'static),
        said: &mut Said,
    ) -> Checked<String> {
        let storage = &(Arc::new(storage.clone()) as Arc<dyn Storage>);
        let mut recover = || -> Result<_, Stop> {
            empty_trash(&**storage, Path::new(DATASET)).map_err(ShardError::from)?;
            let (writer, resume) = Writer::open(Arc::clone(storage), self.options.clone())?;
            self.check_resume(&resume, &writer, said)?;
            said.sealed = writer.sealed().to_vec();
            Ok(format!("{resume:?}"))
        };
        recover().map_err(|stop| match stop {
            Stop::Error(error) => format!("it cannot go on: {}", chain(&error)),
            Stop::Wrong(problem) => problem,
        })
    }

    fn write(
        &self,
        storage: &Arc<dyn Storage>,
        cuts: Cuts,
        said: &mut Said,
    ) -> Result<Finished, Stop> {
        empty_trash(&**storage, Path::new(DATASET)).map_err(ShardError::from)?;
        let mut options = self.options.clone();
        options.commits.bytes = cuts.commit_bytes;
        let (mut writer, resume) = Writer::open(Arc::clone(storage), options)?;
        let (restart, mut given) = self.check_resume(&resume, &writer, said)?;
        said.most_again = said.most_again.max(cuts.most_again());
        said.rows = given;
        said.sealed = writer.sealed().to_vec();
        let next = given;
        let batches = restart.map_or_else(Vec::new, |restart| self.batches(&restart, cuts));
        for (n, batch) in batches.into_iter().enumerate() {
            let again = self.n_rows_before(next, &batch);
            given += batch.provenance.n_rows() - again;
            let progress = writer.append(&batch)?;
            self.note(&progress, given, said)?;
            if cuts.commit_every.is_some_and(|every| n % every == every - 1) {
                let progress = writer.commit()?;
                self.note(&progress, given, said)?;
                require(said.rows == given, || {
                    format!("{given} rows were given and committed, but {} are", said.rows)
                })?;
            }
        }
        Ok(writer.finish()?)
    }

    /// The batches from `restart` on.
    pub(crate) fn batches(&self, restart: &Restart, cuts: Cuts) -> Vec<Batch> {
        let mut batches = self.partition.batches(restart, cuts.n_items);
        let mut first = Restart::default();
        for (n, batch) in batches.iter_mut().enumerate() {
            if n % cuts.n_batches == 0 {
                let cursor = cursor(&batch.restart);
                first = Restart { cursor, ..batch.restart.clone() };
            }
            batch.restart.clone_from(&first);
        }
        batches
    }

    /// How many rows of the batch are among the partition's first `next`.
    fn n_rows_before(&self, next: u64, batch: &Batch) -> u64 {
        let Some(first) = batch.provenance.position(0) else { return 0 };
        let first = self.positions.partition_point(|at| *at < first) as u64;
        next.saturating_sub(first).min(batch.provenance.n_rows())
    }

    /// Checks what a writer found against what was said before. Gives where to read from, and the
    /// rows that are there.
    fn check_resume(
        &self,
        resume: &Resume,
        writer: &Writer,
        said: &Said,
    ) -> Checked<(Option<Restart>, u64)> {
        let sealed = writer.sealed();
        require(sealed.starts_with(&said.sealed), || {
            format!("shards {:?} were sealed, but now these are: {sealed:?}", said.sealed)
        })?;
        let (restart, rows) = match resume {
            Resume::Start => (Some(Restart::default()), 0),
            Resume::Finished => (None, self.finished.rows),
            Resume::At { restart, next, rows } => {
                require(restart.cursor == cursor(restart), || format!("a foreign {restart:?}"))?;
                let index = *rows as usize;
                let fits = index <= self.positions.len()
                    && self.positions[..index].iter().all(|at| at < next)
                    && self.positions[index..].iter().all(|at| at >= next);
                require(fits, || format!("{rows} rows are there, but next is {next:?}"))?;
                let from = position(restart.input, restart.source_row, 0);
                let again = self.positions[..index].iter().filter(|at| **at >= from).count() as u64;
                require(again <= said.most_again, || {
                    format!("{again} rows are read again, from {restart:?} to {next:?}")
                })?;
                (Some(restart.clone()), *rows)
            }
        };
        require(rows >= said.rows, || {
            format!("{} rows were durable, and now there are {rows}: {resume:?}", said.rows)
        })?;
        Ok((restart, rows))
    }

    fn note(&self, progress: &Progress, given: u64, said: &mut Said) -> Checked {
        require(progress.rows >= said.rows && progress.rows <= given, || {
            format!("of {given} rows {} are durable, after {}", progress.rows, said.rows)
        })?;
        said.rows = progress.rows;
        said.sealed.extend(progress.sealed.iter().cloned());
        require(
            self.finished.shards.is_empty() || self.finished.shards.starts_with(&said.sealed),
            || format!("sealed {:?}", said.sealed),
        )
    }

    /// How many shards of the undisturbed run are in their places.
    pub(crate) fn n_in_place(&self, disk: &Memory) -> usize {
        let there = folders(disk, &layout::shards(Path::new(DATASET)));
        there.iter().filter(|(id, files)| self.shards.get(*id) == Some(files)).count()
    }

    /// Checks that what has a sentinel, wherever it stands, is what the undisturbed run has sealed.
    pub(crate) fn check_sentinels(&self, disk: &Memory) -> Checked {
        let dataset = Path::new(DATASET);
        for (id, files) in folders(disk, &layout::shards(dataset)) {
            if files.contains_key(Path::new(layout::COMPLETE)) {
                require(self.shards.get(&id) == Some(&files), || format!("shard {id} lies"))?;
            }
        }
        let open = layout::open_shards(dataset, &self.options.slot);
        for (number, mut files) in folders(disk, &open) {
            if !files.contains_key(Path::new(layout::COMPLETE)) {
                continue;
            }
            files.remove(Path::new(layout::MANIFEST));
            let shard = number.parse().ok().and_then(|n: usize| self.finished.shards.get(n));
            let want = shard.and_then(|shard| self.shards.get(shard.id()));
            require(want == Some(&files), || format!("open shard {number} lies"))?;
        }
        Ok(())
    }

    /// Checks that the partition is built, that nothing else is there, and that all of it is
    /// durable.
    pub(crate) fn check_finished(&self, finished: &Finished, disk: &Memory) -> Checked {
        require(*finished == self.finished, || {
            format!("it ended with {finished:?}, not {:?}", self.finished)
        })?;
        let dataset = Path::new(DATASET);
        for (name, disk) in [("now", disk), ("after a cut", &disk.after_power_cut(&|_| false))] {
            let shards = folders(disk, &layout::shards(dataset));
            require(shards == self.shards, || {
                let names = shards.keys().collect::<Vec<_>>();
                format!("{name}, the shards are not those of an undisturbed run: {names:?}")
            })?;
        }
        for dir in [layout::trash(dataset), layout::open_shards(dataset, &self.options.slot)] {
            let left = disk.list(&dir).unwrap().unwrap_or_default();
            require(left.is_empty(), || format!("`{}` still holds {left:?}", dir.display()))?;
        }
        Ok(())
    }
}

/// Why a run has ended early.
enum Stop {
    Error(ShardError),
    Wrong(String),
}

impl From<ShardError> for Stop {
    fn from(error: ShardError) -> Self {
        Self::Error(error)
    }
}

impl From<String> for Stop {
    fn from(problem: String) -> Self {
        Self::Wrong(problem)
    }
}

pub(crate) fn require(holds: bool, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(problem()) }
}

/// An error with its causes.
pub(crate) fn chain(error: &ShardError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// What a source would note to find this place again.
fn cursor(restart: &Restart) -> serde_json::Value {
    json!({ "byte": 10 * restart.source_row, "member": format!("{}", restart.input) })
}

/// The folders in a folder, empty ones too, with their files.
fn folders(disk: &Memory, dir: &Path) -> BTreeMap<String, Files> {
    let names = disk.list(dir).unwrap().unwrap_or_default().into_iter().map(|entry| entry.name);
    names.map(|name| (name.clone(), disk.snapshot(dir.join(name)).into_iter().collect())).collect()
}
