//! The head of a `.npy` file, as NumPy's format versions 1.0, 2.0 and 3.0 define it.
//!
//! Its text is the literal of a Python dictionary with three keys. Only what NumPy writes there is
//! read: a general reader of literals would recurse as deep as a file says.
//!
//! Invariant: an array of objects is refused by its type alone. Nothing here can unpickle.

use super::arrays::{ArrayHead, Refusal};
use crate::schema::Dtype;

/// Bytes before the length of the text: the magic string and the version.
pub(super) const MAGIC_BYTES: usize = 8;
/// The longest text, that of version 1.0. Longer ones are of structured arrays.
const MOST_TEXT_BYTES: u32 = 0xFFFF;

const NOT_NPY: &str = "leave it out of `path`; `numpy.save` writes what this source reads";

/// Bytes of the field behind `magic`, the first [`MAGIC_BYTES`] of a file, that has the text's length.
pub(super) fn length_bytes(magic: &[u8]) -> Result<usize, Refusal> {
    match magic {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, 0] => Ok(2),
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, 0] => Ok(4),
        [0x93, b'N', b'U', b'M', b'P', b'Y', major, minor] => Err((
            format!("the format version {major}.{minor} is not known"),
            "load it with a newer NumPy and save it again",
        )),
        [0x80, 2..=5, ..] => Err((
            "not an .npy file but a pickle".into(),
            "a pickle is never read, for it can run code; load it where it is trusted and write it \
             with `numpy.save(path, array, allow_pickle=False)`",
        )),
        [b'P', b'K', 3, 4, ..] => Err((
            "not an .npy file but a zip archive, as .npz files are".into(),
            "unpack it: each of its members is an .npy file",
        )),
        _ => Err(("not an .npy file".into(), NOT_NPY)),
    }
}

/// The length of the text, from the field that says it.
pub(super) fn text_bytes(field: &[u8]) -> Result<usize, Refusal> {
    let length = field.iter().rev().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
    if length > MOST_TEXT_BYTES {
        let message = format!("a head of {length} bytes, of at most {MOST_TEXT_BYTES}");
        return Err((message, "save each field of a structured array as an array of its own"));
    }
    Ok(length as usize)
}

/// Reads the text of a head that ends at byte `start` of the file.
pub(super) fn parse(text: &[u8], start: u64) -> Result<ArrayHead, Refusal> {
    let malformed = |what: &str| (format!("the head is malformed: {what}"), NOT_NPY);
    let text = std::str::from_utf8(text).map_err(|_| malformed("it is not text"))?;
    let mut rest = Text(text);
    let (mut descr, mut order, mut shape) = (None, None, None);
    rest.take('{').ok_or_else(|| malformed("no dictionary"))?;
    while rest.take('}').is_none() {
        let key = rest.string().ok_or_else(|| malformed("no key"))?;
        rest.take(':').ok_or_else(|| malformed("no value"))?;
        let is_new = match key {
            "descr" if rest.0.trim_start().starts_with(['[', '(']) => {
                return Err((
                    "a structured array".into(),
                    "save each of its fields as an array of its own",
                ));
            }
            "descr" => {
                let value = rest.string().ok_or_else(|| malformed("`descr` is no text"))?;
                descr.replace(value).is_none()
            }
            "fortran_order" => {
                let value = rest.truth().ok_or_else(|| malformed("`fortran_order` is no bool"))?;
                order.replace(value).is_none()
            }
            "shape" => {
                let value =
                    rest.tuple().ok_or_else(|| malformed("`shape` is no tuple of sizes"))?;
                shape.replace(value).is_none()
            }
            _ => return Err(malformed(&format!("an unknown key {key:?}"))),
        };
        if !is_new {
            return Err(malformed(&format!("two keys {key:?}")));
        }
        if rest.take(',').is_none() && !rest.0.trim_start().starts_with('}') {
            return Err(malformed("no end"));
        }
    }
    if !rest.0.trim().is_empty() {
        return Err(malformed("text behind its end"));
    }
    let (Some(descr), Some(is_fortran), Some(shape)) = (descr, order, shape) else {
        return Err(malformed("`descr`, `fortran_order` or `shape` is missing"));
    };
    let (item, is_big_endian) = item(descr)?;
    // Of an array with one axis that has several entries, both orders are the same.
    let is_fortran = is_fortran && shape.iter().filter(|n| **n != 1).count() > 1;
    Ok(ArrayHead { item, is_big_endian, is_fortran, shape, start })
}

