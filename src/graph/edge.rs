//! A bounded edge between two stages, limited in bytes.
//!
//! Invariants: 1 and 2 of the graph.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use futures::executor::block_on;
use tokio_util::sync::CancellationToken;

use super::{Gauge, Meter, Permit};
use crate::batch::Batch;

/// Most items that wait on an edge, whatever their size: bounds what batches of almost nothing cost.
const MAX_ITEMS: usize = 256;

/// The neighbouring stage is gone, or the run is being cancelled. Not a cause: the graph knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the neighbouring stage is gone")]
pub struct Echo;

/// What an edge carries: the batches of one partition, then its end.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost every item is a batch")]
pub enum Item<D> {
    /// Rows, with the room they take.
    Batch(Held),
    /// Everything was sent; the last item.
    EndOfPartition(D),
}

/// A batch and the share of an edge's capacity that it holds until it is dropped or sent on.
#[derive(Debug)]
pub struct Held {
    batch: Batch,
    permit: Option<Permit>,
}

impl Held {
    /// The batch and its permit, to be dropped when the batch's memory is free again. A batch that
    /// came from no edge has none.
    #[must_use]
    pub fn into_parts(self) -> (Batch, Option<Permit>) {
        (self.batch, self.permit)
    }
}

impl From<Batch> for Held {
    fn from(batch: Batch) -> Self {
        Self { batch, permit: None }
    }
}

impl Deref for Held {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

/// An edge on which batches may hold `capacity_bytes`, and whose waits end when `cancel` does.
#[must_use]
pub fn edge<D>(
    name: &str,
    capacity_bytes: usize,
    cancel: &CancellationToken,
) -> (Outlet<D>, Inlet<D>) {
    let (sender, receiver) = async_channel::bounded(MAX_ITEMS);
    let gauge = Gauge::new(name, capacity_bytes);
    let cancel = cancel.clone();
    (
        Outlet { items: sender, gauge: gauge.clone(), cancel: cancel.clone(), meter: None },
        Inlet { items: receiver, gauge, cancel, meter: None },
    )
}

/// The end of an edge that batches are sent into.
#[derive(Debug)]
pub struct Outlet<D> {
    items: async_channel::Sender<Item<D>>,
    gauge: Gauge,
    cancel: CancellationToken,
    meter: Option<Arc<Meter>>,
}

impl<D: Send> Outlet<D> {
    /// Counts what is sent, and the time that sending waits, at the stage of `meter`.
    #[must_use]
    pub fn metered(mut self, meter: &Arc<Meter>) -> Self {
        self.meter = Some(Arc::clone(meter));
        self
    }

    /// How full the edge is.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// Sends a batch as soon as it fits. A batch that came from another edge holds its room there
    /// until it has some here.
    ///
    /// # Errors
    /// The receiver is gone, or the run is being cancelled.
    ///
    /// # Cancel safety
    /// Dropping the future before it is done drops the batch.
    pub async fn send(&self, batch: impl Into<Held>) -> Result<(), Echo> {
        self.send_held(batch.into()).await
    }

    /// [`Outlet::send`] for threads that may block.
    ///
    /// # Errors
    /// As [`Outlet::send`].
    pub fn send_blocking(&self, batch: impl Into<Held>) -> Result<(), Echo> {
        block_on(self.send_held(batch.into()))
    }

    /// Sends the end of the partition: nothing can follow.
    ///
    /// # Errors
    /// As [`Outlet::send`].
    pub async fn end(self, end: D) -> Result<(), Echo> {
        self.put(async { Ok(Item::EndOfPartition(end)) }).await
    }

    /// [`Outlet::end`] for threads that may block.
    ///
    /// # Errors
    /// As [`Outlet::send`].
    pub fn end_blocking(self, end: D) -> Result<(), Echo> {
        block_on(self.end(end))
    }

    async fn send_held(&self, mut held: Held) -> Result<(), Echo> {
        let (n_rows, bytes) = (held.rows.num_rows(), held.memory_bytes());
        self.put(async {
            let permit = self.gauge.acquire(bytes).await?;
            held.permit = Some(permit);
            Ok(Item::Batch(held))
        })
        .await?;
        if let Some(meter) = &self.meter {
            meter.left(n_rows, bytes);
        }
        Ok(())
    }

    async fn put(&self, item: impl Future<Output = Result<Item<D>, Echo>>) -> Result<(), Echo> {
        let since = Instant::now();
        let put = async { self.items.send(item.await?).await.map_err(|_| Echo) };
        let sent = tokio::select! { biased;
            () = self.cancel.cancelled() => Err(Echo),
            sent = put => sent,
        };
        if let Some(meter) = &self.meter {
            meter.waited_for_output(since.elapsed());
        }
        sent
    }
}

/// The end of an edge that batches come out of.
#[derive(Debug)]
pub struct Inlet<D> {
    items: async_channel::Receiver<Item<D>>,
    gauge: Gauge,
    cancel: CancellationToken,
    meter: Option<Arc<Meter>>,
}

impl<D: Send> Inlet<D> {
    /// Counts what is received, and the time that receiving waits, at the stage of `meter`.
    #[must_use]
    pub fn metered(mut self, meter: &Arc<Meter>) -> Self {
        self.meter = Some(Arc::clone(meter));
        self
    }

    /// How full the edge is.
    #[must_use]
    pub fn gauge(&self) -> Gauge {
        self.gauge.clone()
    }

    /// The next item.
    ///
    /// # Errors
    /// The sender is gone without an end of the partition, the end was received before, or the run
    /// is being cancelled.
    ///
    /// # Cancel safety
    /// Dropping the future loses no item.
    pub async fn recv(&self) -> Result<Item<D>, Echo> {
        let since = Instant::now();
        let received = tokio::select! { biased;
            () = self.cancel.cancelled() => Err(Echo),
            item = self.items.recv() => item.map_err(|_| Echo),
        };
        if let Some(meter) = &self.meter {
            meter.waited_for_input(since.elapsed());
        }
        let mut item = received?;
        if let Item::Batch(held) = &mut item {
            if let Some(permit) = &mut held.permit {
                permit.leave_queue();
            }
            if let Some(meter) = &self.meter {
                meter.entered(held.rows.num_rows(), held.memory_bytes());
            }
        }
        Ok(item)
    }

    /// [`Inlet::recv`] for threads that may block.
    ///
    /// # Errors
    /// As [`Inlet::recv`].
    pub fn recv_blocking(&self) -> Result<Item<D>, Echo> {
        block_on(self.recv())
    }

    /// The next item, or `None` as soon as `stop` is cancelled, even if items wait.
    ///
    /// # Errors
    /// As [`Inlet::recv`]; being cancelled comes before being stopped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no item.
    pub async fn recv_until(&self, stop: &CancellationToken) -> Result<Option<Item<D>>, Echo> {
        tokio::select! { biased;
            () = self.cancel.cancelled() => Err(Echo),
            () = stop.cancelled() => Ok(None),
            item = self.recv() => item.map(Some),
        }
    }

    /// [`Inlet::recv_until`] for threads that may block.
    ///
    /// # Errors
    /// As [`Inlet::recv_until`].
    pub fn recv_until_blocking(&self, stop: &CancellationToken) -> Result<Option<Item<D>>, Echo> {
        block_on(self.recv_until(stop))
    }
}

impl<D> Drop for Inlet<D> {
    /// Frees what waits, and wakes a sender that waits for room.
    fn drop(&mut self) {
        self.items.close();
        self.gauge.close();
        while self.items.try_recv().is_ok() {}
    }
}
