//! Peak memory with hooks: within the least `memory` that is accepted, and 64 MiB.

use std::path::Path;

use crate::command::Place;
use crate::hook::{can_run, wait_for_none_in};
use crate::process::Run;

/// What the process itself may take.
const CONSTANT_BYTES: u64 = 64 << 20;

const DEFINITION: &str = r#"version = 1
name = "large"

[sources.files]
type = "files"
root = "in"
path = "*"

[transforms.features]
type = "command"
command = ["python3", "large.py"]
id = "large-v1"
params = { bytes = BYTES }
input = ["INPUT"]
on_error = "quarantine"
HOOK
output.answer = { dtype = "binary" }
output.text = { dtype = "utf8" }

[transforms.kept]
type = "select"
columns = ["path", "answer"]

[dataset]
partition_bytes = "64MiB"
"#;

/// Answers to each row with `bytes` bytes, half of them as text.
const HOOK: &str = r#"
import json, os, sys
import pyarrow as pa

n = json.loads(os.environ["ROWMILL_PARAMS"])["bytes"] // 2
schema = pa.schema([("answer", pa.binary()), ("text", pa.string())])
reader = pa.ipc.open_stream(sys.stdin.buffer)
writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in reader:
    rows = batch.num_rows
    writer.write_batch(pa.record_batch([pa.array([b"x" * n] * rows, pa.binary()), pa.array(["y" * n] * rows)], schema=schema))
    sys.stdout.buffer.flush()
"#;

/// Files, their bytes, and those of the answer to each.
struct Case {
    name: &'static str,
    n: u64,
    bytes: u64,
    answer: u64,
    input: &'static str,
    hook: &'static str,
    max_row_bytes: &'static str,
}

#[test]
fn large_rows_and_large_answers_keep_the_bound() {
    if !can_run() {
        return;
    }
    for Case { name, n, bytes, answer, input, hook, max_row_bytes } in [
        Case {
            name: "rows of 12 MiB, answers of 8 MiB",
            n: 10,
            bytes: 12 << 20,
            answer: 8 << 20,
            input: "bytes",
            hook: "workers = 3\nanswer_bytes = \"9MiB\"",
            max_row_bytes: "13MiB",
        },
        Case {
            name: "rows of 4 KiB, a batch of which is answered with 24 MiB",
            n: 3000,
            bytes: 4 << 10,
            answer: 48 << 10,
            input: "bytes",
            hook: "workers = 2\nbatch_rows = 512\nanswer_bytes = \"25MiB\"",
            max_row_bytes: "64KiB",
        },
        Case {
            name: "480 MiB of answers that are kept, and known the second time",
            n: 1200,
            bytes: 1,
            answer: 400 << 10,
            input: "path",
            hook: "batch_rows = 32\nanswer_bytes = \"14MiB\"\ncache = \"features\"\nrows_independent = true",
            max_row_bytes: "1MiB",
        },
    ] {
        let place = Place::new();
        let definition = DEFINITION.replace("BYTES", &answer.to_string()).replace("HOOK", hook);
        let definition = definition.replace("INPUT", input);
        place.write("p.toml", format!("{definition}max_row_bytes = \"{max_row_bytes}\"\n"));
        place.write("large.py", HOOK);
        std::fs::create_dir(place.path("in")).unwrap();
        for i in 0..n {
            let file = std::fs::File::create(place.path(&format!("in/{i:05}"))).unwrap();
            file.set_len(bytes).unwrap();
        }
        let run = |jobs: &str, memory: &str| {
            let out: &Path = &place.path("out");
            Run::new(&place.path("p.toml"), out).arg("--jobs").arg(jobs).arg("--memory").arg(memory)
        };
        for jobs in ["1", "2"] {
            let refused = run(jobs, "1MiB").wait();
            let messages = refused.messages();
            let needed = messages.split("may take ").nth(1).unwrap_or_else(|| panic!("{messages}"));
            assert!(messages.contains("`answer_bytes` of hooks"), "{messages}");
            let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
            let ended = run(jobs, &format!("{needed}B")).complete();
            assert_eq!(ended.number("rows"), n, "{name}");
            let (peak, limit) = (ended.number("peak_rss_bytes"), needed + CONSTANT_BYTES);
            println!("{name}, {jobs} jobs: {} of {} MiB + 64 MiB", peak >> 20, needed >> 20);
            assert!(peak <= limit, "{name}: {peak} are more than {limit}");
            std::fs::remove_dir_all(place.path("out")).unwrap();
        }
        wait_for_none_in(&place.path("."));
    }
}

#[test]
fn a_hook_with_several_workers_runs_with_the_defaults() {
    let place = Place::new();
    let definition = DEFINITION.replace("BYTES", "1").replace("HOOK", "workers = 4");
    let definition = definition.replace("INPUT", "bytes");
    place.write("p.toml", definition.replace("on_error = \"quarantine\"", ""));
    place.write("in/one", "1");
    let plan = place.json(&["plan", "p.toml"]);
    let hook = &plan["memory"]["hooks"][0];
    assert_eq!((&hook["name"], &hook["at_once"]), (&"features".into(), &4.into()));
    let text = place.done(&["plan", "p.toml"]).stdout;
    let want = "of which `features`: 12.00 MiB to cut batches, 128.00 MiB for answers (4 at once)";
    assert!(text.contains(want), "{text}");
}
