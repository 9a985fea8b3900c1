//! Reads objects from threads that may block.
//!
//! Leaves out: how far ahead is read, which `sources` decide.
//!
//! Invariant: bytes are of the state of the object that was meant, or an error says that it changed,
//! also at stores that do not keep to `If-Match`.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::blocking::{Pending, PendingMany};
use super::{Remote, RemoteError, RemoteErrorKind, Scheme};

/// How often bytes are asked for again that came short; the client tries again what broke off.
const SHORT_RETRIES: usize = 3;

/// How many objects are looked at at once.
const LOOKS: usize = 16;

/// Answers of at most so many bytes are copied.
const COPIED_BYTES: usize = 512 << 10;

/// One state of an object, as far as a store tells states apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Size in bytes.
    pub size: u64,
    /// When it was written, to the second: stores round it in one answer and not in another.
    pub modified: SystemTime,
    /// What the store calls this state.
    pub etag: Option<String>,
}

impl Object {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let seconds = u64::try_from(meta.last_modified.timestamp()).unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Self { size: meta.size, modified, etag: meta.e_tag.clone() }
    }

    /// Whether `other` is the same state.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.size == other.size
            && match (&self.etag, &other.etag) {
                (Some(etag), Some(other)) => etag == other,
                _ => self.modified == other.modified,
            }
    }

    /// The condition under which bytes of this state come; a weak `ETag` is none.
    fn if_match(&self) -> Option<String> {
        self.etag.clone().filter(|etag| !etag.starts_with("W/"))
    }
}

