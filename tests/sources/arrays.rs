//! The sources `npy` and `idx`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int16Type, UInt8Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field};
use arrow_select::concat::concat_batches;
use rowmill::batch::{Event, Outcome, Position, Restart};
use rowmill::sources::{
    BatchLimits, Input, InputDigest, OnError, Source, SourceError, SourceSpec, source_type,
};
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::content::{gzip, zip, zstd};
use super::{folder, part_of, real_data, source};

/// An `.npy` file as `numpy.save` writes it.
pub(crate) fn npy(descr: &str, fortran: bool, shape: &[usize], values: &[u8]) -> Vec<u8> {
    let sizes: Vec<_> = shape.iter().map(|n| format!("{n},")).collect();
    let order = if fortran { "True" } else { "False" };
    let text = format!(
        "{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({}), }}",
        sizes.join(" ")
    );
    // So that the values begin at a multiple of 64.
    let width = (text.len() + 11).next_multiple_of(64) - 11;
    let text = format!("{text:width$}\n");
    let length = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", length.as_slice(), text.as_bytes(), values].concat()
}

/// An IDX file.
pub(crate) fn idx(kind: u8, shape: &[u32], values: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, kind, u8::try_from(shape.len()).unwrap()];
    file.extend(shape.iter().flat_map(|n| n.to_be_bytes()));
    file.extend(values);
    file
}

fn counting(n: u8) -> Vec<u8> {
    (0..n).collect()
}

/// What `numpy.savez_compressed` writes of arrays `w` and `x`.
fn npz(x: &[u8]) -> Vec<u8> {
    let other = npy("|u1", false, &[1], &[0]);
    zip(&[("w.npy", other.as_slice()), ("x.npy", x)], zip::CompressionMethod::Deflated)
}

pub(crate) fn npy_cases() -> Vec<Case> {
    let little: Vec<u8> = (0..24_i16).flat_map(|n| (n * 1000 - 9).to_le_bytes()).collect();
    let big: Vec<u8> = (24..36_i16).flat_map(|n| (n * 700).to_be_bytes()).collect();
    let mut cases = Vec::new();
    for (name, files, settings) in [
        (
            "rows",
            vec![
                ("a/1.npy", npy("<i2", false, &[4, 3, 2], &little)),
                ("a/2.npy", npy(">i2", false, &[2, 3, 2], &big)),
                ("a/3.npy", npy("<i2", false, &[0, 3, 2], &[])),
            ],
            json!({"name": "x"}),
        ),
        (
            "numbers",
            vec![
                ("1.npy", npy("<f8", true, &[3], &[0; 24])),
                ("2.npy", npy("<f8", true, &[1], &[1; 8])),
            ],
            json!({"file_columns": true}),
        ),
        ("truths", vec![("1.npy", npy("|b1", false, &[3, 3], &counting(9)))], json!({})),
        (
            "files",
            vec![
                ("a/1.npy", npy("<i2", true, &[4, 3, 2], &little)),
                ("a/2.npy", npy(">i2", false, &[2, 3, 2], &big)),
                ("a/3.x.npy", npy("<i2", false, &[0, 3, 2], &[])),
            ],
            json!({"rows": "file", "file_columns": true}),
        ),
        (
            "single values",
            vec![
                ("1.npy", npy("<f8", false, &[], &[2; 8])),
                ("2.npy", npy(">f8", false, &[], &[3; 8])),
            ],
            json!({"rows": "file"}),
        ),
        (
            "compressed rows",
            vec![
                ("1.npy.gz", gzip(&npy("<i2", false, &[4, 3, 2], &little))),
                ("2.npy.zst", zstd(&npy(">i2", false, &[2, 3, 2], &big))),
            ],
            json!({}),
        ),
        (
            "archives",
            vec![
                ("1.npz", npz(&npy("<i2", false, &[4, 3, 2], &little))),
                ("2.npz", npz(&npy(">i2", true, &[2, 3, 2], &big))),
            ],
            json!({"rows": "file", "compression": "zip", "member": "x.npy"}),
        ),
    ] {
        cases.push(made("npy", name, &files, &["**/*.np*"], settings));
    }
    if let Some(root) = real_data("dnanet-profiles") {
        let of = |settings| source("npy", &root, &["tests/resources/**/1A2_?01_??.npy"], settings);
        for settings in [json!({}), json!({"rows": "file", "file_columns": true})] {
            let source = of(settings);
            cases.push(Case { name: "dnanet-profiles", source, root: root.clone(), made: None });
        }
    }
    cases
}

