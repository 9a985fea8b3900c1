//! A place reached by URL as a [`Storage`], so that what reads folders reads it unchanged.
//!
//! Paths are the URL and what stands below it. Leaves out: writing, which is refused, reading objects
//! from one end to the other (`ahead`), and reading blocks, which rows are read by (`blocks`).
//!
//! Invariant: only threads that may wait call it, never those of the runtime itself, but for a place
//! that is for rows.

use std::collections::HashMap;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::StreamExt;
use object_store::{Attribute, GetOptions, ObjectMeta, ObjectStoreExt};
use tokio::runtime::Handle;

use super::ahead::RemoteFile;
use super::blocking;
use super::blocks::BlockFile;
use super::cache::{BlockCache, BlockCacheOptions};
use super::read::Object;
use super::{Remote, RemoteError, RemoteErrorKind, Scheme};
use crate::storage::{
    AppendFile, Blocks, Distant, DistantFile, Entry, EntryKind, Lock, Overlap, ReadFile, Result,
    Storage, StorageError, side_by_side,
};

/// Of so many files each is asked for itself: of more, their folder is listed.
const FEW: usize = 2;

/// A place that can only be read.
#[derive(Debug, Clone)]
pub struct RemoteStorage {
    pub(super) remote: Remote,
    root: PathBuf,
    pub(super) runtime: Handle,
    cache: Arc<BlockCache>,
    /// Whether any thread calls it.
    is_for_rows: bool,
}

impl RemoteStorage {
    /// The place; requests are made on `runtime`.
    #[must_use]
    pub fn new(remote: Remote, runtime: Handle) -> Self {
        let root = PathBuf::from(remote.url());
        let cache = Arc::new(BlockCache::new(BlockCacheOptions::default()));
        Self { remote, root, runtime, cache, is_for_rows: false }
    }

    /// The place for who reads rows there, on whatever thread; requests are made on threads of its own.
    ///
    /// # Errors
    /// The system refuses threads.
    pub fn for_rows(remote: Remote, options: BlockCacheOptions) -> Result<Self, RemoteError> {
        let runtime = blocking::runtime(remote.url())?;
        let cache = Arc::new(BlockCache::new(options));
        Ok(Self { cache, is_for_rows: true, ..Self::new(remote, runtime) })
    }

    /// Bytes of blocks that are kept in memory.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.held_bytes()
    }

    /// The URL, as paths begin.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Waits for the answer; also where a runtime of somebody else's would refuse to wait.
    pub(super) fn wait<F: Future<Output: Send> + Send>(&self, answer: F) -> F::Output {
        if !self.is_for_rows || Handle::try_current().is_err() {
            return self.runtime.block_on(answer);
        }
        let waiting = || self.runtime.block_on(answer);
        std::thread::scope(|threads| threads.spawn(waiting).join())
            .unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The metadata `name` of an object, `None` where it has none.
    ///
    /// # Errors
    /// The store refused, or there is no such object.
    pub fn metadata(&self, path: &Path, name: &'static str) -> Result<Option<String>> {
        let relative = self.relative("look at", path)?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let object = self.remote.path(&relative);
        let found = self.wait(self.remote.store().get_opts(&object, options));
        let found = found.map_err(|e| self.error("look at", path, &relative, &e))?;
        let value = found.attributes.get(&Attribute::Metadata(name.into()));
        Ok(value.map(|value| value.as_ref().to_owned()))
    }

    /// `path` relative to the URL.
    ///
    /// # Errors
    /// It does not stand below it.
    pub fn relative(&self, op: &'static str, path: &Path) -> Result<String> {
        let relative = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        relative
            .map(ToOwned::to_owned)
            .ok_or_else(|| StorageError::new(op, path, io::Error::other("it stands elsewhere")))
    }

    pub(super) fn error(
        &self,
        op: &'static str,
        path: &Path,
        relative: &str,
        source: &object_store::Error,
    ) -> StorageError {
        of_remote(op, path, self.remote.error(op, relative, source))
    }

    /// What the store knows of an object, `None` where there is none.
    fn head(&self, op: &'static str, path: &Path) -> Result<Option<ObjectMeta>> {
        let relative = self.relative(op, path)?;
        if relative.is_empty() {
            return Ok(None);
        }
        match self.wait(self.remote.head_or_why(&self.remote.path(&relative))) {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.error(op, path, &relative, &e)),
        }
    }

    /// A whole object, `None` where there is none.
    fn get(&self, op: &'static str, path: &Path) -> Result<Option<Bytes>> {
        let relative = self.relative(op, path)?;
        let got = self.wait(async {
            self.remote.store().get(&self.remote.path(&relative)).await?.bytes().await
        });
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) => match self.remote.error(op, &relative, &e) {
                error if error.kind() == RemoteErrorKind::NotFound => Ok(None),
                error => Err(of_remote(op, path, error)),
            },
        }
    }
}

/// The answer to whoever wants to write.
fn refused<T>(op: &'static str, path: &Path) -> Result<T> {
    Err(StorageError::new(op, path, io::ErrorKind::ReadOnlyFilesystem.into()))
}

