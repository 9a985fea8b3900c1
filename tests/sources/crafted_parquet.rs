//! Parquet files made byte by byte, whose footers and page headers say what no writer would: a clear
//! refusal, in no time and little memory, where the library alone would overflow its stack, allocate
//! what is claimed or count for days.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use rowmill::batch::Restart;
use rowmill::schema::RowSchema;
use serde_json::json;

use super::conformance::{self, LIMITS};
use super::{folder, part_of, source};

/// A number as Thrift's compact protocol writes it.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// A struct with children, or the root, which has no repetition.
fn group(name: &str, n_children: u32, is_root: bool) -> Vec<u8> {
    let mut out = if is_root { vec![0x48] } else { vec![0x35, 0, 0x18] };
    varint(name.len() as u64, &mut out);
    out.extend(name.as_bytes());
    out.push(0x15);
    varint(u64::from(n_children) * 2, &mut out);
    out.push(0);
    out
}

/// A column of int32.
fn leaf(name: &str) -> Vec<u8> {
    let mut out = vec![0x15, 2, 0x25, 0, 0x18];
    varint(name.len() as u64, &mut out);
    out.extend(name.as_bytes());
    out.push(0);
    out
}

/// A file of no rows whose footer has this schema, and `more` fields behind its own.
fn file(elements: &[Vec<u8>], more: &[u8]) -> Vec<u8> {
    let mut footer = vec![0x15, 2, 0x19, 0xfc];
    varint(elements.len() as u64, &mut footer);
    footer.extend(elements.concat());
    // Number of rows, no row groups.
    footer.extend([0x16, 0, 0x19, 0x0c]);
    footer.extend(more);
    footer.push(0);
    framed(&[], &footer)
}

/// A file with one row group of one row, a page of one int32 that is 7, with `more` fields in the header
/// of the page; the total of rows is left at 0, as some writers do.
fn file_with_page(more: &[u8]) -> Vec<u8> {
    // Type, sizes, and the header of a data page: one value, plain, levels by run length.
    let mut page = vec![0x15, 0, 0x15, 8, 0x15, 8, 0x2c, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0];
    page.extend(more);
    page.extend([0, 7, 0, 0, 0]);
    // Type, encodings, path, codec, values, sizes, and where the page is.
    let mut chunk =
        vec![0x26, 8, 0x1c, 0x15, 2, 0x19, 0x15, 0, 0x19, 0x18, 1, b'a', 0x15, 0, 0x16, 2];
    for (field, value) in [(0x16, page.len()), (0x16, page.len()), (0x26, 4)] {
        chunk.push(field);
        varint(value as u64 * 2, &mut chunk);
    }
    chunk.extend([0, 0]);
    let mut footer = vec![0x15, 2, 0x19, 0x2c];
    footer.extend([group("root", 1, true), leaf("a")].concat());
    footer.extend([0x16, 0, 0x19, 0x1c, 0x19, 0x1c]);
    footer.extend(chunk);
    // Bytes and rows of the row group.
    footer.extend([0x16, 8, 0x16, 2, 0, 0]);
    framed(&page, &footer)
}

fn framed(pages: &[u8], footer: &[u8]) -> Vec<u8> {
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", pages, footer, &length, b"PAR1"].concat()
}

/// `levels` elements, each within the one before it.
fn nested(levels: usize) -> Vec<Vec<u8>> {
    let mut elements = vec![group("root", 1, true)];
    elements.extend((2..levels).map(|_| group("g", 1, false)));
    elements.push(leaf("x"));
    elements
}

/// What planning says: the number of columns, or message and hint.
fn planned(file: &[u8]) -> Result<usize, String> {
    let root = folder(&[("a.parquet", file)]);
    let source = source("parquet", root.path(), &["*"], json!({}));
    let inputs = source.list().unwrap();
    let schema = source.schema(inputs.first());
    let schema = schema.map_err(|e| format!("{e}; {}", e.hint().unwrap()))?;
    assert_eq!(source.rows_hint(&inputs[0]), Some(0));
    Ok(RowSchema::infer(&schema, &BTreeMap::new(), None).unwrap().fields().len())
}

