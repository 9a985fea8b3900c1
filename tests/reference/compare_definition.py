"""Compares every value of a dataset that a definition of pipelines/ made with what others read.

    python3 tests/reference/compare_definition.py fashion-mnist data/fashion-mnist fashion-mnist-t10k

The last argument is the folder that the definition read. NumPy, gzip, csv, json and pyarrow read the
files, the reader beside this file the dataset.
"""

import csv
import gzip
import io
import json
import pathlib
import sys
import zipfile

import numpy as np

import rowmill_reader


def whole(data, name):
    """A fixed field of all shards as one array."""
    return np.concatenate([shard[name].values for shard in data.shards()])


def texts(data, name):
    """A text field of all shards as one list, None where it is null."""
    out = []
    for shard in data.shards():
        column = shard[name]
        if column.codes is not None:
            values = column.dictionary() + [None]
            out += [values[code] for code in column.codes]
        elif column.field.categories is not None:
            values = column.field.categories + [None]
            out += [values[code] for code in column.values]
        else:
            out += [column[row] for row in range(len(column))]
    return out


def valid(data, name):
    columns = [shard[name] for shard in data.shards()]
    return np.concatenate([np.ones(len(c), bool) if c.valid is None else c.valid == 1 for c in columns])


def fields(data, **want):
    """The kinds of fields by name."""
    got = {field.name: (field.kind, field.dtype, field.shape) for field in data.fields}
    for name, kind in want.items():
        assert got[name] == kind, (name, got[name], kind)


