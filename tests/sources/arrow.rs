//! The `arrow` source.

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use rowmill::batch::Restart;
use rowmill::sources::SourceError;
use serde_json::{Value, json};

use super::conformance::{Case, LIMITS, Reading, read};
use super::{folder, parquet, part_of, real_data, source};

fn plain(from: i64, n: i64) -> RecordBatch {
    let names = ["id", "score", "name", "list", "point", "price", "when"];
    let rows = parquet::rows(from, n);
    let indices: Vec<_> = names.iter().map(|name| rows.schema().index_of(name).unwrap()).collect();
    rows.project(&indices).unwrap()
}

fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
    IpcWriteOptions::default().try_with_compression(compression).unwrap()
}

fn file(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = batches[0].schema();
    let mut writer =
        FileWriter::try_new_with_options(&mut bytes, &schema, options(compression)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn stream(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = batches[0].schema();
    let mut writer =
        StreamWriter::try_new_with_options(&mut bytes, &schema, options(compression)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn in_batches(rows: &RecordBatch, n: usize) -> Vec<RecordBatch> {
    let starts = (0..rows.num_rows()).step_by(n);
    starts.map(|at| rows.slice(at, n.min(rows.num_rows() - at))).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let every = parquet::rows(0, 50);
    let turned = plain(7, 9).project(&[6, 5, 4, 3, 2, 1, 0]).unwrap();
    // A dictionary that a stream replaces on its way.
    let kinds = |words: [&str; 2]| {
        let kinds: DictionaryArray<Int32Type> = words.into_iter().collect();
        RecordBatch::try_from_iter([("kind", Arc::new(kinds) as ArrayRef)]).unwrap()
    };
    let replaced = [kinds(["a", "b"]), kinds(["c", "a"]), kinds(["d", "d"])];
    let empty = plain(0, 0);
    for (name, files, settings) in [
        ("file", vec![("a.arrow", file(&in_batches(&plain(0, 60), 11), None))], json!({})),
        ("dictionaries", vec![("a.arrow", file(from_ref(&every), None))], json!({})),
        (
            "streams",
            vec![
                (
                    "a.arrows",
                    stream(&[plain(0, 4), empty, plain(4, 3)], Some(CompressionType::ZSTD)),
                ),
                ("b.arrow", file(&[turned], Some(CompressionType::LZ4_FRAME))),
            ],
            json!({}),
        ),
        ("replaced", vec![("a.arrows", stream(&replaced, None))], json!({})),
        ("some columns", vec![("a.arrows", stream(&in_batches(&every, 20), None))], {
            json!({"columns": ["point.y", "kind", "id"]})
        }),
    ] {
        let files: Vec<_> = files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        let root = folder(&files);
        cases.push(Case {
            name,
            source: source("arrow", root.path(), &["*"], settings),
            root: root.path().to_owned(),
            made: Some(root),
        });
    }
    for path in [
        "2.0.0-compression/generated_zstd.arrow_file",
        "1.0.0-littleendian/generated_dictionary.stream",
        "1.0.0-littleendian/generated_primitive.arrow_file",
    ] {
        if let Some(root) = real_data("arrow-ipc/integration") {
            let source = source("arrow", &root, &[path], json!({}));
            cases.push(Case { name: path, source, root, made: None });
        }
    }
    cases
}

fn read_all(root: &Path, settings: Value) -> Result<Reading, SourceError> {
    let source = source("arrow", root, &["*"], settings);
    let inputs = source.list()?;
    let schema = source.schema(inputs.first())?;
    read(&*source, &part_of(&*source, &inputs), &schema, LIMITS, &Restart::default())
}

#[test]
fn files_and_streams_give_the_values_that_were_written() {
    let want = parquet::rows(0, 50);
    let lz4 = Some(CompressionType::LZ4_FRAME);
    for bytes in [
        file(from_ref(&want), None),
        file(from_ref(&want), lz4),
        stream(&in_batches(&want, 50), None),
        stream(&in_batches(&want, 50), Some(CompressionType::ZSTD)),
    ] {
        let root = folder(&[("a", &bytes)]);
        let got = read_all(root.path(), json!({})).unwrap().rows;
        assert_eq!(got.num_rows(), 50);
        for (field, column) in want.schema().fields().iter().zip(want.columns()) {
            let have = &got[field.name().as_str()];
            let wanted = arrow_cast::cast(column, have.data_type()).unwrap();
            assert_eq!(have, &wanted, "{}", field.name());
        }
    }
}

#[test]
fn a_dictionary_that_a_stream_replaces_stands_for_the_batches_behind_it() {
    let case = cases().into_iter().find(|case| case.name == "replaced").unwrap();
    let got = read_all(&case.root, json!({})).unwrap().rows;
    let words: Vec<_> = got["kind"].as_string::<i64>().iter().flatten().collect();
    assert_eq!(words, ["a", "b", "c", "a", "d", "d"]);
}

#[test]
fn batches_that_are_too_large_are_refused_before_they_are_read() {
    let zeros = Int64Array::from(vec![0; 100_000]);
    let large = RecordBatch::try_from_iter([("x", Arc::new(zeros) as ArrayRef)]).unwrap();
    let text = StringArray::from(vec!["x"; 3]);
    let small = RecordBatch::try_from_iter([("x", Arc::new(text) as ArrayRef)]).unwrap();
    for bytes in [
        file(from_ref(&large), None),
        // A few bytes that decompress to many.
        file(from_ref(&large), Some(CompressionType::ZSTD)),
        stream(&[large], Some(CompressionType::LZ4_FRAME)),
    ] {
        let root = folder(&[("a", &bytes)]);
        let error = read_all(root.path(), json!({"max_batch_bytes": "256KiB"})).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("`a`, row 0: a message takes 80"), "{text}");
        assert!(error.hint().unwrap().starts_with("raise `max_batch_bytes`"));
        assert!(read_all(root.path(), json!({"max_batch_bytes": "2MiB"})).is_ok());
    }
    let root = folder(&[("a", &file(&[small], None))]);
    let error = read_all(root.path(), json!({"max_batch_bytes": 100})).unwrap_err();
    assert!(error.to_string().contains("a message takes"), "{error}");
}

#[test]
fn inputs_that_are_no_arrow_data_are_refused() {
    let whole = file(&[plain(0, 9)], None);
    let flow = stream(&[plain(0, 9)], None);
    for (bytes, message) in [
        (&b""[..], "`a`, schema: this is neither an Arrow IPC file nor a stream"),
        (b"FEA1", "`a`, schema: "),
        (b"PAR1 is something else", "`a`, schema: "),
        (&whole[..whole.len() - 1], "`a`, schema: the footer cannot be read"),
        (&flow[..flow.len() / 2], "`a`, row 0: a message goes past the end of the input"),
    ] {
        let root = folder(&[("a", bytes)]);
        let error = read_all(root.path(), json!({})).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(error.hint().is_some(), "{error}");
    }
}
