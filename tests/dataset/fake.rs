//! A small pipeline whose inputs are strings: each character is a source row. `.` is dropped, `!`
//! rejected, any other character becomes a row.
#![allow(
    dead_code,
    clippy::cast_possible_truncation,
    clippy::maybe_infinite_iter,
    clippy::similar_names,
    clippy::unused_self,
    reason = "two test binaries share it, of which one uses less"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use rowmill::batch::{Batch, Event, Outcome, Provenance, Restart, Run};
use rowmill::dataset::adopt::Adopter;
use rowmill::dataset::facts::Facts;
use rowmill::dataset::finalize::{Generation, PlannedPartition, finalize};
use rowmill::dataset::partition::{Partition, PartitionOptions, clear};
use rowmill::dataset::plan::{PlanError, partitions};
use rowmill::dataset::record::RecordName;
use rowmill::dataset::sentinel::Sentinel;
use rowmill::dataset::stamps::Stamps;
use rowmill::dataset::{DatasetError, Home, Result, Workplace};
use rowmill::fingerprint::{Fingerprinting, InputName, cache_key, slot};
use rowmill::inputs::{Input, InputDigest, Part};
use rowmill::schema::RowSchema;
use rowmill::shard::{CommitPolicy, Resume, ShardLimits};
use rowmill::storage::Storage;
use serde_json::{Value, json};

/// What is built, and how.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    /// Content and time of modification, by path.
    pub(crate) files: BTreeMap<String, (String, u64)>,
    /// The order in which partitions are built; those left out are not.
    pub(crate) order: Vec<usize>,
    /// Source rows in a batch.
    pub(crate) batch_rows: usize,
    /// The key, `id` or `x`. With one, `id` is the character alone.
    pub(crate) key: Option<&'static str>,
    /// Where the inputs are said to be.
    pub(crate) root: String,
    /// Inputs that were hashed to compare them with a record.
    pub(crate) hashed: Vec<String>,
    /// Partitions that were built.
    pub(crate) n_built: usize,
    /// Records that are not adopted.
    pub(crate) set_aside: BTreeSet<String>,
    /// Commit after this batch of the first partition and stop.
    pub(crate) stop_after: Option<usize>,
}

