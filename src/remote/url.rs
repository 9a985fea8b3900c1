//! What a URL of a place says.
//!
//! Leaves out: reaching it (`client`).

use std::path::{Path, PathBuf};

use object_store::path::Path as ObjectPath;

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

/// Whether the store at a URL promises to list objects in the order of their keys, as buckets of S3 and
/// Google do; directory buckets of S3 and Azure do not.
#[must_use]
pub fn lists_in_order(url: &str) -> bool {
    RemoteUrl::parse(url).is_ok_and(|url| match url.scheme {
        Scheme::S3 => !url.authority.ends_with("--x-s3"),
        Scheme::Gcs => true,
        Scheme::Azure | Scheme::Http | Scheme::File => false,
    })
}

/// The path on this machine that a `file://` URL names.
///
/// # Errors
/// A URL that is none, or names a host.
pub fn local_path(url: &str) -> Result<PathBuf, RemoteError> {
    let parsed = RemoteUrl::parse(url)?;
    if parsed.scheme != Scheme::File {
        return Err(refuse(url, "names no file of this machine"));
    }
    Ok(Path::new("/").join(parsed.prefix.as_ref()))
}

/// Divides the URL of inputs into the place that they are relative to, and their path or glob in it:
/// `s3://b/a/*.csv` is `*.csv` in `s3://b/a`.
///
/// # Errors
/// A URL that cannot be used, or that names no object.
pub fn split(url: &str) -> Result<(String, String), RemoteError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_web = matches!(scheme, "http" | "https");
    // Elsewhere `?` is part of a glob.
    let (place, query) = match url.find('?') {
        Some(at) if is_web => url.split_at(at),
        _ => (url, ""),
    };
    let start = place.find("://").map_or(0, |at| at + 3);
    let wild = place.get(start..).unwrap_or_default().find(['*', '?', '[', ']', '{', '}', '\\']);
    let fixed = match wild {
        Some(at) if !is_web => place.get(..start + at).unwrap_or(place),
        _ => place,
    };
    let slash = fixed.rfind('/').filter(|slash| *slash >= start);
    let slash = slash.ok_or_else(|| refuse(url, "names no object"))?;
    let (root, rest) = place.split_at(slash);
    let rest = rest.trim_start_matches('/');
    let root =
        if root.len() <= start { format!("{root}/{query}") } else { format!("{root}{query}") };
    RemoteUrl::parse(&root)?;
    if rest.is_empty() {
        return Err(refuse(url, "names no object"));
    }
    if !matches!(scheme, "http" | "https" | "file") {
        return Ok((root, rest.to_owned()));
    }
    let rest = ObjectPath::from_url_path(rest).map_err(|_| refuse(url, "names no object"))?;
    Ok((root, rest.as_ref().to_owned()))
}

/// A URL that was understood.
#[derive(Clone)]
pub(super) struct RemoteUrl {
    scheme: Scheme,
    /// Bucket or container; of `http(s)`, scheme, host and port, with the query if there is one.
    authority: String,
    prefix: ObjectPath,
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
        if query.starts_with('#') {
            let is_web = scheme == Scheme::Http;
            return Err(refuse(text, if is_web { "has a fragment" } else { "has a `#`" }));
        }
        if !query.is_empty() && scheme != Scheme::Http {
            return Err(refuse(text, "has a query"));
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
            Scheme::Http | Scheme::File => ObjectPath::from_url_path(path),
            Scheme::S3 | Scheme::Gcs | Scheme::Azure => ObjectPath::parse(path),
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

    pub(super) fn prefix(&self) -> &ObjectPath {
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
#[must_use]
pub fn shown(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_believed_where_it_is_promised() {
        for (url, want) in [
            ("s3://b/p", true),
            ("gs://b", true),
            ("s3://b--use1-az4--x-s3/p", false),
            ("az://c/p", false),
            ("file:///p", false),
            ("p", false),
        ] {
            assert_eq!(lists_in_order(url), want, "{url}");
        }
    }

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
                "cannot use `s3://b/p`: this URL cannot be used (it has a query)",
            ),
            (
                "https://u:hush@h/p",
                "cannot use `https://h/p`: this URL cannot be used (it has user info)",
            ),
            (
                "ftp://h/p",
                "cannot use `ftp://h/p`: this URL cannot be used (it has a scheme that is not known)",
            ),
            ("s3://b/p#1/x", "cannot use `s3://b/p`: this URL cannot be used (it has a `#`)"),
            (
                "https://h/p#1",
                "cannot use `https://h/p`: this URL cannot be used (it has a fragment)",
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
    fn the_url_of_inputs_is_a_place_and_a_path_in_it() {
        for (url, root, rest) in [
            ("s3://b/a/*.csv", "s3://b/a", "*.csv"),
            ("s3://b/a/x?/b/*.csv", "s3://b/a", "x?/b/*.csv"),
            ("s3://b/a/x.csv", "s3://b/a", "x.csv"),
            ("s3://b/**", "s3://b", "**"),
            ("file:///d/*.csv", "file:///d", "*.csv"),
            ("file:///*.csv", "file:///", "*.csv"),
            ("https://h/a%20b/x%20y.csv?sig=1", "https://h/a%20b?sig=1", "x y.csv"),
            ("https://h/x.csv", "https://h", "x.csv"),
        ] {
            assert_eq!(split(url).unwrap(), (root.to_owned(), rest.to_owned()), "{url}");
        }
        for url in ["s3://b", "s3://b/a/", "s3://u:p@b/x.csv", "ftp://h/x"] {
            assert!(split(url).is_err(), "{url}");
        }
        assert_eq!(local_path("file:///a%20b/c").unwrap(), Path::new("/a b/c"));
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
