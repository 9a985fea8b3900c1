//! What every implementation of [`Storage`] must do, as one suite for all of them.
//!
//! It leaves out what a power cut may undo: no storage but the model can show that.
//!
//! Invariants:
//! 1. The suite tells storages apart by their answers only, kinds of errors included, never by
//!    what they are.

use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Entry, EntryKind, Lock, Result, Storage};

type Check = fn(&dyn Storage, &Path);

const CHECKS: [(&str, Check); 15] = [
    ("append and read back", append_and_read_back),
    ("create refuses an existing name", create_refuses_an_existing_name),
    ("open_append cuts", open_append_cuts),
    ("open_append leaves a shorter file alone", open_append_leaves_a_shorter_file_alone),
    ("syncers", syncers),
    ("map", map),
    ("directories", directories),
    ("list and stat", list_and_stat),
    ("rename files", rename_files),
    ("rename directories", rename_directories),
    ("remove", remove),
    ("links", links),
    ("lock", lock),
    ("times", times),
    ("what is made of the rest", what_is_made_of_the_rest),
];

/// Tries everything that [`Storage`] promises, in the existing empty directory `root`.
///
/// # Panics
/// If `storage` breaks a promise; the message says which.
pub fn check(storage: &dyn Storage, root: &Path) {
    for (n, (name, check)) in CHECKS.iter().enumerate() {
        let dir = root.join(n.to_string());
        ok(name, storage.create_dir(&dir));
        check(storage, &dir);
    }
    ok("free_bytes", storage.free_bytes(&root.join("not/there/yet")));
    ok("check_writable", storage.check_writable(&root.join("not/there/yet")));
}

fn ok<T>(what: &str, result: Result<T>) -> T {
    result.unwrap_or_else(|e| panic!("{what}: {e}: {}", e.source))
}

fn fails<T: Debug>(what: &str, kind: ErrorKind, result: Result<T>) {
    match result {
        Ok(answer) => panic!("{what}: should have failed and answered {answer:?}"),
        Err(e) => assert_eq!(e.source.kind(), kind, "{what}: {e}: {}", e.source),
    }
}

fn file(storage: &dyn Storage, path: &Path, bytes: &[u8]) {
    let mut file = ok("create", storage.create(path));
    ok("append", file.append(bytes));
    ok("sync", file.sync());
}

fn bytes(storage: &dyn Storage, path: &Path) -> Option<Vec<u8>> {
    ok("read", storage.read(path))
}

fn names(storage: &dyn Storage, dir: &Path) -> Vec<String> {
    let entries =
        ok("list", storage.list(dir)).unwrap_or_else(|| panic!("`{}` is not there", dir.display()));
    entries.into_iter().map(|e| e.name).collect()
}

fn append_and_read_back(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    let mut want = Vec::new();
    let mut file = ok("create", storage.create(&path));
    assert!(file.is_empty());
    for (n, len) in [0_usize, 1, 4095, 1, 10_000, 0, 7].into_iter().enumerate() {
        let piece = vec![u8::try_from(n).unwrap_or(0) + 1; len];
        ok("append", file.append(&piece));
        want.extend(piece);
        assert_eq!(file.len(), want.len() as u64, "len after appending {len} bytes");
    }
    assert_eq!(bytes(storage, &path), Some(want.clone()), "seen before it was synced");
    ok("sync", file.sync());
    ok("sync again", file.sync());
    drop(file);
    let file = ok("open", storage.open(&path));
    assert_eq!(file.len(), want.len() as u64);
    let mut buf = [0; 100];
    ok("read in the middle", file.read_at(&mut buf, 4050));
    assert_eq!(Some(&buf[..]), want.get(4050..4150));
    ok("read nothing at the end", file.read_at(&mut [], want.len() as u64));
    let behind = want.len() as u64 - 99;
    fails("read over the end", ErrorKind::UnexpectedEof, file.read_at(&mut buf, behind));
    fails("read far behind the end", ErrorKind::UnexpectedEof, file.read_at(&mut buf, 1 << 40));
    fails("open what is not there", ErrorKind::NotFound, storage.open(&dir.join("b")));
    assert_eq!(bytes(storage, &dir.join("b")), None);
}

