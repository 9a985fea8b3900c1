//! `[sources.*]` and `[transforms.*]`, and the chain that they form.
//!
//! Invariants:
//! 1. Sources and transforms share one set of names, because the books are kept by name.
//! 2. A stage that the dataset does not read takes no part in the identity; it is a warning.
//! 3. Several tables that one stage reads are sources; their rows come in the order in which they stand in
//!    the file, however they are listed.

use std::path::Path;

use serde_json::Value;

use super::error::{At, Problem};
use super::read::{Reader, check_name, did_you_mean, wrong_type};
use super::settings::SettingsSchema;
use super::tree::{Entry, Node, Table, Tree};
use super::{DATASET_STAGE, Registry, SourceConfig, SourcePlace, TransformConfig};
use super::{place, rejects};
use crate::codes::Code;
use crate::sources::{SettingsError, SourceSpec, SourceType};
use crate::transforms::TransformType;

/// What a dataset is made of.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Where rows come from, in the order of the file.
    pub(crate) sources: Vec<SourceConfig>,
    /// Where their inputs are.
    pub(crate) places: Vec<SourcePlace>,
    /// What is done to the rows, in order.
    pub(crate) transforms: Vec<TransformConfig>,
}

/// A source or transform as the file says it.
#[derive(Debug)]
pub(crate) struct Stage {
    name: String,
    at: At,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Source {
        config: SourceConfig,
        place: SourcePlace,
    },
    Transform {
        config: TransformConfig,
        inputs: Option<Inputs>,
    },
    /// There is something wrong with it that is a problem already.
    Broken,
}

/// The tables that a stage or the dataset reads by name, and where each is named.
pub(crate) type Inputs = Vec<(String, At)>;

/// Reads all sources and transforms, in the order in which they stand in the file.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    folder: &Path,
    registry: Registry,
    problems: &mut Vec<Problem>,
) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let sources = reader.table("sources", problems).map_or(&[][..], |(table, _)| table.entries());
    let transforms =
        reader.table("transforms", problems).map_or(&[][..], |(table, _)| table.entries());
    let sources = sources.iter().map(|entry| (entry, true));
    let mut entries: Vec<(&Entry, bool)> =
        sources.chain(transforms.iter().map(|entry| (entry, false))).collect();
    entries.sort_by_key(|(entry, _)| entry.key_at.order());
    for (entry, is_source) in entries {
        let what = if is_source { "a source" } else { "a transform" };
        problems.extend(check_name(what, &entry.key, &entry.key_at).err());
        if stages.iter().any(|s| s.name == entry.key) {
            let message = format!("there are a source and a transform called `{}`", entry.key);
            let hint = "rename one of them; stages are told apart by their names";
            problems.push(Problem::new(&entry.key_at, message).hint(hint));
            continue;
        }
        let role = match &entry.node.value {
            Tree::Table(table) if is_source => {
                source(entry, table, folder, registry.sources, problems)
            }
            Tree::Table(table) => transform(entry, table, folder, registry.transforms, problems),
            _ => {
                problems.push(wrong_type(&entry.key, "a table", &entry.node));
                None
            }
        };
        let role = role.unwrap_or(Role::Broken);
        stages.push(Stage { name: entry.key.clone(), at: entry.key_at.clone(), role });
    }
    stages
}

fn source(
    entry: &Entry,
    table: &Table,
    folder: &Path,
    types: &'static [SourceType],
    problems: &mut Vec<Problem>,
) -> Option<Role> {
    let n_before = problems.len();
    let title = format!("[sources.{}]", entry.key);
    let mut reader = Reader::new(&title, &entry.key_at, table);
    let kind = kind(&mut reader, types.iter().map(|t| (t.name, t)), "sources", problems);
    let (root, paths) = place::read(&mut reader, folder, problems);
    let allow_empty = reader.flag("allow_empty", problems).unwrap_or(false);
    let rejects = rejects::read(&mut reader, problems);
    let kind = kind?;
    let settings = own_settings(&reader, &title, &entry.key_at, kind.settings, problems)?;
    if problems.len() > n_before {
        return None;
    }
    let config = SourceConfig { name: entry.key.clone(), kind, paths, settings, rejects };
    let spec = SourceSpec {
        name: config.name.clone(),
        paths: config.paths.clone(),
        root: root.clone(),
        settings: config.settings.clone(),
    };
    if let Err(e) = (kind.make)(&spec) {
        problems.push(refused(&title, entry, e));
        return None;
    }
    Some(Role::Source { config, place: SourcePlace { root, allow_empty } })
}

