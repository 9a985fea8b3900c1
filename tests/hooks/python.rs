//! Hooks that are Python classes and functions.

use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use crate::command::{Place, joined};
use crate::hook::{can_run, rejects, rows, wait_for_none_in};

const DEFINITION: &str = r#"version = 1
name = "hooked"

[sources.a]
type = "jsonl"
path = "a.jsonl"

[transforms.features]
type = "python"
entry = "hooks.entries:ENTRY"
batch_rows = 8
MORE

[dataset]
max_row_bytes = "64KiB"
"#;

/// The columns of most entries.
const X: &str = "output.x = { dtype = \"int64\" }";

pub(crate) fn definition(entry: &str, more: &str) -> String {
    DEFINITION.replace("ENTRY", entry).replace("MORE", more)
}

pub(crate) fn place(entry: &str, more: &str) -> Place {
    let place = Place::new();
    let line = |n: usize| format!("{{\"n\": {n}, \"text\": \"{}\"}}\n", ["a", "bc"][n % 2]);
    place.write("a.jsonl", (0..12).map(line).collect::<String>());
    place.write("hooks/entries.py", include_str!("entries.py"));
    place.write("p.toml", definition(entry, more));
    place
}

/// How often Python was started.
pub(crate) fn n_starts(place: &Place) -> usize {
    fs::read_to_string(place.path("starts.txt")).unwrap_or_default().lines().count()
}

