//! What a store answered, told apart by what to do about it.
//!
//! Leaves out: trying again, which the clients have done before they fail.
//!
//! Invariant: an error keeps nothing of the client's own error, whose texts may hold signed URLs and
//! what was signed; it keeps what was recognised of it, and a scrubbed sentence.

use std::error::Error;
use std::fmt;

use object_store::client::{HttpError, HttpErrorKind};

use super::scrub::scrub;

/// Something asked of a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {op} `{url}`: {kind}{}", Said(said.as_deref()))]
pub struct RemoteError {
    op: &'static str,
    url: String,
    kind: RemoteErrorKind,
    said: Option<String>,
    status: Option<u16>,
}

/// Why, as far as it changes what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemoteErrorKind {
    /// The URL is of no kind that is known, or holds a secret.
    Url,
    /// The endpoint is plain HTTP, which was not allowed.
    PlainHttp,
    /// The environment's settings contradict themselves.
    Setup,
    /// There is no such bucket or container.
    NoBucket,
    /// There is no such object.
    NotFound,
    /// A multipart upload that was begun is not known any more.
    NoUpload,
    /// The credentials are good, and do not allow this.
    Denied,
    /// There are no credentials, or the store does not accept them.
    Credentials,
    /// The bucket is elsewhere, or something else than a store answers.
    Endpoint,
    /// What answers does not speak TLS.
    NoTls,
    /// The clock of this machine is wrong.
    Clock,
    /// The store asks to be asked less.
    Throttled,
    /// No answer came through.
    Network,
    /// Something stands there already.
    Exists,
    /// What stands there is not what it was.
    Changed,
    /// Somebody else is writing the same object right now.
    Conflict,
    /// The store, or the kind of place, cannot do this.
    Unsupported,
    /// There is no room left.
    Full,
    /// The store failed.
    Server,
    /// What came is not what the store says of it.
    Damaged,
    /// Anything else.
    Other,
}

impl fmt::Display for RemoteErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Url => "this URL cannot be used",
            Self::PlainHttp => "the endpoint is plain HTTP, which is not allowed",
            Self::Setup => "the settings in the environment do not fit together",
            Self::NoBucket => "there is no such bucket",
            Self::NotFound => "it is not there",
            Self::NoUpload => "the upload is not known any more",
            Self::Denied => "no permission",
            Self::Credentials => "the credentials are not accepted",
            Self::Endpoint => "the region or endpoint is wrong",
            Self::NoTls => "what answers does not speak TLS",
            Self::Clock => "the clock of this machine is wrong",
            Self::Throttled => "the store asks to be asked less",
            Self::Network => "no answer came through",
            Self::Exists => "it exists already",
            Self::Changed => "it is not what it was",
            Self::Conflict => "somebody else is writing it",
            Self::Unsupported => "the store cannot do this",
            Self::Full => "there is no room left",
            Self::Server => "the store failed",
            Self::Damaged => "what came is not what was to come",
            Self::Other => "the store refused",
        })
    }
}

/// What the store said, in brackets.
struct Said<'a>(Option<&'a str>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

impl RemoteError {
    /// Makes an error of what the client gave when `op` (a verb phrase) was tried on `url`, which
    /// has no secrets in it.
    #[must_use]
    pub fn new(op: &'static str, url: impl Into<String>, source: &object_store::Error) -> Self {
        let (kind, said, status) = recognise(source);
        Self { op, url: url.into(), kind, said, status }
    }

    /// An error of our own; `said` has no secrets in it.
    #[must_use]
    pub fn of(
        op: &'static str,
        url: impl Into<String>,
        kind: RemoteErrorKind,
        said: Option<String>,
    ) -> Self {
        Self { op, url: url.into(), kind, said, status: None }
    }

