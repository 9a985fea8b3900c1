//! Opens inputs: the one place beside `storage` that does.
//!
//! Leaves out: which inputs there are (`listing`), and what their bytes mean.
//!
//! Invariants:
//! 1. An input whose size or time of modification is not what was listed, when it is opened or when
//!    its digest is complete, gives [`SourceError::Changed`]: rows and digest are of one state.
//! 2. A digest is of every byte of the input (of its range), in order, whether rows were read from
//!    all of them or, after a restart, from the last ones only.
//! 3. Objects of stores are as files here, with their `ETag` for a time of change (`object`).
//! 4. Where a digest is not of the very bytes that rows were read from, the time of the last change of
//!    the file, which nobody can set, is the same before the first of them was read and after the
//!    digest: rows and digest are of one state also where size and time of modification were put back.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "inputs are opened and looked at here, and nowhere else in the sources"
)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::SourceError;
use super::ahead::{Ahead, Asked};
use super::object::{self, ObjectBlocks, ObjectStream};
pub use super::part_digests::PartDigests;
use crate::inputs::{Input, InputDigest, InputRange, Part};
use crate::remote::{Remote, RemoteError, RemoteOptions, is_url, local_path};

/// Bytes that are read and then hashed while they are still in the processor's cache.
const PIECE_BYTES: usize = 256 << 10;

/// The folder, or place in a store, that the paths of inputs are relative to.
#[derive(Debug, Clone)]
pub struct Folder {
    root: Arc<Path>,
    remote: Option<Remote>,
    asked: Arc<Asked>,
}

