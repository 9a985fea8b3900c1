//! The `text_stats` transform: counts lines, characters and words of a text.
//!
//! Adds three int64 columns, null where the text is null:
//!
//! - `lines`: pieces between line feeds, without the empty one behind a last line feed. An empty
//!   text has none; a carriage return alone ends no line.
//! - `characters`: Unicode scalar values.
//! - `words`: longest runs of characters without the Unicode property `White_Space`.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use schemars::JsonSchema;
use serde::Deserialize;

use super::columns::{Strings, append, emit_pieces, find, is_text, unexpected, with};
use super::{Emit, SettingsError, Stage, Transform, TransformError, TransformType};
use crate::batch::Batch;
use crate::sources::parse_settings;

pub(super) const TYPE: TransformType = TransformType {
    name: "text_stats",
    version: 1,
    about: "counts lines, characters and words of a text column",
    settings: Settings::json_schema,
    run_settings: &[],
    make: |spec| Ok(Box::new(TextStats { settings: parse_settings(&spec.settings)? })),
};

/// Settings of the `text_stats` transform.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The text column.
    input: String,
    /// Stands before `lines`, `characters` and `words` in the names of the new columns.
    #[serde(default)]
    prefix: String,
}

#[derive(Debug)]
struct TextStats {
    settings: Settings,
}

impl Transform for TextStats {
    fn output(&self, input: &SchemaRef) -> Result<SchemaRef, SettingsError> {
        let (_, field) = find(input, "input", &self.settings.input)?;
        if !is_text(field.data_type()) {
            return Err(SettingsError {
                at: vec!["input".to_owned()],
                message: format!("column `{}` is {}, not text", field.name(), field.data_type()),
                hint: Some("a source may give texts: `content = \"text\"`".to_owned()),
            });
        }
        let added = ["lines", "characters", "words"].map(|name| {
            let name = format!("{}{name}", self.settings.prefix);
            Field::new(name, DataType::Int64, field.is_nullable())
        });
        append(input, "prefix", added)
    }

    fn apply(
        &self,
        _stage: Stage,
        batch: Batch,
        emit: &mut dyn Emit,
    ) -> Result<(), TransformError> {
        let schema = batch.rows.schema();
        let output = self.output(&schema).map_err(|e| unexpected(&e))?;
        let (index, _) =
            find(&schema, "input", &self.settings.input).map_err(|e| unexpected(&e))?;
        emit_pieces(&batch, &output, 3 * size_of::<i64>(), emit, |piece| {
            Ok(with(piece, columns(&piece.rows, index)))
        })
    }
}

fn columns(rows: &RecordBatch, index: usize) -> Vec<ArrayRef> {
    let column = rows.column(index);
    let texts = Strings::of(column);
    let counts: Vec<Counts> = (0..rows.num_rows())
        .map(|row| texts.as_ref().and_then(|t| t.get(row)).map(count).unwrap_or_default())
        .collect();
    let numbers = |of: fn(&Counts) -> i64| -> ArrayRef {
        let values: Vec<i64> = counts.iter().map(of).collect();
        Arc::new(Int64Array::new(values.into(), column.logical_nulls()))
    };
    vec![numbers(|c| c.lines), numbers(|c| c.characters), numbers(|c| c.words)]
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    lines: i64,
    characters: i64,
    words: i64,
}

/// Counts in one pass; `text` is UTF-8.
fn count(text: &[u8]) -> Counts {
    let mut counts = Counts::default();
    let mut in_word = false;
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let is_space = if byte.is_ascii() {
            counts.lines += i64::from(byte == b'\n');
            matches!(byte, b'\t'..=b'\r' | b' ')
        } else {
            // The lead byte tells how many follow; only four of them can begin white space.
            let n_following = usize::from(byte >= 0xE0) + usize::from(byte >= 0xF0) + 1;
            let (following, behind) = rest.split_at(n_following.min(rest.len()));
            rest = behind;
            is_wide_space(byte, following)
        };
        counts.characters += 1;
        counts.words += i64::from(!is_space && !in_word);
        in_word = !is_space;
    }
    counts.lines += i64::from(text.last().is_some_and(|last| *last != b'\n'));
    counts
}

/// Whether a character of more than one byte is white space.
fn is_wide_space(lead: u8, following: &[u8]) -> bool {
    match (lead, following) {
        (0xC2, [0x85 | 0xA0]) | (0xE1, [0x9A, 0x80]) | (0xE3, [0x80, 0x80]) => true,
        (0xE2, [0x80, last]) => matches!(last, 0x80..=0x8A | 0xA8 | 0xA9 | 0xAF),
        (0xE2, [0x81, last]) => *last == 0x9F,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn white_space_is_what_the_standard_library_says() {
        for c in '\0'..=char::MAX {
            let is_space = count(c.to_string().as_bytes()).words == 0;
            assert_eq!(is_space, c.is_whitespace(), "U+{:04X}", u32::from(c));
        }
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_standard_library(text in "[a-z \n\r\u{85}\u{2003}é\u{3000}😀]*") {
            let number = |n: usize| i64::try_from(n).unwrap();
            let want = Counts {
                lines: number(text.lines().count()),
                characters: number(text.chars().count()),
                words: number(text.split_whitespace().count()),
            };
            prop_assert_eq!(count(text.as_bytes()), want);
        }
    }
}