/// The type that NumPy writes as `descr`, and whether its values are big-endian.
fn item(descr: &str) -> Result<(Dtype, bool), Refusal> {
    let (order, kind) = match descr.chars().next() {
        Some(order @ ('<' | '>' | '|')) => (order, descr.get(1..).unwrap_or_default()),
        _ => ('|', descr),
    };
    let item = match kind {
        "b1" | "?" => Dtype::Bool,
        "i1" => Dtype::Int8,
        "i2" => Dtype::Int16,
        "i4" => Dtype::Int32,
        "i8" => Dtype::Int64,
        "u1" => Dtype::Uint8,
        "u2" => Dtype::Uint16,
        "u4" => Dtype::Uint32,
        "u8" => Dtype::Uint64,
        "f2" => Dtype::Float16,
        "f4" => Dtype::Float32,
        "f8" => Dtype::Float64,
        _ => return Err(unsupported(descr, kind)),
    };
    if order == '|' && item.size() > 1 {
        let message = format!("the type {descr:?} does not tell the order of bytes");
        return Err((message, "load it with NumPy and save it again"));
    }
    Ok((item, order == '>'))
}

fn unsupported(descr: &str, kind: &str) -> Refusal {
    let (what, hint) = match kind.chars().next() {
        Some('O') => (
            "an array of Python objects, which is a pickle",
            "a pickle is never read, for it can run code; save arrays of numbers, one per file",
        ),
        Some('U' | 'S' | 'a') => {
            ("an array of text", "write it as CSV, JSON Lines or Parquet, which have sources too")
        }
        Some('c') => (
            "an array of complex numbers",
            "save real and imaginary parts: `numpy.stack([a.real, a.imag], -1)`",
        ),
        Some('M' | 'm') => ("an array of times", "save them as numbers: `array.astype('int64')`"),
        Some('f') => {
            ("an array of wider floats than float64", "save it as `array.astype('float64')`")
        }
        Some('V') => (
            "an array of raw bytes",
            "save it as numbers: `array.view('uint16')`, and give the field `dtype = \"bfloat16\"` \
             if it is that",
        ),
        _ => ("an array of an unknown type", NOT_NPY),
    };
    (format!("{what} ({descr:?}) is not read"), hint)
}

