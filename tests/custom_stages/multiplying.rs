//! Two transforms that make several rows of one, and stages before and behind them that reject rows:
//! positions, rejects and books are those of a model, with any number of jobs and after kills.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, LargeStringArray, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rowmill::batch::{BadRow, Batch, Event as RowEvent, Outcome, Provenance, Run};
use rowmill::books::StageBooks;
use rowmill::config::Registry;
use rowmill::dataset::Dataset;
use rowmill::pipeline::{Event, Live, Observer, Pipeline, RunOverrides};
use rowmill::shard::Reject;
use rowmill::transforms::{Emit, SettingsError, Stage, Transform, TransformError, TransformType};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::command::{Place, files_of, joined};

/// Lines of words, most of which are numbers. `tag` is a category, or the dataset rejects the row;
/// `n` is a number, or the source does.
const DEFINITION: &str = r#"version = 1
name = "words"

[sources.lines]
type = "csv"
root = "in"
path = "*.csv"
types = { n = "int32", text = "utf8", tag = "utf8" }
on_error = "quarantine"

[transforms.words]
type = "words"
from = "text"
to = "word"
separator = " "
on_error = "quarantine"

[transforms.parts]
type = "words"
from = "word"
to = "part"
separator = "-"
on_error = "quarantine"

[transforms.numbers]
type = "cast"
types = { part = "int16" }
on_error = "quarantine"

[dataset]
partition_bytes = 500
shard_rows = 3
max_row_bytes = "1KiB"
on_error = "quarantine"

[dataset.fields]
tag = { categorical = ["a", "b"] }

[run]
commit_bytes = 1
commit_interval = "1h"
"#;

/// A row for each word of the column `from`, as `to`. A text without words leaves nothing, a word
/// `bad` is a bad row. At most two rows leave at once: a commit may fall between the rows of one line.
#[derive(Debug)]
struct Words {
    from: String,
    to: String,
    separator: String,
}

const WORDS: TransformType = TransformType {
    name: "words",
    version: 1,
    about: "one row for each word",
    settings: |_| {
        let text = || schemars::json_schema!({ "type": "string" });
        let properties = ["from", "to", "separator"].map(|key| (key, text()));
        schemars::json_schema!({
            "type": "object",
            "properties": std::collections::BTreeMap::from(properties)
        })
    },
    run_settings: &[],
    make: |spec| {
        let text = |key: &str| spec.settings[key].as_str().unwrap().to_owned();
        Ok(Box::new(Words { from: text("from"), to: text("to"), separator: text("separator") }))
    },
};

/// Rows that are about to leave.
#[derive(Default)]
struct Piece {
    /// The row of the batch that each comes from.
    from: Vec<u32>,
    words: Vec<String>,
    provenance: Provenance,
    events: Vec<RowEvent>,
}

impl Words {
    fn emit(
        &self,
        stage: Stage,
        batch: &Batch,
        piece: &mut Piece,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        let Piece { from, words, provenance, events } = std::mem::take(piece);
        let from = UInt32Array::from(from);
        let mut columns: Vec<ArrayRef> = Vec::new();
        for column in batch.rows.columns() {
            columns.push(arrow_select::take::take(column, &from, None)?);
        }
        let is_bad: Vec<usize> =
            words.iter().enumerate().filter(|(_, word)| *word == "bad").map(|(i, _)| i).collect();
        columns.push(Arc::new(LargeStringArray::from(words)));
        let schema = self.output(&batch.rows.schema()).unwrap();
        let rows = RecordBatch::try_new(schema, columns)?;
        let made = Batch { rows, provenance, events, restart: batch.restart.clone() };
        let gone = is_bad.into_iter().map(|row| {
            let bad = BadRow::new("bad_word", "a bad word").field(&self.to);
            Ok((row, stage.settle(&made, row, bad)?))
        });
        let gone = gone.collect::<Result<Vec<_>, TransformError>>()?;
        Ok(emit.emit(made.without(stage.index, gone)?)?)
    }
}

