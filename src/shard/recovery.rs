//! What is done with an open folder that an earlier run left.
//!
//! Leaves out: looking at the folder and doing it (`writer`, `open`, `seal`).
//!
//! Invariants:
//! 1. The decision is a function of what was observed; it touches nothing.
//! 2. What was promised is continued, finished, or refused by name. Only what nothing was promised
//!    of is thrown away.

use super::error::Damage;
use super::manifest::{Header, Manifest};

/// What was found of one open folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed<'a> {
    /// Number of the shard in its partition.
    pub(super) number: u64,
    /// Shards in the partition's log.
    pub(super) logged: u64,
    /// Whether the log says that the partition has ended.
    pub(super) has_ended: bool,
    /// Whether the log's line of this shard names no shard, or one that is in its place.
    pub(super) is_settled: bool,
    /// Whether the folder has a sentinel.
    pub(super) has_sentinel: bool,
    /// The folder's manifest.
    pub(super) manifest: &'a Manifest,
    /// What the manifest's first line has to say, but for where the shard begins.
    pub(super) wanted: &'a Header,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Nothing was promised, or the promise was kept elsewhere: throw the folder away.
    Discard,
    /// Go on from the last segment.
    Continue,
    /// It is sealed: write the log's line if it is missing, and put it in its place.
    FinishSeal {
        /// Whether the log has no line of it yet.
        is_unlogged: bool,
    },
    /// It cannot be what a writer left.
    Refuse(Damage),
}

/// Decides what is to be done with an open folder.
pub(super) fn decide(seen: &Observed<'_>) -> Recovery {
    let Observed { number, logged, has_ended, .. } = *seen;
    if number < logged {
        return match (seen.has_sentinel, seen.is_settled) {
            (true, _) => Recovery::FinishSeal { is_unlogged: false },
            (false, true) => Recovery::Discard,
            (false, false) => Recovery::Refuse(Damage::Sentinel),
        };
    }
    let committed = match seen.manifest {
        Manifest::Absent if seen.has_sentinel => return Recovery::Refuse(Damage::Unaccounted),
        Manifest::Absent => return Recovery::Discard,
        Manifest::Broken => return Recovery::Refuse(Damage::Header),
        Manifest::Valid { header, segments, .. } => {
            if let Some(foreign) = foreign(header, seen.wanted) {
                return Recovery::Refuse(foreign);
            }
            !segments.is_empty()
        }
    };
    if number > logged || has_ended {
        return Recovery::Refuse(Damage::BeyondLog { logged });
    }
    match (seen.has_sentinel, committed) {
        (true, true) => Recovery::FinishSeal { is_unlogged: true },
        (true, false) => Recovery::Refuse(Damage::Unaccounted),
        (false, _) => Recovery::Continue,
    }
}

/// What of a header is not as it has to be.
fn foreign(found: &Header, wanted: &Header) -> Option<Damage> {
    let differs = |member, found: String, wanted: String| {
        (found != wanted).then_some(Damage::Foreign { member, found, wanted })
    };
    differs("layout", found.layout.to_string(), wanted.layout.to_string())
        .or_else(|| differs("cache key", found.cache_key.clone(), wanted.cache_key.clone()))
        .or_else(|| differs("slot", found.slot.clone(), wanted.slot.clone()))
        .or_else(|| differs("shard", found.shard.to_string(), wanted.shard.to_string()))
        .or_else(|| differs("schema", found.schema.to_string(), wanted.schema.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::{Position, Restart};
    use crate::shard::manifest::{Cut, Next, Segment};

    fn header(slot: &str) -> Header {
        Header {
            layout: 1,
            cache_key: "key".into(),
            slot: slot.into(),
            shard: 2,
            first: Position::default(),
            schema: json!({}),
        }
    }

    fn valid(slot: &str, segments: usize) -> Manifest {
        let next = Next::At(Position::default());
        let cut = Cut { next, restart: Restart::default(), seen: 0, books: json!({}) };
        let segment = Segment { seq: 0, rows: 0, cut, files: [].into() };
        let segments = vec![segment; segments];
        Manifest::Valid { header: header(slot), segments, valid_bytes: 0 }
    }

    #[test]
    fn folder_is_finished_continued_discarded_or_refused() {
        use Recovery::{Continue, Discard, FinishSeal, Refuse};
        let (absent, broken) = (Manifest::Absent, Manifest::Broken);
        let foreign =
            Damage::Foreign { member: "slot", found: "other".into(), wanted: "slot".into() };
        let beyond = |logged| Refuse(Damage::BeyondLog { logged });
        let sealed = |is_unlogged| FinishSeal { is_unlogged };
        // name, shards logged, ended, settled, sentinel, manifest → decision; the shard is number 2
        let table = [
            ("nothing but a folder", 2, false, false, false, absent.clone(), Discard),
            ("a header", 2, false, false, false, valid("slot", 0), Continue),
            ("segments", 2, false, false, false, valid("slot", 3), Continue),
            ("a broken header", 2, false, false, false, broken.clone(), Refuse(Damage::Header)),
            ("another's header", 2, false, false, false, valid("other", 1), Refuse(foreign)),
            ("sealed, not logged", 2, false, false, true, valid("slot", 1), sealed(true)),
            ("sealed, logged", 3, false, false, true, valid("slot", 1), sealed(false)),
            ("sealed, logged, no manifest", 3, false, false, true, absent.clone(), sealed(false)),
            ("sealed, logged, ended", 3, true, false, true, absent.clone(), sealed(false)),
            ("a copy of what is in its place", 3, false, true, true, absent.clone(), sealed(false)),
            ("the rest of an end without shard", 3, true, true, false, valid("slot", 1), Discard),
            (
                "logged, but no sentinel",
                3,
                false,
                false,
                false,
                valid("slot", 1),
                Refuse(Damage::Sentinel),
            ),
            (
                "sealed, nothing tells its place",
                2,
                false,
                false,
                true,
                absent.clone(),
                Refuse(Damage::Unaccounted),
            ),
            (
                "sealed without a commit",
                2,
                false,
                false,
                true,
                valid("slot", 0),
                Refuse(Damage::Unaccounted),
            ),
            ("the log is too short", 1, false, false, false, valid("slot", 1), beyond(1)),
            ("behind the end", 2, true, false, false, valid("slot", 1), beyond(2)),
            ("a folder behind the end", 2, true, false, false, absent, Discard),
        ];
        for (name, logged, has_ended, is_settled, has_sentinel, manifest, want) in table {
            let wanted = &header("slot");
            let (number, manifest) = (2, &manifest);
            let seen =
                Observed { number, logged, has_ended, is_settled, has_sentinel, manifest, wanted };
            assert_eq!(decide(&seen), want, "{name}");
        }
    }
}