fn create_refuses_an_existing_name(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    file(storage, &path, b"kept");
    fails("create again", ErrorKind::AlreadyExists, storage.create(&path));
    assert_eq!(bytes(storage, &path).as_deref(), Some(&b"kept"[..]));
    fails("create over a directory", ErrorKind::AlreadyExists, storage.create(dir));
    let nowhere = dir.join("missing/a");
    fails("create in a missing directory", ErrorKind::NotFound, storage.create(&nowhere));
    fails("create below a file", ErrorKind::NotADirectory, storage.create(&path.join("a")));
}

fn open_append_cuts(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    file(storage, &path, &[1; 10_000]);
    for (name, len, add, want) in
        [("to a page", 4096, 0, 4096), ("within", 4000, 200, 4200), ("nothing", 4200, 1, 4201)]
    {
        let mut file = ok("open_append", storage.open_append(&path, len));
        assert_eq!(file.len(), len, "{name}");
        ok("append", file.append(&vec![2; add]));
        ok("sync", file.sync());
        assert_eq!(bytes(storage, &path).map(|b| b.len()), Some(want), "{name}");
    }
    let mut want = [[1; 4000].as_slice(), &[2; 201]].concat();
    assert_eq!(bytes(storage, &path), Some(want.clone()));
    want.clear();
    ok("cut to nothing", storage.open_append(&path, 0));
    assert_eq!(bytes(storage, &path), Some(want));
}

fn open_append_leaves_a_shorter_file_alone(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    file(storage, &path, b"1234");
    fails("open_append", ErrorKind::UnexpectedEof, storage.open_append(&path, 5));
    fails("open_append", ErrorKind::UnexpectedEof, storage.open_append(&path, u64::MAX));
    assert_eq!(bytes(storage, &path).as_deref(), Some(&b"1234"[..]));
    let missing = storage.open_append(&dir.join("b"), 0);
    fails("open_append what is not there", ErrorKind::NotFound, missing);
}

fn syncers(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    let mut file = ok("create", storage.create(&path));
    ok("append", file.append(b"one"));
    let mut syncer = file.syncer();
    ok("append", file.append(b"two"));
    let outcome = std::thread::spawn(move || syncer.sync()).join();
    ok(
        "sync on another thread",
        outcome.unwrap_or_else(|_| panic!("the syncing thread fell over")),
    );
    let mut late = file.syncer();
    ok("append", file.append(b"three"));
    ok("sync", file.sync());
    drop(file);
    ok("sync after the file was closed", late.sync());
    assert_eq!(bytes(storage, &path).as_deref(), Some(&b"onetwothree"[..]));
}

fn map(storage: &dyn Storage, dir: &Path) {
    for (name, len) in [("empty", 0), ("small", 1), ("large", 100_000)] {
        let path = dir.join(name);
        let want: Vec<u8> = (0..len).map(|n: u32| n.to_le_bytes()[0] ^ 0x5a).collect();
        file(storage, &path, &want);
        let mapped = ok("map", storage.map(&path));
        assert_eq!(mapped, want, "{name}");
        ok("remove", storage.remove_file(&path));
        assert_eq!(mapped, want, "{name}, removed while it is mapped");
    }
    fails("map what is not there", ErrorKind::NotFound, storage.map(&dir.join("missing")));
}

fn directories(storage: &dyn Storage, dir: &Path) {
    let deep = dir.join("a/b/c");
    fails("create_dir", ErrorKind::NotFound, storage.create_dir(&deep));
    ok("create_dir_all", storage.create_dir_all(&deep));
    ok("create_dir_all again", storage.create_dir_all(&deep));
    ok("create_dir of what is there", storage.create_dir(&deep));
    ok("sync_dir", storage.sync_dir(&deep));
    fails("sync_dir", ErrorKind::NotFound, storage.sync_dir(&dir.join("missing")));
    let path = dir.join("file");
    file(storage, &path, b"");
    fails("create_dir over a file", ErrorKind::AlreadyExists, storage.create_dir(&path));
    assert_eq!(names(storage, dir), ["a", "file"]);
    assert_eq!(names(storage, &deep), [""; 0]);
}

