//! What is known of a hook's answers: the feature cache in front of it.
//!
//! Leaves out: how rows are kept (`cache`), and which rows are bad (`answer`): that is judged anew, also
//! of what is known.
//!
//! Invariants:
//! 1. What is kept is an answer that fits what was declared, exactly. Rows that lack a value which must
//!    be there are not kept, and neither are guilty ones.
//! 2. Where rows are independent each has a key, and the hook is asked about those that are not known,
//!    about equal ones once. Else the batch is what has keys, and is known as a whole or not at all.
//!    What a hook answers to parts of a batch, sent to find guilty rows, is never kept.
//! 3. A batch takes no more than `answer_bytes` with what is known of it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{Field, Schema};
use arrow_select::filter::filter;
use arrow_select::interleave::interleave;
use arrow_select::take::take_record_batch;

use super::HookError;
use super::answer::{self, Declared};
use super::call::{Call, Called};
use crate::batch::{BadRow, row_bytes};
use crate::cache::{CacheError, Lookup, RowKey, Section, batch_keys, row_keys};
use crate::transforms::{Asked, TransformError};

/// Where a hook's answers are kept, and under which keys.
#[derive(Debug, Clone)]
pub(super) struct Keeping {
    /// The folder of the feature cache.
    pub(super) dir: Option<PathBuf>,
    /// The column that is a row's key instead of what the hook is asked about.
    pub(super) key: Option<String>,
    /// Whether what the hook answers to a row depends on that row alone.
    pub(super) rows_independent: bool,
}

/// What came of a batch, with answers as they were declared.
#[derive(Debug)]
pub(super) struct Answered {
    /// The columns of the rows that are not guilty, where there are any.
    pub(super) columns: Option<Vec<ArrayRef>>,
    /// The guilty rows, in order.
    pub(super) guilty: Vec<(usize, BadRow)>,
}

/// Rows that a hook was to be asked about, and how many of them were known.
#[derive(Debug, Default)]
pub(super) struct Counts {
    rows: AtomicU64,
    known: AtomicU64,
}

impl Counts {
    pub(super) fn asked(&self) -> Asked {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Asked { rows: get(&self.rows), known: get(&self.known) }
    }

    pub(super) fn reset(&self) {
        self.rows.store(0, Ordering::Relaxed);
        self.known.store(0, Ordering::Relaxed);
    }

    fn add(&self, rows: usize, known: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.known.fetch_add(known as u64, Ordering::Relaxed);
    }
}

/// A hook with a memory.
pub(super) struct Known<'a> {
    pub(super) section: &'a Section,
    pub(super) keeping: &'a Keeping,
    pub(super) declared: Declared<'a>,
    pub(super) counts: &'a Counts,
}

