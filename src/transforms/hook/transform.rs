//! The transform that asks a hook: what both kinds of hooks share.
//!
//! Leaves out: which program a kind starts (`command`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use super::HookError;
use super::answer::{self, Declared};
use super::call::{Call, Called};
use super::known::{Answered, Counts, Keeping, Known, stored_schema};
use super::learn::{Columns, learn, unlearned};
use super::pool::{Launch, Pool};
use super::settings::{Cardinality, HookSettings, declarations};
use super::spread::{PARENT, Spread, parted};
use super::worker::{Failure, Limits};
use crate::batch::Batch;
use crate::cache::{Section, column_types};
use crate::fingerprint::{CompatSignature, canonical_json};
use crate::transforms::columns::{append, find, unexpected, with};
use crate::transforms::{
    Asked, Batching, Emit, Kept, Learner, Notes, OnError, SettingsError, Stage, Transform,
    TransformError, TransformSpec,
};

/// The variable that tells a hook its parameters.
const PARAMS: &str = "ROWMILL_PARAMS";
/// The variable that tells it that it may answer with any number of rows.
const CARDINALITY: &str = "ROWMILL_CARDINALITY";
/// The variable that tells it what columns it is to answer with.
const OUTPUT: &str = "ROWMILL_OUTPUT";
/// Most bytes of an argument, or of a variable with its name, on Linux, which has the least.
const MOST_TOLD: usize = (128 << 10) - 1;

/// The transform that asks processes.
#[derive(Debug)]
pub(super) struct Hook {
    name: String,
    settings: HookSettings,
    files: Vec<String>,
    columns: Mutex<Arc<Columns>>,
    launch: Launch,
    /// What tells it from others, beside the files and the columns.
    facts: serde_json::Value,
    keeping: Keeping,
    counts: Counts,
    /// Where answers are kept, while a run goes on that keeps them.
    section: Mutex<Option<Arc<Section>>>,
    /// There from the first batch on.
    pool: Mutex<Option<Arc<Pool>>>,
    notes: Mutex<Option<Arc<dyn Notes>>>,
}

/// What is started for a hook, and what tells it from others.
#[derive(Debug)]
pub(super) struct Program {
    /// Names what it computes.
    pub(super) id: String,
    /// What kind of hook it is, and what else decides its answers beside `id`, `params` and files.
    pub(super) kind: serde_json::Value,
    /// The program and its arguments.
    pub(super) command: Vec<OsString>,
    /// Variables that are set for it.
    pub(super) set: Vec<(String, String)>,
    /// Files whose contents decide what it computes, beside those that the settings name.
    pub(super) files: Vec<String>,
}

/// Something wrong with the setting `at`.
pub(super) fn refuse(at: &str, message: &str, hint: &str) -> SettingsError {
    let (message, hint) = (message.to_owned(), Some(hint.to_owned()));
    SettingsError { at: vec![at.to_owned()], message, hint }
}

/// Refuses what no process can be told.
fn refuse_long<'a>(
    command: &[OsString],
    set: impl IntoIterator<Item = &'a (String, String)>,
) -> Result<(), SettingsError> {
    let arguments = command.iter().map(|argument| ("command", argument.len()));
    let set = set.into_iter().map(|(name, value)| {
        let key = if name == OUTPUT { "output" } else { "params" };
        (key, name.len() + "=".len() + value.len())
    });
    let Some((key, n_bytes)) = arguments.chain(set).find(|(_, n_bytes)| *n_bytes > MOST_TOLD)
    else {
        return Ok(());
    };
    let message =
        format!("a process is told of it, in {n_bytes} bytes, and can be told {MOST_TOLD} at once");
    let hint = if key == "output" {
        "declare fewer columns, or give them shorter names"
    } else {
        "put it into a file, name that in `files`, and let the hook read it"
    };
    Err(refuse(key, &message, hint))
}

/// What a process is told of the columns that it is to answer with, where they are known.
fn told(fields: &[Field]) -> Option<(String, String)> {
    (!fields.is_empty()).then(|| (OUTPUT.to_owned(), canonical_json(&declarations(fields))))
}

