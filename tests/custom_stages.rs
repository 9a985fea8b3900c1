//! A program that brings its own source, transform and hook: `examples/custom_stages`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "the test looks at files itself")]

mod command;
#[allow(dead_code, reason = "its `main` is not called")]
#[path = "../examples/custom_stages/main.rs"]
mod custom_stages;
#[path = "custom_stages/hooks.rs"]
mod hooks;
#[path = "custom_stages/multiplying.rs"]
mod multiplying;

use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::SchemaRef;
use clap::Parser;
use command::{Place, files_of};
use custom_stages::registry;
use rowmill::batch::Batch;
use rowmill::cli::{Cli, CliError, Console};
use rowmill::config::json_schema;
use rowmill::dataset::Dataset;
use rowmill::transforms::{Emit, SettingsError, Stage, Transform, TransformError, TransformType};

const DEFINITION: &str = r#"version = 1
name = "pictures"

[sources.pictures]
type = "pgm"
path = "*.pgm"

[transforms.brightness]
type = "mean"
input = "pixels"

[dataset]
partition_bytes = 1
max_row_bytes = "64KiB"
"#;

/// Nine pictures of three rows of two pixels; in picture `i`, every pixel but the first is `i`.
fn pictures() -> Place {
    let place = Place::new();
    place.write("p.toml", DEFINITION);
    for i in 0..9 {
        place.write(&format!("{i}.pgm"), [&b"P5\n2 3\n255\n\x0c"[..], &[i; 5]].concat());
    }
    place
}

fn perform(place: &Place, command: &str, more: &[&str]) -> Result<(), CliError> {
    let (definition, out) = (place.path("p.toml"), place.path("data"));
    let mut args = vec!["custom_stages", command, definition.to_str().unwrap()];
    if command != "verify" {
        args.extend(["--out", out.to_str().unwrap()]);
    }
    args.extend(more);
    Cli::parse_from(args).perform(registry(), &Console::new())
}

#[test]
fn the_whole_command_line_knows_them() {
    let place = pictures();
    for command in ["check", "plan", "run", "verify", "path"] {
        perform(&place, command, &[]).unwrap();
    }
    let dataset = Dataset::open(place.path("data/pictures")).unwrap();
    assert_eq!((dataset.n_rows(), dataset.n_shards()), (9, 9));
    let pixels = dataset.schema().field("pixels").unwrap();
    assert_eq!(pixels.shape, [3, 2]);
    for i in 0..9 {
        let (shard, row) = dataset.row(i).unwrap();
        let byte = u8::try_from(i).unwrap();
        assert_eq!(
            shard.field("pixels").unwrap().row(row).unwrap(),
            [12, byte, byte, byte, byte, byte]
        );
        let mean = shard.field("mean").unwrap().row(row).unwrap();
        assert_eq!(mean, ((12.0 + 5.0 * f32::from(byte)) / 6.0).to_le_bytes());
    }
    let schema = json_schema(registry()).to_string();
    assert!(schema.contains("\"pgm\"") && schema.contains("The grey value that stands for white."));
}

#[test]
fn they_get_what_built_in_ones_get() {
    let place = pictures();
    let whole = place.path("data");
    perform(&place, "run", &["--jobs", "1"]).unwrap();
    let before = files_of(&whole);
    std::fs::remove_dir_all(&whole).unwrap();
    perform(&place, "run", &["--jobs", "4", "--set", "run.commit_bytes=1"]).unwrap();
    assert_eq!(files_of(&whole), before);

    place.write("4.pgm", b"P5\n2 3\n254\nabcdef");
    let error = perform(&place, "run", &[]).unwrap_err();
    assert_eq!(error.exit_code(), 3);
    place.write("p.toml", DEFINITION.replace("path =", "wite = 254\npath ="));
    let error = perform(&place, "check", &[]).unwrap_err();
    assert!(error.to_string().contains("did you mean `white`?"), "{error}");
    // The program that does not bring them says what it knows.
    let ran = place.rowmill(&["check", "p.toml"]);
    ran.fails(2, &["there is no type `pgm` of sources"]);
}

/// A transform with a bug: it ends its thread at the fifth input, while `IS_BROKEN`.
#[derive(Debug)]
struct Fragile;

static IS_BROKEN: AtomicBool = AtomicBool::new(true);

const FRAGILE: TransformType = TransformType {
    name: "fragile",
    version: 1,
    about: "passes rows on, or dies",
    settings: |_| schemars::json_schema!({ "type": "object" }),
    run_settings: &[],
    make: |_| Ok(Box::new(Fragile)),
};

impl Transform for Fragile {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        Ok(SchemaRef::clone(input))
    }

    fn apply(&self, _: Stage, batch: Batch, emit: &mut dyn Emit) -> Result<(), TransformError> {
        let paths = batch.rows.column_by_name("path").unwrap();
        let paths = arrow_array::cast::as_string_array(paths);
        let dies = paths.iter().flatten().any(|path| path == "4.pgm");
        assert!(!(dies && IS_BROKEN.load(Ordering::SeqCst)), "a bug of somebody else");
        Ok(emit.emit(batch)?)
    }
}

#[test]
fn a_stage_that_dies_leaves_no_sentinel_and_loses_no_row() {
    let place = pictures();
    let definition =
        DEFINITION.replace("[dataset]", "[transforms.x]\ntype = \"fragile\"\n[dataset]");
    place.write("p.toml", definition.replace("pictures\"\n\n", "fragile\"\n\n"));
    let run = |jobs: &str| {
        let (definition, out) = (place.path("p.toml"), place.path("data"));
        let args = ["custom_stages", "run", definition.to_str().unwrap(), "--jobs", jobs, "--out"];
        let args = args.into_iter().chain(out.to_str());
        let cli = Cli::parse_from(args);
        cli.perform(registry().with(&[], &[FRAGILE]), &Console::new())
    };
    for jobs in ["1", "3"] {
        let error = run(jobs).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let text = format!("{error:?}");
        assert!(text.contains("a bug of somebody else"), "{text}");
        let error = Dataset::open(place.path("data/fragile")).unwrap_err();
        assert!(error.to_string().contains("holds no complete dataset"), "{error}");
    }
    IS_BROKEN.store(false, Ordering::SeqCst);
    run("2").unwrap();
    let resumed = files_of(&place.path("data"));
    std::fs::remove_dir_all(place.path("data")).unwrap();
    run("2").unwrap();
    assert_eq!(files_of(&place.path("data")), resumed);
    assert_eq!(Dataset::open(place.path("data/fragile")).unwrap().n_rows(), 9);
}