pub(crate) fn idx_cases() -> Vec<Case> {
    let images = [idx(8, &[5, 2, 2], &counting(20)), idx(8, &[3, 2, 2], &counting(12))];
    let labels = [idx(0x0B, &[5], &counting(10)), idx(0x0B, &[3], &counting(6))];
    let floats: Vec<u8> = (0..6).flat_map(|n| (f64::from(n) / 7.0).to_be_bytes()).collect();
    let cases = [
        (
            "images",
            vec![("1-images", images[0].clone()), ("2-images", images[1].clone())],
            json!({}),
        ),
        (
            "labels",
            vec![
                ("1-images", images[0].clone()),
                ("2-images", images[1].clone()),
                ("1-labels", labels[0].clone()),
                ("2-labels", labels[1].clone()),
            ],
            json!({"labels": "*-labels"}),
        ),
        ("floats", vec![("1-images", idx(0x0E, &[3, 2], &floats))], json!({"name": "x"})),
    ];
    let compressed = [
        ("1-images.gz", gzip(&images[0])),
        ("1-labels.zst", zstd(&labels[0])),
        ("2-images", images[1].clone()),
        ("2-labels.gz", gzip(&labels[1])),
    ];
    let settings = json!({"labels": "*-labels*"});
    let compressed = [made("idx", "compressed", &compressed, &["*-images*"], settings)];
    let plain =
        cases.into_iter().map(|(name, files, s)| made("idx", name, &files, &["*-images"], s));
    plain.chain(compressed).collect()
}

fn made(
    kind: &str,
    name: &'static str,
    files: &[(&str, Vec<u8>)],
    paths: &[&str],
    settings: Value,
) -> Case {
    let files: Vec<_> = files.iter().map(|(path, bytes)| (*path, bytes.as_slice())).collect();
    let root = folder(&files);
    Case {
        name,
        source: source(kind, root.path(), paths, settings),
        root: root.path().to_owned(),
        made: Some(root),
    }
}

fn read_all(case: &Case) -> Result<Reading, SourceError> {
    let inputs = case.source.list()?;
    let schema = case.source.schema(inputs.first())?;
    let part = part_of(&*case.source, &inputs);
    read(&*case.source, &part, &schema, LIMITS, &Restart::default())
}

/// The first column of all rows, on one level.
fn flat(rows: &RecordBatch) -> arrow_array::ArrayRef {
    let mut array = Arc::clone(rows.column(0));
    loop {
        array = match array.data_type() {
            DataType::FixedSizeList(..) => Arc::clone(array.as_fixed_size_list().values()),
            DataType::LargeList(_) => Arc::clone(array.as_list::<i64>().values()),
            _ => return array,
        }
    }
}

fn case_of(cases: Vec<Case>, name: &str) -> Case {
    cases.into_iter().find(|case| case.name == name).unwrap()
}

#[test]
fn rows_are_the_entries_of_the_first_axis_whatever_the_order_of_bytes() {
    let rows = read_all(&case_of(npy_cases(), "rows")).unwrap().rows;
    let schema = rows.schema();
    let list = |inner, n| DataType::FixedSizeList(Arc::new(Field::new("item", inner, false)), n);
    let want = Field::new("x", list(list(DataType::Int16, 2), 3), false);
    assert_eq!(*schema.field(0), want);
    let want: Vec<i16> = (0..24).map(|n| n * 1000 - 9).chain((24..36).map(|n| n * 700)).collect();
    assert_eq!(rows.num_rows(), 6);
    assert_eq!(flat(&rows).as_primitive::<Int16Type>().values(), want.as_slice());
    let rows = read_all(&case_of(npy_cases(), "truths")).unwrap().rows;
    let truths: Vec<_> = flat(&rows).as_boolean().iter().map(Option::unwrap).collect();
    assert_eq!(truths, [&[false][..], &[true; 8]].concat());
}

