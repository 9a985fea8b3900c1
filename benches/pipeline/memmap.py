"""The same rows by hand: read in one process, written into numpy.memmap arrays, flushed at the end.

    memmap.py files FOLDER OUT
    memmap.py csv FILE OUT

No sums, no manifest, no resuming: what a script does whose author is in a hurry.
"""

import csv
import itertools
import json
import pathlib
import sys

import numpy as np

CHUNK_ROWS = 65_536


def files(folder, out):
    paths = sorted(folder.glob("*/*.bin"))
    size = paths[0].stat().st_size
    content = np.memmap(out / "bytes.bin", "u1", "w+", shape=(len(paths), size))
    for row, path in enumerate(paths):
        with open(path, "rb") as file:
            file.readinto(content[row])
    content.flush()
    names = [str(path.relative_to(folder)) for path in paths]
    (out / "paths.json").write_text(json.dumps(names))


def rows(path, out):
    with open(path, "rb") as file:
        n_rows = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b"")) - 1
    with open(path, newline="") as file:
        reader = csv.reader(file)
        header = next(reader)
        first = next(reader)
        columns = []
        for name, value in zip(header, first):
            if value.isdigit():
                dtype = np.dtype("<i8")
            elif value.replace(".", "", 1).isdigit():
                dtype = np.dtype("<f4")
            else:
                dtype = np.dtype(f"S{len(value)}")
            columns.append(np.memmap(out / f"{name}.bin", dtype, "w+", shape=(n_rows,)))
        at, reader = 0, itertools.chain([first], reader)
        while chunk := list(itertools.islice(reader, CHUNK_ROWS)):
            for column, values in zip(columns, zip(*chunk)):
                column[at : at + len(chunk)] = np.array(values, column.dtype)
            at += len(chunk)
    for column in columns:
        column.flush()


kind, source, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
out.mkdir(parents=True)
{"files": files, "csv": rows}[kind](source, out)
