"""Reads Rowmill shards and datasets with NumPy and json alone, written from docs/format.md.

    import rowmill_reader
    data = rowmill_reader.open("out/digits")         # also a cache key's folder, or one shard
    data.n_rows, [field.name for field in data.fields]
    data.row(0)                                       # {"image": array(...), "label": 7}
    data.find("train/00017.png")                      # the row with that key, or None

A value is a bool, int or float where a row holds one number, an array where it holds several, `str`
(utf8, json), `bytes` (binary), `numpy.datetime64` (date32, timestamp), `numpy.timedelta64` (time64,
duration), `decimal.Decimal` (decimal128) or `None`. bfloat16 is widened to float32.

What it does not hold: the checks that read whole files (rowmill_verify.py).
"""

import bisect
import builtins
import decimal
import json
import os
import re

import numpy as np

LAYOUT = 1
KINDS = ("fixed", "ragged", "free", "interned")
NUMPY = {
    "bool": "|b1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
    "float16": "<f2", "float32": "<f4", "float64": "<f8",
}
# Logical type: the dtypes it stands over, and the keys it has beside `type`.
LOGICAL = {
    "utf8": (("uint8",), ()), "binary": (("uint8",), ()), "json": (("uint8",), ()),
    "date32": (("int32",), ()), "time64": (("int64",), ("unit",)),
    "timestamp": (("int64",), ("unit", "tz")), "duration": (("int64",), ("unit",)),
    "decimal128": (("uint8",), ("precision", "scale")), "bfloat16": (("uint16",), ()),
}
BYTE_STRINGS = ("utf8", "binary", "json")
STEM = re.compile(r"[a-z][a-z0-9_]{0,63}")
SIDECAR = re.compile(r"[a-z0-9_]+\.json")
SHARD_ID = re.compile(r"[0-9a-f]{32}")
MANIFEST = re.compile(r"manifest-[0-9a-f]{16}\.jsonl")
KEY_INDEX = re.compile(r"keys-[0-9a-f]{16}\.bin")
RESERVED_JSON = ("schema.json", "shapes.json", "fingerprint.json")
KEY = np.dtype([("hash", "<u8"), ("row", "<u4")])
INDEXED_KEY = np.dtype([("hash", "<u8"), ("shard", "<u4"), ("row", "<u4")])


class FormatError(Exception):
    """The files are not what docs/format.md describes, or of a kind this reader does not know."""


def check(fact, message):
    if not fact:
        raise FormatError(message)


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_json(path):
    try:
        with open_file(path) as file:
            return json.loads(file.read().decode("utf-8"))
    except ValueError as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


def open_file(path):
    try:
        return builtins.open(path, "rb")
    except FileNotFoundError:
        raise FormatError(f"{path}: missing") from None


def map_array(path, dtype):
    """The file as a read-only array of `dtype`; an empty file cannot be mapped and need not be."""
    dtype = np.dtype(dtype)
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise FormatError(f"{path}: missing") from None
    check(size % dtype.itemsize == 0, f"{path}: {size} bytes are no multiple of {dtype.itemsize}")
    if size == 0:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


def map_offsets(path, n):
    """Offsets of `n` things: n + 1 numbers that begin with 0 and never fall."""
    offsets = map_array(path, "<i8")
    check(len(offsets) == n + 1, f"{path}: {len(offsets)} offsets for {n} rows or values")
    check(offsets[0] == 0, f"{path}: the first offset is {offsets[0]}, not 0")
    check(bool((offsets[1:] >= offsets[:-1]).all()), f"{path}: offsets fall")
    return offsets


