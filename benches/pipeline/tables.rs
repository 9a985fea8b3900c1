//! One table as CSV, JSON Lines and Parquet: three columns of integers, three of floats, two of texts.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::machine::{Numbers, Result};

/// Rows of a row group.
const GROUP_ROWS: usize = 250_000;
const CITIES: [&str; 12] = [
    "Lisbon",
    "Zürich",
    "Oslo",
    "Buenos Aires",
    "Nairobi",
    "Montréal",
    "Hà Nội",
    "Wellington",
    "Reykjavík",
    "Tbilisi",
    "Ulaanbaatar",
    "Porto",
];
const WORDS: [&str; 16] = [
    "late", "arrival", "checked", "by", "night", "shift", "again", "no", "signal", "until",
    "morning", "sensor", "replaced", "stable", "after", "rain",
];

/// A row of the table.
struct Row {
    id: u64,
    station: u64,
    count: u64,
    price: f64,
    score: f64,
    ratio: f64,
    city: &'static str,
    note: String,
}

impl Row {
    fn new(id: u64, numbers: &mut Numbers) -> Self {
        let mut pick = |n: u64| numbers.below(n);
        let mut note = String::new();
        for n in 0..2 + pick(5) {
            // Some texts hold what CSV must quote.
            let between = if n == 0 {
                ""
            } else if pick(64) == 0 {
                ", "
            } else {
                " "
            };
            note.push_str(between);
            note.push_str(WORDS[pick(16) as usize]);
        }
        Self {
            id,
            station: pick(5_000),
            count: pick(1 << 40),
            price: pick(1_000_000) as f64 / 100.0,
            score: pick(1_000_000) as f64 / 1e6,
            ratio: (pick(1 << 53) + 1) as f64 / (1_u64 << 53) as f64,
            city: CITIES[pick(12) as usize],
            note,
        }
    }
}

fn rows(n_rows: u64) -> impl Iterator<Item = Row> {
    let mut numbers = Numbers(43);
    (0..n_rows).map(move |id| Row::new(id, &mut numbers))
}

/// Writes the table as CSV.
pub(super) fn csv(path: &Path, n_rows: u64) -> Result<()> {
    let head = "id,station,count,price,score,ratio,city,note\n";
    lines(path, head, rows(n_rows), |row, line| {
        let Row { id, station, count, price, score, ratio, city, note } = row;
        let quote = if note.contains(',') { "\"" } else { "" };
        write!(line, "{id},{station},{count},{price},{score:?},{ratio:?},{city}")?;
        writeln!(line, ",{quote}{note}{quote}")
    })
}

/// Writes the table as JSON Lines.
pub(super) fn jsonl(path: &Path, n_rows: u64) -> Result<()> {
    lines(path, "", rows(n_rows), |row, line| {
        let Row { id, station, count, price, score, ratio, city, note } = row;
        write!(line, r#"{{"id": {id}, "station": {station}, "count": {count}, "#)?;
        write!(line, r#""price": {price:?}, "score": {score:?}, "ratio": {ratio:?}, "#)?;
        writeln!(line, r#""city": "{city}", "note": "{note}"}}"#)
    })
}

fn lines(
    path: &Path,
    head: &str,
    rows: impl Iterator<Item = Row>,
    write: impl Fn(&Row, &mut String) -> std::fmt::Result,
) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(head.as_bytes())?;
    let mut line = String::new();
    for row in rows {
        line.clear();
        write(&row, &mut line)?;
        file.write_all(line.as_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

/// Writes the table as Parquet: dictionaries where they pay, Snappy.
pub(super) fn parquet(path: &Path, n_rows: u64) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    let mut writer = None;
    let mut rows = rows(n_rows);
    loop {
        let chunk: Vec<_> = rows.by_ref().take(GROUP_ROWS).collect();
        if chunk.is_empty() {
            break;
        }
        let batch = batch(&chunk)?;
        if writer.is_none() {
            let file = File::create(path)?;
            writer = Some(ArrowWriter::try_new(file, batch.schema(), Some(properties.clone()))?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch)?;
        }
    }
    if let Some(writer) = writer {
        writer.into_inner()?.sync_all()?;
    }
    Ok(())
}

fn batch(rows: &[Row]) -> Result<RecordBatch> {
    let integers = |of: fn(&Row) -> u64| {
        let values = rows.iter().map(|row| of(row).cast_signed());
        Arc::new(values.collect::<Int64Array>()) as ArrayRef
    };
    let floats =
        |of: fn(&Row) -> f64| Arc::new(rows.iter().map(of).collect::<Float64Array>()) as ArrayRef;
    let texts = |of: fn(&Row) -> &str| {
        Arc::new(rows.iter().map(|row| Some(of(row))).collect::<StringArray>()) as ArrayRef
    };
    // Nullable, as tables are that come from elsewhere.
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("id", integers(|row| row.id), true),
        ("station", integers(|row| row.station), true),
        ("count", integers(|row| row.count), true),
        ("price", floats(|row| row.price), true),
        ("score", floats(|row| row.score), true),
        ("ratio", floats(|row| row.ratio), true),
        ("city", texts(|row| row.city), true),
        ("note", texts(|row| &row.note), true),
    ])?)
}
