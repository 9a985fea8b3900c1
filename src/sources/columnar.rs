//! Columns of tables that come as Arrow arrays: which of them are read, as what, and how many bytes
//! each row has.
//!
//! Leaves out: reading them (`parquet`, `arrow_ipc`), and what a type becomes in a row (`schema`).
//!
//! Invariants:
//! 1. A column's type depends on what it holds, not on how it was written: texts are `LargeUtf8`,
//!    bytes `LargeBinary`, dictionaries their values, and the names of list items are always the same.
//! 2. The size of a row is that of its values alone, whatever they share with other rows.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowDictionaryKeyType, BinaryViewType, ByteViewType, StringViewType};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, GenericByteViewArray, OffsetSizeTrait,
    RecordBatch, RecordBatchOptions, StringViewArray, StructArray, downcast_dictionary_array,
    make_array,
};
use arrow_data::ByteView;
use arrow_data::transform::MutableArrayData;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};

use super::{BadRow, SettingsError};

/// Code of an input whose columns are not those of the first.
pub(super) const SCHEMA_MISMATCH: &str = "schema_mismatch";

/// What a column with texts, bytes, dictionaries or lists of them is read as.
pub(super) fn plain_field(field: &Field) -> Field {
    renamed(field, field.name())
}

fn renamed(field: &Field, name: &str) -> Field {
    let kept = [EXTENSION_TYPE_NAME_KEY, EXTENSION_TYPE_METADATA_KEY];
    let metadata = field.metadata().iter().filter(|(key, _)| kept.contains(&key.as_str()));
    let metadata = metadata.map(|(key, value)| (key.clone(), value.clone()));
    let field = Field::new(name, plain_type(field.data_type()), field.is_nullable());
    field.with_metadata(metadata.collect::<std::collections::HashMap<_, _>>())
}

fn plain_type(data_type: &DataType) -> DataType {
    let item = |field: &FieldRef| Arc::new(renamed(field, "item"));
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::LargeUtf8,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DataType::LargeBinary,
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::List(field) => DataType::List(item(field)),
        DataType::LargeList(field) => DataType::LargeList(item(field)),
        DataType::FixedSizeList(field, n) => DataType::FixedSizeList(item(field), *n),
        DataType::Struct(fields) => DataType::Struct(plain_fields(fields)),
        DataType::Map(entries, is_sorted) => DataType::Map(plain_entries(entries), *is_sorted),
        other => other.clone(),
    }
}

fn plain_fields(fields: &Fields) -> Fields {
    fields.iter().map(|field| plain_field(field)).collect()
}

fn plain_entries(entries: &FieldRef) -> FieldRef {
    let DataType::Struct(fields) = entries.data_type() else { return Arc::clone(entries) };
    let [key, value] = fields.as_ref() else { return Arc::clone(entries) };
    let fields = vec![renamed(key, "keys"), renamed(value, "values")];
    Arc::new(Field::new("entries", DataType::Struct(fields.into()), entries.is_nullable()))
}

/// All columns of a schema, each as [`plain_field`] says.
pub(super) fn plain_schema(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(plain_fields(schema.fields())))
}

/// The columns that the setting `columns` names; `a.b` is a field of the struct `a`.
#[derive(Debug, Clone, Default)]
pub(super) struct Selected {
    paths: Option<Vec<String>>,
}

impl Selected {
    /// Takes the setting.
    ///
    /// # Errors
    /// A list without columns, or with one twice.
    pub(super) fn new(columns: Option<Vec<String>>) -> Result<Self, SettingsError> {
        let refuse = |message: String, hint: &str| SettingsError {
            at: vec!["columns".to_owned()],
            message,
            hint: Some(hint.to_owned()),
        };
        if let Some(paths) = &columns {
            if paths.is_empty() {
                let message = "`columns` names no column".to_owned();
                return Err(refuse(message, "leave it out to read all of them"));
            }
            let mut seen = std::collections::HashSet::new();
            if let Some(twice) = paths.iter().find(|path| !seen.insert(path.as_str())) {
                return Err(refuse(format!("`columns` names `{twice}` twice"), "remove one"));
            }
        }
        Ok(Self { paths: columns })
    }

