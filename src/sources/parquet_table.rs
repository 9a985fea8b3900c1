//! One open Parquet file: its columns, and its rows.
//!
//! Leaves out: its footer (`parquet_footer`), what is done with rows that cannot be read (`table`).
//!
//! Invariants:
//! 1. Of a row group no more is in memory than the pages that the current rows are in: the library
//!    decodes column by column as many rows as it is asked for, loading a page when it comes to it.
//! 2. Before a row group is read, the headers of its pages are looked over, so that a page that is
//!    too large is noticed at the same row whatever the sizes of batches are.
//! 3. Texts and bytes are decoded as views, which share what a dictionary repeats: a short page
//!    cannot become an endless column.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Type;
use parquet::column::page::PageReader;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;

use super::columnar::{Selected, plain_schema};
use super::input::PlacedInput;
use super::parquet_footer::footer;
use super::parquet_pages::{PAGE_TOO_LARGE, Pages, Trouble};
use super::table::{Flaw, Place, Table, contain, too_large};
use super::{BadRow, BatchLimits};

/// What went wrong, where the library was refused bytes.
fn explained(pages: &Pages, flaw: Flaw, page_bytes: u64) -> Flaw {
    if let Err(e) = pages.input().check_unchanged() {
        return Flaw::Input(e);
    }
    let large = |message: String| {
        let hint = "raise `page_bytes`, or name fewer columns in `columns`";
        Flaw::Rest(BadRow::new(PAGE_TOO_LARGE, message).hint(hint))
    };
    match pages.trouble() {
        None => flaw,
        Some(Trouble::Input(e)) => Flaw::Input(e),
        Some(Trouble::Header(what)) => Flaw::damaged("a page header cannot be read", &what),
        Some(Trouble::Page { bytes }) => large(format!(
            "a page with its values takes {bytes} bytes, more than `page_bytes` ({page_bytes})"
        )),
        Some(Trouble::Call) => Flaw::Row(BadRow::new(super::ROW_TOO_LARGE, String::new())),
    }
}

/// An open file, or the row groups of it that begin in a range.
pub(super) struct ParquetTable {
    pages: Pages,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    schema: SchemaRef,
    /// Indices of the row groups that are read.
    groups: Range<usize>,
    place: Place,
    /// The reader that stands at `place`, and how many rows it gives at once.
    reader: Option<(ParquetRecordBatchReader, usize)>,
    /// The row group whose pages were looked over, and about the bytes of its rows.
    looked_over: Option<(usize, u64)>,
    page_bytes: u64,
    limits: BatchLimits,
}

