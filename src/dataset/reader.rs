//! Opens a complete dataset: rows by number or key over all its shards.
//!
//! Leaves out: the fields of rows, which shards know (`shard::reader`).
//!
//! Invariants:
//! 1. A dataset opens only with its sentinel and the manifest that the sentinel names.
//! 2. Opening reads the manifest and nothing else: a shard is opened when it is first asked for.
//! 3. Memory grows with the number of shards, never with that of rows, but for those that are asked for.
//! 4. There is neither thread nor file position in it: an open dataset may be used from many threads,
//!    and on both sides of a fork.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::RecordBatch;

use super::error::{DatasetError, Result};
use super::home::{current_of, is_hex};
use super::keys::KeyIndex;
use super::manifest::{DatasetLine, Manifest};
use super::record::ShardEntry;
use super::selection::Selection;
use super::sentinel::Sentinel;
use crate::schema::{Field, RowSchema};
use crate::shard::{Key, ReadError, Shard, layout};
use crate::storage::{EntryKind, Local, Storage, side_by_side, usable_memory};

/// Folders that are named where no dataset is.
const NAMED: usize = 5;

/// Bytes of rows that are read at once where nothing can be mapped.
const PIECE_BYTES: u64 = 32 << 20;

/// A complete dataset, opened for reading.
#[derive(Debug)]
pub struct Dataset {
    storage: Arc<dyn Storage>,
    /// Whether its shards cannot be mapped, and are not in memory.
    is_distant: bool,
    dir: PathBuf,
    sentinel: Sentinel,
    head: DatasetLine,
    schema: Arc<RowSchema>,
    entries: Vec<ShardEntry>,
    /// The first row of each shard, and the number of all rows.
    starts: Vec<u64>,
    shards: Vec<OnceLock<Shard>>,
    keys: OnceLock<KeyIndex>,
}

