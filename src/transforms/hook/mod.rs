//! Feature hooks: programs in any language that compute columns.
//!
//! A hook is a process that reads an Arrow IPC stream on stdin and writes one on stdout: for each batch
//! one batch with as many rows, in the same order. It is asked about the columns that `input` names;
//! what it answers is checked and put behind the columns of the batch.
//!
//! In reading order: `settings` is what a definition says; [`CommandHook`] is the transform; `call` asks
//! about one batch, whatever happens; `pool` has the processes, `worker` is one of them; `frames` reads
//! what it writes; `answer` checks it; [`become_hook`] is how this program becomes the hook.
//!
//! Invariants:
//! 1. A hook is asked about the same batches in every run ([`Batching`]), and each answer that is kept is
//!    the answer to one of them, or to one without its guilty rows.
//! 2. Whatever a process does, the run goes on, rejects rows, or ends with an error that says what the
//!    process did: it never hangs, never takes an answer for another's, and no process stays.

mod answer;
mod call;
mod exec;
mod frames;
mod pool;
mod resident;
mod settings;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use schemars::JsonSchema;

pub use exec::become_hook;

use self::call::{Call, said};
use self::pool::{Launch, Pool};
use self::settings::{CommandSettings, RUN_SETTINGS};
use self::worker::{Failure, Limits};
use super::columns::{append, find, unexpected, with};
use super::{
    Batching, Emit, OnError, SettingsError, Stage, Transform, TransformError, TransformSpec,
    TransformType,
};
use crate::batch::Batch;
use crate::fingerprint::canonical_json;
use crate::sources::parse_settings;

pub(super) const COMMAND: TransformType = TransformType {
    name: "command",
    version: 1,
    about: "columns that a program in any language computes",
    settings: CommandSettings::json_schema,
    run_settings: RUN_SETTINGS,
    make: |spec| Ok(Box::new(CommandHook::new(spec)?)),
};

/// The variable that tells a hook its parameters.
const PARAMS: &str = "ROWMILL_PARAMS";

/// A hook cannot be run, or does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The system starts no process.
    #[error("its process cannot be started")]
    Start {
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It has never answered, whatever it was asked about.
    #[error("it has never answered: {how}")]
    Never {
        /// How its process ended.
        how: String,
        /// What it said.
        hint: Option<String>,
    },
    /// It fails on a batch, but on no row of it alone.
    #[error("it does not answer to {n_rows} rows together, but to each alone: {how}")]
    Together {
        /// Rows of the batch.
        n_rows: usize,
        /// How its process ended.
        how: String,
        /// What to do.
        hint: Option<String>,
    },
    /// What it writes is no stream of answers.
    #[error("{how}")]
    Garbled {
        /// What it writes instead.
        how: String,
        /// What to do.
        hint: String,
    },
    /// Its answer is not what was declared.
    #[error("{message}")]
    Misfit {
        /// What was declared, and what came.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl HookError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Start { .. } => Some("check the folder of the definition and `ulimit -u`"),
            Self::Never { hint, .. } | Self::Together { hint, .. } => hint.as_deref(),
            Self::Garbled { hint, .. } | Self::Misfit { hint, .. } => Some(hint),
        }
    }

    fn never(how: String, stderr: &[String]) -> Self {
        Self::Never { how, hint: said(stderr) }
    }

    fn together(n_rows: usize, how: String, stderr: &[String]) -> Self {
        Self::Together { n_rows, how, hint: said(stderr) }
    }

    fn garbled(how: String, stderr: &[String]) -> Self {
        let mut hint =
            "a hook writes one batch to stdout for each that it reads, and nothing else; \
                        what people are to read goes to stderr"
                .to_owned();
        if let Some(said) = said(stderr) {
            hint = format!("{hint}; {said}");
        }
        Self::Garbled { how, hint }
    }

    fn misfit(message: String, hint: &str) -> Self {
        Self::Misfit { message, hint: hint.to_owned() }
    }
}

impl From<HookError> for TransformError {
    fn from(error: HookError) -> Self {
        Self::Hook(Box::new(error))
    }
}

/// The transform that asks processes.
#[derive(Debug)]
struct CommandHook {
    name: String,
    settings: CommandSettings,
    declared: Vec<Field>,
    launch: Launch,
    /// There from the first batch on.
    pool: Mutex<Option<Arc<Pool>>>,
}

