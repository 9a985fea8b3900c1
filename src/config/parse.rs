//! From the text of a definition to the checked struct.
//!
//! Invariant: steps run in this order, and each sees what the one before made: parse, override,
//! substitute, read. A step that fails ends the reading, so that no problem follows from another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{At, ConfigErrors, Problem, Text};
use super::origin::Origin;
use super::read::{Reader, check_name, wrong_type};
use super::rejects;
use super::settings::SettingsSchema;
use super::stages::{self, Chain};
use super::substitute::{Lookup, Substitution, is_variable};
use super::test_case;
use super::tree::{self, Table, Tree};
use super::{
    DEFINITION_VERSION, DataConfig, DatasetConfig, Definition, Override, PushConfig, Registry,
    RunConfig,
};
use crate::batch::OnError;
use crate::codes::Code;
use crate::fingerprint::Fingerprinting;
use crate::schema::{FieldSpec, Kind};

/// Codes of interned values and row numbers in the key index have 31 bits.
const MAX_PER_SHARD: u64 = i32::MAX as u64;
/// Most lanes and batch rows that make sense on any machine.
const MAX_REQUESTS: u64 = 1024;
const MAX_JOBS: u64 = 4096;
const MAX_BATCH_ROWS: u64 = 1 << 24;
const MAX_BATCH_BYTES: u64 = 1 << 40;
/// Positions of rows are signed.
const MAX_ROWS: u64 = i64::MAX as u64;

/// Reads the definition `text`, which was found at `path`.
pub(crate) fn definition(
    path: &Path,
    text: &str,
    overrides: &[Override],
    registry: Registry,
    lookup: Lookup<'_>,
) -> Result<Definition, ConfigErrors> {
    let sets: Vec<String> = overrides.iter().map(|o| o.given().to_owned()).collect();
    let shown = Text { path, content: text, sets: &sets };
    let check = |problems: Vec<Problem>| ConfigErrors::check(shown.locate_all(problems));

    let mut root = match tree::parse(text) {
        Ok(table) => table,
        Err(problems) => {
            check(problems)?;
            Table::default()
        }
    };
    let applied = overrides.iter().enumerate().map(|(i, o)| o.apply(i, &mut root));
    check(applied.filter_map(Result::err).collect())?;

    let mut problems = Vec::new();
    version(&root, &mut problems);
    let env = env(&root, &mut problems);
    check(problems)?;
    let mut substitution = Substitution { env: &env, lookup, problems: Vec::new() };
    substitution.table(&mut root);
    check(substitution.problems)?;

    let mut problems = Vec::new();
    // The folder of a bare file name is empty, which no system call takes for the working folder.
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let read = Reading { folder, registry }.read(&root, &mut problems);
    check(problems)?;
    // Without problems there is a definition.
    let Some((mut definition, warnings)) = read else {
        let code = Code::DefinitionValue;
        let problem = Problem { code, at: None, message: "cannot be read".into(), hint: None };
        return Err(shown.locate(&problem).into());
    };
    path.clone_into(&mut definition.path);
    definition.warnings = shown.locate_all(warnings);
    definition.origin = Origin { path: path.to_owned(), content: text.to_owned(), sets, root };
    let transforms = &definition.data.transforms;
    let is_run = |name: &str, key: &str| {
        let found = transforms.iter().find(|t| t.name == name);
        found.is_some_and(|t| t.kind.run_settings.contains(&key))
    };
    definition.becomes_current = definition.data.dataset.limit_rows.is_none()
        && !overrides.iter().any(|it| it.is_data(is_run));
    Ok(definition)
}

/// Refuses every version but ours, before anything that another version may say otherwise.
fn version(root: &Table, problems: &mut Vec<Problem>) {
    let hint = format!("write version = {DEFINITION_VERSION} at the top of the file");
    let Some(entry) = root.get("version") else {
        let message = "the definition does not say its version";
        let (code, message) = (Code::DefinitionValue, message.into());
        problems.push(Problem { code, at: None, message, hint: Some(hint) });
        return;
    };
    match entry.node.value {
        Tree::Integer(DEFINITION_VERSION) => {}
        Tree::Integer(other) => {
            let message = format!("this is a definition of version {other}");
            let hint = format!("this program reads version {DEFINITION_VERSION}");
            problems.push(Problem::new(&entry.node.at, message).hint(hint));
        }
        _ => problems.push(wrong_type("version", "a whole number", &entry.node).hint(hint)),
    }
}

