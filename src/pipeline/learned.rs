//! Learns the columns of transforms whose definition leaves them out, by asking about the first rows.
//!
//! What is learned is a planning fact: kept with what it was learned from, and part of every slot.
//!
//! Invariants:
//! 1. It is a function of the definition, of the first input with the files beside it, and of the files
//!    that transforms name: the batch is the first that would be cut of the rows of that input alone. No
//!    other input is read, whether or not a row of the first one gets there.
//! 2. A fact that an earlier run kept is taken while all of that is the same; so it spares asking, and
//!    decides nothing.
//! 3. No more is read, and no transform asked more, than that batch takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use arrow_schema::{ArrowError, SchemaRef};
use serde_json::Value;
use tracing::info;

use super::assembly::SourceStage;
use super::check::failed;
use super::given::is_json;
use super::{ColumnReport, LearnedReport, Pipeline, PipelineError, StageError};
use crate::batch::{Batch, Restart};
use crate::dataset::facts::{Facts, LearnedFrom, LearnedOutput};
use crate::fingerprint::{Stamp, TypesError, types_from_json, types_to_json};
use crate::graph::{Chain, Halt, Link, LinkError, Meter, Numbers, Sink};
use crate::inputs::{Input, InputRange, Part};
use crate::sources::{BatchLimits, SettingsError, SourceError};
use crate::stages::{Alignment, Cutter};
use crate::transforms::{Learner, Stopped, TransformError, type_text};

/// About the most bytes of a batch on the way, less where `batch_bytes` says so: the memory bound is
/// computed later, from what is learned. Where batches end never shows.
const MOST_BYTES: usize = 1 << 20;
/// What to do where nothing is learned.
const DECLARE: &str = "declare them: output.x = { dtype = \"float32\" }";

/// The first input there is, and where its rows come from.
#[derive(Clone, Copy)]
pub(super) struct First<'a> {
    pub(super) stage: &'a SourceStage,
    pub(super) input: &'a Input,
    /// The columns of its source.
    pub(super) own: &'a SchemaRef,
    /// When it was listed.
    pub(super) at: SystemTime,
}

/// What is learned from, and by whom.
struct Lesson<'a> {
    first: First<'a>,
    part: Arc<Part>,
    /// The columns of all sources.
    columns: &'a SchemaRef,
    /// Index of the transform.
    index: usize,
    name: &'a str,
    learner: &'a dyn Learner,
    is_stopped: &'a dyn Fn() -> bool,
}

