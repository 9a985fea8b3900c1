//! Parquet and Arrow files that others have collected to try readers: what each comes to.

use std::path::{Path, PathBuf};

use rowmill::batch::{Outcome, Restart};
use rowmill::schema::RowSchema;
use rowmill::sources::{BatchLimits, OnError};
use serde_json::json;

use super::conformance::LIMITS;
use super::{part_of, real_data, source};

fn files_below(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
}

/// What reading a file comes to: "refused" or "no layout" with the reason; else the rows, and what
/// was rejected.
fn outcome(kind: &str, root: &Path, path: &str) -> String {
    let source = source(kind, root, &[path], json!({}));
    let inputs = source.list().unwrap();
    let schema = match source.schema(inputs.first()) {
        Ok(schema) => schema,
        Err(e) => {
            assert!(e.hint().is_some(), "{path}: {e}");
            return format!("refused: {}", e.to_string().split(": ").last().unwrap());
        }
    };
    if let Err(e) = RowSchema::infer(&schema, &std::collections::BTreeMap::new(), None) {
        return format!("no layout: {e}");
    }
    let part = part_of(&*source, &inputs);
    let mut told = Vec::new();
    for (on_error, rows) in
        [(OnError::Quarantine, 1000), (OnError::Quarantine, 3), (OnError::Fail, 1000)]
    {
        let limits = BatchLimits { on_error, rows, ..LIMITS };
        let (mut n_rows, mut rejects) = (0, Vec::new());
        match source.open(&part, &schema, limits, &Restart::default()) {
            Err(e) => panic!("{path}: {e}"),
            Ok(mut reader) => loop {
                match reader.next() {
                    Ok(None) => break,
                    Err(e) => {
                        assert_eq!(on_error, OnError::Fail, "{path}: {e}");
                        assert!(e.hint().is_some(), "{path}: {e}");
                        let at = e.to_string();
                        let at = at.split(", ").nth(1).unwrap().split(':').next().unwrap();
                        rejects.push(format!("stops at {at}"));
                        break;
                    }
                    Ok(Some(batch)) => {
                        n_rows += batch.rows.num_rows();
                        for event in batch.events {
                            let Outcome::Rejected { code, .. } = event.outcome else { panic!() };
                            rejects.push(format!("{code} at row {}", event.source_row));
                        }
                    }
                }
            },
        }
        let rows = source.rows_hint(&inputs[0]);
        let all = if rows == Some(n_rows as u64) { "all" } else { "some" };
        told.push(if rejects.is_empty() && (all == "all" || rows.is_none()) {
            "reads".to_owned()
        } else {
            format!("{n_rows} rows, {}", rejects.join(", "))
        });
    }
    assert_eq!(told[0], told[1], "{path}");
    if told[0] == "reads" {
        assert_eq!(told[2], "reads", "{path}");
    } else {
        let stop = told[2].split("stops at ").nth(1).unwrap();
        assert!(told[0].split(',').nth(1).unwrap().ends_with(&format!(" at {stop}")), "{told:?}");
    }
    told.swap_remove(0)
}