def key_bytes(key):
    """What is hashed of a key."""
    if isinstance(key, str):
        return key.encode("utf-8")
    return (int(key) & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")


def key_hash(key):
    from blake3 import blake3
    return int.from_bytes(blake3(key_bytes(key)).digest()[:8], "little")


class Field:
    """One entry of schema.json's `fields`, checked."""

    def __init__(self, entry):
        check(isinstance(entry, dict), "schema.json: a field is not an object")
        self.name = entry.get("name")
        check(isinstance(self.name, str), "schema.json: a field without a name")
        where = f"schema.json: field {self.name!r}"
        for key in ("stem", "kind", "dtype", "numpy", "shape", "axis", "nullable", "logical",
                    "categories", "codec", "files", "sidecar", "index"):
            check(key in entry, f"{where} has no `{key}`")
            setattr(self, key, entry[key])
        check(self.codec == "none", f"{where}: unknown codec {self.codec!r}")
        check(self.kind in KINDS, f"{where}: unknown kind {self.kind!r}")
        check(self.dtype in NUMPY, f"{where}: unknown dtype {self.dtype!r}")
        check(self.numpy == NUMPY[self.dtype], f"{where}: {self.dtype} is not {self.numpy!r}")
        check(isinstance(self.stem, str) and STEM.fullmatch(self.stem), f"{where}: bad stem")
        check(isinstance(self.shape, list) and all(map(is_count, self.shape)), f"{where}: bad shape")
        check(isinstance(self.nullable, bool) and isinstance(self.index, bool), f"{where}: bad flag")
        self.type = self.check_logical(where)
        self.check_kind(where)
        check(self.files == self.file_names(), f"{where}: files {self.files} are not its own")

    def check_logical(self, where):
        if self.logical is None:
            return None
        check(isinstance(self.logical, dict), f"{where}: `logical` is not an object")
        kind = self.logical.get("type")
        check(kind in LOGICAL, f"{where}: unknown logical type {kind!r}")
        dtypes, keys = LOGICAL[kind]
        check(self.dtype in dtypes, f"{where}: {kind} over {self.dtype}")
        check(all(key in self.logical for key in keys), f"{where}: {kind} lacks one of {keys}")
        if "unit" in keys:
            check(self.logical["unit"] in ("s", "ms", "us", "ns"), f"{where}: unknown unit")
        if kind == "decimal128":
            check(self.kind != "free" and self.shape[-1:] == [16], f"{where}: decimal128 of no 16 bytes")
        if kind in BYTE_STRINGS:
            check(self.kind in ("ragged", "interned") and not self.shape, f"{where}: {kind} as {self.kind}")
        return kind

    def check_kind(self, where):
        if self.kind in ("ragged", "free"):
            check(isinstance(self.axis, str) and STEM.fullmatch(self.axis), f"{where}: bad axis")
        else:
            check(self.axis is None, f"{where}: an axis for a {self.kind} field")
        if self.kind == "free":
            check(self.axis == self.stem, f"{where}: a free field on a foreign axis")
            check(not any(self.shape), f"{where}: the shape of a free field is zeros")
        if self.kind == "interned":
            check(self.type in BYTE_STRINGS, f"{where}: interned values of no logical type")
        if self.categories is not None:
            check(self.kind == "fixed" and self.dtype in ("int8", "int16", "int32", "int64")
                  and not self.shape and self.type is None, f"{where}: categories of no integer")
            check(all(isinstance(value, str) for value in self.categories), f"{where}: bad categories")
        if self.sidecar is not None:
            check(self.kind == "interned" and SIDECAR.fullmatch(self.sidecar)
                  and self.sidecar not in RESERVED_JSON, f"{where}: bad sidecar {self.sidecar!r}")

    def file_names(self):
        names = []
        if self.kind == "interned":
            names = [f"{self.stem}.codes.bin", f"{self.stem}.dict.bin", f"{self.stem}.dict.offsets.bin"]
            names += [self.sidecar] if self.sidecar else []
            return sorted(names)
        names = [f"{self.stem}.bin"]
        if self.kind in ("ragged", "free"):
            names.append(f"{self.axis}.offsets.bin")
        if self.kind == "free":
            names.append(f"{self.stem}.dims.bin")
        if self.nullable and self.categories is None:
            names.append(f"{self.stem}.valid.bin")
        return sorted(names)

    def value(self, numbers):
        """What one row's array of scalars stands for."""
        if self.type in BYTE_STRINGS:
            data = numbers.tobytes()
            return data if self.type == "binary" else data.decode("utf-8")
        if self.type == "decimal128":
            numbers = decimals(numbers, self.logical["scale"])
        elif self.type == "bfloat16":
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        elif self.type == "date32":
            numbers = numbers.astype("<i8").view("<M8[D]")
        elif self.type == "timestamp":
            numbers = numbers.view(f"<M8[{self.logical['unit']}]")
        elif self.type in ("time64", "duration"):
            numbers = numbers.view(f"<m8[{self.logical['unit']}]")
        if numbers.ndim > 0:
            return numbers
        return numbers[()] if numbers.dtype.kind in "mM" else numbers.item()


def decimals(numbers, scale):
    """Arrays of 16 bytes in the last dimension, as Decimals."""
    out = np.empty(numbers.shape[:-1], object)
    for at in np.ndindex(out.shape):
        unscaled = int.from_bytes(numbers[at].tobytes(), "little", signed=True)
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        out[at] = decimal.Decimal((int(unscaled < 0), digits, -scale))
    return out


class Column:
    """One field of one shard, its files mapped and their sizes checked against each other."""

    def __init__(self, folder, field, n_rows):
        self.field, self.n_rows = field, n_rows
        path = lambda name: os.path.join(folder, name)
        self.valid = self.offsets = self.dims = self.codes = None
        if field.kind == "interned":
            self.codes = map_array(path(f"{field.stem}.codes.bin"), "<i4")
            self.check_length("codes", self.codes, n_rows)
            self.values = map_array(path(f"{field.stem}.dict.bin"), "|u1")
            n_values = len(map_array(path(f"{field.stem}.dict.offsets.bin"), "<i8")) - 1
            self.offsets = map_offsets(path(f"{field.stem}.dict.offsets.bin"), n_values)
            self.check_length("dict", self.values, self.offsets[-1])
            self.check_codes(self.codes, n_values)
            return
        if f"{field.stem}.valid.bin" in field.files:
            self.valid = map_array(path(f"{field.stem}.valid.bin"), "|u1")
            self.check_length("valid", self.valid, n_rows)
            check(bool((self.valid <= 1).all()), f"{field.stem}.valid.bin: neither 0 nor 1")
        self.values = map_array(path(f"{field.stem}.bin"), field.numpy)
        per_entry = int(np.prod(field.shape, dtype=np.int64))
        if field.kind == "fixed":
            self.check_length("values", self.values, n_rows * per_entry)
            self.values = self.values.reshape([n_rows, *field.shape])
            if field.categories is not None:
                self.check_codes(self.values, len(field.categories))
            return
        self.offsets = map_offsets(path(f"{field.axis}.offsets.bin"), n_rows)
        entries = int(self.offsets[-1])
        if field.kind == "ragged":
            self.check_length("values", self.values, entries * per_entry)
            self.values = self.values.reshape([entries, *field.shape])
            return
        self.check_length("values", self.values, entries)
        dims = map_array(path(f"{field.stem}.dims.bin"), "<i4")
        self.check_length("dims", dims, n_rows * len(field.shape))
        self.dims = dims.reshape([n_rows, len(field.shape)])
        self.check_dims()

    def check_length(self, what, array, want):
        check(len(array) == want, f"field {self.field.name!r}: {len(array)} {what} where {want} belong")

    def check_codes(self, codes, n_values):
        lowest = -1 if self.field.nullable else 0
        fine = ((codes >= lowest) & (codes < n_values)).all()
        check(bool(fine), f"field {self.field.name!r}: a code outside of {lowest}..{n_values}")

    def check_dims(self):
        """Each row: numbers, then only -1; their product is what the offsets give the row."""
        name = self.field.name
        padding = self.dims < 0
        check(bool((self.dims >= -1).all()), f"field {name!r}: dims below -1")
        check(bool((padding[:, 1:] >= padding[:, :-1]).all()), f"field {name!r}: a dim after the padding")
        product = np.where(padding, 1, self.dims).astype(np.int64).prod(axis=1)
        absent = 0 if self.valid is None else (self.valid == 0)
        product = np.where(absent, 0, product)
        check(bool((product == np.diff(self.offsets)).all()), f"field {name!r}: dims against offsets")

    def __len__(self):
        return self.n_rows

    def present(self, row):
        if self.codes is not None:
            return self.codes[row] >= 0
        if self.field.categories is not None:
            return self.values[row] >= 0
        return self.valid is None or self.valid[row] == 1

    def dictionary(self):
        """The distinct values of an interned field."""
        return [self.field.value(self.values[self.offsets[i]:self.offsets[i + 1]])
                for i in range(len(self.offsets) - 1)]

    def numbers(self, row):
        """The scalars of a row, without regard to whether it is present."""
        if self.field.kind == "fixed":
            return self.values[row]
        if self.codes is not None:
            row = self.codes[row]
        flat = self.values[self.offsets[row]:self.offsets[row + 1]]
        if self.dims is None:
            return flat
        dims = self.dims[row]
        return flat.reshape(dims[dims >= 0])

    def __getitem__(self, row):
        if not 0 <= row < self.n_rows:
            raise IndexError(row)
        if not self.present(row):
            return None
        if self.field.categories is not None:
            return self.field.categories[self.values[row]]
        return self.field.value(np.asarray(self.numbers(row)))


def parse_schema(document):
    """The checked fields and the key's field (or None) of a document like schema.json."""
    check(isinstance(document, dict), "schema.json: not an object")
    check(document.get("layout") == LAYOUT, f"schema.json: unknown layout {document.get('layout')!r}")
    requires = document.get("requires")
    check(requires == [], f"schema.json: this reader lacks {requires!r}")
    check(isinstance(document.get("fields"), list), "schema.json: no fields")
    fields = [Field(entry) for entry in document["fields"]]
    for names in ([field.name for field in fields], [field.stem for field in fields]):
        check(len(set(names)) == len(names), "schema.json: two fields share a name or stem")
    key = document.get("key")
    if key is None:
        return fields, None
    keys = [field for field in fields if field.name == key]
    check(len(keys) == 1, f"schema.json: the key {key!r} is no field")
    return fields, keys[0]


class Shard:
    """A sealed shard: a folder with `_COMPLETE`."""

    def __init__(self, folder):
        self.folder = folder
        complete = read_json(self.path("_COMPLETE"))
        check(isinstance(complete, dict) and is_count(complete.get("rows")), f"{folder}/_COMPLETE: no rows")
        self.n_rows, self.sums_b3 = complete["rows"], complete.get("sums_b3")
        self.document = read_json(self.path("schema.json"))
        self.fields, self.key = parse_schema(self.document)
        self.columns = {field.name: Column(folder, field, self.n_rows) for field in self.fields}
        self.shapes = read_json(self.path("shapes.json"))
        check(self.shapes == self.expected_shapes(), f"{folder}/shapes.json: not the shapes of the files")

    def path(self, name):
        return os.path.join(self.folder, name)

    def expected_shapes(self):
        shapes = {"n": self.n_rows}
        for field in self.fields:
            column = self.columns[field.name]
            array = column.values if column.codes is None else column.codes
            dtype = field.dtype if column.codes is None else "int32"
            shapes[field.stem] = {"dtype": dtype, "shape": list(array.shape)}
        return shapes

    def __len__(self):
        return self.n_rows

    def __getitem__(self, name):
        return self.columns[name]

    def row(self, row):
        return {field.name: self.columns[field.name][row] for field in self.fields}

    def find(self, key):
        """The row with this key, or None."""
        check(self.key is not None, f"{self.folder}: rows have no key")
        keys = map_array(self.path("keys.bin"), KEY)
        wanted = key_hash(key)
        at = int(np.searchsorted(keys["hash"], np.uint64(wanted)))
        while at < len(keys) and keys["hash"][at] == wanted:
            row = int(keys["row"][at])
            if self.columns[self.key.name][row] == key:
                return row
            at += 1
        return None


class Dataset:
    """All shards of one generation, in order; a lone shard is a dataset of one."""

    def __init__(self, folder, manifest, shards, schema):
        self.folder, self.manifest, self.shard_ids = folder, manifest, shards
        self.fields, self.key = parse_schema(schema)
        self.opened = {}
        self.starts = [0]
        for _, rows in shards:
            self.starts.append(self.starts[-1] + rows)
        self.n_rows = self.starts[-1]

    def shard(self, index):
        if index not in self.opened:
            path, rows = self.shard_ids[index]
            shard = Shard(path)
            check(shard.n_rows == rows, f"{path}: {shard.n_rows} rows where the manifest says {rows}")
            self.opened[index] = shard
        return self.opened[index]

    def shards(self):
        return (self.shard(index) for index in range(len(self.shard_ids)))

    def __len__(self):
        return self.n_rows

    def row(self, row):
        if not 0 <= row < self.n_rows:
            raise IndexError(row)
        index = bisect.bisect_right(self.starts, row) - 1
        return self.shard(index).row(row - self.starts[index])

    def rows(self):
        return (shard.row(row) for shard in self.shards() for row in range(len(shard)))

    def find(self, key):
        """The row with this key, or None: by the key index, or the lone shard's keys."""
        if self.manifest is None:
            return self.shard(0).find(key)
        check(self.key is not None, f"{self.folder}: rows have no key")
        starts, entries = map_key_index(os.path.join(self.folder, self.manifest[0]["keys"]["file"]))
        wanted = key_hash(key)
        entries = entries[starts[wanted >> 48]:starts[(wanted >> 48) + 1]]
        for entry in entries[entries["hash"] == wanted]:
            shard, row = int(entry["shard"]), int(entry["row"])
            if self.shard(shard)[self.key.name][row] == key:
                return self.starts[shard] + row
        return None


def map_key_index(path):
    """The starts and entries of a dataset's key index."""
    check(KEY_INDEX.fullmatch(os.path.basename(path)), f"{path}: no name of a key index")
    numbers = map_array(path, "|u1")
    head = 65_537 * 8
    check(len(numbers) >= head and (len(numbers) - head) % 16 == 0, f"{path}: wrong size")
    starts, entries = numbers[:head].view("<i8"), numbers[head:].view(INDEXED_KEY)
    check(starts[0] == 0 and starts[-1] == len(entries) and bool((np.diff(starts) >= 0).all()),
          f"{path}: wrong starts")
    return starts, entries


def read_manifest(folder):
    """The lines of the manifest that the dataset's sentinel names, and the sentinel."""
    complete = read_json(os.path.join(folder, "_COMPLETE"))
    name = complete.get("manifest")
    check(isinstance(name, str) and MANIFEST.fullmatch(name), f"{folder}/_COMPLETE: bad manifest name")
    path = os.path.join(folder, name)
    with open_file(path) as file:
        text = file.read().decode("utf-8")
    check(text.endswith("\n"), f"{path}: torn")
    try:
        lines = [json.loads(line) for line in text[:-1].split("\n")]
    except ValueError as error:
        raise FormatError(f"{path}: not JSON lines: {error}") from None
    check(lines[0].get("type") == "dataset", f"{path}: no first line of a dataset")
    check(lines[0].get("layout") == LAYOUT, f"{path}: unknown layout {lines[0].get('layout')!r}")
    return complete, lines


def open(path):
    """Opens the folder of a dataset (with or without its cache key) or of one shard."""
    if os.path.islink(os.path.join(path, "current")):
        path = os.path.join(path, os.readlink(os.path.join(path, "current")))
    elif os.path.exists(os.path.join(path, "current.json")):
        path = os.path.join(path, read_json(os.path.join(path, "current.json"))["cache_key"])
    sentinel = os.path.join(path, "_COMPLETE")
    check(os.path.exists(sentinel), f"{path}: not complete, there is no _COMPLETE")
    if "sums_b3" in read_json(sentinel):
        shard = Shard(path)
        data = Dataset(path, None, [(path, shard.n_rows)], shard.document)
        data.opened[0] = shard
        return data
    complete, lines = read_manifest(path)
    shards = []
    for line in lines[1:]:
        check(line.get("type") in ("partition", "shard"), f"{path}: a line of type {line.get('type')!r}")
        if line["type"] == "shard":
            check(SHARD_ID.fullmatch(str(line.get("id"))), f"{path}: bad shard id {line.get('id')!r}")
            shards.append((os.path.join(path, "shards", line["id"]), line["rows"]))
    data = Dataset(path, lines, shards, lines[0]["schema"])
    check(data.n_rows == complete["rows"] and len(shards) == complete["shards"],
          f"{path}: _COMPLETE and the manifest count differently")
    return data
