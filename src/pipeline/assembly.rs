//! A definition with its parts made.

use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;

use super::PipelineError;
use crate::config::{ConfigErrors, Definition, Identity, Override, Registry};
use crate::dataset::Home;
use crate::dataset::manifest::Manifest;
use crate::remote::{self, is_url};
use crate::schema::{RowSchema, SchemaError};
use crate::shard::ShardLimits;
use crate::sources::{OnError, SettingsError, Source, SourceError};
use crate::storage::{EntryKind, Local, Storage};
use crate::transforms::{Stage, Transform};

/// How long a run that was asked to stop may take to reach a commit.
const GRACE: Duration = Duration::from_secs(10);

/// What the command line lays over a definition.
#[derive(Debug, Clone, Default)]
pub struct RunOverrides {
    /// `KEY=VALUE` settings.
    pub set: Vec<String>,
    /// Folder of datasets, relative to the working folder.
    pub out: Option<PathBuf>,
    /// Partitions at once.
    pub jobs: Option<usize>,
    /// Most memory, as a size.
    pub memory: Option<String>,
    /// Source rows to read at most.
    pub limit_rows: Option<u64>,
}

/// A definition whose sources and transforms are made; nothing was read but the definition.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) definition: Definition,
    pub(super) identity: Identity,
    pub(super) home: Home,
    pub(super) storage: Arc<dyn Storage>,
    /// In dataset order: the inputs of one come behind those of the one before.
    pub(super) sources: Vec<SourceStage>,
    pub(super) transforms: Vec<Arc<dyn Transform>>,
    /// Whether rows that a hook did not answer are asked about again.
    pub(super) retries_rejects: bool,
    /// Whether other runs build the same dataset at the place it is pushed to.
    pub(super) is_shared: bool,
}

/// A source, and what its rows go through.
#[derive(Debug)]
pub(super) struct SourceStage {
    pub(super) source: Arc<dyn Source>,
    /// Where its inputs are, as text, whatever the working folder: only ever a reason not to believe
    /// a stamp.
    pub(super) root: String,
    /// The stages whose books are kept: its name, those of the transforms, and the dataset where it may
    /// reject rows.
    pub(super) stages: Vec<String>,
    /// What is done with its bad rows.
    pub(super) on_error: OnError,
}

impl SourceStage {
    pub(super) fn name(&self) -> &str {
        self.stages.first().map_or("", String::as_str)
    }

    pub(super) fn error(&self, source: SourceError) -> PipelineError {
        PipelineError::Source { stage: self.name().to_owned(), source }
    }
}

impl Pipeline {
    /// Reads a definition and makes its parts, which are those that `registry` names.
    ///
    /// # Errors
    /// Everything that is wrong with the definition, with its lines.
    pub fn load(
        path: &Path,
        overrides: &RunOverrides,
        registry: Registry,
    ) -> Result<Self, PipelineError> {
        let set = overrides.set.iter().map(|s| Override::parse(s)).collect::<Result<Vec<_>, _>>();
        let mut set = set.map_err(ConfigErrors::from)?;
        let RunOverrides { jobs, memory, limit_rows, .. } = overrides;
        let mut add = |option: &str, keys: [&str; 2], typed: &dyn Display, value: String| {
            set.push(Override::by_option(format!("{option} {typed}"), keys, value));
        };
        if let Some(n) = jobs {
            add("--jobs", ["run", "jobs"], n, n.to_string());
        }
        if let Some(size) = memory {
            add("--memory", ["run", "memory"], size, format!("\"{size}\""));
        }
        if let Some(n) = limit_rows {
            add("--limit-rows", ["dataset", "limit_rows"], n, n.to_string());
        }
        let mut definition = Definition::load(path, &set, registry)?;
        if let Some(out) = &overrides.out {
            definition.run.out.clone_from(out);
        }
        let storage: Arc<dyn Storage> = Arc::new(Local);
        let roots = definition.places.iter_mut().map(|place| &mut place.root);
        for path in roots.chain([&mut definition.run.out]) {
            *path = shortest(&*storage, path);
        }
        Self::new(definition, storage)
    }

