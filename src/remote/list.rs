//! Lists objects, in several requests at once where there are many.
//!
//! A listing comes in pages, each asked for with what the one before said. So that a million names take
//! no thousand waits, what is left of a listing is cut in two or more where folders begin, as soon as
//! requests may be made that nothing else needs; the parts are listed side by side. Folders are found
//! with a page of their own, which is asked for only when a listing has more than one page.
//!
//! Leaves out: which of the objects are meant.
//!
//! Invariants:
//! 1. Each object is listed once, whatever was cut where: a part takes the keys from its first on, up to
//!    the first of the next part. Only what stands for a folder may come again.
//! 2. What a store lists out of order is not cut: it is listed again as it comes.
//! 3. At most [`AT_ONCE`] requests of a listing go on at once, each for a page.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::DELIMITER;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::pages::{Pages, Paying, Room, Tell, Told};
use super::read::Object;
use super::{Remote, RemoteError, RemoteErrorKind};

/// Most pages that are asked for at once.
const AT_ONCE: usize = 16;
/// Objects that are told at once where a store has no pages.
const PAGE: usize = 1_000;
/// How often a page is asked for again whose answer broke off.
const CUT_RETRIES: usize = 5;
/// A request that fails later than that was tried again and again by the client.
const SOON: Duration = Duration::from_secs(5);
/// Most folders within one another that are looked at to cut a listing.
const MOST_LEVELS: usize = 32;

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
        let range = behind.map_or_else(Range::default, |path| {
            let after = self.path(path).to_string();
            Range { first: format!("{after}\0"), end: None, after: Some(after) }
        });
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
fn price<T>(paying: Option<&Paying<T>>, page: &[T]) -> Option<(Room, u64)> {
    paying.map(|Paying { room, weigh }| (room.clone(), page.iter().map(weigh).sum()))
}

/// Takes room for a page.
async fn pay(price: Option<(Room, u64)>) {
    if let Some((room, bytes)) = price {
        room.wait(bytes).await;
    }
}

/// A part of a listing: the keys from `first` on, before `end`.
#[derive(Debug, Clone, Default)]
struct Range {
    first: String,
    end: Option<String>,
    /// A key, as far as that can be said, right before `first`.
    after: Option<String>,
}

/// What is heard of the part that begins with a key.
enum Heard<T> {
    Page(Vec<T>),
    /// The last page: it is listed, but for what is left of it.
    Over(Vec<T>, Vec<Range>),
    /// Its keys are in no order.
    Unordered,
    Failed(RemoteError),
}

/// Where it is heard.
type Say<T> = mpsc::Sender<(String, Heard<T>)>;

/// A part of a listing that was not told to its end.
struct Part<T> {
    pages: VecDeque<Vec<T>>,
    is_over: bool,
}

impl<T> Default for Part<T> {
    fn default() -> Self {
        Self { pages: VecDeque::new(), is_over: false }
    }
}

