//! How a shard is finished: the files made at the seal, its sums, its sentinel and its place.
//!
//! Leaves out: when a shard is full (`writer`), and how a seal that a crash cut short is found again
//! (`recovery`).
//!
//! Invariants:
//! 1. The sentinel is written after everything it covers is durable, and nothing it covers is
//!    written again.
//! 2. Before the sentinel the seal can be begun anew from the manifest; after it, every step can be
//!    done twice.
//! 3. A sealed shard's bytes are a function of its rows and rejects, of the inputs' names and of
//!    where it stands in its partition.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};

use super::error::{Damage, Fault, ShardError};
use super::file::{FileSums, ShardFile};
use super::manifest::{Cut, LogEntry, Next, Segment};
use super::open::OpenShard;
use super::options::{ShardInput, WriterOptions};
use super::partition_log::PartitionLog;
use super::stream::Stream;
use super::{index, keys, layout, trash};
use crate::batch::Position;
use crate::fingerprint::{InputName, ObjectHash};
use crate::schema::{Field, FileRole, LAYOUT};
use crate::storage::{EntryKind, Storage, StorageError, parent};

/// A shard whose sentinel is in place. Only sealing one, or verifying it, makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedShard {
    id: String,
    rows: u64,
    bytes: u64,
    path: PathBuf,
}

impl SealedShard {
    /// The shard of a line of its partition's log, which is in its place.
    pub(super) fn of_entry(dataset: &Path, entry: &LogEntry) -> Option<Self> {
        let id = entry.id.clone()?;
        let path = layout::sealed(dataset, &id);
        Some(Self { id, rows: entry.rows, bytes: entry.bytes, path })
    }

    /// A shard of which every byte was found to be as it was sealed.
    pub(super) fn of_verified(id: String, rows: u64, bytes: u64, path: PathBuf) -> Self {
        Self { id, rows, bytes, path }
    }

    /// Its name: the first 32 hex digits of the BLAKE3 of its `B3SUMS`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What `_COMPLETE` says of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sentinel {
    rows: u64,
    sums_b3: String,
}

/// Seals a shard whose last segment is committed: makes the missing files, the sums and the
/// sentinel. Gives the line for the partition's log.
///
/// # Durability
/// On `Ok` the folder is complete and durable under its open name; [`finish`] does the rest.
pub(super) fn seal(
    storage: &dyn Storage,
    options: &WriterOptions,
    shard: OpenShard,
    cut: Cut,
) -> Result<LogEntry, ShardError> {
    let (seq, rows, dir) = (shard.number, shard.fields.n_rows(), shard.dir.clone());
    let first = shard.first_row();
    let entries = shard.fields.entries();
    let mut sums = shard.into_sums()?;
    let mut make = |name: &str, write: &mut Content<'_>| {
        let mut file = ShardFile::create(storage, &dir, name)?;
        write(&mut file)?;
        file.sync()?;
        sums.push(file.into_sums()?);
        Ok::<_, ShardError>(())
    };
    for field in options.schema.fields() {
        let Some(sidecar) = &field.sidecar else { continue };
        make(sidecar, &mut |file| {
            let written = write_sidecar(storage, &dir, field, file);
            written.map_err(|fault| fault.at(&options.slot, seq))
        })?;
    }
    if let Some(key) = options.schema.key() {
        make(layout::KEYS, &mut |file| keys::write(storage, &dir, key, rows, file))?;
    }
    make(layout::INDEX, &mut |file| index::write(storage, &dir, &options.schema, rows, file))?;
    for (name, document) in [
        (layout::SCHEMA, options.schema.to_json()),
        (layout::SHAPES, options.schema.shapes_json(rows, &entries)),
    ] {
        make(name, &mut |file| file.append(&layout::document(&document)))?;
    }
    let fingerprint = Fingerprint::new(options, first, cut.next);
    make(layout::FINGERPRINT, &mut |file| fingerprint.write(file))?;
    let (sums_b3, bytes) = close(storage, &dir, sums, rows)?;
    Ok(LogEntry { seq, id: Some(id_of(&sums_b3)), rows, bytes, cut })
}