    fn new(definition: Definition, storage: Arc<dyn Storage>) -> Result<Self, PipelineError> {
        let identity = definition.identity();
        let home = Home::new(&definition.run.out, &definition.name, &identity.cache_key)?;
        let made =
            definition.make_sources().map_err(|(name, e)| PipelineError::settings(name, e))?;
        let stages = definition.stages_by_source();
        let said = definition.data.sources.iter().zip(&definition.places).zip(stages);
        let sources = made
            .into_iter()
            .zip(said)
            .map(|(source, ((config, place), stages))| {
                let on_error = config.rejects.on_error;
                let root = match place.root.to_str().filter(|text| is_url(text)) {
                    Some(url) => remote::shown(url),
                    None => std::path::absolute(&place.root)
                        .unwrap_or_else(|_| place.root.clone())
                        .display()
                        .to_string(),
                };
                SourceStage { source: Arc::from(source), root, stages, on_error }
            })
            .collect();
        let transforms = definition
            .data
            .transforms
            .iter()
            .map(|t| {
                let made = t.make(&definition.folder);
                made.map(Arc::from).map_err(|e| PipelineError::settings(&t.name, e))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            definition,
            identity,
            home,
            storage,
            sources,
            transforms,
            retries_rejects: false,
            is_shared: false,
        })
    }

    /// What is odd about the definition, but not wrong.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.definition.warnings.iter().map(ToString::to_string)
    }

    /// The dataset's paths.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The transforms with their names.
    pub(super) fn named_transforms(&self) -> impl Iterator<Item = (&str, &Arc<dyn Transform>)> {
        let names = self.definition.data.transforms.iter().map(|it| it.name.as_str());
        names.zip(&self.transforms)
    }

    /// The names of all stages: the sources, then the transforms.
    pub(super) fn stage_names(&self) -> impl Iterator<Item = &str> {
        let sources = self.sources.iter().map(SourceStage::name);
        sources.chain(self.named_transforms().map(|(name, _)| name))
    }

    /// The JSON that the cache key hashes.
    #[must_use]
    pub fn definition_json(&self) -> &serde_json::Value {
        &self.identity.json
    }

    /// How long a run that was asked to stop may take to reach a commit.
    #[must_use]
    pub fn grace(&self) -> Duration {
        GRACE
    }

    /// Whether the dataset has its sentinel and the manifest that it names. Its inputs may have
    /// changed since.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn is_complete(&self) -> Result<bool, PipelineError> {
        Ok(Manifest::current_shards(&*self.storage, self.home.dir())?.is_some())
    }

    /// The same, asking again about rows that a hook did not answer: partitions with such rejects are
    /// built again. A retry that was begun and has not ended is gone on with, here and without this.
    #[must_use]
    pub fn retrying_rejects(self) -> Self {
        Self { retries_rejects: true, ..self }
    }

    /// The place of the transform of index `index`.
    pub(super) fn stage(&self, index: usize) -> Stage {
        let transform = self.definition.data.transforms.get(index);
        let on_error = transform.map(|transform| transform.rejects.on_error).unwrap_or_default();
        Stage { index: index + 1, on_error }
    }

    /// How large shards and their rows may be.
    pub(super) fn shard_limits(&self) -> ShardLimits {
        let data = &self.definition.data.dataset;
        ShardLimits {
            bytes: data.shard_bytes,
            rows: data.shard_rows,
            intern_values: data.intern_values,
            row_bytes: data.max_row_bytes,
        }
    }

    /// The columns after each stage, from those of the source, and the row that they are stored as.
    pub(super) fn row_schema(&self, source: &SchemaRef) -> Result<RowSchema, PipelineError> {
        let columns = self.columns_after(source)?;
        if columns.fields().is_empty() {
            let message = "there are no columns to store".to_owned();
            let hint = Some("leave inputs without columns out of `path`".to_owned());
            return Err(self.definition.error_at(&["dataset"], message, hint).into());
        }
        let (specs, key) =
            (&self.definition.data.dataset.fields, self.definition.data.dataset.key.as_deref());
        let refused = |error, is_key: bool| match error {
            SchemaError::Field { field, message, hint } if is_key => {
                let message = format!("`key`, field `{field}`: {message}");
                self.definition.error_at(&["dataset", "key"], message, hint).into()
            }
            SchemaError::Field { field, message, hint } => {
                let keys = ["dataset", "fields", &field];
                let message = format!("field `{field}`: {message}");
                self.definition.error_at(&keys, message, hint).into()
            }
            error => PipelineError::Schema(error),
        };
        // Without the key first: what is wrong then is not its fault.
        let plain = RowSchema::infer(&columns, specs, None).map_err(|e| refused(e, false))?;
        match key {
            None => Ok(plain),
            Some(_) => RowSchema::infer(&columns, specs, key).map_err(|e| refused(e, true)),
        }
    }

    fn columns_after(&self, source: &SchemaRef) -> Result<SchemaRef, PipelineError> {
        self.named_transforms().try_fold(Arc::clone(source), |columns, (name, transform)| {
            transform.output(&columns).map_err(|e| self.refused_columns(name, e))
        })
    }

    /// The error of a transform that refuses the columns which reach it.
    pub(super) fn refused_columns(&self, name: &str, e: SettingsError) -> PipelineError {
        let own = e.at.iter().map(String::as_str);
        let keys: Vec<&str> = ["transforms", name].into_iter().chain(own).collect();
        let setting = match e.at.as_slice() {
            [] => String::new(),
            keys => format!(", `{}`", keys.join(".")),
        };
        let message = format!("[transforms.{name}]{setting}: {}", e.message);
        self.definition.error_at(&keys, message, e.hint).into()
    }
}

