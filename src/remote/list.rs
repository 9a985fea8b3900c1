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

use futures::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::DELIMITER;
use tokio::task::JoinSet;

use super::blocking::Pending;
use super::read::Object;
use super::{Remote, RemoteError, RemoteErrorKind};

/// Most pages that are asked for at once.
const AT_ONCE: usize = 16;
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
        let (remote, below, start) = (self.clone(), below.to_owned(), start.to_owned());
        let asked = async move {
            let take = Arc::new(take);
            if let Some(pages) = remote.pages() {
                let folder = remote.path(&below);
                let folder = folder.as_ref();
                let slash = if folder.is_empty() { "" } else { DELIMITER };
                let prefix = format!("{folder}{slash}{start}");
                let lister = Lister {
                    remote: remote.clone(),
                    pages: Arc::clone(pages),
                    prefix,
                    below: below.clone(),
                    idle: Arc::new(AtomicUsize::new(0)),
                    take: Arc::clone(&take),
                };
                if let Some(taken) = lister.list().await? {
                    return Ok(taken);
                }
            }
            remote.list_as_it_comes(&below, &*take).await
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }

    async fn list_as_it_comes<T>(
        &self,
        below: &str,
        take: &(impl Fn(String, Object) -> Option<T> + Sync),
    ) -> Result<Vec<T>, RemoteError> {
        let mut taken = Vec::new();
        let mut listing = self.store().list(Some(&self.path(below)));
        let refused = |e| self.error("list", below, &e);
        while let Some(found) = listing.try_next().await.map_err(refused)? {
            if let Some(relative) = self.relative(&found.location) {
                taken.extend(take(relative, Object::of(&found)));
            }
        }
        Ok(taken)
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

/// What became of a part.
struct Listed<T> {
    first: String,
    taken: Vec<T>,
    /// What is left of it.
    rest: Vec<Range>,
    is_ordered: bool,
}

/// Lists what begins with a prefix.
struct Lister<F> {
    remote: Remote,
    pages: Arc<dyn PaginatedListStore>,
    prefix: String,
    /// What is shown of it.
    below: String,
    /// Requests that may be made beside those that are.
    idle: Arc<AtomicUsize>,
    take: Arc<F>,
}

impl<F> Clone for Lister<F> {
    fn clone(&self) -> Self {
        Self {
            remote: self.remote.clone(),
            pages: Arc::clone(&self.pages),
            prefix: self.prefix.clone(),
            below: self.below.clone(),
            idle: Arc::clone(&self.idle),
            take: Arc::clone(&self.take),
        }
    }
}

impl<F> Lister<F> {
    /// Everything in order; `None` where the store lists out of order.
    async fn list<T: Send + 'static>(self) -> Result<Option<Vec<T>>, RemoteError>
    where
        F: Fn(String, Object) -> Option<T> + Send + Sync + 'static,
    {
        let mut waiting = VecDeque::from([Range::default()]);
        let mut tasks = JoinSet::new();
        let mut parts = BTreeMap::new();
        loop {
            while tasks.len() < AT_ONCE
                && let Some(range) = waiting.pop_front()
            {
                let lister = self.clone();
                tasks.spawn(async move { lister.list_range(range).await });
            }
            let busy = tasks.len() + waiting.len();
            self.idle.store(AT_ONCE.saturating_sub(busy), Ordering::Relaxed);
            let Some(ended) = tasks.join_next().await else { break };
            let ended = ended.map_err(|e| {
                let kind = RemoteErrorKind::Other;
                RemoteError::of("list", self.remote.show(&self.below), kind, Some(e.to_string()))
            })?;
            let Listed { first, taken, rest, is_ordered } = ended?;
            if !is_ordered {
                return Ok(None);
            }
            parts.insert(first, taken);
            waiting.extend(rest);
        }
        let mut all = Vec::with_capacity(parts.values().map(Vec::len).sum());
        for (_, part) in parts {
            all.extend(part);
        }
        Ok(Some(all))
    }

    /// Lists a part to its end, or until it can be cut for requests that may be made.
    async fn list_range<T>(&self, range: Range) -> Result<Listed<T>, RemoteError>
    where
        F: Fn(String, Object) -> Option<T>,
    {
        let Range { first, end, after } = range;
        let (mut taken, mut last) = (Vec::new(), first.clone());
        let mut next = PaginatedListOptions { offset: after, ..Default::default() };
        // A folder in which there was nothing to cut.
        let mut whole = None;
        loop {
            let PaginatedListResult { result, page_token } = self.page(&self.prefix, next).await?;
            let mut is_over = page_token.is_none();
            let mut can_be_cut = false;
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
                    return Ok(Listed { first, taken, rest: Vec::new(), is_ordered: false });
                }
                can_be_cut = !is_folder;
                if !is_folder {
                    key.clone_into(&mut last);
                }
                if let Some(relative) = self.remote.relative(&found.location) {
                    taken.extend((self.take)(relative, Object::of(&found)));
                }
            }
            if is_over {
                return Ok(Listed { first, taken, rest: Vec::new(), is_ordered: true });
            }
            if can_be_cut && whole.as_deref() != Some(folder_of(&last)) {
                let rest = self.cut(&last, end.as_deref()).await;
                if !rest.is_empty() {
                    return Ok(Listed { first, taken, rest, is_ordered: true });
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
        let page = self.pages.list_paginated(prefix, next).await;
        page.map_err(|e| self.remote.error("list", &self.below, &e))
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
    use std::sync::Mutex;

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

    fn lister(keys: BTreeSet<String>, page: usize, prefix: &str) -> (Lister<Take>, Arc<Pages>) {
        let pages = Pages { keys, page, is_ordered: true, asked: Mutex::default() };
        let pages = Arc::new(pages);
        let lister = Lister {
            remote: Remote::of_store("s3://b", Arc::new(InMemory::new())),
            pages: Arc::clone(&pages) as _,
            prefix: prefix.to_owned(),
            below: String::new(),
            idle: Arc::default(),
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
        assert_eq!(wait(long.list()).unwrap().unwrap(), want);
        let asked = pages.asked.lock().unwrap();
        let n_cuts = asked.iter().filter(|(_, is_cut)| *is_cut).count();
        assert!(n_cuts >= 1, "{n_cuts}");
        assert!(asked.len() < 400, "{} requests for 300 pages", asked.len());
        let (short, pages) = lister(keys(100), 100, "p/");
        assert_eq!(wait(short.list()).unwrap().unwrap().len(), 100);
        assert_eq!(pages.asked.lock().unwrap().len(), 1);
        let flat = (0..1_000).map(|i| format!("p/{i:06}")).collect();
        let (flat, pages) = lister(flat, 100, "p/");
        assert_eq!(wait(flat.list()).unwrap().unwrap().len(), 1_000);
        assert_eq!(pages.asked.lock().unwrap().len(), 11, "a flat one is looked at once");
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
        };
        assert!(wait(Lister { pages: Arc::new(pages), ..lister }.list()).unwrap().is_none());
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
            let mut got = wait(lister.list()).unwrap().unwrap();
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
