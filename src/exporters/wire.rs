//! The requests of a push, counted, with what stores cannot do made up for.
//!
//! Leaves out: deciding which requests are made, and in which order.
//!
//! Invariant: the digest of an object is that of its bytes wherever it is given along; where a store
//! keeps no metadata, nothing is given.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, MultipartUpload, ObjectMeta, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, UpdateVersion,
};

use super::decide;
use super::error::Result;
use super::object::DIGEST;
use crate::remote::{Remote, RemoteError, RemoteErrorKind};

/// How an object may come to stand in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// Whatever stands there.
    Replace,
    /// Only where nothing stands.
    Create,
    /// Only in the place of the object with this ETag.
    Update(String),
}

/// One place, and the requests made there.
#[derive(Debug)]
pub(super) struct Wire {
    remote: Remote,
    folder: String,
    n_requests: AtomicU64,
    keeps_no_digest: AtomicBool,
}

impl Wire {
    /// The objects in a folder of `remote`.
    pub(super) fn new(remote: Remote, folder: String) -> Self {
        let (n_requests, keeps_no_digest) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { remote, folder, n_requests, keeps_no_digest }
    }

    /// How many requests were made, those not counted that a client repeats by itself.
    pub(super) fn n_requests(&self) -> u64 {
        self.n_requests.load(Ordering::Relaxed)
    }

    /// The URL of an object.
    pub(super) fn show(&self, name: &str) -> String {
        self.remote.show(&self.relative(name))
    }

    /// Whether uploads can be continued by another process.
    pub(super) fn can_continue(&self) -> bool {
        self.remote.multipart().is_some()
    }

    /// What stands in a folder, of the names that `is_asked` affirms.
    pub(super) async fn list(
        &self,
        folder: &str,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, decide::Remote>> {
        let mut found = BTreeMap::new();
        self.each(folder, |name, meta| {
            if is_asked(name) {
                let there = decide::Remote::Listed { bytes: meta.size, etag: meta.e_tag };
                found.insert(name.to_owned(), there);
            }
        })
        .await?;
        Ok(found)
    }

    /// Tells of the names in a folder with the sizes of what stands there.
    pub(super) async fn sizes(&self, folder: &str, mut tell: impl FnMut(&str, u64)) -> Result<()> {
        self.each(folder, |name, meta| tell(name, meta.size)).await
    }

    /// Tells of the names in a folder with the times at which they were written, by the store's clock.
    pub(super) async fn times(
        &self,
        folder: &str,
        mut tell: impl FnMut(&str, SystemTime),
    ) -> Result<()> {
        self.each(folder, |name, meta| tell(name, meta.last_modified.into())).await
    }

    async fn each(&self, folder: &str, mut tell: impl FnMut(&str, ObjectMeta)) -> Result<()> {
        let failed = |e| self.error("list", folder, &e);
        let path = self.count(folder);
        let mut listed = self.remote.store().list(Some(&path));
        while let Some(meta) = listed.next().await {
            let meta = meta.map_err(failed)?;
            let Some(name) = self.remote.relative(&meta.location) else { continue };
            let name = name.strip_prefix(&self.folder).and_then(|name| name.strip_prefix('/'));
            if let Some(name) = name {
                tell(name, meta);
            }
        }
        Ok(())
    }

    /// What stands under a name, and the digest that it carries.
    pub(super) async fn look(&self, name: &str) -> Result<decide::Remote> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        let path = self.count(name);
        match self.remote.store().get_opts(&path, options).await {
            Ok(found) => {
                let b3 = found.attributes.get(&Attribute::Metadata(DIGEST.into()));
                let b3 = b3.and_then(|b3| blake3::Hash::from_hex(b3.as_ref()).ok());
                Ok(decide::Remote::Seen { bytes: found.meta.size, etag: found.meta.e_tag, b3 })
            }
            Err(e) => match self.error("look at", name, &e) {
                e if e.kind() == RemoteErrorKind::NotFound => Ok(decide::Remote::Absent),
                e => Err(e.into()),
            },
        }
    }

