//! Which parts of a store are listed for several paths and globs, and in which order.
//!
//! Leaves out: what an object is as an input (`object`), and what stands for folders (`object_listing`).
//!
//! Invariants:
//! 1. No key lies in two regions, and all keys of one stand before all keys of the next: their lists, one
//!    after another, are sorted and name each object once.
//! 2. An object in a region is meant if one of its globs means it.

use std::collections::VecDeque;

use super::SourceError;
use super::object::as_input;
use super::pattern::{Glob, Pattern};
use crate::inputs::Input;
use crate::remote::{Object, Pace, Pages, Remote, RemoteError, RemoteErrorKind, Scheme};

/// All keys that begin alike, and what is meant of them.
#[derive(Debug, Clone)]
pub(super) struct Region {
    /// The folder, and how names in it begin.
    below: String,
    start: String,
    globs: Vec<Glob>,
}

/// The regions in which `patterns` find what they mean, in order; paths that are no globs have none.
pub(super) fn regions(patterns: &[Pattern]) -> VecDeque<Region> {
    let globs = patterns.iter().filter_map(|pattern| pattern.glob.clone());
    let mut alone: Vec<_> = globs
        .map(|glob| Region {
            below: glob.base.clone(),
            start: glob.start.clone(),
            globs: vec![glob],
        })
        .collect();
    alone.sort_by_cached_key(Region::prefix);
    let mut regions: VecDeque<Region> = VecDeque::new();
    for region in alone {
        match regions.back_mut() {
            Some(before) if region.prefix().starts_with(&before.prefix()) => {
                before.globs.extend(region.globs);
            }
            _ => regions.push_back(region),
        }
    }
    regions
}

impl Region {
    /// What its paths begin with.
    fn prefix(&self) -> String {
        let slash = if self.below.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.below, self.start)
    }

    /// All that is meant in it.
    pub(super) fn list(self, remote: &Remote) -> Result<Vec<Input>, SourceError> {
        if remote.scheme() == Scheme::Http {
            let kind = RemoteErrorKind::Unsupported;
            let said = "a web server does not list: name each file in `path`".to_owned();
            return Err(RemoteError::of("list", remote.url(), kind, Some(said)).into());
        }
        let (below, start) = (self.below.clone(), self.start.clone());
        without_markers(remote, remote.list(&below, &start, self.taking())?)
    }

    /// Whether all of it stands before a path, or is that path.
    fn is_before(&self, path: &str) -> bool {
        let prefix = self.prefix();
        prefix.as_str() < path && !path.starts_with(&prefix)
    }

    fn taking(self) -> impl Fn(String, Object) -> Option<Input> + Send + Sync + 'static {
        move |path, object| {
            let is_meant = self.globs.iter().any(|glob| glob.matches(&path));
            is_meant.then(|| as_input(path, &object))
        }
    }
}

/// Lists regions one after another, each when it is asked for.
#[derive(Debug)]
pub(super) struct Walk {
    remote: Remote,
    regions: VecDeque<Region>,
    behind: Option<String>,
    pace: Pace,
    weigh: fn(&Input) -> u64,
}

impl Walk {
    /// Begins behind the path `behind`, if one is named.
    pub(super) fn new(
        remote: &Remote,
        mut regions: VecDeque<Region>,
        behind: Option<&str>,
        pace: &Pace,
        weigh: fn(&Input) -> u64,
    ) -> Self {
        regions.retain(|region| behind.is_none_or(|behind| !region.is_before(behind)));
        let (remote, pace) = (remote.clone(), pace.clone());
        Self { remote, regions, behind: behind.map(ToOwned::to_owned), pace, weigh }
    }

    /// What of a page of these lists is an object that can be read.
    pub(super) fn readable(&self, page: Vec<Input>) -> Result<Vec<Input>, SourceError> {
        without_markers(&self.remote, page)
    }

    /// Begins to list the next region; `None` behind the last one, and where the place does not list page
    /// by page.
    pub(super) fn next(&mut self) -> Result<Option<Pages<Input>>, SourceError> {
        let Some(region) = self.regions.pop_front() else { return Ok(None) };
        let (below, start) = (region.below.clone(), region.start.clone());
        let prefix = region.prefix();
        let behind = self.behind.as_deref().filter(|behind| behind.starts_with(&prefix));
        let meant = (below.as_str(), start.as_str());
        Ok(self.remote.list_pages(meant, behind, &self.pace, self.weigh, region.taking())?)
    }
}

/// Those of what was listed that can be read. Consoles keep an empty object `a/` to stand for the folder
/// `a`, which is listed as `a`, and no object has that name.
fn without_markers(remote: &Remote, mut listed: Vec<Input>) -> Result<Vec<Input>, SourceError> {
    let has_keys = matches!(remote.scheme(), Scheme::S3 | Scheme::Gcs | Scheme::Azure);
    if !has_keys || listed.iter().all(|input| input.size > 0) {
        return Ok(listed);
    }
    let empty = listed.iter().filter(|input| input.size == 0).map(|input| input.path.clone());
    let mut are_there = remote.are_there(empty.collect())?.into_iter();
    listed.retain(|input| input.size > 0 || are_there.next() == Some(true));
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_one_region_is_listed_once_for_all_globs() {
        for (name, patterns, want) in [
            ("one", &["a/*.txt"][..], &["a/"][..]),
            ("same", &["**/*.jpg", "**/*.png"], &[""]),
            ("inner", &["b/x/*.txt", "a/*", "b/**"], &["a/", "b/"]),
            ("names", &["a1*", "a*/b", "a/*"], &["a"]),
            ("beside", &["2024/*", "2023/*", "2023-*/x"], &["2023-", "2023/", "2024/"]),
            ("paths", &["x.txt", "y.txt"], &[]),
        ] {
            let patterns: Vec<_> = patterns.iter().map(|it| Pattern::new(it).unwrap()).collect();
            let found: Vec<_> = regions(&patterns).iter().map(Region::prefix).collect();
            assert_eq!(found, want, "{name}");
            assert!(found.is_sorted(), "{name}");
            let n_globs: usize = regions(&patterns).iter().map(|it| it.globs.len()).sum();
            assert_eq!(n_globs, patterns.iter().filter(|it| it.glob.is_some()).count(), "{name}");
        }
    }

    #[test]
    fn a_walk_goes_on_in_the_region_where_it_ended() {
        let patterns = ["a/*", "b/*", "c/*"].map(|it| Pattern::new(it).unwrap());
        for (behind, want) in
            [("a", 3), ("a/x", 3), ("a0", 2), ("b", 2), ("b/x", 2), ("c/", 1), ("d", 0)]
        {
            let left = regions(&patterns).into_iter().filter(|region| !region.is_before(behind));
            assert_eq!(left.count(), want, "{behind}");
        }
    }
}
