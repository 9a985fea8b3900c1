//! Inputs in object stores as they are listed: told in order before the list is whole.
//!
//! Leaves out: who asks in how many requests (`remote`).
//!
//! Invariants:
//! 1. What is told is sorted by path, each once. What turns out to belong among it is told at the end.
//! 2. Whatever was told and came late, settled, is what [`super::Source::list`] gives.
//! 3. A list that is gone on with is gone on with only where the last that was told of it is found again,
//!    as it was, with nothing between.

use std::collections::VecDeque;

use super::SourceError;
use super::object_listing::{has_folders, is_inside};
use super::regions::Walk;
use crate::inputs::Input;
use crate::remote::{Pages, Told};

/// How many inputs that were told before are looked at again: a page has room for more.
const AGAIN: usize = 100;

/// Fewer inputs are told together with those of the next region.
const TOGETHER: usize = 1_000;

/// What is found next.
#[derive(Debug)]
pub enum Found {
    /// What stands behind all that was found before, if there was some in what came.
    More(Vec<Input>),
    /// There is no more.
    End,
}

/// Whether a list that was told to its end is the one that `Source::list` gives: nothing in it stands for
/// a folder.
#[must_use]
pub fn is_settled(told: &[Input]) -> bool {
    !has_folders(told)
}

/// The same of a list of which no more is told: also nothing that is not told makes a folder of anything
/// in it.
#[must_use]
pub fn is_settled_so_far(told: &[Input]) -> bool {
    let Some(last) = told.last() else { return true };
    // What lies in a folder stands before its name with the character behind the slash.
    let is_passed = |input: &Input| input.size > 0 || format!("{}0", input.path) <= last.path;
    told.iter().all(is_passed) && is_settled(told)
}

/// The inputs of a source, as they are found.
#[derive(Debug)]
pub struct InputPages {
    /// `None` behind the last region.
    pages: Option<Pages<Input>>,
    walk: Walk,
    /// Those that are named by their paths and were not told yet, sorted.
    named: VecDeque<Input>,
    order: Order,
    seam: Seam,
}

impl InputPages {
    /// Those that a walk behind the seam finds, and those that are `named`, sorted, behind it.
    pub(super) fn new(
        mut walk: Walk,
        named: VecDeque<Input>,
        seam: Seam,
    ) -> Result<Self, SourceError> {
        let last = seam.behind().unwrap_or_default().to_owned();
        let order = Order { held: None, last, is_kept: true };
        Ok(Self { pages: walk.next()?, walk, named, order, seam })
    }

    /// Whether what was told before was found again, as far as that was looked at: as it was, and with
    /// nothing between.
    #[must_use]
    pub fn is_as_told(&self) -> bool {
        self.seam.is_as_told
    }

    /// Whether all that was found so far was told in order.
    #[must_use]
    pub fn is_in_order(&self) -> bool {
        self.order.is_kept
    }

    /// Whether it is known that nothing more is found.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.pages.is_none() && self.named.is_empty() && self.seam.is_passed()
    }

    /// Waits for what is found next.
    ///
    /// # Errors
    /// The store's; it was ended before its end.
    pub fn wait(&mut self) -> Result<Found, SourceError> {
        let mut told = Vec::new();
        while !self.is_over() {
            let was_passed = self.seam.is_passed();
            let (more, is_end) = match &mut self.pages {
                None => (Vec::new(), false),
                Some(pages) => match pages.wait()? {
                    Told::More(page) => (self.order.page(self.walk.readable(page)?), false),
                    Told::Last(page) => {
                        let mut more = self.order.page(self.walk.readable(page)?);
                        more.extend(self.order.end());
                        (more, true)
                    }
                    Told::Anew => {
                        self.order.is_kept = false;
                        return Ok(Found::More(told));
                    }
                    Told::End => (self.order.end(), true),
                },
            };
            if is_end {
                self.pages = self.walk.next()?;
            }
            let more = self.with_named(more);
            told.extend(self.seam.pass(more, self.pages.is_none()));
            // Short lists are told together.
            let is_short = is_end && self.pages.is_some() && told.len() < TOGETHER;
            let is_news = self.seam.is_passed() && !was_passed;
            let is_told = !told.is_empty() || is_news;
            if is_told && !is_short || !self.is_in_order() || !self.is_as_told() {
                return Ok(Found::More(told));
            }
        }
        Ok(if told.is_empty() { Found::End } else { Found::More(told) })
    }

    /// What comes next, with those among it that are named, each once; behind the last of the pages, with
    /// all that are.
    fn with_named(&mut self, more: Vec<Input>) -> Vec<Input> {
        if self.named.is_empty() {
            return more;
        }
        let mut all = Vec::with_capacity(more.len());
        for input in more {
            while let Some(named) = self.named.pop_front_if(|named| named.path <= input.path) {
                if named.path < input.path {
                    all.push(named);
                }
            }
            all.push(input);
        }
        if self.pages.is_none() {
            all.extend(self.named.drain(..));
        }
        all
    }
}

