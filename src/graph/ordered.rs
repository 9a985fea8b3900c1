//! A chain of transforms on several threads, in order.
//!
//! Each worker takes the next item together with a ticket, and works on it while the others work on
//! theirs. The right to send passes from ticket to ticket as a value, the outlet itself: whoever
//! holds it sends, hands it to the ticket after, and takes the next item. With it go the numbers that
//! rows have got so far. A worker that ends early drops its ticket, so those after it find that their
//! turn will never come.
//!
//! Invariants: 5 and 6 of the graph. A batch holds its room on the edge before until all that was
//! made of it has been sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::executor::block_on;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::chain::{Numbers, Sink};
use super::{Chain, Control, Echo, Halt, Inlet, Item, Link, LinkError, Meter, Outlet, Scope};
use crate::batch::Batch;
use crate::transforms::Stopped;

/// A stage that applies a chain of transforms to several batches at once and keeps their order.
#[derive(Debug, Clone)]
pub struct Ordered {
    /// The stage's name.
    pub name: String,
    /// What is done to each batch.
    pub chain: Chain,
    /// Number of threads, and so of batches in flight; 0 counts as 1.
    pub n_workers: usize,
    /// About the most bytes in a batch that a transform hands on.
    pub batch_bytes: usize,
    /// Bytes that a worker may set aside while it is not yet its turn to send.
    pub outbox_bytes: usize,
}

impl Ordered {
    /// Starts the stage between two edges.
    ///
    /// Beside what the edges hold, its batches hold at most `n_workers` × (the larger of
    /// `outbox_bytes` and a piece, and one piece more); what a transform needs while it works comes
    /// on top.
    pub fn spawn<D, E>(self, scope: &mut Scope<E>, inlet: Inlet<D>, outlet: Outlet<D>)
    where
        D: Send + 'static,
        E: std::error::Error + From<LinkError> + Send + 'static,
    {
        let meter = |link: Option<&Link>| link.map(|link| Arc::clone(&link.meter));
        let input_meter = meter(self.chain.links().first());
        let output_meter = meter(self.chain.links().last());
        let inlet = match &input_meter {
            Some(meter) => inlet.metered(meter),
            None => inlet,
        };
        let outlet = match &output_meter {
            Some(meter) => outlet.metered(meter),
            None => outlet,
        };
        let stage = Arc::new(Stage {
            intake: Mutex::new(Intake { inlet: Some(inlet), turn: first_turn(outlet) }),
            chain: self.chain,
            batch_bytes: self.batch_bytes,
            outbox_bytes: self.outbox_bytes,
            control: scope.control().clone(),
            halted: CancellationToken::new(),
            input_meter,
            output_meter,
        });
        for _ in 0..self.n_workers.max(1) {
            let stage = Arc::clone(&stage);
            scope.blocking(&self.name, move || stage.work());
        }
    }
}

/// What the workers share.
struct Stage<D> {
    intake: Mutex<Intake<D>>,
    chain: Chain,
    batch_bytes: usize,
    outbox_bytes: usize,
    control: Control,
    /// Cancelled when a worker ends early: those that wait for input need not wait any longer.
    halted: CancellationToken,
    input_meter: Option<Arc<Meter>>,
    output_meter: Option<Arc<Meter>>,
}

/// Where items come in. Locked while one worker waits for the next item, so that tickets are in
/// the order of the items.
struct Intake<D> {
    /// `None` after the end of the partition.
    inlet: Option<Inlet<D>>,
    /// The turn of the next ticket.
    turn: oneshot::Receiver<Turn<D>>,
}

/// What whoever may send holds.
struct Turn<D> {
    outlet: Outlet<D>,
    /// The numbers that rows of the items before have got.
    numbers: Numbers,
}

fn first_turn<D>(outlet: Outlet<D>) -> oneshot::Receiver<Turn<D>> {
    let (pass, turn) = oneshot::channel();
    drop(pass.send(Turn { outlet, numbers: Numbers::default() }));
    turn
}

impl<D: Send> Stage<D> {
    fn work(&self) -> Result<(), Halt<LinkError>> {
        let worked = self.work_until_end();
        if worked.is_err() {
            self.halted.cancel();
        }
        worked
    }