impl Dataset {
    /// Opens the dataset at `path` on this machine's file system: a folder `<out>/<name>`, whose
    /// `current` is followed, or the folder of a cache key.
    ///
    /// # Errors
    /// As [`Dataset::open_in`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(Arc::new(Local), path)
    }

    /// Opens the dataset at `path`.
    ///
    /// # Errors
    /// [`DatasetError::NoDataset`] if there is none that is complete; [`DatasetError::Damaged`] if
    /// its sentinel or manifest are not what was written; [`DatasetError::Version`].
    pub fn open_in(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self> {
        let (dir, sentinel) = find(&*storage, path.as_ref())?;
        let manifest = Manifest::read_shards(&*storage, &dir, &sentinel)?;
        let path = dir.join(sentinel.manifest());
        let schema = RowSchema::from_json(&manifest.dataset.schema)
            .map_err(|e| DatasetError::damaged(&path, e))?;
        let mut starts = Vec::with_capacity(manifest.shards.len() + 1);
        let mut start = 0;
        starts.push(start);
        for shard in &manifest.shards {
            start += shard.rows;
            starts.push(start);
        }
        let shards = manifest.shards.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            is_distant: storage.distant().is_some(),
            storage,
            dir,
            sentinel,
            head: manifest.dataset,
            schema: Arc::new(schema),
            entries: manifest.shards,
            starts,
            shards,
            keys: OnceLock::new(),
        })
    }

    /// The folder of its cache key.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// What the first line of its manifest says: name, definition, totals, books.
    #[must_use]
    pub fn about(&self) -> &DatasetLine {
        &self.head
    }

    /// The BLAKE3 of its manifest: what names this generation.
    #[must_use]
    pub fn generation(&self) -> &str {
        self.sentinel.manifest_b3()
    }

    /// The fields of its rows.
    #[must_use]
    pub fn schema(&self) -> &Arc<RowSchema> {
        &self.schema
    }

    /// Number of rows.
    #[must_use]
    pub fn n_rows(&self) -> u64 {
        self.head.rows
    }

    /// Number of shards.
    #[must_use]
    pub fn n_shards(&self) -> usize {
        self.entries.len()
    }

    /// The shards as the manifest names them, in order.
    #[must_use]
    pub fn entries(&self) -> &[ShardEntry] {
        &self.entries
    }

    /// The rows of the dataset that the shard of that number holds; empty for any other number.
    #[must_use]
    pub fn rows_of(&self, shard: usize) -> Range<u64> {
        let at = |i| self.starts.get(i).copied().unwrap_or(self.head.rows);
        at(shard)..at(shard.saturating_add(1))
    }

    /// Whether it is too far away to be mapped. Then rows are read by [`select`](Dataset::select),
    /// [`scan`](Dataset::scan) and [`find`](Dataset::find), or of a shard by
    /// [`read_rows`](Shard::read_rows); only the blocks that hold them travel.
    #[must_use]
    pub fn is_distant(&self) -> bool {
        self.is_distant
    }

    /// Rows of a shard that are read at once where nothing can be mapped: of about [`PIECE_BYTES`].
    pub(crate) fn piece_rows(&self, shard: usize) -> u64 {
        let entry = self.entries.get(shard);
        let row_bytes = entry.map_or(1, |entry| entry.bytes / entry.rows.max(1));
        (PIECE_BYTES / row_bytes.max(1)).max(1)
    }

    /// The shard of that number, opened when it is first asked for.
    ///
    /// # Errors
    /// There is no such shard, or it is not the one that the manifest names.
    pub fn shard(&self, number: usize) -> Result<&Shard> {
        let (Some(slot), Some(entry)) = (self.shards.get(number), self.entries.get(number)) else {
            let message = format!("there is no shard {number}, it has {}", self.n_shards());
            return Err(DatasetError::NoDataset { path: self.dir.clone(), message });
        };
        if let Some(open) = slot.get() {
            return Ok(open);
        }
        let path = layout::sealed(&self.dir, &entry.id);
        let shard = Shard::open(Arc::clone(&self.storage), &path)?;
        if shard.id() != entry.id || shard.n_rows() != entry.rows {
            return Err(DatasetError::damaged(path, "it is not the shard the manifest names"));
        }
        if shard.schema() != &self.schema {
            return Err(DatasetError::damaged(path, "its schema is not that of the manifest"));
        }
        Ok(slot.get_or_init(|| shard))
    }

    /// All shards in order, each opened when it is its turn.
    pub fn shards(&self) -> impl Iterator<Item = Result<&Shard>> {
        (0..self.n_shards()).map(|number| self.shard(number))
    }

    /// Number of the shard that holds row `row`, and the row's number in it.
    ///
    /// # Errors
    /// [`DatasetError::NoRow`].
    pub fn locate(&self, row: u64) -> Result<(usize, u64)> {
        let n_rows = self.n_rows();
        let shard = self.starts.partition_point(|start| *start <= row).checked_sub(1);
        match shard.and_then(|shard| Some((shard, self.starts.get(shard)?))) {
            Some((shard, start)) if row < n_rows => Ok((shard, row - start)),
            _ => Err(self.no_row(row)),
        }
    }

    #[cold]
    pub(super) fn no_row(&self, row: u64) -> DatasetError {
        DatasetError::NoRow { row, n_rows: self.n_rows() }
    }

    /// The shard that holds row `row`, and the row's number in it.
    ///
    /// # Errors
    /// [`DatasetError::NoRow`], and as [`Dataset::shard`].
    pub fn row(&self, row: u64) -> Result<(&Shard, u64)> {
        let (shard, row) = self.locate(row)?;
        Ok((self.shard(shard)?, row))
    }

    /// The row with this key, `None` where there is none. Takes one or two page reads of the key
    /// index, and those of the row's shard.
    ///
    /// # Errors
    /// Rows have no key, or one of the other type; a file is damaged.
    pub fn find<'a>(&self, key: impl Into<Key<'a>>) -> Result<Option<u64>> {
        let key = key.into();
        key.field_of(&self.schema)?;
        let index = self.key_index()?;
        match self.row_of(index.rows(key.hash())?, key)? {
            Some(row) => Ok(Some(row)),
            None => self.row_of(index.rows_again(key.hash())?, key),
        }
    }

    /// The row with this key among some whose keys have its hash.
    fn row_of(
        &self,
        places: impl Iterator<Item = (u32, u32)>,
        key: Key<'_>,
    ) -> Result<Option<u64>> {
        for (number, row) in places {
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            // Equal hashes are settled by the keys themselves.
            if self.shard(number)?.has_key(row.into(), key)? {
                return Ok(Some(self.rows_of(number).start + u64::from(row)));
            }
        }
        Ok(None)
    }

    /// The rows with these keys, in the order asked; `None` where there is none. Index and shards are
    /// read from one end to the other, whatever the order of the keys.
    ///
    /// # Errors
    /// As [`Dataset::find`].
    pub fn find_many<'a, K>(&self, keys: &[K]) -> Result<Vec<Option<u64>>>
    where
        K: Into<Key<'a>> + Copy + Sync,
    {
        let mut found = vec![None; keys.len()];
        let mut probes = Vec::with_capacity(keys.len());
        for (n, key) in keys.iter().enumerate() {
            let key: Key<'a> = (*key).into();
            key.field_of(&self.schema)?;
            probes.push((key.hash(), n, key));
        }
        if probes.is_empty() {
            return Ok(found);
        }
        if self.is_distant() {
            return side_by_side(keys, |key| self.find(*key));
        }
        probes.sort_unstable_by_key(|(hash, n, _)| (*hash, *n));
        let index = self.key_index()?;
        let mut rows = Vec::with_capacity(keys.len());
        for (hash, n, key) in probes {
            rows.extend(index.rows(hash)?.map(|(shard, row)| (shard, row, n, key)));
        }
        rows.sort_unstable_by_key(|(shard, row, n, _)| (*shard, *row, *n));
        for (shard, row, n, key) in rows {
            let number = usize::try_from(shard).unwrap_or(usize::MAX);
            // Equal hashes are settled by the keys themselves.
            if let Some(found) = found.get_mut(n)
                && self.shard(number)?.has_key(row.into(), key)?
            {
                *found = Some(self.rows_of(number).start + u64::from(row));
            }
        }
        Ok(found)
    }

    /// Rows in any order, found once for all fields that are gathered of them.
    ///
    /// ```no_run
    /// # use rowmill::dataset::Dataset;
    /// let dataset = Dataset::open("data/fashion-mnist")?;
    /// let (mut images, mut labels) = (vec![0; 256 * 784], vec![0; 256]);
    /// let batch: Vec<u64> = (0..256).map(|n| n * 7 % dataset.n_rows()).collect();
    /// let batch = dataset.select(&batch)?;
    /// batch.gather("image", &mut images)?;
    /// batch.gather("label", &mut labels)?;
    /// # Ok::<_, rowmill::dataset::DatasetError>(())
    /// ```
    ///
    /// # Errors
    /// [`DatasetError::NoRow`].
    pub fn select(&self, rows: &[u64]) -> Result<Selection<'_>> {
        Selection::new(self, rows)
    }

    /// Rows as Arrow, in the types of [`RowSchema::arrow_schema`]: a batch per shard, of all fields or
    /// those named, in the order named. Values are shared with the mapped files. Where nothing can be
    /// mapped, a batch is a piece of a shard of about 32 MiB.
    ///
    /// # Errors
    /// There is no such field. Each batch can fail as [`Dataset::shard`] does, or because there are no
    /// such rows.
    pub fn scan<'a>(
        &'a self,
        rows: Range<u64>,
        fields: Option<&[&str]>,
    ) -> Result<impl Iterator<Item = Result<RecordBatch>> + use<'a>> {
        let index = |name: &&str| self.field(name).map(|(index, _)| index);
        let fields = fields.map(|names| names.iter().map(index).collect::<Result<Vec<_>>>());
        let fields = fields.transpose()?;
        let mut next = rows.start;
        Ok(std::iter::from_fn(move || {
            if next >= rows.end {
                return None;
            }
            let batch = self.locate(next).and_then(|(number, first)| {
                let mut end = self.rows_of(number).end.min(rows.end);
                if self.is_distant() {
                    end = end.min(next.saturating_add(self.piece_rows(number)));
                }
                let (shard, rows) = (self.shard(number)?, first..first + end - next);
                next = end;
                Ok(match &fields {
                    Some(fields) => shard.record_batch_of(rows, fields)?,
                    None => shard.record_batch(rows)?,
                })
            });
            if batch.is_err() {
                next = rows.end;
            }
            Some(batch)
        }))
    }

    /// The same dataset with all its fields in memory, for file systems on which mapping is slow.
    /// Not needed on a local disk, whose cached files are read at the speed of memory.
    ///
    /// # Errors
    /// [`DatasetError::TooLarge`] if its shards have more bytes than half of the memory there is
    /// (physical, or what the process's control group may use); a file is damaged.
    pub fn load_in_memory(mut self) -> Result<Self> {
        let bytes = self.entries.iter().map(|entry| entry.bytes).sum();
        if let Some(memory) = usable_memory().filter(|memory| bytes > memory / 2) {
            return Err(DatasetError::TooLarge { path: self.dir.clone(), bytes, memory });
        }
        let loaded = self.shards().map(|shard| Ok(shard?.load_in_memory()?));
        let loaded = loaded.collect::<Result<Vec<_>>>()?;
        self.shards = loaded.into_iter().map(OnceLock::from).collect();
        self.is_distant = false;
        Ok(self)
    }

    /// The field of that name, and its index.
    pub(super) fn field(&self, name: &str) -> Result<(usize, &Field)> {
        let fields = self.schema.fields();
        let found = fields.iter().enumerate().find(|(_, field)| field.name == name);
        found.ok_or_else(|| {
            let known = fields.iter().map(|field| field.name.clone()).collect();
            ReadError::NoField { field: name.to_owned(), known }.into()
        })
    }

    fn key_index(&self) -> Result<&KeyIndex> {
        if let Some(open) = self.keys.get() {
            return Ok(open);
        }
        let Some(keys) = &self.head.keys else {
            let message = "rows have a key, but the manifest names no index";
            return Err(DatasetError::damaged(self.dir.join(self.sentinel.manifest()), message));
        };
        let opened = KeyIndex::open(&*self.storage, &self.dir.join(&keys.file), self.n_rows())?;
        Ok(self.keys.get_or_init(|| opened))
    }
}

