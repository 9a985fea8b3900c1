//! What is said of a hook that does not answer, for people.
//!
//! Invariant: what is kept of a row depends on the hook alone, not on how it is run.

use super::frames::Garbled;
use super::notice::printable;
use super::settings::Seconds;
use super::worker::Failure;

impl Failure {
    /// What happened, in words that depend on the hook alone.
    pub(super) fn kept_text(&self) -> String {
        match self {
            Self::Died(how) | Self::Garbled(Garbled { how, .. }) => how.clone(),
            Self::Timeout(_) => "no answer came within `timeout`".to_owned(),
            Self::Memory(_) => "it took more than `memory`".to_owned(),
            Self::Stopped => "it was stopped".to_owned(),
            Self::Told(notice) => printable(&notice.what),
        }
    }

    /// What happened, with the limit that it came to.
    pub(super) fn text(&self) -> String {
        let text = self.kept_text();
        match self {
            Self::Timeout(most) => format!("{text} ({})", Seconds(*most)),
            Self::Memory(most) => format!("{text} ({})", bytes_text(*most)),
            _ => text,
        }
    }

    /// What to do where it was asked about `n_rows`, and what it said last.
    pub(super) fn hint(&self, n_rows: usize, stderr: &[String]) -> Option<String> {
        let limit = match self {
            Self::Timeout(_) => {
                Some("raise `timeout`, which for the first batch of a process includes its start")
            }
            Self::Memory(_) => Some("raise `memory`"),
            _ => None,
        };
        let fewer = if n_rows > 1 { ", or lower `batch_rows`" } else { "" };
        match (limit.map(|limit| format!("{limit}{fewer}")), said(stderr)) {
            (Some(limit), Some(said)) => Some(format!("{limit}; {said}")),
            (limit, said) => limit.or(said),
        }
    }
}

/// The last lines of stderr.
pub(super) fn said(stderr: &[String]) -> Option<String> {
    (!stderr.is_empty()).then(|| format!("it said last: {}", stderr.join(" | ")))
}

/// So many rows.
pub(super) fn rows_text(n_rows: usize) -> String {
    if n_rows == 1 { "1 row".to_owned() } else { format!("{n_rows} rows") }
}

fn bytes_text(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((unit, size)) => format!("{} {unit}", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn limits_are_told_with_their_figures_and_kept_without() {
        let timeout = "raise `timeout`, which for the first batch of a process includes its start";
        for (failure, n_rows, text, kept, hint) in [
            (
                Failure::Timeout(Duration::from_secs(5)),
                64,
                "no answer came within `timeout` (5s)",
                "no answer came within `timeout`",
                Some(format!("{timeout}, or lower `batch_rows`; it said last: a | b")),
            ),
            (
                Failure::Timeout(Duration::from_millis(1500)),
                1,
                "no answer came within `timeout` (1500ms)",
                "no answer came within `timeout`",
                Some(format!("{timeout}; it said last: a | b")),
            ),
            (
                Failure::Memory(64 << 20),
                64,
                "it took more than `memory` (64 MiB)",
                "it took more than `memory`",
                Some("raise `memory`, or lower `batch_rows`; it said last: a | b".to_owned()),
            ),
            (
                Failure::Died("signal 11 ended it".to_owned()),
                64,
                "signal 11 ended it",
                "signal 11 ended it",
                Some("it said last: a | b".to_owned()),
            ),
        ] {
            assert_eq!((&*failure.text(), &*failure.kept_text()), (text, kept));
            assert_eq!(failure.hint(n_rows, &["a".to_owned(), "b".to_owned()]), hint);
        }
        assert_eq!(Failure::Died(String::new()).hint(64, &[]), None);
        assert_eq!(Failure::Memory(1).hint(1, &[]).as_deref(), Some("raise `memory`"));
    }
}