    /// Whether the store has understood what was asked and will not do it, now or later, as opposed
    /// to one that failed or was not reached.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.status.is_some_and(|status| (400..500).contains(&status) && status != 408)
            && self.kind != RemoteErrorKind::Throttled
    }

    /// Why.
    #[must_use]
    pub fn kind(&self) -> RemoteErrorKind {
        self.kind
    }

    /// Where.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What to do about it, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        let is_said = |text| self.said.as_ref().is_some_and(|said| said.contains(text));
        Some(match self.kind {
            RemoteErrorKind::Url if is_said("KeyTooLong") => {
                "keys have at most 1,024 bytes: shorten the URL or the dataset's name"
            }
            RemoteErrorKind::Url if is_said("InvalidBucketName") => {
                "names of buckets have 3 to 63 lower-case letters, digits, dots and hyphens: \
                 correct the URL"
            }
            RemoteErrorKind::Url if is_said("has a `#`") => {
                "a glob names an object with `#` in its name: write `?` in its place"
            }
            RemoteErrorKind::Url => {
                "write s3://BUCKET/PREFIX, gs://…, az://CONTAINER/…, https://… or file:///…; \
                 credentials come from the environment"
            }
            RemoteErrorKind::PlainHttp => {
                "use an https endpoint; for a server on a network that you trust, set \
                 `allow_http = true`, or AWS_ALLOW_HTTP=true in the environment"
            }
            RemoteErrorKind::Setup => "mend the variable that is named",
            RemoteErrorKind::NoBucket => "create the bucket, or correct the URL or the endpoint",
            RemoteErrorKind::NotFound => "look at the URL; was it removed meanwhile?",
            RemoteErrorKind::NoUpload => {
                "run the same command again; it begins this file from its start"
            }
            RemoteErrorKind::Denied => {
                "let these credentials list, read, write and delete below the prefix"
            }
            RemoteErrorKind::Credentials => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with AWS_SESSION_TOKEN where they \
                 are temporary), or what your provider has instead, and check that they belong to \
                 this endpoint"
            }
            RemoteErrorKind::Endpoint => {
                "check AWS_REGION and AWS_ENDPOINT_URL, or what your provider has instead"
            }
            RemoteErrorKind::NoTls => {
                "write http:// where the server has no TLS, and set AWS_ALLOW_HTTP=true if you \
                 trust the network; or name the port on which it speaks TLS"
            }
            RemoteErrorKind::Full => "make room there, and run the same command again",
            RemoteErrorKind::Clock => "set the clock of this machine; signatures hold its time",
            RemoteErrorKind::Throttled => "wait, or lower the number of requests at once",
            RemoteErrorKind::Network => {
                "check the network and the endpoint, and run the same command again"
            }
            RemoteErrorKind::Exists | RemoteErrorKind::Changed => {
                "somebody else has written there; look at what it is before you go on"
            }
            RemoteErrorKind::Conflict | RemoteErrorKind::Server => "run the same command again",
            RemoteErrorKind::Damaged => {
                "run the same command again; if it stays, restore the object"
            }
            RemoteErrorKind::Other if self.status == Some(400) => {
                "look at the bucket's name, at the length of the path, and at the region"
            }
            RemoteErrorKind::Unsupported | RemoteErrorKind::Other => return None,
        })
    }
}

/// What the store or the client said, in parts.
struct Answer {
    /// The HTTP status, if there was one.
    status: Option<u16>,
    /// The provider's own code: `SlowDown`.
    code: String,
    /// Its sentence.
    message: String,
    /// How no answer came, if none came.
    http: Option<HttpErrorKind>,
    /// What a disk said.
    io: Option<std::io::ErrorKind>,
    /// The texts of the whole chain, for what has no code.
    all: String,
}

