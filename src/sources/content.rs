//! The bytes of inputs as their records are read from them: as they are, or decoded.
//!
//! Leaves out: what the bytes mean, and which member of an archive is meant (`archive`).
//!
//! Invariants:
//! 1. Positions count decoded bytes, from 0. Reading from a position other than 0 decodes what lies
//!    before it again.
//! 2. Digests are of the raw bytes of the whole file, whatever is decoded from them.
//! 3. Decoded bytes end where every member or frame of the file has ended and its checksum agrees;
//!    anything else is an error at the position where decoding stopped. Which bytes come before it
//!    does not depend on where reading began or how much is asked for at once.
//! 4. Memory does not grow with what an input declares or decodes to.

use std::io::{BufRead, ErrorKind, Read};
use std::ops::Range;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::archive::{self, Member};
use super::input::{Folder, OpenInput};
use super::{BadRow, INPUT_DAMAGED, Input, SettingsError, SourceError};

/// Raw bytes that are read at once.
const RAW_BYTES: usize = 64 << 10;
/// Decoded bytes that are made at once, always as many, by invariant 3.
const PIECE_BYTES: usize = 128 << 10;
/// Zstandard frames may refer this far back.
const WINDOW_LOG: u32 = 27;

/// How inputs are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Compression {
    /// As the names say: `.gz`, `.zst` and `.zip` are, all others are not.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// Members of gzip, one after another.
    Gzip,
    /// Frames of Zstandard, one after another.
    Zstd,
    /// A zip archive, one member of which is read.
    Zip,
}

impl Compression {
    /// What it means for an input of this name.
    fn of(self, path: &str) -> Self {
        if self != Self::Auto {
            return self;
        }
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        match extension.to_ascii_lowercase().as_str() {
            "gz" | "gzip" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            "zip" => Self::Zip,
            _ => Self::None,
        }
    }

    /// Most memory that decoding takes.
    fn bytes(self) -> u64 {
        let buffers = (RAW_BYTES + PIECE_BYTES) as u64;
        match self {
            Self::Auto | Self::None => 0,
            // The window is 32 KiB.
            Self::Gzip => buffers + (128 << 10),
            Self::Zstd => buffers + (1 << WINDOW_LOG) + (1 << 20),
            Self::Zip => buffers + archive::DIRECTORY_MEMORY_BYTES,
        }
    }
}

/// Opens a source's inputs for reading what they decode to.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    folder: Folder,
    compression: Compression,
    member: Option<String>,
}

impl Contents {
    /// What the settings `compression` and `member` of a source say.
    ///
    /// # Errors
    /// A member's name that is no path within an archive.
    pub(super) fn new(
        folder: &Folder,
        compression: Compression,
        member: Option<&str>,
    ) -> Result<Self, SettingsError> {
        if let Some(why) = member.and_then(archive::flaw_of_name) {
            return Err(SettingsError {
                at: vec!["member".to_owned()],
                message: format!("`{}` {why}", member.unwrap_or_default()),
                hint: Some("`member` is the name as the archive lists it, `data/a.csv`".to_owned()),
            });
        }
        Ok(Self { folder: folder.clone(), compression, member: member.map(str::to_owned) })
    }

    /// Most memory that decoding one of these inputs takes.
    pub(super) fn memory_bytes(&self, inputs: &[Input]) -> u64 {
        let bytes = inputs.iter().map(|input| self.compression.of(&input.path).bytes());
        bytes.max().unwrap_or(0)
    }

    /// Whether bytes of this input are decoded: it is then not cut.
    pub(super) fn is_decoded(&self, path: &str) -> bool {
        self.compression.of(path) != Compression::None
    }

