//! What a URL of a place says.
//!
//! Leaves out: reaching it (`client`).

use object_store::path::Path;

use super::{RemoteError, RemoteErrorKind};

/// What kind of place a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3 and servers that speak as it does.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server, to read from.
    Http,
    /// A disk, shared or not.
    File,
}

/// Whether `text` names a place by URL rather than a path on this machine.
#[must_use]
pub fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// A URL that was understood.
#[derive(Clone)]
pub(super) struct RemoteUrl {
    scheme: Scheme,
    /// Bucket or container; of `http(s)`, scheme, host and port, with the query if there is one.
    authority: String,
    prefix: Path,
    shown: String,
}

impl RemoteUrl {
    /// Reads a URL. The path of a bucket is taken as it stands, as the providers' own tools take
    /// it; that of `http(s)` and `file` may hold `%20` and the like.
    pub(super) fn parse(text: &str) -> Result<Self, RemoteError> {
        let (name, rest) = text.split_once("://").ok_or_else(|| refuse(text, "is no URL"))?;
        let scheme = match name {
            "s3" => Scheme::S3,
            "gs" => Scheme::Gcs,
            "az" => Scheme::Azure,
            "http" | "https" => Scheme::Http,
            "file" => Scheme::File,
            _ => return Err(refuse(text, "has a scheme that is not known")),
        };
        let (rest, query) = match rest.find(['?', '#']) {
            Some(at) if scheme != Scheme::File => rest.split_at(at),
            _ => (rest, ""),
        };
        if query.starts_with('#') || (!query.is_empty() && scheme != Scheme::Http) {
            return Err(refuse(text, "has a query or fragment"));
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.contains('@') {
            return Err(refuse(text, "has user info"));
        }
        if host.is_empty() != (scheme == Scheme::File) {
            let what = if host.is_empty() { "names no bucket or host" } else { "names a host" };
            return Err(refuse(text, what));
        }
        let prefix = match scheme {
            Scheme::Http | Scheme::File => Path::from_url_path(path),
            Scheme::S3 | Scheme::Gcs | Scheme::Azure => Path::parse(path),
        };
        let prefix = prefix.map_err(|_| refuse(text, "has a path that no object can have"))?;
        let shown = format!("{name}://{host}{}", path.trim_end_matches('/'));
        let authority = match scheme {
            Scheme::Http => format!("{name}://{host}/{query}"),
            _ => host.to_owned(),
        };
        Ok(Self { scheme, authority, prefix, shown })
    }

    pub(super) fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn prefix(&self) -> &Path {
        &self.prefix
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

fn refuse(text: &str, what: &str) -> RemoteError {
    RemoteError::of("use", shown(text), RemoteErrorKind::Url, Some(format!("it {what}")))
}

/// A text that may be a URL, without what may be secret in it.
fn shown(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { rest.to_owned() } else { format!("{scheme}://{host}{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_shows_no_secret() {
        for (text, scheme, authority, prefix, shown) in [
            ("s3://b/p/q/", Scheme::S3, "b", "p/q", "s3://b/p/q"),
            ("s3://b", Scheme::S3, "b", "", "s3://b"),
            ("s3://b/a%20b", Scheme::S3, "b", "a%20b", "s3://b/a%20b"),
            ("gs://b/é", Scheme::Gcs, "b", "é", "gs://b/é"),
            ("az://c/p", Scheme::Azure, "c", "p", "az://c/p"),
            ("file:///x/y%20z", Scheme::File, "", "x/y z", "file:///x/y%20z"),
            ("http://h:80/a", Scheme::Http, "http://h:80/", "a", "http://h:80/a"),
            ("https://h/a%20b?s=1", Scheme::Http, "https://h/?s=1", "a b", "https://h/a%20b"),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!(url.scheme(), scheme, "{text}");
            assert_eq!(url.authority(), authority, "{text}");
            assert_eq!(url.prefix().as_ref(), prefix, "{text}");
            assert_eq!(url.shown(), shown, "{text}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_its_secrets() {
        for (text, message) in [
            (
                "s3://ak:hush@b/p",
                "cannot use `s3://b/p`: this URL cannot be used (it has user info)",
            ),
            (
                "s3://b/p?key=hush",
                "cannot use `s3://b/p`: this URL cannot be used (it has a query or fragment)",
            ),
            (
                "https://u:hush@h/p",
                "cannot use `https://h/p`: this URL cannot be used (it has user info)",
            ),
            (
                "ftp://h/p",
                "cannot use `ftp://h/p`: this URL cannot be used (it has a scheme that is not known)",
            ),
            (
                "s3:///p",
                "cannot use `s3:///p`: this URL cannot be used (it names no bucket or host)",
            ),
            ("file://h/p", "cannot use `file://h/p`: this URL cannot be used (it names a host)"),
            (
                "s3://b/a//b",
                "cannot use `s3://b/a//b`: this URL cannot be used (it has a path that no object can have)",
            ),
            ("data", "cannot use `data`: this URL cannot be used (it is no URL)"),
        ] {
            let Err(e) = RemoteUrl::parse(text) else { panic!("{text}") };
            assert_eq!(e.to_string(), message, "{text}");
            assert!(!format!("{e:?}").contains("hush"), "{text}: {e:?}");
        }
    }

    #[test]
    fn paths_of_this_machine_are_no_urls() {
        for (text, expected) in [
            ("s3://b", true),
            ("az+x://b", true),
            ("a/b", false),
            ("a b://c", false),
            ("://", false),
        ] {
            assert_eq!(is_url(text), expected, "{text}");
        }
    }
}