#[test]
fn classes_and_functions_are_called_with_their_parameters() {
    if !can_run() {
        return;
    }
    for (entry, params, at_3) in [
        ("Scaled", "params = { factor = 2, offset = 1 }", 7),
        ("scaled", "params = { factor = 5 }", 15),
        ("table", "", 3),
        ("prints", "", 3),
        ("reads", "", 3),
    ] {
        let place = place(entry, &format!("{X}\ninput = [\"n\"]\n{params}"));
        let ran = place.done(&["--log-level", "info", "run", "p.toml"]);
        assert_eq!(rows(&place)[3]["x"], at_3, "{entry}");
        if entry == "prints" {
            for text in ["hello from the hook", "hello from its child"] {
                assert!(ran.stderr.lines().any(|l| l.contains("worker=0") && l.contains(text)));
            }
        }
        assert!(!place.path("hooks/__pycache__").exists());
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn what_is_called_stands_beside_the_definition_whatever_else_has_its_name() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    for (module, file) in [
        ("string", "string.py"),
        ("json.decoder", "json/decoder.py"),
        ("pyarrow", "pyarrow/__init__.py"),
        ("queue.inner", "queue/inner/__init__.py"),
    ] {
        let inner = file.replace("__init__", "beside").replace(".py", "_too.py");
        let is_package = file.ends_with("__init__.py");
        let text = definition("table", &format!("{X}\nfiles = [\"{inner}\"]"));
        let from = match (is_package, module.contains('.')) {
            (true, _) => "from .beside_too import text",
            (false, true) => "from .decoder_too import text",
            (false, false) => "from string_too import text",
        };
        place.write(&inner, "text = 'beside'\n");
        let names = "import json.decoder, pyarrow as pa, string\n\
                     assert string.digits and json.decoder.JSONDecoder and pa.table\n";
        let call = "def table(batch):\n    assert text\n    return pa.table({'x': batch['n']})\n";
        place.write(file, format!("{names}{from}\n{call}"));
        place.write("p.toml", text.replace("hooks.entries", module));
        place.done(&["run", "p.toml"]);
        assert_eq!(rows(&place)[3]["x"], 3, "{module}");
        // The next one has what stands beside the definition to itself.
        let top = file.split('/').next().unwrap();
        let gone = place.path(top);
        if gone.is_dir() { fs::remove_dir_all(gone) } else { fs::remove_file(gone) }.unwrap();
    }
    wait_for_none_in(&place.path("."));
}

/// Sends numbered batches to the runner and prints what comes back.
const NUMBERED: &str = r#"
import io, os, subprocess, sys
import pyarrow as pa

schema = pa.schema([("n", pa.int64())])
sent = io.BytesIO()
with pa.ipc.new_stream(sent, schema) as to:
    for n in (0, 1, 7):
        to.write_batch(pa.record_batch([[n]], schema=schema), custom_metadata={"rowmill:batch": str(n)})
told = {**os.environ, "ROWMILL_ENTRY": "hooks.entries:table", "ROWMILL_PARAMS": "{}"}
program = [sys.executable, "-c", open("runner.py").read()]
ran = subprocess.run(program, input=sent.getvalue(), stdout=subprocess.PIPE, env=told, check=True)
for batch, metadata in pa.ipc.open_stream(ran.stdout).iter_batches_with_custom_metadata():
    print(batch["x"][0], metadata["rowmill:batch"].decode())
"#;

#[test]
fn answers_have_the_numbers_of_their_batches() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    place.write("runner.py", include_str!("../../src/transforms/hook/runner.py"));
    let mut python = std::process::Command::new("python3");
    let ran = python.args(["-c", NUMBERED]).current_dir(place.path(".")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0 0\n1 1\n7 7\n", "{ran:?}");
}

#[test]
fn whatever_numpy_takes_becomes_a_column() {
    if !can_run() {
        return;
    }
    let output = r#"
[transforms.features.output]
tensor = { dtype = "float32", shape = [2] }
brain = { dtype = "float32" }
cube = { dtype = "uint8", shape = [2, 3] }
big_endian = { dtype = "int32" }
half = { dtype = "float16" }
yes = { dtype = "bool" }
masked = { dtype = "int64", nullable = true }
list = { dtype = "int16", nullable = true }
pairs = { dtype = "float32", shape = [2], nullable = true }
bag = { dtype = "int16", kind = "ragged" }
grads = { dtype = "float32", shape = [2], kind = "ragged", nullable = true }
lists = { dtype = "int32", kind = "ragged" }
text = { dtype = "utf8", nullable = true }
words = { dtype = "utf8" }
raw = { dtype = "binary" }
json = { dtype = "json" }
arrow = { dtype = "int64" }
named = { dtype = "utf8" }
nothing = { dtype = "float64", shape = [3], nullable = true }"#;
    let place = place("everything", &output.replace("text =", "texts ="));
    let entries = include_str!("entries.py").replace("\"text\": [None", "\"texts\": [None");
    place.write("hooks/entries.py", entries);
    place.done(&["run", "p.toml"]);
    place.done(&["verify", place.current("data", "hooked").to_str().unwrap()]);
    let rows = rows(&place);
    let at = |row: usize, column: &str| rows[row][column].clone();
    for (row, column, want) in [
        (3, "tensor", json!([3.0, 3.0])),
        (3, "brain", json!(1.5)),
        (4, "cube", json!([[4, 4, 4], [4, 4, 4]])),
        (9, "big_endian", json!(9)),
        (3, "half", json!(3.0)),
        (4, "yes", json!(true)),
        (4, "masked", json!(4)),
        (5, "masked", Value::Null),
        (1, "list", Value::Null),
        (2, "list", json!(2)),
        (2, "pairs", Value::Null),
        (11, "pairs", json!([11.0, 11.5])),
        (0, "bag", json!([])),
        (5, "bag", json!([0, 1])),
        (3, "grads", Value::Null),
        (6, "grads", json!([])),
        (8, "grads", json!([[8.0, 8.0], [8.0, 8.0]])),
        (2, "lists", json!([0, 1])),
        (0, "texts", Value::Null),
        (7, "texts", json!("t7")),
        (7, "words", json!("w7")),
        (4, "arrow", json!(4)),
        (5, "named", json!("bc")),
        (5, "nothing", Value::Null),
    ] {
        assert_eq!(at(row, column), want, "{column} of row {row}");
    }
    let json = at(6, "json");
    let json = json.as_str().map_or_else(|| json.clone(), |it| serde_json::from_str(it).unwrap());
    assert_eq!(json, json!({"n": 6, "of": [1, null]}));
}

/// What a definition with this `entry` and these `files` is refused with, before anything is answered.
fn refused(place: &Place, entry: &str, files: &str, texts: &[&str]) {
    let text = definition("table", &format!("{X}\ncache = \"features\"\nfiles = [{files}]"));
    place.write("p.toml", text.replace("hooks.entries:table", entry));
    let texts = [&["error[stage-settings]", "transform `features`: "], texts].concat();
    for command in ["check", "run"] {
        place.rowmill(&[command, "p.toml"]).fails(2, &texts);
    }
    assert!(!place.path("data/hooked/current").exists());
    wait_for_none_in(&place.path("."));
}

#[test]
fn what_the_entry_imports_from_the_folder_is_among_its_files() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    let call = "def table(batch):\n    return batch['n']\n";
    place.write("models/__init__.py", "");
    place.write("models/net.py", "from .layers import scale\n");
    place.write("models/layers.py", "scale = 1\n");
    place.write("late.py", "scale = 1\n");
    place.write("env/lib/site-packages/bought.py", "price = 1\n");
    let bought = "import sys\nsys.path.append('env/lib/site-packages')\nimport bought\n";
    place.write("models/embed.py", format!("{bought}from models.net import scale\n{call}"));
    place.write(
        "lazy.py",
        "def table(batch):\n    if batch['n'][0].as_py() >= 8:\n        import late\n        raise ValueError\n    return batch['n']\n",
    );
    let one = "which is not among its `files`\n";
    refused(
        &place,
        "models.embed:table",
        "",
        &[
            "it has loaded `models/layers.py` (module `models.layers`), which is not among its \
             `files`; nor is 1 more\n",
            "add \"models/layers.py\", \"models/net.py\" to `files`",
        ],
    );
    let net = ["it has loaded `models/net.py` (module `models.net`), ", one];
    refused(&place, "models.embed:table", "\"./models/layers.py\"", &net);
    // What is imported for a later batch is found out with that, also where it raises an exception; what
    // was answered before was not decided by it.
    let text = definition("table", &format!("{X}\non_error = \"quarantine\""));
    place.write("p.toml", text.replace("hooks.entries", "lazy"));
    let late = "it has loaded `late.py` (module `late`), which is not among its `files`\n";
    place.rowmill(&["run", "p.toml"]).fails(2, &["error[stage-settings]", late]);
    place.write(
        "p.toml",
        text.replace("hooks.entries", "lazy")
            .replace("batch_rows = 8", "batch_rows = 4\nfiles = [\"late.py\"]"),
    );
    place.done(&["run", "p.toml"]);
    assert_eq!((rows(&place).len(), rejects(&place).len()), (8, 4));
    // Also where what was imported ends the process.
    let lazy = std::fs::read_to_string(place.path("lazy.py")).unwrap();
    place.write("lazy.py", lazy.replace("raise ValueError", "raise SystemExit(3)"));
    place.write("p.toml", text.replace("hooks.entries", "lazy"));
    place.rowmill(&["run", "p.toml"]).fails(2, &["error[stage-settings]", late]);
    // The package's own file is among them without being named.
    let plain = definition("table", &format!("{X}\nFILES"));
    let plain = plain.replace("hooks.entries", "models.embed");
    let files = "files = [\"models/net.py\", \"models/layers.py\"]";
    let slot = |text: &str| {
        place.write("p.toml", text);
        place.json(&["plan", "p.toml"])["partitions"][0]["slot"].clone()
    };
    let before = slot(&plain.replace("FILES", files));
    place.done(&["run", "p.toml"]);
    place.write("models/__init__.py", "# another\n");
    assert_ne!(slot(&plain.replace("FILES", files)), before);
    // A test of the definition finds it as well.
    let case = "[[test]]\nname = \"a\"\nstage = \"features\"\ngiven = { n = 1, text = \"\" }\nexpect = { x = 1 }";
    place.write("p.toml", plain.replace("FILES", "") + case);
    let ran = place.rowmill(&["test", "p.toml"]);
    assert!(ran.code == 4 && ran.stdout.contains("it has loaded `models/layers.py`"), "{ran:?}");
    wait_for_none_in(&place.path("."));
}

