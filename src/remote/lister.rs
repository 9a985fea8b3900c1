//! Lists what begins with a prefix, in several requests at once where there is much of it.
//!
//! A listing comes in pages, each asked for with what the one before said. So that a million names take
//! no thousand waits, what is left of a listing is cut in two or more where folders begin, as soon as
//! requests may be made that nothing else needs; the parts are listed side by side. Folders are found
//! with a page of their own, which is asked for only when a listing has more than one page.
//!
//! Leaves out: what is listed, and for whom (`list`).
//!
//! Invariants:
//! 1. Each object is listed once, whatever was cut where: a part takes the keys from its first on, up to
//!    the first of the next part. Only what stands for a folder may come again.
//! 2. What a store lists out of order is not told behind the place where that shows: no key comes before
//!    the one before it, nor before the one behind which it was asked for; and the key that ends a part is
//!    the one with which the next part begins. So what is told of a store that keeps any one order is an
//!    unbroken part of its list, also where that order is another.
//! 3. At most [`AT_ONCE`] requests of a listing go on at once, each for a page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::DELIMITER;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::list::{pay, price};
use super::pages::{Paying, Tell, Told};
use super::read::Object;
use super::{Remote, RemoteError, RemoteErrorKind};

/// Most pages that are asked for at once.
const AT_ONCE: usize = 16;
/// How often a page is asked for again whose answer broke off.
const CUT_RETRIES: usize = 5;
/// A request that fails later than that was tried again and again by the client.
const SOON: Duration = Duration::from_secs(5);
/// Most folders within one another that are looked at to cut a listing.
const MOST_LEVELS: usize = 32;

/// A part of a listing: the keys from `first` on, before `end`.
#[derive(Debug, Clone, Default)]
pub(super) struct Range {
    first: String,
    end: Option<String>,
    /// A key, as far as that can be said, right before `first`.
    after: Option<String>,
}

impl Range {
    /// All keys behind this one.
    pub(super) fn behind(key: String) -> Self {
        Self { first: format!("{key}\0"), end: None, after: Some(key) }
    }
}

/// What the next part has to begin with.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Whatever lies behind what is listed.
    Any,
    /// This key; nothing, if there is none.
    Key(Option<String>),
}

/// What is heard of the part that begins with a key.
enum Heard<T> {
    /// The first key from its first on, be it its own or that of a later part.
    Begins(String),
    Page(Vec<T>),
    /// The last page: it is listed, but for what is left of it.
    Over(Vec<T>, Next, Vec<Range>),
    /// Its keys are in no order.
    Unordered,
    Failed(RemoteError),
}

/// Where it is heard.
type Say<T> = mpsc::Sender<(String, Heard<T>)>;

/// A part of a listing that was not told to its end.
struct Part<T> {
    begins: Option<String>,
    pages: VecDeque<Vec<T>>,
    /// What comes behind it, if it is over.
    next: Option<Next>,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { begins: None, pages: VecDeque::new(), next: None }
    }
}

impl<T> Part<T> {
    /// Whether it is known what it begins with.
    fn has_begun(&self) -> bool {
        self.begins.is_some() || self.next.is_some()
    }
}

/// Lists what begins with a prefix.
pub(super) struct Lister<T, F> {
    pub(super) remote: Remote,
    pub(super) pages: Arc<dyn PaginatedListStore>,
    pub(super) prefix: String,
    /// What is shown of it.
    pub(super) below: String,
    /// Requests that may be made beside those that are.
    pub(super) idle: Arc<AtomicUsize>,
    pub(super) paying: Option<Paying<T>>,
    pub(super) take: Arc<F>,
}

impl<T, F> Clone for Lister<T, F> {
    fn clone(&self) -> Self {
        Self {
            remote: self.remote.clone(),
            pages: Arc::clone(&self.pages),
            prefix: self.prefix.clone(),
            below: self.below.clone(),
            idle: Arc::clone(&self.idle),
            paying: self.paying.clone(),
            take: Arc::clone(&self.take),
        }
    }
}