impl ParquetTable {
    pub(super) fn new(
        input: PlacedInput,
        range: Option<&Range<u64>>,
        selected: &Selected,
        page_bytes: u64,
        limits: BatchLimits,
    ) -> Result<Self, Flaw> {
        let metadata = Arc::new(footer(&input, page_bytes)?);
        let pages = Pages::new(input);
        let cannot = "the columns cannot be read";
        let options = ArrowReaderOptions::new();
        let own = contain(cannot, || {
            ArrowReaderMetadata::try_new(Arc::clone(&metadata), options.clone())
        })?;
        let viewed = own.schema().fields().iter().map(|field| {
            let field = viewed(field);
            if is_int96(&own, field.name()) { in_microseconds(field) } else { field }
        });
        let viewed = Arc::new(Schema::new(viewed.collect::<Fields>()));
        let metadata =
            contain(cannot, || ArrowReaderMetadata::try_new(metadata, options.with_schema(viewed)));
        // Types that cannot be read otherwise are read as they are.
        let metadata = metadata.unwrap_or(own);
        if let Some((path, near)) = selected.missing(metadata.schema().fields()) {
            let bad = BadRow::new(
                super::columnar::SCHEMA_MISMATCH,
                format!("there is no column `{path}`, which `columns` names"),
            );
            let hint = near.map_or_else(
                || "the file has no columns".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            return Err(Flaw::Rest(bad.hint(hint)));
        }
        let wanted = selected.fields(metadata.schema().fields());
        let mask = mask_of(&metadata, selected);
        let schema = Arc::new(Schema::new(wanted));
        let groups = groups_in(metadata.metadata(), range)?;
        let place = Place { group: groups.start, row: 0 };
        let mut table = Self {
            pages,
            metadata,
            mask,
            schema: plain_schema(&schema),
            groups,
            place,
            reader: None,
            looked_over: None,
            page_bytes,
            limits,
        };
        table.settle()?;
        Ok(table)
    }

    /// Where row groups begin, if they follow one another; without the first.
    pub(super) fn group_starts(&self) -> Vec<u64> {
        let starts = starts(self.metadata.metadata()).unwrap_or_default();
        starts.get(1..).unwrap_or_default().to_vec()
    }

    fn group(&self) -> Option<&RowGroupMetaData> {
        if !self.groups.contains(&self.place.group) {
            return None;
        }
        self.metadata.metadata().row_groups().get(self.place.group)
    }

    fn group_rows(&self) -> Result<Option<u64>, Flaw> {
        let rows = self.group().map(|group| u64::try_from(group.num_rows()));
        rows.transpose().map_err(|e| Flaw::damaged("a row group has less than no rows", &e))
    }

    /// Leaves row groups that have ended behind.
    fn settle(&mut self) -> Result<(), Flaw> {
        while let Some(rows) = self.group_rows()? {
            if self.place.row < rows {
                break;
            }
            self.place = Place { group: self.place.group + 1, row: 0 };
            self.reader = None;
        }
        Ok(())
    }

    /// Looks over the pages of the row group and sets bounds by them.
    fn look_over(&mut self) -> Result<(), Flaw> {
        let number = self.place.group;
        if self.looked_over.is_some_and(|(group, _)| group == number) {
            return Ok(());
        }
        let Some(group) = self.group() else { return Ok(()) };
        let chunks = group.columns().iter().enumerate();
        let chunks: Vec<_> =
            chunks.filter(|(i, _)| self.mask.leaf_included(*i)).map(|(_, chunk)| chunk).collect();
        if chunks.is_empty() {
            return Err(Flaw::damaged("the rows have no columns", &"no leaf column"));
        }
        let cannot = "the pages cannot be found";
        let n_rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
        let mut bounds = Vec::with_capacity(chunks.len());
        let mut row_bytes = 0_u64;
        for chunk in &chunks {
            let (start, n) =
                contain(cannot, || Ok::<_, std::convert::Infallible>(chunk.byte_range()))?;
            let end = start.checked_add(n).filter(|end| *end <= self.pages.input().size());
            let end = end.ok_or_else(|| Flaw::damaged(cannot, &"a column ends behind the file"))?;
            bounds.push((start..end, value_bytes(chunk.column_descr())));
            row_bytes = row_bytes.saturating_add(about_row_bytes(chunk, n_rows));
        }
        bounds.sort_by_key(|(range, _)| range.start);
        let widest: u64 = chunks.iter().map(|chunk| fixed_bytes(chunk.column_descr())).sum();
        if widest > self.limits.row_bytes {
            return Err(Flaw::Rest(too_large(Some(widest), self.limits)));
        }
        self.pages.begin_group(bounds, self.page_bytes);
        let mut all = 0_u64;
        for chunk in &chunks {
            let look = || {
                let rows = usize::try_from(n_rows).unwrap_or(usize::MAX);
                let pages = Arc::new(self.pages.clone());
                let mut pages = SerializedPageReader::new(pages, chunk, rows, None)?;
                while pages.peek_next_page()?.is_some() {
                    pages.skip_next_page()?;
                }
                Ok::<_, parquet::errors::ParquetError>(())
            };
            let looked = contain("a page header cannot be read", look);
            looked.map_err(|flaw| explained(&self.pages, flaw, self.page_bytes))?;
            all = all.saturating_add(self.pages.take_largest());
        }
        if all > self.page_bytes {
            let message = format!(
                "the pages of a row group that are read at once take {all} bytes, more than \
                 `page_bytes` ({}) allows",
                self.page_bytes
            );
            let hint = "raise `page_bytes`, or name fewer columns in `columns`";
            return Err(Flaw::Rest(BadRow::new(PAGE_TOO_LARGE, message).hint(hint)));
        }
        self.looked_over = Some((number, row_bytes.max(1)));
        Ok(())
    }

    fn reader(&self, most: usize) -> Result<ParquetRecordBatchReader, Flaw> {
        let skipped = usize::try_from(self.place.row).unwrap_or(usize::MAX);
        let n_rows = usize::try_from(self.group_rows()?.unwrap_or(0)).unwrap_or(usize::MAX);
        let left = n_rows.saturating_sub(skipped);
        contain("a row group cannot be read", || {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(
                self.pages.clone(),
                self.metadata.clone(),
            );
            let builder = builder
                .with_projection(self.mask.clone())
                .with_row_groups(vec![self.place.group])
                .with_batch_size(most);
            let builder = if skipped > 0 {
                let skip = [RowSelector::skip(skipped), RowSelector::select(left)];
                builder.with_row_selection(RowSelection::from(skip.to_vec()))
            } else {
                builder
            };
            builder.build()
        })
    }
}

impl Table for ParquetTable {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn place(&self) -> Place {
        self.place
    }

