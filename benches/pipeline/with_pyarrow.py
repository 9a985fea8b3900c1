"""The same field files with pyarrow, with as many threads as it likes.

    with_pyarrow.py csv|jsonl|parquet FILE OUT
"""

import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from field_files import arguments, save_arrow

READERS = {
    "csv": pyarrow.csv.read_csv,
    "jsonl": pyarrow.json.read_json,
    "parquet": pyarrow.parquet.read_table,
}

read, source, out = arguments(READERS)
table = read(source)
for name in table.column_names:
    save_arrow(out, name, table.column(name).chunks)
