//! Partition records: what one finished partition read and made.
//!
//! Leaves out: which record of several counts (`adopt`).
//!
//! Invariants:
//! 1. A record is named by its slot and its own BLAKE3, written once and never replaced.
//! 2. A [`Record`] that was read agrees with its name, its folder's cache key and itself.
//! 3. Records are written and hashed as a stream: of the document there is never more in memory
//!    than the typed list of inputs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use super::contents::Contents;
use super::error::{DatasetError, Result};
use super::home::{Home, PARTITIONS, Workplace, is_hex};
use super::publish::{digest, digits, publish};
pub use super::record_name::{RecordName, RecordNames};
use crate::books::{Books, StageBooks, Unbalanced};
use crate::inputs::{InputDigest, InputRange, Part};
use crate::schema::LAYOUT;
use crate::storage::Storage;

/// The books of a partition or dataset by the names of the stages.
pub type BooksByStage = BTreeMap<String, StageBooks>;

/// One sealed shard, as records and manifests name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its id: the first 32 hex digits of the BLAKE3 of its `B3SUMS`.
    pub id: String,
    /// Its rows.
    pub rows: u64,
}

/// A partition record. The fields stand in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What became of the rows at each stage.
    pub books: BooksByStage,
    /// The dataset's cache key.
    pub cache_key: String,
    /// What rows came from, in order.
    pub inputs: Vec<Contents>,
    /// Version of the layout.
    pub layout: u32,
    /// Source rows that were left to read when the partition began, where they are limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Rows of all shards.
    pub rows: u64,
    /// The shards, in order.
    pub shards: Vec<ShardEntry>,
    /// Files that decided values beside the inputs, sorted by path.
    pub side: Vec<Contents>,
    /// The partition's slot.
    pub slot: String,
    /// The name of the source whose inputs it reads.
    pub source: String,
}

impl Record {
    /// The record of a partition of `home` that read `part` and found `digests` in it (inputs first).
    ///
    /// # Errors
    /// [`DatasetError::Digests`] if the digests are not one for each input and side input;
    /// [`DatasetError::Unbalanced`] and [`DatasetError::Counts`] if rows were lost. The first stage of
    /// `books` is the source.
    pub fn new(
        home: &Home,
        slot: &str,
        part: &Part,
        digests: &[InputDigest],
        shards: Vec<ShardEntry>,
        books: &Books,
        limit: Option<u64>,
    ) -> Result<Self> {
        let foreign =
            |path: &str| DatasetError::Digests { slot: slot.to_owned(), path: path.to_owned() };
        let sides = part.side.iter().map(|s| InputRange { input: s.clone(), range: None });
        let mut contents = Vec::with_capacity(digests.len());
        let mut found = digests.iter();
        for input in part.inputs.iter().cloned().chain(sides) {
            let path = &input.input.path;
            let digest = found.next().ok_or_else(|| foreign(path))?;
            let entry = Contents::new(&input, digest);
            if !entry.is_of(&input) {
                return Err(foreign(&digest.path));
            }
            contents.push(entry);
        }
        if let Some(digest) = found.next() {
            return Err(foreign(&digest.path));
        }
        let side = contents.split_off(part.inputs.len());
        let it = Self {
            books: books.stages().map(|(name, books)| (name.to_owned(), *books)).collect(),
            cache_key: home.cache_key().to_owned(),
            inputs: contents,
            layout: LAYOUT,
            limit,
            rows: shards.iter().map(|shard| shard.rows).sum(),
            shards,
            side,
            slot: slot.to_owned(),
            source: books.stages().next().map_or_else(String::new, |(name, _)| name.to_owned()),
        };
        it.check_books(books)?;
        Ok(it)
    }

    /// Reads a record of the dataset in the folder `dir` and checks it against its name and the
    /// dataset's cache key.
    ///
    /// # Errors
    /// [`DatasetError::Damaged`] says what does not agree; [`DatasetError::Version`] names a later
    /// layout.
    pub fn read(
        storage: &dyn Storage,
        dir: &Path,
        cache_key: &str,
        name: &RecordName,
    ) -> Result<Self> {
        let path = dir.join(PARTITIONS).join(name.as_str());
        let damaged = |message: String| DatasetError::damaged(&path, message);
        let bytes = storage.read(&path)?.ok_or_else(|| damaged("it is not there".to_owned()))?;
        let expected = format!("{}-{}.json", name.slot(), digits(&blake3::hash(&bytes)));
        if expected != name.as_str() {
            return Err(damaged("its bytes are not those it is named by".to_owned()));
        }
        let it: Self = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if it.layout != LAYOUT {
            return Err(DatasetError::Version { path, found: it.layout, known: LAYOUT });
        }
        if it.slot != name.slot() || it.cache_key != cache_key {
            return Err(damaged(format!("it is of slot {}, key {}", it.slot, it.cache_key)));
        }
        if let Some(shard) = it.shards.iter().find(|shard| !is_hex(&shard.id, 32)) {
            return Err(damaged(format!("`{}` is not the id of a shard", shard.id)));
        }
        let rows = it.shards.iter().try_fold(0_u64, |sum, shard| sum.checked_add(shard.rows));
        if rows != Some(it.rows) {
            return Err(damaged(format!("{} rows are not the sum of its shards", it.rows)));
        }
        Ok(it)
    }

