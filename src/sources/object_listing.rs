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
use super::pattern::{Glob, Pattern};
use crate::inputs::Input;
use crate::remote::{Object, Pace, Remote, RemoteError, RemoteErrorKind, Scheme};

/// The objects at `remote` that the patterns of `source` mean, in no order.
pub(super) fn list(
    remote: &Remote,
    source: &str,
    patterns: &[Pattern],
) -> Result<Vec<Input>, SourceError> {
    let mut found = Vec::new();
    for pattern in patterns {
        match &pattern.glob {
            None => found.push(single(remote, source, &pattern.text)?),
            // The list of a single glob may be long: it is not copied.
            Some(glob) if found.is_empty() => found = below(remote, glob)?,
            Some(glob) => found.extend(below(remote, glob)?),
        }
    }
    Ok(found)
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

fn below(remote: &Remote, glob: &Glob) -> Result<Vec<Input>, SourceError> {
    if remote.scheme() == Scheme::Http {
        let kind = RemoteErrorKind::Unsupported;
        let said = "a web server does not list: name each file in `path`".to_owned();
        return Err(RemoteError::of("list", remote.url(), kind, Some(said)).into());
    }
    let found = remote.list(&glob.base, &glob.start, taking(glob))?;
    Ok(settled(found))
}

/// The objects that a glob means, as they are found behind those that were `told`; `None` where they are
/// not listed page by page.
pub(super) fn pages(
    remote: &Remote,
    glob: &Glob,
    told: &[Input],
    pace: &Pace,
    weigh: fn(&Input) -> u64,
) -> Result<Option<InputPages>, SourceError> {
    let meant = (glob.base.as_str(), glob.start.as_str());
    let seam = Seam::of(told);
    let pages = remote.list_pages(meant, seam.behind(), pace, weigh, taking(glob))?;
    Ok(pages.map(|pages| InputPages::new(pages, seam)))
}

/// Takes the objects that a glob means.
fn taking(glob: &Glob) -> impl Fn(String, Object) -> Option<Input> + Send + Sync + 'static {
    let meant = glob.clone();
    move |path, object| meant.matches(&path).then(|| as_input(path, &object))
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
