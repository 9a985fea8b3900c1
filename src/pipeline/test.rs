//! Sends the rows of `[[test]]` through the transforms and compares what comes out.
//!
//! Invariants:
//! 1. Rows go through the transforms of the definition as in a run, hooks included, which are started
//!    once for all tests and end with them. Bad rows are rejects, whatever `on_error` says.
//! 2. Nothing is written.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use serde::Serialize;
use serde_json::Value;

use super::expected::{Tolerance, difference};
use super::given::{NoFit, column, is_json, value_shown};
use super::through::Through;
use super::{Pipeline, PipelineError, REPORT_VERSION};
use crate::batch::{Batch, Event, OnError, Outcome};
use crate::config::{GivenRow, TestCase, did_you_mean};

/// What came of the tests of a definition.
#[derive(Debug, Clone, Serialize)]
pub struct TestReport {
    /// Version of this document.
    pub version: u32,
    /// Tests whose expectations were met.
    pub passed: u64,
    /// Tests whose expectations were not.
    pub failed: u64,
    /// All of them, in the order of the file.
    pub tests: Vec<CaseReport>,
}

/// What came of a test.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// Its name.
    pub name: String,
    /// The transforms that its rows went through.
    pub stages: Vec<String>,
    /// Whether its expectations were met.
    pub passed: bool,
    /// Those that were not.
    pub failures: Vec<FailureReport>,
}

/// An expectation that was not met.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FailureReport {
    /// The row that came out, counted from 0, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Its column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub got: Option<String>,
    /// All of it, for people.
    pub message: String,
}

impl FailureReport {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    fn at(row: usize, column: &str, message: &str) -> Self {
        Self {
            row: Some(row as u64),
            column: Some(column.to_owned()),
            message: format!("row {row}, column `{column}`: {message}"),
            ..Self::default()
        }
    }
}

/// What the transforms made of the rows.
struct Came {
    rows: RecordBatch,
    events: Vec<Event>,
}

/// A test, and where it is.
struct Trial<'a> {
    index: String,
    test: &'a TestCase,
    /// The transforms that its rows go through.
    range: Range<usize>,
}

impl Pipeline {
    /// Sends the rows of each test through its transforms and compares what comes out.
    ///
    /// # Errors
    /// A test that cannot be tried: its rows have no such columns or values, or the columns of the
    /// sources cannot be learned.
    pub fn test(&self) -> Result<TestReport, PipelineError> {
        let tried = self.try_all();
        // Whatever was started ends, also where something failed.
        let ended = self.end_transforms();
        let tests = tried?;
        ended?;
        let passed = tests.iter().filter(|case| case.passed).count() as u64;
        let failed = tests.len() as u64 - passed;
        Ok(TestReport { version: REPORT_VERSION, passed, failed, tests })
    }

    fn try_all(&self) -> Result<Vec<CaseReport>, PipelineError> {
        let cases = &self.definition.tests;
        let range_of = |test: &TestCase| {
            let named = |name: &String| self.named_transforms().position(|it| it.0 == name);
            match test.stage.as_ref().and_then(named) {
                Some(stage) => stage..stage + 1,
                None => 0..self.transforms.len(),
            }
        };
        let needs_inputs = |test: &TestCase| test.types.is_none() || self.learns(range_of(test));
        let columns =
            if cases.iter().any(needs_inputs) { Some(self.list()?.columns) } else { None };
        let one = |(index, test): (usize, &TestCase)| {
            let trial = Trial { index: index.to_string(), test, range: range_of(test) };
            self.try_one(&trial, columns.as_ref())
        };
        cases.iter().enumerate().map(one).collect()
    }

