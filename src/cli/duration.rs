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
}