#[test]
fn an_entry_that_is_not_there_is_a_fault_of_the_definition() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    for (entry, what, hint) in [
        (
            "tabel",
            "there is no `tabel` in `hooks.entries`, as `entry` has it",
            "did you mean `table`?",
        ),
        (
            "Scaled.x",
            "there is no `x` in `hooks.entries.Scaled`",
            "there is no class and no function",
        ),
        ("zzzzzz", "there is no `zzzzzz` in `hooks.entries`", "there are `Brain`, `Scaled`"),
        (
            "version",
            "`version`, as `entry` has it, is neither a class nor a function",
            "name one of",
        ),
    ] {
        refused(&place, &format!("hooks.entries:{entry}"), "", &[what, hint]);
    }
}

#[test]
fn an_exception_is_the_fault_of_its_row() {
    if !can_run() {
        return;
    }
    let place = place("raises", &format!("{X}\non_error = \"quarantine\""));
    place.done(&["run", "p.toml"]);
    assert_eq!(rejects(&place), [("hook_raised".to_owned(), 5), ("hook_raised".to_owned(), 11)]);
    assert_eq!(rows(&place).len(), 10);
    let shards = place.current("data", "hooked").join("shards");
    let shard = fs::read_dir(shards).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(shard.join("rejects.jsonl")).unwrap();
    for want in [
        "the hook does not answer: it raised ValueError: no luck with 5\"",
        "it raised RuntimeError: <object object at 0x…>",
    ] {
        assert!(text.contains(want), "{text}");
    }
    // The parts were asked about without starting again: each batch and each guilty row were sent to a
    // process that had raised nothing before.
    assert_eq!(n_starts(&place), 5);

    place.write("p.toml", definition("raises", X));
    place.rowmill(&["run", "p.toml"]).fails(
        3,
        &["error[hook_raised]", "`a.jsonl`, row 5", "ValueError: no luck with 5", "entries.py"],
    );
    place.write("p.toml", definition("breaks", X));
    place.rowmill(&["run", "p.toml"]).fails(3, &["error[hook_raised]", "BrokenPipeError: "]);
    place.write("p.toml", definition("exits", X));
    place.rowmill(&["run", "p.toml"]).fails(3, &["error[hook_died]", "exit status 3"]);
    wait_for_none_in(&place.path("."));
}

