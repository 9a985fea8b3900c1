//! Listings of stores of a few keys, in the order that S3 promises and in others.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ListResult, ObjectMeta};
use proptest::prelude::*;

use super::*;

/// By what a store sorts its keys.
type Order = fn(&str) -> Vec<u8>;

/// The order that is promised.
const BYTES: Order = |key| key.as_bytes().to_vec();

/// Others that stores have been seen to keep, and worse.
const OTHERS: [(&str, Order); 5] = [
    ("of folders", |key| key.replace('/', "\u{0}").into_bytes()),
    ("of letters", |key| key.to_lowercase().into_bytes()),
    ("of units", |key| key.encode_utf16().flat_map(u16::to_be_bytes).collect()),
    ("backwards", |key| key.bytes().map(|byte| !byte).chain([u8::MAX]).collect()),
    ("of hashes", |key| blake3::hash(key.as_bytes()).as_bytes().to_vec()),
];

/// Pages of a few keys, as S3 lists them; a key that ends with a slash stands for a folder.
#[derive(Debug)]
struct Pages {
    /// Sorted by `order`.
    keys: Vec<String>,
    page: usize,
    order: Order,
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
        let after_by = (self.order)(&after);
        let is_before = |key: &String| ((self.order)(key), key) <= (after_by.clone(), &after);
        let first = if after.is_empty() { 0 } else { self.keys.partition_point(is_before) };
        for key in self.keys[first..].iter().filter(|key| key.starts_with(prefix)) {
            if last.as_ref().is_some_and(|last| key.starts_with(last)) {
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
    ordered(keys, page, prefix, BYTES)
}

fn ordered(
    keys: BTreeSet<String>,
    page: usize,
    prefix: &str,
    order: Order,
) -> (Listing, Arc<Pages>) {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by_cached_key(|key| (order(key), key.clone()));
    let pages = Pages { keys, page, order, asked: Mutex::default(), n_cut: AtomicUsize::new(0) };
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
    assert_eq!(all(long).unwrap(), pages.keys);
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
        let (got, _) = told(lister, Range::behind(after.to_owned())).unwrap();
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
fn no_object_is_lost_where_a_store_lists_out_of_order() {
    let key = |i: usize| {
        let folder = ["a", "B", "a-1", "\u{ff5e}", "😀", "C-é"][i % 6];
        format!("p/{folder}/{}{i:06}", ["", "Z/", "z.0/"][i % 5 % 3])
    };
    let keys: BTreeSet<String> = (0..3_000).map(key).collect();
    for (name, order) in OTHERS {
        let (lister, pages) = ordered(keys.clone(), 100, "p/", order);
        assert!(!pages.keys.is_sorted(), "{name}");
        assert_eq!(all(lister), None, "{name}");
    }
}

#[test]
fn a_part_that_ends_elsewhere_than_the_next_begins_is_noticed() {
    // In order as far as each part goes; folders in capitals lie where other cases put them.
    let keys = |folder: &'static str, n: usize| (0..n).map(move |i| format!("{folder}/{i:04}"));
    let keys = ["a", "b", "c"].into_iter().flat_map(|folder| keys(folder, 150)).chain(keys("B", 1));
    let (lister, pages) = ordered(keys.collect(), 100, "", OTHERS[1].1);
    assert_eq!(all(lister), None);
    assert!(pages.asked.lock().unwrap().len() < 12);
}

/// What is told before it is said that it does not count, and whether it is said.
fn told_so_far(lister: Listing, range: Range) -> (Vec<String>, bool) {
    let (tell, told) = async_channel::bounded(10_000);
    let is_all = wait(lister.tell(range, &tell)).unwrap();
    let mut so_far = Vec::new();
    while let Ok(Ok(Told::More(page) | Told::Last(page))) = told.try_recv() {
        so_far.extend(page);
    }
    (so_far, is_all)
}

proptest! {
    #[test]
    fn what_is_told_is_unbroken_whatever_order_a_store_keeps(
        keys in proptest::collection::btree_set("([abAB.]{1,2}/){0,3}[abA.~\u{ff5e}😀0]{1,2}", 0..120),
        page in 1_usize..9,
        at in any::<proptest::sample::Index>(),
        (_, order) in proptest::sample::select([&[("", BYTES)], &OTHERS[..]].concat()),
    ) {
        let valid = |key: &String| {
            Path::parse(key).is_ok() && !key.contains("./") && !key.ends_with('.')
        };
        let keys: BTreeSet<String> = keys.into_iter().filter(valid).collect();
        let (lister, pages) = ordered(keys, page, "", order);
        let (so_far, is_all) = told_so_far(lister.clone(), Range::default());
        prop_assert!(pages.keys.starts_with(&so_far), "{:?} {so_far:?}", pages.keys);
        prop_assert!(!is_all || pages.keys == so_far, "{:?} {so_far:?}", pages.keys);
        prop_assert!(so_far.is_sorted());
        // It goes on behind any of them.
        if !so_far.is_empty() {
            let n = at.index(so_far.len());
            let (rest, is_all) = told_so_far(lister, Range::behind(so_far[n].clone()));
            let want = &pages.keys[n + 1..];
            prop_assert!(want.starts_with(&rest), "{want:?} {rest:?}");
            prop_assert!(!is_all || want == rest, "{want:?} {rest:?}");
        }
    }

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
