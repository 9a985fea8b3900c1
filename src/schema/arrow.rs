//! The way back: fields as Arrow columns.
//!
//! Invariants:
//! 1. A schema inferred from [`RowSchema::arrow_schema`] stores the same bytes, but for names of
//!    files and what a definition adds.
//! 2. Bytes are checked before they become an Arrow array: text is UTF-8, offsets ascend. Nothing
//!    here trusts what it is given.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field as ArrowField, Schema as ArrowSchema, SchemaRef, TimeUnit};

use super::offer::{FREE, INTERNED_JSON, JSON};
use super::{Column, ColumnData, Dtype, Field, Kind, Logical, RowSchema, SchemaError};

impl RowSchema {
    /// The fields as Arrow columns: fixed ones are single values or nested fixed-size lists, ragged
    /// ones `LargeList`, `LargeUtf8` or `LargeBinary`, interned and categorical ones dictionaries,
    /// arrays of free shape structs of `data` and `shape` (padded with -1).
    #[must_use]
    pub fn arrow_schema(&self) -> SchemaRef {
        Arc::new(ArrowSchema::new(self.fields().iter().map(Field::arrow).collect::<Vec<_>>()))
    }

    /// Rows as Arrow has them, of the bytes of all fields.
    ///
    /// # Errors
    /// Names the field whose bytes are not what the schema says.
    pub fn batch(&self, columns: &[Column], n_rows: usize) -> Result<RecordBatch, SchemaError> {
        let arrays = self.fields().iter().zip(columns);
        let arrays = arrays.map(|(field, column)| field.array(column, n_rows));
        let options = RecordBatchOptions::new().with_row_count(Some(n_rows));
        RecordBatch::try_new_with_options(
            self.arrow_schema(),
            arrays.collect::<Result<_, _>>()?,
            &options,
        )
        .map_err(|e| SchemaError::document(e.to_string()))
    }
}

impl Field {
    /// The field as an Arrow column.
    #[must_use]
    pub fn arrow(&self) -> ArrowField {
        let field = ArrowField::new(&self.name, self.data_type(), self.nullable);
        let extension = match (self.kind, &self.logical) {
            (Kind::Free, _) => (FREE, ""),
            (Kind::Interned, Some(Logical::Json)) => (INTERNED_JSON, ""),
            (_, Some(Logical::Json)) => (JSON, ""),
            _ => return field,
        };
        field.with_metadata([
            (EXTENSION_TYPE_NAME_KEY.to_owned(), extension.0.to_owned()),
            (EXTENSION_TYPE_METADATA_KEY.to_owned(), extension.1.to_owned()),
        ])
    }

    fn data_type(&self) -> DataType {
        let scalar = self.scalar_type();
        match self.kind {
            _ if self.categories.is_some() => {
                DataType::Dictionary(self.dtype.arrow().into(), DataType::Utf8.into())
            }
            Kind::Fixed => self.nest(scalar),
            Kind::Ragged if self.is_bytes() => scalar,
            Kind::Ragged => DataType::LargeList(item(self.nest(scalar))),
            Kind::Free => DataType::Struct(
                vec![
                    ArrowField::new("data", DataType::LargeList(item(scalar)), false),
                    ArrowField::new("shape", self.dims_type(), false),
                ]
                .into(),
            ),
            Kind::Interned => DataType::Dictionary(DataType::Int32.into(), scalar.into()),
        }
    }

    /// The type of one scalar, or string of bytes.
    fn scalar_type(&self) -> DataType {
        match &self.logical {
            None | Some(Logical::Bfloat16) => self.dtype.arrow(),
            Some(Logical::Utf8 | Logical::Json) => DataType::LargeUtf8,
            Some(Logical::Binary) => DataType::LargeBinary,
            Some(Logical::Date32) => DataType::Date32,
            Some(Logical::Time64(unit @ (TimeUnit::Second | TimeUnit::Millisecond))) => {
                DataType::Time32(*unit)
            }
            Some(Logical::Time64(unit)) => DataType::Time64(*unit),
            Some(Logical::Timestamp(unit, tz)) => DataType::Timestamp(*unit, tz.clone()),
            Some(Logical::Duration(unit)) => DataType::Duration(*unit),
            Some(Logical::Decimal128(precision, scale)) => DataType::Decimal128(*precision, *scale),
        }
    }

    /// The sizes of the lists that hold a row's or an entry's scalars: decimals are one scalar each.
    fn sizes(&self) -> &[usize] {
        match self.shape.as_slice() {
            [sizes @ .., 16] if matches!(self.logical, Some(Logical::Decimal128(..))) => sizes,
            sizes => sizes,
        }
    }

    fn nest(&self, scalar: DataType) -> DataType {
        self.sizes().iter().rev().fold(scalar, |inner, n| {
            DataType::FixedSizeList(item(inner), i32::try_from(*n).unwrap_or(i32::MAX))
        })
    }

    fn dims_type(&self) -> DataType {
        let rank = i32::try_from(self.shape.len()).unwrap_or(i32::MAX);
        DataType::FixedSizeList(item(DataType::Int32), rank)
    }

