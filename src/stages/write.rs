//! Writes what comes out of an edge: interning, committing and sealing in the synchronous core.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{EndOfInputs, Start};
use crate::batch::Batch;
use crate::graph::{Control, Halt, Inlet, Item, Meter};

/// A partition's writer, as the stage drives it.
pub trait PartitionWriter {
    /// Why writing failed.
    type Error;

    /// Where reading begins.
    fn start(&self) -> Start;

    /// Appends a batch.
    ///
    /// # Errors
    /// The disk's, or a row that does not fit the schema.
    fn append(&mut self, batch: &Batch) -> Result<(), Self::Error>;

    /// Makes what was appended durable.
    ///
    /// # Errors
    /// The disk's.
    fn commit(&mut self) -> Result<(), Self::Error>;

    /// Seals what is open and records the partition.
    ///
    /// # Errors
    /// The disk's, or books that do not close.
    fn finish(self, end: EndOfInputs) -> Result<(), Self::Error>;
}

/// Writes one partition, on a thread of its own.
#[derive(Debug)]
pub struct WriteStage {
    /// Counts for the stage.
    pub meter: Arc<Meter>,
}

impl WriteStage {
    /// Opens the writer, tells the reader where to begin, and writes until the partition ends or
    /// the run does.
    ///
    /// # Errors
    /// What the writer says, or why the run ended first.
    pub fn run<W: PartitionWriter>(
        self,
        open: impl FnOnce() -> Result<W, W::Error>,
        start: oneshot::Sender<Start>,
        inlet: Inlet<EndOfInputs>,
        control: &Control,
    ) -> Result<(), Halt<W::Error>> {
        let inlet = inlet.metered(&self.meter);
        let mut writer = self.meter.busy(open).map_err(Halt::Cause)?;
        if start.send(writer.start()).is_err() {
            return Err(Halt::Echo);
        }
        loop {
            match inlet.recv_until_blocking(&control.stop)? {
                None => {
                    self.meter.busy(|| writer.commit()).map_err(Halt::Cause)?;
                    return Err(Halt::Stopped);
                }
                Some(Item::Batch(held)) => {
                    let bytes = held.memory_bytes();
                    self.meter.busy(|| writer.append(&held)).map_err(Halt::Cause)?;
                    self.meter.left(held.rows.num_rows(), bytes);
                }
                Some(Item::EndOfPartition(end)) => {
                    return self.meter.busy(|| writer.finish(end)).map_err(Halt::Cause);
                }
            }
        }
    }
}
