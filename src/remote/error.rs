//! What a store answered, told apart by what to do about it.
//!
//! Leaves out: trying again, which the clients have done before they fail, and what an answer means
//! (`answer`).
//!
//! Invariant: an error keeps nothing of the client's own error, whose texts may hold signed URLs and
//! what was signed; it keeps what was recognised of it, and a scrubbed sentence.

use std::fmt;

use super::answer::recognise;

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

    /// Why, as it is written behind what was tried.
    pub(super) fn why(&self) -> String {
        format!("{}{}", self.kind, Said(self.said.as_deref()))
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
            RemoteErrorKind::Url if is_said("path segment") || is_said("parsing Path") => {
                "an object there has a name that no path can have, with `//`, `.`, `..` or a control \
                 character: rename it, or let `root` and the glob begin where it is not listed"
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

#[cfg(test)]
mod tests {
    use super::super::answer::tests::refused;
    use super::*;

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