    /// Whether a column, or a field within structs, is read: `path` is the column's name and the names
    /// on the way, of which each may hold dots.
    pub(super) fn takes(&self, path: &[String]) -> bool {
        let mut whole = String::new();
        let mut ways = path.iter().map(|name| {
            whole = below(&whole, name);
            self.names(|named| named == whole)
        });
        ways.any(|is_named| is_named)
    }

    /// Whether something within the column is read.
    fn takes_within(&self, path: &[String]) -> bool {
        let whole = path.join(".");
        self.names(|named| named.strip_prefix(&whole).is_some_and(|rest| rest.starts_with('.')))
    }

    /// Whether a path is such a one, or all columns are read.
    fn names(&self, is_one: impl Fn(&str) -> bool) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.iter().any(|named| is_one(named)))
    }

    /// The fields that are read, structs cut down to those of theirs that are.
    pub(super) fn fields(&self, fields: &Fields) -> Fields {
        self.fields_within(fields, &[])
    }

    /// As [`Selected::fields`], with the index of each column.
    pub(super) fn indexed(&self, fields: &Fields) -> Vec<(usize, FieldRef)> {
        let alone = fields.iter().enumerate().filter_map(|(i, field)| {
            let cut = self.fields(&Fields::from(vec![Arc::clone(field)]));
            cut.iter().next().map(|field| (i, Arc::clone(field)))
        });
        alone.collect()
    }

    fn fields_within(&self, fields: &Fields, above: &[String]) -> Fields {
        let chosen = fields.iter().filter_map(|field| {
            let path = [above, std::slice::from_ref(field.name())].concat();
            if self.takes(&path) {
                return Some(Arc::clone(field));
            }
            match field.data_type() {
                DataType::Struct(inner) if self.takes_within(&path) => {
                    let inner = self.fields_within(inner, &path);
                    let data_type = DataType::Struct(inner.clone());
                    let field = field.as_ref().clone().with_data_type(data_type);
                    (!inner.is_empty()).then(|| Arc::new(field))
                }
                _ => None,
            }
        });
        chosen.collect()
    }

    /// The column that is named but not there, with the nearest one that is.
    pub(super) fn missing(&self, fields: &Fields) -> Option<(String, Option<String>)> {
        let mut known = Vec::new();
        paths_of(fields, "", &mut known);
        let paths = self.paths.iter().flatten();
        let missing = paths.into_iter().find(|path| !known.contains(path))?;
        let likeness = |name: &&String| (strsim::jaro_winkler(name, missing) * 1e6).to_bits();
        Some((missing.clone(), known.iter().max_by_key(likeness).cloned()))
    }
}

