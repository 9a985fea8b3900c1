"""Compares every value of Rowmill datasets with the Parquet and Arrow files that they were made from.

    python3 tests/reference/compare_tables.py list.txt

Each line of the list is a dataset, a tab, and the file; PyArrow reads the files, the reader beside this
one the datasets. Says which files PyArrow cannot read.
"""

import decimal
import json
import math
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import rowmill_reader


def read(path):
    """The file as a table."""
    if ".parquet" in path:
        return pa.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
    with pa.OSFile(path) as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).read_all() if is_file else pa.ipc.open_stream(file).read_all()


def as_numbers(array):
    """Dates and times as the integers that they are, dictionaries as their values."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return as_numbers(array.dictionary_decode())
    if pa.types.is_date64(kind):
        return as_numbers(array.cast(pa.date32()))
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return array.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return array.view(pa.int64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        array = pa.concat_arrays([array])
        make = pa.ListArray if pa.types.is_list(kind) else pa.LargeListArray
        offsets = array.offsets
        return make.from_arrays(offsets, as_numbers(array.values), mask=array.is_null())
    return array


def column(table, name):
    """The values of field `name` of each row, with structs opened where the dots are."""
    rest = name
    arrays = [(table.column(i), table.column_names[i]) for i in range(table.num_columns)]
    while True:
        array, own = next((a, n) for a, n in arrays if rest == n or rest.startswith(n + "."))
        if rest == own:
            break
        rest = rest[len(own) + 1:]
        whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
        whole = whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole
        arrays = list(zip(whole.flatten(), [field.name for field in whole.type]))
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return [value for chunk in chunks for value in as_numbers(chunk).to_pylist()]


def plain(field, value):
    """What the reader gives, in Python's own types."""
    if value is None:
        return None
    if field.type == "json":
        return json.loads(value)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.view("<i8"))
    if isinstance(value, np.ndarray):
        return value.view("<i8").tolist() if value.dtype.kind in "mM" else value.tolist()
    return value


def same(got, want):
    """Whether two values are one, with what JSON cannot say in its form."""
    if isinstance(want, dict) and isinstance(got, dict):
        return got.keys() == want.keys() and all(same(got[key], want[key]) for key in want)
    if isinstance(got, dict) and isinstance(want, list):
        return same(got, dict(want))
    if isinstance(want, bytes) and isinstance(got, list):
        return bytes(got) == want
    if isinstance(want, (list, tuple)):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, float) and math.isnan(want):
        return got is None or (isinstance(got, float) and math.isnan(got))
    if isinstance(want, decimal.Decimal) and isinstance(got, str):
        return decimal.Decimal(got) == want
    return got == want


def main():
    n_files, n_values, n_wrong = 0, 0, 0
    with open(sys.argv[1], encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in lines]
    for dataset, path in pairs:
        try:
            table = read(path)
        except (pa.ArrowException, OSError) as error:
            print(f"PyArrow cannot read {path}: {str(error)[:100]}")
            continue
        data = rowmill_reader.open(dataset)
        assert len(data) == table.num_rows, (path, len(data), table.num_rows)
        rows = list(data.rows())
        for field in data.fields:
            want = column(table, field.name)
            for i, row in enumerate(rows):
                got = plain(field, row[field.name])
                if not same(got, want[i]):
                    print(f"{path}, field {field.name}, row {i}: {got!r} is not {want[i]!r}")
                    n_wrong += 1
                    break
            n_values += len(rows)
        n_files += 1
    if n_wrong > 0:
        return 1
    print(f"{n_values} values of {n_files} files agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