    /// A small object with its ETag, `None` where there is none.
    pub(super) async fn read(&self, name: &str) -> Result<Option<(Bytes, Option<String>)>> {
        let path = self.count(name);
        let failed = |e: object_store::Error| self.error("read", name, &e);
        let found = match self.remote.store().get(&path).await.map_err(failed) {
            Ok(found) => found,
            Err(e) if e.kind() == RemoteErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let etag = found.meta.e_tag.clone();
        Ok(Some((found.bytes().await.map_err(failed)?, etag)))
    }

    /// The BLAKE3 of the bytes of an object, `None` where there is none.
    pub(super) async fn hash(&self, name: &str) -> Result<Option<blake3::Hash>> {
        let path = self.count(name);
        let failed = |e: object_store::Error| self.error("read", name, &e);
        let found = match self.remote.store().get(&path).await.map_err(failed) {
            Ok(found) => found,
            Err(e) if e.kind() == RemoteErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let mut bytes = found.into_stream();
        let mut hasher = blake3::Hasher::new();
        while let Some(piece) = bytes.try_next().await.map_err(failed)? {
            hasher.update(&piece);
        }
        Ok(Some(hasher.finalize()))
    }

    /// Puts an object of that digest in its place; gives its ETag.
    pub(super) async fn put(
        &self,
        name: &str,
        bytes: Bytes,
        b3: &blake3::Hash,
        mode: &Mode,
    ) -> Result<Option<String>, RemoteError> {
        loop {
            let mode = match mode {
                Mode::Replace => PutMode::Overwrite,
                Mode::Create => PutMode::Create,
                Mode::Update(etag) => {
                    PutMode::Update(UpdateVersion { e_tag: Some(etag.clone()), version: None })
                }
            };
            let attributes = self.attributes(b3);
            let has_attributes = !attributes.is_empty();
            let options = PutOptions { mode, attributes, ..PutOptions::default() };
            let path = self.count(name);
            match self.remote.put(&path, bytes.clone().into(), options).await {
                Ok(put) => return Ok(put.e_tag),
                Err(e) if has_attributes && is_unsupported(&e) => self.keep_no_digest(),
                Err(e) => return Err(self.error("write", name, &e)),
            }
        }
    }

    /// Begins a multipart upload that anybody can continue who knows its name, which is given.
    pub(super) async fn begin(&self, name: &str, b3: &blake3::Hash) -> Result<String> {
        let Some(store) = self.remote.multipart() else {
            return Err(self.unsupported("begin an upload of", name).into());
        };
        loop {
            let attributes = self.attributes(b3);
            let has_attributes = !attributes.is_empty();
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            match store.create_multipart_opts(&self.count(name), options).await {
                Ok(upload) => return Ok(upload),
                Err(e) if has_attributes && is_unsupported(&e) => self.keep_no_digest(),
                Err(e) => return Err(self.error("begin an upload of", name, &e).into()),
            }
        }
    }

    /// Sends a part of an upload; gives what completing it needs.
    pub(super) async fn part(
        &self,
        name: &str,
        upload: &str,
        number: usize,
        bytes: Bytes,
    ) -> Result<String, RemoteError> {
        let Some(store) = self.remote.multipart() else {
            return Err(self.unsupported("write a part of", name));
        };
        let (path, upload) = (self.count(name), upload.to_owned());
        let sent = store.put_part(&path, &upload, number, bytes.into()).await;
        let part = sent.map_err(|e| self.error("write a part of", name, &e))?;
        Ok(part.content_id)
    }

    /// Makes an object of the parts of an upload, whose answers are given in order.
    pub(super) async fn complete(
        &self,
        name: &str,
        upload: &str,
        answers: Vec<String>,
    ) -> Result<(), RemoteError> {
        let Some(store) = self.remote.multipart() else {
            return Err(self.unsupported("complete the upload of", name));
        };
        let parts = answers.into_iter().map(|content_id| PartId { content_id }).collect();
        let completed =
            store.complete_multipart(&self.count(name), &upload.to_owned(), parts).await;
        let failed = |e| self.error("complete the upload of", name, &e);
        completed.map(drop).map_err(failed)
    }

    /// Removes an object; there may be none.
    pub(super) async fn delete(&self, name: &str) -> Result<(), RemoteError> {
        let deleted = self.remote.store().delete(&self.count(name)).await;
        match deleted.map_err(|e| self.error("delete", name, &e)) {
            Err(e) if e.kind() == RemoteErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Lets the store forget an upload. It may have done so already, and not every store says it is
    /// that: whatever it answers that is not its own failure ends the matter.
    pub(super) async fn abort(&self, name: &str, upload: &str) -> Result<(), RemoteError> {
        let Some(store) = self.remote.multipart() else { return Ok(()) };
        let aborted = store.abort_multipart(&self.count(name), &upload.to_owned()).await;
        match aborted.map_err(|e| self.error("abort the upload of", name, &e)) {
            Err(e) if e.is_refusal() || e.kind() == RemoteErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Begins an upload that ends with this process.
    pub(super) async fn stream(&self, name: &str) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.remote.store().put_multipart(&self.count(name)).await;
        Ok(begun.map_err(|e| self.error("write", name, &e))?)
    }

    /// What the store answered to a part or the end of [`Wire::stream`].
    pub(super) fn of_stream<T>(
        &self,
        name: &str,
        answer: object_store::Result<T>,
    ) -> Result<T, RemoteError> {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        answer.map_err(|e| self.error("write", name, &e))
    }

    /// The path of an object that is about to be asked for.
    fn count(&self, name: &str) -> Path {
        self.n_requests.fetch_add(1, Ordering::Relaxed);
        self.remote.path(&self.relative(name))
    }

    fn relative(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn error(&self, op: &'static str, name: &str, source: &object_store::Error) -> RemoteError {
        self.remote.error(op, &self.relative(name), source)
    }

    fn attributes(&self, b3: &blake3::Hash) -> Attributes {
        if self.keeps_no_digest.load(Ordering::Relaxed) {
            return Attributes::new();
        }
        let digest = b3.to_hex().to_string();
        Attributes::from_iter([(Attribute::Metadata(DIGEST.into()), digest)])
    }

    fn keep_no_digest(&self) {
        self.keeps_no_digest.store(true, Ordering::Relaxed);
    }

    fn unsupported(&self, op: &'static str, name: &str) -> RemoteError {
        RemoteError::of(op, self.show(name), RemoteErrorKind::Unsupported, None)
    }
}

/// Whether a client cannot do it at all: nothing was sent.
fn is_unsupported(error: &object_store::Error) -> bool {
    use object_store::Error::{NotImplemented, NotSupported};
    matches!(error, NotImplemented { .. } | NotSupported { .. })
}
