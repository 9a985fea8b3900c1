//! Checks an answer before it is believed.
//!
//! Invariants:
//! 1. What passes has as many rows as were asked about, and the columns that were declared, by name and
//!    type; strings and lists may have come with offsets of either size.
//! 2. Brought to the declared types, an answer takes no more memory than an answer may have.
//! 3. A missing value where there must be one, and a NaN where there may be none, are a row's fault;
//!    anything else is the hook's.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::ArrowNativeType;
use arrow_schema::{DataType, Field};

use super::HookError;
use super::frames::ANSWER_BYTES;
use super::settings::Nan;
use super::words::rows_text;
use crate::batch::{BadRow, memory_bytes};
use crate::transforms::TransformError;

/// Code of a row without a value where there must be one.
const HOOK_NULL: &str = "hook_null";
/// Code of a row with a NaN where there may be none.
const HOOK_NAN: &str = "hook_nan";

/// What to do about an answer unlike the one that columns were learned from.
const ALIKE: &str = "let all answers have the same columns, types and shapes, and declare in `output` what the \
                     first does not tell";

/// What was declared of answers, or learned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared<'a> {
    pub(super) fields: &'a [Field],
    /// The input that they were learned from, where the definition leaves them out.
    pub(super) learned_from: Option<&'a str>,
    pub(super) nan: Nan,
    /// Most bytes of one.
    pub(super) answer_bytes: u64,
}

/// The columns of an answer in the order in which they were declared.
pub(super) fn fit(
    answer: &RecordBatch,
    n_rows: usize,
    Declared { fields, learned_from, answer_bytes, .. }: Declared<'_>,
) -> Result<Vec<ArrayRef>, TransformError> {
    if answer.num_rows() != n_rows {
        let (came, hint) =
            (answer.num_rows(), "a hook answers with one row for each that it is sent");
        let message = format!("it was sent {} and answered with {came}", rows_text(n_rows));
        return Err(HookError::misfit(message, hint).into());
    }
    let schema = answer.schema();
    if let Some(other) =
        schema.fields().iter().find(|f| fields.iter().all(|d| d.name() != f.name()))
    {
        let (known, hint) = match learned_from {
            Some(path) => (format!("was not learned from `{path}`"), ALIKE),
            None => ("is not declared".to_owned(), "add it to `output`, or leave it out"),
        };
        let message = format!("it answered with a column `{}` that {known}", other.name());
        return Err(HookError::misfit(message, hint).into());
    }
    let mut columns = Vec::with_capacity(fields.len());
    let mut taken_bytes = memory_bytes(answer) as u64;
    for field in fields {
        let Some(column) = answer.column_by_name(field.name()) else {
            let (known, hint) = match learned_from {
                Some(path) => (format!(" that was learned from `{path}`"), ALIKE),
                None => (String::new(), "`output` says what it answers with"),
            };
            let message = format!("its answer lacks the column `{}`{known}", field.name());
            return Err(HookError::misfit(message, hint).into());
        };
        let came = column.data_type();
        if !is_same(field.data_type(), came) {
            let (name, wanted) = (field.name(), type_text(field.data_type()));
            let known = match learned_from {
                Some(path) => format!("column `{name}` was learned from `{path}` as {wanted}"),
                None => format!("`output.{name}` declares {wanted}"),
            };
            let message = format!("{known}, and it answered with {}", type_text(came));
            let hint = match learned_from {
                Some(_) => ALIKE,
                None => "make the declaration and the answer agree, in type and in shape",
            };
            return Err(HookError::misfit(message, hint).into());
        }
        if has_inner_nulls(column) {
            let message = format!("column `{}` has nulls within lists", field.name());
            return Err(
                HookError::misfit(message, "a row has a value or is null as a whole").into()
            );
        }
        let made_bytes = cast_bytes(column, field.data_type());
        taken_bytes = taken_bytes.saturating_add(made_bytes);
        if made_bytes > 0 && taken_bytes > answer_bytes {
            let message = format!(
                "as it was declared, its answer takes {taken_bytes} bytes, and may take {answer_bytes}"
            );
            return Err(HookError::misfit(message, ANSWER_BYTES).into());
        }
        columns.push(arrow_cast::cast(column, field.data_type())?);
    }
    Ok(columns)
}

