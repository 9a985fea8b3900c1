//! How batches move: bounded edges between stages, stages that run at once, and one verdict.
//!
//! ```text
//!              permit of edge 1                        permit of edge 2
//!  read ──► [ edge 1: bytes ] ──► k workers, ordered ──► [ edge 2: bytes ] ──► write
//! (thread)                          (threads)                               (thread)
//! ```
//!
//! A run is a [`Scope`] of named stages joined by [`edge`]s. Stages that compute or touch files are
//! threads ([`Scope::blocking`]), the others are tasks ([`Scope::task`]); [`Ordered`] runs a
//! [`Chain`] of transforms on several threads and keeps the order. A [`Meter`] per stage counts
//! rows, bytes and time; a [`Gauge`] per edge tells how full it is.
//!
//! Leaves out: what a batch is for. The graph knows no dataset, no file and no definition; how many
//! partitions run at once, how large edges are and what is done at a signal is the caller's.
//!
//! Invariants:
//! 1. **Memory.** A batch holds its bytes of an edge's capacity from before it is queued until the
//!    receiver drops it or the next edge has taken it. So all batches queued or being worked on
//!    hold at most the sum of the capacities; a batch larger than a capacity has the edge to itself.
//!    Outside that sum are only: the batch that a sender is offering, and in an ordered stage what
//!    its outboxes hold (invariant 6).
//! 2. **Completion is a value.** An edge carries one partition and ends with
//!    [`Item::EndOfPartition`]; sending that consumes the outlet, so nothing can follow it. A channel
//!    that is closed without it is an [`Echo`]: the neighbour is gone, and why is known elsewhere.
//! 3. **First cause wins.** The first stage to fail or panic cancels the scope and is named in the
//!    verdict; echoes never are. Echoes without a cause are a failure too, unless the run was
//!    stopped or cancelled: nothing that was cut short counts as finished.
//! 4. **Everything is joined.** [`Scope::join`] returns after the last task and thread has ended,
//!    whatever happened. Cancelling wakes whoever waits for an edge or for a turn, on a thread or in
//!    a task; a thread in the midst of reading, computing or writing is waited for.
//! 5. **Order.** An ordered stage hands on what it makes in the order of its input, and of several
//!    errors reports the one that comes first in that order. The turn to emit is the outlet
//!    itself, passed from each item to the next, so no other item can emit.
//! 6. **No deadlock.** Whoever holds the turn waits for nothing but the next edge; items behind it
//!    hold nothing of that edge. An item that is not yet its turn keeps its output in an outbox of
//!    at most `outbox_bytes` (one piece, if that is larger) and then waits with one piece in hand.
//!    Every stage has a thread of its own, so no stage waits for a pool.
//! 7. **Two ways to stop.** [`Control::stop`] asks: stages that watch it come to an end at a place of
//!    their own choosing and return [`Halt::Stopped`]; the others then find their neighbours gone.
//!    [`Control::cancel`] orders: every wait ends at once with an echo.

mod chain;
mod edge;
mod gauge;
mod meter;
mod ordered;
mod scope;
#[cfg(test)]
mod tests;

pub use chain::{Chain, Link, LinkError, Numbers, Sink};
pub use edge::{Echo, Held, Inlet, Item, Outlet, edge};
pub use gauge::{Gauge, Permit};
pub use meter::{Meter, Snapshot};
pub use ordered::Ordered;
pub use scope::{Control, Ended, Failed, Halt, Scope};
