"""Checks everything docs/format.md promises of a shard or a dataset.

`verify(path)` gives a list of what is wrong, empty where nothing is. Sums come first; what the bytes
mean is checked only where the sums hold. Without the `blake3` package the CRCs still guard every byte,
and `verify` says so by raising, unless told `blake3_required=False`.
"""

import collections
import hashlib
import json
import os
import re
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import rowmill_reader as reader
from rowmill_reader import FormatError, check

try:
    from blake3 import blake3
except ImportError:
    blake3 = None

BLOCK = 1024 * 1024
ROW_GROUP = 65_536
ALWAYS = ("provenance.bin", "index.parquet", "rejects.jsonl", "schema.json", "shapes.json",
          "fingerprint.json", "blocks.bin")


def canonical_sha256(value):
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def b3(data):
    return blake3(data).hexdigest() if blake3 else None


def same_b3(data, want):
    return blake3 is None or b3(data) == want


def document(value):
    """A JSON document as Rowmill writes it."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


def line(value):
    """A line of JSON as Rowmill writes it, without its end."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read(path):
    with reader.open_file(path) as file:
        return file.read()


def listed_sums(text):
    """The lines of B3SUMS as (name, digest)."""
    sums = []
    for row in text.decode("utf-8").split("\n")[:-1]:
        digest, _, name = row.partition("  ")
        check(len(digest) == 64 and name and "/" not in name, f"B3SUMS: cannot read {row!r}")
        sums.append((name, digest))
    check(text.endswith(b"\n") or not text, "B3SUMS: torn")
    names = [name.encode() for name, _ in sums]
    check(names == sorted(set(names)), "B3SUMS: not sorted")
    return sums


def verify_sums(folder):
    """What is wrong with the bytes of a shard, file by file and block by block."""
    wrong = []
    complete_bytes = read(os.path.join(folder, "_COMPLETE"))
    complete = json.loads(complete_bytes)
    sums_text = read(os.path.join(folder, "B3SUMS"))
    if complete_bytes != document({"rows": complete["rows"], "sums_b3": complete["sums_b3"]}):
        wrong.append("_COMPLETE: not as Rowmill writes it")
    if not same_b3(sums_text, complete["sums_b3"]):
        wrong.append("B3SUMS: not the file that _COMPLETE names")
    sums = listed_sums(sums_text)
    there = set(os.listdir(folder)) - {"B3SUMS", "_COMPLETE"}
    listed = {name for name, _ in sums}
    wrong += [f"{name}: missing" for name in sorted(listed - there)]
    wrong += [f"{name}: unexpected" for name in sorted(there - listed)]
    crcs = iter(reader.map_array(os.path.join(folder, "blocks.bin"), "<u4").tolist())
    for name, digest in sums:
        if name not in there:
            continue
        data = reader.map_array(os.path.join(folder, name), "|u1")
        if blake3 and blake3(data).hexdigest() != digest:
            wrong.append(f"{name}: BLAKE3 differs from B3SUMS")
        if name == "blocks.bin":
            continue
        for start in range(0, len(data), BLOCK):
            if zlib.crc32(data[start:start + BLOCK]) != next(crcs, None):
                wrong.append(f"{name}: block {start // BLOCK} differs from blocks.bin")
    if next(crcs, None) is not None:
        wrong.append("blocks.bin: more blocks than the files have")
    return wrong


class Facts:
    """Collects what is not so, and goes on."""

    def __init__(self):
        self.wrong = []

    def say(self, fact, message):
        if not fact:
            self.wrong.append(message)

    def run(self, step, *arguments):
        try:
            return step(self, *arguments)
        except FormatError as error:
            self.wrong.append(str(error))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, OSError,
                pa.ArrowException) as error:
            self.wrong.append(f"{step.__name__}: {type(error).__name__}: {error}")
        return None


def verify_files(facts, shard):
    """The folder holds the files that the schema asks for, and no others."""
    want = {*ALWAYS, "B3SUMS", "_COMPLETE", *(["keys.bin"] if shard.key else [])}
    want.update(name for field in shard.fields for name in field.files)
    there = set(os.listdir(shard.folder))
    facts.say(there == want, f"files {sorted(there ^ want)} are missing or too many")
    for name in ("schema.json", "shapes.json", "fingerprint.json"):
        text = read(shard.path(name))
        facts.say(text == document(json.loads(text)), f"{name}: not as Rowmill writes JSON")


