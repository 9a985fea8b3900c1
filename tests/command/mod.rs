//! The real binary, run in a folder of its own: `mod command;`.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a test puts files where another process finds them, and says what it skips"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

/// A definition of one row per text file below `in`, each file a partition of its own.
pub(crate) const TEXTS: &str = r#"version = 1
name = "texts"

[sources.files]
type = "files"
root = "in"
path = "**/*.txt"
content = "text"

[transforms.counts]
type = "text_stats"
input = "text"

[dataset]
partition_bytes = 1
max_row_bytes = "64KiB"

[dataset.fields]
path = { index = true }
parent = { intern = true, sidecar = "parents.json" }

[run]
commit_bytes = "1MiB"
"#;

/// A folder, removed with the value that made it.
pub(crate) struct Place {
    dir: PathBuf,
    _made: Option<TempDir>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    /// An empty folder, in memory where the system has such a place: syncing costs nothing there.
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let made = dir.unwrap();
        Self { dir: made.path().to_owned(), _made: Some(made) }
    }

    /// A folder that another value made.
    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), _made: None }
    }

    /// The definition [`TEXTS`] as `p.toml`, and `n` files for it.
    pub(crate) fn of_texts(n: usize) -> Self {
        let place = Self::new();
        place.write("p.toml", TEXTS);
        for i in 0..n {
            place.write(&format!("in/{}/{i}.txt", i % 3), text(i));
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A command that will run in this folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowmill"));
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.env("ROWMILL_TEST_EMPTY", "").env_remove("NO_COLOR");
        command
    }

    /// Runs `rowmill` with these arguments in this folder.
    pub(crate) fn rowmill(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs a command that has to succeed.
    pub(crate) fn done(&self, args: &[&str]) -> Ran {
        let ran = self.rowmill(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran
    }

    /// The document that a command prints with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.done(&[args, &["--json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {ran:?}"))
    }

    /// The folder of the current generation of dataset `name` below `out`.
    pub(crate) fn current(&self, out: &str, name: &str) -> PathBuf {
        self.path(out).join(name).join("current").canonicalize().unwrap()
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("what is printed is UTF-8");
        let code = output.status.code().expect("no signal ends it");
        Self { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Checks the exit code, that nothing is on stdout, and that stderr holds all of `texts`.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "", "results only on stdout");
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in {}", self.stderr);
        }
    }
}

/// The content of the file of number `i`: of any size, and not ASCII alone.
pub(crate) fn text(i: usize) -> String {
    joined((0..=i * 7 % 5).map(|line| format!("Zeile {line} von Datei {i}: äöü\n")))
}

/// Lines as one text.
pub(crate) fn joined(lines: impl Iterator<Item = String>) -> String {
    lines.collect()
}

/// Every file below `dir` but those of `work/` and locks, by path, with its bytes.
pub(crate) fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for (path, entry) in snapshot(dir) {
        let is_work = path.iter().any(|part| part == "work");
        if let Entry::File { bytes, .. } = entry
            && !is_work
            && path.extension().is_none_or(|ext| ext != "lock")
        {
            files.insert(path, bytes);
        }
    }
    files
}

/// What a name in a folder stands for, with the time of its last change in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Dir { modified: (i64, i64) },
    File { modified: (i64, i64), bytes: Vec<u8> },
    Link { target: PathBuf },
}

/// Everything below `dir`, by path relative to it.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        let meta = fs::symlink_metadata(&folder).unwrap();
        let modified = (meta.mtime(), meta.mtime_nsec());
        let name = |path: &Path| path.strip_prefix(dir).unwrap().to_path_buf();
        found.insert(name(&folder), Entry::Dir { modified });
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let modified = (meta.mtime(), meta.mtime_nsec());
            if meta.is_dir() {
                open.push(path);
            } else if meta.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                found.insert(name(&path), Entry::Link { target });
            } else {
                let bytes = fs::read(&path).unwrap();
                found.insert(name(&path), Entry::File { modified, bytes });
            }
        }
    }
    found
}

/// Copies a folder with its links, as `cp -r` does: the copies are new files.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path).unwrap(), target).unwrap();
        } else if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(path).unwrap()).unwrap();
        }
    }
}

/// The folder of real data, `None` (and a line that says so) where the tests were not told of it.
pub(crate) fn test_data() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ROWMILL_TEST_DATA") {
        return Some(PathBuf::from(dir));
    }
    skip("ROWMILL_TEST_DATA does not name the folder of test data");
    None
}

/// A command that runs Python with these packages, `None` (and a line that says so) where it cannot.
pub(crate) fn python(packages: &[&str]) -> Option<Command> {
    // Most tests ask, and importing takes longer than many of them.
    static ASKED: Mutex<BTreeMap<String, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let imports = ["json"].iter().chain(packages).map(|package| format!("import {package}\n"));
    let code: String = imports.collect();
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let imported = asked.entry(code).or_insert_with_key(|code| {
        let ran = Command::new("python3").args(["-c", code]).output();
        let ran = ran.map_err(|error| format!("python3 cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let why = || format!("python3: {}", said.lines().last().unwrap_or_default());
        ran.status.success().then_some(()).ok_or_else(why)
    });
    let why = imported.clone().err();
    drop(asked);
    if let Some(why) = why {
        skip(&why);
        return None;
    }
    Some(Command::new("python3"))
}

/// Says that a test is skipped; fails where everything is required.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("ROWMILL_REQUIRE_ALL").is_none_or(|v| v != "1"), "{reason}");
    eprintln!("SKIPPED: {reason}");
}
