//! Columns that lines of JSON become, while they are built.
//!
//! Leaves out: which columns there are (`jsonl_types`), and what a line says (`jsonl_read`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::LargeStringBuilder;
use arrow_array::{ArrayRef, LargeListArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field};

use super::jsonl_types::{Fields, JsonType};
use super::value_type::{ColumnBuilder, ValueType};

/// A column that is being built.
#[derive(Debug)]
pub(super) enum Column {
    Value(ValueType, ColumnBuilder),
    Json(LargeStringBuilder),
    List(Box<ListColumn>),
    Struct(Box<StructColumn>),
}

/// Lists, one after another.
#[derive(Debug)]
pub(super) struct ListColumn {
    pub(super) inner: Column,
    ends: Vec<i64>,
    is_valid: Vec<bool>,
}

/// Objects, one column per key.
#[derive(Debug)]
pub(super) struct StructColumn {
    pub(super) fields: Vec<Key>,
    pub(super) index: HashMap<String, usize>,
    is_valid: Vec<bool>,
    /// Objects that were begun: what tells a key that comes again from one of the object before.
    pub(super) n_begun: u64,
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) column: Column,
    /// The object that it was last seen in.
    pub(super) seen_in: u64,
}

impl Column {
    pub(super) fn new(kind: &JsonType, n_rows: usize) -> Self {
        match kind {
            JsonType::Value(kind) => Self::Value(*kind, ColumnBuilder::new(*kind, n_rows)),
            JsonType::Json => Self::Json(LargeStringBuilder::with_capacity(n_rows, 0)),
            JsonType::List(inner) => Self::List(Box::new(ListColumn {
                inner: Column::new(inner, 0),
                ends: Vec::with_capacity(n_rows),
                is_valid: Vec::with_capacity(n_rows),
            })),
            JsonType::Struct(fields) => Self::Struct(Box::new(StructColumn::new(fields, n_rows))),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Value(_, builder) => builder.len(),
            Self::Json(builder) => arrow_array::builder::ArrayBuilder::len(builder),
            Self::List(list) => list.ends.len(),
            Self::Struct(inner) => inner.is_valid.len(),
        }
    }

    pub(super) fn append_null(&mut self) {
        match self {
            Self::Value(_, builder) => builder.append_null(),
            Self::Json(builder) => builder.append_null(),
            Self::List(list) => list.end(false),
            Self::Struct(inner) => inner.end(false),
        }
    }

    /// Whether what was begun and not ended has left something.
    fn is_open(&self) -> bool {
        match self {
            Self::Value(..) | Self::Json(_) | Self::Struct(_) => false,
            Self::List(list) => {
                list.inner.is_open()
                    || list.ends.last().copied().unwrap_or(0) < as_offset(list.inner.len())
            }
        }
    }

    /// Ends what was begun and not ended, and fills up to `n_rows`. Items of lists are never null, also
    /// where their row goes.
    pub(super) fn settle(&mut self, n_rows: usize, is_item: bool) {
        match self {
            Self::List(list) => {
                let n_items = list.inner.len() + usize::from(list.inner.is_open());
                list.inner.settle(n_items, true);
                while list.ends.len() < n_rows {
                    list.end(is_item);
                }
            }
            Self::Struct(inner) => inner.settle(n_rows),
            Self::Value(..) | Self::Json(_) => {}
        }
        while self.len() < n_rows {
            self.append_null();
        }
    }

    pub(super) fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        match (self, field.data_type()) {
            (Self::Value(_, builder), _) => Ok(builder.finish()),
            (Self::Json(builder), _) => Ok(Arc::new(builder.finish())),
            (Self::List(list), DataType::LargeList(item)) => {
                let items = list.inner.finish(item)?;
                let starts = std::iter::once(0).chain(list.ends.iter().copied());
                let offsets = OffsetBuffer::new(starts.collect::<Vec<_>>().into());
                let nulls = NullBuffer::from(std::mem::take(&mut list.is_valid));
                Ok(Arc::new(LargeListArray::try_new(
                    Arc::clone(item),
                    offsets,
                    items,
                    Some(nulls),
                )?))
            }
            (Self::Struct(inner), DataType::Struct(fields)) => {
                let columns = inner.fields.iter_mut().zip(fields);
                let columns =
                    columns.map(|(of, f)| of.column.finish(f)).collect::<Result<_, _>>()?;
                let nulls = NullBuffer::from(std::mem::take(&mut inner.is_valid));
                Ok(Arc::new(StructArray::try_new(fields.clone(), columns, Some(nulls))?))
            }
            _ => Err(ArrowError::SchemaError("the columns are not those of the schema".into())),
        }
    }
}

impl ListColumn {
    pub(super) fn end(&mut self, is_valid: bool) {
        self.ends.push(as_offset(self.inner.len()));
        self.is_valid.push(is_valid);
    }
}

impl StructColumn {
    pub(super) fn new(fields: &Fields, n_rows: usize) -> Self {
        let index = fields.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        let key = |(name, kind): &(String, JsonType)| Key {
            name: name.clone(),
            column: Column::new(kind, n_rows),
            seen_in: 0,
        };
        let fields = fields.iter().map(key).collect();
        Self { fields, index, is_valid: Vec::with_capacity(n_rows), n_begun: 0 }
    }

    /// Ends an object; keys that it did not have are null.
    pub(super) fn end(&mut self, is_valid: bool) {
        self.is_valid.push(is_valid);
        let n_rows = self.is_valid.len();
        for key in &mut self.fields {
            if key.column.len() < n_rows {
                key.column.append_null();
            }
        }
    }

    pub(super) fn settle(&mut self, n_rows: usize) {
        while self.is_valid.len() < n_rows {
            self.is_valid.push(false);
        }
        for key in &mut self.fields {
            key.column.settle(n_rows, false);
        }
    }
}

fn as_offset(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
