//! Values of any shape as JSON.
//!
//! Compact, members in the order of the struct's fields, floats as the shortest digits that read
//! back as the same float of their width, dates and times as ISO 8601 text, decimals as numbers.
//! A float that is not finite has no form in JSON and is refused.
//!
//! Invariant: no more text is in memory than there is [`Room`] for, however much a value stands for.

use std::cell::Cell;
use std::io;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

use super::extract::Bad;
use super::lists::unpack;

/// How much text the columns of a batch may become together.
#[derive(Debug)]
pub(super) struct Room(Cell<u64>);

impl Room {
    pub(super) fn of(bytes: u64) -> Self {
        Self(Cell::new(bytes))
    }
}

/// Text that is being made; what there is no room for is counted and not kept.
struct Text<'a> {
    kept: Vec<u8>,
    n_bytes: u64,
    room: &'a Room,
}

impl Text<'_> {
    fn push(&mut self, piece: &[u8]) {
        self.n_bytes += piece.len() as u64;
        let left = self.room.0.get().checked_sub(piece.len() as u64);
        self.room.0.set(left.unwrap_or(0));
        match left {
            Some(_) => self.kept.extend_from_slice(piece),
            None => self.kept = Vec::new(),
        }
    }

    fn is_whole(&self) -> bool {
        self.kept.len() as u64 == self.n_bytes
    }

    /// Writes a value as the parser's own writer does.
    fn value(&mut self, value: impl serde::Serialize) {
        // What takes everything cannot fail.
        drop(serde_json::to_writer(self, &value));
    }
}

impl io::Write for Text<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Offsets from 0 and the text of each row. Where there is no room for the text of a single row, its
/// offsets say how long it would be, and there is no text; of several rows none are encoded.
pub(super) fn encode(array: &ArrayRef, room: &Room) -> Result<(ScalarBuffer<i64>, Buffer), Bad> {
    // Formatters borrow their arrays, so dictionaries are unpacked in a tree of its own first.
    let tree = Tree::new(array)?;
    let node = Node::new(&tree)?;
    let mut offsets = Vec::with_capacity(array.len() + 1);
    let mut text = Text { kept: Vec::new(), n_bytes: 0, room };
    offsets.push(0);
    for row in 0..array.len() {
        node.write(row, &mut text).map_err(|NoForm(value)| {
            let hint = "replace it by null before";
            Bad::new(row, "not_json", format!("{value} has no form in JSON"), hint)
        })?;
        if !text.is_whole() && array.len() > 1 {
            return Err(Bad::too_much());
        }
        offsets.push(i64::try_from(text.n_bytes).unwrap_or(i64::MAX));
    }
    Ok((offsets.into(), Buffer::from_vec(text.kept)))
}

/// An array with its dictionaries unpacked, and the arrays in it.
struct Tree {
    array: ArrayRef,
    inner: Vec<Tree>,
    /// What is put after a date or time.
    suffix: &'static str,
}

impl Tree {
    fn new(array: &ArrayRef) -> Result<Self, Bad> {
        let mut array = unpack(array)?;
        let mut suffix = "";
        if let DataType::Timestamp(unit, Some(_)) = array.data_type() {
            // The values are in UTC: writing them so needs no table of time zones.
            suffix = "Z";
            let utc = array.to_data().into_builder().data_type(DataType::Timestamp(*unit, None));
            array = arrow_array::make_array(utc.build().map_err(|_| Bad::unreadable())?);
        }
        let inner = match array.data_type() {
            DataType::List(_) => vec![Self::new(array.as_list::<i32>().values())?],
            DataType::LargeList(_) => vec![Self::new(array.as_list::<i64>().values())?],
            DataType::FixedSizeList(..) => vec![Self::new(array.as_fixed_size_list().values())?],
            DataType::Struct(_) => {
                array.as_struct().columns().iter().map(Self::new).collect::<Result<_, _>>()?
            }
            DataType::Map(..) => {
                let map = array.as_map();
                vec![Self::new(map.keys())?, Self::new(map.values())?]
            }
            _ => Vec::new(),
        };
        Ok(Self { array, inner, suffix })
    }
}

/// A value that has no form in JSON: a float that is not finite, a date beyond the calendar.
struct NoForm(String);

/// How to write the values of one array.
struct Node<'a> {
    nulls: Option<NullBuffer>,
    form: Form<'a>,
}