/// What a store answered, as an error of a storage; [`remote_cause`] finds it again.
pub(crate) fn of_remote(op: &'static str, path: &Path, error: RemoteError) -> StorageError {
    let kind = match error.kind() {
        RemoteErrorKind::NotFound | RemoteErrorKind::NoBucket => io::ErrorKind::NotFound,
        RemoteErrorKind::Denied | RemoteErrorKind::Credentials => io::ErrorKind::PermissionDenied,
        RemoteErrorKind::Changed | RemoteErrorKind::Damaged => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    StorageError::new(op, path, io::Error::new(kind, error))
}

/// What a store answered, where that is behind the error of a storage.
#[must_use]
pub fn remote_cause(error: &StorageError) -> Option<&RemoteError> {
    error.source.get_ref()?.downcast_ref()
}

impl Storage for RemoteStorage {
    fn create_dir(&self, path: &Path) -> Result<()> {
        refused("make", path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        refused("sync", path)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        refused("create", path)
    }

    fn open_append(&self, path: &Path, _len: u64) -> Result<Box<dyn AppendFile>> {
        refused("append to", path)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn ReadFile>> {
        let Some(meta) = self.head("open", path)? else {
            return Err(StorageError::new("open", path, io::ErrorKind::NotFound.into()));
        };
        let relative = self.relative("open", path)?;
        Ok(Box::new(RemoteFile::new(self.clone(), path.to_path_buf(), relative, meta)))
    }

    fn map(&self, path: &Path) -> Result<Bytes> {
        let missing = || StorageError::new("read", path, io::ErrorKind::NotFound.into());
        self.get("read", path)?.ok_or_else(missing)
    }

    fn rename(&self, from: &Path, _to: &Path) -> Result<()> {
        refused("rename", from)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        refused("remove", path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        refused("remove", path)
    }

    fn symlink(&self, _target: &str, link: &Path) -> Result<()> {
        refused("make the link", link)
    }

    fn read_link(&self, _link: &Path) -> Result<Option<String>> {
        Ok(None)
    }

    fn list(&self, dir: &Path) -> Result<Option<Vec<Entry>>> {
        if self.remote.scheme() == Scheme::Http {
            return self.named(dir);
        }
        let relative = self.relative("list", dir)?;
        let prefix = self.remote.path(&relative);
        let listed = self.wait(self.remote.store().list_with_delimiter(Some(&prefix)));
        let listed = listed.map_err(|e| self.error("list", dir, &relative, &e))?;
        let name = |path: &object_store::path::Path| path.filename().map(ToOwned::to_owned);
        let dirs = listed
            .common_prefixes
            .iter()
            .filter_map(|path| Some(Entry { name: name(path)?, kind: EntryKind::Dir, len: 0 }));
        let files = listed.objects.iter().filter_map(|it| {
            Some(Entry { name: name(&it.location)?, kind: EntryKind::File, len: it.size })
        });
        let mut entries: Vec<_> = dirs.chain(files).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((!entries.is_empty()).then_some(entries))
    }

    fn stat(&self, path: &Path) -> Result<Option<Entry>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(meta) = self.head("look at", path)? {
            return Ok(Some(Entry { name, kind: EntryKind::File, len: meta.size }));
        }
        if self.remote.scheme() == Scheme::Http {
            return Ok(None);
        }
        let relative = self.relative("look at", path)?;
        let prefix = self.remote.path(&relative);
        let mut below = self.remote.store().list(Some(&prefix));
        match self.wait(below.next()) {
            Some(Ok(_)) => Ok(Some(Entry { name, kind: EntryKind::Dir, len: 0 })),
            None => Ok(None),
            Some(Err(e)) => match self.remote.error("look at", &relative, &e) {
                error if error.kind() == RemoteErrorKind::NotFound => Ok(None),
                error => Err(of_remote("look at", path, error)),
            },
        }
    }

    fn modified(&self, path: &Path) -> Result<Option<SystemTime>> {
        Ok(self.head("look at", path)?.map(|meta| meta.last_modified.into()))
    }

    fn lock(&self, path: &Path, _owner: &str) -> Result<Lock> {
        refused("lock", path)
    }

    fn lock_holder(&self, _path: &Path) -> Result<Option<String>> {
        Ok(None)
    }

    fn free_bytes(&self, _path: &Path) -> Result<Option<u64>> {
        Ok(None)
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        refused("write to", path)
    }

    fn overlap(&self) -> Overlap {
        Overlap::Now
    }

    fn distant(&self) -> Option<&dyn Distant> {
        Some(self)
    }

    fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        Ok(self.get("read", path)?.map(Vec::from))
    }
}

impl Distant for RemoteStorage {
    fn can_list(&self) -> bool {
        self.remote.scheme() != Scheme::Http
    }

    fn look(&self, folder: &Path, names: &[&str]) -> Result<Vec<Option<DistantFile>>> {
        let relative = self.relative("look at", folder)?;
        let known = |it: &Object| DistantFile {
            len: it.size,
            etag: it.etag.clone(),
            modified: it.modified,
        };
        // One listing tells of all of them, where places can be listed.
        if names.len() > FEW && self.can_list() {
            let listed = self.remote.list_folder(&relative);
            let listed = listed.map_err(|e| of_remote("list", folder, e))?;
            let listed: HashMap<&str, &Object> = listed
                .iter()
                .filter_map(|(path, object)| Some((path.rsplit('/').next()?, object)))
                .collect();
            return Ok(names.iter().map(|name| listed.get(name).copied().map(known)).collect());
        }
        side_by_side(names, |name| {
            let path = folder.join(name);
            match self.remote.head(&self.relative("look at", &path)?) {
                Ok(object) => Ok(Some(known(&object))),
                Err(e) if e.kind() == RemoteErrorKind::NotFound => Ok(None),
                Err(e) => Err(of_remote("look at", &path, e)),
            }
        })
    }

    fn open_blocks(
        &self,
        path: &Path,
        file: &DistantFile,
        blocks: Blocks,
    ) -> Result<Box<dyn ReadFile>> {
        let relative = self.relative("open", path)?;
        let DistantFile { len: size, etag, modified } = file.clone();
        let object = Object { size, modified, etag };
        let (remote, cache) = (self.remote.clone(), Arc::clone(&self.cache));
        Ok(Box::new(BlockFile::new(remote, relative, path, object, blocks, cache)))
    }
}