impl CommandHook {
    fn new(spec: &TransformSpec) -> Result<Self, SettingsError> {
        let settings: CommandSettings = parse_settings(&spec.settings)?;
        let refuse = |at: &str, message: &str, hint: &str| SettingsError {
            at: vec![at.to_owned()],
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        };
        if settings.command.first().is_none_or(String::is_empty) {
            let hint = "name a program and its arguments: [\"python3\", \"hook.py\"]";
            return Err(refuse("command", "there is no program", hint));
        }
        if settings.id.is_empty() {
            return Err(refuse("id", "it is empty", "name what the hook computes: \"hog-v1\""));
        }
        if settings.output.is_empty() {
            let hint =
                "declare its columns: output.embedding = { dtype = \"float32\", shape = [128] }";
            return Err(refuse("output", "the hook answers with no column", hint));
        }
        for (key, n) in [
            ("batch_rows", settings.batch_rows),
            ("workers", settings.workers),
            ("threads", settings.threads),
        ] {
            if n == 0 {
                return Err(refuse(key, "it is 0", "write at least 1"));
            }
        }
        for path in &settings.files {
            if path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..")
            {
                let hint = "files stand in the folder of the definition, or below it";
                return Err(refuse("files", &format!("`{path}` leads out of it"), hint));
            }
        }
        let declared = settings.output.iter().map(|(name, output)| output.field(name));
        let declared = declared.collect::<Result<_, _>>()?;
        let params = serde_json::Value::Object(settings.params.clone().into_iter().collect());
        let launch = Launch {
            name: spec.name.clone(),
            command: settings.command.iter().map(Into::into).collect(),
            folder: spec.folder.clone(),
            env: settings.env.clone(),
            set: vec![(PARAMS.to_owned(), canonical_json(&params))],
            threads: settings.threads,
            workers: usize::try_from(settings.workers).unwrap_or(usize::MAX),
            limits: Limits {
                timeout: settings.timeout.0,
                memory: settings.memory.map(|it| it.0),
                answer_bytes: settings.answer_bytes.0,
            },
        };
        let (name, pool) = (spec.name.clone(), Mutex::default());
        Ok(Self { name, settings, declared, launch, pool })
    }

    fn pool(&self) -> Result<Arc<Pool>, TransformError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let new = Pool::new(self.launch.clone());
        let new = Arc::new(new.map_err(|source| HookError::Start { source })?);
        *pool = Some(Arc::clone(&new));
        Ok(new)
    }

    /// The columns of `input` that the hook is asked about.
    fn asked(&self, input: &SchemaRef) -> Result<Vec<usize>, SettingsError> {
        match &self.settings.input {
            None => Ok((0..input.fields().len()).collect()),
            Some(names) => {
                names.iter().map(|name| find(input, "input", name).map(|(at, _)| at)).collect()
            }
        }
    }

    /// What the hook is sent: columns without the metadata that some source gave them.
    fn question(&self, rows: &RecordBatch) -> Result<RecordBatch, TransformError> {
        let asked = self.asked(&rows.schema()).map_err(|e| unexpected(&e))?;
        let asked = rows.project(&asked)?;
        let schema = Schema::new(asked.schema().fields().clone());
        let options = RecordBatchOptions::new().with_row_count(Some(asked.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(schema), asked.columns().to_vec(), &options)?)
    }
}

impl Transform for CommandHook {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        self.asked(input)?;
        append(input, "output", self.declared.iter().cloned())
    }

    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let output = self.output(&batch.rows.schema()).map_err(|e| unexpected(&e))?;
        if batch.rows.num_rows() == 0 {
            return Ok(emit.emit(Batch { rows: RecordBatch::new_empty(output), ..batch })?);
        }
        let pool = self.pool()?;
        let is_stopped = || emit.is_stopped();
        let call = Call {
            pool: &pool,
            name: &self.name,
            is_stopped: &is_stopped,
            ends_at_first: stage.on_error == OnError::Fail,
        };
        let called = call.answer(&self.question(&batch.rows)?)?;
        let mut gone = Vec::with_capacity(called.guilty.len());
        for (row, bad) in called.guilty {
            gone.push((row, stage.settle(&batch, row, bad)?));
        }
        let batch = batch.without(stage.index, gone)?;
        let Some(answer) = called.answer else {
            return Ok(emit.emit(Batch { rows: RecordBatch::new_empty(output), ..batch })?);
        };
        let n_rows = batch.rows.num_rows();
        let (columns, bad) = answer::check(&answer, n_rows, &self.declared, self.settings.nan)?;
        let mut gone = Vec::with_capacity(bad.len());
        for (row, bad) in bad {
            gone.push((row, stage.settle(&batch, row, bad)?));
        }
        let columns = with(&batch, columns);
        let rows = if gone.is_empty() {
            RecordBatch::try_new(output, columns)?
        } else {
            // Until the rows that lack a value are gone, there are columns with nulls.
            let fields = output.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
            let nullable = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
            let rows = RecordBatch::try_new(nullable, columns)?;
            let kept = Batch { rows, ..batch }.without(stage.index, gone)?;
            let rows = RecordBatch::try_new(output, kept.rows.columns().to_vec())?;
            return Ok(emit.emit(Batch { rows, ..kept })?);
        };
        Ok(emit.emit(Batch { rows, ..batch })?)
    }

    fn batching(&self) -> Option<Batching> {
        let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        Some(Batching {
            rows: count(self.settings.batch_rows),
            bytes: self.settings.batch_bytes.0,
            answer_bytes: self.settings.answer_bytes.0,
            workers: count(self.settings.workers),
        })
    }

    fn files(&self) -> &[String] {
        &self.settings.files
    }

    fn end(&self) -> Result<(), TransformError> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        match pool.map(|pool| pool.end()) {
            Some(Err(Failure::Garbled(how))) => Err(HookError::garbled(how, &[]).into()),
            _ => Ok(()),
        }
    }
}