impl Pipeline {
    /// Teaches transforms their columns, from `facts` or by asking them; `columns` are those of all
    /// sources.
    pub(super) fn learn(
        &self,
        first: Option<First<'_>>,
        columns: &SchemaRef,
        facts: &Facts,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<String, LearnedOutput>, PipelineError> {
        let mut learned = BTreeMap::new();
        if !self.learns(0..self.transforms.len()) {
            return Ok(learned);
        }
        let mut learn_all = || {
            let mut given = Arc::clone(columns);
            for (index, (name, transform)) in self.named_transforms().enumerate() {
                let refused = |e| self.refused_columns(name, e);
                if let Some(learner) = transform.learner() {
                    // What it asks for has to be there.
                    transform.output(&given).map_err(refused)?;
                    let Some(first) = first else {
                        return Err(refused(nothing("there is no input")));
                    };
                    let side = first.stage.source.side_inputs(std::slice::from_ref(first.input));
                    let side = side.map_err(|e| first.stage.error(e))?;
                    let range = InputRange { input: first.input.clone(), range: None };
                    let part = Arc::new(Part { inputs: vec![range], side });
                    let lesson = Lesson { first, part, columns, index, name, learner, is_stopped };
                    learned.insert(name.to_owned(), self.taught(&lesson, &given, facts)?);
                }
                given = transform.output(&given).map_err(refused)?;
            }
            Ok(())
        };
        let done = learn_all();
        // Whatever was started ends, also where something failed.
        let ended = self.end_transforms();
        done?;
        ended?;
        Ok(learned)
    }

    /// Whether the columns of one of these transforms are learned.
    pub(super) fn learns(&self, range: std::ops::Range<usize>) -> bool {
        self.transforms.iter().skip(range.start).take(range.len()).any(|it| it.learner().is_some())
    }

    /// Teaches one transform, which is given the columns `given`.
    fn taught(
        &self,
        lesson: &Lesson<'_>,
        given: &SchemaRef,
        facts: &Facts,
    ) -> Result<LearnedOutput, PipelineError> {
        let Lesson { first, name, learner, .. } = *lesson;
        let path = first.input.path.as_str();
        let unreadable = |error: TypesError| PipelineError::Stage {
            stage: name.to_owned(),
            message: error.to_string(),
            hint: Some(error.hint().to_owned()),
        };
        let refused = |source| lesson.refused(LinkError { name: name.to_owned(), source });
        let from = self.looks(lesson)?;
        let given = types_to_json(given).map_err(unreadable)?;
        let by = self.definition.run.fingerprint;
        let value = if let Some(known) = facts.output(name, &from, &given, by) {
            known.clone()
        } else {
            let Some(batch) = self.first_batch_of(lesson)? else {
                let why = format!("no row of the first input, `{path}`, gets to it");
                return Err(self.refused_columns(name, nothing(&why)));
            };
            let stage = self.stage(lesson.index);
            let fields = learner.learn(stage, &batch, lesson.is_stopped).map_err(refused)?;
            info!(transform = name, input = path, "columns learned");
            types_to_json(&fields).map_err(unreadable)?
        };
        let fields = types_from_json(&value).map_err(unreadable)?;
        learner.teach(&fields, path).map_err(refused)?;
        Ok(LearnedOutput { from, given, value })
    }

    /// How everything looks that a transform learns from: the input with the files beside it, and the
    /// files of the transforms up to it.
    fn looks(&self, lesson: &Lesson<'_>) -> Result<Vec<LearnedFrom>, PipelineError> {
        let Lesson { first, part, index, .. } = lesson;
        let looks = |root: &str, input: &Input| {
            let stamp = Stamp::new(input.size, input.modified, input.changed).settled(first.at);
            LearnedFrom::new(root, &input.path, stamp)
        };
        let inputs = [first.input].into_iter().chain(&part.side);
        let mut from: Vec<_> = inputs.map(|input| looks(&first.stage.root, input)).collect();
        let (folder, root) = self.hook_folder();
        for (name, transform) in self.named_transforms().take(index + 1) {
            for path in transform.files() {
                let error = |source| PipelineError::hook_file(name, &folder, source);
                from.push(looks(&root, &folder.stat(path).map_err(error)?));
            }
        }
        Ok(from)
    }

    /// The first batch with rows that gets to the transform.
    fn first_batch_of(&self, lesson: &Lesson<'_>) -> Result<Option<Batch>, PipelineError> {
        let Lesson { first, part, columns, index, is_stopped, .. } = lesson;
        let run = &self.definition.run;
        let limits = BatchLimits {
            rows: run.batch_rows,
            bytes: run.batch_bytes.min(MOST_BYTES),
            row_bytes: self.definition.data.dataset.max_row_bytes,
            on_error: first.stage.on_error,
        };
        let of_source = |e: SourceError| failed(first.stage.name(), e.into());
        let alignment = Alignment::new(first.own, columns);
        let alignment = alignment.map_err(|e| first.stage.error(e.into()))?;
        let source = &first.stage.source;
        let reader = source.open(part, first.own, limits, &Restart::default());
        let mut reader = reader.map_err(of_source)?;
        let transforms = self.named_transforms().enumerate().take(index + 1);
        let mut steps: Vec<Step<'_>> = transforms
            .map(|(i, (name, transform))| {
                let transform = Arc::clone(transform);
                let cutter = transform.batching().map(|rule| Cutter::new(name, rule));
                let meter = Arc::new(Meter::new(name));
                let link = Link { stage: self.stage(i), transform, meter };
                let chain = (i < *index).then(|| Chain::new([link]));
                let (name, bytes, numbers) = (name.to_owned(), limits.bytes, Numbers::default());
                Step { name, cutter, hands: Hands { chain, numbers, bytes, is_stopped } }
            })
            .collect();
        loop {
            if is_stopped() {
                return Err(PipelineError::Stopped);
            }
            let passed = match reader.next().map_err(of_source)? {
                None => finish(&mut steps),
                Some(batch) => {
                    let batch = match &alignment {
                        Some(it) => {
                            it.apply(batch).map_err(|e| of_source(SourceError::Arrow(e)))?
                        }
                        None => batch,
                    };
                    match pass(&mut steps, batch) {
                        Ok(None) => continue,
                        passed => passed,
                    }
                }
            };
            return passed.map_err(|halt| match halt {
                Halt::Cause(error) => lesson.refused(error),
                Halt::Echo | Halt::Stopped => PipelineError::Stopped,
            });
        }
    }

    /// What was learned, for people.
    pub(super) fn learned_reports(
        &self,
        learned: &BTreeMap<String, LearnedOutput>,
    ) -> Vec<LearnedReport> {
        let report = |(name, _)| {
            let LearnedOutput { from, value, .. } = learned.get(name)?;
            Some(LearnedReport {
                transform: str::to_owned(name),
                from: from.first().map_or("", LearnedFrom::path).to_owned(),
                columns: forms(value),
            })
        };
        self.named_transforms().filter_map(report).collect()
    }
}

/// What was learned, by transform and column: what differs is said of it.
pub(super) fn by_column(learned: &BTreeMap<String, LearnedOutput>) -> Value {
    let columns =
        |value: &Value| forms(value).into_iter().map(|it| (it.name, it.form.into())).collect();
    let of =
        |(name, it): (&String, &LearnedOutput)| (name.clone(), Value::Object(columns(&it.value)));
    Value::Object(learned.iter().map(of).collect())
}

/// Columns as people write them.
fn forms(types: &Value) -> Vec<ColumnReport> {
    let schema = types_from_json(types).unwrap_or_else(|_| arrow_schema::Schema::empty());
    let column = |field: &Arc<arrow_schema::Field>| {
        let base = if is_json(field) { "json".to_owned() } else { type_text(field.data_type()) };
        let form = if field.is_nullable() { format!("{base}, nullable") } else { base };
        ColumnReport { name: field.name().clone(), form }
    };
    schema.fields().iter().map(column).collect()
}

impl Lesson<'_> {
    /// The error of a transform on the way.
    fn refused(&self, error: LinkError) -> PipelineError {
        if matches!(error.source, TransformError::Stopped(_)) {
            return PipelineError::Stopped;
        }
        let stage = error.name.clone();
        failed(&stage, StageError::from(error).in_part(&self.part, &*self.first.stage.source))
    }
}

