"""The files of a field, as the peers' scripts write them: values, offsets of texts, validity.

Each file is written once and synced. There are no sums, commits or manifest.
"""

import os
import pathlib
import sys

import numpy as np


def arguments(kinds):
    """What to do, the inputs, and the folder to write to, made here."""
    kind, source, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    out.mkdir(parents=True)
    return kinds[kind], source, out


def save(path, pieces):
    """Writes pieces one after another, and syncs the file."""
    with open(path, "wb", buffering=0) as file:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while view:
                view = view[file.write(view) :]
        os.fsync(file.fileno())


def save_arrow(out, name, chunks):
    """Writes an Arrow column, chunk by chunk, without joining the chunks in memory."""
    import pyarrow as pa

    save(out / f"{name}.valid.bin", (valid(chunk) for chunk in chunks))
    if not chunks or not (pa.types.is_string(chunks[0].type) or pa.types.is_large_string(chunks[0].type)):
        save(out / f"{name}.bin", (chunk.to_numpy() for chunk in chunks))
        return
    ends, texts, end = [np.zeros(1, "<i8")], [], 0
    for chunk in chunks:
        offset_type = "<i8" if pa.types.is_large_string(chunk.type) else "<i4"
        _, offsets, text = chunk.buffers()
        offsets = np.frombuffer(offsets, offset_type)[chunk.offset : chunk.offset + len(chunk) + 1]
        ends.append(offsets[1:].astype("<i8") + (end - int(offsets[0])))
        end = int(ends[-1][-1]) if len(chunk) else end
        texts.append(memoryview(text)[int(offsets[0]) : int(offsets[-1])] if text else b"")
    save(out / f"{name}.offsets.bin", ends)
    save(out / f"{name}.bin", texts)


def valid(chunk):
    if chunk.null_count == 0:
        return np.ones(len(chunk), "u1")
    return chunk.is_valid().to_numpy(zero_copy_only=False).view("u1")