    fn seek(&mut self, place: Place) -> Result<bool, Flaw> {
        self.reader = None;
        if !self.groups.contains(&place.group) {
            return Ok(false);
        }
        self.place = place;
        if self.group_rows()?.is_none_or(|rows| place.row > rows) {
            return Ok(false);
        }
        self.settle()?;
        Ok(true)
    }

    fn suggest(&self) -> usize {
        let group = self.looked_over.filter(|(group, _)| *group == self.place.group);
        let Some((_, row_bytes)) = group else { return 1 };
        usize::try_from(self.limits.bytes as u64 / row_bytes).unwrap_or(usize::MAX)
    }

    fn rows_before(&self) -> Option<u64> {
        let before = self.metadata.metadata().row_groups().get(..self.groups.start)?;
        before.iter().map(|group| u64::try_from(group.num_rows()).ok()).sum()
    }

    fn next(&mut self, most: usize) -> Result<Option<(Place, RecordBatch)>, Flaw> {
        let place = self.place;
        if self.group().is_none() {
            return Ok(None);
        }
        self.look_over()?;
        let (mut reader, most) = match self.reader.take() {
            Some((reader, n)) if n == most => (reader, most),
            _ => (self.reader(most)?, most),
        };
        let rows = if most == 1 { self.limits.row_bytes } else { self.limits.bytes as u64 };
        self.pages.allow(self.page_bytes.saturating_mul(2).saturating_add(rows));
        let read = contain("a page cannot be read", || reader.next().transpose());
        let read = read.map_err(|flaw| explained(&self.pages, flaw, self.page_bytes));
        let rows = match read {
            Ok(Some(rows)) if rows.num_rows() > 0 => rows,
            Ok(_) => {
                self.pages.input().check_unchanged().map_err(Flaw::Input)?;
                let detail = "its columns end before the number of rows that the footer names";
                return Err(Flaw::damaged("a row group has too few rows", &detail));
            }
            Err(Flaw::Row(bad)) if bad.code == super::ROW_TOO_LARGE => {
                return Err(Flaw::Row(too_large(None, self.limits)));
            }
            Err(flaw) => return Err(flaw),
        };
        self.place.row += rows.num_rows() as u64;
        self.reader = Some((reader, most));
        self.settle()?;
        Ok(Some((place, rows)))
    }
}

/// The columns of the file that are read.
fn mask_of(metadata: &ArrowReaderMetadata, selected: &Selected) -> ProjectionMask {
    let parquet = metadata.parquet_schema();
    let leaves = parquet.columns().iter().enumerate();
    let leaves = leaves.filter(|(_, leaf)| selected.takes(leaf.path().parts()));
    ProjectionMask::leaves(parquet, leaves.map(|(i, _)| i))
}

/// First bytes of the row groups, if each lies behind the one before it.
fn starts(metadata: &ParquetMetaData) -> Option<Vec<u64>> {
    let mut starts = Vec::with_capacity(metadata.num_row_groups());
    let mut end_before = 0;
    for group in metadata.row_groups() {
        let (mut start, mut end) = (u64::MAX, 0_u64);
        for chunk in group.columns() {
            let first = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let first = u64::try_from(first.min(chunk.data_page_offset())).ok()?;
            let bytes = u64::try_from(chunk.compressed_size()).ok()?;
            start = start.min(first);
            end = end.max(first.checked_add(bytes)?);
        }
        if start < end_before || start > end {
            return None;
        }
        end_before = end.max(start + 1);
        starts.push(start);
    }
    Some(starts)
}

/// The row groups that begin in a range.
fn groups_in(metadata: &ParquetMetaData, range: Option<&Range<u64>>) -> Result<Range<usize>, Flaw> {
    let all = 0..metadata.num_row_groups();
    let Some(range) = range else { return Ok(all) };
    let no_cut = || Flaw::damaged("the file is not cut where row groups begin", &"its footer");
    let starts = starts(metadata).ok_or_else(no_cut)?;
    let from = if range.start == 0 {
        0
    } else {
        starts.binary_search(&range.start).map_err(|_| no_cut())?
    };
    let to = starts.partition_point(|start| *start < range.end);
    Ok(from..to.max(from))
}

/// The same column with texts and bytes as views.
fn viewed(field: &Field) -> Field {
    let again = |field: &Arc<Field>| Arc::new(viewed(field));
    let data_type = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => {
            let values = field.clone().with_data_type(values.as_ref().clone());
            return viewed(&values);
        }
        DataType::List(item) => DataType::List(again(item)),
        DataType::LargeList(item) => DataType::LargeList(again(item)),
        DataType::FixedSizeList(item, n) => DataType::FixedSizeList(again(item), *n),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(again).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(again(entries), *is_sorted),
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

/// Whether a column has the timestamps of 12 bytes that older writers use.
fn is_int96(metadata: &ArrowReaderMetadata, name: &str) -> bool {
    let mut leaves = metadata.parquet_schema().columns().iter();
    leaves.any(|leaf| leaf.physical_type() == Type::INT96 && *leaf.path().parts() == [name])
}

/// The same column in microseconds: such timestamps reach further than nanoseconds in 64 bits do.
fn in_microseconds(field: Field) -> Field {
    match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let data_type = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            field.with_data_type(data_type)
        }
        _ => field,
    }
}