/// The rows that are bad, in order, of columns that [`fit`] gave.
pub(super) fn judge(
    columns: &[ArrayRef],
    Declared { fields, nan, .. }: Declared<'_>,
) -> Vec<(usize, BadRow)> {
    let mut bad: Vec<(usize, BadRow)> = Vec::new();
    for (field, column) in fields.iter().zip(columns) {
        let rows = bad_rows(column, field, nan);
        bad.extend(rows.into_iter().map(|(row, bad)| (row, bad.field(field.name()))));
    }
    bad.sort_by_key(|(row, _)| *row);
    bad.dedup_by_key(|(row, _)| *row);
    bad
}

/// Whether values of the one type are those of the other: the sizes of offsets and the names of items
/// do not matter.
fn is_same(declared: &DataType, came: &DataType) -> bool {
    match (declared, came) {
        (DataType::LargeUtf8, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        | (
            DataType::LargeBinary,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView,
        ) => true,
        (DataType::FixedSizeList(item, n), DataType::FixedSizeList(other, m)) => {
            n == m && is_same(item.data_type(), other.data_type())
        }
        (DataType::LargeList(item), DataType::List(other) | DataType::LargeList(other)) => {
            is_same(item.data_type(), other.data_type())
        }
        (declared, came) => declared == came && !came.is_nested(),
    }
}

/// A type as people write it: `float32[28, 28]`, `float32[n, 3]`.
#[must_use]
pub fn type_text(of: &DataType) -> String {
    let mut shape: Vec<String> = Vec::new();
    let mut inner = of;
    loop {
        inner = match inner {
            DataType::FixedSizeList(item, n) => {
                shape.push(n.to_string());
                item.data_type()
            }
            DataType::List(item) | DataType::LargeList(item) => {
                shape.push("n".to_owned());
                item.data_type()
            }
            _ => break,
        };
    }
    let name = match inner {
        DataType::Boolean => "bool".to_owned(),
        DataType::LargeUtf8 => "utf8".to_owned(),
        DataType::LargeBinary => "binary".to_owned(),
        other => other.to_string().to_lowercase(),
    };
    if shape.is_empty() { name } else { format!("{name}[{}]", shape.join(", ")) }
}

/// Whether an item of a list that is there is null.
fn has_inner_nulls(column: &dyn Array) -> bool {
    // What a null holds may be anything, and is null as a rule.
    let holds_null = |row: usize| column.is_valid(row) && has_null_in(column, row);
    has_nulls_below(column) && (0..column.len()).any(holds_null)
}

fn items(column: &dyn Array) -> Option<&ArrayRef> {
    match column.data_type() {
        DataType::FixedSizeList(..) => Some(column.as_fixed_size_list().values()),
        DataType::List(_) => Some(column.as_list::<i32>().values()),
        DataType::LargeList(_) => Some(column.as_list::<i64>().values()),
        _ => None,
    }
}

fn has_nulls_below(column: &dyn Array) -> bool {
    items(column).is_some_and(|items| items.null_count() > 0 || has_nulls_below(items))
}

/// Whether an item of row `row` is null, or one of its items.
fn has_null_in(column: &dyn Array, row: usize) -> bool {
    let of_row = items(column).zip(items_of(column, row..row + 1));
    of_row.is_some_and(|(items, mut range)| {
        range.any(|item| items.is_null(item) || has_null_in(items, item))
    })
}

/// Where the items of these rows stand.
fn items_of(column: &dyn Array, rows: Range<usize>) -> Option<Range<usize>> {
    fn between<T: ArrowNativeType>(offsets: &[T], rows: &Range<usize>) -> Option<Range<usize>> {
        Some(offsets.get(rows.start)?.as_usize()..offsets.get(rows.end)?.as_usize())
    }
    match column.data_type() {
        DataType::FixedSizeList(_, n) => {
            let n = usize::try_from(*n).ok()?;
            Some(rows.start * n..rows.end * n)
        }
        DataType::List(_) => between(column.as_list::<i32>().offsets(), &rows),
        DataType::LargeList(_) => between(column.as_list::<i64>().offsets(), &rows),
        _ => None,
    }
}

fn bad_rows(column: &ArrayRef, field: &Field, nan: Nan) -> Vec<(usize, BadRow)> {
    let mut bad = Vec::new();
    if !field.is_nullable() && column.null_count() > 0 {
        let rows = (0..column.len()).filter(|row| column.is_null(*row));
        let hint = "declare it with `nullable = true`, or let the hook answer with a value";
        bad.extend(rows.map(|row| {
            (row, BadRow::new(HOOK_NULL, "the hook answered without a value").hint(hint))
        }));
    }
    if nan == Nan::Refuse && has_nan(column, 0..column.len()) {
        let rows = (0..column.len())
            .filter(|row| column.is_valid(*row) && has_nan(column, *row..*row + 1));
        bad.extend(rows.map(|row| (row, BadRow::new(HOOK_NAN, "the hook answered with NaN"))));
    }
    bad
}

/// Whether one of these values is a NaN, or holds one.
fn has_nan(array: &dyn Array, rows: Range<usize>) -> bool {
    match array.data_type() {
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>().values().get(rows);
            values.is_some_and(|values| values.iter().any(|v| v.is_nan()))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().values().get(rows);
            values.is_some_and(|values| values.iter().any(|v| v.is_nan()))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values().get(rows);
            values.is_some_and(|values| values.iter().any(|v| v.is_nan()))
        }
        _ => {
            let of_rows = items(array).zip(items_of(array, rows));
            of_rows.is_some_and(|(items, range)| has_nan(items, range))
        }
    }
}

