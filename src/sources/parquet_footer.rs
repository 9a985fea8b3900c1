//! The footer of a Parquet file: where it lies, and what it says.
//!
//! Invariants:
//! 1. What is made of a footer takes a bounded multiple of its bytes, and its schema at most
//!    `page_bytes`.
//! 2. How many rows there are is what the row groups say: some writers leave the total at 0.

use std::ops::Range;

use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy,
};

use super::BadRow;
use super::input::PlacedInput;
use super::parquet_pages::PAGE_TOO_LARGE;
use super::parquet_thrift::{MOST_LEVELS, Refusal, look_over_footer};
use super::table::{Flaw, contain};

/// Length of a footer and the mark at the end of the file.
const END_BYTES: u64 = 8;

/// All rows of a file.
pub(super) fn n_rows(metadata: &ParquetMetaData) -> Option<u64> {
    let groups = metadata.row_groups().iter();
    groups.map(|group| u64::try_from(group.num_rows()).ok()).sum()
}

/// Reads what the footer says.
pub(super) fn footer(input: &PlacedInput, page_bytes: u64) -> Result<ParquetMetaData, Flaw> {
    let range = footer_range(input)?;
    let n = range.end - range.start - END_BYTES;
    // What is made of a footer takes a multiple of its bytes.
    if n > page_bytes / 8 {
        return Err(large(format!(
            "the footer has {n} bytes, more than an eighth of `page_bytes` ({page_bytes})"
        )));
    }
    let mut bytes = vec![0; usize::try_from(n).unwrap_or(usize::MAX)];
    input.read_at(range.start, &mut bytes).map_err(Flaw::Input)?;
    let read = look_over(&bytes, page_bytes).and_then(|()| decode(&bytes));
    // What is made of bytes that changed while they were read says nothing.
    read.map_err(|flaw| input.check_unchanged().map_or_else(Flaw::Input, |()| flaw))
}

fn look_over(bytes: &[u8], page_bytes: u64) -> Result<(), Flaw> {
    let cannot = "the footer cannot be read";
    look_over_footer(bytes, page_bytes).map_err(|refusal| match refusal {
        Refusal::Torn => Flaw::damaged(cannot, &"it ends too early"),
        Refusal::Damaged(what) => Flaw::damaged(cannot, &what),
        Refusal::Deep => Flaw::damaged(
            "the schema is nested too deeply",
            &format!("more than {MOST_LEVELS} levels"),
        ),
        Refusal::Large { bytes } => large(format!(
            "the columns that the footer names take {bytes} bytes or more, `page_bytes` is \
             {page_bytes}"
        )),
    })
}

fn decode(bytes: &[u8]) -> Result<ParquetMetaData, Flaw> {
    let skip = ParquetStatisticsPolicy::SkipAll;
    let options = ParquetMetaDataOptions::new()
        .with_column_stats_policy(skip.clone())
        .with_size_stats_policy(skip.clone())
        .with_encoding_stats_policy(skip);
    let metadata = contain("the footer cannot be read", || {
        ParquetMetaDataReader::decode_metadata_with_options(bytes, Some(&options))
    })?;
    Ok(with_all_rows(metadata))
}

/// The metadata with the total that its row groups have: the library reads no more rows than that.
fn with_all_rows(metadata: ParquetMetaData) -> ParquetMetaData {
    let total = n_rows(&metadata).and_then(|n| i64::try_from(n).ok());
    let file = metadata.file_metadata();
    match total {
        Some(total) if total != file.num_rows() => {
            let file = FileMetaData::new(
                file.version(),
                total,
                file.created_by().map(str::to_owned),
                file.key_value_metadata().cloned(),
                file.schema_descr_ptr(),
                file.column_orders().cloned(),
            );
            ParquetMetaData::new(file, metadata.row_groups().to_vec())
        }
        _ => metadata,
    }
}

fn large(message: String) -> Flaw {
    let bad = BadRow::new(PAGE_TOO_LARGE, message);
    Flaw::Rest(bad.hint("raise `page_bytes`, or write fewer columns into a file"))
}

/// Where the footer lies, with the mark behind it.
pub(super) fn footer_range(input: &PlacedInput) -> Result<Range<u64>, Flaw> {
    let size = input.size();
    let no_parquet = |detail: &str| Flaw::damaged("this is not a Parquet file", &detail);
    let Some(at) = size.checked_sub(END_BYTES) else { return Err(no_parquet("it is too short")) };
    let mut end = [0; 8];
    input.read_at(at, &mut end).map_err(Flaw::Input)?;
    let [a, b, c, d, mark @ ..] = end;
    if &mark == b"PARE" {
        return Err(Flaw::damaged("the file is encrypted", &"it ends with PARE"));
    }
    if &mark != b"PAR1" {
        return Err(no_parquet("it does not end with PAR1"));
    }
    let start = at.checked_sub(u64::from(u32::from_le_bytes([a, b, c, d])));
    Ok(start.ok_or_else(|| no_parquet("its footer is longer than it"))?..size)
}
