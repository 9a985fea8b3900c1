//! What there is to read: the inputs of each source, their columns, and where large ones are cut.
//!
//! Leaves out: partitions and what earlier runs have done of them (`plan`).
//!
//! Invariant: what is learned from an input (types, cut points) is a function of its bytes and of the
//! definition. A fact that an earlier run kept is taken only while the input it was learned from is
//! the same; so it spares reading, and decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_schema::SchemaRef;

use super::assembly::SourceStage;
use super::frame::Columns;
use super::learned::First;
use super::{Pipeline, PipelineError};
use crate::dataset::facts::{Fact, Facts, LearnedFrom, LearnedOutput};
use crate::dataset::listing::{self, Kept, Listing};
use crate::dataset::{Workplace, plan as division};
use crate::fingerprint::{Stamp, types_from_json, types_to_json};
use crate::inputs::Input;
use crate::remote::is_url;
use crate::schema::RowSchema;
use crate::stages::{Alignment, common_columns};

/// Where files are cut, by path.
pub(super) type Cuts = BTreeMap<String, Fact<Vec<u64>>>;

/// The inputs, and what their rows are like.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// When listing began.
    pub(super) at: SystemTime,
    /// Whether what the build listed when it began was taken for what is in object stores.
    pub(super) is_kept: bool,
    /// What each source lists.
    pub(super) sources: Vec<ListedSource>,
    /// The columns of every source.
    pub(super) columns: SchemaRef,
    /// The row that they are stored as.
    pub(super) schema: RowSchema,
    /// What was learned of the columns.
    pub(super) schemas: BTreeMap<String, Fact<serde_json::Value>>,
    /// The columns of transforms that were learned, by transform.
    pub(super) learned: BTreeMap<String, LearnedOutput>,
}

/// What a source lists.
#[derive(Debug, Clone)]
pub(super) struct ListedSource {
    /// Its inputs, sorted by path.
    pub(super) inputs: Vec<Input>,
    /// Its own columns.
    pub(super) columns: SchemaRef,
    /// What brings its batches to the columns of all sources.
    pub(super) alignment: Option<Arc<Alignment>>,
}

impl ListedSource {
    /// What its batches are like.
    pub(super) fn columns(&self) -> Columns {
        Columns { own: Arc::clone(&self.columns), alignment: self.alignment.clone() }
    }
}

impl Listed {
    /// The inputs of all sources.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().flat_map(|source| &source.inputs)
    }
}

impl Pipeline {
    /// Lists the inputs and types the whole graph: what can be wrong before anything is written.
    pub(super) fn list(&self) -> Result<Listed, PipelineError> {
        self.list_with(Kept::new(), &|| false)
    }

