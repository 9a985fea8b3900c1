//! Progress on stderr: bars on a terminal, a plain line every ten seconds elsewhere, or one JSON
//! object per commit.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::pipeline::{Event, Live, Observer, Seen, rss_bytes};

const DRAW: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(10);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgressMode {
    /// Bars on a terminal, plain lines elsewhere.
    Auto,
    /// Bars.
    Bar,
    /// A line every ten seconds.
    Plain,
    /// A JSON object per commit, sealed shard and finished partition.
    Json,
    /// Nothing.
    None,
}

/// Shows how a run gets on.
pub(super) struct Progress {
    mode: ProgressMode,
    live: Arc<Live>,
    bar: ProgressBar,
    began: Instant,
    // Lines of several writers must not mix.
    lines: Mutex<()>,
}

impl Progress {
    pub(super) fn new(mode: ProgressMode, live: Arc<Live>) -> Arc<Self> {
        let terminal = std::io::stderr().is_terminal();
        let mode = match mode {
            ProgressMode::Auto if terminal => ProgressMode::Bar,
            ProgressMode::Auto => ProgressMode::Plain,
            other => other,
        };
        let bar = match mode {
            ProgressMode::Bar => ProgressBar::new(0),
            _ => ProgressBar::hidden(),
        };
        bar.set_style(style(false));
        Arc::new(Self { mode, live, bar, began: Instant::now(), lines: Mutex::new(()) })
    }

    /// Draws until it is dropped.
    pub(super) async fn draw(&self) {
        let period = match self.mode {
            ProgressMode::Bar => DRAW,
            ProgressMode::Plain => LINE,
            _ => return std::future::pending().await,
        };
        let mut clock = tokio::time::interval(period);
        clock.tick().await;
        let mut is_listing = false;
        loop {
            clock.tick().await;
            let seen = self.live.seen();
            if self.mode == ProgressMode::Bar {
                if seen.listed.is_some() != is_listing {
                    is_listing = seen.listed.is_some();
                    self.bar.set_style(style(is_listing));
                }
                self.bar.set_length(seen.total_bytes);
                let most = if is_listing { u64::MAX } else { seen.total_bytes };
                self.bar.set_position(seen.done_bytes.min(most));
                self.bar.set_message(details(&seen));
            } else {
                self.line(&plain_line(&seen, self.began.elapsed()));
            }
        }
    }

    /// Takes the bars away, before anything else is printed.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, text: &str) {
        let guard = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(std::io::stderr(), "{text}").ok();
        drop(guard);
    }
}

impl Observer for Progress {
    fn event(&self, event: &Event) {
        if self.mode != ProgressMode::Json {
            return;
        }
        let line = match event {
            Event::Committed { partition, rows } => {
                json!({"event": "commit", "partition": partition, "rows": rows})
            }
            Event::Sealed { partition, shard, rows, bytes } => json!({
                "event": "sealed", "partition": partition, "shard": shard, "rows": rows,
                "bytes": bytes,
            }),
            Event::Adopted { partition, rows } => {
                json!({"event": "adopted", "partition": partition, "rows": rows})
            }
            Event::Finished { partition, rows } => {
                json!({"event": "partition", "partition": partition, "rows": rows})
            }
        };
        self.line(&line.to_string());
    }
}

/// What is drawn: nothing of a whole that nobody knows yet.
fn style(is_listing: bool) -> ProgressStyle {
    let template = if is_listing {
        "{spinner} {bytes}  {msg}"
    } else {
        "{bar:30.cyan/dim} {percent:>3} %  {bytes}/{total_bytes}  {bytes_per_sec}  eta {eta}  {msg}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn details(seen: &Seen) -> String {
    let fill = (seen.queued_bytes * 100).checked_div(seen.queue_bytes).unwrap_or(0);
    let memory = rss_bytes().map(|n| format!("  mem {}", HumanBytes(n))).unwrap_or_default();
    let rejected = match seen.rejected {
        0 => String::new(),
        n => format!("  {} rejected", HumanCount(n)),
    };
    let known = (seen.known * 100).checked_div(seen.asked);
    let known = known.map(|percent| format!("  {percent} % known")).unwrap_or_default();
    let pushed = seen.push.map(|push| push.sent_bytes + push.skipped_bytes);
    let pushed = pushed.map(|n| format!("  pushed {}", HumanBytes(n))).unwrap_or_default();
    let partitions = match seen.listed {
        Some(n) => {
            format!("{} partitions  listing: {} inputs", seen.partitions_done, HumanCount(n))
        }
        None => format!("{}/{} partitions", seen.partitions_done, seen.partitions),
    };
    let rows = HumanCount(seen.rows);
    format!("{rows} rows{rejected}{known}  {partitions}  queues {fill} %{pushed}{memory}")
}

/// One line for a log: how much is done, how fast, how long it may take.
fn plain_line(seen: &Seen, elapsed: Duration) -> String {
    let percent = (seen.done_bytes * 100).checked_div(seen.total_bytes).unwrap_or(0).min(100);
    let per_second = u128::from(seen.done_bytes) * 1000 / elapsed.as_millis().max(1);
    let left = seen.total_bytes.saturating_sub(seen.done_bytes);
    let rest = match u64::try_from(per_second) {
        Ok(rate) if rate > 0 => {
            format!("  {} left", HumanDuration(Duration::from_secs(left / rate)))
        }
        _ => String::new(),
    };
    let rate = HumanBytes(u64::try_from(per_second).unwrap_or(u64::MAX));
    if seen.listed.is_some() {
        return format!("{}  {rate}/s  {}", HumanBytes(seen.done_bytes), details(seen));
    }
    format!(
        "{percent:>3} %  {} of {}  {rate}/s{rest}  {}",
        HumanBytes(seen.done_bytes),
        HumanBytes(seen.total_bytes),
        details(seen),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exporters::PushSeen;

    #[test]
    fn a_plain_line_tells_share_rate_and_rest() {
        let seen = Seen {
            listed: None,
            total_bytes: 4 << 20,
            done_bytes: 1 << 20,
            rows: 1234,
            rejected: 1000,
            partitions: 8,
            partitions_done: 2,
            queued_bytes: 1,
            queue_bytes: 4,
            asked: 200,
            known: 31,
            push: Some(PushSeen { sent_bytes: 1 << 20, ..PushSeen::default() }),
        };
        let line = plain_line(&seen, Duration::from_secs(1));
        let want = " 25 %  1.00 MiB of 4.00 MiB  1.00 MiB/s  3 seconds left  1,234 rows  \
                    1,000 rejected  15 % known  2/8 partitions  queues 25 %  \
                    pushed 1.00 MiB";
        assert!(line.starts_with(want), "{line}");
        let line = plain_line(&Seen { listed: Some(7_000), ..seen }, Duration::from_secs(1));
        let want = "1.00 MiB  1.00 MiB/s  1,234 rows  1,000 rejected  15 % known  2 partitions  \
                    listing: 7,000 inputs  queues 25 %";
        assert!(line.starts_with(want), "{line}");
    }

    #[test]
    fn nothing_to_do_divides_by_nothing() {
        assert!(plain_line(&Seen::default(), Duration::ZERO).starts_with("  0 %"));
    }
}