impl Hook {
    /// The hook that `spec` names, which is `program`.
    pub(super) fn new(
        spec: &TransformSpec,
        settings: HookSettings,
        program: Program,
    ) -> Result<Self, SettingsError> {
        if program.id.is_empty() {
            return Err(refuse("id", "it is empty", "name what the hook computes: \"hog-v1\""));
        }
        let declared = settings.output.iter().flatten();
        if settings.output.as_ref().is_some_and(BTreeMap::is_empty) {
            let hint = "declare its columns, output.embedding = { dtype = \"float32\", shape = [128] }, or \
                        leave `output` out, and they are learned";
            return Err(refuse("output", "the hook answers with no column", hint));
        }
        if settings.cardinality == Cardinality::Any && declared.clone().any(|it| it.0 == PARENT) {
            let hint = "leave it out: it only says where rows come from";
            return Err(refuse("output", "`parent` is no column of the output", hint));
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
                let hint = "files stand in the folder of the definition, or below it; name the version of what \
                            is elsewhere in `id`, or put a symbolic link to it there";
                let message = format!("`{path}` leads out of the folder of the definition");
                return Err(refuse("files", &message, hint));
            }
        }
        if settings.cardinality == Cardinality::Any && settings.cache.is_some() {
            let hint = "leave it out, or let the hook answer with one row to each";
            return Err(refuse("cache", "it keeps one answer for each row, not any number", hint));
        }
        if settings.cache.as_ref().is_some_and(String::is_empty) {
            return Err(refuse("cache", "it is empty", "name a folder, or leave it out"));
        }
        let declared =
            declared.map(|(name, output)| output.field(name)).collect::<Result<Vec<_>, _>>()?;
        let params = serde_json::Value::Object(settings.params.clone().into_iter().collect());
        let mut facts = program.kind;
        facts["id"] = program.id.into();
        facts["params"] = params.clone();
        facts["rows_independent"] = settings.rows_independent.into();
        facts["cache_key"] = settings.cache_key.clone().into();
        let keeping = Keeping {
            dir: settings.cache.as_ref().map(|dir| spec.folder.join(dir)),
            key: settings.cache_key.clone(),
            rows_independent: settings.rows_independent,
        };
        let mut files = program.files;
        files.extend(settings.files.iter().cloned());
        let mut set = program.set;
        set.push((PARAMS.to_owned(), canonical_json(&params)));
        if settings.cardinality == Cardinality::Any {
            set.push((CARDINALITY.to_owned(), "any".to_owned()));
        }
        refuse_long(&program.command, set.iter().chain(&told(&declared)))?;
        let launch = Launch {
            name: spec.name.clone(),
            command: program.command,
            folder: spec.folder.clone(),
            env: settings.env.clone(),
            set,
            threads: settings.threads,
            workers: usize::try_from(settings.workers).unwrap_or(usize::MAX),
            notes: None,
            limits: Limits {
                timeout: settings.timeout.0,
                memory: settings.memory.map(|it| it.0),
                answer_bytes: settings.answer_bytes.0,
            },
        };
        let (name, pool, notes) = (spec.name.clone(), Mutex::default(), Mutex::default());
        let (counts, section) = (Counts::default(), Mutex::default());
        let columns = Mutex::new(Arc::new(Columns::declared(declared)));
        Ok(Self {
            name,
            settings,
            files,
            columns,
            launch,
            facts,
            keeping,
            counts,
            section,
            pool,
            notes,
        })
    }

    fn pool(&self) -> Result<Arc<Pool>, TransformError> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut launch = Launch { notes, ..self.launch.clone() };
        launch.set.extend(told(&self.columns().fields));
        let new = Pool::new(launch);
        let new = Arc::new(new.map_err(|source| HookError::Start { source })?);
        *pool = Some(Arc::clone(&new));
        Ok(new)
    }

    /// The columns of `input` that the hook is asked about.
    fn sent(&self, input: &SchemaRef) -> Result<Vec<usize>, SettingsError> {
        match &self.settings.input {
            None => Ok((0..input.fields().len()).collect()),
            Some(names) => {
                names.iter().map(|name| find(input, "input", name).map(|(at, _)| at)).collect()
            }
        }
    }

    fn columns(&self) -> Arc<Columns> {
        Arc::clone(&self.columns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on answers have these columns. A process is told when it starts: none is to be there.
    fn set_columns(&self, columns: Columns) {
        *self.columns.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(columns);
    }

    /// What answers must be, with these columns.
    fn declared<'a>(&self, columns: &'a Columns) -> Declared<'a> {
        Declared {
            fields: &columns.fields,
            learned_from: columns.learned_from.as_deref(),
            nan: self.settings.nan,
            answer_bytes: self.settings.answer_bytes.0,
        }
    }

    fn section(&self) -> Option<Arc<Section>> {
        self.section.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers to `question`, which is about `rows`; where there may be any number of them to each row,
    /// also where those to each end.
    fn answers(
        &self,
        call: &Call<'_>,
        question: &RecordBatch,
        rows: &RecordBatch,
        declared: Declared<'_>,
    ) -> Result<(Answered, Option<Vec<usize>>), TransformError> {
        if let Some(section) = self.section() {
            let (keeping, counts) = (&self.keeping, &self.counts);
            let known = Known { section: &section, keeping, declared, counts };
            return Ok((known.answer(call, question, rows)?, None));
        }
        let Called { answer, guilty, left, .. } = call.answer(question, &|_| Ok(None))?;
        if let Some(answer) = &answer
            && self.settings.cardinality == Cardinality::Any
        {
            let (answer, ends) = parted(answer, left.len())?;
            let columns = answer::fit(&answer, answer.num_rows(), declared)?;
            return Ok((Answered { columns: Some(columns), guilty }, Some(ends)));
        }
        let fit = |answer| answer::fit(&answer, left.len(), declared);
        Ok((Answered { columns: answer.map(fit).transpose()?, guilty }, None))
    }

    /// Passes `error` on, and sees to it that no answer is believed that it casts doubt on: neither by
    /// this run nor by a later one.
    fn doubted(&self, error: TransformError, section: Option<Arc<Section>>) -> TransformError {
        let TransformError::Hook(hook) = &error else { return error };
        let Some(how) = hook.doubt() else { return error };
        let what = format!("hook `{}`: {how}", self.name);
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(notes) = notes {
            notes.distrust(&what);
        }
        if let Some(section) = section
            && let Err(error) = section.distrust(&what)
        {
            tracing::error!(%error, "the feature cache cannot be marked: prune its section");
        }
        error
    }

    /// What the hook is sent: columns without the metadata that some source gave them.
    fn question(&self, rows: &RecordBatch) -> Result<RecordBatch, TransformError> {
        let asked = self.sent(&rows.schema()).map_err(|e| unexpected(&e))?;
        let asked = rows.project(&asked)?;
        let schema = Schema::new(asked.schema().fields().clone());
        let options = RecordBatchOptions::new().with_row_count(Some(asked.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::new(schema), asked.columns().to_vec(), &options)?)
    }
}

