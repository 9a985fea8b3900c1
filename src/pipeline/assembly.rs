//! A definition with its parts made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;

use super::PipelineError;
use crate::config::{Definition, Identity, Override};
use crate::dataset::Home;
use crate::dataset::sentinel::Sentinel;
use crate::schema::RowSchema;
use crate::shard::ShardLimits;
use crate::sources::Source;
use crate::storage::{Local, Storage};
use crate::transforms::Transform;

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

/// A definition whose source and transforms are made; nothing was read but the definition.
#[derive(Debug)]
pub struct Pipeline {
    pub(super) definition: Definition,
    pub(super) identity: Identity,
    pub(super) home: Home,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) source: Arc<dyn Source>,
    pub(super) transforms: Vec<Arc<dyn Transform>>,
    /// The source, then the transforms.
    pub(super) stage_names: Vec<String>,
}

impl Pipeline {
    /// Reads a definition and makes its parts.
    ///
    /// # Errors
    /// Everything that is wrong with the definition, with its lines.
    pub fn load(path: &Path, overrides: &RunOverrides) -> Result<Self, PipelineError> {
        let mut set = overrides.set.clone();
        set.extend(overrides.jobs.map(|n| format!("run.jobs={n}")));
        set.extend(overrides.memory.as_ref().map(|size| format!("run.memory=\"{size}\"")));
        set.extend(overrides.limit_rows.map(|n| format!("dataset.limit_rows={n}")));
        let set = set.iter().map(|s| Override::parse(s)).collect::<Result<Vec<_>, _>>();
        let mut definition =
            Definition::load(path, &set.map_err(crate::config::ConfigErrors::from)?)?;
        if let Some(out) = &overrides.out {
            definition.run.out.clone_from(out);
        }
        Self::new(definition, Arc::new(Local))
    }

    fn new(definition: Definition, storage: Arc<dyn Storage>) -> Result<Self, PipelineError> {
        let identity = definition.identity();
        let home = Home::new(&definition.run.out, &definition.name, &identity.cache_key)?;
        let stage_names = definition.stage_names();
        let source = definition
            .make_source()
            .map_err(|e| PipelineError::settings(&definition.data.source.name, e))?;
        let transforms = definition
            .data
            .transforms
            .iter()
            .map(|t| {
                let made = (t.kind.make)(&t.settings);
                made.map(Arc::from).map_err(|e| PipelineError::settings(&t.name, e))
            })
            .collect::<Result<_, _>>()?;
        let source = Arc::from(source);
        Ok(Self { definition, identity, home, storage, source, transforms, stage_names })
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

    /// Where the source's inputs are, as text: only ever a reason not to believe a stamp.
    pub(super) fn root(&self) -> String {
        self.definition.root.display().to_string()
    }

    /// How long a run that was asked to stop may take to reach a commit.
    #[must_use]
    pub fn grace(&self) -> Duration {
        GRACE
    }

    /// Whether the dataset has its sentinel. Its inputs may have changed since.
    ///
    /// # Errors
    /// A folder that cannot be read, or a sentinel that is damaged.
    pub fn is_complete(&self) -> Result<bool, PipelineError> {
        Ok(Sentinel::read(&*self.storage, self.home.dir())?.is_some())
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
        RowSchema::infer(&columns, &self.definition.data.dataset.fields, None)
            .map_err(PipelineError::Schema)
    }

    fn columns_after(&self, source: &SchemaRef) -> Result<SchemaRef, PipelineError> {
        let named = self.transforms.iter().zip(self.stage_names.iter().skip(1));
        named.into_iter().try_fold(Arc::clone(source), |columns, (transform, name)| {
            transform.output(&columns).map_err(|e| PipelineError::settings(name, e))
        })
    }
}
