//! Looks over the Thrift structs of a Parquet file before the library reads them.
//!
//! The library trusts them in ways that a file can abuse: it descends as deep as a schema nests, makes
//! room for as many children as an element claims, gives every leaf a copy of the names above it, and
//! counts through a list of truth values without reading them, however long the list says it is.
//!
//! Leaves out: what the structs mean.
//!
//! Invariants:
//! 1. Bytes that pass are walked by the library in the same way: a field whose number the format knows
//!    has the type that the format says, and no list holds truth values.
//! 2. To look takes time in proportion to the bytes, and a bounded stack.

/// Most levels of a schema, its root and leaves included.
pub(super) const MOST_LEVELS: usize = 128;
/// Most levels of structs and lists within one another, which is the library's own bound where it
/// passes over what it does not know.
const MOST_STRUCTS: u8 = 64;

/// About the bytes that the library takes for an element of a schema and a column made of it, and for
/// each part of the path of a leaf; beside their names.
const ELEMENT_BYTES: u64 = 1 << 10;
const PATH_BYTES: u64 = 64;

/// Why bytes are not given to the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// They end within a struct.
    Torn,
    /// They are no such struct.
    Damaged(&'static str),
    /// The schema nests more than [`MOST_LEVELS`] levels.
    Deep,
    /// The schema takes more memory than it may.
    Large {
        /// About what it takes.
        bytes: u64,
    },
}

/// Looks over a footer whose schema may take `most_bytes` of memory.
pub(super) fn look_over_footer(bytes: &[u8], most_bytes: u64) -> Result<(), Refusal> {
    let mut walk = Walk { bytes };
    let mut last = 0;
    while let Some((id, kind)) = walk.field(&mut last)? {
        match (id, kind) {
            (2, LIST) => walk.schema(most_bytes)?,
            _ => walk.value(kind, slot(FOOTER, id), MOST_STRUCTS)?,
        }
    }
    Ok(())
}

/// Looks over the header of a page.
pub(super) fn look_over_page_header(bytes: &[u8]) -> Result<(), Refusal> {
    Walk { bytes }.value(STRUCT, Slot::Struct(PAGE_HEADER), MOST_STRUCTS)
}

