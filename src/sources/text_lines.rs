//! Where in an input of text a record stands, as people look for it.

use super::SourceError;
use super::content::Contents;
use super::csv_records::CHUNK_BYTES;
use crate::inputs::{Input, InputRange};

/// What ends a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// `\n` alone.
    Newline,
    /// `\n`, `\r\n` or `\r`.
    Any,
}

impl LineEnd {
    /// The line ends in `bytes`; `before` is the byte before them.
    fn count(self, bytes: &[u8], before: u8) -> usize {
        match self {
            Self::Newline => memchr::memchr_iter(b'\n', bytes).count(),
            Self::Any => {
                let is_second = |at: usize| {
                    let first = at.checked_sub(1).map_or(Some(&before), |at| bytes.get(at));
                    bytes.get(at) == Some(&b'\n') && first == Some(&b'\r')
                };
                memchr::memchr2_iter(b'\n', b'\r', bytes).filter(|at| !is_second(*at)).count()
            }
        }
    }
}

/// Where the record stands, for people, that begins at byte `offset` of an input: by its line, by the byte
/// where the input is cut, and as source row `row` where rows are counted. The input is read up to there.
///
/// # Errors
/// The input cannot be read, or is not what was listed.
pub(super) fn place_of(
    contents: &Contents,
    read: &InputRange,
    offset: u64,
    row: Option<u64>,
    end: LineEnd,
) -> Result<String, SourceError> {
    let line = line_of(contents, &read.input, offset, end)?;
    let byte = read.range.is_some().then(|| format!("byte {offset}"));
    let row = row.map(|row| read.row(row).in_input().to_string());
    let told: Vec<String> =
        [Some(format!("line {line}")), byte, row].into_iter().flatten().collect();
    Ok(told.join(", "))
}

/// The line, from 1, that byte `offset` of an input lies in.
fn line_of(
    contents: &Contents,
    input: &Input,
    offset: u64,
    end: LineEnd,
) -> Result<usize, SourceError> {
    let mut open = contents.open(input, None, None)?;
    let mut bytes = Vec::new();
    let (mut line, mut before) = (1, b'\n');
    loop {
        let left = usize::try_from(offset - open.position()).unwrap_or(usize::MAX);
        if open.append_to(&mut bytes, CHUNK_BYTES.min(left))? == 0 {
            return Ok(line);
        }
        line += end.count(&bytes, before);
        before = bytes.last().copied().unwrap_or(before);
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_what_ends_them() {
        for (name, text, newlines, any) in [
            ("none", &b"abc"[..], 0, 0),
            ("newlines", b"a\nb\n\n", 3, 3),
            ("both", b"a\r\nb\r\n\r\n", 3, 3),
            ("returns", b"a\rb\r\r", 0, 3),
            ("mixed", b"\n\ra\r\n\n\r", 3, 5),
        ] {
            for cut in 0..=text.len() {
                let (first, second) = text.split_at(cut);
                let before = first.last().copied().unwrap_or(b'\n');
                for (end, want) in [(LineEnd::Newline, newlines), (LineEnd::Any, any)] {
                    let count = end.count(first, b'\n') + end.count(second, before);
                    assert_eq!(count, want, "{name}, cut at {cut}");
                }
            }
        }
    }
}
