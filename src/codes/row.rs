//! Codes of what is wrong with one row, and so of rejects.

macro_rules! row_codes {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*]
            $($before)*
            RowInputDamaged = "input_damaged":
                "An input cannot be read from this row on.",
                "It is truncated, a compressed block is damaged, or it is not of this format at all.",
                "Fetch the file again. With `on_error = \"quarantine\"` its rest is one reject.",
                "`b.csv.gz`, row 17: the compressed data ends too early";
            RowNotUtf8 = "not_utf8":
                "A text of a row is not UTF-8.",
                "The file has another encoding, or bytes that are no text.",
                "Convert the file, read the column as binary, or reject such rows with `on_error = \"quarantine\"`.",
                "`a.csv`, line 3, field `name`: not UTF-8";
            RowTooLarge = "row_too_large":
                "A row has more bytes than `max_row_bytes`.",
                "The bound is what memory is planned with.",
                "Raise `max_row_bytes` in [dataset], drop such rows before, or reject them.",
                "`b.csv`, row 0: 23 bytes, and a row may have 22";
            RowValue = "value_misfit":
                "A value cannot be what its column or field holds.",
                "It is no number, out of range, or not among the declared ones.",
                "Choose a wider type, correct the input, or reject such rows with `on_error = \"quarantine\"`.",
                "`b.csv`, line 3, row 1, field `n`: \"x\" is no int64";
            RowNull = "null":
                "A value is absent where there must be one.",
                "The field is not nullable.",
                "Fill it before, set `nullable = true` in [dataset.fields], or reject such rows.",
                "`b.csv`, row 1, field `n`: there is no value";
            RowNullItem = "null_item":
                "A list holds a null.",
                "The values of a list lie one after another; there is no place for nulls between them.",
                "Fill them before, store the field as `dtype = \"json\"`, or reject such rows.",
                "`b.jsonl`, row 1, field `points`: a null within a list";
            RowOutOfRange = "out_of_range":
                "A number does not fit its field's dtype.",
                "The dtype is too narrow, or the number is not whole.",
                "Choose a wider dtype in [dataset.fields], or reject such rows.",
                "`b.csv`, row 1, field `n`: 400 is no int8";
            RowShape = "shape":
                "An array has another shape than its field.",
                "Its lists are longer, shorter, or not rectangular.",
                "Correct the shape in [dataset.fields], or reject such rows.",
                "`b.jsonl`, row 1, field `panel`: 5 values where 6 belong";
            RowAxis = "axis":
                "Lists that share an axis have different lengths in a row.",
                "Fields on one axis have the same number of entries in each row.",
                "Give them axes of their own in [dataset.fields], or reject such rows.",
                "`b.jsonl`, row 1, field `mass`: 3 entries, and axis `atoms` has 4";
            RowNotJson = "not_json":
                "A value has no form in JSON, or a text is no JSON.",
                "The field is stored as JSON.",
                "Store it as text, or reject such rows.",
                "`b.csv`, row 1, field `meta`: this is not JSON";
            RowCategory = "category":
                "A value is not in the declared list of a categorical field.",
                "The list is incomplete, or the value is misspelt.",
                "Add it to the list, at its end (`rowmill init categories` prints one of the data), or reject such rows.",
                "`b.csv`, row 1, field `word`: \"four\" is not in `categorical`";
            RowFieldCount = "field_count":
                "A record has more or fewer fields than there are columns.",
                "A delimiter stands in a value without quotes, or the record is cut off.",
                "Correct the record, check `delimiter` and `quote`, or reject such rows.",
                "`a.csv`, line 3: 4 fields, and there are 3 columns";
            RowUnclosedQuote = "unclosed_quote":
                "A quoted field has no end.",
                "A quote is missing, or stands within a value without being doubled.",
                "Correct the record, or check `quote`.",
                "`a.csv`, line 3: a quoted field is not closed";
            RowLineEnd = "line_end_in_value":
                "A quoted field holds a line end where none is allowed.",
                "`newlines_in_values = false` promises that there are none.",
                "Set it to `true`, correct the record, or reject such rows.",
                "`a.csv`, line 3: a line end within quotes";
            RowRepeatedKey = "repeated_key":
                "A key stands twice in an object.",
                "It was written twice, or two records were joined into one line.",
                "Keep one of the two, or reject such rows with `on_error = \"quarantine\"`.",
                "`a.jsonl`, line 3, row 2: the key `color` stands twice in an object";
            RowUnknownKey = "unknown_key":
                "An object has a key that no column has.",
                "The columns were inferred from the first objects, or declared without it.",
                "Declare the key's type, let the source ignore unknown keys, or reject such rows.",
                "`a.jsonl`, line 3: the key `color` is no column";
            RowSchemaMismatch = "schema_mismatch":
                "An input has other columns than the first one.",
                "It was written by another program or version.",
                "Leave it out, give the columns one type with the source's settings, or reject its rows.",
                "`b.parquet`: column `n` is text here";
            RowPageTooLarge = "page_too_large":
                "Rows lie in a page that takes more memory than the definition allows.",
                "A page is decoded as a whole, however few of its rows are wanted.",
                "Raise `page_bytes` of the source, name fewer `columns`, or write the file with smaller pages.",
                "`a.parquet`, row 7: its page has 999999999 bytes";
            RowBatchTooLarge = "batch_too_large":
                "Rows lie in a record batch that takes more memory than the definition allows.",
                "A batch is decoded as a whole, however few of its rows are wanted.",
                "Raise `max_batch_bytes` of the source, or write the file with smaller batches.",
                "`a.arrow`, row 7: its batch has 999999999 bytes";
            RowRefused = "row-refused":
                "A row cannot be stored or transformed.",
                "The stage that met it says why; its reject has a code of the stage's own.",
                "Correct the input, or reject such rows with `on_error = \"quarantine\"`.",
                "`b.csv`, row 1, field `panel`: lists on one axis have other lengths";
        }
    };
}
