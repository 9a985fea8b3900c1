//! `command`: a hook that is any program.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::settings::{HookSettings, RUN_SETTINGS};
use super::transform::{Hook, Program, refuse};
use crate::sources::parse_settings;
use crate::transforms::{SettingsError, TransformSpec, TransformType};

pub(in crate::transforms) const TYPE: TransformType = TransformType {
    name: "command",
    version: 1,
    about: "columns that a program in any language computes",
    settings: CommandSettings::json_schema,
    run_settings: RUN_SETTINGS,
    make: |spec| Ok(Box::new(make(spec)?)),
};

/// Settings of the `command` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct CommandSettings {
    /// The program and its arguments. A program whose name has a slash is looked for from the folder of
    /// the definition on.
    command: Vec<String>,
    /// Names what the hook computes; a new one when it computes something else.
    id: String,
    #[serde(flatten)]
    hook: HookSettings,
}

fn make(spec: &TransformSpec) -> Result<Hook, SettingsError> {
    let CommandSettings { command, id, hook } = parse_settings(&spec.settings)?;
    if command.first().is_none_or(String::is_empty) {
        let hint = "name a program and its arguments: [\"python3\", \"hook.py\"]";
        return Err(refuse("command", "there is no program", hint));
    }
    let arguments = command.get(1..).unwrap_or_default();
    let kind = json!({"type": TYPE.name, "version": TYPE.version, "arguments": arguments});
    let command = command.into_iter().map(Into::into).collect();
    Hook::new(spec, hook, Program { id, kind, command, set: Vec::new(), files: Vec::new() })
}