/// Where a list is gone on with: what was told last comes again.
#[derive(Debug)]
pub(super) struct Seam {
    /// The path behind which it is listed again.
    behind: Option<String>,
    /// What has to come next.
    expected: VecDeque<Input>,
    is_as_told: bool,
}

impl Seam {
    /// Behind what was `told`.
    pub(super) fn of(told: &[Input]) -> Self {
        let (before, again) = told.split_at(told.len().saturating_sub(AGAIN));
        Self {
            behind: before.last().map(|input| input.path.clone()),
            expected: again.iter().cloned().collect(),
            is_as_told: true,
        }
    }

    /// The path behind which it has to be listed.
    pub(super) fn behind(&self) -> Option<&str> {
        self.behind.as_deref()
    }

    fn is_passed(&self) -> bool {
        self.expected.is_empty()
    }

    /// What was not told before of what comes next; nothing comes behind it if it `is_over`.
    fn pass(&mut self, mut more: Vec<Input>, is_over: bool) -> Vec<Input> {
        let n = self.expected.len().min(more.len());
        // What was told was known by its `ETag`.
        let is_same = |(told, found): (Input, Input)| {
            told.path == found.path && told.size == found.size && told.changed == found.changed
        };
        self.is_as_told &= self.expected.drain(..n).zip(more.drain(..n)).all(is_same);
        self.is_as_told &= !is_over || self.is_passed();
        more
    }
}

/// Puts in order what comes in order of keys, in which a folder has a slash at its end.
#[derive(Debug)]
struct Order {
    /// The last one, which may stand for a folder, as the next will tell.
    held: Option<Input>,
    /// The last path that was told.
    last: String,
    /// Whether nothing came too late.
    is_kept: bool,
}

impl Order {
    /// What can be told when a page has come.
    fn page(&mut self, page: Vec<Input>) -> Vec<Input> {
        let mut more = Vec::with_capacity(page.len() + 1);
        for input in page {
            if let Some(held) = self.held.take()
                && held.path != input.path
                && !is_inside(&held.path, &input.path)
            {
                self.put(held, &mut more);
            }
            if input.size == 0 {
                self.held = Some(input);
            } else {
                self.put(input, &mut more);
            }
        }
        if let Some(input) = more.last() {
            self.last.clone_from(&input.path);
        }
        more
    }

    fn end(&mut self) -> Vec<Input> {
        let mut more = Vec::new();
        if let Some(held) = self.held.take() {
            self.put(held, &mut more);
        }
        more
    }