/// The folder and sentinel of the dataset that `path` stands for.
pub(crate) fn find(storage: &dyn Storage, path: &Path) -> Result<(PathBuf, Sentinel)> {
    let none = |message: &str| {
        Err(DatasetError::NoDataset { path: path.to_path_buf(), message: message.to_owned() })
    };
    match Sentinel::read(storage, path) {
        Ok(Some(sentinel)) => return Ok((path.to_path_buf(), sentinel)),
        Ok(None) => {}
        // The sentinel of a shard is none of a dataset.
        Err(DatasetError::Damaged { .. }) if storage.stat(&path.join(layout::SUMS))?.is_some() => {
            return none("it is one of the shards of a dataset");
        }
        Err(error) => return Err(error),
    }
    match current_of(storage, path)? {
        Some(key) if is_hex(&key, 16) => {
            let dir = path.join(&key);
            match Sentinel::read(storage, &dir)? {
                Some(sentinel) => Ok((dir, sentinel)),
                None => none("`current` leads to a folder without `_COMPLETE`"),
            }
        }
        Some(_) => none("`current` does not lead to a cache key"),
        None if storage.distant().is_none() => none("there is neither `_COMPLETE` nor `current`"),
        None => none(&format!(
            "there is neither `_COMPLETE` nor `current.json`{}",
            below(storage, path)?
        )),
    }
}

/// The folders that a distant place has, for who has named one too few.
///
/// # Errors
/// There is no such place at all: a bucket is missing.
fn below(storage: &dyn Storage, path: &Path) -> Result<String> {
    let entries = match storage.list(path) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => return Err(error.into()),
        // It only helps; what is wrong is known.
        listed => listed.ok().flatten().unwrap_or_default(),
    };
    let folders: Vec<String> = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::Dir)
        .take(NAMED)
        .map(|entry| format!("`{}`", entry.name))
        .collect();
    Ok(if folders.is_empty() { String::new() } else { format!(", but {}", folders.join(", ")) })
}
