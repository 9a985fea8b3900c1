//! A feature hook in Rust, and hooks that are processes of a program of one's own.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rowmill::dataset::Dataset;

use crate::command::{Place, Ran, files_of, python, skip};
use crate::multiplying::{run, run_apart};

const DEFINITION: &str = r#"version = 1
name = "words"

[sources.pictures]
type = "pgm"
path = "in/*.pgm"

[transforms.likeness]
type = "likeness"
input = "pixels"
template = "template.pgm"
batch_rows = 3
on_error = "quarantine"

[dataset]
shard_rows = 4
max_row_bytes = "64KiB"

[run]
commit_bytes = 1
commit_interval = "1h"
"#;

/// Pictures of two pixels, of which one is black; the template knows the first pixel alone.
const N_PICTURES: u8 = 37;
const BLACK: u8 = 5;

/// The first pixel of a picture.
fn pixel(picture: u8) -> u8 {
    if picture == BLACK { 0 } else { picture * 6 % N_PICTURES + 1 }
}

fn pictures() -> Place {
    let place = Place::new();
    place.write("p.toml", DEFINITION);
    place.write("template.pgm", b"P5\n2 1\n255\n\xff\x00");
    for i in 0..N_PICTURES {
        let second = if i == BLACK { 0 } else { 100 };
        let pixels = [pixel(i), second];
        place.write(&format!("in/{i:02}.pgm"), [&b"P5\n2 1\n255\n"[..], &pixels].concat());
    }
    place
}

#[test]
fn a_hook_in_rust_gets_the_same_batches_after_a_kill_at_every_commit() {
    let place = pictures();
    run(&place, "whole", 1, 1000, 0);
    let dataset = Dataset::open(place.path("whole/words")).unwrap();
    let mut ranks = Vec::new();
    for i in 0..dataset.n_rows() {
        let (shard, row) = dataset.row(i).unwrap();
        let rank = shard.field("rank").unwrap().row(row).unwrap();
        ranks.push(i32::from_le_bytes(rank.try_into().unwrap()));
    }
    let pictures: Vec<u8> = (0..N_PICTURES).collect();
    let model = pictures.chunks(3).flat_map(|batch| {
        let rank = |it: &u8| batch.iter().filter(|other| pixel(**other) > pixel(*it)).count();
        batch.iter().filter(|it| **it != BLACK).map(rank).collect::<Vec<_>>()
    });
    assert_eq!(ranks, model.map(|rank| i32::try_from(rank).unwrap()).collect::<Vec<_>>());

    let want = files_of(&place.path("whole"));
    for (jobs, batch_rows) in [(1, 1), (3, 2)] {
        let out = format!("{jobs}");
        let n_kills = (0..100)
            .find(|_| run_apart(&place, &out, jobs, batch_rows, 1))
            .expect("comes to an end");
        assert!(n_kills >= 8, "{n_kills} kills");
        assert!(files_of(&place.path(&out)) == want, "{out}, killed {n_kills} times");
    }

    // The template is part of what was built.
    place.write("template.pgm", b"P5\n2 1\n255\n\x00\xff");
    run(&place, "whole", 1, 1000, 0);
    assert!(files_of(&place.path("whole")) != want);
}

/// The example as a program; `cargo test` builds it beside the tests.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.parent()?.parent()?.join("examples/custom_stages");
    if program.is_file() {
        return Some(program);
    }
    skip("`cargo build --example custom_stages` was not called");
    None
}

const HOOK: &str = r#"import sys
import pyarrow as pa
rows = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("letters", pa.int64())])
answers = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in rows:
    letters = [len(path) for path in batch["path"].to_pylist()]
    answers.write_batch(pa.record_batch([pa.array(letters)], schema=schema))
    sys.stdout.buffer.flush()
print("done", file=sys.stderr)
"#;

