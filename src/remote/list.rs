//! What is listed: whole, or as it comes.
//!
//! Leaves out: in how many requests at once (`lister`), and which of the objects are meant.
//!
//! Invariant: what a store lists out of order is listed again as it comes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::TryStreamExt;
use object_store::path::DELIMITER;
use tokio_util::sync::CancellationToken;

use super::lister::{Lister, Range};
use super::pages::{Pages, Paying, Room, Tell, Told};
use super::read::Object;
use super::{Remote, RemoteError};

/// Objects that are told at once where a store has no pages.
const PAGE: usize = 1_000;

impl Remote {
    /// Lists everything below the folder `below`, of any depth, whose path goes on with `start`, and keeps
    /// what `take` makes of it: paths relative to this place, in the store's order.
    ///
    /// # Errors
    /// The store's.
    pub fn list<T: Send + 'static>(
        &self,
        below: &str,
        start: &str,
        take: impl Fn(String, Object) -> Option<T> + Send + Sync + 'static,
    ) -> Result<Vec<T>, RemoteError> {
        let asked = self.asked(below, start, None, None, take);
        let quit = CancellationToken::new();
        let mut pages = Pages::new(self.url().to_owned(), quit, |tell| asked.tell(tell))?;
        let mut taken = Vec::new();
        loop {
            match pages.wait()? {
                Told::More(page) | Told::Last(page) => taken.extend(page),
                Told::Anew => taken.clear(),
                Told::End => return Ok(taken),
            }
        }
    }

    /// What is to be listed; nothing but what stands behind the object `behind`, where one is named.
    pub(super) fn asked<T, F>(
        &self,
        below: &str,
        start: &str,
        behind: Option<&str>,
        paying: Option<Paying<T>>,
        take: F,
    ) -> Asked<T, F> {
        let folder = self.path(below);
        let folder = folder.as_ref();
        let slash = if folder.is_empty() { "" } else { DELIMITER };
        let range =
            behind.map_or_else(Range::default, |path| Range::behind(self.path(path).to_string()));
        Asked {
            remote: self.clone(),
            below: below.to_owned(),
            prefix: format!("{folder}{slash}{start}"),
            range,
            paying,
            take: Arc::new(take),
        }
    }
}

/// What is to be listed.
pub(super) struct Asked<T, F> {
    remote: Remote,
    below: String,
    prefix: String,
    range: Range,
    paying: Option<Paying<T>>,
    take: Arc<F>,
}

impl<T, F> Asked<T, F>
where
    T: Send + 'static,
    F: Fn(String, Object) -> Option<T> + Send + Sync + 'static,
{
    /// Lists it.
    pub(super) async fn tell(self, tell: Tell<T>) -> Result<(), RemoteError> {
        let Self { remote, below, prefix, range, paying, take } = self;
        if let Some(pages) = remote.pages() {
            let lister = Lister {
                remote: remote.clone(),
                pages: Arc::clone(pages),
                prefix,
                below: below.clone(),
                idle: Arc::new(AtomicUsize::new(0)),
                paying: paying.clone(),
                take: Arc::clone(&take),
            };
            if lister.tell(range, &tell).await? {
                return Ok(());
            }
        }
        // Whoever asked may have gone.
        tell.send(Ok(Told::Anew)).await.ok();
        let mut listing = remote.store().list(Some(&remote.path(&below)));
        let refused = |e| remote.error("list", &below, &e);
        let mut page = Vec::new();
        while let Some(found) = listing.try_next().await.map_err(refused)? {
            if let Some(relative) = remote.relative(&found.location) {
                page.extend(take(relative, Object::of(&found)));
            }
            if page.len() >= PAGE {
                let page = std::mem::take(&mut page);
                pay(price(paying.as_ref(), &page)).await;
                tell.send(Ok(Told::More(page))).await.ok();
            }
        }
        tell.send(Ok(Told::More(page))).await.ok();
        Ok(())
    }
}

/// What a page takes, and where.
pub(super) fn price<T>(paying: Option<&Paying<T>>, page: &[T]) -> Option<(Room, u64)> {
    paying.map(|Paying { room, weigh }| (room.clone(), page.iter().map(weigh).sum()))
}

/// Takes room for a page.
pub(super) async fn pay(price: Option<(Room, u64)>) {
    if let Some((room, bytes)) = price {
        room.wait(bytes).await;
    }
}
