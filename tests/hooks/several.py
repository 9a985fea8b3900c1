"""A hook that makes any number of rows of each: `v % modulus` of the value `v`, as `v * step + i`."""

import json
import os
import sys

import pyarrow as pa

params = json.loads(os.environ["ROWMILL_PARAMS"])
column, answer, modulus = params["column"], params["answer"], params["modulus"]
step = params.get("step", 10)
bad, what = params.get("bad"), params.get("what")
kind = getattr(pa, params.get("kind", "int64"))()
fields = [pa.field(answer, pa.int64()), pa.field("text", pa.string())]
if what != "missing":
    fields.insert(1, pa.field("parent", pa.float32() if what == "float" else kind))
schema = pa.schema(fields)

reader = pa.ipc.open_stream(sys.stdin.buffer)
writer = pa.ipc.new_stream(sys.stdout.buffer, schema)
for batch in reader:
    values = batch.column(column).to_pylist()
    with open(f"{answer}.txt", "a") as log:
        log.write(",".join(str(value) for value in values) + "\n")
    is_bad = bad in values
    if is_bad and what == "exit1":
        os._exit(1)
    made = [(v * step + i, parent) for parent, v in enumerate(values) for i in range(v % modulus)]
    parents = [parent for _, parent in made]
    if is_bad and what == "null":
        parents[-1] = None
    if is_bad and what == "down":
        parents[-1] = 0
    if is_bad and what == "beyond":
        parents[-1] = len(values)
    if is_bad and what == "negative":
        parents[0] = -1
    if is_bad and what == "huge":
        parents[-1] = 2**64 - 1
    columns = {
        # A value that must be there is missing.
        answer: pa.array([None if what == "value" and v == bad else v for v, _ in made], pa.int64()),
        "parent": pa.array(parents, pa.float32() if what == "float" else kind),
        "text": pa.array([params.get("text", "") * (v % 10) for v, _ in made]),
    }
    if what == "missing":
        del columns["parent"]
    writer.write_batch(pa.record_batch([columns[name] for name in schema.names], schema=schema))
    sys.stdout.buffer.flush()