fn list_and_stat(storage: &dyn Storage, dir: &Path) {
    assert_eq!(ok("list", storage.list(&dir.join("missing"))), None);
    assert_eq!(ok("stat", storage.stat(&dir.join("missing"))), None);
    file(storage, &dir.join("b"), b"1234");
    ok("create_dir", storage.create_dir(&dir.join("a")));
    file(storage, &dir.join("a/inner"), b"");
    ok("symlink", storage.symlink("b", &dir.join("c")));
    file(storage, &dir.join("Z"), b"");
    let entry = |name: &str, kind, len| Entry { name: name.to_owned(), kind, len };
    let want = vec![
        entry("Z", EntryKind::File, 0),
        entry("a", EntryKind::Dir, 0),
        entry("b", EntryKind::File, 4),
        entry("c", EntryKind::Other, 0),
    ];
    assert_eq!(ok("list", storage.list(dir)), Some(want.clone()));
    for want in want {
        let path = dir.join(&want.name);
        assert_eq!(ok("stat", storage.stat(&path)), Some(want));
    }
    assert_eq!(ok("stat below a file", storage.stat(&dir.join("b/inner"))), None);
    fails("list a file", ErrorKind::NotADirectory, storage.list(&dir.join("b")));
}

fn rename_files(storage: &dyn Storage, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let mut open = ok("create", storage.create(&a));
    ok("append", open.append(b"new"));
    file(storage, &b, b"old");
    ok("rename over a file", storage.rename(&a, &b));
    ok("append to a renamed file", open.append(b"er"));
    ok("sync a renamed file", open.sync());
    assert_eq!(names(storage, dir), ["b"]);
    assert_eq!(bytes(storage, &b).as_deref(), Some(&b"newer"[..]));
    ok("rename to itself", storage.rename(&b, &b));
    assert_eq!(names(storage, dir), ["b"]);
    fails("rename what is not there", ErrorKind::NotFound, storage.rename(&a, &b));
    fails("rename to nowhere", ErrorKind::NotFound, storage.rename(&b, &dir.join("no/b")));
    ok("create_dir", storage.create_dir(&a));
    fails("rename over a directory", ErrorKind::IsADirectory, storage.rename(&b, &a));
    ok("rename across directories", storage.rename(&b, &a.join("b")));
    assert_eq!((names(storage, dir), names(storage, &a)), (vec!["a".into()], vec!["b".into()]));
}

fn rename_directories(storage: &dyn Storage, dir: &Path) {
    let [a, b, c, d]: [PathBuf; 4] = ["a", "b", "c", "d"].map(|n| dir.join(n));
    ok("create_dir_all", storage.create_dir_all(&a.join("inner")));
    file(storage, &a.join("inner/file"), b"1");
    ok("rename", storage.rename(&a, &b));
    assert_eq!(bytes(storage, &b.join("inner/file")).as_deref(), Some(&b"1"[..]));
    ok("create_dir", storage.create_dir(&c));
    ok("rename over an empty directory", storage.rename(&b, &c));
    ok("create_dir", storage.create_dir(&d));
    let full = storage.rename(&d, &c);
    fails("rename over a full directory", ErrorKind::DirectoryNotEmpty, full);
    let below = storage.rename(&c, &c.join("inner/c"));
    fails("rename below itself", ErrorKind::InvalidInput, below);
    let over = storage.rename(&d, &c.join("inner/file"));
    fails("rename a directory over a file", ErrorKind::NotADirectory, over);
    ok("rename across directories", storage.rename(&c.join("inner"), &d.join("moved")));
    assert_eq!(names(storage, dir), ["c", "d"]);
    assert_eq!(bytes(storage, &d.join("moved/file")).as_deref(), Some(&b"1"[..]));
}

fn remove(storage: &dyn Storage, dir: &Path) {
    let (a, inner) = (dir.join("a"), dir.join("a/inner"));
    ok("create_dir", storage.create_dir(&a));
    file(storage, &inner, b"12");
    fails("remove a full directory", ErrorKind::DirectoryNotEmpty, storage.remove_dir(&a));
    fails("remove_dir of a file", ErrorKind::NotADirectory, storage.remove_dir(&inner));
    assert!(storage.remove_file(&a).is_err(), "remove_file of a directory");
    let open = ok("open", storage.open(&inner));
    ok("remove_file", storage.remove_file(&inner));
    let mut buf = [0; 2];
    ok("read what was removed while it is open", open.read_at(&mut buf, 0));
    assert_eq!(&buf, b"12");
    ok("remove_dir", storage.remove_dir(&a));
    fails("remove_file again", ErrorKind::NotFound, storage.remove_file(&inner));
    fails("remove_dir again", ErrorKind::NotFound, storage.remove_dir(&a));
    assert_eq!(names(storage, dir), [""; 0]);
}

