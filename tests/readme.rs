//! What the pages promise is tried as it stands: the README's snippets and commands, and the keys and
//! defaults of the page about definitions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test reads the pages themselves")]

mod command;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use command::{Place, Ran, python};
use rowmill::config::{Registry, json_schema};
use serde_json::Value;

const RUST: &str = "registry/src/index.example.org-0123456789abcdef";

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    page.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// A few crates below `folder`, as cargo keeps them.
fn crates(place: &Place, folder: &str) {
    for (path, content) in [
        ("alpha-1.2.3/src/lib.rs", "//! Alpha: äöü.\npub fn a() {}\n"),
        ("alpha-1.2.3/src/other.rs", ""),
        ("beta-0.1.0/src/lib.rs", "fn b() {}\n"),
        ("beta-0.1.0/LICENSE", "free"),
    ] {
        place.write(&format!("{folder}/{RUST}/{path}"), content);
    }
}

#[test]
fn the_python_of_the_readme_runs_as_it_stands() {
    if python(&["numpy", "duckdb"]).is_none() {
        return;
    }
    let place = Place::new();
    crates(&place, "cargo");
    let definition = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/rust-corpus.toml");
    let mut run = place.command(&["run", definition.to_str().unwrap(), "--out", "data"]);
    let ran = Ran::of(run.env("CARGO_HOME", place.path("cargo")).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");

    let mut printed = Vec::new();
    for block in blocks(&page("README.md"), "python") {
        let mut python = python(&["numpy", "duckdb"]).expect("it was there");
        let output = python.args(["-c", &block]).current_dir(place.path("")).output().unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
        printed.push(String::from_utf8(output.stdout).unwrap());
    }
    // The lines that a run prints read its first shard.
    let lines = ran.stdout.split("read it with NumPy:").nth(1).unwrap();
    let code: String = lines.lines().map(|line| line.trim_start().to_owned() + "\n").collect();
    let code = code.replace("text[offsets", "print(text[offsets").replace("  # row 0", ")");
    let mut python = python(&["numpy"]).expect("it was there");
    let output = python.args(["-c", &code]).current_dir(place.path("")).output().unwrap();
    printed.push(String::from_utf8(output.stdout).unwrap());

    assert_eq!(printed.len(), 3);
    assert_eq!(printed[0], "3 rows; the first has 30 characters\n");
    for cell in ["crate_name", "alpha", "beta"] {
        assert!(printed[1].contains(cell), "{}", printed[1]);
    }
    assert_eq!(printed[2], "//! Alpha: äöü.\npub fn a() {}\n\n");
}

#[test]
fn the_definition_of_the_readme_runs() {
    let place = Place::new();
    crates(&place, ".cargo");
    let [definition, hook] = &blocks(&page("README.md"), "toml")[..] else { panic!("two of them") };
    let done = |command: &str| {
        let mut command = place.command(&[command, "p.toml"]);
        let ran = Ran::of(command.env("HOME", place.path("")).output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    };
    place.write("p.toml", definition);
    ["check", "run", "verify"].into_iter().for_each(done);
    if python(&["numpy", "pyarrow"]).is_none() {
        return;
    }
    let (top, dataset) = definition.split_once("[dataset]").unwrap();
    place.write("p.toml", format!("{top}{hook}\n\n[dataset]{dataset}"));
    place.write("hooks/embed.py", EMBEDDER);
    ["check", "run", "verify"].into_iter().for_each(done);
    assert!(place.path("features").is_dir());
}

const EMBEDDER: &str = r#"
import numpy as np

class Embedder:
    def __init__(self, width):
        self.width = width

    def __call__(self, batch):
        lengths = [len(text) for text in batch["text"].to_pylist()]
        return np.outer(lengths, np.ones(self.width)).astype("f4")
"#;

#[test]
fn the_commands_of_the_readme_are_those_that_there_are() {
    let place = Place::new();
    let readme = page("README.md");
    let named: Vec<&str> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("| `rowmill "))
        .map(|rest| rest.split([' ', '`']).next().unwrap())
        .collect();
    let help = place.done(&["--help"]).stdout;
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert_eq!(named, listed);
    for command in named {
        // These have subcommands of their own.
        let words = match command {
            "init" => vec!["init", "images"],
            "cache" => vec!["cache", "ls"],
            command => vec![command],
        };
        let help = place.done(&[&words[..], &["--help"]].concat()).stdout;
        assert!(help.contains("--json"), "`{command}` prints a document too: {help}");
    }
}

#[test]
fn the_exit_codes_of_the_page_are_those_of_the_help() {
    let help =
        Place::new().done(&["--help"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let operations = page("docs/operations.md");
    let rows = operations.lines().filter_map(|line| {
        let (code, meaning) = line.strip_prefix("| ")?.split_once(" | ")?;
        code.parse::<u8>().ok().map(|code| (code, meaning.split([';', ' ']).next().unwrap()))
    });
    let rows: Vec<(u8, &str)> = rows.collect();
    let codes: Vec<u8> = rows.iter().map(|row| row.0).collect();
    assert_eq!(codes, [0, 1, 2, 3, 4, 75]);
    for (code, _) in rows {
        assert!(help.contains(&format!(" {code} ")), "{code} is not in {help}");
    }
}

/// Every key that a definition may have, with its default where it is told.
fn keys(schema: &Value, into: &mut BTreeMap<String, Option<Value>>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let default = property.get("default").filter(|value| !value.is_null()).cloned();
        let known = into.entry(key.clone()).or_default();
        if default.is_some() {
            *known = default;
        }
        keys(property, into);
    }
    for inner in ["additionalProperties", "items"] {
        schema.get(inner).into_iter().for_each(|schema| keys(schema, into));
    }
    for inner in ["oneOf", "anyOf"] {
        schema[inner].as_array().into_iter().flatten().for_each(|schema| keys(schema, into));
    }
}

#[test]
fn every_key_of_a_definition_is_on_its_page_with_its_default() {
    let page = page("docs/definitions.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect())
        .collect();
    let mut all = BTreeMap::new();
    keys(&json_schema(Registry::BUILT_IN), &mut all);
    assert!(all.len() > 40, "{all:?}");
    for (key, default) in all {
        let quoted = format!("`{key}`");
        let its_rows: Vec<_> =
            rows.iter().filter(|row| row[0].split(", ").any(|name| name == quoted)).collect();
        assert!(!its_rows.is_empty(), "{key} is in no table");
        let Some(default) = default else { continue };
        let written = format!("`{default}`");
        let is_told =
            its_rows.iter().any(|row| row[1].replace('_', "") == written.replace('_', ""));
        assert!(is_told, "{key}: the default {default} is not in {its_rows:?}");
    }
    let place = Place::new();
    let help = place.done(&["run", "--help"]).stdout;
    for flag in ["--out", "--jobs", "--memory", "--set", "--limit-rows"] {
        assert!(page.contains(&format!("`{flag}")) && help.contains(flag), "{flag}");
    }
}

#[test]
fn the_definitions_on_the_page_are_read() {
    let place = Place::new();
    let definitions = blocks(&page("docs/definitions.md"), "toml");
    assert!(!definitions.is_empty());
    for definition in definitions {
        place.write("p.toml", &definition);
        place.write("letters/a/b.txt", "two words");
        place.done(&["run", "p.toml"]);
        place.done(&["test", "p.toml"]);
        let values = place.json(&["inspect", "p.toml", "--row", "0"])["values"].clone();
        assert_eq!((&values["words"], &values["parent"]), (&2.into(), &"a".into()));
    }
}
