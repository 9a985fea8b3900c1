//! The one door to the network: object stores and shared disks behind one type, reached by URL.
//!
//! Leaves out: what is read from there and what is put there, which `sources` and `exporters` decide.
//!
//! Invariants:
//! 1. Credentials come from the environment and the provider's own chain, never from a URL or a
//!    definition, and reach no message, log or `Debug` text: errors are made of what was recognised
//!    of a store's answer, and what they quote is scrubbed.
//! 2. Nothing is sent over plain HTTP to a store that takes credentials, unless that was allowed.
//! 3. A URL that is shown has no user info and no query.

mod ahead;
mod answer;
mod blocking;
mod blocks;
mod cache;
mod client;
mod error;
mod list;
mod lister;
mod pages;
mod patience;
pub mod probe;
mod read;
mod scrub;
mod sending;
mod shared_disk;
mod spelling;
mod staged;
mod storage;
mod unlisted;
mod uploads;
mod uploads_page;
#[cfg(test)]
mod uploads_signature;
mod url;
mod write;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;

pub use blocking::Pending;
pub use cache::BlockCacheOptions;
pub use error::{RemoteError, RemoteErrorKind};
pub use pages::{Pace, Pages, Room, Taken, Told};
pub use read::Object;
pub(crate) use storage::of_remote;
pub use storage::{RemoteStorage, remote_cause};
pub use uploads::{Upload, Uploads};
pub use url::{Scheme, is_url, lists_in_order, local_path, shown, split};

use url::RemoteUrl;

/// How a store is reached. None of it changes a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Whether an endpoint may be plain HTTP: anybody on the way reads and changes what is sent.
    pub allow_http: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an answer may take, once the store has been sent all, and pause while it is read.
    pub read_timeout: Duration,
    /// How often a request is tried again that a store refused for the moment, or that was cut.
    pub retries: usize,
    /// How long a request is tried again.
    pub retry_timeout: Duration,
}

impl Default for RemoteOptions {
    /// A store that is away is asked for half a minute or so, and for ten seconds at the very least.
    fn default() -> Self {
        Self {
            allow_http: false,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_mins(1),
            retries: 15,
            retry_timeout: Duration::from_mins(3),
        }
    }
}

/// A place in an object store or on a shared disk: everything below one URL.
#[derive(Clone)]
pub struct Remote {
    url: RemoteUrl,
    store: Arc<dyn ObjectStore>,
    multipart: Option<Arc<dyn MultipartStore>>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    asks: Option<Arc<uploads::Asks>>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The stores' own texts hold their configuration.
        f.debug_struct("Remote").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Remote {
    /// The place at `url`: `s3://bucket/prefix`, `gs://…`, `az://container/…`, `file:///…`, or
    /// `http(s)://…`, which can only be read. Nothing is sent yet.
    ///
    /// Credentials, endpoint and region come from the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`)
    /// and from what the provider offers on its machines.
    ///
    /// # Errors
    /// The URL is none of these or holds a secret, the endpoint is plain HTTP and may not be, or
    /// the environment contradicts itself.
    pub fn open(url: &str, options: &RemoteOptions) -> Result<Self, RemoteError> {
        let url = RemoteUrl::parse(url)?;
        let client::Client { store, multipart, pages, asks } = client::connect(&url, options)?;
        Ok(Self { url, store, multipart, pages, asks })
    }

    /// A place below `url` in a store that is at hand.
    #[cfg(test)]
    pub(crate) fn of_store<S: ObjectStore + MultipartStore>(url: &str, store: Arc<S>) -> Self {
        let url = RemoteUrl::parse(url).unwrap();
        let (pages, asks) = (None, None);
        Self { url, store: Arc::<S>::clone(&store), multipart: Some(store), pages, asks }
    }

    /// What requests go through; its paths are those of [`Remote::path`].
    #[must_use]
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// The same store for multipart uploads whose ids and parts the caller keeps; `None` of `file`
    /// and `http(s)`.
    #[must_use]
    pub fn multipart(&self) -> Option<&Arc<dyn MultipartStore>> {
        self.multipart.as_ref()
    }

    /// Whether the place lists page by page: `file` and `http(s)` do not.
    #[must_use]
    pub fn has_pages(&self) -> bool {
        self.pages.is_some()
    }

    /// The same store for listing page by page; `None` of `file` and `http(s)`.
    fn pages(&self) -> Option<&Arc<dyn PaginatedListStore>> {
        self.pages.as_ref()
    }

    /// What kind of place it is.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.url.scheme()
    }

