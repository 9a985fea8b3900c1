//! A plan that grows while its inputs are listed, as those see it who build meanwhile.
//!
//! Invariant: inputs and partitions stay where they are; more comes behind them.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::building::Next;
use super::frame::Task;
use super::plan::{Planned, State};
use crate::inputs::Input;
use crate::remote::Room;

/// A plan that grows, as those see it who build meanwhile.
pub(super) struct Growing {
    state: RwLock<Grown>,
    changed: Notify,
    /// What the list and the partitions at work share.
    pub(super) room: Room,
    /// Cancelled where nothing more is needed of the list: a limit of rows is reached.
    pub(super) enough: CancellationToken,
}

#[derive(Default)]
pub(super) struct Grown {
    /// By source.
    pub(super) lists: Vec<Vec<Input>>,
    /// Each with whether it takes no more than was reckoned with.
    pub(super) partitions: Vec<(Planned, bool)>,
}

impl Growing {
    pub(super) fn new(lists: Vec<Vec<Input>>, room: Room, enough: CancellationToken) -> Self {
        let state = Grown { lists, partitions: Vec::new() };
        Self { state: RwLock::new(state), changed: Notify::new(), room, enough }
    }

    /// How many partitions are planned.
    pub(super) fn n_partitions(&self) -> usize {
        self.grown().partitions.len()
    }

    /// What is to be done about a partition; `None` where it is not planned yet.
    pub(super) fn next(&self, index: usize) -> Option<Next> {
        let grown = self.grown();
        let (planned, fits) = grown.partitions.get(index)?;
        if let State::Done(done) = &planned.state {
            return Some(Next::Reuse(done.clone()));
        }
        if !fits {
            return Some(Next::Wait);
        }
        Some(Next::Build(Task::new(index, planned, planned.part(grown.list(planned.source)))))
    }

    /// Waits until more is planned.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn grown(&self) -> RwLockReadGuard<'_, Grown> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Grown> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// More is listed of a source.
    pub(super) fn grow(&self, source: usize, more: Vec<Input>) {
        if let Some(list) = self.change().lists.get_mut(source) {
            list.extend(more);
        }
    }

    /// A partition is planned; `fits` says whether it takes no more than was reckoned with.
    pub(super) fn publish(&self, planned: Planned, fits: bool) {
        self.change().partitions.push((planned, fits));
        self.changed.notify_one();
    }

    /// All of it, when it is whole.
    pub(super) fn take(&self) -> Grown {
        std::mem::take(&mut *self.change())
    }
}

impl Grown {
    /// How many inputs are listed.
    pub(super) fn n_inputs(&self) -> u64 {
        self.lists.iter().map(|list| list.len() as u64).sum()
    }

    pub(super) fn list(&self, source: usize) -> &[Input] {
        self.lists.get(source).map_or(&[], Vec::as_slice)
    }
}