fn nothing(why: &str) -> SettingsError {
    SettingsError {
        at: vec!["output".to_owned()],
        message: format!("its columns cannot be learned: {why}"),
        hint: Some(DECLARE.to_owned()),
    }
}

/// A place on the way of rows: where batches are cut, and what is done with them.
struct Step<'a> {
    name: String,
    cutter: Option<Cutter>,
    hands: Hands<'a>,
}

/// What is done with a batch.
struct Hands<'a> {
    /// The transform; none where the batch is wanted.
    chain: Option<Chain>,
    /// The numbers that rows have got.
    numbers: Numbers,
    bytes: usize,
    is_stopped: &'a dyn Fn() -> bool,
}

/// The batch that is wanted, once it got there.
type Passed = Result<Option<Batch>, Halt<LinkError>>;

/// Sends a batch on its way.
fn pass(steps: &mut [Step<'_>], batch: Batch) -> Passed {
    let Some((Step { name, cutter, hands }, behind)) = steps.split_first_mut() else {
        return Ok(None);
    };
    let Some(cutter) = cutter else { return hands.apply(batch, behind) };
    let mut cuts = cutter.push(&batch);
    while let Some(cut) = cuts.next().map_err(|e| not_cut(name, e))? {
        if let Some(found) = hands.apply(cut, behind)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Sends on its way what is left in each place where batches are cut.
fn finish(steps: &mut [Step<'_>]) -> Passed {
    let Some((Step { name, cutter, hands }, behind)) = steps.split_first_mut() else {
        return Ok(None);
    };
    let last = cutter.as_mut().map_or(Ok(None), Cutter::finish).map_err(|e| not_cut(name, e))?;
    if let Some(last) = last
        && let Some(found) = hands.apply(last, behind)?
    {
        return Ok(Some(found));
    }
    finish(behind)
}

fn not_cut(name: &str, source: ArrowError) -> Halt<LinkError> {
    Halt::Cause(LinkError { name: name.to_owned(), source: source.into() })
}

impl<'a> Hands<'a> {
    fn apply(&mut self, batch: Batch, behind: &mut [Step<'a>]) -> Passed {
        let Some(chain) = &self.chain else {
            return Ok((batch.rows.num_rows() > 0).then_some(batch));
        };
        let mut onward = Onward { before: self, behind, passed: Ok(None) };
        let applied = chain.apply(batch, &mut onward);
        match (onward.passed, applied) {
            (Ok(None), Ok(numbers)) => {
                self.numbers = numbers.after(&self.numbers);
                Ok(None)
            }
            (Ok(None), Err(halt)) => Err(halt),
            (passed, _) => passed,
        }
    }
}

/// Takes what a transform makes further on, until the batch that is wanted got there.
struct Onward<'a, 'b> {
    before: &'a Hands<'b>,
    behind: &'a mut [Step<'b>],
    passed: Passed,
}

impl Sink for Onward<'_, '_> {
    fn send(&mut self, batch: Batch) -> Result<(), Stopped> {
        self.passed = pass(self.behind, batch);
        if matches!(self.passed, Ok(None)) { Ok(()) } else { Err(Stopped) }
    }

    fn batch_bytes(&self) -> usize {
        self.before.bytes
    }

    fn is_stopped(&self) -> bool {
        (self.before.is_stopped)()
    }

    fn numbers_before(&mut self) -> Result<Numbers, Stopped> {
        Ok(self.before.numbers.clone())
    }
}
