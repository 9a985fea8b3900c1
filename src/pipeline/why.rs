//! Why partitions will be built: what differs from the generation that is complete.
//!
//! Leaves out: deciding it (`plan`); this explains what was decided.
//!
//! Invariants:
//! 1. Every partition that will be built has at least one reason.
//! 2. An input is hashed only where nothing else tells whether it is the same, once, and is counted.
//! 3. Of the generation, only the records that read inputs of partitions to be built are held.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::assembly::SourceStage;
use super::learned::by_column;
use super::plan::{Plan, Planned};
use super::{Hashed, Pipeline, PipelineError};
use crate::dataset::difference::{Difference, differences};
use crate::dataset::facts::Facts;
use crate::dataset::manifest::Manifest;
use crate::dataset::record::{Contents, Record, RecordName};
use crate::dataset::stamps::Stamps;
use crate::dataset::survey::Located;
use crate::fingerprint::Fingerprinting;
use crate::inputs::{InputRange, Part};
use crate::sources::SourceError;

/// Inputs that are named of each reason.
const EXAMPLES: usize = 3;

/// Why partitions will be built.
#[derive(Debug, Clone, Serialize)]
pub struct Why {
    /// The manifest of the generation that is complete, absent before the first.
    pub generation: Option<String>,
    /// Where this definition has no generation: the complete one of another cache key that differs
    /// in the fewest settings.
    pub definition: Option<OtherDefinition>,
    /// How the fields of a row differ from those of the generation.
    pub fields: Vec<Difference>,
    /// How columns that were learned differ from those of the last run.
    pub learned: Vec<Difference>,
    /// The reasons, with counts and examples.
    pub reasons: Vec<ReasonCount>,
    /// The reasons of each partition that will be built.
    pub partitions: Vec<PartitionWhy>,
    /// What was hashed to find them.
    pub hashed: Hashed,
}

/// A dataset of another definition.
#[derive(Debug, Clone, Serialize)]
pub struct OtherDefinition {
    /// Its cache key.
    pub cache_key: String,
    /// In which settings, or versions of stages, its definition differs from this one.
    pub differs: Vec<Difference>,
}

/// One reason, and what it is about.
#[derive(Debug, Clone, Serialize)]
pub struct ReasonCount {
    /// The reason.
    pub reason: Reason,
    /// Partitions that it rebuilds, among others perhaps.
    pub partitions: u64,
    /// Inputs that it is about.
    pub inputs: u64,
    /// Some of them, each with its source.
    pub examples: Vec<String>,
}

/// The reasons of one partition.
#[derive(Debug, Clone, Serialize)]
pub struct PartitionWhy {
    /// The partition.
    pub slot: String,
    /// Its reasons.
    pub reasons: BTreeSet<Reason>,
}

/// Why a partition will be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// There is no generation of this definition yet.
    FirstBuild,
    /// An input is new.
    Added,
    /// An input that stood among these is gone.
    Removed,
    /// An input has another size.
    Size,
    /// An input has the same size and other content, and its time of modification is another or was
    /// too young to be noted.
    Time,
    /// An input has other content, though size and time of modification are the same.
    Content,
    /// A file that decides values beside the inputs is new, gone or another.
    SideInput,
    /// Columns have other types, or the row other fields.
    Types,
    /// Columns that are learned of a transform are others.
    Learned,
    /// `limit_rows` leaves it another number of rows.
    Limit,
    /// The inputs are the same, but others stand with them.
    Regrouped,
    /// A hook did not answer all of its rows, and is asked again.
    Unanswered,
    /// It was built, but its shards are not there.
    Shards,
}

impl Reason {
    /// The reason for people.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::FirstBuild => "never built",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Size => "changed: another size",
            Self::Time => {
                "changed: content differs, time of modification too, or it was too young to be noted"
            }
            Self::Content => "changed: size and time of modification equal, content differs",
            Self::SideInput => "side input changed",
            Self::Types => "columns have other types",
            Self::Learned => "what was learned of a hook's columns is different",
            Self::Limit => "limit_rows leaves another number of rows",
            Self::Regrouped => "the same, but grouped otherwise",
            Self::Unanswered => "a hook is asked again about rows that it did not answer",
            Self::Shards => "built before, but its shards are gone",
        }
    }
}

