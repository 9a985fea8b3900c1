//! A folder with a definition, its inputs and what was built from them.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use tempfile::TempDir;

use crate::process::Run;

/// Memory is as good as a disk where processes are killed, and syncs cost nothing there.
const MEMORY: &str = "/dev/shm";
/// Most that any test writes at a time.
const ROOM_BYTES: u64 = 2 << 30;

/// A folder that goes with the value.
#[derive(Debug)]
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    /// A folder that holds `definition`.
    pub(crate) fn new(definition: &str) -> Self {
        let dir = match statvfs(MEMORY) {
            Ok(fs) if fs.f_bavail.saturating_mul(fs.f_frsize) > ROOM_BYTES => {
                tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir())
            }
            _ => tempfile::tempdir(),
        };
        let this = Self { dir: dir.unwrap() };
        this.write("p.toml", definition);
        this
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file and the folders around it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Makes a file of zeros that takes no room.
    pub(crate) fn write_sparse(&self, name: &str, len: u64) {
        self.write(name, "");
        fs::File::options().write(true).open(self.path(name)).unwrap().set_len(len).unwrap();
    }

    /// A run of the definition into the folder `out`.
    pub(crate) fn run(&self, out: &str) -> Run {
        Run::new(&self.path("p.toml"), &self.path(out))
    }

    /// Copies all inputs to a folder of their own.
    pub(crate) fn fork(&self, definition: &str) -> Self {
        let other = Self::new(definition);
        copy(&self.path("in"), &other.path("in"));
        other
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
