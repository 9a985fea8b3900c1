//! What a push to a shared disk was writing when it was killed.
//!
//! The client writes a file under another name until it is whole, and shows none of these names: not
//! in listings, and not for removal. So they are looked for on the disk itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::read::Object;
use super::{Remote, RemoteError, RemoteErrorKind, Scheme, local_path};
use crate::storage::{Entry, EntryKind, Local, Result, Storage, StorageError, parent, staged_for};

impl Remote {
    /// The files in the folder `below`, of any depth, that clients were or are writing: paths relative to
    /// this place. None, where it is no shared disk.
    ///
    /// # Errors
    /// The disk's.
    pub fn staged(&self, below: &str) -> Result<Vec<(String, Object)>, RemoteError> {
        let Some(root) = self.disk() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        let searched = search(&root.join(below), below, &mut found);
        searched.map_err(|error| refused("list", &error))?;
        Ok(found)
    }

    /// The same of the one file `whole` that stands beside the folder `below`: paths relative to that folder.
    ///
    /// # Errors
    /// The disk's.
    pub fn staged_beside(
        &self,
        below: &str,
        whole: &str,
    ) -> Result<Vec<(String, Object)>, RemoteError> {
        let Some(root) = self.disk() else { return Ok(Vec::new()) };
        let (dir, mut found) = (root.join(below), Vec::new());
        let mut look = || {
            for entry in Local.list(parent(&dir))?.unwrap_or_default() {
                if staged_for(&entry.name) == Some(whole) {
                    found.extend(object(parent(&dir), format!("../{}", entry.name), &entry)?);
                }
            }
            Ok(())
        };
        look().map_err(|error| refused("list", &error))?;
        Ok(found)
    }

    /// Removes a file that [`Remote::staged`] has named; it may be gone.
    ///
    /// # Errors
    /// It is none of these; the disk's.
    pub fn remove_staged(&self, relative: &str) -> Result<(), RemoteError> {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        let Some(root) = self.disk().filter(|_| staged_for(name).is_some()) else {
            let (url, kind) = (self.show(relative), RemoteErrorKind::Unsupported);
            return Err(RemoteError::of("delete", url, kind, None));
        };
        let removed = Local.remove_file(&root.join(relative));
        match removed.map_err(|error| refused("delete", &error)) {
            Err(error) if error.kind() == RemoteErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn disk(&self) -> Option<PathBuf> {
        if self.scheme() == Scheme::File { local_path(self.url()).ok() } else { None }
    }
}

fn refused(op: &'static str, error: &StorageError) -> RemoteError {
    let kind = match error.source.kind() {
        ErrorKind::NotFound => RemoteErrorKind::NotFound,
        ErrorKind::PermissionDenied => RemoteErrorKind::Denied,
        _ => RemoteErrorKind::Server,
    };
    let url = format!("file://{}", error.path.display());
    RemoteError::of(op, url, kind, Some(error.source.to_string()))
}

/// What the file is that `entry` of `dir` tells of; nothing if it is gone since: it is whole, or somebody else
/// has removed it.
fn object(dir: &Path, relative: String, entry: &Entry) -> Result<Option<(String, Object)>> {
    let modified = Local.modified(&dir.join(&entry.name))?;
    Ok(modified.map(|modified| (relative, Object { size: entry.len, modified, etag: None })))
}

fn search(dir: &Path, below: &str, found: &mut Vec<(String, Object)>) -> Result<()> {
    for entry in Local.list(dir)?.unwrap_or_default() {
        let path = dir.join(&entry.name);
        let relative =
            if below.is_empty() { entry.name.clone() } else { format!("{below}/{}", entry.name) };
        match entry.kind {
            EntryKind::Dir => search(&path, &relative, found)?,
            EntryKind::File if staged_for(&entry.name).is_some() => {
                found.extend(object(dir, relative, &entry)?);
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;
    use crate::remote::RemoteOptions;

    #[test]
    fn what_a_client_leaves_that_dies_while_it_writes_is_found_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/a%20b", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for name in ["x/y.bin", "z"] {
                remote.store().put(&remote.path(name), "whole".into()).await.unwrap();
                let begun = remote.store().put_multipart(&remote.path(name)).await.unwrap();
                // As if nobody were there any more.
                std::mem::forget(begun);
            }
        });
        let names = |below: &str| -> Vec<String> {
            remote.staged(below).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(""), ["x/y.bin#1", "z#1"]);
        assert_eq!(names("x"), ["x/y.bin#1"]);
        for name in names("") {
            remote.remove_staged(&name).unwrap();
            remote.remove_staged(&name).expect("gone is fine");
        }
        assert!(names("").is_empty());
        let beside = dir.path().join("a b/z#7");
        Local.write_atomic(&beside, b"half").unwrap();
        let found = remote.staged_beside("x", "z").unwrap();
        assert_eq!((found.len(), &*found[0].0, found[0].1.size), (1, "../z#7", 4));
        remote.remove_staged(&format!("x/{}", found[0].0)).unwrap();
        assert!(Local.stat(&beside).unwrap().is_none());
        let refused = remote.remove_staged("x/y.bin").unwrap_err();
        assert_eq!(refused.kind(), RemoteErrorKind::Unsupported);
        assert_eq!(remote.list("", "", |name, _| Some(name)).unwrap(), ["x/y.bin", "z"]);
    }
}