/// What the generation that is complete was built from.
#[derive(Default)]
struct Before {
    /// By their number in the manifest; only those that read what a partition to be built reads.
    records: HashMap<usize, Record>,
    /// Of inputs of partitions to be built, by index of the source and place in its list: the records
    /// that read the input, and their entries.
    inputs: HashMap<(usize, usize), Vec<(usize, usize)>>,
    /// Inputs that are listed no longer, by record.
    removed: BTreeMap<usize, Vec<String>>,
}

impl Before {
    fn of(pipeline: &Pipeline, manifest: &Manifest, plan: &Plan) -> Result<Self, PipelineError> {
        let mut it = Self::default();
        let home = &pipeline.home;
        let mut is_wanted: Vec<Vec<bool>> =
            plan.sources.iter().map(|source| vec![false; source.inputs.len()]).collect();
        for planned in plan.partitions.iter().filter(|planned| !planned.is_done()) {
            let of_source = is_wanted.get_mut(planned.source);
            if let Some(places) = of_source.and_then(|it| it.get_mut(Plan::places(planned))) {
                places.fill(true);
            }
        }
        for (index, line) in manifest.partitions.iter().enumerate() {
            let Some(name) = RecordName::parse(&line.record) else { continue };
            let record = Record::read(&*pipeline.storage, home.dir(), home.cache_key(), &name)?;
            let mut is_held = false;
            let source = pipeline.sources.iter().position(|it| it.name() == record.source);
            for (entry, contents) in record.inputs.iter().enumerate() {
                match source.and_then(|source| Some((source, plan.place(source, &contents.path)?)))
                {
                    None => {
                        let named = named(&record.source, &contents.path);
                        it.removed.entry(index).or_default().push(named);
                    }
                    Some((source, place)) => {
                        let is_wanted = is_wanted.get(source).and_then(|it| it.get(place));
                        if is_wanted == Some(&true) {
                            it.inputs.entry((source, place)).or_default().push((index, entry));
                            is_held = true;
                        }
                    }
                }
            }
            if is_held {
                it.records.insert(index, record);
            }
        }
        Ok(it)
    }

    /// What was found in the input at this place in the list of a source, and the record that it
    /// stands in.
    fn of_input(&self, source: usize, place: usize) -> impl Iterator<Item = (usize, &Contents)> {
        let entries = self.inputs.get(&(source, place)).map(Vec::as_slice).unwrap_or_default();
        let entry = |&(record, entry): &(usize, usize)| {
            Some((record, self.records.get(&record)?.inputs.get(entry)?))
        };
        entries.iter().filter_map(entry)
    }
}

/// An input as examples name it.
fn named(source: &str, path: &str) -> String {
    format!("{source}/{path}")
}

/// Finds the reasons of one partition after another.
struct Search<'a> {
    before: &'a Before,
    stamps: &'a Stamps,
    /// The same, with size and time of modification alone believed.
    by_stat: Stamps,
    is_other_row: bool,
    is_learned_anew: bool,
    counts: BTreeMap<Reason, (u64, BTreeSet<String>)>,
    hashed: Hashed,
}