    /// Writes the record under its name, unless it is there.
    ///
    /// # Durability
    /// On `Ok` the record survives a power cut. After an error or a crash there is all of it or
    /// nothing.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, place: &Workplace) -> Result<RecordName> {
        let fill = |out: &mut dyn Write| self.write_to(out);
        let partitions = place.home().partitions();
        let b3 = digest(&partitions, &fill)?;
        let name = format!("{}-{}.json", self.slot, digits(&b3));
        publish(place, &format!("record-{}", self.slot), &partitions.join(&name), &b3, &fill)?;
        Ok(RecordName(name))
    }

    /// BLAKE3 of the list of inputs followed by that of side inputs, as manifests carry it.
    ///
    /// # Errors
    /// None that can happen while the digest is only computed.
    pub fn inputs_b3(&self) -> io::Result<blake3::Hash> {
        let mut hasher = io::BufWriter::new(blake3::Hasher::new());
        serde_json::to_writer(&mut hasher, &self.inputs)?;
        serde_json::to_writer(&mut hasher, &self.side)?;
        hasher.flush()?;
        Ok(hasher.get_ref().finalize())
    }

    /// The books, for stages whose order is known.
    ///
    /// # Errors
    /// [`DatasetError::Counts`] if they are of other stages.
    pub fn books<S: AsRef<str>>(&self, stages: &[S]) -> Result<Books> {
        Books::from_json(stages, &serde_json::json!(self.books)).map_err(|message| {
            DatasetError::Counts { place: format!("partition {}", self.slot), message }
        })
    }

    /// Checks that no row was lost or invented on the way to the shards.
    ///
    /// # Errors
    /// [`DatasetError::Unbalanced`], [`DatasetError::Counts`].
    pub fn check_books(&self, books: &Books) -> Result<()> {
        let place = format!("partition {}", self.slot);
        books.balance().map_err(|source: Unbalanced| DatasetError::Unbalanced {
            place: place.clone(),
            source,
        })?;
        if books.out() == self.rows {
            return Ok(());
        }
        let message =
            format!("{} rows left the last stage, but its shards hold {}", books.out(), self.rows);
        Err(DatasetError::Counts { place, message })
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::batch::Outcome;
    use crate::inputs::Input;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    const KEY: &str = "0123456789abcdef";
    const SLOT: &str = "00112233445566778899aabbccddeeff";
    const ID: &str = "ffeeddccbbaa99887766554433221100";

    fn place(memory: &Memory) -> Workplace {
        let home = Home::new(Path::new("/out"), "d", KEY).unwrap();
        Workplace::open(Arc::new(memory.clone()), home).unwrap()
    }

    fn input(path: &str, size: u64) -> Input {
        let modified = SystemTime::UNIX_EPOCH;
        Input { path: path.to_owned(), size, modified, changed: Some(modified) }
    }

    fn part() -> Part {
        let whole = InputRange { input: input("a/é.csv", 3), range: None };
        let cut = InputRange { input: input("b.csv", 100), range: Some(10..30) };
        Part { inputs: vec![whole, cut], side: vec![input("LICENSE", 5)] }
    }

    fn digest_of(path: &str, size: u64) -> InputDigest {
        InputDigest { path: path.to_owned(), size, blake3: blake3::hash(path.as_bytes()) }
    }

    fn digests() -> Vec<InputDigest> {
        vec![digest_of("a/é.csv", 3), digest_of("b.csv", 20), digest_of("LICENSE", 5)]
    }

    fn books() -> Books {
        let mut books = Books::new(["rows", "clean"]);
        books.enter(7);
        books.outcome(1, &Outcome::Dropped);
        books
    }

    fn shards(rows: u64) -> Vec<ShardEntry> {
        vec![ShardEntry { bytes: 1_000, id: ID.to_owned(), rows }]
    }

    fn record(home: &Home) -> Record {
        Record::new(home, SLOT, &part(), &digests(), shards(6), &books(), None).unwrap()
    }

    /// Damage done to a record.
    type Change = fn(&mut Record);

    fn read(place: &Workplace, name: &RecordName) -> Result<Record> {
        Record::read(&**place.storage(), place.home().dir(), KEY, name)
    }

    #[test]
    fn a_record_is_the_document_that_the_format_describes() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let name = record(place.home()).write(&place).unwrap();
        let path = place.home().partitions().join(name.as_str());
        let text = String::from_utf8(memory.read(&path).unwrap().unwrap()).unwrap();
        let b3 = |text: &str| blake3::hash(text.as_bytes()).to_hex();
        let want = format!(
            r#"{{
  "books": {{
    "clean": {{
      "created": 0,
      "dropped": 1,
      "in": 7,
      "out": 6,
      "rejected": 0
    }},
    "rows": {{
      "created": 0,
      "dropped": 0,
      "in": 7,
      "out": 7,
      "rejected": 0
    }}
  }},
  "cache_key": "{KEY}",
  "inputs": [
    {{
      "b3": "{}",
      "path": "a/é.csv",
      "size": 3
    }},
    {{
      "b3": "{}",
      "path": "b.csv",
      "range": [
        10,
        30
      ],
      "size": 20
    }}
  ],
  "layout": 1,
  "rows": 6,
  "shards": [
    {{
      "bytes": 1000,
      "id": "{ID}",
      "rows": 6
    }}
  ],
  "side": [
    {{
      "b3": "{}",
      "path": "LICENSE",
      "size": 5
    }}
  ],
  "slot": "{SLOT}",
  "source": "rows"
}}
"#,
            b3("a/é.csv"),
            b3("b.csv"),
            b3("LICENSE")
        );
        assert_eq!(text, want);
        assert_eq!(name.as_str(), format!("{SLOT}-{}.json", &b3(&text)[..16]));
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let record = record(place.home());
        let name = record.write(&place).unwrap();
        assert_eq!(record.write(&place).unwrap(), name, "writing it again changes nothing");
        let names = RecordNames::list(&memory, place.home()).unwrap();
        assert_eq!(names.of_slot(SLOT), std::slice::from_ref(&name));
        assert_eq!(names.of_slot(&"0".repeat(32)), []);
        let read = read(&place, &name).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.books(&["rows", "clean"]).unwrap(), books());
        let lists = format!(
            "{}{}",
            serde_json::to_string(&record.inputs).unwrap(),
            serde_json::to_string(&record.side).unwrap()
        );
        assert_eq!(record.inputs_b3().unwrap(), blake3::hash(lists.as_bytes()));
    }

    #[test]
    fn digests_that_are_not_of_the_part_are_refused() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let short = digests()[..2].to_vec();
        let mut long = digests();
        long.push(digest_of("more", 1));
        let mut other = digests();
        other[1].size = 100;
        let message =
            |path| format!("slot {SLOT}: the digest of `{path}` does not belong to this partition");
        for (name, digests, path) in [
            ("one is missing", short, "LICENSE"),
            ("one too many", long, "more"),
            ("whole file instead of the range", other, "b.csv"),
        ] {
            let error =
                Record::new(place.home(), SLOT, &part(), &digests, shards(6), &books(), None);
            assert_eq!(error.unwrap_err().to_string(), message(path), "{name}");
        }
    }

    #[test]
    fn rows_that_are_lost_leave_no_record() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let error = Record::new(place.home(), SLOT, &part(), &digests(), shards(5), &books(), None);
        let message = error.unwrap_err().to_string();
        assert_eq!(
            message,
            format!("partition {SLOT}: 6 rows left the last stage, but its shards hold 5")
        );
    }

    #[test]
    fn a_record_that_does_not_agree_with_itself_is_damage() {
        let memory = Memory::new(Overlap::Now);
        let place = place(&memory);
        let good = record(place.home());
        let table: [(&str, Change, &str); 5] = [
            ("rows", |r| r.rows = 7, "7 rows are not the sum of its shards"),
            ("key", |r| r.cache_key = "fedcba9876543210".to_owned(), "it is of slot"),
            ("shard", |r| r.shards[0].id = "../../etc".to_owned(), "is not the id of a shard"),
            ("overflow", |r| r.shards = [shards(u64::MAX), shards(2)].concat(), "not the sum"),
            ("layout", |r| r.layout = 2, "has version 2, this program knows 1"),
        ];
        for (name, change, message) in table {
            let mut bad = good.clone();
            change(&mut bad);
            let written = bad.write(&place).unwrap();
            let error = read(&place, &written).unwrap_err().to_string();
            assert!(error.contains(message), "{name}: {error}");
        }
        let name = good.write(&place).unwrap();
        memory.overwrite(place.home().partitions().join(name.as_str()), 40, b"x").unwrap();
        let error = read(&place, &name).unwrap_err().to_string();
        assert!(error.ends_with("its bytes are not those it is named by"), "{error}");
    }
}