#[test]
fn a_file_is_a_row_of_any_length_and_column_major_arrays_are_turned() {
    let rows = read_all(&case_of(npy_cases(), "files")).unwrap().rows;
    let lists = rows.column(0).as_list::<i64>();
    assert_eq!(lists.offsets().iter().copied().collect::<Vec<_>>(), [0, 4, 6, 6]);
    // What numpy.arange(24).reshape(4, 3, 2, order="F") has, in the order of C.
    let first =
        [0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11, 23];
    let want: Vec<i16> =
        first.iter().map(|n| n * 1000 - 9).chain((24..36).map(|n| n * 700)).collect();
    assert_eq!(flat(&rows).as_primitive::<Int16Type>().values(), want.as_slice());
    let text = |i: usize| rows.column(i).as_string::<i32>().value(2).to_owned();
    assert_eq!([text(1), text(2), text(3)], ["a/3.x.npy", "a", "3.x"]);
}

#[test]
fn labels_stand_beside_their_rows() {
    let rows = read_all(&case_of(idx_cases(), "labels")).unwrap().rows;
    let labels = rows.column_by_name("label").unwrap().as_primitive::<Int16Type>();
    assert_eq!(labels.values(), &[1, 515, 1029, 1543, 2057, 1, 515, 1029]);
    assert_eq!(flat(&rows).as_primitive::<UInt8Type>().value(19), 19);
    let rows = read_all(&case_of(idx_cases(), "floats")).unwrap().rows;
    let want: Vec<f64> = (0..6).map(|n| f64::from(n) / 7.0).collect();
    assert_eq!(flat(&rows).as_primitive::<Float64Type>().values(), want.as_slice());
}

#[test]
fn the_number_of_rows_is_known_before_they_are_read() {
    for (case, want) in [
        (case_of(npy_cases(), "rows"), vec![Some(4), Some(2), Some(0)]),
        (case_of(npy_cases(), "files"), vec![Some(1); 3]),
        (case_of(idx_cases(), "labels"), vec![Some(5), Some(3)]),
    ] {
        let inputs = case.source.list().unwrap();
        let hints: Vec<_> = inputs.iter().map(|input| case.source.rows_hint(input)).collect();
        assert_eq!(hints, want, "{}", case.name);
    }
}

#[test]
fn what_is_cut_is_little_endian_and_ends_with_rows() {
    let zeros = vec![0_u8; 60];
    for (kind, file, settings, multiple, want) in [
        ("npy", npy("<i4", false, &[5, 3], &zeros), json!({}), 50, vec![140, 152]),
        ("npy", npy("<i4", false, &[5, 3], &zeros), json!({}), 150, vec![152]),
        ("npy", npy("<i4", false, &[5, 3], &zeros), json!({}), 188, vec![]),
        ("npy", npy(">i4", false, &[5, 3], &zeros), json!({}), 50, vec![]),
        ("npy", npy("<i4", false, &[5, 3], &zeros), json!({"rows": "file"}), 50, vec![]),
        ("idx", idx(8, &[5, 12], &zeros), json!({}), 30, vec![36, 60]),
        ("idx", idx(0x0C, &[5, 3], &zeros), json!({}), 1, vec![24, 36, 48, 60]),
    ] {
        let root = folder(&[("x", &file)]);
        let source = source(kind, root.path(), &["x"], settings);
        let inputs = source.list().unwrap();
        assert_eq!(source.cuts(&inputs[0], multiple).unwrap(), want, "{kind} {multiple}");
    }
}

