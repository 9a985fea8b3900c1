"""Seconds that NumPy takes to read random rows of mapped files, in batches.

    gather.py ROWS BATCH (FILE ROW_BYTES)...
"""

import sys
import time

import numpy as np

rows, batch = int(sys.argv[1]), int(sys.argv[2])
fields = []
for path, row_bytes in zip(sys.argv[3::2], map(int, sys.argv[4::2])):
    flat = np.memmap(path, "u1", "r")
    fields.append(flat.reshape(-1, row_bytes))
    flat.max()  # the first touch of each page is not what is measured
picked = np.random.default_rng(21).integers(0, len(fields[0]), rows)
for field in fields:
    field[picked[:batch]]
began = time.perf_counter()
for at in range(0, rows, batch):
    for field in fields:
        field[picked[at : at + batch]]
print(time.perf_counter() - began)
