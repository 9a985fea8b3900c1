//! Multipart uploads that were begun and neither completed nor given up, by whomever.
//!
//! The client has no request for them. This one is made of what it has: it says where the bucket is,
//! holds the credentials, and signs.
//!
//! Leaves out: which of them somebody still needs (`exporters`).
//!
//! Invariants:
//! 1. Requests are signed in their headers: no URL that is asked holds a signature.
//! 2. What is told lies below the place that was asked about, whatever the store makes of the question.
//! 3. A store that does not list uploads is told apart from one that failed.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use chrono::DateTime;
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody};
use object_store::path::Path;
use object_store::signer::{Method, Signer};
use object_store::{ClientOptions, Error};

use super::blocking::Pending;
use super::patience::Patient;
use super::uploads_page::Page;
use super::{Remote, RemoteError, RemoteErrorKind, RemoteOptions, Scheme};

/// The pause before a request is made again the first time; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(3);

/// How long the URL of the bucket would be good for, if its signature were used.
const SIGNED_FOR: Duration = Duration::from_mins(1);

/// An upload that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The object that would come of it, relative to the place.
    pub name: String,
    /// The store's name of it.
    pub id: String,
    /// When it was begun, by the store's clock.
    pub begun: SystemTime,
}

/// What a store tells of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uploads {
    /// These were begun and are not completed.
    Listed(Vec<Upload>),
    /// It tells nothing, and why.
    Unlisted(String),
}

impl Remote {
    /// The uploads below `folder` that were begun and not completed, by anybody.
    ///
    /// # Errors
    /// The store failed, or was not reached.
    pub fn uploads(&self, folder: &str) -> Result<Uploads, RemoteError> {
        let unlisted = |why: &str| Ok(Uploads::Unlisted(why.to_owned()));
        let Some(asks) = self.asks.clone() else {
            return match self.scheme() {
                // A file comes to be under another name, which a listing shows.
                Scheme::File | Scheme::Http => Ok(Uploads::Listed(Vec::new())),
                Scheme::Azure => unlisted("Azure forgets them by itself after a week"),
                Scheme::S3 | Scheme::Gcs => unlisted("only stores that speak S3 are asked"),
            };
        };
        let (remote, folder) = (self.clone(), folder.to_owned());
        Pending::new(self.url().to_owned(), async move { asks.all(&remote, &folder).await })?.wait()
    }

    /// Lets the store forget an upload. It may have done so already.
    ///
    /// # Errors
    /// The store's.
    pub fn abort(&self, upload: &Upload) -> Result<(), RemoteError> {
        let (remote, upload) = (self.clone(), upload.clone());
        let asked = async move {
            let Some(store) = remote.multipart() else { return Ok(()) };
            let aborted = store.abort_multipart(&remote.path(&upload.name), &upload.id).await;
            match aborted.map_err(|e| remote.error("abort the upload of", &upload.name, &e)) {
                Err(e) if is_gone(&e) => Ok(()),
                done => done,
            }
        };
        Pending::new(self.url().to_owned(), asked)?.wait()
    }
}

fn is_gone(error: &RemoteError) -> bool {
    matches!(error.kind(), RemoteErrorKind::NoUpload | RemoteErrorKind::NotFound)
}

/// Asks one bucket.
pub(super) struct Asks {
    store: Arc<AmazonS3>,
    region: String,
    is_paid_by_asker: bool,
    connections: (Patient, ClientOptions),
    retries: usize,
    retry_timeout: Duration,
}

impl Asks {
    /// Asks the bucket of `store`, which is in `region`, with connections of its own.
    pub(super) fn new(
        store: Arc<AmazonS3>,
        region: String,
        is_paid_by_asker: bool,
        connections: (Patient, ClientOptions),
        options: &RemoteOptions,
    ) -> Self {
        let (retries, retry_timeout) = (options.retries, options.retry_timeout);
        Self { store, region, is_paid_by_asker, connections, retries, retry_timeout }
    }