#[test]
fn what_is_wrong_is_named_with_what_to_do() {
    let good = npy("<i2", false, &[2, 3], &counting(12));
    let cut_at = |n: usize| good[..n].to_vec();
    let npy_of = |descr, shape: &[usize]| npy(descr, false, shape, &counting(12));
    for (kind, file, settings, want) in [
        ("npy", cut_at(0), json!({}), "not an .npy file"),
        ("npy", cut_at(9), json!({}), "the file ends within its head"),
        ("npy", cut_at(100), json!({}), "the file ends within its head"),
        (
            "npy",
            cut_at(139),
            json!({}),
            "the file has 139 bytes; a head of 128 and int16 of shape (2, 3) make 140",
        ),
        (
            "npy",
            npy_of("<i2", &[4]),
            json!({}),
            "the file has 140 bytes; a head of 128 and int16 of shape (4,) make 136",
        ),
        (
            "npy",
            npy_of("<i8", &[1 << 50, 1 << 20]),
            json!({}),
            "the shape (1125899906842624, 1048576) is too large",
        ),
        ("npy", npy_of("<i2", &[6, 0]), json!({}), "an axis of 0 entries behind the first"),
        ("npy", npy_of("|u1", &[1; 33]), json!({}), "33 dimensions, of at most 32"),
        (
            "npy",
            npy("|u1", false, &[], &[1]),
            json!({}),
            "an array without axes, a single value, has no rows",
        ),
        (
            "npy",
            npy("<i2", true, &[2, 3], &counting(12)),
            json!({}),
            "the array is stored column by column (Fortran order)",
        ),
        (
            "npy",
            npy_of("|O", &[12]),
            json!({"rows": "file"}),
            "an array of Python objects, which is a pickle (\"|O\") is not read",
        ),
        ("npy", b"\x80\x02cnumpy.core".to_vec(), json!({}), "not an .npy file but a pickle"),
        ("idx", vec![], json!({}), "not an IDX file"),
        ("idx", vec![0, 0, 8, 1, 0, 0], json!({}), "the file ends within its head"),
        ("idx", vec![1, 0, 8, 1], json!({}), "not an IDX file"),
        ("idx", idx(7, &[1], &[1]), json!({}), "the type of values 0x07 is not one of IDX"),
        ("idx", idx(8, &[], &[1]), json!({}), "an array without axes, a single value, has no rows"),
        (
            "idx",
            idx(8, &[2, 3], &[1; 5]),
            json!({}),
            "the file has 17 bytes; a head of 12 and uint8 of shape (2, 3) make 18",
        ),
    ] {
        let root = folder(&[("x", &file)]);
        let source = source(kind, root.path(), &["x"], settings);
        let inputs = source.list().unwrap();
        let error = source.schema(inputs.first()).unwrap_err();
        assert_eq!(error.to_string(), format!("`x`, header: {want}"), "{kind}");
        assert!(error.hint().is_some(), "{want}");
    }
}

