//! A partition whose source rows meet every fate: kept, dropped, rejected, multiplied.
//!
//! What it yields is a function of the source rows alone, so it can be read again from any restart
//! and cut into batches of any size.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use rowmill::batch::{Batch, Event, Outcome, Position, Provenance, Restart, Run};
use rowmill::books::Books;
use rowmill::schema::RowSchema;
use rowmill::shard::{
    CommitPolicy, Finished, Resume, ShardError, ShardInput, ShardLimits, Writer, WriterOptions,
};
use rowmill::storage::Storage;

use super::every_kind::Random;

/// The stages that rows pass.
pub(crate) const STAGES: [&str; 4] = ["read", "filter", "cut", "judge"];

/// Most rows that come of one source row.
const MOST_PARTS: u64 = 4;

/// A partition of two inputs.
#[derive(Debug, Clone)]
pub(crate) struct Partition {
    /// Source rows of both inputs together.
    pub(crate) n_source_rows: u64,
    pub(crate) fates: Fates,
    schema: RowSchema,
    /// Row `MOST_PARTS * source row + part` is what comes of that part.
    rows: RecordBatch,
}

/// What happens to source rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fates {
    All,
    AllKept,
    AllDropped,
    AllRejected,
}

#[derive(Debug, Clone)]
enum Item {
    Row(Run),
    Event(Event),
}

impl Partition {
    /// A partition of rows of every kind.
    pub(crate) fn of_every_kind(n_source_rows: u64, fates: Fates) -> Self {
        let n_rows = (n_source_rows * MOST_PARTS) as usize;
        let rows = super::every_kind_batch(n_rows, 5);
        Self { n_source_rows, fates, schema: super::every_kind_schema(), rows }
    }

    /// A partition of these rows, of which there are four for each source row.
    pub(crate) fn of_rows(rows: RecordBatch, schema: RowSchema, fates: Fates) -> Self {
        let n_source_rows = rows.num_rows() as u64 / MOST_PARTS;
        Self { n_source_rows, fates, schema, rows }
    }

    pub(crate) fn schema(&self) -> &RowSchema {
        &self.schema
    }

    pub(crate) fn options(&self, dataset: &str, limits: ShardLimits) -> WriterOptions {
        let n = self.first_of_second();
        let input = |path: &str, size| ShardInput { path: path.into(), size, range: None };
        WriterOptions {
            dataset: PathBuf::from(dataset),
            cache_key: "0123456789abcdef".into(),
            slot: "00112233445566778899aabbccddeeff".into(),
            schema: self.schema.clone(),
            stages: STAGES.map(Into::into).into(),
            inputs: vec![input("a/first.dat", n), input("second.dat", self.n_source_rows - n)],
            limits,
            on_error: rowmill::batch::OnError::Fail,
            commits: CommitPolicy { bytes: 1, interval: None },
        }
    }

    /// The batches from `restart` on, of up to `n_items` rows and events each.
    pub(crate) fn batches(&self, restart: &Restart, n_items: usize) -> Vec<Batch> {
        let second = if restart.input > 0 { self.first_of_second() } else { 0 };
        let from = restart.source_row + second;
        let items: Vec<Item> = (from..self.n_source_rows).flat_map(|s| self.items(s)).collect();
        items.chunks(n_items).map(|items| self.batch(items)).collect()
    }

    /// The rows of the whole partition, in order.
    pub(crate) fn all_rows(&self) -> RecordBatch {
        let batches = self.batches(&Restart::default(), usize::MAX);
        batches.into_iter().next().map_or_else(|| self.rows.slice(0, 0), |batch| batch.rows)
    }

    /// The books of the whole partition.
    pub(crate) fn books(&self) -> Books {
        let mut books = Books::new(STAGES);
        books.enter(self.n_source_rows);
        for batch in self.batches(&Restart::default(), usize::MAX) {
            for event in &batch.events {
                books.outcome(event.stage, &event.outcome);
            }
        }
        books
    }