def absent_rows(column):
    return np.flatnonzero(column.valid == 0) if column.valid is not None else ()


def verify_column(facts, shard, field, owners):
    """What the reader takes for granted: absent rows, texts, codes in the order first seen."""
    column, where = shard[field.name], f"field {field.name!r}"
    for row in absent_rows(column):
        numbers = column.numbers(row) if field.kind != "free" else column.dims[row]
        facts.say(not np.any(np.asarray(numbers)), f"{where}: absent row {row} is not zeros")
        if field.axis and owners[field.axis] == 1:
            start, end = column.offsets[row], column.offsets[row + 1]
            facts.say(start == end, f"{where}: absent row {row} has entries")
    if field.dtype == "bool":
        facts.say(not np.any(column.values.view("|u1") > 1), f"{where}: a bool that is neither 0 nor 1")
    if field.type == "json":
        texts = column.dictionary() if column.codes is not None else filter(None, map(column.__getitem__, range(len(shard))))
        for text in texts:
            json.loads(text)
    if column.codes is not None:
        values = column.dictionary()
        facts.say(len(set(values)) == len(values), f"{where}: a value is twice in the dictionary")
        codes, first = np.unique(column.codes[column.codes >= 0], return_index=True)
        in_order = codes.tolist() == list(range(len(values))) and bool((np.diff(first) > 0).all())
        facts.say(in_order, f"{where}: codes are not in the order first seen")
        if field.sidecar:
            pairs = [f"  {json.dumps(str(i))}: {json.dumps(v, ensure_ascii=False)}" for i, v in enumerate(values)]
            text = "{\n" + ",\n".join(pairs) + "\n}\n" if pairs else "{}\n"
            facts.say(read(shard.path(field.sidecar)) == text.encode(), f"{field.sidecar}: not the dictionary")
    else:
        for row in range(len(shard)):
            column[row]


def verify_keys(facts, shard):
    """keys.bin is the sorted hashes of all keys, and no key is there twice."""
    keys = [shard[shard.key.name][row] for row in range(len(shard))]
    facts.say(None not in keys, "a row without a key")
    facts.say(len(set(keys)) == len(keys), "two rows with the same key")
    entries = reader.map_array(shard.path("keys.bin"), reader.KEY)
    facts.say(len(entries) == len(keys), "keys.bin: not one entry per row")
    if blake3:
        want = sorted((reader.key_hash(key), row) for row, key in enumerate(keys))
        facts.say(entries.tolist() == want, "keys.bin: not the sorted hashes of the keys")


def position(run, offset):
    _, at_input, source_row, sub_row = run
    if sub_row == -1:
        return {"input": at_input, "source_row": source_row + offset, "sub_row": 0}
    return {"input": at_input, "source_row": source_row, "sub_row": sub_row + offset}


def order(place):
    return (place["input"], place["source_row"], place["sub_row"])