def fashion_mnist(data, root):
    with gzip.open(root / "t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), "u1", offset=16).reshape(-1, 28, 28)
    with gzip.open(root / "t10k-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), "u1", offset=8)
    fields(data, image=("fixed", "uint8", [28, 28]), label=("fixed", "uint8", []))
    assert len(data) == len(images) == 10_000 and len(data.shard_ids) == 3
    assert (whole(data, "image") == images).all()
    assert (whole(data, "label") == labels).all()


def nyc_flights(data, root):
    with zipfile.ZipFile(root / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        table = list(csv.reader(io.TextIOWrapper(file, "utf-8", newline="")))
    head, columns = table[0], list(zip(*table[1:]))
    assert [field.name for field in data.fields] == head
    assert len(data) == len(table) - 1 == 336_776
    for name, column in zip(head, columns):
        field = next(field for field in data.fields if field.name == name)
        want = [None if value in ("NA", "") else value for value in column]
        if field.kind == "interned" or field.categories or field.logical:
            assert texts(data, name) == want, name
            continue
        present = np.array([value is not None for value in want])
        assert (valid(data, name) == present).all(), name
        numbers = np.array([0 if value is None else float(value) for value in want])
        assert (whole(data, name) == numbers).all(), name
    fields(data, dep_delay=("fixed", "int16", []), tailnum=("interned", "uint8", []))


def penguins(data, root):
    with open(root / "penguins-raw.csv", newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    stems = {field.name: field.stem for field in data.fields}
    assert list(stems) == list(table[0])
    for name, stem in [("studyName", "studyname"), ("Culmen Length (mm)", "culmen_length__mm_"),
                       ("Delta 15 N (o/oo)", "delta_15_n__o_oo_"), ("Sex", "sex")]:
        assert stems[name] == stem, (name, stems[name])
    assert len(data) == len(table) == 344
    for row, want in zip(data.rows(), table):
        for name, text in want.items():
            value = row[name]
            if text == "NA":
                assert value is None, (name, value)
            else:
                same = value == text if isinstance(value, str) else value == type(value)(text)
                assert same, (name, value, text)


def maths_questions(data, root):
    want = []
    for name in ["test.jsonl", "train.jsonl"]:
        with open(root / name, encoding="utf-8") as file:
            want += [json.loads(line) for line in file]
    assert len(data) == len(want) == 8_792
    for row, record in zip(data.rows(), want):
        question = record["question"]
        assert {name: row[name] for name in record} == record
        assert row["question_words"] == len(question.split()), question
        assert row["question_characters"] == len(question), question


def nested_parquet(data, root):
    import pyarrow.parquet

    def at(record, path):
        for name in path.split("."):
            record = None if record is None else record[name]
        return record

    table = pyarrow.parquet.read_table(root / "nullable.impala.parquet")
    table = table.to_pylist(maps_as_pydicts="strict")
    assert len(data) == len(table) == 7
    n_json = 0
    for row, record in zip(data.rows(), table):
        for field in data.fields:
            value, want = row[field.name], at(record, field.name)
            if field.type == "json" and value is not None:
                value, n_json = json.loads(value), n_json + 1
            assert value == want, (field.name, value, want)
    assert n_json > 20, n_json


def signal_profiles(data, root):
    """As readers of the memory-mapped cache do: one folder, NumPy, a Parquet reader and json."""
    import pyarrow as pa
    import pyarrow.parquet

    import profiles

    want = list(profiles.rows(root))
    [(folder, rows)] = data.shard_ids
    folder = pathlib.Path(folder)
    shapes = json.loads((folder / "shapes.json").read_text())
    assert rows == shapes["n"] == len(want) == 325
    arrays = {}
    for name, dtype, shape in [("data", "<i2", [325, 5, 4096]), ("annotation", "<i1", [325, 5, 4096]),
                               ("scaler", "<f4", [325, 4096])]:
        assert shapes[name] == {"dtype": np.dtype(dtype).name, "shape": shape}, shapes[name]
        arrays[name] = np.memmap(folder / f"{name}.bin", dtype, "r", shape=tuple(shape))
    index = pyarrow.parquet.read_table(folder / "index.parquet")
    assert index.column_names == [
        "row", "path", "has_annotation", "panel_key", "allele_key", "meta_json"], index.column_names
    panels = json.loads((folder / "panels.json").read_text())
    alleles = json.loads((folder / "alleles.json").read_text())
    assert (len(panels), len(alleles)) == (1, 3)
    for entry, row in zip(index.to_pylist(), want):
        i = entry["row"]
        assert (arrays["data"][i] == row["data"]).all() and (arrays["scaler"][i] == row["scaler"]).all()
        assert entry["path"] == row["path"] and entry["meta_json"] == row["meta_json"]
        assert entry["has_annotation"] == (row["annotation"] is not None)
        annotation = 0 if row["annotation"] is None else row["annotation"]
        assert (arrays["annotation"][i] == annotation).all()
        assert panels[str(entry["panel_key"])] == row["panel"]
        assert alleles[str(entry["allele_key"])] == row["allele"]
        assert data.find(row["path"]) == i
    # What the same index takes with the texts in its rows: on disk Parquet stores equal ones once as well,
    # but whoever reads the index gets them row by row.
    inline = index.drop_columns(["panel_key", "allele_key"])
    for name in ["panel", "allele"]:
        inline = inline.append_column(name, pa.array([row[name] for row in want]))
    sink = io.BytesIO()
    pyarrow.parquet.write_table(inline, sink)
    size = lambda name: (folder / name).stat().st_size
    sidecars = size("panels.json") + size("alleles.json")
    print(f"index.parquet {size('index.parquet')} bytes, {index.nbytes} in memory; sidecars {sidecars}")
    print(f"with inline texts {len(sink.getvalue())} bytes, {inline.nbytes} in memory")
    assert size("index.parquet") < len(sink.getvalue())
    assert (index.nbytes + sidecars) * 100 < inline.nbytes


def main():
    name, dataset, root = sys.argv[1:]
    data = rowmill_reader.open(dataset)
    globals()[name.replace("-", "_")](data, pathlib.Path(root))
    print(f"{name}: {len(data)} rows agree")


if __name__ == "__main__":
    main()
