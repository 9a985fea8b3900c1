//! The `select` transform: keeps some columns, in a given order and under given names.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{find, unexpected};
use super::{Emit, SettingsError, Stage, Transform, TransformError, TransformType};
use crate::batch::Batch;
use crate::sources::parse_settings;

pub(super) const TYPE: TransformType = TransformType {
    name: "select",
    version: 1,
    about: "keeps columns, in the order given, and renames them",
    settings: Settings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(Select { settings: parse_settings(&spec.settings)? })),
};

/// Settings of the `select` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The columns to keep, by the names they come with, in the order they leave in; all of them if
    /// left out.
    columns: Option<Vec<String>>,
    /// New names: `{ new = "old" }`.
    #[serde(default)]
    rename: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Select {
    settings: Settings,
}

impl Select {
    /// Where each column that leaves stands in the input, and its field.
    fn choose(&self, input: &SchemaRef) -> Result<Vec<(usize, Field)>, SettingsError> {
        let all = || input.fields().iter().map(|f| f.name().clone()).collect();
        let names: Vec<String> = self.settings.columns.clone().unwrap_or_else(all);
        for old in self.settings.rename.values() {
            find(input, "rename", old)?;
            let twice = self.settings.rename.values().filter(|o| *o == old).count() > 1;
            if twice || !names.contains(old) {
                let message = if twice {
                    format!("column `{old}` is given two names")
                } else {
                    format!("column `{old}` is renamed but not kept")
                };
                return Err(refuse("rename", message));
            }
        }
        let mut chosen: Vec<(usize, Field)> = Vec::with_capacity(names.len());
        for name in &names {
            let (index, field) = find(input, "columns", name)?;
            let renamed = self.settings.rename.iter().find(|(_, old)| *old == name);
            let new_name = renamed.map_or(name, |(new, _)| new);
            if chosen.iter().any(|(_, field)| field.name() == new_name) {
                let is_new = self.settings.rename.contains_key(new_name);
                let at = if is_new { "rename" } else { "columns" };
                return Err(refuse(at, format!("there would be two columns `{new_name}`")));
            }
            chosen.push((index, field.as_ref().clone().with_name(new_name)));
        }
        if chosen.is_empty() {
            return Err(refuse("columns", "no column is kept".to_owned()));
        }
        Ok(chosen)
    }
}

fn refuse(at: &str, message: String) -> SettingsError {
    SettingsError { at: vec![at.to_owned()], message, hint: None }
}

impl Transform for Select {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let fields: Vec<Field> = self.choose(input)?.into_iter().map(|(_, field)| field).collect();
        Ok(Arc::new(Schema::new_with_metadata(fields, input.metadata().clone())))
    }

    fn apply(
        &self,
        _stage: Stage,
        batch: Batch,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        let input = batch.rows.schema();
        let chosen = self.choose(&input).map_err(|e| unexpected(&e))?;
        let columns = chosen.iter().map(|(i, _)| Arc::clone(batch.rows.column(*i))).collect();
        let fields: Vec<Field> = chosen.into_iter().map(|(_, field)| field).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, input.metadata().clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.rows.num_rows()));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        Ok(emit.emit(Batch { rows, ..batch })?)
    }
}