/// Tries every file; those that do not simply read are the ones in the table, and read as it says.
fn check(kind: &str, folder: &str, is_meant: fn(&str) -> bool, odd: &[(&str, &str)]) {
    let Some(root) = real_data(folder) else { return };
    let mut files = Vec::new();
    files_below(&root, &mut files);
    files.sort();
    let mut wrong = Vec::new();
    let mut n_read = 0;
    for file in files {
        let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
        if !is_meant(path) {
            continue;
        }
        let got = outcome(kind, &root, path);
        n_read += usize::from(got == "reads");
        // An entry that ends in a star stands for every path that begins so.
        let want = odd.iter().find(|(name, _)| match name.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == *name,
        });
        let want = want.map_or("reads", |(_, want)| want);
        if !got.starts_with(want) {
            wrong.push(format!("({path:?}, {got:?}),"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(n_read > 20, "{n_read} files read");
}

#[test]
fn every_parquet_file_reads_or_is_refused_for_its_reason() {
    let is_parquet = |path: &str| path.contains(".parquet");
    let odd = [
        ("bad_data/ARROW-GH-41317.parquet", "refused: the footer cannot be read"),
        ("bad_data/ARROW-GH-41321.parquet", "no layout: field `null`: a column without a type"),
        ("bad_data/ARROW-GH-43605.parquet", "reads"),
        ("bad_data/PARQUET-1481.parquet", "refused: the footer cannot be read"),
        ("bad_data/*", "0 rows, input_damaged at row 0"),
        ("data/_KEY*", "refused: this is not a Parquet file"),
        ("data/aes256/encrypt_columns_plaintext_footer*", "0 rows, input_damaged at row 0"),
        ("data/encrypt_columns_plaintext_footer*", "0 rows, input_damaged at row 0"),
        ("data/aes256/*", "refused: the file is encrypted"),
        ("data/encrypt*", "refused: the file is encrypted"),
        ("data/external_key*", "refused: the file is encrypted"),
        ("data/uniform_encryption*", "refused: the file is encrypted"),
        ("data/datapage_v1-corrupt-checksum.parquet", "0 rows, input_damaged at row 0"),
        ("data/dict-page-offset-zero.parquet", "refused: the footer cannot be read"),
        // One value of 2 GiB, in a page that its header tells the size of.
        ("data/large_string_map.brotli.parquet", "0 rows, page_too_large at row 0"),
        ("data/map_no_value.parquet", "no layout: field `my_map`: a map needs text as keys"),
        ("data/nation.dict-malformed.parquet", "0 rows, input_damaged at row 0"),
        ("data/nested_maps.snappy.parquet", "no layout: field `a`: a map needs text as keys"),
        ("data/rle-dict-uncompressed-corrupt-checksum.parquet", "0 rows, input_damaged at row 0"),
    ];
    let no_json = [1, 2, 40, 41, 45, 85, 86, 126, 135, 136];
    let no_json = no_json.map(|n| format!("shredded_variant/case-{n:03}.parquet"));
    let bytes_within = "no layout: field `var.typed_value`: bytes within lists, structs and maps";
    let no_json = no_json.iter().map(|path| (path.as_str(), bytes_within));
    check(
        "parquet",
        "parquet-testing",
        is_parquet,
        &odd.into_iter().chain(no_json).collect::<Vec<_>>(),
    );
}

#[test]
fn every_arrow_file_reads_or_is_refused_for_its_reason() {
    let is_arrow = |path: &str| {
        path.ends_with(".arrow_file") || path.ends_with(".stream") || path.starts_with("crash-")
    };
    let odd = [
        ("crash-09f7*", "refused: the schema cannot be read"),
        ("crash-1fb7*", "refused: the schema cannot be read"),
        ("crash-2354*", "refused: a message cannot be read"),
        ("crash-3c3f*", "0 rows, input_damaged at row 0"),
        ("crash-5e88*", "no layout: field `baz`: decimal128(0, 0) is out of range"),
        ("crash-607e*", "0 rows, input_damaged at row 0"),
        ("crash-74ae*", "refused: the schema cannot be read"),
        ("crash-bd7e*", "no layout: field `foo`: two fields have this name"),
        ("crash-cb8c*", "0 rows, input_damaged at row 0"),
        ("crash-f37e*", "refused: a message cannot be read"),
        ("crash-fd23*", "no layout: field ``: two fields have this name"),
        (
            "integration/0.17.1/generated_union.*",
            "no layout: field `sparse`: columns of Arrow type",
        ),
        (
            "integration/1.0.0-littleendian/generated_union.*",
            "no layout: field `sparse`: columns of",
        ),
        (
            "integration/1.0.0-littleendian/generated_decimal256.*",
            "no layout: field `f0`: columns of",
        ),
        (
            "integration/1.0.0-littleendian/generated_duplicate*",
            "no layout: field `ints`: two fields",
        ),
        (
            "integration/1.0.0-littleendian/generated_interval.*",
            "no layout: field `f5`: columns of",
        ),
        (
            "integration/1.0.0-littleendian/generated_null*",
            "no layout: field `f0`: a column without",
        ),
    ];
    check("arrow", "arrow-ipc", is_arrow, &odd);
}