impl Fake {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).into(), ((*text).into(), 1)));
        Self {
            files: files.collect(),
            order: (0..100).collect(),
            batch_rows: 3,
            key: None,
            root: "/data".to_owned(),
            hashed: Vec::new(),
            n_built: 0,
            set_aside: BTreeSet::new(),
            stop_after: None,
        }
    }

    pub(crate) fn definition(&self) -> Value {
        json!({"layout": 1, "key": self.key, "scale": 0.1})
    }

    pub(crate) fn home(&self) -> Home {
        self.home_in(Path::new("/out"))
    }

    pub(crate) fn home_in(&self, out: &Path) -> Home {
        Home::new(out, "letters", &cache_key(&self.definition())).unwrap()
    }

    pub(crate) fn stages(&self) -> Vec<String> {
        vec!["letters".to_owned(), "clean".to_owned()]
    }

    pub(crate) fn schema(&self) -> RowSchema {
        let rows = self.rows("", "", 0..0);
        RowSchema::infer(&rows.schema(), &BTreeMap::new(), self.key).unwrap()
    }

    pub(crate) fn inputs(&self) -> Vec<Input> {
        let input = |(path, (text, mtime)): (&String, &(String, u64))| {
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(*mtime);
            let size = text.len() as u64;
            Input { path: path.clone(), size, modified, changed: Some(modified) }
        };
        self.files.iter().map(input).collect()
    }

    /// The parts: files of 16 characters and more are cut at multiples of 16, the others grouped.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let inputs = self.inputs();
        let cuts = |input: &Input| -> Result<Vec<u64>, PlanError> {
            Ok((1..).map(|n| n * 16).take_while(|at| *at < input.size).collect())
        };
        partitions(&inputs, 16, cuts)
            .map(|planned| Part { inputs: planned.unwrap().inputs(&inputs), side: Vec::new() })
            .collect()
    }

    pub(crate) fn slot(&self, part: &Part) -> String {
        let names: Vec<_> = part
            .inputs
            .iter()
            .map(|i| InputName {
                path: &i.input.path,
                size: i.bytes(),
                range: i.range.as_ref(),
                b3: None,
            })
            .collect();
        slot(self.home().cache_key(), "letters", &names, &[], &json!([]))
    }

    /// Builds the partitions of `order` that are not built yet, and the dataset if it has all.
    pub(crate) fn build(&mut self, storage: &Arc<dyn Storage>) -> Result<Sentinel> {
        self.build_in(storage, &self.home())
    }

    pub(crate) fn build_in(&mut self, storage: &Arc<dyn Storage>, home: &Home) -> Result<Sentinel> {
        let place = Arc::new(Workplace::open(Arc::clone(storage), home.clone())?);
        let stamps = Arc::new(Stamps::open(&place, Fingerprinting::Content, SystemTime::now())?);
        Facts::read(&**storage, place.home())?.write(&place)?;
        let adopter = Adopter::new(
            Arc::clone(place.storage()),
            place.home().clone(),
            Arc::clone(&stamps),
            self.set_aside.clone(),
        )?;
        let parts = self.parts();
        let mut records: Vec<Option<RecordName>> = vec![None; parts.len()];
        for index in self.order.clone().into_iter().filter(|i| *i < parts.len()) {
            let part = &parts[index];
            let slot = self.slot(part);
            let mut hashed = Vec::new();
            let adopted = adopter.adopt(&slot, &self.root, part, None, |unknown| {
                hashed.extend(unknown.inputs.iter().map(|i| i.input.path.clone()));
                Ok::<_, DatasetError>(self.digests(unknown))
            })?;
            self.hashed.extend(hashed);
            records[index] = match adopted {
                Some((name, _)) => {
                    clear(&place, &slot)?;
                    Some(name)
                }
                None => Some(self.partition(&place, &stamps, part)?),
            };
        }
        let (definition, schema, stages) = (self.definition(), self.schema(), self.stages());
        let generation = Generation {
            definition: &definition,
            schema: &schema,
            stages: std::slice::from_ref(&stages),
            budgets: &[],
            allow_empty: false,
        };
        let planned = parts.iter().zip(records);
        let planned: Vec<_> = planned
            .map(|(part, record)| PlannedPartition { slot: self.slot(part), record })
            .collect();
        let sentinel = finalize(&place, &generation, &planned)?;
        place.set_current(&sentinel)?;
        Ok(sentinel)
    }

    fn partition(
        &mut self,
        place: &Arc<Workplace>,
        stamps: &Arc<Stamps>,
        part: &Part,
    ) -> Result<RecordName> {
        self.n_built += 1;
        let options = PartitionOptions {
            slot: self.slot(part),
            part: Arc::new(part.clone()),
            root: self.root.clone(),
            schema: self.schema(),
            stages: self.stages(),
            limits: ShardLimits { rows: 4, ..ShardLimits::default() },
            on_error: rowmill::batch::OnError::Fail,
            commits: CommitPolicy { bytes: 1, interval: None },
            limit: None,
            retry: None,
        };
        let (mut partition, resume) =
            Partition::open(Arc::clone(place), Arc::clone(stamps), options)?;
        let restart = match resume {
            Resume::Start => Some(Restart::default()),
            Resume::At { restart, .. } => Some(restart),
            Resume::Finished => None,
        };
        if let Some(restart) = restart {
            for (n, batch) in self.batches(part, &restart).iter().enumerate() {
                if self.stop_after == Some(n) {
                    partition.commit()?;
                    let (index, n_partitions, slot) = (0, 0, String::new());
                    return Err(DatasetError::Unfinished { index, n_partitions, slot });
                }
                partition.append(batch)?;
            }
        }
        Ok(partition.finish(&self.digests(part))?.name)
    }

    fn text(&self, path: &str) -> &str {
        &self.files[path].0
    }

    pub(crate) fn digests(&self, part: &Part) -> Vec<InputDigest> {
        let digest = |i: &rowmill::inputs::InputRange| {
            let text = self.text(&i.input.path).as_bytes();
            let range = i.range.clone().unwrap_or(0..text.len() as u64);
            let bytes = &text[range.start as usize..range.end as usize];
            let (path, size) = (i.input.path.clone(), bytes.len() as u64);
            InputDigest { path, size, blake3: blake3::hash(bytes) }
        };
        part.inputs.iter().map(digest).collect()
    }

    fn batches(&self, part: &Part, restart: &Restart) -> Vec<Batch> {
        let mut batches = Vec::new();
        for (n, input) in part.inputs.iter().enumerate().skip(restart.input as usize) {
            let text = self.text(&input.input.path);
            let range = input.range.clone().unwrap_or(0..text.len() as u64);
            let text = &text[range.start as usize..range.end as usize];
            let begin = if n == restart.input as usize { restart.source_row as usize } else { 0 };
            for from in (begin..text.len()).step_by(self.batch_rows) {
                let to = (from + self.batch_rows).min(text.len());
                batches.push(self.batch(n as u32, &input.input.path, text, from..to));
            }
        }
        batches
    }

    fn batch(&self, n: u32, path: &str, text: &str, rows: std::ops::Range<usize>) -> Batch {
        let (mut provenance, mut events) = (Provenance::new(), Vec::new());
        for (at, c) in rows.clone().zip(text[rows.clone()].chars()) {
            let outcome = match c {
                '.' => Outcome::Dropped,
                '!' => Outcome::Rejected { code: "loud".into(), message: "too loud".into() },
                _ => {
                    let run = Run { row: 0, input: n, source_row: at as u64, sub_row: -1 };
                    provenance.push_run(run, 1);
                    continue;
                }
            };
            events.push(Event {
                before_row: provenance.n_rows(),
                input: n,
                source_row: at as u64,
                path: Vec::new(),
                stage: 1,
                outcome,
            });
        }
        let (input, source_row) = (n, rows.start as u64);
        let restart = Restart { input, source_row, cursor: Value::Null, ..Restart::default() };
        Batch { rows: self.rows(path, text, rows), provenance, events, restart }
    }

    fn rows(&self, path: &str, text: &str, rows: std::ops::Range<usize>) -> RecordBatch {
        let kept = rows.clone().zip(text[rows].chars()).filter(|(_, c)| !".!".contains(*c));
        let (ids, values): (Vec<_>, Vec<_>) = kept
            .map(|(n, c)| {
                (if self.key.is_some() { c.to_string() } else { format!("{path}:{n}") }, c as i64)
            })
            .unzip();
        let ids: ArrayRef = Arc::new(StringArray::from(ids));
        let values: ArrayRef = Arc::new(Int64Array::from(values));
        RecordBatch::try_from_iter([("id", ids), ("x", values)]).unwrap()
    }
}
