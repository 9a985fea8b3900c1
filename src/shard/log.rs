//! Logs: files of JSON lines, each guarded by a CRC-32, that only grow.
//!
//! Leaves out: what the lines say (`manifest`) and when they are synced.
//!
//! Invariants:
//! 1. A line's last key is `crc32`, of the line's bytes before `,"crc32":"`.
//! 2. What counts is the longest prefix of whole and valid lines; what stands behind it was never
//!    promised to anybody.

use serde::Serialize;
use serde::de::DeserializeOwned;

const GUARD: &str = ",\"crc32\":\"";
const GUARD_BYTES: usize = GUARD.len() + 8 + 2;

/// The line that says `body`, which is written as a JSON object with at least one key.
#[must_use]
pub fn line<T: Serialize>(body: &T) -> Vec<u8> {
    // Our own types: structs with text keys, which serialise into memory without fail.
    let mut line = serde_json::to_vec(body).unwrap_or_default();
    line.pop();
    let crc = crc32fast::hash(&line);
    line.extend_from_slice(format!("{GUARD}{crc:08x}\"}}\n").as_bytes());
    line
}

/// What a log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines<T> {
    /// Its valid lines, in order.
    pub lines: Vec<T>,
    /// Bytes that the valid lines take.
    pub valid_bytes: u64,
}

/// Reads the longest prefix of `log` whose lines are whole, match their sums, and are what
/// `accept` makes of their JSON; `accept` is also told the number of the line.
pub fn read<J: DeserializeOwned, T>(
    log: &[u8],
    mut accept: impl FnMut(usize, J) -> Option<T>,
) -> Lines<T> {
    let mut read = Lines { lines: Vec::new(), valid_bytes: 0 };
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        let Some(body) = checked(line) else { break };
        let Ok(json) = serde_json::from_slice(body) else { break };
        let Some(line_read) = accept(read.lines.len(), json) else { break };
        read.lines.push(line_read);
        read.valid_bytes += line.len() as u64;
    }
    read
}

/// The JSON of a line that is whole and matches its sum.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let body = line.strip_suffix(b"\n")?;
    let (before, guard) = body.split_at_checked(body.len().checked_sub(GUARD_BYTES)?)?;
    let digits = guard.strip_prefix(GUARD.as_bytes())?.strip_suffix(b"\"}")?;
    let want = format!("{:08x}", crc32fast::hash(before));
    (digits == want.as_bytes()).then_some(body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn values(log: &[u8]) -> Lines<u64> {
        read(log, |n, json: Value| json.get("seq")?.as_u64().filter(|seq| *seq == n as u64))
    }

    fn log_of(n: u64) -> Vec<u8> {
        (0..n).flat_map(|seq| line(&json!({"seq": seq, "note": "a\nb"}))).collect()
    }

    #[test]
    fn line_ends_with_the_sum_of_what_stands_before_it() {
        let line = line(&json!({"seq": 0}));
        assert_eq!(String::from_utf8(line).unwrap(), "{\"seq\":0,\"crc32\":\"fb6446ea\"}\n");
    }

    #[test]
    fn only_whole_and_valid_lines_in_order_count() {
        let whole = log_of(3);
        let mut flipped = whole.clone();
        flipped[log_of(1).len() + 8] ^= 1;
        let mut skipped = log_of(1);
        skipped.extend(line(&json!({"seq": 2})));
        let mut zeros = log_of(1);
        zeros.extend([0; 4096]);
        for (name, log, want) in [
            ("empty", Vec::new(), 0),
            ("whole", whole.clone(), 3),
            ("no newline at the end", whole[..whole.len() - 1].to_vec(), 2),
            ("a flipped bit", flipped, 1),
            ("a line is missing", skipped, 1),
            ("zeros at the end", zeros, 1),
            ("no sum", b"{\"seq\":0}\n".to_vec(), 0),
            ("an empty line", b"\n".to_vec(), 0),
        ] {
            let read = values(&log);
            assert_eq!(read.lines.len(), want, "{name}");
            assert_eq!(read.valid_bytes, log_of(want as u64).len() as u64, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_prefix_gives_a_prefix_of_the_lines(lines in 0u64..12, cut in 0usize..1000) {
            let log = log_of(lines);
            let prefix = &log[..cut.min(log.len())];
            let read = values(prefix);
            let want: Vec<u64> = (0..read.lines.len() as u64).collect();
            prop_assert_eq!(&read.lines, &want);
            // Nothing whole was left out: less than a line stands behind what counts.
            let rest = &prefix[usize::try_from(read.valid_bytes).unwrap()..];
            prop_assert!(!rest.contains(&b'\n'));
        }
    }
}
