//! Pipeline definitions: TOML files, read into typed structs with errors that point at lines.
//!
//! In reading order: [`Definition`] is what a file says; [`DataConfig`] is the part that decides
//! bytes and [`RunConfig`] the part that does not; [`Identity`] is what the cache key hashes.
//!
//! Leaves out: listing inputs and looking at data. A definition is read without opening any other
//! file.
//!
//! Invariants:
//! 1. [`Identity`] is made of [`DataConfig`] alone, so nothing else can reach the cache key.
//! 2. What a [`DataConfig`] holds has its defaults filled in: writing a default down, or writing a
//!    value in another way, changes nothing.
//! 3. No text makes reading panic; what is wrong is shown with its line and what to do about it.

mod error;
mod identity;
mod json_schema;
mod origin;
mod overrides;
mod parse;
mod place;
mod read;
mod rejects;
mod settings;
mod stages;
mod substitute;
mod test_case;
mod tree;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

pub use error::{ConfigError, ConfigErrors};
pub use identity::Identity;
pub use json_schema::json_schema;
pub use overrides::Override;
pub(crate) use read::did_you_mean;
pub use rejects::RejectPolicy;
pub use test_case::{GivenRow, TestCase};

use crate::batch::OnError;
use crate::books::Budget;
use crate::codes::Entry;
use crate::fingerprint::Fingerprinting;
use crate::schema::FieldSpec;
use crate::sources::{SettingsError, Source, SourceSpec, SourceType};
use crate::transforms::{Transform, TransformSpec, TransformType};

/// What the dataset is called as a stage that rejects rows.
pub const DATASET_STAGE: &str = "dataset";
/// The only version of definitions so far.
pub const DEFINITION_VERSION: i64 = 1;
/// Largest file that is taken for a definition.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A pipeline definition, checked.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The folder of the file, which every other path is relative to.
    pub folder: PathBuf,
    /// Name of the dataset, and of its folder.
    pub name: String,
    /// One line for people.
    pub description: Option<String>,
    /// What decides bytes.
    pub data: DataConfig,
    /// What does not.
    pub run: RunConfig,
    /// Where the dataset is pushed to while it is built.
    pub push: Option<PushConfig>,
    /// Where the inputs of each source are, in the order of the sources.
    pub places: Vec<SourcePlace>,
    /// Whether the dataset may have no rows without that being an error.
    pub allow_empty: bool,
    /// What `rowmill test` tries.
    pub tests: Vec<TestCase>,
    /// Whether a finished run becomes the `current` dataset: not if it was limited to some rows, or
    /// overrides touched what decides bytes.
    pub becomes_current: bool,
    /// What is odd but not wrong.
    pub warnings: Vec<ConfigError>,
    /// Where everything was written.
    origin: origin::Origin,
}

/// The part of a definition that decides bytes.
#[derive(Debug, Clone)]
pub struct DataConfig {
    /// Where rows come from, in the order in which they stand in the file.
    pub sources: Vec<SourceConfig>,
    /// What is done to them, in order.
    pub transforms: Vec<TransformConfig>,
    /// How they are stored.
    pub dataset: DatasetConfig,
}

/// `[sources.NAME]`
#[derive(Debug, Clone)]
pub struct SourceConfig {
    /// Its name.
    pub name: String,
    /// What `type` names.
    pub kind: &'static SourceType,
    /// Paths and globs, relative to the root.
    pub paths: Vec<String>,
    /// Its own settings, a JSON object with defaults filled in.
    pub settings: Value,
    /// What is done with its bad rows.
    pub rejects: RejectPolicy,
}

/// What is said of a source that decides no byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    /// Where its inputs are.
    pub root: PathBuf,
    /// Whether it may match no input.
    pub allow_empty: bool,
}

/// `[transforms.NAME]`
#[derive(Debug, Clone)]
pub struct TransformConfig {
    /// Its name.
    pub name: String,
    /// What `type` names.
    pub kind: &'static TransformType,
    /// Its own settings, a JSON object with defaults filled in.
    pub settings: Value,
    /// What is done with its bad rows.
    pub rejects: RejectPolicy,
}

impl TransformConfig {
    /// Makes the transform; `folder` is that of the definition.
    ///
    /// # Errors
    /// It refuses its settings.
    pub fn make(&self, folder: &Path) -> Result<Box<dyn Transform>, SettingsError> {
        (self.kind.make)(&TransformSpec {
            name: self.name.clone(),
            folder: folder.to_owned(),
            settings: self.settings.clone(),
        })
    }
}