    fn put(&mut self, input: Input, more: &mut Vec<Input>) {
        let last = more.last().map_or(&self.last, |input| &input.path);
        if *last < input.path {
            more.push(input);
        } else {
            self.is_kept = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::super::object_listing::settled;
    use super::*;

    fn input(key: &str, size: u64) -> Input {
        let modified = SystemTime::UNIX_EPOCH;
        let path = key.trim_end_matches('/').to_owned();
        Input { path, size, modified, changed: Some(modified) }
    }

    /// What is told of keys in the order in which stores list them, if it is all.
    fn told(keys: &[(&str, u64)], page: usize) -> (Vec<Input>, bool) {
        let mut order = Order { held: None, last: String::new(), is_kept: true };
        let mut told = Vec::new();
        for page in keys.chunks(page) {
            told.extend(order.page(page.iter().map(|(key, size)| input(key, *size)).collect()));
        }
        told.extend(order.end());
        assert!(told.is_sorted_by(|a, b| a.path < b.path));
        let is_all = order.is_kept && is_settled(&told);
        (told, is_all)
    }

    #[test]
    fn what_stands_for_a_folder_is_not_told_and_what_proves_to_be_one_is_found_out() {
        for (name, keys, want, is_all) in [
            ("folder", &[("a/", 0), ("a/x", 1), ("b", 1)][..], &["a/x", "b"][..], true),
            ("twice", &[("a/", 0), ("a/", 0), ("a/x", 1)], &["a/x"], true),
            ("empty", &[("a", 0), ("b", 0), ("c", 1)], &["a", "b", "c"], true),
            ("last", &[("a", 1), ("b", 0)], &["a", "b"], true),
            ("inner", &[("a/", 0), ("a/b/", 0), ("a/b/x", 1)], &["a/b/x"], true),
            ("behind others", &[("a-1", 1), ("a/", 0), ("a/x", 1)], &["a-1", "a/x"], true),
            ("late", &[("a-1", 1), ("a/", 0), ("b", 1)], &["a-1", "b"], false),
            ("both", &[("a", 0), ("a-1", 1), ("a/x", 1)], &["a", "a-1", "a/x"], false),
        ] {
            for page in 1..4 {
                let (told, is_told) = told(keys, page);
                let paths: Vec<_> = told.iter().map(|input| input.path.as_str()).collect();
                assert_eq!(paths, want, "{name}");
                assert_eq!(is_told, is_all, "{name}");
            }
        }
    }

    #[test]
    fn a_list_is_gone_on_with_where_what_was_told_is_found_again() {
        let list = |n: u64| (0..n).map(|i| input(&format!("{i:04}"), i)).collect::<Vec<_>>();
        let changed = |at: usize, to: fn(&mut Input)| {
            let mut list = list(160);
            to(&mut list[at]);
            list
        };
        let without = |at: usize| {
            let mut list = list(160);
            list.remove(at);
            list
        };
        let with = |path: &str| {
            let mut list = list(160);
            list.push(input(path, 1));
            list.sort_by(|a, b| a.path.cmp(&b.path));
            list
        };
        let other_tag = |input: &mut Input| input.changed = None;
        let copied = changed(70, |input| input.modified = SystemTime::now());
        let as_told = [
            ("nothing new", list(150), true),
            ("more", list(160), true),
            ("another time of the same state", copied, true),
            ("another tag", changed(149, other_tag), false),
            ("another size", changed(50, |input| input.size = 0), false),
            ("one gone", without(149), false),
            ("one gone before", without(60), false),
            ("one added", with("0149a"), true),
            ("one added before", with("0148a"), false),
            ("all gone", list(0), false),
            ("the last gone", list(149), false),
        ];
        for (name, now, want) in as_told {
            for page in [1, 7, 1_000] {
                let mut seam = Seam::of(&list(150));
                assert_eq!(seam.behind(), Some("0049"));
                let listed: Vec<_> =
                    now.iter().filter(|it| it.path.as_str() > "0049").cloned().collect();
                let mut more = Vec::new();
                for page in listed.chunks(page) {
                    more.extend(seam.pass(page.to_vec(), false));
                }
                more.extend(seam.pass(Vec::new(), true));
                assert_eq!(seam.is_as_told, want, "{name}");
                if want {
                    assert!(more == now[150..], "{name}");
                }
            }
        }
        let few = Seam::of(&list(3));
        assert!(few.behind().is_none() && !few.is_passed() && Seam::of(&[]).is_passed());
    }

    #[test]
    fn what_may_still_be_a_folder_is_not_settled() {
        for (name, keys, want) in [
            ("nothing", &[][..], true),
            ("full", &[("a", 1), ("b", 1)], true),
            ("the last", &[("a", 1), ("b", 0)], false),
            ("before what may lie in it", &[("a", 0), ("a-1", 1)], false),
            ("passed", &[("a", 0), ("a-1", 1), ("a0", 1)], true),
            ("one", &[("a", 0), ("a-1", 1), ("a/x", 1), ("b", 1)], false),
        ] {
            let told: Vec<_> = keys.iter().map(|(key, size)| input(key, *size)).collect();
            assert_eq!(is_settled_so_far(&told), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn what_is_told_in_order_is_the_whole_list(
            keys in proptest::collection::btree_map(
                "([ab.!]{1,2}/){0,3}[ab.~0]{1,2}/?", 0_u64..3, 0..60,
            ),
            page in 1_usize..9,
        ) {
            let size = |key: &str, size: u64| if key.ends_with('/') { 0 } else { size };
            let keys: Vec<_> =
                keys.iter().map(|(key, n)| (key.as_str(), size(key, *n))).collect();
            let whole = settled(keys.iter().map(|(key, size)| input(key, *size)).collect());
            let (told, is_all) = told(&keys, page);
            prop_assert!(!is_all || told == whole, "{told:?} {whole:?}");
        }
    }
}
