#!/usr/bin/env python3
"""Measures a keyed cache that is an Arrow IPC file per flush and a pickled dict, as torchcachex is.

    python3 benches/cache/peer.py [--quick] [--json]

Needs pyarrow and numpy. The same rows, batches and figures as `cargo bench --bench cache`. What is measured is the
design at its best: rows go to Arrow straight from NumPy, files stay mapped once they were opened, rows of a file are
taken together, and the dict maps 32-byte keys to a file and row. Nothing is synced, so appending is not durable.
"""
import json
import os
import pickle
import shutil
import sys
import time

import numpy as np
import pyarrow as pa

WIDTH, BATCH = 16, 2048
QUICK, AS_JSON = "--quick" in sys.argv, "--json" in sys.argv
SIZES = [10_000] if QUICK else [10_000, 100_000, 1_000_000, 10_000_000]
ABOVE = os.environ.get("ROWMILL_BENCH_DIR", "target/tmp")
FIGURES = []


def keys(numbers):
    """32 bytes for each number, evenly spread (splitmix64)."""
    state = np.asarray(numbers, dtype=np.uint64)
    words = np.empty((len(state), 4), dtype="<u8")
    with np.errstate(over="ignore"):
        for i in range(4):
            state = state + np.uint64(0x9E3779B97F4A7C15)
            z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            words[:, i] = z ^ (z >> np.uint64(31))
    data = words.tobytes()
    return [data[at:at + 32] for at in range(0, len(data), 32)]


def anonymous_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


class Cache:
    """A folder with `segment_N.arrow` per flush and `index.pkl`."""

    def __init__(self, folder):
        self.folder, self.index, self.open, self.n = folder, {}, {}, 0
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "index.pkl")
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.index, self.n = pickle.load(file)

    def put(self, some, rows):
        """Rows are one batch; each batch is a flush, as with `flush_every` of the batch size."""
        values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), WIDTH)
        table = pa.record_batch([values], ["x"])
        path = os.path.join(self.folder, f"segment_{self.n:06d}.arrow")
        with pa.OSFile(path + ".tmp", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_batch(table)
        os.rename(path + ".tmp", path)
        self.index.update((key, (self.n, row)) for row, key in enumerate(some))
        self.n += 1

    def save(self):
        path = os.path.join(self.folder, "index.pkl")
        with open(path + ".tmp", "wb") as file:
            pickle.dump((self.index, self.n), file, protocol=pickle.HIGHEST_PROTOCOL)
        os.rename(path + ".tmp", path)

    def get(self, some):
        """Rows in the order asked for, and the positions of misses."""
        places, misses = {}, []
        for at, key in enumerate(some):
            found = self.index.get(key)
            if found is None:
                misses.append(at)
            else:
                places.setdefault(found[0], []).append((at, found[1]))
        out = np.empty((len(some), WIDTH), dtype=np.float32)
        for segment, rows in places.items():
            if segment not in self.open:
                path = os.path.join(self.folder, f"segment_{segment:06d}.arrow")
                reader = pa.ipc.open_file(pa.memory_map(path))
                self.open[segment] = np.asarray(reader.get_batch(0).column(0).flatten()).reshape(-1, WIDTH)
            ats, numbers = zip(*rows)
            out[list(ats)] = self.open[segment][list(numbers)]
        return out, misses


def measure(folder, n_keys):
    shape = f"{n_keys} keys"

    def push(what, value, unit):
        FIGURES.append({"shape": shape, "what": what, "value": value, "unit": unit})
        print(f"{shape:>14}  {what:<44} {value:12.3f} {unit}", file=sys.stderr if AS_JSON else sys.stdout)

    before = anonymous_bytes()
    cache = Cache(folder)
    saving, began = 0.0, time.perf_counter()
    for start in range(0, n_keys, BATCH):
        stop = min(n_keys, start + BATCH)
        numbers = np.arange(start, stop)
        cache.put(keys(numbers), (numbers[:, None] + np.arange(WIDTH)).astype(np.float32))
    # The design pickles the whole dict at each flush: once is measured, and counted as often.
    flushing = time.perf_counter()
    cache.save()
    saving = time.perf_counter() - flushing
    took = time.perf_counter() - began
    push("append, not durable, dict pickled once", n_keys / took, "rows/s")
    push("pickle of the dict, at each flush", saving * 1e3, "ms")
    push("writer, memory of its own for each key", (anonymous_bytes() - before) / n_keys, "B")
    del cache
    before, began = anonymous_bytes(), time.perf_counter()
    cache = Cache(folder)
    push("open for reading", (time.perf_counter() - began) * 1e3, "ms")
    push("files", cache.n, "")
    random = np.random.default_rng(3)
    draw = lambda n: keys(random.integers(0, n_keys, n))
    cache.get(draw(min(n_keys, 2_000_000)))
    for n in [100, 10_000]:
        times = []
        for asked in [draw(n) for _ in range(4 if QUICK else 51)]:
            began = time.perf_counter()
            _, misses = cache.get(asked)
            times.append(time.perf_counter() - began)
            assert not misses
        push(f"get {n} at once, for each", sorted(times[1:])[len(times) // 2] * 1e6 / n, "µs")
        absent = keys(np.arange(n_keys + 1, n_keys + 1 + n))
        began = time.perf_counter()
        assert len(cache.get(absent)[1]) == n
        push(f"miss {n} at once, for each", (time.perf_counter() - began) * 1e6 / n, "µs")
    push("reader, memory of its own for each key", (anonymous_bytes() - before) / n_keys, "B")


def main():
    for n_keys in SIZES:
        folder = os.path.join(ABOVE, "rowmill-bench-cache-peer")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            measure(folder, n_keys)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if AS_JSON:
        print(json.dumps(FIGURES, indent=2))


main()