#[test]
fn schemas_that_are_no_schemas_are_refused() {
    assert_eq!(planned(&file(&[group("root", 2, true), leaf("a"), leaf("b")], &[])), Ok(2));
    assert_eq!(planned(&file(&nested(128), &[])), Ok(1));
    let wide = |n: u32, name: &str| {
        let mut elements = vec![group("root", 1, true), group(name, n, false)];
        elements.extend((0..n).map(|i| leaf(&i.to_string())));
        elements
    };
    assert_eq!(planned(&file(&wide(5000, "g"), &[])), Ok(5000));
    let claims = vec![group("root", 2, true), group("g", i32::MAX as u32, false), leaf("x")];
    let deep = "the schema is nested too deeply; write the input again; what the reader met: more \
                than 128 levels";
    let no_footer = "the footer cannot be read; write the input again; what the reader met: ";
    let large = "the columns that the footer names take 3";
    for (name, elements, want) in [
        ("one level more", nested(129), deep.to_owned()),
        ("thousands of levels", nested(5000), deep.to_owned()),
        ("as many as fit", nested(500_000), deep.to_owned()),
        ("children claimed", claims, format!("{no_footer}an element of the schema lacks children")),
        ("many columns", wide(100_000, "g"), large.to_owned()),
        ("a long name above many", wide(2000, &"g".repeat(1 << 20)), large.to_owned()),
    ] {
        let refused = planned(&file(&elements, &[])).unwrap_err();
        let refused = refused.strip_prefix("`a.parquet`, footer: ").unwrap();
        assert!(refused.starts_with(&want), "{name}: {refused}");
    }
}

#[test]
fn lists_that_claim_more_than_there_is_are_refused() {
    let elements = [group("root", 1, true), leaf("a")];
    let list = |kind: u8, items: &[u8]| {
        // A field that the format does not know.
        let mut out = vec![0xf9, 0xf0 | kind];
        varint(1 << 31, &mut out);
        out.extend(items);
        out
    };
    // A list of as many lists of truth values as there is room for, each of 2^31.
    let mut truths = vec![0xf9, 0xf9];
    varint(100_000, &mut truths);
    for _ in 0..100_000 {
        truths.extend([0xf2, 0x80, 0x80, 0x80, 0x80, 0x08]);
    }
    let few_truths = vec![0xf9, 0x22, 1, 1];
    let deep: Vec<u8> = [0xfc].into_iter().chain(std::iter::repeat_n(0x1c, 100_000)).collect();
    for (name, more, want) in [
        ("truths", truths, "it ends too early"),
        ("few truths", few_truths, "a list of truth values, of which the format has none"),
        ("numbers", list(5, &[1, 2, 3]), "it ends too early"),
        ("structs", list(12, &[0, 0, 0]), "it ends too early"),
        ("deep structs", deep, "structs without end"),
        ("another type", vec![0x18, 1, b'x'], "a field that has not the type of the format"),
        ("an endless number", [&[0xf5][..], &[0xff; 1000]].concat(), "a number without end"),
    ] {
        let refused = planned(&file(&elements, &more)).unwrap_err();
        assert!(refused.ends_with(&format!("what the reader met: {want}")), "{name}: {refused}");
    }
}

#[test]
fn page_headers_that_claim_more_than_there_is_are_refused() {
    let mut truths = vec![0xf9, 0x19];
    truths.extend([0xf2, 0x80, 0x80, 0x80, 0x80, 0x07]);
    let long = [&[0xf8][..], &[0xff, 0xff, 0x3f], &vec![b'x'; 1 << 20], &[0]].concat();
    for (name, more, want) in [
        ("none", &[][..], Ok(1)),
        ("a text", &[0xf8, 2, b'x', b'y'], Ok(1)),
        ("truths", &truths, Err("it ends too early")),
        (
            "few truths",
            &[0xf9, 0x12, 1],
            Err("a list of truth values, of which the format has none"),
        ),
        ("endless", &long, Err("it has no end in a mebibyte")),
    ] {
        let root = folder(&[("a.parquet", &file_with_page(more))]);
        let source = source("parquet", root.path(), &["*"], json!({}));
        let inputs = source.list().unwrap();
        let schema = source.schema(inputs.first()).unwrap();
        assert_eq!(source.rows_hint(&inputs[0]), Some(1), "{name}");
        let part = part_of(&*source, &inputs);
        let read = conformance::read(&*source, &part, &schema, LIMITS, &Restart::default());
        match (read, want) {
            (Ok(read), Ok(n_rows)) => {
                let values = read.rows.column(0).as_primitive::<Int32Type>().values();
                assert_eq!(values.len(), n_rows, "{name}");
                assert_eq!(values[0], 7, "{name}");
            }
            (Err(e), Err(want)) => assert!(e.hint().unwrap().ends_with(want), "{name}: {e:?}"),
            (got, _) => panic!("{name}: {:?}", got.map(|read| read.rows)),
        }
    }
}
