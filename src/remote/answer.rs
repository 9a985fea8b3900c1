//! Recognises what a store, or the client, has answered.
//!
//! Leaves out: what is told of it and what to do about it (`error`).
//!
//! Invariant: what is quoted is scrubbed, and of an answer in XML no more than its code and message.

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use super::RemoteErrorKind;
use super::scrub::scrub;

/// Why `error` came, what is quoted of it, and its HTTP status.
pub(super) fn recognise(
    error: &object_store::Error,
) -> (RemoteErrorKind, Option<String>, Option<u16>) {
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
pub(super) mod tests {
    use super::super::RemoteError;
    use super::*;

    /// An error as the clients make them: a text that quotes an answer, around one that quotes less.
    pub(in super::super) fn refused(status: &str, body: &str) -> object_store::Error {
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
    fn nothing_that_was_signed_is_quoted() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>No.</Message>\
                    <StringToSign>hush</StringToSign><CanonicalRequest>hush</CanonicalRequest></Error>";
        let e = RemoteError::new("read", "s3://b/p", &refused("403 Forbidden", body));
        assert!(!format!("{e} {e:?}").contains("hush"), "{e:?}");
    }
}