fn transform(
    entry: &Entry,
    table: &Table,
    folder: &Path,
    types: &'static [TransformType],
    problems: &mut Vec<Problem>,
) -> Option<Role> {
    let n_before = problems.len();
    let title = format!("[transforms.{}]", entry.key);
    let mut reader = Reader::new(&title, &entry.key_at, table);
    let kind = kind(&mut reader, types.iter().map(|t| (t.name, t)), "transforms", problems);
    let inputs = inputs(&mut reader, problems);
    let rejects = rejects::read(&mut reader, problems);
    let kind = kind?;
    let settings = own_settings(&reader, &title, &entry.key_at, kind.settings, problems)?;
    if problems.len() > n_before {
        return None;
    }
    let config = TransformConfig { name: entry.key.clone(), kind, settings, rejects };
    if let Err(e) = config.make(folder) {
        problems.push(refused(&title, entry, e));
        return None;
    }
    Some(Role::Transform { config, inputs })
}

/// The tables that `inputs` names.
pub(crate) fn inputs(reader: &mut Reader<'_>, problems: &mut Vec<Problem>) -> Option<Inputs> {
    let (texts, at) = reader.texts("inputs", problems)?;
    if texts.is_empty() {
        let hint = "name a source or transform, or several sources";
        problems.push(Problem::new(at, "`inputs` is an empty list").hint(hint));
    }
    let mut inputs = Inputs::new();
    for (name, at) in texts {
        if inputs.iter().any(|(known, _)| known == name) {
            let message = format!("`inputs` names `{}` twice", name.escape_debug());
            problems.push(Problem::new(at, message).hint("name each table once"));
        }
        inputs.push((name.to_owned(), at.clone()));
    }
    Some(inputs)
}

/// What `type` names.
fn kind<'t, T>(
    reader: &mut Reader<'_>,
    types: impl Iterator<Item = (&'static str, &'t T)> + Clone,
    table: &str,
    problems: &mut Vec<Problem>,
) -> Option<&'t T> {
    let n_before = problems.len();
    let Some((name, at)) = reader.text("type", problems) else {
        if problems.len() == n_before {
            let example = types.map(|(name, _)| name).next().unwrap_or("…");
            problems.push(reader.missing("type", format!("\"{example}\"")));
        }
        return None;
    };
    let found = types.clone().find(|(n, _)| *n == name).map(|(_, kind)| kind);
    if found.is_none() {
        let message = format!("there is no type `{}` of {table}", name.escape_debug());
        let hint = did_you_mean(name, "there are", types.map(|(name, _)| name));
        problems.push(Problem::new(at, message).code(Code::DefinitionUnknownName).hint(hint));
    }
    found
}

/// The settings that belong to the stage alone, checked and with defaults filled in.
fn own_settings(
    reader: &Reader<'_>,
    title: &str,
    at: &At,
    settings: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    problems: &mut Vec<Problem>,
) -> Option<Value> {
    let mut own = Table::default();
    for entry in reader.rest() {
        own.push(entry.clone());
    }
    let schema = SettingsSchema::new(settings);
    let n_before = problems.len();
    schema.check(title, at, &own, reader.asked(), problems);
    (problems.len() == n_before).then(|| schema.filled(own.to_json()))
}

/// What the stage itself says of its settings, at the innermost table or value it names.
fn refused(title: &str, entry: &Entry, error: SettingsError) -> Problem {
    let Node { at, .. } = &entry.node;
    let found = entry.node.find(&error.at);
    let at = if found == at { &entry.key_at } else { found };
    let message = match error.at.as_slice() {
        [] => format!("{title}: {}", error.message),
        keys => format!("{title}, `{}`: {}", keys.join("."), error.message),
    };
    Problem::new(at, message).maybe_hint(error.hint)
}

/// Refuses a stage that has the name under which the dataset rejects rows.
pub(crate) fn check_unlike_dataset(stages: &[Stage], problems: &mut Vec<Problem>) {
    if let Some(stage) = stages.iter().find(|stage| stage.name == DATASET_STAGE) {
        let message =
            format!("a stage cannot be called `{DATASET_STAGE}` where [dataset] rejects rows");
        let hint = "rename it; the rejects of both would go by one name";
        problems.push(Problem::new(&stage.at, message).hint(hint));
    }
}

