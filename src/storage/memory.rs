//! A file system in memory that can lose everything that was not synced.
//!
//! For tests of whatever stands on [`Storage`]: run it on a [`Memory`], cut the power at an
//! operation of your choice ([`Memory::cut_at`]), take the disk as the next boot may find it
//! ([`Memory::after_power_cut`]) with any set of unsynced operations surviving (`survivals` lists
//! which to try), and run it again.
//!
//! It leaves out I/O errors and full disks, which are [`Faulty`](super::faulty::Faulty)'s, and
//! time: nothing becomes durable because one has waited. How it answers as a [`Storage`] is in
//! `memory_storage`.
//!
//! Invariants:
//! 1. As adversarial as POSIX allows: what was not synced survives or not, each page, each size
//!    and each change of a directory on its own, whatever the order in which they were made. A
//!    rename within a directory is one change; one across directories is two, unless
//!    [`Memory::with_whole_renames`] says otherwise.
//! 2. A handle's sync answers for what had been appended when the handle was made, no more.
//! 3. The operations that change something are numbered from 0 in the order they are begun; one
//!    thread of callers sees the same numbers in every run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::model::{DirNode, Disk, Id, Node};
use super::{Overlap, Result, Storage, StorageError};

pub use super::model::Pending;
pub use super::pages::Lost;
pub use super::survival::{Survival, survivals};

/// A file system in memory. Clones are handles of the same one.
#[derive(Clone)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    pub(super) overlap: Overlap,
}

/// What all handles of one file system share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) disk: Disk,
    operations: u64,
    cut_at: Option<u64>,
    is_cut: bool,
    /// Files that are locked, and what their holders wrote.
    pub(super) locks: BTreeMap<Id, String>,
}

impl Memory {
    /// An empty file system whose commits are carried out as `overlap` says.
    #[must_use]
    pub fn new(overlap: Overlap) -> Self {
        Self::of(Disk::new(false), overlap)
    }

    /// The same, with renames across directories that survive whole or not at all, as on file
    /// systems with a journal. To be called before anything is written.
    #[must_use]
    pub fn with_whole_renames(self) -> Self {
        self.state().disk.whole_renames = true;
        self
    }

    fn of(disk: Disk, overlap: Overlap) -> Self {
        let (locks, cut_at) = (BTreeMap::new(), None);
        let state = State { disk, operations: 0, cut_at, is_cut: false, locks };
        Self { state: Arc::new(Mutex::new(state)), overlap }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations that change something were begun: the number of the next one.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Cuts the power at operation `n`: it fails without effect, and so does all that follows,
    /// reading included.
    pub fn cut_at(&self, n: u64) {
        self.state().cut_at = Some(n);
    }

    /// How many operations a power cut may undo.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.state().disk.pending().len()
    }

    /// These operations, by number: what to print when a test has failed.
    #[must_use]
    pub fn pending_operations(&self) -> Vec<Pending> {
        self.state().disk.pending()
    }

    /// The file system as the next boot finds it if those pending operations survive whose number
    /// `survives` affirms: all of it durable, nothing locked. Pages that were lost hold zeros.
    #[must_use]
    pub fn after_power_cut(&self, survives: &dyn Fn(usize) -> bool) -> Self {
        self.after_power_cut_with(Lost::Zeros, survives)
    }

    /// The same, with a choice of what pages hold that were lost.
    #[must_use]
    pub fn after_power_cut_with(&self, lost: Lost, survives: &dyn Fn(usize) -> bool) -> Self {
        Self::of(self.state().disk.after_power_cut(lost, survives), self.overlap)
    }

