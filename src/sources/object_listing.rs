//! Which objects of a store a source reads.
//!
//! Leaves out: folders of this machine (`listing`).
//!
//! Invariants:
//! 1. An object is one of those meant if a file of the same path were.
//! 2. What a store keeps to stand for a folder is no input.

use globset::GlobMatcher;

use super::SourceError;
use super::object::as_input;
use super::pattern::{Glob, Pattern};
use crate::inputs::Input;
use crate::remote::{Remote, RemoteError, RemoteErrorKind, Scheme};

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
    let meant = glob.clone();
    let mut found = remote.list(&glob.base, &glob.start, move |path, object| {
        meant.matches(&path).then(|| as_input(path, &object))
    })?;
    sort(&mut found);
    let is_folder = |input: &Input| {
        let inside = format!("{}/", input.path);
        let at = found.partition_point(|other| other.path < inside);
        input.size == 0 && found.get(at).is_some_and(|other| other.path.starts_with(&inside))
    };
    let folders: Vec<String> =
        found.iter().filter(|input| is_folder(input)).map(|input| input.path.clone()).collect();
    found.retain(|input| folders.binary_search(&input.path).is_err());
    Ok(found)
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