def verify_provenance(facts, shard):
    """Runs are maximal, ordered, begin at row 0 and lie within what fingerprint.json names."""
    print_ = json.loads(read(shard.path("fingerprint.json")))
    hashed = {key: value for key, value in print_.items() if key != "hash"}
    facts.say(canonical_sha256(hashed) == print_["hash"], "fingerprint.json: wrong hash")
    facts.say(set(print_) == {"cache_key", "hash", "inputs", "layout", "slot", "source"}
              and print_["layout"] == reader.LAYOUT, "fingerprint.json: not the keys of layout 1")
    flat = reader.map_array(shard.path("provenance.bin"), "<i8")
    check(len(flat) % 4 == 0, "provenance.bin: no whole number of runs")
    runs = [tuple(run) for run in flat.reshape(-1, 4).tolist()]
    facts.say(bool(runs) == (len(shard) > 0), "provenance.bin: runs without rows or rows without runs")
    for i, run in enumerate(runs):
        fine = 0 <= run[1] < len(print_["inputs"]) and run[2] >= 0 and run[3] >= -1
        facts.say(fine, f"provenance.bin: run {i} is of no input or row")
        facts.say(run[0] == 0 if i == 0 else run[0] > runs[i - 1][0], f"provenance.bin: run {i} is out of order")
        if i > 0:
            last = position(runs[i - 1], run[0] - runs[i - 1][0] - 1)
            goes_on = position(runs[i - 1], run[0] - runs[i - 1][0]) == position(run, 0)
            facts.say(not goes_on or (run[3] == -1) != (runs[i - 1][3] == -1), f"provenance.bin: run {i} goes on from the one before")
            facts.say(order(last) < order(position(run, 0)), f"provenance.bin: run {i} goes back")
    facts.say(not runs or runs[-1][0] < len(shard), "provenance.bin: runs past the last row")
    source = print_["source"]
    if not runs:
        facts.say(source["from"] is None, "fingerprint.json: a first row where there is none")
    if runs:
        facts.say(source["from"] == position(runs[0], 0), "fingerprint.json: `from` is not the first row's")
        last = position(runs[-1], len(shard) - 1 - runs[-1][0])
        facts.say(source["to"] is None or order(last) < order(source["to"]), "fingerprint.json: `to` is not after the last row")
    to = source["to"] and (source["to"]["input"], source["to"]["source_row"])
    verify_rejects(facts, reject_lines(shard), len(print_["inputs"]), runs, len(shard), to)


REJECT = {"code": str, "input": int, "message": str, "path": list, "source_row": int, "stage": str}
CODE = re.compile(r"[a-z][a-z0-9_]*")


def is_reject(entry, n_inputs):
    if not isinstance(entry, dict) or {key: type(value) for key, value in entry.items()} != REJECT:
        return False
    numbers = [entry["input"], entry["source_row"], *entry["path"]]
    fine = all(type(number) is int and number >= 0 for number in numbers)
    return fine and entry["input"] < n_inputs and bool(CODE.fullmatch(entry["code"])) and entry["stage"] != ""


def verify_rejects(facts, lines, n_inputs, runs, n_rows, to):
    """Each line is a reject; they are in stream order; no row is rejected twice, or stored as well.

    `to` is (input, source row) of the first row of the next shard: what was rejected behind it is there."""
    last, seen = (0, 0), set()
    for number, text in enumerate(lines):
        where = f"rejects.jsonl: line {number + 1}"
        try:
            entry = json.loads(text)
        except ValueError:
            entry = None
        if not is_reject(entry, n_inputs):
            facts.say(False, f"{where} is not a reject")
            continue
        facts.say(text == line(entry), f"{where} is not as Rowmill writes it")
        at, path, stage = (entry["input"], entry["source_row"]), entry["path"], entry["stage"]
        facts.say(at >= last, f"{where} comes before the one above it")
        if at != last:
            last, seen = at, set()
        facts.say(to is None or at <= to, f"{where} is of a row behind the shard")
        if path:
            # A stage sees the rows of one source row in their order.
            facts.say(all(mine < path[-1] for other, mine in seen if other == stage), f"{where}: `path` does not go up")
            facts.say(("", -1) not in seen, f"{where} is of a row that was rejected whole")
            seen.add((stage, path[-1]))
        else:
            facts.say(not seen, f"{where} is of a row that has become several")
            facts.say(not is_stored(runs, n_rows, at), f"{where} is of a row that is stored")
            seen.add(("", -1))


def is_stored(runs, n_rows, at):
    """Whether a row of this (input, source row) is in the shard."""
    ends = [run[0] for run in runs[1:]] + [n_rows]
    for (row, at_input, source_row, sub_row), end in zip(runs, ends):
        n_source_rows = end - row if sub_row == -1 else 1
        if at_input == at[0] and source_row <= at[1] < source_row + n_source_rows:
            return True
    return False


def reject_lines(shard):
    text = read(shard.path("rejects.jsonl"))
    check(text.endswith(b"\n") or not text, "rejects.jsonl: torn")
    return text.split(b"\n")[:-1]


