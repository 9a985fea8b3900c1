//! Where large inputs of text are cut.
//!
//! Invariant: a cut is the end of a record, the first one at or after a multiple of what was asked for.

use csv_core::ReadRecordResult::Record;

use super::SourceError;
use super::content::Content;
use super::csv_records::{CHUNK_BYTES, Dialect, Stream};
use super::input::Folder;
use crate::inputs::Input;

/// Ends of records, ascending, each the first at or after a multiple of `multiple`, by one pass over
/// the input that follows its quotes.
pub(super) fn quoted_cuts(
    dialect: Dialect,
    open: Content,
    multiple: u64,
    size: u64,
) -> Result<Vec<u64>, SourceError> {
    let mut core = dialect.reader();
    let mut stream = Stream::new(open);
    let (mut text, mut ends) = (vec![0; CHUNK_BYTES], vec![0; 1024]);
    let (mut cuts, mut wanted) = (Vec::new(), multiple);
    let mut is_start = true;
    loop {
        if stream.fill()?.is_empty() {
            break;
        }
        let (offset, bytes) = (stream.offset(), stream.rest());
        if is_start {
            // Lines before the next quote that end before a cut is wanted are records, or empty.
            let room = usize::try_from(wanted.saturating_sub(offset + 1)).unwrap_or(usize::MAX);
            let near = bytes.get(..room.min(bytes.len())).unwrap_or_default();
            let quote = dialect.quote.and_then(|quote| memchr::memchr(quote, near));
            let plain = near.get(..quote.unwrap_or(near.len())).unwrap_or_default();
            if let Some(end) = memchr::memrchr(b'\n', plain) {
                stream.skip(end + 1);
                continue;
            }
        }
        let (result, n_in, ..) = core.read_record(bytes, &mut text, &mut ends);
        let last = n_in.checked_sub(1).and_then(|i| bytes.get(i)).copied();
        stream.skip(n_in);
        is_start = result == Record;
        if !is_start {
            continue;
        }
        if last == Some(b'\r') && stream.fill()?.first() == Some(&b'\n') {
            stream.skip(1);
        }
        let end = stream.offset();
        if end >= wanted && end < size {
            cuts.push(end);
            wanted = (end / multiple).saturating_add(1).saturating_mul(multiple);
        }
    }
    // Whether the input is still what was listed.
    stream.open.digest()?;
    Ok(cuts)
}

/// The same where no value holds a line end, by looking only around each multiple.
pub(super) fn line_cuts(
    folder: &Folder,
    input: &Input,
    multiple: u64,
) -> Result<Vec<u64>, SourceError> {
    let (mut cuts, mut wanted) = (Vec::new(), multiple);
    while wanted < input.size {
        let mut open = folder.open(input, None, Some(wanted - 1))?;
        let mut bytes = Vec::new();
        let end = loop {
            let start = open.position();
            bytes.clear();
            if open.append_to(&mut bytes, CHUNK_BYTES / 4)? == 0 {
                return Ok(cuts);
            }
            if let Some(at) = bytes.iter().position(|b| *b == b'\n') {
                break start + at as u64 + 1;
            }
        };
        if end < input.size {
            cuts.push(end);
        }
        wanted = (end / multiple).saturating_add(1).saturating_mul(multiple);
    }
    Ok(cuts)
}