#[test]
fn inputs_must_be_like_the_first_and_labels_like_their_input() {
    let rows = |shape: &[u32], kind| idx(kind, shape, &vec![1; 12 * usize::from(kind == 8)]);
    let labels = |n: u8| idx(8, &[n.into()], &counting(n));
    for (files, settings, want) in [
        (
            vec![("1i", rows(&[6, 2], 8)), ("2i", rows(&[4, 3], 8))],
            json!({}),
            "`2i`, header: rows of uint8 of shape (3,), other than those of the first input",
        ),
        (
            vec![("1i", rows(&[6, 2], 8)), ("1l", labels(5))],
            json!({"labels": "?l"}),
            "`1i`, with `1l`, field `label`: 5 labels for 6 rows",
        ),
        (
            vec![("1i", rows(&[6, 2], 8)), ("1l", b"x".to_vec())],
            json!({"labels": "?l"}),
            "`1l`, header: not an IDX file",
        ),
        (
            vec![("1i", rows(&[6, 2], 8)), ("2i", rows(&[6, 2], 8)), ("1l", labels(6))],
            json!({"labels": "1l"}),
            "`1l` is one of 1 that `labels` names, for 2 inputs",
        ),
        (
            vec![
                ("1i", rows(&[6, 2], 8)),
                ("2i", rows(&[6, 2], 8)),
                ("1l", labels(6)),
                ("2l", vec![0]),
            ],
            json!({"labels": ["2l", "1l"]}),
            "`2l`, header, field `label`: not an IDX file",
        ),
    ] {
        let case = made("idx", "x", &files, &["?i"], settings);
        let error = match case.source.list().and_then(|i| case.source.side_inputs(&i)) {
            Ok(_) => read_all(&case).unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(error.to_string(), want);
        assert!(error.hint().is_some(), "{want}");
    }
    let case = made(
        "npy",
        "x",
        &[("1", npy("<i2", false, &[2], &[0; 4])), ("2", npy("<u2", false, &[2], &[0; 4]))],
        &["?"],
        json!({"rows": "file"}),
    );
    assert_eq!(
        read_all(&case).unwrap_err().to_string(),
        "`2`, header: uint16 of shape (2,), but the first input is another kind of array"
    );
}

/// Files are listed once for all partitions, not once for each.
#[test]
fn labels_are_those_of_the_last_list() {
    let files = ["1i", "2i"].map(|name| (name, idx(8, &[2, 3], &counting(6))));
    let labels = ["1l", "2l"].map(|name| (name, idx(8, &[2], &counting(2))));
    let files: Vec<_> = files.into_iter().chain(labels).collect();
    let case = made("idx", "x", &files, &["?i"], json!({"labels": "?l"}));
    let side = |inputs: &[Input]| -> Vec<String> {
        let found = case.source.side_inputs(inputs).unwrap();
        found.into_iter().map(|label| label.path).collect()
    };
    let inputs = case.source.list().unwrap();
    let root = case.root.clone();
    std::fs::rename(root.join("1l"), root.join("3l")).unwrap();
    for (input, want) in inputs.iter().zip(["1l", "2l"]) {
        assert_eq!(side(std::slice::from_ref(input)), [want]);
    }
    assert_eq!(side(&case.source.list().unwrap()), ["2l", "3l"]);
}

#[test]
fn rows_larger_than_the_limit_are_refused() {
    let root = folder(&[
        ("1", &npy("|u1", false, &[2, 3], &[1; 6])),
        ("2", &npy("|u1", false, &[5, 3], &[1; 15])),
    ]);
    let by_file = source("npy", root.path(), &["?"], json!({"rows": "file"}));
    let by_row = source("npy", root.path(), &["?"], json!({}));
    let inputs = by_row.list().unwrap();
    for (source, row_bytes, want) in [
        (&by_row, 2, "`1`, header: every row has 3 bytes, and a row may have 2"),
        (&by_file, 14, "`2`, row 0: an array of 15 bytes, more than `max_row_bytes`"),
    ] {
        let schema = source.schema(inputs.first()).unwrap();
        let part = part_of(&**source, &inputs);
        let limits = BatchLimits { row_bytes, ..LIMITS };
        let error = read(&**source, &part, &schema, limits, &Restart::default()).unwrap_err();
        assert_eq!(error.to_string(), want);
        let limits = BatchLimits { row_bytes: row_bytes + 1, ..LIMITS };
        assert!(read(&**source, &part, &schema, limits, &Restart::default()).is_ok());
    }
}

/// Rows, positions and rejects under quarantine, and the digests.
type Kept = (RecordBatch, Vec<Position>, Vec<Event>, Vec<InputDigest>);

fn quarantined(
    source: &dyn Source,
    rows: usize,
    restart: &Restart,
) -> (Kept, Vec<(Restart, usize, usize)>) {
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first()).unwrap();
    let part = part_of(source, &inputs);
    let limits = BatchLimits { rows, on_error: OnError::Quarantine, ..LIMITS };
    let mut reader = source.open(&part, &schema, limits, restart).unwrap();
    let (mut batches, mut positions, mut events, mut restarts) = (vec![], vec![], vec![], vec![]);
    while let Some(batch) = reader.next().unwrap() {
        assert!((1..=rows).contains(&(batch.rows.num_rows() + batch.events.len())));
        restarts.push((batch.restart, positions.len(), events.len()));
        let before = positions.len() as u64;
        let shifted = |e: &Event| Event { before_row: e.before_row + before, ..e.clone() };
        events.extend(batch.events.iter().map(shifted));
        positions.extend(
            (0..batch.rows.num_rows() as u64).map(|r| batch.provenance.position(r).unwrap()),
        );
        batches.push(batch.rows);
    }
    let digests = reader.digests().unwrap();
    ((concat_batches(&schema, &batches).unwrap(), positions, events, digests), restarts)
}