    /// All uploads below `folder` of `remote`, page by page.
    async fn all(&self, remote: &Remote, folder: &str) -> Result<Uploads, RemoteError> {
        let failed = |e: &Error| remote.error("list uploads in", folder, e);
        let prefix = match remote.path(folder) {
            path if path.as_ref().is_empty() => String::new(),
            path => format!("{path}/"),
        };
        let (patient, options) = &self.connections;
        let http = patient.connect(options).map_err(|e| failed(&e))?;
        let (mut found, mut marks) = (Vec::new(), None::<(String, String)>);
        loop {
            let text = match self.page(&http, &prefix, marks.as_ref()).await {
                Ok(text) => text,
                Err(e) => {
                    let error = failed(&e);
                    let is_lacking = matches!(
                        error.kind(),
                        RemoteErrorKind::Unsupported | RemoteErrorKind::Denied
                    );
                    return if is_lacking && marks.is_none() {
                        Ok(Uploads::Unlisted(error.why()))
                    } else {
                        Err(error)
                    };
                }
            };
            let Some(page) = Page::read(&text) else {
                let why = "its answer is no list of uploads".to_owned();
                return Ok(Uploads::Unlisted(why));
            };
            for entry in page.uploads {
                let Ok(path) = Path::parse(&entry.key) else { continue };
                let is_below = prefix.is_empty() || entry.key.starts_with(&prefix);
                let begun = DateTime::parse_from_rfc3339(&entry.initiated).ok();
                if let (true, Some(name), Some(begun)) = (is_below, remote.relative(&path), begun) {
                    found.push(Upload { name, id: entry.upload_id, begun: begun.into() });
                }
            }
            let next = page.next_key_marker.zip(page.next_upload_id_marker.or(Some(String::new())));
            if !page.is_truncated {
                return Ok(Uploads::Listed(found));
            }
            if next.is_none() || next == marks {
                let said = "the list of uploads says that it goes on, and not where".to_owned();
                let kind = RemoteErrorKind::Damaged;
                return Err(RemoteError::of(
                    "list uploads in",
                    remote.show(folder),
                    kind,
                    Some(said),
                ));
            }
            marks = next;
        }
    }

