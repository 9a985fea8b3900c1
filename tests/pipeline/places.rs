//! A row of a file that is cut into ranges is found by what is said of it.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};

use crate::command::Place;

const ROWS: u32 = 250;
/// The one row that something is wrong with.
const BAD: u32 = 217;
/// Rows in a row group or record batch.
const GROUP: usize = 20;
/// About a fifth of the files of text.
const PARTITION_BYTES: usize = 2000;

/// A file of rows `{ n, t }`, `n` being the row's number but for that of [`BAD`].
struct Big {
    kind: &'static str,
    name: String,
    bytes: Vec<u8>,
    /// `n` of each row, and the byte at which it begins, in files that have such bytes.
    rows: Vec<(i64, Option<u64>)>,
    /// Settings of the source.
    settings: &'static str,
}

/// What is said of a row's place.
#[derive(Debug, PartialEq)]
struct Said {
    line: Option<u64>,
    byte: Option<u64>,
    input_row: Option<u64>,
    source_row: u64,
    range: Range<u64>,
}

fn text(row: u32) -> String {
    match row {
        BAD => "long ".repeat(800),
        _ => format!("{}é", "x".repeat(row as usize * 37 % 23)),
    }
}

impl Big {
    /// Files of all kinds that can be cut; `n` of [`BAD`] is `bad`.
    fn all(bad: i64) -> Vec<Self> {
        let n = |row: u32| if row == BAD { bad } else { row.into() };
        let numbers: Vec<i64> = (0..ROWS).map(n).collect();
        let texts = StringArray::from_iter_values((0..ROWS).map(text));
        let numbered = Arc::new(Int64Array::from(numbers.clone()));
        let batch = RecordBatch::try_from_iter([("n", numbered as _), ("t", Arc::new(texts) as _)]);
        let batch = batch.unwrap();

        let groups = WriterProperties::builder().set_max_row_group_row_count(Some(GROUP)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(groups)).unwrap();
        writer.write(&batch).unwrap();
        let parquet = writer.into_inner().unwrap();

        let mut writer =
            arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        for from in (0..batch.num_rows()).step_by(GROUP) {
            let n = GROUP.min(batch.num_rows() - from);
            writer.write(&batch.slice(from, n)).unwrap();
        }
        let arrow = writer.into_inner().unwrap();

        let head = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({ROWS},), }}");
        let head = format!("{head:117}\n");
        let mut npy = [b"\x93NUMPY\x01\x00\x76\x00", head.as_bytes()].concat();
        npy.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        let mut idx = [&[0, 0, 0x0c, 1][..], &ROWS.to_be_bytes()].concat();
        idx.extend(numbers.iter().flat_map(|n| i32::try_from(*n).unwrap().to_be_bytes()));

        let whole = |kind, bytes, settings| {
            let rows = numbers.iter().map(|n| (*n, None)).collect();
            Self { kind, name: format!("big.{kind}"), bytes, rows, settings }
        };
        vec![
            Self::of_text(
                "jsonl",
                "",
                numbers.iter().zip(0..).map(|(n, row)| {
                    // Blank lines are no rows.
                    let blank = if row % 40 == 7 { "\n" } else { "" };
                    (*n, blank, json!({"n": n, "t": text(row)}).to_string() + "\n")
                }),
            ),
            Self::of_text(
                "csv",
                "n,t\n",
                numbers.iter().zip(0..).map(|(n, row)| {
                    let end = if row % 30 == 3 { "\n,more" } else { "" };
                    (*n, "", format!("{n},\"{}{end}\"\n", text(row)))
                }),
            ),
            whole("parquet", parquet, ""),
            whole("arrow", arrow, ""),
            whole("npy", npy, "name = \"n\"\n"),
            whole("idx", idx, "name = \"n\"\n"),
        ]
    }

    fn of_text(
        kind: &'static str,
        head: &str,
        records: impl Iterator<Item = (i64, &'static str, String)>,
    ) -> Self {
        let mut bytes = head.as_bytes().to_vec();
        let mut rows = Vec::new();
        for (n, before, record) in records {
            bytes.extend_from_slice(before.as_bytes());
            rows.push((n, Some(bytes.len() as u64)));
            bytes.extend_from_slice(record.as_bytes());
        }
        Self { kind, name: format!("big.{kind}"), bytes, rows, settings: "" }
    }

    /// A dataset of this file, cut into some ranges.
    fn place(&self, rest: &str) -> Place {
        let place = Place::new();
        place.write(&format!("in/{}", self.name), &self.bytes);
        let Self { kind, name, settings, .. } = self;
        let bytes = if settings.is_empty() { PARTITION_BYTES } else { 300 };
        place.write(
            "p.toml",
            format!(
                "version = 1\nname = \"d\"\n[sources.s]\ntype = \"{kind}\"\npath = \"{name}\"\n\
                 root = \"in\"\n{settings}{rest}\n[dataset]\npartition_bytes = {bytes}\n\
                 max_row_bytes = \"64KiB\"\n"
            ),
        );
        place
    }

    fn is_text(&self) -> bool {
        self.rows.iter().any(|(_, byte)| byte.is_some())
    }

    /// What is said of a row in a text.
    fn said(&self, text: &str) -> Said {
        let (_, at) = text.split_once(&format!("`{}`, ", self.name)).unwrap_or_else(|| {
            panic!("`{}` is not named in {text}", self.name);
        });
        let (at, rest) = at.split_once(" of bytes ").unwrap_or_else(|| panic!("no range: {text}"));
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{text}: {at}"));
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (from, to) = rest[..end].split_once("..").unwrap();
        let (mut line, mut byte, mut rows) = (None, None, Vec::new());
        for part in at.split([',', '(']) {
            match part.trim().split_once(' ').unwrap() {
                ("line", n) => line = Some(number(n)),
                ("byte", n) => byte = Some(number(n)),
                ("row", n) => rows.push(number(n)),
                other => panic!("{other:?} in {text}"),
            }
        }
        let (source_row, range) = (rows.pop().unwrap(), number(from)..number(to));
        let is_first = range.start == 0;
        let input_row = rows.pop().or(is_first.then_some(source_row));
        Said { line, byte, input_row, source_row, range }
    }

    /// What a document says of a row.
    fn told(&self, document: &Value) -> Said {
        assert_eq!((&document["source"], &document["input"]), (&json!("s"), &json!(self.name)));
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{document:#}"));
        Said {
            line: None,
            byte: None,
            input_row: document["input_row"].as_u64(),
            source_row: number(&document["source_row"]),
            range: number(&document["range"][0])..number(&document["range"][1]),
        }
    }

    /// Looks for the row where it is said to be, and gives its `n`.
    #[track_caller]
    fn look(&self, said: &Said) -> i64 {
        let Said { line, byte, input_row, source_row, range } = said;
        assert!(range.end <= self.bytes.len() as u64, "{said:?}");
        let own = usize::try_from(*source_row).unwrap();
        let found = match self.kind {
            "jsonl" | "csv" => {
                let inside = |at: &u64| range.contains(at);
                let mut rows = self.rows.iter().filter(|(_, at)| at.as_ref().is_some_and(inside));
                let (n, at) = rows.nth(own).unwrap();
                let at = at.unwrap();
                assert!(byte.is_none_or(|byte| byte == at), "{said:?}, at {at}");
                let before = &self.bytes[..usize::try_from(at).unwrap()];
                let lines = before.split(|byte| *byte == b'\n').count() as u64;
                assert!(line.is_none_or(|line| line == lines), "{said:?}, line {lines}");
                *n
            }
            "parquet" => parquet_rows(&self.bytes, range)[own],
            "arrow" => arrow_rows(&self.bytes, range)[own],
            "npy" => {
                let start = range.start.max(128) + source_row * 8;
                let at = usize::try_from(start).unwrap();
                i64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
            }
            _ => {
                let start = range.start.max(8) + source_row * 4;
                let at = usize::try_from(start).unwrap();
                i32::from_be_bytes(self.bytes[at..at + 4].try_into().unwrap()).into()
            }
        };
        if let Some(row) = input_row {
            assert_eq!(self.rows[usize::try_from(*row).unwrap()].0, found, "{said:?}");
        }
        found
    }
}

/// `n` of the rows of the row groups that begin in a range of a file.
fn parquet_rows(bytes: &[u8], range: &Range<u64>) -> Vec<i64> {
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    let reader = SerializedFileReader::new(bytes.clone()).unwrap();
    let groups = reader.metadata().row_groups().iter().enumerate();
    let begins = groups.filter(|(_, group)| {
        let column = group.column(0);
        let first = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        range.contains(&u64::try_from(first.min(column.data_page_offset())).unwrap())
    });
    let groups = begins.map(|(number, _)| number).collect();
    let rows = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().with_row_groups(groups);
    numbers(rows.build().unwrap().map(Result::unwrap))
}

/// `n` of the rows of the record batches that begin in a range of a file.
fn arrow_rows(bytes: &[u8], range: &Range<u64>) -> Vec<i64> {
    let tail = bytes.last_chunk::<10>().unwrap();
    let length = arrow_ipc::reader::read_footer_length(*tail).unwrap();
    let footer = &bytes[bytes.len() - 10 - length..bytes.len() - 10];
    let footer = arrow_ipc::root_as_footer(footer).unwrap();
    let starts = footer.recordBatches().unwrap().iter().map(arrow_ipc::Block::offset);
    let inside: Vec<bool> =
        starts.map(|start| range.contains(&u64::try_from(start).unwrap())).collect();
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None);
    let batches = reader.unwrap().map(Result::unwrap).zip(inside);
    numbers(batches.filter(|(_, inside)| *inside).map(|(batch, _)| batch))
}

