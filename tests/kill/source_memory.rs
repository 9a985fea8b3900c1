//! Peak memory of sources whose files come in large pieces: row groups, record batches and lines that
//! are larger than the memory there is, or stand for more than they hold. Each is given the least memory
//! that `plan` accepts.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{ArrayRef, BinaryArray, DictionaryArray, Int8Array, ListArray, RecordBatch};
use arrow_array::{StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use crate::memory::{Case, check};
use crate::place::Place;

fn place(settings: &str, max_row_bytes: &str) -> Place {
    Place::new(&format!(
        r#"
version = 1
name = "tables"

[sources.tables]
root = "in"
path = "*"
on_error = "quarantine"
{settings}

[dataset]
max_row_bytes = "{max_row_bytes}"
"#
    ))
}

/// Builds in the least memory that is accepted for one job.
fn check_with_least(place: &Place, name: &'static str, rows: u64) {
    check_jobs_with_least(place, name, rows, 1);
}

fn check_jobs_with_least(place: &Place, name: &'static str, rows: u64, jobs: usize) {
    let refused = place.run("refused").arg("--memory").arg("1MiB").arg("--jobs");
    let refused = refused.arg(jobs.to_string()).wait();
    let messages = refused.messages();
    let needed = messages.split("may take ").nth(1).unwrap_or_else(|| panic!("{messages}"));
    let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
    let memory_mib = needed.div_ceil(1 << 20);
    check(place, &Case { name, memory_mib, jobs, delay: 0, rows });
}

/// Rows of 16 KiB that do not compress.
fn binary(n_rows: usize) -> RecordBatch {
    let mut state = 1_u64;
    let rows = (0..n_rows).map(|_| {
        let words = (0..2048).flat_map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            state.to_be_bytes()
        });
        words.collect::<Vec<u8>>()
    });
    let column = BinaryArray::from_iter_values(rows);
    RecordBatch::try_from_iter([("x", Arc::new(column) as ArrayRef)]).unwrap()
}

fn file_of(batches: &[RecordBatch]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = batches[0].schema();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut bytes, &schema).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

#[test]
fn a_row_group_of_256_mib() {
    let place = place("type = \"parquet\"\npage_bytes = \"4MiB\"", "64KiB");
    let rows = binary(1 << 10);
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(None)
        .set_dictionary_enabled(false)
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
    for _ in 0..16 {
        writer.write(&rows).unwrap();
    }
    writer.close().unwrap();
    place.write("in/rows.parquet", bytes);
    check_with_least(&place, "a row group of 256 MiB", 16 << 10);
}

#[test]
fn record_batches_of_32_mib() {
    let place = place("type = \"arrow\"\nmax_batch_bytes = \"33MiB\"", "64KiB");
    place.write("in/rows.arrow", file_of(&vec![binary(2 << 10); 10]));
    check_with_least(&place, "record batches of 32 MiB", 20 << 10);
}

/// Lists of a few bytes that stand for many become rejects, not memory.
#[test]
fn lists_that_stand_for_more_than_they_hold() {
    const N: usize = 4 << 20;
    let keys = Int8Array::from(vec![0; N]);
    let text = StringArray::from(vec!["y".repeat(1 << 20)]);
    let repeated = DictionaryArray::<Int8Type>::new(keys.clone(), Arc::new(text));
    let field = Fields::from(vec![Field::new("n".repeat(10_000), DataType::Int8, true)]);
    let named = StructArray::new(field, vec![Arc::new(keys)], None);
    for (name, items) in [
        ("a dictionary in a list", Arc::new(repeated) as ArrayRef),
        ("a long name in a list", Arc::new(named)),
    ] {
        let place = place("type = \"arrow\"\nmax_batch_bytes = \"16MiB\"", "1MiB");
        let item = Arc::new(Field::new("item", items.data_type().clone(), true));
        // A row with everything, between two of nothing.
        let offsets = OffsetBuffer::from_lengths([0, N, 0]);
        let lists = ListArray::new(item, offsets, items, None);
        let batch = RecordBatch::try_from_iter([("x", Arc::new(lists) as ArrayRef)]).unwrap();
        place.write("in/rows.arrow", file_of(&[batch]));
        check_with_least(&place, name, 2);
    }
}