impl Transform for Hook {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        self.sent(input)?;
        if let Some(name) = &self.keeping.key {
            find(input, "cache_key", name)?;
        }
        append(input, "output", self.columns().fields.iter().cloned())
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
        let question = self.question(&batch.rows)?;
        let known = self.columns();
        let declared = self.declared(&known);
        let answers = self.answers(&call, &question, &batch.rows, declared);
        let answers = answers.map_err(|error| self.doubted(error, self.section()))?;
        let (Answered { columns, guilty }, ends) = answers;
        let mut gone = Vec::with_capacity(guilty.len());
        for (row, bad) in guilty {
            gone.push((row, stage.settle(&batch, row, bad)?));
        }
        let batch = batch.without(stage.index, gone)?;
        let Some(columns) = columns else {
            return Ok(emit.emit(Batch { rows: RecordBatch::new_empty(output), ..batch })?);
        };
        if let Some(ends) = ends {
            return Spread { stage, batch: &batch, columns, ends, declared, output }.emit(emit);
        }
        let bad = answer::judge(&columns, declared);
        let mut gone = Vec::with_capacity(bad.len());
        for (row, bad) in bad {
            gone.push((row, stage.settle(&batch, row, bad)?));
        }
        let rows = loose(&output, with(&batch, columns))?;
        let kept = Batch { rows, ..batch }.without(stage.index, gone)?;
        let rows = strict(&output, &kept.rows)?;
        Ok(emit.emit(Batch { rows, ..kept })?)
    }

    fn batching(&self) -> Option<Batching> {
        let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        Some(Batching {
            rows: count(self.settings.batch_rows),
            bytes: self.settings.batch_bytes.0,
            answer_bytes: self.settings.answer_bytes.0,
            workers: count(self.settings.workers),
            is_kept: self.keeping.dir.is_some(),
            multiplies: self.settings.cardinality == Cardinality::Any,
        })
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn kept(
        &self,
        input: &SchemaRef,
        files: &BTreeMap<String, String>,
    ) -> Result<Option<Kept>, SettingsError> {
        let Some(dir) = &self.keeping.dir else { return Ok(None) };
        let sent = self.sent(input)?;
        let sent = input.project(&sent).map_err(|e| refuse("input", &e.to_string(), ""))?;
        let types = column_types(&sent).map_err(|e| {
            refuse("input", &e.to_string(), "leave the column out of `input`, or cast it before")
        })?;
        let own = files.iter().filter(|(path, _)| self.files.contains(path));
        let Columns { fields, .. } = &*self.columns();
        let mut facts = self.facts.clone();
        facts["output"] = fields.iter().map(|field| field.name().as_str()).collect();
        facts["input"] = types;
        facts["files"] = own.map(|(path, b3)| (path.clone(), b3.clone())).collect();
        let (signature, columns) = (CompatSignature::new(&facts), stored_schema(fields));
        Ok(Some(Kept { dir: dir.clone(), signature, columns }))
    }

    fn remember(&self, section: Arc<Section>) {
        self.counts.reset();
        *self.section.lock().unwrap_or_else(PoisonError::into_inner) = Some(section);
    }

    fn asked(&self) -> Option<Asked> {
        self.keeping.dir.as_ref().map(|_| self.counts.asked())
    }

    fn learner(&self) -> Option<&dyn Learner> {
        if self.settings.output.is_none() { Some(self) } else { None }
    }

    fn begin(&self, notes: Arc<dyn Notes>) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = Some(notes);
    }

    fn is_unsure(&self) -> bool {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.as_ref().is_some_and(|pool| pool.is_unsure())
    }

    fn end(&self) -> Result<(), TransformError> {
        let section = self.section.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        match pool.map(|pool| pool.end()) {
            Some(Err(Failure::Garbled(garbled))) => {
                Err(self.doubted(HookError::late(garbled).into(), section))
            }
            _ => Ok(()),
        }
    }
}

