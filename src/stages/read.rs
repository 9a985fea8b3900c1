//! Reads a partition into an edge.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use tokio::sync::oneshot;

use super::{Alignment, EndOfInputs, RowLimit};
use crate::batch::{Batch, Restart};
use crate::graph::{Control, Halt, Meter, Outlet};
use crate::inputs::Part;
use crate::sources::{BatchLimits, Source, SourceError};

/// Where reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// At the place that recovery found, or at the beginning.
    At(Restart),
    /// Nowhere: every row is sealed, and only the digests are wanted.
    Digests,
}

/// Reads one partition, on a thread of its own.
pub struct ReadStage {
    /// What reads.
    pub source: Arc<dyn Source>,
    /// What it reads.
    pub part: Arc<Part>,
    /// The columns that were fixed at planning.
    pub schema: SchemaRef,
    /// What gives its rows the columns of the other sources.
    pub alignment: Option<Arc<Alignment>>,
    /// How large batches may be.
    pub limits: BatchLimits,
    /// How many source rows may be read at most.
    pub limit: Option<RowLimit>,
    /// Counts for the stage.
    pub meter: Arc<Meter>,
    /// Is told of each batch before it is sent.
    pub seen: Box<dyn FnMut(&Batch) + Send>,
}

impl ReadStage {
    /// Waits for `start`, then reads until the partition ends or the run does.
    ///
    /// # Errors
    /// What the source says, or why the run ended first.
    pub fn run(
        mut self,
        start: oneshot::Receiver<Start>,
        outlet: Outlet<EndOfInputs>,
        control: &Control,
    ) -> Result<(), Halt<SourceError>> {
        let Ok(start) = start.blocking_recv() else { return Err(Halt::Echo) };
        let outlet = outlet.metered(&self.meter);
        let restart = match start {
            Start::At(restart) => restart,
            Start::Digests => {
                let digests = self.timed(|it| it.source.digests(&it.part))?;
                return Ok(outlet.end_blocking(EndOfInputs { digests })?);
            }
        };
        let mut reader =
            self.timed(|it| it.source.open(&it.part, &it.schema, it.limits, &restart))?;
        loop {
            if control.stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            if self.limit.as_ref().is_some_and(RowLimit::is_reached) {
                break;
            }
            let Some(batch) = self.timed(|_| reader.next())? else { break };
            let batch = match &self.alignment {
                Some(alignment) => alignment.apply(batch).map_err(|e| Halt::Cause(e.into()))?,
                None => batch,
            };
            let batch = match &mut self.limit {
                Some(limit) => limit.cut(batch),
                None => batch,
            };
            (self.seen)(&batch);
            outlet.send_blocking(batch)?;
        }
        let digests = self.timed(|_| reader.digests())?;
        Ok(outlet.end_blocking(EndOfInputs { digests })?)
    }

    fn timed<T>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, SourceError>,
    ) -> Result<T, Halt<SourceError>> {
        self.meter.busy(|| work(self)).map_err(Halt::Cause)
    }
}