/// `[dataset]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetConfig {
    /// The field whose values tell rows apart.
    pub key: Option<String>,
    /// How inputs are grouped or cut into partitions.
    pub partition_bytes: u64,
    /// A shard ends at the first row at which its rows have added this many bytes.
    pub shard_bytes: u64,
    /// A shard ends after this many rows.
    pub shard_rows: u64,
    /// A row with more bytes is refused.
    pub max_row_bytes: u64,
    /// A shard ends when an interned field has this many distinct values.
    pub intern_values: u64,
    /// Only this many source rows are read.
    pub limit_rows: Option<u64>,
    /// What is done with rows that cannot be stored.
    pub rejects: RejectPolicy,
    /// What is said of single fields.
    pub fields: BTreeMap<String, FieldSpec>,
}

impl Default for DatasetConfig {
    fn default() -> Self {
        Self {
            key: None,
            partition_bytes: 1 << 30,
            shard_bytes: 256 << 20,
            shard_rows: 1_000_000,
            max_row_bytes: 64 << 20,
            intern_values: 1_000_000,
            limit_rows: None,
            rejects: RejectPolicy::default(),
            fields: BTreeMap::new(),
        }
    }
}

/// `[run]`: how, where and how fast; never what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    /// The folder of all datasets.
    pub out: PathBuf,
    /// Partitions at work at once, and threads that transform; `None` for as many as there are cores.
    pub jobs: Option<usize>,
    /// Bytes of memory that the run may take.
    pub memory: u64,
    /// Rows are committed when they have added this many bytes,
    pub commit_bytes: u64,
    /// or when this much time has passed.
    pub commit_interval: Duration,
    /// Most rows in a batch.
    pub batch_rows: usize,
    /// About the most bytes in a batch.
    pub batch_bytes: usize,
    /// How inputs are told to be the ones that were read before.
    pub fingerprint: Fingerprinting,
}

impl RunConfig {
    /// The run of a definition in `folder` that says nothing of it.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            out: folder.join("data"),
            jobs: None,
            memory: 1 << 30,
            commit_bytes: 64 << 20,
            commit_interval: Duration::from_secs(5),
            batch_rows: 65_536,
            batch_bytes: 4 << 20,
            fingerprint: Fingerprinting::default(),
        }
    }
}

/// `[push]`: where to, and how fast; never what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Where to.
    pub url: String,
    /// Bytes of a part; files up to this size are sent whole.
    pub part_bytes: u64,
    /// Parts and small files sent at once.
    pub concurrency: u16,
    /// Most bytes per second.
    pub bandwidth: Option<u64>,
    /// Whether an endpoint may be plain HTTP.
    pub allow_http: bool,
    /// Whether the rows of a shard go here as soon as it is there.
    pub drop_local: bool,
}

impl PushConfig {
    /// The smallest part that stores take.
    pub const LEAST_PART_BYTES: u64 = 5 << 20;

    /// The largest part that stores take.
    pub const MOST_PART_BYTES: u64 = 5 << 30;

    /// A push to `url` that says nothing else.
    #[must_use]
    pub fn to(url: String) -> Self {
        Self {
            url,
            part_bytes: 16 << 20,
            concurrency: 8,
            bandwidth: None,
            allow_http: false,
            drop_local: false,
        }
    }
}

/// The sources and transforms that a definition can name, and their codes.
#[derive(Debug, Clone, Copy)]
pub struct Registry {
    /// The sources.
    pub sources: &'static [SourceType],
    /// The transforms.
    pub transforms: &'static [TransformType],
    /// What `explain` tells of the codes of bad rows that these sources and transforms bring, beside
    /// those of Rowmill.
    pub codes: &'static [Entry],
}

impl Registry {
    /// What this build of Rowmill brings along.
    pub const BUILT_IN: Self = Self {
        sources: crate::sources::SOURCES,
        transforms: crate::transforms::TRANSFORMS,
        codes: &[],
    };

    /// This registry with more in it, for a program that brings its own. The longer tables live as
    /// long as the process.
    #[must_use]
    pub fn with(self, sources: &[SourceType], transforms: &[TransformType]) -> Self {
        Self {
            sources: Vec::leak([self.sources, sources].concat()),
            transforms: Vec::leak([self.transforms, transforms].concat()),
            ..self
        }
    }

    /// This registry with the codes of bad rows that its sources and transforms bring.
    #[must_use]
    pub fn with_codes(self, codes: &[Entry]) -> Self {
        Self { codes: Vec::leak([self.codes, codes].concat()), ..self }
    }
}

impl Definition {
    /// Reads and checks the definition at `path`, with `overrides` laid over it. It may name what is
    /// in `registry`.
    ///
    /// # Errors
    /// Everything that is wrong with it, as far as it can be told at once.
    pub fn load(
        path: &Path,
        overrides: &[Override],
        registry: Registry,
    ) -> Result<Self, ConfigErrors> {
        let text = read_file(path)?;
        let lookup = |name: &str| std::env::var_os(name);
        parse::definition(path, &text, overrides, registry, &lookup)
    }