#[test]
fn the_program_is_rowmill_with_them_and_becomes_its_hooks() {
    let Some(program) = program() else { return };
    let place = pictures();
    let rowmill = |args: &[&str]| {
        let mut command = Command::new(&program);
        Ran::of(command.args(args).current_dir(place.path("")).output().unwrap())
    };
    let ran = rowmill(&["explain", "black-picture"]);
    assert!(ran.stdout.starts_with("black_picture: A picture is black.\n"), "{ran:?}");
    let ran = rowmill(&["schema"]);
    assert!(ran.stdout.contains("\"likeness\"") && ran.stdout.contains("\"command\""), "{ran:?}");
    rowmill(&["check", "p.toml", "--set", "transforms.likeness.imput=\"x\""])
        .fails(2, &["did you mean `input`?"]);
    place.write("template.pgm", b"P5\n1 1\n255\n\xff");
    rowmill(&["run", "p.toml"])
        .fails(1, &["error[transform-failed]", "2 pixels, and the template 1"]);

    if python(&["pyarrow"]).is_none() {
        return;
    }
    place.write("hook.py", HOOK);
    let hook = "[transforms.letters]\ntype = \"command\"\ncommand = [\"python3\", \"hook.py\"]\n\
                id = \"letters\"\ninput = [\"path\"]\noutput.letters = { dtype = \"int64\" }\n";
    let before = DEFINITION.split("[transforms").next().unwrap();
    place.write("p.toml", format!("{before}{hook}"));
    for command in ["check", "run"] {
        let ran = rowmill(&["--log-level", "info", command, "p.toml"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains("done hook=\"letters\""), "{}", ran.stderr);
    }
    let ran = rowmill(&["inspect", "p.toml", "--row", "0", "--json"]);
    assert!(ran.stdout.contains("\"letters\": 9"), "{ran:?}");
}

const LINES: &str = r#"version = 1
name = "words"

[sources.pictures]
type = "pgm"
path = "in/*.pgm"

[transforms.lines]
type = "lines"
input = "pixels"

[transforms.neighbours]
type = "command"
command = ["python3", "hook.py"]
id = "neighbours"
input = ["line"]
batch_rows = 4
on_error = "quarantine"
output.neighbours = { dtype = "utf8" }

[dataset]
shard_rows = 5
max_row_bytes = "64KiB"

[run]
commit_bytes = 1
commit_interval = "1h"
"#;

/// Answers with all that it was asked about together, and dies of one line.
const NEIGHBOURS: &str = r#"import os
import sys
import pyarrow as pa
rows = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("neighbours", pa.string())])
answers = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in rows:
    lines = [line[0] for line in batch["line"].to_pylist()]
    if 42 in lines:
        os._exit(1)
    text = " ".join(map(str, lines))
    answers.write_batch(pa.record_batch([pa.array([text] * len(lines))], schema=schema))
    sys.stdout.buffer.flush()
"#;

/// Pictures of lines.
const N_OF_LINES: u8 = 14;

/// The lines of a picture, by their first pixel; the second is 0.
fn lines_of(picture: u8) -> [u8; 4] {
    [0, 1, 2, 3].map(|line| match (picture, picture * 7 % 5 > line) {
        (3 | 8, _) | (_, false) => 0,
        _ => picture * 10 + line,
    })
}

#[test]
fn a_hook_behind_a_transform_that_makes_several_rows_gets_the_same_batches_after_kills() {
    let Some(program) = program() else { return };
    if python(&["pyarrow"]).is_none() {
        return;
    }
    let place = Place::new();
    place.write("p.toml", LINES);
    place.write("hook.py", NEIGHBOURS);
    for i in 0..N_OF_LINES {
        let pixels = lines_of(i).map(|line| [line, 0]).concat();
        place.write(&format!("in/{i:02}.pgm"), [&b"P5\n2 4\n255\n"[..], &pixels].concat());
    }
    let command = |out: &str, more: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["run", "p.toml", "--progress", "json", "--out", out]).args(more);
        command.current_dir(place.path("")).stdin(Stdio::null());
        command
    };
    let ran = Ran::of(command("whole", &["--jobs", "1"]).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");

    // Every line that is not black, with those that it was asked about together.
    let all = (0..N_OF_LINES).flat_map(|i| {
        let light: Vec<u8> = lines_of(i).into_iter().filter(|line| *line > 0).collect();
        (0_u64..).zip(light).map(move |(number, line)| (u32::from(i), number, line))
    });
    let all: Vec<_> = all.collect();
    let want: Vec<_> = all
        .chunks(4)
        .flat_map(|batch| {
            let left = batch.iter().filter(|(.., line)| *line != 42);
            let text: Vec<_> = left.clone().map(|(.., line)| line.to_string()).collect();
            let row = move |(input, number, line): &(u32, u64, u8)| {
                (*input, *number, *line, text.join(" "))
            };
            left.map(row).collect::<Vec<_>>()
        })
        .collect();
    let dataset = Dataset::open(place.path("whole/words")).unwrap();
    let mut found = Vec::new();
    for i in 0..dataset.n_rows() {
        let (shard, row) = dataset.row(i).unwrap();
        let bytes = |field: &str| shard.field(field).unwrap().row(row).unwrap().to_vec();
        let at = shard.provenance().unwrap().position(row).unwrap();
        let text = String::from_utf8(bytes("neighbours")).unwrap();
        found.push((at.input, at.sub_row, bytes("line")[0], text));
    }
    assert_eq!(found, want);
    let books = &dataset.about().books;
    let of_lines = books["lines"];
    assert_eq!(of_lines.entered + of_lines.created, of_lines.out + of_lines.dropped);
    assert_eq!((of_lines.out, books["neighbours"].rejected), (all.len() as u64, 1));

    let whole = files_of(&place.path("whole"));
    let mut n_kills = 0;
    for (jobs, batch_rows) in [("1", 1), ("2", 3), ("1", 1000)].iter().cycle().take(100) {
        let batch_rows = format!("run.batch_rows={batch_rows}");
        let mut command = command("killed", &["--jobs", jobs, "--set", &batch_rows]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        // Each run makes a commit more than the one before, or two.
        let mut commits = lines.filter(|line| line.contains("\"commit\""));
        if commits.nth(n_kills % 2).is_some() {
            child.kill().unwrap();
            n_kills += 1;
        }
        if child.wait().unwrap().success() {
            break;
        }
    }
    assert!(n_kills > 2, "too quick to be killed");
    assert!(files_of(&place.path("killed")) == whole, "killed {n_kills} times");
}
