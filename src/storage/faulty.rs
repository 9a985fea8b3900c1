//! Any storage, failing at an operation of your choice.
//!
//! For tests of whatever stands on [`Storage`]: run it once on a [`Faulty`] that fails nothing,
//! read [`Faulty::operations`], then run it again for each of them with a fault there. It leaves
//! out losing what was not synced, which is [`Memory`](super::Memory)'s: wrap one.
//!
//! Invariants:
//! 1. An operation that fails has no effect, but for the first half of the bytes of a short append
//!    and what still fits of one that meets the end of [`Faulty::set_space`].
//! 2. A handle whose append or sync was failed is poisoned, as on a disk.
//! 3. Operations are numbered from 0 in the order they are begun. Reads are not counted, and do
//!    not fail, unless [`Faulty::count_reads`] asked for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use rustix::io::Errno;

use super::poison::Poison;
use super::{AppendFile, Entry, Lock, Overlap, ReadFile, Result, Storage, StorageError, SyncFile};

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With an I/O error.
    Io,
    /// Because the disk is full. Where this lasts, it fails what needs space and lets through what
    /// does not: removing, syncing, opening.
    Full,
    /// As [`Fault::Full`], after an append has written the first half of its bytes.
    Short,
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// One operation fails.
    Once,
    /// It fails, and the later ones.
    FromThenOn,
}

/// An operation that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// What [`StorageError::op`] says of it: "append to", "rename", "sync".
    pub name: &'static str,
    /// The file or directory it was begun on.
    pub path: PathBuf,
}

/// A storage that fails as it is told to. Clones share their numbering and their fault.
#[derive(Debug, Clone)]
pub struct Faulty<S> {
    inner: S,
    plan: Plan,
}

#[derive(Debug, Clone, Default)]
struct Plan(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    operations: Vec<Operation>,
    with_reads: bool,
    fault: Option<(usize, Fault, Lasting)>,
    space: Option<u64>,
}

/// What an operation is, as far as faults care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    /// It changes something and needs no space on the disk.
    Change,
    /// It changes something and needs space.
    Grow,
}

impl<S: Storage> Faulty<S> {
    /// Wraps `inner`; nothing fails yet.
    pub fn new(inner: S) -> Self {
        Self { inner, plan: Plan::default() }
    }

    /// The storage behind this one.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Counts reads, too, from now on: they can be failed then.
    pub fn count_reads(&self) {
        self.plan.state().with_reads = true;
    }

    /// Fails operation `n`, counted from 0, in this way.
    pub fn fail_at(&self, n: usize, fault: Fault, lasting: Lasting) {
        self.plan.state().fault = Some((n, fault, lasting));
    }

    /// Lets appends write `bytes` more; the one that meets the end writes what fits and fails.
    /// Removing files gives nothing back: call this again.
    pub fn set_space(&self, bytes: u64) {
        self.plan.state().space = Some(bytes);
    }

    /// Fails nothing from now on, and lifts the limit of space.
    pub fn heal(&self) {
        let mut state = self.plan.state();
        state.fault = None;
        state.space = None;
    }

    /// The operations that were begun, in order, those that failed included.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        self.plan.state().operations.clone()
    }
}

impl Plan {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation and says how it is to fail.
    fn begin(&self, name: &'static str, path: &Path, kind: Kind) -> Option<Fault> {
        let mut state = self.state();
        if kind == Kind::Read && !state.with_reads {
            return None;
        }
        let number = state.operations.len();
        state.operations.push(Operation { name, path: path.to_path_buf() });
        match state.fault? {
            (n, fault, _) if n == number => Some(fault),
            (n, fault, Lasting::FromThenOn) if n < number => match fault {
                Fault::Io => Some(Fault::Io),
                Fault::Full | Fault::Short => (kind == Kind::Grow).then_some(Fault::Full),
            },
            _ => None,
        }
    }

    /// Begins an operation and fails it if it is to fail.
    fn pass(&self, name: &'static str, path: &Path, kind: Kind) -> Result<()> {
        match self.begin(name, path, kind) {
            None => Ok(()),
            Some(fault) => Err(StorageError::new(name, path, fault.error())),
        }
    }

    /// How many of `wanted` bytes still fit.
    fn take_space(&self, wanted: usize) -> usize {
        let mut state = self.state();
        let Some(left) = state.space.as_mut() else { return wanted };
        let fits = usize::try_from(*left).map_or(wanted, |left| wanted.min(left));
        *left -= fits as u64;
        fits
    }
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Io => Errno::IO.into(),
            Self::Full | Self::Short => Errno::NOSPC.into(),
        }
    }
}

impl<S: Storage> Storage for Faulty<S> {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.plan.pass("create the directory", path, Kind::Grow)?;
        self.inner.create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.plan.pass("sync the directory", path, Kind::Change)?;
        self.inner.sync_dir(path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        self.plan.pass("create", path, Kind::Grow)?;
        Ok(Appender::boxed(self.inner.create(path)?, &self.plan, path))
    }

