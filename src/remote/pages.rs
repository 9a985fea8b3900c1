//! A listing as it comes: its pages go to whoever asked while later ones are on their way.
//!
//! Leaves out: in how many requests at once it is listed (`list`).
//!
//! Invariants:
//! 1. What is told stands in the store's order, each object behind those that were told before, until it
//!    is told that this cannot be kept.
//! 2. The end is told. A listing that ends without is an error.
//! 3. What was listed and not told yet has bought its room before: a listing waits where there is none.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::blocking::{ended, runtime};
use super::{Object, Remote, RemoteError};

/// Pages that are told and not taken.
const WAITING: usize = 4;
/// What a permit for room stands for.
const ROOM_BYTES: usize = 1 << 10;

/// What a listing has to say.
#[derive(Debug)]
pub enum Told<T> {
    /// What comes next, in order.
    More(Vec<T>),
    /// The same, and there is no more behind it.
    Last(Vec<T>),
    /// What was told does not count: all that there is follows, in no order.
    Anew,
    /// There is no more.
    End,
}

/// Memory that a listing shares with other work: each takes some before it uses it.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

impl Room {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let permits = usize::try_from(bytes).unwrap_or(usize::MAX) / ROOM_BYTES;
        Self(Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes so many bytes, if they are there; they are given back with the answer.
    #[must_use]
    pub fn begin(&self, bytes: u64) -> Option<Taken> {
        Some(Taken { _permits: Arc::clone(&self.0).try_acquire_many_owned(permits(bytes)).ok()? })
    }

    /// Whether so many bytes are there.
    #[must_use]
    pub fn has(&self, bytes: u64) -> bool {
        usize::try_from(permits(bytes)).is_ok_and(|n| self.0.available_permits() >= n)
    }

    /// Takes so many bytes for good, if they are there.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        self.0.try_acquire_many(permits(bytes)).map(SemaphorePermit::forget).is_ok()
    }

    /// Takes so many bytes for good, as soon as they are there; at once where there is no bound any more.
    pub(super) async fn wait(&self, bytes: u64) {
        // What is closed has no bound.
        if let Ok(taken) = self.0.acquire_many(permits(bytes)).await {
            taken.forget();
        }
    }

    /// Lets nothing begin any more; whoever takes room for good has as much as it likes.
    pub fn close(&self) {
        self.0.close();
    }
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(ROOM_BYTES as u64)).unwrap_or(u32::MAX)
}

/// Room that is given back when this is dropped.
#[derive(Debug)]
pub struct Taken {
    _permits: OwnedSemaphorePermit,
}

/// How a listing goes on beside other work.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Ends it before its end.
    pub quit: CancellationToken,
    /// What it is given room in.
    pub room: Room,
}

/// Bytes that something takes that was listed.
type Weigh<T> = fn(&T) -> u64;

/// What a listing pays for, and where.
#[derive(Debug)]
pub(super) struct Paying<T> {
    pub(super) room: Room,
    pub(super) weigh: Weigh<T>,
}

impl<T> Clone for Paying<T> {
    fn clone(&self) -> Self {
        Self { room: self.room.clone(), weigh: self.weigh }
    }
}

/// Where pages are told.
pub(super) type Tell<T> = Sender<Result<Told<T>, RemoteError>>;

/// A listing that goes on.
#[derive(Debug)]
pub struct Pages<T> {
    told: Receiver<Result<Told<T>, RemoteError>>,
    task: AbortHandle,
    url: String,
}

impl<T: Send + 'static> Pages<T> {
    /// Begins to list `url` as `list` does.
    pub(super) fn new<F>(
        url: String,
        quit: CancellationToken,
        list: impl FnOnce(Tell<T>) -> F,
    ) -> Result<Self, RemoteError>
    where
        F: Future<Output = Result<(), RemoteError>> + Send + 'static,
    {
        let (tell, told) = async_channel::bounded(WAITING);
        let listing = list(tell.clone());
        let task = runtime(&url)?.spawn(async move {
            let listed = tokio::select! { biased;
                () = quit.cancelled() => return,
                listed = listing => listed,
            };
            // Whoever asked may have gone.
            tell.send(listed.map(|()| Told::End)).await.ok();
        });
        Ok(Self { told, task: task.abort_handle(), url })
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// The store's; it was ended before its end.
    pub fn wait(&mut self) -> Result<Told<T>, RemoteError> {
        let gone = || ended(&self.url, "the listing ended before its end".to_owned());
        self.told.recv_blocking().unwrap_or_else(|_| Err(gone()))
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Remote {
    /// Lists as [`Remote::list`] does, but tells what comes while it goes on: only what stands behind the
    /// object `behind`, if one is named. `None` where the place does not list page by page.
    ///
    /// # Errors
    /// There is no runtime. The store's are told.
    pub fn list_pages<T: Send + 'static>(
        &self,
        (below, start): (&str, &str),
        behind: Option<&str>,
        pace: &Pace,
        weigh: fn(&T) -> u64,
        take: impl Fn(String, Object) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Option<Pages<T>>, RemoteError> {
        if self.pages().is_none() {
            return Ok(None);
        }
        let paying = Some(Paying { room: pace.room.clone(), weigh });
        let asked = self.asked(below, start, behind, paying, take);
        Pages::new(self.url().to_owned(), pace.quit.clone(), |tell| asked.tell(tell)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_gives_its_room_back_and_what_is_listed_keeps_it() {
        let room = Room::new(10 << 10);
        let begun = room.begin(8 << 10).unwrap();
        assert!(room.begin(4 << 10).is_none() && !room.take(4 << 10));
        drop(begun);
        assert!(room.take(4 << 10) && room.has(6 << 10) && !room.has(8 << 10));
        let wait = |bytes| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let waiting = room.wait(bytes);
                futures::pin_mut!(waiting);
                futures::poll!(waiting).is_ready()
            })
        };
        assert!(wait(5 << 10) && !wait(5 << 10), "there is room for one of them");
        room.close();
        assert!(wait(1 << 40), "what has no bound waits for nothing");
        assert!(room.begin(1).is_none());
    }
}