    /// Opens an input, or a range of one that is not decoded, at position `from` (`None`: the first).
    ///
    /// # Errors
    /// It cannot be opened, is not what was listed, or is not compressed as is said.
    pub(super) fn open(
        &self,
        input: &Input,
        range: Option<&Range<u64>>,
        from: Option<u64>,
    ) -> Result<Content, SourceError> {
        let kind = self.compression.of(&input.path);
        if let (Some(member), true) = (&self.member, kind != Compression::Zip) {
            return Err(SourceError::Invalid {
                path: input.path.clone(),
                at: "its name".to_owned(),
                message: format!("`member` is `{member}`, but the input is no zip archive"),
                hint: Some("leave `member` out, or set `compression = \"zip\"`".to_owned()),
            });
        }
        if matches!(kind, Compression::None | Compression::Auto) {
            return Ok(Content::Plain(Box::new(self.folder.open(input, range, from)?)));
        }
        let mut decoded = Box::new(self.decode(input, kind)?);
        decoded.skip_to(from.unwrap_or(0))?;
        Ok(Content::Decoded(decoded))
    }

    fn decode(&self, input: &Input, kind: Compression) -> Result<Decoded, SourceError> {
        let member = match kind {
            Compression::Zip => Some(archive::find(&self.folder, input, self.member.as_deref())?),
            _ => None,
        };
        let mut raw = Raw::new(self.folder.open(input, None, None)?);
        match (&member, kind) {
            (Some(member), _) => raw.enter(member)?,
            (_, Compression::Gzip) => {
                raw.expect(input, "gzip", |start| start.starts_with(b"\x1f\x8b"))?;
            }
            _ => raw.expect(input, "Zstandard", is_zstd)?,
        }
        let decoder = match (&member, kind) {
            (Some(member), _) if member.is_deflated => Decoder::Deflate(DeflateDecoder::new(raw)),
            (Some(_), _) => Decoder::Stored(raw),
            (_, Compression::Gzip) => Decoder::Gzip(MultiGzDecoder::new(raw)),
            _ => Decoder::Zstd(zstd_decoder(raw, input)?),
        };
        Ok(Decoded {
            path: input.path.clone(),
            decoder,
            piece: vec![0; PIECE_BYTES],
            at: 0,
            n: 0,
            position: 0,
            end: None,
            expected: member.map(|m| (m.size, m.crc32)),
            crc32: crc32fast::Hasher::new(),
            n_done: 0,
        })
    }
}

fn is_zstd(start: &[u8]) -> bool {
    let is_skippable = matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]);
    is_skippable || start.starts_with(b"\x28\xb5\x2f\xfd")
}

fn zstd_decoder(
    raw: Raw,
    input: &Input,
) -> Result<zstd::stream::read::Decoder<'static, Raw>, SourceError> {
    let io = |e| super::input::io(&input.path, e);
    let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG).map_err(io)?;
    Ok(decoder)
}

/// An input that is being read.
#[derive(Debug)]
pub(super) enum Content {
    /// Its bytes as they are.
    Plain(Box<OpenInput>),
    /// What they decode to.
    Decoded(Box<Decoded>),
}

impl Content {
    /// Position of the next byte: its offset in what the input decodes to.
    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Plain(open) => open.position(),
            Self::Decoded(decoded) => decoded.position,
        }
    }

    /// Appends the next bytes to `out`: `most` of them, or as many as are left. Returns how many; 0
    /// only at the end.
    ///
    /// # Errors
    /// The input cannot be read, has changed, or is damaged at this position.
    pub(super) fn append_to(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<usize, SourceError> {
        match self {
            Self::Plain(open) => open.append_to(out, most),
            Self::Decoded(decoded) => decoded.append_to(out, most),
        }
    }

    /// The digest of the raw bytes.
    ///
    /// # Errors
    /// The input cannot be read, or has changed since it was listed.
    pub(super) fn digest(self) -> Result<blake3::Hash, SourceError> {
        match self {
            Self::Plain(open) => open.digest(),
            Self::Decoded(decoded) => decoded.decoder.into_raw().open.digest(),
        }
    }
}

