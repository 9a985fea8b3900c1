//! A folder with inputs, a definition and the hook.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{Place, python};

const DEFINITION: &str = r#"version = 1
name = "hooked"

[sources.a]
type = "jsonl"
root = "in"
path = "a.jsonl"

[sources.b]
type = "jsonl"
root = "in"
path = "b.jsonl"

[sources.c]
type = "jsonl"
root = "in"
path = "c.jsonl"

[transforms.features]
type = "command"
inputs = ["a", "b", "c"]
command = ["python3", "hook.py"]
id = "test-v1"
PARAMS
files = ["hook.py"]
input = ["n"]
batch_rows = 4
answer_bytes = "1MiB"
MORE

[transforms.features.output]
double = { dtype = "int64" }
pair = { dtype = "float32", shape = [2], NULLABLE }
words = { dtype = "int64", kind = "ragged" }
seen = { dtype = "utf8" }

[dataset]
max_row_bytes = "64KiB"
shard_rows = 7
"#;

/// Rows in all inputs.
pub(crate) const N_ROWS: u64 = 13 + 6 + 1;

/// Whether there is what the hook needs.
pub(crate) fn can_run() -> bool {
    python(&["pyarrow"]).is_some()
}

/// A definition with these parameters and further settings of the hook.
pub(crate) fn definition(params: &str, more: &str) -> String {
    let params = if params.is_empty() { String::new() } else { format!("params = {{ {params} }}") };
    let nullable = if more.contains("# nullable") { "nullable = true" } else { "nullable = false" };
    DEFINITION.replace("PARAMS", &params).replace("MORE", more).replace("NULLABLE", nullable)
}

/// A folder with three inputs, the hook and a definition.
pub(crate) fn place(params: &str, more: &str) -> Place {
    let place = Place::new();
    let mut n = 0;
    for (name, rows) in [("a", 13), ("b", 6), ("c", 1)] {
        let line = |n: u64| {
            format!(
                "{{\"n\": {n}, \"text\": \"{}\"}}\n",
                &"xxxx"[..usize::try_from(n % 5).unwrap()]
            )
        };
        let lines: String = (n..n + rows).map(line).collect();
        n += rows;
        place.write(&format!("in/{name}.jsonl"), lines);
    }
    place.write("hook.py", include_str!("hook.py"));
    place.write("p.toml", definition(params, more));
    place
}

/// The processes that run in `folder`.
pub(crate) fn processes_in(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_in = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder);
        // One that has ended and was not waited for is none.
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let is_zombie = stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z"));
        if is_in && !is_zombie {
            found.push(entry.path());
        }
    }
    found
}

/// Waits until no process runs in `folder`: what is killed takes a moment to go.
pub(crate) fn wait_for_none_in(folder: &Path) {
    for _ in 0..500 {
        if processes_in(folder).is_empty() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("still running: {:?}", processes_in(folder));
}

/// The rows of the current dataset, as JSON.
pub(crate) fn rows(place: &Place) -> Vec<Value> {
    let path = place.current("data", "hooked");
    let ran = place.done(&["cat", path.to_str().unwrap()]);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rejects of the current dataset, as (code, source row), in order.
pub(crate) fn rejects(place: &Place) -> Vec<(String, u64)> {
    let shards = place.current("data", "hooked").join("shards");
    let mut found = Vec::new();
    for shard in std::fs::read_dir(shards).unwrap() {
        let path = shard.unwrap().path().join("rejects.jsonl");
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let reject: Value = serde_json::from_str(line).unwrap();
            let code = reject["code"].as_str().unwrap().to_owned();
            found.push((code, reject["source_row"].as_u64().unwrap()));
        }
    }
    found.sort();
    found
}