    /// The `n_rows` rows of `column` as an Arrow array of [`Field::arrow`]'s type.
    ///
    /// # Errors
    /// The bytes are not what the field says: lengths, offsets, UTF-8, codes.
    pub fn array(&self, column: &Column, n_rows: usize) -> Result<ArrayRef, SchemaError> {
        let fail = |what: &dyn std::fmt::Display| {
            SchemaError::document(format!(
                "field `{}`: its bytes are not its rows: {what}",
                self.name
            ))
        };
        self.array_data(column, n_rows).map(make_array).map_err(|e| fail(&e))
    }

    fn array_data(&self, column: &Column, n_rows: usize) -> Result<ArrayData, Refused> {
        let valid = column.valid.as_ref().map(|valid| bits(valid));
        let nulls = valid.map(NullBuffer::new).filter(|nulls| nulls.null_count() > 0);
        let whole = self.data_type();
        match &column.data {
            ColumnData::Fixed { bytes } if self.categories.is_some() => {
                let values = self.categories.as_deref().unwrap_or_default();
                let values = arrow_array::StringArray::from_iter_values(values);
                let data = builder(whole, n_rows, nulls).add_buffer(bytes.clone());
                data.add_child_data(arrow_array::Array::to_data(&values)).build()
            }
            ColumnData::Fixed { bytes } => self.nested(bytes, n_rows, self.sizes(), nulls),
            ColumnData::Ragged { offsets, bytes } if self.is_bytes() => {
                strings(whole, offsets, bytes, n_rows, nulls)
            }
            ColumnData::Ragged { offsets, bytes } => {
                let n_entries = offsets.last().map_or(0, |last| last.as_usize());
                let entries = self.nested(bytes, n_entries, self.sizes(), None)?;
                let data = builder(whole, n_rows, nulls).add_buffer(offsets.inner().clone());
                data.add_child_data(entries).build()
            }
            ColumnData::Free { dims, offsets, bytes } => {
                let n_scalars = offsets.last().map_or(0, |last| last.as_usize());
                let scalars = self.nested(bytes, n_scalars, &[], None)?;
                let list = builder(DataType::LargeList(item(self.scalar_type())), n_rows, None)
                    .add_buffer(offsets.inner().clone())
                    .add_child_data(scalars)
                    .build()?;
                let n_dims = n_rows * self.shape.len();
                let dims = builder(DataType::Int32, n_dims, None).add_buffer(dims.inner().clone());
                let shapes = builder(self.dims_type(), n_rows, None).add_child_data(dims.build()?);
                let data = builder(whole, n_rows, nulls).add_child_data(list);
                data.add_child_data(shapes.build()?).build()
            }
            ColumnData::Interned { offsets, bytes } => {
                let values = strings(self.scalar_type(), offsets, bytes, n_rows, None)?;
                let keys: ScalarBuffer<i32> = (0_i32..).take(n_rows).collect();
                let data = builder(whole, n_rows, nulls).add_buffer(keys.into_inner());
                data.add_child_data(values).build()
            }
        }
    }

    /// `n` arrays of these sizes.
    fn nested(
        &self,
        bytes: &Buffer,
        n: usize,
        sizes: &[usize],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayData, Refused> {
        if let Some((size, inner)) = sizes.split_first() {
            let items = self.nested(bytes, n.saturating_mul(*size), inner, None)?;
            let list = DataType::FixedSizeList(
                item(items.data_type().clone()),
                i32::try_from(*size).unwrap_or(i32::MAX),
            );
            return builder(list, n, nulls).add_child_data(items).build();
        }
        let scalar = self.scalar_type();
        let bytes = match &scalar {
            DataType::Boolean => bits(bytes).into_inner(),
            DataType::Time32(_) => seconds(bytes)?,
            _ => bytes.clone(),
        };
        builder(scalar, n, nulls).add_buffer(bytes).build()
    }
}

type Refused = arrow_schema::ArrowError;

fn item(data_type: DataType) -> Arc<ArrowField> {
    Arc::new(ArrowField::new_list_field(data_type, false))
}

fn builder(
    data_type: DataType,
    n: usize,
    nulls: Option<NullBuffer>,
) -> arrow_data::ArrayDataBuilder {
    // What is mapped from a file has the alignment of its place there.
    ArrayData::builder(data_type).len(n).nulls(nulls).align_buffers(true)
}

fn strings(
    data_type: DataType,
    offsets: &ScalarBuffer<i64>,
    bytes: &Buffer,
    n: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayData, Refused> {
    let data = builder(data_type, n, nulls).add_buffer(offsets.inner().clone());
    data.add_buffer(bytes.clone()).build()
}

/// Bytes, 0 or not, as bits.
fn bits(bytes: &[u8]) -> BooleanBuffer {
    BooleanBuffer::collect_bool(bytes.len(), |i| bytes.get(i).is_some_and(|byte| *byte != 0))
}

/// Times of day that Arrow keeps in 32 bits where the unit allows it.
fn seconds(bytes: &Buffer) -> Result<Buffer, Refused> {
    let narrow = bytes.chunks_exact(Dtype::Int64.size()).map(|value| {
        i32::try_from(super::integer(value, Dtype::Int64))
            .map_err(|_| Refused::InvalidArgumentError("a time of day is out of range".into()))
    });
    Ok(Buffer::from_vec(narrow.collect::<Result<Vec<i32>, _>>()?))
}