    /// The same for a run, or for what tells what one would do: what an interrupted build listed in object
    /// stores is not listed again. Given up where a transform is asked something when the run is stopped.
    pub(super) fn list_or_go_on(
        &self,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Listed, PipelineError> {
        let kept = listing::read(&*self.storage, &self.home, &self.url_roots())?;
        if kept.is_empty() {
            return self.list_with(kept, is_stopped);
        }
        match self.list_with(kept, is_stopped) {
            Err(error) if error.is_changed_input() => self.list_with(Kept::new(), is_stopped),
            listed => listed,
        }
    }

    /// The places of sources in object stores, by name.
    pub(super) fn url_roots(&self) -> BTreeMap<&str, &str> {
        let urls = self.sources.iter().filter(|stage| is_url(&stage.root));
        urls.map(|stage| (stage.name(), stage.root.as_str())).collect()
    }

    /// Keeps what is listed in object stores for a run that goes on with this one.
    pub(super) fn keep_listing(
        &self,
        place: &Workplace,
        listed: &[ListedSource],
    ) -> Result<(), PipelineError> {
        let all = self.sources.iter().zip(listed).filter(|(stage, _)| is_url(&stage.root));
        let listings = all.map(|(stage, listed)| {
            let inputs = &listed.inputs;
            Listing { source: stage.name(), root: &stage.root, inputs }
        });
        Ok(listing::write(place, &listings.collect::<Vec<_>>())?)
    }

    fn list_with(
        &self,
        mut kept: Kept,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Listed, PipelineError> {
        let at = SystemTime::now();
        let is_kept = !kept.is_empty();
        let mut listed = Vec::new();
        for stage in &self.sources {
            listed.push(match kept.remove(stage.name()) {
                Some(inputs) => inputs,
                None => stage.source.list().map_err(|e| stage.error(e))?,
            });
        }
        self.typed(at, is_kept, listed, is_stopped)
    }

    /// Types the whole graph for these inputs of each source; what is learned is learned from the first.
    pub(super) fn typed(
        &self,
        at: SystemTime,
        is_kept: bool,
        listed: Vec<Vec<Input>>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Listed, PipelineError> {
        for ((stage, place), inputs) in
            self.sources.iter().zip(&self.definition.places).zip(&listed)
        {
            if inputs.is_empty() && !place.allow_empty {
                return Err(PipelineError::NoInput {
                    source_name: stage.name().to_owned(),
                    root: place.root.clone(),
                });
            }
        }
        let facts = Facts::read(&*self.storage, &self.home)?;
        let mut schemas = BTreeMap::new();
        let mut own = Vec::new();
        for (stage, inputs) in self.sources.iter().zip(&listed) {
            own.push(self.columns_of(stage, inputs.first(), at, &facts, &mut schemas)?);
        }
        let columns = self.common_columns(&own, &listed)?;
        let mut inputs = self.sources.iter().zip(&listed).zip(&own);
        let first = inputs.find_map(|((stage, inputs), own)| {
            Some(First { stage, input: inputs.first()?, own, at })
        });
        let learned = self.learn(first, &columns, &facts, is_stopped)?;
        let schema = self.row_schema(&columns)?;
        let mut sources = Vec::new();
        for ((stage, inputs), own) in self.sources.iter().zip(listed).zip(own) {
            // Nothing is read of a source without inputs.
            let alignment = if inputs.is_empty() {
                None
            } else {
                Alignment::new(&own, &columns).map_err(|e| stage.error(e.into()))?.map(Arc::new)
            };
            sources.push(ListedSource { inputs, columns: own, alignment });
        }
        Ok(Listed { at, is_kept, sources, columns, schema, schemas, learned })
    }

    /// The columns of a source, from the first of its inputs or what was learned from it before.
    fn columns_of(
        &self,
        stage: &SourceStage,
        first: Option<&Input>,
        listed_at: SystemTime,
        facts: &Facts,
        learned: &mut BTreeMap<String, Fact<serde_json::Value>>,
    ) -> Result<SchemaRef, PipelineError> {
        let (name, by) = (stage.name(), self.definition.run.fingerprint);
        let now = first.map(|input| {
            let stamp = Stamp::new(input.size, input.modified, input.changed).settled(listed_at);
            LearnedFrom::new(&stage.root, &input.path, stamp)
        });
        let known = now.as_ref().and_then(|now| facts.schema(name, now, by));
        let known = known.and_then(|types| types_from_json(types).ok());
        let columns = match known {
            Some(columns) => Arc::new(columns),
            None => stage.source.schema(first).map_err(|e| stage.error(e))?,
        };
        // What is not read back as it was is learned each time; what cannot be stored at all is
        // refused when the row is typed.
        if let Ok(value) = types_to_json(&columns)
            && types_from_json(&value).is_ok_and(|read| read == *columns)
        {
            learned.insert(name.to_owned(), Fact { learned_from: now, value });
        }
        Ok(columns)
    }

    /// The columns that the rows of every source have.
    fn common_columns(
        &self,
        own: &[SchemaRef],
        inputs: &[Vec<Input>],
    ) -> Result<SchemaRef, PipelineError> {
        let named = self.sources.iter().map(SourceStage::name).zip(own);
        // Without inputs there are no rows whose columns could differ.
        let mut read: Vec<_> = named
            .clone()
            .zip(inputs)
            .filter(|(_, inputs)| !inputs.is_empty())
            .map(|(named, _)| named)
            .collect();
        if read.is_empty() {
            read.extend(named.take(1));
        }
        common_columns(&read).map_err(|error| {
            let hint = "give both the same columns and types, with keys like `types` and `columns`";
            let keys = ["sources", &error.other];
            self.definition.error_at(&keys, error.to_string(), Some(hint.to_owned())).into()
        })
    }

    /// Divides the inputs of a source; where a large one is cut is learned once and kept as a fact.
    pub(super) fn divide(
        &self,
        stage: &SourceStage,
        inputs: &[Input],
        listed_at: SystemTime,
        facts: &Facts,
    ) -> Result<(Vec<division::Planned>, Cuts), PipelineError> {
        let partition_bytes = self.definition.data.dataset.partition_bytes;
        let mut learned = BTreeMap::new();
        let cut = |input: &Input| self.cut(stage, input, listed_at, facts, &mut learned);
        let divided =
            division::partitions(inputs, partition_bytes, cut).collect::<Result<_, _>>()?;
        Ok((divided, learned))
    }

    /// Where a large input is cut; that is put down as `learned`.
    pub(super) fn cut(
        &self,
        stage: &SourceStage,
        input: &Input,
        listed_at: SystemTime,
        facts: &Facts,
        learned: &mut Cuts,
    ) -> Result<Vec<u64>, PipelineError> {
        let partition_bytes = self.definition.data.dataset.partition_bytes;
        let stamp = Stamp::new(input.size, input.modified, input.changed).settled(listed_at);
        let now = LearnedFrom::new(&stage.root, &input.path, stamp);
        let cuts = match facts.cuts(stage.name(), &now, self.definition.run.fingerprint) {
            Some(cuts) => cuts.to_vec(),
            None => stage.source.cuts(input, partition_bytes).map_err(|e| stage.error(e))?,
        };
        let fact = Fact { learned_from: Some(now), value: cuts.clone() };
        learned.insert(input.path.clone(), fact);
        Ok(cuts)
    }
}