/// Lists what begins with a prefix.
struct Lister<T, F> {
    remote: Remote,
    pages: Arc<dyn PaginatedListStore>,
    prefix: String,
    /// What is shown of it.
    below: String,
    /// Requests that may be made beside those that are.
    idle: Arc<AtomicUsize>,
    paying: Option<Paying<T>>,
    take: Arc<F>,
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
    async fn tell(self, range: Range, tell: &Tell<T>) -> Result<bool, RemoteError> {
        let (say, mut heard) = mpsc::channel(AT_ONCE);
        // The first of them is the one that is told.
        let mut parts = BTreeMap::from([(range.first.clone(), Part::default())]);
        let mut waiting = VecDeque::from([range]);
        let mut tasks = JoinSet::new();
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
            while let Some(mut part) = parts.pop_first() {
                while let Some(page) = part.1.pages.pop_front() {
                    let is_last = part.1.is_over && part.1.pages.is_empty() && parts.is_empty();
                    let told = if is_last { Told::Last(page) } else { Told::More(page) };
                    // Whoever asked may have gone.
                    tell.send(Ok(told)).await.ok();
                }
                if !part.1.is_over {
                    parts.insert(part.0, part.1);
                    break;
                }
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
                Heard::Page(page) => part.pages.push_back(page),
                Heard::Over(page, rest) => {
                    part.is_over = true;
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
        let mut last = first.clone();
        let mut next = PaginatedListOptions { offset: after, ..Default::default() };
        // A folder in which there was nothing to cut.
        let mut whole = None;
        loop {
            let PaginatedListResult { result, page_token } = self.page(&self.prefix, next).await?;
            let mut is_over = page_token.is_none();
            let mut can_be_cut = false;
            let mut taken = Vec::with_capacity(result.objects.len());
            for found in result.objects {
                let key = found.location.as_ref();
                // What stands for a folder is shown without the slash by which it is in order.
                let is_folder = found.size == 0;
                let slash = if is_folder { DELIMITER } else { "" };
                if key < first.as_str() && format!("{key}{slash}") < first {
                    continue;
                }
                if end.as_deref().is_some_and(|end| key >= end) {
                    is_over = true;
                    break;
                }
                if !is_folder && key < last.as_str() {
                    return Ok(Heard::Unordered);
                }
                can_be_cut = !is_folder;
                if !is_folder {
                    key.clone_into(&mut last);
                }
                if let Some(relative) = self.remote.relative(&found.location) {
                    taken.extend((self.take)(relative, Object::of(&found)));
                }
            }
            pay(price(self.paying.as_ref(), &taken)).await;
            if is_over {
                return Ok(Heard::Over(taken, Vec::new()));
            }
            if !taken.is_empty() {
                say.send((first.clone(), Heard::Page(taken))).await.ok();
            }
            if can_be_cut && whole.as_deref() != Some(folder_of(&last)) {
                let rest = self.cut(&last, end.as_deref()).await;
                if !rest.is_empty() {
                    return Ok(Heard::Over(Vec::new(), rest));
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
    let mut parts =
        vec![Range { first: format!("{last}\0"), end: None, after: Some(last.to_owned()) }];
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
mod tests {
    use std::collections::BTreeSet;
    use std::io;
    use std::sync::Mutex;

    use object_store::client::{HttpError, HttpErrorKind};
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ListResult, ObjectMeta};
    use proptest::prelude::*;

    use super::*;

    /// Pages of a few keys, as S3 lists them; a key that ends with a slash stands for a folder.
    #[derive(Debug)]
    struct Pages {
        keys: BTreeSet<String>,
        page: usize,
        is_ordered: bool,
        asked: Mutex<Vec<(String, bool)>>,
        /// Answers that break off before one comes through.
        n_cut: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl PaginatedListStore for Pages {
        async fn list_paginated(
            &self,
            prefix: Option<&str>,
            next: PaginatedListOptions,
        ) -> object_store::Result<PaginatedListResult> {
            let prefix = prefix.unwrap_or_default();
            self.asked.lock().unwrap().push((prefix.to_owned(), next.delimiter.is_some()));
            tokio::task::yield_now().await;
            let less = |n: usize| n.checked_sub(1);
            if self.n_cut.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                let source = HttpError::new(HttpErrorKind::Interrupted, source);
                return Err(object_store::Error::Generic { store: "S3", source: Box::new(source) });
            }
            let after = next.page_token.or(next.offset).unwrap_or_default();
            let (mut objects, mut folders) = (Vec::new(), BTreeSet::new());
            let mut last = None;
            let mut page_token = None;
            for key in self.keys.iter().filter(|key| key.starts_with(prefix)) {
                if *key <= after || last.as_ref().is_some_and(|last| key.starts_with(last)) {
                    continue;
                }
                if objects.len() + folders.len() == self.page {
                    page_token = Some(objects.last().map(key_of).unwrap_or_default());
                    break;
                }
                let folder = key[prefix.len()..].split_once('/').map(|(name, _)| name);
                if let (Some(name), true) = (folder, next.delimiter.is_some()) {
                    folders.insert(format!("{prefix}{name}"));
                    last = Some(format!("{prefix}{name}/"));
                    continue;
                }
                objects.push(ObjectMeta {
                    location: Path::parse(key).unwrap(),
                    last_modified: chrono::DateTime::default(),
                    size: u64::from(!key.ends_with('/')),
                    e_tag: None,
                    version: key.ends_with('/').then(|| key.clone()),
                });
            }
            if !self.is_ordered {
                objects.reverse();
            }
            let common_prefixes = folders.iter().map(|it| Path::parse(it).unwrap());
            let common_prefixes = common_prefixes.collect();
            let extensions = PaginatedListOptions::default().extensions;
            let result = ListResult { common_prefixes, objects, extensions };
            Ok(PaginatedListResult { result, page_token })
        }
    }

    fn key_of(meta: &ObjectMeta) -> String {
        meta.version.clone().unwrap_or_else(|| meta.location.to_string())
    }

    type Listing = Lister<String, Take>;

    /// Everything in order, and how many pages it came in.
    fn told(lister: Listing, range: Range) -> Option<(Vec<String>, usize)> {
        let (tell, told) = async_channel::bounded(1);
        let all = async move {
            let (mut all, mut n_pages) = (Vec::new(), 0);
            while let Ok(Ok(Told::More(page) | Told::Last(page))) = told.recv().await {
                all.extend(page);
                n_pages += 1;
            }
            (all, n_pages)
        };
        let telling = async move { lister.tell(range, &tell).await.unwrap() };
        let (is_ordered, all) = wait(async { futures::join!(telling, all) });
        is_ordered.then_some(all)
    }

    fn all(lister: Listing) -> Option<Vec<String>> {
        told(lister, Range::default()).map(|(all, _)| all)
    }

    fn lister(keys: BTreeSet<String>, page: usize, prefix: &str) -> (Listing, Arc<Pages>) {
        let pages = Pages {
            keys,
            page,
            is_ordered: true,
            asked: Mutex::default(),
            n_cut: AtomicUsize::new(0),
        };
        let pages = Arc::new(pages);
        let lister = Lister {
            remote: Remote::of_store("s3://b", Arc::new(InMemory::new())),
            pages: Arc::clone(&pages) as _,
            prefix: prefix.to_owned(),
            below: String::new(),
            idle: Arc::default(),
            paying: None,
            take: Arc::new((|path, _| Some(path)) as Take),
        };
        (lister, pages)
    }

    type Take = fn(String, Object) -> Option<String>;

    fn wait<T>(asked: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(asked)
    }

    #[test]
    fn a_long_listing_is_cut_where_folders_begin_and_a_short_one_is_one_request() {
        let keys = |n: usize| (0..n).map(|i| format!("p/{:03}/{i:06}", i / 300)).collect();
        let (long, pages) = lister(keys(30_000), 100, "p/");
        let want: Vec<String> = pages.keys.iter().cloned().collect();
        assert_eq!(all(long).unwrap(), want);
        let asked = pages.asked.lock().unwrap();
        let n_cuts = asked.iter().filter(|(_, is_cut)| *is_cut).count();
        assert!(n_cuts >= 1, "{n_cuts}");
        assert!(asked.len() < 400, "{} requests for 300 pages", asked.len());
        let (short, pages) = lister(keys(100), 100, "p/");
        assert_eq!(all(short).unwrap().len(), 100);
        assert_eq!(pages.asked.lock().unwrap().len(), 1);
        let flat = (0..1_000).map(|i| format!("p/{i:06}")).collect();
        let (flat, pages) = lister(flat, 100, "p/");
        assert_eq!(all(flat).unwrap().len(), 1_000);
        assert_eq!(pages.asked.lock().unwrap().len(), 11, "a flat one is looked at once");
    }

    #[test]
    fn a_listing_goes_on_behind_any_object() {
        let keys: BTreeSet<String> = (0..900).map(|i| format!("p/{:02}/{i:06}", i / 100)).collect();
        for after in ["p/00/000000", "p/03/000399", "p/04/000", "p/08/000899", "p/zz"] {
            let (lister, pages) = lister(keys.clone(), 100, "p/");
            let range =
                Range { first: format!("{after}\0"), end: None, after: Some(after.to_owned()) };
            let (got, _) = told(lister, range).unwrap();
            let want: Vec<_> = keys.iter().filter(|key| key.as_str() > after).cloned().collect();
            assert_eq!(got, want, "{after}");
            let n_asked = pages.asked.lock().unwrap().len();
            assert!(n_asked <= want.len().div_ceil(100) + 12, "{after}: {n_asked} requests");
        }
    }

    #[test]
    fn pages_are_told_before_later_ones_are_there() {
        let keys = (0..5_000).map(|i| format!("p/{:02}/{i:06}", i / 100)).collect();
        let (lister, pages) = lister(keys, 100, "p/");
        let (tell, told) = async_channel::bounded(1);
        wait(async {
            let listing = lister.tell(Range::default(), &tell);
            let first = told.recv();
            futures::pin_mut!(listing, first);
            let futures::future::Either::Right((Ok(Ok(Told::More(page))), _)) =
                futures::future::select(listing, first).await
            else {
                panic!("the first page is not told");
            };
            assert_eq!(page.len(), 100);
        });
        assert!(pages.asked.lock().unwrap().len() < 25);
    }

    #[test]
    fn a_page_that_breaks_off_is_asked_for_again_some_times() {
        for (n_cut, n_listed) in [(CUT_RETRIES, Some(10)), (CUT_RETRIES + 1, None)] {
            let (lister, pages) = lister((0..30).map(|i| format!("p/{i:02}")).collect(), 10, "p/");
            pages.n_cut.store(n_cut, Ordering::Relaxed);
            let page = wait(lister.page("p/", PaginatedListOptions::default()));
            assert_eq!(page.ok().map(|it| it.result.objects.len()), n_listed, "{n_cut} cuts");
        }
    }

    #[test]
    fn a_store_that_lists_out_of_order_is_not_cut() {
        let keys = (0..1_000).map(|i| format!("{:02}/{i:06}", i / 100)).collect();
        let (lister, pages) = lister(keys, 100, "");
        let pages = Pages {
            keys: pages.keys.clone(),
            page: 100,
            is_ordered: false,
            asked: Mutex::default(),
            n_cut: AtomicUsize::new(0),
        };
        assert!(all(Lister { pages: Arc::new(pages), ..lister }).is_none());
    }

    proptest! {
        #[test]
        fn each_object_is_listed_once_whatever_was_cut(
            keys in proptest::collection::btree_set("([ab.!]{1,2}/){0,3}[ab.~0]{1,2}/?", 0..200),
            page in 1_usize..9,
            prefix in prop_oneof![Just(""), Just("a/"), Just("a"), Just("a/b")],
        ) {
            let valid = |key: &String| {
                Path::parse(key).is_ok() && !key.contains("./")
                    && !key.ends_with('.')
            };
            let keys: BTreeSet<String> = keys.into_iter().filter(valid).collect();
            let meant = keys.iter().filter(|key| key.starts_with(prefix));
            let mut want: Vec<_> = meant.map(|key| key.trim_end_matches('/').to_owned()).collect();
            let folders = keys.iter().filter_map(|key| Some(key.strip_suffix('/')?.to_owned()));
            let folders: BTreeSet<String> = folders.collect();
            let (lister, _) = lister(keys, page, prefix);
            let mut got = all(lister).unwrap();
            let objects = got.iter().filter(|path| !folders.contains(*path));
            prop_assert!(objects.is_sorted());
            let n_objects = got.iter().filter(|path| !folders.contains(*path)).count();
            prop_assert_eq!(n_objects, want.iter().filter(|it| !folders.contains(*it)).count());
            for all in [&mut want, &mut got] {
                all.sort();
                all.dedup();
            }
            prop_assert_eq!(got, want);
        }
    }
}