    /// The file system as the next process finds it if this one is killed now: everything that
    /// was done is seen, what was not synced is pending still, nothing is locked.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        Self::of(self.state().disk.clone(), self.overlap)
    }

    /// All files below `folder` as they are seen now: paths within it, sorted, and bytes.
    ///
    /// # Panics
    /// If there is no such folder: it is for tests.
    #[must_use]
    pub fn snapshot(&self, folder: impl AsRef<Path>) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.state();
        let mut files = Vec::new();
        let folder = folder.as_ref();
        let found = state.disk.find(folder, true).and_then(|id| state.disk.dir(id));
        let dir = found.unwrap_or_else(|e| panic!("cannot look into `{}`: {e}", folder.display()));
        collect(&state.disk, dir, Path::new(""), &mut |path, node| {
            if let Node::File(file) = node {
                files.push((path.to_path_buf(), file.live().to_vec()));
            }
        });
        files
    }

    /// A hash of all names, links and bytes: equal where two disks cannot be told apart. Tests
    /// that try many survivals skip those they have seen.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let state = self.state();
        let mut hasher = blake3::Hasher::new();
        let mut add = |kind: u8, bytes: &[u8]| {
            hasher.update(&[kind]);
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        let root = state.disk.find(Path::new("/"), true).and_then(|id| state.disk.dir(id));
        if let Ok(root) = root {
            collect(&state.disk, root, Path::new(""), &mut |path, node| {
                add(b'n', path.as_os_str().as_encoded_bytes());
                match node {
                    Node::File(file) => add(b'f', file.live()),
                    Node::Dir(_) => add(b'd', b""),
                    Node::Link(target) => add(b'l', target.as_bytes()),
                }
            });
        }
        *hasher.finalize().as_bytes()
    }

    /// Replaces bytes of a file from `offset` on, on the medium: damage.
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: usize, bytes: &[u8]) -> Result<()> {
        self.damage(path.as_ref(), |live| {
            for (old, new) in live.iter_mut().skip(offset).zip(bytes) {
                *old = *new;
            }
        })
    }

    /// Gives a file another length, on the medium: damage.
    pub fn truncate(&self, path: impl AsRef<Path>, len: usize) -> Result<()> {
        self.damage(path.as_ref(), |live| live.resize(len, 0))
    }

    fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let disk = &mut self.state().disk;
        disk.find(path, true)
            .and_then(|id| disk.file_mut(id))
            .map(|file| file.damage(change))
            .map_err(|e| StorageError::new("damage", path, e))
    }

    /// Copies everything as it is seen now to another storage, below `folder`, to be looked at.
    pub fn dump_to(&self, to: &dyn Storage, folder: &Path) -> Result<()> {
        let mut found = Vec::new();
        {
            let state = self.state();
            let root = state.disk.find(Path::new("/"), true).and_then(|id| state.disk.dir(id));
            let root = root.map_err(|e| StorageError::new("list", "/", e))?;
            collect(&state.disk, root, folder, &mut |path, node| {
                found.push((path.to_path_buf(), node.clone()));
            });
        }
        to.create_dir_all(folder)?;
        for (path, node) in found {
            match node {
                Node::File(file) => to.create(&path)?.append(file.live())?,
                Node::Dir(_) => to.create_dir(&path)?,
                Node::Link(target) => to.symlink(&target, &path)?,
            }
        }
        Ok(())
    }

    /// Carries out an operation that changes something.
    pub(super) fn change<T>(
        &self,
        op: &'static str,
        path: &Path,
        act: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> Result<T> {
        let mut state = self.state();
        if state.cut_at == Some(state.operations) {
            state.is_cut = true;
        }
        let answer = state.power().and_then(|()| {
            state.operations += 1;
            act(&mut state)
        });
        answer.map_err(|e| StorageError::new(op, path, e))
    }

    /// Carries out an operation that changes nothing.
    pub(super) fn look<T>(
        &self,
        op: &'static str,
        path: &Path,
        act: impl FnOnce(&Disk) -> io::Result<T>,
    ) -> Result<T> {
        let state = self.state();
        state.power().and_then(|()| act(&state.disk)).map_err(|e| StorageError::new(op, path, e))
    }
}

impl State {
    fn power(&self) -> io::Result<()> {
        if self.is_cut { Err(io::Error::other("power is cut")) } else { Ok(()) }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Overlap::Now)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("overlap", &self.overlap).finish_non_exhaustive()
    }
}

/// Visits everything below `dir`, a directory before what it holds, in the order of names.
fn collect(disk: &Disk, dir: &DirNode, above: &Path, visit: &mut dyn FnMut(&Path, &Node)) {
    for (name, &id) in &dir.live {
        let path = above.join(name);
        if let Ok(node) = disk.node(id) {
            visit(&path, node);
            if let Node::Dir(inner) = node {
                collect(disk, inner, &path, visit);
            }
        }
    }
}