/// Follows the dataset's inputs back to the sources.
///
/// `inputs` are what the dataset names, `dataset` where its table stands.
pub(crate) fn chain(
    stages: &[Stage],
    inputs: Option<&[(String, At)]>,
    dataset: Option<&At>,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Chain> {
    let of_transforms = stages.iter().filter_map(|stage| match &stage.role {
        Role::Transform { inputs, .. } => inputs.as_ref(),
        Role::Source { .. } | Role::Broken => None,
    });
    for (name, at) in of_transforms.flatten().chain(inputs.unwrap_or_default()) {
        check_known(stages, name, at, problems);
    }
    let mut next = match inputs {
        Some(inputs) => all_of("[dataset]", stages, inputs, problems)?,
        None => vec![last_before(stages, dataset, problems)?],
    };
    let mut path: Vec<usize> = Vec::new();
    while let [index] = *next {
        let stage = stages.get(index)?;
        if let Some(start) = path.iter().position(|seen| *seen == index) {
            let cycle = path.iter().skip(start).chain([&index]);
            let names: Vec<&str> =
                cycle.filter_map(|i| stages.get(*i)).map(|s| s.name.as_str()).collect();
            let message = format!("the inputs go in a circle: {}", names.join(" reads "));
            let hint = "let one of them read a source";
            problems.push(Problem::new(&stage.at, message).hint(hint));
            return None;
        }
        path.push(index);
        let Role::Transform { inputs, .. } = &stage.role else { break };
        next = if let Some(inputs) = inputs.as_deref() {
            all_of(&format!("[transforms.{}]", stage.name), stages, inputs, problems)?
        } else {
            let Some(before) = index.checked_sub(1) else {
                let message = format!("[transforms.{}] has no table before it to read", stage.name);
                let hint = "put it after its source, or name it: inputs = [\"…\"]";
                problems.push(Problem::new(&stage.at, message).hint(hint));
                return None;
            };
            vec![before]
        };
    }
    // One source ended the path; several did not enter it.
    let mut sources = if let [_, _, ..] = *next { next } else { vec![path.pop()?] };
    sources.sort_unstable();
    for (i, stage) in stages.iter().enumerate() {
        if !path.contains(&i) && !sources.contains(&i) {
            let message = format!("nothing reads `{}`", stage.name);
            let hint = "remove it, or name it as an input";
            warnings.push(Problem::new(&stage.at, message).hint(hint));
        }
    }
    let source = |i: usize| match &stages.get(i)?.role {
        Role::Source { config, place } => Some((config.clone(), place.clone())),
        Role::Transform { .. } | Role::Broken => None,
    };
    let sources: Option<Vec<_>> = sources.into_iter().map(source).collect();
    let (sources, places) = sources?.into_iter().unzip();
    let transforms = path.iter().rev().filter_map(|i| match &stages.get(*i)?.role {
        Role::Transform { config, .. } => Some(config.clone()),
        Role::Source { .. } | Role::Broken => None,
    });
    Some(Chain { sources, places, transforms: transforms.collect() })
}

/// The stages that `title` names as its inputs: any one, or several sources.
fn all_of(
    title: &str,
    stages: &[Stage],
    inputs: &[(String, At)],
    problems: &mut Vec<Problem>,
) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for (name, at) in inputs {
        // What is not there is a problem already.
        let index = stages.iter().position(|s| s.name == *name)?;
        let is_transform = matches!(stages.get(index)?.role, Role::Transform { .. });
        if is_transform && inputs.len() > 1 {
            let message = format!("{title} reads several tables, and `{name}` is not a source");
            let hint = "read one transform, or several sources; transforms come behind them";
            problems.push(Problem::new(at, message).hint(hint));
            return None;
        }
        all.push(index);
    }
    (!all.is_empty()).then_some(all)
}

fn check_known(stages: &[Stage], name: &str, at: &At, problems: &mut Vec<Problem>) {
    if !stages.iter().any(|s| s.name == name) {
        let message = format!("there is no source or transform `{}`", name.escape_debug());
        let names = stages.iter().map(|s| s.name.as_str());
        let hint = did_you_mean(name, "there are", names);
        problems.push(Problem::new(at, message).code(Code::DefinitionUnknownName).hint(hint));
    }
}

/// The last stage before the dataset's table, or of all where there is no such table.
fn last_before(
    stages: &[Stage],
    dataset: Option<&At>,
    problems: &mut Vec<Problem>,
) -> Option<usize> {
    let before = |stage: &Stage| dataset.is_none_or(|at| stage.at.order() < at.order());
    let last = stages.iter().rposition(before);
    // Without stages there may be another problem already: `sources` may be no table.
    if last.is_none() && (!stages.is_empty() || problems.is_empty()) {
        let problem = match (stages.is_empty(), dataset) {
            (true, _) => Problem {
                code: Code::DefinitionValue,
                at: None,
                message: "the definition has no source".into(),
                hint: Some("add one: [sources.NAME], with `type` and `path`".into()),
            },
            (false, at) => Problem {
                code: Code::DefinitionValue,
                at: at.cloned(),
                message: "[dataset] has no table before it to read".into(),
                hint: Some("put it after its input, or name it: input = \"…\"".into()),
            },
        };
        problems.push(problem);
    }
    last
}
