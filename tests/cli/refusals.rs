//! What is refused: the exit code, what is wrong and where, and what to do about it.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rowmill::dataset::{Home, Workplace};
use rowmill::storage::Local;

use crate::command::{Place, Ran, TEXTS};

/// Runs `rowmill` on changed texts of the definition and checks how it is refused.
#[track_caller]
fn refused(from: &str, to: &str, code: i32, texts: &[&str]) {
    let place = Place::of_texts(1);
    assert!(TEXTS.contains(from));
    place.write("p.toml", TEXTS.replacen(from, to, 1));
    for command in ["run", "check"] {
        place.rowmill(&[command, "p.toml"]).fails(code, texts);
    }
    assert!(!place.path("data").exists(), "a wrong definition leaves nothing behind");
}

#[test]
fn a_definition_that_is_wrong_is_shown_with_its_line() {
    refused(
        "content = \"text\"",
        "contnt = \"text\"",
        2,
        &[
            "error[definition-unknown-key]: unknown key `contnt` in [sources.files]",
            " --> p.toml:8:1\n",
            "8 | contnt = \"text\"\n",
            "  | ^^^^^^\n",
            "hint: did you mean `content`?",
        ],
    );
    refused("type = \"files\"", "type = \"flies\"", 2, &["p.toml:5:8", "did you mean `files`?"]);
    refused("version = 1", "version = 2", 2, &["definition of version 2", "reads version 1"]);
    refused("[dataset]", "[dataset", 2, &["this is not TOML", "p.toml:14"]);
    refused("\"texts\"", "\"te/xts\"", 2, &["cannot be the name of a dataset", "p.toml:2:8"]);
    refused("\"64KiB\"", "\"64 parsecs\"", 2, &["not a size", "hint: write a number of bytes"]);
    refused("\"in\"", "\"${HOME}\"", 2, &["not listed in `env`", "add \"HOME\" to env"]);
}

#[test]
fn what_the_columns_do_not_allow_is_shown_with_its_line_too() {
    refused(
        "input = \"text\"",
        "input = \"txt\"",
        2,
        &[
            "error[definition-columns]: [transforms.counts], `input`: there is no column `txt`",
            "--> p.toml:12:9",
            "hint: did you mean `text`?",
        ],
    );
    refused(
        "parent = {",
        "parnt = {",
        2,
        &[
            "error[definition-columns]: field `parnt`",
            "--> p.toml:20:1",
            "hint: did you mean `parent`?",
        ],
    );
    refused(
        "index = true",
        "dtype = \"int8\"",
        2,
        &["error[definition-columns]: field `path`", "--> p.toml:19:1"],
    );
}

#[test]
fn inputs_without_columns_are_a_matter_of_the_definition() {
    let place = Place::new();
    place.write(
        "p.toml",
        "version = 1\nname = \"t\"\n[sources.t]\ntype = \"arrow\"\npath = \"none.arrow\"\n[dataset]\n",
    );
    let (mut bytes, schema) = (Vec::new(), arrow_schema::Schema::empty());
    arrow_ipc::writer::StreamWriter::try_new(&mut bytes, &schema).unwrap().finish().unwrap();
    place.write("none.arrow", bytes);
    let texts = ["error[definition-columns]: there are no columns to store", "p.toml:6", "hint:"];
    for command in ["run", "check"] {
        place.rowmill(&[command, "p.toml"]).fails(2, &texts);
    }
}

#[test]
fn columns_that_cannot_be_the_key_are_named_with_the_nearest_one() {
    for (key, texts) in [
        (
            "pth",
            &[
                "error[definition-columns]: `key`, field `pth`: the key is no field",
                "hint: did you mean `path`?",
            ][..],
        ),
        (
            "parent",
            &["`key`, field `parent`: a key is text or an integer", "hint: ", "not interned"],
        ),
    ] {
        let definition = format!("[dataset]\nkey = \"{key}\"");
        refused("[dataset]", &definition, 2, &[texts, &["--> p.toml:15:7"]].concat());
    }
    let place = Place::of_texts(1);
    let key = ["--set", "dataset.key=path", "--set", "dataset.fields.path.nullable=true"];
    place
        .rowmill(&[&["check", "p.toml"][..], &key].concat())
        .fails(2, &["`key`, field `path`: a key cannot be nullable", "hint: remove `nullable`"]);
    place.rowmill(&["inspect", "p.toml", "--key", "x"]).fails(2, &["no complete dataset"]);
    place.done(&["run", "p.toml"]);
    place
        .rowmill(&["inspect", "p.toml", "--key", "x"])
        .fails(2, &["rows have no key", "hint: name a column as `key` in [dataset]"]);
    place.rowmill(&["inspect", "p.toml", "--key", "x", "--row", "1"]).fails(2, &["cannot be used"]);
}

