//! Spans of time as people type them.

use std::time::Duration;

/// Seconds of each unit.
const UNITS: &[(char, u64)] = &[('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];

/// Reads `90s`, `30m`, `1h30m`, `7d`, `2w`.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit, such as 90s, 30m, 1h30m, 7d or 2w".to_owned();
    let (mut seconds, mut number) = (0_u64, None::<u64>);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            let tens = number.unwrap_or(0).checked_mul(10).ok_or_else(wrong)?;
            number = Some(tens.checked_add(digit.into()).ok_or_else(wrong)?);
            continue;
        }
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == c).ok_or_else(wrong)?;
        let some = number.take().and_then(|n| n.checked_mul(*unit)).ok_or_else(wrong)?;
        seconds = seconds.checked_add(some).ok_or_else(wrong)?;
    }
    if text.is_empty() || number.is_some() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(seconds))
}

/// Seconds of a day.
const DAY: u64 = 86_400;

/// When a run is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// This much later.
    After(Duration),
    /// When the day has come so far next.
    At {
        /// Seconds since midnight.
        seconds: u64,
    },
}

impl Until {
    /// Reads `2h` or `06:30`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((hours, minutes)) = text.split_once(':') else {
            return parse(text).map(Self::After);
        };
        let number = |text: &str, below: u64| match text.parse::<u64>() {
            Ok(n) if n < below && text.len() <= 2 && !text.starts_with('+') => Ok(n),
            _ => Err("write a time of the day as 06:30, or a span such as 2h".to_owned()),
        };
        let seconds = number(hours, 24)? * 3600 + number(minutes, 60)? * 60;
        Ok(Self::At { seconds })
    }

    /// How long that is, `now` seconds after midnight.
    pub(super) fn span_at(self, now: u64) -> Duration {
        match self {
            Self::After(span) => span,
            Self::At { seconds } => Duration::from_secs((seconds + DAY - now % DAY) % DAY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_units() {
        for (text, want) in [
            ("90s", Some(90)),
            ("1h30m", Some(5400)),
            ("7d", Some(604_800)),
            ("0s", Some(0)),
            ("", None),
            ("7", None),
            ("h", None),
            ("7 d", None),
            ("1h30", None),
            ("99999999999999999999d", None),
            ("-1d", None),
        ] {
            assert_eq!(parse(text).ok(), want.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_time_of_the_day_is_the_next_one() {
        for (text, now, want) in [
            ("2h", 5, Some(7200)),
            ("06:30", 0, Some(23_400)),
            ("6:30", 23_000, Some(400)),
            ("06:30", 23_401, Some(86_399)),
            ("00:00", 86_399, Some(1)),
            ("24:00", 0, None),
            ("06:60", 0, None),
            ("06:030", 0, None),
            ("+6:30", 0, None),
            ("soon", 0, None),
        ] {
            let got = Until::parse(text).ok().map(|until| until.span_at(now));
            assert_eq!(got, want.map(Duration::from_secs), "{text} at {now}");
        }
    }
}