fn below(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn paths_of(fields: &Fields, above: &str, out: &mut Vec<String>) {
    for field in fields {
        let path = below(above, field.name());
        if let DataType::Struct(inner) = field.data_type() {
            paths_of(inner, &path, out);
        }
        out.push(path);
    }
}

/// The columns of `array` that `fields` names, which are some of its own.
pub(super) fn pick(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let (DataType::Struct(have), DataType::Struct(want)) = (array.data_type(), wanted) else {
        return Ok(Arc::clone(array));
    };
    if have == want {
        return Ok(Arc::clone(array));
    }
    let whole = array.as_struct();
    let mut columns = Vec::with_capacity(want.len());
    for field in want {
        let column = whole.column_by_name(field.name());
        let column = column.ok_or_else(|| ArrowError::SchemaError(field.name().clone()))?;
        columns.push(pick(column, field.data_type())?);
    }
    let fields = want.clone();
    Ok(Arc::new(StructArray::try_new(fields, columns, whole.nulls().cloned())?))
}

/// For each column of `first` the index of the one in `other` that has its name.
///
/// # Errors
/// The first difference found between the columns of an input and those of the first input.
pub(super) fn order_of(other: &Schema, first: &Schema) -> Result<Vec<usize>, BadRow> {
    let refuse = |name: &str, message: String| {
        let hint = "give every input of the source the columns of the first, or name in `columns` \
                    those that all have";
        Err(BadRow::new(SCHEMA_MISMATCH, message).field(name).hint(hint))
    };
    for field in other.fields() {
        if first.index_of(field.name()).is_err() {
            return refuse(field.name(), "the column is not in the first input".to_owned());
        }
    }
    let in_order = other.fields().len() == first.fields().len()
        && other.fields().iter().zip(first.fields()).all(|(a, b)| a.name() == b.name());
    let mut order = Vec::with_capacity(first.fields().len());
    for (i, want) in first.fields().iter().enumerate() {
        // By place where names are in order: then even one that occurs twice is meant once.
        let found = if in_order { Some(i) } else { other.index_of(want.name()).ok() };
        let field = found.and_then(|found| Some((found, other.fields().get(found)?)));
        let Some((index, have)) = field else {
            return refuse(want.name(), "the column is missing, unlike in the first input".into());
        };
        if have.data_type() != want.data_type() {
            let (have, want_type) = (have.data_type(), want.data_type());
            let message = format!("the column is {have}, but {want_type} in the first input");
            return refuse(want.name(), message);
        }
        if have.is_nullable() && !want.is_nullable() {
            let message = "the column may lack values here, but not in the first input".to_owned();
            return refuse(want.name(), message);
        }
        order.push(index);
    }
    Ok(order)
}

/// Rows that were read, before they are cut into batches.
#[derive(Debug)]
pub(super) struct Rows {
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    /// Bytes of each row's values.
    sizes: Vec<u64>,
    /// Whether columns hold on to memory beside their own.
    shares_buffers: bool,
}

impl Rows {
    /// Rows whose columns are at `order` in `read`, and shall be those of `schema`.
    pub(super) fn new(
        read: &RecordBatch,
        order: &[usize],
        schema: &SchemaRef,
        shares_buffers: bool,
    ) -> Self {
        let columns = order.iter().filter_map(|i| read.columns().get(*i).cloned());
        let columns: Vec<_> = columns.collect();
        let mut sizes = vec![0; read.num_rows()];
        for column in &columns {
            for (size, more) in sizes.iter_mut().zip(row_sizes(column)) {
                *size += more;
            }
        }
        Self { schema: Arc::clone(schema), columns, sizes, shares_buffers }
    }

    /// Bytes of each row's values.
    pub(super) fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The rows `start..start + n`, which hold on to nothing of the others.
    ///
    /// # Errors
    /// Arrow's, where an array is not what its type says.
    pub(super) fn batch(&self, start: usize, n: usize) -> Result<RecordBatch, ArrowError> {
        let is_own = n == self.sizes.len() && !self.shares_buffers;
        let mut columns = Vec::with_capacity(self.columns.len());
        for (column, field) in self.columns.iter().zip(self.schema.fields()) {
            let cut = column.slice(start, n);
            // Copied before it is cast: a cast would convert the items of all rows.
            let cut = if is_own { cut } else { copied(&cut)? };
            let cut = arrow_cast::cast(&cut, field.data_type())?;
            columns.push(cut);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(n));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

/// A copy that shares no buffer: a slice would keep all rows of its array in memory.
fn copied(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}

/// Bytes of the values of each row of an array.
fn row_sizes(array: &ArrayRef) -> Vec<u64> {
    let n = array.len();
    match array.data_type() {
        DataType::Utf8View => view_sizes(array.as_any().downcast_ref::<StringViewArray>()),
        DataType::BinaryView => view_sizes(array.as_any().downcast_ref::<BinaryViewArray>()),
        DataType::Utf8 => lengths(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => lengths(array.as_string::<i64>().value_offsets()),
        DataType::Binary => lengths(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => lengths(array.as_binary::<i64>().value_offsets()),
        DataType::Struct(_) => {
            // Its fields become columns of their own, so that their names are not values.
            let mut sizes = vec![0; n];
            for column in array.as_struct().columns() {
                for (size, more) in sizes.iter_mut().zip(row_sizes(column)) {
                    *size += more;
                }
            }
            sizes
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(..)
        | DataType::Map(..)
        | DataType::Dictionary(..) => {
            (0..n).map(|row| bytes_within(array, row..row + 1, 0)).collect()
        }
        other => vec![fixed_bytes(other); n],
    }
}

/// What a text has around it where it becomes part of JSON.
const QUOTES: u64 = 2;

/// Bytes of the values of some rows, or items of lists. No memory is taken for each: of a list's items
/// there may be many more than bytes. What becomes JSON counts with the least that its form takes, as
/// the name of a field may be longer than all values. `quotes` is what each text has around it.
fn bytes_within(array: &ArrayRef, items: Range<usize>, quotes: u64) -> u64 {
    let n = items.len() as u64;
    let texts = n.saturating_mul(quotes);
    match array.data_type() {
        DataType::Utf8View => texts + view_bytes::<StringViewType>(array, items),
        DataType::BinaryView => texts + view_bytes::<BinaryViewType>(array, items),
        DataType::Utf8 => texts + spanned(array.as_string::<i32>().value_offsets(), &items),
        DataType::LargeUtf8 => texts + spanned(array.as_string::<i64>().value_offsets(), &items),
        DataType::Binary => texts + spanned(array.as_binary::<i32>().value_offsets(), &items),
        DataType::LargeBinary => texts + spanned(array.as_binary::<i64>().value_offsets(), &items),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            bytes_within(list.values(), span(list.value_offsets(), &items), QUOTES)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            bytes_within(list.values(), span(list.value_offsets(), &items), QUOTES)
        }
        DataType::FixedSizeList(_, len) => {
            let len = usize::try_from(*len).unwrap_or(0);
            let inner = items.start.saturating_mul(len)..items.end.saturating_mul(len);
            bytes_within(array.as_fixed_size_list().values(), inner, QUOTES).max(n)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries = span(map.value_offsets(), &items);
            let keys = bytes_within(map.keys(), entries.clone(), QUOTES);
            keys.saturating_add(bytes_within(map.values(), entries, QUOTES))
        }
        DataType::Struct(fields) => {
            let names: u64 = fields.iter().map(|field| field.name().len() as u64 + 3).sum();
            let columns = array.as_struct().columns().iter();
            let values = columns.map(|column| bytes_within(column, items.clone(), QUOTES));
            values.fold(n.saturating_mul(2 + names), u64::saturating_add)
        }
        DataType::Dictionary(..) => dictionary_bytes(array, items, quotes),
        other => n.saturating_mul(fixed_bytes(other).max(1)),
    }
}

/// Bytes of a value of a type all of whose values have as many.
fn fixed_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(n) => u64::try_from(*n).unwrap_or(0),
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}

fn view_sizes<T: ByteViewType>(array: Option<&GenericByteViewArray<T>>) -> Vec<u64> {
    // The length is the low half of a view's first word.
    array.map_or_else(Vec::new, |array| array.lengths().map(u64::from).collect())
}

fn view_bytes<T: ByteViewType>(array: &ArrayRef, items: Range<usize>) -> u64 {
    let views = array.as_byte_view::<T>().views().get(items).unwrap_or_default();
    views.iter().map(|view| u64::from(ByteView::from(*view).length)).sum()
}

fn lengths<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<u64> {
    let ends = offsets.windows(2).map(|ends| match ends {
        [from, to] => to.as_usize().saturating_sub(from.as_usize()) as u64,
        _ => 0,
    });
    ends.collect()
}

/// Where what some items hold begins and ends.
fn span<O: OffsetSizeTrait>(offsets: &[O], items: &Range<usize>) -> Range<usize> {
    let at = |i: usize| offsets.get(i).map_or(0, |offset| offset.as_usize());
    at(items.start)..at(items.end)
}

fn spanned<O: OffsetSizeTrait>(offsets: &[O], items: &Range<usize>) -> u64 {
    span(offsets, items).len() as u64
}

fn dictionary_bytes(array: &ArrayRef, items: Range<usize>, quotes: u64) -> u64 {
    fn of<K: ArrowDictionaryKeyType>(
        array: &DictionaryArray<K>,
        items: Range<usize>,
        quotes: u64,
    ) -> u64 {
        let values = array.values();
        let sizes = items
            .map(|i| array.key(i).map_or(quotes, |key| bytes_within(values, key..key + 1, quotes)));
        sizes.fold(0, u64::saturating_add)
    }
    downcast_dictionary_array!(
        array => of(array, items, quotes),
        _ => 0
    )
}

/// Of the ascending places where a group begins, those that are the first at or behind a multiple.
pub(super) fn at_multiples(starts: &[u64], multiple: u64) -> Vec<u64> {
    let mut cuts = Vec::new();
    let mut next = multiple;
    for &start in starts {
        if start >= next {
            cuts.push(start);
            next = (start / multiple).saturating_add(1).saturating_mul(multiple);
        }
    }
    cuts
}