impl Learner for Hook {
    fn learn(
        &self,
        stage: Stage,
        batch: &Batch,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Schema, TransformError> {
        self.end()?;
        self.set_columns(Columns::default());
        let (pool, ends_at_first) = (self.pool()?, stage.on_error == OnError::Fail);
        let call = Call { pool: &pool, name: &self.name, is_stopped, ends_at_first };
        let called = call.answer(&self.question(&batch.rows)?, &|_| Ok(None))?;
        for (row, bad) in called.guilty {
            stage.settle(batch, row, bad)?;
        }
        let Some(mut answer) = called.answer else {
            return Err(unlearned("all of the first rows are bad").into());
        };
        let mut n_rows = called.left.len();
        if self.settings.cardinality == Cardinality::Any {
            answer = parted(&answer, n_rows)?.0;
            n_rows = answer.num_rows();
        }
        let columns = Columns::declared(learn(&answer)?);
        refuse_long(&[], &told(&columns.fields)).map_err(|e| unlearned(&e.message))?;
        answer::fit(&answer, n_rows, self.declared(&columns))?;
        if n_rows == 0 {
            return Err(unlearned("it makes no row of the first ones").into());
        }
        Ok(Schema::new(columns.fields))
    }

    fn teach(&self, columns: &Schema, path: &str) -> Result<(), TransformError> {
        self.end()?;
        self.set_columns(Columns::learned(columns, path));
        Ok(())
    }
}

/// Rows in which any column may have nulls: until those that lack a value are gone, there are some.
pub(super) fn loose(
    output: &SchemaRef,
    columns: Vec<ArrayRef>,
) -> Result<RecordBatch, TransformError> {
    let fields = output.fields().iter().map(|f| f.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Rows as they were declared.
pub(super) fn strict(
    output: &SchemaRef,
    rows: &RecordBatch,
) -> Result<RecordBatch, TransformError> {
    Ok(RecordBatch::try_new(SchemaRef::clone(output), rows.columns().to_vec())?)
}
