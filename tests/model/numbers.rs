//! Columns of numbers at random: single ones, lists, shared axes, arrays of free shape.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, StructArray, make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields};
use rowmill::schema::{FieldSpec, Kind};

use super::arbitrary::{Columns, Level, Mask, Rows, Want};
use super::every_kind::Random;

/// Scalars of one type: as Arrow holds them and as they are stored.
#[derive(Default, Clone)]
struct Scalars {
    arrow: Vec<u8>,
    stored: Vec<u8>,
}

fn scalar(leaf: &DataType, random: &mut Random) -> Scalars {
    let bits = random.next();
    let same = |bytes: &[u8]| Scalars { arrow: bytes.to_vec(), stored: bytes.to_vec() };
    match leaf {
        DataType::Boolean => same(&[(bits & 1) as u8]),
        DataType::Date64 => {
            let days = (bits as i16).into();
            let ms = i64::from(days) * 86_400_000;
            Scalars { arrow: ms.to_le_bytes().to_vec(), stored: i32::to_le_bytes(days).to_vec() }
        }
        DataType::Time32(_) => {
            let time = (bits % 86_400) as i32;
            let stored = i64::from(time).to_le_bytes().to_vec();
            Scalars { arrow: time.to_le_bytes().to_vec(), stored }
        }
        DataType::Time64(_) => same(&(bits % 86_400_000_000_000).to_le_bytes()),
        DataType::Decimal128(..) => same(&i128::from(bits as i64).to_le_bytes()),
        leaf => same(&bits.to_le_bytes()[..leaf.primitive_width().unwrap()]),
    }
}

fn leaf_array(leaf: &DataType, bytes: &[u8]) -> ArrayRef {
    let (n, buffer) = match leaf {
        DataType::Boolean => {
            let bits = BooleanBuffer::collect_bool(bytes.len(), |i| bytes[i] == 1);
            (bytes.len(), bits.into_inner())
        }
        leaf => (bytes.len() / leaf.primitive_width().unwrap(), Buffer::from(bytes)),
    };
    let data = ArrayData::builder(leaf.clone()).len(n).add_buffer(buffer).align_buffers(true);
    make_array(data.build().unwrap())
}

/// One row: how many items each level has, and the scalars.
struct Cell {
    dims: Vec<usize>,
    scalars: Vec<Scalars>,
}

impl Cell {
    fn new(leaf: &DataType, dims: Vec<usize>, random: &mut Random) -> Self {
        let n = dims.iter().product();
        Self { dims, scalars: (0..n).map(|_| scalar(leaf, random)).collect() }
    }

    fn stored(&self) -> impl Iterator<Item = u8> {
        self.scalars.iter().flat_map(|scalar| scalar.stored.iter().copied())
    }
}

fn list_field(items: &ArrayRef) -> Arc<Field> {
    Arc::new(Field::new_list_field(items.data_type().clone(), true))
}

fn nested(
    leaf: &DataType,
    levels: &[Level],
    cells: &[Cell],
    mut nulls: Option<NullBuffer>,
) -> ArrayRef {
    let bytes: Vec<u8> =
        cells.iter().flat_map(|cell| &cell.scalars).flat_map(|s| s.arrow.clone()).collect();
    let mut items = leaf_array(leaf, &bytes);
    for (depth, level) in levels.iter().enumerate().rev() {
        let lens = cells.iter().flat_map(|cell| {
            let n_lists = cell.dims[..depth].iter().product();
            std::iter::repeat_n(cell.dims[depth], n_lists)
        });
        let nulls = if depth == 0 { nulls.take() } else { None };
        items = match level {
            Level::Of(n) => {
                let (field, n) = (list_field(&items), i32::try_from(*n).unwrap());
                Arc::new(FixedSizeListArray::new(field, n, items, nulls))
            }
            Level::List => {
                let offsets = OffsetBuffer::from_lengths(lens);
                Arc::new(ListArray::new(list_field(&items), offsets, items, nulls))
            }
            Level::LargeList => {
                let offsets = OffsetBuffer::from_lengths(lens);
                Arc::new(LargeListArray::new(list_field(&items), offsets, items, nulls))
            }
        };
    }
    match nulls {
        None => items,
        Some(nulls) => {
            make_array(items.to_data().into_builder().nulls(Some(nulls)).build().unwrap())
        }
    }
}

pub(super) fn add_numbers(
    columns: &mut Columns,
    name: &str,
    leaf: &DataType,
    levels: &[Level],
    valid: &Mask,
    rows: &Rows,
    random: &mut Random,
) {
    let cells: Vec<Cell> = (0..rows.n_all)
        .map(|_| {
            let dims = levels.iter().map(|level| match level {
                Level::Of(n) => *n,
                _ => random.below(4) as usize,
            });
            let dims = dims.collect();
            Cell::new(leaf, dims, random)
        })
        .collect();
    let varying = |level: &Level| !matches!(level, Level::Of(_));
    let kind = match levels {
        _ if !levels.iter().any(varying) => Kind::Fixed,
        [_, inner @ ..] if !inner.iter().any(varying) => Kind::Ragged,
        _ => Kind::Free,
    };
    let mut want = Want { valid: valid.bytes(rows), ..Want::default() };
    let (mut dims, mut offsets) = (Vec::new(), vec![0]);
    let row_bytes = scalar(leaf, random).stored.len()
        * levels
            .iter()
            .map(|level| if let Level::Of(n) = level { *n } else { 1 })
            .product::<usize>();
    for row in rows.range() {
        let cell = &cells[row];
        let mut end = *offsets.last().unwrap();
        if valid.has(row) {
            want.bytes.extend(cell.stored());
            end += match kind {
                Kind::Ragged => cell.dims[0],
                _ => cell.scalars.len(),
            } as i64;
            // Of lists that are not there nobody knows how long they would be.
            let known = levels.iter().enumerate().map(|(i, level)| {
                let n_lists: usize = cell.dims[..i].iter().product();
                if n_lists == 0 && varying(level) { 0 } else { cell.dims[i] as i32 }
            });
            dims.extend(known);
        } else {
            dims.extend(levels.iter().map(|_| 0));
            if kind == Kind::Fixed {
                want.bytes.extend(std::iter::repeat_n(0, row_bytes));
            }
        }
        offsets.push(end);
    }
    want.dims = (kind == Kind::Free).then_some(dims);
    want.offsets = (kind != Kind::Fixed).then_some(offsets);
    let mut array = nested(leaf, levels, &cells, valid.nulls());
    if levels.is_empty() && random.below(4) == 0 && leaf != &DataType::Boolean {
        array = dictionary(&array);
    }
    columns.add(name, valid.is_nullable(), array, FieldSpec::default(), want);
}