/// What is left of the text.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// Takes `c`, and spaces before it.
    fn take(&mut self, c: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(c)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start();
        let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (string, rest) = text.strip_prefix(quote)?.split_once(quote)?;
        self.0 = rest;
        (!string.contains('\\')).then_some(string)
    }

    fn truth(&mut self) -> Option<bool> {
        let text = self.0.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = text.strip_prefix(word) {
                self.0 = rest;
                return Some(value);
            }
        }
        None
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut numbers = Vec::new();
        self.take('(')?;
        while self.take(')').is_none() {
            let text = self.0.trim_start();
            let (digits, rest) =
                text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
            numbers.push(digits.parse().ok()?);
            // Python 2 wrote its long integers so.
            self.0 = rest.strip_prefix('L').unwrap_or(rest);
            // Without a comma, one number in parentheses is no tuple.
            if self.take(',').is_none()
                && (numbers.len() < 2 || !self.0.trim_start().starts_with(')'))
            {
                return None;
            }
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<ArrayHead, String> {
        let parsed = parse(text.as_bytes(), 128);
        parsed.map_err(|(message, hint)| {
            assert!(!hint.is_empty());
            message
        })
    }

    #[test]
    fn heads_are_read_as_numpy_writes_them() {
        for (text, item, big, fortran, shape) in [
            (
                "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   \n",
                Dtype::Float64,
                false,
                false,
                vec![3, 4],
            ),
            (
                "{'descr':'|b1','fortran_order':True,'shape':(5,)}",
                Dtype::Bool,
                false,
                false,
                vec![5],
            ),
            (
                "{\"shape\": (2L, 3L), \"descr\": \">i2\", \"fortran_order\": True}",
                Dtype::Int16,
                true,
                true,
                vec![2, 3],
            ),
            (
                "{'descr': '|u1', 'fortran_order': False, 'shape': (), }",
                Dtype::Uint8,
                false,
                false,
                vec![],
            ),
            (
                "{'descr': '<f2', 'fortran_order': True, 'shape': (1, 7, 1), }",
                Dtype::Float16,
                false,
                false,
                vec![1, 7, 1],
            ),
        ] {
            let want =
                ArrayHead { item, is_big_endian: big, is_fortran: fortran, shape, start: 128 };
            assert_eq!(head(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_array_of_numbers_is_refused_by_name() {
        for (descr, want) in [
            ("'|O'", "an array of Python objects, which is a pickle (\"|O\") is not read"),
            ("'<U5'", "an array of text (\"<U5\") is not read"),
            ("'|S3'", "an array of text (\"|S3\") is not read"),
            ("'<c16'", "an array of complex numbers (\"<c16\") is not read"),
            ("'<M8[ns]'", "an array of times (\"<M8[ns]\") is not read"),
            ("'<f16'", "an array of wider floats than float64 (\"<f16\") is not read"),
            ("'|V2'", "an array of raw bytes (\"|V2\") is not read"),
            ("'<i3'", "an array of an unknown type (\"<i3\") is not read"),
            ("''", "an array of an unknown type (\"\") is not read"),
            ("'|i8'", "the type \"|i8\" does not tell the order of bytes"),
            ("[('a', '<f4'), ('b', '<f4')]", "a structured array"),
            ("('<f4', (2, 3))", "a structured array"),
        ] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (3,), }}\n");
            assert_eq!(head(&text), Err(want.to_owned()), "{descr}");
        }
    }

    #[test]
    fn heads_that_numpy_would_not_write_are_refused() {
        let good = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        for (from, to, want) in [
            (good, "", "no dictionary"),
            (good, "{", "no key"),
            (good, "{}", "`descr`, `fortran_order` or `shape` is missing"),
            ("}", "", "no key"),
            (", }", "", "no end"),
            ("}", "} {", "text behind its end"),
            ("'descr'", "'dtype'", "an unknown key \"dtype\""),
            ("'descr': '<f8'", "'descr' '<f8'", "no value"),
            ("'<f8'", "8", "`descr` is no text"),
            ("'<f8'", "'<\\x66'", "`descr` is no text"),
            ("False", "0", "`fortran_order` is no bool"),
            ("(3, 4)", "[3, 4]", "`shape` is no tuple of sizes"),
            ("(3, 4)", "(3)", "`shape` is no tuple of sizes"),
            ("(3, 4)", "(-3, 4)", "`shape` is no tuple of sizes"),
            ("(3, 4)", "(3 4)", "`shape` is no tuple of sizes"),
            ("(3, 4)", "(,)", "`shape` is no tuple of sizes"),
            ("(3, 4)", "(99999999999999999999,)", "`shape` is no tuple of sizes"),
            ("'shape'", "'descr': '<f8', 'shape'", "two keys \"descr\""),
        ] {
            let text = good.replacen(from, to, 1);
            assert_eq!(head(&text), Err(format!("the head is malformed: {want}")), "{text}");
        }
        assert!(parse(&[0xFF; 10], 0).is_err());
        // As deep as a head can be.
        assert!(head(&"{".repeat(60_000)).is_err());
        assert!(head(&format!("{{'shape': {}", "(".repeat(60_000))).is_err());
    }

    #[test]
    fn magic_and_length_are_checked() {
        for (magic, want) in [
            (b"\x93NUMPY\x01\x00".as_slice(), Ok(2)),
            (b"\x93NUMPY\x02\x00", Ok(4)),
            (b"\x93NUMPY\x03\x00", Ok(4)),
            (b"\x93NUMPY\x04\x01", Err("the format version 4.1 is not known")),
            (b"\x80\x02cnumpy", Err("not an .npy file but a pickle")),
            (b"PK\x03\x04\0\0\0\0", Err("not an .npy file but a zip archive, as .npz files are")),
            (b"\x93NUM", Err("not an .npy file")),
            (b"", Err("not an .npy file")),
        ] {
            let got = length_bytes(magic).map_err(|(message, _)| message);
            assert_eq!(got, want.map_err(str::to_owned), "{magic:?}");
        }
        assert_eq!(text_bytes(&[0x76, 0]), Ok(118));
        assert_eq!(text_bytes(&[0xFF, 0xFF, 0, 0]), Ok(65_535));
        assert!(text_bytes(&[0, 0, 1, 0]).is_err());
    }
}