/// `path` without `.`, and without `folder/..` where `folder` is no link: it leads to the same
/// place and is what people would write.
fn shortest(storage: &dyn Storage, path: &Path) -> PathBuf {
    if path.to_str().is_some_and(is_url) {
        return path.to_owned();
    }
    let mut short = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if is_folder(storage, &short) => {
                short.pop();
            }
            other => short.push(other),
        }
    }
    // No system call takes an empty path for the working folder.
    if short.as_os_str().is_empty() { PathBuf::from(".") } else { short }
}

/// Whether `path` ends in the name of a folder, as opposed to that of a link, or `..`.
fn is_folder(storage: &dyn Storage, path: &Path) -> bool {
    path.file_name().is_some()
        && storage.stat(path).is_ok_and(|it| it.is_some_and(|it| it.kind == EntryKind::Dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Overlap;
    use crate::storage::memory::Memory;

    #[test]
    fn paths_are_shortened_where_they_lead_to_the_same_place() {
        let disk = Memory::new(Overlap::Now);
        for dir in ["/a", "/a/b", "/a/c"] {
            disk.create_dir(Path::new(dir)).unwrap();
        }
        disk.symlink("/a/b", Path::new("/link")).unwrap();
        for (path, want) in [
            ("/a/../x", "/x"),
            ("/a/b/../c/./d", "/a/c/d"),
            ("/a/b/../../x", "/x"),
            ("/link/../x", "/link/../x"),
            ("/none/../x", "/none/../x"),
            ("./x", "x"),
            ("../x", "../x"),
            ("../../x", "../../x"),
            (".", "."),
            ("./.", "."),
            ("/", "/"),
        ] {
            assert_eq!(shortest(&disk, Path::new(path)), PathBuf::from(want), "{path}");
        }
    }
}