#[test]
fn a_bad_input_is_one_reject_and_the_next_ones_are_read() {
    let rows = |n: usize| npy("<i2", false, &[n], &vec![7; 2 * n]);
    let cut = |mut bytes: Vec<u8>| {
        bytes.pop();
        bytes
    };
    let files = [
        ("1", rows(3)),
        ("2", b"\x80\x04pickle".to_vec()),
        ("3", cut(rows(4))),
        ("4", rows(2)),
        ("5", npy("<i4", false, &[1], &[0; 4])),
        ("6", rows(1)),
    ];
    let codes = |events: &[Event]| -> Vec<_> {
        let is_damage = |e: &Event| matches!(&e.outcome, Outcome::Rejected { code, .. } if code == "input_damaged");
        assert!(events.iter().all(is_damage), "{events:?}");
        events.iter().map(|e| (e.before_row, e.input, e.source_row)).collect()
    };
    for (settings, n_rows, want) in [
        (json!({}), 6, vec![(3, 1, 0), (3, 2, 0), (5, 4, 0)]),
        (json!({"rows": "file"}), 3, vec![(1, 1, 0), (1, 2, 0), (2, 4, 0)]),
    ] {
        let case = made("npy", "x", &files, &["?"], settings);
        let (want_all, _) = quarantined(&*case.source, 100, &Restart::default());
        assert_eq!((want_all.0.num_rows(), codes(&want_all.2)), (n_rows, want));
        for rows in [1, 2, 3] {
            let (all, restarts) = quarantined(&*case.source, rows, &Restart::default());
            assert_eq!(all, want_all, "{rows} rows");
            for (restart, n_rows, n_events) in restarts {
                let (rest, _) = quarantined(&*case.source, 2, &restart);
                let moved =
                    |e: &Event| Event { before_row: e.before_row - n_rows as u64, ..e.clone() };
                let events: Vec<_> = all.2[n_events..].iter().map(moved).collect();
                assert_eq!(rest.0, all.0.slice(n_rows, all.0.num_rows() - n_rows), "{restart:?}");
                assert_eq!((&rest.1[..], rest.2), (&all.1[n_rows..], events), "{restart:?}");
                assert_eq!(rest.3, all.3, "{restart:?}");
            }
        }
    }
}

