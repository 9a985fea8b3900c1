//! Every definition in `pipelines/` runs.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::command::{Place, Ran};

/// A folder like the one where cargo keeps the sources of crates.
fn cargo_home(place: &Place) {
    let crates = "cargo/registry/src/index.example.org-0123456789abcdef";
    for (path, content) in [
        ("alpha-1.2.3/src/lib.rs", "//! Alpha.\npub fn a() {}\n"),
        ("alpha-1.2.3/src/deep/er.rs", "fn deep() {}\n"),
        ("alpha-1.2.3/LICENSE-MIT", "MIT of alpha"),
        ("beta-utils-0.1.0-rc.1/src/lib.rs", ""),
        ("beta-utils-0.1.0-rc.1/build.rs", "fn main() {}"),
        ("beta-utils-0.1.0-rc.1/README.md", "no input"),
    ] {
        place.write(&format!("{crates}/{path}"), content);
    }
}

#[test]
fn every_definition_that_is_shipped_runs() {
    let pipelines = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let mut names: Vec<_> = fs::read_dir(&pipelines)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let tested = ["rust-corpus.toml"];
    assert_eq!(names, tested, "say here what a new definition needs");

    let place = Place::new();
    cargo_home(&place);
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("CARGO_HOME", place.path("cargo"));
        let ran = Ran::of(command.output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
        ran.stdout
    };
    for name in &names {
        let path = pipelines.join(name);
        let path = path.to_str().unwrap();
        run(&["check", path, "--out", "data"]);
        run(&["run", path, "--out", "data"]);
        run(&["verify", &format!("data/{}", name.trim_end_matches(".toml"))]);
    }

    let row = |row: &str| -> serde_json::Value {
        let text = run(&["inspect", "data/rust-corpus", "--row", row, "--json"]);
        serde_json::from_str(&text).unwrap()
    };
    for (number, want) in [
        (
            "1",
            json!({"crate_name": "alpha", "crate_version": "1.2.3", "license": "MIT of alpha",
                   "stem": "lib", "lines": 2, "words": 6, "text": "//! Alpha.\npub fn a() {}\n"}),
        ),
        (
            "2",
            json!({"crate_name": "beta-utils", "crate_version": "0.1.0-rc.1", "license": null,
                   "stem": "build", "lines": 1, "words": 3, "text": "fn main() {}"}),
        ),
    ] {
        let values = row(number)["values"].clone();
        for (name, want) in want.as_object().unwrap() {
            assert_eq!(&values[name], want, "row {number}: {name}");
        }
    }
}
