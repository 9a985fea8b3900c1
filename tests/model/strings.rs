//! Columns of strings at random: text, bytes, JSON, interned and categorical ones.

use std::sync::Arc;

use arrow_array::builder::{BinaryViewBuilder, StringDictionaryBuilder, StringViewBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, LargeBinaryArray, LargeStringArray,
    StringArray, make_array,
};
use rowmill::schema::{FieldSpec, Stored};

use super::arbitrary::{Columns, Form, Mask, Rows, Strings, Want};
use super::every_kind::Random;

/// Texts that are JSON, and categories; all of one length, for columns of one size.
const TEXTS: [&str; 4] = ["[12]", "1e10", "\"é\"", "null"];

/// Texts that are neither.
const OTHERS: [&str; 3] = ["oops", "{no}", "日a"];

pub(super) fn add_strings(
    columns: &mut Columns,
    name: &str,
    strings: Strings,
    form: Form,
    valid: &Mask,
    rows: &Rows,
    random: &mut Random,
) {
    use Strings::{
        Binary, BinaryView, Dictionary, FixedSizeBinary, LargeBinary, LargeUtf8, Utf8, Utf8View,
    };
    // Numbers of one size are not text.
    let form = match (strings, form) {
        (FixedSizeBinary, Form::Json | Form::Categorical)
        | (Binary | LargeBinary | BinaryView, Form::Categorical) => Form::Plain,
        (_, form) => form,
    };
    let free = matches!(form, Form::Plain | Form::Interned) && !matches!(strings, FixedSizeBinary);
    // Most writers of Arrow leave nothing beneath nulls, some leave anything.
    let others =
        if random.below(2) == 0 && !matches!(strings, FixedSizeBinary) { [""; 3] } else { OTHERS };
    let texts: Vec<String> = (0..rows.n_all)
        .map(|row| {
            let has = valid.has(row);
            let text = if has {
                TEXTS[random.below(4) as usize]
            } else {
                others[random.below(3) as usize]
            };
            if free { text.repeat(random.below(3) as usize) } else { text.into() }
        })
        .collect();
    let some = || texts.iter().map(Some);
    let whole = valid.nulls();
    let with_nulls = |array: ArrayRef| match &whole {
        None => array,
        Some(_) => make_array(array.to_data().into_builder().nulls(whole.clone()).build().unwrap()),
    };
    let array: ArrayRef = match strings {
        Utf8 => with_nulls(Arc::new(some().collect::<StringArray>())),
        LargeUtf8 => with_nulls(Arc::new(some().collect::<LargeStringArray>())),
        Binary => with_nulls(Arc::new(some().collect::<BinaryArray>())),
        LargeBinary => with_nulls(Arc::new(some().collect::<LargeBinaryArray>())),
        FixedSizeBinary => {
            let texts = texts.iter().map(|text| Some(text.as_bytes()));
            let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(texts, 4).unwrap();
            with_nulls(Arc::new(array))
        }
        Utf8View => {
            let mut builder = StringViewBuilder::new();
            builder.extend(some());
            with_nulls(Arc::new(builder.finish()))
        }
        BinaryView => {
            let mut builder = BinaryViewBuilder::new();
            builder.extend(some());
            with_nulls(Arc::new(builder.finish()))
        }
        Dictionary => {
            let mut builder = StringDictionaryBuilder::<Int8Type>::new();
            builder.extend(some());
            with_nulls(Arc::new(builder.finish()))
        }
    };
    let mut want = Want { valid: valid.bytes(rows), ..Want::default() };
    let mut offsets = vec![0];
    for row in rows.range() {
        let has = valid.has(row);
        match form {
            Form::Categorical => {
                let code = TEXTS.iter().position(|text| *text == texts[row]).filter(|_| has);
                want.bytes.push(code.map_or(0xff, |code| code as u8));
            }
            _ if has => want.bytes.extend(texts[row].bytes()),
            _ => {}
        }
        offsets.push(want.bytes.len() as i64);
    }
    let mut spec = FieldSpec::default();
    match form {
        Form::Plain => {}
        Form::Interned => spec.intern = true,
        Form::Json => spec.dtype = Some(Stored::Json),
        Form::Categorical => {
            spec.categorical = Some(TEXTS.iter().map(|&text| text.into()).collect());
        }
    }
    if matches!(strings, FixedSizeBinary) {
        spec.dtype = Some(Stored::Binary);
    }
    want.offsets = (!matches!(form, Form::Categorical)).then_some(offsets);
    columns.add(name, valid.is_nullable(), array, spec, want);
}
