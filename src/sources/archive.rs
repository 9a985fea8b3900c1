//! Finds one member of a zip archive.
//!
//! Leaves out: decoding it (`content`).
//!
//! Invariants:
//! 1. A member's name only picks it; no path on the disk is made of it.
//! 2. Reading the directory takes bounded memory, whatever it declares.

use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};

use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::input::Folder;
use super::{BadRow, INPUT_DAMAGED, Input, SourceError};

/// A larger directory (about 40,000 members) is refused.
const DIRECTORY_BYTES: u64 = 4 << 20;
/// Most memory that a directory takes while a member is looked up: entries are larger than on disk.
pub(super) const DIRECTORY_MEMORY_BYTES: u64 = 12 * DIRECTORY_BYTES;

/// Where a member's data is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    /// Offset of its first byte in the archive.
    pub(super) start: u64,
    /// Number of bytes in the archive.
    pub(super) packed: u64,
    /// Number of bytes that it decodes to.
    pub(super) size: u64,
    /// CRC-32 of those.
    pub(super) crc32: u32,
    /// Whether it is deflated, or stored as it is.
    pub(super) is_deflated: bool,
}

/// What is wrong with the name of a member, as the end of a sentence.
pub(super) fn flaw_of_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        _ if name.starts_with(['/', '\\']) => Some("is an absolute path"),
        _ if name.split(['/', '\\']).any(|part| part == "..") => {
            Some("leads out of the archive with `..`")
        }
        _ if name.ends_with('/') => Some("is a folder"),
        _ => None,
    }
}

/// Finds member `wanted`, or the only file of the archive.
///
/// # Errors
/// No archive; no such member, or several where none is named; a member that is encrypted or
/// compressed in another way than by deflate.
pub(super) fn find(
    folder: &Folder,
    input: &Input,
    wanted: Option<&str>,
) -> Result<Member, SourceError> {
    let refuse = |message: String, hint: &str| SourceError::Invalid {
        path: input.path.clone(),
        at: "directory of the archive".to_owned(),
        message,
        hint: Some(hint.to_owned()),
    };
    let restore = "restore the input from where it came from";
    let damaged = |message: String| {
        let bad = BadRow::new(INPUT_DAMAGED, message).hint(restore);
        bad.into_error(&input.path, "directory of the archive")
    };
    let broken = |e: ZipError| match e {
        ZipError::Io(e) if e.kind() == ErrorKind::FileTooLarge => refuse(
            format!("it is larger than {} MiB", DIRECTORY_BYTES >> 20),
            "unpack the archive, or pack fewer files into one",
        ),
        ZipError::Io(e)
            if !matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput) =>
        {
            super::input::io(&input.path, e)
        }
        _ => damaged("this is no zip archive, or a damaged one".to_owned()),
    };
    let file = folder.open(input, None, None)?.into_seekable();
    let reader = Bounded { inner: BufReader::new(file), left: DIRECTORY_BYTES + (1 << 20) };
    let mut archive = ZipArchive::new(reader).map_err(&broken)?;
    let index = match wanted {
        Some(name) => archive.index_for_name(name).ok_or_else(|| {
            let likeness = |other: &String| (strsim::jaro_winkler(other, name) * 1e6).to_bits();
            let names =
                archive.file_names().filter_map(|n| n.ok().map(std::borrow::Cow::into_owned));
            let near = names.max_by_key(likeness);
            let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`?"));
            refuse(format!("there is no member `{name}`"), &hint)
        })?,
        None => only_file(&archive).map_err(|(message, hint)| refuse(message, &hint))?,
    };
    let member = archive.by_index_raw(index).map_err(&broken)?;
    let name = member.name().map(std::borrow::Cow::into_owned).map_err(&broken)?;
    if let Some(why) = flaw_of_name(&name) {
        return Err(refuse(format!("the member's name `{name}` {why}"), "pack it under another"));
    }
    if !member.is_file() {
        return Err(refuse(format!("member `{name}` is no file"), "name a file in `member`"));
    }
    if member.encrypted() {
        return Err(refuse(format!("member `{name}` is encrypted"), "unpack it"));
    }
    let is_deflated = match member.compression() {
        CompressionMethod::Stored => false,
        CompressionMethod::Deflated => true,
        other => {
            let message = format!("member `{name}` is compressed by {other}");
            return Err(refuse(message, "pack it again with deflate, or unpack it"));
        }
    };
    let start =
        member.data_start().ok_or_else(|| damaged(format!("member `{name}` has no data")))?;
    let (packed, size, crc32) = (member.compressed_size(), member.size(), member.crc32());
    if start.checked_add(packed).is_none_or(|end| end > input.size) {
        return Err(damaged(format!("member `{name}` ends behind the archive")));
    }
    Ok(Member { start, packed, size, crc32, is_deflated })
}

fn only_file<R: Read + Seek>(archive: &ZipArchive<R>) -> Result<usize, (String, String)> {
    let mut files = (0..archive.len())
        .filter(|i| archive.by_index_data(*i).is_ok_and(|member| member.is_file()));
    let refuse = |message: String, hint: &str| Err((message, hint.to_owned()));
    let Some(first) = files.next() else {
        return refuse("it names no file".to_owned(), "leave the archive out of `path`");
    };
    let n_more = files.count();
    if n_more == 0 {
        return Ok(first);
    }
    let name = archive.name_for_index(first).and_then(Result::ok).unwrap_or_default();
    refuse(
        format!("it names {} files", n_more + 1),
        &format!("name one of them, such as `member = {name:?}`"),
    )
}

/// A reader that gives up after so many bytes.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.inner.read(out)?;
        self.left = self.left.checked_sub(n as u64).ok_or(ErrorKind::FileTooLarge)?;
        Ok(n)
    }
}

impl<R: Seek> Seek for Bounded<R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.inner.seek(to)
    }
}