#[test]
fn lines_of_some_mib() {
    let mut lines = String::new();
    for i in 0..2 {
        // What takes few bytes in a line and more in memory, or the other way round.
        let numbers = "1,".repeat(1 << 20);
        writeln!(lines, "{{\"numbers\":[{numbers}{i}],\"lists\":[],\"text\":\"\"}}").unwrap();
        let lists = "[],".repeat(1 << 20);
        writeln!(lines, "{{\"numbers\":[],\"lists\":[{lists}[{i}]],\"text\":\"\"}}").unwrap();
        let text = "\\u00e9".repeat(1 << 20);
        writeln!(lines, "{{\"numbers\":[],\"lists\":[],\"text\":\"{text}{i}\"}}").unwrap();
    }
    // Longer than a row may be: passed over.
    writeln!(lines, "{{\"text\":\"{}\"}}", "x".repeat(64 << 20)).unwrap();
    let types = "{ numbers = \"list<int64>\", lists = \"list<list<int64>>\", text = \"utf8\" }";
    let place = place(&format!("type = \"jsonl\"\ntypes = {types}"), "10MiB");
    let definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", definition + "\n[dataset.fields]\nlists = { dtype = \"json\" }\n");
    place.write("in/rows.jsonl", lines);
    check_with_least(&place, "lines of some MiB", 6);
}

/// A list of texts becomes JSON that is six times as long: of that no more is made than a row may have.
#[test]
fn lists_that_become_much_more_text() {
    let text = StringArray::from(vec!["\u{1}".repeat(24 << 20)]);
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let offsets = OffsetBuffer::from_lengths([0, 1, 0]);
    let lists = ListArray::new(item, offsets, Arc::new(text), None);
    let batch = RecordBatch::try_from_iter([("x", Arc::new(lists) as ArrayRef)]).unwrap();
    let place = place("type = \"arrow\"\nmax_batch_bytes = \"25MiB\"", "25MiB");
    let definition = std::fs::read_to_string(place.path("p.toml")).unwrap();
    place.write("p.toml", definition + "on_error = \"quarantine\"\n");
    place.write("in/rows.arrow", file_of(&[batch]));
    check_with_least(&place, "a list of a text", 2);
}

/// Sets of names take many times what the names do: a line may have a key for each 16 bytes that a row
/// may take, and a line of more keys is a reject.
#[test]
fn lines_of_millions_of_keys() {
    let letters: Vec<char> =
        ('0'..='9').chain('A'..='Z').chain('a'..='z').chain("-_".chars()).collect();
    let line = |n_keys: usize, fill: &str| {
        let keys = (0..n_keys).fold(String::new(), |mut keys, i| {
            let letters = [i >> 18, i >> 12, i >> 6, i].map(|n| letters[n & 63]);
            let letters = String::from_iter(letters);
            write!(keys, ",\"{letters}{fill}\":1").unwrap();
            keys
        });
        format!("{{\"n\":1,\"any\":{{\"a\":1{keys}}}}}\n")
    };
    // The columns are inferred from the first.
    let lines = line(0, "") + &line(500_000, "filled") + &line(3_700_000, "");
    for (name, settings) in [
        ("keys of any JSON", "types = { n = \"int8\", any = \"json\" }"),
        ("keys to ignore", "extra = \"ignore\"\ninfer_rows = 1"),
    ] {
        let place = place(&format!("type = \"jsonl\"\n{settings}"), "32MiB");
        place.write("in/rows.jsonl", &lines);
        check_with_least(&place, name, 2);
    }
}

/// What is read again when a shard is sealed: keys and interned values nearly as large as a row may be,
/// while the next rows wait.
#[test]
fn values_of_24_mib_in_an_index() {
    for (name, jobs, partition_bytes, data, field) in [
        ("a key", 1, "1GiB", "key = \"text\"", "nullable = false"),
        ("keys, two at once", 2, "64MiB", "key = \"text\"", "nullable = false"),
        ("an interned text", 1, "1GiB", "", "intern = true, index = true, sidecar = \"t.json\""),
    ] {
        let place = Place::new(&format!(
            r#"
version = 1
name = "texts"

[sources.texts]
type = "files"
root = "in"
path = "*"
content = "text"

[dataset]
max_row_bytes = "25MiB"
shard_rows = 1
partition_bytes = "{partition_bytes}"
{data}

[dataset.fields]
text = {{ {field} }}
"#
        ));
        for letter in ["a", "b", "c"] {
            place.write(&format!("in/{letter}"), letter.repeat(24 << 20));
        }
        check_jobs_with_least(&place, name, 3, jobs);
    }
}
