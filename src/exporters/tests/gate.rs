//! A store in memory that does to chosen requests what networks do.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};

/// A request, as tests see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// "put", "create", "update", "get", "head", "list", "begin", "part", "complete", "abort",
    /// "delete".
    pub(super) what: &'static str,
    pub(super) path: String,
    /// Bytes that it sends.
    pub(super) bytes: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is answered.
    Answered,
    /// It does not arrive.
    Lost,
    /// It is done, and its answer does not arrive.
    AnswerLost,
    /// It never ends.
    Hangs,
    /// It is done, and never answered.
    HangsDone,
    /// It is done with its condition left out.
    Unconditional,
}

type Judge = Box<dyn FnMut(usize, &Request) -> Fate + Send>;

/// The store.
pub(super) struct Gate {
    inner: Arc<InMemory>,
    judge: Mutex<Judge>,
    requests: Mutex<Vec<Request>>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    /// In front of `inner`; `judge` is told the number of each request.
    pub(super) fn new(
        inner: &Arc<InMemory>,
        judge: impl FnMut(usize, &Request) -> Fate + Send + 'static,
    ) -> Arc<Self> {
        let (judge, requests) = (Mutex::new(Box::new(judge) as Judge), Mutex::new(Vec::new()));
        Arc::new(Self { inner: Arc::clone(inner), judge, requests })
    }

    /// In front of `inner`, letting everything through.
    pub(super) fn open(inner: &Arc<InMemory>) -> Arc<Self> {
        Self::new(inner, |_, _| Fate::Answered)
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Bytes that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.requests().iter().map(|request| request.bytes).sum()
    }

    fn judge(&self, what: &'static str, path: &Path, bytes: usize) -> Fate {
        let request = Request { what, path: path.to_string(), bytes: bytes as u64 };
        let mut requests = self.requests.lock().unwrap();
        let fate = (self.judge.lock().unwrap())(requests.len(), &request);
        requests.push(request);
        fate
    }

    async fn pass<T>(
        &self,
        what: &'static str,
        path: &Path,
        bytes: usize,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let fate = self.judge(what, path, bytes);
        match fate {
            Fate::Answered | Fate::Unconditional => work.await,
            Fate::Lost => Err(cut()),
            Fate::AnswerLost => work.await.and_then(|_| Err(cut())),
            Fate::Hangs => std::future::pending().await,
            Fate::HangsDone => {
                work.await.ok();
                std::future::pending().await
            }
        }
    }
}

/// What servers answer where an upload is not known.
fn of_upload<T>(path: &Path, answer: Result<T>) -> Result<T> {
    answer.map_err(|e| match e {
        e if e.to_string().contains("not found") => {
            Error::NotFound { path: path.to_string(), source: Box::new(e) }
        }
        e => e,
    })
}

fn cut() -> Error {
    Error::Generic { store: "gate", source: "the connection was cut".into() }
}

#[async_trait]
impl ObjectStore for Gate {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let what = match options.mode {
            PutMode::Overwrite => "put",
            PutMode::Create => "create",
            PutMode::Update(_) => "update",
        };
        let bytes = payload.content_length();
        let fate = self.judge(what, location, bytes);
        if fate == Fate::Unconditional {
            options.mode = PutMode::Overwrite;
        }
        let work = self.inner.put_opts(location, payload, options);
        match fate {
            Fate::Answered | Fate::Unconditional => work.await,
            Fate::Lost => Err(cut()),
            Fate::AnswerLost => work.await.and_then(|_| Err(cut())),
            Fate::Hangs => std::future::pending().await,
            Fate::HangsDone => {
                work.await.ok();
                std::future::pending().await
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let what = if options.head { "head" } else { "get" };
        self.pass(what, location, 0, self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let deleted = self.inner.delete_stream(locations);
        match self.judge("delete", &Path::default(), 0) {
            Fate::Lost => stream::once(async { Err(cut()) }).boxed(),
            Fate::AnswerLost => deleted.map(|_| Err(cut())).boxed(),
            Fate::Hangs => stream::pending().boxed(),
            Fate::HangsDone => deleted
                .map(drop)
                .collect::<Vec<_>>()
                .into_stream()
                .flat_map(|_| stream::pending())
                .boxed(),
            Fate::Answered | Fate::Unconditional => deleted,
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.judge("list", prefix.unwrap_or(&Path::default()), 0);
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[async_trait]
impl MultipartStore for Gate {
    async fn create_multipart(&self, path: &Path) -> Result<MultipartId> {
        self.create_multipart_opts(path, PutMultipartOptions::default()).await
    }

    async fn create_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<MultipartId> {
        self.pass("begin", path, 0, self.inner.create_multipart_opts(path, options)).await
    }

    async fn put_part(
        &self,
        path: &Path,
        id: &MultipartId,
        part: usize,
        payload: PutPayload,
    ) -> Result<PartId> {
        let bytes = payload.content_length();
        let work = self.inner.put_part(path, id, part, payload);
        of_upload(path, self.pass("part", path, bytes, work).await)
    }

    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let work = self.inner.complete_multipart(path, id, parts);
        of_upload(path, self.pass("complete", path, 0, work).await)
    }

    async fn abort_multipart(&self, path: &Path, id: &MultipartId) -> Result<()> {
        of_upload(path, self.pass("abort", path, 0, self.inner.abort_multipart(path, id)).await)
    }
}
