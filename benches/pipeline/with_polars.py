"""The same field files with polars, with as many threads as it likes.

    with_polars.py csv|jsonl|parquet FILE OUT
"""

import polars as pl
from field_files import arguments, save_arrow

READERS = {"csv": pl.read_csv, "jsonl": pl.read_ndjson, "parquet": pl.read_parquet}

read, source, out = arguments(READERS)
for column in read(source).get_columns():
    chunks = [chunk.to_arrow(compat_level=pl.CompatLevel.oldest()) for chunk in column.get_chunks()]
    save_arrow(out, column.name, chunks)