impl Known<'_> {
    /// Answers to `question`, which is about `rows`, from what is known and by asking.
    pub(super) fn answer(
        &self,
        call: &Call<'_>,
        question: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<Answered, TransformError> {
        let keys = self.keys(question, rows)?;
        if self.keeping.rows_independent {
            self.by_row(call, question, &keys)
        } else {
            self.by_batch(call, question, &keys)
        }
    }

    /// The key of each row. One without an id is told by what the hook is asked about.
    fn keys(&self, question: &RecordBatch, rows: &RecordBatch) -> Result<Vec<RowKey>, CacheError> {
        let id = self.keeping.key.as_ref().and_then(|name| rows.schema().index_of(name).ok());
        let Some(Ok(id)) = id.map(|at| rows.project(&[at])) else { return row_keys(question) };
        let mut keys = row_keys(&id)?;
        if let Some(nulls) = id.column(0).logical_nulls().filter(|nulls| nulls.null_count() > 0) {
            let others = row_keys(question)?;
            for (row, (key, other)) in keys.iter_mut().zip(others).enumerate() {
                if nulls.is_null(row) {
                    *key = other;
                }
            }
        }
        Ok(keys)
    }

    fn by_row(
        &self,
        call: &Call<'_>,
        question: &RecordBatch,
        keys: &[RowKey],
    ) -> Result<Answered, TransformError> {
        let Lookup { rows, hits, misses } = self.get(keys)?;
        let Unknown { asked, of_misses } = Unknown::of(keys, &misses);
        self.counts.add(keys.len(), keys.len() - asked.len());
        let known = if hits.is_empty() {
            None
        } else {
            Some(answer::fit(&rows, hits.len(), self.declared)?)
        };
        if asked.is_empty() {
            return Ok(Answered { columns: known, guilty: Vec::new() });
        }
        let sent = if asked.len() == keys.len() {
            question.clone()
        } else {
            let places: UInt64Array = asked.iter().map(|row| *row as u64).collect();
            take_record_batch(question, &places)?
        };
        let Called { answer, guilty, .. } = call.answer(&sent, &|_| Ok(None))?;
        let is_guilty = |sent: &usize| guilty.binary_search_by_key(sent, |(at, _)| *at).ok();
        // Equal rows are guilty together.
        let guilty_rows: Vec<(usize, BadRow)> = (misses.iter().zip(&of_misses))
            .filter_map(|(row, sent)| Some((*row, guilty.get(is_guilty(sent)?)?.1.clone())))
            .collect();
        let Some(answer) = answer else {
            return Ok(Answered { columns: known, guilty: guilty_rows });
        };
        let answered: Vec<usize> =
            (0..asked.len()).filter(|sent| is_guilty(sent).is_none()).collect();
        let new = answer::fit(&answer, answered.len(), self.declared)?;
        let new_keys: Vec<RowKey> =
            (answered.iter()).filter_map(|sent| keys.get(*asked.get(*sent)?).copied()).collect();
        self.keep(&new_keys, &new, true)?;
        if known.is_none() && asked.len() == misses.len() {
            return Ok(Answered { columns: Some(new), guilty: guilty_rows });
        }
        // Where the answer to each row stands: among the known ones or the new ones.
        let parts: Vec<&[ArrayRef]> =
            known.iter().map(Vec::as_slice).chain([new.as_slice()]).collect();
        let last = parts.len() - 1;
        let mut places: Vec<(usize, usize, usize)> =
            hits.iter().enumerate().map(|(at, row)| (*row, 0, at)).collect();
        places.extend(
            misses
                .iter()
                .zip(&of_misses)
                .filter_map(|(row, sent)| Some((*row, last, answered.binary_search(sent).ok()?))),
        );
        places.sort_unstable();
        let places: Vec<(usize, usize)> = places.iter().map(|it| (it.1, it.2)).collect();
        self.check_size(keys.len(), &parts, &places)?;
        let columns = (0..new.len()).map(|column| {
            let parts = parts.iter().filter_map(|part| part.get(column).map(AsRef::as_ref));
            interleave(&parts.collect::<Vec<&dyn Array>>(), &places)
        });
        let columns = columns.collect::<Result<_, _>>()?;
        Ok(Answered { columns: Some(columns), guilty: guilty_rows })
    }

    fn by_batch(
        &self,
        call: &Call<'_>,
        question: &RecordBatch,
        keys: &[RowKey],
    ) -> Result<Answered, TransformError> {
        let keys_of = |left: &[usize]| {
            let left: Vec<RowKey> = left.iter().filter_map(|row| keys.get(*row).copied()).collect();
            batch_keys(&left)
        };
        let known = |left: &[usize]| -> Result<Option<RecordBatch>, TransformError> {
            let found = self.get(&keys_of(left))?;
            Ok(found.misses.is_empty().then_some(found.rows))
        };
        let Called { answer, guilty, left, is_known } = call.answer(question, &known)?;
        self.counts.add(keys.len(), if is_known { left.len() } else { 0 });
        let Some(answer) = answer else { return Ok(Answered { columns: None, guilty }) };
        let columns = answer::fit(&answer, left.len(), self.declared)?;
        if !is_known {
            self.keep(&keys_of(&left), &columns, false)?;
        }
        Ok(Answered { columns: Some(columns), guilty })
    }

    /// What is known of rows, unless that is too much.
    fn get(&self, keys: &[RowKey]) -> Result<Lookup, TransformError> {
        match self.section.get_within(keys, self.declared.answer_bytes) {
            Err(CacheError::TooLarge { .. }) => Err(self.too_large(keys.len()).into()),
            found => Ok(found?),
        }
    }

    /// Whether what is put together of `parts` is no more than one answer may be.
    fn check_size(
        &self,
        n_rows: usize,
        parts: &[&[ArrayRef]],
        places: &[(usize, usize)],
    ) -> Result<(), TransformError> {
        let sizes = parts.iter().map(|part| Ok(row_bytes(&stored(self.declared.fields, part)?)));
        let sizes = sizes.collect::<Result<Vec<_>, TransformError>>()?;
        let size = |(part, row): &(usize, usize)| sizes.get(*part)?.get(*row).copied();
        let bytes = places.iter().filter_map(size).fold(0, u64::saturating_add);
        if bytes > self.declared.answer_bytes { Err(self.too_large(n_rows).into()) } else { Ok(()) }
    }

    fn too_large(&self, n_rows: usize) -> HookError {
        let most = self.declared.answer_bytes;
        let message = format!(
            "what is known of {n_rows} rows and what it answered to the others takes more than the \
             {most} bytes that `answer_bytes` allows"
        );
        HookError::misfit(message, "raise `answer_bytes`, or lower `batch_rows`")
    }

    /// Keeps answers, but for rows that lack a value; then nothing at all, unless rows are kept `alone`.
    fn keep(
        &self,
        keys: &[RowKey],
        columns: &[ArrayRef],
        alone: bool,
    ) -> Result<(), TransformError> {
        let mut whole: Option<NullBuffer> = None;
        for (field, column) in self.declared.fields.iter().zip(columns) {
            if !field.is_nullable() {
                whole = NullBuffer::union(whole.as_ref(), column.nulls());
            }
        }
        let rows = stored(self.declared.fields, columns)?;
        let Some(whole) = whole.filter(|whole| whole.null_count() > 0) else {
            return Ok(self.section.put(keys, &rows)?);
        };
        if !alone {
            return Ok(());
        }
        let is_kept = BooleanArray::new(whole.inner().clone(), None);
        let columns = columns.iter().map(|column| filter(column, &is_kept));
        let rows = stored(self.declared.fields, &columns.collect::<Result<Vec<_>, _>>()?)?;
        let keys = keys.iter().zip(whole.iter()).filter(|(_, is_kept)| *is_kept);
        let keys: Vec<RowKey> = keys.map(|(key, _)| *key).collect();
        Ok(self.section.put(&keys, &rows)?)
    }
}

/// The rows of a batch that are not known, equal ones once.
struct Unknown {
    /// The first row of each key.
    asked: Vec<usize>,
    /// For each row that is not known, which of these it equals.
    of_misses: Vec<usize>,
}

impl Unknown {
    fn of(keys: &[RowKey], misses: &[usize]) -> Self {
        let mut first = HashMap::with_capacity(misses.len());
        let mut asked = Vec::with_capacity(misses.len());
        let of_misses = misses.iter().map(|row| {
            *first.entry(keys.get(*row)).or_insert_with(|| {
                asked.push(*row);
                asked.len() - 1
            })
        });
        let of_misses = of_misses.collect();
        Self { asked, of_misses }
    }
}

/// The columns of a section: whether rows may lack a value is the definition's matter, and what texts
/// mean too.
pub(super) fn stored_schema(declared: &[Field]) -> Schema {
    let field = |field: &Field| Field::new(field.name(), field.data_type().clone(), true);
    Schema::new(declared.iter().map(field).collect::<Vec<_>>())
}

fn stored(declared: &[Field], columns: &[ArrayRef]) -> Result<RecordBatch, TransformError> {
    Ok(RecordBatch::try_new(std::sync::Arc::new(stored_schema(declared)), columns.to_vec())?)
}