impl Answer {
    fn of(error: &object_store::Error) -> Self {
        let (mut all, mut innermost) = (String::new(), String::new());
        let (mut http, mut io) = (None, None);
        let mut at: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(e) = at {
            innermost = e.to_string();
            all.push_str(&innermost);
            all.push('\n');
            http = http.or_else(|| e.downcast_ref::<HttpError>().map(HttpError::kind));
            io = io.or_else(|| e.downcast_ref::<std::io::Error>().map(std::io::Error::kind));
            at = e.source();
        }
        let status =
            all.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
        let code = element(&all, "Code").unwrap_or_default().to_owned();
        let message = match element(&all, "Message") {
            Some(message) => message.to_owned(),
            None if status.is_none() => innermost,
            None => String::new(),
        };
        Self { status, code, message, http, io, all }
    }

    /// What is quoted of it.
    fn said(&self) -> Option<String> {
        let status = self.status.map(|s| s.to_string()).unwrap_or_default();
        let head: Vec<&str> =
            [&*status, &*self.code].into_iter().filter(|part| !part.is_empty()).collect();
        let head = head.join(" ");
        let said = match (&*head, &*self.message) {
            ("", message) => message.to_owned(),
            (head, "") => head.to_owned(),
            (head, message) => format!("{head}: {message}"),
        };
        let said = scrub(&said);
        (!said.is_empty()).then_some(said)
    }
}

/// The text of the first element of that name, in an answer in XML.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once("</").map(|(inner, _)| inner.trim())
}

fn recognise(error: &object_store::Error) -> (RemoteErrorKind, Option<String>, Option<u16>) {
    use object_store::Error as E;

    let answer = Answer::of(error);
    // What a provider calls it says more than the status, which the client has gone by.
    let kind = of_code(&answer.code).unwrap_or_else(|| match error {
        E::NotFound { .. } => RemoteErrorKind::NotFound,
        E::AlreadyExists { .. } => RemoteErrorKind::Exists,
        E::Precondition { .. } | E::NotModified { .. } => RemoteErrorKind::Changed,
        E::NotSupported { .. } | E::NotImplemented { .. } => RemoteErrorKind::Unsupported,
        E::PermissionDenied { .. } => RemoteErrorKind::Denied,
        E::Unauthenticated { .. } => RemoteErrorKind::Credentials,
        E::InvalidPath { .. } => RemoteErrorKind::Url,
        E::UnknownConfigurationKey { .. } => RemoteErrorKind::Setup,
        _ => of_text(&answer),
    });
    let said = match kind {
        // The message of our own says it all; theirs only says which header it was.
        RemoteErrorKind::Exists | RemoteErrorKind::NotFound if answer.code.is_empty() => None,
        _ => answer.said(),
    };
    (kind, said, answer.status)
}

/// What the codes of S3, Azure and Google say.
fn of_code(code: &str) -> Option<RemoteErrorKind> {
    Some(match code {
        "NoSuchBucket" | "ContainerNotFound" => RemoteErrorKind::NoBucket,
        "NoSuchKey" | "BlobNotFound" => RemoteErrorKind::NotFound,
        "NoSuchUpload" => RemoteErrorKind::NoUpload,
        "InvalidBucketName" | "KeyTooLongError" | "KeyTooLong" => RemoteErrorKind::Url,
        "AccessDenied"
        | "AllAccessDisabled"
        | "AuthorizationPermissionMismatch"
        | "AuthorizationFailure"
        | "InsufficientAccountPermissions" => RemoteErrorKind::Denied,
        "SignatureDoesNotMatch"
        | "InvalidAccessKeyId"
        | "NotSignedUp"
        | "InvalidToken"
        | "InvalidSecurity"
        | "InvalidClientTokenId"
        | "ExpiredToken"
        | "TokenRefreshRequired"
        | "AuthenticationFailed"
        | "NoAuthenticationInformation"
        | "AuthFailure" => RemoteErrorKind::Credentials,
        "PermanentRedirect"
        | "TemporaryRedirect"
        | "AuthorizationHeaderMalformed"
        | "IllegalLocationConstraintException"
        | "InvalidRegion"
        | "IncorrectEndpoint" => RemoteErrorKind::Endpoint,
        "RequestTimeTooSkewed" | "RequestExpired" => RemoteErrorKind::Clock,
        "SlowDown"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequests"
        | "ServerBusy"
        | "RequestLimitExceeded" => RemoteErrorKind::Throttled,
        "ConditionalRequestConflict" | "OperationAborted" | "LeaseAlreadyPresent" => {
            RemoteErrorKind::Conflict
        }
        "NotImplemented" | "MethodNotAllowed" | "UnsupportedHeader" => RemoteErrorKind::Unsupported,
        "BadDigest"
        | "XAmzContentSHA256Mismatch"
        | "InvalidDigest"
        | "Md5Mismatch"
        | "XAmzContentChecksumMismatch" => RemoteErrorKind::Damaged,
        "XMinioStorageFull" | "InsufficientStorage" | "QuotaExceeded" => RemoteErrorKind::Full,
        "InternalError" | "ServiceUnavailable" => RemoteErrorKind::Server,
        _ => return None,
    })
}