#[test]
fn rows_before_damage_are_kept_and_those_of_both_files() {
    let n = 100_u8;
    let values: Vec<u8> =
        (0..100 * 3000_u32).map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()[0]).collect();
    let images = gzip(&idx(8, &[n.into(), 3000], &values));
    let labels = idx(8, &[n.into()], &counting(n));
    let flipped = |mut bytes: Vec<u8>, at: usize| {
        bytes[at] ^= 1;
        bytes
    };
    let wrong_sum = flipped(images.clone(), images.len() - 8);
    let half = images[..images.len() / 2].to_vec();
    let too_long = gzip(&[idx(8, &[n.into(), 3000], &values), vec![0]].concat());
    let too_short = gzip(&idx(8, &[n.into(), 3000], &values[..3000 * 50 + 7]));
    let labels_cut = idx(8, &[n.into()], &counting(30));
    let labels_longer = idx(8, &[n.into()], &counting(80));
    for (name, images, labels, n_rows, want) in [
        (
            "checksum",
            wrong_sum,
            gzip(&labels),
            Some(100),
            "the checksum of what comes before disagrees",
        ),
        ("cut", half.clone(), gzip(&labels), None, "the compressed data ends too early"),
        ("too long", too_long, gzip(&labels), Some(100), "there are more bytes than the head says"),
        (
            "too short",
            too_short.clone(),
            gzip(&labels),
            Some(50),
            "there are fewer bytes than the head says",
        ),
        (
            "labels",
            images.clone(),
            gzip(&labels_cut),
            Some(30),
            "field `label`: there are fewer bytes than the head says",
        ),
        (
            "both",
            too_short.clone(),
            gzip(&labels_cut),
            Some(30),
            "field `label`: there are fewer bytes than the head says",
        ),
        (
            "both, labels damaged behind",
            too_short,
            flipped(gzip(&labels_longer), gzip(&labels_longer).len() - 8),
            Some(50),
            "there are fewer bytes than the head says",
        ),
        (
            "labels' sum",
            images,
            flipped(gzip(&labels), gzip(&labels).len() - 8),
            Some(100),
            "field `label`: the checksum of what comes before disagrees",
        ),
    ] {
        let good = gzip(&idx(8, &[2, 3000], &values[..6000]));
        let files = [
            ("1i.gz", images),
            ("1l.gz", labels),
            ("2i.gz", good),
            ("2l.gz", gzip(&idx(8, &[2], &[1, 2]))),
        ];
        let case = made("idx", "x", &files, &["?i.gz"], json!({"labels": "?l.gz"}));
        let (all, _) = quarantined(&*case.source, 1000, &Restart::default());
        let (rows, _, events, _) = &all;
        let [Event { before_row, input: 0, source_row, outcome, .. }] = events.as_slice() else {
            panic!("{name}: {events:?}");
        };
        let Outcome::Rejected { code, message } = outcome else { panic!("{name}: {outcome:?}") };
        assert_eq!((code.as_str(), message.as_str()), ("input_damaged", want), "{name}");
        assert_eq!(before_row, source_row, "{name}");
        assert!(n_rows.is_none_or(|n| n == *source_row), "{name}: {source_row}");
        let kept = rows.num_rows() - 2;
        assert_eq!(kept as u64, *source_row, "{name}");
        assert_eq!(
            flat(rows).as_primitive::<UInt8Type>().values()[..kept * 3000],
            values[..kept * 3000]
        );
        let labels = rows.column(1).as_primitive::<UInt8Type>().values();
        assert_eq!(labels[..kept], counting(n)[..kept], "{name}");
        assert_eq!(labels[kept..], [1, 2], "{name}");
        for n in [1, 7] {
            let (again, restarts) = quarantined(&*case.source, n, &Restart::default());
            assert_eq!(again, all, "{name}, {n} rows at once");
            let (restart, n_rows, _) = &restarts[restarts.len() / 2];
            let (rest, _) = quarantined(&*case.source, 5, restart);
            assert_eq!(rest.0, all.0.slice(*n_rows, all.0.num_rows() - n_rows), "{name}");
        }
        let error = read_all(&case).unwrap_err();
        assert!(error.to_string().ends_with(want.trim_start_matches("field `label`: ")), "{error}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for (kind, settings, at, message) in [
        ("npy", json!({"rows": "axis"}), "rows", "unknown variant `axis`"),
        ("npy", json!({"name": "path", "file_columns": true}), "name", "two columns `path`"),
        ("idx", json!({"labels": "x", "name": "label"}), "label_name", "two columns `label`"),
        ("idx", json!({"labels": []}), "labels", "at least one path"),
        ("idx", json!({"labels": "../x"}), "labels", ""),
    ] {
        let spec = SourceSpec {
            name: "things".to_owned(),
            paths: vec!["**".to_owned()],
            root: ".".into(),
            settings: settings.clone(),
        };
        let refused = (source_type(kind).unwrap().make)(&spec).unwrap_err();
        assert_eq!(refused.at, [at], "{settings}");
        assert!(refused.message.contains(message), "{settings}: {refused}");
    }
}

#[test]
fn profiles_of_others_are_read_and_their_pickle_is_not() {
    let Some(root) = real_data("dnanet-profiles") else { return };
    let root = root.join("tests/resources");
    let read_one = |path: &str, settings| {
        read_all(&Case {
            name: "profiles",
            source: source("npy", &root, &[path], settings),
            root: root.clone(),
            made: None,
        })
    };
    for (path, kind) in [
        ("profiles/RD/1A2_A01_01.npy", "Int64"),
        ("profiles/RD/1A2_A01_01_annotation.npy", "Float64"),
        ("profiles/RD/1A2_E01_13_annotation.npy", "Int8"),
    ] {
        let rows = read_one(path, json!({"rows": "file"})).unwrap().rows;
        let values = flat(&rows);
        assert_eq!((rows.num_rows(), values.len()), (1, 5 * 4096), "{path}");
        assert_eq!(values.data_type().to_string(), kind);
        assert_eq!(read_one(path, json!({})).unwrap().rows.num_rows(), 5);
    }
    let error = read_one("profiles/RD/1A2_A01_01_data_with_ladder.npy", json!({})).unwrap_err();
    assert!(error.to_string().ends_with("header: not an .npy file but a pickle"), "{error}");
    assert!(error.hint().unwrap().contains("never read"), "{error}");
}
