//! What a definition says of a hook.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::schema::Stored;
use crate::sources::{SettingsError, Size};

/// What is said of a hook, whatever its kind.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(super) struct HookSettings {
    /// What the hook is told: JSON in its environment variable `ROWMILL_PARAMS`.
    #[serde(default)]
    pub(super) params: BTreeMap<String, Value>,
    /// Files whose contents decide what it computes, relative to the folder of the definition.
    #[serde(default)]
    pub(super) files: Vec<String>,
    /// The columns that it is sent; all of them, if it is left out.
    #[serde(default)]
    pub(super) input: Option<Vec<String>>,
    /// The columns that it answers with; learned from its answer to the first rows of the first input, if
    /// it is left out.
    #[serde(default)]
    pub(super) output: Option<BTreeMap<String, OutputSettings>>,
    /// How many rows it answers with to each that it is sent.
    #[serde(default)]
    pub(super) cardinality: Cardinality,
    /// Whether floats may be NaN.
    #[serde(default)]
    pub(super) nan: Nan,
    /// Folder of the feature cache that keeps its answers, relative to the folder of the definition.
    #[serde(default)]
    pub(super) cache: Option<String>,
    /// Whether what it answers to a row depends on that row alone.
    #[serde(default)]
    pub(super) rows_independent: bool,
    /// The column whose value tells rows apart in the feature cache; all that it is sent, if it is left
    /// out.
    #[serde(default)]
    pub(super) cache_key: Option<String>,
    /// Most rows in a batch.
    #[serde(default = "default_batch_rows")]
    pub(super) batch_rows: u32,
    /// Most bytes in a batch of several rows, counting all columns that reach the hook.
    #[serde(default = "default_batch_bytes")]
    pub(super) batch_bytes: Size,
    /// Most bytes in the answer to a batch.
    #[serde(default = "default_answer_bytes")]
    pub(super) answer_bytes: Size,
    /// Processes at once.
    #[serde(default = "default_workers")]
    pub(super) workers: u32,
    /// Most time that a batch may take, the start of the process included.
    #[serde(default = "default_timeout")]
    pub(super) timeout: Seconds,
    /// Most memory that a process and those it starts may hold.
    #[serde(default)]
    pub(super) memory: Option<Size>,
    /// Threads that numeric libraries may start in each process.
    #[serde(default = "default_threads")]
    pub(super) threads: u32,
    /// Environment variables that the process gets beside the usual ones.
    #[serde(default)]
    pub(super) env: Vec<String>,
}

/// Settings of hooks of any kind that decide no value.
pub(super) const RUN_SETTINGS: &[&str] =
    &["command.0", "python", "workers", "timeout", "memory", "threads", "env", "cache"];

fn default_batch_rows() -> u32 {
    1024
}

fn default_batch_bytes() -> Size {
    Size(4 << 20)
}

fn default_answer_bytes() -> Size {
    Size(32 << 20)
}

fn default_workers() -> u32 {
    1
}

fn default_timeout() -> Seconds {
    Seconds(Duration::from_mins(5))
}

fn default_threads() -> u32 {
    1
}

/// How many rows are made of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Cardinality {
    /// One of each.
    #[default]
    One,
    /// Any number; the column `parent` of the answer says which row each is made of.
    Any,
}

/// What is done with NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Nan {
    /// It is a value.
    #[default]
    Allow,
    /// A row with one is bad.
    Refuse,
}

/// A column that a hook answers with.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputSettings {
    /// The type of its values; `bfloat16` is a matter of [dataset.fields].
    dtype: Stored,
    /// Shape of a row; with `kind = "ragged"`, of an entry of the list.
    #[serde(default)]
    shape: Vec<u32>,
    /// `fixed`, or `ragged` for a list per row.
    #[serde(default)]
    kind: OutputKind,
    /// Whether rows may lack a value.
    #[serde(default)]
    nullable: bool,
}

/// How the values of a row are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum OutputKind {
    /// All rows have the same shape.
    #[default]
    Fixed,
    /// A list per row.
    Ragged,
}

