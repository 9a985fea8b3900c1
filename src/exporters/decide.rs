//! What is done about one object: a pure decision over what was observed.
//!
//! Leaves out: observing and doing (`send`).
//!
//! Invariants:
//! 1. An object is left as it is only where its size and a digest of its bytes are those of the file:
//!    the digest that it carries, or the ETag that was answered when the file's bytes had been sent.
//! 2. An object that is another is never replaced, unless that was asked for. Where it was, only its
//!    bytes tell whether it is another: what the store says of it may be older than a damage.
//! 3. An upload is continued only where file and parts are what they were when it was begun.

use super::journal::{Begun, Known};
use super::object::Object;

/// What is known of the object's place in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remote {
    /// There is nothing.
    Absent,
    /// A listing has told of it.
    Listed {
        /// Its size.
        bytes: u64,
        /// Its ETag, where the store has one.
        etag: Option<String>,
    },
    /// It was asked for by name.
    Seen {
        /// Its size.
        bytes: u64,
        /// Its ETag, where the store has one.
        etag: Option<String>,
        /// The digest that it carries.
        b3: Option<blake3::Hash>,
    },
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is there.
    Skip,
    /// What it carries has to be asked for before anything can be decided.
    Look,
    /// It carries no digest: its bytes have to be read and hashed.
    Compare,
    /// It is sent from its beginning.
    Send,
    /// The upload that was begun goes on with the parts that are missing.
    Continue,
    /// The upload that was begun is of something else: it is aborted, and the file sent.
    StartOver,
    /// Something else stands there.
    Conflict(Difference),
}

/// How an object differs from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// In size.
    Bytes(u64),
    /// In content.
    Content,
}

/// Decides what is done about `object`, of which the journal knows `known` and the store `remote`.
/// `may_replace`: what is another is replaced, and nothing but bytes says what it is.
#[must_use]
pub fn decide(
    object: &Object,
    known: Option<&Known>,
    remote: &Remote,
    may_replace: bool,
) -> Decision {
    let conflict = |difference| {
        if may_replace { send(object, known, true) } else { Decision::Conflict(difference) }
    };
    match remote {
        Remote::Absent => send(object, known, may_replace),
        Remote::Listed { bytes, .. } | Remote::Seen { bytes, .. } if *bytes != object.bytes => {
            conflict(Difference::Bytes(*bytes))
        }
        Remote::Listed { .. } | Remote::Seen { .. } if may_replace => Decision::Compare,
        Remote::Listed { etag, .. } => match known {
            Some(Known::Done(done))
                if done.b3 == object.b3 && is_same(done.etag.as_deref(), etag.as_deref()) =>
            {
                Decision::Skip
            }
            _ => Decision::Look,
        },
        Remote::Seen { b3: Some(b3), .. } if *b3 == object.b3 => Decision::Skip,
        Remote::Seen { b3: Some(_), .. } => conflict(Difference::Content),
        Remote::Seen { b3: None, .. } => Decision::Compare,
    }
}

/// How a file is sent that is not there. Who replaces things goes on with nothing that was begun.
fn send(object: &Object, known: Option<&Known>, may_replace: bool) -> Decision {
    match known {
        Some(Known::Begun(begun)) if is_of(begun, object) && !may_replace => Decision::Continue,
        Some(Known::Begun(_)) => Decision::StartOver,
        Some(Known::Done(_)) | None => Decision::Send,
    }
}

fn is_of(begun: &Begun, object: &Object) -> bool {
    begun.bytes == object.bytes && begun.b3 == object.b3 && begun.part_bytes > 0
}