impl Search<'_> {
    fn partition(
        &mut self,
        stage: &SourceStage,
        planned: &Planned,
        part: &Part,
    ) -> Result<PartitionWhy, PipelineError> {
        let mut found: BTreeSet<(Reason, String)> = BTreeSet::new();
        let mut records = BTreeSet::new();
        let before = self.before;
        for (place, range) in Plan::places(planned).zip(&part.inputs) {
            let entries = before.of_input(planned.source, place);
            let (numbers, known): (Vec<usize>, Vec<&Contents>) = entries.unzip();
            records.extend(numbers);
            if let Some(reason) = self.input(stage, range, &known)? {
                found.insert((reason, named(stage.name(), &range.input.path)));
            }
        }
        for record in &records {
            let removed = self.before.removed.get(record).into_iter().flatten();
            found.extend(removed.map(|path| (Reason::Removed, path.clone())));
        }
        let old: Vec<&Record> =
            records.iter().filter_map(|record| before.records.get(record)).collect();
        self.side_inputs(stage, part, &old, &mut found)?;
        if planned.asked_again > 0 {
            found.insert((Reason::Unanswered, String::new()));
        }
        if self.is_other_row {
            found.insert((Reason::Types, String::new()));
        }
        if self.is_learned_anew {
            found.insert((Reason::Learned, String::new()));
        }
        if found.is_empty() {
            let same = old.iter().find(|record| record.slot == planned.slot);
            let is_same_list = old.first().is_some_and(|record| {
                old.len() == 1
                    && record.inputs.len() == part.inputs.len()
                    && record.inputs.iter().zip(&part.inputs).all(|(was, is)| was.is_of(is))
            });
            let reason = match same {
                Some(record) if record.limit != planned.left => Reason::Limit,
                Some(_) => Reason::Shards,
                None if is_same_list => Reason::Types,
                None => Reason::Regrouped,
            };
            found.insert((reason, String::new()));
        }
        let reasons: BTreeSet<Reason> = found.iter().map(|(reason, _)| *reason).collect();
        for reason in &reasons {
            self.counts.entry(*reason).or_default().0 += 1;
        }
        for (reason, path) in found.into_iter().filter(|(_, path)| !path.is_empty()) {
            self.counts.entry(reason).or_default().1.insert(path);
        }
        Ok(PartitionWhy { slot: planned.slot.clone(), reasons })
    }

    /// What is different about an input of which this much is known.
    fn input(
        &mut self,
        stage: &SourceStage,
        range: &InputRange,
        known: &[&Contents],
    ) -> Result<Option<Reason>, PipelineError> {
        if known.is_empty() {
            return Ok(Some(Reason::Added));
        }
        let Some(same) = known.iter().find(|it| it.is_of(range)) else {
            let size: u64 = known.iter().map(|it| it.size).sum();
            let is_other_size = size != range.input.size;
            return Ok(Some(if is_other_size {
                Reason::Size
            } else {
                self.how(stage, range, known)
            }));
        };
        let digest = match self.stamps.digest(&stage.root, range) {
            Some(digest) => digest.blake3,
            None => self.hash(stage, range)?,
        };
        Ok((digest != same.b3).then(|| self.how(stage, range, known)))
    }

    /// How the content of an input could be seen to have changed.
    fn how(&self, stage: &SourceStage, range: &InputRange, known: &[&Contents]) -> Reason {
        let is_as_before = known.iter().any(|was| {
            let range =
                InputRange { input: range.input.clone(), range: was.range.map(|[a, b]| a..b) };
            self.by_stat.digest(&stage.root, &range).is_some_and(|it| it.blake3 == was.b3)
        });
        if is_as_before { Reason::Content } else { Reason::Time }
    }

    fn side_inputs(
        &mut self,
        stage: &SourceStage,
        part: &Part,
        old: &[&Record],
        found: &mut BTreeSet<(Reason, String)>,
    ) -> Result<(), PipelineError> {
        if old.is_empty() {
            return Ok(());
        }
        let was: BTreeMap<&str, blake3::Hash> = old
            .iter()
            .flat_map(|record| &record.side)
            .map(|side| (side.path.as_str(), side.b3))
            .collect();
        for side in &part.side {
            let range = InputRange { input: side.clone(), range: None };
            let digest = match self.stamps.digest(&stage.root, &range) {
                Some(digest) => digest.blake3,
                None => self.hash(stage, &range)?,
            };
            if was.get(side.path.as_str()) != Some(&digest) {
                found.insert((Reason::SideInput, named(stage.name(), &side.path)));
            }
        }
        // Of one partition only: others may read what this one does not.
        if let [record] = old {
            let gone =
                record.side.iter().filter(|was| part.side.iter().all(|is| is.path != was.path));
            found.extend(gone.map(|was| (Reason::SideInput, named(stage.name(), &was.path))));
        }
        Ok(())
    }

    fn hash(
        &mut self,
        stage: &SourceStage,
        range: &InputRange,
    ) -> Result<blake3::Hash, PipelineError> {
        let part = Part { inputs: vec![range.clone()], side: Vec::new() };
        self.hashed.add(&part);
        let digests = stage.source.digests(&part).map_err(|e| stage.error(e))?;
        let changed = || SourceError::Changed { path: range.input.path.clone() };
        let digest = digests.first().ok_or_else(|| stage.error(changed()))?.blake3;
        self.stamps.learn(&stage.root, range, digest)?;
        Ok(digest)
    }
}

