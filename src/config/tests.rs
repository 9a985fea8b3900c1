//! Definitions read end to end, with stages that only have settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::batch::{Batch, Restart};
use crate::inputs::{Input, InputDigest, Part};
use crate::sources::{BatchLimits, BatchReader, SourceError};
use crate::transforms::{Emit, Stage, TransformError, TransformSpec};

/// How lines end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Ending {
    /// One character.
    #[default]
    Lf,
    /// Two characters.
    Crlf,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LinesSettings {
    #[serde(default)]
    ending: Ending,
    /// Rows to leave out at the start.
    #[serde(default)]
    skip: u32,
    /// Part of the rows to keep.
    #[serde(default = "one")]
    share: f64,
    pattern: Option<String>,
    #[serde(default)]
    columns: Vec<Column>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Column {
    /// What it is called.
    name: String,
    #[serde(default)]
    optional: bool,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpperSettings {
    /// The column to work on.
    column: String,
}

#[derive(Debug)]
struct Nothing;

impl Source for Nothing {
    fn list(&self) -> Result<Vec<Input>, SourceError> {
        Ok(Vec::new())
    }
    fn schema(&self, _first: Option<&Input>) -> Result<SchemaRef, SourceError> {
        Ok(Arc::new(arrow_schema::Schema::empty()))
    }
    fn open(
        &self,
        _part: &Arc<Part>,
        _schema: &SchemaRef,
        _limits: BatchLimits,
        _restart: &Restart,
    ) -> Result<Box<dyn BatchReader>, SourceError> {
        Err(SourceError::Changed { path: String::new() })
    }
    fn digests(&self, _part: &Part) -> Result<Vec<InputDigest>, SourceError> {
        Ok(Vec::new())
    }
    fn reader_bytes(&self, _inputs: &[Input], _limits: BatchLimits) -> u64 {
        0
    }
}

impl Transform for Nothing {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(input.clone())
    }
    fn apply(
        &self,
        _stage: Stage,
        batch: Batch,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        Ok(emit.emit(batch)?)
    }
}

fn settings_error(e: &serde_json::Error) -> SettingsError {
    SettingsError { at: Vec::new(), message: e.to_string(), hint: None }
}

fn make_lines(spec: &SourceSpec) -> Result<Box<dyn Source>, SettingsError> {
    let settings: LinesSettings =
        serde_json::from_value(spec.settings.clone()).map_err(|e| settings_error(&e))?;
    if settings.pattern.as_deref() == Some("(") {
        return Err(SettingsError {
            at: vec!["pattern".into()],
            message: "a bracket is not closed".into(),
            hint: Some("close it".into()),
        });
    }
    Ok(Box::new(Nothing))
}

fn make_upper(spec: &TransformSpec) -> Result<Box<dyn Transform>, SettingsError> {
    let _: UpperSettings =
        serde_json::from_value(spec.settings.clone()).map_err(|e| settings_error(&e))?;
    Ok(Box::new(Nothing))
}

pub(super) const TESTED: Registry = Registry {
    sources: &[SourceType {
        name: "lines",
        version: 3,
        about: "rows are lines",
        settings: LinesSettings::json_schema,
        make: make_lines,
    }],
    transforms: &[
        TransformType {
            name: "upper",
            version: 1,
            about: "upper case",
            settings: UpperSettings::json_schema,
            run_settings: &[],
            make: make_upper,
        },
        TransformType {
            name: "lower",
            version: 2,
            about: "lower case",
            settings: UpperSettings::json_schema,
            run_settings: &[],
            make: make_upper,
        },
    ],
    codes: &[],
};

pub(super) const PLAIN: &str = r#"version = 1
name = "poems"
env = ["POEMS"]

[sources.lines]
type = "lines"
path = "*.txt"
root = "${POEMS:-poems}"

[transforms.upper]
type = "upper"
column = "line"

[dataset]
shard_rows = 1_000

[dataset.fields]
line = { intern = true }

[run]
jobs = 2
"#;

pub(super) fn read_with(text: &str, sets: &[&str]) -> Result<Definition, ConfigErrors> {
    let overrides: Vec<Override> = sets.iter().map(|s| Override::parse(s).unwrap()).collect();
    let lookup = |name: &str| (name == "HOME").then(|| OsString::from("/home/me"));
    parse::definition(Path::new("defs/p.toml"), text, &overrides, TESTED, &lookup)
}

pub(super) fn read(text: &str) -> Result<Definition, ConfigErrors> {
    read_with(text, &[])
}

/// `PLAIN` with one piece of text replaced.
pub(super) fn edited(from: &str, to: &str) -> String {
    assert!(PLAIN.contains(from), "{from}");
    PLAIN.replacen(from, to, 1)
}

#[test]
fn a_definition_is_read() {
    let it = read(PLAIN).unwrap();
    assert_eq!((it.name.as_str(), it.folder.as_path()), ("poems", Path::new("defs")));
    let place = SourcePlace { root: PathBuf::from("defs/poems"), allow_empty: false };
    assert_eq!(it.places, [place]);
    assert_eq!(it.stages_by_source(), [["lines", "upper"]]);
    assert_eq!(it.data.sources[0].paths, ["*.txt"]);
    let filled = json!({"columns": [], "ending": "lf", "share": 1.0, "skip": 0});
    assert_eq!(it.data.sources[0].settings, filled);
    assert_eq!(it.data.transforms[0].settings, json!({"column": "line"}));
    let line = FieldSpec { intern: true, ..FieldSpec::default() };
    let fields = BTreeMap::from([("line".to_owned(), line)]);
    let dataset = DatasetConfig { shard_rows: 1000, fields, ..DatasetConfig::default() };
    assert_eq!(it.data.dataset, dataset);
    let run = RunConfig { jobs: Some(2), ..RunConfig::in_folder(Path::new("defs")) };
    assert_eq!(it.run, run);
    assert_eq!(it.run.out, PathBuf::from("defs/data"));
    assert!(it.becomes_current && it.warnings.is_empty());
    assert!(!it.allow_empty);
    assert_eq!(it.make_transforms().unwrap().len(), 1);
    read(&format!("\u{feff}{}", PLAIN.replace('\n', "\r\n"))).unwrap();
    it.make_sources().unwrap();
}

#[test]
fn paths_are_relative_to_the_folder_of_the_definition() {
    for (path, root, out) in [
        ("p.toml", "./poems", "./data"),
        ("a/p.toml", "a/poems", "a/data"),
        ("/a/p.toml", "/a/poems", "/a/data"),
        ("../p.toml", "../poems", "../data"),
    ] {
        let it = parse::definition(Path::new(path), PLAIN, &[], TESTED, &|_| None).unwrap();
        assert_eq!(it.places[0].root, PathBuf::from(root), "{path}");
        assert_eq!(it.run.out, PathBuf::from(out), "{path}");
    }
}

#[test]
fn every_setting_of_a_run_is_read() {
    let run = "memory = \"2GiB\"\ncommit_bytes = 1024\ncommit_interval = \"250ms\"\n\
               batch_rows = 10\nbatch_bytes = \"1KiB\"\nout = \"/data\"\nfingerprint = \"stat\"";
    let it = read(&edited("jobs = 2", run)).unwrap();
    let want = RunConfig {
        out: "/data".into(),
        jobs: None,
        memory: 2 << 30,
        commit_bytes: 1024,
        commit_interval: Duration::from_millis(250),
        batch_rows: 10,
        batch_bytes: 1024,
        fingerprint: Fingerprinting::Stat,
    };
    assert_eq!(it.run, want);
}

#[test]
fn inputs_left_out_are_the_table_before() {
    let head = "version = 1\nname = \"x\"\n";
    let a = "[sources.a]\ntype = \"lines\"\npath = \"a\"\n";
    let b = "[transforms.b]\ntype = \"upper\"\ncolumn = \"x\"\n";
    let c = "[transforms.c]\ntype = \"lower\"\ncolumn = \"x\"\n";
    for (name, text, want) in [
        ("source alone", format!("{head}{a}"), "a"),
        ("in file order", format!("{head}{a}{c}{b}"), "a c b"),
        (
            "named against the order",
            format!("{head}{a}{c}inputs = [\"b\"]\n{b}inputs = \"a\"\n"),
            "a b",
        ),
        ("dataset in between", format!("{head}{a}{b}[dataset]\n{c}"), "a b"),
        ("dataset names its input", format!("{head}{a}{b}{c}[dataset]\ninput = \"b\"\n"), "a b"),
        ("dataset first, naming", format!("{head}[dataset]\ninput = \"c\"\n{a}{b}{c}"), "a b c"),
    ] {
        let it = read(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(it.stages_by_source()[0].join(" "), want, "{name}");
    }
}

#[test]
fn an_unused_table_is_a_warning_and_no_part_of_the_identity() {
    let unused = "[transforms.unused]\ntype = \"lower\"\ncolumn = \"x\"\n";
    let text = format!("{PLAIN}{unused}");
    let it = read(&text).unwrap();
    let warnings: Vec<String> = it.warnings.iter().map(ToString::to_string).collect();
    let want = "nothing reads `unused`\n  --> defs/p.toml:22:13\n   |\n\
                22 | [transforms.unused]\n   |             ^^^^^^\n\
                hint: remove it, or name it as an input";
    assert_eq!(warnings, [want]);
    assert_eq!(it.identity(), read(PLAIN).unwrap().identity());
}

#[test]
fn overrides_are_laid_over_the_file() {
    let sets = ["dataset.shard_rows=7", "run.out=elsewhere", "sources.lines.path=[\"a\", \"b\"]"];
    let it = read_with(PLAIN, &sets).unwrap();
    assert_eq!(it.data.dataset.shard_rows, 7);
    assert_eq!(it.data.sources[0].paths, ["a", "b"]);
    assert_eq!(it.run.out, PathBuf::from("defs/elsewhere"));
    let same = edited("1_000", "7").replace("\"*.txt\"", "[\"a\", \"b\"]");
    assert_eq!(it.identity(), read(&same).unwrap().identity());
}

#[test]
fn an_overridden_value_asks_for_no_variable() {
    let text = edited("${POEMS:-poems}", "${POEMS:?where the poems are}");
    assert!(read(&text).is_err());
    let it = read_with(&text, &["sources.lines.root=/mnt/${x}"]).unwrap();
    assert_eq!(it.places[0].root, PathBuf::from("/mnt/${x}"));
}

#[test]
fn limited_and_overridden_runs_leave_the_current_dataset_alone() {
    for (sets, want) in [
        (&[][..], true),
        (&["run.jobs=1", "sources.lines.root=x", "description=x"], true),
        (&["run.jobs=1", "dataset.shard_rows=5"], false),
        (&["dataset.limit_rows=5"], false),
        (&["sources.lines.path=x"], false),
    ] {
        assert_eq!(read_with(PLAIN, sets).unwrap().becomes_current, want, "{sets:?}");
    }
    let limited = edited("[dataset]", "[dataset]\nlimit_rows = 5");
    assert!(!read(&limited).unwrap().becomes_current);
}

/// `PLAIN` with one edit per case, and what is said of it: a line `=== name`, `--- text` that is
/// replaced (`*` for all of it) by `+++ text`, and the error.
const BAD: &str = include_str!("bad_definitions.txt");

#[test]
fn bad_definitions_are_explained() {
    let mut explained = Vec::new();
    for case in BAD.split("=== ").skip(1) {
        let line = |start: &str| {
            let text = case.lines().find_map(|l| l.strip_prefix(start)).unwrap();
            text.strip_prefix(' ').unwrap_or(text)
        };
        let (from, to) = (line("---"), line("+++"));
        let (old, new) = (from.replace("\\n", "\n"), to.replace("\\n", "\n"));
        let text = if old == "*" { new } else { edited(&old, &new) };
        let name = case.lines().next().unwrap();
        let error = read(&text).err().unwrap_or_else(|| panic!("{name} is read"));
        let header = format!("=== {name}\n--- {from}\n{}", format!("+++ {to}").trim_end());
        explained.push(format!("{header}\n{error}\n\n"));
    }
    let explained = explained.concat();
    for (want, got) in BAD.split("\n\n").zip(explained.split("\n\n")) {
        assert_eq!(got, want);
    }
    assert_eq!(explained, BAD);
}

#[test]
fn bad_overrides_are_explained() {
    for (set, want) in [
        (
            "dataset.shard_row=5",
            "unknown key `shard_row` in [dataset]\n --> --set dataset.shard_row=5\n\
             hint: did you mean `shard_rows`?",
        ),
        ("run.jobs=many", "`jobs` takes a whole number, not a string\n --> --set run.jobs=many"),
        (
            "name.x=1",
            "`name` is a string, not a table\n --> --set name.x=1\n\
             hint: an override names a key inside tables",
        ),
        (
            "run.jobs=99999999999999999999",
            "the number 99999999999999999999 is too large\n \
             --> --set run.jobs=99999999999999999999\nhint: numbers end at 9223372036854775807",
        ),
        (
            "version=2",
            "this is a definition of version 2\n --> --set version=2\nhint: this program reads version 1",
        ),
    ] {
        assert_eq!(read_with(PLAIN, &[set]).unwrap_err().to_string(), want);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test makes the files")]
fn files_that_are_no_definitions_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("latin.toml"), b"version = 1\nname = \"\xfc\"\n").unwrap();
    let huge = vec![b'#'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1];
    std::fs::write(path("huge.toml"), huge).unwrap();
    for (name, message, hint) in [
        (
            "latin.toml",
            "the definition is not UTF-8: line 2 holds other bytes",
            "save the file as UTF-8",
        ),
        ("huge.toml", "the definition is larger than 1 MiB", "name a definition, not a data file"),
        ("none.toml", "cannot read the definition: there is no such file", "check the path"),
        (
            ".",
            "cannot read the definition: it is a folder",
            "name the definition in it, a .toml file",
        ),
    ] {
        let errors = Definition::load(&path(name), &[], Registry::BUILT_IN).unwrap_err();
        let error = &errors.errors()[0];
        assert_eq!((error.message(), error.hint()), (message, Some(hint)), "{name}");
        assert!(errors.to_string().contains(name), "{errors}");
    }
}

#[test]
fn every_pipeline_of_the_repository_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let mut n_read = 0;
    for file in walkdir::WalkDir::new(folder).sort_by_file_name() {
        let file = file.unwrap();
        if file.path().extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let text = read_file(file.path()).unwrap();
        let lookup = |name: &str| Some(OsString::from(format!("/{name}")));
        let it = parse::definition(file.path(), &text, &[], Registry::BUILT_IN, &lookup)
            .unwrap_or_else(|e| panic!("{e}"));
        let warnings: Vec<String> = it.warnings.iter().map(ToString::to_string).collect();
        assert!(warnings.is_empty(), "{warnings:?}");
        n_read += 1;
    }
    assert!(n_read > 0);
}