/// Bytes of a decoded value of a leaf column.
fn fixed_bytes(leaf: &ColumnDescriptor) -> u64 {
    match leaf.physical_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::BYTE_ARRAY => 16,
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(leaf.type_length()).unwrap_or(0),
    }
}

/// Bytes that each value of a page takes once it is decoded, with its two levels and its size, where
/// the number of values in a row is not bounded; 0 where it is.
fn value_bytes(leaf: &ColumnDescriptor) -> u64 {
    if leaf.max_rep_level() == 0 { 0 } else { fixed_bytes(leaf) + 12 }
}

/// About the bytes of a row in a column chunk.
fn about_row_bytes(chunk: &ColumnChunkMetaData, n_rows: u64) -> u64 {
    let leaf = chunk.column_descr();
    let stored = u64::try_from(chunk.uncompressed_size()).unwrap_or(0) / n_rows;
    if leaf.max_rep_level() > 0 {
        let n_values = u64::try_from(chunk.num_values()).unwrap_or(0) / n_rows + 1;
        return stored.saturating_add(n_values.saturating_mul(value_bytes(leaf)));
    }
    match leaf.physical_type() {
        Type::BYTE_ARRAY => stored + fixed_bytes(leaf),
        _ => fixed_bytes(leaf),
    }
}