    fn open_append(&self, path: &Path, len: u64) -> Result<Box<dyn AppendFile>> {
        self.plan.pass("open for appending", path, Kind::Change)?;
        Ok(Appender::boxed(self.inner.open_append(path, len)?, &self.plan, path))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        self.plan.pass("open", path, Kind::Read)?;
        let inner = self.inner.open(path)?;
        Ok(Box::new(Reader { inner, plan: self.plan.clone(), path: path.to_path_buf() }))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.plan.pass("map", path, Kind::Read)?;
        self.inner.map(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.plan.pass("rename", from, Kind::Grow)?;
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.plan.pass("remove", path, Kind::Change)?;
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.plan.pass("remove the directory", path, Kind::Change)?;
        self.inner.remove_dir(path)
    }

    fn symlink(&self, target: &str, link: &Path) -> Result<()> {
        self.plan.pass("make the link", link, Kind::Grow)?;
        self.inner.symlink(target, link)
    }

    fn read_link(&self, link: &Path) -> Result<Option<String>> {
        self.plan.pass("read the link", link, Kind::Read)?;
        self.inner.read_link(link)
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<Entry>>> {
        self.plan.pass("list", dir, Kind::Read)?;
        self.inner.list(dir)
    }

    fn stat(&self, path: &Path) -> Result<Option<Entry>> {
        self.plan.pass("look at", path, Kind::Read)?;
        self.inner.stat(path)
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Lock> {
        self.plan.pass("lock", path, Kind::Grow)?;
        self.inner.lock(path, owner)
    }

    fn modified(&self, path: &Path) -> Result<Option<SystemTime>> {
        self.plan.pass("look at", path, Kind::Read)?;
        self.inner.modified(path)
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<String>> {
        self.plan.pass("look at the lock", path, Kind::Read)?;
        self.inner.lock_holder(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.plan.pass("ask for the free space of", path, Kind::Read)?;
        let space = self.plan.state().space;
        match space {
            Some(left) => Ok(Some(left)),
            None => self.inner.free_bytes(path),
        }
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        self.plan.pass("create anything in", path, Kind::Read)?;
        self.inner.check_writable(path)
    }

    fn overlap(&self) -> Overlap {
        self.inner.overlap()
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        self.plan.pass("follow", path, Kind::Read)?;
        self.inner.real_path(path)
    }
}

#[derive(Debug)]
struct Appender {
    inner: Box<dyn AppendFile>,
    plan: Plan,
    path: PathBuf,
    poison: Poison,
}

impl Appender {
    fn boxed(inner: Box<dyn AppendFile>, plan: &Plan, path: &Path) -> Box<dyn AppendFile> {
        let (plan, path) = (plan.clone(), path.to_path_buf());
        Box::new(Self { inner, plan, path, poison: Poison::default() })
    }

    fn append_or_fail(&mut self, bytes: &[u8]) -> Result<()> {
        let op = "append to";
        let fault = self.plan.begin(op, &self.path, Kind::Grow);
        let asked = match fault {
            None => bytes.len(),
            Some(Fault::Short) => bytes.len() / 2,
            Some(Fault::Io | Fault::Full) => 0,
        };
        let fits = self.plan.take_space(asked);
        if let Some(written) = bytes.get(..fits).filter(|w| !w.is_empty() || bytes.is_empty()) {
            self.inner.append(written)?;
        }
        let fault = fault.or((fits < asked).then_some(Fault::Full));
        fault.map_or(Ok(()), |f| Err(StorageError::new(op, &self.path, f.error())))
    }
}

impl AppendFile for Appender {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.poison.check("append to", &self.path)?;
        let outcome = self.append_or_fail(bytes);
        self.poison.watch(outcome)
    }

    fn sync(&mut self) -> Result<()> {
        self.poison.check("sync", &self.path)?;
        let passed = self.plan.pass("sync", &self.path, Kind::Change);
        self.poison.watch(passed.and_then(|()| self.inner.sync()))
    }

    fn syncer(&self) -> Box<dyn SyncFile> {
        let (plan, path) = (self.plan.clone(), self.path.clone());
        Box::new(Syncer { inner: self.inner.syncer(), plan, path, poison: self.poison.clone() })
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

#[derive(Debug)]
struct Syncer {
    inner: Box<dyn SyncFile>,
    plan: Plan,
    path: PathBuf,
    poison: Poison,
}

impl SyncFile for Syncer {
    fn sync(&mut self) -> Result<()> {
        self.poison.check("sync", &self.path)?;
        let passed = self.plan.pass("sync", &self.path, Kind::Change);
        self.poison.watch(passed.and_then(|()| self.inner.sync()))
    }
}

#[derive(Debug)]
struct Reader {
    inner: Box<dyn ReadFile>,
    plan: Plan,
    path: PathBuf,
}

impl ReadFile for Reader {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.plan.pass("read", &self.path, Kind::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}