fn numbers(batches: impl Iterator<Item = RecordBatch>) -> Vec<i64> {
    let all = batches.map(|batch| batch["n"].as_primitive::<Int64Type>().values().to_vec());
    all.flatten().collect()
}

const CAST: &str = "[transforms.c]\ntype = \"cast\"\ntypes = { n = \"uint8\" }\n";

#[test]
fn a_bad_row_of_a_range_is_where_the_error_says() {
    for big in Big::all(999) {
        let kind = big.kind;
        let of_text = big.is_text();
        let mut ways = vec![
            ("transform", CAST, vec![]),
            ("dataset", "", vec!["dataset.fields.n.dtype=\"uint8\""]),
        ];
        if of_text {
            ways.push(("source", "types.n = \"uint8\"\n", vec![]));
        }
        if big.settings.is_empty() {
            ways.push(("source", "", vec!["dataset.max_row_bytes=1000"]));
        }
        if kind == "csv" {
            ways.push(("too large to be written", "", vec!["dataset.max_row_bytes=4006"]));
        }
        for (way, rest, set) in ways {
            let place = big.place(rest);
            let set = set.iter().flat_map(|set| ["--set", set]);
            let args: Vec<_> = ["run", "p.toml", "--jobs", "2"].into_iter().chain(set).collect();
            let ran = place.rowmill(&args);
            ran.fails(3, &[&big.name]);
            let said = big.said(&ran.stderr);
            let what = format!("{kind}, {way}: {}", ran.stderr);
            assert_eq!(big.look(&said), 999, "{what}");
            assert!(said.range.start > 0 && said.source_row < BAD.into(), "{what}");
            let at = big.rows[BAD as usize].1;
            assert_eq!(said.byte, at.filter(|_| way == "source"), "{what}");
            assert_eq!(said.input_row, (!of_text).then_some(BAD.into()), "{what}");
        }
    }
}