enum Form<'a> {
    Null,
    /// Numbers and bools as they are printed.
    Plain(ArrayFormatter<'a>),
    /// Dates and times, and what is put after them.
    Quoted(ArrayFormatter<'a>, &'static str),
    Text(Box<dyn Fn(usize) -> &'a str + 'a>),
    F32(Box<dyn Fn(usize) -> f32 + 'a>),
    F64(&'a [f64]),
    List(Box<dyn Fn(usize) -> (usize, usize) + 'a>, Box<Node<'a>>),
    Struct(Vec<(String, Node<'a>)>),
    Map(&'a [i32], Box<(Node<'a>, Node<'a>)>),
}

impl<'a> Node<'a> {
    fn new(tree: &'a Tree) -> Result<Self, Bad> {
        let array = &tree.array;
        let mut inner = tree.inner.iter().map(Node::new);
        let mut next = || inner.next().unwrap_or_else(|| Err(Bad::unreadable())).map(Box::new);
        let form = match array.data_type() {
            DataType::Null => Form::Null,
            DataType::Utf8 => text(array.as_string::<i32>()),
            DataType::LargeUtf8 => text(array.as_string::<i64>()),
            DataType::Utf8View => {
                let array = array.as_string_view();
                Form::Text(Box::new(move |i| array.value(i)))
            }
            DataType::Float16 => {
                let values = array.as_primitive::<Float16Type>().values();
                Form::F32(Box::new(move |i| values.get(i).map_or(0.0, |value| value.to_f32())))
            }
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>().values();
                Form::F32(Box::new(move |i| values.get(i).copied().unwrap_or_default()))
            }
            DataType::Float64 => Form::F64(array.as_primitive::<Float64Type>().values()),
            DataType::List(_) => list(array.as_list::<i32>().offsets(), next()?),
            DataType::LargeList(_) => list(array.as_list::<i64>().offsets(), next()?),
            DataType::FixedSizeList(_, n) => {
                let n = usize::try_from(*n).unwrap_or_default();
                Form::List(Box::new(move |i| (i * n, (i + 1) * n)), next()?)
            }
            DataType::Struct(fields) => {
                let nodes = tree.inner.iter().map(Node::new);
                let members = fields.iter().zip(nodes).map(|(field, node)| {
                    let name = serde_json::Value::from(field.name().as_str()).to_string();
                    node.map(|node| (name, node))
                });
                Form::Struct(members.collect::<Result<_, _>>()?)
            }
            DataType::Map(..) => {
                Form::Map(array.as_map().offsets(), Box::new((*next()?, *next()?)))
            }
            DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_) => Form::Quoted(formatter(array)?, tree.suffix),
            _ => Form::Plain(formatter(array)?),
        };
        Ok(Self { nulls: array.nulls().cloned(), form })
    }

    fn write(&self, i: usize, out: &mut Text<'_>) -> Result<(), NoForm> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            out.push(b"null");
            return Ok(());
        }
        match &self.form {
            Form::Null => out.push(b"null"),
            Form::Plain(formatter) => out.push(print(formatter, i)?.as_bytes()),
            Form::Quoted(formatter, suffix) => {
                out.value(print(formatter, i)? + suffix);
            }
            Form::Text(value) => out.value(value(i)),
            Form::F32(value) => {
                let value = value(i);
                finite(value.into())?;
                // Not through f64, which would print more digits than the float has.
                out.value(value);
            }
            Form::F64(values) => {
                let value = values.get(i).copied().unwrap_or_default();
                finite(value)?;
                out.value(value);
            }
            Form::List(range, items) => {
                let (from, to) = range(i);
                out.push(b"[");
                for item in from..to {
                    if item > from {
                        out.push(b",");
                    }
                    items.write(item, out)?;
                }
                out.push(b"]");
            }
            Form::Struct(members) => {
                out.push(b"{");
                for (n, (name, value)) in members.iter().enumerate() {
                    if n > 0 {
                        out.push(b",");
                    }
                    out.push(name.as_bytes());
                    out.push(b":");
                    value.write(i, out)?;
                }
                out.push(b"}");
            }
            Form::Map(offsets, entries) => {
                let end = |i: usize| offsets.get(i).and_then(|end| usize::try_from(*end).ok());
                let (from, to) = (end(i).unwrap_or_default(), end(i + 1).unwrap_or_default());
                out.push(b"{");
                for entry in from..to {
                    if entry > from {
                        out.push(b",");
                    }
                    entries.0.write(entry, out)?;
                    out.push(b":");
                    entries.1.write(entry, out)?;
                }
                out.push(b"}");
            }
        }
        Ok(())
    }
}

fn text<O: OffsetSizeTrait>(array: &arrow_array::GenericStringArray<O>) -> Form<'_> {
    Form::Text(Box::new(move |i| array.value(i)))
}

fn list<'a, O: OffsetSizeTrait>(offsets: &'a OffsetBuffer<O>, items: Box<Node<'a>>) -> Form<'a> {
    let end = |i: usize| offsets.get(i).map_or(0, |end| end.as_usize());
    Form::List(Box::new(move |i| (end(i), end(i + 1))), items)
}

fn formatter(array: &ArrayRef) -> Result<ArrayFormatter<'_>, Bad> {
    const OPTIONS: FormatOptions<'_> = FormatOptions::new().with_display_error(false);
    ArrayFormatter::try_new(array.as_ref(), &OPTIONS).map_err(|_| Bad::unreadable())
}

fn print(formatter: &ArrayFormatter<'_>, i: usize) -> Result<String, NoForm> {
    formatter
        .value(i)
        .try_to_string()
        .map_err(|_| NoForm("a date or time beyond the calendar".into()))
}

fn finite(value: f64) -> Result<(), NoForm> {
    if value.is_finite() { Ok(()) } else { Err(NoForm(value.to_string())) }
}
