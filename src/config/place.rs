//! Where a source's inputs are, and what their paths are there.
//!
//! Leaves out: reaching them (`sources`).
//!
//! Invariant: paths are part of the identity and say nothing of where things are; `root` says that, also
//! where one URL gave both.

use std::path::{Path, PathBuf};

use super::error::{At, Problem};
use super::read::Reader;
use crate::remote::{self, RemoteError, is_url};

/// Reads `root` and `path`: the root, and the paths below it.
pub(super) fn read(
    reader: &mut Reader<'_>,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> (PathBuf, Vec<String>) {
    let paths = paths(reader, problems);
    let root = reader.text("root", problems).map(|(root, at)| (root.to_owned(), at.clone()));
    if let Some((_, at)) = paths.iter().find(|(path, _)| is_url(path)) {
        let found = match &root {
            None => of_urls(&paths, at),
            Some(_) => Err(Problem::new(at, "`path` is a URL, and `root` says where it is")
                .hint("let `root` be the URL, and `path` relative to it; or leave `root` out")),
        };
        return found.unwrap_or_else(|problem| {
            problems.push(problem);
            (folder.to_owned(), Vec::new())
        });
    }
    for (path, at) in &paths {
        problems.extend(check_path(path, at).err());
    }
    let root = match root {
        Some((root, at)) if is_url(&root) => {
            problems.extend(check_place(&root, &at).err());
            PathBuf::from(root)
        }
        Some((root, at)) => {
            problems.extend(check_text("root", &root, &at).err());
            folder.join(root)
        }
        None => folder.to_owned(),
    };
    (root, paths.into_iter().map(|(path, _)| path).collect())
}

fn paths(reader: &mut Reader<'_>, problems: &mut Vec<Problem>) -> Vec<(String, At)> {
    let n_before = problems.len();
    let Some((texts, at)) = reader.texts("path", problems) else {
        if problems.len() == n_before {
            problems.push(reader.missing("path", "\"*.csv\", relative to `root`"));
        }
        return Vec::new();
    };
    if texts.is_empty() && problems.len() == n_before {
        problems.push(Problem::new(at, "`path` is an empty list").hint("name a path or a glob"));
    }
    texts.into_iter().map(|(path, at)| (path.to_owned(), at.clone())).collect()
}

/// The place that URLs share, and their paths in it.
fn of_urls(urls: &[(String, At)], first: &At) -> Result<(PathBuf, Vec<String>), Problem> {
    let mut places = Vec::new();
    for (url, at) in urls {
        places.push(remote::split(url).map_err(|e| refused("path", &e, at))?);
    }
    let roots: Vec<&str> = places.iter().map(|(root, _)| root.as_str()).collect();
    let root = shared_folder(&roots).ok_or_else(|| {
        Problem::new(first, "the URLs in `path` are of several places")
            .hint("one source reads from one bucket or host; use a source for each")
    })?;
    let mut paths = Vec::new();
    for ((of, rest), (_, at)) in places.iter().zip(urls) {
        let between = of.strip_prefix(&root).unwrap_or_default().trim_start_matches('/');
        let path = if between.is_empty() { rest.clone() } else { format!("{between}/{rest}") };
        check_path(&path, at)?;
        paths.push(path);
    }
    Ok((PathBuf::from(root), paths))
}

/// The longest folder that all are or lie below; `None` if they share not even a bucket or host.
fn shared_folder(roots: &[&str]) -> Option<String> {
    let first = roots.first()?;
    if roots.iter().all(|root| root == first) {
        return Some((*first).to_owned());
    }
    // A query belongs to one file.
    if roots.iter().any(|root| root.contains('?')) {
        return None;
    }
    let parts = |root: &&str| root.split('/').map(ToOwned::to_owned).collect::<Vec<_>>();
    let mut shared = parts(first);
    for root in roots {
        let n = shared.iter().zip(parts(root)).take_while(|(a, b)| **a == *b).count();
        shared.truncate(n);
    }
    // Scheme, nothing, and bucket or host.
    (shared.len() >= 3).then(|| shared.join("/"))
}

/// Checks that a URL can be a root. What it names is looked at when it is listed.
fn check_place(url: &str, at: &At) -> Result<(), Problem> {
    // With any name behind it, it is the URL of an input, whose query is in the same place.
    let (place, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let input = format!("{}/x{query}", place.trim_end_matches('/'));
    remote::split(&input).map(|_| ()).map_err(|e| refused("root", &e, at))
}

fn refused(key: &str, error: &RemoteError, at: &At) -> Problem {
    let problem = Problem::new(at, format!("`{key}`: {error}"));
    match error.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}

/// Checks that a path can be part of the identity: that it says nothing of where things are.
fn check_path(path: &str, at: &At) -> Result<(), Problem> {
    check_text("path", path, at)?;
    if path.starts_with('/') {
        return Err(Problem::new(at, "`path` is absolute")
            .hint("put the folder in `root`, which is no part of the dataset, and the rest here"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Problem::new(at, "`path` leads out of its root")
            .hint("let `root` be a folder that holds everything, and take `..` out of `path`"));
    }
    Ok(())
}

fn check_text(key: &str, path: &str, at: &At) -> Result<(), Problem> {
    if path.is_empty() {
        return Err(
            Problem::new(at, format!("`{key}` is empty")).hint("\".\" is the folder itself")
        );
    }
    if path.contains('\0') {
        return Err(Problem::new(at, format!("`{key}` holds a zero byte")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_share_the_folder_that_all_lie_below() {
        for (roots, shared) in [
            (&["s3://b/a", "s3://b/a"][..], Some("s3://b/a")),
            (&["s3://b/a/x", "s3://b/a/y"], Some("s3://b/a")),
            (&["s3://b/a", "s3://b"], Some("s3://b")),
            (&["s3://b/ab", "s3://b/a"], Some("s3://b")),
            (&["s3://b", "s3://c"], None),
            (&["s3://b", "gs://b"], None),
            (&["https://h/a?s=1", "https://h/a?s=1"], Some("https://h/a?s=1")),
            (&["https://h/a?s=1", "https://h/a?s=2"], None),
        ] {
            assert_eq!(shared_folder(roots).as_deref(), shared, "{roots:?}");
        }
    }
}