/// Ends a folder whose files have these sums and are durable, but for their names: writes `blocks.bin`,
/// `B3SUMS` and the sentinel. Gives the BLAKE3 of `B3SUMS` and the bytes of the whole folder.
///
/// # Durability
/// On `Ok` everything in the folder survives a power cut.
pub(super) fn close(
    storage: &dyn Storage,
    dir: &Path,
    mut sums: Vec<FileSums>,
    rows: u64,
) -> Result<(String, u64), ShardError> {
    sums.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    let mut blocks = ShardFile::create(storage, dir, layout::BLOCKS)?;
    for block in sums.iter().flat_map(|file| &file.blocks) {
        blocks.append(&block.to_le_bytes())?;
    }
    blocks.sync()?;
    sums.push(blocks.into_sums()?);
    sums.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
    let list = sum_list(&sums);
    let mut file = storage.create(&dir.join(layout::SUMS))?;
    file.append(list.as_bytes())?;
    file.sync()?;
    storage.sync_dir(dir)?;
    let sums_b3 = blake3::hash(list.as_bytes()).to_hex().to_string();
    let sentinel = layout::document(&json!(Sentinel { rows, sums_b3: sums_b3.clone() }));
    storage.write_atomic(&dir.join(layout::COMPLETE), &sentinel)?;
    let bytes =
        sums.iter().map(|file| file.len).sum::<u64>() + (list.len() + sentinel.len()) as u64;
    Ok((sums_b3, bytes))
}

/// Writes a file's content.
type Content<'a> = dyn FnMut(&mut ShardFile) -> Result<(), ShardError> + 'a;

/// Takes a shard whose sentinel is in place from its open folder to where it belongs, after writing
/// the log's line if it is `unlogged`.
///
/// # Durability
/// On `Ok` the shard is durable under its id, and the log says so.
pub(super) fn finish(
    storage: &dyn Storage,
    options: &WriterOptions,
    log: &mut PartitionLog,
    entry: &LogEntry,
    is_unlogged: bool,
) -> Result<Option<SealedShard>, ShardError> {
    let dir = layout::open_shard(&options.dataset, &options.slot, entry.seq);
    if is_unlogged {
        // A sentinel that was found may have been seen before it was durable.
        storage.sync_dir(&dir)?;
        log.append(storage, entry.clone())?;
    }
    if storage.stat(&dir.join(layout::MANIFEST))?.is_some() {
        storage.remove_file(&dir.join(layout::MANIFEST))?;
    }
    storage.sync_dir(&dir)?;
    let Some(sealed) = SealedShard::of_entry(&options.dataset, entry) else { return Ok(None) };
    let label = format!("{}-{}", options.slot, entry.seq);
    if is_in_place(storage, &sealed.path)? {
        trash::discard(storage, &options.dataset, &dir, &label)?;
        return Ok(Some(sealed));
    }
    if storage.stat(&sealed.path)?.is_some() {
        trash::discard(storage, &options.dataset, &sealed.path, &label)?;
    }
    storage.rename(&dir, &sealed.path)?;
    storage.sync_dir(parent(&sealed.path))?;
    storage.sync_dir(parent(&dir))?;
    Ok(Some(sealed))
}

/// Whether a folder holds a shard that is sealed, here or with its field files elsewhere.
pub(super) fn is_in_place(storage: &dyn Storage, path: &Path) -> Result<bool, ShardError> {
    Ok(storage.stat(&path.join(layout::COMPLETE))?.is_some()
        || storage.stat(&path.join(layout::REMOTE))?.is_some())
}

/// The log's line of a shard that was sealed but not logged, from what its folder holds.
pub(super) fn entry_of_sealed(
    storage: &dyn Storage,
    dir: &Path,
    number: u64,
    last: &Segment,
) -> Result<LogEntry, Fault> {
    let sentinel = read_sentinel(storage, dir)?;
    if sentinel.rows != last.rows {
        return Err(Damage::Sentinel.into());
    }
    let files = storage.list(dir)?.unwrap_or_default();
    let counts = files.iter().filter(|f| f.kind == EntryKind::File && f.name != layout::MANIFEST);
    let bytes = counts.map(|file| file.len).sum();
    let id = Some(id_of(&sentinel.sums_b3));
    Ok(LogEntry { seq: number, id, rows: sentinel.rows, bytes, cut: last.cut.clone() })
}

/// Checks that an open folder with a sentinel holds the shard that the log says.
pub(super) fn check_sealed(
    storage: &dyn Storage,
    dir: &Path,
    entry: &LogEntry,
) -> Result<(), Fault> {
    let id = id_of(&read_sentinel(storage, dir)?.sums_b3);
    if entry.id.as_ref() == Some(&id) { Ok(()) } else { Err(Damage::Sentinel.into()) }
}

fn read_sentinel(storage: &dyn Storage, dir: &Path) -> Result<Sentinel, Fault> {
    let bytes = storage.read(&dir.join(layout::COMPLETE))?.unwrap_or_default();
    let sentinel: Sentinel = serde_json::from_slice(&bytes).map_err(|_| Damage::Sentinel)?;
    let list = storage.read(&dir.join(layout::SUMS))?.unwrap_or_default();
    if blake3::hash(&list).to_hex().as_str() != sentinel.sums_b3 {
        return Err(Damage::Sentinel.into());
    }
    Ok(sentinel)
}