/// What it is asked about stands in a file; it raises an exception on one number.
const COUNTING: &str = "def counting(batch, bad=-1):
    numbers = batch['n'].to_pylist()
    with open('calls.txt', 'a') as calls:
        calls.write(f'{len(numbers)} ')
    if bad in numbers:
        raise ValueError(f'no luck with {bad}')
    return batch['n']
";

/// How many rows each call was about since the last time.
fn calls(place: &Place) -> String {
    let calls = fs::read_to_string(place.path("calls.txt")).unwrap_or_default();
    fs::remove_file(place.path("calls.txt")).ok();
    calls.trim_end().to_owned()
}

#[test]
fn an_exception_that_ends_the_run_is_not_asked_for_again() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    place.write("hooks/counting.py", COUNTING);
    let plain = definition("counting", X).replace("hooks.entries", "hooks.counting");
    for (batch_rows, want) in [(1, "1 1 1 1 1 1"), (8, "8 4 4 2 1 1 1")] {
        let hook = format!("params = {{ bad = 5 }}\nbatch_rows = {batch_rows}");
        place.write("p.toml", plain.replace("batch_rows = 8", &hook));
        place.rowmill(&["run", "p.toml"]).fails(
            3,
            &["error[hook_raised]", "`a.jsonl`, row 5", "it raised ValueError: no luck with 5"],
        );
        // Of several rows it is the one that raises it alone, in a process that has raised none before.
        assert_eq!(calls(&place), want, "{batch_rows} rows in a batch");
    }
    wait_for_none_in(&place.path("."));
}

#[test]
fn check_asks_about_32_rows_or_all_there_are_whatever_they_stand_in() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    place.write("hooks/counting.py", COUNTING);
    let plain = definition("counting", X).replace("hooks.entries", "hooks.counting");
    let plain = plain.replace("batch_rows = 8", "batch_rows = 100");
    for n in [7, 100] {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..n));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        place.write("a.parquet", writer.into_inner().unwrap());
        place.write("a.jsonl", joined((0..n).map(|n| format!("{{\"n\": {n}}}\n"))));
        for kind in ["parquet", "jsonl"] {
            place.write("p.toml", plain.replace("jsonl", kind));
            assert_eq!(place.json(&["check", "p.toml"])["sample_rows"], n.min(32), "{kind}");
            assert_eq!(calls(&place), n.min(32).to_string(), "{n} rows in {kind}");
        }
    }
    wait_for_none_in(&place.path("."));
}

