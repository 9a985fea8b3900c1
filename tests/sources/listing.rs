//! What is listed, in which order, and what is refused.

use std::os::unix::fs::symlink;
use std::path::Path;

use rowmill::sources::{SourceError, SourceSpec, listing::Listing};

use super::folder;

fn listing(root: &Path, paths: &[&str]) -> Listing {
    let spec = SourceSpec {
        name: "things".to_owned(),
        paths: paths.iter().map(|&p| p.to_owned()).collect(),
        root: root.to_owned(),
        settings: serde_json::Value::Null,
    };
    Listing::new(&spec).unwrap()
}

fn names(root: &Path, paths: &[&str]) -> Vec<String> {
    listing(root, paths).list().unwrap().into_iter().map(|i| i.path).collect()
}

fn refused(root: &Path, paths: &[&str]) -> SourceError {
    listing(root, paths).list().unwrap_err()
}

#[test]
fn paths_globs_and_lists_name_files_in_byte_order_once() {
    let root = folder(&[
        ("b.txt", b"1"),
        ("a/x.txt", b"22"),
        ("a/y/z.txt", b"333"),
        ("a-b.txt", b""),
        ("B.txt", b""),
        ("a/.hidden.txt", b""),
        (".git/a.txt", b""),
        ("other.csv", b""),
    ]);
    for (paths, want) in [
        (&["b.txt"][..], &["b.txt"][..]),
        (&["*.txt"], &["B.txt", "a-b.txt", "b.txt"]),
        (&["**/*.txt"], &["B.txt", "a-b.txt", "a/x.txt", "a/y/z.txt", "b.txt"]),
        (&["a/**"], &["a/x.txt", "a/y/z.txt"]),
        (&["a/*.txt", "b.txt", "**/x.txt", "./b.txt"], &["a/x.txt", "b.txt"]),
        (&["**/.*"], &["a/.hidden.txt"]),
        (&["*.png"], &[]),
        (&["{a,b}*.txt"], &["a-b.txt", "b.txt"]),
    ] {
        assert_eq!(names(root.path(), paths), want, "{paths:?}");
    }
    let listed = listing(root.path(), &["a/x.txt"]).list().unwrap();
    let found = std::fs::metadata(root.path().join("a/x.txt")).unwrap();
    assert_eq!((listed[0].size, listed[0].modified), (2, found.modified().unwrap()));
}

#[test]
fn what_is_not_there_is_named_with_a_hint() {
    let root = folder(&[("a/x.txt", b"")]);
    for (root, paths, message, hint) in [
        (root.path().join("no"), "**", "is not there", "`root` of source `things`"),
        (root.path().join("a/x.txt"), "**", "is not a folder", "`root` of source `things`"),
        (root.path().to_owned(), "b.txt", "is not in", "correct `path` or `root`"),
        (root.path().to_owned(), "b/*.txt", "is not in", "correct `path` or `root`"),
        (root.path().to_owned(), "a", "is a folder", "`a/**` takes every file below it"),
    ] {
        let error = refused(&root, &[paths]);
        assert!(error.to_string().contains(message), "{paths}: {error}");
        assert!(error.hint().unwrap().contains(hint), "{paths}: {:?}", error.hint());
    }
}

#[test]
fn links_are_followed_within_the_root_only() {
    let outside = folder(&[("secret.txt", b"x"), ("deep/more.txt", b"x")]);
    let out = |name: &str| outside.path().join(name);
    let root = folder(&[("a/x.txt", b"1"), ("plain.txt", b"2")]);
    symlink("x.txt", root.path().join("a/same.txt")).unwrap();
    symlink("a", root.path().join("b")).unwrap();
    let within = ["a/same.txt", "a/x.txt", "b/same.txt", "b/x.txt", "plain.txt"];
    assert_eq!(names(root.path(), &["**"]), within);

    // (link, target, paths that meet it, paths that do not)
    for (link, target, meets, misses) in [
        ("out.txt", out("secret.txt"), "*.txt", "*.csv"),
        ("out.txt", out("secret.txt"), "out.txt", "a/*"),
        ("out", out("deep"), "**", "*.txt"),
        ("out", out("deep"), "out/*.txt", "a/*"),
        ("out", out("deep"), "out/more.txt", "a/*"),
        ("a/up", root.path().to_owned(), "**", "a/x*"),
        ("gone.txt", root.path().join("nothing"), "*.txt", "a/*.txt"),
    ] {
        symlink(&target, root.path().join(link)).unwrap();
        let error = refused(root.path(), &[meets]);
        let is_named = matches!(&error, SourceError::Listing { path, .. } if path.starts_with(link) || path.starts_with("b/up"));
        assert!(is_named, "{link} by {meets}: {error}");
        assert!(error.to_string().contains("is a link that leads"), "{link} by {meets}: {error}");
        listing(root.path(), &[misses]).list().unwrap();
        std::fs::remove_file(root.path().join(link)).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_refused_where_they_are_meant() {
    use std::os::unix::ffi::OsStrExt;
    let root = folder(&[("good.txt", b"")]);
    let bad = std::ffi::OsStr::from_bytes(b"bad\xff.txt");
    std::fs::write(root.path().join(bad), b"").unwrap();
    let error = refused(root.path(), &["*.txt"]);
    assert!(
        error.to_string().contains("`bad\u{fffd}.txt` has a name that is not UTF-8"),
        "{error}"
    );
    assert_eq!(names(root.path(), &["g*.txt"]), ["good.txt"]);
}

#[test]
fn what_is_not_a_file_is_refused() {
    let root = folder(&[("a.txt", b"")]);
    let socket = std::os::unix::net::UnixListener::bind(root.path().join("b.txt")).unwrap();
    let error = refused(root.path(), &["*.txt"]);
    assert!(error.to_string().contains("`b.txt` is not a regular file"), "{error}");
    drop(socket);
}
