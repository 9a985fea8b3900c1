//! The file system of this machine.
//!
//! The only file that writes to the disk, takes locks and holds `unsafe`. It leaves out every
//! decision about what to write and when: that is `shard`'s and `dataset`'s.
//!
//! Invariants:
//! 1. Bytes reach a file by ordinary writes at the handle's own offset; mappings only read.
//! 2. A file is synced with `fdatasync`, which covers its bytes and its size; a directory with
//!    `fsync`.
//! 3. The lock belongs to the open file: the system gives it back when the process ends, however
//!    it ends. The lock file itself stays, because removing it would let two owners in.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one door to the disk: everything else goes through the trait implemented here"
)]

use std::fs::{self, File, FileType, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use memmap2::Mmap;

use super::poison::Poison;
use super::{
    AppendFile, Entry, EntryKind, Lock, LockGuard, Overlap, ReadFile, Result, Storage,
    StorageError, SyncFile,
};

/// The longest owner's text that is read from a lock file that somebody else holds.
const OWNER_BYTES: u64 = 4096;

/// How often a lock is tried for while somebody looks who holds it, which takes no time.
const LOCK_TRIES: usize = 1000;

/// The file system of this machine. It holds nothing and costs nothing to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Local;

impl Storage for Local {
    fn create_dir(&self, path: &Path) -> Result<()> {
        match fs::create_dir(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other.at("create the directory", path),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let dir = File::open(path).at("open the directory", path)?;
        match dir.sync_all() {
            // The file system has no such operation (some network and user-space ones): there is
            // nothing more that could be asked of it.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                Ok(())
            }
            other => other.at("sync the directory", path),
        }
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).at("create", path)?;
        Ok(Box::new(Appender { opened: Opened::new(file, path), len: 0 }))
    }

    fn open_append(&self, path: &Path, len: u64) -> Result<Box<dyn AppendFile>> {
        let op = "open for appending";
        let (file, found) = open_regular(OpenOptions::new().write(true), op, path)?;
        if found < len {
            return Err(StorageError::new(op, path, super::too_short(found, len)));
        }
        if found > len {
            file.set_len(len).at("cut", path)?;
        }
        Ok(Box::new(Appender { opened: Opened::new(file, path), len }))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let (file, len) = open_regular(OpenOptions::new().read(true), "open", path)?;
        Ok(Box::new(Reader { file, path: path.to_path_buf(), len }))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        let (file, len) = open_regular(OpenOptions::new().read(true), "map", path)?;
        if len == 0 {
            // The system refuses to map nothing.
            return Ok(Bytes::new());
        }
        #[expect(unsafe_code, reason = "a mapping cannot be had without it")]
        // SAFETY: the bytes of a mapping must not change while it is borrowed. `Storage::map` is
        // called for sealed files only (invariant 3 of `storage`): the seal is their last write,
        // kept by `shard`, and whoever removes one unlinks it, which leaves mapped pages alone.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        Ok(Bytes::from_owner(map))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).at("rename", from)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).at("remove", path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).at("remove the directory", path)
    }

    fn symlink(&self, target: &str, link: &Path) -> Result<()> {
        std::os::unix::fs::symlink(target, link).at("make the link", link)
    }

    fn read_link(&self, link: &Path) -> Result<Option<String>> {
        match fs::read_link(link) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            // InvalidInput: something stands there that is not a link.
            Err(e) if is_absent(&e) || e.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(e) => Err(e).at("read the link", link),
        }
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<Entry>>> {
        let op = "list";
        let names = match fs::read_dir(dir) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).at(op, dir),
        };
        let mut entries = Vec::new();
        for name in names {
            let name = name.at(op, dir)?;
            match name.metadata() {
                Ok(meta) => entries.push(entry(name.file_name().to_string_lossy(), &meta)),
                // Removed between the two calls.
                Err(e) if is_absent(&e) => {}
                Err(e) => return Err(e).at(op, &name.path()),
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Some(entries))
    }

    fn stat(&self, path: &Path) -> Result<Option<Entry>> {
        match fs::symlink_metadata(path) {
            Ok(meta) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Ok(Some(entry(name, &meta)))
            }
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e).at("look at", path),
        }
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Lock> {
        let op = "lock";
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .at(op, path)?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => {
                    // Written over the last owner's text before the rest is cut, so that a full disk
                    // that already holds the file lets those in who come to free space.
                    file.write_all_at(owner.as_bytes(), 0).at(op, path)?;
                    file.set_len(owner.len() as u64).at(op, path)?;
                    return Ok(Lock::Held(Box::new(Guard { _file: file })));
                }
                Err(TryLockError::WouldBlock) => match file.try_lock_shared() {
                    // Somebody was only looking who holds it.
                    Ok(()) => file.unlock().at(op, path)?,
                    Err(TryLockError::WouldBlock) => break,
                    Err(TryLockError::Error(e)) => return Err(e).at(op, path),
                },
                Err(TryLockError::Error(e)) => return Err(e).at(op, path),
            }
            std::thread::yield_now();
        }
        Ok(Lock::Busy(owner_text(&file).at(op, path)?))
    }

    fn modified(&self, path: &Path) -> Result<Option<SystemTime>> {
        let op = "look at";
        match fs::symlink_metadata(path) {
            Ok(meta) => Ok(Some(meta.modified().at(op, path)?)),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e).at(op, path),
        }
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<String>> {
        let op = "look at the lock";
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if is_absent(&e) => return Ok(None),
            Err(e) => return Err(e).at(op, path),
        };
        // Shared, and given back with the file: `lock` tries again when it meets this.
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(Some(owner_text(&file).at(op, path)?)),
            Err(TryLockError::Error(e)) => Err(e).at(op, path),
        }
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        let mut path = path;
        loop {
            match rustix::fs::statvfs(path) {
                Ok(fs) => return Ok(Some(fs.f_bavail.saturating_mul(fs.f_frsize))),
                Err(rustix::io::Errno::NOENT) if super::parent(path) != path => {
                    path = super::parent(path);
                }
                Err(rustix::io::Errno::NOSYS) => return Ok(None),
                Err(e) => return Err(io::Error::from(e)).at("ask for the free space of", path),
            }
        }
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        use rustix::fs::Access;
        let mut path = path;
        while self.stat(path)?.is_none() && super::parent(path) != path {
            path = super::parent(path);
        }
        // Asked with a slash at its end, a file is no folder.
        let made = rustix::fs::access(path.join(""), Access::WRITE_OK | Access::EXEC_OK);
        made.map_err(io::Error::from).at("create anything in", path)
    }

    fn overlap(&self) -> Overlap {
        Overlap::Thread
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        fs::canonicalize(path).at("follow", path)
    }
}