pub(super) fn id_of(sums_b3: &str) -> String {
    sums_b3.chars().take(layout::ID_DIGITS).collect()
}

/// The content of `B3SUMS`.
fn sum_list(sums: &[FileSums]) -> String {
    let lines = sums.iter().map(|file| format!("{}  {}\n", file.blake3.to_hex(), file.name));
    lines.collect()
}

/// The document of `fingerprint.json`, its keys in order.
#[derive(Serialize)]
struct Fingerprint<'a> {
    cache_key: &'a str,
    hash: String,
    #[serde(serialize_with = "names")]
    inputs: &'a [ShardInput],
    layout: u32,
    slot: &'a str,
    source: Value,
}

impl<'a> Fingerprint<'a> {
    fn new(options: &'a WriterOptions, first: Option<Position>, next: Next) -> Self {
        let WriterOptions { cache_key, slot, inputs, stages, .. } = options;
        let source = layout::sorted(
            &json!({ "from": first, "name": stages.first(), "to": next.position() }),
        );
        let mut hash = ObjectHash::new();
        hash.text("cache_key", cache_key);
        hash.inputs("inputs", inputs.iter().map(name_of));
        hash.value("layout", &LAYOUT.into());
        hash.text("slot", slot);
        hash.value("source", &source);
        Self { cache_key, hash: hash.hex(), inputs, layout: LAYOUT, slot, source }
    }

    /// Writes it an input at a time: there may be a great many.
    fn write(&self, file: &mut ShardFile) -> Result<(), ShardError> {
        let mut out = Out { file, failed: Ok(()) };
        let written = serde_json::to_writer_pretty(&mut out, self);
        out.failed?;
        written.map_err(|e| StorageError::new("format", layout::FINGERPRINT, e.into()))?;
        file.append(b"\n")
    }
}

fn name_of(input: &ShardInput) -> InputName<'_> {
    InputName { path: &input.path, size: input.size, range: input.range.as_ref(), b3: None }
}

fn names<S: Serializer>(inputs: &[ShardInput], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(inputs.iter().map(|input| layout::sorted(&name_of(input).to_json())))
}

/// Lets a formatter write into a file; keeps the error that an `io::Error` could not carry.
struct Out<'a> {
    file: &'a mut ShardFile,
    failed: Result<(), ShardError>,
}

impl io::Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.failed = self.file.append(bytes);
        match self.failed {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::Error::other("the disk failed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a dictionary as a JSON document, a value at a time.
fn write_sidecar(
    storage: &dyn Storage,
    dir: &Path,
    field: &Field,
    to: &mut ShardFile,
) -> Result<(), Fault> {
    let open = |role| {
        let files = field.files();
        let file = files.iter().find(|file| file.role == role).map_or("", |file| &file.name);
        Stream::open(storage, &dir.join(file))
    };
    let (mut values, mut offsets) = (open(FileRole::Dict)?, open(FileRole::DictOffsets)?);
    let mut from = offsets.take_i64()?;
    let (mut line, mut is_empty) = (Vec::new(), true);
    to.append(b"{")?;
    for code in 0..offsets.left() / 8 {
        let end = offsets.take_i64()?;
        let begin = if code == 0 { "\n  " } else { ",\n  " };
        to.append(format!("{begin}\"{code}\": \"").as_bytes())?;
        let damaged = || Fault::from(Damage::Dictionary { stem: field.stem.clone() });
        // A piece at a time, at the end of which a character may be cut.
        let mut cut_off = Vec::new();
        values.pieces(usize::try_from(end - from).unwrap_or_default(), |piece| {
            cut_off.extend_from_slice(piece);
            let text = match str::from_utf8(&cut_off) {
                Ok(text) => text,
                Err(e) if e.error_len().is_some() => return Err(damaged()),
                Err(e) => str::from_utf8(cut_off.get(..e.valid_up_to()).unwrap_or_default())
                    .map_err(|_| damaged())?,
            };
            line.clear();
            // Text into memory: this cannot fail.
            drop(serde_json::to_writer(&mut line, text));
            to.append(line.get(1..line.len() - 1).unwrap_or_default())?;
            let n_written = text.len();
            cut_off.drain(..n_written);
            Ok::<_, Fault>(())
        })?;
        if !cut_off.is_empty() {
            return Err(damaged());
        }
        to.append(b"\"")?;
        from = end;
        is_empty = false;
    }
    to.append(if is_empty { b"}\n" } else { b"\n}\n" })?;
    Ok(())
}