def has_type(field, kind):
    """Whether a column of index.parquet is of the type that a field's values ask for."""
    if field.categories is not None or field.type in ("utf8", "json"):
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if field.type is None:
        return kind == pa.from_numpy_dtype(np.dtype(field.numpy))
    if field.type == "decimal128":
        return kind == pa.decimal128(field.logical["precision"], field.logical["scale"])
    if field.type == "timestamp":
        return kind == pa.timestamp(field.logical["unit"], field.logical["tz"])
    if field.type == "duration":
        return kind == pa.duration(field.logical["unit"])
    if field.type == "time64":
        seconds = field.logical["unit"] in ("s", "ms")
        return kind == (pa.time32 if seconds else pa.time64)(field.logical["unit"])
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return kind == pa.date32() if field.type == "date32" else binary


def as_arrow(field, value):
    """A reader's value as the plain number, string or bytes that Arrow holds."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return int(value.view("<i8"))
    return value


def plain_column(field, column):
    """A column of index.parquet as a list of plain values."""
    if field.type in ("time64", "timestamp", "duration"):
        narrow = pa.types.is_time32(column.type)
        column = column.cast(pa.int32() if narrow else pa.int64())
    elif field.type == "date32":
        column = column.cast(pa.int32())
    return column.to_pylist()


def same_values(mine, theirs):
    """Equality under which NaN equals NaN."""
    return len(mine) == len(theirs) and all(
        a == b or (a != a and b != b) for a, b in zip(mine, theirs))


def verify_index(facts, shard):
    """index.parquet has the columns of section 4 in order, with the values of the field files."""
    parquet = pa.parquet.ParquetFile(shard.path("index.parquet"))
    groups = [parquet.metadata.row_group(i).num_rows for i in range(parquet.metadata.num_row_groups)]
    full, rest = divmod(len(shard), ROW_GROUP)
    facts.say([n for n in groups if n] == [ROW_GROUP] * full + ([rest] if rest else []), "index.parquet: wrong row groups")
    for group in range(len(groups)):
        chunk = parquet.metadata.row_group(group)
        codecs = {chunk.column(i).compression for i in range(chunk.num_columns)}
        facts.say(codecs <= {"UNCOMPRESSED"}, f"index.parquet: compressed with {codecs}")
    table = parquet.read()
    want = [("row", None, list(range(len(shard))))]
    values = lambda field: [as_arrow(field, shard[field.name][row]) for row in range(len(shard))]
    if shard.key:
        want.append((shard.key.stem, shard.key, values(shard.key)))
    for field in shard.fields:
        column = shard[field.name]
        if column.valid is not None:
            want.append((f"has_{field.stem}", None, (column.valid == 1).tolist()))
        if column.codes is not None:
            want.append((f"{field.stem}_key", None, [c if c >= 0 else None for c in column.codes.tolist()]))
        if field.index and field is not shard.key:
            want.append((field.stem, field, values(field)))
    names = [name for name, _, _ in want]
    check(table.column_names == names, f"index.parquet: columns {table.column_names} where {names} belong")
    for name, field, expected in want:
        column = table.column(name).combine_chunks()
        got = column.to_pylist() if field is None else plain_column(field, column)
        facts.say(same_values(got, expected), f"index.parquet: column {name!r} differs from the field's files")
        if field is None:
            right = {"row": pa.int64()}.get(name) or (pa.bool_() if name.startswith("has_") else pa.int64())
            facts.say(column.type == right, f"index.parquet: column {name!r} is {column.type}")
        else:
            facts.say(has_type(field, column.type), f"index.parquet: column {name!r} is {column.type}")


def verify_shard(folder, shard_id=None):
    """What is wrong with one shard; `shard_id` is its name where the manifest gives one."""
    facts = Facts()
    facts.wrong += facts.run(lambda _: verify_sums(folder)) or []
    if facts.wrong:
        return facts.wrong, None
    try:
        shard = reader.Shard(folder)
    except FormatError as error:
        return [str(error)], None
    if shard_id is not None:
        facts.say(shard.sums_b3[:32] == shard_id, f"the folder's name is not {shard.sums_b3[:32]}")
    facts.run(verify_files, shard)
    owners = {}
    for field in shard.fields:
        owners[field.axis] = owners.get(field.axis, 0) + 1
    for field in shard.fields:
        facts.run(verify_column, shard, field, owners)
    if shard.key:
        facts.run(verify_keys, shard)
    facts.run(verify_provenance, shard)
    facts.run(verify_index, shard)
    return facts.wrong, shard


def shard_bytes(folder):
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def add_books(total, books):
    for stage, counts in books.items():
        mine = total.setdefault(stage, dict.fromkeys(counts, 0))
        for key, count in counts.items():
            mine[key] += count


def verify_books(facts, where, books):
    for stage, counts in books.items():
        closed = counts["in"] + counts["created"] == counts["out"] + counts["dropped"] + counts["rejected"]
        facts.say(closed, f"{where}: the books of {stage!r} do not close")


def verify_partition(facts, data, number, head, lines, shards):
    """One partition's line, its record, and that its shards follow on from each other."""
    where = f"partition {number}"
    name = head["record"]
    record_bytes = read(os.path.join(data.folder, "partitions", name))
    record = json.loads(record_bytes)
    facts.say(record_bytes == document(record), f"{where}: {name} is not as Rowmill writes JSON")
    if blake3:
        facts.say(name == f"{head['slot']}-{b3(record_bytes)[:16]}.json", f"{where}: {name} is not named by its bytes")
        inputs = line(record["inputs"]) + line(record["side"])
        facts.say(b3(inputs) == head["inputs_b3"], f"{where}: inputs_b3 is not of the record's inputs")
    facts.say(record["layout"] == reader.LAYOUT and record["slot"] == head["slot"]
              and record["cache_key"] == data.manifest[0]["cache_key"], f"{where}: {name} is another's")
    facts.say(head["inputs"] == len(record["inputs"]), f"{where}: number of inputs")
    facts.say(record["books"] == head["books"], f"{where}: the record's books differ")
    mine = [{key: entry[key] for key in ("id", "rows", "bytes")} for entry in lines]
    facts.say(record["shards"] == mine and head["shards"] == len(mine), f"{where}: the record's shards differ")
    facts.say(head["rows"] == record["rows"] == sum(entry["rows"] for entry in lines), f"{where}: rows")
    verify_books(facts, where, head["books"])
    if all(shards):
        rejects = [json.loads(text) for shard in shards for text in reject_lines(shard)]
        kept = collections.Counter(reject["stage"] for reject in rejects)
        facts.say(set(kept) <= set(head["books"]), f"{where}: rejects of stages without books")
        for stage, counts in head["books"].items():
            rejected = counts["rejected"]
            facts.say(rejected == kept[stage], f"{where}: {kept[stage]} rejects of {stage!r} kept, {rejected} in the books")
        places = [(reject["input"], reject["source_row"]) for reject in rejects]
        facts.say(places == sorted(places), f"{where}: rejects of its shards are out of order")
        prints = [json.loads(read(shard.path("fingerprint.json"))) for shard in shards]
        for before, after in zip(prints, prints[1:]):
            facts.say(before["source"]["to"] == after["source"]["from"], f"{where}: shards do not follow")
        if prints:
            facts.say(prints[-1]["source"]["to"] is None, f"{where}: the last shard is not at the end")
        facts.say(all(p["slot"] == head["slot"] and p["cache_key"] == record["cache_key"] for p in prints),
                  f"{where}: a shard of another slot")