/// Opens what must be a file, and gives its size. A pipe in its place would let the opening wait
/// for somebody at the other end.
fn open_regular(how: &mut OpenOptions, op: &'static str, path: &Path) -> Result<(File, u64)> {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = how.custom_flags(flags).open(path).at(op, path)?;
    let found = file.metadata().at(op, path)?;
    if !found.is_file() {
        let source = io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
        return Err(StorageError::new(op, path, source));
    }
    Ok((file, found.len()))
}

/// What the handles of one opening of a file share.
#[derive(Debug, Clone)]
struct Opened {
    file: Arc<File>,
    path: Arc<Path>,
    poison: Poison,
}

impl Opened {
    fn new(file: File, path: &Path) -> Self {
        Self { file: Arc::new(file), path: path.into(), poison: Poison::default() }
    }

    fn sync(&self) -> Result<()> {
        self.poison.guard("sync", &self.path, || self.file.sync_data())
    }
}

#[derive(Debug)]
struct Appender {
    opened: Opened,
    len: u64,
}

impl AppendFile for Appender {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Opened { file, path, poison } = &self.opened;
        poison.guard("append to", path, || file.write_all_at(bytes, self.len))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.opened.sync()
    }

    fn syncer(&self) -> Box<dyn SyncFile> {
        Box::new(Syncer(self.opened.clone()))
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[derive(Debug)]
struct Syncer(Opened);

impl SyncFile for Syncer {
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
}

#[derive(Debug)]
struct Reader {
    file: File,
    path: PathBuf,
    len: u64,
}

impl ReadFile for Reader {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).at("read", &self.path)
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// The lock goes with the open file.
#[derive(Debug)]
struct Guard {
    _file: File,
}

impl LockGuard for Guard {}

/// Says what was tried, and where, when a call to the system fails.
trait At<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| StorageError::new(op, path, e))
    }
}

/// What the owner of a lock wrote into its file.
fn owner_text(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut file = file.take(OWNER_BYTES);
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn entry(name: impl Into<String>, meta: &Metadata) -> Entry {
    let kind = kind(meta.file_type());
    let len = if kind == EntryKind::File { meta.len() } else { 0 };
    Entry { name: name.into(), kind, len }
}

fn kind(of: FileType) -> EntryKind {
    if of.is_file() {
        EntryKind::File
    } else if of.is_dir() {
        EntryKind::Dir
    } else {
        EntryKind::Other
    }
}

/// Whether nothing stands at a path: no such name, or a file where a directory would have to be.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