/// Bytes of memory that it takes to bring `array` to the type `to`, which is the same but for
/// offsets: the values themselves are shared, unless they are views.
fn cast_bytes(array: &dyn Array, to: &DataType) -> u64 {
    let offsets = (array.len() as u64 + 1) * 8;
    let of_views = |lengths: u64| offsets.saturating_add(lengths);
    match (array.data_type(), to) {
        (from, to) if from == to => 0,
        (DataType::Utf8View, _) => of_views(array.as_string_view().lengths().map(u64::from).sum()),
        (DataType::BinaryView, _) => {
            of_views(array.as_binary_view().lengths().map(u64::from).sum())
        }
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, _)) => {
            cast_bytes(array.as_fixed_size_list().values(), item.data_type())
        }
        (DataType::List(_), DataType::LargeList(item)) => {
            let items = cast_bytes(array.as_list::<i32>().values(), item.data_type());
            offsets.saturating_add(items)
        }
        (DataType::LargeList(_), DataType::LargeList(item)) => {
            cast_bytes(array.as_list::<i64>().values(), item.data_type())
        }
        _ => offsets,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Float32Type;
    use arrow_array::{FixedSizeListArray, Float32Array, Int64Array, LargeListArray, ListArray};
    use arrow_array::{LargeStringArray, StringArray, StringViewArray};

    use super::*;

    /// Columns, and the rows that are bad.
    type Checked = (Vec<ArrayRef>, Vec<(usize, BadRow)>);

    const PLENTY: u64 = 1 << 20;

    fn check_as(
        answer: &RecordBatch,
        n_rows: usize,
        field: Field,
        nan: Nan,
        answer_bytes: u64,
    ) -> Result<Checked, TransformError> {
        let fields = [field];
        let declared = Declared { fields: &fields, learned_from: None, nan, answer_bytes };
        let columns = fit(answer, n_rows, declared)?;
        let bad = judge(&columns, declared);
        Ok((columns, bad))
    }

    fn of(name: &str, column: impl Array + 'static) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable([(name, Arc::new(column) as ArrayRef, true)])
            .unwrap()
    }

    fn pairs(values: Vec<Option<Vec<Option<f32>>>>) -> FixedSizeListArray {
        FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(values, 2)
    }

    fn list(item: DataType, size: Option<i32>) -> DataType {
        let item = Arc::new(Field::new_list_field(item, false));
        match size {
            Some(size) => DataType::FixedSizeList(item, size),
            None => DataType::LargeList(item),
        }
    }

    #[test]
    fn what_was_not_declared_is_refused_with_both_sides() {
        let float = DataType::Float32;
        let two = || Int64Array::from(vec![1, 2]);
        for (name, kind, answer, want) in [
            (
                "rows",
                DataType::Int64,
                of("x", Int64Array::from(vec![1])),
                "it was sent 2 rows and answered with 1",
            ),
            (
                "type",
                float.clone(),
                of("x", two()),
                "`output.x` declares float32, and it answered with int64",
            ),
            (
                "shape",
                list(float.clone(), Some(3)),
                of("x", pairs(vec![Some(vec![Some(1.0); 2]); 2])),
                "`output.x` declares float32[3], and it answered with float32[2]",
            ),
            (
                "name",
                DataType::Int64,
                of("y", two()),
                "it answered with a column `y` that is not declared",
            ),
            (
                "missing",
                DataType::Int64,
                RecordBatch::try_new_with_options(
                    Arc::new(arrow_schema::Schema::empty()),
                    vec![],
                    &arrow_array::RecordBatchOptions::new().with_row_count(Some(2)),
                )
                .unwrap(),
                "its answer lacks the column `x`",
            ),
            (
                "inner null",
                list(float.clone(), Some(2)),
                of("x", pairs(vec![Some(vec![None, Some(1.0)]), Some(vec![Some(1.0); 2])])),
                "column `x` has nulls within lists",
            ),
            (
                "inner null beside a null",
                list(float.clone(), Some(2)),
                of("x", pairs(vec![None, Some(vec![None, Some(1.0)])])),
                "column `x` has nulls within lists",
            ),
        ] {
            let field = Field::new("x", kind, true);
            let error = check_as(&answer, 2, field, Nan::Allow, PLENTY).unwrap_err();
            assert_eq!(error.to_string(), want, "{name}");
        }
    }

    #[test]
    fn lists_and_texts_may_have_offsets_of_either_size() {
        let lists = vec![Some(vec![Some(1.0)]), Some(vec![])];
        let want = LargeListArray::from_iter_primitive::<Float32Type, _, _>(lists.clone());
        let small = ListArray::from_iter_primitive::<Float32Type, _, _>(lists);
        let kind = list(DataType::Float32, None);
        for answer in [of("x", small), of("x", want.clone())] {
            let field = Field::new("x", kind.clone(), false);
            let (columns, bad) = check_as(&answer, 2, field, Nan::Refuse, PLENTY).unwrap();
            assert!(bad.is_empty());
            assert_eq!(columns[0].data_type(), &kind);
            assert_eq!(columns[0].as_list::<i64>().values(), want.values());
        }
        let texts = of("x", StringArray::from(vec!["a", "b"]));
        let field = Field::new("x", DataType::LargeUtf8, false);
        let (columns, _) = check_as(&texts, 2, field, Nan::Allow, PLENTY).unwrap();
        assert_eq!(*columns[0], LargeStringArray::from(vec!["a", "b"]));
    }

    #[test]
    fn what_takes_more_memory_as_it_was_declared_is_refused_before_it_is_made() {
        let text = "x".repeat(1 << 10);
        let views = StringViewArray::from(vec![text.as_str(); 4]);
        let again = views.views().iter().copied().cycle().take(1 << 20).collect();
        let views = StringViewArray::new(again, views.data_buffers().to_vec(), None);
        let texts = StringArray::from(vec![text.as_str(); 4]);
        let short = StringArray::from(vec![""; 1000]);
        for (name, answer, most, want) in [
            ("views of the same text", of("x", views), 100 << 20, "1098924176 bytes"),
            ("texts", of("x", texts), 8 << 10, ""),
            ("offsets", of("x", short), 8 << 10, "1"),
        ] {
            let field = Field::new("x", DataType::LargeUtf8, false);
            match check_as(&answer, answer.num_rows(), field, Nan::Allow, most) {
                Ok(_) => assert_eq!(want, "", "{name}"),
                Err(error) => {
                    let text = format!("as it was declared, its answer takes {want}");
                    assert!(error.to_string().starts_with(&text), "{name}: {error}");
                }
            }
        }
    }

    #[test]
    fn missing_values_and_nans_are_faults_of_rows() {
        let nan = Some(f32::NAN);
        let plain = of("x", Float32Array::from(vec![Some(1.0), None, nan]));
        let nested = of("x", pairs(vec![Some(vec![Some(1.0), nan]), None, Some(vec![nan, nan])]));
        let pair = || list(DataType::Float32, Some(2));
        for (name, answer, kind, nullable, policy, want) in [
            (
                "refused",
                &plain,
                DataType::Float32,
                false,
                Nan::Refuse,
                vec![(1, HOOK_NULL), (2, HOOK_NAN)],
            ),
            ("allowed", &plain, DataType::Float32, true, Nan::Allow, vec![]),
            ("nested", &nested, pair(), true, Nan::Refuse, vec![(0, HOOK_NAN), (2, HOOK_NAN)]),
        ] {
            let field = Field::new("x", kind, nullable);
            let (_, bad) = check_as(answer, 3, field, policy, PLENTY).unwrap();
            let found: Vec<_> = bad.iter().map(|(row, bad)| (*row, bad.code)).collect();
            assert_eq!(found, want, "{name}");
        }
    }
}
