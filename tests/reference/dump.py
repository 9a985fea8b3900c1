"""Prints the rows of a Rowmill dataset or shard as JSON lines, or verifies it.

    python3 tests/reference/dump.py out/digits
    python3 tests/reference/dump.py --verify out/digits      # "ok: 7186 rows in 9 shards"

JSON has no word for some values, so they are objects: {"hex": "…"} for bytes, {"float": "nan"} (or
"inf", "-inf") for floats that are no number, {"decimal": "1.50"}, {"date": …}, {"timestamp": …},
{"time": …} and {"duration": …} as integers of the unit that the schema names.
"""

import argparse
import decimal
import json
import math
import sys

import numpy as np

import rowmill_reader
import rowmill_verify


def to_json(field, value):
    """A reader's value as what json can write."""
    if isinstance(value, np.ndarray):
        return [to_json(field, item) for item in value]
    if isinstance(value, (np.datetime64, np.timedelta64)):
        name = {"date32": "date", "time64": "time"}.get(field.type, field.type)
        return {name: int(value.view("<i8"))}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("path", help="folder of a dataset, a cache key or a shard")
    parser.add_argument("--verify", action="store_true", help="check everything instead of printing rows")
    arguments = parser.parse_args()
    try:
        if arguments.verify:
            wrong = rowmill_verify.verify(arguments.path)
            for message in wrong:
                print(message, file=sys.stderr)
            if wrong:
                return 4
            data = rowmill_reader.open(arguments.path)
            print(f"ok: {data.n_rows} rows in {len(data.shard_ids)} shards")
            return 0
        data = rowmill_reader.open(arguments.path)
        for row in data.rows():
            values = {field.name: to_json(field, row[field.name]) for field in data.fields}
            print(json.dumps(values, ensure_ascii=False))
    except rowmill_reader.FormatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