/// Types of the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// What the format says that a field holds.
#[derive(Debug, Clone, Copy)]
enum Slot {
    /// The format does not know it, or does not say.
    Any,
    Bool,
    /// One of the numbers and `BINARY`.
    Plain(u8),
    List(&'static Slot),
    Struct(&'static [Slot]),
}

/// The structs of the format, whose fields are numbered from 1 on in the order of `parquet.thrift`.
const FOOTER: &[Slot] = {
    use Slot::{Any, List, Plain, Struct};
    &[
        Plain(I32),
        List(&Struct(SCHEMA_ELEMENT)),
        Plain(I64),
        List(&Struct(ROW_GROUP)),
        List(&Struct(KEY_VALUE)),
        Plain(BINARY),
        List(&Struct(COLUMN_ORDER)),
        Any,
        Plain(BINARY),
    ]
};
const SCHEMA_ELEMENT: &[Slot] = {
    use Slot::{Plain, Struct};
    let number = Plain(I32);
    &[
        number,
        number,
        number,
        Plain(BINARY),
        number,
        number,
        number,
        number,
        number,
        Struct(LOGICAL_TYPE),
    ]
};
const LOGICAL_TYPE: &[Slot] = {
    use Slot::{Bool, Plain, Struct};
    const UNIT: &[Slot] = &[Struct(&[]), Struct(&[]), Struct(&[])];
    let plain = Struct(&[]);
    let time = Struct(&[Bool, Struct(UNIT)]);
    &[
        plain,
        plain,
        plain,
        plain,
        Struct(&[Plain(I32), Plain(I32)]),
        plain,
        time,
        time,
        Slot::Any,
        Struct(&[Plain(BYTE), Bool]),
        plain,
        plain,
        plain,
        plain,
        plain,
        Struct(&[Plain(BYTE)]),
        Struct(&[Plain(BINARY)]),
        Struct(&[Plain(BINARY), Plain(I32)]),
    ]
};
const ROW_GROUP: &[Slot] = {
    use Slot::{Bool, List, Plain, Struct};
    const SORTING_COLUMN: &[Slot] = &[Plain(I32), Bool, Bool];
    &[
        List(&Struct(COLUMN_CHUNK)),
        Plain(I64),
        Plain(I64),
        List(&Struct(SORTING_COLUMN)),
        Plain(I64),
        Plain(I64),
        Plain(I16),
    ]
};
const COLUMN_CHUNK: &[Slot] = {
    use Slot::{Any, Plain, Struct};
    &[
        Plain(BINARY),
        Plain(I64),
        Struct(COLUMN_META_DATA),
        Plain(I64),
        Plain(I32),
        Plain(I64),
        Plain(I32),
        Any,
        Plain(BINARY),
    ]
};
const COLUMN_META_DATA: &[Slot] = {
    use Slot::{List, Plain, Struct};
    const ENCODING_STATS: &[Slot] = &[Plain(I32), Plain(I32), Plain(I32)];
    const SIZES: &[Slot] = &[Plain(I64), List(&Plain(I64)), List(&Plain(I64))];
    const PLACES: &[Slot] = &[Struct(&[Plain(DOUBLE); 8]), List(&Plain(I32))];
    &[
        Plain(I32),
        List(&Plain(I32)),
        List(&Plain(BINARY)),
        Plain(I32),
        Plain(I64),
        Plain(I64),
        Plain(I64),
        List(&Struct(KEY_VALUE)),
        Plain(I64),
        Plain(I64),
        Plain(I64),
        Struct(STATISTICS),
        List(&Struct(ENCODING_STATS)),
        Plain(I64),
        Plain(I32),
        Struct(SIZES),
        Struct(PLACES),
    ]
};
const STATISTICS: &[Slot] = {
    use Slot::{Bool, Plain};
    let (bytes, number) = (Plain(BINARY), Plain(I64));
    &[bytes, bytes, number, number, bytes, bytes, Bool, Bool, number]
};
const KEY_VALUE: &[Slot] = &[Slot::Plain(BINARY), Slot::Plain(BINARY)];
const COLUMN_ORDER: &[Slot] = &[Slot::Struct(&[]), Slot::Struct(&[])];
const PAGE_HEADER: &[Slot] = {
    use Slot::{Bool, Plain, Struct};
    let number = Plain(I32);
    &[
        number,
        number,
        number,
        number,
        Struct(&[Plain(I32), Plain(I32), Plain(I32), Plain(I32), Struct(STATISTICS)]),
        Struct(&[]),
        Struct(&[Plain(I32), Plain(I32), Bool]),
        Struct(&[
            Plain(I32),
            Plain(I32),
            Plain(I32),
            Plain(I32),
            Plain(I32),
            Plain(I32),
            Bool,
            Struct(STATISTICS),
        ]),
    ]
};

fn slot(fields: &'static [Slot], id: i16) -> Slot {
    let index = id.checked_sub(1).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| fields.get(index)).copied().unwrap_or(Slot::Any)
}

/// An element of a schema that waits for its children.
struct Open {
    n_missing: usize,
    /// Bytes of a path that leads to it.
    path_bytes: u64,
}

/// Bytes that are walked over; what is left of them.
struct Walk<'a> {
    bytes: &'a [u8],
}