/// What is decoded from an input, a piece at a time.
pub(super) struct Decoded {
    path: String,
    decoder: Decoder,
    /// `n` decoded bytes, of which those before `at` are taken.
    piece: Vec<u8>,
    at: usize,
    n: usize,
    position: u64,
    /// What follows the piece, when nothing more can be decoded.
    end: Option<End>,
    /// Size and checksum that an archive gives for its member.
    expected: Option<(u64, u32)>,
    crc32: crc32fast::Hasher,
    n_done: u64,
}

/// How decoding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Truncated,
    Checksum,
    Damaged,
    Window,
    /// The file could not be read: the reason is taken from where it was noticed.
    File,
}

impl std::fmt::Debug for Decoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Decoded");
        shown.field("path", &self.path).field("position", &self.position).finish_non_exhaustive()
    }
}

impl Decoded {
    fn append_to(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, SourceError> {
        let mut n_appended = 0;
        while n_appended < most {
            if self.at == self.n {
                self.fill();
            }
            let n = (self.n - self.at).min(most - n_appended);
            if n == 0 {
                // What was appended before goes first; the end is still there for the next call.
                return if n_appended > 0 { Ok(n_appended) } else { self.finish() };
            }
            out.extend_from_slice(self.piece.get(self.at..self.at + n).unwrap_or_default());
            self.at += n;
            self.position += n as u64;
            n_appended += n;
        }
        Ok(n_appended)
    }

    fn skip_to(&mut self, position: u64) -> Result<(), SourceError> {
        let mut skipped = Vec::new();
        while self.position < position {
            let left = usize::try_from(position - self.position).unwrap_or(usize::MAX);
            skipped.clear();
            if self.append_to(&mut skipped, left.min(PIECE_BYTES))? == 0 {
                return Err(SourceError::Changed { path: self.path.clone() });
            }
        }
        Ok(())
    }

    /// Decodes the next piece, or finds out how decoding ends.
    fn fill(&mut self) {
        (self.at, self.n) = (0, 0);
        while self.end.is_none() && self.n < PIECE_BYTES {
            let room = self.piece.get_mut(self.n..).unwrap_or_default();
            match self.decoder.read(room) {
                Ok(0) => self.end = Some(self.judge()),
                Ok(n) => {
                    if self.expected.is_some() {
                        self.crc32.update(room.get(..n).unwrap_or_default());
                    }
                    self.n += n;
                    self.n_done += n as u64;
                    if self.expected.is_some_and(|(size, _)| self.n_done > size) {
                        self.end = Some(End::Damaged);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.end = Some(self.judge_error(&e)),
            }
        }
    }

    /// Whether the end that a decoder sees is the end of what it should decode.
    fn judge(&mut self) -> End {
        let Some((size, crc32)) = self.expected else { return End::Whole };
        match self.decoder.raw().left {
            Some(left) if left > 0 => End::Damaged,
            _ if self.n_done < size => End::Truncated,
            _ if self.crc32.clone().finalize() != crc32 => End::Checksum,
            _ => End::Whole,
        }
    }

    fn judge_error(&mut self, e: &std::io::Error) -> End {
        let text = e.to_string();
        match e.kind() {
            _ if self.decoder.raw().failed.is_some() => End::File,
            ErrorKind::UnexpectedEof => End::Truncated,
            _ if text.contains("checksum") => End::Checksum,
            _ if text.contains("too much memory") => End::Window,
            _ => End::Damaged,
        }
    }

    /// What is said at the end.
    fn finish(&mut self) -> Result<usize, SourceError> {
        let message = match self.end {
            Some(End::Whole) | None => return Ok(0),
            Some(End::File) => return Err(self.decoder.raw().failure(&self.path)),
            Some(End::Truncated) => "the compressed data ends too early".to_owned(),
            Some(End::Checksum) => "the checksum of what comes before disagrees".to_owned(),
            Some(End::Damaged) => {
                "the compressed data is damaged, or something else follows it".to_owned()
            }
            Some(End::Window) => {
                format!("a Zstandard window is larger than {} MiB", (1u32 << WINDOW_LOG) >> 20)
            }
        };
        let hint = match self.end {
            Some(End::Window) => format!("compress it again, with `--long={WINDOW_LOG}` at most"),
            _ => "restore the input from where it came from".to_owned(),
        };
        let at = format!("byte {} of what it decodes to", self.position);
        Err(BadRow::new(INPUT_DAMAGED, message).hint(hint).into_error(&self.path, at))
    }
}

/// One of the decoders, over the raw bytes.
enum Decoder {
    Gzip(MultiGzDecoder<Raw>),
    Zstd(zstd::stream::read::Decoder<'static, Raw>),
    Deflate(DeflateDecoder<Raw>),
    Stored(Raw),
}

impl Decoder {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(out),
            Self::Zstd(decoder) => decoder.read(out),
            Self::Deflate(decoder) => decoder.read(out),
            Self::Stored(raw) => raw.read(out),
        }
    }

    fn raw(&mut self) -> &mut Raw {
        match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
            Self::Deflate(decoder) => decoder.get_mut(),
            Self::Stored(raw) => raw,
        }
    }

    fn into_raw(self) -> Raw {
        match self {
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
            Self::Deflate(decoder) => decoder.into_inner(),
            Self::Stored(raw) => raw,
        }
    }
}

/// The raw bytes, as decoders take them.
struct Raw {
    open: OpenInput,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes of the member that are not taken yet; `None` outside archives.
    left: Option<u64>,
    /// Why the file could not be read, which decoders have no place for.
    failed: Option<SourceError>,
}

impl Raw {
    fn new(open: OpenInput) -> Self {
        Self { open, buffer: Vec::new(), at: 0, left: None, failed: None }
    }