#[test]
fn rejects_and_rows_of_a_range_are_where_reports_say() {
    for big in Big::all(999) {
        let kind = big.kind;
        let place = big.place(&format!("{CAST}on_error = \"quarantine\"\n"));
        place
            .rowmill(&["run", "p.toml", "--set", "transforms.c.max_rejects=0"])
            .fails(3, &["stage `c` rejected 1 of "]);
        let ran = place.rowmill(&["run", "p.toml", "--set", "transforms.c.max_rejects=0"]);
        let want = big.said(&ran.stderr);
        assert_eq!(big.look(&want), 999, "{kind}: {}", ran.stderr);
        assert_eq!(want.input_row, (!big.is_text()).then_some(BAD.into()), "{kind}");

        let report = place.json(&["run", "p.toml"]);
        assert!(report["partitions"].as_u64().unwrap() > 2, "{kind}: {report:#}");
        let contents = place.json(&["inspect", "p.toml"]);
        for document in [&report, &contents] {
            assert_eq!(big.told(&document["rejects"][0]), want, "{kind}");
        }
        for command in ["run", "inspect"] {
            assert_eq!(big.said(&place.done(&[command, "p.toml"]).stdout), want, "{kind}");
        }
        // Who has no definition does not know where the input is.
        let folder = place.current("data", "d");
        let alone = place.json(&["inspect", folder.to_str().unwrap()]);
        let known = Said { input_row: None, ..want };
        assert_eq!(big.told(&alone["rejects"][0]), known, "{kind}");

        for row in [0, 1, 100, BAD, ROWS - 2] {
            let row = row.to_string();
            let found = place.json(&["inspect", "p.toml", "--row", &row]);
            let told = big.told(&found);
            assert_eq!(found["values"]["n"], big.look(&told), "{kind}, row {row}");
            let is_known = !big.is_text() || told.range.start == 0;
            assert_eq!(told.input_row.is_some(), is_known, "{kind}, row {row}");
            let shown = place.done(&["inspect", "p.toml", "--row", &row]).stdout;
            assert_eq!(big.said(&shown), told, "{kind}, {shown}");
        }
    }
}

#[test]
fn rows_of_ranges_with_one_key_are_where_the_error_says() {
    for big in Big::all(3) {
        let place = big.place("");
        let ran = place.rowmill(&["run", "p.toml", "--set", "dataset.key=\"n\""]);
        ran.fails(3, &["two rows have the key 3: row 3 of the dataset"]);
        let (first, second) = ran.stderr.split_once(", and row ").unwrap();
        let [first, second] = [first, second].map(|text| big.said(text));
        assert_eq!([&first, &second].map(|said| big.look(said)), [3, 3], "{}", ran.stderr);
        assert_eq!((first.source_row, first.range.start), (3, 0), "{}", ran.stderr);
        assert!(second.range.start > 0, "{}", ran.stderr);
        let counted = (!big.is_text()).then_some(BAD.into());
        assert_eq!(second.input_row, counted, "{}: {}", big.kind, ran.stderr);
    }
}