impl Folder {
    /// The folder at `root`, absolute or relative to the working folder.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        let is_empty = root.as_os_str().is_empty();
        let root = if is_empty { Path::new(".").into() } else { root.into() };
        Self { root, remote: None, asked: Arc::default() }
    }

    /// The folder at `root`, or the place of which it is the URL.
    ///
    /// # Errors
    /// A URL that cannot be used.
    pub fn at(root: &Path) -> Result<Self, RemoteError> {
        let Some(url) = root.to_str().filter(|text| is_url(text)) else {
            return Ok(Self::new(root));
        };
        if url.starts_with("file://") {
            return Ok(Self::new(&local_path(url)?));
        }
        let remote = Remote::open(url, &RemoteOptions::default())?;
        let root = Path::new(remote.url()).into();
        Ok(Self { root, remote: Some(remote), asked: Arc::default() })
    }

    /// The place in a store, where it is one.
    #[must_use]
    pub fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// What a new reader asks for before its turn.
    pub(super) fn ahead(&self) -> Ahead {
        Ahead::new(self.remote.as_ref(), &self.asked)
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file at `path` as it is now.
    ///
    /// # Errors
    /// It is not there, cannot be looked at, or is not a regular file.
    pub fn stat(&self, path: &str) -> Result<Input, SourceError> {
        if let Some(remote) = &self.remote {
            return Ok(object::as_input(path.to_owned(), &remote.head(path)?));
        }
        let found = std::fs::metadata(self.root.join(path)).map_err(|e| io(path, e))?;
        as_input(path, &found)
    }

    /// The file beside `path`, of the same extension, whose name is most like its own; none where none is
    /// like it, or the folder cannot be read.
    pub(crate) fn like(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        let (name, parent) = (path.file_stem()?.to_str()?, path.parent()?);
        let entries = std::fs::read_dir(self.root.join(parent)).ok()?;
        let near = entries.filter_map(|entry| {
            let other = PathBuf::from(entry.ok()?.file_name());
            let distance = strsim::damerau_levenshtein(name, other.file_stem()?.to_str()?);
            let is_like = other.extension() == path.extension()
                && distance <= (name.chars().count() / 3).clamp(1, 3);
            is_like.then(|| Some((distance, parent.join(&other).to_str()?.to_owned())))?
        });
        near.min().map(|(_, path)| path)
    }

    /// Opens an input for reading its bytes, or those of `range`, from byte `from` of the file on
    /// (`None`: from the first). Bytes are hashed as they pass if none was skipped.
    ///
    /// # Errors
    /// It cannot be opened, or is not what was listed.
    pub fn open(
        &self,
        input: &Input,
        range: Option<&Range<u64>>,
        from: Option<u64>,
    ) -> Result<OpenInput, SourceError> {
        let range = range.cloned().unwrap_or(0..input.size);
        let from = from.unwrap_or(range.start);
        let is_outside = range.end > input.size || from > range.end;
        let hasher = (from == range.start).then(blake3::Hasher::new);
        let position = from;
        let input = input.clone();
        let changed = || Err(SourceError::Changed { path: input.path.clone() });
        if let Some(remote) = &self.remote {
            if is_outside {
                return changed();
            }
            let is_whole = from == 0 && range.end == input.size;
            let asked = if is_whole { self.asked.take(&input) } else { None };
            let stream = ObjectStream::open(remote, &input, from..range.end, asked)?;
            let bytes = Bytes::Object(Box::new(stream));
            return Ok(OpenInput { bytes, input, range, position, hasher });
        }
        let (mut file, path) = self.open_file(&input)?;
        if is_outside {
            return changed();
        }
        if from > 0 {
            file.seek(SeekFrom::Start(from)).map_err(|e| io(&input.path, e))?;
        }
        let found = file.metadata().map_err(|e| io(&input.path, e))?;
        let bytes = Bytes::File { file, path, opened: changed_at(&found) };
        Ok(OpenInput { bytes, input, range, position, hasher })
    }

    /// Opens an input whose bytes are read here and there.
    ///
    /// # Errors
    /// It cannot be opened, or is not what was listed.
    pub fn open_anywhere(&self, input: &Input) -> Result<PlacedInput, SourceError> {
        let bytes = if let Some(remote) = &self.remote {
            let asked = self.asked.take(input);
            Placed::Object(Box::new(ObjectBlocks::open(remote, input, asked)?))
        } else {
            let (file, path) = self.open_file(input)?;
            Placed::File { file, path }
        };
        Ok(PlacedInput { bytes, input: input.clone() })
    }

    /// The file of an input, if it is what was listed.
    fn open_file(&self, input: &Input) -> Result<(File, PathBuf), SourceError> {
        let path = self.root.join(&input.path);
        // Without this flag, opening a pipe that took the file's place would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags).unwrap_or(0))
            .open(&path);
        let file = opened.map_err(|e| gone_or_io(&input.path, e))?;
        let found = file.metadata().map_err(|e| io(&input.path, e))?;
        if !input.is_as_listed(&as_input(&input.path, &found)?) {
            return Err(SourceError::Changed { path: input.path.clone() });
        }
        Ok((file, path))
    }

    /// The digest of a range of an input with what stands at its end: the rows of a range also depend
    /// on a footer that says where in the file they are.
    ///
    /// # Errors
    /// It cannot be read, or is not what was listed.
    pub fn digest_with_tail(
        &self,
        input: &Input,
        range: &Range<u64>,
        tail: Range<u64>,
    ) -> Result<blake3::Hash, SourceError> {
        let mut hasher = blake3::Hasher::new();
        let mut piece = Vec::new();
        let tail = tail.start.max(range.end)..tail.end;
        for range in [range, &tail] {
            if range.is_empty() {
                continue;
            }
            let mut open = self.open(input, Some(range), None)?;
            while open.append_to(&mut piece, PIECE_BYTES)? > 0 {
                hasher.update(&piece);
                piece.clear();
            }
            open.digest()?;
        }
        Ok(hasher.finalize())
    }

    /// The digest of an input or a range of it, from its first byte.
    ///
    /// # Errors
    /// It cannot be read, or is not what was listed.
    pub fn digest(
        &self,
        input: &Input,
        range: Option<&Range<u64>>,
    ) -> Result<blake3::Hash, SourceError> {
        self.open(input, range, None)?.digest()
    }

    /// The digests of everything that a part reads: its inputs, then its side inputs.
    ///
    /// # Errors
    /// An input that cannot be read, or is not what was listed.
    pub fn digests(&self, part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        PartDigests::new(self.clone(), part).finish(part)
    }

    /// The place that a path leads to when every link in it is followed.
    pub(super) fn resolve(&self, path: &str) -> std::io::Result<PathBuf> {
        // A path that is joined with "" ends in a slash, which a file cannot have.
        if path.is_empty() {
            return std::fs::canonicalize(&self.root);
        }
        std::fs::canonicalize(self.root.join(path))
    }
}

