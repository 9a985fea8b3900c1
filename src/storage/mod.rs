//! The one door to the disk for everything Rowmill writes.
//!
//! [`Storage`] is the smallest set of operations that the commit protocol needs. Three
//! implementations share one [`conformance`] suite: [`Local`] (a real file system),
//! [`Memory`] (a model of one that can lose everything `fsync` has not promised) and
//! [`Faulty`] (any other, failing at a chosen operation).
//!
//! What it leaves out: reading raw inputs, which is the sources' business.
//!
//! Invariants:
//! 1. A name exists after a power cut only if its directory was synced after it was made, and a
//!    file's bytes only if the file was synced after they were appended. Nothing else is promised.
//! 2. After a failed append or sync the handle is poisoned: every later call on it fails. Recovery
//!    opens the file again, it never retries a sync.
//! 3. [`Storage::map`] is called for sealed files only, which nobody writes again.

#![expect(
    clippy::missing_errors_doc,
    reason = "every operation here fails for one reason, that the system refused it"
)]

pub mod conformance;
mod distant;
pub mod faulty;
mod host;
mod local;
pub mod memory;
mod memory_storage;
mod model;
mod pages;
mod poison;
mod staged;
mod survival;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

pub(crate) use distant::side_by_side;
pub use distant::{Blocks, Distant, DistantFile};
pub use faulty::Faulty;
pub use host::usable_memory;
pub use local::Local;
pub use memory::Memory;
pub use staged::staged_for;

/// What every operation of [`Storage`] returns.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// An operation on the disk failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} `{}`", path.display())]
pub struct StorageError {
    /// What was tried, as a verb phrase: "append to", "rename", "sync".
    pub op: &'static str,
    /// The file or directory it was tried on.
    pub path: PathBuf,
    /// The system's answer.
    #[source]
    pub source: io::Error,
}

/// What is tried of those that only look.
const READING: [&str; 8] = [
    "open",
    "read",
    "read the link",
    "map",
    "list",
    "look at",
    "look at the lock",
    "ask for the free space of",
];

impl StorageError {
    /// Makes an error of `source`, met while trying to `op` the file at `path`.
    pub fn new(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { op, path: path.into(), source }
    }

    /// Says what to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        if self.source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
            return Some("raise the limit of open files (`ulimit -n`), or lower `jobs`");
        }
        let is_reading = READING.contains(&self.op);
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(
                "free some space and run the same command again; it continues where it stopped",
            ),
            io::ErrorKind::PermissionDenied if is_reading => {
                Some("let the user that runs this read it, and enter the folders around it")
            }
            io::ErrorKind::PermissionDenied => {
                Some("check who owns the folder, or let `out` be another one")
            }
            io::ErrorKind::ReadOnlyFilesystem => Some("let `out` be a folder that can be written"),
            io::ErrorKind::NotADirectory if is_reading => {
                Some("a file stands where a folder belongs; move it")
            }
            io::ErrorKind::NotADirectory => Some(
                "a file stands where a folder belongs; move it, or let `out` be another folder",
            ),
            io::ErrorKind::NotFound if is_reading => Some("was it removed meanwhile?"),
            io::ErrorKind::NotFound => Some(
                "was it removed meanwhile? If nothing can be created there, let `out` be another \
                 folder",
            ),
            io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => {
                Some("something else stands where this file belongs; move it away and run again")
            }
            _ => None,
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link (not followed), or anything else.
    Other,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name. A name that is not UTF-8 is shown with replacement characters: none is ours.
    pub name: String,
    /// What it stands for.
    pub kind: EntryKind,
    /// Size in bytes of a file, 0 of anything else.
    pub len: u64,
}

/// How an overlapped commit is carried out on this storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// On a thread of its own, while the caller goes on.
    Thread,
    /// By the caller at once. What the model does in one half of its cases.
    Now,
    /// By the caller, as late as it is allowed to be. The other half.
    Late,
}

/// A file system, as far as the commit protocol needs one. Paths are used as they are given.
pub trait Storage: Send + Sync + Debug {
    /// Makes a directory in an existing one. It is fine if it is there.
    ///
    /// # Durability
    /// The name survives a power cut after [`Storage::sync_dir`] of the parent.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable: created, renamed and removed ones.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Creates an empty file for appending. An existing file is an error of kind `AlreadyExists`.
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>>;

    /// Opens a file for appending after cutting it to `len` bytes. A shorter file is an error of
    /// kind `UnexpectedEof`, and is left as it is. The cut is durable after the handle's next sync.
    fn open_append(&self, path: &Path, len: u64) -> Result<Box<dyn AppendFile>>;

    /// Opens a file for reading at any place. Does not map it.
    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>>;

    /// Gives the bytes of a whole sealed file, mapped where the system can.
    fn map(&self, path: &Path) -> Result<Bytes>;

    /// Renames a file or directory, replacing an existing file (not a non-empty directory).
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file or symbolic link.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;

    /// Makes a symbolic link at `link` that holds `target`. An existing name is an error.
    fn symlink(&self, target: &str, link: &Path) -> Result<()>;

    /// What a symbolic link holds, `None` where there is no link.
    fn read_link(&self, link: &Path) -> Result<Option<String>>;

    /// The names in a directory, sorted; `None` where there is no such directory.
    fn list(&self, dir: &Path) -> Result<Option<Vec<Entry>>>;

    /// What stands at `path` (a symbolic link is not followed), `None` where nothing does.
    fn stat(&self, path: &Path) -> Result<Option<Entry>>;