#[test]
fn hooks_that_cannot_be_had_say_what_is_in_the_way() {
    if !can_run() {
        return;
    }
    let place = place("table", X);
    place.write("bare", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(place.path("bare"), mode).unwrap();
    place.write("hooks/broken.py", "import no_such_package\n");
    place.write("hooks/syntax.py", "def x(:\n");
    place.write("hooks/leaves.py", "import sys\nsys.exit('no model here')\n");
    for (entry, more, want) in [
        ("Uncallable", "", "TypeError: Uncallable has no __call__(batch)"),
        ("Unready", "", "OSError: no weights"),
        ("Scaled", "", "missing 1 required positional argument: 'factor'"),
        ("broken", "", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("syntax", "", "SyntaxError: "),
        ("leaves", "", "`hooks.leaves:x` cannot be loaded: SystemExit: no model here"),
        ("table", "python = \"no/python\"", "cannot run `no/python`: No such file"),
        ("table", "python = \"./bare\"", "needs pyarrow 15 or later and NumPy"),
    ] {
        let text = definition(entry, &format!("{X}\n{more}"));
        let text = match entry {
            "broken" | "syntax" | "leaves" => {
                text.replace(&format!("hooks.entries:{entry}"), &format!("hooks.{entry}:x"))
            }
            _ => text,
        };
        place.write("p.toml", text);
        let ran = place.rowmill(&["check", "p.toml"]);
        ran.fails(1, &["error[hook-failed]", "transform `features`: ", want]);
        assert!(!ran.stderr.contains("\\'"), "{}", ran.stderr);
    }
    wait_for_none_in(&place.path("."));
}

#[test]
fn definitions_of_python_hooks_that_cannot_work_are_refused() {
    let place = place("table", X);
    let plain = definition("table", X);
    for (from, to, want) in [
        ("hooks.entries:table", "hooks/entries.py", "`hooks/entries.py` names no Python object"),
        ("hooks.entries:table", "hooks.entries:", "names no Python object"),
        ("hooks.entries:table", "hooks.other:table", "`hooks/other.py`"),
        (
            "hooks.entries:table",
            "hooks.other:table",
            "error[stage-settings]: file of transform `feat",
        ),
        ("hooks.entries:table", "hooks.entires:table", "hint: did you mean `hooks/entries.py`?"),
        ("batch_rows", "id = \"\"\nbatch_rows", "it is empty"),
        ("batch_rows", "python = \"\"\nbatch_rows", "it is empty"),
        ("batch_rows", "command = [\"x\"]\nbatch_rows", "command"),
    ] {
        place.write("p.toml", plain.replace(from, to));
        let ran = place.rowmill(&["plan", "p.toml"]);
        assert_eq!(ran.code, 2, "{to}: {}", ran.stderr);
        assert!(ran.stderr.contains(want), "{to}: {}", ran.stderr);
    }
}

#[test]
fn answers_that_are_no_columns_end_the_run_and_say_what_came() {
    if !can_run() {
        return;
    }
    for (entry, want) in [
        ("returns_nothing", "it returned NoneType, which is no table"),
        ("returns_two", "it returned tuple, which is no table"),
        ("returns_later", "column `x` cannot become Arrow: TypeError: coroutine is no array"),
        ("returns_number", "column `x` cannot become Arrow: ValueError: it is a single value"),
        ("too_few", "it was sent 8 rows and answered with 7"),
        ("other_type", "`output.x` declares int64, and it answered with float32"),
        ("other_shapes", "column `x` cannot become Arrow: ValueError: rows have shapes (1,), (2,)"),
        ("mixed", "column `x` cannot become Arrow: "),
        ("changes_type", "`output.x` declares int64, and it answered with int32"),
        ("other_name", "it answered with a column `y` that is not declared"),
    ] {
        let place = place(entry, &format!("{X}\non_error = \"quarantine\""));
        let text = if entry == "changes_type" { "batch_rows = 4" } else { "batch_rows = 8" };
        let definition = fs::read_to_string(place.path("p.toml")).unwrap();
        place.write("p.toml", definition.replace("batch_rows = 8", text));
        let ran = place.rowmill(&["run", "p.toml"]);
        ran.fails(1, &["error[hook-answer]", want]);
        wait_for_none_in(&place.path("."));
    }
    let place = place("raises_always", X);
    let ran = place.rowmill(&["run", "p.toml"]);
    ran.fails(3, &["error[hook_raised]", "`a.jsonl`, row 0", "it raised KeyError: "]);
}

#[test]
fn the_file_of_the_entry_is_part_of_the_dataset_and_the_interpreter_is_not() {
    let place = place("table", X);
    let names = |text: &str| {
        place.write("p.toml", text);
        let plan = place.json(&["plan", "p.toml"]);
        (plan["cache_key"].clone(), plan["partitions"][0]["slot"].clone())
    };
    let plain = definition("table", X);
    let first = names(&plain);
    assert_eq!(names(&plain.replace("batch_rows", "python = \"python\"\nbatch_rows")), first);
    assert_ne!(names(&plain.replace(":table", ":prints")).0, first.0);
    assert_ne!(names(&plain.replace("batch_rows", "id = \"a\"\nbatch_rows")).0, first.0);
    place.write("hooks/entries.py", "# another\n");
    let changed = names(&plain);
    assert_eq!(changed.0, first.0);
    assert_ne!(changed.1, first.1);
    fs::rename(place.path("hooks/entries.py"), place.path("hooks/x")).unwrap();
    place.write("hooks/entries/__init__.py", "# another\n");
    assert_ne!(names(&plain).1, changed.1);
}
