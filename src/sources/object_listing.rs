//! Which objects of a store a source reads.
//!
//! Leaves out: folders of this machine (`listing`).
//!
//! Invariants:
//! 1. An object is one of those meant if a file of the same path were.
//! 2. What a store keeps to stand for a folder is no input.

use globset::GlobMatcher;

use super::SourceError;
use super::input_pages::{InputPages, Seam};
use super::object::as_input;
use super::pattern::Pattern;
use super::regions::{Walk, regions};
use crate::inputs::Input;
use crate::remote::{Pace, Remote, RemoteErrorKind};

/// The objects at `remote` that the patterns of `source` mean, in no order.
pub(super) fn list(
    remote: &Remote,
    source: &str,
    patterns: &[Pattern],
) -> Result<Vec<Input>, SourceError> {
    let mut found = Vec::new();
    for region in regions(patterns) {
        let more = settled(region.list(remote)?);
        // The list of a single region may be long: it is not copied.
        if found.is_empty() {
            found = more;
        } else {
            found.extend(more);
        }
    }
    found.extend(named(remote, source, patterns, None)?);
    Ok(found)
}

/// The objects that are named by their paths, of those behind the path `behind`.
fn named(
    remote: &Remote,
    source: &str,
    patterns: &[Pattern],
    behind: Option<&str>,
) -> Result<Vec<Input>, SourceError> {
    let paths = patterns.iter().filter(|pattern| pattern.glob.is_none()).map(|it| it.text.as_str());
    let paths = paths.filter(|path| behind.is_none_or(|behind| *path > behind));
    paths.map(|path| single(remote, source, path)).collect()
}

fn single(remote: &Remote, source: &str, path: &str) -> Result<Input, SourceError> {
    let object = remote.head(path).map_err(|e| match e.kind() {
        RemoteErrorKind::NotFound => SourceError::Listing {
            path: path.to_owned(),
            message: format!("is not in `{}`", remote.url()),
            hint: Some(format!("correct `path` or `root` of source `{source}`")),
        },
        _ => SourceError::Remote(e),
    })?;
    Ok(as_input(path.to_owned(), &object))
}

/// The objects that patterns mean, as they are found behind those that were `told`; `None` where they are
/// not listed page by page.
pub(super) fn pages(
    (remote, source): (&Remote, &str),
    patterns: &[Pattern],
    told: &[Input],
    pace: &Pace,
    weigh: fn(&Input) -> u64,
) -> Result<Option<InputPages>, SourceError> {
    let regions = regions(patterns);
    if regions.is_empty() || !remote.has_pages() {
        return Ok(None);
    }
    let seam = Seam::of(told);
    let mut named = named(remote, source, patterns, seam.behind())?;
    sort(&mut named);
    named.dedup_by(|a, b| a.path == b.path);
    // What comes in pages pays for itself.
    if !pace.room.take(named.iter().map(weigh).sum()) {
        return Ok(None);
    }
    let walk = Walk::new(remote, regions, seam.behind(), pace, weigh);
    InputPages::new(walk, named.into(), seam).map(Some)
}

/// The list of these objects: sorted by path, each once, without what stands for folders.
pub(super) fn settled(mut found: Vec<Input>) -> Vec<Input> {
    sort(&mut found);
    let folders = found.iter().filter(|input| is_folder(input, &found));
    let folders: Vec<String> = folders.map(|input| input.path.clone()).collect();
    // An object that is not empty stands for itself, whatever else has its name.
    found.retain(|input| input.size > 0 || folders.binary_search(&input.path).is_err());
    found.dedup_by(|a, b| a.path == b.path);
    found.shrink_to_fit();
    found
}

/// Whether something in a sorted list stands for a folder.
pub(super) fn has_folders(found: &[Input]) -> bool {
    found.iter().any(|input| is_folder(input, found))
}

fn is_folder(input: &Input, found: &[Input]) -> bool {
    let inside = || {
        let inside = format!("{}/", input.path);
        let at = found.partition_point(|other| other.path < inside);
        found.get(at).is_some_and(|other| other.path.starts_with(&inside))
    };
    input.size == 0 && inside()
}

/// Whether a path lies in the folder at `folder`.
pub(super) fn is_inside(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Sorts by path. What is sorted already, as stores list, takes no memory.
pub(super) fn sort(found: &mut [Input]) {
    if !found.is_sorted_by(|a, b| a.path <= b.path) {
        found.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// The first object by name in `folder` that a name glob finds.
pub(super) fn first_in(
    remote: &Remote,
    folder: &str,
    names: &GlobMatcher,
) -> Result<Option<Input>, SourceError> {
    let found = remote.list_folder(folder)?;
    let is_meant = |path: &str| names.is_match(path.rsplit('/').next().unwrap_or_default());
    let meant = found.into_iter().filter(|(path, _)| is_meant(path));
    let first = meant.min_by(|a, b| a.0.cmp(&b.0));
    Ok(first.map(|(path, object)| as_input(path, &object)))
}