    /// The text of one page; asked for again while the store fails, or is not reached.
    async fn page(
        &self,
        http: &HttpClient,
        prefix: &str,
        marks: Option<&(String, String)>,
    ) -> Result<String, Error> {
        let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut n_left = self.retries;
        loop {
            let (error, may_pass) = match self.ask(http, prefix, marks).await? {
                Asked::Answer(text) => return Ok(text),
                Asked::Failed(error, may_pass) => (error, may_pass),
            };
            if !may_pass || n_left == 0 || began.elapsed() + pause > self.retry_timeout {
                return Err(error);
            }
            n_left -= 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The request for one page, signed.
    pub(super) async fn request(
        &self,
        prefix: &str,
        marks: Option<&(String, String)>,
    ) -> Result<HttpRequest, Error> {
        // Path or host, as the client has it; its signature is left away.
        let bucket = self.store.signed_url(Method::GET, &Path::default(), SIGNED_FOR).await?;
        let mut url = bucket;
        url.set_query(None);
        url.query_pairs_mut().append_pair("uploads", "").append_pair("prefix", prefix);
        if let Some((key, upload)) = marks {
            url.query_pairs_mut().append_pair("key-marker", key);
            url.query_pairs_mut().append_pair("upload-id-marker", upload);
        }

        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.uri_mut() = url.as_str().parse().map_err(|_| generic("a URL that is none"))?;
        let credential = self.store.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .with_request_payer(self.is_paid_by_asker)
            .try_authorize(&mut request, None)?;
        Ok(request)
    }

    async fn ask(
        &self,
        http: &HttpClient,
        prefix: &str,
        marks: Option<&(String, String)>,
    ) -> Result<Asked, Error> {
        let request = self.request(prefix, marks).await?;
        let unreached =
            |e| Asked::Failed(Error::Generic { store: "S3", source: Box::new(e) }, true);
        let answer = match http.execute(request).await {
            Ok(answer) => answer,
            Err(e) => return Ok(unreached(e)),
        };
        let status = answer.status();
        let body = match answer.into_body().bytes().await {
            Ok(body) => String::from_utf8_lossy(&body).into_owned(),
            Err(e) => return Ok(unreached(e)),
        };
        if status.is_success() {
            return Ok(Asked::Answer(body));
        }
        let may_pass = matches!(status.as_u16(), 408 | 429 | 500 | 502..=599);
        // As the client words it.
        let error = generic(format!("Server returned non-2xx status code: {status}: {body}"));
        Ok(Asked::Failed(error, may_pass))
    }
}

/// How a request ended.
enum Asked {
    Answer(String),
    /// And whether it may end otherwise if it is made again.
    Failed(Error, bool),
}

fn generic(text: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "S3", source: text.into() }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::Mutex;

    use object_store::aws::AmazonS3Builder;
    use object_store::memory::InMemory;

    use super::*;
    use crate::remote::uploads_page::tests::{entry, more, page};
    use crate::remote::url::RemoteUrl;

    /// Asks a server that gives these answers, one after another: what is told of `s3://bucket/a b`, and
    /// the heads of the requests.
    fn ask(answers: Vec<(u16, String)>) -> (Result<Uploads, RemoteError>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let of_server = Arc::clone(&heads);
        // It ends with the process.
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let head: Vec<String> =
                    lines.by_ref().map(Result::unwrap).take_while(|it| !it.is_empty()).collect();
                of_server.lock().unwrap().push(head.join("\n"));
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let store = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_bucket_name("bucket")
            .with_access_key_id("the-key")
            .with_secret_access_key("the-secret")
            .with_token("the-token")
            .with_allow_http(true);
        let options = RemoteOptions { retries: 1, ..RemoteOptions::default() };
        let zero = Duration::ZERO;
        let patient = Patient { pauses: zero, most: zero, read_timeout: zero };
        let connections = (patient, ClientOptions::new().with_allow_http(true));
        let store = Arc::new(store.build().unwrap());
        let asks = Asks::new(store, "us-east-1".to_owned(), true, connections, &options);
        let remote = Remote {
            url: RemoteUrl::parse("s3://bucket/a b").unwrap(),
            store: Arc::new(InMemory::new()),
            multipart: None,
            pages: None,
            asks: Some(Arc::new(asks)),
        };
        let told = remote.uploads("key");
        let heads = heads.lock().unwrap().clone();
        (told, heads)
    }

    fn refusal(code: &str) -> String {
        format!("<Error><Code>{code}</Code><Message>Well.</Message><X>the-token</X></Error>")
    }

    #[test]
    fn all_pages_are_asked_for_signed_and_again_where_the_store_fails() {
        let first = page(&(entry("a b/key/x") + &entry("a b/keys/y") + &more("a b/key/x")));
        let last = page(&(entry("a b/key/z") + &entry("elsewhere/key/z")));
        let (told, heads) = ask(vec![(503, refusal("SlowDown")), (200, first), (200, last)]);
        let Ok(Uploads::Listed(found)) = told else { panic!("{told:?}") };
        let names: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.id.as_str())).collect();
        assert_eq!(names, [("key/x", "1+/="), ("key/z", "1+/=")]);
        let begun = found[0].begun.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(begun.as_secs(), 1_794_736_800);
        assert_eq!(heads.len(), 3);
        for head in &heads {
            let (line, rest) = head.split_once('\n').unwrap();
            assert!(line.starts_with("GET /bucket/?uploads=&prefix=a%20b%2Fkey%2F"), "{line}");
            assert!(!line.to_lowercase().contains("signature"), "{line}");
            for header in
                ["authorization: AWS4-HMAC-SHA256 ", "x-amz-security-token: the-token", "requester"]
            {
                assert!(rest.contains(header), "{head}");
            }
        }
        let marks = "&key-marker=a%20b%2Fkey%2Fx&upload-id-marker=9%2B ";
        assert!(heads[2].contains(marks) && !heads[1].contains("marker"), "{heads:?}");
    }

    #[test]
    fn a_store_that_does_not_list_uploads_is_told_apart_from_one_that_fails() {
        for (status, body, why) in [
            (
                501,
                refusal("NotImplemented"),
                "the store cannot do this (501 NotImplemented: Well.)",
            ),
            (405, String::new(), "the store cannot do this (405)"),
            (403, refusal("AccessDenied"), "no permission (403 AccessDenied: Well.)"),
            (200, "<ListBucketResult/>".to_owned(), "its answer is no list of uploads"),
        ] {
            let (told, heads) = ask(vec![(status, body)]);
            assert_eq!(told, Ok(Uploads::Unlisted(why.to_owned())), "{heads:?}");
        }
        let again = page(&more("a b/key/x"));
        for (answers, kind) in [
            (vec![(403, refusal("SignatureDoesNotMatch"))], RemoteErrorKind::Credentials),
            (vec![(404, refusal("NoSuchBucket"))], RemoteErrorKind::NoBucket),
            (vec![(500, String::new()), (502, String::new())], RemoteErrorKind::Server),
            (vec![(200, again.clone()), (200, again)], RemoteErrorKind::Damaged),
            (vec![(200, page("<IsTruncated>true</IsTruncated>"))], RemoteErrorKind::Damaged),
        ] {
            let n_answers = answers.len();
            let (told, heads) = ask(answers);
            let error = told.unwrap_err();
            assert_eq!((error.kind(), heads.len()), (kind, n_answers), "{error}");
            let text = format!("{error}");
            assert!(text.starts_with("cannot list uploads in `s3://bucket/a b/key`: "), "{text}");
            assert!(!text.contains("the-"), "{text}");
        }
    }
}