    /// When the file or directory at `path` was written last, `None` where nothing stands there. For
    /// people, and for the order in which generations were made: it reaches no sealed file.
    fn modified(&self, path: &Path) -> Result<Option<SystemTime>>;

    /// Takes the one lock on the file at `path`, creating it, and writes `owner` into it. Gives
    /// what the holder wrote if someone else holds it.
    fn lock(&self, path: &Path, owner: &str) -> Result<Lock>;

    /// What the holder of the lock on the file at `path` wrote into it, `None` where nobody holds
    /// it. Is in nobody's way.
    fn lock_holder(&self, path: &Path) -> Result<Option<String>>;

    /// Bytes that may still be written below `path`, `None` where that cannot be known.
    fn free_bytes(&self, path: &Path) -> Result<Option<u64>>;

    /// Whether names can be made in the folder `path`, or in the nearest one around it that is there.
    ///
    /// # Errors
    /// Why they cannot.
    fn check_writable(&self, path: &Path) -> Result<()>;

    /// How commits overlap with writing here.
    fn overlap(&self) -> Overlap;

    /// How rows are read here, where files are too far away to be mapped.
    fn distant(&self) -> Option<&dyn Distant> {
        None
    }

    /// Where the links and `..` in `path`, which is there, lead: paths to one folder have one such name.
    /// A storage that cannot tell gives the path as it is written.
    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.components().collect())
    }

    /// Reads a whole small file, `None` where there is none.
    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        if self.stat(path)?.is_none() {
            return Ok(None);
        }
        let file = self.open(path)?;
        let len = usize::try_from(file.len())
            .map_err(|e| StorageError::new("read", path, io::Error::other(e)))?;
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, 0)?;
        Ok(Some(bytes))
    }

    /// Puts a whole small file in place under its name, or leaves what was there.
    ///
    /// # Durability
    /// On `Ok` the file and its name survive a power cut: temporary file `<name>.tmp` beside it,
    /// sync, rename, sync of the directory.
    fn write_atomic(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".tmp");
        let tmp = path.with_file_name(name);
        if self.stat(&tmp)?.is_some() {
            self.remove_file(&tmp)?;
        }
        let mut file = self.create(&tmp)?;
        file.append(bytes)?;
        file.sync()?;
        drop(file);
        self.rename(&tmp, path)?;
        self.sync_dir(parent(path))
    }

    /// Makes a directory and all those above it that are missing, each durable before the next.
    ///
    /// # Durability
    /// On `Ok` the directory's name survives a power cut, also if it was made by a process that
    /// was killed before it could sync it.
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let above = parent(path);
        if path.as_os_str().is_empty() || above == path {
            return Ok(());
        }
        if self.stat(path)?.is_some() {
            return match self.sync_dir(above) {
                // Nothing we made: names are made where we may look.
                Err(e) if e.source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            };
        }
        self.create_dir_all(above)?;
        self.create_dir(path)?;
        self.sync_dir(above)
    }

    /// Removes a file, a link or a directory with all it holds, if it is there.
    fn remove_all(&self, path: &Path) -> Result<()> {
        match self.stat(path)? {
            None => Ok(()),
            Some(Entry { kind: EntryKind::Dir, .. }) => {
                for entry in self.list(path)?.unwrap_or_default() {
                    self.remove_all(&path.join(&entry.name))?;
                }
                self.remove_dir(path)
            }
            Some(_) => self.remove_file(path),
        }
    }
}

/// The folder that holds `path`; `.` for a bare name.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        Some(_) => Path::new("."),
        None => path,
    }
}

/// Whether a path is the URL of something that is not on this machine.
#[must_use]
pub(crate) fn is_elsewhere(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

/// A file that only grows.
pub trait AppendFile: Send + Debug {
    /// Appends all of `bytes` or fails; after a failure the file's tail is unknown.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes everything appended so far durable (not the file's name).
    fn sync(&mut self) -> Result<()>;

    /// A handle that can sync what was appended before the call to this function, from another
    /// thread, while this one appends more. A failure there poisons this handle too.
    fn syncer(&self) -> Box<dyn SyncFile>;

    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether nothing has been appended yet.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Syncs a file that somebody else appends to.
pub trait SyncFile: Send + Debug {
    /// Makes what had been appended when the handle was made durable.
    fn sync(&mut self) -> Result<()>;
}

/// A file to be read at any place.
pub trait ReadFile: Send + Sync + Debug {
    /// Fills `buf` with the bytes from `offset` on. A file that ends before is an error of kind
    /// `UnexpectedEof`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Fills each of `pieces`, a buffer and the offset of its first byte. What lies close together may be
    /// read together, what does not at the same time.
    fn read_many(&self, pieces: &mut [(u64, &mut [u8])]) -> Result<()> {
        pieces.iter_mut().try_for_each(|(offset, buf)| self.read_at(buf, *offset))
    }

    /// Size in bytes when the file was opened.
    fn len(&self) -> u64;

    /// Whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The answer to [`Storage::lock`].
#[derive(Debug)]
pub enum Lock {
    /// We hold it until this is dropped, or the process ends however it ends.
    Held(Box<dyn LockGuard>),
    /// Somebody else does; the text is what they wrote into the file.
    Busy(String),
}

/// A lock that is held; dropping it gives it back.
pub trait LockGuard: Send + Sync + Debug {}

/// The answer to a file that is shorter than it was promised to be.
fn too_short(found: u64, promised: u64) -> io::Error {
    let text = format!("it holds {found} bytes where {promised} were promised");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