    fn try_one(
        &self,
        trial: &Trial<'_>,
        columns: Option<&SchemaRef>,
    ) -> Result<CaseReport, PipelineError> {
        let reaching = match (&trial.test.types, columns) {
            (Some(types), _) => Arc::clone(types),
            (None, Some(columns)) => self.columns_before(trial.range.start, columns)?,
            (None, None) => Arc::new(Schema::empty()),
        };
        let rows = self.given(trial, &reaching)?;
        let output = self.output_of(trial, &rows.schema())?;
        let batch = Batch::of_rows(rows, 0);
        let how = Through {
            batch_bytes: self.definition.run.batch_bytes,
            first_rows: None,
            on_error: Some(OnError::Quarantine),
        };
        let failures = match self.send(vec![batch], trial.range.clone(), how) {
            Ok(batches) => {
                let events = batches.iter().flat_map(|batch| batch.events.clone()).collect();
                let rows = batches.iter().map(|batch| &batch.rows);
                let rows = concat_batches(&output, rows).map_err(PipelineError::Show)?;
                self.compare(trial, &Came { rows, events })?
            }
            Err(error) => {
                let mut message = error.to_string();
                let mut cause = error.source();
                while let Some(inner) = cause {
                    message = format!("{message}: {inner}");
                    cause = inner.source();
                }
                if let Some(hint) = error.hint() {
                    message = format!("{message} ({hint})");
                }
                vec![FailureReport::new(message)]
            }
        };
        let names = self.named_transforms().map(|it| it.0.to_owned());
        Ok(CaseReport {
            name: trial.test.name.clone(),
            stages: names.skip(trial.range.start).take(trial.range.len()).collect(),
            passed: failures.is_empty(),
            failures,
        })
    }

    /// The columns that reach the transform of index `index`.
    fn columns_before(&self, index: usize, source: &SchemaRef) -> Result<SchemaRef, PipelineError> {
        self.transforms.iter().take(index).try_fold(Arc::clone(source), |columns, transform| {
            transform.output(&columns).map_err(|e| PipelineError::settings("test", e))
        })
    }