fn links(storage: &dyn Storage, dir: &Path) {
    let (link, target) = (dir.join("link"), dir.join("target"));
    assert_eq!(ok("read_link", storage.read_link(&link)), None);
    ok("symlink", storage.symlink("target", &link));
    fails("symlink again", ErrorKind::AlreadyExists, storage.symlink("target", &link));
    assert_eq!(ok("read_link", storage.read_link(&link)).as_deref(), Some("target"));
    fails("open what a link leads to", ErrorKind::NotFound, storage.open(&link));
    ok("create_dir", storage.create_dir(&target));
    assert_eq!(ok("read_link of a directory", storage.read_link(&target)), None);
    file(storage, &target.join("file"), b"1");
    assert_eq!(bytes(storage, &link.join("file")).as_deref(), Some(&b"1"[..]));
    assert_eq!(names(storage, &link), ["file"]);
    ok("symlink upwards", storage.symlink("../link/file", &target.join("up")));
    assert_eq!(bytes(storage, &target.join("up")).as_deref(), Some(&b"1"[..]));
    ok("symlink", storage.symlink("elsewhere", &dir.join("fresh")));
    ok("rename over a link", storage.rename(&dir.join("fresh"), &link));
    assert_eq!(ok("read_link", storage.read_link(&link)).as_deref(), Some("elsewhere"));
    ok("remove a link", storage.remove_file(&link));
    assert_eq!(names(storage, dir), ["target"]);
}

fn lock(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a.lock");
    assert_eq!(ok("lock_holder of no file", storage.lock_holder(&path)), None);
    let held = ok("lock", storage.lock(&path, "first, a long owner"));
    assert!(matches!(held, Lock::Held(_)), "{held:?}");
    match ok("lock again", storage.lock(&path, "second")) {
        Lock::Busy(owner) => assert_eq!(owner, "first, a long owner"),
        Lock::Held(_) => panic!("the lock was given twice"),
    }
    let holder = ok("lock_holder", storage.lock_holder(&path));
    assert_eq!(holder.as_deref(), Some("first, a long owner"));
    let other = ok("lock another file", storage.lock(&dir.join("b.lock"), "third"));
    assert!(matches!(other, Lock::Held(_)), "{other:?}");
    drop(held);
    assert_eq!(ok("lock_holder of what was given back", storage.lock_holder(&path)), None);
    let held = ok("lock what was given back", storage.lock(&path, "second"));
    assert!(matches!(held, Lock::Held(_)), "{held:?}");
    assert_eq!(bytes(storage, &path).as_deref(), Some(&b"second"[..]));
    drop(held);
    assert_eq!(names(storage, dir), ["a.lock", "b.lock"], "lock files stay");
}

fn times(storage: &dyn Storage, dir: &Path) {
    let [a, b]: [PathBuf; 2] = ["a", "b"].map(|n| dir.join(n));
    assert_eq!(ok("modified of nothing", storage.modified(&a)), None);
    file(storage, &a, b"1");
    file(storage, &b, b"1");
    let [a, b] = [a, b].map(|path| ok("modified", storage.modified(&path)));
    assert!(a.is_some() && a <= b, "{a:?} {b:?}");
}

fn what_is_made_of_the_rest(storage: &dyn Storage, dir: &Path) {
    let path = dir.join("a");
    for text in ["one", "two"] {
        file(storage, &dir.join("a.tmp"), b"left by somebody who was killed");
        ok("write_atomic", storage.write_atomic(&path, text.as_bytes()));
        assert_eq!(bytes(storage, &path).as_deref(), Some(text.as_bytes()));
        assert_eq!(names(storage, dir), ["a"]);
    }
    ok("create_dir_all", storage.create_dir_all(&dir.join("b/c/d")));
    file(storage, &dir.join("b/c/file"), b"");
    ok("symlink", storage.symlink("../../a", &dir.join("b/c/link")));
    ok("remove_all", storage.remove_all(&dir.join("b")));
    ok("remove_all of what is not there", storage.remove_all(&dir.join("b")));
    assert_eq!(names(storage, dir), ["a"], "a link is removed, not what it leads to");
    ok("remove_all of a file", storage.remove_all(&path));
    assert_eq!(names(storage, dir), [""; 0]);
}