impl Transform for Words {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let word = Arc::new(Field::new(&self.to, DataType::LargeUtf8, false));
        let fields = input.fields().iter().cloned().chain([word]);
        Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    }

    fn apply(&self, stage: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let texts = batch.rows.column_by_name(&self.from).unwrap();
        let texts = texts.as_string::<i64>();
        let mut before = batch.events.iter().peekable();
        let mut piece = Piece::default();
        for row in 0..batch.rows.num_rows() {
            while let Some(event) = before.next_if(|event| event.before_row <= row as u64) {
                let before_row = piece.from.len() as u64;
                piece.events.push(RowEvent { before_row, ..event.clone() });
            }
            let at = batch.provenance.position(row as u64).unwrap();
            let words = texts.value(row).split(&self.separator).filter(|word| !word.is_empty());
            let words: Vec<&str> = words.collect();
            let run = batch.provenance.runs().iter().rfind(|run| run.row <= row as u64).unwrap();
            let outcome = match words.len() as u64 {
                0 => Some(Outcome::Dropped),
                1 => None,
                n => Some(Outcome::Created(n - 1)),
            };
            piece.events.extend(outcome.map(|outcome| RowEvent {
                before_row: piece.from.len() as u64,
                input: at.input,
                source_row: at.source_row,
                path: if run.sub_row < 0 { Vec::new() } else { vec![at.sub_row] },
                stage: stage.index,
                outcome,
            }));
            let number = emit.number(at, words.len() as u64)?;
            for (sub_row, word) in (number.cast_signed()..).zip(words) {
                let (input, source_row) = (at.input, at.source_row);
                piece.from.push(u32::try_from(row).unwrap());
                piece.words.push(word.to_owned());
                piece.provenance.push_run(Run { row: 0, input, source_row, sub_row }, 1);
                if piece.from.len() == 2 {
                    self.emit(stage, &batch, &mut piece, emit)?;
                }
            }
        }
        for event in before {
            let before_row = piece.from.len() as u64;
            piece.events.push(RowEvent { before_row, ..event.clone() });
        }
        self.emit(stage, &batch, &mut piece, emit)
    }
}

fn registry() -> Registry {
    crate::custom_stages::registry().with(&[], &[WORDS])
}

/// The lines of file `file`: number, text and tag.
fn lines(file: usize) -> Vec<(&'static str, &'static str, &'static str)> {
    const LINES: [(&str, &str, &str); 9] = [
        ("1", "10-11 20 30-31-32 40 50 60 70", "a"),
        ("2", "", "a"),
        ("x", "1 2 3", "b"),
        ("3", "bad 1-bad-2 bad word-3 2 99999 - 3-bad bad", "b"),
        ("4", "1", "c"),
        ("5", "bad", "a"),
        ("6", "1-2 2 bad 4 5", "c"),
        ("7", "no number here", "a"),
        ("8", "- 5 bad 6-7-bad-8 -- bad", "b"),
    ];
    (0..LINES.len()).filter(|i| (i + file) % 4 != 1).map(|i| LINES[(i * 4 + file) % 9]).collect()
}

fn place() -> Place {
    let place = Place::new();
    place.write("p.toml", DEFINITION);
    for file in 0..8 {
        let lines = lines(file);
        let rows = joined(lines.iter().map(|(n, text, tag)| format!("{n},{text},{tag}\n")));
        // Empty lines are skipped: each file is as large as a partition, none is cut.
        place.write(&format!("in/{file}.csv"), format!("{:\n<500}", format!("n,text,tag\n{rows}")));
    }
    place
}

/// What there must be of a file: rows with their positions, rejects in order, and books.
#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    rows: Vec<(u64, u64, i16)>,
    rejects: Vec<(u64, Vec<u64>, &'static str, &'static str)>,
    books: BTreeMap<&'static str, StageBooks>,
}

