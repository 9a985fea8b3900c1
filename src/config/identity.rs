//! What the cache key hashes.
//!
//! Invariant: only what can change a value is in it. Where things are (`root`, `[run]`), what they
//! are called by people (`name`, `description`) and what may be empty are not: two definitions that
//! differ in those alone make the same shards.

use serde_json::{Map, Value, json};

use super::{DataConfig, DatasetConfig};
use crate::fingerprint::{SHARD_WRITER, cache_key};
use crate::schema::{FieldSpec, LAYOUT};

/// Everything that decides values except the inputs, and its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Exactly what is hashed; it stands in the dataset's manifest.
    pub json: Value,
    /// The cache key: 16 hex digits.
    pub cache_key: String,
}

impl Identity {
    pub(super) fn of(data: &DataConfig) -> Self {
        let DataConfig { source, transforms, dataset } = data;
        let source_version = format!("{}@{}", source.kind.name, source.kind.version);
        let transform_versions =
            transforms.iter().map(|t| format!("{}@{}", t.kind.name, t.kind.version));
        let versions: Vec<String> = std::iter::once(source_version)
            .chain(transform_versions)
            .chain([SHARD_WRITER.to_owned()])
            .collect();
        let transform = |t: &super::TransformConfig| json!({"name": t.name, "type": t.kind.name, "settings": t.settings});
        let json = json!({
            "layout": LAYOUT,
            "versions": versions,
            "source": {
                "name": source.name,
                "type": source.kind.name,
                "path": source.paths,
                "settings": source.settings,
            },
            "transforms": transforms.iter().map(transform).collect::<Vec<_>>(),
            "dataset": dataset_json(dataset),
        });
        Self { cache_key: cache_key(&json), json }
    }
}

fn dataset_json(dataset: &DatasetConfig) -> Value {
    let DatasetConfig {
        partition_bytes,
        shard_bytes,
        shard_rows,
        max_row_bytes,
        intern_values,
        limit_rows,
        fields,
    } = dataset;
    let fields: Map<String, Value> =
        fields.iter().map(|(name, spec)| (name.clone(), field_json(spec))).collect();
    json!({
        "partition_bytes": partition_bytes,
        "shard_bytes": shard_bytes,
        "shard_rows": shard_rows,
        "max_row_bytes": max_row_bytes,
        "intern_values": intern_values,
        "limit_rows": limit_rows,
        "fields": fields,
    })
}

/// What a definition says of a field, without what it leaves to be inferred.
fn field_json(spec: &FieldSpec) -> Value {
    let mut json = json!(spec);
    if let Value::Object(object) = &mut json {
        object.retain(|_, value| !value.is_null() && value != &Value::Bool(false));
        // `nullable = false` says something that leaving it out does not.
        if spec.nullable == Some(false) {
            object.insert("nullable".into(), false.into());
        }
    }
    json
}
