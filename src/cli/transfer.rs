//! How far a push or a pull is, on stderr: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::output::Console;

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(200);
/// How often a line is written where there is no terminal.
const LINE: Duration = Duration::from_secs(10);

/// What was seen of it, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transferred {
    /// Of all that is to be there in the end.
    pub(super) total: u64,
    /// Of what is there.
    pub(super) there: u64,
    /// Of what travelled.
    pub(super) moved: u64,
}

/// The bar, which shows nothing where there is no terminal.
pub(super) fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template(
        "{bar:30.cyan/dim} {percent:>3} %  {bytes}/{total_bytes}  {bytes_per_sec}  eta {eta}",
    );
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// Shows how far it is, until it is dropped.
pub(super) async fn draw(bar: &ProgressBar, seen: impl Fn() -> Transferred, console: &Console) {
    let (is_terminal, began) = (std::io::stderr().is_terminal(), Instant::now());
    let mut clock = tokio::time::interval(if is_terminal { DRAW } else { LINE });
    clock.tick().await;
    loop {
        clock.tick().await;
        let seen = seen();
        if is_terminal {
            bar.set_length(seen.total);
            bar.set_position(seen.there);
        } else {
            console.note(&line(seen, began.elapsed()));
        }
    }
}

/// One line for a log.
fn line(seen: Transferred, elapsed: Duration) -> String {
    let percent = (seen.there * 100).checked_div(seen.total).unwrap_or(0).min(100);
    let per_second = u128::from(seen.moved) * 1000 / elapsed.as_millis().max(1);
    format!(
        "{percent:>3} %  {} of {}  {}/s",
        HumanBytes(seen.there),
        HumanBytes(seen.total),
        HumanBytes(u64::try_from(per_second).unwrap_or(u64::MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_how_fast() {
        let seen = |total, there, moved| Transferred { total, there, moved };
        for (seen, seconds, want) in [
            (seen(0, 0, 0), 0, "  0 %  0 B of 0 B  0 B/s"),
            (seen(4 << 20, 3 << 20, 1 << 20), 2, " 75 %  3.00 MiB of 4.00 MiB  512.00 KiB/s"),
            (seen(1 << 20, 2 << 20, 0), 1, "100 %  2.00 MiB of 1.00 MiB  0 B/s"),
        ] {
            assert_eq!(line(seen, Duration::from_secs(seconds)), want);
        }
    }
}