impl Model {
    fn of(file: usize) -> Self {
        let mut it = Self::default();
        let reject = |it: &mut Self, row, path: &[u64], stage, code| {
            it.rejects.push((row, path.to_vec(), stage, code));
        };
        let mut books = [StageBooks::default(); 5];
        for (row, (n, text, tag)) in (0..).zip(lines(file)) {
            books[0].entered += 1;
            if n == "x" {
                books[0].rejected += 1;
                reject(&mut it, row, &[], "lines", "value_misfit");
                continue;
            }
            books[1].entered += 1;
            let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
            match words.len() as u64 {
                0 => books[1].dropped += 1,
                n => books[1].created += n - 1,
            }
            let mut n_parts = 0;
            for (sub_row, word) in (0..).zip(words) {
                if word == "bad" {
                    books[1].rejected += 1;
                    reject(&mut it, row, &[sub_row], "words", "bad_word");
                    continue;
                }
                books[2].entered += 1;
                let parts: Vec<&str> = word.split('-').filter(|part| !part.is_empty()).collect();
                match parts.len() as u64 {
                    0 => books[2].dropped += 1,
                    n => books[2].created += n - 1,
                }
                for part in parts {
                    let sub_row = n_parts;
                    n_parts += 1;
                    if part == "bad" {
                        books[2].rejected += 1;
                        reject(&mut it, row, &[sub_row], "parts", "bad_word");
                        continue;
                    }
                    books[3].entered += 1;
                    let Ok(number) = part.parse::<i16>() else {
                        books[3].rejected += 1;
                        reject(&mut it, row, &[sub_row], "numbers", "value_misfit");
                        continue;
                    };
                    books[4].entered += 1;
                    if tag == "c" {
                        books[4].rejected += 1;
                        reject(&mut it, row, &[sub_row], "dataset", "category");
                    } else {
                        books[4].out += 1;
                        it.rows.push((row, sub_row, number));
                    }
                }
            }
        }
        for (stage, name) in
            ["lines", "words", "parts", "numbers", "dataset"].into_iter().enumerate()
        {
            if let Some(next) = books.get(stage + 1) {
                books[stage].out = next.entered;
            }
            it.books.insert(name, books[stage]);
        }
        it
    }
}

/// Compares a dataset with the model.
fn check(place: &Place, out: &str) {
    let dataset = Dataset::open(place.path(out).join("words")).unwrap();
    let mut rows: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    let mut rejects: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for shard in dataset.shards() {
        let shard = shard.unwrap();
        let made_from = std::fs::read(shard.path().join("fingerprint.json")).unwrap();
        let made_from: Value = serde_json::from_slice(&made_from).unwrap();
        assert_eq!(made_from["inputs"].as_array().unwrap().len(), 1);
        let file = made_from["inputs"][0]["path"].as_str().unwrap();
        let file: usize = file.trim_end_matches(".csv").parse().unwrap();
        let provenance = shard.provenance().unwrap();
        for row in 0..shard.n_rows() {
            let at = provenance.position(row).unwrap();
            let word = shard.field("part").unwrap().row(row).unwrap();
            let word = i16::from_le_bytes(word.try_into().unwrap());
            rows.entry(file).or_default().push((at.source_row, at.sub_row, word));
        }
        let of_file = rejects.entry(file).or_default();
        shard
            .rejects(|Reject { source_row, path, stage, code, .. }| {
                of_file.push((source_row, path, stage, code));
            })
            .unwrap();
    }
    let mut books: BTreeMap<&str, StageBooks> = BTreeMap::new();
    for file in 0..8 {
        let model = Model::of(file);
        assert_eq!(rows.remove(&file).unwrap_or_default(), model.rows, "{out}: file {file}");
        let want = model.rejects.into_iter();
        let want = want.map(|(row, path, stage, code)| (row, path, stage.into(), code.into()));
        let found = rejects.remove(&file).unwrap_or_default();
        assert_eq!(found, want.collect::<Vec<(_, _, String, String)>>(), "{out}: file {file}");
        for (stage, of_file) in model.books {
            books.entry(stage).or_default().add(&of_file);
        }
    }
    let found: BTreeMap<&str, StageBooks> =
        dataset.about().books.iter().map(|(stage, books)| (stage.as_str(), *books)).collect();
    assert_eq!(found, books, "{out}");
}