impl Walk<'_> {
    fn skip(&mut self, n: u64) -> Result<(), Refusal> {
        let n = usize::try_from(n).map_err(|_| Refusal::Torn)?;
        self.bytes = self.bytes.get(n..).ok_or(Refusal::Torn)?;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Refusal> {
        let (first, rest) = self.bytes.split_first().ok_or(Refusal::Torn)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn varint(&mut self) -> Result<u64, Refusal> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Refusal::Damaged("a number without end"))
    }

    /// A number of at most 32 bits, whose sign is its lowest bit.
    fn number(&mut self) -> Result<i32, Refusal> {
        let value = self.varint()?;
        let half = i32::try_from(value >> 1);
        let half = half.map_err(|_| Refusal::Damaged("a number that is too large"))?;
        Ok(if value & 1 == 0 { half } else { -1 - half })
    }

    /// Number and type of the next field of a struct; `None` at its end.
    fn field(&mut self, last: &mut i16) -> Result<Option<(i16, u8)>, Refusal> {
        let byte = self.byte()?;
        let (delta, kind) = (byte >> 4, byte & 0x0f);
        if kind == 0 {
            return Ok(None);
        }
        let id = match delta {
            0 => i16::try_from(self.number()?).ok(),
            _ => last.checked_add(i16::from(delta)),
        };
        *last = id.ok_or(Refusal::Damaged("a field without number"))?;
        Ok(Some((*last, kind)))
    }

    /// Type and number of the items of a list.
    fn list(&mut self) -> Result<(u8, usize), Refusal> {
        let byte = self.byte()?;
        let (n, kind) = (byte >> 4, byte & 0x0f);
        let n = if n == 15 { self.varint()? } else { u64::from(n) };
        let n = usize::try_from(n).map_err(|_| Refusal::Torn)?;
        // The smallest item is a byte.
        if n > self.bytes.len() {
            return Err(Refusal::Torn);
        }
        Ok((kind, n))
    }

    fn value(&mut self, kind: u8, slot: Slot, levels: u8) -> Result<(), Refusal> {
        let levels = levels.checked_sub(1).ok_or(Refusal::Damaged("structs without end"))?;
        match (kind, slot) {
            (TRUE | FALSE, Slot::Bool | Slot::Any) => Ok(()),
            (STRUCT, Slot::Struct(fields)) => self.structure(fields, levels),
            (STRUCT, Slot::Any) => self.structure(&[], levels),
            (LIST, Slot::List(item)) => self.items(*item, levels),
            (LIST | SET, Slot::Any) => self.items(Slot::Any, levels),
            (MAP, Slot::Any) => self.map(levels),
            (_, Slot::Any) => self.plain(kind),
            (_, Slot::Plain(wanted)) if kind == wanted => self.plain(kind),
            _ => Err(Refusal::Damaged("a field that has not the type of the format")),
        }
    }

    fn plain(&mut self, kind: u8) -> Result<(), Refusal> {
        match kind {
            BYTE => self.skip(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.skip(8),
            BINARY => {
                let n = self.varint()?;
                self.skip(n)
            }
            UUID => self.skip(16),
            _ => Err(Refusal::Damaged("a field of no type")),
        }
    }

    fn structure(&mut self, fields: &'static [Slot], levels: u8) -> Result<(), Refusal> {
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            self.value(kind, slot(fields, id), levels)?;
        }
        Ok(())
    }

    fn items(&mut self, item: Slot, levels: u8) -> Result<(), Refusal> {
        let (kind, n) = self.list()?;
        for _ in 0..n {
            self.item(kind, item, levels)?;
        }
        Ok(())
    }

    /// An item of a list or map, which is no truth value.
    fn item(&mut self, kind: u8, slot: Slot, levels: u8) -> Result<(), Refusal> {
        if matches!(kind, TRUE | FALSE) {
            return Err(Refusal::Damaged("a list of truth values, of which the format has none"));
        }
        self.value(kind, slot, levels)
    }

    fn map(&mut self, levels: u8) -> Result<(), Refusal> {
        let n = self.varint()?;
        if n == 0 {
            return Ok(());
        }
        let kinds = self.byte()?;
        for _ in 0..n {
            self.item(kinds >> 4, Slot::Any, levels)?;
            self.item(kinds & 0x0f, Slot::Any, levels)?;
        }
        Ok(())
    }

    /// The list of a schema's elements, each before its children.
    fn schema(&mut self, most_bytes: u64) -> Result<(), Refusal> {
        let (kind, n_elements) = self.list()?;
        if kind != STRUCT {
            return Err(Refusal::Damaged("a schema that is no list of structs"));
        }
        let mut open: Vec<Open> = Vec::new();
        let mut bytes = 0_u64;
        for n_before in 0..n_elements {
            let (name_bytes, n_children) = self.element()?;
            while open.last().is_some_and(|above| above.n_missing == 0) {
                open.pop();
            }
            let above = open.last_mut().map_or(0, |above| {
                above.n_missing -= 1;
                above.path_bytes
            });
            if open.len() >= MOST_LEVELS {
                return Err(Refusal::Deep);
            }
            let path_bytes = above.saturating_add(name_bytes).saturating_add(PATH_BYTES);
            bytes = bytes.saturating_add(ELEMENT_BYTES).saturating_add(path_bytes);
            if bytes > most_bytes {
                return Err(Refusal::Large { bytes });
            }
            if n_children > n_elements - n_before - 1 {
                return Err(Refusal::Damaged("an element of the schema lacks children"));
            }
            open.push(Open { n_missing: n_children, path_bytes });
        }
        Ok(())
    }

    /// Bytes of an element's name, and how many children it has.
    fn element(&mut self) -> Result<(u64, usize), Refusal> {
        let (mut name_bytes, mut n_children) = (0, 0);
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            match (id, kind) {
                (4, BINARY) => {
                    name_bytes = self.varint()?;
                    self.skip(name_bytes)?;
                }
                (5, I32) => {
                    let n = usize::try_from(self.number()?);
                    n_children = n.map_err(|_| Refusal::Damaged("less than no children"))?;
                }
                _ => self.value(kind, slot(SCHEMA_ELEMENT, id), MOST_STRUCTS)?,
            }
        }
        Ok((name_bytes, n_children))
    }
}