    /// The URL, without a slash at its end, user info or query.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.shown()
    }

    /// What stands before every path of this place in its store.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        self.url.prefix()
    }

    /// Where `relative` stands in the store; empty is the place itself.
    #[must_use]
    pub fn path(&self, relative: &str) -> Path {
        let joined = match (self.url.prefix().as_ref(), relative) {
            ("", _) => relative.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, _) => format!("{prefix}/{relative}"),
        };
        // What is no path as it is (`..`, two slashes) is escaped: it cannot leave the prefix.
        Path::parse(&joined).unwrap_or_else(|_| Path::from(joined))
    }

    /// `path` of the store relative to this place, if it stands below it.
    #[must_use]
    pub fn relative(&self, path: &Path) -> Option<String> {
        let prefix = self.url.prefix().as_ref();
        let path = path.as_ref();
        if prefix.is_empty() {
            return Some(path.to_owned());
        }
        path.strip_prefix(prefix)?.strip_prefix('/').map(ToOwned::to_owned)
    }

    /// The URL of `relative`, for people.
    #[must_use]
    pub fn show(&self, relative: &str) -> String {
        if relative.is_empty() {
            return self.url().to_owned();
        }
        format!("{}/{relative}", self.url())
    }

    /// The error for what the store answered when `op` (a verb phrase: "read", "write") was tried
    /// on `relative`.
    #[must_use]
    pub fn error(
        &self,
        op: &'static str,
        relative: &str,
        source: &object_store::Error,
    ) -> RemoteError {
        RemoteError::new(op, self.show(relative), source)
    }

    /// Refuses a place that can only be read.
    ///
    /// # Errors
    /// It is `http(s)`.
    pub fn expect_writable(&self) -> Result<(), RemoteError> {
        if self.scheme() == Scheme::Http {
            let kind = RemoteErrorKind::Unsupported;
            let said = "places at http and https can only be read";
            return Err(RemoteError::of("write to", self.url(), kind, Some(said.to_owned())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt, PutMode};

    use super::*;

    #[test]
    fn paths_stay_below_the_prefix_and_come_back() {
        for (url, relative, path, back) in [
            ("s3://b/a/x", "f.bin", "a/x/f.bin", Some("f.bin")),
            ("s3://b/a/x/", "d/f", "a/x/d/f", Some("d/f")),
            ("s3://b", "f", "f", Some("f")),
            ("s3://b/a", "", "a", None),
            ("s3://b/a", "../f", "a/%2E%2E/f", Some("%2E%2E/f")),
            ("gs://b/100% é", "ü", "100% é/ü", Some("ü")),
        ] {
            let place = RemoteUrl::parse(url).unwrap();
            let memory = Arc::new(object_store::memory::InMemory::new());
            let remote =
                Remote { url: place, store: memory, multipart: None, pages: None, asks: None };
            let found = remote.path(relative);
            assert_eq!(found.as_ref(), path, "{url} {relative}");
            assert_eq!(remote.relative(&found).as_deref(), back, "{url} {relative}");
        }
    }

    #[test]
    fn a_shared_disk_is_written_and_read_by_url() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/a b", dir.path().display());
        let remote = Remote::open(&url, &RemoteOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let path = remote.path("x/1.bin");
            let (store, create) = (remote.store(), PutMode::Create.into());
            store.put_opts(&path, "one".into(), create).await.unwrap();
            let e = store.put_opts(&path, "two".into(), PutMode::Create.into()).await.unwrap_err();
            let e = remote.error("create", "x/1.bin", &e);
            assert_eq!(e.kind(), RemoteErrorKind::Exists);
            let e = store.get(&remote.path("x/2.bin")).await.unwrap_err();
            assert_eq!(remote.error("read", "x/2.bin", &e).kind(), RemoteErrorKind::NotFound);
        });
        assert!(dir.path().join("a b/x/1.bin").exists());
        assert!(remote.multipart().is_none());
    }

    #[test]
    fn what_is_read_only_says_so() {
        let remote = Remote::open("https://example.org/data", &RemoteOptions::default()).unwrap();
        let e = remote.expect_writable().unwrap_err();
        assert_eq!(
            e.to_string(),
            "cannot write to `https://example.org/data`: the store cannot do this (places at http \
             and https can only be read)"
        );
    }
}
