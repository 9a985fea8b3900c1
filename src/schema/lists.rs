//! Lists within lists, taken apart into where they end and what is in them.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, UInt8Array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::extract::Bad;
use super::offer::Level;

/// How many items each list of one level has.
#[derive(Debug, Clone)]
pub(super) enum Span {
    /// All have this many.
    Of(usize),
    /// One number per list and one more, from 0.
    Ends(ScalarBuffer<i64>),
}

impl Span {
    /// Where list `i` begins; `i` may be the number of lists.
    pub(super) fn start(&self, i: i64) -> i64 {
        match self {
            Span::Of(n) => i * i64::try_from(*n).unwrap_or(i64::MAX),
            Span::Ends(ends) => {
                usize::try_from(i).ok().and_then(|i| ends.get(i)).map_or(0, |end| *end)
            }
        }
    }

    /// The list that item `i` is in.
    fn list_of(&self, i: usize) -> usize {
        match self {
            Span::Of(n) => i / (*n).max(1),
            Span::Ends(ends) => {
                let i = i64::try_from(i).unwrap_or(i64::MAX);
                ends.partition_point(|&end| end <= i).saturating_sub(1)
            }
        }
    }
}

/// Lists of as many levels as there are spans, outermost first, over `items`.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) n_rows: usize,
    pub(super) spans: Vec<Span>,
    pub(super) items: ArrayRef,
}

impl Lists {
    /// Takes apart `array`, which has no nulls, down through `levels`.
    ///
    /// # Errors
    /// A null within a list.
    pub(super) fn new(array: &ArrayRef, levels: &[Level]) -> Result<Self, Bad> {
        let mut lists = Lists { n_rows: array.len(), spans: Vec::new(), items: unpack(array)? };
        for _ in levels {
            let (span, items) = open(&lists.items);
            let items = unpack(&items)?;
            lists.spans.push(span);
            if let Some(nulls) = items.logical_nulls()
                && nulls.null_count() > 0
            {
                let index = nulls.iter().position(|valid| !valid).unwrap_or_default();
                let hint = "fill it before, or store the field as `dtype = \"json\"`";
                return Err(Bad::new(
                    lists.row_of(index),
                    "null_item",
                    "a null within a list",
                    hint,
                ));
            }
            lists.items = items;
        }
        Ok(lists)
    }

    /// The row that item `index` of the innermost level is in.
    pub(super) fn row_of(&self, index: usize) -> usize {
        self.spans.iter().rev().fold(index, |i, span| span.list_of(i))
    }

    /// Where each row begins among the items of level `depth` (0: among the rows themselves), and
    /// where the last one ends.
    pub(super) fn starts(&self, depth: usize) -> Vec<i64> {
        let n_rows = i64::try_from(self.n_rows).unwrap_or(i64::MAX);
        let mut starts: Vec<i64> = (0..=n_rows).collect();
        for span in self.spans.iter().take(depth) {
            for start in &mut starts {
                *start = span.start(*start);
            }
        }
        starts
    }

    /// The first row in which a list of level `depth` has not `n` items, and how many it has.
    pub(super) fn first_other(&self, depth: usize, n: usize) -> Option<(usize, i64)> {
        let Span::Ends(ends) = self.spans.get(depth)? else { return None };
        let n = i64::try_from(n).unwrap_or(i64::MAX);
        let list = ends.windows(2).position(|pair| matches!(pair, [from, to] if to - from != n))?;
        let row = self.spans.iter().take(depth).rev().fold(list, |i, span| span.list_of(i));
        let has = ends.get(list + 1)? - ends.get(list)?;
        Some((row, has))
    }
}

/// One level of lists: how long they are, and what is in them.
fn open(array: &ArrayRef) -> (Span, ArrayRef) {
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            ends(list.offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            ends(list.offsets(), list.values())
        }
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let n = usize::try_from(list.value_length()).unwrap_or_default();
            (Span::Of(n), list.values().slice(0, list.len() * n))
        }
        _ => {
            let list = array.as_fixed_size_binary();
            let n = usize::try_from(list.value_length()).unwrap_or_default();
            let data = list.to_data();
            let from = data.offset() * n;
            let bytes = match data.buffers() {
                [bytes, ..] => bytes.slice_with_length(from, list.len() * n),
                [] => Vec::<u8>::new().into(),
            };
            (Span::Of(n), std::sync::Arc::new(UInt8Array::new(bytes.into(), None)))
        }
    }
}

fn ends<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &ArrayRef) -> (Span, ArrayRef) {
    let first = offsets.first().as_usize();
    let last = offsets.last().as_usize();
    (Span::Ends(from_zero(offsets)), values.slice(first, last - first))
}

/// Offsets as i64 that begin with 0: those of Arrow themselves where they are that already.
pub(super) fn from_zero<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> ScalarBuffer<i64> {
    let first = offsets.first().as_usize();
    if first == 0 && size_of::<O>() == size_of::<i64>() {
        return ScalarBuffer::from(offsets.inner().inner().clone());
    }
    let wide = |offset: &O| i64::try_from(offset.as_usize() - first).unwrap_or(i64::MAX);
    offsets.iter().map(wide).collect()
}

/// A dictionary as the values it stands for; any other array as it is.
pub(super) fn unpack(array: &ArrayRef) -> Result<ArrayRef, Bad> {
    match array.data_type() {
        DataType::Dictionary(_, values) => {
            unpack(&arrow_cast::cast(array, values).map_err(|_| Bad::unreadable())?)
        }
        _ => Ok(array.clone()),
    }
}
