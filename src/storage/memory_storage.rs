//! [`Memory`] as a [`Storage`]: its operations, its handles and its locks.
//!
//! It leaves out what a power cut does, which is `memory`'s and `model`'s.
//!
//! Invariants:
//! 1. What changes something goes through [`Memory::change`] and is counted; the rest goes through
//!    [`Memory::look`].

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::memory::Memory;
use super::model::{DirNode, Id, Node};
use super::pages::FileNode;
use super::poison::Poison;
use super::{
    AppendFile, Entry, EntryKind, Lock, LockGuard, Overlap, ReadFile, Result, Storage, SyncFile,
};

impl Storage for Memory {
    fn create_dir(&self, path: &Path) -> Result<()> {
        self.change("create the directory", path, |state| {
            let disk = &mut state.disk;
            if disk.find(path, true).is_ok_and(|id| disk.dir(id).is_ok()) {
                return Ok(());
            }
            disk.make("create", path, Node::Dir(DirNode::default())).map(drop)
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.change("sync the directory", path, |state| {
            let id = state.disk.find(path, true)?;
            state.disk.sync_dir(id)
        })
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        let id = self.change("create", path, |state| {
            state.disk.make("create", path, Node::File(FileNode::default()))
        })?;
        Ok(Handle::of(self, id, path, 0))
    }

    fn open_append(&self, path: &Path, len: u64) -> Result<Box<dyn AppendFile>> {
        let (id, len) = self.change("open for appending", path, |state| {
            let id = state.disk.find(path, true)?;
            let file = state.disk.file_mut(id)?;
            let found = file.live().len();
            match usize::try_from(len) {
                Ok(len) if len <= found => {
                    file.cut(len);
                    Ok((id, len))
                }
                _ => Err(super::too_short(found as u64, len)),
            }
        })?;
        Ok(Handle::of(self, id, path, len))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let (id, len) = self.look("open", path, |disk| {
            let id = disk.find(path, true)?;
            Ok((id, disk.file(id)?.live().len() as u64))
        })?;
        Ok(Box::new(Reader { memory: self.clone(), id, path: path.to_path_buf(), len }))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        self.look("map", path, |disk| {
            let file = disk.file(disk.find(path, true)?)?;
            Ok(Bytes::copy_from_slice(file.live()))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change("rename", from, |state| state.disk.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.change("remove", path, |state| state.disk.remove(path, false))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.change("remove the directory", path, |state| state.disk.remove(path, true))
    }

    fn symlink(&self, target: &str, link: &Path) -> Result<()> {
        self.change("make the link", link, |state| {
            state.disk.make("link", link, Node::Link(target.to_owned())).map(drop)
        })
    }

    fn read_link(&self, link: &Path) -> Result<Option<String>> {
        self.look("read the link", link, |disk| {
            Ok(match absent(disk.find(link, false).and_then(|id| disk.node(id)))? {
                Some(Node::Link(target)) => Some(target.clone()),
                _ => None,
            })
        })
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<Entry>>> {
        self.look("list", dir, |disk| {
            let found = match disk.find(dir, true) {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                found => disk.dir(found?)?,
            };
            let entries = found.live.iter().map(|(name, &id)| Ok(entry(name, disk.node(id)?)));
            entries.collect::<io::Result<_>>().map(Some)
        })
    }

    fn stat(&self, path: &Path) -> Result<Option<Entry>> {
        self.look("look at", path, |disk| {
            let node = absent(disk.find(path, false).and_then(|id| disk.node(id)))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok(node.map(|node| entry(&name, node)))
        })
    }

    fn lock(&self, path: &Path, owner: &str) -> Result<Lock> {
        let taken = self.change("lock", path, |state| {
            let id = match absent(state.disk.find(path, true))? {
                Some(id) => id,
                None => state.disk.make("create", path, Node::File(FileNode::default()))?,
            };
            if let Some(holder) = state.locks.get(&id) {
                return Ok(Err(holder.clone()));
            }
            // Nobody syncs the text, and nobody reads it who has not seen the lock held.
            state.disk.file_mut(id)?.show(owner.as_bytes());
            state.locks.insert(id, owner.to_owned());
            Ok(Ok(id))
        })?;
        Ok(match taken {
            Ok(id) => Lock::Held(Box::new(Guard { memory: self.clone(), id })),
            Err(holder) => Lock::Busy(holder),
        })
    }

    fn modified(&self, path: &Path) -> Result<Option<SystemTime>> {
        self.look("look at", path, |disk| {
            let made = absent(disk.find(path, false))?;
            // There is no clock here: what was made later is younger, by a second each.
            Ok(made.map(|id| SystemTime::UNIX_EPOCH + Duration::from_secs(id)))
        })
    }

    fn lock_holder(&self, path: &Path) -> Result<Option<String>> {
        let id = self.look("look at the lock", path, |disk| absent(disk.find(path, true)))?;
        Ok(id.and_then(|id| self.state().locks.get(&id).cloned()))
    }

    fn free_bytes(&self, path: &Path) -> Result<Option<u64>> {
        self.look("ask for the free space of", path, |_| Ok(None))
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        self.look("create anything in", path, |_| Ok(()))
    }

    fn overlap(&self) -> Overlap {
        self.overlap
    }
}

/// A handle that appends and syncs, or one that only syncs as far as `len`.
#[derive(Debug, Clone)]
struct Handle {
    memory: Memory,
    id: Id,
    path: PathBuf,
    len: usize,
    poison: Poison,
}

impl Handle {
    fn of(memory: &Memory, id: Id, path: &Path, len: usize) -> Box<dyn AppendFile> {
        let (memory, path) = (memory.clone(), path.to_path_buf());
        Box::new(Self { memory, id, path, len, poison: Poison::default() })
    }

    fn sync(&self) -> Result<()> {
        self.poison.check("sync", &self.path)?;
        self.poison.watch(self.memory.change("sync", &self.path, |state| {
            state.disk.file_mut(self.id)?.sync(self.len);
            Ok(())
        }))
    }
}

impl AppendFile for Handle {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Self { memory, id, path, len, poison } = self;
        poison.check("append to", path)?;
        poison.watch(memory.change("append to", path, |state| {
            let file = state.disk.file_mut(*id)?;
            if file.live().len() != *len {
                return Err(io::Error::other("somebody else has changed the file's size"));
            }
            file.append(bytes);
            *len += bytes.len();
            Ok(())
        }))
    }

    fn sync(&mut self) -> Result<()> {
        Handle::sync(self)
    }

    fn syncer(&self) -> Box<dyn SyncFile> {
        Box::new(self.clone())
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

impl SyncFile for Handle {
    fn sync(&mut self) -> Result<()> {
        Handle::sync(self)
    }
}

#[derive(Debug)]
struct Reader {
    memory: Memory,
    id: Id,
    path: PathBuf,
    len: u64,
}

impl ReadFile for Reader {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.memory.look("read", &self.path, |disk| {
            let live = disk.file(self.id)?.live();
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let bytes = from.checked_add(buf.len()).and_then(|to| live.get(from..to));
            buf.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[derive(Debug)]
struct Guard {
    memory: Memory,
    id: Id,
}

impl LockGuard for Guard {}

impl Drop for Guard {
    fn drop(&mut self) {
        self.memory.state().locks.remove(&self.id);
    }
}

fn entry(name: &str, node: &Node) -> Entry {
    let (kind, len) = match node {
        Node::File(file) => (EntryKind::File, file.live().len() as u64),
        Node::Dir(_) => (EntryKind::Dir, 0),
        Node::Link(_) => (EntryKind::Other, 0),
    };
    Entry { name: name.to_owned(), kind, len }
}

/// `None` where nothing stands at a path.
fn absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        found => found.map(Some),
    }
}