impl Pipeline {
    /// Explains a plan.
    pub(super) fn why(&self, plan: &Plan) -> Result<Why, PipelineError> {
        let current = Manifest::current(&*self.storage, self.home.dir())?;
        let to_build = || plan.partitions.iter().filter(|planned| !planned.is_done());
        let Some((sentinel, manifest)) = current else {
            let n = to_build().count() as u64;
            let first = ReasonCount {
                reason: Reason::FirstBuild,
                partitions: n,
                inputs: to_build().map(|planned| plan.part(planned).inputs.len() as u64).sum(),
                examples: Vec::new(),
            };
            let of = |planned: &Planned| PartitionWhy {
                slot: planned.slot.clone(),
                reasons: [Reason::FirstBuild].into(),
            };
            return Ok(Why {
                generation: None,
                definition: self.nearest_definition()?,
                fields: Vec::new(),
                learned: Vec::new(),
                reasons: if n > 0 { vec![first] } else { Vec::new() },
                partitions: to_build().map(of).collect(),
                hashed: Hashed::default(),
            });
        };
        let before = Before::of(self, &manifest, plan)?;
        let fields = differences(&manifest.dataset.schema, &plan.schema.to_json());
        let facts = Facts::read(&*self.storage, &self.home)?;
        let learned = differences(&by_column(&facts.outputs), &by_column(&plan.learned));
        let mut search = Search {
            before: &before,
            stamps: &plan.stamps,
            by_stat: Stamps::read(
                &*self.storage,
                &self.home,
                Fingerprinting::Stat,
                plan.stamps.listed_at(),
            )?,
            is_other_row: !fields.is_empty(),
            is_learned_anew: !learned.is_empty(),
            counts: BTreeMap::new(),
            hashed: Hashed::default(),
        };
        let mut partitions = Vec::new();
        for planned in to_build() {
            let Some(stage) = self.sources.get(planned.source) else { continue };
            partitions.push(search.partition(stage, planned, &plan.part(planned))?);
        }
        // What is gone may leave no partition to be built behind it.
        for path in before.removed.values().flatten() {
            search.counts.entry(Reason::Removed).or_default().1.insert(path.clone());
        }
        let reasons = search.counts.into_iter().map(|(reason, (partitions, paths))| ReasonCount {
            reason,
            partitions,
            inputs: paths.len() as u64,
            examples: paths.into_iter().take(EXAMPLES).collect(),
        });
        Ok(Why {
            generation: Some(sentinel.manifest().to_owned()),
            definition: None,
            fields,
            learned,
            reasons: reasons.collect(),
            partitions,
            hashed: search.hashed,
        })
    }

    /// The complete dataset of another definition that differs in the fewest settings.
    fn nearest_definition(&self) -> Result<Option<OtherDefinition>, PipelineError> {
        let mut nearest: Option<OtherDefinition> = None;
        for it in Located::of(&self.home).survey(&*self.storage)? {
            let (true, Some(definition)) = (it.is_complete, it.definition) else { continue };
            let differs = differences(&definition, &self.identity.json);
            if nearest.as_ref().is_none_or(|known| differs.len() < known.differs.len()) {
                nearest = Some(OtherDefinition { cache_key: it.cache_key, differs });
            }
        }
        Ok(nearest)
    }
}