#[test]
fn inputs_that_are_not_there_are_a_matter_of_the_definition() {
    refused(
        "**/*.txt",
        "**/*.text",
        2,
        &[
            "error[source-no-input]: source `files` matches no input below `in`",
            "hint: check `root` and `path`, or set `allow_empty = true` on the source",
        ],
    );
    refused(
        "\"in\"",
        "\"inn\"",
        2,
        &["error[source-listing]: source `files`: `inn` is not there", "hint: `root`"],
    );
}

#[test]
fn values_that_do_not_fit_are_named_by_input_row_and_field() {
    let definition = r#"version = 1
name = "table"
[sources.table]
type = "csv"
path = "*.csv"
[dataset]
max_row_bytes = "64KiB"
"#;
    let place = Place::new();
    place.write("p.toml", definition);
    place.write("a.csv", "n,word\n1,one\n2,two\n");
    place.write("b.csv", "n,word\n3,three\n400,four\n");
    let row = "`b.csv`, row 1, field `n`: ";
    for (set, texts) in [
        (&["sources.table.types.n=\"int8\""][..], &["`b.csv`, line 3, row 1, field `n`"][..]),
        (
            &[
                "transforms.cast.type=\"cast\"",
                "transforms.cast.types.n=\"int8\"",
                "dataset.input=\"cast\"",
            ],
            &["stage `cast` failed: ", row],
        ),
        (&["dataset.fields.n.dtype=\"int8\""], &["stage `write` failed: ", row, "hint: choose"]),
        (
            &["dataset.fields.word.categorical=[\"one\", \"two\", \"three\"]", "run.batch_rows=1"],
            &["`b.csv`, row 1, field `word`: \"four\" is not in `categorical`", "hint: add it"],
        ),
        (
            &["dataset.max_row_bytes=22"],
            &["`b.csv`, row 0: 23 bytes, and a row may have 22", "hint: raise `max_row_bytes`"],
        ),
    ] {
        let set = set.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["run", "p.toml", "--jobs", "1"].into_iter().chain(set).collect();
        place.rowmill(&args).fails(3, texts);
    }
    place.done(&["run", "p.toml"]);
}

#[test]
fn a_dataset_without_rows_is_refused_unless_it_may_be_empty() {
    let place = Place::of_texts(0);
    place.write("in/none", "");
    place.rowmill(&["run", "p.toml"]).fails(2, &["matches no input"]);
    let source = ["--set", "sources.files.allow_empty=true"];
    let args = [&["run", "p.toml"][..], &source].concat();
    place.rowmill(&args).fails(3, &["the dataset has no rows", "hint: ", "`allow_empty = true`"]);
    let dataset = ["--set", "dataset.allow_empty=true"];
    let report = place.json(&[&args[..], &dataset].concat());
    assert_eq!((&report["rows"], &report["current"]), (&0.into(), &true.into()));
    assert_eq!(place.json(&["verify", "p.toml"])["ok"], true);
    assert_eq!(place.json(&["inspect", "p.toml"])["rows"], 0);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let place = Place::of_texts(1);
    for (args, texts) in [
        (&[][..], &["Usage: rowmill", "completions"][..]),
        (&["rnu", "p.toml"], &["unrecognized subcommand 'rnu'", "Usage: "]),
        (&["inspct", "p.toml"], &["unrecognized subcommand 'inspct'", "'inspect'"]),
        (&["run"], &["<DEFINITION>"]),
        (&["run", "p.toml", "--jsn"], &["'--jsn'", "'--json'"]),
        (&["run", "p.toml", "--progress", "loud"], &["auto, bar, plain, json, none"]),
        (
            &["run", "p.toml", "--limit-rows", "0"],
            &["`limit_rows` is 0", "takes at least 1", " --> --limit-rows 0\n"],
        ),
        (&["run", "p.toml", "--jobs", "0"], &["`jobs` is 0", "takes 1 to 4096", " --> --jobs 0\n"]),
        (
            &["run", "p.toml", "--memory", "much"],
            &["not a size that `memory` can take", " --> --memory much\n", "hint: "],
        ),
        (
            &["cat", "p.toml", "--columns", "n,x,n"],
            &["`--columns` names `n` twice", "hint: name each"],
        ),
        (&["run", "p.toml", "--set", "run"], &["KEY=VALUE", "--set run", "hint: "]),
        (&["run", "p.toml", "--set", "run.jbos=1"], &["unknown key `jbos`", "did you mean `jobs`"]),
        (&["run", "none.toml"], &["there is no such file", " --> none.toml", "hint: "]),
        (&["path", "in"], &["it is a folder", "hint: name the definition in it"]),
        (&["completions", "smell"], &["bash, elvish, fish, powershell, zsh"]),
        (&["inspect", "p.toml", "--row", "-1"], &["invalid value '-1'", "--row"]),
        (&["inspect", "in"], &["`in` holds no complete dataset", "hint: "]),
        (&["verify", "in"], &["no dataset or shard: `in`", "hint: name the folder"]),
        (&["verify", "p.toml"], &["no dataset or shard: `data/texts/", "hint: build it first"]),
        (&["verify", "nothing"], &["no dataset or shard: `nothing`", "hint: check the path"]),
        (&["verify", "in/0/0.txt"], &["no dataset or shard: `in/0/0.txt`"]),
    ] {
        let ran = place.rowmill(args);
        ran.fails(2, texts);
        assert!(!ran.stderr.contains("damage"), "{args:?}: {}", ran.stderr);
    }
    place.done(&["run", "p.toml"]);
    place
        .rowmill(&["inspect", "p.toml", "--row", "1"])
        .fails(2, &["there is no row 1: there are 1, counted from 0"]);
}

