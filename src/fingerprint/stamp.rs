//! What tells without reading a file that it is the one that was read before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// What tells that an input is the one that was read before, so that it need not be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fingerprinting {
    /// Its content. That is known without hashing while size, time of modification and the time of
    /// change that the system keeps are those of a file whose digest is known.
    #[default]
    Content,
    /// Size and time of modification: a change that keeps both is not seen.
    Stat,
}

/// How long a file has to be left alone before its times tell every later change: the coarsest
/// resolution that file systems keep times with.
const SETTLED: Duration = Duration::from_secs(2);

/// Size and times of a file: while they stay, what is known of it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Nanoseconds from 1970 to the last change of anything about it, where that is known and tells
    /// later changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_ns: Option<i64>,
    /// Nanoseconds from 1970 to its last modification; negative before.
    pub modified_ns: i64,
    /// Size in bytes.
    pub size: u64,
}

impl Stamp {
    /// The stamp of a file. Times beyond the year 2262 count as that year.
    #[must_use]
    pub fn new(size: u64, modified: SystemTime, changed: Option<SystemTime>) -> Self {
        Self { size, modified_ns: nanoseconds(modified), changed_ns: changed.map(nanoseconds) }
    }

    /// The stamp of a file that was looked at at `seen_at` or later. A file that changed right before may change
    /// again within the same tick of its clock: its time of change tells nothing.
    #[must_use]
    pub fn settled(self, seen_at: SystemTime) -> Self {
        let is_settled =
            |changed: &i64| seen_at.checked_sub(SETTLED).is_some_and(|t| *changed < nanoseconds(t));
        Self { changed_ns: self.changed_ns.filter(is_settled), ..self }
    }

    /// Whether a file that now has the stamp `now` is believed to be what it was with this one.
    #[must_use]
    pub fn holds(&self, now: &Self, fingerprinting: Fingerprinting) -> bool {
        let is_changed = match fingerprinting {
            Fingerprinting::Content => {
                self.changed_ns.is_none() || self.changed_ns != now.changed_ns
            }
            Fingerprinting::Stat => false,
        };
        !is_changed && (self.size, self.modified_ns) == (now.size, now.modified_ns)
    }
}

/// Nanoseconds from 1970, negative before.
fn nanoseconds(time: SystemTime) -> i64 {
    let ns = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ns(after),
        Err(before) => -ns(before.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_tell_times_apart() {
        let at = |ns: u64| UNIX_EPOCH + Duration::from_nanos(ns);
        let stamp = Stamp::new(1, at(5), Some(at(7)));
        assert_eq!(stamp, Stamp { size: 1, modified_ns: 5, changed_ns: Some(7) });
        let before = UNIX_EPOCH - Duration::from_nanos(3);
        assert_eq!(Stamp::new(1, before, None).modified_ns, -3);
        let far = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(Stamp::new(1, far, None).modified_ns, i64::MAX);
    }

    #[test]
    fn a_stamp_holds_while_nothing_changed_or_nothing_that_is_looked_at() {
        use Fingerprinting::{Content, Stat};
        let at = |ns: u64| UNIX_EPOCH + Duration::from_nanos(ns);
        let known = Stamp::new(1, at(5), Some(at(7)));
        for (name, now, content, stat) in [
            ("the same", known, true, true),
            ("another size", Stamp { size: 2, ..known }, false, false),
            ("touched", Stamp { modified_ns: 6, ..known }, false, false),
            ("touched and set back", Stamp { changed_ns: Some(8), ..known }, false, true),
            ("elsewhere", Stamp { changed_ns: None, ..known }, false, true),
        ] {
            assert_eq!(known.holds(&now, Content), content, "{name}");
            assert_eq!(known.holds(&now, Stat), stat, "{name}");
        }
        let unknown = Stamp { changed_ns: None, ..known };
        assert!(!unknown.holds(&unknown, Content), "what is not known is not believed");
    }

    #[test]
    fn a_file_that_has_just_changed_may_change_unseen() {
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        let stamp = Stamp::new(1, at(5_000), Some(at(5_000)));
        for (seen_ms, is_settled) in [(0, false), (5_000, false), (7_000, false), (7_001, true)] {
            let settled = stamp.settled(at(seen_ms));
            assert_eq!(settled.changed_ns.is_some(), is_settled, "{seen_ms}");
            assert_eq!(settled.modified_ns, stamp.modified_ns);
        }
    }
}
