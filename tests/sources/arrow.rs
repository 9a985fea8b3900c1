//! The `arrow` source.

use std::path::Path;
use std::slice::from_ref;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int8Array, Int64Array, ListArray, NullArray, RecordBatch,
    StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Fields};
use flatbuffers::FlatBufferBuilder;
use rowmill::batch::Restart;
use rowmill::sources::{BatchLimits, SourceError};
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

/// Lists of `n` items each, over as many of `items` as that takes.
fn lists(items: ArrayRef, n: usize) -> RecordBatch {
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let offsets = OffsetBuffer::from_repeated_length(n, items.len() / n);
    let lists = ListArray::new(item, offsets, items, None);
    RecordBatch::try_from_iter([("x", Arc::new(lists) as ArrayRef)]).unwrap()
}

#[test]
fn rows_are_as_large_as_what_they_stand_for() {
    const N: usize = 1 << 20;
    let text = StringArray::from(vec!["y".repeat(1 << 20)]);
    let keys = Int8Array::from(vec![0; N]);
    let repeated = DictionaryArray::<Int8Type>::new(keys.clone(), Arc::new(text));
    let name = "n".repeat(10_000);
    let field = Fields::from(vec![Field::new(name, DataType::Int8, true)]);
    let named = StructArray::new(field, vec![Arc::new(keys)], None);
    for (name, items, bytes) in [
        ("a text of 1 MiB, for each byte", Arc::new(repeated) as ArrayRef, N * (N + 2)),
        ("a long name, for each byte", Arc::new(named), N * 10_006),
        ("nothing, without a byte for each", Arc::new(NullArray::new(200 << 20)), 200 << 20),
        (
            "objects, without a byte for each",
            Arc::new(StructArray::new_empty_fields(50 << 20, None)),
            100 << 20,
        ),
    ] {
        let n = items.len();
        let root = folder(&[("a", &file(&[lists(items, n)], None))]);
        let source = source("arrow", root.path(), &["*"], json!({}));
        let inputs = source.list().unwrap();
        let schema = source.schema(inputs.first()).unwrap();
        let part = part_of(&*source, &inputs);
        let limits = BatchLimits { row_bytes: 64 << 20, bytes: 4 << 20, ..LIMITS };
        let error = source.open(&part, &schema, limits, &Restart::default()).unwrap().next();
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&format!("the row has {bytes} bytes")), "{name}: {error}");
    }
}

#[test]
fn heads_of_few_bytes_that_stand_for_many_columns_are_refused() {
    let nested = |levels: usize, width: usize| {
        let mut builder = FlatBufferBuilder::new();
        let name = builder.create_string("f");
        let kind = arrow_ipc::Struct_::create(&mut builder, &arrow_ipc::Struct_Args {});
        let mut children = None;
        let mut field = None;
        for _ in 0..levels {
            let args = arrow_ipc::FieldArgs {
                name: Some(name),
                type_type: arrow_ipc::Type::Struct_,
                type_: Some(kind.as_union_value()),
                children,
                ..arrow_ipc::FieldArgs::default()
            };
            let made = arrow_ipc::Field::create(&mut builder, &args);
            children = Some(builder.create_vector(&vec![made; width]));
            field = Some(made);
        }
        let fields = builder.create_vector(&[field.unwrap()]);
        let args = arrow_ipc::SchemaArgs { fields: Some(fields), ..Default::default() };
        let schema = arrow_ipc::Schema::create(&mut builder, &args);
        let args = arrow_ipc::MessageArgs {
            version: arrow_ipc::MetadataVersion::V5,
            header_type: arrow_ipc::MessageHeader::Schema,
            header: Some(schema.as_union_value()),
            ..Default::default()
        };
        let message = arrow_ipc::Message::create(&mut builder, &args);
        builder.finish(message, None);
        let head = builder.finished_data();
        let length = u32::try_from(head.len()).unwrap().to_le_bytes();
        [&[0xff; 4], &length[..], head].concat()
    };
    for (levels, width, want) in [
        (20, 1, None),
        (40, 2, Some("Too many tables")),
        (5000, 1, Some("Nested table depth limit reached")),
    ] {
        let bytes = nested(levels, width);
        let root = folder(&[("a", &bytes)]);
        let source = source("arrow", root.path(), &["*"], json!({}));
        let read = source.schema(source.list().unwrap().first());
        match (read, want) {
            (Ok(schema), None) => assert_eq!(schema.fields().len(), 1),
            (Err(e), Some(want)) => {
                assert!(e.to_string().starts_with("`a`, schema: a message cannot be read"), "{e}");
                assert!(e.hint().unwrap().contains(want), "{e:?}");
            }
            (got, _) => panic!("{levels} levels of {width}: {got:?}"),
        }
    }
}