/// An input that is being read.
#[derive(Debug)]
pub struct OpenInput {
    bytes: Bytes,
    input: Input,
    range: Range<u64>,
    position: u64,
    /// `None` while bytes were skipped that are still to be hashed.
    hasher: Option<blake3::Hasher>,
}

/// Where the bytes of an open input come from, in order.
#[derive(Debug)]
enum Bytes {
    File {
        file: File,
        path: PathBuf,
        /// The time of its last change when it was opened.
        opened: Option<SystemTime>,
    },
    Object(Box<ObjectStream>),
}

impl OpenInput {
    /// Offset in the file of the next byte to be read.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Appends the next bytes to `out`: `most` of them, or as many as are left. Returns how many.
    ///
    /// # Errors
    /// The system refused, or the file has become shorter than it was when it was listed.
    pub fn append_to(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, SourceError> {
        let left = usize::try_from(self.range.end - self.position).unwrap_or(usize::MAX);
        let wanted = most.min(left);
        out.reserve(wanted);
        let mut n_read = 0;
        while n_read < wanted {
            let piece = PIECE_BYTES.min(wanted - n_read);
            let start = out.len();
            let n = match &mut self.bytes {
                Bytes::File { file, .. } => {
                    let n = file.take(piece as u64).read_to_end(out);
                    n.map_err(|e| io(&self.input.path, e))?
                }
                Bytes::Object(stream) => stream.append_to(out, piece)?,
            };
            if n == 0 {
                return Err(SourceError::Changed { path: self.input.path.clone() });
            }
            if let (Some(hasher), Some(bytes)) = (&mut self.hasher, out.get(start..)) {
                hasher.update(bytes);
            }
            self.position += n as u64;
            n_read += n;
        }
        Ok(n_read)
    }

    /// The file itself, at the byte where reading stopped, for formats that have a directory at
    /// their end. Nothing that is read from it is hashed.
    pub(super) fn into_seekable(self) -> Box<dyn ReadSeek> {
        match self.bytes {
            Bytes::File { file, .. } => Box::new(file),
            Bytes::Object(stream) => {
                let bytes = Placed::Object(Box::new(stream.into_blocks()));
                let input = PlacedInput { bytes, input: self.input };
                Box::new(Seekable { input, at: self.position })
            }
        }
    }

    /// Reads what is left, from the first byte again if some were skipped, and gives the digest of all.
    ///
    /// # Errors
    /// The input cannot be read, or has changed since it was listed.
    pub fn digest(mut self) -> Result<blake3::Hash, SourceError> {
        let has_skipped = self.hasher.is_none();
        if has_skipped {
            self.position = self.range.start;
            match &mut self.bytes {
                Bytes::File { file, .. } => {
                    let start = SeekFrom::Start(self.position);
                    file.seek(start).map_err(|e| io(&self.input.path, e))?;
                }
                Bytes::Object(stream) => stream.seek(self.range.clone()),
            }
        }
        self.hasher.get_or_insert_default();
        let mut piece = Vec::new();
        while self.append_to(&mut piece, PIECE_BYTES)? > 0 {
            piece.clear();
        }
        // All bytes of an object are of the state that was listed.
        if let Bytes::File { path, opened, .. } = &self.bytes {
            // By its path: a file that was replaced has changed, though the open one has not.
            let found = std::fs::metadata(path).map_err(|e| gone_or_io(&self.input.path, e))?;
            let found = as_input(&self.input.path, &found)?;
            if !self.input.is_as_listed(&found) || (has_skipped && found.changed != *opened) {
                return Err(SourceError::Changed { path: self.input.path });
            }
        }
        Ok(self.hasher.unwrap_or_default().finalize())
    }
}

/// An input whose bytes are read here and there; its digest is taken apart from that.
#[derive(Debug)]
pub struct PlacedInput {
    bytes: Placed,
    input: Input,
}

/// Where the bytes of an input come from, here and there.
#[derive(Debug)]
enum Placed {
    File { file: File, path: PathBuf },
    Object(Box<ObjectBlocks>),
}

/// What formats with a directory at their end are read from.
pub(super) trait ReadSeek: Read + Seek {}

impl<T: Read + Seek> ReadSeek for T {}

/// An input as a file that has a position.
struct Seekable {
    input: PlacedInput,
    at: u64,
}

impl Read for Seekable {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let left = self.input.size().saturating_sub(self.at);
        let n = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let part = out.get_mut(..n).unwrap_or_default();
        self.input.read_at(self.at, part).map_err(std::io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Seekable {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.input.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = target.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl PlacedInput {
    /// Size of the file, as it was listed.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.input.size
    }

    /// Whether it is an object of a store.
    pub(super) fn is_distant(&self) -> bool {
        matches!(self.bytes, Placed::Object(_))
    }

    /// Fills `out` with the bytes from `at` on.
    ///
    /// # Errors
    /// The system refused, or the file has become shorter than it was when it was listed.
    pub fn read_at(&self, at: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let file = match &self.bytes {
            Placed::File { file, .. } => file,
            Placed::Object(blocks) => return blocks.read_at(at, out),
        };
        file.read_exact_at(out, at).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                SourceError::Changed { path: self.input.path.clone() }
            }
            _ => io(&self.input.path, e),
        })
    }

