//! What the graph's tests share: batches, transforms that can be held up, a watchdog.

mod edges;
mod orders;
mod scopes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::SchemaRef;
use tokio::sync::oneshot;

use super::*;
use crate::batch::{Batch, Provenance, Restart};
use crate::transforms::{BadRow, Emit, OnError, SettingsError, Stage, Transform, TransformError};

/// What the stages of the tests fail with.
#[derive(Debug, PartialEq, thiserror::Error)]
enum Broken {
    #[error("{0}")]
    Own(&'static str),
    #[error("{0}")]
    Link(String),
}

impl From<LinkError> for Broken {
    fn from(error: LinkError) -> Self {
        Self::Link(format!("{error}: {}", error.source))
    }
}

/// Nothing here takes long: what is not done after a minute hangs.
async fn within_a_minute<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), work).await.expect("the graph hangs")
}

/// The source rows `first..first + n_rows`, each holding its own number.
fn batch(first: u64, n_rows: u64) -> Batch {
    let column: ArrayRef = Arc::new((first..first + n_rows).collect::<UInt64Array>());
    Batch {
        rows: RecordBatch::try_from_iter([("row", column)]).unwrap(),
        provenance: Provenance::of_input(0, first, n_rows),
        events: Vec::new(),
        restart: Restart::default(),
    }
}

fn first_row(batch: &Batch) -> u64 {
    batch.provenance.position(0).unwrap().source_row
}

/// The numbers that the rows hold.
fn rows(batch: &Batch) -> Vec<u64> {
    let column = batch.rows.column(0).as_any().downcast_ref::<UInt64Array>().unwrap();
    column.values().to_vec()
}

/// Receives until the end; gives the rows and what the end carried.
async fn drain<D: Send>(inlet: &Inlet<D>) -> Result<(Vec<u64>, D), Echo> {
    let mut all = Vec::new();
    loop {
        match inlet.recv().await? {
            Item::Batch(held) => all.extend(rows(&held)),
            Item::EndOfPartition(end) => return Ok((all, end)),
        }
    }
}

fn chain_of(transform: impl Transform + 'static) -> Chain {
    Chain::new([link("test", 1, transform)])
}

fn link(name: &str, stage: usize, transform: impl Transform + 'static) -> Link {
    let stage = Stage { index: stage, on_error: OnError::Fail };
    Link { stage, transform: Arc::new(transform), meter: Arc::new(Meter::new(name)) }
}

/// Passes a batch on in pieces of at most so many rows.
#[derive(Debug)]
struct Split(u64);

impl Transform for Split {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(Arc::clone(input))
    }

    fn apply(&self, _: Stage, input: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let n_rows = input.provenance.n_rows();
        let mut done = 0;
        while done < n_rows {
            let piece = (n_rows - done).min(self.0);
            emit.emit(batch(first_row(&input) + done, piece))?;
            done += piece;
        }
        Ok(())
    }
}

/// What becomes of a batch that a [`Gated`] lets through.
#[derive(Debug, Clone, Copy)]
enum Then {
    Pass,
    Fail,
    Panic,
}

/// Holds each batch until its gate opens, then tells that it has been through.
#[derive(Debug)]
struct Gated {
    gates: Mutex<HashMap<u64, oneshot::Receiver<Then>>>,
    through: mpsc::SyncSender<u64>,
}

/// Opens the gates of a [`Gated`].
struct Gates {
    gates: HashMap<u64, oneshot::Sender<Then>>,
    through: mpsc::Receiver<u64>,
}

impl Gated {
    fn new(first_rows: impl IntoIterator<Item = u64>) -> (Self, Gates) {
        let (through, was_through) = mpsc::sync_channel(1024);
        let mut gates = Gates { gates: HashMap::new(), through: was_through };
        let mut waiting = HashMap::new();
        for row in first_rows {
            let (open, gate) = oneshot::channel();
            gates.gates.insert(row, open);
            waiting.insert(row, gate);
        }
        (Self { gates: Mutex::new(waiting), through }, gates)
    }
}

impl Gates {
    /// Opens the gate of the batch that begins with `row`, and returns after it has been through.
    fn open(&mut self, row: u64, then: Then) {
        self.gates.remove(&row).unwrap().send(then).unwrap();
        assert_eq!(self.through.recv_timeout(Duration::from_mins(1)), Ok(row));
    }
}

impl Transform for Gated {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(Arc::clone(input))
    }

    fn apply(&self, _: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let row = first_row(&batch);
        let gate = self.gates.lock().unwrap().remove(&row).unwrap();
        match gate.blocking_recv().unwrap_or(Then::Pass) {
            Then::Pass => emit.emit(batch)?,
            Then::Panic => panic!("row {row} is cursed"),
            Then::Fail => {
                self.through.send(row).unwrap();
                let bad = BadRow::new("odd", "is odd").field("row").hint("remove it");
                let bad = Box::new(bad);
                return Err(TransformError::Row { input: 0, source_row: row, bad });
            }
        }
        self.through.send(row).unwrap();
        Ok(())
    }
}