/// Ends the process at a commit, as SIGKILL does.
struct KillAt {
    commits: usize,
    seen: AtomicUsize,
}

impl Observer for KillAt {
    fn event(&self, event: &Event) {
        let is_commit = matches!(event, Event::Committed { .. });
        if is_commit && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.commits {
            let this = rustix::process::getpid();
            rustix::process::kill_process(this, rustix::process::Signal::KILL).unwrap();
        }
    }
}

/// Builds; killed at the commit of number `commits`, if there are as many.
pub(crate) fn run(place: &Place, out: &str, jobs: usize, batch_rows: usize, commits: usize) {
    let overrides = RunOverrides {
        set: vec![format!("run.batch_rows={batch_rows}")],
        out: Some(place.path(out)),
        jobs: Some(jobs),
        ..RunOverrides::default()
    };
    let pipeline = Pipeline::load(&place.path("p.toml"), &overrides, registry()).unwrap();
    let observer = Arc::new(KillAt { commits, seen: AtomicUsize::new(0) });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (live, stop) = (Arc::new(Live::default()), CancellationToken::new());
    runtime.block_on(Arc::new(pipeline).run(observer, live, stop)).unwrap();
}

/// Names the folder and how to build, in the processes that are to be killed.
const CHILD: &str = "ROWMILL_TEST_MULTIPLYING";

/// The same in a process of its own. Whether it came to its end.
pub(crate) fn run_apart(
    place: &Place,
    out: &str,
    jobs: usize,
    batch_rows: usize,
    commits: usize,
) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "multiplying::is_killed_at_a_commit", "--include-ignored"]);
    let folder = place.path("").display().to_string();
    command.env(CHILD, format!("{out} {jobs} {batch_rows} {commits} {folder}"));
    let ended = command.output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
    assert!(ended.status.success() || signal == Some(9), "{ended:?}");
    ended.status.success()
}

#[test]
#[ignore = "run by other tests, in a process that may be killed"]
fn is_killed_at_a_commit() {
    let Ok(how) = std::env::var(CHILD) else { return };
    let mut words = how.splitn(5, ' ');
    let out = words.next().unwrap();
    let mut number = || words.next().unwrap().parse::<usize>().unwrap();
    let (jobs, batch_rows, commits) = (number(), number(), number());
    let place = Place::at(words.next().unwrap());
    run(&place, out, jobs, batch_rows, commits);
}

#[test]
fn rejects_among_multiplied_rows_are_the_same_with_any_number_of_jobs() {
    let place = place();
    run(&place, "one", 1, 1000, 0);
    check(&place, "one");
    let want = files_of(&place.path("one"));
    for (jobs, batch_rows) in [(1, 1), (2, 1000), (2, 2), (7, 1), (7, 3)] {
        let out = format!("{jobs}-{batch_rows}");
        run(&place, &out, jobs, batch_rows, 0);
        assert!(files_of(&place.path(&out)) == want, "{out}");
    }
}

#[test]
fn rejects_among_multiplied_rows_are_the_same_after_a_kill_at_every_commit() {
    let place = place();
    run(&place, "whole", 1, 1000, 0);
    let want = files_of(&place.path("whole"));
    // Killed at each commit that it makes, until nothing is left to do.
    for (jobs, batch_rows) in [(1, 1000), (2, 2)] {
        let out = format!("each-{jobs}");
        let n_kills = (0..1000)
            .find(|_| run_apart(&place, &out, jobs, batch_rows, 1))
            .expect("comes to an end");
        assert!(n_kills >= 20, "{n_kills} kills");
        assert!(files_of(&place.path(&out)) == want, "{out}, killed {n_kills} times");
        check(&place, &out);
    }
    // Killed once, later and later, and ended in another way.
    for commits in (2..).step_by(5) {
        let out = format!("at-{commits}");
        let ended = run_apart(&place, &out, 3, 1, commits);
        run(&place, &out, 7, 2, 0);
        assert!(files_of(&place.path(&out)) == want, "{out}");
        if ended {
            assert!(commits > 20, "only {commits} commits");
            break;
        }
    }
}