/// The same values as codes, in reverse; nulls are among the values.
fn dictionary(array: &ArrayRef) -> ArrayRef {
    let n = array.len() as i32;
    let codes = arrow_array::Int32Array::from_iter_values((0..n).rev());
    let reversed = arrow_select::take::take(array, &codes, None).unwrap();
    Arc::new(arrow_array::DictionaryArray::new(codes, reversed))
}

pub(super) fn add_axis(
    columns: &mut Columns,
    name: &str,
    on_axis: &[(DataType, Option<usize>, bool)],
    rows: &Rows,
    random: &mut Random,
) {
    let axis: String = name.replace([' ', '.'], "_") + "_axis";
    let counts: Vec<usize> = (0..rows.n_all).map(|_| random.below(4) as usize).collect();
    let masks: Vec<_> =
        on_axis.iter().map(|(.., nullable)| Mask::new(rows.n_all, *nullable, random)).collect();
    let count = |row: usize| {
        let any = masks.iter().any(|valid| valid.has(row));
        if any { counts[row] } else { 0 }
    };
    let mut offsets = vec![0];
    offsets.extend(rows.range().scan(0, |end, row| {
        *end += count(row) as i64;
        Some(*end)
    }));
    for (i, ((leaf, trailing, _), valid)) in on_axis.iter().zip(&masks).enumerate() {
        let mut levels = vec![Level::List];
        levels.extend(trailing.map(Level::Of));
        let cells: Vec<Cell> = (0..rows.n_all)
            .map(|row| {
                let has = valid.has(row);
                let n = if has { counts[row] } else { random.below(4) as usize };
                let dims = [n].into_iter().chain(*trailing).collect();
                Cell::new(leaf, dims, random)
            })
            .collect();
        let entry = scalar(leaf, random).stored.len() * trailing.unwrap_or(1);
        let bytes = rows.range().flat_map(|row| {
            if valid.has(row) { cells[row].stored().collect() } else { vec![0; count(row) * entry] }
        });
        let want = Want {
            valid: valid.bytes(rows),
            dims: None,
            offsets: Some(offsets.clone()),
            bytes: bytes.collect(),
        };
        let array = nested(leaf, &levels, &cells, valid.nulls());
        let spec = FieldSpec { axis: Some(axis.clone()), ..FieldSpec::default() };
        columns.add(&format!("{name} {i}"), valid.is_nullable(), array, spec, want);
    }
}

pub(super) fn add_tensor(
    columns: &mut Columns,
    name: &str,
    leaf: &DataType,
    rank: usize,
    valid: &Mask,
    rows: &Rows,
    random: &mut Random,
) {
    let cells: Vec<Cell> = (0..rows.n_all)
        .map(|_| {
            let dims = (0..random.below(rank as u64 + 1)).map(|_| random.below(4) as usize);
            let dims = dims.collect();
            Cell::new(leaf, dims, random)
        })
        .collect();
    let (mut want, mut dims, mut offsets) = (Want::default(), Vec::new(), vec![0]);
    for row in rows.range() {
        let (cell, mut end) = (&cells[row], *offsets.last().unwrap());
        if valid.has(row) {
            want.bytes.extend(cell.stored());
            end += cell.scalars.len() as i64;
            let padding = std::iter::repeat_n(-1, rank - cell.dims.len());
            dims.extend(cell.dims.iter().map(|n| *n as i32).chain(padding));
        } else {
            dims.extend(std::iter::repeat_n(0, rank));
        }
        offsets.push(end);
    }
    want.valid = valid.bytes(rows);
    (want.dims, want.offsets) = (Some(dims), Some(offsets));
    let flat: Vec<Cell> = cells
        .iter()
        .map(|cell| Cell { dims: vec![cell.scalars.len()], scalars: cell.scalars.clone() })
        .collect();
    let data = nested(leaf, &[Level::List], &flat, None);
    let shapes = cells.iter().map(|cell| cell.dims.iter().map(|n| Some(*n as i64)));
    let shape: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(shapes.map(Some)));
    let fields = Fields::from(vec![
        Field::new("data", data.data_type().clone(), false),
        Field::new("shape", shape.data_type().clone(), true),
    ]);
    let array = StructArray::new(fields, vec![data, shape], valid.nulls());
    let spec = FieldSpec { kind: Some(Kind::Free), rank: Some(rank), ..FieldSpec::default() };
    columns.add(name, valid.is_nullable(), Arc::new(array), spec, want);
}
