//! Everything that can be found out before a build without writing: inputs, types, one batch.

use std::sync::Arc;

use indicatif::HumanBytes;

use super::assembly::SourceStage;
use super::plan::{Plan, Planned};
use super::through::Through;
use super::{
    CheckReport, FieldReport, Pipeline, PipelineError, PushCheck, REPORT_VERSION, StageError,
};
use crate::batch::{Batch, Restart};
use crate::graph::{Failed, LinkError};
use crate::inputs::Part;
use crate::remote::{Remote, RemoteOptions};
use crate::schema::{Field, Kind};
use crate::shard::{ShardError, Sieve};
use crate::sources::{BatchLimits, SourceError};
use crate::storage::parent;

/// Rows of the batch that hooks are asked about, where there are so many: a model may take seconds for each.
const HOOK_ROWS: usize = 32;

impl Pipeline {
    /// Lists the inputs, types the whole graph, sends one batch of each source through it, looks at
    /// the disk, and tries the place that is pushed to.
    ///
    /// # Errors
    /// What a run would fail with: at once, or at its first batch.
    pub fn check(&self) -> Result<CheckReport, PipelineError> {
        let plan = self.plan_with(self.list()?, None)?;
        self.known(&plan)?;
        let push = self.check_push()?;
        let sample = self.send_samples(&plan);
        // Whatever was started ends, also where something failed.
        let ended = self.end_transforms();
        let sample = sample?;
        ended?;
        let row_bytes = sample.bytes.checked_div(sample.rows);
        for dir in [self.home.dir(), parent(self.home.dir())] {
            self.storage.check_writable(dir)?;
        }
        let free_bytes = self.storage.free_bytes(self.home.dir())?;
        self.check_space(&plan, free_bytes)?;
        let fields = plan.schema.fields().iter().map(|field| FieldReport {
            name: field.name.clone(),
            form: form(field),
            files: field.files().iter().map(|file| file.name.clone()).collect(),
        });
        let stages = self.stage_names().chain(["write"]);
        Ok(CheckReport {
            version: REPORT_VERSION,
            dataset: self.home.dir().display().to_string(),
            cache_key: self.home.cache_key().to_owned(),
            inputs: plan.inputs().count() as u64,
            input_bytes: plan.inputs().map(|input| input.size).sum(),
            sources: self.source_reports(&plan),
            learned: self.learned_reports(&plan.learned),
            sample_rows: sample.rows,
            row_bytes,
            free_bytes,
            stages: stages.map(str::to_owned).collect(),
            fields: fields.collect(),
            push,
        })
    }

    /// Tries at the place of `[push]` what a push does there, with small objects that go again.
    fn check_push(&self) -> Result<Option<PushCheck>, PipelineError> {
        let Some(push) = &self.definition.push else { return Ok(None) };
        let options = RemoteOptions { allow_http: push.allow_http, ..RemoteOptions::default() };
        let probe = Remote::open(&push.url, &options)?.probe()?;
        match probe.failure() {
            Some(error) => Err(error.clone().into()),
            None => Ok(Some(PushCheck::of(&probe))),
        }
    }

    /// Sends the first batch of each source through.
    fn send_samples(&self, plan: &Plan) -> Result<Sample, PipelineError> {
        let mut sample = Sample::default();
        for (source, stage) in self.sources.iter().enumerate() {
            let Some(first) = plan.partitions.iter().find(|p| p.source == source) else { continue };
            let part = Arc::new(plan.part(first));
            for batch in self.send_first(plan, stage, first, &part)? {
                self.store(plan, stage, &part, &batch, &mut sample)?;
            }
        }
        Ok(sample)
    }

