//! `python`: a hook that is a class or function in a Python file beside the definition.
//!
//! `runner.py` is handed to the interpreter as its program: it reads batches, calls the entry and
//! writes what it returns as Arrow. It needs pyarrow and NumPy, and leaves no file behind.
//!
//! Leaves out: what is made of the values that an entry may return (`runner.py`).
//!
//! Invariant: no answer is believed of a process that has loaded a module from a file of the definition's
//! folder whose contents are not part of the identity. The runner is told the files and looks itself,
//! before its first answer and before each.

use std::ffi::OsString;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::settings::{HookSettings, RUN_SETTINGS};
use super::transform::{Hook, Program, refuse};
use crate::sources::input::Folder;
use crate::sources::parse_settings;
use crate::transforms::{SettingsError, TransformSpec, TransformType};

pub(in crate::transforms) const TYPE: TransformType = TransformType {
    name: "python",
    version: 1,
    about: "columns that a Python class or function computes",
    settings: PythonSettings::json_schema,
    run_settings: RUN_SETTINGS,
    make: |spec| Ok(Box::new(make(spec)?)),
};

/// The program of the interpreter.
const RUNNER: &str = include_str!("runner.py");
/// The variable that tells the runner what to load.
const ENTRY: &str = "ROWMILL_ENTRY";

/// Settings of the `python` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct PythonSettings {
    /// What is called with each batch: `hooks.embed:Embedder` is the class or function `Embedder` in the
    /// file `hooks/embed.py`, in the folder of the definition.
    entry: String,
    /// The interpreter, which must have pyarrow and NumPy. One whose name has a slash is looked for from
    /// the folder of the definition on.
    #[serde(default = "default_python")]
    python: String,
    /// Names what the hook computes; a new one when it computes something else. The entry by default.
    #[serde(default)]
    id: Option<String>,
    #[serde(flatten)]
    hook: HookSettings,
}

fn default_python() -> String {
    "python3".to_owned()
}

fn make(spec: &TransformSpec) -> Result<Hook, SettingsError> {
    let PythonSettings { entry, python, id, hook } = parse_settings(&spec.settings)?;
    if python.is_empty() {
        return Err(refuse("python", "it is empty", "name an interpreter: \".venv/bin/python\""));
    }
    let is_path = |text: &str| text.split('.').all(is_name);
    let Some((module, _)) = entry.split_once(':').filter(|(m, name)| is_path(m) && is_path(name))
    else {
        let hint = "write \"hooks.embed:Embedder\" for the class or function `Embedder` in the file \
                    `hooks/embed.py`";
        return Err(refuse("entry", &format!("`{entry}` names no Python object"), hint));
    };
    let module = module.replace('.', "/");
    let (file, package) = (format!("{module}.py"), format!("{module}/__init__.py"));
    let folder = Folder::new(&spec.folder);
    let is_there = |path: &String| folder.stat(path).is_ok();
    // The packages on the way are loaded first. What is there neither way is reported when the files
    // are hashed.
    let on_the_way = module.match_indices('/').filter_map(|(end, _)| module.get(..end));
    let mut files: Vec<String> =
        on_the_way.map(|it| format!("{it}/__init__.py")).filter(is_there).collect();
    files.push(if is_there(&package) { package } else { file });
    let mut command: Vec<OsString> = [python.as_str(), "-c", RUNNER].map(Into::into).to_vec();
    command.extend(files.iter().chain(&hook.files).map(Into::into));
    let set = [
        (ENTRY, entry.as_str()),
        // Nothing is written beside the user's files, and sets have the same order in every process.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONHASHSEED", "0"),
    ];
    let set = set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let kind = json!({"type": TYPE.name, "version": TYPE.version, "entry": entry});
    Hook::new(spec, hook, Program { id: id.unwrap_or(entry), kind, command, set, files })
}

/// Whether `text` may be a name in Python.
fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c == '_' || c.is_alphanumeric();
    text.chars().all(is_inner) && text.chars().next().is_some_and(|c| !c.is_numeric())
}