def verify_key_index(facts, data, shards):
    """The key index is the merge of all shards' keys.bin."""
    entry = data.manifest[0]["keys"]
    if data.key is None:
        facts.say(entry is None, "a key index without a key")
        return
    path = os.path.join(data.folder, entry["file"])
    starts, entries = reader.map_key_index(path)
    if blake3:
        facts.say(b3(read(path)) == entry["b3"] and entry["file"] == f"keys-{entry['b3'][:16]}.bin",
                  f"{entry['file']}: not named by its bytes")
    want = []
    for number, shard in enumerate(shards):
        for hash_, row in reader.map_array(shard.path("keys.bin"), reader.KEY).tolist():
            want.append((hash_, number, row))
    want.sort()
    facts.say(entries.tolist() == want, "the key index is not the merge of the shards' keys")
    tops = np.array([hash_ >> 48 for hash_, _, _ in want], "<i8")
    facts.say(np.array_equal(starts, np.searchsorted(tops, np.arange(65_537))), "the key index: wrong starts")
    keys = {}
    for number, shard in enumerate(shards):
        for row in range(len(shard)):
            first = keys.setdefault(shard[data.key.name][row], (number, row))
            facts.say(first == (number, row), f"the key of row {row} of shard {number} is also that of {first}")


def verify_dataset(facts, data):
    """The manifest against the sentinel, its shards and its records."""
    complete, lines = reader.read_manifest(data.folder)
    name = complete["manifest"]
    text = read(os.path.join(data.folder, name))
    facts.say(read(os.path.join(data.folder, "_COMPLETE")) == document(complete), "_COMPLETE: not as Rowmill writes JSON")
    # The definition may hold floats, which languages write differently.
    rest = text[text.index(b"\n") + 1:]
    facts.say(rest == b"".join(line(entry) + b"\n" for entry in lines[1:]), f"{name}: not as Rowmill writes JSON")
    if blake3:
        facts.say(b3(text) == complete["manifest_b3"] and name == f"manifest-{b3(text)[:16]}.jsonl",
                  f"{name}: not the manifest that _COMPLETE names")
    head, shards, partitions, books = lines[0], [], [], {}
    facts.say(head["cache_key"] == os.path.basename(os.path.realpath(data.folder)), "the folder is not the cache key's")
    facts.say(head["cache_key"] == canonical_sha256(head["definition"])[:16], f"{name}: wrong cache key")
    inputs = [entry["inputs_b3"] for entry in lines[1:] if entry["type"] == "partition"]
    fingerprint = canonical_sha256({"cache_key": head["cache_key"], "inputs": inputs})
    facts.say(head["fingerprint"] == fingerprint, f"{name}: wrong fingerprint")
    for entry in lines[1:]:
        if entry["type"] == "partition":
            partitions.append((entry, [], []))
            add_books(books, entry["books"])
            continue
        check(partitions, f"{name}: a shard before any partition")
        folder = os.path.join(data.folder, "shards", entry["id"])
        wrong, shard = verify_shard(folder, entry["id"])
        facts.wrong += [f"shard {entry['id']}: {message}" for message in wrong]
        if shard is not None:
            facts.say(shard.document == head["schema"], f"shard {entry['id']}: another schema")
            facts.say(shard.n_rows == entry["rows"], f"shard {entry['id']}: {shard.n_rows} rows, not {entry['rows']}")
            facts.say(shard_bytes(folder) == entry["bytes"], f"shard {entry['id']}: not {entry['bytes']} bytes")
        shards.append(shard)
        partitions[-1][1].append(entry)
        partitions[-1][2].append(shard)
    for number, (entry, its_lines, its_shards) in enumerate(partitions):
        facts.run(verify_partition, data, number, entry, its_lines, its_shards)
    totals = {
        "rows": sum(entry["rows"] for entry, _, _ in partitions), "shards": len(shards),
        "partitions": len(partitions), "bytes": sum(l["bytes"] for _, ls, _ in partitions for l in ls),
    }
    # A source that has no partition, because a limit was reached before, has books of zeros.
    said = {stage: counts for stage, counts in head["books"].items() if any(counts.values())}
    summed = {stage: counts for stage, counts in books.items() if any(counts.values())}
    facts.say(said == summed or not books, f"{name}: books are {said}, its lines add up to {summed}")
    for key, total in totals.items():
        facts.say(head[key] == total, f"{name}: {key} are {head[key]}, its lines add up to {total}")
    verify_books(facts, name, head["books"])
    facts.say((complete["rows"], complete["shards"]) == (head["rows"], head["shards"]), "_COMPLETE: other totals")
    if all(shards):
        facts.run(verify_key_index, data, shards)


def verify(path, blake3_required=True):
    """Everything that is wrong at `path`, as a list of sentences."""
    check(blake3 or not blake3_required, "the Python package `blake3` is needed to check every sum")
    try:
        data = reader.open(path)
    except FormatError as error:
        if os.path.exists(os.path.join(path, "B3SUMS")):
            return verify_shard(path)[0] or [str(error)]
        return [str(error)]
    if data.manifest is None:
        name = os.path.basename(os.path.abspath(path))
        return verify_shard(path, name if reader.SHARD_ID.fullmatch(name) else None)[0]
    facts = Facts()
    facts.run(verify_dataset, data)
    return facts.wrong