#[test]
fn a_memory_that_is_too_small_is_refused_with_what_it_takes() {
    let place = Place::of_texts(2);
    let ran = place.rowmill(&["run", "p.toml", "--memory", "1MiB"]);
    ran.fails(2, &["memory = 1048576 bytes (1.00 MiB)", "hint: raise `memory`", "max_row_bytes"]);
    let needed = ran.stderr.split("may take ").nth(1).unwrap().split(' ').next().unwrap();
    place.rowmill(&["plan", "p.toml", "--memory", "1MiB"]).fails(2, &[needed]);
    let less = (needed.parse::<u64>().unwrap() - 1).to_string();
    place.rowmill(&["run", "p.toml", "--memory", &less]).fails(2, &[needed]);
    let jobs = ["run", "p.toml", "--jobs", "2", "--memory", needed];
    place.rowmill(&jobs).fails(2, &["cannot hold 2 partitions at once"]);
    assert!(!place.path("data").exists(), "a refused run leaves nothing behind");
    place.done(&["run", "p.toml", "--memory", needed]);
}

/// The changes that a hint names, each of which is to be enough: `--memory 9MiB`, `--set …`.
fn ways(said: &str) -> Vec<Vec<String>> {
    let quoted = |text: &str, mark| {
        let parts = text.split(mark).skip(1).step_by(2);
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let set = |key: &str, size: &str| ["--set".to_owned(), format!("{key}=\"{size}\"")];
    let hint = said.split("hint: ").nth(1).unwrap().trim();
    let ways = hint.split(", or ").map(|way| {
        let (names, sizes) = (quoted(way, '`'), quoted(way, '"'));
        match (names[0].as_str(), sizes.as_slice()) {
            ("memory", [size]) => vec!["--memory".to_owned(), size.clone()],
            ("jobs", []) => vec!["--jobs".to_owned(), way.rsplit(' ').next().unwrap().to_owned()],
            ("answer_bytes", [size]) => {
                let keys = names.iter().skip(1).map(|it| format!("transforms.{it}.answer_bytes"));
                keys.flat_map(|key| set(&key, size)).collect()
            }
            (key, [size]) => set(key, size).to_vec(),
            _ => panic!("{way:?} is no change: {hint}"),
        }
    });
    ways.collect()
}

/// Runs a command as a refusal says, instead of as it was.
fn follow(place: &Place, command: &str, options: &[[&str; 2]], way: &[String]) -> Ran {
    // A flag cannot be given twice.
    let kept = options.iter().filter(|option| option[0] != way[0]).flatten().copied();
    let way = way.iter().map(String::as_str);
    place.rowmill(&[command, "p.toml"].into_iter().chain(kept).chain(way).collect::<Vec<_>>())
}

/// A definition of four partitions with a row of text each.
fn four_rows(kind: &str, stages: &str, dataset: &str) -> Place {
    let place = Place::new();
    place.write(
        "p.toml",
        format!(
            "version = 1\nname = \"d\"\n[sources.s]\ntype = \"{kind}\"\npath = \"*.{kind}\"\n\
             {stages}[dataset]\npartition_bytes = 1\n{dataset}\n"
        ),
    );
    for file in 0..4 {
        let row = if kind == "csv" {
            format!("t\nx{file}\n")
        } else {
            format!("{{\"t\": \"x{file}\"}}\n")
        };
        place.write(&format!("{file}.{kind}"), row);
    }
    place
}

#[test]
fn whatever_a_refusal_for_memory_says_to_change_is_enough_by_itself() {
    let hook = |name: &str, more: &str| {
        format!(
            "[transforms.{name}]\ntype = \"command\"\ncommand = [\"true\"]\nid = \"{name}\"\n{more}\
             output.{name} = {{ dtype = \"int8\" }}\n"
        )
    };
    let cached = "cache = \"features\"\nrows_independent = true\n";
    let hooks = hook("a", "") + &hook("b", "answer_bytes = \"8MiB\"\n") + &hook("c", cached);
    let rows = "dataset.max_row_bytes=";
    let (json, rejects) = ("fields.t = { dtype = \"json\" }", "on_error = \"quarantine\"");
    for (what, kind, stages, dataset, memory, jobs, settings) in [
        ("lines", "jsonl", "", "", "96MiB", None, rows),
        ("less than 1 MiB", "jsonl", "", "", "22MiB", None, "KiB"),
        ("records", "csv", "", "", "96MiB", None, rows),
        ("text keys", "csv", "", "key = \"t\"", "200MiB", None, rows),
        ("JSON", "jsonl", "", json, "200MiB", None, rows),
        ("rejects", "jsonl", "", rejects, "99MiB", None, rows),
        ("jobs", "csv", "", "", "700MiB", Some("3"), "--jobs"),
        ("hooks", "csv", &hooks, "", "900MiB", None, "transforms.c.answer_bytes="),
        ("hooks and jobs", "csv", &hooks, "", "2GiB", Some("3"), "--jobs"),
    ] {
        let place = four_rows(kind, stages, dataset);
        let options = [Some(["--memory", memory]), jobs.map(|jobs| ["--jobs", jobs])];
        let options: Vec<_> = options.into_iter().flatten().collect();
        let refused = place.rowmill(&[&["plan", "p.toml"][..], &options.concat()].concat());
        refused.fails(2, &["error[memory-too-small]", "hint: raise `memory`", ", or lower "]);
        let ways = ways(&refused.stderr);
        assert!(ways.concat().join(" ").contains(settings), "{what}: {}", refused.stderr);
        for way in ways {
            let ran = follow(&place, "plan", &options, &way);
            assert_eq!(ran.code, 0, "{what}, {way:?}: {}{}", refused.stderr, ran.stderr);
        }
    }
}

/// With another `max_row_bytes` nothing of what is built is taken over.
#[test]
fn what_a_refusal_for_memory_says_to_change_is_enough_for_all_that_is_then_built() {
    let place = four_rows("csv", "", "");
    place.done(&["run", "p.toml", "--jobs", "3", "--memory", "2GiB"]);
    place.write("0.csv", "t\ny\n");
    let options = [["--jobs", "3"], ["--memory", "256MiB"]];
    let refused = place.rowmill(&[&["run", "p.toml"][..], &options.concat()].concat());
    refused.fails(2, &["cannot hold 1 partition at once", "`dataset.max_row_bytes` to \""]);
    for way in ways(&refused.stderr) {
        let ran = follow(&place, "run", &options, &way);
        assert_eq!(ran.code, 0, "{way:?}: {}{}", refused.stderr, ran.stderr);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let place = Place::of_texts(1);
    place.write("file", "");
    for command in ["run", "plan"] {
        place
            .rowmill(&[command, "p.toml", "--out", "file/x"])
            .fails(1, &["`file/x", "hint: a file stands where a folder belongs"]);
    }
    place.write("locked/x", "");
    let mode = |mode| {
        std::fs::set_permissions(place.path("locked"), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o555);
    // Nothing is forbidden to root.
    if std::fs::write(place.path("locked/y"), "").is_err() {
        let ran = place.rowmill(&["run", "p.toml", "--out", "locked"]);
        ran.fails(
            1,
            &["cannot create the directory `locked/texts`", "or let `out` be another one"],
        );
    }
    mode(0o755);
}

#[test]
fn a_second_run_is_told_who_holds_the_lock() {
    let place = Place::of_texts(1);
    let key = place.json(&["path", "p.toml"])["cache_key"].as_str().unwrap().to_owned();
    let home = Home::new(&place.path("data"), "texts", &key).unwrap();
    let held = Workplace::open(Arc::new(Local), home).unwrap();
    let holder = format!("is being written by another run (pid {} on ", std::process::id());
    place.rowmill(&["run", "p.toml"]).fails(1, &[&holder, "hint: wait until it ends"]);
    for reading in ["plan", "check", "path"] {
        place.done(&[reading, "p.toml"]);
    }
    drop(held);
    place.done(&["run", "p.toml"]);
}