    fn first_of_second(&self) -> u64 {
        self.n_source_rows * 2 / 3
    }

    fn items(&self, source: u64) -> Vec<Item> {
        let second = self.first_of_second();
        let (input, source_row) = if source < second { (0, source) } else { (1, source - second) };
        let row = |sub_row| Item::Row(Run { row: 0, input, source_row, sub_row });
        let event = |stage, path: &[u64], outcome| {
            let path = path.to_vec();
            Item::Event(Event { before_row: 0, input, source_row, path, stage, outcome })
        };
        let reject = |stage, path: &[u64]| {
            let message = format!("row {source} will not do: \"é\"");
            event(stage, path, Outcome::Rejected { code: "unfit".into(), message })
        };
        let created = |n| event(2, &[], Outcome::Created(n));
        let dropped = |stage, path: &[u64]| event(stage, path, Outcome::Dropped);
        let fate = match self.fates {
            Fates::All => Random::new(3, source).below(10),
            Fates::AllKept => 9,
            Fates::AllDropped => 0,
            Fates::AllRejected => 1,
        };
        match fate {
            0 => vec![dropped(1, &[])],
            1 => vec![reject(1, &[])],
            2 => vec![created(3), row(0), reject(3, &[1]), row(2), dropped(3, &[3])],
            3 => vec![created(2), dropped(3, &[0]), row(1), reject(3, &[2])],
            4 => vec![created(1), dropped(3, &[0]), reject(3, &[1])],
            5 => vec![created(3), row(0), row(1), row(2), row(3)],
            6 => vec![row(0)],
            _ => vec![row(-1)],
        }
    }

    fn batch(&self, items: &[Item]) -> Batch {
        let (mut provenance, mut events) = (Provenance::new(), Vec::new());
        let mut picked = Vec::new();
        let mut first = None;
        for item in items {
            let (input, source_row) = match item {
                Item::Row(run) => {
                    let second = if run.input > 0 { self.first_of_second() } else { 0 };
                    let part = u64::try_from(run.sub_row).unwrap_or(0);
                    picked.push(((run.source_row + second) * MOST_PARTS + part) as u32);
                    provenance.push_run(*run, 1);
                    (run.input, run.source_row)
                }
                Item::Event(event) => {
                    let before_row = picked.len() as u64;
                    events.push(Event { before_row, ..event.clone() });
                    (event.input, event.source_row)
                }
            };
            first.get_or_insert((input, source_row));
        }
        let picked = UInt32Array::from(picked);
        let rows = arrow_select::take::take_record_batch(&self.rows, &picked).unwrap();
        let (input, source_row) = first.unwrap_or_default();
        let restart = Restart { input, source_row, ..Restart::default() };
        Batch { rows, provenance, events, restart }
    }
}

/// Where a writer that was just opened wants to be read from; `None` when it has nothing to write.
pub(crate) fn restart_of(resume: &Resume) -> Option<Restart> {
    match resume {
        Resume::Start => Some(Restart::default()),
        Resume::At { restart, .. } => Some(restart.clone()),
        Resume::Finished => None,
    }
}

/// Opens the partition and writes all of it that is not written yet.
pub(crate) fn write_all(
    storage: &Arc<dyn Storage>,
    options: &WriterOptions,
    partition: &Partition,
    n_items: usize,
) -> Result<Finished, ShardError> {
    let (mut writer, resume) = Writer::open(Arc::clone(storage), options.clone())?;
    if let Some(restart) = restart_of(&resume) {
        for batch in partition.batches(&restart, n_items) {
            writer.append(&batch)?;
        }
    }
    writer.finish()
}

/// Where the first row of a partition stands.
pub(crate) fn position(input: u32, source_row: u64, sub_row: u64) -> Position {
    Position { input, source_row, sub_row }
}
