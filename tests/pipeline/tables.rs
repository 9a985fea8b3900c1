//! Parquet and Arrow files of others, end to end: every value against PyArrow.

use std::path::{Path, PathBuf};

use crate::command::{Place, python, test_data};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn files_in(folder: &Path, is_meant: fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| is_meant(path.to_str().unwrap())).collect();
    files.sort();
    files
}

#[test]
fn values_of_tables_are_those_that_pyarrow_reads() {
    let Some(data) = test_data() else { return };
    let Some(mut compare) = python(&["numpy", "pyarrow"]) else { return };
    // PyArrow wraps the timestamp of a year that 64 bits of nanoseconds do not reach.
    let is_parquet =
        |path: &str| path.ends_with(".parquet") && !path.ends_with("int96_from_spark.parquet");
    // Streams hold the same rows as the files beside them.
    let is_arrow = |path: &str| path.ends_with(".arrow_file");
    let mut files: Vec<_> = ["data", "data/geospatial"]
        .iter()
        .flat_map(|folder| files_in(&data.join("parquet-testing").join(folder), is_parquet))
        .map(|path| ("parquet", path))
        .collect();
    for folder in ["0.17.1", "1.0.0-littleendian", "2.0.0-compression", "4.0.0-shareddict"] {
        let folder = data.join("arrow-ipc/integration").join(folder);
        files.extend(files_in(&folder, is_arrow).into_iter().map(|path| ("arrow", path)));
    }
    let place = Place::new();
    let mut list = Vec::new();
    let mut n_built = 0;
    for (i, (kind, path)) in files.iter().enumerate() {
        let folder = path.parent().unwrap().to_str().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        // Some rows per shard, and cut where there is something to be cut.
        let definition = format!(
            "version = 1\nname = \"d{i}\"\n[sources.table]\ntype = \"{kind}\"\nroot = \"{folder}\"\n\
             path = \"{name}\"\n[dataset]\nmax_row_bytes = \"1MiB\"\nshard_rows = 1000\n\
             partition_bytes = \"16KiB\"\nallow_empty = true\n"
        );
        place.write("p.toml", definition);
        let ran = place.rowmill(&["run", "p.toml", "--jobs", "1"]);
        assert!([0, 1, 2, 3].contains(&ran.code), "{name}: {ran:?}");
        if ran.code == 0 {
            n_built += 1;
            let dataset = place.path(&format!("data/d{i}"));
            list.push(format!("{}\t{}\n", dataset.display(), path.display()));
        }
    }
    assert!(n_built > 70, "{n_built} of {} files became datasets", files.len());
    place.write("list.txt", list.concat());
    let script = Path::new(ROOT).join("tests/reference/compare_tables.py");
    let output = compare.arg(script).arg(place.path("list.txt")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("files agree"), "{text}");
}