    /// The rows that a test gives. Of the columns of sources only those that it gives are there: a
    /// test need not say what it is not about.
    fn given(&self, trial: &Trial<'_>, reaching: &SchemaRef) -> Result<RecordBatch, PipelineError> {
        let TestCase { given, types, .. } = trial.test;
        let names = || reaching.fields().iter().map(|field| field.name().as_str());
        for key in given.iter().flat_map(GivenRow::keys) {
            if reaching.fields().find(key).is_none() {
                let hint = did_you_mean(key, "there are", names());
                let message = format!("there is no column `{key}`");
                return Err(self.refused(trial, &["given"], &message, Some(hint)));
            }
        }
        let is_given = |field: &&FieldRef| {
            types.is_some() || given.iter().any(|row| row.contains_key(field.name()))
        };
        let fields: Vec<FieldRef> = reaching.fields().iter().filter(is_given).cloned().collect();
        let mut columns = Vec::with_capacity(fields.len());
        for field in &fields {
            let values = given.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null));
            let values: Vec<&Value> = values.collect();
            if let Some(row) = values.iter().position(|value| value.is_null())
                && !field.is_nullable()
            {
                let message = format!("row {row} has no `{}`", field.name());
                let hint = "there must be one in every row".to_owned();
                return Err(self.refused(trial, &["given"], &message, Some(hint)));
            }
            columns.push(column(field, &values).map_err(|NoFit(message)| {
                let message = format!("column `{}`: {message}", field.name());
                self.refused(trial, &["given"], &message, None)
            })?);
        }
        let schema = Schema::new(fields);
        let options = RecordBatchOptions::new().with_row_count(Some(given.len()));
        RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
            .map_err(PipelineError::Show)
    }

    /// The columns that come out where these go in.
    fn output_of(&self, trial: &Trial<'_>, input: &SchemaRef) -> Result<SchemaRef, PipelineError> {
        let transforms = self.named_transforms().skip(trial.range.start).take(trial.range.len());
        transforms.into_iter().try_fold(Arc::clone(input), |columns, (name, transform)| {
            transform.output(&columns).map_err(|e| {
                let message = format!("[transforms.{name}]: {}", e.message);
                self.refused(trial, &["given"], &message, e.hint)
            })
        })
    }

    /// An error about a key of a test.
    fn refused(
        &self,
        trial: &Trial<'_>,
        keys: &[&str],
        message: &str,
        hint: Option<String>,
    ) -> PipelineError {
        let keys: Vec<&str> =
            ["test", trial.index.as_str()].into_iter().chain(keys.iter().copied()).collect();
        let message = format!("[[test]] \"{}\": {message}", trial.test.name.escape_debug());
        self.definition.error_at(&keys, message, hint).into()
    }

    fn compare(&self, trial: &Trial<'_>, came: &Came) -> Result<Vec<FailureReport>, PipelineError> {
        let TestCase { expect, expect_null, expect_reject, atol, rtol, .. } = trial.test;
        let mut failures = self.compare_rejects(expect_reject, &came.events);
        let columns = came.rows.schema();
        let found = |key: &str, name: &str| {
            columns.index_of(name).map_err(|_| {
                let names = columns.fields().iter().map(|field| field.name().as_str());
                let hint = did_you_mean(name, "there are", names);
                self.refused(trial, &[key], &format!("no column `{name}` comes out"), Some(hint))
            })
        };
        let (rows, n_rows) = (expect.as_deref().unwrap_or_default(), came.rows.num_rows());
        if expect.is_some() && rows.len() != n_rows {
            let message = format!(
                "{} expected, {} out",
                rows_that(rows.len(), "was", "were"),
                rows_that(n_rows, "came", "came")
            );
            let (expected, got) = (Some(rows.len().to_string()), Some(n_rows.to_string()));
            failures.push(FailureReport { expected, got, ..FailureReport::new(message) });
        }
        let tolerance = Tolerance { absolute: *atol, relative: *rtol };
        for (row, expected) in rows.iter().enumerate() {
            for (name, value) in expected {
                let at = found("expect", name)?;
                if row < n_rows {
                    let field = columns.field(at);
                    let got = came.rows.column(at);
                    failures.extend(compare_value(field, value, (got, row), tolerance));
                }
            }
        }
        for name in expect_null {
            let column = came.rows.column(found("expect_null", name)?);
            failures.extend((0..n_rows).filter(|row| column.is_valid(*row)).map(|row| {
                let got = value_shown(column, row);
                let message = format!("expected no value, got {got}");
                let (expected, got) = (Some("no value".to_owned()), Some(got));
                FailureReport { expected, got, ..FailureReport::at(row, name, &message) }
            }));
        }
        Ok(failures)
    }

    /// What is wrong with the rows that were rejected.
    fn compare_rejects(&self, expected: &[String], events: &[Event]) -> Vec<FailureReport> {
        let mut expected = expected.iter();
        let mut failures = Vec::new();
        let rejected = events.iter().filter_map(|event| match &event.outcome {
            Outcome::Rejected { code, message } => Some((event, code, message)),
            Outcome::Dropped | Outcome::Created(_) => None,
        });
        for (event, code, message) in rejected {
            let want = expected.next();
            if want == Some(code) {
                continue;
            }
            let wanted = want.map(|want| format!(", and `{want}` was expected"));
            let stage = event.stage.checked_sub(1);
            let stage = stage.and_then(|stage| self.named_transforms().nth(stage));
            let message = format!(
                "row {} that went in was rejected by `{}` with `{code}`{}: {message}",
                event.source_row,
                stage.map_or("the source", |it| it.0),
                wanted.unwrap_or_default(),
            );
            failures.push(FailureReport {
                expected: want.cloned(),
                got: Some(code.clone()),
                ..FailureReport::new(message)
            });
        }
        failures.extend(expected.map(|code| FailureReport {
            expected: Some(code.clone()),
            ..FailureReport::new(format!("no row was rejected with `{code}`"))
        }));
        failures
    }
}

/// "1 row was", "2 rows were".
fn rows_that(n_rows: usize, one: &str, many: &str) -> String {
    if n_rows == 1 { format!("1 row {one}") } else { format!("{n_rows} rows {many}") }
}

/// Compares one value with what is expected of it.
fn compare_value(
    field: &Field,
    expected: &Value,
    (got, row): (&ArrayRef, usize),
    tolerance: Tolerance,
) -> Option<FailureReport> {
    let name = field.name();
    let expected = match column(field, &[expected]) {
        Ok(expected) => expected,
        Err(NoFit(message)) => {
            let message = format!("what is expected does not fit: {message}");
            let got = Some(value_shown(got, row));
            return Some(FailureReport { got, ..FailureReport::at(row, name, &message) });
        }
    };
    let it = difference((&expected, 0), (got, row), is_json(field), tolerance)?;
    let place = if it.at.is_empty() { String::new() } else { format!("at {}, ", it.at) };
    let more = match it.n_different {
        1 => String::new(),
        n => format!("; {n} of {} differ", it.n_scalars),
    };
    let message = format!("{place}expected {}, got {}{more}", it.expected, it.got);
    let (expected, got) = (Some(it.expected), Some(it.got));
    Some(FailureReport { expected, got, ..FailureReport::at(row, name, &message) })
}