impl OutputSettings {
    /// The column, as Arrow knows it.
    pub(crate) fn field(&self, name: &str) -> Result<Field, SettingsError> {
        let refuse = |key: &str, message: &str, hint: &str| SettingsError {
            at: vec!["output".to_owned(), name.to_owned(), key.to_owned()],
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        };
        let is_text = matches!(self.dtype, Stored::Utf8 | Stored::Binary | Stored::Json);
        let mut kind = match self.dtype {
            Stored::Bool => DataType::Boolean,
            Stored::Int8 => DataType::Int8,
            Stored::Int16 => DataType::Int16,
            Stored::Int32 => DataType::Int32,
            Stored::Int64 => DataType::Int64,
            Stored::Uint8 => DataType::UInt8,
            Stored::Uint16 => DataType::UInt16,
            Stored::Uint32 => DataType::UInt32,
            Stored::Uint64 => DataType::UInt64,
            Stored::Float16 => DataType::Float16,
            Stored::Float32 => DataType::Float32,
            Stored::Float64 => DataType::Float64,
            Stored::Utf8 | Stored::Json => DataType::LargeUtf8,
            Stored::Binary => DataType::LargeBinary,
            Stored::Bfloat16 => {
                let hint = "declare float32 here, and bfloat16 in [dataset.fields]";
                return Err(refuse("dtype", "Arrow has no bfloat16", hint));
            }
        };
        if is_text && (!self.shape.is_empty() || self.kind == OutputKind::Ragged) {
            let key = if self.shape.is_empty() { "kind" } else { "shape" };
            let hint = "a column of texts or bytes has one per row";
            return Err(refuse(key, "texts and bytes have neither shape nor kind", hint));
        }
        let item = |kind: DataType| Arc::new(Field::new_list_field(kind, false));
        for n in self.shape.iter().rev() {
            let n = i32::try_from(*n).ok().filter(|n| *n > 0);
            let hint = "write the numbers of a row's array, [28, 28]";
            let n = n.ok_or_else(|| refuse("shape", "a dimension is out of range", hint))?;
            kind = DataType::FixedSizeList(item(kind), n);
        }
        if self.kind == OutputKind::Ragged {
            kind = DataType::LargeList(item(kind));
        }
        let field = Field::new(name, kind, self.nullable);
        if self.dtype == Stored::Json {
            let json = (EXTENSION_TYPE_NAME_KEY.to_owned(), "arrow.json".to_owned());
            return Ok(field.with_metadata([json]));
        }
        Ok(field)
    }
}

/// Columns as a definition would declare them.
pub(super) fn declarations(fields: &[Field]) -> Value {
    let declaration = |field: &Field| {
        let (mut shape, mut kind) = (Vec::new(), OutputKind::Fixed);
        let mut of = field.data_type();
        if let DataType::LargeList(item) = of {
            (kind, of) = (OutputKind::Ragged, item.data_type());
        }
        while let DataType::FixedSizeList(item, n) = of {
            shape.push(*n);
            of = item.data_type();
        }
        let is_json = field.metadata().contains_key(EXTENSION_TYPE_NAME_KEY);
        let dtype = match of {
            DataType::LargeUtf8 if is_json => "json".to_owned(),
            DataType::LargeUtf8 => "utf8".to_owned(),
            DataType::LargeBinary => "binary".to_owned(),
            DataType::Boolean => "bool".to_owned(),
            other => other.to_string().to_lowercase(),
        };
        let nullable = field.is_nullable();
        let json = json!({"dtype": dtype, "shape": shape, "kind": kind, "nullable": nullable});
        (field.name().clone(), json)
    };
    Value::Object(fields.iter().map(declaration).collect())
}

/// Units of time, in milliseconds, the largest first.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// A time, as text with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seconds(pub(super) Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let milliseconds = UNITS.iter().find(|known| known.0 == unit.trim()).map(|known| known.1);
        let number = number.parse::<u64>().ok().filter(|number| *number > 0);
        let time = number.zip(milliseconds).and_then(|(number, unit)| number.checked_mul(unit));
        let refuse = || serde::de::Error::custom(format!("\"{text}\" is no time; write \"30s\""));
        time.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(refuse)
    }
}

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let milliseconds = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let (unit, size) =
            UNITS.into_iter().find(|it| milliseconds % it.1 == 0).unwrap_or(("ms", 1));
        write!(f, "{}{unit}", milliseconds / size)
    }
}

impl Serialize for Seconds {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}
