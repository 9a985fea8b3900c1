"""The same field files with NumPy and the standard library.

    with_numpy.py csv|jsonl FILE OUT
    with_numpy.py idx|npy FOLDER OUT
"""

import csv
import itertools
import json

import numpy as np
from field_files import arguments, save

CHUNK_ROWS = 65_536


def from_csv(path, out):
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        save_rows(next(rows), rows, out)


def from_jsonl(path, out):
    with open(path, encoding="utf-8") as file:
        names = list(json.loads(file.readline()))
        file.seek(0)
        objects = map(json.loads, file)
        save_rows(names, (tuple(map(row.get, names)) for row in objects), out)


def save_rows(names, rows, out):
    """Turns chunks of rows into columns; the first row tells their types."""
    kinds, pieces = None, {name: [] for name in names}
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        kinds = kinds or [kind_of(value) for value in chunk[0]]
        for name, kind, values in zip(names, kinds, zip(*chunk)):
            pieces[name].append([v.encode() for v in values] if kind is None else np.array(values, kind))
    for name, kind in zip(names, kinds):
        n_rows = sum(map(len, pieces[name]))
        save(out / f"{name}.valid.bin", [np.ones(n_rows, "u1")])
        if kind is not None:
            save(out / f"{name}.bin", pieces[name])
            continue
        texts = list(itertools.chain.from_iterable(pieces[name]))
        ends = np.cumsum(np.fromiter(map(len, texts), "<i8", n_rows), dtype="<i8")
        save(out / f"{name}.offsets.bin", [np.zeros(1, "<i8"), ends])
        save(out / f"{name}.bin", [b"".join(texts)])


def kind_of(value):
    if isinstance(value, (int, float)):
        return "<i8" if isinstance(value, int) else "<f8"
    for read, kind in ((int, "<i8"), (float, "<f8")):
        try:
            read(value)
            return kind
        except ValueError:
            continue
    return None


def from_idx(folder, out):
    (images,), (labels,) = folder.glob("*-images-*"), folder.glob("*-labels-*")
    save(out / "image.bin", [np.memmap(images, "u1", "r", offset=16)])
    save(out / "label.bin", [np.memmap(labels, "u1", "r", offset=8)])


def from_npy(folder, out):
    arrays = [np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))]
    save(out / "value.bin", arrays)


READERS = {"csv": from_csv, "jsonl": from_jsonl, "idx": from_idx, "npy": from_npy}

read, source, out = arguments(READERS)
read(source, out)