/// The variables that the definition lists.
fn env(root: &Table, problems: &mut Vec<Problem>) -> Vec<String> {
    let Some(entry) = root.get("env") else { return Vec::new() };
    let Tree::List(items) = &entry.node.value else {
        let hint = "list the names: env = [\"HOME\"]";
        problems.push(wrong_type("env", "a list of names", &entry.node).hint(hint));
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in items {
        match &item.value {
            Tree::Text(name) if is_variable(name) => names.push(name.clone()),
            Tree::Text(name) => {
                let message = format!("`{}` cannot be the name of a variable", name.escape_debug());
                let hint = "a name has letters, digits and `_`, and does not begin with a digit";
                problems.push(Problem::new(&item.at, message).hint(hint));
            }
            _ => problems.push(wrong_type("env", "strings", item)),
        }
    }
    names
}

/// What reading needs to know beside the text.
struct Reading {
    folder: PathBuf,
    registry: Registry,
}

impl Reading {
    fn read(self, root: &Table, problems: &mut Vec<Problem>) -> Option<(Definition, Vec<Problem>)> {
        let start = At::File(0..0);
        let mut reader = Reader::new("the definition", &start, root);
        reader.entry("version");
        reader.entry("env");
        let name = reader.text("name", problems);
        if let Some((name, at)) = name {
            problems.extend(check_name("a dataset", name, at).err());
        } else if root.get("name").is_none() {
            let hint = "write for example name = \"flowers\"; it names the dataset's folder";
            let message = "the definition has no `name`".into();
            let (code, hint) = (Code::DefinitionMissingKey, Some(hint.into()));
            problems.push(Problem { code, at: None, message, hint });
        }
        let description = reader.text("description", problems).map(|(text, _)| text.to_owned());
        let stages = stages::read(&mut reader, &self.folder, self.registry, problems);
        let mut warnings = Vec::new();
        let mut dataset = DatasetConfig::default();
        let mut dataset_may_be_empty = false;
        let (mut inputs, mut dataset_at) = (None, None);
        if let Some((table, at)) = reader.table("dataset", problems) {
            let mut reader = Reader::new("[dataset]", at, table);
            (inputs, dataset_at) = (stages::inputs(&mut reader, problems), Some(at));
            if let Some((name, at)) = reader.text("input", problems) {
                if inputs.is_some() {
                    let message = "[dataset] has both `input` and `inputs`";
                    problems.push(Problem::new(at, message).hint("keep one of them"));
                }
                inputs = Some(vec![(name.to_owned(), at.clone())]);
            }
            dataset = dataset_config(&mut reader, problems);
            dataset_may_be_empty = reader.flag("allow_empty", problems).unwrap_or(false);
            reader.finish(problems);
        }
        let chain = stages::chain(&stages, inputs.as_deref(), dataset_at, problems, &mut warnings);
        let mut run = RunConfig::in_folder(&self.folder);
        if let Some((table, at)) = reader.table("run", problems) {
            let mut reader = Reader::new("[run]", at, table);
            run_config(&mut reader, &self.folder, &mut run, problems);
            reader.finish(problems);
        }
        let push = reader.table("push", problems).and_then(|(table, at)| {
            let mut reader = Reader::new("[push]", at, table);
            let push = push_config(&mut reader, at, problems);
            reader.finish(problems);
            push
        });
        let transforms = chain.as_ref().map_or(&[][..], |chain| &chain.transforms);
        let tests = test_case::read(&mut reader, transforms, problems);
        reader.finish(problems);

        let Chain { sources, places, transforms } = chain?;
        if dataset.rejects.on_error == OnError::Quarantine {
            stages::check_unlike_dataset(&stages, problems);
        }
        let definition = Definition {
            path: PathBuf::new(),
            folder: self.folder,
            name: name?.0.to_owned(),
            description,
            data: DataConfig { sources, transforms, dataset },
            run,
            push,
            places,
            allow_empty: dataset_may_be_empty,
            tests,
            becomes_current: false,
            warnings: Vec::new(),
            origin: Origin::default(),
        };
        Some((definition, warnings))
    }
}

fn dataset_config(reader: &mut Reader<'_>, problems: &mut Vec<Problem>) -> DatasetConfig {
    let key = reader.text("key", problems).map(|(name, _)| name.to_owned());
    let mut config = DatasetConfig { key, ..DatasetConfig::default() };
    set(&mut config.partition_bytes, reader.size("partition_bytes", problems));
    set(&mut config.shard_bytes, reader.size("shard_bytes", problems));
    set(&mut config.shard_rows, reader.count("shard_rows", 1..=MAX_PER_SHARD, problems));
    set(&mut config.max_row_bytes, reader.size("max_row_bytes", problems));
    set(&mut config.intern_values, reader.count("intern_values", 1..=MAX_PER_SHARD, problems));
    config.limit_rows = reader.count("limit_rows", 1..=MAX_ROWS, problems);
    config.rejects = rejects::read(reader, problems);
    if let Some((table, _)) = reader.table("fields", problems) {
        config.fields = fields(table, problems);
    }
    config
}

fn fields(table: &Table, problems: &mut Vec<Problem>) -> BTreeMap<String, FieldSpec> {
    let schema = SettingsSchema::new(<FieldSpec as schemars::JsonSchema>::json_schema);
    let mut fields = BTreeMap::new();
    for entry in table.entries() {
        let title = format!("field `{}`", entry.key);
        let Tree::Table(settings) = &entry.node.value else {
            let hint = "write for example { dtype = \"uint8\" }";
            problems.push(wrong_type(&entry.key, "a table", &entry.node).hint(hint));
            continue;
        };
        let before = problems.len();
        schema.check(&title, &entry.key_at, settings, &[], problems);
        if problems.len() > before {
            continue;
        }
        match serde_json::from_value::<FieldSpec>(settings.to_json()) {
            Ok(mut spec) => {
                if spec.kind == Some(Kind::Interned) {
                    // The same, said in the other way.
                    (spec.kind, spec.intern) = (None, true);
                }
                fields.insert(entry.key.clone(), spec);
            }
            Err(e) => problems.push(Problem::new(&entry.node.at, format!("{title}: {e}"))),
        }
    }
    fields
}

fn run_config(
    reader: &mut Reader<'_>,
    folder: &Path,
    run: &mut RunConfig,
    problems: &mut Vec<Problem>,
) {
    if let Some((out, at)) = reader.text("out", problems) {
        if out.is_empty() {
            let hint = "name the folder of all datasets; \".\" is the definition's own";
            problems.push(Problem::new(at, "`out` is empty").hint(hint));
        }
        run.out = folder.join(out);
    }
    run.jobs = reader.count("jobs", 1..=MAX_JOBS, problems).and_then(|n| usize::try_from(n).ok());
    set(&mut run.memory, reader.size("memory", problems));
    set(&mut run.commit_bytes, reader.size("commit_bytes", problems));
    set(&mut run.commit_interval, reader.duration("commit_interval", problems));
    let batch_rows = reader.count("batch_rows", 1..=MAX_BATCH_ROWS, problems);
    set(&mut run.batch_rows, batch_rows.and_then(|n| usize::try_from(n).ok()));
    let batch_bytes = reader.size("batch_bytes", problems).map(|n| n.min(MAX_BATCH_BYTES));
    set(&mut run.batch_bytes, batch_bytes.and_then(|n| usize::try_from(n).ok()));
    set(&mut run.fingerprint, fingerprinting(reader, problems));
}

fn push_config(
    reader: &mut Reader<'_>,
    at: &At,
    problems: &mut Vec<Problem>,
) -> Option<PushConfig> {
    let url = reader.text("url", problems);
    let part_bytes = reader.size("part_size", problems);
    let concurrency = reader.count("concurrency", 1..=MAX_REQUESTS, problems);
    let bandwidth = reader.size("bandwidth", problems);
    let allow_http = reader.flag("allow_http", problems);
    let drop_local = reader.flag("drop_local", problems);
    if part_bytes.is_some_and(|bytes| bytes < PushConfig::LEAST_PART_BYTES) {
        let hint = "stores take parts of 5MiB or more";
        problems.push(Problem::new(at, "`part_size` is too small").hint(hint));
    }
    if part_bytes.is_some_and(|bytes| bytes > PushConfig::MOST_PART_BYTES) {
        let hint = "stores take parts of 5GiB or less; each on its way takes its size of memory";
        problems.push(Problem::new(at, "`part_size` is too large").hint(hint));
    }
    let Some((url, url_at)) = url else {
        problems.push(reader.missing("url", "\"s3://bucket/datasets\""));
        return None;
    };
    if !crate::remote::is_url(url) {
        let hint = "write for example \"s3://bucket/datasets\"";
        problems.push(Problem::new(url_at, "`url` is no URL").hint(hint));
    }
    let mut push = PushConfig::to(url.to_owned());
    set(&mut push.part_bytes, part_bytes);
    set(&mut push.concurrency, concurrency.and_then(|n| u16::try_from(n).ok()));
    push.bandwidth = bandwidth;
    set(&mut push.allow_http, allow_http);
    set(&mut push.drop_local, drop_local);
    Some(push)
}

fn fingerprinting(reader: &mut Reader<'_>, problems: &mut Vec<Problem>) -> Option<Fingerprinting> {
    match reader.text("fingerprint", problems)? {
        ("content", _) => Some(Fingerprinting::Content),
        ("stat", _) => Some(Fingerprinting::Stat),
        (other, at) => {
            let message = format!("`fingerprint` cannot be `{}`", other.escape_debug());
            let hint = "write \"content\", or \"stat\" to believe size and time of modification";
            problems.push(Problem::new(at, message).hint(hint));
            None
        }
    }
}

fn set<T>(setting: &mut T, written: Option<T>) {
    if let Some(written) = written {
        *setting = written;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{PLAIN, TESTED};
    use super::*;

    fn mutated() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("${".to_owned()),
            Just("}".to_owned()),
            Just("\"".to_owned()),
            Just("[".to_owned()),
            Just("]]".to_owned()),
            Just("= 9999999999999999999999".to_owned()),
            Just(".".to_owned()),
            Just("\n".to_owned()),
            Just("inputs = []\n".to_owned()),
            Just("\"\\u001b[2J\" = 1\n".to_owned()),
            Just("'\u{1f600}\u{0}'".to_owned()),
            any::<String>(),
            (0..PLAIN.len(), 0..40_usize).prop_map(|(at, n)| PLAIN
                .chars()
                .skip(at)
                .take(n)
                .collect()),
        ];
        let edits = prop::collection::vec((0..PLAIN.len(), 0..30_usize, piece), 1..4);
        edits.prop_map(|edits| {
            edits.into_iter().fold(PLAIN.to_owned(), |text, (at, gone, piece)| {
                let before: String = text.chars().take(at).collect();
                let after: String = text.chars().skip(at + gone).collect();
                before + &piece + &after
            })
        })
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in mutated(), set in ".{0,30}") {
            let set = Override::parse(&set).ok();
            let sets: Vec<Override> = set.into_iter().collect();
            let read = definition(Path::new("p.toml"), &text, &sets, TESTED, &|_| None);
            match read {
                Ok(it) => prop_assert_eq!(it.identity().cache_key.len(), 16),
                Err(errors) => {
                    prop_assert!(!errors.errors().is_empty());
                    let shown = errors.to_string();
                    prop_assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{}", shown);
                }
            }
        }
    }
}