    /// What the cache key of this definition hashes.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity::of(&self.data)
    }

    /// Makes the sources, in order.
    ///
    /// # Errors
    /// The settings of one are refused, with its name; a definition that was loaded has settings that
    /// are not.
    pub fn make_sources(&self) -> Result<Vec<Box<dyn Source>>, (&str, SettingsError)> {
        let make = |(source, place): (&SourceConfig, &SourcePlace)| {
            (source.kind.make)(&SourceSpec {
                name: source.name.clone(),
                paths: source.paths.clone(),
                root: place.root.clone(),
                settings: source.settings.clone(),
            })
        };
        let all = self.data.sources.iter().zip(&self.places);
        all.map(|it| make(it).map_err(|error| (it.0.name.as_str(), error))).collect()
    }

    /// Makes the transforms, in order.
    ///
    /// # Errors
    /// As [`Definition::make_sources`].
    pub fn make_transforms(&self) -> Result<Vec<Box<dyn Transform>>, SettingsError> {
        self.data.transforms.iter().map(|t| t.make(&self.folder)).collect()
    }

    /// An error about the setting that `keys` lead to, shown with its line: for what is found wrong
    /// only when more is known than the definition.
    #[must_use]
    pub fn error_at(&self, keys: &[&str], message: String, hint: Option<String>) -> ConfigErrors {
        self.origin.error(keys, message, hint).into()
    }

    /// For each source, the names of the stages whose books are kept, in the order in which its rows
    /// pass them: its own first, and last the dataset itself, where it may reject rows.
    #[must_use]
    pub fn stages_by_source(&self) -> Vec<Vec<String>> {
        let DataConfig { sources, transforms, dataset } = &self.data;
        let dataset = match dataset.rejects.on_error {
            OnError::Fail => None,
            OnError::Quarantine => Some(DATASET_STAGE),
        };
        let behind = transforms.iter().map(|t| t.name.clone()).chain(dataset.map(str::to_owned));
        let stages = |source: &SourceConfig| {
            [source.name.clone()].into_iter().chain(behind.clone()).collect()
        };
        sources.iter().map(stages).collect()
    }

    /// The table that a stage was written in, as people name it.
    #[must_use]
    pub fn table_of(&self, stage: &str) -> String {
        if self.data.transforms.iter().any(|t| t.name == stage) {
            return format!("[transforms.{stage}]");
        }
        let is_dataset =
            stage == DATASET_STAGE && self.data.dataset.rejects.on_error == OnError::Quarantine;
        if is_dataset { "[dataset]".to_owned() } else { format!("[sources.{stage}]") }
    }

    /// How many rejects each of these stages may have.
    #[must_use]
    pub fn budgets(&self) -> Vec<Budget> {
        let DataConfig { sources, transforms, dataset } = &self.data;
        let transforms = transforms.iter().map(|t| (t.name.as_str(), t.rejects));
        let sources = sources.iter().map(|s| (s.name.as_str(), s.rejects));
        sources
            .chain(transforms)
            .chain([(DATASET_STAGE, dataset.rejects)])
            .map(|(stage, rejects)| Budget { stage: stage.to_owned(), max: rejects.budget() })
            .collect()
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "definitions are small files of the user's, neither inputs nor output"
)]
fn read_file(path: &Path) -> Result<String, ConfigError> {
    let refused = |e: std::io::Error| {
        let (what, hint) = match e.kind() {
            std::io::ErrorKind::NotFound => ("there is no such file", "check the path"),
            std::io::ErrorKind::PermissionDenied => {
                ("it may not be read", "check who may read the file")
            }
            std::io::ErrorKind::IsADirectory => {
                ("it is a folder", "name the definition in it, a .toml file")
            }
            _ => {
                return ConfigError::of_file(
                    path,
                    format!("cannot read the definition: {e}"),
                    "check the path",
                );
            }
        };
        ConfigError::of_file(path, format!("cannot read the definition: {what}"), hint)
    };
    let file = std::fs::File::open(path).map_err(refused)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the definition is larger than {} MiB", MAX_FILE_BYTES >> 20);
        return Err(ConfigError::of_file(path, message, "name a definition, not a data file"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let valid = e.utf8_error().valid_up_to();
        let line = e.as_bytes().iter().take(valid).filter(|b| **b == b'\n').count() + 1;
        let message = format!("the definition is not UTF-8: line {line} holds other bytes");
        ConfigError::of_file(path, message, "save the file as UTF-8")
    })
}

#[cfg(test)]
mod tests;