impl Remote {
    /// The object at `relative` as it is now.
    ///
    /// # Errors
    /// The store's.
    pub fn head(&self, relative: &str) -> Result<Object, RemoteError> {
        let (remote, relative) = (self.clone(), relative.to_owned());
        let asked = async move {
            let path = remote.path(&relative);
            if remote.scheme() == Scheme::Http {
                // A URL that is signed is so for reading: what it says with its first byte is enough.
                let first = Some(GetRange::Bounded(0..1));
                let options = GetOptions { range: first, ..GetOptions::default() };
                match remote.store().get_opts(&path, options).await {
                    Ok(found) => return Ok(Object::of(&found.meta)),
                    Err(e) => match remote.error("look at", &relative, &e) {
                        e if is_silence(&e) => return Err(e),
                        _ => {}
                    },
                }
            }
            let found = remote.head_or_why(&path).await;
            let found = found.map_err(|e| remote.error("look at", &relative, &e))?;
            Ok(Object::of(&found))
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }

    /// Whether there are objects of these names, each asked for by itself: a list may show under a name
    /// without a slash at its end what has one.
    ///
    /// # Errors
    /// The store's.
    pub fn are_there(&self, names: Vec<String>) -> Result<Vec<bool>, RemoteError> {
        let remote = self.clone();
        let asked = async move {
            let looked = stream::iter(names).map(|name| {
                let remote = remote.clone();
                async move {
                    let found = remote.head_or_why(&remote.path(&name)).await;
                    match found.map_err(|e| remote.error("look at", &name, &e)) {
                        Err(e) if e.kind() == RemoteErrorKind::NotFound => Ok(false),
                        found => found.map(|_| true),
                    }
                }
            });
            looked.buffered(LOOKS).try_collect().await
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }

    /// What the store knows of an object. An answer to this question has no body that says why it was
    /// refused; that to another has.
    pub(super) async fn head_or_why(&self, path: &Path) -> object_store::Result<ObjectMeta> {
        let refused = match self.store().head(path).await {
            Ok(found) => return Ok(found),
            Err(e @ object_store::Error::NotFound { .. }) => return Err(e),
            Err(e) => e,
        };
        if is_silence(&self.error("look at", "", &refused)) {
            // It was asked often enough.
            return Err(refused);
        }
        let first = Some(GetRange::Bounded(0..1));
        let options = GetOptions { range: first, ..GetOptions::default() };
        Err(self.store().get_opts(path, options).await.err().unwrap_or(refused))
    }

    /// Begins to read the bytes `range` of `relative`, in the state `of` if one is meant; the range
    /// is not empty and not behind the end.
    ///
    /// # Errors
    /// The system refuses threads; the store's come when the answer is waited for.
    pub fn begin_read(
        &self,
        relative: &str,
        range: Range<u64>,
        of: Option<Object>,
    ) -> Result<Pending<(Object, Bytes)>, RemoteError> {
        let (remote, relative) = (self.clone(), relative.to_owned());
        let asked = async move { remote.read(&relative, range, of.as_ref()).await };
        Pending::new(self.url().to_owned(), asked)
    }

    /// Begins to read several ranges of `relative` in the state `of`, as many at once as there are
    /// `permits`: each answer holds one until it is dropped.
    pub(super) fn begin_reads(
        &self,
        relative: &str,
        ranges: Vec<Range<u64>>,
        of: Object,
        permits: &Arc<Semaphore>,
    ) -> Result<PendingMany<(Bytes, OwnedSemaphorePermit)>, RemoteError> {
        let (relative, of): (Arc<str>, _) = (relative.into(), Arc::new(of));
        let asked = ranges.into_iter().map(|range| {
            let (remote, permits) = (self.clone(), Arc::clone(permits));
            let (relative, of) = (Arc::clone(&relative), Arc::clone(&of));
            async move {
                let permit = permits.acquire_owned().await;
                let permit = permit.map_err(|e| {
                    let (url, kind) = (remote.show(&relative), RemoteErrorKind::Other);
                    RemoteError::of("read", url, kind, Some(e.to_string()))
                })?;
                let (_, bytes) = remote.read(&relative, range, Some(&of)).await?;
                Ok((bytes, permit))
            }
        });
        PendingMany::new(self.url().to_owned(), asked.collect())
    }

    async fn read(
        &self,
        relative: &str,
        range: Range<u64>,
        of: Option<&Object>,
    ) -> Result<(Object, Bytes), RemoteError> {
        let path = self.path(relative);
        let wrong = |kind, said: &str| {
            RemoteError::of("read", self.show(relative), kind, Some(said.to_owned()))
        };
        for _ in 0..=SHORT_RETRIES {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                if_match: of.and_then(Object::if_match),
                ..GetOptions::default()
            };
            let refused = |e| self.error("read", relative, &e);
            let got = self.store().get_opts(&path, options).await.map_err(refused)?;
            let found = Object::of(&got.meta);
            if of.is_some_and(|of| !of.is_same(&found)) {
                return Err(wrong(RemoteErrorKind::Changed, "another state came"));
            }
            if range.end > found.size {
                return Err(wrong(RemoteErrorKind::Changed, "it is shorter than it was"));
            }
            let got_range = got.range.clone();
            let bytes = got.bytes().await.map_err(refused)?;
            if got_range == range && bytes.len() as u64 == range.end - range.start {
                // What is small may stand in a larger buffer, which it would keep.
                let is_small = bytes.len() <= COPIED_BYTES;
                return Ok((found, if is_small { Bytes::copy_from_slice(&bytes) } else { bytes }));
            }
        }
        Err(wrong(RemoteErrorKind::Damaged, "fewer bytes came than were asked for"))
    }

    /// The objects in the folder `folder` itself, without what lies in folders below it.
    ///
    /// # Errors
    /// The store's.
    pub fn list_folder(&self, folder: &str) -> Result<Vec<(String, Object)>, RemoteError> {
        let (remote, folder) = (self.clone(), folder.to_owned());
        let asked = async move {
            let prefix = remote.path(&folder);
            let found = remote.store().list_with_delimiter(Some(&prefix)).await;
            let found = found.map_err(|e| remote.error("list", &folder, &e))?;
            let objects = found.objects.iter();
            let named = objects
                .filter_map(|meta| Some((remote.relative(&meta.location)?, Object::of(meta))));
            Ok(named.collect())
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }
}

/// Whether a client has asked again and again before it gave up.
fn is_silence(error: &RemoteError) -> bool {
    use RemoteErrorKind::{Network, Server, Throttled};
    matches!(error.kind(), Network | Server | Throttled)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering};

    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::remote::RemoteOptions;

    #[test]
    fn an_object_that_is_shorter_than_it_was_has_changed() {
        let store = Arc::new(InMemory::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let path = object_store::path::Path::from("p/x");
        runtime.block_on(store.put(&path, vec![7; 3].into())).unwrap();
        let remote = Remote::of_store("s3://b/p", store);
        let read = |range| remote.begin_read("x", range, None).unwrap().wait();
        assert_eq!(read(0..3).unwrap().1.len(), 3);
        assert_eq!(read(1..8).unwrap_err().kind(), RemoteErrorKind::Changed);
    }

    #[test]
    fn a_store_that_does_not_answer_is_asked_once_and_as_often_as_is_tried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let n_asked = Arc::new(AtomicU64::new(0));
        let of_server = Arc::clone(&n_asked);
        // It ends with the process.
        std::thread::spawn(move || {
            while listener.accept().is_ok() {
                of_server.fetch_add(1, Ordering::SeqCst);
            }
        });
        let options = RemoteOptions { retries: 1, ..RemoteOptions::default() };
        let remote = Remote::open(&url, &options).unwrap();
        assert_eq!(remote.head("x").unwrap_err().kind(), RemoteErrorKind::Network);
        assert_eq!(n_asked.swap(0, Ordering::SeqCst), 2);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(remote.head_or_why(&remote.path("x"))).unwrap_err();
        assert_eq!(n_asked.swap(0, Ordering::SeqCst), 2);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test puts files where a store finds them")]
    fn bytes_are_of_the_state_that_was_meant() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        std::fs::write(dir.path().join("a.bin"), b"0123456789").unwrap();
        let first = remote.head("a.bin").unwrap();
        let read = |of: &Object| remote.begin_read("a.bin", 2..5, Some(of.clone())).unwrap().wait();
        assert_eq!(read(&first).unwrap().1, &b"234"[..]);
        std::fs::write(dir.path().join("a.bin"), b"0123456789abc").unwrap();
        assert_eq!(read(&first).unwrap_err().kind(), RemoteErrorKind::Changed);
        let listed = remote.list("", "", |path, object| Some((path, object.size))).unwrap();
        assert_eq!(listed, [("a.bin".to_owned(), 13)]);
        assert_eq!(remote.list_folder("").unwrap().len(), 1);
        assert_eq!(remote.head("b.bin").unwrap_err().kind(), RemoteErrorKind::NotFound);
    }
}