    fn send_first(
        &self,
        plan: &Plan,
        stage: &SourceStage,
        planned: &Planned,
        part: &Arc<Part>,
    ) -> Result<Vec<Batch>, PipelineError> {
        let name = stage.name();
        let Some(listed) = plan.sources.get(planned.source) else { return Ok(Vec::new()) };
        let has_hooks = self.transforms.iter().any(|it| it.batching().is_some());
        let (wanted, most) = if has_hooks { (HOOK_ROWS, HOOK_ROWS) } else { (1, usize::MAX) };
        let limits = BatchLimits {
            rows: self.definition.run.batch_rows.min(most),
            bytes: usize::try_from(plan.bound.batch_bytes).unwrap_or(usize::MAX),
            row_bytes: self.definition.data.dataset.max_row_bytes,
            on_error: stage.on_error,
        };
        let mut reader = stage
            .source
            .open(part, &listed.columns, limits, &Restart::default())
            .map_err(|e| failed(name, e.into()))?;
        // A reader that does not know yet how large rows are begins with one.
        let (mut batches, mut n_rows, mut n_bytes) = (Vec::new(), 0, 0);
        while n_rows < wanted && n_bytes < limits.bytes && batches.len() < wanted {
            let next = reader.next().map_err(|e| failed(name, e.into()))?;
            let Some(mut batch) = next else { break };
            if let Some(alignment) = &listed.alignment {
                let source_error = |e| failed(name, SourceError::Arrow(e).into());
                batch = alignment.apply(batch).map_err(source_error)?;
            }
            n_rows += batch.rows.num_rows();
            n_bytes += batch.rows.get_array_memory_size();
            batches.push(batch);
        }
        let refused = |error: LinkError| {
            let name = error.name.clone();
            failed(&name, StageError::from(error).in_part(part, &*stage.source))
        };
        let first_rows = has_hooks.then_some(HOOK_ROWS);
        let how = Through { batch_bytes: limits.bytes, first_rows, on_error: None };
        self.send(batches, 0..self.transforms.len(), how).map_err(refused)
    }

    /// Does with a batch what the writer would do, but writing it.
    fn store(
        &self,
        plan: &Plan,
        stage: &SourceStage,
        part: &Part,
        batch: &Batch,
        sample: &mut Sample,
    ) -> Result<(), PipelineError> {
        let data = &self.definition.data.dataset;
        let sieve = Sieve {
            schema: &plan.schema,
            row_bytes: data.max_row_bytes,
            on_error: data.rejects.on_error,
            stage: self.transforms.len() + 1,
        };
        let stored = sieve.each(batch, &mut |sifted| {
            sample.rows += sifted.batch.rows.num_rows() as u64;
            let bytes = sifted.columns.iter().map(|column| column.bytes().len() as u64);
            sample.bytes += bytes.sum::<u64>();
            Ok(())
        });
        stored.map_err(|error: ShardError| {
            let error = StageError::from(error).in_batch(part, batch);
            failed("write", error.in_part(part, &*stage.source))
        })
    }

    /// Refuses a disk that cannot even hold what the inputs hold.
    fn check_space(&self, plan: &Plan, free: Option<u64>) -> Result<(), PipelineError> {
        let to_do = plan.partitions.iter().filter(|p| !p.is_done());
        let needed: u64 = to_do.map(|p| p.bytes).sum();
        match free {
            Some(free) if free < needed => Err(PipelineError::Space {
                path: self.home.dir().to_owned(),
                free: HumanBytes(free).to_string(),
                needed: HumanBytes(needed).to_string(),
            }),
            _ => Ok(()),
        }
    }
}

/// What a run says when `stage` fails.
pub(super) fn failed(stage: &str, source: StageError) -> PipelineError {
    PipelineError::from(Failed::Cause { stage: stage.to_owned(), source })
}

/// What the first batch tells of all rows.
#[derive(Debug, Default)]
struct Sample {
    rows: u64,
    bytes: u64,
}

/// `first`, then the dimensions, with commas.
pub(super) fn listed<const N: usize>(first: [String; N], shape: &[usize]) -> String {
    let dims: Vec<String> =
        first.into_iter().chain(shape.iter().map(ToString::to_string)).collect();
    dims.join(", ")
}

/// A field as people write it: `float32[256]`, `utf8, interned`.
pub(super) fn form(field: &Field) -> String {
    let base = match &field.logical {
        Some(logical) => logical.name().to_owned(),
        None => field.dtype.name().to_owned(),
    };
    let mut text = match field.kind {
        _ if field.is_bytes() => base,
        Kind::Free => format!("{base}[{}]", vec!["?"; field.shape.len()].join(", ")),
        Kind::Ragged => {
            format!("{base}[{}]", listed(["n".to_owned()], &field.shape))
        }
        Kind::Fixed | Kind::Interned if field.shape.is_empty() => base,
        Kind::Fixed | Kind::Interned => {
            format!("{base}[{}]", listed([], &field.shape))
        }
    };
    if let Some(categories) = &field.categories {
        text = format!("one of {} ({text})", categories.len());
    }
    if field.kind == Kind::Interned {
        text.push_str(", interned");
    }
    if field.nullable {
        text.push_str(", nullable");
    }
    if field.index {
        text.push_str(", in the index");
    }
    text
}