impl<T, F> Lister<T, F>
where
    T: Send + 'static,
    F: Fn(String, Object) -> Option<T> + Send + Sync + 'static,
{
    /// Tells everything in order; `false` where the store lists out of order.
    pub(super) async fn tell(self, range: Range, tell: &Tell<T>) -> Result<bool, RemoteError> {
        let (say, mut heard) = mpsc::channel(AT_ONCE);
        // The first of them is the one that is told.
        let mut parts = BTreeMap::from([(range.first.clone(), Part::default())]);
        let mut waiting = VecDeque::from([range]);
        let mut tasks = JoinSet::new();
        let mut next = Next::Any;
        loop {
            while let Some(ended) = tasks.try_join_next() {
                self.joined(ended)?;
            }
            while tasks.len() < AT_ONCE
                && let Some(range) = waiting.pop_front()
            {
                let (lister, say) = (self.clone(), say.clone());
                tasks.spawn(async move { lister.list_range(range, &say).await });
            }
            let busy = tasks.len() + waiting.len();
            self.idle.store(AT_ONCE.saturating_sub(busy), Ordering::Relaxed);
            while let Some((first, mut part)) = parts.pop_first() {
                if !part.has_begun() {
                    parts.insert(first, part);
                    break;
                }
                if matches!(&next, Next::Key(key) if *key != part.begins) {
                    return Ok(false);
                }
                while let Some(page) = part.pages.pop_front() {
                    let is_over = part.next.is_some() && part.pages.is_empty();
                    let is_last = is_over && parts.is_empty();
                    let told = if is_last { Told::Last(page) } else { Told::More(page) };
                    // Whoever asked may have gone.
                    tell.send(Ok(told)).await.ok();
                }
                let Some(behind) = part.next.take() else {
                    parts.insert(first, part);
                    break;
                };
                next = behind;
            }
            if parts.is_empty() {
                return Ok(true);
            }
            let (first, said) = tokio::select! { biased;
                Some(said) = heard.recv() => said,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    self.joined(ended)?;
                    continue;
                }
            };
            let part = parts.entry(first).or_default();
            match said {
                Heard::Begins(key) => part.begins = Some(key),
                Heard::Page(page) => part.pages.push_back(page),
                Heard::Over(page, behind, rest) => {
                    part.next = Some(behind);
                    part.pages.push_back(page);
                    for range in rest {
                        parts.insert(range.first.clone(), Part::default());
                        waiting.push_back(range);
                    }
                }
                Heard::Unordered => return Ok(false),
                Heard::Failed(error) => return Err(error),
            }
        }
    }

    fn joined(&self, ended: Result<(), JoinError>) -> Result<(), RemoteError> {
        ended.map_err(|e| {
            let kind = RemoteErrorKind::Other;
            RemoteError::of("list", self.remote.show(&self.below), kind, Some(e.to_string()))
        })
    }

    /// Lists a part and says what is found.
    async fn list_range(&self, range: Range, say: &Say<T>) {
        let first = range.first.clone();
        let heard = self.list_until_cut(range, say).await.unwrap_or_else(Heard::Failed);
        // Whoever listens may have gone.
        say.send((first, heard)).await.ok();
    }

    /// Lists a part to its end, or until it can be cut for requests that may be made.
    async fn list_until_cut(&self, range: Range, say: &Say<T>) -> Result<Heard<T>, RemoteError> {
        let Range { first, end, after } = range;
        let mut last = after.clone().unwrap_or_default();
        let mut has_begun = false;
        let mut next = PaginatedListOptions { offset: after, ..Default::default() };
        // A folder in which there was nothing to cut.
        let mut whole = None;
        loop {
            let PaginatedListResult { result, page_token } = self.page(&self.prefix, next).await?;
            let mut is_over = page_token.is_none();
            let mut can_be_cut = false;
            let mut behind = None;
            let mut taken = Vec::with_capacity(result.objects.len());
            for found in result.objects {
                let key = found.location.as_ref();
                // What stands for a folder is shown without the slash by which it is in order.
                let is_folder = found.size == 0;
                let slash = if is_folder { DELIMITER } else { "" };
                let is_before = |other: &str| key < other && *format!("{key}{slash}") < *other;
                if is_before(&last) {
                    return Ok(Heard::Unordered);
                }
                if key > last.as_str() {
                    key.clone_into(&mut last);
                }
                if is_before(&first) {
                    continue;
                }
                if !has_begun && key >= first.as_str() {
                    has_begun = true;
                    say.send((first.clone(), Heard::Begins(key.to_owned()))).await.ok();
                }
                if end.as_deref().is_some_and(|end| key >= end) {
                    behind = Some(key.to_owned());
                    is_over = true;
                    break;
                }
                can_be_cut = !is_folder;
                if let Some(relative) = self.remote.relative(&found.location) {
                    taken.extend((self.take)(relative, Object::of(&found)));
                }
            }
            pay(price(self.paying.as_ref(), &taken)).await;
            if is_over {
                return Ok(Heard::Over(taken, Next::Key(behind), Vec::new()));
            }
            if !taken.is_empty() {
                say.send((first.clone(), Heard::Page(taken))).await.ok();
            }
            if can_be_cut && whole.as_deref() != Some(folder_of(&last)) {
                let rest = self.cut(&last, end.as_deref()).await;
                if !rest.is_empty() {
                    return Ok(Heard::Over(Vec::new(), Next::Any, rest));
                }
                if self.idle.load(Ordering::Relaxed) > 0 {
                    whole = Some(folder_of(&last).to_owned());
                }
            }
            next = PaginatedListOptions { page_token, ..Default::default() };
        }
    }

    /// Cuts what lies behind the key `last`, before `end`, where folders begin: into as many parts as there
    /// may be requests; none where there may be none, or no folder begins there.
    async fn cut(&self, last: &str, end: Option<&str>) -> Vec<Range> {
        let idle = self.idle.swap(0, Ordering::Relaxed);
        if idle == 0 {
            return Vec::new();
        }
        let mut level = self.prefix.clone();
        for _ in 0..MOST_LEVELS {
            let next = PaginatedListOptions {
                offset: Some(last.to_owned()),
                delimiter: Some(DELIMITER.into()),
                ..Default::default()
            };
            // Where it cannot be asked, it is not cut.
            let Ok(PaginatedListResult { result: page, .. }) = self.page(&level, next).await else {
                break;
            };
            let begins = page.common_prefixes.iter().map(|it| format!("{it}{DELIMITER}"));
            let is_inside = |key: &str| key > last && end.is_none_or(|end| key < end);
            let mut begins: Vec<String> = begins.filter(|key| is_inside(key)).collect();
            begins.sort_unstable();
            begins.dedup();
            if !begins.is_empty() {
                return parts_of(last, &begins, end, idle);
            }
            // All that is left lies in the folder of the last key, or in none.
            let inner = last.strip_prefix(&level).and_then(|rest| rest.split_once(DELIMITER));
            let Some((name, _)) = inner else { break };
            level = format!("{level}{name}{DELIMITER}");
        }
        self.idle.fetch_add(idle, Ordering::Relaxed);
        Vec::new()
    }

    async fn page(
        &self,
        prefix: &str,
        next: PaginatedListOptions,
    ) -> Result<PaginatedListResult, RemoteError> {
        let prefix = (!prefix.is_empty()).then_some(prefix);
        let mut n_cut = 0;
        loop {
            let began = Instant::now();
            let page = self.pages.list_paginated(prefix, next.clone()).await;
            let error = match page {
                Ok(page) => return Ok(page),
                Err(error) => self.remote.error("list", &self.below, &error),
            };
            // For an answer that breaks off the client does not ask again; where there was none it has.
            let is_cut = error.kind() == RemoteErrorKind::Network && began.elapsed() < SOON;
            if !is_cut || n_cut == CUT_RETRIES {
                return Err(error);
            }
            n_cut += 1;
        }
    }
}

/// What lies behind `last` and before `end`, cut at some of the keys `begins` into about `n` parts.
fn parts_of(last: &str, begins: &[String], end: Option<&str>, n: usize) -> Vec<Range> {
    let n = n.clamp(1, begins.len());
    let cuts = (0..n).filter_map(|i| begins.get(i * begins.len() / n));
    let mut parts = vec![Range::behind(last.to_owned())];
    for cut in cuts {
        if let Some(part) = parts.last_mut() {
            part.end = Some(cut.clone());
        }
        // What stands for the folder itself is listed under its own name: a key before that is meant.
        let after = cut.strip_suffix(DELIMITER).map(|folder| format!("{folder}.~"));
        parts.push(Range { first: cut.clone(), end: None, after });
    }
    if let Some(part) = parts.last_mut() {
        part.end = end.map(ToOwned::to_owned);
    }
    parts
}

/// The folder of a key.
fn folder_of(key: &str) -> &str {
    key.rsplit_once(DELIMITER).map_or("", |(folder, _)| folder)
}

#[cfg(test)]
#[path = "lister_tests.rs"]
mod tests;