/// What an answer without a known code says.
fn of_text(answer: &Answer) -> RemoteErrorKind {
    let has = |text: &str| answer.all.contains(text);
    if ["169.254.", "metadata.google.internal", "/latest/api/token", "169.254.170.2"]
        .iter()
        .any(|text| has(text))
    {
        return RemoteErrorKind::Credentials;
    }
    if has("Missing AccessKeyId") || has("Missing SecretAccessKey") {
        return RemoteErrorKind::Credentials;
    }
    if has("incorrectly configured region") {
        return RemoteErrorKind::Endpoint;
    }
    match (answer.status, answer.http) {
        (Some(429 | 503), _) => RemoteErrorKind::Throttled,
        (Some(507), _) => RemoteErrorKind::Full,
        (Some(501 | 405), _) => RemoteErrorKind::Unsupported,
        (Some(500..), _) => RemoteErrorKind::Server,
        (Some(301 | 302 | 307 | 308), _) => RemoteErrorKind::Endpoint,
        // What rustls says of an answer that is no TLS.
        (None, Some(_)) if has("InvalidContentType") || has("corrupt message") => {
            RemoteErrorKind::NoTls
        }
        (None, Some(HttpErrorKind::Decode)) if !has("body") => RemoteErrorKind::Endpoint,
        (None, Some(_)) => RemoteErrorKind::Network,
        (None, None) if answer.io.is_some() => match answer.io {
            Some(std::io::ErrorKind::PermissionDenied) => RemoteErrorKind::Denied,
            Some(std::io::ErrorKind::NotFound) => RemoteErrorKind::NotFound,
            Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
                RemoteErrorKind::Full
            }
            _ => RemoteErrorKind::Server,
        },
        (None, None) if has("Got invalid") || has("Unable to extract metadata") => {
            RemoteErrorKind::Endpoint
        }
        (None, None) if has("parse \"") || has("Unable parse") || has("must be") => {
            RemoteErrorKind::Setup
        }
        (Some(_), _) | (None, None) => RemoteErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as the clients make them: a text that quotes an answer, around one that quotes less.
    fn refused(status: &str, body: &str) -> object_store::Error {
        let text = format!("Server returned non-2xx status code: {status}: {body}");
        object_store::Error::Generic { store: "S3", source: text.into() }
    }

    #[test]
    fn answers_are_told_apart_by_what_to_do() {
        let xml =
            |code: &str| format!("<Error><Code>{code}</Code><Message>Well.</Message></Error>");
        for (status, body, kind, said) in [
            (
                "404 Not Found",
                xml("NoSuchBucket"),
                RemoteErrorKind::NoBucket,
                "404 NoSuchBucket: Well.",
            ),
            (
                "404 Not Found",
                xml("NoSuchUpload"),
                RemoteErrorKind::NoUpload,
                "404 NoSuchUpload: Well.",
            ),
            (
                "403 Forbidden",
                xml("AccessDenied"),
                RemoteErrorKind::Denied,
                "403 AccessDenied: Well.",
            ),
            (
                "403 Forbidden",
                xml("SignatureDoesNotMatch"),
                RemoteErrorKind::Credentials,
                "403 SignatureDoesNotMatch: Well.",
            ),
            (
                "403 Forbidden",
                xml("RequestTimeTooSkewed"),
                RemoteErrorKind::Clock,
                "403 RequestTimeTooSkewed: Well.",
            ),
            (
                "400 Bad Request",
                xml("AuthorizationHeaderMalformed"),
                RemoteErrorKind::Endpoint,
                "400 AuthorizationHeaderMalformed: Well.",
            ),
            (
                "503 Service Unavailable",
                xml("SlowDown"),
                RemoteErrorKind::Throttled,
                "503 SlowDown: Well.",
            ),
            ("503 Service Unavailable", String::new(), RemoteErrorKind::Throttled, "503"),
            ("500 Internal Server Error", String::new(), RemoteErrorKind::Server, "500"),
            (
                "501 Not Implemented",
                xml("NotImplemented"),
                RemoteErrorKind::Unsupported,
                "501 NotImplemented: Well.",
            ),
            (
                "409 Conflict",
                xml("ConditionalRequestConflict"),
                RemoteErrorKind::Conflict,
                "409 ConditionalRequestConflict: Well.",
            ),
            ("400 Bad Request", xml("BadDigest"), RemoteErrorKind::Damaged, "400 BadDigest: Well."),
            (
                "400 Bad Request",
                xml("KeyTooLongError"),
                RemoteErrorKind::Url,
                "400 KeyTooLongError: Well.",
            ),
            (
                "403 Forbidden",
                xml("NotSignedUp"),
                RemoteErrorKind::Credentials,
                "403 NotSignedUp: Well.",
            ),
            ("507 Insufficient Storage", String::new(), RemoteErrorKind::Full, "507"),
            ("400 Bad Request", "<html>".to_owned(), RemoteErrorKind::Other, "400"),
        ] {
            let e = RemoteError::new("read", "s3://b/p", &refused(status, &body));
            assert_eq!(e.kind(), kind, "{status} {body}");
            assert_eq!(e.to_string(), format!("cannot read `s3://b/p`: {kind} ({said})"));
        }
    }

    #[test]
    fn a_refusal_is_none_of_those_that_pass() {
        for (status, is_refusal) in [
            ("400 Bad Request", true),
            ("403 Forbidden", true),
            ("404 Not Found", true),
            ("408 Request Timeout", false),
            ("429 Too Many Requests", false),
            ("503 Service Unavailable", false),
        ] {
            let e = RemoteError::new("read", "s3://b/p", &refused(status, ""));
            assert_eq!(e.is_refusal(), is_refusal, "{status}");
        }
        assert!(!RemoteError::of("read", "s3://b", RemoteErrorKind::Denied, None).is_refusal());
    }

    #[test]
    fn nothing_that_was_signed_is_quoted() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message>\
                    <StringToSign>hush</StringToSign><CanonicalRequest>hush</CanonicalRequest></Error>";
        let e = RemoteError::new("read", "s3://b/p", &refused("403 Forbidden", body));
        assert!(!format!("{e} {e:?}").contains("hush"), "{e:?}");
    }

    #[test]
    fn every_kind_that_a_user_can_mend_has_a_hint() {
        for kind in [
            RemoteErrorKind::NoBucket,
            RemoteErrorKind::Denied,
            RemoteErrorKind::Credentials,
            RemoteErrorKind::Endpoint,
            RemoteErrorKind::Clock,
            RemoteErrorKind::Throttled,
            RemoteErrorKind::Network,
            RemoteErrorKind::PlainHttp,
            RemoteErrorKind::NoTls,
            RemoteErrorKind::Full,
        ] {
            assert!(RemoteError::of("read", "s3://b", kind, None).hint().is_some(), "{kind:?}");
        }
    }
}