    fn work_until_end(&self) -> Result<(), Halt<LinkError>> {
        while let Some((item, mut ticket)) = self.next()? {
            match item {
                Item::Batch(held) => {
                    let (batch, _permit) = held.into_parts();
                    let mut outbox =
                        Outbox { stage: self, ticket: &mut ticket, pieces: Vec::new(), bytes: 0 };
                    let applied = self.chain.apply(batch, &mut outbox);
                    if !matches!(applied, Err(Halt::Echo)) {
                        // Also before an error: of several, the first in order is reported.
                        outbox.flush()?;
                    }
                    ticket.pass(applied?);
                }
                Item::EndOfPartition(end) => {
                    self.wait_for_turn(&mut ticket)?;
                    if let Some(turn) = ticket.held.take() {
                        turn.outlet.end_blocking(end)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The next item and its ticket, `None` after the end of the partition.
    fn next(&self) -> Result<Option<Taken<D>>, Echo> {
        let since = Instant::now();
        let mut intake = self.intake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = &self.input_meter {
            meter.waited_for_input(since.elapsed());
        }
        let Some(inlet) = &intake.inlet else { return Ok(None) };
        let item = inlet.recv_until_blocking(&self.halted)?.ok_or(Echo)?;
        if matches!(item, Item::EndOfPartition(_)) {
            intake.inlet = None;
        }
        let (pass, turn) = oneshot::channel();
        let turn = std::mem::replace(&mut intake.turn, turn);
        Ok(Some((item, Ticket { turn, held: None, pass })))
    }

    fn wait_for_turn(&self, ticket: &mut Ticket<D>) -> Result<(), Echo> {
        if ticket.held.is_some() {
            return Ok(());
        }
        let since = Instant::now();
        let turn = block_on(async {
            tokio::select! { biased;
                () = self.control.cancel.cancelled() => Err(Echo),
                held = &mut ticket.turn => held.map_err(|_| Echo),
            }
        });
        if let Some(meter) = &self.output_meter {
            meter.waited_for_output(since.elapsed());
        }
        ticket.held = Some(turn?);
        Ok(())
    }
}

/// An item and its place in the order.
type Taken<D> = (Item<D>, Ticket<D>);

/// An item's place in the order.
struct Ticket<D> {
    turn: oneshot::Receiver<Turn<D>>,
    /// There from when it is this item's turn.
    held: Option<Turn<D>>,
    pass: oneshot::Sender<Turn<D>>,
}

impl<D> Ticket<D> {
    /// Whether it is this item's turn.
    fn is_first(&mut self) -> Result<bool, Echo> {
        if self.held.is_none() {
            match self.turn.try_recv() {
                Ok(turn) => self.held = Some(turn),
                Err(oneshot::error::TryRecvError::Empty) => return Ok(false),
                Err(oneshot::error::TryRecvError::Closed) => return Err(Echo),
            }
        }
        Ok(true)
    }

    /// Makes it the next item's turn, after rows of this one have got these numbers.
    fn pass(self, numbers: Numbers) {
        if let Some(Turn { outlet, numbers: before }) = self.held {
            drop(self.pass.send(Turn { outlet, numbers: numbers.after(&before) }));
        }
    }
}

/// What was made of one item and not sent yet.
struct Outbox<'a, D> {
    stage: &'a Stage<D>,
    ticket: &'a mut Ticket<D>,
    pieces: Vec<Batch>,
    bytes: usize,
}

impl<D: Send> Outbox<'_, D> {
    /// Waits for this item's turn and sends everything.
    fn flush(&mut self) -> Result<(), Echo> {
        self.stage.wait_for_turn(self.ticket)?;
        self.bytes = 0;
        for piece in std::mem::take(&mut self.pieces) {
            self.hand_on(piece)?;
        }
        Ok(())
    }

    fn hand_on(&self, piece: Batch) -> Result<(), Echo> {
        self.ticket.held.as_ref().ok_or(Echo)?.outlet.send_blocking(piece)
    }

    fn put(&mut self, piece: Batch) -> Result<(), Echo> {
        if self.stage.control.cancel.is_cancelled() {
            return Err(Echo);
        }
        let bytes = self.bytes.saturating_add(piece.memory_bytes());
        let fits = self.pieces.is_empty() || bytes <= self.stage.outbox_bytes;
        if fits && !self.ticket.is_first()? {
            self.pieces.push(piece);
            self.bytes = bytes;
            return Ok(());
        }
        self.flush()?;
        self.hand_on(piece)
    }
}

impl<D: Send> Sink for Outbox<'_, D> {
    fn send(&mut self, batch: Batch) -> Result<(), Stopped> {
        self.put(batch).map_err(|Echo| Stopped)
    }

    fn batch_bytes(&self) -> usize {
        self.stage.batch_bytes
    }

    /// Whoever writes does not wait for what is in flight when the run is asked to stop.
    fn is_stopped(&self) -> bool {
        let Control { cancel, stop } = &self.stage.control;
        cancel.is_cancelled() || stop.is_cancelled() || self.stage.halted.is_cancelled()
    }
    fn numbers_before(&mut self) -> Result<Numbers, Stopped> {
        self.stage.wait_for_turn(self.ticket).map_err(|Echo| Stopped)?;
        Ok(self.ticket.held.as_ref().map(|turn| turn.numbers.clone()).unwrap_or_default())
    }
}