    /// Goes to the data of a member. What lies before it is read too: the digest covers it.
    fn enter(&mut self, member: &Member) -> Result<(), SourceError> {
        while self.open.position() < member.start {
            let left = usize::try_from(member.start - self.open.position()).unwrap_or(usize::MAX);
            self.buffer.clear();
            self.open.append_to(&mut self.buffer, left.min(RAW_BYTES))?;
        }
        self.buffer.clear();
        self.left = Some(member.packed);
        Ok(())
    }

    /// Refuses an input that does not begin as its format does.
    fn expect(
        &mut self,
        input: &Input,
        format: &str,
        is_start: impl Fn(&[u8]) -> bool,
    ) -> Result<(), SourceError> {
        let message = match self.fill_buf() {
            Ok(start) if is_start(start) => return Ok(()),
            Ok([]) => format!("there is no {format} data"),
            Ok(_) => format!("it is no {format} data"),
            Err(_) => return Err(self.failure(&input.path)),
        };
        let hint = "restore the input; with `compression = \"none\"` it is read as it is";
        Err(BadRow::new(INPUT_DAMAGED, message).hint(hint).into_error(&input.path, "byte 0"))
    }

    fn failure(&mut self, path: &str) -> SourceError {
        self.failed.take().unwrap_or_else(|| SourceError::Changed { path: path.to_owned() })
    }
}

impl BufRead for Raw {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            let left = self.left.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
            if let Err(e) = self.open.append_to(&mut self.buffer, RAW_BYTES.min(left)) {
                self.failed = Some(e);
                return Err(std::io::Error::other("the input cannot be read"));
            }
        }
        Ok(self.buffer.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, n_bytes: usize) {
        self.at += n_bytes;
        self.left = self.left.map(|left| left.saturating_sub(n_bytes as u64));
    }
}

impl Read for Raw {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = self.fill_buf()?.read(out)?;
        self.consume(n);
        Ok(n)
    }
}