/// Whether two ETags are one. Stores quote them in one place and not in another; none is no other's.
#[must_use]
pub(super) fn is_same(one: Option<&str>, other: Option<&str>) -> bool {
    let plain = |etag: &str| etag.trim_start_matches("W/").trim_matches('"').to_owned();
    one.is_some() && one.map(plain) == other.map(plain)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::super::journal::Done;
    use super::*;

    fn object() -> Object {
        let (name, path) = ("shards/0/a.bin".to_owned(), PathBuf::from("a.bin"));
        Object { name, path, bytes: 100, b3: blake3::hash(b"ours") }
    }

    fn done(content: &[u8], etag: Option<&str>) -> Known {
        let (b3, etag) = (blake3::hash(content), etag.map(str::to_owned));
        Known::Done(Done { bytes: 100, b3, etag })
    }

    fn begun(bytes: u64, content: &[u8], part_bytes: u64) -> Known {
        let (b3, upload, parts) = (blake3::hash(content), "id".to_owned(), BTreeMap::new());
        Known::Begun(Begun { seq: 1, bytes, b3, upload, part_bytes, parts })
    }

    fn listed(bytes: u64, etag: Option<&str>) -> Remote {
        Remote::Listed { bytes, etag: etag.map(str::to_owned) }
    }

    fn seen(bytes: u64, content: Option<&[u8]>) -> Remote {
        Remote::Seen { bytes, etag: Some("1".to_owned()), b3: content.map(blake3::hash) }
    }

    #[test]
    fn every_case_is_decided() {
        use Decision::{Compare, Conflict, Continue, Look, Send, Skip, StartOver};
        use Difference::{Bytes, Content};
        // What the journal knows, what the store knows, what is done, what is done with --replace.
        let absent = Remote::Absent;
        let cases: Vec<(&str, Option<Known>, Remote, Decision, Decision)> = vec![
            ("new", None, absent.clone(), Send, Send),
            ("removed there", Some(done(b"ours", Some("1"))), absent.clone(), Send, Send),
            ("cut off", Some(begun(100, b"ours", 40)), absent.clone(), Continue, StartOver),
            ("of another file", Some(begun(100, b"old", 40)), absent.clone(), StartOver, StartOver),
            ("of another size", Some(begun(99, b"ours", 40)), absent.clone(), StartOver, StartOver),
            ("without parts", Some(begun(100, b"ours", 0)), absent, StartOver, StartOver),
            ("unknown", None, listed(100, Some("1")), Look, Compare),
            ("unknown, another size", None, listed(7, Some("1")), Conflict(Bytes(7)), Send),
            (
                "as it was sent",
                Some(done(b"ours", Some("1"))),
                listed(100, Some("\"1\"")),
                Skip,
                Compare,
            ),
            (
                "changed there",
                Some(done(b"ours", Some("1"))),
                listed(100, Some("2")),
                Look,
                Compare,
            ),
            (
                "cut there",
                Some(done(b"ours", Some("1"))),
                listed(7, Some("1")),
                Conflict(Bytes(7)),
                Send,
            ),
            ("no ETag was told", Some(done(b"ours", None)), listed(100, Some("1")), Look, Compare),
            ("no ETags at all", Some(done(b"ours", None)), listed(100, None), Look, Compare),
            (
                "another was sent",
                Some(done(b"old", Some("1"))),
                listed(100, Some("1")),
                Look,
                Compare,
            ),
            (
                "completed, not noted",
                Some(begun(100, b"ours", 40)),
                listed(100, Some("1")),
                Look,
                Compare,
            ),
            ("equal", None, seen(100, Some(b"ours")), Skip, Compare),
            ("other bytes", None, seen(100, Some(b"theirs")), Conflict(Content), Compare),
            ("other size", None, seen(99, Some(b"ours")), Conflict(Bytes(99)), Send),
            ("no digest", None, seen(100, None), Compare, Compare),
            (
                "no digest, was sent",
                Some(done(b"ours", Some("2"))),
                seen(100, None),
                Compare,
                Compare,
            ),
            (
                "equal and begun",
                Some(begun(100, b"ours", 40)),
                seen(100, Some(b"ours")),
                Skip,
                Compare,
            ),
            (
                "other bytes and begun",
                Some(begun(100, b"ours", 40)),
                seen(100, Some(b"theirs")),
                Conflict(Content),
                Compare,
            ),
        ];
        for (name, known, remote, want, replacing) in cases {
            let decided = |may_replace| decide(&object(), known.as_ref(), &remote, may_replace);
            assert_eq!(decided(false), want, "{name}");
            assert_eq!(decided(true), replacing, "{name}, --replace");
        }
    }
}