    /// Says whether the input is still what was listed, where that would explain what was read.
    ///
    /// # Errors
    /// [`SourceError::Changed`] if not.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        // What is read of an object is of the state that was listed.
        let Placed::File { path, .. } = &self.bytes else { return Ok(()) };
        let found = std::fs::metadata(path).map_err(|e| gone_or_io(&self.input.path, e))?;
        if !self.input.is_as_listed(&as_input(&self.input.path, &found)?) {
            return Err(SourceError::Changed { path: self.input.path.clone() });
        }
        Ok(())
    }
}

/// What a source says of a restart that none of its readers gave.
pub(super) fn misfit(part: &Part, input: u32, message: &str) -> SourceError {
    let path = part.inputs.get(input as usize).map_or("", |i: &InputRange| i.input.path.as_str());
    SourceError::Invalid {
        path: path.to_owned(),
        at: "restart".to_owned(),
        message: message.to_owned(),
        hint: Some("remove the dataset's work folder and run again".to_owned()),
    }
}

pub(super) fn io(path: &str, source: std::io::Error) -> SourceError {
    SourceError::Io { path: path.to_owned(), source }
}

/// A listed file that is not there has changed; it was not missing from the start.
fn gone_or_io(path: &str, source: std::io::Error) -> SourceError {
    if source.kind() == std::io::ErrorKind::NotFound {
        return SourceError::Changed { path: path.to_owned() };
    }
    io(path, source)
}

pub(super) fn as_input(path: &str, found: &std::fs::Metadata) -> Result<Input, SourceError> {
    if !found.is_file() {
        let (message, hint) = if found.is_dir() {
            ("is a folder", Some(format!("`{path}/**` takes every file below it")))
        } else {
            let hint = "move it away, or let `path` name files: pipes and devices are not read";
            ("is not a regular file", Some(hint.to_owned()))
        };
        return Err(SourceError::Listing {
            path: path.to_owned(),
            message: message.to_owned(),
            hint,
        });
    }
    let modified = found.modified().map_err(|e| io(path, e))?;
    Ok(Input { path: path.to_owned(), size: found.len(), modified, changed: changed_at(found) })
}

/// The time of the last change of a file's inode.
fn changed_at(found: &std::fs::Metadata) -> Option<SystemTime> {
    let seconds = Duration::from_secs(u64::try_from(found.ctime()).ok()?);
    let part = Duration::from_nanos(u64::try_from(found.ctime_nsec()).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(seconds)?.checked_add(part)
}
